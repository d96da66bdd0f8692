//! Where opened packets are told to lie.

use std::ops::Range;

/// Inner packets of one batch, as ranges of the memory that the shell received into, in the order
/// of arrival. The shell gives it, empties it and bounds a batch by what it receives at once.
#[derive(Debug, Default)]
pub struct Inbox {
    packets: Vec<Range<usize>>,
    bytes: usize,
}

impl Inbox {
    /// An empty inbox with room for `packets` before it grows.
    #[must_use]
    pub fn with_capacity(packets: usize) -> Self {
        Self { packets: Vec::with_capacity(packets), bytes: 0 }
    }

    /// Adds a packet.
    pub fn push(&mut self, packet: Range<usize>) {
        self.bytes += packet.len();
        self.packets.push(packet);
    }

    /// What lies there.
    #[must_use]
    pub fn packets(&self) -> &[Range<usize>] {
        &self.packets
    }

    /// Bytes of all packets.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Empties it; the room stays.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.bytes = 0;
    }
}
