//! Circuits of this machine: what the rooms of `circuit` want carried, and what they bring.

use circuit::{CircuitId, Circuits, Claim, ExitRules, Refused, Standing, Turn};
use noise::PublicKey;
use wire::superpacket::Superpacket;

use super::*;

/// Bytes of a packet that an exit translates: more do not fit into a cell.
const ANSWER_LEN_MAX: usize = 1500;

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

    /// What the peer with this key may do with circuits here. A peer that is not there may nothing.
    pub fn set_circuit_standing(
        &mut self,
        key: &PublicKey,
        standing: Standing,
        random: &mut dyn Random,
    ) {
        if let Some(id) = self.peers.id(key) {
            self.circuits.set_standing(id, standing, random);
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
        let planned = self.circuits.plan(id, len);
        if planned == Err(circuit::Drop::TooBig)
            && let Some(room) = self.circuits.room(id)
        {
            self.refuse_size(None, packet.packet().bytes(), room);
        }
        let (to, frame) = planned.ok()?;
        let (circuits, link) = (&mut self.circuits, self.peers.link(to)?);
        let write = |slot: &mut [u8]| {
            let segment = |place: &mut [u8]| {
                packet.write_segment(index, place);
            };
            circuits.write(id, len, slot, segment, now).is_ok()
        };
        let sent = link.send_cell(frame, now, out, write).ok();
        self.touch(to);
        sent
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
        let link = self.peers.link(answer.to)?;
        let circuits = &mut self.circuits;
        let packet = &place[..answer.len];
        let write =
            |slot: &mut [u8]| circuits.write_answer(answer.circuit, packet, slot, now).is_ok();
        let sent = link.send_cell(answer.frame_len, now, out, write).ok();
        self.touch(answer.to);
        sent
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
            Turn::Relay { to, header, body } => {
                let body = &plain[body];
                let write = |slot: &mut [u8]| {
                    let (head, rest) = slot.split_at_mut(header.len());
                    head.copy_from_slice(&header);
                    rest[..body.len()].copy_from_slice(body);
                    rest[body.len()..].fill(0);
                    true
                };
                self.send_frame(to, circuit::frame_len(body.len()), now, out, write);
            }
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
                self.send_frame(to, frame.len(), now, out, write);
            }
        }
    }

    fn send_frame<O: Outbox>(
        &mut self,
        to: PeerId,
        len: usize,
        now: Instant,
        out: &mut O,
        write: impl FnOnce(&mut [u8]) -> bool,
    ) {
        let Some(link) = self.peers.link(to) else { return };
        if link.send_cell(len, now, out, write).is_err() {
            self.circuits.note_unsent();
        }
        self.touch(to);
    }
}
