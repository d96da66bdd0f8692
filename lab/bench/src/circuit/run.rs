//! A run as programs read it, small enough to be committed: the machine, the requirements, and the
//! medians of what the pages quote.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::json;

use super::page::{Found, required};
use super::store::{Note, SCHEMA, Sample};
use crate::ratio::rounded;

/// Of a median.
const DIGITS: usize = 4;

/// What is kept of each step; the samples have the rest.
const KEPT: [&str; 5] = ["mbit_s", "echo_p50_ms", "page_s", "build_ms", "build_worst_ms"];

/// One figure a line.
pub(super) fn to_json(note: &Note, samples: &[Sample]) -> Result<String> {
    let found = Found::of(samples);
    let head = json!({
        "schema": SCHEMA,
        "kind": "circuit",
        "facts": serde_json::to_value(&note.facts)?,
        "settings": serde_json::to_value(&note.settings)?,
        "resumed": note.resumed,
        "marks": note.marks,
        "skipped": note.skipped,
        "rows": serde_json::to_value(required(&found))?,
    });
    let head = serde_json::to_string_pretty(&head)?;
    let mut out = head.trim_end_matches("\n}").to_owned() + ",\n  \"figures\": [\n";
    let mut before = "";
    for (peer, profile, test, figure, median) in found.figures(&KEPT) {
        let one = json!({ "test": test, "profile": profile, "peer": peer, "figure": figure,
                          "median": rounded(median, DIGITS) });
        let _ = write!(out, "{before}    {one}");
        before = ",\n";
    }
    Ok(out + "\n  ]\n}\n")
}

#[cfg(test)]
mod tests {
    use super::super::store::Key;
    use super::*;

    #[test]
    fn what_is_kept_of_a_run_has_its_medians_by_line_and_system() {
        let sample = |round: u32, mbit_s: f64| Sample {
            key: Key {
                system: "Tor".to_owned(),
                mbit: Some(10),
                loss_percent: 3,
                round,
                step: "down 1".to_owned(),
            },
            values: [("mbit_s".to_owned(), mbit_s), ("echo_p95_ms".to_owned(), 3.0)].into(),
            failed: None,
        };
        let samples = [sample(1, 7.126), sample(2, 9.0), sample(3, 1.0)];
        let figures: Vec<_> = Found::of(&samples).figures(&KEPT).collect();
        let wanted = ("Tor", "10:3".to_owned(), "down 1", "mbit_s", 7.126);
        assert_eq!(figures, [wanted]);
        assert_eq!(
            [9.246_939_558, 0.054_258, 12_346.0].map(|value| rounded(value, DIGITS)),
            [9.247, 0.054_26, 12_350.0]
        );
    }
}
