//! Order: what waits, for how long, and what it costs.

use super::*;
use proptest::prelude::*;
use sim::rng::Rng;

use crate::tuning::Tuning;

const WAITING: &tuning::Waiting = &Tuning::DEFAULT.waiting;

fn drain(order: &mut Order<u32>) -> Vec<u32> {
    std::iter::from_fn(|| order.poll_ready()).collect()
}

#[test]
fn the_first_to_arrive_need_not_be_the_first() {
    let mut order = Order::new(WAITING);
    order.set_wait_us(10_000);
    assert!(!order.set_first(7), "there was none before");
    assert!(order.is_ahead(1, 9) && !order.is_ahead(1, 7));
    for number in [9, 8, 7] {
        order.handle_piece(1, number, number, 10, 0);
    }
    assert_eq!(drain(&mut order), [7, 8, 9]);
    order.handle_piece(1, 11, 11, 10, 0);
    assert!(!order.set_first(7));
    assert_eq!(drain(&mut order), [], "the same sender");
    assert!(order.set_first(500));
    assert_eq!(drain(&mut order), [11], "another one, who sends nothing of that");
    order.handle_piece(1, 501, 501, 10, 0);
    order.handle_piece(1, 500, 500, 10, 0);
    assert_eq!((drain(&mut order), order.bytes_waiting()), (vec![500, 501], 0));
}

#[test]
fn a_gap_is_waited_for_and_what_fills_it_lets_all_pass() {
    let mut order = Order::new(WAITING);
    order.set_wait_us(10_000);
    for number in [7, 9, 10, 12] {
        assert_eq!(order.is_ahead(1, number), number != 7);
        order.handle_piece(1, number, number, 100, u64::from(number));
    }
    assert_eq!((drain(&mut order), order.bytes_waiting()), (vec![7], 300));
    order.handle_piece(2, 5, 500, 100, 13);
    assert_eq!(drain(&mut order), [500]);
    order.handle_piece(1, 8, 8, 100, 14);
    assert_eq!(drain(&mut order), [8, 9, 10]);
    assert_eq!(order.poll_timeout(), Some(10_012));
    order.handle_timeout(10_011);
    assert_eq!(drain(&mut order), [0; 0]);
    order.handle_timeout(10_012);
    assert_eq!((drain(&mut order), order.poll_timeout()), (vec![12], None));
    assert!(!order.is_ahead(1, 11) && !order.is_ahead(1, 13) && order.is_ahead(1, 14));
    order.handle_piece(1, 11, 11, 100, 11_000);
    order.handle_piece(1, 13, 13, 100, 11_000);
    assert_eq!((drain(&mut order), order.bytes_waiting()), (vec![11, 13], 0));
    let counters = order.counters();
    let waits_us = (14 - 9) + (14 - 10) + (10_012 - 12);
    assert_eq!((counters.waited, counters.waited_us), (3, waits_us), "9, 10 and 12");
}

#[test]
fn a_gap_that_nothing_can_fill_any_more_is_given_up_at_once_but_not_what_may_be_late() {
    let mut order = Order::new(WAITING);
    order.set_wait_us(30_000);
    for (number, at_us) in [(1, 0), (3, 1_000), (5, 2_000)] {
        order.handle_piece(0, number, number, 10, at_us);
    }
    assert_eq!(drain(&mut order), [1]);
    order.handle_settled(1_000, 0, 5_000);
    assert_eq!(drain(&mut order), [], "its block is not settled");
    order.handle_settled(1_001, 4_000, 5_000);
    assert_eq!(drain(&mut order), [], "it may be late");
    order.handle_settled(1_001, 3_999, 5_000);
    assert_eq!((drain(&mut order), order.counters().given_up), (vec![3], 1));
    order.handle_settled(u64::MAX, 0, 5_000);
    assert_eq!((drain(&mut order), order.poll_timeout()), (vec![5], None));
}

#[test]
fn without_reordering_nothing_waits() {
    let mut order = Order::new(WAITING);
    for number in [1, 3, 2, 9] {
        order.handle_piece(0, number, number, 1, 0);
    }
    assert_eq!((drain(&mut order), order.poll_timeout()), (vec![1, 3, 2, 9], None));
}

#[test]
fn bc_10_no_piece_waits_for_longer_than_is_asked_for_nor_than_the_limit() {
    let mut order = Order::new(WAITING);
    for (asked_us, most_us) in [(0, None), (5_000, Some(5_000)), (u64::MAX, Some(100_000))] {
        order.set_wait_us_max(asked_us);
        order.set_wait_us(u64::MAX);
        order.handle_piece(0, 1, 1, 10, 0);
        order.handle_piece(0, 3, 3, 10, 0);
        assert_eq!(order.poll_timeout(), most_us);
        order.handle_timeout(u64::MAX);
        drain(&mut order);
        order.set_first(asked_us as u32 | 1 << 31);
    }
}

#[test]
fn bc_10_a_big_gap_a_restart_and_the_wrap_let_all_pass() {
    let mut order = Order::new(WAITING);
    order.set_wait_us(30_000);
    for number in [u32::MAX - 1, 0, u32::MAX, 2, 1 << 20, 3, 4, (1 << 20) + 1] {
        order.handle_piece(0, number, number, 1, 0);
    }
    let m = u32::MAX;
    assert_eq!(drain(&mut order), [m - 1, m, 0, 2, 1 << 20, 3, 4, (1 << 20) + 1]);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100, failure_persistence: None, ..Default::default()
    })]

    /// BC-10: all pieces pass once; none waits longer than the bound; those that came within
    /// the wait are in order.
    #[test]
    fn bc_10_every_piece_passes_once_in_time_and_in_order(
        seed: u64, loss in 0.0..0.2f64, jitter_us in 1..40_000u64, flows in 1..60u64
    ) {
        let mut rng = Rng::new(seed);
        let mut numbers = vec![u32::MAX - 100; 256];
        let mut wire = Vec::new();
        for n in 0..2_000u64 {
            let tag = rng.below(flows) as u8;
            let number = numbers[usize::from(tag)];
            numbers[usize::from(tag)] = number.wrapping_add(1);
            if !rng.chance(loss) {
                wire.push((n * 50 + rng.below(jitter_us), tag, number));
            }
        }
        wire.sort_unstable();
        let mut order = Order::new(WAITING);
        order.set_wait_us(u64::MAX);
        let (mut came, mut passed, mut fell) = (vec![0; wire.len()], 0, 0);
        let mut last: Vec<Option<u32>> = vec![None; 256];
        for (item, &(at_us, tag, number)) in wire.iter().enumerate() {
            while let Some(due_us) = order.poll_timeout().filter(|&due_us| due_us <= at_us) {
                order.handle_timeout(due_us);
                prop_assert!(order.poll_timeout().is_none_or(|next_us| next_us > due_us));
                while let Some(item) = order.poll_ready() {
                    prop_assert!(due_us - came[item] <= WAITING.order_us);
                    let (_, tag, number) = wire[item];
                    last[usize::from(tag)] = Some(number);
                    passed += 1;
                }
            }
            came[item] = at_us;
            order.handle_piece(tag, number, item, 1_400, at_us);
            while let Some(item) = order.poll_ready() {
                passed += 1;
                let (_, tag, number) = wire[item];
                let before = last[usize::from(tag)].replace(number);
                let falls = before.is_some_and(|b| number.wrapping_sub(b) > u32::MAX / 2);
                fell += u64::from(falls);
            }
            prop_assert!(fell <= order.counters().late, "out of order, not late");
            prop_assert!(order.bytes_waiting() <= BYTES_MAX);
        }
        order.handle_timeout(u64::MAX);
        while order.poll_ready().is_some() {
            passed += 1;
        }
        prop_assert_eq!((passed, order.bytes_waiting()), (wire.len(), 0));
    }
}

#[test]
fn bc_10_a_peer_that_opens_gaps_everywhere_stays_within_the_bounds() {
    let mut order = Order::new(WAITING);
    order.set_wait_us(30_000);
    let mut rng = Rng::new(1);
    for n in 0..200_000u32 {
        let tag = rng.below(256) as u8;
        order.handle_piece(tag, rng.below(9_000) as u32, n, 1_500, 0);
        assert!(order.bytes_waiting() <= BYTES_MAX && order.held <= WAITING_MAX);
        while order.poll_ready().is_some() {}
    }
    assert!(order.waiting.len() <= PLACES_MAX);
}

#[test]
fn bc_10_what_finds_no_room_takes_its_flow_on_and_not_back() {
    let mut order = Order::new(WAITING);
    order.set_first(10);
    order.set_wait_us(30_000);
    for number in [15, 20] {
        order.handle_piece(1, number, number, 1_400, 0);
    }
    order.set_wait_us(0);
    order.handle_piece(1, 12, 12, 1_400, 0);
    order.set_wait_us(30_000);
    assert_eq!(drain(&mut order), [12, 15, 20], "in order, and at once");
    order.handle_piece(1, 21, 21, 1_400, 0);
    assert_eq!((drain(&mut order), order.bytes_waiting()), (vec![21], 0), "nothing waits in vain");
}

/// What a flow gives up has a place too, though it has no bytes.
#[test]
fn bc_10_places_are_few_whatever_they_are_of() {
    let mut order = Order::new(WAITING);
    order.set_wait_us(30_000);
    order.set_first(0);
    for n in 0..200_000u32 {
        let tag = (n % WAITING_MAX as u32) as u8;
        order.handle_piece(tag, 1 + n / WAITING_MAX as u32 % SPAN, n, 0, 0);
        assert!(order.waiting.len() <= PLACES_MAX);
        while order.poll_ready().is_some() {}
    }
    assert!(order.counters().overflowed > 0);
}

/// Pieces in an order that made each cost as many steps as wait: those of the upper half come, then
/// those of the lower half but one, again and again.
#[test]
fn bc_10_a_piece_costs_a_few_steps_whatever_waits() {
    let mut order = Order::new(WAITING);
    order.set_wait_us(30_000);
    order.set_first(0);
    let mut pieces = 0;
    let half = SPAN / 2;
    for round in 0..20 {
        let first = round * SPAN;
        let numbers = (first + half..first + SPAN).chain(first..first + half - 1);
        for number in numbers.chain([first + half - 1]) {
            order.handle_piece(1, number, number, 0, 0);
            pieces += 1;
            while order.poll_ready().is_some() {}
        }
        assert!(order.waiting.is_empty());
    }
    assert!(order.steps() <= 6 * pieces, "{} steps for {pieces} pieces", order.steps());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60, failure_persistence: None, ..Default::default()
    })]

    /// BC-10: whatever numbers a peer says, and whenever time passes or blocks are settled.
    #[test]
    fn bc_10_steps_are_of_what_came(
        seed: u64, tags in 1..=40u64, span in 2..9_000u64, pause in 1..4_000u64, run in 1..40u32
    ) {
        let mut rng = Rng::new(seed);
        let mut order = Order::new(WAITING);
        order.set_wait_us(u64::MAX);
        let (mut inputs, mut now_us) = (0, 0);
        while inputs < 20_000 {
            let tag = rng.below(tags) as u8;
            let first = rng.below(span) as u32;
            for number in first..first + rng.below(u64::from(run)) as u32 + 1 {
                order.handle_piece(tag, number, number, rng.below(3) as usize, now_us);
                inputs += 1;
            }
            if rng.below(pause) < 8 {
                now_us += rng.below(40_000);
                order.handle_timeout(now_us);
                order.handle_settled(now_us.saturating_sub(5_000), 1_000, now_us);
                inputs += 2;
            }
            while order.poll_ready().is_some() {}
        }
        prop_assert!(order.steps() <= 8 * inputs, "{} steps, {inputs} inputs", order.steps());
    }
}
