//! Statements of the server that outlive the connection: signed text, so that a node can start from
//! what it kept when the server is gone.
//!
//! The signature is Ed25519 (RFC 8032) over a fixed word and the text, byte for byte as it was
//! sent; nothing is serialised again before it is verified. A bare statement is signed by its
//! digest, for which processors have instructions, and travels behind the answer's JSON and not in
//! it: a thousand nodes that learn of each other are a thousand statements of 200 kB.
//! The key to verify with comes through
//! the channel, which the pinned key authenticates, and is pinned in turn.

use core::fmt;

use noise::Random;
use ring::digest::{SHA256, digest};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::text::bytes;

/// What every signature covers first, so that a signature under this key means nothing elsewhere.
const DOMAIN: &[u8] = b"warren statement 1\0";
/// The same of a bare statement, of which the SHA-256 follows and not the text.
const BARE_DOMAIN: &[u8] = b"warren statement 2\0";

/// A text with the server's signature.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Signed {
    /// The text, JSON of a [`Statement`](crate::Statement).
    pub text: String,
    /// 64 bytes.
    #[serde(with = "bytes")]
    pub signature: Vec<u8>,
    /// The signature is of the text's SHA-256, and the text stands behind an answer's JSON.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub bare: bool,
}

/// The key that a server signs with. Prints nothing of itself.
pub struct SigningKey(Ed25519KeyPair);

/// The key that a node verifies with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VerifyingKey(#[serde(with = "bytes")] pub [u8; 32]);

/// The text was not signed by this key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadSignature;

impl SigningKey {
    /// From 32 secret bytes, which the caller wipes. `None` never happens with 32 bytes.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Option<Self> {
        Ed25519KeyPair::from_seed_unchecked(seed).ok().map(Self)
    }

    /// A new key with its 32 secret bytes, which the caller keeps or wipes.
    #[must_use]
    pub fn generate(random: &mut dyn Random) -> Option<(Self, [u8; 32])> {
        let mut seed = [0; 32];
        random.fill(&mut seed);
        let key = Self::from_seed(&seed);
        if key.is_none() {
            seed.zeroize();
        }
        key.map(|key| (key, seed))
    }

    /// The key to verify with.
    #[must_use]
    pub fn verifying(&self) -> VerifyingKey {
        let mut key = [0; 32];
        key.copy_from_slice(self.0.public_key().as_ref());
        VerifyingKey(key)
    }

    /// Signs a text.
    #[must_use]
    pub fn sign(&self, text: String) -> Signed {
        let signature = self.0.sign(&[DOMAIN, text.as_bytes()].concat()).as_ref().to_vec();
        Signed { text, signature, bare: false }
    }

    /// Signs a text by its digest, for those who read that ([`Poll::bare`](crate::Poll::bare)).
    #[must_use]
    pub fn sign_bare(&self, text: String) -> Signed {
        let signature = self.0.sign(&digested(&text)).as_ref().to_vec();
        Signed { text, signature, bare: true }
    }
}

/// What is signed of a bare statement.
fn digested(text: &str) -> [u8; BARE_DOMAIN.len() + 32] {
    let mut bytes = [0; BARE_DOMAIN.len() + 32];
    let (domain, sum) = bytes.split_at_mut(BARE_DOMAIN.len());
    domain.copy_from_slice(BARE_DOMAIN);
    sum.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    bytes
}

impl Signed {
    /// The text, if `key` signed it.
    ///
    /// # Errors
    /// [`BadSignature`].
    pub fn verify(&self, key: &VerifyingKey) -> Result<&str, BadSignature> {
        let key = UnparsedPublicKey::new(&ED25519, key.0);
        let verified = match self.bare {
            true => key.verify(&digested(&self.text), &self.signature),
            false => key.verify(&[DOMAIN, self.text.as_bytes()].concat(), &self.signature),
        };
        verified.map(|()| self.text.as_str()).map_err(|_| BadSignature)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

impl fmt::Display for BadSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the signature is not of the server that this node joined")
    }
}

impl core::error::Error for BadSignature {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::tests::testing::Seeded;

    #[test]
    fn only_the_text_that_was_signed_verifies() {
        let (key, _) = SigningKey::generate(&mut Seeded(1)).unwrap();
        let (other, _) = SigningKey::generate(&mut Seeded(2)).unwrap();
        for signed in [key.sign("{\"a\":1}".to_owned()), key.sign_bare("{\"a\":1}".to_owned())] {
            only(&signed, &key, &other);
            // Nor is one form the other's.
            let turned = Signed { bare: !signed.bare, ..signed };
            assert_eq!(turned.verify(&key.verifying()), Err(BadSignature));
        }
    }

    #[test]
    fn sc_05_a_key_is_named_and_not_shown_and_a_refusal_says_whose_it_should_be() {
        let (key, _) = SigningKey::generate(&mut Seeded(1)).unwrap();
        assert_eq!(format!("{key:?}"), "SigningKey(…)");
        assert!(BadSignature.to_string().contains("the server that this node joined"));
    }

    fn only(signed: &Signed, key: &SigningKey, other: &SigningKey) {
        assert_eq!(signed.verify(&key.verifying()), Ok("{\"a\":1}"));
        assert_eq!(signed.verify(&other.verifying()), Err(BadSignature));
        for bit in 0..signed.text.len() * 8 {
            let mut text = signed.text.clone().into_bytes();
            text[bit / 8] ^= 1 << (bit % 8);
            if let Ok(text) = String::from_utf8(text) {
                let changed = Signed { text, ..signed.clone() };
                assert_eq!(changed.verify(&key.verifying()), Err(BadSignature));
            }
        }
        for bit in 0..512 {
            let mut changed = signed.clone();
            changed.signature[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(changed.verify(&key.verifying()), Err(BadSignature), "bit {bit}");
        }
        let json = serde_json::to_string(signed).unwrap();
        assert_eq!(serde_json::from_str::<Signed>(&json).unwrap(), *signed);
    }
}
