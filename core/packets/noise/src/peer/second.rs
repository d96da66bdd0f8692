//! The second cipher of a peer's sessions: its indices are drawn, told and heard here.

use super::Peer;
use super::sessions::of;
use crate::{Cipher, Index, Indices, Random};

impl Peer {
    /// Gives the session with our index `session` a second receiver index, to be told to the peer
    /// inside the session (`Session::second_index`): a packet that comes to it is opened with
    /// AES-256-GCM. It is given back with the session. Nothing happens where there is one already,
    /// or none is free.
    pub fn offer_second(&mut self, session: Index, indices: &mut Indices, random: &mut dyn Random) {
        let Some(session) = of([&mut self.current, &mut self.previous], session) else {
            return;
        };
        if session.second_index() != 0 {
            return;
        }
        match indices.allocate(self.id, random) {
            // Zero says "none"; the next offer draws again.
            Some(zero @ Index(0)) => indices.release(zero),
            Some(index) => session.begin_second(index),
            None => {}
        }
    }

    /// Notes what the peer told as its second index on the session with our index `session`, 0 for
    /// none. If we offered one too, what leaves on that session from now on is under AES-256-GCM.
    pub fn accept_second(&mut self, session: Index, remote: u32) {
        if let Some(session) = of([&mut self.current, &mut self.previous], session) {
            session.set_second_remote(remote);
        }
    }

    /// How the next packet is sealed; `None` without a session.
    #[must_use]
    pub fn cipher(&self) -> Option<Cipher> {
        self.current.as_ref().map(|session| session.cipher())
    }

    /// The first index of the live session to which `index`, its first or its second, belongs.
    #[must_use]
    pub fn session_of(&self, index: Index) -> Option<Index> {
        let slots = [&self.current, &self.previous, &self.next];
        let mut live = slots.into_iter().flatten();
        live.find(|session| session.cipher_of(index).is_some()).map(|session| session.index())
    }
}

#[cfg(test)]
mod tests;
