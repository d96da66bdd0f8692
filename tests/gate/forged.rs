//! What a member with a program of its own forges, sprays and dresses up, beside two honest
//! daemons. `a` is the one; `b` is looked at; `c` is an honest third.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::rogue::Rogue;
use crate::support::{Context as _, Host, Result, ensure, eventually, inside, scene, seconds};
use crate::world::World;

/// Where `b` and `c` speak UDP to each other, and to `a`.
const PORT: u16 = 7777;
const A: &str = "100.64.0.1";
const B: &str = "100.64.0.2";
const C: &str = "100.64.0.3";

/// Puts packets on an interface as they are: each word is one in hexadecimal.
const SEND: &str = r#"
import socket, sys
for kind in (0x0800, 0x86dd):
    out = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
    out.bind((sys.argv[1], kind))
    for word in sys.argv[2:]:
        packet = bytes.fromhex(word)
        if (packet[0] >> 4 == 6) == (kind == 0x86dd): out.send(packet)
"#;

/// Datagrams of UDP from one address to another, as many as are asked for, each from another pair
/// of ports.
const SPRAY: &str = r#"
import socket, struct, sys
out = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
out.bind((sys.argv[1], 0x0800))
def total(data):
    sum_ = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while sum_ >> 16: sum_ = (sum_ & 0xffff) + (sum_ >> 16)
    return ~sum_ & 0xffff
head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 29, 1, 0, 64, 17, 0,
    socket.inet_aton(sys.argv[2]), socket.inet_aton(sys.argv[3]))
head = head[:10] + struct.pack("!H", total(head)) + head[12:]
sent = 0
for n in range(int(sys.argv[4])):
    udp = struct.pack("!4HB", 1024 + n % 60000, 2000 + n // 60000, 9, 0, 0)
    try: out.send(head + udp); sent += 1
    except OSError: pass
print(sent)
"#;

/// Prints what comes by ICMP from `a` inside: type, code, and the destination that it is about.
const ICMP: &str = r#"
import socket, struct, sys
at = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
print("listens", flush=True)
while True:
    packet = at.recv(2000)
    if socket.inet_ntoa(packet[12:16]) != "100.64.0.1": continue
    icmp = packet[20:]
    inner = icmp[8:]
    about = socket.inet_ntoa(inner[16:20]) if len(inner) >= 24 else "-"
    print("icmp", icmp[0], icmp[1], about, flush=True)
"#;

fn total(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or_default()));
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn v4(text: &str) -> [u8; 4] {
    text.parse::<std::net::Ipv4Addr>().map_or([0; 4], |address| address.octets())
}

fn ipv4(from: &str, to: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len()) as u16;
    let mut head = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, protocol, 0, 0];
    head[2..4].copy_from_slice(&len.to_be_bytes());
    head.extend([v4(from), v4(to)].concat());
    let sum = total(&head);
    head[10..12].copy_from_slice(&sum.to_be_bytes());
    [head, payload.to_vec()].concat()
}

fn udp(from: u16, to: u16) -> Vec<u8> {
    [from.to_be_bytes(), to.to_be_bytes(), [0, 12], [0, 0], [1, 2], [3, 4]].concat()
}

/// An ICMP error of this type and code with these four bytes, about a packet.
fn error(kind: [u8; 2], rest: [u8; 4], about: &[u8]) -> Vec<u8> {
    let mut icmp = [&[kind[0], kind[1], 0, 0], &rest[..], about].concat();
    let sum = total(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    icmp
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A network of three, of which `a` has become rogue.
fn three(world: &mut World, name: &str, policy: &str) -> Result<Rogue> {
    world.join("", &[], &[])?;
    world.daemon(2)?;
    let token = world.admin(&["key", "create", "--reusable"])?;
    world.node(2, &["up", token.trim(), "--timeout", "20s", "--hostname", "c"])?;
    eventually("b reaches c", seconds(20), || {
        world.b.sh(&format!("ping -c 1 -W 0.2 {C}")).is_ok()
    })?;
    let rogue = Rogue::start(world, name)?;
    let file = world.folder.path("policy.hujson");
    std::fs::write(&file, policy)?;
    world.admin(&["policy", "set", &file])?;
    // What no rule allows is what does not pass any more.
    eventually("b has the policy", seconds(20), || {
        world.b.sh(&format!("ping -c 1 -W 0.2 {C}")).is_err()
    })?;
    Ok(rogue)
}

fn drops(world: &World) -> Result<u64> {
    let status: Value = serde_json::from_str(&world.node(1, &["status", "--json"])?)?;
    let each = ["policy-in", "frame-refused"].map(|why| status["drops"][why].as_u64());
    Ok(each.into_iter().flatten().sum())
}

/// Asks and is asked at one port in a host, with the questions that are answered.
fn socket(host: &Host) -> Result<UdpSocket> {
    inside::inside(host, || {
        let socket = UdpSocket::bind(("0.0.0.0", PORT))?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        Ok(socket)
    })
}

/// One datagram that has to arrive, however often it is sent.
fn speaks(from: &UdpSocket, to: &UdpSocket, address: &str, words: &str) -> Result<()> {
    eventually(words, seconds(20), || {
        let mut heard = [0; 16];
        from.send_to(words.as_bytes(), (address, PORT)).is_ok()
            && to.recv(&mut heard).is_ok_and(|len| &heard[..len] == words.as_bytes())
    })
    .map(drop)
}

/// `b` may ask everybody, and everybody may ask `b`; nothing else.
const WITH_B: &str = r#"{"grants": [
    {"src": ["100.64.0.2"], "dst": ["*"], "ip": ["udp:7777"]},
    {"src": ["100.64.0.1"], "dst": ["100.64.0.2"], "ip": ["udp:*"]}]}"#;

#[test]
fn pf_03_a_member_forges_no_icmp_error_about_what_is_not_its_own() -> Result<()> {
    scene("gate13", |scene| {
        let mut world = World::new(scene, "13")?;
        let rogue = three(&mut world, "rogue13", WITH_B)?;
        // b has a living flow with each of them.
        let (at_a, at_b, at_c) = (socket(&world.a)?, socket(&world.b)?, socket(&world.c)?);
        speaks(&at_b, &at_c, C, "hello")?;
        speaks(&at_b, &at_a, A, "hello")?;
        let log = world.folder.path("icmp.log");
        let file = std::fs::File::create(&log)?;
        let mut command = world.b.command(&["python3", "-c", ICMP]);
        command.stdout(file.try_clone()?).stderr(file);
        let _listener = crate::world::Running(command.spawn()?);
        let heard = || std::fs::read_to_string(&log).unwrap_or_default();
        eventually("it listens", seconds(10), || heard().contains("listens"))?;

        let about = |to: &str, port: u16| ipv4(B, to, 17, &udp(PORT, port));
        let mtu = |bytes: u16| [0, 0, (bytes >> 8) as u8, bytes as u8];
        let forged = [
            // About what b says to c, and about flows that there are not.
            error([3, 4], mtu(1200), &about(C, PORT)),
            error([3, 1], [0; 4], &about(C, PORT)),
            error([3, 3], [0; 4], &about(A, PORT + 1)),
            error([11, 0], [0; 4], &about("203.0.113.9", PORT)),
            // About its own, but with an MTU below the least, a redirect, and a quench.
            error([3, 4], mtu(100), &about(A, PORT)),
            error([3, 4], mtu(575), &about(A, PORT)),
            error([5, 1], v4("10.9.0.254"), &about(A, PORT)),
            error([5, 0], v4(A), &about(C, PORT)),
            error([9, 0], [1, 2, 0, 9], &about(A, PORT)),
            // Cut short.
            error([3, 1], [0; 4], &about(A, PORT)[..20]),
        ];
        let before = drops(&world)?;
        let packets: Vec<String> = forged.iter().map(|icmp| hex(&ipv4(A, B, 1, icmp))).collect();
        let mut words = vec!["python3", "-c", SEND, "rogue13"];
        words.extend(packets.iter().map(String::as_str));
        world.a.run(&words)?;
        // What is about its own flow passes, and came after all that was forged.
        let own = hex(&ipv4(A, B, 1, &error([3, 4], mtu(1200), &about(A, PORT))));
        eventually("the control", seconds(20), || {
            let sent = world.a.run(&["python3", "-c", SEND, "rogue13", &own]);
            sent.is_ok() && heard().contains("icmp 3 4 100.64.0.1")
        })?;
        let heard = heard();
        let others: Vec<&str> = heard
            .lines()
            .filter(|line| line.starts_with("icmp") && *line != "icmp 3 4 100.64.0.1")
            .collect();
        ensure!(others.is_empty(), "{heard}");
        let dropped = drops(&world)? - before;
        ensure!(dropped >= forged.len() as u64, "{dropped} were counted of {}", forged.len());
        // And b's own way to c is what it was.
        let route = world.b.run(&["ip", "route", "get", C])?;
        ensure!(!route.contains("mtu 1200"), "{route}");
        rogue.stop()
    })
}

#[test]
fn pf_06_ipv4_in_the_dress_of_ipv6_reaches_nothing() -> Result<()> {
    scene("gate14", |scene| {
        let mut world = World::new(scene, "14")?;
        let everything = r#"{"grants": [{"src": ["*"], "dst": ["*", "64:ff9b::/96", "::/0"],
            "ip": ["udp:*"]}]}"#;
        let rogue = three(&mut world, "rogue14", everything)?;
        let v6 = |i: usize| world.node(i, &["ip", "-6"]);
        let (b6, status) = (v6(1)?, world.node(2, &["status", "--json"])?);
        let status: Value = serde_json::from_str(&status)?;
        let peers = status["peers"].as_array().context("peers")?;
        let a = peers.iter().find(|peer| peer["name"] == "a").context("a")?;
        let a6 = a["addresses"][1].as_str().context("a's address")?.to_owned();
        world.a.sh(&format!("ip addr add {a6}/128 dev rogue14 nodad"))?;
        // b's kernel has them all, so that whatever the filter lets pass is heard.
        let dressed = ["::100.64.0.2", "64:ff9b::6440:2", "2002:6440:2::1", "64:ff9b:1::6440:2"];
        for address in dressed {
            world.b.sh(&format!("ip addr add {address}/128 dev lo"))?;
        }
        let at_b = inside::inside(&world.b, || {
            let socket = UdpSocket::bind(("::", PORT))?;
            socket.set_read_timeout(Some(Duration::from_millis(200)))?;
            Ok(socket)
        })?;
        let before = drops(&world)?;
        let mapped = ["::ffff:100.64.0.2", "::ffff:127.0.0.1"];
        let mut packets = Vec::new();
        for to in dressed.iter().chain(&mapped) {
            packets.push(datagram6(&a6, to)?);
        }
        // And from such an address to b's plain one.
        for from in ["::ffff:100.64.0.1", "::100.64.0.1", "2002:6440:1::1"] {
            packets.push(datagram6(from, b6.trim())?);
        }
        let mut words = vec!["python3", "-c", SEND, "rogue14"];
        words.extend(packets.iter().map(String::as_str));
        world.a.run(&words)?;
        // What goes to b's plain address comes after all that was dressed up.
        let control = datagram6(&a6, b6.trim())?;
        eventually("the control, and nothing before it", seconds(20), || {
            let sent = world.a.run(&["python3", "-c", SEND, "rogue14", &control]);
            let mut bytes = [0; 100];
            sent.is_ok()
                && at_b.recv(&mut bytes).is_ok_and(|len| {
                    let heard = String::from_utf8_lossy(&bytes[..len]);
                    assert_eq!(heard, b6.trim(), "it passed");
                    true
                })
        })?;
        let dropped = drops(&world)? - before;
        ensure!(dropped >= (dressed.len() + mapped.len()) as u64, "{dropped}");
        rogue.stop()
    })
}

/// A datagram of UDP that says where it goes.
fn datagram6(from: &str, to: &str) -> Result<String> {
    let [source, destination] = [from, to].map(str::parse::<std::net::Ipv6Addr>);
    let ends = [source?.octets(), destination?.octets()].concat();
    let len = (8 + to.len()) as u16;
    let head = [PORT.to_be_bytes(), PORT.to_be_bytes(), len.to_be_bytes()].concat();
    let mut udp = [&head[..], &[0, 0], to.as_bytes()].concat();
    let pseudo = [&ends[..], &u32::from(len).to_be_bytes(), &[0, 0, 0, 17], &udp].concat();
    let sum = total(&pseudo);
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    let packet = [&[0x60, 0, 0, 0][..], &len.to_be_bytes(), &[17, 64], &ends, &udp].concat();
    Ok(hex(&packet))
}

#[test]
fn pf_10_who_opens_flows_without_end_displaces_nobody_elses() -> Result<()> {
    scene("gate15", |scene| {
        let mut world = World::new(scene, "15")?;
        let rogue = three(&mut world, "rogue15", WITH_B)?;
        let (at_b, at_c) = (socket(&world.b)?, socket(&world.c)?);
        // c may not begin: what it says passes because b asked, and only as long as that is known.
        at_c.send_to(b"unasked", (B, PORT))?;
        ensure!(at_b.recv(&mut [0; 16]).is_err(), "c may not begin");
        speaks(&at_b, &at_c, C, "hello")?;
        let asked = Instant::now();
        let bytes = |host: &Host| -> Result<u64> {
            let path = "cat /sys/class/net/warren0/statistics/rx_packets";
            Ok(host.sh(path)?.trim().parse()?)
        };
        let before = bytes(&world.b)?;
        let sent = world.a.run(&["python3", "-c", SPRAY, "rogue15", A, B, "300000"])?;
        let arrived = bytes(&world.b)? - before;
        println!("{} flows sprayed, {arrived} came through, in {:?}", sent.trim(), asked.elapsed());
        ensure!(arrived > 70_000, "more than the table holds: {arrived}");
        // The first answers may be lost behind what was sprayed; one whose flow is gone always is.
        speaks(&at_c, &at_b, B, "answer")?;
        rogue.stop()
    })
}
