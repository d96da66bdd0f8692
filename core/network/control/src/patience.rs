//! How long to wait before another try at a server or relay that does not answer, so that it is
//! found soon after it is back and not overrun by everybody who missed it (threat CO-10).
//!
//! Pauses double from half a second. While it has been away for less than 40 s they are 2 s at
//! most, later a twentieth of the time that it has been away, 30 s at most: who was gone for a
//! minute is found within three seconds, and an outage lasts a twentieth longer at most. Each is
//! drawn from its upper three quarters: nodes that lost a server at one moment are spread over a
//! second after their second try.

use core::time::Duration;

use noise::{Instant, Random};

const FIRST: Duration = Duration::from_millis(500);
const SOON: Duration = Duration::from_secs(2);
const LAST: Duration = Duration::from_secs(30);
/// The part of the time away that a pause may take.
const SHARE: u32 = 20;

/// One server or relay that is tried until it answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Patience {
    tries: u32,
    since: Option<Instant>,
    is_back: bool,
}

impl Patience {
    /// Whether something failed since the last success.
    #[must_use]
    pub const fn is_tried(&self) -> bool {
        self.tries > 0
    }

    /// It answers, but has forgotten who asks, as after its restart: pauses begin anew. Of one that
    /// does so again before anything succeeded, that is no sign of life.
    pub fn handle_return(&mut self) {
        if !self.is_back {
            *self = Self { is_back: true, ..Self::default() };
        }
    }

    /// The pause after a try that failed at `now`. Where there are several `ways`, each is tried
    /// before the pause doubles.
    pub fn pause(&mut self, ways: usize, now: Instant, random: &mut dyn Random) -> Duration {
        let away = now.since(*self.since.get_or_insert(now));
        let most = (away / SHARE).clamp(SOON, LAST);
        let pause = FIRST.saturating_mul(1 << (self.tries / ways.max(1) as u32).min(16)).min(most);
        self.tries = self.tries.saturating_add(1);
        let mut bytes = [0; 4];
        random.fill(&mut bytes);
        let drawn = f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX);
        pause.mul_f64(0.25 + 0.75 * drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::tests::testing::Seeded;

    const NODES: usize = 1_000;

    /// When each of a thousand nodes, which lose a server within `spread` of each other, is heard
    /// by it once it is back after `away`; and how often it was tried in vain.
    fn back(away: Duration) -> (Vec<Duration>, usize) {
        let random = &mut Seeded(away.as_millis() as u64 + 7);
        let mut vain = 0;
        let each = |_| {
            let mut patience = Patience::default();
            let mut now = Instant(1);
            let end = now.after(away);
            loop {
                now = now.after(patience.pause(1, now, random));
                if now >= end {
                    return now.since(end);
                }
                vain += 1;
            }
        };
        let mut back: Vec<Duration> = (0..NODES).map(each).collect();
        back.sort_unstable();
        (back, vain)
    }

    /// Most that come within so long.
    fn peak(sorted: &[Duration], within: Duration) -> usize {
        let from = |(i, at): (usize, &Duration)| {
            sorted[i..].iter().take_while(|other| **other < *at + within).count()
        };
        sorted.iter().enumerate().map(from).max().unwrap_or(0)
    }

    #[test]
    fn co_10_who_is_forgotten_by_a_server_that_is_back_waits_as_after_a_first_try_and_once() {
        let random = &mut Seeded(5);
        let mut patience = Patience::default();
        let mut now = Instant(1);
        while now < Instant(1).after(Duration::from_secs(25)) {
            now = now.after(patience.pause(1, now, random));
        }
        patience.handle_return();
        assert!(patience.pause(1, now, random) <= FIRST);
        for _ in 0..4 {
            patience.handle_return();
            now = now.after(patience.pause(1, now, random));
        }
        assert!(patience.pause(1, now, random) > FIRST, "it forgets each time");
    }

    #[test]
    fn co_10_a_thousand_nodes_are_back_within_three_seconds_and_not_at_once() {
        let mut told = String::new();
        for away_s in [1, 5, 25, 40, 60] {
            let away = Duration::from_secs(away_s);
            let (back, vain) = back(away);
            let last = back[NODES - 1];
            let peak = peak(&back, Duration::from_millis(100));
            let tries = vain as f64 / NODES as f64 / away.as_secs_f64();
            told += &format!("{away_s} s: last {last:?}, peak {peak} in 100 ms, {tries:.2}/s\n");
            assert!(last <= Duration::from_secs(3), "{told}");
            assert!(peak <= NODES / 5, "{told}");
            assert!(tries < 3.0, "{told}");
        }
        // For good: one in half a minute.
        let (back, vain) = back(Duration::from_secs(86_400));
        assert!(back[NODES - 1] <= LAST, "{told}");
        assert!(vain / NODES < 86_400 / 15, "{vain}");
    }
}
