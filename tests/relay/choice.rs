//! Which of several relays two daemons use, what happens when it dies, and what goes on when the
//! server dies as well.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab::netns::Host;
use lab::process::Process;
use lab::topology::Lab;
use serde_json::Value;

use crate::support::{eventually, inside, lab_of, seconds, traffic};

const WARREN: &str = env!("CARGO_BIN_EXE_warren");
const TOPOLOGY: &str = include_str!("choice.toml");
/// The nodes' addresses inside.
const INSIDE: [&str; 2] = ["100.64.0.1", "100.64.0.2"];
const PATIENCE: Duration = Duration::from_secs(20);

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Server, relays and nodes by their hosts' names; programs end before their hosts.
struct Network {
    running: Vec<(String, Process)>,
    folder: Folder,
    lab: Lab,
}

impl Network {
    fn new() -> Result<Self> {
        let lab = lab_of("rl6", TOPOLOGY, "choice.toml")?;
        let folder = std::env::temp_dir().join("warren-wt-acc-rl6");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let mut this = Self { running: Vec::new(), folder: Folder(folder), lab };
        this.start("server")?;
        for relay in ["far", "near"] {
            this.start(relay)?;
        }
        let token = this.admin(&["key", "create", "--reusable"])?;
        for node in ["a", "b"] {
            this.start(node)?;
            this.node(node, &["up", &token, "--timeout", "20s"])?;
        }
        Ok(this)
    }

    fn path(&self, name: &str) -> String {
        self.folder.0.join(name).display().to_string()
    }

    fn host(&self, name: &str) -> Result<&Host> {
        self.lab.host(name)
    }

    fn admin(&self, words: &[&str]) -> Result<String> {
        let data = self.path("server");
        let said = self.host("server")?.run(&[&[WARREN], words, &["--data", &data]].concat())?;
        Ok(said.trim().to_owned())
    }

    fn node(&self, name: &str, words: &[&str]) -> Result<String> {
        let socket = self.path(&format!("{name}.sock"));
        self.host(name)?.run(&[&[WARREN, "--socket", &socket], words].concat())
    }

    /// Starts the program of a host.
    fn start(&mut self, name: &str) -> Result<()> {
        let (own, url) = (self.path(name), format!("https://{name}"));
        let socket = self.path(&format!("{name}.sock"));
        let places = ["--data", &own, "--listen", "[::]:443", "--url", &url];
        let says = match name {
            "server" => "serving on",
            "near" | "far" => "relaying on",
            _ => "daemon at",
        };
        let token = match says {
            "relaying on" => self.admin(&["token", "create", "--scope", "relay:serve"])?,
            _ => String::new(),
        };
        let words = match says {
            "serving on" => [&["serve"], &places[..]].concat(),
            "relaying on" => [&["relay", "--token", &token], &places[..]].concat(),
            _ => vec!["daemon", "--state", &own, "--socket", &socket],
        };
        let process = self.host(name)?.spawn(&[&[WARREN], &words[..]].concat())?;
        process.wait_for(|log| log.contains(says))?;
        self.running.push((name.to_owned(), process));
        Ok(())
    }

    /// Kills the program of a host as nothing else could.
    fn kill(&mut self, name: &str) -> Result<()> {
        let place = self.running.iter().position(|(of, _)| of == name).context("it runs")?;
        let (_, process) = self.running.remove(place);
        process.signal(libc::SIGKILL)?;
        process.wait(seconds(5)).map(drop)
    }

    /// The relay that `name` reaches the other by, as `status` names it.
    fn relay(&self, name: &str) -> Result<String> {
        let status: Value = serde_json::from_str(&self.node(name, &["status", "--json"])?)?;
        let path = &status["peers"][0]["path"];
        Ok(path["relay"].as_str().map_or_else(|| path.to_string(), str::to_owned))
    }

    /// Until both use this relay, with an echo meanwhile; how long that took.
    fn uses(&self, url: &str) -> Result<Duration> {
        let used = || ["a", "b"].map(|name| self.relay(name).unwrap_or_default());
        eventually("both use it", PATIENCE, || {
            let _ = self.echo();
            used().iter().all(|relay| relay == url)
        })
        .with_context(|| format!("{url} is not used by both, but {:?}", used()))
    }

    fn echo(&self) -> Result<()> {
        self.host("a")?.run(&["ping", "-c", "1", "-W", "0.2", INSIDE[1]]).map(drop)
    }

    fn reaches(&self) -> Result<Duration> {
        eventually("an echo", PATIENCE, || self.echo().is_ok())
    }
}

/// The nearest relay is used, a killed one is left with a transfer under way, and relays serve
/// their members when there is no server.
pub(crate) fn the_nearest_of_three() -> Result<()> {
    let mut network = Network::new()?;
    network.reaches()?;
    eprintln!("the nearest relay after {:?}", network.uses("https://near")?);
    let check = network.node("a", &["netcheck", "--json"])?;
    let check: Value = serde_json::from_str(&check)?;
    let relays = check["relays"].as_array().context("a list")?;
    let by_rtt = |relay: &&Value| relay["rtt_ms"].as_f64().map_or(u64::MAX, |ms| (ms * 1e3) as u64);
    let nearest = relays.iter().min_by_key(by_rtt).context("three")?;
    eprintln!("{}", check["relays"]);
    ensure!(relays.len() == 3 && check["home_relay"] == nearest["id"], "{check}");

    let hosts = [network.host("a")?.clone(), network.host("b")?.clone()];
    let transfer = std::thread::spawn(move || {
        traffic::exact_stream(&hosts[0], &hosts[1], INSIDE[1], 60_000_000)
    });
    std::thread::sleep(seconds(1));
    ensure!(!transfer.is_finished(), "the relay is killed while something is under way");
    network.kill("near")?;
    let killed = Instant::now();
    network.reaches()?;
    eprintln!("near was killed; an echo came {:?} later", killed.elapsed());
    ensure!(killed.elapsed() < seconds(3), "{:?}", killed.elapsed());
    network.uses("https://far")?;
    eprintln!("60 MB with the relay killed in {:?}", inside::join(transfer)?);

    network.kill("server")?;
    let [a, b] = [network.host("a")?.clone(), network.host("b")?.clone()];
    traffic::exact_stream(&b, &a, INSIDE[0], 5_000_000)?;
    // A member that comes back is admitted: the relay knows the members without the server.
    network.kill("b")?;
    network.start("b")?;
    let begin = Instant::now();
    network.reaches()?;
    eprintln!("without a server, a node is back {:?} after its start", begin.elapsed());
    ensure!(network.relay("a")? == "https://far", "{}", network.relay("a")?);
    Ok(())
}
