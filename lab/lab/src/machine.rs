//! A machine: systemd as PID 1 of a host of the lab, on an overlay of this machine's own root.
//!
//! A unit's sandbox, an upgrade and a removal can be tried only under a real systemd. A machine
//! boots one in half a second, without a download: namespaces for mounts, processes, names and
//! control groups beside the host's network, and a file system whose changes are in memory. It has
//! what is installed here, and nothing of what is mounted below `/`; nothing that happens in it
//! reaches this machine. It starts `basic.target`, so no service of this machine runs in it.
//!
//! A machine is no jail: who is root in it is root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::netns::{Host, checked};
use crate::process::Process;
use crate::sys;

/// How long a boot may take, on a machine that is busy.
const BOOT: Duration = Duration::from_secs(60);
/// How often it is asked whether it is up.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// How long its processes may take to end after SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
const SYSTEMD: &str = "/lib/systemd/systemd";
/// What finds programs in a machine.
const SEARCH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A booted machine; all of it is gone on drop.
#[derive(Debug)]
pub struct Machine {
    host: Host,
    /// systemd, as this machine numbers it.
    pid: u32,
    group: PathBuf,
    _boot: Process,
}

/// What this machine lacks for machines in it; none if nothing.
#[must_use]
pub fn lacks() -> Option<&'static str> {
    if !Path::new(SYSTEMD).exists() {
        return Some("systemd");
    }
    if control_groups().is_none() {
        return Some("a cgroup2 that can be written");
    }
    None
}

/// Where control groups of version 2 are mounted, if a group can be made there.
fn control_groups() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let words = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = words.filter(|words| words.len() > 3 && words[2] == "cgroup2");
    let writable = |words: &Vec<&str>| words[3].split(',').any(|option| option == "rw");
    found.filter(writable).map(|words| PathBuf::from(words[1])).next()
}

impl Machine {
    /// Boots a machine in the network of `host`.
    ///
    /// # Errors
    /// Returns an error when this machine [lacks] something, or with what systemd said.
    pub fn boot(host: &Host) -> Result<Self> {
        let group = control_groups().context("there is no cgroup2 that can be written")?;
        let group = group.join(format!("warren-lab-{}", host.namespace()));
        // What a run that was killed left.
        let _ = remove_group(&group);
        fs::create_dir_all(&group).context("cannot make a control group")?;
        // A host sees no control groups: it stops until it is in its own.
        let mut command = host.command(&["sh", "-ec", "kill -STOP $$; exec \"$@\"", "boot"]);
        command.args(["unshare", "-m", "-p", "-u", "-i", "-C", "--fork", "--kill-child"]);
        command.args(["--propagation", "private", "sh", "-c", include_str!("machine/boot.sh")]);
        command.args(["boot", host.name(), &machine_id(host.namespace())]);
        let boot = host.spawn_command(command)?;
        wait_until_stopped(&boot)?;
        fs::write(group.join("cgroup.procs"), boot.pid().to_string())?;
        sys::kill(boot.pid() as i32, libc::SIGCONT)?;
        let mut machine = Self { host: host.clone(), pid: 0, group, _boot: boot };
        machine.wait_until_up()?;
        Ok(machine)
    }

    fn wait_until_up(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            let log = || self._boot.log();
            ensure!(self._boot.is_running(), "a machine did not boot:\n{}", log());
            ensure!(begin.elapsed() < BOOT, "a machine is not up after {BOOT:?}:\n{}", log());
            if let Some(pid) = child_of(self._boot.pid()) {
                self.pid = pid;
                let asked = self.output(&["systemctl", "is-system-running"]);
                let said = asked.map(|out| out.stdout).unwrap_or_default();
                // A service of this machine that cannot run in a guest makes it "degraded".
                if [&b"running\n"[..], b"degraded\n"].contains(&&said[..]) {
                    return Ok(());
                }
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// The host of the lab that it is.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Its root, as seen from outside; files put there are seen inside.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.pid))
    }

    /// A command that will run inside it, with no environment but `PATH`.
    #[must_use]
    pub fn command(&self, argv: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.pid.to_string(), "-a", "-r", "-w", "--", "env", "-i"]);
        command.args([SEARCH, "HOME=/root", "LC_ALL=C.UTF-8"]).args(argv);
        command
    }

    /// Runs a command in it to its end and returns all of its outcome.
    ///
    /// # Errors
    /// Returns an error when it cannot be started.
    pub fn output(&self, argv: &[&str]) -> Result<Output> {
        let mut command = self.command(argv);
        let output = command.stdin(Stdio::null()).output();
        output.with_context(|| format!("cannot run {argv:?} in {}", self.host.name()))
    }

    /// Runs a command in it to its end and returns its standard output.
    ///
    /// # Errors
    /// Returns an error with both streams when it fails.
    pub fn run(&self, argv: &[&str]) -> Result<String> {
        let output = self.output(argv)?;
        checked(&format!("{argv:?} in {}", self.host.name()), &output)
    }

    /// Runs a shell script in it, with `-e`, and returns its standard output.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn sh(&self, script: &str) -> Result<String> {
        self.run(&["sh", "-ec", script])
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Everything in it ends with its first process.
        if self.pid > 0 {
            let _ = sys::kill(self.pid as i32, libc::SIGKILL);
        }
        let begin = Instant::now();
        while remove_group(&self.group).is_err() && begin.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Waits until a program has stopped itself (proc(5), field 3 of stat).
fn wait_until_stopped(program: &Process) -> Result<()> {
    let begin = Instant::now();
    let stat = format!("/proc/{}/stat", program.pid());
    while !fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T ")) {
        ensure!(begin.elapsed() < BOOT, "a machine did not begin:\n{}", program.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The first process that `pid` started.
fn child_of(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// 128 bits in hexadecimal that are always the same for a name.
fn machine_id(name: &str) -> String {
    let hash = |seed: u64| {
        name.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    };
    format!("{:016x}{:016x}", hash(0xcbf2_9ce4_8422_2325), hash(1))
}

/// Removes a control group with all below it; a group with processes in it stays.
fn remove_group(group: &Path) -> std::io::Result<()> {
    if !group.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(group)?.flatten() {
        if entry.path().is_dir() {
            remove_group(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}
