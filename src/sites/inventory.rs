//! The machines of a site file as an inventory of Ansible.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use sites::{File, Host, Numbering, Place, Site};

use super::show::texts;

/// The gateways of all sites.
const GATEWAYS: &str = "warren_gateways";
/// All other machines that the file lists.
const MACHINES: &str = "warren_machines";

/// In the layout of its files. `config` is what `ssh` reads instead of the user's own settings.
pub(super) fn inventory(
    file: &File,
    numbering: &Numbering,
    config: Option<&Path>,
) -> Result<Value> {
    let network = format!("warren_{}", group(&file.network));
    let taken = ["all", "ungrouped", GATEWAYS, MACHINES];
    let mut names: BTreeSet<String> = taken.map(str::to_owned).into();
    // Ansible makes one group of two that have one name.
    let mut is_new = |name: &str, what: &str| {
        let is_new = names.insert(name.to_owned());
        ensure!(is_new, "a group of the inventory would be a second {name}; rename {what}");
        Ok(())
    };
    is_new(&network, "the network")?;
    let [mut children, mut members, mut gateways, mut machines] = [(); 4].map(|()| Map::new());
    for (site, place) in file.sites.iter().zip(&numbering.places) {
        let name = group(&site.name);
        let inner = [format!("{name}_gateways"), format!("{name}_machines")];
        for name in [&name, &inner[0], &inner[1]] {
            is_new(name, &format!("the site {}", site.name))?;
        }
        let [one, other] = hosts(site, place);
        let vars = json!({ "warren_site": site.name, "warren_provider": site.provider.word(),
                           "warren_backend": site.backend.word(),
                           "warren_networks": texts(&place.networks),
                           "warren_known_as": texts(&place.known_as) });
        let both = json!({ &inner[0]: { "hosts": one }, &inner[1]: { "hosts": other } });
        children.insert(name.clone(), json!({ "children": both, "vars": vars }));
        members.insert(name, json!({}));
        let [one, other] = inner;
        gateways.insert(one, json!({}));
        machines.insert(other, json!({}));
    }
    let vars = json!({ "warren_network": file.network, "warren_program": file.program,
                       "ansible_host_key_checking": true,
                       "ansible_ssh_common_args": words(config)? });
    children.insert(network, json!({ "children": members, "vars": vars }));
    children.insert(GATEWAYS.to_owned(), json!({ "children": gateways }));
    children.insert(MACHINES.to_owned(), json!({ "children": machines }));
    Ok(json!({ "all": { "children": children } }))
}

/// Ansible takes no hyphens in names of groups.
fn group(name: &str) -> String {
    name.replace('-', "_")
}

/// A site's gateways and its machines, each by its name, with how it is reached.
fn hosts(site: &Site, place: &Place) -> [Map<String, Value>; 2] {
    let count = usize::from(site.gateways);
    let [mut gateways, mut machines] = [(); 2].map(|()| Map::new());
    for (at, host) in site.hosts.iter().enumerate() {
        let mut facts = reached(host);
        if at >= count {
            machines.insert(format!("{}-{}", site.name, at + 1 - count), facts);
            continue;
        }
        if let Some(inside) = place.gateways.get(at) {
            facts["warren_inside"] = json!(inside.to_string());
            facts["warren_address"] = json!(outside(place, *inside).to_string());
        }
        gateways.insert(format!("{}-gw{}", site.name, at + 1), facts);
    }
    [gateways, machines]
}

fn reached(host: &Host) -> Value {
    let mut facts = json!({ "ansible_host": host.address });
    if let Some(port) = host.port {
        facts["ansible_port"] = json!(port);
    }
    if let Some(user) = &host.user {
        facts["ansible_user"] = json!(user);
    }
    facts
}

/// The address by which other sites know one that a site has inside.
fn outside(place: &Place, inside: Ipv4Addr) -> Ipv4Addr {
    let mut both = place.networks.iter().zip(&place.known_as);
    let found = both.find(|(own, _)| own.contains(IpAddr::V4(inside)));
    let Some([IpAddr::V4(own), IpAddr::V4(known)]) =
        found.map(|(own, known)| [own.address(), known.address()])
    else {
        return inside;
    };
    Ipv4Addr::from_bits(known.to_bits() | (inside.to_bits() ^ own.to_bits()))
}

/// What `ssh` is told by Ansible, so that it reaches whom `warren sites` reaches, and nobody else.
fn words(config: Option<&Path>) -> Result<String> {
    let strict = "-o StrictHostKeyChecking=yes";
    let Some(config) = config else { return Ok(strict.to_owned()) };
    let path = std::path::absolute(config)?;
    let path = path.to_str().context("the path of ssh_config is not UTF-8")?;
    Ok(format!("-F '{}' {strict}", path.replace('\'', "'\\''")))
}
