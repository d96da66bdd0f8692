//! What must be true of a site of machines that are there: the program on its gateways, their
//! membership, and a route on each machine that is listed.

use crate::backend::Backend;
use crate::file::File;
use crate::graph::{Id, Kind, Known, Resource, list, node_name, resource};
use crate::number::Numbering;
use crate::{foreign, through};

/// The number that the kernel keeps with routes of ours, which is their tag.
pub const PROTOCOL: u8 = 158;
/// The file on a machine by which it is known as ours.
pub const TAG_FILE: &str = "/etc/warren-site.json";

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
    if site.backend != Backend::Warren {
        let gateways = foreign::desired(file, numbering, index, known, all);
        let gateway = place.gateways.first().map(ToString::to_string);
        return routes(
            file,
            numbering,
            index,
            &gateway.unwrap_or_default(),
            gateways.as_slice(),
            all,
        );
    }
    let count = usize::from(site.gateways);
    let through = through(file, numbering, index);
    let passes_on = through::passes_on(file, index);
    let shared = place.shared.map_or_else(String::new, |address| address.to_string());
    let mut ready = Vec::new();
    for (gateway, host) in site.hosts.iter().take(count).enumerate() {
        let name = node_name(file, index, gateway);
        let id = |kind| Id::new(kind, &site.name, name.clone());
        let at = ("host", host.to_string());
        all.push(resource(
            id(Kind::Program),
            [at.clone(), ("digest", known.program.clone()), ("path", file.program.clone())],
            vec![],
            format!("{host} needs the program to be a gateway"),
        ));
        all.push(resource(
            id(Kind::Member),
            [
                at.clone(),
                ("passes_on", passes_on.to_owned()),
                ("routes", place.offers()),
                ("shared", shared.clone()),
                ("state", "running".to_owned()),
                ("through", through.clone()),
            ],
            vec![id(Kind::Program)],
            format!("{host} joins the network as the gateway of {}", site.name)
                + &through::told(file, index),
        ));
        all.push(resource(
            id(Kind::Approval),
            [("routes", list(&place.known_as))],
            vec![id(Kind::Member)],
            format!("other gateways reach {} through it", site.name),
        ));
        all.push(resource(
            id(Kind::Forwarding),
            [at, ("ipv4", "on".to_owned())],
            vec![id(Kind::Approval)],
            format!("{host} passes on what comes from {}", site.name),
        ));
        ready.push(id(Kind::Forwarding));
    }
    let active = known.active.get(&site.name).copied().unwrap_or(0);
    let gateway = place.gateways.get(active).or_else(|| place.gateways.first());
    let Some(via) = place.shared.as_ref().or(gateway) else { return };
    routes(file, numbering, index, &via.to_string(), &ready, all);
}

/// Adds the routes of a site's machines.
fn routes(
    file: &File,
    numbering: &Numbering,
    index: usize,
    via: &str,
    ready: &[Id],
    all: &mut Vec<Resource>,
) {
    let site = &file.sites[index];
    let is_shared = numbering.places[index].shared.is_some();
    let word = if is_shared { "the address that its gateways share" } else { "the gateway" };
    for host in site.hosts.iter().skip(usize::from(site.gateways)) {
        for prefix in numbering.routes_of(index) {
            all.push(resource(
                Id::new(Kind::Route, &site.name, format!("{host} {prefix}")),
                [("host", host.to_string()), ("to", prefix.to_string()), ("via", via.to_owned())],
                ready.to_vec(),
                format!("{host} reaches other sites through {word} and needs no Warren"),
            ));
        }
    }
}
