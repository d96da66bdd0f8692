//! What a daemon saw last, kept for a start without a server: the time by the server's clock, so
//! that keys expire also then (threat DP-20), and where peers were reached directly, since no map
//! names the port that a peer's translator gave to a conversation with us.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant, UNIX_EPOCH};

use noise::PublicKey;
use serde::{Deserialize, Serialize};

use crate::plan::PeerPlan;
use crate::state::{State, StateError};

/// The time is written so often, in seconds.
const TIME_EVERY_S: u64 = 3600;
/// Anything is written so often at most.
const WRITE_EVERY: Duration = Duration::from_secs(10);
/// Before the server is heard the wall clock is believed if it is later than what is known by less
/// than this, in seconds: it may be years off.
const WALL_S_MAX: u64 = 30 * 86_400;
/// Peers whose places are kept, at most.
const PLACES_MAX: usize = 4096;

/// What stands in the file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Text {
    time_unix_s: u64,
    /// Places by the peer's key.
    reached: BTreeMap<String, SocketAddr>,
}

/// What was seen.
#[derive(Debug)]
pub(crate) struct Seen {
    begin: Instant,
    text: Text,
    is_written: bool,
    written_at: Option<Instant>,
    /// The server's time, and when we had it.
    heard: Option<(u64, Instant)>,
}

impl Seen {
    /// What was kept; nothing if it cannot be read, for it only helps.
    pub(crate) fn open(state: &State) -> Self {
        let text = state.seen().unwrap_or_default();
        let text = serde_json::from_str(&text).unwrap_or_default();
        Self { begin: Instant::now(), text, is_written: true, written_at: None, heard: None }
    }

    /// The server said what time it is.
    pub(crate) fn handle_heard(&mut self, now_unix_s: u64) {
        self.heard = Some((now_unix_s, Instant::now()));
    }

    /// The time by the server's clock, where its newest map was made at `made_unix_s`.
    pub(crate) fn now_unix_s(&self, made_unix_s: u64) -> u64 {
        let wall_unix_s = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        self.time(made_unix_s, wall_unix_s)
    }

    /// How far this machine's clock is ahead of the server's, in seconds; none as long as the
    /// server said nothing.
    pub(crate) fn clock_off_s(&self) -> Option<i64> {
        let (then, at) = self.heard?;
        let wall_unix_s = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        let real = then.saturating_add(at.elapsed().as_secs());
        // A second is lost where both are rounded.
        let off_s = wall_unix_s.cast_signed().saturating_sub(real.cast_signed());
        Some(if off_s.abs() <= 1 { 0 } else { off_s })
    }

    fn time(&self, made_unix_s: u64, wall_unix_s: u64) -> u64 {
        if let Some((then, at)) = self.heard {
            return made_unix_s.max(then + at.elapsed().as_secs());
        }
        let known = made_unix_s.max(self.text.time_unix_s) + self.begin.elapsed().as_secs();
        let is_near = wall_unix_s.checked_sub(known).is_some_and(|ahead| ahead < WALL_S_MAX);
        if is_near { wall_unix_s } else { known }
    }

    /// Where a peer was reached last, if no map names that.
    pub(crate) fn reached(&self, key: &PublicKey) -> Option<SocketAddr> {
        self.text.reached.get(&key.to_string()).copied()
    }

    /// Notes where peers of the plan are reached directly; `now_unix_s` is the time.
    pub(crate) fn note(
        &mut self,
        paths: &[(PublicKey, SocketAddr)],
        peers: &BTreeMap<PublicKey, PeerPlan>,
        now_unix_s: u64,
    ) {
        let known: BTreeMap<String, &PeerPlan> =
            peers.iter().map(|(key, peer)| (key.to_string(), peer)).collect();
        let mut text = self.text.clone();
        text.reached.retain(|key, _| known.contains_key(key));
        for (key, place) in paths {
            let key = key.to_string();
            let Some(peer) = known.get(&key) else { continue };
            if peer.endpoints.contains(place) {
                text.reached.remove(&key);
            } else if text.reached.len() < PLACES_MAX || text.reached.contains_key(&key) {
                text.reached.insert(key, *place);
            }
        }
        if now_unix_s.abs_diff(text.time_unix_s) >= TIME_EVERY_S {
            text.time_unix_s = now_unix_s;
        }
        self.is_written &= text == self.text;
        if self.heard.is_none() && text.time_unix_s != self.text.time_unix_s {
            // It counts from here on.
            self.begin = Instant::now();
        }
        self.text = text;
    }

    /// Writes what changed, if it is time to.
    ///
    /// # Errors
    /// What was written before is still there; it is tried again.
    pub(crate) fn save(&mut self, state: &State) -> Result<(), StateError> {
        let is_early = self.written_at.is_some_and(|at| at.elapsed() < WRITE_EVERY);
        if self.is_written || is_early {
            return Ok(());
        }
        self.written_at = Some(Instant::now());
        let bytes = serde_json::to_vec_pretty(&self.text).expect("it is plain");
        state.save_seen(&bytes)?;
        self.is_written = true;
        Ok(())
    }

    /// Writes all of it at the end.
    pub(crate) fn end(&mut self, state: &State, now_unix_s: u64) {
        self.text.time_unix_s = now_unix_s;
        self.is_written = false;
        self.written_at = None;
        if let Err(error) = self.save(state) {
            tracing::warn!("{error}");
        }
    }

    /// Forgets the places of a network that was left.
    pub(crate) fn forget(&mut self) {
        self.text = Text::default();
        self.heard = None;
        self.is_written = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: u64 = 86_400;
    const THEN: u64 = 1_800_000_000;

    fn seen(time_unix_s: u64) -> Seen {
        let text = Text { time_unix_s, ..Text::default() };
        Seen { begin: Instant::now(), text, is_written: true, written_at: None, heard: None }
    }

    #[test]
    fn dp_20_time_goes_on_after_a_restart_without_a_server() {
        // A clock that is wrong by years, forth or back, is not believed, and takes nothing back.
        for wall in [0, THEN - DAY_S, THEN + 31 * DAY_S, u64::MAX] {
            assert_eq!(seen(THEN).time(5, wall), THEN, "{wall}");
        }
        assert_eq!(seen(THEN).time(5, THEN + 29 * DAY_S), THEN + 29 * DAY_S);
        assert_eq!(seen(0).time(THEN, 0), THEN, "the map's, where nothing was kept");
        let mut heard = seen(THEN + 400 * DAY_S);
        heard.handle_heard(THEN);
        assert_eq!(heard.time(5, 0), THEN, "the server's clock is the one that counts");
    }

    #[test]
    fn what_is_kept_is_bounded_and_of_peers_only() {
        let place = |n: u16| SocketAddr::from(([192, 0, 2, 1], n));
        let key =
            |n: u16| PublicKey([n.to_le_bytes(), [1; 2]].concat().repeat(8).try_into().unwrap());
        let peer = PeerPlan {
            id: control::NodeId(1),
            allowed: Vec::new(),
            carried: false,
            endpoints: vec![place(1)],
            relays: Vec::new(),
        };
        let peers: BTreeMap<_, _> = (0..5_000).map(|n| (key(n), peer.clone())).collect();
        let mut it = seen(THEN);
        let paths: Vec<_> = (0..5_000).map(|n| (key(n), place(n))).collect();
        it.note(&paths, &peers, THEN);
        assert_eq!(it.text.reached.len(), PLACES_MAX);
        assert_eq!((it.reached(&key(7)), it.reached(&key(1))), (Some(place(7)), None));
        let is_due = !it.is_written;
        it.note(&[], &BTreeMap::new(), THEN + 10);
        assert!(is_due && it.text.reached.is_empty() && it.text.time_unix_s == THEN);
        it.note(&[], &BTreeMap::new(), THEN + TIME_EVERY_S);
        assert_eq!(it.text.time_unix_s, THEN + TIME_EVERY_S);
    }
}
