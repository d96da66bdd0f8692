//! What must be true of a site at an OpenStack cloud. A private network has no router there, so the
//! gateway has two interfaces: one in a network of its own that leads out, one in the site's.
//!
//! Gateways of a pair share an address there, as on a LAN: an inner interface lets the addresses of
//! all sites pass, and so a gateway may answer for one of them.

use crate::file::File;
use crate::graph::{Id, Kind, Known, Resource, list, node_name, of_cloud};
use crate::number::Numbering;

/// The network between gateway and router; nobody else is in it, and no other network meets it.
pub const DMZ: &str = "172.31.254.0/24";

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
    let reached = numbering.routes_of(index);
    let range = list(&reached);
    let shared = place.shared.map(|address| address.to_string());
    let mut add = |id: Id, properties: &[(&str, &str)], needs: &[&Id], why: &str| {
        all.push(of_cloud(id, properties, needs, why));
    };
    let inside = id(Kind::Network, "inside");
    let outside = id(Kind::Network, "outside");
    let router = id(Kind::InternetGateway, "router");
    let subnet = id(Kind::Subnet, "inside");
    let dmz = id(Kind::Subnet, "outside");
    let group = id(Kind::Group, "gateway");
    let leads = id(Kind::Table, "router");
    add(inside.clone(), &[], &[], "the site's own private network");
    add(outside.clone(), &[], &[], "the gateway's way out; a private network has no router");
    add(router.clone(), &[("external", "yes")], &[], "the gateway is reached from outside");
    add(subnet.clone(), &[("cidr", &cidr)], &[&inside], "the site's machines are in it");
    add(dmz.clone(), &[("cidr", DMZ)], &[&outside], "the gateway's outer interface is in it");
    let ports = site.backend.ingress(&cidr);
    let why = "links of other gateways come in, and what the site's machines send out";
    add(group.clone(), &[("ingress", &ports)], &[], why);
    let why = "machines in the default group answer other sites; without it they are silent";
    add(id(Kind::MachineRule, "default"), &[("from", &range)], &[], why);
    let why = "the router leads from the gateway's outer network out";
    add(leads.clone(), &[("subnet", "outside")], &[&router, &dmz], why);
    for gateway in 0..usize::from(site.gateways) {
        let name = node_name(file, index, gateway);
        let Some(address) = place.gateways.get(gateway).map(ToString::to_string) else { return };
        let inner = id(Kind::Interface, &name);
        let properties =
            [("address", address.as_str()), ("group", "gateway"), ("passes", range.as_str())];
        let why = "it passes on packets of others, which a check of sources would drop";
        add(inner.clone(), &properties, &[&subnet, &group], why);
        let outer_name = format!("{name}-outside");
        let outer = id(Kind::Interface, &outer_name);
        add(outer.clone(), &[("group", "gateway")], &[&dmz, &group], "the gateway's way out");
        let public = id(Kind::Address, &name);
        let why = "the gateway keeps one public address";
        add(public.clone(), &[("at", &outer_name)], &[&outer, &leads], why);
        let interfaces = format!("{name},{outer_name}");
        let mut properties =
            vec![("interfaces", interfaces.as_str()), ("member", "yes"), ("state", "running")];
        // Without one a fitting one is taken when it is made, and it stays with that.
        properties.extend(site.machine.as_deref().map(|machine| ("machine", machine)));
        properties.extend(site.image.as_deref().map(|image| ("image", image)));
        properties.extend(shared.as_deref().map(|shared| ("shared", shared)));
        let why = "the gateway; it joins by a key that works once";
        add(id(Kind::Machine, &name), &properties, &[&inner, &public], why);
        let routes = list(&place.known_as);
        let why = "other gateways reach the site through it";
        let machine = id(Kind::Machine, &name);
        add(id(Kind::Approval, &name), &[("routes", &routes)], &[&machine], why);
    }
    let active = known.active.get(&site.name).copied().unwrap_or(0);
    let active = node_name(file, index, active.min(usize::from(site.gateways) - 1));
    for prefix in reached {
        let to = prefix.to_string();
        let needs = [&subnet, &id(Kind::Interface, &active)];
        let (via, why) = match &shared {
            Some(shared) => (shared, "machines reach other sites through what its gateways share"),
            None => (&active, "machines reach other sites through the gateway and need no Warren"),
        };
        add(id(Kind::Route, &to), &[("to", &to), ("via", via)], &needs, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::Taken;
    use crate::{Action, Found, Report, desired, steps};

    /// The gateways' machines and the routes of a site, each with one of its properties.
    fn made(more: &str) -> Vec<(Kind, Option<String>)> {
        let text =
            format!("network = \"acme\"\n[[site]]\nname = \"v\"\nprovider = \"openstack\"\n{more}");
        let file = File::read(&text).unwrap();
        let numbering = Numbering::new(&file, &text, &Taken::new()).unwrap();
        let wanted = desired(&file, &numbering, &Known::default());
        let told = |one: Resource| match one.id.kind {
            Kind::Machine => Some((Kind::Machine, one.properties.get("shared").cloned())),
            Kind::Route => Some((Kind::Route, one.properties.get("via").cloned())),
            _ => None,
        };
        wanted.into_iter().filter_map(told).collect()
    }

    #[test]
    fn a_machine_that_lost_an_interface_gets_it_again_and_is_not_made_again() {
        let text = "network = \"acme\"\n[[site]]\nname = \"v\"\nprovider = \"openstack\"\n";
        let file = File::read(text).unwrap();
        let numbering = Numbering::new(&file, text, &Taken::new()).unwrap();
        let wanted = desired(&file, &numbering, &Known::default());
        let lost = Id::new(Kind::Interface, "v", "acme-v-gw1-outside");
        let there = wanted.iter().filter(|one| one.id != lost).map(|one| {
            let mut properties = one.properties.clone();
            if one.id.kind == Kind::Machine {
                properties.insert("interfaces".to_owned(), "acme-v-gw1".to_owned());
            }
            Found { id: one.id.clone(), properties, is_ours: true }
        });
        let report = Report { found: there.collect() };
        let told = steps(&wanted, &report, None);
        let [made, changed] = &told[..] else { panic!("{told:?}") };
        assert_eq!((&made.id, &made.action), (&lost, &Action::Create));
        let change = ["interfaces", "acme-v-gw1", "acme-v-gw1,acme-v-gw1-outside"];
        let [key, before, after] = change.map(str::to_owned);
        assert_eq!(changed.id, Id::new(Kind::Machine, "v", "acme-v-gw1"));
        assert_eq!(changed.action, Action::Change(vec![(key, before, after)]));
    }

    #[test]
    fn source_001_14_a_pair_shares_an_address_of_the_plan_and_machines_send_there() {
        let shared = Some("10.3.0.252".to_owned());
        let machine = (Kind::Machine, shared.clone());
        assert_eq!(made("gateways = 2\n"), [machine.clone(), machine, (Kind::Route, shared)]);
        let first = Some("acme-v-gw1".to_owned());
        assert_eq!(made(""), [(Kind::Machine, None), (Kind::Route, first.clone())]);
        // Addresses of a network that is not of the plan may be machines'.
        let own = made("gateways = 2\nsubnets = [\"192.168.5.0/24\"]\n");
        assert_eq!(own, [(Kind::Machine, None), (Kind::Machine, None), (Kind::Route, first)]);
    }
}
