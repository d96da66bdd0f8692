//! Sites for an hour, or as long as is asked: no link drops that the network below did not.

use lab::process::Process;

use crate::ssh::{World, sshd};
use crate::support::*;

/// Between sites, in both directions.
const WAYS: [(usize, usize); 6] = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)];
/// Echoes are asked for so often, in seconds.
const EVERY_S: f64 = 0.2;

/// `WARREN_SOAK_MINUTES`, or an hour.
fn minutes() -> u64 {
    std::env::var("WARREN_SOAK_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

/// Echoes that came, and the longest time without one, in seconds.
fn read(ping: &Process) -> Result<(usize, f64)> {
    ping.wait_for(|log| log.contains("packet loss"))?;
    let log = ping.log();
    let at = |line: &str| line.strip_prefix('[')?.split_once(']')?.0.parse::<f64>().ok();
    let times: Vec<f64> =
        log.lines().filter(|line| line.contains("icmp_seq")).filter_map(at).collect();
    let longest = times.windows(2).map(|two| two[1] - two[0]).fold(0.0, f64::max);
    ensure!(times.len() > 10, "{log}");
    Ok((times.len(), longest))
}

/// Keys are renewed every five minutes meanwhile, and a stream passes between two of the sites.
#[test]
#[ignore = "soak"]
fn source_001_16_no_link_drops_that_the_network_below_did_not() -> Result<()> {
    let Some(sshd) = sshd() else { return Ok(()) };
    scene("sites43", |scene| {
        let mut world = World::new(scene, "sites43", &sshd)?;
        world.serve_with(&["--node-lifetime", "10m"])?;
        world.sites(&["apply", "--yes"])?;
        for (from, to) in WAYS {
            eventually("joined", seconds(20), || world.reaches(from, to))?;
        }
        let lasts = (minutes() * 60).to_string();
        let every = EVERY_S.to_string();
        let ping =
            |host: &Host, to: &str| host.spawn(&["ping", "-D", "-i", &every, "-w", &lasts, to]);
        let serves = world.apps[1].spawn(&["iperf3", "-s", "-1", "--forceflush"])?;
        serves.wait_for(|log| log.contains("listening"))?;
        let words =
            ["iperf3", "-c", "10.4.1.1", "-t", &lasts, "-b", "5M", "-i", "60", "--forceflush"];
        let stream = world.apps[0].spawn(&words)?;
        let mut pings = Vec::new();
        for (from, to) in WAYS {
            let below = ping(&world.gateways[from], &format!("198.51.100.{}", to + 1))?;
            pings.push((below, ping(&world.apps[from], &format!("10.4.{to}.1"))?));
        }
        for minute in 0..minutes() {
            std::thread::sleep(seconds(60));
            if minute % 10 == 9 {
                eprintln!("source_001_16: {} minutes", minute + 1);
            }
        }
        for ((from, to), (below, through)) in WAYS.iter().zip(&pings) {
            let (expected, bare) = read(below)?;
            let (came, longest) = read(through)?;
            eprintln!(
                "source_001_16 {from} to {to}: {came} echoes of {expected}, at most {longest:.2} s \
                 without one; below {bare:.2} s"
            );
            ensure!(came + 10 > expected, "{} are missing", expected - came);
            ensure!(longest < bare + 1.0, "{longest} s without an echo");
        }
        stream.wait_for(|log| log.contains("receiver"))?;
        eprintln!("{}", stream.log().lines().rev().take(4).collect::<Vec<_>>().join("\n"));
        Ok(())
    })
}
