//! Fresh before old, handshakes before data, and every datagram accounted for.

use proptest::prelude::*;
use wire::relay::DATAGRAM_HEADER_LEN;
use wire::wireguard::{INITIATION_LEN, Initiation};

use super::*;

/// Bytes of the frame in which a datagram of `len` bytes travels.
const fn framed_len(len: usize) -> usize {
    DATAGRAM_HEADER_LEN + len
}

const T0: Instant = Instant(1_000_000_000_000);
const MS: Duration = Duration::from_millis(1);
const TO: [u8; KEY_LEN] = [1; KEY_LEN];

/// A transport packet as its first bytes say, with a mark behind them.
fn data(len: usize, mark: u8) -> Vec<u8> {
    let mut datagram = vec![mark; len.max(32)];
    datagram[..4].copy_from_slice(&[4, 0, 0, 0]);
    datagram
}

fn handshake() -> [u8; INITIATION_LEN] {
    Initiation::build(1, &[2; 32], &[3; 48], &[4; 28])
}

fn is_conserved(queue: &StreamQueue) -> bool {
    let counters = queue.counters();
    let dropped = counters.stale + counters.overflow + counters.refused;
    counters.taken == counters.sent + queue.queued() + dropped
}

#[test]
fn what_waited_too_long_is_dropped_from_the_head() {
    let mut queue = StreamQueue::new();
    for ms in 0..200 {
        queue.push(&TO, &data(1000, ms as u8), T0.after(MS * ms));
    }
    let mut out = Vec::new();
    let now = T0.after(MS * 199);
    assert_eq!(queue.poll_bytes(&mut out, 1, now), 1);
    assert_eq!(out[framed_len(500)], 149, "the oldest that is no older than 50 ms");
    assert_eq!(queue.counters().stale, 149);
    assert!(is_conserved(&queue));
}

#[test]
fn a_handshake_and_a_ping_go_first_and_survive_what_data_does_not() {
    let mut queue = StreamQueue::new();
    for _ in 0..2000 {
        queue.push(&TO, &data(1000, 7), T0);
    }
    queue.push(&TO, &handshake(), T0);
    queue.push_ping([9; 8]);
    assert!(queue.counters().overflow > 900, "bounded in bytes");
    let (mut out, now) = (Vec::new(), T0.after(MS * 1000));
    assert_eq!(queue.poll_bytes(&mut out, usize::MAX, now), 1);
    assert_eq!(out.len(), 3 + 8 + framed_len(INITIATION_LEN));
    assert_eq!((out[0], out[11]), (3, 1), "the ping, then the handshake");
    assert!(queue.is_empty() && is_conserved(&queue));
    queue.push(&TO, &[], T0);
    queue.push(&TO, &vec![0; 65_530], T0);
    assert_eq!(queue.counters().refused, 2);
    assert!(is_conserved(&queue));
    queue.push_pong([3; 8]);
    assert!(!queue.is_empty());
}

proptest! {
    /// In = out + queued + drops, and no more memory than is named.
    #[test]
    fn every_datagram_leaves_waits_or_is_counted(
        steps in prop::collection::vec((0_u8..4, 0_usize..66_000), 0..200),
    ) {
        let (mut queue, mut now, mut out) = (StreamQueue::new(), T0, Vec::new());
        for (what, size) in steps {
            match what {
                0 => now += Duration::from_micros(size as u64),
                1 => queue.push(&TO, &data(size, 1), now),
                2 => queue.push(&TO, &handshake(), now),
                _ => {
                    out.clear();
                    queue.poll_bytes(&mut out, size, now);
                }
            }
            prop_assert!(is_conserved(&queue));
            prop_assert!(queue.data.bytes() <= STREAM_LEN_MAX);
            prop_assert!(queue.urgent.bytes() <= URGENT_LEN_MAX);
        }
    }
}
