//! Load: iperf3, exact byte streams, UDP in single datagrams, round-trip times.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab::netns::Host;
use lab::process::Process;
use serde_json::Value;

use super::{Pair, inside};

/// Port of every iperf3 server; each has a host to itself.
const IPERF_PORT: &str = "5201";

/// Starts an iperf3 server for one run and waits until it listens.
pub fn iperf_server(host: &Host, address: &str) -> Result<Process> {
    let argv = ["iperf3", "-s", "-1", "-B", address, "-p", IPERF_PORT, "--forceflush"];
    let server = host.spawn(&argv)?;
    server.wait_for(|log| log.contains("listening"))?;
    Ok(server)
}

/// One run of iperf3 from `from` to `address` in `to`; returns what its JSON report says.
pub fn iperf(from: &Host, to: &Host, address: &str, options: &[&str]) -> Result<Value> {
    let _server = iperf_server(to, address)?;
    let mut argv = vec!["iperf3", "-J", "-c", address, "-p", IPERF_PORT];
    argv.extend(options);
    let output = from.output(&argv)?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("iperf3 {options:?} to {address} gave no report"))?;
    ensure!(output.status.success(), "iperf3 {options:?} to {address}: {}", report["error"]);
    Ok(report)
}

/// Bits a second that arrived, of a TCP run.
pub fn received_bits_s(report: &Value) -> f64 {
    report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0)
}

/// One TCP run that must move something; returns bits a second.
pub fn tcp(from: &Host, to: &Host, address: &str, options: &[&str]) -> Result<f64> {
    let mut all = vec!["-Z", "-t", "1", "-C", "cubic"];
    all.extend(options);
    let rate = received_bits_s(&iperf(from, to, address, &all)?);
    ensure!(rate > 1e6, "TCP to {address} {options:?} moved only {rate:.0} bit/s");
    Ok(rate)
}

/// One UDP run as fast as it goes, of which something must arrive.
pub fn udp(from: &Host, to: &Host, address: &str) -> Result<()> {
    let report = iperf(from, to, address, &["-Z", "-t", "1", "-u", "-b", "0"])?;
    let sum = &report["end"]["sum"];
    let packets = sum["packets"].as_f64().unwrap_or(0.0);
    let lost = sum["lost_packets"].as_f64().unwrap_or(packets);
    ensure!(packets - lost > 100.0, "of {packets} datagrams to {address}, {lost} were lost");
    Ok(())
}

/// The block of upstream's script that is run over each transport: flood pings, TCP and UDP, each
/// over both families, and parallel TCP.
pub fn all_kinds(pair: &Pair) -> Result<()> {
    let (one, two) = (&pair.one, &pair.two);
    two.flood_ping(one.v4, 10)?;
    one.flood_ping(two.v4, 10)?;
    two.flood_ping(one.v6, 10)?;
    one.flood_ping(two.v6, 10)?;
    let step = |what: &str| format!("in the step {what}");
    tcp(&two.host, &one.host, one.v4, &[]).with_context(|| step("TCP over IPv4"))?;
    tcp(&one.host, &two.host, two.v6, &[]).with_context(|| step("TCP over IPv6"))?;
    udp(&one.host, &two.host, two.v4).with_context(|| step("UDP over IPv4"))?;
    udp(&two.host, &one.host, one.v6).with_context(|| step("UDP over IPv6"))?;
    tcp(&two.host, &one.host, one.v4, &["-P", "5"]).with_context(|| step("parallel TCP"))?;
    Ok(())
}

/// Numbers that can be computed again at the other end (SplitMix64).
fn stream_byte(position: u64) -> u8 {
    let mut z = (position / 8).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()[(position % 8) as usize]
}

/// Sends `bytes` over one TCP connection; every byte must arrive as it was, and in time.
pub fn exact_stream(from: &Host, to: &Host, address: &str, bytes: u64) -> Result<Duration> {
    exact_stream_of(from, to, address, bytes, stream_byte)
}

/// The same with other bytes: `content` says which stands where.
pub fn exact_stream_of(
    from: &Host,
    to: &Host,
    address: &str,
    bytes: u64,
    content: fn(u64) -> u8,
) -> Result<Duration> {
    let listener = inside::inside(to, || Ok(TcpListener::bind((address, 0))?))?;
    let port = listener.local_addr()?.port();
    let start = Instant::now();
    let sender = {
        let address = address.to_owned();
        inside::start(from, move || {
            let mut stream = TcpStream::connect((address.as_str(), port))?;
            stream.set_write_timeout(Some(Duration::from_secs(20)))?;
            let mut at = 0;
            while at < bytes {
                let end = bytes.min(at + 65_536);
                let chunk: Vec<u8> = (at..end).map(content).collect();
                stream.write_all(&chunk).with_context(|| format!("sending at byte {at}"))?;
                at = end;
            }
            Ok(())
        })?
    };
    let (mut stream, _) = accept_within(&listener, Duration::from_secs(15))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut buffer = vec![0; 65_536];
    let mut at = 0;
    loop {
        let n = match stream.read(&mut buffer) {
            // A socket with a time limit is not restarted after a signal to this process.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            got => got.with_context(|| format!("receiving at byte {at}"))?,
        };
        if n == 0 {
            break;
        }
        for byte in &buffer[..n] {
            ensure!(*byte == content(at), "byte {at} of the stream is wrong");
            at += 1;
        }
    }
    inside::join(sender)?;
    ensure!(at == bytes, "{at} of {bytes} bytes arrived");
    Ok(start.elapsed())
}

fn accept_within(
    listener: &TcpListener,
    limit: Duration,
) -> Result<(TcpStream, std::net::SocketAddr)> {
    listener.set_nonblocking(true)?;
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, from)) => {
                stream.set_nonblocking(false)?;
                return Ok((stream, from));
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                ensure!(start.elapsed() < limit, "no connection within {limit:?}");
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends one datagram from `from` to a port in `to`; whether it arrived within `patience`.
pub fn udp_arrives(from: &Host, to: &Host, address: &str, patience: Duration) -> Result<bool> {
    let receiver = inside::inside(to, || Ok(UdpSocket::bind((address, 0))?))?;
    receiver.set_read_timeout(Some(patience))?;
    let target = receiver.local_addr()?;
    inside::inside(from, || {
        let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        UdpSocket::bind(any)?.send_to(b"one datagram", target)?;
        Ok(())
    })?;
    let mut buffer = [0; 64];
    Ok(receiver.recv(&mut buffer).is_ok_and(|n| &buffer[..n] == b"one datagram"))
}

/// Datagrams of one superpacket, and the bytes of each.
pub const SUPERPACKET: (u8, usize) = (20, 1200);

/// Hands over datagrams as one superpacket of UDP; each arrives as it was, in its order.
pub fn udp_superpacket(from: &Host, to: &Host, address: &str) -> Result<()> {
    let (count, size) = SUPERPACKET;
    let receiver = inside::inside(to, || Ok(UdpSocket::bind((address, 0))?))?;
    receiver.set_read_timeout(Some(Duration::from_secs(5)))?;
    let target = receiver.local_addr()?;
    let unit: Vec<u8> = (0..count).flat_map(|mark| vec![mark; size]).collect();
    inside::inside(from, || {
        let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let sender = UdpSocket::bind(any)?;
        inside::segment_udp(&sender, size)?;
        ensure!(sender.send_to(&unit, target)? == unit.len(), "it was cut");
        Ok(())
    })?;
    for mark in 0..count {
        let mut datagram = vec![0; size + 1];
        let len = receiver.recv(&mut datagram).with_context(|| format!("datagram {mark}"))?;
        ensure!(datagram[..len] == vec![mark; size], "{len} bytes of {}", datagram[0]);
    }
    Ok(())
}

/// Pings every `interval` in the background; tells afterwards what was lost.
pub struct Pinger {
    process: Process,
}

/// Bytes that a host sent on its cable, Ethernet's headers included.
pub fn sent_bytes(host: &Host) -> Result<u64> {
    let text = host.sh("cd /sys/class/net/va/statistics && cat tx_bytes")?;
    text.trim().parse().context("a counter")
}

/// How many requests ping sent, and how many were answered, by what it printed.
pub fn ping_counts(log: &str) -> Result<(u64, u64)> {
    let summary = log.lines().find(|line| line.contains("packets transmitted"));
    let summary = summary.with_context(|| format!("ping gave no summary:\n{log}"))?;
    let mut numbers = summary.split([' ', ',']).filter_map(|word| word.parse::<u64>().ok());
    let sent = numbers.next().context("ping's summary")?;
    let received = numbers.next().context("ping's summary")?;
    Ok((sent, received))
}

/// What the kernel of `host` counted of ICMP since it was made, over IPv4, by its name for that.
pub fn icmp(host: &Host, name: &str) -> Result<u64> {
    let text = host.run(&["cat", "/proc/net/snmp"])?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Icmp: "));
    let names = lines.next().context("the kernel counts no ICMP")?;
    let at = names.split(' ').position(|other| other == name).context(names.to_owned())?;
    let values = lines.next().and_then(|line| line.split(' ').nth(at)?.parse().ok());
    values.with_context(|| text.clone())
}

/// What a [`Pinger`] saw.
#[derive(Debug)]
pub struct Pings {
    pub sent: u64,
    pub received: u64,
    /// Round-trip times, sorted.
    pub rtt_ms: Vec<f64>,
}

impl Pings {
    pub fn lost(&self) -> u64 {
        self.sent - self.received
    }

    /// The time that `share` of the answers did not exceed; infinite if there was none.
    pub fn quantile_ms(&self, share: f64) -> f64 {
        let last = self.rtt_ms.len().saturating_sub(1);
        let index = ((self.rtt_ms.len() as f64 * share) as usize).min(last);
        self.rtt_ms.get(index).copied().unwrap_or(f64::INFINITY)
    }
}

impl Pinger {
    pub fn start(from: &Host, address: &str, interval_ms: u32) -> Result<Self> {
        Self::start_with(from, address, interval_ms, 0)
    }

    /// The same, with this traffic class octet.
    pub fn start_with(from: &Host, address: &str, interval_ms: u32, octet: u8) -> Result<Self> {
        let interval = format!("{:.3}", f64::from(interval_ms) / 1000.0);
        let octet = octet.to_string();
        let words = ["ping", "-n", "-W", "1", "-Q", &octet, "-i", &interval, address];
        Ok(Self { process: from.spawn(&words)? })
    }

    /// Ends it, leaving the last answer a second to come.
    pub fn stop(self) -> Result<Pings> {
        self.process.signal(libc::SIGINT)?;
        self.process.wait(Duration::from_secs(3))?;
        let log = self.process.log();
        let (sent, received) = ping_counts(&log)?;
        let times = log.lines().filter_map(|line| line.split("time=").nth(1)?.split(' ').next());
        let mut rtt_ms: Vec<f64> = times.filter_map(|time| time.parse().ok()).collect();
        rtt_ms.sort_by(f64::total_cmp);
        Ok(Pings { sent, received, rtt_ms })
    }
}

/// A UDP stream of numbered datagrams at a fixed pace, for counting losses one by one.
pub struct Numbered {
    stop: std::sync::mpsc::SyncSender<()>,
    sender: std::thread::JoinHandle<Result<u64>>,
    receiver: std::thread::JoinHandle<Result<Vec<bool>>>,
}

impl Numbered {
    /// Starts sending from `from` to `address` in `to`, one datagram every `pace`.
    pub fn start(from: &Host, to: &Host, address: &str, pace: Duration) -> Result<Self> {
        let socket = inside::inside(to, || Ok(UdpSocket::bind((address, 0))?))?;
        socket.set_read_timeout(Some(Duration::from_millis(1500)))?;
        let target = socket.local_addr()?;
        let (stop, stopped) = sync_channel(1);
        let sender = inside::start(from, move || {
            let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any)?;
            let mut number = 0_u64;
            while stopped.try_recv().is_err() {
                let mut datagram = [0x5a; 200];
                datagram[..8].copy_from_slice(&number.to_le_bytes());
                // While a route is missing sending fails; that counts as lost.
                let _ = socket.send_to(&datagram, target);
                number += 1;
                std::thread::sleep(pace);
            }
            Ok(number)
        })?;
        let receiver = inside::start(to, move || {
            let mut seen = Vec::new();
            let mut buffer = [0; 2048];
            while let Ok(n) = socket.recv(&mut buffer) {
                ensure!(n == 200, "a datagram of 200 bytes became one of {n}");
                let number = u64::from_le_bytes(buffer[..8].try_into()?) as usize;
                seen.resize(seen.len().max(number + 1), false);
                ensure!(!seen[number], "datagram {number} arrived twice");
                seen[number] = true;
            }
            Ok(seen)
        })?;
        Ok(Self { stop, sender, receiver })
    }

    /// Ends it; returns how many were sent and the numbers of those that never came.
    pub fn stop(self) -> Result<(u64, Vec<u64>)> {
        // A full channel means that it was told already.
        let _ = self.stop.try_send(());
        let sent = inside::join(self.sender)?;
        let seen = inside::join(self.receiver)?;
        let came = |number: u64| seen.get(number as usize).copied().unwrap_or(false);
        Ok((sent, (0..sent).filter(|&number| !came(number)).collect()))
    }
}
