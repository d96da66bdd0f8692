//! One count of what the peer sent, over all of its sessions.

use noise::Index;

use super::Receiver;

/// Sessions are counted from here on in what the observer numbers: none lasts long enough for so
/// many datagrams, and 2^24 sessions are 63 years.
const EPOCH_SHIFT: u32 = 36;

impl Receiver {
    /// Whether the peer's data came on this session last.
    pub(super) fn is_newest(&self, index: Index) -> bool {
        self.epochs[0].0 == Some(index)
    }

    /// A datagram's number in all that the peer sent, over its sessions.
    pub(super) fn place(&mut self, index: Index, counter: u64) -> u64 {
        let [newest, before] = self.epochs;
        let ordinal = if newest.0 == Some(index) {
            newest.1
        } else if before.0 == Some(index) {
            before.1
        } else {
            self.epochs = [(Some(index), newest.1 + 1), newest];
            newest.1 + 1
        };
        self.ordinal = ordinal;
        (ordinal << EPOCH_SHIFT) | (counter & ((1 << EPOCH_SHIFT) - 1))
    }
}

#[cfg(test)]
mod tests {
    use crate::tuning::Tuning;
    use repair::budget::Budget;

    use super::*;

    #[test]
    fn what_is_lost_on_the_sessions_of_years_is_seen() {
        let mut receiver = Receiver::new(0, &Budget::new(1 << 20), &Tuning::DEFAULT);
        // A session in two minutes, for 60 years; two lose every tenth datagram.
        receiver.epochs[0] = (Some(Index(1)), 15_700_000);
        let mut at_us = 0;
        for session in [2, 3] {
            for counter in (0..2_000).filter(|counter| counter % 10 != 5) {
                at_us += 100;
                receiver.handle_number(Index(session), counter, true, at_us);
            }
            let report = receiver.poll_report(at_us + 400_000).expect("there was traffic");
            let lost = report.clear.lost + report.queued.lost;
            assert!((190..=200).contains(&lost), "session {session}: {report:?}");
            at_us += 400_000;
        }
    }
}
