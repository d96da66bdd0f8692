//! Loads: iperf3 and ping through a link, each with a limit of time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lab::Process;
use lab::netns::Host;
use lab::sys;

use crate::iperf::Transfer;
use crate::ping;
use crate::scenario::Load;
use crate::unread::Unread;

/// Pings in one measurement.
pub const PINGS: usize = 200;
/// Between two pings; root may send them that close.
const PING_INTERVAL_S: &str = "0.005";
/// Payload of a UDP datagram.
pub const UDP_BYTES: u32 = 1_200;
const PORT: &str = "5201";
/// What a load may take beyond its own time.
const PATIENCE: Duration = Duration::from_secs(20);

/// A load's raw result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Transfer(Transfer),
    /// Round-trip times, microseconds.
    Pings(Vec<f64>),
}

/// Runs `load` from the first host to `address` at the second.
///
/// # Errors
/// Returns an error when a program is missing, fails, takes far too long, or its result is no
/// measurement; and when a signal asks this process to end.
pub(crate) fn run(hosts: [&Host; 2], address: &str, load: Load, seconds: u32) -> Result<Outcome> {
    match load {
        Load::Ping => pings(hosts[0], address).map(Outcome::Pings),
        Load::Tcp(_) | Load::Udp => transfer(hosts, address, load, seconds).map(Outcome::Transfer),
    }
}

fn transfer(hosts: [&Host; 2], address: &str, load: Load, seconds: u32) -> Result<Transfer> {
    let hint = "cannot run `iperf3`: install the package iperf3";
    let server = ["iperf3", "-s", "-1", "-B", address, "-p", PORT, "--forceflush"];
    let server = hosts[1].spawn(&server).context(hint)?;
    server.wait_for(|log| log.contains("listening"))?;
    let unread = if load == Load::Udp { Some(Unread::of(hosts[1])?) } else { None };
    let words = words(load, seconds);
    let mut argv = vec!["iperf3", "-J", "-c", address, "-p", PORT];
    argv.extend(words.iter().map(String::as_str));
    let client = hosts[0].spawn(&argv).context(hint)?;
    let limit = Duration::from_secs(seconds.into()) + PATIENCE;
    let mut transfer = Transfer::parse(&finish(&client, limit)?)?;
    if let Some(before) = unread {
        let unread = Unread::by_closed(before, Unread::of(hosts[1])?);
        transfer.unread_bytes = unread * u64::from(UDP_BYTES);
    }
    let congestion = transfer.congestion.as_deref();
    ensure!(
        load == Load::Udp || congestion == Some("cubic"),
        "iperf3 used {congestion:?} as congestion control, not CUBIC"
    );
    Ok(transfer)
}

/// What iperf3 is told about a load.
fn words(load: Load, seconds: u32) -> Vec<String> {
    let text = match load {
        Load::Udp => format!("-t {seconds} -u -b 0 -l {UDP_BYTES}"),
        Load::Tcp(streams) => format!("-t {seconds} -C cubic -P {streams}"),
        Load::Ping => String::new(),
    };
    text.split_whitespace().map(str::to_owned).collect()
}

fn pings(from: &Host, address: &str) -> Result<Vec<f64>> {
    let count = PINGS.to_string();
    let argv = ["ping", "-n", "-c", &count, "-i", PING_INTERVAL_S, "-W", "1", address];
    let ping = from.spawn(&argv).context("cannot run `ping`: install the package iputils-ping")?;
    ping::parse(&finish(&ping, PATIENCE)?, PINGS)
}

/// Waits for a program's end and returns what it printed. How it ended is in its words.
pub(crate) fn finish(process: &Process, limit: Duration) -> Result<String> {
    let start = Instant::now();
    while process.is_running() {
        sys::check_interrupted()?;
        if start.elapsed() > limit {
            bail!("it still ran after {limit:?}; it printed:\n{}", process.log());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(process.log())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iperf3_is_told_what_the_scenario_says() {
        assert_eq!(words(Load::Tcp(4), 5).join(" "), "-t 5 -C cubic -P 4");
        assert_eq!(words(Load::Udp, 1).join(" "), "-t 1 -u -b 0 -l 1200");
    }
}
