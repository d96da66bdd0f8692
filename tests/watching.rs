//! What is shipped to watch a network with: alert rules and a dashboard ask for metrics that there
//! are, and Prometheus' own checker takes the rules where it is installed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root(name)).unwrap_or_else(|why| panic!("{name}: {why}"))
}

/// Names of metrics in a text: `warren_` and what follows.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_of_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let found = text.match_indices("warren_").filter(|(at, _)| {
        !text[..*at].chars().next_back().is_some_and(|c| is_of_name(c) || c == '-')
    });
    found.map(|(at, _)| text[at..].chars().take_while(|c| is_of_name(*c)).collect()).collect()
}

/// Names that the server and the daemon tell, as their sources write them.
fn told() -> BTreeSet<String> {
    let server = read("shell/server/src/api/metrics.rs");
    let names = server.split('"').skip(1).step_by(2);
    let server = names.filter(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
    let mut told: BTreeSet<String> = server.map(|name| format!("warren_{name}")).collect();
    told.extend(metrics_in(&read("shell/daemon/src/metrics.rs")));
    told
}

fn are_told(names: &BTreeSet<String>) {
    let told = told();
    let unknown: Vec<&String> = names.iter().filter(|name| !told.contains(*name)).collect();
    assert!(unknown.is_empty(), "nobody tells {unknown:?}");
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let text = read("packaging/monitoring/grafana.json");
    let board: Value = serde_json::from_str(&text).unwrap();
    assert!(board["schemaVersion"].is_u64() && board["uid"] == "warren");
    let panels = board["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut asked = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "each has a number of its own");
        assert!(panel["title"].is_string() && panel["gridPos"]["w"].as_u64().unwrap() <= 24);
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{}", panel["title"]);
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            let names = metrics_in(expression);
            assert!(!names.is_empty(), "{expression}");
            asked.extend(names);
        }
    }
    assert!(panels.len() >= 12);
    are_told(&asked);
}

#[test]
fn the_alerts_ask_for_metrics_that_there_are() {
    let text = read("packaging/monitoring/warren.rules.yml");
    let rules: String = text.lines().filter(|line| !line.trim().starts_with('#')).collect();
    let asked = metrics_in(&rules);
    assert!(asked.len() >= 10, "{asked:?}");
    are_told(&asked);
}

#[test]
fn promtool_takes_the_alerts_where_it_is_installed() {
    let rules = root("packaging/monitoring/warren.rules.yml");
    let Ok(output) = Command::new("promtool").args(["check", "rules"]).arg(&rules).output() else {
        eprintln!("skipped: promtool is not here (package prometheus)");
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("SUCCESS: 12 rules found"), "{said}");
}
