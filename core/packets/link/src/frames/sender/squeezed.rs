//! Compression between the writing of a plaintext and its sealing.

use super::*;

impl Sender {
    /// Leave to compress this packet, if the other end reads that.
    pub(super) fn ticket(&mut self, packet: &Packet<'_>) -> Option<Ticket> {
        if !self.reads_squeezed {
            return None;
        }
        self.squeezer.get_or_insert_with(Squeezer::new).ticket(packet)
    }

    /// What is to try a plaintext of `len` bytes. Give it back.
    #[inline]
    fn squeezer(&mut self, manner: Manner, len: usize) -> Option<(Box<Squeezer>, Ticket)> {
        let ticket = manner.ticket?;
        let mut squeezer = self.squeezer.take()?;
        if squeezer.wants(ticket, len) {
            return Some((squeezer, ticket));
        }
        self.squeezer = Some(squeezer);
        None
    }

    /// A packet of `len` bytes goes out in no block and without a number.
    pub(super) fn note_bare(&mut self, len: usize) {
        self.load.count(None);
        self.data_bytes += len as u64;
    }

    /// Seals one packet of `len` bytes that travels bare, or compressed.
    pub(super) fn bare<O: Outbox>(
        &mut self,
        len: usize,
        manner: Manner,
        way: &mut Way<'_, O>,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refusal> {
        self.note_bare(len);
        let padded_len = wireguard::padded_len(len, manner.mtu);
        let Some((mut squeezer, ticket)) = self.squeezer(manner, len) else {
            return way.seal(padded_len, |padded| {
                write(&mut padded[..len]);
                padded[len..].fill(0);
            });
        };
        let result = match squeezer.squeeze(ticket, len, write) {
            Tried::Shorter(frame) => way.seal(frame.len(), |out| out.copy_from_slice(frame)),
            Tried::AsItIs(packet) => way.seal(padded_len, |padded| {
                padded[..len].copy_from_slice(packet);
                padded[len..].fill(0);
            }),
        };
        self.squeezer = Some(squeezer);
        result
    }

    /// Sends one plaintext of `len` bytes, compressed if that is wanted and makes it shorter.
    #[inline]
    pub(super) fn piece<O: Outbox>(
        &mut self,
        len: usize,
        manner: Manner,
        way: &mut Way<'_, O>,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refusal> {
        let Some((mut squeezer, ticket)) = self.squeezer(manner, len) else {
            return self.emit(len, manner, way, write);
        };
        let (Tried::Shorter(plain) | Tried::AsItIs(plain)) = squeezer.squeeze(ticket, len, write);
        let result = self.emit(plain.len(), manner, way, |out| out.copy_from_slice(plain));
        self.squeezer = Some(squeezer);
        result
    }

    /// What was compressed so far.
    pub(crate) fn squeezes(&self) -> Squeezes {
        self.squeezer.as_ref().map_or_else(Squeezes::default, |squeezer| squeezer.counts())
    }

    /// Whether the other end reads what is compressed.
    pub(crate) const fn reads_squeezed(&self) -> bool {
        self.reads_squeezed
    }
}
