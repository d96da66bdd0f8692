//! The server's or a relay's end: everybody's requests to one address.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use carrier::icmp::{Echo, PLACES_MAX, Responder, ResponderCounters, SHOWN_MAX};
use noise::Random;

use crate::clock::Clock;
use crate::program::nft;
use crate::rule::Rule;
use crate::socket::Port;

/// A datagram that came: from whom, with the identifier as the port, and to which address of ours.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// From whom.
    pub from: SocketAddr,
    /// To which address.
    pub to: Option<IpAddr>,
}

/// A socket by which requests to one address are answered.
#[derive(Debug)]
pub struct Answerer {
    at: IpAddr,
    port: Port,
    machine: Responder,
    /// From which address of ours each is answered.
    own: BTreeMap<SocketAddr, IpAddr>,
    clock: Clock,
    scratch: Vec<u8>,
    /// Replies that the kernel had no room for.
    refused: u64,
    /// In force as long as this is.
    _rule: Rule,
}

impl Answerer {
    /// Opens it at an address of this machine, or at all of a family; `name` is in the name of its
    /// table of nftables.
    ///
    /// # Errors
    /// What is missing, and how to mend it.
    pub fn open(name: &str, at: IpAddr, random: &mut dyn Random) -> io::Result<Self> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => io::Error::new(
                error.kind(),
                "pings are answered with CAP_NET_RAW and CAP_NET_ADMIN: run it as root, or give \
                 its unit both (AmbientCapabilities and CapabilityBoundingSet)",
            ),
            io::ErrorKind::AddrNotAvailable => {
                let why = format!("{at} is no address of this machine; see `ip address`");
                io::Error::new(error.kind(), why)
            }
            _ => error,
        };
        let port = Port::answering(at).map_err(failed)?;
        let rule = Rule::add(&format!("{name}_{at}"), at, nft).map_err(io::Error::other)?;
        let machine = Responder::for_network(random);
        let own = BTreeMap::new();
        let clock = Clock::new();
        let scratch = Vec::new();
        Ok(Self { at, port, machine, own, clock, scratch, refused: 0, _rule: rule })
    }

    /// Where it answers.
    #[must_use]
    pub const fn at(&self) -> IpAddr {
        self.at
    }

    /// Whether what is sent might be cut on the way.
    #[must_use]
    pub fn may_fragment(&self) -> bool {
        self.port.may_fragment()
    }

    /// What was counted, and how many replies the kernel had no room for.
    #[must_use]
    pub const fn counters(&self) -> (&ResponderCounters, u64) {
        (self.machine.counters(), self.refused)
    }

    /// Reads at most `count` requests, gives their datagrams to `take`, and sends what waited for
    /// them. How many came.
    ///
    /// # Errors
    /// The kernel's; `WouldBlock` where nothing waits.
    pub fn read(
        &mut self,
        count: usize,
        now: Instant,
        mut take: impl FnMut(Came, &[u8]),
    ) -> io::Result<usize> {
        let Self { port, machine, own, clock, .. } = self;
        let at = clock.at(now);
        let came = port.read(count, |message, payload| {
            let from = SocketAddr::new(message.from, message.id);
            if let Some(to) = message.to {
                // Who has no place is answered at once, and its address kept until then.
                if own.len() >= 2 * (PLACES_MAX + SHOWN_MAX) {
                    own.clear();
                }
                own.insert(from, to);
            }
            if let Some(found) = machine.handle_request(from, message.sequence, payload, at) {
                take(Came { from, to: message.to }, &payload[found]);
            }
        });
        self.handle_timeout(now);
        came
    }

    /// Sends a datagram to who asks, in a reply at once or as soon as there is a request for it.
    pub fn send(&mut self, to: SocketAddr, datagram: &[u8], random: &mut dyn Random, now: Instant) {
        let at = self.clock.at(now);
        if let Some(echo) = self.machine.handle_datagram(to, datagram, random, at) {
            self.reply(to, &echo, datagram);
        }
    }

    fn reply(&mut self, to: SocketAddr, echo: &Echo, datagram: &[u8]) {
        let from = self.own.get(&to).copied();
        let sent = self.port.send(to.ip(), to.port(), from, echo, datagram);
        self.refused += u64::from(sent.is_err());
    }

    /// Who asks from there has proved a key. Whether there is room for it.
    pub fn prove(&mut self, at: SocketAddr, now: Instant) -> bool {
        self.machine.prove(at, self.clock.at(now))
    }

    /// Sends what waits for requests that came, and what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let at = self.clock.at(now);
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        while let Some((to, echo)) = self.machine.poll_reply(&mut scratch, at) {
            self.reply(to, &echo, &scratch);
            scratch.clear();
        }
        self.scratch = scratch;
    }

    /// When [`Answerer::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.machine.poll_timeout().map(|at| self.clock.back(at))
    }
}

impl AsFd for Answerer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.socket().as_fd()
    }
}
