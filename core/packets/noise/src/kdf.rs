//! Hashing and key derivation: BLAKE2s, HMAC over it, and WireGuard's `Kdf` 1 to 3, which are HKDF
//! (RFC 5869) with an empty info. (WireGuard paper, section 5.4.)

use blake2::digest::consts::U16;
use blake2::digest::{KeyInit, Mac};
use blake2::{Blake2s256, Blake2sMac, Digest};
use zeroize::{Zeroize, ZeroizeOnDrop};

pub(crate) const LABEL_MAC1: &[u8; 8] = b"mac1----";
pub(crate) const LABEL_COOKIE: &[u8; 8] = b"cookie--";

/// HASH(CONSTRUCTION): the first chaining key.
pub(crate) const INITIAL_CHAIN: [u8; 32] = [
    0x60, 0xe2, 0x6d, 0xae, 0xf3, 0x27, 0xef, 0xc0, 0x2e, 0xc3, 0x35, 0xe2, 0xa0, 0x25, 0xd2, 0xd0,
    0x16, 0xeb, 0x42, 0x06, 0xf8, 0x72, 0x77, 0xf5, 0x2d, 0x38, 0xd1, 0x98, 0x8b, 0x78, 0xcd, 0x36,
];
/// HASH(INITIAL_CHAIN ‖ IDENTIFIER): the first transcript hash.
pub(crate) const INITIAL_TRANSCRIPT: [u8; 32] = [
    0x22, 0x11, 0xb3, 0x61, 0x08, 0x1a, 0xc5, 0x66, 0x69, 0x12, 0x43, 0xdb, 0x45, 0x8a, 0xd5, 0x32,
    0x2d, 0x9c, 0x6c, 0x66, 0x22, 0x93, 0xe8, 0xb7, 0x0e, 0xe1, 0x9c, 0x65, 0xba, 0x07, 0x9e, 0xf3,
];

/// BLAKE2s block length in bytes, on which HMAC works.
const BLOCK_LEN: usize = 64;

/// 32 secret bytes, wiped when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret(pub [u8; 32]);

/// BLAKE2s-256 (RFC 7693) of the parts, one after the other.
#[must_use]
pub fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut state = Blake2s256::new();
    for part in parts {
        Digest::update(&mut state, part);
    }
    state.finalize().into()
}

/// BLAKE2s keyed with up to 32 bytes, 16 bytes out: mac1, mac2 and cookies.
pub(crate) fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; 16] {
    let mut state = <Blake2sMac<U16> as KeyInit>::new_from_slice(key)
        .expect("keys of 16 and 32 bytes are within the 32 that BLAKE2s allows");
    for part in parts {
        state.update(part);
    }
    state.finalize().into_bytes().into()
}

/// BLAKE2s with a key taken in already, for many messages under one key. The key is no secret:
/// that of mac1 follows from a public key.
#[derive(Clone)]
pub(crate) struct KeyedMac(Blake2sMac<U16>);

impl KeyedMac {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let state = <Blake2sMac<U16> as KeyInit>::new_from_slice(key);
        Self(state.expect("32 bytes are what BLAKE2s allows"))
    }

    pub(crate) fn of(&self, message: &[u8]) -> [u8; 16] {
        let mut state = self.0.clone();
        state.update(message);
        state.finalize().into_bytes().into()
    }
}

/// HMAC-BLAKE2s (RFC 2104) with a 32-byte key over the parts.
pub(crate) fn hmac(key: &[u8; 32], parts: &[&[u8]]) -> Secret {
    let mut pad = [0x36; BLOCK_LEN];
    for (p, k) in pad.iter_mut().zip(key) {
        *p ^= k;
    }
    let mut state = Blake2s256::new();
    Digest::update(&mut state, pad);
    for part in parts {
        Digest::update(&mut state, part);
    }
    let mut inner: [u8; 32] = state.finalize().into();
    for p in &mut pad {
        *p ^= 0x36 ^ 0x5c;
    }
    let outer = Secret(hash(&[&pad, &inner]));
    pad.zeroize();
    inner.zeroize();
    outer
}

/// One output key.
pub(crate) fn kdf1(chain: &[u8; 32], input: &[u8]) -> Secret {
    let extracted = hmac(chain, &[input]);
    hmac(&extracted.0, &[&[1]])
}

/// Two output keys.
#[must_use]
pub fn kdf2(chain: &[u8; 32], input: &[u8]) -> (Secret, Secret) {
    let extracted = hmac(chain, &[input]);
    let first = hmac(&extracted.0, &[&[1]]);
    let second = hmac(&extracted.0, &[&first.0, &[2]]);
    (first, second)
}

/// Three output keys.
#[must_use]
pub fn kdf3(chain: &[u8; 32], input: &[u8]) -> (Secret, Secret, Secret) {
    let extracted = hmac(chain, &[input]);
    let first = hmac(&extracted.0, &[&[1]]);
    let second = hmac(&extracted.0, &[&first.0, &[2]]);
    let third = hmac(&extracted.0, &[&second.0, &[3]]);
    (first, second, third)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The Noise protocol name from which the first chaining key is hashed.
    pub(crate) const CONSTRUCTION: &[u8; 37] = b"Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
    /// WireGuard's prologue.
    pub(crate) const IDENTIFIER: &[u8; 34] = b"WireGuard v1 zx2c4 Jason@zx2c4.com";

    #[test]
    fn constants_are_the_hashes_they_claim_to_be() {
        assert_eq!(INITIAL_CHAIN, hash(&[CONSTRUCTION]));
        assert_eq!(INITIAL_TRANSCRIPT, hash(&[&INITIAL_CHAIN, IDENTIFIER]));
    }
}
