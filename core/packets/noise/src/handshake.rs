//! The handshake messages: Noise IKpsk2 with WireGuard's prologue and timestamp.
//! (WireGuard paper, sections 5.4.2 to 5.4.5.)
//!
//! Pure computation: what to send, what was received, which keys follow. When to do any of it, and
//! whether it is allowed, is the peer's business.

use core::fmt;

use wire::wireguard::{Initiation, Response};

use crate::kdf::{self, Secret};
use crate::session::{Agreed, Role};
use crate::{Drop, Identity, Index, PresharedKey, PrivateKey, PublicKey, Tai64n, aead};

/// An initiation whose sender's static key has been decrypted, but who is not yet proven to hold
/// it: `Peer::accept_initiation` of that peer does the rest.
pub struct OpenedInitiation {
    peer: PublicKey,
    ephemeral: PublicKey,
    encrypted_timestamp: [u8; 28],
    sender: u32,
    noise: Transcript,
}

/// Decrypts the sender's static key from an initiation that the gate has admitted. Costs one
/// Diffie-Hellman, changes no state.
///
/// # Errors
/// `BadHandshake` if it does not decrypt, `OwnKey` if the sender's key is our own.
pub fn read_initiation(identity: &Identity, message: &[u8; 148]) -> Result<OpenedInitiation, Drop> {
    let fields = Initiation(message);
    let ephemeral = PublicKey(*fields.ephemeral());
    let mut noise = Transcript::new(identity.transcript);
    noise.mix_public(&ephemeral);
    let shared = identity.private().agree(&ephemeral).ok_or(Drop::BadHandshake)?;
    let key = noise.mix_secret(&shared.0);
    let peer = noise.open(&key, fields.encrypted_static()).map(PublicKey)?;
    if peer == *identity.public() {
        return Err(Drop::OwnKey);
    }
    let encrypted_timestamp = *fields.encrypted_timestamp();
    Ok(OpenedInitiation { peer, ephemeral, encrypted_timestamp, sender: fields.sender(), noise })
}

impl OpenedInitiation {
    /// Whose initiation this claims to be.
    #[must_use]
    pub const fn peer(&self) -> &PublicKey {
        &self.peer
    }

    /// Decrypts the timestamp, which proves that the sender holds the static key.
    pub(crate) fn prove(self, static_static: &Secret) -> Result<ProvenInitiation, Drop> {
        let mut noise = self.noise;
        let key = noise.mix_secret(&static_static.0);
        let timestamp = noise.open(&key, &self.encrypted_timestamp).map(Tai64n)?;
        Ok(ProvenInitiation {
            timestamp,
            peer: self.peer,
            ephemeral: self.ephemeral,
            sender: self.sender,
            noise,
        })
    }
}

impl fmt::Debug for OpenedInitiation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenedInitiation({})", self.peer)
    }
}

/// An initiation that its sender has made; it may still be a replay.
pub(crate) struct ProvenInitiation {
    pub(crate) timestamp: Tai64n,
    peer: PublicKey,
    ephemeral: PublicKey,
    sender: u32,
    noise: Transcript,
}

impl ProvenInitiation {
    /// The response, its MACs still zero, and the session's keys. `None` if a key of the peer has
    /// low order.
    pub(crate) fn respond(
        self,
        psk: &PresharedKey,
        ephemeral: &PrivateKey,
        local: Index,
    ) -> Option<([u8; 92], Agreed)> {
        let mut noise = self.noise;
        let public = ephemeral.public();
        noise.mix_public(&public);
        noise.mix_chain(&ephemeral.agree(&self.ephemeral)?.0);
        noise.mix_chain(&ephemeral.agree(&self.peer)?.0);
        let key = noise.mix_psk(psk);
        let nothing = noise.seal::<0, 16>(&key, &[]);
        let message = Response::build(local.0, self.sender, public.as_bytes(), &nothing);
        let (opening, sealing) = kdf::kdf2(&noise.chain.0, &[]);
        let role = Role::Responder;
        let remote = self.sender;
        let psk = psk.clone();
        Some((message, Agreed { sealing, opening, local, remote, role, psk }))
    }
}

/// Our initiation in flight. Consumed by the response to it, once (threat DP-08).
pub(crate) struct Sent {
    /// Our index, which the response must carry.
    pub(crate) local: Index,
    ephemeral: PrivateKey,
    noise: Transcript,
}

impl Sent {
    /// A new initiation to `peer`, its MACs still zero. `None` if the peer's key has low order.
    pub(crate) fn new(
        identity: &Identity,
        peer: &PublicKey,
        static_static: &Secret,
        ephemeral: PrivateKey,
        local: Index,
        timestamp: Tai64n,
    ) -> Option<([u8; 148], Self)> {
        let mut noise = Transcript::new(kdf::hash(&[&kdf::INITIAL_TRANSCRIPT, &peer.0]));
        let public = ephemeral.public();
        noise.mix_public(&public);
        let key = noise.mix_secret(&ephemeral.agree(peer)?.0);
        let encrypted_static = noise.seal(&key, identity.public().as_bytes());
        let key = noise.mix_secret(&static_static.0);
        let encrypted_timestamp = noise.seal(&key, &timestamp.0);
        let message =
            Initiation::build(local.0, public.as_bytes(), &encrypted_static, &encrypted_timestamp);
        Some((message, Self { local, ephemeral, noise }))
    }

    /// Reads the response, under the first of `psks` that it was made with: the session's keys. A
    /// wrong response leaves the initiation in flight.
    pub(crate) fn read_response<'a>(
        &self,
        identity: &Identity,
        psks: impl Iterator<Item = &'a PresharedKey>,
        message: &[u8; 92],
    ) -> Result<Agreed, Drop> {
        let fields = Response(message);
        let theirs = PublicKey(*fields.ephemeral());
        let mut noise = self.noise.clone();
        noise.mix_public(&theirs);
        noise.mix_chain(&self.ephemeral.agree(&theirs).ok_or(Drop::BadHandshake)?.0);
        noise.mix_chain(&identity.private().agree(&theirs).ok_or(Drop::BadHandshake)?.0);
        for psk in psks {
            let mut noise = noise.clone();
            let key = noise.mix_psk(psk);
            if noise.open::<0, 16>(&key, fields.encrypted_nothing()).is_err() {
                continue;
            }
            let (sealing, opening) = kdf::kdf2(&noise.chain.0, &[]);
            let local = self.local;
            let remote = fields.sender();
            let role = Role::Initiator;
            return Ok(Agreed { sealing, opening, local, remote, role, psk: psk.clone() });
        }
        Err(Drop::BadHandshake)
    }
}

/// The running state of a handshake: chaining key and transcript hash.
#[derive(Clone)]
struct Transcript {
    chain: Secret,
    hash: [u8; 32],
}

impl Transcript {
    fn new(hash: [u8; 32]) -> Self {
        Self { chain: Secret(kdf::INITIAL_CHAIN), hash }
    }

    /// Mixes an ephemeral public key into both.
    fn mix_public(&mut self, key: &PublicKey) {
        self.hash = kdf::hash(&[&self.hash, &key.0]);
        self.mix_chain(&key.0);
    }

    /// Mixes a secret into the chaining key.
    fn mix_chain(&mut self, input: &[u8; 32]) {
        self.chain = kdf::kdf1(&self.chain.0, input);
    }

    /// Mixes a secret into the chaining key and derives a key for the next field.
    fn mix_secret(&mut self, input: &[u8; 32]) -> Secret {
        let (chain, key) = kdf::kdf2(&self.chain.0, input);
        self.chain = chain;
        key
    }

    /// Mixes the preshared key into both and derives a key for the next field.
    fn mix_psk(&mut self, psk: &PresharedKey) -> Secret {
        let (chain, mixed, key) = kdf::kdf3(&self.chain.0, psk.as_bytes());
        self.chain = chain;
        self.hash = kdf::hash(&[&self.hash, &mixed.0]);
        key
    }

    /// Encrypts a field and mixes its ciphertext into the hash.
    fn seal<const N: usize, const M: usize>(&mut self, key: &Secret, field: &[u8; N]) -> [u8; M] {
        let sealed = aead::seal(key, field, &self.hash);
        self.hash = kdf::hash(&[&self.hash, &sealed]);
        sealed
    }

    /// Decrypts a field and mixes its ciphertext into the hash.
    fn open<const N: usize, const M: usize>(
        &mut self,
        key: &Secret,
        sealed: &[u8; M],
    ) -> Result<[u8; N], Drop> {
        let field = aead::open(key, sealed, &self.hash).ok_or(Drop::BadHandshake)?;
        self.hash = kdf::hash(&[&self.hash, sealed]);
        Ok(field)
    }
}

#[cfg(test)]
mod tests;
