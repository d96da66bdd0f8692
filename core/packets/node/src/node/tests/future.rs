//! Peers of a later version, and peers that lie about theirs: what we know of each other is used,
//! and nothing else happens.

use wire::frame::{CAPABILITY, Features, Hello};

use super::squeezed::Other;
use crate::node::tests::{Machine, packet_to};

fn speaking() -> Machine {
    let mut machine = Machine::new(2);
    machine.node.set_frames(true);
    machine
}

/// What the machine's datagrams of now say to the other end.
fn told(machine: &mut Machine, other: &mut Other) -> Vec<Vec<u8>> {
    let sent = core::mem::take(&mut machine.out.sent);
    sent.iter().map(|(_, datagram)| other.open(datagram)).collect()
}

#[test]
fn a_capability_word_of_the_future_is_taken_for_a_plain_peer() {
    let words = (0..24).map(|bit| CAPABILITY ^ 1 << bit).chain([0, 1, 0xff_ffff]);
    for word in words {
        let mut machine = speaking();
        let mut other = Other::with_word(&mut machine, word, word.into());
        let to_us = packet_to(1, 2, 7);
        other.say(&mut machine, &to_us);
        assert_eq!(machine.delivered, [to_us], "{word:x}");
        let to_them = packet_to(2, 1, 9);
        machine.send(&to_them);
        // A session is not greeted later either.
        machine.wait(3);
        let said = told(&mut machine, &mut other);
        let packets: Vec<_> = said.iter().filter(|plain| !plain.is_empty()).collect();
        assert_eq!(packets.len(), 1, "{word:x}: {said:?}");
        assert!(packets[0].starts_with(&to_them), "{word:x}");
        assert_eq!(machine.node.hello(&other.public()), None);
    }
}

#[test]
fn features_and_fields_of_the_future_in_a_hello_are_passed_over() {
    let more: [&[u8]; 3] = [&[], &[0xff; 3], &[0xaa; 200]];
    for (features, more) in [0, 1 << 31, 0xffff_fff0, u32::MAX].into_iter().zip(more.iter().cycle())
    {
        let mut machine = speaking();
        let mut other = Other::with_word(&mut machine, CAPABILITY, features.into());
        let known = Features(features);
        let hello = Hello { heard: false, features: known, mtu: u16::MAX, ..Hello::default() };
        let mut bytes = hello.build().to_vec();
        bytes[1] |= 0xfe;
        bytes.extend_from_slice(more);
        other.say(&mut machine, &bytes);
        let greeted = machine.node.hello(&other.public()).expect("it was read");
        assert_eq!(greeted.features, known, "{features:x}");
        let said = told(&mut machine, &mut other);
        assert!(said.iter().any(|plain| plain[0] == 0x81), "it is answered with our own");
        let to_them = packet_to(2, 1, 9);
        machine.send(&to_them);
        assert!(told(&mut machine, &mut other).iter().any(|plain| plain.starts_with(&to_them)));
        let to_us = packet_to(1, 2, 7);
        other.say(&mut machine, &to_us);
        assert_eq!(machine.delivered, [to_us], "{features:x}");
    }
}

#[test]
fn kinds_of_frames_of_the_future_are_counted_and_dropped() {
    let mut machine = speaking();
    let mut other = Other::with_word(&mut machine, CAPABILITY, 78);
    other.say(&mut machine, &Hello { heard: true, ..Hello::default() }.build());
    let before = (machine.node.counters().frames_in, machine.node.counters().dropped_in());
    for kind in 0x91..=0xff_u8 {
        for len in [1, 2, 4, 16, 60, 1_400] {
            other.say(&mut machine, &[&[kind][..], &vec![0x5a; len - 1]].concat());
        }
    }
    assert!(machine.delivered.is_empty());
    let counters = machine.node.counters();
    let sent = (0x91..=0xff_u8).len() as u64 * 6;
    let after = (counters.frames_in, counters.dropped_in());
    assert_eq!(after, (before.0, before.1 + sent), "none is taken, and each is counted");
    let to_us = packet_to(1, 2, 7);
    other.say(&mut machine, &to_us);
    assert_eq!(machine.delivered, [to_us]);
}
