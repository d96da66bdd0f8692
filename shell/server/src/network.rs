//! What the server holds in memory: the nodes as they were committed, who is in touch, and the
//! changes of this epoch, from which every node's map and deltas are made.
//!
//! Nothing is changed here before the store committed it, and the store's lock is held meanwhile,
//! so that changes have the order of the commits (threat CO-16). The log of changes is bounded;
//! whoever is behind its beginning is told everything again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use control::address::Pool;
use control::limits::ENDPOINTS_MAX;
use control::{
    Answer, Code, Delta, Dns, HostInfo, Map, NodeId, Peer, Policy, Poll, SelfNode, Statement,
};
use noise::PublicKey;

use crate::policy;
use crate::store::Node;

/// Changes that are remembered: a node that is further behind gets a whole map.
const LOG_MAX: usize = 8192;
/// A node without a poll is away after this time, in seconds.
const AWAY_AFTER_S: u64 = 15;

/// One change, and whether it is of what the node itself is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// Of a node; `own` if its place in the books changed, not only its reports.
    Node { id: u64, own: bool },
    /// Of everything.
    Everything,
}

#[derive(Clone, Copy, Default)]
struct Presence {
    polls: u32,
    seen: u64,
    is_online: bool,
}

/// What a poll is told.
#[derive(Debug)]
pub(crate) enum News {
    /// A map or a delta, to be signed.
    Statement(Statement),
    /// Nothing since.
    Nothing,
    /// Not a member, or no longer.
    Refused(Answer),
}

/// What a whole network has in common.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) pool: Pool,
    pub(crate) domain: String,
    pub(crate) stun: Vec<String>,
}

/// The network in memory.
pub(crate) struct Network {
    shared: Shared,
    epoch: u64,
    sequence: u64,
    nodes: BTreeMap<u64, Arc<Node>>,
    machines: BTreeMap<PublicKey, u64>,
    presence: BTreeMap<u64, Presence>,
    expired: BTreeSet<u64>,
    log: VecDeque<(u64, Change)>,
    /// The sequence before the first change in `log`.
    floor: u64,
    policy: Policy,
}

impl Network {
    pub(crate) fn new(
        shared: Shared,
        epoch: u64,
        nodes: Vec<Node>,
        policy: Policy,
        now: u64,
    ) -> Self {
        let machines = nodes.iter().map(|node| (node.machine_key, node.id)).collect();
        // Who was in touch before the start has time to come back.
        let seen = Presence { seen: now, ..Presence::default() };
        let presence = nodes.iter().map(|node| (node.id, seen)).collect();
        let expired = nodes.iter().filter(|node| node.is_expired(now)).map(|n| n.id).collect();
        let nodes = nodes.into_iter().map(|node| (node.id, Arc::new(node))).collect();
        Self {
            shared,
            epoch,
            sequence: 1,
            nodes,
            machines,
            presence,
            expired,
            log: VecDeque::new(),
            floor: 1,
            policy,
        }
    }

    /// The sequence of the latest change.
    pub(crate) const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Takes a node as it was committed. `own` if what the node itself is told changed.
    pub(crate) fn put(&mut self, node: Node, own: bool, now: u64) {
        let id = node.id;
        self.machines.insert(node.machine_key, id);
        if node.is_expired(now) {
            self.expired.insert(id);
        } else {
            self.expired.remove(&id);
        }
        let fresh = || Presence { seen: now, ..Presence::default() };
        self.presence.entry(id).or_insert_with(fresh);
        self.nodes.insert(id, Arc::new(node));
        self.note(Change::Node { id, own });
    }

    /// Takes the removal of a node that was committed.
    pub(crate) fn remove(&mut self, id: u64) {
        if let Some(node) = self.nodes.remove(&id) {
            self.machines.remove(&node.machine_key);
            self.presence.remove(&id);
            self.expired.remove(&id);
            self.note(Change::Node { id, own: true });
        }
    }

    /// Takes a policy that was committed. Everybody is told everything.
    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        self.note(Change::Everything);
    }

    /// A poll of this node begins.
    pub(crate) fn arrive(&mut self, id: u64, now: u64) {
        let Some(presence) = self.presence.get_mut(&id) else { return };
        presence.polls += 1;
        presence.seen = now;
        if !presence.is_online {
            presence.is_online = true;
            self.note(Change::Node { id, own: false });
        }
    }

    /// A poll of this node ended. It is away only when it does not come back for a while, so an
    /// old connection that ends late says nothing of a new one (threat CO-15).
    pub(crate) fn leave(&mut self, id: u64, now: u64) {
        if let Some(presence) = self.presence.get_mut(&id) {
            presence.polls = presence.polls.saturating_sub(1);
            presence.seen = now;
        }
    }

    /// Finds who went away and whose key expired: the nodes that just went away.
    pub(crate) fn sweep(&mut self, now: u64) -> Vec<u64> {
        let mut away = Vec::new();
        for (id, presence) in &mut self.presence {
            let is_gone = presence.polls == 0 && now >= presence.seen.saturating_add(AWAY_AFTER_S);
            if presence.is_online && is_gone {
                presence.is_online = false;
                away.push(*id);
            }
        }
        for id in &away {
            self.note(Change::Node { id: *id, own: false });
        }
        let over = self.nodes.values().filter(|node| node.is_expired(now)).map(|node| node.id);
        let over: Vec<u64> = over.filter(|id| !self.expired.contains(id)).collect();
        for id in over {
            self.expired.insert(id);
            self.note(Change::Node { id, own: true });
        }
        away
    }

    /// Ephemeral nodes that have been away for `after_s`.
    pub(crate) fn abandoned(&self, now: u64, after_s: u64) -> Vec<u64> {
        let is_abandoned = |node: &&Arc<Node>| {
            let presence = self.presence.get(&node.id).copied().unwrap_or_default();
            node.ephemeral && presence.polls == 0 && now >= presence.seen.saturating_add(after_s)
        };
        self.nodes.values().filter(is_abandoned).map(|node| node.id).collect()
    }

    /// Whether a node is in touch, and when it last was.
    pub(crate) fn presence(&self, id: u64) -> (bool, Option<u64>) {
        self.presence.get(&id).map_or((false, None), |p| (p.is_online, Some(p.seen)))
    }

    /// Whether this machine is in the books.
    pub(crate) fn is_machine(&self, machine: &PublicKey) -> bool {
        self.machines.contains_key(machine)
    }

    /// What a node last said of itself.
    pub(crate) fn host_of(&self, id: u64) -> Option<HostInfo> {
        self.nodes.get(&id).map(|node| node.host.clone())
    }

    /// The node with this machine key and this node key (threat CO-05), or the refusal.
    pub(crate) fn member(
        &self,
        machine: &PublicKey,
        node_key: &PublicKey,
        now: u64,
    ) -> Result<Arc<Node>, Answer> {
        let node = self.machines.get(machine).and_then(|id| self.nodes.get(id));
        let Some(node) = node else {
            return Err(Answer::refused(
                Code::NotEnrolled,
                "this machine is not in the network, or was removed; join with a token",
            ));
        };
        if node.is_expired(now) {
            let detail = "this node's key has expired; join again with a token";
            return Err(Answer::refused(Code::Expired, detail));
        }
        if node.node_key != *node_key {
            let detail = "this is not the key of this machine's node";
            return Err(Answer::refused(Code::WrongKey, detail));
        }
        Ok(Arc::clone(node))
    }

    /// What this machine is told that has a map of `poll`.
    pub(crate) fn news(
        &self,
        machine: &PublicKey,
        node_key: &PublicKey,
        poll: &Poll,
        now: u64,
    ) -> News {
        let viewer = match self.member(machine, node_key, now) {
            Ok(node) => node,
            Err(refused) => return News::Refused(refused),
        };
        let is_known = poll.epoch == self.epoch
            && poll.sequence >= self.floor
            && poll.sequence <= self.sequence;
        if !is_known {
            return News::Statement(Statement::Map(Box::new(self.whole(&viewer, now))));
        }
        let first = self.log.partition_point(|(sequence, _)| *sequence <= poll.sequence);
        let mut changed = BTreeSet::new();
        for (_, change) in self.log.range(first..) {
            match *change {
                Change::Everything => {
                    return News::Statement(Statement::Map(Box::new(self.whole(&viewer, now))));
                }
                Change::Node { id, own } if id == viewer.id => {
                    if own {
                        // Approval and tags change what it may see.
                        let whole = self.whole(&viewer, now);
                        return News::Statement(Statement::Map(Box::new(whole)));
                    }
                }
                Change::Node { id, .. } => {
                    changed.insert(id);
                }
            }
        }
        if changed.is_empty() {
            return News::Nothing;
        }
        News::Statement(Statement::Delta(Box::new(self.delta(&viewer, poll, &changed, now))))
    }

    fn delta(&self, viewer: &Node, poll: &Poll, changed: &BTreeSet<u64>, now: u64) -> Delta {
        let seen = |id: &u64| self.nodes.get(id).filter(|node| self.may_see(viewer, node, now));
        Delta {
            machine: viewer.machine_key,
            epoch: self.epoch,
            from: poll.sequence,
            to: self.sequence,
            made_unix_s: now,
            me: None,
            upsert: changed.iter().filter_map(seen).map(|node| self.peer(node)).collect(),
            remove: changed.iter().filter(|id| seen(id).is_none()).map(|id| NodeId(*id)).collect(),
        }
    }

    fn whole(&self, viewer: &Node, now: u64) -> Map {
        let peers = self.nodes.values().filter(|node| self.may_see(viewer, node, now));
        Map {
            machine: viewer.machine_key,
            epoch: self.epoch,
            sequence: self.sequence,
            made_unix_s: now,
            me: SelfNode {
                id: NodeId(viewer.id),
                name: viewer.name.clone(),
                addresses: self.addresses(viewer),
                tags: viewer.tags.clone(),
                routes: viewer.routes(),
                approved: viewer.approved,
                expires_unix_s: viewer.expires,
            },
            peers: peers.map(|node| self.peer(node)).collect(),
            dns: Dns { domain: self.shared.domain.clone(), ..Dns::default() },
            policy: self.policy.clone(),
            relays: Vec::new(),
            stun: self.shared.stun.clone(),
        }
    }

    /// Both members in good standing, and the policy lets one talk to the other (threat CO-14).
    fn may_see(&self, viewer: &Node, other: &Node, now: u64) -> bool {
        let is_member = |node: &Node| node.approved && !node.is_expired(now);
        viewer.id != other.id
            && is_member(viewer)
            && is_member(other)
            && policy::may_meet(&self.policy, viewer, other)
    }

    fn peer(&self, node: &Node) -> Peer {
        let mut endpoints = node.host.endpoints.clone();
        endpoints.truncate(ENDPOINTS_MAX);
        Peer {
            id: NodeId(node.id),
            name: node.name.clone(),
            key: node.node_key,
            addresses: self.addresses(node),
            endpoints,
            relay: node.host.relay,
            tags: node.tags.clone(),
            routes: node.routes(),
            online: self.presence(node.id).0,
            expires_unix_s: node.expires,
        }
    }

    pub(crate) fn addresses(&self, node: &Node) -> Vec<IpAddr> {
        let (v4, v6) = self.shared.pool.addresses(node.number);
        vec![v4.into(), v6.into()]
    }

    fn note(&mut self, change: Change) {
        self.sequence += 1;
        self.log.push_back((self.sequence, change));
        while self.log.len() > LOG_MAX {
            if let Some((sequence, _)) = self.log.pop_front() {
                self.floor = sequence;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use control::address;
    use proptest::prelude::*;

    use super::*;

    const NOW: u64 = 1_800_000_000;
    const NOBODY: [u64; 0] = [];

    fn key(id: u64, round: u8) -> PublicKey {
        let mut bytes = [round; 32];
        bytes[..8].copy_from_slice(&id.to_be_bytes());
        PublicKey(bytes)
    }

    fn node(id: u64) -> Node {
        Node {
            id,
            machine_key: key(id, 1),
            node_key: key(id, 2),
            name: format!("n{id}"),
            number: id as u32,
            user: None,
            tags: Vec::new(),
            ephemeral: false,
            approved: true,
            created: NOW,
            expires: None,
            last_seen: None,
            host: HostInfo::default(),
            approved_routes: Vec::new(),
        }
    }

    fn network() -> Network {
        let v4 = address::DEFAULT_V4.parse().unwrap();
        let pool = Pool::new(v4, "fd00::/48".parse().unwrap()).unwrap();
        let shared = Shared { pool, domain: "warren.internal".to_owned(), stun: Vec::new() };
        Network::new(shared, 5, vec![node(1)], Policy::default(), NOW)
    }

    fn news(network: &Network, map: Option<&Map>, now: u64) -> News {
        let poll = map.map_or_else(Poll::default, |map| Poll {
            epoch: map.epoch,
            sequence: map.sequence,
            wait_ms: 0,
        });
        network.news(&key(1, 1), &key(1, 2), &poll, now)
    }

    /// Brings a map up to date as a client does.
    fn follow(network: &Network, map: &mut Option<Map>, now: u64) {
        match news(network, map.as_ref(), now) {
            News::Statement(Statement::Map(whole)) => *map = Some(*whole),
            News::Statement(Statement::Delta(delta)) => {
                map.as_mut().unwrap().apply(&delta).unwrap();
            }
            News::Nothing => {}
            News::Refused(why) => panic!("{why:?}"),
        }
    }

    #[test]
    fn a_node_that_waits_for_approval_sees_and_is_seen_by_nobody() {
        let mut network = network();
        let mut map = None;
        network.put(Node { approved: false, ..node(2) }, true, NOW);
        follow(&network, &mut map, NOW);
        assert_eq!(map.as_ref().unwrap().peers, []);
        let theirs = network.news(&key(2, 1), &key(2, 2), &Poll::default(), NOW);
        let News::Statement(Statement::Map(theirs)) = theirs else { panic!("{theirs:?}") };
        assert!(theirs.peers.is_empty() && !theirs.me.approved);
        network.put(node(2), true, NOW);
        follow(&network, &mut map, NOW);
        assert_eq!(map.unwrap().peers[0].name, "n2");
    }

    #[test]
    fn co_05_a_machine_with_another_nodes_key_is_refused() {
        let mut network = network();
        network.put(node(2), true, NOW);
        for (machine, node, code) in [
            (key(1, 1), key(2, 2), Code::WrongKey),
            (key(2, 1), key(1, 2), Code::WrongKey),
            (key(3, 1), key(1, 2), Code::NotEnrolled),
        ] {
            let Err(Answer::Refused(refusal)) = network.member(&machine, &node, NOW) else {
                panic!("it is refused");
            };
            assert_eq!(refusal.code, code);
        }
        assert!(network.member(&key(1, 1), &key(1, 2), NOW).is_ok());
    }

    #[test]
    fn expiry_takes_a_node_from_every_map_at_its_time() {
        let mut network = network();
        network.put(Node { expires: Some(NOW + 10), ..node(2) }, true, NOW);
        let mut map = None;
        follow(&network, &mut map, NOW);
        network.sweep(NOW + 9);
        assert!(matches!(news(&network, map.as_ref(), NOW + 9), News::Nothing));
        network.sweep(NOW + 10);
        follow(&network, &mut map, NOW + 10);
        assert_eq!(map.unwrap().peers, []);
        let refused = network.news(&key(2, 1), &key(2, 2), &Poll::default(), NOW + 10);
        assert!(matches!(refused, News::Refused(Answer::Refused(r)) if r.code == Code::Expired));
    }

    #[test]
    fn co_15_an_old_connection_that_ends_late_says_nothing_of_a_new_one() {
        let mut network = network();
        network.arrive(1, NOW);
        network.arrive(1, NOW + 100);
        network.leave(1, NOW + 101);
        assert_eq!(network.sweep(NOW + 1000), NOBODY, "one poll is under way");
        network.leave(1, NOW + 1000);
        assert_eq!(network.sweep(NOW + 1001), NOBODY, "it may come back");
        network.arrive(1, NOW + 1010);
        network.leave(1, NOW + 1011);
        assert_eq!(network.sweep(NOW + 1020), NOBODY);
        assert_eq!(network.sweep(NOW + 1026), [1]);
        assert_eq!(network.sweep(NOW + 1027), NOBODY, "once");
        let mut ephemeral = Node { ephemeral: true, ..node(2) };
        network.put(ephemeral.clone(), true, NOW);
        assert_eq!(network.abandoned(NOW + 299, 300), NOBODY);
        network.arrive(2, NOW + 299);
        assert_eq!(network.abandoned(NOW + 9000, 300), NOBODY);
        network.leave(2, NOW + 9000);
        assert_eq!(network.abandoned(NOW + 9300, 300), [2]);
        ephemeral.ephemeral = false;
        network.put(ephemeral, true, NOW + 9300);
        assert_eq!(network.abandoned(NOW + 9300, 300), NOBODY);
    }

    #[test]
    fn who_is_behind_the_log_or_from_another_epoch_gets_a_whole_map() {
        let mut network = network();
        let mut map = None;
        follow(&network, &mut map, NOW);
        for round in 0..LOG_MAX as u64 {
            network.put(node(2 + round % 3), false, NOW);
        }
        let at_floor = news(&network, map.as_ref(), NOW);
        assert!(matches!(at_floor, News::Statement(Statement::Delta(_))), "all of it is there");
        network.put(node(2), false, NOW);
        for (epoch, sequence) in [(5, 1), (4, network.sequence()), (6, 1), (5, u64::MAX)] {
            let poll = Poll { epoch, sequence, wait_ms: 0 };
            let told = network.news(&key(1, 1), &key(1, 2), &poll, NOW);
            assert!(matches!(told, News::Statement(Statement::Map(_))), "{epoch} {sequence}");
        }
        assert_eq!(network.log.len(), LOG_MAX);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u64, bool, Option<u64>),
        Remove(u64),
        Arrive(u64),
        Leave(u64),
        Time(u64),
        Policy,
        Follow,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (2_u64..12, any::<bool>(), prop::option::of(0_u64..40))
                .prop_map(|(id, approved, expires)| Step::Put(id, approved, expires)),
            2 => (2_u64..12).prop_map(Step::Remove),
            2 => (1_u64..12).prop_map(Step::Arrive),
            2 => (1_u64..12).prop_map(Step::Leave),
            2 => (0_u64..10).prop_map(Step::Time),
            1 => Just(Step::Policy),
            4 => Just(Step::Follow),
        ]
    }

    proptest! {
        /// A map that followed deltas is the map that is made at the end.
        #[test]
        fn co_16_whatever_happens_the_map_is_that_of_the_final_state(
            steps in prop::collection::vec(step(), 0..80),
        ) {
            let (mut network, mut map, mut now) = (network(), None, NOW);
            for step in steps {
                match step {
                    Step::Put(id, approved, expires) => {
                        let expires = expires.map(|s| NOW + s);
                        network.put(Node { approved, expires, ..node(id) }, true, now);
                    }
                    Step::Remove(id) => network.remove(id),
                    Step::Arrive(id) => network.arrive(id, now),
                    Step::Leave(id) => network.leave(id, now),
                    Step::Time(s) => now += s,
                    Step::Policy => network.set_policy(Policy::default()),
                    Step::Follow => follow(&network, &mut map, now),
                }
                network.sweep(now);
            }
            follow(&network, &mut map, now);
            let followed = map.unwrap();
            let whole = network.whole(&network.nodes[&1], now);
            prop_assert_eq!(followed.peers, whole.peers);
            prop_assert_eq!(followed.me, whole.me);
        }
    }
}
