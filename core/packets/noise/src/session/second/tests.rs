//! What tests of a session see and set of its second cipher.

use super::*;

impl Second {
    /// Bytes of the keys while there are any.
    pub(in crate::session) const KEYS_LEN: usize = size_of::<Keys>();

    /// Blocks that may still be sealed.
    pub(in crate::session) fn blocks_left(&self) -> u64 {
        self.keys.as_ref().expect("begun").blocks_left
    }

    /// Leaves as many blocks, to reach the limit within a test's life.
    pub(in crate::session) fn leave(&mut self, blocks: u64) {
        self.keys.as_mut().expect("begun").blocks_left = blocks;
    }
}
