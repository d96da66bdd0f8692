//! The bodies of the fuzz targets, as plain functions.
//!
//! Each takes any bytes and panics when an oracle is broken; a body never panics because the
//! bytes are strange, for that is what it is there to find out. What is promised of `wire`:
//!
//! - [`packet()`]: every byte string is a view or a reason; all ways to ask for addresses and
//!   lengths agree; views stay inside the packet.
//! - [`wireguard()`]: what is classified can be rebuilt from its fields, byte for byte.
//! - [`stun`]: a message or a reason, and never also a WireGuard message; what is read can be
//!   written and read again.
//! - [`superpacket()`]: a virtio header may lie about anything; whatever is cut consists of
//!   packets that parse, hold their checksums, and carry the payload once and in order.
//! - [`coalesce()`]: whatever is pushed comes out again, complete, each flow in its order, after
//!   the superpackets were cut again.
//! - [`translate()`]: a packet whose addresses change is as long as before, goes where the table
//!   says, and keeps right checksums right; what is refused is untouched.
//!
//! And of what stands above it:
//!
//! - [`datagram`]: a node with a session, and anything from outside or from its own machine.
//! - [`frames`]: the same node, whose peer seals anything at all.
//! - [`squeezed`]: a block as a peer may send it; it holds what it says or is refused, and nothing
//!   is written beside it.
//! - [`cells`]: frames of circuits as a neighbour may send them, and genuine ones that are changed
//!   on the way; nothing goes round without end, and a circuit can be built afterwards.
//! - [`relay`]: any bytes as the streams of three connections of a relay's switch; the same frames
//!   however they are cut, one out for one in at most, everything counted.
//! - [`websocket()`]: any bytes as frames of WebSocket; the same payload however they are cut, and
//!   nothing is held for what they announce.
//! - [`ping()`]: any bytes as requests and replies of ICMP; one reply for one request, strangers
//!   get no more than they sent, everything counted.
//! - [`control()`], [`link_file`], [`topology`], [`sites()`]: the texts of the control socket, of
//!   wg-quick, of the lab and of sites; good or refused with a place, and good ones mean what they
//!   say.
//! - [`policy()`]: a policy file; refused with a place, or enforced by both ends as it is
//!   explained.
//! - [`query`]: a DNS query; answered within its bounds, or handed on until a right answer comes.
//! - [`mdns()`]: messages of multicast DNS; what is told on is bounded, and never goes in a circle.
//! - [`filter`]: the filter and any packets; everything is counted, the table keeps its bound.
//! - [`token`], [`message`], [`map`], [`channel`]: what nodes and the coordination service tell
//!   each other; what is taken has one form and its bounds, a delta changes all or nothing, and
//!   what is not byte for byte what was sealed is refused.
//! - [`form`], [`id_token`]: what browsers and providers send; a form leads nowhere else and can be
//!   written again, and no token is taken but one that the provider signed, for us and for now.
//!
//! The life of one input: libFuzzer (or the smoke test, which needs no nightly toolchain) takes a
//! seed from [`seeds`], mutates it, and calls the body. `superpacket` reads a virtio header from
//! the first ten bytes and the packet from the rest. `coalesce` reads a small program of six-byte
//! steps, each of which sends the next packet of one of eight flows, so that right checksums and
//! consecutive sequence numbers are common and every byte still has an effect.
//!
//! What it is not: a place for test cases. An input that once broke something becomes a unit test
//! beside the code that it broke.

mod access;
mod cells;
mod enrol;
mod frames;
mod machine;
mod mdns;
mod ping;
mod query;
mod relay;
mod squeezed;
mod text;
mod translation;
mod web;
mod websocket;

use std::collections::BTreeMap;
use std::ops::Range;

use wire::packet::{self, Ecn, Transport};
use wire::wireguard::{self, CookieReply, Initiation, Message, Response};
use wire::{coalesce, superpacket, virtio};

pub use access::{filter, policy};
pub use cells::cells;
pub use enrol::{channel, map, message, token};
pub use frames::frames;
pub use machine::datagram;
pub use mdns::mdns;
pub use ping::ping;
pub use query::query;
pub use relay::relay;
pub use squeezed::squeezed;
pub use text::{control, link_file, sites, topology};
pub use translation::translate;
pub use web::{form, id_token};
pub use websocket::websocket;

/// A body: takes any bytes, panics when an oracle is broken.
pub type Body = fn(&[u8]);

/// Every target by the name of its binary.
pub const TARGETS: [(&str, Body); 27] = [
    ("packet", packet),
    ("wireguard", wireguard),
    ("stun", stun),
    ("superpacket", superpacket),
    ("coalesce", coalesce),
    ("translate", translate),
    ("datagram", datagram),
    ("frames", frames),
    ("squeezed", squeezed),
    ("cells", cells),
    ("relay", relay),
    ("websocket", websocket),
    ("ping", ping),
    ("control", control),
    ("link_file", link_file),
    ("topology", topology),
    ("sites", sites),
    ("policy", policy),
    ("filter", filter),
    ("query", query),
    ("mdns", mdns),
    ("token", token),
    ("message", message),
    ("map", map),
    ("channel", channel),
    ("form", form),
    ("id_token", id_token),
];

/// Views any bytes as an IP packet, whole and quoted.
pub fn packet(data: &[u8]) {
    for parsed in [packet::parse(data), packet::parse_quoted(data)].into_iter().flatten() {
        look(&parsed);
        assert_eq!(Ok(parsed.source()), packet::source(data));
        assert_eq!(Ok(parsed.destination()), packet::destination(data));
    }
    let Ok(whole) = packet::parse(data) else {
        return;
    };
    assert_eq!(packet::total_len(data), Ok(whole.bytes().len()));
    for bits in 0..4 {
        let mut marked = whole.bytes().to_vec();
        let ecn = Ecn::from_bits(bits);
        assert_eq!(packet::set_ecn(&mut marked, ecn), Ok(()));
        let view = packet::parse(&marked).expect("a mark changes no length");
        assert_eq!(view.ecn(), ecn);
        assert!(view.checksums_hold() || !whole.checksums_hold());
    }
}

/// Classifies any datagram and rebuilds it.
pub fn wireguard(data: &[u8]) {
    match wireguard::classify(data) {
        Ok(Message::Initiation(raw)) => {
            let view = Initiation(raw);
            let built = Initiation::build(
                view.sender(),
                view.ephemeral(),
                view.encrypted_static(),
                view.encrypted_timestamp(),
            );
            assert_eq!([&built[..116], view.mac1(), view.mac2()].concat(), data);
            assert_eq!(view.before_mac2()[..116], view.before_mac1()[..]);
        }
        Ok(Message::Response(raw)) => {
            let view = Response(raw);
            let built = Response::build(
                view.sender(),
                view.receiver(),
                view.ephemeral(),
                view.encrypted_nothing(),
            );
            assert_eq!([&built[..60], view.mac1(), view.mac2()].concat(), data);
            assert_eq!(view.before_mac2()[..60], view.before_mac1()[..]);
        }
        Ok(Message::CookieReply(raw)) => {
            let view = CookieReply(raw);
            let built = CookieReply::build(view.receiver(), view.nonce(), view.encrypted_cookie());
            assert_eq!(built[..], *data);
        }
        Ok(Message::Transport { receiver, counter }) => {
            assert!(data.len() >= wireguard::KEEPALIVE_LEN);
            assert_eq!(wireguard::transport_header(receiver, counter)[..], data[..16]);
        }
        Err(reason) => assert!(!reason.to_string().is_empty()),
    }
}

/// A STUN message is none of WireGuard's, and what is read is written again.
///
/// # Panics
/// When an oracle is broken.
pub fn stun(data: &[u8]) {
    let Ok(message) = wire::stun::parse(data) else { return };
    assert!(wireguard::classify(data).is_err(), "of two protocols");
    let mut out = [0; wire::stun::RESPONSE_LEN_MAX];
    let again = match message {
        wire::stun::Message::Request(transaction) => wire::stun::request(&transaction).to_vec(),
        wire::stun::Message::Response(transaction, Some(from)) => {
            let len = wire::stun::write_response(&transaction, from, &mut out);
            out[..len].to_vec()
        }
        wire::stun::Message::Response(_, None) => return,
    };
    // An IPv4 address in IPv6's clothes is written as what it is.
    let plain = |message| match message {
        wire::stun::Message::Response(transaction, Some(from)) => {
            let from = std::net::SocketAddr::new(from.ip().to_canonical(), from.port());
            wire::stun::Message::Response(transaction, Some(from))
        }
        other => other,
    };
    assert_eq!(wire::stun::parse(&again).map(plain), Ok(plain(message)));
}

/// Ten bytes of virtio header, then the packet that it speaks of.
pub fn superpacket(data: &[u8]) {
    let Ok(header) = virtio::Header::decode(data) else {
        return;
    };
    assert_eq!(header.encode()[..], data[..virtio::LEN]);
    let mut bytes = data[virtio::LEN..].to_vec();
    let original = bytes.clone();
    let Ok(parsed) = superpacket::parse(header, &mut bytes) else {
        return;
    };
    assert!((1..=superpacket::SEGMENTS_MAX).contains(&parsed.segments()));
    let mut payload = Vec::new();
    let mut header_len = 0;
    for index in 0..parsed.segments() {
        let mut out = vec![0xaa; parsed.segment_len(index) + 1];
        let len = parsed.write_segment(index, &mut out);
        assert_eq!((len, out.pop()), (out.len(), Some(0xaa)));
        let segment = packet::parse(&out).expect("what was cut parses");
        assert_eq!(segment.bytes().len(), len);
        if header.gso_type == virtio::GSO_NONE {
            assert_eq!(parsed.segments(), 1);
            continue;
        }
        assert!(segment.checksums_hold());
        assert_eq!(segment.source(), parsed.source());
        assert_eq!(segment.destination(), parsed.destination());
        assert!(len - parsed.segment_payload(index).len() > segment.header_len());
        header_len = len - parsed.segment_payload(index).len();
        payload.extend_from_slice(&out[header_len..]);
    }
    if header.gso_type != virtio::GSO_NONE {
        let total_len = parsed.packet().bytes().len();
        assert_eq!(payload, original[header_len..total_len]);
    }
}

/// Six-byte steps, each of which sends one packet; then everything is flushed and cut again.
pub fn coalesce(data: &[u8]) {
    let (steps, rest) = data.as_chunks::<6>();
    let mut flows: [Flow; 8] = std::array::from_fn(Flow::new);
    let mut packets: Vec<Vec<u8>> =
        steps.iter().take(200).map(|step| flows[usize::from(step[0] & 7)].send(*step)).collect();
    packets.push(rest.to_vec());

    let mut arena = Vec::new();
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for packet in &mut packets {
        packet.resize(packet.len().next_multiple_of(16), 0);
        ranges.push(arena.len()..arena.len() + packet.len());
        arena.extend_from_slice(packet);
    }
    let mut coalescer = coalesce::Coalescer::new(64).with_udp(data.len().is_multiple_of(2));
    let mut returned = Vec::new();
    for range in ranges {
        if coalescer.push(&mut arena, range.clone()).is_err() {
            flush(&mut coalescer, &mut arena, &mut returned);
            coalescer.push(&mut arena, range).expect("a flushed batch has room");
        }
    }
    flush(&mut coalescer, &mut arena, &mut returned);
    assert_eq!(returned.len(), packets.len());
    assert_eq!(by_flow(&returned), by_flow(&packets));
}

/// Inputs from which mutation starts.
///
/// # Panics
/// When there is no such target.
#[must_use]
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let mut flows: [Flow; 8] = std::array::from_fn(Flow::new);
    let packets: Vec<_> =
        (0..8u8).map(|flow| flows[usize::from(flow)].send([flow, 0, 3, 0, 0, 0])).collect();
    match target {
        "packet" => packets.into_iter().chain(chains()).collect(),
        "wireguard" => vec![
            Initiation::build(1, &[2; 32], &[3; 48], &[4; 28]).to_vec(),
            Response::build(1, 2, &[3; 32], &[4; 16]).to_vec(),
            CookieReply::build(1, &[2; 24], &[3; 32]).to_vec(),
            [wireguard::transport_header(1, 2), [0; 16]].concat(),
        ],
        "stun" => vec![
            wire::stun::request(&[7; 12]).to_vec(),
            stun_response("192.0.2.1:9"),
            stun_response("[2001:db8::1]:9"),
        ],
        "superpacket" => packets.iter().flat_map(|packet| claims(packet)).collect(),
        "coalesce" => vec![
            (0..40).flat_map(|_| [0, 0, 9, 0, 0, 0]).collect(),
            (0..40).flat_map(|step| [step, 0, 9, 0, 0, 0]).collect(),
            (0..40).flat_map(|step| [4, 0, 9 - step / 39, step & 8, 0, 0]).collect(),
            (0..40).flat_map(|step| [step & 1, 0, 5, 0, step / 9, step]).collect(),
        ],
        "datagram" => machine::seeds(),
        "squeezed" => squeezed::seeds(),
        "translate" => translation::seeds(),
        "cells" => cells::seeds(),
        "frames" => frames::seeds(),
        "relay" => relay::seeds(),
        "websocket" => websocket::seeds(),
        "ping" => ping::seeds(),
        "control" | "link_file" | "topology" | "sites" => text::seeds(target),
        "query" => query::seeds(),
        "mdns" => mdns::seeds(),
        "token" | "message" | "map" | "channel" => enrol::seeds(target),
        "policy" | "filter" => access::seeds(target),
        "form" | "id_token" => web::seeds(target),
        _ => panic!("no target named {target}"),
    }
}

fn stun_response(from: &str) -> Vec<u8> {
    let mut out = [0; wire::stun::RESPONSE_LEN_MAX];
    let from = from.parse().expect("an address");
    let len = wire::stun::write_response(&[7; 12], from, &mut out);
    out[..len].to_vec()
}

/// SplitMix64, for what a node draws: the same in every run.
struct Seeded(u64);

impl noise::Random for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            *byte = (mixed >> 56) as u8;
        }
    }
}

fn look(packet: &packet::Packet<'_>) {
    assert!(packet.header_len() <= packet.bytes().len());
    assert_eq!(packet.header_len() + packet.payload().len(), packet.bytes().len());
    let _ = (packet.checksums_hold(), packet.hop_limit(), packet.fragment_offset());
    match packet.transport() {
        Ok(Transport::Tcp(view)) => {
            assert_eq!(view.header_len() + view.payload().len(), packet.payload().len());
            assert_eq!(view.options().len() + 20, view.header_len());
        }
        Ok(Transport::Udp(view)) => assert!(view.payload().len() + 8 <= packet.payload().len()),
        Ok(Transport::Icmp(view)) => {
            let _ = (view.echo_identifier(), view.next_hop_mtu(), view.code());
            if let Some(Ok(quoted)) = view.quoted() {
                let _ = quoted.transport();
            }
        }
        Ok(Transport::Icmp6(view)) => {
            let _ = (view.echo_identifier(), view.next_hop_mtu(), view.code());
            if let Some(Ok(quoted)) = view.quoted() {
                let _ = quoted.transport();
            }
        }
        Ok(Transport::Other) => (),
        Err(reason) => assert!(!reason.label().is_empty()),
    }
}

fn flush(batch: &mut coalesce::Coalescer, arena: &mut [u8], returned: &mut Vec<Vec<u8>>) {
    batch.flush(arena, |header, arena, ranges| {
        let parts: Vec<_> = ranges.iter().map(|range| &arena[range.clone()]).collect();
        let mut bytes = parts.concat();
        if header == virtio::Header::default() {
            returned.push(bytes);
            return;
        }
        let parsed = superpacket::parse(header, &mut bytes).expect("what is emitted can be cut");
        assert_eq!(parsed.segments(), ranges.len());
        for index in 0..parsed.segments() {
            let mut out = vec![0; parsed.segment_len(index)];
            parsed.write_segment(index, &mut out);
            returned.push(out);
        }
    });
}

/// The packets of each pair of addresses and ports, without padding, in their order.
fn by_flow(packets: &[Vec<u8>]) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut flows: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
    for packet in packets {
        let packet = &packet[..packet::total_len(packet).unwrap_or(packet.len())];
        let key = match packet.first().map(|first| first >> 4) {
            Some(4) if packet.len() >= 24 => packet[12..24].to_vec(),
            Some(6) if packet.len() >= 44 => packet[8..44].to_vec(),
            _ => Vec::new(),
        };
        flows.entry(key).or_default().push(packet.to_vec());
    }
    flows
}

/// One flow of the coalescing target: TCP or UDP over IPv4 or IPv6.
struct Flow {
    number: u8,
    sequence: u32,
    id: u16,
}

impl Flow {
    fn new(number: usize) -> Self {
        Self { number: number as u8, sequence: u32::MAX - 3000, id: 0xfff0 }
    }

    /// The next packet. A step is: flow, what to break, size, TCP flags, a skip, a value.
    fn send(&mut self, [_, broken, size, flags, skip, value]: [u8; 6]) -> Vec<u8> {
        let (v4, tcp) = (self.number & 1 == 0, self.number & 4 == 0);
        let payload = vec![value; usize::from(size) * 8];
        let ip_len = if v4 { 20 } else { 40 };
        let upper_len = if tcp { 32 } else { 8 } + payload.len();
        let mut bytes = vec![0; ip_len];
        if v4 {
            bytes[0] = 0x45;
            bytes[2..4].copy_from_slice(&((20 + upper_len) as u16).to_be_bytes());
            bytes[4..6].copy_from_slice(&self.id.to_be_bytes());
            bytes[8..10].copy_from_slice(&[64, if tcp { 6 } else { 17 }]);
            bytes[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, self.number]);
            let sum = wire::checksum::Sum::of(&bytes).checksum();
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            bytes[0] = 0x60;
            bytes[4..6].copy_from_slice(&(upper_len as u16).to_be_bytes());
            bytes[6..8].copy_from_slice(&[if tcp { 6 } else { 17 }, 64]);
            bytes[8..40].fill(self.number);
        }
        bytes.extend([0x80, self.number, 0, 80]);
        if tcp {
            bytes.extend(self.sequence.wrapping_add(u32::from(skip)).to_be_bytes());
            bytes.extend([0, 0, 0, 1, 0x80, flags ^ 0x10, 1, 0, 0, 0, 0, 0]);
            bytes.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        } else {
            bytes.extend((upper_len as u16).to_be_bytes());
            bytes.extend([0, 0]);
        }
        bytes.extend(&payload);
        let at = ip_len + if tcp { 16 } else { 6 };
        let sum = upper_checksum(&bytes, ip_len, at);
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        self.sequence = self.sequence.wrapping_add(payload.len() as u32);
        self.id = self.id.wrapping_add(1);
        // Addresses, ports and version stay, for the oracle tells flows apart by them.
        let at = usize::from(broken) % bytes.len();
        if at != 0 && !(8..44).contains(&at) {
            bytes[at] = value;
        }
        bytes
    }
}

fn upper_checksum(bytes: &[u8], ip_len: usize, at: usize) -> u16 {
    let packet = packet::parse(bytes).expect("a flow builds whole packets");
    assert_eq!(bytes[at..at + 2], [0, 0]);
    let (upper, protocol) = (&bytes[ip_len..], packet.protocol());
    let (source, destination) = (packet.source(), packet.destination());
    wire::checksum::pseudo(source, destination, protocol, upper.len() as u32)
        .plus(wire::checksum::Sum::of(upper))
        .udp_checksum()
}

/// The same packet under an honest header of each kind.
fn claims(packet: &[u8]) -> Vec<Vec<u8>> {
    let ip_len = if packet[0] >> 4 == 4 { 20 } else { 40 };
    let kinds =
        [virtio::GSO_NONE, virtio::GSO_TCPV4, virtio::GSO_TCPV6, virtio::GSO_UDP_L4, 0x81, 3];
    let claim = |gso_type| {
        let tcp = packet[if ip_len == 20 { 9 } else { 6 }] == 6;
        let header = virtio::Header {
            flags: virtio::FLAG_NEEDS_CSUM,
            gso_type,
            hdr_len: ip_len,
            gso_size: 10,
            csum_start: ip_len,
            csum_offset: if tcp { 16 } else { 6 },
        };
        [&header.encode()[..], packet].concat()
    };
    kinds.into_iter().map(claim).collect()
}

/// IPv6 packets with extension headers of every kind, and a quoting ICMPv6 error.
fn chains() -> Vec<Vec<u8>> {
    let base = Flow::new(1).send([1, 0, 20, 0, 0, 0]);
    let insert = |first: u8, extension: &[u8]| {
        let mut bytes = base.clone();
        bytes[6] = first;
        bytes.splice(40..40, extension.iter().copied());
        let len = bytes.len() as u16 - 40;
        bytes[4..6].copy_from_slice(&len.to_be_bytes());
        bytes
    };
    vec![
        insert(0, &[6, 0, 1, 4, 0, 0, 0, 0]),
        insert(60, &[60, 0, 1, 4, 0, 0, 0, 0].repeat(8)),
        insert(43, &[6, 0, 0, 0, 0, 0, 0, 0]),
        insert(44, &[6, 0, 0, 1, 0, 0, 0, 1]),
        insert(44, &[6, 0, 1, 0, 0, 0, 0, 1]),
        insert(51, &[6, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        insert(58, &[&[2, 0, 0, 0, 0, 0, 5, 0], &base[..]].concat()),
    ]
}
