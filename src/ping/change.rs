//! `warren ping --against FILE`: what changed since an earlier one, in percent and as log-change.
//!
//! A log-change is 100 times the natural logarithm of the ratio, as source 000 has it: half and
//! double are equally far from none, and changes of several steps add up.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

/// What is compared: its place in the answer, what it is called, its unit, and how many of what the
/// answer has are one of that unit.
const COMPARED: [(&str, &str, &str, f64); 4] = [
    ("/summary/rtt_ms_mean", "round trip", "ms", 1.0),
    ("/summary/jitter_ms", "jitter", "ms", 1.0),
    ("/summary/lost", "lost", "%", 0.01),
    ("/bandwidth/low_bps", "bandwidth, at least", "Mbit/s", 1e6),
];

/// An earlier answer of `warren ping --json`.
pub(super) fn read(path: &Path) -> Result<Value> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let earlier: Value = serde_json::from_str(&text).unwrap_or_default();
    ensure!(
        earlier["summary"]["sent"].is_u64(),
        "{} is no answer of `warren ping`: make one with `warren ping PEER --json > {0}`",
        path.display()
    );
    Ok(earlier)
}

/// What both answers have, before and now.
pub(super) fn between(earlier: &Value, now: &Value) -> Value {
    let mut all = Map::new();
    for (place, ..) in COMPARED {
        let [before, now] = [earlier, now].map(|answer| answer.pointer(place)?.as_f64());
        let (Some(before), Some(now)) = (before, now) else { continue };
        // Of nothing there is no share.
        let ratio = (before > 0.0 && now > 0.0).then_some(now / before);
        let name = place.rsplit('/').next().unwrap_or_default();
        let percent = (before > 0.0).then_some((now / before - 1.0) * 100.0);
        all.insert(
            name.to_owned(),
            json!({ "before": before, "now": now, "percent": percent,
                    "log_change": ratio.map(|ratio| 100.0 * ratio.ln()) }),
        );
    }
    Value::Object(all)
}

/// A line for each.
pub(super) fn lines(change: &Value) -> String {
    let mut lines = String::new();
    for (place, called, unit, one) in COMPARED {
        let change = &change[place.rsplit('/').next().unwrap_or_default()];
        let of = |field: &str| change[field].as_f64();
        let (Some(before), Some(now)) = (of("before"), of("now")) else { continue };
        lines += &format!("{called}: {:.1} {unit} before, {:.1} now", before / one, now / one);
        if let Some(percent) = of("percent") {
            lines += &format!(", {percent:+.1} %");
        }
        if let Some(log) = of("log_change") {
            lines += &format!(", log-change {log:+.1}");
        }
        lines += "\n";
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(rtt: f64, lost: f64, bps: Option<f64>) -> Value {
        json!({ "summary": { "sent": 4, "rtt_ms_mean": rtt, "jitter_ms": null, "lost": lost },
                "bandwidth": bps.map(|bps| json!({ "low_bps": bps })) })
    }

    #[test]
    fn source_000_5_14_a_change_is_told_in_percent_and_as_log_change() {
        // Source 000: what falls to 62.98 % of itself has a log-change of −46.23.
        let change = between(&answer(100.0, 0.0, Some(1e7)), &answer(62.98, 0.25, Some(2e7)));
        let log = change["rtt_ms_mean"]["log_change"].as_f64().unwrap();
        assert!((log + 46.23).abs() < 0.01, "{log}");
        assert!((change["rtt_ms_mean"]["percent"].as_f64().unwrap() + 37.02).abs() < 0.01);
        assert!(change["lost"]["percent"].is_null() && change["lost"]["log_change"].is_null());
        assert!(change["jitter_ms"].is_null(), "one of them has none");
        assert_eq!(
            lines(&change),
            "round trip: 100.0 ms before, 63.0 now, -37.0 %, log-change -46.2\n\
             lost: 0.0 % before, 25.0 now\n\
             bandwidth, at least: 10.0 Mbit/s before, 20.0 now, +100.0 %, log-change +69.3\n"
        );
        let gone = between(&answer(1.0, 0.5, None), &answer(1.0, 0.0, None));
        assert_eq!(gone["lost"]["percent"], -100.0);
        assert!(gone["lost"]["log_change"].is_null(), "of nothing there is no logarithm");
    }

    #[test]
    fn a_file_that_is_no_earlier_answer_is_told_with_how_to_make_one() {
        let path = std::env::temp_dir().join(format!("warren-change-{}", std::process::id()));
        assert!(read(&path).unwrap_err().to_string().contains("cannot read"));
        for text in ["", "{", "{\"summary\": {}}", "[1]"] {
            std::fs::write(&path, text).unwrap();
            let told = read(&path).unwrap_err().to_string();
            assert!(told.contains("warren ping PEER --json >"), "{text}: {told}");
        }
        std::fs::write(&path, answer(1.0, 0.0, None).to_string()).unwrap();
        assert!(read(&path).is_ok());
        std::fs::remove_file(&path).unwrap();
    }
}
