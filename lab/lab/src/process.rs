//! A program running in a host: its log, its cost, and its certain end.
//!
//! Output of both streams goes to one file in the host's directory, so a program is never held
//! up by a reader, and the log is there to be read after a failure.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::sys;

/// How long a program may take to end after SIGTERM before SIGKILL.
const GRACE: Duration = Duration::from_secs(3);
/// How long `wait_for` waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of a log `log` returns: its last bytes.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// A program started with [`crate::netns::Host::spawn`], ended on drop: SIGTERM, three seconds,
/// SIGKILL, the last to its whole process group.
#[derive(Debug)]
pub struct Process {
    child: Mutex<Child>,
    pid: u32,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its output going to the file `log`.
    ///
    /// # Errors
    /// Returns an error when the file cannot be made or the program cannot be started.
    pub fn start(mut command: Command, log: &Path) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot open the log {}", log.display()))?;
        let both = file.try_clone().context("cannot share the log between two streams")?;
        command.stdin(Stdio::null()).stdout(file).stderr(both).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { pid: child.id(), child: Mutex::new(child), name, log: log.to_owned() })
    }

    /// The program's name, without its folder.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What the program wrote to either stream so far, at most its last 4 MiB.
    #[must_use]
    pub fn log(&self) -> String {
        let mut bytes = Vec::new();
        if let Ok(mut file) = File::open(&self.log) {
            let len = file.metadata().map_or(0, |m| m.len());
            let start = len.saturating_sub(LOG_BYTES_MAX);
            if file.seek(SeekFrom::Start(start)).is_ok() {
                // A log that cannot be read any further is given as far as it was read.
                let _ = file.take(LOG_BYTES_MAX).read_to_end(&mut bytes);
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits up to ten seconds until `ready` holds of the log.
    ///
    /// # Errors
    /// Returns an error with the log when the time is over, or the program ended before.
    pub fn wait_for(&self, ready: impl Fn(&str) -> bool) -> Result<()> {
        self.wait_for_within(PATIENCE, ready)
    }

    /// Waits up to `limit` until `ready` holds of the log.
    ///
    /// # Errors
    /// As [`Self::wait_for`].
    pub fn wait_for_within(&self, limit: Duration, ready: impl Fn(&str) -> bool) -> Result<()> {
        let start = Instant::now();
        loop {
            let ended = self.try_wait()?;
            let log = self.log();
            if ready(&log) {
                return Ok(());
            }
            if let Some(status) = ended {
                bail!("{} ended with {status} before it was ready; its log:\n{log}", self.name);
            }
            if start.elapsed() > limit {
                bail!("{} was not ready within {limit:?}; its log:\n{log}", self.name);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether the program still runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.try_wait(), Ok(None))
    }

    /// Waits up to `limit` for the program to end by itself.
    ///
    /// # Errors
    /// Returns an error when it still runs then.
    pub fn wait(&self, limit: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            if start.elapsed() > limit {
                bail!("{} still runs after {limit:?}", self.name);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends a signal, by its number.
    ///
    /// # Errors
    /// Returns an error when the program has ended.
    pub fn signal(&self, signal: i32) -> Result<()> {
        if let Some(status) = self.try_wait()? {
            bail!("{} has already ended with {status}", self.name);
        }
        sys::kill(self.pid as i32, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// Ends the program: SIGTERM, three seconds, SIGKILL.
    ///
    /// # Errors
    /// Returns an error when the program's end cannot be learned.
    pub fn stop(&self) -> Result<ExitStatus> {
        let ended = self.try_wait()?;
        let status = match ended {
            Some(status) => status,
            None => {
                sys::kill(self.pid as i32, libc::SIGTERM)?;
                match self.wait(GRACE) {
                    Ok(status) => status,
                    Err(_) => {
                        sys::kill(self.pid as i32, libc::SIGKILL)?;
                        self.child().wait()?
                    }
                }
            }
        };
        // What the program itself started and left behind shares its group.
        let _ = sys::kill(-(self.pid as i32), libc::SIGKILL);
        Ok(status)
    }

    /// Processor time used so far, user and system, in seconds; zero once it was waited for.
    #[must_use]
    pub fn cpu_s(&self) -> f64 {
        cpu_s(self.pid)
    }

    /// Resident memory in KiB, zero once the program has ended.
    #[must_use]
    pub fn rss_kib(&self) -> u64 {
        rss_kib(self.pid)
    }

    fn try_wait(&self) -> Result<Option<ExitStatus>> {
        self.child().try_wait().with_context(|| format!("cannot wait for {}", self.name))
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing can be done about a program that cannot be stopped; the host's end kills it.
        let _ = self.stop();
    }
}

/// Resident memory of process `pid` in KiB; zero if there is none.
#[must_use]
pub fn rss_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Processor time used by process `pid`, user and system, in seconds; zero if there is none.
#[must_use]
pub fn cpu_s(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may hold spaces: fields are counted from its end (proc(5)).
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let ticks: u64 = fields.split(' ').skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum();
    ticks as f64 / sys::clock_ticks()
}
