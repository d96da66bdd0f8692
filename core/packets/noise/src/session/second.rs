//! Beyond WireGuard: a session's second cipher, AES-256-GCM, for two ends whose processors have
//! instructions for it.
//!
//! Each end may draw a second receiver index and tell it to the other inside the session; a packet
//! to that index is under this cipher. The keys follow from the session's, one a direction.
//! Counter, replay window and end are the session's own, so a counter seals once, under either key.
//! Nobody has to use it: whoever was told no second index, or told none, seals as WireGuard does.

use ring::aead::LessSafeKey;

use crate::kdf::{self, Secret};
use crate::{Index, aead};

/// What the further keys are derived with: Kdf1(key of the direction, this).
const LABEL: &[u8] = b"warren: second cipher, AES-256-GCM";

/// Blocks of 16 bytes that one key encrypts at most; beyond, the session's first cipher takes over.
/// What an attacker gains by guessing stays below 2^-57 (RFC 9001, B.1.1: packets times their
/// blocks at most 2^35). 550 GB in the 180 s of a session take 24 Gbit/s.
const BLOCKS_MAX: u64 = 1 << 35;

/// How a packet of a session is encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cipher {
    /// WireGuard's.
    ChaCha20Poly1305,
    /// The second one, between nodes that told each other a second index.
    Aes256Gcm,
}

impl Cipher {
    /// Its name, as the RFCs write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
            Self::Aes256Gcm => "AES-256-GCM",
        }
    }
}

/// The second cipher's state: 64 bytes of secrets until an index is drawn, then the keys.
pub(super) struct Second {
    sealing: Secret,
    opening: Secret,
    keys: Option<Box<Keys>>,
    /// What the peer told us to address; 0 while it told nothing.
    pub(super) remote: u32,
}

/// Made with the index, since only who has one can use them.
struct Keys {
    sealing: LessSafeKey,
    opening: LessSafeKey,
    local: Index,
    /// Blocks that may still be sealed.
    blocks_left: u64,
    #[cfg(feature = "oracle")]
    oracle: crate::oracle::KeyId,
}

impl Second {
    pub(super) fn new(sealing: &Secret, opening: &Secret) -> Self {
        let [sealing, opening] = [sealing, opening].map(|key| kdf::kdf1(&key.0, LABEL));
        Self { sealing, opening, keys: None, remote: 0 }
    }

    /// Makes the keys: from now on the peer may seal to `local`.
    pub(super) fn begin(&mut self, local: Index) {
        self.keys = Some(Box::new(Keys {
            sealing: aead::aes_key(&self.sealing),
            opening: aead::aes_key(&self.opening),
            local,
            blocks_left: BLOCKS_MAX,
            #[cfg(feature = "oracle")]
            oracle: crate::oracle::KeyId::new(&self.sealing),
        }));
    }

    pub(super) fn local(&self) -> Option<Index> {
        self.keys.as_ref().map(|keys| keys.local)
    }

    /// The key for a packet to `local`.
    pub(super) fn opening(&self) -> Option<&LessSafeKey> {
        self.keys.as_ref().map(|keys| &keys.opening)
    }

    /// `true` if the next packet is sealed with this cipher.
    pub(super) fn is_on(&self) -> bool {
        self.remote != 0 && self.keys.as_ref().is_some_and(|keys| keys.blocks_left > 0)
    }

    /// The key and the receiver index for a datagram of `len` bytes; `None` if it takes the first
    /// cipher.
    pub(super) fn sealing(&mut self, len: usize) -> Option<(&LessSafeKey, u32)> {
        let keys = self.keys.as_mut().filter(|keys| self.remote != 0 && keys.blocks_left > 0)?;
        // Header and tag count as two blocks: more than the rounding and the tag's own.
        keys.blocks_left = keys.blocks_left.saturating_sub(len as u64 / 16);
        Some((&keys.sealing, self.remote))
    }

    /// The name of the key that the next packet is sealed with, if it is this cipher's.
    #[cfg(feature = "oracle")]
    pub(super) fn oracle(&self) -> Option<crate::oracle::KeyId> {
        self.keys.as_ref().filter(|_| self.is_on()).map(|keys| keys.oracle)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        aead::wipe_aes(&mut self.sealing);
        aead::wipe_aes(&mut self.opening);
    }
}

#[cfg(test)]
mod tests;
