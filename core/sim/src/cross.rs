//! When packets of others come to a line: evenly, by chance, or in bursts.

use crate::rng::Rng;

/// Packets of a burst, at least and at most.
const BURST: [f64; 2] = [10.0, 100.0];
/// Of the Pareto distribution of their number: most bursts are short.
const SHAPE: f64 = 1.5;
/// How long a long burst lasts, at least and at most, nanoseconds.
const LONG_NS: [f64; 2] = [50e6, 200e6];

/// How packets of others come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cross {
    /// All gaps are the same.
    Even,
    /// As a Poisson process.
    Chance,
    /// 10 to 100 packets at the line's own rate, and a pause.
    Bursts,
    /// 50 to 200 ms at that rate, and a pause.
    LongBursts,
}

/// Times between the beginnings of two packets.
#[derive(Clone, Debug)]
pub struct Gaps {
    cross: Cross,
    mean_ns: f64,
    /// At the line's own rate.
    line_ns: f64,
    /// Packets of a burst that are still to come.
    burst_left: u32,
}

impl Gaps {
    /// Of packets of `len` bytes: `rate_bps` on average, on a line of `line_bps`, bits a second.
    /// Without a rate none ever comes.
    #[must_use]
    pub fn new(cross: Cross, len: usize, rate_bps: f64, line_bps: f64) -> Self {
        let [mean_ns, line_ns] = [rate_bps, line_bps].map(|bps| (len * 8) as f64 * 1e9 / bps);
        Self { cross, mean_ns, line_ns, burst_left: 0 }
    }

    /// The mean, nanoseconds.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.mean_ns
    }

    /// Until the next packet, nanoseconds.
    pub fn next_ns(&mut self, rng: &mut Rng) -> f64 {
        match self.cross {
            Cross::Even => return self.mean_ns,
            Cross::Chance => return self.mean_ns * rng.exponential(),
            Cross::Bursts | Cross::LongBursts => {}
        }
        self.burst_left = self.burst_left.saturating_sub(1);
        if self.burst_left > 0 {
            return self.line_ns;
        }
        let packets = if self.cross == Cross::LongBursts {
            let [least_ns, most_ns] = LONG_NS;
            (least_ns + (most_ns - least_ns) * rng.unit()) / self.line_ns
        } else {
            let [least, most] = BURST;
            (least / (1.0 - rng.unit()).powf(1.0 / SHAPE)).min(most)
        };
        self.burst_left = packets as u32;
        // As long as the rate wants it behind such a burst, on average.
        let pause_ns = f64::from(self.burst_left) * (self.mean_ns - self.line_ns);
        self.line_ns + pause_ns * rng.exponential()
    }
}
