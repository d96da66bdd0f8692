//! Actions of a link's own: handshakes, keepalives, Hello, and sending what was staged.

use super::*;

impl Link {
    /// Does all that the peer wants done, and says what became of staged packets.
    pub fn handle_actions<O: Outbox>(&mut self, world: &mut World<'_>, out: &mut O) -> Outcome {
        let mut total = Outcome::default();
        if self.keys.as_ref().is_some_and(|keys| keys.due() <= world.now) {
            self.refresh_keys(world);
        }
        self.close(world.now, out, &mut total);
        while let Some(action) = self.peer.poll_action() {
            match action {
                Action::ForgetSource => self.forget_source(),
                Action::Initiate => self.initiate(world, out),
                Action::Greet => {
                    if let Some((current, frame::CAPABILITY)) = self.peer.current() {
                        self.greet(current, world, out);
                    }
                }
                Action::SendStaged => {
                    if let Some(paths) = &mut self.paths {
                        paths.end_fan();
                    }
                    self.send_staged(world, out, &mut total);
                }
                Action::Keepalive if self.staged.is_empty() => self.keepalive(world.now, out),
                Action::Keepalive => self.send_staged(world, out, &mut total),
                Action::DropStaged => total.expired += self.staged.clear(),
            }
        }
        if let Some(index) = self.answer.take() {
            self.greet(index, world, out);
        }
        self.drive_paths(world, out);
        self.ask_room(world, out);
        // What waited for a path has one now.
        if self.wants_path && self.endpoint.is_some() {
            self.wants_path = false;
            self.send_staged(world, out, &mut total);
        }
        let by_stream = self.comes_by_stream(world.reach.rooms);
        if let Some(frames) = &mut self.frames {
            let to = (self.endpoint, by_stream);
            self.tx_bytes += frames.handle_due(&mut self.peer, to, world.now, out);
        }
        total
    }

    fn initiate<O: Outbox>(&mut self, world: &mut World<'_>, out: &mut O) {
        if !self.has_destination() {
            return;
        }
        let Some(mut context) = context(world) else { return };
        let Some(message) = self.peer.initiate(&mut context) else { return };
        match &mut self.paths {
            // They follow with the probes.
            Some(paths) => paths.begin_fan(message, world.now),
            None => self.emit(&message, self.endpoint, out),
        }
    }

    /// Sends a handshake message.
    pub(super) fn emit<O: Outbox>(&mut self, message: &[u8], to: Option<Destination>, out: &mut O) {
        let Some(to) = to else { return };
        if let Some(slot) = out.reserve(&to, message.len()) {
            slot.copy_from_slice(message);
            out.commit();
            self.tx_bytes += message.len() as u64;
        }
    }

    fn keepalive<O: Outbox>(&mut self, now: Instant, out: &mut O) {
        let Some(to) = self.endpoint else { return };
        let Some(session) = self.peer.sealer(now) else { return };
        let Some(slot) = out.reserve(&to, wireguard::KEEPALIVE_LEN) else { return };
        if session.seal(slot).is_ok() {
            out.commit();
            self.tx_bytes += wireguard::KEEPALIVE_LEN as u64;
            self.peer.data_sent(now, 1, 0);
        }
    }

    /// Says who we are on `session`, and draws its second index first, so that only sessions with a
    /// Hello have one.
    fn greet<O: Outbox>(&mut self, session: Index, world: &mut World<'_>, out: &mut O) {
        let now = world.now;
        let (Some(frames), Some(to)) = (&mut self.frames, self.endpoint) else { return };
        if self.aes && frames.greets() {
            self.peer.offer_second(session, world.indices, world.random);
        }
        let Some(sealer) = self.peer.sealer_of(session, now) else { return };
        let mut way = Way::new(sealer, to, out);
        frames.greet(session, now, &mut way);
        let datagrams = way.datagrams;
        let bytes = way.bytes;
        self.tx_bytes += bytes;
        self.peer.data_sent(now, datagrams, 0);
    }

    fn send_staged<O: Outbox>(&mut self, world: &World<'_>, out: &mut O, total: &mut Outcome) {
        // Without a path in use, what is sent is staged again.
        while self.endpoint.is_some() && self.peer.sealer(world.now).is_some() {
            let Some(mut waiting) = self.staged.pop() else { break };
            let Ok(packet) = superpacket::parse(waiting.header, &mut waiting.bytes) else {
                continue;
            };
            let outcome = self.send(waiting.header, &packet, (world.now, world.mtu), false, out);
            total.sent += outcome.sent;
            total.overflowed += outcome.overflowed;
            if let Some((refusal, segments)) = outcome.refused {
                total.refuse(refusal, segments);
            }
        }
        self.close(world.now, out, total);
    }

    /// Sends the small packets that waited for each other, if they have waited long enough.
    fn close<O: Outbox>(&mut self, now: Instant, out: &mut O, total: &mut Outcome) {
        let Some(frames) = self.frames.as_mut().filter(|frames| frames.has_gathered(now)) else {
            return;
        };
        let (Some(session), Some(to)) = (self.peer.sealer(now), self.endpoint) else {
            return total.refuse(Refusal::NoEndpoint, frames.drop_gathered());
        };
        let index = session.index();
        let mut way = Way::new(session, to, out);
        match frames.sender(index) {
            Some(sender) => {
                way = way.paced(sender.gap_ns());
                sender.close(now.0 / 1_000, &mut way, total);
            }
            // They gathered on the session before, and this one's Hello is on its way.
            None => frames.close_gathered_bare(&mut way, total),
        }
        let datagrams = way.datagrams;
        let bytes = way.bytes;
        self.tx_bytes += bytes;
        if datagrams > 0 {
            self.peer.data_sent(now, datagrams, bytes);
        }
    }
}
