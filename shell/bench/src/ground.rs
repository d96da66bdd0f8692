//! The ground of one measurement: two new hosts and what joins them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::netns::{Host, Net};
use lab::wire::{Config, Direction, Wire};
use serde::Serialize;
use sim::impair::Impairment;

use crate::scenario::Underlay;
use crate::vpn::End;

/// Largest packet through a link; what every WireGuard takes by default on Ethernet.
pub const INNER_MTU: u32 = 1_420;
/// Largest packet on the ground.
pub const OUTER_MTU: u32 = 1_500;
/// Interface on the ground, in each host.
const IFNAME: &str = "outer";
const OUTER: [&str; 2] = ["10.99.0.1", "10.99.0.2"];
/// Everything that makes or joins packets above the MTU, for `ethtool -K`; not every kernel
/// knows each.
const OFFLOADS: &[&str] = &[
    "tso",
    "gso",
    "gro",
    "tx-udp-segmentation",
    "rx-udp-gro-forwarding",
    "rx-gro-list",
    "tx-gso-list",
];
/// Frames that a capture must have seen before it proves anything.
const CONTROL_FRAMES: u32 = 100;
/// A full packet and its Ethernet header.
const FRAME_BYTES_MAX: u32 = OUTER_MTU + 14;

/// Two hosts, joined; everything is removed on drop.
#[derive(Debug)]
pub struct Ground {
    /// The hosts: traffic goes from the first to the second.
    pub ends: [End; 2],
    wire: Option<Wire>,
    _net: Net,
}

/// What the wire did during a measurement, both directions together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WireCount {
    /// Frames that entered.
    pub offered: u64,
    /// Frames that found the line's queue full.
    pub queue_dropped: u64,
    /// Frames that the wire itself had no room for, or a device refused: should be zero.
    pub failed: u64,
    /// Processor time of the pump that moves them, seconds.
    pub pump_cpu_s: f64,
}

/// What a capture at both ends saw.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SizeCheck {
    /// Frames of a full packet's size that were waited for, to know that the capture works.
    pub full_frames: u32,
    /// Frames above the largest that a wire would take.
    pub oversize_frames: u32,
}

impl Ground {
    /// Makes it, under a prefix that nobody else uses.
    ///
    /// # Errors
    /// Returns an error without root, when the prefix is in use, or the kernel refuses.
    pub fn lay(prefix: &str, underlay: Underlay) -> Result<Self> {
        let mut net = Net::new(prefix)?;
        // The control sockets of both ends have one name and lie under /run.
        net.give_own_run();
        let hosts = [net.host("a")?, net.host("b")?];
        let [a, b] = &hosts;
        let cidr = OUTER.map(|address| format!("{address}/24"));
        let wire = match underlay {
            Underlay::Veth | Underlay::VethNoOffloads => {
                net.veth((a, IFNAME, &[&cidr[0]]), (b, IFNAME, &[&cidr[1]]))?;
                None
            }
            Underlay::Line => {
                let config = Config::between((a, IFNAME), (b, IFNAME), Impairment::LINE);
                let wire = Wire::start(config)?;
                for (host, cidr) in hosts.iter().zip(&cidr) {
                    host.bring_up(IFNAME, &[cidr])?;
                }
                Some(wire)
            }
        };
        for host in &hosts {
            host.wait_until_ready(IFNAME)?;
            if underlay == Underlay::VethNoOffloads {
                take_offloads_off(host)?;
            }
        }
        let [a, b] = hosts;
        let end = |host, index: usize| End { host, outer: OUTER[index].to_owned() };
        Ok(Self { ends: [end(a, 0), end(b, 1)], wire, _net: net })
    }

    /// What the wire did so far, where there is one.
    #[must_use]
    pub fn wire_count(&self) -> Option<WireCount> {
        let wire = self.wire.as_ref()?;
        let tallies = Direction::BOTH.map(|direction| wire.tally(direction));
        Some(WireCount {
            offered: tallies.iter().map(|tally| tally.model.offered).sum(),
            queue_dropped: tallies.iter().map(|tally| tally.model.queue_dropped).sum(),
            failed: tallies.iter().map(|t| t.oversize + t.no_room + t.refused).sum(),
            pump_cpu_s: wire.cpu_s(),
        })
    }

    /// Captures at both ends while `traffic` runs, and counts what no real wire would carry.
    ///
    /// # Errors
    /// Returns an error when the capture saw nothing, or a frame that was too large.
    pub fn check_sizes(&self, traffic: impl FnOnce() -> Result<()>) -> Result<SizeCheck> {
        let over = format!("greater {}", FRAME_BYTES_MAX + 1);
        let count = CONTROL_FRAMES.to_string();
        let mut captures = Vec::new();
        for end in &self.ends {
            let control = capture(&end.host, &["-c", &count, "greater 1000"])?;
            captures.push((control, capture(&end.host, &[&over])?));
        }
        traffic().context("the traffic for the check of sizes failed")?;
        let mut oversize_frames = 0;
        for (control, oversize) in captures {
            control
                .wait(Duration::from_secs(2))
                .with_context(|| format!("a capture saw fewer than {count} full frames"))?;
            oversize.stop()?;
            let log = oversize.log();
            oversize_frames += captured(&log)
                .with_context(|| format!("tcpdump did not say what it captured:\n{log}"))?;
        }
        ensure!(
            oversize_frames == 0,
            "{oversize_frames} frames above {FRAME_BYTES_MAX} bytes with offloads off: \
             this kernel does not take them off as asked"
        );
        Ok(SizeCheck { full_frames: 2 * CONTROL_FRAMES, oversize_frames })
    }
}

fn take_offloads_off(host: &Host) -> Result<()> {
    for feature in OFFLOADS {
        // A feature that this kernel does not have is refused; the check of sizes decides.
        host.output(&["ethtool", "-K", IFNAME, feature, "off"])
            .context("cannot run `ethtool`: install the package ethtool")?;
    }
    Ok(())
}

fn capture(host: &Host, words: &[&str]) -> Result<lab::Process> {
    let start = ["tcpdump", "-i", IFNAME, "-n", "-p", "-Z", "root", "-s", "64", "-w", "/dev/null"];
    let process = host
        .spawn(&[&start, words].concat())
        .context("cannot run `tcpdump`: install the package tcpdump")?;
    process.wait_for(|log| log.contains("listening on"))?;
    Ok(process)
}

/// The number in tcpdump's last words, `12 packets captured`.
fn captured(log: &str) -> Option<u32> {
    let line = log.lines().find(|line| line.contains(" captured"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tcpdump_captured_is_read_from_its_last_words() {
        let log = "tcpdump: listening on outer, link-type EN10MB (Ethernet)\n\
                   12 packets captured\n40 packets received by filter\n0 packets dropped\n";
        assert_eq!(captured(log), Some(12));
        assert_eq!(captured("1 packet captured\n"), Some(1));
        for nonsense in ["", "captured", "no packets captured", "-1 packets captured"] {
            assert_eq!(captured(nonsense), None, "{nonsense:?}");
        }
    }
}
