//! The first frame of each side on a session.

use super::{KIND_HELLO, u16_at, u32_at};
use crate::Malformed;

/// Who is there, and what it can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The sender has the peer's Hello of this session: nothing needs to be repeated.
    pub heard: bool,
    /// What the sender understands; see [`Features`].
    pub features: Features,
    /// A second receiver index, for transport packets under the other cipher; 0 = none.
    pub second_index: u32,
    /// The number that the sender's ordered flows begin with; 0 where it does not say.
    pub first_number: u32,
    /// The largest inner packet that the sender takes, in bytes.
    pub mtu: u16,
}

/// A set of abilities; bits that are not named here are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u32);

impl Features {
    /// Superpackets as a head and chunks, protected and repaired, ordered by flow, with reports.
    pub const REPAIR: Self = Self(1);
    /// Probes are answered, and candidates read.
    pub const PATHS: Self = Self(2);
    /// Small packets come in bundles.
    pub const BUNDLES: Self = Self(4);
    /// Compressed packets and frames are read.
    pub const SQUEEZED: Self = Self(8);
    /// What went another way is read of.
    pub const ELSEWHERE: Self = Self(16);
    /// Arrivals of soundings are noted and told.
    pub const SOUNDINGS: Self = Self(32);

    /// All of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are among them.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl Hello {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 16;

    pub(super) fn parse(plain: &[u8]) -> Result<Self, Malformed> {
        let fixed: &[u8; Self::LEN] = plain.first_chunk().ok_or(Malformed::Truncated)?;
        Ok(Self {
            heard: fixed[1] & 1 == 1,
            features: Features(u32_at(fixed, 4)),
            second_index: u32_at(fixed, 8),
            first_number: u32_at(fixed, 12),
            mtu: u16_at(fixed, 2),
        })
    }

    /// The frame's bytes.
    #[must_use]
    pub fn build(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = KIND_HELLO;
        bytes[1] = u8::from(self.heard);
        bytes[2..4].copy_from_slice(&self.mtu.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.features.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.second_index.to_le_bytes());
        bytes[12..].copy_from_slice(&self.first_number.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, parse};
    use super::*;

    #[test]
    fn a_hello_is_what_the_page_says() {
        let hello = Hello {
            heard: true,
            features: Features(0x0102_0304),
            second_index: 0x0a0b_0c0d,
            first_number: 0x0e0f_1011,
            mtu: 1420,
        };
        let bytes =
            [0x81, 1, 0x8c, 0x05, 4, 3, 2, 1, 0x0d, 0x0c, 0x0b, 0x0a, 0x11, 0x10, 0x0f, 0x0e];
        assert_eq!(hello.build(), bytes);
        assert_eq!(parse(&bytes), Ok(Frame::Hello(hello)));
        for len in 1..Hello::LEN {
            assert!(parse(&bytes[..len]).is_err(), "{len}");
        }
        assert!(Features(7).has(Features::REPAIR) && !Features(6).has(Features::REPAIR));
    }
}
