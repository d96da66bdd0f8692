//! What bounds a block: both halves of the crate stand on these numbers.

/// Most data chunks of a block.
pub const DATA_MAX: usize = 64;
/// Most repair chunks of a block.
pub const REPAIR_MAX: usize = 32;
/// Longest chunk, bytes.
pub const CHUNK_LEN_MAX: usize = 1_500;
/// Repair chunks of a block: at most one for so many data chunks (threat BC-09).
pub const CAP: usize = 2;
/// Lanes, at most.
pub const DEPTH_MAX: usize = 16;
/// Data chunks of a lane's block, at most: the larger a block, the less it needs for each chunk.
pub const LANE_CHUNKS: usize = DATA_MAX;
