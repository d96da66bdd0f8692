//! A star of sites of which one is at AWS: at its edge, and as its hub. Nobody logs into that one's
//! gateway, so the server tells it its place.

use std::path::Path;

use serde_json::{Value, json};

use crate::aws::{Cloud, PUBLIC, moto};
use crate::proofs::status;
use crate::ssh::{self, World};
use crate::support::*;

/// A machine of each site: of paris and lyon, by `ssh`, and of the cloud.
const MACHINES: [&str; 3] = ["10.4.0.1", "10.4.1.1", "10.1.0.10"];
/// Where the world finds their gateways.
const GATEWAYS: [&str; 3] = ["198.51.100.1", "198.51.100.2", PUBLIC];

struct Star<'w> {
    world: &'w World,
    cloud: Cloud<'w>,
    /// What the file says before its sites, and what of each of them.
    head: String,
    sites: [String; 3],
}

impl<'w> Star<'w> {
    fn open(scene: &Scene, world: &'w World, python: &Path) -> Result<Self> {
        let cloud = Cloud::open(scene, world, python)?;
        let text = std::fs::read_to_string(world.path("sites.toml"))?;
        let parts: Vec<&str> = text.split("[[site]]\n").collect();
        ensure!(parts.len() == 3, "a head, paris and the cloud: {text}");
        let sites = [parts[1].to_owned(), parts[1].replace("paris", "lyon"), parts[2].to_owned()];
        Ok(Self { world, cloud, head: parts[0].to_owned(), sites })
    }

    /// Writes the file with a topology and the sites in this order.
    fn set(&self, topology: &str, order: [usize; 3]) -> Result<()> {
        let sites = order.map(|at| format!("[[site]]\n{}", self.sites[at])).concat();
        let text = format!("topology = \"{topology}\"\n{}{sites}", self.head);
        Ok(std::fs::write(self.world.path("sites.toml"), text)?)
    }

    fn gateway(&self, at: usize) -> &Host {
        if at == 2 { &self.cloud.gateway } else { &self.world.gateways[at] }
    }

    fn machine(&self, at: usize) -> &Host {
        if at == 2 { &self.cloud.machine } else { &self.world.apps[at] }
    }

    /// Applies the file, and sees that everybody reaches everybody: the steps that were done.
    fn apply(&self) -> Result<Vec<Value>> {
        let told = self.cloud.booting(&["apply", "--yes", "--json"])?;
        self.cloud.materialise()?;
        for [from, to] in [[0, 1], [1, 0], [0, 2], [2, 0], [1, 2], [2, 1]] {
            let ping = format!("ping -c 1 -W 0.5 {}", MACHINES[to]);
            let what = format!("{} reaches {}", MACHINES[from], MACHINES[to]);
            eventually(&what, seconds(30), || self.machine(from).sh(&ping).is_ok())?;
        }
        ensure!(self.cloud.sites(&["apply", "--yes"])?.contains("nothing is to be done"));
        let told: Value = serde_json::from_str(&told)?;
        Ok(told["steps"].as_array().cloned().unwrap_or_default())
    }

    /// Counts what each gateway passes on between two others, and what it sends to each itself.
    fn count(&self) -> Result<()> {
        for at in 0..3 {
            self.gateway(at).sh("nft add table inet seen
                 nft 'add chain inet seen on { type filter hook forward priority -10; }'
                 nft add rule inet seen on iifname warren0 oifname warren0 counter
                 nft 'add chain inet seen out { type filter hook output priority -10; }'")?;
            for to in GATEWAYS {
                self.gateway(at).sh(&format!(
                    "nft add rule inet seen out ip daddr {to} udp dport != 53 counter"
                ))?;
            }
        }
        Ok(())
    }

    /// Of each gateway the packets that it passed on, and the datagrams that it sent to each.
    fn counted(&self) -> Result<Vec<Vec<u64>>> {
        let read = |at: usize| -> Result<Vec<u64>> {
            let told = self.gateway(at).sh("nft list table inet seen")?;
            let after = told.split("counter packets ").skip(1);
            let numbers = after.map(|rest| rest.split(' ').next().unwrap_or_default().parse());
            Ok(numbers.collect::<Result<Vec<u64>, _>>()?)
        };
        (0..3).map(read).collect()
    }

    /// What was counted more while one site's machine was asked twenty times by another's.
    fn more(&self, from: usize, to: usize) -> Result<Vec<Vec<u64>>> {
        let before = self.counted()?;
        self.machine(from).sh(&format!("ping -q -c 20 -i 0.02 {}", MACHINES[to]))?;
        let mut now = self.counted()?;
        for (after, count) in now.iter_mut().flatten().zip(before.iter().flatten()) {
            *after -= count;
        }
        Ok(now)
    }

    /// What the other two send each other passes `hub`, and nothing goes beside it.
    fn prove(&self, hub: usize) -> Result<()> {
        let ends: Vec<usize> = (0..3).filter(|at| *at != hub).collect();
        let more = || self.more(ends[0], ends[1]);
        let is_right = |more: &[Vec<u64>]| {
            let beside = |end: usize, other: usize| more[end][0] + more[end][1 + other];
            let through = |end: usize| more[end][1 + hub] > 0;
            more[hub][0] >= 40
                && through(ends[0])
                && through(ends[1])
                && beside(ends[0], ends[1]) + beside(ends[1], ends[0]) == 0
        };
        let what = format!("the gateway {} is between the others", GATEWAYS[hub]);
        eventually(&what, seconds(20), || more().is_ok_and(|more| is_right(&more)))?;
        let last = more()?;
        ensure!(is_right(&last), "{what}, and stays so: {last:?}");
        Ok(())
    }
}

/// The kinds of steps, and whose they were.
fn kinds(steps: &[Value]) -> Vec<String> {
    let word = |step: &Value| format!("{} {} {}", step["action"], step["site"], step["kind"]);
    steps.iter().map(|step| word(step).replace('"', "")).collect()
}

#[test]
fn source_001_6_a_site_at_aws_is_the_edge_of_a_star_then_its_hub_then_of_a_mesh() -> Result<()> {
    let (Some(sshd), Some(python)) = (ssh::sshd(), moto()) else { return Ok(()) };
    scene("sites40", |scene| {
        let world = World::new(scene, "sites40", &sshd)?;
        let star = Star::open(scene, &world, &python)?;
        let before = star.cloud.census()?;
        star.set("star", [0, 1, 2])?;
        let plan: Value = serde_json::from_str(&star.cloud.sites(&["plan", "--json"])?)?;
        ensure!(plan["unable"] == json!([]), "{plan}");
        star.apply()?;
        star.count()?;
        star.prove(0)?;
        let told = status(&world, 1)?;
        let mut peers = told["peers"].as_array().context("peers")?.iter();
        let edge = peers.find(|peer| peer["name"] == "acme-cloud-gw1").context("the edge")?;
        let is_silent = edge["last_handshake_unix_s"].is_null() && edge["tx_bytes"] == 0;
        ensure!(is_silent, "the edges never spoke: {edge}");
        let quality: Value = serde_json::from_str(&star.cloud.sites(&["quality", "--json"])?)?;
        ensure!(quality["paths"].as_array().context("paths")?.len() == 3, "{quality}");

        // Another topology of what stands: each gateway learns it, and no machine is made again.
        let all = ["change lyon member", "change paris member", "change cloud approval"];
        star.set("star", [2, 0, 1])?;
        let steps = kinds(&star.apply()?);
        ensure!(steps == all, "{steps:?}");
        star.prove(2)?;

        star.set("mesh", [0, 1, 2])?;
        let steps = kinds(&star.apply()?);
        ensure!(steps == all, "{steps:?}");
        let joined = || star.more(0, 1).is_ok_and(|m| m[2][0] == 0 && m[0][2] > 0 && m[1][1] > 0);
        eventually("paris and lyon are joined", seconds(20), joined)?;

        star.cloud.sites(&["destroy", "--yes"])?;
        ensure!(star.cloud.census()? == before, "what is left: {}", star.cloud.census()?);
        ensure!(world.admin(&["node", "list"])?.lines().count() == 1, "no node is left");
        Ok(())
    })
}
