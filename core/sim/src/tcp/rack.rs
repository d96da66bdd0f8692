//! Loss detection of TCP: what is out, and what of it counts as lost. RACK (RFC 8985).

use std::collections::{BTreeSet, VecDeque};

use super::{Ack, Burst};

#[derive(Clone, Copy, Debug)]
struct Segment {
    sent_us: u64,
    sacked: bool,
    /// Sent more than once.
    again: bool,
}

/// What one acknowledgement said.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Segments that arrived and were not known to.
    pub(super) delivered: u64,
    pub(super) rtt_us: Option<u64>,
    /// Segments that arrived twice.
    pub(super) duplicate: u64,
}

/// Segments from the first that is not acknowledged to the last sent.
#[derive(Debug, Default)]
pub(super) struct Flight {
    una: u64,
    segments: VecDeque<Segment>,
    /// Those that are neither sacked nor lost, in the order of their last sending.
    pending: BTreeSet<(u64, u64)>,
    /// Lost and not sent again.
    lost: BTreeSet<u64>,
    /// When the newest delivered segment was sent, its number, and its round trip.
    newest: Option<(u64, u64, u64)>,
    rtt_min_us: Option<u64>,
    /// The highest segment known to have arrived.
    highest: u64,
    sacked: u64,
    reordered: bool,
    /// Quarters of a round trip that are granted; more after each DSACK.
    steps: u64,
    until_us: Option<u64>,
}

impl Flight {
    pub(super) fn una(&self) -> u64 {
        self.una
    }

    pub(super) fn next(&self) -> u64 {
        self.una + self.segments.len() as u64
    }

    pub(super) fn outstanding(&self) -> u64 {
        self.segments.len() as u64
    }

    /// Segments believed to be on their way.
    pub(super) fn in_pipe(&self) -> u64 {
        self.pending.len() as u64
    }

    pub(super) fn send(&mut self, burst: Burst, now_us: u64, again: bool) {
        for number in burst.first..burst.first + burst.count {
            let segment = Segment { sent_us: now_us, sacked: false, again };
            let at = (number - self.una) as usize;
            if at == self.segments.len() {
                self.segments.push_back(segment);
            } else {
                self.segments[at] = segment;
                self.lost.remove(&number);
            }
            self.pending.insert((now_us, number));
        }
    }

    /// The first run of lost segments, `most` at most.
    pub(super) fn lost_burst(&self, most: u64) -> Option<Burst> {
        let &first = self.lost.first()?;
        let run = self.lost.iter().take(most as usize).zip(first..);
        let count = run.take_while(|(number, expected)| *number == expected).count() as u64;
        Some(Burst { first, count })
    }

    pub(super) fn handle_ack(&mut self, ack: &Ack, now_us: u64) -> Seen {
        let mut seen = Seen::default();
        let mut newest = None;
        while self.una < ack.next {
            let Some(segment) = self.segments.pop_front() else { break };
            self.arrived(self.una, segment, &mut seen, &mut newest, now_us);
            self.sacked -= u64::from(segment.sacked);
            self.una += 1;
        }
        for (n, &(from, to)) in ack.sacks.iter().enumerate() {
            let is_within = ack.sacks.get(1).is_some_and(|of| of.0 <= from && to <= of.1);
            if n == 0 && (to <= ack.next || is_within) {
                seen.duplicate += to - from;
                continue;
            }
            for number in from.max(self.una)..to.min(self.next()) {
                let at = (number - self.una) as usize;
                let segment = self.segments[at];
                self.arrived(number, segment, &mut seen, &mut newest, now_us);
                self.sacked += u64::from(!segment.sacked);
                self.segments[at].sacked = true;
            }
        }
        if seen.duplicate > 0 {
            self.reordered = true;
            self.steps = (self.steps + 1).min(250);
        }
        seen.rtt_us = newest;
        seen
    }

    fn arrived(
        &mut self,
        number: u64,
        segment: Segment,
        seen: &mut Seen,
        rtt_us: &mut Option<u64>,
        now_us: u64,
    ) {
        if segment.sacked {
            return;
        }
        self.pending.remove(&(segment.sent_us, number));
        self.lost.remove(&number);
        seen.delivered += 1;
        let took_us = now_us - segment.sent_us;
        if !segment.again {
            self.reordered |= number < self.highest;
            *rtt_us = Some(took_us);
            self.rtt_min_us = Some(self.rtt_min_us.map_or(took_us, |least| least.min(took_us)));
        }
        self.highest = self.highest.max(number);
        let is_real = !segment.again || self.rtt_min_us.is_none_or(|least| took_us >= least);
        let key = (segment.sent_us, number, took_us);
        if is_real && self.newest.is_none_or(|(at, of, _)| (at, of) < (key.0, key.1)) {
            self.newest = Some(key);
        }
    }

    /// Marks what is lost; returns how many.
    pub(super) fn detect(&mut self, now_us: u64, srtt_us: u64) -> u64 {
        self.until_us = None;
        let Some((sent_us, number, rtt_us)) = self.newest else { return 0 };
        let window_us = if !self.reordered && self.sacked >= 3 {
            0
        } else {
            (self.rtt_min_us.unwrap_or(0) / 4 * (self.steps + 1)).min(srtt_us)
        };
        let mut count = 0;
        while let Some(&(at_us, of)) = self.pending.first() {
            if (at_us, of) > (sent_us, number) {
                break;
            }
            let due_us = at_us + rtt_us + window_us;
            if due_us > now_us {
                self.until_us = Some(due_us);
                break;
            }
            self.pending.pop_first();
            self.lost.insert(of);
            count += 1;
        }
        count
    }

    pub(super) fn reordering_until(&self) -> Option<u64> {
        self.until_us
    }

    pub(super) fn is_reordering_over(&self, now_us: u64) -> bool {
        self.until_us.is_some_and(|until_us| until_us <= now_us)
    }

    pub(super) fn lose_all(&mut self) {
        while let Some((_, number)) = self.pending.pop_first() {
            self.lost.insert(number);
        }
    }

    /// The last segment is sent again, as a probe.
    pub(super) fn lose_last(&mut self) {
        let Some(number) = self.next().checked_sub(1).filter(|&last| last >= self.una) else {
            return;
        };
        let segment = self.segments[(number - self.una) as usize];
        if !segment.sacked && self.pending.remove(&(segment.sent_us, number)) {
            self.lost.insert(number);
        }
    }

    /// What was taken for lost and not sent again is on its way.
    pub(super) fn unlose(&mut self) {
        while let Some(number) = self.lost.pop_first() {
            let sent_us = self.segments[(number - self.una) as usize].sent_us;
            self.pending.insert((sent_us, number));
        }
    }
}
