//! `warren-lab bench network`: how long a network of ours takes to be there, how it bears changes,
//! and what its relay carries, beside the relay of Headscale where that is on the machine.

mod ground;
mod steps;

use anyhow::Result;
use serde::Serialize;

use crate::facts::{Facts, Origin};
use crate::ratio::Spread;
use crate::report::{Mark, SCHEMA, Skipped};
use crate::rounds;
use crate::row::{Bound, Row};
use crate::sheet::Sheet;
use steps::Step;

/// Rounds from which on a median may stand for a claim.
pub const HONEST_ROUNDS: u32 = 5;

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Names of the namespaces begin with it.
    pub prefix: String,
    /// Length of one transfer, 1 to 600.
    pub seconds: u32,
    /// Rounds, 1 to 100.
    pub rounds: u32,
    /// What was typed, and what is measured.
    pub origin: Origin,
}

/// Everything that is known of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The layout of the JSON.
    pub schema: u32,
    /// What kind of run: `network`.
    pub kind: &'static str,
    /// Why this run proves nothing, if it does not.
    pub marks: Vec<Mark>,
    /// Where, when, with what.
    pub facts: Facts,
    /// Who did not take part.
    pub skipped: Vec<Skipped>,
    /// What is claimed or of interest, beside the required bounds.
    pub rows: Vec<Row>,
    /// Values of each figure, one a round, in order.
    pub values: Vec<(&'static str, Vec<f64>)>,
    /// What failed, and why.
    pub failures: Vec<String>,
}

/// A figure of the report: its name, what is set in the table, unit, what is required.
pub(crate) type Figure = (&'static str, &'static str, &'static str, Option<Bound>);

#[rustfmt::skip]
const FIGURES: [Figure; 32] = {
    use Bound::{AtLeast, AtMost};
    [
        ("join", "a daemon's start to its first echo, one LAN", "ms", Some(AtMost(1000.0))),
        ("join-https", "the same where only HTTPS passes", "ms", Some(AtMost(2000.0))),
        ("restart", "a killed daemon's start to the first echo", "ms", Some(AtMost(1000.0))),
        ("restart-alone", "the same without the server", "ms", Some(AtMost(1500.0))),
        ("lost", "longest silence when the direct path is lost", "ms", Some(AtMost(2000.0))),
        ("roam", "longest silence when a node's address changes", "ms", Some(AtMost(500.0))),
        ("rest-rss", "memory of a daemon at rest", "MiB", Some(AtMost(15.0))),
        ("rest-cpu", "processor of a daemon at rest, share of a core", "%", Some(AtMost(0.5))),
        ("relayed", "one relayed TCP stream, lines of 1 Gbit/s", "Mbit/s", None),
        ("relayed-headscale", "the same by Headscale's relay and tailscaled", "Mbit/s", None),
        ("relayed-ratio", "relayed TCP, Warren ÷ Headscale", "×", Some(AtLeast(3.0))),
        ("relayed-quic", "the same where UDP passes to the relay", "Mbit/s", None),
        ("relayed-quic-ratio", "by QUIC, Warren ÷ Headscale", "×", Some(AtLeast(3.0))),
        ("loaded-ratio", "echo under 5 relayed streams and 3 % loss", "×", Some(AtMost(10.0))),
        ("loaded-quic-ratio", "the same by QUIC", "×", Some(AtMost(10.0))),
        ("pairs-1", "one relayed pair, no limit", "Mbit/s", None),
        ("cores-1", "the relay's share of a core", "%", None),
        ("pairs-2", "two relayed pairs, together", "Mbit/s", None),
        ("cores-2", "the relay's share of a core", "%", None),
        ("pairs-4", "four relayed pairs, together", "Mbit/s", None),
        ("cores-4", "the relay's share of a core", "%", None),
        ("pairs-4-two", "four relayed pairs by two relays, together", "Mbit/s", None),
        ("cores-4-two", "the server's relay's share of a core", "%", None),
        ("share-two", "the busier relay's part of both relays' time", "%", None),
        ("relay-cpu", "the relay's processor time for four pairs", "s/GB", None),
        ("relay-rss", "the relay's memory after that", "MiB", None),
        ("crowd-join", "1000 nodes join one server, until each knows all", "s", Some(AtMost(60.0))),
        ("crowd-back", "they are back after it was killed", "s", Some(AtMost(30.0))),
        ("crowd-policy", "another policy at 99 of 100 of them", "s", Some(AtMost(2.0))),
        ("crowd-meeting", "one that lets all meet who saw nobody", "s", Some(AtMost(2.0))),
        ("crowd-cpu", "the server's processor time for that", "s", None),
        ("crowd-rss", "the server's memory after that", "MiB", Some(AtMost(250.0))),
    ]
};

/// Measures everything, round after round.
///
/// # Errors
/// Returns an error when there are no rounds or a signal asks this process to end; all that was
/// made is removed. A step that fails is in the report.
pub fn run(settings: &Settings) -> Result<Report> {
    let facts = Facts::gather(&settings.origin);
    let (steps, skipped) = Step::all(settings, &settings.origin.program);
    let found = rounds::steps(settings.rounds, &steps, &skipped, Step::measure)?;
    let values: Vec<(&str, Vec<f64>)> =
        FIGURES.iter().map(|f| (f.0, series(f.0, &found.values))).collect();
    Ok(Report {
        schema: SCHEMA,
        kind: "network",
        marks: marks(settings, &facts),
        facts,
        skipped,
        rows: FIGURES.iter().zip(&values).map(|(f, v)| row(f, &v.1, settings.rounds)).collect(),
        values,
        failures: found.failures,
    })
}

/// The values of a figure; a ratio is taken within each round.
fn series(name: &str, found: &[(&'static str, f64)]) -> Vec<f64> {
    let of = |name: &str| -> Vec<f64> {
        found.iter().filter(|(known, _)| *known == name).map(|(_, value)| *value).collect()
    };
    match name {
        "relayed-ratio" | "relayed-quic-ratio" => {
            let ours = of(name.trim_end_matches("-ratio"));
            let theirs = of("relayed-headscale");
            // Without one of each round there is no pair to be compared.
            if ours.len() != theirs.len() {
                return Vec::new();
            }
            ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect()
        }
        name => of(name),
    }
}

fn row(figure: &Figure, values: &[f64], rounds: u32) -> Row {
    let (_, what, unit, required) = *figure;
    Row::new(what, unit, required, Spread::of(values), rounds as usize)
}

fn marks(settings: &Settings, facts: &Facts) -> Vec<Mark> {
    let rounds = settings.rounds;
    let short =
        (rounds < HONEST_ROUNDS).then(|| format!("{rounds} rounds; a claim takes {HONEST_ROUNDS}"));
    Mark::all(facts, short)
}

/// The report as a page for people.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut page = Sheet::new("A network, from its first minute to its relay's limit");
    page.marks(&report.marks);
    let shared = "All hosts share the machine's cores. How a figure is made: [README](README.md).";
    page.facts(&report.facts, shared);
    page.rows(&report.rows);
    page.skipped(&report.skipped);
    page.failures(&report.failures);
    page.text()
}

/// The report as JSON.
///
/// # Errors
/// Returns an error when a number is not one.
pub fn to_json(report: &Report) -> Result<String> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_one_round_and_a_missing_round_is_no_success() {
        let found = [
            ("relayed", 600.0),
            ("relayed-headscale", 200.0),
            ("relayed", 800.0),
            ("relayed-headscale", 200.0),
        ];
        assert_eq!(series("relayed-ratio", &found), [3.0, 4.0]);
        assert_eq!(series("relayed-ratio", &found[..3]), [0.0; 0]);
        let figure = FIGURES.iter().find(|figure| figure.0 == "relayed-ratio").expect("it is one");
        assert_eq!(row(figure, &[3.0, 4.0], 2).met, Some(true));
        assert_eq!(row(figure, &[3.0, 4.0], 3).met, Some(false));
        assert_eq!(row(figure, &[], 3).met, None);
    }
}
