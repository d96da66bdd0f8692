//! What the relay promises, threat by threat.

use wire::relay::Decoder;

use super::*;

mod model;

const T0: Instant = Instant(1_000_000_000_000);
const MS: Duration = Duration::from_millis(1);

fn key(number: u8) -> PublicKey {
    PublicKey([number; 32])
}

/// A switch with connections of keys 1 to `count`.
fn switch(count: u8) -> (Switch, Vec<ConnectionId>) {
    let mut switch = Switch::new();
    let ids = (1..=count).map(|n| switch.admit(key(n), T0).unwrap().id).collect();
    (switch, ids)
}

fn send(switch: &mut Switch, from: ConnectionId, to: u8, len: usize, now: Instant) -> Handled {
    let datagram = vec![4; len];
    switch.handle_frame(from, &Frame::Send { to: &key(to).0, datagram: &datagram }, now)
}

/// Everything that waits for a connection: key of the sender and length, or "gone".
fn take(switch: &mut Switch, id: ConnectionId, now: Instant) -> Vec<(PublicKey, usize)> {
    let mut bytes = Vec::new();
    while switch.poll_frames(id, &mut bytes, usize::MAX, now) {}
    read(&bytes)
}

fn read(bytes: &[u8]) -> Vec<(PublicKey, usize)> {
    let (mut decoder, mut rest, mut got) = (Decoder::default(), bytes, Vec::new());
    while !rest.is_empty() {
        let room = decoder.room();
        let len = room.len().min(rest.len());
        room[..len].copy_from_slice(&rest[..len]);
        decoder.fill(len);
        rest = &rest[len..];
        while let Some(place) = decoder.poll_frame().unwrap() {
            match decoder.frame(&place) {
                Frame::Received { from, datagram } => got.push((PublicKey(*from), datagram.len())),
                Frame::Gone(key) => got.push((PublicKey(*key), 0)),
                other => panic!("{other:?}"),
            }
        }
    }
    got
}

fn is_conserved(switch: &Switch) -> bool {
    let counters = switch.counters();
    counters.received == counters.sent + switch.queued() + counters.dropped_all()
}

#[test]
fn rl_02_the_sender_of_a_datagram_is_whose_connection_it_came_by() {
    let (mut switch, ids) = switch(3);
    assert_eq!(send(&mut switch, ids[0], 2, 100, T0), Handled::Wake(ids[1]));
    assert_eq!(send(&mut switch, ids[2], 2, 101, T0), Handled::Done, "it is awake");
    assert_eq!(take(&mut switch, ids[1], T0), [(key(1), 100), (key(3), 101)]);
    let forged = Frame::Received { from: &key(3).0, datagram: &[4; 50] };
    assert_eq!(switch.handle_frame(ids[0], &forged, T0), Handled::Misplaced);
    assert_eq!(take(&mut switch, ids[1], T0), []);
    assert!(is_conserved(&switch));
}

#[test]
fn rl_03_one_frame_in_is_at_most_one_out_and_absence_is_told_three_times_a_second() {
    let (mut switch, ids) = switch(1);
    let mut told = 0;
    for number in 0..100 {
        let now = T0.after(MS * number * 20);
        assert_eq!(send(&mut switch, ids[0], 9, 1400, now), Handled::Absent(key(9)));
        switch.handle_absent(ids[0], &key(9), now);
        let got = take(&mut switch, ids[0], now);
        assert!(got.len() <= 1 && got.iter().all(|gone| *gone == (key(9), 0)));
        told += got.len();
    }
    assert_eq!(told, 6, "100 in 2 s");
    assert_eq!(switch.counters().dropped(Reason::Absent), 100);
    assert!(is_conserved(&switch));
}

#[test]
fn rl_04_one_who_does_not_read_holds_up_nobody_and_costs_a_bounded_memory() {
    let (mut switch, ids) = switch(51);
    let mut delivered = 0;
    for round in 0..2000 {
        let now = T0.after(MS * round);
        for to in 2..=51 {
            send(&mut switch, ids[0], to, 1400, now);
        }
        for id in &ids[2..] {
            delivered += take(&mut switch, *id, now).len();
        }
    }
    assert_eq!(delivered, 49 * 2000, "all of the others'");
    assert!(switch.queued_bytes() <= QUEUE_LEN_MAX, "{}", switch.queued_bytes());
    let waiting = take(&mut switch, ids[1], T0.after(MS * 2000));
    assert!(waiting.len() <= 51, "what is older than 50 ms is dropped: {}", waiting.len());
    assert!(!waiting.is_empty(), "and what is fresh is there at once");
    assert!(is_conserved(&switch));
}

#[test]
fn rl_07_the_newest_connection_of_a_key_wins_and_its_old_name_means_nothing() {
    let (mut switch, ids) = switch(2);
    send(&mut switch, ids[0], 2, 100, T0);
    let again = switch.admit(key(2), T0.after(MS)).unwrap();
    assert_eq!(again.replaced, Some(ids[1]));
    assert_eq!(switch.len(), 2);
    assert_eq!(switch.counters().dropped(Reason::Cut), 1);
    send(&mut switch, ids[0], 2, 101, T0);
    assert_eq!(take(&mut switch, ids[1], T0), []);
    switch.remove(ids[1]);
    assert_eq!(send(&mut switch, ids[1], 1, 1, T0), Handled::Done, "it is nobody's");
    assert_eq!(take(&mut switch, again.id, T0), [(key(1), 101)]);
    assert!(is_conserved(&switch));
}

#[test]
fn rl_07_two_machines_with_one_key_are_quarantined_and_one_that_roams_is_not() {
    let (mut switch, _) = switch(1);
    let mut now = T0;
    let mut refused = 0;
    for _ in 0..20 {
        now += MS * 500;
        match switch.admit(key(1), now) {
            Ok(admitted) => {
                switch.handle_frame(admitted.id, &Frame::KeepAlive, now);
            }
            Err(Refusal::Quarantined(_)) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(refused, 16, "from the fifth on");
    assert_eq!(switch.len(), 0, "both are out");
    now += QUARANTINE;
    assert!(switch.admit(key(1), now).is_ok());
    // One whose old connection is silent when the new one comes is no thief.
    for _ in 0..20 {
        now += MS * 2500;
        assert!(switch.admit(key(1), now).is_ok());
    }
    switch.handle_timeout(now.after(FLAP_TIME));
    assert!(switch.flaps.is_empty(), "forgotten");
}

#[test]
fn rl_11_who_sends_little_never_waits_for_who_sends_much() {
    let (mut switch, ids) = switch(11);
    // One sends 20 times what the receiver takes, nine send one datagram each 10 ms.
    let (mut light, mut late) = (0_u32, 0_u32);
    let mut got = Vec::new();
    for ms in 0..1000 {
        let now = T0.after(MS * ms);
        for _ in 0..200 {
            send(&mut switch, ids[0], 11, 1400, now);
        }
        for id in &ids[1..10] {
            if ms % 10 == 0 {
                send(&mut switch, *id, 11, 200, now);
                light += 1;
            }
        }
        got.clear();
        switch.poll_frames(ids[10], &mut got, 14_000, now);
        let here = read(&got).iter().filter(|(from, _)| *from != key(1)).count() as u32;
        late += if ms % 10 == 0 { 9 - here } else { 0 };
    }
    assert_eq!((light, late), (900, 0));
    let mut shares = [0; 2];
    for ms in 1000..1500 {
        let now = T0.after(MS * ms);
        for _ in 0..20 {
            send(&mut switch, ids[0], 11, 1400, now);
            send(&mut switch, ids[1], 11, 500, now);
            send(&mut switch, ids[1], 11, 500, now);
        }
        got.clear();
        switch.poll_frames(ids[10], &mut got, 14_000, now);
        for (from, len) in read(&got) {
            shares[usize::from(from == key(2))] += len;
        }
    }
    let share = f64::from(shares[0] as u32) / f64::from(shares[1] as u32);
    assert!((0.8..1.25).contains(&share), "two who want all get half each: {shares:?}");
    assert!(is_conserved(&switch));
}

#[test]
fn a_ping_is_answered_before_data_and_what_has_no_place_is_told() {
    let (mut switch, ids) = switch(2);
    for _ in 0..30 {
        send(&mut switch, ids[0], 2, 1400, T0);
    }
    assert_eq!(switch.handle_frame(ids[1], &Frame::Ping(&[5; 8]), T0), Handled::Done);
    assert_eq!(switch.handle_frame(ids[0], &Frame::Ping(&[6; 8]), T0), Handled::Wake(ids[0]));
    let mut out = Vec::new();
    switch.poll_frames(ids[1], &mut out, 1, T0);
    assert_eq!(out, [3 + 1, 8, 0, 5, 5, 5, 5, 5, 5, 5, 5]);
    for frame in [Frame::Gone(&[1; 32]), Frame::Open(&[]), Frame::Confirm(&[])] {
        assert_eq!(switch.handle_frame(ids[0], &frame, T0), Handled::Misplaced);
    }
    for frame in [Frame::KeepAlive, Frame::Unknown(77), Frame::Pong(&[0; 8])] {
        assert_eq!(switch.handle_frame(ids[0], &frame, T0), Handled::Done);
    }
}

#[test]
fn who_is_silent_for_a_minute_is_cut() {
    let (mut switch, ids) = switch(2);
    let later = T0.after(SILENCE_MAX - MS);
    assert_eq!(switch.handle_timeout(later), []);
    switch.handle_frame(ids[0], &Frame::KeepAlive, later);
    assert_eq!(switch.handle_timeout(T0.after(SILENCE_MAX)), [ids[1]]);
    assert_eq!(switch.keys().map(|(key, _)| *key).collect::<Vec<_>>(), [key(1)]);
}

#[test]
fn rl_05_places_and_memory_are_bounded() {
    let mut switch = Switch::new();
    let mut long = [0; 32];
    for number in 0..=MEMBERS_MAX {
        long[..8].copy_from_slice(&(number as u64).to_be_bytes());
        let admitted = switch.admit(PublicKey(long), T0);
        assert_eq!(admitted.is_ok(), number < MEMBERS_MAX);
    }
    let ids: Vec<_> = switch.keys().map(|(key, id)| (*key, id)).collect();
    let datagram = vec![4; 60_000];
    for (to, _) in &ids[..4000] {
        let frame = Frame::Send { to: &to.0, datagram: &datagram };
        switch.handle_frame(ids[5000].1, &frame, T0);
    }
    assert!(switch.queued_bytes() <= ALL_LEN_MAX);
    assert!(switch.counters().dropped(Reason::Memory) > 2000);
    assert!(is_conserved(&switch));
    for (_, id) in ids {
        switch.remove(id);
    }
    assert_eq!((switch.queued_bytes(), switch.len()), (0, 0));
    assert!(is_conserved(&switch));
    assert_eq!(switch.admit(key(1), T0).unwrap().id.slot(), 0, "places are given again");
}
