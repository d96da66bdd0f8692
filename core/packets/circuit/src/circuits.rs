//! All circuits of one machine: its own, those it is a hop of, and the exit. What it does as a hop
//! is in `hops`, what it does with packets in `packets`.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::time::Duration;

use noise::{Instant, PeerId, PrivateKey, PublicKey, Random};
use wire::frame::{self, Build, Cell, Frame};

use crate::client::{Circuit, State, Status, Wants};
use crate::exit::Exit;
use crate::handshake::Second;
use crate::hop::{Came, Hop, Next};
use crate::layer::Mask;
use crate::neighbour::{Neighbours, Owner, Side, Standing};
use crate::reason::Counters;
use crate::rewrite;
use crate::turns::{Turns, Way};
use crate::{Drop, End, ExitRules, HOPS_MAX, OWN_MAX, SENDS_MAX};

/// A circuit of which nothing came for so long is forgotten by its hops.
pub const IDLE: Duration = Duration::from_secs(30);
/// They look for such ones so often.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// A circuit of this machine, by a small number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CircuitId(pub u16);

/// Why a circuit was not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There are as many as there may be.
    TooMany,
    /// No hops, or more than [`HOPS_MAX`].
    Length,
    /// A hop stands there twice, or is this machine.
    Repeated,
    /// The entry is no hop that this machine knows.
    NoEntry,
}

/// What is to be done with a cell that came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Nothing: it was for us, or was dropped.
    Done,
    /// It goes on to another neighbour: this header, and that part of the frame that came.
    Relay {
        /// Of which circuit it is, and to whom it goes.
        way: Way,
        /// It is a control message.
        is_word: bool,
        /// The header of the frame.
        header: [u8; Cell::HEADER_LEN],
        /// The body in the frame that came.
        body: Range<usize>,
    },
    /// A packet for the machine, in that part of the frame that came.
    Machine(Range<usize>),
}

/// What circuits need from outside.
pub struct World<'a> {
    /// The monotonic clock.
    pub now: Instant,
    /// Unpredictable bytes.
    pub random: &'a mut dyn Random,
    /// The neighbour with a key.
    pub find: &'a dyn Fn(&PublicKey) -> Option<PeerId>,
}

/// All circuits of one machine.
#[derive(Default)]
pub struct Circuits {
    key: Option<(PrivateKey, PublicKey)>,
    is_hop: bool,
    is_exit: bool,
    neighbours: Neighbours,
    hops: BTreeMap<u32, Box<Hop>>,
    /// Hops by what the neighbour before them asked with.
    asked: BTreeMap<(PeerId, u32), u32>,
    own: BTreeMap<CircuitId, Box<Circuit>>,
    exit: Exit,
    machine: Option<Machine>,
    sends: VecDeque<(PeerId, Vec<u8>)>,
    batch: Batch,
    /// What waits for the line.
    turns: Turns,
    /// The longest that a circuit of ours sends nothing.
    cover: Option<Duration>,
    next_hop: u32,
    next_own: u16,
    sweep_at: Instant,
    counters: Counters,
}

impl std::fmt::Debug for Circuits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let own = self.own.len();
        let hops = self.hops.len();
        f.debug_struct("Circuits").field("own", &own).field("hops", &hops).finish_non_exhaustive()
    }
}

impl Circuits {
    /// Our key pair, by which we prove ourselves as a hop. Another one ends every circuit.
    pub fn set_key(&mut self, key: Option<PrivateKey>) {
        let key = key.map(|private| (private.clone(), private.public()));
        if key.as_ref().map(|key| key.1) != self.key.as_ref().map(|key| key.1) {
            for id in self.hops.keys().copied().collect::<Vec<_>>() {
                self.end_hop(id, None, End::Closed);
            }
            for id in self.own.keys().copied().collect::<Vec<_>>() {
                self.end_own(id, End::Closed, Instant::ZERO);
            }
        }
        self.key = key;
    }

    /// Whether we are a hop for others, and with which rules we are an exit.
    pub fn set_roles(&mut self, is_hop: bool, exit: Option<ExitRules>) {
        self.is_exit = is_hop && exit.is_some();
        self.exit.set_rules(exit.unwrap_or_default());
        self.is_hop = is_hop;
        if !is_hop {
            for id in self.hops.keys().copied().collect::<Vec<_>>() {
                self.end_hop(id, None, End::Forbidden);
            }
        }
    }

    /// What a neighbour may do here.
    pub fn set_standing(&mut self, peer: PeerId, standing: Standing, random: &mut dyn Random) {
        if standing == Standing::default() {
            self.forget_peer(peer);
        } else {
            self.neighbours.set(peer, standing, random);
        }
    }

    /// A neighbour is gone: so are all circuits through it.
    pub fn forget_peer(&mut self, peer: PeerId) {
        let is_through = |hop: &Hop| match &hop.next {
            Next::Asked { side, .. } | Next::Made { side, .. } => side.peer == peer,
            Next::None => false,
        };
        let mut over = Vec::new();
        for (&id, hop) in &self.hops {
            if hop.previous.peer == peer || is_through(hop) {
                over.push(id);
            }
        }
        for id in over {
            self.end_hop(id, Some(peer), End::Unreachable);
        }
        let mut over = Vec::new();
        for (&id, circuit) in &self.own {
            if circuit.entry.as_ref().is_some_and(|entry| entry.peer == peer) {
                over.push(id);
            }
        }
        for id in over {
            self.end_own(id, End::Unreachable, Instant::ZERO);
        }
        self.neighbours.forget(peer);
    }

    /// Begins a circuit over `path`, the entry first; with `again`, in place of one that ended.
    ///
    /// # Errors
    /// The path cannot be one, or there is no room.
    pub fn open(
        &mut self,
        path: &[PublicKey],
        again: Option<CircuitId>,
        world: &mut World<'_>,
    ) -> Result<CircuitId, Refused> {
        if path.is_empty() || path.len() > HOPS_MAX {
            return Err(Refused::Length);
        }
        let own = self.key.as_ref().map(|key| key.1);
        let is_repeated =
            |(at, hop): (usize, &PublicKey)| path[..at].contains(hop) || Some(*hop) == own;
        if path.iter().enumerate().any(is_repeated) {
            return Err(Refused::Repeated);
        }
        let peer = (world.find)(&path[0]).ok_or(Refused::NoEntry)?;
        if !self.neighbours.standing(peer).hop {
            return Err(Refused::NoEntry);
        }
        let id = again.filter(|id| self.own.contains_key(id)).map_or_else(|| self.new_id(), Some);
        let id = id.ok_or(Refused::TooMany)?;
        self.end_own(id, End::Closed, world.now);
        let ours = self.neighbours.allocate(peer, Owner::Own(id.0)).ok_or(Refused::TooMany)?;
        let mut mask = [0; 32];
        world.random.fill(&mut mask);
        let entry = Side { peer, ours, theirs: 0, mask: Mask::new(&mask) };
        let mut circuit = Circuit::new(path.to_vec(), local_address(id), entry, mask, world.now);
        let wants = circuit.ask(world.now, world.random);
        self.own.insert(id, Box::new(circuit));
        self.send_wanted(peer, wants);
        Ok(id)
    }

    fn new_id(&mut self) -> Option<CircuitId> {
        if self.own.len() >= OWN_MAX {
            let closed = |circuit: &Circuit| match circuit.status() {
                Status { state: State::Closed(_), since, .. } => Some(since),
                _ => None,
            };
            let oldest = self.own.iter().filter_map(|(id, own)| Some((closed(own)?, *id))).min()?;
            self.own.remove(&oldest.1);
        }
        for _ in 0..=OWN_MAX {
            self.next_own = self.next_own % (OWN_MAX as u16 * 4) + 1;
            let id = CircuitId(self.next_own);
            if !self.own.contains_key(&id) {
                return Some(id);
            }
        }
        None
    }

    /// Ends a circuit of ours; with `forget` nothing is kept to be shown.
    pub fn close(&mut self, id: CircuitId, forget: bool, now: Instant) -> bool {
        let is_known = self.own.contains_key(&id);
        self.end_own(id, End::Closed, now);
        if forget {
            self.own.remove(&id);
        }
        is_known
    }

    /// A circuit of ours.
    #[must_use]
    pub fn status(&self, id: CircuitId) -> Option<Status> {
        self.own.get(&id).map(|circuit| circuit.status())
    }

    /// All of ours.
    pub fn list(&self) -> impl Iterator<Item = (CircuitId, Status)> {
        self.own.iter().map(|(id, circuit)| (*id, circuit.status()))
    }

    /// Circuits that we are a hop of, and flows that leave here.
    #[must_use]
    pub fn carried(&self) -> (usize, usize) {
        (self.hops.len(), self.exit.flows())
    }

    /// What came of every cell and packet.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Indices in use toward all neighbours: each circuit has one for each of its sides.
    #[must_use]
    pub fn indices(&self) -> usize {
        self.neighbours.indices()
    }

    /// Takes a frame of circuits that came from a neighbour; it is decrypted where it lies.
    pub fn handle_frame(&mut self, from: PeerId, plain: &mut [u8], world: &mut World<'_>) -> Turn {
        let taken = match frame::parse(plain) {
            Ok(Frame::Cell(cell)) => {
                self.counters.cells_in += 1;
                self.handle_cell(from, cell, plain, world)
            }
            Ok(Frame::Build(build)) => {
                self.counters.builds_in += 1;
                self.handle_build(from, build, world).map(|()| Turn::Done)
            }
            _ => Err(Drop::Malformed),
        };
        taken.unwrap_or_else(|reason| {
            self.counters.drop(reason);
            Turn::Done
        })
    }

    fn handle_cell(
        &mut self,
        from: PeerId,
        cell: Cell,
        plain: &mut [u8],
        world: &mut World<'_>,
    ) -> Result<Turn, Drop> {
        match self.neighbours.owner(from, cell.index).ok_or(Drop::UnknownIndex)? {
            Owner::Forth(id) => {
                let hop = self.hops.get_mut(&id).ok_or(Drop::UnknownIndex)?;
                match hop.handle_forth(cell, plain, world.now)? {
                    Came::Relayed(relayed) => self.pass(id, &relayed, plain, world.now),
                    Came::Packet(range) => self.leave(id, plain, range, world),
                    Came::Word(word, number) => {
                        self.counters.control += 1;
                        self.handle_word(id, word, number, world).map(|()| Turn::Done)
                    }
                }
            }
            Owner::Back(id) => {
                let hop = self.hops.get_mut(&id).ok_or(Drop::UnknownIndex)?;
                let relayed = hop.handle_back(cell, plain)?;
                self.pass(id, &relayed, plain, world.now)
            }
            Owner::Own(id) => {
                let circuit = self.own.get_mut(&CircuitId(id)).ok_or(Drop::UnknownIndex)?;
                let came = circuit.handle_cell(cell, plain, world.now, world.random)?;
                match came {
                    Ok(len) => {
                        let range = Cell::HEADER_LEN..Cell::HEADER_LEN + len;
                        let local = circuit.local();
                        let address = circuit.address().ok_or(Drop::NoCircuit)?;
                        let machine = self.machine.as_ref();
                        let machine = machine.filter(|of| of.circuit == Some(CircuitId(id)));
                        let len = arrive(&mut plain[range], address, (local, machine))?;
                        self.counters.packets_in += 1;
                        Ok(Turn::Machine(Cell::HEADER_LEN..Cell::HEADER_LEN + len))
                    }
                    Err(wants) => {
                        self.counters.control += 1;
                        self.send_wanted(from, wants);
                        self.tidy_own(CircuitId(id), world.now);
                        Ok(Turn::Done)
                    }
                }
            }
        }
    }

    /// A packet leaves the circuit here.
    fn leave(
        &mut self,
        id: u32,
        plain: &mut [u8],
        range: Range<usize>,
        world: &mut World<'_>,
    ) -> Result<Turn, Drop> {
        let own = self.hops.get(&id).ok_or(Drop::UnknownIndex)?.address;
        if !self.is_exit {
            return Err(Drop::NoNext);
        }
        let start = range.start;
        let packet = &mut plain[range];
        let len = self.exit.handle_out((id, own), packet, world.now, world.random)?;
        self.counters.packets_in += 1;
        Ok(Turn::Machine(start..start + len))
    }

    fn handle_build(
        &mut self,
        from: PeerId,
        build: Build,
        world: &mut World<'_>,
    ) -> Result<(), Drop> {
        match build {
            Build::Create { index, layered, mask, message } => {
                self.create(from, index, (layered, mask, message), world)
            }
            Build::Created { index, theirs, message } => {
                match self.neighbours.owner(from, index).ok_or(Drop::UnknownIndex)? {
                    Owner::Own(id) => {
                        self.created_own(CircuitId(id), from, theirs, &message, world)
                    }
                    Owner::Back(id) => self.created_next(id, theirs, message),
                    Owner::Forth(_) => Err(Drop::Unexpected),
                }
            }
            Build::Refused { index, reason } | Build::Destroy { index, reason } => {
                let end = End::from_number(reason);
                match self.neighbours.owner(from, index).ok_or(Drop::UnknownIndex)? {
                    Owner::Own(id) => self.end_own(CircuitId(id), end, world.now),
                    Owner::Back(id) => self.lost_next(id, from, end),
                    Owner::Forth(id) => self.end_hop(id, Some(from), end),
                }
                Ok(())
            }
        }
    }

    fn created_own(
        &mut self,
        id: CircuitId,
        from: PeerId,
        theirs: u32,
        message: &Second,
        world: &mut World<'_>,
    ) -> Result<(), Drop> {
        let circuit = self.own.get_mut(&id).ok_or(Drop::UnknownIndex)?;
        if circuit.state() != State::Building(0) {
            return Err(Drop::Unexpected);
        }
        if let Some(entry) = &mut circuit.entry {
            entry.theirs = theirs;
        }
        let answered = circuit.handle_answer(message, world.now, world.random);
        let wants = answered.inspect_err(|_| self.tidy_own(id, world.now))?;
        self.send_wanted(from, wants);
        self.tidy_own(id, world.now);
        Ok(())
    }

    fn end_own(&mut self, id: CircuitId, end: End, now: Instant) {
        if let Some(circuit) = self.own.get_mut(&id) {
            circuit.close(end, now);
            self.tidy_own(id, now);
        }
    }

    /// Gives back what a closed circuit of ours had, and tells its entry.
    fn tidy_own(&mut self, id: CircuitId, _now: Instant) {
        let Some(circuit) = self.own.get_mut(&id) else { return };
        let State::Closed(end) = circuit.state() else { return };
        let Some(entry) = circuit.entry.take() else { return };
        self.neighbours.free(entry.peer, entry.ours);
        self.send(entry.peer, &Build::Destroy { index: entry.theirs, reason: end.number() });
    }

    fn send_wanted(&mut self, to: PeerId, wants: Option<Wants>) {
        match wants {
            Some(Wants::Build(build)) => self.send(to, &build),
            Some(Wants::Frames(frames)) => {
                frames.into_iter().for_each(|frame| self.push(to, Some(frame)));
            }
            None => {}
        }
    }

    fn send(&mut self, to: PeerId, build: &Build) {
        self.push(to, Some(build.build().to_vec()));
    }

    fn push(&mut self, to: PeerId, frame: Option<Vec<u8>>) {
        match frame {
            Some(frame) if self.sends.len() < SENDS_MAX => self.sends.push_back((to, frame)),
            Some(_) => self.counters.drop(Drop::Busy),
            None => self.counters.drop(Drop::Exhausted),
        }
    }

    /// The next frame that a neighbour is to be sent.
    pub fn poll_send(&mut self) -> Option<(PeerId, Vec<u8>)> {
        self.sends.pop_front()
    }

    /// A frame was not sent: there is no session, or no room.
    pub fn note_unsent(&mut self) {
        self.counters.drop(Drop::Unsent);
    }

    /// Does what is due: questions, repetitions, and the end of what is silent.
    pub fn handle_timeout(&mut self, now: Instant, random: &mut dyn Random) {
        self.release_batch(now, random);
        for id in self.own.keys().copied().collect::<Vec<_>>() {
            let Some(circuit) = self.own.get_mut(&id) else { continue };
            let to = circuit.entry.as_ref().map(|entry| entry.peer);
            let wants = circuit.handle_timeout(self.cover, now, random);
            if let Some(to) = to {
                self.send_wanted(to, wants);
            }
            self.tidy_own(id, now);
        }
        if !self.hops.is_empty() && now >= self.sweep_at {
            self.sweep_at = now.after(SWEEP_EVERY);
            let mut over = Vec::new();
            for (&id, hop) in &self.hops {
                if hop.heard.is_older_than(IDLE, now) {
                    over.push(id);
                }
            }
            for id in over {
                self.end_hop(id, None, End::Silent);
            }
        }
    }

    /// When that is.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.sends.is_empty() {
            return Some(Instant::ZERO);
        }
        let own = self.own.values().filter_map(|circuit| circuit.poll_timeout(self.cover)).min();
        let sweep = (!self.hops.is_empty()).then_some(self.sweep_at);
        own.into_iter().chain(sweep).chain(self.batch.poll_timeout()).min()
    }
}

/// What a packet of this machine is to circuits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// It goes out through this circuit of ours.
    Own(CircuitId),
    /// It is an answer to something that left here.
    Answer,
}

/// Where an answer goes that came for the exit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The circuit, by the exit's own number.
    pub circuit: u32,
    /// The hop before the exit.
    pub to: PeerId,
    /// How long its frame is, in bytes.
    pub frame_len: usize,
    /// How long the translated packet is, in bytes.
    pub len: usize,
}

fn address(id: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(198, 19, 0, 0).to_bits() + id)
}

/// The address on this machine that a circuit of ours is used by.
#[must_use]
pub fn local_address(id: CircuitId) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + u32::from(id.0))
}

fn of_local(address: IpAddr) -> Option<CircuitId> {
    let [198, 18, high, low] = rewrite::four(address)?.octets() else { return None };
    let id = u16::from_be_bytes([high, low]);
    (1..=OWN_MAX as u16 * 4).contains(&id).then_some(CircuitId(id))
}

fn draw_mask(random: &mut dyn Random) -> [u8; 32] {
    let mut mask = [0; 32];
    random.fill(&mut mask);
    mask
}

/// Makes a packet of this machine one of the circuit: its source is the address that the exit gave,
/// and its hop limit tells nothing.
fn leave(packet: &mut [u8], address: Ipv4Addr) -> Result<(), Drop> {
    let seen = rewrite::look(packet)?;
    rewrite::set_source(packet, &seen, seen.ours(address), rewrite::source_port(&seen));
    rewrite::set_hop_limit(packet, &seen);
    Ok(())
}

/// And the reverse, on the way back. Returns the packet's length.
fn arrive(
    packet: &mut [u8],
    address: Ipv4Addr,
    (local, machine): (Ipv4Addr, Option<&Machine>),
) -> Result<usize, Drop> {
    let seen = rewrite::look(packet)?;
    let is_error = matches!(seen.what, rewrite::What::Error { .. });
    let may_send = machine.is_none_or(|machine| machine.hears(seen.source, is_error));
    if seen.destination != seen.ours(address) || !may_send {
        return Err(Drop::NotCarried);
    }
    let local = match machine {
        Some(machine) => machine.address(seen.is_six()).ok_or(Drop::NotCarried)?,
        None => seen.ours(local),
    };
    rewrite::set_destination(packet, &seen, local, rewrite::destination_port(&seen));
    rewrite::set_quoted_source(packet, &seen, local);
    Ok(seen.len)
}

mod batch;
mod hops;
mod machine;
mod packets;
use batch::Batch;
pub use batch::{BATCH_TIME_MAX, COVER_RATE_MAX};
pub use machine::Machine;
#[cfg(test)]
mod tests;
