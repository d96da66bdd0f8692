//! The paths to one peer, and which of them is used.
//!
//! A [`Paths`] is a value that opens nothing: it is told what was heard and answered, and says
//! what to ask and where packets go. It stands only in links to *managed* peers, whose candidates
//! come from a map; a plain WireGuard peer roams as published, and nothing here touches it.
//!
//! The life of a path:
//!
//! 1. The map, the peer's own call ([`Paths::handle_called`]) or an authentic datagram from an
//!    unknown place ([`Paths::handle_heard`]) proposes a candidate.
//! 2. Until there is a session, the initiation is sent to every candidate
//!    ([`Paths::poll_fan`]): a handshake is a probe. The first that is answered is used.
//! 3. With a peer that answers probes, candidates are probed in rounds ([`Paths::poll_probe`]),
//!    and the peer is called, so that both ends open their translators at once.
//! 4. An answer with the right nonce on the same path makes it alive, with a round trip
//!    (threat NT-06). The best of all by [`Rank`] is used.
//! 5. While packets want it, it is probed twice a second; unanswered it is doubted, then failed,
//!    and the next best taken, mostly a relay, in less than 2 s.
//!
//! Peers without traffic for two minutes cost nothing. docs/paths.md has the timers with reasons.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use noise::{Instant, PublicKey, Random};
use wire::prefix::Prefix;
use wire::wireguard::INITIATION_LEN;

use crate::outbox::{Destination, Endpoint, Relayed};

mod budget;
mod fan;
mod flights;
mod mtu;
mod path;
mod plan;
pub(crate) mod roomy;
#[cfg(test)]
mod tests;

use budget::Budget;
use fan::Fan;
use flights::Flights;
use mtu::USUAL;
pub(crate) use path::{Liveness, Path};
use path::{Origin, Rank, is_near, is_sound};

/// Candidates of a peer, at most, relays among them (threat NT-05).
pub const CANDIDATES_MAX: usize = 32;
/// Of them, those that the map does not name.
const UNTOLD_MAX: usize = 16;
/// Networks of the overlay, at most.
const OVERLAYS_MAX: usize = 8;
/// Ports tried beyond one that a translator gave to another conversation: many count upwards.
const NEIGHBOURS: u16 = 2;
/// A peer that spoke of paths on the session before will do so on this one; it has so long.
const SPEAKS_ON: Duration = Duration::from_secs(3);

/// Where a peer may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Candidate {
    /// At a UDP endpoint.
    Udp(SocketAddr),
    /// Through a relay, by its number in the map.
    Relay(u32),
}

/// The path in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStatus {
    /// Where datagrams go.
    pub to: Destination,
    /// Round trip by answered probes, microseconds; none before the first.
    pub rtt_us: Option<u32>,
    /// When the last of these was answered.
    pub rtt_at: Option<Instant>,
    /// Bytes of the largest inner packet that is sent here.
    pub mtu_bytes: usize,
    /// Since when it is in use.
    pub since: Instant,
    /// Whether it answers.
    pub is_alive: bool,
}

/// A probe to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) to: Destination,
    pub(crate) probe: wire::frame::Probe,
}

/// All paths to one peer.
#[derive(Debug)]
pub(crate) struct Paths {
    peer: PublicKey,
    list: Vec<Path>,
    /// The place of the path in use.
    best: Option<usize>,
    since: Instant,
    /// The place of the path that was heard last.
    last: usize,
    overlay: Vec<Prefix>,
    /// When the peer was last seen to answer probes on the current session.
    spoke: Option<Instant>,
    speaks: bool,
    next_id: u16,
    flights: Flights,
    budget: Budget,
    fan: Option<Fan>,
    /// When packets last went or came.
    data_at: Option<Instant>,
    /// No packets of late: the next one wakes the plan.
    is_idle: bool,
    round: plan::Round,
    /// A call is to be sent; when one was.
    call: bool,
    called: Option<Instant>,
    /// When there is something to do.
    next: Instant,
    /// The path in use changed since that was asked.
    moved: bool,
    /// The path on which packets came last, by its number; 0 for none.
    source: u16,
    /// When nothing answered any more.
    lost: Option<Instant>,
}

impl Paths {
    /// No candidates yet.
    pub(crate) fn new(peer: PublicKey) -> Self {
        Self {
            peer,
            list: Vec::new(),
            best: None,
            since: Instant::ZERO,
            last: usize::MAX,
            overlay: Vec::new(),
            spoke: None,
            speaks: false,
            next_id: 0,
            flights: Flights::new(),
            budget: Budget::new(),
            fan: None,
            data_at: None,
            is_idle: true,
            round: plan::Round::default(),
            call: false,
            called: None,
            next: Instant::MAX,
            moved: false,
            source: 0,
            lost: None,
        }
    }

    /// Where packets go.
    pub(crate) fn to(&self) -> Option<Destination> {
        self.best.map(|best| self.list[best].to)
    }

    /// Where packets came from last.
    pub(crate) fn source(&self) -> Option<Destination> {
        self.list.iter().find(|path| path.id == self.source).map(|path| path.to)
    }

    /// Whether there is anywhere to send an initiation to.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The path in use, at an interface with `mtu`.
    pub(crate) fn status(&self, mtu: usize, now: Instant) -> Option<PathStatus> {
        let path = &self.list[self.best?];
        Some(PathStatus {
            to: path.to,
            rtt_us: path.rtt_us,
            rtt_at: path.rtt_at,
            mtu_bytes: path.mtu.room(mtu),
            since: self.since,
            is_alive: path.liveness(true, now) >= Liveness::Doubted,
        })
    }

    /// Bytes of the largest plaintext on the path in use; no bound where there is none. `rooms`
    /// are those of relays.
    pub(crate) fn room(&self, rooms: &[(u32, usize)]) -> usize {
        // Connections that begin before there is a path should fit the one that comes.
        let Some(best) = self.best else { return USUAL };
        let path = &self.list[best];
        let Destination::Relay(relayed) = path.to else { return path.mtu.room(usize::MAX) };
        let room = rooms.iter().find(|(relay, _)| *relay == relayed.relay);
        room.map_or(usize::MAX, |(_, bytes)| *bytes)
    }

    /// Whether the path in use changed since this was last asked.
    pub(crate) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// The overlay's own networks, where no peer is a candidate (threat NT-07).
    pub(crate) fn set_overlay(&mut self, overlay: &[Prefix]) {
        self.overlay = overlay.iter().copied().take(OVERLAYS_MAX).collect();
        let overlay = std::mem::take(&mut self.overlay);
        self.retain(|path| path.to.udp().is_none_or(|to| is_sound(to.remote, &overlay)));
        self.overlay = overlay;
        if self.best.is_none() {
            self.next = Instant::ZERO;
        }
    }

    /// What the map says: all of it, so what it no longer names is forgotten unless it works.
    pub(crate) fn set_candidates(&mut self, told: &[Candidate], now: Instant) {
        let told: Vec<Destination> = told
            .iter()
            .take(CANDIDATES_MAX)
            .map(|&candidate| self.destination(candidate))
            .collect();
        for path in &mut self.list {
            let is_told = told.iter().any(|to| path.leads_to(to));
            if path.origin == Origin::Told && !is_told {
                path.origin = Origin::Heard;
            }
        }
        let best = self.best.map(|best| self.list[best].id);
        self.retain(|path| {
            path.is_direct() && path.origin != Origin::Heard
                || told.iter().any(|to| path.leads_to(to))
                || path.is_direct() && (path.answered.is_some() || best == Some(path.id))
        });
        let mut is_new = false;
        for to in told {
            match self.place_of(&to) {
                Some(place) => self.list[place].origin = Origin::Told,
                None => is_new |= self.insert(to, Origin::Told).is_some(),
            }
        }
        if is_new {
            self.begin_round(now, true);
        }
    }

    /// Our addresses or routes changed: everything is asked again.
    pub(crate) fn handle_network_change(&mut self, now: Instant) {
        for path in &mut self.list {
            path.handle_network_change();
            if path.answered.is_some() && self.speaks {
                path.due = Some(now);
            }
        }
        self.called = None;
        self.begin_round(now, true);
    }

    /// Our endpoints changed: the peer is called again.
    pub(crate) fn handle_reach_change(&mut self, now: Instant) {
        self.called = None;
        self.begin_round(now, true);
    }

    /// The kernel shall choose our addresses again.
    pub(crate) fn forget_sources(&mut self) {
        for path in &mut self.list {
            path.to.forget_source();
        }
    }

    /// Whether the peer answers probes on the current session.
    pub(crate) fn set_speaks(&mut self, speaks: bool, now: Instant) {
        if speaks {
            self.spoke = Some(now);
        }
        let speaks = speaks || self.spoke.is_some_and(|at| now.since(at) < SPEAKS_ON);
        if speaks != self.speaks {
            self.speaks = speaks;
            if speaks {
                self.begin_round(now, true);
            }
            self.next = now;
        }
    }

    /// Packets went or came. On the path of every packet.
    #[inline]
    pub(crate) fn note_data(&mut self, now: Instant) {
        self.data_at = Some(now);
        if self.is_idle {
            self.is_idle = false;
            self.next = now;
        }
    }

    /// Packets came, in the datagram that was heard last. Returns whether they came on another path
    /// than those before.
    #[inline]
    pub(crate) fn note_received(&mut self, now: Instant) -> bool {
        self.note_data(now);
        let source = self.list.get(self.last).map_or(0, |path| path.id);
        let before = std::mem::replace(&mut self.source, source);
        before != source && before != 0
    }

    /// An authentic datagram came from `from`. Returns whether the path in use changed. On the path
    /// of every packet.
    #[inline]
    pub(crate) fn handle_heard(&mut self, from: &Destination, now: Instant) -> bool {
        // Who does not speak of paths is followed, also back to where it was heard before.
        let is_followed = self.speaks || self.best == Some(self.last);
        match self.list.get_mut(self.last) {
            Some(path) if path.to == *from && is_followed => {
                path.heard = Some(now);
                false
            }
            _ => self.handle_heard_elsewhere(from, now),
        }
    }

    fn handle_heard_elsewhere(&mut self, from: &Destination, now: Instant) -> bool {
        let (place, is_new) = match self.place_of(from) {
            Some(place) => (place, false),
            None => match self.insert(*from, Origin::Heard) {
                Some(place) => (place, true),
                None => return false,
            },
        };
        self.last = place;
        let path = &mut self.list[place];
        path.heard = Some(now);
        path.learn_source(from);
        let is_best = self.best == Some(place);
        if !self.speaks || self.best.is_none() {
            // As plain WireGuard does: where it was heard last.
            self.switch(place, now);
            return true;
        }
        let rested = path.probed.is_none_or(|at| now.since(at) >= plan::AGAIN_HEARD);
        if !is_best && (is_new || rested) {
            let is_unknown = path.answered.is_none_or(|at| now.since(at) >= plan::LATELY);
            path.due = Some(now);
            self.next = now;
            if is_unknown && path.is_direct() {
                self.suspect_best(now);
            }
        }
        is_best
    }

    /// The peer is at a new place: is it still where it was?
    fn suspect_best(&mut self, now: Instant) {
        if let Some(best) = self.best
            && self.list[best].is_direct()
        {
            self.list[best].is_suspect = true;
            self.list[best].due = Some(now);
        }
    }

    /// The handshake that we began was answered from `from`: datagrams pass both ways there.
    pub(crate) fn handle_agreed(&mut self, from: &Destination, now: Instant) {
        self.fan = None;
        self.handle_heard(from, now);
        if let Some(place) = self.place_of(from) {
            self.list[place].handle_answered(None, now);
            self.next = now;
        }
    }

    /// Every session has ended; what is known of the paths stays.
    pub(crate) fn clear(&mut self) {
        (self.fan, self.spoke, self.speaks) = (None, None, false);
        self.flights = Flights::new();
    }

    /// A session is there; nothing needs to be asked for one.
    pub(crate) fn end_fan(&mut self) {
        self.fan = None;
    }

    /// An answer to a probe; whether it is one. What does not match a probe on the same path has no
    /// effect (threat NT-06).
    pub(crate) fn handle_answer(
        &mut self,
        from: &Destination,
        answer: &wire::frame::ProbeAnswer,
        now: Instant,
    ) -> bool {
        let Some(place) = self.place_of(from) else { return false };
        let Some(flight) = self.flights.take(answer.nonce, self.list[place].id) else {
            return false;
        };
        let rtt_us = u32::try_from(now.since(flight.sent).as_micros()).unwrap_or(u32::MAX);
        let path = &mut self.list[place];
        path.handle_answered(Some(rtt_us), now);
        if answer.len == flight.len {
            path.mtu.handle_passed(usize::from(flight.len), now);
        }
        self.next = now;
        true
    }

    /// The peer says where it may be reached, and is about to probe us: now is the time.
    pub(crate) fn handle_called(&mut self, call: &wire::frame::Candidates<'_>, now: Instant) {
        let mut named: Vec<SocketAddr> = call.addresses().collect();
        if call.varies {
            let outside = |remote: &&SocketAddr| remote.is_ipv4() && !is_near(remote.ip());
            if let Some(&last) = named.iter().rfind(outside) {
                named.extend((1..=NEIGHBOURS).filter_map(|ahead| {
                    Some(SocketAddr::new(last.ip(), last.port().checked_add(ahead)?))
                }));
            }
        }
        for remote in named {
            let to = Destination::Udp(Endpoint::new(remote));
            if self.place_of(&to).is_none() {
                self.insert(to, Origin::Called);
            }
        }
        if self.speaks {
            self.begin_round(now, false);
        }
    }

    /// Begins to send an initiation to the candidates.
    pub(crate) fn begin_fan(&mut self, message: [u8; INITIATION_LEN], now: Instant) {
        let works = |path: &Path| {
            let lately =
                path.answered.max(path.heard).is_some_and(|at| now.since(at) < plan::LATELY);
            lately && !path.is_failed(now)
        };
        let first = self.best.map(|best| &self.list[best]).filter(|path| works(path));
        self.fan = Some(Fan::new(message, first.map(|path| path.id), now));
        self.next = now;
    }

    /// Where the initiation goes next.
    pub(crate) fn poll_fan(
        &mut self,
        now: Instant,
    ) -> Option<(Destination, &[u8; INITIATION_LEN])> {
        let fan = self.fan.as_mut()?;
        let list = &self.list;
        let best = self.best.map(|best| list[best].id);
        let order = || {
            let mut order: Vec<&Path> = list.iter().collect();
            order.sort_by_key(|path| {
                // What is in use, then relays, since they work nearly always.
                let is_best = best == Some(path.id);
                (!is_best, path.is_direct(), std::cmp::Reverse(path.rank(is_best, now)))
            });
            order.into_iter().map(|path| path.id).collect()
        };
        if fan.poll_timeout().is_none_or(|at| at > now) || now < self.budget.ready_at() {
            return None;
        }
        let id = fan.poll(now, order)?;
        let to = self.list.iter().find(|path| path.id == id)?.to;
        self.budget.take(now);
        Some((to, fan.message()))
    }

    /// The relay over which a response goes, too, when the initiation came another way: if that
    /// way is one-way, this one brings it.
    pub(crate) fn second_way(&self, from: &Destination) -> Option<Destination> {
        let relays = self.list.iter().filter(|path| !path.is_direct());
        let relay = relays.max_by_key(|path| path.heard)?.to;
        matches!(from, Destination::Udp(_)).then_some(relay)
    }

    /// The probe that is due, with what remains to be written filled in.
    pub(crate) fn poll_probe(
        &mut self,
        mtu: usize,
        random: &mut dyn Random,
        now: Instant,
    ) -> Option<Ask> {
        let (place, len) = self.poll_size(mtu, now).or_else(|| {
            if now < self.budget.ready_at() {
                return None;
            }
            let place = self.most_urgent(now)?;
            self.budget.take(now);
            Some((place, wire::frame::Probe::LEN_MIN))
        })?;
        let mut bytes = [0; 8];
        random.fill(&mut bytes);
        let nonce = u64::from_le_bytes(bytes);
        let len = len as u16;
        let path = &mut self.list[place];
        if usize::from(len) == wire::frame::Probe::LEN_MIN {
            path.handle_asked(now);
        }
        self.flights.insert(flights::Flight { nonce, path: path.id, sent: now, len });
        Some(Ask { to: path.to, probe: wire::frame::Probe { path: path.id, nonce, len } })
    }

    /// A probe of a certain size on the path in use, which works: no stranger is asked.
    fn poll_size(&mut self, mtu: usize, now: Instant) -> Option<(usize, usize)> {
        let best = self.best.filter(|&best| self.asks_sizes(&self.list[best]))?;
        let path = &mut self.list[best];
        let rtt = Duration::from_micros(path.rtt_us.unwrap_or(0).into());
        let len = path.mtu.poll_probe(mtu, rtt, now)?;
        (len > wire::frame::Probe::LEN_MIN).then_some((best, len))
    }

    /// Whether a call is to be sent now; asked once.
    pub(crate) fn poll_call(&mut self, now: Instant) -> bool {
        let due = std::mem::take(&mut self.call);
        let due = due && self.called.is_none_or(|at| now.since(at) >= plan::CALL_GAP);
        if due {
            self.called = Some(now);
        }
        due && self.best.is_some()
    }

    /// When [`Paths::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let fan = self.fan.as_ref().and_then(Fan::poll_timeout);
        let fan = fan.map(|at| at.max(self.budget.ready_at()));
        let next = (self.next != Instant::MAX).then_some(self.next);
        [fan, next].into_iter().flatten().min()
    }

    fn destination(&self, candidate: Candidate) -> Destination {
        match candidate {
            Candidate::Udp(remote) => {
                let ip = remote.ip().to_canonical();
                let remote = match ip {
                    IpAddr::V4(_) => SocketAddr::new(ip, remote.port()),
                    IpAddr::V6(_) => remote,
                };
                Destination::Udp(Endpoint::new(remote))
            }
            Candidate::Relay(relay) => Destination::Relay(Relayed { relay, peer: self.peer }),
        }
    }

    fn place_of(&self, to: &Destination) -> Option<usize> {
        self.list.iter().position(|path| path.leads_to(to))
    }

    /// A new path, if it may be one and there is room; returns its place. The map's candidates
    /// take the room of others.
    fn insert(&mut self, to: Destination, origin: Origin) -> Option<usize> {
        if to.udp().is_some_and(|to| !is_sound(to.remote, &self.overlay)) {
            return None;
        }
        let untold = self.list.iter().filter(|path| path.origin != Origin::Told).count();
        let full = self.list.len() >= CANDIDATES_MAX;
        if full || (origin != Origin::Told && untold >= UNTOLD_MAX) {
            let best = self.best;
            let places = (0..self.list.len()).filter(|&place| {
                let path = &self.list[place];
                best != Some(place) && path.origin != Origin::Told
            });
            // What never answered goes first, and of those what was asked most.
            let worst = places.min_by_key(|&place| {
                let path = &self.list[place];
                (path.answered, path.heard, std::cmp::Reverse(path.asks), path.id)
            })?;
            self.remove(worst);
        }
        self.next_id = self.next_id.wrapping_add(1);
        self.list.push(Path::new(self.next_id, to, origin));
        Some(self.list.len() - 1)
    }

    fn retain(&mut self, keep: impl Fn(&Path) -> bool) {
        for place in (0..self.list.len()).rev() {
            if !keep(&self.list[place]) {
                self.remove(place);
            }
        }
    }

    fn remove(&mut self, place: usize) {
        self.list.remove(place);
        self.last = usize::MAX;
        self.best = match self.best {
            Some(best) if best == place => {
                self.moved = true;
                None
            }
            Some(best) if best > place => Some(best - 1),
            best => best,
        };
    }

    fn switch(&mut self, place: usize, now: Instant) {
        if self.best != Some(place) {
            let path = &mut self.list[place];
            // What fitted when it was last used may fit no more (threat NT-08).
            path.mtu = mtu::Mtu::new(&path.to);
            self.best = Some(place);
            self.since = now;
            self.moved = true;
        }
    }
}
