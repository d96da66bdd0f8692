//! Frames of repair: what is protected, and what repairs it.

use super::{KIND_PROTECTED, KIND_REPAIR, u16_at, u32_at};
use crate::Malformed;

/// A packet or frame that is a data chunk of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protected<'a> {
    /// Its index in the block.
    pub index: u8,
    /// The block.
    pub block: u32,
    /// The low half of the sender's clock, in microseconds.
    pub sent_us: u32,
    /// What is protected, without padding.
    pub inner: &'a [u8],
}

impl<'a> Protected<'a> {
    /// Bytes in front of what is protected.
    pub const FIXED_LEN: usize = 12;

    #[inline]
    pub(super) fn parse(plain: &'a [u8]) -> Result<Self, Malformed> {
        let (fixed, rest) = plain.split_at_checked(Self::FIXED_LEN).ok_or(Malformed::Truncated)?;
        let len = rest.len().checked_sub(usize::from(fixed[2])).ok_or(Malformed::TotalLength)?;
        Ok(Self {
            index: fixed[1],
            block: u32_at(fixed, 4),
            sent_us: u32_at(fixed, 8),
            inner: &rest[..len],
        })
    }

    /// Writes what stands in front; `pad` zeros follow what is protected.
    ///
    /// # Panics
    /// When `out` is shorter than that.
    #[inline]
    pub fn write_fixed(index: u8, block: u32, sent_us: u32, pad: u8, out: &mut [u8]) {
        let fixed = &mut out[..Self::FIXED_LEN];
        fixed[..4].copy_from_slice(&[KIND_PROTECTED, index, pad, 0]);
        fixed[4..8].copy_from_slice(&block.to_le_bytes());
        fixed[8..].copy_from_slice(&sent_us.to_le_bytes());
    }
}

/// A repair chunk of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair<'a> {
    /// Its index among the repair chunks.
    pub index: u8,
    /// Data chunks of the block.
    pub data: u8,
    /// Repair chunks of the block.
    pub repair: u8,
    /// The block.
    pub block: u32,
    /// The code of the data chunks' lengths.
    pub lengths: [u8; 2],
    /// The low half of the sender's clock, in microseconds.
    pub sent_us: u32,
    /// The code of their bytes, to the end of the plaintext.
    pub bytes: &'a [u8],
}

impl<'a> Repair<'a> {
    /// Bytes in front of the code.
    pub const FIXED_LEN: usize = 14;

    #[inline]
    pub(super) fn parse(plain: &'a [u8]) -> Result<Self, Malformed> {
        let (fixed, bytes) = plain.split_at_checked(Self::FIXED_LEN).ok_or(Malformed::Truncated)?;
        Ok(Self {
            index: fixed[1],
            data: fixed[2],
            repair: fixed[3],
            block: u32_at(fixed, 4),
            lengths: u16_at(fixed, 8).to_le_bytes(),
            sent_us: u32_at(fixed, 10),
            bytes,
        })
    }

    /// Writes the frame to the start of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`Repair::FIXED_LEN`] and the bytes.
    #[inline]
    pub fn write(&self, out: &mut [u8]) {
        let (fixed, rest) = out.split_at_mut(Self::FIXED_LEN);
        fixed[..4].copy_from_slice(&[KIND_REPAIR, self.index, self.data, self.repair]);
        fixed[4..8].copy_from_slice(&self.block.to_le_bytes());
        fixed[8..10].copy_from_slice(&self.lengths);
        fixed[10..].copy_from_slice(&self.sent_us.to_le_bytes());
        rest[..self.bytes.len()].copy_from_slice(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, parse};
    use super::*;

    #[test]
    fn protected_ones_and_repair_chunks_are_what_the_page_says() {
        let mut out = [0; 15];
        Protected::write_fixed(5, 0x0102_0304, 0x0506_0708, 2, &mut out);
        out[12] = 0x45;
        assert_eq!(out, [0x84, 5, 2, 0, 4, 3, 2, 1, 8, 7, 6, 5, 0x45, 0, 0]);
        let protected =
            Protected { index: 5, block: 0x0102_0304, sent_us: 0x0506_0708, inner: &[0x45] };
        assert_eq!(parse(&out), Ok(Frame::Protected(protected)));
        let lacks_its_padding = Protected::FIXED_LEN + 2;
        assert!((1..lacks_its_padding).all(|len| parse(&out[..len]).is_err()));
        out[2] = 4;
        assert_eq!(parse(&out), Err(Malformed::TotalLength), "more padding than there is");
        let repair = Repair {
            index: 1,
            data: 32,
            repair: 4,
            block: 0x0102_0304,
            lengths: [9, 8],
            sent_us: 0x0506_0708,
            bytes: &[7, 7],
        };
        let mut out = [0xee; 16];
        repair.write(&mut out);
        assert_eq!(out, [0x85, 1, 32, 4, 4, 3, 2, 1, 9, 8, 8, 7, 6, 5, 7, 7]);
        assert_eq!(parse(&out), Ok(Frame::Repair(repair)));
        assert!((1..14).all(|len| parse(&out[..len]).is_err()));
    }
}
