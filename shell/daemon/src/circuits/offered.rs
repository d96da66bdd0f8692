//! What a node is to circuits, as its routes in the map say: nothing, a hop, or an exit.

use std::net::{IpAddr, Ipv4Addr};

use control::{Map, Prefix};

/// As a route of a node: it is a hop.
pub(crate) const HOP: &str = "198.19.0.0/16";
/// As a route of a node: it is an exit.
pub(crate) const EXIT: &str = "198.18.255.0/24";
/// Where the machine's own name servers stand: the first of these is systemd-resolved's list.
const RESOLV_CONF: [&str; 2] = ["/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"];

/// Whether these routes have this one.
pub(crate) fn has(routes: &[Prefix], what: &str) -> bool {
    what.parse::<Prefix>().is_ok_and(|prefix| routes.contains(&prefix))
}

/// Whether a route is none, but says what a node is to circuits.
pub(crate) fn is_offer(route: &Prefix) -> bool {
    has(std::slice::from_ref(route), HOP) || has(std::slice::from_ref(route), EXIT)
}

/// Whether the map lets this node be an exit.
pub(crate) fn is_exit(map: &Map) -> bool {
    map.me.approved && has(&map.me.routes, EXIT) && has(&map.me.routes, HOP)
}

/// Whom this machine asks for names, other than itself: for circuits that leave here.
pub(crate) fn name_server(
    map: &Map,
    named: Option<Ipv4Addr>,
    upstreams: &[IpAddr],
) -> Option<Ipv4Addr> {
    let is_own = |at: &Ipv4Addr| {
        at.is_loopback() || map.ranges.iter().any(|range| range.contains(IpAddr::V4(*at)))
    };
    let v4 = |at: &IpAddr| if let IpAddr::V4(v4) = at { Some(*v4) } else { None };
    let known = upstreams.iter().filter_map(v4).find(|at| !is_own(at));
    let read = || {
        let texts = RESOLV_CONF.iter().filter_map(|path| std::fs::read_to_string(path).ok());
        let list: Vec<Ipv4Addr> = texts.flat_map(|text| servers(&text)).collect();
        list.into_iter().find(|at| !is_own(at))
    };
    named.or(known).or_else(read)
}

fn servers(text: &str) -> Vec<Ipv4Addr> {
    let line = |line: &str| line.strip_prefix("nameserver")?.trim().parse().ok();
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_read_and_the_networks_own_is_none() {
        let text = "# a\nnameserver 127.0.0.53\nnameserver 192.0.2.7\nsearch x\nnameserver ::1\n";
        let list = servers(text);
        assert_eq!(list, [Ipv4Addr::new(127, 0, 0, 53), Ipv4Addr::new(192, 0, 2, 7)]);
    }
}
