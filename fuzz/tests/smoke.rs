//! Every body over its seeds, over the local corpus where there is one, and over 20,000 mutations
//! of them: what a stable toolchain can do of a fuzzing run. The same inputs on every machine.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, path::Path};

const MUTATIONS: usize = 20_000;

/// SplitMix64, so that a failure can be had again.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

fn mutate(random: &mut Random, inputs: &[Vec<u8>]) -> Vec<u8> {
    const TELLING: [u8; 12] = [0, 1, 4, 6, 17, 44, 58, 60, 0x7f, 0x80, 0xfe, 0xff];
    let mut bytes = inputs[random.below(inputs.len())].clone();
    for _ in 0..=random.below(5) {
        let at = random.below(bytes.len());
        match random.below(7) {
            0 if !bytes.is_empty() => bytes[at] = random.next() as u8,
            1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            2 if !bytes.is_empty() => bytes[at] = TELLING[random.below(TELLING.len())],
            3 => bytes.truncate(at),
            4 => bytes.insert(at, random.next() as u8),
            5 if !bytes.is_empty() => drop(bytes.remove(at)),
            _ => {
                let other = &inputs[random.below(inputs.len())];
                let start = random.below(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[start..]);
            }
        }
    }
    bytes
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("libfuzzer/corpus").join(target);
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries.filter_map(|entry| fs::read(entry.ok()?.path()).ok()).collect()
}

#[test]
fn bodies_keep_their_oracles_over_seeds_corpus_and_mutations() {
    let next = AtomicUsize::new(0);
    let take = || fuzz::TARGETS.get(next.fetch_add(1, Ordering::Relaxed));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((name, body)) = take() {
                    hold(name, *body);
                }
            });
        }
    });
}

fn hold(name: &str, body: fuzz::Body) {
    let seeds = fuzz::seeds(name);
    seeds.iter().chain(&corpus(name)).for_each(|input| body(input));
    body(&[]);
    let mut random = Random(0x5eed);
    for _ in 0..MUTATIONS {
        let input = mutate(&mut random, &seeds);
        if std::panic::catch_unwind(|| body(&input)).is_err() {
            panic!("{name} breaks on {input:02x?}");
        }
    }
}
