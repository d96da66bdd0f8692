//! Routes: those through a link, and the way the kernel would take to an address.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope, RouteType,
};
use node::Prefix;

use super::{Family, Netlink, Result};

/// The table that holds a machine's ordinary routes (RT_TABLE_MAIN).
pub const MAIN_TABLE: u32 = 254;

/// A unicast route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Where to.
    pub destination: Prefix,
    /// Through which link, by index; 0 if the route names none (several next hops).
    pub link: u32,
    /// Through which router, if not directly.
    pub gateway: Option<IpAddr>,
    /// In which table.
    pub table: u32,
    /// Which of two equal routes wins: the smaller. `None` leaves it to the kernel (0; 1024 for
    /// IPv6).
    pub metric: Option<u32>,
    /// The largest packet on this route, if the route itself says so.
    pub mtu: Option<u32>,
}

/// The way a packet to some address would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Out of which link, by index.
    pub link: u32,
    /// The largest packet, if the route itself says so; else the link's MTU counts.
    pub mtu: Option<u32>,
}

impl Netlink {
    /// Every unicast route of the namespace in every table, except what the kernel learnt as
    /// clones.
    pub fn routes(&mut self) -> Result<Vec<Route>> {
        let mut routes = Vec::new();
        for family in [Family::V4, Family::V6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family.into();
            match self.query("list the routes", true, Message::GetRoute(message)) {
                Ok(answers) => routes.extend(answers.into_iter().filter_map(read)),
                Err(e) if family == Family::V6 && e.errno() == Some(libc::EAFNOSUPPORT) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(routes)
    }

    /// Adds `route`; EEXIST if the table has one with this destination and metric.
    pub fn add_route(&mut self, route: &Route) -> Result<()> {
        let mut message = written(route);
        message.header.protocol = RouteProtocol::Boot;
        message.header.kind = RouteType::Unicast;
        if route.gateway.is_none() && route.destination.address().is_ipv4() {
            message.header.scope = RouteScope::Link;
        }
        self.create(|| format!("add the route {}", shown(route)), Message::NewRoute(message))
    }

    /// Makes everything of `family` that finds no better route in `table` unreachable, and says so
    /// to whoever sends it. No link is needed for it and none takes it away.
    pub fn add_unreachable(&mut self, family: Family, table: u32) -> Result<()> {
        let what = || format!("make {family} unreachable in table {table}");
        self.create(what, Message::NewRoute(unreachable(family, table)))
    }

    /// Undoes [`Self::add_unreachable`].
    pub fn remove_unreachable(&mut self, family: Family, table: u32) -> Result<()> {
        let what = || format!("make {family} reachable again in table {table}");
        self.change(what, Message::DelRoute(unreachable(family, table)))
    }

    /// Removes the route with this destination, link, table and metric.
    pub fn remove_route(&mut self, route: &Route) -> Result<()> {
        let mut message = written(route);
        message.header.scope = RouteScope::NoWhere;
        self.change(|| format!("remove the route {}", shown(route)), Message::DelRoute(message))
    }

    /// The way a packet to `address` with firewall mark `mark` would take now; `None` if there is
    /// none.
    pub fn way_to(&mut self, address: IpAddr, mark: u32) -> Result<Option<Way>> {
        let mut message = RouteMessage::default();
        let family = Family::of(address);
        message.header.address_family = family.into();
        message.header.destination_prefix_length = Prefix::host(address).bits();
        message.attributes.push(RouteAttribute::Destination(address.into()));
        if mark != 0 {
            message.attributes.push(RouteAttribute::Mark(mark));
        }
        let what = format!("find the route to {address}");
        match self.query(&what, false, Message::GetRoute(message)) {
            Ok(answers) => Ok(answers.into_iter().find_map(|m| {
                read(m).filter(|r| r.link != 0).map(|r| Way { link: r.link, mtu: r.mtu })
            })),
            Err(e) if matches!(e.errno(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH)) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

fn shown(route: &Route) -> String {
    let gateway = route.gateway.map(|g| format!(" via {g}")).unwrap_or_default();
    format!("{}{gateway} through link {} in table {}", route.destination, route.link, route.table)
}

fn written(route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    let destination = route.destination.address();
    message.header.address_family = Family::of(destination).into();
    message.header.destination_prefix_length = route.destination.bits();
    message.header.table = u8::try_from(route.table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
    let attributes = &mut message.attributes;
    if route.destination.bits() > 0 {
        attributes.push(RouteAttribute::Destination(destination.into()));
    }
    attributes.push(RouteAttribute::Table(route.table));
    if route.link != 0 {
        attributes.push(RouteAttribute::Oif(route.link));
    }
    if let Some(gateway) = route.gateway {
        attributes.push(RouteAttribute::Gateway(gateway.into()));
    }
    if let Some(metric) = route.metric {
        attributes.push(RouteAttribute::Priority(metric));
    }
    if let Some(mtu) = route.mtu {
        attributes.push(RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)]));
    }
    message
}

/// The route of last resort: its metric is the largest.
fn unreachable(family: Family, table: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family.into();
    message.header.kind = RouteType::Unreachable;
    message.header.protocol = RouteProtocol::Boot;
    message.header.table = u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
    message.attributes.push(RouteAttribute::Table(table));
    message.attributes.push(RouteAttribute::Priority(u32::MAX));
    message
}

fn read(message: Message) -> Option<Route> {
    let Message::NewRoute(message) = message else { return None };
    if message.header.kind != RouteType::Unicast {
        return None;
    }
    let any: IpAddr = match message.header.address_family {
        netlink_packet_route::AddressFamily::Inet => std::net::Ipv4Addr::UNSPECIFIED.into(),
        netlink_packet_route::AddressFamily::Inet6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let mut destination = any;
    let mut link = 0;
    let mut gateway = None;
    let mut metric = None;
    let mut mtu = None;
    let mut table = u32::from(message.header.table);
    for attribute in message.attributes {
        match attribute {
            RouteAttribute::Destination(a) => destination = address(&a)?,
            RouteAttribute::Oif(index) => link = index,
            RouteAttribute::Gateway(a) => gateway = address(&a),
            RouteAttribute::Priority(value) => metric = Some(value),
            RouteAttribute::Table(id) => table = id,
            RouteAttribute::Metrics(values) => {
                mtu = values.iter().find_map(|m| match m {
                    RouteMetric::Mtu(bytes) if *bytes > 0 => Some(*bytes),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    let destination = Prefix::new(destination, message.header.destination_prefix_length)?;
    Some(Route { destination, link, gateway, table, metric, mtu })
}

fn address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(a) => Some(IpAddr::V4(*a)),
        RouteAddress::Inet6(a) => Some(IpAddr::V6(*a)),
        _ => None,
    }
}
