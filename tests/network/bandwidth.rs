//! What a path has left, measured by the nodes themselves: on lines of 10 and 100 Mbit/s, while
//! other tests run beside it.

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
            let told = measured(lan, TRIES)?;
            ensure!(told["result"] == "range", "{told}");
            let [low, high] = ["low_bps", "high_bps"].map(|field| told[field].as_f64());
            let [low, high] = [low, high].map(|bps| bps.unwrap_or(0.0) / 1e6);
            // Of the line's rate headers of Ethernet have up to a twentieth.
            ensure!(low <= mbit && high >= mbit * 0.95, "{low} to {high} of {mbit}");
            ensure!(high <= low * 1.25, "{low} to {high} is wide");
            let cost = told["cost_bytes"].as_f64().unwrap_or(f64::MAX);
            ensure!(cost <= mbit * 1e6 / 8.0 * 10.0 * 0.1, "a tenth of ten seconds: {told}");
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

#[test]
fn source_000_5_14_one_command_measures_a_peer_and_tells_what_changed_since() -> Result<()> {
    network_alone("measure", 2, |lan| {
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        lan.reaches(0, INSIDE)?;
        lan.direct(0)?;
        let shape = |mbit: u32| {
            let shape = "tc qdisc replace dev eth0 root tbf burst 1600 limit 1mb rate";
            lan.nodes[0].host.sh(&format!("{shape} {mbit}mbit"))
        };
        let measured = |words: &[&str]| -> Result<Value> {
            let all = ["ping", "b", "--every-ms", "50", "--bandwidth", "--json"];
            Ok(serde_json::from_str(&lan.node(0, &[&all, words].concat())?)?)
        };
        shape(10)?;
        let before = measured(&["--count", "5"])?;
        ensure!(before["echoes"].as_array().is_some_and(|all| all.len() == 5), "{before}");
        ensure!(before["summary"]["lost"] == 0.0, "{before}");
        ensure!(before["summary"]["jitter_ms"].is_f64() && before["change"].is_null(), "{before}");
        let file = lan.folder.path("before.json");
        std::fs::write(&file, before.to_string())?;

        shape(5)?;
        let now = measured(&["--seconds", "1", "--against", &file])?;
        let count = now["echoes"].as_array().map_or(0, Vec::len);
        ensure!((5..=20).contains(&count), "{count} echoes in a second");
        let of = |field: &str, what: &str| now["change"][field][what].as_f64().context(now.clone());
        // A busy machine may find no range, and says why; then there is nothing to compare.
        let both = [&before, &now].map(|told| told["bandwidth"]["result"] == "range") == [true; 2];
        let why = |told: &Value| told["bandwidth"]["why"].is_string();
        ensure!(both || why(&before) || why(&now), "{before}\n{now}");
        let fields = ["rtt_ms_mean", "jitter_ms", "low_bps"];
        for field in &fields[..if both { 3 } else { 2 }] {
            let ratio = of(field, "now")? / of(field, "before")?;
            let (percent, log) = (of(field, "percent")?, of(field, "log_change")?);
            ensure!((percent - (ratio - 1.0) * 100.0).abs() < 1e-6, "{field}: {now}");
            ensure!((log - 100.0 * ratio.ln()).abs() < 1e-6, "{field}: {now}");
        }
        if both {
            // Half of the line is 69 less.
            let log = of("low_bps", "log_change")?;
            ensure!((-100.0..-40.0).contains(&log), "{log}: {now}");
        }

        let words = ["ping", "b", "--count", "2", "--against", &file];
        let said = lan.node(0, &words)?;
        ensure!(said.contains("round trip: ") && said.contains("log-change"), "{said}");
        let why = lan.node(0, &["ping", "b", "--against", "/proc/version"]);
        ensure!(why.is_err_and(|why| why.to_string().contains("no answer of `warren ping`")));
        Ok(())
    })
}
