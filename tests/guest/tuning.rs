//! Source 002's follow-up in a kernel that can still do it: the hosts' TCP with RACK and tail-loss
//! probes switched off, over a netem that impairs superpackets. Linux 6.17 and later always use
//! RACK, so the settings mean little there, and the bench's `--tuning` shows it.
//!
//! In the guest two namespaces are joined by a veth pair with its offloads, netem is the root of
//! both ends, and iperf3 runs between them, once with each setting in turn.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bench::ring::sysctls;
use lab::guest::{Guest, Nic, Options};
use lab::netns::Net;
use serde_json::Value;
use sim::profile;

use super::kernel_cache;
use super::netem::words;

const TUNINGS: [&str; 3] = ["default", "reorder", "full"];

/// Source 002 has 29.6, 72.7 and 64.2 Mbit/s at medium: 2.5 and 2.2 times as much.
#[test]
fn source_002_5_17_tolerance_of_disorder_helps_the_bare_link() {
    compare(3, 4).expect("the direction of the published table");
}

/// The same for as long as the figures in docs/anomaly.md took.
#[test]
#[ignore = "four minutes: it measures TCP"]
fn source_002_5_17_by_how_much_it_helps() {
    compare(5, 10).expect("the direction of the published table");
}

fn compare(rounds: usize, seconds: u32) -> Result<()> {
    let mut net = Net::new("wt-guest-tuning")?;
    let host = net.host("quiet")?;
    let nic =
        Nic { tap: "tap0".to_owned(), host_addresses: Vec::new(), guest_addresses: Vec::new() };
    let mut options = Options::new(nic, kernel_cache());
    options.programs.push("iperf3".to_owned());
    let guest = Guest::start(&host, &options)?;
    let medium = words(&profile::named("medium").context("a profile")?);
    guest.run(&format!(
        "ip netns add a; ip netns add b
         ip link add a0 netns a type veth peer name b0 netns b
         ip -n a address add 10.1.0.1/24 dev a0; ip -n b address add 10.1.0.2/24 dev b0
         ip -n a link set a0 up; ip -n b link set b0 up; ip -n b link set lo up
         tc -n a qdisc replace dev a0 root netem {medium}
         tc -n b qdisc replace dev b0 root netem {medium}
         for host in a b; do
             ip netns exec $host sysctl -w net.ipv4.tcp_congestion_control=cubic
             ip netns exec $host sysctl -w net.ipv4.tcp_no_metrics_save=1
         done"
    ))?;
    // What a namespace has of its own before anything is set.
    let names = sysctls("full").iter().filter_map(|setting| setting.split('=').next());
    let read =
        names.map(|name| Ok((name, guest.run(&format!("ip netns exec a sysctl -n {name}"))?)));
    let untouched: Vec<(&str, String)> = read.collect::<Result<_>>()?;
    let mut rates = [const { Vec::new() }; TUNINGS.len()];
    for round in 0..rounds {
        for (tuning, rates) in TUNINGS.iter().zip(&mut rates) {
            let before = untouched.iter().map(|(name, value)| format!("{name}={}", value.trim()));
            let settings: Vec<String> =
                before.chain(sysctls(tuning).iter().map(|&setting| setting.to_owned())).collect();
            let mbit_s = stream(&guest, &settings, seconds)?;
            eprintln!("round {round}, {tuning}: {mbit_s:.1} Mbit/s");
            rates.push(mbit_s);
        }
    }
    let medians = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rounds / 2]
    });
    eprintln!("Linux {}, medium, Mbit/s: {TUNINGS:?} {medians:.1?}", guest.kernel_version());
    for (tuning, median) in TUNINGS.iter().zip(medians).skip(1) {
        ensure!(median > 1.3 * medians[0], "{tuning}: {median:.1}, without {:.1}", medians[0]);
    }
    Ok(())
}

/// One stream from the first namespace to the second under these settings, Mbit/s that arrived.
fn stream(guest: &Guest, settings: &[String], seconds: u32) -> Result<f64> {
    let set = |setting: &String| {
        format!("for host in a b; do ip netns exec $host sysctl -w '{setting}' > /dev/null; done\n")
    };
    let set: String = settings.iter().map(set).collect();
    let script = format!(
        "set -e\n{set}ip netns exec b iperf3 -s -1 > /run/served &
         sleep 1
         ip netns exec a iperf3 -J -c 10.1.0.2 -t {seconds} -C cubic
         wait"
    );
    let output = guest.output(&script, Duration::from_secs(u64::from(seconds) + 30))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&text).with_context(|| format!("iperf3: {text}"))?;
    let rate = &report["end"]["sum_received"]["bits_per_second"];
    Ok(rate.as_f64().with_context(|| format!("iperf3: {}", report["error"]))? / 1e6)
}
