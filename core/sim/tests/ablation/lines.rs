//! The lines over which numbers are tried, and what a stream has over them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use node::Tuning;
use sim::stream::{Setting, run_tuned};

/// Runs so far, since each of a process has keys of its own.
static LIVES: AtomicU64 = AtomicU64::new(1);

/// Which of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// Every eleventh clear and every ninth lossy one.
    Sample,
    /// All of them.
    All,
}

impl Over {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sample => "sample",
            Self::All => "all",
        }
    }
}

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) words: String,
    pub(crate) is_lossy: bool,
    /// Whether it is in the sample.
    is_sample: bool,
}

/// What streams have over one line: geometric means of all seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cell {
    /// Mbit/s.
    pub(crate) mbit_s: f64,
    /// Bytes on the wire for each that arrived.
    pub(crate) wire: f64,
}

impl Cell {
    pub(crate) fn written(&self) -> String {
        format!("{}/{}", self.mbit_s, self.wire)
    }

    pub(crate) fn read(word: &str) -> Option<Self> {
        let (mbit_s, wire) = word.split_once('/')?;
        Some(Self { mbit_s: mbit_s.parse().ok()?, wire: wire.parse().ok()? })
    }
}

/// All lines.
pub(crate) struct Lines(Vec<Line>);

impl Lines {
    /// 120 clear lines, 100 lossy ones, and three profiles.
    pub(crate) fn all() -> Self {
        let mut clear = Vec::new();
        for rate in [5, 8, 10, 15, 20, 30, 50, 100] {
            for delay in [5, 10, 20, 40, 75] {
                for queue in [10, 20, 50] {
                    clear.push(words(rate, delay, queue));
                }
            }
        }
        let paths = [
            (5, 20),
            (5, 60),
            (10, 10),
            (10, 40),
            (20, 10),
            (20, 40),
            (30, 20),
            (50, 20),
            (50, 75),
            (100, 20),
        ];
        let mut lossy = Vec::new();
        for loss in ["0.1%", "0.25%", "0.5%", "1%", "2%"] {
            for burst in [1, 3] {
                for (rate, delay) in paths {
                    // None, little, and much of it in turn.
                    let jitter = [0, 1, 5][lossy.len() % 3];
                    let line = words(rate, delay, 25);
                    let weather = format!("+loss={loss}+burst={burst}+jitter={jitter}ms");
                    lossy.push(line + &weather);
                }
            }
        }
        let line = |words: String, is_lossy, is_sample| Line { words, is_lossy, is_sample };
        let clear = clear.into_iter().enumerate();
        let lossy = lossy.into_iter().enumerate();
        let mut all: Vec<Line> = clear.map(|(n, words)| line(words, false, n % 11 == 0)).collect();
        all.extend(lossy.map(|(n, words)| line(words, true, n % 9 == 0)));
        all.extend(["low", "medium", "high"].map(|name| line(name.to_owned(), true, false)));
        Self(all)
    }

    /// Those of them over which something is tried.
    pub(crate) fn over(&self, over: Over) -> impl Iterator<Item = &Line> {
        self.0.iter().filter(move |line| over == Over::All || line.is_sample)
    }

    /// Runs streams over them.
    pub(crate) fn find(&self, over: Over, tuning: &'static Tuning, seed: u64) -> Vec<Cell> {
        self.over(over).map(|line| line.find(tuning, seed)).collect()
    }
}

impl Line {
    /// A first flow of 5 s: one seed over a clear line, three over a lossy one, and of 3 s over a
    /// profile, whose rate is a gigabit.
    fn find(&self, tuning: &'static Tuning, first_seed: u64) -> Cell {
        let is_profile = !self.words.contains('=');
        let seeds = if self.is_lossy && !is_profile { 3 } else { 1 };
        let time = Duration::from_secs(if is_profile { 3 } else { 5 });
        let mut sums = [0.0; 2];
        for seed in first_seed..first_seed + seeds {
            let setting = Setting::over(&self.words, time, seed);
            // A number may be none with which the program works.
            let life = LIVES.fetch_add(1, Ordering::Relaxed);
            let found = catch_unwind(AssertUnwindSafe(|| run_tuned(&setting, tuning, life)));
            let Ok(found) = found else { return Cell { mbit_s: f64::NAN, wire: f64::NAN } };
            sums[0] += found.mbit_s.max(1e-3).ln();
            sums[1] += found.wire_bytes_per_byte.max(1.0).ln();
        }
        let [mbit_s, wire] = sums.map(|sum| (sum / seeds as f64).exp());
        Cell { mbit_s, wire }
    }
}

/// A line of so many Mbit/s and ms each way, with a queue of so many ms.
fn words(rate: u32, delay: u32, queue: u32) -> String {
    let packets = (rate * queue / 12).max(10);
    format!("baseline+rate={rate}mbit+delay={delay}ms+limit={packets}")
}
