//! A budget of datagrams to addresses that may be nobody's.

use std::time::Duration;

use noise::Instant;

/// Probes and copies of initiations to one peer's candidates in any second (threat NT-05).
pub(crate) const PROBES_MAX: usize = 10;
const WINDOW: Duration = Duration::from_secs(1);

/// When the last ones were sent.
#[derive(Debug)]
pub(crate) struct Budget {
    sent: [Option<Instant>; PROBES_MAX],
    next: usize,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { sent: [None; PROBES_MAX], next: 0 }
    }

    /// When one more may be sent.
    pub(crate) fn ready_at(&self) -> Instant {
        self.sent[self.next].map_or(Instant::ZERO, |oldest| oldest + WINDOW)
    }

    /// Takes one if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        if now < self.ready_at() {
            return false;
        }
        self.sent[self.next] = Some(now);
        self.next = (self.next + 1) % PROBES_MAX;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nt_05_no_second_has_more_than_ten() {
        let mut budget = Budget::new();
        let mut sent = Vec::new();
        for ms in 0..5_000_u64 {
            let now = Instant(ms * 1_000_000);
            // In bursts with pauses between.
            if ms % 700 < 400 && budget.take(now) {
                sent.push(ms);
            }
        }
        assert!(sent.len() >= 45, "{sent:?}");
        assert!(sent.windows(PROBES_MAX + 1).all(|window| window[PROBES_MAX] - window[0] >= 1_000));
    }
}
