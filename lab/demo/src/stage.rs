//! The hosts of a demonstration, and commands that run in them as they are shown.
//!
//! Each host has a folder of its own in which its commands run ([`lab::room`]). Every wait looks
//! for signals, so that an interrupted demonstration ends at once.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::room::{GLANCE, Room, Running, tail};
use lab::{Host, sys};

use crate::Options;
use crate::screen::Screen;

/// How long any one command may take.
pub(crate) const COMMAND_MAX: Duration = Duration::from_secs(180);
/// How long a program that stays may take until it is ready.
const READY_MAX: Duration = Duration::from_secs(60);
/// SIGINT.
const INTERRUPT: i32 = 2;

/// Hosts, and what runs in them.
pub(crate) struct Stage<'a> {
    pub(crate) screen: &'a mut Screen,
    /// Ended in reverse order.
    staying: Vec<(String, Running)>,
    pub(crate) room: Room,
}

impl<'a> Stage<'a> {
    /// Builds the network and the folders.
    pub(crate) fn build(
        options: &Options,
        topology: &str,
        file: &str,
        screen: &'a mut Screen,
    ) -> Result<Self> {
        let begin = Instant::now();
        let programs = [(&*options.program, "warren"), (&*options.laboratory, "warren-lab")];
        let room = Room::lay(&options.lab, topology, file, &programs)?;
        let count = room.names().count();
        let told = format!("{count} network namespaces, joined by veth pairs");
        let stage = Self { screen, staying: Vec::new(), room };
        stage.screen.done(&told, Some(begin.elapsed()))?;
        Ok(stage)
    }

    /// A host by its name.
    pub(crate) fn host(&self, name: &str) -> Result<&Host> {
        self.room.lab().host(name)
    }

    /// The files of the hosts' namespaces.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = PathBuf> {
        self.room.names().filter_map(|name| Some(self.host(name).ok()?.path()))
    }

    /// A host's first address.
    pub(crate) fn address(&self, name: &str) -> Result<IpAddr> {
        self.room.lab().plan().address(name).with_context(|| format!("{name} has no address"))
    }

    /// A file in the folder in which `host` runs its commands.
    pub(crate) fn file(&self, host: &str, name: &str) -> PathBuf {
        self.room.file(host, name)
    }

    /// Runs a command to its end, without showing it, and returns what it printed.
    pub(crate) fn ask(&self, host: &str, line: &str) -> Result<String> {
        self.room.start(host, line)?.end(COMMAND_MAX, |_| Ok(()))
    }

    /// Shows a command, runs it to its end and returns what it printed.
    pub(crate) fn run(&mut self, host: &str, line: &str) -> Result<String> {
        self.run_watched(host, line, |_| Ok(()))
    }

    /// As [`Self::run`], calling `glance` until it ends.
    pub(crate) fn run_watched(
        &mut self,
        host: &str,
        line: &str,
        mut glance: impl FnMut(&mut Screen) -> Result<()>,
    ) -> Result<String> {
        self.run_glancing(host, line, |stage| glance(stage.screen))
    }

    /// As [`Self::run_watched`], for who wants to do more meanwhile than to tell of it.
    pub(crate) fn run_glancing(
        &mut self,
        host: &str,
        line: &str,
        mut glance: impl FnMut(&mut Self) -> Result<()>,
    ) -> Result<String> {
        self.screen.command(host, line)?;
        let running = self.room.start(host, line)?;
        running.end(COMMAND_MAX, |_| glance(self))
    }

    /// Shows a command that stays, and waits until its log holds `ready`.
    pub(crate) fn stay(&mut self, host: &str, line: &str, ready: &str) -> Result<()> {
        self.screen.command(host, line)?;
        self.staying.push((format!("{host}$ {line}"), self.room.start(host, line)?));
        let (_, running) = &self.staying[self.staying.len() - 1];
        running.until_said(ready, READY_MAX)
    }

    /// Ends what was the last to be started with [`Self::stay`], as Ctrl-C would, and returns
    /// its log.
    pub(crate) fn end_last(&mut self) -> Result<String> {
        let (line, running) = self.staying.pop().context("nothing stays that could be ended")?;
        let process = running.process;
        process.signal(INTERRUPT).with_context(|| format!("cannot end `{line}`"))?;
        process.wait(READY_MAX)?;
        Ok(process.log())
    }

    /// Waits until `reached` holds.
    pub(crate) fn wait_until(
        &mut self,
        what: &str,
        mut reached: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        let begin = Instant::now();
        while !reached(self)? {
            sys::check_interrupted()?;
            ensure!(begin.elapsed() < READY_MAX, "waited {READY_MAX:?} in vain for {what}");
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// Tells what failed, and the last words of everything that stays.
    pub(crate) fn tell(&mut self, error: &anyhow::Error) -> Result<()> {
        self.screen.clear_progress()?;
        if let Err(signal) = sys::check_interrupted() {
            return Ok(self.screen.failed(&signal.to_string())?);
        }
        let text = format!("{error:#}");
        let mut lines = text.lines();
        self.screen.failed(lines.next().unwrap_or("an error without a word"))?;
        self.screen.said(&lines.collect::<Vec<_>>().join("\n"))?;
        for (line, running) in &self.staying {
            self.screen.failed(&format!("the last lines of {line}"))?;
            self.screen.said(&tail(&running.process.log()))?;
        }
        Ok(())
    }

    /// Ends what runs and removes everything.
    pub(crate) fn strike(mut self) -> Result<()> {
        let begin = Instant::now();
        while let Some((line, running)) = self.staying.pop() {
            running.process.stop().with_context(|| format!("cannot end {line}"))?;
        }
        let Self { screen, staying: _, room } = self;
        room.clear()?;
        screen.heading("Away with it")?;
        Ok(screen.done("programs ended, namespaces and files removed", Some(begin.elapsed()))?)
    }
}
