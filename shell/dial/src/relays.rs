//! Streams to the relays of a map, kept: a thread for each relay connects, hands over, waits for
//! the end of the stream, and connects again, with [`control::patience`].
//!
//! A relay that answers QUIC is dialled by QUIC and HTTPS at once (`race`). If HTTPS was the
//! quicker one, or QUIC ended, a connection by HTTPS carries on, and QUIC is tried again after
//! pauses that grow (`tries`); when it answers, it takes over. Where neither answers and pings do,
//! a connection by ping carries on, and both others are tried again beside it. What is tried beside
//! a stream has a thread of its own: when the stream ends meanwhile, another one is sought at once.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use control::Relay;
use control::patience::Patience;
use control::relay::Refused;
use noise::PrivateKey;
use wire::relay::Notice;

use crate::SystemRandom;
use crate::pings::Pings;
use crate::proxy::Proxies;
use crate::random::since;
use crate::relay::{
    Admitted, Claim, Failed, Way, Ways, connect, connect_quic_if, race_by, race_if,
};

mod tries;

use self::tries::Tries;

/// Relays to which streams are kept, at most: the first ones of the map.
pub const RELAYS_MAX: usize = 8;
/// A stream that lasted so long was a good one: the pauses begin anew.
const GOOD_AFTER: Duration = Duration::from_secs(5);
/// Beside a stream by ping something better is tried this often at least.
const BETTER_EVERY: Duration = Duration::from_secs(40);
/// Orders that wait for a thread; more of them say nothing new.
const ORDERS_MAX: usize = 4;

/// What is called when a stream has ended, on any thread, with what the relay said of it last, if
/// that was the reason; it does not wait.
pub type OnEnd = Box<dyn FnOnce(Option<Notice>) + Send>;

/// Where connected streams go: the node's loop, which drives them from then on.
pub trait Hand: Send + Sync + 'static {
    /// Takes a stream, in place of one to the same relay. When it has ended, `on_end` is called
    /// once.
    ///
    /// # Errors
    /// If the stream is not taken; `on_end` is then not called.
    fn set_relay(&self, relay: u32, admitted: Admitted, on_end: OnEnd) -> io::Result<()>;

    /// The network has changed: the stream ends soon if it no longer answers.
    fn check_relay(&self, relay: u32);

    /// Ends the stream to a relay, if there is one.
    fn remove_relay(&self, relay: u32);
}

/// What is known of one relay.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RelayState {
    /// A stream is with the loop.
    pub is_connected: bool,
    /// Why the latest attempt failed, since the last one that did not.
    pub trouble: Option<String>,
    /// What to change where something in between passes no stream.
    pub mend: Option<String>,
    /// What was tried since it is kept.
    pub tries: Counts,
    /// When it was seen last that another machine uses this node's key: a stream of ours is
    /// replaced by nobody else, since one is kept at a time.
    pub twin: Option<Instant>,
}

/// How often something became of a relay's streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Streams over HTTPS that the loop took.
    pub https: u64,
    /// Streams over QUIC that the loop took.
    pub quic: u64,
    /// Streams by ping that the loop took.
    pub icmp: u64,
    /// Times that QUIC was tried and did not answer, or not before HTTPS did.
    pub quic_unanswered: u64,
    /// Streams over QUIC that broke, and the relay had not said why.
    pub quic_broken: u64,
}

/// Streams to relays. They end when this is dropped.
pub struct Relays {
    hand: Arc<dyn Hand>,
    proxies: Proxies,
    running: BTreeMap<u32, Running>,
}

enum Order {
    /// The stream with this number has ended, and why.
    Ended(u64, Option<Notice>),
    /// The try with this number is over, and what came of it.
    Tried(u64, Option<Admitted>),
    /// The network changed: connect at once, or see whether the stream still answers.
    Changed,
    Stop,
}

struct Running {
    relay: Relay,
    node: PrivateKey,
    orders: SyncSender<Order>,
    state: Arc<Mutex<RelayState>>,
}

/// What a relay's thread works with.
struct Keeper {
    hand: Arc<dyn Hand>,
    proxies: Proxies,
    relay: Relay,
    node: PrivateKey,
    orders: Receiver<Order>,
    /// For closures that report an end.
    own: SyncSender<Order>,
    state: Arc<Mutex<RelayState>>,
    /// How many streams were handed over.
    number: u64,
    /// How many tries were begun beside one.
    tried: u64,
    quic: Tries,
    /// When something better than ping is tried beside it.
    better: Tries,
    /// By which a stream over HTTPS came about the last time.
    way: Way,
    begin: Instant,
}

/// A stream that is with the loop.
struct Current {
    number: u64,
    begin: Instant,
    by: By,
}

/// What is tried beside a stream; it is given up on drop.
struct Try {
    number: u64,
    /// Beside what.
    by: By,
    with_quic: bool,
    claim: Arc<Claim>,
}

impl Drop for Try {
    fn drop(&mut self) {
        let _ = self.claim.take();
    }
}

/// By what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Https,
    Quic,
    Icmp,
}

impl By {
    const fn of(admitted: &Admitted) -> Self {
        match admitted {
            Admitted::Https(_) => Self::Https,
            Admitted::Quic(_) => Self::Quic,
            Admitted::Icmp(_) => Self::Icmp,
        }
    }
}

impl Relays {
    /// Keeps no streams yet.
    #[must_use]
    pub fn new(hand: Arc<dyn Hand>, proxies: Proxies) -> Self {
        Self { hand, proxies, running: BTreeMap::new() }
    }

    /// Keeps streams to these relays, the first [`RELAYS_MAX`] of them, and to no others; `node`
    /// is this node's WireGuard key. What is as before is left alone.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn set(&mut self, relays: &[Relay], node: &PrivateKey) -> io::Result<()> {
        let wanted: BTreeMap<u32, &Relay> =
            relays.iter().take(RELAYS_MAX).map(|relay| (relay.id, relay)).collect();
        self.running.retain(|id, running| {
            let is_same = wanted
                .get(id)
                .is_some_and(|relay| running.relay == **relay && running.node == *node);
            if !is_same {
                let _ = running.orders.try_send(Order::Stop);
            }
            is_same
        });
        for (id, relay) in wanted {
            if !self.running.contains_key(&id) {
                let running = self.start(relay, node)?;
                self.running.insert(id, running);
            }
        }
        Ok(())
    }

    /// The network that we are in has changed: pauses end, and streams that no longer answer.
    pub fn handle_network_change(&self) {
        for running in self.running.values() {
            let _ = running.orders.try_send(Order::Changed);
        }
    }

    /// What is known of each, by its number.
    #[must_use]
    pub fn states(&self) -> BTreeMap<u32, RelayState> {
        self.running.iter().map(|(id, running)| (*id, lock(&running.state).clone())).collect()
    }

    fn start(&self, relay: &Relay, node: &PrivateKey) -> io::Result<Running> {
        let (orders, received) = sync_channel(ORDERS_MAX);
        let state = Arc::new(Mutex::new(RelayState::default()));
        let keeper = Keeper {
            hand: Arc::clone(&self.hand),
            proxies: self.proxies.clone(),
            relay: relay.clone(),
            node: node.clone(),
            orders: received,
            own: orders.clone(),
            state: Arc::clone(&state),
            number: 0,
            tried: 0,
            // A proxy passes on TCP alone.
            quic: Tries::new(relay.quic && self.proxies.proxy(relay.url.host()).is_none()),
            better: Tries::new(true).at_most(BETTER_EVERY),
            way: Way::default(),
            begin: Instant::now(),
        };
        thread::Builder::new().name(format!("relay-{}", relay.id)).spawn(move || keeper.run())?;
        Ok(Running { relay: relay.clone(), node: node.clone(), orders, state })
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        for running in self.running.values() {
            let _ = running.orders.try_send(Order::Stop);
        }
    }
}

impl Keeper {
    fn run(mut self) {
        let mut patience = Patience::default();
        loop {
            let mut begin = Instant::now();
            match self.connect() {
                // What was ordered meanwhile comes first.
                Ok(_) if self.is_stopped() => return,
                Ok(admitted) => match self.serve(admitted) {
                    // Where QUIC broke, HTTPS follows at once.
                    Ok(Ended { by_itself: true, is_quic: true, .. }) => continue,
                    Ok(Ended { lasted, .. }) => {
                        begin = Instant::now();
                        if lasted >= GOOD_AFTER {
                            patience = Patience::default();
                        }
                    }
                    Err(Stopped) => return,
                },
                Err(why) => {
                    if let Failed::Refused(Refused::Verdict(notice)) = &why {
                        self.note_twin(*notice);
                    }
                    self.note(false, Some(why.to_string()));
                    if let Failed::NoUpgrade(why) = &why {
                        lock(&self.state).mend = Some(why.mend());
                    }
                }
            }
            // What an attempt took is a part of the pause behind it.
            let pause = patience.pause(1, since(self.begin), &mut SystemRandom);
            match self.wait(pause.saturating_sub(begin.elapsed())) {
                Some(Order::Stop) => return,
                Some(Order::Changed) => {
                    patience = Patience::default();
                    self.quic.begin_anew();
                    self.better.begin_anew();
                }
                Some(Order::Ended(..) | Order::Tried(..)) | None => {}
            }
        }
    }

    fn connect(&mut self) -> Result<Admitted, Failed> {
        let now = Instant::now();
        let ways = Ways { quic: self.quic.is_due(now), first: self.way, ping: self.ping_after() };
        if !ways.quic && ways.ping.is_none() {
            let connected = connect(&self.relay, &self.node, &self.proxies, self.way)?;
            self.way = connected.way();
            return Ok(Admitted::Https(Box::new(connected)));
        }
        let admitted = race_by(&self.relay, &self.node, &self.proxies, ways)?;
        self.learn(&admitted, ways.quic);
        Ok(admitted)
    }

    /// After how long ping is tried, if it is.
    fn ping_after(&self) -> Option<Duration> {
        let pings = self.proxies.pings(self.relay.url.host()).filter(|_| self.relay.icmp);
        pings.map(Pings::head_start)
    }

    /// Remembers what passed.
    fn learn(&mut self, admitted: &Admitted, tried_quic: bool) {
        if let Admitted::Https(connected) = admitted {
            self.way = connected.way();
        }
        let by = By::of(admitted);
        if tried_quic && by != By::Quic {
            self.put_off_quic();
        }
        if let Some(pings) = self.proxies.pings(self.relay.url.host()) {
            pings.note(by == By::Icmp);
        }
        if by == By::Icmp {
            self.better.put_off(Instant::now());
        }
    }

    /// Gives the stream to the loop and waits for its end, or for that of the one that took over.
    fn serve(&mut self, admitted: Admitted) -> Result<Ended, Stopped> {
        let Some(mut current) = self.hand_over(admitted) else {
            return Ok(Ended { lasted: Duration::ZERO, is_quic: false, by_itself: false });
        };
        let mut trying: Option<Try> = None;
        // It has ended, and why, while what is tried proves the key.
        let mut ended = None;
        let why = loop {
            let left = match current.by {
                _ if trying.is_some() => None,
                By::Quic => None,
                By::Https => self.quic.left(Instant::now()),
                By::Icmp => self.better.left(Instant::now()),
            };
            let order = match left {
                Some(left) => self.orders.recv_timeout(left),
                None => self.orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match order {
                Err(RecvTimeoutError::Timeout) => trying = self.try_better(current.by),
                Ok(Order::Tried(number, admitted)) => {
                    let Some(this) = trying.take_if(|this| this.number == number) else { continue };
                    match self.upgrade(&this, admitted) {
                        Some(next) => {
                            current = next;
                            ended = None;
                        }
                        None if ended.is_some() => break ended.flatten(),
                        None => {}
                    }
                }
                Ok(Order::Ended(which, _)) if which != current.number => {}
                Ok(Order::Ended(_, why)) => match &trying {
                    Some(this) if !this.claim.take() => ended = Some(why),
                    _ => break why,
                },
                Ok(Order::Changed) => {
                    trying = None;
                    self.hand.check_relay(self.relay.id);
                    self.quic.begin_anew();
                    self.better.begin_anew();
                    if current.by == By::Icmp && self.ping_after().is_none() {
                        self.hand.remove_relay(self.relay.id);
                        break None;
                    }
                }
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    self.note(false, None);
                    self.hand.remove_relay(self.relay.id);
                    return Err(Stopped);
                }
            }
        };
        self.note_twin(why);
        self.note(false, None);
        let lasted = current.begin.elapsed();
        let is_quic = current.by == By::Quic;
        if is_quic {
            self.quic.handle_end(lasted, Instant::now());
            lock(&self.state).tries.quic_broken += u64::from(why.is_none());
        }
        Ok(Ended { lasted, is_quic, by_itself: why.is_none() })
    }

    fn hand_over(&mut self, admitted: Admitted) -> Option<Current> {
        self.number += 1;
        let (number, own) = (self.number, self.own.clone());
        let by = By::of(&admitted);
        // A full queue has orders that matter more: the thread wakes anyway.
        let on_end = Box::new(move |why| drop(own.try_send(Order::Ended(number, why))));
        let taken = self.hand.set_relay(self.relay.id, admitted, on_end);
        self.note(taken.is_ok(), taken.as_ref().err().map(ToString::to_string));
        if taken.is_ok() {
            let mut state = lock(&self.state);
            state.tries.quic += u64::from(by == By::Quic);
            state.tries.https += u64::from(by == By::Https);
            state.tries.icmp += u64::from(by == By::Icmp);
        }
        taken.ok().map(|()| Current { number, begin: Instant::now(), by })
    }

    /// Begins to try QUIC beside a stream of HTTPS that works, and both beside one by ping.
    fn try_better(&mut self, by: By) -> Option<Try> {
        self.tried += 1;
        let with_quic = by != By::Icmp || self.quic.is_due(Instant::now());
        let this = Try { number: self.tried, by, with_quic, claim: Arc::default() };
        let ways = Ways { quic: with_quic, first: self.way, ping: None };
        let number = this.number;
        let claim = Arc::clone(&this.claim);
        let theirs = (self.relay.clone(), self.node.clone(), self.proxies.clone());
        let own = self.own.clone();
        let run = move || {
            let (relay, node, proxies) = theirs;
            let admitted = match by {
                By::Icmp => race_if(&relay, &node, &proxies, ways, &claim),
                By::Https | By::Quic => connect_quic_if(&relay, &node, proxies.mark(), &claim)
                    .map(|answered| Admitted::Quic(Box::new(answered))),
            };
            // Whoever has ended meanwhile wants it no more.
            let _ = own.send(Order::Tried(number, admitted.ok()));
        };
        let name = format!("relay-{}-better", self.relay.id);
        if thread::Builder::new().name(name).spawn(run).is_err() {
            self.put_off(by);
            return None;
        }
        Some(this)
    }

    /// Takes what came of a try. If it is a stream, the relay ends the older one.
    fn upgrade(&mut self, this: &Try, admitted: Option<Admitted>) -> Option<Current> {
        let Some(admitted) = admitted else {
            self.put_off(this.by);
            return None;
        };
        if this.by == By::Icmp {
            self.learn(&admitted, this.with_quic);
        }
        self.hand_over(admitted)
    }

    /// What is better than this did not answer.
    fn put_off(&mut self, by: By) {
        match by {
            By::Icmp => self.better.put_off(Instant::now()),
            By::Https | By::Quic => self.put_off_quic(),
        }
    }

    fn put_off_quic(&mut self) {
        self.quic.put_off(Instant::now());
        lock(&self.state).tries.quic_unanswered += 1;
    }

    fn is_stopped(&self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return true,
                Ok(_) => {}
                Err(TryRecvError::Empty) => return false,
            }
        }
    }

    fn wait(&self, pause: Duration) -> Option<Order> {
        let until = Instant::now() + pause;
        loop {
            match self.orders.recv_timeout(until.saturating_duration_since(Instant::now())) {
                // It was given up.
                Ok(Order::Tried(..)) => {}
                Ok(order) => return Some(order),
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => return Some(Order::Stop),
            }
        }
    }

    fn note(&self, is_connected: bool, trouble: Option<String>) {
        let mut state = lock(&self.state);
        (state.is_connected, state.trouble, state.mend) = (is_connected, trouble, None);
    }

    fn note_twin(&self, why: Option<Notice>) {
        if matches!(why, Some(Notice::Replaced | Notice::Quarantined)) {
            lock(&self.state).twin = Some(Instant::now());
        }
    }
}

/// How a stream ended.
struct Ended {
    lasted: Duration,
    is_quic: bool,
    /// The relay said nothing of it.
    by_itself: bool,
}

/// The thread is to end.
struct Stopped;

fn lock(state: &Mutex<RelayState>) -> MutexGuard<'_, RelayState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
