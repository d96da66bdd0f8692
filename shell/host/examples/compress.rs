//! What compression costs: two nodes in memory, from the sender's kernel to the receiver's, with
//! and without, in turn. Superpackets of TCP on a path that was found to lose nothing.
//!
//! `cargo run --release -p warren-host --example compress`

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints its table, and may end at the first surprise"
)]

use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;
use std::time::Instant as Stopwatch;

use node::{AllowedIp, Clock, Endpoint, Inbox, Node, PeerChange, Prefix};
use noise::{Identity, Instant, PrivateKey, Random, Tai64n};
use wire::coalesce::Coalescer;
use wire::virtio;

mod shared;

use self::shared::{Counted, Tray, median};

/// Payload of a round, bytes.
const ROUND_BYTES: usize = 64 << 20;
/// Rounds, of which the median counts.
const ROUNDS: usize = 15;
const SEGMENT: usize = 1_368;
const SEGMENTS: usize = 44;

static BEGIN: LazyLock<Stopwatch> = LazyLock::new(Stopwatch::now);

struct Machine {
    node: Node,
    key: PrivateKey,
    random: Counted,
    out: Tray,
    inbox: Inbox,
    coalescer: Coalescer,
}

fn clock() -> Clock {
    let now = Instant(1_000_000_000_000) + BEGIN.elapsed();
    Clock { now, wall: Tai64n::from_unix(1_800_000_000, 0) }
}

fn at(number: u8) -> SocketAddr {
    ([192, 0, 2, number], 7).into()
}

impl Machine {
    fn new(number: u8) -> Self {
        let mut random = Counted(number.into());
        let key = PrivateKey::generate(&mut random);
        let mut node = Node::new();
        node.set_mtu(1420);
        node.set_frames(true);
        node.set_aes(cfg!(target_arch = "x86_64"));
        node.set_identity(Some(Identity::new(key.clone())), &mut random);
        node.set_up(true, &mut random);
        let out = Tray::new(1 << 18);
        let (inbox, coalescer) = (Inbox::with_capacity(256), Coalescer::new(256));
        Self { node, key, random, out, inbox, coalescer }
    }

    fn knows(&mut self, other: &Self, number: u8) {
        let inside = Prefix::host(IpAddr::from([10, 0, 0, number]));
        let change = PeerChange {
            endpoint: Some(at(number)),
            allowed_ips: vec![AllowedIp::give(inside)],
            ..PeerChange::new(other.key.public())
        };
        self.node.change_peer(&change, &mut self.random).unwrap();
    }

    fn act(&mut self) {
        self.node.handle_timeout(clock().now);
        self.node.handle_handshakes(8, clock(), &mut self.random, &mut self.out);
        self.node.handle_actions(clock(), &mut self.random, &mut self.out);
    }

    /// Takes what another put out; bytes that arrived at the kernel.
    fn take(&mut self, other: &mut Self, from: u8) -> usize {
        let mut arrived = 0;
        for (start, len) in other.out.slots.drain(..) {
            let from = Endpoint::new(at(from)).into();
            let (range, memory) = (start..start + len, &mut other.out.memory);
            let (random, inbox) = (&mut self.random, &mut self.inbox);
            self.node.handle_datagram(from, memory, range, clock(), random, inbox, &mut self.out);
        }
        loop {
            let more = self.node.poll_packets(&mut self.inbox);
            self.inbox.drain(&mut other.out.memory, &mut self.coalescer, |_, parts| {
                arrived += parts.iter().map(|part| part.len()).sum::<usize>();
            });
            if !more {
                break;
            }
        }
        self.act();
        arrived
    }
}

fn next(random: &mut Counted) -> u8 {
    let mut byte = [0];
    random.fill(&mut byte);
    byte[0]
}

/// A superpacket with one of the contents, and how much of it one stretch repeats.
fn packet(content: &str) -> (virtio::Header, Vec<u8>) {
    let payload = SEGMENT * SEGMENTS;
    let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    bytes[2..4].copy_from_slice(&(40 + payload as u16).to_be_bytes());
    bytes.extend([5000_u16, 4002].map(u16::to_be_bytes).concat());
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    let mut random = Counted(9);
    let words = ["path ", "error ", "of ", "node ", "12:07:33 ", "warning ", "and ", "\n"];
    while bytes.len() < 40 + payload {
        match content {
            "random" => bytes.push(next(&mut random)),
            "half random" if bytes.len() & 128 == 0 => bytes.push(next(&mut random)),
            "half random" => bytes.push(b'.'),
            "base64" => bytes.push(b'0' + (next(&mut random) & 63)),
            _ => bytes.extend(words[usize::from(next(&mut random) >> 5)].bytes()),
        }
    }
    bytes.truncate(40 + payload);
    let header = virtio::Header {
        flags: virtio::FLAG_NEEDS_CSUM,
        gso_type: virtio::GSO_TCPV4,
        hdr_len: 40,
        gso_size: SEGMENT as u16,
        csum_start: 20,
        csum_offset: 16,
    };
    (header, bytes)
}

/// Seconds of processor for a gigabyte of payload, there and in; and bytes sealed for each of it.
fn round(a: &mut Machine, b: &mut Machine, made: &(virtio::Header, Vec<u8>)) -> (f64, f64) {
    let mut bytes = made.1.clone();
    let (mut arrived, mut sealed) = (0, 0);
    let begin = Stopwatch::now();
    while arrived < ROUND_BYTES {
        bytes.copy_from_slice(&made.1);
        a.node.handle_packet(made.0, &mut bytes, clock().now, &mut a.out);
        a.act();
        sealed += a.out.slots.iter().map(|(_, len)| len).sum::<usize>();
        let came = b.take(a, 1);
        assert!(came > 0, "{:?} {:?}", a.node.counters(), b.node.counters());
        arrived += came;
        a.take(b, 2);
    }
    (begin.elapsed().as_secs_f64() * 1e9 / arrived as f64, sealed as f64 / arrived as f64)
}

fn main() {
    println!("seconds of processor a gigabyte, both ends; median of {ROUNDS} rounds in turn");
    println!("{:>14} {:>7} {:>7} {:>7} {:>12}", "TCP with", "off", "on", "ratio", "bytes a byte");
    for content in ["random", "base64", "half random", "words"] {
        let (mut a, mut b) = (Machine::new(1), Machine::new(2));
        a.knows(&b, 2);
        b.knows(&a, 1);
        let made = packet(content);
        a.node.handle_packet(made.0, &mut made.1.clone(), clock().now, &mut a.out);
        a.act();
        while b.take(&mut a, 1) + a.take(&mut b, 2) > 0 || !a.out.slots.is_empty() {}
        // Until the path is known to lose nothing.
        for _ in 0..8 {
            round(&mut a, &mut b, &made);
        }
        let (mut off, mut on, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            a.node.set_compress(false);
            off.push(round(&mut a, &mut b, &made).0);
            a.node.set_compress(true);
            let (cost, share) = round(&mut a, &mut b, &made);
            on.push(cost);
            shares.push(share);
        }
        let (off, on, share) = (median(off), median(on), median(shares));
        println!("{content:>14} {off:>7.3} {on:>7.3} {:>7.3} {share:>12.3}", on / off);
    }
}
