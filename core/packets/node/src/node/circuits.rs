//! Circuits of this machine: what the rooms of `circuit` want carried, and what they bring.

use circuit::{CircuitId, Circuits, Claim, ExitRules, Refused, Standing, Turn, Waiting, Way};
use noise::PublicKey;
use wire::superpacket::Superpacket;

use super::*;

/// Bytes of a packet that an exit translates: more do not fit into a cell.
const ANSWER_LEN_MAX: usize = 1500;

/// A frame that is to be written for a neighbour.
#[derive(Clone, Copy)]
struct Outward {
    way: Way,
    len: usize,
    is_word: bool,
    /// Whether it waits for room in the memory that was lent, too; else that there is none is its
    /// end.
    keeps: bool,
}

impl Node {
    /// Circuits, to look at.
    #[must_use]
    pub fn circuits(&self) -> &Circuits {
        &self.circuits
    }

    /// Whether this machine is a hop for others, and with which rules it is an exit.
    pub fn set_circuit_roles(&mut self, is_hop: bool, exit: Option<ExitRules>) {
        self.circuits.set_roles(is_hop, exit);
    }

    /// For how long cells are held back as a hop, and how many a second leave on each circuit of
    /// ours at least: see [`Circuits::set_batch`] and [`Circuits::set_cover`].
    pub fn set_circuit_cover(&mut self, batch: Duration, cells_per_second: u32) {
        self.circuits.set_batch(batch);
        self.circuits.set_cover(cells_per_second);
    }

    /// What this machine itself sends through a circuit.
    pub fn set_circuit_machine(&mut self, machine: Option<circuit::Machine>) {
        self.circuits.set_machine(machine);
    }

    /// What the peer with this key may do with circuits here. A peer that is not there may nothing.
    pub fn set_circuit_standing(
        &mut self,
        key: &PublicKey,
        standing: Standing,
        random: &mut dyn Random,
    ) {
        let Some(id) = self.peers.id(key) else { return };
        self.circuits.set_standing(id, standing, random);
        // A hop is of our make, and a circuit waits 5 s for it: one lost datagram takes no more.
        if let Some(link) = self.peers.link(id).filter(|_| standing.hop) {
            link.peer_mut().set_repeats_soon(true);
        }
    }

    /// Begins a circuit over the peers with these keys, the entry first; `again` names one that
    /// ended, whose place it takes. What is to be sent comes with [`Node::handle_actions`].
    ///
    /// # Errors
    /// The path cannot be one, or there is no room.
    pub fn open_circuit(
        &mut self,
        path: &[PublicKey],
        again: Option<CircuitId>,
        now: Instant,
        random: &mut dyn Random,
    ) -> Result<CircuitId, Refused> {
        let peers = &self.peers;
        let find = |key: &PublicKey| peers.id(key);
        self.circuits.open(path, again, &mut circuit::World { now, random, find: &find })
    }

    /// Ends a circuit; with `forget` nothing of it is kept. Returns whether there was one.
    pub fn close_circuit(&mut self, id: CircuitId, forget: bool, now: Instant) -> bool {
        self.circuits.close(id, forget, now)
    }

    /// Takes a packet or superpacket of this machine that belongs to a circuit.
    pub(super) fn handle_claimed<O: Outbox>(
        &mut self,
        claim: Claim,
        packet: &Superpacket<'_>,
        now: Instant,
        out: &mut O,
    ) {
        for index in 0..packet.segments() {
            let sent = match claim {
                Claim::Own(id) => self.send_own(id, packet, index, now, out),
                Claim::Answer => self.send_answer(packet, index, now, out),
            };
            match sent {
                Some(()) => self.counters.sealed += 1,
                None => self.counters.drop(Reason::Circuit, 1),
            }
        }
    }

    fn send_own<O: Outbox>(
        &mut self,
        id: CircuitId,
        packet: &Superpacket<'_>,
        index: usize,
        now: Instant,
        out: &mut O,
    ) -> Option<()> {
        let len = packet.segment_len(index);
        let is_six = packet.packet().version() == 6;
        let planned = self.circuits.plan(id, len, is_six);
        if planned == Err(circuit::Drop::TooBig)
            && let Some(room) = self.circuits.room(id)
        {
            self.refuse_size(None, packet.packet().bytes(), room);
        }
        if planned == Err(circuit::Drop::NoSix) {
            self.refuse_route(packet.packet().bytes());
        }
        let (to, frame_len) = planned.ok()?;
        let way = Circuits::own_way(id, to);
        let outward = Outward { way, len: frame_len, is_word: false, keeps: false };
        let write = |circuits: &mut Circuits, slot: &mut [u8]| {
            let segment = |place: &mut [u8]| {
                packet.write_segment(index, place);
            };
            circuits.write(id, len, slot, segment, now).is_ok()
        };
        self.write_or_wait(outward, now, out, write).ok()
    }

    fn send_answer<O: Outbox>(
        &mut self,
        packet: &Superpacket<'_>,
        index: usize,
        now: Instant,
        out: &mut O,
    ) -> Option<()> {
        let mut bytes = [0; ANSWER_LEN_MAX];
        let len = packet.segment_len(index);
        let Some(place) = bytes.get_mut(..len) else {
            self.refuse_size(None, packet.packet().bytes(), circuit::room(circuit::HOPS_MAX));
            return None;
        };
        packet.write_segment(index, place);
        let planned = self.circuits.plan_answer(place, now);
        if let Err((circuit::Drop::TooBig, Some(room))) = planned {
            self.refuse_size(None, packet.packet().bytes(), room);
        }
        let answer = planned.ok()?;
        let way = Way { to: answer.to, circuit: answer.circuit };
        let outward = Outward { way, len: answer.frame_len, is_word: false, keeps: false };
        let packet = &place[..answer.len];
        let write = |circuits: &mut Circuits, slot: &mut [u8]| {
            circuits.write_answer(answer.circuit, packet, slot, now).is_ok()
        };
        self.write_or_wait(outward, now, out, write).ok()
    }

    /// Takes a frame of circuits, which lies at `start` of the lent memory. On the path of every
    /// cell.
    #[inline]
    pub(super) fn handle_circuit<O: Outbox>(
        &mut self,
        (from, start): (PeerId, usize),
        plain: &mut [u8],
        (now, random): (Instant, &mut dyn Random),
        inbox: &mut Inbox,
        out: &mut O,
    ) {
        let peers = &self.peers;
        let find = |key: &PublicKey| peers.id(key);
        let mut world = circuit::World { now, random, find: &find };
        match self.circuits.handle_frame(from, plain, &mut world) {
            Turn::Done => {}
            Turn::Machine(range) => {
                self.counters.framed += 1;
                self.reach.note_data(now);
                inbox.push(start + range.start..start + range.end);
            }
            Turn::Relay { way, is_word, header, body } => {
                let body = &plain[body];
                let write = |_: &mut Circuits, slot: &mut [u8]| {
                    let (head, rest) = slot.split_at_mut(header.len());
                    head.copy_from_slice(&header);
                    rest[..body.len()].copy_from_slice(body);
                    rest[body.len()..].fill(0);
                    true
                };
                let len = circuit::frame_len(body.len());
                let outward = Outward { way, len, is_word, keeps: true };
                if self.write_or_wait(outward, now, out, write).is_err() {
                    self.circuits.note_unsent();
                }
            }
        }
    }

    /// Whether cells have to wait for their turns, since the line is slow or others wait already.
    #[inline]
    fn must_wait(&self) -> bool {
        self.shaper.is_on() || self.circuits.waiting() > 0
    }

    /// Writes a frame into the memory that was lent, or, while cells wait for their turns, behind
    /// those. On the path of every cell.
    #[inline]
    fn write_or_wait<O: Outbox>(
        &mut self,
        outward: Outward,
        now: Instant,
        out: &mut O,
        mut write: impl FnMut(&mut Circuits, &mut [u8]) -> bool,
    ) -> Result<(), Refusal> {
        let Outward { way, len, is_word, keeps } = outward;
        if !self.must_wait() {
            let circuits = &mut self.circuits;
            let link = self.peers.link(way.to).ok_or(Refusal::NoEndpoint)?;
            let sent = link.send_cell(len, now, out, |slot| write(circuits, slot));
            self.touch(way.to);
            if sent != Err(Refusal::NoRoom) || !keeps {
                return sent;
            }
        }
        let mut frame = vec![0; len];
        if !write(&mut self.circuits, &mut frame) {
            return Err(Refusal::NoRoom);
        }
        self.wait(way, is_word, frame, now, out);
        Ok(())
    }

    /// A cell waits for its turn, which may have come.
    #[cold]
    fn wait<O: Outbox>(
        &mut self,
        way: Way,
        is_word: bool,
        frame: Vec<u8>,
        now: Instant,
        out: &mut O,
    ) {
        self.circuits.wait(Waiting { way, is_word, frame, since: now });
        self.release(now, out);
    }

    /// Sends the cell whose turn it is.
    pub(super) fn send_waiting<O: Outbox>(&mut self, now: Instant, out: &mut O) {
        let Some(cell) = self.circuits.poll_turn(now) else { return };
        let write = |slot: &mut [u8]| {
            slot.copy_from_slice(&cell.frame);
            true
        };
        let sent = self.send_frame(cell.way.to, cell.frame.len(), now, out, write);
        if sent == Err(Refusal::NoRoom) {
            self.shaper.note_full(now);
            self.circuits.put_back(cell);
        }
    }

    /// Does what circuits want done of themselves.
    pub(super) fn handle_circuits_due<O: Outbox>(
        &mut self,
        now: Instant,
        random: &mut dyn Random,
        out: &mut O,
    ) {
        if self.circuits.poll_timeout().is_some_and(|at| at <= now) {
            self.circuits.handle_timeout(now, random);
            while let Some((to, frame)) = self.circuits.poll_send() {
                let write = |slot: &mut [u8]| {
                    slot.copy_from_slice(&frame);
                    true
                };
                if self.send_frame(to, frame.len(), now, out, write) == Err(Refusal::NoRoom) {
                    self.circuits.note_unsent();
                }
            }
        }
    }

    /// Sends a frame, if there is room; that there is none is the caller's to count.
    fn send_frame<O: Outbox>(
        &mut self,
        to: PeerId,
        len: usize,
        now: Instant,
        out: &mut O,
        write: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<(), Refusal> {
        let Some(link) = self.peers.link(to) else {
            self.circuits.note_unsent();
            return Err(Refusal::NoEndpoint);
        };
        let before = link.tx_bytes();
        let sent = link.send_cell(len, now, out, write);
        let sealed = link.tx_bytes() - before;
        self.shaper.note_cell(sealed, now);
        if sent.is_err_and(|refusal| refusal != Refusal::NoRoom) {
            self.circuits.note_unsent();
        }
        self.touch(to);
        sent
    }
}
