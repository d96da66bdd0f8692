//! News that all nodes get alike, relays and names; who a machine with its keys is; and what the
//! relay asks of the network: whose keys are good now, and who may know of whom.

use std::collections::BTreeSet;
use std::sync::Arc;

use control::{Answer, Code, Dns, Prefix, Relay};
use noise::PublicKey;

use super::{Change, Network, is_member};
use crate::resolvers::Resolvers;
use crate::store::Node;

impl Network {
    /// All relays of the map: the server's own is number 0.
    pub(crate) fn relays(&self) -> Vec<Relay> {
        self.shared.relays.clone()
    }

    /// Takes the relays beside the server's own as they were committed. That is rare, and no delta
    /// has a place for it: everybody gets a whole map.
    pub(crate) fn set_relays(&mut self, others: Vec<Relay>) {
        self.shared.relays.retain(|relay| relay.id == 0);
        self.shared.relays.extend(others);
        self.tell_everything();
    }

    /// Takes the resolvers of other names as they were committed.
    pub(crate) fn set_resolvers(&mut self, resolvers: Resolvers) {
        self.shared.resolvers = resolvers;
        self.tell_everything();
    }

    /// The ranges of the network's addresses, IPv4 first.
    pub(crate) const fn ranges(&self) -> [Prefix; 2] {
        [self.shared.pool.v4(), self.shared.pool.v6()]
    }

    /// The plain peers that a node carries.
    pub(crate) fn carried_by(&self, id: u64) -> Vec<u64> {
        let carried = self.nodes.values().filter(|node| node.gateway == Some(id));
        carried.map(|node| node.id).collect()
    }

    /// The domain of the network's names.
    pub(crate) fn domain(&self) -> &str {
        &self.shared.domain
    }

    /// What nodes are told of names.
    pub(super) fn dns(&self) -> Dns {
        let Resolvers { upstreams, zones, records } = self.shared.resolvers.clone();
        Dns {
            domain: self.shared.domain.clone(),
            resolvers: upstreams,
            zones: zones.into_iter().map(|zone| (zone.zone, zone.resolvers)).collect(),
            records: records.into_iter().map(|record| (record.name, record.addresses)).collect(),
        }
    }

    /// What no delta has changed: everybody gets a whole map.
    fn tell_everything(&mut self) {
        self.note(Change::Policy);
        self.log.clear();
        self.floor = self.sequence;
    }

    /// The node with this machine key and this node key (threat CO-05), or the refusal.
    pub(crate) fn member(
        &self,
        machine: &PublicKey,
        node_key: &PublicKey,
        now: u64,
    ) -> Result<Arc<Node>, Answer> {
        self.found(machine, node_key, |node| node.is_expired(now))
    }

    /// The same for who asks for another key, which may be over for a while.
    pub(crate) fn renewer(
        &self,
        machine: &PublicKey,
        node_key: &PublicKey,
        now: u64,
    ) -> Result<Arc<Node>, Answer> {
        self.found(machine, node_key, |node| !node.is_renewable(now))
    }

    fn found(
        &self,
        machine: &PublicKey,
        node_key: &PublicKey,
        is_over: impl FnOnce(&Node) -> bool,
    ) -> Result<Arc<Node>, Answer> {
        let node = self.machines.get(machine).and_then(|id| self.nodes.get(id));
        let Some(node) = node else {
            return Err(Answer::refused(
                Code::NotEnrolled,
                "this machine is not in the network, or was removed; join with a token",
            ));
        };
        if is_over(node) {
            let detail = "this node's key has expired; join again with a token";
            return Err(Answer::refused(Code::Expired, detail));
        }
        if node.node_key != *node_key {
            let detail = "this is not the key of this machine's node";
            return Err(Answer::refused(Code::WrongKey, detail));
        }
        Ok(Arc::clone(node))
    }

    /// Another number after every change, also over restarts.
    pub(crate) const fn version(&self) -> u64 {
        self.epoch << 32 | self.sequence & 0xffff_ffff
    }

    /// The WireGuard keys of all members in good standing.
    pub(crate) fn current_keys(&self, now: u64) -> BTreeSet<PublicKey> {
        let current = self.nodes.values().filter(|node| is_member(node, now));
        current.map(|node| node.node_key).collect()
    }

    /// Whether this is the WireGuard key of a member in good standing.
    pub(crate) fn is_current(&self, key: &PublicKey, now: u64) -> bool {
        self.with_key(key).is_some_and(|node| is_member(node, now))
    }

    /// Whether the member with one key may see the one with the other (threat RL-08).
    pub(crate) fn may_know(&mut self, one: &PublicKey, other: &PublicKey, now: u64) -> bool {
        let of = |key: &PublicKey| self.with_key(key).cloned();
        let Some((one, other)) = of(one).zip(of(other)) else { return false };
        self.next(&one, now).peers.has(other.id)
    }

    /// Why the policy lets nobody, or not this user, give these tags.
    pub(crate) fn refuses_tags(
        &mut self,
        user: Option<&str>,
        tags: &[String],
        now: u64,
    ) -> Option<String> {
        self.compile(now);
        self.book.refuses_tags(user, tags)
    }

    fn with_key(&self, key: &PublicKey) -> Option<&Arc<Node>> {
        self.nodes.get(self.keys.get(key)?)
    }
}
