//! The Internet checksum (RFC 1071), pseudo headers, and the incremental update of RFC 1624.
//!
//! A [`Sum`] is a partial ones' complement sum. Sums of pieces add up as long as every piece but
//! the last has an even number of bytes. The bulk loop adds whole 64-bit words into independent
//! lanes, because the sum is the same in any word size and byte order (RFC 1071 §2).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A partial ones' complement sum of big-endian 16-bit words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Self = Self(0);

    /// The sum of `bytes`; an odd last byte counts as the high half of a word.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(u64::from(bulk(bytes).swap_bytes()))
    }

    /// Adds another piece.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// Adds one 16-bit word.
    #[must_use]
    pub const fn plus_word(self, word: u16) -> Self {
        Self(self.0 + word as u64)
    }

    /// Adds a 32-bit word: both its halves.
    #[must_use]
    pub const fn plus_long(self, long: u32) -> Self {
        Self(self.0 + (long >> 16) as u64 + (long & 0xffff) as u64)
    }

    /// The sum folded to 16 bits, not complemented: what a partial checksum field holds.
    #[must_use]
    pub const fn fold(self) -> u16 {
        let sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        sum as u16
    }

    /// The checksum: the folded sum, complemented.
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }

    /// The checksum as UDP sends it: a zero is sent as all ones (RFC 768).
    #[must_use]
    pub const fn udp_checksum(self) -> u16 {
        match self.checksum() {
            0 => 0xffff,
            checksum => checksum,
        }
    }

    /// Whether data that includes its own checksum adds up.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.fold() == 0xffff
    }
}

/// The pseudo header of IPv4 (RFC 9293 §3.1): `len` is the transport header and payload, bytes.
#[must_use]
pub fn pseudo_v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, len: u32) -> Sum {
    Sum::ZERO
        .plus_long(source.to_bits())
        .plus_long(destination.to_bits())
        .plus_word(u16::from(protocol))
        .plus_long(len)
}

/// The pseudo header of IPv6 (RFC 8200 §8.1): `len` is the transport header and payload, bytes.
#[must_use]
pub fn pseudo_v6(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, len: u32) -> Sum {
    Sum::of(&source.octets())
        .plus(Sum::of(&destination.octets()))
        .plus_word(u16::from(protocol))
        .plus_long(len)
}

/// The pseudo header for two addresses of one family; a mixed pair sums as IPv6 with mapped
/// addresses, which no packet has.
#[must_use]
pub fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8, len: u32) -> Sum {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            pseudo_v4(source, destination, protocol, len)
        }
        (source, destination) => pseudo_v6(mapped(source), mapped(destination), protocol, len),
    }
}

/// What changed under a checksum (RFC 1624, equation 3): told piece by piece, applied once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change(Sum);

impl Change {
    /// Nothing changed.
    pub const NONE: Self = Self(Sum::ZERO);

    /// With one 16-bit word that changed.
    #[must_use]
    pub const fn word(self, old: u16, new: u16) -> Self {
        Self(self.0.plus_word(!old).plus_word(new))
    }

    /// With a piece that changed: of even length, at an even offset from where the sum begins.
    #[must_use]
    pub fn bytes(self, old: &[u8], new: &[u8]) -> Self {
        debug_assert!(old.len() == new.len() && old.len().is_multiple_of(2), "whole words");
        Self(self.0.plus_word(!Sum::of(old).fold()).plus(Sum::of(new)))
    }

    /// With all of another.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.plus(other.0))
    }

    /// The checksum after the change.
    #[must_use]
    pub const fn mend(self, checksum: u16) -> u16 {
        Sum(!checksum as u64).plus(self.0).checksum()
    }

    /// A partial sum after the change: not complemented, as a kernel leaves it to be completed.
    #[must_use]
    pub const fn mend_partial(self, partial: u16) -> u16 {
        Sum(partial as u64).plus(self.0).fold()
    }
}

/// The checksum after one 16-bit word under it changed (RFC 1624, equation 3).
#[must_use]
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    Sum(!checksum as u64 + !old as u64 + new as u64).checksum()
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Little-endian sum of `bytes`, folded to 16 bits.
fn bulk(bytes: &[u8]) -> u16 {
    let (blocks, rest) = bytes.as_chunks::<64>();
    let mut lanes = [0u64; 8];
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            let word = u64::from_le_bytes(*word);
            *lane += (word & 0xffff_ffff) + (word >> 32);
        }
    }
    let mut sum: u64 = lanes.iter().map(|lane| (lane & 0xffff_ffff) + (lane >> 32)).sum();
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word);
        sum += (word & 0xffff_ffff) + (word >> 32);
    }
    let mut tail = [0; 8];
    tail[..rest.len()].copy_from_slice(rest);
    let tail = u64::from_le_bytes(tail);
    Sum(sum + (tail & 0xffff_ffff) + (tail >> 32)).fold()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::sample::naive_sum;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_1071_section_3_sums_to_ddf2() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::of(&bytes).fold(), 0xddf2);
        assert_eq!(Sum::of(&bytes).checksum(), 0x220d);
        // The same bytes in pieces, as RFC 1071 §2 (A) allows.
        let pieces = Sum::of(&bytes[..2]).plus(Sum::of(&bytes[2..6])).plus(Sum::of(&bytes[6..]));
        assert_eq!(pieces.fold(), 0xddf2);
    }

    #[test]
    fn the_examples_of_rfc_1624_section_4_give_the_published_results() {
        // HC = 0xdd2f, m = 0x5555, m' = 0x3285: equation 3 gives 0x0000, not 0xffff.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn a_known_ipv4_header_has_its_known_checksum() {
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x00, 0x00, 0xc0, 0xa8,
            0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(Sum::of(&header).checksum(), 0xb861);
    }

    #[test]
    fn a_udp_checksum_of_zero_is_sent_as_all_ones() {
        assert_eq!(Sum::ZERO.plus_word(0xffff).checksum(), 0);
        assert_eq!(Sum::ZERO.plus_word(0xffff).udp_checksum(), 0xffff);
        assert_eq!(Sum::ZERO.plus_word(0x1234).udp_checksum(), !0x1234);
    }

    #[test]
    fn the_longest_packet_of_all_ones_does_not_overflow() {
        let bytes = vec![0xff; 1 << 20];
        assert_eq!(Sum::of(&bytes).fold(), 0xffff);
        assert_eq!(Sum(u64::MAX).fold(), 0xffff);
    }

    #[test]
    fn pseudo_headers_sum_as_their_bytes_do() {
        let (a, b) = (Ipv4Addr::new(10, 1, 2, 3), Ipv4Addr::new(172, 16, 0, 255));
        let bytes = [10, 1, 2, 3, 172, 16, 0, 255, 0, 17, 0x12, 0x34];
        assert_eq!(pseudo(a.into(), b.into(), 17, 0x1234).fold(), naive_sum(&bytes));
        let (a, b): (Ipv6Addr, Ipv6Addr) =
            ("2001:db8::1".parse().unwrap(), "fe80::ffff:1".parse().unwrap());
        let mut bytes = [a.octets(), b.octets()].concat();
        bytes.extend([0, 1, 0x12, 0x34, 0, 0, 0, 6]);
        assert_eq!(pseudo(a.into(), b.into(), 6, 0x1_1234).fold(), naive_sum(&bytes));
    }

    proptest! {
        #[test]
        fn the_fast_sum_equals_the_naive_one(
            bytes in prop::collection::vec(any::<u8>(), 0..4000), skip in 0usize..9,
        ) {
            let bytes = &bytes[skip.min(bytes.len())..];
            prop_assert_eq!(Sum::of(bytes).fold(), naive_sum(bytes));
        }

        #[test]
        fn an_update_equals_a_fresh_sum(
            mut bytes in prop::collection::vec(any::<u8>(), 40..80), at in 0usize..9, new: u32,
        ) {
            let at = at * 4;
            bytes[39] |= 1; // data of zeros alone has two forms of its sum
            let old = u32::from_be_bytes(*bytes[at..].first_chunk().unwrap());
            let before = Sum::of(&bytes).checksum();
            bytes[at..at + 4].copy_from_slice(&new.to_be_bytes());
            let high = update(before, (old >> 16) as u16, (new >> 16) as u16);
            let updated = update(high, old as u16, new as u16);
            prop_assert!(Sum::of(&bytes).plus_word(updated).is_valid());
            prop_assert_eq!(updated, Sum::of(&bytes).checksum());
        }

        #[test]
        fn a_change_told_in_pieces_equals_a_fresh_sum(
            mut bytes in prop::collection::vec(any::<u8>(), 40..80), new: [u8; 16], word: u16,
        ) {
            bytes[39] |= 1;
            let old = bytes.clone();
            bytes[8..24].copy_from_slice(&new);
            bytes[30..32].copy_from_slice(&word.to_be_bytes());
            let before = u16::from_be_bytes([old[30], old[31]]);
            let change = Change::NONE.bytes(&old[8..24], &new).word(before, word);
            let fresh = Sum::of(&bytes);
            prop_assert_eq!(change.mend(Sum::of(&old).checksum()), fresh.checksum());
            prop_assert_eq!(change.mend_partial(Sum::of(&old).fold()), fresh.fold());
        }
    }
}
