//! The way out: one packet from a TUN queue, cut into the packets that travel.
//!
//! [`parse`] checks every claim of the virtio header against the packet (threat PF-16), then
//! prepares the partial sums of what never changes. [`Superpacket::write_segment`] copies the
//! headers, patches lengths, id, sequence and flags, and passes once over the payload.
//! Cut: TCP over IPv4 and IPv6, and UDP datagrams of equal size (USO); a plain packet is one
//! segment. Source: virtio 1.2 §5.1.6, RFC 9293, RFC 3168 §6.1.2 (CWR), RFC 6864 (IPv4 ids).

use core::net::IpAddr;

use crate::checksum::{self, Sum};
use crate::ip::{self, protocol};
use crate::packet::{self, Fragment, Packet, Transport};
use crate::tcp::{self, Flags};
use crate::{Malformed, udp, virtio};

/// Segments that one superpacket may be cut into: 65,535 bytes at the smallest payload that
/// Linux cuts at, 8 bytes (a send MSS of 48 less 40 bytes of options).
pub const SEGMENTS_MAX: usize = 8192;

/// One packet from a TUN queue, ready to be cut.
#[derive(Clone, Copy, Debug)]
pub struct Superpacket<'a> {
    packet: Packet<'a>,
    /// Bytes of all headers, repeated on each segment; the whole packet when it is not cut.
    header_len: usize,
    /// Payload bytes of each segment but the last; never zero.
    segment_size: usize,
    segments: usize,
    cut: Option<Cut>,
}

/// What the segments have in common, summed up once.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// IPv4: the header without its length, id and checksum. Zero for IPv6.
    header_sum: Sum,
    /// Pseudo header and transport header without everything that changes.
    upper_sum: Sum,
    /// IPv4: the first segment's id.
    id: u16,
    upper: Upper,
}

#[derive(Clone, Copy, Debug)]
enum Upper {
    /// The first segment's sequence number, and the word of data offset and flags.
    Tcp {
        sequence: u32,
        offset_flags: u16,
    },
    Udp,
}

/// Checks `header` against the packet in `bytes`; completes a plain packet's checksum in place.
///
/// # Errors
/// The first claim that does not hold.
pub fn parse(header: virtio::Header, bytes: &mut [u8]) -> Result<Superpacket<'_>, Malformed> {
    if header.gso_type == virtio::GSO_NONE {
        if header.needs_checksum() {
            complete_checksum(header, bytes)?;
        }
        let packet = packet::parse(bytes)?;
        let header_len = packet.bytes().len();
        return Ok(Superpacket { packet, header_len, segment_size: 1, segments: 1, cut: None });
    }
    let (wanted, version) = match header.gso_type {
        kind if kind & !virtio::GSO_ECN == virtio::GSO_TCPV4 => (protocol::TCP, Some(4)),
        kind if kind & !virtio::GSO_ECN == virtio::GSO_TCPV6 => (protocol::TCP, Some(6)),
        virtio::GSO_UDP_L4 => (protocol::UDP, None),
        _ => return Err(Malformed::GsoType),
    };
    let packet = parse_superpacket(bytes)?;
    if packet.protocol() != wanted || version.is_some_and(|version| version != packet.version()) {
        return Err(Malformed::GsoProtocol);
    }
    if packet.fragment() != Fragment::Whole {
        return Err(Malformed::GsoFragment);
    }
    if header.gso_size == 0 {
        return Err(Malformed::GsoSize);
    }
    // Linux writes its linear length here, which may lie anywhere in the packet: never used.
    if usize::from(header.hdr_len) > packet.bytes().len() {
        return Err(Malformed::GsoHeader);
    }
    let segment_size = usize::from(header.gso_size);
    let (cut, header_len) = prepare(header, &packet)?;
    let payload_len = packet.bytes().len() - header_len;
    let segments = payload_len.div_ceil(segment_size).max(1);
    if segments > SEGMENTS_MAX {
        return Err(Malformed::GsoSegments);
    }
    Ok(Superpacket { packet, header_len, segment_size, segments, cut: Some(cut) })
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

    /// All headers, which are repeated on each segment; of a plain packet the whole of it.
    #[must_use]
    pub fn header(&self) -> &'a [u8] {
        &self.packet.bytes()[..self.header_len]
    }

    /// What follows the headers, of all segments together; nothing of a plain packet.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.packet.bytes()[self.header_len..]
    }

    /// Payload bytes of each segment but the last; 1 for a plain packet.
    #[must_use]
    pub const fn segment_size(&self) -> usize {
        self.segment_size
    }

    /// How many IP packets this becomes; at least one, at most [`SEGMENTS_MAX`].
    #[must_use]
    pub const fn segments(&self) -> usize {
        self.segments
    }

    /// Bytes of the IP packet number `index`, which is below [`Self::segments`].
    #[must_use]
    pub fn segment_len(&self, index: usize) -> usize {
        self.header_len + self.segment_payload(index).len()
    }

    /// The payload of the IP packet number `index`: behind TCP's or UDP's header. Empty for a
    /// plain packet.
    #[must_use]
    pub fn segment_payload(&self, index: usize) -> &'a [u8] {
        let payload = &self.packet.bytes()[self.header_len..];
        let start = payload.len().min(index.saturating_mul(self.segment_size));
        &payload[start..payload.len().min(start + self.segment_size)]
    }

    /// Writes the IP packet number `index` to the start of `out`; returns its length.
    ///
    /// # Panics
    /// When `out` is shorter than [`Self::segment_len`].
    #[inline]
    pub fn write_segment(&self, index: usize, out: &mut [u8]) -> usize {
        debug_assert!(index < self.segments, "segment {index} of {}", self.segments);
        let payload = self.segment_payload(index);
        let len = self.header_len + payload.len();
        let (headers, behind) = out[..len].split_at_mut(self.header_len);
        headers.copy_from_slice(&self.packet.bytes()[..self.header_len]);
        if let Some(cut) = &self.cut {
            behind.copy_from_slice(payload);
            self.patch(cut, index, headers, Sum::of(behind), len);
        }
        len
    }

    #[inline]
    fn patch(&self, cut: &Cut, index: usize, headers: &mut [u8], payload: Sum, len: usize) {
        let (ip_header, upper) = headers.split_at_mut(self.packet.header_len());
        if ip_header[0] >> 4 == 4 {
            let id = cut.id.wrapping_add(index as u16);
            let sum = cut.header_sum.plus_word(len as u16).plus_word(id);
            put(ip_header, 2, len as u16);
            put(ip_header, 4, id);
            put(ip_header, 10, sum.checksum());
        } else {
            put(ip_header, 4, (len - ip::V6_HEADER_LEN) as u16);
        }
        let upper_len = (len - ip_header.len()) as u16;
        let sum = cut.upper_sum.plus(payload).plus_word(upper_len);
        match cut.upper {
            Upper::Tcp { sequence, offset_flags } => {
                let advance = (index * self.segment_size) as u32;
                let sequence = sequence.wrapping_add(advance);
                let offset_flags = offset_flags & !self.flags_elsewhere(index);
                upper[4..8].copy_from_slice(&sequence.to_be_bytes());
                put(upper, 12, offset_flags);
                let sum = sum.plus_long(sequence).plus_word(offset_flags);
                put(upper, tcp::CHECKSUM_AT, sum.checksum());
            }
            Upper::Udp => {
                put(upper, 4, upper_len);
                put(upper, udp::CHECKSUM_AT, sum.plus_word(upper_len).udp_checksum());
            }
        }
    }

    /// TCP flags that this segment must not carry: CWR is the first's, FIN and PSH the last's.
    const fn flags_elsewhere(&self, index: usize) -> u16 {
        let mut flags = Flags(0);
        if index != 0 {
            flags = flags.with(Flags::CWR);
        }
        if index + 1 != self.segments {
            flags = flags.with(Flags::FIN).with(Flags::PSH);
        }
        flags.0 as u16
    }
}

/// A plain packet left to us: sums from `csum_start` to the end, stores at `csum_offset`.
/// Any start behind the IP header is taken, since a packet may carry another one in UDP or GRE.
fn complete_checksum(header: virtio::Header, bytes: &mut [u8]) -> Result<(), Malformed> {
    let packet = packet::parse(bytes)?;
    let total_len = packet.bytes().len();
    let start = usize::from(header.csum_start);
    let at = start + usize::from(header.csum_offset);
    if start < packet.header_len() || at + 2 > total_len {
        return Err(Malformed::ChecksumStart);
    }
    let sum = Sum::of(&bytes[start..total_len]);
    // All ones is never wrong: for UDP it is the one form of zero that may be sent.
    put(bytes, at, sum.udp_checksum());
    Ok(())
}

fn parse_superpacket(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    // BIG TCP leaves the length field zero.
    let length_at = if bytes.first().ok_or(Malformed::Truncated)? >> 4 == 4 { 2 } else { 4 };
    let length = bytes.get(length_at..length_at + 2).ok_or(Malformed::Truncated)?;
    if length == [0, 0] && bytes.len() > ip::PACKET_LEN_MAX {
        return Err(Malformed::Jumbogram);
    }
    packet::parse(bytes)
}

/// The common sums of a superpacket, and the length of all its headers.
fn prepare(header: virtio::Header, packet: &Packet<'_>) -> Result<(Cut, usize), Malformed> {
    let upper_bytes = packet.payload();
    let (upper, upper_header_len, checksum_at) = match packet.transport()? {
        Transport::Tcp(view) if view.flags().any(Flags::SYN.with(Flags::RST)) => {
            return Err(Malformed::GsoProtocol);
        }
        Transport::Tcp(view) => {
            let offset_flags = u16::from_be_bytes([upper_bytes[12], upper_bytes[13]]);
            let upper = Upper::Tcp { sequence: view.sequence(), offset_flags };
            (upper, view.header_len(), tcp::CHECKSUM_AT)
        }
        Transport::Udp(view) if view.len() != upper_bytes.len() => {
            return Err(Malformed::UdpLength);
        }
        Transport::Udp(_) => (Upper::Udp, udp::HEADER_LEN, udp::CHECKSUM_AT),
        Transport::Icmp(_) | Transport::Icmp6(_) | Transport::Other => {
            return Err(Malformed::GsoProtocol);
        }
    };
    if header.needs_checksum()
        && (usize::from(header.csum_start) != packet.header_len()
            || usize::from(header.csum_offset) != checksum_at)
    {
        return Err(Malformed::ChecksumStart);
    }
    let ip_header = &packet.bytes()[..packet.header_len()];
    let (header_sum, id) = match packet.version() {
        4 => (without(Sum::of(ip_header), ip_header, &[2, 4, 10]), word(ip_header, 4)),
        _ => (Sum::ZERO, 0),
    };
    let pseudo = if packet.is_routed() {
        // The kernel knows the final destination; its partial sum has it, and the full length.
        if !header.needs_checksum() {
            return Err(Malformed::GsoProtocol);
        }
        let partial = Sum::ZERO.plus_word(word(upper_bytes, checksum_at));
        partial.plus_word(!(upper_bytes.len() as u16))
    } else {
        checksum::pseudo(packet.source(), packet.destination(), packet.protocol(), 0)
    };
    let constant = Sum::of(&upper_bytes[..upper_header_len]);
    let constant = match upper {
        Upper::Tcp { .. } => without(constant, upper_bytes, &[4, 6, 12, tcp::CHECKSUM_AT]),
        Upper::Udp => without(constant, upper_bytes, &[4, udp::CHECKSUM_AT]),
    };
    let cut = Cut { header_sum, upper_sum: pseudo.plus(constant), id, upper };
    Ok((cut, ip_header.len() + upper_header_len))
}

/// Takes the words at these offsets out of a sum: adds their complement.
fn without(sum: Sum, bytes: &[u8], offsets: &[usize]) -> Sum {
    offsets.iter().fold(sum, |sum, &at| sum.plus_word(!word(bytes, at)))
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn put(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

#[cfg(test)]
mod tests;
