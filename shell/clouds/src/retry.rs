//! Calls that have no answer: what may be done about it, and after which pause.
//!
//! A call that was throttled was not done, so it is sent again after a pause that doubles and is
//! chosen at random. A call whose answer was lost may have been done. It is sent again only where
//! doing it twice is doing it once; else the caller looks what became of it.

use std::time::Duration;

/// One call, with all that it is sent again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The same of who looks again soon, as a gateway does that asks for itself, and of a cloud that
/// just let a call without an answer for the whole time.
pub(crate) const SHORT_PATIENCE: Duration = Duration::from_secs(3);
/// The first pause, and the longest.
const PAUSE: Duration = Duration::from_millis(200);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(20);

/// Why a call has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// The provider's word for it; nothing if there was no answer.
    pub(crate) code: String,
    pub(crate) what: String,
    /// Whether it may have been done all the same.
    pub(crate) is_lost: bool,
}

impl Failure {
    /// One that was not done.
    pub(crate) fn new(code: &str, what: impl Into<String>) -> Self {
        Self { code: code.to_owned(), what: what.into(), is_lost: false }
    }

    /// One that may have been done.
    pub(crate) fn lost(action: &str, why: &str) -> Self {
        let what = format!("{action}: no answer: {why}");
        Self { code: String::new(), what, is_lost: true }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

/// This machine's clock, in seconds since 1970.
pub(crate) fn now_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// How long a client asks again; after a call that nobody answered for the whole time, for a moment
/// only.
pub(crate) struct Patience {
    usual: Duration,
    is_silent: bool,
}

impl Patience {
    pub(crate) const fn new(usual: Duration) -> Self {
        Self { usual, is_silent: false }
    }

    /// For a call that begins, with all that it is sent again.
    pub(crate) const fn whole(&self) -> Duration {
        if self.is_silent { SHORT_PATIENCE } else { self.usual }
    }

    /// Something was answered.
    pub(crate) const fn hear(&mut self) {
        self.is_silent = false;
    }

    /// A call failed, for which there was so much time left.
    pub(crate) fn note(&mut self, failure: &Failure, left: Duration) {
        // Without a code nobody said anything.
        self.is_silent = failure.code.is_empty() && left.is_zero();
    }
}

/// A number from 0 to 255, for pauses of several that were refused at once.
pub(crate) fn chance() -> u8 {
    let mut byte = [0];
    // Without randomness the pause is the longest one.
    let _ = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut byte);
    byte[0]
}

/// How long to wait before a call is sent again; none if it is not. `left` is what is left of the
/// time for all of it, as of [`PATIENCE`].
pub(crate) fn pause(
    tries: u32,
    left: Duration,
    is_safe: bool,
    failure: &Failure,
    chance: u8,
) -> Option<Duration> {
    let was_refused = ["Throttl", "RequestLimitExceeded", "SlowDown", "Busy"]
        .iter()
        .any(|word| failure.code.contains(word));
    let is_theirs = matches!(
        failure.code.as_str(),
        "InternalError" | "InternalFailure" | "Unavailable" | "ServiceUnavailable"
    );
    let was_unsent = failure.code.is_empty() && !failure.is_lost;
    let may = was_refused || was_unsent || (is_safe && (is_theirs || failure.is_lost));
    if !may || left.is_zero() {
        return None;
    }
    let whole = PAUSE.saturating_mul(2_u32.saturating_pow(tries)).min(PAUSE_MAX);
    Some(whole / 2 + whole.mul_f64(f64::from(chance) / 512.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_by_chance_and_end() {
        let throttled = Failure::new("Throttling", "");
        for tries in 0..20 {
            let [least, most] =
                [0, 255].map(|c| pause(tries, PATIENCE, true, &throttled, c).unwrap());
            let whole = PAUSE.saturating_mul(2_u32.saturating_pow(tries)).min(PAUSE_MAX);
            assert!(least * 2 == whole && most > least && most < whole, "{tries}");
        }
        assert_eq!(pause(9, Duration::ZERO, true, &throttled, 0), None);
    }
}
