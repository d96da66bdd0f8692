//! A member whose program is its own: it has its key, and none of our rules.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Context as _, Host, Result, ensure, eventually, inside, scene, seconds};
use crate::world::{World, asks};

const PORT: u16 = 7777;
const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
/// Nobody's, under no rule.
const NOT_UNICAST: [&str; 4] = ["127.0.0.1", "0.1.2.3", "224.0.0.251", "255.255.255.255"];
/// Of b's machine and beside it, and not served.
const FOREIGN: [&str; 9] = [
    "192.168.5.9",
    "192.168.5.1",
    "192.168.5.255",
    "203.0.113.9",
    "203.0.113.1",
    "10.9.0.2",
    "169.254.169.254",
    "100.64.0.3",
    "100.127.255.255",
];
/// Of each destination.
const DATAGRAMS: usize = 20;

/// The same of IPv6.
const FOREIGN6: [&str; 4] = ["fd05::9", "fd05::1", "2001:db8:5::9", "2001:db8:9::9"];

/// Datagrams of UDP, each with its destination's name, put on an interface as they are: no route
/// and no rule of the sender's kernel is asked. The source of IPv6 is the fourth word.
const SEND: &str = r#"
import socket, struct, sys
def total(data):
    data += b"\0" * (len(data) % 2)
    sum_ = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while sum_ >> 16: sum_ = (sum_ & 0xffff) + (sum_ >> 16)
    return ~sum_ & 0xffff
device, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def six(to, udp):
    inner = [socket.inet_pton(socket.AF_INET6, end) for end in (sys.argv[4], to)]
    pseudo = b"".join(inner) + struct.pack("!2I", len(udp), 17)
    udp = udp[:6] + struct.pack("!H", total(pseudo + udp)) + udp[8:]
    return struct.pack("!IHBB", 6 << 28, len(udp), 17, 64) + b"".join(inner) + udp
def put(kind, packet):
    out = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
    out.bind((device, kind))
    for _ in range(count): out.send(packet)
for to in sys.argv[5:]:
    udp = struct.pack("!4H", port, port, 8 + len(to), 0) + to.encode()
    if ":" in to:
        put(0x86dd, six(to, udp))
        continue
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0,
        socket.inet_aton("100.64.0.1"), socket.inet_aton(to))
    head = head[:10] + struct.pack("!H", total(head)) + head[12:]
    put(0x0800, head + udp)
"#;

/// Everything that comes to a port of a host within some seconds.
fn hears(host: &Host, group: bool) -> Result<std::thread::JoinHandle<Result<Vec<String>>>> {
    inside::start(host, move || {
        // Of both families.
        let socket = UdpSocket::bind(("::", PORT))?;
        if group {
            socket.join_multicast_v4(&GROUP, &Ipv4Addr::new(100, 64, 0, 2))?;
        }
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let (mut heard, end) = (Vec::new(), Instant::now() + seconds(6));
        while Instant::now() < end {
            let mut bytes = [0; 100];
            if let Ok(len) = socket.recv(&mut bytes) {
                heard.push(String::from_utf8_lossy(&bytes[..len]).into_owned());
            }
        }
        Ok(heard)
    })
}

/// `a` with a program of its own in place of its daemon, on an interface of its own.
pub(crate) struct Rogue(lab::process::Process);

impl Rogue {
    /// Takes the key of `a`, which is a member with `b` as its peer, and everything to be allowed.
    pub(crate) fn start(world: &mut World, name: &str) -> Result<Self> {
        let json = |text: String| serde_json::from_str::<Value>(&text).context("JSON");
        let b = json(world.node(1, &["status", "--json"])?)?;
        let key = b["self"]["key"].as_str().context("its key")?.to_owned();
        let port = json(world.node(1, &["netcheck", "--json"])?)?["port"].to_string();
        let state = std::fs::read_to_string(format!("{}/node.json", world.folder.path("a")))?;
        let own = json(state)?["node"].as_str().context("a's key")?.to_owned();
        world.daemons[0] = None;
        world.cleanup(0)?;
        let config = world.folder.path("rogue.conf");
        std::fs::write(
            &config,
            format!(
                "[Interface]\nPrivateKey = {own}\n[Peer]\nPublicKey = {key}\n\
                 AllowedIPs = 0.0.0.0/0, ::/0\nEndpoint = 10.9.0.2:{port}\n"
            ),
        )?;
        let rogue = world.a.spawn(&[env!("CARGO_BIN_EXE_warren"), "wg", "-f", name])?;
        eventually("its interface", seconds(10), || {
            world.a.run(&["wg", "setconf", name, &config]).is_ok()
        })?;
        world
            .a
            .sh(&format!("ip addr add 100.64.0.1/10 dev {name}; ip link set {name} mtu 1280 up"))?;
        eventually("the control: b's own address", seconds(20), || {
            asks(&world.a, "100.64.0.2", 80).is_ok()
        })?;
        Ok(Self(rogue))
    }

    pub(crate) fn stop(self) -> Result<()> {
        self.0.stop().map(drop)
    }
}

#[test]
fn pf_02_pf_17_a_member_with_a_program_of_its_own_reaches_what_is_served_and_no_more() -> Result<()>
{
    scene("gate9", |scene| {
        let mut world = World::new(scene, "43")?;
        // b is a gateway for IPv6 alone, on a machine that forwards everything.
        world.join("fd05::/64", &[], &[])?;
        world.b.sh("echo 1 > /proc/sys/net/ipv4/ip_forward")?;
        ensure!(world.reaches(0, "fd05::9")?.starts_with("lan "));
        let json = |text: String| serde_json::from_str::<Value>(&text).context("JSON");
        let rogue = Rogue::start(&mut world, "rogue9")?;
        for policy in ["", r#"{"grants": [{"src": ["*"], "dst": ["*"], "ip": ["*"]}]}"#] {
            if !policy.is_empty() {
                let file = world.folder.path("policy.hujson");
                std::fs::write(&file, policy)?;
                world.admin(&["policy", "set", &file])?;
                std::thread::sleep(seconds(2));
            }
            let before = json(world.node(1, &["status", "--json"])?)?["drops"].clone();
            let (at_b, at_lan) = (hears(&world.b, true)?, hears(&world.lan, false)?);
            std::thread::sleep(Duration::from_millis(300));
            let (port, count) = (PORT.to_string(), DATAGRAMS.to_string());
            let words = ["python3", "-c", SEND, "rogue9", &port, &count, "::", "100.64.0.2"];
            world.a.run(&[&words[..], &NOT_UNICAST, &FOREIGN].concat())?;
            let (at_b, at_lan) = (inside::join(at_b)?, inside::join(at_lan)?);
            ensure!(at_b.iter().all(|to| to == "100.64.0.2"), "{at_b:?}");
            ensure!(at_b.len() == DATAGRAMS && at_lan.is_empty(), "{at_b:?} {at_lan:?}");
            let after = json(world.node(1, &["status", "--json"])?)?["drops"].clone();
            let of = |drops: &Value| -> u64 {
                let each = ["policy-in", "frame-refused"].map(|why| drops[why].as_u64());
                each.into_iter().flatten().sum()
            };
            let wanted = ((NOT_UNICAST.len() + FOREIGN.len()) * DATAGRAMS) as u64;
            ensure!(of(&after) - of(&before) >= wanted, "of {wanted}: {before} {after}");
        }
        rogue.stop()
    })
}

/// A machine that forwards for other reasons is no way into its networks: neither kernel nor
/// program of b lead there before a route is approved.
#[test]
fn pf_02_a_member_that_is_no_gateway_but_forwards_leads_nobody_into_its_networks() -> Result<()> {
    scene("gate16", |scene| {
        let mut world = World::new(scene, "16")?;
        world.b.sh("cd /proc/sys/net; echo 1 > ipv4/ip_forward
             echo 1 > ipv6/conf/all/forwarding; echo 1 > ipv6/conf/default/forwarding")?;
        world.join("", &[], &[])?;
        let json = |text: String| serde_json::from_str::<Value>(&text).context("JSON");
        let [a6, b6] = [world.node(0, &["ip", "-6"])?, world.node(1, &["ip", "-6"])?];
        let (a6, b6) = (a6.trim(), b6.trim());
        let rogue = Rogue::start(&mut world, "rogue16")?;
        world.a.sh(&format!("ip addr add {a6}/128 dev rogue16 nodad"))?;
        let own = ["100.64.0.2", b6];
        let sends = |world: &World| -> Result<[Vec<String>; 2]> {
            let (at_b, at_lan) = (hears(&world.b, false)?, hears(&world.lan, false)?);
            std::thread::sleep(Duration::from_millis(300));
            let (port, count) = (PORT.to_string(), DATAGRAMS.to_string());
            let words = ["python3", "-c", SEND, "rogue16", &port, &count, a6];
            world.a.run(&[&words[..], &own, &FOREIGN, &FOREIGN6].concat())?;
            Ok([inside::join(at_b)?, inside::join(at_lan)?])
        };
        let everything = r#"{"grants": [{"src": ["*"], "dst": ["*", "autogroup:internet",
            "192.168.0.0/16", "fd05::/64"], "ip": ["*"]}]}"#;
        for policy in ["", everything] {
            if !policy.is_empty() {
                let file = world.folder.path("policy.hujson");
                std::fs::write(&file, policy)?;
                world.admin(&["policy", "set", &file])?;
                std::thread::sleep(seconds(2));
            }
            let before = json(world.node(1, &["status", "--json"])?)?["drops"].clone();
            let [at_b, at_lan] = sends(&world)?;
            ensure!(at_lan.is_empty(), "led into b's LAN ({policy:?}): {at_lan:?}");
            ensure!(at_b.iter().all(|to| own.contains(&&to[..])), "{at_b:?}");
            ensure!(at_b.len() == 2 * DATAGRAMS, "the control: b itself is reached: {at_b:?}");
            let after = json(world.node(1, &["status", "--json"])?)?["drops"].clone();
            let of = |drops: &Value| -> u64 {
                let each = ["policy-in", "frame-refused"].map(|why| drops[why].as_u64());
                each.into_iter().flatten().sum()
            };
            let foreign = ((FOREIGN.len() + FOREIGN6.len()) * DATAGRAMS) as u64;
            ensure!(of(&after) - of(&before) >= foreign, "the program is asked: {before} {after}");
        }
        // what is approved is reached, and nothing beside it
        world.node(1, &["set", "--advertise-routes", "192.168.5.0/24,fd05::/64"])?;
        eventually("approved", seconds(10), || {
            world.admin(&["route", "approve", "b", "192.168.5.0/24", "fd05::/64"]).is_ok()
        })?;
        eventually("the filter of a gateway", seconds(10), || {
            let chain = world.b.sh("nft list chain inet warren from_peers");
            chain.is_ok_and(|text| text.contains("fd05::/64"))
        })?;
        let [_, at_lan] = sends(&world)?;
        let served = |to: &String| ["192.168.5.9", "fd05::9"].contains(&&to[..]);
        ensure!(at_lan.iter().all(served) && at_lan.len() == 2 * DATAGRAMS, "{at_lan:?}");
        rogue.stop()
    })
}
