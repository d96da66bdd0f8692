//! The level that most values of the last seconds stay below, in constant memory.

/// Values below count as one.
const LEAST: u64 = 128;
/// Steps of a level: each is an eighth of a power of two above the one before.
const STEPS: u32 = 8;
/// Levels, up to 128 << 14, which is two seconds of microseconds.
const LEVELS: usize = 14 * STEPS as usize + 1;

/// How many values were on each level, in the current and the previous window of time.
#[derive(Debug)]
pub(crate) struct Levels {
    window_us: u64,
    since_us: u64,
    /// One in so many values may lie above.
    above: u64,
    current: Box<[u32; LEVELS]>,
    before: Box<[u32; LEVELS]>,
    /// What [`Levels::most`] returns; found again once in a while.
    most: u64,
    unread: u32,
}

impl Levels {
    /// Values between two looks at them all.
    const LOOK_EVERY: u32 = 16;

    /// Remembers for one to two times `window_us`; one in `above` may lie above.
    pub(crate) fn new(window_us: u64, above: u64) -> Self {
        let levels = || Box::new([0; LEVELS]);
        let current = levels();
        let before = levels();
        Self { window_us, since_us: 0, above, current, before, most: 0, unread: 0 }
    }

    pub(crate) fn handle_value(&mut self, value: u64, now_us: u64) {
        let age_us = now_us.saturating_sub(self.since_us);
        if age_us >= self.window_us {
            std::mem::swap(&mut self.current, &mut self.before);
            self.current.fill(0);
            if age_us >= 2 * self.window_us {
                self.before.fill(0);
            }
            self.since_us = now_us;
            self.unread = Self::LOOK_EVERY;
        }
        let count = &mut self.current[level(value)];
        *count = count.saturating_add(1);
        self.unread += 1;
        if self.unread >= Self::LOOK_EVERY || value > self.most {
            self.unread = 0;
            self.most = self.find();
        }
    }

    /// All but one in `above` of them are no larger than this, by a tenth or so.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    fn find(&self) -> u64 {
        let counts = || self.current.iter().zip(self.before.iter());
        let count = |(one, other): (&u32, &u32)| u64::from(*one) + u64::from(*other);
        let total: u64 = counts().map(count).sum();
        let mut above = 0;
        for (level, counts) in counts().enumerate().rev() {
            above += count(counts);
            if above * self.above > total {
                return value(level);
            }
        }
        0
    }
}

/// The level on which a value lies.
fn level(value: u64) -> usize {
    let Some(power) = (value / LEAST).checked_ilog2() else { return 0 };
    let step = (value >> power) * u64::from(STEPS) / LEAST - u64::from(STEPS);
    (power as usize * STEPS as usize + step as usize + 1).min(LEVELS - 1)
}

/// The smallest value of a level.
fn value(level: usize) -> u64 {
    let Some(above) = level.checked_sub(1) else { return 0 };
    let power = above as u32 / STEPS;
    let step = above as u64 % u64::from(STEPS);
    (LEAST << power) + ((LEAST << power) / u64::from(STEPS)) * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_on_its_level() {
        for at in 1..LEVELS {
            let least = value(at);
            assert_eq!((level(least), level(least - 1)), (at, at - 1), "{least}");
        }
        assert_eq!((level(0), level(u64::MAX)), (0, LEVELS - 1));
    }

    #[test]
    fn what_stands_out_is_left_out_and_what_is_long_ago_too() {
        let mut levels = Levels::new(1_000, 10);
        assert_eq!(levels.most(), 0);
        for n in 0..1_000 {
            levels.handle_value(if n % 20 == 0 { 30_000 } else { 12_000 }, n);
        }
        assert!((11_000..=12_000).contains(&levels.most()), "{}", levels.most());
        for n in 0..1_000 {
            levels.handle_value(400, 1_500 + n);
        }
        assert!(levels.most() > 10_000, "half of them are of before: {}", levels.most());
        (0..100).for_each(|n| levels.handle_value(400, 2_600 + n));
        assert!((350..=400).contains(&levels.most()), "{}", levels.most());
        levels.handle_value(5_000, 10_000);
        assert!((4_500..=5_000).contains(&levels.most()), "the only one: {}", levels.most());
    }
}
