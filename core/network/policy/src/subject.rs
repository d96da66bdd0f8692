//! What a packet is to the table of flows: a packet of a flow, a later fragment, or an error.

use wire::icmp::{Icmp, Icmp6};
use wire::ip::protocol;
use wire::packet::{Fragment, Packet, Transport, parse_quoted};
use wire::tcp::{Flags, Tcp};

use crate::flows::{Key, Kind};
use crate::judged::{Direction, Reason};
use crate::ranges::number;
use crate::rules::has_ports;

/// The smallest MTU that an ICMP error may tell of: what every host must take (RFC 791, RFC 8200).
const MTU_MIN_V4: u32 = 576;
const MTU_MIN_V6: u32 = 1280;

/// What a packet is to the table of flows.
pub(crate) enum Subject {
    /// A packet of this flow. The second says whether this direction is the one that begins it,
    /// where the packet itself tells.
    Flow(Key, Hint),
    /// A later fragment of this datagram.
    Fragment(Key),
    /// An ICMP error about a packet of this flow, which went the other way.
    Error(Key),
}

#[derive(Clone, Copy)]
pub(crate) enum Hint {
    None,
    Tcp(Flags),
    EchoReply,
}

#[inline]
pub(crate) fn subject(direction: Direction, packet: &Packet<'_>) -> Result<Subject, Reason> {
    if packet.asks_source_route() {
        return Err(Reason::SourceRouted);
    }
    let transport = packet.transport().map_err(|_| Reason::Malformed)?;
    if packet.fragment() == Fragment::Later {
        return Ok(Subject::Fragment(fragments_key(direction, packet)));
    }
    let flow = |ports, hint| Ok(Subject::Flow(key_of(direction, packet, ports, Kind::Flow), hint));
    match transport {
        Transport::Tcp(tcp) => flow(tcp_ports(tcp), Hint::Tcp(tcp.flags())),
        Transport::Udp(udp) => {
            let ports = u32::from(udp.source_port()) << 16 | u32::from(udp.destination_port());
            flow(ports, Hint::None)
        }
        Transport::Icmp(icmp) if icmp.is_error() => {
            let mtu = icmp.next_hop_mtu().unwrap_or(MTU_MIN_V4);
            if icmp.kind() == Icmp::REDIRECT {
                return Err(Reason::IcmpKind);
            }
            error(direction, packet, icmp.body(), mtu >= MTU_MIN_V4)
        }
        Transport::Icmp6(icmp) if icmp.is_error() => {
            let mtu = icmp.next_hop_mtu().unwrap_or(MTU_MIN_V6);
            error(direction, packet, icmp.body(), mtu >= MTU_MIN_V6)
        }
        Transport::Icmp(icmp) => {
            let is_reply = icmp.kind() == Icmp::ECHO_REPLY;
            echo(direction, packet, icmp.echo_identifier(), is_reply)
        }
        Transport::Icmp6(icmp) => {
            let is_reply = icmp.kind() == Icmp6::ECHO_REPLY;
            echo(direction, packet, icmp.echo_identifier(), is_reply)
        }
        Transport::Other => match packet.protocol() {
            protocol::ICMP | protocol::ICMPV6 => Err(Reason::IcmpKind),
            protocol::SCTP => flow(raw_ports(packet).ok_or(Reason::Malformed)?, Hint::None),
            _ => flow(0, Hint::None),
        },
    }
}

#[inline]
fn tcp_ports(tcp: Tcp<'_>) -> u32 {
    u32::from(tcp.source_port()) << 16 | u32::from(tcp.destination_port())
}

/// An echo belongs to whoever asks: a request begins it in its own direction, a reply in the
/// other.
fn echo(
    direction: Direction,
    packet: &Packet<'_>,
    identifier: Option<u16>,
    is_reply: bool,
) -> Result<Subject, Reason> {
    let identifier = identifier.ok_or(Reason::IcmpKind)?;
    let kind = echo_kind(direction, is_reply);
    let mut key = key_of(direction, packet, 0, kind);
    key.ports = u32::from(identifier);
    Ok(Subject::Flow(key, if is_reply { Hint::EchoReply } else { Hint::None }))
}

fn echo_kind(direction: Direction, is_reply: bool) -> Kind {
    match (direction, is_reply) {
        (Direction::In, false) | (Direction::Out, true) => Kind::EchoFromRemote,
        (Direction::In, true) | (Direction::Out, false) => Kind::EchoFromLocal,
    }
}

/// An error speaks of a packet that went the other way. It may quote as little as eight bytes
/// behind the headers (RFC 792), so that ports are read without a view of the transport.
fn error(
    direction: Direction,
    packet: &Packet<'_>,
    body: &[u8],
    is_mtu_possible: bool,
) -> Result<Subject, Reason> {
    if !is_mtu_possible {
        return Err(Reason::ErrorMtu);
    }
    let quoted = parse_quoted(body).map_err(|_| Reason::ErrorUnrelated)?;
    if quoted.version() != packet.version()
        || quoted.fragment() == Fragment::Later
        || packet.fragment() != Fragment::Whole
    {
        return Err(Reason::ErrorUnrelated);
    }
    let went = direction.opposite();
    let number = quoted.protocol();
    let key = match (number, quoted.version()) {
        (protocol::ICMP, 4) | (protocol::ICMPV6, 6) => {
            let head: &[u8; 8] = quoted.payload().first_chunk().ok_or(Reason::ErrorUnrelated)?;
            let is_reply = match head[0] {
                Icmp::ECHO_REQUEST | Icmp6::ECHO_REQUEST => false,
                Icmp::ECHO_REPLY | Icmp6::ECHO_REPLY => true,
                _ => return Err(Reason::ErrorUnrelated),
            };
            let mut key = key_of(went, &quoted, 0, echo_kind(went, is_reply));
            key.ports = u32::from(u16::from_be_bytes([head[4], head[5]]));
            key
        }
        _ if has_ports(number) => {
            let ports = raw_ports(&quoted).ok_or(Reason::ErrorUnrelated)?;
            key_of(went, &quoted, ports, Kind::Flow)
        }
        _ => key_of(went, &quoted, 0, Kind::Flow),
    };
    Ok(Subject::Error(key))
}

#[inline]
pub(crate) fn halves(number: u128) -> [u64; 2] {
    [(number >> 64) as u64, number as u64]
}

pub(crate) fn joined([high, low]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// The key of a packet that goes in `direction`, whose ports (or what stands for them) are given
/// as source above destination.
#[inline]
fn key_of(direction: Direction, packet: &Packet<'_>, ports: u32, kind: Kind) -> Key {
    let source = halves(number(packet.source()));
    let destination = halves(number(packet.destination()));
    let (local, remote, ports) = match direction {
        Direction::In => (destination, source, ports.rotate_left(16)),
        Direction::Out => (source, destination, ports),
    };
    // 4 and 6 differ in bit 1.
    let kind = kind as u8 | (packet.version() & 2) << 2;
    Key { local, remote, ports, protocol: packet.protocol(), kind }
}

pub(crate) fn fragments_key(direction: Direction, packet: &Packet<'_>) -> Key {
    let kind = match direction {
        Direction::In => Kind::FragmentsIn,
        Direction::Out => Kind::FragmentsOut,
    };
    let mut key = key_of(direction, packet, 0, kind);
    key.ports = packet.fragment_id();
    // In IPv6 the first fragment may have headers that later ones do not show.
    if packet.version() == 6 {
        key.protocol = 0;
    }
    key
}

/// Source port above destination port, as the first four bytes of TCP, UDP and SCTP have them.
#[inline]
fn raw_ports(packet: &Packet<'_>) -> Option<u32> {
    packet.payload().first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}
