//! A superpacket in pieces, and a lone packet with its place in its flow.

use super::{KIND_CHUNK, KIND_HEAD, KIND_ORDERED, u16_at, u32_at};
use crate::Malformed;

/// The headers of a unit: of a superpacket, or of a packet too large to be protected whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// The unit's number; chunks carry it, too.
    pub unit: u16,
    /// The flow's tag; means nothing where `ordered` is false.
    pub tag: u8,
    /// Whether its flow suffers from disorder: then chunk `i` is number `number + i` of its tag.
    pub ordered: bool,
    /// virtio's segmentation type, `GSO_NONE` for a packet that is not to be cut.
    pub gso_type: u8,
    /// Payload bytes of each chunk but the last.
    pub segment_size: u16,
    /// The first chunk's number in its flow.
    pub number: u32,
    /// The low half of the sender's clock, in microseconds.
    pub sent_us: u32,
    /// Payload bytes of all chunks.
    pub payload_len: u16,
    /// All headers of the packet, as the sender's kernel wrote them.
    pub header: &'a [u8],
}

impl<'a> Head<'a> {
    /// Bytes in front of the headers.
    pub const FIXED_LEN: usize = 20;
    /// Longest headers: IPv6, a few extensions, TCP with all options.
    pub const HEADER_LEN_MAX: usize = 128;

    pub(super) fn parse(plain: &'a [u8]) -> Result<Self, Malformed> {
        let (fixed, _) = plain.split_at_checked(Self::FIXED_LEN).ok_or(Malformed::Truncated)?;
        let header_len = usize::from(fixed[5]);
        if header_len > Self::HEADER_LEN_MAX {
            return Err(Malformed::HeaderLength);
        }
        let header = plain.get(Self::FIXED_LEN..Self::FIXED_LEN + header_len);
        Ok(Self {
            unit: u16_at(fixed, 2),
            tag: fixed[4],
            ordered: fixed[18] & 1 == 1,
            gso_type: fixed[1],
            segment_size: u16_at(fixed, 6),
            number: u32_at(fixed, 8),
            sent_us: u32_at(fixed, 12),
            payload_len: u16_at(fixed, 16),
            header: header.ok_or(Malformed::Truncated)?,
        })
    }

    /// Length on the wire, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        Self::FIXED_LEN + self.header.len()
    }

    /// Whether it has no headers, which no real one has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.header.is_empty()
    }

    /// Writes the frame to the start of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`Head::len`], or the headers exceed their bound.
    pub fn write(&self, out: &mut [u8]) {
        assert!(self.header.len() <= Self::HEADER_LEN_MAX, "{} bytes of headers", self.len());
        let (fixed, rest) = out.split_at_mut(Self::FIXED_LEN);
        fixed.fill(0);
        fixed[0] = KIND_HEAD;
        fixed[1] = self.gso_type;
        fixed[2..4].copy_from_slice(&self.unit.to_le_bytes());
        fixed[4] = self.tag;
        fixed[5] = self.header.len() as u8;
        fixed[6..8].copy_from_slice(&self.segment_size.to_le_bytes());
        fixed[8..12].copy_from_slice(&self.number.to_le_bytes());
        fixed[12..16].copy_from_slice(&self.sent_us.to_le_bytes());
        fixed[16..18].copy_from_slice(&self.payload_len.to_le_bytes());
        fixed[18] = u8::from(self.ordered);
        rest[..self.header.len()].copy_from_slice(self.header);
    }
}

/// One piece of a unit's payload. It reaches to the end of the plaintext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Its unit.
    pub unit: u16,
    /// Which piece.
    pub index: u8,
    /// Its bytes.
    pub payload: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// Bytes in front of the payload.
    pub const FIXED_LEN: usize = 4;

    #[inline]
    pub(super) fn parse(plain: &'a [u8]) -> Result<Self, Malformed> {
        let (fixed, payload) =
            plain.split_at_checked(Self::FIXED_LEN).ok_or(Malformed::Truncated)?;
        Ok(Self { unit: u16_at(fixed, 2), index: fixed[1], payload })
    }

    /// Writes what stands in front of the payload.
    ///
    /// # Panics
    /// When `out` is shorter than that.
    #[inline]
    pub fn write_fixed(unit: u16, index: u8, out: &mut [u8]) {
        let [low, high] = unit.to_le_bytes();
        out[..Self::FIXED_LEN].copy_from_slice(&[KIND_CHUNK, index, low, high]);
    }
}

/// A lone packet of a flow that suffers from disorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ordered<'a> {
    /// The flow's tag.
    pub tag: u8,
    /// Its number in its flow.
    pub number: u32,
    /// The packet, and padding behind it.
    pub packet: &'a [u8],
}

impl<'a> Ordered<'a> {
    /// Bytes in front of the packet.
    pub const FIXED_LEN: usize = 6;

    pub(super) fn parse(plain: &'a [u8]) -> Result<Self, Malformed> {
        let (fixed, packet) =
            plain.split_at_checked(Self::FIXED_LEN).ok_or(Malformed::Truncated)?;
        Ok(Self { tag: fixed[1], number: u32_at(fixed, 2), packet })
    }

    /// Writes what stands in front of the packet.
    ///
    /// # Panics
    /// When `out` is shorter than that.
    pub fn write_fixed(tag: u8, number: u32, out: &mut [u8]) {
        let fixed = &mut out[..Self::FIXED_LEN];
        fixed[0] = KIND_ORDERED;
        fixed[1] = tag;
        fixed[2..].copy_from_slice(&number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, parse};
    use super::*;

    #[test]
    fn a_head_is_what_the_page_says() {
        let head = Head {
            unit: 0x0102,
            tag: 3,
            ordered: true,
            gso_type: 0x81,
            segment_size: 0x0405,
            number: 0x0607_0809,
            sent_us: 0x0a0b_0c0d,
            payload_len: 0x0e0f,
            header: &[0x45, 0xaa],
        };
        let bytes = [
            0x82, 0x81, 2, 1, 3, 2, 5, 4, 9, 8, 7, 6, 0x0d, 0x0c, 0x0b, 0x0a, 0x0f, 0x0e, 1, 0,
            0x45, 0xaa,
        ];
        let mut out = [0xee; 22];
        head.write(&mut out);
        assert_eq!(out, bytes);
        assert_eq!(parse(&bytes), Ok(Frame::Head(head)));
        for len in 1..bytes.len() {
            assert!(parse(&bytes[..len]).is_err(), "{len}");
        }
        let mut lying = bytes;
        lying[5] = 129;
        assert_eq!(parse(&lying), Err(Malformed::HeaderLength));
    }

    #[test]
    fn chunks_and_ordered_packets_are_what_the_page_says() {
        let mut out = [0xee; 6];
        Chunk::write_fixed(0x0102, 7, &mut out);
        assert_eq!(out, [0x83, 7, 2, 1, 0xee, 0xee]);
        let chunk = Chunk { unit: 0x0102, index: 7, payload: &[0xee, 0xee] };
        assert_eq!(parse(&out), Ok(Frame::Chunk(chunk)));
        assert!((1..Chunk::FIXED_LEN).all(|len| parse(&out[..len]).is_err()));
        let mut out = [0xee; 7];
        Ordered::write_fixed(9, 0x0102_0304, &mut out);
        assert_eq!(out, [0x87, 9, 4, 3, 2, 1, 0xee]);
        let ordered = Ordered { tag: 9, number: 0x0102_0304, packet: &[0xee] };
        assert_eq!(parse(&out), Ok(Frame::Ordered(ordered)));
        assert!((1..Ordered::FIXED_LEN).all(|len| parse(&out[..len]).is_err()));
    }
}
