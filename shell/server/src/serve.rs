//! Starting and stopping: everything is opened and checked before the first request is taken.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use control::limits::URLS_MAX;
use control::{Prefix, Relay, ServerUrl};
use lock::{Lock, SocketFile, private_directory};
use tokio::net::{UdpSocket, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::acme::{self, Acme};
use crate::app::{self, App};
use crate::books::{self, KEYS, SOCKET};
use crate::clock::{Clock, Moment};
use crate::copies::Copies;
use crate::hooks::{Hook, Hooks};
use crate::keys::{Keys, SystemRandom};
use crate::network::{Network, Shared};
use crate::oidc::{Oidc, Provider};
use crate::relay::{Door, IcmpAt, Pipes};
use crate::resolvers::Resolvers;
use crate::store::{Enrolment, Place, Store, StoreError};
use crate::stun::{self, Stun};
use crate::{backup, connection, http, place, relay, restore, signin, waits, watchdog};

/// Threads that run tasks; waiting for the disk has threads of its own.
const WORKERS: usize = 2;
/// Threads that may wait for the disk.
const BLOCKING_MAX: usize = 16;
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// How often a server looks whom a provider is to be asked for.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// How often a running server looks for a backup that waits to be taken.
const RESTORE_EVERY: Duration = Duration::from_millis(500);

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory, made if it is not there.
    pub data: PathBuf,
    /// The URL of a PostgreSQL database, if the books are not in the directory.
    pub store: Option<String>,
    /// Where TCP connections are taken.
    pub listen: SocketAddr,
    /// Whether the relay answers QUIC at the same UDP port, if it is free.
    pub quic: bool,
    /// Where nodes are answered by ping, if they are.
    pub icmp: Option<IcmpAt>,
    /// What nodes are told to connect to; need not be `listen`. At least one.
    pub urls: Vec<ServerUrl>,
    /// Where STUN requests are answered.
    pub stun: Stun,
    /// The IPv4 range of a new network; 100.64.0.0/10 if not given.
    pub range: Option<Prefix>,
    /// The domain below which nodes have their names.
    pub domain: String,
    /// What those who join are given.
    pub terms: Enrolment,
    /// Certificate and key, if not our own.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Whom to ask for a certificate, if neither files nor our own will do.
    pub acme: Option<Acme>,
    /// Who is told of what happens; at most [`HOOKS_MAX`](crate::HOOKS_MAX).
    pub hooks: Vec<Hook>,
    /// Whether nodes may report how their links are.
    pub link_reports: bool,
    /// Who else says who somebody is.
    pub oidc: Option<Provider>,
    /// The clock for all that has a date, in Unix seconds: [`unix_s`](crate::unix_s).
    pub clock: fn() -> u64,
    /// How long an ephemeral node may be away, in seconds; 300 if not given.
    pub ephemeral_away_s: Option<u64>,
}

/// Why a server ends that nothing is wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Told,
    /// A backup waits, which a new start takes.
    Restore,
}

/// A running server. It ends when it is dropped.
pub struct Server {
    runtime: Option<Runtime>,
    app: Arc<App>,
    address: SocketAddr,
    stun: Vec<SocketAddr>,
    data: PathBuf,
    socket: SocketFile,
    doors: Vec<Door>,
    has_quic: bool,
    _lock: Lock,
}

impl Server {
    /// Opens everything and serves in the background.
    ///
    /// # Errors
    /// What could not be opened, why, and how to mend it.
    pub fn start(config: Config) -> io::Result<Self> {
        let data = &config.data;
        if private_directory(data).map_err(at(data))? {
            tracing::warn!("others could write into {}: no more", data.display());
        }
        let lock = books::lock(data)?;
        let (mut store, keys) = open(&config)?;
        let stun = config.stun.bind(config.listen.ip())?;
        let stun_addresses =
            stun.iter().map(std::net::UdpSocket::local_addr).collect::<Result<Vec<_>, _>>()?;
        let files = config.tls.as_ref();
        let acme = config.acme.as_ref();
        let (outer, tls, keeper) = acme::outer(data, &config.urls, files, acme, config.clock)?;
        let owner = fs::metadata(data).map_err(at(data))?.uid();
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .max_blocking_threads(BLOCKING_MAX)
            .thread_name("warren-serve")
            .enable_all()
            .build()?;
        let listener = runtime.block_on(async { connection::listen(config.listen) });
        let listener = listener.map_err(place::refused("--listen", config.listen))?;
        let address = listener.local_addr()?;
        let (mut doors, quic) = {
            let _guard = runtime.enter();
            let doors = Door::by_ping("serve", config.icmp, &outer)?;
            (doors, config.quic.then(|| Door::try_open(address, &outer)).flatten())
        };
        let ways = Ways { quic: quic.is_some(), icmp: !doors.is_empty() };
        doors.extend(quic);
        let shared = shared(&config, &keys, &store, &stun_addresses, ways);
        let clock = config.clock;
        let began = Instant::now();
        let clock: Clock =
            Box::new(move || Moment { unix_s: clock(), up_s: began.elapsed().as_secs() });
        let network = Network::read(&mut store, shared, clock()).map_err(failed)?;
        let copies = Copies::new(data.clone());
        copies.clear();
        let urls = config.urls.clone();
        let hooks = Hooks::new(config.hooks.clone());
        let parts = (keys, copies, hooks);
        let app = App::new(store, network, parts, urls, config.terms, clock, outer);
        let (local, socket) = bind_local(&data.join(SOCKET))?;
        let (local, stun) = runtime.block_on(async {
            Ok::<_, io::Error>((
                UnixListener::from_std(local)?,
                stun.into_iter().map(UdpSocket::from_std).collect::<io::Result<Vec<_>>>()?,
            ))
        })?;
        let ends = &app.ends;
        let serve = http::serve_tls(Arc::clone(&app), listener, tls);
        watchdog::watch(&runtime, ends, "connections", serve);
        let serve = http::serve_local(Arc::clone(&app), local, owner);
        watchdog::watch(&runtime, ends, "local socket", serve);
        for stun in stun {
            watchdog::watch(&runtime, ends, "STUN", stun::serve(stun));
        }
        let sweeps = relay::sweep(Arc::clone(&app.relay), app.changes());
        watchdog::watch(&runtime, ends, "relay", sweeps);
        for door in doors.clone() {
            let serve = door.serve(Arc::clone(&app.relay), Some(pipes(&app)));
            watchdog::watch(&runtime, ends, "QUIC", serve);
        }
        look_after(&runtime, &app, &config)?;
        if let Some(keeper) = keeper {
            watchdog::watch(&runtime, ends, "certificate", keeper.keep());
        }
        let runtime = Some(runtime);
        let stun = stun_addresses;
        let data = data.clone();
        let has_quic = ways.quic;
        Ok(Self { runtime, app, address, stun, data, socket, doors, has_quic, _lock: lock })
    }

    /// Where TCP connections are taken.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the relay answers QUIC, too, at the UDP port of the same number.
    #[must_use]
    pub const fn has_quic(&self) -> bool {
        self.has_quic
    }

    /// Where STUN requests are answered.
    #[must_use]
    pub fn stun(&self) -> &[SocketAddr] {
        &self.stun
    }

    /// The socket for administrators on this machine.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.socket.path()
    }

    /// The key that tokens pin.
    #[must_use]
    pub fn public_key(&self) -> noise::PublicKey {
        self.app.keys.noise.public()
    }

    /// Waits for SIGTERM or SIGINT, or for a backup to be restored.
    ///
    /// # Errors
    /// If the signals cannot be watched, another server took the books over, or a task that the
    /// server is nothing without is no more (threat RL-13).
    pub fn wait(&self) -> io::Result<Ended> {
        let Some(runtime) = &self.runtime else { return Ok(Ended::Told) };
        runtime.block_on(async {
            let mut term = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut ends = self.app.ends.subscribe();
            let mut ends = std::pin::pin!(ends.wait_for(Option::is_some));
            let mut glance = tokio::time::interval(RESTORE_EVERY);
            std::future::poll_fn(|context| {
                if let Poll::Ready(Ok(why)) = ends.as_mut().poll(context) {
                    return Poll::Ready(Err(io::Error::other(why.clone().unwrap_or_default())));
                }
                let is_told = term.poll_recv(context).is_ready();
                if is_told || interrupt.poll_recv(context).is_ready() {
                    return Poll::Ready(Ok(Ended::Told));
                }
                while glance.poll_tick(context).is_ready() {
                    if restore::is_waiting(&self.data) {
                        return Poll::Ready(Ok(Ended::Restore));
                    }
                }
                Poll::Pending
            })
            .await
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.app.copies.clear();
        watchdog::rest(&self.app.ends);
        if let Some(runtime) = self.runtime.take() {
            for door in &self.doors {
                runtime.block_on(door.close());
            }
            // Writes that began end; polls that wait are cut.
            runtime.shutdown_timeout(Duration::from_secs(2));
        }
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| {
        let mend = match error.kind() {
            io::ErrorKind::PermissionDenied => "; run it as root, or name a directory with --data",
            _ => "",
        };
        io::Error::new(error.kind(), format!("{}: {error}{mend}", path.display()))
    }
}

fn failed(error: StoreError) -> io::Error {
    io::Error::other(error)
}

fn open(config: &Config) -> io::Result<(Store, Keys)> {
    let is_restored = config.store.is_none() && restore::take(&config.data)?;
    backup::unpack(&config.data)?;
    let place = books::place(&config.data, config.store.as_deref())?;
    let open = |pepper| Store::open(&place, pepper, config.range, &mut SystemRandom);
    // Keys are made only for an empty database, which is there before them.
    let is_empty = open(&[0; 32]).and_then(|store| store.is_empty()).map_err(failed)?;
    if let Place::File(database) = &place {
        fs::set_permissions(database, fs::Permissions::from_mode(0o600)).map_err(at(database))?;
    }
    books::remember(&config.data, &place)?;
    let keys = Keys::open(&config.data.join(KEYS), is_empty)?;
    let mut store = open(&keys.pepper).map_err(failed)?;
    store.claim().map_err(failed)?;
    if is_restored {
        store.note_restore((config.clock)()).map_err(failed)?;
    }
    Ok((store, keys))
}

/// The socket is ours from its first moment: its folder is for its owner only.
fn bind_local(path: &Path) -> io::Result<(std::os::unix::net::UnixListener, SocketFile)> {
    let bound = SocketFile::bind(path, 0o600).map_err(at(path))?;
    bound.0.set_nonblocking(true)?;
    Ok(bound)
}

/// The address that a URL names, if it names one; no node may route it (threat PF-12).
fn literal(url: &ServerUrl) -> Option<std::net::IpAddr> {
    url.host().trim_matches(['[', ']']).parse().ok()
}

/// By what the relay is reached beside HTTPS.
#[derive(Clone, Copy, Debug)]
struct Ways {
    quic: bool,
    icmp: bool,
}

/// Takes what nodes say by ping, as if it had come over HTTPS.
fn pipes(app: &Arc<App>) -> Pipes {
    let app = Arc::clone(app);
    Arc::new(move |pipe| drop(tokio::spawn(http::serve_pipe(Arc::clone(&app), pipe))))
}

/// What all nodes of the network are told alike.
fn shared(config: &Config, keys: &Keys, store: &Store, stun: &[SocketAddr], ways: Ways) -> Shared {
    Shared {
        pool: store.pool(),
        domain: config.domain.clone(),
        stun: stun.iter().map(|at| stun::name(config.urls.first(), *at)).collect(),
        reserved: config.urls.iter().filter_map(literal).map(Prefix::host).collect(),
        relays: own_relay(config, keys, ways),
        urls: config.urls.iter().take(URLS_MAX).cloned().collect(),
        resolvers: Resolvers::default(),
    }
}

/// The relay in this process: it is where the server is, and has its key.
fn own_relay(config: &Config, keys: &Keys, ways: Ways) -> Vec<Relay> {
    let own = |url: &ServerUrl| Relay {
        id: 0,
        url: url.clone(),
        key: keys.noise.public(),
        stun: Vec::new(),
        quic: ways.quic,
        icmp: ways.icmp,
    };
    config.urls.first().map(own).into_iter().collect()
}

/// What the server does by itself, as it is wanted.
fn look_after(runtime: &Runtime, app: &Arc<App>, config: &Config) -> io::Result<()> {
    app.takes_links.store(config.link_reports, Ordering::Relaxed);
    let sweeps = sweep(Arc::clone(app), config.ephemeral_away_s);
    watchdog::watch(runtime, &app.ends, "sweep", sweeps);
    for task in app.hooks.tasks(config.clock).map_err(io::Error::other)? {
        watchdog::watch(runtime, &app.ends, "webhook", task);
    }
    if let (Some(provider), Some(url)) = (config.oidc.clone(), config.urls.first()) {
        let _ = app.oidc.set(Arc::new(Oidc::new(provider, &url.to_string())));
        watchdog::watch(runtime, &app.ends, "provider", ask_provider(Arc::clone(app)));
    }
    Ok(())
}

async fn ask_provider(app: Arc<App>) {
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        let app = Arc::clone(&app);
        let _ = waits::blocking(move || signin::refresh(&app)).await;
    }
}

async fn sweep(app: Arc<App>, ephemeral_away_s: Option<u64>) {
    let away = ephemeral_away_s.unwrap_or(app::EPHEMERAL_AWAY_S);
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let app = Arc::clone(&app);
        // A panic in it is one of this task: see `watchdog`.
        if let Err(error) = tokio::task::spawn_blocking(move || app.sweep(away)).await
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rl_13_a_server_that_lost_a_task_ends_and_says_which() {
        let name = format!("warren-serve-task-{}", std::process::id());
        let data = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&data);
        let server = Server::start(Config {
            quic: false,
            icmp: None,
            data: data.clone(),
            store: None,
            listen: ([127, 0, 0, 1], 0).into(),
            urls: vec!["https://127.0.0.1:1".parse().unwrap()],
            stun: Stun::At(Vec::new()),
            range: None,
            domain: "warren.internal".to_owned(),
            terms: Enrolment::default(),
            tls: None,
            acme: None,
            hooks: Vec::new(),
            oidc: None,
            link_reports: true,
            clock: crate::unix_s,
            ephemeral_away_s: None,
        });
        let server = server.unwrap();
        let runtime = server.runtime.as_ref().unwrap();
        watchdog::watch(runtime, &server.app.ends, "on purpose", async { panic!("for a test") });
        let why = server.wait().unwrap_err().to_string();
        assert!(why.contains("its task \"on purpose\" panicked"), "{why}");
        drop(server);
        let _ = fs::remove_dir_all(&data);
    }
}
