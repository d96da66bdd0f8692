//! What every handshake datagram must pass before it may cost a Diffie-Hellman.

use std::net::SocketAddr;

use crate::{Drop, Identity, Instant, Random};

/// Checks mac1 on every handshake datagram and, under load, mac2 and the source's rate.
///
/// One gate serves one identity; make a new one when the private key changes.
pub struct Gate {
    identity: Identity,
}

/// What to do with a handshake datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Read it.
    Accept,
    /// Do not read it; send this cookie reply to its source (threat DP-06: 64 bytes for 92 or 148).
    Cookie([u8; 64]),
    /// Drop it in silence.
    Refuse(Drop),
}

impl Gate {
    /// A gate for messages sent to `identity`.
    #[must_use]
    pub fn new(identity: &Identity, random: &mut dyn Random) -> Self {
        let _ = random;
        Self { identity: identity.clone() }
    }

    /// Judges an initiation (148 bytes) or response (92 bytes). Cookie replies need no gate; they
    /// carry no mac1.
    pub fn admit(
        &mut self,
        datagram: &[u8],
        source: SocketAddr,
        now: Instant,
        under_load: bool,
        random: &mut dyn Random,
    ) -> Admission {
        let _ = (datagram, source, now, under_load, random, &self.identity);
        unimplemented!()
    }

    /// When idle sources should next be forgotten; `None` if there are none.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Forgets idle sources if it is time. `admit` does so too, so this only frees memory sooner.
    pub fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
    }
}
