//! What is judged of chunks that come late, in another order, from a queue, or not at all.

use super::*;
use proptest::prelude::*;
use sim::rng::Rng;

/// Feeds chunks, one each 100 us, with a delay; `None` is lost.
fn feed(observer: &mut Observer, delays_us: impl IntoIterator<Item = Option<u64>>) -> u64 {
    let sent = delays_us.into_iter().enumerate();
    let mut arrivals: Vec<(u64, u64)> =
        sent.filter_map(|(s, d)| Some((s as u64 * 100 + d?, s as u64))).collect();
    arrivals.sort_unstable();
    for &(at_us, sequence) in &arrivals {
        observer.handle_chunk(sequence, (sequence * 100) as u32, 5_000_000 + at_us);
    }
    5_000_000 + arrivals.last().expect("some arrive").0
}

#[test]
fn losses_runs_and_windows_are_counted_exactly() {
    let mut observer = Observer::new(&Tuning::DEFAULT);
    let lost = |s: u64| (70..73).contains(&s) || s == 200;
    let end_us = feed(&mut observer, (0..640).map(|s| (!lost(s)).then_some(1_000)));
    let report = observer.poll_report(4, 3, end_us + 200_000);
    let expected =
        Losses { judged: 640, lost: 4, runs: 2, windows: 10, window_losses: 4, window_squares: 10 };
    assert_eq!((report.clear, report.queued), (expected, Losses::default()));
    assert_eq!((report.reorder_us, report.missing, report.rebuilt), (0, 4, 3));
    assert!(!observer.is_waiting());
    assert_eq!(observer.poll_report(0, 0, end_us + 300_000).clear, Losses::default());
}

/// Numbers of which none came are judged a word at a time, to the same end.
#[test]
fn long_gaps_are_counted_as_exactly_as_short_ones() {
    for (from, to) in [(64, 128), (70, 300), (1, 5_000), (63, 16_000), (128, 129)] {
        let mut observer = Observer::new(&Tuning::DEFAULT);
        let lost = |s: u64| (from..to).contains(&s);
        let all = to.next_multiple_of(64) + 640;
        let end_us = feed(&mut observer, (0..all).map(|s| (!lost(s)).then_some(1_000)));
        let report = observer.poll_report(0, 0, end_us + 200_000);
        let windows = (0..all / 64).map(|w| (w * 64..w * 64 + 64).filter(|&s| lost(s)).count());
        let windows: Vec<u32> = windows.map(|count| count as u32).collect();
        let expected = Losses {
            judged: all as u32,
            lost: (to - from) as u32,
            runs: 1,
            windows: windows.len() as u32,
            window_losses: windows.iter().sum(),
            window_squares: windows.iter().map(|count| count * count).sum(),
        };
        assert_eq!((report.clear, report.queued), (expected, Losses::default()), "{from} to {to}");
    }
}

/// A queue of which nobody has told for a second is none that stands.
#[test]
fn an_old_queue_is_not_told_of_for_ever() {
    let mut observer = Observer::new(&Tuning::DEFAULT);
    let end_us = feed(&mut observer, (0..4_000).map(|s| Some(if s < 2_000 { 0 } else { 20_000 })));
    observer.poll_report(0, 0, end_us);
    let mut told = Vec::new();
    for n in 0..20_000 {
        let now_us = end_us + n * 100;
        observer.handle_number(4_000 + n, now_us);
        if n % 1_000 == 999 {
            told.push(observer.poll_report(0, 0, now_us).queue_us);
        }
    }
    assert!(told[0] >= 15_000, "it may stand still: {told:?}");
    assert_eq!(told[11..], [0; 9], "{told:?}");
}

/// What travels as it is tells no delay, and of ten reports a second each has its own jitter:
/// one of them says nothing of a queue.
#[test]
fn a_lone_delay_is_no_queue() {
    let (mut observer, mut rng) = (Observer::new(&Tuning::DEFAULT), Rng::new(1));
    let (mut clear, mut lost) = (0, 0);
    for sequence in 0..20_000u64 {
        let now_us = sequence * 1_000;
        if sequence % 100 == 7 {
            let jitter_us = rng.below(11_000);
            observer.handle_chunk(sequence, now_us as u32, now_us + jitter_us);
        } else if sequence % 100 != 50 {
            observer.handle_number(sequence, now_us);
        }
        if sequence % 100 == 99 {
            let report = observer.poll_report(0, 0, now_us);
            clear += report.clear.judged;
            lost += report.clear.lost;
        }
    }
    assert!(clear > 19_000 && lost > 190, "{clear} {lost}");
}

#[test]
fn what_came_another_way_is_neither_lost_nor_late() {
    let mut observer = Observer::new(&Tuning::DEFAULT);
    // Every tenth comes by a slower or a quicker way.
    for sequence in 1..2_000_u64 {
        let now_us = sequence * 1_000;
        if sequence % 10 == 5 {
            observer.handle_stray(sequence + 3);
        } else if sequence % 10 != 8 {
            observer.handle_chunk(sequence, now_us as u32, now_us);
        }
        if sequence % 10 == 6 {
            observer.handle_stray(sequence - 1);
        }
    }
    let report = observer.poll_report(0, 0, 10_000_000);
    assert_eq!((report.clear.lost, report.reorder_us), (0, 0), "{report:?}");
    // And it is not judged at all.
    assert!((1_590..=1_600).contains(&report.clear.judged), "{report:?}");
}

/// A queue of ten packets fills within two groups, and drops most of the second and the third.
#[test]
fn where_most_of_a_group_is_lost_those_behind_it_tell_of_the_queue() {
    let lost_clear = |after_us: u64| {
        let mut observer = Observer::new(&Tuning::DEFAULT);
        let delay_us = |s: u64| match s {
            400..408 => Some(s % 8 * 1_000),
            408..424 => s.is_multiple_of(4).then_some(10_000),
            424..448 => Some(after_us),
            _ => Some(0),
        };
        let end_us = feed(&mut observer, (0..800).map(delay_us));
        let report = observer.poll_report(0, 0, end_us + 200_000);
        assert_eq!(report.lost(), 12, "{report:?}");
        report.clear.lost
    };
    assert_eq!((lost_clear(11_000), lost_clear(0)), (0, 12));
}

#[test]
fn reordering_is_no_loss_and_its_extent_is_measured() {
    let mut observer = Observer::new(&Tuning::DEFAULT);
    let mut rng = Rng::new(2);
    let end_us = feed(&mut observer, (0..20_000).map(|_| Some(rng.below(21_000))));
    let report = observer.poll_report(0, 0, end_us + 200_000);
    assert_eq!(report.clear.lost + report.queued.lost, 0, "{report:?}");
    assert!((17_000..=23_000).contains(&report.reorder_us), "{report:?}");
    assert!(observer.late() < 100, "those before the first to arrive: {}", observer.late());
}

#[test]
fn reordering_is_known_when_enough_came_and_a_pause_ends_that() {
    let mut observer = Observer::new(&Tuning::DEFAULT);
    for sequence in 0..Tuning::DEFAULT.belief.known_chunks as u64 {
        assert!(!observer.knows_reorder(), "{sequence}");
        observer.handle_number(sequence, 1_000 * sequence);
    }
    assert!(observer.knows_reorder());
    observer.handle_number(5_000, 60_000_000);
    assert!(!observer.knows_reorder(), "what was late before the pause is forgotten");
}

#[test]
fn jitter_is_no_queue() {
    let mut observer = Observer::new(&Tuning::DEFAULT);
    let mut rng = Rng::new(3);
    let end_us = feed(
        &mut observer,
        (0..50_000).map(|_| (!rng.chance(0.02)).then(|| rng.below(30_000).saturating_sub(9_000))),
    );
    let report = observer.poll_report(0, 0, end_us + 200_000);
    assert!(report.queued.judged * 20 < report.clear.judged, "{report:?}");
}

#[test]
fn a_machine_that_stands_still_hides_no_queue_that_overflows() {
    // A sawtooth from 0 to 12 ms, and once in 2 s the receiver is 25 ms late for all.
    let mut observer = Observer::new(&Tuning::DEFAULT);
    let delay = |s: u64| {
        let stall = if (5_000..5_250).contains(&(s % 20_000)) { 25_000 } else { 0 };
        let saw = s % 4_000 * 3;
        (saw < 11_900 || s.is_multiple_of(2)).then_some(saw + stall)
    };
    let end_us = feed(&mut observer, (0..60_000).map(delay));
    let report = observer.poll_report(0, 0, end_us + 200_000);
    assert!(report.queued.lost > 200 && report.clear.lost < 10, "{report:?}");
}

#[test]
fn losses_at_the_top_of_a_queue_are_told_apart() {
    // A sawtooth from 0 to 20 ms; what is lost is lost at the top.
    let mut observer = Observer::new(&Tuning::DEFAULT);
    let saw = |s: u64| s % 4_000 * 5;
    let end_us =
        feed(&mut observer, (0..40_000).map(|s| (saw(s) < 19_500 || s % 5 != 0).then_some(saw(s))));
    let report = observer.poll_report(0, 0, end_us + 200_000);
    assert!(report.queued.lost > 150, "{report:?}");
    assert!(report.clear.lost * 20 < report.queued.lost, "{report:?}");
}

#[test]
fn a_jump_and_a_stranger_clock_start_over() {
    let mut observer = Observer::new(&Tuning::DEFAULT);
    let end_us = feed(&mut observer, (0..100).map(|_| Some(500)));
    observer.handle_chunk(1 << 40, u32::MAX, end_us + 1);
    observer.handle_chunk(u64::MAX - 1, 7, end_us + 2);
    let report = observer.poll_report(0, 0, end_us + 400_000);
    assert_eq!(report.clear.lost + report.queued.lost, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn bc_09_any_chunks_at_any_time_are_counted_within_bounds(
        chunks in prop::collection::vec(
            (any::<u64>(), 0..64u32, any::<u32>(), 0..60_000u64), 0..300)
    ) {
        let mut observer = Observer::new(&Tuning::DEFAULT);
        let mut now_us = 0;
        for (sequence, shift, sent_us, later_us) in chunks {
            now_us += later_us;
            observer.handle_chunk(sequence >> shift, sent_us, now_us);
            let report = observer.poll_report(0, 0, now_us);
            for losses in [report.clear, report.queued] {
                prop_assert!(losses.lost <= losses.judged && losses.runs <= losses.lost);
                prop_assert!(u64::from(losses.judged) <= 2 * WINDOW);
            }
        }
    }
}

#[test]
fn disorder_is_forgotten_when_traffic_keeps_its_order_and_not_in_a_silence() {
    let mut observer = Observer::new(&Tuning::DEFAULT);
    let mut send = |sequence: u64, at_us: u64| {
        observer.handle_chunk(sequence, at_us as u32, at_us);
        observer.reorder_us()
    };
    // One comes 30 ms behind its neighbour.
    for n in (0..100).chain(101..131) {
        send(n, n * 1_000);
    }
    let extent_us = send(100, 131_000);
    assert!((28_000..34_000).contains(&extent_us), "{extent_us}");
    // A minute of silence says nothing of the path.
    assert_eq!(send(131, 60_000_000), extent_us);
    // Nor do a few packets, seconds apart; five seconds of traffic do.
    (132..140).for_each(|n| assert_eq!(send(n, 60_000_000 + (n - 131) * 2_000_000), extent_us));
    let from_us = 80_000_000;
    let last = (140..5_140).map(|n| send(n, from_us + (n - 140) * 1_000)).last();
    assert_eq!(last, Some(0), "the path keeps its order now");
}

#[test]
fn another_path_has_its_own_disorder_and_clock() {
    let mut observer = Observer::new(&Tuning::DEFAULT);
    let end_us = feed(&mut observer, (0..2_000).map(|s| Some(1_000 + s % 7 * 5_000)));
    assert!(observer.reorder_us() > 20_000 && observer.knows_reorder());
    observer.handle_path_change();
    assert!(observer.reorder_us() == 0 && !observer.knows_reorder());
    // A clock that began anew is as good as any.
    for s in 2_000..4_000 {
        let at_us = end_us + (s - 1_999) * 100;
        observer.handle_chunk(s, (at_us as u32).wrapping_add(1 << 31), at_us);
        assert!(!observer.is_queued());
    }
    let report = observer.poll_report(0, 0, end_us + 600_000);
    assert_eq!((report.queued.judged, report.queue_us), (0, 0), "{report:?}");
}

/// A flow that fills a calm line loses much at once, and no packet of it told its delay.
#[test]
fn what_is_lost_while_nobody_tells_a_delay_is_not_taken_for_weather() {
    let mut observer = Observer::new(&Tuning::DEFAULT);
    let mut pass = |range: std::ops::Range<u64>, lost: &dyn Fn(u64) -> bool, told: u64| {
        let mut sums = [0; 4];
        for s in range {
            let now_us = s * 1_000 + 7_000;
            match s.is_multiple_of(told) {
                _ if lost(s) => {}
                true => observer.handle_chunk(s, (s * 1_000) as u32, now_us),
                false => observer.handle_number(s, now_us),
            }
            if s % 64 == 63 {
                let Report { clear, queued, .. } = observer.poll_report(0, 0, now_us + 20_000);
                let counts = [clear.lost, queued.lost, clear.windows, queued.windows];
                sums = std::array::from_fn(|n| sums[n] + counts[n]);
            }
        }
        sums
    };
    const NEVER: u64 = u64::MAX;
    let one_in = |n: u64| move |s: u64| s % n == n / 2;
    assert_eq!(pass(1..1_025, &|s| (900..930).contains(&s), NEVER), [0, 30, 14, 1]);
    // One in four tells it, as is asked for after a loss: that was no queue.
    assert_eq!(pass(1_025..2_049, &one_in(100), 4)[..2], [10, 0]);
    // For a while afterwards that is believed.
    assert_eq!(pass(2_049..2_113, &|s| s == 2_080, NEVER)[..2], [1, 0]);
    assert_eq!(pass(2_113..3_137, &one_in(100), NEVER)[..2], [5, 5]);
}

/// A slow line is filled by fewer; but where packets are rare, few of them say little of a queue.
#[test]
fn on_a_slow_line_it_takes_time_instead_of_many_to_be_blind() {
    let mut observer = Observer::new(&Tuning::DEFAULT);
    let mut now_us = 0;
    let mut pass = |range: std::ops::Range<u64>, every_us: u64, lost: u64, is_told: bool| {
        let mut sums = [0; 2];
        for s in range {
            now_us += every_us;
            match is_told {
                _ if s == lost => {}
                true => observer.handle_chunk(s, now_us as u32, now_us + 7_000),
                false => observer.handle_number(s, now_us + 7_000),
            }
            let report = observer.poll_report(0, 0, now_us + 7_000);
            sums = [sums[0] + report.clear.lost, sums[1] + report.queued.lost];
        }
        sums
    };
    assert_eq!(pass(1..101, 5_000, 50, true), [1, 0]);
    assert_eq!(pass(101..201, 5_000, 161, false), [1, 0]);
    assert_eq!(pass(201..301, 5_000, 251, false), [0, 1]);
    assert_eq!(pass(301..401, 5_000, 350, true), [1, 0]);
    assert_eq!(pass(401..431, 200_000, 421, false), [1, 0]);
}

/// Probes have numbers between those of packets, and most of them never come.
#[test]
fn what_went_elsewhere_is_neither_come_nor_lost() {
    let mut observer = Observer::new(&Tuning::DEFAULT);
    for sequence in 1..=1_000 {
        let now_us = sequence * 100;
        // Runs of one and of many; of some every third came all the same.
        let is_probe = sequence % 100 == 7 || (300..800).contains(&sequence);
        if !is_probe {
            observer.handle_chunk(sequence, now_us as u32, now_us);
        } else if sequence % 3 == 0 {
            observer.handle_stray(sequence);
        }
        if sequence == 850 {
            observer.handle_elsewhere(300, 500);
        }
        if sequence % 100 == 8 {
            observer.handle_elsewhere(sequence - 1, 1);
        }
    }
    let report = observer.poll_report(0, 0, 1_000_000);
    assert_eq!((report.judged(), report.lost()), (1_000 - 500 - 5, 0), "{report:?}");
    // What nobody told of is lost, as ever.
    for sequence in (1_001..1_100).filter(|sequence| sequence % 10 > 0) {
        observer.handle_chunk(sequence, 0, 1_100_000);
    }
    let report = observer.poll_report(0, 0, 2_000_000);
    assert_eq!((report.judged(), report.lost()), (99, 9), "{report:?}");
}

#[test]
fn what_a_path_that_was_left_had_under_way_is_not_judged_and_is_not_late() {
    let mut observer = Observer::new(&Tuning::DEFAULT);
    let report = |observer: &mut Observer, first: u64, now_us: u64| {
        for sequence in first..first + 200 {
            observer.handle_chunk(sequence, now_us as u32, now_us);
        }
        observer.poll_report(0, 0, now_us + 200_000)
    };
    assert_eq!(report(&mut observer, 1, 1_000).lost(), 0);
    // 201 to 260 were on the old path, and 261 comes by the new one before any of them.
    observer.handle_way(261);
    let found = report(&mut observer, 261, 301_000);
    assert_eq!((found.judged(), found.lost(), found.reorder_us), (200, 0, 0), "{found:?}");
    for sequence in 201..230 {
        observer.handle_way(sequence);
        observer.handle_chunk(sequence, 0, 600_000);
    }
    let found = report(&mut observer, 461, 700_000);
    assert_eq!((found.judged(), found.lost(), found.reorder_us), (200, 0, 0), "{found:?}");
}
