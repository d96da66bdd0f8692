//! The sight of each node, and what it was told lately: sets of nodes as bits, one for each number.

use std::collections::BTreeMap;
use std::sync::Arc;

use ring::digest::{SHA256, digest};

/// A set of nodes, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ids(Vec<u64>);

impl Ids {
    pub(super) fn has(&self, id: u64) -> bool {
        let word = usize::try_from(id / 64).ok().and_then(|at| self.0.get(at));
        word.is_some_and(|word| word >> (id % 64) & 1 == 1)
    }

    /// All numbers in it, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        let words = (0_u64..).zip(&self.0);
        words.flat_map(|(at, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        })
    }
}

impl FromIterator<u64> for Ids {
    /// Numbers come from the books, which give them in sequence.
    fn from_iter<I: IntoIterator<Item = u64>>(ids: I) -> Self {
        let mut words = Vec::new();
        for id in ids {
            let at = (id / 64) as usize;
            if words.len() <= at {
                words.resize(at + 1, 0);
            }
            words[at] |= 1 << (id % 64);
        }
        Self(words)
    }
}

/// Rules that were told, without their text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RulesMark {
    version: u64,
    digest: [u8; 32],
}

impl RulesMark {
    pub(super) fn of(policy: &control::Policy) -> Self {
        let mut mark = Self { version: policy.version, digest: [0; 32] };
        mark.digest.copy_from_slice(digest(&SHA256, policy.rules.as_bytes()).as_ref());
        mark
    }
}

/// Whom a node may see, and which rules it is to enforce, in one generation of the books.
#[derive(Clone, Debug)]
pub(super) struct Sight {
    pub(super) generation: u64,
    /// All that policy lets it see, among the members of that generation.
    pub(super) peers: Arc<Ids>,
    pub(super) rules: RulesMark,
}

/// What a node knows that took the statement which leads to `sequence`.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) sequence: u64,
    pub(super) peers: Arc<Ids>,
    pub(super) rules: RulesMark,
}

/// The last two statements for each node: an answer may be lost, and two polls may overlap.
#[derive(Debug, Default)]
pub(super) struct Memory(pub(super) BTreeMap<u64, [Option<Told>; 2]>);

impl Memory {
    /// What was told with this sequence, if that is remembered.
    pub(super) fn recall(&self, id: u64, sequence: u64) -> Option<Told> {
        let told = self.0.get(&id)?.iter().flatten();
        told.clone().find(|told| told.sequence == sequence).cloned()
    }

    /// Whether this node was told anything.
    pub(super) fn has(&self, id: u64) -> bool {
        self.0.contains_key(&id)
    }

    pub(super) fn note(&mut self, id: u64, told: Told) {
        let slots = self.0.entry(id).or_default();
        let [last, before] = slots;
        if last.as_ref().is_none_or(|last| last.sequence != told.sequence) {
            *before = last.take();
        }
        *last = Some(told);
    }

    pub(super) fn forget(&mut self, id: u64) {
        self.0.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_numbers_is_one() {
        let numbers = [0, 1, 63, 64, 200];
        let set: Ids = numbers.into_iter().rev().collect();
        assert!(set.iter().eq(numbers));
        assert!((0..300).all(|n| set.has(n) == numbers.contains(&n)) && !set.has(u64::MAX));
    }

    #[test]
    fn the_last_two_statements_are_remembered() {
        let rules = RulesMark::of(&control::Policy::default());
        let told = |sequence| Told { sequence, peers: Arc::default(), rules };
        let mut memory = Memory::default();
        for sequence in [3, 5, 5, 9] {
            memory.note(1, told(sequence));
        }
        let known: Vec<u64> = (0..10).filter(|n| memory.recall(1, *n).is_some()).collect();
        assert_eq!(known, [5, 9]);
        assert!(memory.recall(2, 9).is_none());
        memory.forget(1);
        assert!(memory.recall(1, 9).is_none());
    }
}
