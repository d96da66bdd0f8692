//! Two nodes with a session, and anything at all that comes in between.

use std::net::SocketAddr;
use std::time::Duration;

use link::{Destination, Endpoint, Outbox};
use node::{AllowedIp, Clock, Inbox, Node, PeerChange};
use noise::{Identity, Instant, PrivateKey, PublicKey, Tai64n};
use wire::virtio;

use crate::Seeded;

/// The first byte says what comes: even, a datagram for the second node (threat DP-18); odd, a
/// packet with its virtio header from the second node's machine (PF-16). The second byte says
/// whether a datagram is the rest as it is, or a genuine one that the rest is laid over (DP-16).
///
/// Nothing is delivered but what the first node sealed, no more bytes leave for a stranger than
/// came from it (DP-06), every packet is counted once, and afterwards the session still carries.
pub fn datagram(data: &[u8]) {
    let [kind, over, rest @ ..] = data else {
        return;
    };
    let (mut a, mut b) = pair();
    let genuine = a.packet(&inner(1, 2, usize::from(*over)));
    let before = b.delivered.len();
    if kind % 2 == 1 {
        if let Ok(header) = virtio::Header::decode(rest) {
            b.send(header, &rest[virtio::LEN..]);
        }
    } else {
        let changed = match over % 4 {
            0 => rest.to_vec(),
            _ => overlaid(&genuine, usize::from(*over) / 4, rest),
        };
        let sent = b.out.sent.len();
        b.receive(address(66), &changed);
        let answered: usize = b.out.sent[sent..].iter().map(|(_, bytes)| bytes.len()).sum();
        let new = &b.delivered[before..];
        // Keys are the same in every run, so a seed may be genuine; a forgery never is.
        assert!(new.iter().all(|packet| *packet == inner(1, 2, packet.len() - 20)));
        assert!(changed != genuine || new.len() == 1, "a genuine one is delivered");
        assert!(new.len() == 1 || answered <= changed.len(), "{answered} bytes are answered");
    }
    // The session goes on, wherever the last genuine one came from.
    b.out.sent.clear();
    let next = a.packet(&inner(1, 2, 5));
    let before = b.delivered.len();
    b.receive(address(1), &next);
    assert_eq!(b.delivered[before..], [inner(1, 2, 5)]);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let (mut a, _) = pair();
    let mut fresh = Machine::new(1);
    fresh.knows(&Machine::new(2));
    fresh.send(virtio::Header::default(), &inner(1, 2, 9));
    let initiation = fresh.out.sent.pop().expect("an initiation").1;
    let packet = [&virtio::Header::default().encode()[..], &inner(2, 1, 40)].concat();
    vec![
        [&[0, 0][..], &initiation].concat(),
        [&[0, 0][..], &a.packet(&inner(1, 2, 0))].concat(),
        [0, 1, 1].to_vec(),
        [0, 97, 0, 0, 0, 255].to_vec(),
        [&[1, 0][..], &packet].concat(),
    ]
}

/// `over` laid over `bytes` from `at` on, bit by bit.
fn overlaid(bytes: &[u8], at: usize, over: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    for (byte, change) in changed.iter_mut().skip(at).zip(over) {
        *byte ^= change;
    }
    changed
}

/// Memory for datagrams.
#[derive(Default)]
pub(crate) struct Tray {
    slot: Option<(SocketAddr, Vec<u8>)>,
    pub(crate) sent: Vec<(SocketAddr, Vec<u8>)>,
}

impl Outbox for Tray {
    fn reserve(&mut self, to: &Destination, len: usize) -> Option<&mut [u8]> {
        let to = to.udp()?;
        self.slot = (len <= 65_507).then(|| (to.remote, vec![0xaa; len]));
        self.slot.as_mut().map(|slot| &mut slot.1[..])
    }

    fn commit(&mut self) {
        self.sent.extend(self.slot.take());
    }
}

/// A node and its machine: number 2 is 192.0.2.2 outside and 10.0.0.2 inside.
pub(crate) struct Machine {
    pub(crate) node: Node,
    public: PublicKey,
    number: u8,
    random: Seeded,
    pub(crate) out: Tray,
    pub(crate) delivered: Vec<Vec<u8>>,
    now: Instant,
}

pub(crate) fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, number], 51820))
}

impl Machine {
    pub(crate) fn new(number: u8) -> Self {
        let mut random = Seeded(u64::from(number));
        let key = PrivateKey::generate(&mut random);
        let public = key.public();
        let mut node = Node::new();
        node.set_mtu(1420);
        node.set_identity(Some(Identity::new(key)), &mut random);
        node.set_up(true, &mut random);
        let now = Instant(1_000_000_000_000);
        Self { node, public, number, random, out: Tray::default(), delivered: Vec::new(), now }
    }

    fn knows(&mut self, other: &Self) {
        self.knows_key(other.number, other.public);
    }

    pub(crate) fn knows_key(&mut self, number: u8, key: PublicKey) {
        let inside = format!("10.0.0.{number}/32");
        let change = PeerChange {
            endpoint: Some(address(number)),
            allowed_ips: vec![AllowedIp::give(inside.parse().expect("a prefix"))],
            ..PeerChange::new(key)
        };
        self.node.change_peer(&change, &mut self.random).expect("there is room");
        self.act();
    }

    fn clock(&self) -> Clock {
        Clock { now: self.now, wall: Tai64n::from_unix(1_800_000_000, 0) }
    }

    fn act(&mut self) {
        let clock = self.clock();
        self.node.handle_handshakes(usize::MAX, clock, &mut self.random, &mut self.out);
        self.node.handle_actions(clock, &mut self.random, &mut self.out);
        let counters = self.node.counters();
        let arrived = counters.delivered
            + counters.keepalives_in
            + counters.handshakes_in
            + counters.reach_in
            + counters.frames_in;
        assert_eq!(counters.datagrams_in, arrived + counters.dropped_in());
    }

    fn send(&mut self, header: virtio::Header, packet: &[u8]) {
        self.node.handle_packet(header, &mut packet.to_vec(), self.now, &mut self.out);
        self.act();
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.node.handle_timeout(self.now);
        let mut inbox = Inbox::default();
        while self.node.poll_packets(&mut inbox) || !inbox.is_empty() {
            self.delivered.extend(inbox.take_packets(&mut []));
        }
        self.act();
    }

    /// The datagram that this packet becomes.
    fn packet(&mut self, packet: &[u8]) -> Vec<u8> {
        self.send(virtio::Header::default(), packet);
        self.out.sent.pop().expect("there is a session").1
    }

    pub(crate) fn receive(&mut self, from: SocketAddr, datagram: &[u8]) {
        let mut memory = datagram.to_vec();
        let mut inbox = Inbox::default();
        let clock = self.clock();
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
        while self.node.poll_packets(&mut inbox) {
            self.delivered.extend(inbox.take_packets(&mut memory));
        }
        self.delivered.extend(inbox.take_packets(&mut memory));
        self.act();
    }
}

/// Two nodes with a session that the first one began.
fn pair() -> (Machine, Machine) {
    // The keys of the pair before, on purpose.
    noise::forget_nonces();
    let mut a = Machine::new(1);
    let mut b = Machine::new(2);
    a.knows(&b);
    b.knows(&a);
    a.send(virtio::Header::default(), &inner(1, 2, 0));
    for _ in 0..2 {
        for (_, bytes) in std::mem::take(&mut a.out.sent) {
            b.receive(address(1), &bytes);
        }
        for (_, bytes) in std::mem::take(&mut b.out.sent) {
            a.receive(address(2), &bytes);
        }
    }
    assert_eq!(b.delivered, [inner(1, 2, 0)]);
    a.now += Duration::from_secs(1);
    b.now += Duration::from_secs(1);
    (a, b)
}

/// An IPv4 packet of protocol 253 with so many bytes of payload.
pub(crate) fn inner(from: u8, to: u8, len: usize) -> Vec<u8> {
    let total = (20 + len) as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, from, 10, 0, 0, to];
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    let sum = wire::checksum::Sum::of(&packet).checksum();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.resize(usize::from(total), from);
    packet
}
