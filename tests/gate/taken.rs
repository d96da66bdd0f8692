//! What others do to a machine while it is a gateway, or goes through one: it is put back, or told.

use serde_json::Value;

use crate::support::{Context as _, Result, ensure, eventually, scene, seconds};
use crate::world::{LAN, World, asks};

fn health(world: &World, i: usize) -> Result<String> {
    let status: Value = serde_json::from_str(&world.node(i, &["status", "--json"])?)?;
    Ok(status["health"].to_string())
}

#[test]
fn gw_13_rules_routes_and_filters_that_others_take_away_are_back_at_once() -> Result<()> {
    scene("gate18", |scene| {
        let mut world = World::new(scene, "18")?;
        world.join("192.168.5.0/24,fd05::/64", &[], &[])?;
        for to in LAN {
            ensure!(world.reaches(0, to)?.starts_with("lan "));
        }
        let takes: [(usize, &str); 6] = [
            (1, "nft flush ruleset"),
            (1, "nft delete table inet warren"),
            (1, "cd /proc/sys/net/ipv4; echo 1 > ip_forward; echo 0 > ip_forward"),
            (0, "ip rule del pref 5111; ip -6 rule del pref 5111"),
            (0, "ip rule del pref 5110; ip route flush table 30561"),
            (0, "nft flush ruleset"),
        ];
        for (i, take) in takes {
            world.host(i).sh(take)?;
            // what is served is reached under the gateway's address again, and never otherwise
            let took = eventually(take, seconds(5), || {
                LAN.iter()
                    .all(|to| asks(&world.a, to, 80).is_ok_and(|told| told.starts_with("lan ")))
                    && world.host(i).sh("nft list table inet warren").is_ok()
                    && world
                        .a
                        .sh("ip rule; ip -6 rule")
                        .is_ok_and(|t| t.matches("5111").count() == 2)
            })?;
            println!("back after {took:?}: {take}");
            let told = asks(&world.a, LAN[0], 80)?;
            ensure!(told.starts_with("lan 192.168.5.1 "), "{take}: {told}");
        }
        // `why` asks the machine
        world.a.sh("ip rule add pref 9 to 192.168.5.9 lookup main")?;
        let why = world.node(0, &["why", "192.168.5.9:80"])?;
        ensure!(why.contains("this machine") && !why.contains("Packets reach b"), "{why}");
        world.a.sh("ip rule del pref 9")?;
        let why = world.node(0, &["why", "192.168.5.9:80"])?;
        ensure!(why.contains("Packets reach b"), "{why}");
        Ok(())
    })
}

#[test]
fn gw_13_filters_that_come_later_are_told_with_their_mend_and_forgotten_with_it() -> Result<()> {
    scene("gate19", |scene| {
        let mut world = World::new(scene, "19")?;
        world.join("192.168.5.0/24", &[], &[])?;
        ensure!(world.reaches(0, LAN[0])?.starts_with("lan "));
        ensure!(health(&world, 1)? == "[]", "{}", health(&world, 1)?);
        let told = |words: &str| {
            eventually(words, seconds(5), || health(&world, 1).is_ok_and(|t| t.contains(words)))
        };
        let quiet =
            || eventually("quiet again", seconds(5), || health(&world, 1).is_ok_and(|t| t == "[]"));
        // Docker comes
        world.b.sh("nft add table ip filter
             nft 'add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }'
             nft 'add chain ip filter DOCKER-USER'
             nft 'add rule ip filter FORWARD jump DOCKER-USER'")?;
        told("iptables -I DOCKER-USER -i warren0 -j ACCEPT")?;
        let why = world.node(1, &["why", "a", "192.168.5.9:80"])?;
        ensure!(why.contains("DOCKER-USER"), "{why}");
        world.b.sh("nft 'insert rule ip filter DOCKER-USER iifname warren0 accept'
             nft 'insert rule ip filter DOCKER-USER oifname warren0 accept'")?;
        quiet()?;
        ensure!(world.reaches(0, LAN[0])?.starts_with("lan "), "as advised");
        // what comes in is dropped: ufw's way, and that of many
        world.b.sh(
            "nft 'add chain ip filter INPUT { type filter hook input priority 0; policy drop; }'
             nft add rule ip filter INPUT ct state established,related accept
             nft add rule ip filter INPUT tcp dport 22 accept",
        )?;
        told("iptables -I INPUT -i warren0 -j ACCEPT")?;
        ensure!(asks(&world.a, "100.64.0.2", 80).is_err(), "the control");
        let why = world.node(1, &["why", "a", "b:80"])?;
        ensure!(why.contains("-I INPUT -i warren0"), "{why}");
        world.b.sh("nft insert rule ip filter INPUT iifname warren0 accept")?;
        quiet()?;
        ensure!(world.reaches(0, "100.64.0.2")?.starts_with("b "), "as advised");
        // somebody takes our filter away again and again
        for _ in 0..6 {
            world.b.sh("nft delete table inet warren")?;
            eventually("back", seconds(20), || world.b.sh("nft list table inet warren").is_ok())?;
        }
        told("again and again")?;
        Ok(())
    })
}

#[test]
fn a_second_daemon_on_one_machine_is_refused_and_the_first_is_as_it_was() -> Result<()> {
    scene("gate20", |scene| {
        let mut world = World::new(scene, "20")?;
        world.join("192.168.5.0/24", &[], &[])?;
        ensure!(world.reaches(0, LAN[0])?.starts_with("lan "));
        let before = world.b.sh("nft list table inet warren; cat /etc/resolv.conf")?;
        let (state, socket) = (world.folder.path("second"), world.folder.path("second.sock"));
        let words = ["daemon", "--state", &state, "--socket", &socket, "--tun", "warren1"];
        let second = world.b.output(&[&[env!("CARGO_BIN_EXE_warren")], &words[..]].concat())?;
        let said = String::from_utf8_lossy(&second.stderr).into_owned();
        ensure!(!second.status.success() && said.contains("another daemon is at work"), "{said}");
        ensure!(world.b.sh("nft list table inet warren; cat /etc/resolv.conf")? == before);
        ensure!(world.b.run(&["ip", "link", "show", "warren1"]).is_err(), "no interface");
        ensure!(world.reaches(0, LAN[0])?.starts_with("lan "));
        // the first is killed: its place is free at once
        world.daemons[1] = None;
        world.daemon(1).context("its place is free")
    })
}
