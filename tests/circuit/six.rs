//! Packets of IPv6 through circuits, and their end where the exit has none.

use std::time::Instant;

use crate::support::capture::Capture;
use crate::support::{Result, ensure, eventually, scene, seconds};
use crate::world::{World, said};

const WEB_SIX: &str = "2001:db8:1::9";
const EXIT_SIX: &str = "2001:db8:1::1";

const SERVER: &str = r#"
import http.server, socket
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"9b1c-marker-of-the-page-77aa " * 4000
        self.send_response(200); self.send_header("Content-Length", str(len(body)))
        self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): print("page for", self.client_address[0], flush=True)
class S(http.server.ThreadingHTTPServer): address_family = socket.AF_INET6
S(("2001:db8:1::9", 80), H).serve_forever()
"#;

/// Answers every datagram, and tells from whom it was.
const ECHO: &str = r#"
import socket
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.bind(("2001:db8:1::9", 7777))
print("ready", flush=True)
while True:
    data, who = s.recvfrom(2000)
    print("datagram from", who[0], flush=True)
    s.sendto(data, who)
"#;

/// A datagram through the SOCKS door, by hand: UDP ASSOCIATE, then one with an address of IPv6.
const ASSOCIATE: &str = r#"
import socket, struct
t = socket.create_connection(("127.0.0.1", 1080), 20)
t.sendall(bytes([5, 1, 0])); t.recv(2)
t.sendall(bytes([5, 3, 0, 1]) + bytes(6)); reply = t.recv(10)
relay = ("127.0.0.1", struct.unpack("!H", reply[8:10])[0])
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(2)
to = socket.inet_pton(socket.AF_INET6, "2001:db8:1::9")
head = bytes([0, 0, 0, 4]) + to + struct.pack("!H", 7777)
for _ in range(5):
    u.sendto(head + b"hello", relay)
    try: data = u.recv(2000)
    except TimeoutError: continue
    print(data == head + b"hello"); break
"#;

/// The exit and the server beyond it have IPv6.
fn give_exit_six(world: &World) -> Result<()> {
    world.hosts[3].sh(&format!(
        "ip addr add {EXIT_SIX}/128 dev out0 nodad
         ip -6 route add default via {WEB_SIX} dev out0 onlink"
    ))?;
    world.web.sh(&format!(
        "ip addr add {WEB_SIX}/128 dev eth0 nodad; ip -6 route add {EXIT_SIX} dev eth0"
    ))?;
    Ok(())
}

/// The client has a way of IPv6 beside the circuit, which nothing may take.
fn give_client_six(world: &World) -> Result<()> {
    world.hosts[0].sh("ip addr add 2001:db8:9::1/64 dev eth0 nodad
         ip -6 route add default via 2001:db8:9::2 dev eth0")?;
    Ok(())
}

#[test]
fn the_machine_and_socks_clients_use_ipv6_by_circuit_or_not_at_all() -> Result<()> {
    scene("circ10", |scene| {
        let mut world = World::new(scene, "10")?;
        give_exit_six(&world)?;
        give_client_six(&world)?;
        let servers = [
            world.on_web(&["python3", "-c", SERVER], "six", "")?,
            world.on_web(&["python3", "-c", ECHO], "echo", "ready")?,
        ];
        world.join()?;
        let (first, _) = world.open(&[])?;
        world.node(0, &["circuit", "close", &first])?;
        let capture = Capture::start(&world.hosts[0], "eth0")?;
        let url = format!("http://[{WEB_SIX}]/");
        let fetch = |words: &[&str]| {
            let all = [&["curl", "-gsS", "--max-time", "5"], words].concat();
            said(world.hosts[0].command(&all[..1]).args(&all[1..]))
        };
        let is_whole = |page: Result<String>| page.is_ok_and(|page| page.len() == 29 * 4000);
        for led in ["2001:db8:1::/48", "default"] {
            world.node(0, &["set", "--circuit-for", led])?;
            eventually("a page comes by circuit", seconds(20), || is_whole(fetch(&[&url])))?;
        }
        let elsewhere = fetch(&["http://[2001:db8:9::2]/"]);
        ensure!(elsewhere.is_err(), "{elsewhere:?}");
        world.node(0, &["set", "--circuit-for", "2001:db8:1::/48"])?;
        world.node(0, &["set", "--socks", "127.0.0.1:1080"])?;
        let by = ["--proxy", "socks5h://anna:x@127.0.0.1:1080", &url];
        eventually("a page comes through the door", seconds(20), || is_whole(fetch(&by)))?;
        let echoed = world.hosts[0].run(&["python3", "-c", ASSOCIATE])?;
        ensure!(echoed.contains("True"), "{echoed}");
        let near = fetch(&["--proxy", "socks5h://anna:x@127.0.0.1:1080", "http://[::1]:1080/"]);
        ensure!(near.is_err(), "this machine is reached: {near:?}");
        world.node(0, &["set", "--socks", ""])?;

        // The daemon is killed: what was led into a circuit leaves by no other way.
        world.daemons[0] = None;
        let tried = fetch(&[&url]);
        ensure!(tried.is_err(), "{tried:?}");
        let packets = capture.stop()?;
        ensure!(packets.len() > 100, "the control: the wire is seen");
        for packet in packets.iter().filter(|packet| packet[0] >> 4 == 6) {
            let is_beyond = packet[24..28] == [0x20, 0x01, 0x0d, 0xb8] && packet[28..30] == [0, 1];
            ensure!(!is_beyond, "a packet beside the circuit");
        }
        let seen = [world.log("six"), world.log("echo").replace("ready\n", "")].concat();
        ensure!(seen.lines().count() >= 4, "{seen}");
        for line in seen.lines() {
            ensure!(line.ends_with(EXIT_SIX), "{line}");
        }
        drop(servers);
        Ok(())
    })
}

#[test]
fn programs_use_ipv6_through_three_hops_and_are_told_where_the_exit_has_none() -> Result<()> {
    scene("circ9", |scene| {
        let mut world = World::new(scene, "9")?;
        give_exit_six(&world)?;
        let server = world.on_web(&["python3", "-c", SERVER], "six", "")?;
        world.join()?;
        let (id, _) = world.open(&["--via", "h1,h2,h3"])?;
        ensure!(world.show(&id)?["ipv6"] == true, "{}", world.show(&id)?);
        world.node(0, &["circuit", "close", &id])?;
        give_client_six(&world)?;
        let capture = Capture::start(&world.hosts[0], "eth0")?;
        let url = format!("http://[{WEB_SIX}]/");
        let get = ["curl", "-gsS", "-6", "--max-time", "20", &url];
        let page = world.run(&get)?;
        ensure!(page.len() == 29 * 4000, "{} bytes", page.len());
        let ping = world.run(&["ping", "-6", "-n", "-c", "3", "-i", "0.2", "-W", "3", WEB_SIX])?;
        ensure!(ping.contains("3 received"), "{ping}");
        ensure!(world.log("six").trim().ends_with(EXIT_SIX), "{}", world.log("six"));

        // The exit loses its way out: whoever begins now is told at once.
        world.hosts[3].sh("ip -6 route del default")?;
        let is_told = || {
            let opened = world.open(&["--via", "h1,h2,h3"]);
            opened.is_ok_and(|(id, _)| {
                let shown = world.show(&id);
                let _ = world.node(0, &["circuit", "close", &id]);
                shown.is_ok_and(|shown| shown["ipv6"] == false)
            })
        };
        eventually("the exit says that it has no IPv6", seconds(20), is_told)?;
        let begin = Instant::now();
        let refused = world.run(&get);
        let took = begin.elapsed();
        ensure!(refused.is_err(), "{refused:?}");
        println!("refused after {took:?}: {refused:?}");
        ensure!(took < seconds(10), "it waits {took:?} for what never comes");
        let packets = capture.stop()?;
        ensure!(packets.len() > 100, "the control: the wire is seen");
        for packet in packets.iter().filter(|packet| packet[0] >> 4 == 6) {
            let is_beyond = packet[24..28] == [0x20, 0x01, 0x0d, 0xb8] && packet[28..30] == [0, 1];
            ensure!(!is_beyond, "a packet beside the circuit");
        }
        drop(server);
        Ok(())
    })
}
