//! Receiver indices: random 32-bit names of live handshakes and sessions.
//!
//! An index is drawn from the caller's randomness, so that nobody can guess one or count peers
//! (threat DP-14), and is never given out again while its owner lives (DP-13).

#[expect(clippy::disallowed_types, reason = "with a hasher of our own, and never iterated")]
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::Random;

/// Names one handshake or session of ours in the datagrams a peer sends us.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Index(pub u32);

/// Names a peer within one node; chosen by the caller, small and dense.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub u32);

/// Most indices live at once: eight for each of 2^20 peers. One has six at most: a handshake's, the
/// next session's, and two of each of the current session and the one before.
pub const INDICES_MAX: usize = 1 << 23;

/// The live indices and who owns them.
#[derive(Default)]
#[expect(clippy::disallowed_types, reason = "with a hasher of our own, and never iterated")]
pub struct Indices {
    owners: HashMap<u32, PeerId, BuildHasherDefault<Spread>>,
}

impl Indices {
    /// An empty table. It allocates with its first index.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Draws an index that is not live and gives it to `owner`. `None` once `INDICES_MAX` are live.
    pub fn allocate(&mut self, owner: PeerId, random: &mut dyn Random) -> Option<Index> {
        if self.owners.len() >= INDICES_MAX {
            return None;
        }
        loop {
            let mut bytes = [0; 4];
            random.fill(&mut bytes);
            let index = u32::from_le_bytes(bytes);
            // At most one draw in 512 collides even when the table is full.
            if let std::collections::hash_map::Entry::Vacant(entry) = self.owners.entry(index) {
                entry.insert(owner);
                return Some(Index(index));
            }
        }
    }

    /// Ends the life of `index`. Releasing one that is not live does nothing.
    pub fn release(&mut self, index: Index) {
        self.owners.remove(&index.0);
    }

    /// The owner of a live index. On the path of every packet received.
    #[must_use]
    pub fn owner(&self, index: Index) -> Option<PeerId> {
        self.owners.get(&index.0).copied()
    }

    /// How many indices are live.
    #[must_use]
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// `true` if no index is live.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }
}

/// Multiplies by an odd constant. The keys are our own random numbers, so a stranger cannot choose
/// what is in the table and a keyed hash would buy nothing.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte) ^ self.0 as u32);
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
