//! Nodes wired to each other in memory, without loss and without delay.

use std::net::{IpAddr, SocketAddr};

use noise::{PrivateKey, PublicKey, Tai64n};

use super::*;
use crate::config::AllowedIp;

mod changed;
mod cipher;
mod frames;
mod future;
mod guarded;
mod guesses;
mod held;
mod mixed;
mod pathless;
mod roomy;
mod soundings;
mod squeezed;
mod translated;

/// SplitMix64: different everywhere, and the same every time.
pub(super) struct Seeded(pub(super) u64);

impl Random for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            *byte = (z >> 56) as u8;
        }
    }
}

/// Memory for datagrams; a slot is rubbish until it is written.
#[derive(Default)]
pub(super) struct Tray {
    slot: Option<(Endpoint, Vec<u8>)>,
    pub(super) sent: Vec<(Endpoint, Vec<u8>)>,
}

impl Outbox for Tray {
    fn reserve(&mut self, to: &Destination, len: usize) -> Option<&mut [u8]> {
        let to = to.udp()?;
        self.slot = (len <= 65_507).then(|| (to, vec![0xaa; len]));
        self.slot.as_mut().map(|slot| &mut slot.1[..])
    }

    fn commit(&mut self) {
        self.sent.extend(self.slot.take());
    }
}

/// A node with a name for an address: number 3 is 192.0.2.3:3 and has 10.0.0.3 inside.
pub(super) struct Machine {
    pub(super) node: Node,
    key: PrivateKey,
    address: SocketAddr,
    pub(super) random: Seeded,
    pub(super) out: Tray,
    pub(super) delivered: Vec<Vec<u8>>,
    pub(super) now: Instant,
}

pub(super) fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, number], u16::from(number)))
}

fn inside(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

pub(super) fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

fn booted(key: &PrivateKey, random: &mut Seeded) -> Node {
    let mut node = Node::new();
    node.set_mtu(1420);
    node.set_identity(Some(Identity::new(key.clone())), random);
    node.set_up(true, random);
    node
}

impl Machine {
    pub(super) fn new(number: u8) -> Self {
        let mut random = Seeded(u64::from(number) << 32);
        let key = PrivateKey::generate(&mut random);
        Self {
            node: booted(&key, &mut random),
            key,
            address: address(number),
            random,
            out: Tray::default(),
            delivered: Vec::new(),
            now: Instant(1_000_000_000_000),
        }
    }

    /// Loses all but its key.
    pub(super) fn restart(&mut self) {
        self.node = booted(&self.key, &mut self.random);
        self.now += Duration::from_secs(1);
    }

    /// What was put out last and is not yet carried.
    pub(super) fn sent(&self) -> Vec<Vec<u8>> {
        self.out.sent.iter().map(|(_, bytes)| bytes.clone()).collect()
    }

    /// Receiver indices that are live.
    pub(super) fn indices(&self) -> usize {
        self.node.indices.len()
    }

    pub(super) fn public(&self) -> PublicKey {
        self.key.public()
    }

    pub(super) fn clock(&self) -> Clock {
        let wall = Tai64n::from_unix(1_800_000_000 + self.now.0 / 1_000_000_000, 0);
        Clock { now: self.now, wall }
    }

    pub(super) fn change(&mut self, change: &PeerChange) {
        self.node.change_peer(change, &mut self.random).expect("there is room");
        self.act();
    }

    pub(super) fn knows(&mut self, other: &Self, prefixes: &[&str]) {
        let allowed_ips = prefixes.iter().map(|text| AllowedIp::give(prefix(text))).collect();
        self.change(&PeerChange {
            endpoint: Some(other.address),
            allowed_ips,
            ..PeerChange::new(other.public())
        });
    }

    fn act(&mut self) {
        let clock = self.clock();
        self.node.handle_handshakes(usize::MAX, clock, &mut self.random, &mut self.out);
        self.node.handle_actions(clock, &mut self.random, &mut self.out);
        self.conserves();
        self.wakes_in_time();
    }

    pub(super) fn send(&mut self, packet: &[u8]) {
        let mut bytes = packet.to_vec();
        let now = self.now;
        self.node.handle_packet(virtio::Header::default(), &mut bytes, now, &mut self.out);
        self.act();
    }

    /// Sends packets of one turn.
    pub(super) fn send_together(&mut self, packets: &[Vec<u8>]) {
        for packet in packets {
            let header = virtio::Header::default();
            self.node.handle_packet(header, &mut packet.clone(), self.now, &mut self.out);
        }
        self.act();
    }

    pub(super) fn receive(&mut self, from: SocketAddr, datagram: &[u8]) {
        self.read(from, datagram, None);
    }

    /// Receives what somebody saw come before.
    pub(super) fn read(&mut self, from: SocketAddr, datagram: &[u8], came: Option<Instant>) {
        let mut memory = datagram.to_vec();
        let (mut inbox, clock) = (Inbox::default(), self.clock());
        inbox.set_came(came);
        self.node.handle_datagram(
            Endpoint::new(from).into(),
            &mut memory,
            0..datagram.len(),
            clock,
            &mut self.random,
            &mut inbox,
            &mut self.out,
        );
        self.delivered.extend(inbox.take_packets(&mut memory));
        self.collect();
        self.act();
    }

    /// Takes what waited for older ones, and waits no more.
    fn collect(&mut self) {
        let mut inbox = Inbox::default();
        while self.node.poll_packets(&mut inbox) || !inbox.is_empty() {
            self.delivered.extend(inbox.take_packets(&mut []));
        }
    }

    pub(super) fn wait(&mut self, seconds: u64) {
        self.pass(Duration::from_secs(seconds));
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.node.handle_timeout(self.now);
        self.collect();
        self.act();
    }

    fn conserves(&self) {
        let counters = self.node.counters();
        let out = counters.sealed + self.node.staged() + counters.dropped_out();
        assert_eq!(counters.packets_out, out, "{counters:?}");
        let known = counters.delivered
            + counters.keepalives_in
            + counters.frames_in
            + counters.handshakes_in
            + counters.dropped_in();
        let waiting = self.node.handshakes.len() as u64;
        assert_eq!(counters.datagrams_in, known + waiting, "{counters:?}");
        for seen in self.node.peers.iter().filter_map(|(_, link)| link.weather()) {
            assert_eq!(seen.pieces.taken, seen.pieces.ended() + seen.waiting as u64, "{seen:?}");
        }
    }

    /// No peer wants to be woken before the node does.
    fn wakes_in_time(&self) {
        let wanted = self.node.peers.iter().filter_map(|(_, link)| link.poll_timeout());
        let Some((earliest, why)) = wanted.min_by_key(|(at, _)| *at) else { return };
        if self.node.up {
            let wake = self.node.poll_timeout();
            assert!(wake.is_some_and(|wake| wake <= earliest), "{why:?} at {earliest:?}: {wake:?}");
        }
    }

    fn dropped(&self, reason: Reason) -> u64 {
        self.node.counters().dropped(reason)
    }

    fn endpoint_of(&self, other: &Self) -> Option<SocketAddr> {
        self.status(other).and_then(|status| status.endpoint)
    }

    fn status(&self, other: &Self) -> Option<PeerStatus> {
        let peers = self.node.peers(self.now, Duration::ZERO);
        peers.into_iter().find(|status| status.key == other.public())
    }
}

/// Carries once what both have put out.
pub(super) fn carry(a: &mut Machine, b: &mut Machine) -> usize {
    let (from_a, from_b) = (std::mem::take(&mut a.out.sent), std::mem::take(&mut b.out.sent));
    from_a.iter().for_each(|(_, bytes)| b.receive(a.address, bytes));
    from_b.iter().for_each(|(_, bytes)| a.receive(b.address, bytes));
    from_a.len() + from_b.len()
}

/// Carries datagrams to and fro until there are none; returns how many.
pub(super) fn settle(a: &mut Machine, b: &mut Machine) -> usize {
    let mut carried = 0;
    loop {
        match carry(a, b) {
            0 => return carried,
            count => carried += count,
        }
    }
}

/// An IPv4 packet between inner addresses, with a mark and a length of payload.
fn packet_between(source: IpAddr, destination: IpAddr, mark: u8, len: usize) -> Vec<u8> {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (source, destination) else {
        panic!("IPv4 only");
    };
    let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 253, 0, 0];
    bytes.extend_from_slice(&source.octets());
    bytes.extend_from_slice(&destination.octets());
    bytes.resize(20 + len, mark);
    let total = u16::try_from(bytes.len()).expect("short");
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    let sum = wire::checksum::Sum::of(&bytes[..20]).checksum();
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

pub(super) fn packet_to(from: u8, to: u8, mark: u8) -> Vec<u8> {
    packet_between(inside(from), inside(to), mark, 40)
}

/// Two machines that know each other, with a session.
fn pair() -> (Machine, Machine) {
    let (mut a, mut b) = (Machine::new(1), Machine::new(2));
    a.knows(&b, &["10.0.0.2/32"]);
    b.knows(&a, &["10.0.0.1/32"]);
    a.send(&packet_to(1, 2, 0));
    settle(&mut a, &mut b);
    assert_eq!(b.delivered.len(), 1);
    b.delivered.clear();
    (a, b)
}

#[test]
fn a_packet_arrives_as_it_was_sent_in_both_directions() {
    let (mut a, mut b) = pair();
    for len in [0, 1, 11, 12, 13, 500, 1400] {
        a.send(&packet_between(inside(1), inside(2), 7, len));
        b.send(&packet_between(inside(2), inside(1), 8, len));
        settle(&mut a, &mut b);
        assert_eq!(b.delivered.pop(), Some(packet_between(inside(1), inside(2), 7, len)));
        assert_eq!(a.delivered.pop(), Some(packet_between(inside(2), inside(1), 8, len)));
    }
    assert_eq!(a.node.counters().dropped_in() + b.node.counters().dropped_in(), 0);
    let (at_a, at_b) = (a.status(&b).expect("known"), b.status(&a).expect("known"));
    assert_eq!((at_a.tx_bytes, at_a.rx_bytes), (at_b.rx_bytes, at_b.tx_bytes));
}

#[test]
fn staged_packets_leave_in_order_after_the_handshake() {
    let (mut a, mut b) = (Machine::new(1), Machine::new(2));
    a.knows(&b, &["10.0.0.2/32"]);
    b.knows(&a, &["10.0.0.1/32"]);
    (0..100).for_each(|mark| a.send(&packet_to(1, 2, mark)));
    assert_eq!(a.node.staged(), 100);
    assert_eq!(a.out.sent.len(), 1, "one initiation");
    settle(&mut a, &mut b);
    let marks: Vec<u8> = b.delivered.iter().map(|packet| packet[30]).collect();
    assert_eq!(marks, (0..100).collect::<Vec<u8>>());
    assert_eq!(a.node.staged(), 0);
}

#[test]
fn dp_22_an_offline_peer_costs_128_packets_and_they_expire() {
    let (mut a, b) = (Machine::new(1), Machine::new(2));
    a.knows(&b, &["10.0.0.2/32"]);
    (0..5000_u16).for_each(|mark| a.send(&packet_to(1, 2, mark as u8)));
    assert_eq!(a.node.staged(), 128);
    assert_eq!(a.dropped(Reason::StageOverflow), 5000 - 128);
    (0..40).for_each(|_| a.wait(3));
    assert_eq!(a.node.staged(), 0);
    assert_eq!(a.dropped(Reason::StageExpired), 128);
    assert_eq!(a.out.sent.len(), 18, "REKEY_ATTEMPT_TIME over REKEY_TIMEOUT");
}

#[test]
fn pf_01_a_source_that_is_not_the_senders_is_dropped() {
    let (mut a, mut b) = pair();
    a.send(&packet_between(inside(9), inside(2), 1, 40));
    settle(&mut a, &mut b);
    assert_eq!(b.dropped(Reason::SourceNotAllowed), 1);
    a.send(&packet_between(inside(1), inside(9), 1, 40));
    assert_eq!(a.dropped(Reason::NoRoute), 1);
    assert!(b.delivered.is_empty() && a.out.sent.is_empty());
}

#[test]
fn pf_01_a_more_specific_prefix_of_another_peer_wins_and_the_endpoint_still_updates() {
    let (mut a, mut b) = (Machine::new(1), Machine::new(2));
    let c = Machine::new(3);
    a.knows(&b, &["10.0.0.2/32"]);
    b.knows(&a, &["10.0.0.0/24"]);
    a.send(&packet_to(1, 2, 1));
    settle(&mut a, &mut b);
    assert_eq!(b.delivered.len(), 1);
    b.knows(&c, &["10.0.0.1/32"]);
    b.out.sent.clear();
    a.address = address(77);
    a.send(&packet_to(1, 2, 2));
    settle(&mut a, &mut b);
    assert_eq!(b.delivered.len(), 1, "the /32 is another's now");
    assert_eq!(b.dropped(Reason::SourceNotAllowed), 1);
    assert_eq!(b.endpoint_of(&a), Some(address(77)), "it was authentic all the same");
    // What is for 10.0.0.1 now goes to the other peer, the rest of the /24 still to the first.
    b.send(&packet_to(2, 1, 3));
    assert_eq!(b.out.sent.pop().map(|sent| sent.0.remote), Some(address(3)));
    b.send(&packet_to(2, 50, 3));
    assert_eq!(b.out.sent.pop().map(|sent| sent.0.remote), Some(address(77)));
}

#[test]
fn a_removed_peer_leaves_nothing() {
    let (mut a, mut b) = pair();
    let c = Machine::new(3);
    a.knows(&c, &["10.0.0.3/32"]);
    a.send(&packet_to(1, 3, 1));
    b.send(&packet_to(2, 1, 9));
    let late = b.out.sent.pop().expect("sealed").1;
    a.out.sent.clear();
    for peer in [&b, &c] {
        a.change(&PeerChange { remove: true, ..PeerChange::new(peer.public()) });
    }
    assert!(a.node.indices.is_empty(), "indices are given back");
    assert!(a.node.allowed.is_empty() && a.node.peers.len() == 0);
    assert_eq!((a.node.staged(), a.dropped(Reason::StageExpired)), (0, 1));
    a.receive(b.address, &late);
    assert_eq!(a.dropped(Reason::Protocol(Drop::UnknownIndex)), 1);
    a.send(&packet_to(1, 2, 1));
    assert_eq!(a.dropped(Reason::NoRoute), 1);
    (0..100).for_each(|_| a.wait(10));
    assert!(a.out.sent.is_empty() && a.delivered.is_empty());
}

#[test]
fn update_only_makes_no_peer_and_changes_one_that_is() {
    let (mut a, b) = (Machine::new(1), Machine::new(2));
    let update =
        PeerChange { update_only: true, endpoint: Some(address(9)), ..PeerChange::new(b.public()) };
    a.change(&update);
    assert!(a.status(&b).is_none());
    a.knows(&b, &["10.0.0.2/32"]);
    a.change(&update);
    assert_eq!(a.endpoint_of(&b), Some(address(9)));
    assert_eq!(a.status(&b).expect("known").allowed_ips, [prefix("10.0.0.2/32")]);
}

#[test]
fn prefixes_are_replaced_taken_away_and_taken_over() {
    let (mut a, b, c) = (Machine::new(1), Machine::new(2), Machine::new(3));
    let prefixes = |a: &Machine, peer: &Machine| -> Vec<String> {
        let status = a.status(peer).expect("known");
        status.allowed_ips.iter().map(ToString::to_string).collect()
    };
    a.knows(&b, &["10.0.0.2/32", "10.1.0.0/16", "fd00::/64"]);
    let give = |text: &str| AllowedIp::give(prefix(text));
    let take = |text: &str| AllowedIp { prefix: prefix(text), remove: true };
    a.change(&PeerChange {
        allowed_ips: vec![take("10.0.0.2/32"), take("10.9.0.0/16")],
        ..PeerChange::new(b.public())
    });
    assert_eq!(prefixes(&a, &b), ["10.1.0.0/16", "fd00::/64"]);
    a.knows(&c, &["10.1.0.0/16"]);
    assert_eq!(prefixes(&a, &b), ["fd00::/64"], "the last one given has it");
    a.change(&PeerChange { allowed_ips: vec![take("10.1.0.0/16")], ..PeerChange::new(b.public()) });
    assert_eq!(prefixes(&a, &c), ["10.1.0.0/16"], "only its owner loses it");
    a.change(&PeerChange {
        replace_allowed_ips: true,
        allowed_ips: vec![give("10.2.0.0/16")],
        ..PeerChange::new(b.public())
    });
    assert_eq!(prefixes(&a, &b), ["10.2.0.0/16"]);
}

/// What `a`'s session seals for `b`, whatever it is.
fn sealed(a: &mut Machine, b: &Machine, plain: &[u8]) -> Vec<u8> {
    let id = a.node.peers.id(&b.public()).expect("known");
    let link = a.node.peers.link(id).expect("known");
    let session = link.peer_mut().sealer(a.now).expect("there is a session");
    let mut datagram = vec![0; plain.len() + wireguard::OVERHEAD_LEN];
    datagram[16..][..plain.len()].copy_from_slice(plain);
    session.seal(&mut datagram).expect("a fresh session");
    datagram
}

#[test]
fn a_plaintext_that_is_no_packet_is_counted_as_what_it_is() {
    let (mut a, mut b) = pair();
    for nibble in (0..16_u8).filter(|nibble| !matches!(nibble, 4 | 6)) {
        let frame = sealed(&mut a, &b, &[nibble << 4; 32]);
        b.receive(a.address, &frame);
    }
    assert_eq!(b.dropped(Reason::UnknownFrame), 14);
    let genuine = packet_to(1, 2, 1);
    let lie = |at: usize, bytes: &[u8]| {
        let mut packet = genuine.clone();
        packet[at..at + bytes.len()].copy_from_slice(bytes);
        packet
    };
    // Total lengths of 0, of less than a header, and of one byte more than there is.
    let lies = [lie(2, &[0, 0]), lie(2, &[0, 19]), lie(2, &[0, 61]), lie(2, &[255, 255])];
    let cut: Vec<Vec<u8>> = (1..20).map(|len| genuine[..len].to_vec()).collect();
    let v6: Vec<Vec<u8>> = [1, 39].map(|len| vec![0x60; len]).to_vec();
    let total = lies.len() + cut.len() + v6.len();
    for plain in lies.into_iter().chain(cut).chain(v6) {
        let datagram = sealed(&mut a, &b, &plain);
        b.receive(a.address, &datagram);
    }
    assert_eq!(b.dropped(Reason::InnerMalformed), total as u64);
    assert!(b.delivered.is_empty());
    // More bytes than the packet claims are padding, and cut off.
    let datagram = sealed(&mut a, &b, &[&genuine[..], &[0; 99]].concat());
    b.receive(a.address, &datagram);
    assert_eq!(b.delivered, [genuine]);
}

#[test]
fn dp_18_random_datagrams_of_every_length_do_nothing() {
    let (mut a, mut b) = pair();
    let id = b.node.peers.id(&a.public()).expect("known");
    let link = b.node.peers.link(id).expect("known");
    let live = link.peer_mut().sealer(b.now).expect("there is a session").index().0;
    let before = (b.status(&a), b.node.counters().delivered, b.node.indices.len());
    let mut random = Seeded(18);
    let lengths = (0..2_000).chain((2_000..65_507).step_by(977)).chain([65_506, 65_507]);
    let mut count = 0;
    for len in lengths {
        let mut datagram = vec![0; len];
        random.fill(&mut datagram);
        for kind in [datagram.first().copied().unwrap_or(0), 1, 2, 3, 4] {
            if len >= 8 {
                datagram[..4].copy_from_slice(&[kind, 0, 0, 0]);
                // Every other one names a live session.
                if len % 2 == 0 {
                    datagram[4..8].copy_from_slice(&live.to_le_bytes());
                }
            }
            b.receive(address(66), &datagram);
            count += 1;
        }
    }
    assert_eq!((b.status(&a), b.node.counters().delivered, b.node.indices.len()), before);
    assert_eq!(b.node.counters().dropped_in(), count);
    assert!(b.out.sent.is_empty(), "silence toward strangers");
    a.send(&packet_to(1, 2, 1));
    settle(&mut a, &mut b);
    assert_eq!(b.delivered.len(), 1);
}

#[test]
fn dp_16_nt_04_a_datagram_with_any_byte_changed_is_dropped() {
    let (mut a, mut b) = pair();
    a.send(&packet_to(1, 2, 1));
    let genuine = a.out.sent.pop().expect("sealed").1;
    let before = b.status(&a);
    for at in 0..genuine.len() {
        let mut datagram = genuine.clone();
        datagram[at] ^= 1 << (at % 8);
        b.receive(address(66), &datagram);
    }
    assert!(b.delivered.is_empty());
    assert_eq!(b.node.counters().dropped_in(), genuine.len() as u64);
    assert_eq!(b.status(&a), before, "endpoint and counters too");
    b.receive(a.address, &genuine);
    assert_eq!(b.delivered.len(), 1, "nothing was used up by the others");
}
