//! Answers that are right, late, forged or missing.

use proptest::prelude::*;

use super::*;
use crate::query::Kind;
use crate::query::tests::ask;

struct Counting(u16);

impl Random for Counting {
    fn fill(&mut self, bytes: &mut [u8]) {
        for pair in bytes.chunks_mut(2) {
            self.0 = self.0.wrapping_mul(0x6255).wrapping_add(0x3619);
            pair.copy_from_slice(&self.0.to_be_bytes()[..pair.len()]);
        }
    }
}

fn client(port: u16) -> SocketAddr {
    SocketAddr::from(([100, 64, 0, 1], port))
}

fn servers() -> [IpAddr; 2] {
    [IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2])]
}

const START: Instant = Instant(1_000);

fn begun(
    pending: &mut Pending<()>,
    port: u16,
    to: &[IpAddr],
    random: &mut Counting,
) -> (Outcome<()>, Option<Evicted<()>>) {
    let bytes = ask("Www.Debian.org", Kind::A, Some(1232));
    let query = Query::read(&bytes).unwrap();
    pending.begin((client(port), ()), (query, &bytes), to, START, random)
}

fn sent(outcome: Outcome<()>) -> Ask {
    match outcome {
        Outcome::Ask(ask) => ask,
        other => panic!("{other:?}"),
    }
}

fn answer_to(ask: &Ask, rcode: u8) -> Vec<u8> {
    let mut answer = ask.bytes.clone();
    (answer[2], answer[3]) = (0x81, 0x80 | rcode);
    answer
}

#[test]
fn an_answer_goes_back_under_the_clients_number() {
    let (mut pending, mut random) = (Pending::default(), Counting(1));
    let ask = sent(begun(&mut pending, 9, &servers(), &mut random).0);
    assert_eq!(ask.to, servers()[0]);
    assert_ne!(ask.bytes[..2], [0xab, 0xcd], "a number of our own");
    let Outcome::Reply { client: to, bytes, .. } =
        pending.handle_answer(ask.number, &answer_to(&ask, 0), START, &mut random)
    else {
        panic!()
    };
    assert_eq!((to, &bytes[..2], pending.is_empty()), (client(9), &[0xab, 0xcd][..], true));
    let again = pending.handle_answer(ask.number, &answer_to(&ask, 0), START, &mut random);
    assert_eq!(again, Outcome::Wait(Dropped::Late));
}

#[test]
fn dn_04_an_answer_to_another_question_or_number_is_not_taken() {
    let (mut pending, mut random) = (Pending::default(), Counting(1));
    let ask = sent(begun(&mut pending, 9, &servers(), &mut random).0);
    let good = answer_to(&ask, 0);
    for (at, what) in [
        (0, "number"),
        (1, "number"),
        (2, "no answer"),
        (5, "questions"),
        (14, "name"),
        (28, "type"),
        (30, "class"),
    ] {
        let mut forged = good.clone();
        forged[at] ^= if at == 2 { 0x80 } else { 1 };
        let outcome = pending.handle_answer(ask.number, &forged, START, &mut random);
        assert_eq!(outcome, Outcome::Wait(Dropped::Foreign), "{what}");
    }
    for len in 0..32 {
        let outcome = pending.handle_answer(ask.number, &good[..len], START, &mut random);
        assert_eq!(outcome, Outcome::Wait(Dropped::Foreign));
    }
    let taken = pending.handle_answer(ask.number, &good, START, &mut random);
    assert!(matches!(taken, Outcome::Reply { .. }));
}

#[test]
fn the_next_resolver_is_asked_after_two_seconds_or_a_refusal_and_in_the_end_it_is_said() {
    let (mut pending, mut random) = (Pending::default(), Counting(1));
    let first = sent(begun(&mut pending, 9, &servers(), &mut random).0);
    assert_eq!(pending.poll_timeout(), Some(START + TIMEOUT));
    assert!(pending.poll_late(START + TIMEOUT - Duration::from_nanos(1), &mut random).is_none());
    let (number, outcome) = pending.poll_late(START + TIMEOUT, &mut random).unwrap();
    let second = sent(outcome);
    assert_eq!((number, second.to), (first.number, servers()[1]));
    assert_ne!(first.bytes[..2], second.bytes[..2], "a number of its own");
    let old = pending.handle_answer(number, &answer_to(&first, 0), START, &mut random);
    assert_eq!(old, Outcome::Wait(Dropped::Foreign), "the first one's answer is late");
    let (_, outcome) = pending.poll_late(START + TIMEOUT + TIMEOUT, &mut random).unwrap();
    let Outcome::Reply { bytes, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!((bytes[3] & 0xf, pending.len()), (2, 0), "SERVFAIL");

    for rcode in [2, 4, 5] {
        let first = sent(begun(&mut pending, 9, &servers(), &mut random).0);
        let refusal = answer_to(&first, rcode);
        let second = sent(pending.handle_answer(first.number, &refusal, START, &mut random));
        let last =
            pending.handle_answer(second.number, &answer_to(&second, rcode), START, &mut random);
        let Outcome::Reply { bytes, .. } = last else { panic!() };
        assert_eq!(bytes[3] & 0xf, rcode, "the last one's word");
    }
    let first = sent(begun(&mut pending, 9, &servers(), &mut random).0);
    assert_eq!(sent(pending.handle_failure(first.number, START, &mut random)).to, servers()[1]);
}

#[test]
fn nobody_to_ask_is_a_refusal() {
    let (mut pending, mut random) = (Pending::default(), Counting(1));
    let Outcome::Reply { bytes, .. } = begun(&mut pending, 9, &[], &mut random).0 else { panic!() };
    assert_eq!(bytes[3] & 0xf, 5);
}

#[test]
fn dn_05_a_full_table_takes_from_the_client_that_has_most() {
    let (mut pending, mut random) = (Pending::default(), Counting(1));
    let modest = sent(begun(&mut pending, 1, &servers(), &mut random).0);
    for _ in 1..PENDING_MAX {
        assert!(begun(&mut pending, 2, &servers(), &mut random).1.is_none());
    }
    for round in 0..100 {
        let port = 3 + round % 3;
        let (_, evicted) = begun(&mut pending, port, &servers(), &mut random);
        let (number, outcome) = evicted.unwrap();
        let Outcome::Reply { client: of, bytes, .. } = outcome else { panic!() };
        assert_eq!((of, bytes[3] & 0xf), (client(2), 2), "round {round}");
        assert_ne!(number, modest.number);
        assert_eq!(pending.len(), PENDING_MAX);
    }
    let answer = answer_to(&modest, 0);
    let outcome = pending.handle_answer(modest.number, &answer, START, &mut random);
    assert!(matches!(outcome, Outcome::Reply { .. }));
}

proptest! {
    #[test]
    fn dn_06_any_answer_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let (mut pending, mut random) = (Pending::default(), Counting(1));
        let ask = sent(begun(&mut pending, 9, &servers(), &mut random).0);
        let mut like = answer_to(&ask, 0);
        like.truncate(32);
        like.extend(&bytes);
        pending.handle_answer(ask.number, &bytes, START, &mut random);
        let outcome = pending.handle_answer(ask.number, &like, START, &mut random);
        let replied = matches!(outcome, Outcome::Reply { .. });
        prop_assert!(replied);
    }
}
