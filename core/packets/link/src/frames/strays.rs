//! Probes sent on other paths: their losses are not this path's.

use std::time::Duration;

use noise::Instant;
use wire::frame::Report;

/// How many may be reported lost still.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strays {
    /// Sent in this window and in the one before, and not known to have come.
    counts: [u32; 2],
    since: Instant,
    /// What goes another way is reported lost within so long or twice that, if it is.
    window: Duration,
}

impl Strays {
    /// None was sent.
    pub(crate) const fn new(window: Duration) -> Self {
        Self { counts: [0; 2], since: Instant::ZERO, window }
    }

    fn turn(&mut self, now: Instant) {
        if self.since.is_older_than(self.window, now) {
            let is_long_ago = self.since.is_older_than(self.window * 2, now);
            self.counts = [0, if is_long_ago { 0 } else { self.counts[0] }];
            self.since = now;
        }
    }

    /// One was sent.
    pub(crate) fn note(&mut self, now: Instant) {
        self.turn(now);
        self.counts[0] += 1;
    }

    /// One came: it was answered.
    pub(crate) fn handle_answer(&mut self) {
        if let Some(count) = self.counts.iter_mut().rev().find(|count| **count > 0) {
            *count -= 1;
        }
    }

    /// Takes out of a report what may be losses of these.
    pub(crate) fn discount(&mut self, seen: &mut Report, now: Instant) {
        self.turn(now);
        for count in self.counts.iter_mut().rev() {
            for losses in [&mut seen.clear, &mut seen.queued] {
                *count -= losses.discount(*count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::frame::Losses;

    /// Losses that are left of so many.
    fn left(strays: &mut Strays, lost: u32, now: Instant) -> u32 {
        let clear = Losses { judged: 100, lost, ..Losses::default() };
        let mut seen = Report { clear, ..Report::default() };
        strays.discount(&mut seen, now);
        seen.clear.lost
    }

    #[test]
    fn only_what_went_another_way_lately_and_was_not_answered_is_taken_out() {
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(10_000 + ms);
        let mut strays = Strays::new(Duration::from_millis(500));
        assert_eq!(left(&mut strays, 5, at(0)), 5);
        (0..3).for_each(|_| strays.note(at(0)));
        assert_eq!((left(&mut strays, 2, at(300)), left(&mut strays, 2, at(600))), (0, 1), "once");
        // A probe every 100 ms, each of which is answered: the path's own losses stay.
        let mut kept = 0;
        for ms in (0..10_000).step_by(100) {
            strays.note(at(2_000 + ms));
            strays.handle_answer();
            kept += left(&mut strays, 2, at(2_000 + ms));
        }
        assert_eq!(kept, 200);
        // One every 100 ms that is not answered hides one in each report and no more.
        let mut kept = 0;
        for ms in (0..10_000).step_by(100) {
            strays.note(at(20_000 + ms));
            kept += left(&mut strays, 2, at(20_000 + ms));
        }
        assert_eq!(kept, 100);
        (0..50).for_each(|_| strays.note(at(40_000)));
        assert_eq!(left(&mut strays, 9, at(41_200)), 9, "too late");
    }
}
