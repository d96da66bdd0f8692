//! When a relay is tried by QUIC: at once, and after each failure later than before, since a
//! network that swallows UDP today mostly does so tomorrow.

use std::time::{Duration, Instant};

/// The pause after the first failure; each later one doubles it, up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_secs(5);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// A connection that lasted so long was a good one: the pauses begin anew.
const GOOD_AFTER: Duration = Duration::from_secs(60);

/// When it is tried next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tries {
    is_possible: bool,
    /// Not before this.
    next: Option<Instant>,
    pause: Duration,
    pause_max: Duration,
}

impl Tries {
    /// It is tried at once, if it `is_possible` at all.
    pub(super) const fn new(is_possible: bool) -> Self {
        Self { is_possible, next: None, pause: PAUSE_MIN, pause_max: PAUSE_MAX }
    }

    /// The same with no longer pause than this.
    pub(super) const fn at_most(self, pause_max: Duration) -> Self {
        Self { pause_max, ..self }
    }

    /// Whether it may be tried now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.left(now) == Some(Duration::ZERO)
    }

    /// How long it is to be left alone; `None` for ever.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        let left = |next: Instant| next.saturating_duration_since(now);
        self.is_possible.then(|| self.next.map_or(Duration::ZERO, left))
    }

    /// It failed, or HTTPS was quicker.
    pub(super) fn put_off(&mut self, now: Instant) {
        self.next = Some(now + self.pause);
        self.pause = (self.pause * 2).min(self.pause_max);
    }

    /// A connection ended that had lasted so long.
    pub(super) fn handle_end(&mut self, lasted: Duration, now: Instant) {
        if lasted >= GOOD_AFTER {
            self.pause = PAUSE_MIN;
        }
        self.put_off(now);
    }

    /// The network is another one: what failed may pass now.
    pub(super) const fn begin_anew(&mut self) {
        self.next = None;
        self.pause = PAUSE_MIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_ten_minutes_and_begin_anew_after_a_good_connection() {
        let now = Instant::now();
        let mut tries = Tries::new(true);
        assert!(tries.is_due(now));
        for pause_s in [5, 10, 20, 40, 80, 160, 320, 600, 600] {
            tries.put_off(now);
            assert_eq!(tries.left(now), Some(Duration::from_secs(pause_s)));
            assert!(!tries.is_due(now + Duration::from_secs(pause_s - 1)));
            assert!(tries.is_due(now + Duration::from_secs(pause_s)));
        }
        tries.handle_end(Duration::from_secs(59), now);
        assert_eq!(tries.left(now), Some(PAUSE_MAX), "it was none");
        tries.handle_end(GOOD_AFTER, now);
        assert_eq!(tries.left(now), Some(PAUSE_MIN));
        tries.put_off(now);
        tries.begin_anew();
        assert!(tries.is_due(now));
        assert_eq!(Tries::new(false).left(now), None, "the relay answers none, or a proxy is used");
    }
}
