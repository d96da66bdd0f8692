//! Chunks that wait for the head of their unit, found by the unit and by their age.

use repair::aged::Aged;

use crate::frames::piece::{Ordinal, Orphan};

/// The session, the unit, and a number of their own.
type Key = (Ordinal, u16, u64);

/// The chunks. Whoever takes one out frees what it keeps.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    chunks: Aged<Key, Orphan>,
    /// How many came so far.
    came: u64,
}

impl Orphans {
    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Steps that finding them took so far.
    pub(crate) const fn steps(&self) -> u64 {
        self.chunks.steps()
    }

    /// Adds one.
    pub(crate) fn push(&mut self, orphan: Orphan, now_us: u64) {
        self.came += 1;
        let key = (orphan.ordinal, orphan.unit, self.came);
        // No other has its number.
        let _ = self.chunks.insert(key, orphan, now_us);
    }

    /// Takes out the first one of a unit that came before `end`.
    pub(crate) fn take(&mut self, ordinal: Ordinal, unit: u16, end: u64) -> Option<Orphan> {
        let key = self.chunks.first((ordinal, unit, 0)..=(ordinal, unit, end))?;
        self.chunks.remove(&key).map(|(_, orphan)| orphan)
    }

    /// What came so far is before this.
    pub(crate) const fn end(&self) -> u64 {
        self.came
    }

    /// When the oldest came.
    pub(crate) fn since_us(&self) -> Option<u64> {
        self.chunks.oldest().map(|(at_us, _)| at_us)
    }

    /// Takes out the oldest.
    pub(crate) fn take_oldest(&mut self) -> Option<Orphan> {
        self.chunks.take_oldest()
    }
}
