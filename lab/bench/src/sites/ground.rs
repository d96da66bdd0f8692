//! The ground of sites: a lab whose hosts have a folder each, in which commands run.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::netns::Host;
use lab::process::Process;
use lab::sys;
use lab::topology::{Lab, Plan, Topology};

use super::Settings;

/// Any one command, and any one thing that is awaited.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks.
pub(super) const GLANCE: Duration = Duration::from_millis(5);
/// What an `apply` says that finds everything as it must be.
const NOTHING: &str = "nothing is to be done";
/// Whoever starts this may have these set, for other networks than a lab.
const NOT_OURS: [&str; 6] =
    ["http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "WARREN_SOCKET"];

/// Everything is ended and removed on drop.
pub(super) struct Ground {
    staying: Vec<Process>,
    pub(super) lab: Lab,
    folder: Folder,
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Ground {
    /// Lays the hosts of a topology.
    pub(super) fn lay(settings: &Settings, topology: &str) -> Result<Self> {
        let topology = Topology::parse(topology, Path::new("sites.toml"))?;
        let mut plan = Plan::new(&topology)?;
        plan.name.clone_from(&settings.prefix);
        let names: Vec<String> = plan.nodes.iter().map(|node| node.name.clone()).collect();
        let lab = Lab::up(plan)?;
        let folder = std::env::temp_dir().join(format!("{}-sites", settings.prefix));
        let _ = fs::remove_dir_all(&folder);
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700).create(&folder).with_context(|| folder.display().to_string())?;
        let folder = Folder(folder);
        for name in names.iter().map(String::as_str).chain(["bin"]) {
            fs::create_dir(folder.0.join(name))?;
        }
        symlink(&settings.origin.program, folder.0.join("bin/warren"))?;
        Ok(Self { staying: Vec::new(), lab, folder })
    }

    /// The folder in which each host has one of its name.
    pub(super) fn folder(&self) -> &Path {
        &self.folder.0
    }

    pub(super) fn host(&self, name: &str) -> Result<&Host> {
        self.lab.host(name)
    }

    /// Starts a line of a shell in a host, in its own folder.
    pub(super) fn start(&self, host: &str, line: &str) -> Result<Process> {
        let host = self.lab.host(host)?;
        let mut command = host.command(&["sh", "-ec", line]);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = [self.folder.0.join("bin")].into_iter().chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(own)?);
        command.current_dir(self.folder.0.join(host.name())).env("LC_ALL", "C");
        for name in NOT_OURS {
            command.env_remove(name);
        }
        host.spawn_command(command)
    }

    /// Runs one to its end; what it printed.
    pub(super) fn run(&self, host: &str, line: &str) -> Result<String> {
        let process = self.start(host, line)?;
        self.end(&process, || Ok(()))
    }

    /// Waits for the end of a process, and calls `glance` until then; what it printed.
    pub(super) fn end(
        &self,
        process: &Process,
        mut glance: impl FnMut() -> Result<()>,
    ) -> Result<String> {
        let begin = Instant::now();
        while process.is_running() {
            sys::check_interrupted()?;
            ensure!(begin.elapsed() < PATIENCE, "it does not end: {}", process.log());
            glance()?;
            std::thread::sleep(GLANCE);
        }
        ensure!(process.wait(GLANCE)?.success(), "{}", process.log());
        Ok(process.log())
    }

    /// Starts something that stays until the ground goes.
    pub(super) fn stay(&mut self, host: &str, line: &str, ready: &str) -> Result<()> {
        let process = self.start(host, line)?;
        process.wait_for_within(Duration::from_secs(60), |log| log.contains(ready))?;
        self.staying.push(process);
        Ok(())
    }

    /// Keeps what runs already.
    pub(super) fn keep(&mut self, running: Vec<Process>) {
        self.staying.extend(running);
    }

    /// The server at which gateways find each other.
    pub(super) fn serve(&mut self, address: &str) -> Result<()> {
        let at = format!("{address}:8443");
        let line =
            format!("warren serve --data . --listen {at} --url https://{at} --stun {address}:3478");
        self.stay("server", &line, "serving on")
    }

    /// A second `apply`, seconds.
    pub(super) fn again(&self) -> Result<f64> {
        let begin = Instant::now();
        let said = self.run("server", &sites("apply --yes"))?;
        ensure!(said.contains(NOTHING), "a second apply changes something: {said}");
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Whether one host reaches an address.
    pub(super) fn reaches(&self, from: &str, to: &str) -> bool {
        let line = format!("ping -n -q -c 1 -W 0.1 {to}");
        self.host(from).is_ok_and(|host| host.sh(&line).is_ok())
    }

    /// Waits until it does.
    pub(super) fn until_reached(&self, from: &str, to: &str) -> Result<()> {
        let begin = Instant::now();
        while !self.reaches(from, to) {
            sys::check_interrupted()?;
            ensure!(begin.elapsed() < PATIENCE, "{from} does not reach {to}");
        }
        Ok(())
    }
}

/// A command of `warren sites`, with the operator's accounts.
pub(super) fn sites(words: &str) -> String {
    format!(". ./accounts && warren sites {words} sites.toml --data .")
}
