//! Robots' middleware over the network, from the peer lists that `warren ros` writes: the real
//! Cyclone DDS where Python has it, between hosts whose network lets no UDP pass.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};

use crate::support::{Host, Result, ensure, eventually, inside, scene, seconds};
use crate::world::{Running, World};

/// Writes one topic until it is killed, or reads it and tells what came.
const PROGRAM: &str = r"
import sys, time
from dataclasses import dataclass
from cyclonedds.core import Qos, Policy
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

@dataclass
class Pose(IdlStruct):
    number: int
    text: str

participant = DomainParticipant(0)
qos = Qos(Policy.Reliability.Reliable(duration(seconds=10)), Policy.History.KeepLast(10))
topic = Topic(participant, 'poses', Pose, qos=qos)
if sys.argv[1] == 'write':
    writer = DataWriter(participant, topic, qos=qos)
    for number in range(1000):
        writer.write(Pose(number=number, text='x' * 5000))
        time.sleep(0.1)
else:
    reader = DataReader(participant, topic, qos=qos)
    end = time.time() + 30
    while time.time() < end:
        for pose in reader.take(10):
            print('came', pose.number, len(pose.text), flush=True)
            sys.exit(0)
        time.sleep(0.05)
    sys.exit(1)
";

/// The Python that has Cyclone DDS: `make setup` makes one.
fn python() -> Option<String> {
    let own = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("tools/dds/bin");
    let named = own.join("python3").display().to_string();
    let has = Command::new(&named).args(["-c", "import cyclonedds"]).stderr(Stdio::null()).status();
    has.is_ok_and(|status| status.success()).then_some(named)
}

/// What both nodes are told: one group at a slow rate, the one of DDS, and the ports of DDS.
const POLICY: &str = r#"{
    "acls": [{ "action": "accept", "proto": "udp", "src": ["*"], "dst": ["*:7410-7460"] }],
    "multicast": [
        { "src": ["*"], "dst": ["*"], "groups": ["239.255.7.7:4000"], "rate": "8kbit" },
        { "src": ["*"], "dst": ["*"], "groups": ["239.255.0.1:7400"] },
    ],
}"#;

/// Cyclone DDS as it finds others by itself: by multicast, on Warren's interface.
const BY_MULTICAST: &str = r#"<CycloneDDS xmlns="https://cdds.io/config"><Domain id="any"><General>
    <Interfaces><NetworkInterface name="warren0" multicast="true"/></Interfaces>
    <AllowMulticast>spdp</AllowMulticast></General>
    <Discovery><ParticipantIndex>auto</ParticipantIndex></Discovery></Domain></CycloneDDS>"#;

/// A socket for groups on the interface with this address, bound to `port`.
fn member(host: &Host, address: &str, port: u16) -> Result<UdpSocket> {
    let own: Ipv4Addr = address.parse()?;
    inside::inside(host, || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
        socket.set_read_timeout(Some(seconds(2)))?;
        let socket = socket2::Socket::from(socket);
        socket.set_multicast_if_v4(&own)?;
        socket.join_multicast_v4(&GROUP, &own)?;
        Ok(socket.into())
    })
}

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 7, 7);

#[test]
fn pf_17_multicast_reaches_whom_the_policy_names_at_its_rate_and_robots_find_each_other_by_it()
-> Result<()> {
    scene("gate6r", |scene| {
        let mut world = World::new(scene, "26")?;
        world.join("", &[], &[])?;
        let address =
            |i: usize| Ok::<_, anyhow::Error>(world.node(i, &["ip", "-4"])?.trim().to_owned());
        let own = [address(0)?, address(1)?];
        let [sends, gets, elsewhere] = [
            member(&world.a, &own[0], 0)?,
            member(&world.b, &own[1], 4000)?,
            member(&world.b, &own[1], 4001)?,
        ];
        eventually("the two meet", seconds(20), || {
            world.a.run(&["ping", "-n", "-c", "1", "-W", "1", &own[1]]).is_ok()
        })?;
        sends.send_to(b"closed", (GROUP, 4000))?;
        let mut bytes = [0; 1500];
        ensure!(gets.recv_from(&mut bytes).is_err(), "no rule, no multicast");
        let file = world.folder.path("policy.json");
        std::fs::write(&file, POLICY)?;
        world.admin(&["policy", "set", &file])?;
        eventually("a copy comes", seconds(20), || {
            let mut bytes = [0; 1500];
            sends.send_to(b"hello", (GROUP, 4000)).is_ok()
                && gets.recv_from(&mut bytes).is_ok_and(|(len, from)| {
                    &bytes[..len] == b"hello" && from.ip().to_string() == own[0]
                })
        })?;
        sends.send_to(b"another port", (GROUP, 4001))?;
        ensure!(elsewhere.recv_from(&mut bytes).is_err(), "a port that no rule names");
        // A thousand bytes a second: of fifty packets of 128 bytes a second's worth passes.
        std::thread::sleep(seconds(2));
        for _ in 0..50 {
            sends.send_to(&[7; 100], (GROUP, 4000))?;
        }
        let mut count = 0;
        while gets.recv_from(&mut bytes).is_ok() {
            count += 1;
        }
        ensure!((5..=12).contains(&count), "{count} packets came at 8 kbit/s");
        let counted = world.node(0, &["status", "--json"])?;
        let counted: serde_json::Value = serde_json::from_str(&counted)?;
        ensure!(counted["drops"]["policy-out"].as_u64() > Some(30), "{counted}");
        drop((sends, gets, elsewhere));
        let Some(python) = python() else {
            eprintln!("SKIPPED from here on: no Cyclone DDS: run `make setup`");
            return Ok(());
        };
        let config = world.folder.path("multicast.xml");
        std::fs::write(&config, BY_MULTICAST)?;
        meet(&world, &python, &[config.clone(), config])
    })
}

/// A printer that says on its LAN that it is there, or one who looks for it, by python-zeroconf.
const ZEROCONF: &str = r"
import sys, time
from zeroconf import ServiceBrowser, ServiceInfo, Zeroconf

# It speaks the version of IP that the address is of.
role, address = sys.argv[1:3]
zeroconf = Zeroconf(interfaces=[address])
if role == 'offer':
    for kind in ['_ipp._tcp.local.', '_ssh._tcp.local.']:
        zeroconf.register_service(ServiceInfo(kind, 'Hall.' + kind, port=631, server='hall.local.',
            parsed_addresses=sys.argv[2:], properties={'rp': 'one'}))
    print('ready', flush=True)
    time.sleep(60)
else:
    class Found:
        def add_service(self, zc, kind, name):
            info = zc.get_service_info(kind, name, 3000)
            at = ','.join(info.parsed_addresses()) if info else 'nobody'
            print('found', name, at, info.port if info else 0, flush=True)
        def remove_service(self, zc, kind, name): pass
        def update_service(self, zc, kind, name): pass
    kinds = ['_ipp._tcp.local.', '_ssh._tcp.local.']
    browser = ServiceBrowser(zeroconf, kinds, Found())
    time.sleep(float(sys.argv[3]))
";

const POLICY_OF_MDNS: &str = r#"{ "acls": [], "multicast": [
    { "src": ["*"], "dst": ["*"], "groups": ["224.0.0.251:5353", "[ff02::fb]:5353"] },
] }"#;

/// python-zeroconf at `host`, with these words.
fn zeroconf(python: &str, host: &Host, words: &[&str]) -> Command {
    let mut command = host.command(&[python, "-c", ZEROCONF]);
    command.args(words).stdout(Stdio::piped());
    command
}

/// Looks for `line` as python-zeroconf at `host` finds things from `address` on; nothing that was
/// not chosen is found.
fn find(python: &str, host: &Host, address: &str, line: &str) -> Result<()> {
    let found = zeroconf(python, host, &["look", address, "8"]).output()?;
    let told = String::from_utf8_lossy(&found.stdout);
    ensure!(told.lines().any(|own| own == line), "no {line:?} among {told:?}: {found:?}");
    ensure!(!told.contains("_ssh"), "what was not chosen: {told}");
    Ok(())
}

#[test]
fn chosen_services_of_a_gateways_lan_are_found_by_nodes_and_others_are_not() -> Result<()> {
    scene("gate7r", |scene| {
        let mut world = World::new(scene, "44")?;
        let Some(python) = python() else {
            eprintln!("SKIPPED: no python-zeroconf: run `make setup`");
            return Ok(());
        };
        world.join("", &["--mdns", "lan0:_ipp._tcp"], &[])?;
        let file = world.folder.path("policy.json");
        std::fs::write(&file, POLICY_OF_MDNS)?;
        world.admin(&["policy", "set", &file])?;
        let own = world.node(0, &["ip", "-4"])?.trim().to_owned();
        let words = ["offer", "192.168.5.9"];
        let offer = zeroconf(&python, &world.lan, &words).stdout(Stdio::null()).spawn()?;
        let _offer = Running(offer);
        find(&python, &world.a, &own, "found Hall._ipp._tcp.local. 192.168.5.9 631")?;
        let status = world.node(1, &["status", "--json"])?;
        let status: serde_json::Value = serde_json::from_str(&status)?;
        let counts = &status["mdns"];
        ensure!(
            counts["told"].as_u64() > Some(1) && counts["others"].as_u64() > Some(0),
            "{counts}"
        );
        world.node(1, &["set", "--mdns", ""])?;
        let found = zeroconf(&python, &world.a, &["look", &own, "4"]).output()?;
        ensure!(found.stdout.is_empty(), "nothing is told any more: {found:?}");
        Ok(())
    })
}

#[test]
fn services_are_found_by_ipv6_on_both_sides_with_the_addresses_that_lead_there() -> Result<()> {
    scene("gate8r", |scene| {
        let mut world = World::new(scene, "46")?;
        let Some(python) = python() else {
            eprintln!("SKIPPED: no python-zeroconf: run `make setup`");
            return Ok(());
        };
        world.join("", &["--mdns", "lan0:_ipp._tcp"], &[])?;
        let file = world.folder.path("policy.json");
        std::fs::write(&file, POLICY_OF_MDNS)?;
        world.admin(&["policy", "set", &file])?;
        let own = world.node(0, &["ip", "-6"])?.trim().to_owned();
        let start = |host: &Host, words: &[&str]| -> Result<Running> {
            Ok(Running(zeroconf(&python, host, words).stdout(Stdio::null()).spawn()?))
        };
        // Its link-local address would lead a node into a link of its own.
        let printer = start(&world.lan, &["offer", "fd05::9", "fe80::9"])?;
        find(&python, &world.a, &own, "found Hall._ipp._tcp.local. fd05::9 631")?;
        drop(printer);
        let _offer = start(&world.a, &["offer", &own])?;
        find(&python, &world.lan, "fd05::9", &format!("found Hall._ipp._tcp.local. {own} 631"))?;
        Ok(())
    })
}

/// One robot of Cyclone DDS writes at `a`, and one at `b` reads it.
fn meet(world: &World, python: &str, configs: &[String; 2]) -> Result<()> {
    let program = |i: usize, word: &str| {
        let mut command = world.host(i).command(&[python, "-c", PROGRAM, word]);
        command.env("CYCLONEDDS_URI", format!("file://{}", configs[i]));
        command
    };
    let _writer = Running(program(0, "write").stdout(Stdio::null()).spawn()?);
    let read = program(1, "read").output()?;
    let told = String::from_utf8_lossy(&read.stdout);
    ensure!(told.starts_with("came ") && told.trim().ends_with(" 5000"), "{read:?}");
    Ok(())
}

#[test]
fn robots_find_each_other_by_the_list_where_no_udp_passes() -> Result<()> {
    scene("gate5r", |scene| {
        let mut world = World::new(scene, "24")?;
        // No UDP between the nodes at all: what passes is HTTPS to the server and its relay.
        for host in [&world.a, &world.b] {
            host.sh("nft add table inet block
                 nft add chain inet block in '{ type filter hook input priority 0; }'
                 nft add rule inet block in iifname eth0 meta l4proto udp drop")?;
        }
        world.join("", &[], &[])?;
        let address =
            |i: usize| Ok::<_, anyhow::Error>(world.node(i, &["ip", "-4"])?.trim().to_owned());
        let (a, b) = (address(0)?, address(1)?);
        let file = |i: usize| world.folder.path(&format!("dds-{i}.xml"));
        // The file is kept fresh: it is there before the peer is, and has it when it is.
        let watched = world.folder.path("peers.sh");
        let socket = world.folder.path("a.sock");
        let words = ["--socket", &socket, "ros", "--out", &watched, "--watch"];
        let mut command = world.a.command(&[env!("CARGO_BIN_EXE_warren")]);
        let _watching = Running(command.args(words).stdout(Stdio::null()).spawn()?);
        let has = |text: &str| std::fs::read_to_string(&watched).is_ok_and(|t| t.contains(text));
        eventually("the list has the other", seconds(20), || has(&b))?;
        let started = |name: &str| world.folder.path(name);
        ensure!(!std::path::Path::new(&started("peers.sh.new")).exists(), "written whole");
        ensure!(
            world.node(1, &["ros"])? == format!("export ROS_STATIC_PEERS='{a}'\n"),
            "a shell's"
        );
        world.admin(&["node", "remove", "b"])?;
        eventually("the list has it no more", seconds(20), || !has(&b) && has("PEERS=''"))?;
        let token = world.admin(&["key", "create"])?;
        world.node(1, &["logout"])?;
        world.node(1, &["up", token.trim(), "--timeout", "20s", "--hostname", "b"])?;
        let b = world.node(1, &["ip", "-4"])?.trim().to_owned();
        eventually("the list has it again", seconds(20), || has(&b))?;
        eventually("the two meet", seconds(20), || {
            world.a.run(&["ping", "-n", "-c", "1", "-W", "1", &b]).is_ok()
        })?;
        let Some(python) = python() else {
            eprintln!("SKIPPED from here on: no Cyclone DDS: run `make setup`");
            return Ok(());
        };
        for i in [0, 1] {
            world.node(i, &["ros", "--format", "cyclone", "--out", &file(i)])?;
        }
        meet(&world, &python, &[file(0), file(1)])
    })
}
