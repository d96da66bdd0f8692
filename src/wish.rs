//! Wishes: what `up` and `set` can say of a node's settings.

use ::daemon::{Changes, Offer};

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
    /// Reach the Internet through this node, by name or address; "" for none
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
            circuit_hop: self.circuit_hop,
            circuit_exit: self.circuit_exit,
            circuit_names: self.circuit_names,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_prefixes_are_read_and_a_bad_one_is_named() {
        assert_eq!(offers("10.7.0.0/16, 10.8.0.0/24=10.9.0.0/24").unwrap().0.len(), 2);
        assert_eq!(offers("").unwrap().0, []);
        let why = offers("10.7.0.0/16,10.7.0.1/16").unwrap_err();
        assert!(why.contains("10.7.0.1/16"), "{why}");
    }
}
