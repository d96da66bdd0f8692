//! Why a packet may pass, or may not: the same sets as in the rules, asked with a line in hand.

use core::fmt;
use core::net::IpAddr;

use wire::ip::protocol;

use crate::address;
use crate::compile::{Compiled, Resolved};
use crate::directory::NodeId;
use crate::document::Section;
use crate::place::Place;
use crate::ranges::number;
use crate::rules::{Service, has_ports};

/// Rules that are named where one came close, at most.
const NEAR_MAX: usize = 8;

/// A rule, as a message names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleName {
    /// Its list.
    pub section: Section,
    /// Its number in that list, from 0.
    pub index: usize,
    /// Where it begins.
    pub place: Place,
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.section {
            Section::Open => f.write_str("there is no policy, so everything is allowed"),
            section => write!(f, "{}[{}] (line {})", section.name(), self.index, self.place.line),
        }
    }
}

/// What becomes of a first packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// It passes, and so do replies to it.
    Allowed {
        /// The first rule of the file that allows it.
        rule: RuleName,
        /// The node that sends it, or routes for its source.
        sender: NodeId,
        /// The node that receives it, or routes for its destination.
        receiver: NodeId,
    },
    /// It does not.
    Denied(Why),
}

/// Why nothing lets a packet pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// No rule can allow this address: it is not unicast, or hides another.
    NotPlain(IpAddr),
    /// No node has the source, and none routes for it.
    NoSender,
    /// No node has the destination, and none routes for it.
    NoReceiver,
    /// Both lie at one node: the packet does not cross the network.
    SameNode(NodeId),
    /// No rule has the source in its `src`.
    NoSource,
    /// These have the source, but none of them the destination; the first few.
    NoDestination(Vec<RuleName>),
    /// These have source and destination, but not this protocol and port; the first few, with
    /// what they allow.
    NoService(Vec<(RuleName, Vec<Service>)>),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPlain(address) => write!(f, "{address} is an address that no rule can allow"),
            Self::NoSender => write!(f, "no node has the source or an approved route to it"),
            Self::NoReceiver => write!(f, "no node has the destination or an approved route to it"),
            Self::SameNode(id) => write!(f, "source and destination are both at node {}", id.0),
            Self::NoSource => write!(f, "no rule has the source in its src"),
            Self::NoDestination(rules) => {
                write!(f, "no rule with the source in its src has the destination in its dst:")?;
                rules.iter().try_for_each(|rule| write!(f, " {rule}"))
            }
            Self::NoService(rules) => {
                write!(f, "only other protocols or ports are allowed:")?;
                for (rule, services) in rules {
                    write!(f, " {rule}")?;
                    services.iter().try_for_each(|service| write!(f, " {service}"))?;
                }
                Ok(())
            }
        }
    }
}

/// The addresses between which packets go, of those that two ends have: of one family, IPv4 first.
#[must_use]
pub fn pair(from: &[IpAddr], to: &[IpAddr]) -> Option<(IpAddr, IpAddr)> {
    let pairs = from.iter().flat_map(|a| to.iter().map(move |b| (*a, *b)));
    pairs.filter(|(a, b)| a.is_ipv4() == b.is_ipv4()).min_by_key(|(a, _)| a.is_ipv6())
}

/// The number of a protocol between addresses of this family: that of ICMP is another in each.
#[must_use]
pub const fn in_family(protocol: u8, address: IpAddr) -> u8 {
    match (protocol, address) {
        (protocol::ICMP | protocol::ICMPV6, IpAddr::V4(_)) => protocol::ICMP,
        (protocol::ICMP | protocol::ICMPV6, IpAddr::V6(_)) => protocol::ICMPV6,
        (other, _) => other,
    }
}

impl Resolved {
    pub(crate) fn name(&self) -> RuleName {
        RuleName { section: self.section, index: self.index, place: self.place }
    }

    /// Whether it allows this pair of addresses, for some protocol.
    pub(crate) fn joins(&self, compiled: &Compiled, source: u128, destination: u128) -> bool {
        if !self.sources.has(source) {
            return false;
        }
        let user = |address| {
            let at = compiled.by_address.get(&address)?;
            compiled.members[*at].node.user()
        };
        self.destinations.has(destination)
            || self.own_user && user(source).is_some_and(|own| user(destination) == Some(own))
    }

    fn serves(&self, protocol: u8, port: u16) -> bool {
        self.services.iter().any(|service| service.matches(protocol, port))
    }
}

impl Compiled {
    /// The first rule that lets `source` send `protocol` to `port` of `destination`, asking
    /// neither who has these addresses nor how they are reached.
    pub(crate) fn allowing(
        &self,
        source: u128,
        destination: u128,
        protocol: u8,
        port: u16,
    ) -> Option<RuleName> {
        let mut rules = self.rules.iter();
        let found = rules.find(|r| r.serves(protocol, port) && r.joins(self, source, destination));
        found.map(Resolved::name)
    }

    /// Which rule lets a first packet of `protocol` from `source` reach `port` of `destination`,
    /// or why none does. The port of a protocol without ports is of no meaning.
    #[must_use]
    pub fn explain(
        &self,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        port: u16,
    ) -> Explanation {
        let denied = Explanation::Denied;
        let plain = [source, destination].into_iter().find(|a| address::class(*a).is_err());
        if let Some(address) = plain {
            return denied(Why::NotPlain(address));
        }
        let Some(sender) = self.owner_of(source) else { return denied(Why::NoSender) };
        let Some(receiver) = self.owner_of(destination) else { return denied(Why::NoReceiver) };
        if sender == receiver {
            return denied(Why::SameNode(sender));
        }
        let from = number(source);
        let to = number(destination);
        let port = if has_ports(protocol) { port } else { 0 };
        if let Some(rule) = self.allowing(from, to, protocol, port) {
            return Explanation::Allowed { rule, sender, receiver };
        }
        denied(self.nearest(from, to))
    }

    fn nearest(&self, source: u128, destination: u128) -> Why {
        let with_source = || self.rules.iter().filter(|rule| rule.sources.has(source));
        let pair = with_source().filter(|rule| rule.joins(self, source, destination));
        let near: Vec<_> =
            pair.take(NEAR_MAX).map(|rule| (rule.name(), rule.services.clone())).collect();
        if !near.is_empty() {
            return Why::NoService(near);
        }
        let near: Vec<_> = with_source().take(NEAR_MAX).map(Resolved::name).collect();
        if near.is_empty() { Why::NoSource } else { Why::NoDestination(near) }
    }

    /// The node that has `address`, or else the one with the longest route to it; of several with
    /// the same route, the one with the lowest number (PF-12).
    #[must_use]
    pub fn owner_of(&self, address: IpAddr) -> Option<NodeId> {
        if let Some(at) = self.by_address.get(&number(address)) {
            return Some(self.members[*at].node.id);
        }
        let mut best: Option<(u8, NodeId)> = None;
        for (id, at) in &self.by_id {
            let member = &self.members[*at];
            let covering = member.routes.iter().filter(|route| route.contains(address));
            let longest = covering.map(|route| route.bits()).max();
            // A default route never covers what another node has, or what is reserved.
            let longest = longest.filter(|_| member.answers.contains(address));
            if let Some(bits) = longest.filter(|bits| best.is_none_or(|(most, _)| *bits > most)) {
                best = Some((bits, *id));
            }
        }
        best.map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_pair_is_of_one_family_and_ipv4_if_it_can_be() {
        let (v4, v6) = (ip("100.64.0.1"), ip("fd7a::1"));
        let (w4, w6) = (ip("100.64.0.2"), ip("fd7a::2"));
        assert_eq!(pair(&[v6, v4], &[w6, w4]), Some((v4, w4)));
        assert_eq!(pair(&[v4, v6], &[w6]), Some((v6, w6)));
        assert_eq!(pair(&[v4], &[w6]), None);
    }

    #[test]
    fn icmp_has_the_number_of_its_family_and_nothing_else_changes() {
        let (v4, v6) = (ip("100.64.0.1"), ip("fd7a::1"));
        assert_eq!([1, 58, 6, 17].map(|number| in_family(number, v4)), [1, 1, 6, 17]);
        assert_eq!([1, 58, 6, 17].map(|number| in_family(number, v6)), [58, 58, 6, 17]);
    }
}
