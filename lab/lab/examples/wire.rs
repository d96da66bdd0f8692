//! Measures the impaired wire on this machine: rates both ways at once, the pump's share of a
//! core, and how late frames are. Run as root: `cargo run --release -p warren-lab --example wire`.
#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lab::netns::{Host, Net};
use lab::wire::{Config, Direction, Wire, pump};
use sim::profile;

const SECONDS: &str = "8";

fn main() -> Result<()> {
    for name in profile::PROFILES {
        let impairment = profile::named(name).context("a profile")?;
        let mut net = Net::new("wt-wire-figures")?;
        let (a, b) = (net.host("a")?, net.host("b")?);
        let wire = Wire::start(Config::between((&a, "eth0"), (&b, "eth0"), impairment))?;
        a.bring_up("eth0", &["10.99.0.1/24"])?;
        b.bring_up("eth0", &["10.99.0.2/24"])?;
        println!("== {name}");
        if name == "baseline" {
            udp_both_ways(&a, &b, &wire)?;
        }
        let ping = a.run(&["ping", "-q", "-i", "0.01", "-c", "300", "10.99.0.2"])?;
        println!(
            "{}",
            ping.lines().skip_while(|l| !l.contains("packets")).collect::<Vec<_>>().join("\n")
        );
        let before = wire.lateness();
        timed("tcp", &wire, || iperf(&a, &b, &["--bidir"]))?;
        print_lateness(&wire, &before);
    }
    Ok(())
}

fn udp_both_ways(a: &Host, b: &Host, wire: &Wire) -> Result<()> {
    // 1472 bytes of payload make packets of 1500.
    let args = ["--bidir", "-u", "-b", "960M", "-l", "1472", "--pacing-timer", "200"];
    timed("udp", wire, || iperf(a, b, &args))
}

fn timed(what: &str, wire: &Wire, work: impl FnOnce() -> Result<String>) -> Result<()> {
    std::thread::sleep(Duration::from_millis(60));
    let (start, cpu) = (Instant::now(), wire.cpu_s());
    let from = Direction::BOTH.map(|d| wire.tally(d));
    let said = work()?;
    std::thread::sleep(Duration::from_millis(60));
    let share = (wire.cpu_s() - cpu) / start.elapsed().as_secs_f64();
    println!("{what}: pump {:.0} % of a core", 100.0 * share);
    for (direction, from) in Direction::BOTH.into_iter().zip(from) {
        let to = wire.tally(direction);
        let (m, f) = (to.model, from.model);
        println!(
            "  {direction:?}: offered {} delivered {} lost {} reordered {} queue {} refused {}",
            m.offered - f.offered,
            m.delivered - f.delivered,
            m.lost - f.lost,
            m.reordered - f.reordered,
            m.queue_dropped - f.queue_dropped,
            to.refused - from.refused,
        );
    }
    println!("{said}");
    Ok(())
}

fn iperf(a: &Host, b: &Host, args: &[&str]) -> Result<String> {
    let server = b.spawn(&["iperf3", "-s", "-1", "--forceflush"])?;
    server.wait_for(|log| log.contains("listening"))?;
    let mut argv = vec!["iperf3", "-c", "10.99.0.2", "-t", SECONDS, "-f", "m"];
    argv.extend(args);
    let out = a.run(&argv)?;
    let sums: Vec<&str> =
        out.lines().filter(|l| l.contains("sender") || l.contains("receiver")).collect();
    Ok(sums.join("\n"))
}

fn print_lateness(wire: &Wire, before: &[u64]) {
    let bins: Vec<u64> = wire.lateness().iter().zip(before).map(|(now, was)| now - was).collect();
    let total: u64 = bins.iter().sum();
    let mut seen = 0;
    let mut quantiles = vec![0.5, 0.9, 0.99, 0.999].into_iter().peekable();
    for (i, bin) in bins.iter().enumerate() {
        seen += bin;
        while quantiles.peek().is_some_and(|q| seen as f64 >= q * total as f64) {
            let q = quantiles.next().unwrap_or(1.0);
            let late_us = (i as u64 + 1) * pump::LATENESS_BIN_NS / 1_000;
            println!("  lateness: {:.1} % of {total} frames within {late_us} us", q * 100.0);
        }
    }
}
