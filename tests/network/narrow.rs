//! Underlays of 1280 and of 576 bytes: with fragments everything passes; without them the path's
//! size is found, senders are told of packets that do not fit, both ways, and streams arrive.

use super::*;

const INSIDE: [&str; 2] = ["100.64.0.1", "100.64.0.2"];
/// What a full packet inside carries, in the form that `ping` takes it: without its headers.
const FULL_V4: &str = "1392";
const STREAM_BYTES: u64 = 2_000_000;

/// Drops what is a part of a datagram, before anybody could put it together.
const NO_FRAGMENTS: &str = "nft add table ip cut
    nft 'add chain ip cut pre { type filter hook prerouting priority -450; }'
    nft add rule ip cut pre iifname eth0 ip frag-off '&' 0x3fff != 0 drop";

fn narrow(id: &str, mtu: u32, body: impl FnOnce(&mut Lan) -> Result<()>) -> Result<()> {
    network(id, 2, |lan| {
        for node in &lan.nodes {
            node.host.sh(&format!("ip link set eth0 mtu {mtu}"))?;
        }
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        lan.reaches(0, INSIDE[1])?;
        lan.direct(0)?;
        body(lan)
    })
}

/// A stream of either family, each way, and every byte of it.
fn streams(lan: &Lan) -> Result<()> {
    for (from, to) in [(0, 1), (1, 0)] {
        let v6 = lan.node(to, &["ip", "-6"])?;
        for address in [INSIDE[to], v6.trim()] {
            let hosts = [&lan.nodes[from].host, &lan.nodes[to].host];
            let took = traffic::exact_stream(hosts[0], hosts[1], address, STREAM_BYTES)?;
            eprintln!("{STREAM_BYTES} bytes to {address} in {took:?}");
        }
    }
    Ok(())
}

/// What the path of a node carries, as its status says.
fn mtu(lan: &Lan, index: usize) -> u64 {
    let status = lan.status(index).unwrap_or_default();
    status["peers"][0]["path"]["mtu"].as_u64().unwrap_or(0)
}

/// Each end sends full packets that must not be cut, is told what passes, and sends that.
fn told_both_ways(lan: &Lan, found: u64) -> Result<()> {
    for (from, to) in [(0, 1), (1, 0)] {
        let host = &lan.nodes[from].host;
        let full = format!("ping -M do -c 1 -W 1 -s {FULL_V4} {} 2>&1 || true", INSIDE[to]);
        eventually("the size is found", seconds(PATIENCE), || {
            // What is sent keeps the path awake, so that it is asked.
            let _ = host.sh(&format!("ping -c 1 -W 0.2 {}", INSIDE[to]));
            mtu(lan, from) == found
        })?;
        let mut said = String::new();
        for _ in 0..3 {
            said += &host.sh(&full)?;
        }
        ensure!(
            said.contains(&format!("mtu = {found}")) || said.contains(&format!("mtu={found}")),
            "too big is answered with what fits, {found}: {said}"
        );
        let fits = found - 28;
        host.sh(&format!("ping -M do -c 1 -W 2 -s {fits} {}", INSIDE[to]))?;
    }
    Ok(())
}

/// The chunks of what was sent last are as long as the path lets them be, less headers inside.
fn chunks_fit(lan: &Lan, mtu: u64) -> Result<()> {
    for index in [0, 1] {
        let status = lan.status(index)?;
        let chunk = status["peers"][0]["link"]["chunk_bytes"].as_u64().unwrap_or(0);
        ensure!((mtu - 100..=mtu - 40).contains(&chunk), "chunks of {chunk} on {mtu}: {status}");
    }
    Ok(())
}

#[test]
fn lc_10_an_underlay_of_1280_carries_everything_in_fragments() -> Result<()> {
    narrow("na1", 1280, |lan| {
        lan.nodes[0].host.sh(&format!("ping -M do -c 1 -W 2 -s {FULL_V4} {}", INSIDE[1]))?;
        streams(lan)
    })
}

#[test]
fn lc_10_an_underlay_of_1280_without_fragments_is_told_both_ways() -> Result<()> {
    narrow("na2", 1280, |lan| {
        lan.nodes.iter().try_for_each(|node| node.host.sh(NO_FRAGMENTS).map(drop))?;
        told_both_ways(lan, 1200)?;
        streams(lan)?;
        chunks_fit(lan, 1200)
    })
}

#[test]
fn lc_10_an_underlay_of_576_without_fragments_is_told_both_ways() -> Result<()> {
    narrow("na3", 576, |lan| {
        streams(lan)?;
        lan.nodes.iter().try_for_each(|node| node.host.sh(NO_FRAGMENTS).map(drop))?;
        told_both_ways(lan, 496)?;
        streams(lan)?;
        chunks_fit(lan, 496)?;
        // IPv6 has no packets below 1280 bytes in reserve: what is no TCP and larger than the path
        // does not pass, and its sender is told so.
        let v6 = lan.node(1, &["ip", "-6"])?;
        lan.nodes[0].host.sh(&format!("ping -c 1 -W 2 -s 400 {}", v6.trim()))?;
        let large = format!("ping -M do -c 2 -W 1 -s 1100 {} 2>&1 || true", v6.trim());
        let said = lan.nodes[0].host.sh(&large)?;
        ensure!(said.to_lowercase().contains("too big") || said.contains("mtu"), "{said}");
        Ok(())
    })
}
