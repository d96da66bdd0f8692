//! What bounds repair: what is asked for, and a way of streams alone, from here to a relay and from
//! there to the peer. A stream loses nothing; what is lost had no room in a queue between two.

use repair::limits::SHARE_MAX;

use super::*;

impl Sender {
    /// Repair for each byte, at most.
    pub(crate) fn set_repair_max(&mut self, share: f64) {
        self.limits.share = share.clamp(0.0, SHARE_MAX);
        self.control.set_limits(self.limits);
        self.spread.heed(&self.control);
    }

    /// Whether packets go out by a stream.
    pub(crate) fn set_by_stream(&mut self, by_stream: bool) {
        self.by_stream = by_stream;
    }

    /// Whether every part of the way is a stream, as far as is known. Nothing is lost there but
    /// what a queue between two streams has no room for, so nothing is repaired.
    pub(crate) fn is_in_streams(&self) -> bool {
        self.by_stream && self.comes_by_stream != Some(false)
    }
}

/// A report of which all losses are congestion.
pub(super) fn congested(seen: &Report) -> Report {
    let mut told = *seen;
    let lost = told.clear.discount(u32::MAX);
    told.queued.judged = told.queued.judged.saturating_add(lost);
    told.queued.lost = told.queued.lost.saturating_add(lost);
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half a second of reports that tell of losses, of a way whose last part is a stream or not.
    fn told(out: bool, by_stream: Option<bool>) -> Sender {
        let mut sender = Sender::new(1, &Tuning::DEFAULT);
        sender.set_by_stream(out);
        for number in 1..=5 {
            let clear = Losses { judged: 1_000, lost: 30, runs: 5, ..Default::default() };
            let by_stream = by_stream.unwrap_or_default();
            let held_us = u32::MAX;
            let report = Report { number, clear, held_us, by_stream, ..Default::default() };
            let now = Instant(1_000_000_000_000) + Duration::from_millis(100) * u32::from(number);
            sender.handle_report(&report, now);
        }
        sender
    }

    #[test]
    fn what_is_lost_between_streams_is_congestion_and_is_not_repaired() {
        let all = told(true, Some(true));
        assert!(all.is_in_streams() && all.losses().0 == 0.0, "{:?}", all.losses());
        assert!(all.control.estimate().queued_share > 0.99);
        for (out, by_stream) in [(false, Some(true)), (true, Some(false)), (true, None)] {
            let part = told(out, by_stream);
            assert!(!part.is_in_streams() && part.losses().0 > 0.02, "{out} {by_stream:?}");
        }
        let mut unknown = Sender::new(1, &Tuning::DEFAULT);
        unknown.set_by_stream(true);
        assert!(unknown.is_in_streams(), "until the peer says otherwise");
    }
}
