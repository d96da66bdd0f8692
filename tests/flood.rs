//! Threat DP-01: 84,000 bogus initiations a second against an established stream.
//!
//! Two nodes carry a TCP stream while a third host, with a cable of its own to the receiver,
//! sends initiations from 32,000 invented addresses. There are three kinds: garbage of the right
//! length and type; initiations that are right up to their last byte but come from nobody we
//! know (their mac1 holds, so each costs a Diffie-Hellman unless it is refused before); and
//! replays of one initiation that was accepted before.
//!
//! A flood costs the machine something even if no program listens, and here the flooder itself
//! runs on the same processors. So the stream is compared with its own rate under the *same* flood
//! against a port where nobody listens. Runs alternate, and medians are compared.
//!
//! Required: at least 60 % of the rate, on two processors that five programs share with whatever
//! else the machine does; in the soak, for a machine that does nothing else, 80 %. Less than three
//! times the 99th percentile of the round-trip time, and a new handshake of a legitimate peer at
//! the latest with its first repetition.

mod support;

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};
use support::flooder::{Flood, SOURCES};
use support::traffic::{self, Pinger};
use support::{
    Context as _, Host, KeyPair, Pair, Result, Scene, Sut, bail, ensure, inside, keys,
    scene::scene_alone, seconds, sut,
};

/// Initiations a second: 100 Mbit/s of them.
const RATE: f64 = 84_000.0;
/// What of this a slow machine must reach for the test to mean anything.
const RATE_SHARE_MIN: f64 = 0.9;
const TARGET: Ipv4Addr = Ipv4Addr::new(10, 66, 0, 2);
/// Nobody listens there.
const CLOSED_PORT: u16 = 9;
const ROUNDS: usize = 3;
const ATTEMPTS: u32 = 4;
const STREAM_S: &str = "1";
const INITIATION_BYTES: usize = 148;
/// How many different ones there are; nobody would remember them.
const POOL: usize = 4096;

const STREAM_SHARE_MIN: f64 = 0.6;
const STREAM_SHARE_MIN_SOAK: f64 = 0.8;
/// Where others contend for the processors, what the flood costs is taken from the stream at once.
const BUSY_SHARE_MIN: f64 = 0.4;
const BUSY_MIN: f64 = 0.25;
const RTT_RATIO_MAX: f64 = 3.0;
/// An initiator that is sent a cookie repeats itself 5 s later, up to a third of a second more
/// (WireGuard paper, sections 5.4.7 and 6.1): that is one repetition and no second.
const HANDSHAKE_MAX: Duration = Duration::from_millis(5_600);

#[test]
fn dp_01_a_flood_of_garbage_initiations_leaves_the_stream_alone() -> Result<()> {
    garbage(STREAM_SHARE_MIN)
}

#[test]
fn dp_01_a_flood_of_initiations_with_a_right_mac1_leaves_the_stream_alone() -> Result<()> {
    strangers(STREAM_SHARE_MIN)
}

#[test]
fn dp_01_a_flood_of_replayed_initiations_leaves_the_stream_alone() -> Result<()> {
    replays(STREAM_SHARE_MIN)
}

#[test]
#[ignore = "soak"]
fn dp_01_four_fifths_of_the_stream_are_left() -> Result<()> {
    garbage(STREAM_SHARE_MIN_SOAK)?;
    strangers(STREAM_SHARE_MIN_SOAK)?;
    replays(STREAM_SHARE_MIN_SOAK)
}

fn garbage(asked: f64) -> Result<()> {
    flooded("f1", ("garbage", asked), |_| {
        let one = || {
            let mut bytes = vec![0; INITIATION_BYTES];
            bytes.chunks_mut(32).for_each(|c| c.copy_from_slice(&keys::random()[..c.len()]));
            bytes[..4].copy_from_slice(&[1, 0, 0, 0]);
            bytes
        };
        Ok((0..POOL).map(|_| one()).collect())
    })
}

fn strangers(asked: f64) -> Result<()> {
    flooded("f2", ("right mac1, strangers' keys", asked), |pair| {
        let responder = PublicKey::from(pair.two.keys.public);
        (0..POOL).map(|_| initiation(KeyPair::new().secret, responder)).collect()
    })
}

fn replays(asked: f64) -> Result<()> {
    // As many copies as there are other kinds, so that all floods cost the flooder the same.
    flooded("f3", ("replays", asked), |pair| Ok(vec![captured(pair)?; POOL]))
}

/// A complete initiation to `responder`, made by boringtun.
fn initiation(secret: [u8; 32], responder: PublicKey) -> Result<Vec<u8>> {
    let mut tunn = Tunn::new(StaticSecret::from(secret), responder, None, None, 1, None);
    let mut out = [0; INITIATION_BYTES];
    match tunn.format_handshake_initiation(&mut out, true) {
        TunnResult::WriteToNetwork(bytes) => Ok(bytes.to_vec()),
        other => bail!("boringtun made {other:?}"),
    }
}

/// An initiation of `one` that `two` has accepted.
fn captured(pair: &Pair) -> Result<Vec<u8>> {
    let (one, two) = (&pair.one, &pair.two);
    let trap = inside::inside(&two.host, || Ok(UdpSocket::bind("10.9.0.2:10003")?))?;
    trap.set_read_timeout(Some(seconds(12)))?;
    let peer = two.keys.public_text();
    one.daemon.set(&format!("peer {peer} remove"))?;
    sleep(Duration::from_millis(50));
    one.daemon.sync_config(&one.config(two, pair.psk.as_deref(), Some("10.9.0.2:10003")))?;
    // It gets no answer; it is sent to be caught.
    let _ = one.ping_once(two.v4);
    let mut datagram = [0; 2048];
    let n = trap.recv(&mut datagram).context("no initiation was caught")?;
    ensure!(n == INITIATION_BYTES, "{n} bytes were caught");
    inside::inside(&one.host, || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        Ok(socket.send_to(&datagram[..n], "10.9.0.2:10002")?)
    })?;
    sleep(Duration::from_millis(100));
    one.point_at(two, &two.endpoint_v4())?;
    support::eventually("the link is back", seconds(15), || one.ping_once(two.v4).is_ok())?;
    Ok(datagram[..n].to_vec())
}

/// What one run gave.
struct Run {
    bits_s: f64,
    rtt_ms: Vec<f64>,
    pings_lost: u64,
    flood_rate: f64,
}

fn flooded(
    id: &str,
    (kind, asked): (&str, f64),
    make: impl Fn(&Pair) -> Result<Vec<Vec<u8>>>,
) -> Result<()> {
    scene_alone(id, |scene| {
        sut::QUIET.store(true, Ordering::Relaxed);
        let pair = Pair::over_veth(scene)?;
        let flooder = cable_to_flooder(scene, &pair)?;
        pair.settle()?;
        let payloads = Arc::new(make(&pair)?);
        let run = |port: u16| run(&pair, &flooder, port, &payloads);
        let flood = Flood::start(&flooder, (TARGET, pair.two.port), RATE, payloads.clone())?;
        // While it begins, the flood is as new as the peer.
        sleep(seconds(3));
        let handshake = new_peer(scene, &pair);
        flood.stop()?;
        for attempt in 1.. {
            let busy = others_share()?;
            let (mut quiet, mut loud) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                quiet.push(run(CLOSED_PORT)?);
                loud.push(run(pair.two.port)?);
            }
            // Five rounds do not always outlast what else a machine does.
            let busy = busy.max(others_share()?);
            match judge((kind, asked), [&quiet, &loud], &handshake, busy) {
                Err(error) if attempt < ATTEMPTS => eprintln!("  once more: {error:#}"),
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        pair.one.ping_once(pair.two.v4)?;
        let rss_kib = pair.two.daemon.process.rss_kib();
        eprintln!("  resident memory of the flooded program afterwards: {rss_kib} KiB");
        ensure!(pair.two.daemon.process.is_running(), "the flooded program ended");
        Ok(())
    })
}

/// A host with a veth to `two`, whose invented addresses all lead back to it.
fn cable_to_flooder(scene: &Scene, pair: &Pair) -> Result<Host> {
    let flooder = scene.host("flooder")?;
    let two = &pair.two.host;
    scene.veth((&flooder, "vfl", &["10.66.0.1/17"]), (two, "vfl", &["10.66.0.2/17"]))?;
    two.sh(&format!("ip route add {SOURCES} via 10.66.0.1"))?;
    // What is answered ends here, without a word.
    flooder.sh("nft 'add table ip t; \
         add chain ip t p { type filter hook prerouting priority raw; }; \
         add rule ip t p ip daddr 10.66.128.0/17 drop'")?;
    Ok(flooder)
}

fn run(pair: &Pair, flooder: &Host, port: u16, payloads: &Arc<Vec<Vec<u8>>>) -> Result<Run> {
    let (one, two) = (&pair.one, &pair.two);
    let flood = Flood::start(flooder, (TARGET, port), RATE, payloads.clone())?;
    sleep(Duration::from_millis(300));
    // At 10 ms and less, ping waits in a busy loop.
    let pinger = Pinger::start(&one.host, two.v4, 20)?;
    let options = ["-t", STREAM_S, "-C", "cubic", "-Z"];
    let report = traffic::iperf(&one.host, &two.host, two.v4, &options);
    let pings = pinger.stop()?;
    let flood_rate = flood.stop()?;
    let bits_s = traffic::received_bits_s(&report?);
    Ok(Run { bits_s, pings_lost: pings.lost(), rtt_ms: pings.rtt_ms, flood_rate })
}

/// How long a peer that was never seen takes from its first packet to the answer.
fn new_peer(scene: &Scene, pair: &Pair) -> Result<Duration> {
    let host = scene.host("new")?;
    scene.veth((&host, "vn", &["10.67.0.1/24"]), (&pair.two.host, "vn", &["10.67.0.2/24"]))?;
    let keys = KeyPair::new();
    let daemon = scene.daemon(&Sut::under_test(), &host, &scene.ifname("n"))?;
    daemon.set_config(&format!(
        "[Interface]\nPrivateKey={}\n[Peer]\nPublicKey={}\nAllowedIPs=10.77.0.2/32\n\
         Endpoint=10.67.0.2:10002\n",
        keys.private_text(),
        pair.two.keys.public_text()
    ))?;
    let words = format!("peer {} allowed-ips 10.77.0.9/32", keys.public_text());
    pair.two.daemon.set(&words)?;
    host.bring_up(&daemon.ifname, &["10.77.0.9/24"])?;
    sleep(Duration::from_millis(300));
    let start = Instant::now();
    let reached = || {
        let argv = ["ping", "-n", "-c", "1", "-W", "0.2", "10.77.0.2"];
        host.run(&argv).is_ok()
    };
    support::eventually("a new peer is answered", seconds(20), reached)?;
    Ok(start.elapsed())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn p99_ms(runs: &[Run]) -> f64 {
    let mut all: Vec<f64> = runs.iter().flat_map(|run| run.rtt_ms.iter().copied()).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() * 99 / 100).copied().unwrap_or(f64::INFINITY)
}

/// The share of its processors that the machine spends while nothing of ours runs.
fn others_share() -> Result<f64> {
    let read = || -> Result<(u64, u64)> {
        let text = std::fs::read_to_string("/proc/stat")?;
        let line = text.lines().next().context("/proc/stat is empty")?;
        let all: Vec<u64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        // user nice system idle iowait ...
        Ok((all.iter().take(8).sum(), all.iter().skip(3).take(2).sum()))
    };
    let (all, idle) = read()?;
    sleep(seconds(1));
    let (all_later, idle_later) = read()?;
    Ok(1.0 - (idle_later - idle) as f64 / (all_later - all).max(1) as f64)
}

fn judge(
    (kind, asked): (&str, f64),
    [quiet, loud]: [&[Run]; 2],
    handshake: &Result<Duration>,
    busy: f64,
) -> Result<()> {
    let rate = |runs: &[Run]| median(runs.iter().map(|run| run.bits_s).collect());
    let lost = |runs: &[Run]| runs.iter().map(|run| run.pings_lost).sum::<u64>();
    let flood_rate = median(loud.iter().map(|run| run.flood_rate).collect());
    let share = rate(loud) / rate(quiet);
    let (rtt_quiet, rtt_loud) = (p99_ms(quiet), p99_ms(loud));
    let ratio = rtt_loud / rtt_quiet;
    eprintln!("flood of {kind}, {flood_rate:.0} a second, of {ROUNDS} runs each:");
    eprintln!(
        "  stream: {:.3} of {:.3} Gbit/s, {:.0} %",
        rate(loud) / 1e9,
        rate(quiet) / 1e9,
        share * 100.0
    );
    eprintln!(
        "  ping p99: {rtt_loud:.2} against {rtt_quiet:.2} ms, {ratio:.2} times; lost: {} \
        against {}",
        lost(loud),
        lost(quiet)
    );
    eprintln!("  a new peer's handshake: {handshake:?}");
    ensure!(flood_rate >= RATE * RATE_SHARE_MIN, "the flood reached {flood_rate:.0} a second");
    let is_busy = busy > BUSY_MIN;
    if is_busy {
        eprintln!(
            "  OTHERS USE {:.0} % OF THIS MACHINE: {:.0} % are asked instead of {:.0} %",
            busy * 100.0,
            BUSY_SHARE_MIN * 100.0,
            asked * 100.0
        );
    }
    let asked = if is_busy { BUSY_SHARE_MIN } else { asked };
    ensure!(share >= asked, "the stream kept {:.0} % of its rate", share * 100.0);
    ensure!(ratio < RTT_RATIO_MAX, "the 99th percentile of pings grew {ratio:.2} times");
    match handshake {
        Ok(took) => ensure!(*took <= HANDSHAKE_MAX, "a new peer's handshake took {took:?}"),
        Err(error) => bail!("a new peer got no handshake: {error:#}"),
    }
    Ok(())
}
