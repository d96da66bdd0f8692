//! A table whose entries are found by their key and by their age, in a few steps each, whatever
//! keys a peer chooses (threat BC-10).

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

/// Ages of entries that are gone are kept up to so many beside those of entries that are there.
const GONE_MAX: usize = 256;

/// Entries with the time at which each came. Times do not go back.
#[derive(Debug)]
pub struct Aged<K, V> {
    entries: BTreeMap<K, (u64, V)>,
    /// In the order in which entries came. The first is of one that is there; of the others some
    /// may be gone.
    ages: VecDeque<(u64, K)>,
    steps: u64,
}

impl<K: Ord + Copy, V> Default for Aged<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Copy, V> Aged<K, V> {
    /// An empty table.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: BTreeMap::new(), ages: VecDeque::new(), steps: 0 }
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All of them, by their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values().map(|(_, value)| value)
    }

    /// Steps so far: each finds one entry, or passes one age.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// The key is taken: the value comes back.
    pub fn insert(&mut self, key: K, value: V, now_us: u64) -> Result<(), V> {
        self.steps += 1;
        if self.entries.contains_key(&key) {
            return Err(value);
        }
        let at_us = self.ages.back().map_or(now_us, |(last_us, _)| now_us.max(*last_us));
        self.entries.insert(key, (at_us, value));
        self.ages.push_back((at_us, key));
        Ok(())
    }

    /// Takes an entry out, with the time at which it came.
    pub fn remove(&mut self, key: &K) -> Option<(u64, V)> {
        self.steps += 1;
        let entry = self.entries.remove(key)?;
        while let Some((at_us, key)) = self.ages.front()
            && !is_there(&self.entries, *at_us, key)
        {
            self.steps += 1;
            self.ages.pop_front();
        }
        if self.ages.len() > 2 * self.entries.len() + GONE_MAX {
            self.steps += self.ages.len() as u64;
            self.ages.retain(|(at_us, key)| is_there(&self.entries, *at_us, key));
            self.ages.shrink_to(GONE_MAX);
        }
        Some(entry)
    }

    /// The first key of a range that is there.
    pub fn first(&mut self, range: RangeInclusive<K>) -> Option<K> {
        self.steps += 1;
        self.entries.range(range).next().map(|(key, _)| *key)
    }

    /// The entry that has been there for longest: since when, and its key.
    #[must_use]
    pub fn oldest(&self) -> Option<(u64, K)> {
        self.ages.front().copied()
    }

    /// Takes that one out.
    pub fn take_oldest(&mut self) -> Option<V> {
        let (_, key) = self.oldest()?;
        self.remove(&key).map(|(_, value)| value)
    }
}

/// Whether the entry that came then is there: its key may have come again.
fn is_there<K: Ord, V>(entries: &BTreeMap<K, (u64, V)>, at_us: u64, key: &K) -> bool {
    entries.get(key).is_some_and(|entry| entry.0 == at_us)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 200, failure_persistence: None, ..Default::default()
        })]

        /// Held against a list that is searched; and each call costs a few steps, however the
        /// entries that it passes came to be there.
        #[test]
        fn it_is_a_list_that_is_searched_and_costs_a_few_steps_a_call(
            calls in prop::collection::vec((0..4u8, 0..40u16), 1..2_000)
        ) {
            let mut aged = Aged::new();
            let mut list: Vec<(u64, u16)> = Vec::new();
            for (now_us, (call, key)) in (0..).zip(&calls) {
                let place = list.iter().position(|(_, of)| of == key);
                match call {
                    0 | 1 => {
                        prop_assert_eq!(aged.insert(*key, *key, now_us).is_ok(), place.is_none());
                        list.extend(place.is_none().then_some((now_us, *key)));
                    }
                    2 => {
                        let due = place.map(|place| list.remove(place));
                        prop_assert_eq!(aged.remove(key), due);
                    }
                    _ => {
                        let due = list.iter().map(|(_, of)| *of).filter(|of| of >= key).min();
                        prop_assert_eq!(aged.first(*key..=u16::MAX), due);
                    }
                }
                prop_assert_eq!(aged.oldest(), list.first().copied());
                prop_assert_eq!(aged.len(), list.len());
            }
            prop_assert!(aged.steps() <= 5 * calls.len() as u64, "{} steps", aged.steps());
            prop_assert_eq!(aged.take_oldest(), list.first().map(|(_, key)| *key));
        }
    }

    #[test]
    fn ages_of_what_is_gone_are_few() {
        let mut aged = Aged::new();
        assert_eq!(aged.insert(u32::MAX, 0, 0), Ok(()));
        for n in 0..100_000 {
            assert_eq!(aged.insert(n, 0, 1), Ok(()));
            assert_eq!(aged.remove(&n), Some((1, 0)));
            assert!(aged.ages.len() <= GONE_MAX + 3);
        }
        assert_eq!(aged.oldest(), Some((0, u32::MAX)));
        assert!(aged.steps() < 600_000, "{}", aged.steps());
    }
}
