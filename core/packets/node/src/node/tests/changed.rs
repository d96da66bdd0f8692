//! A node whose own key changes, and one that is down and up again.

use crate::node::tests::*;

#[test]
fn our_own_key_is_no_peer() {
    let mut a = Machine::new(1);
    let own = PeerChange { endpoint: Some(address(1)), ..PeerChange::new(a.public()) };
    a.change(&own);
    assert_eq!(a.node.peers.len(), 0);
    // A peer whose key becomes ours is gone.
    let b = Machine::new(2);
    a.knows(&b, &["10.0.0.2/32"]);
    a.node.set_identity(Some(Identity::new(b.key.clone())), &mut a.random);
    a.act();
    assert_eq!(a.node.peers.len(), 0);
    assert!(a.node.allowed.is_empty());
}

#[test]
fn a_new_key_shakes_hands_with_the_first_packet() {
    let (mut a, mut b) = pair();
    let old = PeerChange { remove: true, ..PeerChange::new(a.public()) };
    a.key = PrivateKey::generate(&mut a.random);
    a.node.set_identity(Some(Identity::new(a.key.clone())), &mut a.random);
    b.change(&old);
    b.knows(&a, &["10.0.0.1/32"]);
    a.act();
    assert_eq!(settle(&mut a, &mut b), 0, "the other end may not know the key yet");
    a.send(&packet_to(1, 2, 5));
    assert_eq!(settle(&mut a, &mut b), 3, "initiation, response, packet");
    b.send(&packet_to(2, 1, 6));
    settle(&mut a, &mut b);
    assert_eq!((a.delivered.len(), b.delivered.len()), (1, 1));
}

#[test]
fn without_a_key_nothing_leaves_and_nothing_is_lost_uncounted() {
    let (mut a, mut b) = pair();
    a.wait(6);
    a.node.set_identity(None, &mut a.random);
    a.act();
    a.send(&packet_to(1, 2, 1));
    b.wait(130);
    b.send(&packet_to(2, 1, 1));
    b.wait(20);
    settle(&mut a, &mut b);
    assert!(a.dropped(Reason::NoIdentity) > 0);
    assert!(a.delivered.is_empty() && b.delivered.is_empty());
    assert_eq!(a.node.staged(), 1);
}

#[test]
fn handshakes_that_wait_when_the_key_changes_are_counted() {
    let (mut a, mut b) = (Machine::new(1), Machine::new(2));
    a.knows(&b, &["10.0.0.2/32"]);
    b.knows(&a, &["10.0.0.1/32"]);
    a.send(&packet_to(1, 2, 1));
    let mut initiation = a.out.sent.pop().expect("an initiation").1;
    let (mut inbox, clock, end) = (Inbox::default(), b.clock(), initiation.len());
    let from = Endpoint::new(a.address).into();
    let (random, out) = (&mut b.random, &mut b.out);
    b.node.handle_datagram(from, &mut initiation, 0..end, clock, random, &mut inbox, out);
    assert!(b.node.has_handshakes());
    assert_eq!(b.node.poll_timeout(), Some(Instant::ZERO), "what waits is due");
    b.conserves();
    b.node.set_identity(None, &mut b.random);
    assert!(!b.node.has_handshakes());
    b.conserves();
}

#[test]
fn down_is_silent_and_up_begins_anew() {
    let (mut a, mut b) = pair();
    b.send(&packet_to(2, 1, 1));
    let late = b.out.sent.pop().expect("sealed").1;
    a.node.set_up(false, &mut a.random);
    a.act();
    assert!(a.node.indices.is_empty(), "no session outlives the interface");
    a.receive(b.address, &late);
    assert_eq!(a.dropped(Reason::Protocol(Drop::UnknownIndex)), 1);
    // wg-quick configures before it brings the interface up.
    a.change(&PeerChange { keepalive_s: Some(25), ..PeerChange::new(b.public()) });
    a.wait(60);
    b.wait(60);
    assert!(a.out.sent.is_empty(), "down");
    a.node.set_up(true, &mut a.random);
    a.act();
    assert_eq!(a.out.sent.len(), 1, "the persistent keepalive wants a session at once");
    settle(&mut a, &mut b);
    a.send(&packet_to(1, 2, 3));
    settle(&mut a, &mut b);
    assert_eq!(b.delivered.len(), 1);
}
