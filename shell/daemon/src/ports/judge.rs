//! What of a gateway's words is believed. A gateway is whoever answers at the default route's
//! address, which on a foreign network is anybody (threat NT-09).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use node::Prefix;

/// What is asked for, in seconds: a daemon that is killed leaves its mapping for no longer.
pub(super) const LIFETIME_S: u32 = 3600;
/// Shorter lifetimes are those of a gateway that wants to be asked without end.
const LIFETIME_S_MIN: u32 = 120;

/// What a gateway says that it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Said {
    pub(super) external: IpAddr,
    pub(super) port: u16,
    /// How long it holds; longer than what was asked is as long as that.
    pub(super) lifetime_s: u32,
}

/// Why that is of no use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Useless {
    /// Nobody outside reaches it there.
    Address(IpAddr),
    Port,
    Lifetime(u32),
}

impl fmt::Display for Useless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(
                f,
                "the gateway's own address is {address}, where nobody outside reaches it: there is \
                 another translator behind it"
            ),
            Self::Port => write!(f, "the gateway names no port"),
            Self::Lifetime(s) => write!(f, "the gateway's mapping lasts {s} s only"),
        }
    }
}

/// Where others reach us, and how long that is good.
pub(super) fn judge(said: Said, overlay: &[Prefix]) -> Result<(SocketAddr, Duration), Useless> {
    let external = said.external.to_canonical();
    let is_outside = match external {
        IpAddr::V4(address) => is_outside(address),
        // Mappings are asked for IPv4, which has translators.
        IpAddr::V6(_) => false,
    };
    if !is_outside || overlay.iter().any(|prefix| prefix.contains(external)) {
        return Err(Useless::Address(external));
    }
    if said.port == 0 {
        return Err(Useless::Port);
    }
    if said.lifetime_s < LIFETIME_S_MIN {
        return Err(Useless::Lifetime(said.lifetime_s));
    }
    let lifetime_s = said.lifetime_s.min(LIFETIME_S);
    Ok((SocketAddr::new(external, said.port), Duration::from_secs(lifetime_s.into())))
}

/// Whether an address may be one of the Internet's.
fn is_outside(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    let is_carriers = first == 100 && (64..128).contains(&second);
    let is_inside = address.is_private() || is_carriers || address.is_link_local();
    !(is_inside || address.is_loopback() || first == 0 || first >= 224)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(external: &str, port: u16, lifetime_s: u32) -> Said {
        Said { external: external.parse().expect("an address"), port, lifetime_s }
    }

    #[test]
    fn nt_09_a_gateway_names_an_address_of_the_internet_or_is_not_believed() {
        let overlay = ["5.6.0.0/16".parse().expect("a prefix")];
        for inside in [
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "169.254.169.254",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "2001:db8::1",
            "::ffff:192.168.1.1",
            "fe80::1",
            "5.6.7.8",
        ] {
            let judged = judge(said(inside, 4000, 600), &overlay);
            assert!(matches!(judged, Err(Useless::Address(_))), "{inside}: {judged:?}");
        }
        for outside in ["5.7.0.1", "100.63.0.1", "100.128.0.1", "172.32.0.1", "::ffff:5.7.0.1"] {
            assert!(judge(said(outside, 4000, 600), &overlay).is_ok(), "{outside}");
        }
    }

    #[test]
    fn nt_09_lifetimes_that_would_have_us_ask_without_end_or_never_again_are_not_taken() {
        let lifetime = |s| judge(said("5.7.0.1", 1, s), &[]).map(|(_, lifetime)| lifetime);
        assert_eq!(lifetime(0), Err(Useless::Lifetime(0)));
        assert_eq!(lifetime(119), Err(Useless::Lifetime(119)));
        assert_eq!(lifetime(120), Ok(Duration::from_secs(120)));
        assert_eq!(lifetime(u32::MAX), Ok(Duration::from_secs(3600)));
        assert_eq!(judge(said("5.7.0.1", 0, 600), &[]), Err(Useless::Port));
    }
}
