//! A packet whose addresses and ports are changed where it lies, with its checksums kept right
//! (RFC 1624).
//!
//! Circuits know their addresses as those of IPv4. In a packet of IPv6 the same one stands behind
//! [`SIX`], so an address is either both times unique or never.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::checksum::{self, Change};
use wire::icmp::{Icmp, Icmp6};
use wire::ip::{V6_HEADER_LEN, protocol};
use wire::packet::{self, Fragment, Transport};

use crate::Drop;

const HOP_LIMIT: u8 = 64;
/// The first 96 bits of a circuit's address of IPv6 (unique local, RFC 4193): the address of IPv4
/// follows. As that one it is never routed.
const SIX: [u16; 6] = [0xfd63, 0x6972, 0x6375, 0, 0, 0];
/// The next header of a fragment (RFC 8200, section 4.5).
const FRAGMENT: u8 = 44;

/// What a translator looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) len: usize,
    pub(crate) header_len: usize,
    pub(crate) protocol: u8,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) fragment: Fragment,
    /// More fragments follow, or this is one of them.
    pub(crate) is_part: bool,
    pub(crate) id: u32,
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

impl Seen {
    pub(crate) const fn is_six(&self) -> bool {
        self.source.is_ipv6()
    }

    /// One of our addresses as it stands in this packet.
    pub(crate) fn ours(&self, address: Ipv4Addr) -> IpAddr {
        if self.is_six() { IpAddr::V6(six(address)) } else { IpAddr::V4(address) }
    }
}

/// An address of circuits as packets of IPv6 have it.
#[must_use]
pub const fn six(of: Ipv4Addr) -> Ipv6Addr {
    let [a, b, c, d] = of.octets();
    let [s, t, u, v, w, x] = SIX;
    Ipv6Addr::new(s, t, u, v, w, x, u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}

/// The address of circuits that an address is, of either version.
pub(crate) fn four(of: IpAddr) -> Option<Ipv4Addr> {
    match of {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(address) => {
            let [.., a, b, c, d] = address.octets();
            let found = Ipv4Addr::new(a, b, c, d);
            (six(found) == address).then_some(found)
        }
    }
}

/// Looks at a packet.
pub(crate) fn look(bytes: &[u8]) -> Result<Seen, Drop> {
    let view = packet::parse(bytes).map_err(|_| Drop::NotCarried)?;
    if view.asks_source_route() || has_other_extensions(&view) {
        return Err(Drop::NotCarried);
    }
    let transport = view.transport().map_err(|_| Drop::NotCarried)?;
    let what = match transport {
        Transport::Tcp(tcp) => {
            let source = tcp.source_port();
            let destination = tcp.destination_port();
            What::Ports { source, destination, flags: tcp.flags().0 }
        }
        Transport::Udp(udp) => {
            let source = udp.source_port();
            let destination = udp.destination_port();
            What::Ports { source, destination, flags: 0 }
        }
        Transport::Icmp(icmp) => of_icmp(icmp, view.header_len())?,
        Transport::Icmp6(icmp) => of_icmp6(icmp, view.header_len())?,
        Transport::Other if view.fragment() == Fragment::Later => What::Later,
        Transport::Other => return Err(Drop::NotCarried),
    };
    let id = match view.version() {
        4 => u32::from(u16::from_be_bytes([bytes[4], bytes[5]])),
        _ => view.fragment_id(),
    };
    Ok(Seen {
        len: view.bytes().len(),
        header_len: view.header_len(),
        protocol: view.protocol(),
        source: view.source(),
        destination: view.destination(),
        fragment: view.fragment(),
        is_part: view.fragment() != Fragment::Whole,
        id,
        what,
    })
}

/// Options of IPv6 tell of who sent them; a fragment's header alone is carried.
fn has_other_extensions(view: &packet::Packet<'_>) -> bool {
    let next = view.bytes()[6];
    let is_fragment = next == FRAGMENT && view.header_len() == V6_HEADER_LEN + 8;
    view.version() == 6 && view.header_len() != V6_HEADER_LEN && !is_fragment
}

fn of_icmp(icmp: Icmp<'_>, header_len: usize) -> Result<What, Drop> {
    if let Some(id) = icmp.echo_identifier() {
        return Ok(What::Echo { id, is_reply: icmp.kind() == Icmp::ECHO_REPLY });
    }
    let is_error = icmp.is_error() && icmp.kind() != Icmp::REDIRECT;
    let at = header_len + wire::icmp::HEADER_LEN;
    if is_error { Ok(What::Error { at }) } else { Err(Drop::NotCarried) }
}

fn of_icmp6(icmp: Icmp6<'_>, header_len: usize) -> Result<What, Drop> {
    if let Some(id) = icmp.echo_identifier() {
        return Ok(What::Echo { id, is_reply: icmp.kind() == Icmp6::ECHO_REPLY });
    }
    let at = header_len + wire::icmp::HEADER_LEN;
    let is_error = (Icmp6::UNREACHABLE..=Icmp6::PARAMETER_PROBLEM).contains(&icmp.kind());
    if is_error { Ok(What::Error { at }) } else { Err(Drop::NotCarried) }
}

/// Where the source of a packet that begins at 0 stands.
const fn source_at(is_six: bool) -> usize {
    if is_six { 8 } else { 12 }
}

/// Bytes of an address.
const fn width(is_six: bool) -> usize {
    if is_six { 16 } else { 4 }
}

/// Another source: an address, and a port or an echo's identifier where one is there.
pub(crate) fn set_source(bytes: &mut [u8], seen: &Seen, address: IpAddr, port: u16) {
    set(bytes, seen, source_at(seen.is_six()), address);
    match seen.what {
        What::Ports { source, .. } => set_port(bytes, seen, 0, (source, port)),
        What::Echo { id, .. } => set_port(bytes, seen, 4, (id, port)),
        What::Error { .. } | What::Later => {}
    }
}

/// Another destination, likewise.
pub(crate) fn set_destination(bytes: &mut [u8], seen: &Seen, address: IpAddr, port: u16) {
    set(bytes, seen, source_at(seen.is_six()) + width(seen.is_six()), address);
    match seen.what {
        What::Ports { destination, .. } => set_port(bytes, seen, 2, (destination, port)),
        What::Echo { id, .. } => set_port(bytes, seen, 4, (id, port)),
        What::Error { .. } | What::Later => {}
    }
}

/// Another identification, which fragments of one datagram share; of IPv6 only they have one.
pub(crate) fn set_id(bytes: &mut [u8], seen: &Seen, id: u32) {
    if seen.is_six() {
        if seen.header_len > V6_HEADER_LEN {
            bytes[V6_HEADER_LEN + 4..][..4].copy_from_slice(&id.to_be_bytes());
        }
        return;
    }
    let [.., high, low] = id.to_be_bytes();
    let before = word(bytes, 4);
    let id = u16::from_be_bytes([high, low]);
    put(bytes, 4, id);
    put(bytes, 10, checksum::update(word(bytes, 10), before, id));
}

/// A hop limit as if the packet began here, and no flow label: they tell nothing of the machine
/// that sent it.
pub(crate) fn set_hop_limit(bytes: &mut [u8], seen: &Seen) {
    if seen.is_six() {
        bytes[1] &= 0xf0;
        bytes[2..4].fill(0);
        bytes[7] = HOP_LIMIT;
        return;
    }
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
pub(crate) fn set_quoted_source(bytes: &mut [u8], seen: &Seen, address: IpAddr) {
    let What::Error { at } = seen.what else { return };
    put_quoted(bytes, at, false, address);
    sum_icmp(bytes, seen);
}

/// Puts an address into the packet that an error quotes, which begins at `at` and is of the
/// address's version.
pub(crate) fn put_quoted(bytes: &mut [u8], at: usize, is_destination: bool, address: IpAddr) {
    let is_six = address.is_ipv6();
    let width = width(is_six);
    let start = at + source_at(is_six) + if is_destination { width } else { 0 };
    let Some(place) = bytes.get_mut(start..start + width) else { return };
    match address {
        IpAddr::V4(v4) => place.copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => place.copy_from_slice(&v6.octets()),
    }
}

/// The checksum of an ICMP message that was changed anywhere.
pub(crate) fn sum_icmp(bytes: &mut [u8], seen: &Seen) {
    let pseudo = match (packet::source(bytes), packet::destination(bytes)) {
        (Ok(from), Ok(to)) if seen.is_six() => {
            let len = u32::try_from(seen.len - seen.header_len).unwrap_or(0);
            checksum::pseudo(from, to, seen.protocol, len)
        }
        _ => checksum::Sum::ZERO,
    };
    let message = &mut bytes[seen.header_len..seen.len];
    message[2..4].fill(0);
    let sum = pseudo.plus(checksum::Sum::of(message)).checksum();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
}

fn set(bytes: &mut [u8], seen: &Seen, at: usize, address: IpAddr) {
    let mut next = [0; 16];
    let next = match address {
        IpAddr::V4(v4) if !seen.is_six() => {
            next[..4].copy_from_slice(&v4.octets());
            &next[..4]
        }
        IpAddr::V6(v6) if seen.is_six() => {
            next = v6.octets();
            &next[..]
        }
        // An address of the other version: callers have none.
        _ => return,
    };
    let place = &mut bytes[at..at + next.len()];
    let change = Change::NONE.bytes(place, next);
    place.copy_from_slice(next);
    if !seen.is_six() {
        put(bytes, 10, change.mend(word(bytes, 10)));
    }
    // ICMP of IPv4 alone does not sum addresses.
    if let Some(place) = sum_at(bytes, seen).filter(|_| seen.protocol != protocol::ICMP) {
        let sum = change.mend(word(bytes, place));
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
