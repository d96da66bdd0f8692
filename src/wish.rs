//! Wishes: what `up` and `set` can say of a node's settings.

use ::daemon::{Changes, Offer};
use control::Through;

/// The settings of a node. What is not mentioned stays as it is.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct Wish {
    /// What the node calls itself; "" for the machine's own name
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    /// Prefixes to route for others, once they are approved, CIDR=CIDR under another name; "" for
    /// none
    #[arg(long, value_name = "CIDR[=CIDR],…", value_parser = offers)]
    advertise_routes: Option<Offers>,
    /// Use the routes of others
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    accept_routes: Option<bool>,
    /// Resolve the network's names
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    accept_dns: Option<bool>,
    /// Offer to route to the Internet
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    advertise_exit_node: Option<bool>,
    /// Reach the Internet through this node, by name or address; auto for the nearest exit node, ""
    /// for none
    #[arg(long, value_name = "NODE")]
    exit_node: Option<String>,
    /// Reach our own networks beside an exit node
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    exit_node_allow_lan_access: Option<bool>,
    /// Give what is routed from the network our own address outside
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    snat_subnet_routes: Option<bool>,
    /// Be a site's gateway: hosts in our subnets begin conversations, and addresses stay theirs
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    site_gateway: Option<bool>,
    /// Be a hub of sites: pass on what networks behind peers send to each other
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    site_hub: Option<bool>,
    /// Reach what others serve in these prefixes through these nodes and in no other way; "" for
    /// none
    #[arg(long, value_name = "CIDR=NODE,…", value_parser = ways)]
    routes_through: Option<Ways>,
    /// Share this address of our LAN with another gateway: one of both answers for it; 0.0.0.0 for
    /// none
    #[arg(long, value_name = "ADDRESS")]
    shared_address: Option<std::net::Ipv4Addr>,
    /// While the other gateway of our site's pair at a cloud is silent, set the routes of its
    /// machines to us, with this machine's role; "" for no routes
    #[arg(long, value_name = "PROVIDER,REGION,NETWORK,SITE,OWN,OTHER[,URL]", value_parser = lead)]
    shared_routes: Option<Lead>,
    /// Send no pings to the server and relays, also where nothing else reaches them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    no_icmp: Option<bool>,
    /// Offer to be a hop of circuits
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    circuit_hop: Option<bool>,
    /// Offer to be an exit of circuits, and a hop
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    circuit_exit: Option<bool>,
    /// Whom to ask for names on behalf of circuits; 0.0.0.0 for the machine's own
    #[arg(long, value_name = "ADDRESS")]
    circuit_names: Option<std::net::Ipv4Addr>,
    /// Reach these networks through a circuit or not at all; `default` for everything, "" for none
    #[arg(long, value_name = "CIDR,…|default", value_parser = networks)]
    circuit_for: Option<Networks>,
    /// Use hops of a directory as well, signed by this key; "" for none
    #[arg(long, value_name = "KEY:FILE", value_parser = directory)]
    circuit_directory: Option<Directory>,
    /// As a hop, serve those who are in no network of ours
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    circuit_guests: Option<bool>,
    /// As a hop, hold cells back for so many ms, so that those of several circuits leave together;
    /// 0 for not at all
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u16).range(0..=200))]
    circuit_batch: Option<u16>,
    /// Send at least so many cells a second on each circuit of ours, empty ones where there is
    /// nothing to send; 0 for none
    #[arg(long, value_name = "CELLS", value_parser = clap::value_parser!(u16).range(0..=100))]
    circuit_cover: Option<u16>,
    /// Where programs that know SOCKS5 find circuits, one for each user name; "" for nowhere
    #[arg(long, value_name = "ADDR:PORT", value_parser = place)]
    socks: Option<std::net::SocketAddr>,
    /// Send no faster than this line, so that packets wait here by their classes, as in 20mbit;
    /// off for no limit
    #[arg(long, value_name = "RATE")]
    line_rate: Option<node::LineRate>,
    /// The user of this machine who may say up, down and set without root, by name; "" for none
    #[arg(long, value_name = "USER")]
    operator: Option<String>,
    /// Tell services of our LAN that are found by multicast DNS to the network, and its to the LAN;
    /// "" for none
    #[arg(long, value_name = "LINK:SERVICE,…")]
    mdns: Option<::daemon::Mdns>,
}

/// A directory, or none.
#[derive(Clone, Debug)]
struct Directory(Option<::daemon::DirectoryAt>);

/// Routes at a cloud, or none.
#[derive(Clone, Debug)]
struct Lead(Option<clouds::Lead>);

fn lead(text: &str) -> Result<Lead, String> {
    match text.is_empty() {
        true => Ok(Lead(None)),
        false => text.parse().map(|lead| Lead(Some(lead))),
    }
}

fn directory(text: &str) -> Result<Directory, String> {
    match text.is_empty() {
        true => Ok(Directory(None)),
        false => text.parse().map(|at| Directory(Some(at))),
    }
}

/// A list of networks, given as one word.
#[derive(Clone, Debug)]
struct Networks(Vec<control::Prefix>);

fn networks(text: &str) -> Result<Networks, String> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let read =
        |word: &str| word.parse::<control::Prefix>().map_err(|why| format!("{word:?}: {why}"));
    let both = |word| if word == "default" { vec!["0.0.0.0/0", "::/0"] } else { vec![word] };
    words.flat_map(both).map(read).collect::<Result<_, _>>().map(Networks)
}

fn place(text: &str) -> Result<std::net::SocketAddr, String> {
    if text.is_empty() {
        return Ok(([0, 0, 0, 0], 0).into());
    }
    text.parse().map_err(|_| format!("{text:?}: an address and a port, as in 127.0.0.1:1080"))
}

/// Through whom networks are reached, given as one word.
#[derive(Clone, Debug)]
struct Ways(Vec<Through>);

fn ways(text: &str) -> Result<Ways, String> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(str::parse).collect::<Result<_, _>>().map(Ways)
}

/// A list of offers, given as one word.
#[derive(Clone, Debug)]
struct Offers(Vec<Offer>);

fn offers(text: &str) -> Result<Offers, String> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let read = |word: &str| word.parse::<Offer>().map_err(|why| format!("{word:?}: {why}"));
    words.map(read).collect::<Result<_, _>>().map(Offers)
}

impl Wish {
    /// As the daemon wants it.
    pub(crate) fn changes(self) -> Changes {
        Changes {
            hostname: self.hostname,
            advertise_routes: self.advertise_routes.map(|routes| routes.0),
            accept_routes: self.accept_routes,
            accept_dns: self.accept_dns,
            advertise_exit_node: self.advertise_exit_node,
            exit_node: self.exit_node,
            exit_node_allow_lan_access: self.exit_node_allow_lan_access,
            snat_subnet_routes: self.snat_subnet_routes,
            site_gateway: self.site_gateway,
            site_hub: self.site_hub,
            routes_through: self.routes_through.map(|ways| ways.0),
            shared_address: self.shared_address,
            shared_routes: self.shared_routes.map(|lead| lead.0),
            no_icmp: self.no_icmp,
            circuit_hop: self.circuit_hop,
            circuit_exit: self.circuit_exit,
            circuit_names: self.circuit_names,
            circuit_for: self.circuit_for.map(|list| list.0),
            circuit_directory: self.circuit_directory.map(|directory| directory.0),
            circuit_guests: self.circuit_guests,
            circuit_batch_ms: self.circuit_batch,
            circuit_cover: self.circuit_cover,
            socks: self.socks,
            line_rate: self.line_rate,
            operator: self.operator,
            mdns: self.mdns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_for_circuits_are_a_list_or_everything() {
        let text = |text: &str| networks(text).map(|list| list.0.len());
        assert_eq!(
            (text("default"), text(""), text("10.0.0.0/8,9.9.9.9/32")),
            (Ok(2), Ok(0), Ok(2))
        );
        assert!(networks("default").unwrap().0[0].is_default());
        assert!(text("10.0.0.1/8").unwrap_err().contains("10.0.0.1/8"));
        assert!(place("").unwrap().ip().is_unspecified() && place("1080").is_err());
    }

    #[test]
    fn lists_of_prefixes_are_read_and_a_bad_one_is_named() {
        assert_eq!(offers("10.7.0.0/16, 10.8.0.0/24=10.9.0.0/24").unwrap().0.len(), 2);
        assert_eq!(offers("").unwrap().0, []);
        let why = offers("10.7.0.0/16,10.7.0.1/16").unwrap_err();
        assert!(why.contains("10.7.0.1/16"), "{why}");
    }
}
