//! Circuits beside Tor, nested WireGuard and a tunnel over TCP, on the chain client – A = wire =
//! B – C – server; the method is that of the baseline which was measured before circuits.
//!
//! One system on one line is a new lab: nothing of one is left for the next. Its steps are: builds,
//! an idle echo, bulk down and up with an echo beside it, a page, and where nothing is lost one
//! stream down while B is under stress. Every step that is finished is on the disk at once. Who is
//! not on this machine is named, and how to get it.

mod chain;
mod chart;
mod openvpn;
mod page;
mod run;
mod running;
mod store;
mod system;
mod telescope;
mod tor;
mod traffic;
mod warren;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use lab::{Process, sys};
use serde::{Deserialize, Serialize};

use crate::facts::{Facts, Origin};
use crate::progress::Progress;
use chain::{Chain, Line};
use running::Running;
use store::{Key, Note, SCHEMA, Sample, Store};
use system::Kind;
use traffic::{Servers, Values};

/// A claim takes so long a transfer, and so many rounds.
pub const HONEST_SECONDS: u32 = 8;
/// See [`HONEST_SECONDS`].
pub const HONEST_ROUNDS: u32 = 2;
/// What setting a lab up and its system takes, s; Tor takes longer.
const SETUP_S: f64 = 15.0;
const PAGES: u32 = 4;
/// The step of one stream down while B is under stress.
const STRESS: &str = "stress";
/// It would last so much longer than the transfer, s: all is slower then.
const STRESS_MORE_S: u32 = 30;

/// What is measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    /// Names of hosts begin with it.
    pub prefix: String,
    /// Length of each transfer.
    pub seconds: u32,
    /// How often everything is measured.
    pub rounds: u32,
    /// Lines of the whole range of losses, Mbit/s.
    pub lossy_mbit: Vec<u64>,
    /// Percent.
    pub losses: Vec<u32>,
    /// Lines of 3 % loss, Mbit/s: the bottleneck that source 003 makes wider and wider.
    #[serde(default)]
    pub narrow_mbit: Vec<u64>,
    /// Lines without loss, Mbit/s; 0 is none at all.
    pub clear_mbit: Vec<u64>,
    /// Streams of TCP.
    pub flows: Vec<u32>,
    /// Circuits that are built one after another.
    pub builds: u32,
    /// Names of systems; all that are here, if there are none.
    pub systems: Vec<String>,
    /// Lines as `10:3`, Mbit/s and percent lost; all of them, if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
}

impl Settings {
    /// All of it: some hours.
    #[must_use]
    pub fn whole() -> Self {
        Self {
            prefix: "warren-bench".to_owned(),
            seconds: HONEST_SECONDS,
            rounds: HONEST_ROUNDS,
            lossy_mbit: vec![10],
            losses: vec![0, 1, 3, 5],
            narrow_mbit: vec![1, 2, 5],
            clear_mbit: vec![100, 1000, 0],
            flows: vec![1, 2, 5],
            builds: 100,
            systems: Vec::new(),
            only: Vec::new(),
        }
    }

    /// Some minutes, to see that it works.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            seconds: 2,
            rounds: 1,
            losses: vec![0, 3],
            narrow_mbit: Vec::new(),
            clear_mbit: vec![1000],
            flows: vec![1],
            builds: 3,
            ..Self::whole()
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let text = |settings: &Self| serde_json::to_string(settings).unwrap_or_default();
        text(self) == text(other)
    }

    fn lines(&self) -> Vec<Line> {
        let lossy = self.lossy_mbit.iter().flat_map(|&mbit| {
            self.losses.iter().map(move |&loss_percent| Line { mbit: Some(mbit), loss_percent })
        });
        let narrow =
            self.narrow_mbit.iter().map(|&mbit| Line { mbit: Some(mbit), loss_percent: 3 });
        let clear = self
            .clear_mbit
            .iter()
            .map(|&mbit| Line { mbit: (mbit > 0).then_some(mbit), loss_percent: 0 });
        let name = |line: &Line| format!("{}:{}", line.mbit.unwrap_or(0), line.loss_percent);
        let is_wanted = |line: &Line| self.only.is_empty() || self.only.contains(&name(line));
        lossy.chain(narrow).chain(clear).filter(is_wanted).collect()
    }

    /// Names of the steps on a line.
    fn steps(&self, line: Line) -> Vec<String> {
        let mut steps = vec!["build".to_owned(), "idle".to_owned(), "page".to_owned()];
        for direction in ["down", "up"] {
            steps.extend(self.flows.iter().map(|flows| format!("{direction} {flows}")));
        }
        if line.loss_percent == 0 && line.mbit.is_some() {
            steps.push(STRESS.to_owned());
        }
        steps
    }
}

/// Measures everything that the folder has not yet, and writes the report.
///
/// # Errors
/// The prefix is in use, the folder is another run's, or a signal asks this process to end. A step
/// that fails is in the report.
pub fn run(settings: &Settings, origin: &Origin, out: &Path, is_resumed: bool) -> Result<PathBuf> {
    sys::catch_interrupts();
    let facts = Facts::gather(origin);
    let is_wanted = |kind: &Kind| {
        settings.systems.is_empty() || settings.systems.iter().any(|name| name == kind.name())
    };
    let mut kinds = Vec::new();
    let mut skipped = Vec::new();
    for kind in Kind::ALL.into_iter().filter(is_wanted) {
        match kind.missing(&origin.program) {
            None => kinds.push(kind),
            Some(why) => skipped.push((kind.name().to_owned(), why)),
        }
    }
    let mut note = Note {
        schema: SCHEMA,
        marks: marks(settings, &facts),
        facts,
        settings: settings.clone(),
        resumed: Vec::new(),
        skipped,
    };
    let mut store = Store::open(out, &mut note, is_resumed)?;
    let done = measure_all(settings, &kinds, &origin.program, &mut store, &note);
    // What was interrupted has a report of what there is.
    let text = page::render(&note, &store.samples);
    let chart = chart::draw(&note, &page::Found::of(&store.samples));
    let written = store.report(&text, &run::to_json(&note, &store.samples)?, &chart)?;
    done.map(|()| written)
}

/// Names of the systems, for the command line.
#[must_use]
pub fn systems() -> Vec<&'static str> {
    Kind::ALL.map(Kind::name).to_vec()
}

fn marks(settings: &Settings, facts: &Facts) -> Vec<String> {
    let mut marks = Vec::new();
    if settings.seconds < HONEST_SECONDS || settings.rounds < HONEST_ROUNDS {
        marks.push(format!(
            "{} s and {} rounds; a claim takes {HONEST_SECONDS} s and {HONEST_ROUNDS}",
            settings.seconds, settings.rounds
        ));
    }
    if facts.is_busy() {
        marks.push("something else used the machine when it began".to_owned());
    }
    marks
}

fn measure_all(
    settings: &Settings,
    kinds: &[Kind],
    program: &Path,
    store: &mut Store,
    note: &Note,
) -> Result<()> {
    let lines = settings.lines();
    let step_s = f64::from(settings.seconds) + 4.0;
    let most = lines.iter().map(|line| settings.steps(*line).len()).max().unwrap_or(0);
    let lab_s = SETUP_S + step_s * most as f64;
    let count = kinds.len() * lines.len() * settings.rounds as usize;
    let mut progress = Progress::new(lab_s * count as f64);
    for (name, why) in &note.skipped {
        progress.note(&format!("skipped: {name}: {why}"));
    }
    for round in 1..=settings.rounds {
        for line in &lines {
            let steps = settings.steps(*line);
            for kind in kinds {
                let key = |step: &String| Key {
                    system: kind.name().to_owned(),
                    mbit: line.mbit,
                    loss_percent: line.loss_percent,
                    round,
                    step: step.clone(),
                };
                let left: Vec<Key> = steps.iter().map(key).filter(|key| !store.has(key)).collect();
                progress.begin_step(&format!("round {round}: {}, {}", kind.name(), words(*line)));
                if !left.is_empty() {
                    measure(*kind, *line, &left, settings, program, store, &progress)?;
                }
                progress.end_step(lab_s);
            }
        }
    }
    Ok(())
}

fn words(line: Line) -> String {
    match line.mbit {
        Some(mbit) => format!("{mbit} Mbit/s, {} % lost", line.loss_percent),
        None => "no wire between A and B".to_owned(),
    }
}

/// One lab, with the steps that are left of it.
fn measure(
    kind: Kind,
    line: Line,
    left: &[Key],
    settings: &Settings,
    program: &Path,
    store: &mut Store,
    progress: &Progress,
) -> Result<()> {
    let seed = u64::from(left.first().map_or(1, |key| key.round));
    let chain = Chain::lay(&settings.prefix, line, seed)?;
    let servers = Servers::start(&chain)?;
    let started = kind.start(&chain, program);
    sys::check_interrupted()?;
    for key in left {
        let found = match &started {
            Ok(running) => step(&chain, running, &key.step, settings)
                .and_then(|values| servers.check().map(|()| values)),
            Err(why) => Err(anyhow::anyhow!("it did not start: {why:#}")),
        };
        sys::check_interrupted()?;
        let sample = match found {
            Ok(Some(values)) => Sample { key: key.clone(), values, failed: None },
            // There is nothing of the kind in this system.
            Ok(None) => Sample { key: key.clone(), values: Values::new(), failed: None },
            Err(why) => {
                progress.note(&format!("failed: {}, {}: {why:#}", key.system, key.step));
                let failed = Some(format!("{why:#}"));
                Sample { key: key.clone(), values: Values::new(), failed }
            }
        };
        store.add(sample)?;
    }
    Ok(())
}

fn step(
    chain: &Chain,
    running: &Running,
    step: &str,
    settings: &Settings,
) -> Result<Option<Values>> {
    match step {
        "build" => build(chain, running, settings.builds),
        "idle" => {
            let count = (settings.seconds * 50) as usize;
            let said = running.run(chain, &traffic::idle(chain, count)?)?;
            traffic::read_echo(&said).map(Some)
        }
        "page" => {
            let script = traffic::page(chain)?;
            let before = chain.received_bytes()?;
            let pages = (0..PAGES).map(|_| {
                let values = traffic::read_page(&running.run(chain, &script)?)?;
                values.get("page_s").copied().context("no time")
            });
            let mut pages = pages.collect::<Result<Vec<f64>>>()?;
            let bytes = chain.received_bytes()? - before;
            pages.sort_by(f64::total_cmp);
            let middle = pages[pages.len() / 2];
            let kb = bytes as f64 / 1e3 / f64::from(PAGES);
            Ok(Some([("page_s".to_owned(), middle), ("page_kb".to_owned(), kb)].into()))
        }
        bulk => {
            let stress = (bulk == STRESS).then(|| Stress::begin(chain, settings.seconds));
            let stress = stress.transpose()?;
            let bulk = if stress.is_some() { "down 1" } else { bulk };
            let (direction, flows) = bulk.split_once(' ').context("a step of bulk")?;
            let is_down = direction == "down";
            let script = match is_down {
                true => traffic::down(chain, flows.parse()?, settings.seconds)?,
                false => traffic::up(chain, flows.parse()?, settings.seconds)?,
            };
            let before = running.cpu_s();
            let said = running.run(chain, &script)?;
            let after = running.cpu_s();
            let (mut values, bytes) = traffic::read_bulk(&said)?;
            for (role, name) in ["client", "a", "b", "c"].into_iter().enumerate() {
                let spent_s = after[role] - before[role];
                values.insert(format!("cpu_{name}_s_gb"), spent_s / (bytes as f64 / 1e9));
            }
            values.insert("rss_mib".to_owned(), running.rss_mib());
            if let Some(stress) = stress {
                stress.end(chain)?;
            }
            Ok(Some(values))
        }
    }
}

/// B is busy with other things: 20 processes each that compute, sync, fill memory and write files,
/// as in the source.
struct Stress(Process);

impl Stress {
    /// They end by themselves, whatever becomes of us.
    fn begin(chain: &Chain, seconds: u32) -> Result<Self> {
        let stress = running::program("stress").context("install stress")?;
        let folder = chain.file("stress");
        std::fs::create_dir_all(&folder)?;
        let time_s = seconds + STRESS_MORE_S;
        let load = "-c 20 -i 20 -m 20 --vm-bytes 16M -d 20 --hdd-bytes 16M";
        let script = format!(
            "cd {} && echo $$ > pid && exec {stress} -q {load} -t {time_s}",
            chain::word(&folder)
        );
        let process = chain.hosts[2].spawn(&["setsid", "--wait", "sh", "-c", &script])?;
        std::thread::sleep(Duration::from_secs(1));
        anyhow::ensure!(process.is_running(), "stress ended at once: {}", process.log());
        Ok(Self(process))
    }

    fn end(self, chain: &Chain) -> Result<()> {
        anyhow::ensure!(self.0.is_running(), "stress ended before the transfer");
        let pid = chain::word(&chain.file("stress/pid"));
        chain.hosts[2].sh(&format!("kill -- -$(cat {pid})"))?;
        running::until("stress ends", Duration::from_secs(60), || Ok(!self.0.is_running()))
    }
}

fn build(chain: &Chain, running: &Running, count: u32) -> Result<Option<Values>> {
    let Some(script) = &running.build else { return Ok(None) };
    let mut took = Vec::new();
    for _ in 0..count {
        let said = chain.client().sh(script)?;
        let ms = said.lines().find_map(|line| line.trim().parse::<f64>().ok());
        took.push(ms.with_context(|| format!("no time was said: {}", said.trim()))?);
        sys::check_interrupted()?;
    }
    took.sort_by(f64::total_cmp);
    let (Some(middle), Some(worst)) = (took.get(took.len() / 2), took.last()) else {
        return Ok(None);
    };
    Ok(Some([("build_ms".to_owned(), *middle), ("build_worst_ms".to_owned(), *worst)].into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_run_has_every_cell_of_the_source() {
        let whole = Settings::whole();
        let lines = whole.lines();
        let losses: Vec<u32> =
            lines.iter().filter(|l| l.mbit == Some(10)).map(|l| l.loss_percent).collect();
        assert_eq!(losses, [0, 1, 3, 5]);
        assert_eq!(lines.len(), 10);
        let clear = lines.iter().find(|line| line.loss_percent == 0).expect("a clear line");
        let steps = whole.steps(*clear);
        assert_eq!(steps.last().map(String::as_str), Some(STRESS));
        for step in ["build", "idle", "page", "down 1", "down 5", "up 2"] {
            assert!(steps.iter().any(|known| known == step), "{step}");
        }
        assert!(!whole.is_same(&Settings::quick()) && whole.is_same(&Settings::whole()));
    }
}
