//! What somebody on every path sees: how many messages of each kind, and which receiver indices
//! belong to one handshake. Enough to tell whether two hosts send on the same session. Only whose
//! second index one is has to be asked of the host, since it is told in secret.

use std::collections::{BTreeMap, BTreeSet};

use node::Node;
use noise::Index;
use wire::wireguard::{self, Message};

use super::HostId;
use super::story::Kind;

/// Handshakes remembered, at most; a world that has more is too long to watch.
const PAIRS_MAX: usize = 1 << 16;

/// The watcher.
#[derive(Debug, Default)]
pub struct Watch {
    sent: BTreeMap<(HostId, Kind), u64>,
    /// Initiator's and responder's index of every response seen.
    pairs: BTreeSet<(u32, u32)>,
    /// The session's first receiver index of the last transport datagram from one host to another.
    latest: BTreeMap<(HostId, HostId), u32>,
}

impl Watch {
    /// Sees a datagram leave.
    pub(super) fn sent(&mut self, from: HostId, kind: Kind, datagram: &[u8]) {
        *self.sent.entry((from, kind)).or_default() += 1;
        if let Ok(Message::Response(message)) = wireguard::classify(datagram)
            && self.pairs.len() < PAIRS_MAX
        {
            let response = wireguard::Response(message);
            self.pairs.insert((response.receiver(), response.sender()));
        }
    }

    /// Sees a datagram arrive at a host with this node.
    pub(super) fn arrived(&mut self, from: HostId, to: HostId, datagram: &[u8], node: &Node) {
        if let Ok(Message::Transport { receiver, .. }) = wireguard::classify(datagram) {
            let first = node.session_of(Index(receiver)).map_or(receiver, |index| index.0);
            self.latest.insert((from, to), first);
        }
    }

    /// Datagrams of a kind that a host has sent.
    #[must_use]
    pub fn count(&self, from: HostId, kind: Kind) -> u64 {
        self.sent.get(&(from, kind)).copied().unwrap_or(0)
    }

    /// Datagrams of a kind that all hosts have sent.
    #[must_use]
    pub fn total(&self, kind: Kind) -> u64 {
        self.sent.iter().filter(|entry| entry.0.1 == kind).map(|entry| entry.1).sum()
    }

    /// Whether what two hosts sent each other last was on one session.
    #[must_use]
    pub fn agree(&self, a: HostId, b: HostId) -> bool {
        let (Some(&at_b), Some(&at_a)) = (self.latest.get(&(a, b)), self.latest.get(&(b, a)))
        else {
            return false;
        };
        self.pairs.contains(&(at_a, at_b)) || self.pairs.contains(&(at_b, at_a))
    }
}
