//! The name server of a node: UDP and TCP port 53 of its own overlay addresses.
//!
//! Two kinds of threads, both apart from the data loop: one for all datagrams (`datagrams`), and
//! one for each of a few streams (`stream`). What is answered is decided in [`dns`]. Only this
//! machine and containers on it are answered: another source is dropped and counted, unless
//! [`Place::also`] names it, so a node is no open resolver (threat DN-05).

mod datagrams;
mod local;
pub mod mdns;
pub mod resolver;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use dns::Names;
use node::Prefix;

use crate::linux::netlink::Netlink;

pub(crate) use stream::ask_whole;

/// The port of DNS.
pub const PORT: u16 = 53;
/// How often an address that is not there yet is tried, 50 ms apart.
const BIND_TRIES: u32 = 60;

/// Where a server answers, and whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The node's own addresses in the network.
    pub addresses: Vec<IpAddr>,
    /// Sources that are answered besides this machine's own addresses and its containers'.
    pub also: Vec<Prefix>,
}

/// What the server did since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Queries that came from where they may.
    pub queries: u64,
    /// Queries that were handed on to a resolver.
    pub forwarded: u64,
    /// Dropped: the source is not this machine.
    pub foreign_source: u64,
    /// Dropped: too short, too long, or an answer.
    pub no_query: u64,
    /// Dropped: what came from a resolver is no answer to what was asked.
    pub foreign_answer: u64,
    /// Questions that gave way because too many were open.
    pub evicted: u64,
    /// Streams refused because too many were open.
    pub streams_refused: u64,
}

/// What the threads share: names that are replaced whole, and numbers that only grow.
#[derive(Debug)]
struct Shared {
    names: RwLock<Arc<Names>>,
    /// The interfaces of resolvers that are link-local.
    zones: RwLock<BTreeMap<IpAddr, String>>,
    also: Vec<Prefix>,
    streams: AtomicUsize,
    ended: AtomicBool,
    counts: [AtomicU64; 7],
}

/// Which of [`Counts`].
#[derive(Clone, Copy, Debug)]
enum Count {
    Queries,
    Forwarded,
    ForeignSource,
    NoQuery,
    ForeignAnswer,
    Evicted,
    StreamsRefused,
}

impl Shared {
    fn names(&self) -> Arc<Names> {
        self.names.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where a resolver is asked.
    fn resolver(&self, address: IpAddr) -> SocketAddr {
        let zones = self.zones.read().unwrap_or_else(PoisonError::into_inner);
        match (address, zones.get(&address)) {
            (IpAddr::V6(address), Some(zone)) => {
                SocketAddrV6::new(address, PORT, 0, index_of(zone)).into()
            }
            _ => SocketAddr::new(address, PORT),
        }
    }

    fn count(&self, what: Count) {
        self.counts[what as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// A running server; dropping it ends it.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    /// Closed to end the thread.
    end: Option<io::PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

/// Why no server answers: where, and what the system said.
#[derive(Debug)]
pub struct Error {
    at: Option<SocketAddr>,
    cause: io::Error,
}

impl Server {
    /// Binds UDP and TCP at every address of `place`, in the network namespace of the calling
    /// thread, and answers from `names`. An address that is being added is waited for, 3 s at most.
    ///
    /// # Errors
    /// [`Error`], if an address cannot be bound or no thread started.
    pub fn start(place: &Place, names: Names) -> Result<Self, Error> {
        let mut sockets = Vec::new();
        for address in &place.addresses {
            let at = SocketAddr::new(*address, PORT);
            let failed = |cause| Error { at: Some(at), cause };
            let udp = patiently(|| UdpSocket::bind(at)).map_err(failed)?;
            udp.set_nonblocking(true).map_err(failed)?;
            let tcp = TcpListener::bind(at).map_err(failed)?;
            tcp.set_nonblocking(true).map_err(failed)?;
            sockets.push((udp, tcp));
        }
        let shared = Arc::new(Shared {
            names: RwLock::new(Arc::new(names)),
            zones: RwLock::default(),
            also: place.also.clone(),
            streams: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            counts: Default::default(),
        });
        let failed = |cause| Error { at: None, cause };
        let (reader, writer) = io::pipe().map_err(failed)?;
        let thread = datagrams::start(shared.clone(), sockets, reader).map_err(failed)?;
        Ok(Self { shared, end: Some(writer), thread: Some(thread) })
    }

    /// Answers from these names from now on.
    pub fn set(&self, names: Names) {
        let names = Arc::new(names);
        *self.shared.names.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Through which interfaces resolvers are asked that are link-local, from now on.
    pub fn set_zones(&self, zones: BTreeMap<IpAddr, String>) {
        *self.shared.zones.write().unwrap_or_else(PoisonError::into_inner) = zones;
    }

    /// What it did so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let count = |what: Count| self.shared.counts[what as usize].load(Ordering::Relaxed);
        Counts {
            queries: count(Count::Queries),
            forwarded: count(Count::Forwarded),
            foreign_source: count(Count::ForeignSource),
            no_query: count(Count::NoQuery),
            foreign_answer: count(Count::ForeignAnswer),
            evicted: count(Count::Evicted),
            streams_refused: count(Count::StreamsRefused),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        drop(self.end.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the name server had panicked");
        }
    }
}

/// An interface's number, by its name or as it stands there; 0 if there is none.
fn index_of(zone: &str) -> u32 {
    let named = zone.parse().ok().or_else(|| {
        let mut netlink = Netlink::open().ok()?;
        Some(netlink.link(zone).ok()??.index)
    });
    named.unwrap_or(0)
}

/// Tries again while an address is not there yet.
fn patiently<T>(mut bind: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..BIND_TRIES {
        match bind() {
            Err(e) if e.kind() == io::ErrorKind::AddrNotAvailable => {
                std::thread::sleep(Duration::from_millis(50));
            }
            other => return other,
        }
    }
    bind()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(at) = self.at else {
            return write!(f, "cannot start the name server: {}", self.cause);
        };
        write!(f, "cannot answer names at {at}: {}; ", self.cause)?;
        f.write_str(match self.cause.kind() {
            io::ErrorKind::AddrInUse => {
                "another DNS server listens on every address: have it listen on its own, or do \
                 without names (--accept-dns=false)"
            }
            io::ErrorKind::PermissionDenied => crate::advice(
                "this needs CAP_NET_BIND_SERVICE: run as root",
                "this root lacks CAP_NET_BIND_SERVICE, or the address is switched off",
            ),
            io::ErrorKind::AddrNotAvailable => "is the interface up, and the address set?",
            _ => "see `ip address` and `ss -lnp`",
        })
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}
