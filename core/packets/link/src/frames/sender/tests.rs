//! What leaves, read at the other end of a session.

use noise::{
    Context, Identity, Indices, Peer, PeerId, PrivateKey, Random, Tai64n, read_initiation,
};
use wire::frame::Frame;
use wire::superpacket;

use super::*;
use crate::outbox::{Destination, Endpoint};

const NOW: Instant = Instant(5_000_000_000);
const NOW_US: u64 = NOW.0 / 1_000;
/// The interface's, and so the room of every frame.
const MTU: usize = 1_420;
const SEGMENT: usize = 1_000;

struct Seeded(u64);

impl Random for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (self.0 >> 33) as u8;
        }
    }
}

/// Memory for so many datagrams.
struct Memory {
    slot: Vec<u8>,
    sent: Vec<Vec<u8>>,
    room: usize,
}

impl Outbox for Memory {
    fn reserve(&mut self, _: &Destination, len: usize) -> Option<&mut [u8]> {
        if self.sent.len() >= self.room {
            return None;
        }
        self.slot = vec![0xaa; len];
        Some(&mut self.slot)
    }

    fn commit(&mut self) {
        self.sent.push(std::mem::take(&mut self.slot));
    }
}

struct End {
    identity: Identity,
    indices: Indices,
    peer: Peer,
    random: Seeded,
}

impl End {
    fn context(&mut self) -> (&mut Peer, Context<'_>) {
        let context = Context {
            identity: &self.identity,
            indices: &mut self.indices,
            random: &mut self.random,
            now: NOW,
            wall: Tai64n::from_unix(1_800_000_000, 0),
        };
        (&mut self.peer, context)
    }
}

/// Two ends with a session, and what the first has sent.
struct Line {
    near: End,
    far: End,
    memory: Memory,
}

impl Line {
    /// No two tests have the same keys.
    fn new(seed: u64) -> Self {
        let mut random = Seeded(seed);
        let keys = [0, 1].map(|_| PrivateKey::generate(&mut random));
        let end = |own: usize| {
            let mut random = Seeded(seed + 100 + own as u64);
            let peer = Peer::new(PeerId(7), keys[1 - own].public(), &mut random);
            let identity = Identity::new(keys[own].clone());
            End { identity, indices: Indices::new(), peer, random }
        };
        let mut near = end(0);
        let mut far = end(1);
        let (peer, mut context) = near.context();
        let initiation = peer.initiate(&mut context).expect("the first");
        let opened = read_initiation(&far.identity, &initiation).expect("it is for this end");
        let (peer, mut context) = far.context();
        let response = peer.accept_initiation(&mut context, opened).expect("it is genuine");
        let (peer, mut context) = near.context();
        peer.accept_response(&mut context, &response).expect("it is genuine");
        let memory = Memory { slot: Vec::new(), sent: Vec::new(), room: usize::MAX };
        Self { near, far, memory }
    }

    /// A sender on this session, of a path of which nothing is known.
    fn sender(&self) -> Sender {
        let mut sender = Sender::new(9, &Tuning::DEFAULT);
        let (index, _) = self.near.peer.current().expect("a session");
        sender.begin(index);
        sender
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Way<'_, Memory>) -> T) -> T {
        let session = self.near.peer.sealer(NOW).expect("a session");
        let to = Destination::Udp(Endpoint::new("192.0.2.1:9".parse().expect("an address")));
        act(&mut Way::new(session, to, &mut self.memory))
    }

    fn send(&mut self, sender: &mut Sender, header: virtio::Header, bytes: &[u8]) -> Outcome {
        let mut bytes = bytes.to_vec();
        let packet = superpacket::parse(header, &mut bytes).expect("a packet");
        self.with(|way| sender.send(header, &packet, (NOW, MTU, MTU), Wishes::default(), way))
    }

    /// The plaintexts that the other end reads.
    fn read(&mut self) -> Vec<Vec<u8>> {
        let sent = std::mem::take(&mut self.memory.sent);
        let Self { far, .. } = self;
        let plaintexts = sent.into_iter().map(|mut datagram| {
            let index = u32::from_le_bytes(*datagram[4..].first_chunk().expect("it is whole"));
            let opened = far.peer.open(&mut far.indices, Index(index), &mut datagram, NOW);
            let (_, range) = opened.expect("it is genuine");
            datagram[range].to_vec()
        });
        plaintexts.collect()
    }
}

/// A packet with so many bytes of payload, all of them different for a while.
fn packet(of: u8, payload_len: usize) -> Vec<u8> {
    let header_len = if of == protocol::TCP { 40 } else { 28 };
    let mut bytes = vec![0; header_len];
    bytes.extend((0..payload_len).map(|at| (at % 251) as u8));
    let len = (bytes.len() as u16).to_be_bytes();
    let udp_len = (bytes.len() as u16 - 20).to_be_bytes();
    bytes[0] = 0x45;
    bytes[2..4].copy_from_slice(&len);
    bytes[8] = 64;
    bytes[9] = of;
    bytes[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    bytes[20..24].copy_from_slice(&[0x9c, 0x40, 0x14, 0x51]);
    match of {
        protocol::TCP => bytes[32..34].copy_from_slice(&[0x50, 0x10]),
        _ => bytes[24..26].copy_from_slice(&udp_len),
    }
    bytes
}

/// The header of a superpacket of TCP.
const CUT: virtio::Header = virtio::Header {
    flags: virtio::FLAG_NEEDS_CSUM,
    gso_type: virtio::GSO_TCPV4,
    hdr_len: 40,
    gso_size: SEGMENT as u16,
    csum_start: 20,
    csum_offset: 16,
};

/// What a protected piece holds.
fn inner(plain: &[u8]) -> &[u8] {
    match frame::parse(plain) {
        Ok(Frame::Protected(protected)) => protected.inner,
        other => panic!("it is not protected: {other:?}"),
    }
}

#[test]
fn what_is_of_no_flow_travels_bare_on_a_path_that_is_not_known() {
    let mut line = Line::new(1);
    let mut sender = line.sender();
    let datagram = packet(protocol::UDP, 700);
    let outcome = line.send(&mut sender, virtio::Header::default(), &datagram);
    assert_eq!(outcome, Outcome { sent: 1, ..Outcome::default() });
    let came = line.read();
    assert_eq!(came.len(), 1);
    assert!(!frame::is_frame(&came[0]) && came[0].starts_with(&datagram));
    assert_eq!(came[0].len() % 16, 0, "it is padded as WireGuard pads");
    assert_eq!(sender.bytes(), (728, 0));
    assert_eq!(sender.poll_timeout(), None, "and nothing follows it");
}

#[test]
fn what_is_of_a_flow_is_protected_and_numbered_and_its_repair_follows() {
    let mut line = Line::new(2);
    let mut sender = line.sender();
    let segment = packet(protocol::TCP, 700);
    for _ in 0..4 {
        line.send(&mut sender, virtio::Header::default(), &segment);
    }
    let came = line.read();
    let numbers = came.iter().map(|plain| match frame::parse(inner(plain)) {
        Ok(Frame::Ordered(ordered)) => {
            assert_eq!(ordered.packet, segment);
            ordered.number
        }
        other => panic!("it has no place in its flow: {other:?}"),
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [9, 10, 11, 12]);
    // Blocks fill for a while, and then each has its repair.
    while let Some(due) = sender.poll_timeout() {
        line.with(|way| sender.flush(due.0 / 1_000, way)).expect("there is room");
    }
    let came = line.read();
    for plain in &came {
        let Ok(Frame::Repair(repair)) = frame::parse(plain) else { panic!("no repair") };
        assert!((1..=4).contains(&repair.data) && repair.bytes.len() >= segment.len());
    }
    assert!(!came.is_empty() && sender.bytes().1 > 0);
}

#[test]
fn datagrams_of_a_flow_have_their_order_but_for_what_steers() {
    let tag = |bytes: &[u8]| flow_tag(&wire::packet::parse(bytes).expect("a packet"));
    let one = packet(protocol::UDP, 700);
    let mut other = one.clone();
    other[20] ^= 1;
    assert!(tag(&one).is_some() && tag(&one) == tag(&packet(protocol::UDP, 30)));
    assert_ne!(tag(&one), tag(&other), "two ports are two flows");
    assert_eq!(tag(&packet(protocol::UDP, 0)), None, "it says nothing");
    assert_eq!(tag(&packet(47, 700)), None, "GRE");
    // CS4 tells, CS5 and EF steer.
    for (class, is_ordered) in [(0, true), (32, true), (40, false), (46, false), (56, false)] {
        let mut bytes = one.clone();
        bytes[1] = class << 2;
        assert_eq!(tag(&bytes).is_some(), is_ordered, "{class}");
        bytes = packet(protocol::TCP, 700);
        bytes[1] = class << 2;
        assert!(tag(&bytes).is_some(), "TCP has its order whatever it is");
    }
}

#[test]
fn a_superpacket_leaves_as_a_head_and_a_chunk_for_each_segment() {
    let mut line = Line::new(3);
    let mut sender = line.sender();
    let whole = packet(protocol::TCP, 8 * SEGMENT - 300);
    assert_eq!(line.send(&mut sender, CUT, &whole).sent, 8);
    let came = line.read();
    let Ok(Frame::Head(head)) = frame::parse(inner(&came[0])) else { panic!("no head") };
    assert_eq!((head.header, head.ordered, head.number), (&whole[..40], true, 9));
    assert_eq!(usize::from(head.payload_len), whole.len() - 40);
    let mut payload = Vec::new();
    for (index, plain) in came[1..].iter().enumerate() {
        let Ok(Frame::Chunk(chunk)) = frame::parse(inner(plain)) else { panic!("no chunk") };
        assert_eq!((chunk.unit, usize::from(chunk.index)), (head.unit, index));
        payload.extend_from_slice(chunk.payload);
    }
    assert_eq!(payload, whole[40..]);
    assert_eq!(sender.chunk_len(), SEGMENT);
}

#[test]
fn a_packet_that_has_no_room_for_what_protects_it_is_cut_in_two() {
    let mut line = Line::new(4);
    let mut sender = line.sender();
    let full = packet(protocol::TCP, MTU - 40);
    assert_eq!(line.send(&mut sender, virtio::Header::default(), &full).sent, 1);
    let came = line.read();
    assert_eq!(came.len(), 2);
    let Ok(Frame::Head(head)) = frame::parse(inner(&came[0])) else { panic!("no head") };
    let Ok(Frame::Chunk(chunk)) = frame::parse(inner(&came[1])) else { panic!("no chunk") };
    assert_eq!((head.header.len(), head.gso_type), (CUT_AT, virtio::GSO_NONE));
    assert_eq!([head.header, chunk.payload].concat(), full);
    assert!(!sender.take_beyond(), "nothing was longer than the interface's packets");
}

#[test]
fn small_packets_wait_for_each_other_and_leave_before_what_comes_later() {
    let mut line = Line::new(5);
    let mut sender = line.sender();
    sender.set_reads(true, false);
    let small = [packet(protocol::UDP, 60), packet(protocol::UDP, 90)];
    for bytes in &small {
        let outcome = line.send(&mut sender, virtio::Header::default(), bytes);
        assert_eq!(outcome, Outcome::default());
    }
    assert_eq!((line.read().len(), sender.gathered()), (0, 2));
    let mut outcome = Outcome::default();
    line.with(|way| sender.close(NOW_US, way, &mut outcome));
    assert_eq!((outcome.sent, sender.bundled(), sender.gathered()), (2, 2, 0));
    let came = line.read();
    let Ok(Frame::Bundle(bundle)) = frame::parse(&came[0]) else { panic!("no bundle") };
    let entries: Vec<&[u8]> = bundle.entries().map(|(_, entry)| entry).collect();
    assert_eq!(entries, small);
    // One alone is no bundle, and what is not small does not overtake it.
    let large = packet(protocol::UDP, 1_300);
    line.send(&mut sender, virtio::Header::default(), &small[0]);
    assert_eq!(line.send(&mut sender, virtio::Header::default(), &large).sent, 2);
    let came = line.read();
    assert!(came[0].starts_with(&small[0]) && came[1].starts_with(&large));
    assert_eq!(sender.bundled(), 2);
}

#[test]
fn what_finds_no_room_is_refused_and_counted_by_segment() {
    let mut line = Line::new(6);
    let mut sender = line.sender();
    line.memory.room = 3;
    let outcome = line.send(&mut sender, CUT, &packet(protocol::TCP, 8 * SEGMENT));
    assert_eq!((outcome.sent, outcome.refused), (2, Some((Refusal::NoRoom, 6))));
}

#[test]
fn a_late_report_is_not_heard_and_one_of_a_peer_that_began_anew_is() {
    let mut sender = Sender::new(1, &Tuning::DEFAULT);
    let mut hear = |number: u16, ms: u64| {
        let report = Report { number, held_us: u32::MAX, ..Report::default() };
        sender.handle_report(&report, NOW + Duration::from_millis(ms));
        sender.told()
    };
    let at = |ms: u64| Some(NOW + Duration::from_millis(ms));
    assert_eq!(hear(500, 0), at(0));
    assert_eq!(hear(499, 100), at(0));
    assert_eq!(hear(500, 200), at(0), "it came twice");
    assert_eq!(hear(501, 300), at(300));
    assert_eq!(hear(501 - REPORTS_LATE_MAX, 400), at(400));
}
