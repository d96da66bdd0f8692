//! The folder of a run: a note of the whole, and a line for each step that is finished, so that an
//! interrupted run is taken up where it was.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::Settings;
use crate::facts::Facts;

/// Version of the layout.
pub(super) const SCHEMA: u32 = 1;
const NOTE: &str = "circuit.json";
const SAMPLES: &str = "samples.jsonl";
const REPORT: &str = "report.md";

/// The run as a whole.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) schema: u32,
    pub(super) facts: Facts,
    pub(super) settings: Settings,
    pub(super) resumed: Vec<String>,
    /// Who is not here, and how to get it.
    pub(super) skipped: Vec<(String, String)>,
    pub(super) marks: Vec<String>,
}

/// Which step of which system on which line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Key {
    pub(super) system: String,
    /// Megabits a second; none where nothing is between A and B but a pair of interfaces.
    pub(super) mbit: Option<u64>,
    pub(super) loss_percent: u32,
    pub(super) round: u32,
    /// `build`, `idle`, `page`, `down 5`, `up 1`.
    pub(super) step: String,
}

/// What was found in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    #[serde(flatten)]
    pub(super) key: Key,
    #[serde(default)]
    pub(super) values: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<String>,
}

/// Where samples go.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    file: File,
    pub(super) samples: Vec<Sample>,
}

impl Store {
    /// Begins a run in an empty folder, or goes on with the one there.
    pub(super) fn open(dir: &Path, note: &mut Note, is_resumed: bool) -> Result<Self> {
        let at = || dir.display().to_string();
        fs::create_dir_all(dir).with_context(at)?;
        let path = dir.join(NOTE);
        if is_resumed {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let mut before: Note = serde_json::from_str(&text)?;
            ensure!(before.schema == SCHEMA, "{}: of another version; begin a new run", at());
            before.facts.ensure_same(&note.facts)?;
            ensure!(
                before.settings.is_same(&note.settings),
                "{}: other words than this run began with; leave them out, or begin a new one",
                at()
            );
            before.resumed.push(note.facts.date.clone());
            *note = before;
        } else {
            ensure!(!path.exists(), "{}: there is a run already; --resume goes on with it", at());
        }
        let samples = read(&dir.join(SAMPLES))?;
        let mut options = fs::OpenOptions::new();
        let mut file =
            options.create(true).append(true).open(dir.join(SAMPLES)).with_context(at)?;
        // A line that an end has torn is one of its own.
        if is_resumed {
            writeln!(file)?;
        }
        let store = Self { dir: dir.to_owned(), file, samples };
        store.note(note)?;
        Ok(store)
    }

    fn note(&self, note: &Note) -> Result<()> {
        let text = serde_json::to_string_pretty(note)? + "\n";
        Ok(fs::write(self.dir.join(NOTE), text)?)
    }

    /// Whether a step is done.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.samples.iter().any(|sample| sample.key == *key && sample.failed.is_none())
    }

    pub(super) fn add(&mut self, sample: Sample) -> Result<()> {
        writeln!(self.file, "{}", serde_json::to_string(&sample)?)?;
        self.file.sync_data()?;
        self.samples.push(sample);
        Ok(())
    }

    /// Writes the report beside them, for people and for programs.
    pub(super) fn report(&self, text: &str, json: &str, chart: &str) -> Result<PathBuf> {
        for (name, text) in [("run.json", json), ("charts.svg", chart), (REPORT, text)] {
            let path = self.dir.join(name);
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        Ok(self.dir.join(REPORT))
    }
}

fn read(path: &Path) -> Result<Vec<Sample>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_and_a_failed_step_are_measured_again() {
        let dir = std::env::temp_dir().join(format!("warren-circuits-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let key = |step: &str| Key {
            system: "Tor".to_owned(),
            mbit: Some(10),
            loss_percent: 3,
            round: 1,
            step: step.to_owned(),
        };
        let sample = |step: &str, failed: Option<&str>| Sample {
            key: key(step),
            values: [("mbit_s".to_owned(), 7.5)].into(),
            failed: failed.map(str::to_owned),
        };
        let lines = [sample("idle", None), sample("page", Some("late"))];
        let lines = lines.map(|sample| serde_json::to_string(&sample).unwrap());
        fs::write(dir.join(SAMPLES), format!("{}\n{}\n{{\"sys", lines[0], lines[1])).unwrap();
        let samples = read(&dir.join(SAMPLES)).unwrap();
        let file = File::create(dir.join("x")).unwrap();
        let store = Store { dir: dir.clone(), file, samples };
        assert_eq!(
            ["idle", "page", "down 1"].map(|step| store.has(&key(step))),
            [true, false, false]
        );
        let _ = fs::remove_dir_all(&dir);
    }
}
