//! One peer at a time, and two with a virtual clock between them.

use super::*;
use crate::tests::testing::{Link, Seeded, at, ends, linked, seal_with};

const HELLO: &[u8] = b"hello";

fn link(seed: u64) -> Link {
    Link::new(ends(seed))
}

/// A link with a session, made by end 0 at about 1 s.
fn up(seed: u64) -> Link {
    let mut link = link(seed);
    link.send(0, HELLO);
    link.run(at(2.0));
    assert_eq!(link.ends[1].received, [HELLO]);
    assert_eq!(link.handshakes(), 1);
    link
}

fn whys(peer: &Peer) -> Option<(u64, Why)> {
    peer.poll_timeout().map(|(when, why)| (when.0 / 1_000_000_000, why))
}

#[test]
fn dp_07_a_replayed_initiation_changes_nothing() {
    let [mut a, mut b] = linked(1, at(1.0));
    let before = b.peer.current.as_ref().map(|session| session.index());
    let initiation = a.initiate(at(10.0)).expect("after the timeout");
    let mut late = a.initiate(at(20.0)).expect("after the timeout");
    b.accept(&late, at(20.0)).expect("fresh");
    let waiting = b.peer.next.as_ref().map(|session| session.index());
    for i in 0..1000 {
        let now = at(21.0 + f64::from(i));
        assert_eq!(b.accept(&late, now), Err(Drop::OldTimestamp));
        assert_eq!(b.accept(&initiation, now), Err(Drop::OldTimestamp));
    }
    assert_eq!(b.peer.next.as_ref().map(|session| session.index()), waiting);
    assert_eq!(b.peer.current.as_ref().map(|session| session.index()), before);
    assert_eq!(b.indices.len(), 2);
    late[100] ^= 1;
    assert_eq!(b.accept(&late, at(2000.0)), Err(Drop::BadHandshake));
}

#[test]
fn dp_07_a_peer_gets_at_most_50_initiations_a_second() {
    let [mut a, mut b] = ends(2);
    let mut accepted = 0;
    for millisecond in 0..1000_u64 {
        let now = Instant(millisecond * 1_000_000);
        a.peer.handshake_sent = None;
        a.wall_s += 1;
        let initiation = a.initiate(now).expect("the timeout was lifted");
        match b.accept(&initiation, now) {
            Ok(_) => accepted += 1,
            Err(reason) => assert_eq!(reason, Drop::InitiationFlood),
        }
    }
    assert_eq!(accepted, 50);
}

#[test]
fn dp_08_a_response_is_consumed_once_and_only_for_the_newest_initiation() {
    let [mut a, mut b] = ends(3);
    let first = a.initiate(at(1.0)).expect("first");
    let first_response = b.accept(&first, at(1.0)).expect("fresh");
    let second = a.initiate(at(7.0)).expect("after the timeout");
    assert_eq!(a.complete(&first_response, at(7.0)), Err(Drop::UnexpectedResponse));
    assert!(a.peer.current.is_none());
    let second_response = b.accept(&second, at(7.0)).expect("fresh");
    a.complete(&second_response, at(7.0)).expect("genuine");
    let session = a.peer.current.as_ref().map(|session| session.index());
    assert_eq!(a.complete(&second_response, at(7.1)), Err(Drop::UnexpectedResponse));
    // The published attack: the response again, with a new initiation under way.
    a.seal(HELLO, at(7.2)).expect("linked");
    a.initiate(at(13.0)).expect("after the timeout");
    assert_eq!(a.complete(&second_response, at(13.0)), Err(Drop::UnexpectedResponse));
    assert_eq!(a.peer.current.as_ref().map(|session| session.index()), session);
    a.seal(HELLO, at(13.1)).expect("linked");
}

/// When a peer that nobody answers sends initiations, in seconds, without the jitter.
fn course(end: &mut crate::tests::testing::End, begin: u64, initiations: usize) -> Vec<u64> {
    let (mut now, mut sent) = (at(begin as f64), Vec::new());
    end.peer.want_handshake();
    while sent.len() < initiations {
        while let Some(action) = end.peer.poll_action() {
            if action == Action::Initiate && end.initiate(now).is_some() {
                sent.push(now.0 / 1_000_000_000 - begin);
            }
        }
        // Every packet in between asks, too.
        if end.peer.sealer(now).is_none() {
            assert!(end.initiate(now).is_none(), "before its time, at {} ns", now.0);
            while end.peer.poll_action().is_some() {}
        }
        now = end.peer.poll_timeout().expect("it tries again").0.max(now);
        end.peer.handle_timeout(&mut end.indices, now);
    }
    sent
}

#[test]
fn dp_11_first_initiations_are_repeated_sooner_toward_a_peer_of_our_make() {
    let [mut a, _] = ends(30);
    let plain = course(&mut a, 10, 6);
    assert!(plain.iter().zip((0..).step_by(5)).all(|(at, due)| (due..due + 2).contains(at)));
    let [mut a, mut b] = ends(31);
    a.peer.set_repeats_soon(true);
    a.peer.set_word(1);
    let first = course(&mut a, 10, 6);
    assert_eq!(first[..3], [0, 1, 3]);
    assert!(first[3..].iter().zip([8, 13, 18]).all(|(at, due)| (due..due + 3).contains(at)));
    // The third is answered: the next session is renewed in the protocol's time.
    let now = at(100.0);
    let initiation = a.initiate(now).expect("long after the last");
    let response = b.accept(&initiation, now).expect("genuine");
    a.complete(&response, now).expect("genuine");
    let renewed = course(&mut a, 220, 3);
    assert!(renewed.iter().zip([0, 5, 10]).all(|(at, due)| (due..due + 2).contains(at)));
}

#[test]
fn dp_16_every_flipped_bit_of_a_handshake_is_refused_and_harmless() {
    let [mut a, mut b] = ends(4);
    let initiation = a.initiate(at(1.0)).expect("first");
    for bit in 8 * 8..116 * 8 {
        let mut forged = initiation;
        forged[bit / 8] ^= 1 << (bit % 8);
        // The top bit of a Curve25519 point is ignored, but the transcript covers it.
        assert!(b.accept(&forged, at(1.0)).is_err(), "bit {bit}");
    }
    assert!(b.peer.next.is_none() && b.indices.is_empty());
    let response = b.accept(&initiation, at(1.0)).expect("genuine");
    for bit in 8 * 8..60 * 8 {
        let mut forged = response;
        forged[bit / 8] ^= 1 << (bit % 8);
        assert!(a.complete(&forged, at(1.0)).is_err(), "bit {bit}");
    }
    assert!(a.peer.current.is_none());
    a.complete(&response, at(1.0)).expect("genuine, after all that");
}

#[test]
fn dp_10_an_exhausted_session_is_replaced() {
    let [mut a, mut b] = linked(5, at(1.0));
    let session = a.peer.sealer(at(2.0)).expect("linked");
    session.skip_to(crate::REJECT_AFTER_MESSAGES - 2);
    for _ in 0..2 {
        let datagram = a.seal(HELLO, at(2.0)).expect("below the limit");
        b.open(&datagram, at(2.0)).expect("below the limit");
    }
    while a.peer.poll_action().is_some() {}
    assert!(a.peer.sealer(at(2.0)).is_none());
    assert_eq!(a.peer.poll_action(), Some(Action::Initiate));
    let initiation = a.initiate(at(7.0)).expect("after the timeout");
    let response = b.accept(&initiation, at(7.0)).expect("fresh");
    a.complete(&response, at(7.0)).expect("genuine");
    assert!(a.seal(HELLO, at(7.0)).is_some());
}

#[test]
fn dp_11_keepalives_answer_data_after_10_s_and_silence_is_noticed_after_15_s() {
    let mut link = up(6);
    // End 1 received at 1.06 s and sends nothing: its keepalive is due ten seconds later.
    assert_eq!(whys(&link.ends[1].peer), Some((11, Why::Keepalive)));
    // End 0 sent data and has heard nothing since.
    assert_eq!(whys(&link.ends[0].peer), Some((16, Why::Silence)));
    link.run(at(15.0));
    assert_eq!(link.ends[0].keepalives, 1);
    // DP-23: a keepalive is not answered.
    link.run(at(100.0));
    assert_eq!((link.ends[0].keepalives, link.ends[1].keepalives), (1, 0));
    assert_eq!(link.handshakes(), 1);
}

#[test]
fn dp_11_data_that_keeps_coming_earns_a_second_keepalive() {
    let mut link = up(7);
    for second in [3.0, 5.0, 8.0] {
        link.run(at(second));
        link.send(0, HELLO);
    }
    link.run(at(40.0));
    assert_eq!(link.ends[0].keepalives, 2);
}

#[test]
fn dp_11_a_dead_path_is_tried_18_times_and_then_given_up() {
    let mut link = link(8);
    link.cut = [true; 2];
    link.send(0, HELLO);
    assert_eq!(link.ends[0].staged.len(), 1);
    let mut sent = vec![link.now];
    while link.now < at(120.0) && !link.ends[0].staged.is_empty() {
        let (when, why) = link.ends[0].peer.poll_timeout().expect("something is due");
        assert_eq!(why, Why::Retransmit);
        let before = link.ends[0].initiations;
        link.run(when);
        link.run(when + Duration::from_nanos(1));
        if link.ends[0].initiations > before {
            sent.push(when);
        }
    }
    assert_eq!(sent.len(), 18);
    for pair in sent.windows(2) {
        let gap = pair[1] - pair[0];
        assert!(gap >= Duration::from_secs(5) && gap <= Duration::from_millis(5334), "{gap:?}");
    }
    assert!(link.now >= at(91.0) && link.now < at(97.1), "{:?}", link.now);
    assert!(link.ends[0].indices.is_empty(), "the last initiation is forgotten");
    // Nothing more happens by itself, until everything secret is wiped.
    assert_eq!(link.ends[0].peer.poll_timeout().map(|(_, why)| why), Some(Why::Wipe));
    link.run(at(2000.0));
    assert_eq!(link.ends[0].peer.poll_timeout(), None);
    // The next packet starts again.
    link.cut = [false; 2];
    link.send(0, HELLO);
    link.run(at(2001.0));
    assert_eq!(link.ends[1].received.len(), 1);
}

#[test]
fn dp_11_silence_after_data_starts_a_handshake_after_15_s() {
    let mut link = up(9);
    link.run(at(60.0));
    link.cut = [true; 2];
    link.send(0, HELLO);
    link.run(at(74.9));
    assert_eq!(link.handshakes(), 1);
    link.run(at(75.4));
    assert_eq!(link.handshakes(), 2);
}

#[test]
fn dp_11_only_the_initiator_renews_at_120_s_and_at_165_s_if_it_only_receives() {
    // Who received data, when, and what each end has initiated a second later.
    for (second, from, expected) in [
        (119.0, 0, [1, 0]),
        (121.5, 0, [2, 0]),
        (121.5, 1, [1, 0]),
        (165.0, 1, [1, 0]),
        (166.5, 1, [2, 0]),
        (179.0, 1, [2, 0]),
    ] {
        let mut link = up(10);
        link.run(at(second));
        link.send(from, HELLO);
        link.run(at(second + 1.0));
        let initiations = [0, 1].map(|end| link.ends[end].initiations);
        assert_eq!(initiations, expected, "end {from} sent at {second} s");
    }
}

#[test]
fn dp_11_fifteen_minutes_of_traffic_take_at_most_9_handshakes() {
    let mut link = link(12);
    let mut sent = 0;
    for tick in 0..9000 {
        link.run(at(1.0 + f64::from(tick) / 10.0));
        link.send(0, HELLO);
        link.send(1, HELLO);
        sent += 1;
    }
    link.run(at(910.0));
    assert!(link.handshakes() <= 9, "{}", link.handshakes());
    for end in &link.ends {
        assert_eq!(end.received.len(), sent, "nothing is lost while sessions change");
        assert_eq!(end.drops, []);
        assert!(end.indices.len() <= 3);
    }
}

#[test]
fn dp_11_sessions_end_at_180_s_and_secrets_at_540_s() {
    let mut link = up(13);
    link.run(at(180.9));
    assert!(link.ends[0].peer.current.is_some());
    link.run(at(181.5));
    for end in &link.ends {
        assert!(end.peer.current.is_none() && end.indices.is_empty());
        assert_eq!(whys(&end.peer), Some((541, Why::Wipe)));
    }
    link.run(at(542.0));
    assert!(link.ends.iter().all(|end| end.peer.poll_timeout().is_none()));
}

#[test]
fn a_persistent_keepalive_starts_at_once_and_repeats() {
    let mut link = link(14);
    link.ends[0].peer.set_keepalive_s(25);
    assert_eq!(link.ends[0].peer.poll_timeout(), Some((Instant::ZERO, Why::Action)));
    link.run(at(2.0));
    assert_eq!((link.ends[0].initiations, link.ends[1].keepalives), (1, 1));
    link.run(at(102.0));
    assert_eq!(link.ends[1].keepalives, 5);
    // It renews the session by itself, for ever.
    link.run(at(1000.0));
    assert!(link.ends[1].keepalives >= 39 && link.ends[0].initiations >= 8);
    assert_eq!(link.ends[0].drops, []);
    link.ends[0].peer.set_keepalive_s(0);
    link.run(at(1030.0));
    let before = link.ends[1].keepalives;
    link.run(at(1100.0));
    assert_eq!(link.ends[1].keepalives, before);
}

#[test]
fn dp_13_no_index_is_live_twice_and_none_is_left_behind() {
    let mut indices = Indices::new();
    let mut random = Seeded(15);
    let mut live = std::collections::BTreeSet::new();
    for i in 0..100_000 {
        let index = indices.allocate(PeerId(i), &mut random).expect("room");
        assert!(live.insert(index));
        assert_eq!(indices.owner(index), Some(PeerId(i)));
    }
    live.into_iter().for_each(|index| indices.release(index));
    assert!(indices.is_empty());

    let mut link = up(15);
    link.send(0, HELLO);
    for end in &mut link.ends {
        end.peer.clear(&mut end.indices);
        assert!(end.indices.is_empty());
        assert_eq!(end.peer.poll_timeout(), None);
    }
}

/// Repeats come from the table, not from luck: with four values left to draw, all are found.
#[test]
fn dp_13_a_colliding_draw_is_drawn_again() {
    struct Low(Seeded);
    impl Random for Low {
        fn fill(&mut self, bytes: &mut [u8]) {
            bytes.fill(0);
            bytes[0] = (self.0.next() % 256) as u8;
        }
    }
    let (mut indices, mut random) = (Indices::new(), Low(Seeded(16)));
    for i in 0..256 {
        indices.allocate(PeerId(i), &mut random).expect("room");
    }
    assert_eq!(indices.len(), 256);
}

#[test]
fn dp_14_indices_are_spread_evenly() {
    let (mut indices, mut random) = (Indices::new(), Seeded(17));
    let (mut counts, mut last, mut rising) = ([0_u32; 256], 0, 0);
    for i in 0..1_000_000 {
        let Index(index) = indices.allocate(PeerId(i), &mut random).expect("room");
        counts[(index >> 24) as usize] += 1;
        rising += u32::from(index > last);
        last = index;
    }
    let expected = 1_000_000.0 / 256.0;
    let chi: f64 = counts.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
    assert!(chi < 340.0, "chi squared {chi} of 255 degrees of freedom");
    assert!((498_000..502_000).contains(&rising), "{rising}");
}

#[test]
fn dp_15_no_packet_leaves_for_a_low_order_or_own_key() {
    let [mut a, _] = ends(18);
    let order_8 = "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800";
    let other_8 = "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157";
    let minus_1 = "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f";
    let p = "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f";
    let p_plus_1 = "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f";
    let mut keys: Vec<_> = [order_8, other_8, minus_1, p, p_plus_1]
        .map(|text| PublicKey::from_hex(text).expect("hexadecimal"))
        .into();
    let mut one = [0; 32];
    keys.push(PublicKey(one));
    one[0] = 1;
    keys.push(PublicKey(one));
    keys.push(*a.identity.public());
    for key in keys {
        a.peer = Peer::new(PeerId(7), key, &mut Seeded(1));
        assert!(a.peer.sealer(at(1.0)).is_none());
        assert_eq!(a.peer.poll_action(), Some(Action::Initiate));
        assert_eq!(a.initiate(at(1.0)), None, "{key}");
        assert!(a.indices.is_empty() && a.peer.poll_timeout().is_none());
    }
}

#[test]
fn an_initiation_of_our_own_is_refused() {
    let [mut a, _] = ends(19);
    let mut twin = ends(19).into_iter().next().expect("two ends");
    twin.peer = Peer::new(PeerId(7), *a.identity.public(), &mut Seeded(1));
    let key = PrivateKey::generate(&mut Seeded(2));
    let shared = a.identity.private().agree(a.identity.public()).expect("a good key");
    let own = *a.identity.public();
    let made = Sent::new(&a.identity, &own, &shared, key, Index(1), Tai64n::from_unix(9, 0));
    let (initiation, _) = made.expect("a good key");
    assert_eq!(a.accept(&initiation, at(1.0)), Err(Drop::OwnKey));
    assert_eq!(twin.initiate(at(1.0)), None);
}

#[test]
fn dp_21_a_changed_preshared_key_applies_to_the_next_handshake() {
    let mut link = up(20);
    let psk = PresharedKey::from_bytes([7; 32]);
    link.ends[0].peer.set_preshared_key(psk.clone());
    link.send(0, HELLO);
    link.run(at(3.0));
    assert_eq!(link.ends[1].received.len(), 2, "the current session lives on");
    // One-sided: no new session, and the old one until it ends.
    link.run(at(125.0));
    link.send(0, HELLO);
    link.run(at(126.0));
    assert_eq!(link.ends[1].received.len(), 3);
    assert!(link.ends[0].drops.contains(&Drop::BadHandshake));
    // Both: again a session.
    link.ends[1].peer.set_preshared_key(psk);
    link.run(at(140.0));
    let born = link.ends[0].peer.current.as_ref().map(|session| session.born());
    assert!(born > Some(at(125.0)), "{born:?}");
}

#[test]
fn an_initiator_reads_whichever_key_holds_and_renews_the_session_when_it_does_no_more() {
    let [old, new, other] = [7, 8, 9].map(|n| PresharedKey::from_bytes([n; 32]));
    let mut link = link(21);
    link.ends[0].peer.set_preshared_keys(new.clone(), [None, Some(old.clone()), None]);
    link.ends[1].peer.set_preshared_keys(old, [Some(new.clone()), None, None]);
    link.send(0, HELLO);
    link.run(at(3.0));
    assert_eq!(link.ends[1].received.len(), 1, "under the key that the responder chose");
    // The old one ends: nothing happens by itself, and with the next packet a handshake.
    link.ends[1].peer.set_preshared_keys(new.clone(), Default::default());
    link.ends[0].peer.set_preshared_keys(new, Default::default());
    link.run(at(10.0));
    assert_eq!(link.handshakes(), 1);
    link.send(1, HELLO);
    link.run(at(11.0));
    assert_eq!((link.handshakes(), link.ends[0].initiations), (2, 2), "by the initiator alone");
    link.send(0, HELLO);
    link.run(at(20.0));
    assert_eq!((link.handshakes(), link.ends[1].received.len()), (2, 2));
    // A response under a key that does not hold is refused, as ever.
    link.ends[1].peer.set_preshared_keys(other, Default::default());
    link.run(at(132.0));
    link.send(0, HELLO);
    link.run(at(133.0));
    assert_eq!(link.ends[0].drops, [Drop::BadHandshake]);
}

#[test]
fn lc_05_a_wall_clock_set_back_does_not_stop_handshakes() {
    for back_s in [1, 3600, 86_400, 1_600_000_000] {
        let mut link = up(21);
        link.ends[0].wall_s -= back_s;
        for second in [150.0, 300.0, 450.0, 600.0] {
            link.run(at(second));
            link.send(0, HELLO);
            link.run(at(second + 1.0));
        }
        assert_eq!(link.ends[1].received.len(), 5, "{back_s}");
        assert_eq!(link.ends[1].drops, []);
    }
}

#[test]
fn a_new_private_key_drops_sessions_and_shakes_hands_at_once() {
    let mut link = up(23);
    let identity = Identity::new(PrivateKey::generate(&mut Seeded(99)));
    let [a, b] = &mut link.ends;
    b.peer.clear(&mut b.indices);
    b.peer = Peer::new(PeerId(7), *identity.public(), &mut Seeded(4));
    a.identity = identity;
    a.peer.handle_identity(&mut a.indices);
    assert!(a.indices.is_empty());
    link.run(at(3.0));
    assert_eq!(link.handshakes(), 1, "nothing is begun before there is something to send");
    link.send(0, HELLO);
    link.run(at(4.0));
    assert_eq!(link.handshakes(), 2);
    link.send(1, HELLO);
    link.run(at(5.0));
    assert_eq!(link.ends[0].received, [HELLO]);
}

#[test]
fn lc_06_suspend_longer_than_a_session_is_survived_with_a_handshake_from_each_end_at_most() {
    let mut link = up(24);
    // Nothing runs for an hour; then a packet is sent before any timer was looked at.
    link.now = at(3600.0);
    link.send(0, HELLO);
    link.run(at(3601.0));
    assert_eq!(link.ends[1].received.len(), 2);
    assert!(link.ends.iter().all(|end| end.initiations <= 2));
}

#[test]
fn an_old_session_still_opens_what_was_under_way() {
    let [mut a, mut b] = linked(25, at(1.0));
    let late = a.seal(b"late", at(100.0)).expect("linked");
    let initiation = a.initiate(at(121.0)).expect("after the timeout");
    let response = b.accept(&initiation, at(121.0)).expect("fresh");
    let later = a.seal(b"later", at(121.0)).expect("linked");
    a.complete(&response, at(121.0)).expect("genuine");
    for datagram in a.act(at(121.0)) {
        b.handle(&datagram, at(121.0)).expect("genuine");
    }
    assert_eq!(b.open(&later, at(121.1)).as_deref(), Ok(&b"later"[..]));
    assert_eq!(b.open(&late, at(121.1)).as_deref(), Ok(&b"late"[..]));
    assert_eq!(b.open(&late, at(121.1)), Err(Drop::Replayed));
}

#[test]
fn sealing_in_place_needs_no_session_lookup_twice() {
    let [mut a, mut b] = linked(26, at(1.0));
    let session = a.peer.sealer(at(2.0)).expect("linked");
    let batch: Vec<_> = (0..64).map(|i| seal_with(session, &[i; 100])).collect();
    a.peer.data_sent(at(2.0), 64, 6400);
    for (i, datagram) in batch.iter().enumerate().rev() {
        assert_eq!(b.open(datagram, at(2.0)).as_deref(), Ok(&[i as u8; 100][..]));
    }
}

mod crossing;
