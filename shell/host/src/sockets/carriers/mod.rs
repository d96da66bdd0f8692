//! What carries datagrams where UDP does not pass: echoes of ICMP, and packets of any IP protocol.
//!
//! The life of a datagram that leaves: [`Carriers::push`] finds the socket of its destination, and
//! for ICMP the request or reply in which it rides ([`carrier::icmp`]); it is written behind their
//! heads once, and [`Carriers::flush`] sends all that waits. In a packet of a raw protocol it
//! stands alone.
//!
//! The life of one that comes: [`Carriers::take`] says where in what a socket gave it lies, and by
//! what it came. From there on it is opened as if it had come by UDP.
//!
//! Requests without a datagram, and replies for which requests came late, are sent by
//! [`Carriers::handle_timeout`]. Sockets are opened by steps of configuration
//! ([`Carriers::apply`]).

mod lane;
mod socket;
#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::RawFd;
use std::time::Duration;

use carrier::icmp::{self, Echo, Requester, Responder};
use link::{Carried, Carrier, Destination, Endpoint};
use node::{Change, PeerChange};
use noise::{Instant, PublicKey, Random};
use ping::Rule;
use wire::checksum::Sum;
use wire::ping::{HEAD_LEN, ICMP_LEN};

use self::lane::Lane;
use crate::KernelRandom;
use crate::linux::program::{feed, find};
use crate::sockets::udp::{Received, Sent};

/// The types that requests of ours get at the input, which are for experiments (RFC 4727).
const TAKEN_V4: u8 = 253;
/// See [`TAKEN_V4`] (RFC 4443).
const TAKEN_V6: u8 = 200;
const ECHO: [u8; 2] = [8, 128];
const REPLY: [u8; 2] = [0, 129];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn of(address: IpAddr) -> Self {
        if address.is_ipv6() { Self::V6 } else { Self::V4 }
    }

    fn choose(self, [v4, v6]: [u8; 2]) -> u8 {
        if self == Self::V6 { v6 } else { v4 }
    }
}

/// A raw socket of one protocol.
#[derive(Debug)]
struct Raw {
    protocol: u8,
    family: Family,
    lane: Lane,
}

/// Who asks one responder, for these peers.
#[derive(Debug)]
struct Asker {
    peers: Vec<PublicKey>,
    remote: IpAddr,
    id: u16,
    /// The kernel writes the head, and hands over no IP header.
    is_ping_socket: bool,
    machine: Requester,
    lane: Lane,
}

/// Who answers.
#[derive(Debug)]
struct Answerer {
    at: IpAddr,
    machine: Responder,
    lane: Lane,
    /// In force as long as this is.
    _rule: Rule,
}

fn nft(words: &[&str], input: &str) -> Result<String, String> {
    feed("nft", words, input)
}

/// Removes the tables of links that were killed, if there can be any.
///
/// # Errors
/// What `nft` says.
pub fn clear_leftovers() -> Result<(), String> {
    if find("nft") { ping::clear_leftovers(nft) } else { Ok(()) }
}

/// All sockets beside those of UDP.
#[derive(Debug, Default)]
pub struct Carriers {
    name: String,
    fwmark: u32,
    raws: Vec<Raw>,
    askers: Vec<Asker>,
    answerer: Option<Answerer>,
    random: KernelRandom,
    scratch: Vec<u8>,
    now: Instant,
    /// What was sent and refused since the start.
    sent: Sent,
    /// Datagrams for which there was no room, or no socket.
    dropped: u64,
}

/// Which socket a message came by.
#[derive(Clone, Copy, Debug)]
pub struct Via(Place);

#[derive(Clone, Copy, Debug)]
enum Place {
    Raw(usize),
    Asker(usize),
    Answerer,
}

impl Carriers {
    /// No sockets; tables of the packet filter are called after the interface `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// The time of this turn.
    pub fn tick(&mut self, now: Instant) {
        self.now = now;
    }

    /// Opens and closes what a step of configuration asks for.
    ///
    /// # Errors
    /// What is missing, and how to mend it.
    pub fn apply(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::ListenIcmp(at) => self.listen_icmp(*at),
            Change::ListenIp(protocol) => self.listen_ip(*protocol),
            Change::Fwmark(mark) => self.set_fwmark(*mark).map_err(|e| format!("fwmark: {e}")),
            Change::ReplacePeers => {
                self.askers.clear();
                Ok(())
            }
            Change::Peer(peer) => self.change_peer(peer),
            Change::PrivateKey(_) | Change::ListenPort(_) => Ok(()),
        }
    }

    fn set_fwmark(&mut self, fwmark: u32) -> io::Result<()> {
        self.fwmark = fwmark;
        self.lanes().try_for_each(|lane| socket::mark(lane.socket(), fwmark))
    }

    fn lane(&self, fd: std::os::fd::OwnedFd) -> io::Result<Lane> {
        if self.fwmark != 0 {
            socket::mark(&fd, self.fwmark)?;
        }
        Ok(Lane::new(fd))
    }

    fn listen_ip(&mut self, protocol: u8) -> Result<(), String> {
        for family in [Family::V4, Family::V6] {
            if self.raws.iter().any(|raw| (raw.protocol, raw.family) == (protocol, family)) {
                continue;
            }
            match socket::raw(family, protocol) {
                Ok(fd) => {
                    let lane = self.lane(fd).map_err(|e| e.to_string())?;
                    self.raws.push(Raw { protocol, family, lane });
                }
                Err(e) if e.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
                Err(e) => {
                    return Err(format!("IP protocol {protocol}: {e}; it needs CAP_NET_RAW"));
                }
            }
        }
        Ok(())
    }

    fn listen_icmp(&mut self, at: IpAddr) -> Result<(), String> {
        if self.answerer.as_ref().is_some_and(|answerer| answerer.at == at) {
            return Ok(());
        }
        let failed = |e: io::Error| match e.raw_os_error() {
            Some(libc::EADDRNOTAVAIL) => {
                format!("ListenIcmp: {at} is no address of this machine; see `ip address`")
            }
            _ => format!("ListenIcmp: {e}; it needs CAP_NET_RAW"),
        };
        let fd = socket::responder(Family::of(at), at).map_err(failed)?;
        let lane = self.lane(fd).map_err(failed)?;
        // The table of one before has the same name.
        self.answerer = None;
        let rule = Rule::add(&self.name, at, nft).map_err(|why| format!("ListenIcmp: {why}"))?;
        let machine = Responder::new();
        self.answerer = Some(Answerer { at, machine, lane, _rule: rule });
        Ok(())
    }

    fn change_peer(&mut self, peer: &PeerChange) -> Result<(), String> {
        let is_moved = peer.remove || peer.endpoint.is_some();
        if is_moved {
            self.askers.iter_mut().for_each(|asker| asker.peers.retain(|key| *key != peer.key));
        }
        let done = match (peer.endpoint, peer.carrier) {
            (Some(_), Some(Carrier::Ip(protocol))) if !peer.remove => self.listen_ip(protocol),
            (Some(at), Some(Carrier::IcmpRequest)) if !peer.remove => {
                self.ask(peer, at.ip().to_canonical())
            }
            _ => Ok(()),
        };
        self.askers.retain(|asker| !asker.peers.is_empty());
        if let Some(poll) = peer.poll {
            let mine = |asker: &&mut Asker| asker.peers.contains(&peer.key);
            self.askers.iter_mut().filter(mine).for_each(|asker| asker.machine.set_poll(poll));
        }
        done
    }

    fn ask(&mut self, peer: &PeerChange, remote: IpAddr) -> Result<(), String> {
        if let Some(known) = self.askers.iter_mut().find(|asker| asker.remote == remote) {
            known.peers.push(peer.key);
            return Ok(());
        }
        let mut bytes = [0; 8];
        self.random.fill(&mut bytes);
        let [a, b, c, d, e, f, g, h] = bytes;
        let tag = u32::from_be_bytes([a, b, c, d]);
        let sequence = u16::from_be_bytes([e, f]);
        let id = u16::from_be_bytes([g, h]);
        let failed = |e: io::Error| format!("Carrier = icmp: {e}");
        let (fd, own) = socket::requester(Family::of(remote), id).map_err(failed)?;
        let lane = self.lane(fd).map_err(failed)?;
        self.askers.push(Asker {
            peers: vec![peer.key],
            remote,
            id: own.unwrap_or(id),
            is_ping_socket: own.is_some(),
            machine: Requester::new(tag, sequence, peer.poll.unwrap_or(icmp::POLL)),
            lane,
        });
        Ok(())
    }

    fn lanes(&mut self) -> impl Iterator<Item = &mut Lane> {
        let raws = self.raws.iter_mut().map(|raw| &mut raw.lane);
        let askers = self.askers.iter_mut().map(|asker| &mut asker.lane);
        let answerer = self.answerer.iter_mut().map(|answerer| &mut answerer.lane);
        raws.chain(askers).chain(answerer)
    }

    fn each(&self) -> impl Iterator<Item = &Lane> {
        let raws = self.raws.iter().map(|raw| &raw.lane);
        let askers = self.askers.iter().map(|asker| &asker.lane);
        raws.chain(askers).chain(self.answerer.iter().map(|answerer| &answerer.lane))
    }

    /// For an event loop.
    pub fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.each().map(Lane::fd)
    }

    /// The socket that is full, if one is.
    #[must_use]
    pub fn blocked_fd(&self) -> Option<RawFd> {
        self.each().find(|lane| lane.is_full()).map(Lane::fd)
    }

    /// Bytes that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.each().map(Lane::len).sum()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Which of them has the descriptor `fd`.
    #[must_use]
    pub fn via(&self, fd: RawFd) -> Option<Via> {
        let answerer = self.answerer.as_ref().filter(|answerer| answerer.lane.fd() == fd);
        let raw = || self.raws.iter().position(|raw| raw.lane.fd() == fd).map(Place::Raw);
        let asker = || self.askers.iter().position(|asker| asker.lane.fd() == fd).map(Place::Asker);
        answerer.map(|_| Place::Answerer).or_else(raw).or_else(asker).map(Via)
    }

    /// Where in what came the datagram lies, and by what it came; `None` if there is none. On the
    /// path of every datagram.
    #[inline]
    pub fn take(
        &mut self,
        Via(place): Via,
        message: &Received,
        memory: &[u8],
    ) -> Option<(Destination, Range<usize>)> {
        let all = message.start..message.start + message.len;
        let bytes = &memory[all.clone()];
        let v4_head = || {
            let len = usize::from(bytes.first()? & 15) * 4;
            (bytes.first()? >> 4 == 4 && len >= 20 && len <= bytes.len()).then_some(len)
        };
        let mut at = message.from;
        at.remote.set_port(0);
        let (by, found) = match place {
            Place::Raw(index) => {
                let raw = &self.raws[index];
                let head = if raw.family == Family::V4 { v4_head()? } else { 0 };
                (Carrier::Ip(raw.protocol), head..bytes.len())
            }
            Place::Asker(index) => {
                let asker = &mut self.askers[index];
                let family = Family::of(asker.remote);
                let has_head = family == Family::V4 && !asker.is_ping_socket;
                let head = if has_head { v4_head()? } else { 0 };
                let echo = message_of(&bytes[head..], family.choose(REPLY))?;
                if echo.id != asker.id || at.remote.ip() != asker.remote {
                    return None;
                }
                let payload = &bytes[head + ICMP_LEN..];
                let found = asker.machine.handle_reply(echo.sequence, payload, self.now)?;
                (Carrier::IcmpRequest, shifted(&found, head + ICMP_LEN))
            }
            Place::Answerer => {
                let answerer = self.answerer.as_mut()?;
                let family = Family::of(answerer.at);
                let head = if family == Family::V4 { v4_head()? } else { 0 };
                let echo = message_of(&bytes[head..], family.choose([TAKEN_V4, TAKEN_V6]))?;
                at.remote.set_port(echo.id);
                let payload = &bytes[head + ICMP_LEN..];
                let (sequence, now) = (echo.sequence, self.now);
                let found = answerer.machine.handle_request(at.remote, sequence, payload, now)?;
                (Carrier::IcmpReply, shifted(&found, head + ICMP_LEN))
            }
        };
        Some((Carried { by, at }.into(), shifted(&found, message.start)))
    }

    /// Takes a datagram for somebody. On the path of every datagram.
    #[inline]
    pub fn push(&mut self, to: &Carried, datagram: &[u8]) {
        let (now, sent) = (self.now, &mut self.sent);
        let has_room = match to.by {
            Carrier::Ip(protocol) => {
                let family = Family::of(to.at.remote.ip());
                let of = |raw: &&mut Raw| raw.protocol == protocol && raw.family == family;
                let raw = self.raws.iter_mut().find(of);
                raw.is_some_and(|raw| {
                    raw.lane.push(to.at, datagram.len(), sent, |out| out.copy_from_slice(datagram))
                })
            }
            Carrier::IcmpRequest => {
                let remote = to.at.remote.ip();
                let asker = self.askers.iter_mut().find(|asker| asker.remote == remote);
                asker.is_some_and(|asker| {
                    let echo = asker.machine.handle_datagram(now);
                    asker.send(to.at, &echo, datagram, sent)
                })
            }
            Carrier::IcmpReply => self.answerer.as_mut().is_some_and(|answerer| {
                let (machine, random) = (&mut answerer.machine, &mut self.random);
                match machine.handle_datagram(to.at.remote, datagram, random, now) {
                    Some(echo) => answerer.send(to.at, &echo, datagram, sent),
                    // It waits, or was counted.
                    None => true,
                }
            }),
        };
        self.dropped += u64::from(!has_room);
    }

    /// Sends requests and replies that are due of themselves, and what waits.
    pub fn handle_timeout(&mut self) {
        let (now, sent) = (self.now, &mut self.sent);
        for asker in &mut self.askers {
            while let Some(echo) = asker.machine.poll_request(now) {
                let to = Endpoint::new((asker.remote, 0).into());
                if !asker.send(to, &echo, &[], sent) {
                    break;
                }
            }
        }
        if let Some(answerer) = &mut self.answerer {
            self.scratch.clear();
            while let Some((to, echo)) = answerer.machine.poll_reply(&mut self.scratch, now) {
                if !answerer.send(Endpoint::new(to), &echo, &self.scratch, sent) {
                    self.dropped += 1;
                }
                self.scratch.clear();
            }
        }
        self.flush();
    }

    /// Sends what waits, as far as sockets have room.
    pub fn flush(&mut self) {
        let mut sent = self.sent;
        self.lanes().filter(|lane| lane.len() > 0).for_each(|lane| lane.flush(&mut sent));
        self.sent = sent;
    }

    /// How long nothing is due; `None` if nothing ever is.
    #[must_use]
    pub fn sleep(&self) -> Option<Duration> {
        let askers = self.askers.iter().filter_map(|asker| asker.machine.poll_timeout());
        let answerer = self.answerer.as_ref().and_then(|answerer| answerer.machine.poll_timeout());
        let now = Instant(crate::linux::sys::boottime_ns());
        askers.chain(answerer).min().map(|at| at.since(now))
    }

    /// Datagrams that the kernel did not take, or for which there was no socket.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.sent.refused + self.dropped
    }

    /// What did not go on, by reason.
    pub fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let answerer = self.answerer.as_ref().map(|answerer| *answerer.machine.counters());
        let of = answerer.unwrap_or_default();
        let mut asked = icmp::RequesterCounters::default();
        for asker in &self.askers {
            let one = asker.machine.counters();
            asked.duplicates += one.duplicates;
            asked.foreign += one.foreign;
            asked.echoed += one.echoed;
        }
        let all = [
            ("icmp-stranger", of.strange + of.malformed),
            ("icmp-request-again", of.duplicates),
            ("icmp-no-request", of.stale + of.overflow + of.unasked),
            ("icmp-no-place", of.crowded),
            ("icmp-reply-again", asked.duplicates),
            ("icmp-reply-foreign", asked.foreign),
            ("icmp-no-responder", asked.echoed),
        ];
        all.into_iter().filter(|(_, count)| *count > 0)
    }
}

impl Asker {
    #[inline]
    fn send(&mut self, to: Endpoint, echo: &Echo, datagram: &[u8], sent: &mut Sent) -> bool {
        let family = Family::of(self.remote);
        let (kind, id) = (family.choose(ECHO), self.id);
        let len = ICMP_LEN + HEAD_LEN + datagram.len();
        self.lane.push(to, len, sent, |out| write(out, kind, id, echo, datagram))
    }
}

impl Answerer {
    #[inline]
    fn send(&mut self, mut to: Endpoint, echo: &Echo, datagram: &[u8], sent: &mut Sent) -> bool {
        let kind = Family::of(self.at).choose(REPLY);
        let id = to.remote.port();
        to.remote.set_port(0);
        let len = ICMP_LEN + HEAD_LEN + datagram.len();
        self.lane.push(to, len, sent, |out| write(out, kind, id, echo, datagram))
    }
}

fn shifted(range: &Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

/// Writes a whole message of ICMP. The checksum of ICMPv6 is the kernel's to fill in.
#[inline]
fn write(out: &mut [u8], kind: u8, id: u16, echo: &Echo, datagram: &[u8]) {
    let (head, body) = out.split_at_mut(ICMP_LEN);
    head.copy_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 0]);
    head[4..6].copy_from_slice(&id.to_be_bytes());
    head[6..8].copy_from_slice(&echo.sequence.to_be_bytes());
    let (ours, rest) = body.split_at_mut(HEAD_LEN);
    ours.copy_from_slice(&echo.head);
    rest.copy_from_slice(datagram);
    let sum = Sum::of(out).checksum();
    out[2..4].copy_from_slice(&sum.to_be_bytes());
}

struct Head {
    id: u16,
    sequence: u16,
}

fn message_of(bytes: &[u8], kind: u8) -> Option<Head> {
    if bytes.len() < ICMP_LEN || bytes[0] != kind || bytes[1] != 0 {
        return None;
    }
    let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    Some(Head { id: word(4), sequence: word(6) })
}
