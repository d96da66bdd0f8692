//! The replay window of one layer: which of the last numbers have been seen (RFC 6479). Smaller
//! than a session's, because a hop has four for each circuit.

/// How far below the highest number a cell may come and still be taken.
pub const WINDOW: u64 = 2048;

const WORD_BITS: u64 = u64::BITS as u64;
const WORDS: usize = (WINDOW / WORD_BITS) as usize + 1;

/// Remembers which numbers came.
pub(crate) struct Window {
    /// One above the highest; 0 before the first.
    next: u64,
    seen: [u64; WORDS],
}

impl Window {
    pub(crate) const fn new() -> Self {
        Self { next: 0, seen: [0; WORDS] }
    }

    /// Whether `number` would be taken.
    pub(crate) fn is_fresh(&self, number: u64) -> bool {
        if number >= self.next {
            return true;
        }
        let (word, bit) = place(number);
        self.next - 1 - number <= WINDOW && self.seen[word] & bit == 0
    }

    /// Marks `number` as seen; `false` if it was, or is too old.
    pub(crate) fn accept(&mut self, number: u64) -> bool {
        if !self.is_fresh(number) {
            return false;
        }
        let (word, bit) = place(number);
        if number >= self.next {
            let from = self.next.saturating_sub(1) / WORD_BITS;
            let steps = (number / WORD_BITS - from).min(WORDS as u64);
            for step in 1..=steps {
                self.seen[((from + step) % WORDS as u64) as usize] = 0;
            }
            self.next = number + 1;
        }
        self.seen[word] |= bit;
        true
    }
}

fn place(number: u64) -> (usize, u64) {
    ((number / WORD_BITS % WORDS as u64) as usize, 1 << (number % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_edge_is_where_it_should_be() {
        let mut window = Window::new();
        assert!(window.accept(0) && !window.accept(0));
        assert!(window.accept(WINDOW + 5));
        assert!(!window.is_fresh(4) && window.accept(5) && !window.accept(5));
        assert!(window.accept(1 << 39) && !window.accept(WINDOW + 5));
    }

    proptest! {
        #[test]
        fn it_is_a_set_with_a_window(numbers in proptest::collection::vec(0..6000u64, 1..400)) {
            let mut window = Window::new();
            let mut seen = BTreeSet::new();
            let mut highest = 0;
            for number in numbers {
                let expected = !seen.contains(&number) && number + WINDOW >= highest;
                prop_assert_eq!(window.accept(number), expected, "{}", number);
                if expected {
                    seen.insert(number);
                    highest = highest.max(number);
                }
            }
        }
    }
}
