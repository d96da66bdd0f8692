//! Guests: clients of circuits that are in no network of ours. Who begins a handshake under a key
//! that nobody knows becomes a peer without addresses, so nothing of it passes but frames of
//! circuits; and is forgotten when it has been silent.

use std::collections::BTreeMap;

use circuit::Standing;
use noise::PublicKey;

use super::*;

/// Guests at once.
pub const GUESTS_MAX: usize = 1024;
/// A guest without a handshake for so long is gone: who is there has one every two minutes.
const IDLE: Duration = Duration::from_secs(300);
/// And where there is no room for another one, so long.
const IDLE_MIN: Duration = Duration::from_secs(10);

/// Those that there are.
#[derive(Default)]
pub(super) struct Guests {
    max: usize,
    known: BTreeMap<PublicKey, Instant>,
}

impl Node {
    /// Lets so many guests in, [`GUESTS_MAX`] at most; with none those that there are go.
    pub fn set_circuit_guests(&mut self, max: usize) {
        self.guests.max = max.min(GUESTS_MAX);
        if max == 0 {
            for key in std::mem::take(&mut self.guests.known).into_keys() {
                self.end_guest(&key);
            }
        }
    }

    /// Forgets guests that are gone.
    pub fn forget_guests(&mut self, now: Instant) {
        for key in self.idle_guests(IDLE, now) {
            self.guests.known.remove(&key);
            self.end_guest(&key);
        }
    }

    /// How many there are.
    #[must_use]
    pub fn guests(&self) -> usize {
        self.guests.known.len()
    }

    fn idle_guests(&self, time: Duration, now: Instant) -> Vec<PublicKey> {
        let is_idle = |(key, since): &(&PublicKey, &Instant)| {
            let link = self.peers.id(key).and_then(|id| self.peers.link_ref(id));
            let last = link.and_then(|link| link.peer().last_handshake());
            last.unwrap_or(**since).max(**since).is_older_than(time, now)
        };
        self.guests.known.iter().filter(is_idle).map(|(key, _)| *key).collect()
    }

    fn end_guest(&mut self, key: &PublicKey) {
        if let Some(id) = self.peers.id(key) {
            self.remove(id);
        }
    }

    /// Somebody whom nobody knows has begun a handshake, and holds the key.
    pub(super) fn admit_guest(
        &mut self,
        key: PublicKey,
        now: Instant,
        random: &mut dyn Random,
    ) -> Option<PeerId> {
        if self.guests.max == 0 {
            return None;
        }
        if self.guests.known.len() >= self.guests.max {
            let gone = self.idle_guests(IDLE_MIN, now).into_iter().next()?;
            self.guests.known.remove(&gone);
            self.end_guest(&gone);
        }
        self.change_peer(&PeerChange::new(key), random).ok()?;
        let id = self.peers.id(&key)?;
        self.guests.known.insert(key, now);
        self.circuits.set_standing(id, Standing { uses: true, hop: false }, random);
        Some(id)
    }

    /// A guest that is made a peer of ours is none any more.
    pub(super) fn note_member(&mut self, key: &PublicKey) {
        self.guests.known.remove(key);
    }
}
