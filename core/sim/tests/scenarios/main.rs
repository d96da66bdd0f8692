//! Worlds made for one question each. Random ones are in `worlds.rs`.

mod clocks;
mod keys;
mod load;
mod paths;
mod reach;
mod weather;

use std::time::Duration;

use sim::impair::Impairment;
use sim::world::{Flow, HostId, Kind, World, storm};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A new world. Keys follow from its seed, so an earlier world of that seed had the same ones.
fn fresh(seed: u64) -> World {
    noise::forget_nonces();
    World::new(seed)
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn line(delay_ms: u64) -> Impairment {
    Impairment { delay_us: delay_ms * 1000, ..Impairment::NONE }
}

/// Two hosts with a session that the first initiated.
fn pair(seed: u64) -> (World, HostId, HostId) {
    let mut world = fresh(seed);
    let (a, b) = (world.host(seed % 2 == 1), world.host(seed % 2 == 1));
    world.join(a, b);
    world.send(a, b, 64);
    world.run(SECOND);
    expect(&world, world.ledger().passed(a, b).delivered == 1, "the first packet arrives");
    (world, a, b)
}

/// Fails with the world's story.
fn expect(world: &World, holds: bool, what: &str) {
    if !holds {
        world.fail(what);
    }
}

/// Both send, once every `gap`, for `time`; one of them may be silent.
fn talk(world: &mut World, flows: &[(HostId, HostId)], gap: Duration, time: Duration) {
    let until = world.now() + time;
    for &(from, to) in flows {
        world.flow(Flow { from, to, gap, until, len: 80 + from.0 });
    }
    world.run(time + SECOND);
}

/// Packets from one to the other that did not arrive.
fn missing(world: &World, from: HostId, to: HostId) -> u64 {
    let passed = world.ledger().passed(from, to);
    passed.sent - passed.delivered
}

fn initiations(world: &World) -> u64 {
    world.watch().total(Kind::Initiation)
}

/// Both send once a second; both must hear the other within `bound`.
fn recovers(world: &mut World, a: HostId, b: HostId, bound: Duration) {
    world.mark();
    let began = world.now();
    talk(world, &[(a, b), (b, a)], SECOND, bound);
    for (from, to) in [(a, b), (b, a)] {
        let first = world.ledger().passed(from, to).first_marked;
        let in_time = first.is_some_and(|first| first.since(began) <= bound);
        expect(world, in_time, &format!("nothing from {from} to {to} in {bound:?}: {first:?}"));
    }
}

#[expect(clippy::disallowed_methods, reason = "the nonce oracle remembers keys for each thread")]
#[test]
fn a_seed_takes_the_same_course_again() {
    let course = |seed| {
        std::thread::spawn(move || {
            let report = storm::run(seed);
            (report.world.story().digest(), report.recovery, report.world.now())
        })
        .join()
        .expect("this seed is a good one")
    };
    assert_eq!(course(1), course(1));
    assert_ne!(course(1), course(2));
}

#[test]
#[should_panic(expected = "seed 7: as asked")]
fn a_failing_world_names_its_seed() {
    let (world, ..) = pair(7);
    world.fail("as asked");
}
