//! What the server holds in memory: the nodes as they were committed, who is in touch, and the
//! changes of this epoch, from which every node's map and deltas are made.
//!
//! Nothing is changed here before the store committed it, and the store's lock is held until then,
//! so that changes have the order of the commits (threat CO-16). The log of changes is bounded;
//! a node that is behind its beginning is told everything again.
//!
//! What a node may see follows from the policy and from all that it speaks of: users, nodes, tags,
//! routes. When one of these changes a new generation begins, and the first question after that
//! compiles it, once for all. What a node is told next is the difference between what it may see
//! now and what it was told (`sight`); so nothing depends on why something changed.
//!
//! That a node came or went is quiet news: it waits for the next sweep, a second at most, so that
//! a thousand nodes which come back together are not a million messages (threat CO-10).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use control::address::Pool;
use control::limits::ENDPOINTS_MAX;
use control::{
    Answer, Code, Delta, HostInfo, Map, NodeId, Peer, Policy, Poll, Prefix, Relay, SelfNode,
    ServerUrl, Statement,
};
use noise::PublicKey;

use crate::clock::Moment;
use crate::policy::Rulebook;
use crate::resolvers::Resolvers;
use crate::store::{Node, User};

mod again;
mod directory;
mod explain;
mod keys;
mod sight;
mod texts;

use sight::{Ids, Memory, RulesMark, Sight, Told};
use texts::{PeerText, Texts};

/// Changes that are remembered: a node that is further behind gets a whole map.
const LOG_MAX: usize = 8192;
/// A node without a poll is away after this time, in seconds.
const AWAY_AFTER_S: u64 = 15;

/// One change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// Of a node; `own` if its place in the books changed, not only its reports.
    Node { id: u64, own: bool },
    /// A node came or went: quiet news.
    Presence { id: u64 },
    /// Of the policy, or of what it speaks of.
    Policy,
}

#[derive(Clone, Copy, Default)]
struct Presence {
    polls: u32,
    /// When it was last in touch, by either clock.
    seen_unix_s: u64,
    seen_up_s: u64,
    is_online: bool,
    /// It was in touch since the server's start.
    was_online: bool,
}

impl Presence {
    fn at(now: Moment) -> Self {
        let mut new = Self::default();
        new.see(now);
        new
    }

    const fn see(&mut self, now: Moment) {
        (self.seen_unix_s, self.seen_up_s) = (now.unix_s, now.up_s);
    }

    const fn is_away_for(&self, time_s: u64, up_s: u64) -> bool {
        self.polls == 0 && up_s >= self.seen_up_s.saturating_add(time_s)
    }
}

/// What a poll is told.
#[derive(Debug)]
pub(crate) enum News {
    /// The text of a map or a delta, to be signed.
    Statement(String),
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
    /// What no node may route, beside the pool.
    pub(crate) reserved: Vec<Prefix>,
    pub(crate) relays: Vec<Relay>,
    /// Where the server is.
    pub(crate) urls: Vec<ServerUrl>,
    /// Who is asked for names that are not the network's.
    pub(crate) resolvers: Resolvers,
}

/// A generation that was compiled.
struct Books {
    generation: u64,
    members: Arc<Ids>,
    /// When the first key of a member ends, in Unix seconds.
    until: u64,
}

/// The network in memory.
pub(crate) struct Network {
    shared: Shared,
    epoch: u64,
    sequence: u64,
    nodes: BTreeMap<u64, Arc<Node>>,
    machines: BTreeMap<PublicKey, u64>,
    /// By their WireGuard keys.
    keys: BTreeMap<PublicKey, u64>,
    presence: BTreeMap<u64, Presence>,
    /// What the clock that only grows said last.
    up_s: u64,
    expired: BTreeSet<u64>,
    log: VecDeque<(u64, Change)>,
    /// The sequence before the first change in `log`.
    floor: u64,
    /// Quiet news up to here may be told.
    announced: u64,
    users: Vec<User>,
    book: Rulebook,
    /// Counts what the policy speaks of, and the policy.
    generation: u64,
    compiled: Option<Books>,
    sights: BTreeMap<u64, Sight>,
    memory: Memory,
    texts: Texts,
}

impl Network {
    pub(crate) fn new(
        shared: Shared,
        epoch: u64,
        nodes: Vec<Node>,
        users: Vec<User>,
        book: Rulebook,
        now: Moment,
    ) -> Self {
        let machines = nodes.iter().map(|node| (node.machine_key, node.id)).collect();
        let keys = nodes.iter().map(|node| (node.node_key, node.id)).collect();
        // Who was in touch before the start has time to come back.
        let seen = Presence::at(now);
        let presence = nodes.iter().map(|node| (node.id, seen)).collect();
        let expired =
            nodes.iter().filter(|node| node.is_expired(now.unix_s)).map(|n| n.id).collect();
        let nodes = nodes.into_iter().map(|node| (node.id, Arc::new(node))).collect();
        Self {
            shared,
            epoch,
            sequence: 1,
            nodes,
            machines,
            keys,
            presence,
            up_s: now.up_s,
            expired,
            log: VecDeque::new(),
            floor: 1,
            announced: 1,
            users,
            book,
            generation: 1,
            compiled: None,
            sights: BTreeMap::new(),
            memory: Memory::default(),
            texts: Texts::default(),
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
        let fresh = Presence::at(Moment { unix_s: now, up_s: self.up_s });
        self.presence.entry(id).or_insert(fresh);
        let place = |node: &Node| {
            let Node { approved, expires, number, user, tags, .. } = node.clone();
            (approved, expires, number, user, tags, node.routes())
        };
        if self.nodes.get(&id).map(|before| place(before)) != Some(place(&node)) {
            self.generation += 1;
        }
        let key = node.node_key;
        let before = self.nodes.insert(id, Arc::new(node));
        if let Some(before) = before.filter(|before| before.node_key != key) {
            self.keys.remove(&before.node_key);
        }
        self.keys.insert(key, id);
        self.note(Change::Node { id, own });
    }

    /// Takes the removal of a node that was committed.
    pub(crate) fn remove(&mut self, id: u64) {
        if let Some(node) = self.nodes.remove(&id) {
            self.machines.remove(&node.machine_key);
            self.keys.remove(&node.node_key);
            self.presence.remove(&id);
            self.expired.remove(&id);
            self.sights.remove(&id);
            self.memory.forget(id);
            self.generation += 1;
            self.note(Change::Node { id, own: true });
        }
    }

    /// Takes a policy that was committed.
    pub(crate) fn set_policy(&mut self, version: u64, policy: ::policy::Policy) {
        self.book.set(version, policy);
        self.generation += 1;
        self.note(Change::Policy);
    }

    /// Takes all users, as they were committed.
    pub(crate) fn set_users(&mut self, users: Vec<User>) {
        self.users = users;
        self.generation += 1;
        self.note(Change::Policy);
    }

    /// Whether the stored policy can be read; if not, nothing may pass.
    pub(crate) const fn is_policy_readable(&self) -> bool {
        self.book.is_readable()
    }

    /// Whether the policy lets nodes report how their links are.
    pub(crate) fn takes_links(&self) -> bool {
        self.book.takes_links()
    }

    /// Routes that this node offers and that the policy approves, but nobody did yet.
    pub(crate) fn automatic_routes(&mut self, id: u64, now: u64) -> Vec<Prefix> {
        let Some(node) = self.nodes.get(&id).map(Arc::clone) else { return Vec::new() };
        let is_new = |route: &&Prefix| !node.approved_routes.contains(route);
        let offered: Vec<Prefix> = node.host.routes.iter().filter(is_new).copied().collect();
        if offered.is_empty() {
            return offered;
        }
        self.compile(now);
        self.book.automatic(id, &offered)
    }

    /// Nodes in the books.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// All nodes' numbers.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    /// Whether a node bears a tag.
    pub(crate) fn bears(&self, id: u64, tag: &str) -> bool {
        self.nodes.get(&id).is_some_and(|node| node.tags.iter().any(|known| known == tag))
    }

    /// A poll of this node begins.
    pub(crate) fn arrive(&mut self, id: u64, now: Moment) {
        let Some(presence) = self.presence.get_mut(&id) else { return };
        presence.polls += 1;
        presence.see(now);
        if !presence.is_online {
            (presence.is_online, presence.was_online) = (true, true);
            self.note(Change::Presence { id });
        }
    }

    /// A poll of this node ended. It is away only when it does not come back for a while, so an
    /// old connection that ends late says nothing of a new one (threat CO-15).
    pub(crate) fn leave(&mut self, id: u64, now: Moment) {
        if let Some(presence) = self.presence.get_mut(&id) {
            presence.polls = presence.polls.saturating_sub(1);
            presence.see(now);
        }
    }

    /// Finds who went away and whose key expired, or did not after all, because the clock was set
    /// back (threat LC-05): the nodes that just went away.
    pub(crate) fn sweep(&mut self, now: Moment) -> Vec<u64> {
        let mut away = Vec::new();
        self.up_s = now.up_s;
        for (id, presence) in &mut self.presence {
            let is_gone = presence.is_away_for(AWAY_AFTER_S, now.up_s);
            if presence.is_online && is_gone {
                presence.is_online = false;
                away.push(*id);
            }
        }
        for id in &away {
            self.note(Change::Presence { id: *id });
        }
        let over = self.nodes.values().filter(|node| node.is_expired(now.unix_s));
        let over: BTreeSet<u64> = over.map(|node| node.id).collect();
        for id in over.symmetric_difference(&self.expired).copied().collect::<Vec<_>>() {
            self.generation += 1;
            self.note(Change::Node { id, own: true });
        }
        self.expired = over;
        self.announced = self.sequence;
        away
    }

    /// Ephemeral nodes that have been away for `after_s`.
    pub(crate) fn abandoned(&self, up_s: u64, after_s: u64) -> Vec<u64> {
        let is_abandoned = |node: &&Arc<Node>| {
            let presence = self.presence.get(&node.id).copied().unwrap_or_default();
            node.ephemeral && presence.is_away_for(after_s, up_s)
        };
        self.nodes.values().filter(is_abandoned).map(|node| node.id).collect()
    }

    /// Whether a node is in touch, and when it last was.
    pub(crate) fn presence(&self, id: u64) -> (bool, Option<u64>) {
        self.presence.get(&id).map_or((false, None), |p| (p.is_online, Some(p.seen_unix_s)))
    }

    /// Whether this machine is in the books.
    pub(crate) fn is_machine(&self, machine: &PublicKey) -> bool {
        self.machines.contains_key(machine)
    }

    /// Whether a node is there only while it is in touch.
    pub(crate) fn is_ephemeral(&self, id: u64) -> bool {
        self.nodes.get(&id).is_some_and(|node| node.ephemeral)
    }

    /// What a node last said of itself.
    pub(crate) fn host_of(&self, id: u64) -> Option<HostInfo> {
        self.nodes.get(&id).map(|node| node.host.clone())
    }

    /// What this machine is told that has a map of `poll`.
    pub(crate) fn news(
        &mut self,
        machine: &PublicKey,
        node_key: &PublicKey,
        poll: &Poll,
        now: u64,
        may_have_whole: impl FnOnce() -> bool,
    ) -> News {
        let viewer = match self.member(machine, node_key, now) {
            Ok(node) => node,
            Err(refused) => return News::Refused(refused),
        };
        let is_known = poll.epoch == self.epoch
            && poll.sequence >= self.floor
            && poll.sequence <= self.sequence;
        let told = self.memory.recall(viewer.id, poll.sequence).filter(|_| is_known);
        let Some(told) = told else {
            if !may_have_whole() {
                let detail = "this node asks for whole maps too often; it asks again in a while";
                return News::Refused(Answer::refused(Code::Busy, detail));
            }
            return self.whole(&viewer, now);
        };
        let first = self.log.partition_point(|(sequence, _)| *sequence <= poll.sequence);
        let (mut changed, mut me, mut is_loud) = (BTreeSet::new(), false, false);
        for (sequence, change) in self.log.range(first..) {
            match *change {
                Change::Policy => is_loud = true,
                Change::Node { id, own } if id == viewer.id => me |= own,
                Change::Presence { id } if id == viewer.id => {}
                Change::Presence { id } => {
                    is_loud |= *sequence <= self.announced;
                    changed.insert(id);
                }
                Change::Node { id, .. } => {
                    is_loud = true;
                    changed.insert(id);
                }
            }
        }
        // Who is told nothing for long would fall behind the log.
        let is_behind = self.sequence - poll.sequence > LOG_MAX as u64 / 2;
        if !(is_loud || me || is_behind) {
            return News::Nothing;
        }
        let next = self.next(&viewer, now);
        let delta = self.delta(&viewer, &told, &next, &changed, me, now);
        if is_behind || delta.me.is_some() || delta.policy.is_some() || has_peers(&delta) {
            self.memory.note(viewer.id, next);
            return said(&Statement::Delta(Box::new(delta)));
        }
        News::Nothing
    }

    fn delta(
        &mut self,
        viewer: &Node,
        told: &Told,
        next: &Told,
        changed: &BTreeSet<u64>,
        me: bool,
        now: u64,
    ) -> Delta<PeerText> {
        let is_new = |id: &u64| changed.contains(id) || !told.peers.has(*id);
        let upsert = self.peers(next.peers.iter().filter(is_new));
        let gone = told.peers.iter().filter(|id| !next.peers.has(*id));
        Delta {
            machine: viewer.machine_key,
            epoch: self.epoch,
            from: told.sequence,
            to: self.sequence,
            made_unix_s: now,
            me: me.then(|| self.own(viewer)),
            upsert,
            remove: gone.map(NodeId).collect(),
            policy: (next.rules != told.rules).then(|| self.policy(viewer, now)),
        }
    }

    fn whole(&mut self, viewer: &Node, now: u64) -> News {
        let next = self.next(viewer, now);
        let peers = self.peers(next.peers.iter());
        let map = Map {
            machine: viewer.machine_key,
            epoch: self.epoch,
            sequence: self.sequence,
            made_unix_s: now,
            me: self.own(viewer),
            peers,
            ranges: vec![self.shared.pool.v4(), self.shared.pool.v6()],
            dns: self.dns(),
            policy: self.policy(viewer, now),
            relays: self.shared.relays.clone(),
            stun: self.shared.stun.clone(),
            urls: self.shared.urls.clone(),
        };
        self.memory.note(viewer.id, next);
        said(&Statement::Map(Box::new(map)))
    }

    fn own(&self, viewer: &Node) -> SelfNode {
        SelfNode {
            id: NodeId(viewer.id),
            name: viewer.name.clone(),
            addresses: self.addresses(viewer),
            tags: viewer.tags.clone(),
            routes: viewer.routes(),
            approved: viewer.approved,
            expires_unix_s: viewer.expires,
            life_s: viewer.life_s(),
            ways: viewer.ways.clone(),
        }
    }

    /// The rules for a node. Who is no member enforces that nothing passes.
    fn policy(&self, viewer: &Node, now: u64) -> Policy {
        let is_open = self.book.is_open() && !is_member(viewer, now);
        let id = if is_open { None } else { Some(viewer.id) };
        let nothing = || ::policy::Rules::default().print().unwrap_or_default();
        let rules = id.map_or_else(nothing, |id| self.book.rules(id));
        Policy { version: self.book.version(), rules }
    }

    /// What a node knows when it was told everything: both are members in good standing, and the
    /// policy lets one talk to the other (threat CO-14).
    fn next(&mut self, viewer: &Node, now: u64) -> Told {
        let Sight { mut peers, rules, .. } = self.sight(viewer, now);
        if self.compiled.as_ref().is_some_and(|books| now >= books.until) {
            // A key is over, which the next sweep finds; its node is seen no more already now.
            let is_on = |id: &u64| self.nodes.get(id).is_some_and(|node| is_member(node, now));
            peers = Arc::new(peers.iter().filter(is_on).collect());
        }
        Told { sequence: self.sequence, peers, rules }
    }

    /// What policy lets a node see in this generation.
    fn sight(&mut self, viewer: &Node, now: u64) -> Sight {
        let members = self.compile(now);
        let known = self.sights.get(&viewer.id);
        if let Some(sight) = known.filter(|sight| sight.generation == self.generation) {
            return sight.clone();
        }
        let all = |ids: &Ids| ids.iter().filter(|id| *id != viewer.id).collect();
        let peers = Arc::new(match (members.has(viewer.id), self.book.is_open()) {
            (false, _) => Ids::default(),
            (true, true) => all(&members),
            (true, false) => self.book.peers(viewer.id).into_iter().collect(),
        });
        let rules = RulesMark::of(&self.policy(viewer, now));
        let sight = Sight { generation: self.generation, peers, rules };
        self.sights.insert(viewer.id, sight.clone());
        sight
    }

    /// Compiles what changed since it was last asked for: the members.
    fn compile(&mut self, now: u64) -> Arc<Ids> {
        if let Some(books) = self.compiled.as_ref().filter(|b| b.generation == self.generation) {
            return Arc::clone(&books.members);
        }
        let directory = self.directory(now);
        let groups = self.groups();
        self.book.compile(&directory, &groups);
        let members: Arc<Ids> = Arc::new(directory.nodes.iter().map(|node| node.id.0).collect());
        let ends = self.nodes.values().filter_map(|node| node.expires).filter(|end| *end > now);
        let until = ends.min().unwrap_or(u64::MAX);
        let books = Books { generation: self.generation, members: Arc::clone(&members), until };
        self.compiled = Some(books);
        members
    }

    /// What others are told of these nodes.
    fn peers(&mut self, ids: impl Iterator<Item = u64>) -> Vec<PeerText> {
        let mut texts = std::mem::take(&mut self.texts);
        let known = ids.filter_map(|id| Some((id, self.nodes.get(&id)?)));
        let peer = |node: &Node| Peer {
            addresses: self.addresses(node),
            endpoints: node.host.endpoints.iter().take(ENDPOINTS_MAX).copied().collect(),
            relay: node.host.relay,
            tags: node.tags.clone(),
            routes: node.routes(),
            aliases: node.aliases(),
            down: node.down(),
            online: self.presence(node.id).0,
            expires_unix_s: node.expires,
            gateway: node.gateway.map(NodeId),
            ..Peer::new(NodeId(node.id), node.name.clone(), node.node_key)
        };
        let peers = known.map(|(id, node)| texts.of(id, || peer(node))).collect();
        self.texts = texts;
        peers
    }

    pub(crate) fn addresses(&self, node: &Node) -> Vec<IpAddr> {
        let (v4, v6) = self.shared.pool.addresses(node.number);
        vec![v4.into(), v6.into()]
    }

    fn note(&mut self, change: Change) {
        if let Change::Node { id, .. } | Change::Presence { id } = change {
            self.texts.forget(id);
        }
        self.sequence += 1;
        self.log.push_back((self.sequence, change));
        while self.log.len() > LOG_MAX {
            if let Some((sequence, _)) = self.log.pop_front() {
                self.floor = sequence;
            }
        }
    }
}

fn is_member(node: &Node, now: u64) -> bool {
    node.approved && !node.is_expired(now)
}

fn said(statement: &Statement<PeerText>) -> News {
    News::Statement(serde_json::to_string(statement).expect("a map has text as keys"))
}

fn has_peers(delta: &Delta<PeerText>) -> bool {
    !delta.upsert.is_empty() || !delta.remove.is_empty()
}

#[cfg(test)]
mod tests;
