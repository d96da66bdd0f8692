//! What every join key and API token opens, in memory: a secret that is nobody's is refused without
//! a look into the books (threat CO-11). Whether one that somebody was given is still good is in
//! the books, and they are asked.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use ring::hmac;

use super::Stored;
use super::db::Db;

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
