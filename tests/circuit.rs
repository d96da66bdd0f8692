//! Circuits end to end: four nodes, three of them hops, and a web server beyond the last one; what
//! real programs get through them, what the wires show, and what happens when a hop dies.

mod support;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::capture::Capture;
use support::{Host, Result, Scene, bail, ensure, eventually, scene, seconds};

const WARREN: &str = env!("CARGO_BIN_EXE_warren");
const SERVER: &str = "10.9.0.254";
/// Beyond the exit, in the block for examples.
const WEB: &str = "203.0.113.9";
const NAMES: [&str; 4] = ["client", "h1", "h2", "h3"];
/// In every page, to be searched for where it must not be.
const MARKER: &[u8] = b"9b1c-marker-of-the-page-77aa";

const POLICY: &str = r#"{
    "tagOwners": {"tag:hop": [], "tag:exit": [], "tag:staff": []},
    "acls": [{"action": "accept", "src": ["tag:staff"], "dst": ["tag:staff:*"]}],
    "circuits": {"use": ["tag:staff"], "hops": ["tag:hop"], "exits": ["tag:exit"]},
}"#;

/// Answers every question for an address with the web server's, and tells who asked.
const NAME_SERVER: &str = r#"
import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("203.0.113.9", 53))
while True:
    q, who = s.recvfrom(2000)
    end = q.index(b"\0", 12) + 5
    a = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 5, 4) + socket.inet_aton("203.0.113.9")
    s.sendto(q[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + q[12:end] + a, who)
    print("asked by", who[0], flush=True)
"#;

/// A page of any size, and who wanted it.
const WEB_SERVER: &str = r#"
import http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        size = int(self.path.strip("/") or 100)
        body = (b"9b1c-marker-of-the-page-77aa " * (size // 29 + 1))[:size]
        self.send_response(200); self.send_header("Content-Length", str(len(body)))
        self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): print("page for", self.client_address[0], flush=True)
http.server.ThreadingHTTPServer(("203.0.113.9", 80), H).serve_forever()
"#;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct World {
    daemons: Vec<Option<Running>>,
    _others: Vec<Running>,
    hosts: Vec<Host>,
    server: Host,
    folder: PathBuf,
}

impl Drop for World {
    fn drop(&mut self) {
        self.daemons.clear();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl World {
    fn new(scene: &Scene, id: &str) -> Result<Self> {
        let server = scene.host("server")?;
        server.sh(&format!(
            "ip link add br0 type bridge; ip link set br0 up; ip addr add {SERVER}/24 dev br0"
        ))?;
        let mut hosts = Vec::new();
        for (i, name) in NAMES.iter().enumerate() {
            let host = scene.host(name)?;
            let (port, address) = (format!("p{i}"), format!("10.9.0.{}/24", i + 1));
            scene.veth((&server, &port, &[]), (&host, "eth0", &[&address]))?;
            server.sh(&format!("ip link set {port} master br0"))?;
            hosts.push(host);
        }
        let web = scene.host("web")?;
        scene
            .veth((&hosts[3], "out0", &["203.0.113.1/32"]), (&web, "eth0", &["203.0.113.9/32"]))?;
        // the Internet is behind a router, and not a network of the exit's
        hosts[3].sh("ip route add default via 203.0.113.9 dev out0 onlink")?;
        web.sh("ip route add 203.0.113.1 dev eth0")?;
        let folder =
            std::env::temp_dir().join(format!("warren-circuit-{id}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let daemons = NAMES.iter().map(|_| None).collect();
        let mut world = Self { daemons, _others: Vec::new(), hosts, server, folder };
        let (data, at) = (world.path("server"), format!("{SERVER}:8443"));
        let (url, stun) = (format!("https://{at}"), format!("{SERVER}:3478"));
        let words =
            [WARREN, "serve", "--data", &data, "--listen", &at, "--url", &url, "--stun", &stun];
        let serve = world.start(&world.server, &words, "serve", "serving on")?;
        world._others.push(serve);
        for (script, name) in [(NAME_SERVER, "names"), (WEB_SERVER, "web")] {
            let child = world.start(&web, &["python3", "-c", script], name, "")?;
            world._others.push(child);
        }
        Ok(world)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }

    fn start(&self, host: &Host, words: &[&str], name: &str, ready: &str) -> Result<Running> {
        let file = std::fs::File::create(self.path(&format!("{name}.log")))?;
        let mut command = host.command(&words[..1]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let running = Running(command.spawn()?);
        let is_ready = || self.log(name).contains(ready);
        if eventually(&format!("{name} is ready"), seconds(30), is_ready).is_err() {
            bail!("{name} did not start:\n{}", self.log(name));
        }
        Ok(running)
    }

    fn daemon(&mut self, i: usize) -> Result<()> {
        let name = NAMES[i];
        let (state, socket) = (self.path(name), self.path(&format!("{name}.sock")));
        let words = [WARREN, "daemon", "--state", &state, "--socket", &socket, "--tun", "warren0"];
        self.daemons[i] = Some(self.start(&self.hosts[i], &words, name, "daemon at")?);
        Ok(())
    }

    fn command(&self, i: usize, words: &[&str]) -> Command {
        let socket = self.path(&format!("{}.sock", NAMES[i]));
        let mut command = self.hosts[i].command(&[WARREN]);
        command.args(["--socket", &socket]).args(words);
        command
    }

    fn node(&self, i: usize, words: &[&str]) -> Result<String> {
        said(&mut self.command(i, words))
    }

    fn admin(&self, words: &[&str]) -> Result<String> {
        let data = self.path("server");
        said(self.server.command(&[WARREN]).args(words).args(["--data", &data]))
    }

    /// Everybody is up; `h1` to `h3` offer themselves, and `h3` is an exit.
    fn join(&mut self) -> Result<()> {
        let policy = self.path("policy");
        std::fs::write(&policy, POLICY)?;
        self.admin(&["policy", "set", &policy])?;
        let offers: [(&str, &[&str]); 4] = [
            ("tag:staff", &[]),
            ("tag:hop", &["--circuit-hop"]),
            ("tag:hop", &["--circuit-hop"]),
            ("tag:exit", &["--circuit-exit", "--circuit-names", WEB]),
        ];
        for (i, (tag, offer)) in offers.into_iter().enumerate() {
            self.daemon(i)?;
            let token = self.admin(&["key", "create", "--tag", tag])?;
            let up = ["up", token.trim(), "--timeout", "30s", "--hostname", NAMES[i]];
            self.node(i, &[&up[..], offer].concat())?;
        }
        Ok(())
    }

    /// Opens one, once hops know of each other.
    fn open(&self, words: &[&str]) -> Result<(String, Duration)> {
        let last = std::cell::RefCell::new(String::new());
        let took = std::cell::Cell::new(Duration::ZERO);
        let opened = eventually("a circuit is built", seconds(40), || {
            let begin = Instant::now();
            match self.node(0, &[&["circuit", "open"], words].concat()) {
                Ok(id) => {
                    took.set(begin.elapsed());
                    last.replace(id.trim().to_owned());
                    true
                }
                Err(why) => {
                    last.replace(format!("{why:#}"));
                    false
                }
            }
        });
        let last = last.take();
        ensure!(opened.is_ok(), "no circuit: {last}");
        Ok((last, took.get()))
    }

    fn show(&self, id: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.node(0, &["circuit", "show", id, "--json"])?)?)
    }

    /// What a command in a circuit of its own prints.
    fn run(&self, words: &[&str]) -> Result<String> {
        let via = ["circuit", "run", "--via", "h1,h2,h3", "--"];
        self.node(0, &[&via[..], words].concat())
    }
}

fn said(command: &mut Command) -> Result<String> {
    let out = command.output()?;
    let why = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{command:?}: {}", why.trim());
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

fn has(packet: &[u8], what: &[u8]) -> bool {
    packet.windows(what.len()).any(|part| part == what)
}

#[test]
fn real_programs_go_through_three_hops_and_no_wire_shows_who_talks_to_whom() -> Result<()> {
    scene("circ1", |scene| {
        let mut world = World::new(scene, "1")?;
        world.join()?;
        let (id, took) = world.open(&["--via", "h1,h2,h3"])?;
        let shown = world.show(&id)?;
        ensure!(shown["state"] == "open" && shown["hops"][2]["name"] == "h3", "{shown}");
        println!("built in {} ms, the command took {took:?}", shown["built_ms"]);
        world.node(0, &["circuit", "close", &id])?;

        let wires =
            [("client", 0, "eth0"), ("h1", 1, "eth0"), ("h2", 2, "eth0"), ("h3", 3, "eth0")];
        let captures = wires
            .iter()
            .map(|(_, i, ifname)| Capture::start(&world.hosts[*i], ifname))
            .collect::<Result<Vec<_>>>()?;
        let beyond = Capture::start(&world.hosts[3], "out0")?;
        // By name, so that the exit's name server is asked.
        let page = world.run(&["curl", "-sS", "--max-time", "20", "http://page.example/200000"])?;
        ensure!(page.len() == 200_000 && has(page.as_bytes(), MARKER), "{} bytes", page.len());
        let ping = world.run(&["ping", "-n", "-c", "3", "-i", "0.2", "-W", "3", WEB])?;
        ensure!(ping.contains("3 received"), "{ping}");
        let dig = world.run(&["dig", "+short", "+time=3", "any.example"])?;
        ensure!(dig.trim() == WEB, "{dig}");
        println!("{}", ping.lines().last().unwrap_or_default());

        // What is behind the client and the exit is closed, and so is the client's own machine.
        for to in ["10.9.0.254", "10.9.0.4", "10.9.0.1", "198.18.255.254", "100.64.0.1"] {
            let tried = world.run(&["curl", "-sS", "--max-time", "1", &format!("http://{to}/")]);
            ensure!(tried.is_err(), "{to} is reached: {tried:?}");
        }
        let seen = beyond.stop()?;
        let from_client =
            |packet: &&Vec<u8>| packet[0] >> 4 == 4 && packet[12..16] == [10, 9, 0, 1];
        ensure!(
            seen.iter().any(|packet| has(packet, MARKER)),
            "the control: the page passed there"
        );
        ensure!(!seen.iter().any(|packet| from_client(&packet)), "the client's address beyond");
        for who in [world.log("web"), world.log("names")] {
            let lines: Vec<&str> = who.lines().collect();
            ensure!(
                !lines.is_empty() && lines.iter().all(|l| l.ends_with(" 203.0.113.1")),
                "{who}"
            );
        }
        for ((name, ..), capture) in wires.iter().zip(captures) {
            let packets = capture.stop()?;
            ensure!(packets.len() > 100, "{name}: {} packets", packets.len());
            for packet in &packets {
                ensure!(!has(packet, MARKER), "{name}: the page in clear");
                let ends = [12, 16].map(|at| packet.get(at..at + 4));
                let there = Some(&[203, 0, 113, 9][..]);
                ensure!(packet[0] >> 4 != 4 || !ends.contains(&there), "{name}: who is talked to");
                // Nothing of the circuit leaves but in datagrams between nodes: no name, no TCP.
                let is_udp = packet[0] >> 4 == 4 && packet[9] == 17;
                ensure!(!is_udp || packet[22..24] != [0, 53], "{name}: a name is asked");
            }
        }
        Ok(())
    })
}

#[test]
fn a_killed_hop_is_told_within_three_seconds_and_nothing_leaks_meanwhile() -> Result<()> {
    scene("circ2", |scene| {
        let mut world = World::new(scene, "2")?;
        world.join()?;
        let (id, _) = world.open(&["--via", "h1,h2,h3"])?;
        let mut running = world.command(
            0,
            &[
                "circuit",
                "run",
                "--via",
                "h1,h2,h3",
                "--",
                "sh",
                "-c",
                &format!(
                    "for i in $(seq 100); do curl -s --max-time 1 http://{WEB}/10 >/dev/null; done"
                ),
            ],
        );
        let said = std::fs::File::create(world.path("run.log"))?;
        let running = Running(running.stdout(Stdio::null()).stderr(said).spawn()?);
        let served = || world.log("web").lines().count() > 3;
        if eventually("pages are served", seconds(20), served).is_err() {
            bail!("no page is served:\n{}", world.log("run"));
        }
        let capture = Capture::start(&world.hosts[0], "eth0")?;
        world.daemons[2] = None;
        let killed = Instant::now();
        let is_dead = || world.show(&id).is_ok_and(|shown| shown["state"] == "closed");
        eventually("the circuit is told dead", seconds(10), is_dead)?;
        let took = killed.elapsed();
        println!("told dead {took:?} after the hop was killed");
        ensure!(took < seconds(3), "told dead after {took:?}");
        std::thread::sleep(seconds(2));
        let packets = capture.stop()?;
        let leaks = |p: &&Vec<u8>| p[0] >> 4 == 4 && p[16..20] == [203, 0, 113, 9];
        ensure!(packets.iter().filter(leaks).count() == 0, "packets beside the circuit");
        // Another one, over the hops that are left.
        let (again, _) = world.open(&["--via", "h1,h3"])?;
        ensure!(world.show(&again)?["state"] == "open");
        // A command that was killed leaves its room, which cleanup takes away.
        let room = format!("-{}", running.0.id());
        drop(running);
        world.daemons[0] = None;
        let left = "ip netns list; ip rule; nft list tables";
        ensure!(world.hosts[0].sh(left)?.contains(&room), "the control: a room is left");
        let state = world.path(NAMES[0]);
        world.hosts[0].run(&[WARREN, "cleanup", "--state", &state])?;
        let left = world.hosts[0].sh(left)?;
        for what in [room.as_str(), "30562", "warren-circuit-"] {
            ensure!(!left.contains(what), "{what} is left: {left}");
        }
        Ok(())
    })
}

#[test]
fn who_is_in_no_list_may_nothing() -> Result<()> {
    scene("circ3", |scene| {
        let mut world = World::new(scene, "3")?;
        world.join()?;
        let (id, _) = world.open(&["--via", "h1,h2,h3"])?;
        // The same network, without the client's name in the list.
        let policy = world.path("policy");
        std::fs::write(&policy, POLICY.replace(r#""use": ["tag:staff"]"#, r#""use": []"#))?;
        world.admin(&["policy", "set", &policy])?;
        eventually("the circuit is ended", seconds(20), || {
            world.show(&id).is_ok_and(|shown| shown["state"] == "closed")
        })?;
        let refused = world.node(0, &["circuit", "open", "--via", "h1,h2,h3"]);
        ensure!(refused.is_err(), "{refused:?}");
        Ok(())
    })
}
