//! A fleet: streams at one rate until their verdict is clear.

use crate::stream::{Judged, Trend};

/// Streams after which there is a verdict, grey if nothing else.
const STREAMS_MAX: usize = 16;
/// So many streams, and more, make a growth certain by so many standard errors.
const SIGMAS: [(usize, f64); 2] = [(5, 2.0), (3, 6.0)];
/// A growth that a stream at so much above what is left would have lies between both verdicts.
pub(crate) const ABOVE: f64 = 0.03;

/// What a fleet says of its rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is above what is left.
    Above,
    /// It is not.
    Below,
    /// It is near.
    Grey,
}

/// Streams at one rate.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Fleet {
    streams: Vec<Judged>,
}

impl Fleet {
    /// Adds what a stream said.
    pub fn add(&mut self, judged: Judged) {
        self.streams.push(judged);
    }

    /// How many streams were judged.
    #[must_use]
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether none was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// The rate at which its streams were really sent.
    #[must_use]
    pub fn rate_bps(&self) -> f64 {
        self.mean(|one| one.rate_bps)
    }

    /// Share of packets that were lost.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.mean(|one| one.loss)
    }

    /// Streams whose delays were of two kinds.
    #[must_use]
    pub fn bimodal(&self) -> usize {
        self.streams.iter().filter(|one| one.is_bimodal).count()
    }

    fn mean(&self, of: impl Fn(&Judged) -> f64) -> f64 {
        self.streams.iter().map(of).sum::<f64>() / self.streams.len().max(1) as f64
    }

    fn share(&self, trend: Trend) -> f64 {
        let count = self.streams.iter().filter(|one| one.trend == trend).count();
        count as f64 / self.streams.len().max(1) as f64
    }

    /// The verdict, if it is clear by now. `capacity_bps` is what the tight link carries in all.
    #[must_use]
    pub fn verdict(&self, capacity_bps: f64) -> Option<Verdict> {
        let count = self.streams.len();
        let (_, sigmas) = SIGMAS.into_iter().find(|(least, _)| count >= *least)?;
        // What growth a rate has that is ABOVE what is left: nearer ones are grey.
        let limit = ABOVE * (self.rate_bps() / capacity_bps).clamp(0.05, 1.0);
        let mean = self.mean(|one| one.growth);
        let spread = self.mean(|one| (one.growth - mean).powi(2));
        let error = (spread / (count - 1) as f64).sqrt();
        let is_above = mean - sigmas * error > limit;
        let is_below = mean + sigmas * error < limit;
        // The second judge: what most streams show by themselves.
        let rising = self.share(Trend::Rising);
        let flat = self.share(Trend::Flat);
        let is_over = count >= STREAMS_MAX;
        match (is_above, is_below) {
            (true, _) if rising >= 0.5 && rising > flat => Some(Verdict::Above),
            (_, true) if rising <= 0.5 => Some(Verdict::Below),
            _ if is_over => Some(Verdict::Grey),
            _ => None,
        }
    }
}
