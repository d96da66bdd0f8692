//! The controller: how many repair chunks a block gets. It makes a table when a report comes, and
//! looks a block up in it.
//!
//! For each k the table has the smallest r whose residual loss under the fitted model is at most
//! the target, and at most half of k; for TCP that fills the line no more of these than brings it
//! the most (`full`). The target is [`Spending::target`], or for TCP more where it would not
//! feel more ([`Control::target`]); so there are two tables. Three factors stand between model and
//! table: a boost while more is lost for good than promised, trust, which falls while repair
//! rebuilds little of what is missing, and the estimate itself, which leaves out what was lost in a
//! queue. The equations stand in docs/repair.md.

use wire::frame::Report;

pub use crate::bounds::CAP;
use crate::bounds::DEPTH_MAX;
use crate::tuning::{Spending, Tuning};
use crate::weather::estimate::{Estimate, Estimator};
use crate::weather::full::{Full, RENO};
use crate::weather::limits::Limits;
use crate::weather::model::{Model, Residuals};
use crate::weather::recent::Recent;
use crate::weather::table::{Aim, Sent, Table, Upper};

/// The least time between two tables: a peer sends a report each round trip or 100 ms, and one that
/// sends more must not cost a table for each.
const TABLE_US: u64 = 5_000;

/// The controller of one path's redundancy.
#[derive(Debug)]
pub struct Control {
    tuning: &'static Tuning,
    estimator: Estimator,
    estimate: Estimate,
    limits: Limits,
    /// By [`Upper`].
    tables: [Table; 2],
    trust: f64,
    /// When trust was last high enough, or tried again.
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

impl Control {
    /// Nothing known, [`crate::tuning::Unknown::loss`] assumed.
    #[must_use]
    pub fn new(tuning: &'static Tuning) -> Self {
        Self::within(Limits::usual(&tuning.waiting), tuning)
    }

    /// The same, within these bounds.
    #[must_use]
    pub fn within(limits: Limits, tuning: &'static Tuning) -> Self {
        let estimator = Estimator::new(&tuning.belief);
        let estimate = estimator.estimate();
        let mut control = Self {
            tuning,
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
            line_rate: Recent::new(tuning.queue.line_us),
            full: 0.0,
            queued: 0.0,
            lossy_us: None,
            watched: 0,
            rtt_us: None,
            rtt_least: Recent::new(tuning.spending.rtt_us),
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
            self.lossy_us = Some(now_us);
            self.watched = 0;
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
        let Tuning { unknown, queue, .. } = self.tuning;
        let is_jitter = self.estimate.reorder_us >= queue.least_us;
        !self.estimate.known && self.queued > unknown.filling && !is_jitter
    }

    /// Whether anything met a queue of a path that is not known.
    fn meets_queue(&self) -> bool {
        !self.estimate.known && self.queued > 0.0
    }

    /// Residual loss aimed at in blocks that are not few ([`Spending::few`]). With round trips
    /// as short as a loss is soon made up for, TCP pays less for it than repair would cost: what
    /// lets it be twice as quick as it is, or as 100 Mbit/s, or as the line. How much that may be
    /// depends on whether a queue stands: if none does, the flows may have longer round trips than
    /// the path. What else is lost nobody makes up for.
    #[must_use]
    pub fn target(&self, upper: Upper) -> f64 {
        let Tuning { spending, unknown, .. } = self.tuning;
        let Some(rtt_s) = self.rtt_s() else { return spending.target };
        let least = match self.estimate.known {
            true => spending.target,
            false if self.meets_queue() => unknown.queued_target,
            false => unknown.target,
        };
        if upper == Upper::Other {
            return least;
        }
        let rate = self.sent_rate.max(self.rate_min());
        let root = RENO / (rtt_s * rate * spending.headroom).max(1.0);
        let (runs_max, most) = if self.is_full() {
            (spending.runs_max_full, spending.target_max_full)
        } else {
            (spending.runs_max, spending.target_max)
        };
        // A run of losses is one to TCP.
        let runs = (root * root).clamp(spending.target, runs_max);
        if runs <= spending.target {
            return least;
        }
        (runs * self.estimate.model.burst()).clamp(least, most)
    }

    /// What TCP must be able to have, chunks a second.
    fn rate_min(&self) -> f64 {
        let rate_min = self.tuning.spending.rate_min;
        self.line_rate.max().map_or(rate_min, |rate| rate_min.min(rate as f64))
    }

    /// Whether what is sent fills the line lately.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full > self.tuning.queue.full_share
    }

    /// Data chunks of a full block of a lane.
    #[must_use]
    pub fn full_chunks(&self) -> usize {
        self.tuning.spending.lane_chunks(self.depth)
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
        let waiting = &self.tuning.waiting;
        let most_us = if self.estimate.known { waiting.ordered_us } else { waiting.hold_us };
        most_us.min(self.limits.filled_us(waiting))
    }

    /// Over how many lanes of [`crate::weather::spread::Spread`] chunks should be dealt; one where
    /// that saves less than a tenth, or would make a repair later than [`Control::ordered_us`].
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Repair chunks wanted for a block that closed with no more than
    /// [`Spending::few`]: up to one for each pair, and one for a single one. What may be spent
    /// is the business of [`crate::weather::spread`].
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
        let Tuning { telling, belief, .. } = self.tuning;
        let is_lossy = self.lossy_us.is_some_and(|at_us| {
            at_us.saturating_add(telling.watch_us) > now_us
                || f64::from(self.watched) < belief.known_chunks
        });
        is_lossy || !self.estimate.known
    }

    /// How far repair is trusted to help, zero to one.
    #[must_use]
    pub fn trust(&self) -> f64 {
        self.trust
    }

    /// Whether repair is trusted to help at all. Who overruns a queue loses what is not rebuilt.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.tuning.worth.is_met(self.trust)
    }

    fn expected_loss(&self) -> f64 {
        if self.is_filling() {
            return self.estimate.loss_upper;
        }
        let unknown = &self.tuning.unknown;
        let share = if self.meets_queue() { unknown.queued_share } else { 1.0 };
        let assumed = unknown.loss.min(self.estimate.loss_hidden * share);
        (self.estimate.loss_upper * self.boost).clamp(assumed, 1.0)
    }

    /// Holds what was promised against what came of it.
    fn weigh(&mut self, report: &Report, sent: Sent) {
        // Pieces that only tell their delay are in blocks, too, which have no repair.
        let mut in_blocks = 0.0;
        let mut repaired = 0.0;
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
        let worth = &self.tuning.worth;
        self.boost = (self.boost * worth.boost_kept).max(1.0);
        if self.missing < worth.evidence {
            return;
        }
        let share = self.rebuilt / self.missing;
        let gone = self.missing - self.rebuilt;
        if share < worth.poor {
            self.trust = (self.trust * worth.trust_kept).max(worth.trust_min);
        } else if share > worth.good {
            self.trust = (self.trust + worth.gain).min(1.0);
        }
        let promised = worth.chance + worth.chance_times * self.promised;
        // Nothing was promised where as much is left as brings TCP the most.
        let is_bound = self.is_slow() && self.is_full();
        let is_surprise = gone > promised && !self.estimate.stands_out;
        if share > worth.good && is_surprise && !is_bound {
            self.boost = (self.boost + worth.gain).min(worth.boost_max);
        }
        self.missing = 0.0;
        self.rebuilt = 0.0;
        self.promised = 0.0;
    }

    /// Trusts repair by half again where it was not trusted for long: with as little as was left
    /// nobody learns that the path has become one on which it helps. A peer that lies gains 2 % of
    /// the time (threat BC-09).
    fn try_again(&mut self, now_us: u64) {
        let worth = &self.tuning.worth;
        if self.trust >= worth.retried {
            self.trusted_us = now_us;
        } else if now_us >= self.trusted_us.saturating_add(worth.retry_us) {
            self.trust = worth.retried;
            self.trusted_us = now_us;
            self.missing = 0.0;
            self.rebuilt = 0.0;
            self.promised = 0.0;
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
        let Tuning { queue, spending, .. } = self.tuning;
        self.sent_rate += (rate - self.sent_rate) * spending.rate_gain;
        self.rate += (a_second(sent.all_in_blocks()) - self.rate) * spending.rate_gain;
        // Jitter is no queue.
        let jitter_us = reorder_us.saturating_mul(queue.jitter_times);
        let stands = queue_us >= jitter_us.saturating_add(queue.least_us);
        let over_us = if stands { queue.stands_us } else { queue.empty_us };
        let step = (since_us as f64 / over_us).min(1.0);
        self.full += (f64::from(u8::from(stands)) - self.full) * step;
        self.line_rate.handle_time(now_us);
        if stands && since_us >= queue.full_us {
            self.line_rate.handle_value(rate as i64, now_us);
        }
    }

    fn tabulate(&mut self) {
        self.tables = [Table::NONE; 2];
        self.depth = 1;
        if self.expected_loss() <= self.tuning.spending.target {
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
        let model = self.model(other);
        let aim = self.aim(other, None);
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
        let loss = if target > self.tuning.spending.target && is_known {
            (self.estimate.loss_likely * self.boost).min(1.0)
        } else {
            self.expected_loss()
        };
        let model = self.estimate.model.with_loss(loss);
        if self.estimate.known {
            return model;
        }
        let memory = model.memory.max(1.0 - 1.0 / self.tuning.unknown.burst);
        Model { memory, loss_in_bad: 1.0, ..model }
    }

    fn aim(&self, target: f64, full: Option<Full>) -> Aim {
        // Where the line is slow all blocks are small.
        let few_target = if self.is_slow() { target } else { self.tuning.spending.target };
        Aim { target, few_target, full, limits: self.limits, tuning: self.tuning }
    }

    /// The line, if what is sent fills it now; its losses are those planned for.
    fn full(&self, model: &Model) -> Option<Full> {
        let most = self.line_rate.max().filter(|_| self.is_full())?;
        let rtt_s = self.rtt_s()?;
        let rate = self.sent_rate.max(most as f64);
        let Spending { few, full_power: power, .. } = self.tuning.spending;
        let block = few.max((rate * self.ordered_us() as f64 / 1e6).ceil() as usize);
        Some(Full { rtt_s, rate, burst: model.burst(), block, power })
    }

    /// Whether what is sent filled the line, so that its rate is known.
    fn is_slow(&self) -> bool {
        self.line_rate.max().is_some()
    }

    /// Deals to the fewest lanes that save a tenth over fewer, or, where the cap binds, half of the
    /// residual loss; returns what is lost with so many.
    fn choose_depth(&mut self, model: &Model, aim: &Aim) -> Residuals {
        let spending = &self.tuning.spending;
        let cost = |residuals: &Residuals, depth| {
            let data = spending.lane_chunks(depth);
            let repair = aim.many(residuals, data);
            (repair as f64 / data as f64, residuals.residual(data, repair))
        };
        let together = self.rate * self.ordered_us() as f64 / 1e6;
        self.depth = 1;
        let mut residuals = Residuals::new(model);
        let mut least = cost(&residuals, 1);
        for depth in [2, 4, 8, 16] {
            let fits = (depth * spending.lane_chunks(depth)) as f64 <= together;
            if depth > DEPTH_MAX || !fits || model.memory <= 0.0 {
                break;
            }
            let tried = Residuals::new(&model.interleaved(depth));
            let (share, residual) = cost(&tried, depth);
            let mends = least.1 > aim.target && residual < least.1 / spending.deeper_part;
            let is_dearer = share > least.0 * spending.deeper_cost;
            if share < least.0 * spending.deeper_share || (mends && !is_dearer) {
                self.depth = depth;
                least = (share, residual);
                residuals = tried;
            }
        }
        residuals
    }
}

#[cfg(test)]
mod tests;
