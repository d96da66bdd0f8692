//! What the namespace tests share: the program under test, hosts, daemons driven by the stock
//! `wg`, traffic, and a record of everything that is printed when a test fails.
//!
//! The program under test is `warren wg -f NAME`, or whatever `WARREN_SUT` names: a program that
//! takes `-f NAME` and serves the cross-platform control socket, such as `wireguard-go`. So a
//! test that fails can be tried against an implementation that is known to be right.
//!
//! Each test has hosts of its own under a fixed prefix (`wt-acc-…`), so that what a killed run
//! left behind is found and removed by the next; two runs at once on one machine are refused.

// Every test binary compiles this folder and uses its own part of it.
#![allow(dead_code, unreachable_pub, unused_imports)]

pub mod capture;
pub mod daemon;
pub mod figures;
pub mod flooder;
pub mod inside;
pub mod keys;
pub mod pair;
pub mod preload;
pub mod scene;
pub mod sut;
pub mod traffic;
pub mod turn;
pub mod uapi;

pub use anyhow::{Context, Result, bail, ensure};
pub use lab::netns::Host;
use lab::topology::{Lab, Plan as LabPlan, Topology};

pub use daemon::Daemon;
pub use keys::{KeyPair, preshared_key};
pub use pair::{Node, Outer, Pair, Plan};
pub use scene::{Scene, scene};
pub use sut::Sut;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where `make` puts what it builds and fetches.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target"), PathBuf::from)
}

/// Calls `check` every 10 ms until it holds, for at most `limit`; says `what` if it never does.
pub fn eventually(what: &str, limit: Duration, check: impl Fn() -> bool) -> Result<Duration> {
    let start = Instant::now();
    while !check() {
        ensure!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(start.elapsed())
}

/// Whole seconds as a duration.
pub fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// All of a host's network that a program could leave something in.
pub fn snapshot(host: &Host) -> Result<String> {
    host.sh("ip -br link | sort; ip -o addr | awk '{print $2, $3, $4}' | sort
         ip rule; ip -6 rule; nft list ruleset 2>/dev/null || true
         ip route show table all | sort; ip -6 route show table all | sed 's/expires.*//' | sort
         ss -Hlun | awk '{print $4}' | sort")
}

/// The hosts of a topology, in a lab that nobody else has: `id` is one test's.
pub fn lab_of(id: &str, topology: &str, file: &str) -> Result<Lab> {
    let mut plan = LabPlan::new(&Topology::parse(topology, Path::new(file))?)?;
    plan.name = format!("wt-acc-{id}");
    Lab::up(plan)
}
