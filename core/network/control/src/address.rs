//! Addresses: the prefixes of a network, and who gets which.
//!
//! A node has a number, and the number is its place in the IPv4 and in the IPv6 prefix. One number
//! that is unique therefore makes both addresses unique, and the store needs one constraint.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use noise::Random;
use serde::{Deserialize, Serialize};

/// A prefix as [`wire::prefix::Prefix`] has it, of which a text with bits after its length is
/// refused: routes and ranges are written by people, who would not get what they wrote.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix(wire::prefix::Prefix);

/// Why a text is no [`Prefix`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadPrefix {
    /// Not `ADDRESS/LENGTH`.
    Form,
    /// The length is more than the address has bits.
    Length,
    /// Bits are set after the length.
    HostBits,
}

/// A route that stands for another prefix: a gateway rewrites addresses between the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Alias {
    /// What is behind the gateway.
    pub prefix: Prefix,
    /// What the network knows it by: one of its routes, of the same length.
    pub alias: Prefix,
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as {}", self.prefix, self.alias)
    }
}

impl Prefix {
    /// The prefix of `address` with `len` bits.
    ///
    /// # Errors
    /// [`BadPrefix::Length`] and [`BadPrefix::HostBits`].
    pub fn new(address: IpAddr, len: u8) -> Result<Self, BadPrefix> {
        let prefix = wire::prefix::Prefix::new(address, len).ok_or(BadPrefix::Length)?;
        if prefix.address() == address { Ok(Self(prefix)) } else { Err(BadPrefix::HostBits) }
    }

    /// The prefix of one address.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self(wire::prefix::Prefix::host(address))
    }

    /// Its first address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.0.address()
    }

    /// Its length in bits.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.0.bits()
    }

    /// Whether it holds everything.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.0.is_default()
    }

    /// Whether `address` is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(address)
    }

    /// Whether an address is in both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.address()) || other.contains(self.address())
    }
}

impl FromStr for Prefix {
    type Err = BadPrefix;

    fn from_str(text: &str) -> Result<Self, BadPrefix> {
        let (address, len) = text.split_once('/').ok_or(BadPrefix::Form)?;
        if !len.bytes().all(|b| b.is_ascii_digit()) {
            return Err(BadPrefix::Form);
        }
        let address = address.parse().map_err(|_| BadPrefix::Form)?;
        Self::new(address, len.parse().map_err(|_| BadPrefix::Form)?)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Prefix> for wire::prefix::Prefix {
    fn from(prefix: Prefix) -> Self {
        prefix.0
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

impl TryFrom<String> for Prefix {
    type Error = BadPrefix;

    fn try_from(text: String) -> Result<Self, BadPrefix> {
        text.parse()
    }
}

impl fmt::Display for BadPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => "a prefix is ADDRESS/LENGTH, as in 10.0.0.0/8",
            Self::Length => "the length of the prefix is more than its address has bits",
            Self::HostBits => "bits are set after the length of the prefix",
        })
    }
}

impl core::error::Error for BadPrefix {}

/// The default IPv4 range (RFC 6598).
pub const DEFAULT_V4: &str = "100.64.0.0/10";
/// Ranges inside the default one that are not given to nodes: what other programs answer on.
const RESERVED: [(Ipv4Addr, u8); 3] = [
    (Ipv4Addr::new(100, 100, 100, 0), 24),
    (Ipv4Addr::new(100, 100, 0, 0), 24),
    (Ipv4Addr::new(100, 115, 92, 0), 23),
];

/// The two prefixes of a network, and the rule by which numbers become addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pool {
    v4: Prefix,
    v6: Prefix,
}

/// Why two prefixes are no [`Pool`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadPool {
    /// The first is not IPv4, or the second is not IPv6.
    Family,
    /// The IPv4 prefix is longer than /29: it has no room for a few nodes.
    Small,
    /// The IPv6 prefix is longer than /96: a number of 32 bits does not fit.
    Narrow,
}

impl Pool {
    /// A pool of an IPv4 prefix of at most 29 bits and an IPv6 prefix of at most 96.
    ///
    /// # Errors
    /// [`BadPool`].
    pub fn new(v4: Prefix, v6: Prefix) -> Result<Self, BadPool> {
        if !v4.address().is_ipv4() || v6.address().is_ipv4() {
            return Err(BadPool::Family);
        }
        if v4.bits() > 29 {
            return Err(BadPool::Small);
        }
        if v6.bits() > 96 {
            return Err(BadPool::Narrow);
        }
        Ok(Self { v4, v6 })
    }

    /// A random unique local prefix of 48 bits (RFC 4193, section 3.2.2).
    #[must_use]
    pub fn unique_local(random: &mut dyn Random) -> Prefix {
        let mut bytes = [0; 16];
        random.fill(&mut bytes[1..6]);
        bytes[0] = 0xfd;
        let address = IpAddr::V6(bytes.into());
        Prefix::new(address, 48).expect("only the first six bytes are set")
    }

    /// The IPv4 prefix.
    #[must_use]
    pub const fn v4(&self) -> Prefix {
        self.v4
    }

    /// The IPv6 prefix.
    #[must_use]
    pub const fn v6(&self) -> Prefix {
        self.v6
    }

    /// How many numbers there are, counted from 1; the last IPv4 address is for broadcast.
    #[must_use]
    pub fn last(&self) -> u32 {
        (u32::MAX >> self.v4.bits()).saturating_sub(1)
    }

    /// The addresses of a number.
    #[must_use]
    pub fn addresses(&self, number: u32) -> (Ipv4Addr, Ipv6Addr) {
        let IpAddr::V4(v4) = self.v4.address() else { unreachable!("checked by new") };
        let IpAddr::V6(v6) = self.v6.address() else { unreachable!("checked by new") };
        let v4 = u32::from(v4) | number & (u32::MAX >> self.v4.bits());
        ((v4).into(), (u128::from(v6) | u128::from(number)).into())
    }

    /// The number of a node with this address; none if no node can have it.
    #[must_use]
    pub fn number(&self, address: Ipv4Addr) -> Option<u32> {
        let number = u32::from(address) & (u32::MAX >> self.v4.bits());
        (self.addresses(number).0 == address && !self.is_reserved(number)).then_some(number)
    }

    /// Whether no node gets this number.
    #[must_use]
    pub fn is_reserved(&self, number: u32) -> bool {
        let address = u32::from(self.addresses(number).0);
        number == 0
            || number > self.last()
            || RESERVED.iter().any(|(first, len)| (address ^ u32::from(*first)) >> (32 - len) == 0)
    }

    /// The first free number from `from` on, and then from the beginning. `taken` are the numbers
    /// in use or in quarantine, in ascending order. `None` if every number is taken.
    pub fn allocate(&self, from: u32, taken: &[u32]) -> Option<u32> {
        let from = from.clamp(1, self.last());
        self.first_free(from, self.last(), taken).or_else(|| self.first_free(1, from - 1, taken))
    }

    fn first_free(&self, first: u32, last: u32, taken: &[u32]) -> Option<u32> {
        let mut next = first;
        let begin = taken.partition_point(|number| *number < first);
        let mut taken = taken[begin..].iter().peekable();
        while next <= last {
            while taken.next_if(|number| **number < next).is_some() {}
            if taken.peek() != Some(&&next) && !self.is_reserved(next) {
                return Some(next);
            }
            next += 1;
        }
        None
    }
}

impl fmt::Display for BadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Family => "the network wants an IPv4 and an IPv6 prefix",
            Self::Small => "the IPv4 range must have room: at most 29 bits",
            Self::Narrow => "the IPv6 range must have room: at most 96 bits",
        })
    }
}

impl core::error::Error for BadPool {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::tests::testing::Seeded;

    fn pool(v4: &str) -> Pool {
        Pool::new(v4.parse().unwrap(), "fd00:1:2::/48".parse().unwrap()).unwrap()
    }

    #[test]
    fn prefixes_come_back_and_what_is_none_is_told_why() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "1.2.3.4/32", "::/0", "fd00::/8", "::1/128"] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        for (text, why) in [
            ("10.0.0.0", BadPrefix::Form),
            ("10.0.0/8", BadPrefix::Form),
            ("10.0.0.0/+8", BadPrefix::Form),
            ("10.0.0.0/", BadPrefix::Form),
            ("10.0.0.0/33", BadPrefix::Length),
            ("::/129", BadPrefix::Length),
            ("10.0.0.1/8", BadPrefix::HostBits),
            ("fd00::1/64", BadPrefix::HostBits),
        ] {
            assert_eq!(text.parse::<Prefix>(), Err(why), "{text}");
        }
        let wide: Prefix = "10.0.0.0/8".parse().unwrap();
        assert!(wide.overlaps(&"10.1.0.0/16".parse().unwrap()));
        assert!("10.1.0.0/16".parse::<Prefix>().unwrap().overlaps(&wide));
        assert!(!wide.overlaps(&"11.0.0.0/8".parse().unwrap()));
        assert!(!wide.overlaps(&"::/0".parse().unwrap()));
    }

    #[test]
    fn source_000_8_addresses_go_in_sequence_from_the_first() {
        let pool = pool(DEFAULT_V4);
        assert_eq!(pool.addresses(1).0.to_string(), "100.64.0.1");
        assert_eq!(pool.addresses(2).1.to_string(), "fd00:1:2::2");
        assert_eq!(pool.allocate(1, &[]), Some(1));
        assert_eq!(pool.allocate(1, &[1, 2, 4]), Some(3));
        assert_eq!(pool.allocate(5, &[1, 2, 4]), Some(5), "a number that was let go waits");
        assert_eq!(pool.last(), (1 << 22) - 2);
    }

    #[test]
    fn reserved_numbers_are_given_to_nobody() {
        let pool = pool(DEFAULT_V4);
        let number = |text: &str| u32::from(text.parse::<Ipv4Addr>().unwrap()) & ((1 << 22) - 1);
        for text in ["100.100.100.100", "100.100.0.1", "100.115.92.1", "100.115.93.255"] {
            assert!(pool.is_reserved(number(text)), "{text}");
        }
        let next = pool.allocate(number("100.100.100.0"), &[]);
        assert_eq!(pool.addresses(next.unwrap()).0.to_string(), "100.100.101.0");
        assert!(pool.is_reserved(0) && pool.is_reserved(number("100.127.255.255")));
    }

    #[test]
    fn co_07_a_small_range_is_used_up_and_wraps_before_it_refuses() {
        let pool = pool("192.168.7.0/29");
        let mut taken = Vec::new();
        for expected in [3, 4, 5, 6, 1, 2] {
            assert_eq!(pool.allocate(3, &taken), Some(expected));
            taken.push(expected);
            taken.sort_unstable();
        }
        assert_eq!(pool.allocate(3, &taken), None);
        assert_eq!(pool.allocate(u32::MAX, &taken), None);
        let whole = Pool::new("0.0.0.0/0".parse().unwrap(), "fd00::/96".parse().unwrap()).unwrap();
        assert_eq!(whole.allocate(u32::MAX, &[u32::MAX - 1]), Some(1));
    }

    #[test]
    fn a_unique_local_prefix_is_one() {
        let prefix = Pool::unique_local(&mut Seeded(9));
        assert!(prefix.to_string().starts_with("fd") && prefix.bits() == 48, "{prefix}");
        assert_ne!(prefix, Pool::unique_local(&mut Seeded(10)));
    }
}
