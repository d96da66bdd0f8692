//! The sending half of a link whose peer speaks frames: how a packet is cut, given its place in
//! its flow, and protected.
//!
//! Stages, in the order in which they appear below: `send` decides how a packet travels, `unit`
//! and `lone` cut it, `gather` lets a small one wait for others and `close` sends them as a bundle
//! (`bundled`), `piece` compresses one plaintext where that is wanted, `emit` protects and seals
//! it, `flush` sends repair chunks.
//!
//! What is chosen for a packet is tested row by row in `treatment::tests`, what leaves in `tests`,
//! and what becomes of it by two whole nodes, in `node::tests::frames` and its neighbours.

use std::time::Duration;

use noise::{Index, Instant};
use repair::code::CHUNK_LEN_MAX;
use repair::control::Control;
use repair::limits::Limits;
use repair::spread::Spread;
use repair::table::Upper;
use wire::frame::{self, Chunk, Head, Losses, Ordered, Protected, Report};
use wire::ip::protocol;
use wire::packet::{Packet, Transport, steers};
use wire::superpacket::Superpacket;
use wire::{tcp, virtio, wireguard};

use crate::compression::Squeezes;
use crate::compression::flows::Ticket;
use crate::compression::squeezer::{Squeezer, Tried};
use crate::frames::gather::{self, Gathered, Wishes};
use crate::frames::load::Load;
use crate::frames::manner::Manner;
use crate::frames::overrun::{Expected, Overrun, Tally};
use crate::frames::pacing;
use crate::frames::strays::Strays;
use crate::frames::treatment::{Alone, Class, Loss, Shape, Size, Treatment};
use crate::outbox::Outbox;
use crate::outcome::{Outcome, Refusal};
use crate::tuning::Tuning;
use crate::way::Way;

use flow::flow_tag;
use streams::congested;

/// A report that is older than the last one by less is late; by more, the peer began anew.
const REPORTS_LATE_MAX: u16 = 64;
/// What is assumed of the largest packet when nobody said: the smallest IPv6 link.
const MTU_UNKNOWN: usize = 1280;
/// Bytes of a lone packet that go into its head when it is cut: all headers up to the transport's,
/// and of a first fragment as much as a filter wants to see.
const CUT_AT: usize = Head::HEADER_LEN_MAX;

/// The sending half.
#[derive(Debug)]
pub(crate) struct Sender {
    tuning: &'static Tuning,
    control: Control,
    limits: Limits,
    spread: Spread,
    next_block: u32,
    next_unit: u16,
    /// The session that the open blocks are sent on.
    session: Option<Index>,
    /// Of each tag, the number of the next piece.
    numbers: Box<[u32; repair::order::TAGS]>,
    /// Whether the peer reads bundles.
    bundles: bool,
    gathered: Gathered,
    /// Packets that were sent in bundles.
    bundled: u64,
    /// Whether the peer reads what is compressed.
    reads_squeezed: bool,
    /// Made when something may be compressed first.
    squeezer: Option<Box<Squeezer>>,
    load: Load,
    /// What the last reports say of more having been sent than could be taken.
    overrun: Option<Overrun>,
    tally: Tally,
    /// The report that was taken in last, and when.
    report: Option<u16>,
    told: Option<Instant>,
    rtt_us: Option<u32>,
    /// Between two datagrams, nanoseconds; 0 = none.
    gap_ns: u32,
    /// Whether packets go out by a stream, and whether the peer says that they come by one.
    by_stream: bool,
    comes_by_stream: Option<bool>,
    /// Datagrams sent on other paths that may be reported lost.
    strays: Strays,
    /// Until then what is reported lost may have been sent on the path before.
    settled_at: Instant,
    /// Payload of the chunks of the unit that was sent last, in bytes.
    chunk_len: usize,
    data_bytes: u64,
    repair_bytes: u64,
    /// Whether something that needs more than the interface's MTU was sent.
    beyond: bool,
    /// Packets that could have told their delay, modulo 256.
    untold: u8,
}

impl Sender {
    /// Nothing sent yet. Numbers begin at `salt`, so that a peer which remembers an earlier life of
    /// ours does not take what is new for something old.
    pub(crate) fn new(salt: u32, tuning: &'static Tuning) -> Self {
        Self {
            tuning,
            control: Control::new(&tuning.repair),
            limits: Limits::usual(&tuning.repair.waiting),
            spread: Spread::new(&tuning.repair),
            next_block: salt,
            next_unit: salt as u16,
            session: None,
            numbers: Box::new([salt; repair::order::TAGS]),
            bundles: false,
            gathered: Gathered::default(),
            bundled: 0,
            reads_squeezed: false,
            squeezer: None,
            load: Load::default(),
            overrun: None,
            tally: Tally::default(),
            report: None,
            told: None,
            rtt_us: None,
            gap_ns: 0,
            by_stream: false,
            comes_by_stream: None,
            strays: Strays::new(tuning.strays),
            settled_at: Instant::ZERO,
            chunk_len: 0,
            data_bytes: 0,
            repair_bytes: 0,
            beyond: false,
            untold: 0,
        }
    }

    /// What follows goes out on the session `current`. A block is sent on one session, for the
    /// other end of the next one may not have what was sent on the one before.
    pub(crate) fn begin(&mut self, current: Index) {
        if self.session != Some(current) {
            self.session = Some(current);
            self.spread = Spread::new(&self.tuning.repair);
            self.spread.heed(&self.control);
        }
    }

    /// The peer began anew and knows nothing of our flows any more: they begin with `salt` again,
    /// and its reports with their first number.
    pub(crate) fn renumber(&mut self, salt: u32) {
        self.numbers.fill(salt);
        self.report = None;
    }

    /// Says whether the other end reads bundles, and what is compressed.
    pub(crate) fn set_reads(&mut self, bundles: bool, squeezed: bool) {
        self.bundles = bundles;
        self.reads_squeezed = squeezed;
    }

    /// Sends a packet or superpacket as `wishes` say. On the path of every packet.
    pub(crate) fn send<O: Outbox>(
        &mut self,
        header: virtio::Header,
        packet: &Superpacket<'_>,
        (now, mtu, room): (Instant, usize, usize),
        wishes: Wishes,
        way: &mut Way<'_, O>,
    ) -> Outcome {
        let is_tcp = packet.packet().protocol() == protocol::TCP;
        let upper = if is_tcp { Upper::Tcp } else { Upper::Other };
        let loss = self.loss(upper);
        let tag = if self.is_worth_order(loss, is_tcp) { flow_tag(packet.packet()) } else { None };
        let class = match tag {
            Some(_) => Class::Ordered,
            // Elsewhere it makes no difference, and this is the path of every packet.
            None if loss == Loss::Assumed && tcp::is_syn(packet.packet().bytes()) => Class::Opening,
            None => Class::Other,
        };
        let now_us = now.0 / 1_000;
        let ticket = if wishes.squeeze { self.ticket(packet.packet()) } else { None };
        let room = if mtu == 0 { MTU_UNKNOWN } else { room.min(CHUNK_LEN_MAX) };
        let size = Size::of(header, packet, class);
        let is_unit = size.is_unit(loss, class, room, self.tuning);
        let treatment = Treatment::of(loss, class, is_unit, || self.tells_delay(now_us));
        let protect = treatment.is_in_block();
        let manner = Manner { tag, upper, is_tcp, protect, ticket, now_us, mtu, room };
        let shape = Shape::of(size, is_unit, treatment, room, self.bundles);
        let segments = packet.segments();
        let mut outcome = Outcome::default();
        if shape == Shape::Small {
            self.gather(packet, size.len(), (manner, wishes.hold), way, &mut outcome);
            return outcome;
        }
        self.close(now_us, way, &mut outcome);
        let before = outcome.sent;
        let result = if shape == Shape::Unit {
            self.unit(header, packet, manner, way, &mut outcome)
        } else {
            self.lone(packet, manner, way, &mut outcome)
        };
        if let Err(refusal) = result {
            outcome.refuse(refusal, segments as u64 - (outcome.sent - before));
        }
        outcome
    }

    /// Whether the other end is to give packets of this kind back their order.
    fn is_worth_order(&self, loss: Loss, is_tcp: bool) -> bool {
        let has_disorder = self.control.estimate().reorder_us >= self.tuning.disorder_us;
        match loss {
            Loss::None => has_disorder,
            // Of a path that is not known only flows of TCP are told apart.
            Loss::Assumed => is_tcp,
            // What a flood loses in a queue is not rebuilt, and the rest would wait for it in vain.
            Loss::Measured => is_tcp || has_disorder || self.control.is_trusted(),
        }
    }

    /// What the path loses of packets of this kind.
    fn loss(&self, upper: Upper) -> Loss {
        if self.control.is_calm(upper) || self.is_in_streams() {
            Loss::None
        } else if self.control.estimate().known {
            Loss::Measured
        } else {
            Loss::Assumed
        }
    }

    /// Whether a packet that would travel as it is tells its delay, while that is wanted: each on a
    /// slow line, else one of some, for they would be repaired with what is. A unit's head always
    /// does.
    fn tells_delay(&mut self, now_us: u64) -> bool {
        if !self.control.is_watching(now_us) || self.is_in_streams() {
            return false;
        }
        self.untold = self.untold.wrapping_add(1);
        let is_bare = self.control.is_calm(Upper::Other);
        let is_each = is_bare && self.control.sent_rate() < self.tuning.told_each_rate;
        is_each || self.untold.is_multiple_of(self.tuning.told_every)
    }

    /// A superpacket as a head and a chunk for each segment.
    fn unit<O: Outbox>(
        &mut self,
        header: virtio::Header,
        packet: &Superpacket<'_>,
        manner: Manner,
        way: &mut Way<'_, O>,
        outcome: &mut Outcome,
    ) -> Result<(), Refusal> {
        let segments = packet.segments();
        let parts = Parts {
            gso_type: header.gso_type,
            header: packet.header(),
            segment_size: packet.segment_size(),
            payload: packet.payload(),
        };
        self.chunk_len = parts.segment_size;
        let head = self.head(&parts, segments, manner);
        self.emit(head.len(), manner, way, |out| head.write(out))?;
        for index in 0..segments {
            self.chunk(head.unit, index, packet.segment_payload(index), manner, way)?;
            outcome.sent += 1;
        }
        if !manner.protect && segments >= self.tuning.head_twice {
            self.emit(head.len(), manner, way, |out| head.write(out))?;
        }
        Ok(())
    }

    /// Each segment as a packet of its own.
    fn lone<O: Outbox>(
        &mut self,
        packet: &Superpacket<'_>,
        manner: Manner,
        way: &mut Way<'_, O>,
        outcome: &mut Outcome,
    ) -> Result<(), Refusal> {
        for index in 0..packet.segments() {
            let len = packet.segment_len(index);
            match Alone::of(&manner, len) {
                Alone::Bare => self.bare(len, manner, way, |plain| {
                    packet.write_segment(index, plain);
                })?,
                Alone::Whole => self.whole(packet, index, manner, way)?,
                Alone::Cut => self.cut(packet, index, manner, way)?,
            }
            outcome.sent += 1;
        }
        Ok(())
    }

    /// A packet in one frame, with its place in its flow if it has one.
    fn whole<O: Outbox>(
        &mut self,
        packet: &Superpacket<'_>,
        index: usize,
        manner: Manner,
        way: &mut Way<'_, O>,
    ) -> Result<(), Refusal> {
        let order_len = manner.order_len();
        let len = order_len + packet.segment_len(index);
        let spent = if manner.protect { frame::Repair::FIXED_LEN } else { 0 };
        self.beyond |= len + spent > manner.mtu;
        let number = manner.tag.map(|tag| (tag, self.number(tag, 1)));
        self.piece(len, manner, way, |out| {
            if let Some((tag, number)) = number {
                Ordered::write_fixed(tag, number, out);
            }
            packet.write_segment(index, &mut out[order_len..]);
        })
    }

    /// A packet that is too large to be protected whole: its headers as a head, the rest as a
    /// chunk.
    fn cut<O: Outbox>(
        &mut self,
        packet: &Superpacket<'_>,
        index: usize,
        manner: Manner,
        way: &mut Way<'_, O>,
    ) -> Result<(), Refusal> {
        let len = packet.segment_len(index);
        if !(CUT_AT + 1..=CHUNK_LEN_MAX).contains(&len) {
            // Beyond what the code takes, or with nothing behind its head: it travels bare.
            self.note_bare(len);
            return way.seal(len, |plain| {
                packet.write_segment(index, plain);
            });
        }
        let mut bytes = [0; CHUNK_LEN_MAX];
        packet.write_segment(index, &mut bytes);
        let (header, payload) = bytes[..len].split_at(CUT_AT);
        let parts =
            Parts { gso_type: virtio::GSO_NONE, header, segment_size: payload.len(), payload };
        let head = self.head(&parts, 1, manner);
        self.emit(head.len(), manner, way, |out| head.write(out))?;
        self.chunk(head.unit, 0, payload, manner, way)
    }

    fn head<'a>(&mut self, parts: &Parts<'a>, chunks: usize, manner: Manner) -> Head<'a> {
        self.next_unit = self.next_unit.wrapping_add(1);
        let tag = manner.tag.unwrap_or(0);
        Head {
            unit: self.next_unit,
            tag,
            ordered: manner.tag.is_some(),
            gso_type: parts.gso_type,
            segment_size: parts.segment_size as u16,
            number: manner.tag.map_or(0, |tag| self.number(tag, chunks as u32)),
            sent_us: manner.now_us as u32,
            payload_len: parts.payload.len() as u16,
            header: parts.header,
        }
    }

    fn chunk<O: Outbox>(
        &mut self,
        unit: u16,
        index: usize,
        payload: &[u8],
        manner: Manner,
        way: &mut Way<'_, O>,
    ) -> Result<(), Refusal> {
        self.piece(Chunk::FIXED_LEN + payload.len(), manner, way, |out| {
            Chunk::write_fixed(unit, index as u8, out);
            out[Chunk::FIXED_LEN..].copy_from_slice(payload);
        })
    }

    /// The numbers of the next `count` pieces of a flow.
    fn number(&mut self, tag: u8, count: u32) -> u32 {
        let number = &mut self.numbers[usize::from(tag)];
        let first = *number;
        *number = first.wrapping_add(count);
        first
    }

    /// Seals one plaintext of `len` bytes, protected if that is wanted.
    #[inline]
    fn emit<O: Outbox>(
        &mut self,
        len: usize,
        manner: Manner,
        way: &mut Way<'_, O>,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refusal> {
        let in_block = manner.protect && len <= CHUNK_LEN_MAX;
        self.load.count(in_block.then_some(manner.upper));
        self.data_bytes += len as u64;
        if !in_block {
            return way.seal(len, write);
        }
        let Self { spread, next_block, .. } = self;
        let kind = (manner.upper, manner.wait());
        way.seal(Protected::FIXED_LEN + len, |plain| {
            let (fixed, inner) = plain.split_at_mut(Protected::FIXED_LEN);
            write(inner);
            // A lane is never full here: what was due was sent after the piece before. If it were,
            // the other end would count a piece of no block.
            let place = spread.handle_chunk(inner, kind, next_block, manner.now_us);
            let (index, block) = place.map_or((u8::MAX, 0), |place| (place.index, place.block));
            Protected::write_fixed(index, block, manner.now_us as u32, 0, fixed);
        })?;
        // The piece is out, whatever becomes of its repair.
        if self.flush(manner.now_us, way).is_err() {
            self.discard(manner.now_us);
        }
        Ok(())
    }

    /// Sends the repair chunks that are due.
    pub(crate) fn flush<O: Outbox>(
        &mut self,
        now_us: u64,
        way: &mut Way<'_, O>,
    ) -> Result<(), Refusal> {
        while let Some(due) = self.spread.poll_repair(&self.control, now_us) {
            let (lengths, bytes) = due.coded;
            let repair = frame::Repair {
                index: due.index,
                data: due.shape.data,
                repair: due.shape.repair,
                block: due.block,
                lengths,
                sent_us: now_us as u32,
                bytes,
            };
            let len = frame::Repair::FIXED_LEN + bytes.len();
            self.repair_bytes += len as u64;
            way.seal(len, |plain| repair.write(plain))?;
        }
        Ok(())
    }

    /// Whether something that needs more than the interface's MTU was sent since this was asked.
    pub(crate) fn take_beyond(&mut self) -> bool {
        std::mem::take(&mut self.beyond)
    }

    /// Gives up the repair chunks that are due.
    pub(crate) fn discard(&mut self, now_us: u64) {
        while self.spread.poll_repair(&self.control, now_us).is_some() {}
    }

    /// Takes in what the other end saw.
    pub(crate) fn handle_report(&mut self, report: &Report, now: Instant) {
        let age = self.report.map_or(u16::MAX, |last| last.wrapping_sub(report.number));
        if age < REPORTS_LATE_MAX {
            return;
        }
        self.report = Some(report.number);
        self.told = Some(now);
        let now_us = now.0 / 1_000;
        if report.held_us != u32::MAX {
            let rtt_us = (now_us as u32).wrapping_sub(report.echo_us).wrapping_sub(report.held_us);
            self.rtt_us = Some(rtt_us).filter(|&us| us < 60_000_000);
            if let Some(rtt_us) = self.rtt_us {
                self.control.handle_rtt(rtt_us.saturating_sub(report.queue_us), now_us);
            }
        }
        let mut seen = *report;
        if now < self.settled_at {
            // Which path that was of, nobody can say; nor that this one loses nothing.
            seen.clear = Losses::default();
            seen.queued = Losses::default();
            seen.missing = 0;
            seen.rebuilt = 0;
        }
        self.strays.discount(&mut seen, now);
        self.comes_by_stream = Some(report.by_stream);
        if let Some(ms) = report.order_ms {
            self.limits.wait_us = u64::from(ms) * 1_000;
            self.control.set_limits(self.limits);
        }
        let sent = self.load.take(self.tuning.load_kept);
        let weather = if self.is_in_streams() { congested(&seen) } else { seen };
        self.control.handle_report(&weather, sent, now_us);
        self.gap_ns =
            pacing::gap_ns(self.control.line_rate(), self.control.sent_rate(), self.tuning);
        self.spread.heed(&self.control);
        // Weather that repair does not help against may be none: a flood that overruns a line many
        // times loses much that no queue was seen around.
        let model = self.control.estimate().model;
        let loss = model.loss;
        let burst_len = model.burst();
        let expected = Expected { loss, burst_len, trust: self.control.trust() };
        let overrun = self.tally.handle_report(&seen, sent.all, expected, self.tuning);
        self.overrun = overrun.or(self.overrun);
    }

    /// What a report said of more having been sent than could be taken, once.
    pub(crate) fn poll_overrun(&mut self) -> Option<Overrun> {
        self.overrun.take()
    }

    /// The path is another one: its weather is not known yet.
    pub(crate) fn handle_moved(&mut self, now: Instant) {
        // Just after another change nothing was learnt yet; and a peer that changes with each
        // datagram must not cost a table for each.
        if now >= self.settled_at {
            self.tally = Tally::default();
            self.gap_ns = 0;
            self.control = Control::within(self.limits, &self.tuning.repair);
            self.spread.heed(&self.control);
        }
        self.comes_by_stream = None;
        let rtt = Duration::from_micros(self.rtt_us.take().unwrap_or(0).into());
        self.settled_at = now + self.tuning.settle() + rtt * 2;
    }

    /// A datagram went another way: its loss is none of this path's.
    pub(crate) fn note_stray(&mut self, now: Instant) {
        self.strays.note(now);
    }

    /// A datagram that went another way has come.
    pub(crate) fn note_stray_answered(&mut self) {
        self.strays.handle_answer();
    }

    /// Gives memory back where nothing waits.
    pub(crate) fn trim(&mut self) {
        self.spread.trim();
        self.gathered.trim();
    }

    /// When [`Sender::flush`] or [`Sender::close`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let flush = self.spread.poll_timeout().map(|at_us| Instant(at_us.saturating_mul(1_000)));
        [flush, self.gathered.due()].into_iter().flatten().min()
    }
}

/// A packet in two parts.
struct Parts<'a> {
    gso_type: u8,
    header: &'a [u8],
    segment_size: usize,
    payload: &'a [u8],
}

mod bundled;
mod flow;
mod shown;
mod squeezed;
mod streams;
#[cfg(test)]
mod tests;
