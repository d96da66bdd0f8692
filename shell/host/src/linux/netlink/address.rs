//! Addresses of links.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};

use node::Prefix;

use super::{Family, Link, Netlink, Result};

/// Networks of containers that are looked at.
const INNER_MAX: usize = 64;

/// An address on a link, with the length of the network it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The link's index.
    pub link: u32,
    /// The address itself, host bits and all.
    pub address: IpAddr,
    /// The length of its network, in bits.
    pub bits: u8,
}

impl Netlink {
    /// Every address of the namespace.
    pub fn addresses(&mut self) -> Result<Vec<Address>> {
        let message = Message::GetAddress(AddressMessage::default());
        let answers = self.query("list the addresses", true, message)?;
        Ok(answers.into_iter().filter_map(read).collect())
    }

    /// The networks on bridges of containers ([`Netlink::inner_bridges`]), `INNER_MAX` at most.
    /// Link-local ones are everywhere and not among them.
    pub fn inner_networks(&mut self) -> Result<Vec<Prefix>> {
        let inner = self.inner_bridges()?;
        if inner.is_empty() {
            return Ok(Vec::new());
        }
        let links = self.links()?;
        let is_inner = |at: &Address| {
            links.iter().any(|link| link.index == at.link && inner.contains(&link.name))
        };
        let is_near = |p: &Prefix| match p.address() {
            IpAddr::V4(a) => a.is_link_local(),
            IpAddr::V6(a) => a.is_unicast_link_local(),
        };
        let found = self.addresses()?.into_iter().filter(is_inner);
        let found = found.filter_map(|at| Prefix::new(at.address, at.bits));
        let mut found: Vec<Prefix> = found.filter(|p| !p.is_default() && !is_near(p)).collect();
        found.sort_unstable();
        found.dedup();
        found.truncate(INNER_MAX);
        Ok(found)
    }

    /// Gives `address` to the link; the kernel adds the route to its network.
    pub fn add_address(&mut self, link: &Link, address: IpAddr, bits: u8) -> Result<()> {
        let what = || format!("add the address {address}/{bits} to {}", link.name);
        self.create(what, Message::NewAddress(written(link.index, address, bits)))
    }

    /// Takes `address` from the link.
    pub fn remove_address(&mut self, link: &Link, address: IpAddr, bits: u8) -> Result<()> {
        let what = || format!("remove the address {address}/{bits} from {}", link.name);
        self.change(what, Message::DelAddress(written(link.index, address, bits)))
    }
}

fn written(link: u32, address: IpAddr, bits: u8) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = Family::of(address).into();
    message.header.prefix_len = bits;
    message.header.index = link;
    message.attributes.push(AddressAttribute::Local(address));
    message.attributes.push(AddressAttribute::Address(address));
    message
}

fn read(message: Message) -> Option<Address> {
    let Message::NewAddress(message) = message else { return None };
    // on a point-to-point link IFA_ADDRESS is the far end and IFA_LOCAL is ours
    let mut local = None;
    let mut address = None;
    for attribute in message.attributes {
        match attribute {
            AddressAttribute::Local(a) => local = Some(a),
            AddressAttribute::Address(a) => address = Some(a),
            _ => {}
        }
    }
    let link = message.header.index;
    let bits = message.header.prefix_len;
    Some(Address { link, address: local.or(address)?, bits })
}
