//! Resources of Azure's provider.

use serde_json::{Value, json};
use sites::{Kind, Resource};

use super::{Scene, Sheet, begins_with, get, rules};

pub(super) fn add(sheet: &mut Sheet, scene: &Scene<'_>, one: &Resource, number: Option<u32>) {
    let name = scene.name(&one.id.name);
    let holder = scene.at("azurerm_resource_group", "group", "name");
    let region = scene.site.region.clone().unwrap_or_default();
    let mut put = |kind: &str, mut body: Value, is_whole: bool| {
        body["provider"] = json!(scene.alias);
        if is_whole {
            body["tags"] = scene.tags(&one.id, number);
            body["location"] = json!(region);
            if one.id.kind != Kind::ResourceGroup {
                body["resource_group_name"] = json!(holder);
                body["name"] = json!(one.id.name);
            }
        }
        sheet.add(kind, &name, body);
    };
    match one.id.kind {
        Kind::ResourceGroup => {
            let title = format!("warren-{}-{}", scene.file.network, one.id.site);
            put("azurerm_resource_group", json!({ "name": title }), true);
        }
        Kind::Network => {
            let body = json!({ "address_space": [get(one, "cidr")] });
            put("azurerm_virtual_network", body, true);
        }
        Kind::Subnet => {
            let body = json!({ "name": one.id.name, "resource_group_name": holder,
                "virtual_network_name": scene.at("azurerm_virtual_network", "network", "name"),
                "address_prefixes": [get(one, "cidr")] });
            put("azurerm_subnet", body, false);
        }
        Kind::Group => {
            let body = json!({ "security_rule": group(&get(one, "ingress")) });
            put("azurerm_network_security_group", body, true);
        }
        Kind::Table => {
            put("azurerm_route_table", json!({}), true);
            let body = json!({ "subnet_id": scene.at("azurerm_subnet", "subnet", "id"),
                "route_table_id": scene.at("azurerm_route_table", &one.id.name, "id") });
            put("azurerm_subnet_route_table_association", body, false);
        }
        Kind::Interface => {
            let body = json!({ "ip_forwarding_enabled": true, "ip_configuration": [{
                "name": "inside", "subnet_id": scene.at("azurerm_subnet", "subnet", "id"),
                "private_ip_address_allocation": "Static",
                "private_ip_address": get(one, "address"),
                "public_ip_address_id": scene.at("azurerm_public_ip", &one.id.name, "id") }] });
            put("azurerm_network_interface", body, true);
            let body = json!({
                "network_interface_id": scene.at("azurerm_network_interface", &one.id.name, "id"),
                "network_security_group_id":
                    scene.at("azurerm_network_security_group", "gateway", "id") });
            put("azurerm_network_interface_security_group_association", body, false);
        }
        Kind::Address => {
            let body = json!({ "allocation_method": "Static", "sku": "Standard" });
            put("azurerm_public_ip", body, true);
        }
        Kind::Machine => machine(sheet, scene, one, number),
        Kind::Route => {
            let title = format!("warren-{}", one.id.name.replace('/', "-"));
            let via = get(one, "via");
            let hop = scene.at("azurerm_network_interface", &via, "private_ip_address");
            let body = json!({ "name": title, "resource_group_name": holder,
                "route_table_name": scene.at("azurerm_route_table", "routes", "name"),
                "address_prefix": get(one, "to"), "next_hop_type": "VirtualAppliance",
                "next_hop_in_ip_address": hop });
            put("azurerm_route", body, false);
        }
        _ => {}
    }
}

/// The rules of the gateway's group, as the client of ours writes them.
fn group(ingress: &str) -> Value {
    let one = |name: String, priority: usize, direction: &str, access: &str| {
        json!({ "name": name, "priority": priority, "direction": direction, "access": access,
                "protocol": "*", "source_address_prefix": "*", "source_port_range": "*",
                "destination_address_prefix": "*", "destination_port_range": "*" })
    };
    let mut all = Vec::new();
    for (at, (protocol, low, _, from)) in rules(ingress).into_iter().enumerate() {
        let mut rule = one(format!("in-{}", at + 1), 100 + at, "Inbound", "Allow");
        if let Some(protocol) = protocol {
            rule["protocol"] = json!(if protocol == "udp" { "Udp" } else { "Tcp" });
            rule["destination_port_range"] = json!(low.to_string());
        }
        if from != "0.0.0.0/0" {
            rule["source_address_prefix"] = json!(from);
        }
        all.push(rule);
    }
    all.push(one("rest".to_owned(), 4096, "Inbound", "Deny"));
    all.push(one("out".to_owned(), 100, "Outbound", "Allow"));
    Value::Array(all)
}

fn machine(sheet: &mut Sheet, scene: &Scene<'_>, one: &Resource, number: Option<u32>) {
    let key =
        sheet.variable("ssh_key", "a public key of SSH, which Azure wants on machines", false);
    let mut body = json!({ "provider": scene.alias, "name": one.id.name,
        "resource_group_name": scene.at("azurerm_resource_group", "group", "name"),
        "location": scene.site.region, "size": get(one, "machine"), "admin_username": "warren",
        "admin_ssh_key": [{ "username": "warren", "public_key": key }],
        "custom_data": format!("${{base64encode({})}}", begins_with(one)),
        "network_interface_ids": [scene.at("azurerm_network_interface", &one.id.name, "id")],
        "os_disk": [{ "caching": "ReadWrite", "storage_account_type": "Standard_LRS" }],
        "lifecycle": { "ignore_changes": ["custom_data"] },
        "tags": scene.tags(&one.id, number) });
    let image = one.properties.get("image").map_or("Debian:debian-12:12:latest", String::as_str);
    match image.split(':').collect::<Vec<&str>>()[..] {
        [publisher, offer, sku, version] => {
            body["source_image_reference"] = json!([{ "publisher": publisher, "offer": offer,
                                                      "sku": sku, "version": version }]);
        }
        _ => body["source_image_id"] = json!(image),
    }
    if let Some(role) = one.properties.get("role") {
        body["identity"] = json!([{ "type": "UserAssigned", "identity_ids": [role] }]);
    }
    sheet.add("azurerm_linux_virtual_machine", &scene.name(&one.id.name), body);
}
