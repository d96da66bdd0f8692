//! Blocks at both ends: repair chunks from data chunks, and data chunks from what arrived.
//!
//! The data chunks of a block may differ in length. Their lengths are coded as the chunks are:
//! each repair chunk comes with two bytes, the same sum over the lengths, so a rebuilt chunk
//! knows where it ends and nothing else has to be sent.
//!
//! At the receiver a data chunk is passed on when it comes; a copy is kept only where the block has
//! repair chunks and is not complete. When any k of a block are there, the missing ones are
//! rebuilt at once, even if some of them are merely late: those are duplicates when they come.
//! A block is given up when it is older than the patience, when [`BLOCKS_MAX`] younger ones have
//! begun, or when memory runs out; then what comes late still passes, once. Every chunk is passed
//! on at most once (threat BC-08), and a peer can only fill what is its own (BC-06).

use std::collections::VecDeque;

use crate::bounds::{CHUNK_LEN_MAX, DATA_MAX, REPAIR_MAX};
use crate::code::budget::Budget;
use crate::code::erasure::{self, Refused};
use crate::code::store::{NONE, Store};
use known::Known;

/// Blocks remembered, open or done.
pub const BLOCKS_MAX: usize = 1_024;
/// Bytes of chunks kept for one peer: 1 Gbit/s for 33 ms, which is as long as flows wait.
pub const BYTES_MAX: usize = 4 << 20;
/// Longest time for which a block stays open (threat BC-06).
pub const PATIENCE_US: u64 = 250_000;
/// Memory is given back after a pause of so long.
pub const KEEP_US: u64 = 1_000_000;
/// A block so far from the newest starts a new count.
const JUMP: u32 = 1 << 16;

/// Repair chunks of a block, in memory that was lent.
#[derive(Debug)]
pub struct Encoded<'a> {
    lengths: &'a [u8],
    chunks: &'a [u8],
    len: usize,
}

impl Encoded<'_> {
    /// Each repair chunk with the code of the lengths that goes with it.
    pub fn chunks(&self) -> impl Iterator<Item = ([u8; 2], &[u8])> {
        let lengths = self.lengths.as_chunks::<2>().0;
        lengths.iter().copied().zip(self.chunks.chunks_exact(self.len))
    }
}

/// Makes `repair` repair chunks, each as long as the longest data chunk. `memory` must have
/// `repair * (CHUNK_LEN_MAX + 2)` bytes or more.
///
/// # Errors
/// Names what is wrong with the geometry.
pub fn encode<'a>(
    data: &[&[u8]],
    repair: usize,
    memory: &'a mut [u8],
) -> Result<Encoded<'a>, Refused> {
    let len = data.iter().map(|chunk| chunk.len()).max().unwrap_or(0);
    let Some((lengths, rest)) = memory.split_at_mut_checked(2 * repair) else {
        return Err(Refused::Memory(repair * (CHUNK_LEN_MAX + 2)));
    };
    let Some(chunks) = rest.get_mut(..repair * len) else {
        return Err(Refused::Memory(repair * (CHUNK_LEN_MAX + 2)));
    };
    erasure::encode(data, len, chunks)?;
    let mut lens = [[0; 2]; DATA_MAX];
    for (bytes, chunk) in lens.iter_mut().zip(data) {
        *bytes = (chunk.len() as u16).to_be_bytes();
    }
    let mut borrowed: [&[u8]; DATA_MAX] = [&[]; DATA_MAX];
    borrowed.iter_mut().zip(&lens).for_each(|(slice, bytes)| *slice = bytes);
    erasure::encode(&borrowed[..data.len()], 2, lengths)?;
    Ok(Encoded { lengths, chunks, len })
}

/// How many chunks a block has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Data chunks; zero where the sender does not know it yet. Repair chunks know it.
    pub data: u8,
    /// Repair chunks; zero for a block that nothing is kept of.
    pub repair: u8,
}

/// Where a data chunk stands that leaves before its block is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its block.
    pub block: u32,
    /// What is told of the block's shape: the number of its data chunks is not known yet.
    pub shape: Shape,
    /// Its index.
    pub index: u8,
}

/// What becomes of a chunk that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A data chunk to be passed on now.
    Deliver,
    /// A repair chunk, kept or used.
    Kept,
    /// It came before, was rebuilt already, or repairs nothing any more.
    Duplicate,
    /// Its block is forgotten.
    Late,
    /// It contradicts itself or its block (threat BC-07).
    Inconsistent,
}

/// A data chunk that did not arrive.
#[derive(Debug)]
pub struct Rebuilt<'a> {
    /// Its block.
    pub block: u32,
    /// Its index in the block.
    pub index: u8,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Chunks by what became of them. Every chunk that arrived is in one of the first five.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data chunks passed on.
    pub delivered: u64,
    /// Repair chunks kept or used.
    pub kept: u64,
    /// [`Arrival::Duplicate`].
    pub duplicate: u64,
    /// [`Arrival::Late`].
    pub late: u64,
    /// [`Arrival::Inconsistent`].
    pub inconsistent: u64,
    /// Data chunks rebuilt.
    pub rebuilt: u64,
    /// Data chunks missing for good when their block was given up.
    pub lost: u64,
    /// Blocks given up because memory ran out.
    pub evicted: u64,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    id: u32,
    shape: Shape,
    data: u64,
    repair: u32,
    /// Length of its repair chunks; zero when there is none yet.
    len: u16,
    /// Its chunks in the store.
    head: u16,
    open: bool,
    opened_us: u64,
    /// The count of blocks that it is of.
    epoch: u32,
}

/// The chunks of the last rebuilt block that were not polled yet.
#[derive(Debug, Default)]
struct Ready {
    block: u32,
    len: usize,
    missing: u64,
    at: usize,
    lens: [u16; REPAIR_MAX],
}

/// The receiving end of one peer's blocks. Drain [`Assembler::poll_rebuilt`] after each chunk.
#[derive(Debug)]
pub struct Assembler {
    /// By block number modulo [`BLOCKS_MAX`]; empty until there is one.
    blocks: Vec<Option<Block>>,
    /// Blocks in the order in which they were opened, some of them closed since.
    opened: VecDeque<u32>,
    /// How often the count began anew: blocks of one before are forgotten where they stand.
    epoch: u32,
    /// Nothing before the first block of this count.
    newest: Option<u32>,
    /// Which of the last [`BLOCKS_MAX`] numbers have a block.
    known: Known,
    /// All blocks before this one are settled.
    unsettled: u32,
    /// When the last one was opened.
    opened_us: u64,
    store: Store,
    work: Vec<u8>,
    ready: Ready,
    counters: Counters,
    steps: u64,
}

impl Assembler {
    /// Nothing received; keeps at most `bytes_max` bytes, and never more than [`BYTES_MAX`].
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self::sharing(bytes_max, &Budget::new(BYTES_MAX))
    }

    /// The same, where what is beyond [`crate::code::budget::OWN_BYTES`] is of `budget`.
    #[must_use]
    pub fn sharing(bytes_max: usize, budget: &Budget) -> Self {
        Self {
            blocks: Vec::new(),
            opened: VecDeque::new(),
            epoch: 0,
            newest: None,
            known: Known::default(),
            unsettled: 0,
            opened_us: 0,
            store: Store::new(bytes_max.min(BYTES_MAX), budget),
            work: Vec::new(),
            ready: Ready::default(),
            counters: Counters::default(),
            steps: 0,
        }
    }

    /// A data chunk came.
    pub fn handle_data(
        &mut self,
        block: u32,
        shape: Shape,
        index: u8,
        chunk: &[u8],
        now_us: u64,
    ) -> Arrival {
        let arrival = self.take_data(block, shape, index, chunk, now_us);
        self.count(arrival)
    }

    /// A repair chunk came, with the code of the lengths.
    pub fn handle_repair(
        &mut self,
        block: u32,
        shape: Shape,
        index: u8,
        (lengths, chunk): ([u8; 2], &[u8]),
        now_us: u64,
    ) -> Arrival {
        let arrival = self.take_repair(block, shape, index, (lengths, chunk), now_us);
        self.count(arrival)
    }

    /// Gives up what has been open for too long; gives memory back when nothing was open for
    /// [`KEEP_US`].
    pub fn handle_timeout(&mut self, now_us: u64) {
        while let Some(&id) = self.opened.front() {
            let open = self.block(id).filter(|block| block.open);
            if open.is_some_and(|block| now_us < block.opened_us + PATIENCE_US) {
                return;
            }
            self.steps += 1;
            self.opened.pop_front();
            self.give_up(id);
        }
        if now_us >= self.opened_us.saturating_add(KEEP_US) {
            self.store.trim();
            self.work = Vec::new();
            self.ready = Ready::default();
        }
    }

    /// The next data chunk that was rebuilt.
    pub fn poll_rebuilt(&mut self) -> Option<Rebuilt<'_>> {
        let ready = &mut self.ready;
        if ready.missing == 0 {
            return None;
        }
        let index = ready.missing.trailing_zeros() as u8;
        ready.missing &= ready.missing - 1;
        let len = usize::from(*ready.lens.get(ready.at)?);
        let bytes = self.work.get(ready.at * ready.len..)?.get(..len)?;
        ready.at += 1;
        Some(Rebuilt { block: ready.block, index, bytes })
    }

    /// When to call [`Assembler::handle_timeout`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let Some(&first) = self.opened.front() else {
            let holds = self.bytes_held() + self.work.len() > 0;
            return holds.then_some(self.opened_us + KEEP_US);
        };
        Some(self.block(first).map_or(0, |block| block.opened_us + PATIENCE_US))
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Steps so far from block to block, beside the one that each chunk takes to its own.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Bytes of memory held for chunks.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        self.store.bytes_held()
    }

    fn count(&mut self, arrival: Arrival) -> Arrival {
        let counters = &mut self.counters;
        *match arrival {
            Arrival::Deliver => &mut counters.delivered,
            Arrival::Kept => &mut counters.kept,
            Arrival::Duplicate => &mut counters.duplicate,
            Arrival::Late => &mut counters.late,
            Arrival::Inconsistent => &mut counters.inconsistent,
        } += 1;
        arrival
    }

    fn take_data(
        &mut self,
        id: u32,
        shape: Shape,
        index: u8,
        chunk: &[u8],
        now_us: u64,
    ) -> Arrival {
        let len_is_right = (1..=CHUNK_LEN_MAX).contains(&chunk.len());
        let most = if shape.data == 0 { DATA_MAX as u8 } else { shape.data };
        if !len_is_right || index >= most || !is_possible(shape) {
            return Arrival::Inconsistent;
        }
        if shape.repair == 0 {
            return Arrival::Deliver;
        }
        let Some(mut block) = self.open(id, shape, now_us) else { return Arrival::Late };
        if !block.agrees(shape) || (block.shape.data > 0 && index >= block.shape.data) {
            return Arrival::Inconsistent;
        }
        if block.data >> index & 1 == 1 {
            return Arrival::Duplicate;
        }
        block.learn(shape);
        block.data |= 1 << index;
        self.keep(block, chunk, index, [0; 2]);
        Arrival::Deliver
    }

    fn take_repair(
        &mut self,
        id: u32,
        shape: Shape,
        index: u8,
        (lengths, chunk): ([u8; 2], &[u8]),
        now_us: u64,
    ) -> Arrival {
        let len_is_right = (1..=CHUNK_LEN_MAX).contains(&chunk.len());
        if !len_is_right || shape.data == 0 || index >= shape.repair || !is_possible(shape) {
            return Arrival::Inconsistent;
        }
        let Some(mut block) = self.open(id, shape, now_us) else { return Arrival::Late };
        let beyond = block.data.checked_shr(u32::from(shape.data)).unwrap_or(0);
        let other_len = block.len != 0 && usize::from(block.len) != chunk.len();
        if !block.agrees(shape) || beyond != 0 || other_len {
            return Arrival::Inconsistent;
        }
        if !block.open || block.repair >> index & 1 == 1 {
            return Arrival::Duplicate;
        }
        block.learn(shape);
        block.repair |= 1 << index;
        block.len = chunk.len() as u16;
        self.keep(block, chunk, DATA_MAX as u8 + index, lengths);
        Arrival::Kept
    }

    fn block(&self, id: u32) -> Option<&Block> {
        let block = self.blocks.get(id as usize % BLOCKS_MAX)?.as_ref()?;
        (block.id == id && block.epoch == self.epoch).then_some(block)
    }

    /// The block with that number, opened if it is new; nothing if it is forgotten.
    fn open(&mut self, id: u32, shape: Shape, now_us: u64) -> Option<Block> {
        if self.blocks.is_empty() {
            self.blocks = vec![None; BLOCKS_MAX];
        }
        if let Some(block) = self.block(id) {
            return Some(*block);
        }
        let newest = self.newest.unwrap_or(id);
        let ahead = id.wrapping_sub(newest);
        let behind = newest.wrapping_sub(id);
        if ahead.min(behind) > JUMP {
            self.forget();
            self.newest = Some(id);
        } else if ahead <= behind {
            self.steps += self.known.clear(newest.wrapping_add(1), ahead);
            self.newest = Some(id);
        } else if behind >= BLOCKS_MAX as u32 {
            return None;
        }
        if let Some(old) = self.blocks[id as usize % BLOCKS_MAX].map(|block| block.id) {
            self.give_up(old);
        }
        while let Some(&id) = self.opened.front()
            && self.block(id).is_none_or(|block| !block.open)
        {
            self.steps += 1;
            self.opened.pop_front();
        }
        if self.opened.len() > 2 * BLOCKS_MAX {
            self.forget_closed();
        }
        let block = Block {
            id,
            shape,
            data: 0,
            repair: 0,
            len: 0,
            head: NONE,
            open: true,
            opened_us: now_us,
            epoch: self.epoch,
        };
        self.known.note(id);
        self.blocks[id as usize % BLOCKS_MAX] = Some(block);
        self.opened.push_back(id);
        self.opened_us = now_us;
        Some(block)
    }

    /// Keeps a chunk of `block`, unless the block is done; rebuilds what can be.
    fn keep(&mut self, mut block: Block, chunk: &[u8], index: u8, lengths: [u8; 2]) {
        let place = block.id as usize % BLOCKS_MAX;
        self.blocks[place] = Some(block);
        if !block.open {
            return;
        }
        if block.misses() == Some(0) {
            return self.close(block.id);
        }
        let head = loop {
            if let Some(head) = self.store.push(block.head, chunk, index, lengths) {
                break head;
            }
            // The oldest goes. When it is this one, nothing more is kept of it.
            let Some(oldest) = self.opened.pop_front() else { return };
            self.steps += 1;
            self.counters.evicted += u64::from(self.block(oldest).is_some_and(|b| b.open));
            self.give_up(oldest);
            if oldest == block.id {
                return;
            }
        };
        block.head = head;
        self.blocks[place] = Some(block);
        if block.misses().is_some_and(|missing| missing <= block.repair.count_ones()) {
            self.rebuild(&block);
        }
    }

    fn rebuild(&mut self, block: &Block) {
        let count = usize::from(block.shape.data);
        let len = usize::from(block.len);
        let missing = !block.data & mask(block.shape.data);
        let mut data: [Option<&[u8]>; DATA_MAX] = [None; DATA_MAX];
        let mut lens = [None; DATA_MAX];
        let mut repair: [(u8, &[u8]); REPAIR_MAX] = [(0, &[]); REPAIR_MAX];
        let mut repair_lens = [(0, [0; 2]); REPAIR_MAX];
        let mut repairs = 0;
        for (place, chunk) in self.store.chain(block.head) {
            if let Some(index) = place.index.checked_sub(DATA_MAX as u8) {
                repair[repairs] = (index, chunk);
                repair_lens[repairs] = (index, place.lengths);
                repairs += 1;
            } else {
                data[usize::from(place.index)] = Some(chunk);
                lens[usize::from(place.index)] = Some(place.len.to_be_bytes());
            }
        }
        let needed = missing.count_ones() as usize;
        self.work.resize(self.work.len().max(needed * len), 0);
        let work = &mut self.work[..needed * len];
        let result = erasure::rebuild(&data[..count], &repair[..repairs], len, work);
        let found = rebuild_lengths(&lens[..count], &repair_lens[..repairs], needed);
        let (Ok(_), Some(lens)) = (result, found.filter(|lens| fits(&lens[..needed], len))) else {
            self.counters.inconsistent += 1;
            return self.give_up(block.id);
        };
        self.counters.rebuilt += needed as u64;
        self.ready = Ready { block: block.id, len, missing, at: 0, lens };
        if let Some(block) = &mut self.blocks[block.id as usize % BLOCKS_MAX] {
            block.data |= missing;
        }
        self.close(block.id);
    }

    /// Closes an open block and counts what it misses.
    fn give_up(&mut self, id: u32) {
        if let Some(block) = self.block(id).filter(|block| block.open) {
            self.counters.lost += u64::from(block.misses().unwrap_or(0));
            self.close(id);
        }
    }

    fn close(&mut self, id: u32) {
        if let Some(block) = &mut self.blocks[id as usize % BLOCKS_MAX] {
            self.store.release(block.head);
            block.head = NONE;
            block.open = false;
        }
    }

    /// The sender began anew, and its numbers with it: all blocks are given up.
    pub fn begin_anew(&mut self) {
        self.forget();
    }

    fn forget(&mut self) {
        while let Some(id) = self.opened.pop_front() {
            self.steps += 1;
            self.give_up(id);
        }
        self.epoch = self.epoch.wrapping_add(1);
        self.newest = None;
        self.known = Known::default();
    }

    /// Where an old block stays open, those that closed behind it are not remembered in its stead.
    fn forget_closed(&mut self) {
        self.steps += self.opened.len() as u64;
        let mut opened = std::mem::take(&mut self.opened);
        opened.retain(|&id| self.block(id).is_some_and(|block| block.open));
        self.opened = opened;
    }
}

impl Block {
    /// Data chunks missing, if their number is known.
    fn misses(&self) -> Option<u32> {
        let count = u32::from(self.shape.data);
        (count > 0).then(|| count - self.data.count_ones())
    }

    fn agrees(&self, shape: Shape) -> bool {
        let known = self.shape.data == 0 || shape.data == 0 || self.shape.data == shape.data;
        known && (self.shape.repair == shape.repair || self.shape.data == 0 || shape.data == 0)
    }

    fn learn(&mut self, shape: Shape) {
        if self.shape.data == 0 {
            self.shape = shape;
        }
    }
}

fn is_possible(shape: Shape) -> bool {
    usize::from(shape.data) <= DATA_MAX && usize::from(shape.repair) <= REPAIR_MAX
}

fn mask(count: u8) -> u64 {
    u64::MAX >> (64 - u32::from(count.clamp(1, 64)))
}

/// Lengths of the missing chunks, rebuilt as the chunks are.
fn rebuild_lengths(
    lens: &[Option<[u8; 2]>],
    repair: &[(u8, [u8; 2])],
    needed: usize,
) -> Option<[u16; REPAIR_MAX]> {
    let mut data: [Option<&[u8]>; DATA_MAX] = [None; DATA_MAX];
    data.iter_mut().zip(lens).for_each(|(to, len)| *to = len.as_ref().map(|len| len.as_slice()));
    let mut chunks: [(u8, &[u8]); REPAIR_MAX] = [(0, &[]); REPAIR_MAX];
    chunks.iter_mut().zip(repair).for_each(|(to, (index, len))| *to = (*index, len));
    let mut bytes = [0; 2 * REPAIR_MAX];
    let memory = bytes.get_mut(..2 * needed)?;
    erasure::rebuild(&data[..lens.len()], &chunks[..repair.len()], 2, memory).ok()?;
    let mut found = [0; REPAIR_MAX];
    found.iter_mut().zip(bytes.as_chunks::<2>().0).for_each(|(l, b)| *l = u16::from_be_bytes(*b));
    Some(found)
}

fn fits(lens: &[u16], len: usize) -> bool {
    lens.iter().all(|&each| (1..=len).contains(&usize::from(each)))
}

mod known;
mod settled;
#[cfg(test)]
mod tests;
