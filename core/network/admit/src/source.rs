//! Who asks, as far as addresses tell.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IPv4 address, or an IPv6 /64 with the /48 that it is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Source(u64);

impl Source {
    /// The source of callers on this machine, who have no address.
    pub const OWN: Self = Self(0);

    /// What it is part of: an IPv6 /48, or the IPv4 address itself.
    #[must_use]
    pub const fn wide(self) -> u64 {
        // An IPv4 address has nothing there, and no /64 of the Internet begins with zeros.
        if self.0 >> 32 == 0 { self.0 } else { self.0 & !0xffff }
    }
}

impl fmt::Display for Source {
    /// The IPv4 address, or the /64.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match u32::try_from(self.0) {
            Ok(v4) => Ipv4Addr::from_bits(v4).fmt(f),
            Err(_) => write!(f, "{}/64", Ipv6Addr::from_bits(u128::from(self.0) << 64)),
        }
    }
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(u64::from(v4.to_bits())),
            IpAddr::V6(v6) => Self((v6.to_bits() >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_shown_as_far_as_it_is_known() {
        let shown = |text: &str| Source::from(text.parse::<IpAddr>().unwrap()).to_string();
        assert_eq!(shown("192.0.2.1"), "192.0.2.1");
        assert_eq!(shown("2001:db8:1:2::3"), "2001:db8:1:2::/64");
    }

    #[test]
    fn a_source_is_an_address_or_a_64_and_part_of_a_48() {
        let source = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(source("192.0.2.1"), source("::ffff:192.0.2.1"));
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(source("2001:db8::1").wide(), source("2001:db8:0:ffff::1").wide());
        assert_ne!(source("2001:db8::1").wide(), source("2001:db8:1::1").wide());
        assert_ne!(source("192.0.2.1").wide(), source("192.0.2.2").wide());
    }
}
