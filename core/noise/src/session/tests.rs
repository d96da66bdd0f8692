//! Sessions: limits, sizes, and every bit of a packet (threats DP-10, DP-12, DP-16).

use super::*;
use crate::testing::{at, linked, seal_with};

fn pair() -> [Box<Session>; 2] {
    let secret = |n| Secret([n; 32]);
    [(1, 2, Role::Initiator), (2, 1, Role::Responder)].map(|(send, receive, role)| {
        let (sealing, opening) = (secret(send), secret(receive));
        let (local, remote) = (Index(u32::from(send)), u32::from(receive));
        Session::new(&Agreed { sealing, opening, local, remote, role }, at(0.0))
    })
}

#[test]
fn a_packet_is_header_ciphertext_and_tag() {
    let [mut a, mut b] = pair();
    seal_with(&mut a, b"");
    let mut datagram = seal_with(&mut a, b"0123456789abcdef");
    assert_eq!(datagram.len(), 48);
    assert_eq!(datagram[..16], [4, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(b.open(&mut datagram, at(1.0)), Ok(16..32));
    assert_eq!(&datagram[16..32], b"0123456789abcdef");
}

#[test]
fn the_counter_stops_both_ends_at_the_limit() {
    let [mut a, mut b] = pair();
    a.skip_to(REJECT_AFTER_MESSAGES - 2);
    for _ in 0..2 {
        let mut datagram = seal_with(&mut a, b"x");
        assert!(b.open(&mut datagram, at(1.0)).is_ok());
        assert!(a.is_stale(at(1.0)));
    }
    assert!(!a.may_send(at(1.0)));
    let mut datagram = [7; 48];
    assert_eq!(a.seal(&mut datagram), Err(Exhausted));
    assert_eq!(datagram, [7; 48], "untouched");
    // One that a peer sealed all the same.
    for beyond in [0, 1, 1 << 12, u64::MAX - REJECT_AFTER_MESSAGES] {
        let mut datagram = vec![0; 40];
        let counter = REJECT_AFTER_MESSAGES + beyond;
        datagram[8..16].copy_from_slice(&counter.to_le_bytes());
        let tag = a
            .sealing
            .seal_in_place_separate_tag(aead::nonce(counter), Aad::empty(), &mut datagram[16..24])
            .expect("short");
        datagram[24..].copy_from_slice(tag.as_ref());
        assert_eq!(b.open(&mut datagram, at(1.0)), Err(Drop::ExpiredSession));
    }
}

#[test]
fn rekeying_is_due_above_2_to_the_60_packets_or_after_120_s_as_initiator() {
    let [mut a, b] = pair();
    assert!(!a.is_stale(at(119.9)));
    assert!(a.is_stale(at(120.0)));
    assert!(!b.is_stale(at(179.0)), "a responder does not renew by time");
    a.skip_to(REKEY_AFTER_MESSAGES);
    assert!(!a.is_stale(at(1.0)));
    a.skip_to(REKEY_AFTER_MESSAGES + 1);
    assert!(a.is_stale(at(1.0)));
}

#[test]
fn nothing_opens_or_seals_after_180_s() {
    let [mut a, mut b] = pair();
    let (mut early, mut late) = (seal_with(&mut a, b"x"), seal_with(&mut a, b"y"));
    assert!(b.open(&mut early, at(179.9)).is_ok());
    assert_eq!(b.open(&mut late, at(180.0)), Err(Drop::ExpiredSession));
    assert!(a.may_send(at(179.9)) && !a.may_send(at(180.0)));
}

#[test]
fn every_flipped_bit_is_refused_and_the_genuine_packet_still_opens() {
    let [mut a, mut b] = pair();
    let datagram = seal_with(&mut a, b"sixteen bytes of");
    for bit in 8 * 8..datagram.len() * 8 {
        let mut forged = datagram.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let refused = b.open(&mut forged, at(1.0)).expect_err("forged");
        assert!(matches!(refused, Drop::BadTag | Drop::ExpiredSession), "bit {bit}: {refused}");
    }
    for len in 0..datagram.len() {
        let mut short = datagram[..len].to_vec();
        assert!(b.open(&mut short, at(1.0)).is_err(), "length {len}");
    }
    assert_eq!(b.open(&mut datagram.clone(), at(1.0)), Ok(16..32));
    assert_eq!(b.open(&mut datagram.clone(), at(1.0)), Err(Drop::Replayed));
}

#[test]
fn a_datagram_of_any_length_is_survived() {
    let [mut a, mut b] = linked(1, at(1.0));
    for len in (0..2000).chain([65_507, 65_535]) {
        let mut datagram = vec![4; len];
        assert!(b.peer.open(&mut b.indices, Index(3), &mut datagram, at(1.0)).is_err());
        if let Some(index) = b.peer.sealer(at(1.0)).map(|session| session.index()) {
            let refused = b.peer.open(&mut b.indices, index, &mut datagram, at(1.0));
            assert!(refused.is_err(), "length {len}");
        }
    }
    let sealed = a.seal(b"still here", at(1.0)).expect("linked");
    assert_eq!(b.open(&sealed, at(1.0)).as_deref(), Ok(&b"still here"[..]));
}

/// Bytes per session, in one place, so that growth is noticed.
#[test]
fn a_peer_and_a_session_stay_small() {
    let window = (crate::WINDOW / 8 + 8) as usize;
    let session = size_of::<Session>() + window;
    let peer = size_of::<crate::Peer>();
    assert!(peer < 1536, "{peer}");
    assert!(peer + session < 8192, "{peer} + {session}");
}
