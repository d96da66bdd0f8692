//! The interface as the plan wants it, and what the machine says of itself.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use control::limits::ENDPOINTS_MAX;
use control::{HostInfo, Prefix};
use host::netlink::{Error, Link, Netlink};

use crate::Settings;
use crate::plan::Plan;

/// The interface that the daemon made.
#[derive(Debug)]
pub(crate) struct Interface {
    name: String,
    /// What this process gave to it.
    addresses: BTreeSet<(IpAddr, u8)>,
}

impl Interface {
    pub(crate) const fn new(name: String) -> Self {
        Self { name, addresses: BTreeSet::new() }
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
        netlink.set_up(&link, up)
    }

    /// Gives it the plan's addresses, and takes what is no longer in it. Its routes are
    /// [`crate::gate`]'s.
    pub(crate) fn apply(&mut self, plan: &Plan) -> Result<(), Error> {
        let (mut netlink, link) = self.open()?;
        let Some(link) = link else { return Ok(()) };
        let wanted: BTreeSet<(IpAddr, u8)> = plan.addresses.iter().copied().collect();
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

    fn open(&self) -> Result<(Netlink, Option<Link>), Error> {
        let mut netlink = Netlink::open()?;
        let link = netlink.link(&self.name)?;
        Ok((netlink, link))
    }
}

fn exists_is_fine(result: Result<(), Error>) -> Result<(), Error> {
    const EEXIST: i32 = 17;
    match result {
        Err(error) if error.errno() == Some(EEXIST) => Ok(()),
        other => other,
    }
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
    let mut routes = settings.advertise_routes.clone();
    if settings.advertise_exit_node {
        let everything =
            ["0.0.0.0/0", "::/0"].iter().filter_map(|text| text.parse::<Prefix>().ok());
        routes.extend(everything);
    }
    HostInfo {
        hostname: settings.hostname.clone().unwrap_or_else(|| own().trim().to_owned()),
        os: std::env::consts::OS.to_owned(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        endpoints,
        routes,
        relay,
    }
}
