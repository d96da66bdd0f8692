//! The node.
//!
//! Stages, in the order in which they appear below: `handle_packet` (out), `handle_datagram`
//! (in), `handle_handshakes`, `handle_timeout`, `handle_actions`. What configures a node is in
//! `configure`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use circuit::Circuits;
use link::{
    Budget, Destination, Endpoint, Inbox, Judge, Link, ORDER, Outbox, Outcome, PieceCounters,
    REPAIR_PERCENT, Refusal, Tuning, World,
};
use noise::{
    Admission, Drop, Gate, Identity, Index, Indices, Instant, PeerId, Random, read_initiation,
};
use policy::Direction;
use wire::ip::protocol;
use wire::packet::{Packet, Transport};
use wire::wireguard::{self, Message};
use wire::{frame, packet, superpacket, tcp, virtio};

use crate::allowed;
use crate::circles::Circles;
use crate::config::{Clock, PeerChange, PeerStatus, Prefix};
use crate::counters::{Counters, Reason};
use crate::overrun::Overruns;
use crate::peers::Peers;
use crate::reach::Asker;
use crate::shape::{Held, Shaper};
use crate::timers::Timers;

/// Peers of a node, at most, as for the kernel's WireGuard.
pub const PEERS_MAX: usize = 1 << 20;
/// Handshake messages that wait for their Diffie-Hellman, at most.
pub const HANDSHAKES_MAX: usize = 1024;
/// Bytes of what waits in all links together, at most, beyond 384 KiB that each may have: 25 fill
/// their bounds at once.
pub const WAITING_BYTES_MAX: usize = 256 << 20;
/// From so many on we are under load, and for [`LOAD_TIME`] afterwards.
const LOAD_AT: usize = HANDSHAKES_MAX / 8;
const LOAD_TIME: Duration = Duration::from_secs(1);

/// A handshake message that passed the gate.
#[derive(Debug)]
enum Waiting {
    Initiation(Destination, Box<[u8; wireguard::INITIATION_LEN]>),
    Response(Destination, PeerId, Box<[u8; wireguard::RESPONSE_LEN]>),
}

/// One machine.
pub struct Node {
    identity: Option<Identity>,
    gate: Option<Gate>,
    indices: Indices,
    peers: Peers,
    allowed: allowed::Table,
    circles: Circles,
    guard: Guard,
    tables: Tables,
    receivers: Receivers,
    shaper: Shaper,
    turn: Turn,
    /// Counts changes of what peers may send: of the policy, or of who owns which addresses.
    rules: u32,
    handshakes: VecDeque<Waiting>,
    loaded_until: Instant,
    timers: Timers,
    /// Peers that may want something done.
    touched: Vec<PeerId>,
    /// Peers of whose frames packets may be ready.
    ready: Vec<PeerId>,
    mtu: usize,
    listen_port: u16,
    up: bool,
    frames: bool,
    aes: bool,
    compress: bool,
    hold: Duration,
    order: Duration,
    repair_percent: u8,
    tuning: &'static Tuning,
    /// Memory for what waits in all links.
    budget: Budget,
    overrun: Overruns,
    reach: Asker,
    circuits: Circuits,
    guests: Guests,
    soundings: Soundings,
    /// What our own machine is told about packets that do not fit.
    replies: VecDeque<Vec<u8>>,
    counters: Counters,
    /// What came in frames of peers that are gone.
    pieces_gone: PieceCounters,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("peers", &self.peers.len()).finish_non_exhaustive()
    }
}

impl Default for Node {
    fn default() -> Self {
        Self::new()
    }
}

impl Node {
    /// A node without key or peers, down.
    #[must_use]
    pub fn new() -> Self {
        Self {
            identity: None,
            gate: None,
            indices: Indices::new(),
            peers: Peers::default(),
            allowed: allowed::Table::new(),
            circles: Circles::default(),
            guard: Guard::default(),
            tables: Tables::default(),
            receivers: Receivers::default(),
            shaper: Shaper::default(),
            turn: Turn::default(),
            rules: 0,
            handshakes: VecDeque::new(),
            loaded_until: Instant::ZERO,
            timers: Timers::default(),
            touched: Vec::new(),
            ready: Vec::new(),
            mtu: 0,
            listen_port: 0,
            up: false,
            frames: false,
            aes: false,
            compress: false,
            hold: Duration::ZERO,
            order: ORDER,
            repair_percent: REPAIR_PERCENT,
            tuning: &Tuning::DEFAULT,
            budget: Budget::new(WAITING_BYTES_MAX),
            overrun: Overruns::default(),
            reach: Asker::default(),
            circuits: Circuits::default(),
            guests: Guests::default(),
            soundings: Soundings::default(),
            replies: VecDeque::new(),
            counters: Counters::default(),
            pieces_gone: PieceCounters::default(),
        }
    }

    /// Share of what was sent that was more than the way or the peer could take, where nearly all
    /// goes to one peer, and that one has just said so: then whoever sends should wait.
    pub fn poll_overrun(&mut self) -> Option<f64> {
        self.overrun.poll()
    }

    /// What came of every packet so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Segments that wait for sessions, of all peers, or for the line.
    #[must_use]
    pub fn staged(&self) -> u64 {
        let staged: u64 = self.peers.iter().map(|(_, link)| link.staged()).sum();
        staged + self.shaper.held() as u64
    }

    /// Takes a packet or superpacket that the machine sends. On the path of every packet.
    #[inline]
    pub fn handle_packet<O: Outbox>(
        &mut self,
        header: virtio::Header,
        bytes: &mut [u8],
        now: Instant,
        out: &mut O,
    ) {
        self.reach.note_data(now);
        let Ok(mut packet) = superpacket::parse(header, bytes) else {
            self.counters.packets_out += 1;
            self.counters.drop(Reason::PacketMalformed, 1);
            return;
        };
        let segments = packet.segments() as u64;
        self.counters.packets_out += segments;
        if let Some(claim) = self.circuits.claims(packet.source(), packet.destination()) {
            return self.handle_claimed(claim, &packet, now, out);
        }
        if self.guard.is_multicast(packet.destination()) {
            return self.handle_multicast(header, &packet, now, out);
        }
        let owner = self.allowed.lookup(packet.destination());
        let found = owner.and_then(|id| Some((id, self.peers.link(id)?)));
        let Some((id, link)) = found else {
            self.counters.drop(Reason::NoRoute, segments);
            return;
        };
        let mut header = header;
        if self.tables.has(id) {
            match self.tables.outward(id, &mut header, bytes) {
                Ok(rewritten) => packet = rewritten,
                Err(reason) => return self.counters.drop(reason, segments),
            }
        }
        if self.guard.refuses(Direction::Out, id, packet.packet(), &self.allowed, now) {
            self.counters.drop(Reason::PolicyOut, segments);
            return;
        }
        let squeeze = self.guard.lets_compress();
        let carrier = link.endpoint().and_then(|at| at.carrier());
        let own = reachable::own_datagram(packet.packet(), self.listen_port, carrier);
        let circle = own.and_then(|to| {
            let via = link.endpoint()?.endpoint()?.remote;
            let via = SocketAddr::new(via.ip(), via.port());
            Some(self.circles.handle_own(to, via, now))
        });
        if circle == Some(true) {
            self.counters.drop(Reason::Loop, segments);
            return;
        }
        if segments == 1 && link.is_managed() && tcp::is_syn(packet.packet().bytes()) {
            // Its checksum is complete since it was parsed; to parse it as it came would spoil it.
            reachable::clamp(link, self.mtu, bytes);
            let Ok(clamped) = superpacket::parse(virtio::Header::default(), bytes) else {
                self.counters.drop(Reason::PacketMalformed, 1);
                return;
            };
            packet = clamped;
        }
        self.pass_on(id, header, &packet, squeeze, now, out);
    }

    /// Takes a datagram that lies in `memory` at `range`, opens it in place, and tells `inbox`
    /// where an inner packet lies. On the path of every packet.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "one call a datagram; each is lent by the shell")]
    pub fn handle_datagram<O: Outbox>(
        &mut self,
        from: Destination,
        memory: &mut [u8],
        range: Range<usize>,
        clock: Clock,
        random: &mut dyn Random,
        inbox: &mut Inbox,
        out: &mut O,
    ) {
        self.counters.datagrams_in += 1;
        let start = range.start;
        let datagram = &mut memory[range];
        let dropped = match wireguard::classify(datagram) {
            Ok(Message::Transport { receiver, .. }) => {
                self.open(from, Index(receiver), datagram, start, clock.now, inbox).map(|circuit| {
                    let Some((id, plain)) = circuit else { return };
                    if frame::is_sounding(&datagram[plain.clone()]) {
                        let came = inbox.came().unwrap_or(clock.now);
                        return self.handle_sounding(id, &datagram[plain], clock.now, came, out);
                    }
                    let at = (id, start + plain.start);
                    let now = (clock.now, random);
                    self.handle_circuit(at, &mut datagram[plain], now, inbox, out);
                })
            }
            Ok(_) => self.admit(from, datagram, clock.now, random, out),
            Err(_) if self.reach.handle_datagram(&from, datagram, clock.now) => {
                self.counters.reach_in += 1;
                self.call_peers(clock.now);
                Ok(())
            }
            Err(_) => Err(Reason::Protocol(Drop::Malformed)),
        };
        if let Err(reason) = dropped {
            self.counters.drop(reason, 1);
        }
    }

    #[inline]
    fn open(
        &mut self,
        from: Destination,
        index: Index,
        datagram: &mut [u8],
        start: usize,
        now: Instant,
        inbox: &mut Inbox,
    ) -> Result<Option<(PeerId, Range<usize>)>, Reason> {
        let unknown = Reason::Protocol(Drop::UnknownIndex);
        let Some(id) = self.indices.owner(index) else {
            self.handle_stray(&from, now);
            return Err(unknown);
        };
        let link = self.peers.link(id).ok_or(unknown)?;
        let (session, plain) = link
            .receive(from, index, datagram, &mut self.indices, now)
            .map_err(Reason::Protocol)?;
        self.turn.note(id, now);
        self.touch(id);
        if plain.is_empty() {
            self.counters.keepalives_in += 1;
            return Ok(None);
        }
        let inner = &datagram[plain.clone()];
        if !matches!(inner[0] >> 4, 4 | 6) {
            let link = self.peers.link(id).ok_or(unknown)?;
            let is_taken = if frame::is_sounding(inner) {
                frame::parse(inner).map_err(|_| Reason::UnknownFrame)?;
                link.note_sounding(session, datagram, now)
            } else {
                frame::is_circuit(inner) && link.note_cell(session, datagram, now)
            };
            if is_taken {
                self.counters.frames_in += 1;
                return Ok(Some((id, plain)));
            }
            let Self { allowed, guard, tables, turn, rules, .. } = self;
            let mut judge = Owner { allowed, guard, tables, turn, id, now, rules: *rules };
            let is_data = link
                .handle_frame((from, session), datagram, plain, start, &mut judge, now)
                .map_err(|_| Reason::UnknownFrame)?;
            if is_data {
                self.reach.note_data(now);
            } else if let Some(overrun) = link.poll_overrun() {
                self.overrun.note(id, overrun, self.counters.sealed);
            }
            self.counters.frames_in += 1;
            self.ready.push(id);
            self.poll_packets(inbox);
            return Ok(None);
        }
        let len = packet::total_len(inner).map_err(|_| Reason::InnerMalformed)?;
        let source = packet::source(inner).map_err(|_| Reason::InnerMalformed)?;
        if len > inner.len() {
            return Err(Reason::InnerMalformed);
        }
        if self.allowed.lookup(self.tables.source_of(id, source)) != Some(id) {
            return Err(Reason::SourceNotAllowed);
        }
        self.guard.admit(id, &inner[..len], &self.allowed, now)?;
        if inbox.is_congested() {
            marked::tell(&mut datagram[plain.clone()][..len])?;
        }
        self.tables.admit(id, &mut datagram[plain.clone()][..len])?;
        self.counters.delivered += 1;
        self.reach.note_data(now);
        if tcp::is_syn(&datagram[plain.clone()])
            && let Some(link) = self.peers.link_ref(id)
        {
            reachable::clamp(link, self.mtu, &mut datagram[plain.clone()][..len]);
        }
        let from = start + plain.start;
        inbox.push(from..from + len);
        Ok(None)
    }

    /// Moves packets that came in frames, and waited, into `inbox`. Returns whether more are
    /// ready: then the inbox has to be drained, and this called again before the next datagram.
    #[inline]
    pub fn poll_packets(&mut self, inbox: &mut Inbox) -> bool {
        self.poll_replies(inbox);
        while let Some(&id) = self.ready.last() {
            let before = inbox.len();
            let link = self.peers.link(id);
            let table = self.tables.table(id);
            let all = link.is_none_or(|link| link.poll_pieces(inbox, table));
            self.counters.framed += (inbox.len() - before) as u64;
            if !all {
                return true;
            }
            self.ready.pop();
        }
        false
    }

    /// The cheap half of a handshake message: the gate, then the queue.
    fn admit<O: Outbox>(
        &mut self,
        from: Destination,
        datagram: &[u8],
        now: Instant,
        random: &mut dyn Random,
        out: &mut O,
    ) -> Result<(), Reason> {
        let message = wireguard::classify(datagram);
        if let Ok(Message::CookieReply(reply)) = message {
            return self.handle_cookie(reply, now);
        }
        let gate = self.gate.as_mut().ok_or(Reason::NoIdentity)?;
        if self.handshakes.len() >= LOAD_AT {
            self.loaded_until = now.after(LOAD_TIME);
        }
        let loaded = now < self.loaded_until;
        match gate.admit(datagram, from.source(), now, loaded, random) {
            Admission::Accept => {}
            Admission::Refuse(drop) => return Err(Reason::Protocol(drop)),
            Admission::Cookie(reply) => {
                self.counters.handshakes_in += 1;
                if let Some(slot) = out.reserve(&from, reply.len()) {
                    slot.copy_from_slice(&reply);
                    out.commit();
                }
                return Ok(());
            }
        }
        if self.handshakes.len() >= HANDSHAKES_MAX {
            return Err(Reason::HandshakesFull);
        }
        let waiting = match message {
            Ok(Message::Initiation(message)) => Waiting::Initiation(from, Box::new(*message)),
            Ok(Message::Response(message)) => {
                let receiver = Index(wireguard::Response(message).receiver());
                let unexpected = Reason::Protocol(Drop::UnexpectedResponse);
                let id = self.indices.owner(receiver).ok_or(unexpected)?;
                Waiting::Response(from, id, Box::new(*message))
            }
            _ => return Err(Reason::Protocol(Drop::Malformed)),
        };
        self.handshakes.push_back(waiting);
        Ok(())
    }

    fn handle_cookie(
        &mut self,
        reply: &[u8; wireguard::COOKIE_REPLY_LEN],
        now: Instant,
    ) -> Result<(), Reason> {
        let refused = Reason::Protocol(Drop::BadCookie);
        let receiver = Index(wireguard::CookieReply(reply).receiver());
        let id = self.indices.owner(receiver).ok_or(refused)?;
        let link = self.peers.link(id).ok_or(refused)?;
        link.handle_cookie(reply, now).map_err(Reason::Protocol)?;
        self.counters.handshakes_in += 1;
        self.touch(id);
        Ok(())
    }

    /// Whether handshake messages wait for [`Node::handle_handshakes`].
    #[must_use]
    pub fn has_handshakes(&self) -> bool {
        !self.handshakes.is_empty()
    }

    /// Wakes every peer whose deadline has come. Then ask [`Node::poll_packets`] for packets that
    /// waited in vain for older ones.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(id) = self.timers.pop_due(now) {
            let Some(link) = self.peers.link(id) else { continue };
            if link.poll_timeout().is_some_and(|(deadline, _)| deadline <= now) {
                link.handle_timeout(&mut self.indices, now);
                if self.ready.last() != Some(&id) {
                    self.ready.push(id);
                }
            }
            self.touch(id);
        }
        if let Some(gate) = &mut self.gate {
            gate.handle_timeout(now);
        }
    }

    /// Does what peers want done after an input, and notes when they want to be woken. While the
    /// interface is down nothing is sent: what they want is done when it comes up.
    pub fn handle_actions<O: Outbox>(
        &mut self,
        clock: Clock,
        random: &mut dyn Random,
        out: &mut O,
    ) {
        if !self.up {
            self.touched.clear();
            return;
        }
        self.handle_put_off(clock.now);
        self.reach.handle_due(random, clock.now, out);
        self.call_peers(clock.now);
        self.handle_circuits_due(clock.now, random, out);
        if self.waits() {
            self.release(clock.now, out);
        }
        // Each action list is finite, and acting touches nobody else.
        while let Some(id) = self.touched.pop() {
            let Some(link) = self.peers.link(id) else { continue };
            let mut world = World {
                identity: self.identity.as_ref(),
                indices: &mut self.indices,
                random,
                now: clock.now,
                wall: clock.wall,
                mtu: self.mtu,
                reach: self.reach.own(),
            };
            let before = link.tx_bytes();
            let outcome = link.handle_actions(&mut world, out);
            self.shaper.note_sent(link.tx_bytes() - before, outcome.sent, clock.now);
            let deadline = link.poll_timeout().map(|(deadline, _)| deadline);
            self.timers.schedule(id, deadline);
            self.count(&outcome);
        }
    }

    /// When to call [`Node::handle_timeout`] next, at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.up {
            return None;
        }
        if !self.touched.is_empty() || !self.handshakes.is_empty() {
            return Some(Instant::ZERO);
        }
        let gate = self.gate.as_ref().and_then(Gate::poll_timeout);
        let circuits = self.circuits.poll_timeout();
        let shaped = self.waits().then(|| self.shaper.next_at());
        let all = [self.timers.earliest(), gate, self.reach.poll_timeout(), circuits, shaped];
        all.into_iter().flatten().min()
    }

    #[inline]
    fn touch(&mut self, id: PeerId) {
        if self.touched.last() != Some(&id) {
            self.touched.push(id);
        }
    }

    #[inline]
    fn count(&mut self, outcome: &Outcome) {
        self.counters.sealed += outcome.sent;
        self.counters.drop(Reason::StageOverflow, outcome.overflowed);
        self.counters.drop(Reason::StageExpired, outcome.expired);
        if let Some((refusal, segments)) = outcome.refused {
            self.counters.drop(refusal.into(), segments);
        }
    }
}

mod circuits;
mod configure;
mod guard;
mod guests;
mod handshakes;
mod marked;
mod multicast;
mod reachable;
mod shaped;
mod soundings;
mod tables;
#[cfg(test)]
mod tests;
mod turn;

pub use configure::ConfigError;
use guard::{Guard, Owner};
pub use guests::GUESTS_MAX;
use guests::Guests;
use multicast::Receivers;
pub use soundings::SOUNDED_MAX;
use soundings::Soundings;
use tables::Tables;
pub use turn::SHARE_MAX;
use turn::Turn;
