//! A network end to end: `warren serve`, one token, `warren daemon` and `warren up` on hosts that
//! are namespaces, and what a person then does.

#[path = "network/away.rs"]
mod away;
#[path = "network/bandwidth.rs"]
mod bandwidth;
#[path = "network/campus.rs"]
mod campus;
#[path = "network/classes.rs"]
mod classes;
#[path = "network/crowd.rs"]
mod crowd;
#[path = "network/dns.rs"]
mod dns;
#[path = "network/guides.rs"]
mod guides;
#[path = "network/jumbo.rs"]
mod jumbo;
#[path = "network/kills.rs"]
mod kills;
#[path = "network/life.rs"]
mod life;
#[path = "network/lossy.rs"]
mod lossy;
#[path = "network/narrow.rs"]
mod narrow;
#[path = "network/nats.rs"]
mod nats;
#[path = "network/places.rs"]
mod places;
#[path = "network/ports.rs"]
mod ports;
#[path = "network/proxy.rs"]
mod proxy;
#[path = "network/resolvers.rs"]
mod resolvers;
#[path = "network/robots.rs"]
mod robots;
#[path = "network/rules.rs"]
mod rules;
#[path = "network/signin.rs"]
mod signin;
#[path = "network/stun.rs"]
mod stun;
mod support;
#[path = "network/users.rs"]
mod users;
#[path = "network/why.rs"]
mod why;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use lab::topology::Lab;
use serde_json::Value;
use support::*;

const WARREN: &str = env!("CARGO_BIN_EXE_warren");
const PATIENCE: u64 = 20;

/// A program of the test, ended with it.
struct Running(Child);

impl Running {
    fn start(host: &Host, words: &[&str], log: &PathBuf) -> Result<Self> {
        Self::start_with(host, words, &[], log)
    }

    fn start_with(host: &Host, words: &[&str], env: &[Env], log: &PathBuf) -> Result<Self> {
        let log = std::fs::File::create(log)?;
        let mut command = host.command(&[WARREN]);
        command.envs(env.iter().copied());
        command.args(words).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Self(command.spawn()?))
    }

    fn kill(&mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }

    /// Ends it as systemd would.
    fn end(&mut self) -> Result<()> {
        // Ours, and not yet waited for.
        said(Command::new("kill").arg(self.0.id().to_string()))?;
        ensure!(self.0.wait()?.success(), "it ends in good order");
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder of the test, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(id: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("warren-network-{id}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server, nodes, and what they keep. [`Lan::new`] makes one LAN of them: a host with the server,
/// and nodes `a`, `b`, … at 10.9.0.1, 10.9.0.2, ….
struct Lan {
    folder: Folder,
    server: Host,
    place: Place,
    serve: Option<Running>,
    nodes: Vec<Node>,
}

/// Where `make setup` puts what it does not install.
fn tools() -> PathBuf {
    target().join("tools")
}

/// Where the server listens and how it is reached: what follows `--listen`, `--url`, `--stun`.
struct Place([String; 3]);

struct Node {
    name: String,
    host: Host,
    daemon: Option<Running>,
    /// What its daemon is started with.
    env: Vec<Env>,
}

impl Node {
    fn new(name: &str, host: &Host) -> Self {
        Self { name: name.to_owned(), host: host.clone(), daemon: None, env: Vec::new() }
    }
}

/// A variable of an environment.
type Env = (&'static str, &'static str);

const SERVER: &str = "10.9.0.254";

impl Lan {
    fn new(scene: &Scene, id: &str, count: u8) -> Result<Self> {
        let server = scene.host("server")?;
        server.sh(&format!(
            "ip link add br0 type bridge && ip link set br0 up && ip addr add {SERVER}/24 dev br0"
        ))?;
        let mut nodes = Vec::new();
        for i in 1..=count {
            let name = char::from(b'a' + i - 1).to_string();
            let host = scene.host(&name)?;
            let (port, address) = (format!("p{i}"), format!("10.9.0.{i}/24"));
            scene.veth((&server, &port, &[]), (&host, "eth0", &[&address]))?;
            server.sh(&format!("ip link set {port} master br0"))?;
            nodes.push(Node::new(&name, &host));
        }
        let place = Place([
            format!("{SERVER}:8443"),
            format!("https://{SERVER}:8443"),
            format!("{SERVER}:3478"),
        ]);
        Self::on(id, server, place, nodes)
    }

    /// The same on hosts that are there already.
    fn on(id: &str, server: Host, place: Place, nodes: Vec<Node>) -> Result<Self> {
        let mut lan = Self { folder: Folder::new(id)?, server, place, serve: None, nodes };
        lan.serve(&[])?;
        Ok(lan)
    }

    /// The same in a lab whose server is called so, with nodes on the hosts of these names.
    fn in_lab(id: &str, lab: &Lab, names: &[&str], place: [&str; 3]) -> Result<Self> {
        let node = |name: &&str| -> Result<Node> { Ok(Node::new(name, lab.host(name)?)) };
        let nodes = names.iter().map(node).collect::<Result<_>>()?;
        Self::on(id, lab.host("server")?.clone(), Place(place.map(str::to_owned)), nodes)
    }

    /// Waits until a node's first peer is reached without a relay.
    fn direct(&self, index: usize) -> Result<()> {
        eventually("a direct path", seconds(PATIENCE), || {
            let status = self.status(index);
            status.is_ok_and(|status| status["peers"][0]["path"]["kind"] == "direct")
        })?;
        Ok(())
    }

    fn serve(&mut self, more: &[&str]) -> Result<()> {
        let log = self.folder.0.join("serve.log");
        let data = self.folder.path("server");
        let Place([listen, url, stun]) = &self.place;
        let words = ["serve", "--data", &data, "--listen", listen, "--url", url];
        // Without a word it is where it usually is.
        let stun = if stun.is_empty() { &[][..] } else { &["--stun", stun] };
        self.serve = Some(Running::start(&self.server, &[&words, stun, more].concat(), &log)?);
        eventually("the server serves", seconds(PATIENCE), || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains("serving on"))
        })?;
        Ok(())
    }

    fn admin(&self, words: &[&str]) -> Result<String> {
        let mut command = self.server.command(&[WARREN]);
        command.args(words).args(["--data", &self.folder.path("server")]);
        said(&mut command)
    }

    fn token(&self, words: &[&str]) -> Result<String> {
        Ok(self.admin(&[&["key", "create"], words].concat())?.trim().to_owned())
    }

    fn daemon(&mut self, index: usize) -> Result<()> {
        self.daemon_with(index, &[])
    }

    fn daemon_with(&mut self, index: usize, more: &[&str]) -> Result<()> {
        let name = self.nodes[index].name.clone();
        let (state, socket) = (self.folder.path(&name), self.folder.path(&format!("{name}.sock")));
        let log = self.folder.0.join(format!("{name}.log"));
        let words = ["daemon", "--state", &state, "--socket", &socket, "--tun", "warren0"];
        let words = [&words[..], &["--metrics", "127.0.0.1:9100"], more].concat();
        let Node { host, env, .. } = &self.nodes[index];
        let daemon = Running::start_with(host, &words, env, &log)?;
        self.nodes[index].daemon = Some(daemon);
        eventually("the daemon answers", seconds(PATIENCE), || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains("daemon at"))
        })?;
        Ok(())
    }

    /// A command of a node.
    fn node(&self, index: usize, words: &[&str]) -> Result<String> {
        let Node { name, host, .. } = &self.nodes[index];
        let mut command = host.command(&[WARREN]);
        command.args(["--socket", &self.folder.path(&format!("{name}.sock"))]).args(words);
        said(&mut command)
    }

    fn status(&self, index: usize) -> Result<Value> {
        Ok(serde_json::from_str(&self.node(index, &["status", "--json"])?)?)
    }

    fn up(&mut self, index: usize, token: &str, words: &[&str]) -> Result<()> {
        if self.nodes[index].daemon.is_none() {
            self.daemon(index)?;
        }
        let name = self.nodes[index].name.clone();
        let up = ["up", token, "--timeout", "20s", "--hostname", &name];
        self.node(index, &[&up, words].concat()).map(drop)
    }

    fn all_up(&mut self, token: &str) -> Result<()> {
        (0..self.nodes.len()).try_for_each(|index| self.up(index, token, &[]))
    }

    /// Prints what the programs logged if `result` is none.
    fn told<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            eprintln!("{}", said(Command::new("sh").args(["-c", LOGS, &self.folder.path("")]))?);
        }
        result
    }

    /// Until `from` reaches `to` with one echo each 50 ms; how long it took.
    fn reaches(&self, from: usize, to: &str) -> Result<std::time::Duration> {
        let host = &self.nodes[from].host;
        let once = format!("ping -c 1 -W 0.2 {to}");
        let what = format!("{} reaches {to}", self.nodes[from].name);
        eventually(&what, seconds(PATIENCE), || host.sh(&once).is_ok())
    }
}

/// Runs `body` with a LAN of so many nodes; what its programs logged is printed if it fails.
fn network(id: &str, count: u8, body: impl FnOnce(&mut Lan) -> Result<()>) -> Result<()> {
    scene(id, |scene| on_lan(scene, id, count, body))
}

/// As [`network`], with nothing else running.
fn network_alone(id: &str, count: u8, body: impl FnOnce(&mut Lan) -> Result<()>) -> Result<()> {
    scene::scene_alone(id, |scene| on_lan(scene, id, count, body))
}

fn on_lan(
    scene: &Scene,
    id: &str,
    count: u8,
    body: impl FnOnce(&mut Lan) -> Result<()>,
) -> Result<()> {
    let mut lan = Lan::new(scene, id, count)?;
    let result = body(&mut lan);
    lan.told(result)
}

/// Prints the ends of all logs of a folder.
const LOGS: &str = "cd \"$0\" && tail -n 40 *.log";

fn said(command: &mut Command) -> Result<String> {
    let out = command.output()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let why = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{command:?}: {}", why.trim());
    Ok(text)
}

fn names(status: &Value) -> Vec<&str> {
    let peers = status["peers"].as_array().into_iter().flatten();
    peers.filter_map(|peer| peer["name"].as_str()).collect()
}

#[test]
fn source_000_5_one_token_and_every_pair_reaches_each_other() -> Result<()> {
    network("n1", 3, |lan| {
        let token = lan.token(&["--reusable"])?;
        let begin = Instant::now();
        lan.all_up(&token)?;
        println!("three nodes are up after {:?}", begin.elapsed());
        for (from, to) in [(0, "100.64.0.2"), (1, "100.64.0.3"), (2, "100.64.0.1")] {
            println!("{from} → {to}: {:?}", lan.reaches(from, to)?);
        }
        let status = lan.status(0)?;
        ensure!(status["schema"] == 1 && status["state"] == "running", "{status}");
        ensure!(names(&status) == ["b", "c"], "{status}");
        let peer = &status["peers"][0];
        ensure!(peer["path"]["kind"] == "direct", "{peer}");
        ensure!(peer["path"]["carrier"] == "udp", "{peer}");
        for field in ["name", "addresses", "online", "path", "rtt_ms", "rx_bytes", "tx_bytes"] {
            ensure!(peer.get(field).is_some() && status["self"].get(field).is_some(), "{field}");
        }
        let text = lan.node(0, &["status"])?;
        ensure!(text.contains("this node: ") && text.contains("  direct  "), "{text}");
        ensure!(lan.node(0, &["ip", "-4"])? == "100.64.0.1\n");
        ensure!(lan.node(0, &["ip", "-4", "b"])? == "100.64.0.2\n");
        ensure!(lan.node(0, &["ping", "c", "-c", "1"])?.contains("via direct"));
        lan.node(0, &["wait", "--timeout", "1s"])?;
        lan.node(0, &["status", "--check", "ready"])?;
        // What is known of the link, and the same for Prometheus.
        let link = &lan.status(0)?["peers"][0]["link"];
        ensure!(link["cipher"].is_string() && link["out"]["loss_before"] == 0.0, "{link}");
        let metrics = lan.nodes[0].host.sh("curl -sS http://127.0.0.1:9100/metrics")?;
        ensure!(metrics.contains("warren_peer_path{peer=\"b\",path=\"direct\""), "{metrics}");
        ensure!(lan.node(0, &["metrics"])?.contains("warren_running 1"));
        // IPv6 inside, too.
        let v6 = lan.node(1, &["ip", "-6"])?;
        lan.reaches(0, v6.trim())?;
        Ok(())
    })
}

#[test]
fn a_network_lives_on_without_its_server_and_starts_without_it() -> Result<()> {
    network("n2", 2, |lan| {
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        lan.reaches(0, "100.64.0.2")?;
        // The map is written at most a second later.
        std::thread::sleep(seconds(2));
        lan.serve.as_mut().context("it runs")?.kill()?;
        lan.reaches(1, "100.64.0.1")?;
        // Killed and ended: both start from what was kept.
        lan.nodes[0].daemon.as_mut().context("it runs")?.kill()?;
        lan.nodes[1].daemon.as_mut().context("it runs")?.end()?;
        let left = lan.nodes[1].host.sh("ip -br link show dev warren0 2>&1 || true")?;
        ensure!(left.contains("does not exist"), "the interface is gone: {left}");
        lan.daemon(0)?;
        lan.daemon(1)?;
        let begin = Instant::now();
        lan.reaches(0, "100.64.0.2")?;
        println!("restarted without a server: the first ping after {:?}", begin.elapsed());
        let status = lan.status(0)?;
        ensure!(status["state"] == "running" && status["server"]["in_touch"] == false, "{status}");
        lan.serve(&[])?;
        eventually("the server is back", seconds(PATIENCE), || {
            lan.status(0).is_ok_and(|status| status["server"]["in_touch"] == true)
        })?;
        Ok(())
    })
}

#[test]
fn a_removed_node_reaches_nobody_within_a_second() -> Result<()> {
    network("n3", 2, |lan| {
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        lan.reaches(0, "100.64.0.2")?;
        lan.admin(&["node", "remove", "b"])?;
        let begin = Instant::now();
        eventually("b is no peer", seconds(1), || {
            lan.status(0).is_ok_and(|status| names(&status).is_empty())
        })?;
        println!("cut after {:?}", begin.elapsed());
        let lost = lan.nodes[1].host.sh("ping -c 2 -i 0.2 -W 0.3 100.64.0.1");
        ensure!(lost.is_err(), "no answer comes");
        let status = lan.status(1)?;
        ensure!(status["state"] == "refused" && names(&status).is_empty(), "{status}");
        // It may come back with a token, as the same machine.
        lan.node(1, &["up", &token, "--timeout", "10s", "--hostname", "b"])?;
        lan.reaches(1, "100.64.0.1")?;
        Ok(())
    })
}

#[test]
fn down_up_set_and_logout_do_what_they_say() -> Result<()> {
    network("n4", 2, |lan| {
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        lan.up(0, &token, &[])?;
        // Settings that were made are not dropped in silence.
        lan.node(0, &["set", "--accept-routes"])?;
        let why = lan.node(0, &["up", "--hostname", "z"]).expect_err("it would drop one");
        ensure!(why.to_string().contains("--accept-routes=true"), "{why}");
        lan.node(0, &["up", "--timeout", "5s"])?;
        lan.node(0, &["up", "--reset", "--timeout", "5s", "--hostname", "a"])?;
        let status = lan.status(0)?;
        ensure!(status["settings"]["accept_routes"] == false, "{status}");

        lan.node(0, &["down"])?;
        ensure!(lan.status(0)?["state"] == "stopped");
        ensure!(!lan.nodes[0].host.sh("ip -br addr show dev warren0")?.contains("100.64"));
        lan.node(0, &["up", "--timeout", "5s"])?;
        lan.reaches(0, "100.64.0.2")?;

        lan.node(0, &["logout"])?;
        ensure!(lan.status(0)?["state"] == "no-network");
        ensure!(!lan.admin(&["node", "list"])?.contains("100.64.0.1 "));
        let why = lan.node(0, &["up"]).expect_err("there is no network");
        ensure!(why.to_string().contains("warren up TOKEN"), "{why}");
        Ok(())
    })
}

#[test]
fn bad_words_are_answered_with_what_and_how() -> Result<()> {
    network("n5", 1, |lan| {
        let token = lan.token(&[])?;
        lan.daemon(0)?;
        let says = |lan: &Lan, words: &[&str], part: &str| {
            let why = lan.node(0, words).expect_err("it is refused").to_string();
            ensure!(why.contains(part), "{words:?}: {why}");
            Ok(())
        };
        says(lan, &["up", "rubbish"], "token")?;
        says(lan, &["up", &token[..token.len() - 5]], "cut short")?;
        says(lan, &["up", &token, "--advertise-routes", "10.0.0.1/8"], "10.0.0.1/8")?;
        says(lan, &["up", &token, "--advertise-routes", "0.0.0.0/0"], "--advertise-exit-node")?;
        lan.up(0, &token, &[])?;
        says(lan, &["ping", "nobody"], "nobody")?;
        let missing = Command::new(WARREN).args(["--socket", "/nowhere", "status"]).output()?;
        let why = String::from_utf8_lossy(&missing.stderr).into_owned();
        ensure!(!missing.status.success() && why.contains("warren daemon"), "{why}");
        // A single-use token is used up.
        lan.node(0, &["logout"])?;
        says(lan, &["up", &token, "--timeout", "5s"], "used")?;
        // A second daemon on the same state is told.
        let words = ["daemon", "--state", &lan.folder.path("a"), "--socket", "/tmp/x.sock"];
        let second = lan.nodes[0].host.command(&[WARREN]).args(words).output()?;
        ensure!(String::from_utf8_lossy(&second.stderr).contains("another daemon"));
        Ok(())
    })
}

#[test]
fn a_key_that_expires_is_rotated_though_the_network_changes_every_second() -> Result<()> {
    network("n6", 2, |lan| {
        lan.serve.as_mut().context("it runs")?.end()?;
        lan.serve(&["--node-lifetime", "20s"])?;
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        let before = lan.status(0)?["self"]["key"].clone();
        lan.reaches(0, "100.64.0.2")?;
        // Longer than one key lives, with something else in the map every second.
        let end = Instant::now() + seconds(26);
        let mut round = 0;
        while Instant::now() < end {
            lan.admin(&["node", "tag", "b", &format!("tag:round-{round}")])?;
            lan.reaches(1, "100.64.0.1")?;
            std::thread::sleep(seconds(1));
            round += 1;
        }
        let status = lan.status(0)?;
        ensure!(status["state"] == "running" && status["self"]["key"] != before, "{status}");
        ensure!(lan.status(1)?["state"] == "running");
        Ok(())
    })
}

#[test]
fn a_key_that_ended_while_its_node_was_away_is_renewed_by_the_machine_alone() -> Result<()> {
    network("n7", 1, |lan| {
        lan.serve.as_mut().context("it runs")?.end()?;
        lan.serve(&["--node-lifetime", "8s"])?;
        let token = lan.token(&[])?;
        lan.all_up(&token)?;
        let before = lan.status(0)?["self"]["key"].clone();
        lan.nodes[0].daemon.as_mut().context("it runs")?.end()?;
        std::thread::sleep(seconds(10));
        ensure!(lan.admin(&["node", "show", "a"])?.contains("expired: yes"));
        lan.daemon(0)?;
        eventually("it is a member again, with another key", seconds(PATIENCE), || {
            lan.status(0)
                .is_ok_and(|status| status["state"] == "running" && status["self"]["key"] != before)
        })?;
        // What an administrator ended is over.
        lan.admin(&["node", "expire", "a"])?;
        eventually("it is refused", seconds(PATIENCE), || {
            lan.status(0).is_ok_and(|status| status["state"] == "refused")
        })?;
        std::thread::sleep(seconds(2));
        ensure!(lan.status(0)?["state"] == "refused");
        Ok(())
    })
}
