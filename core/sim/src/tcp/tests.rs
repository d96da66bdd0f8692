//! One end at a time.

use super::*;

fn ack(next: u64, sacks: &[(u64, u64)], echo_us: u64) -> Ack {
    Ack { next, sacks: sacks.to_vec(), echo_us }
}

/// All that may be sent now.
fn sent(sender: &mut Sender, now_us: u64) -> Vec<Burst> {
    std::iter::from_fn(|| sender.poll_send(now_us)).collect()
}

/// A flow whose first ten segments took 20 ms, and what it sent then.
fn begun() -> (Sender, u64) {
    let mut sender = Sender::new();
    assert_eq!(sent(&mut sender, 0).iter().map(|burst| burst.count).sum::<u64>(), 10);
    sender.handle_ack(&ack(10, &[], 0), 20_000);
    assert_eq!((sender.window(), sender.srtt_us()), (20.0, 20_000));
    let count = sent(&mut sender, 20_000).iter().map(|burst| burst.count).sum();
    (sender, count)
}

#[test]
fn a_window_doubles_until_something_is_lost_and_is_seven_tenths_then() {
    let (mut sender, count) = begun();
    assert_eq!(count, 20);
    // Segment 10 is lost; all others of the flight arrive.
    sender.handle_ack(&ack(10, &[(11, 30)], 20_000), 40_000);
    assert_eq!(sent(&mut sender, 40_000)[0], Burst { first: 10, count: 1 });
    sender.handle_ack(&ack(30, &[], 40_000), 60_000);
    let (window, counters) = (sender.window(), sender.counters());
    assert!((14.0..14.1).contains(&window), "{window}");
    assert_eq!((counters.again, counters.reduced, counters.undone), (1, 1, 0));
}

#[test]
fn what_was_merely_late_is_undone() {
    let (mut sender, _) = begun();
    sender.handle_ack(&ack(10, &[(11, 30)], 20_000), 40_000);
    sent(&mut sender, 40_000);
    // The original made the receiver go on: its timestamp is older than the copy's.
    sender.handle_ack(&ack(30, &[], 20_000), 41_000);
    assert_eq!((sender.window() >= 20.0, sender.counters().undone), (true, 1));
}

#[test]
fn a_little_disorder_is_waited_for_once_it_was_seen() {
    let (mut sender, _) = begun();
    sender.handle_ack(&ack(10, &[(12, 13)], 20_000), 40_000);
    assert_eq!(sender.counters().reduced, 0, "one beyond is no loss yet");
    sender.handle_ack(&ack(13, &[], 20_000), 41_000);
    sender.handle_ack(&ack(13, &[(14, 30)], 20_000), 42_000);
    assert_eq!(sender.counters().reduced, 0, "segments have changed places before");
    let due_us = sender.poll_timeout().expect("a quarter of a round trip");
    assert!((44_000..48_000).contains(&due_us), "{due_us}");
    sender.handle_timeout(due_us);
    assert_eq!(sender.counters().reduced, 1);
}

#[test]
fn silence_ends_in_a_timeout_and_one_segment() {
    let (mut sender, _) = begun();
    let mut now_us = 20_000;
    while sender.counters().timeouts == 0 {
        now_us = sender.poll_timeout().expect("a probe, then a timeout");
        sender.handle_timeout(now_us);
        sent(&mut sender, now_us);
    }
    assert!((220_000..400_000).contains(&now_us), "{now_us}");
    assert!(sender.window() < 2.0, "{}", sender.window());
}

#[test]
fn every_second_segment_and_every_gap_is_acknowledged_at_once() {
    let mut receiver = Receiver::default();
    assert_eq!(receiver.handle_data(0, 1, 5, 100), None);
    assert_eq!(receiver.poll_timeout(), Some(40_100));
    assert_eq!(receiver.handle_data(1, 1, 6, 200), Some(ack(2, &[], 5)));
    assert_eq!(receiver.handle_data(2, 7, 7, 300), Some(ack(9, &[], 7)), "a superpacket");
    assert_eq!(receiver.handle_data(11, 1, 8, 400), Some(ack(9, &[(11, 12)], 7)));
    assert_eq!(receiver.handle_data(14, 1, 8, 400), Some(ack(9, &[(14, 15), (11, 12)], 7)));
    assert_eq!(
        receiver.handle_data(11, 1, 8, 400),
        Some(ack(9, &[(11, 12), (14, 15), (11, 12)], 7))
    );
    assert_eq!(receiver.handle_data(9, 2, 9, 500), Some(ack(12, &[(14, 15)], 9)));
    assert_eq!(receiver.handle_data(3, 1, 9, 600), Some(ack(12, &[(3, 4), (14, 15)], 9)));
    let filling = receiver.handle_data(12, 1, 10, 700);
    assert_eq!(filling, Some(ack(13, &[(14, 15)], 10)), "a gap is left");
    assert_eq!(receiver.handle_data(13, 1, 11, 800), Some(ack(15, &[], 11)));
    assert_eq!((receiver.received(), receiver.handle_data(15, 1, 12, 900)), (15, None));
    assert_eq!(receiver.handle_timeout(40_900), Some(ack(16, &[], 12)));
}
