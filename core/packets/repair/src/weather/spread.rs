//! Neighbours in different blocks, so that a burst of losses costs each block a little.
//!
//! Data chunks leave in their order and at once; nothing is held back. Chunk after chunk is dealt
//! to [`Spread::depth`] lanes in turns, a lane is a block that fills, and when it has
//! [`Spending::lane_chunks`] or its time is over, its repair chunks follow, as far from each other
//! as its data chunks were. What grows is the time until a repair: the sender bounds it by
//! [`Waiting::ordered_us`], and by choosing the depth ([`Control::depth`]) for the rate at which
//! chunks come.
//!
//! With one lane, the usual case, that is simply a block that fills as chunks come: of one
//! superpacket or of several, of one flow or of many. Where they come so slowly that waiting would
//! bring none together, a block is closed after [`Waiting::pause_us`]: one packet's repair is
//! its copy, two packets' their exclusive or; the code is the same. What a block of few chunks
//! ([`Spending::few`]) may cost is an allowance that every chunk adds a half to, so the whole stays
//! within 1.5 (threat BC-09).

use crate::bounds::CAP;
use crate::bounds::CHUNK_LEN_MAX;
pub use crate::bounds::{DEPTH_MAX, LANE_CHUNKS};
use crate::code::block::{self, Place, Shape};
use crate::tuning::{Spending, Tuning, Waiting};
use crate::weather::control::Control;
use crate::weather::table::Upper;

const CODED_LEN: usize = LANE_CHUNKS / CAP * (CHUNK_LEN_MAX + 2);

/// How long a chunk can be without its repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Data of TCP: the rest of its flow waits for it, as long as a block fills.
    Ordered,
    /// What answers or opens a flow: no longer than those who wait for an answer.
    #[default]
    Answer,
    /// What is no TCP: until it has company in its block, for that protects it better.
    Company,
}

impl Wait {
    /// What both can do in one block: data of a flow waits for as long as it fills, come what may.
    fn shared(self, other: Self) -> Self {
        match (self, other) {
            (Self::Ordered, _) | (_, Self::Ordered) => Self::Ordered,
            (Self::Company, Self::Company) => Self::Company,
            _ => Self::Answer,
        }
    }
}

/// How long a block fills that has nothing of TCP. For the price of half a chunk for each, one in
/// two can have a copy, two can share one, and eight have four, of which each next protects far
/// better: so they wait for each other where that takes no longer than [`Waiting::hold_us`], two of
/// them up to [`Waiting::pair_us`], and where they are alone they are copied at once. More than
/// [`Spending::few`] wait for as long as two where their repair would else be
/// [`Spending::dear`], for the more there are, the less each pays.
fn company_us(control: &Control, tuning: &Tuning) -> u64 {
    let Waiting { hold_us, pause_us, pair_us: pair_us_max, pair_gaps, .. } = tuning.waiting;
    let spending = &tuning.spending;
    let rate = control.rate();
    let pair_us = pair_gaps * 1e6 / rate.max(1.0);
    let come = |us: u64| (rate * us as f64 / 1e6) as usize;
    match pair_us {
        _ if come(pair_us_max) > spending.few && is_dear(control, come(hold_us), spending) => {
            pair_us_max
        }
        _ if pair_us <= hold_us as f64 => hold_us,
        _ if pair_us <= pair_us_max as f64 => pair_us as u64,
        _ => pause_us,
    }
}

/// Whether repair of a block of so many costs more than [`Spending::dear`] for each.
fn is_dear(control: &Control, chunks: usize, spending: &Spending) -> bool {
    let repair = if chunks <= spending.few {
        control.few_chunks(Upper::Other, chunks.max(1))
    } else {
        control.repair_chunks(Upper::Other, chunks.min(LANE_CHUNKS))
    };
    repair as f64 > chunks as f64 * spending.dear
}

/// A repair chunk to be sent.
#[derive(Debug)]
pub struct Repair<'a> {
    /// Its block.
    pub block: u32,
    /// The block's shape, now known.
    pub shape: Shape,
    /// Its index.
    pub index: u8,
    /// The code of the lengths, and the chunk.
    pub coded: ([u8; 2], &'a [u8]),
}

#[derive(Debug, Default)]
struct Lane {
    /// Copies, [`CHUNK_LEN_MAX`] bytes each.
    copies: Vec<u8>,
    /// Of each copy, its length; as many as there are chunks.
    lens: Vec<u16>,
    block: u32,
    opened_us: u64,
    /// How many chunks fill it.
    full: usize,
    /// When its newest chunk came.
    newest_us: u64,
    /// What its chunks are of, and what they wait for.
    upper: Upper,
    wait: Wait,
    closed: Closed,
}

/// The block that a lane closed last.
#[derive(Debug, Default)]
struct Closed {
    block: u32,
    shape: Shape,
    /// Its repair chunks, their length, and how many are out.
    coded: Vec<u8>,
    len: usize,
    sent: u8,
    /// The next one is due when so many chunks were dealt, or at this time.
    due_dealt: u64,
    due_us: u64,
}

/// The lanes of one path.
#[derive(Debug)]
pub struct Spread {
    tuning: &'static Tuning,
    lanes: Vec<Lane>,
    depth: usize,
    turn: usize,
    /// Chunks dealt so far.
    dealt: u64,
    /// Whose repair chunk is next.
    repair_turn: usize,
    hold: Hold,
    saved: u32,
    saved_max: u32,
}

/// How long blocks fill of data of TCP, of answers, and of what is no TCP, and how long a pause
/// ends those of TCP.
#[derive(Clone, Copy, Debug)]
struct Hold {
    ordered_us: u64,
    answer_us: u64,
    company_us: u64,
    pause_us: u64,
}

impl Spread {
    /// No lanes yet.
    #[must_use]
    pub fn new(tuning: &'static Tuning) -> Self {
        let hold_us = tuning.waiting.hold_us;
        Self {
            tuning,
            lanes: Vec::new(),
            depth: 1,
            turn: 0,
            dealt: 0,
            repair_turn: 0,
            hold: Hold {
                ordered_us: hold_us,
                answer_us: hold_us,
                company_us: hold_us,
                pause_us: tuning.waiting.pause_us,
            },
            saved: tuning.spending.saved_first,
            saved_max: tuning.spending.saved_max,
        }
    }

    /// Lanes in use.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Deals as `control` says from now on; blocks in lanes that are no longer used are closed when
    /// their time is over. Call after each report.
    pub fn heed(&mut self, control: &Control) {
        self.depth = control.depth().clamp(1, DEPTH_MAX);
        let Tuning { waiting, spending, .. } = self.tuning;
        let hold_us = waiting.hold_us;
        let together = control.rate() * hold_us as f64 / 1e6;
        let answer_us = if together < spending.few as f64 { waiting.pause_us } else { hold_us };
        let company_us = company_us(control, self.tuning);
        let late_us = u64::from(control.estimate().reorder_us);
        let left_us = control.limits().wait_us.saturating_sub(late_us + waiting.leave_us);
        let pause_us = if control.estimate().known { left_us } else { 0 };
        let pause_us = pause_us.clamp(waiting.pause_us, waiting.flight_us);
        let ordered_us = control.ordered_us();
        self.saved_max = spending.saved_max.max(control.limits().price());
        self.hold = Hold { ordered_us, answer_us, company_us, pause_us };
    }

    /// A data chunk is about to be sent. Returns its place, or nothing if its lane waits for
    /// [`Spread::poll_repair`], or its length is not possible. `next_block` is the number
    /// of the link's next block, and is moved on when one is opened.
    pub fn handle_chunk(
        &mut self,
        chunk: &[u8],
        (upper, wait): (Upper, Wait),
        next_block: &mut u32,
        now_us: u64,
    ) -> Option<Place> {
        if chunk.is_empty() || chunk.len() > CHUNK_LEN_MAX {
            return None;
        }
        self.turn = (self.turn + 1) % self.depth;
        if self.lanes.len() <= self.turn {
            self.lanes.resize_with(self.turn + 1, Lane::default);
        }
        let lane = &mut self.lanes[self.turn];
        if lane.is_full() {
            return None;
        }
        self.dealt += 1;
        self.saved = (self.saved + 1).min(self.saved_max);
        if lane.lens.is_empty() {
            lane.block = *next_block;
            lane.opened_us = now_us;
            lane.upper = upper;
            lane.wait = wait;
            lane.full = self.tuning.spending.lane_chunks(self.depth);
            *next_block = next_block.wrapping_add(1);
            lane.copies.resize(LANE_CHUNKS * CHUNK_LEN_MAX, 0);
        }
        lane.upper = lane.upper.shared(upper);
        lane.wait = lane.wait.shared(wait);
        lane.newest_us = now_us;
        let index = lane.lens.len();
        lane.copies[index * CHUNK_LEN_MAX..][..chunk.len()].copy_from_slice(chunk);
        lane.lens.push(chunk.len() as u16);
        let shape = Shape { data: 0, repair: 1 };
        Some(Place { block: lane.block, shape, index: index as u8 })
    }

    /// The next repair chunk that is due, of lanes that are full or whose time is over. Call after
    /// each chunk and when [`Spread::poll_timeout`] says so, until there are no more.
    pub fn poll_repair(&mut self, control: &Control, now_us: u64) -> Option<Repair<'_>> {
        let dealt = self.dealt;
        let depth = self.depth as u64;
        let hold = self.hold;
        let Tuning { waiting, spending, .. } = self.tuning;
        for lane in &mut self.lanes {
            if lane.due_us(hold, spending.few).is_none_or(|due_us| due_us > now_us) {
                continue;
            }
            if lane.closed.is_waiting() {
                // The block before first: a lone packet closes its own soon.
                lane.closed.due_us = now_us;
            } else {
                lane.close(control, spending.few, &mut self.saved);
                lane.closed.due_dealt = dealt + depth;
                lane.closed.due_us = now_us + waiting.pause_us;
            }
        }
        let count = self.lanes.len();
        let is_due = |&at: &usize| self.lanes[at].closed.is_due(dealt, now_us);
        let at = (0..count).map(|n| (self.repair_turn + n) % count).find(is_due)?;
        self.repair_turn = at + 1;
        self.lanes[at].closed.due_dealt = dealt + depth;
        self.lanes[at].closed.poll_repair()
    }

    /// Gives memory back when nothing waits: for a path that is idle.
    pub fn trim(&mut self) {
        if self.poll_timeout().is_none() {
            self.lanes = Vec::new();
            self.turn = 0;
        }
    }

    /// When to call [`Spread::poll_repair`] next, if no chunk comes before: zero is at once.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let waiting = self.lanes.iter().filter(|lane| lane.closed.is_waiting());
        let closed = waiting.map(|lane| lane.closed.due_us);
        let due =
            self.lanes.iter().filter_map(|lane| lane.due_us(self.hold, self.tuning.spending.few));
        due.chain(closed).min()
    }
}

impl Lane {
    /// Makes the repair chunks; those of the block before must be out.
    fn close(&mut self, control: &Control, few: usize, saved: &mut u32) {
        let count = self.lens.len();
        let repair = if count <= few {
            let most = (*saved / control.limits().price()) as usize;
            control.few_chunks(self.upper, count).min(most)
        } else {
            // A repair chunk is as long as the longest: half of the bytes, and not of the chunks.
            let bytes: usize = self.lens.iter().map(|&len| usize::from(len)).sum();
            let longest = usize::from(self.lens.iter().max().copied().unwrap_or(1)).max(1);
            let most = control.limits().most_of_bytes(bytes, longest);
            control.repair_chunks(self.upper, count).min(most)
        };
        *saved = saved.saturating_sub((repair as u32).saturating_mul(control.limits().price()));
        let mut data: [&[u8]; LANE_CHUNKS] = [&[]; LANE_CHUNKS];
        let copies = self.copies.chunks_exact(CHUNK_LEN_MAX);
        for ((slice, copy), len) in data.iter_mut().zip(copies).zip(&self.lens) {
            *slice = &copy[..usize::from(*len)];
        }
        let closed = &mut self.closed;
        closed.coded.resize(CODED_LEN, 0);
        let encoded = block::encode(&data[..count], repair, &mut closed.coded);
        // Lengths were checked when the chunks came, so this is always possible.
        let repair = if encoded.is_ok() { repair as u8 } else { 0 };
        closed.block = self.block;
        closed.sent = 0;
        closed.shape = Shape { data: count as u8, repair };
        closed.len = usize::from(self.lens.iter().max().copied().unwrap_or(0));
        self.lens.clear();
    }

    fn is_full(&self) -> bool {
        !self.lens.is_empty() && self.lens.len() == self.full
    }

    fn due_us(&self, hold: Hold, few: usize) -> Option<u64> {
        let hold_us = match self.wait {
            Wait::Ordered => hold.ordered_us,
            Wait::Company => hold.company_us,
            Wait::Answer => hold.answer_us,
        };
        let filled_us = self.opened_us.saturating_add(hold_us);
        match self.lens.len() {
            0 => None,
            _ if self.is_full() => Some(0),
            count if count <= few => Some(filled_us),
            // Nobody holds back what has no order, and larger blocks cost less.
            _ if self.wait == Wait::Company => Some(filled_us),
            _ => Some(filled_us.min(self.newest_us.saturating_add(hold.pause_us))),
        }
    }
}

impl Closed {
    /// Whether some of its repair chunks are not out.
    fn is_waiting(&self) -> bool {
        self.sent < self.shape.repair
    }

    fn is_due(&self, dealt: u64, now_us: u64) -> bool {
        self.is_waiting() && (dealt >= self.due_dealt || now_us >= self.due_us)
    }

    fn poll_repair(&mut self) -> Option<Repair<'_>> {
        let index = usize::from(self.sent);
        let count = usize::from(self.shape.repair);
        let (lengths, chunks) = self.coded.split_at_checked(2 * count)?;
        self.sent += 1;
        Some(Repair {
            block: self.block,
            shape: self.shape,
            index: index as u8,
            coded: (*lengths.as_chunks::<2>().0.get(index)?, chunks.chunks(self.len).nth(index)?),
        })
    }
}

#[cfg(test)]
mod tests;
