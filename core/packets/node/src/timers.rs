//! Timers: the peer that wants to be woken next, among many.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use noise::{Instant, PeerId};

/// Deadlines of all peers. A peer's deadline moves with every batch, nearly always later; so a
/// peer has one entry that may be early, never late, and is looked at again when it is reached.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, PeerId)>>,
    /// By peer: the entry that counts; others of the peer are stale.
    entries: Vec<Instant>,
}

impl Timers {
    /// Says that `peer` wants to be woken at `deadline` and not later.
    #[inline]
    pub(crate) fn schedule(&mut self, peer: PeerId, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return };
        let slot = peer.0 as usize;
        if slot >= self.entries.len() {
            self.entries.resize(slot + 1, Instant::MAX);
        }
        if deadline < self.entries[slot] {
            self.entries[slot] = deadline;
            self.heap.push(Reverse((deadline, peer)));
        }
    }

    /// The earliest entry; the peer may turn out to want nothing yet.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.heap.peek().map(|entry| entry.0.0)
    }

    /// A peer whose entry was reached. It must be scheduled again with its true deadline.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<PeerId> {
        while let Some(Reverse((deadline, peer))) = self.heap.peek().copied() {
            if deadline > now {
                return None;
            }
            self.heap.pop();
            let entry = &mut self.entries[peer.0 as usize];
            if *entry == deadline {
                *entry = Instant::MAX;
                return Some(peer);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_woken_once_at_its_earliest_wish() {
        let mut timers = Timers::default();
        timers.schedule(PeerId(0), Some(Instant(50)));
        timers.schedule(PeerId(0), Some(Instant(90)));
        timers.schedule(PeerId(0), Some(Instant(20)));
        timers.schedule(PeerId(1), Some(Instant(30)));
        assert_eq!(timers.earliest(), Some(Instant(20)));
        assert_eq!(timers.pop_due(Instant(19)), None);
        assert_eq!(timers.pop_due(Instant(60)), Some(PeerId(0)));
        assert_eq!(timers.pop_due(Instant(60)), Some(PeerId(1)));
        assert_eq!(timers.pop_due(Instant(60)), None, "the stale entry at 50 wakes nobody");
        timers.schedule(PeerId(0), Some(Instant(90)));
        assert_eq!(timers.earliest(), Some(Instant(90)));
    }
}
