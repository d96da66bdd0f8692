//! Figures that a sender shows of itself.

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

    /// How far apart datagrams should leave, nanoseconds; 0 where they need not.
    pub(crate) const fn gap_ns(&self) -> u32 {
        self.gap_ns
    }

    /// The round trip as the last report measured it, microseconds.
    pub(crate) fn rtt_us(&self) -> Option<u32> {
        self.rtt_us
    }

    /// When the peer reported last.
    pub(crate) const fn told(&self) -> Option<Instant> {
        self.told
    }

    /// Bytes sent as data and as repair.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.data_bytes, self.repair_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_just_after_a_change_of_path_is_of_neither() {
        let told = |number: u16, lost: u32| {
            let clear = Losses { judged: 2_000, lost, runs: lost, ..Default::default() };
            Report { number, clear, held_us: u32::MAX, ..Default::default() }
        };
        for lost in [0, 40] {
            let mut sender = Sender::new(1, &Tuning::DEFAULT);
            let now = Instant(1_000_000_000_000);
            sender.handle_moved(now);
            sender.handle_report(&told(1, lost), now + Duration::from_millis(100));
            assert!(!sender.control.estimate().known, "{lost} lost: of the path before, perhaps");
            sender.handle_report(&told(2, lost), now + Tuning::DEFAULT.settle());
            assert!(sender.control.estimate().known);
            // One that began anew counts its reports from the beginning.
            sender.renumber(7);
            let later = now + Duration::from_secs(10);
            sender.handle_moved(later);
            assert!(!sender.control.estimate().known);
            sender.handle_report(&told(1, lost), later + Tuning::DEFAULT.settle());
            assert!(sender.control.estimate().known, "its first report is heard");
        }
    }
}
