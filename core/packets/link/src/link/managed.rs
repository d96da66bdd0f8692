//! Several paths to one peer: its candidates, probes and their answers.

use noise::Random;
use wire::frame::{Candidates, Features};
use wire::prefix::Prefix;

use super::*;
use crate::paths::{Candidate, PathStatus};

/// Answers to probes that wait to be sent, at most; more are not given.
const ANSWERS_MAX: usize = 16;

impl Link {
    /// Says where the peer may be; from the first time on it is a managed peer, and its paths are
    /// decided upon by what is measured. None ends that. `overlay` are the networks in which no
    /// candidate can be (threat NT-07).
    pub fn set_candidates(
        &mut self,
        candidates: Option<&[Candidate]>,
        overlay: &[Prefix],
        now: Instant,
    ) {
        let Some(candidates) = candidates else {
            self.paths = None;
            self.room = usize::MAX;
            return;
        };
        let key = *self.peer.key();
        self.peer.set_repeats_soon(true);
        let paths = self.paths.get_or_insert_with(|| Box::new(Paths::new(key)));
        paths.set_overlay(overlay);
        paths.set_candidates(candidates, now);
        self.endpoint = paths.to();
    }

    /// The networks in which no candidate can be are others.
    pub fn set_overlay(&mut self, overlay: &[Prefix]) {
        if let Some(paths) = &mut self.paths {
            paths.set_overlay(overlay);
            self.endpoint = paths.to();
        }
    }

    /// Whether the peer's paths are decided upon here.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        self.paths.is_some()
    }

    /// The path in use, of a managed peer, at an interface with `mtu`.
    #[must_use]
    pub fn path(&self, mtu: usize, now: Instant) -> Option<PathStatus> {
        let status = self.paths.as_ref()?.status(mtu, now)?;
        Some(PathStatus { mtu_bytes: status.mtu_bytes.min(self.room), ..status })
    }

    /// We are connected to this relay from now on.
    pub fn handle_relay_up(&mut self, relay: u32) {
        if let Some(paths) = &mut self.paths {
            paths.handle_relay_up(relay);
        }
    }

    /// What fits through relays is another size than before.
    pub fn handle_rooms(&mut self, rooms: &[(u32, usize)]) {
        if let Some(paths) = &self.paths {
            self.room = paths.room(rooms);
        }
    }

    /// Bytes of the largest packet that is sent; no bound where nothing is known.
    #[must_use]
    pub fn room(&self) -> usize {
        self.room
    }

    /// Our addresses or routes changed.
    pub fn handle_network_change(&mut self, now: Instant) {
        match &mut self.paths {
            Some(paths) => {
                paths.handle_network_change(now);
                self.endpoint = paths.to();
            }
            None => self.forget_source(),
        }
    }

    /// Something came from `from` that no session opens. Where there is no session with this peer,
    /// and it may be there, a handshake begins; returns whether it is so.
    pub fn handle_hint(&mut self, from: &Destination) -> bool {
        let Some(paths) = self.paths.as_mut().filter(|_| self.peer.current().is_none()) else {
            return false;
        };
        let may_be = paths.handle_hint(from);
        if may_be {
            self.peer.renew();
        }
        may_be
    }

    /// Our own endpoints changed: the peer is called again.
    pub fn handle_reach_change(&mut self, now: Instant) {
        if let Some(paths) = &mut self.paths {
            paths.handle_reach_change(now);
        }
    }

    /// A packet waits for a path, or for a session. A session without a path asks for a handshake,
    /// which goes to all candidates.
    pub(super) fn want_path(&mut self) {
        if self.endpoint.is_none() && self.peer.current().is_some() {
            self.wants_path = true;
            self.peer.renew();
        }
    }

    /// Whether there is anywhere to send to.
    pub(super) fn has_destination(&self) -> bool {
        self.endpoint.is_some() || self.paths.as_ref().is_some_and(|paths| !paths.is_empty())
    }

    /// Answers an initiation where it came from and, of a managed peer, through its relay: the way
    /// on which it came may lead in one direction only.
    pub(super) fn respond<O: Outbox>(&mut self, from: &Destination, message: &[u8], out: &mut O) {
        self.emit(message, Some(*from), out);
        let second = self.paths.as_ref().and_then(|paths| paths.second_way(from));
        self.emit(message, second, out);
    }

    /// Our handshake was answered.
    pub(super) fn handle_agreed(&mut self, from: &Destination, now: Instant) {
        if let Some(paths) = &mut self.paths {
            paths.handle_agreed(from, now);
            self.endpoint = paths.to();
        }
    }

    /// A peer that is only followed was heard elsewhere: what goes there and what comes from there
    /// takes another path now, as far as anybody knows.
    #[cold]
    pub(super) fn handle_followed(&mut self, number: Option<(Index, u64)>, now: Instant) {
        if let Some(frames) = &mut self.frames {
            if let Some((index, counter)) = number {
                frames.handle_source_moved(index, counter);
            }
            frames.handle_moved(self.peer.next_number(), now);
        }
    }

    /// A datagram was received, with packets or without.
    #[inline]
    pub(super) fn note_received(
        &mut self,
        is_data: bool,
        (index, counter): (Index, u64),
        now: Instant,
    ) {
        if let (true, Some(paths)) = (is_data, &mut self.paths) {
            let moved = paths.note_received(now);
            if let (true, Some(frames)) = (moved, &mut self.frames) {
                frames.handle_source_moved(index, counter);
            }
        }
    }

    /// Takes a probe, an answer or a call.
    pub(super) fn handle_path_frame(
        &mut self,
        from: &Destination,
        plain: &[u8],
        now: Instant,
    ) -> Result<(), Drop> {
        match frame::parse(plain) {
            Ok(Frame::Probe(probe)) => {
                if self.answers.len() < ANSWERS_MAX {
                    let observed = from.udp().map(|endpoint| endpoint.remote);
                    let answer = ProbeAnswer { nonce: probe.nonce, len: probe.len, observed };
                    self.answers.push((*from, answer));
                }
            }
            Ok(Frame::ProbeAnswer(answer)) => {
                let of_path = |paths: &mut Box<Paths>| {
                    let is_stray = Some(*from) != paths.to();
                    paths.handle_answer(from, &answer, now) && is_stray
                };
                let is_stray = self.roomy.handle_answer(&answer, now)
                    || self.paths.as_mut().is_some_and(of_path);
                if let (true, Some(frames)) = (is_stray, &mut self.frames) {
                    frames.note_stray_answered();
                }
            }
            Ok(Frame::Candidates(call)) => {
                if let Some(paths) = &mut self.paths {
                    paths.handle_called(&call, now);
                }
            }
            _ => return Err(Drop::Malformed),
        }
        Ok(())
    }

    /// Whether packets came last by a stream.
    pub(super) fn comes_by_stream(&self, rooms: &[(u32, usize)]) -> bool {
        let source = self.paths.as_ref().and_then(|paths| paths.source());
        source.is_some_and(|source| is_stream(&source, rooms))
    }

    /// Sends what paths want: initiations to candidates, answers, probes, calls.
    pub(super) fn drive_paths<O: Outbox>(&mut self, world: &mut World<'_>, out: &mut O) {
        self.send_answers(world.now, out);
        let (Some(paths), now) = (&mut self.paths, world.now) else { return };
        let current = self.peer.current().map(|(current, _)| current);
        let hello = current.and_then(|current| self.frames.as_ref()?.hello(current));
        let speaks = hello.is_some_and(|hello| hello.features.has(Features::PATHS));
        paths.set_speaks(speaks, now);
        while let Some((to, message)) = paths.poll_fan(now) {
            let Some(slot) = out.reserve(&to, message.len()) else { continue };
            slot.copy_from_slice(message);
            out.commit();
            self.tx_bytes += message.len() as u64;
        }
        if paths.handle_timeout(now) {
            if speaks {
                self.ask(world.reach, world.mtu, world.random, now, out);
            }
            let Some(paths) = &mut self.paths else { return };
            paths.settle(speaks, now);
            if paths.take_lost(now) {
                self.peer.renew();
            }
        }
        let Some(paths) = &mut self.paths else { return };
        self.endpoint = paths.to();
        self.room = paths.room(world.reach.rooms);
        let by_stream = paths.to().is_some_and(|to| is_stream(&to, world.reach.rooms));
        if let Some(frames) = &mut self.frames {
            frames.set_by_stream(by_stream);
        }
        if paths.take_moved()
            && let Some(frames) = &mut self.frames
        {
            frames.handle_moved(self.peer.next_number(), now);
        }
    }

    /// Sends probes and calls on the current session, whose peer takes them.
    fn ask<O: Outbox>(
        &mut self,
        own: Own<'_>,
        mtu: usize,
        random: &mut dyn Random,
        now: Instant,
        out: &mut O,
    ) {
        let Some(paths) = &mut self.paths else { return };
        let Some(session) = self.peer.sealer(now) else { return };
        let index = session.index();
        let best = paths.to();
        let frames = &mut self.frames;
        let mut datagrams = 0;
        let mut bytes = 0;
        let mut seal = |to: Destination, len: usize, write: &mut dyn FnMut(&mut [u8])| {
            let mut way = Way::new(session, to, out);
            // What is refused here is refused to data, too, and counted there.
            let _ = way.seal(len, |plain| write(plain));
            datagrams += way.datagrams;
            bytes += way.bytes;
            // What of these comes says nothing of the weather: a size, or a way, is tried.
            if let Some(frames) = frames {
                frames.note_stray_out((index, way.last), Some(to) != best, now);
            }
        };
        if paths.poll_call(now)
            && let Some(to) = paths.to()
        {
            let len = Candidates::len_of(own.endpoints.len().min(Candidates::COUNT_MAX));
            seal(to, len, &mut |plain| Candidates::write(own.endpoints, own.varies, plain));
        }
        while let Some(ask) = paths.poll_probe(mtu, random, now) {
            seal(ask.to, usize::from(ask.probe.len), &mut |plain| ask.probe.write(plain));
        }
        self.tx_bytes += bytes;
        self.peer.data_sent(now, datagrams, 0);
    }

    /// Asks whether a packet of full size and its frames pass on the way in use.
    pub(super) fn ask_room<O: Outbox>(&mut self, world: &mut World<'_>, out: &mut O) {
        let speaks = self.hello().is_some_and(|hello| {
            hello.features.has(Features::PATHS) && hello.features.has(Features::REPAIR)
        });
        let now = world.now;
        let mtu = world.mtu.min(self.room);
        let (true, Some(to)) = (speaks, self.endpoint) else { return self.roomy.rest() };
        let mut nonce = [0; 8];
        let random = &mut *world.random;
        let draw = || {
            random.fill(&mut nonce);
            u64::from_le_bytes(nonce)
        };
        let Some(probe) = self.roomy.poll(&to, mtu, draw, now) else { return };
        let Some(session) = self.peer.sealer(now) else { return };
        let index = session.index();
        let mut way = Way::new(session, to, out);
        let _ = way.seal(usize::from(probe.len), |plain| probe.write(plain));
        let datagrams = way.datagrams;
        let bytes = way.bytes;
        let number = way.last;
        self.tx_bytes += bytes;
        self.peer.data_sent(now, datagrams, 0);
        // Its loss says something of its size, and nothing of the weather.
        if let Some(frames) = &mut self.frames {
            frames.note_stray_out((index, number), true, now);
        }
    }

    /// Answers go back to where the probes came from, whatever path is in use.
    fn send_answers<O: Outbox>(&mut self, now: Instant, out: &mut O) {
        if self.answers.is_empty() || self.peer.current().is_none() {
            self.answers.clear();
            return;
        }
        let Some(session) = self.peer.sealer(now) else { return self.answers.clear() };
        let index = session.index();
        let mut datagrams = 0;
        let mut bytes = 0;
        for (to, answer) in self.answers.drain(..) {
            let mut way = Way::new(session, to, out);
            let _ = way.seal(ProbeAnswer::LEN, |plain| plain.copy_from_slice(&answer.build()));
            if let Some(frames) = &mut self.frames {
                frames.note_stray_out((index, way.last), Some(to) != self.endpoint, now);
            }
            datagrams += way.datagrams;
            bytes += way.bytes;
        }
        self.tx_bytes += bytes;
        self.peer.data_sent(now, datagrams, 0);
    }
}

/// Whether what goes to `to` travels in a stream, as to a relay through which everything fits.
pub(super) fn is_stream(to: &Destination, rooms: &[(u32, usize)]) -> bool {
    match to {
        Destination::Relay(relayed) => rooms.iter().all(|(relay, _)| *relay != relayed.relay),
        Destination::Udp(_) | Destination::Carried(_) => false,
    }
}
