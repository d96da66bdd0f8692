//! The program that runs on a node: a member of a network, with its interface, and with a socket
//! at which commands say what they want.
//!
//! Two loops, each with one owner. The data loop is [`host::driver`]'s: packets, sessions, timers.
//! The other one is here (`member`): it owns what is kept, the membership and the plan, and asks
//! the data loop for changes through [`host::driver::mail`]. It may wait for a disk or for the
//! kernel; no packet waits for it.
//!
//! The life of `warren up TOKEN`:
//!
//! 1. The command connects to the `socket`, whose thread asks the kernel who it is, reads one
//!    line of JSON ([`protocol`]) and puts it into the loop's queue.
//! 2. The loop checks the words (`settings`) and the token, keeps both ([`state`]), sets the
//!    interface up (`system`) and starts a [`dial::Membership`], which enrols.
//! 3. The server's map arrives as news. [`plan`] says what it means: addresses, peers, what each
//!    may send, routes. What differs from the plan in force is done, in the data loop and in the
//!    kernel.
//! 4. The command asks for `status` until it says `running`.
//!
//! All the time `relays` keeps a stream to every relay of the map, for peers that no UDP reaches,
//! and `ports` asks the gateway for a port that leads here.
//!
//! From then on every delta of the server is a new plan, and most plans change one peer. A daemon
//! that starts again begins with the signed map that it kept: its peers are reached whether or not
//! the server is. When the server says that the node is none of its own, every peer is gone at
//! once; sessions end with them.
//!
//! What a map means for names, subnets and exits is done by `gate`: a name server at the node's
//! own addresses, the system's resolver told of it, forwarding, rules and the packet filter.
//!
//! What the machine is left with: nothing. The interface goes with the process and takes its
//! addresses and routes along; the rest is undone, and after a crash by the next start or by
//! `warren cleanup`.

mod answer;
mod as_text;
mod auto;
mod bandwidth;
mod begin;
mod called;
mod circuits;
mod exits;
mod failover;
mod gate;
pub mod home;
mod lan;
mod leading;
mod links;
mod mdns;
mod member;
pub mod metrics;
mod offer;
pub mod plan;
mod ports;
mod promise;
pub mod protocol;
mod resolvers;
mod seen;
mod settings;
mod socket;
pub mod state;
mod status;
mod system;
mod through;
mod trouble;
mod why;

use std::fmt;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, UNIX_EPOCH};

use host::driver::{self, Driver};
use host::linux::systemd::Watchdog;

pub use begin::Begin;
pub use circuits::DirectoryAt;
pub use mdns::Mdns;
pub use member::{Loop, PORT};
pub use offer::Offer;
pub use settings::{Changes, Settings};
pub use socket::{Client, SOCKET};

use member::{Daemon, Input};
use promise::Promise;
use state::{State, StateError};
use system::Interface;

/// Inputs that wait for the loop: one from each command, news and changes once each.
const INPUTS_MAX: usize = 64;

/// How a daemon is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it keeps its state.
    pub state: PathBuf,
    /// Where commands find it.
    pub socket: PathBuf,
    /// The interface to make.
    pub tun: String,
    /// The UDP port, if one was named.
    pub port: Option<u16>,
    /// The interface's MTU, if one was named; else what the machine's links have room for.
    pub mtu: Option<u32>,
    /// Whether it speaks frames.
    pub frames: bool,
    /// How long a flow waits for its order at most.
    pub order: Duration,
    /// How much repair may be sent for what is sent, percent.
    pub repair_percent: u8,
    /// Whether the gateway is asked for a port that leads here.
    pub port_mapping: bool,
    /// Where metrics are served over HTTP, if anywhere.
    pub metrics: Option<std::net::SocketAddr>,
    /// The last lines of the log, for a bundle.
    pub last_lines: fn() -> String,
    /// What is said of the node at this start.
    pub begin: Begin,
}

/// Why a daemon did not start or had to end.
#[derive(Debug)]
pub enum Error {
    /// Its directory cannot be used.
    State(StateError),
    /// The interface or the loop.
    Driver(driver::Error),
    /// The socket or a thread.
    Io(io::Error),
    /// Another daemon is at work in this network namespace.
    Second,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(error) => error.fmt(f),
            Self::Driver(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Second => f.write_str(
                "another daemon is at work on this machine, and two would replace each other's \
                 packet filter, routing rules and resolver; stop it (`systemctl stop warren`), or \
                 run this one in a network namespace of its own (`ip netns exec`, a container)",
            ),
        }
    }
}

impl std::error::Error for Error {}

impl From<StateError> for Error {
    fn from(error: StateError) -> Self {
        Self::State(error)
    }
}

impl From<driver::Error> for Error {
    fn from(error: driver::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Runs a daemon until a signal ends it. `ready` is called when commands find it.
///
/// # Errors
/// [`Error`]; nothing is left behind.
pub fn run(options: &Options, ready: impl FnOnce()) -> Result<(), Error> {
    let state = State::open(&options.state)?;
    let _alone = alone()?;
    let mut driver = Driver::managed(&options.tun)?;
    driver.node().set_frames(options.frames);
    driver.node().set_order(options.order);
    driver.node().set_repair_max(options.repair_percent);
    let remote = driver.remote()?;
    let (inputs, received) = sync_channel(INPUTS_MAX);
    let changes = inputs.clone();
    driver.watch_network(Box::new(move || drop(changes.try_send(Input::Network))));
    let promise = keep_stamps(&mut driver, &state, &inputs);
    let asking = inputs.clone();
    let carry: socket::Carry =
        Arc::new(move |asked| asking.send(Input::Asked(Box::new(asked))).is_ok());
    if let Some(address) = options.metrics {
        metrics::listen(address, Arc::clone(&carry))?;
    }
    let listener = socket::listen(&options.socket, carry)?;
    let port = (options.port.unwrap_or(PORT), options.port.is_some());
    let interface = Interface::new(options.tun.clone(), options.mtu);
    let gate = gate::Gate::new(&options.state);
    let mut daemon = Daemon::new(state, remote, interface, gate, port, inputs.clone());
    daemon.promise = promise;
    daemon.last_lines = options.last_lines;
    daemon.watchdog = Watchdog::from_environment();
    if options.port_mapping {
        daemon.start_ports();
    }
    daemon.take_words(options.begin.clone());
    let run = move || daemon.run(&received);
    let thread = std::thread::Builder::new().name("warren-member".to_owned()).spawn(run)?;
    ready();
    let ended =
        driver.run(&mut || Err("a node's settings are changed with `warren set`".to_owned()));
    drop(listener);
    // Dropped first, so that whoever waits for the data loop is told that it is gone.
    drop(driver);
    let _ = inputs.send(Input::Stop { is_asked: ended.is_ok() });
    let _ = thread.join();
    let end = ended?;
    tracing::info!("ended: {end}");
    Ok(())
}

/// A name that one process of a network namespace can have: the packet filter, the routing table
/// and the resolver are one for all of it. The kernel takes it back however the process ends.
const ALONE: &[u8] = b"warren-daemon";

/// Takes the name.
///
/// # Errors
/// [`Error::Second`] where root has it already. What another user has is no daemon's.
fn alone() -> Result<Option<UnixListener>, Error> {
    let name = SocketAddr::from_abstract_name(ALONE)?;
    match UnixListener::bind_addr(&name) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let other = UnixStream::connect_addr(&name).and_then(|other| host::user_of(&other));
            match other {
                Ok(user) if user != host::own_user() => {
                    tracing::warn!("user {user} has the name of a daemon on this machine");
                    Ok(None)
                }
                _ => Err(Error::Second),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Has stamps begin behind what was promised before, so that no wrong clock locks this node out.
/// Where nothing can be kept, they follow the wall clock.
fn keep_stamps(driver: &mut Driver, state: &State, inputs: &SyncSender<Input>) -> Option<Promise> {
    let now_s = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs() + 1;
    let opened = Promise::open(state.directory()).and_then(|(mut promise, before)| {
        // Nothing was sent yet by who has promised nothing.
        if before.is_none() {
            promise.keep(now_s)?;
        }
        Ok((promise, before.unwrap_or(now_s)))
    });
    let (promise, before) = opened
        .inspect_err(|error| tracing::error!("{error}; stamps of handshakes are not kept"))
        .ok()?;
    let inputs = inputs.clone();
    // A queue that is full is tried again.
    let wish = move |promised| drop(inputs.try_send(Input::Promise(promised)));
    driver.keep_stamps(before, Box::new(wish));
    Some(promise)
}
