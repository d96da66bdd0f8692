//! What must be true: resources with their properties, and which sites are joined.

use core::fmt;
use std::collections::BTreeMap;

use crate::file::{File, Provider, Topology};

/// What a resource is. The order is the one of creation: each needs only what stands above it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// What holds everything of a site at Azure.
    ResourceGroup,
    /// A private network at a cloud.
    Network,
    /// Its way to the Internet.
    InternetGateway,
    /// A part of the network that has machines.
    Subnet,
    /// What may reach the gateway.
    Group,
    /// What lets other sites into the machines' own group.
    MachineRule,
    /// The routes of a subnet.
    Table,
    /// A gateway's interface, without a check of sources.
    Interface,
    /// A gateway's public address.
    Address,
    /// The program on a machine that is there.
    Program,
    /// A gateway's machine.
    Machine,
    /// A gateway as a node of the network.
    Member,
    /// The tunnels of a gateway that runs another program than ours.
    Foreign,
    /// The server's word that the gateway leads to its site.
    Approval,
    /// That the gateway passes packets on, read back from it.
    Forwarding,
    /// A route of other sites' networks to the gateway.
    Route,
}

/// One resource, wherever it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Id {
    /// What it is.
    pub kind: Kind,
    /// Whose it is.
    pub site: String,
    /// Which one of the site's.
    pub name: String,
}

/// What is to be true of a resource, or is.
pub type Properties = BTreeMap<String, String>;

/// How a property says whether something is so.
#[must_use]
pub const fn yes_or_no(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// A resource that must exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resource {
    /// Which.
    pub id: Id,
    /// With what.
    pub properties: Properties,
    /// What has to be there before it.
    pub needs: Vec<Id>,
    /// What it is for.
    pub why: String,
}

/// Two sites that are joined, by their places in the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Link {
    /// The one that stands first.
    pub from: usize,
    /// The other.
    pub to: usize,
}

/// What the caller knows and the file does not say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// The digest of the program that gateways are to have.
    pub program: String,
    /// Which gateway of a pair leads now, from 0, by site; the first where nothing is said.
    pub active: BTreeMap<String, usize>,
    /// Where gateways that run another program than ours are found from outside, by site.
    pub outside: BTreeMap<String, String>,
    /// The digest of the authority whose certificates these have; empty where none is needed.
    pub authority: String,
}

/// Which sites are joined.
#[must_use]
pub fn links(file: &File) -> Vec<Link> {
    let count = file.sites.len();
    match file.topology {
        Topology::Mesh => {
            (0..count).flat_map(|from| (from + 1..count).map(move |to| Link { from, to })).collect()
        }
        Topology::Star => (1..count).map(|to| Link { from: 0, to }).collect(),
        Topology::Tree => {
            let mut agents: BTreeMap<Provider, usize> = BTreeMap::new();
            for (index, site) in file.sites.iter().enumerate() {
                agents.entry(site.provider).or_insert(index);
            }
            let named = |index: usize| {
                let parent = file.sites[index].parent.as_deref()?;
                file.sites[..index].iter().position(|site| site.name == parent)
            };
            let agent = |index: usize| match agents[&file.sites[index].provider] {
                agent if agent == index => 0,
                agent => agent,
            };
            let parent = |index: usize| named(index).unwrap_or_else(|| agent(index));
            (1..count).map(|to| Link { from: parent(to), to }).collect()
        }
    }
}

/// The sites with which one is joined.
pub(crate) fn neighbours(file: &File, site: usize) -> Vec<usize> {
    let other = |link: &Link| match (link.from == site, link.to == site) {
        (true, _) => Some(link.to),
        (_, true) => Some(link.from),
        _ => None,
    };
    let mut all: Vec<usize> = links(file).iter().filter_map(other).collect();
    all.sort_unstable();
    all
}

/// How a gateway is called in the network; they count from 1.
#[must_use]
pub fn node_name(file: &File, site: usize, gateway: usize) -> String {
    format!("{}-{}-gw{}", file.network, file.sites[site].name, gateway + 1)
}

/// Networks as one text, sorted.
pub(crate) fn list(prefixes: &[wire::prefix::Prefix]) -> String {
    let mut sorted = prefixes.to_vec();
    sorted.sort_unstable();
    let texts: Vec<String> = sorted.iter().map(ToString::to_string).collect();
    texts.join(",")
}

/// A resource in few words.
pub(crate) fn resource<const N: usize>(
    id: Id,
    properties: [(&str, String); N],
    needs: Vec<Id>,
    why: impl Into<String>,
) -> Resource {
    let properties = properties.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    Resource { id, properties, needs, why: why.into() }
}

/// The same of words that others own, as a cloud's are.
pub(crate) fn of_cloud(id: Id, properties: &[(&str, &str)], needs: &[&Id], why: &str) -> Resource {
    let needs = needs.iter().map(|id| (*id).clone()).collect();
    let owned = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Resource { properties: owned.collect(), ..resource(id, [], needs, why) }
}

impl Id {
    /// One of a site.
    #[must_use]
    pub fn new(kind: Kind, site: &str, name: impl Into<String>) -> Self {
        Self { kind, site: site.to_owned(), name: name.into() }
    }
}

impl Kind {
    /// Properties that cannot be changed while it exists.
    #[must_use]
    pub fn fixed(self) -> &'static [&'static str] {
        match self {
            Self::Network | Self::Subnet => &["cidr"],
            Self::Interface => &["address"],
            Self::Machine => &["image", "machine", "role"],
            _ => &[],
        }
    }

    /// Its word in a plan.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::ResourceGroup => "resource-group",
            Self::Network => "network",
            Self::InternetGateway => "internet-gateway",
            Self::Subnet => "subnet",
            Self::Group => "security-group",
            Self::MachineRule => "machine-rule",
            Self::Table => "route-table",
            Self::Interface => "interface",
            Self::Address => "public-address",
            Self::Program => "program",
            Self::Machine => "machine",
            Self::Member => "member",
            Self::Foreign => "tunnels",
            Self::Approval => "approval",
            Self::Forwarding => "forwarding",
            Self::Route => "route",
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.site, self.kind.word(), self.name)
    }
}
