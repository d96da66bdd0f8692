//! The way of one datagram: which session seals it, where it goes, and the memory that it is
//! written into.

use noise::Session;
use wire::wireguard;

use crate::outbox::{Destination, Outbox};
use crate::outcome::Refusal;

/// What sealing one datagram needs, and how many were sealed.
pub(crate) struct Way<'a, O> {
    pub(crate) session: &'a mut Session,
    pub(crate) to: Destination,
    pub(crate) out: &'a mut O,
    pub(crate) datagrams: u32,
    pub(crate) bytes: u64,
    /// Between two datagrams, nanoseconds; 0 = none.
    pub(crate) gap_ns: u32,
    /// The number of the last one.
    pub(crate) last: Option<u64>,
}

impl<'a, O: Outbox> Way<'a, O> {
    /// Nothing sealed yet.
    pub(crate) fn new(session: &'a mut Session, to: Destination, out: &'a mut O) -> Self {
        Self { session, to, out, datagrams: 0, bytes: 0, gap_ns: 0, last: None }
    }

    /// What is sealed from now on should leave so far apart.
    pub(crate) fn paced(self, gap_ns: u32) -> Self {
        Self { gap_ns, ..self }
    }

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
        let number = self.session.next_counter();
        self.session.seal(slot).map_err(|_| Refusal::Exhausted)?;
        self.last = Some(number);
        self.out.commit_paced(self.gap_ns);
        self.datagrams += 1;
        self.bytes += total as u64;
        Ok(())
    }
}
