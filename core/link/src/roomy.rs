//! Whether a packet of full size travels whole with what protects it.
//!
//! The usual MTU of 1420 leaves what WireGuard needs over IPv6; over IPv4 it leaves 20 bytes more.
//! They are what a packet's place in its flow and its repair take. Where they pass, each such
//! packet is one datagram, else a head and a chunk; on slow lines, where flows come in packets and
//! pairs, that is a third of all datagrams. A link may be narrower than both ends think, so they
//! are asked for: once on a new way, and again while it is used. Whoever sets another MTU knows
//! why, and nothing larger is sent (source 004.5 (11)). Unlike a larger MTU's probe
//! ([`crate::paths`]) this one may be fragmented: then what it stands for would be as well, and as
//! two fragments costs what two datagrams do.

use std::time::Duration;

use noise::Instant;
use wire::frame::{Ordered, ProbeAnswer, Repair};

use crate::outbox::Destination;
use crate::paths::USUAL;

/// Bytes around a packet that is sent whole: its own place, and the repair of as much.
pub(crate) const SPENT: usize = Ordered::FIXED_LEN + Repair::FIXED_LEN;
/// So many probes without an answer, and it does not pass: in weather that loses a twentieth each
/// way that is mistaken once in ten thousand times.
const TRIES_MAX: u32 = 4;
/// What is not answered is asked again after so long, and then after twice as long.
const AGAIN: Duration = Duration::from_millis(250);
/// What passed is asked again after so long, if it was used.
const CHECK: Duration = Duration::from_secs(5);
/// What did not pass is tried again after so long (RFC 8899, PMTU_RAISE_TIMER).
const RAISE: Duration = Duration::from_secs(600);

/// What is known of the way that is used.
#[derive(Debug)]
pub(crate) struct Roomy {
    /// Where the way leads, and bytes of the plaintext that is asked for.
    asked: Option<(Destination, usize)>,
    passed: bool,
    /// The probe that is under way.
    nonce: Option<u64>,
    tries: u32,
    next: Instant,
    /// Whether so much was sent since it passed.
    used: bool,
}

impl Default for Roomy {
    fn default() -> Self {
        let (asked, nonce) = (None, None);
        Self { asked, passed: false, nonce, tries: 0, next: Instant::ZERO, used: false }
    }
}

impl Roomy {
    /// Bytes of the largest plaintext on the way to `to`, at an interface with `mtu`. On the path
    /// of every packet that is sent in frames.
    #[inline]
    pub(crate) fn room(&self, to: &Destination, mtu: usize) -> usize {
        match &self.asked {
            Some((asked, len)) if self.passed && *len == mtu + SPENT && leads(asked, to) => *len,
            _ => mtu,
        }
    }

    /// Bytes of the probe that is due to `to`, with this `nonce`.
    pub(crate) fn poll(
        &mut self,
        to: &Destination,
        mtu: usize,
        nonce: impl FnOnce() -> u64,
        now: Instant,
    ) -> Option<usize> {
        let len = wanted(to, mtu);
        let is_known =
            self.asked.as_ref().is_some_and(|(asked, of)| Some(*of) == len && leads(asked, to));
        if !is_known {
            *self = Self { asked: len.map(|len| (*to, len)), next: now, ..Self::default() };
        }
        let len = len?;
        if now < self.next || (self.passed && self.nonce.is_none() && !self.used) {
            return None;
        }
        if self.tries >= TRIES_MAX {
            (self.passed, self.nonce, self.tries) = (false, None, 0);
            self.next = now + RAISE;
            return None;
        }
        self.nonce = Some(*self.nonce.get_or_insert_with(nonce));
        self.next = now + AGAIN * (1 << self.tries);
        self.tries += 1;
        Some(len)
    }

    /// The nonce of what [`Roomy::poll`] asked for.
    pub(crate) fn nonce(&self) -> u64 {
        self.nonce.unwrap_or(0)
    }

    /// An answer came; says whether it was to a probe of ours.
    pub(crate) fn handle_answer(&mut self, answer: &ProbeAnswer, now: Instant) -> bool {
        let asked = self.asked.as_ref().map(|(_, len)| *len);
        if self.nonce != Some(answer.nonce) || asked != Some(usize::from(answer.len)) {
            return false;
        }
        (self.passed, self.nonce, self.tries, self.used) = (true, None, 0, false);
        self.next = now + CHECK;
        true
    }

    /// More than the interface's MTU was sent.
    pub(crate) fn note_used(&mut self) {
        self.used = true;
    }

    /// Nobody can be asked now.
    pub(crate) fn rest(&mut self) {
        (self.nonce, self.tries) = (None, 0);
    }

    /// When [`Roomy::poll`] has something, if nothing changes.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.asked.as_ref()?;
        (self.nonce.is_some() || (self.passed && self.used)).then_some(self.next)
    }
}

/// Whether both lead to the same place, from whichever of our addresses.
fn leads(one: &Destination, other: &Destination) -> bool {
    match (one.udp(), other.udp()) {
        (Some(one), Some(other)) => one.remote == other.remote,
        _ => false,
    }
}

/// Bytes that a packet of full size takes, if a usual link may carry them. What goes through a
/// relay has a bound of its own.
fn wanted(to: &Destination, mtu: usize) -> Option<usize> {
    (to.udp()?.remote.is_ipv4() && mtu == USUAL).then_some(USUAL + SPENT)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::outbox::Endpoint;

    fn to(host: u8) -> Destination {
        Endpoint::new(SocketAddr::from(([192, 0, 2, host], 9))).into()
    }

    fn answer(roomy: &Roomy, len: usize) -> ProbeAnswer {
        ProbeAnswer { nonce: roomy.nonce(), len: len as u16, observed: None }
    }

    #[test]
    fn what_passed_is_used_there_and_nowhere_else() {
        let mut roomy = Roomy::default();
        let at = Instant(1);
        assert_eq!(roomy.room(&to(1), 1_420), 1_420);
        assert_eq!(roomy.poll(&to(1), 1_420, || 7, at), Some(1_440));
        assert!(!roomy.handle_answer(&ProbeAnswer { nonce: 8, ..answer(&roomy, 1_440) }, at));
        assert!(!roomy.handle_answer(&answer(&roomy, 1_420), at), "another length");
        assert!(roomy.handle_answer(&answer(&roomy, 1_440), at));
        assert!(!roomy.handle_answer(&answer(&roomy, 1_440), at), "once");
        assert_eq!(roomy.room(&to(1), 1_420), 1_440);
        assert_eq!(roomy.room(&to(1), 1_400), 1_400, "another interface");
        assert_eq!(roomy.room(&to(2), 1_420), 1_420, "another way");
        assert_eq!(roomy.poll(&to(2), 1_420, || 9, at), Some(1_440));
        assert_eq!(roomy.room(&to(1), 1_420), 1_420, "forgotten");
    }

    #[test]
    fn source_004_11_only_what_a_usual_link_carries_is_asked_for_and_never_more_than_was_set() {
        let relayed = Destination::Relay(crate::outbox::Relayed {
            relay: 1,
            peer: noise::PublicKey([1; 32]),
        });
        let v6 = Endpoint::new("[2001:db8::1]:9".parse().expect("address")).into();
        let asked = |to: &Destination, mtu| Roomy::default().poll(to, mtu, || 7, Instant(1));
        assert_eq!(asked(&to(1), 1_420), Some(1_440));
        assert_eq!([0, 516, 1_280, 1_440, 8_920].map(|mtu| asked(&to(1), mtu)), [None; 5]);
        assert_eq!([asked(&v6, 1_420), asked(&relayed, 1_420)], [None; 2]);
    }

    #[test]
    fn silence_means_no_and_an_idle_way_is_not_asked_again() {
        let mut roomy = Roomy::default();
        let mut now = Instant(1);
        let mut asked = 0;
        assert_eq!(roomy.poll_timeout(), None);
        asked += usize::from(roomy.poll(&to(1), 1_420, || 7, now).is_some());
        while let Some(at) = roomy.poll_timeout() {
            now = at;
            asked += usize::from(roomy.poll(&to(1), 1_420, || 7, now).is_some());
        }
        assert_eq!((asked, now.since(Instant(1)).as_millis()), (4, 250 + 500 + 1_000 + 2_000));
        now += RAISE;
        assert_eq!(roomy.poll(&to(1), 1_420, || 7, now), Some(1_440), "tried again");
        roomy.handle_answer(&answer(&roomy, 1_440), now);
        assert_eq!(roomy.room(&to(1), 1_420), 1_440);
        roomy.rest();
        assert_eq!(roomy.poll_timeout(), None, "nothing was sent since");
        roomy.note_used();
        assert_eq!(roomy.poll_timeout(), Some(now + CHECK));
        // The way is narrower now.
        while let Some(at) = roomy.poll_timeout() {
            now = at;
            roomy.poll(&to(1), 1_420, || 7, now);
        }
        assert_eq!(roomy.room(&to(1), 1_420), 1_420);
    }
}
