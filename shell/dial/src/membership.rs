//! A node's membership: the loop that owns the client, and a thread for each of its lanes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use control::client::{Ask, AskId, Lane, Outcome, Settings};
use control::limits::ANSWER_BYTES_MAX;
use control::{Client, Event, HostInfo, LinkReport, Map, ServerUrl, Signed, VerifyingKey};
use noise::PublicKey;

use crate::families::Trying;
use crate::http::{Connection, Cutter};
use crate::proxy::Proxies;
use crate::random::{SystemRandom, since};

/// Inputs that wait for the loop; a lane has one, its owner a few.
const INPUTS_MAX: usize = 16;
/// News that wait for the owner. The loop waits for an owner that does not read.
const NEWS_MAX: usize = 64;
/// A connection by ping is used for so long.
const PING_FOR: Duration = Duration::from_secs(60);
/// The longest sleep of the loop.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// What a membership starts from.
#[derive(Debug)]
pub struct Start {
    /// Keys, server, join key, and what the node says of itself.
    pub settings: Settings,
    /// What was stored of an earlier membership.
    pub cached: Vec<Arc<Signed>>,
    /// How the server is reached.
    pub proxies: Proxies,
    /// Called on the membership's thread when there is news, for owners that wait for more than
    /// that. It must not block.
    pub notify: Notify,
}

/// What is called when there is news.
pub struct Notify(pub Box<dyn Fn() + Send>);

impl std::fmt::Debug for Notify {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Notify(…)")
    }
}

impl Default for Notify {
    fn default() -> Self {
        Self(Box::new(|| {}))
    }
}

/// What a membership tells its owner.
#[derive(Clone, Debug)]
pub struct News {
    /// What happened.
    pub event: Event,
    /// The map after it.
    pub map: Option<Arc<Map>>,
    /// If the map changed: what to store, so that the next start needs no server.
    pub store: Option<(VerifyingKey, Vec<Arc<Signed>>)>,
}

enum Input {
    Outcome(AskId, Outcome),
    Host(HostInfo),
    Links(Vec<LinkReport>),
    Rotate(PublicKey),
    NetworkChange,
    Logout,
    Farewell,
    Stop,
}

/// A membership that runs in threads of its own. It ends when it is dropped.
pub struct Membership {
    inputs: SyncSender<Input>,
    news: Receiver<News>,
    trying: Trying,
    thread: Option<JoinHandle<()>>,
}

impl Membership {
    /// Starts.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(start: Start) -> std::io::Result<Self> {
        let (inputs, received) = sync_channel(INPUTS_MAX);
        let (tell, news) = sync_channel(NEWS_MAX);
        let (own, trying) = (inputs.clone(), Trying::default());
        let told = trying.clone();
        let run = move || {
            let client = Client::new(start.settings, start.cached);
            let lanes = BTreeMap::new();
            let begin = Instant::now();
            let (proxies, notify) = (start.proxies, start.notify);
            Loop { client, lanes, own, received, tell, notify, begin, proxies, trying: told }.run();
        };
        let thread = thread::Builder::new().name("warren-member".to_owned()).spawn(run)?;
        Ok(Self { inputs, news, trying, thread: Some(thread) })
    }

    /// The next piece of news, or `None` after `within` or when the membership has ended.
    #[must_use]
    pub fn wait(&self, within: Duration) -> Option<News> {
        self.news.recv_timeout(within).ok()
    }

    /// Which addresses were tried since the server was connected to last.
    #[must_use]
    pub fn trying(&self) -> Vec<SocketAddr> {
        self.trying.addresses()
    }

    /// Tells the server what the node says of itself now.
    pub fn report(&self, host: HostInfo) {
        self.give(Input::Host(host));
    }

    /// Tells the server how links are; nothing depends on it.
    pub fn report_links(&self, links: Vec<LinkReport>) {
        self.give(Input::Links(links));
    }

    /// Asks for another WireGuard key; [`Event::Rotated`] says when it holds.
    pub fn rotate(&self, key: PublicKey) {
        self.give(Input::Rotate(key));
    }

    /// Says that the machine's network changed: what waits is tried anew at once.
    pub fn network_changed(&self) {
        self.give(Input::NetworkChange);
    }

    /// Leaves the network; [`Event::LoggedOut`] says when it is done.
    pub fn logout(&self) {
        self.give(Input::Logout);
    }

    /// Says that the node ends for now, and waits until the server knows, for so long at most.
    /// Whether the node has left by that, as one that is ephemeral does.
    #[must_use]
    pub fn stop(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        self.give(Input::Farewell);
        while let Some(news) = self.wait(until.saturating_duration_since(Instant::now())) {
            match news.event {
                Event::Stopped { has_left } => return has_left,
                Event::Ended(_) | Event::LoggedOut => break,
                _ => {}
            }
        }
        false
    }

    fn give(&self, input: Input) {
        // A loop that is gone has told why.
        let _ = self.inputs.send(input);
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // A loop that waits for us to read must be let go before it can see that we stop.
        let (_, empty) = sync_channel(1);
        drop(std::mem::replace(&mut self.news, empty));
        self.give(Input::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The way to cut a lane's connection while its thread waits in it.
#[derive(Default)]
struct Cut(Mutex<(bool, Option<Cutter>)>);

impl Cut {
    /// Remembers a connection; one that comes too late is cut at once.
    fn watch(&self, connection: &Connection) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 = connection.cutter();
        if state.0 {
            drop(state);
            self.cut();
        }
    }

    fn cut(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        if let Some(cutter) = state.1.take() {
            cutter.cut();
        }
    }
}

/// A lane's thread. When this goes, so does the thread's connection, and then the thread.
struct Carrier {
    asks: SyncSender<Ask>,
    cut: Arc<Cut>,
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.cut.cut();
    }
}

struct Loop {
    client: Client,
    lanes: BTreeMap<Lane, Carrier>,
    own: SyncSender<Input>,
    received: Receiver<Input>,
    tell: SyncSender<News>,
    notify: Notify,
    begin: Instant,
    proxies: Proxies,
    trying: Trying,
}

impl Loop {
    fn run(mut self) {
        loop {
            if !self.drain() {
                return;
            }
            let now = since(self.begin);
            let sleep = self.client.poll_timeout().map_or(SLEEP_MAX, |(at, _)| at.since(now));
            match self.received.recv_timeout(sleep.min(SLEEP_MAX)) {
                Ok(Input::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(input) => self.take(input),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Outcome(id, outcome) => {
                let now = since(self.begin);
                self.client.handle_outcome(id, outcome, now, &mut SystemRandom);
            }
            Input::Host(host) => self.client.handle_host(host),
            Input::Links(links) => self.client.handle_links(links),
            Input::Rotate(key) => self.client.handle_rotation(key),
            Input::NetworkChange => {
                // Threads that wait on dead connections are cut off; new ones take over.
                self.lanes.clear();
                self.client.handle_network_change();
            }
            Input::Logout => self.client.handle_logout(),
            Input::Farewell => self.client.handle_stop(),
            Input::Stop => {}
        }
    }

    /// Hands on everything that the client wants; `false` if nobody listens any more.
    fn drain(&mut self) -> bool {
        while let Some(event) = self.client.poll_event() {
            let verifying = self.client.verifying();
            let is_change = matches!(event, Event::Changed(_));
            let store = verifying.filter(|_| is_change);
            let store = store.map(|key| (key, self.client.cached().to_vec()));
            let news = News { event, map: self.client.map().cloned(), store };
            if self.tell.send(news).is_err() {
                return false;
            }
            (self.notify.0)();
        }
        while let Some(ask) = self.client.poll_ask(since(self.begin), &mut SystemRandom) {
            self.post(ask);
        }
        true
    }

    fn post(&mut self, ask: Ask) {
        let (id, lane) = (ask.id, ask.lane);
        let given = match self.lanes.get(&lane) {
            Some(carrier) => carrier.asks.try_send(ask).map_err(|error| match error {
                std::sync::mpsc::TrySendError::Full(ask)
                | std::sync::mpsc::TrySendError::Disconnected(ask) => ask,
            }),
            None => Err(ask),
        };
        let Err(ask) = given else { return };
        let (asks, received) = sync_channel(1);
        let own = self.own.clone();
        let cut = Arc::new(Cut::default());
        let dial = Dial {
            proxies: self.proxies.clone(),
            cut: Arc::clone(&cut),
            trying: self.trying.clone(),
        };
        let run = move || carry(&received, &own, &dial);
        let started = thread::Builder::new().name("warren-lane".to_owned()).spawn(run);
        if started.is_ok() && asks.try_send(ask).is_ok() {
            self.lanes.insert(lane, Carrier { asks, cut });
        } else {
            self.take(Input::Outcome(id, Outcome::Failed));
        }
    }
}

/// A connection that is kept for the next request.
struct Kept {
    authority: String,
    open: Connection,
    since: Instant,
}

impl Kept {
    /// Whether it is used again: one by ping is given up after a while, since something better may
    /// pass by now.
    fn is_good(&self) -> bool {
        let is_old = self.open.is_by_ping() && self.since.elapsed() > PING_FOR;
        self.open.is_usable() && !is_old
    }
}

/// How a lane's thread connects.
struct Dial {
    proxies: Proxies,
    cut: Arc<Cut>,
    trying: Trying,
}

impl Dial {
    fn open(&self, url: &ServerUrl) -> std::io::Result<Connection> {
        let open = match self.proxies.pings(url.host()) {
            None => Connection::open_telling(url, &self.proxies, &self.trying)?,
            Some(pings) => {
                let open = self.race(url, pings.head_start())?;
                pings.note(open.is_by_ping());
                open
            }
        };
        self.trying.clear();
        self.cut.watch(&open);
        Ok(open)
    }
}

impl Dial {
    /// Connects over HTTPS, or by ping where that does not answer for `head_start` or fails.
    fn race(&self, url: &ServerUrl, head_start: Duration) -> std::io::Result<Connection> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (told, came) = sync_channel(2);
        let tell = told.clone();
        let theirs = url.clone();
        let proxies = self.proxies.clone();
        let trying = self.trying.clone();
        let run = move || drop(tell.send(Connection::open_telling(&theirs, &proxies, &trying)));
        thread::Builder::new().name("warren-https".to_owned()).spawn(run)?;
        let first = match came.recv_timeout(head_start) {
            Ok(Ok(open)) => return Ok(open),
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        let theirs = url.clone();
        let mark = self.proxies.mark();
        let over = Arc::clone(&is_over);
        let run = move || {
            let over = || over.load(Ordering::Acquire);
            drop(told.send(Connection::open_by_ping(&theirs, mark, &over)));
        };
        thread::Builder::new().name("warren-ping".to_owned()).spawn(run)?;
        let mut failed = first;
        loop {
            match came.recv() {
                Ok(Ok(open)) => {
                    is_over.store(true, Ordering::Release);
                    return Ok(open);
                }
                // What HTTPS failed with says more.
                Ok(Err(error)) if failed.is_none() => failed = Some(error),
                Ok(Err(_)) | Err(_) => {
                    return Err(failed.unwrap_or_else(|| std::io::ErrorKind::TimedOut.into()));
                }
            }
        }
    }
}

/// Posts what comes, one at a time, over a connection that is kept.
fn carry(asks: &Receiver<Ask>, own: &SyncSender<Input>, dial: &Dial) {
    let mut kept: Option<Kept> = None;
    while let Ok(ask) = asks.recv() {
        let outcome = post(&ask, &mut kept, dial);
        if own.send(Input::Outcome(ask.id, outcome)).is_err() {
            return;
        }
    }
}

fn post(ask: &Ask, kept: &mut Option<Kept>, dial: &Dial) -> Outcome {
    let authority = ask.url.authority();
    let again = kept.take().filter(|kept| kept.authority == authority && kept.is_good());
    let was_kept = again.is_some();
    let mut since = again.as_ref().map_or_else(Instant::now, |kept| kept.since);
    let mut connection = again.map(|kept| kept.open);
    for attempt in 0..2 {
        let mut open = match connection.take() {
            Some(open) => open,
            None => match dial.open(&ask.url) {
                Ok(open) => {
                    since = Instant::now();
                    open
                }
                Err(_) => return Outcome::Failed,
            },
        };
        let target = ("POST", ask.path);
        let limit = ANSWER_BYTES_MAX * 2;
        let fields = &[("Content-Type", "application/octet-stream")];
        match open.request(target, fields, &ask.body, limit, ask.within) {
            Ok(answer) => {
                *kept = Some(Kept { authority, open, since });
                return match answer.status {
                    200 => Outcome::Answered(answer.body),
                    400 => Outcome::NotUnderstood,
                    410 => Outcome::NoChannel,
                    _ => Outcome::Failed,
                };
            }
            // A kept connection may have been closed meanwhile. If the request did arrive, its
            // number is used, and the answer is that there is no channel.
            Err(error) if was_kept && attempt == 0 && is_closed(&error) => {}
            Err(_) => return Outcome::Failed,
        }
    }
    Outcome::Failed
}

fn is_closed(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}
