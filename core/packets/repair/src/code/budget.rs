//! Memory that many share: each has some of its own whatever the others do, and more as long as
//! all together stay within a bound (threat BC-06). A peer's blocks are bounded anyway; this
//! bounds those of all peers, so that it is not their number that decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What each holder may have whatever the others have, in bytes.
pub const OWN_BYTES: usize = 192 << 10;

/// What all holders may have beyond their own. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Budget(Arc<AtomicUsize>);

impl Budget {
    /// So many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Bytes that nobody has taken.
    #[must_use]
    pub fn left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// One holder's part of a budget, given back when it is dropped.
#[derive(Debug)]
pub struct Part {
    budget: Budget,
    taken: usize,
}

impl Part {
    /// Nothing taken yet.
    #[must_use]
    pub fn new(budget: &Budget) -> Self {
        Self { budget: budget.clone(), taken: 0 }
    }

    /// Asks to hold `bytes` in all; `false`, and as before, where there is not so much left.
    #[must_use]
    pub fn hold(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(OWN_BYTES).saturating_sub(self.taken);
        let left = &self.budget.0;
        let order = Ordering::Relaxed;
        let taken = left.fetch_update(order, order, |left| left.checked_sub(more)).is_ok();
        self.taken += if taken { more } else { 0 };
        taken
    }

    /// Gives all back.
    pub fn release(&mut self) {
        self.budget.0.fetch_add(std::mem::take(&mut self.taken), Ordering::Relaxed);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ones_own_is_not_of_the_budget_and_the_rest_comes_back() {
        let budget = Budget::new(1_000);
        let (mut one, mut other) = (Part::new(&budget), Part::new(&budget));
        assert!(one.hold(OWN_BYTES) && other.hold(OWN_BYTES));
        assert_eq!(budget.left(), 1_000);
        assert!(one.hold(OWN_BYTES + 900) && !other.hold(OWN_BYTES + 101));
        assert!(other.hold(OWN_BYTES + 100) && one.hold(OWN_BYTES + 10));
        assert_eq!(budget.left(), 0);
        one.release();
        assert_eq!(budget.left(), 900);
        drop((one, other));
        assert_eq!(budget.left(), 1_000);
    }
}
