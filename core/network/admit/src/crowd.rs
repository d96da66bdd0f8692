//! Places for a crowd: bounded, and the source that holds most loses its oldest.

use core::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Names a place; never given twice.
pub type Number = u64;

/// How a holder of places is ranked: the last of an ordered set loses one. More places are later;
/// of as many, the older first place.
type Rank = (usize, Reverse<Number>);

/// Places of one source: the wide source that it is part of is made of these.
type Own = BTreeSet<Number>;

/// What is part of one wide source.
#[derive(Debug)]
struct Part<N> {
    count: usize,
    first: Number,
    sources: BTreeMap<N, Own>,
    ranks: BTreeSet<(Rank, N)>,
}

/// Places for at most so many, each with what its holder is told by when it is displaced. `W` is a
/// wide source and `N` a source in it; where nothing is part of anything both are the same.
#[derive(Debug)]
pub struct Crowd<W, N, T> {
    max: usize,
    /// Of one source.
    own_max: usize,
    next: Number,
    held: BTreeMap<Number, (W, N, T)>,
    parts: BTreeMap<W, Part<N>>,
    ranks: BTreeSet<(Rank, W)>,
    displaced: u64,
}

impl<W: Copy + Ord, N: Copy + Ord, T> Crowd<W, N, T> {
    /// A crowd of at most `max`, which is at least one.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self::with(max, max)
    }

    /// The same with at most `own_max` of one source, which loses its oldest for one more.
    #[must_use]
    pub const fn with(max: usize, own_max: usize) -> Self {
        Self {
            max,
            own_max,
            next: 0,
            held: BTreeMap::new(),
            parts: BTreeMap::new(),
            ranks: BTreeSet::new(),
            displaced: 0,
        }
    }

    /// How many are there.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether nobody is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// How many were displaced since the start.
    #[must_use]
    pub const fn displaced(&self) -> u64 {
        self.displaced
    }

    /// What is held by this number.
    #[must_use]
    pub fn held(&self, number: Number) -> Option<&T> {
        self.held.get(&number).map(|(_, _, value)| value)
    }

    /// A place for a newcomer, and what was held by who lost theirs for it.
    pub fn enter(&mut self, wide: W, source: N, value: T) -> (Number, Option<T>) {
        let lost = match self.own(wide, source) {
            Some(own) if own.len() >= self.own_max => own.first().copied(),
            _ if self.held.len() >= self.max => self.last(),
            _ => None,
        };
        self.displaced += u64::from(lost.is_some());
        let lost = lost.and_then(|number| self.leave(number));
        let number = self.next;
        self.next += 1;
        self.held.insert(number, (wide, source, value));
        self.change(wide, source, |own| own.insert(number));
        (number, lost)
    }

    /// Gives a place back; what was held. `None` if it was lost before.
    pub fn leave(&mut self, number: Number) -> Option<T> {
        let (wide, source, value) = self.held.remove(&number)?;
        self.change(wide, source, |own| own.remove(&number));
        Some(value)
    }

    /// Makes a place the youngest of its source.
    pub fn renew(&mut self, number: Number) -> Option<Number> {
        let (wide, source, value) = self.held.remove(&number)?;
        self.change(wide, source, |own| own.remove(&number));
        Some(self.enter(wide, source, value).0)
    }

    fn own(&self, wide: W, source: N) -> Option<&Own> {
        self.parts.get(&wide)?.sources.get(&source)
    }

    /// Who loses a place where all are taken.
    fn last(&self) -> Option<Number> {
        let (_, wide) = self.ranks.last()?;
        let (_, source) = self.parts.get(wide)?.ranks.last()?;
        self.own(*wide, *source)?.first().copied()
    }

    /// Changes what a source holds, and where it and its wide source rank by that.
    fn change(&mut self, wide: W, source: N, work: impl FnOnce(&mut Own) -> bool) {
        let part = self.parts.entry(wide).or_insert_with(|| Part {
            count: 0,
            first: 0,
            sources: BTreeMap::new(),
            ranks: BTreeSet::new(),
        });
        self.ranks.remove(&((part.count, Reverse(part.first)), wide));
        let own = part.sources.entry(source).or_default();
        part.count -= own.len();
        if let Some(rank) = rank(own) {
            part.ranks.remove(&(rank, source));
        }
        work(own);
        part.count += own.len();
        match rank(own) {
            Some(rank) => drop(part.ranks.insert((rank, source))),
            None => drop(part.sources.remove(&source)),
        }
        // Of sources that hold as many, the one with the oldest place is the last.
        match part.ranks.last() {
            Some(((_, Reverse(first)), _)) => {
                part.first = *first;
                self.ranks.insert(((part.count, Reverse(part.first)), wide));
            }
            None => drop(self.parts.remove(&wide)),
        }
    }
}

fn rank(own: &Own) -> Option<Rank> {
    own.first().map(|first| (own.len(), Reverse(*first)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rl_05_who_has_most_loses_the_oldest_and_who_has_one_keeps_it() {
        let mut crowd = Crowd::new(10);
        let (first, _) = crowd.enter(1, 1, "honest");
        let lost: Vec<_> = (0..109).filter_map(|_| crowd.enter(2, 2, "flood").1).collect();
        assert_eq!((lost.len(), crowd.len(), crowd.displaced()), (100, 10, 100));
        assert!(lost.iter().all(|value| *value == "flood"));
        assert_eq!(crowd.leave(first), Some("honest"), "who has one stays");
        assert_eq!(crowd.leave(first), None);
    }

    #[test]
    fn rl_05_of_one_source_there_are_no_more_than_its_own_bound() {
        let mut crowd = Crowd::with(10, 3);
        let lost: Vec<_> = (0..5).filter_map(|n| crowd.enter(1, 1, n).1).collect();
        assert_eq!((lost, crowd.len()), (vec![0, 1], 3), "its oldest, though there is room");
        assert_eq!(crowd.enter(1, 2, 9).1, None);
    }

    #[test]
    fn rl_05_of_many_sources_with_one_each_the_oldest_goes() {
        let mut crowd = Crowd::new(10);
        let lost: Vec<_> = (0..25).filter_map(|n| crowd.enter(n, n, n).1).collect();
        assert_eq!(lost, (0..15).collect::<Vec<_>>());
    }

    #[test]
    fn rl_05_a_48_full_of_64s_is_one_source() {
        let mut crowd = Crowd::new(10);
        // Of one wide source, each from a source of its own; then some who have one each.
        for source in 0..10 {
            crowd.enter(1, source, "wide");
        }
        let lost: Vec<_> = (0..5).filter_map(|n| crowd.enter(100 + n, 0, "one").1).collect();
        assert_eq!(lost, ["wide"; 5]);
        // In it the source that has most is the one that loses.
        let mut crowd = Crowd::new(4);
        crowd.enter(1, 7, "quiet");
        for _ in 0..3 {
            crowd.enter(1, 8, "loud");
        }
        assert_eq!(crowd.enter(2, 0, "other").1, Some("loud"));
    }

    proptest! {
        /// Against a list that is searched from end to end.
        #[test]
        fn places_are_lost_as_the_rule_says(
            steps in prop::collection::vec((0_u8..4, 0_u8..3, 0_u8..12), 1..200),
        ) {
            let mut crowd = Crowd::new(8);
            let mut model: Vec<(Number, (u8, u8))> = Vec::new();
            for (wide, source, choice) in steps {
                if choice < 3 && !model.is_empty() {
                    let at = usize::from(choice) % model.len();
                    let (number, key) = model.remove(at);
                    prop_assert_eq!(crowd.leave(number), Some(key));
                    continue;
                }
                let expected = (model.len() == 8).then(|| {
                    let count = |is: &dyn Fn(&(u8, u8)) -> bool| {
                        model.iter().filter(|(_, key)| is(key)).count()
                    };
                    let most = model.iter().map(|(_, key)| count(&|k| k.0 == key.0)).max();
                    let in_wide = |key: &(u8, u8)| Some(count(&|k| k.0 == key.0)) == most;
                    // Of wide sources that hold as many: by their largest source, then its age.
                    let large = |key: &(u8, u8)| count(&|k| k == key);
                    let loser = |wide: u8| {
                        let own: Vec<_> = model.iter().filter(|(_, k)| k.0 == wide).collect();
                        let most = own.iter().map(|(_, key)| large(key)).max().unwrap();
                        own.iter().find(|(_, key)| large(key) == most).unwrap().0
                    };
                    let wides: BTreeSet<u8> =
                        model.iter().filter(|(_, key)| in_wide(key)).map(|(_, k)| k.0).collect();
                    wides.into_iter().map(loser).min().unwrap()
                });
                let key = (wide, source);
                let (number, lost) = crowd.enter(wide, source, key);
                let at = expected.map(|lost| model.iter().position(|(n, _)| *n == lost).unwrap());
                prop_assert_eq!(lost, at.map(|at| model.remove(at).1));
                model.push((number, key));
                prop_assert_eq!(crowd.len(), model.len());
                prop_assert!(crowd.len() <= 8);
            }
        }
    }
}
