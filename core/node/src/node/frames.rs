//! Nodes that speak frames, with each other and with plain ones.

use wire::frame::Hello;

use super::tests::{Machine, packet_to, settle};

/// Two machines that know each other, of which the first speaks frames and the second may.
fn pair(second: bool) -> (Machine, Machine) {
    let (mut a, mut b) = (Machine::new(1), Machine::new(2));
    a.node.set_frames(true);
    b.node.set_frames(second);
    a.knows(&b, &["10.0.0.2/32"]);
    b.knows(&a, &["10.0.0.1/32"]);
    (a, b)
}

#[test]
fn two_that_speak_frames_learn_of_each_other_on_every_session() {
    let (mut a, mut b) = pair(true);
    for round in 0..3_u64 {
        // From the initiator: initiation, response, packet, hello, hello.
        a.send(&packet_to(1, 2, 5));
        let expected = Some(Hello { mtu: 1420, ..Hello::default() });
        let datagrams = settle(&mut a, &mut b);
        assert!(round > 0 || datagrams == 5, "{datagrams}");
        assert_eq!((a.node.hello(&b.public()), b.node.hello(&a.public())), (expected, expected));
        assert_eq!(a.node.counters().frames_in, b.node.counters().frames_in);
        a.send(&packet_to(1, 2, 6));
        assert_eq!(settle(&mut a, &mut b), 1, "it is said once");
        a.wait(200);
        b.wait(200);
        settle(&mut a, &mut b);
    }
    assert_eq!(b.delivered.len(), 6);
    // One on each session, and the sessions were initiated now by one side and now by the other.
    assert!((3..=6).contains(&a.node.counters().frames_in), "{:?}", a.node.counters());
}

#[test]
fn toward_a_plain_peer_not_a_byte_differs() {
    let (mut a, mut b) = pair(false);
    let (mut c, mut d) = pair(false);
    c.node.set_frames(false);
    for (one, two) in [(&mut a, &mut b), (&mut c, &mut d)] {
        one.send(&packet_to(1, 2, 5));
        assert_eq!(settle(one, two), 3, "initiation, response, packet");
        two.send(&packet_to(2, 1, 5));
        assert_eq!(settle(one, two), 1);
        assert_eq!(one.node.hello(&two.public()), None);
        assert_eq!(two.node.hello(&one.public()), None);
    }
    // The other way round: the plain one begins.
    let (mut a, mut b) = pair(false);
    b.send(&packet_to(2, 1, 5));
    assert_eq!(settle(&mut b, &mut a), 3);
    assert_eq!((a.node.counters().frames_in, b.node.counters().frames_in), (0, 0));
}

#[test]
fn a_peer_that_begins_anew_without_frames_is_spoken_to_plainly() {
    let (mut a, mut b) = pair(true);
    a.send(&packet_to(1, 2, 5));
    settle(&mut a, &mut b);
    assert!(a.node.hello(&b.public()).is_some());
    b.node.set_frames(false);
    a.wait(200);
    b.wait(200);
    a.send(&packet_to(1, 2, 5));
    settle(&mut a, &mut b);
    assert_eq!(a.node.hello(&b.public()), None, "nothing was said on this session");
    assert_eq!(b.delivered.len(), 2);
}
