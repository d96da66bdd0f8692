//! What a machine does as a hop: it is made one, makes another the next, and ends.

use noise::{PeerId, PrivateKey, PublicKey};
use wire::frame::Build;

use super::{Circuits, World, address, draw_mask};
use crate::client::Said;
use crate::handshake::{self, First, Second};
use crate::hop::{Hop, Next};
use crate::layer::Mask;
use crate::neighbour::{Owner, Side};
use crate::word::Word;
use crate::{ADDRESSES, CIRCUITS_MAX, Drop, End};

impl Circuits {
    /// A neighbour wants us to be the next hop.
    pub(super) fn create(
        &mut self,
        from: PeerId,
        index: u32,
        (layered, mask, first): (bool, [u8; 32], First),
        world: &mut World<'_>,
    ) -> Result<(), Drop> {
        if let Some(hop) = self.asked.get(&(from, index)).and_then(|id| self.hops.get(id)) {
            if hop.first != first {
                return Err(Drop::Unexpected);
            }
            let theirs = hop.previous.ours;
            let message = hop.second;
            self.send(from, &Build::Created { index, theirs, message });
            return Ok(());
        }
        let begun = if !self.is_hop {
            Err(Drop::Forbidden)
        } else if self.hops.len() >= CIRCUITS_MAX {
            Err(Drop::Busy)
        } else {
            self.neighbours.begin(from, world.now)
        };
        if let Err(reason) = begun {
            let end = if reason == Drop::Busy { End::Busy } else { End::Forbidden };
            self.send(from, &Build::Refused { index, reason: end.number() });
            return Err(reason);
        }
        let made = self.make(from, index, (layered, mask, first), world);
        if made.is_err() {
            self.neighbours.end(from);
        }
        made
    }

    fn make(
        &mut self,
        from: PeerId,
        index: u32,
        (layered, mask, first): (bool, [u8; 32], First),
        world: &mut World<'_>,
    ) -> Result<(), Drop> {
        let id = self.new_hop();
        let (private, _) = self.key.as_ref().ok_or(Drop::Forbidden)?;
        let address = address(id);
        let leads_six = self.is_exit && self.exit.leads_six();
        let said = Said { address, is_exit: self.is_exit, leads_six }.write();
        let ephemeral = PrivateKey::generate(world.random);
        let (second, agreed) =
            handshake::answer(private, &first, &ephemeral, &said).ok_or(Drop::Tampered)?;
        let ours = self.neighbours.allocate(from, Owner::Forth(id)).ok_or(Drop::Busy)?;
        let previous = Side { peer: from, ours, theirs: index, mask: Mask::new(&mask) };
        let hop = Hop::new(previous, layered, &agreed, (first, second), address, world.now);
        self.hops.insert(id, Box::new(hop));
        self.asked.insert((from, index), id);
        self.send(from, &Build::Created { index, theirs: ours, message: second });
        Ok(())
    }

    /// A number that no living hop has: its address follows from it.
    fn new_hop(&mut self) -> u32 {
        loop {
            self.next_hop = self.next_hop % ADDRESSES + 1;
            if !self.hops.contains_key(&self.next_hop) {
                return self.next_hop;
            }
        }
    }

    pub(super) fn created_next(
        &mut self,
        id: u32,
        theirs: u32,
        second: Second,
    ) -> Result<(), Drop> {
        let hop = self.hops.get_mut(&id).ok_or(Drop::UnknownIndex)?;
        let Next::Asked { mut side, first, number, .. } =
            std::mem::replace(&mut hop.next, Next::None)
        else {
            return Err(Drop::Unexpected);
        };
        side.theirs = theirs;
        hop.next = Next::Made { side, first, second };
        let to = hop.previous.peer;
        let frame = hop.write_word(&Word::Extended { message: second }, number);
        self.push(to, frame);
        Ok(())
    }

    /// What a client says to this hop.
    pub(super) fn handle_word(
        &mut self,
        id: u32,
        word: Word,
        number: u64,
        world: &mut World<'_>,
    ) -> Result<(), Drop> {
        let hop = self.hops.get_mut(&id).ok_or(Drop::UnknownIndex)?;
        match word {
            Word::Ping { token } => {
                hop.set_room(token & 0xffff);
                let to = hop.previous.peer;
                let frame = hop.write_word(&Word::Pong { token }, number);
                self.push(to, frame);
                Ok(())
            }
            Word::Cover => {
                let to = hop.previous.peer;
                let frame = hop.write_word(&Word::Covered, number);
                self.push(to, frame);
                Ok(())
            }
            Word::Extend { next, message } => self.extend(id, next, message, number, world),
            _ => Err(Drop::Unexpected),
        }
    }

    fn extend(
        &mut self,
        id: u32,
        next: PublicKey,
        message: First,
        number: u64,
        world: &mut World<'_>,
    ) -> Result<(), Drop> {
        let found = (world.find)(&next);
        let own = self.key.as_ref().map(|key| key.1);
        let hop = self.hops.get_mut(&id).ok_or(Drop::UnknownIndex)?;
        let before = hop.previous.peer;
        match &mut hop.next {
            Next::Made { first, second, .. } if *first == message => {
                let word = Word::Extended { message: *second };
                let frame = hop.write_word(&word, number);
                self.push(before, frame);
                return Ok(());
            }
            Next::Asked { first, number: asked, side, mask } if *first == message => {
                *asked = number;
                let peer = side.peer;
                let index = side.ours;
                let mask = *mask;
                self.send(peer, &Build::Create { index, layered: true, mask, message });
                return Ok(());
            }
            Next::None => {}
            _ => return Err(Drop::Unexpected),
        }
        let peer = found.filter(|peer| *peer != before && Some(next) != own);
        let peer = peer.filter(|peer| self.neighbours.standing(*peer).hop);
        let ours = peer.and_then(|peer| self.neighbours.allocate(peer, Owner::Back(id)));
        let (Some(peer), Some(ours)) = (peer, ours) else {
            let refused = Word::Refused { reason: End::Unreachable.number() };
            let frame = hop.write_word(&refused, number);
            self.push(before, frame);
            return Err(Drop::Forbidden);
        };
        let mask = draw_mask(world.random);
        let side = Side { peer, ours, theirs: 0, mask: Mask::new(&mask) };
        hop.next = Next::Asked { side, mask, first: message, number };
        self.send(peer, &Build::Create { index: ours, layered: true, mask, message });
        Ok(())
    }

    /// The next hop refused, or has ended the circuit.
    pub(super) fn lost_next(&mut self, id: u32, from: PeerId, end: End) {
        let Some(hop) = self.hops.get_mut(&id) else { return };
        if let Next::Asked { side, number, .. } = &hop.next {
            let ours = side.ours;
            let number = *number;
            self.neighbours.free(from, ours);
            hop.next = Next::None;
            let word = Word::Refused { reason: end.number() };
            let to = hop.previous.peer;
            let frame = hop.write_word(&word, number);
            self.push(to, frame);
        } else {
            self.end_hop(id, Some(from), end);
        }
    }

    /// Ends a circuit that we are a hop of, and tells both neighbours but `from`.
    pub(super) fn end_hop(&mut self, id: u32, from: Option<PeerId>, end: End) {
        let Some(hop) = self.hops.remove(&id) else { return };
        let Hop { previous, next, .. } = *hop;
        self.exit.forget(id);
        self.asked.remove(&(previous.peer, previous.theirs));
        self.neighbours.end(previous.peer);
        let next = match next {
            Next::Asked { side, .. } | Next::Made { side, .. } => Some(side),
            Next::None => None,
        };
        for side in [Some(previous), next].into_iter().flatten() {
            self.neighbours.free(side.peer, side.ours);
            if Some(side.peer) != from {
                let destroy = Build::Destroy { index: side.theirs, reason: end.number() };
                self.send(side.peer, &destroy);
            }
        }
    }
}
