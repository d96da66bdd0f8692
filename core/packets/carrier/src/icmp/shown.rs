//! Newcomers of a responder that serves a network: who shows that it receives what is sent to its
//! address has a small place, and a large one once its key was proved.
//!
//! What such a requester carries is not looked at here, so nothing in it can prove anything. A
//! request without the cookie of its address is answered with that cookie at once, in no more
//! bytes, and forgotten: the cookie is a hash, so that costs no memory. Places of those who came
//! back with it are few, and displace each other and nobody else ([`admit::Crowd`]).

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use admit::{Crowd, Number, Source};
use blake2::Blake2sMac;
use blake2::digest::consts::U16;
use blake2::digest::{KeyInit, Mac};
use noise::Random;
use wire::ping::Reply;

use super::{Echo, KNOCKS_MAX, SHOWN_MAX, SHOWN_OF_ONE_MAX};

/// Who may become one that has a place.
#[derive(Debug)]
pub(super) struct Shown {
    secret: [u8; 32],
    crowd: Crowd<u64, Source, SocketAddr>,
    knocks: VecDeque<(SocketAddr, Echo)>,
}

impl Shown {
    pub(super) fn new(random: &mut dyn Random) -> Self {
        let mut secret = [0; 32];
        random.fill(&mut secret);
        let crowd = Crowd::with(SHOWN_MAX, SHOWN_OF_ONE_MAX);
        Self { secret, crowd, knocks: VecDeque::new() }
    }

    /// The cookie of an address and identifier, never 0.
    pub(super) fn cookie(&self, of: SocketAddr) -> u32 {
        let mut mac = <Blake2sMac<U16> as KeyInit>::new_from_slice(&self.secret)
            .expect("a key of 32 bytes is what BLAKE2s allows");
        match of.ip() {
            IpAddr::V4(ip) => mac.update(&ip.octets()),
            IpAddr::V6(ip) => mac.update(&ip.octets()),
        }
        mac.update(&of.port().to_be_bytes());
        let hash: [u8; 16] = mac.finalize().into_bytes().into();
        let [a, b, c, d, ..] = hash;
        u32::from_be_bytes([a, b, c, d]).max(1)
    }

    /// Has a request answered with the cookie of its sender; `false` if too many wait for that.
    pub(super) fn knock(&mut self, from: SocketAddr, sequence: u16, tag: u32) -> bool {
        if self.knocks.len() >= KNOCKS_MAX {
            return false;
        }
        let reply = Reply { tag, cookie: self.cookie(from), ..Reply::default() };
        self.knocks.push_back((from, Echo { sequence, head: reply.bytes(), padding: 0 }));
        true
    }

    /// The next answer of that kind.
    pub(super) fn poll_knock(&mut self) -> Option<(SocketAddr, Echo)> {
        self.knocks.pop_front()
    }

    pub(super) fn knocks(&self) -> usize {
        self.knocks.len()
    }

    /// A place among those who have shown their address, and who lost theirs for it.
    pub(super) fn enter(&mut self, at: SocketAddr) -> (Number, Option<SocketAddr>) {
        let source = Source::from(at.ip());
        self.crowd.enter(source.wide(), source, at)
    }

    pub(super) fn leave(&mut self, number: Number) {
        self.crowd.leave(number);
    }

    pub(super) fn len(&self) -> usize {
        self.crowd.len()
    }
}
