//! Peers that are not there, and strangers that are.

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use node::Reason;
use noise::PresharedKey;
use sim::rng::Rng;
use sim::world::Fault;

use super::*;

#[test]
fn dp_22_traffic_to_an_offline_peer_stays_bounded_and_is_given_up() {
    let mut world = fresh(22);
    let (a, b) = (world.host(false), world.host(false));
    world.join(a, b);
    world.fault(&Fault::Down(b));
    for _ in 0..20_000 {
        world.send(a, b, 1000);
        world.run(Duration::from_millis(5));
        expect(&world, world.node(a).staged() <= 128, "at most 128 packets wait");
    }
    let count = initiations(&world);
    expect(&world, count <= 21, &format!("{count} initiations in 100 s"));
    world.run(seconds(96));
    expect(&world, world.node(a).staged() == 0, "given up after 90 s");
    let expired = world.node(a).counters().dropped(Reason::StageExpired);
    expect(&world, expired == 128, &format!("{expired} expired"));
    let given_up = initiations(&world);
    world.run(60 * MINUTE);
    expect(&world, initiations(&world) == given_up, "and left in peace");
    world.fault(&Fault::Up(b));
    recovers(&mut world, a, b, seconds(12));
}

/// What an attacker has: rubbish, genuine initiations of strangers, and one of a friend.
fn ammunition(world: &mut World, target: HostId, friend: HostId) -> Vec<Vec<u8>> {
    let strangers: Vec<HostId> = (0..40).map(|_| world.host(true)).collect();
    world.record();
    for &stranger in &strangers {
        world.meet(stranger, target, PresharedKey::default());
        world.send(stranger, target, 64);
    }
    world.fault(&Fault::Restart(friend));
    world.send(friend, target, 64);
    world.run(SECOND);
    for &stranger in &strangers {
        world.fault(&Fault::Down(stranger));
    }
    let tape = world.recorded().into_iter();
    let initiations =
        tape.filter(|(at, bytes)| *at == target && Kind::of(bytes) == Kind::Initiation);
    let mut all: Vec<Vec<u8>> = initiations.map(|entry| entry.1).collect();
    assert_eq!(all.len(), 41);
    let mut rng = Rng::new(1);
    for _ in 0..20 {
        let mut rubbish = vec![0; 148];
        rng.fill(&mut rubbish);
        rubbish[..4].copy_from_slice(&[1, 0, 0, 0]);
        all.push(rubbish);
    }
    all
}

/// 5,000 initiations a second against a host that can read 1,000.
#[test]
fn dp_01_a_flood_stops_neither_data_nor_an_honest_handshake() {
    let (mut world, a, b) = pair(1);
    let (newcomer, late) = (world.host(true), world.host(true));
    for host in [newcomer, late] {
        world.join(host, b);
    }
    let shots = ammunition(&mut world, b, a);
    world.set_handshake_cost(b, Duration::from_millis(1));
    let began = world.now();
    let until = began + seconds(12);
    let gap = Duration::from_millis(2);
    world.flow(Flow { from: a, to: b, gap, until, len: 200 });
    world.flow(Flow { from: b, to: a, gap, until, len: 201 });
    let mut rng = Rng::new(2);
    let (mut shot, mut joined) = (0, None);
    while world.now() < until {
        let spoofed =
            Ipv6Addr::from_bits((0x2001_0db8_ffff << 80) | u128::from(rng.next_u64()) << 8);
        let from = SocketAddr::from((spoofed, 1024 + rng.below(60_000) as u16));
        world.inject(from, b, &shots[shot % shots.len()]);
        shot += 1;
        world.run(Duration::from_micros(200));
        if joined.is_none() && world.now() > began + seconds(3) {
            joined = Some(world.now());
            world.send(late, b, 64);
        }
    }
    world.run(SECOND);
    let lost = missing(&world, a, b) + missing(&world, b, a);
    expect(&world, lost == 0, &format!("{lost} packets of a live session lost"));
    let latest = world.ledger().passed(late, b).latest;
    let took = latest.zip(joined).map(|(at, since)| at.since(since));
    // The first initiation is answered with a cookie; the second, 5 s later, has it.
    let in_time = took.is_some_and(|took| took <= Duration::from_millis(5_800));
    expect(&world, in_time, &format!("an honest handshake took {took:?}"));
    expect(&world, world.watch().count(b, Kind::Cookie) > 1000, "the host was under load");
    let counters = world.node(b).counters();
    let names: Vec<_> = counters.drops().map(|(reason, count)| (reason.name(), count)).collect();
    expect(&world, counters.dropped_in() > 10_000, &format!("{names:?}"));
    // Afterwards the newcomer needs no cookie any more.
    world.run(seconds(3));
    recovers(&mut world, newcomer, b, SECOND);
}
