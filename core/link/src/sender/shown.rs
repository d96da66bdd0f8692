//! What a sender shows of itself.

use super::*;

impl Sender {
    /// Outwards: share of datagrams lost, and what repair leaves of it.
    pub(crate) fn losses(&self) -> (f64, f64) {
        let estimate = self.control.estimate();
        let loss = estimate.model.loss;
        (loss, self.load.left(loss, estimate.rebuilt_share))
    }

    /// What is believed about the path.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// Payload of the chunks of the unit that was sent last, in bytes; 0 before the first.
    pub(crate) const fn chunk_len(&self) -> usize {
        self.chunk_len
    }

    /// The round trip as the last report measured it, microseconds.
    pub(crate) fn rtt_us(&self) -> Option<u32> {
        self.rtt_us
    }

    /// Bytes sent as data and as repair.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.data_bytes, self.repair_bytes)
    }
}
