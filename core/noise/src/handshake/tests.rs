//! Against another implementation of the Noise pattern, byte for byte.

use snow::Builder;

use super::*;
use crate::kdf::{CONSTRUCTION, IDENTIFIER};
use crate::session::Session;
use crate::testing::{Seeded, seal_with};
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
    let agreed_i = sent.read_response(&initiator, &psk, &response).expect("genuine");

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
        let range = ours_i.open(&mut datagram, Instant(2)).expect("genuine");
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
    let read = sent.read_response(&a, &PresharedKey::default(), &response);
    assert_eq!(read.err(), Some(Drop::BadHandshake));
}
