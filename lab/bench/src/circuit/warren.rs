//! Ours: a server beside A's node, four nodes, and a circuit of the client's over A, B and C.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::chain::{Chain, NAMES, word};
use super::running::{Inside, Running, until};

const URL: &str = "10.10.2.1:8443";
const SOCKET: &str = "/run/warren.sock";
const VIA: &str = "a,b,c";
const POLICY: &str = r#"{
    "tagOwners": {"tag:hop": [], "tag:exit": [], "tag:client": []},
    "acls": [],
    "circuits": {"use": ["tag:client"], "hops": ["tag:hop"], "exits": ["tag:exit"]},
}"#;

pub(super) fn start(chain: &Chain, program: &Path) -> Result<Running> {
    let warren = program.to_str().context("its path is not UTF-8")?;
    let mut running = Running::new(Inside::Words(Vec::new()));
    let data = word(&chain.file("server"));
    let url = format!("https://{URL}");
    let words = [
        warren,
        "serve",
        "--data",
        &data,
        "--listen",
        URL,
        "--url",
        &url,
        "--stun",
        "10.10.2.1:3478",
    ];
    let server = chain.hosts[1].spawn(&words)?;
    server.wait_for(|log| log.contains("serving on"))?;
    running.others.push(server);
    let policy = chain.file("policy");
    std::fs::write(&policy, POLICY)?;
    let admin = |words: &str| chain.hosts[1].sh(&format!("{warren} {words} --data {data}"));
    admin(&format!("policy set {}", word(&policy)))?;
    let offers = [
        ("tag:client", ""),
        ("tag:hop", "--circuit-hop"),
        ("tag:hop", "--circuit-hop"),
        ("tag:exit", "--circuit-exit"),
    ];
    for (i, (tag, offer)) in offers.into_iter().enumerate() {
        let host = &chain.hosts[i];
        let state = format!("/run/warren-{}", NAMES[i]);
        let words = [warren, "daemon", "--state", &state, "--socket", SOCKET, "--tun", "wn0"];
        let daemon = host.spawn(&words)?;
        daemon.wait_for(|log| log.contains("daemon at"))?;
        running.roles[i].push(daemon);
        let token = admin(&format!("key create --tag {tag}"))?;
        host.sh(&format!(
            "{warren} --socket {SOCKET} up {} --hostname {} --accept-dns=false \
             --timeout 30s {offer}",
            token.trim(),
            NAMES[i]
        ))?;
    }
    let run = [warren, "--socket", SOCKET, "circuit", "run", "--via", VIA, "--"];
    let words = run.map(str::to_owned).to_vec();
    let ask = format!("{warren} --socket {SOCKET}");
    until("a circuit over A, B and C", Duration::from_secs(60), || {
        let opened = chain.client().sh(&format!("{ask} circuit open --via {VIA} 2>/dev/null"));
        let Ok(id) = opened else { return Ok(false) };
        chain.client().sh(&format!("{ask} circuit close {}", id.trim()))?;
        Ok(true)
    })?;
    // What the daemon says of the building itself: the command beside it costs more than that.
    running.build = Some(format!(
        "id=$({ask} circuit open --via {VIA} 2>/dev/null)
         {ask} circuit show $id --json | sed -n 's/.*\"built_ms\": *\\([0-9.]*\\).*/\\1/p'
         {ask} circuit close $id"
    ));
    running.inside = Inside::Words(words);
    Ok(running)
}
