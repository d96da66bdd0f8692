//! The controller, fed with reports.

use super::*;
use crate::bounds::DATA_MAX;
use crate::weather::tests::single;
use wire::frame::Losses;

const TUNING: &Tuning = &Tuning::DEFAULT;
const TARGET: f64 = TUNING.spending.target;
const RUNS_MAX: f64 = TUNING.spending.runs_max;
const TARGET_MAX: f64 = TUNING.spending.target_max;
const UNKNOWN_LOSS: f64 = TUNING.unknown.loss;

fn report(judged: u32, lost: u32) -> Report {
    let clear = single(judged, lost);
    Report { clear, missing: lost, rebuilt: lost, ..Report::default() }
}

fn fed(report: &Report) -> Control {
    let mut control = Control::new(TUNING);
    (0..200).for_each(|n| control.handle_report(report, Sent::of_tcp(4_000), n * 100_000));
    control
}

#[test]
fn a_clear_sky_costs_nothing() {
    assert!((0..=DATA_MAX).all(|data| fed(&report(5_000, 0)).repair_chunks(Upper::Tcp, data) == 0));
    assert_eq!(fed(&report(5_000, 0)).repair_chunks(Upper::Tcp, 100), 0);
}

#[test]
fn bc_09_reports_that_come_faster_than_a_peer_sends_them_do_not_cost_a_table_each() {
    let mut control = fed(&report(5_000, 0));
    let now_us = 20_000_000;
    control.handle_report(&report(5_000, 0), Sent::of_tcp(5_000), now_us);
    for n in 1..50 {
        control.handle_report(&report(5_000, 500), Sent::of_tcp(5_000), now_us + n * 100);
        assert!(control.is_calm(Upper::Other), "report {n}");
    }
    control.handle_report(&report(5_000, 500), Sent::of_tcp(5_000), now_us + TABLE_US);
    assert!(!control.is_calm(Upper::Other), "what they said counts");
}

#[test]
fn a_path_that_is_not_known_is_not_trusted() {
    let mut control = Control::new(TUNING);
    assert!(
        !control.is_calm(Upper::Tcp)
            && control.repair_chunks(Upper::Tcp, 48) > 3
            && control.few_chunks(Upper::Tcp, 1) == 1
    );
    control.handle_report(&report(500, 0), Sent::of_tcp(500), 0);
    assert!(!control.is_calm(Upper::Tcp), "not yet");
    control.handle_report(&report(600, 0), Sent::of_tcp(600), 100_000);
    assert!(control.is_calm(Upper::Tcp));
    control.handle_report(&report(0, 0), Sent::of_tcp(0), 3_600_000_000);
    assert!(!control.is_calm(Upper::Tcp), "an hour later the weather may have changed");
}

#[test]
fn a_path_that_is_not_known_is_repaired_for_runs_of_losses_and_then_for_what_it_has() {
    // One loss in 40 each by itself asks for 7 repair chunks of 60, and for more in runs of three.
    let single = Model { loss: UNKNOWN_LOSS, loss_in_bad: 1.0, memory: 0.0 };
    let single = Residuals::new(&single).fewest(60, 30, TARGET);
    let unknown = Control::new(TUNING).repair_chunks(Upper::Tcp, 60);
    assert!((6..=8).contains(&single) && unknown > single, "{unknown} and {single}");
    let known = fed(&report(4_000, 100)).repair_chunks(Upper::Other, 60);
    assert!(known <= single + 1, "{known} and {single}");
}

#[test]
fn a_path_that_is_not_known_gets_less_the_more_came_and_nothing_once_it_is_known_to_be_clear() {
    let after = |rounds: u64| {
        let mut control = Control::new(TUNING);
        for n in 0..rounds {
            control.handle_rtt(40_000, n * 100_000);
            control.handle_report(&report(150, 0), Sent::of_tcp(150), n * 100_000);
        }
        control.repair_chunks(Upper::Tcp, 48)
    };
    let found = [0, 1, 2, 8].map(after);
    assert!(found.is_sorted_by(|a, b| a > b) && 3 * found[1] <= 2 * found[0], "{found:?}");
    assert_eq!(found[3], 0);
}

/// Whatever is added then comes on top of what the line cannot take.
#[test]
fn a_first_flight_that_fills_the_line_is_not_repaired_until_something_clear_is_lost() {
    let of = single;
    let after = |clear: Losses, queued: Losses, reorder_us: u32| {
        let mut control = Control::new(TUNING);
        let seen = Report { clear, queued, reorder_us, ..Report::default() };
        control.handle_report(&seen, Sent::of_tcp(200), 0);
        assert!(control.is_watching(10_000_000), "delays are told until it is known");
        control.repair_chunks(Upper::Tcp, 48)
    };
    assert_eq!(after(of(150, 0), of(50, 0), 0), 0);
    assert_eq!(after(of(100, 0), of(100, 20), 0), 0);
    let (few, more) = (after(of(190, 0), of(10, 0), 0), after(of(200, 0), of(0, 0), 0));
    assert!(few > 0);
    assert!(more > few, "{more} where nothing met a queue, {few} where something did");
    assert!(after(of(150, 0), of(50, 0), 10_000) > 0, "that is jitter");
    assert!(after(of(150, 4), of(50, 0), 0) > 0);
}

#[test]
fn delays_are_told_for_a_while_after_a_loss_and_not_without() {
    let mut control = Control::new(TUNING);
    control.handle_report(&report(2_000, 0), Sent::of_tcp(2_000), 0);
    assert!(control.is_calm(Upper::Tcp) && !control.is_watching(1));
    let of = |lost| single(500, lost);
    let jam = Report { queued: of(9), queue_us: 20_000, ..Report::default() };
    control.handle_report(&jam, Sent::of_tcp(500), 100_000);
    assert!(control.is_calm(Upper::Tcp) && control.is_watching(2_200_000), "too few were judged");
    let fine = Report { clear: of(0), ..Report::default() };
    control.handle_report(&fine, Sent::of_tcp(500), 200_000);
    assert!(control.is_watching(2_000_000));
    assert!(!control.is_watching(2_200_000));
}

#[test]
fn the_smallest_number_that_meets_the_target_is_chosen() {
    let control = fed(&report(5_000, 100));
    let residuals = Residuals::new(&Model::independent(control.estimate().loss_upper));
    for data in 2..=DATA_MAX {
        let repair = control.repair_chunks(Upper::Tcp, data);
        assert!(repair * CAP <= data && repair > 0, "{data}: {repair}");
        let capped = repair == data / CAP;
        assert!(capped || residuals.residual(data, repair) <= TARGET, "{data}: {repair}");
        assert!(residuals.residual(data, repair - 1) > TARGET, "{data}: {repair}");
    }
}

#[test]
fn losses_in_a_queue_raise_nothing() {
    let queued = Losses { judged: 5_000, lost: 300, runs: 100, ..Losses::default() };
    let mut control = fed(&report(5_000, 0));
    let jam = Report { queued, queue_us: 20_000, ..Report::default() };
    (0..200).for_each(|n| control.handle_report(&jam, Sent::of_tcp(4_000), (200 + n) * 100_000));
    assert_eq!(control.repair_chunks(Upper::Tcp, 45), 0);
}

#[test]
fn bc_09_a_peer_that_claims_losses_which_repair_does_not_mend_gets_less_and_less() {
    let clear = Losses { judged: 1_000, lost: 600, runs: 300, ..Losses::default() };
    let liar = Report { clear, missing: 600, rebuilt: 0, ..Report::default() };
    let mut control = Control::new(TUNING);
    for n in 0..30 {
        control.handle_report(&liar, Sent::of_tcp(900), n * 100_000);
        for data in 0..=DATA_MAX {
            assert!(control.repair_chunks(Upper::Tcp, data) * CAP <= data, "more than 1.5 times");
        }
    }
    assert_eq!(
        (control.repair_chunks(Upper::Tcp, 45), control.repair_chunks(Upper::Tcp, 8)),
        (1, 0)
    );
    (0..20).for_each(|n| {
        control.handle_report(&report(5_000, 100), Sent::of_tcp(4_000), (30 + n) * 100_000);
    });
    assert!(control.trust() > 0.9 && control.repair_chunks(Upper::Tcp, 45) > 3, "{control:?}");
}

#[test]
fn where_tcp_mends_its_losses_soon_less_is_spent_and_never_elsewhere() {
    let chunks = |rtt_us: Option<u32>, sent: u64| {
        let mut control = Control::new(TUNING);
        for n in 0..200 {
            rtt_us.into_iter().for_each(|us| control.handle_rtt(us, n * 100_000));
            control.handle_report(&report(5_000, 50), Sent::of_tcp(sent), n * 100_000);
        }
        (control.target(Upper::Tcp), control.repair_chunks(Upper::Tcp, 48))
    };
    let (target, most) = chunks(None, 900);
    assert!(target <= TARGET && most > 3, "{target} {most}");
    // 100 Mbit/s and 2 ms; then 850 Mbit/s and 6 ms, and 100 Mbit/s and 100 ms.
    let (target, few) = chunks(Some(2_000), 900);
    assert!((5e-4..=1e-3).contains(&target) && few < most, "{target} {few}");
    assert_eq!(chunks(Some(6_000), 7_500), (TARGET, most));
    assert_eq!(chunks(Some(100_000), 900), (TARGET, most));
    assert_eq!(chunks(Some(100_000), 1), (TARGET, most), "it may just begin");
    assert!((RUNS_MAX..=TARGET_MAX).contains(&chunks(Some(0), 0).0));
}

#[test]
fn a_queue_of_its_own_is_no_part_of_a_round_trip_and_jitter_is() {
    let mut control = Control::new(TUNING);
    for rtt_us in [2_000, 20_000, 20_000, 20_000] {
        control.handle_rtt(rtt_us, 0);
    }
    assert_eq!(control.rtt_s(), Some(0.002));
    control.handle_report(
        &Report { reorder_us: 30_000, ..report(500, 5) },
        Sent::of_tcp(500),
        100_000,
    );
    assert!(control.rtt_s().is_some_and(|rtt_s| rtt_s > 0.007), "{:?}", control.rtt_s());
}

/// In jitter of 15 ms one round trip in ten takes next to nothing, and the first may be it.
#[test]
fn one_quick_round_trip_does_not_make_a_path_of_jitter_short() {
    let target = |reorder_us: u32| {
        let mut control = Control::new(TUNING);
        control.handle_rtt(800, 0);
        let seen = Report { reorder_us, ..report(1_800, 2) };
        control.handle_report(&seen, Sent::of_tcp(150), 0);
        control.target(Upper::Tcp)
    };
    assert_eq!(target(22_000), TARGET);
    assert!(target(0) > 10.0 * TARGET, "nothing says that it is longer");
}

#[test]
fn a_line_that_is_full_and_slow_is_not_asked_to_be_quick() {
    let full = |queue_us: u32, reorder_us: u32| {
        let mut control = Control::new(TUNING);
        for n in 0..200 {
            control.handle_rtt(20_000, n * 100_000);
            let seen = Report { queue_us, reorder_us, ..report(50, u32::from(n % 20 == 0)) };
            control.handle_report(&seen, Sent::of_tcp(50), n * 100_000);
        }
        (control.target(Upper::Tcp), control.few_chunks(Upper::Tcp, 4))
    };
    assert_eq!(full(0, 0), (TARGET, 1));
    assert_eq!(full(10_000, 5_000), (TARGET, 1), "that is jitter");
    let (target, few) = full(10_000, 0);
    assert!(target >= RUNS_MAX && few == 0, "{target} {few}");
    let absurd = Report { queue_us: u32::MAX, reorder_us: u32::MAX, ..report(9, 9) };
    assert!(fed(&absurd).target(Upper::Tcp) >= TARGET);
}

/// TCP that fills a slow line bears what the line loses; a call through it does not.
#[test]
fn what_fills_a_slow_line_travels_bare_and_what_is_no_tcp_does_not() {
    let mut control = Control::new(TUNING);
    let mut feed = |reports: std::ops::Range<u64>, queue_us: u32| {
        for n in reports {
            control.handle_rtt(1_000, n * 100_000);
            let seen = Report { queue_us, ..report(50, u32::from(n % 2 == 0)) };
            control.handle_report(&seen, Sent::of_tcp(50), n * 100_000);
        }
        [Upper::Tcp, Upper::Other].map(|upper| control.is_calm(upper))
    };
    assert_eq!(feed(0..200, 0), [false, false], "nothing says that the line is slow");
    assert_eq!(feed(200..260, 10_000), [true, false]);
    assert_eq!(feed(260..280, 0), [false, false], "it is not full");
    assert_eq!(feed(280..290, 10_000), [true, false], "and full again");
    assert_eq!(feed(290..600, 0), [false, false]);
    assert_eq!(control.line_rate.max(), None, "long ago");
    let other = (control.target(Upper::Other), control.repair_chunks(Upper::Other, 48));
    assert_eq!((other.0, control.target(Upper::Tcp) > TARGET), (TARGET, true));
    assert!(other.1 > control.repair_chunks(Upper::Tcp, 48), "{control:?}");
}

/// 5 Mbit/s and 20 ms each way, of which 2 % are lost in runs of four: what comes in 24 ms can't
/// mend a run for less than it costs.
#[test]
fn on_a_full_line_tcp_is_not_repaired_for_more_than_that_brings() {
    let fed = |queue_us: u32, burst: u32| {
        let mut control = Control::new(TUNING);
        for n in 0..400 {
            control.handle_rtt(40_000, n * 100_000);
            let lost = if n % 5 == 0 { 4 } else { 0 };
            let (judged, runs, windows) = (43, lost / burst, u32::from(n % 3 == 0));
            let (window_losses, window_squares) = (lost, lost * lost);
            let clear = Losses { judged, lost, runs, windows, window_losses, window_squares };
            let seen = Report { clear, queue_us, missing: lost, rebuilt: lost / 2, ..report(0, 0) };
            control.handle_report(&seen, Sent::of_tcp(43), n * 100_000);
        }
        control
    };
    let (full, not) = (fed(20_000, 4), fed(0, 4));
    let few = |control: &Control, upper| control.few_chunks(upper, 6);
    assert!(full.is_full() && full.is_calm(Upper::Tcp) && few(&full, Upper::Tcp) == 0, "{full:?}");
    assert_eq!([few(&full, Upper::Other), few(&not, Upper::Tcp)], [3, 3], "the cap");
    assert!(full.boost < 1.01, "what was not to be mended is no surprise: {}", full.boost);
    let single = fed(20_000, 1);
    assert!((1..=2).contains(&few(&single, Upper::Tcp)), "one mends one: {single:?}");
}

/// What travels bare fills the line, but no blocks.
#[test]
fn what_is_sent_bare_counts_in_what_the_line_takes_alone() {
    let mut control = Control::new(TUNING);
    for n in 0..100 {
        control.handle_rtt(20_000, n * 100_000);
        let seen = Report { queue_us: 10_000, ..report(50, u32::from(n % 20 == 0)) };
        control.handle_report(&seen, Sent { all: 50, in_blocks: [0, 2] }, n * 100_000);
    }
    assert_eq!((control.rate().round(), control.line_rate.max()), (20.0, Some(500)));
}

/// The same where only what is no TCP is in blocks: whether repair helps is told by those.
#[test]
fn where_tcp_travels_bare_repair_is_weighed_by_the_rest() {
    let fed = |rebuilt: u32| {
        let mut control = Control::new(TUNING);
        for n in 0..400 {
            control.handle_rtt(1_000, n * 100_000);
            let lost = u32::from(n % 2 == 0);
            // One of five was in a block with repair.
            let told = Report { missing: 5 * lost, rebuilt: rebuilt * lost, ..report(50, lost) };
            let seen = Report { queue_us: 10_000, ..told };
            let sent = Sent { all: 50, in_blocks: [40, 10] };
            control.handle_report(&seen, sent, n * 100_000);
        }
        ([Upper::Tcp, Upper::Other].map(|upper| control.is_calm(upper)), control.trust())
    };
    assert_eq!(fed(1), ([true, false], 1.0), "all is rebuilt");
    let ([tcp, other], trust) = fed(0);
    assert!(tcp && !other && trust < 0.5, "nothing is: {tcp} {other} {trust}");
}

#[test]
fn more_residual_loss_than_promised_is_answered() {
    let short = Report { rebuilt: 90, ..report(5_000, 100) };
    assert!(
        fed(&short).repair_chunks(Upper::Tcp, 45)
            > fed(&report(5_000, 100)).repair_chunks(Upper::Tcp, 45)
    );
}

#[test]
fn bc_09_repair_that_did_not_help_is_tried_again_after_a_while() {
    let of = |lost: u32, rebuilt: u32| {
        let clear = single(1_000, lost);
        Report { clear, missing: lost, rebuilt, ..Report::default() }
    };
    // A fade that no repair bridges, and then a path that loses 2.5 %, of which a single repair
    // chunk for 64 mends a fifth.
    let mut control = Control::new(TUNING);
    let mut at_us = 0;
    let mut report = |control: &mut Control, lost: u32, rebuilt: u32| {
        at_us += 100_000;
        control.handle_report(&of(lost, rebuilt), Sent::of_tcp(1_000), at_us);
    };
    (0..20).for_each(|_| report(&mut control, 600, 60));
    assert_eq!(control.repair_chunks(Upper::Tcp, 45), 1, "no more than to see whether it helps");
    let mends = |control: &Control| match control.repair_chunks(Upper::Tcp, 64) {
        0 => 0,
        1 => 5,
        2 => 10,
        _ => 25,
    };
    for _ in 0..270 {
        let rebuilt = mends(&control);
        report(&mut control, 25, rebuilt);
    }
    assert!(control.trust() < 0.2, "{}", control.trust());
    for _ in 0..100 {
        let rebuilt = mends(&control);
        report(&mut control, 25, rebuilt);
    }
    assert!(control.trust() > 0.9 && control.repair_chunks(Upper::Tcp, 45) > 4, "{control:?}");
    // Who lies all the time is believed for 2 s in 30.
    let mut much = 0;
    for _ in 0..3_000 {
        report(&mut control, 600, 0);
        much += u32::from(control.trust() > 0.2);
    }
    assert!(much < 3_000 / 15, "{much}");
}
