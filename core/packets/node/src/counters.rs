//! Counters: every packet is in one. Packets in = delivered + staged + the sum of all drops.

use link::Refusal;
use noise::Drop;

/// Why a packet or datagram did not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Out: not an IP packet, or its virtio header lies (threat PF-16).
    PacketMalformed,
    /// Out: no peer owns its destination.
    NoRoute,
    /// Out: the peer's endpoint is not known.
    NoEndpoint,
    /// Out: too many wait for a session; the oldest goes (threat DP-22).
    StageOverflow,
    /// Out: the peer did not answer in 90 s, or was removed.
    StageExpired,
    /// Out: the shell takes no datagram of that size, or the session's counter ended.
    NotSealed,
    /// Out: larger than what fits through the path; our machine is told so.
    PacketTooBig,
    /// Out: our own datagram, on its way back to a peer that it was sealed for (threat NT-07).
    Loop,
    /// Out: the policy does not let it pass, as `Node::policy` knows, or it is from an address that
    /// this machine does not answer for.
    PolicyOut,
    /// Out: it was of a circuit; `circuit::Counters` knows why.
    Circuit,
    /// Out: its addresses cannot be rewritten for the peer; `Node::refusals` knows why.
    NotTranslatedOut,
    /// Out: more waits for the line than there is room for in its class.
    LineFull,
    /// Out: a queue for the line stands, and its flow is told so (RFC 8289).
    LineQueue,
    /// In: refused by the protocol.
    Protocol(Drop),
    /// In: what was sealed is not a whole IP packet.
    InnerMalformed,
    /// In: a frame of a kind that this version does not know (first nibble neither 4 nor 6).
    UnknownFrame,
    /// In: the inner source is not the sender's (threat PF-01).
    SourceNotAllowed,
    /// In: too many handshake messages wait (threat DP-01).
    HandshakesFull,
    /// In: we have no private key, or no longer the one that the message was for.
    NoIdentity,
    /// In: the policy does not let it pass, as `Node::policy` knows, or it is for an address that
    /// this machine does not answer for.
    PolicyIn,
    /// In: its datagram met congestion, and its flow heeds no mark (RFC 6040).
    Congestion,
    /// In: its addresses cannot be rewritten; `Node::refusals` knows why.
    NotTranslatedIn,
}

const OWN: usize = 21;
/// How many of them are outwards.
const OUT: usize = 13;

impl Reason {
    /// Every reason once, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        let own = [
            Self::PacketMalformed,
            Self::NoRoute,
            Self::NoEndpoint,
            Self::StageOverflow,
            Self::StageExpired,
            Self::NotSealed,
            Self::PacketTooBig,
            Self::Loop,
            Self::PolicyOut,
            Self::Circuit,
            Self::NotTranslatedOut,
            Self::LineFull,
            Self::LineQueue,
            Self::InnerMalformed,
            Self::UnknownFrame,
            Self::SourceNotAllowed,
            Self::HandshakesFull,
            Self::NoIdentity,
            Self::PolicyIn,
            Self::Congestion,
            Self::NotTranslatedIn,
        ];
        own.into_iter().chain(Drop::ALL.into_iter().map(Self::Protocol))
    }

    fn number(self) -> usize {
        match self {
            Self::PacketMalformed => 0,
            Self::NoRoute => 1,
            Self::NoEndpoint => 2,
            Self::StageOverflow => 3,
            Self::StageExpired => 4,
            Self::NotSealed => 5,
            Self::PacketTooBig => 6,
            Self::Loop => 7,
            Self::PolicyOut => 8,
            Self::Circuit => 9,
            Self::NotTranslatedOut => 10,
            Self::LineFull => 11,
            Self::LineQueue => 12,
            Self::InnerMalformed => 13,
            Self::UnknownFrame => 14,
            Self::SourceNotAllowed => 15,
            Self::HandshakesFull => 16,
            Self::NoIdentity => 17,
            Self::PolicyIn => 18,
            Self::Congestion => 19,
            Self::NotTranslatedIn => 20,
            Self::Protocol(drop) => OWN + drop.number(),
        }
    }

    /// A stable name for logs, metrics and tests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PacketMalformed => "packet-malformed",
            Self::NoRoute => "no-route",
            Self::NoEndpoint => "no-endpoint",
            Self::StageOverflow => "stage-overflow",
            Self::StageExpired => "stage-expired",
            Self::NotSealed => "not-sealed",
            Self::PacketTooBig => "packet-too-big",
            Self::Loop => "routing-loop",
            Self::PolicyOut => "policy-out",
            Self::Circuit => "circuit",
            Self::InnerMalformed => "inner-malformed",
            Self::UnknownFrame => "unknown-frame",
            Self::SourceNotAllowed => "source-not-allowed",
            Self::HandshakesFull => "handshakes-full",
            Self::NoIdentity => "no-identity",
            Self::PolicyIn => "policy-in",
            Self::Congestion => "congestion",
            Self::NotTranslatedOut => "not-translated-out",
            Self::LineFull => "line-full",
            Self::LineQueue => "line-queue",
            Self::NotTranslatedIn => "not-translated-in",
            Self::Protocol(drop) => drop.name(),
        }
    }
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoEndpoint => Self::NoEndpoint,
            Refusal::TooBig => Self::PacketTooBig,
            Refusal::NoRoom | Refusal::Exhausted => Self::NotSealed,
        }
    }
}

/// Counts since the start, in segments outwards and in datagrams inwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Segments that the machine handed to us.
    pub packets_out: u64,
    /// Segments sealed, keepalives not counted.
    pub sealed: u64,
    /// Datagrams that came.
    pub datagrams_in: u64,
    /// Datagrams that were one inner packet, delivered to the machine.
    pub delivered: u64,
    /// Packets and chunks of superpackets delivered that came in frames.
    pub framed: u64,
    /// Keepalives received.
    pub keepalives_in: u64,
    /// Frames that peers sent.
    pub frames_in: u64,
    /// Handshake messages and cookies that were accepted or answered.
    pub handshakes_in: u64,
    /// Answers of STUN servers.
    pub reach_in: u64,
    drops: [u64; OWN + Drop::COUNT],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            packets_out: 0,
            sealed: 0,
            datagrams_in: 0,
            delivered: 0,
            framed: 0,
            keepalives_in: 0,
            frames_in: 0,
            handshakes_in: 0,
            reach_in: 0,
            drops: [0; OWN + Drop::COUNT],
        }
    }
}

impl Counters {
    /// How many were dropped for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: Reason) -> u64 {
        self.drops[reason.number()]
    }

    /// Every reason that occurred, with its count.
    pub fn drops(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::all().map(|reason| (reason, self.dropped(reason))).filter(|entry| entry.1 > 0)
    }

    /// Segments on their way out that were dropped, for whatever reason.
    #[must_use]
    pub fn dropped_out(&self) -> u64 {
        self.drops[..OUT].iter().sum()
    }

    /// Datagrams on their way in that were dropped, for whatever reason.
    #[must_use]
    pub fn dropped_in(&self) -> u64 {
        self.drops[OUT..].iter().sum()
    }

    pub(crate) fn drop(&mut self, reason: Reason, count: u64) {
        self.drops[reason.number()] += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_number_and_a_name_of_its_own() {
        let all: Vec<Reason> = Reason::all().collect();
        for (number, reason) in all.iter().enumerate() {
            assert_eq!(reason.number(), number, "{reason:?}");
        }
        let mut names: Vec<_> = all.iter().map(|reason| reason.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        assert_eq!(all.len(), OWN + Drop::COUNT);
    }
}
