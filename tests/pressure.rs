//! Source 002, statement 8: who sends UDP without limit is made to wait, and nothing is dropped in
//! silence on the way.
//!
//! A sender as fast as its processor fills a link that carries less: once because the line under
//! it is narrow, and once because the machine is busy. The receiver's buffer is made large, so that
//! what is lost is lost on the way. Rivals and the kernel's own WireGuard lose most of it in their
//! queues, while to the sender all was sent.

mod support;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::scene::scene_alone;
use support::{Context as _, Host, Outer, Pair, Plan, Result, Sut, ensure, inside, traffic};

const DATAGRAM_LEN: usize = 1200;
const TIME: Duration = Duration::from_secs(4);
const RECEIVE_BUFFER_LEN: i32 = 256 << 20;

/// What came of a flood.
struct Flood {
    sent: u64,
    received: u64,
    bits_s: f64,
}

fn flood(from: &Host, to: &Host, address: &str) -> Result<Flood> {
    let receiver = inside::inside(to, || Ok(UdpSocket::bind((address, 0))?))?;
    inside::force_receive_buffer(&receiver, RECEIVE_BUFFER_LEN)?;
    receiver.set_read_timeout(Some(Duration::from_millis(1500)))?;
    let target = receiver.local_addr()?;
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let sender = inside::start(from, move || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        let mut sent = 0;
        while !told.load(Ordering::Relaxed) {
            socket.send_to(&[0x5a; DATAGRAM_LEN], target).context("a socket that must wait")?;
            sent += 1;
        }
        Ok(sent)
    })?;
    let counter = inside::start(to, move || {
        let mut buffer = [0; 2048];
        let (mut received, mut first, mut last) = (0_u64, None, Instant::now());
        while receiver.recv(&mut buffer).is_ok() {
            received += 1;
            last = Instant::now();
            first.get_or_insert(last);
        }
        Ok((received, first.map_or(Duration::ZERO, |first| last - first)))
    })?;
    sleep(TIME);
    stop.store(true, Ordering::Relaxed);
    let sent = inside::join(sender)?;
    let (received, time) = inside::join(counter)?;
    let bits_s = (received * DATAGRAM_LEN as u64 * 8) as f64 / time.as_secs_f64();
    Ok(Flood { sent, received, bits_s })
}

fn statistic(host: &Host, ifname: &str, name: &str) -> Result<u64> {
    let said = host.run(&["ip", "-s", "-j", "link", "show", "dev", ifname])?;
    let all: serde_json::Value = serde_json::from_str(&said)?;
    all[0]["stats64"]["tx"][name].as_u64().with_context(|| format!("no {name} in {said}"))
}

/// Floods through a pair; tells what was seen, and the share that was lost.
fn flooded(id: &str, line_mbit_s: Option<u32>) -> Result<(Flood, f64)> {
    scene_alone(id, |scene| {
        let pair = Pair::with(scene, Plan { outer: Outer::Veth, ..Plan::default() })?;
        let (one, two) = (&pair.one, &pair.two);
        if let Some(rate) = line_mbit_s {
            one.host.sh(&format!(
                "tc qdisc add dev va root tbf rate {rate}mbit burst 128k limit 8mb"
            ))?;
        }
        pair.settle()?;
        let seen = flood(&one.host, &two.host, two.v4)?;
        let lost = 1.0 - seen.received as f64 / seen.sent as f64;
        let dropped = statistic(&one.host, &one.daemon.ifname, "dropped")?;
        eprintln!(
            "UDP without limit over {line_mbit_s:?} Mbit/s: {:.0} Mbit/s arrive, {} of {} lost \
             ({:.4} %), {dropped} of them at the interface",
            seen.bits_s / 1e6,
            seen.sent - seen.received,
            seen.sent,
            lost * 100.0
        );
        // The sender's wait must be short enough not to be noticed by others.
        pair.one.ping_once(two.v4)?;
        Ok((seen, lost))
    })
}

#[test]
fn source_002_8_a_narrow_line_makes_the_socket_wait_and_loses_nothing() -> Result<()> {
    if !Sut::under_test().is_warren() {
        eprintln!("skipped: no other implementation does this");
        return Ok(());
    }
    let flooded = || flooded("p1", Some(200));
    let (mut seen, mut lost) = flooded()?;
    // The ring holds a millisecond of a fast sender's; who is scheduled later than that loses some.
    for _ in 0..4 {
        if lost < 0.0001 {
            break;
        }
        eprintln!("once more");
        (seen, lost) = flooded()?;
    }
    ensure!(lost < 0.0001, "{:.4} % were lost", lost * 100.0);
    // 1200 bytes of 1288 on the line.
    let share = seen.bits_s / (200e6 * 1200.0 / 1288.0);
    ensure!(share > 0.9, "only {:.0} % of the line is used", share * 100.0);
    Ok(())
}

#[test]
fn source_002_8_a_busy_machine_makes_the_socket_wait() -> Result<()> {
    if !Sut::under_test().is_warren() {
        eprintln!("skipped: no other implementation does this");
        return Ok(());
    }
    let (_, lost) = flooded("p2", None)?;
    // Where programs contend for processors, one may be kept waiting longer than the ring lasts.
    ensure!(lost < 0.02, "{:.4} % were lost", lost * 100.0);
    Ok(())
}

/// TCP that fills a line of 100 Mbit/s behind a deep queue had its window of 4 MB in the
/// interface's ring, and a ping waited for it: 115 ms and more.
#[test]
fn source_002_13_who_pings_beside_a_stream_on_a_narrow_line_hardly_waits() -> Result<()> {
    if !Sut::under_test().is_warren() {
        eprintln!("skipped: no other implementation does this");
        return Ok(());
    }
    scene_alone("p5", |scene| {
        let pair = Pair::with(scene, Plan { outer: Outer::Veth, ..Plan::default() })?;
        let (one, two) = (&pair.one, &pair.two);
        one.host.sh("tc qdisc add dev va root tbf rate 100mbit burst 64k limit 8mb")?;
        pair.settle()?;
        let _server = traffic::iperf_server(&two.host, two.v4)?;
        let words = ["iperf3", "-c", two.v4, "-p", "5201", "-t", "8", "-C", "cubic", "-J"];
        let client = one.host.spawn(&words)?;
        sleep(Duration::from_secs(3));
        let pings = traffic::Pinger::start(&one.host, two.v4, 50)?;
        sleep(Duration::from_secs(4));
        let median_ms = pings.stop()?.quantile_ms(0.5);
        client.wait(Duration::from_secs(10))?;
        let told: serde_json::Value = serde_json::from_str(&client.log())?;
        let rate = told["end"]["sum_received"]["bits_per_second"].as_f64().context("no rate")?;
        eprintln!("{:.0} Mbit/s of TCP, pings wait {median_ms:.1} ms", rate / 1e6);
        ensure!(rate > 80e6, "{:.0} Mbit/s of 92", rate / 1e6);
        ensure!(median_ms < 45.0, "a ping waits {median_ms} ms");
        Ok(())
    })
}

/// The share of a core that the sender's program takes while TCP fills a line of 2 Mbit/s.
fn share_of_a_core(id: &str, v6: bool) -> Result<f64> {
    let share = scene_alone(id, |scene| {
        let pair = Pair::with(scene, Plan { outer: Outer::Veth, ..Plan::default() })?;
        let (one, two) = (&pair.one, &pair.two);
        one.host.sh("tc qdisc add dev va root tbf rate 2mbit burst 16k limit 8mb")?;
        if v6 {
            pair.use_ipv6()?;
        }
        pair.settle()?;
        let _server = traffic::iperf_server(&two.host, two.v4)?;
        let words = ["iperf3", "-c", two.v4, "-p", "5201", "-t", "30", "-P", "8", "-C", "cubic"];
        let client = one.host.spawn(&words)?;
        sleep(Duration::from_secs(4));
        let (start, cpu_s) = (Instant::now(), one.daemon.process.cpu_s());
        sleep(Duration::from_secs(3));
        let share = (one.daemon.process.cpu_s() - cpu_s) / start.elapsed().as_secs_f64();
        ensure!(client.is_running(), "the load ended:\n{}", client.log());
        Ok(share)
    })?;
    eprintln!("IPv6 {v6}: while its socket is full it takes {:.1} % of a core", share * 100.0);
    Ok(share)
}

#[test]
fn a_full_socket_is_waited_for_without_turning_in_circles() -> Result<()> {
    if !Sut::under_test().is_warren() {
        eprintln!("skipped: how others wait is their own");
        return Ok(());
    }
    // The other family's socket has room all the time.
    for (id, v6) in [("p3", false), ("p4", true)] {
        let share = share_of_a_core(id, v6)?;
        ensure!(share < 0.2, "{:.0} % of a core for 2 Mbit/s", share * 100.0);
    }
    Ok(())
}

/// A burst after a silence, and the acknowledgements of a fast stream, are no flood.
#[test]
fn a_stream_after_a_silence_is_not_held_back() -> Result<()> {
    scene_alone("p4", |scene| {
        let pair = Pair::with(scene, Plan { outer: Outer::Veth, ..Plan::default() })?;
        let (one, two) = (&pair.one, &pair.two);
        pair.settle()?;
        let mut rates = Vec::new();
        for _ in 0..4 {
            for more in [&["-t", "1"][..], &["-t", "1", "-R"]] {
                sleep(Duration::from_millis(300));
                let options = [&["-C", "cubic"], more].concat();
                rates.push(traffic::tcp(&one.host, &two.host, two.v4, &options)?);
            }
        }
        let mut sorted = rates.clone();
        sorted.sort_by(f64::total_cmp);
        let (least, median) = (sorted[0], sorted[sorted.len() / 2]);
        eprintln!("TCP for a second, to and fro: {rates:.0?} bit/s");
        ensure!(least > median / 5.0, "one ran at {least:.0} bit/s, half of them at {median:.0}");
        Ok(())
    })
}
