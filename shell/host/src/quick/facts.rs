//! Facts about the machine that a plan needs, asked once.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::leftovers::{SRC_VALID_MARK, source_mark_is_ours};
use crate::linux::netlink::{self, Family, MAIN_TABLE, Netlink};
use crate::linux::program;

/// What a plan depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Tables that hold routes.
    pub used_tables: BTreeSet<u32>,
    /// The largest MTU on the way to any endpoint; without endpoints, on the default route.
    pub outer_mtu: Option<u32>,
    /// Whether an endpoint is of IPv6.
    pub is_endpoint_v6: bool,
    /// The smallest priority of the rules there are (but the kernel's first), for IPv4 and IPv6.
    pub first_priority: [Option<u32>; 2],
    /// Whether marks count already when reverse paths are checked, and somebody else saw to it.
    pub src_valid_mark: bool,
    /// Whether a reverse-path filter is strict, so that it needs to see marks.
    pub strict_reverse_path: bool,
    /// Whether `nft` is installed.
    pub nft: bool,
    /// Whether `resolvconf` is installed.
    pub resolvconf: bool,
}

impl Facts {
    /// Asks the machine, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn gather(endpoints: &[SocketAddr], fwmark: u32) -> netlink::Result<Self> {
        let mut netlink = Netlink::open()?;
        let used_tables = netlink.routes()?.iter().map(|r| r.table).collect();
        let mut outer_mtu = None;
        for endpoint in endpoints {
            outer_mtu = outer_mtu.max(mtu_towards(&mut netlink, endpoint.ip(), fwmark)?);
        }
        if outer_mtu.is_none() {
            outer_mtu = default_mtu(&mut netlink)?;
        }
        // a kernel without IPv6 has no rules for it
        let first_v6 = netlink.first_priority(Family::V6).unwrap_or(None);
        let setting = |path: &str| {
            std::fs::read_to_string(path).ok().and_then(|t| t.trim().parse::<u32>().ok())
        };
        Ok(Self {
            used_tables,
            outer_mtu,
            is_endpoint_v6: endpoints.iter().any(|at| at.ip().to_canonical().is_ipv6()),
            first_priority: [netlink.first_priority(Family::V4)?, first_v6],
            src_valid_mark: setting(SRC_VALID_MARK) == Some(1)
                && !source_mark_is_ours(&mut netlink)?,
            strict_reverse_path: setting("/proc/sys/net/ipv4/conf/all/rp_filter") == Some(1),
            nft: program::find("nft"),
            resolvconf: program::find("resolvconf"),
        })
    }
}

fn mtu_towards(netlink: &mut Netlink, to: IpAddr, mark: u32) -> netlink::Result<Option<u32>> {
    let Some(way) = netlink.way_to(to, mark)? else { return Ok(None) };
    if way.mtu.is_some() {
        return Ok(way.mtu);
    }
    Ok(netlink.link_at(way.link)?.map(|link| link.mtu))
}

fn default_mtu(netlink: &mut Netlink) -> netlink::Result<Option<u32>> {
    let routes = netlink.routes()?;
    let is_default =
        |r: &&netlink::Route| r.table == MAIN_TABLE && r.destination.is_default() && r.link != 0;
    let Some(route) = routes.iter().filter(is_default).min_by_key(|r| r.metric) else {
        return Ok(None);
    };
    if route.mtu.is_some() {
        return Ok(route.mtu);
    }
    Ok(netlink.link_at(route.link)?.map(|link| link.mtu))
}

/// The prefix of every address of a family.
pub(super) fn everything(family: Family) -> node::Prefix {
    match family {
        Family::V4 => node::Prefix::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        Family::V6 => node::Prefix::new(Ipv6Addr::UNSPECIFIED.into(), 0),
    }
    .expect("no bits are no more than any family has")
}
