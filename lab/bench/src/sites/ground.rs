//! The ground of sites: a lab whose hosts have a folder each, in which commands run.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::netns::Host;
use lab::process::Process;
use lab::room::Room;
use lab::sites::{APPLY, NOTHING, command, serve};
use lab::sys;

use super::Settings;

/// Any one command, and any one thing that is awaited.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);
/// How long a program that stays may take until it is ready.
const READY_MAX: Duration = Duration::from_secs(60);

/// Everything is ended and removed on drop.
pub(super) struct Ground {
    staying: Vec<Process>,
    pub(super) room: Room,
}

impl Ground {
    /// Lays the hosts of a topology.
    pub(super) fn lay(settings: &Settings, topology: &str) -> Result<Self> {
        let programs = [(&*settings.origin.program, "warren")];
        let room = Room::lay(&settings.prefix, topology, "sites.toml", &programs)?;
        Ok(Self { staying: Vec::new(), room })
    }

    pub(super) fn host(&self, name: &str) -> Result<&Host> {
        self.room.lab().host(name)
    }

    /// Runs a command to its end; what it printed.
    pub(super) fn run(&self, host: &str, line: &str) -> Result<String> {
        self.run_within(host, line, PATIENCE)
    }

    /// The same, within another time.
    pub(super) fn run_within(&self, host: &str, line: &str, limit: Duration) -> Result<String> {
        self.room.start(host, line)?.end(limit, |_| Ok(()))
    }

    /// Starts something that stays until the ground goes.
    pub(super) fn stay(&mut self, host: &str, line: &str, ready: &str) -> Result<()> {
        let running = self.room.start(host, line)?;
        running.until_said(ready, READY_MAX)?;
        self.staying.push(running.process);
        Ok(())
    }

    /// Keeps what runs already.
    pub(super) fn keep(&mut self, running: Vec<Process>) {
        self.staying.extend(running);
    }

    /// The server at which gateways find each other.
    pub(super) fn serve(&mut self, address: &str) -> Result<()> {
        self.stay("server", &serve(address), "serving on")
    }

    /// A second `apply`, seconds.
    pub(super) fn again(&self) -> Result<f64> {
        let begin = Instant::now();
        let said = self.run("server", &command(APPLY))?;
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
