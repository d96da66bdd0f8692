//! Who is meant by a name in settings or in a question.

use std::net::IpAddr;

use control::{Map, Peer, Prefix, Through};

use crate::settings::is_auto;
use crate::through::hops;

/// Whether a peer is meant by a name or an address.
pub(crate) fn is_called(peer: &Peer, called: &str) -> bool {
    let name = called.split('.').next().unwrap_or_default();
    peer.name.eq_ignore_ascii_case(name)
        || called.parse::<IpAddr>().is_ok_and(|address| peer.addresses.contains(&address))
}

/// Whether a peer is meant where an exit is called so: all with which this node has a link, or one.
pub(crate) fn is_meant(peer: &Peer, called: &str, map: &Map, through: &[Through]) -> bool {
    if !is_auto(called) {
        return is_called(peer, called);
    }
    let mut elsewhere = peer.routes.iter().filter(|route| is_elsewhere(map, route));
    peer.gateway.is_none() && elsewhere.all(|route| between(peer, route, through).is_empty())
}

/// Who stands between this node and a network of a peer; nobody where the peer is reached itself.
pub(crate) fn between<'w>(peer: &Peer, route: &Prefix, through: &'w [Through]) -> Vec<&'w str> {
    let hops = if route.is_default() { Vec::new() } else { hops(through, route) };
    if hops.iter().any(|hop| is_called(peer, hop)) { Vec::new() } else { hops }
}

/// Whether a route is a network that this node does not serve itself.
pub(crate) fn is_elsewhere(map: &Map, route: &Prefix) -> bool {
    !route.is_default() && !map.me.routes.contains(route) && !crate::circuits::is_offer(route)
}
