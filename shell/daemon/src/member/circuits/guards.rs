//! By whom this node enters, chosen once, and which hops are silent now.
//!
//! A client that draws a new entry each time meets a hostile one in the end; so it has few, and
//! keeps them (CI-07). There are three, in an order, kept in `circuits.json`: the first that is
//! there is the entry. One that is away, or silent, is passed over until it is back; the next takes
//! its place until then. One that is no hop of the network for 30 days gives its place to another,
//! which is drawn. Nobody is told of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use noise::PublicKey;
use serde::{Deserialize, Serialize};

use crate::state::State;

/// How many are kept.
const GUARDS: usize = 3;
/// One that was no hop for so long is given up.
const GONE_AFTER_S: u64 = 30 * 24 * 3600;
/// A hop that did not answer is passed over for so long.
const SILENT_FOR: Duration = Duration::from_secs(60);
/// Hops that are remembered as silent.
const SILENT_MAX: usize = 256;
/// Bytes of the file, at most: a larger one is not ours.
const FILE_BYTES_MAX: usize = 64 << 10;

/// One entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Guard {
    #[serde(with = "control::text::key")]
    key: PublicKey,
    /// When it was a hop last, in seconds since 1970.
    seen_unix_s: u64,
}

/// All of them, the first choice first.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Guards {
    guards: Vec<Guard>,
    #[serde(skip)]
    is_open: bool,
}

impl Guards {
    /// What is kept; none where it cannot be read.
    pub(super) fn open(state: &State) -> Self {
        let text = state.guards().filter(|text| text.len() <= FILE_BYTES_MAX);
        let kept = text.and_then(|text| serde_json::from_str::<Self>(&text).ok());
        Self { is_open: true, ..kept.unwrap_or_default() }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Brings them in line with the hops that there are, where `drawn` is another order each time.
    /// Whether they changed, so that they are to be kept.
    pub(super) fn look(&mut self, hops: &[PublicKey], drawn: &[PublicKey], now_s: u64) -> bool {
        let before: Vec<PublicKey> = self.guards.iter().map(|guard| guard.key).collect();
        for guard in &mut self.guards {
            if hops.contains(&guard.key) {
                guard.seen_unix_s = guard.seen_unix_s.max(now_s);
            }
        }
        self.guards.retain(|guard| now_s.saturating_sub(guard.seen_unix_s) < GONE_AFTER_S);
        for key in drawn {
            if self.guards.len() < GUARDS && self.guards.iter().all(|guard| guard.key != *key) {
                self.guards.push(Guard { key: *key, seen_unix_s: now_s });
            }
        }
        self.guards.iter().map(|guard| guard.key).ne(before)
    }

    /// Keeps them; a disk that is full is told, and they are drawn again after the next start.
    pub(super) fn keep(&self, state: &State) {
        let bytes = serde_json::to_vec_pretty(self).expect("it is plain");
        if let Err(error) = state.save_guards(&bytes) {
            tracing::warn!("entries of circuits are not kept: {error}");
        }
    }

    /// Where a hop stands among them; behind all of them if it is none.
    pub(super) fn rank(&self, key: &PublicKey) -> usize {
        self.guards.iter().position(|guard| guard.key == *key).unwrap_or(GUARDS)
    }
}

/// Hops that did not answer, each with when.
#[derive(Debug, Default)]
pub(super) struct Silent(BTreeMap<PublicKey, Instant>);

impl Silent {
    /// One did not answer now.
    pub(super) fn note(&mut self, hop: PublicKey, now: Instant) {
        self.0.retain(|_, at| now.saturating_duration_since(*at) < SILENT_FOR);
        if self.0.len() < SILENT_MAX {
            self.0.insert(hop, now);
        }
    }

    /// Whether one did not, lately.
    pub(super) fn has(&self, hop: &PublicKey, now: Instant) -> bool {
        self.0.get(hop).is_some_and(|at| now.saturating_duration_since(*at) < SILENT_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u8) -> PublicKey {
        PublicKey([id; 32])
    }

    #[test]
    fn ci_07_entries_are_drawn_once_and_kept_over_a_start_and_an_absence() {
        let folder = std::env::temp_dir().join(format!("warren-guards-{}", std::process::id()));
        let state = State::open(&folder).unwrap();
        let hops: Vec<PublicKey> = (1..=9).map(key).collect();
        let mut guards = Guards::open(&state);
        assert!(guards.look(&hops, &[key(4), key(7), key(2), key(1)], 1000));
        guards.keep(&state);
        let mut again = Guards::open(&state);
        assert_eq!(again, guards);
        assert!(!again.look(&hops, &[key(9), key(8), key(1)], 2000), "nothing is drawn again");
        assert_eq!([4, 7, 2, 1].map(|id| again.rank(&key(id))), [0, 1, 2, GUARDS]);
        // One is away: it keeps its place, until it is gone for good.
        let fewer: Vec<PublicKey> = hops.iter().copied().filter(|hop| *hop != key(7)).collect();
        assert!(!again.look(&fewer, &[key(9)], 2000 + GONE_AFTER_S - 1));
        assert!(again.look(&fewer, &[key(9)], 2000 + GONE_AFTER_S));
        assert_eq!([4, 2, 9].map(|id| again.rank(&key(id))), [0, 1, 2]);
        state.save_guards(b"not JSON").unwrap();
        assert_eq!(Guards::open(&state).guards, []);
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn who_was_silent_is_passed_over_for_a_while() {
        let (mut silent, now) = (Silent::default(), Instant::now());
        silent.note(key(1), now);
        assert!(silent.has(&key(1), now) && !silent.has(&key(2), now));
        assert!(!silent.has(&key(1), now + SILENT_FOR));
        for id in 0..=255 {
            silent.note(key(id), now);
        }
        assert!(silent.0.len() <= SILENT_MAX);
    }
}
