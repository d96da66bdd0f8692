//! What every join key and API token opens, in memory: a secret that is nobody's is refused without
//! a look into the books (threat CO-11). Whether one that somebody was given is still good is in
//! the books, and they are asked.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use control::text::{from_base64url, to_base64url};
use noise::Random as _;
use ring::{aead, hmac};

use super::Stored;
use super::db::Db;
use crate::keys::SystemRandom;

/// The keyed hashes of all secrets, by their look-up names.
pub(crate) struct Secrets {
    pepper: hmac::Key,
    hashes: RwLock<BTreeMap<[u8; 8], Vec<u8>>>,
}

impl Secrets {
    pub(super) fn new(pepper: hmac::Key) -> Self {
        Self { pepper, hashes: RwLock::default() }
    }

    /// Whether this secret is one that was given to somebody.
    pub(crate) fn open(&self, id: &[u8; 8], secret: &[u8; 16]) -> bool {
        let hashes = self.hashes.read().unwrap_or_else(PoisonError::into_inner);
        let is =
            |hash: &Vec<u8>| hmac::verify(&self.pepper, &[&id[..], secret].concat(), hash).is_ok();
        hashes.get(id).is_some_and(is)
    }

    /// 128 bits of a keyed hash of something, for one purpose.
    pub(crate) fn seal(&self, purpose: &str, what: &[u8]) -> [u8; 16] {
        let mut context = hmac::Context::with_key(&self.pepper);
        // A name of a purpose has no zero in it, and a secret's look-up name has eight bytes.
        context.update(purpose.as_bytes());
        context.update(&[0]);
        context.update(what);
        let mut short = [0; 16];
        short.copy_from_slice(&context.sign().as_ref()[..16]);
        short
    }

    /// A text as it is kept in the books, where only this server reads it.
    pub(crate) fn hide(&self, text: &str) -> String {
        let mut nonce = [0; aead::NONCE_LEN];
        SystemRandom.fill(&mut nonce);
        let mut sealed = text.as_bytes().to_vec();
        let at = aead::Nonce::assume_unique_for_key(nonce);
        let done = self.cipher().seal_in_place_append_tag(at, aead::Aad::empty(), &mut sealed);
        done.expect("a text is not too long for the cipher");
        to_base64url(&[&nonce[..], &sealed].concat())
    }

    /// The text that was hidden so.
    pub(crate) fn show(&self, hidden: &str) -> Option<String> {
        let mut bytes = from_base64url(hidden)?;
        let (nonce, sealed) = bytes.split_at_mut_checked(aead::NONCE_LEN)?;
        let at = aead::Nonce::try_assume_unique_for_key(nonce).ok()?;
        let text = self.cipher().open_in_place(at, aead::Aad::empty(), sealed).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }

    fn cipher(&self) -> aead::LessSafeKey {
        let key = ["hide-1", "hide-2"].map(|part| self.seal(part, &[])).concat();
        let key = aead::UnboundKey::new(&aead::CHACHA20_POLY1305, &key);
        aead::LessSafeKey::new(key.expect("a key has 32 bytes"))
    }

    /// One more, which was committed.
    pub(super) fn add(&self, id: [u8; 8], hash: Vec<u8>) {
        self.hashes.write().unwrap_or_else(PoisonError::into_inner).insert(id, hash);
    }

    /// All, as they are in the books now.
    pub(super) fn read(&self, db: &Db) -> Stored<()> {
        let sql = "SELECT lookup, hash FROM join_keys UNION ALL
                   SELECT lookup, hash FROM api_tokens";
        let mut all = BTreeMap::new();
        for row in db.rows(sql, &[])? {
            let id: Vec<u8> = row.read(0)?;
            if let Ok(id) = id.try_into() {
                all.insert(id, row.read(1)?);
            }
        }
        *self.hashes.write().unwrap_or_else(PoisonError::into_inner) = all;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wb_08_what_is_hidden_in_the_books_only_this_server_reads() {
        let secrets = |pepper: u8| Secrets::new(hmac::Key::new(hmac::HMAC_SHA256, &[pepper; 32]));
        let hidden = secrets(1).hide("a refresh token");
        assert_ne!(hidden, secrets(1).hide("a refresh token"));
        assert_eq!(secrets(1).show(&hidden).as_deref(), Some("a refresh token"));
        assert_eq!(secrets(2).show(&hidden), None);
        let bent = format!("B{}", &hidden[1..]);
        for other in ["", "AAAA", &hidden[..20], &bent] {
            assert_eq!(secrets(1).show(other).filter(|_| other != hidden), None, "{other}");
        }
    }
}
