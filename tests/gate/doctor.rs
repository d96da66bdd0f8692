//! `warren doctor` on a node that is well, and on one whose ways are blocked one by one.

use serde_json::Value;

use crate::support::{Result, ensure, eventually, scene, seconds};
use crate::world::World;

/// What it says on the first node, whatever its exit code: that, and the answer.
fn asked(world: &World, words: &[&str]) -> Result<(bool, Value)> {
    let socket = world.folder.path("a.sock");
    let mut command = world.a.command(&[env!("CARGO_BIN_EXE_warren")]);
    let output = command.args(["--socket", &socket, "doctor", "--json"]).args(words).output()?;
    Ok((output.status.success(), serde_json::from_slice(&output.stdout)?))
}

fn state<'a>(answer: &'a Value, check: &str) -> &'a str {
    let checks = answer["checks"].as_array().into_iter().flatten();
    let found = checks.clone().find(|found| found["check"] == check);
    found.and_then(|found| found["state"].as_str()).unwrap_or("none")
}

#[test]
fn a_doctor_finds_what_is_blocked_and_says_how_to_mend_it() -> Result<()> {
    scene("gate4d", |scene| {
        let mut world = World::new(scene, "42")?;
        // Before it has joined: no daemon, and the server can be tried.
        let (is_well, answer) = asked(&world, &["--server", "https://10.9.0.254:8443"])?;
        ensure!(!is_well && state(&answer, "daemon") == "fail", "{answer}");
        ensure!(state(&answer, "https") == "ok", "{answer}");
        world.join("", &[], &[])?;
        for check in ["daemon", "https", "quic", "stun", "clock", "port", "tun", "mtu"] {
            eventually(&format!("{check} is well"), seconds(20), || {
                asked(&world, &[]).is_ok_and(|(_, answer)| state(&answer, check) == "ok")
            })?;
        }
        let (is_well, answer) = asked(&world, &[])?;
        ensure!(is_well && answer["ok"] == true, "{answer}");
        let text = world.node(0, &["doctor"])?;
        ensure!(text.contains("ok    https"), "as people read it: {text}");
        // UDP is blocked: slower ways remain, so these are warnings, each with its mend.
        world.server.sh("nft add table inet block
             nft add chain inet block in '{ type filter hook input priority 0; }'
             nft add rule inet block in udp dport '{ 8443, 3478 }' drop")?;
        let (is_well, answer) = asked(&world, &[])?;
        ensure!(is_well && state(&answer, "https") == "ok", "{answer}");
        for check in ["quic", "stun"] {
            ensure!(state(&answer, check) == "warn", "{check}: {answer}");
        }
        // TCP as well: the server is not reached.
        world.server.sh("nft add rule inet block in tcp dport 8443 reject with tcp reset")?;
        let (is_well, answer) = asked(&world, &[])?;
        ensure!(!is_well && state(&answer, "https") == "fail", "{answer}");
        let checks = answer["checks"].as_array().cloned().unwrap_or_default();
        for check in &checks {
            let is_mended = check["mend"].as_str().is_some_and(|mend| !mend.is_empty());
            ensure!(is_mended != (check["state"] == "ok"), "{check}");
        }
        Ok(())
    })
}
