//! What neutron and nova report, in the plan's words.

use serde_json::Value;
use sites::{Kind, Properties, yes_or_no};

use crate::place::sorted;

/// All kinds, in the order in which they are looked at: what names another is behind it. Ports name
/// their group, addresses their port, and routes and routers' ports what is at both of their ends.
pub(super) const LOOKED: [Kind; 10] = [
    Kind::Network,
    Kind::InternetGateway,
    Kind::Subnet,
    Kind::Group,
    Kind::Interface,
    Kind::Address,
    Kind::Route,
    Kind::Table,
    Kind::MachineRule,
    Kind::Machine,
];

/// Nova's list, and neutron's that more than one kind is read from.
pub(super) const SERVERS: &str = "servers/detail";
pub(super) const SUBNETS: &str = "subnets";
pub(super) const PORTS: &str = "ports";
pub(super) const RULES: &str = "security-group-rules";

/// The lists in which things of a kind are, and nothing that is not needed to read them.
pub(super) fn lists(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Network => &["networks"],
        Kind::InternetGateway => &["routers"],
        Kind::Subnet | Kind::Route => &[SUBNETS],
        Kind::Group => &["security-groups"],
        Kind::Interface | Kind::Table => &[PORTS],
        Kind::Address => &["floatingips"],
        Kind::MachineRule => &[RULES],
        // Ports say which machine has them, and machines do not.
        Kind::Machine => &[PORTS, SERVERS],
        _ => &[],
    }
}

/// Neutron's collection in which things of a kind are made, by its path; none for parts of others
/// and for machines.
pub(super) fn collection(kind: Kind) -> Option<&'static str> {
    let is_part = matches!(kind, Kind::Route | Kind::Table | Kind::MachineRule);
    lists(kind).first().copied().filter(|_| !is_part && kind != Kind::Machine)
}

/// The key of a list in its answer; a single one's is without the last letter.
pub(super) fn key(path: &str) -> String {
    path.replace('-', "_")
}

/// What of a machine stands in its metadata.
pub(super) const ASKED: [&str; 4] = ["image", "machine", "made", "shared"];

/// After what a list of neutron's goes on, if this is not all of it.
pub(super) fn next(value: &Value, key: &str) -> Option<String> {
    let mut links = value[format!("{key}_links")].as_array()?.iter();
    let link = links.find(|link| link["rel"] == "next")?;
    let (_, query) = link["href"].as_str()?.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix("marker=")).map(str::to_owned)
}

/// By which something is known as ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) site: String,
    pub(super) role: String,
    pub(super) number: Option<u32>,
}

impl Mark {
    /// Reads one of this network.
    pub(super) fn read(text: &str, network: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["warren", known, site, role] if known == network => {
                Some(Self { site: site.to_owned(), role: role.to_owned(), number: None })
            }
            ["warren", known, site, role, number] if known == network => {
                let number = number.parse().ok();
                Some(Self { site: site.to_owned(), role: role.to_owned(), number })
            }
            _ => None,
        }
    }

    /// Writes one.
    pub(super) fn write(&self, network: &str) -> String {
        let number = self.number.map_or_else(String::new, |number| format!(" {number}"));
        format!("warren {network} {} {}{number}", self.site, self.role)
    }
}

/// What rules let in, as the plan writes it: sorted, with commas.
pub(super) fn ingress(group: &Value) -> String {
    let rules = group["security_group_rules"].as_array().into_iter().flatten();
    let inward = rules.filter(|rule| rule["direction"] == "ingress");
    let mut all: Vec<String> = inward.map(rule).collect();
    all.sort();
    all.dedup();
    all.join(",")
}

/// One rule of a group.
pub(super) fn rule(rule: &Value) -> String {
    let low = rule["port_range_min"].as_u64();
    let high = rule["port_range_max"].as_u64();
    let protocol = rule["protocol"].as_str();
    let what = match (protocol, low, high) {
        (None, ..) => "all".to_owned(),
        (Some(protocol), Some(low), Some(high)) if low == high => format!("{protocol} {low}"),
        (Some(protocol), Some(low), Some(high)) => format!("{protocol} {low}-{high}"),
        (Some(protocol), ..) => format!("{protocol} 0-65535"),
    };
    let any = if rule["ethertype"] == "IPv6" { "::/0" } else { "0.0.0.0/0" };
    let group = rule["remote_group_id"].as_str().map(|id| format!("group:{id}"));
    let from = rule["remote_ip_prefix"].as_str().map(str::to_owned).or(group);
    format!("{what} {}", from.unwrap_or_else(|| any.to_owned()))
}

/// How a resource is. `name_of` says what the plan calls a resource by the cloud's own word.
pub(super) fn properties(
    kind: Kind,
    value: &Value,
    name_of: &dyn Fn(&str) -> String,
) -> Properties {
    let mut found = Properties::new();
    let mut set = |key: &str, value: String| drop(found.insert(key.to_owned(), value));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match kind {
        Kind::Subnet => set("cidr", text(&value["cidr"])),
        Kind::InternetGateway => {
            let external = value["external_gateway_info"]["network_id"].is_string();
            set("external", yes_or_no(external).to_owned());
        }
        Kind::Group => set("ingress", ingress(value)),
        Kind::Interface => {
            set("address", text(&value["fixed_ips"][0]["ip_address"]));
            let groups = value["security_groups"].as_array().into_iter().flatten();
            let groups: Vec<String> = groups.map(|id| name_of(&text(id))).collect();
            set("group", groups.join(","));
            let pairs = value["allowed_address_pairs"].as_array().into_iter().flatten();
            let pairs: Vec<String> = pairs.map(|pair| text(&pair["ip_address"])).collect();
            // A port without a check lets everything pass, as does one that says so.
            let is_open = value["port_security_enabled"] == false;
            set("passes", if is_open { "everything".to_owned() } else { sorted(pairs) });
        }
        Kind::Address => {
            set("at", name_of(&text(&value["port_id"])));
            set("public", text(&value["floating_ip_address"]));
        }
        _ => {}
    }
    found
}

/// How a machine is that has these interfaces of ours. What was asked for stands in its metadata,
/// since the cloud answers by numbers.
pub(super) fn machine(server: &Value, interfaces: &[String]) -> Properties {
    let state = match server["status"].as_str().unwrap_or_default() {
        "ACTIVE" => "running",
        "SHUTOFF" => "stopped",
        "BUILD" => "pending",
        _ => "broken",
    };
    let state = ("state".to_owned(), state.to_owned());
    let mut found: Properties = [state, ("interfaces".to_owned(), interfaces.join(","))].into();
    for key in ASKED {
        if let Some(word) = server["metadata"][format!("warren-{key}")].as_str() {
            found.insert(key.to_owned(), word.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_ours_says_so_and_others_are_not() {
        let mark = Mark { site: "a".to_owned(), role: "inside".to_owned(), number: Some(7) };
        assert_eq!(Mark::read(&mark.write("acme"), "acme"), Some(mark.clone()));
        assert_eq!(Mark::read(&mark.write("acme"), "other"), None);
        let plain = Mark { number: None, ..mark };
        assert_eq!(Mark::read(&plain.write("acme"), "acme"), Some(plain));
        for other in ["", "warren acme", "my warren acme a inside", "warren acme a b c d"] {
            assert_eq!(Mark::read(other, "acme"), None, "{other}");
        }
    }

    #[test]
    fn a_list_that_goes_on_says_after_what() {
        let list = json!({ "ports": [], "ports_links": [
            { "rel": "previous", "href": "http://c/v2.0/ports?marker=a&page_reverse=True" },
            { "rel": "next", "href": "http://c/v2.0/ports?limit=5&marker=b" } ] });
        assert_eq!(next(&list, "ports").unwrap(), "b");
        assert_eq!(next(&json!({ "ports": [] }), "ports"), None);
    }

    #[test]
    fn rules_and_ports_are_read_as_the_plan_writes_them() {
        let group = json!({ "security_group_rules": [
            { "direction": "egress", "ethertype": "IPv4" },
            { "direction": "ingress", "ethertype": "IPv4", "protocol": "udp",
              "port_range_min": 41820, "port_range_max": 41820, "remote_ip_prefix": null },
            { "direction": "ingress", "ethertype": "IPv4", "remote_ip_prefix": "10.3.0.0/24" } ] });
        assert_eq!(ingress(&group), "all 10.3.0.0/24,udp 41820 0.0.0.0/0");
        let port = json!({ "fixed_ips": [{ "ip_address": "10.3.0.254" }], "security_groups": ["g"],
            "allowed_address_pairs": [{ "ip_address": "192.168.0.0/16" },
                                      { "ip_address": "10.0.0.0/8" }] });
        let name_of = |id: &str| if id == "g" { "gateway".to_owned() } else { String::new() };
        let found = properties(Kind::Interface, &port, &name_of);
        assert_eq!(found["passes"], "10.0.0.0/8,192.168.0.0/16");
        assert_eq!(found["group"], "gateway");
        let has = ["a".to_owned(), "a-outside".to_owned()];
        let found = machine(&json!({ "status": "ERROR" }), &has);
        assert_eq!(found["state"], "broken");
        assert_eq!(found["interfaces"], "a,a-outside");
    }
}
