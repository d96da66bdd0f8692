//! An IPv4 packet whose addresses and ports are changed where it lies, with its checksums kept
//! right (RFC 1624).

use std::net::Ipv4Addr;

use wire::checksum;
use wire::icmp::Icmp;
use wire::ip::protocol;
use wire::packet::{self, Fragment, Transport};

use crate::Drop;

const SOURCE_AT: usize = 12;
const DESTINATION_AT: usize = 16;
const HOP_LIMIT: u8 = 64;

/// What a translator looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) len: usize,
    pub(crate) header_len: usize,
    pub(crate) protocol: u8,
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) fragment: Fragment,
    /// More fragments follow, or this is one of them.
    pub(crate) is_part: bool,
    pub(crate) id: u16,
    pub(crate) what: What,
}

/// And in its transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// TCP, with its flags, or UDP.
    Ports { source: u16, destination: u16, flags: u8 },
    /// An echo request or its reply.
    Echo { id: u16, is_reply: bool },
    /// An ICMP error; the packet that it quotes begins there.
    Error { at: usize },
    /// A later fragment.
    Later,
}

/// Looks at a packet.
pub(crate) fn look(bytes: &[u8]) -> Result<Seen, Drop> {
    let view = packet::parse(bytes).map_err(|_| Drop::NotCarried)?;
    let (std::net::IpAddr::V4(source), std::net::IpAddr::V4(destination)) =
        (view.source(), view.destination())
    else {
        return Err(Drop::NotCarried);
    };
    if view.asks_source_route() {
        return Err(Drop::NotCarried);
    }
    let transport = view.transport().map_err(|_| Drop::NotCarried)?;
    let what = match transport {
        Transport::Tcp(tcp) => {
            let (source, destination) = (tcp.source_port(), tcp.destination_port());
            What::Ports { source, destination, flags: tcp.flags().0 }
        }
        Transport::Udp(udp) => {
            let (source, destination) = (udp.source_port(), udp.destination_port());
            What::Ports { source, destination, flags: 0 }
        }
        Transport::Icmp(icmp) => of_icmp(icmp, view.header_len())?,
        Transport::Other if view.fragment() == Fragment::Later => What::Later,
        _ => return Err(Drop::NotCarried),
    };
    Ok(Seen {
        len: view.bytes().len(),
        header_len: view.header_len(),
        protocol: view.protocol(),
        source,
        destination,
        fragment: view.fragment(),
        is_part: view.fragment() != Fragment::Whole,
        id: u16::from_be_bytes([bytes[4], bytes[5]]),
        what,
    })
}

fn of_icmp(icmp: Icmp<'_>, header_len: usize) -> Result<What, Drop> {
    if let Some(id) = icmp.echo_identifier() {
        return Ok(What::Echo { id, is_reply: icmp.kind() == Icmp::ECHO_REPLY });
    }
    let is_error = icmp.is_error() && icmp.kind() != Icmp::REDIRECT;
    let at = header_len + wire::icmp::HEADER_LEN;
    if is_error { Ok(What::Error { at }) } else { Err(Drop::NotCarried) }
}

/// Another source: an address, and a port or an echo's identifier where one is there.
pub(crate) fn set_source(bytes: &mut [u8], seen: &Seen, address: Ipv4Addr, port: u16) {
    set(bytes, seen, SOURCE_AT, address);
    match seen.what {
        What::Ports { source, .. } => set_port(bytes, seen, 0, (source, port)),
        What::Echo { id, .. } => set_port(bytes, seen, 4, (id, port)),
        What::Error { .. } | What::Later => {}
    }
}

/// Another destination, likewise.
pub(crate) fn set_destination(bytes: &mut [u8], seen: &Seen, address: Ipv4Addr, port: u16) {
    set(bytes, seen, DESTINATION_AT, address);
    match seen.what {
        What::Ports { destination, .. } => set_port(bytes, seen, 2, (destination, port)),
        What::Echo { id, .. } => set_port(bytes, seen, 4, (id, port)),
        What::Error { .. } | What::Later => {}
    }
}

/// Another identification, which fragments of one datagram share.
pub(crate) fn set_id(bytes: &mut [u8], id: u16) {
    let before = word(bytes, 4);
    put(bytes, 4, id);
    put(bytes, 10, checksum::update(word(bytes, 10), before, id));
}

/// A hop limit as if the packet began here: it tells nothing of the machine that sent it.
pub(crate) fn set_hop_limit(bytes: &mut [u8]) {
    let before = word(bytes, 8);
    bytes[8] = HOP_LIMIT;
    put(bytes, 10, checksum::update(word(bytes, 10), before, word(bytes, 8)));
}

/// The source port, or an echo's identifier; 0 where there is neither.
pub(crate) const fn source_port(seen: &Seen) -> u16 {
    match seen.what {
        What::Ports { source, .. } => source,
        What::Echo { id, .. } => id,
        What::Error { .. } | What::Later => 0,
    }
}

/// The destination port, likewise.
pub(crate) const fn destination_port(seen: &Seen) -> u16 {
    match seen.what {
        What::Ports { destination, .. } => destination,
        What::Echo { id, .. } => id,
        What::Error { .. } | What::Later => 0,
    }
}

/// In an ICMP error, the source of the packet that it is about.
pub(crate) fn set_quoted_source(bytes: &mut [u8], seen: &Seen, address: Ipv4Addr) {
    let What::Error { at } = seen.what else { return };
    if let Some(place) = bytes.get_mut(at + SOURCE_AT..at + DESTINATION_AT) {
        place.copy_from_slice(&address.octets());
        sum_icmp(bytes, seen);
    }
}

/// The checksum of an ICMP message that was changed anywhere.
pub(crate) fn sum_icmp(bytes: &mut [u8], seen: &Seen) {
    let message = &mut bytes[seen.header_len..seen.len];
    message[2..4].fill(0);
    let sum = checksum::Sum::of(message).checksum();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
}

fn set(bytes: &mut [u8], seen: &Seen, at: usize, address: Ipv4Addr) {
    let before = u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    bytes[at..at + 4].copy_from_slice(&address.octets());
    put(bytes, 10, checksum::update_long(word(bytes, 10), before, address.to_bits()));
    if let Some(place) = sum_at(bytes, seen).filter(|_| seen.protocol != protocol::ICMP) {
        let sum = checksum::update_long(word(bytes, place), before, address.to_bits());
        put_sum(bytes, seen, place, sum);
    }
}

fn set_port(bytes: &mut [u8], seen: &Seen, at: usize, (before, port): (u16, u16)) {
    put(bytes, seen.header_len + at, port);
    if let Some(place) = sum_at(bytes, seen) {
        let sum = checksum::update(word(bytes, place), before, port);
        put_sum(bytes, seen, place, sum);
    }
}

/// Where the transport's checksum stands, if it has one.
fn sum_at(bytes: &[u8], seen: &Seen) -> Option<usize> {
    if seen.fragment == Fragment::Later {
        return None;
    }
    let at = seen.header_len
        + match seen.protocol {
            protocol::TCP => wire::tcp::CHECKSUM_AT,
            protocol::UDP => wire::udp::CHECKSUM_AT,
            _ => 2,
        };
    let is_there = at + 2 <= seen.len;
    (is_there && !(seen.protocol == protocol::UDP && word(bytes, at) == 0)).then_some(at)
}

fn put_sum(bytes: &mut [u8], seen: &Seen, at: usize, sum: u16) {
    let is_zero = seen.protocol == protocol::UDP && sum == 0;
    put(bytes, at, if is_zero { 0xffff } else { sum });
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
