//! One turn of a host: an input, everything it wants to put out, and what must hold afterwards.

use node::{Destination, Inbox};
use noise::Instant;

use super::host::Host;
use super::ledger::Made;
use super::*;

/// Wakes at one instant, at most; more, and the host does not sleep.
const WAKES_MAX: u32 = 64;
/// What comes costs one step for so many bytes, at most.
const BYTES_A_STEP: u64 = 16;
/// Where a datagram lies in the memory that is lent for it; anywhere but at the start.
const LEAD: usize = 24;

impl World {
    /// Hands a packet to a host that is up and awake.
    pub(super) fn hand(&mut self, id: HostId, to: HostId, mut made: Made) {
        self.note(Note::Packet(id, to, made.segments));
        let now = self.now();
        let host = &mut self.hosts[id.0];
        if !host.up || host.is_asleep(now) {
            return;
        }
        let clock = host.clock(now);
        host.node.handle_packet(made.header, &mut made.bytes, clock.now, &mut self.tray);
        self.drain(id);
    }

    /// A datagram is at a host.
    pub(super) fn arrive(
        &mut self,
        id: HostId,
        sender: Option<HostId>,
        from: Destination,
        bytes: Vec<u8>,
    ) {
        let kind = Kind::of(&bytes);
        let now = self.now();
        let host = &self.hosts[id.0];
        if !host.up || host.is_asleep(now) {
            self.note(Note::Ended(host.address, kind, Fate::Deaf));
            self.tray.give_back(bytes);
            return;
        }
        self.note(Note::Arrived(id, from.source(), kind, bytes.len()));
        if let Some(sender) = sender {
            self.watch.arrived(sender, id, &bytes, &self.hosts[id.0].node);
        }
        if let Some(tape) = &mut self.tape
            && tape.len() < TAPE_MAX
        {
            tape.push((id, bytes.clone()));
        }
        self.hosts[id.0].heard_bytes += bytes.len() as u64;
        let end = LEAD + bytes.len();
        let mut memory = self.tray.buffer(end + LEAD);
        memory[LEAD..end].copy_from_slice(&bytes);
        self.tray.give_back(bytes);
        let host = &mut self.hosts[id.0];
        let clock = host.clock(now);
        let mut inbox = std::mem::take(&mut self.tray.inbox);
        host.node.handle_datagram(
            from,
            &mut memory,
            LEAD..end,
            clock,
            &mut host.random,
            &mut inbox,
            &mut self.tray,
        );
        self.deliver(id, &mut inbox, &mut memory);
        self.tray.inbox = inbox;
        self.tray.give_back(memory);
        self.drain(id);
    }

    /// Takes what a host passes on to its machine, and what waited for it.
    fn deliver(&mut self, id: HostId, inbox: &mut Inbox, memory: &mut [u8]) {
        let now = self.now();
        loop {
            for packet in inbox.take_packets(memory) {
                if self.hear_too_big(id, &packet) {
                    continue;
                }
                match self.ledger.deliver(id, &packet, now) {
                    Ok(marker) => self.note(Note::Delivered(id, marker)),
                    Err(what) => self.fail(&what),
                }
            }
            if !self.hosts[id.0].node.poll_packets(inbox) && inbox.is_empty() {
                return;
            }
        }
    }

    /// A host's time has come.
    pub(super) fn wake(&mut self, id: HostId) {
        let now = self.now();
        let host = &mut self.hosts[id.0];
        if host.wakes.0 != now {
            host.wakes = (now, 0);
        }
        host.wakes.1 += 1;
        if host.wakes.1 > WAKES_MAX {
            self.fail(&format!("{id} wakes again and again"));
        }
        let host = &mut self.hosts[id.0];
        let clock = host.clock(now);
        host.node.handle_timeout(clock.now);
        let mut inbox = std::mem::take(&mut self.tray.inbox);
        self.deliver(id, &mut inbox, &mut []);
        self.tray.inbox = inbox;
        self.drain(id);
    }

    /// Takes everything that a host wants to put out.
    pub(super) fn drain(&mut self, id: HostId) {
        let now = self.now();
        loop {
            let host = &mut self.hosts[id.0];
            let clock = host.clock(now);
            let due = host.node.poll_timeout();
            let before = self.tray.sent.len();
            host.handle_handshakes(now, clock, &mut self.tray);
            host.node.handle_actions(clock, &mut host.random, &mut self.tray);
            if self.tray.sent.len() > before && due.is_none_or(|due| due > clock.now) {
                self.fail(&format!("{id} had output, but asked to be woken at {due:?}"));
            }
            let host = &self.hosts[id.0];
            let waits = host.node.has_handshakes() && host.busy_until <= now;
            if !waits {
                break;
            }
        }
        self.check(id);
        let mut sent = std::mem::take(&mut self.tray.sent);
        for (to, bytes) in sent.drain(..) {
            let host = &self.hosts[id.0];
            if !host.up {
                self.fail(&format!("{id} is down and sends"));
            }
            match to {
                Destination::Relay(to) => self.emit_relayed(id, to, bytes),
                Destination::Carried(to) => self.fail(&format!("{id} sends to {to:?}")),
                Destination::Udp(endpoint) => {
                    let own = host.address.ip();
                    if endpoint.source.is_some_and(|source| source.address != own) {
                        self.fail(&format!("{id} sends from {:?}, not its own", endpoint.source));
                    }
                    self.emit(id, endpoint.remote, bytes);
                }
            }
        }
        self.tray.sent = sent;
        self.publish(id);
    }

    /// Conservation: every packet and every datagram is somewhere. And nothing costs more steps
    /// than its bytes allow (threat BC-10).
    fn check(&self, id: HostId) {
        let node = &self.hosts[id.0].node;
        let heard_bytes = self.hosts[id.0].heard_bytes;
        if node.steps() > heard_bytes / BYTES_A_STEP {
            self.fail(&format!("{id}: {} steps for {heard_bytes} bytes", node.steps()));
        }
        let counters = node.counters();
        let out = counters.sealed + node.staged() + counters.dropped_out();
        if counters.packets_out != out {
            self.fail(&format!("{id}: packets out do not add up to {out}: {counters:?}"));
        }
        let known = counters.delivered
            + counters.keepalives_in
            + counters.frames_in
            + counters.handshakes_in
            + counters.reach_in
            + counters.dropped_in();
        let waiting = counters.datagrams_in.checked_sub(known);
        let fits = match waiting {
            Some(0) => !node.has_handshakes(),
            Some(waiting) => node.has_handshakes() && waiting <= node::HANDSHAKES_MAX as u64,
            None => false,
        };
        if !fits {
            self.fail(&format!("{id}: datagrams in do not add up to {known}: {counters:?}"));
        }
    }
}

impl Host {
    fn is_asleep(&self, now: Instant) -> bool {
        self.asleep_until.is_some_and(|until| now < until)
    }

    /// The costly half of handshakes: all at once where they cost nothing, else one at a time.
    fn handle_handshakes(&mut self, now: Instant, clock: node::Clock, tray: &mut Tray) {
        if self.handshake_cost.is_zero() {
            self.node.handle_handshakes(usize::MAX, clock, &mut self.random, tray);
        } else if self.node.has_handshakes() && self.busy_until <= now {
            self.node.handle_handshakes(1, clock, &mut self.random, tray);
            self.busy_until = now + self.handshake_cost;
        }
    }
}
