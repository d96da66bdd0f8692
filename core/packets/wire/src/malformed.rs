//! The closed list of reasons why bytes are not what they claim to be.
//!
//! Every parser of this crate returns a view or one of these. A reason is `Copy`, carries no
//! data of the packet, and has a stable label under which drops are counted.

use core::fmt;

/// Why some bytes could not be viewed as what they claim to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Malformed {
    /// Fewer bytes than the fixed part of the header.
    Truncated,
    /// The first nibble is neither 4 nor 6.
    Version,
    /// The IPv4 header length is below 20 bytes or runs past the packet.
    HeaderLength,
    /// The IP length field is below the header or above the bytes there are.
    TotalLength,
    /// An IPv6 extension header runs past the packet.
    ExtensionLength,
    /// A hop-by-hop header that is not the first extension header (RFC 8200 §4.1).
    ExtensionOrder,
    /// More IPv6 extension headers than [`crate::packet::EXTENSION_HEADERS_MAX`].
    ExtensionCount,
    /// A first fragment too short to hold the whole transport header (RFC 1858, threat PF-04).
    FragmentShort,
    /// A later fragment that reaches into the first one's transport header (RFC 3128).
    FragmentOverlap,
    /// The packet ends inside its transport header.
    TransportTruncated,
    /// The TCP data offset is below 20 bytes or runs past the packet.
    TcpHeaderLength,
    /// The UDP length is below 8 bytes or above the bytes there are.
    UdpLength,
    /// A virtio header shorter than [`crate::virtio::LEN`].
    VirtioTruncated,
    /// A segmentation type that was never negotiated, such as the old UFO.
    GsoType,
    /// A segment size of zero.
    GsoSize,
    /// The virtio header claims more header bytes than the packet has.
    GsoHeader,
    /// The segmentation type does not fit the packet's IP version or protocol.
    GsoProtocol,
    /// Segmentation was asked for a fragment.
    GsoFragment,
    /// More segments than [`crate::superpacket::SEGMENTS_MAX`].
    GsoSegments,
    /// A superpacket beyond 65,535 bytes (RFC 2675, BIG TCP), which is never negotiated.
    Jumbogram,
    /// The checksum start or offset does not lie where a checksum can be.
    ChecksumStart,
    /// Not one of the four WireGuard message types, or its reserved bytes are not zero.
    MessageType,
    /// A WireGuard message of the wrong length for its type.
    MessageLength,
}

impl Malformed {
    /// Every reason once, in the order of its discriminant: a counter is an array of this length.
    pub const ALL: [Self; 23] = [
        Self::Truncated,
        Self::Version,
        Self::HeaderLength,
        Self::TotalLength,
        Self::ExtensionLength,
        Self::ExtensionOrder,
        Self::ExtensionCount,
        Self::FragmentShort,
        Self::FragmentOverlap,
        Self::TransportTruncated,
        Self::TcpHeaderLength,
        Self::UdpLength,
        Self::VirtioTruncated,
        Self::GsoType,
        Self::GsoSize,
        Self::GsoHeader,
        Self::GsoProtocol,
        Self::GsoFragment,
        Self::GsoSegments,
        Self::Jumbogram,
        Self::ChecksumStart,
        Self::MessageType,
        Self::MessageLength,
    ];

    /// Position in [`Self::ALL`], for arrays of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// A stable name for counters and JSON; never changed once published.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Truncated => "ip_truncated",
            Self::Version => "ip_version",
            Self::HeaderLength => "ip_header_length",
            Self::TotalLength => "ip_total_length",
            Self::ExtensionLength => "ip_extension_length",
            Self::ExtensionOrder => "ip_extension_order",
            Self::ExtensionCount => "ip_extension_count",
            Self::FragmentShort => "fragment_short",
            Self::FragmentOverlap => "fragment_overlap",
            Self::TransportTruncated => "transport_truncated",
            Self::TcpHeaderLength => "tcp_header_length",
            Self::UdpLength => "udp_length",
            Self::VirtioTruncated => "virtio_truncated",
            Self::GsoType => "gso_type",
            Self::GsoSize => "gso_size",
            Self::GsoHeader => "gso_header",
            Self::GsoProtocol => "gso_protocol",
            Self::GsoFragment => "gso_fragment",
            Self::GsoSegments => "gso_segments",
            Self::Jumbogram => "jumbogram",
            Self::ChecksumStart => "checksum_start",
            Self::MessageType => "message_type",
            Self::MessageLength => "message_length",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the packet ends inside its IP header",
            Self::Version => "the first nibble is neither 4 nor 6",
            Self::HeaderLength => "the IPv4 header length does not fit the packet",
            Self::TotalLength => "the IP length field does not fit the bytes received",
            Self::ExtensionLength => "an IPv6 extension header runs past the packet",
            Self::ExtensionOrder => "a hop-by-hop header is not the first extension header",
            Self::ExtensionCount => "too many IPv6 extension headers",
            Self::FragmentShort => "a first fragment is too short for its transport header",
            Self::FragmentOverlap => "a later fragment overlaps the transport header",
            Self::TransportTruncated => "the packet ends inside its transport header",
            Self::TcpHeaderLength => "the TCP data offset does not fit the packet",
            Self::UdpLength => "the UDP length does not fit the packet",
            Self::VirtioTruncated => "fewer bytes than a virtio header",
            Self::GsoType => "a segmentation type that was never negotiated",
            Self::GsoSize => "a segment size of zero",
            Self::GsoHeader => "the virtio header claims more header than there are bytes",
            Self::GsoProtocol => "the segmentation type does not fit the packet",
            Self::GsoFragment => "segmentation was asked for a fragment",
            Self::GsoSegments => "too many segments in one superpacket",
            Self::Jumbogram => "a superpacket beyond 65535 bytes",
            Self::ChecksumStart => "the checksum does not lie inside the packet's payload",
            Self::MessageType => "not a WireGuard message type",
            Self::MessageLength => "wrong length for this WireGuard message type",
        })
    }
}

impl core::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_reason_has_its_own_index_label_and_text() {
        let mut labels = BTreeSet::new();
        let mut texts = BTreeSet::new();
        for (position, reason) in Malformed::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), position);
            assert!(labels.insert(reason.label()), "{} is used twice", reason.label());
            assert!(texts.insert(reason.to_string()), "{reason} is used twice");
        }
    }
}
