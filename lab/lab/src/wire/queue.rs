//! Frames under way: a slab of slots and a heap of when each is due.
//!
//! Both are as large as they will ever be from the start; memory of slots that were never used
//! costs nothing, and the last slot freed is the next one taken, so a calm wire stays in cache.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Most frames under way, both directions together; at 1500 bytes that is half a second of a
/// full gigabit each way.
pub(super) const FRAMES_MAX: usize = 1 << 16;

/// Most memory for them: frames that are superpackets have fewer slots.
const BYTES_MAX: usize = 1 << 30;

/// The end by which a frame came, and the one by which it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) entry: u8,
    pub(super) exit: u8,
}

/// A frame that is due: its slot, its length and the ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub(super) at_ns: u64,
    /// Keeps frames that are due at once in the order in which they came.
    number: u64,
    pub(super) slot: u32,
    pub(super) len: u32,
    pub(super) entry: u8,
    pub(super) exit: u8,
}

#[derive(Debug)]
pub(super) struct Queue {
    bytes: Vec<u8>,
    stride: usize,
    free: Vec<u32>,
    /// How often each slot is due.
    uses: Vec<u8>,
    heap: BinaryHeap<Reverse<Due>>,
    number: u64,
}

impl Queue {
    /// Slots for frames of up to `frame_bytes`, and one byte more to notice longer ones.
    pub(super) fn new(frame_bytes: usize) -> Self {
        let stride = (frame_bytes + 1).next_multiple_of(64);
        let slots = FRAMES_MAX.min(BYTES_MAX / stride);
        Self {
            bytes: vec![0; stride * slots],
            stride,
            free: (0..slots as u32).rev().collect(),
            uses: vec![0; slots],
            heap: BinaryHeap::with_capacity(2 * slots),
            number: 0,
        }
    }

    /// The slot that the next frame goes to, with its memory; none when all are under way.
    pub(super) fn vacant(&mut self) -> Option<(u32, &mut [u8])> {
        let slot = *self.free.last()?;
        let start = slot as usize * self.stride;
        Some((slot, &mut self.bytes[start..start + self.stride]))
    }

    /// Makes the frame in `slot` due; the first time takes the slot away from the vacant ones.
    pub(super) fn schedule(&mut self, at_ns: u64, slot: u32, len: u32, way: Way) {
        if self.uses[slot as usize] == 0 {
            let taken = self.free.pop();
            debug_assert_eq!(taken, Some(slot), "only the vacant slot is filled");
        }
        self.uses[slot as usize] += 1;
        self.number += 1;
        let Way { entry, exit } = way;
        self.heap.push(Reverse(Due { at_ns, number: self.number, slot, len, entry, exit }));
    }

    /// When the next frame is due.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(due)| due.at_ns)
    }

    /// Takes the next frame that is due by `now_ns`; [`Self::release`] it when it is sent.
    pub(super) fn pop(&mut self, now_ns: u64) -> Option<Due> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse(due)| due)
    }

    /// Both Ethernet addresses of the frame in a slot, which begins after `prefix_bytes`.
    pub(super) fn peek(&self, slot: u32, prefix_bytes: usize) -> &[u8] {
        let start = slot as usize * self.stride + prefix_bytes;
        &self.bytes[start..start + 12]
    }

    pub(super) fn frame(&self, due: &Due) -> &[u8] {
        let start = due.slot as usize * self.stride;
        &self.bytes[start..start + due.len as usize]
    }

    pub(super) fn release(&mut self, due: &Due) {
        let uses = &mut self.uses[due.slot as usize];
        *uses -= 1;
        if *uses == 0 {
            self.free.push(due.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORTH: Way = Way { entry: 0, exit: 1 };

    #[test]
    fn frames_leave_by_time_then_by_order_and_slots_come_back() {
        let mut queue = Queue::new(100);
        for (at, byte) in [(30, 1), (10, 2), (10, 3)] {
            let (slot, memory) = queue.vacant().expect("room");
            memory[0] = byte;
            queue.schedule(at, slot, 1, FORTH);
            if byte == 3 {
                queue.schedule(20, slot, 1, FORTH);
            }
        }
        assert_eq!(queue.next_ns(), Some(10));
        assert!(queue.pop(9).is_none());
        let mut seen = Vec::new();
        while let Some(due) = queue.pop(30) {
            seen.push(queue.frame(&due)[0]);
            queue.release(&due);
        }
        assert_eq!(seen, [2, 3, 3, 1]);
        assert_eq!(queue.free.len(), FRAMES_MAX);
    }

    #[test]
    fn a_full_slab_has_no_vacancy() {
        let mut queue = Queue::new(60);
        for _ in 0..FRAMES_MAX {
            let (slot, _) = queue.vacant().expect("room");
            queue.schedule(1, slot, 60, FORTH);
        }
        assert!(queue.vacant().is_none());
        let due = queue.pop(1).expect("due");
        queue.release(&due);
        assert!(queue.vacant().is_some());
    }
}
