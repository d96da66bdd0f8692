//! Speed of the erasure code for blocks of 45 chunks of 1400 bytes, beside reed-solomon-simd: of
//! one block again and again, and of many in turn, which are in no cache when their turn comes.
//!
//! `cargo run --release -p warren-repair --example code`

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    clippy::print_stdout,
    reason = "a bench asks the clock and prints its table; it is no part of the core"
)]

use std::hint::black_box;
use std::time::Instant;

use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};
use repair::code;

const K: usize = 45;
const LEN: usize = 1_400;
/// Blocks that have their turn: 126 MB.
const BLOCKS: usize = 2_000;
/// Short rounds, of which the best counts: what else the machine does only makes a round slower.
const ROUNDS: usize = 100;
const ROUND_S: f64 = 0.003;

fn main() {
    let bytes: Vec<u8> = (0..K * LEN).map(|at| (at * 7 + at / 251) as u8).collect();
    let data: Vec<&[u8]> = bytes.chunks(LEN).collect();
    let all: Vec<Vec<u8>> = (0..BLOCKS).map(|_| bytes.clone()).collect();
    println!("MB/s of data, {K} chunks of {LEN} bytes; rebuilding: all r lost chunks are data");
    println!(
        "{:>3} {:>22} {:>11} {:>22} {:>22}",
        "r", "ours: out, in", "in turn", "rs-simd: out, in", "ratios"
    );
    for r in 1..=16 {
        let mut repair = vec![0; r * LEN];
        let out = rate(|| code::encode(black_box(&data), LEN, &mut repair).expect("right"));
        let back = rate_of_rebuilding(&data, &repair, r);
        let mut turns = all.iter().cycle();
        let in_turn = rate(|| {
            let mut data: [&[u8]; K] = [&[]; K];
            let block = turns.next().into_iter().flat_map(|block| block.chunks(LEN));
            data.iter_mut().zip(block).for_each(|(place, chunk)| *place = chunk);
            code::encode(black_box(&data), LEN, &mut repair).expect("right");
        });
        let mut encoder = ReedSolomonEncoder::new(K, r, LEN).expect("supported");
        let their_out = rate(|| {
            encoder.reset(K, r, LEN).expect("supported");
            data.iter().for_each(|chunk| encoder.add_original_shard(chunk).expect("fits"));
            let result = encoder.encode().expect("complete");
            result.recovery_iter().zip(repair.chunks_mut(LEN)).for_each(|(from, to)| {
                to.copy_from_slice(from);
            });
        });
        let their_back = their_rate_of_rebuilding(&data, &repair, r);
        println!(
            "{r:>3} {out:>11.0}{back:>11.0} {in_turn:>11.0} {their_out:>11.0}{their_back:>11.0} \
             {:>11.2}{:>11.2}",
            out / their_out,
            back / their_back
        );
    }
}

fn rate_of_rebuilding(data: &[&[u8]], repair: &[u8], r: usize) -> f64 {
    let given: Vec<_> = data.iter().enumerate().map(|(j, c)| (j >= r).then_some(*c)).collect();
    let repair = repair_chunks(repair);
    let mut rebuilt = vec![0; r * LEN];
    let rate = rate(|| {
        let _ = code::rebuild(black_box(&given), &repair, LEN, &mut rebuilt).expect("enough");
    });
    assert_eq!(rebuilt, data[..r].concat());
    rate
}

fn repair_chunks(repair: &[u8]) -> Vec<(u8, &[u8])> {
    repair.chunks(LEN).enumerate().map(|(i, chunk)| (i as u8, chunk)).collect()
}

fn their_rate_of_rebuilding(data: &[&[u8]], repair: &[u8], r: usize) -> f64 {
    let mut decoder = ReedSolomonDecoder::new(K, r, LEN).expect("supported");
    let mut rebuilt = vec![0; r * LEN];
    let rate = rate(|| {
        decoder.reset(K, r, LEN).expect("supported");
        for (at, chunk) in data.iter().enumerate().skip(r) {
            decoder.add_original_shard(at, chunk).expect("fits");
        }
        for (at, chunk) in repair.chunks(LEN).enumerate() {
            decoder.add_recovery_shard(at, chunk).expect("fits");
        }
        let result = decoder.decode().expect("enough");
        result.restored_original_iter().zip(rebuilt.chunks_mut(LEN)).for_each(|((_, from), to)| {
            to.copy_from_slice(from);
        });
    });
    assert_eq!(rebuilt, data[..r].concat());
    rate
}

/// MB/s of data in the best round.
fn rate(mut work: impl FnMut()) -> f64 {
    let rates = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        let mut times = 0.0;
        while start.elapsed().as_secs_f64() < ROUND_S {
            work();
            times += 1.0;
        }
        times * (K * LEN) as f64 / start.elapsed().as_secs_f64() / 1e6
    });
    rates.fold(0.0, f64::max)
}
