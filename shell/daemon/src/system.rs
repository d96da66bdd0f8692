//! The interface as the plan wants it, and what the machine says of itself.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use control::limits::ENDPOINTS_MAX;
use control::{HostInfo, Prefix};
use host::linux::netlink::{Error, Link, Netlink};
use host::linux::tun;

use crate::plan::Plan;
use crate::{Offer, Settings, circuits};

/// The interface that the daemon made.
#[derive(Debug)]
pub(crate) struct Interface {
    name: String,
    /// The MTU that a user named.
    named_mtu: Option<u32>,
    /// The MTU that it has by us.
    mtu: u32,
    /// What this process gave to it.
    addresses: BTreeSet<(IpAddr, u8)>,
}

/// Bytes in front of an inner packet, at most: IPv6, UDP, our own header and tag.
const OUTER_LEN: u32 = 80;
/// The largest MTU of an interface of ours, beside links of 9000.
const MTU_MAX: u32 = 8_920;

/// What an interface of ours may carry beside these links: more than usual where one of them has
/// jumbo frames. Each path is asked before that is used.
fn mtu_beside(links: &[Link], own: &str) -> u32 {
    // A loopback has 65,536, and no peer behind it.
    let is_outside = |link: &&Link| link.up && link.name != own && link.mtu < 65_536;
    let largest = links.iter().filter(is_outside).map(|link| link.mtu).max().unwrap_or(0);
    largest.saturating_sub(OUTER_LEN).clamp(tun::MTU, MTU_MAX)
}

impl Interface {
    pub(crate) const fn new(name: String, named_mtu: Option<u32>) -> Self {
        Self { name, named_mtu, mtu: tun::MTU, addresses: BTreeSet::new() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Sets the interface up or down. Down takes its addresses and routes.
    pub(crate) fn set_up(&mut self, up: bool) -> Result<(), Error> {
        let (mut netlink, link) = self.open()?;
        let Some(link) = link else { return Ok(()) };
        if !up {
            for (address, bits) in std::mem::take(&mut self.addresses) {
                let _ = netlink.remove_address(&link, address, bits);
            }
        } else if !link.up {
            netlink.set_no_own_address(&link)?;
        }
        netlink.set_up(&link, up)?;
        if up { self.fit() } else { Ok(()) }
    }

    /// Brings the MTU in line with the machine's links, unless somebody else has set it.
    pub(crate) fn fit(&mut self) -> Result<(), Error> {
        let (mut netlink, link) = self.open()?;
        let Some(link) = link.filter(|link| link.up && link.mtu == self.mtu) else { return Ok(()) };
        let wanted = match self.named_mtu {
            Some(mtu) => mtu,
            None => mtu_beside(&netlink.links()?, &self.name),
        };
        if wanted != self.mtu {
            netlink.set_mtu(&link, wanted)?;
            self.mtu = wanted;
        }
        Ok(())
    }

    /// Gives it the plan's addresses, and takes what is no longer in it. Its routes are
    /// [`crate::gate`]'s.
    pub(crate) fn apply(&mut self, plan: &Plan) -> Result<(), Error> {
        let (mut netlink, link) = self.open()?;
        let Some(link) = link else { return Ok(()) };
        let all: BTreeSet<(IpAddr, u8)> = plan.addresses.iter().copied().collect();
        let mut wanted = all.clone();
        if lacks_ipv6(&self.name) {
            wanted.retain(|(address, _)| address.is_ipv4());
        }
        for (address, _) in all.difference(&wanted) {
            tracing::warn!("IPv6 is off on this machine: {address} is not set, all else works");
        }
        for (address, bits) in self.addresses.difference(&wanted) {
            let _ = netlink.remove_address(&link, *address, *bits);
        }
        let before = std::mem::take(&mut self.addresses);
        for (address, bits) in wanted {
            if !before.contains(&(address, bits)) {
                exists_is_fine(netlink.add_address(&link, address, bits))?;
            }
            self.addresses.insert((address, bits));
        }
        Ok(())
    }

    /// Sockets of this machine may speak as a circuit, by its address.
    pub(crate) fn speak_as_circuit(&self, address: Ipv4Addr) -> Result<(), Error> {
        let (mut netlink, link) = self.open()?;
        let Some(link) = link else { return Ok(()) };
        exists_is_fine(netlink.add_address(&link, IpAddr::V4(address), 32))?;
        host::linux::room::speak_six(&self.name, address);
        Ok(())
    }

    /// And no more.
    pub(crate) fn leave_circuit(&self, address: Ipv4Addr) {
        let Ok((mut netlink, Some(link))) = self.open() else { return };
        // One that is gone need not go.
        let _ = netlink.remove_address(&link, IpAddr::V4(address), 32);
        host::linux::room::leave_six(&self.name, address);
    }

    fn open(&self) -> Result<(Netlink, Option<Link>), Error> {
        let mut netlink = Netlink::open()?;
        let link = netlink.link(&self.name)?;
        Ok((netlink, link))
    }
}

/// Whether an interface can have no IPv6, because it is off there or in the whole kernel.
pub(crate) fn lacks_ipv6(link: &str) -> bool {
    let path = format!("/proc/sys/net/ipv6/conf/{link}/disable_ipv6");
    std::fs::read_to_string(path).map_or(true, |text| text.trim() != "0")
}

fn exists_is_fine(result: Result<(), Error>) -> Result<(), Error> {
    const EEXIST: i32 = 17;
    match result {
        Err(error) if error.errno() == Some(EEXIST) => Ok(()),
        other => other,
    }
}

/// Why this machine's kernel does not send packets to `address` into the interface `own`, if it
/// does not.
pub(crate) fn astray(own: &str, address: IpAddr) -> Option<String> {
    let mut netlink = Netlink::open().ok()?;
    let ours = netlink.link(own).ok()??;
    let way = netlink.way_to(address, 0).ok()?;
    let Some(way) = way.filter(|way| way.link != ours.index) else {
        return way.is_none().then(|| {
            format!("this machine has no route to {address}: is the interface {own} up?")
        });
    };
    let link = netlink.link_at(way.link).ok()?.map(|link| link.name).unwrap_or_default();
    Some(format!(
        "this machine sends packets to {address} by {link} and not by {own}: another route or rule \
         comes first; see `ip route get {address}` and `ip rule`"
    ))
}

/// Our addresses on networks that are up, other than `own` interface's.
pub(crate) fn local_addresses(own: &str) -> Result<Vec<IpAddr>, Error> {
    let mut netlink = Netlink::open()?;
    let links = netlink.links()?;
    let is_outside =
        |index: u32| links.iter().any(|link| link.index == index && link.up && link.name != own);
    let is_usable = |address: &IpAddr| match address {
        IpAddr::V4(a) => !(a.is_loopback() || a.is_link_local() || a.is_unspecified()),
        IpAddr::V6(a) => !(a.is_loopback() || a.is_unicast_link_local() || a.is_unspecified()),
    };
    let found = netlink.addresses()?.into_iter();
    let found = found.filter(|at| is_outside(at.link)).map(|at| at.address).filter(is_usable);
    let mut found: Vec<IpAddr> = found.collect();
    found.sort_unstable();
    found.dedup();
    found.truncate(ENDPOINTS_MAX / 2);
    Ok(found)
}

/// What the node tells the server.
pub(crate) fn host_info(
    settings: &Settings,
    endpoints: Vec<SocketAddr>,
    relay: Option<u32>,
) -> HostInfo {
    let own = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let offers = &settings.advertise_routes;
    let mut routes: Vec<Prefix> = offers.iter().map(Offer::route).collect();
    if settings.advertise_exit_node {
        let everything =
            ["0.0.0.0/0", "::/0"].iter().filter_map(|text| text.parse::<Prefix>().ok());
        routes.extend(everything);
    }
    for (is_offered, offer) in [
        (settings.circuit_hop || settings.circuit_exit, circuits::HOP),
        (settings.circuit_exit, circuits::EXIT),
    ] {
        routes.extend(offer.parse::<Prefix>().ok().filter(|_| is_offered));
    }
    HostInfo {
        hostname: settings.hostname.clone().unwrap_or_else(|| own().trim().to_owned()),
        os: std::env::consts::OS.to_owned(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        endpoints,
        routes,
        aliases: offers.iter().filter_map(Offer::alias).collect(),
        down: Vec::new(),
        relay,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nt_08_the_interface_has_room_for_what_the_largest_link_carries() {
        let link = |name: &str, mtu: u32, up: bool| Link {
            index: 1,
            name: name.to_owned(),
            up,
            mtu,
            queue_len: 0,
        };
        let lo = link("lo", 65_536, true);
        let own = link("warren0", 8_920, true);
        for (mtu, expected) in [(576, 1_420), (1_500, 1_420), (4_000, 3_920), (9_000, 8_920)] {
            let links = [lo.clone(), own.clone(), link("a", 1_400, true), link("b", mtu, true)];
            assert_eq!(mtu_beside(&links, "warren0"), expected, "{mtu}");
        }
        assert_eq!(mtu_beside(&[link("b", 16_000, true)], "warren0"), 8_920);
        assert_eq!(mtu_beside(&[lo, own, link("b", 9_000, false)], "warren0"), 1_420);
    }
}
