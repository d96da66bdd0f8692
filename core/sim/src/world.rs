//! A world: nodes, the network between them, one clock, one seed.
//!
//! A [`World`] moves from event to event in virtual time. An inner packet is handed to a node;
//! what the node writes into the memory lent to it goes through a translator where the host has
//! one, then into the [`Pipe`] of that direction, and arrives when the pipe says so, at whoever
//! has the address by then. What a node delivers is held against the [`Ledger`]: nothing that was
//! not sent, nothing twice, nothing at the wrong host, nothing from a source that is not the
//! sender's. After every input each node's counters must add up, output must not have been
//! pending unless `poll_timeout` said so, and a host that is down must be silent.
//!
//! Everything follows from the seed. A world that fails panics with its seed and its last events.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use node::{Node, PeerChange, PeerStatus, Prefix, Preshared};
use noise::{Instant, PresharedKey, PublicKey};

use crate::clock::Clock;
use crate::impair::{Impairment, Pipe, Verdict};
use crate::nat::{Behaviour, Nat, Outbound, Protocol};
use crate::rng::Rng;

mod access;
mod fault;
mod host;
mod ledger;
mod managed;
mod net;
pub mod storm;
mod story;
mod told;
mod turn;
mod watch;

pub use access::Ports;
pub use fault::Fault;
pub use host::{DATAGRAM_MAX, MTU, Peering, inner};
pub use ledger::{Ledger, PAYLOAD_MIN, Passed, Route};
pub use story::{Fate, Kind, NOTES_MAX, Note, Story};
pub use watch::Watch;

use host::Host;
pub(crate) use host::Tray;
pub(crate) use ledger::ip_packet;

/// Events that wait, at most: more means a storm of datagrams.
pub const EVENTS_MAX: usize = 1 << 18;
/// Datagrams that a tape holds, at most.
pub const TAPE_MAX: usize = 1 << 17;
/// Bytes of IP and UDP headers around a datagram on the line.
const OUTER_LEN: usize = 28;

/// A machine of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub usize);

/// A translator of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NatId(pub usize);

impl std::fmt::Display for HostId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match u8::try_from(self.0) {
            Ok(number) if number < 26 => write!(f, "{}", char::from(b'a' + number)),
            _ => write!(f, "host{}", self.0),
        }
    }
}

/// Where a line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Host(HostId),
    Nat(NatId),
    /// A STUN server, by its number.
    Stun(usize),
}

/// A stream of packets from one host to another.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Who sends.
    pub from: HostId,
    /// Who shall receive.
    pub to: HostId,
    /// Time between two packets.
    pub gap: Duration,
    /// When it ends.
    pub until: Instant,
    /// Bytes of payload of a packet.
    pub len: usize,
}

#[derive(Debug)]
enum Event {
    Arrival {
        sender: Option<HostId>,
        from: SocketAddr,
        to: SocketAddr,
        bytes: Vec<u8>,
    },
    /// A frame is at a relay or, behind it, at its receiver.
    Relayed {
        sender: HostId,
        to: HostId,
        relay: u32,
        bytes: Vec<u8>,
        is_in: bool,
    },
    /// The map tells of a host's endpoints.
    Published(HostId),
    Flow(Flow),
    Fault(Box<Fault>),
}

/// The world.
pub struct World {
    seed: u64,
    rng: Rng,
    clock: Clock,
    hosts: Vec<Host>,
    nats: Vec<Nat>,
    /// The translator that each of them is behind.
    outer: Vec<Option<NatId>>,
    stun: Vec<SocketAddr>,
    /// Relays, and whether they work.
    relays: Vec<bool>,
    pipes: BTreeMap<(HostId, Place), Pipe>,
    weather: Impairment,
    /// Bytes of the largest IP packet that a line carries; longer ones vanish.
    line_mtu: Option<usize>,
    /// How often, and of what size, each host was told that packets do not fit.
    told: BTreeMap<HostId, (u64, usize)>,
    cuts: BTreeSet<(HostId, HostId)>,
    events: BTreeMap<(Instant, u64), Event>,
    numbered: u64,
    addresses: u32,
    /// Restarts, new keys and the like: each may begin a handshake out of turn.
    resets: u64,
    ledger: Ledger,
    watch: Watch,
    story: Story,
    tray: Tray,
    /// Datagrams that reached a host, while they are recorded.
    tape: Option<Vec<(HostId, Vec<u8>)>>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl World {
    /// An empty world with lines that do nothing but take 10 ms.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            rng: Rng::new(seed),
            clock: Clock::new(1_800_000_000),
            hosts: Vec::new(),
            nats: Vec::new(),
            outer: Vec::new(),
            stun: Vec::new(),
            relays: Vec::new(),
            pipes: BTreeMap::new(),
            weather: Impairment { delay_us: 10_000, ..Impairment::NONE },
            line_mtu: None,
            told: BTreeMap::new(),
            cuts: BTreeSet::new(),
            events: BTreeMap::new(),
            numbered: 0,
            addresses: 0,
            resets: 0,
            ledger: Ledger::default(),
            watch: Watch::default(),
            story: Story::default(),
            tray: Tray::default(),
            tape: None,
        }
    }

    /// A machine with an address of its own, its interface up.
    pub fn host(&mut self, v6: bool) -> HostId {
        let address = self.fresh_address(v6);
        self.add(address, None)
    }

    /// A translator.
    pub fn nat(&mut self, behaviour: Behaviour) -> NatId {
        let SocketAddr::V4(outside) = self.fresh_address(false) else {
            unreachable!("an IPv4 address was asked for");
        };
        self.add_nat(*outside.ip(), behaviour, None)
    }

    /// A machine behind a translator.
    pub fn host_behind(&mut self, nat: NatId) -> HostId {
        let address = self.inside_address(nat);
        self.add(address, Some(nat))
    }

    /// A host speaks frames from now on, also after a restart, or does so no more.
    pub fn set_frames(&mut self, id: HostId, frames: bool) {
        let host = &mut self.hosts[id.0];
        host.frames = frames;
        host.node.set_frames(frames);
    }

    /// A host has instructions for AES from now on, also after a restart, or has them no more.
    pub fn set_aes(&mut self, id: HostId, aes: bool) {
        let host = &mut self.hosts[id.0];
        host.aes = aes;
        host.node.set_aes(aes);
    }

    /// A host compresses from now on, also after a restart, or does so no more.
    pub fn set_compress(&mut self, id: HostId, compress: bool) {
        let host = &mut self.hosts[id.0];
        host.compress = compress;
        host.node.set_compress(compress);
    }

    /// Two hosts become peers with a pre-shared key; each is told where the other is, unless that
    /// one is behind a translator.
    pub fn join(&mut self, a: HostId, b: HostId) {
        let mut key = [0; 32];
        self.rng.fill(&mut key);
        self.meet(a, b, PresharedKey::from_bytes(key));
        self.meet(b, a, PresharedKey::from_bytes(key));
    }

    /// A host is told of another, which may know nothing of it.
    pub fn meet(&mut self, host: HostId, about: HostId, preshared_key: impl Into<Preshared>) {
        let peer = &self.hosts[about.0];
        let (v4, v6) = inner(about);
        let peering = Peering {
            endpoint: peer.nat.is_none().then_some(peer.address),
            keepalive_s: 0,
            preshared_key: preshared_key.into(),
            prefixes: vec![Prefix::host(v4), Prefix::host(v6)],
        };
        self.hosts[host.0].peers.insert(about, peering);
        self.configure(host, about);
    }

    /// Changes what a host was told of a peer, and tells it.
    pub fn alter(&mut self, host: HostId, about: HostId, alter: impl FnOnce(&mut Peering)) {
        if let Some(peering) = self.hosts[host.0].peers.get_mut(&about) {
            alter(peering);
        }
        self.configure(host, about);
    }

    /// The world's time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Lets time pass.
    pub fn run(&mut self, time: Duration) {
        self.run_until(self.now() + time);
    }

    /// Lets time pass until `end`.
    pub fn run_until(&mut self, end: Instant) {
        loop {
            let event = self.events.first_key_value().map(|(&(at, _), _)| at);
            let now = self.now();
            let wakes = self.host_ids().filter_map(|id| {
                let wake = self.hosts[id.0].wake_at(now)?;
                Some((wake, id))
            });
            let wake = wakes.min();
            let next = event.into_iter().chain(wake.map(|wake| wake.0)).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.clock.advance_to(next);
            match (event, wake) {
                (Some(at), _) if at <= next => self.happen(),
                (_, Some((_, id))) => self.wake(id),
                _ => break,
            }
        }
        self.clock.advance_to(end);
    }

    /// Hands a packet for `to` to `from`, over IPv6 for every other length.
    pub fn send(&mut self, from: HostId, to: HostId, len: usize) {
        let route = route(from, to, len % 2 == 1);
        let made = self.ledger.packet(route, len);
        self.hand(from, to, made);
    }

    /// Hands a superpacket of UDP for `to` to `from`, or of TCP where `segments` is even.
    pub fn send_superpacket(&mut self, from: HostId, to: HostId, segments: usize, len: usize) {
        let route = route(from, to, len % 2 == 1);
        let made = self.ledger.superpacket(route, segments, len);
        self.hand(from, to, made);
    }

    /// Hands a packet for `to` to `from` that says it is from `claimed`.
    pub fn send_spoofed(&mut self, from: HostId, to: HostId, claimed: HostId) {
        let own = route(from, to, false);
        let route = Route { source: inner(claimed).0, genuine: false, ..own };
        let made = self.ledger.packet(route, 64);
        self.hand(from, to, made);
    }

    /// Starts a stream of packets.
    pub fn flow(&mut self, flow: Flow) {
        self.schedule(self.now(), Event::Flow(flow));
    }

    /// Makes a change later.
    pub fn fault_at(&mut self, at: Instant, fault: Fault) {
        self.schedule(at, Event::Fault(Box::new(fault)));
    }

    /// What a stranger at `from` sends to a host's address arrives there at once.
    pub fn inject(&mut self, from: SocketAddr, to: HostId, datagram: &[u8]) {
        let mut bytes = self.tray.buffer(datagram.len());
        bytes.copy_from_slice(datagram);
        let from = self.hosts[to.0].endpoint(from).into();
        self.arrive(to, None, from, bytes);
    }

    /// Records every datagram that reaches a host from now on.
    pub fn record(&mut self) {
        self.tape = Some(Vec::new());
    }

    /// Ends the recording.
    pub fn recorded(&mut self) -> Vec<(HostId, Vec<u8>)> {
        self.tape.take().unwrap_or_default()
    }

    /// Weather for every line, those to come included.
    pub fn set_weather(&mut self, weather: Impairment) {
        self.weather = weather;
        for pipe in self.pipes.values_mut() {
            pipe.set_impairment(weather).expect("weather is within its bounds");
        }
    }

    /// Weather for the line from one host to another that has an address of its own.
    pub fn set_weather_from(&mut self, from: HostId, to: HostId, weather: Impairment) {
        let pipe = self.pipe(from, Place::Host(to));
        pipe.set_impairment(weather).expect("weather is within its bounds");
    }

    /// Makes each handshake message cost a host time, as it does on a real one.
    pub fn set_handshake_cost(&mut self, host: HostId, cost: Duration) {
        self.hosts[host.0].handshake_cost = cost;
    }

    /// Inner packets so far.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// From now on the ledger waits for new packets.
    pub fn mark(&mut self) {
        self.ledger.mark();
    }

    /// What can be seen from outside.
    #[must_use]
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// What happened last.
    #[must_use]
    pub fn story(&self) -> &Story {
        &self.story
    }

    /// A host's node.
    #[must_use]
    pub fn node(&self, host: HostId) -> &Node {
        &self.hosts[host.0].node
    }

    /// A host's address, inside its translator if it has one.
    #[must_use]
    pub fn address(&self, host: HostId) -> SocketAddr {
        self.hosts[host.0].address
    }

    /// A host's public key.
    #[must_use]
    pub fn key(&self, host: HostId) -> PublicKey {
        self.hosts[host.0].public_key()
    }

    /// What a host says of a peer.
    #[must_use]
    pub fn status(&self, host: HostId, about: HostId) -> Option<PeerStatus> {
        let key = self.key(about);
        let now = self.now();
        let peers = self.hosts[host.0].node.peers(now, Duration::ZERO);
        peers.into_iter().find(|status| status.key == key)
    }

    /// Ends the world with its story.
    pub fn fail(&self, what: &str) -> ! {
        panic!("seed {}: {what}\n{}", self.seed, self.story)
    }

    fn add(&mut self, address: SocketAddr, nat: Option<NatId>) -> HostId {
        let random = self.rng.fork(self.hosts.len() as u64);
        self.hosts.push(Host::new(address, nat, random));
        HostId(self.hosts.len() - 1)
    }

    fn host_ids(&self) -> impl Iterator<Item = HostId> + use<> {
        (0..self.hosts.len()).map(HostId)
    }

    /// An address that nobody has had.
    fn fresh_address(&mut self, v6: bool) -> SocketAddr {
        self.addresses += 1;
        let number = self.addresses;
        let port = 1024 + self.rng.below(60_000) as u16;
        let ip: IpAddr = if v6 {
            Ipv6Addr::from_bits((0x2001_0db8 << 96) | u128::from(number) << 64 | 1).into()
        } else {
            Ipv4Addr::from_bits(0xc612_0000 + number).into()
        };
        SocketAddr::new(ip, port)
    }

    fn inside_address(&mut self, nat: NatId) -> SocketAddr {
        self.addresses += 1;
        let [.., high, low] = self.addresses.to_be_bytes();
        let net = u8::try_from(nat.0).expect("worlds are small");
        let port = 1024 + self.rng.below(60_000) as u16;
        // Nets behind translators differ, so that an address names one host.
        SocketAddr::new(Ipv4Addr::new(10, 128 + net, high, low).into(), port)
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        if self.events.len() >= EVENTS_MAX {
            self.fail("too many events wait");
        }
        self.numbered += 1;
        self.events.insert((at, self.numbered), event);
    }

    fn tell(&mut self, what: String) {
        self.story.tell(self.clock.now(), Note::Fault(what));
    }

    fn note(&mut self, note: Note) {
        self.story.tell(self.clock.now(), note);
    }

    /// The first event that waits.
    fn happen(&mut self) {
        let Some((_, event)) = self.events.pop_first() else { return };
        match event {
            Event::Fault(fault) => self.fault(&fault),
            Event::Flow(flow) => {
                if self.now() < flow.until {
                    self.send(flow.from, flow.to, flow.len);
                    self.schedule(self.now() + flow.gap, Event::Flow(flow));
                }
            }
            Event::Relayed { sender, to, relay, bytes, is_in } => {
                self.relayed(sender, to, relay, bytes, is_in);
            }
            Event::Published(host) => self.published(host),
            Event::Arrival { from, to, bytes, .. } if self.is_stun(to) => {
                self.answer_stun(from, to, bytes);
            }
            Event::Arrival { sender, from, to, bytes } => match self.receiver(sender, from, to) {
                Ok(host) => {
                    let from = self.hosts[host.0].endpoint(from).into();
                    self.arrive(host, sender, from, bytes);
                }
                Err(fate) => {
                    self.note(Note::Ended(to, Kind::of(&bytes), fate));
                    self.tray.give_back(bytes);
                }
            },
        }
    }

    /// Tells a host again what it was told of a peer.
    fn configure(&mut self, id: HostId, about: HostId) {
        let key = self.hosts[about.0].public_key();
        let host = &mut self.hosts[id.0];
        let Some(peering) = host.peers.get(&about) else { return };
        let change = peering.change(key);
        let done = host.node.change_peer(&change, &mut host.random);
        if done.is_err() {
            self.fail("a node did not take a peer");
        }
        self.drain(id);
    }

    fn forget_peer(&mut self, id: HostId, key: PublicKey) {
        let host = &mut self.hosts[id.0];
        host.forgot = true;
        let change = PeerChange { remove: true, ..PeerChange::new(key) };
        if host.node.change_peer(&change, &mut host.random).is_err() {
            self.fail("a node did not forget a peer");
        }
        self.drain(id);
    }
}

fn route(from: HostId, to: HostId, v6: bool) -> Route {
    let source = inner(from);
    let destination = inner(to);
    let (source, destination) =
        if v6 { (source.1, destination.1) } else { (source.0, destination.0) };
    Route { from, to, source, destination, genuine: true }
}
