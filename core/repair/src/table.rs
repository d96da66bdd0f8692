//! Repair chunks by the size of a block: worked out when a report comes, looked up for a block.

use crate::code::DATA_MAX;
use crate::control::CAP;
use crate::model::Residuals;
use crate::spread::FEW;

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

/// Data chunks sent since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// All of them.
    pub all: u64,
    /// Those in blocks, by [`Upper`]. The others travelled bare.
    pub in_blocks: [u64; 2],
}

impl Sent {
    /// `count` chunks of TCP, all in blocks.
    #[must_use]
    pub fn of_tcp(count: u64) -> Self {
        Self { all: count, in_blocks: [count, 0] }
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

/// Below this trust only blocks of [`PROBE_DATA`] chunks and more are repaired, by one, if they
/// would be by more.
pub(crate) const TRUST_MIN: f64 = 0.1;
const PROBE_DATA: usize = 16;

/// By data chunks: repair chunks.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    many: [u8; DATA_MAX + 1],
    few: [u8; FEW + 1],
    /// Whether there are none, for blocks of any size: asked for each packet.
    is_empty: bool,
}

impl Table {
    pub(crate) const NONE: Self =
        Self { many: [0; DATA_MAX + 1], few: [0; FEW + 1], is_empty: true };

    /// As many as leave no more than `target` of what is lost, or `few_target` in blocks of [`FEW`]
    /// and less, as far as repair is trusted to help.
    pub(crate) fn new(residuals: &Residuals, target: f64, few_target: f64, trust: f64) -> Self {
        let mut table = Self::NONE;
        for (data, repair) in table.many.iter_mut().enumerate() {
            *repair = trusted(trust, data, residuals.fewest(data, data / CAP, target));
        }
        if trust > TRUST_MIN {
            for (data, repair) in table.few.iter_mut().enumerate().skip(1) {
                *repair = residuals.fewest(data, data.div_ceil(CAP), few_target) as u8;
            }
        }
        table.is_empty = table.many.iter().chain(&table.few).all(|&repair| repair == 0);
        table
    }

    /// For a block of `data` chunks; at most half as many.
    pub(crate) fn many(&self, data: usize) -> usize {
        self.many.get(data).copied().map_or(0, usize::from)
    }

    /// For one that closed with [`FEW`] chunks or less: one for each pair at most, and for a single
    /// one.
    pub(crate) fn few(&self, data: usize) -> usize {
        self.few.get(data).copied().map_or(0, usize::from)
    }

    /// Whether there are none, for blocks of any size.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }
}

/// What is left of the repair chunks wanted for a block of `data` when they are trusted so far.
fn trusted(trust: f64, data: usize, wanted: usize) -> u8 {
    if trust > TRUST_MIN {
        (wanted as f64 * trust).ceil() as u8
    } else {
        u8::from(data >= PROBE_DATA && wanted > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    #[test]
    fn what_the_target_allows_costs_nothing() {
        let residuals = Residuals::new(&Model::independent(0.01));
        assert!(Table::new(&residuals, 0.02, 0.02, 1.0).is_empty() && Table::NONE.is_empty());
        let table = Table::new(&residuals, 0.02, 1e-5, 1.0);
        assert!(!table.is_empty() && table.many(64) == 0 && table.few(4) > 0);
        let table = Table::new(&residuals, 1e-5, 1e-5, TRUST_MIN);
        assert_eq!((table.many(64), table.many(15), table.few(4)), (1, 0, 0));
        assert_eq!((table.many(DATA_MAX + 1), table.few(FEW + 1)), (0, 0));
        let table = Table::new(&residuals, 0.02, 0.02, TRUST_MIN);
        assert!(table.is_empty(), "there is nothing to be trusted");
    }

    #[test]
    fn a_block_with_anything_but_tcp_in_it_is_no_block_of_tcp() {
        for (first, second) in [(Upper::Tcp, Upper::Other), (Upper::Other, Upper::Tcp)] {
            assert_eq!(first.shared(second), Upper::Other);
        }
        assert_eq!(Upper::Tcp.shared(Upper::Tcp), Upper::default());
    }
}
