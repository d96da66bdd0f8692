//! Whether the networks behind this node are reached. Where a cable is out or a route is gone, the
//! node still offers its routes, so that nobody's packets leave by another way; it says that
//! they lead nowhere now, and who knows another gateway takes that one.
//!
//! What is well again is told so once it has been for [`routes::GRACE`]. That moves no connection
//! from a gateway that works: who chooses waits longer than that ([`routes::HOLD`]).

use std::collections::BTreeMap;
use std::time::Instant;

use control::{Map, Prefix};
use host::linux::netlink::{Error, Link, MAIN_TABLE, Netlink, Route};

use crate::{Offer, Settings, plan};

/// What is known of the networks behind this node, by what the network calls them.
#[derive(Debug, Default)]
pub(crate) struct Lan(BTreeMap<Prefix, Known>);

#[derive(Debug, Default)]
struct Known {
    /// The link by which it was reached last.
    by: Option<String>,
    /// Why it is not reached.
    why: Option<String>,
    /// Since when it is reached again that was not.
    well_since: Option<Instant>,
}

/// What the machine says of its routes.
struct Seen {
    routes: Vec<Route>,
    links: Vec<Link>,
    dead: Vec<Link>,
    own: u32,
}

impl Lan {
    /// Looks at the machine, whose interface of ours is `own`.
    pub(crate) fn look(&mut self, settings: &Settings, own: &str) -> Result<(), Error> {
        let offers = &settings.advertise_routes;
        self.0.retain(|route, _| offers.iter().any(|offer| offer.route() == *route));
        if offers.is_empty() {
            return Ok(());
        }
        let mut netlink = Netlink::open()?;
        let links = netlink.links()?;
        let own = links.iter().find(|link| link.name == own).map_or(0, |link| link.index);
        let (routes, dead) = (netlink.routes()?, netlink.dead_links()?);
        let seen = Seen { routes, links, dead, own };
        for offer in offers {
            self.0.entry(offer.route()).or_default().take(offer, &seen);
        }
        Ok(())
    }

    /// The routes that lead nowhere, and those that did a moment ago.
    pub(crate) fn down(&self) -> Vec<Prefix> {
        let is_down = |known: &Known| known.why.is_some() || known.well_since.is_some();
        self.0.iter().filter(|(_, known)| is_down(known)).map(|(route, _)| *route).collect()
    }

    /// What to tell of those of `approved`.
    pub(crate) fn said<'l>(&'l self, approved: &'l [Prefix]) -> impl Iterator<Item = String> + 'l {
        let known = self.0.iter().filter(|(route, _)| approved.contains(route));
        known.filter_map(|(route, known)| {
            let why = known.why.as_ref()?;
            Some(format!(
                "{route} behind this node is not reached: {why}; peers take another gateway, if \
                 there is one"
            ))
        })
    }
}

impl Known {
    fn take(&mut self, offer: &Offer, seen: &Seen) {
        match seen.reaches(&plan::wire_prefix(&offer.prefix()), self.by.as_deref()) {
            Ok(by) => {
                if self.why.take().is_some() {
                    self.well_since = Some(Instant::now());
                }
                self.well_since = self.well_since.filter(|at| at.elapsed() < routes::GRACE);
                self.by = by;
            }
            Err(why) => (self.why, self.well_since) = (Some(why), None),
        }
    }
}

impl Seen {
    /// By which link a prefix is reached; none if by that which leads everywhere. `before` is that
    /// of earlier.
    fn reaches(
        &self,
        prefix: &node::Prefix,
        before: Option<&str>,
    ) -> Result<Option<String>, String> {
        let leads = |r: &&Route| {
            let to = r.destination;
            let meets = to.bits() <= prefix.bits() && to.contains(prefix.address())
                || prefix.bits() <= to.bits() && prefix.contains(to.address());
            r.table == MAIN_TABLE && r.link != self.own && meets && !to.is_default()
        };
        let leading: Vec<&Route> = self.routes.iter().filter(leads).collect();
        let is_dead = |r: &&&Route| self.dead.iter().any(|link| link.index == r.link);
        if let Some(route) = leading.iter().find(|r| !is_dead(r)) {
            let link = self.links.iter().find(|link| link.index == route.link);
            return Ok(link.map(|link| link.name.clone()));
        }
        // A link that is down has no routes left.
        let is_it = |link: &&Link| match leading.first() {
            Some(route) => link.index == route.link,
            None => before == Some(&link.name[..]),
        };
        let dead = self.dead.iter().find(is_it);
        match (dead, before) {
            (Some(link), _) if link.up => Err(format!(
                "its interface {} has no carrier; is the cable in, and its other end on?",
                link.name
            )),
            (Some(link), _) => {
                Err(format!("its interface {0} is down: `ip link set {0} up`", link.name))
            }
            (None, Some(link)) => Err(format!(
                "there is no route to it any more, which was by {link}; see `ip route`"
            )),
            (None, None) => Ok(None),
        }
    }
}

/// Networks that peers offer, and none of them reaches.
pub(crate) fn lost(map: &Map) -> Vec<String> {
    let mut serving: BTreeMap<Prefix, Vec<&control::Peer>> = BTreeMap::new();
    for peer in &map.peers {
        peer.routes.iter().for_each(|route| serving.entry(*route).or_default().push(peer));
    }
    let is_lost = |(route, peers): &(Prefix, Vec<&control::Peer>)| {
        peers.iter().all(|peer| peer.down.contains(route))
    };
    let tell = |(route, peers): (Prefix, Vec<&control::Peer>)| {
        let names: Vec<&str> = peers.iter().map(|peer| &peer.name[..]).collect();
        let names = names.join(", ");
        format!("{route} is not reached: {names} cannot reach it; see `warren status` there")
    };
    serving.into_iter().filter(is_lost).map(tell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, up: bool) -> Link {
        Link { index, name: name.to_owned(), up, mtu: 1500, queue_len: 0 }
    }

    fn route(to: &str, link: u32) -> Route {
        let destination = to.parse().unwrap();
        Route { destination, link, gateway: None, table: MAIN_TABLE, metric: None, mtu: None }
    }

    #[test]
    fn gw_06_a_network_without_carrier_or_route_is_not_reached() {
        let links = vec![link(2, "eth0", true), link(3, "lan0", true), link(9, "warren0", true)];
        let seen = |routes: Vec<Route>, dead: Vec<Link>| Seen {
            routes,
            links: links.clone(),
            dead,
            own: 9,
        };
        let all =
            || vec![route("0.0.0.0/0", 2), route("192.168.5.0/24", 3), route("192.168.5.0/24", 9)];
        let lan: node::Prefix = "192.168.5.0/24".parse().unwrap();
        let far: node::Prefix = "10.20.0.0/16".parse().unwrap();
        let well = seen(all(), Vec::new());
        assert_eq!(well.reaches(&lan, None), Ok(Some("lan0".to_owned())));
        assert_eq!(well.reaches(&far, None), Ok(None), "by the router that leads everywhere");
        let unplugged = seen(all(), vec![link(3, "lan0", true)]);
        let why = unplugged.reaches(&lan, Some("lan0")).unwrap_err();
        assert!(why.contains("lan0 has no carrier"), "{why}");
        let off = seen(all(), vec![link(3, "lan0", false)]);
        assert!(off.reaches(&lan, None).unwrap_err().contains("ip link set lan0 up"));
        let gone = seen(vec![route("0.0.0.0/0", 2)], Vec::new());
        assert!(gone.reaches(&lan, Some("lan0")).unwrap_err().contains("no route to it any more"));
        assert_eq!(gone.reaches(&lan, None), Ok(None), "as it has always been");
        let off = seen(vec![route("0.0.0.0/0", 2)], vec![link(3, "lan0", false)]);
        assert!(off.reaches(&lan, Some("lan0")).unwrap_err().contains("ip link set lan0 up"));
        // One of two ways is one.
        let two =
            seen([all(), vec![route("192.168.5.0/25", 2)]].concat(), vec![link(3, "lan0", true)]);
        assert_eq!(two.reaches(&lan, None), Ok(Some("eth0".to_owned())));
    }
}
