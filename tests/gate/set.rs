//! `warren set` where it could cut a machine off.

use serde_json::Value;

use crate::support::{Result, ensure, eventually, scene, seconds};
use crate::world::{NET, World, asks};

/// Who answers at an address of the Internet.
fn out(world: &World) -> String {
    asks(&world.a, NET[0], 80).unwrap_or_default().split(' ').next().unwrap_or_default().to_owned()
}

fn leads(world: &World, to: &str) -> Result<()> {
    eventually(&format!("out by {to:?}"), seconds(10), || out(world) == to).map(drop)
}

#[test]
fn an_exit_that_is_none_is_refused_and_one_on_trial_goes_back() -> Result<()> {
    scene("gate21", |scene| {
        let mut world = World::new(scene, "21")?;
        world.join("", &["--advertise-exit-node"], &[])?;
        leads(&world, "isp")?;
        let refused = |words: &[&str], why: &str| -> Result<()> {
            let told = world.node(0, &[&["set"], words].concat());
            let told = told.err().map(|e| format!("{e:#}")).unwrap_or_default();
            ensure!(told.contains(why), "{words:?}: {told:?}");
            ensure!(out(&world) == "isp", "nothing is changed: {words:?}");
            Ok(())
        };
        refused(&["--exit-node", "vpss"], "exit nodes are: b")?;
        refused(&["--exit-node", "a"], "is this node")?;
        refused(&["--confirm"], "nothing is on trial")?;
        let setting = || -> Result<Value> {
            let status: Value = serde_json::from_str(&world.node(0, &["status", "--json"])?)?;
            Ok(status["settings"]["exit_node"].clone())
        };
        ensure!(setting()? == Value::Null);
        // on trial, and nobody says yes
        let told = world.node(0, &["set", "--exit-node", "b", "--for", "4s"])?;
        ensure!(told.contains("all traffic goes through b now"), "{told}");
        ensure!(
            told.contains("goes back in 4 s") && told.contains("warren set --confirm"),
            "{told}"
        );
        leads(&world, "net")?;
        leads(&world, "isp")?;
        ensure!(setting()? == Value::Null);
        // on trial, and confirmed; by itself, and by the same words
        for confirm in [&["--confirm"][..], &["--exit-node", "b"]] {
            world.node(0, &["set", "--exit-node", "b", "--for", "4s"])?;
            world.node(0, &["set", "--accept-routes"])?;
            world.node(0, &[&["set"], confirm].concat())?;
            std::thread::sleep(seconds(5));
            ensure!(setting()? == "b" && out(&world) == "net", "{confirm:?}");
            let told = world.node(0, &["set", "--exit-node", ""])?;
            ensure!(told.contains("no exit node is used"), "{told}");
            leads(&world, "isp")?;
        }
        // on trial, and the daemon dies
        world.node(0, &["set", "--exit-node", "b", "--for", "10m"])?;
        leads(&world, "net")?;
        world.daemons[0] = None;
        world.daemon(0)?;
        leads(&world, "isp")?;
        let setting: Value = serde_json::from_str(&world.node(0, &["status", "--json"])?)?;
        ensure!(setting["settings"]["exit_node"].is_null());
        // who insists gets it, and learns what it means
        let told = world.node(0, &["set", "--exit-node", "vpss", "--force"])?;
        ensure!(told.contains("nothing leaves this machine until vpss"), "{told}");
        leads(&world, "")?;
        ensure!(asks(&world.server, "10.9.0.1", 80)?.starts_with("a "), "who comes is answered");
        world.node(0, &["set", "--exit-node="])?;
        leads(&world, "isp")
    })
}

#[test]
fn an_exit_that_is_not_approved_is_refused_and_rules_without_internet_are_told() -> Result<()> {
    scene("gate22", |scene| {
        let mut world = World::new(scene, "22")?;
        world.join("", &[], &[])?;
        world.node(1, &["set", "--advertise-exit-node"])?;
        let told = world.node(0, &["set", "--exit-node", "b"]).err().map(|e| format!("{e:#}"));
        let told = told.unwrap_or_default();
        ensure!(told.contains("warren route approve b 0.0.0.0/0 ::/0"), "{told}");
        world.admin(&["route", "approve", "b", "0.0.0.0/0", "::/0"])?;
        let policy = |text: &str| -> Result<()> {
            let file = world.folder.path("policy.hujson");
            std::fs::write(&file, text)?;
            world.admin(&["policy", "set", &file]).map(drop)
        };
        policy(r#"{"acls": [{"action": "accept", "src": ["*"], "dst": ["*:*"]}]}"#)?;
        let mut told = String::new();
        let until = std::time::Instant::now() + seconds(10);
        while !told.contains("autogroup:internet") && std::time::Instant::now() < until {
            told = world.node(0, &["set", "--exit-node", "b"]).unwrap_or_default();
            std::thread::sleep(seconds(1) / 4);
        }
        ensure!(told.contains("Warning: ") && told.contains("autogroup:internet"), "{told}");
        let health = || world.node(0, &["status", "--json"]).unwrap_or_default();
        ensure!(health().contains("autogroup:internet"), "{}", health());
        policy(
            r#"{"acls": [{"action": "accept", "src": ["*"],
            "dst": ["*:*", "autogroup:internet:*", "203.0.113.9:*"]}]}"#,
        )?;
        leads(&world, "net")?;
        eventually("health is quiet", seconds(5), || !health().contains("autogroup:internet"))?;
        Ok(())
    })
}

/// Runs its words where nobody finds the program `nft`.
const WITHOUT_NFT: &str = "for at in /usr/sbin/nft /sbin/nft /usr/bin/nft; do
    if test -e $at; then mount --bind /dev/null $at; fi; done; exec \"$@\"";

#[test]
fn without_nft_a_node_is_a_node_and_only_who_uses_an_exit_is_told() -> Result<()> {
    scene("gate34", |scene| {
        let mut world = World::new(scene, "34")?;
        world.daemon_within(0, &["unshare", "-m", "sh", "-c", WITHOUT_NFT, "sh"])?;
        world.daemon(1)?;
        let token = world.admin(&["key", "create", "--reusable"])?;
        for (i, name) in [(0, "a"), (1, "b")] {
            world.node(i, &["up", token.trim(), "--timeout", "20s", "--hostname", name])?;
        }
        ensure!(world.reaches(0, "100.64.0.2")?.starts_with("b "));
        let told = || world.node(0, &["status", "--json"]).unwrap_or_default();
        ensure!(!told().contains("nft"), "{}", told());
        world.node(1, &["set", "--advertise-exit-node"])?;
        world.admin(&["route", "approve", "b", "0.0.0.0/0", "::/0"])?;
        world.node(0, &["set", "--exit-node", "b"])?;
        leads(&world, "net")?;
        ensure!(told().contains("install nftables"), "{}", told());
        Ok(())
    })
}
