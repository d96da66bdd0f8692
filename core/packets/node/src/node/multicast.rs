//! Packets to groups of hosts: each is copied to every peer that a rule of `multicast` names.
//!
//! A copy is the packet as it was, in the peer's own link. At the other end the same rule is asked
//! of the peer that brought it. Nobody passes a copy on, so none can go in a circle.

use std::net::IpAddr;

use policy::Peer;
use wire::superpacket::Superpacket;

use super::*;

/// Who gets copies, by the number of the rule, as long as rules and addresses stay as they are.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    /// `Node::rules` when it was made.
    made_at: Option<u32>,
    by_rule: Vec<Vec<PeerId>>,
}

impl Node {
    /// Copies a packet that the machine sends to a group. Each copy counts as a packet out.
    #[cold]
    pub(super) fn handle_multicast<O: Outbox>(
        &mut self,
        header: virtio::Header,
        packet: &Superpacket<'_>,
        now: Instant,
        out: &mut O,
    ) {
        let segments = packet.segments() as u64;
        let len = packet.header().len() + packet.payload().len();
        let Some(rule) = self.guard.admits_multicast(packet.packet(), len, now) else {
            return self.counters.drop(Reason::PolicyOut, segments);
        };
        self.find_receivers();
        let is_v4 = packet.destination().is_ipv4();
        let place = rule * 2 + usize::from(!is_v4);
        let Some(receivers) = self.receivers.by_rule.get_mut(place).map(std::mem::take) else {
            return self.counters.drop(Reason::NoRoute, segments);
        };
        if receivers.is_empty() {
            self.counters.drop(Reason::NoRoute, segments);
        }
        for (at, &id) in receivers.iter().enumerate() {
            if at > 0 {
                self.counters.packets_out += segments;
            }
            self.pass_on(id, header, packet, false, now, out);
        }
        self.receivers.by_rule[place] = receivers;
    }

    /// Looks up whose addresses the rules name: peers with a whole address that is a receiver's.
    fn find_receivers(&mut self) {
        if self.receivers.made_at == Some(self.rules) {
            return;
        }
        let rules = self.guard.multicast();
        let mut by_rule = vec![Vec::new(); rules.len() * 2];
        self.allowed.for_each(|prefix, owner| {
            let address = prefix.address();
            let is_v4 = address.is_ipv4();
            if prefix.bits() != if is_v4 { 32 } else { 128 } {
                return;
            }
            for (at, _) in rules.iter().enumerate().filter(|(_, r)| r.receivers.contains(address)) {
                by_rule[at * 2 + usize::from(!is_v4)].push(owner);
            }
        });
        for receivers in &mut by_rule {
            receivers.sort_unstable();
            receivers.dedup();
        }
        self.receivers = Receivers { made_at: Some(self.rules), by_rule };
    }
}

impl Guard {
    /// The number of the rule that lets this machine send a packet to a group.
    fn admits_multicast(&mut self, packet: &Packet<'_>, len: usize, now: Instant) -> Option<usize> {
        if !self.serves(packet.source()) {
            return None;
        }
        let filter = self.filter.as_mut()?;
        filter.judge_multicast(Direction::Out, None, packet, len, now.0 / 1_000_000).ok()
    }

    fn multicast(&self) -> &[policy::Multicast] {
        self.filter.as_ref().map_or(&[], |filter| filter.multicast())
    }

    /// Whether there are rules of multicast, and a packet to this address is theirs to judge.
    #[inline]
    pub(super) fn is_multicast(&self, to: IpAddr) -> bool {
        to.is_multicast() && self.filter.as_ref().is_some_and(|filter| filter.has_multicast())
    }

    /// Whether a copy that `id` sent goes on.
    ///
    /// # Errors
    /// [`Reason::PolicyIn`].
    #[cold]
    pub(super) fn admit_copy(
        &mut self,
        id: PeerId,
        packet: &Packet<'_>,
        len: usize,
        now: Instant,
    ) -> Result<(), Reason> {
        let now_ms = now.0 / 1_000_000;
        let filter = self.filter.as_mut().ok_or(Reason::PolicyIn)?;
        filter
            .judge_multicast(Direction::In, Some(Peer(id.0)), packet, len, now_ms)
            .map(|_| ())
            .map_err(|_| Reason::PolicyIn)
    }
}

#[cfg(test)]
mod tests;
