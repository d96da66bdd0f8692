//! One direction of a link: a line with a rate and a queue, and the weather after it.
//!
//! A packet first waits for the line and is sent bit by bit at `rate_bps`; when `limit_packets`
//! are waiting or being sent, it is dropped from the tail. What has left the line is lost,
//! duplicated, sent on at once (`reorder`) or delayed by `delay_us` ± `jitter_us`, evenly
//! spread, a negative sum counting as zero. A later packet may so overtake an earlier one, as
//! it does in Linux's netem, whose arithmetic this follows (net/sched/sch_netem.c): that of the
//! correlation too, which makes reordering rarer than `reorder` says, the more the higher
//! it is. A line that lost packets was busy with them nevertheless.
//!
//! A way that is handed over, as one by satellites is, has another length after each handover:
//! `handover_us` is the time from one to the next, and each moves the mean delay by at most
//! `swing_us`. Which handover it is follows from the time of the packet alone.

use std::collections::VecDeque;
use std::fmt;

use crate::rng::Rng;

/// Largest accepted queue, packets.
pub const LIMIT_PACKETS_MAX: usize = 1 << 20;
/// Longest accepted delay and jitter: one minute.
pub const DELAY_US_MAX: u64 = 60_000_000;

/// How losses are spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LossModel {
    /// Each packet on its own.
    Bernoulli,
    /// In bursts: a good state without loss, and a bad state that lasts `burst_packets` in the
    /// mean (at least one) and loses a share `loss_in_burst` of its packets. How often the bad
    /// state is entered follows from [`Impairment::loss`], which stays the overall share.
    GilbertElliott {
        /// Mean length of the bad state, packets.
        burst_packets: f64,
        /// Share lost in the bad state, above the overall share and at most one.
        loss_in_burst: f64,
    },
}

/// What one direction of a link does to packets. Shares are between zero and one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Impairment {
    /// Mean delay after the line.
    pub delay_us: u64,
    /// Largest deviation from it, evenly spread.
    pub jitter_us: u64,
    /// From one handover to the next; zero is a way that stays.
    pub handover_us: u64,
    /// Largest deviation of the mean delay that a handover leaves, evenly spread.
    pub swing_us: u64,
    /// Share of packets lost.
    pub loss: f64,
    /// How losses are spread.
    pub loss_model: LossModel,
    /// Share of packets that skip the delay, before correlation.
    pub reorder: f64,
    /// How much one such decision resembles the one before.
    pub reorder_correlation: f64,
    /// Share of packets that arrive twice, the second with a delay of its own.
    pub duplicate: f64,
    /// Bits a second on the line; zero is a line without limit.
    pub rate_bps: u64,
    /// Most packets waiting for the line, the one on it included.
    pub limit_packets: usize,
}

/// Which bound an impairment breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// A share is not between zero and one.
    Share(&'static str),
    /// `delay_us`, `jitter_us` or `swing_us` is above [`DELAY_US_MAX`].
    Delay,
    /// The delay swings, and no handover is told that would change it.
    Handover,
    /// `limit_packets` is zero or above [`LIMIT_PACKETS_MAX`].
    Limit,
    /// A burst is shorter than one packet, or cannot yield the overall loss.
    Burst,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It arrives.
    Deliver {
        /// When, in the time of `offer`.
        at_ns: u64,
        /// When its duplicate arrives, if it has one.
        again_at_ns: Option<u64>,
    },
    /// The weather took it.
    Lost,
    /// The line's queue was full.
    QueueDropped,
}

/// What happened so far. `offered = delivered + lost + queue_dropped - duplicated`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets given to the line.
    pub offered: u64,
    /// Bytes given to the line.
    pub offered_bytes: u64,
    /// Packets that arrive, duplicates included.
    pub delivered: u64,
    /// Bytes that arrive, duplicates included.
    pub bytes: u64,
    /// Packets the weather took.
    pub lost: u64,
    /// Packets that arrive before one that was offered earlier.
    pub reordered: u64,
    /// Packets that skipped the delay by the share `reorder`.
    pub sent_at_once: u64,
    /// Second copies.
    pub duplicated: u64,
    /// Packets that met a full queue.
    pub queue_dropped: u64,
}

/// One direction of a link, with its queue, its weather and its counters.
#[derive(Debug, Clone)]
pub struct Pipe {
    impairment: Impairment,
    seed: u64,
    rng: Rng,
    /// When each packet waiting for the line, or on it, will have left it. At most
    /// `limit_packets`.
    leaving_ns: VecDeque<u64>,
    /// When the line is free, in 2^-16 ns so that odd rates do not drift.
    free_at: u128,
    bad_state: bool,
    /// State of the correlated draw for reordering.
    reorder_last: f64,
    latest_ns: u64,
    counters: Counters,
}

impl Impairment {
    /// A line of 1 Gbit/s with a queue of 1000 packets, in good weather.
    pub const LINE: Self = Self { rate_bps: 1_000_000_000, ..Self::NONE };
    /// Nothing at all: no delay, no rate.
    pub const NONE: Self = Self {
        delay_us: 0,
        jitter_us: 0,
        handover_us: 0,
        swing_us: 0,
        loss: 0.0,
        loss_model: LossModel::Bernoulli,
        reorder: 0.0,
        reorder_correlation: 0.0,
        duplicate: 0.0,
        rate_bps: 0,
        limit_packets: 1_000,
    };

    /// Checks every bound.
    ///
    /// # Errors
    /// Names the bound that is broken.
    pub fn check(&self) -> Result<(), Invalid> {
        for (name, share) in [
            ("loss", self.loss),
            ("reorder", self.reorder),
            ("correlation", self.reorder_correlation),
            ("duplicate", self.duplicate),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(Invalid::Share(name));
            }
        }
        if [self.delay_us, self.jitter_us, self.swing_us].iter().any(|us| *us > DELAY_US_MAX) {
            return Err(Invalid::Delay);
        }
        if self.swing_us > 0 && self.handover_us == 0 {
            return Err(Invalid::Handover);
        }
        if self.limit_packets == 0 || self.limit_packets > LIMIT_PACKETS_MAX {
            return Err(Invalid::Limit);
        }
        if let LossModel::GilbertElliott { burst_packets, loss_in_burst } = self.loss_model {
            let possible = burst_packets >= 1.0
                && burst_packets.is_finite()
                && (0.0..=1.0).contains(&loss_in_burst)
                && (self.loss == 0.0 || self.loss < loss_in_burst);
            if !possible || self.bad_entry(burst_packets, loss_in_burst) > 1.0 {
                return Err(Invalid::Burst);
            }
        }
        Ok(())
    }

    /// Chance to enter the bad state with one packet, so that the shares of time in both
    /// states yield the overall loss.
    fn bad_entry(&self, burst_packets: f64, loss_in_burst: f64) -> f64 {
        if self.loss == 0.0 {
            return 0.0;
        }
        let bad_share = self.loss / loss_in_burst;
        bad_share / (burst_packets * (1.0 - bad_share))
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(name) => write!(f, "{name} must be between 0 and 1"),
            Self::Delay => write!(f, "delay, jitter and swing must be at most {DELAY_US_MAX} us"),
            Self::Handover => f.write_str("a swing needs a handover before it, as handover=15s"),
            Self::Limit => write!(f, "limit must be 1 to {LIMIT_PACKETS_MAX} packets"),
            Self::Burst => f.write_str(
                "a burst must be at least 1 packet, and losses so frequent need longer bursts",
            ),
        }
    }
}

impl std::error::Error for Invalid {}

impl Pipe {
    /// A free line; the same seed, times and lengths give the same verdicts.
    ///
    /// # Errors
    /// Names the bound that `impairment` breaks.
    pub fn new(impairment: Impairment, seed: u64) -> Result<Self, Invalid> {
        impairment.check()?;
        let mut rng = Rng::new(seed);
        let reorder_last = rng.unit();
        Ok(Self {
            impairment,
            seed,
            rng,
            leaving_ns: VecDeque::with_capacity(impairment.limit_packets.min(4_096)),
            free_at: 0,
            bad_state: false,
            reorder_last,
            latest_ns: 0,
            counters: Counters::default(),
        })
    }

    /// Changes the weather and the line from the next packet on; what is on its way stays so.
    ///
    /// # Errors
    /// Names the bound that is broken; then nothing changes.
    pub fn set_impairment(&mut self, impairment: Impairment) -> Result<(), Invalid> {
        impairment.check()?;
        self.impairment = impairment;
        Ok(())
    }

    /// Decides the fate of a packet of `len` bytes that reaches the line at `now_ns`. Times
    /// must not go backwards from one call to the next.
    pub fn offer(&mut self, now_ns: u64, len: usize) -> Verdict {
        self.counters.offered += 1;
        self.counters.offered_bytes += len as u64;
        let Some(left_ns) = self.send(now_ns, len) else {
            self.counters.queue_dropped += 1;
            return Verdict::QueueDropped;
        };
        let twice = self.draw(self.impairment.duplicate);
        self.counters.duplicated += u64::from(twice);
        let lost = self.loses();
        self.counters.lost += u64::from(lost);
        if lost && !twice {
            return Verdict::Lost;
        }
        // A loss takes one of two copies.
        let at_ns = self.arrival_ns(left_ns, len);
        let again_at_ns = (twice && !lost).then(|| self.arrival_ns(left_ns, len));
        Verdict::Deliver { at_ns, again_at_ns }
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What the direction does at present.
    #[must_use]
    pub fn impairment(&self) -> &Impairment {
        &self.impairment
    }

    /// Sends a packet over the line; returns when its last bit has left.
    fn send(&mut self, now_ns: u64, len: usize) -> Option<u64> {
        if self.impairment.rate_bps == 0 {
            return Some(now_ns);
        }
        while self.leaving_ns.front().is_some_and(|&left| left <= now_ns) {
            self.leaving_ns.pop_front();
        }
        if self.leaving_ns.len() >= self.impairment.limit_packets {
            return None;
        }
        let bits = len as u128 * 8;
        let takes = ((bits * 1_000_000_000) << 16) / u128::from(self.impairment.rate_bps);
        self.free_at = self.free_at.max(u128::from(now_ns) << 16) + takes;
        let left_ns = u64::try_from(self.free_at >> 16).unwrap_or(u64::MAX);
        self.leaving_ns.push_back(left_ns);
        Some(left_ns)
    }

    fn loses(&mut self) -> bool {
        match self.impairment.loss_model {
            LossModel::Bernoulli => self.draw(self.impairment.loss),
            LossModel::GilbertElliott { burst_packets, loss_in_burst } => {
                let change = if self.bad_state {
                    1.0 / burst_packets
                } else {
                    self.impairment.bad_entry(burst_packets, loss_in_burst)
                };
                self.bad_state ^= self.draw(change);
                self.bad_state && self.draw(loss_in_burst)
            }
        }
    }

    fn arrival_ns(&mut self, left_ns: u64, len: usize) -> u64 {
        let delay_ns = if self.skips_delay() {
            self.counters.sent_at_once += 1;
            0
        } else {
            self.delay_ns(left_ns)
        };
        let at_ns = left_ns.saturating_add(delay_ns);
        self.counters.reordered += u64::from(at_ns < self.latest_ns);
        self.latest_ns = self.latest_ns.max(at_ns);
        self.counters.delivered += 1;
        self.counters.bytes += len as u64;
        at_ns
    }

    fn skips_delay(&mut self) -> bool {
        let Impairment { reorder, reorder_correlation: rho, .. } = self.impairment;
        if reorder == 0.0 {
            return false;
        }
        self.reorder_last = self.rng.unit() * (1.0 - rho) + self.reorder_last * rho;
        self.reorder_last < reorder
    }

    fn delay_ns(&mut self, left_ns: u64) -> u64 {
        let mean = self.mean_ns(left_ns);
        let spread = self.impairment.jitter_us * 1_000;
        if spread == 0 {
            return mean;
        }
        (mean + self.rng.below(2 * spread)).saturating_sub(spread)
    }

    /// The mean delay of the way as the last handover left it.
    fn mean_ns(&self, now_ns: u64) -> u64 {
        let Impairment { delay_us, handover_us, swing_us, .. } = self.impairment;
        if handover_us == 0 || swing_us == 0 {
            return delay_us * 1_000;
        }
        // Each has a draw of its own, so that no packet need cross the ones in between.
        let number = now_ns / handover_us.saturating_mul(1_000);
        let moved = Rng::new(self.seed).fork(number).below(2 * swing_us * 1_000);
        (delay_us * 1_000 + moved).saturating_sub(swing_us * 1_000)
    }

    /// A draw that costs nothing where the answer is known.
    fn draw(&mut self, p: f64) -> bool {
        p > 0.0 && self.rng.chance(p)
    }
}

#[cfg(test)]
mod tests;
