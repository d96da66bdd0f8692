//! The second cipher between two peers: how it begins, over a rekey, and what it leaves behind.

use crate::tests::testing::{End, Seeded, at, linked};
use crate::{Cipher, Drop, Index, Instant, Peer, PeerId, Random};

/// What each end tells the other in its Hello; answers with the indices that were told.
fn tell(ends: &mut [End; 2]) -> [u32; 2] {
    let told = ends.each_mut().map(|end| {
        end.peer.offer_second(current_of(&end.peer), &mut end.indices, &mut end.random);
        end.peer.sealer(at(1.0)).map_or(0, |session| session.second_index())
    });
    for (from, to) in [(0, 1), (1, 0)] {
        let current = ends[to].peer.current().expect("linked").0;
        ends[to].peer.accept_second(current, told[from]);
    }
    told
}

fn current_of(peer: &Peer) -> Index {
    peer.current().map_or(Index(0), |(index, _)| index)
}

fn receiver(datagram: &[u8]) -> u32 {
    u32::from_le_bytes(*datagram[4..].first_chunk().expect("long enough"))
}

/// A new session that end 0 initiates.
fn rekey([a, b]: &mut [End; 2], now: Instant) {
    let initiation = a.initiate(now).expect("after the timeout");
    let response = b.accept(&initiation, now).expect("fresh");
    a.complete(&response, now).expect("genuine");
    for datagram in a.act(now) {
        b.handle(&datagram, now).expect("genuine");
    }
}

#[test]
fn a_session_changes_its_cipher_in_the_middle_and_nothing_is_lost() {
    let mut ends = linked(30, at(1.0));
    let early = ends[0].seal(b"early", at(1.5)).expect("linked");
    let told = tell(&mut ends);
    let [a, b] = &mut ends;
    assert_eq!([a.peer.cipher(), b.peer.cipher()], [Some(Cipher::Aes256Gcm); 2]);
    for second in [told[1], told[0]] {
        let (from, to) = if second == told[1] { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
        let there = from.seal(b"there", at(2.0)).expect("linked");
        assert_eq!(receiver(&there), second);
        assert_eq!(to.open(&there, at(2.0)).as_deref(), Ok(&b"there"[..]));
        assert_eq!(to.open(&there, at(2.0)), Err(Drop::Replayed));
        // An empty one too.
        let keepalive = from.seal(b"", at(2.0)).expect("linked");
        assert_eq!((receiver(&keepalive), keepalive.len()), (second, 32));
        assert_eq!(to.open(&keepalive, at(2.0)).as_deref(), Ok(&b""[..]));
        let first = to.peer.current().expect("linked").0;
        assert_eq!(to.peer.session_of(Index(second)), Some(first));
        assert_eq!(to.peer.session_of(first), Some(first));
    }
    assert_eq!(b.open(&early, at(2.0)).as_deref(), Ok(&b"early"[..]));
}

#[test]
fn an_end_that_offers_nothing_keeps_both_directions_to_the_first_cipher() {
    let mut ends = linked(31, at(1.0));
    let [a, b] = &mut ends;
    a.peer.offer_second(current_of(&a.peer), &mut a.indices, &mut a.random);
    let told = a.peer.sealer(at(1.0)).expect("linked").second_index();
    let current = b.peer.current().expect("linked").0;
    b.peer.accept_second(current, told);
    assert_eq!([a.peer.cipher(), b.peer.cipher()], [Some(Cipher::ChaCha20Poly1305); 2]);
    assert_eq!((a.indices.len(), b.indices.len()), (2, 1), "b spends no index");
    for from_a in [true, false] {
        let (from, to) = if from_a { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
        let datagram = from.seal(b"plain", at(2.0)).expect("linked");
        assert_eq!(to.peer.current().map(|current| current.0.0), Some(receiver(&datagram)));
        assert_eq!(to.open(&datagram, at(2.0)).as_deref(), Ok(&b"plain"[..]));
    }
}

#[test]
fn dp_13_a_second_index_is_unique_belongs_to_its_peer_and_is_told_again_as_it_was() {
    let mut ends = linked(32, at(1.0));
    let told = tell(&mut ends);
    assert_eq!(tell(&mut ends), told, "an index is drawn once a session");
    for (end, told) in ends.iter().zip(told) {
        assert_eq!(end.indices.len(), 2);
        assert_eq!(end.indices.owner(Index(told)), Some(end.peer.id()));
        assert_ne!(end.peer.current().map(|current| current.0), Some(Index(told)));
    }
}

#[test]
fn dp_13_sessions_old_and_new_have_their_own_second_index_and_give_it_back() {
    let mut ends = linked(33, at(1.0));
    let first = tell(&mut ends);
    let late = ends[0].seal(b"late", at(120.0)).expect("linked");
    let lost = ends[0].seal(b"lost", at(120.0)).expect("linked");
    rekey(&mut ends, at(121.0));
    assert_eq!(ends[1].peer.cipher(), Some(Cipher::ChaCha20Poly1305), "until it is told anew");
    let second = tell(&mut ends);
    assert!(first.iter().all(|index| !second.contains(index)));
    assert_eq!(ends.each_ref().map(|end| end.indices.len()), [4, 4]);
    // What was under way opens, on the session it was sealed on, once.
    let b = &mut ends[1];
    let older = b.peer.session_of(Index(first[1]));
    assert!(older.is_some() && older != b.peer.current().map(|current| current.0));
    assert_eq!(b.open(&late, at(122.0)).as_deref(), Ok(&b"late"[..]));
    assert_eq!(b.open(&late, at(122.0)), Err(Drop::Replayed));
    let fresh = ends[0].seal(b"fresh", at(122.0)).expect("linked");
    assert_eq!(receiver(&fresh), second[1]);
    assert_eq!(ends[1].open(&fresh, at(122.0)).as_deref(), Ok(&b"fresh"[..]));
    // A third session replaces the first one, whose indices are free.
    rekey(&mut ends, at(241.5));
    assert_eq!(ends[1].indices.owner(Index(first[1])), None);
    assert_eq!(ends[1].open(&lost, at(241.5)), Err(Drop::UnknownIndex));
    tell(&mut ends);
    assert_eq!(ends.each_ref().map(|end| end.indices.len()), [4, 4]);
}

#[test]
fn dp_13_no_second_index_outlives_its_session() {
    // By the end of the session, by the timer that wipes, and by being cleared.
    for (seed, ended) in [(34, Some(181.0)), (35, Some(600.0)), (36, None)] {
        let mut ends = linked(seed, at(1.0));
        tell(&mut ends);
        for end in &mut ends {
            match ended {
                Some(seconds) => end.peer.handle_timeout(&mut end.indices, at(seconds)),
                None => end.peer.clear(&mut end.indices),
            }
            assert!(end.indices.is_empty() && end.peer.cipher().is_none());
        }
    }
}

#[test]
fn what_is_told_of_another_session_changes_nothing() {
    let mut ends = linked(37, at(1.0));
    let [a, _] = &mut ends;
    a.peer.offer_second(current_of(&a.peer), &mut a.indices, &mut a.random);
    let (current, second) = (a.peer.current().expect("linked").0, a.peer.sealer(at(1.0)));
    let second = Index(second.expect("linked").second_index());
    for wrong in [Index(current.0 ^ 1), second] {
        a.peer.accept_second(wrong, 5);
        assert_eq!(a.peer.cipher(), Some(Cipher::ChaCha20Poly1305));
    }
    a.peer.accept_second(current, 5);
    assert_eq!(a.peer.cipher(), Some(Cipher::Aes256Gcm));
    // Without a session there is nothing to offer.
    a.peer.clear(&mut a.indices);
    a.peer.offer_second(current_of(&a.peer), &mut a.indices, &mut a.random);
    assert!(a.indices.is_empty());
}

/// Zero says "none" on the wire, so it is not offered; nor is it kept.
#[test]
fn dp_14_an_index_of_zero_is_not_offered() {
    struct Zero;
    impl Random for Zero {
        fn fill(&mut self, bytes: &mut [u8]) {
            bytes.fill(0);
        }
    }
    let [mut a, _] = linked(38, at(1.0));
    a.peer.offer_second(current_of(&a.peer), &mut a.indices, &mut Zero);
    assert_eq!(a.peer.sealer(at(1.0)).map(|session| session.second_index()), Some(0));
    assert_eq!(a.indices.len(), 1);
    assert!(a.indices.allocate(PeerId(1), &mut Zero).is_some(), "it was given back");
    a.peer.offer_second(current_of(&a.peer), &mut a.indices, &mut Seeded(1));
    assert_ne!(a.peer.sealer(at(1.0)).map(|session| session.second_index()), Some(0));
}
