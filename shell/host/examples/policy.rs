//! What a policy costs a packet: two nodes in memory, from the sender's kernel to the receiver's,
//! with 1,000 rules at both ends and without, in turn.
//!
//! `cargo run --release -p warren-host --example policy`

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints its table, and may end at the first surprise"
)]

use std::net::{IpAddr, SocketAddr};
use std::time::Instant as Stopwatch;

use node::{AllowedIp, Clock, Endpoint, Inbox, Node, PeerChange, Prefix};
use noise::{Identity, Instant, PrivateKey, Tai64n};
use policy::{Ranges, Rule, Rules, Service};
use wire::virtio;

mod shared;

use self::shared::{Counted, Tray, median};

const RULES: u16 = 1_000;
const PACKETS: u32 = 50_000;
/// Rounds, of which the median counts.
const ROUNDS: usize = 31;

struct Machine {
    node: Node,
    key: PrivateKey,
    random: Counted,
    out: Tray,
    inbox: Inbox,
}

fn clock() -> Clock {
    Clock { now: Instant(1_000_000_000_000), wall: Tai64n::from_unix(1_800_000_000, 0) }
}

fn at(number: u8) -> SocketAddr {
    ([192, 0, 2, number], 7).into()
}

fn inside(number: u8) -> IpAddr {
    [10, 0, 0, number].into()
}

impl Machine {
    fn new(number: u8) -> Self {
        let mut random = Counted(number.into());
        let key = PrivateKey::generate(&mut random);
        let mut node = Node::new();
        node.set_mtu(1420);
        node.set_identity(Some(Identity::new(key.clone())), &mut random);
        node.set_up(true, &mut random);
        let out = Tray::new(1 << 17);
        Self { node, key, random, out, inbox: Inbox::default() }
    }

    fn knows(&mut self, other: &Self, number: u8) {
        let change = PeerChange {
            endpoint: Some(at(number)),
            allowed_ips: vec![AllowedIp::give(Prefix::host(inside(number)))],
            ..PeerChange::new(other.key.public())
        };
        self.node.change_peer(&change, &mut self.random).unwrap();
    }

    fn act(&mut self) {
        self.node.handle_handshakes(8, clock(), &mut self.random, &mut self.out);
        self.node.handle_actions(clock(), &mut self.random, &mut self.out);
    }

    fn send(&mut self, header: virtio::Header, packet: &mut [u8]) {
        self.node.handle_packet(header, packet, clock().now, &mut self.out);
        self.act();
    }

    /// Takes what another put out; packets that arrived.
    fn take(&mut self, other: &mut Self, from: u8) -> usize {
        let mut arrived = 0;
        for (start, len) in std::mem::take(&mut other.out.slots) {
            let from = Endpoint::new(at(from)).into();
            let (range, memory) = (start..start + len, &mut other.out.memory);
            let (random, inbox) = (&mut self.random, &mut self.inbox);
            self.node.handle_datagram(from, memory, range, clock(), random, inbox, &mut self.out);
            arrived += self.inbox.len();
            self.inbox = Inbox::default();
        }
        self.act();
        arrived
    }
}

/// 1,000 rules, of which the last lets the flow begin.
fn rules(is_sender: bool) -> Rules {
    let set = |number: u8| {
        let others = (0..20).map(|n| IpAddr::from([10, 1, number, n * 2]));
        Ranges::of_addresses(others.chain([inside(number)]))
    };
    let rule = |port: u16| Rule {
        sources: set(1),
        destinations: set(2),
        services: vec![Service { protocol: Some(6), first: port, last: port }],
        line: 1,
        compress: false,
    };
    let list: Vec<Rule> = (0..RULES).map(|n| rule(4_001 + RULES - n)).collect();
    match is_sender {
        true => Rules::new(Vec::new(), list),
        false => Rules::new(list, Vec::new()),
    }
}

/// TCP to port 4002 with this much payload, as the kernel hands it over.
fn packet(payload: usize) -> (virtio::Header, Vec<u8>) {
    let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    bytes[2..4].copy_from_slice(&(40 + payload as u16).to_be_bytes());
    bytes.extend([5000_u16, 4002].map(u16::to_be_bytes).concat());
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.resize(40 + payload, 1);
    let header = virtio::Header {
        flags: virtio::FLAG_NEEDS_CSUM,
        gso_type: if payload > 1380 { virtio::GSO_TCPV4 } else { virtio::GSO_NONE },
        hdr_len: 40,
        gso_size: 1380,
        csum_start: 20,
        csum_offset: 16,
    };
    (header, bytes)
}

/// Nanoseconds a packet on the wire, there and in.
fn round(a: &mut Machine, b: &mut Machine, made: &(virtio::Header, Vec<u8>)) -> f64 {
    let mut bytes = made.1.clone();
    let (mut arrived, begin) = (0, Stopwatch::now());
    while arrived < PACKETS as usize {
        bytes.copy_from_slice(&made.1);
        a.send(made.0, &mut bytes);
        let came = b.take(a, 1);
        assert!(came > 0, "{:?} {:?}", a.node.counters(), b.node.counters());
        arrived += came;
    }
    begin.elapsed().as_nanos() as f64 / arrived as f64
}

fn main() {
    println!("ns a packet, from one kernel to the other; median of {ROUNDS} rounds in turn");
    println!("{:>28} {:>9} {:>9} {:>7}", "TCP payload", "none", "policy", "ratio");
    for payload in [0, 1380, 1380 * 44] {
        let (mut a, mut b) = (Machine::new(1), Machine::new(2));
        a.knows(&b, 2);
        b.knows(&a, 1);
        let made = packet(payload);
        a.send(made.0, &mut made.1.clone());
        while b.take(&mut a, 1) + a.take(&mut b, 2) > 0 || !a.out.slots.is_empty() {}
        let (mut none, mut guarded) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            a.node.set_policy(None, &mut Counted(1));
            b.node.set_policy(None, &mut Counted(1));
            none.push(round(&mut a, &mut b, &made));
            a.node.set_policy(Some(rules(true)), &mut Counted(1));
            b.node.set_policy(Some(rules(false)), &mut Counted(1));
            guarded.push(round(&mut a, &mut b, &made));
        }
        let (none, guarded) = (median(none), median(guarded));
        println!("{payload:>28} {none:>9.0} {guarded:>9.0} {:>7.3}", guarded / none);
    }
}
