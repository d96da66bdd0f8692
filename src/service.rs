//! The service that a package brings: `warren up` starts it where no daemon runs, so that a machine
//! is joined by one command after the installation.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

const UNIT: &str = "warren.service";
/// There where systemd is the first process.
const SYSTEMD: &str = "/run/systemd/system";

/// Enables and starts the daemon's unit, for root, where systemd has one; whether it did.
///
/// # Errors
/// It did not start.
pub(crate) fn start() -> Result<bool> {
    if !Path::new(SYSTEMD).exists() || host::own_user() != 0 || !systemctl(&["cat", UNIT])? {
        return Ok(false);
    }
    let _ = writeln!(std::io::stderr(), "starting {UNIT}, now and whenever the machine does");
    let started = systemctl(&["enable", "--now", "--quiet", UNIT])?;
    ensure!(started, "{UNIT} did not start; why: journalctl -u {UNIT}");
    Ok(true)
}

fn systemctl(words: &[&str]) -> Result<bool> {
    let mut command = Command::new("systemctl");
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.status().context("cannot run systemctl")?.success())
}
