//! Sessions: limits, sizes, and every bit of a packet (threats DP-10, DP-12, DP-16).

use super::*;
use crate::tests::testing::{at, linked, seal_with};

const CHACHA: Cipher = Cipher::ChaCha20Poly1305;
const AES: Cipher = Cipher::Aes256Gcm;

impl Session {
    /// Sets the counter, to reach its limits within a test's life.
    pub(crate) fn skip_to(&mut self, counter: u64) {
        self.counter = counter;
    }
}

fn pair() -> [Box<Session>; 2] {
    #[cfg(feature = "oracle")]
    crate::forget_nonces();
    let secret = |n| Secret([n; 32]);
    [(1, 2, Role::Initiator), (2, 1, Role::Responder)].map(|(send, receive, role)| {
        let (sealing, opening) = (secret(send), secret(receive));
        let (local, remote) = (Index(u32::from(send)), u32::from(receive));
        Session::new(
            &Agreed { sealing, opening, local, remote, role, psk: PresharedKey::default() },
            at(0.0),
        )
    })
}

#[test]
fn a_packet_is_header_ciphertext_and_tag() {
    let [mut a, mut b] = pair();
    seal_with(&mut a, b"");
    let mut datagram = seal_with(&mut a, b"0123456789abcdef");
    assert_eq!(datagram.len(), 48);
    assert_eq!(datagram[..16], [4, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(b.open(CHACHA, &mut datagram, at(1.0)), Ok(16..32));
    assert_eq!(&datagram[16..32], b"0123456789abcdef");
}

#[test]
fn the_counter_stops_both_ends_at_the_limit() {
    let [mut a, mut b] = pair();
    a.skip_to(REJECT_AFTER_MESSAGES - 2);
    for _ in 0..2 {
        let mut datagram = seal_with(&mut a, b"x");
        assert!(b.open(CHACHA, &mut datagram, at(1.0)).is_ok());
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
        assert_eq!(b.open(CHACHA, &mut datagram, at(1.0)), Err(Drop::ExpiredSession));
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
    assert!(b.open(CHACHA, &mut early, at(179.9)).is_ok());
    assert_eq!(b.open(CHACHA, &mut late, at(180.0)), Err(Drop::ExpiredSession));
    assert!(a.may_send(at(179.9)) && !a.may_send(at(180.0)));
}

#[test]
fn every_flipped_bit_is_refused_and_the_genuine_packet_still_opens() {
    let [mut a, mut b] = pair();
    let datagram = seal_with(&mut a, b"sixteen bytes of");
    for bit in 8 * 8..datagram.len() * 8 {
        let mut forged = datagram.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let refused = b.open(CHACHA, &mut forged, at(1.0)).expect_err("forged");
        assert!(matches!(refused, Drop::BadTag | Drop::ExpiredSession), "bit {bit}: {refused}");
    }
    for len in 0..datagram.len() {
        let mut short = datagram[..len].to_vec();
        assert!(b.open(CHACHA, &mut short, at(1.0)).is_err(), "length {len}");
    }
    assert_eq!(b.open(CHACHA, &mut datagram.clone(), at(1.0)), Ok(16..32));
    assert_eq!(b.open(CHACHA, &mut datagram.clone(), at(1.0)), Err(Drop::Replayed));
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
    let second = Second::KEYS_LEN;
    assert!(session < 5632 && second <= 1216, "{session}, and {second} with the second cipher");
}

/// A pair in which each end offered 100 more than its first index, and neither was told.
fn offering() -> [Box<Session>; 2] {
    let mut pair = pair();
    for session in &mut pair {
        session.begin_second(Index(session.index().0 + 100));
    }
    pair
}

/// A pair with the second cipher on.
fn second() -> [Box<Session>; 2] {
    let mut pair = offering();
    pair[0].set_second_remote(102);
    pair[1].set_second_remote(101);
    pair
}

fn receiver(datagram: &[u8]) -> Index {
    Index(u32::from_le_bytes(*datagram[4..].first_chunk().expect("long enough")))
}

#[test]
fn the_second_cipher_needs_an_index_of_each_end() {
    let [mut a, mut b] = pair();
    a.set_second_remote(102);
    assert_eq!((a.cipher(), a.second_index()), (CHACHA, 0), "told, but nothing offered");
    assert_eq!(receiver(&seal_with(&mut a, b"x")), Index(2));
    let mut astray = seal_with(&mut a, b"x");
    assert_eq!(b.open(AES, &mut astray, at(1.0)), Err(Drop::UnknownIndex));
    let [mut a, _] = offering();
    assert_eq!((a.cipher(), a.second_index()), (CHACHA, 101), "offered, but told nothing");
    assert_eq!(receiver(&seal_with(&mut a, b"x")), Index(2));
    a.set_second_remote(102);
    assert_eq!(a.cipher(), AES);
    assert_eq!(receiver(&seal_with(&mut a, b"x")), Index(102));
    a.set_second_remote(0);
    assert_eq!(receiver(&seal_with(&mut a, b"x")), Index(2), "taken back");
}

#[test]
fn both_ciphers_share_one_counter_and_one_window() {
    let [mut a, mut b] = offering();
    let sealed: Vec<_> = (0..100_u64)
        .map(|counter| {
            a.set_second_remote(if counter % 3 == 0 { 102 } else { 0 });
            let datagram = seal_with(&mut a, &counter.to_le_bytes());
            assert_eq!(datagram[8..16], counter.to_le_bytes());
            datagram
        })
        .collect();
    for (counter, datagram) in sealed.iter().enumerate().rev() {
        let cipher = b.cipher_of(receiver(datagram)).expect("one of two");
        assert_eq!(cipher == AES, counter % 3 == 0);
        let range = b.open(cipher, &mut datagram.clone(), at(1.0));
        assert_eq!(range, Ok(16..24));
        assert_eq!(b.open(cipher, &mut datagram.clone(), at(1.0)), Err(Drop::Replayed));
    }
    assert_eq!(b.cipher_of(Index(1)), None);
}

/// Whatever was accepted under one cipher is old under the other: genuine packets with the same
/// counter under both keys, as only a faulty peer would make them.
#[test]
fn dp_12_a_counter_passes_once_under_either_cipher() {
    let [mut a, mut b] = offering();
    for (counter, ciphers) in [(5, [CHACHA, AES]), (9, [AES, CHACHA])] {
        let [first, again] = ciphers.map(|cipher| {
            a.skip_to(counter);
            a.set_second_remote(if cipher == AES { 102 } else { 0 });
            seal_with(&mut a, b"once")
        });
        assert_eq!(b.open(ciphers[0], &mut first.clone(), at(1.0)), Ok(16..20));
        assert_eq!(b.open(ciphers[1], &mut again.clone(), at(1.0)), Err(Drop::Replayed));
    }
}

#[test]
fn a_packet_opens_under_its_own_cipher_only() {
    let [mut a, mut b] = offering();
    for (remote, right, wrong) in [(0, CHACHA, AES), (102, AES, CHACHA)] {
        a.set_second_remote(remote);
        let datagram = seal_with(&mut a, b"sixteen bytes of");
        assert_eq!(b.open(wrong, &mut datagram.clone(), at(1.0)), Err(Drop::BadTag));
        assert_eq!(b.open(right, &mut datagram.clone(), at(1.0)), Ok(16..32));
    }
    // Nor does a packet open at the end that sealed it.
    let [mut a, _] = second();
    let datagram = seal_with(&mut a, b"sixteen bytes of");
    assert_eq!(a.open(AES, &mut datagram.clone(), at(1.0)), Err(Drop::BadTag));
}

#[test]
fn dp_16_every_flipped_bit_is_refused_under_the_second_cipher_too() {
    let [mut a, mut b] = second();
    let datagram = seal_with(&mut a, b"sixteen bytes of");
    for bit in 8 * 8..datagram.len() * 8 {
        let mut forged = datagram.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let refused = b.open(AES, &mut forged, at(1.0)).expect_err("forged");
        assert!(matches!(refused, Drop::BadTag | Drop::ExpiredSession), "bit {bit}: {refused}");
    }
    for len in 0..datagram.len() {
        assert!(b.open(AES, &mut datagram[..len].to_vec(), at(1.0)).is_err(), "length {len}");
    }
    assert_eq!(b.open(AES, &mut datagram.clone(), at(1.0)), Ok(16..32));
}

#[test]
fn after_2_to_the_35_blocks_the_first_cipher_takes_over() {
    let [mut a, mut b] = second();
    assert_eq!(a.second.blocks_left(), 1 << 35);
    let mut datagram = seal_with(&mut a, &[7; 1440]);
    assert_eq!(a.second.blocks_left(), (1 << 35) - 92, "90 of plaintext, and two");
    assert_eq!(b.open(AES, &mut datagram, at(1.0)), Ok(16..1456));
    a.second.leave(4);
    for (cipher, index) in [(AES, 102), (AES, 102), (CHACHA, 2)] {
        assert_eq!(a.cipher(), cipher);
        let mut datagram = seal_with(&mut a, b"sixteen bytes of");
        assert_eq!(receiver(&datagram), Index(index));
        assert_eq!(b.open(cipher, &mut datagram, at(1.0)), Ok(16..32));
    }
}

#[test]
fn the_limits_of_a_session_hold_for_its_second_cipher() {
    let [mut a, mut b] = second();
    let mut late = seal_with(&mut a, b"x");
    assert_eq!(b.open(AES, &mut late, at(180.0)), Err(Drop::ExpiredSession));
    a.skip_to(REJECT_AFTER_MESSAGES);
    let mut datagram = [7; 48];
    assert_eq!(a.seal(&mut datagram), Err(Exhausted));
    assert_eq!(datagram, [7; 48], "untouched");
}

/// What a key seals says what it is: after wiping it is the zero key.
#[test]
fn a_wiped_key_of_either_cipher_is_gone() {
    let seal = |key: &LessSafeKey| {
        let mut bytes = *b"sixteen bytes of";
        let sealed = key.seal_in_place_separate_tag(aead::nonce(3), Aad::empty(), &mut bytes);
        (bytes, sealed.expect("short").as_ref().to_vec())
    };
    for (make, wipe) in [
        (aead::key as fn(&Secret) -> LessSafeKey, aead::wipe as fn(&mut LessSafeKey)),
        (aead::aes_key, aead::wipe_aes),
    ] {
        let mut key = make(&Secret([9; 32]));
        let (before, zero) = (seal(&key), seal(&make(&Secret([0; 32]))));
        wipe(&mut key);
        assert_ne!(seal(&key), before);
        assert_eq!(seal(&key), zero);
    }
}

/// Expected value: HKDF with HMAC-BLAKE2s of another implementation (Python's hmac and hashlib).
#[test]
fn the_further_keys_are_hkdf_of_the_sessions_with_a_label() {
    let further = |n| crate::kdf::kdf1(&[n; 32], b"warren: second cipher, AES-256-GCM").0;
    let [mut a, mut b] = second();
    let (there, back) = (seal_with(&mut a, b"there"), seal_with(&mut b, b"back"));
    for (datagram, key) in [(there, further(1)), (back, further(2))] {
        let mut sealed = datagram[16..].to_vec();
        let key = aead::aes_key(&Secret(key));
        assert!(key.open_in_place(aead::nonce(0), Aad::empty(), &mut sealed).is_ok());
    }
    let expected = [
        0x5d, 0x72, 0x73, 0xa4, 0x7c, 0xd0, 0x59, 0x2b, 0x15, 0x9c, 0xae, 0x53, 0x74, 0xb8, 0xb0,
        0x07, 0xa2, 0xd7, 0xac, 0x1b, 0x63, 0x50, 0xa8, 0x3d, 0xf4, 0x92, 0x91, 0xaf, 0x5f, 0x40,
        0x0a, 0x8f,
    ];
    assert_eq!(further(1), expected);
}
