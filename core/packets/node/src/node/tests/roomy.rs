//! Packets of full size in weather: whole where that passes, else in two.

use std::time::Duration;

use super::frames::segment;
use super::squeezed::acquainted;
use crate::node::tests::{self, Machine, packet_to, settle};

/// Bytes of the largest datagram over a link of 1500 and IPv4, and what every WireGuard sends.
const WIDE: usize = 1_472;
const USUAL: usize = 1_452;
/// Payload of a segment that fills the interface's MTU of 1420.
const FULL: usize = 1_380;

/// Machines `first` and the next one with a session over a way for `most`, and done with asking.
fn pair(first: u8, most: usize) -> (Machine, Machine) {
    let (mut a, mut b) = acquainted(first);
    a.send(&packet_to(1, 2, 5));
    for _ in 0..20 {
        carry(&mut a, &mut b, most);
        a.pass(Duration::from_millis(250));
        b.pass(Duration::from_millis(250));
    }
    (a, b)
}

/// Carries datagrams to and fro over a way for so much.
fn carry(a: &mut Machine, b: &mut Machine, most: usize) {
    loop {
        for machine in [&mut *a, &mut *b] {
            machine.out.sent.retain(|(_, datagram)| datagram.len() <= most);
        }
        if tests::carry(a, b) == 0 {
            return;
        }
    }
}

/// Lengths of the datagrams in which a segment of full size leaves, which arrives.
fn lengths(a: &mut Machine, b: &mut Machine, mark: u8) -> Vec<usize> {
    b.delivered.clear();
    a.send(&segment(FULL, mark));
    let lengths = a.sent().iter().map(Vec::len).collect();
    settle(a, b);
    assert_eq!(b.delivered, [segment(FULL, mark)]);
    lengths
}

#[test]
fn what_is_of_full_size_is_protected_whole_where_that_passes_and_else_cut() {
    let [whole, cut] = [vec![1_420 + 6 + 12 + 32], vec![192, 1_340]];
    for (first, most, expected) in [(1, WIDE, whole), (3, USUAL, cut)] {
        let (mut a, mut b) = pair(first, most);
        let found = lengths(&mut a, &mut b, 1);
        // Repair may follow.
        assert_eq!(found[..expected.len()], expected, "through {most}: {found:?}");
        assert!(found.iter().all(|len| *len <= most), "{found:?}");
        // What it took to find out is no weather.
        let weather = a.node.weather(&b.public()).expect("weather");
        assert_eq!(weather.loss_out, 0.0, "{weather:?}");
    }
}

#[test]
fn a_way_that_becomes_narrower_is_noticed_while_it_is_used() {
    let (mut a, mut b) = pair(1, WIDE);
    let mut large = Vec::new();
    for turn in 0..80 {
        a.send(&segment(FULL, turn));
        large.push(a.sent().iter().any(|datagram| datagram.len() > USUAL));
        carry(&mut a, &mut b, USUAL);
        a.pass(Duration::from_millis(250));
        b.pass(Duration::from_millis(250));
        carry(&mut a, &mut b, USUAL);
    }
    assert!(large[0]);
    let last = large.iter().rposition(|large| *large).expect("one");
    assert!(last < 40, "large ones are sent for {last} quarters of a second");
}

#[test]
fn a_way_that_is_not_used_is_not_asked_again() {
    let (mut a, mut b) = pair(1, WIDE);
    lengths(&mut a, &mut b, 1);
    let mut probes = 0;
    for _ in 0..60 {
        a.pass(Duration::from_secs(1));
        probes += a.sent().iter().filter(|datagram| datagram.len() == WIDE).count();
        settle(&mut a, &mut b);
    }
    assert_eq!(probes, 1, "one for what was sent");
}
