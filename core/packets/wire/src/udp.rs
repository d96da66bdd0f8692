//! A view of one UDP datagram (RFC 768).

use crate::Malformed;

/// Bytes of a UDP header.
pub const HEADER_LEN: usize = 8;
/// Offset of the checksum in the header.
pub const CHECKSUM_AT: usize = 6;

/// A view of one UDP datagram.
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a> {
    bytes: &'a [u8],
}

impl<'a> Udp<'a> {
    /// Views what follows the IP headers; `cut` allows a length that reaches past it, as in a
    /// first fragment.
    ///
    /// # Errors
    /// [`Malformed::TransportTruncated`] or [`Malformed::UdpLength`].
    pub fn view(bytes: &'a [u8], cut: bool) -> Result<Self, Malformed> {
        if bytes.len() < HEADER_LEN {
            return Err(Malformed::TransportTruncated);
        }
        let len = Self { bytes }.len();
        if len < HEADER_LEN || !cut && len > bytes.len() {
            return Err(Malformed::UdpLength);
        }
        Ok(Self { bytes: &bytes[..len.min(bytes.len())] })
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

    /// The length field: header and payload, bytes; never below [`HEADER_LEN`].
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a datagram always has its header")]
    pub const fn len(self) -> usize {
        u16::from_be_bytes([self.bytes[4], self.bytes[5]]) as usize
    }

    /// The checksum field; zero when the sender computed none.
    #[must_use]
    pub const fn checksum(self) -> u16 {
        u16::from_be_bytes([self.bytes[CHECKSUM_AT], self.bytes[CHECKSUM_AT + 1]])
    }

    /// The bytes behind the header, as far as they are there.
    #[must_use]
    pub fn payload(self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }
}
