//! A world with everything in it, from a seed: the server with its books, relays, translators,
//! STUN servers, and machines that join, leave, roam, are cut off, restart, are renamed, tagged,
//! expired and removed, while the policy changes and packets go between them.
//!
//! What runs is what runs elsewhere: [`crate::protocol`], [`crate::app`], the store in a file, the
//! network in memory; `control`'s client and channel; the daemon's plan of a map; nodes with their
//! sessions, paths and filters in a `sim` world. Left out are HTTP, TLS and the kernel. All of it
//! has one virtual time.
//!
//! What is true is said by `model`: a list of members, words of a policy, a list of join keys. It
//! remembers how the books were at each version, so it knows what a machine with an old map may
//! do. Held against it are
//!
//! - at all times: every packet that arrives was let go by what its sender knew, and let in by
//!   what its receiver knows; names, addresses and keys are each one's own; joins, departures and
//!   new keys are in the books as the model expects; a second after a removal nobody who is in
//!   touch has the node as its peer; no ERROR is logged;
//! - in quiet, which comes after every few dozen steps: each machine's map is that of the model
//!   in everything, its node has these peers, who may speak is heard within half a minute, who may
//!   not is not, and answers come back.
//!
//! A world that differs panics with its seed and the last of its story. `WARREN_SEED=n` runs one
//! world, `WARREN_SEEDS=first..last` or `WARREN_SEEDS=n` several.

mod errors;
mod machine;
mod model;
mod office;
mod quiet;
mod stage;
mod steps;
mod words;

use std::collections::BTreeMap;
use std::ops::Range;

use stage::Stage;

/// Seeds of every test run, and steps of each of their worlds.
const SEEDS: Range<u64> = 0..120;
const STEPS: u64 = 300;
/// Steps of the long run.
const LONG: u64 = 100_000;
/// Quiet comes after so many steps.
const QUIET_EVERY: u64 = 50;

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

fn play(seed: u64, steps: u64) -> BTreeMap<&'static str, u64> {
    let mut stage = Stage::new(seed);
    for step in 1..=steps {
        stage.step();
        if step % QUIET_EVERY == 0 {
            stage.quiet();
        }
    }
    stage.counts
}

/// That worlds show what they are for.
fn check(counts: &BTreeMap<&'static str, u64>, steps: u64) {
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
    let (mut sum, seeds) = (BTreeMap::new(), seeds(SEEDS));
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
        let digests = || {
            let play = move || {
                let mut stage = Stage::new(seed);
                let mut digests = Vec::new();
                for step in 1..=200 {
                    stage.step();
                    if step % QUIET_EVERY == 0 {
                        stage.quiet();
                    }
                    digests.push(stage.world.story().digest());
                }
                digests
            };
            std::thread::spawn(play).join().unwrap()
        };
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
