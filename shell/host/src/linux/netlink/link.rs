//! Links: finding one by name or index, its state, MTU and queue length.

use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoKind, LinkAttribute, LinkFlags, LinkInfo,
    LinkMessage,
};

use super::{Netlink, Result};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The kernel's number for it.
    pub index: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Whether it is administratively up.
    pub up: bool,
    /// The largest packet it takes, in bytes.
    pub mtu: u32,
    /// How many packets may wait to be read from or sent by it.
    pub queue_len: u32,
}

impl Netlink {
    /// The link called `name`, or `None` if there is none.
    pub fn link(&mut self, name: &str) -> Result<Option<Link>> {
        if name.is_empty() || name.len() > 15 {
            return Ok(None);
        }
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        self.one_link(&format!("look up the interface {name}"), message)
    }

    /// The link with this index, or `None` if there is none.
    pub fn link_at(&mut self, index: u32) -> Result<Option<Link>> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.one_link(&format!("look up the interface with index {index}"), message)
    }

    /// Every link of the namespace.
    pub fn links(&mut self) -> Result<Vec<Link>> {
        let answers =
            self.query("list the interfaces", true, Message::GetLink(LinkMessage::default()))?;
        Ok(answers.into_iter().filter_map(read).collect())
    }

    /// The names of bridges to which links of virtual machines and containers are joined, and
    /// nothing else.
    pub fn inner_bridges(&mut self) -> Result<Vec<String>> {
        let answers =
            self.query("list the interfaces", true, Message::GetLink(LinkMessage::default()))?;
        let ports: Vec<Port> = answers.into_iter().filter_map(port).collect();
        let is_inner = |bridge: &&Port| {
            let mut joined = ports.iter().filter(|p| p.bridge == Some(bridge.index)).peekable();
            joined.peek().is_some()
                && joined.all(|p| matches!(p.kind, Some(InfoKind::Veth | InfoKind::Tun)))
        };
        let bridges = ports.iter().filter(|p| p.kind == Some(InfoKind::Bridge));
        Ok(bridges.filter(is_inner).map(|bridge| bridge.name.clone()).collect())
    }

    /// Links that carry nothing: down, or without a carrier. A bridge that nothing is joined to
    /// waits for who will be, and is none of them.
    pub fn dead_links(&mut self) -> Result<Vec<Link>> {
        let answers =
            self.query("list the interfaces", true, Message::GetLink(LinkMessage::default()))?;
        let ports: Vec<Port> = answers.iter().cloned().filter_map(port).collect();
        let is_waiting = |index: u32| {
            let is_bridge = |p: &Port| p.index == index && p.kind == Some(InfoKind::Bridge);
            ports.iter().any(is_bridge) && !ports.iter().any(|p| p.bridge == Some(index))
        };
        let carries = |message: &Message| match message {
            Message::NewLink(link) => link.header.flags.contains(LinkFlags::LowerUp),
            _ => false,
        };
        let links = answers.into_iter().filter_map(|m| Some((carries(&m), read(m)?)));
        let dead = links.filter(|(carries, link)| !link.up || !carries && !is_waiting(link.index));
        Ok(dead.map(|(_, link)| link).collect())
    }

    /// Sets the link administratively up or down.
    pub fn set_up(&mut self, link: &Link, up: bool) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        message.header.change_mask = LinkFlags::Up;
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        let state = if up { "up" } else { "down" };
        self.change(|| format!("set {} {state}", link.name), Message::SetLink(message))
    }

    /// Sets the largest packet the link takes, in bytes.
    pub fn set_mtu(&mut self, link: &Link, mtu: u32) -> Result<()> {
        let what = || format!("set the MTU of {} to {mtu}", link.name);
        self.set(link, what, LinkAttribute::Mtu(mtu))
    }

    /// Sets how many packets may wait at the link.
    pub fn set_queue_len(&mut self, link: &Link, packets: u32) -> Result<()> {
        let what = || format!("set the queue of {} to {packets} packets", link.name);
        self.set(link, what, LinkAttribute::TxQueueLen(packets))
    }

    /// Has IPv6 give the link no link-local address by itself when it comes up.
    pub fn set_no_own_address(&mut self, link: &Link) -> Result<()> {
        let what = || format!("keep {} from making itself an address", link.name);
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        self.set(link, what, LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]))
    }

    fn set(
        &mut self,
        link: &Link,
        what: impl Fn() -> String,
        attribute: LinkAttribute,
    ) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        message.attributes.push(attribute);
        self.change(what, Message::SetLink(message))
    }

    fn one_link(&mut self, what: &str, message: LinkMessage) -> Result<Option<Link>> {
        match self.query(what, false, Message::GetLink(message)) {
            Ok(answers) => Ok(answers.into_iter().find_map(read)),
            Err(e) if e.errno() == Some(libc::ENODEV) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

fn read(message: Message) -> Option<Link> {
    let Message::NewLink(message) = message else { return None };
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        up: message.header.flags.contains(LinkFlags::Up),
        mtu: 0,
        queue_len: 0,
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::TxQueueLen(packets) => link.queue_len = packets,
            _ => {}
        }
    }
    Some(link)
}

/// What a link is, and what it is joined to.
struct Port {
    index: u32,
    name: String,
    kind: Option<InfoKind>,
    bridge: Option<u32>,
}

fn port(message: Message) -> Option<Port> {
    let Message::NewLink(message) = message else { return None };
    let index = message.header.index;
    let mut port = Port { index, name: String::new(), kind: None, bridge: None };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => port.name = name,
            LinkAttribute::Controller(index) => port.bridge = Some(index),
            LinkAttribute::LinkInfo(infos) => {
                port.kind = infos.into_iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Some(port)
}
