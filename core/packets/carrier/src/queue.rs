//! Frames in the order of their arrival, as one ring of bytes: nothing is allocated for a frame.

use std::collections::VecDeque;
use std::time::Duration;

use noise::Instant;

/// Memory that a queue keeps while it is empty, in bytes.
const KEPT_LEN: usize = 64 * 1024;

#[derive(Clone, Copy, Debug)]
struct Entry {
    len: u32,
    since: Instant,
}

/// A queue of byte strings with the time at which each came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    bytes: VecDeque<u8>,
    entries: VecDeque<Entry>,
}

impl Queue {
    /// Frames that wait.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Their bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends a frame that consists of two parts.
    pub(crate) fn push(&mut self, head: &[u8], body: &[u8], now: Instant) {
        self.bytes.extend(head);
        self.bytes.extend(body);
        self.entries.push_back(Entry { len: (head.len() + body.len()) as u32, since: now });
    }

    /// How long the oldest frame has waited.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.entries.front().map_or(Duration::ZERO, |entry| now.since(entry.since))
    }

    /// When the oldest frame came.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.entries.front().map(|entry| entry.since)
    }

    /// Bytes of the oldest frame.
    pub(crate) fn first_len(&self) -> Option<usize> {
        self.entries.front().map(|entry| entry.len as usize)
    }

    /// Moves the oldest frame to the end of `out`; returns its length.
    pub(crate) fn pop_into(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        let len = self.entries.pop_front()?.len as usize;
        let (first, second) = self.bytes.as_slices();
        let cut = len.min(first.len());
        out.extend_from_slice(&first[..cut]);
        out.extend_from_slice(&second[..len - cut]);
        self.bytes.drain(..len);
        Some(len)
    }

    /// Forgets the oldest frame; returns its length.
    pub(crate) fn drop_first(&mut self) -> Option<usize> {
        let len = self.entries.pop_front()?.len as usize;
        self.bytes.drain(..len);
        Some(len)
    }

    /// Gives back most of the memory of an empty queue.
    pub(crate) fn release(&mut self) {
        if self.is_empty() && self.bytes.capacity() > KEPT_LEN {
            *self = Self::default();
        }
    }
}
