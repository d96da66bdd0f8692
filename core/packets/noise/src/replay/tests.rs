//! The replay filter (threats DP-10, DP-12), at its edges and against a model.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::REJECT_AFTER_MESSAGES;

/// One more than the window: the first counter that pushes 0 out of it.
const EDGE: u64 = WINDOW + 1;

/// What `Session::open` does with a counter.
fn take(replay: &mut Replay, counter: u64) -> bool {
    counter < REJECT_AFTER_MESSAGES && replay.accept(counter)
}

/// Thirty-four steps on one filter, in this order.
#[test]
fn dp_12_every_edge_of_the_window_is_where_it_should_be() {
    const LIMIT: u64 = REJECT_AFTER_MESSAGES;
    let mut replay = Replay::new();
    for (step, (counter, accepted)) in [
        (0, true),
        (1, true),
        (1, false),
        (9, true),
        (8, true),
        (7, true),
        (7, false),
        (EDGE, true),
        (EDGE - 1, true),
        (EDGE - 1, false),
        (EDGE - 2, true),
        (2, true),
        (2, false),
        (EDGE + 16, true),
        (3, false),
        (EDGE + 16, false),
        (EDGE * 4, true),
        (EDGE * 4 - (EDGE - 1), true),
        (10, false),
        (EDGE * 4 - EDGE, false),
        (EDGE * 4 - (EDGE + 1), false),
        (EDGE * 4 - (EDGE - 2), true),
        (EDGE * 4 + 1 - EDGE, false),
        (0, false),
        (LIMIT, false),
        (LIMIT - 1, true),
        (LIMIT, false),
        (LIMIT - 1, false),
        (LIMIT - 2, true),
        (LIMIT + 1, false),
        (LIMIT + 2, false),
        (LIMIT - 2, false),
        (LIMIT - 3, true),
        (0, false),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(take(&mut replay, counter), accepted, "step {step}: {counter}");
    }
}

/// Runs one filter through the counters; all must be accepted, and then each of `refused` refused.
fn run(counters: impl Iterator<Item = u64>, refused: &[u64]) {
    let mut replay = Replay::new();
    for counter in counters {
        assert!(replay.accept(counter), "{counter}");
    }
    for &counter in refused {
        assert!(!replay.accept(counter), "{counter}");
    }
}

/// The kernel's seven loops over a whole window (threats A.1), and a few that are ours.
#[test]
fn dp_12_whole_windows_in_every_order() {
    // Ascending; 0 is still inside, once.
    run((1..=WINDOW).chain([0]), &[0]);
    // Ascending from 2, one further; 1 is inside and 0 is not.
    run((2..=WINDOW + 1).chain([1]), &[0]);
    // Descending, down to 0 and, from one further, to 1.
    run((0..=WINDOW).rev(), &[0, WINDOW]);
    run((1..=WINDOW + 1).rev(), &[0]);
    // Descending to 1, then one beyond the window: 0 is out.
    run((1..=WINDOW).rev().chain([WINDOW + 1]), &[0]);
    // Descending to 1, then 0 while it is inside, and only then one beyond.
    run((1..=WINDOW).rev().chain([0, WINDOW + 1]), &[0, 1]);
    // With one left out, which comes last.
    run((1..WINDOW).rev().chain([WINDOW + 1, WINDOW]), &[0]);
    run((1..=WINDOW).chain([WINDOW + 1]), &[0, 1, WINDOW]);
}

#[test]
fn a_leap_of_any_size_forgets_exactly_what_is_too_old() {
    for leap in (1..=WINDOW * 3).step_by(61).chain([WINDOW - 1, WINDOW, WINDOW + 1, 1 << 40]) {
        let mut replay = Replay::new();
        assert!(replay.accept(0) && replay.accept(leap));
        assert!(!replay.is_fresh(leap) && !replay.is_fresh(0), "{leap}");
        if leap > WINDOW {
            assert!(replay.accept(leap - WINDOW), "{leap}");
            assert!(!replay.accept(leap - WINDOW - 1), "{leap}");
        }
    }
}

#[test]
fn the_newest_is_the_highest_that_was_accepted_and_no_other() {
    let mut replay = Replay::new();
    assert!(!replay.is_newest(0) && !replay.is_newest(u64::MAX), "nothing was accepted");
    for (counter, newest) in [(0, 0), (7, 7), (5, 7), (8, 8)] {
        assert!(replay.accept(counter));
        for other in 0..10 {
            assert_eq!(replay.is_newest(other), other == newest, "{other} after {counter}");
        }
    }
}

/// The obvious filter.
#[derive(Default)]
struct Model {
    highest: Option<u64>,
    seen: BTreeSet<u64>,
}

impl Model {
    fn accept(&mut self, counter: u64) -> bool {
        if self.highest.is_some_and(|highest| highest.saturating_sub(counter) > WINDOW) {
            return false;
        }
        self.highest = self.highest.max(Some(counter));
        self.seen.insert(counter)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn dp_12_the_filter_is_a_set_with_a_window(
        steps in prop::collection::vec(
            prop_oneof![
                4 => -40_i64..40,
                2 => -(WINDOW as i64) - 70..70,
                1 => 0..3 * WINDOW as i64,
                1 => Just(0_i64),
            ],
            1..600,
        ),
        start in prop_oneof![Just(0_u64), 0..u64::from(u32::MAX) * 2, Just(u64::MAX - (1 << 40))],
    ) {
        let (mut replay, mut model) = (Replay::new(), Model::default());
        let mut at = start;
        for step in steps {
            at = at.saturating_add_signed(step);
            let fresh = replay.is_fresh(at);
            let accepted = replay.accept(at);
            prop_assert_eq!(fresh, accepted);
            prop_assert_eq!(accepted, model.accept(at), "counter {}", at);
        }
    }
}
