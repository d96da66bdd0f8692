//! What the Resource Manager reports, in the plan's words.

use serde_json::{Value, json};
use sites::{Kind, Properties};

/// Whose it is: the network.
pub(super) const TAG_NETWORK: &str = "warren:net";
/// The site.
pub(super) const TAG_SITE: &str = "warren:site";
/// Which one of its kind, by its name in the plan.
pub(super) const TAG_ROLE: &str = "warren:role";
/// The site's number in the plan.
pub(super) const TAG_NUMBER: &str = "warren:number";
/// What the machine of a gateway that runs another program was made with.
pub(super) const TAG_MADE: &str = "warren:made";
/// When a machine was made, in seconds since 1970.
pub(super) const TAG_BEGUN: &str = "warren:begun";
/// The image that a machine was asked for, by the file's word.
pub(super) const TAG_IMAGE: &str = "warren:image";
/// The identity that a machine was given, by the file's word.
pub(super) const TAG_IDENTITY: &str = "warren:identity";

/// Versions of the APIs whose specifications the client follows.
pub(super) const NETWORK_API: &str = "2021-05-01";
pub(super) const COMPUTE_API: &str = "2021-07-01";
pub(super) const RESOURCES_API: &str = "2021-04-01";

/// What routes of ours are called in a table of ours.
pub(super) const ROUTE_PREFIX: &str = "warren-";

/// The kinds that have tags, in an order in which what is named is known already.
pub(super) const TAGGED: [Kind; 6] =
    [Kind::Network, Kind::Group, Kind::Interface, Kind::Address, Kind::Table, Kind::Machine];

/// The collection of a kind in a resource group, and the version of its API.
pub(super) fn collection(kind: Kind) -> Option<(&'static str, &'static str)> {
    Some(match kind {
        Kind::Network => ("Microsoft.Network/virtualNetworks", NETWORK_API),
        Kind::Group => ("Microsoft.Network/networkSecurityGroups", NETWORK_API),
        Kind::Table => ("Microsoft.Network/routeTables", NETWORK_API),
        Kind::Interface => ("Microsoft.Network/networkInterfaces", NETWORK_API),
        Kind::Address => ("Microsoft.Network/publicIPAddresses", NETWORK_API),
        Kind::Machine => ("Microsoft.Compute/virtualMachines", COMPUTE_API),
        _ => return None,
    })
}

/// A text, or nothing.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The list of an answer.
pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The part of a resource's identifier behind a word: the name of one of that collection.
pub(super) fn part(id: &Value, word: &str) -> String {
    let id = id.as_str().unwrap_or_default();
    let mut parts = id.split('/').skip_while(|part| !part.eq_ignore_ascii_case(word));
    parts.nth(1).unwrap_or_default().to_owned()
}

/// A field that is one text or a list of them.
fn several(properties: &Value, one: &str, many: &str) -> String {
    match properties[one].as_str() {
        Some(text) if !text.is_empty() => text.to_owned(),
        _ => list(&properties[many]).map(text).collect::<Vec<String>>().join("+"),
    }
}

/// One rule of a group as the plan writes it: `udp 41820 0.0.0.0/0`.
fn rule(properties: &Value) -> String {
    let protocol = text(&properties["protocol"]).to_lowercase();
    let ports = several(properties, "destinationPortRange", "destinationPortRanges");
    let from = several(properties, "sourceAddressPrefix", "sourceAddressPrefixes");
    let from = match from.as_str() {
        "*" | "Internet" => "0.0.0.0/0".to_owned(),
        _ => from,
    };
    match (protocol.as_str(), ports.as_str()) {
        ("*", "*") => format!("all {from}"),
        (_, "*") => format!("{protocol} 0-65535 {from}"),
        ("*", _) => format!("any {ports} {from}"),
        _ => format!("{protocol} {ports} {from}"),
    }
}

/// What a group lets in, what it lets out, and what becomes of all else that comes in.
fn group(value: &Value, found: &mut Properties) {
    let rules = || list(&value["properties"]["securityRules"]).map(|rule| &rule["properties"]);
    let is = |rule: &&Value, direction: &str| rule["direction"] == direction;
    let mut inward: Vec<&Value> = rules().filter(|rule| is(rule, "Inbound")).collect();
    inward.sort_by_key(|rule| rule["priority"].as_u64());
    let mut rest = "as usual";
    let mut all = Vec::new();
    for one in inward {
        let told = rule(one);
        match one["access"] == "Allow" {
            true => all.push(told),
            false if told == "all 0.0.0.0/0" => {
                rest = "denied";
                break;
            }
            false => all.push(format!("deny {told}")),
        }
    }
    all.sort();
    found.insert("ingress".to_owned(), all.join(","));
    found.insert("rest".to_owned(), rest.to_owned());
    let outward: Vec<String> = rules()
        .filter(|rule| is(rule, "Outbound"))
        .map(|one| format!("{} {}", text(&one["access"]).to_lowercase(), rule(one)))
        .collect();
    let is_open = outward == ["allow all 0.0.0.0/0"];
    let egress = if is_open { "all".to_owned() } else { outward.join(",") };
    found.insert("egress".to_owned(), egress);
}

/// The rules of the gateway's group, all of them: what is to come in, nothing else, and all out.
pub(super) fn rules(ingress: &str) -> Value {
    let one = |name: String, priority: usize, direction: &str, access: &str, rule: &str| {
        let words: Vec<&str> = rule.split(' ').collect();
        let from = match words.last().copied().unwrap_or_default() {
            "0.0.0.0/0" => "*",
            from => from,
        };
        let protocol = match words.first().copied().unwrap_or_default() {
            "udp" => "Udp",
            "tcp" => "Tcp",
            _ => "*",
        };
        let ports = if words.len() == 3 { words[1] } else { "*" };
        json!({ "name": name, "properties": {
            "priority": priority, "direction": direction, "access": access, "protocol": protocol,
            "sourceAddressPrefix": from, "sourcePortRange": "*",
            "destinationAddressPrefix": "*", "destinationPortRange": ports } })
    };
    let inward = ingress.split(',').enumerate();
    let mut all: Vec<Value> = inward
        .map(|(at, rule)| one(format!("in-{}", at + 1), 100 + at, "Inbound", "Allow", rule))
        .collect();
    all.push(one("rest".to_owned(), 4096, "Inbound", "Deny", "all 0.0.0.0/0"));
    all.push(one("out".to_owned(), 100, "Outbound", "Allow", "all 0.0.0.0/0"));
    Value::Array(all)
}

/// How a resource is.
pub(super) fn properties(kind: Kind, value: &Value) -> Properties {
    let mut found = Properties::new();
    let of = &value["properties"];
    let first = &of["ipConfigurations"][0]["properties"];
    let mut set = |key: &str, value: String| drop(found.insert(key.to_owned(), value));
    match kind {
        Kind::Network => set("cidr", text(&of["addressSpace"]["addressPrefixes"][0])),
        Kind::Group => group(value, &mut found),
        Kind::Interface => {
            set("address", text(&first["privateIPAddress"]));
            let is_on = of["enableIPForwarding"] == true;
            set("forwarding", if is_on { "on" } else { "off" }.to_owned());
            set("group", part(&of["networkSecurityGroup"]["id"], "networkSecurityGroups"));
        }
        Kind::Address => {
            set("at", part(&of["ipConfiguration"]["id"], "networkInterfaces"));
            set("public", text(&of["ipAddress"]));
        }
        Kind::Table => {
            let subnets = list(&of["subnets"]).map(|one| part(&one["id"], "subnets"));
            set("subnet", subnets.collect::<Vec<String>>().join(","));
        }
        Kind::Machine => {
            set("machine", text(&of["hardwareProfile"]["vmSize"]));
            set("state", state(of).to_owned());
            set("made", text(&value["tags"][TAG_MADE]));
            for (tag, key) in [(TAG_IMAGE, "image"), (TAG_IDENTITY, "role")] {
                if let Some(word) = value["tags"][tag].as_str() {
                    set(key, word.to_owned());
                }
            }
        }
        _ => {}
    }
    found
}

/// The state of a machine out of its instance view.
fn state(properties: &Value) -> &'static str {
    let codes = list(&properties["instanceView"]["statuses"]);
    let power = codes.filter_map(|status| status["code"].as_str()?.strip_prefix("PowerState/"));
    match (properties["provisioningState"].as_str(), power.last()) {
        (Some("Failed"), _) => "broken",
        (_, Some("running")) => "running",
        (_, Some("stopped" | "deallocated" | "stopping" | "deallocating")) => "stopped",
        _ => "pending",
    }
}

/// Of a subnet what a client may write; the rest Azure says and takes from nobody.
pub(super) fn writable(subnet: &Value) -> Value {
    let mut kept = serde_json::Map::new();
    for key in [
        "addressPrefix",
        "addressPrefixes",
        "networkSecurityGroup",
        "routeTable",
        "natGateway",
        "serviceEndpoints",
        "delegations",
        "privateEndpointNetworkPolicies",
        "privateLinkServiceNetworkPolicies",
    ] {
        let value = &subnet["properties"][key];
        if let Some(id) = value["id"].as_str() {
            kept.insert(key.to_owned(), json!({ "id": id }));
        } else if !value.is_null() {
            kept.insert(key.to_owned(), value.clone());
        }
    }
    json!({ "properties": kept })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_into_a_group_is_read_as_the_plan_writes_it() {
        let plan = "all 10.2.0.0/24,udp 41820 0.0.0.0/0";
        let read = |rules: Value| {
            properties(Kind::Group, &json!({ "properties": { "securityRules": rules } }))
        };
        let found = read(rules(plan));
        assert_eq!(
            [found["ingress"].as_str(), &found["rest"], &found["egress"]],
            [plan, "denied", "all"]
        );
        // A rule that others add is seen, whatever it says.
        for (access, told) in [("Allow", "tcp 22 10.0.0.0/8+1.2.3.4"), ("Deny", "deny tcp 22 10")] {
            let mut more = rules(plan);
            let rule = json!({ "properties": { "priority": 300, "direction": "Inbound",
                "access": access, "protocol": "Tcp", "destinationPortRange": "22",
                "sourceAddressPrefixes": ["10.0.0.0/8", "1.2.3.4"] } });
            more.as_array_mut().unwrap().push(rule);
            assert!(read(more)["ingress"].contains(told));
        }
        let mut open = rules(plan);
        open.as_array_mut().unwrap().retain(|rule| rule["name"] != "rest");
        assert_eq!(read(open)["rest"], "as usual");
    }

    #[test]
    fn names_in_identifiers_and_states_of_machines_are_read() {
        let id = json!(
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/\
                        networkInterfaces/nic-1/ipConfigurations/inside"
        );
        assert_eq!(part(&id, "networkinterfaces"), "nic-1");
        assert_eq!(part(&id, "virtualNetworks"), "");
        let machine = |code: &str| {
            json!({ "instanceView": { "statuses": [
            { "code": "ProvisioningState/succeeded" }, { "code": code }] } })
        };
        assert_eq!(state(&machine("PowerState/running")), "running");
        assert_eq!(state(&machine("PowerState/deallocated")), "stopped");
        assert_eq!(state(&json!({ "provisioningState": "Creating" })), "pending");
        assert_eq!(state(&json!({ "provisioningState": "Failed" })), "broken");
    }

    #[test]
    fn a_subnet_is_written_back_without_what_only_azure_says() {
        let subnet = json!({ "etag": "e", "properties": { "addressPrefix": "10.2.0.0/24",
            "provisioningState": "Succeeded", "ipConfigurations": [],
            "networkSecurityGroup": { "id": "/g", "tags": {} } } });
        let kept = writable(&subnet);
        assert_eq!(
            kept,
            json!({ "properties": { "addressPrefix": "10.2.0.0/24",
            "networkSecurityGroup": { "id": "/g" } } })
        );
    }
}
