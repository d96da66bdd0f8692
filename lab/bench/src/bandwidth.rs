//! Whether `warren bandwidth` tells the truth: `warren-lab bench bandwidth`.
//!
//! A cell is a line, and what others send over it: nothing, or a share of it, evenly, by chance or
//! in bursts. The life of one cell: hosts and the line are made (`line`), a flood tells what the
//! line carries, two nodes join a network of their own, and a sender beside them begins (`beside`).
//! Then the one node measures the way to the other, again and again. Each answer is held against
//! what the line carries less what the sender really sent during the run, by the counters of the
//! router. The clock is the bench's own, and so are the bytes: those of all packets that the node
//! sent.

mod beside;
mod line;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::netns::Host;
use lab::sys;
use serde_json::{Value, json};

use crate::facts::{Facts, Origin};
use crate::load::finish;
use crate::ratio::Spread;
use crate::report::Mark;
use crate::rounds;
use crate::row::{Bound, Row};
use crate::sheet::{Sheet, number};
use crate::vpn::{Network, Running};
pub use beside::Traffic;
use beside::{Gaps, Pace};
use line::{Line, Passed};

/// Runs of a cell from which on it may stand for a claim.
pub const HONEST_RUNS: u32 = 40;
/// The lines, Mbit/s.
pub const LINES_MBIT: [u32; 4] = [10, 100, 500, 1_000];
/// What others send, in percent of a line.
pub const BESIDE_PERCENT: [u8; 3] = [0, 40, 70];
/// Where the daemon of a host listens, in the host's own `/run`.
const SOCKET: &str = "/run/warren.sock";
/// The command gives up after 90 s.
const PATIENCE: Duration = Duration::from_secs(100);
/// Others send for so long before anybody measures.
const SETTLES: Duration = Duration::from_millis(500);
/// Seconds of the transfer that the cost is compared with.
const BULK_S: f64 = 10.0;
/// The result of a run whose command gave no answer.
const FAILED: &str = "failed";
/// What is required of a cell, in the order of its rows.
const REQUIRED: [&str; 4] = ["truth", "width", "time", "cost"];

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Names of the namespaces begin with it.
    pub prefix: String,
    /// Runs of each cell, 1 to 1000.
    pub runs: u32,
    /// The lines, Mbit/s, 1 to 10,000.
    pub lines_mbit: Vec<u32>,
    /// What others send, in percent of a line, 0 to 90.
    pub beside_percent: Vec<u8>,
    /// How that comes.
    pub traffic: Vec<Traffic>,
    /// What was typed, and what is measured.
    pub origin: Origin,
}

/// A line, and what others send over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    line_mbit: u32,
    beside_percent: u8,
    /// How it comes; evenly, where nothing does.
    traffic: Traffic,
}

impl Cell {
    fn all(settings: &Settings) -> Vec<Self> {
        let lines: BTreeSet<u32> = settings.lines_mbit.iter().copied().collect();
        let shares: BTreeSet<u8> = settings.beside_percent.iter().copied().collect();
        let kinds: BTreeSet<Traffic> = settings.traffic.iter().copied().collect();
        let mut cells = Vec::new();
        for line_mbit in lines {
            for &beside_percent in &shares {
                let even = Self { line_mbit, beside_percent, traffic: Traffic::Even };
                match beside_percent {
                    0 => cells.push(even),
                    _ => cells.extend(kinds.iter().map(|&traffic| Self { traffic, ..even })),
                }
            }
        }
        cells
    }

    /// What others send, in words.
    fn beside(self) -> String {
        let how = match (self.beside_percent, self.traffic) {
            (0, _) => return "nothing".to_owned(),
            (_, Traffic::Even) => "evenly",
            (_, Traffic::Chance) => "by chance",
            (_, Traffic::Bursts) => "in bursts",
        };
        format!("{} %, {how}", self.beside_percent)
    }

    /// Between the packets of others, if they send any. Each cell has its own chance, and the same
    /// one every time.
    fn gaps(self) -> Option<Gaps> {
        let line_bps = f64::from(self.line_mbit) * 1e6;
        let rate_bps = line_bps * f64::from(self.beside_percent) / 100.0;
        let seed = u64::from(self.line_mbit) * 100 + u64::from(self.beside_percent);
        (self.beside_percent > 0).then(|| Gaps::new(self.traffic, rate_bps, line_bps, seed))
    }
}

/// Takes every run of a cell, in a new lab.
fn measure(settings: &Settings, cell: Cell) -> Result<Vec<Told>> {
    let line = Line::lay(&settings.prefix, cell.line_mbit)?;
    let line_bps = line.capacity_bps()?;
    let program = settings.origin.program.to_str().context("the program's path is not UTF-8")?;
    let vpn = Network::direct(&settings.origin.program);
    let _running = Running::start(&vpn, &line.ends)?;
    let _sender = cell.gaps().map(|gaps| line.send(Pace::Gaps(gaps))).transpose()?;
    std::thread::sleep(SETTLES);
    let peer = line.ends[1].host.name();
    let words = [program, "--socket", SOCKET, "bandwidth", peer, "--json"];
    let mut all = Vec::new();
    for _ in 0..settings.runs {
        let before = line.seen()?;
        let answer = ask(&line.ends[0].host, &words);
        sys::check_interrupted()?;
        let passed = line.seen()?.since(before);
        all.push(Told::new(cell, answer, line_bps, passed));
    }
    Ok(all)
}

/// What the command answers. That there is no range is an answer, too.
fn ask(host: &Host, words: &[&str]) -> Result<Value> {
    let said = finish(&host.spawn(words)?, PATIENCE)?;
    let answer: Value =
        serde_json::from_str(&said).with_context(|| format!("it said: {}", said.trim()))?;
    ensure!(answer["result"].is_string(), "an answer without a result: {answer}");
    Ok(answer)
}

impl rounds::Step for Cell {
    fn title(&self) -> String {
        format!("a line of {} Mbit/s, beside it {}", self.line_mbit, self.beside())
    }

    fn expected_s(&self) -> f64 {
        // Of forty runs: a slow line takes longer, and so does chance.
        let run_s = if self.line_mbit < 50 { 5.0 } else { 1.5 };
        let chance = if self.traffic == Traffic::Even { 1.0 } else { 2.0 };
        12.0 + f64::from(HONEST_RUNS) * run_s * chance
    }
}

/// What one run told, and what was true.
#[derive(Debug, Clone, PartialEq)]
struct Told {
    cell: Cell,
    /// The word of the answer, `range` if there is one; [`FAILED`] where there was no answer.
    result: String,
    /// Why there was no answer.
    why: Option<String>,
    /// The ends of the range, bits of IP packets a second.
    range_bps: Option<[f64; 2]>,
    /// What the line carries.
    line_bps: f64,
    /// What others sent in the time of the run.
    beside_bps: f64,
    /// From the command's start to its end.
    seconds: f64,
    /// Bytes of all IP packets that the node sent in this time.
    sent_bytes: u64,
}

impl Told {
    fn new(cell: Cell, answer: Result<Value>, line_bps: f64, passed: Passed) -> Self {
        let mut told = Self {
            cell,
            result: FAILED.to_owned(),
            why: None,
            range_bps: None,
            line_bps,
            beside_bps: passed.beside_bps(),
            seconds: passed.seconds,
            sent_bytes: passed.own_bytes,
        };
        match answer {
            Ok(answer) => {
                told.result = answer["result"].as_str().unwrap_or(FAILED).to_owned();
                // Some other results have one of them.
                let ends = ["low_bps", "high_bps"].map(|field| answer[field].as_f64());
                if let [Some(low), Some(high)] = ends {
                    told.range_bps = Some([low, high]);
                }
            }
            Err(why) => told.why = Some(format!("{why:#}")),
        }
        told
    }

    /// What was available: the truth.
    fn left_bps(&self) -> f64 {
        self.line_bps - self.beside_bps
    }

    fn holds(&self) -> bool {
        let left = self.left_bps();
        self.range_bps.is_some_and(|[low, high]| (low..=high).contains(&left))
    }

    /// How far apart the ends of the range are, in percent of their middle.
    fn width_percent(&self) -> Option<f64> {
        self.range_bps.map(|[low, high]| (high - low) / ((low + high) / 2.0) * 100.0)
    }

    fn took_s(&self) -> Option<f64> {
        self.why.is_none().then_some(self.seconds)
    }

    /// What was sent, in percent of what a transfer of ten seconds would carry at the truth.
    fn cost_percent(&self) -> Option<f64> {
        let bulk_bytes = self.left_bps() * BULK_S / 8.0;
        self.why.is_none().then_some(self.sent_bytes as f64 / bulk_bytes * 100.0)
    }

    fn json(&self) -> Value {
        let end = |at: usize| self.range_bps.map(|ends| ends[at].round());
        json!({
            "result": self.result,
            "low_bps": end(0),
            "high_bps": end(1),
            "line_bps": self.line_bps.round(),
            "beside_bps": self.beside_bps.round(),
            "holds": self.holds(),
            "seconds": self.seconds,
            "sent_bytes": self.sent_bytes,
        })
    }
}

/// All that was found.
#[derive(Debug)]
pub struct Report {
    facts: Facts,
    marks: Vec<Mark>,
    settings: Settings,
    told: Vec<Told>,
    failures: Vec<String>,
}

/// Measures every cell.
///
/// # Errors
/// Returns an error without root, or when a signal asks this process to end. What fails of a cell
/// is in the report.
pub fn run(settings: &Settings) -> Result<Report> {
    ensure!(sys::is_root(), "hosts are network namespaces, and only root may make them");
    ensure!((1..=1_000).contains(&settings.runs), "there must be 1 to 1000 runs");
    let facts = Facts::gather(&settings.origin);
    let short = (settings.runs < HONEST_RUNS)
        .then(|| format!("{} runs of a cell; a claim takes {HONEST_RUNS}", settings.runs));
    let marks = Mark::all(&facts, short);
    let cells = Cell::all(settings);
    let found = rounds::steps(1, &cells, &[], |cell| measure(settings, *cell))?;
    let mut failures = found.failures;
    failures.extend(found.values.iter().filter_map(|told| {
        let why = told.why.as_ref()?;
        Some(format!("{}: {why}", rounds::Step::title(&told.cell)))
    }));
    Ok(Report { facts, marks, settings: settings.clone(), told: found.values, failures })
}

impl Report {
    fn of(&self, cell: Cell) -> Vec<&Told> {
        self.told.iter().filter(|told| told.cell == cell).collect()
    }

    /// What is required of a cell, as [`REQUIRED`] names it. The truth is judged over all runs,
    /// with a range or without one; of the times the longest counts, else the median.
    fn rows(&self, cell: Cell) -> [Row; 4] {
        let told = self.of(cell);
        let runs = self.settings.runs as usize;
        let values = |pick: fn(&Told) -> Option<f64>| -> Vec<f64> {
            told.iter().copied().filter_map(pick).collect()
        };
        let widths = values(Told::width_percent);
        let row = |name: &str, unit, bound, found: &[f64], count| {
            let what = format!("{}: {name}", rounds::Step::title(&cell));
            Row::new(what, unit, Some(bound), Spread::of(found), count)
        };
        let share = percent(told.iter().filter(|told| told.holds()).count(), runs);
        let [truth, width, time, cost] = REQUIRED;
        [
            row(truth, "%", Bound::AtLeast(90.0), &[share], 1),
            // A cell without ranges has none that are narrow.
            row(width, "%", Bound::AtMost(20.0), &widths, widths.len()).due(),
            row(time, "s", Bound::AtMost(15.0), &values(Told::took_s), runs)
                .by(|spread| spread.max)
                .due(),
            row(cost, "%", Bound::AtMost(10.0), &values(Told::cost_percent), runs).due(),
        ]
    }

    /// How often each result came that is no range.
    fn others(&self, cell: Cell) -> BTreeMap<&str, usize> {
        let mut others = BTreeMap::new();
        for told in self.of(cell).iter().filter(|told| told.range_bps.is_none()) {
            *others.entry(told.result.as_str()).or_default() += 1;
        }
        others
    }

    /// The line of a cell, below [`HEAD`].
    fn line(&self, cell: Cell) -> Vec<String> {
        let told = self.of(cell);
        let ranges = told.iter().filter(|told| told.range_bps.is_some()).count();
        let true_ones = told.iter().filter(|told| told.holds()).count();
        let left: Vec<f64> = told.iter().map(|told| told.left_bps() / 1e6).collect();
        let rows = self.rows(cell);
        let median = |at: usize| number(rows[at].found.map(|spread: Spread| spread.median), 1);
        let judged = REQUIRED.into_iter().zip(&rows);
        let missed: Vec<&str> =
            judged.filter(|(_, row)| row.met != Some(true)).map(|(name, _)| name).collect();
        let met = match missed.is_empty() {
            true => "yes".to_owned(),
            false => format!("**no**: {}", missed.join(", ")),
        };
        let of_ranges = (ranges > 0).then(|| percent(true_ones, ranges));
        vec![
            cell.line_mbit.to_string(),
            cell.beside(),
            number(Spread::of(&left).map(|spread| spread.median), 1),
            told.len().to_string(),
            ranges.to_string(),
            number(of_ranges, 0),
            median(0),
            median(1),
            median(2),
            number(rows[2].found.map(|spread| spread.max), 1),
            median(3),
            met,
        ]
    }
}

/// The columns of the table of cells.
const HEAD: [&str; 12] = [
    "line, Mbit/s",
    "beside it",
    "left, Mbit/s",
    "runs",
    "ranges",
    "true, % of ranges",
    "true, % of runs",
    "width, %",
    "s",
    "worst s",
    "cost, %",
    "met",
];

fn percent(part: usize, whole: usize) -> f64 {
    (part * 100) as f64 / whole as f64
}

/// The page.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut page = Sheet::new("Available bandwidth, told and true");
    let cells = Cell::all(&report.settings);
    page.marks(&report.marks);
    page.facts(
        &report.facts,
        "All hosts share the machine's cores. The line is the way out of a router, a token bucket\n\
         that counts IP packets, as the answer does. Others send packets of 1,200 bytes.\n\
         The truth is what passes the line under a flood, less what others really sent during\n\
         the run, by the router's counters. Medians; cost is all that the node sent, in\n\
         percent of what 10 s at the truth carry.",
    );
    page.paragraph(
        "Required of each cell: 90 % of its runs hold the truth, the median width is at most\n\
         20 %, the longest run takes at most 15 s, and the median cost is at most 10 %.",
    );
    let lines: Vec<Vec<String>> = cells.iter().map(|cell| report.line(*cell)).collect();
    page.table(&HEAD, 2..11, &lines);
    page.paragraph(
        "Pathload 1.3.2 ran by hand, and not in this run, on a line of 100 Mbit/s beside 40: of\n\
         its 5 runs none held the truth, and its ranges were some 15 % too high.",
    );
    let others: Vec<Vec<String>> = cells
        .iter()
        .flat_map(|&cell| report.others(cell).into_iter().map(move |found| (cell, found)))
        .map(|(cell, (result, count))| {
            vec![cell.line_mbit.to_string(), cell.beside(), result.to_owned(), count.to_string()]
        })
        .collect();
    if !others.is_empty() {
        page.heading("What was told that is no range");
        page.table(&["line, Mbit/s", "beside it", "told", "runs"], 3..4, &others);
    }
    page.failures(&report.failures);
    page.text()
}

/// The report as JSON.
///
/// # Errors
/// Returns an error when a number is not one.
pub fn to_json(report: &Report) -> Result<String> {
    let cells = Cell::all(&report.settings);
    let cells = cells.iter().map(|&cell| {
        json!({
            "line_mbit": cell.line_mbit,
            "beside_percent": cell.beside_percent,
            "traffic": cell.traffic.word(),
            "rows": report.rows(cell),
            "others": report.others(cell),
            "runs": report.of(cell).iter().map(|told| told.json()).collect::<Vec<Value>>(),
        })
    });
    let told = json!({
        "kind": "bandwidth",
        "facts": serde_json::to_value(&report.facts)?,
        "marks": serde_json::to_value(&report.marks)?,
        "runs": report.settings.runs,
        "cells": cells.collect::<Vec<Value>>(),
        "failures": report.failures,
    });
    Ok(serde_json::to_string(&told)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: Cell = Cell { line_mbit: 100, beside_percent: 40, traffic: Traffic::Chance };

    fn settings(runs: u32) -> Settings {
        Settings {
            prefix: "x".to_owned(),
            runs,
            lines_mbit: vec![100, 10, 100],
            beside_percent: vec![40, 0],
            traffic: Traffic::USUAL.to_vec(),
            origin: Origin::of_nothing(),
        }
    }

    /// A run over a line of 100 Mbit/s, of which others had 40.
    fn told(answer: Result<Value>, seconds: f64) -> Told {
        let beside_bytes = (5e6 * seconds) as u64;
        let passed = Passed { seconds, own_bytes: 3_750_000, beside_bytes, line_bytes: 0 };
        Told::new(CELL, answer, 100e6, passed)
    }

    fn range(low: f64, high: f64) -> Result<Value> {
        Ok(json!({ "result": "range", "low_bps": low * 1e6, "high_bps": high * 1e6 }))
    }

    fn report(told: Vec<Told>) -> Report {
        let settings = settings(told.len() as u32);
        let facts = Facts::of_nothing();
        Report { facts, marks: Vec::new(), settings, told, failures: Vec::new() }
    }

    #[test]
    fn a_range_holds_what_the_line_has_left_or_misses_it() {
        for (low, high, holds) in
            [(55.0, 65.0, true), (60.0, 66.0, true), (61.0, 70.0, false), (50.0, 59.0, false)]
        {
            let told = told(range(low, high), 2.0);
            assert_eq!((told.left_bps(), told.holds()), (60e6, holds), "{low} to {high}");
        }
        let narrow = told(range(57.0, 63.0), 2.0);
        assert!((narrow.width_percent().expect("a range") - 10.0).abs() < 1e-9);
        // Ten seconds at 60 Mbit/s are 75 MB.
        assert_eq!((narrow.took_s(), narrow.cost_percent()), (Some(2.0), Some(5.0)));
    }

    #[test]
    fn what_is_no_range_holds_nothing_and_no_answer_takes_no_time() {
        let slow = told(Ok(json!({ "result": "at-least", "low_bps": 5e7, "high_bps": null })), 2.0);
        assert_eq!((slow.holds(), slow.width_percent(), slow.took_s()), (false, None, Some(2.0)));
        let failed = told(Err(anyhow::anyhow!("no daemon")), 2.0);
        assert_eq!((failed.holds(), failed.took_s(), failed.cost_percent()), (false, None, None));
        assert_eq!((&failed.result[..], failed.why.as_deref()), (FAILED, Some("no daemon")));
    }

    #[test]
    fn a_cell_is_judged_over_all_of_its_runs() {
        let mut all = vec![told(range(55.0, 65.0), 2.0); 9];
        all.push(told(Ok(json!({ "result": "not-converged" })), 9.0));
        let good = report(all.clone());
        assert_eq!(good.rows(CELL).map(|row| row.met), [Some(true); 4]);
        assert_eq!(good.others(CELL), BTreeMap::from([("not-converged", 1)]));
        assert_eq!(
            good.line(CELL).join(" "),
            "100 40 %, by chance 60.0 10 9 100 90.0 16.7 2.0 9.0 5.0 yes"
        );
        let page = render(&good);
        assert!(page.contains("| 100 | 40 %, by chance | not-converged | 1 |"), "{page}");
        // Another one without a range, of more than 15 s.
        all[0] = told(Ok(json!({ "result": "unsteady" })), 16.0);
        let bad = report(all.clone());
        let met = bad.rows(CELL).map(|row| row.met);
        assert_eq!(met, [Some(false), Some(true), Some(false), Some(true)]);
        assert!(bad.line(CELL).join(" ").ends_with("**no**: truth, time"));
        // What gave no answer is missed by times and costs as well.
        all[0] = told(Err(anyhow::anyhow!("no daemon")), 1.0);
        let met = report(all).rows(CELL).map(|row| row.met);
        assert_eq!(met, [Some(false), Some(true), Some(false), Some(false)]);
        // Nothing was found of a lab that could not be made.
        let none = Cell { line_mbit: 10, ..CELL };
        assert_eq!(bad.rows(none).map(|row| row.met), [Some(false); 4]);
        let json: Value = serde_json::from_str(&to_json(&bad).expect("JSON")).expect("valid");
        assert_eq!(json["cells"].as_array().map(Vec::len), Some(6));
        assert_eq!(json["cells"][5]["runs"][1]["low_bps"], 55e6);
        assert_eq!(json["cells"][5]["rows"][0]["met"], false);
    }

    #[test]
    fn each_line_is_measured_once_with_each_share_that_comes_evenly_and_by_chance() {
        let cells = Cell::all(&settings(1));
        let told: Vec<String> = cells.iter().map(rounds::Step::title).collect();
        assert_eq!(
            told[..4],
            [
                "a line of 10 Mbit/s, beside it nothing",
                "a line of 10 Mbit/s, beside it 40 %, evenly",
                "a line of 10 Mbit/s, beside it 40 %, by chance",
                "a line of 100 Mbit/s, beside it nothing",
            ]
        );
        assert_eq!(cells.len(), 6);
        assert!(cells[0].gaps().is_none() && cells[1].gaps().is_some());
    }

    #[test]
    fn a_cell_without_others_is_there_whatever_is_chosen_of_them() {
        let bursts = vec![Traffic::Bursts, Traffic::Bursts];
        let cells = Cell::all(&Settings { traffic: bursts, ..settings(1) });
        let told: Vec<String> = cells.iter().map(|cell| cell.beside()).collect();
        assert_eq!(told, ["nothing", "40 %, in bursts", "nothing", "40 %, in bursts"]);
    }
}
