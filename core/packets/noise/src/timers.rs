//! The protocol's timers and constants (WireGuard paper, section 6).
//!
//! Deadlines are plain fields. Setting one is a store, and the earliest is the least of six.

use core::time::Duration;

use crate::Instant;

/// An initiator renews a session of this age.
pub const REKEY_AFTER_TIME: Duration = Duration::from_secs(120);
/// Nobody uses a session of this age.
pub const REJECT_AFTER_TIME: Duration = Duration::from_secs(180);
/// Least time between two initiations to one peer, see also `FIRST_TIMEOUTS`.
pub const REKEY_TIMEOUT: Duration = Duration::from_secs(5);
/// What stands for [`REKEY_TIMEOUT`] after the first initiations that are not answered, where there
/// is no session to lose and the peer is known to be of our make: one datagram in ten that weather
/// takes shouldn't cost the 5 s. The second of these times leaves the answer a way of 2 s.
pub(crate) const FIRST_TIMEOUTS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
/// After receiving data, silence longer than this is broken by a keepalive.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Initiations sent before a peer is given up: REKEY_ATTEMPT_TIME 90 s over REKEY_TIMEOUT 5 s.
pub const HANDSHAKE_ATTEMPTS_MAX: u32 = 18;

/// Secrets are wiped when no session was agreed for so long.
pub(crate) const WIPE_AFTER: Duration = Duration::from_secs(3 * REJECT_AFTER_TIME.as_secs());
/// An initiator that only receives renews its session at this age, before it ends.
pub(crate) const LAST_MINUTE: Duration = Duration::from_secs(
    REJECT_AFTER_TIME.as_secs() - KEEPALIVE_TIMEOUT.as_secs() - REKEY_TIMEOUT.as_secs(),
);
/// Retransmissions are spread by up to this, so that two peers do not keep colliding.
const JITTER_MAX: Duration = Duration::from_nanos(1_000_000_000 / 3);
/// Data sent and nothing received for so long: the session may be dead at the other end.
const SILENCE_TIMEOUT: Duration =
    Duration::from_secs(KEEPALIVE_TIMEOUT.as_secs() + REKEY_TIMEOUT.as_secs());
const OFF: Instant = Instant::MAX;

/// Why a peer wants to be woken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Why {
    /// `poll_action` has something; due at once.
    Action,
    /// No response to the initiation in flight.
    Retransmit,
    /// Data came in and nothing went out for 10 s.
    Keepalive,
    /// Data went out and nothing came back for 15 s.
    Silence,
    /// The configured persistent keepalive.
    PersistentKeepalive,
    /// A session has reached 180 s and is dropped.
    SessionEnd,
    /// 540 s without a new session: every secret of the handshake is wiped.
    Wipe,
}

/// One peer's deadlines.
pub(crate) struct Timers {
    retransmit: Instant,
    keepalive: Instant,
    silence: Instant,
    persistent: Instant,
    wipe: Instant,
    /// When the first of the sessions ends.
    pub(crate) session_end: Instant,
    /// More data came in while the keepalive was already due: one more after it.
    keepalive_again: bool,
    /// The session was already renewed for its last minute.
    pub(crate) last_minute_done: bool,
    /// Persistent keepalive interval in seconds, 0 for off.
    pub(crate) interval_s: u16,
    /// Initiations sent since the handshake was wanted.
    pub(crate) attempts: u32,
    jitter: u64,
}

impl Timers {
    /// All off. `seed` makes the jitter differ between peers; it need not be secret.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            retransmit: OFF,
            keepalive: OFF,
            silence: OFF,
            persistent: OFF,
            wipe: OFF,
            session_end: OFF,
            keepalive_again: false,
            last_minute_done: false,
            interval_s: 0,
            attempts: 0,
            jitter: seed,
        }
    }

    /// Data went out: an answer of some kind is expected.
    pub(crate) fn data_sent(&mut self, now: Instant) {
        self.authenticated_sent(now);
        if self.silence == OFF {
            self.silence = now + SILENCE_TIMEOUT + self.jitter();
        }
    }

    /// A keepalive went out. It expects no answer; if data kept coming in while it was due, one
    /// more follows.
    pub(crate) fn keepalive_sent(&mut self, now: Instant) {
        let again = self.keepalive_again;
        self.authenticated_sent(now);
        if again {
            self.keepalive = now + KEEPALIVE_TIMEOUT;
        }
    }

    /// Data came in.
    pub(crate) fn data_received(&mut self, now: Instant) {
        if self.keepalive == OFF {
            self.keepalive = now + KEEPALIVE_TIMEOUT;
        } else {
            self.keepalive_again = true;
        }
    }

    /// Anything the peer can authenticate went out: it knows we live.
    pub(crate) fn authenticated_sent(&mut self, now: Instant) {
        self.keepalive = OFF;
        self.keepalive_again = false;
        self.authenticated_passed(now);
    }

    /// Anything authentic came in: the peer lives.
    pub(crate) fn authenticated_received(&mut self, now: Instant) {
        self.silence = OFF;
        self.authenticated_passed(now);
    }

    fn authenticated_passed(&mut self, now: Instant) {
        if self.interval_s != 0 {
            self.persistent = now + self.interval();
        }
    }

    /// An initiation went out, or could not because one went out at `sent`.
    pub(crate) fn expect_response(&mut self, sent: Instant, timeout: Duration) {
        self.retransmit = sent + timeout + self.jitter();
    }

    /// `true` while a retransmission is planned.
    pub(crate) fn expects_response(&self) -> bool {
        self.retransmit != OFF
    }

    /// Keys were agreed.
    pub(crate) fn session_agreed(&mut self, now: Instant) {
        self.wipe = now + WIPE_AFTER;
    }

    /// The peer has proven to hold the keys agreed.
    pub(crate) fn handshake_completed(&mut self) {
        self.retransmit = OFF;
        self.attempts = 0;
        self.last_minute_done = false;
    }

    /// The peer was given up.
    pub(crate) fn give_up(&mut self, now: Instant) {
        self.keepalive = OFF;
        self.keepalive_again = false;
        if self.wipe == OFF {
            self.wipe = now + WIPE_AFTER;
        }
    }

    /// Everything off but the persistent keepalive, which outlives sessions.
    pub(crate) fn stop(&mut self) {
        let persistent = self.persistent;
        let interval_s = self.interval_s;
        let jitter = self.jitter;
        *self = Self { persistent, interval_s, ..Self::new(jitter) };
    }

    /// Stops the persistent keepalive until the next packet.
    pub(crate) fn pause(&mut self) {
        self.persistent = OFF;
    }

    /// Sets the persistent keepalive's interval.
    pub(crate) fn set_interval(&mut self, seconds: u16) {
        self.interval_s = seconds;
        if seconds == 0 {
            self.persistent = OFF;
        }
    }

    /// Takes one deadline that has passed, switching it off; call until `None`.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Why> {
        let (deadline, why) = self.earliest();
        if deadline == OFF || deadline > now {
            return None;
        }
        match why {
            Why::Action => {}
            Why::Retransmit => self.retransmit = OFF,
            Why::Keepalive => self.keepalive = OFF,
            Why::Silence => self.silence = OFF,
            Why::PersistentKeepalive => self.persistent = now + self.interval(),
            Why::SessionEnd => self.session_end = OFF,
            Why::Wipe => self.wipe = OFF,
        }
        Some(why)
    }

    /// The next deadline.
    pub(crate) fn poll_timeout(&self) -> Option<(Instant, Why)> {
        let (deadline, why) = self.earliest();
        (deadline != OFF).then_some((deadline, why))
    }

    fn earliest(&self) -> (Instant, Why) {
        let mut earliest = (self.retransmit, Why::Retransmit);
        for (deadline, why) in [
            (self.keepalive, Why::Keepalive),
            (self.silence, Why::Silence),
            (self.persistent, Why::PersistentKeepalive),
            (self.session_end, Why::SessionEnd),
            (self.wipe, Why::Wipe),
        ] {
            if deadline < earliest.0 {
                earliest = (deadline, why);
            }
        }
        earliest
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(u64::from(self.interval_s))
    }

    /// The next of a sequence of delays up to a third of a second (xorshift; nothing secret).
    fn jitter(&mut self) -> Duration {
        self.jitter |= 1;
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        Duration::from_nanos(self.jitter % JITTER_MAX.as_nanos() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_constants_are_those_of_the_protocol() {
        assert_eq!(WIPE_AFTER.as_secs(), 540);
        assert_eq!(LAST_MINUTE.as_secs(), 165);
        assert_eq!(SILENCE_TIMEOUT.as_secs(), 15);
    }

    #[test]
    fn jitter_stays_below_a_third_of_a_second_and_varies() {
        for seed in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
            let mut timers = Timers::new(seed);
            let delays: std::collections::BTreeSet<_> =
                (0..1000).map(|_| timers.jitter()).collect();
            assert!(delays.last().expect("not empty") < &JITTER_MAX);
            assert!(delays.len() > 990, "seed {seed}");
        }
    }
}
