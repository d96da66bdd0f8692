//! How much of what was sent was too many, as the other end's reports tell.

use repair::report::Report;

/// What reports say of how much was sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overrun {
    /// Share of it that was lost under a long queue, beyond what the weather takes.
    pub share: f64,
    /// Data chunks that were sent since it was said before.
    pub sent: u64,
}

/// Datagrams that must have been judged to say how much of them was too many: of a slow line that
/// is more than one report tells of.
const JUDGED: u32 = 100;

/// What is known since it was said last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    judged: u32,
    over: f64,
    sent: u64,
}

impl Tally {
    /// A report came, `sent` data chunks after the one before, of a path that loses `loss` of them
    /// by weather. Says what is too many as soon as that can be said.
    pub(crate) fn handle_report(&mut self, seen: &Report, sent: u64, loss: f64) -> Option<Overrun> {
        let judged = seen.clear.judged.saturating_add(seen.queued.judged);
        self.judged = self.judged.saturating_add(judged);
        self.over += f64::from(seen.queued.lost) - loss * f64::from(seen.queued.judged);
        self.sent = self.sent.saturating_add(sent);
        if self.judged < JUDGED {
            return None;
        }
        let Self { judged, over, sent } = std::mem::take(self);
        Some(Overrun { share: (over / f64::from(judged)).max(0.0), sent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use repair::report::Losses;

    fn report(judged: u32, lost: u32) -> Report {
        Report { queued: Losses { judged, lost, ..Losses::default() }, ..Report::default() }
    }

    #[test]
    fn a_slow_line_is_overrun_too_though_each_report_tells_of_little() {
        let mut tally = Tally::default();
        assert_eq!(
            tally.handle_report(&report(200, 60), 150, 0.05),
            Some(Overrun { share: 0.25, sent: 150 })
        );
        assert_eq!(tally.handle_report(&report(40, 20), 30, 0.0), None);
        assert_eq!(tally.handle_report(&report(40, 20), 30, 0.0), None);
        assert_eq!(
            tally.handle_report(&report(40, 20), 30, 0.0),
            Some(Overrun { share: 0.5, sent: 90 })
        );
        assert_eq!(
            tally.handle_report(&report(120, 1), 90, 0.02),
            Some(Overrun { share: 0.0, sent: 90 })
        );
        let most = report(u32::MAX, u32::MAX);
        assert!(tally.handle_report(&most, u64::MAX, 0.0).is_some_and(|all| all.share <= 1.0));
    }
}
