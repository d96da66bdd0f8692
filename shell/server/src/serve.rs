//! Starting and stopping: everything is opened and checked before the first request is taken.

use std::fs::{self, File, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use control::{Prefix, ServerUrl};
use tokio::net::{TcpListener, UdpSocket, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::app::{self, App};
use crate::keys::{Keys, SystemRandom};
use crate::network::{Network, Shared};
use crate::store::{Enrolment, Store, StoreError};
use crate::{http, policy, stun, tls};

/// Threads that run tasks; waiting for the disk has threads of its own.
const WORKERS: usize = 2;
/// Threads that may wait for the disk.
const BLOCKING_MAX: usize = 16;
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// The socket for administrators on this machine.
const SOCKET: &str = "warren.sock";

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory, made if it is not there.
    pub data: PathBuf,
    /// Where TCP connections are taken.
    pub listen: SocketAddr,
    /// What nodes are told to connect to; need not be `listen`. At least one.
    pub urls: Vec<ServerUrl>,
    /// Where STUN requests are answered.
    pub stun: Option<SocketAddr>,
    /// The IPv4 range of a new network; 100.64.0.0/10 if not given.
    pub range: Option<Prefix>,
    /// The domain below which nodes have their names.
    pub domain: String,
    /// What those who join are given.
    pub terms: Enrolment,
    /// Certificate and key, if not our own.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// How long an ephemeral node may be away, in seconds; 300 if not given.
    pub ephemeral_away_s: Option<u64>,
}

/// A running server. It ends when it is dropped.
pub struct Server {
    runtime: Option<Runtime>,
    app: Arc<App>,
    address: SocketAddr,
    stun: Option<SocketAddr>,
    socket: PathBuf,
    _lock: File,
}

impl Server {
    /// Opens everything and serves in the background.
    ///
    /// # Errors
    /// What could not be opened, why, and how to mend it.
    pub fn start(config: Config) -> io::Result<Self> {
        let data = &config.data;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(at(data))?;
        let lock = lock(data)?;
        let (mut store, keys) = open(&config)?;
        let epoch = store.next_epoch(app::now()).map_err(failed)?;
        let nodes = store.nodes().map_err(failed)?;
        let rules = match store.policy().map_err(failed)? {
            Some(text) => policy::compile(&text).map_err(io::Error::other)?,
            None => control::Policy::default(),
        };
        let stun = config.stun.map(bind_stun).transpose()?;
        let stun_address = stun.as_ref().map(std::net::UdpSocket::local_addr).transpose()?;
        let shared = Shared {
            pool: store.pool(),
            domain: config.domain.clone(),
            stun: stun_address.iter().map(|at| stun_name(&config, *at)).collect(),
        };
        let network = Network::new(shared, epoch, nodes, rules, app::now());
        let (certificate, key) = match &config.tls {
            Some(files) => files.clone(),
            None => {
                let files = (data.join("tls.crt"), data.join("tls.key"));
                tls::make(&files.0, &files.1, &config.urls)?;
                files
            }
        };
        let tls = tls::acceptor(&certificate, &key)?;
        let owner = fs::metadata(data).map_err(at(data))?.uid();
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .max_blocking_threads(BLOCKING_MAX)
            .thread_name("warren-serve")
            .enable_all()
            .build()?;
        let app = App::new(store, network, keys, config.urls.clone(), config.terms);
        let socket = data.join(SOCKET);
        let (listener, local, stun) = runtime.block_on(async {
            let listener = TcpListener::bind(config.listen).await;
            Ok::<_, io::Error>((
                listener.map_err(named("--listen", config.listen))?,
                bind_local(&socket)?,
                stun.map(UdpSocket::from_std).transpose()?,
            ))
        })?;
        let address = listener.local_addr()?;
        runtime.spawn(http::serve_tls(Arc::clone(&app), listener, tls));
        runtime.spawn(http::serve_local(Arc::clone(&app), local, owner));
        if let Some(stun) = stun {
            runtime.spawn(stun::serve(stun));
        }
        runtime.spawn(sweep(Arc::clone(&app), config.ephemeral_away_s));
        let (runtime, stun) = (Some(runtime), stun_address);
        Ok(Self { runtime, app, address, stun, socket, _lock: lock })
    }

    /// Where TCP connections are taken.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where STUN requests are answered.
    #[must_use]
    pub const fn stun(&self) -> Option<SocketAddr> {
        self.stun
    }

    /// The socket for administrators on this machine.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The key that tokens pin.
    #[must_use]
    pub fn public_key(&self) -> noise::PublicKey {
        self.app.keys.noise.public()
    }

    /// Waits for SIGTERM or SIGINT.
    ///
    /// # Errors
    /// If the signals cannot be watched.
    pub fn wait(&self) -> io::Result<()> {
        let Some(runtime) = &self.runtime else { return Ok(()) };
        runtime.block_on(async {
            let mut term = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            std::future::poll_fn(|context| {
                let is_told = term.poll_recv(context).is_ready();
                if is_told || interrupt.poll_recv(context).is_ready() {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            Ok(())
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
        if let Some(runtime) = self.runtime.take() {
            // Writes that began end; polls that wait are cut.
            runtime.shutdown_timeout(Duration::from_secs(2));
        }
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn named(flag: &str, at: SocketAddr) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{flag} {at}: {error}"))
}

fn failed(error: StoreError) -> io::Error {
    io::Error::other(error)
}

/// Two servers on one directory would each know half.
fn lock(data: &Path) -> io::Result<File> {
    let path = data.join("lock");
    let file = File::options().create(true).append(true).open(&path).map_err(at(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("another server runs on {}; stop it, or use another --data", data.display()),
        )),
        Err(TryLockError::Error(error)) => Err(at(&path)(error)),
    }
}

fn open(config: &Config) -> io::Result<(Store, Keys)> {
    let (database, keys) = (config.data.join("warren.db"), config.data.join("keys"));
    if keys.exists() && !database.exists() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("{} is gone; put it back from a backup", database.display()),
        ));
    }
    let open = |pepper| Store::open(&database, pepper, config.range, &mut SystemRandom);
    // Keys are made only for an empty database, which is there before them.
    let is_empty = open(&[0; 32]).and_then(|store| store.is_empty()).map_err(failed)?;
    fs::set_permissions(&database, fs::Permissions::from_mode(0o600)).map_err(at(&database))?;
    let keys = Keys::open(&keys, is_empty)?;
    let store = open(&keys.pepper).map_err(failed)?;
    Ok((store, keys))
}

/// The socket is ours from its first moment: its folder is for its owner only.
fn bind_local(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(at(path)(error)),
    }
    let listener = UnixListener::bind(path).map_err(at(path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(at(path))?;
    Ok(listener)
}

fn bind_stun(at: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = std::net::UdpSocket::bind(at).map_err(named("--stun", at))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// How nodes reach STUN: by the host that they reach us by, at the port where it is bound.
fn stun_name(config: &Config, at: SocketAddr) -> String {
    let host = config.urls.first().map_or_else(|| at.ip().to_string(), |u| u.host().to_owned());
    if host.contains(':') {
        format!("[{host}]:{}", at.port())
    } else {
        format!("{host}:{}", at.port())
    }
}

async fn sweep(app: Arc<App>, ephemeral_away_s: Option<u64>) {
    let away = ephemeral_away_s.unwrap_or(app::EPHEMERAL_AWAY_S);
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let app = Arc::clone(&app);
        if tokio::task::spawn_blocking(move || app.sweep(away)).await.is_err() {
            tracing::error!("regular work failed; it goes on in a second");
        }
    }
}
