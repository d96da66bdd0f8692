//! What a path has left, measured by the nodes themselves: on lines of 10 and 100 Mbit/s. A quick
//! line wants a machine that reads in time; a busy one finds no range there, and says so.

use super::*;

const B: usize = 1;
const INSIDE: &str = "100.64.0.2";
/// A machine that is busy with other tests may not send in time; then it says so.
const TRIES: usize = 5;

/// Measures until there is a range; what was said.
fn measured(lan: &Lan, tries: usize) -> Result<Value> {
    let mut told = Value::Null;
    for _ in 0..tries {
        told = serde_json::from_str(&lan.node(0, &["bandwidth", "b", "--json"])?)?;
        eprintln!("{told}");
        if told["result"] == "range" {
            break;
        }
    }
    Ok(told)
}

#[test]
fn source_001_10_001_11_available_bandwidth_is_measured_inside_the_session() -> Result<()> {
    network_alone("bandwidth", 2, |lan| {
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        lan.reaches(0, INSIDE)?;
        lan.direct(0)?;
        ensure!(lan.status(0)?["peers"][0]["bandwidth"].is_null(), "nobody wanted to know");
        // A bucket is as small as the line lets it be: who may send a burst has more, for a while.
        for (mbit, burst) in [(10.0, 1_600), (100.0, 4_000)] {
            let shape = format!(
                "tc qdisc replace dev eth0 root tbf rate {mbit}mbit burst {burst} limit 1mb"
            );
            lan.nodes[0].host.sh(&shape)?;
            let told = measured(lan, if mbit > 50.0 { 1 } else { TRIES })?;
            if mbit > 50.0 && told["result"] != "range" {
                ensure!(told["why"].is_string() && told["high_bps"].is_null(), "{told}");
                continue;
            }
            ensure!(told["result"] == "range", "{told}");
            let [low, high] = ["low_bps", "high_bps"].map(|field| told[field].as_f64());
            let [low, high] = [low, high].map(|bps| bps.unwrap_or(0.0) / 1e6);
            // Of the line's rate headers of Ethernet have up to a twentieth.
            ensure!(low <= mbit && high >= mbit * 0.95, "{low} to {high} of {mbit}");
            ensure!(high <= low * 1.4, "{low} to {high} is wide");
            let cost = told["cost_bytes"].as_f64().unwrap_or(f64::MAX);
            ensure!(cost <= mbit * 1e6 / 8.0 * 10.0 * 0.15, "a tenth of ten seconds: {told}");
            let status = lan.status(0)?;
            let kept = &status["peers"][0]["bandwidth"];
            ensure!(kept["low_bps"] == told["low_bps"] && kept["measuring"] == false, "{kept}");
            // Nobody repairs for what streams lose.
            let link = &status["peers"][0]["link"];
            ensure!(link["out"]["loss_before"].as_f64().unwrap_or(0.0) < 0.001, "{link}");
            let metrics = lan.node(0, &["metrics"])?;
            for name in ["low_bytes_per_second", "age_seconds", "cost_bytes"] {
                let line = format!("\nwarren_peer_available_bandwidth_{name}{{peer=\"b\"}} ");
                ensure!(metrics.contains(&line), "{name}: {metrics}");
            }
        }
        lan.nodes[0].host.sh("tc qdisc del dev eth0 root")?;
        // Who is gone tells nothing of what came.
        lan.nodes[B].host.sh("ip link set eth0 down")?;
        let told = measured(lan, 1)?;
        ensure!(told["result"] == "no-answer" || told["result"] == "no-path", "{told}");
        ensure!(told["why"].is_string() && told["low_bps"].is_null(), "{told}");
        Ok(())
    })
}
