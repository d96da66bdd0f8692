//! The clock that handshakes are stamped with, where what was promised outlives the process.
//!
//! A peer refuses an initiation whose stamp is not later than the last one it accepted. A wall
//! clock that was a year ahead and is put right would therefore lock this machine out for a year,
//! once it has forgotten what it sent (threat LC-04, CVE-2021-46873). So a shell that can keep
//! something keeps a *promise*: a time that no stamp of this machine reaches. It is kept before
//! stamps come near it; the next start begins with it, whatever its wall clock says.
//!
//! The clock follows the wall clock forward and never back: behind, it runs on by the time since
//! boot. In ordinary life a promise is made twice an hour, and a start is at most an hour ahead.

use std::time::Duration;

use noise::{Instant, Tai64n};

/// How far a new promise is ahead of the clock.
const AHEAD: Duration = Duration::from_secs(3600);
/// When less is left of a promise, the next one is wished for.
const LEAST: Duration = Duration::from_secs(1800);
/// The clock stands still so long before the promise, until the next one is kept. Meanwhile the
/// stamps for one peer grow by 17 ms each, at least 5 s apart: enough for five hours of them.
const MARGIN: Duration = Duration::from_secs(60);
/// A wish that nobody granted is repeated after so long.
const AGAIN: Duration = Duration::from_secs(10);

/// See the module. Times are since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Stamps {
    /// The promise of the process before: earlier than every stamp of this one.
    first: Duration,
    /// What is kept: later than every stamp.
    promised: Duration,
    /// What the clock showed last, and when.
    shown: (Duration, Instant),
    /// What it would show if nothing held it up.
    wanted: Duration,
    wished: Option<Instant>,
}

impl Stamps {
    /// A clock that begins at what was promised before, in seconds since 1970, and stands there
    /// until more is promised.
    #[must_use]
    pub const fn new(promised_unix_s: u64, now: Instant) -> Self {
        let first = Duration::from_secs(promised_unix_s);
        Self { first, promised: first, shown: (first, now), wanted: first, wished: None }
    }

    /// What stamps show at `now`, when the wall clock shows `wall`.
    pub fn handle_clock(&mut self, wall: Duration, now: Instant) -> Tai64n {
        let (shown, at) = self.shown;
        self.wanted = wall.max(shown.saturating_add(now.since(at)));
        let top = self.promised.saturating_sub(MARGIN).max(self.first);
        self.shown = (self.wanted.min(top), now);
        Tai64n::from_unix(self.shown.0.as_secs(), self.shown.0.subsec_nanos())
    }

    /// A promise to be kept, in seconds since 1970, and then told by [`Stamps::handle_promise`].
    pub fn poll_wish(&mut self, now: Instant) -> Option<u64> {
        let is_enough = self.promised >= self.wanted.saturating_add(LEAST);
        if is_enough || self.wished.is_some_and(|at| !at.is_older_than(AGAIN, now)) {
            return None;
        }
        self.wished = Some(now);
        Some(self.wanted.saturating_add(AHEAD).as_secs())
    }

    /// A promise is kept, so that it outlives this process and the machine's power.
    pub fn handle_promise(&mut self, promised_unix_s: u64) {
        self.promised = self.promised.max(Duration::from_secs(promised_unix_s));
        self.wished = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    const START: Duration = Duration::from_secs(1_800_000_000);

    fn at(s: u64) -> Instant {
        Instant(s * 1_000_000_000)
    }

    /// A machine that keeps promises, and the promise that it keeps.
    struct Machine {
        stamps: Stamps,
        kept_s: u64,
        writes: u32,
        last: Tai64n,
    }

    impl Machine {
        fn boot(kept_s: u64, now: Instant) -> Self {
            Self { stamps: Stamps::new(kept_s, now), kept_s, writes: 0, last: Tai64n::ZERO }
        }

        /// One turn: the stamp that an initiation would carry.
        fn turn(&mut self, wall: Duration, now: Instant) -> Tai64n {
            let stamp = self.last.successor(self.stamps.handle_clock(wall, now));
            if let Some(wish) = self.stamps.poll_wish(now) {
                (self.kept_s, self.writes) = (wish, self.writes + 1);
                self.stamps.handle_promise(wish);
            }
            self.last = stamp;
            assert!(stamp < Tai64n::from_unix(self.kept_s, 0), "never as late as what is kept");
            stamp
        }
    }

    #[test]
    fn lc_04_stamps_grow_over_restarts_whatever_the_wall_clock_does() {
        let mut machine = Machine::boot(0, at(0));
        machine.turn(START, at(0));
        let mut newest = Tai64n::ZERO;
        let jumps = [START, START + YEAR, START, START - YEAR, Duration::ZERO, START + 2 * YEAR];
        let mut now_s = 1;
        for (restart, wall) in jumps.into_iter().cycle().take(60).enumerate() {
            for _ in 0..5 {
                let stamp = machine.turn(wall + Duration::from_secs(now_s), at(now_s));
                assert!(stamp > newest, "restart {restart}");
                newest = stamp;
                now_s += 7;
            }
            // Killed at any moment: only what was kept is known.
            machine = Machine::boot(machine.kept_s, at(now_s));
        }
    }

    #[test]
    fn lc_04_a_day_of_a_right_clock_costs_two_writes_an_hour_and_shows_the_time() {
        let mut machine = Machine::boot(START.as_secs(), at(0));
        for now_s in 0..86_400 {
            let wall = START + Duration::from_secs(now_s);
            let shown = machine.stamps.handle_clock(wall, at(now_s));
            assert_eq!(shown, Tai64n::from_unix(wall.as_secs(), 0));
            machine.turn(wall, at(now_s));
        }
        assert!((40..=50).contains(&machine.writes), "{} writes", machine.writes);
    }

    #[test]
    fn lc_04_the_clock_waits_for_what_is_kept_and_wishes_again() {
        let mut stamps = Stamps::new(START.as_secs(), at(0));
        let ahead = START + YEAR;
        assert_eq!(stamps.handle_clock(ahead, at(0)), Tai64n::from_unix(START.as_secs(), 0));
        let wish = stamps.poll_wish(at(0)).unwrap();
        assert_eq!(wish, (ahead + AHEAD).as_secs());
        // Nobody could write it: the clock stands.
        assert_eq!(stamps.handle_clock(ahead, at(9)), Tai64n::from_unix(START.as_secs(), 0));
        assert_eq!(stamps.poll_wish(at(9)), None);
        assert!(stamps.poll_wish(at(10)).is_some());
        stamps.handle_promise(wish);
        assert_eq!(stamps.handle_clock(ahead, at(11)), Tai64n::from_unix(ahead.as_secs(), 0));
        // The wall clock is put right: this one runs on.
        let later = ahead.as_secs() + 5;
        assert_eq!(stamps.handle_clock(START, at(16)), Tai64n::from_unix(later, 0));
        // And one that was kept late changes nothing.
        stamps.handle_promise(0);
        assert_eq!(stamps.handle_clock(START, at(16)), Tai64n::from_unix(later, 0));
    }
}
