//! Why a packet was not rewritten: each reason is counted.

/// Why a packet whose addresses would change does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Refusal {
    /// Its headers cannot be read.
    Malformed,
    /// A protocol of which nobody here knows whether and where it counts the addresses.
    Protocol,
    /// A header signs or counts the addresses: authentication (RFC 4302), mobility and their like.
    Bound,
    /// It asks to be routed by its source: there are more addresses than two.
    Routed,
    /// The checksum is not in what is there: a first fragment that is too short.
    Cut,
    /// An ICMP message that says addresses in its body: a redirect, or neighbour discovery.
    Message,
    /// The packet that an ICMP error quotes cannot be read.
    Quote,
}

impl Refusal {
    /// Every reason once, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Malformed,
        Self::Protocol,
        Self::Bound,
        Self::Routed,
        Self::Cut,
        Self::Message,
        Self::Quote,
    ];

    /// Position in [`Self::ALL`], for arrays of counters.
    #[must_use]
    pub const fn number(self) -> usize {
        self as usize
    }

    /// A stable name for counters and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "translate-malformed",
            Self::Protocol => "translate-protocol",
            Self::Bound => "translate-bound",
            Self::Routed => "translate-routed",
            Self::Cut => "translate-cut",
            Self::Message => "translate-message",
            Self::Quote => "translate-quote",
        }
    }
}
