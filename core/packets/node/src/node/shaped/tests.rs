//! A node that sends no faster than its line: what waits, what goes, and what is counted.

use std::time::Duration;

use super::super::tests::{Machine, address, packet_to, settle};
use super::*;

/// Two that know each other; the first sends 125 kB a second.
fn pair() -> (Machine, Machine) {
    let (mut a, mut b) = (Machine::new(1), Machine::new(2));
    a.knows(&b, &["10.0.0.2/32"]);
    b.knows(&a, &["10.0.0.1/32"]);
    a.send(&packet_to(1, 2, 1));
    settle(&mut a, &mut b);
    assert_eq!(b.delivered.len(), 1);
    b.delivered.clear();
    a.node.set_line_rate("1mbit".parse().unwrap());
    (a, b)
}

/// Carries what the first sent.
fn carry(a: &mut Machine, b: &mut Machine) -> u64 {
    let mut bytes = 0;
    for (_, datagram) in std::mem::take(&mut a.out.sent) {
        bytes += datagram.len() as u64;
        b.receive(address(1), &datagram);
    }
    bytes
}

#[test]
fn packets_wait_for_the_line_and_leave_at_its_rate() {
    let (mut a, mut b) = pair();
    let packets: Vec<Vec<u8>> = (0..60).map(|mark| packet_to(1, 2, mark)).collect();
    a.send_together(&packets);
    let before = carry(&mut a, &mut b);
    assert!(a.node.staged() > 50, "they wait: {}", a.node.staged());
    let mut bytes = 0;
    for _ in 0..20 {
        a.pass(Duration::from_millis(1));
        bytes += carry(&mut a, &mut b);
    }
    assert!(before + bytes <= 125 * 21, "{before} and {bytes} bytes in 20 ms");
    while a.node.staged() > 0 {
        let next = a.node.poll_timeout().expect("something waits");
        let wait = next.since(a.now).max(Duration::from_micros(100));
        a.pass(wait);
        carry(&mut a, &mut b);
    }
    assert_eq!(b.delivered, packets, "all of them, as they were, in their order");
}

#[test]
fn a_peer_that_is_removed_leaves_nothing_behind_that_waits() {
    let (mut a, b) = pair();
    a.send_together(&vec![packet_to(1, 2, 1); 50]);
    assert!(a.node.staged() > 40);
    a.change(&PeerChange { remove: true, ..PeerChange::new(b.public()) });
    assert_eq!(a.node.staged(), 0);
    a.pass(Duration::from_secs(1));
    assert!(a.node.poll_timeout().is_none_or(|at| at > a.now), "and it does not wake for them");
}
