//! Sets of addresses as sorted ranges: what a selector means once it is compiled.
//!
//! Both families share one number line: an IPv4 address is the number of its IPv4-mapped IPv6
//! form. No IPv6 packet is ever matched by it, since the filter refuses mapped addresses (PF-06).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::prefix::Prefix;

/// The block ::ffff:0:0/96, in which IPv4 addresses lie.
const V4: Range = Range { first: 0xffff_0000_0000, last: 0xffff_ffff_ffff };

/// Addresses from first to last, both included, as numbers (see the top of this file).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// The lowest.
    pub first: u128,
    /// The highest.
    pub last: u128,
}

/// The number of an address.
#[inline]
pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => V4.first | u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn address(number: u128) -> IpAddr {
    match Ipv6Addr::from_bits(number).to_ipv4_mapped() {
        Some(v4) => v4.into(),
        None => Ipv6Addr::from_bits(number).into(),
    }
}

impl Range {
    fn of(prefix: Prefix) -> Self {
        let width = if prefix.address().is_ipv4() { 32 } else { 128 };
        let host_bits = u32::from(width - prefix.bits());
        let first = number(prefix.address());
        Self { first, last: first | 1u128.checked_shl(host_bits).map_or(u128::MAX, |bit| bit - 1) }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", address(self.first)),
            false => write!(f, "{}-{}", address(self.first), address(self.last)),
        }
    }
}

/// A set of addresses: ranges in order, none touching the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ranges(Vec<Range>);

impl Ranges {
    /// The set of all addresses in `ranges`, which may come in any order and overlap. A range
    /// whose first is above its last holds nothing.
    #[must_use]
    pub fn new(mut ranges: Vec<Range>) -> Self {
        ranges.retain(|range| range.first <= range.last);
        ranges.sort_unstable();
        let mut merged: Vec<Range> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(before) if range.first <= before.last.saturating_add(1) => {
                    before.last = before.last.max(range.last);
                }
                _ => merged.push(range),
            }
        }
        Self(merged)
    }

    /// Every address of both families.
    #[must_use]
    pub fn everything() -> Self {
        Self(vec![Range { first: 0, last: u128::MAX }])
    }

    /// The set of these addresses.
    pub fn of_addresses(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let range = |address| Range { first: number(address), last: number(address) };
        Self::new(addresses.into_iter().map(range).collect())
    }

    /// The set of all addresses in these prefixes. Families stay apart: `::/0` has no IPv4.
    pub fn of_prefixes(prefixes: impl IntoIterator<Item = Prefix>) -> Self {
        let ranges = prefixes.into_iter().flat_map(|prefix| {
            let range = Range::of(prefix);
            let covers_v4 = prefix.address().is_ipv6() && range.first < V4.first;
            match covers_v4 && range.last >= V4.last {
                false => vec![range],
                true => vec![
                    Range { first: range.first, last: V4.first - 1 },
                    Range { first: V4.last + 1, last: range.last },
                ],
            }
        });
        Self::new(ranges.collect())
    }

    /// The addresses from `first` to `last`; nothing where they are of two families.
    pub(crate) fn between(first: IpAddr, last: IpAddr) -> Self {
        let is_one_family = first.is_ipv4() == last.is_ipv4();
        let range = Range { first: number(first), last: number(last) };
        Self::new(Some(range).filter(|_| is_one_family).into_iter().collect())
    }

    /// The fewest prefixes that hold these addresses and no others.
    pub(crate) fn prefixes(&self) -> Vec<Prefix> {
        let mut prefixes = Vec::new();
        for range in &self.0 {
            let mut first = range.first;
            while first <= range.last {
                let left = range.last - first;
                // As wide as its beginning is aligned and as there is room.
                let room = if left == u128::MAX { 127 } else { (left + 1).ilog2() };
                let host_bits = first.trailing_zeros().min(room).min(127);
                let at = address(first);
                let width: u8 = if at.is_ipv4() { 32 } else { 128 };
                prefixes.extend(Prefix::new(at, width.saturating_sub(host_bits as u8)));
                let Some(next) = first.checked_add(1 << host_bits) else { break };
                first = next;
            }
        }
        prefixes
    }

    /// The ranges, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Range] {
        &self.0
    }

    /// Whether no address is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `address` is in it. A mapped IPv6 address counts as the IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.has(number(address))
    }

    #[inline]
    pub(crate) fn has(&self, number: u128) -> bool {
        let after = self.0.partition_point(|range| range.last < number);
        self.0.get(after).is_some_and(|range| range.first <= number)
    }

    /// Whether both have an address in common. The fewer ranges are looked up in the more.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        let (few, many) = if self.0.len() < other.0.len() { (self, other) } else { (other, self) };
        few.0.iter().any(|range| {
            let after = many.0.partition_point(|other| other.last < range.first);
            many.0.get(after).is_some_and(|other| other.first <= range.last)
        })
    }

    /// What is in both. The fewer ranges are looked up in the more.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (few, many) = if self.0.len() < other.0.len() { (self, other) } else { (other, self) };
        let mut ranges = Vec::new();
        for range in &few.0 {
            let after = many.0.partition_point(|other| other.last < range.first);
            for other in many.0[after..].iter().take_while(|other| other.first <= range.last) {
                let first = range.first.max(other.first);
                let last = range.last.min(other.last);
                ranges.push(Range { first, last });
            }
        }
        Self(ranges)
    }

    /// What is in this and not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut rest = Vec::new();
        let mut next = 0;
        for range in &other.0 {
            if let Some(last) = range.first.checked_sub(1) {
                rest.push(Range { first: next, last });
            }
            match range.last.checked_add(1) {
                Some(first) => next = first,
                None => return self.intersection(&Self::new(rest)),
            }
        }
        rest.push(Range { first: next, last: u128::MAX });
        self.intersection(&Self::new(rest))
    }

    /// What is in it of IPv4, and what of IPv6. No packet goes from one to the other.
    #[must_use]
    pub fn by_family(&self) -> [Self; 2] {
        let v4 = Self(vec![V4]);
        [self.intersection(&v4), self.difference(&v4)]
    }

    /// Whether anything of IPv4 is in it, and whether anything of IPv6.
    #[must_use]
    pub fn families(&self) -> [bool; 2] {
        let is_v4 = |range: &Range| range.first <= V4.last && range.last >= V4.first;
        let is_v6 = |range: &Range| range.first < V4.first || range.last > V4.last;
        [self.0.iter().any(is_v4), self.0.iter().any(is_v6)]
    }

    /// Adds all of `others`.
    #[must_use]
    pub fn union<'a>(others: impl IntoIterator<Item = &'a Self>) -> Self {
        Self::new(others.into_iter().flat_map(|other| other.0.iter().copied()).collect())
    }

    /// What `autogroup:internet` means: public unicast addresses. Left out are this machine's and
    /// local networks, carrier-grade NAT, documentation, multicast, and every block that embeds
    /// IPv4 addresses (RFC 6890, IANA special-purpose registries).
    #[must_use]
    pub fn internet() -> Self {
        let v4 = |a, b, c, bits| Prefix::new(Ipv4Addr::new(a, b, c, 0).into(), bits);
        let v6 = |a, b, bits| Prefix::new(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0).into(), bits);
        let public = [v4(0, 0, 0, 0), v6(0x2000, 0, 3)];
        let special = [
            v4(0, 0, 0, 8),
            v4(10, 0, 0, 8),
            v4(100, 64, 0, 10),
            v4(127, 0, 0, 8),
            v4(169, 254, 0, 16),
            v4(172, 16, 0, 12),
            v4(192, 0, 0, 24),
            v4(192, 0, 2, 24),
            v4(192, 88, 99, 24),
            v4(192, 168, 0, 16),
            v4(198, 18, 0, 15),
            v4(198, 51, 100, 24),
            v4(203, 0, 113, 24),
            v4(224, 0, 0, 3),
            v6(0x2001, 0, 32),
            v6(0x2001, 0xdb8, 32),
            v6(0x2002, 0, 16),
            v6(0x3fff, 0, 20),
        ];
        Self::of_prefixes(public.into_iter().flatten())
            .difference(&Self::of_prefixes(special.into_iter().flatten()))
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, range) in self.0.iter().enumerate() {
            write!(f, "{}{range}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn prefixes(texts: &[&str]) -> Ranges {
        Ranges::of_prefixes(texts.iter().map(|text| text.parse().unwrap()))
    }

    #[test]
    fn families_stay_apart() {
        let v6 = prefixes(&["::/0"]);
        assert!(v6.contains("fd00::1".parse().unwrap()));
        assert!(!v6.contains("10.0.0.1".parse().unwrap()));
        let v4 = prefixes(&["0.0.0.0/0"]);
        assert_eq!(v4.to_string(), "0.0.0.0-255.255.255.255");
        assert!(!v4.intersects(&v6));
        assert_eq!(Ranges::union([&v4, &v6]), Ranges::everything());
        assert_eq!(Ranges::everything().by_family(), [v4.clone(), v6.clone()]);
        assert_eq!(v4.by_family(), [v4.clone(), Ranges::default()]);
        assert_eq!(v6.by_family(), [Ranges::default(), v6.clone()]);
        assert_eq!(Ranges::everything().families(), [true, true]);
        assert_eq!([v4.families(), v6.families()], [[true, false], [false, true]]);
        assert_eq!(Ranges::default().families(), [false, false]);
    }

    #[test]
    fn pf_06_the_internet_has_no_private_and_no_embedding_block() {
        let internet = Ranges::internet();
        let inside = |text: &str| internet.contains(text.parse().unwrap());
        for public in ["1.1.1.1", "100.63.255.255", "100.128.0.0", "2606:4700::1111", "172.32.0.0"]
        {
            assert!(inside(public), "{public}");
        }
        for special in [
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.31.255.255",
            "192.168.1.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::10.0.0.1",
            "64:ff9b::a00:1",
            "fe80::1",
            "fd7a::1",
            "2002:a00:1::1",
            "2001::1",
            "2001:db8::1",
            "ff02::1",
        ] {
            assert!(!inside(special), "{special}");
        }
    }

    proptest! {
        #[test]
        fn sets_are_sets(
            a in vec((0u128..64, 0u128..8), 0..8),
            b in vec((0u128..64, 0u128..8), 0..8),
            high: bool,
        ) {
            let base = if high { u128::MAX - 71 } else { 0 };
            let make = |list: &[(u128, u128)]| Ranges::new(
                list.iter().map(|(first, len)| Range {
                    first: base + first,
                    last: base + first + len,
                }).collect(),
            );
            let model = |list: &[(u128, u128)], n: u128| {
                list.iter().any(|(first, len)| (*first..=first + len).contains(&n))
            };
            let (x, y) = (make(&a), make(&b));
            let mut is_shared = false;
            for n in 0..72 {
                let (in_a, in_b) = (model(&a, n), model(&b, n));
                is_shared |= in_a && in_b;
                prop_assert_eq!(x.has(base + n), in_a);
                prop_assert_eq!(x.intersection(&y).has(base + n), in_a && in_b);
                prop_assert_eq!(x.difference(&y).has(base + n), in_a && !in_b);
                prop_assert_eq!(Ranges::union([&x, &y]).has(base + n), in_a || in_b);
            }
            prop_assert_eq!(x.intersects(&y), is_shared);
            prop_assert!(x.0.windows(2).all(|pair| pair[0].last + 1 < pair[1].first));
        }
    }
}
