//! A server with its relay, and two nodes in hosts of their own, each a loop of this process.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use control::{HostInfo, Kind, Map, Token};
use daemon::Loop;
use dial::proxy::Proxies;
use dial::{Membership, Notify, Relays, Start, SystemRandom};
use host::driver::Driver;
use host::driver::mail::Remote;
use host::sockets::relay::StreamStatus;
use lab::netns::Host;
use lab::process::Process;
use node::{AllowedIp, Candidate, Change, Destination, PeerChange};
use noise::{PrivateKey, PublicKey};

use crate::support::scene::Scene;
use crate::support::{eventually, inside, seconds};

const WARREN: &str = env!("CARGO_BIN_EXE_warren");
/// The nodes' addresses inside.
pub(crate) const ADDRESSES: [&str; 2] = ["10.9.0.1", "10.9.0.2"];
/// Where each looks for the other: at the server's relay, and at another.
const CANDIDATES: [Candidate; 2] = [Candidate::Relay(0), Candidate::Relay(1)];
/// The server's, as each node's host sees it.
const SERVERS: [&str; 2] = ["192.0.2.1", "198.51.100.1"];

/// A node: its loop runs in a thread inside its host.
pub(crate) struct Node {
    pub(crate) host: Host,
    remote: Remote,
    peer: PublicKey,
    relays: Option<Relays>,
    thread: Option<JoinHandle<Result<()>>>,
    _membership: Membership,
}

/// A relay's process, how it is started, and where each node finds it.
struct Relaying {
    host: Host,
    argv: Vec<String>,
    says: &'static str,
    addresses: [&'static str; 2],
    process: Option<Process>,
}

impl Relaying {
    fn start(&mut self) -> Result<()> {
        let argv: Vec<&str> = self.argv.iter().map(String::as_str).collect();
        let process = self.host.spawn(&argv)?;
        process.wait_for(|log| log.contains(self.says))?;
        self.process = Some(process);
        Ok(())
    }
}

/// All of it.
pub(crate) struct Stage {
    data: PathBuf,
    relays: Vec<Relaying>,
    pub(crate) nodes: [Node; 2],
}

impl Stage {
    /// Server and nodes, with streams to one relay or two, and without UDP.
    pub(crate) fn new(scene: &Scene, relays: u32) -> Result<Self> {
        let [server, a, b] = ["s", "a", "b"].map(|name| scene.host(name));
        let (server, a, b) = (server?, a?, b?);
        scene.veth((&a, "eth0", &["192.0.2.2/24"]), (&server, "eth0", &["192.0.2.1/24"]))?;
        scene.veth((&b, "eth0", &["198.51.100.2/24"]), (&server, "eth1", &["198.51.100.1/24"]))?;
        let data = std::env::temp_dir().join(format!("warren-{}", server.namespace()));
        let _ = fs::remove_dir_all(&data);
        let mut all = vec![serve(&server, &data)];
        all[0].start()?;
        if relays == 2 {
            all.push(another(scene, [&server, &a, &b], &data)?);
            all[1].start()?;
        }
        for host in [&a, &b] {
            host.sh("nft add table inet nothing
                 nft 'add chain inet nothing out { type filter hook output priority 0; }'
                 nft add rule inet nothing out oifname eth0 meta l4proto udp drop
                 nft add rule inet nothing out oifname eth1 meta l4proto udp drop
                 nft 'add chain inet nothing in { type filter hook input priority 0; }'
                 nft add rule inet nothing in iifname eth0 ct state new drop
                 nft add rule inet nothing in iifname eth1 ct state new drop")?;
        }
        let join = |host| Joining::new(&server, host, &data, all.len());
        let joining = [join(&a)?, join(&b)?];
        let public = joining.each_ref().map(|joining| joining.key.public());
        let mut nodes = Vec::new();
        for (number, (joining, host)) in joining.into_iter().zip([a, b]).enumerate() {
            let name = scene.ifname(["a", "b"][number]);
            let places: Vec<&str> = all.iter().map(|relay| relay.addresses[number]).collect();
            nodes.push(joining.start(host, &name, (number, &places), public[1 - number])?);
        }
        let nodes = nodes.try_into().map_err(|_| anyhow!("two nodes"))?;
        let stage = Self { data, relays: all, nodes };
        eventually("streams to the relays", seconds(10), || stage.is_connected())?;
        Ok(stage)
    }

    /// Every node has a stream to every relay.
    pub(crate) fn is_connected(&self) -> bool {
        let count = self.relays.len();
        self.nodes.iter().all(|node| {
            let answers = |relays: Vec<StreamStatus>| {
                relays.iter().filter(|relay| relay.rtt_us.is_some()).count() == count
            };
            node.relays().is_ok_and(answers)
        })
    }

    /// Until they reach each other.
    pub(crate) fn ping(&self) -> Result<()> {
        let host = &self.nodes[0].host;
        eventually("a ping over the relay", seconds(10), || {
            host.run(&["ping", "-c", "1", "-W", "1", ADDRESSES[1]]).is_ok()
        })?;
        Ok(())
    }

    pub(crate) fn kill_relay(&mut self, number: usize) -> Result<()> {
        let process = self.relays[number].process.take().context("it runs")?;
        process.signal(libc::SIGKILL)
    }

    pub(crate) fn start_relay(&mut self, number: usize) -> Result<()> {
        self.relays[number].start()
    }

    /// Makes both lines to the server this fast, each way.
    pub(crate) fn limit(&self, rate: &str) -> Result<()> {
        let server = &self.relays[0].host;
        for (host, device) in [
            (server, "eth0"),
            (server, "eth1"),
            (&self.nodes[0].host, "eth0"),
            (&self.nodes[1].host, "eth0"),
        ] {
            let shape = ["tbf", "rate", rate, "burst", "128k", "latency", "20ms"];
            let mut argv = vec!["tc", "qdisc", "replace", "dev", device, "root"];
            argv.extend(shape);
            host.run(&argv)?;
        }
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            node.relays = None;
            let _ = node.remote.post(|desk| desk.end());
            if let Some(thread) = node.thread.take() {
                let _ = thread.join();
            }
        }
        self.relays.clear();
        let _ = fs::remove_dir_all(&self.data);
    }
}

impl Node {
    pub(crate) fn relays(&self) -> Result<Vec<StreamStatus>> {
        Ok(self.remote.call(|desk| desk.relays())?)
    }

    /// The relay over which the other node is reached now.
    pub(crate) fn relay(&self) -> Result<Option<u32>> {
        let peer = self.peer;
        let path = self.remote.call(move |desk| {
            let (node, clock, _) = desk.node();
            node.path(&peer, clock.now)
        })?;
        Ok(path.and_then(|path| match path.to {
            Destination::Relay(relayed) => Some(relayed.relay),
            Destination::Udp(_) | Destination::Carried(_) => None,
        }))
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The server, whose relay is number 0.
fn serve(server: &Host, data: &Path) -> Relaying {
    let [one, two] = SERVERS.map(|address| format!("https://{address}"));
    let data = data.to_string_lossy();
    let listen = ["--listen", "0.0.0.0:443", "--stun", "0.0.0.0:3478"];
    let serve = [WARREN, "serve", "--data", &data, "--url", &one, "--url", &two];
    Relaying {
        host: server.clone(),
        argv: words(&[&serve[..], &listen].concat()),
        says: "serving on",
        addresses: SERVERS,
        process: None,
    }
}

/// A relay on a host of its own, which reaches the server and is reached by both nodes.
fn another(scene: &Scene, [server, a, b]: [&Host; 3], data: &Path) -> Result<Relaying> {
    let host = scene.host("r")?;
    for (device, other, port, ours, theirs) in [
        ("eth0", a, "eth1", "203.0.113.1/26", "203.0.113.2/26"),
        ("eth1", b, "eth1", "203.0.113.65/26", "203.0.113.66/26"),
        ("eth2", server, "eth2", "203.0.113.129/26", "203.0.113.130/26"),
    ] {
        scene.veth((&host, device, &[ours]), (other, port, &[theirs]))?;
    }
    let (own, data) = (data.join("relay"), data.to_string_lossy());
    let create = [WARREN, "token", "create", "--scope", "relay:serve", "--data", &data];
    let token = server.run(&create)?;
    let own = own.to_string_lossy();
    let relay = [WARREN, "relay", "--token", token.trim(), "--data", &own];
    let places = ["--server", "https://203.0.113.130", "--listen", "0.0.0.0:443"];
    let url = ["--url", "https://203.0.113.1", "--stun", "0.0.0.0:3478"];
    Ok(Relaying {
        host,
        argv: words(&[&relay[..], &places, &url].concat()),
        says: "relaying on",
        addresses: ["203.0.113.1", "203.0.113.65"],
        process: None,
    })
}

/// A node that has joined, before its loop runs.
struct Joining {
    key: PrivateKey,
    membership: Membership,
    map: Arc<Map>,
}

impl Joining {
    fn new(server: &Host, host: &Host, data: &Path, relays: usize) -> Result<Self> {
        let words = [WARREN, "key", "create", "--data", &data.to_string_lossy()];
        let token =
            Token::parse(&server.run(&words)?, Kind::Join).map_err(|why| anyhow!("{why}"))?;
        let key = PrivateKey::generate(&mut SystemRandom);
        let machine = PrivateKey::generate(&mut SystemRandom);
        let info = HostInfo { hostname: host.name().to_owned(), ..HostInfo::default() };
        let settings = token.joining(machine, key.public(), info);
        let (proxies, notify) = (Proxies::default(), Notify::default());
        let start = Start { settings, cached: Vec::new(), proxies, notify };
        let membership = inside::inside(host, || Ok(Membership::start(start)?))?;
        for _ in 0..200 {
            let news = membership.wait(Duration::from_millis(100));
            if let Some(map) = news.and_then(|news| news.map).filter(|m| m.relays.len() == relays) {
                return Ok(Self { key, membership, map });
            }
        }
        bail!("no map with {relays} relays came")
    }

    fn start(
        self,
        host: Host,
        name: &str,
        (number, places): (usize, &[&str]),
        peer: PublicKey,
    ) -> Result<Node> {
        let (told, ready) = sync_channel(1);
        let (name, key, relays) = (name.to_owned(), self.key.clone(), self.map.relays.clone());
        let here = host.clone();
        let thread = inside::start(&host, move || {
            let changes = configuration(&key, peer, number);
            run(&here, &name, &changes, number, peer, &told)
        })?;
        let Ok(remote) = ready.recv() else {
            return Err(inside::join(thread).err().unwrap_or_else(|| anyhow!("ended")));
        };
        let hand = Arc::new(Loop(remote.another()?));
        // Each is to reach a relay by an address of its own.
        let relays: Vec<control::Relay> = relays
            .into_iter()
            .zip(places)
            .map(|(relay, place)| {
                let url = format!("https://{place}").parse().expect("a URL");
                control::Relay { url, ..relay }
            })
            .collect();
        ensure!(relays.len() == places.len(), "the map names all relays");
        let key = self.key.clone();
        let kept = inside::inside(&host, move || {
            let mut kept = Relays::new(hand, Proxies::default());
            kept.set(&relays, &key)?;
            Ok(kept)
        })?;
        Ok(Node {
            host,
            remote,
            peer,
            relays: Some(kept),
            thread: Some(thread),
            _membership: self.membership,
        })
    }
}

fn configuration(key: &PrivateKey, peer: PublicKey, number: usize) -> Vec<Change> {
    let prefix = format!("{}/32", ADDRESSES[1 - number]).parse().expect("a prefix");
    let allowed_ips = vec![AllowedIp::give(prefix)];
    let peer = PeerChange { allowed_ips, ..PeerChange::new(peer) };
    vec![Change::PrivateKey(Some(key.clone())), Change::Peer(peer)]
}

/// The loop of a node, in its host's network until it is told to end.
fn run(
    host: &Host,
    name: &str,
    changes: &[Change],
    number: usize,
    peer: PublicKey,
    told: &SyncSender<Remote>,
) -> Result<()> {
    let mut driver = Driver::new(name).map_err(|why| anyhow!("{why}"))?;
    driver.node().set_frames(true);
    driver.configure(changes).map_err(|why| anyhow!("{why}"))?;
    let remote = driver.remote().map_err(|why| anyhow!("{why}"))?;
    let again = remote.another()?;
    told.send(remote)?;
    again.post(move |desk| {
        let (node, clock, _) = desk.node();
        node.set_candidates(&peer, &CANDIDATES, clock.now);
    })?;
    host.sh(&format!(
        "ip link set {name} mtu 1380 up
         ip address add {}/24 dev {name}",
        ADDRESSES[number]
    ))?;
    driver.run(&mut || Err("nothing is to be read".to_owned())).map_err(|why| anyhow!("{why}"))?;
    Ok(())
}
