//! What the parts around the code cost: nanoseconds for each chunk, microseconds for each report.
//!
//! `cargo run --release -p warren-repair --example path`

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    clippy::print_stdout,
    reason = "a bench asks the clock and prints its table; it is no part of the core"
)]

use std::hint::black_box;
use std::time::Instant;

use repair::block::{self, Assembler, BYTES_MAX, Shape};
use repair::control::Control;
use repair::observe::Observer;
use repair::order::Order;
use repair::table::Sent;
use repair::tuning::Tuning;
use wire::frame::{Losses, Report};

const K: usize = 45;
const R: usize = 5;
const LEN: usize = 1_400;
const BLOCKS: u32 = 2_000;
const ROUNDS: usize = 20;

fn main() {
    let bytes: Vec<u8> = (0..K * LEN).map(|at| (at * 7 + at / 251) as u8).collect();
    let data: Vec<&[u8]> = bytes.chunks(LEN).collect();
    println!("ns for each data chunk of {LEN} bytes, best of {ROUNDS} rounds");
    let mut copy = vec![0; LEN];
    report("a copy, for comparison", || {
        for chunk in (0..BLOCKS).flat_map(|_| &data) {
            copy.copy_from_slice(black_box(chunk));
            black_box(&copy);
        }
    });
    let plain = Shape { data: K as u8, repair: 0 };
    report("block without repair", || receive(&data, plain, &[], 0));
    let mut memory = vec![0; R * (LEN + 2)];
    let encoded = block::encode(&data, R, &mut memory).expect("a right geometry");
    let repair: Vec<_> = encoded.chunks().collect();
    let shape = Shape { data: K as u8, repair: R as u8 };
    report("block with 5, none lost", || receive(&data, shape, &repair, 0));
    report("block with 5, 1 lost", || receive(&data, shape, &repair, 1));
    report("block with 5, 3 lost", || receive(&data, shape, &repair, 3));
    report("observer", || {
        let mut observer = Observer::new(&Tuning::DEFAULT);
        for n in 0..u64::from(BLOCKS) * K as u64 {
            observer.handle_chunk(n ^ (n / 7 % 2), (n * 12) as u32, n * 12 + n % 5 * 100);
        }
        black_box(observer.poll_report(0, 0, 1 << 40));
    });
    report("order, pairs swapped", || {
        let mut order = Order::new(&Tuning::DEFAULT.waiting);
        order.set_wait_us(10_000);
        for n in 0..BLOCKS * K as u32 {
            order.handle_piece(1, n ^ 1, n, LEN, u64::from(n));
            while order.poll_ready().is_some() {}
        }
    });
    let clear = Losses {
        judged: 6_000,
        lost: 60,
        runs: 20,
        windows: 90,
        window_losses: 60,
        window_squares: 250,
    };
    let mut control = Control::new(&Tuning::DEFAULT);
    let mut now_us = 0;
    let each = best(|| {
        now_us += 100_000;
        control.handle_report(&Report { clear, ..Report::default() }, Sent::of_tcp(6_000), now_us);
    });
    println!("{:>28} {:>8.1} us, depth {}", "a report with bursts", each * 1e6, control.depth());
}

fn receive(data: &[&[u8]], shape: Shape, repair: &[([u8; 2], &[u8])], lost: usize) {
    let mut assembler = Assembler::new(BYTES_MAX);
    for id in 0..BLOCKS {
        for (index, chunk) in data.iter().enumerate().skip(lost) {
            black_box(assembler.handle_data(id, shape, index as u8, chunk, u64::from(id)));
        }
        for (index, chunk) in repair.iter().enumerate() {
            assembler.handle_repair(id, shape, index as u8, *chunk, u64::from(id));
            while let Some(rebuilt) = assembler.poll_rebuilt() {
                black_box(rebuilt.bytes);
            }
        }
    }
    assert_eq!(assembler.counters().rebuilt, u64::from(BLOCKS) * lost as u64);
}

fn report(name: &str, work: impl FnMut()) {
    let each = best(work) / f64::from(BLOCKS) / K as f64;
    println!("{name:>28} {:>8.1} ns", each * 1e9);
}

/// Seconds of the best round.
fn best(mut work: impl FnMut()) -> f64 {
    let seconds = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..ROUNDS).map(seconds).fold(f64::INFINITY, f64::min)
}
