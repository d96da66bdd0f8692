//! Both ends as values: who gets what for which request, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use noise::{Instant, Random};
use wire::ping::{HEAD_LEN, Reply, Request};

use super::*;

/// Bytes that count upwards.
#[derive(Default)]
struct Counting(u8);

impl Random for Counting {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_add(1);
            *byte = self.0;
        }
    }
}

const fn ms(n: u64) -> Instant {
    Instant(1_000_000_000 + n * 1_000_000)
}

/// A message of WireGuard of that type.
fn message(kind: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[0] = kind;
    bytes
}

fn initiation() -> Vec<u8> {
    message(1, 148)
}

fn response() -> Vec<u8> {
    message(2, 92)
}

fn cookie_reply() -> Vec<u8> {
    message(3, 64)
}

fn transport() -> Vec<u8> {
    message(4, 128)
}

fn at(host: u8, id: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, host], id))
}

fn payload(echo: &Echo, datagram: &[u8]) -> Vec<u8> {
    [&echo.head[..], datagram].concat()
}

/// Both ends, without a network between them.
struct Pair {
    asks: Requester,
    answers: Responder,
    random: Counting,
    from: SocketAddr,
}

impl Pair {
    /// Two that have shaken hands.
    fn new() -> Self {
        let mut pair = Self {
            asks: Requester::new(7, 65_530, POLL),
            answers: Responder::new(),
            random: Counting::default(),
            from: at(1, 4000),
        };
        let echo = pair.asks.handle_datagram(ms(0));
        assert_eq!(pair.ask(&echo, &initiation(), ms(0)).as_deref(), Some(&initiation()[..]));
        let (got, echo) = pair.answer(&response(), ms(0));
        assert!(got && echo.is_some_and(|echo| echo.sequence == 65_530));
        pair
    }

    fn ask(&mut self, echo: &Echo, datagram: &[u8], now: Instant) -> Option<Vec<u8>> {
        let bytes = payload(echo, datagram);
        let found = self.answers.handle_request(self.from, echo.sequence, &bytes, now)?;
        Some(bytes[found].to_vec())
    }

    /// Sends a datagram back; whether it arrived, and in which reply it was put at once.
    fn answer(&mut self, datagram: &[u8], now: Instant) -> (bool, Option<Echo>) {
        let echo = self.answers.handle_datagram(self.from, datagram, &mut self.random, now);
        let Some(echo) = echo else { return (false, None) };
        let bytes = payload(&echo, datagram);
        let found = self.asks.handle_reply(echo.sequence, &bytes, now);
        (found.is_some_and(|found| bytes[found] == *datagram), Some(echo))
    }

    /// All requests that are due now reach the responder; how many there were.
    fn refill(&mut self, now: Instant) -> usize {
        let mut count = 0;
        while let Some(echo) = self.asks.poll_request(now) {
            self.ask(&echo, &[], now);
            count += 1;
        }
        count
    }
}

#[test]
fn source_004_5_each_reply_answers_a_request_of_its_own_the_oldest_first() {
    let mut pair = Pair::new();
    let mut asked = Vec::new();
    for n in 0..10 {
        let echo = pair.asks.handle_datagram(ms(n));
        pair.ask(&echo, &transport(), ms(n));
        asked.push(echo.sequence);
    }
    let answered: Vec<u16> = (0..10)
        .map(|n| pair.answer(&transport(), ms(20 + n)).1.expect("a request is kept").sequence)
        .collect();
    assert_eq!(answered, asked, "also where the numbers begin anew");
    assert_eq!(pair.answer(&transport(), ms(40)), (false, None), "there is none left");
    assert_eq!(pair.answers.queued(), 1);
}

#[test]
fn source_004_6_a_dry_pool_is_told_and_requests_come_at_once() {
    let mut pair = Pair::new();
    pair.refill(ms(1));
    while pair.answer(&transport(), ms(2)).0 {}
    for _ in 0..4 {
        pair.answer(&transport(), ms(2));
    }
    assert_eq!((pair.answers.queued(), pair.answers.counters().dry), (5, 1));
    // The last reply said that there is none left, so one comes without waiting for its time.
    assert!(pair.refill(ms(3)) >= 1);
    let mut out = Vec::new();
    let mut sent = 0;
    for turn in 3..20 {
        while let Some((_, echo)) = pair.answers.poll_reply(&mut out, ms(turn)) {
            let bytes = payload(&echo, &out);
            assert!(pair.asks.handle_reply(echo.sequence, &bytes, ms(turn)).is_some());
            out.clear();
            sent += 1;
        }
        pair.refill(ms(turn));
    }
    assert_eq!((sent, pair.answers.queued()), (5, 0));
    assert!(pair.asks.counters().dry >= 1);
}

#[test]
fn source_004_6_what_finds_no_request_waits_within_its_bound_and_is_counted() {
    let mut pair = Pair::new();
    for _ in 0..3 {
        assert_eq!(pair.answer(&transport(), ms(0)), (false, None));
    }
    let due = pair.answers.poll_timeout().expect("something waits");
    assert!(due.since(ms(0)) <= WAIT_MAX + Duration::from_millis(2));
    let mut out = Vec::new();
    assert_eq!(pair.answers.poll_reply(&mut out, due), None);
    assert_eq!((pair.answers.queued(), pair.answers.counters().stale), (0, 3));
    for _ in 0..10_000 {
        pair.answer(&transport(), ms(900));
    }
    assert!(pair.answers.queued() * 128 <= WAIT_LEN_MAX);
    assert!(pair.answers.counters().overflow > 0);
}

#[test]
fn source_004_6_an_idle_link_asks_as_often_as_is_said_and_learns_what_filters_remember() {
    for (poll, most) in [(2_000, 40), (10_000, 40), (100, 620)] {
        let mut pair = Pair::new();
        pair.asks.set_poll(Duration::from_millis(poll));
        let mut now = ms(0);
        let end = ms(60_000);
        let mut count = 0;
        while now < end {
            let mut out = Vec::new();
            while let Some((_, echo)) = pair.answers.poll_reply(&mut out, now) {
                pair.asks.handle_reply(echo.sequence, &payload(&echo, &out), now);
            }
            count += pair.refill(now);
            let due = pair.asks.poll_timeout().into_iter().chain(pair.answers.poll_timeout());
            now = due.min().expect("an idle link is kept").max(now + Duration::from_millis(1));
        }
        assert!((1..=most).contains(&count), "{count} requests in a minute at {poll} ms");
        assert!(pair.answers.held() >= 1, "there is always one to answer");
        assert!(
            pair.asks.life() >= Duration::from_millis(poll.min(4_000)),
            "{:?}",
            pair.asks.life()
        );
    }
}

/// The share that arrives of ten datagrams a millisecond for a second, with a round trip of 20 ms,
/// after one in 20 ms each way for `quiet` milliseconds.
fn download(quiet: u64) -> f64 {
    let mut pair = Pair::new();
    pair.refill(ms(1));
    let mut ways: BTreeMap<u64, Vec<(bool, u16, Vec<u8>)>> = BTreeMap::new();
    let (mut arrived, mut sent) = (0, 0);
    let mut out = Vec::new();
    for turn in 1..quiet + 1_000 {
        let now = ms(turn);
        for (is_request, sequence, bytes) in ways.remove(&turn).unwrap_or_default() {
            if is_request {
                pair.answers.handle_request(pair.from, sequence, &bytes, now);
            } else {
                let came = pair.asks.handle_reply(sequence, &bytes, now).is_some();
                arrived += u32::from(came && turn > quiet + 20);
            }
        }
        let back = ways.entry(turn + 10).or_default();
        while let Some((_, echo)) = pair.answers.poll_reply(&mut out, now) {
            back.push((false, echo.sequence, payload(&echo, &out)));
            out.clear();
        }
        let is_quiet = turn <= quiet;
        let count = if is_quiet { u32::from(turn % 20 == 0) } else { 10 };
        sent += if is_quiet { 0 } else { count };
        for _ in 0..count {
            let datagram = transport();
            let echo = pair.answers.handle_datagram(pair.from, &datagram, &mut pair.random, now);
            back.extend(echo.map(|echo| (false, echo.sequence, payload(&echo, &datagram))));
        }
        if is_quiet && turn % 20 == 0 {
            let echo = pair.asks.handle_datagram(now);
            back.push((true, echo.sequence, payload(&echo, &transport())));
        }
        while let Some(echo) = pair.asks.poll_request(now) {
            back.push((true, echo.sequence, echo.head.to_vec()));
        }
    }
    assert!(pair.answers.held() <= HELD_MAX);
    f64::from(arrived) / f64::from(sent)
}

#[test]
fn a_download_gets_as_many_requests_as_it_needs_also_after_a_while_of_little() {
    let shares = [0, 700, 3_000].map(download);
    assert!(shares.iter().all(|share| *share > 0.85), "{shares:?}");
}

#[test]
fn strangers_get_no_more_than_they_sent_and_take_no_place() {
    let mut pair = Pair::new();
    pair.refill(ms(1));
    let kept = pair.answers.held();
    let before = *pair.answers.counters();
    for n in 0..84_000_u32 {
        let from = SocketAddr::from((n.to_be_bytes(), n as u16));
        let (hold, head) = ((n % 2) as u8, Request::default());
        let request = Request { cookie: n, tag: n, life: 255, hold, ..head };
        let datagram = if n % 3 == 0 { initiation() } else { Vec::new() };
        let bytes = [&request.bytes()[..], &datagram].concat();
        pair.answers.handle_request(from, n as u16, &bytes, ms(2));
        if n % 3 == 0 {
            let reply = cookie_reply();
            let echo = pair.answers.handle_datagram(from, &reply, &mut pair.random, ms(2));
            let echo = echo.expect("a stranger may be told of a cookie");
            assert_eq!(Reply::parse(&echo.head).expect("a head").cookie, 0);
            assert!(echo.head.len() + reply.len() <= bytes.len());
            let again = pair.answers.handle_datagram(from, &reply, &mut pair.random, ms(2));
            assert_eq!(again, None, "once for each request");
        }
    }
    assert_eq!(pair.answers.held(), kept);
    assert_eq!(pair.answers.counters().strange - before.strange, 56_000);
    assert!(pair.answer(&transport(), ms(3)).0, "who has a place is served");
    // A request without a place that is short gets nothing long.
    let from = at(9, 9);
    let request = Request { tag: 1, ..Request::default() }.bytes();
    let bytes = [&request[..], &cookie_reply()].concat();
    pair.answers.handle_request(from, 1, &bytes, ms(3));
    let long = message(1, 148);
    assert_eq!(pair.answers.handle_datagram(from, &long, &mut pair.random, ms(3)), None);
}

#[test]
fn who_copies_address_and_identifier_without_the_cookie_adds_no_request() {
    let mut pair = Pair::new();
    let forged = Request { cookie: 1, tag: 7, life: 40, ..Request::default() };
    for sequence in 0..100 {
        pair.answers.handle_request(pair.from, sequence, &forged.bytes(), ms(1));
    }
    assert_eq!(pair.answer(&transport(), ms(2)), (false, None));
}

#[test]
fn requests_that_come_twice_are_answered_once_and_expired_ones_never() {
    let mut pair = Pair::new();
    let echo = pair.asks.handle_datagram(ms(1));
    assert!(pair.ask(&echo, &transport(), ms(1)).is_some());
    assert!(pair.ask(&echo, &transport(), ms(2)).is_none());
    assert_eq!(pair.answers.counters().duplicates, 1);
    assert!(pair.answer(&transport(), ms(3)).0);
    assert_eq!(pair.answer(&transport(), ms(4)), (false, None));
    let mut pair = Pair::new();
    let echo = pair.asks.handle_datagram(ms(1));
    pair.ask(&echo, &transport(), ms(1));
    let life = pair.asks.life();
    assert_eq!(pair.answer(&transport(), ms(1) + life), (false, None));
    assert_eq!(pair.answers.counters().expired, 1);
}

#[test]
fn replies_are_taken_once_and_only_from_the_responder() {
    let mut pair = Pair::new();
    let echo = pair.asks.handle_datagram(ms(1));
    pair.ask(&echo, &transport(), ms(1));
    let datagram = transport();
    let reply = pair.answers.handle_datagram(pair.from, &datagram, &mut pair.random, ms(1));
    let reply = reply.expect("a request is kept");
    let bytes = payload(&reply, &datagram);
    let mut take = |bytes: &[u8]| pair.asks.handle_reply(reply.sequence, bytes, ms(2));
    assert_eq!(take(&payload(&echo, &datagram)), None, "an ordinary host repeats what it got");
    let mut other = bytes.clone();
    other[0] ^= 1;
    assert_eq!(take(&other), None, "another tag");
    assert_eq!(take(&bytes[..HEAD_LEN - 1]), None, "cut off");
    assert_eq!(take(&bytes), Some(HEAD_LEN..bytes.len()));
    assert_eq!(take(&bytes), None, "again");
    let counters = *pair.asks.counters();
    assert_eq!((counters.echoed, counters.foreign, counters.duplicates), (1, 2, 1));
}

#[test]
fn a_responder_that_restarted_gives_a_new_place_with_the_next_handshake() {
    let mut pair = Pair::new();
    pair.answers = Responder::new();
    pair.random = Counting(100);
    let echo = pair.asks.handle_datagram(ms(1));
    assert!(pair.ask(&echo, &transport(), ms(1)).is_some(), "the owner may look at it");
    let echo = pair.asks.handle_datagram(ms(2));
    assert!(pair.ask(&echo, &initiation(), ms(2)).is_some());
    assert!(pair.answer(&response(), ms(2)).0);
    let echo = pair.asks.handle_datagram(ms(3));
    assert!(pair.ask(&echo, &transport(), ms(3)).is_some());
    assert!(pair.answer(&transport(), ms(3)).0);
}

#[test]
fn a_responder_that_restarted_counts_anew_and_is_not_taken_for_a_filter_that_counts() {
    let mut pair = Pair::new();
    for turn in 1..3_000 {
        let echo = pair.asks.handle_datagram(ms(turn));
        pair.ask(&echo, &transport(), ms(turn));
        assert!(pair.answer(&transport(), ms(turn)).0);
    }
    pair.answers = Responder::new();
    pair.random = Counting(100);
    let echo = pair.asks.handle_datagram(ms(3_001));
    pair.ask(&echo, &initiation(), ms(3_001));
    assert!(pair.answer(&response(), ms(3_001)).0);
    // Ten a millisecond go back, and nothing but requests that are asked for goes out.
    let mut out = Vec::new();
    for turn in 3_002..5_000 {
        for _ in 0..10 {
            pair.answer(&transport(), ms(turn));
        }
        while let Some((_, echo)) = pair.answers.poll_reply(&mut out, ms(turn)) {
            pair.asks.handle_reply(echo.sequence, &payload(&echo, &out), ms(turn));
            out.clear();
        }
        pair.refill(ms(turn));
    }
    let of = pair.answers.counters();
    let share = (of.replies - of.empty) as f64 / of.datagrams as f64;
    assert!(share > 0.85, "{share} of all went: {of:?}");
}

#[test]
fn places_are_bounded_and_only_the_forgotten_are_given_to_others() {
    let mut answers = Responder::new();
    let mut random = Counting::default();
    let mut known = BTreeSet::new();
    for n in 0..PLACES_MAX as u32 + 10 {
        let from = SocketAddr::from(((0x0a00_0000 + n).to_be_bytes(), 1));
        let request = Request { tag: n, ..Request::default() }.bytes();
        let bytes = [&request[..], &initiation()].concat();
        answers.handle_request(from, 1, &bytes, ms(0));
        let echo = answers.handle_datagram(from, &response(), &mut random, ms(0));
        let echo = echo.expect("it is answered all the same");
        if Reply::parse(&echo.head).is_some_and(|reply| reply.cookie != 0) {
            known.insert(from);
        }
    }
    assert_eq!((known.len(), answers.counters().crowded), (PLACES_MAX, 10));
    let request = Request::default().bytes();
    let bytes = [&request[..], &initiation()].concat();
    let later = ms(181_000);
    answers.handle_request(at(1, 1), 1, &bytes, later);
    let echo = answers.handle_datagram(at(1, 1), &response(), &mut random, later);
    let reply = echo.and_then(|echo| Reply::parse(&echo.head));
    assert!(reply.is_some_and(|reply| reply.cookie != 0));
}

/// Both ends of a network's: who asks, after it was given its cookie.
fn known(answers: &mut Responder, from: SocketAddr) -> Requester {
    let mut asks = Requester::for_network(7, 100, POLL);
    let echo = asks.knock(ms(0));
    let bytes = payload(&echo, &[0; PADDING_LEN as usize]);
    assert_eq!(answers.handle_request(from, echo.sequence, &bytes, ms(0)), None);
    let mut out = Vec::new();
    let (to, reply) = answers.poll_reply(&mut out, ms(0)).expect("the cookie");
    assert_eq!((to, reply.sequence, out.len()), (from, 100, 0), "no longer than what was asked");
    assert_eq!(asks.handle_reply(reply.sequence, &reply.head, ms(0)), None);
    assert!(asks.is_known());
    asks
}

/// The same after its first request with the cookie, for which it has a place.
fn placed(answers: &mut Responder, from: SocketAddr) -> Requester {
    let mut asks = known(answers, from);
    let echo = asks.handle_datagram(ms(0));
    assert!(answers.handle_request(from, echo.sequence, &payload(&echo, &[1]), ms(0)).is_some());
    asks
}

#[test]
fn nt_13_in_a_network_a_cookie_is_all_that_a_newcomer_gets_for_its_first_request() {
    let mut answers = Responder::for_network(&mut Counting::default());
    for n in 0..200 {
        // Whatever it carries, from wherever it says that it comes.
        let head = Request { cookie: n, tag: n, ..Request::default() };
        let bytes = [&head.bytes()[..], &transport()].concat();
        assert_eq!(answers.handle_request(at(n as u8, n as u16), 1, &bytes, ms(0)), None);
    }
    assert_eq!(answers.held(), KNOCKS_MAX, "no place, and few answers that wait");
    let mut out = Vec::new();
    while answers.poll_reply(&mut out, ms(0)).is_some() {}
    assert_eq!((out.len(), answers.held()), (0, 0));
    let of = *answers.counters();
    assert_eq!((of.requests, of.replies, of.empty), (200, 64, 64));
    assert_eq!(of.expired, 136);
    assert_eq!(answers.handle_datagram(at(1, 1), &[7; 9], &mut Counting::default(), ms(0)), None);
    assert_eq!(answers.counters().unasked, 1);
}

#[test]
fn nt_13_who_proved_nothing_gets_no_more_bytes_than_it_sent_and_who_did_does() {
    let (from, mut random) = (at(1, 4000), Counting::default());
    let mut answers = Responder::for_network(&mut random);
    let mut asks = known(&mut answers, from);
    let (echo, small) = (asks.handle_datagram(ms(1)), [7; 100]);
    let bytes = payload(&echo, &small);
    let found = answers.handle_request(from, echo.sequence, &bytes, ms(1)).expect("a datagram");
    assert_eq!(bytes[found], small);
    assert_eq!(answers.handle_datagram(from, &[8; 101], &mut random, ms(1)), None, "it waits");
    let mut out = Vec::new();
    assert_eq!(answers.poll_reply(&mut out, ms(1)), None);
    // A request that is long enough lets it go, and is empty itself.
    let poll = asks.knock(ms(2));
    let bytes = payload(&poll, &[0; PADDING_LEN as usize]);
    assert_eq!(answers.handle_request(from, poll.sequence, &bytes, ms(2)), None);
    let (_, reply) = answers.poll_reply(&mut out, ms(2)).expect("there is room now");
    assert_eq!((reply.sequence, out.len()), (poll.sequence, 101));
    assert_eq!(Reply::parse(&reply.head).map(|reply| reply.is_proven), Some(false));
    // Requests of who proved a key are answered with whatever is to be said.
    assert!(answers.prove(from, ms(3)));
    let reply = answers.handle_datagram(from, &[8; 1400], &mut random, ms(3)).expect("at once");
    assert_eq!(reply.sequence, echo.sequence);
    asks.handle_reply(reply.sequence, &payload(&reply, &[8; 1400]), ms(3));
    assert_eq!(asks.knock(ms(4)).padding, 0, "padding is of no use any more");
    assert!(!answers.prove(at(9, 9), ms(4)), "nobody asked from there");
}

#[test]
fn nt_13_those_who_proved_nothing_displace_each_other_and_nobody_else() {
    let mut answers = Responder::for_network(&mut Counting::default());
    let member = at(1, 4000);
    placed(&mut answers, member);
    assert!(answers.prove(member, ms(0)));
    for id in 0..200 {
        placed(&mut answers, at(2, id));
    }
    for host in 0..200 {
        (0..20).for_each(|id| drop(placed(&mut answers, at(host, 5000 + id))));
    }
    assert!(answers.counters().crowded > 3000);
    let mut random = Counting::default();
    let mut asks = Requester::for_network(7, 300, POLL);
    let echo = asks.knock(ms(1));
    answers.handle_request(member, echo.sequence, &payload(&echo, &[0; 9]), ms(1));
    let mut out = Vec::new();
    let (_, reply) = answers.poll_reply(&mut out, ms(1)).expect("its cookie again");
    asks.handle_reply(reply.sequence, &reply.head, ms(1));
    let echo = asks.handle_datagram(ms(2));
    assert!(
        answers.handle_request(member, echo.sequence, &payload(&echo, &[5]), ms(2)).is_some(),
        "it is where it was"
    );
    assert!(answers.handle_datagram(member, &[1; 1400], &mut random, ms(2)).is_some());
    let of = *answers.counters();
    let spent = of.malformed + of.strange + of.duplicates + of.expired + of.replies;
    assert_eq!(of.requests, spent + answers.held() as u64, "{of:?}");
    let went = of.replies - of.empty + answers.queued() as u64;
    assert_eq!(of.datagrams, went + of.stale + of.overflow + of.unasked, "{of:?}");
}
