//! Placeholder.
/// Most sources tracked at once (threat DP-03).
pub const SOURCES_MAX: usize = 65_536;
