//! IPv4 and IPv6 headers: field offsets, and the bounded walk over IPv6 extension headers.
//!
//! The walk stops at the first header that is not an extension header: an unknown next header is
//! the packet's own protocol, never guessed to be TCP or UDP behind it (threat PF-05).
//! Source: RFC 791, RFC 8200, RFC 4302 (authentication header), RFC 6275, 7401, 5533.

use crate::Malformed;

/// IP protocol numbers that this crate knows (IANA).
pub mod protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// IPv4 in IP.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// DCCP.
    pub const DCCP: u8 = 33;
    /// IPv6 in IP.
    pub const IPV6: u8 = 41;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// Generic routing encapsulation.
    pub const GRE: u8 = 47;
    /// Encapsulating security payload: opaque from here on.
    pub const ESP: u8 = 50;
    /// Authentication header.
    pub const AUTHENTICATION: u8 = 51;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// Nothing follows (IPv6).
    pub const NO_NEXT_HEADER: u8 = 59;
    /// IPv6 destination options.
    pub const DESTINATION_OPTIONS: u8 = 60;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// UDP-Lite.
    pub const UDP_LITE: u8 = 136;
    /// Mobility header.
    pub const MOBILITY: u8 = 135;
    /// Host identity protocol.
    pub const HOST_IDENTITY: u8 = 139;
    /// Shim6.
    pub const SHIM6: u8 = 140;
}

/// Bytes of an IPv4 header without options.
pub const V4_HEADER_LEN: usize = 20;
/// Bytes of the fixed IPv6 header.
pub const V6_HEADER_LEN: usize = 40;
/// IPv6 extension headers that are walked before a packet is refused (threat PF-05).
pub const EXTENSION_HEADERS_MAX: usize = 8;

/// Bytes of payload below which a first fragment is refused by
/// [`Packet::transport`](crate::packet::Packet::transport), and offset below which a later one is:
/// 60 bytes of TCP header with all options, and some room (PF-04).
pub const FRAGMENT_MIN: usize = 80;

/// Which part of a datagram a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// Not a fragment, or an atomic one (RFC 6946).
    Whole,
    /// Offset zero, more to come: the transport header is here.
    First,
    /// No transport header is here.
    Later,
}

/// Largest length an IP packet can claim, bytes.
pub const PACKET_LEN_MAX: usize = 65_535;

/// What the headers before the transport say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) total_len: usize,
    pub(crate) header_len: usize,
    pub(crate) protocol: u8,
    pub(crate) fragment: Fragment,
    pub(crate) fragment_offset: usize,
    /// The identification that fragments of one datagram share.
    pub(crate) fragment_id: u32,
    /// A routing header was walked: the pseudo header may have another destination.
    pub(crate) routed: bool,
    /// A header was walked that signs or sums the addresses.
    pub(crate) bound: bool,
}

/// Total length by the length field. `whole` demands that all of it is there.
pub(crate) fn total_len(bytes: &[u8], whole: bool) -> Result<usize, Malformed> {
    let total = match bytes.first().ok_or(Malformed::Truncated)? >> 4 {
        4 => {
            let raw: &[u8; V4_HEADER_LEN] = bytes.first_chunk().ok_or(Malformed::Truncated)?;
            let header = usize::from(raw[0] & 15) * 4;
            let total = usize::from(u16::from_be_bytes([raw[2], raw[3]]));
            if header < V4_HEADER_LEN {
                return Err(Malformed::HeaderLength);
            }
            if total < header {
                return Err(Malformed::TotalLength);
            }
            if header > bytes.len() {
                return Err(Malformed::HeaderLength);
            }
            total
        }
        6 => {
            let raw: &[u8; V6_HEADER_LEN] = bytes.first_chunk().ok_or(Malformed::Truncated)?;
            V6_HEADER_LEN + usize::from(u16::from_be_bytes([raw[4], raw[5]]))
        }
        _ => return Err(Malformed::Version),
    };
    if whole && total > bytes.len() {
        return Err(Malformed::TotalLength);
    }
    Ok(total)
}

/// Walks all headers before the transport. `bytes` is trimmed to the total length.
pub(crate) fn layout(bytes: &[u8], total_len: usize) -> Result<Layout, Malformed> {
    if bytes[0] >> 4 == 4 { Ok(layout_v4(bytes, total_len)) } else { layout_v6(bytes, total_len) }
}

fn layout_v4(bytes: &[u8], total_len: usize) -> Layout {
    let word = u16::from_be_bytes([bytes[6], bytes[7]]);
    let offset = usize::from(word & 0x1fff) * 8;
    Layout {
        total_len,
        header_len: usize::from(bytes[0] & 15) * 4,
        protocol: bytes[9],
        fragment: fragment_kind(offset, word & 0x2000 != 0),
        fragment_offset: offset,
        fragment_id: u32::from(u16::from_be_bytes([bytes[4], bytes[5]])),
        routed: false,
        bound: binds(bytes[9]),
    }
}

fn layout_v6(bytes: &[u8], total_len: usize) -> Result<Layout, Malformed> {
    let mut layout = Layout {
        total_len,
        header_len: V6_HEADER_LEN,
        protocol: bytes[6],
        fragment: Fragment::Whole,
        fragment_offset: 0,
        fragment_id: 0,
        routed: false,
        bound: false,
    };
    for walked in 0..EXTENSION_HEADERS_MAX {
        let Some(extension) = Extension::of(layout.protocol) else {
            return Ok(layout);
        };
        if extension == Extension::HopByHop && walked != 0 {
            return Err(Malformed::ExtensionOrder);
        }
        let rest = bytes.get(layout.header_len..).ok_or(Malformed::ExtensionLength)?;
        let head: &[u8; 8] = rest.first_chunk().ok_or(Malformed::ExtensionLength)?;
        let len = extension.len(head[1]);
        if len > rest.len() {
            return Err(Malformed::ExtensionLength);
        }
        layout.header_len += len;
        layout.routed |= layout.protocol == protocol::ROUTING;
        layout.bound |= binds(layout.protocol);
        layout.protocol = head[0];
        if extension == Extension::Fragment {
            let word = u16::from_be_bytes([head[2], head[3]]);
            layout.fragment_offset = usize::from(word & 0xfff8);
            layout.fragment_id = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
            let kind = fragment_kind(layout.fragment_offset, word & 1 != 0);
            if kind == Fragment::Later {
                layout.fragment = kind;
                return Ok(layout);
            }
            if kind == Fragment::First {
                layout.fragment = kind;
            }
        }
    }
    match Extension::of(layout.protocol) {
        None => Ok(layout),
        Some(_) => Err(Malformed::ExtensionCount),
    }
}

/// Extension headers with a signature or a sum over the addresses: RFC 4302, 6275, 7401, 5533.
const fn binds(next_header: u8) -> bool {
    matches!(
        next_header,
        protocol::AUTHENTICATION | protocol::MOBILITY | protocol::HOST_IDENTITY | protocol::SHIM6
    )
}

/// The rule of [`FRAGMENT_MIN`] for the bytes behind the headers.
pub(crate) fn fragment_rule(layout: &Layout, payload_len: usize) -> Result<(), Malformed> {
    match layout.fragment {
        Fragment::First if payload_len < FRAGMENT_MIN => Err(Malformed::FragmentShort),
        Fragment::Later if layout.fragment_offset < FRAGMENT_MIN => Err(Malformed::FragmentOverlap),
        Fragment::First | Fragment::Later | Fragment::Whole => Ok(()),
    }
}

fn fragment_kind(offset: usize, more: bool) -> Fragment {
    match (offset, more) {
        (0, false) => Fragment::Whole,
        (0, true) => Fragment::First,
        _ => Fragment::Later,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Extension {
    HopByHop,
    Fragment,
    Authentication,
    Other,
}

impl Extension {
    const fn of(next_header: u8) -> Option<Self> {
        match next_header {
            protocol::HOP_BY_HOP => Some(Self::HopByHop),
            protocol::FRAGMENT => Some(Self::Fragment),
            protocol::AUTHENTICATION => Some(Self::Authentication),
            protocol::ROUTING
            | protocol::DESTINATION_OPTIONS
            | protocol::MOBILITY
            | protocol::HOST_IDENTITY
            | protocol::SHIM6 => Some(Self::Other),
            _ => None,
        }
    }

    /// Bytes of the header by its length octet.
    const fn len(self, octet: u8) -> usize {
        match self {
            Self::Fragment => 8,
            Self::Authentication => (octet as usize + 2) * 4,
            Self::HopByHop | Self::Other => (octet as usize + 1) * 8,
        }
    }
}
