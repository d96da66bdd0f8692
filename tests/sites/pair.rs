//! A pair of gateways that share an address: one dies, and machines go on without a command.

use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::ssh::{World, sshd};
use crate::support::*;

/// The address that the pair of the first site shares.
const SHARED: &str = "10.4.0.252";
/// What source 001 wants of a failover.
const WITHIN: Duration = Duration::from_secs(5);

impl World {
    /// A gateway of the pair.
    fn of_pair(&self, at: usize) -> Result<&Host> {
        match at {
            0 => Ok(&self.gateways[0]),
            _ => self.second.as_ref().context("a second gateway"),
        }
    }

    /// Whether a gateway of the pair holds the shared address, by its own word.
    fn leads(&self, at: usize) -> bool {
        let told = self.of_pair(at).and_then(|host| {
            let told = host.sh("/run/warren-bin/warren status --json")?;
            Ok(serde_json::from_str::<Value>(&told)?)
        });
        told.is_ok_and(|told| told["shared"]["holds"] == true)
    }

    /// Which gateway of the pair leads, once it is one and machines reach each other.
    fn leader(&self) -> Result<usize> {
        eventually("one of both leads", seconds(20), || self.leads(0) != self.leads(1))?;
        eventually("joined", seconds(20), || self.reaches(0, 1) && self.reaches(1, 0))?;
        Ok(usize::from(self.leads(1)))
    }

    /// [`gap`] between the machines of the first two sites.
    fn gap(&self, what: &str, fault: impl FnOnce() -> Result<()>) -> Result<()> {
        gap(what, [(&self.apps[0], "10.4.1.1"), (&self.apps[1], "10.4.0.1")], fault)
    }
}

/// Ten pings a second from a machine, for 11 s.
fn ping(from: &Host, to: &str) -> Result<Child> {
    let words = ["ping", "-D", "-n", "-i", "0.1", "-c", "110", "-W", "1", to];
    Ok(from.command(&words).stdout(Stdio::piped()).spawn()?)
}

/// The longest time without an answer, both ways, while `fault` happens.
pub(crate) fn gap(
    what: &str,
    ways: [(&Host, &str); 2],
    fault: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let pings = ways.map(|(from, to)| ping(from, to));
    std::thread::sleep(seconds(2));
    fault()?;
    for (ping, way) in pings.into_iter().zip(["out", "in"]) {
        let told = String::from_utf8(ping?.wait_with_output()?.stdout)?;
        let times: Vec<f64> = told
            .lines()
            .filter(|line| line.contains("bytes from"))
            .filter_map(|line| line.strip_prefix('[')?.split(']').next()?.parse().ok())
            .collect();
        let longest = times.windows(2).map(|two| two[1] - two[0]).fold(0.0, f64::max);
        let count = times.len();
        eprintln!("source_001_14 {what}, {way}: {longest:.2} s without an answer, {count} answers");
        ensure!(longest < WITHIN.as_secs_f64() && count > 55, "{longest} s: {told}");
    }
    Ok(())
}

/// A connection that says a line ten times a second, for 11 s: who hears it, and who says it.
fn connection(from: &Host, to: &Host, address: &str) -> Result<[Child; 2]> {
    let listen = ["timeout", "60", "busybox", "nc", "-l", "-p", "7001"];
    // What it would say stays open: nc ends with the end of that at the other side.
    let heard = to.command(&listen).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    std::thread::sleep(Duration::from_millis(300));
    let lines = "for i in $(seq 110); do echo $i; sleep 0.1; done";
    let say = format!("{lines} | timeout 60 busybox nc {address} 7001");
    Ok([heard, from.command(&["sh", "-c", &say]).spawn()?])
}

#[test]
fn source_001_14_a_gateway_is_killed_and_machines_go_on_by_themselves() -> Result<()> {
    let Some(sshd) = sshd() else { return Ok(()) };
    scene("sites6", |scene| {
        let world = World::with(scene, "sites6", &sshd, true, false)?;
        let before = world.settled()?;
        let plan = world.sites(&["plan"])?;
        ensure!(plan.contains("the address that its gateways share"), "{plan}");
        world.sites(&["apply", "--yes"])?;
        let route = world.apps[0].sh("ip route show 10.0.0.0/8")?;
        ensure!(route.contains(&format!("via {SHARED}")), "{route}");
        let first = world.leader()?;
        let kill = || {
            let killed = world.of_pair(first)?.sh("kill -9 $(cat /run/warren-site.pid)");
            killed.map(drop)
        };
        let [heard, mut said] = connection(&world.apps[0], &world.apps[1], "10.4.1.1")?;
        world.gap("a daemon is killed", kill)?;
        said.wait()?;
        let lines = String::from_utf8(heard.wait_with_output()?.stdout)?;
        ensure!(lines.lines().count() == 110, "a connection outlives it, to its end: {lines}");
        ensure!(world.leader()? == 1 - first, "the other one leads");

        // It comes back and stands by; machines kept their route all the time.
        world.sites(&["apply", "--yes"])?;
        std::thread::sleep(seconds(4));
        ensure!(world.leader()? == 1 - first, "nobody goes back");
        ensure!(world.sites(&["apply", "--yes"])?.contains("nothing is to be done"));
        ensure!(world.apps[0].sh("ip route show 10.0.0.0/8")? == route, "the same route");
        let status: Value = serde_json::from_str(&world.sites(&["status", "--json"])?)?;
        ensure!(status["gateways"][1 - first]["leads"] == true, "{status}");
        ensure!(status["gateways"][first]["leads"] == false, "{status}");

        // And by a command, for who wants to stop a machine.
        world.sites(&["failover", "paris"])?;
        ensure!(world.leader()? == first, "the first one leads again");
        world.sites(&["destroy", "--yes"])?;
        ensure!(world.machines()? == before, "what is left:\n{}", world.machines()?);
        Ok(())
    })
}

#[test]
fn source_001_14_a_gateway_vanishes_and_machines_go_on_by_themselves() -> Result<()> {
    let Some(sshd) = sshd() else { return Ok(()) };
    scene("sites14", |scene| {
        let world = World::with(scene, "sites14", &sshd, true, false)?;
        world.sites(&["apply", "--yes"])?;
        let first = world.leader()?;
        // It loses its way to other sites and nothing else: no cable is out, and its LAN is well.
        let out = ["p0", "p9"][first];
        let lose = || world.server.sh(&format!("ip link set {out} nomaster")).map(drop);
        world.gap("a gateway loses its way out", lose)?;
        ensure!(world.leads(1 - first) && !world.leads(first), "the other one leads");
        world.server.sh(&format!("ip link set {out} master br0"))?;
        let first = world.leader()?;
        // It is gone from both networks at once and says nothing to anybody.
        let vanish = || {
            let [outside, inside] = [["p0", "lan1"], ["p9", "lan2"]][first];
            world.apps[0].sh(&format!("ip link del {inside}"))?;
            world.server.sh(&format!("ip link del {outside}")).map(drop)
        };
        world.gap("a gateway vanishes", vanish)?;
        ensure!(world.leads(1 - first), "the other one leads");
        Ok(())
    })
}
