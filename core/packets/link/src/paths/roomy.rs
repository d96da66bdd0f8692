//! Room for protection: whether a packet of full size travels whole with it.
//!
//! The usual MTU of 1420 leaves what WireGuard needs over IPv6; over IPv4 it leaves 20 bytes more.
//! They are what a packet's place in its flow and its repair take. Where they pass, each such
//! packet is one datagram, else a head and a chunk; on slow lines, where flows come in packets and
//! pairs, that is a third of all datagrams. A link may be narrower than both ends think, so they
//! are asked for: once on a new way, and again while it is used. Where another MTU is set
//! there is a reason, and nothing larger is sent (source 004.5 (11)). Unlike a larger MTU's probe
//! ([`super`]) this one may be fragmented: then what it stands for would be as well, and as
//! two fragments costs what two datagrams do.

use std::net::SocketAddr;
use std::time::Duration;

use noise::Instant;
use wire::frame::{Ordered, Probe, ProbeAnswer, Repair};

use super::mtu::{CHECK, RAISE, USUAL};
use crate::outbox::Destination;

/// Bytes of the repair of a packet of full size that has its place in a flow: what is asked for.
const WHOLE: usize = USUAL + Ordered::FIXED_LEN + Repair::FIXED_LEN;
/// So many probes without an answer, and it does not pass: in weather that loses a twentieth each
/// way that is mistaken once in ten thousand times.
const TRIES_MAX: u32 = 4;
/// What is not answered is asked again after so long, and then after twice as long.
const AGAIN: Duration = Duration::from_millis(250);

/// What is known of the way that is used.
#[derive(Debug)]
pub(crate) struct Roomy {
    /// Where the way leads that is asked.
    asked: Option<SocketAddr>,
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
        let asked = None;
        let nonce = None;
        Self { asked, passed: false, nonce, tries: 0, next: Instant::ZERO, used: false }
    }
}

impl Roomy {
    /// Bytes of the largest plaintext on the way to `to`, at an interface with `mtu`. On the path
    /// of every packet that is sent in frames.
    #[inline]
    pub(crate) fn room(&self, to: &Destination, mtu: usize) -> usize {
        if self.passed && self.asked == wanted(to, mtu) { WHOLE } else { mtu }
    }

    /// The probe that is due to `to`, with a new `nonce` unless one is under way.
    pub(crate) fn poll(
        &mut self,
        to: &Destination,
        mtu: usize,
        nonce: impl FnOnce() -> u64,
        now: Instant,
    ) -> Option<Probe> {
        let wanted = wanted(to, mtu);
        if self.asked != wanted {
            *self = Self { asked: wanted, next: now, ..Self::default() };
        }
        wanted?;
        if now < self.next || (self.passed && self.nonce.is_none() && !self.used) {
            return None;
        }
        if self.tries >= TRIES_MAX {
            self.passed = false;
            self.nonce = None;
            self.tries = 0;
            self.next = now + RAISE;
            return None;
        }
        let nonce = *self.nonce.get_or_insert_with(nonce);
        self.next = now + AGAIN * (1 << self.tries);
        self.tries += 1;
        Some(Probe { path: 0, nonce, len: WHOLE as u16 })
    }

    /// An answer came; says whether it was to a probe of ours.
    pub(crate) fn handle_answer(&mut self, answer: &ProbeAnswer, now: Instant) -> bool {
        if self.nonce != Some(answer.nonce) || usize::from(answer.len) != WHOLE {
            return false;
        }
        self.passed = true;
        self.nonce = None;
        self.tries = 0;
        self.used = false;
        self.next = now + CHECK;
        true
    }

    /// More than the interface's MTU was sent.
    pub(crate) fn note_used(&mut self) {
        self.used = true;
    }

    /// Nobody can be asked now, and so nothing is due, until more than the MTU is sent again.
    pub(crate) fn rest(&mut self) {
        self.nonce = None;
        self.tries = 0;
        self.used = false;
    }

    /// When [`Roomy::poll`] has something, if nothing changes.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        (self.nonce.is_some() || (self.passed && self.used)).then_some(self.next)
    }
}

/// Where the way to `to` leads, if it has the room: a usual link over IPv4, at the usual MTU. What
/// goes through a relay has a bound of its own.
fn wanted(to: &Destination, mtu: usize) -> Option<SocketAddr> {
    let remote = to.udp()?.remote;
    (remote.is_ipv4() && mtu == USUAL).then_some(remote)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::Endpoint;

    fn to(host: u8) -> Destination {
        Endpoint::new(SocketAddr::from(([192, 0, 2, host], 9))).into()
    }

    /// The length of the probe that is due; its nonce is 7.
    fn asked(roomy: &mut Roomy, to: &Destination, mtu: usize, now: Instant) -> Option<u16> {
        roomy.poll(to, mtu, || 7, now).map(|probe| probe.len)
    }

    fn answer(len: u16) -> ProbeAnswer {
        ProbeAnswer { nonce: 7, len, observed: None }
    }

    #[test]
    fn what_passed_is_used_there_and_nowhere_else() {
        let mut roomy = Roomy::default();
        let at = Instant(1);
        assert_eq!(roomy.room(&to(1), 1_420), 1_420);
        assert_eq!(asked(&mut roomy, &to(1), 1_420, at), Some(1_440));
        assert!(!roomy.handle_answer(&ProbeAnswer { nonce: 8, ..answer(1_440) }, at));
        assert!(!roomy.handle_answer(&answer(1_420), at), "another length");
        assert!(roomy.handle_answer(&answer(1_440), at));
        assert!(!roomy.handle_answer(&answer(1_440), at), "once");
        assert_eq!(roomy.room(&to(1), 1_420), 1_440);
        assert_eq!(roomy.room(&to(1), 1_400), 1_400, "another interface");
        assert_eq!(roomy.room(&to(2), 1_420), 1_420, "another way");
        assert_eq!(asked(&mut roomy, &to(2), 1_420, at), Some(1_440));
        assert_eq!(roomy.room(&to(1), 1_420), 1_420, "forgotten");
    }

    #[test]
    fn source_004_11_only_what_a_usual_link_carries_is_asked_for_and_never_more_than_was_set() {
        let relayed = Destination::Relay(crate::outbox::Relayed {
            relay: 1,
            peer: noise::PublicKey([1; 32]),
        });
        let v6 = Endpoint::new("[2001:db8::1]:9".parse().expect("address")).into();
        let asked = |to: &Destination, mtu| asked(&mut Roomy::default(), to, mtu, Instant(1));
        assert_eq!(asked(&to(1), 1_420), Some(1_440));
        assert_eq!([0, 516, 1_280, 1_440, 8_920].map(|mtu| asked(&to(1), mtu)), [None; 5]);
        assert_eq!([asked(&v6, 1_420), asked(&relayed, 1_420)], [None; 2]);
    }

    #[test]
    fn silence_means_no_and_an_idle_way_is_not_asked_again() {
        let mut roomy = Roomy::default();
        let mut now = Instant(1);
        let mut count = 0;
        assert_eq!(roomy.poll_timeout(), None);
        count += usize::from(asked(&mut roomy, &to(1), 1_420, now).is_some());
        while let Some(at) = roomy.poll_timeout() {
            now = at;
            count += usize::from(asked(&mut roomy, &to(1), 1_420, now).is_some());
        }
        assert_eq!((count, now.since(Instant(1)).as_millis()), (4, 250 + 500 + 1_000 + 2_000));
        now += RAISE;
        assert_eq!(asked(&mut roomy, &to(1), 1_420, now), Some(1_440), "tried again");
        roomy.handle_answer(&answer(1_440), now);
        assert_eq!(roomy.room(&to(1), 1_420), 1_440);
        roomy.rest();
        assert_eq!(roomy.poll_timeout(), None, "nothing was sent since");
        roomy.note_used();
        assert_eq!(roomy.poll_timeout(), Some(now + CHECK));
        roomy.rest();
        assert_eq!(roomy.poll_timeout(), None, "what nobody can be asked is not due");
        roomy.note_used();
        assert_eq!(roomy.poll_timeout(), Some(now + CHECK));
        // The way is narrower now.
        while let Some(at) = roomy.poll_timeout() {
            now = at;
            asked(&mut roomy, &to(1), 1_420, now);
        }
        assert_eq!(roomy.room(&to(1), 1_420), 1_420);
    }
}
