//! What a person waits for: a package that is there, until the machine is in its network.

use std::time::Instant;

use lab::machine::Machine;
use serde_json::{Value, json};

use crate::packages::{bring, package};
use crate::support::scene::scene;
use crate::support::*;
use crate::{boot, can_boot, start_server, token};

/// Machines that join, one after the other.
const NODES: [&str; 3] = ["one", "two", "three"];
/// What is asked for is 10 s on a machine that does nothing else, which is judged in the report; a
/// test's machine may be busy.
const SECONDS_MAX: f64 = 60.0;

fn timed(machine: &Machine, words: &[&str]) -> Result<f64> {
    let begin = Instant::now();
    machine.run(words)?;
    Ok(figures::rounded(begin.elapsed().as_secs_f64()))
}

/// The same as `dpkg -i`, part by part.
fn install_in_parts(machine: &Machine, deb: &str) -> Result<Value> {
    Ok(json!({
        "unpack_s": timed(machine, &["dpkg", "--no-triggers", "--unpack", deb])?,
        "configure_s": timed(machine, &["dpkg", "--no-triggers", "--configure", "warren"])?,
        "triggers_s": timed(machine, &["dpkg", "--triggers-only", "--pending"])?,
    }))
}

#[test]
#[ignore = "needs the packages: make home"]
fn from_dpkg_to_a_node_that_has_joined_it_takes_seconds_and_two_commands() -> Result<()> {
    if !can_boot() {
        return Ok(());
    }
    let file = package(".deb")?;
    scene("home", |scene| {
        let mut names = vec!["server"];
        names.extend(NODES);
        let machines = boot(scene, &names)?;
        let (server, nodes) = machines.split_first().context("a server")?;
        let parts = install_in_parts(server, &bring(server, &file)?)?;
        start_server(server)?;
        let token = token(server)?;
        let load = figures::load()?;
        let mut runs = Vec::new();
        for node in nodes {
            let deb = bring(node, &file)?;
            let installed = timed(node, &["dpkg", "-i", &deb])?;
            let joined = timed(node, &["warren", "up", &token])?;
            eprintln!("dpkg -i {installed} s, warren up {joined} s");
            ensure!(installed + joined < SECONDS_MAX, "{installed} s and {joined} s");
            runs.push(json!({ "dpkg_s": installed, "up_s": joined }));
        }
        let list: Value =
            serde_json::from_str(&server.run(&["warren", "node", "list", "--json"])?)?;
        let count = list["nodes"].as_array().map_or(0, Vec::len);
        ensure!(count == NODES.len(), "{count} nodes joined: {list}");
        figures::keep(
            "package",
            &json!({ "commands": 2, "runs": runs, "parts": parts, "load_before": load }),
        )
    })
}
