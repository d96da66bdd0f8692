//! A network as its users write it, `10.0.0.0/8`: for allowed addresses, routes and policy.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// A network: an address whose host bits are zero and the number of leading bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// The network of `bits` leading bits that `address` is in; `None` if there are more `bits`
    /// than the family has (32 or 128).
    #[must_use]
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(a) if bits <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & mask))
            }
            IpAddr::V6(a) if bits <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask))
            }
            _ => return None,
        };
        Some(Self { address, bits })
    }

    /// The network that holds this one address and no other.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self { address, bits: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// The lowest address of the network.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// How many leading bits count.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether this is the whole family, `0.0.0.0/0` or `::/0`.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.bits == 0
    }

    /// Whether `address` is in the network. Families never match each other.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        Self::new(address, self.bits).is_some_and(|p| p.address == self.address)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Why a text is not a [`Prefix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPrefix {
    /// What stands before the `/` is not an IPv4 or IPv6 address.
    Address,
    /// What stands after the `/` is not a decimal number up to 32 or 128.
    Bits,
}

impl fmt::Display for BadPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "not an IPv4 or IPv6 address",
            Self::Bits => "the number after '/' must be 0 to 32 for IPv4, 0 to 128 for IPv6",
        })
    }
}

impl core::error::Error for BadPrefix {}

impl FromStr for Prefix {
    type Err = BadPrefix;

    /// Reads `ADDRESS` or `ADDRESS/BITS`; host bits are cleared.
    fn from_str(text: &str) -> Result<Self, BadPrefix> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| BadPrefix::Address)?;
        let Some(bits) = bits else { return Ok(Self::host(address)) };
        if bits.is_empty() || bits.len() > 3 || !bits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(BadPrefix::Bits);
        }
        let bits = bits.parse().map_err(|_| BadPrefix::Bits)?;
        Self::new(address, bits).ok_or(BadPrefix::Bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_prefix_clears_host_bits_and_prints_itself() {
        for (text, printed) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("255.255.255.255/0", "0.0.0.0/0"),
            ("fd00:1:2::9/32", "fd00:1::/32"),
            ("::1", "::1/128"),
            ("ffff::/0", "::/0"),
        ] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), printed);
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        for (text, why) in [
            ("", BadPrefix::Address),
            ("10.0.0/8", BadPrefix::Address),
            ("10.0.0.0/", BadPrefix::Bits),
            ("10.0.0.0/33", BadPrefix::Bits),
            ("10.0.0.0/+8", BadPrefix::Bits),
            ("::/129", BadPrefix::Bits),
            ("::/0008", BadPrefix::Bits),
            ("::/256", BadPrefix::Bits),
        ] {
            assert_eq!(text.parse::<Prefix>(), Err(why), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(bits in 0u8..=128, a: u128) {
            let p = Prefix::new(IpAddr::V6(Ipv6Addr::from_bits(a)), bits).unwrap();
            prop_assert_eq!(p.to_string().parse::<Prefix>(), Ok(p));
            prop_assert!(p.contains(IpAddr::V6(Ipv6Addr::from_bits(a))));
            prop_assert!(!p.contains(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
        }
    }
}
