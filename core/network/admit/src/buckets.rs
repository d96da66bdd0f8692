//! Rates: buckets that fill with time and are emptied by use.

use std::collections::BTreeMap;

/// Keys that a table remembers.
pub const ENTRIES_MAX: usize = 8192;
/// Filled for a unit of use: a thousandth of a second times a minute.
const UNIT: u64 = 60_000;

/// How fast a bucket fills, and how much it holds.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// So many at once.
    pub burst: u32,
    /// So many in a minute after that.
    pub per_minute: u32,
}

impl Rate {
    /// So many at once, and so many a second after that.
    #[must_use]
    pub const fn per_second(burst: u32, per_s: u32) -> Self {
        Self { burst, per_minute: per_s * 60 }
    }
}

/// What is left of a bucket, in parts of a unit, and when that was, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Level {
    left: u64,
    at_ms: u64,
}

/// A table of buckets.
#[derive(Debug)]
pub struct Buckets<K> {
    rate: Rate,
    levels: BTreeMap<K, Level>,
}

impl<K: Copy + Ord> Buckets<K> {
    /// Full buckets for all.
    #[must_use]
    pub const fn new(rate: Rate) -> Self {
        Self { rate, levels: BTreeMap::new() }
    }

    /// Keys that are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.levels.len()
    }

    /// Whether all buckets are full.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    const fn full(&self) -> u64 {
        self.rate.burst as u64 * UNIT
    }

    fn level(&self, known: Level, now_ms: u64) -> u64 {
        let since_ms = now_ms.saturating_sub(known.at_ms);
        let filled = since_ms.saturating_mul(self.rate.per_minute.into());
        known.left.saturating_add(filled).min(self.full())
    }

    /// Whether one more is left.
    #[must_use]
    pub fn has(&self, key: K, now_ms: u64) -> bool {
        self.levels.get(&key).is_none_or(|known| self.level(*known, now_ms) >= UNIT)
    }

    /// Takes one, if it is left.
    pub fn take(&mut self, key: K, now_ms: u64) -> bool {
        let known = self.levels.get(&key).copied();
        if known.is_none() {
            self.make_room(now_ms);
        }
        let level = known.map_or_else(|| self.full(), |known| self.level(known, now_ms));
        let Some(left) = level.checked_sub(UNIT) else { return false };
        self.levels.insert(key, Level { left, at_ms: now_ms });
        true
    }

    /// Buckets that are full again say nothing; if all say something, the one that was used
    /// longest ago is forgotten.
    fn make_room(&mut self, now_ms: u64) {
        if self.levels.len() < ENTRIES_MAX {
            return;
        }
        let full = self.full();
        let mut levels = core::mem::take(&mut self.levels);
        levels.retain(|_, known| self.level(*known, now_ms) < full);
        self.levels = levels;
        if self.levels.len() >= ENTRIES_MAX {
            let oldest = self.levels.iter().min_by_key(|(_, known)| known.at_ms);
            if let Some(key) = oldest.map(|(key, _)| *key) {
                self.levels.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::per_second(3, 2);

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut buckets = Buckets::new(RATE);
        let taken = (0..9).filter(|_| buckets.take(1, 1000)).count();
        assert_eq!(taken, 3);
        assert!(!buckets.has(1, 1499) && buckets.has(1, 1500) && buckets.has(2, 1000));
        let taken = (0..100_u64).filter(|n| buckets.take(1, 1000 + n * 100)).count();
        assert_eq!(taken, 19, "9.9 s at 2 a second");
        assert!(!buckets.take(1, 0), "a clock that goes back fills nothing");
        let mut slow = Buckets::new(Rate { burst: 1, per_minute: 4 });
        let taken = (0..120_u64).filter(|s| slow.take(1, s * 1000)).count();
        assert_eq!(taken, 8, "the first, and four a minute after it");
    }

    #[test]
    fn co_11_the_table_is_bounded_and_forgets_who_is_at_rest_first() {
        let mut buckets = Buckets::new(RATE);
        (0..3).for_each(|_| assert!(buckets.take(u64::MAX, 0)));
        for key in 0..ENTRIES_MAX as u64 * 4 {
            assert!(buckets.take(key, key / 100));
            assert!(buckets.len() <= ENTRIES_MAX);
        }
        assert!(buckets.take(u64::MAX, 10_000));
    }
}
