//! Estimates over a simulated line whose truth is known: a rate, and cross traffic that is paced
//! evenly, by chance, or in bursts. Send times jitter, the receiver's clock is another one, and
//! interrupts deliver several packets at once.

use noise::Instant;
use quality::{Arrival, Discard, Estimator, Limits, Outcome, Probe, StreamPlan};
use sim::cross::{Cross, Gaps};
use sim::impair::{Impairment, Pipe, Verdict};
use sim::rng::Rng;

const RUNS: u64 = 40;
const BURST_RUNS: u64 = 100;
/// How far receivers batch; a run has one of them.
const BATCHES_NS: [u64; 3] = [0, 0, 50_000];
const BURST_BATCHES_NS: [u64; 5] = [0, 0, 50_000, 250_000, 1_000_000];
/// Others send from zero on, and we from here on.
const BEGIN: Instant = Instant(1_000_000_000);
/// Bytes of a packet of others.
const CROSS_LEN: usize = 1200;

fn is_in_bursts(cross: Cross) -> bool {
    matches!(cross, Cross::Bursts | Cross::LongBursts)
}

/// A line, its other traffic, and a receiver that batches.
struct Line {
    pipe: Pipe,
    /// A line before it, which others do not use.
    before: Option<Pipe>,
    rng: Rng,
    cross: Gaps,
    next_cross_ns: f64,
    /// What others sent since we began.
    cross_bytes: u64,
    /// Interrupts come at multiples of it.
    batch_ns: u64,
    /// The sender pauses for so long in the middle of each stream.
    pause_ns: u64,
    /// What comes for so long behind a stream's first packet is read at once.
    late_ns: u64,
    /// A second path with so much more delay, taken by chance.
    detour_ns: u64,
    /// What fills while nothing passes, bytes, and how quickly it fills, bits a second.
    bucket: Option<(f64, f64)>,
    tokens: f64,
    /// When the last of ours came to it.
    last_ns: u64,
}

impl Line {
    fn new(rate_bps: u64, share: f64, cross: Cross, seed: u64) -> Self {
        let line =
            Impairment { rate_bps, delay_us: 10_000, limit_packets: 1000, ..Impairment::NONE };
        let mut rng = Rng::new(seed);
        let cross = Gaps::new(cross, CROSS_LEN, rate_bps as f64 * share, rate_bps as f64);
        let next_cross_ns = cross.mean_ns() * rng.unit();
        let pipe = Pipe::new(line, seed).expect("a line that can be");
        let bucket = None;
        Self {
            pipe,
            before: None,
            rng,
            cross,
            next_cross_ns,
            cross_bytes: 0,
            batch_ns: 0,
            pause_ns: 0,
            late_ns: 0,
            detour_ns: 0,
            bucket,
            tokens: 0.0,
            last_ns: 0,
        }
    }

    /// What others left of it since we began.
    fn left_bps(&self) -> f64 {
        let since_ns = self.last_ns.saturating_sub(BEGIN.0) as f64;
        self.pipe.impairment().rate_bps as f64 - self.cross_bytes as f64 * 8e9 / since_ns
    }

    /// Sends one packet of ours; when it arrives, if it does.
    fn send(&mut self, mut at_ns: u64, len: usize) -> Option<u64> {
        if let Some(Verdict::Deliver { at_ns: came_ns, .. }) =
            self.before.as_mut().map(|before| before.offer(at_ns, len))
        {
            at_ns = came_ns;
        }
        while self.next_cross_ns <= at_ns as f64 {
            self.pipe.offer(self.next_cross_ns as u64, CROSS_LEN);
            if self.next_cross_ns >= BEGIN.0 as f64 {
                self.cross_bytes += CROSS_LEN as u64;
            }
            self.next_cross_ns += self.cross.next_ns(&mut self.rng);
        }
        let since = at_ns.saturating_sub(self.last_ns) as f64;
        self.last_ns = at_ns;
        if let Some((depth, fill_bps)) = self.bucket {
            self.tokens = (self.tokens + since * fill_bps / 8e9).min(depth);
            self.tokens -= len as f64;
            // Who has no token waits until one came.
            let wait_ns = (-self.tokens).max(0.0) * 8e9 / fill_bps;
            at_ns += wait_ns as u64;
        }
        match self.pipe.offer(at_ns, len) {
            Verdict::Deliver { at_ns, .. } => {
                let at = at_ns + if self.rng.chance(0.5) { self.detour_ns } else { 0 };
                Some(if self.batch_ns > 0 { at.next_multiple_of(self.batch_ns) } else { at })
            }
            Verdict::Lost | Verdict::QueueDropped => None,
        }
    }

    /// Sends a stream as a user's program can: some microseconds late, by chance.
    fn stream(&mut self, plan: &StreamPlan) -> (Vec<Probe>, Vec<Arrival>, u64) {
        const OTHER_CLOCK_NS: u64 = 5_000_000_000_000;
        let (mut sent, mut arrivals) = (Vec::new(), Vec::new());
        let begin = plan.at.0;
        let mut last = begin;
        for sequence in 0..plan.packets {
            let bulk_at = u64::from(sequence / plan.bulk * plan.bulk);
            let late = (self.rng.exponential() * 3000.0) as u64;
            let behind = bulk_at.saturating_sub(u64::from(plan.lead));
            let pause = if sequence > plan.packets / 2 { self.pause_ns } else { 0 };
            let due = begin + pause + plan.gap.as_nanos() as u64 * behind + late;
            // What leaves at once has one time.
            if sequence % plan.bulk == 0 {
                last = last.max(due) + 100;
            }
            sent.push(Probe { sequence, sent_ns: last });
            if let Some(at) = self.send(last, plan.len) {
                arrivals.push(Arrival { sequence, received_ns: at + OTHER_CLOCK_NS });
            }
        }
        let read = arrivals.first().map_or(0, |first| first.received_ns) + self.late_ns;
        for arrival in &mut arrivals {
            arrival.received_ns = arrival.received_ns.max(read);
        }
        (sent, arrivals, last)
    }
}

/// One estimate to its end: the outcome, seconds, bytes.
fn estimate(line: &mut Line, limits: Limits) -> (Outcome, f64, u64) {
    const ROUND_TRIP_NS: u64 = 20_000_000;
    let mut now = BEGIN;
    let mut estimator = Estimator::new(limits, now);
    loop {
        if let Some(plan) = estimator.poll_stream(now) {
            let (sent, arrivals, last) = line.stream(&plan);
            now = Instant(last + ROUND_TRIP_NS);
            estimator.handle_stream(plan.number, &sent, &arrivals, now);
        }
        if let Some(outcome) = estimator.outcome() {
            let seconds = now.since(BEGIN).as_secs_f64();
            return (outcome, seconds, estimator.cost_bytes());
        }
        let due = estimator.poll_timeout().expect("something is due until the end");
        now = now.max(due);
    }
}

/// What came of many runs over one kind of line.
#[derive(Default)]
struct Tally {
    ranges: u32,
    holds: u32,
    widths: Vec<f64>,
    seconds: Vec<f64>,
    bytes: Vec<f64>,
    others: Vec<Outcome>,
}

fn tally(rate_bps: u64, share: f64, cross: Cross) -> Tally {
    let mean = rate_bps as f64 * (1.0 - share);
    let (runs, batches_ns) = match is_in_bursts(cross) {
        true => (BURST_RUNS, &BURST_BATCHES_NS[..]),
        false => (RUNS, &BATCHES_NS[..]),
    };
    let mut tally = Tally::default();
    for seed in 0..runs {
        let mut line = Line::new(rate_bps, share, cross, 77 + seed);
        line.batch_ns = batches_ns[seed as usize % batches_ns.len()];
        let (outcome, seconds, bytes) = estimate(&mut line, Limits::default());
        // A second of long bursts is not like the next one.
        let truth = if is_in_bursts(cross) { line.left_bps() } else { mean };
        tally.seconds.push(seconds);
        tally.bytes.push(bytes as f64 / (mean * 10.0 / 8.0));
        match outcome {
            Outcome::Range { low_bps, high_bps } => {
                tally.ranges += 1;
                // A range is of rates that were sent; jitter is some parts in a thousand.
                let holds = low_bps <= truth * 1.005 && truth * 0.995 <= high_bps;
                tally.holds += u32::from(holds);
                tally.widths.push((high_bps - low_bps) / mean);
            }
            other => tally.others.push(other),
        }
    }
    tally
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// One kind of line, tried: what is told of it, and whether all is as it must be there.
fn tried(rate: u64, share: f64, cross: Cross, all: &mut [u32; 3]) -> (String, bool) {
    let mut one = tally(rate * 1_000_000, share, cross);
    let [most_s, most_cost] =
        [&one.seconds, &one.bytes].map(|list| list.iter().copied().fold(0.0, f64::max));
    let told = format!(
        "{rate:3} Mbit/s, {:2.0} % {cross:?}: {} of {} ranges hold it, {} runs without one, width \
         {:4.1} %, {:.1} s (most {most_s:.1}), {:.1} % of a bulk (most {:.1}) {:?}",
        share * 100.0,
        one.holds,
        one.ranges,
        one.others.len(),
        median(&mut one.widths) * 100.0,
        median(&mut one.seconds),
        median(&mut one.bytes) * 100.0,
        most_cost * 100.0,
        one.others.first(),
    );
    for (sum, count) in all.iter_mut().zip([one.holds, one.ranges, RUNS as u32]) {
        *sum += count;
    }
    // Who finds no range says so, and gives no number.
    let is_told = one.others.iter().all(|other| *other == Outcome::NotConverged);
    // Trains are sent before anything is known: on a line with little left they weigh more.
    let is_cheap = median(&mut one.bytes) <= 0.1 && most_cost <= 0.15;
    // Nothing is left to chance where nothing comes by chance.
    let is_found = one.holds == RUNS as u32 && median(&mut one.widths) <= 0.2;
    (told, is_told && is_cheap && most_s <= 15.0 && (is_found || cross == Cross::Chance))
}

#[test]
#[expect(clippy::disallowed_macros, reason = "whoever runs it wants the figures")]
fn source_001_11_source_001_12_ranges_hold_the_truth_and_cost_little() {
    let mut all = [0; 3];
    for rate in [10, 100, 500, 1000] {
        for share in [0.0, 0.4, 0.7] {
            for cross in [Cross::Even, Cross::Chance] {
                if share > 0.0 || cross == Cross::Even {
                    let (told, is_good) = tried(rate, share, cross, &mut all);
                    println!("{told}");
                    assert!(is_good, "{told}");
                }
            }
        }
    }
    let [holds, ranges, runs] = all;
    println!("{holds} of {ranges} ranges hold the truth, in {runs} runs");
    assert!(holds * 100 >= ranges * 98, "{holds} of {ranges}");
    assert!(ranges * 10 >= runs * 9, "{ranges} of {runs}");
}

/// Of traffic in bursts on all lines: ranges that hold the truth, ranges, and runs. On none have
/// more than a tenth of the runs a wrong range, and who finds none says that traffic changes.
#[expect(
    clippy::disallowed_macros,
    clippy::print_stdout,
    reason = "whoever runs it wants the figures"
)]
fn tried_in_bursts(cross: Cross) -> [u32; 3] {
    let mut all = [0; 3];
    for rate in [10, 100, 500, 1000] {
        for share in [0.4, 0.7] {
            let mut one = tally(rate * 1_000_000, share, cross);
            let told = format!(
                "{rate:4} Mbit/s, {:2.0} % {cross:?}: {} of {} ranges hold it, width {:4.1} %, \
                 {:.1} s, {:.1} % of a bulk",
                share * 100.0,
                one.holds,
                one.ranges,
                median(&mut one.widths) * 100.0,
                median(&mut one.seconds),
                median(&mut one.bytes) * 100.0,
            );
            println!("{told}");
            assert!((one.ranges - one.holds) * 10 <= BURST_RUNS as u32, "{told}");
            // A receiver that batches has a word of its own.
            let words = [Outcome::NotConverged, Outcome::Unsteady(Discard::Short)];
            let is_told = one.others.iter().all(|other| words.contains(other));
            assert!(is_told, "{told} {:?}", one.others);
            for (sum, count) in all.iter_mut().zip([one.holds, one.ranges, BURST_RUNS as u32]) {
                *sum += count;
            }
        }
    }
    let [holds, ranges, runs] = all;
    println!("{cross:?}: {holds} of {ranges} ranges hold the truth, in {runs} runs");
    all
}

#[test]
fn beside_bursts_a_range_holds_the_truth_or_traffic_is_said_to_change() {
    let [holds, ranges, runs] = tried_in_bursts(Cross::Bursts);
    assert!(holds * 10 >= ranges * 9, "{holds} of {ranges}");
    // A quick line carries many of them within one stream.
    assert!(ranges * 3 >= runs, "{ranges} of {runs}");
}

/// All streams of an estimate may fall into pauses, and then its range is wrong.
#[test]
fn beside_bursts_longer_than_a_stream_there_is_hardly_ever_a_range() {
    let [holds, ranges, runs] = tried_in_bursts(Cross::LongBursts);
    assert!((ranges - holds) * 80 <= runs, "{holds} of {ranges}");
    assert!(ranges * 40 <= runs, "{ranges} of {runs}");
}

/// A queue that was full just behind the lead.
#[test]
fn a_stream_that_lost_all_but_its_lead_is_judged() {
    let sent: Vec<Probe> =
        (0..40).map(|n| Probe { sequence: n, sent_ns: u64::from(n) * 100_000 }).collect();
    let arrivals: Vec<Arrival> = (0..20)
        .map(|n| Arrival { sequence: n, received_ns: 7_000_000 + u64::from(n) * 200_000 })
        .collect();
    let judged = quality::judge(1200, 20, &sent, &arrivals).expect("twenty arrived");
    assert_eq!((judged.loss, judged.lead_loss, judged.is_bimodal), (1.0, 0.0, false));
}

/// A machine whose card or kernel hands packets on in batches, as virtual ones do.
#[test]
fn a_receiver_that_batches_for_long_is_told_a_range_that_holds_or_none() {
    for batch_ns in [250_000, 1_000_000] {
        for rate in [10, 100, 500, 1_000] {
            let mut line = Line::new(rate * 1_000_000, 0.4, Cross::Even, rate);
            line.batch_ns = batch_ns;
            let truth = rate as f64 * 0.6e6;
            let (outcome, seconds, _) = estimate(&mut line, Limits::default());
            let told =
                format!("{seconds:.1} s, {rate} Mbit/s, batches of {batch_ns} ns: {outcome:?}");
            match outcome {
                Outcome::Range { low_bps, high_bps } => {
                    assert!(low_bps <= truth * 1.01 && truth * 0.99 <= high_bps, "{told}");
                    assert!(high_bps - low_bps <= 0.3 * truth, "{told}");
                }
                // It says that it does not know.
                Outcome::NotConverged | Outcome::Unsteady(Discard::Short) => {}
                _ => panic!("{told}"),
            }
            assert!(seconds <= 15.0, "{told}");
        }
    }
}

#[test]
fn source_001_13_two_paths_are_told_and_no_number() {
    let mut line = Line::new(100_000_000, 0.0, Cross::Even, 5);
    line.detour_ns = 4_000_000;
    let (outcome, ..) = estimate(&mut line, Limits::default());
    assert_eq!(outcome, Outcome::Multipath);
}

#[test]
fn a_token_bucket_is_told_with_both_rates() {
    let mut line = Line::new(1_000_000_000, 0.0, Cross::Even, 5);
    line.bucket = Some((40_000.0, 50e6));
    line.tokens = 40_000.0;
    let limits = Limits { rate_max_bps: 900e6, ..Limits::default() };
    let (outcome, ..) = estimate(&mut line, limits);
    let Outcome::TokenBucket { burst_bps, rate_bps } = outcome else { panic!("{outcome:?}") };
    assert!((45e6..60e6).contains(&rate_bps), "{rate_bps}");
    assert!(burst_bps > 1.5 * rate_bps, "{burst_bps}");
}

#[test]
fn a_line_that_loses_without_delay_is_told() {
    let mut line = Line::new(100_000_000, 0.0, Cross::Even, 5);
    let lossy = Impairment { loss: 0.08, ..*line.pipe.impairment() };
    line.pipe.set_impairment(lossy).unwrap();
    let (outcome, ..) = estimate(&mut line, Limits::default());
    assert!(matches!(outcome, Outcome::Lossy(loss) if loss > 0.03), "{outcome:?}");
}

#[test]
fn a_sender_that_pauses_ends_without_a_number_and_so_does_a_minute() {
    let begin = Instant(1);
    let mut estimator = Estimator::new(Limits::default(), begin);
    let mut now = begin;
    while estimator.outcome().is_none() {
        let Some(plan) = estimator.poll_stream(now) else {
            let due = estimator.poll_timeout().expect("something is due until the end");
            now = now.max(due);
            continue;
        };
        let at = |n: u32| u64::from(n) * plan.gap.as_nanos() as u64 + u64::from(n / 5) * 9_000_000;
        let sent: Vec<Probe> =
            (0..plan.packets).map(|n| Probe { sequence: n, sent_ns: at(n) }).collect();
        let arrivals: Vec<Arrival> =
            (0..plan.packets).map(|n| Arrival { sequence: n, received_ns: at(n) + 5 }).collect();
        estimator.handle_stream(plan.number, &sent, &arrivals, now);
    }
    assert_eq!(estimator.outcome(), Some(Outcome::Unsteady(Discard::SenderPaused)));

    // Nobody ever tells what became of a stream.
    let mut estimator = Estimator::new(Limits::default(), begin);
    assert!(estimator.poll_stream(begin).is_some());
    let end = estimator.poll_timeout().unwrap();
    assert_eq!(end.since(begin).as_secs(), 60);
    assert_eq!(estimator.poll_stream(end), None);
    assert_eq!(estimator.outcome(), Some(Outcome::NotConverged));
}

/// What is found of a line, if it is a range.
fn range_of(line: &mut Line) -> Option<(f64, f64)> {
    match estimate(line, Limits::default()).0 {
        Outcome::Range { low_bps, high_bps } => Some((low_bps, high_bps)),
        _ => None,
    }
}

fn holds(line: &mut Line, truth_bps: f64) -> bool {
    range_of(line).is_some_and(|(low, high)| low <= truth_bps && truth_bps <= high)
}

#[test]
fn a_queue_that_is_short_is_no_loss() {
    let mut line = Line::new(100_000_000, 0.4, Cross::Even, 5);
    let short = Impairment { limit_packets: 30, ..*line.pipe.impairment() };
    line.pipe.set_impairment(short).unwrap();
    assert!(holds(&mut line, 60e6));
}

#[test]
fn a_slow_line_before_one_with_less_left_is_not_taken_for_it() {
    let mut line = Line::new(1_000_000_000, 0.915, Cross::Even, 5);
    let before = Impairment { rate_bps: 100_000_000, limit_packets: 1000, ..Impairment::NONE };
    line.before = Some(Pipe::new(before, 7).unwrap());
    let (outcome, ..) = estimate(&mut line, Limits::default());
    assert_eq!(outcome, Outcome::NotConverged, "85 Mbit/s are left");
}

#[test]
fn a_bucket_is_told_that_is_deeper_than_a_stream() {
    let mut line = Line::new(1_000_000_000, 0.0, Cross::Even, 5);
    line.bucket = Some((400_000.0, 50e6));
    line.tokens = 400_000.0;
    let (outcome, ..) = estimate(&mut line, Limits::default());
    assert!(matches!(outcome, Outcome::TokenBucket { .. }), "{outcome:?}");
}

/// A shaper lets pass at once what it saved up, which hides that a rate is too high.
#[test]
fn what_a_shaper_saved_up_hides_nothing() {
    let mut line = Line::new(1_000_000_000, 0.0, Cross::Even, 5);
    line.bucket = Some((18_000.0, 150e6));
    assert!(holds(&mut line, 150e6));
}

/// A machine that is busy pauses in some streams, and reads late once in a while.
#[test]
fn a_pause_and_a_late_read_do_no_harm() {
    let mut line = Line::new(100_000_000, 0.4, Cross::Even, 5);
    line.pause_ns = 1_500_000;
    line.late_ns = 2_000_000;
    assert!(holds(&mut line, 60e6));
}
