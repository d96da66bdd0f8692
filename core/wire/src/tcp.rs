//! A view of one TCP segment (RFC 9293 §3.1).

use crate::Malformed;

/// Bytes of a TCP header without options.
pub const HEADER_LEN: usize = 20;
/// Offset of the flags octet in the header.
pub const FLAGS_AT: usize = 13;
/// Offset of the checksum in the header.
pub const CHECKSUM_AT: usize = 16;

/// The flags octet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement field counts.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x20);
    /// Congestion echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// Whether any of `other`'s flags is set.
    #[must_use]
    pub const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set but for `other`'s flags.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A view of one TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    bytes: &'a [u8],
}

impl<'a> Tcp<'a> {
    /// Views what follows the IP headers.
    ///
    /// # Errors
    /// [`Malformed::TransportTruncated`] or [`Malformed::TcpHeaderLength`].
    pub fn view(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() < HEADER_LEN {
            return Err(Malformed::TransportTruncated);
        }
        let view = Self { bytes };
        if view.header_len() < HEADER_LEN || view.header_len() > bytes.len() {
            return Err(Malformed::TcpHeaderLength);
        }
        Ok(view)
    }

    /// Source port.
    #[must_use]
    pub const fn source_port(self) -> u16 {
        u16::from_be_bytes([self.bytes[0], self.bytes[1]])
    }

    /// Destination port.
    #[must_use]
    pub const fn destination_port(self) -> u16 {
        u16::from_be_bytes([self.bytes[2], self.bytes[3]])
    }

    /// Sequence number of the first payload byte (of SYN, where it is set).
    #[must_use]
    pub const fn sequence(self) -> u32 {
        u32::from_be_bytes([self.bytes[4], self.bytes[5], self.bytes[6], self.bytes[7]])
    }

    /// Acknowledgement number.
    #[must_use]
    pub const fn acknowledgement(self) -> u32 {
        u32::from_be_bytes([self.bytes[8], self.bytes[9], self.bytes[10], self.bytes[11]])
    }

    /// Bytes of the header with options.
    #[must_use]
    pub const fn header_len(self) -> usize {
        (self.bytes[12] >> 4) as usize * 4
    }

    /// The flags.
    #[must_use]
    pub const fn flags(self) -> Flags {
        Flags(self.bytes[FLAGS_AT])
    }

    /// Receive window, unscaled.
    #[must_use]
    pub const fn window(self) -> u16 {
        u16::from_be_bytes([self.bytes[14], self.bytes[15]])
    }

    /// The checksum field.
    #[must_use]
    pub const fn checksum(self) -> u16 {
        u16::from_be_bytes([self.bytes[CHECKSUM_AT], self.bytes[CHECKSUM_AT + 1]])
    }

    /// The urgent pointer.
    #[must_use]
    pub const fn urgent(self) -> u16 {
        u16::from_be_bytes([self.bytes[18], self.bytes[19]])
    }

    /// Option bytes, not parsed.
    #[must_use]
    pub fn options(self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..self.header_len()]
    }

    /// The bytes behind the header.
    #[must_use]
    pub fn payload(self) -> &'a [u8] {
        &self.bytes[self.header_len()..]
    }
}
