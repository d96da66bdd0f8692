//! The times of reports: when the other end is told how its datagrams fared.

use noise::Instant;
use repair::estimate::KNOWN_CHUNKS;
use wire::frame;

use super::{KEEP_US, Receiver};
use crate::report::told;

/// Time between two reports under traffic.
pub(super) const REPORT_US: u64 = 100_000;
/// After the first loss of a quiet time the report goes out sooner: as soon as it can be told
/// from lateness.
pub(super) const ALARM_US: u64 = 20_000;
/// So it does where a new path has brought as many datagrams as make it known within [`FRESH_US`]
/// of the first of these numbers: the other end repairs all of them until it is told that none was
/// lost. Where they come slower, as in a flow's beginning over long round trips, so few say too
/// little.
const FRESH: [u32; 2] = [100, KNOWN_CHUNKS as u32];
/// See [`FRESH`].
const FRESH_US: u64 = 50_000;

impl Receiver {
    /// The report that is due.
    pub(crate) fn poll_report(&mut self, now_us: u64) -> Option<frame::Report> {
        self.report_us.filter(|&due_us| due_us <= now_us)?;
        let counted = self.assembler.counters();
        let (lost, rebuilt) = self.reported;
        self.reported = (counted.lost, counted.rebuilt);
        let rebuilt = (counted.rebuilt - rebuilt) as u32;
        let missing = (counted.lost - lost) as u32 + rebuilt;
        let seen = self.observer.poll_report(missing, rebuilt, now_us);
        let lost = [seen.judged(), seen.lost()];
        self.harvest.handle_report(lost, [missing, rebuilt], now_us);
        self.report_us = self.observer.is_waiting().then_some(now_us + REPORT_US);
        self.report_number = self.report_number.wrapping_add(1);
        // Clocks drift apart: one that was told long ago says no round trip.
        let echo = self.echo.filter(|(_, at_us)| at_us + KEEP_US > now_us);
        let echo =
            echo.map_or((0, u32::MAX), |(sent_us, at_us)| (sent_us, (now_us - at_us) as u32));
        Some(told(&seen, self.report_number, echo))
    }

    /// Share of datagrams lost of those that came lately, and what repair left of it.
    pub(crate) fn losses(&self) -> (f64, f64) {
        self.harvest.losses()
    }

    /// When that was found last.
    pub(crate) fn told(&self) -> Option<Instant> {
        let told_us = self.harvest.told_us();
        (told_us > 0).then(|| Instant(told_us.saturating_mul(1_000)))
    }

    /// How late datagrams come behind younger ones, microseconds.
    pub(crate) fn reorder_us(&self) -> u32 {
        self.observer.reorder_us()
    }

    /// A datagram came on a path that may be new. Call for each that the observer counts.
    pub(super) fn note_fresh(&mut self, now_us: u64) {
        let came = self.observer.came();
        if came == FRESH[0] {
            self.fresh_us = now_us;
        } else if came == FRESH[1] && now_us <= self.fresh_us + FRESH_US {
            self.hasten(now_us);
        }
    }

    /// A report goes out sooner.
    pub(super) fn hasten(&mut self, now_us: u64) {
        let alarm_us = now_us + ALARM_US;
        self.report_us = Some(self.report_us.map_or(alarm_us, |due_us| due_us.min(alarm_us)));
    }

    pub(super) fn arm(&mut self, now_us: u64) {
        self.active_us = now_us;
        self.report_us.get_or_insert(now_us + REPORT_US);
    }
}
