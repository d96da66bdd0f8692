//! Moderation of wakeups: where datagrams come one by one and close together, some are let gather.
//!
//! To be woken costs more than to move a small packet: at 30,000 packets a second each way a loop
//! that answers every one at once moves three at a time, and spends a third of its time on falling
//! asleep and waking up. Network cards have the same trouble, and the same cure (interrupt
//! moderation, "adaptive rx" of ethtool): while much comes, what comes is looked at a little later.
//! Here the loop, when it has nothing more to do, sleeps for [`PAUSE`] before it asks again. That
//! leaves the processor to whoever sends or reads the packets, too.
//!
//! What does not come close together is never kept waiting, be it a ping now and then, a handshake
//! or a line of 100 Mbit/s. Nor does a loop pause that does not keep up.

use std::time::Duration;

/// How long what comes may gather. A bundle may wait for four times as long.
pub(crate) const PAUSE: Duration = Duration::from_micros(50);
/// The rate is looked at so often, at most.
const WINDOW_NS: u64 = 1_000_000;
/// Messages a window from which on they come close together: one in a pause.
const DENSE: u64 = 20;

/// Decides after each turn whether to pause.
#[derive(Debug, Default)]
pub(crate) struct Moderation {
    /// When the window began, and what was moved since.
    began_ns: u64,
    moved: u64,
    is_dense: bool,
}

impl Moderation {
    /// After a turn that began at `now_ns`, since the last such turn moved so many messages, from
    /// the device or the sockets, and left none waiting: whether what comes next may gather.
    pub(crate) fn handle_turn(&mut self, now_ns: u64, moved: u64) -> bool {
        self.moved += moved;
        let passed_ns = now_ns.saturating_sub(self.began_ns);
        if passed_ns >= WINDOW_NS {
            self.is_dense = u128::from(self.moved) * u128::from(WINDOW_NS)
                >= u128::from(passed_ns) * u128::from(DENSE);
            (self.began_ns, self.moved) = (now_ns, 0);
        }
        self.is_dense && moved > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns in which `moved` messages each were moved, one every `every_us`, for 20 ms: how many
    /// of them were followed by a pause.
    fn pauses(moderation: &mut Moderation, from_ms: u64, every_us: u64, moved: u64) -> u64 {
        let turns =
            (0..20_000 / every_us).map(|turn| from_ms * 1_000_000 + turn * every_us * 1_000);
        turns.map(|now_ns| u64::from(moderation.handle_turn(now_ns, moved))).sum()
    }

    #[test]
    fn single_messages_that_come_close_together_may_gather() {
        let mut moderation = Moderation::default();
        assert!(pauses(&mut moderation, 1_000, 20, 1) >= 900, "50,000 a second");
        assert_eq!(pauses(&mut moderation, 2_000, 1_000, 1), 0, "a ping each millisecond");
    }

    #[test]
    fn nothing_waits_where_little_comes() {
        let mut moderation = Moderation::default();
        assert_eq!(pauses(&mut moderation, 1_000, 100, 1), 0, "10,000 a second");
        assert_eq!(pauses(&mut moderation, 2_000, 5_000, 99), 0, "a burst now and then");
    }

    #[test]
    fn turns_that_moved_nothing_are_no_reason_to_pause() {
        let mut moderation = Moderation::default();
        pauses(&mut moderation, 1_000, 20, 1);
        assert!(!moderation.handle_turn(1_020_000_000, 0));
    }
}
