//! `circuits`: who builds them, who is a hop, who is an exit.
//!
//! An offer is a route that no packet takes, and the right to use hops is a rule whose destination
//! that route is: so whoever may use a hop learns of it, and hops learn of each other, as with
//! everything else here.

use std::net::{IpAddr, Ipv4Addr};

use wire::circuits::{EXITS, HOPS};

use super::*;

impl Reader {
    pub(super) fn circuits(&mut self, field: Option<&Field>) {
        let Some(field) = field else { return };
        let fields = self.object(&field.value, "an object with use, hops and exits");
        let [users, hops, exits] = self.sorted(fields, ["use", "hops", "exits"], &[]);
        let mut read = |field: Option<&Field>, role| {
            field.map(|field| self.selectors(&field.value, role)).unwrap_or_default()
        };
        let users = read(users, Role::Source);
        let exits = read(exits, Role::Owner);
        let mut hops = read(hops, Role::Owner);
        hops.extend(exits.iter().filter(|exit| !hops.contains(exit)).cloned().collect::<Vec<_>>());
        let Some((hop, exit)) = range(HOPS).zip(range(EXITS)) else { return };
        let sources: Vec<Selector> = users.into_iter().chain(hops.iter().cloned()).collect();
        if self.policy.grants.len() < RULES_MAX {
            self.policy.grants.push(Grant {
                place: field.place,
                section: Section::Circuits,
                index: 0,
                sources,
                targets: vec![Target {
                    selectors: vec![Selector::Prefix(hop)],
                    services: vec![Service::ANY],
                }],
                compress: false,
            });
        }
        self.policy.routes.extend([(hop, hops), (exit, exits)]);
    }
}

fn range(addresses: (Ipv4Addr, u8)) -> Option<Prefix> {
    let (address, bits) = addresses;
    Prefix::new(IpAddr::V4(address), bits)
}
