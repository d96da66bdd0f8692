//! Whether the machine slept: the kernel has a clock that goes on in suspend and one that stands,
//! and what lies between them grows by nothing else.

use std::time::Duration;

use noise::Instant;

/// Shorter sleeps leave nothing behind that timers would not notice.
const LEAST: Duration = Duration::from_secs(1);

/// What lay between the clocks last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slumber(Option<Duration>);

impl Slumber {
    /// How long the machine slept since the last call, if it did: then addresses, paths and streams
    /// are as doubtful as after a change of the network. `now` goes on in suspend, `awake` stands.
    pub fn handle_clocks(&mut self, now: Instant, awake: Instant) -> Option<Duration> {
        let apart = now.since(awake);
        let before = self.0.replace(apart)?;
        Some(apart.saturating_sub(before)).filter(|slept| *slept >= LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    #[test]
    fn lc_06_a_sleep_is_told_once_and_nothing_else_is_taken_for_one() {
        let mut slumber = Slumber::default();
        // An hour was slept before the start, which is nothing new.
        assert_eq!(slumber.handle_clocks(at(3_600_000), at(0)), None);
        // A busy minute, and clocks that are read one after the other.
        assert_eq!(slumber.handle_clocks(at(3_660_003), at(60_000)), None);
        assert_eq!(slumber.handle_clocks(at(3_661_000), at(60_999)), None);
        assert_eq!(
            slumber.handle_clocks(at(3_861_001), at(61_000)),
            Some(at(200_000).since(at(0)))
        );
        assert_eq!(slumber.handle_clocks(at(3_862_001), at(62_000)), None, "it was told");
        assert_eq!(slumber.handle_clocks(at(3_862_900), at(62_000)), None, "too short");
        // Clocks that make no sense are no sleep either.
        assert_eq!(slumber.handle_clocks(at(0), at(70_000)), None);
    }
}
