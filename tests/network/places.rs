//! The topologies "for what people have": what each says of its lines holds on the kernel, and a
//! network of ours joins there by the path that it says.

use std::net::UdpSocket;
use std::time::Duration;

use lab::process::Process;
use lab::wire::Direction;
use sim::impair::Impairment;

use super::*;

/// Where the server is in all of them; its name is in each host's hosts file, in both families.
const PLACE: [&str; 3] = ["[::]:443", "https://server", "[::]:3478"];

/// A topology of the laboratory, with nodes that have joined in this order: 100.64.0.1, .2, …
struct There {
    lab: Lab,
    lan: Lan,
    names: Vec<&'static str>,
}

macro_rules! topology {
    ($name:literal) => {
        include_str!(concat!("../../lab/lab/topologies/", $name, ".toml"))
    };
}

impl There {
    fn new(id: &str, topology: &str, names: &[&'static str]) -> Result<Self> {
        Self::served(id, topology, names, |_| PLACE[1].to_owned())
    }

    /// The same with a server that is reached at what `url` says.
    fn served(
        id: &str,
        topology: &str,
        names: &[&'static str],
        url: impl FnOnce(&Lab) -> String,
    ) -> Result<Self> {
        let lab = lab_of(id, topology, id)?;
        let url = url(&lab);
        let lan = Lan::in_lab(id, &lab, names, [PLACE[0], &url, PLACE[2]])?;
        Ok(Self { lab, lan, names: names.to_vec() })
    }

    fn host(&self, name: &str) -> Result<&Host> {
        self.lab.host(name)
    }

    fn address(&self, name: &str) -> Result<String> {
        Ok(self.lab.plan().address(name).context("it has one")?.to_string())
    }

    /// The nodes join, and the first reaches each other one by the path that is named for it.
    fn joins(&mut self, paths: &[(&str, &str)]) -> Result<()> {
        let token = self.lan.token(&["--reusable"])?;
        let begin = Instant::now();
        self.lan.all_up(&token)?;
        eprintln!("{:?} are up after {:?}", self.names, begin.elapsed());
        let result = paths.iter().try_for_each(|(name, kind)| self.reaches_by(name, kind));
        self.lan.told(result)
    }

    fn reaches_by(&self, name: &str, kind: &str) -> Result<()> {
        let inside = self.inside(name)?;
        let once = format!("ping -c 1 -W 2 {inside}");
        eventually(&format!("{name} answers"), seconds(PATIENCE), || {
            self.lan.nodes[0].host.sh(&once).is_ok()
        })?;
        let is_so = || self.path(name).is_ok_and(|path| path["kind"] == kind);
        let took = eventually(&format!("{kind} to {name}"), seconds(PATIENCE), || {
            // Who is silent is not probed.
            let _ = self.lan.nodes[0].host.sh(&format!("ping -c 1 -W 1 {inside}"));
            is_so()
        });
        let path = self.path(name)?;
        eprintln!("{kind} to {name} after {:?}: {path}", took.with_context(|| path.to_string())?);
        Ok(())
    }

    fn inside(&self, name: &str) -> Result<String> {
        let place = self.names.iter().position(|other| *other == name);
        Ok(format!("100.64.0.{}", place.context(name.to_owned())? + 1))
    }

    /// The first node's path to another.
    fn path(&self, name: &str) -> Result<Value> {
        let status = self.lan.status(0)?;
        let mut peers = status["peers"].as_array().into_iter().flatten();
        Ok(peers.find(|peer| peer["name"] == name).context("it is a peer")?["path"].clone())
    }

    /// Round trips on the ground, milliseconds, in the order in which they were sent.
    fn pings(&self, from: &str, to: &str, words: &[&str]) -> Result<Vec<f64>> {
        let to = self.address(to)?;
        let argv = [&["ping", "-n"], words, &[to.as_str()]].concat();
        let said = self.host(from)?.output(&argv)?;
        Ok(times(&String::from_utf8_lossy(&said.stdout)))
    }

    /// Whether TCP connects on the ground.
    fn connects(&self, from: &str, to: &str, port: u16) -> Result<bool> {
        let listen = format!("import socket; socket.create_server(('', {port})).accept()");
        let listener = self.host(to)?.spawn(&["python3", "-c", &listen])?;
        let listens = format!("ss -Hltn 'sport = :{port}' | grep -q .");
        eventually("it listens", seconds(PATIENCE), || {
            self.host(to).is_ok_and(|host| host.sh(&listens).is_ok())
        })?;
        let address = self.address(to)?;
        let connect =
            format!("import socket; socket.create_connection(('{address}', {port}), timeout=2)");
        let connected = self.host(from)?.output(&["python3", "-c", &connect])?;
        drop(listener);
        Ok(connected.status.success())
    }

    /// Whether a datagram arrives on the ground.
    fn udp_passes(&self, from: &str, to: &str) -> Result<bool> {
        let bound = |name: &str| -> Result<UdpSocket> {
            let path = self.host(name)?.path();
            Ok(lab::sys::in_netns(&path, || UdpSocket::bind(("0.0.0.0", 0)))??)
        };
        let receiver = bound(to)?;
        receiver.set_read_timeout(Some(seconds(1)))?;
        let at = format!("{}:{}", self.address(to)?, receiver.local_addr()?.port());
        let sender = bound(from)?;
        for _ in 0..5 {
            let _ = sender.send_to(b"x", &at);
        }
        Ok(receiver.recv_from(&mut [0; 8]).is_ok())
    }

    /// Largest packet on the ground between two, as the kernel is told.
    fn largest(&self, from: &str, to: &str, mtu: u32) -> Result<()> {
        let header = if to.contains(':') { 48 } else { 28 };
        let host = self.host(from)?;
        let full = (mtu - header).to_string();
        host.run(&["ping", "-n", "-M", "do", "-c", "1", "-W", "2", "-s", &full, to])?;
        let more = (mtu - header + 1).to_string();
        let said =
            host.output(&["ping", "-n", "-M", "do", "-c", "2", "-W", "1", "-s", &more, to])?;
        ensure!(!said.status.success(), "{} bytes pass from {from} to {to}", mtu + 1);
        Ok(())
    }
}

fn times(log: &str) -> Vec<f64> {
    let times = log.lines().filter_map(|line| line.split("time=").nth(1)?.split(' ').next());
    times.filter_map(|time| time.parse().ok()).collect()
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::INFINITY)
}

#[test]
fn source_002_on_starlink_the_way_changes_each_15_s_and_the_path_stays_direct() -> Result<()> {
    let _turn = turn::shared();
    let mut there = There::new("pl-leo", topology!("starlink"), &["boat", "lab"])?;
    let weather = there.lab.wire("terminal-internet")?.impairment(Direction::Forth);
    ensure!((weather.handover_us, weather.swing_us) == (15_000_000, 6_500), "{weather:?}");
    let usual = there.pings("boat", "server", &["-i", "0.1", "-c", "50"])?;
    let least = usual.iter().copied().fold(f64::INFINITY, f64::min);
    eprintln!("round trips from {least} ms, median {}", median(&usual));
    ensure!(least >= 30.0 && median(&usual) <= 62.0, "from {least}, median {}", median(&usual));
    // Jitter would move the place where a small handover is seen.
    for direction in [Direction::Forth, Direction::Back] {
        let wire = there.lab.wire("terminal-internet")?;
        let steady = Impairment { jitter_us: 0, loss: 0.0, ..wire.impairment(direction) };
        wire.impair(direction, steady)?;
    }
    // Three handovers at least are in it; that all of them move the way by too little to be seen
    // happens once in thousands.
    let rtt = there.pings("boat", "server", &["-i", "0.1", "-w", "70"])?;
    ensure!(rtt.len() > 500, "{} answers", rtt.len());
    // A handover is where the five seconds before and after differ most.
    const AROUND: usize = 50;
    let step = |at: usize| (median(&rtt[at - AROUND..at]) - median(&rtt[at..at + AROUND])).abs();
    let mut steps: Vec<usize> = Vec::new();
    // The first seconds are of links that begin, and a step there is seen at the wrong place.
    for at in 2 * AROUND..rtt.len() - AROUND {
        let around = at.saturating_sub(AROUND).max(AROUND)..(at + AROUND).min(rtt.len() - AROUND);
        let is_highest = around.clone().all(|other| step(other) <= step(at));
        let is_new = steps.last().is_none_or(|last| at - last > AROUND);
        if step(at) > 1.5 && is_highest && is_new {
            steps.push(at);
        }
    }
    eprintln!("the way changed at the pings {steps:?}");
    ensure!(!steps.is_empty(), "no handover is seen");
    for pair in steps.windows(2) {
        // 15 s are 150 pings, or a few less where some were lost. A small step is seen up to a
        // second beside its place, at either end.
        let apart = pair[1] - pair[0];
        let periods = (apart + 75) / 150;
        let beside = 12 * periods + 10;
        ensure!(periods > 0 && apart.abs_diff(150 * periods) <= beside, "{steps:?}");
    }
    there.joins(&[("lab", "direct")])
}

#[test]
fn source_002_on_4g_an_upload_makes_pings_wait_and_who_is_translated_too_is_relayed() -> Result<()>
{
    let _turn = turn::shared();
    let mut there = There::new("pl-4g", topology!("mobile-4g"), &["phone", "lab", "home"])?;
    let idle = median(&there.pings("phone", "server", &["-i", "0.1", "-c", "10"])?);
    ensure!((50.0..60.0).contains(&idle), "{idle} ms");
    let server = there.address("server")?;
    let listening = traffic::iperf_server(there.host("server")?, &server)?;
    let upload: Process = there
        .host("phone")?
        .spawn(&["iperf3", "-c", &server, "-t", "12", "-C", "cubic", "-w", "4M"])?;
    std::thread::sleep(seconds(5));
    let busy = median(&there.pings("phone", "server", &["-i", "0.2", "-c", "20", "-W", "3"])?);
    println!("idle {idle} ms, beside an upload {busy} ms");
    ensure!((300.0..600.0).contains(&busy), "{busy} ms beside an upload");
    drop((upload, listening));
    there.joins(&[("lab", "direct"), ("home", "relay")])
}

#[test]
fn source_002_in_a_hotel_only_https_passes_and_bursts_are_lost() -> Result<()> {
    let _turn = turn::shared();
    let mut there = There::new("pl-hotel", topology!("hotel-wifi"), &["guest", "lab"])?;
    ensure!(there.pings("guest", "server", &["-c", "2", "-W", "1"])?.is_empty(), "no echo passes");
    ensure!(!there.udp_passes("guest", "server")?, "no datagram passes");
    ensure!(!there.connects("guest", "lab", 80)?, "no other port passes");
    ensure!(there.connects("guest", "lab", 443)?, "HTTPS passes");
    // The portal takes what it does not let out; the air has lost some before.
    let before = there.lab.wire("guest-portal")?.tally(Direction::Forth).model;
    let portal = there.host("guest")?.sh("ip -4 route show default | cut -d ' ' -f 3")?;
    let flood = format!(
        "import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(20000):
    s.sendto(b'x' * 100, ('{}', 9)); time.sleep(0.0002)",
        portal.trim()
    );
    there.host("guest")?.run(&["python3", "-c", &flood])?;
    std::thread::sleep(Duration::from_millis(200));
    let after = there.lab.wire("guest-portal")?.tally(Direction::Forth).model;
    let sent = (after.offered - before.offered) as f64;
    let lost = (after.lost - before.lost) as f64 / sent;
    println!("of {sent} packets the air lost {lost}");
    ensure!(sent >= 20_000.0 && (0.01..0.035).contains(&lost), "2 % are lost: {lost} of {sent}");
    there.joins(&[("lab", "relay")])?;
    let path = there.path("lab")?;
    ensure!(path["carrier"] != "udp", "over HTTPS: {path}");
    Ok(())
}

#[test]
fn source_002_over_an_ocean_the_round_trip_is_84_ms_and_both_families_are_direct() -> Result<()> {
    let _turn = turn::shared();
    let names = ["boston", "frankfurt"];
    let mut there = There::new("pl-ocean", topology!("transatlantic"), &names)?;
    let rtt = median(&there.pings("boston", "frankfurt", &["-i", "0.1", "-c", "20"])?);
    ensure!((84.0..88.0).contains(&rtt), "{rtt} ms");
    let weather = there.lab.wire("west-east")?.impairment(Direction::Back);
    ensure!(weather.loss == 0.0001 && weather.rate_bps == 1_000_000_000, "{weather:?}");
    let v6 = there.host("boston")?.sh("getent ahostsv6 frankfurt | head -1 | cut -d ' ' -f 1")?;
    ensure!(v6.contains(':'), "{v6}");
    there.host("boston")?.run(&["ping", "-6", "-c", "3", "-i", "0.2", v6.trim()])?;
    there.joins(&[("frankfurt", "direct")])?;
    let inside = there.inside("frankfurt")?;
    let pings = there.host("boston")?.sh(&format!("ping -n -i 0.2 -c 20 {inside}"))?;
    let rtt = median(&times(&pings));
    ensure!((84.0..100.0).contains(&rtt), "the tunnel adds little: {rtt} ms");
    Ok(())
}

#[test]
fn source_002_by_a_satellite_that_stands_still_600_ms_are_borne() -> Result<()> {
    let _turn = turn::shared();
    let mut there = There::new("pl-geo", topology!("satellite-geo"), &["ship", "lab"])?;
    let rtt = median(&there.pings("ship", "server", &["-i", "0.2", "-c", "10", "-W", "3"])?);
    ensure!((600.0..620.0).contains(&rtt), "{rtt} ms");
    there.joins(&[("lab", "direct")])?;
    let ends = [there.host("lab")?, there.host("ship")?];
    let took = traffic::exact_stream(ends[0], ends[1], &there.inside("ship")?, 2_000_000)?;
    println!("2 MB down in {took:?}");
    Ok(())
}

#[test]
fn source_000_002_on_a_campus_no_udp_passes_and_the_relay_joins_all_but_the_laboratory()
-> Result<()> {
    let _turn = turn::shared();
    let names = ["robot", "laptop", "bench"];
    // By its address: the proxy here knows no names.
    let url = |lab: &Lab| {
        let address = lab.plan().address("server").expect("it has one");
        format!("https://{address}")
    };
    let mut there = There::served("pl-campus", topology!("campus"), &names, url)?;
    ensure!(!there.udp_passes("robot", "server")?, "no datagram leaves the hall");
    ensure!(!there.udp_passes("laptop", "server")?, "no datagram leaves the library");
    ensure!(there.udp_passes("bench", "server")?, "the laboratory's line lets datagrams pass");
    ensure!(there.connects("robot", "server", 8_000)?, "connections from inside pass");
    // No route leads into a building, as nothing does that was not asked for.
    let laptop = there.address("laptop")?;
    let robot = there.host("robot")?;
    ensure!(!robot.output(&["ping", "-c", "2", "-W", "1", &laptop])?.status.success());
    let seminar = there.host("seminar")?;
    let server = there.address("server")?;
    ensure!(!seminar.output(&["ping", "-c", "1", "-W", "1", &server])?.status.success());
    there.joins(&[("laptop", "relay"), ("bench", "relay")])?;
    // And the seminar room by the proxy, which reads what it passes on.
    let proxy = there.host("proxy")?.path();
    let (told, listens) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let listen = ([10, 9, 5, 1], 3_128).into();
        // Until the test ends.
        lab::sys::in_netns(&proxy, || {
            lab::proxy::serve(listen, |at| {
                let _ = told.send(at);
            })
        })
    });
    listens.recv_timeout(seconds(PATIENCE)).context("the proxy listens")?;
    let mut node = Node::new("seminar", there.host("seminar")?);
    node.env = vec![("HTTPS_PROXY", "http://10.9.5.1:3128")];
    there.lan.nodes.push(node);
    there.names.push("seminar");
    let token = there.lan.token(&[])?;
    there.lan.up(3, &token, &[])?;
    there.reaches_by("seminar", "relay")
}

#[test]
fn source_002_on_pppoe_1492_bytes_pass_and_full_packets_inside_need_no_fragments() -> Result<()> {
    let _turn = turn::shared();
    let mut there = There::new("pl-pppoe", topology!("pppoe"), &["home", "lab"])?;
    let lab = there.address("lab")?;
    there.largest("home", &lab, 1_492)?;
    let route = there.host("home")?.sh(&format!("ip route get {lab}"))?;
    ensure!(route.contains("mtu 1492"), "who sends more was told: {route}");
    there.joins(&[("lab", "direct")])?;
    let before = fragments(there.host("home")?)?;
    let inside = there.inside("lab")?;
    let mtu = there.path("lab")?["mtu"].as_u64().context("an MTU")?;
    let full = format!("ping -n -M do -c 3 -i 0.2 -W 2 -s {} {inside}", mtu - 28);
    there.host("home")?.sh(&full)?;
    ensure!(fragments(there.host("home")?)? == before, "nothing was cut");
    println!("packets of {mtu} bytes inside");
    ensure!(mtu >= 1_328, "{mtu}");
    let ends = [there.host("home")?, there.host("lab")?];
    traffic::exact_stream(ends[0], ends[1], &inside, 2_000_000)?;
    Ok(())
}

/// Fragments that a host has made.
fn fragments(host: &Host) -> Result<u64> {
    let told = host.sh("awk '/^Ip: [0-9]/ { print $20 }' /proc/net/snmp")?;
    Ok(told.trim().parse()?)
}

#[test]
fn source_002_9_by_ds_lite_and_464xlat_ipv4_is_narrower_and_all_meet_directly() -> Result<()> {
    let _turn = turn::shared();
    let names = ["home", "phone", "lab", "old"];
    let mut there = There::new("pl-dslite", topology!("ds-lite"), &names)?;
    let v4 = there.address("lab")?;
    there.largest("home", &v4, 1_460)?;
    there.largest("phone", &v4, 1_480)?;
    let v6 = there.host("lab")?.sh("getent ahostsv6 lab | head -1 | cut -d ' ' -f 1")?;
    for from in ["home", "phone"] {
        let full = ["ping", "-n", "-6", "-M", "do", "-c", "1", "-W", "2", "-s", "1452", v6.trim()];
        there.host(from)?.run(&full).with_context(|| format!("1500 bytes of IPv6 from {from}"))?;
    }
    // Nobody has a way to what is behind the translators, and everybody to the IPv6 of a home.
    let lab = there.host("lab")?;
    ensure!(!lab.output(&["ping", "-c", "1", "-W", "1", "192.168.1.2"])?.status.success());
    lab.run(&["ping", "-c", "1", "-W", "2", "fd64:1::2"])?;
    there.joins(&[("lab", "direct"), ("phone", "direct"), ("old", "direct")])?;
    for (name, family) in [("phone", '['), ("old", '1')] {
        let path = there.path(name)?;
        let endpoint = path["endpoint"].as_str().unwrap_or_default().to_owned();
        ensure!(endpoint.starts_with(family), "{name} is at {endpoint}: {path}");
        ensure!(path["mtu"].as_u64().is_some_and(|mtu| mtu >= 1_328), "{path}");
    }
    Ok(())
}
