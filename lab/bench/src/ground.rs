//! The ground of one measurement: new hosts and what joins them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::netns::{Host, Net};
use lab::wire::{Config, FRAMING_BYTES, Wire};
use serde::{Deserialize, Serialize};
use sim::impair::Impairment;

use crate::end::End;
use crate::scenario::Underlay;

/// Largest packet through a link; what every WireGuard takes by default on Ethernet.
pub const INNER_MTU: u32 = 1_420;
/// Largest packet on the ground.
pub const OUTER_MTU: u32 = 1_500;
/// Interface on the ground, in each host.
pub const IFNAME: &str = "outer";
/// Names of the hosts of a ring.
pub const RING: [&str; 3] = ["a", "b", "c"];
/// What the bottleneck of two flows carries.
pub const BOTTLENECK_MBIT_S: u32 = 100;
/// What may wait before it.
pub const BOTTLENECK_MS: u32 = 20;
/// The table of nftables that counts one flow before the bottleneck and behind it.
const FLOW_TABLE: &str = "warren-bench";
/// What a card sends at once: 1 ms, since it is looked after by a processor that has other work,
/// and two packets at least.
const CARD_BURST_NS: u64 = 1_000_000;
const CARD_BURST_BYTES_MIN: u64 = 4 << 10;
/// What waits before it: 1000 packets, as Linux has it.
const CARD_QUEUE_BYTES: u32 = 1_514_000;
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

/// Hosts, joined; everything is removed on drop.
#[derive(Debug)]
pub struct Ground {
    /// The hosts: traffic goes from the first to the second, in a ring from each to the next.
    pub ends: Vec<End>,
    /// The router of a bottleneck.
    router: Option<Host>,
    wire: Option<Wire>,
    shared: PathBuf,
    _net: Net,
}

/// What the wire did during a measurement, all directions together.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct WireCount {
    /// Frames that entered.
    pub offered: u64,
    /// Their bytes, Ethernet's own included.
    #[serde(default)]
    pub offered_bytes: u64,
    /// Frames that the weather took.
    #[serde(default)]
    pub lost: u64,
    /// Frames that arrived before one that entered earlier.
    #[serde(default)]
    pub reordered: u64,
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
        let (net, hosts, shared) = hosts(prefix, &RING[..2])?;
        let [a, b] = &hosts[..] else { unreachable!("two hosts were asked for") };
        let cidr = [0, 1].map(|i| format!("{}/24", outer(i)));
        let wire = match underlay {
            Underlay::Veth | Underlay::VethNoOffloads => {
                net.veth((a, IFNAME, &[&cidr[0]]), (b, IFNAME, &[&cidr[1]]))?;
                None
            }
            Underlay::Line => Some(switch(&hosts, Impairment::LINE, false, 1)?),
        };
        for host in &hosts {
            host.wait_until_ready(IFNAME)?;
            if underlay == Underlay::VethNoOffloads {
                take_offloads_off(host, IFNAME)?;
            }
        }
        let ends = ends(hosts, &shared, outer);
        Ok(Self { ends, router: None, wire, shared, _net: net })
    }

    /// Makes three hosts on a wire that is a switch: each one's frames suffer `impairment` once,
    /// where they leave it, packet by packet, or a superpacket as one where that is wanted.
    ///
    /// # Errors
    /// As [`Self::lay`].
    pub fn lay_ring(
        prefix: &str,
        impairment: Impairment,
        superpackets: bool,
        seed: u64,
    ) -> Result<Self> {
        let (net, hosts, shared) = hosts(prefix, &RING)?;
        let wire = switch(&hosts, impairment, superpackets, seed)?;
        for host in &hosts {
            host.wait_until_ready(IFNAME)?;
        }
        let ends = ends(hosts, &shared, outer);
        Ok(Self { ends, router: None, wire: Some(wire), shared, _net: net })
    }

    /// Gives each host a card that is as quick as the line, and pushes back when it is full, as a
    /// card does: whoever sends waits for it. The line alone drops what its queue has no room for.
    ///
    /// # Errors
    /// The kernel has no token bucket filter.
    pub fn add_cards(&self, rate_bps: u64) -> Result<()> {
        let burst = (rate_bps / 8 * CARD_BURST_NS / 1_000_000_000).max(CARD_BURST_BYTES_MIN);
        for end in &self.ends {
            let words = format!(
                "rate {rate_bps}bit burst {burst} limit {CARD_QUEUE_BYTES} \
                 overhead {FRAMING_BYTES}"
            );
            add_bucket(&end.host, IFNAME, &words)?;
        }
        Ok(())
    }

    /// Makes two hosts and a router between them whose ways out carry [`BOTTLENECK_MBIT_S`] with
    /// a queue of [`BOTTLENECK_MS`]; offloads are off everywhere.
    ///
    /// # Errors
    /// As [`Self::lay`]; also where the kernel has no token bucket filter.
    pub fn lay_bottleneck(prefix: &str) -> Result<Self> {
        let (net, mut hosts, shared) = hosts(prefix, &["a", "b", "r"])?;
        let address = |i: usize| format!("10.99.{}.1", i + 1);
        for (i, way_out) in ["to-a", "to-b"].into_iter().enumerate() {
            let near = format!("{}/24", address(i));
            let far = format!("10.99.{}.2/24", i + 1);
            net.veth((&hosts[i], IFNAME, &[&near]), (&hosts[2], way_out, &[&far]))?;
            take_offloads_off(&hosts[i], IFNAME)?;
            take_offloads_off(&hosts[2], way_out)?;
            hosts[i].sh(&format!("ip route add default via 10.99.{}.2", i + 1))?;
            let words =
                format!("rate {BOTTLENECK_MBIT_S}mbit burst 16kb latency {BOTTLENECK_MS}ms");
            add_bucket(&hosts[2], way_out, &words)?;
        }
        hosts[2].sh("sysctl -qw net.ipv4.ip_forward=1")?;
        let router = hosts.pop();
        let ends = ends(hosts, &shared, address);
        Ok(Self { ends, router, wire: None, shared, _net: net })
    }

    /// What the bottleneck dropped so far, both ways.
    ///
    /// # Errors
    /// Returns an error where there is none.
    pub fn bottleneck_drops(&self) -> Result<u64> {
        let text = self.router()?.run(&["tc", "-s", "qdisc"])?;
        Ok(text.lines().filter_map(dropped).sum())
    }

    /// Begins to count what of TCP to `port` of the second host comes to the bottleneck, and what
    /// has passed it. Of one flow beside others the queue itself tells nothing.
    ///
    /// # Errors
    /// There is no bottleneck, or `nft` cannot count.
    pub fn watch_flow(&self, port: u16) -> Result<()> {
        for (host, hook) in [(self.router()?, "forward"), (&self.ends[1].host, "input")] {
            let words = format!("type filter hook {hook} priority 0");
            let chain = format!("chain seen {{\n{words};\ntcp dport {port} counter\n}}");
            host.run(&["nft", &format!("table ip {FLOW_TABLE} {{\n{chain}\n}}")])
                .context("cannot count a flow with `nft`: install the package nftables")?;
        }
        Ok(())
    }

    /// Packets of the flow that is watched, which the bottleneck has dropped since.
    ///
    /// # Errors
    /// No flow is watched.
    pub fn flow_drops(&self) -> Result<u64> {
        let seen = |host: &Host| {
            let text = host.run(&["nft", "list", "table", "ip", FLOW_TABLE])?;
            counted(&text).with_context(|| format!("nft counts nothing: {text}"))
        };
        // What came before what is passed: a packet between the two is not taken for dropped.
        let came = seen(self.router()?)?;
        std::thread::sleep(Duration::from_millis(4 * u64::from(BOTTLENECK_MS)));
        Ok(came.saturating_sub(seen(&self.ends[1].host)?))
    }

    fn router(&self) -> Result<&Host> {
        self.router.as_ref().context("this ground has no bottleneck")
    }

    /// What the wire did so far, where there is one.
    #[must_use]
    pub fn wire_count(&self) -> Option<WireCount> {
        let wire = self.wire.as_ref()?;
        let mut count = WireCount { pump_cpu_s: wire.cpu_s(), ..WireCount::default() };
        for tally in wire.tallies() {
            count.offered += tally.model.offered;
            count.offered_bytes += tally.model.offered_bytes;
            count.lost += tally.model.lost;
            count.reordered += tally.model.reordered;
            count.queue_dropped += tally.model.queue_dropped;
            count.failed += tally.oversize + tally.no_room + tally.refused;
        }
        Some(count)
    }

    /// Bytes that one end has put on the wire, Ethernet's own included.
    #[must_use]
    pub fn sent_bytes(&self, end: usize) -> Option<u64> {
        let tallies = self.wire.as_ref()?.tallies();
        tallies.get(end).map(|tally| tally.model.offered_bytes)
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

impl Drop for Ground {
    fn drop(&mut self) {
        // Keys lie in it; what cannot be removed is in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.shared);
    }
}

impl WireCount {
    /// What happened from `before` until this.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            offered: self.offered.saturating_sub(before.offered),
            offered_bytes: self.offered_bytes.saturating_sub(before.offered_bytes),
            lost: self.lost.saturating_sub(before.lost),
            reordered: self.reordered.saturating_sub(before.reordered),
            queue_dropped: self.queue_dropped.saturating_sub(before.queue_dropped),
            failed: self.failed.saturating_sub(before.failed),
            pump_cpu_s: self.pump_cpu_s - before.pump_cpu_s,
        }
    }
}

/// A host's address on the ground.
fn outer(index: usize) -> String {
    format!("10.99.0.{}", index + 1)
}

/// Hosts that share one folder; the control sockets of all have one name and lie under /run.
pub(crate) fn hosts(prefix: &str, names: &[&str]) -> Result<(Net, Vec<Host>, PathBuf)> {
    let mut net = Net::new(prefix)?;
    net.give_own_run();
    let hosts = names.iter().map(|name| net.host(name)).collect::<Result<Vec<_>>>()?;
    let shared = std::env::temp_dir().join(format!("{prefix}-{}", std::process::id()));
    std::fs::create_dir_all(&shared)
        .with_context(|| format!("cannot make the folder {}", shared.display()))?;
    Ok((net, hosts, shared))
}

pub(crate) fn ends(hosts: Vec<Host>, shared: &Path, outer: impl Fn(usize) -> String) -> Vec<End> {
    let end = |(i, host)| End { host, outer: outer(i), shared: shared.to_owned() };
    hosts.into_iter().enumerate().map(end).collect()
}

/// A wire between these hosts, with their addresses on it.
fn switch(hosts: &[Host], impairment: Impairment, superpackets: bool, seed: u64) -> Result<Wire> {
    let places: Vec<(&Host, &str)> = hosts.iter().map(|host| (host, IFNAME)).collect();
    let wire = Wire::start(Config { seed, superpackets, ..Config::switch(&places, impairment) })?;
    for (i, host) in hosts.iter().enumerate() {
        host.bring_up(IFNAME, &[&format!("{}/24", outer(i))])?;
    }
    Ok(wire)
}

fn add_bucket(host: &Host, ifname: &str, words: &str) -> Result<()> {
    host.sh(&format!("tc qdisc add dev {ifname} root tbf {words}"))
        .context("the kernel has no token bucket filter (sch_tbf)")?;
    Ok(())
}

/// The number in a line of `tc -s qdisc`, `Sent 1 bytes 2 pkt (dropped 3, overlimits 4 …)`.
fn dropped(line: &str) -> Option<u64> {
    line.split_once("(dropped ")?.1.split(',').next()?.parse().ok()
}

/// The packets of the only counter in what `nft list table` prints.
fn counted(text: &str) -> Option<u64> {
    text.split_once("counter packets ")?.1.split_whitespace().next()?.parse().ok()
}

pub(crate) fn take_offloads_off(host: &Host, ifname: &str) -> Result<()> {
    for feature in OFFLOADS {
        // A feature that this kernel does not have is refused; the check of sizes decides.
        host.output(&["ethtool", "-K", ifname, feature, "off"])
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
    fn drops_of_a_queue_are_read_from_what_tc_prints() {
        let line = " Sent 100 bytes 2 pkt (dropped 17, overlimits 4 requeues 0)";
        assert_eq!(dropped(line), Some(17));
        for nonsense in ["", "dropped 3", "(dropped x,", "(dropped -1,"] {
            assert_eq!(dropped(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn packets_of_a_flow_are_read_from_what_nft_prints() {
        let text = "table ip t {\n\tchain seen {\n\t\ttype filter hook input priority filter; \
                    policy accept;\n\t\ttcp dport 5202 counter packets 34 bytes 5100\n\t}\n}\n";
        assert_eq!(counted(text), Some(34));
        for nonsense in ["", "counter", "counter packets ", "counter packets x bytes 1"] {
            assert_eq!(counted(nonsense), None, "{nonsense:?}");
        }
    }

    /// The watched flow alone is counted: a burst larger than the queue, while another passes.
    #[test]
    fn what_a_bottleneck_drops_of_one_flow_is_counted() {
        let ground = Ground::lay_bottleneck("wt-flow").unwrap();
        assert!(ground.flow_drops().is_err(), "nothing is watched");
        ground.watch_flow(5202).unwrap();
        let send = |port: u16, count: usize| {
            // To a port that nobody listens on each is answered with a reset; only these go out.
            let script = format!(
                "import socket, sys\n\
                 s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)\n\
                 head = (40000).to_bytes(2, 'big') + ({port}).to_bytes(2, 'big')\n\
                 head += bytes(8) + bytes([0x50, 0x10, 1, 0]) + bytes(4 + 1400)\n\
                 for _ in range({count}): s.sendto(head, ('{}', 0))\n",
                ground.ends[1].outer
            );
            ground.ends[0].host.run(&["python3", "-c", &script]).unwrap();
        };
        send(5202, 20);
        assert_eq!(ground.flow_drops().unwrap(), 0, "20 packets have room");
        send(5201, 2_000);
        assert!(ground.bottleneck_drops().unwrap() > 100, "2,000 have none");
        assert_eq!(ground.flow_drops().unwrap(), 0, "these were of another flow");
        let before = ground.bottleneck_drops().unwrap();
        send(5202, 2_000);
        let dropped = ground.flow_drops().unwrap();
        assert!(dropped > 100, "{dropped}");
        assert_eq!(dropped, ground.bottleneck_drops().unwrap() - before);
    }

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
