//! The search: which stream comes next, and when there is an answer.

use core::time::Duration;

use noise::Instant;

use crate::fleet::{ABOVE, Fleet, Verdict};
use crate::stream::{Arrival, Discard, Judged, Probe, judge};

/// An estimate takes no longer.
const WITHIN: Duration = Duration::from_secs(60);
/// Packets of a stream at least.
const PACKETS: u32 = 100;
/// Packets of a stream at most.
const PACKETS_MAX: u32 = 1000;
/// Packets of the first train, and of the others.
const TRAIN: u32 = 60;
const LONG_TRAIN: u32 = 160;
/// How far the rate goes down, or up by its inverse, while one end of the range is not known.
const LEAPS: [f64; 3] = [0.87, 0.75, 0.55];
/// A stream lasts so many batches of the receiver.
const BATCHES: u64 = 20;
/// The path is loaded for one part in so many of the time, and of a bulk's ten seconds.
const SHARE: u32 = 10;
/// Seconds of the bulk transfer that an estimate is compared with.
const BULK_S: f64 = 10.0;
/// Above so many bits a second a timer's jitter is too near to a gap, and packets leave in bulks.
const BULKS_ABOVE_BPS: f64 = 500e6;
/// Packets of a bulk.
const BULK: u32 = 8;
/// Below so many bits a second packets are small, so that a stream costs less.
const SMALL_BELOW_BPS: f64 = 30e6;
/// Both ends of the range are so near to each other, at most, relative to their middle.
const NEAR: f64 = 0.12;
/// Streams in a row that say nothing before the estimate says so.
const DISCARDED_MAX: u32 = 20;
/// Loss without delay from which loss is the answer.
const LOSS_MAX: f64 = 0.03;
/// The head of a long train is so much quicker than its end where a bucket was full.
const BUCKET: f64 = 2.0;

/// What an estimate may do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// The highest rate at which the sender can send, bits a second.
    pub rate_max_bps: f64,
    /// The largest packet, headers included, bytes.
    pub len_max: usize,
    /// The smallest packet that makes sense, bytes.
    pub len_min: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { rate_max_bps: 1e9, len_max: 1200, len_min: 300 }
    }
}

/// A stream that is to be sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StreamPlan {
    /// Its number, which tells streams apart.
    pub number: u32,
    /// How many packets.
    pub packets: u32,
    /// Bytes of each, headers included.
    pub len: usize,
    /// From one packet to the next; of a bulk's packets all leave at once.
    pub gap: Duration,
    /// Packets that leave at once.
    pub bulk: u32,
    /// Not before.
    pub at: Instant,
}

/// What is found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Outcome {
    /// The available bandwidth is between both, bits a second.
    Range {
        /// The highest rate that was carried.
        low_bps: f64,
        /// The lowest that was not.
        high_bps: f64,
    },
    /// At least so much: the sender is slower than the path.
    AtLeast(f64),
    /// A token bucket: short bursts have the first rate, what lasts the second.
    TokenBucket {
        /// The rate of a burst.
        burst_bps: f64,
        /// The rate of what lasts.
        rate_bps: f64,
    },
    /// Delays are of two kinds: packets take two paths.
    Multipath,
    /// So large a share is lost without delay that delays say little.
    Lossy(f64),
    /// The sender or a clock did not keep time.
    Unsteady(Discard),
    /// It did not converge in time or within its cost.
    NotConverged,
}

/// Where the search is.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    /// The first train, as fast as it goes.
    First,
    /// The long one, in which a bucket would show.
    Long { rate_bps: f64 },
    /// The second point of the line.
    Second { first: [f64; 2] },
    /// Fleets.
    Search,
}

/// One estimate of one directed path.
#[derive(Clone, Debug)]
pub struct Estimator {
    limits: Limits,
    begin: Instant,
    phase: Phase,
    number: u32,
    /// The stream that is under way.
    pending: Option<StreamPlan>,
    /// The path rests until then.
    rest_until: Instant,
    fleet: Fleet,
    rate_bps: f64,
    capacity_bps: f64,
    /// The highest rate that was carried, the lowest that was not.
    low_bps: Option<f64>,
    high_bps: Option<f64>,
    /// Rates that were near.
    grey_bps: Option<[f64; 2]>,
    /// Fleets in a row that found the same end of the range.
    leaps: usize,
    batch_ns: u64,
    discarded: u32,
    bytes: u64,
    outcome: Option<Outcome>,
}

impl Estimator {
    /// Begins an estimate.
    #[must_use]
    pub fn new(limits: Limits, now: Instant) -> Self {
        Self {
            limits,
            begin: now,
            phase: Phase::First,
            number: 0,
            pending: None,
            rest_until: now,
            fleet: Fleet::default(),
            rate_bps: limits.rate_max_bps,
            capacity_bps: limits.rate_max_bps,
            low_bps: None,
            high_bps: None,
            grey_bps: None,
            leaps: 0,
            batch_ns: 0,
            discarded: 0,
            bytes: 0,
            outcome: None,
        }
    }

    /// What was found, once it is.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Bytes that were sent for it.
    #[must_use]
    pub fn cost_bytes(&self) -> u64 {
        self.bytes
    }

    /// When something is due: the next stream, or the end.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let end = self.begin.after(WITHIN);
        match (self.outcome, self.pending) {
            (Some(_), _) => None,
            (None, Some(_)) => Some(end),
            (None, None) => Some(self.rest_until.min(end)),
        }
    }

    /// The stream to send now, if there is one. It is under way until its outcome is told.
    pub fn poll_stream(&mut self, now: Instant) -> Option<StreamPlan> {
        if self.outcome.is_none() && now >= self.begin.after(WITHIN) {
            self.finish_late();
        }
        if self.outcome.is_some() || self.pending.is_some() || now < self.rest_until {
            return None;
        }
        let plan = self.plan(now);
        let cost = u64::from(plan.packets) * plan.len as u64;
        if self.phase == Phase::Search && self.bytes + cost > self.budget() {
            self.finish_late();
            return None;
        }
        self.bytes += cost;
        self.number += 1;
        self.pending = Some(plan);
        Some(plan)
    }

    /// A tenth of what a bulk transfer would carry at the least that is believed now.
    fn budget(&self) -> u64 {
        let believed = match (self.low_bps, self.high_bps) {
            (Some(low), _) => low,
            (None, Some(high)) => high * LEAPS[0],
            (None, None) => self.rate_bps,
        };
        (believed * BULK_S / 8.0 / f64::from(SHARE)) as u64
    }

    fn plan(&self, now: Instant) -> StreamPlan {
        let is_train = self.phase != Phase::Search;
        let rate = self.rate_bps;
        let is_small = match self.phase {
            Phase::First => true,
            Phase::Long { rate_bps } => rate_bps < SMALL_BELOW_BPS,
            Phase::Second { .. } | Phase::Search => rate < SMALL_BELOW_BPS,
        };
        let len = if is_small { self.limits.len_min } else { self.limits.len_max };
        let gap_s = (len * 8) as f64 / rate;
        let packets = match self.phase {
            Phase::First => TRAIN,
            Phase::Long { .. } | Phase::Second { .. } => LONG_TRAIN,
            Phase::Search => {
                let long = (self.batch_ns * BATCHES) as f64 / 1e9 / gap_s;
                (long as u32).clamp(PACKETS, PACKETS_MAX)
            }
        };
        let bulk = if rate > BULKS_ABOVE_BPS && !is_train { BULK } else { 1 };
        let gap = Duration::from_nanos((gap_s * 1e9) as u64);
        StreamPlan { number: self.number, packets, len, gap, bulk, at: now }
    }

    /// Takes what became of the stream that was under way.
    pub fn handle_stream(
        &mut self,
        number: u32,
        sent: &[Probe],
        arrivals: &[Arrival],
        now: Instant,
    ) {
        let Some(plan) = self.pending.take_if(|plan| plan.number == number) else { return };
        let lasted = plan.gap * plan.packets;
        self.rest_until = now.after(lasted * (SHARE - 1));
        let sent = ends_of_bulks(sent, plan.bulk);
        match judge(plan.len * plan.bulk as usize, &sent, arrivals) {
            Err(why) => {
                self.discarded += 1;
                if self.discarded > DISCARDED_MAX {
                    self.outcome = Some(Outcome::Unsteady(why));
                }
            }
            Ok(judged) => {
                self.discarded = 0;
                self.batch_ns = self.batch_ns.max(judged.batch_ns);
                self.learn(judged);
            }
        }
    }

    fn learn(&mut self, judged: Judged) {
        match self.phase {
            Phase::First => {
                self.rate_bps = judged.rate_bps;
                self.phase = Phase::Long { rate_bps: judged.out_bps };
            }
            Phase::Long { rate_bps } => {
                let [early, late] = judged.ends_bps;
                if early > late * BUCKET {
                    let bucket = Outcome::TokenBucket { burst_bps: early, rate_bps: late };
                    self.outcome = Some(bucket);
                }
                if judged.out_bps * 1.05 > judged.rate_bps {
                    // Nothing was slower than we are; fleets say whether that is so.
                    self.capacity_bps = judged.rate_bps;
                    self.phase = Phase::Search;
                    self.rate_bps = judged.rate_bps * 0.95;
                    return;
                }
                let first = [judged.rate_bps, judged.rate_bps / judged.out_bps];
                self.phase = Phase::Second { first };
                self.rate_bps = rate_bps.min(judged.out_bps) * 1.3;
            }
            Phase::Second { first } => self.draw_line(first, judged),
            Phase::Search => self.search(judged),
        }
    }

    /// The line through two loaded trains: rate in over rate out is `(rate + others) / capacity`.
    fn draw_line(&mut self, first: [f64; 2], judged: Judged) {
        let second = [judged.rate_bps, judged.rate_bps / judged.out_bps];
        let steep = (first[1] - second[1]) / (first[0] - second[0]);
        let capacity = 1.0 / steep;
        let others = first[1] * capacity - first[0];
        let dispersion = first[0] / first[1];
        self.capacity_bps = dispersion;
        self.rate_bps = dispersion * 0.7;
        if steep.is_finite() && capacity > dispersion * 0.8 && capacity < dispersion * 3.0 {
            self.capacity_bps = capacity.max(dispersion);
            let left = (self.capacity_bps - others).clamp(dispersion * 0.1, dispersion);
            self.rate_bps = left;
        }
        self.phase = Phase::Search;
    }

    fn search(&mut self, judged: Judged) {
        self.fleet.add(judged);
        if self.fleet.len() >= 4 && self.fleet.bimodal() * 2 > self.fleet.len() {
            self.outcome = Some(Outcome::Multipath);
            return;
        }
        let Some(verdict) = self.fleet.verdict(self.capacity_bps) else { return };
        let rate = self.fleet.rate_bps();
        if self.fleet.loss() > LOSS_MAX && verdict != Verdict::Above {
            self.outcome = Some(Outcome::Lossy(self.fleet.loss()));
            return;
        }
        self.fleet = Fleet::default();
        let is_known = self.low_bps.is_some() && self.high_bps.is_some();
        self.leaps = if is_known { 0 } else { self.leaps + 1 };
        match verdict {
            Verdict::Above => {
                self.high_bps = Some(self.high_bps.map_or(rate, |high| high.min(rate)));
                self.low_bps = self.low_bps.filter(|low| *low < rate);
                self.grey_bps = self.grey_bps.filter(|grey| grey[1] < rate);
            }
            Verdict::Below => {
                self.low_bps = Some(self.low_bps.map_or(rate, |low| low.max(rate)));
                self.high_bps = self.high_bps.filter(|high| *high > rate);
                self.grey_bps = self.grey_bps.filter(|grey| grey[0] > rate);
            }
            Verdict::Grey => {
                let [from, to] = self.grey_bps.unwrap_or([rate, rate]);
                self.grey_bps = Some([from.min(rate), to.max(rate)]);
            }
        }
        self.next_rate(rate);
    }

    /// The next rate, or the end.
    fn next_rate(&mut self, rate: f64) {
        let near = |from: f64, to: f64| to - from <= NEAR * f64::midpoint(from, to);
        let max = self.limits.rate_max_bps * 0.95;
        let leap = LEAPS[self.leaps.saturating_sub(1).min(LEAPS.len() - 1)];
        let next = match (self.low_bps, self.grey_bps, self.high_bps) {
            (Some(low), None, Some(high)) if near(low, high) => None,
            (Some(low), None, Some(high)) => Some(f64::midpoint(low, high)),
            (Some(low), Some([from, _]), _) if !near(low, from) => Some(f64::midpoint(low, from)),
            (_, Some([_, to]), Some(high)) if !near(to, high) => Some(f64::midpoint(to, high)),
            (Some(_), Some(_), Some(_)) => None,
            (None, Some([from, _]), _) => Some(from * leap),
            (_, Some([_, to]), None) => Some((to / leap).min(max)),
            (Some(low), None, None) if low >= max * 0.98 => {
                self.outcome = Some(Outcome::AtLeast(low));
                return;
            }
            (Some(low), None, None) => Some((low / leap).min(max)),
            (None, None, Some(high)) => Some(high * leap),
            (None, None, None) => Some(rate),
        };
        match next {
            Some(next) => self.rate_bps = next,
            None => self.finish(),
        }
    }

    fn finish(&mut self) {
        self.outcome = match (self.low_bps, self.high_bps) {
            // A rate counts as carried until it is ABOVE what is left.
            (Some(low), Some(high_bps)) => {
                Some(Outcome::Range { low_bps: low / (1.0 + ABOVE), high_bps })
            }
            _ => Some(Outcome::NotConverged),
        };
    }

    /// Time or cost is used up. Both ends of a range that is not much too wide are still true.
    fn finish_late(&mut self) {
        self.finish();
        if let Some(Outcome::Range { low_bps, high_bps }) = self.outcome
            && high_bps > low_bps * 2.0
        {
            self.outcome = Some(Outcome::NotConverged);
        }
    }
}

/// Of each bulk its last packet: with it the bulk was sent as a whole.
fn ends_of_bulks(sent: &[Probe], bulk: u32) -> Vec<Probe> {
    let last = |probe: &&Probe| bulk <= 1 || probe.sequence % bulk == bulk - 1;
    sent.iter().filter(last).copied().collect()
}
