//! The routes by which a provider leads a site's machines to a pair of gateways: when the one that
//! holds the pair's address ([`crate::shared`]) sets them to itself, and when it gives way.
//!
//! 1. Who has just come to hold it sets the routes, again every [`AGAIN`] until that is done.
//! 2. From then on it looks every [`LOOK_EVERY`]. Routes that lead to the other gateway were led
//!    there by an operator, or by who made them first: the provider's word counts, and it gives
//!    way.
//! 3. Routes that it cannot set for [`PATIENCE`] the other one may be able to: it gives way, too.
//!    Routes that it set and cannot look at any more are as they were: it stays.
//! 4. Who stands by looks every [`STANDBY_EVERY`], so that what is wrong with its rights is told
//!    before they are needed.

use core::time::Duration;

use noise::Instant;

/// How often the holder looks where the routes lead.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);
/// After what failed, another try.
pub const AGAIN: Duration = Duration::from_secs(1);
/// How long the holder tries to set them before it gives way.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How often who stands by looks.
pub const STANDBY_EVERY: Duration = Duration::from_secs(60);

/// What the provider is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Where the routes lead.
    Look,
    /// That they lead here.
    Set,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No route leads to the other gateway.
    Here,
    /// One does.
    There,
    /// The provider did not answer, or refused.
    Failed,
}

/// One gateway's part in it.
#[derive(Clone, Debug)]
pub struct Led {
    holds: bool,
    is_set: bool,
    due: Instant,
    /// Since when they could not be set.
    failing: Option<Instant>,
}

impl Led {
    /// Stands by.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { holds: false, is_set: false, due: now, failing: None }
    }

    /// Whether this gateway holds the pair's address now.
    pub fn set_holds(&mut self, holds: bool, now: Instant) {
        if holds != self.holds {
            *self = Self { holds, ..Self::new(now) };
        }
    }

    /// Whether it set the routes, and they were its own when it looked last.
    #[must_use]
    pub const fn is_set(&self) -> bool {
        self.is_set
    }

    /// What is to be asked now, if it is time.
    #[must_use]
    pub fn poll(&self, now: Instant) -> Option<Ask> {
        let ask = if self.holds && !self.is_set { Ask::Set } else { Ask::Look };
        (now >= self.due).then_some(ask)
    }

    /// Takes what came of it; whether this gateway is to give way.
    #[must_use]
    pub fn handle(&mut self, found: Found, now: Instant) -> bool {
        match found {
            _ if !self.holds => {
                self.due = now + STANDBY_EVERY;
                false
            }
            Found::There if self.is_set => {
                self.due = now + LOOK_EVERY;
                self.is_set = false;
                true
            }
            Found::Failed if self.is_set => {
                self.due = now + LOOK_EVERY;
                false
            }
            Found::There | Found::Failed => {
                self.due = now + AGAIN;
                now.since(*self.failing.get_or_insert(now)) >= PATIENCE
            }
            Found::Here => {
                self.due = now + LOOK_EVERY;
                self.is_set = true;
                self.failing = None;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(1) + Duration::from_millis(ms)
    }

    #[test]
    fn source_001_14_routes_are_set_at_once_and_again_until_they_are() {
        let mut led = Led::new(at(0));
        assert_eq!(led.poll(at(0)), Some(Ask::Look), "what is wrong is told before it matters");
        assert!(!led.handle(Found::Failed, at(0)));
        assert_eq!(led.poll(at(1_000)), None);
        led.set_holds(true, at(1_000));
        for ms in [1_000, 2_000] {
            assert_eq!(led.poll(at(ms)), Some(Ask::Set), "{ms}");
            assert!(!led.handle(Found::Failed, at(ms)) && !led.is_set(), "{ms}");
            led.set_holds(true, at(ms));
            assert_eq!(led.poll(at(ms)), None, "{ms}");
        }
        assert!(!led.handle(Found::Here, at(3_000)) && led.is_set());
        assert_eq!((led.poll(at(7_999)), led.poll(at(8_000))), (None, Some(Ask::Look)));
    }

    #[test]
    fn source_001_14_an_operators_word_counts_and_a_provider_that_is_silent_has_none() {
        let mut led = Led::new(at(0));
        led.set_holds(true, at(0));
        assert!(!led.handle(Found::Here, at(0)));
        for second in 1..60 {
            assert!(!led.handle(Found::Failed, at(second * 1_000)) && led.is_set());
        }
        assert!(led.handle(Found::There, at(60_000)), "somebody led them to the other one");
        led.set_holds(false, at(61_000));
        assert!(!led.handle(Found::There, at(61_000)), "where they belong now");
    }

    #[test]
    fn source_001_14_who_may_not_set_them_gives_way() {
        let mut led = Led::new(at(0));
        led.set_holds(true, at(0));
        let first = (0..60_u64).find(|second| led.handle(Found::Failed, at(second * 1_000)));
        assert_eq!(first, Some(10));
    }
}
