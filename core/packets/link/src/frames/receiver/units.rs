//! Superpackets in parts: their heads, and chunks that may come before them.

use wire::frame::{Chunk, Head};
use wire::packet;
use wire::unit::Unit;

use super::{ORPHANS_MAX, Receiver, UNIT_US, UNITS_MAX, heeded};
use crate::frames::piece::{Judge, Open, Origin, Orphan, Part};

impl Receiver {
    pub(super) fn take_head(&mut self, head: &Head<'_>, judge: &mut impl Judge, now_us: u64) {
        if self.units.is_empty() {
            self.units.resize_with(UNITS_MAX, || None);
        }
        let place = &mut self.units[usize::from(head.unit) % UNITS_MAX];
        let ordinal = self.ordinal;
        let is_copy = |open: &Open| {
            (open.number, open.sent_us, open.ordinal) == (head.unit, head.sent_us, ordinal)
        };
        if place.as_ref().is_some_and(is_copy) {
            return;
        }
        let mut unit = Unit::new(head).ok().filter(|_| judge.admits(head.header));
        let is_untranslated = unit.is_some() && judge.rewrites() && !rewritable(head.header, judge);
        unit = unit.filter(|_| !is_untranslated);
        let view = packet::parse_quoted(head.header).ok();
        self.serial = self.serial.wrapping_add(1);
        *place = Some(Open {
            number: head.unit,
            serial: self.serial,
            since_us: now_us,
            rules: judge.rules(),
            ordinal,
            sent_us: head.sent_us,
            unit,
            is_untranslated,
            order: head.ordered.then_some((head.tag, head.number)),
            ecn: view.as_ref().and_then(|view| heeded(view, head.ordered)),
        });
        let end = self.orphans.end();
        while let Some(orphan) = self.orphans.take(ordinal, head.unit, end) {
            let Orphan { unit, index, kept, rebuilt, .. } = orphan;
            let chunk = Chunk { unit, index, payload: &[] };
            self.take_chunk(&chunk, Origin::Waited { kept, rebuilt }, judge, now_us);
        }
    }

    /// The unit that has this number now.
    pub(super) fn unit(&self, number: u16) -> Option<&Open> {
        let open = self.units.get(usize::from(number) % UNITS_MAX)?.as_ref();
        open.filter(|open| open.number == number)
    }

    pub(super) fn take_chunk(
        &mut self,
        chunk: &Chunk<'_>,
        origin: Origin,
        judge: &mut impl Judge,
        now_us: u64,
    ) {
        self.judge_again(chunk.unit, judge);
        self.counters.taken += u64::from(!matches!(origin, Origin::Waited { .. }));
        // A head was judged when it came, and is not heeded for ever.
        let is_heeded = |open: &&Open| {
            open.ordinal == self.ordinal && now_us < open.since_us.saturating_add(UNIT_US)
        };
        let open = self.unit(chunk.unit).filter(is_heeded);
        let Some(&Open { ref unit, is_untranslated, order, ecn, serial, .. }) = open else {
            return self.keep_orphan(chunk, origin, now_us);
        };
        let index = usize::from(chunk.index);
        let len = origin.len(chunk.payload);
        let order = order.map(|(tag, first)| (tag, first.wrapping_add(index as u32)));
        // Of an index that the unit does not have, the length is zero.
        if len == 0 || unit.as_ref().is_none_or(|unit| unit.chunk_len(index) != len) {
            match is_untranslated {
                true => self.counters.untranslated += 1,
                false => self.counters.refused += 1,
            }
            self.drop_waited(origin);
            return self.give_up(order, now_us);
        }
        let part = Part { number: chunk.unit, serial, index: chunk.index };
        self.put(Some(part), chunk.payload, order, ecn, origin, now_us);
    }

    /// Judges the head of a unit again, if the rules have changed since (threat PF-07).
    fn judge_again(&mut self, number: u16, judge: &mut impl Judge) {
        let rules = judge.rules();
        let place = self.units.get_mut(usize::from(number) % UNITS_MAX);
        if let Some(Some(open)) = place
            && open.rules != rules
        {
            open.rules = rules;
            open.unit = open.unit.filter(|unit| judge.admits(unit.header()));
            let is_rewritable = |unit: &Unit| !judge.rewrites() || rewritable(unit.header(), judge);
            open.is_untranslated = !open.unit.as_ref().is_none_or(is_rewritable);
            open.unit = open.unit.filter(|_| !open.is_untranslated);
        }
    }

    fn keep_orphan(&mut self, chunk: &Chunk<'_>, origin: Origin, now_us: u64) {
        if self.orphans.len() >= ORPHANS_MAX {
            self.drop_orphan();
        }
        let kept = match origin {
            Origin::Waited { kept, .. } => Some(kept),
            _ => self.pool.keep(chunk.payload),
        };
        let Some(kept) = kept else {
            self.counters.no_room += 1;
            return;
        };
        let unit = chunk.unit;
        let index = chunk.index;
        let rebuilt = origin.is_rebuilt();
        let orphan = Orphan { unit, ordinal: self.ordinal, index, kept, rebuilt };
        self.orphans.push(orphan, now_us);
    }

    /// The oldest one waits no more.
    pub(super) fn drop_orphan(&mut self) {
        if let Some(orphan) = self.orphans.take_oldest() {
            self.counters.headless += 1;
            self.pool.release(orphan.kept);
        }
    }
}

/// Whether the headers of a unit can be rewritten, which is done when its chunks are passed on.
fn rewritable(header: &[u8], judge: &mut impl Judge) -> bool {
    let mut copy = [0; Head::HEADER_LEN_MAX];
    let copy = &mut copy[..header.len()];
    copy.copy_from_slice(header);
    judge.rewrite(copy)
}
