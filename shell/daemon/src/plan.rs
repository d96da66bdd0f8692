//! The plan: what a map means for a node, as a value, and the changes from one to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use control::{Map, NodeId, Peer, Prefix, Through};
use node::{AllowedIp, Candidate, Change, PeerChange};
use noise::PublicKey;

use crate::Settings;
use crate::called::{between, is_called, is_elsewhere, is_meant};
use crate::through::standing;

/// Addresses of two nodes that are told of, at most.
const SHARED_TOLD_MAX: usize = 8;

/// Everything that a map and the settings ask of the machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Addresses of the interface with the length of their network.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Peers by key.
    pub peers: BTreeMap<PublicKey, PeerPlan>,
    /// Prefixes beyond the network's own that lead into the interface.
    pub routes: BTreeSet<Prefix>,
    /// Peers that are reached through others and are no peers of the interface, and through whom;
    /// none where nobody who leads there is known.
    pub behind: BTreeMap<NodeId, Option<NodeId>>,
    /// What passes between two peers through this machine.
    pub passed: BTreeSet<Prefix>,
}

/// One peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerPlan {
    /// Its number.
    pub id: NodeId,
    /// What it may send from, and what is sent to it.
    pub allowed: Vec<Prefix>,
    /// It is a plain WireGuard peer that this node carries: it comes to us, from wherever it is.
    pub carried: bool,
    /// Where it may be reached.
    pub endpoints: Vec<SocketAddr>,
    /// The relays that lead to it: the one on which it waits, or all if that is not known.
    pub relays: Vec<u32>,
}

impl Plan {
    /// The plan of a map, where `chosen` says through whom prefixes go that several serve. Peers
    /// whose key has expired at `now_unix_s`, by the server's clock, are
    /// not in it (threat DP-20). An address that two nodes have is the older one's (threat LC-08).
    #[must_use]
    pub fn new(
        map: &Map,
        settings: &Settings,
        now_unix_s: u64,
        chosen: &BTreeMap<Prefix, NodeId>,
    ) -> Self {
        let mut plan = Self::default();
        for address in &map.me.addresses {
            let range = map.ranges.iter().find(|range| range.contains(*address));
            let whole = if address.is_ipv4() { 32 } else { 128 };
            plan.addresses.push((*address, range.map_or(whole, Prefix::bits)));
        }
        if !map.me.approved {
            return plan;
        }
        let live = live(map, now_unix_s);
        let routed = routed(&live, map, settings, chosen);
        let owners = owners(&live, map);
        let own = |peer: &Peer| {
            let own = peer.addresses.iter().filter(|at| owners.get(at) == Some(&peer.id));
            own.map(|address| Prefix::host(*address)).collect::<Vec<_>>()
        };
        let behind = behind(&live, map, settings, &routed);
        let is_elsewhere = |peer: &&&Peer| {
            peer.gateway.is_some_and(|id| id != map.me.id) || behind.contains_key(&peer.id)
        };
        for peer in live.iter().filter(|peer| !is_elsewhere(peer)) {
            let is_through = |other: &&&Peer| {
                other.gateway == Some(peer.id) || behind.get(&other.id) == Some(&Some(peer.id))
            };
            let through = live.iter().filter(is_through);
            let addresses = std::iter::once(peer).chain(through).flat_map(|peer| own(peer));
            let routes = routed.iter().filter(|(_, id)| **id == peer.id).map(|(prefix, _)| *prefix);
            let planned = PeerPlan {
                id: peer.id,
                allowed: addresses.chain(routes).collect(),
                carried: peer.gateway.is_some(),
                endpoints: peer.endpoints.clone(),
                relays: if peer.gateway.is_some() { Vec::new() } else { ways_to(peer, map) },
            };
            plan.peers.insert(peer.key, planned);
        }
        plan.routes = routed.into_keys().collect();
        plan.behind = behind;
        if standing(map, settings).passes_on {
            plan.passed = plan.between();
        }
        plan
    }

    /// What has other peers as its ways: all that peers with networks behind them may send from,
    /// of the families that these networks are of.
    fn between(&self) -> BTreeSet<Prefix> {
        let leads = |peer: &&PeerPlan| peer.allowed.iter().any(|p| self.routes.contains(p));
        let is_of_routes = |prefix: &Prefix| {
            let of_family =
                |route: &Prefix| route.address().is_ipv4() == prefix.address().is_ipv4();
            !prefix.is_default() && self.routes.iter().any(of_family)
        };
        let peers = self.peers.values().filter(|peer| !peer.carried).filter(leads);
        peers.flat_map(|peer| &peer.allowed).copied().filter(is_of_routes).collect()
    }

    /// The steps that lead a node from `before` to this plan, endpoints aside.
    #[must_use]
    pub fn changes_since(&self, before: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        for key in before.peers.keys().filter(|key| !self.peers.contains_key(key)) {
            let change = PeerChange { remove: true, ..PeerChange::new(*key) };
            changes.push(Change::Peer(change));
        }
        for (key, peer) in &self.peers {
            let known = before.peers.get(key);
            if known.is_some_and(|known| known.allowed == peer.allowed) {
                continue;
            }
            let given = peer.allowed.iter().map(|prefix| AllowedIp::give(wire_prefix(prefix)));
            changes.push(Change::Peer(PeerChange {
                replace_allowed_ips: true,
                allowed_ips: given.collect(),
                ..PeerChange::new(*key)
            }));
        }
        changes
    }

    /// The addresses of plain peers that this node carries.
    pub fn carried(&self) -> impl Iterator<Item = Prefix> {
        self.peers.values().filter(|peer| peer.carried).flat_map(|peer| peer.allowed.clone())
    }

    /// Where those peers may be whose places are not those of `before`.
    #[must_use]
    pub fn moved_since(&self, before: &Self) -> BTreeMap<PublicKey, Vec<Candidate>> {
        let is_new = |(key, peer): &(&PublicKey, &PeerPlan)| {
            !peer.carried
                && before.peers.get(key).is_none_or(|known| {
                    known.endpoints != peer.endpoints || known.relays != peer.relays
                })
        };
        self.peers.iter().filter(is_new).map(|(key, peer)| (*key, peer.candidates())).collect()
    }
}

impl PeerPlan {
    /// The candidates of a peer, in no order.
    fn candidates(&self) -> Vec<Candidate> {
        let direct = self.endpoints.iter().copied().map(Candidate::Udp);
        direct.chain(self.relays.iter().copied().map(Candidate::Relay)).collect()
    }
}

/// The relays that a map names.
#[must_use]
pub fn relays(map: &Map) -> Vec<u32> {
    map.relays.iter().map(|relay| relay.id).collect()
}

/// What is inside the network, and so no way to it (threat NT-07).
#[must_use]
pub fn overlay(map: &Map) -> Vec<node::Prefix> {
    map.ranges.iter().map(wire_prefix).collect()
}

/// The relays that lead to a peer.
fn ways_to(peer: &Peer, map: &Map) -> Vec<u32> {
    let known = map.relays.iter().map(|relay| relay.id);
    match peer.relay.filter(|home| known.clone().any(|id| id == *home)) {
        Some(home) => vec![home],
        None => known.collect(),
    }
}

/// Peers whose key has not expired.
fn live(map: &Map, now_unix_s: u64) -> Vec<&Peer> {
    let is_live = |peer: &&Peer| peer.expires_unix_s.is_none_or(|at| now_unix_s < at);
    map.peers.iter().filter(is_live).collect()
}

/// Whose each address is: this node's own, then the oldest peer's.
fn owners(live: &[&Peer], map: &Map) -> BTreeMap<IpAddr, NodeId> {
    let own = map.me.addresses.iter().map(|address| (*address, map.me.id));
    let mut owners: BTreeMap<IpAddr, NodeId> = own.collect();
    // Peers come in the order of their numbers.
    for (address, peer) in live.iter().flat_map(|p| p.addresses.iter().map(move |a| (a, p))) {
        owners.entry(*address).or_insert(peer.id);
    }
    owners
}

/// What to tell of addresses that two nodes have. The server's books keep that from happening; a
/// map in which it happens all the same is told of, and who had the address first keeps it.
#[must_use]
pub(crate) fn shared_addresses(map: &Map) -> Vec<String> {
    let peers: Vec<&Peer> = map.peers.iter().collect();
    let owners = owners(&peers, map);
    let loses = |peer: &Peer, address: &IpAddr| owners.get(address) != Some(&peer.id);
    let lost = peers.iter().flat_map(|peer| {
        let of_others = peer.addresses.iter().filter(|address| loses(peer, address));
        of_others.map(move |address| (*peer, *address))
    });
    lost.take(SHARED_TOLD_MAX)
        .map(|(peer, address)| {
            format!(
                "{} is told to have {address}, which another node has already and keeps; remove \
                 one of them on the server",
                peer.name
            )
        })
        .collect()
}

/// Every peer that could route each prefix that is wanted and says that it reaches it; all of them
/// where none does.
pub(crate) fn candidates(
    map: &Map,
    settings: &Settings,
    now_unix_s: u64,
) -> BTreeMap<Prefix, Vec<NodeId>> {
    let mut candidates: BTreeMap<Prefix, Vec<NodeId>> = BTreeMap::new();
    let live = live(map, now_unix_s);
    let serving = serving(&live, map, settings);
    let reaches = |route: &Prefix, peer: &Peer| !peer.down.contains(route);
    let reached: BTreeSet<Prefix> =
        serving.iter().filter(|(route, peer)| reaches(route, peer)).map(|(r, _)| *r).collect();
    for (route, peer) in serving {
        if reaches(&route, peer) || !reached.contains(&route) {
            candidates.entry(route).or_default().push(peer.id);
        }
    }
    candidates
}

/// Gateways of other sites: peers that serve networks which this node does not serve itself.
pub(crate) fn elsewhere(map: &Map) -> impl Iterator<Item = &Peer> {
    map.peers.iter().filter(move |peer| peer.routes.iter().any(|route| is_elsewhere(map, route)))
}

/// The prefixes that are wanted and that several peers serve, whether they reach them now or not.
pub(crate) fn served_by_several(
    map: &Map,
    settings: &Settings,
    now_unix_s: u64,
) -> BTreeSet<Prefix> {
    let mut counts: BTreeMap<Prefix, usize> = BTreeMap::new();
    let live = live(map, now_unix_s);
    for (route, _) in serving(&live, map, settings) {
        *counts.entry(route).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| *count > 1).map(|(route, _)| route).collect()
}

/// Each prefix that is wanted, with each peer that serves it.
fn serving<'m>(live: &[&'m Peer], map: &Map, settings: &Settings) -> Vec<(Prefix, &'m Peer)> {
    let exit = settings.exit_node.as_deref();
    let through = standing(map, settings).through;
    let mut serving = Vec::new();
    for peer in live {
        let is_exit = exit.is_some_and(|exit| is_meant(peer, exit, map, through));
        for route in &peer.routes {
            let is_wanted = if route.is_default() { is_exit } else { settings.accept_routes };
            let is_own = map.me.routes.contains(route);
            let is_range = map.ranges.iter().any(|range| range.overlaps(route));
            if is_wanted
                && !is_own
                && !crate::circuits::is_offer(route)
                && (!is_range || route.is_default())
            {
                for way in ways(peer, route, live, through) {
                    // Several may be reached through one.
                    if way.id == peer.id || !serving.contains(&(*route, way)) {
                        serving.push((*route, way));
                    }
                }
            }
        }
    }
    serving
}

/// By whom a route of a peer is reached: itself, or those whom `through` names.
fn ways<'m>(
    peer: &'m Peer,
    route: &Prefix,
    live: &[&'m Peer],
    through: &[Through],
) -> Vec<&'m Peer> {
    let hops = between(peer, route, through);
    if hops.is_empty() {
        return vec![peer];
    }
    let is_hop = |other: &&&Peer| hops.iter().any(|hop| is_called(other, hop));
    live.iter().filter(is_hop).copied().collect()
}

/// Peers that are reached through others, and through whom.
fn behind(
    live: &[&Peer],
    map: &Map,
    settings: &Settings,
    routed: &BTreeMap<Prefix, NodeId>,
) -> BTreeMap<NodeId, Option<NodeId>> {
    let mut all = BTreeMap::new();
    let through = standing(map, settings).through;
    if through.is_empty() {
        return all;
    }
    for peer in live {
        for route in peer.routes.iter().filter(|route| is_elsewhere(map, route)) {
            if !ways(peer, route, live, through).iter().any(|way| way.id == peer.id) {
                all.insert(peer.id, routed.get(route).copied());
            }
        }
    }
    all
}

/// Which peer routes a prefix: of those who reach it who is chosen, else one that is online before
/// one that is not, then the oldest.
fn routed(
    live: &[&Peer],
    map: &Map,
    settings: &Settings,
    choice: &BTreeMap<Prefix, NodeId>,
) -> BTreeMap<Prefix, NodeId> {
    let mut routed: BTreeMap<Prefix, &Peer> = BTreeMap::new();
    for (route, peer) in serving(live, map, settings) {
        let is_chosen = |p: &Peer| choice.get(&route) == Some(&p.id);
        let rank = |p: &Peer| (p.down.contains(&route), !is_chosen(p), !p.online, p.id);
        if routed.get(&route).is_none_or(|known| rank(peer) < rank(known)) {
            routed.insert(route, peer);
        }
    }
    routed.into_iter().map(|(route, peer)| (route, peer.id)).collect()
}

/// The same for those who do not know `control`.
pub(crate) fn wire_prefix(prefix: &Prefix) -> node::Prefix {
    node::Prefix::new(prefix.address(), prefix.bits()).expect("it is one already")
}

#[cfg(test)]
mod tests {
    use control::{SelfNode, Ways};

    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn peer(id: u64, routes: &[&str]) -> Peer {
        Peer {
            addresses: vec![IpAddr::from([100, 64, 0, id as u8])],
            endpoints: vec![SocketAddr::from(([192, 0, 2, id as u8], 1))],
            routes: routes.iter().map(|route| prefix(route)).collect(),
            online: true,
            ..Peer::new(NodeId(id), format!("node-{id}"), PublicKey([id as u8; 32]))
        }
    }

    fn map(peers: Vec<Peer>) -> Map {
        let addresses = vec![IpAddr::from([100, 64, 0, 1])];
        let me = SelfNode { addresses, ..SelfNode::new(NodeId(1), "me") };
        let ranges = vec![prefix("100.64.0.0/10")];
        Map { peers, ranges, ..Map::new(PublicKey([9; 32]), 1, me) }
    }

    #[test]
    fn only_peers_whose_places_changed_are_told_anew() {
        let settings = Settings::default();
        let plan = |map: &Map| Plan::new(map, &settings, 0, &BTreeMap::new());
        let before = map(vec![peer(2, &[]), peer(3, &[])]);
        let mut after = before.clone();
        after.peers[1].endpoints.push(SocketAddr::from(([192, 0, 2, 9], 9)));
        let moved = plan(&after).moved_since(&plan(&before));
        assert_eq!(moved.keys().collect::<Vec<_>>(), [&PublicKey([3; 32])]);
        assert_eq!(moved[&PublicKey([3; 32])].len(), 2);
        assert_eq!(plan(&before).moved_since(&Plan::default()).len(), 2);
    }

    fn owner(plan: &Plan, route: &str) -> Option<u64> {
        let route = prefix(route);
        let found = plan.peers.values().find(|peer| peer.allowed.contains(&route));
        found.map(|peer| peer.id.0)
    }

    #[test]
    fn source_001_14_a_pair_takes_nothing_from_each_other_that_both_announce() {
        let settings = Settings { accept_routes: true, ..Settings::default() };
        let plan = |map: &Map| Plan::new(map, &settings, 0, &BTreeMap::new());
        let mut map = map(vec![peer(2, &["10.4.0.0/24"])]);
        assert_eq!(owner(&plan(&map), "10.4.0.0/24"), Some(2), "the control");
        map.me.routes.push(prefix("10.4.0.0/24"));
        assert_eq!(owner(&plan(&map), "10.4.0.0/24"), None);
    }

    #[test]
    fn peers_have_their_addresses_and_the_range_is_one_network() {
        let plan =
            Plan::new(&map(vec![peer(2, &[])]), &Settings::default(), 1000, &BTreeMap::new());
        assert_eq!(plan.addresses, [(IpAddr::from([100, 64, 0, 1]), 10)]);
        let known = &plan.peers[&PublicKey([2; 32])];
        assert_eq!(known.allowed, [prefix("100.64.0.2/32")]);
        assert_eq!(plan.changes_since(&plan), []);
        let gone = Plan::new(&map(vec![]), &Settings::default(), 1000, &BTreeMap::new());
        let changes = gone.changes_since(&plan);
        assert!(matches!(&changes[..], [Change::Peer(change)] if change.remove));
    }

    #[test]
    fn dp_20_expired_peers_and_a_node_without_approval_have_nothing() {
        let mut expiring = peer(2, &[]);
        expiring.expires_unix_s = Some(1001);
        let mut map = map(vec![expiring]);
        assert_eq!(Plan::new(&map, &Settings::default(), 1000, &BTreeMap::new()).peers.len(), 1);
        assert_eq!(Plan::new(&map, &Settings::default(), 1001, &BTreeMap::new()).peers.len(), 0);
        map.me.approved = false;
        assert_eq!(Plan::new(&map, &Settings::default(), 1000, &BTreeMap::new()).peers.len(), 0);
    }

    #[test]
    fn lc_08_an_address_that_two_nodes_have_is_the_older_ones_and_that_is_told() {
        let settings = Settings::default();
        let plan = |map: &Map| Plan::new(map, &settings, 0, &BTreeMap::new());
        let mut twins = map(vec![peer(2, &[]), peer(3, &[]), peer(4, &[])]);
        assert!(shared_addresses(&twins).is_empty());
        let own = IpAddr::from([100, 64, 0, 4]);
        twins.peers[1].addresses = vec![IpAddr::from([100, 64, 0, 2])];
        twins.peers[2].addresses = vec![IpAddr::from([100, 64, 0, 1]), own];
        let planned = plan(&twins);
        let allowed = |id: u8| planned.peers[&PublicKey([id; 32])].allowed.clone();
        assert_eq!(allowed(2), [prefix("100.64.0.2/32")], "the older keeps it");
        assert_eq!(allowed(3), []);
        assert_eq!(allowed(4), [prefix("100.64.0.4/32")], "nobody has this node's own");
        let told = shared_addresses(&twins);
        assert_eq!(told.len(), 2);
        assert!(told[0].starts_with("node-3 is told to have 100.64.0.2,"), "{told:?}");
        assert!(told[1].starts_with("node-4 is told to have 100.64.0.1,"), "{told:?}");
        // When the older goes, the younger has it.
        twins.peers.remove(0);
        assert_eq!(plan(&twins).peers[&PublicKey([3; 32])].allowed, [prefix("100.64.0.2/32")]);
        // What changes between the two is a peer that goes and one that is given it.
        assert_eq!(plan(&twins).changes_since(&planned).len(), 2);
    }

    #[test]
    fn routes_are_used_when_accepted_by_one_peer_that_is_there() {
        let (lan, exit) = ("10.7.0.0/16", "0.0.0.0/0");
        let mut away = peer(2, &[lan, exit]);
        away.online = false;
        let map = map(vec![away, peer(3, &[lan, exit]), peer(4, &[lan])]);
        let mut settings = Settings::default();
        assert_eq!(owner(&Plan::new(&map, &settings, 0, &BTreeMap::new()), lan), None);
        settings.accept_routes = true;
        let plan = Plan::new(&map, &settings, 0, &BTreeMap::new());
        assert_eq!((owner(&plan, lan), owner(&plan, exit)), (Some(3), None));
        for called in ["node-2", "NODE-2.warren.internal", "100.64.0.2"] {
            settings.exit_node = Some(called.to_owned());
            assert_eq!(
                owner(&Plan::new(&map, &settings, 0, &BTreeMap::new()), exit),
                Some(2),
                "as was asked for"
            );
        }
    }

    #[test]
    fn gw_06_a_gateway_whose_network_is_down_is_left_for_one_that_reaches_it() {
        let lan = "10.7.0.0/16";
        let mut map = map(vec![peer(2, &[lan]), peer(3, &[lan])]);
        let settings = Settings { accept_routes: true, ..Settings::default() };
        let owner_now = |map: &Map, chosen: u64| {
            let choice = BTreeMap::from([(prefix(lan), NodeId(chosen))]);
            owner(&Plan::new(map, &settings, 0, &choice), lan)
        };
        assert_eq!(owner_now(&map, 2), Some(2));
        map.peers[0].down = vec![prefix(lan)];
        assert_eq!(owner_now(&map, 2), Some(3), "whatever was chosen before");
        let left = |map: &Map| candidates(map, &settings, 0)[&prefix(lan)].clone();
        assert_eq!(left(&map), [NodeId(3)]);
        map.peers[1].down = vec![prefix(lan)];
        assert_eq!(left(&map), [NodeId(2), NodeId(3)]);
        assert_eq!(owner_now(&map, 3), Some(3), "it stays led into the network");
    }

    #[test]
    fn a_plain_peer_is_reached_through_its_gateway_and_carried_by_it() {
        let mut phone = peer(4, &[]);
        (phone.gateway, phone.endpoints) = (Some(NodeId(3)), Vec::new());
        let plan = |map: &Map| Plan::new(map, &Settings::default(), 0, &BTreeMap::new());
        let elsewhere = plan(&map(vec![peer(2, &[]), peer(3, &[]), phone.clone()]));
        assert!(!elsewhere.peers.contains_key(&phone.key), "nobody else speaks with it");
        assert_eq!(owner(&elsewhere, "100.64.0.4/32"), Some(3));
        assert_eq!(elsewhere.carried().count(), 0);
        phone.gateway = Some(NodeId(1));
        let here = plan(&map(vec![peer(2, &[]), phone.clone()]));
        assert_eq!(owner(&here, "100.64.0.4/32"), Some(4));
        assert!(here.carried().eq([prefix("100.64.0.4/32")]));
        assert!(!here.moved_since(&Plan::default()).contains_key(&phone.key), "it comes to us");
        phone.gateway = Some(NodeId(9));
        assert_eq!(owner(&plan(&map(vec![peer(2, &[]), phone])), "100.64.0.4/32"), None);
    }

    #[test]
    fn source_001_6_who_is_reached_through_a_hub_is_no_peer_and_the_hub_passes_on() {
        let (own, left, right) = ("10.4.0.0/24", "10.4.1.0/24", "10.4.2.0/24");
        let hub = |id| Peer { name: format!("hub-{id}"), ..peer(id, &[own]) };
        let mut map = map(vec![hub(2), hub(3), peer(4, &[left]), peer(5, &[])]);
        map.me.routes = vec![prefix(right)];
        let words = ["10.0.0.0/8=hub-2", "10.0.0.0/8=hub-3"];
        let words = words.map(|word| word.parse::<Through>().unwrap());
        let mut settings =
            Settings { accept_routes: true, routes_through: words.to_vec(), ..Settings::default() };
        let plan = Plan::new(&map, &settings, 0, &BTreeMap::new());
        let reached = (owner(&plan, own), owner(&plan, left), owner(&plan, "100.64.0.4/32"));
        assert_eq!(reached, (Some(2), Some(2), Some(2)));
        assert!(!plan.peers.contains_key(&PublicKey([4; 32])), "there is no link to it");
        assert_eq!(plan.behind, BTreeMap::from([(NodeId(4), Some(NodeId(2)))]));
        assert!(plan.peers.contains_key(&PublicKey([5; 32])), "who leads nowhere is a peer");
        let both = candidates(&map, &settings, 0)[&prefix(left)].clone();
        assert_eq!(both, [NodeId(2), NodeId(3)], "either of a pair");
        let choice = BTreeMap::from([(prefix(left), NodeId(3))]);
        let other = Plan::new(&map, &settings, 0, &choice);
        let reached = (owner(&other, left), owner(&other, "100.64.0.4/32"));
        assert_eq!(reached, (Some(3), Some(3)));
        assert!(plan.passed.is_empty());

        // The hub itself is joined with all and passes on what they have.
        settings = Settings { routes_through: Vec::new(), site_hub: true, ..settings };
        let hub = Plan::new(&map, &settings, 0, &BTreeMap::new());
        assert_eq!(owner(&hub, left), Some(4));
        assert_eq!(hub.behind, BTreeMap::new());
        let passed: Vec<String> = hub.passed.iter().map(ToString::to_string).collect();
        assert!(passed.contains(&left.to_owned()) && passed.contains(&"100.64.0.4/32".to_owned()));
        assert!(
            !passed.contains(&right.to_owned()) && !passed.contains(&"100.64.0.5/32".to_owned())
        );

        // With nobody who leads there, there is no other way.
        map.peers.retain(|peer| !peer.name.starts_with("hub"));
        settings = Settings { routes_through: words.to_vec(), ..Settings::default() };
        settings.accept_routes = true;
        let alone = Plan::new(&map, &settings, 0, &BTreeMap::new());
        assert_eq!((owner(&alone, left), alone.peers.len()), (None, 1));
    }

    #[test]
    fn source_001_6_only_a_gateway_without_a_word_of_its_own_takes_the_servers() {
        let left = "10.4.1.0/24";
        let hub = |id| Peer { name: format!("hub-{id}"), ..peer(id, &[]) };
        let mut map = map(vec![hub(2), hub(3), peer(4, &[left])]);
        let through = vec!["10.0.0.0/8=hub-2".parse::<Through>().unwrap()];
        map.me.ways = Ways { passes_on: true, through };
        let gateway = Settings { accept_routes: true, site_gateway: true, ..Settings::default() };
        let plan = |settings: &Settings| Plan::new(&map, settings, 0, &BTreeMap::new());
        let told = plan(&gateway);
        assert_eq!((owner(&told, left), told.passed.is_empty()), (Some(2), false));
        assert_eq!(told.behind, BTreeMap::from([(NodeId(4), Some(NodeId(2)))]));
        let other = Settings { site_gateway: false, ..gateway.clone() };
        assert_eq!((owner(&plan(&other), left), plan(&other).passed), (Some(4), BTreeSet::new()));
        let own = "10.0.0.0/8=hub-3".parse::<Through>().unwrap();
        let own = Settings { routes_through: vec![own], ..gateway.clone() };
        assert_eq!((owner(&plan(&own), left), plan(&own).passed), (Some(3), BTreeSet::new()));
        let hub = Settings { site_hub: true, ..gateway };
        assert_eq!(owner(&plan(&hub), left), Some(4), "its own word is the whole of it");
    }

    #[test]
    fn a_route_into_the_network_itself_is_not_taken() {
        let settings = Settings { accept_routes: true, ..Settings::default() };
        let plan =
            Plan::new(&map(vec![peer(2, &["100.64.0.3/32"])]), &settings, 0, &BTreeMap::new());
        assert_eq!(owner(&plan, "100.64.0.3/32"), None);
    }
}
