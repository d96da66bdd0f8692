//! Which program carries packets between two gateways.

/// Where links between gateways of ours are taken.
const PORT: u16 = 41_820;
/// Where OpenVPN's servers listen.
pub(crate) const OPENVPN_PORT: u16 = 1194;

/// What carries packets between two gateways.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// Warren's own links.
    #[default]
    Warren,
    /// IPsec by strongSwan.
    Ipsec,
    /// OpenVPN.
    OpenVpn,
}

impl Backend {
    /// All that there are.
    pub const ALL: [Self; 3] = [Self::Warren, Self::Ipsec, Self::OpenVpn];

    /// Its word in a site file.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Warren => "warren",
            Self::Ipsec => "ipsec",
            Self::OpenVpn => "openvpn",
        }
    }

    /// The UDP ports at which its gateways are reached, in the order of their texts.
    const fn ports(self) -> &'static [u16] {
        match self {
            Self::Warren => &[PORT],
            Self::Ipsec => &[4500, 500],
            Self::OpenVpn => &[OPENVPN_PORT],
        }
    }

    /// What a gateway at a cloud lets in, in the order in which a provider's answer is written:
    /// what its site's machines send out, and what other gateways send.
    pub(crate) fn ingress(self, cidr: &str) -> String {
        let ports = self.ports().iter().map(|port| format!(",udp {port} 0.0.0.0/0"));
        format!("all {cidr}{}", ports.collect::<String>())
    }

    /// The program that does it.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::Warren => "Warren",
            Self::Ipsec => "strongSwan",
            Self::OpenVpn => "OpenVPN",
        }
    }
}
