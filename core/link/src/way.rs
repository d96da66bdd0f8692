//! The way of one datagram: which session seals it, where it goes, and the memory that it is
//! written into.

use noise::Session;
use wire::wireguard;

use crate::link::Refusal;
use crate::outbox::{Destination, Outbox};

/// What sealing one datagram needs, and how many were sealed.
pub(crate) struct Way<'a, O> {
    pub(crate) session: &'a mut Session,
    pub(crate) to: Destination,
    pub(crate) out: &'a mut O,
    pub(crate) datagrams: u32,
    pub(crate) bytes: u64,
}

impl<O: Outbox> Way<'_, O> {
    /// One datagram with a plaintext of `len` bytes, which `write` fills.
    #[inline]
    pub(crate) fn seal(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refusal> {
        let total = len + wireguard::OVERHEAD_LEN;
        let slot = self.out.reserve(&self.to, total).ok_or(Refusal::NoRoom)?;
        write(&mut slot[wireguard::TRANSPORT_HEADER_LEN..][..len]);
        self.session.seal(slot).map_err(|_| Refusal::Exhausted)?;
        self.out.commit();
        self.datagrams += 1;
        self.bytes += total as u64;
        Ok(())
    }
}
