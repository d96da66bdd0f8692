//! Daemons whose network lets UDP pass to their relay and nowhere else, or not even there.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use lab::netns::Host;
use sim::impair::Impairment;

use crate::daemons::{INSIDE, NOTHING, Network, SERVER, THE_RELAYS_PORT};
use crate::support::{Scene, eventually, inside, seconds, traffic};

/// Until both reach each other by this.
fn carried(network: &Network, carrier: &str, within: Duration) -> Result<Duration> {
    let is = |number| {
        network.way(number).is_ok_and(|way| way["kind"] == "relay" && way["carrier"] == carrier)
    };
    eventually(&format!("relayed by {carrier}"), within, || is(0) && is(1))
}

/// No UDP passes from now on, in either direction.
fn cut(host: &Host) -> Result<()> {
    host.sh("nft insert rule inet nothing out oifname eth0 meta l4proto udp drop
         nft insert rule inet nothing in iifname eth0 meta l4proto udp drop")?;
    Ok(())
}

fn mend(host: &Host) -> Result<()> {
    host.sh("for chain in in out; do
             handle=$(nft -a list chain inet nothing $chain | grep 'udp drop' | head -n 1)
             nft delete rule inet nothing $chain handle ${handle##* }
         done")?;
    Ok(())
}

/// Each node counts what became of its streams: those over QUIC and HTTPS, at least so many, and
/// those over QUIC that broke.
fn counted(network: &Network, quic: u64, https: u64, broken: u64) -> Result<()> {
    for number in 0..2 {
        let status = network.node(number, &["status", "--json"])?;
        let status: serde_json::Value = serde_json::from_str(&status)?;
        let relay = &status["relays"][0];
        let count = |pointer: &str| relay.pointer(pointer).and_then(serde_json::Value::as_u64);
        ensure!(relay["connected"] == true && count("/streams/quic") >= Some(quic), "{relay}");
        ensure!(count("/streams/https") >= Some(https), "{relay}");
        ensure!(count("/quic_broken") >= Some(broken), "{relay}");
        ensure!(count("/stream/sent") > Some(0) && count("/stream/received") > Some(0), "{relay}");
    }
    Ok(())
}

/// By QUIC, then by HTTPS in the middle of a transfer, then by QUIC again.
pub(crate) fn quic_until_it_is_cut(scene: &Scene) -> Result<()> {
    const BYTES: u64 = 150_000_000;
    let network = Network::new(scene, THE_RELAYS_PORT)?;
    eprintln!("an echo after {:?}", network.reaches(0)?);
    carried(&network, "quic", seconds(10))?;
    for number in 0..2 {
        let way = network.way(number)?;
        let mtu = way["mtu"].as_u64().unwrap_or(0);
        ensure!((1280..1420).contains(&mtu), "what a datagram of QUIC holds: {way}");
    }
    counted(&network, 1, 0, 0)?;
    let [a, b] = network.hosts.each_ref().map(Clone::clone);
    eprintln!("20 MB took {:?}", traffic::exact_stream(&a, &b, INSIDE[1], 20_000_000)?);
    let before = network.node_cpu_s(0);
    std::thread::sleep(seconds(2));
    let idle = network.node_cpu_s(0) - before;
    ensure!(idle < 0.3, "{idle} s of the processor in 2 s without a packet");
    // Packets of all sizes cross, fragmented by their sender where they must be.
    for size in ["100", "1200", "1300", "1400", "3000"] {
        let ping = ["ping", "-c", "3", "-i", "0.1", "-W", "1", "-s", size, INSIDE[1]];
        eventually(&format!("echoes of {size} bytes"), seconds(5), || a.run(&ping).is_ok())?;
    }
    let (from, to) = (a.clone(), b.clone());
    let transfer = std::thread::spawn(move || traffic::exact_stream(&from, &to, INSIDE[1], BYTES));
    std::thread::sleep(Duration::from_millis(300));
    ensure!(!transfer.is_finished(), "the transfer is too short to be cut");
    let begin = Instant::now();
    cut(&a)?;
    cut(&b)?;
    carried(&network, "https", seconds(15))?;
    eprintln!("by https {:?} after the cut", begin.elapsed());
    eprintln!("{BYTES} bytes took {:?}, with a cut", inside::join(transfer)?);
    mend(&a)?;
    mend(&b)?;
    eprintln!("by quic again {:?} after UDP passed", carried(&network, "quic", seconds(60))?);
    traffic::exact_stream(&b, &a, INSIDE[0], 20_000_000)?;
    counted(&network, 2, 1, 1)
}

/// From the start of a daemon to its first echo, where the relay answers QUIC and UDP is dropped,
/// beside a relay that answers none.
pub(crate) fn no_more_than_the_head_start(scene: &Scene) -> Result<()> {
    let mut network = Network::new(scene, NOTHING)?;
    network.reaches(0)?;
    carried(&network, "https", seconds(5))?;
    let mut took = |options: &[&str]| -> Result<Duration> {
        network.restart_server(options)?;
        let mut best = Duration::MAX;
        for _ in 0..3 {
            best = best.min(network.restart_node(0)?);
        }
        Ok(best)
    };
    let without = took(&["--no-quic"])?;
    let with = took(&[])?;
    eprintln!("first echo: {without:?} without QUIC, {with:?} where it is swallowed");
    // Twice what was promised, for a machine that is busy; silence would cost seconds.
    ensure!(with < without + dial::relay::HEAD_START * 2, "{with:?} beside {without:?}");
    Ok(())
}

/// Mbit/s of one TCP stream over a relay whose lines lose 1 % each: with repair, and without.
pub(crate) fn repair_over_lines_that_lose(scene: &Scene) -> Result<()> {
    let weather = Impairment { delay_us: 2_000, loss: 0.01, ..Impairment::LINE };
    let mut network = Network::with(scene, THE_RELAYS_PORT, Some(weather))?;
    let mut rates = Vec::new();
    for frames in ["on", "off"] {
        network.set_options(&["--frames", frames]);
        network.restart_node(0)?;
        network.restart_node(1)?;
        carried(&network, "quic", seconds(30))?;
        let [a, b] = &network.hosts;
        let options = ["-t", "4", "-O", "1", "-C", "cubic"];
        rates.push(traffic::tcp(a, b, INSIDE[1], &options)? / 1e6);
        carried(&network, "quic", seconds(10))?;
    }
    eprintln!("1 % lost on each line: {:.1} Mbit/s with repair, {:.1} without", rates[0], rates[1]);
    ensure!(rates[0] > 3.0 * rates[1], "{rates:?}");
    Ok(())
}

/// First datagrams of connections from as many addresses, which are never followed by a second.
fn flood(count: u16, sent: &AtomicU64) -> Result<()> {
    let sink = UdpSocket::bind("127.0.0.1:0")?;
    let mut datagram = [0; 1500];
    for [high, low] in (0..count).map(u16::to_be_bytes) {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(sink.local_addr()?)?;
        let mut line = quic::Line::open(socket, dial::tls::quic_config(), SERVER)?;
        line.flush(Instant::now());
        let len = sink.recv(&mut datagram)?;
        let address = Ipv4Addr::new(10, 77, high, low);
        let from = UdpSocket::bind((address, 0)).with_context(|| format!("at {address}"))?;
        let to = from.send_to(&datagram[..len], (SERVER, 443));
        to.with_context(|| format!("from {address}"))?;
        sent.fetch_add(1, Ordering::Relaxed);
        // Its goodbye.
        drop(line);
        let _ = sink.recv(&mut [0; 1500])?;
    }
    Ok(())
}

/// Thousands of half-open connections cost a bounded memory, and keep no member out.
pub(crate) fn half_open_connections_are_bounded(scene: &Scene) -> Result<()> {
    const COUNT: u16 = 20_000;
    let mut network = Network::new(scene, THE_RELAYS_PORT)?;
    network.reaches(0)?;
    carried(&network, "quic", seconds(10))?;
    let a = network.hosts[0].clone();
    a.run(&["ip", "route", "add", "local", "10.77.0.0/16", "dev", "lo"])?;
    network.server.run(&["ip", "route", "add", "10.77.0.0/16", "via", "192.0.2.2"])?;
    let before = network.server_kib();
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    let flooding = inside::start(&a, move || flood(COUNT, &count))?;
    eventually("a part of the flood", seconds(30), || {
        flooding.is_finished() || sent.load(Ordering::Relaxed) > u64::from(COUNT) / 20
    })?;
    if flooding.is_finished() {
        inside::join(flooding)?;
        bail!("the flood is too short to be tried");
    }
    eprintln!("a node is back {:?} after its start", network.restart_node(0)?);
    carried(&network, "quic", seconds(20))?;
    inside::join(flooding)?;
    let grown = network.server_kib().saturating_sub(before);
    eprintln!("{COUNT} half-open connections: {grown} KiB more than the {before} before");
    ensure!(grown < 32 * 1024, "{grown} KiB");
    network.reaches(1)?;
    Ok(())
}

/// Floods one after the other, each from as many addresses: what they cost does not add up.
pub(crate) fn half_open_connections_do_not_add_up(scene: &Scene) -> Result<()> {
    const COUNT: u16 = 20_000;
    const ROUNDS: usize = 25;
    let network = Network::new(scene, THE_RELAYS_PORT)?;
    network.reaches(0)?;
    carried(&network, "quic", seconds(10))?;
    let a = network.hosts[0].clone();
    a.run(&["ip", "route", "add", "local", "10.77.0.0/16", "dev", "lo"])?;
    network.server.run(&["ip", "route", "add", "10.77.0.0/16", "via", "192.0.2.2"])?;
    let mut after = Vec::new();
    for round in 1..=ROUNDS {
        let sent = AtomicU64::new(0);
        inside::join(inside::start(&a, move || flood(COUNT, &sent))?)?;
        after.push(network.server_kib());
        eprintln!(
            "after {} half-open connections: {} KiB",
            round * usize::from(COUNT),
            after[round - 1]
        );
        // Members go on meanwhile.
        network.reaches(round % 2)?;
        carried(&network, "quic", seconds(20))?;
    }
    // The first rounds fill what is kept for later use.
    let (early, last) = (after[4], after[ROUNDS - 1]);
    ensure!(last < early + 8 * 1024, "{early} KiB after five floods, {last} at the end");
    Ok(())
}

/// The round trip without load and beside five streams of TCP, over lines of 20 ms there and back
/// that lose 3 % each way, by HTTPS and by QUIC.
pub(crate) fn round_trips_under_load(scene: &Scene) -> Result<()> {
    let weather = Impairment {
        delay_us: 5_000,
        loss: 0.03,
        rate_bps: 100_000_000,
        limit_packets: 200,
        ..Impairment::LINE
    };
    let mut network = Network::with(scene, THE_RELAYS_PORT, Some(weather))?;
    for (carrier, options) in [("https", &["--no-quic"][..]), ("quic", &[])] {
        for _ in 0..3 {
            network.restart_server(options)?;
            network.restart_node(0)?;
            network.restart_node(1)?;
            carried(&network, carrier, seconds(60))?;
            let idle = pings(&network.hosts[0])?;
            let [a, b] = network.hosts.each_ref().map(Clone::clone);
            let load = std::thread::spawn(move || {
                traffic::iperf(&a, &b, INSIDE[1], &["-P", "5", "-t", "12", "-C", "cubic"])
            });
            std::thread::sleep(seconds(2));
            let loaded = pings(&network.hosts[0])?;
            let rate = traffic::received_bits_s(&inside::join(load)?) / 1e6;
            let [idle_ms, _, _] = idle;
            let [middle_ms, late_ms, lost] = loaded;
            eprintln!(
                "{carrier}: idle {idle_ms:.1} ms; with 5 streams ({rate:.1} Mbit/s) the median is \
                 {middle_ms:.1} ms, 95 % are below {late_ms:.1} ms, {lost:.1} % of echoes are lost"
            );
            carried(&network, carrier, seconds(1))?;
        }
    }
    Ok(())
}

/// Of echoes within 8 s: the median, the time below which 95 % are, and the share of lost ones.
fn pings(host: &Host) -> Result<[f64; 3]> {
    let ping = ["ping", "-n", "-i", "0.05", "-c", "160", "-W", "2", INSIDE[1]];
    let output = host.output(&ping)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let times = text.split("time=").skip(1);
    let times = times.filter_map(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    let mut times: Vec<f64> = times.collect();
    ensure!(!times.is_empty(), "no echo at all: {text}");
    times.sort_by(f64::total_cmp);
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    Ok([at(50), at(95), 100.0 - times.len() as f64 / 1.6])
}
