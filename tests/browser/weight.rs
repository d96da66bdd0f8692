//! What the web interface costs a server, and where all figures of it go: `docs/measurements/ui`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::stage::{Stage, host};

/// Nodes that report at once.
const NODES: usize = 1000;
/// Links of each, which are those in use: many for one machine.
const LINKS: usize = 128;
/// As many as a node may tell of; with all of them nearly as many as a server keeps.
const LINKS_MOST: usize = 256;
/// So often they report.
const EVERY: Duration = Duration::from_secs(10);
const ROUNDS: u32 = 6;
/// Moments of a round at which some report.
const PARTS: usize = 50;
/// What they may cost.
const MIB_MAX: u64 = 60;

/// Keeps figures of this name; with `WARREN_WRITE=1` in the tree.
pub(crate) fn note(name: &str, figures: &Value) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = match std::env::var_os("WARREN_WRITE") {
        Some(_) => root.join("docs/measurements/ui"),
        None => PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../ui"),
    };
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{name}.json")), format!("{figures:#}\n")).unwrap();
}

/// Memory that a process has in RAM, in KiB.
fn resident_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "takes minutes: a thousand nodes join"]
fn co_19_a_thousand_nodes_that_report_cost_a_server_little() {
    let mut stage = Stage::new("weight");
    let user = stage.call("POST", "/api/v1/users", &json!({ "name": "ben" }));
    let token = stage.key(&json!({ "reusable": true, "user": user["user"]["name"] }));
    for number in 0..NODES {
        stage.join(&token, host(&format!("node{number}"), &[]), true);
    }
    let pid = stage.server.as_ref().unwrap().0.id();
    // Everybody is told of everybody first.
    for _ in 0..ROUNDS {
        stage.read_news();
        std::thread::sleep(EVERY / 2);
    }
    let before_kib = resident_kib(pid);
    for _ in 0..ROUNDS {
        // Each has a moment of its own, as nodes have.
        for part in 0..PARTS {
            stage.report_part(LINKS, part, PARTS);
            std::thread::sleep(EVERY / PARTS as u32);
        }
    }
    let spread_kib = resident_kib(pid);
    // As many as can be, and all at once, as nobody does: told, not judged.
    for _ in 0..2 {
        stage.report(LINKS_MOST);
        std::thread::sleep(EVERY);
    }
    let most_kib = resident_kib(pid);
    let links = stage.call("GET", "/api/v1/links", &Value::Null);
    let told = links["links"].as_array().unwrap().len() as u64;
    let kept = told + links["left_out"].as_u64().unwrap();
    assert!(kept > 200_000, "{kept} links are kept");
    let more_mib = |kib: u64| kib.saturating_sub(before_kib) / 1024;
    let figures = json!({
        "nodes": NODES, "links": NODES * LINKS, "rounds": ROUNDS, "before_kib": before_kib,
        "more_mib": more_mib(spread_kib), "most_links": kept, "most_mib": more_mib(most_kib),
    });
    println!("weight: {figures}");
    note("weight", &figures);
    let more_mib = more_mib(spread_kib);
    assert!(more_mib <= MIB_MAX, "{more_mib} MiB more, from {before_kib} KiB");
}
