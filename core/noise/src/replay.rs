//! Placeholder.
/// How far below the highest counter a packet may arrive and still be accepted (threat DP-12).
pub const WINDOW: u64 = 32_768;
