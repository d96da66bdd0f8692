//! The times at which a flow is told of congestion: CoDel's control law (RFC 8289 section 3.3).

/// Time between the first two signals: more than a round trip on most paths.
const INTERVAL_US: u64 = 100_000;
/// Beyond so many signals in a row they come no faster.
const COUNT_MAX: u32 = 1_024;

/// The law's memory. A signal is a mark, or a loss that is not mended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Codel {
    /// Signals while this queue stands.
    count: u32,
    next_us: u64,
}

impl Codel {
    /// Whether to signal now; `standing_us` says for how long there has been a queue that does not
    /// go away. One that lasts for less than an interval is that of a flow which begins. Signals
    /// come at intervals that shrink with the root of their number; each flow that gets one needs
    /// a round trip to heed it.
    pub fn is_due(&mut self, standing_us: u64, now_us: u64) -> bool {
        if standing_us < INTERVAL_US {
            if now_us >= self.next_us {
                self.count = 0;
            }
            return false;
        }
        if now_us < self.next_us {
            return false;
        }
        self.count = (self.count + 1).min(COUNT_MAX);
        self.next_us = now_us + (INTERVAL_US as f64 / f64::from(self.count).sqrt()) as u64;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_come_faster_while_the_queue_stands_and_start_over_when_it_went() {
        let mut codel = Codel::default();
        let signals = |codel: &mut Codel, from_us: u64, until_us: u64| {
            (from_us..until_us).step_by(1_000).filter(|&at| codel.is_due(INTERVAL_US, at)).count()
        };
        assert!(!codel.is_due(0, 0) && !codel.is_due(INTERVAL_US - 1, 0));
        assert_eq!(signals(&mut codel, 0, 100_000), 1);
        // 100 / sqrt(n) ms apart: 71, 58, 50, 45, ... within a second.
        let more = signals(&mut codel, 100_000, 1_000_000);
        assert!((25..40).contains(&more), "{more}");
        assert!(!codel.is_due(0, 2_000_000));
        assert_eq!(signals(&mut codel, 2_000_000, 2_100_000), 1);
    }
}
