//! Which program carries packets between two gateways.

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
