//! A crowd: a thousand nodes that are nothing but members, and their server (threat CO-10). They
//! join, lose the server and come back, and hear of policies.

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use control::{HostInfo, Kind, Map, Token};
use dial::proxy::Proxies;
use dial::{Membership, Notify, Start, SystemRandom};
use lab::netns::{Host, Net};
use lab::process::Process;
use lab::sys;
use noise::PrivateKey;

/// Where the server listens, in a namespace that is the crowd's own.
const ADDRESS: &str = "127.0.0.1:8443";
/// How long everybody may take for anything.
const PATIENCE: Duration = Duration::from_secs(180);
/// A thread of the crowd looks so often whether it is over.
const GLANCE: Duration = Duration::from_secs(1);
/// A policy is set when the server has done less than [`CALM_CPU_S`] for so long: who came back,
/// who is there and what was set before is told by then.
const CALM: Duration = Duration::from_secs(1);
const CALM_CPU_S: f64 = 0.05;

/// What a policy cost.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    /// Seconds from the command to the last node but one in a hundred.
    pub p99_s: f64,
    /// The server's processor time, seconds.
    pub cpu_s: f64,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// Seconds until each node had all others in its map.
    pub joined_s: f64,
    /// Seconds from the server's death, which is started anew at once, until each had a new map.
    pub back_s: f64,
    /// A policy for another one where nobody's peers change: ports, a tag.
    pub change: Spread,
    /// A policy that lets all see all who saw nobody before.
    pub meeting: Spread,
    /// The server's memory at the end, MiB.
    pub rss_mib: f64,
}

/// What a node saw last, and when it first saw each policy.
#[derive(Debug, Default)]
struct Seen {
    epoch: u64,
    peers: usize,
    policies: Vec<(u64, Instant)>,
}

impl Seen {
    fn take(&mut self, map: &Map) {
        self.epoch = map.epoch;
        self.peers = map.peers.len();
        let version = map.policy.version;
        if self.policies.last().is_none_or(|(last, _)| *last != version) {
            self.policies.push((version, Instant::now()));
        }
    }
}

/// The nodes, each with a thread that reads its news; they end with it.
#[derive(Debug)]
struct Crowd {
    seen: Vec<Arc<Mutex<Seen>>>,
    is_over: Arc<AtomicBool>,
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Crowd {
    /// To be called in the server's namespace, which the threads inherit.
    fn join(token: &Token, count: usize) -> Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut seen = Vec::new();
        for n in 0..count {
            let own = Arc::new(Mutex::new(Seen::default()));
            let member = Membership::start(start(token, &key(), &format!("n{n}"), Vec::new()))
                .context("cannot start a member")?;
            let told = Arc::clone(&own);
            let is_over = Arc::clone(&is_over);
            let read = move || {
                while !is_over.load(Ordering::Relaxed) {
                    if let Some(map) = member.wait(GLANCE).and_then(|news| news.map) {
                        told.lock().unwrap_or_else(PoisonError::into_inner).take(&map);
                    }
                }
            };
            let thread = std::thread::Builder::new().stack_size(256 << 10);
            thread.spawn(read).context("cannot start a thread")?;
            seen.push(own);
        }
        Ok(Self { seen, is_over })
    }

    fn each<T>(&self, what: impl Fn(&Seen) -> T) -> impl Iterator<Item = T> {
        self.seen.iter().map(move |seen| what(&seen.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Seconds until all are as `is` has it.
    fn until(&self, what: &str, is: impl Fn(&Seen) -> bool) -> Result<f64> {
        let begin = Instant::now();
        loop {
            let left = self.each(&is).filter(|is| !is).count();
            if left == 0 {
                return Ok(begin.elapsed().as_secs_f64());
            }
            sys::check_interrupted()?;
            ensure!(begin.elapsed() < PATIENCE, "{left} nodes still lack {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A key that nobody has.
pub(crate) fn key() -> PrivateKey {
    PrivateKey::generate(&mut SystemRandom)
}

/// What a member starts from that is reached at `endpoints`.
pub(crate) fn start(
    token: &Token,
    node: &PrivateKey,
    hostname: &str,
    endpoints: Vec<SocketAddr>,
) -> Start {
    let host = HostInfo { hostname: hostname.to_owned(), endpoints, ..HostInfo::default() };
    let settings = token.joining(key(), node.public(), host);
    let proxies = Proxies::default();
    let notify = Notify::default();
    Start { settings, cached: Vec::new(), proxies, notify }
}

/// The server in its namespace.
struct Served<'a> {
    host: &'a Host,
    warren: &'a str,
    data: String,
    process: Process,
}

impl<'a> Served<'a> {
    fn new(host: &'a Host, warren: &'a str, data: String) -> Result<Self> {
        let process = serve(host, warren, &data)?;
        Ok(Self { host, warren, data, process })
    }

    fn kill_and_restart(&mut self) -> Result<()> {
        self.process.signal(9)?;
        self.process.wait(PATIENCE)?;
        self.process = serve(self.host, self.warren, &self.data)?;
        Ok(())
    }

    fn admin(&self, words: &[&str]) -> Result<String> {
        let with = ["--data", self.data.as_str()];
        self.host.run(&[&[self.warren], words, &with].concat())
    }

    fn calm(&self) -> Result<()> {
        let begin = Instant::now();
        loop {
            let before_s = self.process.cpu_s();
            std::thread::sleep(CALM);
            sys::check_interrupted()?;
            if self.process.cpu_s() - before_s < CALM_CPU_S {
                return Ok(());
            }
            ensure!(begin.elapsed() < PATIENCE, "the server has no rest");
        }
    }

    /// Sets a policy and waits until all have it.
    fn set(&self, crowd: &Crowd, version: u64, from: &str, what: &str) -> Result<Spread> {
        self.calm()?;
        let text = format!(
            "{{\"tagOwners\": {{\"tag:robot\": [], \"tag:desk\": []}}, \"grants\": \
             [{{\"src\": [\"{from}\"], \"dst\": [\"*\"], \"ip\": [\"{what}\"]}}]}}"
        );
        let file = format!("{}/policy.hujson", self.data);
        fs::write(&file, text).with_context(|| format!("cannot write {file}"))?;
        let before_s = self.process.cpu_s();
        let begin = Instant::now();
        self.admin(&["policy", "set", &file])?;
        let of = |seen: &Seen| {
            seen.policies.iter().find(|(known, _)| *known == version).map(|(_, at)| *at)
        };
        crowd.until("the policy", |seen| of(seen).is_some())?;
        let mut times: Vec<Duration> =
            crowd.each(of).flatten().map(|at| at.saturating_duration_since(begin)).collect();
        times.sort_unstable();
        let p99_s = times.get(times.len() * 99 / 100).context("nodes")?.as_secs_f64();
        Ok(Spread { p99_s, cpu_s: self.process.cpu_s() - before_s })
    }
}

fn serve(host: &Host, warren: &str, data: &str) -> Result<Process> {
    let url = format!("https://{ADDRESS}");
    let words = ["serve", "--data", data, "--listen", ADDRESS, "--url", &url];
    let process = host.spawn(&[&[warren], &words[..], &["--stun", "127.0.0.1:0"]].concat())?;
    process.wait_for(|log| log.contains("serving on"))?;
    Ok(process)
}

/// Lets `nodes` nodes join a server that `warren` starts, on a host of their own whose name
/// begins with `prefix`, and measures.
///
/// # Errors
/// If something does not happen at all, or a signal asks this process to end.
pub fn measure(warren: &str, prefix: &str, nodes: usize) -> Result<Found> {
    let mut net = Net::new(prefix)?;
    let host = net.host("crowd")?;
    let data = net.dir().join("data").display().to_string();
    let mut served = Served::new(&host, warren, data)?;
    let words = ["key", "create", "--reusable", "--tag", "tag:robot"];
    let token = Token::parse(served.admin(&words)?.trim(), Kind::Join)
        .map_err(|why| anyhow::anyhow!("no token was made: {why}"))?;
    let begin = Instant::now();
    let crowd = sys::in_netns(&host.path(), || Crowd::join(&token, nodes))??;
    crowd.until("all peers", |seen| seen.peers + 1 == nodes)?;
    let joined_s = begin.elapsed().as_secs_f64();

    let before = crowd.each(|seen| seen.epoch).max().unwrap_or_default();
    let begin = Instant::now();
    served.kill_and_restart()?;
    crowd.until("a new map", |seen| seen.epoch > before)?;
    let back_s = begin.elapsed().as_secs_f64();

    let first = served.set(&crowd, 1, "*", "22")?;
    served.set(&crowd, 2, "tag:desk", "22")?;
    crowd.until("nobody", |seen| seen.peers == 0)?;
    let meeting = served.set(&crowd, 3, "*", "*")?;
    crowd.until("all peers again", |seen| seen.peers + 1 == nodes)?;
    let second = served.set(&crowd, 4, "*", "443")?;
    let change = if first.p99_s > second.p99_s { first } else { second };
    let rss_mib = served.process.rss_kib() as f64 / 1024.0;
    Ok(Found { joined_s, back_s, change, meeting, rss_mib })
}
