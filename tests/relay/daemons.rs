//! The same with the programs that people run: `warren serve`, `warren daemon`, `warren up`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::netns::Host;
use lab::process::Process;
use serde_json::Value;
use sim::impair::Impairment;

use crate::support::{Scene, eventually, seconds, traffic};

const WARREN: &str = env!("CARGO_BIN_EXE_warren");
pub(crate) const SERVER: &str = "192.0.2.1";
/// The addresses that the server gives to the two.
pub(crate) const INSIDE: [&str; 2] = ["100.64.0.1", "100.64.0.2"];

/// What a node's network lets out by UDP, as `nft` takes it.
pub(crate) const NOTHING: &str = "drop";
pub(crate) const THE_RELAYS_PORT: &str = "udp dport != 443 drop";

/// Two daemons and a server; each host has a line to the server's and none to the other.
pub(crate) struct Network {
    folder: PathBuf,
    pub(crate) server: Host,
    pub(crate) hosts: [Host; 2],
    serve: Option<Process>,
    daemons: Vec<Process>,
    /// What stands in front of the server, which then listens for that alone.
    front: Option<Process>,
    /// What daemons are started with besides.
    options: Vec<&'static str>,
    /// What runs the daemons.
    runs: Vec<&'static str>,
}

/// Starts what stands in front of the server.
type Start<'a> = dyn Fn(&Network) -> Result<Process> + 'a;

impl Network {
    pub(crate) fn new(scene: &Scene, udp: &str) -> Result<Self> {
        Self::with(scene, udp, None)
    }

    /// The same with lines of this weather.
    pub(crate) fn with(scene: &Scene, udp: &str, weather: Option<Impairment>) -> Result<Self> {
        Self::built(scene, &format!("meta l4proto udp {udp}"), weather, None, &[])
    }

    /// The same where a node's network lets out what these rules do, and with words for the server.
    pub(crate) fn served(scene: &Scene, rules: &str, words: &[&str]) -> Result<Self> {
        Self::built(scene, rules, None, None, words)
    }

    /// The same with a proxy in front of the server.
    pub(crate) fn behind(
        scene: &Scene,
        udp: &str,
        start: impl Fn(&Self) -> Result<Process>,
    ) -> Result<Self> {
        Self::built(scene, &format!("meta l4proto udp {udp}"), None, Some(&start), &[])
    }

    fn built(
        scene: &Scene,
        rules: &str,
        weather: Option<Impairment>,
        front: Option<&Start<'_>>,
        words: &[&str],
    ) -> Result<Self> {
        let (server, a, b) = (scene.host("s")?, scene.host("a")?, scene.host("b")?);
        for (node, ours, device, theirs) in [
            (&a, "192.0.2.2/24", "eth0", "192.0.2.1/24"),
            (&b, "198.51.100.2/24", "eth1", "198.51.100.1/24"),
        ] {
            let (node, server) = ((node, "eth0", &[ours][..]), (&server, device, &[theirs][..]));
            match weather {
                None => scene.veth(node, server)?,
                Some(weather) => scene.impaired([node, server], weather)?,
            }
        }
        b.run(&["ip", "route", "add", SERVER, "via", "198.51.100.1"])?;
        for host in [&a, &b] {
            host.sh(&format!(
                "nft add table inet nothing
                 nft 'add chain inet nothing out {{ type filter hook output priority 0; }}'
                 nft add rule inet nothing out oifname eth0 {rules}
                 nft 'add chain inet nothing in {{ type filter hook input priority 0; }}'
                 nft add rule inet nothing in iifname eth0 ct state new drop"
            ))?;
        }
        let folder = std::env::temp_dir().join(format!("warren-{}", server.namespace()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let mut this = Self {
            folder,
            server,
            hosts: [a, b],
            serve: None,
            daemons: Vec::new(),
            front: None,
            options: Vec::new(),
            runs: Vec::new(),
        };
        this.front = front.map(|start| start(&this)).transpose()?;
        this.start_server(words)?;
        let words = ["key", "create", "--reusable", "--data", &this.path("server")];
        let token = this.server.run(&[&[WARREN], &words[..]].concat())?;
        for number in 0..2 {
            this.join(number, token.trim())?;
        }
        Ok(this)
    }

    /// Resident memory of the server, in KiB.
    pub(crate) fn server_kib(&self) -> u64 {
        self.serve.as_ref().map_or(0, Process::rss_kib)
    }

    /// Processor time of a node's daemon since its start, in seconds.
    pub(crate) fn node_cpu_s(&self, number: usize) -> f64 {
        self.daemons[number].cpu_s()
    }

    /// Puts something else in front of the server.
    pub(crate) fn set_front(&mut self, start: impl Fn(&Self) -> Result<Process>) -> Result<()> {
        if let Some(front) = self.front.take() {
            front.stop()?;
        }
        self.front = Some(start(self)?);
        Ok(())
    }

    /// What it has said.
    pub(crate) fn front_log(&self) -> String {
        self.front.as_ref().map(Process::log).unwrap_or_default()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn start_server(&mut self, options: &[&str]) -> Result<()> {
        let (data, url) = (self.path("server"), format!("https://{SERVER}"));
        let listen = if self.front.is_some() { "127.0.0.1:8443" } else { "0.0.0.0:443" };
        let places = ["--listen", listen, "--stun", "0.0.0.0:3478", "--url", &url];
        let words = [&[WARREN, "serve", "--data", &data], &places[..], options].concat();
        let serve = self.server.spawn(&words)?;
        serve.wait_for(|log| log.contains("serving on"))?;
        self.serve = Some(serve);
        Ok(())
    }

    /// Ends the server and starts it again.
    pub(crate) fn restart_server(&mut self, options: &[&str]) -> Result<()> {
        if let Some(serve) = self.serve.take() {
            serve.stop()?;
        }
        self.start_server(options)
    }

    fn daemon(&self, number: usize) -> Result<Process> {
        let (state, socket) = (self.path(&number.to_string()), self.socket(number));
        let words = ["daemon", "--state", &state, "--socket", &socket, "--tun", "warren0"];
        let words = [&self.runs[..], &[WARREN], &words[..], &self.options].concat();
        let daemon = self.hosts[number].spawn(&words)?;
        daemon.wait_for(|log| log.contains("daemon at"))?;
        Ok(daemon)
    }

    /// Starts daemons with these words besides, from their next start on.
    pub(crate) fn set_options(&mut self, options: &[&'static str]) {
        self.options = options.to_vec();
    }

    /// Has these words in front of daemons, from their next start on.
    pub(crate) fn set_runs(&mut self, words: &[&'static str]) {
        self.runs = words.to_vec();
    }

    /// Kills the server and starts it again with these words.
    pub(crate) fn kill_server(&mut self, words: &[&str]) -> Result<()> {
        self.serve.take().map_or(Ok(()), |serve| serve.signal(libc::SIGKILL))?;
        self.start_server(words)
    }

    /// Ends a node's daemon and starts it again.
    pub(crate) fn start_node_again(&mut self, number: usize) -> Result<()> {
        self.daemons[number].stop()?;
        self.daemons[number] = self.daemon(number)?;
        Ok(())
    }

    /// Ends a node's daemon and starts it again: from there to its first echo.
    pub(crate) fn restart_node(&mut self, number: usize) -> Result<Duration> {
        self.daemons[number].stop()?;
        let begin = Instant::now();
        self.daemons[number] = self.daemon(number)?;
        self.reaches(number)?;
        Ok(begin.elapsed())
    }

    fn join(&mut self, number: usize, token: &str) -> Result<()> {
        let daemon = self.daemon(number)?;
        self.daemons.push(daemon);
        self.node(number, &["up", token, "--timeout", "20s"])?;
        Ok(())
    }

    fn socket(&self, number: usize) -> String {
        self.path(&format!("{number}.sock"))
    }

    pub(crate) fn node(&self, number: usize, words: &[&str]) -> Result<String> {
        let socket = self.socket(number);
        self.hosts[number].run(&[&[WARREN, "--socket", &socket], words].concat())
    }

    /// The path to the other one, as `status` names it.
    pub(crate) fn way(&self, number: usize) -> Result<Value> {
        let status: Value = serde_json::from_str(&self.node(number, &["status", "--json"])?)?;
        Ok(status["peers"][0]["path"].clone())
    }

    pub(crate) fn reaches(&self, number: usize) -> Result<Duration> {
        let to = INSIDE[1 - number];
        let host = &self.hosts[number];
        let once = ["ping", "-c", "1", "-W", "0.3", to];
        eventually(&format!("an echo of {to}"), seconds(20), || host.run(&once).is_ok())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.daemons.clear();
        self.serve = None;
        self.front = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Ping and files by the relay alone, before and after the server is killed.
pub(crate) fn daemons_by_the_relay_alone(scene: &Scene) -> Result<()> {
    let mut network = Network::new(scene, NOTHING)?;
    eprintln!("an echo after {:?}", network.reaches(0)?);
    network.reaches(1)?;
    for number in 0..2 {
        let way = network.way(number)?;
        ensure!(way["kind"] == "relay" && way["relay"] == "https://192.0.2.1", "{way}");
        ensure!(way["carrier"] == "https", "no UDP passes: {way}");
    }
    let [a, b] = &network.hosts;
    traffic::exact_stream(a, b, INSIDE[1], 20_000_000)?;
    traffic::exact_stream(b, a, INSIDE[0], 20_000_000)?;
    let offered = a.sh("cat /proc/sys/net/ipv4/tcp_available_congestion_control")?;
    for host in [a, b, &network.server].into_iter().filter(|_| offered.contains("bbr")) {
        let streams = host.sh("ss -tinH '( sport = :443 or dport = :443 )'")?;
        ensure!(streams.contains(" bbr "), "no stream of {} is BBR's: {streams}", host.name());
    }
    network.serve.take().map_or(Ok(()), |serve| serve.signal(libc::SIGKILL))?;
    network.start_server(&[])?;
    eprintln!("an echo {:?} after the server's restart", network.reaches(0)?);
    let [a, b] = &network.hosts;
    traffic::exact_stream(a, b, INSIDE[1], 20_000_000)?;
    Ok(())
}
