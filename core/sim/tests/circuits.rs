//! Circuits over nodes and impaired lines in virtual time, with an oracle that knows who sent what
//! to whom: what leaves where it must not, or is seen where it must not be, fails with its seed.

#[path = "circuits/turns.rs"]
mod turns;

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use node::circuit::{CircuitId, Drop, EXIT_ADDRESS, ExitRules, Standing, State};
use node::{Clock, Destination, Endpoint, Inbox, Node, Outbox, PeerChange};
use noise::{Identity, Instant, PrivateKey, PublicKey, Tai64n};
use sim::impair::{Impairment, Pipe, Verdict};
use sim::rng::Rng;
use wire::virtio;

const CLIENTS: usize = 2;
const NODES: usize = 7;
const SERVER: [u8; 3] = [203, 0, 113];
const MARKER: &[u8] = b"what only the two ends may read";
const SEEDS: u64 = 12;

#[derive(Default)]
struct Tray {
    slot: Option<(Destination, Vec<u8>)>,
    sent: Vec<(Destination, Vec<u8>)>,
    /// For so many datagrams more, where that is bounded.
    room: Option<usize>,
}

impl Outbox for Tray {
    fn reserve(&mut self, to: &Destination, len: usize) -> Option<&mut [u8]> {
        if self.room == Some(0) {
            return None;
        }
        let slot = self.slot.insert((*to, vec![0xaa; len]));
        Some(&mut slot.1)
    }

    fn commit(&mut self) {
        self.sent.extend(self.slot.take());
        self.room = self.room.map(|room| room.saturating_sub(1));
    }
}

/// What was sent, by its number.
struct Sent {
    client: usize,
    circuit: CircuitId,
    server: Ipv4Addr,
    exit: usize,
    at: Instant,
    left: bool,
    /// How long it was on its way.
    took: Option<Duration>,
    came_back: bool,
}

/// A datagram under way: when it arrives, its order, from whom, to whom.
type Arrival = (u64, u64, usize, usize, Vec<u8>);

struct World {
    seed: u64,
    now: Instant,
    rng: Rng,
    nodes: Vec<Node>,
    randoms: Vec<Rng>,
    keys: Vec<PublicKey>,
    pipes: BTreeMap<(usize, usize), Pipe>,
    /// Arrivals, the earliest first.
    queue: BinaryHeap<std::cmp::Reverse<Arrival>>,
    order: u64,
    dead: BTreeSet<usize>,
    /// How many datagrams sockets take, where that is bounded.
    rooms: BTreeMap<usize, usize>,
    sent: BTreeMap<u32, Sent>,
    /// Handshakes that were begun.
    initiations: usize,
    /// Datagrams as long as a full cell, by line.
    large: BTreeMap<(usize, usize), usize>,
}

fn address(of: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, of as u8 + 1], 41_820))
}

fn who(at: SocketAddr) -> usize {
    let SocketAddr::V4(at) = at else { panic!("only IPv4") };
    usize::from(at.ip().octets()[3]) - 1
}

fn has(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|part| part == what)
}

fn udp(from: Ipv4Addr, to: Ipv4Addr, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let len = (28 + payload.len()) as u16;
    let mut bytes = vec![0x45, 0, 0, 0, 7, 7, 0, 0, 64, 17, 0, 0];
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
    bytes.extend(from.octets());
    bytes.extend(to.octets());
    let sum = wire::checksum::Sum::of(&bytes).checksum();
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(ports.0.to_be_bytes());
    bytes.extend(ports.1.to_be_bytes());
    bytes.extend((len - 20).to_be_bytes());
    // UDP over IPv4 may have no checksum.
    bytes.extend([0, 0]);
    bytes.extend(payload);
    bytes
}

impl World {
    fn new(seed: u64) -> Self {
        noise::forget_nonces();
        let mut rng = Rng::new(seed);
        let mut randoms: Vec<Rng> = (0..NODES).map(|at| rng.fork(at as u64)).collect();
        let privates: Vec<_> = randoms.iter_mut().map(|r| PrivateKey::generate(r)).collect();
        let keys: Vec<_> = privates.iter().map(PrivateKey::public).collect();
        let now = Instant::ZERO.after(Duration::from_secs(1000));
        let weather = Impairment {
            delay_us: 1000 + rng.below(20_000),
            jitter_us: rng.below(1000),
            loss: rng.below(6) as f64 / 100.0,
            ..Impairment::NONE
        };
        let mut nodes = Vec::new();
        let mut pipes = BTreeMap::new();
        for (at, private) in privates.into_iter().enumerate() {
            let random = &mut randoms[at];
            let mut node = Node::new();
            node.set_mtu(1420);
            node.set_frames(true);
            node.set_identity(Some(Identity::new(private)), random);
            node.set_up(true, random);
            let is_hop = at >= CLIENTS;
            let rules = ExitRules {
                refused: vec!["192.0.2.0/24".parse().expect("a prefix")],
                ..Default::default()
            };
            node.set_circuit_roles(is_hop, is_hop.then_some(rules));
            for peer in (0..NODES).filter(|peer| *peer != at) {
                // Clients do not know each other.
                if !is_hop && peer < CLIENTS {
                    continue;
                }
                let change =
                    PeerChange { endpoint: Some(address(peer)), ..PeerChange::new(keys[peer]) };
                node.change_peer(&change, random).expect("there is room");
                let standing = Standing { uses: peer < CLIENTS, hop: peer >= CLIENTS };
                node.set_circuit_standing(&keys[peer], standing, random);
                pipes.insert((at, peer), Pipe::new(weather, rng.next_u64()).expect("good"));
            }
            nodes.push(node);
        }
        Self {
            seed,
            now,
            rng,
            nodes,
            randoms,
            keys,
            pipes,
            queue: BinaryHeap::new(),
            order: 0,
            dead: BTreeSet::new(),
            rooms: BTreeMap::new(),
            sent: BTreeMap::new(),
            initiations: 0,
            large: BTreeMap::new(),
        }
    }

    fn clock(&self) -> Clock {
        let ns = self.now.0;
        let wall =
            Tai64n::from_unix(1_800_000_000 + ns / 1_000_000_000, (ns % 1_000_000_000) as u32);
        Clock { now: self.now, wall }
    }

    fn tray(&self, at: usize) -> Tray {
        Tray { room: self.rooms.get(&at).copied(), ..Tray::default() }
    }

    /// Takes all that a node puts out, until it wants nothing more.
    fn drain(&mut self, at: usize) {
        let clock = self.clock();
        let mut tray = self.tray(at);
        for _ in 0..64 {
            let random = &mut self.randoms[at];
            self.nodes[at].handle_handshakes(usize::MAX, clock, random, &mut tray);
            self.nodes[at].handle_actions(clock, random, &mut tray);
            if self.nodes[at].poll_timeout().is_none_or(|due| due > self.now) {
                break;
            }
            self.nodes[at].handle_timeout(self.now);
        }
        self.emit(at, tray);
    }

    fn emit(&mut self, at: usize, tray: Tray) {
        if let Some(room) = tray.room {
            self.rooms.insert(at, room);
        }
        for (to, bytes) in tray.sent {
            let Some(Endpoint { remote, .. }) = to.udp() else {
                panic!("seed {}: {to:?}", self.seed)
            };
            let to = who(remote);
            self.look(at, to, &bytes);
            let Some(pipe) = self.pipes.get_mut(&(at, to)) else {
                panic!("seed {}: {at} sends to {to}, whom it does not know", self.seed);
            };
            let mut arrivals = Vec::new();
            if let Verdict::Deliver { at_ns, again_at_ns } = pipe.offer(self.now.0, bytes.len()) {
                arrivals.push(at_ns);
                arrivals.extend(again_at_ns);
            }
            for ns in arrivals {
                self.order += 1;
                self.queue.push(std::cmp::Reverse((ns, self.order, at, to, bytes.clone())));
            }
        }
    }

    /// Whoever watches a line sees neither what is said nor who says it to whom (003.5, 10).
    fn look(&mut self, from: usize, to: usize, bytes: &[u8]) {
        self.initiations += usize::from(bytes[0] == 1);
        *self.large.entry((from, to)).or_default() += usize::from(bytes.len() > 1_400);
        let secrets = self.keys.iter().map(|key| &key.0[..]).chain([MARKER, &b"the hop"[..]]);
        for secret in secrets {
            assert!(!has(bytes, secret), "seed {}: {from} to {to} shows {secret:02x?}", self.seed);
        }
    }

    fn arrive(&mut self, from: usize, to: usize, mut bytes: Vec<u8>) {
        if self.dead.contains(&to) || self.dead.contains(&from) {
            return;
        }
        let clock = self.clock();
        let mut tray = self.tray(to);
        let mut inbox = Inbox::default();
        // Where layers are added a frame grows in its place.
        let len = bytes.len();
        bytes.resize(len + 64, 0);
        let from = Destination::from(Endpoint::new(address(from)));
        let random = &mut self.randoms[to];
        self.nodes[to].handle_datagram(
            from,
            &mut bytes,
            0..len,
            clock,
            random,
            &mut inbox,
            &mut tray,
        );
        for packet in inbox.take_packets(&mut bytes) {
            self.deliver(to, &packet);
        }
        self.emit(to, tray);
        self.drain(to);
    }

    /// A machine is handed a packet: the oracle knows whether that may be.
    fn deliver(&mut self, at: usize, packet: &[u8]) {
        let seed = self.seed;
        assert!(packet[28..].starts_with(MARKER), "seed {seed}: {at} was handed something else");
        let number = packet[28 + MARKER.len()..].first_chunk().map(|b| u32::from_be_bytes(*b));
        let number = number.expect("a number");
        let source = Ipv4Addr::new(packet[12], packet[13], packet[14], packet[15]);
        let to = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
        let ports = [20, 22].map(|at| u16::from_be_bytes([packet[at], packet[at + 1]]));
        let sent = self.sent.get_mut(&number).expect("somebody sent it");
        if at >= CLIENTS {
            assert_eq!((at, to), (sent.exit, sent.server), "seed {seed}: it left elsewhere");
            assert_eq!(source, EXIT_ADDRESS, "seed {seed}: the exit shows who sent it");
            assert!(!std::mem::replace(&mut sent.left, true), "seed {seed}: it left twice");
            sent.took = Some(self.now.since(sent.at));
            let answer = udp(sent.server, EXIT_ADDRESS, (ports[1], ports[0]), &packet[28..]);
            self.hand(at, answer);
        } else {
            assert_eq!(at, sent.client, "seed {seed}: another client has it");
            let local = node::circuit::local_address(sent.circuit);
            assert_eq!((source, to), (sent.server, local), "seed {seed}: of another circuit");
            assert!(!std::mem::replace(&mut sent.came_back, true), "seed {seed}: it came twice");
        }
    }

    fn hand(&mut self, at: usize, mut packet: Vec<u8>) {
        let mut tray = self.tray(at);
        let now = self.now;
        self.nodes[at].handle_packet(virtio::Header::default(), &mut packet, now, &mut tray);
        self.emit(at, tray);
        self.drain(at);
    }

    /// Lets time pass.
    fn run(&mut self, time: Duration) {
        let end = self.now.after(time);
        loop {
            let arrival = self.queue.peek().map(|next| Instant(next.0.0));
            let wake = (0..NODES)
                .filter(|at| !self.dead.contains(at))
                .filter_map(|at| Some((self.nodes[at].poll_timeout()?.max(self.now), at)))
                .min();
            let next = arrival.into_iter().chain(wake.map(|(at, _)| at)).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            if arrival == Some(next) {
                let Some(std::cmp::Reverse((.., from, to, bytes))) = self.queue.pop() else {
                    break;
                };
                self.arrive(from, to, bytes);
            } else if let Some((_, at)) = wake {
                self.nodes[at].handle_timeout(self.now);
                self.drain(at);
            }
        }
        self.now = end;
    }

    fn open(&mut self, client: usize, path: &[usize]) -> CircuitId {
        let path: Vec<PublicKey> = path.iter().map(|at| self.keys[*at]).collect();
        let now = self.now;
        let random = &mut self.randoms[client];
        let id = self.nodes[client].open_circuit(&path, None, now, random).expect("a path");
        self.drain(client);
        id
    }

    /// Opens one, and again where a handshake was lost on a cold link.
    fn built(&mut self, client: usize, path: &[usize]) -> CircuitId {
        for _ in 0..8 {
            let id = self.open(client, path);
            for _ in 0..20 {
                self.run(Duration::from_millis(400));
                if self.is_open(client, id) {
                    return id;
                }
            }
        }
        panic!("{path:?} is not built");
    }

    fn is_open(&self, client: usize, id: CircuitId) -> bool {
        self.nodes[client].circuits().status(id).is_some_and(|now| now.state == State::Open)
    }

    fn path(&mut self) -> Vec<usize> {
        let mut hops: Vec<usize> = (CLIENTS..NODES).collect();
        let len = 1 + self.rng.below(4) as usize;
        (0..len).map(|_| hops.swap_remove(self.rng.below(hops.len() as u64) as usize)).collect()
    }

    fn send(&mut self, client: usize, circuit: CircuitId, exit: usize) {
        let len = self.rng.below(1200) as usize;
        self.send_len(client, circuit, exit, len);
    }

    /// A datagram with `len` bytes behind the marker.
    fn send_len(&mut self, client: usize, circuit: CircuitId, exit: usize, len: usize) {
        let number = self.sent.len() as u32;
        let server = Ipv4Addr::new(SERVER[0], SERVER[1], SERVER[2], 1 + self.rng.below(250) as u8);
        let mut payload = [MARKER, &number.to_be_bytes()].concat();
        payload.resize(payload.len() + len, 7);
        let from = node::circuit::local_address(circuit);
        let ports = (4000 + self.rng.below(3) as u16, 443);
        let (at, left, took, came_back) = (self.now, false, None, false);
        let sent = Sent { client, circuit, server, exit, at, left, took, came_back };
        self.sent.insert(number, sent);
        self.hand(client, udp(from, server, ports, &payload));
    }
}

#[test]
fn ci_05_nothing_of_circuits_is_seen_and_nothing_goes_astray_in_any_weather() {
    for seed in 1..=SEEDS {
        let mut world = World::new(seed);
        let mut open: Vec<(usize, CircuitId, usize)> = Vec::new();
        for _ in 0..120 {
            match world.rng.below(10) {
                0 | 1 if open.len() < 24 => {
                    let client = world.rng.below(CLIENTS as u64) as usize;
                    let path = world.path();
                    let id = world.open(client, &path);
                    open.push((client, id, path[path.len() - 1]));
                }
                2 if !open.is_empty() => {
                    let at = world.rng.below(open.len() as u64) as usize;
                    let (client, id, _) = open.swap_remove(at);
                    let now = world.now;
                    world.nodes[client].close_circuit(id, true, now);
                    world.drain(client);
                }
                3 if world.dead.is_empty() => {
                    let hop = CLIENTS + world.rng.below((NODES - CLIENTS) as u64) as usize;
                    world.dead.insert(hop);
                }
                4 => world.dead.clear(),
                _ => {}
            }
            for (client, id, exit) in open.clone() {
                if world.is_open(client, id) {
                    world.send(client, id, exit);
                }
            }
            let ms = 20 + world.rng.below(500);
            world.run(Duration::from_millis(ms));
        }
        let left = world.sent.values().filter(|sent| sent.left).count();
        let back = world.sent.values().filter(|sent| sent.came_back).count();
        assert!(
            left > 50 && back * 3 > left,
            "seed {seed}: of {} {left} left, {back} came back",
            world.sent.len()
        );
        // All is forgotten once circuits are closed, or silent.
        world.dead.clear();
        for (client, id, _) in open {
            let now = world.now;
            world.nodes[client].close_circuit(id, true, now);
            world.drain(client);
        }
        world.run(Duration::from_secs(45));
        for (at, node) in world.nodes.iter().enumerate() {
            assert_eq!(node.circuits().carried(), (0, 0), "seed {seed}: {at} remembers circuits");
        }
    }
}

/// Circuits are inside the links that there are: that one more is built shows by no handshake.
#[test]
fn ci_05_a_circuit_that_is_built_shows_by_no_handshake() {
    let mut world = World::new(99);
    for path in [[2, 3, 4], [4, 5, 6], [6, 2, 5], [3, 6, 4]] {
        let id = world.built(0, &path);
        world.send(0, id, path[2]);
        world.run(Duration::from_secs(1));
    }
    let before = world.initiations;
    assert!(before > 0, "the control: links are made by handshakes");
    let mut ids = Vec::new();
    for _ in 0..16 {
        ids.push(world.open(0, &[2, 3, 4]));
        world.run(Duration::from_millis(400));
    }
    world.run(Duration::from_secs(2));
    assert!(ids.iter().filter(|id| world.is_open(0, **id)).count() >= 15);
    assert_eq!(world.initiations, before, "a handshake for a circuit");
}

/// The first datagrams of a link are lost as any others: no end waits for what will not come.
#[test]
fn a_circuit_over_links_that_are_cold_is_built_in_any_weather() {
    for seed in 1..=40 {
        let mut world = World::new(seed);
        let path = world.path();
        world.built(1, &path);
    }
}

/// No repair and no compression inside circuits: who sends into one is no amplifier.
#[test]
fn ci_18_a_cell_is_one_datagram_on_each_line_whatever_that_loses() {
    let mut world = World::new(5);
    let id = world.built(0, &[2, 3, 4]);
    for pair in [(0, 2), (2, 3), (3, 4)] {
        let lossy = Impairment { loss: 0.05, delay_us: 5_000, ..Impairment::NONE };
        world.pipes.insert(pair, Pipe::new(lossy, pair.0 as u64).expect("good"));
    }
    world.run(Duration::from_secs(2));
    world.large.clear();
    for _ in 0..2_000 {
        world.send_len(0, id, 4, 1_200);
        world.run(Duration::from_millis(2));
    }
    let counts = [(0, 2), (2, 3), (3, 4)].map(|pair| world.large.get(&pair).copied());
    let [Some(first), Some(second), Some(third)] = counts else { panic!("{counts:?}") };
    assert_eq!(first, 2_000);
    assert!((1_800..first).contains(&second) && (1_700..second).contains(&third), "{counts:?}");
}

#[test]
fn the_world_notices_what_it_should() {
    let mut world = World::new(7);
    let id = world.open(0, &[2]);
    world.run(Duration::from_secs(5));
    assert!(world.is_open(0, id));
    world.send(0, id, 3);
    let elsewhere = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        world.run(Duration::from_secs(2));
    }));
    assert!(elsewhere.is_err(), "it left at 2, and the oracle was told 3");
    let mut world = World::new(8);
    let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        world.look(0, 2, &[&[4; 20], MARKER].concat());
    }));
    assert!(shown.is_err(), "the marker on a line");
}
