//! The side that may ask: every datagram of ours rides in a request, and so many more are sent as
//! the responder needs to answer with its own.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use noise::Instant;
use wire::ping::{HEAD_LEN, MARKER, Reply, Request};

use super::life::Life;
use super::{Echo, HELD_MAX, PADDING_LEN};

/// Requests that are remembered, at most.
const TRACKED_MAX: usize = 2 * HELD_MAX;
/// The responder answers the oldest first: one that is so far behind an answered one is lost.
const BEHIND_MAX: usize = 32;
/// A way back on which nothing came for so long is idle.
const IDLE: Duration = Duration::from_secs(1);
/// How long it is looked at how many requests are left over, and how many got lost.
const WINDOW: Duration = Duration::from_millis(500);
/// Empty requests in one turn, at most.
const BURST_MAX: usize = 64;

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequesterCounters {
    /// Requests, with datagrams and without.
    pub requests: u64,
    /// Those without.
    pub polls: u64,
    /// Replies that answered one.
    pub replies: u64,
    /// Replies to what was answered before.
    pub duplicates: u64,
    /// Replies to requests that are no longer remembered; their datagrams are good, unless a
    /// session knows them.
    pub late: u64,
    /// Replies that are none of the responder's.
    pub foreign: u64,
    /// Replies that repeat the request: an ordinary host answers there.
    pub echoed: u64,
    /// Times that the responder said it had no request left.
    pub dry: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    is_answered: bool,
}

/// What came of requests within a window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since: Instant,
    sent: u64,
    came: u64,
    /// The least that a reply said to be left.
    held_min: Option<u16>,
}

/// The side that asks.
#[derive(Debug)]
pub struct Requester {
    tag: u32,
    cookie: u32,
    /// The responder is a network's: replies are no longer than requests until it knows us.
    is_of_network: bool,
    is_proven: bool,
    /// Requests before the one that brought the cookie.
    settled: u64,
    next: u16,
    /// The newest requests, the oldest first; the last has the sequence number `next - 1`.
    sent: VecDeque<Sent>,
    /// Those without an answer.
    open: usize,
    /// How many are to be open while datagrams come back.
    goal: usize,
    poll: Duration,
    life: Life,
    requested: Instant,
    /// When a datagram came back last.
    fed: Option<Instant>,
    /// The responder had no request left when it replied last.
    is_dry: bool,
    /// When the goal was last raised by all that waited.
    leapt: Instant,
    rtt: Duration,
    came: u64,
    window: Window,
    /// Empty requests a second, at most, where a filter lets no more out.
    rate: Option<f64>,
    /// Those that may be sent now, by that rate.
    tokens: f64,
    counted: Instant,
    burst: usize,
    counters: RequesterCounters,
}

impl Requester {
    /// One that knows replies by `tag`, begins at `sequence`, and asks every `poll` while idle.
    #[must_use]
    pub fn new(tag: u32, sequence: u16, poll: Duration) -> Self {
        // An ordinary host repeats the marker where a responder puts the tag.
        let tag = if tag == u32::from_be_bytes(MARKER) { !tag } else { tag };
        Self {
            tag,
            cookie: 0,
            is_of_network: false,
            is_proven: false,
            settled: 0,
            next: sequence,
            sent: VecDeque::new(),
            open: 0,
            goal: 1,
            poll,
            life: Life::new(),
            requested: Instant::ZERO,
            fed: None,
            is_dry: false,
            leapt: Instant::ZERO,
            rtt: Duration::from_millis(100),
            came: 0,
            window: Window::default(),
            rate: None,
            tokens: 0.0,
            counted: Instant::ZERO,
            burst: 0,
            counters: RequesterCounters::default(),
        }
    }

    /// The same for a responder of a network, which has to be knocked at first
    /// ([`Requester::knock`]).
    #[must_use]
    pub fn for_network(tag: u32, sequence: u16, poll: Duration) -> Self {
        Self { is_of_network: true, ..Self::new(tag, sequence, poll) }
    }

    /// Whether the responder has given a place; before that it takes no datagrams.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.cookie != 0
    }

    /// A request that asks for a place.
    pub fn knock(&mut self, now: Instant) -> Echo {
        self.request(0, true, now)
    }

    /// Asks every `poll` while idle, from now on.
    pub fn set_poll(&mut self, poll: Duration) {
        self.poll = poll;
    }

    /// The requester's own tag.
    #[must_use]
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// What was counted since the start.
    #[must_use]
    pub const fn counters(&self) -> &RequesterCounters {
        &self.counters
    }

    /// Requests that are without an answer.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open
    }

    /// For how long filters are believed to remember a request.
    #[must_use]
    pub fn life(&self) -> Duration {
        self.life.time()
    }

    /// The request in which a datagram leaves. On the path of every datagram.
    #[inline]
    pub fn handle_datagram(&mut self, now: Instant) -> Echo {
        self.request(0, false, now)
    }

    #[inline]
    fn request(&mut self, hold: u8, is_empty: bool, now: Instant) -> Echo {
        if self.sent.len() >= TRACKED_MAX {
            self.give_up_first();
        }
        self.sent.push_back(Sent { at: now, is_answered: false });
        self.open += 1;
        self.counters.requests += 1;
        self.requested = now;
        let sequence = self.next;
        self.next = sequence.wrapping_add(1);
        let life = self.life.quarters().max(hold);
        let is_padded = is_empty && self.is_of_network && !self.is_proven;
        let head = Request { cookie: self.cookie, tag: self.tag, life, hold, is_padded };
        Echo { sequence, head: head.bytes(), padding: if is_padded { PADDING_LEN } else { 0 } }
    }

    fn give_up_first(&mut self) {
        if self.sent.pop_front().is_some_and(|first| !first.is_answered) {
            self.open -= 1;
        }
    }

    /// Takes a reply; says where in `payload` its datagram lies, if it has one. On the path of
    /// every datagram.
    #[inline]
    pub fn handle_reply(
        &mut self,
        sequence: u16,
        payload: &[u8],
        now: Instant,
    ) -> Option<Range<usize>> {
        let reply = match Reply::parse(payload) {
            Some(reply) if reply.tag == self.tag => reply,
            _ if payload.starts_with(&MARKER) => {
                self.counters.echoed += 1;
                return None;
            }
            _ => {
                self.counters.foreign += 1;
                return None;
            }
        };
        let datagram = (payload.len() > HEAD_LEN).then_some(HEAD_LEN..payload.len());
        let behind = usize::from(self.next.wrapping_sub(sequence));
        let place = self.sent.len().checked_sub(behind).filter(|_| behind > 0);
        let Some(sent) = place.and_then(|place| self.sent.get_mut(place)) else {
            self.counters.late += 1;
            return datagram;
        };
        if sent.is_answered {
            self.counters.duplicates += 1;
            return None;
        }
        sent.is_answered = true;
        let asked = sent.at;
        self.open -= 1;
        self.counters.replies += 1;
        let rank = self.counters.requests.saturating_sub(behind as u64);
        if reply.cookie != 0 && reply.cookie != self.cookie && rank >= self.settled {
            self.settle(reply.cookie, rank);
        }
        self.life.handle_answer(sequence, self.poll * 2, now);
        let place = place.unwrap_or(0);
        for _ in 0..place.saturating_sub(BEHIND_MAX) {
            self.give_up_first();
        }
        // Some are kept, to know a reply that comes twice.
        while self.sent.len() > BEHIND_MAX && self.sent.front().is_some_and(|it| it.is_answered) {
            self.sent.pop_front();
        }
        if datagram.is_some() {
            self.fed = Some(now);
        }
        // What a place of before tells is of that one.
        if reply.cookie == self.cookie {
            self.handle_told(&reply, asked, rank, now);
        }
        datagram
    }

    /// Has a new place at the responder, which counts anew, from the request on that came after
    /// `rank` others.
    fn settle(&mut self, cookie: u32, rank: u64) {
        self.cookie = cookie;
        self.settled = rank;
        self.came = 0;
        self.rate = None;
        self.window = Window::default();
    }

    /// Follows the responder's demand. The request that was answered was `asked` then, after `rank`
    /// others.
    fn handle_told(&mut self, reply: &Reply, asked: Instant, rank: u64, now: Instant) {
        let news = reply.came.wrapping_sub(self.came as u16);
        if news < 0x8000 {
            self.came += u64::from(news);
        }
        self.is_dry = reply.held == 0;
        self.is_proven = reply.is_proven;
        if reply.is_dry {
            // What is answered when it comes was not kept: its time is the way's.
            self.rtt = now.since(asked).clamp(Duration::from_millis(1), Duration::from_secs(2));
            self.counters.dry += 1;
        }
        if self.is_dry {
            self.goal = (self.goal.max(self.open) + 1).min(HELD_MAX);
            if reply.waiting > 0 && now.since(self.leapt) >= self.rtt {
                self.leapt = now;
                self.goal = (self.open + usize::from(reply.waiting)).clamp(self.goal, HELD_MAX);
            }
        }
        let least = self.window.held_min.map_or(reply.held, |least| least.min(reply.held));
        self.window.held_min = Some(least);
        if now.since(self.window.since) >= WINDOW.max(self.rtt) {
            // The oldest is answered first: so many came before the answered one.
            self.end_window(rank, self.came.saturating_sub(reply.held.into()), now);
        }
    }

    /// Of `rank` requests `came` reached the responder. What is under way is in neither.
    fn end_window(&mut self, rank: u64, came: u64, now: Instant) {
        let next = Window { since: now, sent: rank, came, held_min: None };
        let window = std::mem::replace(&mut self.window, next);
        if let Some(least) = window.held_min {
            let spare = usize::from(least).saturating_sub(4 + self.goal / 8);
            self.goal = self.goal.saturating_sub(spare / 2).max(1);
        }
        let seconds = now.since(window.since).as_secs_f64();
        let sent = rank.saturating_sub(window.sent);
        let came = came.saturating_sub(window.came);
        if window.since == Instant::ZERO || sent < 20 || seconds > 5.0 {
            self.rate = None;
            return;
        }
        let lost = 1.0 - (came as f64 / sent as f64).min(1.0);
        self.rate = match self.rate {
            // A filter that counts: so many as it lets out, and a few to notice when it lets more.
            _ if lost > 0.2 => Some((came as f64 / seconds * 1.1).max(5.0)),
            Some(rate) if rate < 20.0 * sent as f64 / seconds => Some(rate * 1.25),
            _ => None,
        };
    }

    /// The request without a datagram that is due, if one is. On the path of every datagram.
    #[inline]
    pub fn poll_request(&mut self, now: Instant) -> Option<Echo> {
        if self.cookie == 0 {
            return None;
        }
        if !self.is_fed(now) {
            self.fed = None;
        }
        if self.fed.is_some() && (self.open < self.goal || now >= self.overdue()) {
            return self.refill(now);
        }
        self.burst = 0;
        if now < self.due() {
            return None;
        }
        self.rest(now)
    }

    fn is_fed(&self, now: Instant) -> bool {
        self.fed.is_some_and(|fed| now.since(fed) < IDLE)
    }

    /// When the requests that are to end a dry pool are taken for lost.
    fn overdue(&self) -> Instant {
        let patience = (self.rtt * 2).max(Duration::from_millis(50));
        if self.is_dry { self.requested + patience } else { Instant::MAX }
    }

    fn refill(&mut self, now: Instant) -> Option<Echo> {
        if self.burst >= BURST_MAX {
            self.burst = 0;
            return None;
        }
        if let Some(rate) = self.rate {
            self.tokens += now.since(self.counted).as_secs_f64() * rate;
            self.tokens = self.tokens.min((rate * 0.1).max(1.0));
            self.counted = now;
            if self.tokens < 1.0 {
                return None;
            }
            self.tokens -= 1.0;
        } else {
            self.counted = now;
        }
        self.burst += 1;
        self.counters.polls += 1;
        Some(self.request(0, true, now))
    }

    /// What is due beside the way back: what expired is forgotten, a request is kept there, and how
    /// long one may be.
    fn rest(&mut self, now: Instant) -> Option<Echo> {
        while self.sent.front().is_some_and(|first| now.since(first.at) > self.life.time()) {
            self.give_up_first();
        }
        if self.fed.is_none() {
            self.goal = 1;
        }
        if let Some(hold) = self.life.poll(self.poll * 2, now) {
            self.life.note_sent(self.next, now);
            self.counters.polls += 1;
            return Some(self.request(hold, true, now));
        }
        if now < self.requested + self.period() {
            return None;
        }
        self.counters.polls += 1;
        Some(self.request(0, true, now))
    }

    /// How long after the last request the next one is due.
    fn period(&self) -> Duration {
        self.poll.min(self.life.time() / 2)
    }

    fn due(&self) -> Instant {
        (self.requested + self.period()).min(self.life.poll_timeout())
    }

    /// When [`Requester::poll_request`] has something, if nothing comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.cookie == 0 {
            return None;
        }
        let Some(fed) = self.fed else { return Some(self.due()) };
        let owed = if self.open < self.goal { self.requested } else { self.overdue() };
        let allowed = match self.rate {
            Some(rate) => self.counted + Duration::from_secs_f64(1.0 / rate),
            None => Instant::ZERO,
        };
        Some(owed.max(allowed).min(fed + IDLE).min(self.due()))
    }
}
