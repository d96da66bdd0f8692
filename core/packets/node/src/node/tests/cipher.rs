//! Nodes with instructions for AES and without, with each other and with plain ones.

use crate::node::tests::{Machine, address, carry, packet_to, settle};

const CHACHA: Option<&str> = Some("ChaCha20-Poly1305");
const AES: Option<&str> = Some("AES-256-GCM");

/// Machines `first` and the next one, which know each other, speak frames, and have AES or not.
/// Each pair of a test has its own numbers: equal ones draw equal keys.
fn pair(first: u8, aes: [bool; 2]) -> (Machine, Machine) {
    let (mut a, mut b) = (Machine::new(first), Machine::new(first + 1));
    configure(&mut a, true, aes[0]);
    configure(&mut b, true, aes[1]);
    acquaint(&mut a, &mut b, first);
    (a, b)
}

fn configure(machine: &mut Machine, frames: bool, aes: bool) {
    machine.node.set_frames(frames);
    machine.node.set_aes(aes);
}

fn acquaint(a: &mut Machine, b: &mut Machine, first: u8) {
    a.knows(b, &[&format!("10.0.0.{}/32", first + 1)]);
    b.knows(a, &[&format!("10.0.0.{first}/32")]);
}

/// What each seals with toward the other.
fn ciphers(a: &Machine, b: &Machine) -> [Option<&'static str>; 2] {
    [(a, b), (b, a)].map(|(from, to)| Some(from.node.weather(&to.public())?.cipher))
}

/// The second index that each was told by the other.
fn told(a: &Machine, b: &Machine) -> [u32; 2] {
    [(a, b), (b, a)].map(|(at, by)| at.node.hello(&by.public()).map_or(0, |h| h.second_index))
}

fn receiver(datagram: &[u8]) -> u32 {
    u32::from_le_bytes(*datagram[4..].first_chunk().expect("long enough"))
}

/// A packet each way, in one datagram each; returns the receiver indices of the two.
fn talk(a: &mut Machine, b: &mut Machine, first: u8) -> [u32; 2] {
    let talk = |from: &mut Machine, to: &mut Machine, numbers: [u8; 2]| {
        let before = to.delivered.len();
        from.send(&packet_to(numbers[0], numbers[1], 7));
        let sent = from.sent();
        assert_eq!(sent.len(), 1, "one packet, one datagram");
        settle(from, to);
        assert_eq!(to.delivered[before..], [packet_to(numbers[0], numbers[1], 7)]);
        receiver(&sent[0])
    };
    [talk(a, b, [first, first + 1]), talk(b, a, [first + 1, first])]
}

#[test]
fn two_that_have_aes_seal_with_it_to_the_indices_they_told() {
    let (mut a, mut b) = pair(1, [true, true]);
    a.send(&packet_to(1, 2, 5));
    let said = "initiation, response, packet, hello, hello, what fits, that it does, elsewhere";
    assert_eq!(settle(&mut a, &mut b), 13, "{said}");
    assert_eq!(ciphers(&a, &b), [AES, AES]);
    let told = told(&a, &b);
    assert!(told[0] != 0 && told[1] != 0);
    assert_eq!(talk(&mut a, &mut b, 1), told);
    assert_eq!((a.indices(), b.indices()), (2, 2));
    assert_eq!(a.node.counters().dropped_in() + b.node.counters().dropped_in(), 0);
    // Keepalives too: a has had a packet and sends none.
    b.send(&packet_to(2, 1, 5));
    settle(&mut a, &mut b);
    a.wait(10);
    let sent = a.sent();
    assert!(sent.iter().any(|datagram| datagram.len() == 32), "a keepalive is due");
    assert!(sent.iter().all(|datagram| receiver(datagram) == told[0]));
    settle(&mut a, &mut b);
    assert_eq!(b.node.counters().dropped_in(), 0);
}

#[test]
fn where_one_has_no_aes_both_seal_as_wireguard_does() {
    for (first, aes) in [(1, [true, false]), (3, [false, true]), (5, [false, false])] {
        let (mut a, mut b) = pair(first, aes);
        a.send(&packet_to(first, first + 1, 5));
        assert_eq!(settle(&mut a, &mut b), 13);
        assert_eq!(ciphers(&a, &b), [CHACHA, CHACHA]);
        assert_eq!(told(&a, &b).map(|index| index != 0), [aes[1], aes[0]]);
        let used = talk(&mut a, &mut b, first);
        assert!(told(&a, &b).iter().all(|told| !used.contains(told)));
        let indices = [&a, &b].map(Machine::indices);
        assert_eq!(indices, aes.map(|aes| 1 + usize::from(aes)), "none drawn without need");
    }
}

#[test]
fn dp_13_every_session_has_second_indices_of_its_own() {
    let (mut a, mut b) = pair(1, [true, true]);
    let mut before = Vec::new();
    for round in 0..5 {
        a.send(&packet_to(1, 2, 5));
        settle(&mut a, &mut b);
        assert_eq!(ciphers(&a, &b), [AES, AES], "round {round}");
        let told = told(&a, &b);
        assert!(told.iter().all(|index| !before.contains(index)), "round {round}");
        before.extend(told);
        assert_eq!(talk(&mut a, &mut b, 1), told);
        let sessions = if round == 0 { 1 } else { 2 };
        assert_eq!((a.indices(), b.indices()), (2 * sessions, 2 * sessions), "round {round}");
        // A keepalive answers the last packet, or b would ask for a session, too.
        a.wait(10);
        b.wait(10);
        settle(&mut a, &mut b);
        // Past 120 s the next packet asks for a new session, and still leaves on this one.
        a.wait(111);
        b.wait(111);
        a.send(&packet_to(1, 2, 6));
        assert!(a.sent().iter().any(|datagram| receiver(datagram) == told[0]));
        settle(&mut a, &mut b);
    }
    assert_eq!(a.node.counters().dropped_in() + b.node.counters().dropped_in(), 0);
    a.wait(600);
    b.wait(600);
    settle(&mut a, &mut b);
    assert_eq!((a.indices(), b.indices()), (0, 0), "given back with their sessions");
}

#[test]
fn after_a_restart_of_one_both_have_aes_again() {
    for (first, restarted) in [(1, 0), (3, 1)] {
        let (mut a, mut b) = pair(first, [true, true]);
        a.send(&packet_to(first, first + 1, 5));
        settle(&mut a, &mut b);
        let before = told(&a, &b);
        let machine = if restarted == 0 { &mut a } else { &mut b };
        machine.restart();
        configure(machine, true, true);
        acquaint(&mut a, &mut b, first);
        // What the other still seals under the old keys is for nobody.
        let (one, two) = if restarted == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
        let numbers = if restarted == 0 { [first, first + 1] } else { [first + 1, first] };
        let delivered = one.delivered.len();
        two.send(&packet_to(numbers[1], numbers[0], 5));
        settle(one, two);
        assert_eq!(one.delivered.len(), delivered);
        one.wait(6);
        two.wait(6);
        one.send(&packet_to(numbers[0], numbers[1], 5));
        settle(one, two);
        assert_eq!(ciphers(&a, &b), [AES, AES]);
        assert!(told(&a, &b).iter().all(|index| !before.contains(index)));
        assert_eq!(talk(&mut a, &mut b, first), told(&a, &b));
    }
}

#[test]
fn one_that_comes_back_without_aes_or_frames_is_spoken_to_as_it_can() {
    for (first, frames) in [(1, true), (3, false)] {
        let (mut a, mut b) = pair(first, [true, true]);
        a.send(&packet_to(first, first + 1, 5));
        settle(&mut a, &mut b);
        assert_eq!(ciphers(&a, &b), [AES, AES]);
        configure(&mut b, frames, false);
        // The session that there is goes on as it was.
        assert_eq!(talk(&mut a, &mut b, first), told(&a, &b));
        a.wait(200);
        b.wait(200);
        a.send(&packet_to(first, first + 1, 5));
        settle(&mut a, &mut b);
        // Without frames nothing is told of weather, and so of ciphers.
        assert_eq!(ciphers(&a, &b), [CHACHA.filter(|_| frames); 2]);
        assert_eq!(b.node.hello(&a.public()).is_some(), frames);
        assert_eq!(told(&a, &b)[0], 0);
        talk(&mut a, &mut b, first);
        assert_eq!(a.node.counters().dropped_in() + b.node.counters().dropped_in(), 0);
    }
}

/// All that a machine puts out toward a plain peer, byte for byte, with AES and without.
#[test]
fn bc_11_sc_01_a_plain_peer_sees_not_a_byte_that_differs() {
    let conversation = |frames: bool, aes: bool| {
        noise::forget_nonces();
        let (mut a, mut b) = (Machine::new(1), Machine::new(2));
        configure(&mut a, frames, aes);
        acquaint(&mut a, &mut b, 1);
        let mut wire = Vec::new();
        for round in 0..3 {
            // Begun by each side in turn.
            for _ in 0..3 {
                if round % 2 == 0 {
                    a.send(&packet_to(1, 2, round));
                } else {
                    b.send(&packet_to(2, 1, round));
                }
                while !(a.sent().is_empty() && b.sent().is_empty()) {
                    wire.extend(a.sent());
                    carry(&mut a, &mut b);
                }
            }
            assert_eq!(a.indices(), if round == 0 { 1 } else { a.indices() });
            a.wait(200);
            b.wait(200);
        }
        wire
    };
    for frames in [false, true] {
        let plain = conversation(frames, false);
        assert!(plain.len() > 10);
        assert!(conversation(frames, true) == plain, "frames: {frames}");
    }
}

#[test]
fn bc_11_sc_01_a_datagram_with_any_byte_changed_is_dropped_under_aes_too() {
    let (mut a, mut b) = pair(1, [true, true]);
    a.send(&packet_to(1, 2, 5));
    settle(&mut a, &mut b);
    assert_eq!(ciphers(&a, &b), [AES, AES]);
    a.send(&packet_to(1, 2, 6));
    let genuine = a.sent().pop().expect("sealed");
    let (delivered, dropped) = (b.delivered.len(), b.node.counters().dropped_in());
    for at in 0..genuine.len() {
        let mut datagram = genuine.clone();
        datagram[at] ^= 1 << (at % 8);
        b.receive(address(66), &datagram);
    }
    // Under the other cipher of the same session, that is with its first index, it is a forgery.
    let mut astray = genuine.clone();
    b.send(&packet_to(2, 1, 0));
    let first = b.node.session_of(noise::Index(receiver(&genuine))).expect("live");
    astray[4..8].copy_from_slice(&first.0.to_le_bytes());
    b.receive(address(66), &astray);
    assert_eq!(b.delivered.len(), delivered);
    assert_eq!(b.node.counters().dropped_in() - dropped, genuine.len() as u64 + 1);
    for _ in 0..2 {
        b.receive(address(1), &genuine);
    }
    assert_eq!(b.delivered.len(), delivered + 1, "and it passes once");
}
