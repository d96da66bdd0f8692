//! Daemons whose network lets out pings and nothing else, and one connection over every carrier.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab::netns::Host;
use serde_json::Value;
use wire::fnv;

use crate::daemons::{INSIDE, Network, SERVER};
use crate::support::{Scene, eventually, inside, seconds, traffic};

/// Echo requests leave, and what answers them comes in.
const PINGS: &str = "ip protocol icmp icmp type echo-request accept
    nft add rule inet nothing out oifname eth0 drop";
/// What is said to the server by UDP and TCP leaves, too.
const QUIC: &str = "udp dport { 443, 3478 } accept
    nft add rule inet nothing out oifname eth0 meta l4proto tcp accept
    nft add rule inet nothing out oifname eth0 drop";
const HTTPS: &str = "meta l4proto tcp accept
    nft add rule inet nothing out oifname eth0 drop";
/// Everything leaves and comes.
const ALL: &str = "accept";

/// From now on a node's network lets out what these rules do.
fn let_out(host: &Host, rules: &str) -> Result<()> {
    let state = if rules == ALL { "accept" } else { "ct state new drop" };
    host.sh(&format!(
        "nft flush chain inet nothing out
         nft flush chain inet nothing in
         nft add rule inet nothing in iifname eth0 {state}
         nft add rule inet nothing out oifname eth0 {rules}"
    ))?;
    Ok(())
}

/// Until both reach each other by this carrier.
fn carried(network: &Network, carrier: &str, within: Duration) -> Result<Duration> {
    let is = |number| network.way(number).is_ok_and(|way| way["carrier"] == carrier);
    let done = || {
        // The path is used, or it is not looked for.
        let ping = ["ping", "-n", "-c", "1", "-W", "0.3", INSIDE[1]];
        network.hosts[0].run(&ping).is_ok() && is(0) && is(1)
    };
    let ways = || [0, 1].map(|number| network.way(number).map_err(|why| why.to_string()));
    eventually(&format!("carried by {carrier}"), within, done)
        .with_context(|| format!("{:?}", ways()))
}

fn status(network: &Network, number: usize) -> Result<Value> {
    Ok(serde_json::from_str(&network.node(number, &["status", "--json"])?)?)
}

/// Joins by pings alone, is told of it everywhere, outlives the server, and climbs back.
pub(crate) fn pings_until_the_filter_goes(scene: &Scene) -> Result<()> {
    let mut network = Network::served(scene, PINGS, &["--icmp"])?;
    eprintln!("an echo after {:?}", network.reaches(0)?);
    carried(&network, "icmp", seconds(20))?;
    let [a, b] = network.hosts.each_ref().map(Clone::clone);
    let up = traffic::exact_stream(&a, &b, INSIDE[1], 5_000_000)?;
    let down = traffic::exact_stream(&b, &a, INSIDE[0], 5_000_000)?;
    eprintln!("5 MB by ping to the relay and from it: {up:?}, {down:?}");
    // The kernel goes on answering everybody else's pings.
    let pings = a.run(&["ping", "-n", "-c", "5", "-i", "0.2", "-W", "1", SERVER])?;
    ensure!(pings.contains(" 0% packet loss"), "{pings}");
    // Who asks is told by what it goes.
    let told = status(&network, 0)?;
    ensure!(told["server"]["carrier"] == "icmp", "{}", told["server"]);
    let relay = &told["relays"][0];
    ensure!(relay["carrier"] == "icmp" && relay["streams"]["icmp"].as_u64() >= Some(1), "{relay}");
    let check = network.node(0, &["netcheck"])?;
    ensure!(check.contains("in touch by ping") && check.contains("by icmp"), "{check}");
    let why = network.node(0, &["why", INSIDE[1]])?;
    ensure!(why.contains("in pings"), "{why}");
    let metrics = network.node(0, &["metrics"])?;
    ensure!(metrics.contains("carrier=\"icmp\""), "{metrics}");
    // A server that was killed leaves a table, which the next one takes over.
    network.kill_server(&["--icmp"])?;
    let again = Instant::now();
    carried(&network, "icmp", seconds(60))?;
    eprintln!("by ping again {:?} after the server's restart", again.elapsed());
    traffic::exact_stream(&b, &a, INSIDE[0], 1_000_000)?;
    // Who must not ping does not, from now on.
    network.node(0, &["set", "--no-icmp"])?;
    let gone = |number: usize| {
        status(&network, number).is_ok_and(|it| it["relays"][0]["connected"] == false)
    };
    eventually("no stream by ping", seconds(20), || gone(0))?;
    network.node(0, &["set", "--no-icmp=false"])?;
    carried(&network, "icmp", seconds(60))?;
    let_out(&a, QUIC)?;
    let_out(&b, QUIC)?;
    eprintln!("by QUIC {:?} after the filter went", carried(&network, "quic", seconds(120))?);
    let is_https = || status(&network, 0).is_ok_and(|it| it["server"]["carrier"] == "https");
    eventually("the server over HTTPS again", seconds(150), is_https)?;
    Ok(())
}

/// A program that may open no raw socket pings where its group may.
pub(crate) fn a_ping_socket_without_rights(scene: &Scene) -> Result<()> {
    let mut network = Network::served(scene, PINGS, &["--icmp"])?;
    carried(&network, "icmp", seconds(20))?;
    let a = network.hosts[0].clone();
    let drop = ["setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw"];
    network.set_runs(&drop);
    a.sh("sysctl -qw net.ipv4.ping_group_range='1 0'")?;
    network.start_node_again(0)?;
    let told = || -> Result<String> {
        Ok(status(&network, 0)?["relays"][0]["trouble"].as_str().unwrap_or_default().to_owned())
    };
    eventually("told what is missing", seconds(30), || {
        told().is_ok_and(|why| why.contains("net.ipv4.ping_group_range"))
    })?;
    ensure!(network.hosts[0].run(&["ping", "-n", "-c", "1", "-W", "1", INSIDE[1]]).is_err(), "");
    a.sh("sysctl -qw net.ipv4.ping_group_range='0 2147483647'")?;
    carried(&network, "icmp", seconds(60))?;
    let [a, b] = network.hosts.each_ref().map(Clone::clone);
    traffic::exact_stream(&a, &b, INSIDE[1], 1_000_000)?;
    traffic::exact_stream(&b, &a, INSIDE[0], 1_000_000)?;
    Ok(())
}

/// A connection on which one side sends at a steady rate until it is told to end.
struct Steady {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<Result<(u64, u64)>>,
    receiver: JoinHandle<Result<(u64, u64, Duration)>>,
}

/// Bytes of one piece, and how often one is sent: 4 Mbit/s.
const PIECE_LEN: usize = 5_000;
const PIECE_EVERY: Duration = Duration::from_millis(10);

impl Steady {
    fn start(from: &Host, to: &Host, address: &'static str) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let listener = inside::inside(to, || Ok(TcpListener::bind((address, 0))?))?;
        let port = listener.local_addr()?.port();
        let told = Arc::clone(&stop);
        let sender = inside::start(from, move || {
            let mut stream = TcpStream::connect((address, port))?;
            stream.set_write_timeout(Some(seconds(60)))?;
            let (mut sum, mut sent, mut next) = (fnv::sum([]), 0_u64, Instant::now());
            while !told.load(Ordering::Acquire) {
                let piece: Vec<u8> = (0..PIECE_LEN as u64)
                    .map(|n| ((sent + n).wrapping_mul(31) >> 3) as u8)
                    .collect();
                stream.write_all(&piece).with_context(|| format!("sending at {sent}"))?;
                sent += piece.len() as u64;
                sum = fnv::go_on(sum, piece);
                next += PIECE_EVERY;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            Ok((sent, sum))
        })?;
        let receiver = inside::start(to, move || {
            let (mut stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(seconds(60)))?;
            let (mut sum, mut came, mut buffer) = (fnv::sum([]), 0_u64, vec![0; 65_536]);
            let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
            loop {
                let len = stream.read(&mut buffer).with_context(|| format!("reading at {came}"))?;
                if len == 0 {
                    return Ok((came, sum, longest));
                }
                longest = longest.max(last.elapsed());
                last = Instant::now();
                sum = fnv::go_on(sum, buffer[..len].iter().copied());
                came += len as u64;
            }
        })?;
        Ok(Self { stop, sender, receiver })
    }

    fn end(self) -> Result<(u64, Duration)> {
        self.stop.store(true, Ordering::Release);
        let (sent, ours) = inside::join(self.sender)?;
        let (came, theirs, longest) = inside::join(self.receiver)?;
        ensure!(sent == came && ours == theirs, "{sent} bytes were sent, {came} came");
        Ok((sent, longest))
    }
}

/// One TCP connection over UDP, QUIC, HTTPS, ping, and UDP again.
pub(crate) fn one_connection_over_every_carrier(scene: &Scene) -> Result<()> {
    let network = Network::served(scene, ALL, &["--icmp"])?;
    let [a, b] = network.hosts.each_ref().map(Clone::clone);
    network.server.sh("sysctl -qw net.ipv4.ip_forward=1")?;
    a.sh("ip route replace 198.51.100.0/24 via 192.0.2.1")?;
    b.sh("ip route replace 192.0.2.0/24 via 198.51.100.1")?;
    let_out(&a, ALL)?;
    let_out(&b, ALL)?;
    carried(&network, "udp", seconds(90))?;
    let transfer = Steady::start(&a, &b, INSIDE[1])?;
    for (rules, carrier) in [(QUIC, "quic"), (HTTPS, "https"), (PINGS, "icmp"), (ALL, "udp")] {
        std::thread::sleep(seconds(2));
        ensure!(!transfer.receiver.is_finished(), "it broke before {carrier}");
        let begin = Instant::now();
        // What conntrack remembers is no longer let through.
        let_out(&a, rules)?;
        let_out(&b, rules)?;
        carried(&network, carrier, seconds(150))?;
        eprintln!("by {carrier} {:?} after that was all that passed", begin.elapsed());
    }
    std::thread::sleep(seconds(2));
    let (bytes, longest) = transfer.end()?;
    eprintln!("{bytes} bytes with equal checksums; the longest pause was {longest:?}");
    ensure!(bytes > 4_000_000, "only {bytes} bytes in all that time");
    ensure!(longest < seconds(45), "a pause of {longest:?}");
    Ok(())
}
