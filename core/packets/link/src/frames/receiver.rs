//! The receiving half of a link whose peer speaks frames: what arrives is noted, repaired, put in
//! order and passed on.
//!
//! Stages, in the order in which they appear below: `handle_*` for each frame, `open` for what
//! was protected, `take_*` for heads, chunks and packets, `put`, `pass`.

use std::collections::VecDeque;

use noise::{Index, Instant};
use repair::block::{Arrival, Assembler, BYTES_MAX, Shape};
use repair::budget::Budget;
use repair::code::CHUNK_LEN_MAX;
use repair::observe::Observer;
use repair::order::Order;
use translate::Table;
use wire::frame::{self, Bundle, Chunk, Elsewhere, Frame, Ordered, Protected, Squeezed};
use wire::ip::protocol;
use wire::packet::{self, Ecn, Packet};

use crate::compression;
use crate::frames::codel::Codel;
use crate::frames::load::Harvest;
use crate::frames::orphans::Orphans;
use crate::frames::piece::{At, Counters, Judge, Open, Ordinal, Origin, Part, Piece};
use crate::frames::pool::Pool;
use crate::inbox::{Inbox, Place};
use crate::tuning::Tuning;

/// Units whose chunks may still come.
pub const UNITS_MAX: usize = 1_024;
/// Chunks that wait for the head of their unit.
pub const ORPHANS_MAX: usize = 512;
/// For how long a head is heeded: chunks come within a round trip or two, repair included.
const UNIT_US: u64 = 1_000_000;
/// How long they wait: as long as a block.
const ORPHAN_US: u64 = repair::block::PATIENCE_US;
/// Memory is given back after a pause of so long.
const KEEP_US: u64 = 1_000_000;

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Receiver {
    tuning: &'static Tuning,
    peer: u32,
    observer: Observer,
    /// The newest session and its ordinal; the one before has the ordinal before.
    epochs: [(Option<Index>, Ordinal); 2],
    /// That of the datagram at hand, and so of what it completes: a block is of one session.
    ordinal: Ordinal,
    /// The highest sequence number so far.
    highest: u64,
    assembler: Assembler,
    /// Nothing stands for what was given up on purpose: nobody shall wait for it.
    order: Order<Option<Piece>>,
    units: Vec<Option<Open>>,
    serial: u32,
    orphans: Orphans,
    pool: Pool,
    /// Pieces that wait for nothing but room in an inbox.
    ready: VecDeque<Piece>,
    counters: Counters,
    report_number: u16,
    report_us: Option<u64>,
    /// When a new path had brought the first [`Tuning::fresh`].
    fresh_us: u64,
    harvest: Harvest,
    /// What the assembler had counted at the last report.
    reported: (u64, u64),
    /// The newest clock of the peer, and when it came.
    echo: Option<(u32, u64)>,
    /// The session on which a piece of a block came last.
    blocks_on: Option<Index>,
    /// When a protected piece came last.
    protected_us: Option<u64>,
    /// The same of what may have an order: frames, and not bare packets.
    ordered_us: Option<u64>,
    active_us: u64,
    codel: Codel,
}

impl Receiver {
    pub(crate) fn new(peer: u32, budget: &Budget, tuning: &'static Tuning) -> Self {
        Self {
            tuning,
            peer,
            observer: Observer::new(&tuning.repair),
            epochs: [(None, 0); 2],
            ordinal: 0,
            highest: 0,
            assembler: Assembler::sharing(BYTES_MAX, budget),
            order: Order::new(&tuning.repair.waiting),
            units: Vec::new(),
            serial: 0,
            orphans: Orphans::default(),
            pool: Pool::new(budget),
            ready: VecDeque::new(),
            counters: Counters::default(),
            report_number: 0,
            report_us: None,
            fresh_us: 0,
            harvest: Harvest::default(),
            reported: (0, 0),
            echo: None,
            blocks_on: None,
            protected_us: None,
            ordered_us: None,
            active_us: 0,
            codel: Codel::default(),
        }
    }

    /// Up to this datagram what came was not observed.
    pub(crate) fn begin_after(&mut self, index: Index, counter: u64) {
        let sequence = self.place(index, counter);
        self.observer.begin(sequence + 1);
    }

    /// A datagram without a clock came. With `arm` it is data, and wants a report. Any other counts
    /// on the session only that data come on: a Hello is answered where it was said, and that may
    /// be another one.
    pub(crate) fn handle_number(&mut self, index: Index, counter: u64, arm: bool, now_us: u64) {
        if !arm && !self.is_newest(index) {
            return;
        }
        let sequence =
            if arm { self.sequence(index, counter, now_us) } else { self.place(index, counter) };
        self.highest = self.highest.max(sequence);
        self.observer.handle_number(sequence, now_us);
        self.note_fresh(now_us);
        if arm {
            self.harvest.count(false);
            self.arm(now_us);
        }
    }

    /// Takes a frame that carries data; its plaintext lies at `start` of the lent memory.
    pub(crate) fn handle_frame(
        &mut self,
        (index, counter): (Index, u64),
        frame: &Frame<'_>,
        start: usize,
        judge: &mut impl Judge,
        now_us: u64,
    ) {
        let sent_us = match frame {
            Frame::Head(head) => Some(head.sent_us),
            Frame::Protected(protected) => Some(protected.sent_us),
            Frame::Repair(repair) => Some(repair.sent_us),
            _ => None,
        };
        match sent_us {
            Some(sent_us) => {
                let sequence = self.sequence(index, counter, now_us);
                self.observer.handle_chunk(sequence, sent_us, now_us);
                self.note_fresh(now_us);
                self.echo = Some((sent_us, now_us));
                self.arm(now_us);
            }
            None => self.handle_number(index, counter, true, now_us),
        }
        if matches!(frame, Frame::Protected(_) | Frame::Repair(_)) {
            self.blocks_on = Some(index);
        }
        match frame {
            Frame::Protected(protected) => self.open(protected, start, judge, now_us),
            Frame::Repair(repair) => {
                let shape = Shape { data: repair.data, repair: repair.repair };
                let coded = (repair.lengths, repair.bytes);
                self.assembler.handle_repair(repair.block, shape, repair.index, coded, now_us);
            }
            _ => self.take_frame(frame, Origin::Lent(start), judge, now_us),
        }
        self.take_rebuilt(judge, now_us);
        if matches!(frame, Frame::Repair(_)) {
            self.give_up_settled(now_us);
        }
    }

    /// Lets go on what has waited long enough.
    pub(crate) fn handle_timeout(&mut self, now_us: u64) {
        self.order.handle_timeout(now_us);
        self.assembler.handle_timeout(now_us);
        while self.orphans.since_us().is_some_and(|since_us| since_us + ORPHAN_US <= now_us) {
            self.drop_orphan();
        }
        if self.active_us + KEEP_US <= now_us {
            self.pool.trim();
            if self.orphans.is_empty() && self.ready.is_empty() {
                self.units = Vec::new();
            }
        }
    }

    /// Moves what is ready into `inbox`, as long as it has room. Returns whether all went.
    pub(crate) fn poll_pieces(&mut self, inbox: &mut Inbox, table: Option<&Table>) -> bool {
        loop {
            if self.ready.is_empty() {
                match self.order.poll_ready() {
                    Some(piece) => self.ready.extend(piece),
                    None => return true,
                }
            }
            let has_room = |piece: &Piece| match piece.at {
                At::Lent(_) => true,
                At::Kept(kept) => inbox.has_room(kept.len()),
            };
            if !self.ready.front().is_none_or(has_room) {
                return false;
            }
            if let Some(piece) = self.ready.pop_front() {
                self.pass(piece, inbox, table);
            }
        }
    }

    /// For how long a flow waits for its order at most, microseconds.
    pub(crate) fn set_order_us(&mut self, most_us: u64) {
        self.order.set_wait_us_max(most_us);
    }

    /// What number the peer's flows begin with, as it says on the session `index`; whether it was
    /// another one before. Then the peer began anew: its clock and its blocks are others, unless
    /// some came on that session before, and so is the way.
    pub(crate) fn set_first(&mut self, first: u32, index: Index) -> bool {
        let is_another = self.order.set_first(first);
        if is_another {
            if self.blocks_on != Some(index) {
                self.echo = None;
                self.assembler.begin_anew();
            }
            self.handle_source_moved();
        }
        is_another
    }

    /// The path is another one: its delay says nothing about the one before.
    fn handle_source_moved(&mut self) {
        self.observer.handle_path_change();
    }

    /// The same, from this datagram on. Of another session than the newest it is late, or the first
    /// of one that begins.
    pub(crate) fn handle_way(&mut self, index: Index, counter: u64) {
        if self.is_newest(index) {
            let sequence = self.place(index, counter);
            self.observer.handle_way(sequence);
        } else {
            self.observer.handle_path_change();
        }
    }

    /// These numbers of the session `index` went another way than packets do. It is said on the
    /// session that packets are sent on, so it may be the first to come of a new one.
    pub(crate) fn handle_elsewhere(&mut self, index: Index, elsewhere: &Elsewhere<'_>) {
        if self.epochs[1].0 == Some(index) {
            return;
        }
        for run in elsewhere.runs() {
            let first = self.place(index, run.first);
            self.observer.handle_elsewhere(first, run.count);
        }
    }

    /// When to call [`Receiver::handle_timeout`] and to ask for a report next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let orphan = self.orphans.since_us().map(|since_us| since_us + ORPHAN_US);
        let holds = !self.units.is_empty() || self.pool.holds_memory();
        let keep = holds.then_some(self.active_us + KEEP_US);
        [self.report_us, self.order.poll_timeout(), self.assembler.poll_timeout(), orphan, keep]
            .into_iter()
            .flatten()
            .min()
            .map(|at_us| Instant(at_us.saturating_mul(1_000)))
    }

    /// What became of pieces.
    pub(crate) fn counters(&self) -> (Counters, repair::block::Counters, repair::order::Counters) {
        (self.counters, self.assembler.counters(), self.order.counters())
    }

    /// A datagram came that may have come another way than packets do.
    pub(crate) fn handle_stray(&mut self, index: Index, counter: u64) {
        if !self.is_newest(index) {
            return;
        }
        let sequence = self.place(index, counter);
        self.observer.handle_stray(sequence);
    }

    /// A datagram's place in all that the peer sent, and whether ones before it are missing.
    fn sequence(&mut self, index: Index, counter: u64, now_us: u64) -> u64 {
        let sequence = self.place(index, counter);
        let is_gap = sequence > self.highest + 1 && sequence - self.highest < 1_000;
        self.highest = self.highest.max(sequence);
        if is_gap && self.protected_us.is_none_or(|at_us| at_us + KEEP_US < now_us) {
            self.hasten(now_us);
        }
        sequence
    }

    fn open(
        &mut self,
        protected: &Protected<'_>,
        start: usize,
        judge: &mut impl Judge,
        now_us: u64,
    ) {
        self.protected_us = Some(now_us);
        self.harvest.count(true);
        let shape = Shape { data: 0, repair: 1 };
        let Protected { block, index, inner, .. } = *protected;
        if frame::is_frame(inner) {
            self.ordered_us = self.protected_us;
        }
        match self.assembler.handle_data(block, shape, index, inner, now_us) {
            Arrival::Deliver => {
                self.take(inner, Origin::Lent(start + Protected::FIXED_LEN), judge, now_us);
            }
            Arrival::Late => self.counters.note(|counters| &mut counters.late),
            Arrival::Inconsistent => self.counters.note(|counters| &mut counters.inconsistent),
            Arrival::Duplicate | Arrival::Kept => {}
        }
    }

    fn take_rebuilt(&mut self, judge: &mut impl Judge, now_us: u64) {
        let mut bytes = [0; CHUNK_LEN_MAX];
        while let Some(rebuilt) = self.assembler.poll_rebuilt() {
            let len = rebuilt.bytes.len();
            bytes[..len].copy_from_slice(rebuilt.bytes);
            self.take(&bytes[..len], Origin::Rebuilt, judge, now_us);
        }
    }

    /// Takes what was protected: a packet or a frame.
    fn take(&mut self, plain: &[u8], origin: Origin, judge: &mut impl Judge, now_us: u64) {
        if !frame::is_frame(plain) {
            return self.take_packet(plain, None, origin, judge, now_us);
        }
        match frame::parse(plain) {
            Ok(frame) => self.take_frame(&frame, origin, judge, now_us),
            Err(_) => self.refuse(),
        }
    }

    fn take_frame(
        &mut self,
        frame: &Frame<'_>,
        origin: Origin,
        judge: &mut impl Judge,
        now_us: u64,
    ) {
        match *frame {
            Frame::Head(ref head) => self.take_head(head, judge, now_us),
            Frame::Chunk(ref chunk) => {
                self.take_chunk(chunk, origin.behind(Chunk::FIXED_LEN), judge, now_us);
            }
            Frame::Ordered(ref ordered) => self.take_ordered(ordered, origin, judge, now_us),
            Frame::Bundle(ref bundle) => self.take_bundle(bundle, origin, judge, now_us),
            Frame::Squeezed(ref squeezed) => self.take_squeezed(squeezed, origin, judge, now_us),
            _ => self.refuse(),
        }
    }

    /// What is in a block was judged to be none itself, so this calls itself no deeper.
    fn take_squeezed(
        &mut self,
        squeezed: &Squeezed<'_>,
        origin: Origin,
        judge: &mut impl Judge,
        now_us: u64,
    ) {
        let mut memory = [0; Squeezed::OPENED_LEN_MAX];
        match compression::open(squeezed, &mut memory) {
            Some(plain) => {
                self.counters.opened += 1;
                let origin = Origin::Opened { rebuilt: origin.is_rebuilt() };
                self.take(plain, origin, judge, now_us);
            }
            None => {
                self.counters.note(|counters| &mut counters.unopened);
            }
        }
    }

    fn take_ordered(
        &mut self,
        ordered: &Ordered<'_>,
        origin: Origin,
        judge: &mut impl Judge,
        now_us: u64,
    ) {
        let Ordered { tag, number, packet } = *ordered;
        let origin = origin.behind(Ordered::FIXED_LEN);
        self.take_packet(packet, Some((tag, number)), origin, judge, now_us);
    }

    /// Each packet of a bundle is judged by itself (threat BC-04).
    fn take_bundle(
        &mut self,
        bundle: &Bundle<'_>,
        origin: Origin,
        judge: &mut impl Judge,
        now_us: u64,
    ) {
        for (at, entry) in bundle.entries() {
            if !judge.has_share() {
                self.counters.note(|counters| &mut counters.crowded);
                continue;
            }
            let origin = origin.behind(at);
            match frame::parse(entry) {
                Ok(Frame::Ordered(ref ordered)) => {
                    self.take_ordered(ordered, origin, judge, now_us);
                }
                _ => self.take_packet(entry, None, origin, judge, now_us),
            }
        }
    }

    fn take_packet(
        &mut self,
        bytes: &[u8],
        order: Option<(u8, u32)>,
        origin: Origin,
        judge: &mut impl Judge,
        now_us: u64,
    ) {
        self.counters.taken += 1;
        let view = packet::parse(bytes);
        let Some(view) = view.ok().filter(|view| judge.admits(view.bytes())) else {
            self.counters.refused += 1;
            return self.give_up(order, now_us);
        };
        let ecn = heeded(&view, order.is_some());
        if !judge.rewrites() {
            return self.put(None, view.bytes(), order, ecn, origin, now_us);
        }
        let Some(kept) = self.pool.keep(view.bytes()) else {
            self.counters.no_room += 1;
            return self.give_up(order, now_us);
        };
        let origin = Origin::Waited { kept, rebuilt: origin.is_rebuilt() };
        if !judge.rewrite(self.pool.bytes_mut(kept)) {
            self.counters.untranslated += 1;
            self.drop_waited(origin);
            return self.give_up(order, now_us);
        }
        self.put(None, &[], order, ecn, origin, now_us);
    }

    /// Gives a piece its place in its flow, or makes it ready; unless its flow is to see the
    /// congestion that it met, and can be told by its loss alone.
    fn put(
        &mut self,
        chunk: Option<Part>,
        bytes: &[u8],
        order: Option<(u8, u32)>,
        ecn: Option<Ecn>,
        origin: Origin,
        now_us: u64,
    ) {
        let congested = ecn.is_some()
            && origin.is_rebuilt()
            && self.codel.is_due(self.observer.queued_us(now_us), now_us);
        if congested && ecn == Some(Ecn::NotEct) {
            self.counters.congestion += 1;
            self.drop_waited(origin);
            return self.give_up(order, now_us);
        }
        let ahead = order.is_some_and(|(tag, number)| self.order.is_ahead(tag, number));
        if ahead {
            self.order.set_wait_us(self.wait_us(now_us));
        }
        let len = origin.len(bytes);
        let at = match origin {
            Origin::Lent(start) if !ahead && self.ready.is_empty() => At::Lent(start..start + len),
            Origin::Waited { kept, .. } => At::Kept(kept),
            Origin::Lent(_) | Origin::Rebuilt | Origin::Opened { .. } => {
                match self.pool.keep(bytes) {
                    Some(kept) => At::Kept(kept),
                    None => {
                        self.counters.no_room += 1;
                        return self.give_up(order, now_us);
                    }
                }
            }
        };
        self.counters.rebuilt += u64::from(origin.is_rebuilt());
        let piece = Piece { chunk, marked: congested, at };
        match order {
            Some((tag, number)) => {
                self.order.handle_piece(tag, number, Some(piece), len, now_us);
            }
            None => self.ready.push_back(piece),
        }
    }

    /// How long a piece may wait for an older one: as long as such a one was ever late, or, where
    /// repair is under way, as long as is allowed. A block fills for 24 ms, its repair
    /// chunks may be late themselves, and to give up too early costs a flow more than to wait in
    /// vain.
    fn wait_us(&self, now_us: u64) -> u64 {
        if self
            .ordered_us
            .is_some_and(|at_us| at_us + self.tuning.repair.waiting.order_us >= now_us)
        {
            return u64::MAX;
        }
        self.late_us()
    }

    /// How late a piece may come behind younger ones.
    fn late_us(&self) -> u64 {
        let late_us = u64::from(self.observer.reorder_us());
        late_us + late_us / self.tuning.late_part
    }

    /// What is at hand is nothing that a peer sends.
    fn refuse(&mut self) {
        self.counters.note(|counters| &mut counters.refused);
    }

    /// Pieces that were taken and wait: for their head, for their order, for room.
    pub(crate) fn waiting(&self) -> usize {
        let ordered = self.order.pieces().filter(|piece| piece.is_some()).count();
        self.orphans.len() + ordered + self.ready.len()
    }

    /// Steps so far that what came took, from entry to entry of the tables here.
    pub(crate) fn steps(&self) -> u64 {
        self.order.steps() + self.assembler.steps() + self.orphans.steps()
    }

    /// Lets nobody wait for what no block can give back any more.
    fn give_up_settled(&mut self, now_us: u64) {
        if !self.observer.knows_reorder() {
            return;
        }
        let late_us = self.late_us();
        // A block fills, and its repair leaves within some more: then it is out.
        let waiting = &self.tuning.repair.waiting;
        let repaired_us = waiting.ordered_us + waiting.leave_us;
        let settled_us = self.assembler.settled_us(repaired_us + late_us, now_us);
        // A gap's block may be known a little later than the piece behind it: blocks take turns.
        let settled_us = settled_us.saturating_sub(waiting.pause_us);
        self.order.handle_settled(settled_us, late_us, now_us);
    }

    /// Lets nobody wait for a piece that will not be passed on.
    fn give_up(&mut self, order: Option<(u8, u32)>, now_us: u64) {
        if let Some((tag, number)) = order {
            self.order.handle_piece(tag, number, None, 0, now_us);
        }
    }

    fn drop_waited(&mut self, origin: Origin) {
        if let Origin::Waited { kept, .. } = origin {
            self.pool.release(kept);
        }
    }

    /// Hands a piece to the machine.
    fn pass(&mut self, piece: Piece, inbox: &mut Inbox, table: Option<&Table>) {
        let Piece { chunk, marked, at } = piece;
        let place = match at {
            At::Lent(range) => Place::Lent(range),
            At::Kept(kept) => {
                let place = inbox.keep(self.pool.bytes(kept));
                self.pool.release(kept);
                place
            }
        };
        if let Some(Part { number, serial, index }) = chunk {
            let open = self.unit(number).filter(|open| open.serial == serial);
            let Some(unit) = open.and_then(|open| open.unit.as_ref()) else {
                self.counters.headless += 1;
                return;
            };
            let index = usize::from(index);
            inbox.push_chunk((self.peer, serial), (unit, table), index, marked, place);
        } else {
            inbox.push_packet(place, marked);
        }
        self.counters.passed += 1;
        self.counters.marked += u64::from(marked);
    }
}

mod reports;
mod sessions;
#[cfg(test)]
mod tests;
mod units;

/// What a packet says about congestion, if its flow heeds that: TCP does, who keeps an order, and
/// whoever says that it can be marked. Whether others would heed a loss nobody knows.
fn heeded(view: &Packet<'_>, is_ordered: bool) -> Option<Ecn> {
    let is_heeded = is_ordered || view.protocol() == protocol::TCP || view.ecn() != Ecn::NotEct;
    is_heeded.then_some(view.ecn())
}
