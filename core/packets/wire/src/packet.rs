//! A view of one IP packet: what its headers say, checked once, nothing copied.
//!
//! [`parse`] accepts what a router would forward; [`Packet::transport`] is stricter and is what a
//! filter asks. [`source`], [`destination`] and [`total_len`] are for paths that need only that.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Malformed;
use crate::checksum::{self, Sum};
use crate::icmp::{Icmp, Icmp6};
use crate::ip::{self, Layout, protocol};
pub use crate::ip::{EXTENSION_HEADERS_MAX, FRAGMENT_MIN, Fragment};
use crate::tcp::Tcp;
use crate::udp::Udp;

/// The explicit congestion notification field (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// Not capable.
    NotEct = 0,
    /// Capable, codepoint 1.
    Ect1 = 1,
    /// Capable, codepoint 0.
    Ect0 = 2,
    /// Congestion was met.
    Ce = 3,
}

impl Ecn {
    /// From the low two bits of a traffic class octet.
    #[must_use]
    pub const fn from_bits(octet: u8) -> Self {
        match octet & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// What lies behind the IP headers.
#[derive(Clone, Copy, Debug)]
pub enum Transport<'a> {
    /// TCP.
    Tcp(Tcp<'a>),
    /// UDP.
    Udp(Udp<'a>),
    /// ICMP in an IPv4 packet.
    Icmp(Icmp<'a>),
    /// ICMPv6 in an IPv6 packet.
    Icmp6(Icmp6<'a>),
    /// A later fragment, or any other protocol: matched by its number alone.
    Other,
}

/// A view of one IP packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    layout: Layout,
}

/// Views `bytes` as one IP packet; bytes past its total length (padding) are left out.
///
/// # Errors
/// The reason why the headers before the transport do not hold together.
pub fn parse(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    let total_len = ip::total_len(bytes, true)?;
    let bytes = &bytes[..total_len];
    Ok(Packet { bytes, layout: ip::layout(bytes, total_len)? })
}

/// Views the start of a packet that an ICMP error quotes: like [`parse`], but the packet may be
/// cut anywhere behind its first headers.
///
/// # Errors
/// As [`parse`].
pub fn parse_quoted(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    let total_len = ip::total_len(bytes, false)?;
    let bytes = &bytes[..total_len.min(bytes.len())];
    Ok(Packet { bytes, layout: ip::layout(bytes, total_len)? })
}

impl<'a> Icmp<'a> {
    /// The packet that an error quotes, or `None` for other messages.
    #[must_use]
    pub fn quoted(self) -> Option<Result<Packet<'a>, Malformed>> {
        self.is_error().then(|| parse_quoted(self.body()))
    }
}

impl<'a> Icmp6<'a> {
    /// The packet that an error quotes, or `None` for other messages.
    #[must_use]
    pub fn quoted(self) -> Option<Result<Packet<'a>, Malformed>> {
        self.is_error().then(|| parse_quoted(self.body()))
    }
}

/// The source address, without a look at anything else.
///
/// # Errors
/// [`Malformed::Truncated`] or [`Malformed::Version`].
pub fn source(bytes: &[u8]) -> Result<IpAddr, Malformed> {
    address(bytes, 12, 8)
}

/// The destination address, without a look at anything else.
///
/// # Errors
/// [`Malformed::Truncated`] or [`Malformed::Version`].
pub fn destination(bytes: &[u8]) -> Result<IpAddr, Malformed> {
    address(bytes, 16, 24)
}

/// The length of the packet by its length field, never above `bytes.len()`.
///
/// # Errors
/// [`Malformed::TotalLength`] when the field does not fit the bytes, and the reasons of a fixed
/// header that is not there.
pub fn total_len(bytes: &[u8]) -> Result<usize, Malformed> {
    ip::total_len(bytes, true)
}

/// Whether a traffic class octet says that its packet steers (RFC 4594): EF, VOICE-ADMIT, and CS5
/// to CS7. What steers goes first, and is better new than in order.
#[must_use]
pub const fn steers(traffic_class: u8) -> bool {
    traffic_class >> 2 >= 40
}

/// What a packet says about congestion, from its fixed header.
///
/// # Errors
/// [`Malformed::Truncated`] or [`Malformed::Version`].
pub fn ecn(bytes: &[u8]) -> Result<Ecn, Malformed> {
    let [first, second, ..] = *bytes else { return Err(Malformed::Truncated) };
    match first >> 4 {
        4 => Ok(Ecn::from_bits(second)),
        6 => Ok(Ecn::from_bits(second >> 4)),
        _ => Err(Malformed::Version),
    }
}

/// Rewrites the ECN field in place and keeps an IPv4 header checksum right.
///
/// # Errors
/// [`Malformed::Truncated`] or [`Malformed::Version`].
pub fn set_ecn(bytes: &mut [u8], ecn: Ecn) -> Result<(), Malformed> {
    match bytes.first().ok_or(Malformed::Truncated)? >> 4 {
        4 => {
            let raw: &mut [u8; ip::V4_HEADER_LEN] =
                bytes.first_chunk_mut().ok_or(Malformed::Truncated)?;
            let old = u16::from_be_bytes([raw[0], raw[1]]);
            let new = old & 0xfffc | ecn as u16;
            let sum = checksum::update(u16::from_be_bytes([raw[10], raw[11]]), old, new);
            raw[1] = new.to_be_bytes()[1];
            raw[10..12].copy_from_slice(&sum.to_be_bytes());
            Ok(())
        }
        6 => {
            let raw: &mut [u8; ip::V6_HEADER_LEN] =
                bytes.first_chunk_mut().ok_or(Malformed::Truncated)?;
            raw[1] = raw[1] & 0xcf | (ecn as u8) << 4;
            Ok(())
        }
        _ => Err(Malformed::Version),
    }
}

impl<'a> Packet<'a> {
    /// 4 or 6.
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.bytes[0] >> 4
    }

    /// The source address.
    #[must_use]
    pub fn source(&self) -> IpAddr {
        source(self.bytes).expect("parse checked that the fixed header is there")
    }

    /// The destination address.
    #[must_use]
    pub fn destination(&self) -> IpAddr {
        destination(self.bytes).expect("parse checked that the fixed header is there")
    }

    /// The packet, trimmed to its total length.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The protocol behind the last extension header; for a later fragment, of the datagram.
    #[must_use]
    pub const fn protocol(&self) -> u8 {
        self.layout.protocol
    }

    /// Bytes of the IP header with options or extension headers.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        self.layout.header_len
    }

    /// What follows the IP headers.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.layout.header_len..]
    }

    /// The congestion field.
    #[must_use]
    pub fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.traffic_class())
    }

    /// The whole traffic class octet (type of service in IPv4).
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        match self.version() {
            4 => self.bytes[1],
            _ => self.bytes[0] << 4 | self.bytes[1] >> 4,
        }
    }

    /// Time to live, or hop limit.
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        self.bytes[if self.version() == 4 { 8 } else { 7 }]
    }

    /// Which part of a datagram this is.
    #[must_use]
    pub const fn fragment(&self) -> Fragment {
        self.layout.fragment
    }

    /// Where a fragment's payload starts in its datagram, bytes.
    #[must_use]
    pub const fn fragment_offset(&self) -> usize {
        self.layout.fragment_offset
    }

    /// The identification that all fragments of one datagram share (RFC 791 §3.1, RFC 8200 §4.5);
    /// of no meaning for a packet that is whole.
    #[must_use]
    pub const fn fragment_id(&self) -> u32 {
        self.layout.fragment_id
    }

    /// Whether the packet asks to be routed by its source: an IPv6 routing header (RFC 5095), an
    /// IPv4 loose or strict source route (RFC 7126), or IPv4 options that cannot be read.
    #[must_use]
    pub fn asks_source_route(&self) -> bool {
        const LOOSE: u8 = 131;
        const STRICT: u8 = 137;
        if self.version() == 6 {
            return self.layout.routed;
        }
        let mut options = &self.bytes[ip::V4_HEADER_LEN..self.layout.header_len];
        loop {
            options = match options {
                [] | [0, ..] => return false,
                [1, rest @ ..] => rest,
                [LOOSE | STRICT, ..] | [_] | [_, 0 | 1, ..] => return true,
                [_, len, ..] => match options.get(usize::from(*len)..) {
                    Some(rest) => rest,
                    None => return true,
                },
            };
        }
    }

    /// Views the transport header.
    ///
    /// # Errors
    /// The reason why it cannot be trusted: it is cut off, its lengths lie, or the packet is a
    /// fragment that hides it (threat PF-04).
    pub fn transport(&self) -> Result<Transport<'a>, Malformed> {
        let payload = self.payload();
        ip::fragment_rule(&self.layout, payload.len())?;
        if self.layout.fragment == Fragment::Later {
            return Ok(Transport::Other);
        }
        let cut = self.is_cut();
        Ok(match (self.layout.protocol, self.version()) {
            (protocol::TCP, _) => Transport::Tcp(Tcp::view(payload)?),
            (protocol::UDP, _) => Transport::Udp(Udp::view(payload, cut)?),
            (protocol::ICMP, 4) => Transport::Icmp(Icmp::view(payload)?),
            (protocol::ICMPV6, 6) => Transport::Icmp6(Icmp6::view(payload)?),
            _ => Transport::Other,
        })
    }

    /// Whether all checksums of the packet hold: the IPv4 header's, and TCP's, UDP's, ICMP's or
    /// ICMPv6's. A UDP checksum of zero holds over IPv4 only. Protocols without a checksum that
    /// is known here hold; so do fragments, whose checksum covers more than they carry, and
    /// packets with a routing header, whose checksum counts an address that may be elsewhere.
    #[must_use]
    pub fn checksums_hold(&self) -> bool {
        if self.version() == 4 && !Sum::of(&self.bytes[..self.layout.header_len]).is_valid() {
            return false;
        }
        if self.is_cut() || self.is_routed() {
            return true;
        }
        let payload = self.payload();
        match (self.transport(), self.version()) {
            (Err(_), _) => false,
            (Ok(Transport::Udp(udp)), 4) if udp.checksum() == 0 => true,
            (Ok(Transport::Udp(udp)), _) => {
                udp.checksum() != 0 && self.upper_sum(&payload[..udp.len()]).is_valid()
            }
            (Ok(Transport::Tcp(_) | Transport::Icmp6(_)), _) => self.upper_sum(payload).is_valid(),
            (Ok(Transport::Icmp(_)), _) => Sum::of(payload).is_valid(),
            (Ok(Transport::Other), _) => true,
        }
    }

    /// Whether a routing header was walked (RFC 8200 §8.1: it may change the pseudo header).
    #[must_use]
    pub const fn is_routed(&self) -> bool {
        self.layout.routed
    }

    /// Whether a header was walked that signs or sums the addresses, as the authentication header
    /// does (RFC 4302): they cannot be changed on the way.
    #[must_use]
    pub const fn is_bound(&self) -> bool {
        self.layout.bound
    }

    fn upper_sum(&self, upper: &[u8]) -> Sum {
        let len = upper.len() as u32;
        checksum::pseudo(self.source(), self.destination(), self.layout.protocol, len)
            .plus(Sum::of(upper))
    }

    /// Whether bytes of the transport are elsewhere: in later fragments, or not quoted.
    fn is_cut(&self) -> bool {
        self.layout.fragment != Fragment::Whole || self.bytes.len() < self.layout.total_len
    }
}

fn address(bytes: &[u8], at_v4: usize, at_v6: usize) -> Result<IpAddr, Malformed> {
    match bytes.first().ok_or(Malformed::Truncated)? >> 4 {
        4 if bytes.len() >= ip::V4_HEADER_LEN => {
            let raw: &[u8; 4] = bytes[at_v4..].first_chunk().ok_or(Malformed::Truncated)?;
            Ok(Ipv4Addr::from_octets(*raw).into())
        }
        6 if bytes.len() >= ip::V6_HEADER_LEN => {
            let raw: &[u8; 16] = bytes[at_v6..].first_chunk().ok_or(Malformed::Truncated)?;
            Ok(Ipv6Addr::from_octets(*raw).into())
        }
        4 | 6 => Err(Malformed::Truncated),
        _ => Err(Malformed::Version),
    }
}

#[cfg(test)]
mod tests;
