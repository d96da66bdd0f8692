//! Turns of classes, and how long anything waits.

use super::*;

/// DSCPs of what steers, of what is told, and of all else.
const EF: u8 = 46 << 2;
const AF31: u8 = 26 << 2;
const BULK: u8 = 0;

/// 1.2 MB a second: a packet of 1200 bytes a millisecond.
fn shaper() -> Shaper {
    let mut shaper = Shaper::default();
    shaper.set_rate(1_200_000);
    shaper
}

fn packet(octet: u8) -> Vec<u8> {
    let mut bytes = vec![0x45, octet, 4, 176, 0, 0, 0, 0, 64, 17, 0, 0];
    bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.resize(1200, 7);
    bytes
}

fn push(shaper: &mut Shaper, octet: u8, now: Instant) -> bool {
    let bytes = packet(octet);
    shaper.push(PeerId(1), false, (octet, bytes.len()), now, |to| to.copy_from_slice(&bytes))
}

fn at(ms: u64) -> Instant {
    Instant(1_000_000_000 + ms * 1_000_000)
}

/// The traffic classes of what is sent until `until`, a packet a millisecond.
fn sent(shaper: &mut Shaper, from: u64, until: u64, dropped: &mut u64) -> Vec<(u64, u8)> {
    let mut all = Vec::new();
    for ms in from..until {
        while let Some(held) = shaper.pop(at(ms), dropped) {
            shaper.note_sent(held.bytes.len() as u64, 0, at(ms));
            all.push((ms, held.bytes[1]));
            shaper.put_back(held);
        }
    }
    all
}

#[test]
fn a_class_goes_before_those_below_it_and_the_line_is_never_given_more_than_it_takes() {
    let mut shaper = shaper();
    for octet in [BULK, AF31, EF, BULK, AF31, EF] {
        assert!(push(&mut shaper, octet, at(0)));
    }
    let order: Vec<u8> = sent(&mut shaper, 0, 20, &mut 0).iter().map(|sent| sent.1).collect();
    assert_eq!(order, [EF, EF, AF31, AF31, BULK, BULK]);
    for _ in 0..50 {
        push(&mut shaper, EF, at(100));
    }
    let count = sent(&mut shaper, 100, 120, &mut 0).len();
    assert!((20..=22).contains(&count), "{count} in 20 ms at one a millisecond");
}

#[test]
fn a_class_that_fills_the_line_slows_those_below_it_and_stops_none() {
    let mut shaper = shaper();
    for _ in 0..10 {
        push(&mut shaper, BULK, at(0));
    }
    let mut last = Vec::new();
    for ms in 0..300 {
        // Twice what the line takes.
        push(&mut shaper, EF, at(ms));
        push(&mut shaper, EF, at(ms));
        last.extend(sent(&mut shaper, ms, ms + 1, &mut 0));
    }
    let bulk: Vec<u64> = last.iter().filter(|sent| sent.1 == BULK).map(|sent| sent.0).collect();
    assert_eq!(bulk.len(), 10, "all of them");
    assert!(bulk[0] >= 99, "after 100 ms, and not before: {bulk:?}");
}

#[test]
fn a_queue_that_stands_is_told_by_marks_where_they_are_heeded_and_else_by_losses() {
    for (ecn, marks) in [(2, true), (0, false)] {
        let mut shaper = shaper();
        let mut dropped = 0;
        let mut marked = 0;
        for ms in 0..1000 {
            push(&mut shaper, BULK | ecn, at(ms));
            if ms % 10 == 0 {
                push(&mut shaper, BULK | ecn, at(ms));
            }
            let all = sent(&mut shaper, ms, ms + 1, &mut dropped);
            marked += all.iter().filter(|sent| sent.1 & 3 == 3).count();
        }
        assert_eq!(marked > 5, marks, "{marked} marks, {dropped} dropped");
        assert_eq!(dropped > 5, !marks, "{marked} marks, {dropped} dropped");
    }
    // A burst that goes away is no such queue.
    let mut shaper = shaper();
    let mut dropped = 0;
    for _ in 0..40 {
        push(&mut shaper, BULK, at(0));
    }
    assert_eq!(sent(&mut shaper, 0, 60, &mut dropped).len(), 40);
    assert_eq!(dropped, 0);
}

#[test]
fn each_class_has_a_bound_of_its_own_and_a_peer_that_goes_takes_what_is_its() {
    let mut shaper = shaper();
    let room = CLASS_BYTES_MAX / 1200;
    let taken = (0..1000).filter(|_| push(&mut shaper, BULK, at(0))).count();
    assert_eq!(taken, room);
    assert!(push(&mut shaper, EF, at(0)), "bulk does not fill the others");
    assert_eq!(shaper.held(), room + 1);
    assert_eq!(shaper.forget(PeerId(2)), 0);
    assert_eq!(shaper.forget(PeerId(1)), room as u64 + 1);
    assert_eq!(shaper.held(), 0);
    assert!(push(&mut shaper, BULK, at(0)), "its room is free again");
}

#[test]
fn without_a_rate_what_waits_goes_at_once_and_nothing_waits_again() {
    let mut shaper = shaper();
    for _ in 0..5 {
        push(&mut shaper, BULK, at(0));
    }
    shaper.set_rate(0);
    assert!(shaper.is_on(), "some wait");
    assert_eq!(sent(&mut shaper, 0, 1, &mut 0).len(), 5);
    assert!(!shaper.is_on());
}
