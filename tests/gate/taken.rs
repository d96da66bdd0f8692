//! What others do to a machine while it is a gateway, or goes through one: it is put back, or told.

use serde_json::Value;

use crate::support::{Context as _, Result, ensure, eventually, scene, seconds};
use crate::world::{LAN, NET, World, asks};

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

#[test]
fn gw_06_a_gateway_whose_lan_side_is_dead_says_so_and_is_left_for_another() -> Result<()> {
    scene("gate28", |scene| {
        let mut world = World::new(scene, "28")?;
        let lan = "192.168.5.0/24";
        world.join(lan, &[], &[])?;
        world.daemon(2)?;
        let token = world.admin(&["key", "create"])?;
        let words = ["--timeout", "20s", "--hostname", "c", "--advertise-routes", lan];
        world.node(2, &[&["up", token.trim()], &words[..]].concat())?;
        world.admin(&["route", "approve", "c", lan])?;
        let answers = |who: &str| {
            eventually(who, seconds(10), || {
                asks(&world.a, LAN[0], 80).is_ok_and(|told| told.starts_with(who))
            })
        };
        let told = |i: usize, words: &str| {
            eventually(words, seconds(10), || health(&world, i).is_ok_and(|t| t.contains(words)))
        };
        answers("lan ")?;
        // the cable is out
        world.lan.sh("ip link set eth0 down")?;
        eprintln!("left after {:?}", answers("lan2 ")?);
        told(1, "its interface lan0 has no carrier")?;
        // and at the other one the interface is down: nothing leaves by another way
        world.c.sh("ip link set lan0 down")?;
        told(2, "ip link set lan0 up")?;
        told(0, "192.168.5.0/24 is not reached: b, c")?;
        let way = world.a.sh(&format!("ip route get {}", LAN[0]))?;
        ensure!(way.contains("dev warren0"), "{way}");
        // what is mended is used; who was left for good reason is not gone back to at once
        world.c.sh("ip link set lan0 up; ip addr show dev lan0 | grep -q 192.168.5.1")?;
        answers("lan2 ")?;
        world.lan.sh("ip link set eth0 up")?;
        eventually("health is quiet", seconds(10), || health(&world, 1).is_ok_and(|t| t == "[]"))?;
        ensure!(asks(&world.a, LAN[0], 80)?.starts_with("lan2 "));
        Ok(())
    })
}

/// As in a container that is started with `--sysctl`: `/proc/sys` is right, and cannot be written.
#[test]
fn a_gateway_and_an_exits_user_work_where_settings_cannot_be_written() -> Result<()> {
    scene("gate29", |scene| {
        // The odd world: its machines forward both families already.
        let mut world = World::new(scene, "29")?;
        for host in [&world.a, &world.b] {
            host.sh("for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done")?;
        }
        let token = world.admin(&["key", "create", "--reusable"])?;
        for i in [0, 1] {
            world.daemon_within(i, READ_ONLY)?;
            let name = ["a", "b"][i];
            let words = ["up", token.trim(), "--timeout", "20s", "--hostname", name];
            let of_b = ["--advertise-routes", "192.168.5.0/24,fd05::/64", "--advertise-exit-node"];
            let of_a = ["--accept-routes"];
            let more: &[&str] = if i == 0 { &of_a } else { &of_b };
            world.node(i, &[&words[..], more].concat())?;
        }
        let approved = ["192.168.5.0/24", "fd05::/64", "0.0.0.0/0", "::/0"];
        world.admin(&[&["route", "approve", "b"][..], &approved].concat())?;
        for to in LAN {
            ensure!(world.reaches(0, to)?.starts_with("lan "), "{to}");
        }
        world.node(0, &["set", "--exit-node", "b"])?;
        for to in NET {
            eventually(to, seconds(10), || {
                asks(&world.a, to, 80).is_ok_and(|told| told.starts_with("net "))
            })?;
        }
        for i in [0, 1] {
            ensure!(!health(&world, i)?.contains("/proc/sys"), "{}", health(&world, i)?);
        }
        Ok(())
    })
}

/// Runs what follows with a `/proc/sys` that cannot be written.
const READ_ONLY: &[&str] = &[
    "unshare",
    "--mount",
    "sh",
    "-ec",
    "mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys /proc/sys; exec \"$@\"",
    "sh",
];
