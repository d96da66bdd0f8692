//! Which preshared keys hold: one; or those of a schedule, each for a period; and for a while after
//! a change the one before.
//!
//! No end tells the other which key it uses, for both follow their wall clocks. Of a handshake the
//! responder chooses the key, and the initiator reads what any key that holds was used for. So the
//! responder uses the key of its own time, and the initiator holds those of all times that lie no
//! more than the overlap from its own. Clocks no further apart than that never disagree.
//!
//! What a key change means for sessions: nothing while the overlap lasts. When it is over, a
//! session under an older key is renewed by the end that initiated it, if anything passes; a
//! session that rests ends by itself (noise::timers). Sessions change without a packet lost, as
//! after two minutes always.
//!
//! A key that somebody changes by hand (`warren link reload`) is no matter of wall clocks. For one
//! overlap the old one is still used, for another one it still holds: so both ends may be told up
//! to an overlap apart, whichever is first. An end that knows the new one alone, since it was
//! started with it, cannot read the first response; the next is made with another key that holds.

use std::sync::Arc;
use std::time::Duration;

use noise::{Drop, Instant, KeyMaterial, Peer, PresharedKey, Tai64n};

/// A schedule of preshared keys: block after block of the material, each for a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    material: KeyMaterial,
    period: Duration,
    overlap: Duration,
}

/// An overlap that is longer than half a period: three keys would hold at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlapTooLong;

impl Schedule {
    /// Keys from `material`, a new one each `period`; the ends' clocks may be `overlap` apart.
    ///
    /// # Errors
    /// [`OverlapTooLong`].
    pub fn new(
        material: KeyMaterial,
        period: Duration,
        overlap: Duration,
    ) -> Result<Self, OverlapTooLong> {
        let fits = !period.is_zero() && overlap <= period / 2;
        fits.then_some(Self { material, period, overlap }).ok_or(OverlapTooLong)
    }

    /// How long a key is used.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// How far apart the clocks of both ends may be.
    #[must_use]
    pub const fn overlap(&self) -> Duration {
        self.overlap
    }

    /// The number of the period at `wall`, since 1970.
    fn number(&self, wall: Duration) -> u64 {
        u64::try_from(wall.as_nanos() / self.period.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The key to use at `wall`.
    #[must_use]
    pub fn key(&self, wall: Duration) -> PresharedKey {
        self.material.key(self.number(wall))
    }

    /// Others that hold at `wall`: of clocks behind and ahead.
    fn others(&self, wall: Duration) -> [Option<PresharedKey>; 2] {
        let number = self.number(wall);
        let clocks = [wall.saturating_sub(self.overlap), wall.saturating_add(self.overlap)];
        clocks.map(|clock| {
            let other = self.number(clock);
            (other != number).then(|| self.material.key(other))
        })
    }

    /// How long after `wall` the next key is used.
    fn next(&self, wall: Duration) -> Duration {
        let into = wall.as_nanos() % self.period.as_nanos();
        let left = self.period.as_nanos() - into;
        Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))
    }

    /// How long after `wall` a key ceases to be used, or to hold.
    fn next_change(&self, wall: Duration) -> Duration {
        // The key before ceases to hold when a clock that is behind changes.
        self.next(wall).min(self.next(wall.saturating_sub(self.overlap)))
    }
}

/// What a link is told to use as preshared key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preshared {
    /// This one, all zeros for none, after a while of `overlap` in which the one before is used.
    Key(PresharedKey, Duration),
    /// Keys by the clock.
    Scheduled(Arc<Schedule>),
}

impl From<PresharedKey> for Preshared {
    /// This key from now on, as `wg set` means it.
    fn from(key: PresharedKey) -> Self {
        Self::Key(key, Duration::ZERO)
    }
}

impl Preshared {
    fn overlap(&self) -> Duration {
        match self {
            Self::Key(_, overlap) => *overlap,
            Self::Scheduled(schedule) => schedule.overlap,
        }
    }
}

/// What is told of the keys of a link that has a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyStatus {
    /// How long a key is used.
    pub period: Duration,
    /// How far apart the clocks of both ends may be.
    pub overlap: Duration,
    /// The block of the material that is used, counted from 0.
    pub block: u64,
    /// Blocks of the material.
    pub blocks: u64,
    /// When the next one is used.
    pub next: Duration,
    /// By how much the peer's wall clock is ahead of ours, or behind where negative, milliseconds,
    /// as its last initiation tells; nothing where it made none.
    pub ahead_ms: Option<i64>,
    /// The peer's last response was made with a key that does not hold here.
    pub is_refused: bool,
}

impl KeyStatus {
    /// Whether the clocks are further apart than the overlap.
    #[must_use]
    pub fn are_clocks_apart(&self) -> bool {
        let overlap_ms = u64::try_from(self.overlap.as_millis()).unwrap_or(u64::MAX);
        self.ahead_ms.is_some_and(|ahead_ms| ahead_ms.unsigned_abs() > overlap_ms)
    }
}

/// A key that was changed, and when the change was heard of.
#[derive(Clone, Debug)]
struct Before {
    key: PresharedKey,
    since: Option<Instant>,
}

/// The keys of a link for which more than one key may hold.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    told: Preshared,
    before: Option<Before>,
    /// When to look again.
    due: Instant,
    /// When we last responded, until that has led to a session.
    responded: Option<Instant>,
    /// Responses in a row that have not.
    in_vain: usize,
    ahead_ms: Option<i64>,
    is_refused: bool,
}

impl Keys {
    /// What `told` says; `before` it was another key, unless the peer is new.
    pub(crate) fn new(told: Preshared, before: Option<PresharedKey>) -> Self {
        let is_changed = |before: &PresharedKey| match &told {
            Preshared::Key(key, _) => key != before,
            Preshared::Scheduled(_) => true,
        };
        let before = before.filter(|before| !told.overlap().is_zero() && is_changed(before));
        let before = before.map(|key| Before { key, since: None });
        Self {
            told,
            before,
            due: Instant::ZERO,
            responded: None,
            in_vain: 0,
            ahead_ms: None,
            is_refused: false,
        }
    }

    /// What it was told.
    pub(crate) const fn told(&self) -> &Preshared {
        &self.told
    }

    /// Tells `peer` which keys hold now.
    pub(crate) fn refresh(&mut self, peer: &mut Peer, now: Instant, wall: Tai64n) {
        let wall = wall.since_unix_epoch();
        let (mut key, [behind, ahead], left) = match &self.told {
            Preshared::Key(key, _) => (key.clone(), [None, None], None),
            Preshared::Scheduled(schedule) => {
                (schedule.key(wall), schedule.others(wall), Some(schedule.next_change(wall)))
            }
        };
        self.due = left.map_or(Instant::MAX, |left| now + left);
        let overlap = self.told.overlap();
        let mut changed = None;
        if let Some(before) = &mut self.before {
            let since = *before.since.get_or_insert(now);
            changed = Some(before.key.clone());
            if now < since + overlap {
                changed = Some(core::mem::replace(&mut key, before.key.clone()));
                self.due = self.due.min(since + overlap);
            } else if now < since + 2 * overlap {
                self.due = self.due.min(since + 2 * overlap);
            } else {
                changed = None;
            }
        }
        if changed.is_none() {
            self.before = None;
        }
        let led = |responded: &mut Instant| peer.last_handshake() >= Some(*responded);
        if self.responded.take_if(led).is_some() {
            self.in_vain = 0;
        }
        let holding = [Some(key), changed, behind, ahead].into_iter().flatten();
        let mut holding: Vec<PresharedKey> = holding.collect();
        let first = self.in_vain % holding.len();
        holding.rotate_left(first);
        let mut holding = holding.into_iter();
        let used = holding.next().unwrap_or_default();
        peer.set_preshared_keys(used, [holding.next(), holding.next(), holding.next()]);
    }

    /// Whether nothing is left to change: one key holds for good.
    pub(crate) fn is_settled(&self) -> bool {
        self.before.is_none() && matches!(self.told, Preshared::Key(..))
    }

    /// When to call [`Keys::refresh`] next.
    pub(crate) const fn due(&self) -> Instant {
        self.due
    }

    /// The peer's initiation was answered, which it made at `made`, by its clock.
    pub(crate) fn note_initiation(&mut self, made: Tai64n, (now, wall): (Instant, Tai64n)) {
        self.responded = Some(now);
        self.in_vain = self.in_vain.wrapping_add(1);
        let ms = |label: Tai64n| i64::try_from(label.since_unix_epoch().as_millis());
        let (Ok(theirs), Ok(ours)) = (ms(made), ms(wall)) else { return };
        self.ahead_ms = Some(theirs - ours);
    }

    /// A response came, and was read or not.
    pub(crate) fn note_response(&mut self, read: &Result<(), Drop>) {
        match read {
            Ok(()) => self.is_refused = false,
            Err(Drop::BadHandshake) => self.is_refused = true,
            Err(_) => {}
        }
    }

    /// What there is to tell at `wall`, if there is a schedule.
    pub(crate) fn status(&self, wall: Duration) -> Option<KeyStatus> {
        let Preshared::Scheduled(schedule) = &self.told else { return None };
        let blocks = schedule.material.blocks();
        Some(KeyStatus {
            period: schedule.period,
            overlap: schedule.overlap,
            block: schedule.number(wall) % blocks,
            blocks,
            next: schedule.next(wall),
            ahead_ms: self.ahead_ms,
            is_refused: self.is_refused,
        })
    }
}

#[cfg(test)]
mod tests;
