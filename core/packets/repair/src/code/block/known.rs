//! The last numbers that have a block: a bit each, so that the next one is found word by word.

use super::BLOCKS_MAX;

const WORDS: usize = BLOCKS_MAX / u64::BITS as usize;

/// A bit for each number modulo [`BLOCKS_MAX`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known([u64; WORDS]);

impl Known {
    /// There is a block with this number.
    pub(super) fn note(&mut self, id: u32) {
        let (word, bit) = place(id);
        self.0[word] |= 1 << bit;
    }

    /// There is none with these numbers, from `first` on. Returns the steps that it took.
    pub(super) fn clear(&mut self, first: u32, count: u32) -> u64 {
        let mut steps = 0;
        for (word, bits, _) in spans(first, count) {
            self.0[word] &= !bits;
            steps += 1;
        }
        steps
    }

    /// The first of these numbers that has a block, and the steps that it took.
    pub(super) fn first(&self, first: u32, count: u32) -> (Option<u32>, u64) {
        let mut steps = 0;
        let found = spans(first, count).find_map(|(word, bits, from)| {
            steps += 1;
            let hits = self.0[word] & bits;
            (hits != 0).then(|| from.wrapping_add(hits.trailing_zeros() - bits.trailing_zeros()))
        });
        (found, steps)
    }
}

/// The word and the bit of a number.
const fn place(id: u32) -> (usize, u32) {
    let at = id as usize % BLOCKS_MAX;
    (at / u64::BITS as usize, at as u32 % u64::BITS)
}

/// So many numbers from `first` on, word by word: which word, which bits of it, and the first
/// number.
fn spans(first: u32, count: u32) -> impl Iterator<Item = (usize, u64, u32)> {
    let mut done = 0;
    let count = count.min(BLOCKS_MAX as u32);
    std::iter::from_fn(move || {
        let left = count - done;
        if left == 0 {
            return None;
        }
        let from = first.wrapping_add(done);
        let (word, bit) = place(from);
        let taken = left.min(u64::BITS - bit);
        done += taken;
        Some((word, (u64::MAX >> (u64::BITS - taken)) << bit, from))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sim::rng::Rng;

    use super::*;

    #[test]
    fn what_is_known_is_found_in_a_few_steps_wherever_the_window_stands() {
        let mut rng = Rng::new(1);
        for start in [0, 5_000, u32::MAX - 3_000] {
            let (mut known, mut set, mut newest) = (Known::default(), BTreeSet::new(), 0);
            for _ in 0..2_000 {
                let power = rng.below(12);
                let more = rng.below(1 << power) as u32;
                let steps = known.clear(start.wrapping_add(newest + 1), more);
                assert!(steps <= WORDS as u64 + 1);
                newest += more;
                known.note(start.wrapping_add(newest));
                set.insert(newest);
                set.retain(|id| newest - id < BLOCKS_MAX as u32);
                let from = newest.saturating_sub(rng.below(BLOCKS_MAX as u64) as u32);
                let (found, steps) = known.first(start.wrapping_add(from), newest - from + 1);
                let due = set.range(from..).next().map(|id| start.wrapping_add(*id));
                assert!(found == due && steps <= WORDS as u64 + 1, "{found:?} {due:?} {steps}");
            }
        }
    }
}
