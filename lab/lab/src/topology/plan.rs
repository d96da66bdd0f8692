//! From a topology to a plan: every name, address and route decided, every mistake found.
//!
//! Links that meet in switches are one segment, with one subnet. A node gets a route to each
//! segment it can reach through routers, the shortest way; nobody gets a route through a NAT
//! from its outside to its inside, as on the Internet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use sim::impair::Impairment;
use sim::profile;
use toml::Spanned;

use super::file::{Mistake, RawLink, Topology};
use super::rules::{Block, NatKind};
use crate::netns::check_name;
use crate::wire::MTU_MAX;

/// Most hosts, routers and switches together.
pub const NODES_MAX: usize = 250;
/// Most links.
pub const LINKS_MAX: usize = 250;

/// What a node of the network is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// It sends and receives.
    Host,
    /// It forwards packets.
    Router,
    /// It forwards frames.
    Switch,
}

/// An address with the length of its subnet's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// Bits of the prefix.
    pub bits: u8,
}

/// One host, router or switch.
#[derive(Debug, Clone)]
pub struct NodePlan {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: NodeKind,
    /// What it lets through to nobody.
    pub blocked: Vec<Block>,
    /// How it translates, and on which interfaces.
    pub nat: Option<(NatKind, Vec<String>)>,
    /// Lines for `ip -batch`.
    pub routes: Vec<String>,
}

/// One side of a link.
#[derive(Debug, Clone)]
pub struct EndPlan {
    /// The node.
    pub node: String,
    /// Its interface.
    pub ifname: String,
    /// Whether it is a port of a switch, without addresses.
    pub is_port: bool,
    /// Its addresses.
    pub addresses: Vec<Cidr>,
}

/// One link.
#[derive(Debug, Clone)]
pub struct LinkPlan {
    /// Its name.
    pub name: String,
    /// Its two sides.
    pub ends: [EndPlan; 2],
    /// What happens to frames that enter at each side, if it is a wire.
    pub impairments: Option<[Impairment; 2]>,
    /// Seed of the wire's chance.
    pub seed: u64,
    /// Largest packet.
    pub mtu: usize,
    /// Parameters of `tbf`, if it is shaped.
    pub shape: Option<String>,
    segment: usize,
}

/// A whole network, decided.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The lab's name: the prefix of its namespaces.
    pub name: String,
    /// Hosts, routers, switches, each by name.
    pub nodes: Vec<NodePlan>,
    /// Links in the order of the file.
    pub links: Vec<LinkPlan>,
}

type Kinds = BTreeMap<String, NodeKind>;

impl Plan {
    /// Plans a topology.
    ///
    /// # Errors
    /// Returns the first mistake.
    pub fn new(topology: &Topology) -> Result<Self, Mistake> {
        let name = match &topology.raw.name {
            Some(name) => name.get_ref().clone(),
            None => topology.stem(),
        };
        let name_span = topology.raw.name.as_ref().map_or(0..0, Spanned::span);
        named(topology, "lab name", &name, name_span)?;
        let kinds = kinds(topology)?;
        let mut links = links(topology, &kinds)?;
        assign(topology, &mut links)?;
        let mut nodes = nodes(topology, &kinds, &links)?;
        for i in 0..nodes.len() {
            nodes[i].routes = routes(&nodes, &links, &nodes[i].name);
        }
        Ok(Self { name, nodes, links })
    }

    /// The first address of a node, version 4 before version 6.
    #[must_use]
    pub fn address(&self, node: &str) -> Option<IpAddr> {
        let ends = self.links.iter().flat_map(|link| &link.ends).filter(|end| end.node == node);
        ends.flat_map(|end| &end.addresses).map(|cidr| cidr.address).min_by_key(IpAddr::is_ipv6)
    }

    /// The hosts file of a node: itself, and everyone by name.
    #[must_use]
    pub fn hosts_file(&self, own: &str) -> String {
        let mut text = format!("127.0.0.1 localhost\n127.0.1.1 {own}\n::1 localhost\n");
        for end in self.links.iter().flat_map(|link| &link.ends) {
            for cidr in &end.addresses {
                text += &format!("{} {}\n", cidr.address, end.node);
            }
        }
        text
    }
}

impl EndPlan {
    /// Its first address of a family.
    fn address_of(&self, is_v4: bool) -> Option<IpAddr> {
        self.addresses.iter().map(|cidr| cidr.address).find(|a| a.is_ipv4() == is_v4)
    }
}

impl LinkPlan {
    /// Whether it is an impaired wire, and not a plain pair of devices.
    #[must_use]
    pub fn is_wire(&self) -> bool {
        self.impairments.is_some()
    }
}

impl Cidr {
    /// Reads `10.0.0.1/24`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let (address, bits): (IpAddr, u8) = (address.parse().ok()?, bits.parse().ok()?);
        let most = if address.is_ipv4() { 32 } else { 128 };
        (bits <= most).then_some(Self { address, bits })
    }

    /// The subnet's own address.
    #[must_use]
    pub fn subnet(&self) -> Self {
        let address = match self.address {
            IpAddr::V4(a) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & mask))
            }
            IpAddr::V6(a) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask))
            }
        };
        Self { address, bits: self.bits }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

fn named(t: &Topology, what: &str, name: &str, span: Range<usize>) -> Result<(), Mistake> {
    check_name(what, name).map_err(|error| t.mistake(span, error.to_string()))
}

fn kinds(t: &Topology) -> Result<Kinds, Mistake> {
    let hosts = t.raw.hosts.keys().map(|name| (name, NodeKind::Host));
    let routers = t.raw.routers.keys().map(|name| (name, NodeKind::Router));
    let switches = t.raw.switches.keys().map(|name| (name, NodeKind::Switch));
    let mut kinds = Kinds::new();
    for (name, kind) in hosts.chain(routers).chain(switches) {
        named(t, "name", name.get_ref(), name.span())?;
        if kinds.insert(name.get_ref().clone(), kind).is_some() {
            let what = format!("there is already a {:?} of that name: rename one", name.get_ref());
            return Err(t.mistake(name.span(), what));
        }
        if kinds.len() > NODES_MAX {
            return Err(t.mistake(name.span(), format!("a lab has at most {NODES_MAX} nodes")));
        }
    }
    if kinds.is_empty() {
        return Err(t.mistake(0..0, "there is no host: write [hosts.NAME]"));
    }
    Ok(kinds)
}

fn links(t: &Topology, kinds: &Kinds) -> Result<Vec<LinkPlan>, Mistake> {
    let mut links: Vec<LinkPlan> = Vec::new();
    let mut interfaces: BTreeMap<String, usize> = BTreeMap::new();
    for spanned in &t.raw.links {
        if links.len() == LINKS_MAX {
            return Err(t.mistake(spanned.span(), format!("a lab has at most {LINKS_MAX} links")));
        }
        let raw = spanned.get_ref();
        let [a, b] = ends(t, raw, kinds, &mut interfaces)?;
        let default = format!("{}-{}", a.node, b.node);
        let name = raw.name.as_ref().map_or(default, |name| name.get_ref().clone());
        let span = raw.name.as_ref().map_or_else(|| raw.between.span(), Spanned::span);
        if links.iter().any(|link| link.name == name) {
            let what = format!("there is already a link {name}: give this one a `name`");
            return Err(t.mistake(span, what));
        }
        let mtu = raw.mtu.as_ref().map_or(1_500, |mtu| *mtu.get_ref());
        if let Some(spanned) = &raw.mtu
            && !(1_280..=MTU_MAX).contains(&mtu)
        {
            let what = format!("the MTU must be 1280 to {MTU_MAX}: IPv6 needs 1280");
            return Err(t.mistake(spanned.span(), what));
        }
        let impairments = impairments(t, raw)?;
        let seed = raw.seed.unwrap_or(links.len() as u64 + 1);
        let shape = shape(t, raw)?;
        links.push(LinkPlan { name, ends: [a, b], impairments, seed, mtu, shape, segment: 0 });
    }
    Ok(links)
}

fn ends(
    t: &Topology,
    raw: &RawLink,
    kinds: &Kinds,
    interfaces: &mut BTreeMap<String, usize>,
) -> Result<[EndPlan; 2], Mistake> {
    let between = raw.between.get_ref();
    let [a, b] = between.as_slice() else {
        let what = "a link is between two: write between = [\"A\", \"B\"]";
        return Err(t.mistake(raw.between.span(), what));
    };
    if a.get_ref() == b.get_ref() {
        return Err(t.mistake(b.span(), "a link needs two different ends"));
    }
    let mut end = |name: &Spanned<String>| {
        let Some(kind) = kinds.get(name.get_ref()) else {
            let known = kinds.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let what = format!("unknown node {:?}: there are {known}", name.get_ref());
            return Err(t.mistake(name.span(), what));
        };
        let number = interfaces.entry(name.get_ref().clone()).or_default();
        let ifname = format!("eth{number}");
        *number += 1;
        let is_port = *kind == NodeKind::Switch;
        Ok(EndPlan { node: name.get_ref().clone(), ifname, is_port, addresses: Vec::new() })
    };
    let mut ends = [end(a)?, end(b)?];
    let Some(given) = &raw.addresses else { return Ok(ends) };
    if given.get_ref().len() != 2 {
        let what = "addresses are a list for each end, in the order of `between`";
        return Err(t.mistake(given.span(), what));
    }
    for (end, list) in ends.iter_mut().zip(given.get_ref()) {
        for text in list {
            let cidr = Cidr::parse(text.get_ref()).ok_or_else(|| {
                t.mistake(text.span(), "an address is written with its prefix, as 10.0.0.1/24")
            })?;
            if end.is_port {
                return Err(t.mistake(text.span(), "a switch has no addresses: leave [] here"));
            }
            end.addresses.push(cidr);
        }
    }
    Ok(ends)
}

fn impairments(t: &Topology, raw: &RawLink) -> Result<Option<[Impairment; 2]>, Mistake> {
    let read = |words: &Spanned<String>| {
        let mut impairment = Impairment::LINE;
        for word in words.get_ref().split_whitespace() {
            profile::apply(&mut impairment, word)
                .map_err(|error| t.mistake(words.span(), error.to_string()))?;
        }
        Ok(impairment)
    };
    match (&raw.impair, &raw.impair_back) {
        (None, None) => Ok(None),
        (None, Some(back)) => Ok(Some([Impairment::LINE, read(back)?])),
        (Some(both), None) => read(both).map(|both| Some([both, both])),
        (Some(forth), Some(back)) => Ok(Some([read(forth)?, read(back)?])),
    }
}

fn shape(t: &Topology, raw: &RawLink) -> Result<Option<String>, Mistake> {
    let Some(shape) = &raw.shape else { return Ok(None) };
    let rate = profile::rate_bps(shape.rate.get_ref());
    let rate = rate.map_err(|error| t.mistake(shape.rate.span(), error.to_string()))?;
    let latency = profile::duration_us(shape.latency.get_ref());
    let latency = latency.map_err(|error| t.mistake(shape.latency.span(), error.to_string()))?;
    let burst = shape.burst.get_ref().strip_suffix("kb").and_then(|n| n.trim().parse().ok());
    let burst: u64 = burst.filter(|kb| (2..=65_536).contains(kb)).ok_or_else(|| {
        t.mistake(shape.burst.span(), "a burst is 2kb to 65536kb: at least one packet")
    })?;
    if rate < 8_000 {
        return Err(t.mistake(shape.rate.span(), "a shaped rate is at least 8kbit"));
    }
    Ok(Some(format!("rate {rate}bit burst {burst}kb latency {latency}us")))
}

/// Finds segments and gives each end its addresses.
fn assign(t: &Topology, links: &mut [LinkPlan]) -> Result<(), Mistake> {
    for (i, link) in links.iter_mut().enumerate() {
        link.segment = i;
    }
    // A switch makes one segment of its links, switches joined to switches too.
    loop {
        let mut changed = false;
        for i in 0..links.len() {
            for j in 0..links.len() {
                let met = links[i].ends.iter().any(|a| {
                    a.is_port && links[j].ends.iter().any(|b| b.is_port && a.node == b.node)
                });
                if met && links[i].segment < links[j].segment {
                    links[j].segment = links[i].segment;
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    let given: BTreeSet<usize> = links
        .iter()
        .filter(|link| link.ends.iter().any(|end| !end.addresses.is_empty()))
        .map(|link| link.segment)
        .collect();
    let hidden = hidden(t, links);
    let mut members: BTreeMap<usize, u16> = BTreeMap::new();
    for (link, raw) in links.iter_mut().zip(&t.raw.links) {
        for end in link.ends.iter_mut().filter(|end| !end.is_port) {
            if given.contains(&link.segment) {
                if end.addresses.is_empty() {
                    let what = format!(
                        "{} has no address here, while others on this link or switch were given \
                         theirs: give all or none",
                        end.node
                    );
                    return Err(t.mistake(raw.get_ref().between.span(), what));
                }
                continue;
            }
            let member = members.entry(link.segment).or_default();
            *member += 1;
            let n = link.segment as u16 + 1;
            let host = *member;
            let v4 = Ipv4Addr::new(10, 71, n as u8, host as u8);
            let v6 = Ipv6Addr::new(0xfd71, 0, 0, n, 0, 0, 0, host);
            end.addresses = vec![Cidr { address: IpAddr::V4(v4), bits: 24 }];
            if !hidden.contains(&link.segment) {
                end.addresses.push(Cidr { address: IpAddr::V6(v6), bits: 64 });
            }
        }
    }
    Ok(())
}

/// The segments behind a translator. It translates IPv4, and nobody outside has a way to what is
/// inside: an IPv6 there would be announced and dead.
fn hidden(t: &Topology, links: &[LinkPlan]) -> BTreeSet<usize> {
    let is_inside = |link: &LinkPlan, end: &EndPlan| {
        t.raw.routers.get(end.node.as_str()).is_some_and(|router| {
            let is_outside = router.outside.iter().any(|name| *name.get_ref() == link.name);
            router.nat.is_some() && !is_outside
        })
    };
    let inner = |link: &&LinkPlan| link.ends.iter().any(|end| is_inside(link, end));
    let mut hidden: BTreeSet<usize> = links.iter().filter(inner).map(|l| l.segment).collect();
    // Whoever routes inside without translating is inside with all of its links.
    let plain = |node: &str| t.raw.routers.get(node).is_some_and(|router| router.nat.is_none());
    loop {
        let reached: BTreeSet<&str> = links
            .iter()
            .filter(|link| hidden.contains(&link.segment))
            .flat_map(|link| link.ends.iter().map(|end| end.node.as_str()))
            .filter(|node| plain(node))
            .collect();
        let touches =
            |link: &&LinkPlan| link.ends.iter().any(|e| reached.contains(e.node.as_str()));
        let more: BTreeSet<usize> = links.iter().filter(touches).map(|l| l.segment).collect();
        if more.is_subset(&hidden) {
            return hidden;
        }
        hidden.extend(more);
    }
}

fn nodes(t: &Topology, kinds: &Kinds, links: &[LinkPlan]) -> Result<Vec<NodePlan>, Mistake> {
    let mut nodes = Vec::new();
    for (name, kind) in kinds {
        let host = t.raw.hosts.get(name.as_str()).map(|host| &host.blocked);
        let router = t.raw.routers.get(name.as_str());
        let mut blocked = Vec::new();
        for word in host.or_else(|| router.map(|r| &r.blocked)).into_iter().flatten() {
            let block = Block::parse(word.get_ref())
                .ok_or_else(|| t.mistake(word.span(), Block::known(word.get_ref())))?;
            blocked.push(block);
        }
        let nat = match router.and_then(|router| Some((router, router.nat.as_ref()?))) {
            None => {
                let outside = router.and_then(|router| router.outside.first());
                if let Some(word) = outside {
                    let what = "`outside` means something only beside `nat`";
                    return Err(t.mistake(word.span(), what));
                }
                None
            }
            Some((router, word)) => {
                let kind = NatKind::parse(word.get_ref())
                    .ok_or_else(|| t.mistake(word.span(), NatKind::known(word.get_ref())))?;
                if router.outside.is_empty() {
                    let what = "a NAT needs an outside: write outside = [\"LINK\"]";
                    return Err(t.mistake(word.span(), what));
                }
                let mut outside = Vec::new();
                for link in &router.outside {
                    outside.push(outside_interface(t, links, name, link)?);
                }
                Some((kind, outside))
            }
        };
        nodes.push(NodePlan { name: name.clone(), kind: *kind, blocked, nat, routes: Vec::new() });
    }
    Ok(nodes)
}

fn outside_interface(
    t: &Topology,
    links: &[LinkPlan],
    router: &str,
    link: &Spanned<String>,
) -> Result<String, Mistake> {
    let own = |link: &LinkPlan| link.ends.iter().position(|end| end.node == router);
    let found = links.iter().find(|l| l.name == *link.get_ref());
    let end = found.and_then(|link| Some(link.ends[own(link)?].ifname.clone()));
    end.ok_or_else(|| {
        let known = links.iter().filter(|l| own(l).is_some()).map(|l| l.name.as_str());
        let known = known.collect::<Vec<_>>().join(", ");
        let what = format!("{router} has no link {:?}: its links are {known}", link.get_ref());
        t.mistake(link.span(), what)
    })
}

/// Routes of one node, of both families: a way that carries one need not carry the other.
fn routes(nodes: &[NodePlan], links: &[LinkPlan], own: &str) -> Vec<String> {
    let of = |is_v4: bool| routes_of(nodes, links, own, is_v4);
    [of(true), of(false)].concat()
}

/// Those of one family: breadth first over segments, through routers.
fn routes_of(nodes: &[NodePlan], links: &[LinkPlan], own: &str, is_v4: bool) -> Vec<String> {
    let ends = || {
        let all = links.iter().flat_map(|l| l.ends.iter().map(move |e| (l.segment, e)));
        all.filter(|(_, end)| end.address_of(is_v4).is_some())
    };
    let mut seen: BTreeMap<usize, Option<&EndPlan>> =
        ends().filter(|(_, e)| e.node == own).map(|(s, _)| (s, None)).collect();
    let mut ahead: VecDeque<usize> = seen.keys().copied().collect();
    let mut lines = Vec::new();
    let mut first_routers = BTreeSet::new();
    while let Some(segment) = ahead.pop_front() {
        let via = seen[&segment];
        for (_, entry) in ends().filter(|(s, e)| *s == segment && e.node != own) {
            let Some(router) = nodes.iter().find(|n| n.name == entry.node) else { continue };
            if router.kind != NodeKind::Router {
                continue;
            }
            let first = via.unwrap_or(entry);
            let Some(gateway) = first.address_of(is_v4) else { continue };
            first_routers.insert(gateway);
            let outside = |end: &EndPlan| {
                router.nat.as_ref().is_some_and(|(_, outside)| outside.contains(&end.ifname))
            };
            for (next, exit) in ends().filter(|(_, e)| e.node == router.name) {
                let inwards = outside(entry) && !outside(exit);
                if inwards || seen.contains_key(&next) {
                    continue;
                }
                seen.insert(next, Some(first));
                ahead.push_back(next);
                let there = ends().filter(|(s, _)| *s == next).flat_map(|(_, e)| &e.addresses);
                let subnets: BTreeSet<Cidr> = there
                    .filter(|cidr| cidr.address.is_ipv4() == is_v4)
                    .map(Cidr::subnet)
                    .collect();
                let line = |subnet| format!("route add {subnet} via {gateway}\n");
                lines.extend(subnets.iter().map(line));
            }
        }
    }
    if let [gateway] = first_routers.into_iter().collect::<Vec<_>>()[..] {
        lines.push(format!("route add default via {gateway}\n"));
    }
    lines
}

#[cfg(test)]
mod tests;
