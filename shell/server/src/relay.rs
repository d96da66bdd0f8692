//! The relay: streams of nodes that no UDP reaches, and the switch between them.
//!
//! The life of one connection: a node asks for `GET /relay` with `Upgrade: warren-relay`, or with
//! `websocket` behind proxies that pass nothing else; it is answered 101 and the stream is taken
//! from the HTTP library ([`upgrade()`]). In it the node proves
//! its WireGuard key within ten seconds ([`connection`]), and from then on frames go in and out,
//! driven by one task that holds the socket and TLS ([`stream`]), with no lock held while either
//! is used. Where UDP passes the same is said on a connection of QUIC ([`quic`], behind [`door`]),
//! and frames travel in datagrams; where nothing but ping does, in echoes ([`ping`]).
//!
//! All connections share one switch behind one lock. A reader takes the lock once for all frames
//! that it read, a writer once for all that it is about to write. A task sleeps until its socket
//! or its place in the switch wakes it.
//!
//! Once in a while [`sweep`] cuts who accepts nothing for two seconds, who was silent for a minute,
//! and, at once when the books change, who is no member any more (threat RL-01).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::{Duration, Instant as SystemInstant};

use carrier::switch::{Admitted, Counters, Refusal};
use carrier::{ConnectionId, Switch};
use noise::{Instant, PrivateKey, PublicKey};
use tokio::sync::{Semaphore, watch};
use wire::relay::Notice;

use crate::held::held;

mod alone;
mod connection;
mod door;
mod ping;
mod place;
mod quic;
mod strangers;
mod stream;
mod upgrade;
mod way;

pub use alone::{RelayConfig, RelayServer};
pub(crate) use door::Door;
pub use door::IcmpAt;
pub(crate) use upgrade::upgrade;
pub(crate) use way::{Pipe, Pipes, QuicCounts};

use self::ping::PingSocket;
use self::strangers::Strangers;
use self::way::Seen;

/// A connection that takes nothing for so long, while something waits for it, is cut.
const WRITE_WITHIN: Duration = Duration::from_secs(2);
/// How often [`sweep`] looks, and at most how often after changes of the books.
const SWEEP_EVERY: Duration = Duration::from_millis(500);
const CHANGES_APART: Duration = Duration::from_millis(50);
/// Proofs of keys that are judged at once.
const PROOFS_MAX: usize = 4;
/// The clock of the switch begins here, so that nothing is earlier.
const CLOCK_START: Duration = Duration::from_secs(1 << 20);

/// Who may use a relay, and who may know of whom.
pub(crate) trait Members: Send + Sync + 'static {
    /// The WireGuard keys of all current members.
    fn keys(&self) -> BTreeSet<PublicKey>;
    /// Whether this is one of them.
    fn is_member(&self, key: &PublicKey) -> bool;
    /// Whether `one` may know if `other` is here (threat RL-08).
    fn may_know(&self, one: &PublicKey, other: &PublicKey) -> bool;
}

/// What the tasks of all connections share.
pub(crate) struct Relay {
    key: PrivateKey,
    members: Box<dyn Members>,
    floor: Mutex<Floor>,
    /// Connections over HTTPS without a proven key.
    strangers: Arc<Strangers>,
    by_quic: Seen,
    by_ping: Seen,
    /// Sockets of pings, at most one of a family.
    pings: Mutex<Vec<Arc<PingSocket>>>,
    /// Places for the proofs of those who have proven nothing, each of which costs a thread.
    proofs: Arc<Semaphore>,
    started: SystemInstant,
    /// It was told that a proxy passes no upgrade.
    told_of_proxy: AtomicBool,
}

/// The switch, and for each of its connections the task that serves it.
#[derive(Default)]
struct Floor {
    switch: Switch,
    ports: BTreeMap<ConnectionId, Port>,
}

/// What is known here of a connection's task.
#[derive(Default)]
struct Port {
    /// To be woken when something waits, or the connection is to be cut.
    waker: Option<Waker>,
    /// The connection is to be cut, and told why.
    cut: Option<Option<Notice>>,
    /// Since when the socket takes nothing.
    blocked: Option<Instant>,
}

impl Port {
    fn cut(&mut self, why: Option<Notice>) {
        self.cut = Some(why);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Relay {
    pub(crate) fn new(key: PrivateKey, members: Box<dyn Members>) -> Arc<Self> {
        Arc::new(Self {
            key,
            members,
            floor: Mutex::default(),
            strangers: Arc::default(),
            by_quic: Seen::default(),
            by_ping: Seen::default(),
            pings: Mutex::default(),
            proofs: Arc::new(Semaphore::new(PROOFS_MAX)),
            started: SystemInstant::now(),
            told_of_proxy: AtomicBool::new(false),
        })
    }

    fn now(&self) -> Instant {
        Instant::ZERO.after(CLOCK_START + self.started.elapsed())
    }

    /// Takes a connection whose key was proven. The one that it replaces is cut.
    fn admit(&self, key: PublicKey) -> Result<ConnectionId, Notice> {
        let now = self.now();
        let mut floor = held(&self.floor);
        match floor.switch.admit(key, now) {
            Ok(Admitted { id, replaced }) => {
                if let Some(port) = replaced.and_then(|old| floor.ports.get_mut(&old)) {
                    port.cut(Some(Notice::Replaced));
                }
                floor.ports.insert(id, Port::default());
                drop(floor);
                // It may have been removed since it was judged, before anyone could cut it.
                if self.members.is_member(&key) {
                    return Ok(id);
                }
                self.leave(id);
                Err(Notice::NotMember)
            }
            Err(Refusal::Full) => Err(Notice::Full),
            Err(Refusal::Quarantined(old)) => {
                if let Some(port) = old.and_then(|old| floor.ports.get_mut(&old)) {
                    port.cut(Some(Notice::Quarantined));
                }
                drop(floor);
                tracing::warn!(%key, "two machines use one key in turns: refused for a minute");
                Err(Notice::Quarantined)
            }
        }
    }

    fn leave(&self, id: ConnectionId) {
        let mut floor = held(&self.floor);
        floor.switch.remove(id);
        floor.ports.remove(&id);
    }

    /// Cuts who is no member any more.
    fn check(&self) {
        let members = self.members.keys();
        let mut floor = held(&self.floor);
        let gone = floor.switch.keys().filter(|(key, _)| !members.contains(*key));
        let gone: Vec<ConnectionId> = gone.map(|(_, id)| id).collect();
        for id in gone {
            floor.switch.remove(id);
            if let Some(port) = floor.ports.get_mut(&id) {
                port.cut(Some(Notice::NotMember));
            }
        }
    }

    /// Cuts who takes nothing, and who says nothing.
    fn look(&self) {
        let now = self.now();
        let mut floor = held(&self.floor);
        for id in floor.switch.handle_timeout(now) {
            if let Some(port) = floor.ports.get_mut(&id) {
                port.cut(None);
            }
        }
        let Floor { switch, ports } = &mut *floor;
        for (id, port) in ports {
            if port.blocked.is_some_and(|since| since.is_older_than(WRITE_WITHIN, now)) {
                switch.remove(*id);
                port.cut(None);
            }
        }
    }

    /// What came by ping, if pings are answered.
    fn icmp_counts(&self) -> Option<(QuicCounts, Pings)> {
        let sockets = held(&self.pings);
        if sockets.is_empty() {
            return None;
        }
        let mut sum = carrier::icmp::ResponderCounters::default();
        let mut refused = 0;
        for (of, full) in sockets.iter().map(|socket| socket.counters()) {
            sum.requests += of.requests;
            sum.replies += of.replies;
            sum.malformed += of.malformed;
            sum.duplicates += of.duplicates;
            sum.stale += of.stale + of.overflow + of.unasked;
            sum.crowded += of.crowded;
            refused += full;
        }
        let dropped = [
            ("malformed", sum.malformed),
            ("again", sum.duplicates),
            ("no-request", sum.stale),
            ("no-place", sum.crowded),
            ("no-room", refused),
        ];
        let pings = Pings { requests: sum.requests, replies: sum.replies, dropped };
        Some((self.by_ping.counts(), pings))
    }

    /// What there is, and what was counted.
    pub(crate) fn counts(&self) -> Counts {
        let strangers = self.strangers.len();
        let floor = held(&self.floor);
        Counts {
            connections: floor.switch.len(),
            strangers,
            queued_bytes: floor.switch.queued_bytes(),
            counters: *floor.switch.counters(),
            quic: self.by_quic.counts(),
            icmp: self.icmp_counts(),
        }
    }
}

/// What a monitor is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) connections: usize,
    pub(crate) strangers: usize,
    pub(crate) queued_bytes: usize,
    pub(crate) counters: Counters,
    pub(crate) quic: QuicCounts,
    /// The same by ping, and requests by reason that were not answered with a datagram.
    pub(crate) icmp: Option<(QuicCounts, Pings)>,
}

/// What became of pings that were ours.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pings {
    pub(crate) requests: u64,
    pub(crate) replies: u64,
    /// What was dropped, by reason.
    pub(crate) dropped: [(&'static str, u64); 5],
}

/// Regular work, and what changes of the books want, until the task is dropped.
pub(crate) async fn sweep(relay: Arc<Relay>, mut changes: watch::Receiver<u64>) {
    loop {
        let changed = tokio::time::timeout(SWEEP_EVERY, changes.changed()).await;
        if matches!(changed, Ok(Ok(()))) {
            relay.check();
            tokio::time::sleep(CHANGES_APART).await;
        }
        relay.look();
    }
}
