//! Handshakes per source: a token bucket for each IPv4 address and each IPv6 /64.
//!
//! Per source, so that one cannot starve others (threat DP-04); by /64, because whoever has one
//! IPv6 address has 2^64 of them (DP-02); bounded, and refusing newcomers when full rather than
//! forgetting those it limits (DP-03). The table's hash has a secret key, so that no choice of
//! addresses makes look-ups slow; a balanced tree promises that too, and in a flood it cost as much
//! as checking mac1 (docs/decisions.md).

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the hash is keyed with a secret, and what is forgotten depends on no order"
)]

use core::time::Duration;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, DefaultHasher, Hasher as _};
use std::net::IpAddr;

use crate::{Drop, Instant};

/// Most sources tracked at once (threat DP-03).
pub const SOURCES_MAX: usize = 65_536;
/// Handshakes per second and source, after the burst.
const RATE_PER_S: u32 = 20;
/// Handshakes a source may make at once after silence.
const BURST: u32 = 5;
/// Sources silent for so long are forgotten; their bucket has refilled long before.
pub(crate) const FORGET_AFTER: Duration = Duration::from_secs(1);

/// What one handshake costs, in nanoseconds of waiting.
const COST_NS: u64 = 1_000_000_000 / RATE_PER_S as u64;
const TOKENS_MAX_NS: u64 = COST_NS * BURST as u64;

/// Counts the handshakes of every source.
pub(crate) struct Limiter {
    buckets: HashMap<Source, Bucket, Keyed>,
    sweep_at: Instant,
    forget_after: Duration,
}

/// Whether a source was heard of in the last second or so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    Known,
    New,
}

/// An IPv4 address, or the upper half of an IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    V4(u32),
    V6(u64),
}

/// A hash that begins with a secret.
#[derive(Clone)]
struct Keyed(DefaultHasher);

impl BuildHasher for Keyed {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        self.0.clone()
    }
}

struct Bucket {
    tokens_ns: u64,
    seen: Instant,
}

impl Limiter {
    /// A limiter that forgets a source after a silence of `forget_after`. Nobody may guess `seed`.
    pub(crate) fn new(forget_after: Duration, seed: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(seed);
        let buckets = HashMap::with_hasher(Keyed(hasher));
        Self { buckets, sweep_at: Instant::MAX, forget_after }
    }

    /// Takes a token from the bucket of `source`.
    ///
    /// # Errors
    /// `RateLimited` if it is empty, `LimiterFull` if the source is new and there is no room.
    pub(crate) fn handle_handshake(&mut self, source: IpAddr, now: Instant) -> Result<(), Drop> {
        self.take(source, now).map(drop)
    }

    /// As [`Self::handle_handshake`]; tells whether the source was known.
    pub(crate) fn take(&mut self, source: IpAddr, now: Instant) -> Result<Standing, Drop> {
        self.sweep(now);
        let full = self.buckets.len() >= SOURCES_MAX;
        match self.buckets.entry(Source::new(source)) {
            Entry::Occupied(mut entry) => {
                let bucket = entry.get_mut();
                let is_old = bucket.seen.is_older_than(self.forget_after, now);
                let refill = now.0.saturating_sub(bucket.seen.0);
                bucket.tokens_ns = bucket.tokens_ns.saturating_add(refill).min(TOKENS_MAX_NS);
                bucket.seen = now;
                bucket.tokens_ns =
                    bucket.tokens_ns.checked_sub(COST_NS).ok_or(Drop::RateLimited)?;
                Ok(if is_old { Standing::New } else { Standing::Known })
            }
            Entry::Vacant(_) if full => Err(Drop::LimiterFull),
            Entry::Vacant(entry) => {
                entry.insert(Bucket { tokens_ns: TOKENS_MAX_NS - COST_NS, seen: now });
                self.sweep_at = self.sweep_at.min(now + self.forget_after);
                Ok(Standing::New)
            }
        }
    }

    /// When `sweep` next has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        (self.sweep_at != Instant::MAX).then_some(self.sweep_at)
    }

    /// Forgets the sources that have been silent for long enough, as often as that.
    pub(crate) fn sweep(&mut self, now: Instant) {
        if now < self.sweep_at {
            return;
        }
        let forget_after = self.forget_after;
        self.buckets.retain(|_, bucket| !bucket.seen.is_older_than(forget_after, now));
        let empty = self.buckets.is_empty();
        self.sweep_at = if empty { Instant::MAX } else { now + self.forget_after };
    }
}

impl Source {
    fn new(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self::V4(v4.to_bits()),
            IpAddr::V6(v6) => Self::V6((v6.to_bits() >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests;
