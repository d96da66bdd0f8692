//! What bounds a block.

use crate::code::DATA_MAX;

/// Repair chunks of a block: at most one for so many data chunks (threat BC-09).
pub const CAP: usize = 2;
/// Lanes, at most.
pub const DEPTH_MAX: usize = 16;
/// Data chunks of a lane's block, at most: the larger a block, the less it needs for each chunk.
pub const LANE_CHUNKS: usize = DATA_MAX;
