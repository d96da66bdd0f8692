//! A contestant at work: its processes, its addresses, and the wait until it carries packets.

use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lab::Process;
use lab::netns::Host;
use lab::sys;

use super::{Address, Daemon, End, Member, Vpn};

/// How long a program may take until it is ready to be configured.
pub const READY_MAX: Duration = Duration::from_secs(30);
/// How long an echo may take to come: after a restart some wait for timers of a minute until
/// they give up what they knew of the other.
pub const ECHO_MAX: Duration = Duration::from_secs(90);
/// How long a script around a start may take: some log in, and ask a server.
const SCRIPT_MAX: Duration = Duration::from_secs(90);
/// How long one question to a daemon may take, and a ping that ends after a second by itself.
const ASK_MAX: Duration = Duration::from_secs(15);
/// A program whose log, or any other file, becomes longer is ended: it would fill the disk.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Between two questions whether a daemon is ready.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// Between two looks whether a command has ended.
const LOOK_EVERY: Duration = Duration::from_micros(500);
/// Sends an echo each 50 ms until one is answered, for at most a second: so a lost one costs
/// little, and a long way is no obstacle.
const PING: [&str; 9] = ["ping", "-n", "-q", "-c", "1", "-w", "1", "-i", "0.05"];
/// After how long without an answer the other side sends, too.
const BOTH_AFTER: Duration = Duration::from_secs(2);
/// Largest packet of the last check, whatever the interface takes.
const FULL_MAX: usize = 1_500;
/// Most of a log that goes into an error, its last bytes.
const LOG_BYTES_MAX: usize = 4_000;

/// A VPN that runs in all hosts; it ends on drop.
#[derive(Debug)]
pub struct Running<'a> {
    name: String,
    ends: &'a [End],
    members: Vec<Member>,
    /// Those of each host, in the order of starting.
    processes: Vec<Vec<Process>>,
    addresses: Vec<String>,
    /// From before the last host's start to the first echo from there to each of the others.
    connect: Vec<Duration>,
}

impl<'a> Running<'a> {
    /// Starts `vpn` in all hosts and waits until full packets pass between all of them.
    ///
    /// # Errors
    /// Returns an error with the logs when one does not start, ends, or carries nothing in time,
    /// and when a signal asks this process to end.
    pub fn start(vpn: &dyn Vpn, ends: &'a [End]) -> Result<Self> {
        let members = vpn.prepare(ends)?;
        ensure!(members.len() == ends.len(), "{} is not prepared for every host", vpn.name());
        let mut running = Self {
            name: vpn.name().to_owned(),
            ends,
            processes: members.iter().map(|_| Vec::new()).collect(),
            addresses: vec![String::new(); ends.len()],
            members,
            connect: Vec::new(),
        };
        let last = ends.len() - 1;
        for index in 0..last {
            running.start_member(index)?;
        }
        let begin = Instant::now();
        running.start_member(last)?;
        for other in 0..last {
            running.wait_for_echo(last, other, &[])?;
            running.connect.push(begin.elapsed());
        }
        running.wait_until_full()?;
        Ok(running)
    }

    /// The address of a host through it.
    #[must_use]
    pub fn address(&self, index: usize) -> &str {
        &self.addresses[index]
    }

    /// Its interface in a host.
    #[must_use]
    pub fn ifname(&self, index: usize) -> &str {
        &self.members[index].ifname
    }

    /// All processes.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().flatten()
    }

    /// From just before the last host's start to the first echo from it to each of the others.
    #[must_use]
    pub fn connect(&self) -> &[Duration] {
        &self.connect
    }

    /// Largest packet through it, as the first host's interface has it.
    #[must_use]
    pub fn mtu(&self) -> Option<u32> {
        let path = format!("/sys/class/net/{}/mtu", self.members[0].ifname);
        self.ends[0].host.run(&["cat", &path]).ok()?.trim().parse().ok()
    }

    /// User and system time of all processes, seconds.
    #[must_use]
    pub fn cpu_s(&self) -> f64 {
        self.each_cpu_s().iter().sum()
    }

    /// User and system time of each process, seconds.
    #[must_use]
    pub fn each_cpu_s(&self) -> Vec<f64> {
        self.processes().map(Process::cpu_s).collect()
    }

    /// Resident memory of each process, KiB.
    #[must_use]
    pub fn rss_kib(&self) -> Vec<u64> {
        self.processes().map(Process::rss_kib).collect()
    }

    /// Fails when a process has ended.
    ///
    /// # Errors
    /// Returns its log.
    pub fn check(&self) -> Result<()> {
        let all = self.processes().all(Process::is_running);
        ensure!(all, "{} ended early; its logs:\n{}", self.name, self.logs());
        Ok(())
    }

    /// What all processes printed last, each under its host and its name.
    #[must_use]
    pub fn logs(&self) -> String {
        let tail = |(host, process): (&Host, &Process)| {
            let said = tail(&process.log());
            let said = said.trim_end();
            let heading = format!("{}, {}:", host.name(), process.name());
            (!said.is_empty()).then(|| format!("{heading}\n{said}\n"))
        };
        let hosts = self.ends.iter().map(|end| &end.host).zip(&self.processes);
        hosts
            .flat_map(|(host, all)| all.iter().map(move |one| (host, one)))
            .filter_map(tail)
            .collect()
    }

    /// Ends what runs in a host as a power cut would, without a word to anybody.
    ///
    /// # Errors
    /// Returns an error when a process had ended before.
    pub fn cut(&mut self, index: usize) -> Result<()> {
        for process in self.processes[index].drain(..) {
            process.signal(9)?;
            process.wait(Duration::from_secs(5))?;
        }
        Ok(())
    }

    /// Starts again what runs in a host; returns when its address is known.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_member(&mut self, index: usize) -> Result<()> {
        let end = &self.ends[index];
        let member = self.members[index].clone();
        for daemon in &member.daemons {
            if let Some(process) = launch(end, daemon, &self.name)? {
                self.processes[index].push(process);
            }
        }
        self.addresses[index] = match &member.address {
            Address::Known(address) => address.clone(),
            Address::Told(script) => {
                let limit = ASK_MAX.as_secs().to_string();
                let argv = ["timeout", "-k", "1", &limit, "sh", "-ec", script];
                end.host.run(&argv)?.trim().to_owned()
            }
        };
        Ok(())
    }

    /// Waits until an echo from one host is answered by another.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn wait_for_echo(&self, from: usize, to: usize, words: &[&str]) -> Result<()> {
        let begin = Instant::now();
        let host = &self.ends[from].host;
        let address = self.address(to);
        let ping = [&PING[..], words, &[address]].concat();
        loop {
            if succeeds(host, &ping)? {
                return Ok(());
            }
            sys::check_interrupted()?;
            self.check()?;
            if begin.elapsed() > ECHO_MAX {
                let to = self.ends[to].host.name();
                let words = words.join(" ");
                bail!(
                    "{} carried no echo {words} from {} to {to} within {ECHO_MAX:?}; \
                     its logs:\n{}",
                    self.name,
                    host.name(),
                    self.logs()
                );
            }
            if begin.elapsed() > BOTH_AFTER {
                // Some learn the way only from what comes from the other side.
                let back = [&PING[..], &[self.address(from)]].concat();
                succeeds(&self.ends[to].host, &back)?;
            }
            // A ping that fails at once, for want of a route, must not be a busy loop.
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Full packets, both ways: small ones pass through much that is broken.
    fn wait_until_full(&self) -> Result<()> {
        let mtu = self.mtu().map_or(1_280, |mtu| mtu as usize).min(FULL_MAX);
        for from in 0..self.ends.len() {
            for to in (0..self.ends.len()).filter(|to| *to != from) {
                let header = if self.address(to).contains(':') { 48 } else { 28 };
                let size = (mtu - header).to_string();
                self.wait_for_echo(from, to, &["-s", &size])?;
            }
        }
        let begin = Instant::now();
        for (i, member) in self.members.iter().enumerate().filter(|(_, m)| !m.settled.is_empty()) {
            while !succeeds(&self.ends[i].host, &["sh", "-c", &member.settled])? {
                let late = begin.elapsed() > READY_MAX;
                ensure!(!late, "{} found no direct path:\n{}", self.name, self.logs());
                for to in (0..self.ends.len()).filter(|to| *to != i) {
                    self.wait_for_echo(i, to, &[])?;
                }
            }
        }
        Ok(())
    }
}

/// The last of a log.
fn tail(log: &str) -> String {
    let mut start = log.len().saturating_sub(LOG_BYTES_MAX);
    while !log.is_char_boundary(start) {
        start += 1;
    }
    log[start..].to_owned()
}

/// Runs a shell script with `-e`, for no longer than [`SCRIPT_MAX`], and not beyond an interrupt.
fn script(host: &Host, script: &str) -> Result<()> {
    let process = host.spawn(&["sh", "-ec", script])?;
    let said = crate::load::finish(&process, SCRIPT_MAX)?;
    let status = process.wait(ASK_EVERY)?;
    ensure!(status.success(), "a script failed with {status}: {}", tail(said.trim()));
    Ok(())
}

/// Whether a command succeeds, which one that hangs does not, nor one that an interrupt ends.
fn succeeds(host: &Host, argv: &[&str]) -> Result<bool> {
    let mut command = host.command(argv);
    // A group of its own, so that what it started ends with it.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().with_context(|| format!("cannot run {argv:?}"))?;
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("a command's end")? {
            return Ok(status.success());
        }
        let interrupted = sys::check_interrupted();
        if interrupted.is_err() || begin.elapsed() > ASK_MAX {
            // One that has just ended is not there to be killed.
            let _ = sys::kill(-(child.id() as i32), 9);
            child.wait().context("a command's end")?;
            interrupted?;
            return Ok(false);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn launch(end: &End, daemon: &Daemon, name: &str) -> Result<Option<Process>> {
    let host = &end.host;
    if !daemon.before.is_empty() {
        script(host, &daemon.before).with_context(|| format!("before the start of {name}"))?;
    }
    let mut process = None;
    if !daemon.argv.is_empty() {
        let argv: Vec<&str> = daemon.argv.iter().map(String::as_str).collect();
        let mut command = host.command(&argv);
        command.envs(daemon.env.iter().cloned());
        sys::bound_files(&mut command, FILE_BYTES_MAX);
        process = Some(host.spawn_command(command)?);
    }
    let begin = Instant::now();
    while !daemon.ready.is_empty() {
        if succeeds(host, &["sh", "-c", &daemon.ready])? {
            break;
        }
        sys::check_interrupted()?;
        let log = || process.as_ref().map_or_else(String::new, |process| tail(&process.log()));
        let running = process.as_ref().is_none_or(Process::is_running);
        ensure!(running, "{name} ended at once; its log:\n{}", log());
        if begin.elapsed() > READY_MAX {
            bail!("{name} was not ready within {READY_MAX:?}; its log:\n{}", log());
        }
        std::thread::sleep(ASK_EVERY);
    }
    if !daemon.after.is_empty() {
        script(host, &daemon.after).with_context(|| format!("{name} was not configured"))?;
    }
    Ok(process)
}
