//! What other benches found: circuits, carriers, sites. Their rows were judged when they were made,
//! and stand here as they are, those that hold last.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use super::{FOLDER, NOTE, plain_name};
use crate::facts::Facts;
use crate::page::number;
use crate::page::sections::{Cell, Section, Table};
use crate::ratio::Spread;
use crate::row::Bound;

/// A report that is published beside runs.
pub(super) struct Judged {
    /// As it is called in the page, and the file that it is in.
    pub(super) name: String,
    file: PathBuf,
    pub(super) bytes: u64,
    told: Told,
}

/// What its file says.
#[derive(Deserialize)]
struct Told {
    kind: String,
    facts: Facts,
    #[serde(default)]
    marks: Vec<Value>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    what: String,
    unit: String,
    required: Option<Bound>,
    found: Option<Spread>,
    rounds: usize,
    met: Option<bool>,
}

impl Judged {
    /// The file of such a report, if that is what stands at this place: a file by itself, or the
    /// note of a folder that is no run of the ring.
    pub(super) fn file(place: &Path) -> Option<PathBuf> {
        if place.is_file() {
            return Some(place.to_owned());
        }
        let file = place.join(NOTE);
        let told: Value = serde_json::from_str(&fs::read_to_string(&file).ok()?).ok()?;
        (told["kind"] != "ring" && told["rows"].is_array()).then_some(file)
    }

    /// Reads it. `place` is what was named, `file` is in it.
    ///
    /// # Errors
    /// Returns an error when it is no report with rows.
    pub(super) fn read(place: &Path, file: PathBuf) -> Result<Self> {
        let shown = file.display().to_string();
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {shown}"))?;
        let told = serde_json::from_str(&text)
            .with_context(|| format!("{shown} is no report of a bench with rows"))?;
        let name = plain_name(place.file_stem());
        Ok(Self { name, bytes: text.len() as u64, file, told })
    }

    /// Where it can be downloaded, below the page.
    pub(super) fn path(&self) -> String {
        format!("{FOLDER}/{}.json", self.name)
    }

    /// Puts it there.
    ///
    /// # Errors
    /// Returns an error when it cannot be written.
    pub(super) fn copy(&self, out: &Path) -> Result<()> {
        let to = out.join(self.path());
        let written = fs::create_dir_all(out.join(FOLDER)).and_then(|()| fs::copy(&self.file, &to));
        written.map(drop).with_context(|| format!("cannot write {}", to.display()))
    }

    pub(super) fn section(&self) -> Section {
        let Told { kind, facts, marks, rows } = &self.told;
        let mut paragraphs: Vec<String> = marks
            .iter()
            .map(|mark| format!("Proves nothing: {}. Not to be used for a claim.", told(mark)))
            .collect();
        paragraphs.push(format!(
            "Made {}, commit {}, on {}, {} cores, {}.",
            facts.date, facts.commit, facts.cpu, facts.cores, facts.kernel
        ));
        paragraphs.push(facts.command.clone());
        let mut sorted: Vec<&Row> = rows.iter().collect();
        sorted.sort_by_key(|row| match row.met {
            Some(false) => 0,
            None => 1,
            Some(true) => 2,
        });
        let head = ["what", "unit", "required", "median", "smallest", "largest", "n", "verdict"];
        let table = Table {
            title: format!("{}: {kind}", self.name),
            head: head.map(str::to_owned).to_vec(),
            rows: sorted.into_iter().map(Row::cells).collect(),
            is_folded: false,
        };
        Section { paragraphs, tables: vec![table], ..Section::default() }
    }
}

impl Row {
    fn cells(&self) -> Vec<Cell> {
        let of = |value: fn(&Spread) -> f64| {
            self.found.as_ref().map_or_else(|| "–".to_owned(), |found| number(value(found)))
        };
        let n = self.found.map_or(0, |found| found.n);
        let verdict = match self.met {
            Some(true) => "holds",
            Some(false) => "does not hold",
            None if self.required.is_some() => "not measured",
            None => "",
        };
        let required = self.required.map_or_else(String::new, |bound| bound.to_string());
        let text = [
            self.what.clone(),
            self.unit.clone(),
            required,
            of(|found| found.median),
            of(|found| found.min),
            of(|found| found.max),
            format!("{n} of {}", self.rounds),
        ];
        let last = Cell { text: verdict.to_owned(), bad: self.met == Some(false), heat: None };
        text.into_iter().map(Cell::text).chain([last]).collect()
    }
}

/// A mark: a text, or a word and why.
fn told(mark: &Value) -> String {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match mark {
        Value::Object(parts) => parts.values().filter_map(text).collect::<Vec<_>>().join(", "),
        other => text(other).unwrap_or_else(|| other.to_string()),
    }
}
