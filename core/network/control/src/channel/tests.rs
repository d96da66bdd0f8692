//! The channel against another implementation, and against whoever sits in between.

use noise::{PrivateKey, PublicKey};
use proptest::prelude::*;
use snow::params::NoiseParams;
use snow::{Builder, StatelessTransportState};

use self::testing::Seeded;
use super::*;

pub(crate) mod testing;

fn keys(seed: u64) -> (PrivateKey, PrivateKey) {
    let mut random = Seeded(seed);
    (PrivateKey::generate(&mut random), PrivateKey::generate(&mut random))
}

fn pair() -> (Channel, Channel) {
    let (machine, server) = keys(1);
    let random = &mut Seeded(2);
    let (message, opening) = open(&machine, &server.public(), random).unwrap();
    let (answer, accepted, who) = accept(&server, &message, b"hello", random).unwrap();
    assert_eq!((message.len(), who), (OPEN_LEN, machine.public()));
    let (opened, payload) = opening.finish(&answer).unwrap();
    assert_eq!(payload, b"hello");
    (opened, accepted)
}

fn snow_builder<'a>(key: &'a PrivateKey) -> Builder<'a> {
    let params: NoiseParams = "Noise_IK_25519_ChaChaPoly_SHA256".parse().unwrap();
    Builder::new(params).local_private_key(key.as_bytes()).unwrap().prologue(PROLOGUE).unwrap()
}

/// One piece as Noise has it, without our length before it.
fn agrees(ours: &Channel, theirs: &StatelessTransportState) {
    let mut buffer = vec![0; 70_000];
    let sealed = ours.seal(5, b"from ours").unwrap();
    let len = theirs.read_message(5 << 16, &sealed[2..], &mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"\x01from ours");
    let len = theirs.write_message(6 << 16, b"\x01from theirs", &mut buffer).unwrap();
    let mut message = (len as u16).to_be_bytes().to_vec();
    message.extend(&buffer[..len]);
    assert_eq!(ours.receive(6, &message, 100).unwrap(), b"from theirs");
}

#[test]
fn both_roles_agree_with_another_implementation_of_noise() {
    for seed in 0..20 {
        let (machine, server) = keys(seed);
        let random = &mut Seeded(seed + 1000);
        let mut buffer = vec![0; 1000];

        let public = server.public();
        let mut theirs =
            snow_builder(&machine).remote_public_key(&public.0).unwrap().build_initiator().unwrap();
        let len = theirs.write_message(&[], &mut buffer).unwrap();
        let (answer, ours, who) = accept(&server, &buffer[..len], b"payload", random).unwrap();
        assert_eq!(who, machine.public());
        let len = theirs.read_message(&answer, &mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"payload");
        agrees(&ours, &theirs.into_stateless_transport_mode().unwrap());

        let (message, opening) = open(&machine, &server.public(), random).unwrap();
        let mut theirs = snow_builder(&server).build_responder().unwrap();
        assert_eq!(theirs.read_message(&message, &mut buffer).unwrap(), 0);
        assert_eq!(theirs.get_remote_static().unwrap(), machine.public().0);
        let len = theirs.write_message(b"payload", &mut buffer).unwrap();
        let (ours, payload) = opening.finish(&buffer[..len]).unwrap();
        assert_eq!(payload, b"payload");
        agrees(&ours, &theirs.into_stateless_transport_mode().unwrap());
    }
}

#[test]
fn co_12_a_server_with_another_key_can_neither_read_nor_answer() {
    let (machine, server) = keys(1);
    let (_, other) = keys(2);
    let random = &mut Seeded(3);
    let (message, opening) = open(&machine, &server.public(), random).unwrap();
    let refused = accept(&other, &message, b"", random);
    assert_eq!(refused.err(), Some(BadChannel::Forged));
    // Even one that was asked itself, and passes its own answer on.
    let (asked, _) = open(&machine, &other.public(), random).unwrap();
    let (answer, ..) = accept(&other, &asked, b"", random).unwrap();
    assert_eq!(opening.finish(&answer).err(), Some(BadChannel::Forged));
}

#[test]
fn every_changed_bit_of_a_handshake_is_refused() {
    let (machine, server) = keys(1);
    let random = &mut Seeded(3);
    let (message, _) = open(&machine, &server.public(), random).unwrap();
    for bit in 0..message.len() * 8 {
        let mut changed = message.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(accept(&server, &changed, b"", random).is_err(), "bit {bit}");
    }
    let (answer, ..) = accept(&server, &message, b"hello", &mut Seeded(9)).unwrap();
    for bit in 0..answer.len() * 8 {
        let (message, opening) = open(&machine, &server.public(), &mut Seeded(3)).unwrap();
        let (mut answer, ..) = accept(&server, &message, b"hello", &mut Seeded(9)).unwrap();
        answer[bit / 8] ^= 1 << (bit % 8);
        assert!(opening.finish(&answer).is_err(), "bit {bit}");
    }
    for len in 0..OPEN_LEN {
        assert_eq!(accept(&server, &message[..len], b"", random).err(), Some(BadChannel::Form));
    }
}

#[test]
fn keys_of_low_order_are_refused() {
    let (machine, server) = keys(1);
    let random = &mut Seeded(3);
    assert_eq!(open(&machine, &PublicKey([0; 32]), random).err(), Some(BadChannel::LowOrder));
    let (mut message, _) = open(&machine, &server.public(), random).unwrap();
    message[..32].fill(0);
    assert_eq!(accept(&server, &message, b"", random).err(), Some(BadChannel::LowOrder));
}

#[test]
fn messages_of_every_size_come_back_and_only_whole() {
    let (client, server) = pair();
    for len in [0, 1, PIECE_LEN - 1, PIECE_LEN, PIECE_LEN + 1, 3 * PIECE_LEN, 1 << 20] {
        let plain: Vec<u8> = (0..len).map(|i| (i / 3) as u8).collect();
        let sealed = client.seal(len as u64, &plain).unwrap();
        assert_eq!(server.receive(len as u64, &sealed, len).unwrap(), plain);
        assert!(server.receive(len as u64 + 1, &sealed, len).is_err(), "another number");
        assert!(client.receive(len as u64, &sealed, len).is_err(), "the other direction");
        if len > 0 {
            let refused = server.receive(len as u64, &sealed, len - 1);
            assert_eq!(refused, Err(BadChannel::Form), "too long");
        }
        let one_piece_less = sealed.len().saturating_sub(sealed.len() % (PIECE_LEN + 19));
        for cut in [0, 1, 2, sealed.len() - 1, one_piece_less] {
            if cut < sealed.len() {
                assert!(server.receive(len as u64, &sealed[..cut], len).is_err(), "{len} {cut}");
            }
        }
        let longer = [&sealed[..], &[0]].concat();
        assert_eq!(server.receive(len as u64, &longer, len), Err(BadChannel::Form));
    }
    assert_eq!(client.seal(NUMBER_MAX + 1, b""), Err(BadChannel::Exhausted));
}

proptest! {
    #[test]
    fn nothing_that_arrives_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let (client, _) = pair();
        prop_assert!(client.receive(1, &bytes, 1000).is_err());
        let (_, server) = keys(1);
        prop_assert!(accept(&server, &bytes, b"", &mut Seeded(1)).is_err());
    }
}
