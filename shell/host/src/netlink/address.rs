//! Addresses of links.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};

use super::{Family, Link, Netlink, Result};

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
    let (link, bits) = (message.header.index, message.header.prefix_len);
    Some(Address { link, address: local.or(address)?, bits })
}
