//! The times of reports: when the other end is told how its datagrams fared.

use noise::Instant;
use wire::frame::Report;

use super::{KEEP_US, Receiver};

impl Receiver {
    /// The report that is due.
    pub(crate) fn poll_report(&mut self, now_us: u64) -> Option<Report> {
        self.report_us.filter(|&due_us| due_us <= now_us)?;
        let counted = self.assembler.counters();
        let (lost, rebuilt) = self.reported;
        self.reported = (counted.lost, counted.rebuilt);
        let rebuilt = (counted.rebuilt - rebuilt) as u32;
        let missing = (counted.lost - lost) as u32 + rebuilt;
        let seen = self.observer.poll_report(missing, rebuilt, now_us);
        let lost = [seen.judged(), seen.lost()];
        self.harvest.handle_report(lost, [missing, rebuilt], self.tuning.load_half_us, now_us);
        self.report_us = self.observer.is_waiting().then_some(now_us + self.tuning.report_us);
        self.report_number = self.report_number.wrapping_add(1);
        // Clocks drift apart: one that was told long ago says no round trip.
        let echo = self.echo.filter(|(_, at_us)| at_us + KEEP_US > now_us);
        let echo =
            echo.map_or((0, u32::MAX), |(sent_us, at_us)| (sent_us, (now_us - at_us) as u32));
        let (echo_us, held_us) = echo;
        Some(Report { number: self.report_number, echo_us, held_us, ..seen })
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
        let known = self.tuning.repair.belief.known_chunks as u32;
        if came == self.tuning.fresh {
            self.fresh_us = now_us;
        } else if came == known && now_us <= self.fresh_us + self.tuning.fresh_us {
            self.hasten(now_us);
        }
    }

    /// A report goes out sooner.
    pub(super) fn hasten(&mut self, now_us: u64) {
        let alarm_us = now_us + self.tuning.alarm_us;
        self.report_us = Some(self.report_us.map_or(alarm_us, |due_us| due_us.min(alarm_us)));
    }

    pub(super) fn arm(&mut self, now_us: u64) {
        self.active_us = now_us;
        self.report_us.get_or_insert(now_us + self.tuning.report_us);
    }
}
