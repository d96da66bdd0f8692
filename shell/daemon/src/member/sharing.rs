//! What this gateway shares with its pair's other one: an address of their LAN, or at a cloud the
//! routes that lead machines to one of both. The decision is [`routes::shared`]'s; here is a thread
//! that asks it, and what the daemon knows of it.
//!
//! On a LAN the two hear each other by ARP, as machines do, and so they do at OpenStack. AWS and
//! Azure have none that gateways could speak, so there the same messages go in datagrams from one's
//! address in the site to the other's, which the cloud lets nobody else use.
//!
//! A holder that reaches no other site any more, though it sends, leaves what it holds to the other
//! gateway ([`routes::outward`]).
//!
//! Who stands by says of its routes that they lead nowhere now. So others send through the one
//! that the machines send through, too, and both directions of a connection meet one filter.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clouds::Lead;
use control::Prefix;
use host::linux::arp::Socket;
use host::linux::netlink::Netlink;
use noise::PublicKey;
use routes::outward::{Outward, Paths};
use routes::shared::{Mac, Out, Shared};
use serde_json::{Value, json};

use super::{Daemon, Fault};
use crate::failover::{Seen, ask};
use crate::leading::Leading;
use crate::plan;

/// How long the daemon's loop may be busy before it is taken for dead.
const FED_WITHIN: Duration = Duration::from_secs(3);
/// How often the thread looks at the time.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// After what failed, another try.
const AGAIN: Duration = Duration::from_secs(1);
/// Bytes of a message that are read: it is padded to Ethernet's least.
const HEARD_LEN_MAX: usize = 64;
/// Where gateways of a pair at a cloud hear each other.
const PAIR_PORT: u16 = 41_821;
/// Who leaves the routes to the other gateway wants them again after so long, if it is silent.
const WAY_FOR: Duration = Duration::from_secs(10);

/// What is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// An address of the LAN.
    Address(Ipv4Addr),
    /// Routes at a cloud.
    Routes(Lead),
}

/// How the two gateways hear each other.
#[derive(Debug)]
enum Line {
    Lan(Socket),
    Pair(UdpSocket),
}

impl Line {
    /// Sends a message. What is not sent now is said again soon.
    fn send(&self, out: &Out) {
        let _ = match self {
            Self::Lan(socket) => socket.send(&out.message, out.to),
            Self::Pair(socket) => socket.send(&out.message).map(drop),
        };
    }

    fn receive(&mut self, memory: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Self::Lan(socket) => socket.receive(memory, LOOK_EVERY),
            Self::Pair(socket) => match socket.recv(memory) {
                Ok(len) => Ok(Some(len)),
                // Nobody is at the other end now, and that is what is to be found out.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(None),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                Err(error) => {
                    tracing::debug!("the pair's other gateway: {error}");
                    std::thread::sleep(LOOK_EVERY);
                    Ok(None)
                }
            },
        }
    }
}

/// What the thread and the daemon tell each other.
#[derive(Debug, Default)]
struct Known {
    has_ended: AtomicBool,
    /// Whether the holder is to leave what it holds, since it reaches no other site.
    gives_way: AtomicBool,
    /// When the daemon said last that this gateway is of use, in nanoseconds; 0 is never.
    fed_ns: AtomicU64,
    holds: AtomicBool,
    /// Who has the address already, as a number; 0 is nobody.
    stranger: AtomicU64,
}

/// A gateway's part in sharing something.
#[derive(Debug)]
pub(crate) struct Sharing {
    what: What,
    known: Arc<Known>,
    leading: Option<Arc<Leading>>,
    thread: Option<JoinHandle<()>>,
    begin: Instant,
    outward: Outward,
    /// What was sent to gateways of other sites.
    sent: BTreeMap<PublicKey, u64>,
}

impl Sharing {
    /// Begins; `own` is the interface of the network.
    fn start(what: What, own: &str) -> Result<Self, String> {
        let begin = Instant::now();
        let (line, shared) = match &what {
            What::Address(address) => on_lan(*address, own, now(begin))?,
            What::Routes(lead) => in_pair(lead, now(begin))?,
        };
        let leading = match &what {
            What::Address(_) => None,
            What::Routes(lead) => Some(Leading::start(lead)?),
        };
        let known = Arc::new(Known::default());
        let theirs = known.clone();
        let led = leading.clone();
        let run = move || serve(&theirs, line, shared, led.as_deref(), begin);
        let thread = std::thread::Builder::new().name("warren-shared".to_owned()).spawn(run);
        let thread = Some(thread.map_err(|error| error.to_string())?);
        let outward = Outward::new(now(begin));
        Ok(Self { what, known, leading, thread, begin, outward, sent: BTreeMap::new() })
    }

    /// Looks at the paths to other sites; without one that answers to what is sent the holder
    /// gives way.
    fn look_out(&mut self, keys: &[PublicKey], seen: &[Seen]) {
        let before = std::mem::take(&mut self.sent);
        self.sent = keys.iter().copied().zip(seen.iter().map(|seen| seen.tx_bytes)).collect();
        let grew = |key: &PublicKey| before.get(key).is_some_and(|b| self.sent.get(key) > Some(b));
        let paths = match seen.iter().any(|seen| seen.path.is_some()) {
            true => Paths::Answer,
            false if keys.iter().any(grew) => Paths::Silent,
            false => Paths::Quiet,
        };
        if self.outward.handle(paths, now(self.begin)) {
            tracing::warn!("no other site answers: the pair's other gateway may reach them");
            self.known.gives_way.store(true, Ordering::Relaxed);
        }
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

    /// Why it does not do its part.
    fn why(&self) -> Option<String> {
        match &self.leading {
            Some(leading) => leading.why(),
            None => self.stranger().map(|mac| {
                format!("it is the address of a machine, {mac}; choose one that nobody has")
            }),
        }
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
        if let Some(leading) = &self.leading {
            leading.end();
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of what a pair shares had panicked");
        }
    }
}

fn now(begin: Instant) -> noise::Instant {
    noise::Instant::ZERO + begin.elapsed() + Duration::from_nanos(1)
}

/// The way to the other gateway of a LAN, on the link whose network has the address.
fn on_lan(address: Ipv4Addr, own: &str, at: noise::Instant) -> Result<(Line, Shared), String> {
    let link = lan_of(address, own)?;
    let socket = Socket::open(link).map_err(|error| error.to_string())?;
    let shared = Shared::new(address, socket.own(), at);
    Ok((Line::Lan(socket), shared))
}

/// The way to the other gateway of a pair at a cloud. What they share bears the lower of both
/// addresses as its name.
fn in_pair(lead: &Lead, at: noise::Instant) -> Result<(Line, Shared), String> {
    let [own, other] = lead.pair();
    let told = |error: io::Error| format!("UDP from {own} to {other}: {error}");
    let socket = UdpSocket::bind((own, PAIR_PORT)).map_err(told)?;
    // Whoever else sends something is not heard.
    socket.connect((other, PAIR_PORT)).map_err(told)?;
    socket.set_read_timeout(Some(LOOK_EVERY)).map_err(told)?;
    let shared = Shared::new(own.min(other), stand_in(own), at);
    Ok((Line::Pair(socket), shared))
}

/// What stands for an address of Ethernet where there is none. Where both gateways hold something,
/// the first one of the pair stays, which has the higher address.
fn stand_in(address: Ipv4Addr) -> Mac {
    let [a, b, c, d] = address.octets().map(|byte| !byte);
    [2, 0, a, b, c, d]
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
fn serve(
    known: &Known,
    mut line: Line,
    mut shared: Shared,
    leading: Option<&Leading>,
    begin: Instant,
) {
    let mut memory = [0; HEARD_LEN_MAX];
    let order = Ordering::Relaxed;
    while !known.has_ended.load(order) {
        let at = now(begin);
        let fed = known.fed_ns.load(order);
        shared.set_fit(fed != 0 && at.since(noise::Instant(fed)) < FED_WITHIN, at);
        while let Some(out) = shared.poll(at) {
            line.send(&out);
        }
        let is_led_away = leading.is_some_and(Leading::take_way);
        if known.gives_way.swap(false, order) || is_led_away {
            tracing::info!("this gateway leaves what it shares to the pair's other one");
            shared.give_way(WAY_FOR, at);
        }
        if let Some(leading) = leading {
            leading.set_holds(shared.holds());
        }
        known.holds.store(shared.holds(), order);
        let stranger = shared
            .stranger()
            .map_or(0, |mac| mac.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)));
        known.stranger.store(stranger, order);
        match line.receive(&mut memory) {
            Ok(Some(len)) => {
                if let Some(out) = shared.handle(&memory[..len], now(begin)) {
                    line.send(&out);
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

impl Daemon {
    /// What the settings want to be shared.
    fn to_share(&self) -> Option<What> {
        let settings = &self.state.kept.settings;
        let routes = settings.shared_routes.clone().map(What::Routes);
        settings.shared_address.map(What::Address).or(routes)
    }

    /// Shares what the settings want, while this gateway is of use.
    pub(crate) fn keep_sharing(&mut self) -> Result<(), Fault> {
        let wanted = self.to_share();
        let is_due = self.sharing_tried.is_none_or(|at| at.elapsed() >= AGAIN);
        let known = self.sharing.as_ref().filter(|sharing| !sharing.is_broken() || !is_due);
        if known.map(|sharing| &sharing.what) != wanted.as_ref() {
            self.sharing = None;
            if let Some(what) = wanted.filter(|_| is_due) {
                self.sharing_tried = Some(Instant::now());
                match Sharing::start(what, self.interface.name()) {
                    Ok(sharing) => (self.sharing, self.sharing_why) = (Some(sharing), None),
                    Err(why) => self.sharing_why = Some(why),
                }
            }
        }
        if let Some(sharing) = self.sharing.as_ref().filter(|_| self.is_fit()) {
            sharing.feed();
        }
        self.look_out()?;
        let holds = self.sharing.as_ref().is_some_and(Sharing::holds);
        if holds != std::mem::replace(&mut self.sharing_told, holds) {
            tracing::info!(holds, "what this gateway shares with its pair's other one");
            return self.report();
        }
        Ok(())
    }

    /// Has the holder look whether any other site answers.
    fn look_out(&mut self) -> Result<(), Fault> {
        let Some(map) = &self.map else { return Ok(()) };
        let held = self.sharing.as_mut().filter(|sharing| sharing.holds());
        let Some(sharing) = held else { return Ok(()) };
        let keys: Vec<PublicKey> = plan::elsewhere(map).map(|peer| peer.key).collect();
        let asked = keys.clone();
        let (_, seen) = self.remote.call(move |desk| ask(desk, &asked))?;
        sharing.look_out(&keys, &seen);
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
        let holds = self.sharing.as_ref().is_some_and(Sharing::holds);
        if self.to_share().is_none() || holds {
            return Vec::new();
        }
        let settings = &self.state.kept.settings;
        settings.advertise_routes.iter().map(crate::Offer::route).collect()
    }

    /// What is wrong with what is shared.
    pub(crate) fn sharing_trouble(&self) -> Option<String> {
        let what = self.to_share()?;
        let why = self.sharing.as_ref().and_then(Sharing::why);
        let why = why.or_else(|| self.sharing_why.clone())?;
        Some(match what {
            What::Address(address) => {
                format!("the shared address {address} is not served here: {why}")
            }
            What::Routes(_) => {
                format!("this gateway cannot set the routes of its site's machines: {why}")
            }
        })
    }

    /// For `status --json`.
    pub(crate) fn shown_sharing(&self) -> Value {
        let Some(sharing) = &self.sharing else { return Value::Null };
        let holds = sharing.holds();
        match (&sharing.what, &sharing.leading) {
            (What::Address(address), _) => json!({ "address": address, "holds": holds }),
            (What::Routes(lead), leading) => {
                let leads = leading.as_ref().is_some_and(|leading| leading.is_set());
                json!({ "routes": lead.to_string(), "holds": holds, "leads": leads })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_001_14_of_two_that_hold_the_routes_the_first_one_stays() {
        let pair = [Ipv4Addr::new(10, 1, 0, 254), Ipv4Addr::new(10, 1, 0, 253)];
        let [first, second] = pair.map(stand_in);
        assert!(first < second, "the higher one yields: {first:?} {second:?}");
    }
}
