//! The map: what a node is told of the network, and the deltas by which it changes.
//!
//! A map has an epoch, which grows with every start of the server, and a sequence inside it. A
//! delta leads from one sequence to a later one; applied to any other it is a gap, and nothing
//! changes. A node never goes back to an older epoch or sequence (threat CO-17), so a server that
//! was restored from a copy cannot bring back what was revoked.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeSet;

use noise::PublicKey;
use serde::{Deserialize, Serialize};

use crate::limits::{
    ENDPOINTS_MAX, PEERS_MAX, POLICY_BYTES_MAX, RECORD_ADDRESSES_MAX, RECORDS_MAX, RELAY_STUN_MAX,
    RELAYS_MAX, RESOLVERS_MAX, ROUTES_MAX, TAGS_MAX, URLS_MAX, WAYS_MAX,
};
use crate::name::{is_domain, is_label, is_tag};
use crate::{Alias, Prefix, ServerUrl, Ways};

/// A node's place in the server's books; never given twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u64);

/// What a node is told of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SelfNode {
    /// Its number in the server's books.
    pub id: NodeId,
    /// Its name, a DNS label that is unique in the network.
    pub name: String,
    /// Its addresses in the network, IPv4 first.
    pub addresses: Vec<IpAddr>,
    /// Its tags.
    pub tags: Vec<String>,
    /// The routes through it that are approved.
    pub routes: Vec<Prefix>,
    /// An administrator has let it in; before that it is told of no peers.
    pub approved: bool,
    /// When its WireGuard key expires, in Unix seconds by the server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_s: Option<u64>,
    /// How long the key's life is in all, in seconds; it is renewed at half of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life_s: Option<u64>,
    /// Through whom it reaches others, and whether it passes on, if it is a gateway of sites.
    #[serde(default, skip_serializing_if = "Ways::is_empty")]
    pub ways: Ways,
}

/// What a node is told of another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// Its number in the server's books.
    pub id: NodeId,
    /// Its name, a DNS label that is unique in the network.
    pub name: String,
    /// Its WireGuard public key.
    #[serde(with = "crate::text::key")]
    pub key: PublicKey,
    /// Its addresses in the network, IPv4 first.
    pub addresses: Vec<IpAddr>,
    /// Where it may be reached, by its own word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<SocketAddr>,
    /// The relay on which it can be found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<u32>,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The routes through it that are approved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Prefix>,
    /// Which of these stand for others, and for which.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<Alias>,
    /// Which of these lead nowhere now, by its own word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub down: Vec<Prefix>,
    /// It is in touch with the server.
    #[serde(default)]
    pub online: bool,
    /// When its key expires, in Unix seconds by the server's clock; enforced by the reader too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_s: Option<u64>,
    /// The node through which alone a plain WireGuard peer is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<NodeId>,
}

/// A relay of this network.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Relay {
    /// Its number, by which peers name it.
    pub id: u32,
    /// Where it is.
    pub url: ServerUrl,
    /// Its Noise public key, by which it proves itself.
    #[serde(with = "crate::text::key")]
    pub key: PublicKey,
    /// Where it answers STUN, as `host:port`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stun: Vec<String>,
    /// It answers QUIC at the UDP port of its URL.
    #[serde(default, skip_serializing_if = "is_false")]
    pub quic: bool,
    /// It answers QUIC in pings to the address of its URL.
    #[serde(default, skip_serializing_if = "is_false")]
    pub icmp: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// How names are resolved.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Dns {
    /// The domain below which nodes have their names; empty means none.
    pub domain: String,
    /// Resolvers for other names.
    #[serde(default)]
    pub resolvers: Vec<IpAddr>,
    /// Domains with resolvers of their own.
    #[serde(default)]
    pub zones: Vec<(String, Vec<IpAddr>)>,
    /// Names below the domain that are no node's, in full, with their addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<(String, Vec<IpAddr>)>,
}

/// The rules that both ends enforce. This crate passes them on and does not read them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Policy {
    /// The version of the policy text that the rules were compiled from; 0 if there is none.
    pub version: u64,
    /// What this node is to enforce, as `policy::Rules::read` takes it. Where no policy was ever
    /// set that says so; an empty text is no rules, and nothing may pass.
    pub rules: String,
}

/// A whole map. `P` is a peer; a server that says many maps has the text of each peer instead.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Map<P = Peer> {
    /// Whose map it is: the machine's key, so that no other node's map can be slipped in.
    #[serde(with = "crate::text::key")]
    pub machine: PublicKey,
    /// Grows with every start of the server.
    pub epoch: u64,
    /// Grows with every change inside an epoch.
    pub sequence: u64,
    /// When it was made, in Unix seconds by the server's clock.
    pub made_unix_s: u64,
    /// The node itself.
    #[serde(rename = "self")]
    pub me: SelfNode,
    /// The peers that it may talk to, in ascending order of their numbers.
    pub peers: Vec<P>,
    /// The ranges that nodes have their addresses from, IPv4 first.
    #[serde(default)]
    pub ranges: Vec<Prefix>,
    /// Names.
    pub dns: Dns,
    /// Rules.
    pub policy: Policy,
    /// Relays.
    #[serde(default)]
    pub relays: Vec<Relay>,
    /// STUN servers.
    #[serde(default)]
    pub stun: Vec<String>,
    /// Where the server is, the preferred first; nothing if it does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<ServerUrl>,
}

/// What changed from one sequence to another. `P` is as in [`Map`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "P: Deserialize<'de>"))]
pub struct Delta<P = Peer> {
    /// Whose it is, as in [`Map::machine`].
    #[serde(with = "crate::text::key")]
    pub machine: PublicKey,
    /// The epoch of both sequences.
    pub epoch: u64,
    /// The sequence that it starts from.
    pub from: u64,
    /// The sequence that it leads to.
    pub to: u64,
    /// When it was made, in Unix seconds by the server's clock.
    pub made_unix_s: u64,
    /// The node itself, if that changed.
    #[serde(default, rename = "self", skip_serializing_if = "Option::is_none")]
    pub me: Option<SelfNode>,
    /// Peers that are new or changed, in ascending order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upsert: Vec<P>,
    /// Peers that are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<NodeId>,
    /// The rules, if they changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
}

/// What changed in a node's map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Changed {
    /// All of it, or the rules.
    Whole,
    /// Only these peers, and perhaps the node itself.
    Peers {
        /// New or changed.
        upserted: Vec<NodeId>,
        /// Gone.
        removed: Vec<NodeId>,
    },
}

impl Changed {
    /// What a delta changes.
    pub(crate) fn by(delta: &Delta) -> Self {
        if delta.policy.is_some() {
            return Self::Whole;
        }
        let upserted = delta.upsert.iter().map(|peer| peer.id).collect();
        Self::Peers { upserted, removed: delta.remove.clone() }
    }
}

/// What a server signs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Statement<P = Peer> {
    /// A whole map.
    Map(Box<Map<P>>),
    /// A change of it.
    Delta(Box<Delta<P>>),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Map,
    Delta,
}

#[derive(Deserialize)]
struct Tagged {
    kind: Kind,
}

impl Statement {
    /// Reads the JSON that a server signed. The text is gone through twice, first for its kind:
    /// a tag that may stand anywhere would else have everything built up twice.
    ///
    /// # Errors
    /// [`BadMap::Form`].
    pub fn read(text: &str) -> Result<Self, BadMap> {
        let tagged: Tagged = serde_json::from_str(text).map_err(|_| BadMap::Form)?;
        match tagged.kind {
            Kind::Map => serde_json::from_str(text).map(Self::Map),
            Kind::Delta => serde_json::from_str(text).map(Self::Delta),
        }
        .map_err(|_| BadMap::Form)
    }
}

/// Why a map or delta is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadMap {
    /// It is no map at all.
    Form,
    /// A list or text in it is longer than its bound; which one.
    Bound(&'static str),
    /// A name in it is none, or peers are not in order; what.
    Content(&'static str),
    /// It is another machine's.
    Machine,
    /// It is not newer than what is known.
    Old,
    /// The delta starts elsewhere than where we are.
    Gap,
}

fn bound(what: &'static str, len: usize, max: usize) -> Result<(), BadMap> {
    if len <= max { Ok(()) } else { Err(BadMap::Bound(what)) }
}

fn check_node(
    name: &str,
    addresses: &[IpAddr],
    tags: &[String],
    routes: &[Prefix],
) -> Result<(), BadMap> {
    bound("addresses", addresses.len(), 2)?;
    bound("tags", tags.len(), TAGS_MAX)?;
    bound("routes", routes.len(), ROUTES_MAX)?;
    if !is_label(name) {
        return Err(BadMap::Content("name"));
    }
    if tags.iter().any(|tag| !is_tag(tag)) {
        return Err(BadMap::Content("tag"));
    }
    Ok(())
}

impl SelfNode {
    /// A node that is let in and has nothing but its name.
    #[must_use]
    pub fn new(id: NodeId, name: impl Into<String>) -> Self {
        Self {
            id,
            name: name.into(),
            addresses: Vec::new(),
            tags: Vec::new(),
            routes: Vec::new(),
            approved: true,
            expires_unix_s: None,
            life_s: None,
            ways: Ways::default(),
        }
    }

    fn check(&self) -> Result<(), BadMap> {
        bound("ways", self.ways.through.len(), WAYS_MAX)?;
        check_node(&self.name, &self.addresses, &self.tags, &self.routes)
    }
}

impl Peer {
    /// A peer of which nothing more is known, and which is not in touch.
    #[must_use]
    pub fn new(id: NodeId, name: impl Into<String>, key: PublicKey) -> Self {
        Self {
            id,
            name: name.into(),
            key,
            addresses: Vec::new(),
            endpoints: Vec::new(),
            relay: None,
            tags: Vec::new(),
            routes: Vec::new(),
            aliases: Vec::new(),
            down: Vec::new(),
            online: false,
            expires_unix_s: None,
            gateway: None,
        }
    }
}

fn check_peers(peers: &[Peer]) -> Result<(), BadMap> {
    bound("peers", peers.len(), PEERS_MAX)?;
    for peer in peers {
        check_node(&peer.name, &peer.addresses, &peer.tags, &peer.routes)?;
        bound("endpoints", peer.endpoints.len(), ENDPOINTS_MAX)?;
        bound("aliases", peer.aliases.len().max(peer.down.len()), ROUTES_MAX)?;
    }
    if peers.windows(2).all(|pair| pair[0].id < pair[1].id) {
        Ok(())
    } else {
        Err(BadMap::Content("order of peers"))
    }
}

impl Map {
    /// The map of a machine that is alone, first of its epoch.
    #[must_use]
    pub fn new(machine: PublicKey, epoch: u64, me: SelfNode) -> Self {
        Self {
            machine,
            epoch,
            sequence: 1,
            made_unix_s: 0,
            me,
            peers: Vec::new(),
            ranges: Vec::new(),
            dns: Dns::default(),
            policy: Policy::default(),
            relays: Vec::new(),
            stun: Vec::new(),
            urls: Vec::new(),
        }
    }

    /// Checks all bounds and names.
    ///
    /// # Errors
    /// [`BadMap::Bound`] and [`BadMap::Content`].
    pub fn check(&self) -> Result<(), BadMap> {
        self.me.check()?;
        check_peers(&self.peers)?;
        bound("ranges", self.ranges.len(), 2)?;
        bound("relays", self.relays.len(), RELAYS_MAX)?;
        bound("stun", self.stun.len(), RELAYS_MAX)?;
        bound("urls", self.urls.len(), URLS_MAX)?;
        self.relays.iter().try_for_each(|relay| bound("stun", relay.stun.len(), RELAY_STUN_MAX))?;
        bound("resolvers", self.dns.resolvers.len(), RESOLVERS_MAX)?;
        bound("zones", self.dns.zones.len(), RESOLVERS_MAX)?;
        bound("policy", self.policy.rules.len(), POLICY_BYTES_MAX)?;
        for (zone, resolvers) in &self.dns.zones {
            bound("resolvers", resolvers.len(), RESOLVERS_MAX)?;
            if !is_domain(zone) {
                return Err(BadMap::Content("zone"));
            }
        }
        bound("records", self.dns.records.len(), RECORDS_MAX)?;
        for (name, addresses) in &self.dns.records {
            bound("addresses", addresses.len(), RECORD_ADDRESSES_MAX)?;
            if !is_domain(name) {
                return Err(BadMap::Content("record"));
            }
        }
        if !self.dns.domain.is_empty() && !is_domain(&self.dns.domain) {
            return Err(BadMap::Content("domain"));
        }
        Ok(())
    }

    /// The peer with this number.
    #[must_use]
    pub fn peer(&self, id: NodeId) -> Option<&Peer> {
        let at = self.peers.binary_search_by_key(&id, |peer| peer.id).ok()?;
        Some(&self.peers[at])
    }

    /// Whether `other`'s version is later: epoch first, then sequence.
    #[must_use]
    pub const fn is_older_than(&self, epoch: u64, sequence: u64) -> bool {
        self.epoch < epoch || self.epoch == epoch && self.sequence < sequence
    }

    /// A delta from here to a later sequence that changes nothing yet.
    #[must_use]
    pub const fn delta(&self, to: u64, made_unix_s: u64) -> Delta {
        Delta {
            machine: self.machine,
            epoch: self.epoch,
            from: self.sequence,
            to,
            made_unix_s,
            me: None,
            upsert: Vec::new(),
            remove: Vec::new(),
            policy: None,
        }
    }

    /// Applies a delta; on an error nothing has changed.
    ///
    /// # Errors
    /// [`BadMap::Machine`], [`BadMap::Gap`] if it starts elsewhere, [`BadMap::Bound`] and
    /// [`BadMap::Content`].
    pub fn apply(&mut self, delta: Delta) -> Result<(), BadMap> {
        if delta.machine != self.machine {
            return Err(BadMap::Machine);
        }
        if delta.epoch != self.epoch || delta.from != self.sequence || delta.to <= delta.from {
            return Err(BadMap::Gap);
        }
        check_peers(&delta.upsert)?;
        if let Some(me) = &delta.me {
            me.check()?;
        }
        if let Some(policy) = &delta.policy {
            bound("policy", policy.rules.len(), POLICY_BYTES_MAX)?;
        }
        let changed = delta.upsert.iter().map(|peer| peer.id);
        let gone: BTreeSet<NodeId> = delta.remove.iter().copied().chain(changed).collect();
        let kept = self.peers.iter().filter(|peer| !gone.contains(&peer.id)).count();
        bound("peers", kept + delta.upsert.len(), PEERS_MAX)?;
        self.peers.retain(|peer| !gone.contains(&peer.id));
        self.peers.extend(delta.upsert);
        self.peers.sort_by_key(|peer| peer.id);
        if let Some(me) = delta.me {
            self.me = me;
        }
        if let Some(policy) = delta.policy {
            self.policy = policy;
        }
        self.sequence = delta.to;
        self.made_unix_s = delta.made_unix_s;
        Ok(())
    }
}

impl fmt::Display for BadMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("the server's map cannot be read"),
            Self::Bound(what) => write!(f, "the server's map has more than allowed of: {what}"),
            Self::Content(what) => write!(f, "the server's map has an impossible {what}"),
            Self::Machine => f.write_str("the map is another machine's"),
            Self::Old => f.write_str("the map is not newer than the one that is known"),
            Self::Gap => f.write_str("the change does not follow the map that is known"),
        }
    }
}

impl core::error::Error for BadMap {}

#[cfg(test)]
pub(crate) mod tests;
