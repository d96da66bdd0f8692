//! Whether a gateway of a pair still reaches other sites. One that reaches none leaves its site's
//! machines to the other one, which may.
//!
//! A path that answers to one other site is enough. None that answers counts only while something
//! is sent, since nobody probes a path that is not used. Who was answered before gives way at once.
//! Who gave way, or was never answered, does so after a pause that doubles up to [`PAUSE_MAX`]:
//! where all other sites are gone, a pair does not change sides all the time.

use core::time::Duration;

use noise::Instant;

/// How long a gateway that gave way and was not answered since does not do so again.
pub const PAUSE: Duration = Duration::from_secs(30);
/// The longest such pause.
pub const PAUSE_MAX: Duration = Duration::from_secs(600);

/// What the paths to other sites' gateways say, all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paths {
    /// One of them answers.
    Answer,
    /// None answers, and nothing is sent that could be answered.
    Quiet,
    /// None answers to what is sent.
    Silent,
}

/// One gateway's sight of other sites, while it leads.
#[derive(Clone, Copy, Debug)]
pub struct Outward {
    was_answered: bool,
    not_before: Instant,
    pause: Duration,
}

impl Outward {
    /// Nobody answered yet.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { was_answered: false, not_before: now + PAUSE, pause: PAUSE }
    }

    /// Takes what the paths say; whether this gateway is to give way.
    #[must_use]
    pub fn handle(&mut self, paths: Paths, now: Instant) -> bool {
        match paths {
            Paths::Answer => {
                self.was_answered = true;
                self.pause = PAUSE;
                false
            }
            Paths::Silent if self.was_answered || now >= self.not_before => {
                self.was_answered = false;
                self.not_before = now + self.pause;
                self.pause = self.pause.saturating_mul(2).min(PAUSE_MAX);
                true
            }
            Paths::Quiet | Paths::Silent => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_001_14_who_reaches_nobody_gives_way_and_not_all_the_time() {
        let at = |s: u64| Instant(1) + Duration::from_secs(s);
        let mut outward = Outward::new(at(0));
        let gave = |outward: &mut Outward, from: u64, to: u64| -> Vec<u64> {
            (from..to).filter(|s| outward.handle(Paths::Silent, at(*s))).collect()
        };
        assert_eq!(gave(&mut outward, 1, 300), [30, 60, 120, 240], "nobody ever answered");
        assert!(!outward.handle(Paths::Answer, at(300)) && !outward.handle(Paths::Quiet, at(301)));
        assert_eq!(gave(&mut outward, 302, 500), [302, 332, 392], "at once, for one answered");
    }
}
