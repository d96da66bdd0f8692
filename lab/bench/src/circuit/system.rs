//! Who is measured, and what each needs to be here.

use std::path::Path;

use anyhow::Result;

use super::chain::Chain;
use super::running::{Inside, Running};
use super::{openvpn, telescope, tor, warren};
use crate::vpn;

/// One that joins client and server over A, B and C, or leaves them as they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    Direct,
    Warren,
    /// Three WireGuards, each in the one before.
    Telescope,
    Tor,
    /// One tunnel from A to B over TCP: the control that must fail.
    OpenVpnTcp,
}

impl Kind {
    pub(super) const ALL: [Self; 5] =
        [Self::Direct, Self::Warren, Self::Telescope, Self::Tor, Self::OpenVpnTcp];

    /// Its name in every table.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "no VPN",
            Self::Warren => "Warren, circuit",
            Self::Telescope => "wireguard-go, nested",
            Self::Tor => "Tor",
            Self::OpenVpnTcp => "OpenVPN over TCP",
        }
    }

    /// What is missing here, and how to get it; none if it can be measured.
    pub(super) fn missing(self, warren: &Path) -> Option<String> {
        let lacks = |names: &[&str]| {
            let absent: Vec<&str> =
                names.iter().copied().filter(|name| vpn::find(name).is_none()).collect();
            (!absent.is_empty()).then(|| absent.join(", "))
        };
        let (absent, package) = match self {
            Self::Direct => return None,
            Self::Warren => {
                let is_there = warren.is_file();
                return (!is_there).then(|| format!("{} is not there", warren.display()));
            }
            Self::Telescope => (lacks(&["wireguard-go", "wg"])?, "wireguard-go wireguard-tools"),
            Self::Tor => (lacks(&["tor", "tor-gencert", "torsocks"])?, "tor torsocks"),
            Self::OpenVpnTcp => (lacks(&["openvpn", "openssl"])?, "openvpn openssl"),
        };
        Some(format!("no {absent} here; install {package}, or name it with WARREN_BENCH_NAME"))
    }

    pub(super) fn start(self, chain: &Chain, program: &Path) -> Result<Running> {
        match self {
            Self::Direct => Ok(Running::new(Inside::Client)),
            Self::Warren => warren::start(chain, program),
            Self::Telescope => telescope::start(chain),
            Self::Tor => tor::start(chain),
            Self::OpenVpnTcp => openvpn::start(chain),
        }
    }
}
