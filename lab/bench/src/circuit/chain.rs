//! The chain: client – A = wire = B – C – server, each a host, and who runs what in it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use lab::netns::{Host, Net};
use lab::wire::{Config, Wire};
use sim::impair::Impairment;

use crate::ground;

/// Where the server is reached, whatever leads there.
pub(super) const SERVER: &str = "203.0.113.9";
/// Names of the hosts; traffic goes from the first to the last.
pub(super) const NAMES: [&str; 5] = ["client", "a", "b", "c", "server"];
/// What waits before the line waits so long, as in the baseline.
const QUEUE_MS: u64 = 100;
const PACKET_BITS: u64 = 1_514 * 8;

/// The line between A and B.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Line {
    /// Megabits a second; none for a pair of interfaces that passes superpackets.
    pub(super) mbit: Option<u64>,
    /// Percent lost, each way.
    pub(super) loss_percent: u32,
}

impl Line {
    fn impairment(self, mbit: u64) -> Impairment {
        let rate_bps = mbit * 1_000_000;
        let waiting = rate_bps * QUEUE_MS / 1000 / PACKET_BITS;
        Impairment {
            rate_bps,
            loss: f64::from(self.loss_percent) / 100.0,
            limit_packets: usize::try_from(waiting.max(2)).unwrap_or(2),
            ..Impairment::LINE
        }
    }
}

/// Five hosts; everything is removed on drop.
#[derive(Debug)]
pub(super) struct Chain {
    /// Client, A, B, C, server.
    pub(super) hosts: Vec<Host>,
    /// A folder that all of them see.
    pub(super) shared: PathBuf,
    _wire: Option<Wire>,
    _net: Net,
}

impl Chain {
    /// Makes it, with a route from end to end that takes every host.
    pub(super) fn lay(prefix: &str, line: Line, seed: u64) -> Result<Self> {
        let (net, hosts, shared) = ground::hosts(prefix, &NAMES)?;
        let [client, a, b, c, server] = &hosts[..] else { unreachable!("five were asked for") };
        net.veth((client, "n0", &["10.10.1.1/24"]), (a, "p0", &["10.10.1.2/24"]))?;
        let wire = match line.mbit {
            None => {
                net.veth((a, "n0", &["10.10.2.1/24"]), (b, "p0", &["10.10.2.2/24"]))?;
                None
            }
            Some(mbit) => {
                let impairment = line.impairment(mbit);
                let config = Config { seed, ..Config::between((a, "n0"), (b, "p0"), impairment) };
                let wire = Wire::start(config)?;
                a.bring_up("n0", &["10.10.2.1/24"])?;
                b.bring_up("p0", &["10.10.2.2/24"])?;
                Some(wire)
            }
        };
        net.veth((b, "n0", &["10.10.3.1/24"]), (c, "p0", &["10.10.3.2/24"]))?;
        // The Internet is behind a router, and no network of C's.
        net.veth((c, "n0", &["203.0.113.1/32"]), (server, "p0", &["203.0.113.9/32"]))?;
        for host in &hosts {
            host.sh("sysctl -qw net.ipv4.ip_forward=1")?;
        }
        client.sh(
            "ip route add 10.10.0.0/16 via 10.10.1.2 && ip route add 203.0.113.0/24 via 10.10.1.2",
        )?;
        a.sh(
            "ip route add 10.10.3.0/24 via 10.10.2.2 && ip route add 203.0.113.0/24 via 10.10.2.2",
        )?;
        b.sh(
            "ip route add 10.10.1.0/24 via 10.10.2.1 && ip route add 203.0.113.0/24 via 10.10.3.2",
        )?;
        c.sh("ip route add 10.10.1.0/24 via 10.10.3.1 && ip route add 10.10.2.0/24 via 10.10.3.1
             ip route add default via 203.0.113.9 dev n0 onlink")?;
        server.sh("ip route add 203.0.113.1 dev p0
             ip route add 10.10.0.0/16 via 203.0.113.1 dev p0 onlink")?;
        Ok(Self { hosts, shared, _wire: wire, _net: net })
    }

    pub(super) fn client(&self) -> &Host {
        &self.hosts[0]
    }

    /// What the client's interface received so far, headers of the link included.
    pub(super) fn received_bytes(&self) -> Result<u64> {
        let said = self.client().sh("ip -j -s link show dev n0")?;
        let links: serde_json::Value = serde_json::from_str(&said)?;
        links[0]["stats64"]["rx"]["bytes"].as_u64().context("no count of bytes")
    }

    pub(super) fn server(&self) -> &Host {
        &self.hosts[4]
    }

    /// A file that all hosts see.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.shared.join(name)
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.shared);
    }
}

/// A path as a word of a shell.
pub(super) fn word(path: &Path) -> String {
    path.display().to_string()
}
