//! A star and a tree of sites: who is joined with whom, and what passes in between.

use serde_json::Value;

use crate::proofs::status;
use crate::ssh::{SITES, World, sshd};
use crate::support::*;

impl World {
    /// Writes the site file anew, with a topology and perhaps a parent of the last site.
    fn set_topology(&self, topology: &str, parent: Option<&str>) -> Result<()> {
        let path = self.path("sites.toml");
        let text = std::fs::read_to_string(&path)?;
        let is_kept = |line: &&str| !line.starts_with("topology") && !line.starts_with("parent");
        let kept: String = text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
        let last = format!("name = \"{}\"\n", SITES[2]);
        let with = parent.map_or_else(String::new, |parent| format!("parent = \"{parent}\"\n"));
        let kept = kept.replace(&last, &format!("{last}{with}"));
        Ok(std::fs::write(path, format!("topology = \"{topology}\"\n{kept}"))?)
    }

    /// Counts what a gateway passes on between two others, and what it sends to another one itself.
    fn count(&self, gateway: usize) -> Result<()> {
        self.gateways[gateway].sh("nft add table inet seen
             nft 'add chain inet seen on { type filter hook forward priority -10; }'
             nft add rule inet seen on iifname warren0 oifname warren0 counter
             nft 'add chain inet seen out { type filter hook output priority -10; }'")?;
        for at in 1..=SITES.len() {
            self.gateways[gateway].sh(&format!(
                "nft add rule inet seen out oifname wan0 ip daddr 198.51.100.{at} udp dport != 53 \
                 counter"
            ))?;
        }
        Ok(())
    }

    /// What was counted: packets that were passed on, and datagrams to each gateway.
    fn counted(&self, gateway: usize) -> Result<Vec<u64>> {
        let told = self.gateways[gateway].sh("nft list table inet seen")?;
        let after = told.split("counter packets ").skip(1);
        let numbers = after.map(|rest| rest.split(' ').next().unwrap_or_default().parse());
        Ok(numbers.collect::<Result<_, _>>()?)
    }
}

/// Whether two gateways ever spoke with each other.
fn spoke(world: &World, from: usize, to: usize) -> Result<bool> {
    let status: Value = status(world, from)?;
    let name = format!("acme-{}-gw1", SITES[to]);
    let mut peers = status["peers"].as_array().context("peers")?.iter();
    let peer = peers.find(|peer| peer["name"] == name.as_str()).context(name)?;
    Ok(!peer["last_handshake_unix_s"].is_null() || peer["tx_bytes"] != 0)
}

/// Every site reaches every other one; the two at the ends are not joined, and what they send to
/// each other passes `hub`.
fn prove(world: &World, hub: usize, ends: [usize; 2]) -> Result<()> {
    let [one, other] = ends;
    for (from, name) in SITES.iter().enumerate() {
        for to in (0..SITES.len()).filter(|to| *to != from) {
            let what = format!("{name} reaches {}", SITES[to]);
            eventually(&what, seconds(20), || world.reaches(from, to))?;
        }
    }
    world.apps[one].sh(&format!("ping -q -c 20 -i 0.02 10.4.{other}.1"))?;
    let passed = world.counted(hub)?;
    ensure!(passed[0] >= 40, "there and back: {passed:?}");
    for (from, to) in [(one, other), (other, one)] {
        ensure!(!spoke(world, from, to)?, "{} speaks with {}", SITES[from], SITES[to]);
        ensure!(spoke(world, from, hub)?, "{} speaks with {}", SITES[from], SITES[hub]);
        let sent = world.counted(from)?;
        ensure!(sent[0] == 0 && sent[1 + to] == 0 && sent[1 + hub] > 0, "{sent:?}");
    }
    let seen = world.seen(one, other)?;
    ensure!(seen == format!("10.4.{one}.1"), "addresses stay what they are: {seen}");
    // Gateways of sites that are not joined reach each other as well, by their own addresses.
    let told = status(world, other)?;
    let at = told["self"]["addresses"][0].as_str().context("an address")?.to_owned();
    world.gateways[one].sh(&format!("ping -c 1 -W 2 {at}"))?;
    ensure!(!spoke(world, one, other)?, "that does not join them");
    let quality: Value = serde_json::from_str(&world.sites(&["quality", "--json"])?)?;
    ensure!(quality["paths"].as_array().context("paths")?.len() == 4, "{quality}");
    ensure!(world.sites(&["apply", "--yes"])?.contains("nothing is to be done"));
    Ok(())
}

/// A policy holds at both ends of a way through a hub: one direction is allowed, and no other pair.
fn prove_policy(world: &World) -> Result<()> {
    let tags = SITES.map(|site| format!("\"tag:site-{site}\": [], ")).concat();
    let rule = |src: &str, dst: &str| {
        format!("{{\"action\": \"accept\", \"src\": [\"{src}\"], \"dst\": [\"{dst}:*\"]}}")
    };
    let rules = [rule("tag:warren-sites", "tag:warren-sites"), rule("10.4.1.0/24", "10.4.2.0/24")];
    let text = format!(
        "{{\"tagOwners\": {{{tags}\"tag:warren-sites\": []}}, \"acls\": [{}]}}",
        rules.join(", ")
    );
    let path = world.path("policy.json");
    let set = |text: &str| {
        std::fs::write(&path, text)?;
        world.admin(&["policy", "set", &path.display().to_string()]).map(drop)
    };
    set(&text)?;
    eventually("others are cut", seconds(20), || !world.reaches(2, 1) && !world.reaches(0, 2))?;
    eventually("what is allowed passes", seconds(20), || world.reaches(1, 2))?;
    ensure!(!world.reaches(2, 1) && !world.reaches(0, 2), "and nothing else");
    set("{}")?;
    eventually("all is open", seconds(20), || world.reaches(2, 1) && world.reaches(0, 2))?;
    Ok(())
}

#[test]
fn source_001_6_a_star_joins_leaves_through_its_hub_and_becomes_a_mesh_again() -> Result<()> {
    let Some(sshd) = sshd() else { return Ok(()) };
    scene("sites12", |scene| {
        let world = World::new(scene, "sites12", &sshd)?;
        let before = world.settled()?;
        world.set_topology("star", None)?;
        let plan = world.sites(&["plan"])?;
        for said in ["2 links", "nice is joined with paris", "reaches other sites through paris"] {
            ensure!(plan.contains(said), "{said} in {plan}");
        }
        world.sites(&["apply", "--yes"])?;
        (0..SITES.len()).try_for_each(|gateway| world.count(gateway))?;
        prove(&world, 0, [1, 2])?;
        prove_policy(&world)?;
        ensure!(!spoke(&world, 1, 2)?, "no policy joins them");

        world.set_topology("mesh", None)?;
        let told: Value = serde_json::from_str(&world.sites(&["apply", "--yes", "--json"])?)?;
        ensure!(told["done"] == 3, "each gateway learns it: {told}");
        let passed = world.counted(0)?[0];
        eventually("leaves are joined", seconds(20), || {
            world.reaches(1, 2) && spoke(&world, 1, 2).unwrap_or(false)
        })?;
        world.apps[1].sh("ping -q -c 20 -i 0.02 10.4.2.1")?;
        ensure!(world.counted(0)?[0] <= passed + 2, "the hub passes nothing on any more");
        ensure!(world.sites(&["apply", "--yes"])?.contains("nothing is to be done"));

        (0..SITES.len()).try_for_each(|gateway| {
            world.gateways[gateway].sh("nft delete table inet seen").map(drop)
        })?;
        world.sites(&["destroy", "--yes"])?;
        ensure!(world.machines()? == before, "what is left:\n{}", world.machines()?);
        Ok(())
    })
}

#[test]
fn source_001_6_a_tree_is_a_chain_where_a_site_names_its_parent() -> Result<()> {
    let Some(sshd) = sshd() else { return Ok(()) };
    scene("sites13", |scene| {
        let world = World::new(scene, "sites13", &sshd)?;
        world.set_topology("tree", Some(SITES[1]))?;
        world.sites(&["apply", "--yes"])?;
        (0..SITES.len()).try_for_each(|gateway| world.count(gateway))?;
        prove(&world, 1, [0, 2])?;
        world.sites(&["destroy", "--yes"])?;
        Ok(())
    })
}
