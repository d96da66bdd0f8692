//! A relay in a process of its own. It holds no books: its owner tells it the members' keys, from
//! the server or, while that is away, from a file, and for how long they are good (threat RL-14).

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use admit::Source;
use control::ServerUrl;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use lock::private_directory;
use noise::{PrivateKey, PublicKey, Random};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::{Door, IcmpAt, Members, Relay, sweep, upgrade};
use crate::acme::{self, Acme};
use crate::clock::unix_s;
use crate::connection::{ACCEPT_PAUSE, READ_WITHIN, listen, talk, unless_cut};
use crate::doorstep::{Doorstep, Place, STRANGERS_MAX};
use crate::held::held;
use crate::keys::{self, SystemRandom};
use crate::limits::Limits;
use crate::patience::Patience;
use crate::tls::CHALLENGE;
use crate::{place, stun, watchdog};

/// Connections at a time, before they are members': those that have a place on the doorstep, and
/// those that have just lost theirs and are about to end.
const CONNECTIONS_MAX: usize = STRANGERS_MAX + 1024;
/// Threads that run tasks.
const WORKERS: usize = 2;

/// What a relay is started with.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// The directory with its key and certificate, made if it is not there.
    pub data: PathBuf,
    /// Where TCP connections are taken.
    pub listen: SocketAddr,
    /// Whether QUIC is answered at the same UDP port, if it is free.
    pub quic: bool,
    /// Where nodes are answered by ping, if they are.
    pub icmp: Option<IcmpAt>,
    /// What nodes are told to connect to.
    pub url: ServerUrl,
    /// Where STUN requests are answered.
    pub stun: Vec<SocketAddr>,
    /// Certificate and key, if not our own.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Whom to ask for a certificate, if neither files nor our own will do.
    pub acme: Option<Acme>,
}

/// A running relay. It ends when it is dropped.
pub struct RelayServer {
    runtime: Option<Runtime>,
    address: SocketAddr,
    key: PrivateKey,
    stun: Vec<String>,
    doors: Vec<Door>,
    has_quic: bool,
    has_icmp: bool,
    told: Arc<Told>,
    changed: watch::Sender<u64>,
    ends: watch::Sender<Option<String>>,
}

/// The members as they were last told, and until when that is good.
#[derive(Default)]
struct Told(Mutex<Option<(BTreeSet<PublicKey>, Instant)>>);

impl Told {
    fn ask<T: Default>(&self, now: Instant, ask: impl FnOnce(&BTreeSet<PublicKey>) -> T) -> T {
        match &*held(&self.0) {
            Some((keys, until)) if now < *until => ask(keys),
            _ => T::default(),
        }
    }

    fn tell(&self, keys: BTreeSet<PublicKey>, good_for: Duration, now: Instant) {
        *held(&self.0) = Some((keys, now + good_for));
    }

    fn renew(&self, good_for: Duration, now: Instant) {
        if let Some((_, until)) = &mut *held(&self.0) {
            *until = now + good_for;
        }
    }
}

/// What the switch's side asks.
struct Asked(Arc<Told>);

impl Members for Asked {
    fn keys(&self) -> BTreeSet<PublicKey> {
        self.0.ask(Instant::now(), BTreeSet::clone)
    }

    fn is_member(&self, key: &PublicKey) -> bool {
        self.0.ask(Instant::now(), |keys| keys.contains(key))
    }

    /// A relay of its own knows no policy: it tells nobody.
    fn may_know(&self, _: &PublicKey, _: &PublicKey) -> bool {
        false
    }
}

impl RelayServer {
    /// Opens everything and relays in the background; nobody is admitted before
    /// [`RelayServer::set_members`].
    ///
    /// # Errors
    /// What could not be opened, why, and how to mend it.
    pub fn start(config: &RelayConfig) -> io::Result<Self> {
        let data = &config.data;
        let stun: Vec<_> =
            config.stun.iter().copied().map(stun::bind).collect::<io::Result<_>>()?;
        if private_directory(data)? {
            tracing::warn!("others could write into {}: no more", data.display());
        }
        let key = open_key(&data.join("relay.key"))?;
        let urls = std::slice::from_ref(&config.url);
        let files = config.tls.as_ref();
        let acme = config.acme.as_ref();
        let (outer, tls, keeper) = acme::outer(data, urls, files, acme, unix_s)?;
        let told = Arc::new(Told::default());
        let relay = Relay::new(key.clone(), Box::new(Asked(Arc::clone(&told))));
        let (changed, changes) = watch::channel(0);
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("warren-relay")
            .enable_all()
            .build()?;
        let at = config.listen;
        let listener = runtime.block_on(async { listen(at) });
        let listener = listener.map_err(place::refused("--listen", at))?;
        let address = listener.local_addr()?;
        let ends = watch::channel(None).0;
        watchdog::watch(&runtime, &ends, "relay", sweep(Arc::clone(&relay), changes));
        let (mut doors, quic) = {
            let _guard = runtime.enter();
            let doors = Door::by_ping("relay", config.icmp, &outer)?;
            (doors, config.quic.then(|| Door::try_open(address, &outer)).flatten())
        };
        let has_icmp = !doors.is_empty();
        let has_quic = quic.is_some();
        doors.extend(quic);
        for door in doors.clone() {
            watchdog::watch(&runtime, &ends, "QUIC", door.serve(Arc::clone(&relay), None));
        }
        watchdog::watch(&runtime, &ends, "connections", serve(relay, listener, tls));
        if let Some(keeper) = keeper {
            watchdog::watch(&runtime, &ends, "certificate", keeper.keep());
        }
        let stun = answer_stun(&runtime, &ends, stun, &config.url)?;
        let runtime = Some(runtime);
        Ok(Self { runtime, address, key, stun, doors, has_quic, has_icmp, told, changed, ends })
    }

    /// Where TCP connections are taken.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The relay's own key.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        self.key.public()
    }

    /// The key itself, for a call that proves it.
    #[must_use]
    pub const fn private_key(&self) -> &PrivateKey {
        &self.key
    }

    /// Where STUN requests are answered, as nodes are told: `host:port`.
    #[must_use]
    pub fn stun(&self) -> &[String] {
        &self.stun
    }

    /// Whether QUIC is answered at the UDP port of [`RelayServer::address`].
    #[must_use]
    pub const fn has_quic(&self) -> bool {
        self.has_quic
    }

    /// Whether nodes are answered by ping.
    #[must_use]
    pub const fn has_icmp(&self) -> bool {
        self.has_icmp
    }

    /// These keys are the members', and that is good for so long. Who is none of them is cut.
    pub fn set_members(&self, keys: BTreeSet<PublicKey>, good_for: Duration) {
        self.told.tell(keys, good_for, Instant::now());
        self.changed.send_modify(|version| *version += 1);
    }

    /// What was told has not changed, and is good for so long from now on.
    pub fn renew_members(&self, good_for: Duration) {
        self.told.renew(good_for, Instant::now());
    }

    /// Waits for SIGTERM or SIGINT, and meanwhile does `work` as often as it wants to be done:
    /// it says how long to wait. `work` may block.
    ///
    /// # Errors
    /// If the signals cannot be watched, or a task that the relay is nothing without is no more.
    pub fn wait(&self, mut work: impl FnMut(&Self) -> Duration) -> io::Result<()> {
        let Some(runtime) = &self.runtime else { return Ok(()) };
        let _guard = runtime.enter();
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        loop {
            let pause = work(self);
            let told = std::future::poll_fn(|context| {
                let is_told = term.poll_recv(context).is_ready();
                let is_told = is_told || interrupt.poll_recv(context).is_ready();
                if is_told { Poll::Ready(()) } else { Poll::Pending }
            });
            if runtime.block_on(async { timeout(pause, told).await.is_ok() }) {
                return Ok(());
            }
            if let Some(why) = &*self.ends.borrow() {
                return Err(io::Error::other(why.clone()));
            }
        }
    }
}

impl Drop for RelayServer {
    fn drop(&mut self) {
        watchdog::rest(&self.ends);
        if let Some(runtime) = self.runtime.take() {
            for door in &self.doors {
                runtime.block_on(door.close());
            }
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

/// Answers STUN at each socket; says how nodes reach them.
fn answer_stun(
    runtime: &Runtime,
    ends: &watch::Sender<Option<String>>,
    sockets: Vec<std::net::UdpSocket>,
    url: &ServerUrl,
) -> io::Result<Vec<String>> {
    let _guard = runtime.enter();
    let each = |socket: std::net::UdpSocket| {
        let name = stun::name(Some(url), socket.local_addr()?);
        watchdog::watch(runtime, ends, "STUN", stun::serve(UdpSocket::from_std(socket)?));
        Ok(name)
    };
    sockets.into_iter().map(each).collect()
}

/// The relay's key, made at the first start; a damaged one is told and never replaced.
fn open_key(path: &std::path::Path) -> io::Result<PrivateKey> {
    if !path.exists() {
        let mut bytes = [0; 32];
        SystemRandom.fill(&mut bytes);
        keys::write(path, PrivateKey::from_bytes(bytes).as_bytes())?;
    }
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut File::open(path)?, &mut bytes)?;
    let key: [u8; 32] = bytes.try_into().map_err(|_| {
        let why = format!("{} is no key of 32 bytes; restore it", path.display());
        io::Error::new(io::ErrorKind::InvalidData, why)
    })?;
    Ok(PrivateKey::from_bytes(key))
}

async fn serve(relay: Arc<Relay>, listener: TcpListener, tls: TlsAcceptor) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let doorstep = Doorstep::new();
    let limits = Limits::new();
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let source = Source::from(from.ip());
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else { continue };
        if !limits.connect(source) {
            continue;
        }
        let relay = Arc::clone(&relay);
        let tls = tls.clone();
        let (place, cut) = doorstep.enter(source);
        tokio::spawn(async move {
            let _permit = permit;
            unless_cut(connection(relay, stream, tls, place), cut).await;
        });
    }
}

async fn connection(relay: Arc<Relay>, stream: TcpStream, tls: TlsAcceptor, place: Place) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(mut stream)) = timeout(READ_WITHIN, tls.accept(Patience::new(stream))).await else {
        return;
    };
    if stream.get_ref().1.alpn_protocol() == Some(CHALLENGE) {
        // An authority saw in the handshake what it wanted to see. There is no more.
        let _ = timeout(READ_WITHIN, stream.shutdown()).await;
        return;
    }
    // It has a place of its own while its key is proven, and in the switch after that.
    let _place = place;
    let service = service_fn(move |request| {
        let answer = answer(&relay, request);
        async move { Ok::<_, Infallible>(answer) }
    });
    talk(stream, service).await;
}

fn answer(relay: &Arc<Relay>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    if request.uri().path() == control::relay::PATH {
        return upgrade(relay, request);
    }
    let mut missing = Response::new(Full::default());
    *missing.status_mut() = StatusCode::NOT_FOUND;
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rl_14_members_are_good_as_long_as_was_said_and_then_nobody_is() {
        let told = Arc::new(Told::default());
        let asked = Asked(Arc::clone(&told));
        let key = PublicKey([1; 32]);
        assert!(!asked.is_member(&key), "nobody before anything was told");
        let (keys, begin) = (BTreeSet::from([key]), Instant::now());
        let (hour, minute) = (Duration::from_secs(3600), Duration::from_secs(60));
        told.tell(keys.clone(), hour * 24, begin);
        assert!(asked.is_member(&key) && asked.keys() == keys);
        assert!(!asked.is_member(&PublicKey([2; 32])));
        let is_member = |at| told.ask(at, |keys| keys.contains(&key));
        assert!(is_member(begin + hour * 24 - minute) && !is_member(begin + hour * 24));
        told.renew(hour * 24, begin + hour);
        assert!(is_member(begin + hour * 25 - minute) && !is_member(begin + hour * 25));
        told.tell(keys, Duration::ZERO, Instant::now());
        assert!(!asked.is_member(&key) && asked.keys().is_empty(), "closed, never open");
        assert!(!asked.may_know(&key, &key));
    }
}
