//! An address that this gateway shares with its pair's other one on their LAN. The decision is
//! [`routes::shared`]'s; here is a thread that asks it, and what the daemon knows of it.
//!
//! Who stands by says of its routes that they lead nowhere now. So others send through the one
//! that the machines send through, too, and both directions of a connection meet one filter.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use control::Prefix;
use host::linux::arp::Socket;
use host::linux::netlink::Netlink;
use routes::shared::{Out, Shared};
use serde_json::{Value, json};

use super::{Daemon, Fault};

/// How long the daemon's loop may be busy before it is taken for dead.
const FED_WITHIN: Duration = Duration::from_secs(3);
/// How often the thread looks at the time.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// After what failed, another try.
const AGAIN: Duration = Duration::from_secs(1);
/// Bytes of a message that are read: it is padded to Ethernet's least.
const HEARD_LEN_MAX: usize = 64;

/// What the thread and the daemon tell each other.
#[derive(Debug, Default)]
struct Known {
    has_ended: AtomicBool,
    /// When the daemon said last that this gateway is of use, in nanoseconds; 0 is never.
    fed_ns: AtomicU64,
    holds: AtomicBool,
    /// Who has the address already, as a number; 0 is nobody.
    stranger: AtomicU64,
}

/// A gateway's part in sharing an address.
#[derive(Debug)]
pub(crate) struct Sharing {
    address: Ipv4Addr,
    known: Arc<Known>,
    thread: Option<JoinHandle<()>>,
    begin: Instant,
}

impl Sharing {
    /// Begins on the link whose network has the address; `own` is the interface of the network.
    fn start(address: Ipv4Addr, own: &str) -> Result<Self, String> {
        let link = lan_of(address, own)?;
        let told = |error: io::Error| error.to_string();
        let socket = Socket::open(link).map_err(told)?;
        let known = Arc::new(Known::default());
        let begin = Instant::now();
        let shared = Shared::new(address, socket.own(), now(begin));
        let theirs = known.clone();
        let run = move || serve(&theirs, socket, shared, begin);
        let thread = std::thread::Builder::new().name("warren-shared".to_owned()).spawn(run);
        let thread = Some(thread.map_err(told)?);
        Ok(Self { address, known, thread, begin })
    }

    fn feed(&self) {
        self.known.fed_ns.store(now(self.begin).0, Ordering::Relaxed);
    }

    fn holds(&self) -> bool {
        self.known.holds.load(Ordering::Relaxed)
    }

    fn is_broken(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Whose the address is, if it is a machine's.
    fn stranger(&self) -> Option<String> {
        let number = self.known.stranger.load(Ordering::Relaxed);
        let bytes = number.to_be_bytes();
        let texts: Vec<String> = bytes[2..].iter().map(|byte| format!("{byte:02x}")).collect();
        (number != 0).then(|| texts.join(":"))
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        self.known.has_ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the shared address had panicked");
        }
    }
}

fn now(begin: Instant) -> noise::Instant {
    noise::Instant::ZERO + begin.elapsed() + Duration::from_nanos(1)
}

/// The link on which an address is that this machine does not have itself.
fn lan_of(address: Ipv4Addr, own: &str) -> Result<u32, String> {
    let mut netlink = Netlink::open().map_err(|error| error.to_string())?;
    let all = netlink.addresses().map_err(|error| error.to_string())?;
    let own = netlink.link(own).map_err(|error| error.to_string())?.map(|link| link.index);
    let address = IpAddr::V4(address);
    if all.iter().any(|at| at.address == address) {
        return Err("this machine has it already; a shared address is on no interface".to_owned());
    }
    let holds = |at: &&host::linux::netlink::Address| {
        let network = node::Prefix::new(at.address, at.bits);
        Some(at.link) != own && network.is_some_and(|network| network.contains(address))
    };
    let found = all.iter().filter(holds).max_by_key(|at| at.bits);
    found.map(|at| at.link).ok_or_else(|| "it is in no network of this machine".to_owned())
}

/// The thread.
fn serve(known: &Known, mut socket: Socket, mut shared: Shared, begin: Instant) {
    let mut memory = [0; HEARD_LEN_MAX];
    let order = Ordering::Relaxed;
    while !known.has_ended.load(order) {
        let at = now(begin);
        let fed = known.fed_ns.load(order);
        shared.set_fit(fed != 0 && at.since(noise::Instant(fed)) < FED_WITHIN, at);
        while let Some(out) = shared.poll(at) {
            send(&socket, &out);
        }
        known.holds.store(shared.holds(), order);
        let stranger = shared
            .stranger()
            .map_or(0, |mac| mac.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)));
        known.stranger.store(stranger, order);
        match socket.receive(&mut memory, LOOK_EVERY) {
            Ok(Some(len)) => {
                if let Some(out) = shared.handle(&memory[..len], now(begin)) {
                    send(&socket, &out);
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::debug!("the shared address: {error}");
                break;
            }
        }
    }
    known.holds.store(false, order);
}

/// What is not sent now is said again soon; why, the next look at the socket tells.
fn send(socket: &Socket, out: &Out) {
    let _ = socket.send(&out.message, out.to);
}

impl Daemon {
    /// Shares the address that the settings want, while this gateway is of use.
    pub(crate) fn keep_sharing(&mut self) -> Result<(), Fault> {
        let wanted = self.state.kept.settings.shared_address;
        let is_due = self.sharing_tried.is_none_or(|at| at.elapsed() >= AGAIN);
        let known = self.sharing.as_ref().filter(|sharing| !sharing.is_broken() || !is_due);
        if known.map(|sharing| sharing.address) != wanted {
            self.sharing = None;
            if let Some(address) = wanted.filter(|_| is_due) {
                self.sharing_tried = Some(Instant::now());
                match Sharing::start(address, self.interface.name()) {
                    Ok(sharing) => (self.sharing, self.sharing_why) = (Some(sharing), None),
                    Err(why) => self.sharing_why = Some(why),
                }
            }
        }
        if let Some(sharing) = self.sharing.as_ref().filter(|_| self.is_fit()) {
            sharing.feed();
        }
        let holds = self.sharing.as_ref().is_some_and(Sharing::holds);
        if holds != std::mem::replace(&mut self.sharing_told, holds) {
            tracing::info!(holds, "the address that this gateway shares");
            return self.report();
        }
        Ok(())
    }

    /// Whether what machines of the LAN send here would be passed on.
    fn is_fit(&self) -> bool {
        let Some(map) = &self.map else { return false };
        let settings = &self.state.kept.settings;
        let is_ready = self.gate.ready(&map.me.routes, settings).next().is_some();
        map.me.approved && is_ready && self.lan.down().is_empty()
    }

    /// The routes that lead to the LAN through the other gateway now.
    pub(crate) fn stood_by(&self) -> Vec<Prefix> {
        let settings = &self.state.kept.settings;
        let holds = self.sharing.as_ref().is_some_and(Sharing::holds);
        if settings.shared_address.is_none() || holds {
            return Vec::new();
        }
        settings.advertise_routes.iter().map(crate::Offer::route).collect()
    }

    /// What is wrong with the shared address.
    pub(crate) fn sharing_trouble(&self) -> Option<String> {
        let address = self.state.kept.settings.shared_address?;
        let sharing = self.sharing.as_ref();
        let stranger = sharing.and_then(Sharing::stranger).map(|mac| {
            format!("it is the address of a machine, {mac}; choose one that nobody has")
        });
        let why = stranger.or_else(|| self.sharing_why.clone())?;
        Some(format!("the shared address {address} is not served here: {why}"))
    }

    /// For `status --json`.
    pub(crate) fn shown_sharing(&self) -> Value {
        let Some(sharing) = &self.sharing else { return Value::Null };
        json!({ "address": sharing.address, "holds": sharing.holds() })
    }
}
