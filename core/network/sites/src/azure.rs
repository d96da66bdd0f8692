//! What must be true of a site at Azure: a resource group with a network of one subnet, a gateway
//! in it that passes on packets of others, and a table with the route of all sites to the gateway.
//!
//! Machines need no rule of ours: what a table of routes leads to belongs to the service tag
//! `VirtualNetwork`, which machines let in unless their own group says otherwise.

use crate::file::File;
use crate::graph::{Id, Kind, Known, Resource, list, node_name, of_cloud};
use crate::number::Numbering;

/// The kind of a gateway's machine where the file names none.
const MACHINE: &str = "Standard_B1s";

/// Adds the resources of one site.
pub(crate) fn desired(
    file: &File,
    numbering: &Numbering,
    index: usize,
    known: &Known,
    all: &mut Vec<Resource>,
) {
    let site = &file.sites[index];
    let place = &numbering.places[index];
    let Some(cidr) = place.networks.first().map(ToString::to_string) else { return };
    let id = |kind, name: &str| Id::new(kind, &site.name, name);
    let mut add = |id: Id, properties: &[(&str, &str)], needs: &[&Id], why: &str| {
        all.push(of_cloud(id, properties, needs, why));
    };
    let holder = id(Kind::ResourceGroup, "group");
    let network = id(Kind::Network, "network");
    let subnet = id(Kind::Subnet, "subnet");
    let group = id(Kind::Group, "gateway");
    let table = id(Kind::Table, "routes");
    add(holder.clone(), &[("marked", "yes")], &[], "everything of the site is in it");
    let why = "the site's own private network";
    add(network.clone(), &[("cidr", &cidr)], &[&holder], why);
    add(subnet.clone(), &[("cidr", &cidr)], &[&network], "the site's machines are in it");
    let ports = site.backend.ingress(&cidr);
    let why = "links of other gateways come in, and what the site's machines send out";
    let properties = [("egress", "all"), ("ingress", ports.as_str()), ("rest", "denied")];
    add(group.clone(), &properties, &[&holder], why);
    let why = "it holds the way to other sites";
    add(table.clone(), &[("subnet", "subnet")], &[&subnet], why);
    for gateway in 0..usize::from(site.gateways) {
        let name = node_name(file, index, gateway);
        let Some(address) = place.gateways.get(gateway).map(ToString::to_string) else { return };
        let interface = id(Kind::Interface, &name);
        let properties =
            [("address", address.as_str()), ("forwarding", "on"), ("group", "gateway")];
        let why = "it passes on packets of others, which is forwarding of IP";
        add(interface.clone(), &properties, &[&subnet, &group], why);
        let public = id(Kind::Address, &name);
        let why = "the gateway keeps one public address";
        add(public.clone(), &[("at", &name)], &[&interface], why);
        let machine = site.machine.as_deref().unwrap_or(MACHINE);
        let mut properties = vec![("machine", machine), ("member", "yes"), ("state", "running")];
        // Without one the newest of Debian is taken when it is made, and it stays with that.
        properties.extend(site.image.as_deref().map(|image| ("image", image)));
        properties.extend(site.role.as_deref().map(|role| ("role", role)));
        let why = "the gateway; it joins by a key that works once";
        let made = id(Kind::Machine, &name);
        add(made.clone(), &properties, &[&interface, &public, &table], why);
        let routes = list(&place.known_as);
        let why = "other gateways reach the site through it";
        add(id(Kind::Approval, &name), &[("routes", &routes)], &[&made], why);
    }
    let active = known.active.get(&site.name).copied().unwrap_or(0);
    let active = node_name(file, index, active.min(usize::from(site.gateways) - 1));
    for prefix in numbering.routes_of(index) {
        let to = prefix.to_string();
        let needs = [&table, &id(Kind::Interface, &active)];
        let why = "machines reach other sites through the gateway and need no Warren";
        add(id(Kind::Route, &to), &[("to", &to), ("via", &active)], &needs, why);
    }
}
