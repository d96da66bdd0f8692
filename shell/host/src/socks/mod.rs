//! A SOCKS5 door: programs that know SOCKS speak through circuits, one for each user name.
//!
//! A client says who it is and whom it wants; a circuit for that user is asked for ([`Circuits`])
//! and a socket of this machine speaks as it (`outward`): the kernel's TCP ends here, and goes
//! from here through the circuit to the far end without another end between. Names are asked at
//! the exit. Each client has a thread, [`CLIENTS_MAX`] at most, of little stack; nothing is shared
//! with the data loop. Nobody is reached here but who is reached through an exit: this machine,
//! private networks and the network's own addresses are refused before a socket is made.

mod datagrams;
mod outward;
mod pump;
#[cfg(test)]
mod tests;
mod words;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::linux::sys::{Interest, Poll};
use words::{Host, Reply, Request};

/// Clients at once.
pub const CLIENTS_MAX: usize = 256;
/// Bytes of a client's stack.
const STACK_BYTES: usize = 128 << 10;
/// How long a client may take to say what it wants, or not read.
const WORDS_WITHIN: Duration = Duration::from_secs(10);
/// How long a circuit is waited for, and how often it is asked for.
const CIRCUIT_WITHIN: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(10);

/// What a circuit of a user is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Circuit {
    /// It carries.
    Open {
        /// What it is used by; packets of IPv6 have it as [`node::circuit::six`] says.
        address: Ipv4Addr,
        /// Whether packets of IPv6 leave at its exit.
        leads_six: bool,
    },
    /// It does not yet.
    Building,
    /// There is none, and why.
    None(String),
}

/// Who has circuits.
pub trait Circuits: Send + Sync {
    /// The circuit of a user; one is begun where there is none.
    fn of(&self, user: &[u8]) -> Circuit;
}

/// What a door is made of.
pub struct Place {
    /// Where it listens.
    pub at: SocketAddr,
    /// Our link, which leads into circuits.
    pub link: String,
    /// Whom programs in circuits ask for names.
    pub names: Ipv4Addr,
    /// Who has circuits.
    pub circuits: Arc<dyn Circuits>,
}

/// What came of clients since the door was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Clients now.
    pub clients: usize,
    /// Clients so far.
    pub all: u64,
    /// Turned away: too many at once.
    pub too_many: u64,
    /// Turned away: whom they wanted is nobody whom circuits lead to.
    pub refused: u64,
    /// Without a circuit in time.
    pub without: u64,
}

struct Shared {
    place: Place,
    ended: AtomicBool,
    clients: AtomicUsize,
    counts: [AtomicU64; 4],
}

#[derive(Clone, Copy)]
enum Count {
    All,
    TooMany,
    Refused,
    Without,
}

impl Shared {
    fn count(&self, what: Count) {
        self.counts[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// How a circuit is spoken through: by its address, on our link.
struct Way {
    address: Ipv4Addr,
    leads_six: bool,
    link: String,
}

impl Way {
    /// Our end, of this version.
    fn own(&self, is_six: bool) -> IpAddr {
        if is_six { node::circuit::six(self.address).into() } else { self.address.into() }
    }
}

/// An open door; dropping it closes it, and every connection through it.
pub struct Door {
    shared: Arc<Shared>,
    end: Option<io::PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("at", &self.shared.place.at).finish_non_exhaustive()
    }
}

impl Door {
    /// Opens it.
    ///
    /// # Errors
    /// The address cannot be listened on, or no thread can be started.
    pub fn open(place: Place) -> io::Result<Self> {
        let listener = TcpListener::bind(place.at)?;
        listener.set_nonblocking(true)?;
        let (reader, writer) = io::pipe()?;
        let shared = Arc::new(Shared {
            place,
            ended: AtomicBool::new(false),
            clients: AtomicUsize::new(0),
            counts: Default::default(),
        });
        let known = shared.clone();
        let thread = std::thread::Builder::new().name("socks".to_owned()).spawn(move || {
            crate::linux::signals::block_all();
            if let Err(error) = listen(&known, &listener, &reader) {
                tracing::error!("the SOCKS door is closed: {error}");
            }
        })?;
        Ok(Self { shared, end: Some(writer), thread: Some(thread) })
    }

    /// What came of its clients.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let count = |what: Count| self.shared.counts[what as usize].load(Ordering::Relaxed);
        Counts {
            clients: self.shared.clients.load(Ordering::Relaxed),
            all: count(Count::All),
            too_many: count(Count::TooMany),
            refused: count(Count::Refused),
            without: count(Count::Without),
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        drop(self.end.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the SOCKS door had panicked");
        }
    }
}

/// One of the places for clients, given back when dropped.
struct Seat(Arc<Shared>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::AcqRel);
    }
}

fn listen(shared: &Arc<Shared>, listener: &TcpListener, end: &io::PipeReader) -> io::Result<()> {
    let poll = Poll::new()?;
    poll.watch(listener.as_raw_fd(), Interest::READ)?;
    poll.watch(end.as_raw_fd(), Interest::READ)?;
    let mut ready = Vec::new();
    while !shared.is_ended() {
        poll.wait(None, &mut ready)?;
        while let Ok((stream, _)) = listener.accept() {
            take(shared, stream);
        }
    }
    Ok(())
}

fn take(shared: &Arc<Shared>, stream: TcpStream) {
    let before = shared.clients.fetch_add(1, Ordering::AcqRel);
    let seat = Seat(shared.clone());
    if before >= CLIENTS_MAX {
        return shared.count(Count::TooMany);
    }
    shared.count(Count::All);
    let thread = std::thread::Builder::new().name("socks-client".to_owned());
    let started = thread.stack_size(STACK_BYTES).spawn(move || {
        crate::linux::signals::block_all();
        // A client that goes away in the middle is its own business.
        let _ = serve(&seat.0, stream);
    });
    if started.is_err() {
        shared.count(Count::TooMany);
    }
}

/// Hears what a client wants, and does it until either end is done.
fn serve(shared: &Shared, mut stream: TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(WORDS_WITHIN))?;
    stream.set_write_timeout(Some(WORDS_WITHIN))?;
    stream.set_nodelay(true)?;
    let user = words::greet(&mut stream)?;
    let done = match words::request(&mut stream)? {
        Ok(request) => begin(shared, &user, &request, &stream),
        Err(reply) => Err(reply),
    };
    match done {
        Ok(Begun::Stream(far)) => {
            io::Write::write_all(&mut stream, &words::reply(Reply::Done, None))?;
            pump::pump(&stream, &far, || shared.is_ended())
        }
        Ok(Begun::Datagrams(association)) => {
            let at = association.at()?;
            io::Write::write_all(&mut stream, &words::reply(Reply::Done, Some(at)))?;
            association.serve(&stream, || shared.is_ended())
        }
        Err(reply) => {
            if reply == Reply::Refused {
                shared.count(Count::Refused);
            }
            io::Write::write_all(&mut stream, &words::reply(reply, None))
        }
    }
}

enum Begun {
    Stream(TcpStream),
    Datagrams(datagrams::Association),
}

fn begin(
    shared: &Shared,
    user: &[u8],
    request: &Request,
    client: &TcpStream,
) -> Result<Begun, Reply> {
    let place = &shared.place;
    let (address, leads_six) = wait(shared, user)?;
    let way = Way { address, leads_six, link: place.link.clone() };
    match request {
        Request::Connect(host, port) => {
            let mut last = Reply::NoHost;
            for to in addresses(&way, place.names, host)? {
                match outward::connect(&way, SocketAddr::new(to, *port)) {
                    Ok(stream) => return Ok(Begun::Stream(stream)),
                    Err(error) => last = reply_of(&error),
                }
            }
            Err(last)
        }
        Request::Associate(port) => datagrams::Association::new(way, place.names, (client, *port))
            .map(Begun::Datagrams)
            .map_err(|_| Reply::Failed),
    }
}

/// The address of the user's circuit, once it carries, and whether that leads to IPv6.
fn wait(shared: &Shared, user: &[u8]) -> Result<(Ipv4Addr, bool), Reply> {
    let end = Instant::now() + CIRCUIT_WITHIN;
    loop {
        match shared.place.circuits.of(user) {
            Circuit::Open { address, leads_six } => return Ok((address, leads_six)),
            Circuit::Building if Instant::now() < end && !shared.is_ended() => {
                std::thread::sleep(LOOK);
            }
            Circuit::Building => break,
            Circuit::None(why) => {
                tracing::warn!("a SOCKS client is turned away: {why}");
                break;
            }
        }
    }
    shared.count(Count::Without);
    Err(Reply::Failed)
}

/// The addresses that are meant, of those that the circuit leads to.
fn addresses(way: &Way, names: Ipv4Addr, host: &Host) -> Result<Vec<IpAddr>, Reply> {
    let found = match host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => outward::resolve(way, names, name).map_err(|e| reply_of(&e))?,
    };
    if found.is_empty() {
        return Err(Reply::NoHost);
    }
    let open: Vec<IpAddr> = found.into_iter().filter(|to| is_open(*to)).collect();
    if open.is_empty() {
        return Err(Reply::Refused);
    }
    let led: Vec<IpAddr> = open.into_iter().filter(|to| way.leads_six || to.is_ipv4()).collect();
    if led.is_empty() { Err(Reply::NoHost) } else { Ok(led) }
}

/// Whether an exit may be asked for it: what every exit refuses would be this machine's own here.
fn is_open(to: IpAddr) -> bool {
    node::circuit::leads_out(to)
}

fn reply_of(error: &io::Error) -> Reply {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Reply::ConnectionRefused,
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Reply::Late,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Reply::NoHost,
        io::ErrorKind::PermissionDenied => Reply::Refused,
        _ => Reply::Failed,
    }
}
