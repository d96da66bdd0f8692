//! Which gateway a subnet is reached through, when several could.
//!
//! Several nodes may serve one prefix, so that one may fail. The server approves, both ends
//! enforce; which of them a node uses is its own decision, since only it knows to whom its own
//! path works. This crate is that decision and nothing else: it is told of prefixes, gateways and
//! their health, and says through whom each prefix goes. It sends nothing and asks no clock.
//!
//! The life of one failover, for 10.20.0.0/16 behind the gateways 3 and 7:
//!
//! 1. [`Choices::set`] tells of the prefix and its candidates. Both have a direct path; the lower
//!    number wins, so that all nodes choose alike: 3.
//! 2. 3 freezes. Its path finds that nothing is acknowledged any more and the shell calls
//!    [`Choices::handle_health`] with [`Health::Dead`]. For [`GRACE`] nothing happens: one
//!    lost probe is no failure. [`Choices::poll_timeout`] says when to ask again.
//! 3. [`Choices::poll_change`] gives the prefix to 7. The shell moves the prefix among the peers'
//!    allowed addresses; connections that were translated by 3 break, others go on.
//! 4. 3 comes back. The prefix stays with 7: to change back would break connections once more and
//!    gain nothing. Only a better kind of path moves a prefix that works: from a relay to a
//!    direct one that has been there for [`HOLD`], and longer the more often it fell.
//! 5. Both are dead: the prefix stays where it was, so that its packets are dropped there and do
//!    not leave this machine by another way.
//!
//! Default routes lead to one Internet, whichever exit is taken; so there a nearer exit is better.
//! [`Choices::handle_rtt`] tells how near each is. Of those that are reached alike the one with the
//! least round trip, by its power of two, is chosen. One that works is left for another only if the
//! other's round trip has been less than half for [`HOLD`], and longer the more often it fell. For
//! all other prefixes the round trip does not count: the ends of a site choose alike.
//!
//! A gateway that falls again and again is avoided for a pause that doubles up to
//! [`PENALTY_MAX`], as long as there is another.
//!
//! On the other side, [`shared`] says which of two gateways answers the machines of their LAN, and
//! [`led`] when it sets the routes of a provider to itself. [`outward`] says when one that reaches
//! no other site leaves them to the other one.

#![forbid(unsafe_code)]

pub mod led;
pub mod outward;
pub mod shared;

use core::time::Duration;
use std::collections::BTreeMap;

use noise::Instant;
use wire::prefix::Prefix;

/// How long a gateway may be dead before another takes over.
pub const GRACE: Duration = Duration::from_secs(1);
/// How long a better path must have been there before a prefix that works moves to it.
pub const HOLD: Duration = Duration::from_secs(30);
/// How long a gateway that fell once is avoided after it came back; doubles with each fall.
pub const PENALTY: Duration = Duration::from_secs(15);
/// The longest such pause.
pub const PENALTY_MAX: Duration = Duration::from_secs(300);
/// A gateway that was alive for so long has not fallen before.
const FORGIVEN: Duration = Duration::from_secs(600);
/// Falls that are told apart; more make no longer pause.
const FALLS_MAX: u32 = 6;

/// A gateway, by its number in the server's books.
pub type Gateway = u64;

/// How well a gateway is reached, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// No path to it carries data.
    Dead,
    /// Through a relay.
    Relayed,
    /// Directly.
    Direct,
}

/// What is known of one gateway.
#[derive(Clone, Copy, Debug)]
struct Record {
    health: Health,
    /// Since when it has been so.
    since: Instant,
    /// Since when it has not been dead; without meaning while it is.
    alive_since: Instant,
    falls: u32,
    /// Its round trip, while it is known.
    rtt_us: Option<u32>,
}

impl Record {
    const fn new(now: Instant) -> Self {
        Self { health: Health::Dead, since: now, alive_since: now, falls: 0, rtt_us: None }
    }

    /// The round trip's power of two; one that is not known is the longest.
    fn slowness(&self) -> u32 {
        self.rtt_us.unwrap_or(u32::MAX).max(1).ilog2()
    }

    /// Whether it is reached as `other` is, in less than half of its time.
    fn is_nearer_than(&self, other: &Self) -> bool {
        let is_alike = self.health == other.health && self.health != Health::Dead;
        let half = self.rtt_us.zip(other.rtt_us).is_some_and(|(own, other)| own < other / 2);
        is_alike && half
    }
}

/// One prefix.
#[derive(Clone, Debug, Default)]
struct Route {
    candidates: Vec<Gateway>,
    chosen: Option<Gateway>,
    /// Since when candidates are nearer by half than the chosen one; of a default route only.
    nearer: BTreeMap<Gateway, Instant>,
}

impl Route {
    /// Notes who is nearer than the chosen one now.
    fn note_nearer(&mut self, gateways: &BTreeMap<Gateway, Record>, now: Instant) {
        let current = self.chosen.and_then(|chosen| gateways.get(&chosen));
        let is_nearer = |gateway: &Gateway| {
            let record = gateways.get(gateway);
            record.zip(current).is_some_and(|(record, current)| record.is_nearer_than(current))
        };
        let nearer = self.candidates.iter().copied().filter(is_nearer);
        let since = |gateway| (gateway, self.nearer.get(&gateway).copied().unwrap_or(now));
        self.nearer = nearer.map(since).collect();
    }
}

/// A gateway as one prefix sees it.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    gateway: Gateway,
    record: Record,
    /// Less is better; all are equal where the round trip does not count.
    slowness: u32,
    /// Since when it is nearer by half than the chosen one.
    nearer: Option<Instant>,
}

/// A prefix goes through another gateway from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which prefix.
    pub prefix: Prefix,
    /// Through whom; `None` if nobody serves it any more.
    pub gateway: Option<Gateway>,
}

/// All prefixes and through whom they go.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    gateways: BTreeMap<Gateway, Record>,
    routes: BTreeMap<Prefix, Route>,
    gone: Vec<Prefix>,
}

impl Choices {
    /// Serves these prefixes by these gateways from now on. Gateways that are new are dead until
    /// something else is told of them.
    pub fn set(&mut self, wanted: &BTreeMap<Prefix, Vec<Gateway>>, now: Instant) {
        let gone = self.routes.iter().filter(|(prefix, _)| !wanted.contains_key(*prefix));
        let told = gone.filter(|(_, route)| route.chosen.is_some()).map(|(prefix, _)| *prefix);
        self.gone.extend(told.collect::<Vec<_>>());
        self.routes.retain(|prefix, _| wanted.contains_key(prefix));
        for (prefix, candidates) in wanted {
            let route = self.routes.entry(*prefix).or_default();
            route.candidates.clone_from(candidates);
            route.candidates.sort_unstable();
            route.candidates.dedup();
            self.gone.retain(|p| p != prefix);
        }
        let named = |g: &Gateway| self.routes.values().any(|r| r.candidates.contains(g));
        let kept: Vec<Gateway> = self.gateways.keys().copied().filter(named).collect();
        self.gateways.retain(|g, _| kept.contains(g));
        for gateway in wanted.values().flatten() {
            self.gateways.entry(*gateway).or_insert_with(|| Record::new(now));
        }
        self.note_nearer(now);
    }

    /// Only of default routes: nothing else is chosen by round trips.
    fn note_nearer(&mut self, now: Instant) {
        let defaults = self.routes.iter_mut().filter(|(prefix, _)| prefix.is_default());
        defaults.for_each(|(_, route)| route.note_nearer(&self.gateways, now));
    }

    /// Takes what is found of a gateway; nothing changes if it is known or nobody's candidate.
    pub fn handle_health(&mut self, gateway: Gateway, health: Health, now: Instant) {
        let Some(record) = self.gateways.get_mut(&gateway) else { return };
        if record.health == health {
            return;
        }
        if record.health == Health::Dead {
            record.alive_since = now;
        } else if health == Health::Dead {
            let forgiven = now.since(record.alive_since) >= FORGIVEN;
            record.falls = if forgiven { 1 } else { (record.falls + 1).min(FALLS_MAX) };
        }
        record.health = health;
        record.since = now;
        self.note_nearer(now);
    }

    /// Takes the round trip to a gateway, none if it is not known; it counts for default routes.
    pub fn handle_rtt(&mut self, gateway: Gateway, rtt_us: Option<u32>, now: Instant) {
        let Some(record) = self.gateways.get_mut(&gateway) else { return };
        record.rtt_us = rtt_us;
        self.note_nearer(now);
    }

    /// The next prefix that goes through another gateway; call until there is none.
    pub fn poll_change(&mut self, now: Instant) -> Option<Change> {
        if let Some(prefix) = self.gone.pop() {
            return Some(Change { prefix, gateway: None });
        }
        for (prefix, route) in &mut self.routes {
            let by_rtt = prefix.is_default();
            let candidate = |gateway: &Gateway| {
                let record = self.gateways[gateway];
                let slowness = if by_rtt { record.slowness() } else { 0 };
                let nearer = route.nearer.get(gateway).copied();
                Candidate { gateway: *gateway, record, slowness, nearer }
            };
            let candidates: Vec<Candidate> = route.candidates.iter().map(candidate).collect();
            let gateway = choose(route.chosen, &candidates, now);
            if gateway != route.chosen {
                route.chosen = gateway;
                if by_rtt {
                    route.nearer.clear();
                    route.note_nearer(&self.gateways, now);
                }
                return Some(Change { prefix: *prefix, gateway });
            }
        }
        None
    }

    /// When [`Self::poll_change`] may have something without anything being told.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let times = self.gateways.values().flat_map(|r| {
            [r.since + GRACE, r.since.after(HOLD.max(pause(r))), r.alive_since.after(pause(r))]
        });
        let nearer = self.routes.values().flat_map(|route| &route.nearer);
        let held = nearer.map(|(g, since)| since.after(HOLD.max(pause(&self.gateways[g]))));
        times.chain(held).filter(|at| *at > now).min()
    }

    /// Through whom `prefix` goes.
    #[must_use]
    pub fn chosen(&self, prefix: &Prefix) -> Option<Gateway> {
        self.routes.get(prefix)?.chosen
    }
}

/// The pause after a gateway's falls.
fn pause(record: &Record) -> Duration {
    match record.falls {
        0 => Duration::ZERO,
        falls => (PENALTY * 2_u32.pow(falls - 1)).min(PENALTY_MAX),
    }
}

/// The gateway for one prefix, whose candidates are in ascending order.
fn choose(current: Option<Gateway>, candidates: &[Candidate], now: Instant) -> Option<Gateway> {
    let current = candidates.iter().find(|c| Some(c.gateway) == current);
    let rank = |c: &&Candidate| (core::cmp::Reverse(c.record.health), c.slowness, c.gateway);
    if let Some(current) = current {
        let dead = current.record.health == Health::Dead;
        if dead && now.since(current.record.since) < GRACE {
            return Some(current.gateway);
        }
        let is_better = |c: &&Candidate| {
            let since = match c.record.health > current.record.health {
                true => Some(c.record.since),
                false => c.nearer,
            };
            since.is_some_and(|since| now.since(since) >= HOLD.max(pause(&c.record)))
        };
        if !dead {
            let better = candidates.iter().filter(is_better).min_by_key(rank);
            return Some(better.unwrap_or(current).gateway);
        }
    }
    // alive, then not avoided, then the better path, the lesser round trip, the lower number
    let alive = candidates.iter().filter(|c| c.record.health != Health::Dead);
    let avoided = |c: &&Candidate| now.since(c.record.alive_since) < pause(&c.record);
    let best = alive.min_by_key(|c| (avoided(c), rank(c)));
    best.or(current).or_else(|| candidates.first()).map(|c| c.gateway)
}

#[cfg(test)]
mod tests;
