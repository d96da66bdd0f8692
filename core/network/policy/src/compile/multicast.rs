//! Rules of `multicast`, compiled: what each node enforces of them, and whom they join.

use super::*;
use crate::document::Cast;
use crate::judged::Direction;
use crate::rules::Multicast;

/// A rule with one set of ports.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    line: u32,
    groups: Ranges,
    services: Vec<Service>,
    sources: Ranges,
    receivers: Ranges,
    rate_bytes_s: u64,
}

impl Meanings<'_> {
    /// Only nodes send and get copies, not the networks behind them.
    pub(super) fn join(&mut self, cast: &Cast) -> Vec<Joined> {
        let nodes = Ranges::union(self.compiled.members.iter().map(|member| &member.addresses));
        let sources = self.union(&cast.sources, false).intersection(&nodes);
        let receivers = self.union(&cast.receivers, false).intersection(&nodes);
        let joined = |(services, groups): &(Vec<Service>, Vec<Prefix>)| Joined {
            line: cast.place.line,
            groups: Ranges::of_prefixes(groups.iter().copied()),
            services: services.clone(),
            sources: sources.clone(),
            receivers: receivers.clone(),
            rate_bytes_s: cast.rate_bytes_s,
        };
        cast.targets.iter().map(joined).collect()
    }
}

impl Joined {
    /// What a node with these addresses enforces: as a sender, as a receiver, as both, or nothing.
    fn told(&self, own: &Ranges) -> impl Iterator<Item = Multicast> + use<> {
        let rule = |direction, sources: Ranges, receivers: Ranges| Multicast {
            direction,
            line: self.line,
            groups: self.groups.clone(),
            services: self.services.clone(),
            sources,
            receivers,
            rate_bytes_s: self.rate_bytes_s,
        };
        let sends = self.sources.intersection(own);
        let gets = self.receivers.intersection(own);
        let both = [
            rule(Direction::Out, sends, self.receivers.difference(own)),
            rule(Direction::In, self.sources.difference(own), gets),
        ];
        both.into_iter().filter(|rule| !rule.sources.is_empty() && !rule.receivers.is_empty())
    }
}

impl Compiled {
    pub(super) fn multicast_for(&self, own: &Ranges) -> Vec<Multicast> {
        self.joined.iter().flat_map(|joined| joined.told(own)).collect()
    }

    /// Adds to `peers` those who send to a node, or get copies from it.
    pub(super) fn add_joined(&self, own: &Ranges, peers: &mut Bits) {
        for joined in &self.joined {
            let mut add = |others: &Ranges| {
                peers.add(&Bits::of(self.members.len(), |at| {
                    others.intersects(&self.members[at].addresses)
                }));
            };
            if joined.sources.intersects(own) {
                add(&joined.receivers);
            }
            if joined.receivers.intersects(own) {
                add(&joined.sources);
            }
        }
    }
}
