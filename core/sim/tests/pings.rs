//! Random worlds of requesters and a responder of ICMP: losses, duplicates and other orders each
//! way, filters that forget, a translator that gives new identifiers, two requesters behind one
//! address, strangers, and a responder that restarts.
//!
//! In all of them: no reply without a request of its own; every request and every datagram is
//! somewhere; memory keeps its bounds; and in good weather afterwards everything arrives.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use carrier::icmp::{
    Echo, GUESTS_MAX, HELD_MAX, POLL, Requester, Responder, ResponderCounters, WAIT_LEN_MAX,
};
use noise::{Instant, Random};
use sim::impair::{Impairment, Pipe, Verdict};
use sim::rng::Rng;
use wire::ping::Request;

const MS: u64 = 1_000_000;
/// The weather is bad for so long, and then good.
const STORM: u64 = 30_000 * MS;
const END: u64 = 60_000 * MS;

struct Seeded(Rng);

impl Random for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.0.next_u64() as u8);
    }
}

enum Event {
    /// A request reaches the responder.
    Request(SocketAddr, u16, Vec<u8>),
    /// A reply reaches a requester: which, and what it was sent by.
    Reply(SocketAddr, u16, Vec<u8>),
}

/// What stands before the rest of a datagram of the type.
fn message(kind: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[0] = kind;
    bytes
}

struct Site {
    asks: Requester,
    /// As the translator calls it, and when that was used last.
    outside: SocketAddr,
    used: u64,
    heard: u64,
    has_session: bool,
    /// Where the responder's owner believes it to be.
    known: Option<SocketAddr>,
    sent_back: u64,
    came_back: u64,
}

struct World {
    now: u64,
    rng: Rng,
    sites: Vec<Site>,
    answers: Responder,
    gone: ResponderCounters,
    random: Seeded,
    ways: [Pipe; 2],
    events: BTreeMap<(u64, u64), Event>,
    count: u64,
    /// Requests that came and have no reply, by responder life.
    open: BTreeMap<(SocketAddr, u16), u32>,
    /// How long filters remember, and what.
    memory: u64,
    filter: BTreeMap<(SocketAddr, u16), u64>,
    unasked: u64,
    names: BTreeSet<SocketAddr>,
}

fn weather(rng: &mut Rng) -> Impairment {
    Impairment {
        delay_us: 1_000 + rng.below(100_000),
        jitter_us: rng.below(1_000),
        loss: rng.unit() * 0.1,
        reorder: rng.unit() * 0.05,
        duplicate: rng.unit() * 0.05,
        ..Impairment::NONE
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let sites = (0..1 + rng.below(2)).map(|n| Site {
            asks: Requester::new(rng.next_u64() as u32, rng.next_u64() as u16, POLL),
            outside: SocketAddr::from(([192, 0, 2, 1], n as u16)),
            used: 0,
            heard: 0,
            has_session: false,
            known: None,
            sent_back: 0,
            came_back: 0,
        });
        let sites: Vec<Site> = sites.collect();
        let names = sites.iter().map(|site| site.outside).collect();
        let ways = [0, 1].map(|n| Pipe::new(weather(&mut rng), seed ^ n).expect("sound"));
        let memory = (5_000 + rng.below(20_000)) * MS;
        Self {
            now: 0,
            random: Seeded(rng.fork(1)),
            rng,
            sites,
            answers: Responder::new(),
            gone: ResponderCounters::default(),
            ways,
            events: BTreeMap::new(),
            count: 0,
            open: BTreeMap::new(),
            memory,
            filter: BTreeMap::new(),
            unasked: 0,
            names,
        }
    }

    fn instant(&self) -> Instant {
        Instant(self.now + 1)
    }

    fn carry(&mut self, way: usize, event: impl Fn() -> Event) {
        if let Verdict::Deliver { at_ns, again_at_ns } = self.ways[way].offer(self.now, 100) {
            for at in [Some(at_ns), again_at_ns].into_iter().flatten() {
                self.count += 1;
                self.events.insert((at, self.count), event());
            }
        }
    }

    /// A request leaves a site, through the translator and the filter.
    fn ask(&mut self, site: usize, echo: &Echo, datagram: &[u8]) {
        let (now, memory) = (self.now, self.memory);
        let fresh = self.rng.next_u64() as u16;
        let it = &mut self.sites[site];
        if now - it.used > memory && it.used > 0 {
            let name = SocketAddr::new(it.outside.ip(), fresh);
            if self.names.insert(name) {
                it.outside = name;
            }
        }
        it.used = now;
        let from = it.outside;
        self.filter.insert((from, echo.sequence), now);
        let bytes = [&echo.head[..], datagram].concat();
        self.carry(0, || Event::Request(from, echo.sequence, bytes.clone()));
    }

    /// A reply leaves the responder: there was a request for it, and it had no other.
    fn answer(&mut self, to: SocketAddr, echo: &Echo, datagram: &[u8]) {
        let count = self.open.get_mut(&(to, echo.sequence)).filter(|count| **count > 0);
        *count.expect("a request came for each reply") -= 1;
        let asked = self.filter.get(&(to, echo.sequence)).copied();
        if asked.is_none_or(|at| self.now - at > self.memory) {
            self.unasked += 1;
            return;
        }
        let bytes = [&echo.head[..], datagram].concat();
        self.carry(1, || Event::Reply(to, echo.sequence, bytes.clone()));
    }

    fn push_back(&mut self, to: SocketAddr, datagram: &[u8]) {
        let now = self.instant();
        if let Some(echo) = self.answers.handle_datagram(to, datagram, &mut self.random, now) {
            self.answer(to, &echo, datagram);
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.instant();
        match event {
            Event::Request(from, sequence, bytes) => {
                *self.open.entry((from, sequence)).or_default() += 1;
                let found = self.answers.handle_request(from, sequence, &bytes, now);
                let Some(found) = found else { return };
                // Only authentic datagrams tell where a site is.
                let site = self.sites.iter().position(|site| site.outside == from);
                let Some(site) = site else { return };
                match bytes[found][0] {
                    1 => {
                        self.sites[site].known = Some(from);
                        self.push_back(from, &message(2, 92));
                    }
                    _ if self.sites[site].has_session => self.sites[site].known = Some(from),
                    _ => {}
                }
            }
            Event::Reply(to, sequence, bytes) => {
                let Some(site) = self.sites.iter_mut().find(|site| site.outside == to) else {
                    return;
                };
                if let Some(found) = site.asks.handle_reply(sequence, &bytes, now) {
                    site.heard = self.now;
                    site.came_back += u64::from(bytes[found.start] == 4);
                    site.has_session |= bytes[found.start] == 2;
                }
            }
        }
    }

    /// What the sites and the responder's owner want sent in this millisecond.
    fn step(&mut self) {
        let is_storm = self.now < STORM;
        for site in 0..self.sites.len() {
            let quiet = self.now - self.sites[site].heard;
            let at = self.instant();
            if quiet > 5_000 * MS && self.now.is_multiple_of(2_000 * MS) || self.now == 0 {
                let echo = self.sites[site].asks.handle_datagram(at);
                self.ask(site, &echo, &message(1, 148));
            }
            if self.sites[site].has_session && self.rng.chance(0.1) {
                let echo = self.sites[site].asks.handle_datagram(at);
                self.ask(site, &echo, &message(4, 32));
            }
            // Back goes four times as much, in bursts.
            let burst = if self.rng.chance(0.02) { self.rng.below(40) } else { 0 };
            if let Some(to) = self.sites[site].known {
                self.sites[site].sent_back += if is_storm { 0 } else { burst };
                (0..burst).for_each(|_| self.push_back(to, &message(4, 64)));
            }
            while let Some(echo) = self.sites[site].asks.poll_request(at) {
                self.ask(site, &echo, &[]);
            }
        }
        let mut out = Vec::new();
        let at = self.instant();
        while let Some((to, echo)) = self.answers.poll_reply(&mut out, at) {
            self.answer(to, &echo, &std::mem::take(&mut out));
        }
        if is_storm && self.rng.chance(0.01) {
            let name = SocketAddr::from(([203, 0, 113, 1], self.rng.next_u64() as u16));
            let head = Request { cookie: 9, tag: 9, life: 255, ..Request::default() }.bytes();
            let bytes = [&head[..], &message(1, 148)].concat();
            self.handle(Event::Request(name, 7, bytes));
        }
        if is_storm && self.rng.chance(0.0001) {
            self.restart();
        }
    }

    fn restart(&mut self) {
        self.check();
        self.gone = ResponderCounters::default();
        self.answers = Responder::new();
        self.open.clear();
        self.sites.iter_mut().for_each(|site| site.known = None);
    }

    fn check(&self) {
        let of = self.answers.counters();
        let (held, queued) = (self.answers.held() as u64, self.answers.queued() as u64);
        let spent = of.malformed + of.strange + of.duplicates + of.expired + of.replies;
        assert_eq!(of.requests, spent + held, "requests: {of:?}, {held} held");
        let went = of.replies - of.empty + queued + of.stale + of.overflow + of.unasked;
        assert_eq!(of.datagrams, went, "datagrams: {of:?}, {queued} wait");
        assert!(self.answers.held() <= self.names.len() * HELD_MAX + GUESTS_MAX + 256);
        assert!(self.answers.queued() * 64 <= self.names.len() * WAIT_LEN_MAX);
    }

    fn run(mut self) -> f64 {
        while self.now < END {
            while self.events.first_key_value().is_some_and(|(at, _)| at.0 <= self.now)
                && let Some((_, event)) = self.events.pop_first()
            {
                self.handle(event);
            }
            self.step();
            self.now += MS;
            if self.now == STORM {
                for way in &mut self.ways {
                    let calm = Impairment { delay_us: 30_000, ..Impairment::NONE };
                    way.set_impairment(calm).expect("sound");
                }
                for site in &mut self.sites {
                    (site.sent_back, site.came_back) = (0, 0);
                }
            }
            if self.now.is_multiple_of(1_000 * MS) {
                self.check();
            }
        }
        let of = |get: fn(&Site) -> u64| self.sites.iter().map(get).sum::<u64>() as f64;
        of(|site| site.came_back) / of(|site| site.sent_back)
    }
}

#[test]
fn every_world_of_pings_pairs_counts_and_recovers() {
    let mut shares: Vec<f64> = (0..60).map(|seed| World::new(seed).run()).collect();
    shares.sort_by(f64::total_cmp);
    assert!(shares[0] > 0.4 && shares[shares.len() / 2] > 0.8, "{shares:?}");
}
