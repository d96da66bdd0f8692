//! The handshake messages: Noise IKpsk2 with WireGuard's prologue, timestamp and MACs.

use crate::{Drop, Identity, PublicKey};

/// An initiation whose sender's static key has been decrypted, but who is not yet proven to hold it:
/// `Peer::accept_initiation` of that peer does the rest.
pub struct OpenedInitiation {
    peer: PublicKey,
}

impl OpenedInitiation {
    /// Whose initiation this claims to be.
    #[must_use]
    pub const fn peer(&self) -> &PublicKey {
        &self.peer
    }
}

/// Decrypts the sender's static key from an initiation that the gate has admitted. Costs one
/// Diffie-Hellman, changes no state.
///
/// # Errors
/// `BadHandshake` if it does not decrypt, `OwnKey` if the sender's key is our own.
pub fn read_initiation(
    identity: &Identity,
    message: &[u8; 148],
) -> Result<OpenedInitiation, Drop> {
    let _ = (identity, message);
    unimplemented!()
}
