//! Who is sent a cookie: a source only so often, and all of them together only so many.
//!
//! A cookie reply costs us as much as a packet. A flood with invented sources must not buy more
//! of our time than an established stream can spare; and it must not keep the reply from somebody
//! who asks for the first time. So there are two budgets, one for sources that were heard of in
//! the last seconds and one for newcomers, and a flood that stays with its addresses draws on the
//! first alone. (Threats DP-01, DP-06.)

use core::time::Duration;
use std::net::IpAddr;

use crate::limiter::{Limiter, Standing};
use crate::{Drop, Instant};

/// Cookie replies from each of the two budgets in a slice of 100 ms: a flood that begins is new
/// itself, and shall not have spent a whole second's budget.
const BUDGET: u32 = 200;
const SLICE_MS: u64 = 100;
/// How long a source counts as known. A flood that draws its sources by chance comes back to most
/// of them within a second, but not to all; and an initiator that was refused tries again after
/// 5 s, when it has to be new once more.
const KNOWN_FOR: Duration = Duration::from_secs(4);

/// Decides which handshake message without a valid cookie is worth a reply.
pub(crate) struct Replies {
    limiter: Limiter,
    slice: u64,
    /// Spent in this slice: on known sources, on newcomers.
    spent: [u32; 2],
}

impl Replies {
    /// Nobody may guess `seed`.
    pub(crate) fn new(seed: &[u8]) -> Self {
        Self { limiter: Limiter::new(KNOWN_FOR, seed), slice: 0, spent: [0; 2] }
    }

    /// Whether `source` is to be sent a cookie.
    ///
    /// # Errors
    /// `RateLimited` if it was sent too many, `CookieBudget` if all were. A limiter that is full
    /// refuses nobody, since the budget bounds what a reply may cost; newcomers then count as
    /// known.
    pub(crate) fn handle_handshake(&mut self, source: IpAddr, now: Instant) -> Result<(), Drop> {
        let budget = match self.limiter.take(source, now) {
            Ok(Standing::New) => 1,
            Ok(Standing::Known) => 0,
            // Nobody can tell: whatever is left.
            Err(Drop::LimiterFull) => usize::from(self.spent[0] >= BUDGET),
            Err(reason) => return Err(reason),
        };
        let slice = now.0 / (SLICE_MS * 1_000_000);
        if slice != self.slice {
            self.slice = slice;
            self.spent = [0; 2];
        }
        if self.spent[budget] >= BUDGET {
            return Err(Drop::CookieBudget);
        }
        self.spent[budget] += 1;
        Ok(())
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.limiter.poll_timeout()
    }

    pub(crate) fn sweep(&mut self, now: Instant) {
        self.limiter.sweep(now);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn source(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    /// Threat DP-01: 32,000 sources that stay, at 84,000 a second, and somebody new each 10 ms.
    #[test]
    fn dp_01_newcomers_are_answered_in_a_flood_of_known_sources() {
        let mut replies = Replies::new(&[7; 16]);
        let (mut answered, mut newcomers) = (0, 0);
        for step in 0..84_000 * 4_u32 {
            let now =
                Instant::ZERO + Duration::from_nanos(u64::from(step) * 1_000_000_000 / 84_000);
            let to_flood = replies.handle_handshake(source(step % 32_000), now).is_ok();
            answered += u32::from(to_flood);
            if step >= 42_000 && step % 840 == 0 {
                let new = replies.handle_handshake(source(1_000_000 + step), now);
                newcomers += u32::from(new.is_ok());
            }
        }
        assert_eq!(newcomers, 350, "each newcomer is answered once the flood is known");
        assert!(answered <= 40 * 2 * BUDGET, "{answered}");
    }

    /// As above, but the flood draws each source by chance, so some come back only after seconds.
    #[test]
    fn dp_01_newcomers_are_answered_in_a_flood_that_draws_its_sources() {
        let mut replies = Replies::new(&[7; 16]);
        let (mut state, mut newcomers) = (1_u32, 0);
        for step in 0..84_000 * 4_u32 {
            let ns = u64::from(step) * 1_000_000_000 / 84_000;
            let now = Instant::ZERO + Duration::from_nanos(ns);
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let _ = replies.handle_handshake(source((state >> 12) % 32_000), now);
            if step >= 168_000 && step % 840 == 0 {
                let new = replies.handle_handshake(source(1_000_000 + step), now);
                newcomers += u32::from(new.is_ok());
            }
        }
        assert!(newcomers >= 198, "{newcomers} of 200 newcomers were answered");
    }

    #[test]
    fn who_was_refused_at_first_is_new_again_after_five_seconds() {
        let mut replies = Replies::new(&[7; 16]);
        for number in 0..BUDGET {
            assert_eq!(replies.handle_handshake(source(number), Instant(5)), Ok(()));
        }
        let late = source(1_000_000);
        assert_eq!(replies.handle_handshake(late, Instant(5)), Err(Drop::CookieBudget));
        let now = Instant(5) + Duration::from_secs(5);
        for number in 0..BUDGET + 1 {
            let spent = replies.handle_handshake(source(1), now + Duration::from_nanos(1));
            assert!(number < 5 || spent.is_err());
        }
        assert_eq!(replies.handle_handshake(late, now), Ok(()));
    }

    #[test]
    fn with_a_full_limiter_the_budget_alone_decides() {
        let mut replies = Replies::new(&[7; 16]);
        let (mut answered, mut refused) = (0, 0);
        for number in 0..100_000 {
            match replies.handle_handshake(source(number), Instant(5)) {
                Ok(()) => answered += 1,
                Err(reason) => {
                    assert_eq!(reason, Drop::CookieBudget);
                    refused += 1;
                }
            }
        }
        assert_eq!((answered, refused), (2 * BUDGET, 100_000 - 2 * BUDGET));
    }
}
