//! Sites, from nothing to a gateway that dies: `warren-lab bench sites`.
//!
//! The life of one round. Three sites of two machines each are laid, in clouds that are played
//! and, the second time, all of machines that `ssh` reaches (`three`). `apply` joins them, a
//! second one must find nothing to do, and gateways of the pair are killed one after another.
//! Between sites of `ssh` the round trip is set beside that of the same machines with plain routes.
//! Then a hub with more and more edges tells what each of them costs its gateway (`star`), where
//! hundreds are played by one process (`edges`), and a file of 200 sites how long a plan takes.

mod edges;
mod ground;
mod star;
mod three;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use lab::sites::Tools;
use lab::sites::three::Provider;
use lab::sys;
use serde_json::{Value, json};

use crate::facts::{Facts, Origin};
use crate::ratio::Spread;
use crate::report::{Mark, Skipped};
use crate::rounds;
use crate::row::{Bound, Row};
use crate::sheet::Sheet;

/// Rounds from which on a median may stand for a claim.
pub const HONEST_ROUNDS: u32 = 5;

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Names of the namespaces begin with it.
    pub prefix: String,
    /// Rounds, 1 to 100.
    pub rounds: u32,
    /// Edges of a hub, 1 to 1,000, one after another.
    pub edges: Vec<u32>,
    /// Where what plays clouds was put, beside Debian's own places.
    pub tools: PathBuf,
    /// What was typed, and what is measured.
    pub origin: Origin,
}

/// What a step found: figures by their names.
type Found = Vec<(String, f64)>;

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Sites in clouds that are played, and a pair that `ssh` reaches.
    Clouds,
    /// All of `ssh`.
    Ssh,
    /// A hub with so many edges.
    Star(u32),
    /// A file of 200 sites.
    Plan,
}

impl Step {
    fn all(settings: &Settings, has_clouds: bool) -> Vec<Self> {
        let clouds = has_clouds.then_some(Self::Clouds);
        let stars = settings.edges.iter().map(|&edges| Self::Star(edges));
        clouds.into_iter().chain([Self::Ssh, Self::Plan]).chain(stars).collect()
    }

    fn measure(self, settings: &Settings, tools: &Tools) -> Result<Found> {
        match self {
            Self::Clouds => three::measure(settings, tools.clone(), "clouds"),
            Self::Ssh => {
                let tools = Tools { sshd: tools.sshd.clone(), ..Tools::default() };
                three::measure(settings, tools, "ssh")
            }
            Self::Star(edges) => star::measure(settings, tools, edges),
            Self::Plan => three::plan(settings),
        }
    }
}

impl rounds::Step for Step {
    fn title(&self) -> String {
        match *self {
            Self::Clouds => "three sites, two in clouds that are played".to_owned(),
            Self::Ssh => "three sites of ssh".to_owned(),
            Self::Star(1) => "a hub with one edge".to_owned(),
            Self::Star(edges) => format!("a hub with {edges} edges"),
            Self::Plan => "a plan of 200 sites".to_owned(),
        }
    }

    fn expected_s(&self) -> f64 {
        match *self {
            Self::Clouds | Self::Ssh => 60.0,
            Self::Star(edges) => 30.0 + 2.0 * f64::from(edges.min(star::DAEMONS_MAX)),
            Self::Plan => 1.0,
        }
    }
}

/// All that was found.
#[derive(Debug)]
pub struct Report {
    facts: Facts,
    marks: Vec<Mark>,
    settings: Settings,
    skipped: Vec<Skipped>,
    found: Found,
    failures: Vec<String>,
}

/// Measures everything, round after round, each step on new ground.
///
/// # Errors
/// Returns an error without root or without a server of OpenSSH, or when a signal asks this process
/// to end. What fails of a step is in the report.
pub fn run(settings: &Settings) -> Result<Report> {
    ensure!(sys::is_root(), "hosts are network namespaces, and only root may make them");
    let tools = Tools::find(&settings.tools);
    let known = lab::sites::three::sites(&tools)?;
    let is_here = |provider| known.iter().any(|site| site.provider == provider);
    let missing = |provider, name: &str, why: &str| {
        (!is_here(provider)).then(|| Skipped {
            name: name.to_owned(),
            why: why.to_owned(),
            hint: "make setup-sites".to_owned(),
        })
    };
    let aws = missing(Provider::Aws, "a site at AWS", "no moto");
    let azure = missing(Provider::Azure, "a site at Azure", "no Python that reads YAML");
    let skipped: Vec<Skipped> = [aws, azure].into_iter().flatten().collect();
    let steps = Step::all(settings, skipped.len() < 2);
    let facts = Facts::gather(&settings.origin);
    let short = (settings.rounds < HONEST_ROUNDS)
        .then(|| format!("{} rounds; a claim takes {HONEST_ROUNDS}", settings.rounds));
    let marks = Mark::all(&facts, short);
    let measure = |step: &Step| step.measure(settings, &tools);
    let found = rounds::steps(settings.rounds, &steps, &skipped, measure)?;
    Ok(Report {
        facts,
        marks,
        settings: settings.clone(),
        skipped,
        found: found.values,
        failures: found.failures,
    })
}

impl Report {
    fn of(&self, name: &str) -> Option<Spread> {
        let mine = self.found.iter().filter(|(known, _)| known == name);
        Spread::of(&mine.map(|(_, value)| *value).collect::<Vec<_>>())
    }

    /// What is required, judged by the median; each has one value a round, a failover two.
    fn rows(&self) -> Vec<Row> {
        let rounds = self.settings.rounds as usize;
        let at_most = |bound| Some(Bound::AtMost(bound));
        let row = |name: &str, what: &str, unit, required, times| {
            Row::new(what, unit, required, self.of(name), rounds * times)
        };
        let mut rows = vec![row("plan", "a plan of 200 sites", "s", at_most(0.2), 1)];
        for (way, what) in [("clouds", "clouds played"), ("ssh", "all by ssh")] {
            let one = |name: &str, told: &str, bound, times| {
                let told = format!("{told}, {what}");
                row(&format!("{way}-{name}"), &told, "s", at_most(bound), times)
            };
            rows.push(one("apply", "three sites from nothing", 60.0, 1));
            rows.push(one("again", "a second apply", 5.0, 1));
            rows.push(one("failover", "a gateway of a pair is killed", 5.0, three::KILLED));
        }
        rows.push(row("rtt-native", "round trip at rest, plain routes", "ms", None, 1));
        rows.push(row("rtt-sites", "the same through gateways", "ms", None, 1));
        rows.push(row("rtt-added", "what gateways add", "ms", at_most(1.0), 1));
        for edges in &self.settings.edges {
            let noun = if *edges == 1 { "edge" } else { "edges" };
            let what = |what: &str| format!("a hub's gateway with {edges} {noun}: {what}");
            let name = |name: &str| format!("star-{edges}-{name}");
            rows.push(row(&name("rss"), &what("memory"), "MiB", None, 1));
            rows.push(row(&name("cpu"), &what("share of a core, each echoes"), "%", None, 1));
        }
        rows
    }
}

/// The page.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut page = Sheet::new("Sites, from nothing to a gateway that dies");
    page.marks(&report.marks);
    page.facts(
        &report.facts,
        "All hosts share the machine's cores. A failover is the time from `kill -9` until\n\
         machines of both sites reach each other again; its worst is the column max. Edges echo\n\
         once a second. More than 100 are nodes of one process, to a hub that is a daemon.",
    );
    page.rows(&report.rows());
    page.skipped(&report.skipped);
    page.failures(&report.failures);
    page.text()
}

/// The report as JSON.
///
/// # Errors
/// Returns an error when a number is not one.
pub fn to_json(report: &Report) -> Result<String> {
    let found = report.found.iter().map(|(name, value)| json!([name, value]));
    let told = json!({
        "kind": "sites",
        "facts": serde_json::to_value(&report.facts)?,
        "marks": serde_json::to_value(&report.marks)?,
        "rounds": report.settings.rounds,
        "edges": report.settings.edges,
        "rows": report.rows(),
        "values": found.collect::<Vec<Value>>(),
        "failures": report.failures,
    });
    Ok(serde_json::to_string(&told)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_of_all_rounds_is_judged_and_a_failover_counts_each_time() {
        let origin = Origin { command: String::new(), program: PathBuf::new() };
        let facts = Facts::gather(&origin);
        let settings = Settings {
            prefix: "x".to_owned(),
            rounds: 1,
            edges: vec![3],
            tools: PathBuf::new(),
            origin,
        };
        let value = |name: &str, value| (name.to_owned(), value);
        let found = vec![
            value("ssh-failover", 1.0),
            value("ssh-failover", 9.0),
            value("ssh-again", 6.0),
            value("star-3-rss", 12.0),
        ];
        let report = Report {
            facts,
            marks: Vec::new(),
            settings,
            skipped: Vec::new(),
            found,
            failures: Vec::new(),
        };
        let rows = report.rows();
        let row = |what: &str| rows.iter().find(|row| row.what == what).expect("a row");
        let failover = row("a gateway of a pair is killed, all by ssh");
        assert_eq!((failover.met, failover.found.map(|f| f.max)), (Some(true), Some(9.0)));
        assert_eq!(row("a second apply, all by ssh").met, Some(false));
        assert_eq!(row("a second apply, clouds played").met, None);
        assert_eq!(row("a hub's gateway with 3 edges: memory").found.map(|f| f.n), Some(1));
        assert!(render(&report).contains("| a second apply, all by ssh | ≤ 5 s | 6.00 |"));
    }
}
