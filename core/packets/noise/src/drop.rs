//! Why a datagram was not accepted. Every refusal has a reason, and every reason can be counted.

/// A reason to drop a datagram, or to refuse to act on one. None of them is ever answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Drop {
    /// Too short, too long or of no known type; the reserved bytes are not zero.
    Malformed,
    /// mac1 is wrong: the sender does not know our public key.
    BadMac1,
    /// Under load, and the source has spent its tokens.
    RateLimited,
    /// Under load, and no further source can be tracked.
    LimiterFull,
    /// Under load, and as many cookies were sent in this second as may be (DP-01).
    CookieBudget,
    /// A cookie reply that answers nothing we sent, or does not decrypt.
    BadCookie,
    /// The handshake message does not decrypt, or a key in it has low order.
    BadHandshake,
    /// The sender is no peer of ours. Found by the caller, after `read_initiation`.
    UnknownPeer,
    /// An initiation made with our own static key.
    OwnKey,
    /// The initiation's timestamp is not greater than the last one accepted: a replay (DP-07).
    OldTimestamp,
    /// More than 50 initiations a second from this peer (DP-07).
    InitiationFlood,
    /// A response to no initiation in flight: late, repeated, or for an older one (DP-08).
    UnexpectedResponse,
    /// No live session has this receiver index.
    UnknownIndex,
    /// The session is past 180 s or past its message limit.
    ExpiredSession,
    /// The packet counter was seen before, or is below the window (DP-12).
    Replayed,
    /// The packet does not authenticate (DP-16).
    BadTag,
    /// No index could be allocated: the table holds its maximum.
    NoIndex,
}

impl Drop {
    /// Every reason, in the order of their numbers, for tables of counters.
    pub const ALL: [Self; 17] = [
        Self::Malformed,
        Self::BadMac1,
        Self::RateLimited,
        Self::LimiterFull,
        Self::CookieBudget,
        Self::BadCookie,
        Self::BadHandshake,
        Self::UnknownPeer,
        Self::OwnKey,
        Self::OldTimestamp,
        Self::InitiationFlood,
        Self::UnexpectedResponse,
        Self::UnknownIndex,
        Self::ExpiredSession,
        Self::Replayed,
        Self::BadTag,
        Self::NoIndex,
    ];
    /// How many reasons there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The reason's number, below `COUNT`.
    #[must_use]
    pub const fn number(self) -> usize {
        self as usize
    }

    /// The reason in words, as counters and logs show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::BadMac1 => "bad mac1",
            Self::RateLimited => "source over its handshake rate",
            Self::LimiterFull => "handshake limiter full",
            Self::CookieBudget => "cookie budget spent",
            Self::BadCookie => "bad cookie reply",
            Self::BadHandshake => "bad handshake",
            Self::UnknownPeer => "unknown peer",
            Self::OwnKey => "own key",
            Self::OldTimestamp => "old timestamp",
            Self::InitiationFlood => "too many initiations",
            Self::UnexpectedResponse => "unexpected response",
            Self::UnknownIndex => "unknown index",
            Self::ExpiredSession => "expired session",
            Self::Replayed => "replayed",
            Self::BadTag => "bad tag",
            Self::NoIndex => "index table full",
        }
    }
}

impl core::fmt::Display for Drop {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Drop {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places_in_the_table_and_names_differ() {
        for (place, reason) in Drop::ALL.iter().enumerate() {
            assert_eq!(reason.number(), place);
        }
        let names: std::collections::BTreeSet<_> = Drop::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), Drop::COUNT);
    }
}
