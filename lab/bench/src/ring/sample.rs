//! The folder of a run: one note of the whole, and one line for each measurement.
//!
//! A line is written and synced when its measurement is finished, so that an interrupt, or a
//! machine that dies, costs the one that was under way. The last line may be torn by that; it is
//! then measured again.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use lock::Lock;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::facts::Facts;
use crate::ground::WireCount;
use crate::ratio::rounded;
use crate::ring::{HONEST_COUNT, HONEST_SECONDS, Test};

/// Version of the layout; it grows when a reader of the old one would be wrong.
pub const SCHEMA: u32 = 2;
/// Of a figure in the note.
pub(crate) const DIGITS: usize = 5;
const NOTE: &str = "run.json";
const SAMPLES: &str = "samples.jsonl";

/// The run as a whole.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Note {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `ring`.
    pub kind: String,
    /// Where, when, with what it began.
    pub facts: Facts,
    /// When it was taken up again.
    pub resumed: Vec<String>,
    /// Why this run proves nothing, if it does not: a word and what it means.
    pub marks: Vec<(String, String)>,
    /// What was asked for.
    pub settings: Settings,
    /// Who took part.
    pub peers: Vec<Peer>,
    /// Who did not.
    pub skipped: Vec<Absent>,
    /// What was found, without the samples: written by the report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
}

impl Note {
    /// Refuses what the run does not do: `asked`, as far as it was `said`, by the words of the
    /// command line.
    ///
    /// # Errors
    /// Names the first that is different.
    pub fn ensure_asked(&self, asked: &Settings, said: &[String]) -> Result<()> {
        let [own, asked] = [&self.settings, asked].map(serde_json::to_value);
        let own = own?;
        let asked = asked?;
        let is_of = |word: &str, name: &str| match word {
            "repeat" => name == "rounds",
            "grid_only" => name == "tests" || name == "grid",
            word => word == name,
        };
        for (name, value) in asked.as_object().into_iter().flatten() {
            ensure!(
                *value == own[name] || !said.iter().any(|word| is_of(word, name)),
                "this run began with {name} = {}, not {value}: it goes on as it began, or begin \
                 another in a folder of its own",
                own[name]
            );
        }
        Ok(())
    }

    /// Refuses other peers than those that take part, or were skipped.
    ///
    /// # Errors
    /// Names who is in one only.
    pub fn ensure_peers(&self, asked: &[&str]) -> Result<()> {
        let skipped = self.skipped.iter().map(|peer| &*peer.name);
        let own: Vec<&str> = self.peers.iter().map(|peer| &*peer.name).chain(skipped).collect();
        let stranger = asked.iter().find(|name| !own.contains(name));
        if let Some(name) = stranger {
            bail!("this run began without {name}: begin another in a folder of its own");
        }
        let missing = own.iter().find(|name| !asked.contains(name));
        match missing {
            Some(name) => bail!("this run began with {name}, too: it goes on with all its peers"),
            None => Ok(()),
        }
    }
}

/// What shapes the measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Profiles: a name, or words of an impairment joined by `+`.
    pub profiles: Vec<String>,
    /// Tests, by their words.
    pub tests: Vec<String>,
    /// How often each is done.
    pub rounds: u32,
    /// Length of one transfer.
    pub seconds: u32,
    /// How many of the ring's three links are measured.
    pub links: u32,
    /// Decides all chance.
    pub seed: u64,
    /// Whether one TCP stream is also measured over the grid.
    pub grid: bool,
    /// Kernel settings of the hosts: `default`, `reorder` or `full`.
    pub tuning: String,
    /// Whether what is downloaded comes over TLS.
    #[serde(default)]
    pub https: bool,
}

impl Settings {
    /// How often a test is done in each profile for each peer.
    pub(crate) fn count_of(&self, test: Test) -> u32 {
        self.rounds * if test.is_once() { 1 } else { self.links }
    }

    /// The same of what is done most often.
    pub(crate) fn count_max(&self) -> u32 {
        let tests = self.tests.iter().filter_map(|word| Test::named(word));
        let all = tests.chain(self.grid.then_some(Test::Grid)).map(|test| self.count_of(test));
        all.max().unwrap_or(0)
    }

    /// Whether the run claims nothing. What is measured less often than [`HONEST_COUNT`] in a run
    /// that does is told apart by its verdict.
    pub(crate) fn is_short(&self) -> bool {
        self.seconds < HONEST_SECONDS || self.count_max() < HONEST_COUNT
    }
}

/// Someone who took part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// What it says its version is.
    pub version: String,
    /// What must be known of its figures.
    pub remark: String,
}

/// Someone who is not on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: String,
    /// What can be done about it.
    pub hint: String,
}

/// A figure as it is written: test, profile, peer, figure, median, smallest, largest, how many.
type Row = (String, String, String, String, f64, f64, f64, usize);

/// What all measurements of one kind found together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct Figure {
    /// Test, by its word.
    pub test: String,
    /// Profile.
    pub profile: String,
    /// Name of the peer.
    pub peer: String,
    /// Name of the figure; it ends with its unit ([`super::metric`]).
    pub figure: String,
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many there were.
    pub n: usize,
}

impl From<Row> for Figure {
    fn from(row: Row) -> Self {
        let (test, profile, peer, figure, median, min, max, n) = row;
        Self { test, profile, peer, figure, median, min, max, n }
    }
}

impl From<Figure> for Row {
    fn from(figure: Figure) -> Self {
        let Figure { test, profile, peer, figure, median, min, max, n } = figure;
        let [median, min, max] = [median, min, max].map(|value| rounded(value, DIGITS));
        (test, profile, peer, figure, median, min, max, n)
    }
}

/// One measurement, or its failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What was measured and for whom.
    #[serde(flatten)]
    pub key: Key,
    /// Seed of its wire; the same for everybody.
    pub seed: u64,
    /// Load average over one minute, just before.
    pub load_before: f64,
    /// Figures by name; each name ends with its unit ([`super::metric`]).
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
    /// Raw series by name, such as round-trip times.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Vec<f64>>,
    /// What the wire did during the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<WireCount>,
    /// Why it failed, with the end of the programs' logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// What tells one measurement from all others of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// From 1.
    pub round: u32,
    /// Profile.
    pub profile: String,
    /// Test, by its word.
    pub test: String,
    /// `a-b`, `b-c`, `c-a`, or `ring` for all together.
    pub link: String,
    /// Name of the peer.
    pub peer: String,
}

/// A run's folder, open for more, and nobody else's while this lives.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    file: File,
    _lock: Lock,
}

impl Store {
    /// Makes a new run in `dir`; its note is still to be written.
    ///
    /// # Errors
    /// Returns an error when there is already one, or the folder cannot be written.
    pub fn create(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir)
            .with_context(|| format!("cannot make the folder {}", dir.display()))?;
        let lock = lock(dir)?;
        ensure!(
            !dir.join(NOTE).exists(),
            "{} already holds a run: add --resume to go on with it, or name another folder",
            dir.display()
        );
        Ok(Self { dir: dir.to_owned(), file: open(dir)?, _lock: lock })
    }

    /// Goes on with the run in `dir`: its note, and what is measured already.
    ///
    /// # Errors
    /// As [`read`]; also when the folder cannot be written.
    pub fn resume(dir: &Path) -> Result<(Self, Note, Vec<Sample>)> {
        read(dir)?;
        let lock = lock(dir)?;
        let (note, samples) = read(dir)?;
        // A torn line is cut off before more is added.
        let whole: String = samples.iter().map(line).collect::<Result<_>>()?;
        replace(&dir.join(SAMPLES), &whole)?;
        Ok((Self { dir: dir.to_owned(), file: open(dir)?, _lock: lock }, note, samples))
    }

    /// Where it is.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Adds a finished measurement; it is on the disk when this returns.
    ///
    /// # Errors
    /// Returns an error when it cannot be written.
    pub fn add(&mut self, sample: &Sample) -> Result<()> {
        self.file.write_all(line(sample)?.as_bytes()).context("cannot write a sample")?;
        self.file.sync_data().context("cannot sync a sample")
    }

    /// Writes the note anew.
    ///
    /// # Errors
    /// Returns an error when it cannot be written.
    pub fn write_note(&self, note: &Note) -> Result<()> {
        write_note(&self.dir, note)
    }
}

/// Writes the note of the run in `dir` anew; each figure has a line of its own.
///
/// # Errors
/// Returns an error when it cannot be written.
pub(crate) fn write_note(dir: &Path, note: &Note) -> Result<()> {
    let mut text = serde_json::to_string_pretty(&Note { figures: Vec::new(), ..note.clone() })?;
    if !note.figures.is_empty() {
        let lines: serde_json::Result<Vec<String>> =
            note.figures.iter().map(serde_json::to_string).collect();
        text.truncate(text.trim_end_matches(['\n', '}']).len());
        text += &format!(",\n  \"figures\": [\n    {}\n  ]\n}}", lines?.join(",\n    "));
    }
    replace(&dir.join(NOTE), &(text + "\n"))
}

/// Reads what a run says of itself, which is there without its samples, too.
///
/// # Errors
/// Returns an error when `dir` holds none, or one of another schema.
pub fn read_note(dir: &Path) -> Result<Note> {
    let path = dir.join(NOTE);
    let text = fs::read_to_string(&path)
        .with_context(|| format!("no run in {}: cannot read {}", dir.display(), path.display()))?;
    let no_note = || format!("{} is no note of a run", path.display());
    let note: Value = serde_json::from_str(&text).with_context(no_note)?;
    ensure!(
        note["schema"] == SCHEMA && note["kind"] == "ring",
        "{} has schema {} of kind {}; this program reads {SCHEMA} of \"ring\"",
        path.display(),
        note["schema"],
        note["kind"]
    );
    serde_json::from_value(note).with_context(no_note)
}

/// Reads a run.
///
/// # Errors
/// As [`read_note`]; also when its samples are not there, or a line that is not the last is
/// damaged.
pub fn read(dir: &Path) -> Result<(Note, Vec<Sample>)> {
    let note = read_note(dir)?;
    let path = dir.join(SAMPLES);
    let text = fs::read_to_string(&path).with_context(|| {
        format!("cannot read {}: without its samples a run has no other report", path.display())
    })?;
    let mut samples = Vec::new();
    for (i, line) in text.split_inclusive('\n').enumerate() {
        match serde_json::from_str(line) {
            Ok(sample) if line.ends_with('\n') => samples.push(sample),
            _ if !line.ends_with('\n') => break,
            Ok(_) => {}
            Err(error) => {
                let place = format!("line {} of {}", i + 1, path.display());
                return Err(error).with_context(|| format!("{place} is no sample: remove it"));
            }
        }
    }
    Ok((note, samples))
}

/// Two that write into one folder would each lose what the other measured.
fn lock(dir: &Path) -> Result<Lock> {
    let lock = File::open(dir).with_context(|| format!("cannot open {}", dir.display()))?;
    match Lock::take(lock) {
        Ok(lock) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            bail!("another run is writing into {}: wait for its end", dir.display())
        }
        Err(TryLockError::Error(error)) => {
            let what = || format!("cannot lock {}: name a folder of a local disk", dir.display());
            Err(error).with_context(what)
        }
    }
}

fn open(dir: &Path) -> Result<File> {
    let path = dir.join(SAMPLES);
    let file = File::options().create(true).append(true).open(&path);
    file.with_context(|| format!("cannot write {}", path.display()))
}

fn line(sample: &Sample) -> Result<String> {
    Ok(serde_json::to_string(sample)? + "\n")
}

/// Replaces a file as a whole, or not at all.
fn replace(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new).with_context(|| format!("cannot write {}", new.display()))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    pub(crate) fn note(names: &[&str]) -> Note {
        let peer = |name: &&str| Peer {
            name: (*name).to_owned(),
            version: "1".to_owned(),
            remark: String::new(),
        };
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Note {
            schema: SCHEMA,
            kind: "ring".to_owned(),
            facts: Facts::of_nothing(),
            resumed: Vec::new(),
            marks: Vec::new(),
            settings: Settings {
                profiles: words(&["baseline", "low", "medium", "high"]),
                tests: words(&["tcp", "ping"]),
                rounds: 1,
                seconds: 30,
                links: 3,
                seed: 1,
                grid: false,
                tuning: "default".to_owned(),
                https: false,
            },
            peers: names.iter().map(peer).collect(),
            skipped: Vec::new(),
            figures: Vec::new(),
        }
    }

    pub(crate) fn sample(
        peer: &str,
        profile: &str,
        test: &str,
        link: &str,
        metrics: &[(&str, f64)],
    ) -> Sample {
        Sample {
            schema: SCHEMA,
            key: Key {
                round: 1,
                profile: profile.to_owned(),
                test: test.to_owned(),
                link: link.to_owned(),
                peer: peer.to_owned(),
            },
            seed: 1,
            load_before: 0.0,
            metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            series: BTreeMap::new(),
            wire: None,
            failed: None,
        }
    }

    #[test]
    fn a_run_goes_on_as_it_began_or_says_what_was_asked_that_it_does_not_do() {
        let run = note(&["Warren", "no VPN"]);
        let own = &run.settings;
        let said = ["repeat", "seed", "out"].map(str::to_owned);
        run.ensure_asked(own, &said).expect("the same is asked");
        let other = Settings { rounds: 5, ..own.clone() };
        run.ensure_asked(&other, &said[1..]).expect("rounds are not said");
        let error = run.ensure_asked(&other, &said).expect_err("more rounds").to_string();
        assert!(error.contains("rounds = 1, not 5"), "{error}");
        let other = Settings { tests: Vec::new(), ..own.clone() };
        assert!(run.ensure_asked(&other, &["grid_only".to_owned()]).is_err());
        run.ensure_peers(&["no VPN", "Warren"]).expect("they take part");
        for (asked, due) in
            [(&["Warren", "no VPN", "tinc"][..], "without tinc"), (&["Warren"], "with no VPN")]
        {
            let error = run.ensure_peers(asked).expect_err("others").to_string();
            assert!(error.contains(due), "{error}");
        }
    }

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("warren-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn a_torn_last_line_is_measured_again_and_nothing_else_is_lost() {
        let dir = folder("torn");
        let mut store = Store::create(&dir).expect("a new run");
        store.write_note(&note(&["Warren"])).expect("written");
        let error = format!("{:#}", Store::resume(&dir).expect_err("two at once"));
        assert!(error.contains("another run is writing into"), "{error}");
        for link in ["a-b", "b-c"] {
            store.add(&sample("Warren", "low", "tcp", link, &[("x_s", 1.5)])).expect("written");
        }
        let path = dir.join(SAMPLES);
        let text = fs::read_to_string(&path).expect("there");
        fs::write(&path, &text[..text.len() - 5]).expect("written");
        // As a program that is just being started has it.
        let _copy = store._lock.as_fd().try_clone_to_owned().expect("a copy");
        drop(store);
        let error = format!("{:#}", Store::create(&dir).expect_err("a run is not overwritten"));
        assert!(error.contains("add --resume"), "{error}");
        let (mut store, note, samples) = Store::resume(&dir).expect("a run");
        assert_eq!((samples.len(), &samples[0].key.link[..]), (1, "a-b"));
        assert_eq!(note.settings.seconds, 30);
        store.add(&sample("Warren", "low", "tcp", "c-a", &[])).expect("written");
        let (_, samples) = read(&dir).expect("a run");
        let links: Vec<_> = samples.iter().map(|s| &s.key.link[..]).collect();
        assert_eq!(links, ["a-b", "c-a"]);
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn figures_stay_with_the_note_one_a_line() {
        let dir = folder("figures");
        fs::create_dir_all(&dir).expect("made");
        let figure = |peer: &str| Figure {
            test: "tcp".to_owned(),
            profile: "low".to_owned(),
            peer: peer.to_owned(),
            figure: "forward_mbit_s".to_owned(),
            median: 2.0,
            min: 1.0,
            max: 3.5,
            n: 3,
        };
        let told = Note { figures: vec![figure("Warren"), figure("no \"VPN\"}")], ..note(&["x"]) };
        write_note(&dir, &told).expect("written");
        let text = fs::read_to_string(dir.join(NOTE)).expect("there");
        let rows = text.lines().filter(|line| line.contains(",2.0,1.0,3.5,3]"));
        assert_eq!(rows.count(), 2, "{text}");
        assert_eq!(read_note(&dir).expect("a note").figures, told.figures);
        let error = format!("{:#}", read(&dir).expect_err("no samples"));
        assert!(error.contains("without its samples"), "{error}");
        write_note(&dir, &note(&["x"])).expect("written");
        assert!(read_note(&dir).expect("a note").figures.is_empty());
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn what_is_no_run_is_refused_with_its_place() {
        let dir = folder("refused");
        assert!(read(&dir).is_err());
        let store = Store::create(&dir).expect("a new run");
        store.write_note(&note(&[])).expect("written");
        fs::write(dir.join(SAMPLES), "{}\n{}\n").expect("written");
        let error = format!("{:#}", read(&dir).expect_err("no samples"));
        assert!(error.contains("line 1"), "{error}");
        let future = Note { schema: SCHEMA + 1, ..note(&[]) };
        store.write_note(&future).expect("written");
        let error = format!("{:#}", read(&dir).expect_err("the future"));
        assert!(error.contains(&format!("schema {}", SCHEMA + 1)), "{error}");
        fs::remove_dir_all(&dir).expect("removed");
    }
}
