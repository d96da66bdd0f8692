//! How a packet travels: in what order it is wanted, and what protects it.

use repair::code::CHUNK_LEN_MAX;
use repair::spread::Wait;
use repair::table::Upper;
use wire::frame::{self, Ordered};

use crate::compression::flows::Ticket;

/// How a packet's pieces are told apart and in what order they are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// The flow's tag, if it suffers from disorder.
    pub(crate) tag: Option<u8>,
    /// What all of it is of.
    pub(crate) upper: Upper,
    /// Whether any of it is of TCP.
    pub(crate) is_tcp: bool,
    pub(crate) protect: bool,
    /// Leave to compress, of the flow at hand; those of other flows share nothing with it.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) now_us: u64,
    /// The inner MTU in bytes; 0 = unknown.
    pub(crate) mtu: usize,
    /// Bytes of the largest plaintext that may be a frame; what is larger, on links with jumbo
    /// frames, travels bare.
    pub(crate) room: usize,
}

impl Manner {
    /// Bytes of the largest plaintext that is sent whole in this manner.
    pub(crate) fn limit(&self) -> usize {
        limit(self.protect, self.room)
    }

    /// Whether packets of both manners may share a bundle: those that can wait for repair share
    /// none with those that cannot, unless they are `held`.
    pub(crate) fn is_alike(&self, other: &Self, held: bool) -> bool {
        self.mtu == other.mtu
            && (held || (self.tag.is_some(), self.protect) == (other.tag.is_some(), other.protect))
    }

    /// The manner of what both share: protected if either is, and patient only if both are; flows
    /// share no context (threat BC-02).
    pub(crate) fn shared(mut self, other: &Self) -> Self {
        self.tag = self.tag.filter(|_| other.tag.is_some());
        self.upper = self.upper.shared(other.upper);
        self.is_tcp |= other.is_tcp;
        self.ticket = self.ticket.filter(|_| self.ticket == other.ticket);
        self.protect |= other.protect;
        self
    }

    pub(crate) fn wait(&self) -> Wait {
        match self.tag {
            Some(_) => Wait::Ordered,
            None if self.is_tcp => Wait::Answer,
            None => Wait::Company,
        }
    }

    /// Bytes that stand in front of a lone packet.
    pub(crate) const fn order_len(&self) -> usize {
        if self.tag.is_some() { Ordered::FIXED_LEN } else { 0 }
    }
}

/// Bytes of the largest plaintext that is sent whole where a frame has room for `room`: a repair
/// chunk of what is in a block says more than it.
pub(crate) fn limit(in_block: bool, room: usize) -> usize {
    if in_block { room.saturating_sub(frame::Repair::FIXED_LEN).min(CHUNK_LEN_MAX) } else { room }
}
