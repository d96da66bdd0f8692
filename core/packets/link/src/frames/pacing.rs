//! Pacing: how far apart datagrams should leave toward a line whose rate is known.
//!
//! The kernel hands TCP to the interface in bursts, of what one acknowledgement lets go. A burst
//! that reaches a queue at the speed of a processor takes all the room there is, and the packet of
//! somebody else that comes next finds none: on a full line that two flows shared, three quarters
//! of the drops were of the one outside, with a third of the rate (docs/decisions.md, 2026-11-27).
//! So datagrams toward a line that was filled lately leave at its rate. What waits here for that
//! would have waited in the line's queue.

use crate::tuning::Tuning;

/// Nanoseconds between two datagrams, 0 = none: toward a line that took `line_rate` chunks a second
/// while a queue stood there, when `sent_rate` are sent. What takes more by now is not held to it.
pub(crate) fn gap_ns(line_rate: Option<f64>, sent_rate: f64, tuning: &Tuning) -> u32 {
    let rate = line_rate.map(|rate| rate.max(sent_rate));
    let gap_ns = |rate: f64| 1e9 * tuning.pace_overshoot / rate.max(1.0);
    rate.filter(|rate| *rate <= tuning.pace_rate_max)
        .map_or(0, |rate| gap_ns(rate).min(tuning.pace_gap_ns_max) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap_ns(line_rate: Option<f64>, sent_rate: f64) -> u32 {
        super::gap_ns(line_rate, sent_rate, &Tuning::DEFAULT)
    }

    #[test]
    fn datagrams_leave_at_the_rate_of_a_line_that_was_full() {
        assert_eq!(gap_ns(Some(10_000.0), 5_000.0), 125_000, "100 Mbit/s");
        assert_eq!(gap_ns(Some(500.0), 0.0), 2_500_000, "5 Mbit/s");
        assert_eq!((gap_ns(Some(0.0), 0.0), gap_ns(Some(-1.0), 0.0)), (2_500_000, 2_500_000));
    }

    #[test]
    fn a_line_that_was_never_full_is_fast_or_takes_more_by_now_has_no_gap_or_a_shorter_one() {
        assert_eq!(gap_ns(None, 5_000.0), 0);
        assert_eq!(gap_ns(Some(80_000.0), 0.0), 0);
        assert_eq!(gap_ns(Some(8_000.0), 20_000.0), 62_500);
        assert_eq!(gap_ns(Some(8_000.0), 40_000.0), 0);
    }
}
