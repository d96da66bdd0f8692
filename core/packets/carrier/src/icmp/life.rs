//! How long filters remember a request: found out with requests that are answered late on purpose.

use std::time::Duration;

use noise::Instant;

use super::QUARTER;

/// What is tried, quarters of a second.
const LADDER: [u8; 9] = [2, 4, 8, 16, 24, 36, 56, 80, 120];
/// What is believed at first: 4 s.
const FIRST: usize = 3;
/// So many requests without their late answer, and filters forget earlier.
const TRIES_MAX: u32 = 2;
/// An answer is late by no more than this.
const SLACK: Duration = Duration::from_secs(1);
/// What was found is asked again after so long.
const AGAIN: Duration = Duration::from_secs(600);

/// What is known.
#[derive(Debug)]
pub(super) struct Life {
    rung: usize,
    /// Whether that was seen, and is not only believed.
    is_shown: bool,
    /// What is asked: a rung, and when its answer is overdue.
    asked: Option<(usize, u16, Instant)>,
    tries: u32,
    next: Instant,
}

impl Life {
    pub(super) fn new() -> Self {
        Self { rung: FIRST, is_shown: false, asked: None, tries: 0, next: Instant::ZERO }
    }

    /// For how long a request may be kept, quarters of a second.
    pub(super) fn quarters(&self) -> u8 {
        LADDER[self.rung]
    }

    pub(super) fn time(&self) -> Duration {
        QUARTER * u32::from(self.quarters())
    }

    /// How late the next request is to be answered, quarters of a second, if one is due; `wanted`
    /// is all that is of use.
    pub(super) fn poll(&mut self, wanted: Duration, now: Instant) -> Option<u8> {
        if let Some((rung, _, overdue)) = self.asked {
            if now < overdue {
                return None;
            }
            self.asked = None;
            self.handle_silence(rung, now);
        }
        if now < self.next {
            return None;
        }
        let is_short = self.time() < wanted && self.rung + 1 < LADDER.len();
        let rung = self.rung + usize::from(self.is_shown && is_short);
        self.asked = Some((rung, 0, now));
        Some(LADDER[rung])
    }

    /// The request that is due has this sequence number.
    pub(super) fn note_sent(&mut self, sequence: u16, now: Instant) {
        if let Some((rung, asked, overdue)) = &mut self.asked {
            *asked = sequence;
            *overdue = now + QUARTER * u32::from(LADDER[*rung]) + SLACK;
        }
    }

    /// A request was answered.
    pub(super) fn handle_answer(&mut self, sequence: u16, wanted: Duration, now: Instant) {
        let Some((rung, _, _)) = self.asked.filter(|(_, asked, _)| *asked == sequence) else {
            return;
        };
        self.rung = rung;
        self.is_shown = true;
        self.asked = None;
        self.tries = 0;
        self.next = if self.time() < wanted { now } else { now + AGAIN };
    }

    fn handle_silence(&mut self, rung: usize, now: Instant) {
        self.tries += 1;
        self.next = now;
        if self.tries < TRIES_MAX {
            return;
        }
        self.tries = 0;
        if rung > self.rung {
            self.next = now + AGAIN;
        } else {
            // Not even that: less, which is to be shown as well.
            self.rung = rung.saturating_sub(1);
            self.is_shown = false;
            self.next = if rung == 0 { now + AGAIN } else { now };
        }
    }

    /// When [`Life::poll`] has something to do.
    pub(super) fn poll_timeout(&self) -> Instant {
        self.asked.map_or(self.next, |(_, _, overdue)| overdue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs it against filters that remember for `filter` for an hour; returns what is believed.
    fn found(filter: Duration, wanted: Duration) -> Duration {
        let mut life = Life::new();
        let mut now = Instant(1);
        let mut due: Option<(u16, Instant)> = None;
        for sequence in 1..2_000 {
            if let Some((sequence, at)) = due.filter(|(_, at)| *at <= now) {
                life.handle_answer(sequence, wanted, at);
                due = None;
            }
            if let Some(quarters) = life.poll(wanted, now) {
                life.note_sent(sequence, now);
                let hold = QUARTER * u32::from(quarters);
                due = (hold < filter).then_some((sequence, now + hold));
            }
            now += QUARTER;
        }
        life.time()
    }

    #[test]
    fn what_filters_remember_is_found_and_no_more_is_asked_than_is_of_use() {
        let seconds = |n| Duration::from_secs(n);
        assert_eq!(found(seconds(10), seconds(60)), seconds(9));
        assert_eq!(found(seconds(3), seconds(60)), seconds(2));
        assert_eq!(found(seconds(300), seconds(60)), seconds(30));
        assert_eq!(found(seconds(300), seconds(4)), seconds(4));
        assert_eq!(found(Duration::from_millis(600), seconds(4)), Duration::from_millis(500));
    }
}
