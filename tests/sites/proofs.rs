//! What source 001 wants of sites that are joined: reversal, ports, what stays inside, keys.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lab::process::Process;
use serde_json::Value;

use crate::ssh::{SITES, World, sshd};
use crate::support::*;

/// What a gateway's daemon says.
pub(crate) fn status(world: &World, gateway: usize) -> Result<Value> {
    let told = world.gateways[gateway].sh("/run/warren-bin/warren status --json")?;
    Ok(serde_json::from_str(&told)?)
}

/// How many of its echoes a `ping` lost, once it has ended.
pub(crate) fn lost_percent(ping: &Process) -> Result<f64> {
    ping.wait_for(|log| log.contains("packet loss"))?;
    let log = ping.log();
    let share = log.split(", ").find_map(|part| part.split_once("% packet loss"));
    Ok(share.context(log.clone())?.0.parse()?)
}

/// A second `apply` finds nothing to do and ends within 5 s. The quickest of three counts: what
/// else the machine does at that time is not ours.
pub(crate) fn applies_again(apply: impl Fn() -> Result<String>) -> Result<()> {
    let mut quickest = Duration::MAX;
    for _ in 0..3 {
        let begin = Instant::now();
        let told = apply()?;
        quickest = quickest.min(begin.elapsed());
        eprintln!("apply again: {:?}: {}", begin.elapsed(), told.trim());
        ensure!(told.contains("nothing is to be done"), "{told}");
        if quickest < seconds(5) {
            return Ok(());
        }
    }
    anyhow::bail!("a second apply takes {quickest:?}")
}

#[test]
fn source_001_7_either_gateway_can_begin_when_the_other_lets_nobody_in() -> Result<()> {
    let Some(sshd) = sshd() else { return Ok(()) };
    for (closed, id) in [(0, "sites7"), (1, "sites9")] {
        scene(id, |scene| {
            let world = World::new(scene, id, &sshd)?;
            // Nothing comes in that was not asked for, but for the operator.
            world.gateways[closed].sh("nft add table inet closed
                 nft 'add chain inet closed in { type filter hook input priority 0; }'
                 nft add rule inet closed in iifname wan0 ct state established,related accept
                 nft add rule inet closed in iifname wan0 tcp dport 22 accept
                 nft add rule inet closed in iifname wan0 counter drop")?;
            world.sites(&["apply", "--yes"])?;
            let what = format!("joined while {} lets nobody in", SITES[closed]);
            println!("{what}: {:?}", eventually(&what, seconds(30), || world.reaches(0, 1))?);
            eventually(&what, seconds(30), || world.reaches(1, 0))?;
            let is_direct = || {
                let _ = world.reaches(0, 1);
                status(&world, 0).is_ok_and(|status| {
                    let mut peers = status["peers"].as_array().into_iter().flatten();
                    peers.any(|p| p["name"] == "acme-lyon-gw1" && p["path"]["kind"] == "direct")
                })
            };
            eventually("without a relay", seconds(30), is_direct)?;
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn source_001_5_source_001_8_source_001_9_source_001_15_ports_keys_and_what_stays_inside()
-> Result<()> {
    let Some(sshd) = sshd() else { return Ok(()) };
    scene("sites8", |scene| {
        let world = World::new(scene, "sites8", &sshd)?;
        let before = listening(&world)?;
        world.sites(&["apply", "--yes"])?;
        eventually("joined", seconds(20), || world.reaches(0, 1))?;

        // Beside what was open before: one port of UDP, and names at the overlay's own addresses.
        let port = status(&world, 0)?["port"].as_u64().context("a port")?;
        let new: Vec<String> = listening(&world)?.difference(&before).cloned().collect();
        for socket in &new {
            let is_link = socket.starts_with("udp") && socket.ends_with(&format!(":{port}"));
            ensure!(is_link || socket.contains(" 100.64.") || socket.contains(" [fd"), "{new:?}");
        }
        ensure!(!new.is_empty(), "the link's own port is there");

        // What one machine says to another of its site enters no link: it is counted there.
        let sent = |world: &World| -> Result<u64> {
            status(world, 0)?["self"]["tx_bytes"].as_u64().context("bytes")
        };
        let idle = sent(&world)?;
        world.apps[0].sh("ping -q -f -c 2000 -s 1000 10.4.0.254")?;
        let inside = sent(&world)? - idle;
        ensure!(inside < 100_000, "2 MB inside the site, and {inside} bytes in links");
        let idle = sent(&world)?;
        world.apps[0].sh("ping -q -f -c 500 -s 1000 10.4.1.1")?;
        let between = sent(&world)? - idle;
        ensure!(between > 500_000, "the control: {between} bytes between sites");

        // What the link adds to an idle round trip, beside none, in turns; the least of each.
        let least = |host: &Host, to: &str| -> Result<f64> {
            let told = host.sh(&format!("ping -q -c 40 -i 0.02 {to} | tail -1"))?;
            let words = told.split(" = ").nth(1).and_then(|all| all.split('/').next());
            words.and_then(|word| word.parse().ok()).context(told.clone())
        };
        let mut added = f64::INFINITY;
        for _ in 0..3 {
            let beside = least(&world.gateways[0], "198.51.100.2")?;
            added = added.min(least(&world.apps[0], "10.4.1.1")? - beside);
        }
        println!("source_001_15: the link adds {added:.3} ms to an idle round trip");
        ensure!(added < 1.0, "source_001_15: {added} ms");

        // Every gateway has keys of its own.
        let mut keys = BTreeSet::new();
        for gateway in 0..SITES.len() {
            let key = status(&world, gateway)?["self"]["key"].clone();
            ensure!(keys.insert(key.to_string()), "two gateways have one key");
        }
        Ok(())
    })
}

#[test]
fn source_001_8_keys_of_gateways_rotate_under_load_and_nobody_notices() -> Result<()> {
    let Some(sshd) = sshd() else { return Ok(()) };
    scene("sites33", |scene| {
        let mut world = World::new(scene, "sites33", &sshd)?;
        world.serve_with(&["--node-lifetime", "24s"])?;
        world.sites(&["apply", "--yes"])?;
        eventually("joined", seconds(20), || world.reaches(0, 1) && world.reaches(1, 0))?;
        let keys = |world: &World| -> Result<Vec<String>> {
            [0, 1].iter().map(|at| Ok(status(world, *at)?["self"]["key"].to_string())).collect()
        };
        let mut seen = BTreeSet::from_iter(keys(&world)?);

        // A key is renewed at half of its life: twice while this goes on, at either end.
        let ping = |from: usize, to: usize| {
            let to = format!("10.4.{to}.1");
            world.apps[from].spawn(&["ping", "-q", "-i", "0.02", "-w", "30", &to])
        };
        let pings = [ping(0, 1)?, ping(1, 0)?];
        let bulk =
            world.apps[1].spawn(&["iperf3", "-s", "-1", "--forceflush", "-B", "10.4.1.1"])?;
        bulk.wait_for(|log| log.contains("listening"))?;
        let words = ["iperf3", "-c", "10.4.1.1", "-t", "30", "-b", "20M", "-J"];
        let load = world.apps[0].spawn(&words)?;
        for _ in 0..30 {
            std::thread::sleep(seconds(1));
            seen.extend(keys(&world)?);
        }
        ensure!(seen.len() >= 6, "two gateways had {} keys in 30 s", seen.len());
        for ping in &pings {
            let lost = lost_percent(ping)?;
            eprintln!("source_001_8: {} keys, {lost} % of 1,500 echoes lost", seen.len());
            ensure!(lost < 0.5, "{}", ping.log());
        }
        load.wait_for(|log| log.ends_with("}\n"))?;
        let told: Value = serde_json::from_str(&load.log())?;
        let each = told["intervals"].as_array().context("seconds of the load")?;
        let least = each.iter().filter_map(|one| one["sum"]["bits_per_second"].as_f64());
        let least = least.fold(f64::INFINITY, f64::min);
        ensure!(least > 15e6, "in one second the load had {least} bit/s");
        Ok(())
    })
}

/// Sockets that wait for strangers at the first gateway.
fn listening(world: &World) -> Result<BTreeSet<String>> {
    let text = world.gateways[0].sh("ss -Hlntu | awk '{print $1, $5}'")?;
    Ok(text.lines().map(str::to_owned).collect())
}
