//! What TCP gets through a link in weather, in the model: processors cost nothing, so that what is
//! found is what repair, order and TCP make of each other.
//!
//! `streams.txt` holds a grid of figures. Where they change for a good reason, the failing test
//! prints the new ones. Seeds are named in each failure.

use std::fmt::Write;
use std::time::Duration;

use sim::impair::Impairment;
use sim::rng::Rng;
use sim::stream::{Found, MSS, Setting, run};

fn setting(words: &str, frames: bool, streams: usize, time_s: u64, seed: u64) -> Setting {
    Setting { frames, streams, ..Setting::over(words, Duration::from_secs(time_s), seed) }
}

fn stream(words: &str, frames: bool, streams: usize, time_s: u64, seed: u64) -> Found {
    run(&setting(words, frames, streams, time_s, seed))
}

fn geometric_mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let many = values.len() as f64;
    (values.map(f64::ln).sum::<f64>() / many).exp()
}

/// The bounds are those that the bench holds the program to on a real machine.
#[test]
fn source_002_6_weather_costs_a_stream_little() {
    for (weather, least) in
        [("baseline", 900.0), ("low", 800.0), ("medium", 600.0), ("high", 400.0)]
    {
        let mut found: Vec<f64> =
            (1..=3).map(|seed| stream(weather, true, 1, 4, seed).mbit_s).collect();
        found.sort_by(f64::total_cmp);
        assert!(found[1] >= least && found[0] >= least / 2.0, "{weather}: {found:.0?} Mbit/s");
        let plain = stream(weather, false, 1, 4, 1).mbit_s;
        let times = if weather == "baseline" { 1.0 } else { 3.0 };
        assert!(found[1] >= times * plain, "{weather}: {found:.0?}, plain {plain:.0} Mbit/s");
    }
}

/// What an unknown path is repaired with must not make a first flight overrun the queue of a line
/// that loses nothing. (0.999 in the geometric mean and 0.98 at the least; where as much was
/// repaired as long as nothing was known, also while the queue filled, 0.85 and 0.62.)
#[test]
fn a_first_flow_over_a_clear_line_has_what_plain_wireguard_has() {
    let mut shares = Vec::new();
    for (mbit_s, packets) in [(20, 33), (50, 83), (100, 166)] {
        for delay_ms in [10, 20, 30, 50] {
            let line = format!("baseline+rate={mbit_s}mbit+delay={delay_ms}ms+limit={packets}");
            // The clocks of two runs are one: with one seed they would have the same keys.
            let seed = shares.len() as u64 + 1;
            let [plain, frames] =
                [false, true].map(|frames| stream(&line, frames, 1, 10, seed).mbit_s);
            shares.push((frames / plain, line));
        }
    }
    let mean = geometric_mean(shares.iter().map(|(share, _)| *share));
    assert!(mean > 0.97 && shares.iter().all(|(share, _)| *share > 0.85), "{mean:.3} {shares:?}");
}

/// A fast line has room for what an unknown path is repaired with, and a first flight that loses
/// there goes on for long with what it had. (414 Mbit/s in the geometric mean of twelve seeds; 215
/// where what can hide was taken for a third though nothing had met a queue.)
#[test]
fn a_first_flow_over_a_fast_line_that_loses_in_runs_is_protected() {
    let line = "baseline+rate=1gbit+limit=1666+delay=20ms+loss=2%+burst=4";
    let found: Vec<f64> = (1..=12).map(|seed| stream(line, true, 1, 3, seed).mbit_s).collect();
    let mean = geometric_mean(found.iter().copied());
    assert!(mean > 320.0, "{mean:.0}: {found:.0?} Mbit/s");
}

/// Bytes on the wire for each that TCP sent: what it sends again by itself is not the link's doing.
fn bytes_for_each_sent(setting: &Setting) -> f64 {
    let found = run(setting);
    let segments = found.mbit_s * setting.time.as_secs_f64() * 1e6 / 8.0 / MSS as f64;
    found.wire_bytes_per_byte * segments / (segments + found.tcp.again as f64)
}

/// On such lines one flow in a hundred or two filled a whole queue while one packet in four told
/// its delay, or none did; what that lost was taken for weather, and repaired to the end.
#[test]
fn what_overflows_a_slow_clear_line_is_not_taken_for_weather() {
    for (words, delay_us, rate_bps, turn_us, time_s) in [
        ("limit=32", 151_882, 4_948_620, 1_227, 30),
        ("limit=40+jitter=1ms", 75_611, 5_083_259, 1_321, 8),
    ] {
        let setting = setting(words, true, 1, time_s, 12);
        let line = Impairment { delay_us, rate_bps, ..setting.line };
        let setting = Setting { line, turn_us, ..setting };
        let bytes = bytes_for_each_sent(&setting);
        assert!(bytes < 1.2, "{bytes:.2} bytes for each that TCP sent: {setting:?}");
    }
}

/// The same of many lines that differ by a little: each is another first flight.
#[test]
#[ignore = "soak"]
fn no_clear_line_of_thousands_is_taken_for_weather() {
    for (words, time_s, flows) in [
        ("rate=5mbit+limit=32+delay=150ms", 30, 2_000),
        ("rate=5mbit+limit=32+delay=150ms+jitter=1ms", 30, 500),
        ("rate=5mbit+limit=32+delay=75ms+jitter=1ms", 30, 500),
        ("rate=5mbit+limit=40+delay=75ms+jitter=1ms", 8, 500),
    ] {
        let mut repaired = Vec::new();
        for seed in 1..=flows {
            let mut rng = Rng::new(seed);
            let mut near = |value: u64, share: f64| {
                (value as f64 * (1.0 + share * (2.0 * rng.unit() - 1.0))) as u64
            };
            let setting = setting(words, true, 1, time_s, seed);
            let delay_us = near(setting.line.delay_us, 0.03);
            let rate_bps = near(setting.line.rate_bps, 0.02);
            let line = Impairment { delay_us, rate_bps, ..setting.line };
            let setting = Setting { line, turn_us: 60 + rng.below(2_000), ..setting };
            let bytes = bytes_for_each_sent(&setting);
            if bytes > 1.2 {
                repaired.push((seed, bytes));
            }
        }
        assert!(repaired.len() as u64 * 500 <= flows, "{words}: {repaired:.2?}");
    }
}

/// And each of them has its share. (Means of 12 seeds: 840, 816 and 608 Mbit/s of one, 895, 848 and
/// 771 of six.)
#[test]
fn six_streams_get_no_less_than_one() {
    for weather in ["low", "medium", "high"] {
        let sum = |streams| {
            let found: Vec<Found> =
                (1..=2).map(|seed| stream(weather, true, streams, 5, seed)).collect();
            let cost: f64 = found.iter().map(|found| found.wire_bytes_per_byte).sum();
            assert!(cost <= 2.0 * 1.35, "{weather}: {found:?}");
            let shares = found.iter().map(|found| found.least_mbit_s / found.mbit_s);
            assert!(shares.fold(1.0, f64::min) * streams as f64 > 0.2, "{weather}: {found:?}");
            found.iter().map(|found| found.mbit_s).sum::<f64>()
        };
        let (one, six) = (sum(1), sum(6));
        assert!(six >= 0.97 * one, "{weather}: {one:.0} and {six:.0}, sums of two");
    }
}

/// A queue of a quarter of a second, and loss that repair hides: a flow that was not told would
/// fill the queue to its end.
const DEEP: &str = "baseline+rate=100mbit+limit=2000+delay=5ms+loss=1%";

#[test]
fn a_flow_that_repair_hides_losses_from_is_told_of_the_queue_that_it_fills() {
    let found = stream(DEEP, true, 1, 10, 1);
    assert!(found.dropped > 0 && found.marked == 0 && found.tcp.reduced > 0, "{found:?}");
    assert!(found.srtt_us < 150_000 && found.mbit_s > 70.0, "{found:?}");
    let jittery = stream("medium", true, 1, 4, 1);
    assert!(jittery.dropped <= 2, "no queue stands there: {jittery:?}");
}

/// 1500 bytes at 100 Mbit/s are 120 us, at 20 Mbit/s 600 us. A fast line is left alone, and so is
/// what goes to plain WireGuard.
#[test]
fn datagrams_are_paced_by_the_rate_of_a_line_that_was_filled() {
    let gap_us = |words: &str, frames| stream(words, frames, 1, 6, 1).gap_ns / 1_000;
    for loss in ["", "+loss=1%"] {
        let slow = format!("baseline+rate=100mbit+limit=166+delay=5ms{loss}");
        let gap = gap_us(&slow, true);
        assert!((95..=170).contains(&gap), "{slow}: {gap} us");
        assert_eq!(gap_us(&slow, false), 0);
    }
    let slower = gap_us("baseline+rate=20mbit+limit=83+delay=5ms", true);
    assert!((470..=850).contains(&slower), "{slower} us");
    for fast in ["baseline", "medium", "high"] {
        assert_eq!(gap_us(fast, true), 0, "{fast}");
    }
}

/// RFC 6040: what can be marked is not dropped.
#[test]
fn a_flow_that_can_be_marked_loses_nothing_by_it() {
    let found = run(&Setting { ecn: true, ..setting(DEEP, true, 1, 10, 1) });
    assert!(found.marked > 0 && found.dropped == 0 && found.seen_marked > 0, "{found:?}");
    let plain = run(&Setting { ecn: true, ..setting(DEEP, false, 1, 10, 1) });
    assert_eq!((plain.marked, plain.seen_marked), (0, 0));
}

#[test]
fn a_stream_outlives_the_restart_of_either_side() {
    for (weather, least) in [("medium", 300.0), ("high", 150.0)] {
        for host in 0..2 {
            let mut late = 0.0;
            for seed in 1..=3 {
                // Judged over 6 s: a handshake that weather takes costs one, and TCP's timeout two
                // more.
                let restarts = Some(host);
                let found = run(&Setting { restarts, ..setting(weather, true, 1, 12, seed) });
                assert!(found.wire_bytes_per_byte < 1.5, "{weather}, host {host}: {found:?}");
                late += found.late_mbit_s;
            }
            assert!(late > 3.0 * least, "{weather}, host {host}: {late:.0}, sum of three");
        }
    }
}

/// Of a line that is slow and short TCP bears what repair would cost more to mend.
#[test]
fn a_slow_line_that_loses_is_no_slower_inside() {
    for rate in [5, 20] {
        for loss in ["loss=0%", "loss=1%", "loss=2%+burst=4"] {
            let words = format!("baseline+rate={rate}mbit+limit=34+delay=1ms+{loss}");
            let sum =
                |frames| (1..=4).map(|n| stream(&words, frames, 1, 10, n).mbit_s).sum::<f64>();
            let (inside, plain) = (sum(true), sum(false));
            assert!(inside >= 0.92 * plain, "{words}: {inside:.1} and {plain:.1}, sums of four");
        }
    }
}

/// And a flow that goes on for 40 ms behind the peer, whose losses cost it much, has its repair
/// though the way between the peers is as short.
#[test]
fn a_flow_that_goes_on_behind_the_peer_is_repaired() {
    let words = "baseline+rate=50mbit+limit=83+delay=5ms+loss=1%";
    let beyond = Duration::from_millis(40);
    let sum = |frames| {
        let found = |seed| run(&Setting { beyond, ..setting(words, frames, 1, 20, seed) });
        (1..=2).map(|seed| found(seed).mbit_s).sum::<f64>()
    };
    let (inside, plain) = (sum(true), sum(false));
    assert!(inside >= 2.5 * plain, "{inside:.1} and {plain:.1} Mbit/s, sums of two");
}

/// One row of the grid: a line, and losses in runs of `burst`.
struct Row {
    rate: &'static str,
    delay_ms: u32,
    jitter_ms: u32,
    loss: &'static str,
    burst: u32,
    time_s: u64,
}

impl Row {
    /// Packets that 25 ms of the line hold, 40 at least.
    fn limit(&self) -> u32 {
        match self.rate {
            "5mbit" => 40,
            "1gbit" => 2_080,
            _ => 208,
        }
    }

    /// Goodput plain and with frames, and bytes on the wire with frames for each that arrived.
    fn find(&self) -> (f64, f64, f64) {
        let words = format!(
            "baseline+rate={}+limit={}+delay={}ms+jitter={}ms+loss={}+burst={}",
            self.rate,
            self.limit(),
            self.delay_ms,
            self.jitter_ms,
            self.loss,
            self.burst
        );
        let [plain, frames] = [false, true].map(|frames| stream(&words, frames, 1, self.time_s, 1));
        (plain.mbit_s, frames.mbit_s, frames.wire_bytes_per_byte)
    }
}

/// Loss, delay and disorder on 100 Mbit/s; then slower and faster lines, and longer ones.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for delay_ms in [1, 10, 50] {
        let mut row = |jitter_ms, loss, burst| {
            rows.push(Row { rate: "100mbit", delay_ms, jitter_ms, loss, burst, time_s: 4 });
        };
        for jitter_ms in [0, 1, 10] {
            ["0%", "0.5%", "3%"].into_iter().for_each(|loss| row(jitter_ms, loss, 1));
        }
        ["0.5%", "3%"].into_iter().for_each(|loss| row(0, loss, 5));
    }
    for (rate, delays_ms) in [("5mbit", [10, 75]), ("1gbit", [10, 75]), ("100mbit", [75, 150])] {
        for delay_ms in delays_ms {
            for loss in ["0%", "1%"] {
                rows.push(Row { rate, delay_ms, jitter_ms: 1, loss, burst: 1, time_s: 12 });
            }
        }
    }
    rows
}

#[test]
fn goodput_over_loss_delay_and_disorder_is_as_it_was() {
    let mut text = String::from(
        "Mbit/s of one stream of TCP over a line with a queue of 25 ms, in 4 s of 100 Mbit/s and\n\
         12 s of the others, plain and with frames, and bytes on the wire with frames for each\n\
         byte that arrived.\n\n\
         rate      delay     disorder  loss   in runs of  plain  frames  wire\n",
    );
    let mut bad = Vec::new();
    for row in rows() {
        let (plain, frames, wire) = row.find();
        let Row { rate, delay_ms, jitter_ms, loss, burst, .. } = row;
        let line = format!(
            "{rate:<9} {:<9} {:<9} {loss:<6} {burst:<11} {plain:5.1}  {frames:6.1}  {wire:4.2}",
            format!("{delay_ms} ms"),
            format!("{jitter_ms} ms"),
        );
        let _ = writeln!(text, "{line}");
        // On a long line a first flight with its repair may fill the queue a round trip sooner, by
        // a packet or by a millisecond (HyStart), and then has half of what it would have had.
        let share = if delay_ms < 50 { 0.85 } else { 0.5 };
        // The cap of repair, what frames add, and what TCP sends again.
        if frames < share * plain || wire > 1.9 {
            bad.push(line);
        }
    }
    assert!(
        bad.is_empty(),
        "less than plain WireGuard, or more than the cap: {bad:#?}; now:\n{text}"
    );
    assert_eq!(text, include_str!("streams.txt"), "the figures have changed; now:\n{text}");
}
