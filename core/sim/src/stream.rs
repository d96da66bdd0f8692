//! Streams of TCP between two nodes, over a line with weather: how much comes through.
//!
//! The life of a segment here. A [`tcp::Sender`] lets go a burst; it becomes a superpacket with
//! real headers, which its node cuts, protects and seals; the [`Pipe`] says when each datagram
//! arrives. A host looks at what has arrived every [`Setting::turn_us`], as a machine does whose
//! kernel gathers packets, and hands it to its node; what the node passes on, superpackets or
//! single packets, is what the [`tcp::Receiver`] acknowledges. Processors are infinitely fast: what
//! is found is what weather, repair, order and TCP make of each other.
//!
//! A line that loses in runs moves on with each packet, so a stream that waits for its timeout
//! would find it in the run in which it left it, time after time. No line has one user alone: a
//! small packet passes ten times a second beside the streams, as a ping does in the bench.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use node::{AllowedIp, Clock as Clocks, Endpoint, Inbox, Node, PeerChange, Prefix, Source, Tuning};
use noise::{Identity, Instant, PrivateKey};
use wire::checksum::{Sum, pseudo};
use wire::coalesce::Coalescer;
use wire::virtio;

use crate::clock::Clock;
use crate::impair::{Pipe, Verdict};
use crate::rng::Rng;
use crate::tcp::{self, Ack, Burst};
use crate::world::{HostId, MTU, Tray, inner, ip_packet};

mod setting;

pub use setting::{Found, Setting};

const TCP: u8 = 6;
const IP_LEN: usize = 20;
/// With timestamps.
const TCP_LEN: usize = 32;
/// Bytes of a segment.
pub const MSS: usize = MTU - IP_LEN - TCP_LEN;
/// Bytes of IP and UDP headers around a datagram on the line.
const OUTER_LEN: usize = 28;
/// So often something else passes the line, and of so many bytes.
const PING_NS: u64 = 100_000_000;
const PING_LEN: usize = 98;
const PORT: u16 = 5201;
const ACK: u8 = 0x10;
/// What IP says of congestion (RFC 3168): it may be marked, and it is.
const ECT: u8 = 2;
const CE: u8 = 3;

#[derive(Debug)]
enum Event {
    Arrival(usize, Vec<u8>),
    Turn(usize),
    /// Something else passes the line, both ways.
    Ping,
    /// An answer comes back from beyond the second host.
    Answer(virtio::Header, Vec<u8>),
}

#[derive(Debug)]
struct Host {
    node: Node,
    random: Rng,
    key: PrivateKey,
    address: SocketAddr,
    /// What arrived and was not looked at.
    arrived: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Stream {
    sender: tcp::Sender,
    receiver: tcp::Receiver,
    /// The segment number that the receiver saw last, to tell rounds of sequence numbers apart.
    seen: u64,
    acked: u64,
}

/// Two hosts and the line between them.
#[derive(Debug)]
struct Ground {
    clock: Clock,
    hosts: [Host; 2],
    pipes: [Pipe; 2],
    streams: Vec<Stream>,
    events: BTreeMap<(u64, u64), Event>,
    numbered: u64,
    turn_us: u64,
    beyond: Duration,
    frames: bool,
    tuning: &'static Tuning,
    ecn: bool,
    seen_marked: u64,
    tray: Tray,
    inbox: Inbox,
}

/// Runs it.
///
/// # Panics
/// If the line is none, a node passes on what was not sent, or loses count of what it took.
#[must_use]
pub fn run(setting: &Setting) -> Found {
    run_tuned(setting, &Tuning::DEFAULT, 0)
}

/// Runs it with other tuned numbers. Chance is the same, but keys are others in each `life`: no two
/// runs of one process may share a key.
///
/// # Panics
/// As [`run`] does.
#[must_use]
pub fn run_tuned(setting: &Setting, tuning: &'static Tuning, life: u64) -> Found {
    let mut ground = Ground::new(setting, tuning, life);
    let ready = Instant::ZERO + Duration::from_secs(1);
    ground.run_until(ready);
    for _ in 0..setting.streams {
        ground.streams.push(Stream {
            sender: tcp::Sender::new(),
            receiver: tcp::Receiver::default(),
            seen: 0,
            acked: 0,
        });
    }
    ground.schedule(ready.0, Event::Ping);
    let before = ground.pipes[0].counters();
    ground.run_until(ready + setting.time / 2);
    let half = ground.received();
    if let Some(host) = setting.restarts {
        ground.restart(host);
    }
    ground.run_until(ready + setting.time);
    let after = ground.pipes[0].counters();
    let bits = |segments: u64| (segments * MSS as u64 * 8) as f64;
    let all = ground.received();
    let time_s = setting.time.as_secs_f64();
    let least = ground.streams.iter().map(|stream| stream.receiver.received()).min();
    let mut found = Found {
        mbit_s: bits(all) / time_s / 1e6,
        late_mbit_s: bits(all - half) / (time_s / 2.0) / 1e6,
        least_mbit_s: bits(least.unwrap_or(0)) / time_s / 1e6,
        wire_bytes_per_byte: (after.offered_bytes - before.offered_bytes) as f64
            / ((all * MSS as u64).max(1) as f64),
        line: after,
        srtt_us: ground.streams.first().map_or(0, |stream| stream.sender.srtt_us()),
        seen_marked: ground.seen_marked,
        ..Found::default()
    };
    let [sender, receiver] = &ground.hosts;
    for (near, far) in [(sender, receiver), (receiver, sender)] {
        if let Some(weather) = near.node.weather(&far.key.public()) {
            let pieces = weather.pieces;
            let waiting = weather.waiting as u64;
            assert_eq!(pieces.taken, pieces.ended() + waiting, "every piece is accounted for");
        }
    }
    if let Some(weather) = receiver.node.weather(&sender.key.public()) {
        found.dropped = weather.pieces.congestion;
        found.marked = weather.pieces.marked;
    }
    if let Some(weather) = sender.node.weather(&receiver.key.public()) {
        found.gap_ns = weather.gap_ns;
    }
    for stream in &ground.streams {
        let of = stream.sender.counters();
        found.tcp.again += of.again;
        found.tcp.reduced += of.reduced;
        found.tcp.undone += of.undone;
        found.tcp.timeouts += of.timeouts;
    }
    found
}

impl Ground {
    fn new(setting: &Setting, tuning: &'static Tuning, life: u64) -> Self {
        // Keys of their own for each setting: no two runs of one process may share a key.
        let mut rng = Rng::new(wire::fnv::sum(format!("{setting:?}").bytes()));
        let keys = [0, 1].map(|_| {
            let mut bytes = [0; 32];
            rng.fill(&mut bytes);
            // Not the first byte, of which a key does not heed all bits.
            let lives = life.to_le_bytes();
            bytes[1..].iter_mut().zip(lives).for_each(|(byte, other)| *byte ^= other);
            PrivateKey::from_bytes(bytes)
        });
        let address = |n: u8| SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, n), 51820));
        let addresses = [address(1), address(2)];
        let hosts = [0, 1].map(|n: usize| Host {
            node: Node::new(),
            random: rng.fork(n as u64),
            key: keys[n].clone(),
            address: addresses[n],
            arrived: Vec::new(),
        });
        let clock = Clock::new(1_800_000_000);
        let pipes = [1, 2].map(|n| Pipe::new(setting.line, setting.seed ^ n).expect("a line"));
        let mut ground = Self {
            clock,
            hosts,
            pipes,
            streams: Vec::new(),
            events: BTreeMap::new(),
            numbered: 0,
            turn_us: setting.turn_us,
            beyond: setting.beyond,
            frames: setting.frames,
            tuning,
            ecn: setting.ecn,
            seen_marked: 0,
            tray: Tray::default(),
            inbox: Inbox::default(),
        };
        (0..2).for_each(|host| ground.restart(host));
        ground
    }

    /// Starts a host's node, with nothing that an earlier one knew but the key.
    fn restart(&mut self, host: usize) {
        let other = &self.hosts[1 - host];
        let (v4, _) = inner(HostId(1 - host));
        let change = PeerChange {
            endpoint: Some(other.address),
            // The first packet, so that there is a session before the streams begin.
            keepalive_s: Some(25),
            replace_allowed_ips: true,
            allowed_ips: vec![AllowedIp::give(Prefix::host(v4))],
            ..PeerChange::new(other.key.public())
        };
        let Host { node, random, key, arrived, .. } = &mut self.hosts[host];
        arrived.clear();
        *node = Node::new();
        node.set_mtu(MTU);
        node.set_tuning(self.tuning);
        node.set_frames(self.frames);
        node.set_identity(Some(Identity::new(key.clone())), random);
        node.set_up(true, random);
        node.change_peer(&change, random).expect("a peer");
        self.settle(host);
    }

    fn received(&self) -> u64 {
        self.streams.iter().map(|stream| stream.receiver.received()).sum()
    }

    fn now_us(&self) -> u64 {
        self.clock.now().0 / 1_000
    }

    fn schedule(&mut self, at_ns: u64, event: Event) {
        self.numbered += 1;
        self.events.insert((at_ns, self.numbered), event);
    }

    fn run_until(&mut self, end: Instant) {
        self.send();
        loop {
            let event = self.events.first_key_value().map(|(&(at_ns, _), _)| Instant(at_ns));
            let nodes = (0..2).filter_map(|n| self.hosts[n].node.poll_timeout());
            let ends = self.streams.iter().flat_map(|stream| {
                [stream.sender.poll_timeout(), stream.receiver.poll_timeout()].into_iter().flatten()
            });
            let timer = nodes.chain(ends.map(|at_us| Instant(at_us * 1_000))).min();
            let Some(next) = event.into_iter().chain(timer).min().filter(|next| *next <= end)
            else {
                break;
            };
            self.clock.advance_to(next);
            if event.is_some_and(|at| at <= self.clock.now()) {
                self.happen();
            } else {
                self.handle_timeouts();
            }
            self.send();
        }
        self.clock.advance_to(end);
    }

    fn happen(&mut self) {
        match self.events.pop_first() {
            Some((_, Event::Arrival(host, bytes))) => {
                if self.hosts[host].arrived.is_empty() {
                    let at_ns = self.clock.now().0 + self.turn_us * 1_000;
                    self.schedule(at_ns, Event::Turn(host));
                }
                self.hosts[host].arrived.push(bytes);
            }
            Some((_, Event::Turn(host))) => self.turn(host),
            Some((_, Event::Ping)) => {
                let now_ns = self.clock.now().0;
                for pipe in &mut self.pipes {
                    pipe.offer(now_ns, PING_LEN);
                }
                self.schedule(now_ns + PING_NS, Event::Ping);
            }
            Some((_, Event::Answer(header, bytes))) => self.hand(1, header, bytes),
            None => {}
        }
    }

    fn handle_timeouts(&mut self) {
        let now_us = self.now_us();
        for n in 0..self.streams.len() {
            self.streams[n].sender.handle_timeout(now_us);
            if let Some(ack) = self.streams[n].receiver.handle_timeout(now_us) {
                self.acknowledge(n, &ack);
            }
        }
        for host in 0..2 {
            self.hosts[host].node.handle_timeout(self.clock.now());
            self.drain(host, &mut []);
            self.settle(host);
        }
    }

    /// A host looks at what has arrived.
    fn turn(&mut self, host: usize) {
        let arrived = std::mem::take(&mut self.hosts[host].arrived);
        let mut memory = Vec::new();
        let mut ranges = Vec::new();
        for bytes in arrived {
            let start = memory.len();
            memory.extend_from_slice(&bytes);
            ranges.push(start..memory.len());
            self.tray.give_back(bytes);
        }
        let source = Source { address: self.hosts[host].address.ip(), interface: 1 };
        let remote = self.hosts[1 - host].address;
        let from = Endpoint { remote, source: Some(source) };
        for range in ranges {
            let clocks = Clocks { now: self.clock.now(), wall: self.clock.wall() };
            let Host { node, random, .. } = &mut self.hosts[host];
            node.handle_datagram(
                from.into(),
                &mut memory,
                range,
                clocks,
                random,
                &mut self.inbox,
                &mut self.tray,
            );
            if self.hosts[host].node.poll_packets(&mut self.inbox) {
                self.drain(host, &mut memory);
            }
        }
        self.drain(host, &mut memory);
        self.settle(host);
    }

    /// Takes what a node passes on to its machine.
    fn drain(&mut self, host: usize, memory: &mut [u8]) {
        let mut inbox = std::mem::take(&mut self.inbox);
        loop {
            let mut packets = Vec::new();
            let mut coalescer = Coalescer::new(inbox.len());
            inbox.drain(memory, &mut coalescer, |header, parts| {
                packets.push((
                    header,
                    parts[0][..parts[0].len().min(100)].to_vec(),
                    parts.iter().map(|part| part.len()).sum(),
                ));
            });
            for (header, head, len) in packets {
                self.deliver(host, header, &head, len);
            }
            if !self.hosts[host].node.poll_packets(&mut inbox) && inbox.is_empty() {
                break;
            }
        }
        self.inbox = inbox;
    }

    fn deliver(&mut self, host: usize, header: virtio::Header, head: &[u8], len: usize) {
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        assert_eq!((head[0], head[9]), (0x45, TCP), "what is passed on was sent");
        // The end that sends the streams has a port for each.
        let port_at = IP_LEN + (1 - host) * 2;
        let number = usize::from(u16::from_be_bytes([head[port_at], head[port_at + 1]]) - PORT);
        let now_us = self.now_us();
        let upper = &head[IP_LEN..];
        let header_len = IP_LEN + usize::from(upper[12] >> 4) * 4;
        let stamps = IP_LEN + 24;
        if host == 1 {
            self.seen_marked += u64::from(head[1] & CE == CE);
            let payload = len - header_len;
            let count = payload.div_ceil(MSS) as u64;
            assert!(
                payload.is_multiple_of(MSS) && (count == 1 || usize::from(header.gso_size) == MSS)
            );
            let stream = &mut self.streams[number];
            let first = extend(word(IP_LEN + 4), stream.seen);
            stream.seen = stream.seen.max(first);
            let sent_us = u64::from(word(stamps));
            if let Some(ack) = stream.receiver.handle_data(first, count, sent_us, now_us) {
                self.acknowledge(number, &ack);
            }
            return;
        }
        let stream = &mut self.streams[number];
        let near = stream.acked;
        let ack = Ack {
            next: extend(word(IP_LEN + 8), near),
            sacks: (stamps + 12..header_len)
                .step_by(8)
                .map(|at| (extend(word(at), near), extend(word(at + 4), near)))
                .collect(),
            echo_us: u64::from(word(stamps + 4)),
        };
        stream.acked = near.max(ack.next);
        stream.sender.handle_ack(&ack, now_us);
    }

    /// Lets every stream send what it may.
    fn send(&mut self) {
        let now_us = self.now_us();
        for number in 0..self.streams.len() {
            while let Some(burst) = self.streams[number].sender.poll_send(now_us) {
                let (header, bytes) = data(number, burst, now_us as u32, self.ecn);
                self.hand(0, header, bytes);
            }
        }
    }

    fn acknowledge(&mut self, number: usize, ack: &Ack) {
        let mut options = vec![1, 1, 8, 10, 0, 0, 0, 0];
        options.extend_from_slice(&(ack.echo_us as u32).to_be_bytes());
        if !ack.sacks.is_empty() {
            options.extend_from_slice(&[1, 1, 5, 2 + 8 * ack.sacks.len() as u8]);
            for &(from, to) in &ack.sacks {
                options.extend_from_slice(&sequence(from).to_be_bytes());
                options.extend_from_slice(&sequence(to).to_be_bytes());
            }
        }
        let ports = (PORT, PORT + number as u16);
        let bytes = packet(1, 0, ports, 0, sequence(ack.next), &options, 0);
        let header = virtio::Header {
            flags: virtio::FLAG_NEEDS_CSUM,
            csum_start: IP_LEN as u16,
            csum_offset: 16,
            ..virtio::Header::default()
        };
        if self.beyond.is_zero() {
            return self.hand(1, header, bytes);
        }
        let at = self.clock.now() + self.beyond;
        self.schedule(at.0, Event::Answer(header, bytes));
    }

    fn hand(&mut self, host: usize, header: virtio::Header, mut bytes: Vec<u8>) {
        let now = self.clock.now();
        self.hosts[host].node.handle_packet(header, &mut bytes, now, &mut self.tray);
        self.settle(host);
    }

    /// Sends everything that a node wants to.
    fn settle(&mut self, host: usize) {
        let clocks = Clocks { now: self.clock.now(), wall: self.clock.wall() };
        let Host { node, random, .. } = &mut self.hosts[host];
        node.handle_handshakes(usize::MAX, clocks, random, &mut self.tray);
        node.handle_actions(clocks, random, &mut self.tray);
        let now_ns = self.clock.now().0;
        let mut sent = std::mem::take(&mut self.tray.sent);
        for (_, bytes) in sent.drain(..) {
            match self.pipes[host].offer(now_ns, bytes.len() + OUTER_LEN) {
                Verdict::Deliver { at_ns, .. } => {
                    self.schedule(at_ns, Event::Arrival(1 - host, bytes));
                }
                Verdict::Lost | Verdict::QueueDropped => self.tray.give_back(bytes),
            }
        }
        self.tray.sent = sent;
    }
}

/// Of a segment's number, the sequence number of its first byte.
fn sequence(number: u64) -> u32 {
    (number * MSS as u64) as u32
}

/// The segment with this sequence number that is nearest to `near`.
fn extend(sequence: u32, near: u64) -> u64 {
    let base = near * MSS as u64;
    let ahead = sequence.wrapping_sub(base as u32) as i32;
    base.saturating_add_signed(i64::from(ahead)) / MSS as u64
}

fn data(number: usize, burst: Burst, now_us: u32, ecn: bool) -> (virtio::Header, Vec<u8>) {
    let mut options = vec![1, 1, 8, 10];
    options.extend_from_slice(&now_us.to_be_bytes());
    options.extend_from_slice(&[0; 4]);
    let payload = burst.count as usize * MSS;
    let ports = (PORT + number as u16, PORT);
    let ecn = if ecn { ECT } else { 0 };
    let bytes = packet(0, ecn, ports, sequence(burst.first), 0, &options, payload);
    let lone = burst.count == 1;
    let header = virtio::Header {
        flags: virtio::FLAG_NEEDS_CSUM,
        gso_type: if lone { virtio::GSO_NONE } else { virtio::GSO_TCPV4 },
        hdr_len: (IP_LEN + TCP_LEN) as u16,
        gso_size: if lone { 0 } else { MSS as u16 },
        csum_start: IP_LEN as u16,
        csum_offset: 16,
    };
    (header, bytes)
}

/// A packet of TCP from `host` to the other, its checksum left to the device.
fn packet(
    host: usize,
    ecn: u8,
    ports: (u16, u16),
    sequence: u32,
    next: u32,
    options: &[u8],
    payload: usize,
) -> Vec<u8> {
    let source = inner(HostId(host)).0;
    let destination = inner(HostId(1 - host)).0;
    let header_len = 20 + options.len();
    let mut upper = Vec::with_capacity(header_len + payload);
    upper.extend_from_slice(&ports.0.to_be_bytes());
    upper.extend_from_slice(&ports.1.to_be_bytes());
    upper.extend_from_slice(&sequence.to_be_bytes());
    upper.extend_from_slice(&next.to_be_bytes());
    upper.extend_from_slice(&[(header_len as u8 / 4) << 4, ACK, 0xff, 0xff]);
    let pseudo = pseudo(source, destination, TCP, (header_len + payload) as u32);
    upper.extend_from_slice(&(!pseudo.checksum()).to_be_bytes());
    upper.extend_from_slice(&[0, 0]);
    upper.extend_from_slice(options);
    upper.resize(header_len + payload, 0);
    let mut bytes = ip_packet(source, destination, TCP, &upper);
    // TCP's packets say that they are not to be cut, and are joined for it.
    bytes[1] = ecn;
    bytes[6] = 0x40;
    bytes[10] = 0;
    bytes[11] = 0;
    let sum = Sum::of(&bytes[..IP_LEN]).checksum();
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
}
