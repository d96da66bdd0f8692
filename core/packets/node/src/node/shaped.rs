//! Packets on their way out, at the rate of the line where the user said what that is.

use wire::superpacket::Superpacket;

use super::*;
use crate::rate::LineRate;

impl Node {
    /// Sets how fast the line is that this machine sends by. Packets of all peers share it by
    /// their classes.
    pub fn set_line_rate(&mut self, rate: LineRate) {
        self.shaper.set_rate(rate.bytes_s());
    }

    /// Hands a packet to the peer's link, now or when its turn comes.
    #[inline]
    pub(super) fn pass_on<O: Outbox>(
        &mut self,
        id: PeerId,
        header: virtio::Header,
        packet: &Superpacket<'_>,
        squeeze: bool,
        now: Instant,
        out: &mut O,
    ) {
        if self.shaper.is_on() {
            return self.hold(id, packet, squeeze, now, out);
        }
        let Some(link) = self.peers.link(id) else {
            return self.counters.drop(Reason::NoRoute, packet.segments() as u64);
        };
        let outcome = link.send(header, packet, (now, self.mtu), squeeze, out);
        let room = link.room();
        self.count(&outcome);
        self.touch(id);
        if let Some((Refusal::TooBig, _)) = outcome.refused {
            self.refuse_size(Some(id), packet.packet().bytes(), room);
        }
    }

    /// Each segment waits by itself: one superpacket would have a slow line for a tenth of a
    /// second.
    #[cold]
    fn hold<O: Outbox>(
        &mut self,
        id: PeerId,
        packet: &Superpacket<'_>,
        squeeze: bool,
        now: Instant,
        out: &mut O,
    ) {
        for index in 0..packet.segments() {
            let len = packet.segment_len(index);
            let write = |bytes: &mut [u8]| {
                packet.write_segment(index, bytes);
            };
            let octet = packet.packet().traffic_class();
            if !self.shaper.push(id, squeeze, (octet, len), now, write) {
                self.counters.drop(Reason::LineFull, 1);
            }
        }
        self.release(now, out);
    }

    /// Whether something waits for the line: packets, or cells.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.circuits.waiting() > 0 || self.shaper.held() > 0
    }

    /// Sends what has its turn.
    pub(super) fn release<O: Outbox>(&mut self, now: Instant, out: &mut O) {
        let mut dropped = 0;
        while self.shaper.is_free(now) {
            if self.circuits.waiting() > 0 && self.shaper.yields(now) {
                self.send_waiting(now, out);
                continue;
            }
            let Some(mut held) = self.shaper.pop(now, &mut dropped) else { break };
            self.send_held(&mut held, now, out);
            self.shaper.put_back(held);
        }
        self.counters.drop(Reason::LineQueue, dropped);
    }

    fn send_held<O: Outbox>(&mut self, held: &mut Held, now: Instant, out: &mut O) {
        // Its checksum is complete since it was held; to complete it again would spoil it.
        let header = virtio::Header::default();
        let Ok(packet) = superpacket::parse(header, &mut held.bytes) else {
            return self.counters.drop(Reason::PacketMalformed, 1);
        };
        let Some(link) = self.peers.link(held.peer) else {
            return self.counters.drop(Reason::NoRoute, 1);
        };
        let before = link.tx_bytes();
        let outcome = link.send(header, &packet, (now, self.mtu), held.squeeze, out);
        let sent = link.tx_bytes() - before;
        let room = link.room();
        self.shaper.note_sent(sent, outcome.sent, now);
        self.count(&outcome);
        self.touch(held.peer);
        if let Some((Refusal::TooBig, _)) = outcome.refused {
            self.refuse_size(Some(held.peer), packet.packet().bytes(), room);
        }
    }
}

#[cfg(test)]
mod tests;
