//! What a controller is told from outside: how long the other end waits for repair, and how much
//! repair may cost.

use crate::bounds::CAP;
use crate::tuning::Waiting;

/// Repair chunks for each data chunk, at most.
pub const SHARE_MAX: f64 = 1.0 / CAP as f64;

/// The two bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// How long flows wait for their order at the other end, at most, microseconds.
    pub wait_us: u64,
    /// Repair chunks for each data chunk, at most: [`SHARE_MAX`] unless less is asked for.
    pub share: f64,
}

impl Limits {
    /// Those of which nobody asked for others.
    #[must_use]
    pub const fn usual(waiting: &Waiting) -> Self {
        Self { wait_us: waiting.order_us, share: SHARE_MAX }
    }

    /// How long a block with data of TCP may fill: its repair must be there before the other end
    /// gives up waiting, and takes as much of the wait as it takes of the usual one.
    #[must_use]
    pub fn filled_us(&self, waiting: &Waiting) -> u64 {
        let Waiting { order_us, ordered_us, pause_us, .. } = *waiting;
        let left_us = self.wait_us.saturating_sub(order_us.saturating_sub(ordered_us));
        left_us.max(self.wait_us / 2).clamp(pause_us, ordered_us)
    }

    /// Repair chunks of a block of `data`, at most.
    pub(crate) fn most(&self, data: usize) -> usize {
        (data as f64 * self.share) as usize
    }

    /// The same with a chunk to round that up.
    pub(crate) fn most_of_few(&self, data: usize) -> usize {
        (data as f64 * self.share).ceil() as usize
    }

    /// The same where a repair chunk is of so many bytes.
    pub(crate) fn most_of_bytes(&self, bytes: usize, longest: usize) -> usize {
        (bytes as f64 * self.share / longest.max(1) as f64).ceil() as usize
    }

    /// What a repair chunk costs of an allowance to which each data chunk adds one.
    pub(crate) fn price(&self) -> u32 {
        if self.share > 0.0 { (1.0 / self.share).ceil() as u32 } else { u32::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::Tuning;

    const WAITING: &Waiting = &Tuning::DEFAULT.waiting;

    #[test]
    fn a_block_fills_no_longer_than_flows_wait_and_as_long_as_ever_where_they_wait_as_long() {
        let filled = |wait_us| Limits { wait_us, ..Limits::usual(WAITING) }.filled_us(WAITING);
        assert_eq!(Limits::usual(WAITING).filled_us(WAITING), WAITING.ordered_us);
        assert_eq!(
            [100_000, 30_000, 20_000, 10_000, 4_000, 0].map(filled),
            [24_000, 24_000, 14_000, 5_000, 2_000, 1_000]
        );
        let of = |share| Limits { share, ..Limits::usual(WAITING) };
        assert_eq!([0.5, 0.2, 0.03, 0.0].map(|share| of(share).price()), [2, 5, 34, u32::MAX]);
        assert_eq!([0.5, 0.2, 0.0].map(|share| of(share).most(64)), [32, 12, 0]);
        assert_eq!([0.5, 0.2, 0.0].map(|share| of(share).most_of_few(3)), [2, 1, 0]);
        assert_eq!([0.5, 0.0].map(|share| of(share).most_of_bytes(9_001, 1_000)), [5, 0]);
    }
}
