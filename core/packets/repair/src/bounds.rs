//! What bounds a block, and how long it may fill.

use crate::code::DATA_MAX;

/// Repair chunks of a block: at most one for so many data chunks (threat BC-09).
pub const CAP: usize = 2;
/// Lanes, at most.
pub const DEPTH_MAX: usize = 16;
/// Data chunks of a lane's block, at most: the larger a block, the less it needs for each chunk.
pub const LANE_CHUNKS: usize = DATA_MAX;
/// The same with more than [`DEPTH_FEW`] lanes, which together must fill within [`ORDERED_US`].
const LANE_CHUNKS_DEEP: usize = 48;
const DEPTH_FEW: usize = 4;
/// How long a lane's block fills, at most, but for data of TCP: half of what flows wait.
pub const HOLD_US: u64 = 15_000;
/// The same with data of TCP in it, on a path that is known. Its repair must be out before flows
/// give up waiting, and the more chunks share it, the longer the runs of losses that they outlive.
pub const ORDERED_US: u64 = 24_000;
/// How long it fills where chunks come so slowly that each is alone.
pub const HOLD_US_MIN: u64 = 1_000;
/// Blocks of so many chunks live on the allowance.
pub const FEW: usize = 8;

/// Data chunks of a block where `depth` lanes are in use.
#[must_use]
pub fn lane_chunks(depth: usize) -> usize {
    if depth > DEPTH_FEW { LANE_CHUNKS_DEEP } else { LANE_CHUNKS }
}
