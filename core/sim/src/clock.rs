//! Virtual time: one monotonic clock and one wall clock, moved only by the caller.
//!
//! They move apart as real ones do: wall time can be set, backwards too, and a machine can
//! sleep, which `CLOCK_BOOTTIME` counts and its programs do not notice otherwise.

use core::time::Duration;

use noise::{Instant, Tai64n};

/// Steps that one moment may have.
const STILL_MAX: u32 = 100_000;

/// The clocks of a simulated world.
#[derive(Debug, Clone)]
pub struct Clock {
    now: Instant,
    unix_ns: i128,
    /// Steps since time passed last.
    still: u32,
}

impl Clock {
    /// A world that starts at `unix_s` seconds since 1970, at the zero of its monotonic clock.
    #[must_use]
    pub fn new(unix_s: u64) -> Self {
        Self { now: Instant::ZERO, unix_ns: i128::from(unix_s) * 1_000_000_000, still: 0 }
    }

    /// Monotonic time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Wall time, for handshakes; a clock set before 1970 shows 1970.
    #[must_use]
    pub fn wall(&self) -> Tai64n {
        let unix_ns = self.unix_ns.max(0);
        let secs = u64::try_from(unix_ns / 1_000_000_000).unwrap_or(u64::MAX);
        Tai64n::from_unix(secs, (unix_ns % 1_000_000_000) as u32)
    }

    /// Lets time pass.
    pub fn advance(&mut self, by: Duration) {
        self.now += by;
        self.unix_ns += by.as_nanos() as i128;
    }

    /// Lets time pass up to `instant`; nothing happens if that has passed already.
    ///
    /// # Panics
    /// When that was so very often in a row: a program in this world is woken for something that it
    /// never does, and would spin in ours.
    pub fn advance_to(&mut self, instant: Instant) {
        self.still = if instant > self.now { 0 } else { self.still + 1 };
        assert!(self.still < STILL_MAX, "what is due at {instant:?} is never done");
        self.advance(instant.since(self.now));
    }

    /// Sets the wall clock forwards or backwards; monotonic time does not notice.
    pub fn set_wall(&mut self, by_s: i64) {
        self.unix_ns += i128::from(by_s) * 1_000_000_000;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_on_both_clocks_and_a_jump_on_one() {
        let mut clock = Clock::new(1_000);
        let before = clock.wall();
        clock.advance(Duration::from_millis(1_500));
        assert_eq!(clock.now(), Instant(1_500_000_000));
        assert_eq!(clock.wall(), Tai64n::from_unix(1_001, 500_000_000));
        assert!(clock.wall() > before);
        clock.set_wall(-3_600);
        assert_eq!(clock.now(), Instant(1_500_000_000));
        assert_eq!(clock.wall(), Tai64n::from_unix(0, 0));
        clock.advance_to(Instant(1));
        assert_eq!(clock.now(), Instant(1_500_000_000));
        clock.advance_to(Instant(2_000_000_000));
        assert_eq!(clock.now(), Instant(2_000_000_000));
    }

    #[test]
    #[should_panic(expected = "what is due at Instant(7) is never done")]
    fn a_world_that_stands_still_fails() {
        let mut clock = Clock::new(0);
        (0..=STILL_MAX).for_each(|_| clock.advance_to(Instant(7)));
    }
}
