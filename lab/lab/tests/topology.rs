//! Networks from files on a real kernel: reachable, blocked, translated, shaped, and gone.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lab::sys;
use lab::topology::{Lab, Plan, Topology};
use lab::wire::Direction;

fn example(file: &str) -> Plan {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies");
    let topology = Topology::read(&folder.join(file)).expect("an example");
    Plan::new(&topology).expect("a good one")
}

/// An example, under a name of the test's own.
fn lab(file: &str, name: &str) -> Lab {
    let mut plan = example(file);
    plan.name = name.to_owned();
    Lab::up(plan).expect("run the tests as root")
}

fn socket(lab: &Lab, host: &str, port: u16) -> UdpSocket {
    let path = lab.host(host).expect("host").path();
    // A process that another test starts holds a copy of a socket that was closed here until it is
    // its own program.
    let bind = |_| {
        let socket = sys::in_netns(&path, || UdpSocket::bind(("0.0.0.0", port)));
        let socket = socket.expect("namespace");
        if socket.is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        socket.ok()
    };
    let socket = (0..500).find_map(bind).expect("socket");
    socket.set_read_timeout(Some(Duration::from_millis(400))).expect("timeout");
    socket
}

fn address(lab: &Lab, host: &str, port: u16) -> SocketAddr {
    (lab.plan().address(host).expect("address"), port).into()
}

/// Who the receiver says a packet came from.
fn seen_from(from: &UdpSocket, to: SocketAddr, at: &UdpSocket) -> Option<SocketAddr> {
    from.send_to(b"who am I", to).expect("sent");
    at.recv_from(&mut [0; 64]).ok().map(|(_, source)| source)
}

fn machine() -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for (program, args) in [
        ("ip", &["-o", "link"][..]),
        ("ip", &["netns"]),
        ("nft", &["list", "ruleset"]),
        ("ls", &["/run/warren-lab", "/etc", "/run/netns"]),
    ] {
        let output = Command::new(program).args(args).output().expect("installed");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // Other tests come and go meanwhile, under their own names.
        let own = |line: &&str| line.contains("wt-topo-pair") || !line.contains("wt-");
        lines.extend(text.lines().filter(own).map(str::to_owned));
    }
    let links = |line: &String| !line.contains("veth") && !line.contains("tun");
    lines.into_iter().filter(links).collect()
}

#[test]
fn two_hosts_talk_by_name_through_a_router_and_nothing_is_left() {
    let before = machine();
    {
        let lab = lab("two-hosts.toml", "wt-topo-pair");
        let alice = lab.host("alice").expect("alice");
        alice.run(&["ping", "-c", "1", "-W", "2", "-4", "bob"]).expect("v4");
        alice.run(&["ping", "-c", "1", "-W", "2", "-6", "fd02::2"]).expect("v6");
        let trace = alice.run(&["ping", "-c", "1", "-t", "1", "192.168.2.2"]).unwrap_or_default();
        assert!(!trace.contains("1 received"), "the router counts hops down: {trace}");
        alice.sh("echo x > /run/only-here").expect("its own /run");
        assert!(!Path::new("/run/only-here").exists());
        let bob = lab.host("bob").expect("bob");
        assert!(!bob.output(&["test", "-e", "/run/only-here"]).expect("bob").status.success());
        assert_ne!(machine(), before, "the check sees a living lab");
    }
    assert_eq!(machine(), before);
}

#[test]
fn what_is_blocked_does_not_pass_and_the_rest_does() {
    let text = "name = \"wt-topo-block\"\n[hosts.a]\n[hosts.b]\n[hosts.c]\nblocked = [\"udp\"]\n\
                [hosts.d]\nblocked = [\"icmp\", \"tcp\"]\n[hosts.e]\nblocked = [\"all-but-443\"]\n\
                [switches.s]\n"
        .to_owned()
        + &["a", "b", "c", "d", "e"]
            .map(|host| format!("[[links]]\nbetween = [\"{host}\", \"s\"]\n"))
            .concat();
    let topology = Topology::parse(&text, Path::new("x.toml")).expect("text");
    let lab = Lab::up(Plan::new(&topology).expect("plan")).expect("up");
    let at = socket(&lab, "b", 9_000);
    let udp = |host: &str| {
        let from = socket(&lab, host, 0);
        // A host that blocks its own packets refuses to send them.
        let sent = from.send_to(b"x", address(&lab, "b", 9_000)).is_ok();
        sent && at.recv_from(&mut [0; 8]).is_ok()
    };
    let b = lab.plan().address("b").expect("address").to_string();
    let ping = |host: &str| {
        let host = lab.host(host).expect("host");
        host.output(&["ping", "-c", "1", "-W", "1", &b]).expect("ping").status.success()
    };
    let tcp = |host: &str, port: u16| {
        let path = lab.host("b").expect("b").path();
        let bound = sys::in_netns(&path, || std::net::TcpListener::bind(("0.0.0.0", port)));
        let _listener = bound.expect("namespace").expect("listener");
        let (to, path) = (address(&lab, "b", port), lab.host(host).expect("host").path());
        let limit = Duration::from_millis(600);
        let connected = sys::in_netns(&path, || std::net::TcpStream::connect_timeout(&to, limit));
        connected.expect("namespace").is_ok()
    };
    assert!(udp("a") && ping("a") && tcp("a", 80) && tcp("a", 443));
    assert!(!udp("c") && ping("c") && tcp("c", 80) && tcp("c", 443));
    assert!(udp("d") && !ping("d") && !tcp("d", 80) && !tcp("d", 443));
    assert!(!udp("e") && !ping("e") && !tcp("e", 80) && tcp("e", 443));
}

/// Whether a mapping depends on the destination, then who may answer to it: the address's
/// other port, and a stranger.
fn behaviour(lab: &Lab, inside: &str) -> (bool, bool, bool) {
    let from = socket(lab, inside, 5_000);
    let (one, two) = (socket(lab, "server", 1_000), socket(lab, "server", 2_000));
    let first = seen_from(&from, address(lab, "server", 1_000), &one).expect("out");
    let inside_address = address(lab, inside, 5_000).ip();
    assert_ne!(first.ip(), inside_address, "{inside} is translated");
    let back = |by: &UdpSocket| {
        by.send_to(b"answer", first).expect("sent");
        from.recv_from(&mut [0; 64]).is_ok()
    };
    assert!(back(&one), "who was sent to may answer");
    // Another outside address that reaches the switch directly, before it was ever sent to.
    let stranger = if inside == "symm" { "port-restricted" } else { "symmetric" };
    let stranger = socket(lab, stranger, 3_000);
    let (other_port, other_address) = (back(&two), back(&stranger));
    let second = seen_from(&from, address(lab, "server", 2_000), &two).expect("out");
    (first != second, other_port, other_address)
}

#[test]
fn each_kind_of_nat_maps_and_filters_as_it_is_named() {
    let lab = lab("nat-pairs.toml", "wt-topo-nat");
    assert_eq!(behaviour(&lab, "cone"), (false, true, true), "full cone");
    assert_eq!(behaviour(&lab, "addr"), (false, true, false), "address-restricted");
    assert_eq!(behaviour(&lab, "port"), (false, false, false), "port-restricted");
    assert_eq!(behaviour(&lab, "symm"), (true, false, false), "symmetric");
    let server = lab.host("server").expect("server");
    let inside = lab.plan().address("port").expect("address").to_string();
    let direct = server.output(&["ping", "-c", "1", "-W", "1", &inside]).expect("ping");
    assert!(!direct.status.success(), "nobody has a route to an inside");
}

#[test]
fn a_hole_can_be_punched_between_two_port_restricted_nats_and_not_from_a_symmetric_one() {
    let lab = lab("nat-pairs.toml", "wt-topo-punch");
    let server = socket(&lab, "server", 1_000);
    let punch = |a: &str, b: &str| {
        let (a, b) = (socket(&lab, a, 6_000), socket(&lab, b, 6_001));
        let to = address(&lab, "server", 1_000);
        let (a_seen, b_seen) =
            (seen_from(&a, to, &server).expect("out"), seen_from(&b, to, &server).expect("out"));
        let mut reached = false;
        for _ in 0..3 {
            a.send_to(b"a", b_seen).expect("sent");
            b.send_to(b"b", a_seen).expect("sent");
            reached |= a.recv_from(&mut [0; 8]).is_ok() || b.recv_from(&mut [0; 8]).is_ok();
        }
        reached
    };
    assert!(punch("port", "addr"));
    assert!(punch("cone", "symm"));
    assert!(!punch("port", "symm"));
}

#[test]
fn a_shaped_link_has_its_rate() {
    let text = "name = \"wt-topo-shape\"\n[hosts.a]\n[hosts.b]\n[[links]]\n\
                between = [\"a\", \"b\"]\n\
                shape = { rate = \"20mbit\", burst = \"32kb\", latency = \"50ms\" }\n";
    let topology = Topology::parse(text, Path::new("x.toml")).expect("text");
    let lab = Lab::up(Plan::new(&topology).expect("plan")).expect("up");
    let server = lab.host("b").expect("b").spawn(&["iperf3", "-s", "-1", "--forceflush"]);
    let server = server.expect("iperf3");
    server.wait_for(|log| log.contains("listening")).expect("ready");
    let to = lab.plan().address("b").expect("address").to_string();
    let out = lab.host("a").expect("a").run(&["iperf3", "-c", &to, "-t", "4", "-J"]).expect("run");
    let out: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let mbps = out["end"]["sum_received"]["bits_per_second"].as_f64().expect("rate") / 1e6;
    assert!((mbps / 20.0 - 1.0).abs() < 0.15, "{mbps} Mbit/s");
}

#[test]
fn a_ring_of_wires_has_the_weather_of_its_file() {
    let lab = lab("ring.toml", "wt-topo-ring");
    let names = ["a-b", "b-c", "a-c"];
    let wires = names.map(|name| lab.wire(name).expect("wire"));
    assert_eq!(wires[0].impairment(Direction::Forth).delay_us, 2_000);
    assert_eq!(wires[1].impairment(Direction::Back).jitter_us, 7_000);
    assert_eq!(wires[2].impairment(Direction::Forth).rate_bps, 20_000_000);
    assert_eq!(wires[2].impairment(Direction::Back).rate_bps, 100_000_000);
    let out = lab.host("a").expect("a").run(&["ping", "-q", "-i", "0.02", "-c", "50", "10.71.1.2"]);
    let out = out.expect("ping");
    let average = out.rsplit("= ").next().and_then(|s| s.split('/').nth(1));
    let average: f64 = average.and_then(|s| s.parse().ok()).expect("average");
    // Twice 2 ± 2 ms: a sum between 0 and 8 with a mean of 4 and of 50 a deviation of 0.23.
    assert!((2.5..6.5).contains(&average), "{out}");
}

#[test]
fn what_cannot_be_built_leaves_nothing() {
    let mut plan = example("two-hosts.toml");
    plan.name = "wt-topo-fail".into();
    plan.nodes[0].routes.push("route add nonsense\n".into());
    let error = Lab::up(plan).expect_err("a bad route");
    assert!(format!("{error:#}").contains("nonsense"), "{error:#}");
    let names = Command::new("ip").arg("netns").output().expect("ip").stdout;
    assert!(!String::from_utf8_lossy(&names).contains("wt-topo-fail"));
    assert!(!Path::new("/run/warren-lab/wt-topo-fail").exists());
}
