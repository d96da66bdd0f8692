//! Preshared keys that change: by a schedule, with clocks apart, and by hand.

use std::sync::Arc;

use node::{KeyStatus, Preshared, Schedule};
use noise::{KeyMaterial, PresharedKey};
use sim::world::Fault;

use super::*;

const OVERLAP: Duration = Duration::from_secs(60);

/// A schedule that changes every `period`.
fn schedule(period: Duration) -> Preshared {
    let bytes = (0..200).flat_map(|block| [block; KeyMaterial::BLOCK_LEN]).collect();
    let material = KeyMaterial::new(bytes).expect("whole blocks");
    let schedule = Schedule::new(material, period, OVERLAP.min(period / 2));
    Preshared::Scheduled(Arc::new(schedule.expect("half a period at most")))
}

/// Two hosts with this schedule; the wall clock of the second is `apart_s` ahead.
fn scheduled(seed: u64, period: Duration, apart_s: i64) -> (World, HostId, HostId) {
    let mut world = fresh(seed);
    let (a, b) = (world.host(false), world.host(true));
    let keys = schedule(period);
    world.meet(a, b, keys.clone());
    world.meet(b, a, keys);
    let now = world.now();
    // 100 s before a day begins, UTC.
    world.fault_at(now, Fault::WallTo(a, 1_800_057_500));
    world.fault_at(now, Fault::WallTo(b, (1_800_057_500 + apart_s) as u64));
    world.run(Duration::from_millis(1));
    (world, a, b)
}

fn status(world: &World, host: HostId, about: HostId) -> KeyStatus {
    world.status(host, about).and_then(|peer| peer.keys).expect("it has a schedule")
}

fn lost(world: &World, a: HostId, b: HostId) -> u64 {
    missing(world, a, b) + missing(world, b, a)
}

/// Statement 004.5 (13): 30 s apart, as there, and as far as the overlap goes; with a new key each
/// day, and each minute or two.
#[test]
fn source_004_13_ends_that_switch_up_to_an_overlap_apart_lose_no_packet() {
    for (seed, period_s, apart_s) in [
        (1, 86_400, 30),
        (2, 86_400, -30),
        (3, 86_400, 60),
        (4, 86_400, -60),
        (5, 120, 59),
        (6, 120, -60),
        (7, 300, 60),
        (8, 10, 5),
        (9, 10, -5),
        (10, 10, 0),
    ] {
        let (mut world, a, b) = scheduled(seed, seconds(period_s), apart_s);
        world.set_weather(line(20));
        talk(&mut world, &[(a, b), (b, a)], Duration::from_millis(200), 10 * MINUTE);
        let what = format!("{period_s} s, {apart_s} s apart");
        expect(&world, lost(&world, a, b) == 0, &format!("{what}: something is lost"));
        let refused = [a, b].map(|host| world.node(host).counters().drops().count());
        expect(&world, refused == [0, 0], &format!("{what}: a handshake is refused"));
        // What is measured has travelled: clocks a whole overlap apart may seem further apart.
        let is_edge = 2 * apart_s.unsigned_abs() >= period_s || apart_s.unsigned_abs() >= 60;
        for (host, other) in [(a, b), (b, a)] {
            let told = status(&world, host, other);
            expect(&world, !told.is_refused, &format!("{what}: {told:?}"));
            expect(&world, is_edge || !told.are_clocks_apart(), &format!("{what}: {told:?}"));
        }
    }
}

/// Each key gets its sessions: a switch is not left to the renewal after two minutes.
#[test]
fn source_004_13_after_a_switch_the_new_key_is_in_use_as_soon_as_the_old_one_ends() {
    let (mut world, a, b) = scheduled(11, seconds(86_400), 0);
    // The session is made 90 s before midnight, and would do until 30 s after it.
    world.run(seconds(10));
    talk(&mut world, &[(a, b)], Duration::from_millis(500), seconds(149));
    let before = initiations(&world);
    expect(&world, before == 2, &format!("{before}: the first, and its renewal after 120 s"));
    let (mut world, a, b) = scheduled(12, seconds(86_400), 0);
    // This one 20 s before, and would do until 100 s after it.
    world.run(seconds(80));
    talk(&mut world, &[(a, b)], Duration::from_millis(500), seconds(79));
    expect(&world, initiations(&world) == 1, "the old key holds for a minute");
    talk(&mut world, &[(a, b)], Duration::from_millis(500), seconds(3));
    expect(&world, initiations(&world) == 2, "and then the new one is agreed");
    expect(&world, lost(&world, a, b) == 0, "nothing is lost");
    // A link at rest stays at rest.
    let (mut world, a, b) = scheduled(13, seconds(10), 0);
    world.send(a, b, 64);
    world.run(MINUTE);
    expect(&world, initiations(&world) == 1, "a link at rest renews nothing");
}

/// A clock that is wrong by more than the overlap: it is told before anything fails, by whom an
/// initiation reaches; when it fails that is told as well; and it mends with the clock.
#[test]
fn source_004_13_a_clock_that_is_wrong_by_more_than_the_overlap_is_told() {
    let (mut world, a, b) = scheduled(14, seconds(86_400), 90);
    // Yesterday still at both ends.
    world.send(b, a, 64);
    world.run(seconds(1));
    expect(&world, lost(&world, a, b) == 0, "the keys are the same still");
    let told = status(&world, a, b);
    let ahead_ms = told.ahead_ms.unwrap_or_default();
    expect(&world, told.are_clocks_apart(), &format!("{told:?}"));
    expect(&world, (89_900..=90_100).contains(&ahead_ms), &format!("{ahead_ms} ms"));
    // A day ahead, and without a session: nothing is agreed.
    let apart = |world: &mut World, by_s| {
        let now = world.now();
        world.fault_at(now, Fault::WallJump(b, by_s));
        world.run(Duration::from_millis(1));
    };
    apart(&mut world, 24 * 3600);
    world.fault_at(world.now(), Fault::Restart(b));
    world.run(Duration::from_millis(1));
    talk(&mut world, &[(b, a)], SECOND, seconds(30));
    expect(&world, status(&world, b, a).is_refused, "the initiator does not read the response");
    expect(&world, status(&world, a, b).are_clocks_apart(), "the responder says why");
    apart(&mut world, -24 * 3600 - 90);
    recovers(&mut world, a, b, MINUTE);
}

/// Both ends are told a new key by hand, up to the overlap apart, whichever is first.
#[test]
fn source_004_14_a_key_changed_by_hand_at_both_ends_loses_nothing() {
    for (seed, apart_s) in [(21, 1), (22, 30), (23, 57)] {
        let (mut world, a, b) = pair(seed);
        for round in 0..4 {
            let key = PresharedKey::from_bytes([round + 1; 32]);
            let order = if round % 2 == 0 { [a, b] } else { [b, a] };
            for host in order {
                let about = if host == a { b } else { a };
                let key = key.clone();
                world.alter(host, about, |peer| peer.preshared_key = Preshared::Key(key, OVERLAP));
                let flows = [(a, b), (b, a)];
                talk(&mut world, &flows, Duration::from_millis(300), seconds(apart_s));
            }
            talk(&mut world, &[(a, b), (b, a)], Duration::from_millis(300), 3 * MINUTE);
        }
        expect(&world, lost(&world, a, b) == 0, "nothing is lost");
        let refused = [a, b].map(|host| world.node(host).counters().drops().count());
        expect(&world, refused == [0, 0], "no handshake is refused");
    }
}

/// An end that was told, and one that was started with the new key alone.
#[test]
fn source_004_14_who_knows_the_new_key_alone_is_understood_at_the_second_try() {
    let (mut world, a, b) = pair(24);
    let key = PresharedKey::from_bytes([9; 32]);
    let new = key.clone();
    world.alter(a, b, |peer| peer.preshared_key = Preshared::Key(new, OVERLAP));
    world.alter(b, a, |peer| peer.preshared_key = key.into());
    let now = world.now();
    world.fault_at(now, Fault::Restart(b));
    world.run(SECOND);
    recovers(&mut world, a, b, seconds(13));
}
