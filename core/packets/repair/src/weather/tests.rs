//! What tests of several modules say of a path.

use wire::frame::Losses;

/// Each lost chunk by itself.
pub(crate) fn single(judged: u32, lost: u32) -> Losses {
    Losses { judged, lost, runs: lost, ..Losses::default() }
}
