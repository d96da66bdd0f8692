//! Random worlds, by their seeds.
//!
//! `WARREN_SEED=n` runs one, `WARREN_SEEDS=first..last` a range (`last` not included) and
//! `WARREN_SEEDS=n` the first n; without either, a few hundred run here and ten thousand in the
//! soak.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use sim::world::storm;

/// Seeds of every test run.
const SEEDS: Range<u64> = 0..300;
/// Seeds of the long run.
const SOAK: Range<u64> = 0..10_000;

#[expect(clippy::disallowed_methods, reason = "which seeds to run is said from outside")]
fn seeds(default: Range<u64>) -> Range<u64> {
    let read = |name| std::env::var(name).ok();
    let number = |text: &str| text.trim().parse::<u64>().expect("a seed is a number");
    if let Some(seed) = read("WARREN_SEED") {
        let seed = number(&seed);
        return seed..seed + 1;
    }
    let Some(range) = read("WARREN_SEEDS") else { return default };
    let (first, last) = range.split_once("..").unwrap_or(("0", &range));
    number(first)..number(last)
}

#[allow(clippy::disallowed_macros, clippy::print_stdout, reason = "a test tells its figures")]
#[expect(clippy::disallowed_methods, reason = "worlds share nothing, and two run at a time")]
fn run(seeds: Range<u64>) {
    let mut failed = Vec::new();
    let (mut longest, mut most) = (Duration::ZERO, 0);
    let one = |seed| (seed, catch_unwind(AssertUnwindSafe(|| storm::run(seed))));
    let reports: Vec<_> = std::thread::scope(|scope| {
        let halves = [0, 1].map(|half| {
            let seeds = seeds.clone().filter(move |seed| seed % 2 == half);
            scope.spawn(move || seeds.map(one).collect::<Vec<_>>())
        });
        halves.into_iter().flat_map(|half| half.join().expect("panics are caught")).collect()
    });
    for (seed, report) in reports {
        match report {
            Ok(report) => {
                longest = longest.max(report.recovery);
                most = most.max(report.initiations);
            }
            Err(_) => failed.push(seed),
        }
    }
    assert!(failed.is_empty(), "seeds {failed:?} failed; WARREN_SEED=n runs one again");
    println!("{seeds:?}: longest recovery {longest:?}, most initiations of a link {most}");
}

#[test]
fn dp_09_dp_11_every_random_world_recovers() {
    run(seeds(SEEDS));
}

#[test]
#[ignore = "soak"]
fn ten_thousand_random_worlds_recover() {
    run(seeds(SOAK));
}
