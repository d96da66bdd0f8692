//! The amount of repair that brings TCP the most on a line that it fills.
//!
//! There each repair chunk takes the place of data, and each loss that repair leaves makes TCP
//! slower. A target says nothing of the first: on a line of 5 Mbit/s, where blocks are small, half
//! as much again may be spent to mend half of the runs of losses, and TCP would have had more of
//! the line without.

use crate::weather::model::Residuals;

/// TCP's window by the root of its loss, segments (Mathis, Semke, Mahdavi, Ott 1997; RFC 9438,
/// section 5.1).
pub(crate) const RENO: f64 = 1.22;
/// The same of CUBIC, by the round trip in seconds for each segment lost, to the power of 3/4
/// (RFC 9438, section 5.1).
const CUBIC: f64 = 1.054;

/// A line that TCP fills.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    /// Round trip without its queue, seconds.
    pub(crate) rtt_s: f64,
    /// What it takes in a second, repair chunks not counted.
    pub(crate) rate: f64,
    /// Losses to a run, before neighbours are dealt to lanes.
    pub(crate) burst: f64,
    /// Data chunks that blocks have at most, at that rate.
    pub(crate) block: usize,
    /// By which power each bound counts.
    pub(crate) power: i32,
}

impl Full {
    /// Repair chunks for a block of `data`, `most` at most, with which TCP has the most.
    pub(crate) fn best(&self, residuals: &Residuals, data: usize, most: usize) -> usize {
        let costs = (0..=most).map(|repair| (self.cost(residuals, data as f64, repair), repair));
        costs.min_by(|(a, _), (b, _)| a.total_cmp(b)).map_or(0, |(_, repair)| repair)
    }

    /// Falls as that grows: TCP has what the line leaves or what its losses let it have, whichever
    /// is less, and less than either where they are near each other. So the sum of high powers of
    /// both, turned over.
    fn cost(&self, residuals: &Residuals, data: f64, repair: usize) -> f64 {
        let both = data + repair as f64;
        let spent = repair as f64;
        // A block that fails loses what it may and a run more, and is one loss to TCP.
        let events =
            residuals.residual(data as usize, repair) * both / ((spent + self.burst) * data);
        let spread = self.rtt_s / events;
        let window = (RENO / events.sqrt()).max(CUBIC * (spread * spread.sqrt()).sqrt());
        (both / data).powi(self.power) + (self.rtt_s * self.rate / window).powi(self.power)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weather::model::Model;

    /// A path of 5 Mbit/s and 20 ms each way.
    const SLOW: Full = Full { rtt_s: 0.04, rate: 430.0, burst: 1.0, block: 13, power: 4 };

    fn best(full: Full, model: Model, data: usize) -> usize {
        let full = Full { burst: model.burst(), ..full };
        full.best(&Residuals::new(&model), data, data.div_ceil(2))
    }

    #[test]
    fn runs_that_a_small_block_does_not_mend_are_left_and_single_losses_are_not() {
        let runs = Model { loss: 0.02, loss_in_bad: 1.0, memory: 0.75 };
        assert_eq!([2, 4, 6, 8].map(|data| best(SLOW, runs, data)), [0; 4]);
        let single = Model::independent(0.01);
        assert_eq!([2, 4, 6, 8].map(|data| best(SLOW, single, data)), [0, 1, 1, 1]);
    }

    #[test]
    fn the_longer_the_round_trip_the_more_is_repaired() {
        let single = Model::independent(0.01);
        let found = [0.001, 0.01, 0.1, 1.0].map(|rtt_s| best(Full { rtt_s, ..SLOW }, single, 8));
        assert!(found[0] == 0 && found.is_sorted() && found[3] >= 2, "{found:?}");
    }

    #[test]
    fn what_loses_nothing_is_not_repaired_and_nothing_absurd_comes_of_absurd_values() {
        assert_eq!(best(SLOW, Model::CLEAR, 64), 0);
        let lossy = Model::independent(0.01);
        for (rtt_s, rate, due) in [(0.0, 0.0, 0), (0.1, 0.0, 0), (0.0, 430.0, 0)] {
            assert_eq!(best(Full { rtt_s, rate, ..SLOW }, lossy, 64), due, "{rtt_s} {rate}");
        }
        assert!(best(Full { rtt_s: 1e6, rate: 1e9, ..SLOW }, lossy, 64) > 8, "no end of a path");
    }
}
