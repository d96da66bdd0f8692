//! Frames: what two Warren nodes say to each other inside a session, beside packets.
//!
//! The first byte of a plaintext tells: 0x4. and 0x6. begin an IP packet, 0x80 and above a frame,
//! whose kind is in the low seven bits. Frames are spoken only with a peer that has shown to know
//! them (see [`CAPABILITY`]). Fields are little-endian; docs/wire.md has every bit.

use crate::Malformed;

/// What a node that knows frames puts into the low 24 bits of the nanoseconds of its initiation's
/// timestamp, where everybody else has zeros: encrypted, authenticated, and never looked at.
pub const CAPABILITY: u32 = 0x57_6e_01;

/// From this first byte on a plaintext is a frame.
pub const FIRST_BYTE_MIN: u8 = 0x80;
const KIND_HELLO: u8 = FIRST_BYTE_MIN | 1;

/// A frame, as parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Who is there, and what it can do.
    Hello(Hello),
    /// Of a kind that this version does not know.
    Unknown(u8),
}

/// The first frame of each side on a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// What the sender understands; see [`Features`].
    pub features: Features,
    /// A second receiver index, for transport packets under the other cipher; 0 = none.
    pub second_index: u32,
    /// The largest inner packet that the sender takes, in bytes.
    pub mtu: u16,
}

/// A set of abilities; bits that are not named here are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u32);

/// Whether a plaintext is a frame.
#[inline]
#[must_use]
pub fn is_frame(plain: &[u8]) -> bool {
    plain.first().is_some_and(|&first| first >= FIRST_BYTE_MIN)
}

/// Reads a frame; what follows it is padding, or was added by a later version.
///
/// # Errors
/// Too short for its kind, or not a frame.
pub fn parse(plain: &[u8]) -> Result<Frame, Malformed> {
    match plain.first() {
        Some(&KIND_HELLO) => Hello::parse(plain).map(Frame::Hello),
        Some(&first) if first >= FIRST_BYTE_MIN => Ok(Frame::Unknown(first - FIRST_BYTE_MIN)),
        _ => Err(Malformed::Version),
    }
}

impl Hello {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 16;

    fn parse(plain: &[u8]) -> Result<Self, Malformed> {
        let fixed: &[u8; Self::LEN] = plain.first_chunk().ok_or(Malformed::Truncated)?;
        let word = |at: usize| {
            u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        Ok(Self {
            features: Features(word(4)),
            second_index: word(8),
            mtu: u16::from_le_bytes([fixed[2], fixed[3]]),
        })
    }

    /// The frame's bytes.
    #[must_use]
    pub fn build(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = KIND_HELLO;
        bytes[2..4].copy_from_slice(&self.mtu.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.features.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.second_index.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_hello_is_what_the_page_says() {
        let hello = Hello { features: Features(0x0102_0304), second_index: 0x0a0b_0c0d, mtu: 1420 };
        let bytes = [0x81, 0, 0x8c, 0x05, 4, 3, 2, 1, 0x0d, 0x0c, 0x0b, 0x0a, 0, 0, 0, 0];
        assert_eq!(hello.build(), bytes);
        assert_eq!(parse(&bytes), Ok(Frame::Hello(hello)));
        for len in 1..Hello::LEN {
            assert!(parse(&bytes[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn packets_and_keepalives_are_no_frames_and_the_future_is_unknown() {
        for plain in [&[][..], &[0x45, 0], &[0x60], &[0, 0, 0]] {
            assert!(!is_frame(plain) && parse(plain).is_err());
        }
        assert_eq!(parse(&[0xff, 1, 2]), Ok(Frame::Unknown(0x7f)));
        let mut longer = Hello::default().build().to_vec();
        longer.extend([1; 48]);
        assert_eq!(parse(&longer), Ok(Frame::Hello(Hello::default())), "a later version's");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Frame::Hello(hello)) = parse(&bytes) {
                prop_assert_eq!(&hello.build()[2..12], &bytes[2..12]);
            }
        }
    }
}
