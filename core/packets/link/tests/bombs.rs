//! What bombs cost (threat BC-01): a process of its own, so that its memory is that of the test.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a test takes the time, and looks at its own process"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use link::open_squeezed;
use wire::frame::Squeezed;

/// The most that one opening may take; some three hundred times what the longest takes here.
const CPU_MAX: Duration = Duration::from_millis(1);
const GROWTH_MAX_KIB: u64 = 1_024;
const ROUNDS: u32 = 2_000;

/// A block that says a byte and repeats it: a run of 255 for each byte of `len`.
fn run(len: usize) -> Vec<u8> {
    [&[0x1f, 0x45, 1, 0][..], &vec![255; len], &[0, 0x50, 0, 0, 0, 0, 0]].concat()
}

/// Many short runs, each a copy of what overlaps it: the most work for each byte that comes out.
fn steps(len: usize) -> Vec<u8> {
    let step = [0x00, 1, 0];
    [&[0x10, 0x45, 1, 0][..], &step.repeat(len / step.len()), &[0x50, 0, 0, 0, 0, 0]].concat()
}

/// The most memory that was resident at any time, as the kernel keeps it.
fn resident_kib_max() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

/// Bombs of 1 KiB to 16 MiB, declared as what they are, as less, and as the most there may be.
/// Longer ones than a datagram never come; they must not matter either.
#[test]
fn bc_01_bombs_take_neither_memory_nor_time() {
    let blocks: Vec<Vec<u8>> = vec![
        run(4),
        run(5),
        run(1_400),
        run(65_000),
        steps(1_400),
        steps(65_000),
        vec![0xff; 1_400],
    ];
    let frames: Vec<Squeezed<'_>> = blocks
        .iter()
        .flat_map(|block| {
            [1, 40, 1_030, 1_500, 1_501, 65_535].map(|opened_len| Squeezed { opened_len, block })
        })
        .collect();
    let mut memory = [0; Squeezed::OPENED_LEN_MAX];
    let before_kib = resident_kib_max();
    let opened = frames.iter().filter(|frame| open_squeezed(frame, &mut memory).is_some()).count();
    assert_eq!(opened, 0, "none of them holds what it says");
    let mut quickest = vec![Duration::MAX; frames.len()];
    for _ in 0..ROUNDS {
        for (frame, quickest) in frames.iter().zip(&mut quickest) {
            let begin = Instant::now();
            black_box(open_squeezed(black_box(frame), &mut memory));
            *quickest = begin.elapsed().min(*quickest);
        }
    }
    let grown_kib = resident_kib_max().saturating_sub(before_kib);
    assert!(grown_kib <= GROWTH_MAX_KIB, "{grown_kib} KiB more");
    let slowest = quickest.iter().max().copied().unwrap_or_default();
    assert!(slowest <= CPU_MAX, "{slowest:?} for one");
}
