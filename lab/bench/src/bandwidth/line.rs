//! The ground of one cell: a node that measures, one that is measured, a sender beside them, and a
//! router whose way to the one that is measured is the line.
//!
//! The line is a token bucket (tbf) that counts IP packets without Ethernet's header, as the answer
//! does: else what it has left would depend on how long packets are. Offloads are off everywhere,
//! so each packet passes it alone. Truth is what the router's devices counted.

use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::netns::{Host, Net};
use lab::sys;

use super::beside::{Pace, Sender};
use crate::end::End;
use crate::ground::{self, IFNAME};

/// The router's devices to the node that measures, to the other one, which is the line, and to the
/// sender beside them.
const WAYS: [&str; 3] = ["to-a", "to-b", "to-beside"];
/// Where nobody reads what others send.
const PORT: u16 = 9_999;
/// Counters of the devices in the namespace of the thread that reads them.
const DEVICES: &str = "/proc/thread-self/net/dev";
const ETHERNET_LEN: u64 = 14;
/// Bytes that a bucket holds for each Mbit/s of its line: 320 µs, which a timer is late by.
const BURST_LEN_PER_MBIT: u32 = 40;
/// And at least: a full packet has to pass.
const BURST_LEN_MIN: u32 = 1_600;
/// Threads of a flood.
const FLOODS: usize = 2;
/// Until a flood has filled the queue, and for so long it is counted.
const FILLS: Duration = Duration::from_millis(300);
const FLOODED: Duration = Duration::from_secs(2);
/// A flood has to offer so many times what passes, or the machine was slower than the line.
const OVER: f64 = 1.02;

/// Hosts and the line; everything is removed on drop.
#[derive(Debug)]
pub(super) struct Line {
    /// The node that measures, and the one that is measured.
    pub(super) ends: Vec<End>,
    beside: Host,
    router: Host,
    /// Takes what others send, and is never read.
    _sink: UdpSocket,
    shared: PathBuf,
    _net: Net,
}

/// What the router's devices have counted until a moment, bytes of IP packets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    at: Instant,
    own_bytes: u64,
    beside_bytes: u64,
    line_bytes: u64,
}

/// What they counted between two moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Passed {
    /// How long that was.
    pub(super) seconds: f64,
    /// What came from the node that measures.
    pub(super) own_bytes: u64,
    /// What came from others.
    pub(super) beside_bytes: u64,
    /// What passed the line.
    pub(super) line_bytes: u64,
}

impl Line {
    /// Makes it, of so many Mbit/s.
    ///
    /// # Errors
    /// Without root, when the prefix is in use, or the kernel refuses.
    pub(super) fn lay(prefix: &str, mbit: u32) -> Result<Self> {
        let (net, mut hosts, shared) = ground::hosts(prefix, &["a", "b", "beside", "router"])?;
        let router = hosts.pop().context("a router was asked for")?;
        router.sh("sysctl -qw net.ipv4.ip_forward=1")?;
        for (index, (host, way)) in hosts.iter().zip(WAYS).enumerate() {
            let [near, far] = [1, 2].map(|end| format!("{}/24", address(index, end)));
            net.veth((host, IFNAME, &[&near]), (&router, way, &[&far]))?;
            ground::take_offloads_off(host, IFNAME)?;
            ground::take_offloads_off(&router, way)?;
            host.sh(&format!("ip route add default via {}", address(index, 2)))?;
        }
        let burst = (mbit * BURST_LEN_PER_MBIT).max(BURST_LEN_MIN);
        let line = WAYS[1];
        router
            .sh(&format!(
                "tc qdisc add dev {line} root stab overhead -{ETHERNET_LEN} \
                 tbf rate {mbit}mbit burst {burst} limit 1mb"
            ))
            .context("the kernel has no token bucket filter (sch_tbf)")?;
        let beside = hosts.pop().context("a sender was asked for")?;
        let ends = ground::ends(hosts, &shared, |index| address(index, 1));
        let sink = sys::in_netns(&ends[1].host.path(), || UdpSocket::bind(("0.0.0.0", PORT)))
            .context("cannot enter the host that is measured")?
            .context("cannot open UDP there")?;
        Ok(Self { ends, beside, router, _sink: sink, shared, _net: net })
    }

    /// What passes it when it is full, bits of IP packets a second.
    ///
    /// # Errors
    /// This machine cannot fill it, or nothing can be sent or counted.
    pub(super) fn capacity_bps(&self) -> Result<f64> {
        let floods: Vec<Sender> =
            (0..FLOODS).map(|_| self.send(Pace::Flood)).collect::<Result<_>>()?;
        std::thread::sleep(FILLS);
        let before = self.seen()?;
        std::thread::sleep(FLOODED);
        let passed = self.seen()?.since(before);
        drop(floods);
        let Passed { seconds, beside_bytes, line_bytes, .. } = passed;
        ensure!(
            beside_bytes as f64 > line_bytes as f64 * OVER,
            "this machine cannot fill the line: of {beside_bytes} bytes {line_bytes} passed"
        );
        Ok(line_bytes as f64 * 8.0 / seconds)
    }

    /// Sends to the line from beside the node that measures, until what is given back is dropped.
    ///
    /// # Errors
    /// There is no socket or no thread for it.
    pub(super) fn send(&self, pace: Pace) -> Result<Sender> {
        let socket = sys::in_netns(&self.beside.path(), || UdpSocket::bind("0.0.0.0:0"))
            .context("cannot enter the host of the sender")?
            .context("cannot open UDP there")?;
        socket.connect((self.ends[1].outer.as_str(), PORT)).context("no way to the line")?;
        Sender::start(socket, pace)
    }

    /// What the router has counted until now.
    ///
    /// # Errors
    /// Its counters are not there.
    pub(super) fn seen(&self) -> Result<Seen> {
        let devices = sys::in_netns(&self.router.path(), || fs::read_to_string(DEVICES))
            .context("cannot enter the router")?
            .context("cannot read the router's counters")?;
        let at = Instant::now();
        let bytes = |way: usize| {
            ip_bytes(&devices, WAYS[way]).with_context(|| format!("no counters: {devices}"))
        };
        let [own_bytes, _] = bytes(0)?;
        let [_, line_bytes] = bytes(1)?;
        let [beside_bytes, _] = bytes(2)?;
        Ok(Seen { at, own_bytes, beside_bytes, line_bytes })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Keys lie in it; what cannot be removed is in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.shared);
    }
}

impl Seen {
    /// What passed from `before` until this.
    pub(super) fn since(self, before: Self) -> Passed {
        Passed {
            seconds: (self.at - before.at).as_secs_f64(),
            own_bytes: self.own_bytes.saturating_sub(before.own_bytes),
            beside_bytes: self.beside_bytes.saturating_sub(before.beside_bytes),
            line_bytes: self.line_bytes.saturating_sub(before.line_bytes),
        }
    }
}

impl Passed {
    /// What others sent, bits of IP packets a second.
    pub(super) fn beside_bps(&self) -> f64 {
        self.beside_bytes as f64 * 8.0 / self.seconds
    }
}

/// An address of a way: 1 is the host's, 2 the router's.
fn address(index: usize, end: u8) -> String {
    format!("10.96.{}.{end}", index + 1)
}

/// Bytes of the IP packets that a device received and sent, Ethernet's headers taken off.
fn ip_bytes(devices: &str, name: &str) -> Option<[u64; 2]> {
    let counts = |line: &str| {
        let rest = line.trim_start().strip_prefix(name)?.strip_prefix(':')?;
        let words = rest.split_whitespace();
        Some(words.map_while(|word| word.parse().ok()).collect::<Vec<u64>>())
    };
    let counts = devices.lines().find_map(counts)?;
    // Eight columns of what came, and then those of what went: bytes first, packets behind.
    let bytes = |at: usize| {
        let headers = counts.get(at + 1)? * ETHERNET_LEN;
        Some(counts.get(at)?.saturating_sub(headers))
    };
    Some([bytes(0)?, bytes(8)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo:       0       0    0    0    0     0          0         0        0       0    0    0
to-beside: 121400     100    0    0    0     0          0         0     1514       1    0    0
  to-b:    1000      10    0    0    0     0          0         0    60700      50    0    0
";

    #[test]
    fn a_device_counts_frames_and_its_ip_packets_are_shorter() {
        assert_eq!(ip_bytes(TEXT, "to-beside"), Some([120_000, 1_500]));
        assert_eq!(ip_bytes(TEXT, "to-b"), Some([860, 60_000]));
        assert_eq!(ip_bytes(TEXT, "to-a"), None);
        assert_eq!(ip_bytes("to-a: 1 2\n", "to-a"), None, "a line that is torn");
    }

    #[test]
    fn what_passed_is_the_difference_and_has_a_rate() {
        let at = Instant::now();
        let before = Seen { at, own_bytes: 5, beside_bytes: 1_000, line_bytes: 7 };
        let after = Seen {
            at: at + Duration::from_secs(2),
            own_bytes: 8,
            beside_bytes: 2_001_000,
            line_bytes: 9,
        };
        let passed = after.since(before);
        let expected =
            Passed { seconds: 2.0, own_bytes: 3, beside_bytes: 2_000_000, line_bytes: 2 };
        assert_eq!((passed, passed.beside_bps()), (expected, 8e6));
    }
}
