//! What is judged of a packet: which way it goes, and why it goes no further.

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a peer to this node or a network behind it.
    In,
    /// From this node or a network behind it to a peer.
    Out,
}

impl Direction {
    pub(crate) const fn opposite(self) -> Self {
        match self {
            Self::In => Self::Out,
            Self::Out => Self::In,
        }
    }
}

/// Why a packet goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// No rule allows it.
    Denied,
    /// Source or destination is multicast, broadcast, loopback, link-local or nothing (PF-17).
    NotUnicast,
    /// Source or destination is an IPv4 address in an IPv6 packet (PF-06).
    Embedded,
    /// It asks to be routed by its source.
    SourceRouted,
    /// Its transport header cannot be trusted (PF-04, PF-05).
    Malformed,
    /// An ICMP message that is neither echo nor error, a redirect, or of the other family.
    IcmpKind,
    /// An ICMP error about no living flow with this peer (PF-03).
    ErrorUnrelated,
    /// An ICMP error that tells of an MTU which no link has (PF-03).
    ErrorMtu,
    /// An echo reply that nobody asked for (PF-11).
    EchoUnasked,
    /// The end that was called opens a connection over the flow it was called on (PF-11).
    ReplyOpens,
    /// A later fragment without a first one that passed (PF-04).
    FragmentUnknown,
    /// More fragments of one datagram than [`crate::FRAGMENTS_MAX`].
    FragmentSurplus,
    /// A peer's number is not below [`crate::PEERS_MAX`].
    PeerNumber,
    /// A sender to a group of hosts is above the rate of its rule.
    GroupRate,
}

impl Reason {
    /// Every reason, in the order of their numbers, for tables of counters.
    pub const ALL: [Self; 14] = [
        Self::Denied,
        Self::NotUnicast,
        Self::Embedded,
        Self::SourceRouted,
        Self::Malformed,
        Self::IcmpKind,
        Self::ErrorUnrelated,
        Self::ErrorMtu,
        Self::EchoUnasked,
        Self::ReplyOpens,
        Self::FragmentUnknown,
        Self::FragmentSurplus,
        Self::PeerNumber,
        Self::GroupRate,
    ];
    /// How many reasons there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The reason's number, below `COUNT`.
    #[must_use]
    pub const fn number(self) -> usize {
        self as usize
    }

    /// A stable name for logs, metrics and tests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Denied => "policy-denied",
            Self::NotUnicast => "not-unicast",
            Self::Embedded => "embedded-address",
            Self::SourceRouted => "source-routed",
            Self::Malformed => "transport-malformed",
            Self::IcmpKind => "icmp-kind",
            Self::ErrorUnrelated => "icmp-error-unrelated",
            Self::ErrorMtu => "icmp-error-mtu",
            Self::EchoUnasked => "echo-unasked",
            Self::ReplyOpens => "reply-opens",
            Self::FragmentUnknown => "fragment-unknown",
            Self::FragmentSurplus => "fragment-surplus",
            Self::PeerNumber => "peer-number",
            Self::GroupRate => "group-rate",
        }
    }
}
