//! The hosts of a demonstration, and commands that run in them as they are shown.
//!
//! Each host has a folder of its own in which its commands run, below one that only root can
//! enter. Every wait looks for signals, so that an interrupted demonstration ends at once.

use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use lab::sys;
use lab::topology::{Lab, Plan, Topology};
use lab::{Host, Process};

use crate::Options;
use crate::screen::Screen;

/// How long any one command may take.
const COMMAND_MAX: Duration = Duration::from_secs(180);
/// How long a program that stays may take until it is ready.
const READY_MAX: Duration = Duration::from_secs(60);
/// Between two looks at something that is awaited.
const GLANCE: Duration = Duration::from_millis(5);
/// Lines of a log that are shown after a failure.
const TAIL_LINES: usize = 12;

/// Hosts, and what runs in them.
pub(crate) struct Stage<'a> {
    pub(crate) screen: &'a mut Screen,
    /// Ended in reverse order.
    staying: Vec<(String, Process)>,
    lab: Lab,
    folder: Folder,
}

/// Where the commands of all hosts run, removed on drop.
struct Folder(PathBuf);

impl<'a> Stage<'a> {
    /// Builds the network and the folders.
    pub(crate) fn build(
        options: &Options,
        topology: &str,
        file: &str,
        screen: &'a mut Screen,
    ) -> Result<Self> {
        let begin = Instant::now();
        let topology = Topology::parse(topology, Path::new(file))?;
        let mut plan = Plan::new(&topology)?;
        plan.name.clone_from(&options.lab);
        let lab = Lab::up(plan)?;
        // Whoever has the lab's name has the folder's.
        let folder = folder_of(&options.lab);
        make_folder(&folder)?;
        let folder = Folder(folder);
        let stage = Self { screen, staying: Vec::new(), lab, folder };
        let names: Vec<String> = stage.names().map(str::to_owned).collect();
        for name in names.iter().map(String::as_str).chain(["bin"]) {
            fs::create_dir(stage.folder.0.join(name))?;
        }
        for (program, name) in [(&options.program, "warren"), (&options.laboratory, "warren-lab")] {
            symlink(program, stage.folder.0.join("bin").join(name))
                .context("cannot name the programs for their hosts")?;
        }
        stage.screen.done(
            &format!("{} network namespaces, joined by veth pairs", names.len()),
            Some(begin.elapsed()),
        )?;
        Ok(stage)
    }

    /// A host by its name.
    pub(crate) fn host(&self, name: &str) -> Result<&Host> {
        self.lab.host(name)
    }

    /// All of the hosts.
    pub(crate) const fn lab(&self) -> &Lab {
        &self.lab
    }

    /// The folder below which each host has its own.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder.0
    }

    /// The files of the hosts' namespaces.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = PathBuf> {
        self.names().filter_map(|name| Some(self.host(name).ok()?.path()))
    }

    /// The names of all hosts, routers and switches.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.lab.plan().nodes.iter().map(|node| node.name.as_str())
    }

    /// A host's first address.
    pub(crate) fn address(&self, name: &str) -> Result<IpAddr> {
        self.lab.plan().address(name).with_context(|| format!("{name} has no address"))
    }

    /// A file in the folder in which `host` runs its commands.
    pub(crate) fn file(&self, host: &str, name: &str) -> PathBuf {
        self.folder.0.join(host).join(name)
    }

    /// Runs a command to its end, without showing it, and returns what it printed.
    pub(crate) fn ask(&self, host: &str, line: &str) -> Result<String> {
        let process = self.start(host, line)?;
        let begin = Instant::now();
        while process.is_running() {
            sys::check_interrupted()?;
            ensure!(begin.elapsed() < COMMAND_MAX, "`{line}` in {host} does not end");
            std::thread::sleep(GLANCE);
        }
        let status = process.wait(GLANCE)?;
        let said = process.log();
        ensure!(status.success(), "`{line}` in {host} failed with {status}\n{}", tail(&said));
        Ok(said)
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
        self.run_reading(host, line, |stage, _| glance(stage))
    }

    /// As [`Self::run_glancing`], for who wants to read what it prints until then.
    pub(crate) fn run_reading(
        &mut self,
        host: &str,
        line: &str,
        mut glance: impl FnMut(&mut Self, &Process) -> Result<()>,
    ) -> Result<String> {
        self.screen.command(host, line)?;
        let process = self.start(host, line)?;
        let begin = Instant::now();
        while process.is_running() {
            sys::check_interrupted()?;
            ensure!(begin.elapsed() < COMMAND_MAX, "`{line}` in {host} does not end");
            glance(self, &process)?;
            std::thread::sleep(GLANCE);
        }
        let status = process.wait(GLANCE)?;
        let said = process.log();
        if !status.success() {
            // What a signal of the terminal ended is not what failed.
            sys::check_interrupted()?;
            bail!("`{line}` in {host} failed with {status}\n{}", tail(&said));
        }
        Ok(said)
    }

    /// Shows a command that stays, and waits until its log holds `ready`.
    pub(crate) fn stay(&mut self, host: &str, line: &str, ready: &str) -> Result<()> {
        self.screen.command(host, line)?;
        let process = self.start(host, line)?;
        self.staying.push((format!("{host}$ {line}"), process));
        let what = format!("`{line}` in {host} to print {ready:?}");
        self.wait_until(&what, |stage| {
            let (_, process) = &stage.staying[stage.staying.len() - 1];
            let has_ended = !process.is_running();
            let is_ready = process.log().contains(ready);
            ensure!(is_ready || !has_ended, "`{line}` in {host} ended\n{}", tail(&process.log()));
            Ok(is_ready)
        })
    }

    /// Ends what was the last to be started with [`Self::stay`], as Ctrl-C would, and returns
    /// its log.
    pub(crate) fn end_last(&mut self) -> Result<String> {
        let (line, process) = self.staying.pop().context("nothing stays that could be ended")?;
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
        for (line, process) in &self.staying {
            self.screen.failed(&format!("the last lines of {line}"))?;
            self.screen.said(&tail(&process.log()))?;
        }
        Ok(())
    }

    /// Ends what runs and removes everything.
    pub(crate) fn strike(mut self) -> Result<()> {
        let begin = Instant::now();
        while let Some((line, process)) = self.staying.pop() {
            process.stop().with_context(|| format!("cannot end {line}"))?;
        }
        let Self { screen, staying: _, lab, folder } = self;
        lab.down()?;
        remove_folder(&folder.0)?;
        screen.heading("Away with it")?;
        Ok(screen.done("programs ended, namespaces and files removed", Some(begin.elapsed()))?)
    }

    fn start(&self, host: &str, line: &str) -> Result<Process> {
        let host = self.lab.host(host)?;
        let words = words(line);
        let mut command: Command = host.command(&words);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = [self.folder.0.join("bin")].into_iter().chain(std::env::split_paths(&path));
        let path = std::env::join_paths(own.chain(["/usr/sbin", "/sbin"].map(PathBuf::from)))?;
        command.env("PATH", path).current_dir(self.folder.0.join(host.name()));
        // What is shown is what anybody gets, whatever is set here.
        for name in [
            "LOG_LEVEL",
            "WG_PROCESS_FOREGROUND",
            "http_proxy",
            "HTTPS_PROXY",
            "https_proxy",
            "ALL_PROXY",
            "all_proxy",
            "WARREN_SOCKET",
        ] {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C");
        host.spawn_command(command)
    }
}

/// SIGINT.
const INTERRUPT: i32 = 2;

/// The words of a command, or a shell that reads it where it takes one.
fn words(line: &str) -> Vec<&str> {
    if line.contains(['|', '>', '<', '&', ';', '\'', '"', '$', '*']) {
        return vec!["sh", "-ec", line];
    }
    line.split_whitespace().collect()
}

/// The last lines of a log.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// Where a demonstration of this name keeps its files.
pub(crate) fn folder_of(lab: &str) -> PathBuf {
    std::env::temp_dir().join(format!("warren-{lab}"))
}

/// Makes the folder, for root alone, after removing what a killed demonstration left there.
fn make_folder(folder: &Path) -> Result<()> {
    let what = || format!("cannot make the folder {}", folder.display());
    match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(what),
        Ok(found) => {
            let is_ours =
                found.is_dir() && found.uid() == 0 && found.permissions().mode() & 0o077 == 0;
            let why = || anyhow!("something of others is there; move it away, or set TMPDIR");
            is_ours.then_some(()).ok_or_else(why).with_context(what)?;
            remove_folder(folder)?;
        }
    }
    fs::DirBuilder::new().mode(0o700).create(folder).with_context(what)
}

fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Whoever looks for traces tells of it.
        let _ = remove_folder(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_takes_a_shell_gets_one() {
        assert_eq!(words("ping -c 3  10.70.0.2"), ["ping", "-c", "3", "10.70.0.2"]);
        assert_eq!(words("a | b"), ["sh", "-ec", "a | b"]);
        assert_eq!(words("umask 077; a"), ["sh", "-ec", "umask 077; a"]);
    }

    #[test]
    fn a_tail_is_the_end_without_empty_lines() {
        assert_eq!(tail(""), "");
        let log: String = (0..40).map(|i| format!("{i}\n\n")).collect();
        let lines = tail(&log);
        assert_eq!(lines.lines().count(), TAIL_LINES);
        assert!(lines.starts_with("28\n") && lines.ends_with("\n39"));
    }

    #[test]
    fn a_folder_of_others_is_left_alone() {
        let folder = folder_of(&format!("unit-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let error = format!("{:#}", make_folder(&folder).unwrap_err());
        assert!(error.contains("something of others"), "{error}");
        fs::remove_dir(&folder).unwrap();
        symlink("/", &folder).unwrap();
        assert!(make_folder(&folder).is_err(), "a link is not followed");
        fs::remove_file(&folder).unwrap();
        make_folder(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        remove_folder(&folder).unwrap();
        remove_folder(&folder).unwrap();
    }
}
