//! The handshake's authenticated encryption: ChaCha20-Poly1305 (RFC 8439) with an all-zero nonce,
//! under keys that encrypt once, and XChaCha20-Poly1305 for cookies. And the keys of sessions, of
//! AES-256-GCM (NIST SP 800-38D) too.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::kdf::Secret;

/// A key for one direction, ready to use.
#[must_use]
pub fn key(secret: &Secret) -> LessSafeKey {
    let key = UnboundKey::new(&CHACHA20_POLY1305, &secret.0)
        .expect("ChaCha20-Poly1305 takes every 32-byte key");
    LessSafeKey::new(key)
}

/// The same for a session's second cipher.
pub(crate) fn aes_key(secret: &Secret) -> LessSafeKey {
    let key = UnboundKey::new(&AES_256_GCM, &secret.0).expect("AES-256 takes every 32-byte key");
    LessSafeKey::new(key)
}

/// WireGuard's nonce: four zero bytes, then the counter, little endian.
#[must_use]
pub fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Overwrites the key. The cipher's library does not wipe its keys itself; writing another key over
/// the same bytes, before the eyes of the optimiser, is what safe code can do.
pub fn wipe(key: &mut LessSafeKey) {
    *key = self::key(&Secret([0; 32]));
    core::hint::black_box(key);
}

/// The same for a key of the second cipher. A key of the same kind, since the two kinds differ in
/// length and the longer one is to be overwritten to its end.
pub(crate) fn wipe_aes(key: &mut LessSafeKey) {
    *key = aes_key(&Secret([0; 32]));
    core::hint::black_box(key);
}

/// Encrypts a handshake field of `N` bytes into `M` = `N` + 16 bytes.
#[must_use]
pub fn seal<const N: usize, const M: usize>(
    secret: &Secret,
    plain: &[u8; N],
    associated: &[u8; 32],
) -> [u8; M] {
    const { assert!(M == N + 16, "a sealed field is its plaintext and a tag") };
    let mut sealed = [0; M];
    sealed[..N].copy_from_slice(plain);
    let mut cipher = key(secret);
    let tag = cipher
        .seal_in_place_separate_tag(nonce(0), Aad::from(associated), &mut sealed[..N])
        .expect("handshake fields are far below the cipher's length limit");
    sealed[N..].copy_from_slice(tag.as_ref());
    wipe(&mut cipher);
    sealed
}

/// The reverse of `seal`; `None` if it does not authenticate.
#[must_use]
pub fn open<const N: usize, const M: usize>(
    secret: &Secret,
    sealed: &[u8; M],
    associated: &[u8; 32],
) -> Option<[u8; N]> {
    const { assert!(M == N + 16, "a sealed field is its plaintext and a tag") };
    let mut bytes = *sealed;
    let mut cipher = key(secret);
    let opened = cipher.open_in_place(nonce(0), Aad::from(associated), &mut bytes).is_ok();
    wipe(&mut cipher);
    opened.then(|| *bytes.first_chunk().expect("M is greater than N"))
}

/// Encrypts a cookie of 16 bytes.
pub(crate) fn seal_cookie(
    secret: &Secret,
    nonce: &[u8; 24],
    cookie: &[u8; 16],
    mac1: &[u8; 16],
) -> [u8; 32] {
    let sealed = seal_extended(secret, nonce, cookie, mac1);
    sealed.try_into().expect("16 bytes and a tag are 32")
}

/// Decrypts a cookie; `None` if it does not authenticate.
pub(crate) fn open_cookie(
    secret: &Secret,
    nonce: &[u8; 24],
    sealed: &[u8; 32],
    mac1: &[u8; 16],
) -> Option<[u8; 16]> {
    open_extended(secret, nonce, sealed, mac1)?.try_into().ok()
}

/// XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03).
pub(crate) fn seal_extended(
    secret: &Secret,
    nonce: &[u8; 24],
    plain: &[u8],
    associated: &[u8],
) -> Vec<u8> {
    XChaCha20Poly1305::new(&secret.0.into())
        .encrypt(&XNonce::from(*nonce), Payload { msg: plain, aad: associated })
        .expect("a cookie is far below the cipher's length limit")
}

/// The reverse of `seal_extended`; `None` if it does not authenticate.
pub(crate) fn open_extended(
    secret: &Secret,
    nonce: &[u8; 24],
    sealed: &[u8],
    associated: &[u8],
) -> Option<Vec<u8>> {
    XChaCha20Poly1305::new(&secret.0.into())
        .decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: associated })
        .ok()
}
