//! The machine's own networks, as far as the filter has to know them.

use node::Prefix;

use super::{Error, settings};
use crate::linux::netlink::{Family, Link, Netlink, Route};

/// The routing table of subnets and exits.
pub const TABLE: u32 = 30561;
/// A route is to a network and not to everything if its prefix is at least this long.
const NETWORK_BITS_MIN: u8 = 8;
/// The table of the machine's own addresses (RT_TABLE_LOCAL).
const LOCAL_TABLE: u32 = 255;

/// What is around the machine. Looked at again when links, addresses or routes change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Networks that it is in itself, and those behind routers that are not the way to everything:
    /// an exit does not lead there (threat GW-01).
    pub(super) near: Vec<Prefix>,
    /// Bridges to which nothing but containers and virtual machines of this machine is joined.
    pub(super) inside: Vec<String>,
    /// The networks on those bridges.
    pub(super) inner: Vec<Prefix>,
    /// Whether it forwards for reasons of its own, so that it may publish services of others.
    pub(super) forwards: bool,
}

impl Place {
    /// Looks at the machine; `link` is ours.
    pub(super) fn look(netlink: &mut Netlink, link: &Link) -> Result<Self, Error> {
        let mut near = near(&netlink.routes()?, link.index);
        near = [Family::V4, Family::V6].into_iter().flat_map(|f| of(f, &[&near])).collect();
        let mut inside = netlink.inner_bridges()?;
        inside.retain(|name| *name != link.name);
        inside.sort();
        let inner = netlink.inner_networks()?;
        let on = |path| settings::value(path).as_deref() == Some("1");
        let forwards = on(settings::FORWARDING) || on(settings::FORWARDING_V6);
        Ok(Self { near, inside, inner, forwards })
    }
}

/// The destinations that are not the Internet: reached without a router, or by another interface
/// than everything is.
fn near(routes: &[Route], own_link: u32) -> Vec<Prefix> {
    let foreign = |r: &&Route| r.link != own_link && r.table != TABLE && r.table != LOCAL_TABLE;
    let routes: Vec<&Route> = routes.iter().filter(foreign).collect();
    let is_network = |r: &&&Route| r.destination.bits() >= NETWORK_BITS_MIN;
    let out: Vec<u32> =
        routes.iter().filter(|r| r.destination.is_default()).map(|r| r.link).collect();
    let is_near = |r: &&&Route| r.gateway.is_none() || !out.contains(&r.link) && !out.is_empty();
    // Several next hops are named by no link and no router: such a route is behind routers.
    let has_link = |r: &&&Route| r.link != 0;
    routes
        .iter()
        .filter(is_network)
        .filter(has_link)
        .filter(is_near)
        .map(|r| r.destination)
        .collect()
}

/// Prefixes of a family without those that lie in others, which a set would refuse.
pub(super) fn of(family: Family, lists: &[&[Prefix]]) -> Vec<Prefix> {
    let of_family = |p: &&Prefix| Family::of(p.address()) == family;
    let mut all: Vec<Prefix> =
        lists.iter().flat_map(|l| l.iter()).filter(of_family).copied().collect();
    all.sort_unstable_by_key(|p| (p.address(), p.bits()));
    let mut kept: Vec<Prefix> = Vec::new();
    for prefix in all {
        // What lies in another comes behind it, with nothing but its kin between.
        if !kept.last().is_some_and(|last| last.contains(prefix.address())) {
            kept.push(prefix);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::netlink::MAIN_TABLE;

    #[test]
    fn gw_01_what_is_near_is_on_the_link_or_behind_another_router() {
        let route = |to: &str, link: u32, gateway: Option<&str>, table: u32| Route {
            destination: to.parse().unwrap(),
            link,
            gateway: gateway.map(|text| text.parse().unwrap()),
            table,
            metric: None,
            mtu: None,
        };
        let main = |to, link, gateway| route(to, link, gateway, MAIN_TABLE);
        let routes = [
            main("0.0.0.0/0", 2, Some("198.51.100.1")),
            main("198.51.100.0/24", 2, None),
            main("203.0.113.0/24", 2, Some("198.51.100.1")),
            main("192.0.2.0/24", 3, Some("192.168.1.9")),
            main("2001:db8:1::/64", 3, None),
            // What another VPN leads into itself: everything in halves is no network.
            main("0.0.0.0/1", 4, None),
            main("128.0.0.0/1", 4, None),
            route("100.64.9.0/24", 5, None, 52),
            // Ours, and the machine's own.
            main("100.64.0.0/10", 9, None),
            route("10.20.0.0/16", 9, None, TABLE),
            route("198.51.100.7/32", 2, None, LOCAL_TABLE),
        ];
        let found: Vec<String> = near(&routes, 9).iter().map(ToString::to_string).collect();
        let wanted = ["198.51.100.0/24", "192.0.2.0/24", "2001:db8:1::/64", "100.64.9.0/24"];
        assert_eq!(found, wanted);
        // Without a default route everything may be behind routers, as where BGP speaks.
        assert_eq!(near(&routes[1..4], 9).len(), 1);
    }
}
