//! Two networks of one size, of which one stands for the other.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use wire::prefix::{BadPrefix, Prefix};

/// One network, and the one that it becomes: of one family and one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    from: Prefix,
    to: Prefix,
}

impl Pair {
    /// `from` becomes `to`.
    ///
    /// # Errors
    /// [`BadPair::Family`] and [`BadPair::Length`].
    pub fn new(from: Prefix, to: Prefix) -> Result<Self, BadPair> {
        if from.address().is_ipv4() != to.address().is_ipv4() {
            return Err(BadPair::Family);
        }
        if from.bits() != to.bits() {
            return Err(BadPair::Length(from.bits(), to.bits()));
        }
        Ok(Self { from, to })
    }

    /// What is changed.
    #[must_use]
    pub const fn from(&self) -> Prefix {
        self.from
    }

    /// What it becomes.
    #[must_use]
    pub const fn to(&self) -> Prefix {
        self.to
    }

    /// The pair that undoes this one.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { from: self.to, to: self.from }
    }

    /// What `address` becomes, if it is in the first network.
    #[inline]
    pub(crate) fn map(&self, address: IpAddr) -> Option<IpAddr> {
        if !self.from.contains(address) {
            return None;
        }
        let bits = u32::from(self.to.bits());
        match (address, self.to.address()) {
            (IpAddr::V4(address), IpAddr::V4(network)) => {
                let host = u32::MAX.checked_shr(bits).unwrap_or(0);
                Some(Ipv4Addr::from_bits(network.to_bits() | address.to_bits() & host).into())
            }
            (IpAddr::V6(address), IpAddr::V6(network)) => {
                let host = u128::MAX.checked_shr(bits).unwrap_or(0);
                Some(Ipv6Addr::from_bits(network.to_bits() | address.to_bits() & host).into())
            }
            _ => None,
        }
    }
}

impl fmt::Display for Pair {
    /// `A=B`; of single addresses without their length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from.bits() == Prefix::host(self.from.address()).bits() {
            return write!(f, "{}={}", self.from.address(), self.to.address());
        }
        write!(f, "{}={}", self.from, self.to)
    }
}

/// Why two networks are no [`Pair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPair {
    /// There is no `=`, or not one.
    Form,
    /// What stands on one side is no address or prefix.
    Prefix(BadPrefix),
    /// A prefix has bits beyond its length, so that it is not clear what is meant.
    HostBits,
    /// One is IPv4 and the other IPv6.
    Family,
    /// They have different lengths.
    Length(u8, u8),
}

impl fmt::Display for BadPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("write A=B, two addresses or two prefixes of one length"),
            Self::Prefix(bad) => bad.fmt(f),
            Self::HostBits => f.write_str("a prefix has bits set beyond its length"),
            Self::Family => f.write_str("one side is IPv4 and the other IPv6; both must be one"),
            Self::Length(from, to) => {
                write!(f, "/{from} and /{to} differ; both sides must have one length")
            }
        }
    }
}

impl core::error::Error for BadPair {}

impl FromStr for Pair {
    type Err = BadPair;

    /// Reads `A=B`, with spaces around either.
    fn from_str(text: &str) -> Result<Self, BadPair> {
        let (from, to) = text.split_once('=').ok_or(BadPair::Form)?;
        Self::new(side(from.trim())?, side(to.trim())?)
    }
}

fn side(text: &str) -> Result<Prefix, BadPair> {
    if text.is_empty() || text.contains('=') {
        return Err(BadPair::Form);
    }
    let prefix: Prefix = text.parse().map_err(BadPair::Prefix)?;
    let address = text.split('/').next().unwrap_or_default();
    let is_whole = address.parse() == Ok(prefix.address());
    if is_whole { Ok(prefix) } else { Err(BadPair::HostBits) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(text: &str) -> Result<Pair, BadPair> {
        text.parse()
    }

    #[test]
    fn a_pair_keeps_host_bits_and_is_written_as_it_is_read() {
        for (text, from, to) in [
            ("192.168.1.0/24=10.99.1.0/24", "192.168.1.77", "10.99.1.77"),
            ("192.168.0.1=18.8.8.9", "192.168.0.1", "18.8.8.9"),
            ("0.0.0.0/0=0.0.0.0/0", "1.2.3.4", "1.2.3.4"),
            ("10.0.0.0/31=10.0.0.2/31", "10.0.0.1", "10.0.0.3"),
            ("fd00:1::/48=fd00:2::/48", "fd00:1::3:4", "fd00:2::3:4"),
            ("fd00::1=2001:db8::7", "fd00::1", "2001:db8::7"),
        ] {
            let pair = pair(text).unwrap();
            let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
            assert_eq!(pair.map(from), Some(to), "{text}");
            assert_eq!(pair.reversed().map(to), Some(from), "{text}");
            assert_eq!(pair.to_string(), text);
        }
        let pair = pair(" 10.0.0.0/24 = 10.1.0.0/24 ").unwrap();
        assert_eq!(pair.map("10.0.1.0".parse().unwrap()), None);
        assert_eq!(pair.map("fd00::1".parse().unwrap()), None);
    }

    #[test]
    fn what_is_no_pair_is_refused_with_what_is_wrong() {
        assert_eq!(pair("10.0.0.0/24"), Err(BadPair::Form));
        assert_eq!(pair("10.0.0.0/24="), Err(BadPair::Form));
        assert_eq!(pair("10.0.0.1=10.0.0.2=10.0.0.3"), Err(BadPair::Form));
        assert_eq!(pair("10.0.0.0/24=10.1.0.0/16"), Err(BadPair::Length(24, 16)));
        assert_eq!(pair("10.0.0.0/24=fd00::/24"), Err(BadPair::Family));
        assert_eq!(pair("10.0.0.1/24=10.1.0.0/24"), Err(BadPair::HostBits));
        assert_eq!(pair("lan=10.1.0.0/24"), Err(BadPair::Prefix(BadPrefix::Address)));
        assert_eq!(pair("10.0.0.0/33=10.1.0.0/33"), Err(BadPair::Prefix(BadPrefix::Bits)));
    }
}
