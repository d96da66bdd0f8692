//! A node's side of the conversation, as a state machine: what to ask, of whom, and what an answer
//! means. It opens no connection; whoever owns it carries its asks and gives the answers back.
//!
//! A client opens a channel, enrols if it has a join key, and then polls without end. One poll
//! and one other ask are under way at most, each on a lane of its own. What goes wrong on the way
//! is tried again with [`crate::patience`]. A poll of who is not in touch is answered at once, so
//! that both ends know it soon. What the server refuses for good ends the client, until somebody
//! acts.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use noise::{Instant, PublicKey, Random};

use crate::channel::{self, Channel, Opening};
use crate::limits::{ANSWER_BYTES_MAX, CACHED_DELTAS_MAX, URLS_KEPT_MAX};
use crate::patience::Patience;
use crate::{
    Answer, BadMap, Code, Enrol, Envelope, Hello, HostInfo, LinkReport, Map, Poll, Refusal,
    Request, ServerUrl, SignIn, SignInLink, Signed, Statement, VERSION, VerifyingKey, WireSecret,
};

mod words;

pub use crate::map::Changed;
pub use words::{Ask, AskId, Event, Lane, Outcome, Settings, Trouble, Why};

mod ending;
mod joining;

/// The path to which [`channel::open`]'s message is posted.
pub const OPEN_PATH: &str = "/control/open";
/// The path to which sealed requests are posted.
pub const ASK_PATH: &str = "/control/ask";
/// Bytes before the sealed request: the channel's name and the request's number, big endian.
pub const ASK_HEAD_LEN: usize = 16 + 8;

/// How long the server is asked to wait for news; shorter than what proxies bear (60 s).
const POLL_WAIT: Duration = Duration::from_secs(45);
/// How long an answer may take beyond what was asked for.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Two polls begin at least so far apart, whatever the server answers.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(20);
/// The same of two questions whether somebody has signed in.
const SIGN_IN_INTERVAL_MIN: Duration = Duration::from_millis(500);
/// Events that wait for their reader. A reader that drains after each input never has more than 2.
const EVENTS_MAX: usize = 64;

#[derive(Debug)]
enum Asked {
    Open(Box<Opening>),
    Enrol,
    SignIn,
    Poll,
    Report(Box<HostInfo>),
    Links,
    Rotate(PublicKey),
    Logout,
    Stop,
}

#[derive(Debug)]
struct Outstanding {
    id: AskId,
    /// The way by which it went.
    url: usize,
    number: u64,
    node_key: PublicKey,
    asked: Asked,
}

#[derive(Debug)]
struct Open {
    channel: Channel,
    name: [u8; 16],
    next: u64,
}

/// One node's conversation with its server.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    /// Shared with readers, who see it as it was when they were told.
    map: Option<Arc<Map>>,
    cached: Vec<Arc<Signed>>,
    open: Option<Open>,
    poll: Option<Outstanding>,
    command: Option<Outstanding>,
    is_report_due: bool,
    /// How links are, to be told; nothing once the server wanted none.
    links: Option<Vec<LinkReport>>,
    wants_links: bool,
    rotate_to: Option<PublicKey>,
    /// Where somebody has to sign in, as was said last.
    link: Option<SignInLink>,
    is_logout_due: bool,
    is_stop_due: bool,
    wants_whole: bool,
    is_ended: bool,
    /// The server says that our key is over; whether it may be renewed, the rotation will tell.
    is_over: bool,
    is_in_touch: bool,
    patience: Patience,
    not_before: Instant,
    /// Since when a channel is being opened: what that took counts as a part of the pause.
    opening: Option<Instant>,
    poll_after: Instant,
    url: usize,
    /// The way of what was answered last.
    answered_by: usize,
    next_id: u64,
    events: VecDeque<Event>,
}

impl Client {
    /// A client that begins at once. `cached` is what [`Client::cached`] was before a restart; it
    /// is used if `settings.verifying` signed all of it for this machine, else it is left aside.
    #[must_use]
    pub fn new(settings: Settings, cached: Vec<Arc<Signed>>) -> Self {
        let mut client = Self {
            map: None,
            cached: Vec::new(),
            open: None,
            poll: None,
            command: None,
            is_report_due: settings.join.is_none() && !settings.signs_in,
            links: None,
            wants_links: true,
            rotate_to: settings.next_key,
            link: None,
            is_logout_due: false,
            is_stop_due: false,
            wants_whole: false,
            is_ended: settings.urls.is_empty(),
            is_over: false,
            is_in_touch: false,
            patience: Patience::default(),
            not_before: Instant::ZERO,
            opening: None,
            poll_after: Instant::ZERO,
            url: 0,
            answered_by: 0,
            next_id: 0,
            events: VecDeque::new(),
            settings,
        };
        for signed in cached {
            if let Err(why) = client.take_news(signed) {
                client.push(Event::Trouble(Trouble::Map(why)));
                break;
            }
        }
        client
    }

    /// The map, if there is one.
    #[must_use]
    pub const fn map(&self) -> Option<&Arc<Map>> {
        self.map.as_ref()
    }

    /// What to store for a start without a server: a signed map and the signed changes since.
    #[must_use]
    pub fn cached(&self) -> &[Arc<Signed>] {
        &self.cached
    }

    /// What maps are signed with; to be stored with [`Client::cached`].
    #[must_use]
    pub const fn verifying(&self) -> Option<VerifyingKey> {
        self.settings.verifying
    }

    /// Whether the node has joined.
    #[must_use]
    pub const fn is_enrolled(&self) -> bool {
        self.settings.join.is_none() && !self.settings.signs_in
    }

    /// Takes what the node says of itself now; the server is told if it changed.
    pub fn handle_host(&mut self, host: HostInfo) {
        if host != self.settings.host {
            self.settings.host = host;
            self.is_report_due = true;
        }
    }

    /// Takes how links are now; the server is told, unless it wanted no such thing.
    pub fn handle_links(&mut self, links: Vec<LinkReport>) {
        if self.wants_links && self.is_enrolled() && self.is_in_touch {
            self.links = Some(links);
        }
    }

    /// Wants another WireGuard key. The old one is in use until [`Event::Rotated`].
    /// It may renew one that is over, which has ended the client: that goes on then.
    pub const fn handle_rotation(&mut self, new_key: PublicKey) {
        self.rotate_to = Some(new_key);
        self.is_ended &= !self.is_over;
    }

    /// Where the server is, as far as is known, the preferred first: what it said last, and what
    /// the client began with.
    #[must_use]
    pub fn urls(&self) -> &[ServerUrl] {
        &self.settings.urls
    }

    /// The network changed: a pause that is under way is over, and so are waiting asks.
    pub fn handle_network_change(&mut self) {
        self.not_before = Instant::ZERO;
        (self.poll, self.command) = (None, None);
    }

    /// Takes what became of an ask. One that was given up on is ignored.
    pub fn handle_outcome(
        &mut self,
        id: AskId,
        outcome: Outcome,
        now: Instant,
        random: &mut dyn Random,
    ) {
        let is = |lane: &Option<Outstanding>| lane.as_ref().is_some_and(|asked| asked.id == id);
        let taken = if is(&self.poll) {
            self.poll.take()
        } else if is(&self.command) {
            self.command.take()
        } else {
            None
        };
        let Some(outstanding) = taken else { return };
        self.answered_by = outstanding.url;
        let body = match outcome {
            Outcome::Answered(body) => body,
            Outcome::NoChannel => {
                self.open = None;
                self.patience.handle_return();
                return self.fail(None, now, random);
            }
            Outcome::NotUnderstood => {
                self.open = None;
                return self.fail(Some(Trouble::NotTheServer), now, random);
            }
            Outcome::Failed => return self.fail(Some(Trouble::Unreachable), now, random),
        };
        if let Asked::Open(opening) = outstanding.asked {
            return self.take_hello(*opening, &body, now, random);
        }
        let opened = self.open.as_ref().and_then(|open| {
            open.channel.receive(outstanding.number, &body, ANSWER_BYTES_MAX).ok()
        });
        let Some(answer) = opened.and_then(|plain| Answer::read(&plain).ok()) else {
            self.open = None;
            return self.fail(Some(Trouble::NotTheServer), now, random);
        };
        self.take_answer(&outstanding, answer, now, random);
    }

    /// The next thing to ask. Drain it after each input and at each deadline.
    pub fn poll_ask(&mut self, now: Instant, random: &mut dyn Random) -> Option<Ask> {
        if self.is_ended || now < self.not_before {
            return None;
        }
        if self.open.is_none() {
            return self.ask_open(now, random);
        }
        if self.command.is_none()
            && let Some((asked, request)) = self.next_command()
        {
            return self.ask(Lane::Command, asked, request);
        }
        if self.may_sign_in() && now >= self.poll_after {
            self.poll_after = now.after(SIGN_IN_INTERVAL_MIN);
            let waits = if self.link.is_some() { POLL_WAIT } else { Duration::ZERO };
            let (host, wait_ms) = (self.settings.host.clone(), waits.as_millis() as u32);
            let request = Request::SignIn(SignIn { host, wait_ms });
            return self.ask(Lane::Poll, Asked::SignIn, request);
        }
        if self.may_poll() && now >= self.poll_after {
            self.poll_after = now.after(POLL_INTERVAL_MIN);
            let known = self.map.as_ref().filter(|_| !self.wants_whole);
            let mut poll = Poll { bare: true, ..Poll::default() };
            if let Some(map) = known {
                (poll.epoch, poll.sequence) = (map.epoch, map.sequence);
                let waits = if self.is_in_touch { POLL_WAIT } else { Duration::ZERO };
                poll.wait_ms = waits.as_millis() as u32;
            }
            return self.ask(Lane::Poll, Asked::Poll, Request::Poll(poll));
        }
        None
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Client::poll_ask`] may have something although nothing came in.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, Why)> {
        if self.is_ended {
            return None;
        }
        let has_command = self.command.is_none() && self.next_command().is_some();
        let is_opening = self.open.is_none();
        if is_opening && self.command.is_none() || !is_opening && has_command {
            let why = if self.patience.is_tried() { Why::Retry } else { Why::Pending };
            return Some((self.not_before, why));
        }
        let polls = !is_opening && (self.may_poll() || self.may_sign_in());
        polls.then(|| (self.not_before.max(self.poll_after), Why::Poll))
    }

    const fn may_poll(&self) -> bool {
        self.poll.is_none() && self.is_enrolled() && !self.is_over
    }

    const fn may_sign_in(&self) -> bool {
        self.poll.is_none() && self.settings.signs_in && self.settings.join.is_none()
    }

    fn next_command(&self) -> Option<(Asked, Request)> {
        if let Some((id, secret)) = &self.settings.join {
            let secret = WireSecret(secret.0);
            let enrol = Enrol { id: id.0, secret, host: self.settings.host.clone() };
            return Some((Asked::Enrol, Request::Enrol(enrol)));
        }
        if self.settings.signs_in {
            return None;
        }
        // First of all: while the server may know another key, it may refuse whatever is asked.
        if let Some(new_key) = self.rotate_to {
            return Some((Asked::Rotate(new_key), Request::Rotate { new_key }));
        }
        if self.is_logout_due {
            return Some((Asked::Logout, Request::Logout));
        }
        if self.is_stop_due {
            return Some((Asked::Stop, Request::Stop));
        }
        let report = || {
            let host = self.settings.host.clone();
            (Asked::Report(Box::new(host.clone())), Request::Report(host))
        };
        if self.is_report_due && self.is_enrolled() {
            return Some(report());
        }
        let links = self.links.clone()?;
        Some((Asked::Links, Request::Links { links }))
    }

    fn url(&self) -> ServerUrl {
        self.settings.urls[self.url % self.settings.urls.len()].clone()
    }

    fn ask_open(&mut self, now: Instant, random: &mut dyn Random) -> Option<Ask> {
        if self.command.is_some() {
            return None;
        }
        let Settings { machine, server, .. } = &self.settings;
        let Ok((body, opening)) = channel::open(machine, server, random) else {
            self.end(Refusal {
                code: Code::Invalid,
                detail: "the token's server key is none; ask for a new token".to_owned(),
            });
            return None;
        };
        let id = self.new_id();
        self.opening = Some(now);
        let asked = Asked::Open(Box::new(opening));
        let node_key = self.settings.node_key;
        self.command = Some(Outstanding { id, url: self.url, number: 0, node_key, asked });
        let (url, within) = (self.url(), ANSWER_WITHIN);
        Some(Ask { id, lane: Lane::Command, url, path: OPEN_PATH, body, within })
    }

    fn ask(&mut self, lane: Lane, asked: Asked, request: Request) -> Option<Ask> {
        let node_key = self.settings.node_key;
        let open = self.open.as_mut()?;
        let number = open.next;
        let envelope = Envelope { version: VERSION, node_key, request };
        let Ok(sealed) = open.channel.seal(number, &envelope.print()) else {
            self.open = None;
            return None;
        };
        open.next += 1;
        let body = [&open.name[..], &number.to_be_bytes(), &sealed].concat();
        let id = self.new_id();
        let outstanding = Outstanding { id, url: self.url, number, node_key, asked };
        let (slot, within) = match lane {
            Lane::Poll => (&mut self.poll, POLL_WAIT + ANSWER_WITHIN),
            Lane::Command => (&mut self.command, ANSWER_WITHIN),
        };
        *slot = Some(outstanding);
        Some(Ask { id, lane, url: self.url(), path: ASK_PATH, body, within })
    }

    const fn new_id(&mut self) -> AskId {
        self.next_id += 1;
        AskId(self.next_id)
    }

    fn take_hello(&mut self, opening: Opening, body: &[u8], now: Instant, random: &mut dyn Random) {
        let Ok((channel, payload)) = opening.finish(body) else {
            return self.fail(Some(Trouble::NotTheServer), now, random);
        };
        let Ok(hello) = serde_json::from_slice::<Hello>(&payload) else {
            return self.fail(Some(Trouble::NotTheServer), now, random);
        };
        if self.settings.verifying.is_some_and(|pinned| pinned != hello.verifying) {
            return self.fail(Some(Trouble::OtherSigner), now, random);
        }
        self.settings.verifying = Some(hello.verifying);
        self.opening = None;
        self.open = Some(Open { channel, name: hello.channel, next: 1 });
        self.push(Event::Opened { now_unix_s: hello.now_unix_s });
    }

    fn take_answer(
        &mut self,
        outstanding: &Outstanding,
        answer: Answer,
        now: Instant,
        random: &mut dyn Random,
    ) {
        match (&outstanding.asked, answer) {
            (_, Answer::Refused(refusal)) => {
                return self.take_refusal(outstanding, refusal, now, random);
            }
            (Asked::Enrol, Answer::Enrolled(enrolled)) => {
                self.settings.join = None;
                self.push(Event::Enrolled(enrolled));
            }
            (Asked::SignIn, Answer::Enrolled(enrolled)) => {
                self.settings.signs_in = false;
                self.link = None;
                self.poll_after = now;
                self.push(Event::Enrolled(enrolled));
            }
            (Asked::SignIn, Answer::SignIn(link)) => {
                if self.link.as_ref() != Some(&link) {
                    self.link = Some(link.clone());
                    self.push(Event::SignIn(link));
                }
            }
            (Asked::Poll, Answer::News { signed }) => match self.take_news(Arc::new(signed)) {
                Ok(()) => self.wants_whole = self.cached.len() > CACHED_DELTAS_MAX,
                Err(why) => {
                    self.wants_whole = true;
                    return self.fail(Some(Trouble::Map(why)), now, random);
                }
            },
            (Asked::Poll, Answer::Unchanged) => {}
            // Until it is answered a report is due, and so is what changed meanwhile.
            (Asked::Report(host), Answer::Done) => {
                self.is_report_due = **host != self.settings.host;
            }
            (Asked::Links, Answer::Done) => self.links = None,
            (Asked::Rotate(key), Answer::Done) => self.rotated(*key),
            (Asked::Logout, Answer::Done) => {
                self.forget();
                self.is_ended = true;
                self.push(Event::LoggedOut);
            }
            (Asked::Stop, Answer::Stopped { has_left }) => self.stopped(has_left),
            _ => return self.fail(Some(Trouble::Map(BadMap::Form)), now, random),
        }
        self.patience = Patience::default();
        if !std::mem::replace(&mut self.is_in_touch, true) {
            self.push(Event::InTouch);
        }
    }

    fn rotated(&mut self, key: PublicKey) {
        self.settings.node_key = key;
        self.is_over = false;
        if self.rotate_to == Some(key) {
            self.rotate_to = None;
        }
        self.push(Event::Rotated(key));
    }

    fn take_refusal(
        &mut self,
        outstanding: &Outstanding,
        refusal: Refusal,
        now: Instant,
        random: &mut dyn Random,
    ) {
        if matches!(outstanding.asked, Asked::Links) && refusal.code == Code::Invalid {
            // An older server, or one that wants none: nothing depends on it.
            self.links = None;
            self.wants_links = false;
            return;
        }
        if matches!(outstanding.asked, Asked::Stop) {
            // An older server, which removes it later.
            return self.stopped(false);
        }
        if refusal.code == Code::WrongKey {
            // The answer to an earlier rotation was lost, or it overtook this poll.
            if let Asked::Rotate(key) = outstanding.asked {
                return self.rotated(key);
            }
            if outstanding.node_key != self.settings.node_key || self.rotate_to.is_some() {
                return;
            }
        }
        if refusal.code == Code::Expired {
            if matches!(outstanding.asked, Asked::Rotate(_)) {
                self.rotate_to = None;
            }
            self.is_over = true;
            if self.rotate_to.is_some() {
                return;
            }
        }
        if refusal.code.is_transient() {
            return self.fail(Some(Trouble::Refused(refusal)), now, random);
        }
        if matches!(refusal.code, Code::NotEnrolled | Code::Expired) {
            self.forget();
        }
        self.end(refusal);
    }

    fn take_news(&mut self, signed: Arc<Signed>) -> Result<(), BadMap> {
        let key = self.settings.verifying.ok_or(BadMap::Form)?;
        let text = signed.verify(&key).map_err(|_| BadMap::Form)?;
        match Statement::read(text)? {
            Statement::Map(map) => {
                map.check()?;
                if map.machine != self.settings.machine.public() {
                    return Err(BadMap::Machine);
                }
                let is_old = |known: &Arc<Map>| map.is_older_than(known.epoch, known.sequence);
                if self.map.as_ref().is_some_and(is_old) {
                    return Err(BadMap::Old);
                }
                // Another policy may want what the one of before did not.
                self.wants_links = true;
                self.learn_urls(&map.urls);
                self.map = Some(Arc::new(*map));
                self.cached = vec![signed];
                self.push(Event::Changed(Changed::Whole));
            }
            Statement::Delta(delta) => {
                let changed = Changed::by(&delta);
                self.wants_links |= delta.policy.is_some();
                Arc::make_mut(self.map.as_mut().ok_or(BadMap::Gap)?).apply(*delta)?;
                self.cached.push(signed);
                self.push(Event::Changed(changed));
            }
        }
        Ok(())
    }

    /// Takes the URLs that the server has now before those that were known. The one that answers
    /// stays in use until it fails.
    fn learn_urls(&mut self, told: &[ServerUrl]) {
        let current = self.url();
        let known = std::mem::take(&mut self.settings.urls);
        for url in told.iter().cloned().chain(known) {
            let urls = &mut self.settings.urls;
            if !urls.contains(&url) && urls.len() < URLS_KEPT_MAX {
                urls.push(url);
            }
        }
        self.url = self.settings.urls.iter().position(|url| *url == current).unwrap_or(0);
    }

    fn fail(&mut self, trouble: Option<Trouble>, now: Instant, random: &mut dyn Random) {
        let begin = self.opening.take().unwrap_or(now);
        let ways = self.settings.urls.len();
        self.not_before = begin.after(self.patience.pause(ways, now, random)).max(now);
        self.is_report_due |= self.is_enrolled() && self.open.is_none();
        // Two that went the same way and failed together are one reason to try another.
        let is_way = trouble.is_some() && self.answered_by == self.url;
        self.url = self.url.wrapping_add(usize::from(is_way));
        if let Some(trouble) = trouble {
            self.is_in_touch = false;
            self.push(Event::Trouble(trouble));
        }
    }

    fn push(&mut self, event: Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

#[cfg(test)]
mod tests;
