//! Packets that travel alone: repaired after the fact, by a block that grows as they come.
//!
//! A lone packet is sent at once, as data chunk of a block whose size nobody knows yet. When
//! [`SPAN`] packets are in it, or [`HOLD_US`] after the first, the block is closed: its repair
//! chunks follow, and say how many data chunks there were. One packet's repair is its copy, two
//! packets' their exclusive or: the code is the same. What it may cost is an allowance that every
//! packet adds half a chunk to, so the whole stays within 1.5 (threat BC-09).

use crate::block::{self, Encoded, Place, Shape};
use crate::code::{CHUNK_LEN_MAX, Refused};
use crate::control::Control;

/// Packets of a block, at most.
pub const SPAN: usize = 8;
/// How long a block stays open after its first packet.
pub const HOLD_US: u64 = 10_000;
/// Memory that [`Sparse::poll_repair`] wants lent, bytes.
pub const MEMORY_LEN: usize = SPAN.div_ceil(2) * (CHUNK_LEN_MAX + 2);
/// Allowance, in half chunks: what one packet adds, and how much can be saved up.
const EARNED: u32 = 1;
const PRICE: u32 = 2;
const SAVED_MAX: u32 = 32;

/// The repair chunks of a block that was closed.
#[derive(Debug)]
pub struct Closed<'a> {
    /// The block.
    pub block: u32,
    /// Its shape, now known.
    pub shape: Shape,
    /// Its repair chunks.
    pub encoded: Encoded<'a>,
}

/// The sender's memory of the last packets that travelled alone.
#[derive(Debug, Default)]
pub struct Sparse {
    /// Copies, `CHUNK_LEN_MAX` bytes each; empty until something is to be repaired.
    copies: Vec<u8>,
    lens: [u16; SPAN],
    count: usize,
    block: u32,
    opened_us: u64,
    saved: u32,
}

impl Sparse {
    /// A packet is about to be sent alone. Returns its place, or nothing if it needs none and can
    /// travel as it is. `next_block` is the number of the next block of the link, and is moved on
    /// when one is opened.
    pub fn handle_packet(
        &mut self,
        packet: &[u8],
        control: &Control,
        next_block: &mut u32,
        now_us: u64,
    ) -> Option<Place> {
        self.saved = (self.saved + EARNED).min(SAVED_MAX);
        let is_open = self.count > 0 && self.count < SPAN;
        let len_is_right = (1..=CHUNK_LEN_MAX).contains(&packet.len());
        if !len_is_right || self.count == SPAN || (!is_open && control.sparse_chunks(SPAN) == 0) {
            return None;
        }
        if !is_open {
            self.block = *next_block;
            *next_block = next_block.wrapping_add(1);
            self.opened_us = now_us;
            self.copies.resize(SPAN * CHUNK_LEN_MAX, 0);
        }
        let index = self.count;
        self.copies[index * CHUNK_LEN_MAX..][..packet.len()].copy_from_slice(packet);
        self.lens[index] = packet.len() as u16;
        self.count += 1;
        let shape = Shape { data: 0, repair: 1 };
        Some(Place { block: self.block, shape, index: index as u8 })
    }

    /// The repair chunks that are due, written into `memory` of [`MEMORY_LEN`] bytes. Nothing when
    /// nothing is due, wanted or affordable.
    ///
    /// # Errors
    /// The memory is too short.
    pub fn poll_repair<'a>(
        &mut self,
        control: &Control,
        memory: &'a mut [u8],
        now_us: u64,
    ) -> Result<Option<Closed<'a>>, Refused> {
        if self.poll_timeout().is_none_or(|due_us| now_us < due_us) {
            return Ok(None);
        }
        let count = std::mem::take(&mut self.count);
        let repair = control.sparse_chunks(count).min((self.saved / PRICE) as usize);
        if repair == 0 {
            return Ok(None);
        }
        let mut data: [&[u8]; SPAN] = [&[]; SPAN];
        let copies = self.copies.chunks_exact(CHUNK_LEN_MAX);
        for ((slice, copy), len) in data.iter_mut().zip(copies).zip(self.lens) {
            *slice = &copy[..usize::from(len)];
        }
        let encoded = block::encode(&data[..count], repair, memory)?;
        self.saved -= repair as u32 * PRICE;
        let shape = Shape { data: count as u8, repair: repair as u8 };
        Ok(Some(Closed { block: self.block, shape, encoded }))
    }

    /// Gives memory back when nothing waits: for a path that is idle.
    pub fn trim(&mut self) {
        if self.count == 0 {
            self.copies = Vec::new();
        }
    }

    /// When to call [`Sparse::poll_repair`] next: zero is at once.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        match self.count {
            0 => None,
            SPAN => Some(0),
            _ => Some(self.opened_us.saturating_add(HOLD_US)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use crate::block::{Arrival, Assembler, BYTES_MAX};
    use crate::report::{Losses, Report};
    use sim::rng::Rng;

    fn control(lost: u32) -> Control {
        let clear = Losses { judged: 10_000, lost, runs: lost, ..Losses::default() };
        let mut control = Control::default();
        control.handle_report(&Report { clear, ..Report::default() }, 10_000, 0);
        control
    }

    #[test]
    fn without_loss_packets_travel_as_they_are() {
        let (mut sparse, control, mut next) = (Sparse::default(), control(0), 5);
        assert_eq!(sparse.handle_packet(&[1; 60], &control, &mut next, 0), None);
        assert_eq!((next, sparse.copies.capacity(), sparse.poll_timeout()), (5, 0, None));
    }

    /// Sends `packets`, `gap_us` apart, over 2 % loss; returns shares lost for good and spent.
    fn run(packets: u32, gap_us: u64) -> (f64, f64) {
        let (mut sparse, control, mut next) = (Sparse::default(), control(200), 0);
        let mut assembler = Assembler::new(BYTES_MAX);
        let mut rng = Rng::new(1);
        let mut memory = [0; MEMORY_LEN];
        let (mut passed, mut spent, mut sent) = (0u32, 0u32, BTreeMap::new());
        for n in 0..packets {
            let now_us = u64::from(n) * gap_us;
            let packet = vec![n as u8; 40 + n as usize % 1_000];
            let placed = sparse.handle_packet(&packet, &control, &mut next, now_us);
            let place = placed.expect("there is loss, so it is protected");
            let Place { block, shape, index } = place;
            sent.insert((block, index), packet.clone());
            if !rng.chance(0.02) {
                let arrival = assembler.handle_data(block, shape, index, &packet, now_us);
                assert_eq!(arrival, Arrival::Deliver);
                passed += 1;
            }
            let later_us = now_us + gap_us - 1;
            let closed =
                sparse.poll_repair(&control, &mut memory, later_us).expect("enough memory");
            let Some(Closed { block, shape, encoded }) = closed else { continue };
            for (index, chunk) in (0..).zip(encoded.chunks()) {
                spent += 1;
                if !rng.chance(0.02) {
                    assembler.handle_repair(block, shape, index, chunk, later_us);
                    while let Some(rebuilt) = assembler.poll_rebuilt() {
                        assert_eq!(rebuilt.bytes, sent[&(rebuilt.block, rebuilt.index)]);
                        passed += 1;
                    }
                }
            }
        }
        (1.0 - f64::from(passed) / f64::from(packets), f64::from(spent) / f64::from(packets))
    }

    #[test]
    fn bc_09_lone_packets_are_repaired_within_the_allowance() {
        for (gap_us, residual_max) in [(100, 2e-4), (3_000, 2e-4), (6_000, 2e-3), (50_000, 0.012)] {
            let (residual, spent) = run(40_000, gap_us);
            assert!(residual <= residual_max, "{gap_us} us apart: {residual} lost");
            assert!(spent > 0.0 && spent <= 0.501, "{gap_us} us apart: {spent} spent");
        }
    }

    #[test]
    fn a_full_block_is_due_at_once_and_the_memory_must_do() {
        let (mut sparse, control, mut next) = (Sparse::default(), control(200), 0);
        for _ in 0..SPAN {
            assert!(sparse.handle_packet(&[1; 60], &control, &mut next, 7).is_some());
        }
        assert_eq!((sparse.poll_timeout(), next), (Some(0), 1));
        assert_eq!(sparse.handle_packet(&[1; 60], &control, &mut next, 7), None);
        assert!(matches!(sparse.poll_repair(&control, &mut [0; 9], 7), Err(Refused::Memory(_))));
        assert_eq!(sparse.poll_timeout(), None);
        sparse.trim();
        assert_eq!(sparse.copies.capacity(), 0);
    }
}
