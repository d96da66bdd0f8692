//! A port of the gateway that leads to ours, where the gateway gives one: by PCP, NAT-PMP or
//! UPnP-IGD. Only the gateway of the default route is asked, for our own port, for an hour at a
//! time; the mapping is renewed at half of its life and given back on the way out. It is published
//! as one more place where this node may be reached, and believed by nobody who has not had an
//! answer from there.
//!
//! All of it happens on a thread of its own: a gateway may be slow, or not answer at all.

mod ask;
mod between;
mod judge;

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use host::linux::netlink::{MAIN_TABLE, Netlink};
use node::Prefix;

use ask::Held;

/// A gateway that gave nothing is asked again after so long,
const AGAIN: Duration = Duration::from_secs(300);
/// and one whose mapping could not be renewed after so long.
const AGAIN_LOST: Duration = Duration::from_secs(60);
/// Changes of the network are heeded so often.
const CHANGED_GAP: Duration = Duration::from_secs(5);
/// How long an end waits for the mapping to be given back.
const RELEASE_WITHIN: Duration = Duration::from_secs(2);

/// What is wanted of which gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wish {
    pub(crate) gateway: Ipv4Addr,
    pub(crate) port: NonZeroU16,
    pub(crate) overlay: Vec<Prefix>,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Mapping {
    /// The gateway leads what comes to `external` to us.
    Held { gateway: Ipv4Addr, protocol: &'static str, external: SocketAddr, until: Instant },
    /// It does not, and why.
    None { gateway: Ipv4Addr, why: String },
}

/// The thread that asks. It gives back what it holds when this is dropped.
#[derive(Debug)]
pub(crate) struct Ports {
    slot: Arc<Mutex<Slot>>,
    /// Rings when the slot changed; its end is the thread's.
    bell: Option<SyncSender<()>>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
}

#[derive(Debug, Default)]
struct Slot {
    wish: Option<Wish>,
    /// The network is another one, though the wish may be the same.
    is_changed: bool,
}

impl Ports {
    /// Starts a thread that wants nothing yet; `tell` hears of every change, on that thread.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub(crate) fn start(tell: impl Fn(Option<Mapping>) + Send + 'static) -> std::io::Result<Self> {
        let slot = Arc::new(Mutex::new(Slot::default()));
        let (bell, rung) = sync_channel(1);
        let (end, ended) = sync_channel(0);
        let theirs = Arc::clone(&slot);
        thread::Builder::new().name("warren-ports".to_owned()).spawn(move || {
            let mut keeper = Keeper { wish: None, held: None, due: None, asked: None, tell };
            while let Some(news) = wait(&rung, keeper.due) {
                if news {
                    keeper.take(std::mem::take(&mut *lock(&theirs)));
                }
                keeper.turn();
            }
            keeper.release();
            drop(end);
        })?;
        Ok(Self { slot, bell: Some(bell), ended })
    }

    pub(crate) fn want(&self, wish: Option<Wish>, is_changed: bool) {
        {
            let mut slot = lock(&self.slot);
            slot.wish = wish;
            slot.is_changed |= is_changed;
        }
        // A bell that rings already is enough.
        let _ = self.bell.as_ref().map(|bell| bell.try_send(()));
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        self.bell = None;
        // A gateway that hangs must not hold up the end; the mapping then ends by itself.
        let _ = self.ended.recv_timeout(RELEASE_WITHIN);
    }
}

/// Whether the bell rang (`Some(true)`) or the time came; `None` at the end.
fn wait(rung: &Receiver<()>, due: Option<Instant>) -> Option<bool> {
    let Some(due) = due else { return rung.recv().ok().map(|()| true) };
    match rung.recv_timeout(due.saturating_duration_since(Instant::now())) {
        Ok(()) => Some(true),
        Err(RecvTimeoutError::Timeout) => Some(false),
        Err(RecvTimeoutError::Disconnected) => None,
    }
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the thread works with.
struct Keeper<T> {
    wish: Option<Wish>,
    held: Option<Held>,
    due: Option<Instant>,
    asked: Option<Instant>,
    tell: T,
}

impl<T: Fn(Option<Mapping>)> Keeper<T> {
    fn take(&mut self, slot: Slot) {
        let now = Instant::now();
        if slot.wish != self.wish {
            self.release();
            self.wish = slot.wish;
            self.due = Some(now);
        } else if slot.is_changed && self.wish.is_some() {
            let ready = self.asked.map_or(now, |at| (at + CHANGED_GAP).max(now));
            self.due = Some(self.due.map_or(ready, |due| due.min(ready)));
        }
    }

    fn turn(&mut self) {
        let now = Instant::now();
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = None;
        let Some(wish) = &self.wish else { return (self.tell)(None) };
        let gateway = wish.gateway;
        let again = if self.held.is_some() { AGAIN_LOST } else { AGAIN };
        let outcome = match self.held.take() {
            Some(held) => held.renew(&wish.overlay),
            None => Held::open(gateway, wish.port, &wish.overlay),
        };
        let now = Instant::now();
        self.asked = Some(now);
        let mapping = match outcome {
            Ok(held) => {
                let protocol = held.protocol();
                let external = held.external();
                let until = now + held.lifetime();
                self.due = Some(now + held.lifetime() / 2);
                tracing::debug!(protocol, "the gateway maps a port");
                self.held = Some(held);
                Mapping::Held { gateway, protocol, external, until }
            }
            Err(why) => {
                tracing::debug!("no port of the gateway: {why}");
                self.due = Some(now + again);
                Mapping::None { gateway, why }
            }
        };
        (self.tell)(Some(mapping));
    }

    fn release(&mut self) {
        if let Some(held) = self.held.take() {
            held.release();
        }
    }
}

/// The gateway of the default route for IPv4, other than through our `own` interface.
pub(crate) fn gateway(own: &str) -> Option<Ipv4Addr> {
    let mut netlink = Netlink::open().ok()?;
    let own = netlink.link(own).ok()?.map_or(0, |link| link.index);
    let routes = netlink.routes().ok()?.into_iter().filter(|route| {
        let to = route.destination;
        let is_default = to.bits() == 0 && to.address().is_ipv4();
        is_default && route.table == MAIN_TABLE && route.link != own
    });
    match routes.min_by_key(|route| route.metric.unwrap_or(0))?.gateway? {
        std::net::IpAddr::V4(gateway) => Some(gateway),
        std::net::IpAddr::V6(_) => None,
    }
}
