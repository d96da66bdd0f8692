//! The core's time, from the system's.

use std::time::{Duration, Instant};

/// Counts from its own beginning, so that nothing is earlier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    const START: Duration = Duration::from_secs(1 << 20);

    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn at(self, now: Instant) -> noise::Instant {
        noise::Instant::ZERO.after(Self::START + now.saturating_duration_since(self.0))
    }

    /// When that is for the system.
    pub(crate) fn back(self, at: noise::Instant) -> Instant {
        let zero = noise::Instant::ZERO.after(Self::START);
        self.0 + at.since(zero)
    }
}
