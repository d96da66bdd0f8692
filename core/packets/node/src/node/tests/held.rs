//! A link whose small packets wait for each other (source 004's `-q`).

use super::squeezed::{self, Inner, noise_bytes};
use crate::node::tests::{self, Machine, packet_to, settle};
use crate::node::*;

const HOLD: Duration = Duration::from_millis(32);
const FIVE_MS: Duration = Duration::from_millis(5);

/// Machines 1 and 2 with a session; the first holds what it sends.
fn pair() -> (Machine, Machine) {
    let (mut a, b) = squeezed::numbered(1, false);
    a.node.set_hold(HOLD);
    (a, b)
}

fn udp(len: usize, mark: u8) -> Vec<u8> {
    Inner::udp(1, (4_000, 9), noise_bytes(mark.into(), len)).build()
}

fn tcp(len: usize) -> Vec<u8> {
    Inner::tcp(1, (4_000, 9), noise_bytes(1, len)).build()
}

#[test]
fn source_004_9_small_packets_wait_so_long_and_no_longer_and_leave_together() {
    let (mut a, mut b) = pair();
    let packets: Vec<Vec<u8>> = (0..6).map(|mark| udp(100, mark)).collect();
    for packet in &packets {
        a.send(packet);
        assert_eq!(a.node.staged() + a.node.counters().sealed, a.node.counters().packets_out);
        a.pass(FIVE_MS);
    }
    assert!(a.sent().is_empty(), "30 of 32 ms are over");
    let wake = a.node.poll_timeout().expect("they want to go");
    a.pass(Duration::from_nanos(wake.0 - a.now.0));
    assert_eq!(a.sent().len(), 1, "at {wake:?}");
    settle(&mut a, &mut b);
    assert_eq!(b.delivered, packets);
    assert_eq!(wake.0 - a.now.0, 0);
}

#[test]
fn source_004_9_what_somebody_waits_for_takes_the_others_along_at_once() {
    let (mut a, mut b) = pair();
    let mut echo = packet_to(1, 2, 8);
    // Another protocol of the same length: the sum of its header is one byte's difference less.
    echo[9] = 1;
    let sum = u16::from_be_bytes([echo[10], echo[11]]) + 252;
    echo[10..12].copy_from_slice(&sum.to_be_bytes());
    // A ping, keystrokes, another protocol, and what is too large to share a datagram.
    for urgent in [echo, tcp(1), tcp(64), udp(64, 9), packet_to(1, 2, 7), udp(1_300, 3)] {
        let waits = [udp(100, 1), tcp(0), tcp(65), udp(65, 2)];
        waits.iter().for_each(|packet| a.send(packet));
        assert!(a.sent().is_empty(), "those wait");
        a.pass(FIVE_MS);
        a.send(&urgent);
        // One or two, and perhaps the repair of those before.
        assert!((1..=3).contains(&a.sent().len()), "{} datagrams", a.sent().len());
        settle(&mut a, &mut b);
        // A flow keeps its order, and flows have none between them.
        let mut wanted = [&waits[..], &[urgent]].concat();
        wanted.sort();
        b.delivered.sort();
        assert_eq!(b.delivered, wanted);
        b.delivered.clear();
    }
}

#[test]
fn source_004_9_without_a_hold_nothing_waits_and_who_reads_no_bundles_is_not_kept_waiting() {
    let (mut a, mut b) = pair();
    a.node.set_hold(Duration::ZERO);
    a.send(&udp(100, 1));
    assert_eq!(a.sent().len(), 1);
    settle(&mut a, &mut b);
    a.node.set_hold(HOLD);
    b.node.set_frames(false);
    a.wait(200);
    b.wait(200);
    a.send(&packet_to(1, 2, 5));
    settle(&mut a, &mut b);
    a.send(&udp(100, 1));
    assert_eq!(a.sent().len(), 1, "toward a plain peer");
}

#[test]
fn what_waits_when_its_peer_is_removed_is_counted() {
    let (mut a, b) = pair();
    (0..3).for_each(|mark| a.send(&udp(100, mark)));
    assert_eq!(a.node.staged(), 3);
    a.change(&PeerChange { remove: true, ..PeerChange::new(b.public()) });
    assert_eq!(a.node.staged(), 0);
    let sent = a.node.counters().sealed + a.node.counters().dropped_out();
    assert_eq!(sent, a.node.counters().packets_out);
}

/// The time that a bundle was held is none of its path's.
#[test]
fn what_was_held_does_not_make_the_path_look_slow() {
    let (mut a, mut b) = pair();
    for _ in 0..100 {
        a.send(&tcp(100));
        a.pass(FIVE_MS);
        b.pass(FIVE_MS);
        settle(&mut a, &mut b);
    }
    let weather = a.node.weather(&b.public()).expect("they speak frames");
    assert!(weather.bundled > 50, "{weather:?}");
    assert!(weather.rtt_us.is_some_and(|rtt_us| rtt_us <= 1_000), "{weather:?}");
}

#[test]
fn what_waits_when_keys_change_leaves_on_the_new_ones_at_once() {
    let (mut a, mut b) = pair();
    for round in 0..2 {
        [&mut a, &mut b].into_iter().for_each(|machine| machine.wait(121));
        b.delivered.clear();
        // Somebody waits for this: it begins the handshake.
        a.send(&packet_to(1, 2, 7));
        tests::carry(&mut a, &mut b);
        // Of a flow with an order, or without.
        let packet = |mark| if round == 0 { udp(100, mark) } else { tcp(100 + usize::from(mark)) };
        let waits = [1, 2, 3].map(packet);
        waits.iter().for_each(|packet| a.send(packet));
        // The response comes, and no Hello with it.
        for (_, bytes) in std::mem::take(&mut b.out.sent) {
            if bytes[0] == 2 {
                a.receive(tests::address(2), &bytes);
            }
        }
        a.pass(HOLD);
        assert_eq!(a.node.counters().dropped(Reason::NoEndpoint), 0, "round {round}");
        settle(&mut a, &mut b);
        for packet in &waits {
            assert!(b.delivered.contains(packet), "round {round}: {} came", b.delivered.len());
        }
    }
}
