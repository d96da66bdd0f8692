//! A peer's sessions: which is sent on, which is still heard, and which waits for its first packet.

use core::cmp::Ordering;

use super::{Action, Context, Peer, Session};
use crate::session::Agreed;
use crate::timers::REKEY_TIMEOUT;
use crate::{Index, Indices, Instant};

impl Peer {
    /// The session with our index `index`, whether it is the one to send on or the one before, if
    /// it may still send: for an answer to what came on it. Where both ends initiated at once, each
    /// may send on its own session, and hear on the other's.
    pub fn sealer_of(&mut self, index: Index, now: Instant) -> Option<&mut Session> {
        let session = of([&mut self.current, &mut self.previous], index)?;
        session.may_send(now).then_some(session)
    }

    pub(super) fn install_next(&mut self, agreed: &Agreed, indices: &mut Indices, now: Instant) {
        release(indices, self.next.take());
        self.next = Some(Session::new(agreed, now));
        self.timers.session_agreed(now);
        self.watch_session_end();
    }

    /// A session that we initiated: it may be used at once.
    pub(super) fn install_current(&mut self, agreed: &Agreed, context: &mut Context<'_>) {
        if let Some(next) = &mut self.next {
            // The peer initiated too. Both sessions live; the smaller key's becomes current.
            let stays = context.identity.public().cmp(&self.key) == Ordering::Less;
            next.superseded = stays || next.born().is_older_than(REKEY_TIMEOUT, context.now);
        }
        release(context.indices, self.previous.take());
        let mut session = Session::new(agreed, context.now);
        // The session that the peer initiated meanwhile tells what it said of itself.
        let others = [&self.next, &self.current].into_iter().flatten();
        let word = others.filter_map(|other| crossed_word(other, context.now)).next();
        if let Some(word) = word {
            session.word = word;
            self.want(Action::Greet);
        }
        self.previous = self.current.replace(session);
        self.timers.session_agreed(context.now);
        self.watch_session_end();
    }

    /// The first packet has come in on the session that we answered.
    pub(super) fn confirm_next(&mut self, indices: &mut Indices, now: Instant) {
        let Some(mut next) = self.next.take() else {
            return;
        };
        release(indices, self.previous.take());
        if core::mem::take(&mut next.superseded) {
            if let Some(current) = &mut self.current
                && current.word == 0
                && let Some(word) = crossed_word(&next, now)
            {
                current.word = word;
                self.want(Action::Greet);
            }
            self.previous = Some(next);
        } else {
            let word = next.word;
            self.previous = self.current.replace(next);
            if word != 0 {
                self.want(Action::Greet);
            }
            self.want(Action::SendStaged);
            self.handshake_complete(indices, now);
        }
        self.watch_session_end();
    }

    pub(super) fn end_sessions(&mut self, indices: &mut Indices, now: Instant) {
        for slot in [&mut self.current, &mut self.previous, &mut self.next] {
            release(indices, slot.take_if(|session| !session.is_live(now)));
        }
        self.watch_session_end();
    }

    fn watch_session_end(&mut self) {
        let slots = [&self.current, &self.previous, &self.next];
        let ends = slots.into_iter().flatten().map(|session| session.ends());
        self.timers.session_end = ends.min().unwrap_or(Instant::MAX);
    }
}

/// What the peer said of itself when it initiated this session, if that was so lately that another
/// one may have crossed it.
fn crossed_word(session: &Session, now: Instant) -> Option<u32> {
    let is_late = session.born().is_older_than(REKEY_TIMEOUT, now);
    (session.word != 0 && !is_late).then_some(session.word)
}

/// The session with our index `index`.
pub(super) fn of(slots: [&mut Option<Box<Session>>; 2], index: Index) -> Option<&mut Session> {
    let mut live = slots.into_iter().flatten();
    live.find(|session| session.index() == index).map(|session| &mut **session)
}

/// Drops a session and gives its indices back.
pub(super) fn release(indices: &mut Indices, session: Option<Box<Session>>) {
    if let Some(session) = session {
        indices.release(session.index());
        if session.second_index() != 0 {
            indices.release(Index(session.second_index()));
        }
    }
}
