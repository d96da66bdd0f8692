//! Resources of AWS's provider.

use serde_json::{Value, json};
use sites::{Kind, Resource};

use super::{Scene, Sheet, begins_with, get, rules};

/// Who publishes Debian's images (wiki.debian.org/Cloud/AmazonEC2Image).
const DEBIAN: &str = "136693071363";

pub(super) fn add(sheet: &mut Sheet, scene: &Scene<'_>, one: &Resource, number: Option<u32>) {
    let name = scene.name(&one.id.name);
    let network = scene.at("aws_vpc", "vpc", "id");
    let table = scene.at("aws_route_table", "routes", "id");
    let mut put = |kind: &str, name: &str, mut body: Value, is_tagged: bool| {
        body["provider"] = json!(scene.alias);
        if is_tagged {
            body["tags"] = scene.tags(&one.id, number);
        }
        sheet.add(kind, name, body);
    };
    match one.id.kind {
        Kind::Network => put("aws_vpc", &name, json!({ "cidr_block": get(one, "cidr") }), true),
        Kind::InternetGateway => {
            put("aws_internet_gateway", &name, json!({ "vpc_id": network }), true);
        }
        Kind::Subnet => {
            let body = json!({ "vpc_id": network, "cidr_block": get(one, "cidr") });
            put("aws_subnet", &name, body, true);
        }
        Kind::Group => {
            let title = format!("{}-{}-{}", scene.file.network, one.id.site, one.id.name);
            let body = json!({ "name": title, "vpc_id": network,
                               "description": "what reaches the gateways of a site" });
            put("aws_security_group", &name, body, true);
            let group = scene.at("aws_security_group", &one.id.name, "id");
            for (at, (protocol, low, high, from)) in
                rules(&get(one, "ingress")).into_iter().enumerate()
            {
                let protocol = protocol.unwrap_or_else(|| "-1".to_owned());
                let body = json!({ "type": "ingress", "security_group_id": group,
                                   "protocol": protocol, "from_port": low, "to_port": high,
                                   "cidr_blocks": [from] });
                put("aws_security_group_rule", &format!("{name}_in_{}", at + 1), body, false);
            }
            let body = json!({ "type": "egress", "security_group_id": group, "protocol": "-1",
                               "from_port": 0, "to_port": 0, "cidr_blocks": ["0.0.0.0/0"] });
            put("aws_security_group_rule", &format!("{name}_out"), body, false);
        }
        Kind::MachineRule => {
            let from: Vec<String> = get(one, "from").split(',').map(str::to_owned).collect();
            let word = format!("warren {}", scene.file.network);
            let body = json!({ "type": "ingress", "protocol": "-1", "from_port": 0, "to_port": 0,
                               "security_group_id":
                                   scene.at("aws_vpc", "vpc", "default_security_group_id"),
                               "cidr_blocks": from, "description": word });
            put("aws_security_group_rule", &name, body, false);
        }
        Kind::Table => {
            put("aws_route_table", &name, json!({ "vpc_id": network }), true);
            let body = json!({ "route_table_id": table, "destination_cidr_block": "0.0.0.0/0",
                               "gateway_id": scene.at("aws_internet_gateway", "internet", "id") });
            put("aws_route", &format!("{name}_out"), body, false);
            let body = json!({ "route_table_id": table,
                               "subnet_id": scene.at("aws_subnet", "subnet", "id") });
            put("aws_route_table_association", &name, body, false);
        }
        Kind::Interface => {
            let body = json!({ "subnet_id": scene.at("aws_subnet", "subnet", "id"),
                "private_ips": [get(one, "address")], "source_dest_check": false,
                "security_groups": [scene.at("aws_security_group", "gateway", "id")] });
            put("aws_network_interface", &name, body, true);
        }
        Kind::Address => {
            let interface = scene.at("aws_network_interface", &one.id.name, "id");
            let internet = format!("aws_internet_gateway.{}", scene.name("internet"));
            let body = json!({ "domain": "vpc", "network_interface": interface,
                               "depends_on": [internet] });
            put("aws_eip", &name, body, true);
        }
        Kind::Machine => machine(sheet, scene, one, number),
        Kind::Route => {
            let body = json!({ "route_table_id": table, "destination_cidr_block": get(one, "to"),
                "network_interface_id":
                    scene.at("aws_network_interface", &get(one, "via"), "id") });
            put("aws_route", &name, body, false);
        }
        _ => {}
    }
}

fn machine(sheet: &mut Sheet, scene: &Scene<'_>, one: &Resource, number: Option<u32>) {
    let name = scene.name(&one.id.name);
    let image = match one.properties.get("image") {
        Some(image) => image.clone(),
        None => {
            let body = json!({ "provider": scene.alias, "owners": [DEBIAN], "most_recent": true,
                "filter": [{ "name": "name", "values": ["debian-12-amd64-*"] }] });
            sheet.look_up("aws_ami", &scene.name("debian"), body);
            format!("${{data.aws_ami.{}.id}}", scene.name("debian"))
        }
    };
    let mut body = json!({ "provider": scene.alias, "ami": image,
        "instance_type": get(one, "machine"), "user_data": format!("${{{}}}", begins_with(one)),
        "network_interface": [{ "device_index": 0,
            "network_interface_id": scene.at("aws_network_interface", &one.id.name, "id") }],
        "metadata_options": [{ "http_tokens": "required", "http_put_response_hop_limit": 1 }],
        "depends_on":
            [format!("aws_eip.{name}"), format!("aws_route_table.{}", scene.name("routes"))],
        // A key works once: another one in the variable is for another machine.
        "lifecycle": { "ignore_changes": ["user_data", "ami"] },
        "tags": scene.tags(&one.id, number) });
    if let Some(role) = one.properties.get("role") {
        body["iam_instance_profile"] = json!(role);
    }
    sheet.add("aws_instance", &name, body);
}
