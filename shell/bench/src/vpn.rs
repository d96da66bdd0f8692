//! The contestants: how each is found, started and known to be ready.
//!
//! To add one, implement [`Vpn`] and put it into [`contestants`]. What it needs in files goes
//! into its host's own `/run`, which vanishes with the lab.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lab::Process;
use lab::netns::Host;
use lab::sys;

mod wireguard;

pub use wireguard::WireGuard;

/// Our own name among the contestants.
pub const WARREN: &str = "Warren";
/// The rival's.
pub const WIREGUARD_GO: &str = "wireguard-go";
/// The bare network's.
pub const NO_VPN: &str = "no VPN";

/// How long a contestant may take until an echo through it is answered.
const READY_MAX: Duration = Duration::from_secs(15);

/// One of the two hosts that are to be joined.
#[derive(Debug, Clone)]
pub struct End {
    /// The host.
    pub host: Host,
    /// Its address on the ground, without a mask.
    pub outer: String,
}

/// Something that joins two hosts, or leaves them as they are.
pub trait Vpn: std::fmt::Debug {
    /// Its name in every table.
    fn name(&self) -> &str;

    /// What it says its version is.
    ///
    /// # Errors
    /// Returns an error when it is not on this machine.
    fn version(&self) -> Result<String>;

    /// What someone who lacks it can do.
    fn install_hint(&self) -> &str;

    /// Starts it in both hosts and configures it; returns its processes.
    ///
    /// # Errors
    /// Returns an error when it does not start or refuses its configuration.
    fn start(&self, ends: &[End; 2]) -> Result<Vec<Process>>;

    /// The address at which one end is reached through it.
    fn address<'a>(&self, end: &'a End, index: usize) -> &'a str;

    /// Whether it carries packets.
    fn is_ready(&self, ends: &[End; 2]) -> bool {
        let to = self.address(&ends[1], 1);
        let ping = ends[0].host.output(&["ping", "-n", "-q", "-c", "1", "-W", "1", to]);
        ping.is_ok_and(|output| output.status.success())
    }
}

/// No VPN: the ground itself.
#[derive(Debug)]
pub struct NoVpn;

impl Vpn for NoVpn {
    fn name(&self) -> &str {
        NO_VPN
    }

    fn version(&self) -> Result<String> {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
        Ok(format!("Linux {}", release.context("cannot read the kernel's release")?.trim()))
    }

    fn install_hint(&self) -> &str {
        "it is always there"
    }

    fn start(&self, _ends: &[End; 2]) -> Result<Vec<Process>> {
        Ok(Vec::new())
    }

    fn address<'a>(&self, end: &'a End, _index: usize) -> &'a str {
        &end.outer
    }
}

/// Everything that a link is compared with; `warren` is the program of ours to be measured.
#[must_use]
pub fn contestants(warren: &Path) -> Vec<Box<dyn Vpn>> {
    vec![Box::new(WireGuard::warren(warren)), Box::new(WireGuard::wireguard_go()), Box::new(NoVpn)]
}

/// Waits until `vpn` carries packets.
///
/// # Errors
/// Returns an error with the logs of its processes when that takes too long, one of them ended,
/// or a signal asks this process to end.
pub fn wait_until_ready(vpn: &dyn Vpn, ends: &[End; 2], processes: &[Process]) -> Result<()> {
    let start = Instant::now();
    while !vpn.is_ready(ends) {
        sys::check_interrupted()?;
        let running = processes.iter().all(Process::is_running);
        if !running || start.elapsed() > READY_MAX {
            let logs: String = processes.iter().map(|process| process.log() + "\n").collect();
            ensure!(running, "{} ended; its logs:\n{logs}", vpn.name());
            bail!("{} carried nothing within {READY_MAX:?}; its logs:\n{logs}", vpn.name());
        }
    }
    Ok(())
}

/// Where `name` lies on PATH.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|program| program.is_file())
}

/// The first line that `program --version` prints.
fn first_version_line(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next().map(str::trim).filter(|line| !line.is_empty());
    line.map(str::to_owned)
        .with_context(|| format!("{} --version printed nothing", program.display()))
}
