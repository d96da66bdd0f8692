//! Streams that measure a path, from one machine to another.

use std::time::Duration;

use link::Unsounded;
use noise::{Instant, PeerId};
use wire::frame::Features;

use super::squeezed::{Other, acquainted};
use crate::node::tests::{Machine, Tray, address, packet_to, settle};
use crate::node::{Reason, SOUNDED_MAX, Soundings};

/// Machines `first` and the next one, with a session.
fn pair(first: u8) -> (Machine, Machine) {
    let (mut a, mut b) = acquainted(first);
    a.send(&packet_to(1, 2, 5));
    settle(&mut a, &mut b);
    (a, b)
}

#[test]
fn bc_13_a_stream_is_noted_where_it_comes_and_told_where_it_is_asked_for() {
    let (mut a, mut b) = pair(1);
    let mut tray = Tray::default();
    a.node.send_stream(&b.public(), 300, 240, a.now, &mut tray).expect("a session");
    assert_eq!(a.node.arrivals(), None, "nothing was told yet");
    assert!(tray.sent.len() == 300 && tray.sent.iter().all(|(_, one)| one.len() == 240 - 28));
    // Which numbers these have is told at once, and not paced or repaired.
    a.pass(Duration::ZERO);
    settle(&mut a, &mut b);
    for (place, (_, datagram)) in tray.sent.iter().enumerate() {
        b.now += Duration::from_micros(100);
        if place != 7 {
            b.receive(address(1), datagram);
        }
    }
    assert!(b.out.sent.is_empty(), "who is measured answers nothing by itself");
    a.node.ask_arrivals(a.now, &mut a.out).expect("a session");
    let asked: usize = a.out.sent.iter().map(|(_, one)| one.len()).sum();
    assert_eq!(asked, 2 * (32 + 12) + 300 * 4, "questions are as long as their answers");
    settle(&mut a, &mut b);
    let expected = (0..300).filter(|place| *place != 7);
    let expected: Vec<(u16, u64)> =
        expected.map(|place| (place, u64::from(place) * 100_000)).collect();
    assert_eq!(a.node.arrivals(), Some(&expected[..]));
    // One was lost, and that is no weather.
    for _ in 0..20 {
        a.pass(Duration::from_millis(100));
        b.pass(Duration::from_millis(100));
        a.send(&packet_to(1, 2, 5));
        settle(&mut a, &mut b);
    }
    let weather = b.node.weather(&a.public()).expect("frames are spoken");
    assert_eq!((weather.loss_in, weather.left_in), (0.0, 0.0), "{weather:?}");
}

#[test]
fn what_is_read_late_is_told_as_it_came() {
    let (mut a, mut b) = pair(1);
    let mut tray = Tray::default();
    assert!(!b.node.is_sounded(b.now), "nobody measures");
    a.node.send_stream(&b.public(), 50, 240, a.now, &mut tray).expect("a session");
    a.pass(Duration::ZERO);
    settle(&mut a, &mut b);
    // All are read at once, a while later.
    let began = b.now;
    b.now += Duration::from_millis(30);
    for (place, (_, datagram)) in (0..).zip(&tray.sent) {
        b.read(address(1), datagram, Some(began.after(Duration::from_micros(100) * place)));
    }
    assert!(b.node.is_sounded(b.now));
    a.node.ask_arrivals(a.now, &mut a.out).expect("a session");
    settle(&mut a, &mut b);
    let expected: Vec<(u16, u64)> =
        (0..50).map(|place| (place, u64::from(place) * 100_000)).collect();
    assert_eq!(a.node.arrivals(), Some(&expected[..]));
    assert!(!b.node.is_sounded(b.now + Duration::from_secs(60)), "it is over");
}

#[test]
fn a_stream_that_never_came_is_told_as_such() {
    let (mut a, mut b) = pair(1);
    let mut tray = Tray::default();
    a.node.send_stream(&b.public(), 1000, 240, a.now, &mut tray).expect("a session");
    a.node.ask_arrivals(a.now, &mut a.out).expect("a session");
    settle(&mut a, &mut b);
    assert_eq!(a.node.arrivals(), Some(&[][..]));
}

#[test]
fn no_stream_goes_to_who_does_not_know_it_or_has_no_session() {
    let (mut a, b) = acquainted(1);
    let mut tray = Tray::default();
    let sent = a.node.send_stream(&b.public(), 100, 240, a.now, &mut tray);
    assert_eq!(sent, Err(Unsounded::NoSession));
    a.pass(Duration::ZERO);
    assert_eq!(a.sent().len(), 1, "but a session is asked for");
    let features = link::features().0 & !Features::SOUNDINGS.0;
    let mut machine = Machine::new(1);
    machine.node.set_frames(true);
    let old = Other::with_features(&mut machine, Features(features), 5);
    let sent = machine.node.send_stream(&old.public(), 100, 240, machine.now, &mut tray);
    assert_eq!(sent, Err(Unsounded::Unable));
    assert!(tray.sent.is_empty());
}

#[test]
fn bc_13_what_is_noted_is_bounded_and_what_is_no_sounding_is_dropped() {
    let mut soundings = Soundings::default();
    let now = |n: u32| Instant(1_000_000 * u64::from(n));
    for n in 0..200 {
        for stream in 0..3 {
            soundings.note(PeerId(n), stream, 999, now(n));
        }
    }
    let known = (0..200).filter(|n| !soundings.told(PeerId(*n), 2, 900, 250).is_empty()).count();
    assert_eq!(known, SOUNDED_MAX);
    assert_eq!(soundings.told(PeerId(199), 2, 900, 250).len(), 100);
    assert_eq!(soundings.told(PeerId(199), 2, 0, 30).len(), 30, "no more than was asked for");
    assert!(soundings.told(PeerId(199), 1, 0, 250).is_empty(), "of the last stream alone");
    assert!(soundings.told(PeerId(0), 2, 0, 250).is_empty(), "who was silent longest");
    let mut machine = Machine::new(1);
    machine.node.set_frames(true);
    let mut peer = Other::with_features(&mut machine, link::features(), 5);
    let dropped = machine.node.counters().dropped(Reason::UnknownFrame);
    peer.say(&mut machine, &[0x90, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(machine.node.counters().dropped(Reason::UnknownFrame), dropped + 1);
}
