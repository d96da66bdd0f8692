//! The site file: its keys, and what is said of mistakes in it.
//!
//! ```toml
//! network = "acme"                 # tags everything that is made
//! topology = "mesh"                # or "tree", "star"
//! range = "10.0.0.0/8"             # of the numbering plan, and the route to the gateways
//! site_bits = 24                   # or 20: the length of a site's network
//!
//! [[site]]
//! name = "paris"
//! provider = "ssh"                 # or "aws", "azure", "openstack"
//! gateways = 1                     # or 2
//! hosts = ["root@192.0.2.7:22"]    # for ssh: gateways first, then machines that get the route
//! subnets = ["10.9.0.0/24"]        # else from the plan
//! inside = ["10.9.0.1"]            # the gateways' addresses there, else 254 and 253
//! shared = "10.9.0.3"              # what gateways of a pair share, else 252 of the plan
//! parent = "lyon"                  # in a tree: a site above, else one of its own provider
//! role = "gateways"                # of a pair at aws or azure, which then moves its own routes
//! backend = "warren"               # or "ipsec", "openvpn": the same for all sites
//! ```

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use core::ops::Range;
use std::collections::BTreeMap;

use toml::de::DeTable;
use wire::prefix::Prefix;

use crate::backend::Backend;
use crate::mistake::Mistake;
use crate::prices::{self, Prices};
use crate::table::{Keys, Mistakes};

/// Largest site file that is read, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Sites of one file.
pub const SITES_MAX: usize = 1024;
/// Hosts of one site.
const HOSTS_MAX: usize = 1024;
/// Networks of one site.
const SUBNETS_MAX: usize = 16;
/// Letters of a name, so that names of nodes stay within a label of DNS.
const NAME_LEN_MAX: usize = 24;
/// Letters of a provider's word; an identity at Azure has the longest.
const WORD_LEN_MAX: usize = 256;

/// How sites are joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Topology {
    /// Each with each.
    #[default]
    Mesh,
    /// Each with its parent: the one that it names, else one of its own provider, else the first.
    Tree,
    /// Each with the first.
    Star,
}

/// Who runs a site's machines. The order is the plan's A.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Provider {
    /// Amazon Web Services.
    Aws,
    /// Microsoft Azure.
    Azure,
    /// An OpenStack cloud.
    OpenStack,
    /// Machines that are there, reached by `ssh`.
    Ssh,
}

/// A machine that is reached by `ssh`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Host {
    /// Whom to be there; the user's own settings decide if it is not said.
    pub user: Option<String>,
    /// A name or an address.
    pub address: String,
    /// The port; the user's own settings decide if it is not said.
    pub port: Option<u16>,
}

/// One site as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// Its name, unique in the file.
    pub name: String,
    /// Who runs its machines.
    pub provider: Provider,
    /// The provider's region.
    pub region: Option<String>,
    /// 1, or 2 for a pair.
    pub gateways: u8,
    /// Its own networks; from the plan if there are none.
    pub subnets: Vec<Prefix>,
    /// Whether others know it by a network of the plan, since its own collides.
    pub alias: bool,
    /// The gateways' addresses inside; from the plan if there are none.
    pub inside: Vec<Ipv4Addr>,
    /// The address that a pair shares on its LAN, if it is chosen by hand.
    pub shared: Option<Ipv4Addr>,
    /// The site to which it is joined in a tree, if it is chosen by hand.
    pub parent: Option<String>,
    /// The number B of the plan, if it is chosen by hand.
    pub number: Option<u32>,
    /// The provider's API, where it is not the usual one.
    pub endpoint: Option<String>,
    /// Machines of an `ssh` site, gateways first.
    pub hosts: Vec<Host>,
    /// What carries packets.
    pub backend: Backend,
    /// The provider's kind of machine for gateways.
    pub machine: Option<String>,
    /// The provider's image for gateways.
    pub image: Option<String>,
    /// The provider's role with which gateways of a pair set its routes to themselves.
    pub role: Option<String>,
    /// What an hour of a gateway costs, in millionths.
    pub price: Option<u64>,
    /// Where its table begins and where its networks stand, for mistakes found later.
    pub(crate) spans: Spans,
}

/// Places in the text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Spans {
    pub(crate) site: Range<usize>,
    pub(crate) number: Range<usize>,
    pub(crate) subnets: Vec<Range<usize>>,
    pub(crate) parent: Range<usize>,
}

/// A whole site file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// The network's name, with which everything of ours is tagged.
    pub network: String,
    /// How sites are joined.
    pub topology: Topology,
    /// The range of the numbering plan.
    pub range: Prefix,
    /// The length of a site's network, 24 or 20.
    pub site_bits: u8,
    /// Where the program is on gateways.
    pub program: String,
    /// Where gateways keep their keys.
    pub state: String,
    /// Where machines that are made get the program, if their image has none.
    pub download: Option<String>,
    /// The configuration file of `ssh`, beside the site file unless it begins with `/`.
    pub ssh_config: Option<String>,
    /// What gateways cost, as far as the file says it.
    pub prices: Prices,
    /// The sites, as they stand in the file.
    pub sites: Vec<Site>,
}

impl File {
    /// Reads a text.
    ///
    /// # Errors
    /// Every mistake that was found, in the order of the text, at most
    /// [`MISTAKES_MAX`](crate::MISTAKES_MAX).
    pub fn read(text: &str) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Mistakes::new(text);
        if text.len() > FILE_BYTES_MAX {
            mistakes.add(0..0, format!("the file is longer than {FILE_BYTES_MAX} bytes"));
            return Err(mistakes.told());
        }
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            mistakes.add(error.span().unwrap_or(0..0), error.message().trim_end());
        }
        if !errors.is_empty() {
            // What follows a broken line is not what was meant.
            return Err(mistakes.told());
        }
        let file = read(table.get_ref(), &mut mistakes);
        match file.filter(|_| mistakes.is_empty()) {
            Some(file) => Ok(file),
            None => Err(mistakes.told()),
        }
    }

    /// The site of a name.
    #[must_use]
    pub fn site(&self, name: &str) -> Option<&Site> {
        self.sites.iter().find(|site| site.name == name)
    }

    /// Keeps one site of a file, for who wants to touch no other.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<usize> {
        self.sites.iter().position(|site| site.name == name)
    }
}

fn read(table: &DeTable<'_>, mistakes: &mut Mistakes<'_>) -> Option<File> {
    let mut keys = Keys::new(table, 0..0, "the file");
    let network = keys.required("network", "\"acme\"", mistakes);
    let network = network.and_then(|(text, span)| name(text, span, "network", mistakes));
    let kinds = [("mesh", Topology::Mesh), ("tree", Topology::Tree), ("star", Topology::Star)];
    let topology = choice(keys.text("topology", mistakes), "topology", &kinds, mistakes);
    let range = keys.text("range", mistakes);
    let range = match range {
        Some((text, span)) => prefix(text, span, mistakes),
        None => "10.0.0.0/8".parse().ok(),
    };
    let site_bits = keys.take("site_bits").map(|(value, span)| {
        let bits = value.as_integer().map(|number| number.as_str().to_owned());
        match bits.as_deref() {
            Some("24") => 24,
            Some("20") => 20,
            _ => {
                mistakes.add(span, "site_bits is 24 (253 machines a site) or 20 (4093)");
                24
            }
        }
    });
    let program = path(keys.text("program", mistakes), "program", mistakes);
    let state = path(keys.text("state", mistakes), "state", mistakes);
    let download = keys.text("download", mistakes);
    let download = download.and_then(|(text, span)| url(text, span, "download", mistakes));
    let ssh_config = keys.text("ssh_config", mistakes).map(|(text, _)| text.to_owned());
    let prices = prices::read(&mut keys, mistakes);
    let sites = sites(&mut keys, mistakes);
    keys.finish(mistakes);
    Some(File {
        network: network?,
        topology: topology.unwrap_or_default(),
        range: range?,
        site_bits: site_bits.unwrap_or(24),
        program: program.unwrap_or_else(|| "/usr/local/bin/warren".to_owned()),
        state: state.unwrap_or_else(|| "/var/lib/warren-node".to_owned()),
        download,
        ssh_config,
        prices,
        sites,
    })
}

fn sites(keys: &mut Keys<'_>, mistakes: &mut Mistakes<'_>) -> Vec<Site> {
    let Some((value, span)) = keys.take("site") else {
        mistakes.add(0..0, "the file has no [[site]]; each site is one");
        return Vec::new();
    };
    let Some(list) = value.as_array() else {
        mistakes.add(span, "site is a list of tables; write [[site]], with two brackets");
        return Vec::new();
    };
    if list.len() > SITES_MAX {
        mistakes.add(span, format!("{} sites are more than {SITES_MAX}", list.len()));
        return Vec::new();
    }
    let mut sites = Vec::new();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for item in list.iter() {
        let Some(table) = item.get_ref().as_table() else {
            mistakes.add(item.span(), "a site is a table; write [[site]]");
            continue;
        };
        let Some(site) = site(table, item.span(), mistakes) else { continue };
        if names.insert(site.name.clone(), sites.len()).is_some() {
            let told = format!("there are two sites {:?}; rename one", site.name);
            mistakes.add(site.spans.site.clone(), told);
        }
        // What stands above is no child of it, so that no parents go round in a circle.
        let is_above = |parent: &String| sites.iter().any(|above: &Site| above.name == *parent);
        if let Some(parent) = site.parent.as_ref().filter(|parent| !is_above(parent)) {
            let told = format!("no site {parent:?} stands above {}; its parent does", site.name);
            mistakes.add(site.spans.parent.clone(), told);
        }
        sites.push(site);
    }
    sites
}

const PROVIDERS: [(&str, Provider); 4] = [
    ("aws", Provider::Aws),
    ("azure", Provider::Azure),
    ("openstack", Provider::OpenStack),
    ("ssh", Provider::Ssh),
];

fn site(table: &DeTable<'_>, span: Range<usize>, mistakes: &mut Mistakes<'_>) -> Option<Site> {
    let mut keys = Keys::new(table, span.clone(), "a site");
    let named = keys.required("name", "\"paris\"", mistakes);
    let at = named.as_ref().map_or_else(|| span.clone(), |(_, span)| span.clone());
    let name = named.and_then(|(text, span)| name(text, span, "name", mistakes));
    let provider = keys.required("provider", "\"ssh\"", mistakes);
    let provider = choice(provider, "provider", &PROVIDERS, mistakes);
    let region = word(keys.text("region", mistakes), "region", mistakes);
    let gateways = keys.number("gateways", 1..=2, mistakes).map_or(1, |(number, _)| number as u8);
    let subnets: Vec<(Prefix, Range<usize>)> = keys
        .texts("subnets", SUBNETS_MAX, mistakes)
        .into_iter()
        .filter_map(|(text, span)| prefix(text, span.clone(), mistakes).map(|p| (p, span)))
        .collect();
    let alias = keys.truth("alias", mistakes).unwrap_or(false);
    let inside = keys.texts("inside", 2, mistakes);
    let inside: Vec<Ipv4Addr> = inside
        .into_iter()
        .filter_map(|(text, span)| inner(text, span, "inside", &subnets, mistakes))
        .collect();
    let shared = keys.text("shared", mistakes);
    let shared = shared.and_then(|(text, span)| inner(text, span, "shared", &subnets, mistakes));
    let parent = keys.text("parent", mistakes);
    let number = keys.number("number", 0..=255, mistakes);
    let endpoint = keys.text("endpoint", mistakes);
    let endpoint = endpoint.and_then(|(text, span)| url(text, span, "endpoint", mistakes));
    let hosts = keys.texts("hosts", HOSTS_MAX, mistakes);
    let hosts = hosts.into_iter().filter_map(|(text, span)| host(text, span, mistakes)).collect();
    let backends = Backend::ALL.map(|backend| (backend.word(), backend));
    let backend = choice(keys.text("backend", mistakes), "backend", &backends, mistakes);
    let machine = word(keys.text("machine", mistakes), "machine", mistakes);
    let image = word(keys.text("image", mistakes), "image", mistakes);
    let role = word(keys.text("role", mistakes), "role", mistakes);
    let price = prices::price(&mut keys, "price", mistakes);
    keys.finish(mistakes);
    let spans = Spans {
        site: at,
        number: number.as_ref().map_or(0..0, |(_, span)| span.clone()),
        subnets: subnets.iter().map(|(_, span)| span.clone()).collect(),
        parent: parent.as_ref().map_or(0..0, |(_, span)| span.clone()),
    };
    let site = Site {
        name: name?,
        provider: provider?,
        region,
        gateways,
        subnets: subnets.into_iter().map(|(prefix, _)| prefix).collect(),
        alias,
        inside,
        shared,
        parent: parent.map(|(text, _)| text.to_owned()),
        number: number.map(|(number, _)| number),
        endpoint,
        hosts,
        backend: backend.unwrap_or_default(),
        machine,
        image,
        role,
        price,
        spans,
    };
    agree(&site, span, mistakes);
    Some(site)
}

/// What keys of one site say of each other.
fn agree(site: &Site, span: Range<usize>, mistakes: &mut Mistakes<'_>) {
    let start = span.start..span.start;
    let name = &site.name;
    match site.provider {
        Provider::Ssh if site.hosts.len() < usize::from(site.gateways) => {
            let told = format!("{name} has fewer hosts than gateways; hosts lists gateways first");
            mistakes.add(start.clone(), told);
        }
        Provider::Aws | Provider::Azure if site.region.is_none() => {
            mistakes.add(start.clone(), format!("{name} has no region; write region = \"…\""));
        }
        Provider::Aws | Provider::Azure | Provider::OpenStack if !site.hosts.is_empty() => {
            mistakes.add(start.clone(), format!("{name} has hosts, which only an ssh site has"));
        }
        _ => {}
    }
    if site.provider != Provider::Ssh && site.subnets.len() > 1 {
        let told = format!("{name} has several subnets; a site at a cloud has one");
        mistakes.add(start.clone(), told);
    }
    let is_wrong = |subnet: &&Prefix| !(16..=28).contains(&subnet.bits());
    if site.provider != Provider::Ssh
        && let Some(subnet) = site.subnets.iter().find(is_wrong)
    {
        let told = format!("{subnet} of {name}: clouds have networks of /16 to /28");
        mistakes.add(start.clone(), told);
    }
    if site.alias && site.subnets.is_empty() {
        let told = format!("{name} has an alias for no network; list its subnets");
        mistakes.add(start.clone(), told);
    }
    if !site.inside.is_empty() && site.inside.len() != usize::from(site.gateways) {
        let told = format!("{name} has another number of inside than of gateways");
        mistakes.add(start.clone(), told);
    }
    let is_pair = site.provider == Provider::Ssh && site.gateways == 2;
    if site.shared.is_some_and(|shared| !is_pair || site.inside.contains(&shared)) {
        let told = format!("{name} shares an address, which a pair by ssh does beside its own two");
        mistakes.add(start.clone(), told);
    }
    let moves = matches!(site.provider, Provider::Aws | Provider::Azure) && site.gateways == 2;
    if site.role.is_some() && !moves {
        let told = format!("{name} has a role, which a pair (gateways = 2) at aws or azure has");
        mistakes.add(start, told);
    }
}

/// A word out of a list.
fn choice<T: Copy>(
    told: Option<(&str, Range<usize>)>,
    key: &str,
    known: &[(&str, T)],
    mistakes: &mut Mistakes<'_>,
) -> Option<T> {
    let (text, span) = told?;
    let found = known.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    if found.is_none() {
        let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        let text: String = text.chars().take(40).collect();
        mistakes.add(span, format!("{text:?} is no {key}; it is one of {}", words.join(", ")));
    }
    found
}

/// A name that may be a tag, a part of a node's name and a word of a command.
fn name(text: &str, span: Range<usize>, key: &str, mistakes: &mut Mistakes<'_>) -> Option<String> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_good = (1..=NAME_LEN_MAX).contains(&text.len())
        && text.chars().all(is_inner)
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-');
    if !is_good {
        let told = format!(
            "{key} is 1 to {NAME_LEN_MAX} of a-z, 0-9 and -, begins with a letter and does not \
             end with -"
        );
        mistakes.add(span, told);
    }
    is_good.then(|| text.to_owned())
}

/// A provider's own word: it becomes a part of a host's name or of a request.
fn word(
    told: Option<(&str, Range<usize>)>,
    key: &str,
    mistakes: &mut Mistakes<'_>,
) -> Option<String> {
    let (text, span) = told?;
    let is_inner = |c: char| c.is_ascii_alphanumeric() || ":/._-".contains(c);
    let is_good = (1..=WORD_LEN_MAX).contains(&text.len()) && text.chars().all(is_inner);
    if !is_good {
        mistakes.add(span, format!("{key} is a word of the provider: letters, digits and :/._-"));
    }
    is_good.then(|| text.to_owned())
}

/// An address of HTTPS that a shell reads as it stands.
fn url(text: &str, span: Range<usize>, key: &str, mistakes: &mut Mistakes<'_>) -> Option<String> {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || ":/._-%~+=[]".contains(c);
    let is_good = text.len() <= 255
        && text.strip_prefix("https://").is_some_and(|rest| !rest.is_empty())
        && text.chars().all(is_inner);
    if !is_good {
        mistakes.add(span, format!("{key} begins with https://, as in \"https://192.0.2.7:8443\""));
    }
    is_good.then(|| text.to_owned())
}

/// A path that a shell reads as it stands.
fn path(
    told: Option<(&str, Range<usize>)>,
    key: &str,
    mistakes: &mut Mistakes<'_>,
) -> Option<String> {
    let (text, span) = told?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let is_good = text.starts_with('/') && text.len() <= 255 && text.chars().all(is_plain);
    if !is_good {
        mistakes.add(span, format!("{key} is a path that begins with /, of letters, digits, ._-"));
    }
    is_good.then(|| text.to_owned())
}

/// A network of IPv4 without bits after its length.
fn prefix(text: &str, span: Range<usize>, mistakes: &mut Mistakes<'_>) -> Option<Prefix> {
    let read: Option<(Ipv4Addr, u8)> = text.split_once('/').and_then(|(address, bits)| {
        let is_number = (1..=2).contains(&bits.len()) && bits.bytes().all(|b| b.is_ascii_digit());
        Some((address.parse().ok()?, bits.parse().ok().filter(|_| is_number)?))
    });
    let made = read.and_then(|(address, bits)| Prefix::new(IpAddr::V4(address), bits));
    match (read, made) {
        (Some((address, _)), Some(made)) if made.address() == IpAddr::V4(address) => {
            if (8..=30).contains(&made.bits()) {
                return Some(made);
            }
            mistakes.add(span, format!("{made} is too wide or too narrow; use /8 to /30"));
        }
        (Some(_), Some(made)) => {
            mistakes.add(span, format!("{text} has bits after its length; write {made}"));
        }
        _ => {
            let text: String = text.chars().take(40).collect();
            mistakes.add(span, format!("{text:?} is no IPv4 network; write 10.9.0.0/24"));
        }
    }
    None
}

fn inner(
    text: &str,
    span: Range<usize>,
    key: &str,
    subnets: &[(Prefix, Range<usize>)],
    mistakes: &mut Mistakes<'_>,
) -> Option<Ipv4Addr> {
    let Ok(address) = text.parse::<Ipv4Addr>() else {
        mistakes.add(span, format!("{key} has IPv4 addresses of gateways, as in \"10.9.0.1\""));
        return None;
    };
    let is_in = subnets.iter().any(|(prefix, _)| prefix.contains(IpAddr::V4(address)));
    if !is_in && !subnets.is_empty() {
        mistakes.add(span, format!("{address} is in none of the site's subnets"));
        return None;
    }
    Some(address)
}

/// `USER@ADDRESS:PORT`, of which user and port may be left out; IPv6 stands in brackets.
fn host(text: &str, span: Range<usize>, mistakes: &mut Mistakes<'_>) -> Option<Host> {
    let (user, rest) = match text.split_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, text),
    };
    let (address, port) = match rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
        Some((address, port)) => (address, port.strip_prefix(':')),
        None => match rest.split_once(':') {
            Some((address, port)) => (address, Some(port)),
            None => (rest, None),
        },
    };
    let is_word = |text: &str| {
        (1..=253).contains(&text.len())
            && !text.starts_with('-')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    let is_address = is_word(address) || address.parse::<core::net::Ipv6Addr>().is_ok();
    let number = port.map(str::parse::<u16>);
    if !is_address || user.is_some_and(|u| !is_word(u)) || matches!(number, Some(Err(_) | Ok(0))) {
        mistakes.add(span, "a host is USER@ADDRESS:PORT, as in \"root@192.0.2.7:22\"");
        return None;
    }
    let port = number.and_then(Result::ok);
    Some(Host { user: user.map(str::to_owned), address: address.to_owned(), port })
}

impl Provider {
    /// Its word in the file.
    #[must_use]
    pub fn word(self) -> &'static str {
        PROVIDERS.iter().find(|(_, known)| *known == self).map_or("?", |(word, _)| word)
    }

    /// Its number A in the plan.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Aws => 1,
            Self::Azure => 2,
            Self::OpenStack => 3,
            Self::Ssh => 4,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.address.contains(':') {
            write!(f, "[{}]", self.address)?;
        } else {
            f.write_str(&self.address)?;
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}
