//! What other benches found: circuits, carriers, sites. Their rows were judged when they were made,
//! and stand here as they are, those that hold last.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use super::{FOLDER, NOTE, free_name};
use crate::facts::Facts;
use crate::page::number;
use crate::page::sections::{self, Cell, Section, Table};
use crate::ratio::Spread;
use crate::row::Row;

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

impl Judged {
    /// The report at this place: a file by itself, or the note of a folder that is no run of the
    /// ring. None where a run may be.
    ///
    /// # Errors
    /// Returns an error when a file is no report with rows.
    pub(super) fn at(place: &Path, others: &[Self]) -> Result<Option<Self>> {
        let is_file = place.is_file();
        let file = if is_file { place.to_owned() } else { place.join(NOTE) };
        let shown = file.display();
        let text = match fs::read_to_string(&file) {
            Err(_) if !is_file => return Ok(None),
            text => text.with_context(|| format!("cannot read {shown}"))?,
        };
        let told = match serde_json::from_str::<Told>(&text) {
            Err(_) if !is_file => return Ok(None),
            told => told.with_context(|| format!("{shown} is no report of a bench with rows"))?,
        };
        let name = free_name(place.file_stem(), others.iter().map(|other| &*other.name));
        Ok(Some(Self { name, bytes: text.len() as u64, file, told }))
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
            rows: sorted.into_iter().map(cells).collect(),
            is_folded: false,
        };
        Section { paragraphs, tables: vec![table], ..Section::default() }
    }
}

fn cells(row: &Row) -> Vec<Cell> {
    let of = |value: fn(Spread) -> f64| {
        row.found.map_or_else(|| "–".to_owned(), |found| number(value(found)))
    };
    let n = row.found.map_or(0, |found| found.n);
    let text = [
        row.what.clone(),
        row.unit.to_string(),
        row.required.map_or_else(String::new, |bound| bound.to_string()),
        of(|found| found.median),
        of(|found| found.min),
        of(|found| found.max),
        format!("{n} of {}", row.rounds),
    ];
    let verdict = if row.required.is_some() { sections::verdict(row.met) } else { Cell::default() };
    text.into_iter().map(Cell::text).chain([verdict]).collect()
}

/// A mark: a text, or a word and why.
fn told(mark: &Value) -> String {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match mark {
        Value::Object(parts) => parts.values().filter_map(text).collect::<Vec<_>>().join(", "),
        other => text(other).unwrap_or_else(|| other.to_string()),
    }
}
