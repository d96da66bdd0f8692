//! Cases 1 to 6: bytes are counted, everything passes over both families and every MTU.

use crate::support::{Context as _, Pair, Result, ensure, eventually, scene, seconds, traffic};

/// Upstream's large one: 34816 - 1500 + 1420.
const MTU_BIG: u32 = 34_736;
/// The largest whose datagram still fits the 65535 bytes of an outer IPv6 or IPv4 packet after
/// padding: 65535 - 40 (IPv6) - 8 (UDP) - 32 (WireGuard).
const MTU_LARGEST: u32 = 65_455;

/// Ten pings of 84 bytes, each padded to 96 and wrapped in 32.
const PINGS_BYTES: u64 = 10 * (96 + 32);
const INITIATION_BYTES: u64 = 148;
const RESPONSE_BYTES: u64 = 92;
const KEEPALIVE_BYTES: u64 = 32;

#[test]
fn case_01_ten_pings_are_counted_to_the_byte() -> Result<()> {
    scene("n01", |scene| {
        let pair = Pair::new(scene)?;
        let (one, two) = (&pair.one, &pair.two);
        let (key_one, key_two) = (one.keys.public_text(), two.keys.public_text());
        ensure!(two.daemon.handshake_s(&key_one)? == 0, "a handshake before any traffic");
        two.flood_ping(one.v4, 10)?;
        let from_responder = RESPONSE_BYTES + PINGS_BYTES;
        let from_initiator = INITIATION_BYTES + PINGS_BYTES;
        let sent = [from_initiator, from_initiator + KEEPALIVE_BYTES];
        let (rx, tx) = two.daemon.transfer(&key_one)?;
        ensure!(rx == from_responder && sent.contains(&tx), "initiator: {rx} in, {tx} out");
        let (rx, tx) = one.daemon.transfer(&key_two)?;
        ensure!(tx == from_responder && sent.contains(&rx), "responder: {rx} in, {tx} out");
        for (node, peer) in [(one, &key_two), (two, &key_one)] {
            let name = &node.daemon.ifname;
            let read = |counter: &str| -> Result<u64> {
                let text = node.host.sh(&format!("ip -s -j link show {name}"))?;
                let all: serde_json::Value = serde_json::from_str(&text)?;
                let (way, what) = counter.split_once('_').context("two words")?;
                all[0]["stats64"][way][what].as_u64().context("a counter of `ip -s link`")
            };
            ensure!(read("rx_packets")? == 10 && read("rx_bytes")? == 840, "{name}'s received");
            ensure!(read("tx_packets")? >= 10 && read("tx_bytes")? >= 840, "{name}'s sent");
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
            let age = now.as_secs().abs_diff(node.daemon.handshake_s(peer)?);
            ensure!(age <= 10, "{name}'s latest handshake is {age} s from now");
        }
        Ok(())
    })
}

#[test]
fn case_02_all_kinds_of_traffic_pass_over_ipv4() -> Result<()> {
    scene("n02", |scene| traffic::all_kinds(&Pair::new(scene)?))
}

#[test]
fn case_03_all_kinds_of_traffic_pass_over_ipv4_with_a_big_mtu() -> Result<()> {
    scene("n03", |scene| {
        let pair = Pair::new(scene)?;
        pair.set_mtu(MTU_BIG)?;
        traffic::all_kinds(&pair)?;
        pair.one.ping_sized(pair.two.v4, MTU_BIG as usize - 28)
    })
}

#[test]
fn case_03_the_largest_mtu_passes_over_ipv4() -> Result<()> {
    scene("n03l", |scene| largest(&Pair::new(scene)?))
}

#[test]
fn case_04_all_kinds_of_traffic_pass_over_ipv6() -> Result<()> {
    scene("n04", |scene| {
        let pair = Pair::new(scene)?;
        pair.use_ipv6()?;
        traffic::all_kinds(&pair)?;
        let endpoint = pair.one.daemon.endpoint(&pair.two.keys.public_text())?;
        ensure!(endpoint == pair.two.endpoint_v6(), "the outer address is {endpoint}");
        Ok(())
    })
}

#[test]
fn case_05_all_kinds_of_traffic_pass_over_ipv6_with_a_big_mtu() -> Result<()> {
    scene("n05", |scene| {
        let pair = Pair::new(scene)?;
        pair.set_mtu(MTU_BIG)?;
        pair.use_ipv6()?;
        traffic::all_kinds(&pair)?;
        pair.one.ping_sized(pair.two.v4, MTU_BIG as usize - 28)
    })
}

#[test]
fn case_05_the_largest_mtu_passes_over_ipv6() -> Result<()> {
    scene("n05l", |scene| {
        let pair = Pair::new(scene)?;
        pair.use_ipv6()?;
        largest(&pair)
    })
}

/// Pings up to the very last byte, and a stream.
fn largest(pair: &Pair) -> Result<()> {
    pair.set_mtu(MTU_LARGEST)?;
    pair.settle()?;
    for bytes in [MTU_LARGEST - 28, MTU_LARGEST - 29, MTU_LARGEST - 28 - 16] {
        pair.one.ping_sized(pair.two.v4, bytes as usize)?;
    }
    traffic::exact_stream(&pair.two.host, &pair.one.host, pair.one.v4, 8 << 20)?;
    Ok(())
}

#[test]
fn case_06_padding_does_not_exceed_the_mtu() -> Result<()> {
    scene("n06", |scene| {
        let pair = Pair::over_veth(scene)?;
        pair.set_mtu(1299)?;
        pair.settle()?;
        // 1299 + 32 (WireGuard) + 8 (UDP) + 20 (IPv4) may pass, one byte more may not.
        for host in [&pair.one.host, &pair.two.host] {
            host.sh("nft 'add table inet t; \
                 add chain inet t i { type filter hook input priority 0; }; \
                 add rule inet t i meta l4proto udp meta length > 1359 drop'")?;
        }
        // The change of MTU reaches a daemon as an event, which takes its time.
        let full = || pair.two.ping_sized(pair.one.v4, 1299 - 28).is_ok();
        eventually("a packet of the whole MTU passes", seconds(4), full)?;
        for inner_bytes in 1280..=1299 {
            pair.two.ping_sized(pair.one.v4, inner_bytes - 28)?;
            pair.one.ping_sized(pair.two.v4, inner_bytes - 28)?;
        }
        ensure!(pair.one.ping_sized(pair.two.v4, 1300 - 28).is_err(), "the MTU has no effect");
        Ok(())
    })
}
