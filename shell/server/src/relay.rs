//! The relay: streams of nodes that no UDP reaches, and the switch between them.
//!
//! The life of one connection: a node asks for `GET /relay` with `Upgrade: warren-relay`; it is
//! answered 101 and the stream is taken from the HTTP library ([`upgrade`]). In it the node proves
//! its WireGuard key within ten seconds ([`connection`]), and from then on frames go in and out,
//! driven by one task that holds the socket and TLS ([`stream`]), with no lock held while either
//! is used. Where UDP passes the same is said on a connection of QUIC ([`quic`], behind [`door`]),
//! and frames travel in datagrams.
//!
//! All connections share one switch behind one lock. A reader takes the lock once for all frames
//! that it read, a writer once for all that it is about to write. A task sleeps until its socket
//! or its place in the switch wakes it.
//!
//! Once in a while [`sweep`] cuts who accepts nothing for two seconds, who was silent for a minute,
//! and, at once when the books change, who is no member any more (threat RL-01).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::{Duration, Instant as SystemInstant};

use carrier::switch::{Admitted, Counters, Refusal};
use carrier::{ConnectionId, Switch};
use http_body_util::Full;
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Version};
use noise::{Instant, PrivateKey, PublicKey};
use tokio::sync::{Semaphore, watch};
use wire::relay::Notice;

use crate::held::held;

mod alone;
mod connection;
mod door;
mod place;
mod quic;
mod strangers;
mod stream;

pub use alone::{RelayConfig, RelayServer};
pub(crate) use door::{Door, QuicCounts};

use self::door::Seen;
use self::strangers::Strangers;

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
    /// Places for the proofs of those who have proven nothing, each of which costs a thread.
    proofs: Arc<Semaphore>,
    started: SystemInstant,
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
            proofs: Arc::new(Semaphore::new(PROOFS_MAX)),
            started: SystemInstant::now(),
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
}

/// Answers a request for [`control::relay::PATH`]: 101 with the stream taken over, or why not.
pub(crate) fn upgrade(relay: &Arc<Relay>, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
    if let Err(status) = check_request(&request) {
        let mut refused = Response::new(Full::default());
        *refused.status_mut() = status;
        if status == StatusCode::UPGRADE_REQUIRED {
            let protocol = HeaderValue::from_static(control::relay::PROTOCOL);
            refused.headers_mut().insert(header::UPGRADE, protocol);
        }
        refused.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        return refused;
    }
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(connection::serve(Arc::clone(relay), upgraded));
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fields = answer.headers_mut();
    fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    fields.insert(header::UPGRADE, HeaderValue::from_static(control::relay::PROTOCOL));
    answer
}

/// Only what a node says word by word is taken, and nothing that a page can make a browser send
/// (threat RL-16).
fn check_request(request: &Request<Incoming>) -> Result<(), StatusCode> {
    let fields = request.headers();
    if request.method() != Method::GET {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    if fields.contains_key(header::ORIGIN) {
        return Err(StatusCode::FORBIDDEN);
    }
    let says = |name, word| has_only(fields, name, word);
    let asks =
        says(header::UPGRADE, control::relay::PROTOCOL) && says(header::CONNECTION, "upgrade");
    if request.version() != Version::HTTP_11 || !asks {
        return Err(StatusCode::UPGRADE_REQUIRED);
    }
    if !request.body().is_end_stream() {
        return Err(StatusCode::BAD_REQUEST);
    }
    Ok(())
}

fn has_only(fields: &HeaderMap, name: header::HeaderName, word: &str) -> bool {
    let mut values = fields.get_all(name).iter();
    let first = values.next().and_then(|value| value.to_str().ok());
    first.is_some_and(|value| value.eq_ignore_ascii_case(word)) && values.next().is_none()
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
