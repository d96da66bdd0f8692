//! The side that may only answer: it keeps requests, and spends one for each datagram.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use admit::Number;
use noise::{Instant, Random};
use wire::ping::{HEAD_LEN, Reply, Request};
use wire::wireguard::{self, Message};

use super::shown::Shown;
use super::{
    Echo, GUESTS_MAX, GUESTS_OF_ONE_MAX, HELD_MAX, PLACES_MAX, QUARTER, SHOWN_HELD_MAX,
    SHOWN_WAIT_LEN_MAX, WAIT_LEN_MAX, WAIT_MAX,
};
use crate::queue::Queue;

/// Sequence numbers of which is known whether they came.
const SEEN: u16 = 4096;
/// A requester that was not heard for so long gives up its place if another needs it.
const FORGOTTEN: Duration = Duration::from_secs(180);
/// A stranger's request is good for so long.
const GUEST_LIFE: Duration = Duration::from_secs(2);
/// Requests that are answered late on purpose, at most.
const LATE_MAX: usize = 256;

/// What was counted. `requests` = `malformed` + `strange` + `duplicates` + `expired` + `replies` +
/// those that are kept; `datagrams` = `replies` - `empty` + `stale` + `overflow` + `unasked` +
/// those that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderCounters {
    /// Requests that came, of all kinds.
    pub requests: u64,
    /// Those that are none of ours.
    pub malformed: u64,
    /// Those of strangers that carry nothing that could begin a session.
    pub strange: u64,
    /// Those that came before.
    pub duplicates: u64,
    /// Those that expired, or were the oldest of too many.
    pub expired: u64,
    /// Replies.
    pub replies: u64,
    /// Those without a datagram.
    pub empty: u64,
    /// Datagrams that were to go back.
    pub datagrams: u64,
    /// Those that found no request within [`WAIT_MAX`].
    pub stale: u64,
    /// Those that were the oldest of too many.
    pub overflow: u64,
    /// Those for whom nobody asked, or longer than a stranger may get.
    pub unasked: u64,
    /// Times that a datagram found no request.
    pub dry: u64,
    /// Requesters that got no place.
    pub crowded: u64,
}

/// Which of the newest sequence numbers came.
#[derive(Debug)]
struct Seen {
    top: Option<u16>,
    bits: Box<[u64; SEEN as usize / 64]>,
}

impl Seen {
    fn new() -> Self {
        Self { top: None, bits: Box::new([0; SEEN as usize / 64]) }
    }

    fn bit(&mut self, sequence: u16) -> (&mut u64, u64) {
        let at = usize::from(sequence % SEEN);
        (&mut self.bits[at / 64], 1 << (at % 64))
    }

    /// Whether it is the first of that number, and none of long ago.
    #[inline]
    fn admit(&mut self, sequence: u16) -> bool {
        let top = *self.top.get_or_insert_with(|| sequence.wrapping_sub(1));
        let ahead = sequence.wrapping_sub(top);
        if ahead == 0 || ahead >= 0x8000 {
            if top.wrapping_sub(sequence) >= SEEN {
                return false;
            }
        } else {
            for step in 1..=ahead.min(SEEN) {
                let (word, bit) = self.bit(top.wrapping_add(step));
                *word &= !bit;
            }
            if ahead > SEEN {
                self.bits.fill(0);
            }
            self.top = Some(sequence);
        }
        let (word, bit) = self.bit(sequence);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

/// A request without an answer.
#[derive(Clone, Copy, Debug)]
struct Held {
    sequence: u16,
    until: Instant,
    len: usize,
}

#[derive(Debug)]
struct Place {
    cookie: u32,
    tag: u32,
    /// Its number among those who have proved nothing; of who has, none.
    shown: Option<Number>,
    /// Requests without an answer, the oldest first.
    held: VecDeque<Held>,
    waiting: Queue,
    seen: Seen,
    came: u16,
    is_dry: bool,
    heard: Instant,
}

impl Place {
    fn new(cookie: u32, tag: u32, shown: Option<Number>, now: Instant) -> Self {
        Self {
            cookie,
            tag,
            shown,
            held: VecDeque::new(),
            waiting: Queue::default(),
            seen: Seen::new(),
            came: 0,
            is_dry: false,
            heard: now,
        }
    }

    /// Where the request is by which a datagram of so many bytes may go back: the oldest, and of
    /// who has proved nothing the oldest that is as long.
    fn find(&self, len: usize) -> Option<usize> {
        match self.shown {
            None => (!self.held.is_empty()).then_some(0),
            Some(_) => self.held.iter().position(|held| held.len >= HEAD_LEN + len),
        }
    }

    fn take(&mut self, len: usize) -> Option<u16> {
        let found = self.find(len)?;
        self.held.remove(found).map(|held| held.sequence)
    }

    fn expire(&mut self, now: Instant) -> u64 {
        let mut expired = 0;
        while self.held.front().is_some_and(|held| held.until <= now) {
            self.held.pop_front();
            expired += 1;
        }
        expired
    }

    fn echo(&mut self, sequence: u16) -> Echo {
        let reply = Reply {
            tag: self.tag,
            cookie: self.cookie,
            held: self.held.len() as u16,
            waiting: u16::try_from(self.waiting.len()).unwrap_or(u16::MAX),
            came: self.came,
            is_dry: std::mem::take(&mut self.is_dry),
            is_proven: self.shown.is_none(),
        };
        Echo { sequence, head: reply.bytes(), padding: 0 }
    }
}

/// A stranger's request.
#[derive(Clone, Copy, Debug)]
struct Guest {
    from: SocketAddr,
    sequence: u16,
    tag: u32,
    len: usize,
    since: Instant,
}

/// The side that answers. Requesters are known by their address; its port is their identifier.
#[derive(Debug, Default)]
pub struct Responder {
    places: BTreeMap<SocketAddr, Place>,
    guests: VecDeque<Guest>,
    /// Those for whom something waits.
    waiting: Vec<SocketAddr>,
    /// Requests that are answered late, and when.
    late: Vec<(SocketAddr, u16, Instant)>,
    /// Those who have shown an address, where the owner says who has proved a key.
    shown: Option<Shown>,
    counters: ResponderCounters,
}

impl Responder {
    /// One that knows nobody.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that carries datagrams which it does not read: its owner says whose key was proved.
    #[must_use]
    pub fn for_network(random: &mut dyn Random) -> Self {
        Self { shown: Some(Shown::new(random)), ..Self::default() }
    }

    /// What was counted since the start.
    #[must_use]
    pub const fn counters(&self) -> &ResponderCounters {
        &self.counters
    }

    /// Requests that are kept.
    #[must_use]
    pub fn held(&self) -> usize {
        let places = self.places.values().map(|place| place.held.len());
        let knocks = self.shown.as_ref().map_or(0, Shown::knocks);
        places.sum::<usize>() + self.guests.len() + self.late.len() + knocks
    }

    /// Datagrams that wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.places.values().map(|place| place.waiting.len()).sum()
    }

    /// Takes a request; says where in `payload` its datagram lies, if it has one. On the path of
    /// every datagram.
    #[inline]
    pub fn handle_request(
        &mut self,
        from: SocketAddr,
        sequence: u16,
        payload: &[u8],
        now: Instant,
    ) -> Option<Range<usize>> {
        self.counters.requests += 1;
        let Some(request) = Request::parse(payload) else {
            self.counters.malformed += 1;
            return None;
        };
        let is_datagram = payload.len() > HEAD_LEN && !request.is_padded;
        let datagram = is_datagram.then_some(HEAD_LEN..payload.len());
        if self.shown.is_some() && !self.welcome(from, &request, now) {
            self.handle_knock(from, sequence, &request);
            return None;
        }
        let place = self.places.get_mut(&from).filter(|place| place.cookie == request.cookie);
        let Some(place) = place else {
            return self.handle_stranger(from, sequence, &request, payload, now);
        };
        if !place.seen.admit(sequence) {
            self.counters.duplicates += 1;
            return None;
        }
        place.came = place.came.wrapping_add(1);
        place.tag = request.tag;
        place.heard = now;
        self.counters.expired += place.expire(now);
        if request.hold > 0 {
            if self.late.len() >= LATE_MAX {
                self.counters.expired += 1;
            } else {
                self.late.push((from, sequence, now + QUARTER * u32::from(request.hold)));
            }
            return datagram;
        }
        let most = if place.shown.is_some() { SHOWN_HELD_MAX } else { HELD_MAX };
        if place.held.len() >= most {
            place.held.pop_front();
            self.counters.expired += 1;
        }
        let until = now + QUARTER * u32::from(request.life);
        place.held.push_back(Held { sequence, until, len: payload.len() });
        datagram
    }

    /// Whether who asks has a place, or gets one for the cookie of its address.
    fn welcome(&mut self, from: SocketAddr, request: &Request, now: Instant) -> bool {
        let cookie = self.places.get(&from).map(|place| place.cookie);
        if let Some(cookie) = cookie {
            return cookie == request.cookie;
        }
        let Some(shown) = &mut self.shown else { return false };
        if request.cookie != shown.cookie(from) {
            return false;
        }
        let (number, lost) = shown.enter(from);
        if let Some(lost) = lost {
            self.counters.crowded += 1;
            self.forget(lost);
        }
        self.places.insert(from, Place::new(request.cookie, request.tag, Some(number), now));
        true
    }

    fn handle_knock(&mut self, from: SocketAddr, sequence: u16, request: &Request) {
        let shown = self.shown.as_mut();
        if !shown.is_some_and(|shown| shown.knock(from, sequence, request.tag)) {
            self.counters.expired += 1;
        }
    }

    /// The requester at `at` has proved a key: it may have more than it asked with, if there is
    /// room. Whether there is.
    pub fn prove(&mut self, at: SocketAddr, now: Instant) -> bool {
        let Some(number) = self.places.get(&at).and_then(|place| place.shown) else {
            return self.places.contains_key(&at);
        };
        if self.proven() >= PLACES_MAX && !self.forget_one(now) {
            self.counters.crowded += 1;
            return false;
        }
        if let Some(shown) = &mut self.shown {
            shown.leave(number);
        }
        if let Some(place) = self.places.get_mut(&at) {
            place.shown = None;
        }
        true
    }

    /// Those who have proved a key.
    fn proven(&self) -> usize {
        self.places.len() - self.shown.as_ref().map_or(0, Shown::len)
    }

    /// Takes its place from who proved a key and was not heard for long, if there is one.
    fn forget_one(&mut self, now: Instant) -> bool {
        let proven = self.places.iter().filter(|(_, place)| place.shown.is_none());
        let oldest = proven.min_by_key(|(_, place)| place.heard);
        let oldest = oldest.filter(|(_, place)| now.since(place.heard) > FORGOTTEN);
        let gone = oldest.map(|(gone, _)| *gone);
        if let Some(gone) = gone {
            self.forget(gone);
        }
        gone.is_some()
    }

    fn handle_stranger(
        &mut self,
        from: SocketAddr,
        sequence: u16,
        request: &Request,
        payload: &[u8],
        now: Instant,
    ) -> Option<Range<usize>> {
        let datagram = HEAD_LEN..payload.len();
        if wireguard::classify(&payload[datagram.clone()]).is_err() {
            self.counters.strange += 1;
            return None;
        }
        let of_one = |guest: &Guest| guest.from.ip() == from.ip();
        let is_crowd =
            self.guests.iter().filter(|guest| of_one(guest)).count() >= GUESTS_OF_ONE_MAX;
        let oldest = match is_crowd {
            true => self.guests.iter().position(of_one),
            false => (self.guests.len() >= GUESTS_MAX).then_some(0),
        };
        if let Some(oldest) = oldest {
            self.guests.remove(oldest);
            self.counters.expired += 1;
        }
        let tag = request.tag;
        let len = payload.len();
        self.guests.push_back(Guest { from, sequence, tag, len, since: now });
        Some(datagram)
    }

    /// Takes a datagram for the requester at `to`: the head of the reply in which it leaves at
    /// once, or `None` if it waits, or is dropped. On the path of every datagram.
    #[inline]
    pub fn handle_datagram(
        &mut self,
        to: SocketAddr,
        datagram: &[u8],
        random: &mut dyn Random,
        now: Instant,
    ) -> Option<Echo> {
        self.counters.datagrams += 1;
        let is_theirs = self.shown.is_some()
            || matches!(wireguard::classify(datagram), Ok(Message::Transport { .. }));
        let Some(place) = self.places.get_mut(&to).filter(|_| is_theirs) else {
            return self.handle_first(to, datagram, random, now);
        };
        self.counters.expired += place.expire(now);
        if place.waiting.is_empty()
            && let Some(sequence) = place.take(datagram.len())
        {
            self.counters.replies += 1;
            return Some(place.echo(sequence));
        }
        if !place.is_dry {
            place.is_dry = true;
            self.counters.dry += 1;
        }
        place.waiting.push(&[], datagram, now);
        let most = if place.shown.is_some() { SHOWN_WAIT_LEN_MAX } else { WAIT_LEN_MAX };
        while place.waiting.bytes() > most && place.waiting.drop_first().is_some() {
            self.counters.overflow += 1;
        }
        if !self.waiting.contains(&to) {
            self.waiting.push(to);
        }
        None
    }

    /// What may be the first to somebody: it answers that one's own request.
    fn handle_first(
        &mut self,
        to: SocketAddr,
        datagram: &[u8],
        random: &mut dyn Random,
        now: Instant,
    ) -> Option<Echo> {
        self.drop_guests(now);
        let guest = self.guests.iter().rposition(|guest| guest.from == to);
        let Some(guest) = guest.and_then(|guest| self.guests.remove(guest)) else {
            return self.handle_own(to, now);
        };
        let proves = matches!(
            wireguard::classify(datagram),
            Ok(Message::Transport { .. } | Message::Response(_))
        );
        if !proves && HEAD_LEN + datagram.len() > guest.len {
            self.counters.unasked += 1;
            self.counters.expired += 1;
            return None;
        }
        self.counters.replies += 1;
        if proves && let Some(place) = self.settle(&guest, random, now) {
            return Some(place.echo(guest.sequence));
        }
        let head = Reply { tag: guest.tag, ..Reply::default() }.bytes();
        Some(Echo { sequence: guest.sequence, head, padding: 0 })
    }

    /// A handshake of our own, to who has a place: requests of it are as good for that.
    fn handle_own(&mut self, to: SocketAddr, now: Instant) -> Option<Echo> {
        let Some(place) = self.places.get_mut(&to) else {
            self.counters.unasked += 1;
            return None;
        };
        self.counters.expired += place.expire(now);
        let Some(sequence) = place.take(0) else {
            self.counters.stale += 1;
            return None;
        };
        self.counters.replies += 1;
        Some(place.echo(sequence))
    }

    /// Gives who proved a key a place, in place of one that it had, if there is room.
    fn settle(
        &mut self,
        guest: &Guest,
        random: &mut dyn Random,
        now: Instant,
    ) -> Option<&mut Place> {
        let is_full = self.proven() >= PLACES_MAX && !self.places.contains_key(&guest.from);
        if is_full && !self.forget_one(now) {
            self.counters.crowded += 1;
            return None;
        }
        self.forget(guest.from);
        let mut cookie = [0; 4];
        random.fill(&mut cookie);
        let cookie = u32::from_be_bytes(cookie).max(1);
        let mut place = Place::new(cookie, guest.tag, None, now);
        place.seen.admit(guest.sequence);
        Some(self.places.entry(guest.from).or_insert(place))
    }

    fn forget(&mut self, at: SocketAddr) {
        if let Some(place) = self.places.remove(&at) {
            self.counters.expired += place.held.len() as u64;
            self.counters.stale += place.waiting.len() as u64;
            if let (Some(shown), Some(number)) = (&mut self.shown, place.shown) {
                shown.leave(number);
            }
        }
        self.waiting.retain(|to| *to != at);
    }

    fn drop_guests(&mut self, now: Instant) {
        while self.guests.front().is_some_and(|guest| now.since(guest.since) > GUEST_LIFE) {
            self.guests.pop_front();
            self.counters.expired += 1;
        }
    }

    /// The next reply to what has a request by now, with its datagram at the end of `out`, and to
    /// whom. On the path of every datagram that waited.
    pub fn poll_reply(&mut self, out: &mut Vec<u8>, now: Instant) -> Option<(SocketAddr, Echo)> {
        if let Some((to, echo)) = self.shown.as_mut().and_then(Shown::poll_knock) {
            self.counters.replies += 1;
            self.counters.empty += 1;
            return Some((to, echo));
        }
        self.drop_stale(now);
        let next = |place: &Place| place.find(place.waiting.first_len()?);
        let is_ready =
            |to: &&SocketAddr| self.places.get(to).is_some_and(|place| next(place).is_some());
        let ready = self.waiting.iter().find(is_ready).copied();
        if let Some(to) = ready
            && let Some(place) = self.places.get_mut(&to)
            && let Some(len) = place.waiting.first_len()
            && let Some(sequence) = place.take(len)
        {
            place.waiting.pop_into(out);
            self.counters.replies += 1;
            return Some((to, place.echo(sequence)));
        }
        while let Some(due) = self.late.iter().position(|(_, _, due)| *due <= now) {
            let (to, sequence, _) = self.late.swap_remove(due);
            let Some(place) = self.places.get_mut(&to) else {
                self.counters.expired += 1;
                continue;
            };
            self.counters.replies += 1;
            self.counters.empty += 1;
            return Some((to, place.echo(sequence)));
        }
        None
    }

    /// Forgets what waited for too long, and requests that expired meanwhile.
    fn drop_stale(&mut self, now: Instant) {
        let places = &mut self.places;
        let counters = &mut self.counters;
        self.waiting.retain(|to| {
            let Some(place) = places.get_mut(to) else { return false };
            while place.waiting.age(now) > WAIT_MAX && place.waiting.drop_first().is_some() {
                counters.stale += 1;
            }
            counters.expired += place.expire(now);
            if place.waiting.is_empty() {
                place.waiting.release();
            }
            !place.waiting.is_empty()
        });
    }

    /// When [`Responder::poll_reply`] has something to do, if no request comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.waiting.iter().filter_map(|to| self.places.get(to)?.waiting.since());
        let late = self.late.iter().map(|(_, _, due)| *due);
        waiting.map(|since| since + WAIT_MAX + Duration::from_millis(1)).chain(late).min()
    }
}
