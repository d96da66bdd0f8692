//! The WireGuard and the netem of a real Linux kernel, in a guest, as judges of ours; a guest with
//! a disk, whose power is cut; and one with another processor, on which a node lives.
//!
//! Interoperation: one end is the kernel's WireGuard in a guest, the other a user-space
//! implementation on a host of the lab. Every case below runs once per implementation; a case
//! which `wireguard-go` fails too is the case's own fault: that control is a part of the soak.
//! Cases of the kernel's own test script `netns.sh` carry its numbers as threats.md A.1 counts.
//!
//! Time: a guest boots in 4 to 8 s and all cases of one implementation take about 30 s more.
//! What takes minutes is marked `#[ignore = "soak"]`.

mod arm;
mod cipher;
mod link;
mod netem;
mod power;
mod tuning;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::guest::{Guest, Nic, Options};
use lab::netns::{Host, Net};

use link::{Initiator, Link, Outer, Setup};

/// A user-space WireGuard: a program that makes the interface it is told and serves `wg`.
struct Implementation {
    /// Short, for names of interfaces and namespaces.
    name: &'static str,
    /// Program and arguments before the name of the interface.
    command: &'static [&'static str],
}

const WARREN: Implementation =
    Implementation { name: "warren", command: &[env!("CARGO_BIN_EXE_warren"), "wg", "-f"] };
const WIREGUARD_GO: Implementation =
    Implementation { name: "go", command: &["wireguard-go", "-f"] };

/// One guest and one host, joined by an Ethernet. The guest goes before the net it hangs on.
struct Bench {
    guest: Guest,
    host: Host,
    implementation: &'static Implementation,
    _net: Net,
}

impl Bench {
    fn new(implementation: &'static Implementation, suffix: &str) -> Result<Self> {
        let mut net = Net::new(&format!("wt-guest-{}{suffix}", implementation.name))?;
        let host = net.host("user")?;
        let nic = Nic {
            tap: link::TAP.to_owned(),
            host_addresses: Outer::BOTH.iter().map(|outer| outer.host_cidr()).collect(),
            guest_addresses: Outer::BOTH.iter().map(|outer| outer.guest_cidr()).collect(),
        };
        let start = Instant::now();
        let guest = Guest::start(&host, &Options::new(nic, kernel_cache()))?;
        let seconds = start.elapsed().as_secs_f64();
        eprintln!("guest with Linux {} answers after {seconds:.1} s", guest.kernel_version());
        Ok(Self { guest, host, implementation, _net: net })
    }
}

/// Runs named cases one after the other; all are run even when some fail.
#[derive(Default)]
struct Cases {
    failed: Vec<String>,
    passed: usize,
}

impl Cases {
    fn case(&mut self, name: &str, body: impl FnOnce() -> Result<()>) {
        let start = Instant::now();
        let outcome = body();
        let seconds = start.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => {
                eprintln!("  ok    {name} ({seconds:.1} s)");
                self.passed += 1;
            }
            Err(error) => {
                eprintln!("  FAIL  {name} ({seconds:.1} s): {error:#}");
                self.failed.push(name.to_owned());
            }
        }
    }

    fn finish(self) {
        let passed = self.passed;
        assert!(self.failed.is_empty(), "{passed} passed, failed: {:?}", self.failed);
        assert!(passed > 0, "no case ran");
    }
}

/// A kernel that had to be fetched stays here between runs.
fn kernel_cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-kernel")
}

#[test]
fn kernel_wireguard_and_warren() {
    interoperate(&WARREN);
}

/// The control: a case that fails here too is the case's own fault.
#[test]
#[ignore = "soak"]
fn kernel_wireguard_and_wireguard_go() {
    interoperate(&WIREGUARD_GO);
}

#[test]
#[ignore = "soak"]
fn sessions_are_replaced_by_time_guest_initiates() {
    let bench = Bench::new(&WARREN, "-old").expect("a guest");
    replaced_by_time(&bench, Initiator::Guest).expect("a session replaced without loss");
}

#[test]
#[ignore = "soak"]
fn sessions_are_replaced_by_time_host_initiates() {
    let bench = Bench::new(&WARREN, "-old").expect("a guest");
    replaced_by_time(&bench, Initiator::Host).expect("a session replaced without loss");
}

fn interoperate(implementation: &'static Implementation) {
    let bench = Bench::new(implementation, "").expect("a guest");
    let mut cases = Cases::default();
    for outer in Outer::BOTH {
        for preshared in [false, true] {
            for initiator in [Initiator::Guest, Initiator::Host, Initiator::Both] {
                let setup = Setup { outer, preshared, initiator };
                cases.case(&setup.to_string(), || traffic(&bench, setup));
            }
        }
        let setup = Setup { outer, preshared: true, initiator: Initiator::Guest };
        cases.case(&format!("roaming host, {setup}"), || host_moves(&bench, setup));
        let setup = Setup { initiator: Initiator::Host, ..setup };
        cases.case(&format!("roaming guest, {setup}"), || guest_moves(&bench, setup));
    }
    let setup = Setup { outer: Outer::V4, preshared: true, initiator: Initiator::Guest };
    cases.case("private keys replaced on both sides (netns.sh 10)", || new_keys(&bench, setup));
    cases.case("a peer forgotten and set again", || peer_set_again(&bench, setup));
    cases.case("only allowed sources pass (netns.sh 9)", || allowed_sources(&bench, setup));
    cases.case("wrong preshared key: silence", || wrong_preshared_key(&bench, setup));
    cases.case("keepalive without data (netns.sh 22)", || keepalive(&bench, setup));
    cases.finish();
}

/// Every size both ways, equal counters, and a file each way.
fn traffic(bench: &Bench, setup: Setup) -> Result<()> {
    let link = Link::up(bench, setup)?;
    link.first_contact()?;
    link.ping_all_sizes()?;
    link.handshake_is_fresh()?;
    link.counters_agree()?;
    link.fetch_both_ways()
}

/// The host's address and port change; it speaks first. netns.sh cases 7 and 8.
fn host_moves(bench: &Bench, setup: Setup) -> Result<()> {
    let link = Link::up(bench, setup)?;
    link.first_contact()?;
    let endpoint = link.move_host()?;
    link.host_pings()?;
    let learned = link.endpoint_in_guest()?;
    ensure!(learned == endpoint, "the guest sends to {learned}, the host moved to {endpoint}");
    link.guest_pings()
}

/// The guest's address and port change; it speaks first.
fn guest_moves(bench: &Bench, setup: Setup) -> Result<()> {
    let link = Link::up(bench, setup)?;
    link.first_contact()?;
    let endpoint = link.move_guest()?;
    link.guest_pings()?;
    let learned = link.endpoint_on_host()?;
    ensure!(learned == endpoint, "the host sends to {learned}, the guest moved to {endpoint}");
    link.host_pings()
}

fn new_keys(bench: &Bench, setup: Setup) -> Result<()> {
    let mut link = Link::up(bench, setup)?;
    link.first_contact()?;
    link.replace_keys()?;
    link.guest_pings()?;
    link.host_pings()
}

/// Each side in turn loses its session and starts another while the old one lives at the other.
fn peer_set_again(bench: &Bench, setup: Setup) -> Result<()> {
    let link = Link::up(bench, setup)?;
    link.first_contact()?;
    link.guest_forgets()?;
    link.guest_pings()?;
    link.host_pings()?;
    link.host_forgets()?;
    link.host_pings()?;
    link.guest_pings()
}

fn allowed_sources(bench: &Bench, setup: Setup) -> Result<()> {
    let link = Link::up(bench, setup)?;
    link.first_contact()?;
    ensure!(link.guest_pings_from_foreign_address()?, "a source that is not allowed passed");
    link.guest_pings()
}

fn wrong_preshared_key(bench: &Bench, setup: Setup) -> Result<()> {
    let link = Link::up(bench, setup)?;
    link.spoil_preshared_key()?;
    ensure!(link.guest_pings().is_err(), "a session with unequal preshared keys");
    ensure!(link.host_counts_nothing_sent_but_responses()?, "the host answered with data");
    Ok(())
}

fn keepalive(bench: &Bench, setup: Setup) -> Result<()> {
    let link = Link::up(bench, Setup { initiator: Initiator::Both, ..setup })?;
    link.host_keeps_alive()?;
    link.eventually_fresh(Duration::from_secs(8))
}

/// 130 s of ping lose nothing, though the session of the beginning is at its end after 120 s.
fn replaced_by_time(bench: &Bench, initiator: Initiator) -> Result<()> {
    let link = Link::up(bench, Setup { outer: Outer::V4, preshared: true, initiator })?;
    link.first_contact()?;
    let before = link.handshake_times()?;
    link.ping_for(Duration::from_secs(130))?;
    let after = link.handshake_times()?;
    eprintln!("handshakes at {before:?}, then at {after:?}");
    for (earlier, later) in [(before.0, after.0), (before.1, after.1)] {
        let age = later - earlier;
        ensure!((119..=129).contains(&age), "the session was replaced after {age} s, not 120 s");
    }
    Ok(())
}
