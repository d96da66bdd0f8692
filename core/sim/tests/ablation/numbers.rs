//! The tuned numbers, and what each is when it is off.

use std::time::Duration;

use node::Tuning;

/// A tuned number.
#[derive(Clone)]
pub(crate) struct Number {
    name: &'static str,
    file: &'static str,
    scale: fn(&mut Tuning, f64),
    /// Gives it the value with which its rule does nothing; none where there is no such value.
    off: Option<fn(&mut Tuning)>,
}

impl Number {
    /// As it is written behind a [`Tuning`].
    pub(crate) fn name(&self) -> String {
        self.name.replace(' ', "")
    }

    /// Where it decides.
    pub(crate) const fn file(&self) -> &'static str {
        self.file
    }
}

/// A tuning beside today's.
#[derive(Clone)]
pub(crate) struct Change {
    /// What is changed, and how: no other change has this name.
    pub(crate) name: String,
    pub(crate) tuning: Tuning,
    /// Of the first run.
    pub(crate) seed: u64,
}

/// What is done to a number.
#[derive(Clone, Copy)]
pub(crate) enum How {
    Off,
    Times(f64),
}

impl Change {
    /// None where there is no off.
    pub(crate) fn of(number: &Number, how: How) -> Option<Self> {
        let mut tuning = Tuning::DEFAULT;
        let word = match how {
            How::Off => {
                number.off?(&mut tuning);
                "off".to_owned()
            }
            How::Times(by) => {
                (number.scale)(&mut tuning, by);
                format!("× {by}")
            }
        };
        Some(Self { name: format!("{} {word}", number.name()), tuning, seed: 1 })
    }

    /// Today, and then three times today with other seeds: what differs between them is chance.
    pub(crate) fn chances() -> [Self; 4] {
        [1, 101, 201, 301].map(|seed| {
            let name = if seed == 1 { "today".to_owned() } else { format!("seed {seed}") };
            Self { name, tuning: Tuning::DEFAULT, seed }
        })
    }
}

/// Each of these done to each number.
pub(crate) fn changes(numbers: &[Number], hows: &[How]) -> Vec<Change> {
    let of = |&how: &How| numbers.iter().filter_map(move |number| Change::of(number, how));
    hows.iter().flat_map(of).collect()
}

/// What can be halved and doubled; whole numbers stay above zero.
trait Scale {
    fn scale(&mut self, by: f64);
}

impl Scale for f64 {
    fn scale(&mut self, by: f64) {
        *self *= by;
    }
}

impl Scale for Duration {
    fn scale(&mut self, by: f64) {
        *self = self.mul_f64(by);
    }
}

macro_rules! whole {
    ($($of:ty),+) => {
        $(impl Scale for $of {
            fn scale(&mut self, by: f64) {
                *self = ((*self as f64 * by) as Self).max(1);
            }
        })+
    };
}

whole!(u8, u32, u64, usize, i32);

macro_rules! number {
    ($($name:ident).+, $file:literal) => {
        Number {
            name: stringify!($($name).+),
            file: $file,
            scale: |tuning, by| tuning.$($name).+.scale(by),
            off: None,
        }
    };
    ($($name:ident).+, $file:literal, $off:expr) => {
        Number { off: Some($off), ..number!($($name).+, $file) }
    };
}

/// All of them.
pub(crate) fn all() -> Vec<Number> {
    [beliefs(), queues(), spending(), waiting(), frames()].concat()
}

fn beliefs() -> Vec<Number> {
    vec![
        number!(repair.belief.quick_half_us, "estimate.rs", |t| {
            t.repair.belief.quick_half_us = t.repair.belief.slow_half_us;
            t.repair.belief.quick_chunks = t.repair.belief.slow_chunks;
        }),
        number!(repair.belief.quick_chunks, "estimate.rs", |t| t.repair.belief.quick_chunks = 0.0),
        number!(repair.belief.slow_half_us, "estimate.rs"),
        number!(repair.belief.slow_chunks, "estimate.rs", |t| t.repair.belief.slow_chunks = 0.0),
        number!(repair.belief.blind_half_us, "estimate.rs", |t| t.repair.belief.blind_half_us =
            1e18),
        number!(repair.belief.weight_min, "estimate.rs", |t| t.repair.belief.weight_min = 1.0),
        number!(repair.belief.blind_times, "estimate.rs", |t| t.repair.belief.blind_times = 1e18),
        number!(repair.belief.old_half_us, "estimate.rs", |t| t.repair.belief.old_half_us = 1e18),
        number!(repair.belief.shown_half_us, "estimate.rs"),
        number!(repair.belief.pause_us_max, "estimate.rs", |t| t.repair.belief.pause_us_max =
            u64::MAX / 4),
        number!(repair.belief.known_chunks, "estimate.rs"),
        number!(repair.belief.known_losses, "estimate.rs", |t| t.repair.belief.known_losses = 1e18),
        number!(repair.belief.spill, "estimate.rs", |t| t.repair.belief.spill = 0.0),
        number!(repair.belief.spill_max, "estimate.rs", |t| t.repair.belief.spill_max = 1e18),
        number!(repair.belief.enough_chunks, "estimate.rs", |t| t.repair.belief.enough_chunks =
            t.repair.belief.known_chunks),
        number!(repair.belief.gradient_us, "estimate.rs"),
        number!(repair.belief.spells, "spells.rs"),
        number!(repair.belief.out_max, "spells.rs", |t| t.repair.belief.out_max = 0),
        number!(repair.belief.out_each, "spells.rs", |t| t.repair.belief.out_each = 1),
        number!(repair.belief.out_times, "spells.rs", |t| t.repair.belief.out_times = 1.0),
        number!(repair.belief.out_losses, "spells.rs", |t| t.repair.belief.out_losses = 0.0),
        number!(repair.belief.memory_max, "model.rs"),
        number!(repair.belief.windows_min, "model.rs", |t| t.repair.belief.windows_min = 1.0),
        number!(repair.unknown.loss, "control.rs", |t| t.repair.unknown.loss = 0.0),
        number!(repair.unknown.burst, "control.rs", |t| t.repair.unknown.burst = 1.0),
        number!(repair.unknown.target, "control.rs", |t| t.repair.unknown.target =
            t.repair.spending.target),
        number!(repair.unknown.queued_target, "control.rs", |t| t.repair.unknown.queued_target =
            t.repair.unknown.target),
        number!(repair.unknown.queued_share, "control.rs", |t| t.repair.unknown.queued_share = 1.0),
        number!(repair.unknown.filling, "control.rs", |t| t.repair.unknown.filling = 1.0),
    ]
}

fn queues() -> Vec<Number> {
    vec![
        number!(repair.queue.timed_min, "observe.rs", |t| t.repair.queue.timed_min = 1),
        number!(repair.queue.groups_after, "observe.rs", |t| t.repair.queue.groups_after = 0),
        number!(repair.queue.standing_us, "observe.rs", |t| t.repair.queue.standing_us = 0),
        number!(repair.queue.standing_chunks, "observe.rs", |t| t.repair.queue.standing_chunks = 1),
        number!(repair.queue.least_us, "observe.rs", |t| t.repair.queue.least_us = 0),
        number!(repair.queue.above, "levels.rs", |t| t.repair.queue.above = 1_000_000),
        number!(repair.queue.part, "observe.rs", |t| t.repair.queue.part = 1_000_000),
        number!(repair.queue.stale_us, "observe.rs", |t| t.repair.queue.stale_us = u64::MAX / 4),
        number!(repair.queue.base_us, "observe.rs"),
        number!(repair.queue.peak_us, "observe.rs"),
        number!(repair.queue.jitter_times, "control.rs", |t| t.repair.queue.jitter_times = 0),
        number!(repair.queue.stands_us, "control.rs", |t| t.repair.queue.stands_us = 1.0),
        number!(repair.queue.empty_us, "control.rs", |t| t.repair.queue.empty_us =
            t.repair.queue.stands_us),
        number!(repair.queue.full_share, "control.rs"),
        number!(repair.queue.full_us, "control.rs", |t| t.repair.queue.full_us = 0),
        number!(repair.queue.line_us, "control.rs"),
        number!(repair.telling.blind, "observe.rs", |t| t.repair.telling.blind = u32::MAX),
        number!(repair.telling.blind_long, "observe.rs", |t| t.repair.telling.blind_long =
            t.repair.telling.blind),
        number!(repair.telling.blind_us, "observe.rs"),
        number!(repair.telling.gap_us_max, "observe.rs", |t| t.repair.telling.gap_us_max =
            u64::MAX / 4),
        number!(repair.telling.watch_us, "control.rs", |t| t.repair.telling.watch_us = 0),
    ]
}

fn spending() -> Vec<Number> {
    vec![
        number!(repair.spending.target, "control.rs"),
        number!(repair.spending.runs_max, "control.rs", |t| t.repair.spending.runs_max =
            t.repair.spending.target),
        number!(repair.spending.target_max, "control.rs", |t| t.repair.spending.target_max = 1.0),
        number!(repair.spending.runs_max_full, "control.rs", |t| t.repair.spending.runs_max_full =
            t.repair.spending.runs_max),
        number!(repair.spending.target_max_full, "control.rs", |t| t
            .repair
            .spending
            .target_max_full =
            t.repair.spending.target_max),
        number!(repair.spending.headroom, "control.rs", |t| t.repair.spending.headroom = 1.0),
        number!(repair.spending.rate_min, "control.rs", |t| t.repair.spending.rate_min = 0.0),
        number!(repair.spending.rtt_us, "control.rs"),
        number!(repair.spending.rate_gain, "control.rs", |t| t.repair.spending.rate_gain = 1.0),
        number!(repair.spending.full_power, "full.rs"),
        number!(repair.spending.deeper_share, "control.rs", |t| t.repair.spending.deeper_share =
            1.0),
        number!(repair.spending.deeper_part, "control.rs", |t| t.repair.spending.deeper_part =
            1e18),
        number!(repair.spending.deeper_cost, "control.rs", |t| t.repair.spending.deeper_cost =
            1e18),
        number!(repair.spending.few_lanes, "tuning.rs", |t| t.repair.spending.few_lanes = 16),
        number!(repair.spending.deep_chunks, "tuning.rs"),
        number!(repair.spending.few, "spread.rs", |t| t.repair.spending.few = 0),
        number!(repair.spending.saved_max, "spread.rs"),
        number!(repair.spending.saved_first, "spread.rs", |t| t.repair.spending.saved_first = 0),
        number!(repair.spending.dear, "spread.rs", |t| t.repair.spending.dear = 1e18),
        number!(repair.worth.evidence, "control.rs", |t| t.repair.worth.evidence = 1.0),
        number!(repair.worth.poor, "control.rs", |t| t.repair.worth.poor = 0.0),
        number!(repair.worth.good, "control.rs"),
        number!(repair.worth.trust_kept, "control.rs", |t| t.repair.worth.trust_kept = 1.0),
        number!(repair.worth.gain, "control.rs"),
        number!(repair.worth.trust_min, "table.rs"),
        number!(repair.worth.probe_data, "table.rs", |t| t.repair.worth.probe_data = 0),
        number!(repair.worth.retry_us, "control.rs", |t| t.repair.worth.retry_us = u64::MAX / 4),
        number!(repair.worth.retried, "control.rs"),
        number!(repair.worth.chance, "control.rs", |t| t.repair.worth.chance = 0.0),
        number!(repair.worth.chance_times, "control.rs", |t| t.repair.worth.chance_times = 1.0),
        number!(repair.worth.boost_max, "control.rs"),
        number!(repair.worth.boost_kept, "control.rs", |t| t.repair.worth.boost_kept = 1.0),
    ]
}

fn waiting() -> Vec<Number> {
    vec![
        number!(repair.waiting.hold_us, "spread.rs"),
        number!(repair.waiting.ordered_us, "spread.rs", |t| t.repair.waiting.ordered_us =
            t.repair.waiting.hold_us),
        number!(repair.waiting.pair_us, "spread.rs", |t| t.repair.waiting.pair_us =
            t.repair.waiting.hold_us),
        number!(repair.waiting.pair_gaps, "spread.rs", |t| t.repair.waiting.pair_gaps = 1.0),
        number!(repair.waiting.flight_us, "spread.rs", |t| t.repair.waiting.flight_us =
            t.repair.waiting.pause_us),
        number!(repair.waiting.leave_us, "spread.rs", |t| t.repair.waiting.leave_us = 0),
        number!(repair.waiting.pause_us, "spread.rs", |t| t.repair.waiting.pause_us = 0),
        number!(repair.waiting.order_us, "order.rs"),
        number!(repair.waiting.judge_us_min, "observe.rs", |t| t.repair.waiting.judge_us_min = 0),
        number!(repair.waiting.judge_us_max, "observe.rs"),
        number!(repair.waiting.judge_times, "observe.rs", |t| t.repair.waiting.judge_times = 0),
    ]
}

fn frames() -> Vec<Number> {
    vec![
        number!(told_every, "sender.rs", |t| t.told_every = 1),
        number!(told_each_rate, "sender.rs", |t| t.told_each_rate = 0.0),
        number!(head_twice, "sender.rs", |t| t.head_twice = usize::MAX),
        number!(unit_segments, "treatment.rs", |t| t.unit_segments = 2),
        number!(unit_cut, "treatment.rs", |t| t.unit_cut = t.unit_segments),
        number!(disorder_us, "sender.rs", |t| t.disorder_us = 1),
        number!(strays, "strays.rs", |t| t.strays = Duration::ZERO),
        number!(report_us, "reports.rs"),
        number!(alarm_us, "reports.rs", |t| t.alarm_us = t.report_us),
        number!(fresh, "reports.rs", |t| t.fresh = u32::MAX),
        number!(fresh_us, "reports.rs", |t| t.fresh_us = u64::MAX / 4),
        number!(late_part, "receiver.rs", |t| t.late_part = u64::MAX),
        number!(pace_rate_max, "pacing.rs", |t| t.pace_rate_max = 0.0),
        number!(pace_gap_ns_max, "pacing.rs", |t| t.pace_gap_ns_max = 1e9),
        number!(pace_overshoot, "pacing.rs", |t| t.pace_overshoot = 1.0),
        number!(overrun_judged, "overrun.rs", |t| t.overrun_judged = 1),
        number!(overrun_deviations, "overrun.rs", |t| t.overrun_deviations = 0.0),
        number!(load_kept, "load.rs"),
        number!(load_half_us, "load.rs"),
        number!(keystroke_len, "gather.rs", |t| t.keystroke_len = 0),
    ]
}
