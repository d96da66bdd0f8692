//! Edges that one process plays. A machine has no room for a thousand daemons, and their hub cannot
//! tell: each edge is a node of ours, with keys, a membership, a socket and a link of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use control::{Map, Token};
use dial::{Membership, SystemRandom};
use lab::netns::Host;
use lab::sys;
use node::{
    AllowedIp, Candidate, Clock, Destination, Endpoint, Inbox, Node, Outbox, PeerChange, Prefix,
    Reach,
};
use noise::{Identity, Instant, PrivateKey};
use wire::checksum::Sum;
use wire::virtio;

use crate::crowd;

/// The hub's name in the network.
pub(super) const HUB: &str = "hub";
/// Each edge echoes so often.
const EVERY: Duration = Duration::from_secs(1);
/// Between two looks at all sockets.
const GLANCE: Duration = Duration::from_millis(20);
/// How often an edge reads what the server told it.
const NEWS_EVERY: Duration = Duration::from_millis(200);
/// Inside a link, as a daemon has it, bytes.
const MTU: usize = 1420;
/// Where a datagram lies in the memory that is lent for it.
const LEAD: usize = 64;
const MEMORY: usize = 4096;
const FIRST_PORT: u16 = 20_000;

/// What became of all of them.
#[derive(Debug, Default)]
struct Counts {
    is_over: AtomicBool,
    /// Edges that had an answer.
    reached: AtomicUsize,
    /// Echoes.
    asked: AtomicU64,
    answered: AtomicU64,
}

/// Edges at work; they end with it.
#[derive(Debug)]
pub(super) struct Edges {
    count: usize,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Edges {
    /// Lets so many join from a host that has the address `at`.
    pub(super) fn start(host: &Host, at: Ipv4Addr, token: &Token, count: usize) -> Result<Self> {
        let begun: Result<Vec<Begun>> = sys::in_netns(&host.path(), || {
            (FIRST_PORT..).take(count).map(|port| Begun::new(at, port, token)).collect()
        })?;
        let begun = begun?;
        let counts = Arc::new(Counts::default());
        let told = Arc::clone(&counts);
        let thread = std::thread::Builder::new().name("edges".to_owned());
        let thread = thread.spawn(move || run(begun, &told)).context("cannot start a thread")?;
        Ok(Self { count, counts, thread: Some(thread) })
    }

    /// Waits until each had an answer.
    pub(super) fn until_all_reached(&self, limit: Duration) -> Result<()> {
        let begin = std::time::Instant::now();
        loop {
            let reached = self.counts.reached.load(Ordering::Relaxed);
            if reached == self.count {
                return Ok(());
            }
            sys::check_interrupted()?;
            let has_ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            ensure!(!has_ended, "the edges ended after {reached} of {} were reached", self.count);
            ensure!(begin.elapsed() < limit, "{reached} of {} edges reach the hub", self.count);
            std::thread::sleep(GLANCE);
        }
    }

    /// Echoes so far, and answers.
    pub(super) fn echoes(&self) -> [u64; 2] {
        [&self.counts.asked, &self.counts.answered].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Drop for Edges {
    fn drop(&mut self) {
        self.counts.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An edge that joins.
struct Begun {
    own: SocketAddr,
    key: PrivateKey,
    socket: UdpSocket,
    member: Membership,
}

impl Begun {
    fn new(at: Ipv4Addr, port: u16, token: &Token) -> Result<Self> {
        let own = SocketAddr::new(at.into(), port);
        let socket = UdpSocket::bind(own).context("a socket of an edge")?;
        socket.set_nonblocking(true)?;
        let key = crowd::key();
        let start = crowd::start(token, &key, &format!("edge-{port}"), vec![own]);
        let member = Membership::start(start).context("cannot start a member")?;
        Ok(Self { own, key, socket, member })
    }
}

struct Edge {
    own: SocketAddr,
    socket: UdpSocket,
    member: Membership,
    node: Node,
    inbox: Inbox,
    /// Its address in the network and the hub's, once they are known.
    way: Option<[Ipv4Addr; 2]>,
    news_at: Instant,
    echo_at: Instant,
    number: u16,
    is_reached: bool,
}

impl Edge {
    fn new(begun: Begun, first: Instant) -> Self {
        let Begun { own, key, socket, member } = begun;
        let mut node = Node::new();
        node.set_mtu(MTU);
        node.set_frames(true);
        node.set_listen_port(own.port());
        node.set_identity(Some(Identity::new(key)), &mut SystemRandom);
        node.set_up(true, &mut SystemRandom);
        Self {
            own,
            socket,
            member,
            node,
            inbox: Inbox::default(),
            way: None,
            news_at: first,
            echo_at: first,
            number: 0,
            is_reached: false,
        }
    }

    /// Takes what the server told of the hub.
    fn hear(&mut self, map: &Map, now: Instant) -> Result<()> {
        let Some(hub) = map.peers.iter().find(|peer| peer.name == HUB) else { return Ok(()) };
        let all = hub.addresses.iter().map(|address| AllowedIp::give(Prefix::host(*address)));
        let allowed_ips = all.collect();
        let change =
            PeerChange { replace_allowed_ips: true, allowed_ips, ..PeerChange::new(hub.key) };
        if let Err(why) = self.node.change_peer(&change, &mut SystemRandom) {
            bail!("the hub is no peer: {why}");
        }
        self.node.set_reach(Reach { local: vec![self.own], ..Reach::default() }, now);
        let candidates: Vec<Candidate> =
            hub.endpoints.iter().copied().map(Candidate::Udp).collect();
        self.node.set_candidates(&hub.key, &candidates, now);
        let ends = [&map.me.addresses, &hub.addresses].map(|all| first_v4(all));
        if let [Some(own), Some(hub)] = ends {
            self.way = Some([own, hub]);
        }
        Ok(())
    }

    /// Does what is due, and sends what comes of it.
    fn turn(&mut self, clock: Clock, memory: &mut [u8], out: &mut Out, counts: &Counts) {
        while let Ok((len, from)) = self.socket.recv_from(&mut memory[LEAD..]) {
            let from = Destination::Udp(Endpoint::new(from));
            let range = LEAD..LEAD + len;
            let Self { node, inbox, .. } = self;
            node.handle_datagram(from, memory, range, clock, &mut SystemRandom, inbox, out);
            self.deliver(memory, counts);
        }
        if let Some(way) = self.way.filter(|_| self.echo_at <= clock.now) {
            self.echo_at = clock.now + EVERY;
            self.number = self.number.wrapping_add(1);
            counts.asked.fetch_add(1, Ordering::Relaxed);
            let mut echo = echo(way, self.number);
            self.node.handle_packet(virtio::Header::default(), &mut echo, clock.now, out);
        }
        if self.node.poll_timeout().is_some_and(|due| due <= clock.now) {
            self.node.handle_timeout(clock.now);
            self.deliver(memory, counts);
        }
        self.node.handle_handshakes(usize::MAX, clock, &mut SystemRandom, out);
        self.node.handle_actions(clock, &mut SystemRandom, out);
        for (to, datagram) in out.sent.drain(..) {
            // What a full socket refuses is lost, as on any line.
            let _ = self.socket.send_to(&datagram, to);
        }
    }

    fn deliver(&mut self, memory: &mut [u8], counts: &Counts) {
        loop {
            let packets = self.inbox.take_packets(memory);
            let answers = packets.iter().filter(|packet| is_answer(packet)).count();
            counts.answered.fetch_add(answers as u64, Ordering::Relaxed);
            if answers > 0 && !self.is_reached {
                self.is_reached = true;
                counts.reached.fetch_add(1, Ordering::Relaxed);
            }
            if !self.node.poll_packets(&mut self.inbox) && self.inbox.is_empty() {
                return;
            }
        }
    }
}

/// Datagrams of one edge on their way to its socket.
#[derive(Debug, Default)]
struct Out {
    slot: Option<(SocketAddr, Vec<u8>)>,
    sent: Vec<(SocketAddr, Vec<u8>)>,
}

impl Outbox for Out {
    fn reserve(&mut self, to: &Destination, len: usize) -> Option<&mut [u8]> {
        // An edge knows no relay, and nothing else that would carry it.
        let to = to.udp()?.remote;
        let slot = self.slot.insert((to, vec![0; len]));
        Some(&mut slot.1)
    }

    fn commit(&mut self) {
        self.sent.extend(self.slot.take());
    }
}

fn run(begun: Vec<Begun>, counts: &Counts) -> Result<()> {
    let begin = std::time::Instant::now();
    // A clock that begins at zero would be before what lies behind it.
    let now = || Instant(0) + EVERY + begin.elapsed();
    // They do not all speak at once.
    let gap = EVERY / u32::try_from(begun.len().max(1))?;
    let first = (0..).map(|n| now() + gap * n);
    let mut edges: Vec<Edge> =
        begun.into_iter().zip(first).map(|both| Edge::new(both.0, both.1)).collect();
    let mut memory = [0; MEMORY];
    let mut out = Out::default();
    while !counts.is_over.load(Ordering::Relaxed) {
        for edge in &mut edges {
            let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
            let wall = noise::Tai64n::from_unix(unix.as_secs(), unix.subsec_nanos());
            let clock = Clock { now: now(), wall };
            if edge.news_at <= clock.now {
                edge.news_at = clock.now + NEWS_EVERY;
                while let Some(news) = edge.member.wait(Duration::ZERO) {
                    if let Some(map) = news.map {
                        edge.hear(&map, clock.now)?;
                    }
                }
            }
            edge.turn(clock, &mut memory, &mut out, counts);
        }
        std::thread::sleep(GLANCE);
    }
    Ok(())
}

fn first_v4(addresses: &[IpAddr]) -> Option<Ipv4Addr> {
    addresses.iter().find_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    })
}

/// An echo request of ICMP (RFC 792) between two addresses.
fn echo(way: [Ipv4Addr; 2], number: u16) -> Vec<u8> {
    let mut message = [8, 0, 0, 0, 0, 1, 0, 0].to_vec();
    message[6..].copy_from_slice(&number.to_be_bytes());
    message.extend([0x5a; 56]);
    let sum = Sum::of(&message).checksum();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = [0x45, 0, 0, 84, 0, 0, 0x40, 0, 64, 1, 0, 0].to_vec();
    packet.extend(way.iter().flat_map(Ipv4Addr::octets));
    let sum = Sum::of(&packet).checksum();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(message);
    packet
}

/// Whether a packet answers an echo.
fn is_answer(packet: &[u8]) -> bool {
    packet.first() == Some(&0x45) && packet.get(9) == Some(&1) && packet.get(20) == Some(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_is_a_packet_whose_sums_are_right() {
        let way = [Ipv4Addr::new(100, 64, 0, 2), Ipv4Addr::new(100, 64, 0, 1)];
        let mut packet = echo(way, 7);
        assert_eq!(packet.len(), 84);
        assert!(Sum::of(&packet[..20]).is_valid() && Sum::of(&packet[20..]).is_valid());
        assert_eq!(packet[26..28], [0, 7]);
        assert!(wire::packet::parse(&packet).is_ok());
        assert!(!is_answer(&packet) && !is_answer(&[]));
        packet[20] = 0;
        assert!(is_answer(&packet));
    }
}
