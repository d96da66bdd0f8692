//! Nodes that compress what they send, to nodes that read it and to others (threats BC-01, BC-02).

use noise::{Context, Identity, Indices, Peer, PrivateKey, Tai64n};
use wire::frame::{Features, Hello, Protected, Squeezed};

use crate::config::AllowedIp;
use crate::node::tests::{Machine, Seeded, address, carry, packet_to, prefix, settle};
use crate::node::*;

/// What a test varies in a packet of TCP or UDP from one machine to another.
#[derive(Clone, Debug)]
pub(super) struct Inner {
    from: u8,
    to: u8,
    protocol: u8,
    ports: (u16, u16),
    sequence: u32,
    payload: Vec<u8>,
}

impl Inner {
    pub(super) fn udp(from: u8, ports: (u16, u16), payload: Vec<u8>) -> Self {
        Self { from, to: 3 - from, protocol: 17, ports, sequence: 0, payload }
    }

    pub(super) fn tcp(from: u8, ports: (u16, u16), payload: Vec<u8>) -> Self {
        Self { protocol: 6, ..Self::udp(from, ports, payload) }
    }

    pub(super) fn build(&self) -> Vec<u8> {
        let is_tcp = self.protocol == 6;
        let mut upper = [self.ports.0.to_be_bytes(), self.ports.1.to_be_bytes()].concat();
        if is_tcp {
            upper.extend(self.sequence.to_be_bytes());
            upper.extend([0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        } else {
            upper.extend((8 + self.payload.len() as u16).to_be_bytes());
            upper.extend([0, 0]);
        }
        upper.extend(&self.payload);
        let ends = [[10, 0, 0, self.from], [10, 0, 0, self.to]];
        let [source, destination] = ends.map(std::net::IpAddr::from);
        let sum = wire::checksum::pseudo(source, destination, self.protocol, upper.len() as u32);
        let sum = sum.plus(wire::checksum::Sum::of(&upper)).udp_checksum();
        let at = if is_tcp { 16 } else { 6 };
        upper[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, self.protocol, 0, 0];
        bytes.extend(ends.concat());
        bytes[2..4].copy_from_slice(&(20 + upper.len() as u16).to_be_bytes());
        let sum = wire::checksum::Sum::of(&bytes).checksum();
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        [bytes, upper].concat()
    }
}

/// Machines 1 and 2 with a session; the first compresses.
pub(super) fn pair() -> (Machine, Machine) {
    numbered(1, true)
}

/// The same as machines `first` and the next one, with the same addresses inside.
pub(super) fn numbered(first: u8, compress: bool) -> (Machine, Machine) {
    let (mut a, mut b) = acquainted(first);
    a.node.set_compress(compress);
    a.send(&packet_to(1, 2, 5));
    settle(&mut a, &mut b);
    b.delivered.clear();
    (a, b)
}

/// The two before the first packet.
pub(super) fn acquainted(first: u8) -> (Machine, Machine) {
    let (mut a, mut b) = (Machine::new(first), Machine::new(first + 1));
    for machine in [&mut a, &mut b] {
        machine.node.set_frames(true);
    }
    a.knows(&b, &["10.0.0.2/32"]);
    b.knows(&a, &["10.0.0.1/32"]);
    (a, b)
}

/// Sends packets in one turn; the lengths of the datagrams that left. Each arrives.
fn lengths(a: &mut Machine, b: &mut Machine, packets: &[Inner]) -> Vec<usize> {
    let packets: Vec<Vec<u8>> = packets.iter().map(Inner::build).collect();
    a.send_together(&packets);
    let lengths = a.sent().iter().map(Vec::len).collect();
    carry(a, b);
    assert_eq!(b.delivered, packets);
    b.delivered.clear();
    lengths
}

pub(super) fn text(len: usize) -> Vec<u8> {
    b"what is compressed here is a text that says one thing again and again; "
        .iter()
        .copied()
        .cycle()
        .take(len)
        .collect()
}

pub(super) fn noise_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn squeezes(from: &Machine, to: &Machine) -> link::Squeezes {
    from.node.weather(&to.public()).expect("frames").squeezes
}

const OVERHEAD: usize = wireguard::OVERHEAD_LEN;

#[test]
fn what_gets_shorter_is_sent_shorter_in_buckets_and_arrives_as_it_was() {
    let (mut a, mut b) = pair();
    let ports = (9, 4_000);
    for is_tcp in [false, true] {
        let inner = if is_tcp { Inner::tcp } else { Inner::udp }(1, ports, text(1_300));
        let lengths = lengths(&mut a, &mut b, &[inner]);
        let [length] = lengths[..] else { panic!("{lengths:?}") };
        // TCP on a path that is not known yet is protected.
        let around = OVERHEAD + if is_tcp { Protected::FIXED_LEN } else { 0 };
        assert!(length <= around + 192, "{length}");
        assert_eq!((length - around) % Squeezed::BUCKET_LEN, 0);
    }
    let counts = squeezes(&a, &b);
    assert_eq!((counts.count, counts.in_vain), (2, 0));
    assert_eq!(b.node.weather(&a.public()).expect("frames").pieces.opened, 2);
    // A bundle of one flow is compressed as one.
    let small: Vec<Inner> = (0..8).map(|_| Inner::udp(1, (9, 4_000), text(120))).collect();
    let bundle = lengths(&mut a, &mut b, &small);
    assert!(bundle.len() == 1 && bundle[0] < 400, "{bundle:?}");
    // The other end was not asked to compress.
    let back = Inner { from: 2, to: 1, ..Inner::udp(2, (4_000, 9), text(1_300)) };
    let plain = lengths(&mut b, &mut a, &[back]);
    assert_eq!((plain[0], squeezes(&b, &a).count), (OVERHEAD + 1_328, 0));
}

#[test]
fn off_is_the_default_and_a_peer_that_does_not_read_it_gets_none() {
    let packet = [Inner::udp(1, (9, 4_000), text(1_300))];
    let (mut a, mut b) = pair();
    a.node.set_compress(false);
    assert_eq!(lengths(&mut a, &mut b, &packet), [OVERHEAD + 1_328]);
    // An older version: everything but the last feature.
    let mut a = Machine::new(2);
    a.node.set_frames(true);
    a.node.set_compress(true);
    let features = link::features().0 & !Features::SQUEEZED.0;
    let mut older = Other::of(&mut a, Features(features));
    let to_older = Inner { from: 2, to: 1, ..packet[0].clone() };
    a.send(&to_older.build());
    let sent = a.sent();
    assert_eq!(sent.last().map(Vec::len), Some(OVERHEAD + 1_328), "{} datagrams", sent.len());
    assert_eq!(older.open(&sent[sent.len() - 1]), to_older.build());
}

#[test]
fn what_is_encrypted_or_has_no_ports_is_left_alone() {
    let (mut a, mut b) = pair();
    for port in [22, 443, 853] {
        for ports in [(port, 4_000), (4_000, port)] {
            let sent = lengths(&mut a, &mut b, &[Inner::tcp(1, ports, text(1_300))]);
            assert_eq!(sent, [OVERHEAD + 12 + 6 + 1_340], "{ports:?}");
        }
    }
    a.send(&packet_to(1, 2, 7));
    settle(&mut a, &mut b);
    assert_eq!(squeezes(&a, &b), link::Squeezes::default(), "nothing was tried");
}

#[test]
fn a_flow_of_random_bytes_is_tried_ever_less_and_tried_again_when_it_changes() {
    let (mut a, mut b) = pair();
    let flow = |payload| [Inner::udp(1, (9, 4_000), payload)];
    for seed in 0..1_000 {
        let sent = lengths(&mut a, &mut b, &flow(noise_bytes(seed, 1_300)));
        assert_eq!(sent, [OVERHEAD + 1_328], "not a byte longer");
    }
    let tried = squeezes(&a, &b).in_vain;
    assert!((90..=95).contains(&tried), "{tried} of 1,000");
    let mut still = 0;
    while lengths(&mut a, &mut b, &flow(text(1_300))) == [OVERHEAD + 1_328] {
        still += 1;
        assert!(still <= 10, "never again");
    }
    // Another flow has its own luck.
    assert!(lengths(&mut a, &mut b, &[Inner::udp(1, (9, 4_001), text(1_300))])[0] < 300);
}

/// A bundle of two flows is not compressed, however equal they are (threat BC-02).
#[test]
fn bc_02_flows_share_no_context() {
    let (mut a, mut b) = pair();
    let flow = |port| Inner::udp(1, (9, port), text(300));
    let alone = lengths(&mut a, &mut b, &[flow(4_000), flow(4_000)]);
    assert!(alone.len() == 1 && alone[0] < 300, "{alone:?}");
    let mixed = lengths(&mut a, &mut b, &[flow(4_000), flow(4_001)]);
    assert_eq!(mixed.iter().sum::<usize>(), OVERHEAD + 2 + 2 * (2 + 328), "{mixed:?}");
    // Nor is there one that outlives a datagram: equal packets take equal room.
    let again: Vec<_> = (0..5).map(|_| lengths(&mut a, &mut b, &[flow(4_002)])).collect();
    assert!(again.iter().all(|sent| *sent == again[0]), "{again:?}");
}

/// Sends what tells that nothing is lost, so that nothing is repaired.
fn become_known(a: &mut Machine, b: &mut Machine) {
    let some: Vec<Inner> = (0..60).map(|_| Inner::udp(1, (9, 4_000), text(900))).collect();
    for _ in 0..40 {
        lengths(a, b, &some);
        a.pass(Duration::from_millis(110));
        b.pass(Duration::from_millis(110));
        settle(a, b);
    }
}

/// Whatever is sent, compressed or not, arrives to the byte, and no datagram is longer than it
/// would be without compression: 4,000 turns of up to six packets of eight flows.
#[test]
fn source_004_10_any_packets_arrive_as_they_were_and_none_gets_longer() {
    let (mut a, mut b) = pair();
    let (mut c, mut d) = numbered(3, false);
    let mut saved = 0;
    for turn in 0..4_000 {
        if turn == 500 {
            become_known(&mut a, &mut b);
            become_known(&mut c, &mut d);
        }
        let choices = noise_bytes(turn, 37);
        let build = |choice: &[u8]| {
            let is_tcp = choice[0] & 1 == 1;
            let max = if is_tcp { 1_380 } else { 1_392 };
            let len = usize::from(choice[1]) * 6;
            let seed = turn ^ u64::from(choice[2]) << 32;
            let mut payload = match choice[3] & 3 {
                0 => text(len),
                1 => vec![choice[2]; len],
                2 => noise_bytes(seed, len),
                _ => [text(len / 2), noise_bytes(seed, len - len / 2)].concat(),
            };
            payload.truncate(max);
            let make = if is_tcp { Inner::tcp } else { Inner::udp };
            make(1, (9, 4_000 + u16::from(choice[4] & 3)), payload)
        };
        let count = 1 + usize::from(choices[36] % 6);
        let group: Vec<Inner> = choices[..count * 6].chunks(6).map(build).collect();
        let squeezed = lengths(&mut a, &mut b, &group);
        let plain = lengths(&mut c, &mut d, &group);
        // Until the path is known there is repair, by the bytes of its blocks.
        assert!(squeezed.len() == plain.len() || turn < 500, "turn {turn}");
        if squeezed.len() != plain.len() {
            continue;
        }
        for (&squeezed, &plain) in squeezed.iter().zip(&plain) {
            assert!(squeezed <= plain && plain <= 1_440 + OVERHEAD, "{squeezed} {plain}");
            saved += plain - squeezed;
        }
    }
    assert!(saved > 1_000_000, "{saved} bytes");
}

/// A peer of machine 2 without a node: it says of itself what it likes, and seals anything.
pub(super) struct Other {
    peer: Peer,
    identity: Identity,
    indices: Indices,
    random: Seeded,
    now: Instant,
}

impl Other {
    /// One that has a session with `machine`, and said Hello on it.
    pub(super) fn of(machine: &mut Machine, features: Features) -> Self {
        Self::with_features(machine, features, 77)
    }

    /// The same with a seed of its own.
    pub(super) fn with_features(machine: &mut Machine, features: Features, seed: u64) -> Self {
        let mut other = Self::with_word(machine, frame::CAPABILITY, seed);
        let hello = Hello { heard: true, features, mtu: 1_420, ..Hello::default() };
        other.say(machine, &hello.build());
        machine.out.sent.clear();
        other
    }

    /// One that began a session with `machine` by an initiation with this word, and said nothing.
    /// Each of a test has a seed of its own, or it has another's keys.
    pub(super) fn with_word(machine: &mut Machine, word: u32, seed: u64) -> Self {
        let mut random = Seeded(seed);
        let identity = Identity::new(PrivateKey::generate(&mut random));
        let mut peer = Peer::new(PeerId(0), machine.public(), &mut random);
        peer.set_word(word);
        let mut other = Self { peer, identity, indices: Indices::new(), random, now: machine.now };
        machine.change(&PeerChange {
            allowed_ips: vec![AllowedIp::give(prefix("10.0.0.1/32"))],
            ..PeerChange::new(*other.identity.public())
        });
        let initiation = {
            let mut context = other.context();
            context.0.initiate(&mut context.1).expect("the first one")
        };
        machine.receive(address(1), &initiation);
        let (_, response) = machine.out.sent.pop().expect("a response");
        let (peer, mut context) = other.context();
        let response = response.as_slice().try_into().expect("92 bytes");
        peer.accept_response(&mut context, response).expect("a session");
        other
    }

    fn context(&mut self) -> (&mut Peer, Context<'_>) {
        let Self { peer, identity, indices, random, now } = self;
        let wall = Tai64n::from_unix(1_800_000_000, 0);
        (peer, Context { identity, indices, random, now: *now, wall })
    }

    pub(super) fn public(&self) -> noise::PublicKey {
        *self.identity.public()
    }

    pub(super) fn say(&mut self, machine: &mut Machine, plain: &[u8]) {
        let mut datagram = vec![0; plain.len() + OVERHEAD];
        datagram[wireguard::TRANSPORT_HEADER_LEN..][..plain.len()].copy_from_slice(plain);
        let session = self.peer.sealer(self.now).expect("within three minutes");
        session.seal(&mut datagram).expect("a few packets");
        machine.receive(address(1), &datagram);
    }

    pub(super) fn open(&mut self, datagram: &[u8]) -> Vec<u8> {
        let mut datagram = datagram.to_vec();
        let index = Index(u32::from_le_bytes(*datagram[4..].first_chunk().expect("long enough")));
        let opened = self.peer.open(&mut self.indices, index, &mut datagram, self.now);
        datagram[opened.expect("genuine").1].to_vec()
    }
}

/// A block of LZ4 without any cleverness: literals, then one run of the last byte if there is one.
fn block(literals: &[u8], run: usize) -> Vec<u8> {
    let extended = |mut rest: usize| -> Vec<u8> {
        let mut bytes = Vec::new();
        while rest >= 255 {
            bytes.push(255);
            rest -= 255;
        }
        bytes.push(rest as u8);
        bytes
    };
    let mut bytes = vec![(literals.len().min(15) << 4) as u8 | if run > 0 { 15 } else { 0 }];
    if literals.len() >= 15 {
        bytes.extend(extended(literals.len() - 15));
    }
    bytes.extend(literals);
    if run > 0 {
        bytes.extend([1, 0]);
        bytes.extend(extended(run - 19));
        bytes.extend([0x50, 0, 0, 0, 0, 0]);
    }
    bytes
}

fn frame_of(opened_len: usize, block: &[u8]) -> Vec<u8> {
    let [low, high] = (opened_len as u16).to_le_bytes();
    [&[0x8c, 0, low, high][..], block].concat()
}

/// Everything that a peer could try (threat BC-01).
#[test]
fn bc_01_every_bomb_is_a_counted_drop() {
    let packet = Inner { from: 1, to: 2, ..Inner::udp(1, (9, 9), text(100)) }.build();
    let good = frame_of(packet.len(), &block(&packet, 0));
    let mut chunk = vec![0; 4];
    frame::Chunk::write_fixed(1, 0, &mut chunk);
    let bombs = [
        // The longest run that fits into a datagram: 340 KiB out of 1.4.
        frame_of(1_500, &block(&[0x45; 20], 1_400 * 255)),
        frame_of(1_500, &[block(&[0x45; 20], 0), vec![0xff; 1_400]].concat()),
        // It says less, or more, than it holds.
        frame_of(packet.len() - 1, &block(&packet, 0)),
        frame_of(packet.len() + 1, &block(&packet, 0)),
        // A block in a block, and in that one another.
        frame_of(good.len(), &block(&good, 0)),
        frame_of(good.len() + 4, &block(&frame_of(good.len(), &good), 0)),
        // What must not stand in a block: Hello, Head, Repair, Report, Probe, Protected.
        frame_of(16, &block(&Hello::default().build(), 0)),
        frame_of(40, &block(&[vec![0x82], vec![0; 39]].concat(), 0)),
        frame_of(40, &block(&[vec![0x85], vec![0; 39]].concat(), 0)),
        frame_of(76, &block(&[vec![0x86], vec![0; 75]].concat(), 0)),
        frame_of(40, &block(&[vec![0x88], vec![0; 39]].concat(), 0)),
        frame_of(12 + packet.len(), &block(&[&[0x84; 12][..], &packet].concat(), 0)),
        // A reference to before the beginning, to nothing, and a block that ends in one.
        frame_of(40, &[0x10, 0x45, 9, 0, 0x50, 0, 0, 0, 0, 0]),
        frame_of(40, &[0x10, 0x45, 0, 0, 0x50, 0, 0, 0, 0, 0]),
        frame_of(40, &[0x1f, 0x45, 1]),
    ];
    let mut machine = Machine::new(2);
    machine.node.set_frames(true);
    let mut other = Other::of(&mut machine, link::features());
    other.say(&mut machine, &good);
    assert_eq!(machine.delivered, std::slice::from_ref(&packet));
    machine.delivered.clear();
    let unopened = |machine: &Machine, other: &Other| {
        machine.node.weather(other.identity.public()).expect("frames").pieces.unopened
    };
    for (number, bomb) in bombs.iter().enumerate() {
        other.say(&mut machine, bomb);
        assert_eq!(unopened(&machine, &other), number as u64 + 1, "bomb {number}");
        assert!(machine.delivered.is_empty(), "bomb {number}");
    }
    // Cut anywhere, behind anything that is protected, it is still a drop or the packet.
    for len in 0..good.len() {
        other.say(&mut machine, &good[..len.max(1)]);
    }
    assert!(machine.delivered.is_empty());
    // What a block holds is judged as if it had come alone: an empty chunk, a foreign source.
    other.say(&mut machine, &frame_of(4, &block(&chunk, 0)));
    let foreign = Inner { from: 9, to: 2, ..Inner::udp(1, (9, 9), text(100)) }.build();
    other.say(&mut machine, &frame_of(foreign.len(), &block(&foreign, 0)));
    assert!(machine.delivered.is_empty());
    other.say(&mut machine, &good);
    assert_eq!(machine.delivered, [packet]);
}
