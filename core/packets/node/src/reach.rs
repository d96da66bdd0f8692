//! From where this machine can be reached: its own addresses, what STUN servers see, relays.
//!
//! Requests leave by the data socket, since it is its mapping that counts, and answers come in by
//! it. A server is asked with 96 fresh random bits; an answer counts only from the address that
//! was asked, once (threat NT-02). Two servers tell whether a translator maps by destination. They
//! are asked again while there is traffic, since mappings change, and at once after the network
//! did. Without traffic nothing is sent.

use std::net::SocketAddr;
use std::time::Duration;

use link::{Destination, Endpoint, Outbox, Own};
use noise::{Instant, Random};
use wire::prefix::Prefix;
use wire::stun::{self, Message, Transaction};

/// STUN servers that are asked, at most.
pub const SERVERS_MAX: usize = 4;
/// Endpoints that are named to others, at most: as many as a peer takes.
pub const ENDPOINTS_MAX: usize = 16;
/// A server that does not answer is asked again after so long, doubled each time,
const AGAIN: Duration = Duration::from_millis(500);
/// and so often in all.
const TRIES_MAX: u32 = 4;
/// Under traffic it is asked again after so long: before translators forget.
const ROUND: Duration = Duration::from_secs(25);
/// Changes of the network are heeded so often.
const RESTART_GAP: Duration = Duration::from_secs(1);
/// Datagrams of no session are looked at so often.
const HEED_GAP: Duration = Duration::from_millis(50);
/// Traffic is what passed in so long.
const ACTIVE: Duration = Duration::from_secs(120);

/// What a daemon knows of where its machine may be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// STUN servers, resolved; the first [`SERVERS_MAX`] are asked.
    pub stun: Vec<SocketAddr>,
    /// Our addresses, with the port that we listen on.
    pub local: Vec<SocketAddr>,
    /// A port of the gateway that leads to ours, if it gave one.
    pub opened: Option<SocketAddr>,
    /// Relays that we are connected to, by their numbers.
    pub relays: Vec<u32>,
    /// The overlay's networks: nobody is reached inside what is being carried (threat NT-07).
    pub overlay: Vec<Prefix>,
}

/// What is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReachStatus {
    /// Where servers see us, each once.
    pub mapped: Vec<SocketAddr>,
    /// Whether different servers see different ports; `None` before two of a family answered.
    pub varies: Option<bool>,
    /// Whether UDP passes: `Some(false)` when no server answered, `None` when none was asked yet.
    pub udp_works: Option<bool>,
    /// What others should try, the likeliest first: for the map.
    pub endpoints: Vec<SocketAddr>,
    /// The relays, as told.
    pub relays: Vec<u32>,
    /// Round trip to each server that answered, microseconds.
    pub servers: Vec<(SocketAddr, u32)>,
}

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    /// The request in flight, and when it was sent.
    asked: Option<(Transaction, Instant)>,
    tries: u32,
    due: Option<Instant>,
    mapped: Option<SocketAddr>,
    rtt_us: u32,
    failed: bool,
}

/// The client of the servers.
#[derive(Debug, Default)]
pub(crate) struct Asker {
    told: Reach,
    servers: Vec<Server>,
    endpoints: Vec<SocketAddr>,
    /// Relays through which not everything fits.
    rooms: Vec<(u32, usize)>,
    round: Option<Instant>,
    data_at: Option<Instant>,
    /// A round was due while nothing passed: the next packet begins it.
    dormant: bool,
    /// When the network changed last, and when a change that was put off is due.
    restarted: Option<Instant>,
    put_off: Option<Instant>,
    changed: bool,
    moved: bool,
    /// When a datagram of no session was last looked at.
    heeded: Option<Instant>,
}

impl Asker {
    pub(crate) fn set(&mut self, told: Reach, now: Instant) {
        if told == self.told {
            return;
        }
        let same = told.stun == self.told.stun;
        self.told = told;
        if !same {
            let servers = self.told.stun.iter().take(SERVERS_MAX);
            self.servers = servers.map(|&address| Server::new(canonical(address))).collect();
        }
        self.restart(now);
        self.list();
        self.changed = true;
    }

    /// Asks every server now.
    pub(crate) fn restart(&mut self, now: Instant) {
        for server in &mut self.servers {
            server.tries = 0;
            server.due = Some(now);
        }
        self.round = None;
        self.dormant = false;
    }

    /// Whether a change of the network is to be heeded now; otherwise it is put off.
    pub(crate) fn may_restart(&mut self, now: Instant) -> bool {
        let ready = self.restarted.map_or(Instant::ZERO, |at| at + RESTART_GAP);
        if now < ready {
            self.put_off = Some(ready);
            return false;
        }
        self.restarted = Some(now);
        self.put_off = None;
        true
    }

    pub(crate) fn is_put_off(&self, now: Instant) -> bool {
        self.put_off.is_some_and(|at| at <= now)
    }

    /// Whether a datagram of no session is looked at now.
    pub(crate) fn may_heed(&mut self, now: Instant) -> bool {
        let may = self.heeded.is_none_or(|at| now.since(at) >= HEED_GAP);
        if may {
            self.heeded = Some(now);
        }
        may
    }

    pub(crate) fn overlay(&self) -> &[Prefix] {
        &self.told.overlay
    }

    /// What peers are told when they are called.
    pub(crate) fn own(&self) -> Own<'_> {
        let varies = self.varies() == Some(true);
        Own { endpoints: &self.endpoints, varies, rooms: &self.rooms }
    }

    /// What fits through relays.
    pub(crate) fn set_rooms(&mut self, rooms: &[(u32, usize)]) {
        self.rooms.clear();
        self.rooms.extend_from_slice(rooms);
    }

    /// Packets went or came. On the path of every packet.
    #[inline]
    pub(crate) fn note_data(&mut self, now: Instant) {
        self.data_at = Some(now);
        if self.dormant {
            self.restart(now);
        }
    }

    /// Takes a datagram that may be a server's answer; returns whether it is one that was asked
    /// for.
    pub(crate) fn handle_datagram(
        &mut self,
        from: &Destination,
        datagram: &[u8],
        now: Instant,
    ) -> bool {
        let Some(from) = from.udp() else { return false };
        let Ok(Message::Response(transaction, Some(mapped))) = stun::parse(datagram) else {
            return false;
        };
        let from = canonical(from.remote);
        let asked = |server: &&mut Server| {
            server.address == from && server.asked.is_some_and(|(of, _)| of == transaction)
        };
        let Some(server) = self.servers.iter_mut().find(asked) else { return false };
        let Some((_, sent)) = server.asked.take() else { return false };
        server.rtt_us = u32::try_from(now.since(sent).as_micros()).unwrap_or(u32::MAX);
        server.due = None;
        server.failed = false;
        let mapped = canonical(mapped);
        if server.mapped.replace(mapped) != Some(mapped) {
            self.list();
        }
        self.begin_pause(now);
        true
    }

    /// Sends the requests that are due.
    pub(crate) fn handle_due<O: Outbox>(
        &mut self,
        random: &mut dyn Random,
        now: Instant,
        out: &mut O,
    ) {
        if self.round.is_some_and(|at| at <= now) {
            self.round = None;
            if self.data_at.is_some_and(|at| now.since(at) < ACTIVE) {
                self.restart(now);
            } else {
                self.dormant = true;
            }
        }
        let mut failed = false;
        for server in &mut self.servers {
            if server.due.is_none_or(|due| due > now) {
                continue;
            }
            if server.tries >= TRIES_MAX {
                server.due = None;
                server.asked = None;
                failed |= !server.failed;
                server.failed = true;
                server.mapped = None;
                continue;
            }
            let mut transaction = [0; 12];
            random.fill(&mut transaction);
            server.due = Some(now + AGAIN * (1 << server.tries));
            server.tries += 1;
            server.asked = Some((transaction, now));
            let to = Destination::Udp(Endpoint::new(server.address));
            if let Some(slot) = out.reserve(&to, stun::REQUEST_LEN) {
                slot.copy_from_slice(&stun::request(&transaction));
                out.commit();
            }
        }
        if failed {
            self.list();
            self.changed = true;
        }
        self.begin_pause(now);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.servers.iter().filter_map(|server| server.due).min();
        [due, self.round, self.put_off].into_iter().flatten().min()
    }

    /// Whether what is published changed since this was last asked.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// The same, for those who call peers.
    pub(crate) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    pub(crate) fn status(&self) -> ReachStatus {
        let mut mapped: Vec<SocketAddr> =
            self.servers.iter().filter_map(|server| server.mapped).collect();
        mapped.sort_unstable();
        mapped.dedup();
        let answered = self.servers.iter().filter(|server| server.mapped.is_some());
        let servers: Vec<_> = answered.map(|server| (server.address, server.rtt_us)).collect();
        let all_failed = self.servers.iter().all(|server| server.failed);
        let udp_works = match (servers.is_empty(), self.servers.is_empty()) {
            (false, _) => Some(true),
            (true, false) if all_failed => Some(false),
            _ => None,
        };
        ReachStatus {
            mapped,
            varies: self.varies(),
            udp_works,
            endpoints: self.endpoints.clone(),
            relays: self.told.relays.clone(),
            servers,
        }
    }

    /// When all have answered or failed, the next round follows after a pause.
    fn begin_pause(&mut self, now: Instant) {
        let busy = self.servers.iter().any(|server| server.due.is_some());
        if !busy && !self.servers.is_empty() && !self.dormant {
            self.round.get_or_insert(now + ROUND);
        }
    }

    fn varies(&self) -> Option<bool> {
        let mut seen = None;
        for v6 in [false, true] {
            let mut mapped = self
                .servers
                .iter()
                .filter_map(|server| server.mapped)
                .filter(|mapped| mapped.is_ipv6() == v6);
            let Some(first) = mapped.next() else { continue };
            let others: Vec<bool> = mapped.map(|other| other != first).collect();
            if !others.is_empty() {
                seen = Some(seen.unwrap_or(false) || others.contains(&true));
            }
        }
        seen
    }

    /// Makes the list that is published: what the gateway opened, what servers see, then our own
    /// addresses.
    fn list(&mut self) {
        let mut endpoints: Vec<SocketAddr> = Vec::with_capacity(ENDPOINTS_MAX);
        let mapped = self.servers.iter().filter_map(|server| server.mapped);
        let mapped = self.told.opened.into_iter().chain(mapped);
        for address in mapped.chain(self.told.local.iter().copied().map(canonical)) {
            if endpoints.len() < ENDPOINTS_MAX && !endpoints.contains(&address) {
                endpoints.push(address);
            }
        }
        if endpoints != self.endpoints {
            self.endpoints = endpoints;
            self.changed = true;
            self.moved = true;
        }
    }
}

impl Server {
    fn new(address: SocketAddr) -> Self {
        Self { address, asked: None, tries: 0, due: None, mapped: None, rtt_us: 0, failed: false }
    }
}

/// An IPv4 address in IPv6's clothes is an IPv4 address; anything else keeps its scope.
pub(crate) fn canonical(remote: SocketAddr) -> SocketAddr {
    match remote.ip().to_canonical() {
        ip if ip.is_ipv4() => SocketAddr::new(ip, remote.port()),
        _ => remote,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts up; what matters is that no two are equal.
    struct Counting(u8);

    impl Random for Counting {
        fn fill(&mut self, bytes: &mut [u8]) {
            self.0 += 1;
            bytes.fill(self.0);
        }
    }

    #[derive(Default)]
    struct Sent(Vec<(Destination, Vec<u8>)>);

    impl Outbox for Sent {
        fn reserve(&mut self, to: &Destination, len: usize) -> Option<&mut [u8]> {
            self.0.push((*to, vec![0; len]));
            self.0.last_mut().map(|sent| &mut sent.1[..])
        }

        fn commit(&mut self) {}
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn ms(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn asker(servers: &[&str]) -> Asker {
        let mut asker = Asker::default();
        let stun = servers.iter().map(|text| at(text)).collect();
        let local = vec![at("10.0.0.5:41641")];
        asker.set(Reach { stun, local, ..Reach::default() }, ms(1));
        asker
    }

    fn ask(
        asker: &mut Asker,
        random: &mut Counting,
        now: Instant,
    ) -> Vec<(SocketAddr, Transaction)> {
        let mut sent = Sent::default();
        asker.handle_due(random, now, &mut sent);
        let read = |(to, bytes): (Destination, Vec<u8>)| match stun::parse(&bytes) {
            Ok(Message::Request(transaction)) => (to.udp().expect("over UDP").remote, transaction),
            other => panic!("{other:?}"),
        };
        sent.0.into_iter().map(read).collect()
    }

    fn answer(asker: &mut Asker, from: &str, of: &Transaction, mapped: &str, now: Instant) -> bool {
        let mut out = [0; stun::RESPONSE_LEN_MAX];
        let len = stun::write_response(of, at(mapped), &mut out);
        asker.handle_datagram(&Endpoint::new(at(from)).into(), &out[..len], now)
    }

    #[test]
    fn nt_02_only_the_server_that_was_asked_is_believed_and_once() {
        let mut random = Counting(0);
        let mut asker = asker(&["192.0.2.1:3478", "192.0.2.2:3478"]);
        let asked = ask(&mut asker, &mut random, ms(1));
        assert_eq!(asked.len(), 2);
        let (first, second) = (asked[0].1, asked[1].1);
        assert_ne!(first, second);
        let forged = "203.0.113.9:9";
        assert!(!answer(&mut asker, "192.0.2.9:3478", &first, forged, ms(2)), "another address");
        assert!(!answer(&mut asker, "192.0.2.1:3479", &first, forged, ms(2)), "another port");
        assert!(!answer(&mut asker, "192.0.2.1:3478", &second, forged, ms(2)), "another's");
        for guess in 100..200 {
            assert!(!answer(&mut asker, "192.0.2.1:3478", &[guess; 12], forged, ms(2)));
        }
        assert!(asker.status().mapped.is_empty());
        assert!(answer(&mut asker, "192.0.2.1:3478", &first, "198.51.100.1:7", ms(21)));
        assert!(!answer(&mut asker, "192.0.2.1:3478", &first, forged, ms(22)), "it is used up");
        assert!(answer(&mut asker, "192.0.2.2:3478", &second, "198.51.100.1:7", ms(22)));
        let status = asker.status();
        assert_eq!((status.varies, status.udp_works), (Some(false), Some(true)));
        assert_eq!(status.mapped, [at("198.51.100.1:7")]);
        assert_eq!(status.endpoints, [at("198.51.100.1:7"), at("10.0.0.5:41641")]);
        assert_eq!(status.servers[0], (at("192.0.2.1:3478"), 20_000));
    }

    #[test]
    fn nt_11_a_mapping_that_varies_is_seen_and_so_is_a_network_without_udp() {
        let mut random = Counting(0);
        let mut one = asker(&["192.0.2.1:3478", "192.0.2.2:3478"]);
        let asked = ask(&mut one, &mut random, ms(1));
        answer(&mut one, "192.0.2.1:3478", &asked[0].1, "198.51.100.1:7", ms(2));
        assert_eq!(one.status().varies, None);
        answer(&mut one, "192.0.2.2:3478", &asked[1].1, "198.51.100.1:8", ms(2));
        assert_eq!(one.status().varies, Some(true));
        assert!(one.own().varies);
        let mut other = asker(&["192.0.2.1:3478"]);
        assert_eq!(other.status().udp_works, None);
        let mut requests = 0;
        while let Some(due) = other.poll_timeout().filter(|due| *due < ms(20_000)) {
            requests += ask(&mut other, &mut random, due).len();
        }
        assert_eq!(requests, TRIES_MAX as usize);
        assert_eq!(other.status().udp_works, Some(false));
    }

    #[test]
    fn servers_are_asked_again_under_traffic_only() {
        let mut random = Counting(0);
        let mut asker = asker(&["192.0.2.1:3478"]);
        let mut now = ms(1);
        let mut requests = 0;
        let mut run = |asker: &mut Asker, until: Instant, traffic: bool| {
            requests = 0;
            while now < until {
                if traffic {
                    asker.note_data(now);
                }
                if asker.poll_timeout().is_some_and(|due| due <= now) {
                    for (_, transaction) in ask(asker, &mut random, now) {
                        requests += 1;
                        answer(asker, "192.0.2.1:3478", &transaction, "198.51.100.1:7", now);
                    }
                }
                now += Duration::from_millis(100);
            }
            requests
        };
        assert_eq!(run(&mut asker, ms(101_000), true), 5);
        assert!(run(&mut asker, ms(3_600_000), false) <= 5);
        assert_eq!(run(&mut asker, ms(7_200_000), false), 0);
        assert_eq!(run(&mut asker, ms(7_201_000), true), 1, "at once");
    }
}
