//! Blocks over a channel that loses, repeats and reorders; hostile ones; the bounds.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sim::rng::Rng;

use super::*;
use crate::code::budget::OWN_BYTES;

#[derive(Clone, Debug)]
struct Chunk {
    block: u32,
    shape: Shape,
    index: u8,
    /// Code of the lengths, for repair chunks.
    lengths: Option<[u8; 2]>,
    bytes: Vec<u8>,
}

fn block(id: u32, k: usize, r: usize, len_max: usize, open: bool, rng: &mut Rng) -> Vec<Chunk> {
    let data: Vec<Vec<u8>> = (0..k)
        .map(|_| {
            let mut chunk = vec![0; 1 + rng.below(len_max as u64) as usize];
            rng.fill(&mut chunk);
            chunk
        })
        .collect();
    let borrowed: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut memory = vec![0; r * (CHUNK_LEN_MAX + 2)];
    let encoded = encode(&borrowed, r, &mut memory).expect("a right geometry");
    let shape = Shape { data: k as u8, repair: r as u8 };
    let told = if open { Shape { data: 0, ..shape } } else { shape };
    let mut chunks = Vec::new();
    for (index, bytes) in (0..).zip(&data) {
        let bytes = bytes.clone();
        chunks.push(Chunk { block: id, shape: told, index, lengths: None, bytes });
    }
    for (index, (lengths, bytes)) in (0..).zip(encoded.chunks()) {
        let bytes = bytes.to_vec();
        chunks.push(Chunk { block: id, shape, index, lengths: Some(lengths), bytes });
    }
    chunks
}

/// Hands a chunk over; returns what is passed on.
fn give(assembler: &mut Assembler, chunk: &Chunk, now_us: u64) -> Vec<(u32, u8, Vec<u8>)> {
    let Chunk { block, shape, index, lengths, bytes } = chunk;
    let mut passed = Vec::new();
    let arrival = match lengths {
        None => assembler.handle_data(*block, *shape, *index, bytes, now_us),
        Some(code) => assembler.handle_repair(*block, *shape, *index, (*code, bytes), now_us),
    };
    if arrival == Arrival::Deliver {
        passed.push((*block, *index, bytes.clone()));
    }
    while let Some(rebuilt) = assembler.poll_rebuilt() {
        passed.push((rebuilt.block, rebuilt.index, rebuilt.bytes.to_vec()));
    }
    passed
}

fn arrived(counters: &Counters) -> u64 {
    let Counters { delivered, kept, duplicate, late, inconsistent, .. } = *counters;
    delivered + kept + duplicate + late + inconsistent
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150, failure_persistence: None, ..Default::default()
    })]

    /// BC-08: what is passed on was sent, each chunk once, and all of it when k arrived.
    #[test]
    fn bc_08_passed_on_is_a_part_of_sent_without_repetition(
        seed: u64, blocks in 1..40u32, loss in 0.0..0.3f64, start: u32, open: bool,
        len in 1..1_500usize
    ) {
        let mut rng = Rng::new(seed);
        let (mut sent, mut wire, mut there) = (BTreeSet::new(), Vec::new(), Vec::new());
        for n in 0..blocks {
            let (k, r) = (1 + rng.below(64) as usize, rng.below(9) as usize);
            let id = start.wrapping_add(n);
            let chunks = block(id, k, r, len, open && r > 0, &mut rng);
            sent.extend(chunks[..k].iter().map(|c| (c.block, c.index, c.bytes.clone())));
            let kept: Vec<_> = chunks.into_iter().filter(|_| !rng.chance(loss)).collect();
            there.push((id, k, kept.len()));
            for chunk in kept {
                let at = u64::from(n) * 60 + rng.below(120);
                // Repeated and late: within the window, so it must be known as a duplicate.
                if r > 0 && rng.chance(0.05) {
                    wire.push((at + rng.below(600), rng.next_u64(), chunk.clone()));
                }
                wire.push((at, rng.next_u64(), chunk));
            }
        }
        wire.sort_by_key(|(at, tie, _)| (*at, *tie));
        let mut assembler = Assembler::new(BYTES_MAX);
        let mut passed = BTreeSet::new();
        for (at, _, chunk) in &wire {
            for item in give(&mut assembler, chunk, *at) {
                prop_assert!(sent.contains(&item), "never sent");
                prop_assert!(passed.insert(item), "twice");
            }
        }
        for (id, k, count) in there {
            if count >= k {
                let whole = passed.iter().filter(|(block, ..)| *block == id).count();
                prop_assert_eq!(whole, k, "block {} had {} of {}", id, count, k);
            }
        }
        assembler.handle_timeout(u64::MAX);
        prop_assert_eq!(arrived(&assembler.counters()), wire.len() as u64);
        prop_assert_eq!((assembler.bytes_held(), assembler.poll_timeout()), (0, None));
    }

    /// BC-07: chunks that lie about anything leave the bounds and the other blocks alone.
    #[test]
    fn bc_07_nothing_a_peer_sends_panics_or_grows(
        chunks in prop::collection::vec(
            (any::<u32>(), 0..33u32, any::<[u8; 3]>(), any::<Option<[u8; 2]>>(), 0..1_600usize),
            0..200)
    ) {
        let mut assembler = Assembler::new(64 << 10);
        for (now_us, (id, shift, [data, repair, index], lengths, len)) in (0..).zip(chunks) {
            let shape = Shape { data: data % 80, repair: repair % 40 };
            let id = id.checked_shr(shift).unwrap_or(0);
            let chunk = Chunk { block: id, shape, index: index % 70, lengths, bytes: vec![1; len] };
            give(&mut assembler, &chunk, now_us);
            prop_assert!(assembler.bytes_held() <= 64 << 10);
            prop_assert!(assembler.opened.len() <= BLOCKS_MAX + 1);
        }
        assembler.handle_timeout(u64::MAX);
        prop_assert_eq!(assembler.bytes_held(), 0);
    }
}

#[test]
fn bc_06_a_million_partial_blocks_fill_no_more_than_the_bound_and_the_next_is_still_repaired() {
    let mut assembler = Assembler::new(BYTES_MAX);
    let shape = Shape { data: 45, repair: 3 };
    let mut memory = 0;
    for id in 0..1_000_000 {
        assembler.handle_data(id, shape, 0, &[9; 1_400], 0);
        memory = memory.max(assembler.bytes_held());
    }
    assert!(memory <= BYTES_MAX && assembler.opened.len() <= BLOCKS_MAX + 1);
    let chunks = block(1_000_000, 45, 3, 1_400, false, &mut Rng::new(1));
    let passed: usize = chunks[3..].iter().map(|c| give(&mut assembler, c, 1).len()).sum();
    assert_eq!(passed, 45);
    assert!(assembler.counters().lost >= 44 * 990_000);
}

/// Ten that send what is never complete, and one that has a block to be rebuilt.
#[test]
fn bc_06_who_fills_the_memory_of_all_leaves_each_its_own() {
    const ALL_BYTES: usize = 4 << 20;
    let budget = Budget::new(ALL_BYTES);
    let mut fillers: Vec<_> = (0..10).map(|_| Assembler::sharing(BYTES_MAX, &budget)).collect();
    let mut other = Assembler::sharing(BYTES_MAX, &budget);
    let shape = Shape { data: 45, repair: 3 };
    for id in 0..10_000 {
        for filler in &mut fillers {
            filler.handle_data(id, shape, 0, &[9; 1_400], 0);
        }
        let held: usize = fillers.iter().map(Assembler::bytes_held).sum();
        assert!(held <= ALL_BYTES + fillers.len() * OWN_BYTES, "{held} bytes");
    }
    assert!(budget.left() < 200_000, "it is used up: {}", budget.left());
    let chunks = block(1, 45, 3, 1_400, false, &mut Rng::new(1));
    let passed: usize = chunks[3..].iter().map(|c| give(&mut other, c, 1).len()).sum();
    assert_eq!(passed, 45);
    drop((fillers, other));
    assert_eq!(budget.left(), ALL_BYTES);
}

#[test]
fn bc_06_a_block_that_waits_too_long_is_given_up_and_its_late_chunks_still_pass_once() {
    let mut assembler = Assembler::new(BYTES_MAX);
    let chunks = block(7, 4, 1, 100, false, &mut Rng::new(2));
    assert_eq!(give(&mut assembler, &chunks[0], 1_000).len(), 1);
    assert_eq!(assembler.poll_timeout(), Some(1_000 + PATIENCE_US));
    assembler.handle_timeout(1_000 + PATIENCE_US - 1);
    assert_eq!(assembler.counters().lost, 0);
    assembler.handle_timeout(1_000 + PATIENCE_US);
    assert_eq!(assembler.counters().lost, 3);
    assert_eq!(assembler.poll_timeout(), Some(1_000 + KEEP_US));
    assert_eq!(give(&mut assembler, &chunks[1], 260_000).len(), 1);
    assert_eq!(give(&mut assembler, &chunks[1], 260_001).len(), 0);
    assert_eq!(give(&mut assembler, &chunks[4], 260_002).len(), 0);
    assert_eq!(assembler.counters().duplicate, 2);
    assembler.handle_timeout(1_000 + KEEP_US);
    assert_eq!((assembler.bytes_held(), assembler.poll_timeout()), (0, None));
}

#[test]
fn bc_07_a_repair_chunk_that_lies_about_lengths_costs_its_block_only() {
    let mut assembler = Assembler::new(BYTES_MAX);
    let mut chunks = block(1, 4, 1, 100, false, &mut Rng::new(3));
    chunks[4].lengths = Some([0xff, 0xff]);
    let passed: usize = chunks[1..].iter().map(|c| give(&mut assembler, c, 0).len()).sum();
    assert_eq!((passed, assembler.counters().lost, assembler.counters().inconsistent), (3, 1, 1));
    let good = block(2, 4, 1, 100, false, &mut Rng::new(4));
    let passed: usize = good[1..].iter().map(|c| give(&mut assembler, c, 0).len()).sum();
    assert_eq!(passed, 4);
}

#[test]
fn a_block_without_repair_is_passed_through_and_takes_no_memory() {
    let mut assembler = Assembler::new(BYTES_MAX);
    for chunk in block(1, 45, 0, 1_400, false, &mut Rng::new(5)) {
        assert_eq!(give(&mut assembler, &chunk, 0).len(), 1);
    }
    assert_eq!((assembler.bytes_held(), assembler.blocks.capacity()), (0, 0));
}

/// Data chunks of a block that say nothing of its shape, without those of `lost`.
fn all_but(chunks: &[Chunk], lost: &[usize]) -> Vec<Chunk> {
    let left = chunks.iter().enumerate().filter(|(n, _)| !lost.contains(n));
    left.map(|(_, chunk)| chunk.clone()).collect()
}

#[test]
fn a_block_is_settled_when_it_is_done_hopeless_or_old() {
    const GRACE_US: u64 = 20_000;
    let rng = &mut Rng::new(1);
    let mut assembler = Assembler::new(BYTES_MAX);
    assert_eq!(assembler.settled_us(GRACE_US, 7), 7, "there is none");
    let give_all = |assembler: &mut Assembler, chunks: Vec<Chunk>, at_us| {
        chunks.iter().for_each(|chunk| drop(give(assembler, chunk, at_us)));
    };
    // 100 misses one of four and gets it back; 101 misses two, which is too many.
    let [rebuilt, hopeless] = [100, 101].map(|id| block(id, 4, 1, 50, true, rng));
    give_all(&mut assembler, all_but(&rebuilt, &[1, 4]), 1_000);
    assert_eq!(assembler.settled_us(GRACE_US, 1_500), 1_000, "its repair may come");
    give_all(&mut assembler, vec![rebuilt[4].clone()], 2_000);
    assert_eq!(assembler.settled_us(GRACE_US, 2_000), 1_000, "what was before may come yet");
    assert_eq!(assembler.settled_us(GRACE_US, 21_000), 21_000, "not any more");
    give_all(&mut assembler, all_but(&hopeless, &[0, 1, 4]), 22_000);
    assert_eq!(assembler.settled_us(GRACE_US, 23_000), 22_000);
    give_all(&mut assembler, vec![hopeless[4].clone()], 24_000);
    assert_eq!(assembler.settled_us(GRACE_US, 24_000), 24_000);
    // Nothing came of 102; 103 is complete.
    give_all(&mut assembler, block(103, 4, 1, 50, true, rng), 25_000);
    assert_eq!(assembler.settled_us(GRACE_US, 26_000), 25_000);
    assert_eq!(assembler.settled_us(GRACE_US, 45_000), 45_000);
}

#[test]
fn bc_06_numbers_that_leap_leave_nothing_unsettled_for_long() {
    let rng = &mut Rng::new(2);
    let mut assembler = Assembler::new(BYTES_MAX);
    for n in 0..2_000u32 {
        let id = n.wrapping_mul(0x9e37_79b9) >> (n % 24);
        let now_us = u64::from(n) * 1_000;
        block(id, 2, 1, 50, true, rng).iter().for_each(|chunk| {
            give(&mut assembler, chunk, now_us);
        });
        assert!(assembler.settled_us(20_000, now_us) <= now_us);
    }
    assert_eq!(assembler.settled_us(20_000, 3_000_000), 3_000_000);
}

/// What made each chunk cost a look at all blocks: numbers that leap, and repair of a block far
/// behind which nothing is known.
#[test]
fn bc_06_a_chunk_costs_a_few_steps_whatever_its_number() {
    let shape = Shape { data: 4, repair: 2 };
    let mut leaping = Assembler::new(BYTES_MAX);
    let mut sparse = Assembler::new(BYTES_MAX);
    let mut stuck = Assembler::new(BYTES_MAX);
    stuck.handle_data(0, shape, 0, &[1; 9], 0);
    sparse.handle_data(0, shape, 0, &[1; 9], 0);
    for n in 1..=20_000u32 {
        leaping.handle_data(n.wrapping_mul(JUMP + 1), shape, 0, &[1; 9], 0);
        leaping.settled_us(30_000, 0);
        let id = (BLOCKS_MAX as u32 - 1) * (1 + n / 8);
        sparse.handle_repair(id, shape, 0, ([0; 2], &[1; 9]), 0);
        sparse.settled_us(30_000, 0);
        // The first block stays open, and none takes its place.
        stuck.handle_data(n + n / (BLOCKS_MAX as u32 - 1), shape, 0, &[1; 9], 0);
        assert!(stuck.opened.len() <= 2 * BLOCKS_MAX + 1);
    }
    for (assembler, most) in [(leaping, 6), (sparse, 40), (stuck, 6)] {
        let steps = assembler.steps();
        assert!(steps <= most * 20_000, "{steps}");
    }
}
