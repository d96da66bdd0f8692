//! Settled blocks: nothing more comes of them, so a gap that only they fill is not waited for.
//!
//! A block is settled when it is done, when more is missing than all its repair chunks could give
//! back, or when it is so old that its repair must have come. Blocks are numbered as they are
//! opened at the other end, so one that nothing is known of yet counts as young as the next one.

use super::{Assembler, BLOCKS_MAX, Block};
use crate::bounds::DEPTH_MAX;

impl Assembler {
    /// All blocks that were opened before this time are settled. `grace_us` is how old a block is
    /// when its repair must have come. Each block is passed once, and numbers without one word by
    /// word: cheap enough for every repair chunk.
    pub fn settled_us(&mut self, grace_us: u64, now_us: u64) -> u64 {
        let Some(newest) = self.newest else { return now_us };
        if newest.wrapping_sub(self.unsettled) >= BLOCKS_MAX as u32 {
            self.unsettled = newest.wrapping_sub(DEPTH_MAX as u32);
        }
        while let Some(block) = self.next_known(newest) {
            let is_next = block.id == self.unsettled;
            let is_over = now_us >= block.opened_us.saturating_add(grace_us);
            let is_settled = is_next && block.is_settled();
            if !is_over && !is_settled {
                return block.opened_us;
            }
            self.unsettled = block.id.wrapping_add(u32::from(is_next));
        }
        now_us
    }

    /// The first block that may be unsettled and is known.
    fn next_known(&mut self, newest: u32) -> Option<Block> {
        let ahead = newest.wrapping_sub(self.unsettled);
        let count = if ahead < BLOCKS_MAX as u32 { ahead + 1 } else { 0 };
        let (id, steps) = self.known.first(self.unsettled, count);
        self.steps += 1 + steps;
        self.block(id?).copied()
    }
}

impl Block {
    fn is_settled(&self) -> bool {
        !self.open || self.misses().is_some_and(|missing| missing > u32::from(self.shape.repair))
    }
}
