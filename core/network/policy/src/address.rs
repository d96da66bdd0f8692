//! Addresses that no rule can allow: what is not unicast, and what hides another address.

use core::net::IpAddr;

use wire::prefix::Prefix;

use crate::judged::Reason;

/// Refuses multicast, broadcast, loopback, link-local and unspecified addresses (PF-17), and IPv6
/// addresses that are IPv4 addresses in another dress: mapped and compatible ones (PF-06). Blocks
/// that embed an address for a translator (64:ff9b::/96, 2002::/16) are addresses of their own,
/// reached by nobody unless a rule names them.
pub(crate) fn class(address: IpAddr) -> Result<(), Reason> {
    match address {
        IpAddr::V4(v4) => {
            let [first, ..] = v4.octets();
            if first == 0 || first >= 224 || v4.is_loopback() || v4.is_link_local() {
                return Err(Reason::NotUnicast);
            }
        }
        IpAddr::V6(v6) => {
            if v6.is_multicast()
                || v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_unicast_link_local()
            {
                return Err(Reason::NotUnicast);
            }
            let high = v6.to_bits() >> 32;
            if high == 0 || high == 0xffff {
                return Err(Reason::Embedded);
            }
        }
    }
    Ok(())
}

/// Whether packets may be for this address at all, whatever rules say.
#[must_use]
pub fn is_unicast(address: IpAddr) -> bool {
    class(address).is_ok()
}

/// Whether a network can lie behind a node: both its ends are plain unicast addresses.
pub(crate) fn is_routable(prefix: Prefix) -> bool {
    let last = match prefix.address() {
        IpAddr::V4(v4) => {
            let hosts = u32::MAX.checked_shr(u32::from(prefix.bits())).unwrap_or(0);
            IpAddr::V4((v4.to_bits() | hosts).into())
        }
        IpAddr::V6(v6) => {
            let hosts = u128::MAX.checked_shr(u32::from(prefix.bits())).unwrap_or(0);
            IpAddr::V6((v6.to_bits() | hosts).into())
        }
    };
    // Wider than /3, a prefix has ends outside of what lies between them.
    class(prefix.address()).is_ok() && class(last).is_ok() && prefix.bits() >= 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pf_17_pf_06_what_is_not_plain_unicast_has_its_reason() {
        for (text, reason) in [
            ("10.0.0.1", Ok(())),
            ("100.64.0.1", Ok(())),
            ("fd7a::1", Ok(())),
            ("64:ff9b::a00:1", Ok(())),
            ("0.1.2.3", Err(Reason::NotUnicast)),
            ("127.0.0.1", Err(Reason::NotUnicast)),
            ("169.254.1.1", Err(Reason::NotUnicast)),
            ("224.0.0.251", Err(Reason::NotUnicast)),
            ("255.255.255.255", Err(Reason::NotUnicast)),
            ("240.0.0.1", Err(Reason::NotUnicast)),
            ("::", Err(Reason::NotUnicast)),
            ("::1", Err(Reason::NotUnicast)),
            ("fe80::1", Err(Reason::NotUnicast)),
            ("ff02::1", Err(Reason::NotUnicast)),
            ("::ffff:10.0.0.1", Err(Reason::Embedded)),
            ("::10.0.0.1", Err(Reason::Embedded)),
        ] {
            assert_eq!(class(text.parse().unwrap()), reason, "{text}");
        }
        for (text, is) in [
            ("10.0.0.0/8", true),
            ("192.168.1.7/32", true),
            ("fd00::/8", true),
            ("126.0.0.0/7", false),
            ("224.0.0.0/4", false),
            ("::/8", false),
            ("fe80::/10", false),
            ("0.0.0.0/1", false),
        ] {
            assert_eq!(is_routable(text.parse().unwrap()), is, "{text}");
        }
    }
}
