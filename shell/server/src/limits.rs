//! How much one source, one token and one join key may ask for (threat CO-11, WB-08).
//!
//! Buckets that fill with time and are emptied by use, in tables with a bound. Secrets have 128
//! bits, so nothing here keeps anybody from guessing; what it keeps is that one source, or one
//! token in a loop, takes the server's time from all others. A source is an IPv4 address or an
//! IPv6 /64, since whoever has one of those has all of it. A proxy in front is one source for all
//! behind it: the bounds are wide enough for a thousand nodes behind one address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::app::lock;

/// Keys that a table remembers.
const ENTRIES_MAX: usize = 8192;
/// Open connections of one source.
const CONNECTIONS_MAX: u32 = 4096;

/// How fast a bucket fills, and how much it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) burst: u32,
    pub(crate) per_s: u32,
}

/// New connections, each with a TLS handshake, of a source.
const CONNECTS: Rate = Rate { burst: 4096, per_s: 100 };
/// New channels, each with four Diffie-Hellman, of a source.
const CHANNELS: Rate = Rate { burst: 4096, per_s: 100 };
/// Secrets that opened nothing, of a source.
const FAILURES: Rate = Rate { burst: 256, per_s: 1 };
/// Calls of the API with one token.
const CALLS: Rate = Rate { burst: 200, per_s: 20 };
/// Nodes that join with one key.
const JOINS: Rate = Rate { burst: 2048, per_s: 50 };

/// Who asks, as far as addresses tell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Source(u64);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(u64::from(v4.to_bits())),
            // No /64 of the Internet begins with zeros.
            IpAddr::V6(v6) => Self((v6.to_bits() >> 64) as u64),
        }
    }
}

/// A table of buckets.
#[derive(Debug)]
pub(crate) struct Buckets<K> {
    rate: Rate,
    /// Thousandths of what is left, and when that was.
    left: BTreeMap<K, (u64, u64)>,
}

impl<K: Copy + Ord> Buckets<K> {
    pub(crate) const fn new(rate: Rate) -> Self {
        Self { rate, left: BTreeMap::new() }
    }

    const fn full(&self) -> u64 {
        self.rate.burst as u64 * 1000
    }

    fn level(&self, (left, at_ms): (u64, u64), now_ms: u64) -> u64 {
        let filled = now_ms.saturating_sub(at_ms).saturating_mul(self.rate.per_s.into());
        left.saturating_add(filled).min(self.full())
    }

    /// Whether one more is left.
    pub(crate) fn has(&self, key: K, now_ms: u64) -> bool {
        self.left.get(&key).is_none_or(|bucket| self.level(*bucket, now_ms) >= 1000)
    }

    /// Takes one, if it is left.
    pub(crate) fn take(&mut self, key: K, now_ms: u64) -> bool {
        let known = self.left.get(&key).copied();
        if known.is_none() {
            self.make_room(now_ms);
        }
        let level = known.map_or_else(|| self.full(), |bucket| self.level(bucket, now_ms));
        let Some(rest) = level.checked_sub(1000) else { return false };
        self.left.insert(key, (rest, now_ms));
        true
    }

    /// Buckets that are full again say nothing; if all say something, the one that was used
    /// longest ago is forgotten.
    fn make_room(&mut self, now_ms: u64) {
        if self.left.len() < ENTRIES_MAX {
            return;
        }
        let full = self.full();
        let mut left = std::mem::take(&mut self.left);
        left.retain(|_, bucket| self.level(*bucket, now_ms) < full);
        self.left = left;
        if self.left.len() >= ENTRIES_MAX {
            let oldest = self.left.iter().min_by_key(|(_, (_, at_ms))| *at_ms);
            if let Some(key) = oldest.map(|(key, _)| *key) {
                self.left.remove(&key);
            }
        }
    }
}

/// All tables.
#[derive(Debug)]
struct Tables {
    connects: Buckets<Source>,
    channels: Buckets<Source>,
    failures: Buckets<Source>,
    calls: Buckets<[u8; 8]>,
    joins: Buckets<[u8; 8]>,
    open: BTreeMap<Source, u32>,
}

/// How much everybody may ask for.
#[derive(Debug)]
pub(crate) struct Limits {
    tables: Mutex<Tables>,
    refused: AtomicU64,
    begin: Instant,
}

/// An open connection of a source; it counts until this is dropped.
pub(crate) struct Held(Arc<Limits>, Source);

impl Drop for Held {
    fn drop(&mut self) {
        let mut tables = lock(&self.0.tables);
        if let Some(count) = tables.open.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                tables.open.remove(&self.1);
            }
        }
    }
}

impl Limits {
    pub(crate) fn new() -> Arc<Self> {
        let tables = Tables {
            connects: Buckets::new(CONNECTS),
            channels: Buckets::new(CHANNELS),
            failures: Buckets::new(FAILURES),
            calls: Buckets::new(CALLS),
            joins: Buckets::new(JOINS),
            open: BTreeMap::new(),
        };
        let refused = AtomicU64::new(0);
        Arc::new(Self { tables: Mutex::new(tables), refused, begin: Instant::now() })
    }

    fn now_ms(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }

    fn with<T>(&self, work: impl FnOnce(&mut Tables, u64) -> T) -> T {
        work(&mut lock(&self.tables), self.now_ms())
    }

    /// Open connections.
    pub(crate) fn open(&self) -> u32 {
        lock(&self.tables).open.values().sum()
    }

    /// Connections that were refused since the start, for whichever bound.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// A connection was refused.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A new connection, unless its source has too many or makes them too fast. The number of all
    /// connections bounds the table.
    pub(crate) fn connect(self: &Arc<Self>, source: Source) -> Option<Held> {
        self.with(|tables, now_ms| {
            let open = tables.open.get(&source).copied().unwrap_or(0);
            if open >= CONNECTIONS_MAX || !tables.connects.take(source, now_ms) {
                return None;
            }
            tables.open.insert(source, open + 1);
            Some(Held(Arc::clone(self), source))
        })
    }

    /// Whether a source may open another channel.
    pub(crate) fn channel(&self, source: Source) -> bool {
        self.with(|tables, now_ms| tables.channels.take(source, now_ms))
    }

    /// Whether a secret of this source is looked at. Callers on this machine are not counted.
    pub(crate) fn may_try(&self, source: Option<Source>) -> bool {
        source.is_none_or(|source| self.with(|tables, now_ms| tables.failures.has(source, now_ms)))
    }

    /// A secret of this source opened nothing.
    pub(crate) fn failed(&self, source: Option<Source>) {
        if let Some(source) = source {
            self.with(|tables, now_ms| tables.failures.take(source, now_ms));
        }
    }

    /// Whether this token, which was found good, may be used for another call.
    pub(crate) fn call(&self, token: [u8; 8]) -> bool {
        self.with(|tables, now_ms| tables.calls.take(token, now_ms))
    }

    /// Whether another node may try to join with this key.
    pub(crate) fn may_join(&self, key: [u8; 8]) -> bool {
        self.with(|tables, now_ms| tables.joins.has(key, now_ms))
    }

    /// A node joined with this key.
    pub(crate) fn joined(&self, key: [u8; 8]) {
        self.with(|tables, now_ms| tables.joins.take(key, now_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { burst: 3, per_s: 2 };

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut buckets = Buckets::new(RATE);
        let taken = (0..9).filter(|_| buckets.take(1, 1000)).count();
        assert_eq!(taken, 3);
        assert!(!buckets.has(1, 1499) && buckets.has(1, 1500) && buckets.has(2, 1000));
        let taken = (0..100_u64).filter(|n| buckets.take(1, 1000 + n * 100)).count();
        assert_eq!(taken, 19, "9.9 s at 2 a second");
        assert!(!buckets.take(1, 0), "a clock that goes back fills nothing");
    }

    #[test]
    fn co_11_the_table_is_bounded_and_forgets_who_is_at_rest_first() {
        let mut buckets = Buckets::new(RATE);
        (0..3).for_each(|_| assert!(buckets.take(u64::MAX, 0)));
        for key in 0..ENTRIES_MAX as u64 * 4 {
            assert!(buckets.take(key, key / 100));
            assert!(buckets.left.len() <= ENTRIES_MAX);
        }
        assert!(buckets.take(u64::MAX, 10_000));
    }

    #[test]
    fn a_source_is_an_address_or_a_64() {
        let source = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(source("192.0.2.1"), source("::ffff:192.0.2.1"));
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
    }

    #[test]
    fn co_11_connections_of_one_source_have_a_bound_and_others_come_in() {
        let limits = Limits::new();
        let one = Source(1);
        let held: Vec<Held> = (0..5000).filter_map(|_| limits.connect(one)).collect();
        assert!(held.len() <= CONNECTIONS_MAX as usize, "{}", held.len());
        assert!(limits.connect(one).is_none() && limits.connect(Source(2)).is_some());
        drop(held);
        assert!(lock(&limits.tables).open.is_empty());
    }
}
