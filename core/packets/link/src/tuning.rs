//! Every tuned number of frames, and those of `repair` with them.
//!
//! Times of paths and their probes are no tuned numbers but a protocol's, and stand where they are
//! used (docs/paths.md).

use std::time::Duration;

/// The tuned numbers of a link that speaks frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// Those of `repair`.
    pub repair: repair::tuning::Tuning,
    /// One of so many packets that would travel as they are tells its delay where delays are
    /// wanted.
    pub told_every: u8,
    /// Where nothing is repaired and fewer are sent a second, each does: six make a delay, and
    /// while 24 pass, a queue fills and overflows that nobody told of.
    pub told_each_rate: f64,
    /// From so many segments on a unit's head goes out twice where nothing protects it: at the end
    /// again, so that its loss does not cost all segments.
    pub head_twice: usize,
    /// A superpacket of fewer segments travels as its packets: a head would be one in so many.
    pub unit_segments: usize,
    /// The same where each of its packets would be cut in two.
    pub unit_cut: usize,
    /// Below this disorder is none, microseconds: neighbours that changed places.
    pub disorder_us: u32,
    /// For how long a datagram that went another way may be reported lost.
    pub strays: Duration,
    /// Time between two reports under traffic, microseconds.
    pub report_us: u64,
    /// After the first loss of a quiet time the report goes out so soon, microseconds: when it can
    /// be told from lateness.
    pub alarm_us: u64,
    /// So it does where a new path brought so many datagrams, and within `fresh_us` as many as make
    /// it known: the other end repairs all of them until it is told that none was lost.
    pub fresh: u32,
    /// See `fresh`, microseconds. Where they come slower, as in a flow's beginning over long round
    /// trips, so few say too little.
    pub fresh_us: u64,
    /// How much longer than anything was late a flow with a gap waits: one in so many parts.
    pub late_part: u64,
    /// A line that takes more chunks a second (300 Mbit/s) passes a burst in less time than a loop
    /// needs to wake up for its parts: nothing is paced.
    pub pace_rate_max: f64,
    /// The gap toward a slow line, nanoseconds. The shell holds nothing for longer than a burst may
    /// wait anyway.
    pub pace_gap_ns_max: f64,
    /// What is sent while a queue fills is so many times what the line takes, as seen in the model
    /// and on the wire: 97 instead of 120 us at 100 Mbit/s.
    pub pace_overshoot: f64,
    /// Datagrams that must have been judged to say how much of them was too many: of a slow line
    /// that is more than one report tells of.
    pub overrun_judged: u32,
    /// What is lost beyond the weather is no chance if it is so many standard deviations.
    pub overrun_deviations: f64,
    /// Share of what was believed of the protected part that a report leaves of it; only shown.
    pub load_kept: f64,
    /// What came so long ago counts half in what is shown, microseconds.
    pub load_half_us: f64,
    /// Payload of the longest packet of TCP or UDP that is somebody's keystroke, bytes.
    pub keystroke_len: usize,
}

impl Tuning {
    /// What was lost on a path that was left is reported within so long and two round trips: when
    /// it was judged and told.
    pub(crate) const fn settle(&self) -> Duration {
        Duration::from_micros(self.repair.waiting.judge_us_max + 2 * self.report_us)
    }

    /// The numbers that hold.
    pub const DEFAULT: Self = Self {
        repair: repair::tuning::Tuning::DEFAULT,
        told_every: 4,
        told_each_rate: 2_000.0,
        head_twice: 8,
        unit_segments: 6,
        unit_cut: 2,
        disorder_us: 100,
        strays: Duration::from_millis(500),
        report_us: 100_000,
        alarm_us: 20_000,
        fresh: 100,
        fresh_us: 50_000,
        late_part: 4,
        pace_rate_max: 25_000.0,
        pace_gap_ns_max: 2.5e6,
        pace_overshoot: 1.25,
        overrun_judged: 100,
        overrun_deviations: 2.0,
        load_kept: 0.7,
        load_half_us: 30e6,
        keystroke_len: 64,
    };
}
