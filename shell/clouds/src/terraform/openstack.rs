//! Resources of OpenStack's provider.

use core::net::Ipv4Addr;

use serde_json::{Value, json};
use sites::{Kind, Resource};

use super::{Scene, Sheet, begins_with, get, rules};
use crate::openstack;

pub(super) fn add(sheet: &mut Sheet, scene: &Scene<'_>, one: &Resource, number: Option<u32>) {
    let name = scene.name(&one.id.name);
    let Scene { file, .. } = scene;
    let number = number.filter(|_| one.id.kind == Kind::Network && one.id.name == "inside");
    let number = number.map_or_else(String::new, |number| format!(" {number}"));
    let mark = format!("warren {} {} {}{number}", file.network, one.id.site, one.id.name);
    let title = format!("{} {} {}", file.network, one.id.site, one.id.name);
    let mut put = |kind: &str, name: &str, mut body: Value, is_marked: bool| {
        body["provider"] = json!(scene.alias);
        if is_marked {
            body["description"] = json!(mark);
        }
        sheet.add(kind, name, body);
    };
    match one.id.kind {
        Kind::Network => {
            put("openstack_networking_network_v2", &name, json!({ "name": title }), true);
        }
        Kind::InternetGateway => {
            let body = json!({ "name": title,
                "external_network_id": external(sheet, scene) });
            add_marked(sheet, scene, "openstack_networking_router_v2", &name, body, &mark);
        }
        Kind::Subnet => {
            put("openstack_networking_subnet_v2", &name, subnet(scene, one, &title), true);
        }
        Kind::Group => {
            put("openstack_networking_secgroup_v2", &name, json!({ "name": title }), true);
            let group = scene.at("openstack_networking_secgroup_v2", &one.id.name, "id");
            for (at, (protocol, low, high, from)) in
                rules(&get(one, "ingress")).into_iter().enumerate()
            {
                let mut body = json!({ "security_group_id": group, "direction": "ingress",
                                       "ethertype": "IPv4", "remote_ip_prefix": from });
                if let Some(protocol) = protocol {
                    body["protocol"] = json!(protocol);
                    body["port_range_min"] = json!(low);
                    body["port_range_max"] = json!(high);
                }
                let name = format!("{name}_in_{}", at + 1);
                put("openstack_networking_secgroup_rule_v2", &name, body, false);
            }
        }
        Kind::MachineRule => machine_rule(sheet, scene, one),
        Kind::Table => {
            let body = json!({
                "router_id": scene.at("openstack_networking_router_v2", "router", "id"),
                "subnet_id": scene.at("openstack_networking_subnet_v2", "outside", "id") });
            put("openstack_networking_router_interface_v2", &name, body, false);
        }
        Kind::Interface => {
            put("openstack_networking_port_v2", &name, port(scene, one, &title), true);
        }
        Kind::Address => {
            let leads =
                format!("openstack_networking_router_interface_v2.{}", scene.name("router"));
            let body = json!({ "pool": pool(sheet),
                "port_id": scene.at("openstack_networking_port_v2", &get(one, "at"), "id"),
                "depends_on": [leads] });
            add_marked(sheet, scene, "openstack_networking_floatingip_v2", &name, body, &mark);
        }
        Kind::Machine => machine(sheet, scene, one, &mark),
        Kind::Route => {
            let body = json!({ "destination_cidr": get(one, "to"), "next_hop": hop(scene, one),
                "subnet_id": scene.at("openstack_networking_subnet_v2", "inside", "id") });
            put("openstack_networking_subnet_route_v2", &name, body, false);
        }
        _ => {}
    }
}

/// A subnet; that of the site has no router, and keeps its gateways' addresses from others.
fn subnet(scene: &Scene<'_>, one: &Resource, title: &str) -> Value {
    let side = &one.id.name;
    let network = scene.at("openstack_networking_network_v2", side, "id");
    let mut body = json!({ "name": title, "network_id": network, "ip_version": 4,
                           "cidr": get(one, "cidr") });
    if side == "inside" {
        body["no_gateway"] = json!(true);
        if let Some((start, end)) = openstack::pool(&get(one, "cidr")) {
            body["allocation_pool"] = json!([{ "start": start, "end": end }]);
        }
    }
    body
}

/// Where a route leads: to a gateway's port, or to what a pair shares, which is on none.
fn hop(scene: &Scene<'_>, one: &Resource) -> String {
    let via = get(one, "via");
    match via.parse::<Ipv4Addr>() {
        Ok(shared) => shared.to_string(),
        Err(_) => scene.at("openstack_networking_port_v2", &via, "all_fixed_ips[0]"),
    }
}

/// A gateway's port: inside, where others' addresses pass, or outside.
fn port(scene: &Scene<'_>, one: &Resource, title: &str) -> Value {
    let side = if one.properties.contains_key("address") { "inside" } else { "outside" };
    let subnet = scene.at("openstack_networking_subnet_v2", side, "id");
    let mut fixed = json!({ "subnet_id": subnet });
    let mut body = json!({ "name": title,
        "network_id": scene.at("openstack_networking_network_v2", side, "id"),
        "security_group_ids": [scene.at("openstack_networking_secgroup_v2", "gateway", "id")] });
    if side == "inside" {
        fixed["ip_address"] = json!(get(one, "address"));
        let passes = get(one, "passes");
        let pairs = passes.split(',').map(|to| json!({ "ip_address": to }));
        body["allowed_address_pairs"] = Value::Array(pairs.collect());
        // Its machines' routes lead to itself.
        let own = scene.at("openstack_networking_subnet_v2", side, "cidr");
        let option = |name| json!({ "name": name, "value": openstack::own_route(&own) });
        body["extra_dhcp_option"] = Value::Array(openstack::ROUTE_OPTIONS.map(option).into());
    }
    body["fixed_ip"] = json!([fixed]);
    body
}

fn add_marked(
    sheet: &mut Sheet,
    scene: &Scene<'_>,
    kind: &str,
    name: &str,
    mut body: Value,
    mark: &str,
) {
    body["provider"] = json!(scene.alias);
    body["description"] = json!(mark);
    sheet.add(kind, name, body);
}

/// The name of the network that leads out.
fn pool(sheet: &mut Sheet) -> String {
    sheet.variable("external_network", "the name of the cloud's network that leads out", false)
}

fn external(sheet: &mut Sheet, scene: &Scene<'_>) -> String {
    let body = json!({ "provider": scene.alias, "name": pool(sheet), "external": true });
    let name = scene.name("external");
    sheet.look_up("openstack_networking_network_v2", &name, body);
    format!("${{data.openstack_networking_network_v2.{name}.id}}")
}

/// What lets other sites into the project's default group, which all its sites share.
fn machine_rule(sheet: &mut Sheet, scene: &Scene<'_>, one: &Resource) {
    let name = scene.name("default");
    let body = json!({ "provider": scene.alias, "name": "default" });
    sheet.look_up("openstack_networking_secgroup_v2", &name, body);
    for (at, from) in get(one, "from").split(',').enumerate() {
        let group = format!("${{data.openstack_networking_secgroup_v2.{name}.id}}");
        let body = json!({ "provider": scene.alias, "security_group_id": group,
            "direction": "ingress", "ethertype": "IPv4", "remote_ip_prefix": from,
            "description": format!("warren {}", scene.file.network) });
        // One of each for a whole project: the same rule is refused a second time.
        let name = super::plain(&format!("{}_in_{}", scene.alias, at + 1));
        sheet.add("openstack_networking_secgroup_rule_v2", &name, body);
    }
}

fn machine(sheet: &mut Sheet, scene: &Scene<'_>, one: &Resource, mark: &str) {
    let outer = format!("{}-outside", one.id.name);
    let ports = [outer.as_str(), &one.id.name]
        .map(|name| json!({ "port": scene.at("openstack_networking_port_v2", name, "id") }));
    let mut metadata = json!({ "warren": mark });
    for key in ["image", "machine", "shared"] {
        if let Some(word) = one.properties.get(key) {
            metadata[format!("warren-{key}")] = json!(word);
        }
    }
    let image = one.properties.get("image").cloned();
    let image = image.unwrap_or_else(|| sheet.variable("image", "an image of Debian 12", false));
    let flavor = one.properties.get("machine").cloned();
    let told = "a kind of machine with 512 MiB and a disk";
    let flavor = flavor.unwrap_or_else(|| sheet.variable("flavor", told, false));
    let body = json!({ "provider": scene.alias, "name": one.id.name, "image_name": image,
        "flavor_name": flavor, "config_drive": true, "metadata": metadata, "network": ports,
        "user_data": format!("${{{}}}", begins_with(one)),
        "lifecycle": { "ignore_changes": ["user_data"] } });
    sheet.add("openstack_compute_instance_v2", &scene.name(&one.id.name), body);
}
