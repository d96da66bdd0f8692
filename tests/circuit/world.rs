//! Five nodes, four of them hops, and a web server beyond one; or several networks of them.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Host, Result, Scene, bail, ensure, eventually, seconds};

pub(crate) const WARREN: &str = env!("CARGO_BIN_EXE_warren");
pub(crate) const SERVER: &str = "10.8.0.254";
/// Beyond the exit, in the block for examples.
pub(crate) const WEB: &str = "203.0.113.9";
pub(crate) const NAMES: [&str; 5] = ["client", "h1", "h2", "h3", "h4"];
/// Each in a /16 of its own, all on one segment.
pub(crate) const ADDRESSES: [&str; 5] =
    ["10.9.0.1", "10.11.0.1", "10.12.0.1", "10.13.0.1", "10.14.0.1"];
/// In every page, to be searched for where it must not be.
pub(crate) const MARKER: &[u8] = b"9b1c-marker-of-the-page-77aa";

pub(crate) const POLICY: &str = r#"{
    "tagOwners": {"tag:hop": [], "tag:exit": [], "tag:staff": []},
    "acls": [{"action": "accept", "src": ["tag:staff"], "dst": ["tag:staff:*"]}],
    "circuits": {"use": ["tag:staff"], "hops": ["tag:hop"], "exits": ["tag:exit"]},
}"#;

/// Answers every question for an address with the web server's, and tells who asked.
pub(crate) const NAME_SERVER: &str = r#"
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
pub(crate) const WEB_SERVER: &str = r#"
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

pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct World {
    pub(crate) daemons: Vec<Option<Running>>,
    _others: Vec<Running>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) web: Host,
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
    pub(crate) fn new(scene: &Scene, id: &str) -> Result<Self> {
        let server = scene.host("server")?;
        server.sh(&format!(
            "ip link add br0 type bridge; ip link set br0 up; ip addr add {SERVER}/8 dev br0"
        ))?;
        let mut hosts = Vec::new();
        for (i, name) in NAMES.iter().enumerate() {
            let host = scene.host(name)?;
            let (port, address) = (format!("p{i}"), format!("{}/8", ADDRESSES[i]));
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
        let mut world = Self { daemons, _others: Vec::new(), hosts, web, server, folder };
        world.serve(0)?;
        for (script, name) in [(NAME_SERVER, "names"), (WEB_SERVER, "web")] {
            let child = world.on_web(&["python3", "-c", script], name, "")?;
            world._others.push(child);
        }
        let perf = world.on_web(&["iperf3", "-s", "-B", WEB], "perf", "")?;
        world._others.push(perf);
        Ok(world)
    }

    /// The server of a network: most tests have one.
    pub(crate) fn serve(&mut self, n: usize) -> Result<()> {
        let (data, at) = (self.path(&format!("server{n}")), format!("{SERVER}:{}", 8443 + n));
        let (url, stun) = (format!("https://{at}"), format!("{SERVER}:{}", 3478 + n));
        let words =
            [WARREN, "serve", "--data", &data, "--listen", &at, "--url", &url, "--stun", &stun];
        let serve = self.start(&self.server, &words, &format!("serve{n}"), "serving on")?;
        self._others.push(serve);
        Ok(())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    pub(crate) fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }

    /// A program beyond the exit.
    pub(crate) fn on_web(&self, words: &[&str], name: &str, ready: &str) -> Result<Running> {
        self.start(&self.web, words, name, ready)
    }

    pub(crate) fn start(
        &self,
        host: &Host,
        words: &[&str],
        name: &str,
        ready: &str,
    ) -> Result<Running> {
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

    pub(crate) fn daemon(&mut self, i: usize) -> Result<()> {
        let name = NAMES[i];
        let (state, socket) = (self.path(name), self.path(&format!("{name}.sock")));
        let words = [WARREN, "daemon", "--state", &state, "--socket", &socket, "--tun", "warren0"];
        self.daemons[i] = Some(self.start(&self.hosts[i], &words, name, "daemon at")?);
        Ok(())
    }

    pub(crate) fn command(&self, i: usize, words: &[&str]) -> Command {
        let socket = self.path(&format!("{}.sock", NAMES[i]));
        let mut command = self.hosts[i].command(&[WARREN]);
        command.args(["--socket", &socket]).args(words);
        command
    }

    pub(crate) fn node(&self, i: usize, words: &[&str]) -> Result<String> {
        said(&mut self.command(i, words))
    }

    pub(crate) fn admin(&self, words: &[&str]) -> Result<String> {
        self.admin_at(0, words)
    }

    pub(crate) fn admin_at(&self, n: usize, words: &[&str]) -> Result<String> {
        let data = self.path(&format!("server{n}"));
        said(self.server.command(&[WARREN]).args(words).args(["--data", &data]))
    }

    /// Everybody is up; all but the client offer themselves, and `h3` is an exit.
    pub(crate) fn join(&mut self) -> Result<()> {
        self.set_policy(0)?;
        let offers: [(&str, &[&str]); 5] = [
            ("tag:staff", &[]),
            ("tag:hop", &["--circuit-hop"]),
            ("tag:hop", &["--circuit-hop"]),
            ("tag:exit", &["--circuit-exit", "--circuit-names", WEB]),
            ("tag:hop", &["--circuit-hop"]),
        ];
        for (i, (tag, offer)) in offers.into_iter().enumerate() {
            self.join_as(i, 0, tag, offer)?;
        }
        Ok(())
    }

    pub(crate) fn set_policy(&self, n: usize) -> Result<()> {
        let policy = self.path("policy");
        std::fs::write(&policy, POLICY)?;
        self.admin_at(n, &["policy", "set", &policy]).map(drop)
    }

    /// One of them is up in the network `n`.
    pub(crate) fn join_as(&mut self, i: usize, n: usize, tag: &str, offer: &[&str]) -> Result<()> {
        self.daemon(i)?;
        let token = self.admin_at(n, &["key", "create", "--tag", tag])?;
        let up = ["up", token.trim(), "--timeout", "30s", "--hostname", NAMES[i]];
        self.node(i, &[&up[..], offer].concat()).map(drop)
    }

    /// Opens one, once hops know of each other.
    pub(crate) fn open(&self, words: &[&str]) -> Result<(String, Duration)> {
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

    pub(crate) fn show(&self, id: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.node(0, &["circuit", "show", id, "--json"])?)?)
    }

    /// What a command in a circuit of its own prints.
    pub(crate) fn run(&self, words: &[&str]) -> Result<String> {
        let via = ["circuit", "run", "--via", "h1,h2,h3", "--"];
        self.node(0, &[&via[..], words].concat())
    }
}

pub(crate) fn said(command: &mut Command) -> Result<String> {
    let out = command.output()?;
    let why = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{command:?}: {}", why.trim());
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

pub(crate) fn has(packet: &[u8], what: &[u8]) -> bool {
    packet.windows(what.len()).any(|part| part == what)
}
