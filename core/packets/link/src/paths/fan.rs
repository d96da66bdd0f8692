//! One initiation, sent to every candidate: a handshake is the first probe.

use std::time::Duration;

use noise::Instant;
use wire::wireguard::INITIATION_LEN;

use super::path::{Origin, Path};
use super::{Destination, Paths};

/// When the rounds of one message begin, and as many: before the next message is due after 5 s.
/// The second is for a peer that is told of us just now, and did not know us at the first; the
/// later ones are for translators that open only after the other end has sent, too.
const ROUNDS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(150),
    Duration::from_millis(1_000),
    Duration::from_millis(2_500),
];
/// The round that follows when the path in use was tried alone.
const AFTER_ALONE: usize = 2;
/// While a path is in use only that one is tried for so long: most initiations renew a session.
const ALONE: Duration = Duration::from_millis(500);

/// The message and how far it has come.
#[derive(Debug)]
pub(crate) struct Fan {
    message: Box<[u8; INITIATION_LEN]>,
    began: Instant,
    /// Paths still to come in this round, by their numbers, the last first.
    waiting: Vec<u16>,
    round: usize,
    alone: bool,
}

impl Fan {
    /// `first` is the path in use, if it works.
    pub(crate) fn new(message: [u8; INITIATION_LEN], first: Option<u16>, now: Instant) -> Self {
        Self {
            message: Box::new(message),
            began: now,
            waiting: first.into_iter().collect(),
            round: 0,
            alone: first.is_some(),
        }
    }

    pub(crate) fn message(&self) -> &[u8; INITIATION_LEN] {
        &self.message
    }

    /// Which path is next; `order` lists all, the best first, when a round begins.
    pub(crate) fn poll(&mut self, now: Instant, order: impl FnOnce() -> Vec<u16>) -> Option<u16> {
        if self.waiting.is_empty() && now >= self.poll_timeout()? {
            self.waiting = order();
            self.waiting.reverse();
            self.round = if self.alone { AFTER_ALONE } else { self.round + 1 };
            self.alone = false;
        }
        self.waiting.pop()
    }

    /// This path has just become one: it is tried now, whatever the round.
    pub(crate) fn add(&mut self, path: u16) {
        if !self.waiting.contains(&path) {
            self.waiting.push(path);
        }
    }

    /// When [`Fan::poll`] has something; `None` when it is done.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if !self.waiting.is_empty() {
            return Some(Instant::ZERO);
        }
        let after = if self.alone { ALONE } else { *ROUNDS.get(self.round)? };
        Some(self.began + after)
    }
}

impl Paths {
    /// We are connected to this relay from now on: a handshake that began without it goes there at
    /// once, and not with its next round, and so does the next probe.
    pub(crate) fn handle_relay_up(&mut self, relay: u32) {
        let leads = |path: &Path| matches!(path.to, Destination::Relay(to) if to.relay == relay);
        let Some(path) = self.list.iter_mut().find(|path| leads(path)) else { return };
        if let Some(fan) = &mut self.fan {
            fan.add(path.id);
        }
        if path.asked.is_some() {
            // What was not answered went nowhere.
            path.asked = None;
            path.asks = 0;
            path.is_suspect = true;
            self.next = Instant::ZERO;
        }
    }

    /// Something came from `from` that no session opens: if a candidate has that address, the peer
    /// may be there, behind a translator that gave it another port. The handshake that is under way
    /// or begins now goes there, too. Anybody may have sent it, so nothing else follows.
    pub(crate) fn handle_hint(&mut self, from: &Destination) -> bool {
        let Some(hinted) = from.udp().map(|to| to.remote.ip()) else { return false };
        let at = |path: &Path| path.to.udp().is_some_and(|to| to.remote.ip() == hinted);
        if !self.list.iter().any(at) {
            return false;
        }
        let place = self.place_of(from).or_else(|| self.insert(*from, Origin::Called));
        if let (Some(place), Some(fan)) = (place, &mut self.fan) {
            fan.add(self.list[place].id);
        }
        place.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(first: Option<u16>) -> Vec<(u64, u16)> {
        let mut fan = Fan::new([0; INITIATION_LEN], first, Instant::ZERO);
        let mut sent = Vec::new();
        while let Some(at) = fan.poll_timeout() {
            let ms = at.0 / 1_000_000;
            sent.push((
                ms.max(sent.last().map_or(0, |last: &(u64, u16)| last.0)),
                fan.poll(at, || vec![7, 8]).expect("due"),
            ));
        }
        sent
    }

    #[test]
    fn every_candidate_is_tried_in_rounds_and_a_working_path_alone_first() {
        let later = [(1_000, 7), (1_000, 8), (2_500, 7), (2_500, 8)];
        let first = [(0, 7), (0, 8), (150, 7), (150, 8)];
        assert_eq!(course(None), [first, later].concat());
        assert_eq!(
            course(Some(9)),
            [(0, 9), (500, 7), (500, 8), (1_000, 7), (1_000, 8), (2_500, 7), (2_500, 8)]
        );
    }

    #[test]
    fn a_path_that_has_just_become_one_does_not_wait_for_the_next_round() {
        let mut fan = Fan::new([0; INITIATION_LEN], None, Instant::ZERO);
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        assert_eq!(fan.poll(at(0), || vec![7]), Some(7));
        assert_eq!(fan.poll(at(100), || vec![7]), None);
        fan.add(7);
        fan.add(7);
        assert_eq!(fan.poll(at(100), || vec![7]), Some(7), "once");
        assert_eq!(fan.poll(at(100), || vec![7]), None);
        for ms in [150, 1_000] {
            assert_eq!(fan.poll(at(ms), || vec![7]), Some(7), "the rounds go on");
        }
    }
}
