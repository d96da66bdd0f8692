//! One flow of TCP as Linux sends it, in segments and virtual time: for whoever wants to know what
//! a link does to it.
//!
//! The sender is CUBIC (RFC 9438) with HyStart, loss is found by RACK with a tail probe (RFC 8985),
//! windows shrink in proportion (PRR, RFC 6937), and what was retransmitted in vain is undone by
//! timestamps (RFC 3522) and by DSACK (RFC 3708). The receiver acknowledges every second segment,
//! every superpacket and whatever is out of order at once, else after 40 ms. Constants are
//! those of Linux 6.18 without knobs turned.
//!
//! Not there: pacing, delayed SACKs, a receive window that grows (it is [`WINDOW_MAX`]).

use crate::tcp::cubic::Cubic;
use crate::tcp::rack::Flight;

mod cubic;
mod rack;
mod receiver;
#[cfg(test)]
mod tests;

pub use receiver::{Ack, Receiver};

/// The largest window, in segments: what 6 MiB of receive memory leave.
pub const WINDOW_MAX: u64 = 3_000;
/// Segments that leave as one, at most: 64 KiB.
pub const BURST_MAX: u64 = 44;
const WINDOW_FIRST: f64 = 10.0;
const RTO_MIN_US: u64 = 200_000;
const RTO_MAX_US: u64 = 120_000_000;
const MS_US: u64 = 1_000;

/// Segments to be sent as one superpacket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// The first one's number.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments sent again.
    pub again: u64,
    /// Times that the window was made smaller.
    pub reduced: u64,
    /// Of these, times that it turned out to be for nothing.
    pub undone: u64,
    /// Times that nothing came for so long that all was taken for lost.
    pub timeouts: u64,
}

/// What it does about losses.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Open,
    /// Until everything before `high` is acknowledged; what PRR counts meanwhile.
    Recovery {
        high: u64,
        prior: f64,
        delivered: u64,
        out: u64,
    },
    /// After a timeout, likewise.
    Loss {
        high: u64,
    },
}

/// What could be undone.
#[derive(Clone, Copy, Debug)]
struct Undo {
    window: f64,
    threshold: f64,
    /// When the first segment of this episode was sent again.
    since_us: Option<u64>,
    /// Segments sent again that no DSACK came for.
    again: u64,
}

/// The sending end. It has always something to send.
#[derive(Debug)]
pub struct Sender {
    cubic: Cubic,
    flight: Flight,
    window: f64,
    threshold: f64,
    phase: Phase,
    undo: Option<Undo>,
    srtt_us: Option<f64>,
    var_us: f64,
    backoff: u32,
    rto_us: Option<u64>,
    probe_us: Option<u64>,
    /// Whether the window was used up since the last acknowledgement: only then it grows.
    limited: bool,
    counters: Counters,
}

impl Default for Sender {
    fn default() -> Self {
        Self::new()
    }
}

impl Sender {
    /// A flow whose handshake is over.
    #[must_use]
    pub fn new() -> Self {
        Self {
            cubic: Cubic::default(),
            flight: Flight::default(),
            window: WINDOW_FIRST,
            threshold: f64::INFINITY,
            phase: Phase::Open,
            undo: None,
            srtt_us: None,
            var_us: 0.0,
            backoff: 0,
            rto_us: None,
            probe_us: None,
            limited: false,
            counters: Counters::default(),
        }
    }

    /// What to send now; call until there is no more.
    pub fn poll_send(&mut self, now_us: u64) -> Option<Burst> {
        let quota = (self.window as u64).saturating_sub(self.flight.in_pipe());
        if quota == 0 {
            self.limited = true;
            return None;
        }
        if let Some(burst) = self.flight.lost_burst(quota.min(BURST_MAX)) {
            self.flight.send(burst, now_us, true);
            self.counters.again += burst.count;
            if let Some(undo) = &mut self.undo {
                undo.since_us.get_or_insert(now_us);
                undo.again += burst.count;
            }
            self.sent(burst.count, now_us);
            return Some(burst);
        }
        let room = WINDOW_MAX.saturating_sub(self.flight.outstanding());
        let wanted = self.burst_len();
        let count = quota.min(room).min(wanted);
        // An answer is due soon, and a larger burst with it.
        let waits = count < wanted && self.flight.in_pipe() > 0 && count < self.window as u64 / 3;
        if count == 0 || waits {
            self.limited |= waits;
            return None;
        }
        let burst = Burst { first: self.flight.next(), count };
        self.flight.send(burst, now_us, false);
        self.sent(count, now_us);
        Some(burst)
    }

    fn sent(&mut self, count: u64, now_us: u64) {
        if let Phase::Recovery { out, .. } = &mut self.phase {
            *out += count;
        }
        if self.rto_us.is_none() {
            self.rto_us = Some(now_us + self.rto());
        }
        if self.phase == Phase::Open {
            let srtt = self.srtt_us.unwrap_or(RTO_MIN_US as f64) as u64;
            self.probe_us = Some(now_us + (2 * srtt + 2 * MS_US).min(self.rto()));
        }
    }

    /// As much as one millisecond takes at the present rate, two segments at least.
    fn burst_len(&self) -> u64 {
        let gain = if self.window < self.threshold / 2.0 { 2.0 } else { 1.2 };
        let srtt_us = self.srtt_us.unwrap_or(MS_US as f64);
        let rate = gain * self.window / srtt_us * MS_US as f64;
        (rate as u64).clamp(2, BURST_MAX)
    }

    /// Takes an acknowledgement in.
    pub fn handle_ack(&mut self, ack: &Ack, now_us: u64) {
        let una = self.flight.una();
        let seen = self.flight.handle_ack(ack, now_us);
        if let Some(rtt_us) = seen.rtt_us {
            self.note_rtt(rtt_us as f64);
        }
        if seen.duplicate > 0
            && let Some(undo) = &mut self.undo
        {
            undo.again = undo.again.saturating_sub(seen.duplicate);
        }
        let advanced = self.flight.una() > una;
        if advanced {
            self.backoff = 0;
            self.try_undo(ack);
        }
        if let (true, Some(undo)) = (seen.duplicate > 0, self.undo)
            && undo.again == 0
            && undo.since_us.is_some()
        {
            self.take_back();
        }
        self.leave(now_us);
        let lost = self.flight.detect(now_us, self.srtt_us.unwrap_or(0.0) as u64);
        if lost > 0 && self.phase == Phase::Open {
            self.reduce();
        }
        match &mut self.phase {
            Phase::Recovery { .. } => self.shrink(seen.delivered, lost, advanced),
            Phase::Open | Phase::Loss { .. } if seen.delivered > 0 => {
                self.grow(seen.delivered, seen.rtt_us, now_us);
            }
            _ => {}
        }
        if self.flight.outstanding() == 0 {
            (self.rto_us, self.probe_us) = (None, None);
        } else if advanced {
            self.rto_us = Some(now_us + self.rto());
        }
    }

    /// Lets time have its way.
    pub fn handle_timeout(&mut self, now_us: u64) {
        if self.rto_us.is_some_and(|at| at <= now_us) {
            self.counters.timeouts += 1;
            self.counters.reduced += 1;
            // Who recovers has paid already, and so has who is lost and heard nothing since.
            let has_paid = match self.phase {
                Phase::Open => false,
                Phase::Recovery { .. } => true,
                Phase::Loss { .. } => self.backoff > 0,
            };
            if !has_paid {
                self.remember();
                self.threshold = self.cubic.reduce(self.window);
            }
            self.flight.lose_all();
            self.phase = Phase::Loss { high: self.flight.next() };
            self.window = 1.0;
            self.cubic.forget();
            self.backoff = (self.backoff + 1).min(10);
            self.rto_us = Some(now_us + self.rto());
            self.probe_us = None;
            return;
        }
        if self.flight.is_reordering_over(now_us) {
            let lost = self.flight.detect(now_us, self.srtt_us.unwrap_or(0.0) as u64);
            if lost > 0 && self.phase == Phase::Open {
                self.reduce();
                self.shrink(0, lost, false);
            }
        }
        if self.probe_us.is_some_and(|at| at <= now_us) {
            self.probe_us = None;
            if self.phase == Phase::Open {
                self.flight.lose_last();
                self.window = self.window.max(self.flight.in_pipe() as f64 + 1.0);
            }
        }
    }

    /// When to call [`Sender::handle_timeout`] next, microseconds.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        [self.rto_us, self.probe_us, self.flight.reordering_until()].into_iter().flatten().min()
    }

    /// The congestion window, segments.
    #[must_use]
    pub fn window(&self) -> f64 {
        self.window
    }

    /// The smoothed round trip, microseconds; zero before the first.
    #[must_use]
    pub fn srtt_us(&self) -> u64 {
        self.srtt_us.unwrap_or(0.0) as u64
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn note_rtt(&mut self, rtt_us: f64) {
        match &mut self.srtt_us {
            None => (self.srtt_us, self.var_us) = (Some(rtt_us), rtt_us / 2.0),
            Some(srtt_us) => {
                self.var_us += ((*srtt_us - rtt_us).abs() - self.var_us) / 4.0;
                *srtt_us += (rtt_us - *srtt_us) / 8.0;
            }
        }
    }

    /// RFC 6298, with Linux's lower bound on the variance.
    fn rto(&self) -> u64 {
        let spread = (4.0 * self.var_us).max(RTO_MIN_US as f64);
        let rto_us = (self.srtt_us.unwrap_or(1e6) + spread) as u64;
        (rto_us << self.backoff).min(RTO_MAX_US)
    }

    fn grow(&mut self, delivered: u64, rtt_us: Option<u64>, now_us: u64) {
        let mut acked = delivered as f64;
        let una = (self.flight.una(), self.flight.next());
        if let Some(rtt_us) = rtt_us {
            let begins = self.window < self.threshold;
            if self.cubic.hystart(rtt_us, self.window, una, begins, now_us) {
                self.threshold = self.window;
            }
        }
        if !std::mem::take(&mut self.limited) {
            return;
        }
        if self.window < self.threshold {
            let taken = acked.min(self.threshold - self.window);
            self.window += taken;
            acked -= taken;
        }
        if acked > 0.0 && self.window >= self.threshold {
            self.window += acked / self.cubic.per_segment(self.window, acked, now_us);
        }
        self.window = self.window.min(WINDOW_MAX as f64);
    }

    fn remember(&mut self) {
        let (window, threshold) = (self.window, self.threshold);
        self.undo = Some(Undo { window, threshold, since_us: None, again: 0 });
    }

    fn reduce(&mut self) {
        self.remember();
        self.counters.reduced += 1;
        self.threshold = self.cubic.reduce(self.window);
        let prior = self.window;
        self.phase = Phase::Recovery { high: self.flight.next(), prior, delivered: 0, out: 0 };
    }

    /// PRR: as much leaves as arrived, in proportion.
    fn shrink(&mut self, newly: u64, lost: u64, advanced: bool) {
        let Phase::Recovery { prior, delivered, out, .. } = &mut self.phase else { return };
        *delivered += newly;
        let pipe = self.flight.in_pipe();
        let threshold = self.threshold as u64;
        let mut count = if pipe > threshold {
            let share = (self.threshold * *delivered as f64 / *prior).ceil() as u64;
            share.saturating_sub(*out)
        } else {
            let mut count = delivered.saturating_sub(*out).max(newly);
            if advanced && lost == 0 {
                count += 1;
            }
            count.min(threshold - pipe)
        };
        count = count.max(u64::from(*out == 0));
        self.window = (pipe + count) as f64;
    }

    /// Ends an episode whose segments are all acknowledged.
    fn leave(&mut self, now_us: u64) {
        let una = self.flight.una();
        match self.phase {
            Phase::Recovery { high, .. } if una >= high => {
                self.window = self.threshold;
                self.phase = Phase::Open;
                self.cubic.begin(now_us);
            }
            Phase::Loss { high } if una >= high => self.phase = Phase::Open,
            _ => {}
        }
        if self.phase == Phase::Open && self.undo.is_some_and(|undo| undo.since_us.is_none()) {
            self.undo = None;
        }
    }

    /// The original arrived after all if its timestamp is older than the copy.
    fn try_undo(&mut self, ack: &Ack) {
        if let Some(since_us) = self.undo.and_then(|undo| undo.since_us)
            && ack.echo_us < since_us
        {
            self.take_back();
        }
    }

    fn take_back(&mut self) {
        let Some(undo) = self.undo.take() else { return };
        self.counters.undone += 1;
        self.window = self.window.max(undo.window);
        self.threshold = self.threshold.max(undo.threshold);
        self.flight.unlose();
        self.phase = Phase::Open;
        self.cubic.undo();
    }
}
