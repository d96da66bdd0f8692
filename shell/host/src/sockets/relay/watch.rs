//! The watch on a relay: when it is pinged, and when it is believed dead. Time is an argument.

use std::time::Duration;

use noise::Instant;

use super::{ANSWER_WITHIN, PING_BUSY, PING_IDLE, UNHEARD};

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// A ping, and an answer within so long.
    Ping(Duration),
    /// It no longer answers.
    Silent,
}

/// What was sent and heard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    /// What is sent is acknowledged by itself: by QUIC.
    is_acknowledged: bool,
    heard: Instant,
    /// When something was sent first since then.
    unheard: Option<Instant>,
    pinged: Instant,
    /// Whether the last ping was answered, and how long that may take.
    is_answered: bool,
    patience: Duration,
    /// Something was sent since the last ping.
    is_busy: bool,
    rtt_us: Option<u64>,
}

impl Watch {
    pub(super) const fn new(is_acknowledged: bool, now: Instant) -> Self {
        Self {
            is_acknowledged,
            heard: now,
            unheard: None,
            pinged: now,
            is_answered: true,
            patience: ANSWER_WITHIN,
            is_busy: false,
            rtt_us: None,
        }
    }

    /// The latest round trip, in microseconds.
    pub(super) const fn rtt_us(&self) -> Option<u64> {
        self.rtt_us
    }

    pub(super) const fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// A datagram is sent.
    #[inline]
    pub(super) fn handle_sent(&mut self, now: Instant) {
        self.is_busy = true;
        self.unheard.get_or_insert(now);
    }

    /// Something came, be it no frame.
    pub(super) const fn handle_heard(&mut self, now: Instant) {
        self.heard = now;
        self.unheard = None;
    }

    /// The answer to the ping of `sent`.
    pub(super) fn handle_pong(&mut self, sent: Instant, now: Instant) {
        if self.pinged == sent {
            self.rtt_us = Some(u64::try_from(now.since(sent).as_micros()).unwrap_or(u64::MAX));
            self.is_answered = true;
        }
    }

    /// A ping is sent, and its answer awaited for so long.
    pub(super) const fn handle_ping(&mut self, patience: Duration, now: Instant) {
        self.pinged = now;
        self.patience = patience;
        self.is_answered = false;
        self.is_busy = false;
    }

    pub(super) fn due(&self, now: Instant) -> Due {
        let short = UNHEARD.max(Duration::from_micros(self.rtt_us.unwrap_or(0)) * 3);
        let is_unheard = self.is_acknowledged
            && self.unheard.is_some_and(|since| since.is_older_than(short, now));
        // A ping of before may have all its patience still: what was sent since was answered
        // by nothing.
        if is_unheard && (self.is_answered || self.patience > short) {
            return Due::Ping(short);
        }
        if !self.is_answered {
            if self.pinged.max(self.heard).is_older_than(self.patience, now) {
                return Due::Silent;
            }
            // A ping in a datagram, or its answer, may be lost.
            let lost = self.is_acknowledged
                && self.heard > self.pinged
                && self.pinged.is_older_than(UNHEARD, now);
            return if lost { Due::Ping(self.patience) } else { Due::Nothing };
        }
        let every = if self.is_busy { PING_BUSY } else { PING_IDLE };
        if self.pinged.is_older_than(every, now) { Due::Ping(ANSWER_WITHIN) } else { Due::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Instant = Instant(1_000_000_000_000);

    const fn at(ms: u64) -> Instant {
        T0.after(Duration::from_millis(ms))
    }

    /// Pings whenever one is due, every 10 ms, and sends so often; when it is believed dead.
    fn dies_ms(mut watch: Watch, begin_ms: u64, sends: bool) -> Option<u64> {
        for ms in (begin_ms..begin_ms + 20_000).step_by(10) {
            if sends {
                watch.handle_sent(at(ms));
            }
            match watch.due(at(ms)) {
                Due::Ping(patience) => watch.handle_ping(patience, at(ms)),
                Due::Silent => return Some(ms - begin_ms),
                Due::Nothing => {}
            }
        }
        None
    }

    #[test]
    fn by_quic_silence_is_death_after_600_ms_whatever_was_asked_before() {
        let mut answered = Watch::new(true, at(0));
        answered.handle_ping(ANSWER_WITHIN, at(0));
        answered.handle_heard(at(1));
        answered.handle_pong(at(0), at(1));
        assert_eq!(answered.rtt_us(), Some(1_000));
        assert_eq!(dies_ms(answered, 100, true), Some(600));
        // A ping of all patience went out just before the silence began.
        let mut asked = answered;
        asked.handle_ping(ANSWER_WITHIN, at(100));
        assert_eq!(dies_ms(asked, 110, true), Some(600));
        // Nothing is sent, so nothing is missed.
        assert_eq!(dies_ms(answered, 100, false), Some(PING_IDLE.as_millis() as u64 + 4_900));
    }

    #[test]
    fn long_round_trips_have_more_time() {
        let mut far = Watch::new(true, at(0));
        far.handle_ping(ANSWER_WITHIN, at(0));
        far.handle_heard(at(400));
        far.handle_pong(at(0), at(400));
        assert_eq!(dies_ms(far, 500, true), Some(2_400));
    }

    #[test]
    fn what_answers_lives_and_a_lost_ping_is_repeated() {
        let mut watch = Watch::new(true, at(0));
        let mut pings = 0;
        for ms in (10..60_000).step_by(10) {
            watch.handle_sent(at(ms));
            if ms % 50 == 0 {
                watch.handle_heard(at(ms));
            }
            match watch.due(at(ms)) {
                // Every answer is lost: that alone is no death while other things come.
                Due::Ping(patience) => {
                    pings += 1;
                    watch.handle_ping(patience, at(ms));
                }
                Due::Silent => panic!("dead after {ms} ms"),
                Due::Nothing => {}
            }
        }
        assert!(pings > 100, "{pings}");
    }

    #[test]
    fn a_stream_of_https_has_5_s_and_is_pinged_every_2_s_in_traffic() {
        let watch = Watch::new(false, at(0));
        assert_eq!(dies_ms(watch, 0, true), Some(7_000));
        assert_eq!(dies_ms(watch, 0, false), None, "asked after 15 s");
    }
}
