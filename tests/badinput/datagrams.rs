//! Threats DP-16, DP-18 and DP-19: datagrams of any size and content from anybody.

use std::net::UdpSocket;
use std::time::Duration;

use crate::support::capture::{Capture, udp_payload};
use crate::support::{Pair, Result, Scene, Sut, ensure, inside, keys, scene, seconds, traffic};

/// The largest UDP payload in an IPv4 packet.
const PAYLOAD_BYTES_MAX: usize = 65_507;

/// Every size up to 2048, then every 61st, then the largest.
fn sizes() -> impl Iterator<Item = usize> {
    (0..=2048).chain((2049..PAYLOAD_BYTES_MAX).step_by(61)).chain([PAYLOAD_BYTES_MAX])
}

/// Bytes that look like a message of type `kind` at first sight.
fn pretend(kind: u8, size: usize, seed: &[u8; 32]) -> Vec<u8> {
    let byte = |i: usize| seed[i % 32].wrapping_add((i / 32) as u8);
    let mut bytes: Vec<u8> = (0..size).map(byte).collect();
    for (place, value) in bytes.iter_mut().zip([kind, 0, 0, 0]) {
        *place = value;
    }
    bytes
}

/// Sends all sizes as all kinds to `target`; datagrams a second are bounded.
fn send_all(target: &str) -> Result<usize> {
    let any = if target.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any)?;
    let mut sent = 0;
    for (number, size) in sizes().enumerate() {
        for kind in [0, 1, 2, 3, 4, 5, 255] {
            // What the host itself refuses to send does not count.
            let went = socket.send_to(&pretend(kind, size, &keys::random()), target);
            sent += usize::from(went.is_ok());
        }
        if number % 16 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(sent)
}

/// A pair over veth and a stranger with a veth of its own to `two`.
fn with_stranger(scene: &Scene) -> Result<(Pair, lab::netns::Host)> {
    let pair = Pair::over_veth(scene)?;
    let stranger = scene.host("stranger")?;
    scene.veth(
        (&stranger, "vs", &["10.66.0.1/24", "fd66::1/64"]),
        (&pair.two.host, "vs", &["10.66.0.2/24", "fd66::2/64"]),
    )?;
    pair.settle()?;
    Ok((pair, stranger))
}

#[test]
fn dp_18_datagrams_of_every_size_do_not_stop_a_stream() -> Result<()> {
    scene("b20", |scene| {
        let (pair, stranger) = with_stranger(scene)?;
        let (one, two) = (&pair.one, &pair.two);
        let _server = traffic::iperf_server(&two.host, two.v4)?;
        let client = one.host.spawn(&[
            "iperf3",
            "-c",
            two.v4,
            "-p",
            "5201",
            "-t",
            "60",
            "-i",
            "0.5",
            "--forceflush",
            "-C",
            "cubic",
        ])?;
        client.wait_for(|log| log.contains("bits/sec"))?;
        let lines_before = client.log().lines().count();
        let mut sent = 0;
        for target in ["10.66.0.2:10002", "[fd66::2]:10002"] {
            sent += inside::inside(&stranger, || send_all(target))?;
        }
        // From the very host of the peer as well, which has the peer's address.
        sent += inside::inside(&one.host, || send_all("10.9.0.2:10002"))?;
        std::thread::sleep(seconds(1));
        let log = client.log();
        ensure!(client.is_running(), "the stream ended:\n{log}");
        let during: Vec<&str> = log.lines().skip(lines_before).collect();
        let moved = |line: &&&str| line.contains("bits/sec") && !line.contains(" 0.00 bits/sec");
        let alive = during.iter().filter(moved).count();
        eprintln!("{sent} odd datagrams; the stream moved in {alive} of {} steps", during.len());
        ensure!(alive >= 2 && alive == during.len(), "the stream stood still:\n{log}");
        two.ping_once(one.v4)?;
        super::refusals::alive(&[&one.daemon, &two.daemon])
    })
}

#[test]
fn dp_19_a_stranger_is_never_answered() -> Result<()> {
    scene("b21", |scene| {
        let (pair, stranger) = with_stranger(scene)?;
        let capture = Capture::start(&stranger, "vs")?;
        for target in ["10.66.0.2:10002", "[fd66::2]:10002"] {
            inside::inside(&stranger, || send_all(target))?;
        }
        std::thread::sleep(Duration::from_millis(500));
        let packets = capture.stop()?;
        let answers: Vec<usize> = packets
            .iter()
            .filter_map(|packet| udp_payload(packet))
            .filter(|(from, _, _)| *from == 10002)
            .map(|(_, _, payload)| payload.len())
            .collect();
        ensure!(answers.is_empty(), "a stranger got answers of these sizes: {answers:?}");
        let at = pair.two.daemon.endpoint(&pair.one.keys.public_text())?;
        ensure!(at == pair.one.endpoint_v4(), "a stranger moved the endpoint to {at}");
        Ok(())
    })
}

#[test]
fn dp_16_replayed_and_altered_datagrams_change_nothing() -> Result<()> {
    scene("b22", |scene| {
        let (pair, stranger) = with_stranger(scene)?;
        let (one, two) = (&pair.one, &pair.two);
        let capture = Capture::start(&two.host, "vb")?;
        one.daemon.process.stop()?;
        scene.forget(&one.daemon);
        let again = scene.daemon(&Sut::under_test(), &one.host, &one.daemon.ifname)?;
        again.set_config(&one.config(two, pair.psk.as_deref(), Some(&two.endpoint_v4())))?;
        one.host.bring_up(&again.ifname, &["10.77.0.1/24", "fd77::1/64"])?;
        one.flood_ping(two.v4, 20)?;
        let packets = capture.stop()?;
        let to_two: Vec<Vec<u8>> = packets
            .iter()
            .filter_map(|packet| udp_payload(packet))
            .filter(|(_, port, _)| *port == 10002)
            .map(|(_, _, payload)| payload.to_vec())
            .collect();
        ensure!(to_two.iter().any(|p| p.len() == 148), "no initiation was captured");
        ensure!(to_two.len() > 20, "only {} datagrams were captured", to_two.len());
        let peer = one.keys.public_text();
        let before = (two.daemon.endpoint(&peer)?, two.daemon.handshake_s(&peer)?);
        let rx_packets = rx_packets(&two.host, &two.daemon.ifname)?;
        let capture = Capture::start(&stranger, "vs")?;
        inside::inside(&stranger, || replay(&to_two, "10.66.0.2:10002"))?;
        let answers = capture.stop()?;
        let answered = answers.iter().filter_map(|p| udp_payload(p)).filter(|p| p.0 == 10002);
        ensure!(answered.count() == 0, "replays were answered");
        let after = (two.daemon.endpoint(&peer)?, two.daemon.handshake_s(&peer)?);
        ensure!(before == after, "replays changed {before:?} to {after:?}");
        let grown = self::rx_packets(&two.host, &two.daemon.ifname)? - rx_packets;
        ensure!(grown == 0, "{grown} replayed packets were delivered");
        one.ping_once(two.v4)?;
        two.ping_once(one.v4)?;
        Ok(())
    })
}

fn rx_packets(host: &lab::netns::Host, ifname: &str) -> Result<u64> {
    let text = host.run(&["ip", "-s", "-j", "link", "show", ifname])?;
    let all: serde_json::Value = serde_json::from_str(&text)?;
    Ok(all[0]["stats64"]["rx"]["packets"].as_u64().unwrap_or_default())
}

/// Every datagram ten times as it was, then with each of its bytes flipped.
fn replay(datagrams: &[Vec<u8>], target: &str) -> Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    for datagram in datagrams {
        for _ in 0..10 {
            socket.send_to(datagram, target)?;
        }
    }
    for datagram in datagrams.iter().take(8) {
        for place in 0..datagram.len() {
            let mut altered = datagram.clone();
            altered[place] ^= 1 << (place % 8);
            socket.send_to(&altered, target)?;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(300));
    Ok(())
}
