//! One line of a result: what was found beside what is required.

use serde::Serialize;

use crate::ratio::Spread;

/// A bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

/// One line of the result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// What is set beside what.
    pub what: String,
    /// Unit of the bound and the spread: `×`, `MiB`, `µs` or `segments`.
    pub unit: &'static str,
    /// What is required, if anything.
    pub required: Option<Bound>,
    /// What was found; none when it was not measured.
    pub found: Option<Spread>,
    /// How many values there must be.
    pub rounds: usize,
    /// Whether the requirement is met: by the largest of memory, by the median of all else. None
    /// where nothing is required or nothing was measured; a failed round never meets it.
    pub met: Option<bool>,
}
