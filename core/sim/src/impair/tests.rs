//! Statistics of the model against what it promises; seeded, so they never waver.

use proptest::prelude::*;

use super::*;
use crate::profile;
use crate::rng::Rng;

const SPACING_NS: u64 = 20_000;

struct Seen {
    arrivals_ns: Vec<(u64, u64)>,
    losses: Vec<bool>,
    counters: Counters,
}

/// Offers `n` packets of `len` bytes at an even spacing that leaves the line idle in between.
fn drive(impairment: Impairment, seed: u64, n: u64, len: usize) -> Seen {
    let mut pipe = Pipe::new(impairment, seed).expect("valid");
    let (mut arrivals_ns, mut losses) = (Vec::new(), Vec::new());
    for i in 0..n {
        let now = i * SPACING_NS;
        let verdict = pipe.offer(now, len);
        losses.push(verdict == Verdict::Lost);
        if let Verdict::Deliver { at_ns, again_at_ns } = verdict {
            arrivals_ns.push((now, at_ns));
            arrivals_ns.extend(again_at_ns.map(|at| (now, at)));
        }
    }
    Seen { arrivals_ns, losses, counters: pipe.counters() }
}

fn near(value: f64, expected: f64, tolerance: f64) -> bool {
    (value - expected).abs() <= tolerance
}

#[test]
fn a_clean_line_only_takes_the_time_of_its_bits() {
    let seen = drive(Impairment::LINE, 1, 1_000, 1_250);
    assert!(seen.arrivals_ns.iter().all(|(sent, at)| at - sent == 10_000));
    assert_eq!(seen.counters.reordered, 0);
    assert_eq!(seen.counters.bytes, 1_250_000);
}

#[test]
fn the_line_sends_at_its_rate_and_drops_from_the_tail() {
    let line = Impairment { rate_bps: 333_333_333, limit_packets: 100, ..Impairment::NONE };
    let mut pipe = Pipe::new(line, 1).expect("valid");
    let burst: Vec<Verdict> = (0..150).map(|_| pipe.offer(0, 1_500)).collect();
    assert!(burst[..100].iter().all(|v| matches!(v, Verdict::Deliver { .. })));
    assert!(burst[100..].iter().all(|v| *v == Verdict::QueueDropped));
    let Verdict::Deliver { at_ns, .. } = burst[99] else { panic!("it fits") };
    // 100 packets of 12,000 bits at a third of 1 Gbit/s: no rounding adds up.
    assert!(near(at_ns as f64, 3_600_000.0, 10.0), "{at_ns}");
    assert_eq!(pipe.counters().queue_dropped, 50);
    // One packet's time later one place is free, and only one.
    assert!(matches!(pipe.offer(36_001, 1_500), Verdict::Deliver { .. }));
    assert_eq!(pipe.offer(36_001, 1_500), Verdict::QueueDropped);
}

#[test]
fn delay_is_evenly_spread_around_its_mean() {
    let weather = Impairment { delay_us: 5_000, jitter_us: 2_000, ..Impairment::NONE };
    let seen = drive(weather, 2, 100_000, 100);
    let delays: Vec<f64> = seen.arrivals_ns.iter().map(|(s, at)| (at - s) as f64 / 1e6).collect();
    assert!(delays.iter().all(|d| (3.0..7.0).contains(d)));
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    assert!(near(mean, 5.0, 0.02), "{mean}");
    let lowest_quarter = delays.iter().filter(|d| **d < 4.0).count() as f64 / delays.len() as f64;
    assert!(near(lowest_quarter, 0.25, 0.01), "{lowest_quarter}");
}

#[test]
fn the_means_of_the_profiles_are_those_calculated_for_the_comparison() {
    for (name, mean_ms, at_zero) in
        [("low", 2.0, 0.0), ("medium", 4.32, 3.0 / 14.0), ("high", 7.35, 0.30)]
    {
        let mut weather = profile::named(name).expect(name);
        weather.rate_bps = 0;
        weather.reorder = 0.0;
        let seen = drive(weather, 3, 200_000, 1_500);
        let n = seen.arrivals_ns.len() as f64;
        let delay_ms = |(sent, at): &(u64, u64)| (at - sent) as f64 / 1e6;
        let mean = seen.arrivals_ns.iter().map(delay_ms).sum::<f64>() / n;
        let zero = seen.arrivals_ns.iter().filter(|a| delay_ms(a) == 0.0).count() as f64 / n;
        assert!(near(mean, mean_ms, 0.03), "{name}: {mean}");
        assert!(near(zero, at_zero, 0.01), "{name}: {zero}");
        let lost = seen.counters.lost as f64 / 200_000.0;
        assert!(near(lost, weather.loss, weather.loss * 0.06), "{name}: {lost}");
    }
}

#[test]
fn losses_stand_alone_or_come_in_bursts_with_the_same_share() {
    let run_length = |losses: &[bool]| {
        let runs = losses.windows(2).filter(|w| !w[0] && w[1]).count();
        losses.iter().filter(|l| **l).count() as f64 / runs as f64
    };
    let alone = Impairment { loss: 0.05, ..Impairment::NONE };
    let seen = drive(alone, 4, 400_000, 100);
    assert!(near(seen.counters.lost as f64 / 400_000.0, 0.05, 0.002));
    assert!(near(run_length(&seen.losses), 1.0 / 0.95, 0.01));

    let model = LossModel::GilbertElliott { burst_packets: 8.0, loss_in_burst: 1.0 };
    let seen = drive(Impairment { loss_model: model, ..alone }, 4, 400_000, 100);
    assert!(near(seen.counters.lost as f64 / 400_000.0, 0.05, 0.004));
    assert!(near(run_length(&seen.losses), 8.0, 0.4), "{}", run_length(&seen.losses));
}

#[test]
fn reordering_without_correlation_is_as_frequent_as_it_says() {
    let weather = Impairment { delay_us: 1_000, reorder: 0.05, ..Impairment::NONE };
    let seen = drive(weather, 5, 200_000, 100);
    let at_once = seen.arrivals_ns.iter().filter(|(sent, at)| at == sent).count() as u64;
    assert_eq!(at_once, seen.counters.sent_at_once);
    assert!(near(at_once as f64 / 200_000.0, 0.05, 0.002));
    // A packet sent at once overtakes those still under way, unless they were so too.
    assert!(seen.counters.reordered > seen.counters.sent_at_once * 99 / 100);
}

#[test]
fn correlation_makes_reordering_rarer_and_clustered_as_in_netem() {
    // netem keeps a state of 32 bits: x = (u * (2^32 - rho) + x * rho) >> 32, and reorders
    // when x is at most the share. Written out here with integers, with other random numbers.
    let (reorder, correlation) = (0.2, 0.5);
    let (share, rho) = ((reorder * 4_294_967_296.0) as u64, 1u64 << 31);
    let mut rng = Rng::new(99);
    let mut x = rng.next_u64() >> 32;
    let n = 400_000;
    let expected = (0..n)
        .filter(|_| {
            let u = rng.next_u64() >> 32;
            x = ((u128::from(u) * u128::from((1u64 << 32) - rho) + u128::from(x * rho)) >> 32)
                as u64;
            x <= share
        })
        .count() as f64
        / n as f64;
    let weather =
        Impairment { delay_us: 100, reorder, reorder_correlation: correlation, ..Impairment::NONE };
    let seen = drive(weather, 6, n, 100);
    let share = seen.counters.sent_at_once as f64 / n as f64;
    assert!(share < reorder * 0.6, "{share}");
    assert!(near(share, expected, 0.002), "{share} {expected}");
}

#[test]
fn duplicates_arrive_twice_unless_one_copy_is_lost() {
    let weather =
        Impairment { delay_us: 100, jitter_us: 50, duplicate: 0.1, loss: 0.1, ..Impairment::NONE };
    let counters = drive(weather, 7, 100_000, 100).counters;
    assert!(near(counters.duplicated as f64 / counters.offered as f64, 0.1, 0.004));
    assert_eq!(counters.delivered, counters.offered - counters.lost + counters.duplicated);
}

#[test]
fn new_weather_holds_from_the_next_packet_on() {
    let mut pipe = Pipe::new(Impairment::NONE, 1).expect("valid");
    assert_eq!(pipe.offer(5, 100), Verdict::Deliver { at_ns: 5, again_at_ns: None });
    let worse = Impairment { loss: 1.0, ..Impairment::NONE };
    pipe.set_impairment(worse).expect("valid");
    assert_eq!(pipe.offer(6, 100), Verdict::Lost);
    let broken = Impairment { loss: 1.5, ..Impairment::NONE };
    assert_eq!(pipe.set_impairment(broken), Err(Invalid::Share("loss")));
    assert_eq!(pipe.impairment(), &worse);
}

#[test]
fn a_handover_moves_the_delay_and_nothing_does_in_between() {
    let way = Impairment {
        delay_us: 22_500,
        handover_us: 15_000_000,
        swing_us: 7_500,
        ..Impairment::NONE
    };
    // A packet each 100 ms for 400 handovers, and the same again for who was silent until late.
    let seen = |from_s: u64, seed: u64| -> Vec<(u64, u64)> {
        let mut pipe = Pipe::new(way, seed).expect("valid");
        (from_s * 10..60_000)
            .map(|tick| match pipe.offer(tick * 100_000_000, 100) {
                Verdict::Deliver { at_ns, .. } => (tick / 150, at_ns - tick * 100_000_000),
                other => panic!("{other:?}"),
            })
            .collect()
    };
    let all = seen(0, 3);
    let mut delays: Vec<(u64, u64)> = all.clone();
    delays.dedup();
    assert_eq!(delays.len(), 400, "one delay from each handover to the next");
    let ms: Vec<f64> = delays.iter().map(|(_, ns)| *ns as f64 / 1e6).collect();
    assert!(ms.iter().all(|ms| (15.0..30.0).contains(ms)));
    let mean = ms.iter().sum::<f64>() / ms.len() as f64;
    assert!(near(mean, 22.5, 0.7), "{mean}");
    assert!(ms.iter().any(|ms| *ms < 16.0) && ms.iter().any(|ms| *ms > 29.0));
    assert_eq!(seen(3_000, 3), all[30_000..], "the time alone says which handover it is");
    assert_ne!(seen(0, 4), all, "another seed is another sky");
}

fn any_impairment() -> impl Strategy<Value = Impairment> {
    let share = || prop_oneof![Just(0.0), 0.0..=1.0f64];
    let burst = prop_oneof![Just(None), (1.0..50.0f64, 0.5..=1.0f64).prop_map(Some)];
    let shares = (share(), share(), share(), share());
    let handover = prop_oneof![Just((0, 0)), (1..50_000u64, 0..20_000u64)];
    let times = (0..20_000u64, 0..20_000u64, handover);
    (times, shares, burst, 0..2_000_000_000u64, 1..2_000usize).prop_map(
        |(
            (delay_us, jitter_us, (handover_us, swing_us)),
            (loss, reorder, reorder_correlation, duplicate),
            burst,
            rate,
            limit,
        )| {
            let model = burst.map_or(LossModel::Bernoulli, |(burst_packets, loss_in_burst)| {
                LossModel::GilbertElliott { burst_packets, loss_in_burst }
            });
            Impairment {
                delay_us,
                jitter_us,
                handover_us,
                swing_us,
                loss,
                loss_model: model,
                reorder,
                reorder_correlation,
                duplicate,
                rate_bps: rate,
                limit_packets: limit,
            }
        },
    )
}

proptest! {
    #[test]
    fn nothing_vanishes_uncounted_and_nothing_arrives_early(
        impairment in any_impairment().prop_filter("valid", |i| i.check().is_ok()),
        seed: u64,
        offers in prop::collection::vec((0..100_000u64, 0..2_000usize), 0..300),
    ) {
        let mut pipe = Pipe::new(impairment, seed).expect("valid");
        let mut twin = Pipe::new(impairment, seed).expect("valid");
        let (mut now, mut copies) = (0, 0);
        for (gap, len) in offers {
            now += gap;
            let verdict = pipe.offer(now, len);
            prop_assert_eq!(twin.offer(now, len), verdict);
            if let Verdict::Deliver { at_ns, again_at_ns } = verdict {
                prop_assert!(at_ns >= now && again_at_ns.is_none_or(|at| at >= now));
                copies += 1 + u64::from(again_at_ns.is_some());
            }
            prop_assert!(pipe.leaving_ns.len() <= impairment.limit_packets);
        }
        let c = pipe.counters();
        prop_assert_eq!(c.delivered, copies);
        prop_assert_eq!(c.offered + c.duplicated, c.delivered + c.lost + c.queue_dropped);
    }
}
