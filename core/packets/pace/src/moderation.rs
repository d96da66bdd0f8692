//! Moderation of wakeups: where single packets come close together, some are let gather.
//!
//! To be woken costs more than to move a small packet: at 30,000 packets a second each way a loop
//! that answers every one at once moves three at a time, and spends a third of its time on falling
//! asleep and waking up. Network cards have the same trouble, and the same cure (interrupt
//! moderation, "adaptive rx" of ethtool): while much comes, what comes is looked at a little later.
//! Here the loop, when it has nothing more to do, sleeps for [`PAUSE`] before it asks again. That
//! leaves the processor to whoever sends or reads the packets, too.
//!
//! What does not come close together is never kept waiting, be it a ping now and then, a handshake
//! or a call. Nor does a loop pause that does not keep up. And TCP does not count: it comes as
//! superpackets, and one stream in four was slow where its acknowledgements gathered.

use std::time::Duration;

/// How long what comes may gather. A bundle may wait for four times as long.
pub const PAUSE: Duration = Duration::from_micros(50);
/// The rate is looked at so often, at most: a hundred questions that wait for their answers move as
/// one convoy, with gaps of some milliseconds.
const WINDOW_NS: u64 = 5_000_000;
/// Packets a window from which on they come close together: one in two pauses.
const DENSE: u64 = 50;

/// Decides after each turn whether to pause.
#[derive(Debug, Default)]
pub struct Moderation {
    /// When the window began, and how many came since.
    began_ns: u64,
    singles: u64,
    is_dense: bool,
}

impl Moderation {
    /// So many single packets came from the device, other than of TCP.
    pub const fn note_packets(&mut self, count: u64) {
        self.singles += count;
    }

    /// After a turn that began at `now_ns` and left nothing waiting: whether what comes next may
    /// gather.
    pub fn handle_turn(&mut self, now_ns: u64) -> bool {
        let passed_ns = now_ns.saturating_sub(self.began_ns);
        if passed_ns >= WINDOW_NS {
            self.is_dense = u128::from(self.singles) * u128::from(WINDOW_NS)
                >= u128::from(passed_ns) * u128::from(DENSE);
            self.began_ns = now_ns;
            self.singles = 0;
        }
        self.is_dense
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns with so many single packets each, one every `every_us`, for 20 ms: how many of them
    /// were followed by a pause.
    fn pauses(moderation: &mut Moderation, from_ms: u64, every_us: u64, singles: u64) -> u64 {
        let turns =
            (0..20_000 / every_us).map(|turn| from_ms * 1_000_000 + turn * every_us * 1_000);
        let mut pauses = 0;
        for now_ns in turns {
            moderation.note_packets(singles);
            pauses += u64::from(moderation.handle_turn(now_ns));
        }
        pauses
    }

    #[test]
    fn single_packets_that_come_close_together_may_gather() {
        let mut moderation = Moderation::default();
        assert!(pauses(&mut moderation, 1_000, 20, 1) >= 700, "50,000 a second");
        assert_eq!(pauses(&mut moderation, 2_000, 1_000, 1), 0, "a ping each millisecond");
    }

    #[test]
    fn nothing_waits_where_little_comes() {
        let mut moderation = Moderation::default();
        assert_eq!(pauses(&mut moderation, 1_000, 200, 1), 0, "5,000 a second");
        assert_eq!(pauses(&mut moderation, 2_000, 5_000, 49), 0, "a burst now and then");
    }

    #[test]
    fn a_stream_of_tcp_never_waits() {
        let mut moderation = Moderation::default();
        assert_eq!(pauses(&mut moderation, 1_000, 20, 0), 0, "turns without single packets");
        assert!(pauses(&mut moderation, 2_000, 20, 1) > 0);
        assert_eq!(pauses(&mut moderation, 2_100, 20, 0), 0, "nor behind others that ended");
    }
}
