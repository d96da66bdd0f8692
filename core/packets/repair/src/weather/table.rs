//! Repair chunks by the size of a block: worked out when a report comes, looked up for a block.

use crate::bounds::DATA_MAX;
use crate::tuning::{Tuning, Worth};
use crate::weather::full::Full;
use crate::weather::limits::Limits;
use crate::weather::model::Residuals;

/// What a chunk is of, as far as it matters what its loss costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Upper {
    /// TCP, which sends again what it lacks, and is slower for a while.
    #[default]
    Tcp,
    /// All else: what is lost stays lost.
    Other,
}

impl Upper {
    /// That of a block with both in it.
    #[must_use]
    pub fn shared(self, other: Self) -> Self {
        if self == Self::Tcp { other } else { self }
    }
}

/// What was sent since the last report: data chunks, and packets that travelled as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// All of them.
    pub all: u64,
    /// Those in blocks, by [`Upper`].
    pub in_blocks: [u64; 2],
}

impl Sent {
    /// `count` chunks of TCP, all in blocks.
    #[must_use]
    pub fn of_tcp(count: u64) -> Self {
        Self { all: count, in_blocks: [count, 0] }
    }

    /// Those in blocks of either kind.
    #[must_use]
    pub fn all_in_blocks(&self) -> u64 {
        self.in_blocks.iter().sum()
    }

    /// Counts one more, of this kind if it is in a block.
    #[inline]
    pub fn count(&mut self, in_block: Option<Upper>) {
        self.all += 1;
        if let Some(upper) = in_block {
            self.in_blocks[upper as usize] += 1;
        }
    }
}

/// What repair is to bring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aim {
    /// Residual loss, and that of blocks of [`crate::tuning::Spending::few`] and less.
    pub(crate) target: f64,
    pub(crate) few_target: f64,
    /// The line that TCP fills, if it does: no more than brings it the most.
    pub(crate) full: Option<Full>,
    /// And no more than this.
    pub(crate) limits: Limits,
    pub(crate) tuning: &'static Tuning,
}

impl Aim {
    /// Repair chunks for a block of `data`.
    pub(crate) fn many(&self, residuals: &Residuals, data: usize) -> usize {
        self.fewest(residuals, data, self.limits.most(data), self.target)
    }

    /// The same of a block on the allowance.
    fn few(&self, residuals: &Residuals, data: usize) -> usize {
        self.fewest(residuals, data, self.limits.most_of_few(data), self.few_target)
    }

    fn fewest(&self, residuals: &Residuals, data: usize, most: usize, target: f64) -> usize {
        let fewest = residuals.fewest(data, most, target);
        self.full.map_or(fewest, |full| full.best(residuals, data, fewest))
    }

    /// Data chunks that blocks have at most.
    fn block(&self) -> usize {
        self.full.map_or(DATA_MAX, |full| full.block.min(DATA_MAX))
    }
}

/// By data chunks: repair chunks.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    many: [u8; DATA_MAX + 1],
    few: [u8; DATA_MAX + 1],
    /// Whether there are none, for blocks of any size: asked for each packet.
    is_empty: bool,
}

impl Table {
    pub(crate) const NONE: Self =
        Self { many: [0; DATA_MAX + 1], few: [0; DATA_MAX + 1], is_empty: true };

    /// As many as `aim` asks for, as far as repair is trusted to help.
    pub(crate) fn new(residuals: &Residuals, aim: &Aim, trust: f64) -> Self {
        let mut table = Self::NONE;
        let worth = &aim.tuning.worth;
        for (data, repair) in table.many.iter_mut().enumerate().skip(1) {
            *repair = trusted(trust, data, aim.many(residuals, data), worth);
        }
        if worth.is_met(trust) {
            let few = aim.tuning.spending.few;
            for (data, repair) in table.few.iter_mut().enumerate().take(few + 1).skip(1) {
                *repair = aim.few(residuals, data) as u8;
            }
        }
        // What no block has would keep TCP waiting for the repair of those that there are.
        let mut all = table.many[..=aim.block()].iter().chain(&table.few);
        if all.all(|&repair| repair == 0) {
            return Self::NONE;
        }
        table.is_empty = false;
        table
    }

    /// For a block of `data` chunks; at most half as many.
    pub(crate) fn many(&self, data: usize) -> usize {
        self.many.get(data).copied().map_or(0, usize::from)
    }

    /// For one that closed with so few that it lives on the allowance: one for each pair at most,
    /// and for a single one.
    pub(crate) fn few(&self, data: usize) -> usize {
        self.few.get(data).copied().map_or(0, usize::from)
    }

    /// Whether there are none, for blocks of any size.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }
}

/// What is left of the repair chunks wanted for a block of `data` when they are trusted so far.
fn trusted(trust: f64, data: usize, wanted: usize, worth: &Worth) -> u8 {
    if worth.is_met(trust) {
        (wanted as f64 * trust).ceil() as u8
    } else {
        u8::from(data >= worth.probe_data && wanted > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weather::model::Model;

    const TUNING: &Tuning = &Tuning::DEFAULT;
    const TRUST_MIN: f64 = TUNING.worth.trust_min;
    const FEW: usize = TUNING.spending.few;

    #[test]
    fn what_the_target_allows_costs_nothing() {
        let residuals = Residuals::new(&Model::independent(0.01));
        let table = |target, few_target, trust| {
            let limits = Limits::usual(&TUNING.waiting);
            let aim = Aim { target, few_target, full: None, limits, tuning: TUNING };
            Table::new(&residuals, &aim, trust)
        };
        assert!(table(0.02, 0.02, 1.0).is_empty() && Table::NONE.is_empty());
        let found = table(0.02, 1e-5, 1.0);
        assert!(!found.is_empty() && found.many(64) == 0 && found.few(4) > 0);
        let found = table(1e-5, 1e-5, TRUST_MIN);
        assert_eq!((found.many(64), found.many(15), found.few(4)), (1, 0, 0));
        assert_eq!((found.many(DATA_MAX + 1), found.few(FEW + 1)), (0, 0));
        assert!(table(0.02, 0.02, TRUST_MIN).is_empty(), "there is nothing to be trusted");
    }

    #[test]
    fn a_block_with_anything_but_tcp_in_it_is_no_block_of_tcp() {
        for (first, second) in [(Upper::Tcp, Upper::Other), (Upper::Other, Upper::Tcp)] {
            assert_eq!(first.shared(second), Upper::Other);
        }
        assert_eq!(Upper::Tcp.shared(Upper::Tcp), Upper::default());
    }
}
