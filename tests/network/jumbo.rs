//! Links with jumbo frames: a path that carries them carries inner packets of 8,900 bytes, none of
//! them cut, while a peer behind an ordinary link is spoken with as ever.

use super::*;

const INSIDE: [&str; 3] = ["100.64.0.1", "100.64.0.2", "100.64.0.3"];
const STREAM_BYTES: u64 = 20_000_000;

/// Outer packets that a host has cut.
fn cut(lan: &Lan, index: usize) -> Result<u64> {
    let said = lan.nodes[index].host.sh("grep ^Ip: /proc/net/snmp")?;
    let mut lines = said.lines().map(str::split_whitespace);
    let (names, values) = (lines.next().context("names")?, lines.next().context("values")?);
    let found = names.zip(values).find(|(name, _)| *name == "FragCreates");
    found.and_then(|(_, value)| value.parse().ok()).context("FragCreates")
}

fn mtu_to(lan: &Lan, name: &str) -> u64 {
    let status = lan.status(0).unwrap_or_default();
    let mut peers = status["peers"].as_array().into_iter().flatten();
    let peer = peers.find(|peer| peer["name"] == name);
    peer.and_then(|peer| peer["path"]["mtu"].as_u64()).unwrap_or(0)
}

#[test]
fn nt_08_jumbo_frames_carry_8900_bytes_whole_beside_a_peer_that_has_none() -> Result<()> {
    network("jum", 3, |lan| {
        // Two ends of a switch have jumbo frames, the third has none.
        lan.server.sh("ip link set p1 mtu 9000; ip link set p2 mtu 9000")?;
        (0..2).try_for_each(|index| {
            lan.nodes[index].host.sh("ip link set eth0 mtu 9000").map(drop)
        })?;
        // A pair of virtual cards hands on units of several datagrams without a look at the size of
        // each, as no wire does: they are cut before that.
        for node in &lan.nodes {
            node.host.sh("ethtool -K eth0 tx-udp-segmentation off")?;
        }
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        for (index, mtu) in [(0, 8920), (1, 8920), (2, 1420)] {
            let link = lan.nodes[index].host.sh("ip link show dev warren0")?;
            ensure!(link.contains(&format!("mtu {mtu} ")), "{link}");
        }
        lan.reaches(0, INSIDE[1])?;
        lan.reaches(0, INSIDE[2])?;
        eventually("the path's size is found", seconds(PATIENCE), || {
            let _ = lan.nodes[0].host.sh(&format!("ping -c 1 -W 0.2 {}", INSIDE[1]));
            mtu_to(lan, "b") == 8920
        })?;
        for (from, to) in [(0, 1), (1, 0)] {
            let host = &lan.nodes[from].host;
            eventually("a large packet passes", seconds(PATIENCE), || {
                host.sh(&format!("ping -M do -c 1 -W 1 -s 8872 {}", INSIDE[to])).is_ok()
            })?;
            let hosts = [&lan.nodes[from].host, &lan.nodes[to].host];
            let took = traffic::exact_stream(hosts[0], hosts[1], INSIDE[to], STREAM_BYTES)?;
            eprintln!("{STREAM_BYTES} bytes in jumbo frames in {took:?}");
        }
        // The ordinary peer: what is too large is told, what fits passes.
        let large = format!("ping -M do -c 2 -W 1 -s 8872 {} 2>&1 || true", INSIDE[2]);
        let said = lan.nodes[0].host.sh(&large)?;
        ensure!(said.contains("mtu = 1420") || said.contains("mtu=1420"), "{said}");
        lan.nodes[0].host.sh(&format!("ping -M do -c 1 -W 2 -s 1392 {}", INSIDE[2]))?;
        for (from, to) in [(0, 2), (2, 0)] {
            let hosts = [&lan.nodes[from].host, &lan.nodes[to].host];
            traffic::exact_stream(hosts[0], hosts[1], INSIDE[to], STREAM_BYTES)?;
        }
        ensure!(mtu_to(lan, "c") == 1420, "{}", mtu_to(lan, "c"));
        for index in 0..3 {
            ensure!(cut(lan, index)? == 0, "{index} has cut {} packets", cut(lan, index)?);
        }
        // A path that loses its jumbo frames is left at what is usual.
        lan.server.sh("ip link set p2 mtu 1500")?;
        eventually("jumbo frames are given up", seconds(PATIENCE), || {
            let _ = lan.nodes[0].host.sh(&format!("ping -c 1 -W 0.2 {}", INSIDE[1]));
            mtu_to(lan, "b") == 1420
        })?;
        let hosts = [&lan.nodes[0].host, &lan.nodes[1].host];
        traffic::exact_stream(hosts[0], hosts[1], INSIDE[1], STREAM_BYTES)?;
        Ok(())
    })
}
