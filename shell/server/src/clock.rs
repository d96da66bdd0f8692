//! What time it is, on two clocks: the one that people set, and the one that only grows.

use std::time::{SystemTime, UNIX_EPOCH};

/// The machine's clock, in Unix seconds.
#[must_use]
pub fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs())
}

/// A moment on two clocks. What has a date is judged by the one that people set; how long ago
/// something was, by the one that only grows (threats LC-04, LC-05).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moment {
    pub(crate) unix_s: u64,
    /// Since the program began.
    pub(crate) up_s: u64,
}

/// Both clocks.
pub(crate) type Clock = Box<dyn Fn() -> Moment + Send + Sync>;
