//! A system at work: what runs of it, what it costs, and how programs speak through it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use lab::Process;

use super::chain::Chain;
use crate::vpn;

/// What programs of the client's run in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Inside {
    /// The client's host, whose routes lead through it.
    Client,
    /// These words before a command.
    Words(Vec<String>),
}

/// A system at work; it ends on drop.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) inside: Inside,
    /// Its processes of client, A, B and C.
    pub(super) roles: [Vec<Process>; 4],
    /// What else runs for it, and is nobody's share.
    pub(super) others: Vec<Process>,
    /// Builds one more circuit, waits until it carries, and ends it: a script that prints how
    /// many milliseconds that took.
    pub(super) build: Option<String>,
}

impl Running {
    pub(super) fn new(inside: Inside) -> Self {
        let roles = [const { Vec::new() }; 4];
        Self { inside, roles, others: Vec::new(), build: None }
    }

    /// Runs a script at the client so that its traffic goes through the system.
    pub(super) fn run(&self, chain: &Chain, script: &Path) -> Result<String> {
        let script = script.display().to_string();
        let before: Vec<&str> = match &self.inside {
            Inside::Client => Vec::new(),
            Inside::Words(words) => words.iter().map(String::as_str).collect(),
        };
        // With its path: torsocks takes a bare "sh" for a word of its own.
        chain.client().run(&[&before[..], &["/bin/sh", &script]].concat())
    }

    /// User and system time of each role so far, seconds.
    pub(super) fn cpu_s(&self) -> [f64; 4] {
        self.roles.each_ref().map(|all| all.iter().map(Process::cpu_s).sum())
    }

    /// The largest of the roles' resident memory, MiB.
    pub(super) fn rss_mib(&self) -> f64 {
        let of = |all: &Vec<Process>| all.iter().map(Process::rss_kib).sum::<u64>();
        self.roles.iter().map(of).max().unwrap_or(0) as f64 / 1024.0
    }
}

/// The path of a program as text.
pub(super) fn program(name: &str) -> Result<String> {
    let path: PathBuf = vpn::find(name).with_context(|| format!("no {name} here"))?;
    Ok(path.display().to_string())
}

/// Asks until it is so.
pub(super) fn until(
    what: &str,
    limit: Duration,
    mut is_so: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < limit {
        lab::sys::check_interrupted()?;
        if is_so()? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("{what}: not within {limit:?}")
}
