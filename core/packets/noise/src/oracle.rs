//! Test builds only: notices when a key seals twice with one nonce.
//!
//! Counters of a key must strictly increase, across all sessions that ever held the key; so the
//! last counter of each key is all there is to remember. It covers one thread, like the simulations
//! do.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::kdf::{self, Secret};

thread_local! {
    static LAST: RefCell<BTreeMap<KeyId, u64>> = const { RefCell::new(BTreeMap::new()) };
    static SEEN: RefCell<BTreeSet<(KeyId, u64)>> = const { RefCell::new(BTreeSet::new()) };
}

/// Forgets every counter, on this thread. For a simulation that starts a world anew from the same
/// seed, and therefore with the same keys.
pub fn forget_nonces() {
    LAST.with_borrow_mut(BTreeMap::clear);
    SEEN.with_borrow_mut(BTreeSet::clear);
}

/// Names a key without being one: its hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId([u8; 32]);

impl KeyId {
    /// The name of `key`.
    #[must_use]
    pub fn new(key: &Secret) -> Self {
        Self(kdf::hash(&[b"nonce oracle", &key.0]))
    }

    /// Panics unless `counter` is greater than every one witnessed for this key before.
    pub(crate) fn witness(self, counter: u64) {
        LAST.with_borrow_mut(|last| {
            let before = last.insert(self, counter);
            assert!(before.is_none_or(|b| counter > b), "nonce {counter} after {before:?}");
        });
    }
}

impl KeyId {
    /// Panics if `counter` was witnessed for this key before: for a key whose counters another
    /// machine chooses, in whatever order.
    pub fn witness_once(self, counter: u64) {
        SEEN.with_borrow_mut(|seen| {
            assert!(seen.insert((self, counter)), "nonce {counter} twice");
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "nonce 1 after Some(1)")]
    fn a_repeated_nonce_panics() {
        let key = KeyId::new(&Secret([7; 32]));
        key.witness(0);
        key.witness(1);
        key.witness(1);
    }

    #[test]
    #[should_panic(expected = "nonce 3 twice")]
    fn counters_in_any_order_may_not_repeat() {
        let key = KeyId::new(&Secret([6; 32]));
        for counter in [5, 3, 4, 3] {
            key.witness_once(counter);
        }
    }

    #[test]
    fn keys_are_counted_apart() {
        KeyId::new(&Secret([8; 32])).witness(5);
        KeyId::new(&Secret([9; 32])).witness(5);
    }
}
