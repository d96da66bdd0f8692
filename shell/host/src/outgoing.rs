//! Where the core writes what leaves: the batch, and what empties it when it is full.

use link::{Destination, Outbox};

use crate::batch::Batch;
use crate::relay::Streams;
use crate::udp::Sockets;

/// A batch together with the sockets and streams that empty it when it is full.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// What waits.
    pub batch: &'a mut Batch,
    /// Where it goes; `None` while the interface is down: what is committed then is dropped.
    pub sockets: Option<&'a mut Sockets>,
    /// Where datagrams for peers at relays go.
    pub streams: Option<&'a mut Streams>,
}

impl Outgoing<'_> {
    /// Bytes that wait in the batch, or went to streams in this turn.
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch.len() + self.streams.as_ref().map_or(0, |streams| streams.pushed())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends what waits, as far as the sockets have room.
    pub fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        match &mut self.sockets {
            Some(sockets) => sockets.flush(self.batch),
            None => self.batch.clear(),
        }
    }
}

impl Outbox for Outgoing<'_> {
    #[inline]
    fn reserve(&mut self, to: &Destination, len: usize) -> Option<&mut [u8]> {
        if !self.batch.has_room(len) {
            self.batch.hurry();
            self.flush();
            self.batch.compact();
            if !self.batch.has_room(len) {
                return None;
            }
        }
        self.batch.reserve(to, len)
    }

    #[inline]
    fn commit(&mut self) {
        self.batch.commit(0, self.streams.as_deref_mut());
    }

    #[inline]
    fn commit_paced(&mut self, gap_ns: u32) {
        self.batch.commit(gap_ns, self.streams.as_deref_mut());
    }
}
