//! The costly half of handshake messages: those of peers, and of guests.

use super::*;

impl Node {
    /// Does the costly half of up to `budget` handshake messages: about 0.1 ms each.
    pub fn handle_handshakes<O: Outbox>(
        &mut self,
        budget: usize,
        clock: Clock,
        random: &mut dyn Random,
        out: &mut O,
    ) {
        for _ in 0..budget {
            let Some(waiting) = self.handshakes.pop_front() else { return };
            match self.handle_handshake(waiting, clock, random, out) {
                Ok(id) => {
                    self.counters.handshakes_in += 1;
                    self.touch(id);
                }
                Err(drop) => self.counters.drop(Reason::Protocol(drop), 1),
            }
        }
    }

    fn handle_handshake<O: Outbox>(
        &mut self,
        waiting: Waiting,
        clock: Clock,
        random: &mut dyn Random,
        out: &mut O,
    ) -> Result<PeerId, Drop> {
        let identity = self.identity.as_ref().ok_or(Drop::UnknownPeer)?;
        let opened = match &waiting {
            Waiting::Initiation(_, message) => Some(read_initiation(identity, message)?),
            Waiting::Response(..) => None,
        };
        if let Some(key) = opened.as_ref().map(|opened| *opened.peer())
            && self.peers.id(&key).is_none()
        {
            self.admit_guest(key, clock.now, random).ok_or(Drop::UnknownPeer)?;
        }
        let identity = self.identity.as_ref().ok_or(Drop::UnknownPeer)?;
        let mut world = World {
            identity: Some(identity),
            indices: &mut self.indices,
            random,
            now: clock.now,
            wall: clock.wall,
            mtu: self.mtu,
            reach: self.reach.own(),
        };
        match waiting {
            Waiting::Initiation(from, _) => {
                let opened = opened.ok_or(Drop::UnknownPeer)?;
                let id = self.peers.id(opened.peer()).ok_or(Drop::UnknownPeer)?;
                let link = self.peers.link(id).ok_or(Drop::UnknownPeer)?;
                link.handle_initiation(from, opened, &mut world, out)?;
                Ok(id)
            }
            Waiting::Response(from, id, message) => {
                let link = self.peers.link(id).ok_or(Drop::UnexpectedResponse)?;
                link.handle_response(from, &message, &mut world)?;
                Ok(id)
            }
        }
    }
}
