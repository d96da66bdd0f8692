//! Against another implementation of the Noise pattern, byte for byte.

use snow::Builder;

use super::*;
use crate::kdf::tests::{CONSTRUCTION, IDENTIFIER};
use crate::session::Session;
use crate::tests::testing::{Seeded, seal_with};
use crate::{Instant, Random};

fn builder() -> Builder<'static> {
    let pattern = core::str::from_utf8(CONSTRUCTION).expect("ascii").parse().expect("known");
    Builder::new(pattern).prologue(IDENTIFIER).expect("first time")
}

fn key(random: &mut Seeded) -> [u8; 32] {
    let mut bytes = [0; 32];
    random.fill(&mut bytes);
    bytes
}

/// The published vector of the pattern (cacophony), its first two messages: the implementation that
/// ours is compared with below keeps to it. Ours cannot be run on it: WireGuard fixes the prologue
/// and the payloads' lengths.
#[test]
fn published_ikpsk2_vector_holds_for_what_ours_is_compared_with() {
    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2).map(|pair| core::str::from_utf8(pair).expect("hex"));
        pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect()
    }
    let pattern = || core::str::from_utf8(CONSTRUCTION).expect("ascii").parse().expect("known");
    let builder = || Builder::new(pattern()).prologue(b"John Galt").expect("first time");
    let psk = *b"This is my Austrian perspective!";
    let secrets = [
        "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1",
        "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a",
        "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893",
        "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b",
        "31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62",
    ];
    let [i_static, i_ephemeral, r_static, r_ephemeral, r_public] = secrets.map(bytes);
    let private = PrivateKey::from_bytes(r_static.clone().try_into().expect("32 bytes"));
    assert_eq!(private.public().0[..], r_public, "the vector's own keys, by our arithmetic");
    let mut initiator = builder()
        .local_private_key(&i_static)
        .and_then(|b| b.remote_public_key(&r_public))
        .and_then(|b| b.psk(2, &psk))
        .expect("valid")
        .fixed_ephemeral_key_for_testing_only(&i_ephemeral)
        .build_initiator()
        .expect("complete");
    let mut responder = builder()
        .local_private_key(&r_static)
        .and_then(|b| b.psk(2, &psk))
        .expect("valid")
        .fixed_ephemeral_key_for_testing_only(&r_ephemeral)
        .build_responder()
        .expect("complete");
    let (mut sent, mut read) = ([0; 200], [0; 200]);
    let len = initiator.write_message(b"Ludwig von Mises", &mut sent).expect("fits");
    let first = "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944\
                 001e21de9f98ddd8e2ad57527207feb56253c9c94a9e496782ecfcb2a75fbcaf\
                 1b52948cc48daefe660c62119ab5000980c84831215f2441eba616548e832985\
                 464cf17e51ee93109008399a21f7e13f";
    assert_eq!(sent[..len], bytes(first));
    responder.read_message(&sent[..len], &mut read).expect("genuine");
    let len = responder.write_message(b"Murray Rothbard", &mut sent).expect("fits");
    let second = "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843\
                  cb765f2caef0751b8f007572dab0322217755c0632f365717edbf34d33e87a";
    assert_eq!(sent[..len], bytes(second));
}

#[test]
fn both_messages_and_the_keys_are_those_of_ikpsk2() {
    for seed in 0..20 {
        compare(&mut Seeded(seed), seed % 2 == 0);
    }
}

fn compare(random: &mut Seeded, with_psk: bool) {
    let secrets = [0; 4].map(|_: u8| key(random));
    let [i_static, r_static, i_ephemeral, r_ephemeral] = secrets.map(PrivateKey::from_bytes);
    let psk = if with_psk { key(random) } else { [0; 32] };
    let timestamp = Tai64n::from_unix(1_700_000_000, 123_456_789);
    let (initiator, responder) = (Identity::new(i_static.clone()), Identity::new(r_static.clone()));

    let mut theirs_i = builder()
        .local_private_key(i_static.as_bytes())
        .and_then(|b| b.remote_public_key(&responder.public().0))
        .and_then(|b| b.psk(2, &psk))
        .expect("valid")
        .fixed_ephemeral_key_for_testing_only(i_ephemeral.as_bytes())
        .build_initiator()
        .expect("complete");
    let mut theirs_r = builder()
        .local_private_key(r_static.as_bytes())
        .and_then(|b| b.psk(2, &psk))
        .expect("valid")
        .fixed_ephemeral_key_for_testing_only(r_ephemeral.as_bytes())
        .build_responder()
        .expect("complete");

    // The initiation.
    let shared = initiator.private().agree(responder.public()).expect("not of low order");
    let made = Sent::new(
        &initiator,
        responder.public(),
        &shared,
        i_ephemeral.clone(),
        Index(1),
        timestamp,
    );
    let (initiation, sent) = made.expect("not of low order");
    let mut expected = [0; 200];
    let len = theirs_i.write_message(&timestamp.0, &mut expected).expect("fits");
    assert_eq!(initiation[8..116], expected[..len]);
    let mut payload = [0; 200];
    let len = theirs_r.read_message(&initiation[8..116], &mut payload).expect("genuine");
    assert_eq!(payload[..len], timestamp.0);
    assert_eq!(theirs_r.get_remote_static(), Some(&initiator.public().0[..]));
    let proven = read_initiation(&responder, &initiation).and_then(|o| o.prove(&shared));
    let proven = proven.expect("genuine");
    assert_eq!(proven.timestamp, timestamp);

    // The response.
    let psk = PresharedKey::from_bytes(psk);
    let responded = proven.respond(&psk, &r_ephemeral, Index(2));
    let (response, agreed_r) = responded.expect("not of low order");
    let len = theirs_r.write_message(&[], &mut expected).expect("fits");
    assert_eq!(response[12..60], expected[..len]);
    theirs_i.read_message(&response[12..60], &mut payload).expect("genuine");
    let agreed_i = sent.read_response(&initiator, [&psk].into_iter(), &response).expect("genuine");

    let theirs = [theirs_i, theirs_r].map(|state| state.into_transport_mode().expect("finished"));
    exchange(theirs, [&agreed_i, &agreed_r]);
}

/// Transport, both ways, several packets.
fn exchange(theirs: [snow::TransportState; 2], agreed: [&Agreed; 2]) {
    let [mut theirs_i, mut theirs_r] = theirs;
    let [mut ours_i, mut ours_r] = agreed.map(|agreed| Session::new(agreed, Instant(1)));
    for plain in [&b""[..], b"0123456789abcdef", &[0x5a; 1408]] {
        let sealed = seal_with(&mut ours_i, plain);
        let len = theirs_r.read_message(&sealed[16..], &mut [0; 2000]).expect("genuine");
        assert_eq!(len, plain.len());
        let mut datagram = seal_with(&mut ours_r, plain);
        let mut theirs = [0; 2000];
        let len = theirs_i.read_message(&datagram[16..], &mut theirs).expect("genuine");
        assert_eq!(&theirs[..len], plain);
        let cipher = crate::Cipher::ChaCha20Poly1305;
        let range = ours_i.open(cipher, &mut datagram, Instant(2)).expect("genuine");
        assert_eq!(&datagram[range], plain);
    }
}

#[test]
fn low_order_ephemerals_are_refused() {
    let mut random = Seeded(4);
    let [a, b] = [0; 2].map(|_: u8| Identity::new(PrivateKey::generate(&mut random)));
    let shared = a.private().agree(b.public()).expect("not of low order");
    let ephemeral = PrivateKey::generate(&mut random);
    let made = Sent::new(&a, b.public(), &shared, ephemeral, Index(1), Tai64n::ZERO);
    let (mut initiation, sent) = made.expect("not of low order");
    initiation[8..40].fill(0);
    assert_eq!(read_initiation(&b, &initiation).err(), Some(Drop::BadHandshake));
    let response = Response::build(2, 1, &[0; 32], &[0; 16]);
    let read = sent.read_response(&a, [&PresharedKey::default()].into_iter(), &response);
    assert_eq!(read.err(), Some(Drop::BadHandshake));
}
