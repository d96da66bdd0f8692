//! How much one source, one machine, one token and one join key may ask for (threats CO-11, WB-08).
//!
//! Secrets have 128 bits, so nothing here keeps anybody from guessing. What it keeps is that one
//! source, one member in a loop, or one token takes the server's time from all others. A proxy in
//! front is one source for all behind it: the bounds are wide enough for a thousand nodes behind
//! one address. Places, of connections for instance, are `doorstep`'s.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use admit::{Buckets, Rate, Source};
use noise::PublicKey;

use crate::held::held;

/// New connections, each with a TLS handshake, of a source.
const CONNECTS: Rate = Rate::per_second(4096, 100);
/// New channels, each with four Diffie-Hellman, of a source.
const CHANNELS: Rate = Rate::per_second(4096, 100);
/// Requests of a source that has proven nothing, in a channel or outside.
const REQUESTS: Rate = Rate::per_second(4096, 100);
/// Secrets that opened nothing, of a source.
const FAILURES: Rate = Rate::per_second(256, 1);
/// Passwords that are tried from one source, and for one user from wherever (threat WB-05).
const SIGN_INS: Rate = Rate { burst: 60, per_minute: 30 };
const GUESSES: Rate = Rate { burst: 20, per_minute: 10 };
/// Links to let a machine in, of one source: an office may begin at once.
const KNOCKS: Rate = Rate { burst: 200, per_minute: 60 };
/// Calls of the API with one token.
const CALLS: Rate = Rate::per_second(200, 20);
/// Nodes that join with one key.
const JOINS: Rate = Rate::per_second(2048, 50);

/// What a machine in the books asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// To wait for news.
    Poll,
    /// A whole map.
    Map,
    /// To tell of itself.
    Report,
    /// To tell of its links.
    Links,
    /// Another key.
    Rotate,
    /// To join although it is in.
    Enrol,
}

impl Kind {
    const ALL: [Self; 6] =
        [Self::Poll, Self::Map, Self::Report, Self::Links, Self::Rotate, Self::Enrol];

    /// How often one machine may ask for it.
    const fn rate(self) -> Rate {
        match self {
            Self::Poll => Rate::per_second(200, 50),
            Self::Map => Rate::per_second(8, 1),
            Self::Report => Rate::per_second(32, 1),
            Self::Links => Rate { burst: 8, per_minute: 12 },
            Self::Rotate => Rate { burst: 8, per_minute: 4 },
            Self::Enrol => Rate { burst: 8, per_minute: 6 },
        }
    }
}

/// All tables.
#[derive(Debug)]
struct Tables {
    connects: Buckets<Source>,
    channels: Buckets<Source>,
    requests: Buckets<Source>,
    failures: Buckets<Source>,
    sign_ins: Buckets<Source>,
    guesses: Buckets<[u8; 16]>,
    knocks: Buckets<Source>,
    calls: Buckets<[u8; 8]>,
    joins: Buckets<[u8; 8]>,
    /// By the place of the kind in [`Kind::ALL`].
    members: [Buckets<PublicKey>; Kind::ALL.len()],
}

/// How much everybody may ask for.
#[derive(Debug)]
pub(crate) struct Limits {
    tables: Mutex<Tables>,
    refused: AtomicU64,
    begin: Instant,
}

impl Limits {
    pub(crate) fn new() -> Arc<Self> {
        let tables = Tables {
            connects: Buckets::new(CONNECTS),
            channels: Buckets::new(CHANNELS),
            requests: Buckets::new(REQUESTS),
            failures: Buckets::new(FAILURES),
            sign_ins: Buckets::new(SIGN_INS),
            guesses: Buckets::new(GUESSES),
            knocks: Buckets::new(KNOCKS),
            calls: Buckets::new(CALLS),
            joins: Buckets::new(JOINS),
            members: Kind::ALL.map(|kind| Buckets::new(kind.rate())),
        };
        let refused = AtomicU64::new(0);
        Arc::new(Self { tables: Mutex::new(tables), refused, begin: Instant::now() })
    }

    fn now_ms(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }

    fn with<T>(&self, work: impl FnOnce(&mut Tables, u64) -> T) -> T {
        work(&mut held(&self.tables), self.now_ms())
    }

    /// Connections that were refused since the start, for whichever bound.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// A connection was refused.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a source may make another connection.
    pub(crate) fn connect(&self, source: Source) -> bool {
        self.with(|tables, now_ms| tables.connects.take(source, now_ms))
    }

    /// Whether a source may open another channel.
    pub(crate) fn channel(&self, source: Source) -> bool {
        self.with(|tables, now_ms| tables.channels.take(source, now_ms))
    }

    /// Whether a source that has proven nothing may ask for something more. Callers on this
    /// machine are not counted.
    pub(crate) fn request(&self, source: Option<Source>) -> bool {
        source.is_none_or(|source| self.with(|tables, now| tables.requests.take(source, now)))
    }

    /// Whether a secret of this source is looked at.
    pub(crate) fn may_try(&self, source: Option<Source>) -> bool {
        source.is_none_or(|source| self.with(|tables, now_ms| tables.failures.has(source, now_ms)))
    }

    /// A secret of this source opened nothing.
    pub(crate) fn failed(&self, source: Option<Source>) {
        if let Some(source) = source {
            self.with(|tables, now_ms| tables.failures.take(source, now_ms));
        }
    }

    /// Whether a password is tried: from this source, for the user that this stands for. It counts
    /// before it is looked at, so that a thousand at once are no more than one after another.
    pub(crate) fn sign_in(&self, source: Option<Source>, user: [u8; 16]) -> bool {
        let from = |source| self.with(|tables, now_ms| tables.sign_ins.take(source, now_ms));
        let is_let = source.is_none_or(from);
        is_let && self.with(|tables, now_ms| tables.guesses.take(user, now_ms))
    }

    /// Whether a machine that nobody knows may ask for a link.
    pub(crate) fn knock(&self, source: Option<Source>) -> bool {
        source.is_none_or(|source| self.with(|tables, now_ms| tables.knocks.take(source, now_ms)))
    }

    /// Whether this token, which was found good, may be used for another call.
    pub(crate) fn call(&self, token: [u8; 8]) -> bool {
        self.with(|tables, now_ms| tables.calls.take(token, now_ms))
    }

    /// Whether another node may try to join with this key.
    pub(crate) fn may_join(&self, key: [u8; 8]) -> bool {
        self.with(|tables, now_ms| tables.joins.has(key, now_ms))
    }

    /// A node joined with this key, whose secret it had.
    pub(crate) fn joined(&self, key: [u8; 8]) {
        self.with(|tables, now_ms| tables.joins.take(key, now_ms));
    }

    /// Whether a machine in the books may ask for this once more. `up_s` is the server's clock that
    /// only grows.
    pub(crate) fn member(&self, machine: &PublicKey, kind: Kind, up_s: u64) -> bool {
        let mut tables = held(&self.tables);
        tables.members[kind as usize].take(*machine, up_s.saturating_mul(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wb_05_a_thousand_guesses_are_few_whoever_makes_them_and_others_sign_in() {
        let limits = Limits::new();
        let from = |n: u32| Some(Source::from(std::net::IpAddr::from(n.to_be_bytes())));
        let tried = (0..1000).filter(|n| limits.sign_in(from(*n), [1; 16])).count();
        assert!((20..25).contains(&tried), "one user, a thousand sources: {tried}");
        let tried = (0..1000_u16).filter(|n| {
            let mut user = [0; 16];
            user[..2].copy_from_slice(&n.to_be_bytes());
            limits.sign_in(from(5000), user)
        });
        let tried = tried.count();
        assert!((60..65).contains(&tried), "one source, a thousand users: {tried}");
        assert!(limits.sign_in(from(5001), [2; 16]), "somebody else");
    }

    #[test]
    fn co_11_each_machine_has_rates_of_its_own_for_each_kind_of_request() {
        let limits = Limits::new();
        let key = |n: u8| PublicKey([n; 32]);
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(at, kind as usize);
            let taken = (0..1000).filter(|_| limits.member(&key(1), kind, 5)).count();
            assert_eq!(taken, kind.rate().burst as usize, "{kind:?}");
            assert!(limits.member(&key(2), kind, 5), "another machine is not slowed");
            let minute =
                (5..65).map(|s| (0..60).filter(|_| limits.member(&key(1), kind, s)).count());
            let taken: usize = minute.sum();
            let rate = kind.rate().per_minute as usize;
            assert!((rate - rate / 30 - 1..=rate).contains(&taken), "{kind:?}: {taken} a minute");
        }
    }
}
