//! The losses of the last while, by spells of some thousand chunks, so that one that stands out can
//! be told from the weather around it.
//!
//! A flow that begins overshoots, and a full queue then loses hundreds of chunks within a fraction
//! of a second: where jitter is as large as the queue, those look like weather. Weather comes
//! again; such a spell does not. While no more than a few of the last stand out, they count as the
//! worst of the others.

use std::collections::VecDeque;

use crate::tuning::Belief;
use crate::weather::model::Counts;

/// A sum of counts: the last of them as at most [`Belief::spells`], the youngest of which may be
/// growing.
#[derive(Debug)]
pub(crate) struct Spells {
    belief: &'static Belief,
    spells: VecDeque<Counts>,
    /// What is too old for comparison, evened out.
    older: Counts,
}

impl Spells {
    /// Nothing counted.
    pub(crate) fn new(belief: &'static Belief) -> Self {
        Self { belief, spells: VecDeque::new(), older: Counts::default() }
    }

    /// Takes counts in; returns whether they stand out from what came before.
    pub(crate) fn handle_counts(&mut self, counts: &Counts) -> bool {
        let bound = self.bound();
        let stand_out = bound.is_some_and(|bound| is_out(counts, &bound, self.belief));
        let Belief { known_chunks, spells: most, .. } = *self.belief;
        if let Some(young) = self.spells.back_mut().filter(|spell| spell.judged < known_chunks) {
            young.add(counts);
            return stand_out;
        }
        if self.spells.len() >= most
            && let Some(old) = self.spells.pop_front()
        {
            self.older.add(&evened(&old, bound.as_ref(), self.belief));
        }
        self.spells.push_back(*counts);
        stand_out
    }

    pub(crate) fn scale(&mut self, share: f64) {
        self.all_mut().for_each(|counts| counts.scale(share));
    }

    /// Fewer losses among as many chunks.
    pub(crate) fn fade(&mut self, share: f64) {
        self.all_mut().for_each(|counts| counts.fade(share));
    }

    /// Chunks judged.
    pub(crate) fn judged(&self) -> f64 {
        self.spells.iter().map(|spell| spell.judged).sum::<f64>() + self.older.judged
    }

    /// All of them, evened out.
    pub(crate) fn sum(&self) -> Counts {
        let bound = self.bound();
        let mut sum = Counts::default();
        self.spells.iter().for_each(|spell| sum.add(&evened(spell, bound.as_ref(), self.belief)));
        sum.add(&self.older);
        sum
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Counts> {
        self.spells.iter_mut().chain([&mut self.older])
    }

    /// The worst of those that cannot stand out; nothing where there are too few to tell.
    fn bound(&self) -> Option<Counts> {
        let out = (self.spells.len() / self.belief.out_each).min(self.belief.out_max);
        let mut worst_first: Vec<&Counts> = self.spells.iter().collect();
        worst_first.sort_by(|a, b| b.share().total_cmp(&a.share()));
        worst_first.get(out).filter(|_| out > 0).map(|&&bound| bound)
    }
}

fn is_out(spell: &Counts, bound: &Counts, belief: &Belief) -> bool {
    spell.lost > belief.out_times * bound.share() * spell.judged + belief.out_losses
}

fn evened(spell: &Counts, bound: Option<&Counts>, belief: &Belief) -> Counts {
    let Some(bound) = bound.filter(|bound| is_out(spell, bound, belief)) else { return *spell };
    let mut even = *bound;
    even.scale(spell.judged / bound.judged.max(1.0));
    Counts { judged: spell.judged, ..even }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::Tuning;

    fn counts(judged: f64, lost: f64) -> Counts {
        Counts { judged, lost, runs: lost / 4.0, ..Counts::default() }
    }

    fn fed(losses: impl IntoIterator<Item = f64>) -> Spells {
        let mut spells = Spells::new(&Tuning::DEFAULT.belief);
        for lost in losses {
            spells.handle_counts(&counts(5_000.0, lost));
            assert_eq!(spells.older, Counts::default());
        }
        spells
    }

    #[test]
    fn a_queue_that_overflowed_once_is_no_weather() {
        let begun = || fed([120.0, 130.0, 900.0, 1_200.0, 500.0, 125.0, 110.0, 140.0, 120.0]);
        let share = begun().sum().share();
        assert!((0.024..0.028).contains(&share), "{share}");
        assert!(begun().handle_counts(&counts(5_000.0, 400.0)));
        assert!(!begun().handle_counts(&counts(5_000.0, 250.0)));
        let calm = fed((0..16).map(|n| if n == 3 { 600.0 } else { 0.0 }));
        assert_eq!(calm.sum().lost, 0.0, "a clear sky stays one");
    }

    #[test]
    fn what_comes_again_or_is_little_counts_as_it_is() {
        let gusts = (0..16).map(|n| if n % 3 == 0 { 600.0 } else { 20.0 });
        assert_eq!(fed(gusts).sum().lost, 6.0 * 600.0 + 10.0 * 20.0);
        assert_eq!(fed((0..16).map(|n| f64::from(n % 8 / 7) * 30.0)).sum().lost, 60.0);
        assert_eq!(fed([0.0, 900.0]).sum().lost, 900.0, "too few to tell");
    }

    #[test]
    fn what_grows_too_old_leaves_evened_and_nothing_is_lost_on_the_way() {
        let mut spells = fed((0..16).map(|n| if n == 0 { 2_000.0 } else { 100.0 }));
        spells.handle_counts(&counts(5_000.0, 100.0));
        let old = spells.older;
        assert_eq!((old.judged, old.lost, old.runs), (5_000.0, 100.0, 25.0));
        assert_eq!((spells.judged(), spells.sum().judged), (17.0 * 5_000.0, 17.0 * 5_000.0));
        let mut small = Spells::new(&Tuning::DEFAULT.belief);
        for _ in 0..100 {
            small.handle_counts(&counts(10.0, 1.0));
        }
        assert_eq!((small.spells.len(), small.sum().lost), (1, 100.0));
        assert_eq!(small.older, Counts::default());
    }
}
