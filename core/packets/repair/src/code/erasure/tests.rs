//! Every pattern of erasures of small blocks, random ones of large, and what is refused.

use proptest::prelude::*;
use sim::rng::Rng;

use super::*;

/// Data chunks (the last one shorter) and `repair` repair chunks.
fn block(k: usize, r: usize, len: usize, seed: u64) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let mut rng = Rng::new(seed);
    let mut data: Vec<Vec<u8>> = vec![vec![0; len]; k];
    data[k - 1].truncate(1 + rng.below(len as u64) as usize);
    data.iter_mut().for_each(|chunk| rng.fill(chunk));
    let borrowed: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut repair = vec![0xee; r * len];
    encode(&borrowed, len, &mut repair).expect("the geometry is right");
    (data, repair.chunks(len).map(<[u8]>::to_vec).collect())
}

/// Rebuilds a block that lost what `lost` has a bit for, and holds the result against it.
fn check(data: &[Vec<u8>], repair: &[Vec<u8>], len: usize, lost: u128) {
    let k = data.len();
    let there = |at: usize| lost >> at & 1 == 0;
    let given: Vec<Option<&[u8]>> =
        data.iter().enumerate().map(|(j, chunk)| there(j).then_some(chunk.as_slice())).collect();
    let help: Vec<(u8, &[u8])> = (0..repair.len())
        .filter(|i| there(k + i))
        .map(|i| (i as u8, repair[i].as_slice()))
        .collect();
    let missing: Vec<usize> = (0..k).filter(|&j| !there(j)).collect();
    let mut rebuilt = vec![0x77; missing.len() * len];
    let result = rebuild(&given, &help, len, &mut rebuilt);
    if missing.len() > help.len() {
        assert_eq!(result, Err(Refused::Missing(missing.len() - help.len())));
        assert!(rebuilt.iter().all(|&byte| byte == 0x77), "refused, but written");
        return;
    }
    assert_eq!(result, Ok(missing.len()));
    for (j, chunk) in missing.iter().zip(rebuilt.chunks(len)) {
        let (bytes, padding) = chunk.split_at(data[*j].len());
        assert_eq!(bytes, data[*j], "chunk {j} of {k}+{}, lost {lost:b}", repair.len());
        assert!(padding.iter().all(|&byte| byte == 0));
    }
}

#[test]
fn every_pattern_of_erasures_of_every_small_block_is_rebuilt_or_refused() {
    for (k, r) in (1..=7).flat_map(|k| (0..=5).map(move |r| (k, r))) {
        let (data, repair) = block(k, r, 9, (k * 10 + r) as u64);
        for lost in 0..1u128 << (k + r) {
            check(&data, &repair, 9, lost);
        }
    }
}

/// All 64 by 33 that there are: the first, the last and any chunks lost, as many as it bears and
/// one more.
#[test]
fn bc_08_every_geometry_is_rebuilt_or_refused() {
    for (k, r) in (1..=DATA_MAX).flat_map(|k| (0..=REPAIR_MAX).map(move |r| (k, r))) {
        let (data, repair) = block(k, r, 5, (k * 100 + r) as u64);
        let mut rng = Rng::new((k * 100 + r) as u64);
        for losses in [r, r + 1] {
            let first = (1u128 << losses) - 1;
            let mut any = 0u128;
            while any.count_ones() < losses as u32 {
                any |= 1 << rng.below((k + r) as u64);
            }
            for lost in [first, first << k.saturating_sub(losses), any] {
                check(&data, &repair, 5, lost);
            }
        }
    }
}

#[test]
fn every_pair_and_triple_of_erasures_of_the_usual_block_is_rebuilt() {
    let (data, repair) = block(45, 3, 70, 1);
    for a in 0..48 {
        for b in a..48 {
            for c in b..48 {
                check(&data, &repair, 70, 1u128 << a | 1 << b | 1 << c);
            }
        }
    }
}

#[test]
fn every_square_part_of_two_rows_and_columns_can_be_inverted() {
    for (a, b) in (0..REPAIR_MAX).flat_map(|b| (0..b).map(move |a| (a, b))) {
        for (c, d) in (0..DATA_MAX).flat_map(|d| (0..d).map(move |c| (c, d))) {
            let one = field::multiply(coefficient(a, c), coefficient(b, d));
            let two = field::multiply(coefficient(a, d), coefficient(b, c));
            assert_ne!(one, two, "rows {a}, {b}, columns {c}, {d}");
        }
    }
}

#[test]
fn the_first_repair_chunk_is_the_plain_exclusive_or() {
    assert!((0..DATA_MAX).all(|column| coefficient(0, column) == 1));
    let (data, repair) = block(45, 4, 1_400, 2);
    for (at, &byte) in repair[0].iter().enumerate() {
        assert_eq!(byte, data.iter().fold(0, |sum, c| sum ^ c.get(at).copied().unwrap_or(0)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400, failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn bc_08_any_k_of_a_large_block_are_enough(
        k in 1..=DATA_MAX, r in 0..=REPAIR_MAX, len in 1..=CHUNK_LEN_MAX, seed: u64
    ) {
        let (data, repair) = block(k, r, len, seed);
        let mut rng = Rng::new(seed ^ 1);
        for losses in [r, r / 2, r + 1] {
            let mut lost = 0u128;
            for _ in 0..losses {
                lost |= 1 << rng.below((k + r) as u64);
            }
            check(&data, &repair, len, lost);
        }
    }

    /// BC-07: whatever a peer sends, the answer is a number or a reason.
    #[test]
    fn bc_07_no_geometry_panics(
        k in 0..70usize, len in 0..1_600usize, lend in 0..9_000usize,
        data in prop::collection::vec(prop::option::of(0..1_600usize), 0..70),
        repair in prop::collection::vec((0..40u8, 0..1_600usize), 0..40),
    ) {
        let bytes = [3; 1_600];
        let mut memory = vec![0; lend];
        let plain = vec![&bytes[..len.min(10)]; k];
        let _ = encode(&plain, len, &mut memory);
        let data: Vec<_> = data.iter().map(|len| len.map(|len| &bytes[..len])).collect();
        let repair: Vec<_> = repair.iter().map(|&(i, len)| (i, &bytes[..len])).collect();
        let _ = rebuild(&data, &repair, len, &mut memory);
    }
}

#[test]
fn bc_07_what_is_wrong_is_named_and_nothing_is_written() {
    let (a, b) = ([1u8; 10], [2u8; 11]);
    let mut memory = [7; 10];
    let all = [a.as_slice(); 65];
    assert_eq!(encode(&[], 10, &mut memory), Err(Refused::DataCount(0)));
    assert_eq!(encode(&all, 10, &mut memory), Err(Refused::DataCount(65)));
    assert_eq!(encode(&[&a], 0, &mut memory), Err(Refused::Length(0)));
    assert_eq!(encode(&[&a], 1_501, &mut memory), Err(Refused::Length(1_501)));
    assert_eq!(encode(&[&a, &b], 10, &mut memory), Err(Refused::Length(11)));
    assert_eq!(encode(&[&a], 10, &mut memory[..9]), Err(Refused::Memory(10)));
    assert_eq!(encode(&[&a], 10, &mut [0; 330]), Err(Refused::RepairCount(33)));
    let one = [None, Some(a.as_slice())];
    let mut rebuild =
        |data: &[_], repair: &[_], lend| rebuild(data, repair, 10, &mut memory[..lend]);
    assert_eq!(rebuild(&one, &[], 10), Err(Refused::Missing(1)));
    assert_eq!(rebuild(&one, &[(32, &a)], 10), Err(Refused::RepairCount(33)));
    assert_eq!(rebuild(&one, &[(1, &b)], 10), Err(Refused::Length(11)));
    assert_eq!(rebuild(&one, &[(1, &a), (1, &a)], 10), Err(Refused::Twice(1)));
    assert_eq!(rebuild(&one, &[(1, &a)], 9), Err(Refused::Memory(10)));
    assert_eq!(rebuild(&[None, Some(&b)], &[(1, &a)], 10), Err(Refused::Length(11)));
    assert_eq!(memory, [7; 10]);
}
