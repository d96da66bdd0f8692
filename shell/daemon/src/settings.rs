//! The settings of a node, as its user wants them: kept over restarts, changed by `up` and `set`.

use std::net::{Ipv4Addr, SocketAddr};

use clouds::Lead;
use control::limits::{HOSTNAME_BYTES_MAX, ROUTES_MAX, WAYS_MAX};
use control::{Prefix, Through};
use node::LineRate;
use node::translate::Table;
use serde::{Deserialize, Serialize};

use crate::circuits::{DirectoryAt, check_place};
use crate::mdns::Mdns;
use crate::offer::Offer;

/// The word for whichever exit is best, and another one for it that users of Tailscale know. A node
/// of that name is still meant by its full name or its address.
const AUTO: [&str; 2] = ["auto", "auto:any"];

/// Networks that are led into a circuit, at most: each packet is compared with each.
const CIRCUIT_FOR_MAX: usize = 64;

/// Every setting of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// What the node calls itself; the machine's name if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// What it offers to route.
    pub advertise_routes: Vec<Offer>,
    /// Whether it uses the routes of others.
    pub accept_routes: bool,
    /// Whether it resolves the network's names.
    pub accept_dns: bool,
    /// Whether it offers to route to the Internet.
    pub advertise_exit_node: bool,
    /// The node through which it reaches the Internet, by name or address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_node: Option<String>,
    /// Whether its own networks stay reachable while it uses an exit node.
    pub exit_node_allow_lan_access: bool,
    /// Whether what it routes from the network has its own address outside.
    pub snat_subnet_routes: bool,
    /// Whether hosts in its subnets begin conversations through it, and keep their addresses as
    /// peers do: it is the gateway of a site.
    pub site_gateway: bool,
    /// Whether it passes on what sites send to each other: it is the hub of a star, or a parent.
    pub site_hub: bool,
    /// Through whom networks of others are reached that this node has no link to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes_through: Vec<Through>,
    /// An address of its LAN that it shares with another gateway: one of both answers for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_address: Option<Ipv4Addr>,
    /// Routes at a cloud that it shares with another gateway: one of both sets them to itself.
    #[serde(with = "crate::as_text", skip_serializing_if = "Option::is_none")]
    pub shared_routes: Option<Lead>,
    /// Whether it sends no pings to its server and relays, though nothing else reaches them.
    pub no_icmp: bool,
    /// Whether it offers to be a hop of circuits.
    pub circuit_hop: bool,
    /// Whether it offers to be an exit of circuits, and a hop.
    pub circuit_exit: bool,
    /// Whom it asks for names on behalf of circuits; the machine's own if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub circuit_names: Option<Ipv4Addr>,
    /// Networks that this machine reaches through a circuit, or not at all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub circuit_for: Vec<Prefix>,
    /// Hops of other operators, and who signs for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub circuit_directory: Option<DirectoryAt>,
    /// Whether it serves circuits of those who are in no network of its own.
    pub circuit_guests: bool,
    /// For how long it holds cells of circuits back as a hop, so that they leave together, ms.
    #[serde(skip_serializing_if = "is_zero")]
    pub circuit_batch_ms: u16,
    /// Cells a second that leave on each circuit of its own at least.
    #[serde(skip_serializing_if = "is_zero")]
    pub circuit_cover: u16,
    /// Where programs that know SOCKS find circuits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socks: Option<SocketAddr>,
    /// How fast the line is that it sends by, where its user said so.
    #[serde(with = "crate::as_text", skip_serializing_if = "Option::is_none")]
    pub line_rate: Option<LineRate>,
    /// The user of the machine, by name or number, who may say `up`, `down` and `set`, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// What is told on of a LAN's services.
    #[serde(with = "crate::as_text", skip_serializing_if = "Option::is_none")]
    pub mdns: Option<Mdns>,
}

/// What serde asks of a number that is off at first.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "the form is serde's")]
const fn is_zero(value: &u16) -> bool {
    *value == 0
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hostname: None,
            advertise_routes: Vec::new(),
            accept_routes: false,
            accept_dns: true,
            advertise_exit_node: false,
            exit_node: None,
            exit_node_allow_lan_access: false,
            snat_subnet_routes: true,
            site_gateway: false,
            site_hub: false,
            routes_through: Vec::new(),
            shared_address: None,
            shared_routes: None,
            no_icmp: false,
            circuit_hop: false,
            circuit_exit: false,
            circuit_names: None,
            circuit_for: Vec::new(),
            circuit_directory: None,
            circuit_guests: false,
            circuit_batch_ms: 0,
            circuit_cover: 0,
            socks: None,
            line_rate: None,
            operator: None,
            mdns: None,
        }
    }
}

/// What a command says of the settings; what it does not mention is `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Changes {
    /// [`Settings::hostname`]; empty for the machine's own.
    pub hostname: Option<String>,
    /// [`Settings::advertise_routes`].
    pub advertise_routes: Option<Vec<Offer>>,
    /// [`Settings::accept_routes`].
    pub accept_routes: Option<bool>,
    /// [`Settings::accept_dns`].
    pub accept_dns: Option<bool>,
    /// [`Settings::advertise_exit_node`].
    pub advertise_exit_node: Option<bool>,
    /// [`Settings::exit_node`]; empty for none.
    pub exit_node: Option<String>,
    /// [`Settings::exit_node_allow_lan_access`].
    pub exit_node_allow_lan_access: Option<bool>,
    /// [`Settings::snat_subnet_routes`].
    pub snat_subnet_routes: Option<bool>,
    /// [`Settings::site_gateway`].
    pub site_gateway: Option<bool>,
    /// [`Settings::site_hub`].
    pub site_hub: Option<bool>,
    /// [`Settings::routes_through`].
    pub routes_through: Option<Vec<Through>>,
    /// [`Settings::shared_address`]; 0.0.0.0 for none.
    pub shared_address: Option<Ipv4Addr>,
    /// [`Settings::shared_routes`]; `Some(None)` for none.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "or_none")]
    pub shared_routes: Option<Option<Lead>>,
    /// [`Settings::no_icmp`].
    pub no_icmp: Option<bool>,
    /// [`Settings::circuit_hop`].
    pub circuit_hop: Option<bool>,
    /// [`Settings::circuit_exit`].
    pub circuit_exit: Option<bool>,
    /// [`Settings::circuit_names`]; 0.0.0.0 for the machine's own.
    pub circuit_names: Option<Ipv4Addr>,
    /// [`Settings::circuit_for`].
    pub circuit_for: Option<Vec<Prefix>>,
    /// [`Settings::circuit_directory`]; `Some(None)` for none.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "or_none")]
    pub circuit_directory: Option<Option<DirectoryAt>>,
    /// [`Settings::circuit_guests`].
    pub circuit_guests: Option<bool>,
    /// [`Settings::circuit_batch_ms`].
    pub circuit_batch_ms: Option<u16>,
    /// [`Settings::circuit_cover`].
    pub circuit_cover: Option<u16>,
    /// [`Settings::socks`]; 0.0.0.0 and port 0 for none.
    pub socks: Option<SocketAddr>,
    /// [`Settings::line_rate`]; `off` for no limit.
    #[serde(with = "crate::as_text")]
    pub line_rate: Option<LineRate>,
    /// [`Settings::operator`]; empty for none.
    pub operator: Option<String>,
    /// [`Settings::mdns`]; empty for nothing.
    #[serde(with = "crate::as_text")]
    pub mdns: Option<Mdns>,
}

impl Changes {
    /// Whether nothing is mentioned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What is wrong with the words.
    ///
    /// # Errors
    /// For people: which flag, why, and how to mend it.
    pub fn check(&self) -> Result<(), String> {
        if self.hostname.as_ref().is_some_and(|name| name.len() > HOSTNAME_BYTES_MAX) {
            return Err(format!("--hostname is longer than {HOSTNAME_BYTES_MAX} bytes"));
        }
        if let Some(name) = self.operator.as_ref().filter(|name| !name.is_empty()) {
            match host::user_number(name) {
                Ok(Some(_)) => {}
                Ok(None) => return Err(format!("--operator: this machine has no user {name:?}")),
                Err(why) => return Err(format!("--operator: cannot look {name:?} up: {why}")),
            }
        }
        for offer in self.advertise_routes.iter().flatten() {
            if offer.prefix().is_default() {
                return Err(format!(
                    "--advertise-routes {offer}: a default route is offered with \
                     --advertise-exit-node"
                ));
            }
        }
        if self.advertise_routes.as_ref().is_some_and(|routes| routes.len() > ROUTES_MAX - 2) {
            return Err(format!("--advertise-routes: no more than {} routes", ROUTES_MAX - 2));
        }
        if self.routes_through.as_ref().is_some_and(|words| words.len() > WAYS_MAX) {
            return Err(format!("--routes-through: no more than {WAYS_MAX} words"));
        }
        if self.circuit_for.as_ref().is_some_and(|list| list.len() > CIRCUIT_FOR_MAX) {
            return Err(format!("--circuit-for: no more than {CIRCUIT_FOR_MAX} networks"));
        }
        if let Some(at) = self.socks.filter(|at| !is_nowhere(*at)) {
            check_place(at)?;
        }
        let is_address = self.shared_address.is_some_and(|address| !address.is_unspecified());
        if is_address && matches!(self.shared_routes, Some(Some(_))) {
            return Err("--shared-routes: a pair shares an address or routes, not both".to_owned());
        }
        check_aliases(self.advertise_routes.as_deref().unwrap_or_default())
    }
}

/// Each address has one alias, and each alias is one address.
fn check_aliases(offers: &[Offer]) -> Result<(), String> {
    let aliases = || offers.iter().filter(|offer| offer.alias().is_some());
    let pairs = aliases().filter_map(Offer::pair).collect();
    Table::new(Vec::new(), pairs).map_err(|why| format!("--advertise-routes: {why}"))?;
    let plain = |offer: &&Offer| offer.alias().is_none();
    for offer in aliases() {
        let meets = |other: &&Offer| other.route().overlaps(&offer.route());
        if let Some(other) = offers.iter().filter(plain).find(meets) {
            return Err(format!(
                "--advertise-routes {offer}: {other} is offered as itself and overlaps the alias; \
                 choose another alias"
            ));
        }
    }
    Ok(())
}

/// Something that is named, none, or nothing said: a text, an empty one, or no field.
mod or_none {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<T: Display, S: Serializer>(
        change: &Option<Option<T>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match change {
            Some(Some(at)) => to.collect_str(at),
            Some(None) => to.serialize_str(""),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Option<T>>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        let read = |text: String| match text.is_empty() {
            true => Ok(None),
            false => text.parse().map(Some).map_err(serde::de::Error::custom),
        };
        text.map(read).transpose()
    }
}

/// What stands for no place at all.
fn is_nowhere(at: SocketAddr) -> bool {
    at.ip().is_unspecified() && at.port() == 0
}

/// An address after a change, of which 0.0.0.0 means none.
fn address(changed: Option<Ipv4Addr>, before: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
    changed.map_or(before, |address| (!address.is_unspecified()).then_some(address))
}

/// A list as it is typed.
fn words<T: ToString>(list: &[T]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn word(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

impl Settings {
    /// The settings after `changes`.
    #[must_use]
    pub fn with(&self, changes: &Changes) -> Self {
        let or = |changed: Option<bool>, before: bool| changed.unwrap_or(before);
        Self {
            hostname: match &changes.hostname {
                Some(name) => word(name),
                None => self.hostname.clone(),
            },
            advertise_routes: match &changes.advertise_routes {
                Some(routes) => routes.clone(),
                None => self.advertise_routes.clone(),
            },
            accept_routes: or(changes.accept_routes, self.accept_routes),
            accept_dns: or(changes.accept_dns, self.accept_dns),
            advertise_exit_node: or(changes.advertise_exit_node, self.advertise_exit_node),
            exit_node: match &changes.exit_node {
                Some(name) => word(in_short(name)),
                None => self.exit_node.clone(),
            },
            exit_node_allow_lan_access: or(
                changes.exit_node_allow_lan_access,
                self.exit_node_allow_lan_access,
            ),
            snat_subnet_routes: or(changes.snat_subnet_routes, self.snat_subnet_routes),
            site_gateway: or(changes.site_gateway, self.site_gateway),
            site_hub: or(changes.site_hub, self.site_hub),
            routes_through: match &changes.routes_through {
                Some(words) => words.clone(),
                None => self.routes_through.clone(),
            },
            no_icmp: or(changes.no_icmp, self.no_icmp),
            circuit_hop: or(changes.circuit_hop, self.circuit_hop),
            circuit_exit: or(changes.circuit_exit, self.circuit_exit),
            shared_address: address(changes.shared_address, self.shared_address),
            shared_routes: match &changes.shared_routes {
                Some(lead) => lead.clone(),
                None => self.shared_routes.clone(),
            },
            circuit_names: address(changes.circuit_names, self.circuit_names),
            circuit_for: match &changes.circuit_for {
                Some(list) => list.clone(),
                None => self.circuit_for.clone(),
            },
            circuit_directory: match &changes.circuit_directory {
                Some(at) => at.clone(),
                None => self.circuit_directory.clone(),
            },
            circuit_guests: or(changes.circuit_guests, self.circuit_guests),
            circuit_batch_ms: changes.circuit_batch_ms.unwrap_or(self.circuit_batch_ms),
            circuit_cover: changes.circuit_cover.unwrap_or(self.circuit_cover),
            socks: match changes.socks {
                Some(at) => (!is_nowhere(at)).then_some(at),
                None => self.socks,
            },
            line_rate: match changes.line_rate {
                Some(rate) => (rate != LineRate::default()).then_some(rate),
                None => self.line_rate,
            },
            operator: match &changes.operator {
                Some(name) => word(name),
                None => self.operator.clone(),
            },
            mdns: match &changes.mdns {
                Some(mdns) => Some(mdns.clone()).filter(|mdns| !mdns.is_empty()),
                None => self.mdns.clone(),
            },
        }
    }

    /// What is behind this node for a route that it offers.
    #[must_use]
    pub(crate) fn behind(&self, route: &Prefix) -> Prefix {
        let of = |offer: &&Offer| offer.route() == *route;
        self.advertise_routes.iter().find(of).map_or(*route, Offer::prefix)
    }

    /// How addresses are rewritten between peers and these routes of this node.
    #[must_use]
    pub(crate) fn translation<'r>(&self, routes: impl Iterator<Item = &'r Prefix>) -> Table {
        let offer = |route: &Prefix| self.advertise_routes.iter().find(|o| o.route() == *route);
        let pairs = routes.filter_map(|route| offer(route)?.pair()).collect();
        // It was checked when it was said; what is rewritten wrongly is worse than nothing.
        Table::new(Vec::new(), pairs).unwrap_or_default()
    }

    /// The flags of what is not as at first, as they would be typed: a name and a value.
    #[must_use]
    pub fn flags(&self) -> Vec<(&'static str, String)> {
        let first = Self::default();
        let mut flags = Vec::new();
        if let Some(name) = &self.hostname {
            flags.push(("--hostname", name.clone()));
        }
        if !self.advertise_routes.is_empty() {
            flags.push(("--advertise-routes", words(&self.advertise_routes)));
        }
        if !self.routes_through.is_empty() {
            flags.push(("--routes-through", words(&self.routes_through)));
        }
        if let Some(name) = &self.exit_node {
            flags.push(("--exit-node", name.clone()));
        }
        if let Some(name) = &self.operator {
            flags.push(("--operator", name.clone()));
        }
        if let Some(address) = self.shared_address {
            flags.push(("--shared-address", address.to_string()));
        }
        if let Some(lead) = &self.shared_routes {
            flags.push(("--shared-routes", lead.to_string()));
        }
        if let Some(names) = self.circuit_names {
            flags.push(("--circuit-names", names.to_string()));
        }
        if !self.circuit_for.is_empty() {
            flags.push(("--circuit-for", words(&self.circuit_for)));
        }
        if let Some(at) = &self.circuit_directory {
            flags.push(("--circuit-directory", at.to_string()));
        }
        if self.circuit_batch_ms != 0 {
            flags.push(("--circuit-batch", self.circuit_batch_ms.to_string()));
        }
        if self.circuit_cover != 0 {
            flags.push(("--circuit-cover", self.circuit_cover.to_string()));
        }
        if let Some(at) = self.socks {
            flags.push(("--socks", at.to_string()));
        }
        if let Some(rate) = self.line_rate {
            flags.push(("--line-rate", rate.to_string()));
        }
        if let Some(mdns) = &self.mdns {
            flags.push(("--mdns", mdns.to_string()));
        }
        for (flag, value, at_first) in [
            ("--accept-routes", self.accept_routes, first.accept_routes),
            ("--accept-dns", self.accept_dns, first.accept_dns),
            ("--advertise-exit-node", self.advertise_exit_node, first.advertise_exit_node),
            (
                "--exit-node-allow-lan-access",
                self.exit_node_allow_lan_access,
                first.exit_node_allow_lan_access,
            ),
            ("--snat-subnet-routes", self.snat_subnet_routes, first.snat_subnet_routes),
            ("--site-gateway", self.site_gateway, first.site_gateway),
            ("--site-hub", self.site_hub, first.site_hub),
            ("--no-icmp", self.no_icmp, first.no_icmp),
            ("--circuit-hop", self.circuit_hop, first.circuit_hop),
            ("--circuit-exit", self.circuit_exit, first.circuit_exit),
            ("--circuit-guests", self.circuit_guests, first.circuit_guests),
        ] {
            if value != at_first {
                flags.push((flag, value.to_string()));
            }
        }
        flags
    }

    /// What `up` with these words would drop without saying so: earlier settings that are not
    /// mentioned, while others are. `up` without any words keeps everything.
    #[must_use]
    pub fn dropped_by(&self, changes: &Changes) -> Vec<(&'static str, String)> {
        if changes.is_empty() {
            return Vec::new();
        }
        // What is mentioned is what would be kept if all else were as at first.
        let mentioned = |flag: &str| match flag {
            "--hostname" => changes.hostname.is_some(),
            "--advertise-routes" => changes.advertise_routes.is_some(),
            "--exit-node" => changes.exit_node.is_some(),
            "--circuit-hop" => changes.circuit_hop.is_some(),
            "--circuit-exit" => changes.circuit_exit.is_some(),
            "--circuit-names" => changes.circuit_names.is_some(),
            "--circuit-for" => changes.circuit_for.is_some(),
            "--circuit-directory" => changes.circuit_directory.is_some(),
            "--circuit-guests" => changes.circuit_guests.is_some(),
            "--circuit-batch" => changes.circuit_batch_ms.is_some(),
            "--circuit-cover" => changes.circuit_cover.is_some(),
            "--socks" => changes.socks.is_some(),
            "--line-rate" => changes.line_rate.is_some(),
            // Who may operate is named and taken away on purpose only.
            "--operator" => true,
            "--mdns" => changes.mdns.is_some(),
            "--accept-routes" => changes.accept_routes.is_some(),
            "--accept-dns" => changes.accept_dns.is_some(),
            "--advertise-exit-node" => changes.advertise_exit_node.is_some(),
            "--exit-node-allow-lan-access" => changes.exit_node_allow_lan_access.is_some(),
            "--site-gateway" => changes.site_gateway.is_some(),
            "--site-hub" => changes.site_hub.is_some(),
            "--routes-through" => changes.routes_through.is_some(),
            "--shared-address" => changes.shared_address.is_some(),
            "--shared-routes" => changes.shared_routes.is_some(),
            "--no-icmp" => changes.no_icmp.is_some(),
            _ => changes.snat_subnet_routes.is_some(),
        };
        self.flags().into_iter().filter(|(flag, _)| !mentioned(flag)).collect()
    }
}

/// As settings keep the name of an exit.
pub(crate) fn in_short(called: &str) -> &str {
    if is_auto(called) { AUTO[0] } else { called }
}

/// Whether any exit is meant.
pub(crate) fn is_auto(called: &str) -> bool {
    AUTO.iter().any(|word| called.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_mentioned_stays_and_up_says_what_it_would_drop() {
        let first = Settings::default();
        assert_eq!(first.flags(), []);
        let changes = Changes {
            hostname: Some("robot".to_owned()),
            accept_dns: Some(false),
            advertise_routes: Some(vec!["10.7.0.0/16".parse().unwrap()]),
            ..Changes::default()
        };
        let settings = first.with(&changes);
        assert_eq!(settings.with(&Changes::default()), settings);
        let flags = [("--hostname", "robot"), ("--advertise-routes", "10.7.0.0/16")];
        let flags: Vec<_> = flags.into_iter().chain([("--accept-dns", "false")]).collect();
        let said: Vec<_> = settings.flags().into_iter().collect();
        assert_eq!(said.iter().map(|(f, v)| (*f, v.as_str())).collect::<Vec<_>>(), flags);

        assert_eq!(settings.dropped_by(&Changes::default()), [], "no words drop nothing");
        assert_eq!(settings.dropped_by(&changes), []);
        let words = Changes { accept_routes: Some(true), ..Changes::default() };
        assert_eq!(settings.dropped_by(&words), settings.flags());
        let back = Changes { hostname: Some(String::new()), ..Changes::default() };
        assert_eq!(settings.with(&back).hostname, None);
    }

    #[test]
    fn source_001_14_routes_are_shared_or_an_address_and_none_is_said_by_an_empty_word() {
        let words = "aws,r,acme,a,10.1.0.254,10.1.0.253";
        let routes = format!("{{\"shared_routes\": \"{words}\"}}");
        let changes: Changes = serde_json::from_str(&routes).unwrap();
        let settings = Settings::default().with(&changes);
        assert_eq!(settings.flags(), [("--shared-routes", words.to_owned())]);
        let kept = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&kept).unwrap(), settings);
        let none: Changes = serde_json::from_str("{\"shared_routes\": \"\"}").unwrap();
        assert_eq!(settings.with(&none), Settings::default());
        assert_eq!(settings.with(&Changes::default()), settings);
        let both = Changes { shared_address: Some(Ipv4Addr::new(10, 1, 0, 252)), ..changes };
        assert!(both.check().unwrap_err().contains("not both"));
    }

    #[test]
    fn bad_words_are_told_with_their_flag() {
        let default = Changes {
            advertise_routes: Some(vec!["0.0.0.0/0".parse().unwrap()]),
            ..Changes::default()
        };
        assert!(default.check().unwrap_err().contains("--advertise-exit-node"));
        let long = Changes { hostname: Some("x".repeat(256)), ..Changes::default() };
        assert!(long.check().unwrap_err().starts_with("--hostname"));
        assert_eq!(Changes::default().check(), Ok(()));
        let stranger =
            Changes { operator: Some("nobody-has-this".to_owned()), ..Changes::default() };
        assert!(stranger.check().unwrap_err().contains("no user \"nobody-has-this\""));
        for name in ["root", "0", ""] {
            let known = Changes { operator: Some(name.to_owned()), ..Changes::default() };
            assert_eq!(known.check(), Ok(()), "{name:?}");
        }
        let unknown = serde_json::from_str::<Changes>("{\"hostnam\": \"x\"}");
        assert!(unknown.is_err());
    }
}
