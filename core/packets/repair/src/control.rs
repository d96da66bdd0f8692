//! The controller: how many repair chunks a block gets. It makes a table when a report comes, and
//! looks a block up in it.
//!
//! For each k the table has the smallest r whose residual loss under the fitted model is at most
//! the target, and at most half of k; for TCP that fills the line no more of these than brings it
//! the most (`full`). The target is [`TARGET`], or for TCP more where it would not feel
//! more ([`Control::target`]); so there are two tables. Three factors stand between model and
//! table: a boost while more is lost for good than promised, trust, which falls while repair
//! rebuilds little of what is missing, and the estimate itself, which leaves out what was lost in a
//! queue. The equations stand in docs/repair.md.

pub use crate::bounds::CAP;
use crate::bounds::{DEPTH_MAX, FEW, HOLD_US, ORDERED_US, lane_chunks};
use crate::estimate::{Estimate, Estimator};
use crate::full::{Full, RENO};
use crate::limits::Limits;
use crate::model::{Model, Residuals};
use crate::observe::QUEUE_US_MIN;
use crate::recent::Recent;
use crate::report::Report;
use crate::table::{Aim, Sent, TRUST_MIN, Table, Upper};

/// Residual loss aimed at, share of data chunks.
pub const TARGET: f64 = 1e-5;
/// The most runs of losses that are left to TCP where it bears them, and the most losses.
const RUNS_MAX: f64 = 1e-3;
const TARGET_MAX: f64 = 5e-3;
/// The same of TCP that fills the line, and so shows that it bears them.
const RUNS_MAX_FULL: f64 = 2e-2;
const TARGET_MAX_FULL: f64 = 4e-2;
/// TCP must be able to be so many times as quick as it is.
const HEADROOM: f64 = 2.0;
/// And no slower than this, in chunks a second (100 Mbit/s): who is slow now may just begin.
const RATE_MIN: f64 = 10_000.0;
/// Loss assumed of a path that is not known: a new flow can bear the least, and that is when a path
/// becomes known.
pub const UNKNOWN_LOSS: f64 = 0.025;
/// And losses to a run there. Repair planned for single losses rebuilds none of a run, and a new
/// flow pays for each that is left; planned for runs it costs more until the path is known, a
/// second or two.
const UNKNOWN_BURST: f64 = 3.0;
/// Residual loss aimed at there.
const UNKNOWN_TARGET: f64 = 5e-4;
/// And where something met a queue. Less would cost more than it saves: a first flight that
/// overruns a queue for its repair has lost what that was to save.
const QUEUED_TARGET: f64 = 2e-3;
/// There, what may hide is taken for this part of what can: `1 / n` instead of `3 / n`.
const QUEUED_SHARE: f64 = 1.0 / 3.0;
/// Where more than this share of what was judged last met a queue, an unknown path is being filled.
const FILLING: f64 = 0.2;
/// Missing chunks that a judgement of the repair's worth takes.
const EVIDENCE: f64 = 16.0;
const BOOST_MAX: f64 = 2.0;
/// Where repair was not trusted by half for so long it is again, to see whether it helps now.
const RETRY_US: u64 = 30_000_000;
const RETRIED: f64 = 0.5;
/// For how long, once or twice, the shortest round trip is remembered, and what a line takes.
const RTT_US: u64 = 5_000_000;
const LINE_US: u64 = 10_000_000;
/// For so long after a loss was reported packets tell their delay, and for so many.
const WATCH_US: u64 = 2_000_000;
const WATCHED: u32 = 1_000;
/// Between two reports must be so much time to say what a line takes.
const FULL_US: u64 = 50_000;
/// Over so long is averaged whether a queue stands, where one does and where none does. TCP that
/// fills a line empties the queue with each loss, and is back after some round trips.
const STANDS_US: f64 = 333_000.0;
const EMPTY_US: f64 = 1_000_000.0;
/// The least time between two tables: a peer sends a report each round trip or 100 ms, and one that
/// sends more must not cost a table for each.
const TABLE_US: u64 = 5_000;

/// The controller of one path's redundancy.
#[derive(Debug)]
pub struct Control {
    estimator: Estimator,
    estimate: Estimate,
    limits: Limits,
    /// By [`Upper`].
    tables: [Table; 2],
    trust: f64,
    /// When trust was last above [`RETRIED`], or tried again.
    trusted_us: u64,
    boost: f64,
    missing: f64,
    rebuilt: f64,
    /// Losses that the targets leave of what was sent in blocks meanwhile.
    promised: f64,
    /// What is sent in a second, smoothed, and how much of it fills blocks; and when the last
    /// report came.
    sent_rate: f64,
    rate: f64,
    before_us: Option<u64>,
    /// The highest rate of the last seconds at which a queue stood: what the line takes.
    line_rate: Recent,
    /// Of the last moments, the share in which a queue stood.
    full: f64,
    /// Of what the last report judged, the share that met a queue.
    queued: f64,
    /// When a loss was reported last, of weather or in a queue.
    lossy_us: Option<u64>,
    /// Judged since then.
    watched: u32,
    /// Round trip, smoothed, and the shortest of the last seconds, negative: microseconds.
    rtt_us: Option<f64>,
    rtt_least: Recent,
    /// Lanes that pay; the tables are for blocks dealt to so many.
    depth: usize,
    tabled_us: Option<u64>,
}

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}

impl Control {
    /// Nothing known, [`UNKNOWN_LOSS`] assumed.
    #[must_use]
    pub fn new() -> Self {
        Self::within(Limits::default())
    }

    /// The same, within these bounds.
    #[must_use]
    pub fn within(limits: Limits) -> Self {
        let estimator = Estimator::default();
        let estimate = estimator.estimate();
        let mut control = Self {
            estimator,
            estimate,
            limits,
            tables: [Table::NONE; 2],
            trust: 1.0,
            trusted_us: 0,
            boost: 1.0,
            missing: 0.0,
            rebuilt: 0.0,
            promised: 0.0,
            sent_rate: 0.0,
            rate: 0.0,
            before_us: None,
            line_rate: Recent::new(LINE_US),
            full: 0.0,
            queued: 0.0,
            lossy_us: None,
            watched: 0,
            rtt_us: None,
            rtt_least: Recent::new(RTT_US),
            depth: 1,
            tabled_us: None,
        };
        control.tabulate();
        control
    }

    /// Other bounds hold from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        if self.limits != limits {
            self.limits = limits;
            self.tabulate();
        }
    }

    /// The bounds that hold.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes a report in and makes the table anew, if the last one is not of just now. `sent` is
    /// what was sent since the last report.
    pub fn handle_report(&mut self, report: &Report, sent: Sent, now_us: u64) {
        self.estimator.handle_report(report, now_us);
        if report.lost() > 0 {
            (self.lossy_us, self.watched) = (Some(now_us), 0);
        }
        self.watched = self.watched.saturating_add(report.judged());
        self.queued = f64::from(report.queued.judged) / f64::from(report.judged().max(1));
        self.estimate = self.estimator.estimate();
        self.weigh(report, sent);
        self.try_again(now_us);
        self.note_line(sent, (report.queue_us, report.reorder_us), now_us);
        if self.tabled_us.is_none_or(|at_us| at_us.saturating_add(TABLE_US) <= now_us) {
            self.tabled_us = Some(now_us);
            self.tabulate();
        }
    }

    /// Takes in a round trip, without what it waited in queues. Call before
    /// [`Control::handle_report`].
    pub fn handle_rtt(&mut self, rtt_us: u32, now_us: u64) {
        let before_us = self.rtt_us.unwrap_or_else(|| f64::from(rtt_us));
        self.rtt_us = Some(before_us + (f64::from(rtt_us) - before_us) / 8.0);
        self.rtt_least.handle_value(-i64::from(rtt_us), now_us);
    }

    /// The round trip without queues, in seconds. Reports tell of the shortest queue alone, so what
    /// goes beyond the shortest round trip by more than jitter explains is taken for a queue, too;
    /// and where packets come late by so much, both ways together take that long on average, though
    /// the first that were measured took less.
    fn rtt_s(&self) -> Option<f64> {
        let late_us = self.estimate.reorder_us;
        let most_us = 2 * i64::from(late_us) - self.rtt_least.max()?;
        Some(self.rtt_us?.min(most_us as f64).max(f64::from(late_us)) / 1e6)
    }

    /// Whether a first flight fills the line, and nothing else is known of it. Whatever is added
    /// then comes on top of what the line cannot take. Jitter looks like that, too.
    fn is_filling(&self) -> bool {
        let is_jitter = self.estimate.reorder_us >= QUEUE_US_MIN;
        !self.estimate.known && self.queued > FILLING && !is_jitter
    }

    /// Whether anything met a queue of a path that is not known.
    fn meets_queue(&self) -> bool {
        !self.estimate.known && self.queued > 0.0
    }

    /// Residual loss aimed at in blocks that are not few ([`crate::spread::FEW`]). With round trips
    /// as short as a loss is soon made up for, TCP pays less for it than repair would cost: what
    /// lets it be twice as quick as it is, or as 100 Mbit/s, or as the line. How much that may be
    /// depends on whether a queue stands: if none does, the flows may have longer round trips than
    /// the path. What else is lost nobody makes up for.
    #[must_use]
    pub fn target(&self, upper: Upper) -> f64 {
        let Some(rtt_s) = self.rtt_s() else { return TARGET };
        let least = match self.estimate.known {
            true => TARGET,
            false if self.meets_queue() => QUEUED_TARGET,
            false => UNKNOWN_TARGET,
        };
        if upper == Upper::Other {
            return least;
        }
        let rate = self.sent_rate.max(self.rate_min());
        let root = RENO / (rtt_s * rate * HEADROOM).max(1.0);
        let (runs_max, most) =
            if self.is_full() { (RUNS_MAX_FULL, TARGET_MAX_FULL) } else { (RUNS_MAX, TARGET_MAX) };
        // A run of losses is one to TCP.
        let runs = (root * root).clamp(TARGET, runs_max);
        if runs > TARGET { (runs * self.estimate.model.burst()).clamp(least, most) } else { least }
    }

    /// What TCP must be able to have, chunks a second.
    fn rate_min(&self) -> f64 {
        self.line_rate.max().map_or(RATE_MIN, |rate| RATE_MIN.min(rate as f64))
    }

    /// Whether what is sent fills the line lately.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full > 0.5
    }

    /// Repair chunks for a block of `data` chunks dealt to [`Control::depth`] lanes; at most half
    /// as many.
    #[must_use]
    pub fn repair_chunks(&self, upper: Upper, data: usize) -> usize {
        self.tables[upper as usize].many(data)
    }

    /// How long a block with data of TCP fills, at most. In a first flight an earlier repair is
    /// better.
    #[must_use]
    pub fn ordered_us(&self) -> u64 {
        let most_us = if self.estimate.known { ORDERED_US } else { HOLD_US };
        most_us.min(self.limits.filled_us())
    }

    /// Over how many lanes of [`crate::spread::Spread`] chunks should be dealt; one where that
    /// saves less than a tenth, or would make a repair later than [`Control::ordered_us`].
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Repair chunks wanted for a block that closed with no more than
    /// [`crate::spread::FEW`]: up to one for each pair, and one for a single one. What may be spent
    /// is the business of [`crate::spread`].
    #[must_use]
    pub fn few_chunks(&self, upper: Upper, data: usize) -> usize {
        self.tables[upper as usize].few(data)
    }

    /// Chunks a second that fill blocks, smoothed over some reports.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// What the line takes: the most of [`Control::sent_rate`], not smoothed, in the last 10 to
    /// 20 s while a queue stood. `None` where none did.
    #[must_use]
    pub fn line_rate(&self) -> Option<f64> {
        self.line_rate.max().map(|rate| rate as f64)
    }

    /// Data chunks and bare packets sent a second, smoothed over some reports.
    #[must_use]
    pub fn sent_rate(&self) -> f64 {
        self.sent_rate
    }

    /// What is believed about the path.
    #[must_use]
    pub fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    /// Whether nothing of these is to be repaired, in blocks of any size: they travel as they are,
    /// and nobody waits for what is missing.
    #[must_use]
    pub fn is_calm(&self, upper: Upper) -> bool {
        self.tables[upper as usize].is_empty()
    }

    /// Whether the other end must be told delays though there is nothing to repair: the path is not
    /// known, or something was lost lately, and whether in a queue or not nobody can say without
    /// them.
    #[must_use]
    pub fn is_watching(&self, now_us: u64) -> bool {
        let is_over = |at_us: u64| at_us.saturating_add(WATCH_US) <= now_us;
        let is_lossy = self.lossy_us.is_some_and(|at_us| !is_over(at_us) || self.watched < WATCHED);
        is_lossy || !self.estimate.known
    }

    /// How far repair is trusted to help, zero to one.
    #[must_use]
    pub fn trust(&self) -> f64 {
        self.trust
    }

    fn expected_loss(&self) -> f64 {
        if self.is_filling() {
            return self.estimate.loss_upper;
        }
        let share = if self.meets_queue() { QUEUED_SHARE } else { 1.0 };
        let assumed = UNKNOWN_LOSS.min(self.estimate.loss_hidden * share);
        (self.estimate.loss_upper * self.boost).clamp(assumed, 1.0)
    }

    /// Holds what was promised against what came of it.
    fn weigh(&mut self, report: &Report, sent: Sent) {
        // Pieces that only tell their delay are in blocks, too, which have no repair.
        let (mut in_blocks, mut repaired) = (0.0, 0.0);
        for upper in [Upper::Tcp, Upper::Other] {
            let sent = sent.in_blocks[upper as usize] as f64;
            in_blocks += sent;
            if !self.is_calm(upper) {
                repaired += sent;
                self.promised += self.target(upper) * sent;
            }
        }
        let part = if in_blocks > 0.0 { repaired / in_blocks } else { 0.0 };
        let rebuilt = f64::from(report.rebuilt.min(report.missing));
        self.missing += (f64::from(report.missing) * part).max(rebuilt);
        self.rebuilt += rebuilt;
        self.boost = (self.boost * 0.99).max(1.0);
        if self.missing < EVIDENCE {
            return;
        }
        let share = self.rebuilt / self.missing;
        let gone = self.missing - self.rebuilt;
        if share < 0.25 {
            self.trust = (self.trust * 0.8).max(TRUST_MIN);
        } else if share > 0.5 {
            self.trust = (self.trust + 0.1).min(1.0);
        }
        // Three chunks more than promised are no chance.
        let promised = 3.0 + 10.0 * self.promised;
        // Nothing was promised where as much is left as brings TCP the most.
        let is_bound = self.is_slow() && self.is_full();
        if share > 0.5 && gone > promised && !self.estimate.stands_out && !is_bound {
            self.boost = (self.boost + 0.1).min(BOOST_MAX);
        }
        (self.missing, self.rebuilt, self.promised) = (0.0, 0.0, 0.0);
    }

    /// Trusts repair by half again where it was not trusted for long: with as little as was left
    /// nobody learns that the path has become one on which it helps. A peer that lies gains 2 % of
    /// the time (threat BC-09).
    fn try_again(&mut self, now_us: u64) {
        if self.trust >= RETRIED {
            self.trusted_us = now_us;
        } else if now_us >= self.trusted_us.saturating_add(RETRY_US) {
            (self.trust, self.trusted_us) = (RETRIED, now_us);
            (self.missing, self.rebuilt, self.promised) = (0.0, 0.0, 0.0);
        }
    }

    /// Notes how much is sent, and whether that fills the line.
    fn note_line(&mut self, sent: Sent, (queue_us, reorder_us): (u32, u32), now_us: u64) {
        let since_us = self.before_us.replace(now_us).map_or(0, |us| now_us.saturating_sub(us));
        if since_us == 0 {
            return;
        }
        let a_second = |count: u64| count as f64 * 1e6 / since_us as f64;
        let rate = a_second(sent.all);
        self.sent_rate += (rate - self.sent_rate) * 0.3;
        self.rate += (a_second(sent.all_in_blocks()) - self.rate) * 0.3;
        // Jitter is no queue.
        let stands = queue_us >= reorder_us.saturating_mul(2).saturating_add(QUEUE_US_MIN);
        let over_us = if stands { STANDS_US } else { EMPTY_US };
        let step = (since_us as f64 / over_us).min(1.0);
        self.full += (f64::from(u8::from(stands)) - self.full) * step;
        self.line_rate.handle_time(now_us);
        if stands && since_us >= FULL_US {
            self.line_rate.handle_value(rate as i64, now_us);
        }
    }

    fn tabulate(&mut self) {
        (self.tables, self.depth) = ([Table::NONE; 2], 1);
        if self.expected_loss() <= TARGET {
            return;
        }
        let [tcp, other] = [Upper::Tcp, Upper::Other].map(|upper| self.target(upper));
        let model = self.model(tcp);
        let aim = self.aim(tcp, self.full(&model));
        let residuals = self.choose_depth(&model, &aim);
        self.tables[Upper::Tcp as usize] = Table::new(&residuals, &aim, self.trust);
        if other == tcp && aim.full.is_none() {
            self.tables[Upper::Other as usize] = self.tables[Upper::Tcp as usize].clone();
            return;
        }
        let (model, aim) = (self.model(other), self.aim(other, None));
        // All share the lanes: those of TCP, if any of it is repaired.
        let residuals = if self.is_calm(Upper::Tcp) {
            self.choose_depth(&model, &aim)
        } else {
            Residuals::new(&model.interleaved(self.depth))
        };
        self.tables[Upper::Other as usize] = Table::new(&residuals, &aim, self.trust);
    }

    /// What is planned for.
    fn model(&self, target: f64) -> Model {
        // What TCP bears it bears a little more of, too: no margin for chance there.
        // Where nothing was judged yet, nothing lost means nothing.
        let is_judged = self.estimate.loss_hidden < 1.0;
        let is_known = self.estimate.known || (self.is_slow() && is_judged);
        let loss = if target > TARGET && is_known {
            (self.estimate.loss_likely * self.boost).min(1.0)
        } else {
            self.expected_loss()
        };
        let model = self.estimate.model.with_loss(loss);
        if self.estimate.known {
            return model;
        }
        let memory = model.memory.max(1.0 - 1.0 / UNKNOWN_BURST);
        Model { memory, loss_in_bad: 1.0, ..model }
    }

    fn aim(&self, target: f64, full: Option<Full>) -> Aim {
        // Where the line is slow all blocks are small.
        let few_target = if self.is_slow() { target } else { TARGET };
        Aim { target, few_target, full, limits: self.limits }
    }

    /// The line, if what is sent fills it now; its losses are those planned for.
    fn full(&self, model: &Model) -> Option<Full> {
        let most = self.line_rate.max().filter(|_| self.is_full())?;
        let (rtt_s, rate) = (self.rtt_s()?, self.sent_rate.max(most as f64));
        let block = FEW.max((rate * self.ordered_us() as f64 / 1e6).ceil() as usize);
        Some(Full { rtt_s, rate, burst: model.burst(), block })
    }

    /// Whether what is sent filled the line, so that its rate is known.
    fn is_slow(&self) -> bool {
        self.line_rate.max().is_some()
    }

    /// Deals to the fewest lanes that save a tenth over fewer, or, where the cap binds, half of the
    /// residual loss; returns what is lost with so many.
    fn choose_depth(&mut self, model: &Model, aim: &Aim) -> Residuals {
        let cost = |residuals: &Residuals, depth| {
            let data = lane_chunks(depth);
            let repair = aim.many(residuals, data);
            (repair as f64 / data as f64, residuals.residual(data, repair))
        };
        let together = self.rate * self.ordered_us() as f64 / 1e6;
        self.depth = 1;
        let mut residuals = Residuals::new(model);
        let mut least = cost(&residuals, 1);
        for depth in [2, 4, 8, 16] {
            let fits = (depth * lane_chunks(depth)) as f64 <= together;
            if depth > DEPTH_MAX || !fits || model.memory <= 0.0 {
                break;
            }
            let tried = Residuals::new(&model.interleaved(depth));
            let (share, residual) = cost(&tried, depth);
            let mends = least.1 > aim.target && residual < least.1 / 2.0 && share <= least.0 * 1.05;
            if share < least.0 * 0.9 || mends {
                (self.depth, least, residuals) = (depth, (share, residual), tried);
            }
        }
        residuals
    }
}

#[cfg(test)]
mod tests;
