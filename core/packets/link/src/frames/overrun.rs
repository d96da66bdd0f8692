//! The share of what was sent that overran a queue, as the other end reports it.

use wire::frame::Report;

use crate::tuning::Tuning;

/// What reports say of how much was sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overrun {
    /// Share of it that was lost under a long queue, beyond what the weather takes.
    pub share: f64,
    /// Data chunks that were sent since it was said before.
    pub sent: u64,
}

/// What a path is expected to lose by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// Share lost, datagrams lost in a row, and how far that is believed, 0 to 1.
    pub(crate) loss: f64,
    pub(crate) burst_len: f64,
    pub(crate) trust: f64,
}

/// What is known since it was said last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    judged: u32,
    over: f64,
    /// Variance of what the weather takes, in datagrams squared.
    variance: f64,
    sent: u64,
}

impl Tally {
    /// A report came, `sent` data chunks after the one before, of a path whose weather is
    /// `expected` to take so many, as far as repair is trusted. Says what is too many as soon as
    /// that can be said: what chance may add to the weather is not.
    pub(crate) fn handle_report(
        &mut self,
        seen: &Report,
        sent: u64,
        expected: Expected,
        tuning: &Tuning,
    ) -> Option<Overrun> {
        self.judged = self.judged.saturating_add(seen.judged());
        // A queue lets something through: where only losses are said to be of one, nobody saw it.
        let queued = seen.queued;
        if queued.judged > queued.lost {
            let judged = f64::from(queued.judged);
            self.over += f64::from(queued.lost) - expected.loss * expected.trust * judged;
            self.variance += expected.loss * expected.burst_len * judged;
        }
        self.sent = self.sent.saturating_add(sent);
        if self.judged < tuning.overrun_judged {
            return None;
        }
        let Self { judged, over, variance, sent } = std::mem::take(self);
        let sure = over - tuning.overrun_deviations * variance.sqrt();
        Some(Overrun { share: (sure / f64::from(judged)).max(0.0), sent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::frame::Losses;

    const TUNING: &Tuning = &Tuning::DEFAULT;

    fn report(judged: u32, lost: u32) -> Report {
        Report { queued: Losses { judged, lost, ..Losses::default() }, ..Report::default() }
    }

    #[test]
    fn a_slow_line_is_overrun_too_though_each_report_tells_of_little() {
        let weather = |loss| Expected { loss, burst_len: 1.0, trust: 1.0 };
        let mut tally = Tally::default();
        assert_eq!(
            tally.handle_report(&report(200, 60), 150, weather(0.0), TUNING),
            Some(Overrun { share: 0.3, sent: 150 })
        );
        assert_eq!(tally.handle_report(&report(40, 20), 30, weather(0.0), TUNING), None);
        assert_eq!(tally.handle_report(&report(40, 20), 30, weather(0.0), TUNING), None);
        assert_eq!(
            tally.handle_report(&report(40, 20), 30, weather(0.0), TUNING),
            Some(Overrun { share: 0.5, sent: 90 })
        );
        assert_eq!(
            tally.handle_report(&report(120, 1), 90, weather(0.02), TUNING),
            Some(Overrun { share: 0.0, sent: 90 })
        );
        let most = report(u32::MAX, u32::MAX);
        assert!(
            tally
                .handle_report(&most, u64::MAX, weather(0.0), TUNING)
                .is_some_and(|all| all.share <= 1.0)
        );
    }

    /// The first losses of a calm path, of which nobody told a delay.
    #[test]
    fn losses_without_a_queue_are_no_overrun() {
        let clear = Losses { judged: 4_000, ..Losses::default() };
        let blind = Report { clear, ..report(80, 80) };
        let weather = Expected { loss: 0.0, burst_len: 1.0, trust: 1.0 };
        let told = Tally::default().handle_report(&blind, 4_000, weather, TUNING);
        assert_eq!(told, Some(Overrun { share: 0.0, sent: 4_000 }));
    }

    /// Of 400 datagrams a path takes 16 by weather, 4 more or less by chance, and twice that if it
    /// takes four in a row.
    #[test]
    fn what_chance_adds_to_the_weather_is_no_overrun() {
        let share = |lost, burst_len, trust| {
            let expected = Expected { loss: 0.04, burst_len, trust };
            let told = Tally::default().handle_report(&report(400, lost), 400, expected, TUNING);
            told.map_or(f64::NAN, |told| told.share * 400.0)
        };
        assert_eq!((share(24, 1.0, 1.0), share(25, 1.0, 1.0)), (0.0, 1.0));
        assert_eq!((share(32, 4.0, 1.0), share(33, 4.0, 1.0)), (0.0, 1.0));
        assert_eq!(share(33, 1.0, 0.5), 17.0, "weather that is half believed");
        assert_eq!(share(124, 1.0, 1.0), 100.0, "what is no chance is told nearly whole");
    }
}
