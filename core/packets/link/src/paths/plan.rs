//! The plan of probes: which path is asked when, and which one is used.

use std::time::Duration;

use noise::Instant;

use super::{Liveness, Path, Paths, Rank};

/// While packets go or came within so long, the path in use is watched.
const WANTED: Duration = Duration::from_secs(1);
/// The path in use is probed so long after anything came on it,
pub(crate) const ASK_QUIET: Duration = Duration::from_millis(500);
/// and so long after the last probe while others come: what comes says nothing of the way out.
pub(crate) const ASK_BUSY: Duration = Duration::from_millis(700);
/// Without an answer it is asked again after so long.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// A path that failed, and that nothing can replace, is asked so often.
const ASK_FAILED: Duration = Duration::from_secs(1);
/// Others are asked so often while the one in use is in doubt.
const ASK_OTHERS: Duration = Duration::from_millis(400);
/// A path not in use, on which the peer is heard, is asked so often.
pub(crate) const AGAIN_HEARD: Duration = Duration::from_millis(500);
/// What was said or heard so lately counts.
pub(crate) const LATELY: Duration = Duration::from_secs(30);
/// Translators forget after 30 s where they forget early (RFC 4787 asks for two minutes).
const KEEPALIVE: Duration = Duration::from_secs(25);
/// Without packets for so long nothing is sent any more.
const ACTIVE: Duration = Duration::from_secs(120);
/// Time between two looks for the Hello of a new session.
const HELLO_WAIT: Duration = Duration::from_millis(50);
/// The passes of a round, from its beginning: both ends must have sent before either hears.
const PASSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(300),
    Duration::from_millis(800),
    Duration::from_millis(1_500),
    Duration::from_millis(2_400),
];
/// Time between two rounds, and the last for all that follow.
const ROUNDS: [Duration; 5] = [
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(40),
    Duration::from_secs(60),
];
/// While nothing answers a handshake is begun so often.
const LOST_AGAIN: Duration = Duration::from_secs(5);
/// The peer is called so often at most.
pub(crate) const CALL_GAP: Duration = Duration::from_secs(4);

/// The round in which all candidates are asked.
#[derive(Debug, Default)]
pub(crate) struct Round {
    began: Instant,
    pass: usize,
    /// When the next pass or round begins; none before the first.
    next: Option<Instant>,
    /// Rounds since something changed.
    count: usize,
}

impl Paths {
    /// Begins a round now; `anew` if there is reason to hope, so that the next ones follow sooner.
    pub(super) fn begin_round(&mut self, now: Instant, anew: bool) {
        if anew {
            self.round.count = 0;
        }
        self.round.pass = 0;
        self.round.next = Some(now);
        self.next = now;
    }

    /// Plans what is due at `now`. Cheap where nothing is. Returns whether there is something to
    /// ask; then [`Paths::settle`] follows.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        if !self.speaks {
            self.next = Instant::MAX;
            return false;
        }
        self.is_idle = !self.is_within(WANTED, now);
        self.choose(now);
        self.plan_best(now);
        self.plan_others(now);
        self.plan_round(now);
        true
    }

    /// Notes when to look again, after what is due was asked, or could not be.
    pub(crate) fn settle(&mut self, asked: bool, now: Instant) {
        self.plan_best(now);
        let earliest = self.earliest(now).unwrap_or(Instant::MAX);
        // On a new session nothing is asked before the peer's Hello.
        self.next = if asked { earliest } else { earliest.max(now + HELLO_WAIT) };
    }

    /// Whether none answers, while packets want a path or did of late: the peer may have lost the
    /// session, and what it sends may not come in before we have sent something. Asked once in
    /// [`LOST_AGAIN`].
    pub(crate) fn take_lost(&mut self, now: Instant) -> bool {
        let rested = self.lost.is_none_or(|at| now.since(at) >= LOST_AGAIN);
        if !self.speaks || !self.is_within(ACTIVE, now) || !rested {
            return false;
        }
        let failed = self.best.is_some_and(|best| self.list[best].is_failed(now));
        let is_alive = |path: &Path| path.liveness(false, now) >= Liveness::Doubted;
        let is_lost = failed && !self.list.iter().any(is_alive);
        if is_lost {
            self.lost = Some(now);
        }
        is_lost
    }

    fn is_within(&self, time: Duration, now: Instant) -> bool {
        self.data_at.is_some_and(|at| now.since(at) < time)
    }

    /// Uses the best path.
    fn choose(&mut self, now: Instant) {
        let rank = |place: usize| self.list[place].rank(self.best == Some(place), now);
        let challenger = (0..self.list.len()).max_by_key(|&place| rank(place));
        let Some(challenger) = challenger else { return };
        let usable = |rank: Rank| rank.liveness > Liveness::Unusable;
        let place = match self.best {
            Some(best) if rank(challenger) > rank(best) && usable(rank(challenger)) => challenger,
            Some(best) if usable(rank(best)) => return,
            None if usable(rank(challenger)) => challenger,
            // Nothing works: a relay will be the first that does.
            best => {
                let relay = |place: &usize| !self.list[*place].is_direct();
                let relay = (0..self.list.len()).filter(relay).max_by_key(|&at| rank(at));
                match relay.or(best) {
                    Some(place) => place,
                    None => return,
                }
            }
        };
        if self.best == Some(place) {
            return;
        }
        let was_direct = self.best.is_some_and(|best| self.list[best].is_direct());
        let is_direct = self.list[place].is_direct();
        self.switch(place, now);
        if was_direct && !is_direct {
            self.begin_round(now, true);
        }
    }

    fn plan_best(&mut self, now: Instant) {
        let wanted = !self.is_idle;
        let active = self.is_within(ACTIVE, now);
        let Some(best) = self.best else { return };
        let path = &mut self.list[best];
        let failed = path.is_failed(now);
        let due = match (path.probed, path.asked) {
            (None, _) => active.then_some(now),
            (Some(probed), Some(_)) if failed => wanted.then_some(probed + ASK_FAILED),
            (Some(probed), Some(_)) => (wanted || active).then_some(probed + ASK_AGAIN),
            (Some(probed), None) if wanted => {
                let heard = path.heard.unwrap_or(Instant::ZERO);
                let quiet = heard.max(probed) + ASK_QUIET;
                Some(quiet.min(probed + ASK_BUSY))
            }
            (Some(probed), None) => active.then_some(probed + KEEPALIVE),
        };
        let at_once = path.is_suspect && path.asks == 0;
        path.due = if at_once { Some(now) } else { due };
    }

    /// While the path in use is in doubt, what could replace it is asked; and what the peer uses.
    fn plan_others(&mut self, now: Instant) {
        let Some(best) = self.best else { return };
        let path = &self.list[best];
        let in_doubt = path.asks >= 2 || (path.is_suspect && path.asks >= 1);
        for (place, path) in self.list.iter_mut().enumerate() {
            if place == best || path.due.is_some() {
                continue;
            }
            let heard = path.heard.is_some_and(|at| now.since(at) < WANTED);
            let answered = path.answered.is_some_and(|at| now.since(at) < WANTED);
            let could = !path.is_direct() || path.answered.is_some();
            let gap = if in_doubt && could {
                ASK_OTHERS
            } else if heard && !answered && path.asks < 4 {
                AGAIN_HEARD
            } else {
                continue;
            };
            let at = path.probed.map_or(now, |probed| (probed + gap).max(now));
            path.due = Some(at);
        }
    }

    /// Asks all candidates that do not answer anyway.
    fn plan_round(&mut self, now: Instant) {
        if !self.is_within(ACTIVE, now) || self.round.next.is_none_or(|at| at > now) {
            return;
        }
        let is_direct = self.best.is_some_and(|best| {
            self.list[best].is_direct() && self.list[best].liveness(true, now) == Liveness::Alive
        });
        let first = self.round.pass == 0;
        if first {
            self.round.began = now;
            self.call |= !is_direct || self.round.count == 0;
        }
        for (place, path) in self.list.iter_mut().enumerate() {
            let fresh = path.liveness(false, now) == Liveness::Alive;
            if self.best != Some(place) && !fresh && (first || path.is_direct()) {
                path.due.get_or_insert(now);
            }
        }
        self.round.pass += 1;
        let more = if is_direct { None } else { PASSES.get(self.round.pass) };
        self.round.next = Some(match more {
            Some(&after) => self.round.began + after,
            None => {
                let gap = ROUNDS[self.round.count.min(ROUNDS.len() - 1)];
                self.round.count += 1;
                self.round.pass = 0;
                self.round.began + gap
            }
        });
    }

    /// Whether sizes are tried on the path in use: it works, and packets want it.
    pub(super) fn asks_sizes(&self, path: &Path) -> bool {
        self.speaks && !self.is_idle && path.answered.is_some() && path.asks <= 1
    }

    /// The path whose probe is due and matters most.
    pub(super) fn most_urgent(&self, now: Instant) -> Option<usize> {
        let is_due = |path: &Path| self.speaks && path.due.is_some_and(|at| at <= now);
        let places = (0..self.list.len()).filter(|&place| is_due(&self.list[place]));
        places.max_by_key(|&place| {
            let path = &self.list[place];
            let waits = std::cmp::Reverse(path.due);
            let lately = path.heard.is_some_and(|at| now.since(at) < WANTED);
            (self.best == Some(place), !path.is_direct(), lately, waits, std::cmp::Reverse(place))
        })
    }

    /// When there is something to do.
    fn earliest(&self, now: Instant) -> Option<Instant> {
        let ready = self.budget.ready_at();
        let due = self.list.iter().filter_map(|path| path.due).min().map(|at| at.max(ready));
        let best = self.best.map(|best| &self.list[best]);
        let change = best.and_then(|path| path.poll_change(now));
        let active = self.is_within(ACTIVE, now);
        let round = self.round.next.filter(|_| active);
        let size = best.filter(|path| self.asks_sizes(path));
        let size = size.and_then(|path| path.mtu.poll_timeout()).map(|at| at.max(now));
        let idle = self.data_at.filter(|_| !self.is_idle).map(|at| at + WANTED);
        [due, change, round, size, idle].into_iter().flatten().min()
    }
}
