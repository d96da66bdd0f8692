//! One line of a result: what was found beside what is required. Every kind of run is judged here.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ratio::Spread;

/// A bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

impl Bound {
    pub(crate) fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "≥ {bound}"),
            Self::AtMost(bound) => write!(f, "≤ {bound}"),
        }
    }
}

/// One line of the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What is set beside what.
    pub what: String,
    /// Unit of the bound and the spread: `×`, `MiB`, `µs` or `segments`.
    pub unit: Cow<'static, str>,
    /// What is required, if anything.
    pub required: Option<Bound>,
    /// What was found; none when it was not measured.
    pub found: Option<Spread>,
    /// How many values there must be.
    pub rounds: usize,
    /// Whether the requirement is met: by the median, where nothing else is said. None where
    /// nothing is required or nothing was measured; a failed round never meets it.
    pub met: Option<bool>,
}

impl Row {
    /// What was found, judged by its median. What was not found is not measured.
    pub(crate) fn new(
        what: impl Into<String>,
        unit: &'static str,
        required: Option<Bound>,
        found: Option<Spread>,
        rounds: usize,
    ) -> Self {
        let row = Self { what: what.into(), unit: unit.into(), required, found, rounds, met: None };
        row.by(|spread| spread.median)
    }

    /// Judged by another value of what was found: the worst one, for instance.
    pub(crate) fn by(self, pick: fn(Spread) -> f64) -> Self {
        let judged = self.required.zip(self.found);
        let met = judged.map(|(bound, found)| found.n == self.rounds && bound.holds(pick(found)));
        Self { met, ..self }
    }

    /// Everybody took part: what was not found is missed.
    pub(crate) fn due(self) -> Self {
        let met = self.required.map(|_| self.met == Some(true));
        Self { met, ..self }
    }

    /// Somebody did not take part: nothing is judged.
    pub(crate) fn unjudged(self) -> Self {
        Self { met: None, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(found: &[f64], rounds: usize) -> Row {
        Row::new("a", "×", Some(Bound::AtLeast(2.0)), Spread::of(found), rounds)
    }

    #[test]
    fn the_median_decides_where_nothing_else_is_said() {
        let row = row(&[1.0, 3.0, 3.0], 3);
        assert_eq!(row.met, Some(true));
        assert_eq!(row.by(|spread| spread.min).met, Some(false));
    }

    #[test]
    fn a_round_that_is_missing_meets_nothing() {
        assert_eq!(row(&[3.0, 3.0], 3).met, Some(false));
    }

    #[test]
    fn what_was_not_found_is_missed_only_where_everybody_took_part() {
        assert_eq!(row(&[], 3).met, None);
        assert_eq!(row(&[], 3).due().met, Some(false));
        assert_eq!(row(&[1.0], 1).unjudged().met, None);
        assert_eq!(Row { required: None, ..row(&[3.0], 1) }.due().met, None);
    }
}
