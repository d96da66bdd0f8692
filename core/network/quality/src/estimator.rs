//! The search: which stream comes next, and when there is an answer.

use core::time::Duration;

use noise::Instant;

use crate::stream::{Arrival, Discard, Judged, Probe, Queued, judge};

/// An estimate takes no longer.
const WITHIN: Duration = Duration::from_secs(60);
/// Packets of a stream at least.
const PACKETS: u32 = 100;
/// Packets of a stream at most.
const PACKETS_MAX: u32 = 1000;
/// Packets of the first train, and of the others.
const TRAIN: u32 = 60;
const LONG_TRAIN: u32 = 160;
/// Packets that leave at once in front of a stream, of its others: their queue outlives what
/// comes by chance, and shows whether delays shrink.
const LEAD: f64 = 0.25;
/// And at most.
const LEAD_MAX: f64 = 1.0;
/// A rate goes up so far where nothing queued.
const LEAP: f64 = 1.25;
/// A stream lasts so long at least: what a shaper lets pass at once is then little of it.
const STREAM_NS: u64 = 8_000_000;
/// A stream lasts so many batches of the receiver.
const BATCHES: u64 = 20;
/// The path is loaded for one part in so many of the time, and of a bulk's ten seconds.
const SHARE: u32 = 10;
/// Seconds of the bulk transfer that an estimate is compared with.
const BULK_S: f64 = 10.0;
/// Above so many bits a second a timer's jitter is too near to a gap, and packets leave in bulks.
const BULKS_ABOVE_BPS: f64 = 200e6;
/// Packets of a bulk.
const BULK: u32 = 8;
/// Below so many bits a second packets are small, so that a stream costs less.
const SMALL_BELOW_BPS: f64 = 30e6;
/// A train queues that is sent so many times as fast as it arrives.
const QUEUES: f64 = 1.05;
/// And a lead whose queue drains no more than so many times as fast as the capacity.
const DRAIN: f64 = 8.0;
/// Who sends at less than this share of what was planned cannot send quicker.
const SLOW: f64 = 0.9;
/// Each end of the range is so far from its middle at least: lengths of packets and the capacity
/// are not known better.
const MARGIN: f64 = 0.05;
/// And at most.
const MARGIN_MAX: f64 = 0.2;
/// A stream's rate is no farther than this from what is left, or the capacity weighs too much.
const APART: f64 = 0.2;
/// Delays grow where they grow in so many streams, as they would at this share above what is left.
const CHECKS: u32 = 3;
const GROWTH: f64 = 0.005;
/// Streams that agree at least; of many, so many standard errors are an end of the range.
const STREAMS_MIN: usize = 5;
const ERRORS: f64 = 2.0;
/// Streams in a row that say nothing before the estimate says so.
const DISCARDED_MAX: u32 = 20;
/// Loss without delay from which loss is the answer.
const LOSS_MAX: f64 = 0.03;
/// In so many streams, each slower than the one before.
const LOSSY_MAX: u32 = 6;
/// The head of a long train is so much quicker than its end where a bucket was full.
const BUCKET: f64 = 3.0;

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
        Self { rate_max_bps: 2e9, len_max: 1200, len_min: 300 }
    }
}

/// A stream that is to be sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StreamPlan {
    /// Its number, which tells streams apart.
    pub number: u32,
    /// How many packets.
    pub packets: u32,
    /// So many of them leave as fast as it goes, before the others.
    pub lead: u32,
    /// Bytes of each, headers included.
    pub len: usize,
    /// From one packet to the next behind the lead; of a bulk's packets all leave at once. Who is
    /// late does not make up for it: that would be a burst.
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
        /// It is no less.
        low_bps: f64,
        /// And no more.
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
    Long { out_bps: f64 },
    /// The second point of the line.
    Second { first: [f64; 2] },
    /// Streams behind a lead.
    Search,
    /// Streams without one, a little below what was found: so many of them had growing delays. What
    /// one stream says was so far off by chance before.
    Check { count: u32, chance_bps: f64 },
}

/// What one stream says of the path.
#[derive(Clone, Copy, Debug)]
struct Said {
    rate_bps: f64,
    left_bps: f64,
    weight: f64,
}

/// What streams say together.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    left_bps: f64,
    /// Each end of the range is so far away.
    margin_bps: f64,
    /// What one stream says is so far from it by chance.
    chance_bps: f64,
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
    rate_bps: f64,
    capacity_bps: f64,
    /// What streams said.
    streams: Vec<Said>,
    /// What streams lost that came last, and how many lost much.
    lost: f64,
    lossy: u32,
    /// Streams with delays of two kinds.
    bimodal: usize,
    lead: f64,
    batch_ns: u64,
    discarded: u32,
    /// Streams have so many times the packets, since shorter ones came all at once.
    times: u32,
    /// Trains whose head was much quicker than their end.
    buckets: u32,
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
            rate_bps: limits.rate_max_bps,
            capacity_bps: limits.rate_max_bps,
            streams: Vec::new(),
            lost: 0.0,
            lossy: 0,
            bimodal: 0,
            lead: LEAD,
            batch_ns: 0,
            discarded: 0,
            times: 1,
            buckets: 0,
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
            self.finish();
        }
        if self.outcome.is_some() || self.pending.is_some() || now < self.rest_until {
            return None;
        }
        let plan = self.plan(now);
        let cost = u64::from(plan.packets) * plan.len as u64;
        if self.is_judged() && self.bytes + cost > self.budget() {
            self.finish();
            return None;
        }
        self.bytes += cost;
        self.number += 1;
        self.pending = Some(plan);
        Some(plan)
    }

    /// Whether the path is known somewhat.
    fn is_judged(&self) -> bool {
        matches!(self.phase, Phase::Search | Phase::Check { .. })
    }

    /// A tenth of what a bulk transfer would carry at what is believed now.
    fn budget(&self) -> u64 {
        let believed = self.estimate().map_or(self.rate_bps, |found| found.left_bps);
        (believed * BULK_S / 8.0 / f64::from(SHARE)) as u64
    }

    fn plan(&self, now: Instant) -> StreamPlan {
        let rate_bps = self.rate_bps;
        // By how fast its packets arrive.
        let out_bps = match self.phase {
            Phase::First => 0.0,
            Phase::Long { out_bps } => out_bps,
            _ => rate_bps,
        };
        let len = if out_bps < SMALL_BELOW_BPS { self.limits.len_min } else { self.limits.len_max };
        let bits = (len * 8) as f64;
        let during = |ns: u64| (out_bps * ns as f64 / 1e9 / bits) as u32;
        let count = match self.phase {
            Phase::First => TRAIN,
            Phase::Long { .. } | Phase::Second { .. } => during(STREAM_NS).max(LONG_TRAIN),
            _ => during(STREAM_NS.max(self.batch_ns * BATCHES)).max(PACKETS),
        };
        let lead = if self.phase == Phase::Search { self.lead } else { 0.0 };
        let is_bulks = rate_bps > BULKS_ABOVE_BPS && self.phase != Phase::First;
        let bulk = if is_bulks { BULK } else { 1 };
        let whole = |packets: f64| packets as u32 / bulk * bulk;
        let all = (f64::from(count * self.times) * (1.0 + lead)).min(PACKETS_MAX.into());
        StreamPlan {
            number: self.number,
            packets: whole(all),
            lead: whole(all * lead / (1.0 + lead)),
            len,
            gap: Duration::from_nanos((bits * 1e9 / rate_bps) as u64),
            bulk,
            at: now,
        }
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
        let lasted = (plan.gap * plan.packets).max(span(arrivals));
        self.rest_until = now.after(lasted * (SHARE - 1));
        match judge(plan.len, plan.lead, sent, arrivals) {
            Err(why) => self.discard(why),
            // Where nothing queued it may be for the pause.
            Ok(judged) if judged.is_paused && judged.queued.is_none() && self.wants_queue() => {
                self.discard(Discard::SenderPaused);
            }
            Ok(judged) => {
                self.discarded = 0;
                self.batch_ns = judged.batch_ns;
                self.learn(judged);
            }
        }
    }

    fn wants_queue(&self) -> bool {
        matches!(self.phase, Phase::Long { .. } | Phase::Second { .. } | Phase::Search)
    }

    fn discard(&mut self, why: Discard) {
        self.discarded += 1;
        if why == Discard::Short {
            self.times = (self.times * 2).min(PACKETS_MAX);
        }
        if self.discarded > DISCARDED_MAX {
            self.outcome = Some(Outcome::Unsteady(why));
        }
    }

    fn learn(&mut self, judged: Judged) {
        match self.phase {
            Phase::First => {
                self.rate_bps = judged.rate_bps;
                self.phase = Phase::Long { out_bps: judged.out_bps };
            }
            Phase::Long { out_bps } => {
                let [early, late] = judged.ends_bps;
                // Once is chance.
                if early > late * BUCKET {
                    self.buckets += 1;
                    if self.buckets > 1 {
                        let bucket = Outcome::TokenBucket { burst_bps: early, rate_bps: late };
                        self.outcome = Some(bucket);
                    }
                    return;
                }
                let first = judged.in_out();
                if first[1] > QUEUES {
                    self.phase = Phase::Second { first };
                    self.rate_bps = out_bps.min(first[0] / first[1]) * 1.3;
                } else {
                    // Nothing was slower than we are; streams say whether that is so.
                    self.capacity_bps = first[0];
                    self.phase = Phase::Search;
                    self.rate_bps = first[0] * 0.95;
                }
            }
            Phase::Second { first } => self.draw_line(first, judged),
            Phase::Search => self.search(judged),
            Phase::Check { count, chance_bps } => self.check(&judged, count, chance_bps),
        }
    }

    /// The line through two loaded trains: rate in over rate out is `(rate + others) / capacity`.
    fn draw_line(&mut self, first: [f64; 2], judged: Judged) {
        let second = judged.in_out();
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
        if judged.loss > LOSS_MAX {
            return self.lose(judged.loss);
        }
        self.lost = 0.0;
        self.lossy = 0;
        self.bimodal += usize::from(judged.is_bimodal);
        // A jitter is no queue.
        let is_queue = |queued: &Queued| queued.drain_bps <= self.capacity_bps * DRAIN;
        let Some(queued) = judged.queued.filter(is_queue) else {
            return self.climb(&judged);
        };
        let Queued { rate_bps, growth, lasted_ns, is_cut, .. } = queued;
        if judged.lead_loss > LOSS_MAX {
            // The queue has not so much room.
            self.lead /= 2.0;
        } else if is_cut {
            self.lead = (self.lead * LEAP).min(LEAD_MAX);
        }
        let left_bps = rate_bps - self.capacity_bps * growth;
        self.streams.push(Said { rate_bps, left_bps, weight: lasted_ns as f64 });
        let count = self.streams.len();
        if count >= 4 && self.bimodal * 2 > count {
            self.outcome = Some(Outcome::Multipath);
            return;
        }
        let found = self.estimate();
        // One stream does not say much, and may say nonsense.
        let [low, high] = [0.5, 2.0].map(|times| rate_bps * times);
        let next_bps = found.map_or(left_bps, |found| found.left_bps).clamp(low, high);
        self.rate_bps = next_bps.min(self.limits.rate_max_bps);
        if let Some(found) = found.filter(|found| found.margin_bps <= found.left_bps * MARGIN) {
            self.phase = Phase::Check { count: 0, chance_bps: found.chance_bps };
            self.rate_bps *= 1.0 - MARGIN;
        }
    }

    /// A queue that is full loses what others send, too, and says nothing of what they leave. A
    /// path that loses without one goes on when less is sent.
    fn lose(&mut self, loss: f64) {
        self.lost += loss;
        self.lossy += 1;
        if self.lossy >= LOSSY_MAX {
            self.outcome = Some(Outcome::Lossy(self.lost / f64::from(self.lossy)));
        }
        self.lead /= 2.0;
        self.rate_bps /= LEAP;
    }

    /// The lead queues at the slowest line. Is that not the one with least left, then delays grow
    /// where they should not, and what was found is another's.
    fn check(&mut self, judged: &Judged, count: u32, chance_bps: f64) {
        let above_bps = judged.growth * self.capacity_bps;
        // What one stream says by chance is no growth.
        if above_bps <= self.rate_bps * GROWTH + chance_bps {
            self.finish();
        } else if count + 1 < CHECKS {
            // Or others began to send after all streams, and the range has to hold that, too.
            let rate_bps = judged.rate_bps;
            let weight = self.streams.last().map_or(0.0, |said| said.weight);
            self.streams.push(Said { rate_bps, left_bps: rate_bps - above_bps, weight });
            self.phase = Phase::Check { count: count + 1, chance_bps };
        } else {
            self.outcome = Some(Outcome::NotConverged);
        }
    }

    /// Nothing queued, or not for long: more is left, or the lead was too short.
    fn climb(&mut self, judged: &Judged) {
        let rate_bps = judged.rate_bps;
        let is_slow = rate_bps < self.rate_bps * SLOW;
        // Where packets queued once, the sender is quick enough.
        if self.streams.is_empty() && (is_slow || self.rate_bps >= self.limits.rate_max_bps) {
            // What came slower than it left did queue, and the receiver's batches hide how.
            if judged.out_bps * QUEUES < rate_bps {
                self.capacity_bps = self.capacity_bps.min(judged.out_bps);
                self.rate_bps = judged.out_bps;
                return;
            }
            self.outcome = Some(Outcome::AtLeast(rate_bps));
            return;
        }
        self.lead = (self.lead * LEAP).min(LEAD_MAX);
        self.rate_bps = (self.rate_bps * LEAP).min(self.limits.rate_max_bps);
    }

    /// What streams say together that were sent at about what is left.
    fn estimate(&self) -> Option<Estimate> {
        let mut all: Vec<f64> = self.streams.iter().map(|said| said.left_bps).collect();
        all.sort_by(f64::total_cmp);
        let middle = *all.get(all.len() / 2)?;
        let is_near = |said: &&Said| (said.rate_bps - middle).abs() <= middle * APART;
        let near: Vec<&Said> = self.streams.iter().filter(is_near).collect();
        if near.is_empty() {
            return None;
        }
        let weights: f64 = near.iter().map(|said| said.weight).sum();
        let left_bps = near.iter().map(|said| said.left_bps * said.weight).sum::<f64>() / weights;
        let off = |said: &&Said| ((said.left_bps - left_bps) * said.weight / weights).powi(2);
        let count = near.len() as f64;
        let error_bps = (near.iter().map(off).sum::<f64>() * count / (count - 1.0)).sqrt();
        // Few streams agree by chance, the more as it is asked after each.
        let errors = ERRORS * (1.0 + 2.0 / (count - 3.0));
        let is_known = near.len() >= STREAMS_MIN;
        let margin_bps = if is_known { error_bps * errors } else { f64::INFINITY };
        Some(Estimate { left_bps, margin_bps, chance_bps: error_bps * count.sqrt() })
    }

    fn finish(&mut self) {
        let found = self.estimate().filter(|e| e.margin_bps <= e.left_bps * MARGIN_MAX);
        self.outcome = Some(found.map_or(Outcome::NotConverged, |e| {
            let margin_bps = e.margin_bps.max(e.left_bps * MARGIN);
            Outcome::Range { low_bps: e.left_bps - margin_bps, high_bps: e.left_bps + margin_bps }
        }));
    }
}

/// For so long packets arrived.
fn span(arrivals: &[Arrival]) -> Duration {
    let times = || arrivals.iter().map(|arrival| arrival.received_ns);
    let first = times().min().unwrap_or(0);
    let last = times().max().unwrap_or(0);
    Duration::from_nanos(last - first)
}
