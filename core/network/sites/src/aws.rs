//! What must be true of a site at AWS: a network with one subnet, a gateway in it with a public
//! address, and the less specific route of all sites to the gateway's interface.

use crate::file::File;
use crate::graph::{Id, Kind, Known, Resource, list, node_name, of_cloud};
use crate::number::Numbering;

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
    let Some(cidr) = place.networks.first() else { return };
    let id = |kind, name: &str| Id::new(kind, &site.name, name);
    let network = id(Kind::Network, "vpc");
    let subnet = id(Kind::Subnet, "subnet");
    let group = id(Kind::Group, "gateway");
    let internet = id(Kind::InternetGateway, "internet");
    let table = id(Kind::Table, "routes");
    let cidr = cidr.to_string();
    let reached = numbering.routes_of(index);
    let range = list(&reached);
    let mut add = |id: Id, properties: &[(&str, &str)], needs: &[&Id], why: &str| {
        all.push(of_cloud(id, properties, needs, why));
    };
    add(network.clone(), &[("cidr", &cidr)], &[], "the site's own private network");
    let why = "the gateway is reached from outside";
    add(internet.clone(), &[("attached", "yes")], &[&network], why);
    add(subnet.clone(), &[("cidr", &cidr)], &[&network], "the site's machines are in it");
    let ports = site.backend.ingress(&cidr);
    let why = "links of other gateways come in, and what the site's machines send out";
    add(group.clone(), &[("ingress", &ports)], &[&network], why);
    let why = "machines in the default group answer other sites; without it they are silent";
    add(id(Kind::MachineRule, "default"), &[("from", &range)], &[&network], why);
    let why = "it holds the way out and the way to other sites";
    let properties = [("default", "internet"), ("subnet", "subnet")];
    add(table.clone(), &properties, &[&subnet, &internet], why);
    for gateway in 0..usize::from(site.gateways) {
        let name = node_name(file, index, gateway);
        let Some(address) = place.gateways.get(gateway) else { return };
        let address = address.to_string();
        let interface = id(Kind::Interface, &name);
        let properties =
            [("address", address.as_str()), ("group", "gateway"), ("source_check", "off")];
        let why = "it passes on packets of others, which a check of sources would drop";
        add(interface.clone(), &properties, &[&subnet, &group], why);
        let public = id(Kind::Address, &name);
        let why = "the gateway keeps one public address";
        add(public.clone(), &[("at", &name)], &[&interface, &internet], why);
        let machine = site.machine.as_deref().unwrap_or("t3.micro");
        let mut properties = vec![("machine", machine), ("member", "yes"), ("state", "running")];
        // Without one the newest of Debian is taken when it is made, and it stays with that.
        properties.extend(site.image.as_deref().map(|image| ("image", image)));
        properties.extend(site.role.as_deref().map(|role| ("role", role)));
        let why = "the gateway; it joins by a key that works once";
        add(id(Kind::Machine, &name), &properties, &[&interface, &public, &table], why);
        let routes = list(&place.known_as);
        let properties = [("routes", routes.as_str())];
        let why = "other gateways reach the site through it";
        add(id(Kind::Approval, &name), &properties, &[&id(Kind::Machine, &name)], why);
    }
    let active = known.active.get(&site.name).copied().unwrap_or(0);
    let active = node_name(file, index, active.min(usize::from(site.gateways) - 1));
    for prefix in reached {
        let to = prefix.to_string();
        let needs = [&table, &id(Kind::Interface, &active)];
        let why = "machines reach other sites through the gateway and need no Warren";
        add(id(Kind::Route, &to), &[("to", &to), ("via", &active)], &needs, why);
    }
}
