//! How the window grows: CUBIC (RFC 9438), and HyStart, which ends its first phase. As Linux
//! has them (net/ipv4/tcp_cubic.c): a window without a history grows by a twentieth a round trip,
//! and what is reduced twice in a row leaves room to others.

/// What is left of the window after a loss.
const BETA: f64 = 717.0 / 1024.0;
const C: f64 = 0.4;
/// HyStart says nothing below this window, or before so many samples of a round.
const LOW_WINDOW: f64 = 16.0;
const SAMPLES_MIN: u32 = 8;
/// Acknowledgements that follow so soon belong to one train.
const TRAIN_US: u64 = 2_000;
/// By how much the delay must grow, at least and at most.
const GROWN_US: (u64, u64) = (4_000, 16_000);

/// The memory of one flow.
#[derive(Debug, Default)]
pub(super) struct Cubic {
    /// The window before the last loss; zero before the first.
    last_max: f64,
    /// That before it was made, for [`Cubic::undo`].
    before: f64,
    epoch_us: Option<u64>,
    origin: f64,
    k_s: f64,
    /// What Reno would have by now.
    reno: f64,
    delay_min_us: Option<u64>,
    /// No sample counts until a second after the last recovery.
    quiet_until_us: u64,
    round: Round,
    found: bool,
}

#[derive(Debug, Default)]
struct Round {
    end: u64,
    began_us: u64,
    last_us: u64,
    least_us: Option<u64>,
    samples: u32,
}

impl Cubic {
    /// A sample of the round trip came; says whether the first phase should end. `una` and `next`
    /// are the segments not acknowledged and not sent.
    pub(super) fn hystart(
        &mut self,
        rtt_us: u64,
        window: f64,
        flight: (u64, u64),
        begins: bool,
        now_us: u64,
    ) -> bool {
        let (una, next) = flight;
        if now_us < self.quiet_until_us {
            return false;
        }
        let least = self.delay_min_us.map_or(rtt_us, |least| least.min(rtt_us));
        self.delay_min_us = Some(least);
        if self.found || !begins || window < LOW_WINDOW {
            return false;
        }
        let round = &mut self.round;
        if una > round.end || round.end == 0 {
            *round = Round { end: next, began_us: now_us, last_us: now_us, ..Round::default() };
        }
        if now_us - round.last_us <= TRAIN_US {
            round.last_us = now_us;
            if now_us - round.began_us > (least + 1_000) / 2 {
                self.found = true;
            }
        }
        round.least_us = Some(round.least_us.map_or(rtt_us, |of| of.min(rtt_us)));
        if round.samples < SAMPLES_MIN {
            round.samples += 1;
        } else if round
            .least_us
            .is_some_and(|of| of > least + (least / 8).clamp(GROWN_US.0, GROWN_US.1))
        {
            self.found = true;
        }
        self.found
    }

    /// Acknowledged segments that let the window grow by one.
    pub(super) fn per_segment(&mut self, window: f64, acked: f64, now_us: u64) -> f64 {
        let epoch_us = *self.epoch_us.get_or_insert_with(|| {
            self.reno = window;
            if self.last_max <= window {
                self.k_s = 0.0;
                self.origin = window;
            } else {
                self.k_s = cube_root((self.last_max - window) / C);
                self.origin = self.last_max;
            }
            now_us
        });
        let t = (now_us - epoch_us + self.delay_min_us.unwrap_or(0)) as f64 / 1e6;
        let after = t - self.k_s;
        let target = self.origin + C * after * after * after;
        let mut per = if target > window { window / (target - window) } else { 100.0 * window };
        if self.last_max == 0.0 {
            per = per.min(20.0);
        }
        self.reno += acked * 3.0 * (1.0 - BETA) / (1.0 + BETA) / window;
        if self.reno > window {
            per = per.min(window / (self.reno - window));
        }
        per.max(2.0)
    }

    /// The window was too large; returns the threshold from now on.
    pub(super) fn reduce(&mut self, window: f64) -> f64 {
        self.epoch_us = None;
        self.before = self.last_max;
        self.last_max = if window < self.last_max { window * (1.0 + BETA) / 2.0 } else { window };
        (window * BETA).max(2.0)
    }

    /// It was not.
    pub(super) fn undo(&mut self) {
        self.last_max = self.last_max.max(self.before);
        self.epoch_us = None;
    }

    /// A recovery is over.
    pub(super) fn begin(&mut self, now_us: u64) {
        self.quiet_until_us = now_us + 1_000_000;
    }

    /// Nothing is known any more.
    pub(super) fn forget(&mut self) {
        let last_max = self.last_max;
        *self = Self { last_max, ..Self::default() };
    }
}

/// The cube root of a number that is not negative, by Newton's method: the same on every machine,
/// which that of a library is not.
fn cube_root(of: f64) -> f64 {
    let mut root = of.max(1.0);
    for _ in 0..100 {
        root -= (root * root * root - of) / (3.0 * root * root);
    }
    root
}
