//! What waits for the line, where the user said how fast that is: queues by class, and turns.
//!
//! A line's own queue is in the modem, long, and the same for all. Where this machine sends no
//! faster than the line is, that queue stays empty and packets wait here, where a rule can tell
//! them apart: what steers a robot goes before what it tells, and that before all else.
//!
//! The class of a packet is that of its DSCP (RFC 4594). Of the classes that have something the
//! highest goes first, but what waited for [`WAIT_MAX`] goes before everything: so a class that
//! fills the line slows the others and does not stop them. A queue that stands is told of
//! congestion as CoDel does (RFC 8289), by a mark or by a loss.
//!
//! Cells of circuits wait elsewhere, by circuit, and have turns by bytes with the lowest class.

use std::collections::VecDeque;
use std::time::Duration;

use link::Codel;
use noise::{Instant, PeerId};
use wire::packet::{self, Ecn};

/// Bytes that wait in one class, at most.
const CLASS_BYTES_MAX: usize = 256 << 10;
/// What waited for so long goes first, of whatever class: CoDel's interval.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// A queue in which packets wait for longer does not go away (RFC 8289 section 4.2).
const TARGET: Duration = Duration::from_millis(5);
/// How much may be sent at once after a pause: what a loop that is woken late has to catch up.
const LATE: Duration = Duration::from_millis(1);
/// Headers of Ethernet, IP and UDP around what is sealed.
const OUTER_LEN: u64 = 14 + 28;

/// Classes, the highest first.
const CLASSES: usize = 3;
/// Memory of packets that have gone which is kept for others, at most; each is of one packet.
const SPARE_MAX: usize = 256;
/// What one of cells and the lowest class is ahead of the other, at most: a pause saves nothing up.
const LEAD_MAX: i64 = 3_000;

/// Bytes a second that a line carries; none where nobody said.
#[derive(Debug, Default)]
pub(crate) struct Shaper {
    rate_bytes_s: u64,
    /// When the line has sent all that it was given.
    free_at: Instant,
    /// The shell took no more: not before then is it tried again.
    full_until: Instant,
    /// Bytes that cells are ahead of the lowest class.
    lead: i64,
    classes: [Class; CLASSES],
    /// Memory of packets that have gone.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Class {
    queue: VecDeque<Held>,
    bytes: usize,
    codel: Codel,
    /// Since when packets wait for longer than [`TARGET`].
    standing_since: Option<Instant>,
}

/// One packet that waits.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) peer: PeerId,
    pub(crate) squeeze: bool,
    pub(crate) bytes: Vec<u8>,
    since: Instant,
}

/// The class of a traffic class octet: what steers, what is told, all else.
fn class(octet: u8) -> usize {
    match octet >> 2 {
        _ if packet::steers(octet) => 0,
        // CS2 to CS4, and AF21 to AF43.
        16..=39 => 1,
        _ => 2,
    }
}

impl Shaper {
    /// Sets how fast the line is; 0 for no limit. What waits goes on waiting for its turn.
    pub(crate) fn set_rate(&mut self, bytes_s: u64) {
        self.rate_bytes_s = bytes_s;
    }

    /// Whether packets have to wait for turns, or some still do.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.rate_bytes_s > 0 || self.held() > 0
    }

    /// Packets that wait.
    pub(crate) fn held(&self) -> usize {
        self.classes.iter().map(|class| class.queue.len()).sum()
    }

    /// Keeps a packet of this traffic class and of `len` bytes, written by `write`; whether there
    /// was room.
    pub(crate) fn push(
        &mut self,
        peer: PeerId,
        squeeze: bool,
        (octet, len): (u8, usize),
        now: Instant,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.resize(len, 0);
        write(&mut bytes);
        let class = &mut self.classes[class(octet)];
        if class.bytes + len > CLASS_BYTES_MAX {
            self.keep(bytes);
            return false;
        }
        class.bytes += len;
        class.queue.push_back(Held { peer, squeeze, bytes, since: now });
        true
    }

    /// The next packet whose turn it is, if the line is free. `dropped` counts those that were
    /// taken out of a standing queue instead.
    pub(crate) fn pop(&mut self, now: Instant, dropped: &mut u64) -> Option<Held> {
        if !self.is_free(now) {
            return None;
        }
        loop {
            let place = self.turn(now)?;
            let class = &mut self.classes[place];
            let mut held = class.queue.pop_front()?;
            class.bytes -= held.bytes.len();
            if place == CLASSES - 1 {
                self.lead = (self.lead - held.bytes.len() as i64).max(-LEAD_MAX);
            }
            let waited = now.since(held.since);
            if waited < TARGET || class.queue.is_empty() {
                class.standing_since = None;
            }
            let is_late = waited >= TARGET;
            let since = is_late.then(|| *class.standing_since.get_or_insert(now));
            let standing_us = since.map_or(0, |since| now.since(since).as_micros() as u64);
            if !class.codel.is_due(standing_us, now.0 / 1000) {
                return Some(held);
            }
            let is_capable =
                matches!(packet::ecn(&held.bytes), Ok(Ecn::Ect0 | Ecn::Ect1 | Ecn::Ce));
            if is_capable && packet::set_ecn(&mut held.bytes, Ecn::Ce).is_ok() {
                return Some(held);
            }
            *dropped += 1;
            self.keep(held.bytes);
        }
    }

    /// Whether the line takes something now.
    pub(crate) fn is_free(&self, now: Instant) -> bool {
        now >= self.full_until && (self.rate_bytes_s == 0 || now >= self.free_at)
    }

    /// Whether a cell of circuits goes before every packet that waits.
    pub(crate) fn yields(&self, now: Instant) -> bool {
        self.turn(now).is_none_or(|place| place == CLASSES - 1 && self.lead <= 0)
    }

    /// A cell was given to the line.
    pub(crate) fn note_cell(&mut self, sealed_len: u64, now: Instant) {
        self.lead = (self.lead + sealed_len as i64).min(LEAD_MAX);
        self.note_sent(sealed_len, 1, now);
    }

    /// The shell took no more.
    pub(crate) fn note_full(&mut self, now: Instant) {
        self.full_until = now.after(LATE);
    }

    /// The class whose turn it is: the oldest packet of those that waited too long, else the
    /// highest.
    fn turn(&self, now: Instant) -> Option<usize> {
        let fronts = || {
            self.classes
                .iter()
                .enumerate()
                .filter_map(|(at, class)| class.queue.front().map(|held| (held.since, at)))
        };
        let oldest = fronts().min().filter(|(since, _)| now.since(*since) >= WAIT_MAX);
        oldest.map(|(_, at)| at).or_else(|| fronts().map(|(_, at)| at).next())
    }

    /// Says what was given to the line: bytes as they were sealed, in so many datagrams.
    pub(crate) fn note_sent(&mut self, bytes: u64, datagrams: u64, now: Instant) {
        if self.rate_bytes_s == 0 || bytes == 0 {
            return;
        }
        let all = bytes + datagrams * OUTER_LEN;
        let begin = self.free_at.max(Instant(now.0.saturating_sub(LATE.as_nanos() as u64)));
        self.free_at = begin.after(Duration::from_nanos(all * 1_000_000_000 / self.rate_bytes_s));
    }

    /// Gives memory back.
    pub(crate) fn put_back(&mut self, held: Held) {
        self.keep(held.bytes);
    }

    fn keep(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(bytes);
        }
    }

    /// Drops what is for a peer that is gone; how many packets that were.
    pub(crate) fn forget(&mut self, peer: PeerId) -> u64 {
        let mut dropped = 0;
        for class in &mut self.classes {
            let before = class.queue.len();
            class.queue.retain(|held| held.peer != peer);
            class.bytes = class.queue.iter().map(|held| held.bytes.len()).sum();
            dropped += (before - class.queue.len()) as u64;
        }
        dropped
    }

    /// When the next packet or cell may go.
    pub(crate) fn next_at(&self) -> Instant {
        if self.rate_bytes_s == 0 { self.full_until } else { self.free_at.max(self.full_until) }
    }
}

#[cfg(test)]
mod tests;
