//! A policy and a directory, compiled once: sets of addresses for every rule, sets of nodes for
//! both its sides, and from these what one node enforces and whom it may know.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use wire::ip::protocol;
use wire::prefix::Prefix;

use crate::address;
use crate::directory::{Directory, NODES_MAX, Node, NodeId};
use crate::document::{Grant, Policy, Section};
use crate::place::Place;
use crate::ranges::{Range, Ranges, number};
use crate::rules::{Rule, Rules, Service};
use crate::selector::Selector;

/// Why a directory cannot be used. None of its nodes gets rules then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryFault {
    /// More nodes than [`NODES_MAX`].
    TooMany(usize),
    /// Two nodes have one number.
    SameId(NodeId),
    /// Two nodes have one address.
    SameAddress(NodeId, NodeId),
    /// A node's address is no unicast address, or embeds another.
    BadAddress(NodeId),
    /// A node's owner is no user.
    NoOwner(NodeId, String),
    /// Two users answer to one name.
    SameUser(String),
}

impl fmt::Display for DirectoryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany(count) => write!(f, "{count} nodes, at most {NODES_MAX}"),
            Self::SameId(id) => write!(f, "two nodes have the number {}", id.0),
            Self::SameAddress(a, b) => write!(f, "nodes {} and {} share an address", a.0, b.0),
            Self::BadAddress(id) => write!(f, "an address of node {} is no plain unicast", id.0),
            Self::NoOwner(id, owner) => write!(f, "node {}: no user is called {owner:?}", id.0),
            Self::SameUser(name) => write!(f, "two users answer to {name:?}"),
        }
    }
}

impl core::error::Error for DirectoryFault {}

/// A route that was approved and still is not used (PF-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedRoute {
    /// Whose.
    pub node: NodeId,
    /// Which: reserved, or not unicast.
    pub route: Prefix,
}

/// One rule with one set of services.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) place: Place,
    pub(crate) section: Section,
    pub(crate) index: usize,
    pub(crate) sources: Ranges,
    pub(crate) destinations: Ranges,
    /// Nodes of the source's own user are destinations as well (`autogroup:self`).
    pub(crate) own_user: bool,
    pub(crate) services: Vec<Service>,
    pub(crate) compress: bool,
    source_nodes: Sides,
    destination_nodes: Sides,
}

/// The nodes that answer for something on one side of a rule, over IPv4 and over IPv6: a rule
/// joins nodes only where both sides are of one family (threat CO-14).
type Sides = [Bits; 2];

/// A set of places in the list of nodes.
#[derive(Clone, Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn of(count: usize, is_in: impl Fn(usize) -> bool) -> Self {
        let mut bits = Self(vec![0; count.div_ceil(64)]);
        (0..count).filter(|at| is_in(*at)).for_each(|at| bits.0[at / 64] |= 1 << (at % 64));
        bits
    }

    fn has(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    fn insert(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }
}

/// One node, with what was found out about it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) node: Node,
    /// Its own addresses.
    pub(crate) addresses: Ranges,
    /// Its routes that are used.
    pub(crate) routes: Vec<Prefix>,
    /// What it answers for: its addresses, those of the plain peers that it carries, and what is
    /// behind it, but no other node's addresses.
    pub(crate) answers: Ranges,
}

/// A policy compiled against a directory.
#[derive(Clone, Debug)]
pub struct Compiled {
    pub(crate) rules: Vec<Resolved>,
    pub(crate) members: Vec<Member>,
    pub(crate) by_id: BTreeMap<NodeId, usize>,
    pub(crate) by_address: BTreeMap<u128, usize>,
    joined: Vec<Joined>,
    by_user: BTreeMap<String, Vec<usize>>,
    /// Places of users by all that they answer to, in lower case.
    users: BTreeMap<String, usize>,
    pub(crate) policy: Policy,
    pub(crate) directory: Directory,
    refused: Vec<RefusedRoute>,
}

impl Compiled {
    /// Compiles. The tests of the file are not run: see [`crate::check`].
    ///
    /// # Errors
    /// What is wrong with the directory.
    pub fn new(policy: &Policy, directory: &Directory) -> Result<Self, DirectoryFault> {
        let mut compiled = Self {
            rules: Vec::new(),
            joined: Vec::new(),
            members: Vec::new(),
            by_id: BTreeMap::new(),
            by_address: BTreeMap::new(),
            by_user: BTreeMap::new(),
            users: users_by_name(directory)?,
            policy: policy.clone(),
            directory: directory.clone(),
            refused: Vec::new(),
        };
        compiled.index()?;
        compiled.add_members();
        let mut meanings = Meanings::new(&compiled);
        let grants = policy.grants.iter();
        let rules = grants.flat_map(|grant| meanings.resolve(grant)).collect();
        compiled.joined = policy.casts.iter().flat_map(|cast| meanings.join(cast)).collect();
        compiled.rules = rules;
        Ok(compiled)
    }

    /// Approved routes that are not used, because they are reserved or not unicast.
    #[must_use]
    pub fn refused_routes(&self) -> &[RefusedRoute] {
        &self.refused
    }

    /// What a node enforces; nothing may pass at a node that the directory does not have.
    #[must_use]
    pub fn rules_for(&self, id: NodeId) -> Rules {
        let mut rules = Rules::default();
        let Some(at) = self.by_id.get(&id).copied() else { return rules };
        let member = &self.members[at];
        let same_users: Vec<_> = core::iter::once(at)
            .chain(self.carried_by(at))
            .filter(|place| self.members[*place].node.user().is_some())
            .map(|place| (&self.members[place].addresses, self.same_user(place)))
            .collect();
        for rule in &self.rules {
            let mut add = |list: fn(&mut Rules) -> &mut Vec<Rule>, from: &Ranges, to: &Ranges| {
                let (sources, destinations) = of_one_family(from, to);
                if !sources.is_empty() && !destinations.is_empty() {
                    let services = rule.services.clone();
                    let line = rule.place.line;
                    let compress = rule.compress;
                    let rule = Rule { sources, destinations, services, line, compress };
                    list(&mut rules).push(rule);
                }
            };
            if rule.destination_nodes.iter().any(|nodes| nodes.has(at)) {
                let to = rule.destinations.intersection(&member.answers);
                add(|rules| &mut rules.inward, &rule.sources, &to);
            }
            if rule.source_nodes.iter().any(|nodes| nodes.has(at)) {
                let from = rule.sources.intersection(&member.answers);
                add(|rules| &mut rules.outward, &from, &rule.destinations);
            }
            for (own, same_user) in same_users.iter().filter(|_| rule.own_user) {
                let from = rule.sources.intersection(same_user);
                add(|rules| &mut rules.inward, &from, own);
                let from = rule.sources.intersection(own);
                add(|rules| &mut rules.outward, &from, same_user);
            }
        }
        rules.inward.extend(self.names_for_carried(at));
        rules.multicast = self.multicast_for(&member.addresses);
        rules
    }

    /// Places of the plain peers that a node carries.
    fn carried_by(&self, at: usize) -> impl Iterator<Item = usize> {
        let id = self.members[at].node.id;
        let own = self.directory.carried.iter().filter(move |(_, gateway)| **gateway == id);
        own.filter_map(|(peer, _)| self.by_id.get(peer)).copied()
    }

    /// Who is carried may ask its gateway for names, and needs no rule for that.
    fn names_for_carried(&self, at: usize) -> Option<Rule> {
        let peers = self.carried_by(at).map(|peer| &self.members[peer].addresses);
        let sources = Ranges::union(peers);
        let service = |protocol| Service { protocol: Some(protocol), first: 53, last: 53 };
        (!sources.is_empty()).then(|| Rule {
            sources,
            destinations: self.members[at].addresses.clone(),
            services: [protocol::UDP, protocol::TCP].map(service).to_vec(),
            line: 0,
            compress: false,
        })
    }

    /// The nodes that a node may know of: those which policy lets it, or a network behind it,
    /// talk with in either direction. In the order of their numbers, without itself.
    #[must_use]
    pub fn peers_of(&self, id: NodeId) -> Vec<NodeId> {
        let Some(at) = self.by_id.get(&id).copied() else { return Vec::new() };
        let mut peers = self.talking_with(at);
        for carried in self.carried_by(at) {
            peers.insert(carried);
            peers.add(&self.talking_with(carried));
        }
        for (peer, gateway) in &self.directory.carried {
            let places = self.by_id.get(peer).zip(self.by_id.get(gateway));
            if let Some((_, gateway)) = places.filter(|(peer, _)| peers.has(**peer)) {
                peers.insert(*gateway);
            }
        }
        let others = self.by_id.iter().filter(|(_, place)| **place != at && peers.has(**place));
        others.map(|(id, _)| *id).collect()
    }

    /// Places of those with whom policy lets a node talk, in either direction.
    fn talking_with(&self, at: usize) -> Bits {
        let mut peers = Bits::of(self.members.len(), |_| false);
        for rule in &self.rules {
            for (sources, destinations) in rule.source_nodes.iter().zip(&rule.destination_nodes) {
                if sources.has(at) {
                    peers.add(destinations);
                }
                if destinations.has(at) {
                    peers.add(sources);
                }
            }
            if rule.own_user {
                let own = self.user_nodes(at).iter();
                let reached =
                    own.filter(|&&o| self.joins_own(rule, at, o) || self.joins_own(rule, o, at));
                reached.for_each(|&other| peers.insert(other));
            }
        }
        self.add_joined(&self.members[at].addresses, &mut peers);
        peers
    }

    /// Whether a rule to nodes of the own user lets one of them reach another.
    fn joins_own(&self, rule: &Resolved, from: usize, to: usize) -> bool {
        let sources = rule.sources.intersection(&self.members[from].addresses).families();
        let targets = self.members[to].addresses.families();
        sources.iter().zip(targets).any(|(source, target)| *source && target)
    }

    /// Whether a selector means this node: by itself, by its tags, or by its user.
    pub(crate) fn is_meant(&self, member: &Member, selector: &Selector) -> bool {
        let user = || {
            let at = self.users.get(&member.node.user()?.to_ascii_lowercase())?;
            Some(&self.directory.users[*at])
        };
        match selector {
            Selector::Any => true,
            Selector::Member => member.node.user().is_some(),
            Selector::Tagged => !member.node.tags.is_empty(),
            Selector::Tag(tag) => member.node.tags.contains(tag),
            _ => user().is_some_and(|user| is_user(&self.policy, selector, user)),
        }
    }

    /// Places of the users that a selector means.
    fn users_meant(&self, selector: &Selector) -> BTreeSet<usize> {
        match selector {
            Selector::User(name) => self.users.get(name).copied().into_iter().collect(),
            Selector::Group(group) => {
                let members = self.policy.groups.get(group).into_iter().flatten();
                members
                    .flat_map(|member| match member {
                        Selector::User(name) => self.users.get(name).copied(),
                        _ => None,
                    })
                    .collect()
            }
            _ => {
                let users = self.directory.users.iter().enumerate();
                let meant = users.filter(|(_, user)| is_user(&self.policy, selector, user));
                meant.map(|(at, _)| at).collect()
            }
        }
    }

    /// Places of the nodes that act for the same user as this one, itself among them.
    fn user_nodes(&self, at: usize) -> &[usize] {
        let user = self.members[at].node.user();
        user.and_then(|user| self.by_user.get(user)).map_or(&[], Vec::as_slice)
    }

    fn same_user(&self, at: usize) -> Ranges {
        Ranges::union(self.user_nodes(at).iter().map(|&other| &self.members[other].addresses))
    }

    fn index(&mut self) -> Result<(), DirectoryFault> {
        let nodes = &self.directory.nodes;
        if nodes.len() > NODES_MAX {
            return Err(DirectoryFault::TooMany(nodes.len()));
        }
        for (at, node) in nodes.iter().enumerate() {
            if self.by_id.insert(node.id, at).is_some() {
                return Err(DirectoryFault::SameId(node.id));
            }
            for address in &node.addresses {
                if address::class(*address).is_err() {
                    return Err(DirectoryFault::BadAddress(node.id));
                }
                let earlier = self.by_address.insert(number(*address), at);
                if let Some(other) = earlier {
                    return Err(DirectoryFault::SameAddress(nodes[other].id, node.id));
                }
            }
            if let Some(owner) = &node.owner {
                let user = self.users.get(&owner.to_ascii_lowercase());
                if user.is_none_or(|user| self.directory.users[*user].name != *owner) {
                    return Err(DirectoryFault::NoOwner(node.id, owner.clone()));
                }
            }
            if let Some(user) = node.user() {
                self.by_user.entry(user.to_owned()).or_default().push(at);
            }
        }
        Ok(())
    }

    /// What each node answers for. A default route is what is left of everything when all nodes
    /// and all other routes are taken away; a narrower route loses other nodes' addresses only.
    fn add_members(&mut self) {
        let reserved = Ranges::of_prefixes(self.directory.reserved.iter().copied());
        let usable = |route: &Prefix| {
            let ranges = Ranges::of_prefixes([*route]);
            route.is_default() || !reserved.intersects(&ranges) && address::is_routable(*route)
        };
        let nodes = &self.directory.nodes;
        let all = nodes.iter().flat_map(|node| node.routes.iter().filter(|r| !r.is_default()));
        let routed = Ranges::of_prefixes(all.copied().filter(|route| usable(route)));
        let every = Ranges::of_addresses(nodes.iter().flat_map(|n| n.addresses.iter().copied()));
        let taken = Ranges::union([&routed, &every, &reserved]);
        let mut members = Vec::new();
        let mut refused = Vec::new();
        for node in nodes {
            let addresses = Ranges::of_addresses(node.addresses.iter().copied());
            let (good, bad): (Vec<Prefix>, Vec<Prefix>) =
                node.routes.iter().partition(|r| usable(r));
            refused.extend(bad.into_iter().map(|route| RefusedRoute { node: node.id, route }));
            let of =
                |default: bool| good.iter().copied().filter(move |r| r.is_default() == default);
            let exit = Ranges::of_prefixes(of(true)).difference(&taken);
            let behind = Ranges::of_prefixes(of(false)).difference(&every);
            let answers = Ranges::union([&addresses, &behind, &exit]);
            members.push(Member { node: node.clone(), addresses, routes: good, answers });
        }
        for (peer, gateway) in &self.directory.carried {
            let places = self.by_id.get(peer).zip(self.by_id.get(gateway));
            if let Some((peer, gateway)) = places.filter(|(peer, gateway)| peer != gateway) {
                let both = [&members[*gateway].answers, &members[*peer].addresses];
                members[*gateway].answers = Ranges::union(both);
            }
        }
        self.members = members;
        self.refused = refused;
    }
}

/// What is left of both sides of a rule when families are taken away that only one of them has.
fn of_one_family(from: &Ranges, to: &Ranges) -> (Ranges, Ranges) {
    let sources = from.families();
    let destinations = to.families();
    if sources == destinations {
        return (from.clone(), to.clone());
    }
    let shared = [0, 1].map(|family| sources[family] && destinations[family]);
    let only = |ranges: &Ranges| {
        let parts = ranges.by_family();
        let kept = parts.iter().zip(shared).filter(|(_, is_shared)| *is_shared);
        Ranges::union(kept.map(|(part, _)| part))
    };
    (only(from), only(to))
}

/// All names that users answer to, in lower case: name, name with an @ behind, address.
fn users_by_name(directory: &Directory) -> Result<BTreeMap<String, usize>, DirectoryFault> {
    let mut known = BTreeMap::new();
    for (at, user) in directory.users.iter().enumerate() {
        let names = [Some(user.name.clone()), Some(format!("{}@", user.name)), user.email.clone()];
        for name in names.into_iter().flatten() {
            let earlier = known.insert(name.to_ascii_lowercase(), at);
            if earlier.is_some_and(|earlier| earlier != at) {
                return Err(DirectoryFault::SameUser(name));
            }
        }
    }
    Ok(known)
}

/// What a rule about circuits leads to.
fn hops() -> Ranges {
    let (address, bits) = wire::circuits::HOPS;
    Ranges::of_prefixes(Prefix::new(address.into(), bits))
}

/// What selectors mean, each worked out once.
struct Meanings<'a> {
    compiled: &'a Compiled,
    known: BTreeMap<(Selector, bool), Ranges>,
}

impl<'a> Meanings<'a> {
    fn new(compiled: &'a Compiled) -> Self {
        Self { compiled, known: BTreeMap::new() }
    }

    fn resolve(&mut self, grant: &Grant) -> Vec<Resolved> {
        let sources = self.union(&grant.sources, false);
        let members = &self.compiled.members;
        let of = |ranges: &Ranges| {
            let families = ranges.by_family();
            families.map(|own| Bits::of(members.len(), |at| own.intersects(&members[at].answers)))
        };
        let source_nodes = of(&sources);
        let targets = grant.targets.iter().filter(|target| !target.services.is_empty());
        let resolve = |target: &crate::document::Target| {
            let mut destinations = self.union(&target.selectors, true);
            if grant.section != Section::Circuits {
                // However wide a rule is, it gives no right to circuits: only `circuits` does.
                destinations = destinations.difference(&hops());
            }
            Resolved {
                place: grant.place,
                section: grant.section,
                index: grant.index,
                sources: sources.clone(),
                destination_nodes: of(&destinations),
                destinations,
                own_user: target.selectors.contains(&Selector::OwnUser),
                services: target.services.clone(),
                compress: grant.compress,
                source_nodes: source_nodes.clone(),
            }
        };
        targets.map(resolve).collect()
    }

    fn union(&mut self, selectors: &[Selector], is_destination: bool) -> Ranges {
        let mut ranges: Vec<Range> = Vec::new();
        for selector in selectors {
            let key = (selector.clone(), is_destination && *selector == Selector::Any);
            if !self.known.contains_key(&key) {
                let meaning = meaning(self.compiled, selector, key.1);
                self.known.insert(key.clone(), meaning);
            }
            ranges.extend(self.known.get(&key).into_iter().flat_map(Ranges::as_slice));
        }
        Ranges::new(ranges)
    }
}

/// The addresses that a selector means. `with_routes`: `*` as a destination.
fn meaning(compiled: &Compiled, selector: &Selector, with_routes: bool) -> Ranges {
    match selector {
        Selector::Prefix(prefix) => Ranges::of_prefixes([*prefix]),
        Selector::Set(ranges) => ranges.clone(),
        Selector::DangerAll => Ranges::everything(),
        Selector::Internet => Ranges::internet(),
        Selector::OwnUser | Selector::Nobody => Ranges::default(),
        Selector::Any if with_routes => {
            let routes = compiled.members.iter().flat_map(|member| member.routes.iter().copied());
            let routes = routes.filter(|route| !route.is_default());
            let addresses = compiled.members.iter().map(|member| &member.addresses);
            Ranges::union(addresses.chain([&Ranges::of_prefixes(routes)]))
        }
        Selector::Any | Selector::Member | Selector::Tagged | Selector::Tag(_) => {
            let meant =
                compiled.members.iter().filter(|member| compiled.is_meant(member, selector));
            Ranges::union(meant.map(|member| &member.addresses))
        }
        _ => {
            let users = compiled.users_meant(selector);
            let names = users.iter().map(|at| &compiled.directory.users[*at].name);
            let nodes = names.filter_map(|name| compiled.by_user.get(name)).flatten();
            Ranges::union(nodes.map(|at| &compiled.members[*at].addresses))
        }
    }
}

/// Whether a selector means this user.
pub(crate) fn is_user(policy: &Policy, selector: &Selector, user: &crate::directory::User) -> bool {
    match selector {
        Selector::User(name) => user.is_named(name),
        Selector::Domain(domain) => user.is_of_domain(domain),
        Selector::Role(role) => user.roles.contains(role),
        Selector::Group(name) => policy.groups.get(name).is_some_and(|members| {
            members.iter().any(|member| matches!(member, Selector::User(u) if user.is_named(u)))
        }),
        Selector::Member | Selector::Any => true,
        _ => false,
    }
}

mod multicast;
#[cfg(test)]
pub(crate) mod tests;

use multicast::Joined;
