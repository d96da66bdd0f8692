//! Where the core writes what leaves: the batch, and what empties it when it is full.

use link::{Destination, Outbox};

use crate::sockets::batch::Batch;
use crate::sockets::carriers::Carriers;
use crate::sockets::relay::Streams;
use crate::sockets::udp::Sockets;

/// A batch together with the sockets and streams that empty it when it is full.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// What waits.
    pub batch: &'a mut Batch,
    /// Where it goes; `None` while the interface is down: what is committed then is dropped.
    pub sockets: Option<&'a mut Sockets>,
    /// Where datagrams for peers at relays go.
    pub streams: Option<&'a mut Streams>,
    /// Where datagrams go that leave neither by UDP nor by a relay.
    pub carriers: Option<&'a mut Carriers>,
}

impl Outgoing<'_> {
    /// Bytes that wait in the batch, or went to streams in this turn.
    #[must_use]
    pub fn len(&self) -> usize {
        let pushed = self.streams.as_ref().map_or(0, |streams| streams.pushed());
        self.waiting() + pushed
    }

    /// Bytes that wait for a socket.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.batch.len() + self.carriers.as_ref().map_or(0, |carriers| carriers.len())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends what waits, as far as the sockets have room.
    pub fn flush(&mut self) {
        if let Some(carriers) = &mut self.carriers {
            carriers.flush();
        }
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
        self.commit_paced(0);
    }

    #[inline]
    fn commit_paced(&mut self, gap_ns: u32) {
        let carried = self.batch.commit(gap_ns, self.streams.as_deref_mut());
        if let (Some((to, datagram)), Some(carriers)) = (carried, &mut self.carriers) {
            carriers.push(&to, datagram);
        }
    }
}
