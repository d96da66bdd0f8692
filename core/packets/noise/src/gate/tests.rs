//! The gate: silence, cookies, rates (threats DP-05, DP-06, DP-16, DP-19).

use core::time::Duration;

use super::*;
use crate::Peer;
use crate::tests::testing::{End, Seeded, at, ends};

const NOON: f64 = 1000.0;

struct Server {
    gate: Gate,
    random: Seeded,
}

impl Server {
    fn new(end: &End) -> Self {
        let mut random = Seeded(77);
        Self { gate: Gate::new(&end.identity, &mut random), random }
    }

    fn admit(&mut self, datagram: &[u8], source: &str, seconds: f64, load: bool) -> Admission {
        let source = source.parse().expect("an address");
        self.gate.admit(datagram, source, at(seconds), load, &mut self.random)
    }

    fn cookie(&mut self, datagram: &[u8], source: &str, seconds: f64) -> [u8; 64] {
        match self.admit(datagram, source, seconds, true) {
            Admission::Cookie(reply) => reply,
            other => panic!("no cookie but {other:?}"),
        }
    }
}

fn accept_cookie(peer: &mut Peer, reply: &[u8; 64], seconds: f64) -> Result<(), Drop> {
    peer.accept_cookie(reply, at(seconds))
}

#[test]
fn without_load_mac1_is_all_it_takes() {
    let [mut a, b] = ends(1);
    let mut server = Server::new(&b);
    let initiation = a.initiate(at(NOON)).expect("first");
    for _ in 0..100 {
        let admission = server.admit(&initiation, "10.0.0.1:1", NOON, false);
        assert_eq!(admission, Admission::Accept);
    }
    assert_eq!(server.gate.poll_timeout(), None);
}

#[test]
fn every_bit_that_mac1_covers_is_answered_with_silence_if_wrong() {
    let [mut a, b] = ends(2);
    let mut server = Server::new(&b);
    let initiation = a.initiate(at(NOON)).expect("first");
    for bit in 0..132 * 8 {
        let mut forged = initiation;
        forged[bit / 8] ^= 1 << (bit % 8);
        for load in [false, true] {
            let admission = server.admit(&forged, "10.0.0.1:1", NOON, load);
            assert_eq!(admission, Admission::Refuse(Drop::BadMac1), "bit {bit}");
        }
    }
    for len in (0..300).filter(|len| ![92, 148].contains(len)) {
        let admission = server.admit(&vec![1; len], "10.0.0.1:1", NOON, true);
        assert_eq!(admission, Admission::Refuse(Drop::Malformed), "length {len}");
    }
    // Made for another responder.
    assert_eq!(
        Server::new(&a).admit(&initiation, "10.0.0.1:1", NOON, false),
        Admission::Refuse(Drop::BadMac1)
    );
}

#[test]
fn under_load_a_cookie_is_asked_for_and_honoured() {
    let [mut a, mut b] = ends(3);
    let mut server = Server::new(&b);
    let first = a.initiate(at(NOON)).expect("first");
    assert_eq!(first[132..], [0; 16], "no cookie yet, so no mac2");
    let reply = server.cookie(&first, "10.0.0.1:1", NOON);
    assert_eq!(reply[..8], [&[3, 0, 0, 0], &first[4..8]].concat());
    accept_cookie(&mut a.peer, &reply, NOON).expect("genuine");
    // Once.
    assert_eq!(accept_cookie(&mut a.peer, &reply, NOON), Err(Drop::BadCookie));

    let second = a.initiate(at(NOON + 6.0)).expect("after the timeout");
    assert_ne!(second[132..], [0; 16]);
    assert_eq!(server.admit(&second, "10.0.0.1:1", NOON + 6.0, true), Admission::Accept);
    // From another port or address it is worth nothing (threat DP-05).
    for source in ["10.0.0.1:2", "10.0.0.2:1", "[::1]:1"] {
        server.cookie(&second, source, NOON + 6.0);
    }
    assert_eq!(
        server.admit(&second, "[::ffff:10.0.0.1]:1", NOON + 6.0, true),
        Admission::Accept,
        "the same address written as IPv6"
    );
    // The response carries a mac2 of its own once its sender has a cookie.
    let response = b.accept(&second, at(NOON + 6.0)).expect("genuine");
    let mut other = Server::new(&a);
    let reply = other.cookie(&response, "10.0.0.9:9", NOON + 6.0);
    accept_cookie(&mut b.peer, &reply, NOON + 6.0).expect("genuine");
    let third = b.initiate(at(NOON + 12.0)).expect("after the timeout");
    assert_eq!(other.admit(&third, "10.0.0.9:9", NOON + 12.0, true), Admission::Accept);
}

#[test]
fn a_cookie_lasts_115_s_at_the_sender_and_120_s_at_the_responder() {
    let [mut a, b] = ends(4);
    let mut server = Server::new(&b);
    let first = a.initiate(at(NOON)).expect("first");
    let reply = server.cookie(&first, "10.0.0.1:1", NOON);
    accept_cookie(&mut a.peer, &reply, NOON).expect("genuine");

    let late = a.initiate(at(NOON + 114.9)).expect("after the timeout");
    assert_ne!(late[132..], [0; 16]);
    assert_eq!(server.admit(&late, "10.0.0.1:1", NOON + 119.9, true), Admission::Accept);
    server.cookie(&late, "10.0.0.1:1", NOON + 125.0);
    let later = a.initiate(at(NOON + 120.0)).expect("after the timeout");
    assert_eq!(later[132..], [0; 16], "the sender has given the cookie up");
}

#[test]
fn a_cookie_reply_that_is_not_ours_is_refused() {
    let [mut a, b] = ends(5);
    let mut server = Server::new(&b);
    let first = a.initiate(at(NOON)).expect("first");
    let reply = server.cookie(&first, "10.0.0.1:1", NOON);
    for byte in 4..64 {
        let mut forged = reply;
        forged[byte] ^= 0x10;
        assert_eq!(accept_cookie(&mut a.peer, &forged, NOON), Err(Drop::BadCookie), "{byte}");
    }
    // To an older message.
    a.initiate(at(NOON + 6.0)).expect("after the timeout");
    assert_eq!(accept_cookie(&mut a.peer, &reply, NOON + 6.0), Err(Drop::BadCookie));
}

#[test]
fn a_source_with_a_cookie_is_held_to_its_rate() {
    let [mut a, b] = ends(6);
    let mut server = Server::new(&b);
    let first = a.initiate(at(NOON)).expect("first");
    let reply = server.cookie(&first, "10.0.0.1:1", NOON);
    accept_cookie(&mut a.peer, &reply, NOON).expect("genuine");
    let second = a.initiate(at(NOON + 6.0)).expect("after the timeout");
    let mut accepted = 0;
    for attempt in 0..1000 {
        let seconds = NOON + 6.0 + f64::from(attempt) / 1000.0;
        match server.admit(&second, "10.0.0.1:1", seconds, true) {
            Admission::Accept => accepted += 1,
            other => assert_eq!(other, Admission::Refuse(Drop::RateLimited)),
        }
    }
    assert!((24..=25).contains(&accepted), "{accepted}");
    // Once for its cookies, once for its handshakes.
    for _ in 0..2 {
        let sweep = server.gate.poll_timeout().expect("one source is known");
        server.gate.handle_timeout(sweep + Duration::from_secs(2));
    }
    assert_eq!(server.gate.poll_timeout(), None);
}

/// Threat DP-01: a flood from one source buys few replies, and takes none from others.
#[test]
fn dp_01_a_source_is_sent_cookies_at_a_rate_too() {
    let [mut a, b] = ends(8);
    let mut server = Server::new(&b);
    let first = a.initiate(at(NOON)).expect("first");
    let mut cookies = 0;
    for attempt in 0..1000 {
        let seconds = NOON + f64::from(attempt) / 1000.0;
        match server.admit(&first, "10.0.0.1:1", seconds, true) {
            Admission::Cookie(_) => cookies += 1,
            other => assert_eq!(other, Admission::Refuse(Drop::RateLimited)),
        }
    }
    assert!((24..=25).contains(&cookies), "{cookies}");
    let other = server.admit(&first, "10.0.0.2:1", NOON + 1.0, true);
    assert!(matches!(other, Admission::Cookie(_)), "{other:?}");
}

/// The silence oracle: whatever comes, no more bytes go out than came in (threats DP-06, DP-19).
#[test]
fn a_million_mutated_datagrams_gain_nothing() {
    let [mut a, b] = ends(7);
    let mut server = Server::new(&b);
    let initiation = a.initiate(at(NOON)).expect("first");
    let mut random = Seeded(8);
    let (mut bytes_in, mut bytes_out) = (0, 0);
    for i in 0..1_000_000_u32 {
        let mut datagram = initiation;
        let len = if i % 7 == 0 { random.next() as usize % 149 } else { 148 };
        if i % 3 != 0 {
            let at = random.next() as usize % 148;
            datagram[at] ^= 1 << (random.next() % 8);
        }
        bytes_in += len;
        let seconds = NOON + f64::from(i) / 1e5;
        match server.admit(&datagram[..len], "10.0.0.1:1", seconds, i % 2 == 0) {
            Admission::Cookie(reply) => {
                assert!(reply.len() < len);
                bytes_out += reply.len();
            }
            Admission::Accept | Admission::Refuse(_) => {}
        }
    }
    assert!(bytes_out > 0 && bytes_out < bytes_in, "{bytes_out} for {bytes_in}");
}
