//! Worlds of everything from many seeds, each held against its model.

use std::ops::Range;

use world::{Counts, play};

/// Seeds of every test run, and steps of each of their worlds.
const SEEDS: Range<u64> = 0..120;
const STEPS: u64 = 300;
/// Steps of the long run.
const LONG: u64 = 100_000;

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

/// That worlds show what they are for.
fn check(counts: &Counts, steps: u64) {
    for (what, each) in [
        ("joined", 100),
        ("joined again", 2000),
        ("left", 500),
        ("removed", 400),
        ("expired", 400),
        ("abandoned", 10_000),
        ("other key", 500),
        ("policies", 60),
        ("server restarts", 300),
        ("sent", 10),
        ("arrived", 40),
        ("allowed", 60),
        ("forbidden", 10),
        ("cut in 1 s", 100),
    ] {
        let (is, least) = (counts.get(what).copied().unwrap_or(0), steps / each);
        assert!(is >= least, "{what}: {is}, and at least {least} were expected: {counts:?}");
    }
}

#[test]
fn co_16_pf_13_every_world_is_where_the_model_is() {
    let (mut sum, seeds) = (Counts::new(), seeds(SEEDS));
    let worlds = seeds.end - seeds.start;
    let played: Vec<_> = std::thread::scope(|scope| {
        let halves = [0, 1].map(|half| {
            let seeds = seeds.clone().filter(move |seed| seed % 2 == half);
            scope.spawn(|| seeds.map(|seed| play(seed, STEPS)).collect::<Vec<_>>())
        });
        halves.into_iter().flat_map(|half| half.join().expect("each told its story")).collect()
    });
    for (what, count) in played.into_iter().flatten() {
        *sum.entry(what).or_default() += count;
    }
    println!("{worlds} worlds: {sum:?}");
    if worlds >= SEEDS.end {
        check(&sum, worlds * STEPS);
    }
}

#[test]
fn a_seed_has_one_story() {
    for seed in 0..4 {
        // Each in a thread of its own: there a key's nonces are looked after.
        let digests = || std::thread::spawn(move || world::digests(seed, 200)).join().unwrap();
        let (one, other) = (digests(), digests());
        let apart = one.iter().zip(&other).position(|(one, other)| one != other);
        assert_eq!(apart, None, "seed {seed}");
    }
}

#[test]
#[ignore = "soak"]
fn a_hundred_thousand_steps_in_one_world() {
    let counts = play(1_000_000, LONG);
    println!("{LONG} steps: {counts:?}");
    check(&counts, LONG);
}
