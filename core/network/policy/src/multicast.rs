//! Multicast: which packets to a group pass, and for whom they are copied.
//!
//! A network of links has no multicast of its own, and no rule of `acls` or `grants` lets any
//! pass (PF-17). A rule of `multicast` names groups, who may send to them, who gets a copy, and how
//! much of it each sender may send. The sender's node makes the copies, one for each receiver.
//! Both ends hold the rule: the sender for all that it copies, a receiver for each peer.
//!
//! Only whole UDP packets pass: what finds others by multicast (mDNS, DDS, WS-Discovery) sends
//! nothing else, and a fragment cannot be judged by its port.

use std::collections::BTreeMap;

use wire::packet::{Fragment, Packet, Transport};

use crate::address;
use crate::judged::{Direction, Reason};
use crate::ranges::number;
use crate::rules::Multicast;

/// Rules of `multicast` that a file may have, and a node takes.
pub const MULTICAST_MAX: usize = 64;
/// What a sender may send to the groups of a rule that names no rate: a megabit a second.
pub(crate) const RATE_BYTES_S: u64 = 125_000;
/// Peers whose rates are remembered for all rules together; who would be one more is dropped.
const SENDERS_MAX: usize = 4096;

impl Multicast {
    fn takes(&self, direction: Direction, source: u128, group: u128, port: u16) -> bool {
        self.direction == direction
            && self.groups.has(group)
            && self.sources.has(source)
            && self.services.iter().any(|service| service.matches(UDP, port))
    }
}

const UDP: u8 = wire::ip::protocol::UDP;

/// What may be sent now: at most what a second brings.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    bytes: u64,
    at_ms: u64,
}

/// The rules in force, and what is left of their rates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Casts {
    rules: Vec<Multicast>,
    /// By rule and peer; what a node itself sends stands at no peer.
    left: BTreeMap<(usize, Option<u32>), Bucket>,
}

impl Casts {
    /// Sets the rules; rates begin anew with any change.
    pub(crate) fn set(&mut self, rules: &[Multicast]) {
        if self.rules != rules {
            self.rules = rules.to_vec();
            self.left.clear();
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub(crate) fn rules(&self) -> &[Multicast] {
        &self.rules
    }

    /// Forgets a peer, whose number may be another's soon.
    pub(crate) fn forget(&mut self, peer: u32) {
        self.left.retain(|(_, known), _| *known != Some(peer));
    }

    /// The place of the rule that lets a packet of `len` bytes pass; its rate is charged.
    pub(crate) fn judge(
        &mut self,
        direction: Direction,
        peer: Option<u32>,
        packet: &Packet<'_>,
        len: usize,
        now_ms: u64,
    ) -> Result<usize, Reason> {
        address::class(packet.source())?;
        if packet.asks_source_route() {
            return Err(Reason::SourceRouted);
        }
        if packet.fragment() != Fragment::Whole {
            return Err(Reason::FragmentUnknown);
        }
        let transport = packet.transport().map_err(|_| Reason::Malformed)?;
        let Transport::Udp(udp) = transport else { return Err(Reason::NotUnicast) };
        let source = number(packet.source());
        let group = number(packet.destination());
        let port = udp.destination_port();
        let place = self.rules.iter().position(|rule| rule.takes(direction, source, group, port));
        let place = place.ok_or(Reason::NotUnicast)?;
        self.charge(place, peer, len as u64, now_ms)?;
        Ok(place)
    }

    fn charge(
        &mut self,
        place: usize,
        peer: Option<u32>,
        len: u64,
        now_ms: u64,
    ) -> Result<(), Reason> {
        let rate = self.rules[place].rate_bytes_s;
        let is_full = self.left.len() >= SENDERS_MAX;
        if is_full && !self.left.contains_key(&(place, peer)) {
            return Err(Reason::GroupRate);
        }
        let whole = Bucket { bytes: rate, at_ms: now_ms };
        let bucket = self.left.entry((place, peer)).or_insert(whole);
        let passed_ms = now_ms.saturating_sub(bucket.at_ms).min(1000);
        let gained = rate * passed_ms / 1000;
        if gained > 0 {
            bucket.bytes = rate.min(bucket.bytes + gained);
            bucket.at_ms = now_ms;
        }
        bucket.bytes = bucket.bytes.checked_sub(len).ok_or(Reason::GroupRate)?;
        Ok(())
    }
}

/// A rate as the policy file has it, in bytes a second: `500kbit`, `2mbit`.
pub(crate) fn rate(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = text.split_at(digits);
    let bits = match unit {
        "kbit" => 1_000,
        "mbit" => 1_000_000,
        _ => return None,
    };
    let count: u64 = count.parse().ok().filter(|count| (1..=10_000).contains(count))?;
    Some(count * bits / 8)
}

#[cfg(test)]
mod tests;
