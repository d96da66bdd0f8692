//! Small packets that waited together, in one frame.

use super::{FIRST_BYTE_MIN, KIND_BUNDLE, KIND_ORDERED, u16_at};
use crate::Malformed;

/// Some packets, bare or [`Ordered`](super::Ordered), each behind its length. A bundle holds no
/// other frame, and so no bundle (threat BC-03).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bundle<'a> {
    count: u8,
    /// Everything behind the fixed part.
    bytes: &'a [u8],
}

impl<'a> Bundle<'a> {
    /// Bytes in front of the first entry.
    pub const FIXED_LEN: usize = 2;
    /// Bytes in front of each entry's own.
    pub const ENTRY_LEN: usize = 2;
    /// Entries of one bundle.
    pub const COUNT_MAX: usize = 64;
    /// The shortest entry: a packet has as many bytes of headers at least.
    pub const LEN_MIN: usize = 20;

    pub(super) fn parse(plain: &'a [u8]) -> Result<Self, Malformed> {
        let (fixed, bytes) = plain.split_at_checked(Self::FIXED_LEN).ok_or(Malformed::Truncated)?;
        let count = fixed[1];
        if !(1..=Self::COUNT_MAX).contains(&usize::from(count)) {
            return Err(Malformed::TotalLength);
        }
        let mut at = 0;
        for _ in 0..count {
            let begin = at + Self::ENTRY_LEN;
            if bytes.len() < begin {
                return Err(Malformed::Truncated);
            }
            at = begin + usize::from(u16_at(bytes, at));
            let entry = bytes.get(begin..at).ok_or(Malformed::Truncated)?;
            let is_known = entry[..]
                .first()
                .is_some_and(|&first| first < FIRST_BYTE_MIN || first == KIND_ORDERED);
            if entry.len() < Self::LEN_MIN || !is_known {
                return Err(Malformed::TotalLength);
            }
        }
        Ok(Self { count, bytes })
    }

    /// Begins a bundle of `count` at the start of `out`; its entries follow.
    ///
    /// # Panics
    /// When `out` is shorter than that.
    pub fn write_fixed(count: u8, out: &mut [u8]) {
        out[..Self::FIXED_LEN].copy_from_slice(&[KIND_BUNDLE, count]);
    }

    /// The entries, each with its place in the frame's plaintext.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let bytes = self.bytes;
        let mut at = 0;
        (0..self.count).map(move |_| {
            let begin = at + Self::ENTRY_LEN;
            at = begin + usize::from(u16_at(bytes, at));
            (Self::FIXED_LEN + begin, &bytes[begin..at])
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Frame, parse};
    use super::*;

    fn build(entries: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0; Bundle::FIXED_LEN];
        Bundle::write_fixed(entries.len() as u8, &mut bytes);
        for entry in entries {
            bytes.extend((entry.len() as u16).to_le_bytes());
            bytes.extend(entry);
        }
        bytes
    }

    #[test]
    fn a_bundle_is_what_the_page_says() {
        let (one, two) = (vec![0x45; 20], vec![KIND_ORDERED; 28]);
        let mut bytes = build(&[one.clone(), two.clone()]);
        assert_eq!(&bytes[..5], [0x8b, 2, 20, 0, 0x45]);
        bytes.extend([0; 9]);
        let Ok(Frame::Bundle(bundle)) = parse(&bytes) else { panic!("no bundle") };
        let entries: Vec<_> = bundle.entries().collect();
        assert_eq!(entries, [(4, &one[..]), (26, &two[..])]);
        assert_eq!(bytes[26], KIND_ORDERED);
    }

    /// Threat BC-03.
    #[test]
    fn bc_03_lengths_that_lie_too_many_and_nested_ones_are_refused() {
        let packet = vec![0x45; 20];
        let whole = build(&[packet.clone(), packet.clone()]);
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "{len}");
        }
        let refused = |entries: &[Vec<u8>]| parse(&build(entries)).is_err();
        assert!(refused(&[]) && refused(&[packet[1..].to_vec()]) && refused(&[vec![]]));
        assert!(refused(&vec![packet.clone(); 65]) && !refused(&vec![packet.clone(); 64]));
        assert!(refused(&[whole]), "nested");
        for kind in (0x80..=0xff).filter(|&kind| kind != KIND_ORDERED) {
            assert!(refused(&[packet.clone(), vec![kind; 30]]), "{kind:#x}");
        }
        let mut lying = build(&[packet.clone(), packet]);
        (lying[2], lying[3]) = (0xff, 0xff);
        assert!(parse(&lying).is_err());
    }

    proptest! {
        #[test]
        fn what_was_bundled_comes_out_and_any_bytes_are_read_or_refused(
            entries in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 20..100), 1..64
            ),
            any_bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let entries: Vec<Vec<u8>> = entries
                .into_iter()
                .map(|mut entry| { entry[0] = 0x45; entry })
                .collect();
            let bytes = build(&entries);
            let Ok(Frame::Bundle(bundle)) = parse(&bytes) else { panic!("no bundle") };
            prop_assert!(bundle.entries().map(|(_, entry)| entry).eq(entries.iter()));
            prop_assert!(bundle.entries().all(|(at, entry)| bytes[at..].starts_with(entry)));
            if let Ok(Frame::Bundle(bundle)) = parse(&[&[0x8b][..], &any_bytes].concat()) {
                prop_assert!(bundle.entries().all(|(_, entry)| entry.len() >= Bundle::LEN_MIN));
            }
        }
    }
}
