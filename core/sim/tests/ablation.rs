//! What each tuned number is worth: TCP in the model, with each number off, halved and doubled.
//!
//! `make ablation` runs it and writes docs/measurements/ablation.md. First every number is switched
//! off, halved and doubled over a sample of lines, which is every eleventh clear and every ninth
//! lossy one; then those that seem to be worth nothing are off over all. What was found is kept in
//! `target/ablation`, so a run that was stopped goes on where it was.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::print_stdout,
    reason = "it keeps what it found in files, has processes work and tells how far it is"
)]

#[path = "ablation/lines.rs"]
mod lines;
#[path = "ablation/numbers.rs"]
mod numbers;
#[path = "ablation/page.rs"]
mod page;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use lines::{Cell, Lines, Over};
use node::Tuning;
use numbers::{Change, How, changes};

/// What was found of one change over some lines: a cell for each line, none where a run failed.
type Cells = Vec<Cell>;

/// What was found so far, in memory and in a file.
struct Store {
    path: PathBuf,
    found: Mutex<BTreeMap<String, Cells>>,
}

impl Store {
    /// That of the numbers of today over these lines: other numbers have another file.
    fn open() -> Self {
        let today = format!("{:?}", Tuning::DEFAULT);
        let sum = wire::fnv::sum(today.bytes());
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/ablation");
        std::fs::create_dir_all(&folder).expect("a folder");
        Self::read(folder.join(format!("{sum:016x}.txt")))
    }

    fn read(path: PathBuf) -> Self {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let found = text.lines().filter_map(|line| {
            let (key, cells) = line.split_once('\t')?;
            Some((key.to_owned(), read_cells(cells)?))
        });
        let found = Mutex::new(found.collect());
        Self { path, found }
    }

    fn get(&self, key: &str) -> Option<Cells> {
        self.found.lock().expect("no panic holds it").get(key).cloned()
    }

    fn keep(&self, key: &str, cells: Cells) {
        let mut found = self.found.lock().expect("no panic holds it");
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.create(true).append(true).open(&self.path).expect("a file");
        writeln!(file, "{key}\t{}", written(&cells)).expect("room on the disk");
        found.insert(key.to_owned(), cells);
    }
}

/// Tries all of `changes` over the same lines, as many at once as there are processors. Each has a
/// process of its own, whose keys are those of every other: what differs is the change's.
fn try_all(changes: &[Change], over: Over, store: &Store) {
    let begin = Instant::now();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(change) = changes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let key = format!("{} {}", over.name(), change.name);
                    if store.get(&key).is_some() {
                        continue;
                    }
                    store.keep(&key, in_a_process(&key));
                    let at = next.load(Ordering::Relaxed).min(changes.len());
                    let s = begin.elapsed().as_secs();
                    println!("{at} of {} over {}: {} s", changes.len(), over.name(), s);
                }
            });
        }
    });
}

/// Says to a process of this program which change over which lines it is to try.
const ASKED: &str = "WARREN_ABLATION_ASKED";
/// What stands before its answer.
const ANSWER: &str = "cells: ";

fn in_a_process(key: &str) -> Cells {
    let program = std::env::current_exe().expect("this program");
    let words = ["--ignored", "--exact", "a_change_that_is_asked_for", "--nocapture"];
    let output = Command::new(program).args(words).env(ASKED, key).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let answer = text.lines().find_map(|line| line.split_once(ANSWER));
    let cells = answer.and_then(|(_, cells)| read_cells(cells));
    cells.unwrap_or_else(|| panic!("{key}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

fn read_cells(words: &str) -> Option<Cells> {
    words.split(' ').map(Cell::read).collect()
}

fn written(cells: &Cells) -> String {
    cells.iter().map(Cell::written).collect::<Vec<_>>().join(" ")
}

#[test]
#[ignore = "it is asked by the others"]
fn a_change_that_is_asked_for() {
    let Ok(key) = std::env::var(ASKED) else { return };
    let (over, name) = key.split_once(' ').expect("lines and a change");
    let over = if over == Over::All.name() { Over::All } else { Over::Sample };
    let hows = [How::Off, How::Times(0.5), How::Times(2.0)];
    let all = Change::chances().into_iter().chain(changes(&numbers::all(), &hows));
    let change = all.into_iter().find(|change| change.name == name).expect("a change");
    // It lives as long as the program, as every tuning does.
    let tuning: &'static Tuning = Box::leak(Box::new(change.tuning));
    println!("{ANSWER}{}", written(&Lines::all().find(over, tuning, change.seed)));
}

#[test]
#[ignore = "hours of processor time"]
fn every_tuned_number_is_worth_something() {
    let lines = Lines::all();
    let store = Store::open();
    let numbers = numbers::all();
    let of = |over: Over, name: &str| store.get(&format!("{} {name}", over.name()));
    let off = changes(&numbers, &[How::Off]);
    let other = changes(&numbers, &[How::Times(0.5), How::Times(2.0)]);
    // The page is written as soon as it says something, for the rest takes an hour more.
    let save = || {
        let text = page::write(&lines, &numbers, of);
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::fs::write(root.join("docs/measurements/ablation.md"), text).expect("written");
    };
    try_all(&Change::chances(), Over::Sample, &store);
    try_all(&off, Over::Sample, &store);
    save();
    try_all(&other, Over::Sample, &store);
    save();
    let today = of(Over::Sample, "today").expect("found");
    let seems_idle = |change: &&Change| {
        let found = of(Over::Sample, &change.name).unwrap_or_default();
        page::seems_idle(&lines, Over::Sample, &found, &today)
    };
    let again: Vec<Change> = off.iter().filter(seems_idle).cloned().collect();
    try_all(&Change::chances(), Over::All, &store);
    try_all(&again, Over::All, &store);
    save();
}

/// What all streams have together beside what they had when `WARREN_ABLATION_BEFORE`, a file of
/// `target/ablation`, was found: numbers were deleted since.
#[test]
#[ignore = "minutes of processor time"]
fn what_was_deleted_was_worth_nothing() {
    let Some(before) = std::env::var_os("WARREN_ABLATION_BEFORE") else { return };
    let lines = Lines::all();
    let store = Store::open();
    let before = Store::read(before.into());
    try_all(&Change::chances()[..2], Over::All, &store);
    for chance in &Change::chances()[..2] {
        let key = format!("{} {}", Over::All.name(), chance.name);
        let [now, then] = [&store, &before].map(|store| store.get(&key).expect("found"));
        let beside = page::Beside::of(&lines, Over::All, &now, &then);
        println!("{}: {}", chance.name, beside.written());
        assert!(beside.lossy >= 0.98 && beside.clear >= 0.98, "{}", beside.written());
    }
}

/// A number that stands in no list would never be tried.
#[test]
fn every_tuned_number_is_tried() {
    let mut tried: Vec<String> = numbers::all().iter().map(|number| number.name()).collect();
    let mut path: Vec<String> = Vec::new();
    let mut there = Vec::new();
    for line in format!("{:#?}", Tuning::DEFAULT).lines().skip(1) {
        match line.trim().split_once(": ") {
            Some((name, value)) if value.ends_with('{') => path.push(name.to_owned()),
            Some((name, _)) => there.push([&path[..], &[name.to_owned()]].concat().join(".")),
            None => _ = path.pop(),
        }
    }
    tried.sort();
    there.sort();
    assert_eq!(tried, there);
}
