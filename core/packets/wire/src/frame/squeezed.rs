//! One packet or frame that was made shorter.

use super::{FIRST_BYTE_MIN, KIND_BUNDLE, KIND_CHUNK, KIND_ORDERED, KIND_SQUEEZED, u16_at};
use crate::Malformed;

/// A block of LZ4 in place of what it holds: one bare packet, [`Chunk`](super::Chunk),
/// [`Ordered`](super::Ordered) or [`Bundle`](super::Bundle). A block stands for itself: nothing of
/// an earlier one is needed to open it, and so nothing of one can be told from another's length
/// (threat BC-02).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Squeezed<'a> {
    /// Bytes of what it holds, at most [`Squeezed::OPENED_LEN_MAX`] (threat BC-01).
    pub opened_len: u16,
    /// The block, without padding.
    pub block: &'a [u8],
}

impl<'a> Squeezed<'a> {
    /// Bytes in front of the block.
    pub const FIXED_LEN: usize = 4;
    /// The most that a block may hold, bytes: a whole packet of Ethernet.
    pub const OPENED_LEN_MAX: usize = 1_500;
    /// The frame's length is a multiple of this, bytes.
    pub const BUCKET_LEN: usize = 32;

    #[inline]
    pub(super) fn parse(plain: &'a [u8]) -> Result<Self, Malformed> {
        let (fixed, rest) = plain.split_at_checked(Self::FIXED_LEN).ok_or(Malformed::Truncated)?;
        let len = rest.len().checked_sub(usize::from(fixed[1])).ok_or(Malformed::TotalLength)?;
        let opened_len = u16_at(fixed, 2);
        let is_possible = (1..=Self::OPENED_LEN_MAX).contains(&usize::from(opened_len));
        if !is_possible || len == 0 {
            return Err(Malformed::TotalLength);
        }
        Ok(Self { opened_len, block: &rest[..len] })
    }

    /// Bytes of a frame with a block of `len`, its padding included.
    #[must_use]
    pub const fn len_of(len: usize) -> usize {
        (Self::FIXED_LEN + len).next_multiple_of(Self::BUCKET_LEN)
    }

    /// Writes what stands around a block of `len` bytes that lies in `out` behind
    /// [`Squeezed::FIXED_LEN`]; returns the frame's length.
    ///
    /// # Panics
    /// When `out` is shorter than [`Squeezed::len_of`] says.
    pub fn write_around(len: usize, opened_len: usize, out: &mut [u8]) -> usize {
        let total = Self::len_of(len);
        let padding = &mut out[Self::FIXED_LEN + len..total];
        padding.fill(0);
        let [low, high] = (opened_len as u16).to_le_bytes();
        let fixed = [KIND_SQUEEZED, padding.len() as u8, low, high];
        out[..Self::FIXED_LEN].copy_from_slice(&fixed);
        total
    }

    /// Whether such a plaintext may have been squeezed; anything else in a block is refused, and
    /// so is a block in a block.
    #[must_use]
    pub fn may_hold(opened: &[u8]) -> bool {
        const FRAMES: [u8; 3] = [KIND_CHUNK, KIND_ORDERED, KIND_BUNDLE];
        opened.first().is_some_and(|first| *first < FIRST_BYTE_MIN || FRAMES.contains(first))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, parse};
    use super::*;

    #[test]
    fn a_squeezed_frame_is_what_the_page_says() {
        let mut out = [0xee; 130];
        out[4..7].copy_from_slice(&[7, 8, 9]);
        assert_eq!(Squeezed::write_around(3, 0x0102, &mut out), 32);
        assert_eq!(out[..8], [0x8c, 25, 2, 1, 7, 8, 9, 0]);
        assert!(out[8..32].iter().all(|&byte| byte == 0) && out[32] == 0xee);
        let squeezed = Squeezed { opened_len: 0x0102, block: &[7, 8, 9] };
        assert_eq!(parse(&out[..32]), Ok(Frame::Squeezed(squeezed)));
        assert_eq!([28, 29, 60].map(Squeezed::len_of), [32, 64, 64]);
    }

    /// Threat BC-01: what is declared is judged before anything is opened.
    #[test]
    fn bc_01_lengths_that_no_packet_has_are_refused() {
        let frame = |padding: u8, opened: u16, rest: usize| {
            let [low, high] = opened.to_le_bytes();
            [vec![0x8c, padding, low, high], vec![0; rest]].concat()
        };
        assert!(parse(&frame(0, 1_500, 1)).is_ok() && parse(&frame(9, 1, 10)).is_ok());
        for lying in [frame(0, 1_501, 9), frame(0, u16::MAX, 9), frame(0, 0, 9)] {
            assert_eq!(parse(&lying), Err(Malformed::TotalLength));
        }
        for empty in [frame(0, 9, 0), frame(9, 9, 9), frame(255, 9, 254)] {
            assert_eq!(parse(&empty), Err(Malformed::TotalLength));
        }
        for len in 1..Squeezed::FIXED_LEN {
            assert_eq!(parse(&frame(0, 9, 9)[..len]), Err(Malformed::Truncated));
        }
        let kinds: Vec<u8> = (0..=255).filter(|&kind| Squeezed::may_hold(&[kind])).collect();
        assert!(kinds.iter().filter(|&&kind| kind >= FIRST_BYTE_MIN).eq(&[0x83, 0x87, 0x8b]));
        assert!(!Squeezed::may_hold(&[]));
    }
}
