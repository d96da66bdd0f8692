//! A run as a whole: facts, samples, and what follows from them.

use anyhow::Result;
use serde::Serialize;

use crate::facts::{BUSY_LOAD, Facts};
use crate::ground::{SizeCheck, WireCount};
use crate::row::Row;
use crate::scenario::Scenario;

/// Version of the JSON's layout; it grows when a reader of the old one would be wrong.
pub const SCHEMA: u32 = 1;

/// Everything that is known of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What kind of run: `link`.
    pub kind: &'static str,
    /// Why this run proves nothing, if it does not: `busy`, `short`, ….
    pub marks: Vec<Mark>,
    /// Where, when, with what.
    pub facts: Facts,
    /// What was asked for.
    pub settings: SettingsNote,
    /// Who took part, in the order of their turns.
    pub contestants: Vec<Contestant>,
    /// Who did not.
    pub skipped: Vec<Skipped>,
    /// What is claimed or of interest, set beside the required bounds.
    pub rows: Vec<Row>,
    /// Every measurement, in the order in which it was made.
    pub samples: Vec<Sample>,
}

/// A reason not to use a run for a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// One word.
    pub mark: &'static str,
    /// What it means here.
    pub why: String,
}

impl Mark {
    /// The marks of a run; `short` says why it was too short, if it was.
    pub(crate) fn all(facts: &Facts, short: Option<String>) -> Vec<Self> {
        let busy = facts.is_busy().then(|| {
            let load = facts.load_before[0];
            format!("the load average was {load} before it began, above {BUSY_LOAD}")
        });
        let unfit = cfg!(debug_assertions)
            .then(|| "the program was built with checks that a release does not have".to_owned());
        let marks = [("busy", busy), ("short", short), ("unfit build", unfit)];
        marks.into_iter().filter_map(|(mark, why)| Some(Self { mark, why: why? })).collect()
    }
}

/// The settings that shape the samples.
#[derive(Debug, Clone, Serialize)]
pub struct SettingsNote {
    /// Length of one transfer.
    pub seconds: u32,
    /// Rounds.
    pub rounds: u32,
    /// Pings in one measurement.
    pub pings: usize,
    /// Payload of a UDP datagram.
    pub udp_bytes: u32,
    /// Largest packet inside.
    pub mtu_inner: u32,
    /// Largest packet on the ground.
    pub mtu_outer: u32,
    /// Whether Warren spoke frames with itself.
    pub frames: bool,
    /// What was measured.
    pub scenarios: Vec<Scenario>,
}

/// Someone who took part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Contestant {
    /// Its name.
    pub name: String,
    /// What it says its version is.
    pub version: String,
}

/// Someone who did not take part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: String,
    /// What can be done about it.
    pub hint: String,
}

/// One measurement, or its failure.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// What was measured.
    pub scenario: Scenario,
    /// In which round, from 1.
    pub round: u32,
    /// For whom.
    pub contestant: String,
    /// What came out; none when it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// What one measurement yields; what does not apply is left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Measured {
    /// Payload received, 10^6 bits a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mbit_s: Option<f64>,
    /// Payload received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// Payload sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// UDP: the share of the payload sent that did not arrive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_percent: Option<f64>,
    /// UDP: the share that arrived and found the reading program's buffer full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread_percent: Option<f64>,
    /// TCP segments sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// User and system time of both daemons during the load, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
    /// The same per 10^9 bytes of payload received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_gb: Option<f64>,
    /// Resident memory of each daemon at the load's end, KiB.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rss_kib: Vec<u64>,
    /// Median of the round-trip times, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ping_us: Option<f64>,
    /// The round-trip times, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pings_us: Vec<f64>,
    /// What the impaired wire counted during the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<WireCount>,
    /// That no frame was too large for a wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<SizeCheck>,
}

impl Report {
    /// As JSON, one row and one sample a line, so that two runs can be compared by eye.
    ///
    /// # Errors
    /// Returns an error when a number is not one, which the parsers exclude.
    pub fn to_json(&self) -> Result<String> {
        let fields = [
            ("schema", serde_json::to_string(&self.schema)?),
            ("kind", serde_json::to_string(self.kind)?),
            ("marks", lines(&self.marks)?),
            ("facts", serde_json::to_string(&self.facts)?),
            ("settings", serde_json::to_string(&self.settings)?),
            ("contestants", lines(&self.contestants)?),
            ("skipped", lines(&self.skipped)?),
            ("rows", lines(&self.rows)?),
            ("samples", lines(&self.samples)?),
        ];
        let fields = fields.map(|(name, json)| format!("  \"{name}\": {json}"));
        Ok(format!("{{\n{}\n}}\n", fields.join(",\n")))
    }

    /// One value of a contestant in a scenario for each round, in order.
    #[must_use]
    pub fn series(
        &self,
        scenario: Scenario,
        contestant: &str,
        value: fn(&Measured) -> Option<f64>,
    ) -> Vec<Option<f64>> {
        let of_round = |round: u32| {
            let sample = self.samples.iter().find(|sample| {
                sample.round == round
                    && sample.scenario == scenario
                    && sample.contestant == contestant
            })?;
            value(sample.measured.as_ref()?)
        };
        (1..=self.settings.rounds).map(of_round).collect()
    }

    /// Whether this contestant took part.
    #[must_use]
    pub fn took_part(&self, contestant: &str) -> bool {
        self.contestants.iter().any(|c| c.name == contestant)
    }

    /// The measurements that failed.
    pub fn failures(&self) -> impl Iterator<Item = (&Sample, &str)> {
        self.samples.iter().filter_map(|sample| Some((sample, sample.failed.as_deref()?)))
    }
}

/// A list in JSON with one item a line.
fn lines<T: Serialize>(items: &[T]) -> Result<String> {
    if items.is_empty() {
        return Ok("[]".to_owned());
    }
    let items: Result<Vec<String>, _> = items.iter().map(serde_json::to_string).collect();
    Ok(format!("[\n    {}\n  ]", items?.join(",\n    ")))
}

impl Measured {
    /// Memory of the larger daemon, MiB.
    #[must_use]
    pub fn rss_mib(&self) -> Option<f64> {
        self.rss_kib.iter().max().map(|kib| *kib as f64 / 1024.0)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A report of `rounds` rounds; `mbit_s` gives the throughput of each sample.
    pub(crate) fn report(
        rounds: u32,
        names: &[&str],
        measured: impl Fn(Scenario, u32, &str) -> Option<Measured>,
    ) -> Report {
        let mut samples = Vec::new();
        for round in 1..=rounds {
            for scenario in Scenario::ALL {
                for name in names {
                    let measured = measured(scenario, round, name);
                    let failed = measured.is_none().then(|| "it | failed\nbadly".to_owned());
                    let contestant = (*name).to_owned();
                    samples.push(Sample { scenario, round, contestant, measured, failed });
                }
            }
        }
        let name = |name: &&str| Contestant { name: (*name).to_owned(), version: "1".to_owned() };
        Report {
            schema: SCHEMA,
            kind: "link",
            marks: Vec::new(),
            facts: Facts {
                command: "warren-lab bench link".to_owned(),
                load_before: [0.1, 0.2, 0.3],
                ..Facts::of_nothing()
            },
            settings: SettingsNote {
                seconds: 5,
                rounds,
                pings: 200,
                udp_bytes: 1_200,
                mtu_inner: 1_420,
                mtu_outer: 1_500,
                frames: false,
                scenarios: Scenario::ALL.to_vec(),
            },
            contestants: names.iter().map(name).collect(),
            skipped: Vec::new(),
            rows: Vec::new(),
            samples,
        }
    }

    #[test]
    fn the_json_is_json_with_a_sample_a_line() {
        let report = report(2, &["Warren"], |_, round, _| {
            (round == 1).then(|| Measured { mbit_s: Some(5.5), ..Measured::default() })
        });
        let text = report.to_json().expect("JSON");
        let value: serde_json::Value = serde_json::from_str(&text).expect("valid");
        assert_eq!(value["schema"], 1);
        assert_eq!(value["samples"].as_array().map(Vec::len), Some(12));
        assert_eq!(value["samples"][0]["measured"]["mbit_s"], 5.5);
        assert_eq!(value["samples"][11]["failed"], "it | failed\nbadly");
        assert!(value["samples"][11].get("measured").is_none());
        assert_eq!(text.lines().filter(|line| line.contains("\"round\"")).count(), 12);
    }

    #[test]
    fn a_series_keeps_the_place_of_a_failed_round() {
        let report = report(3, &["Warren"], |_, round, _| {
            (round != 2).then(|| Measured { mbit_s: Some(f64::from(round)), ..Measured::default() })
        });
        let series = report.series(Scenario::Udp, "Warren", |m| m.mbit_s);
        assert_eq!(series, [Some(1.0), None, Some(3.0)]);
        assert_eq!(report.series(Scenario::Udp, "nobody", |m| m.mbit_s), [None; 3]);
        assert_eq!(report.failures().count(), 6);
    }
}
