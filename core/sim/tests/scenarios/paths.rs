//! Translators, roaming, partitions, restarts.

use std::time::Duration;

use sim::nat::{Allocation, Behaviour};
use sim::world::{Fault, NatId};

use super::*;

const KINDS: [Behaviour; 4] = [
    Behaviour::FULL_CONE,
    Behaviour::ADDRESS_RESTRICTED,
    Behaviour::PORT_RESTRICTED,
    Behaviour::SYMMETRIC,
];

/// A host behind a translator, a server in the open, and a session.
fn behind(seed: u64, behaviour: Behaviour, keepalive_s: u16) -> (World, HostId, HostId, NatId) {
    let mut world = fresh(seed);
    let nat = world.nat(behaviour);
    let (inside, server) = (world.host_behind(nat), world.host(false));
    world.join(inside, server);
    world.alter(inside, server, |peering| peering.keepalive_s = keepalive_s);
    world.send(inside, server, 64);
    world.run(SECOND);
    expect(&world, missing(&world, inside, server) == 0, "the way out is open");
    (world, inside, server, nat)
}

#[test]
fn nt_10_a_persistent_keepalive_holds_the_mapping() {
    for behaviour in KINDS {
        for (expiry_s, keepalive_s) in [(30, 25), (2, 1)] {
            let short = Behaviour {
                expiry_ns: expiry_s * 1_000_000_000,
                inbound_refresh: false,
                ..behaviour
            };
            let (mut world, inside, server, _) = behind(10, short, keepalive_s);
            for _ in 0..20 {
                world.run(seconds(37));
                world.send(server, inside, 64);
                world.run(SECOND);
                expect(&world, missing(&world, server, inside) == 0, "the server may begin");
            }
        }
    }
}

#[test]
fn nt_10_a_lost_mapping_heals_with_the_next_packet_from_inside() {
    for behaviour in KINDS {
        let short = Behaviour { expiry_ns: 30_000_000_000, ..behaviour };
        let (mut world, inside, server, _) = behind(11, short, 0);
        world.run(seconds(60));
        world.send(server, inside, 64);
        world.run(SECOND);
        expect(&world, missing(&world, server, inside) == 1, "nothing holds the mapping");
        recovers(&mut world, inside, server, seconds(2));
    }
}

#[test]
fn nt_12_a_session_survives_a_translator_that_forgets() {
    let random = Behaviour { allocation: Allocation::Random, ..Behaviour::PORT_RESTRICTED };
    let (mut world, inside, server, nat) = behind(12, random, 0);
    let until = world.now() + 10 * MINUTE;
    let mut endpoints = std::collections::BTreeSet::new();
    for second in (10..600).step_by(10) {
        world.fault_at(world.now() + seconds(second), Fault::Rebind(nat));
    }
    let gap = Duration::from_millis(100);
    world.flow(Flow { from: inside, to: server, gap, until, len: 100 });
    world.flow(Flow { from: server, to: inside, gap, until, len: 101 });
    while world.now() < until {
        world.run(SECOND);
        endpoints.insert(world.status(server, inside).and_then(|status| status.endpoint));
    }
    world.run(SECOND);
    expect(&world, endpoints.len() > 50, "the port did change");
    let count = initiations(&world);
    expect(&world, count <= 6, &format!("{count} handshakes: a session was lost"));
    expect(&world, missing(&world, inside, server) == 0, "the way out never closes");
    // The way in is closed from a change until the next packet out has arrived: 0.1 s and a bit.
    let lost = missing(&world, server, inside);
    expect(&world, lost <= 59 * 4, &format!("{lost} packets lost by 59 changes"));
}

#[test]
fn dp_17_a_peer_that_roams_is_followed_at_once() {
    for seed in [70, 71] {
        let (mut world, a, b) = pair(seed);
        for _ in 0..20 {
            world.fault(&Fault::Roam(a));
            world.send(a, b, 64);
            world.run(Duration::from_millis(100));
            let endpoint = world.status(b, a).and_then(|status| status.endpoint);
            expect(&world, endpoint == Some(world.address(a)), "the endpoint follows");
            world.send(b, a, 64);
            world.run(SECOND);
        }
        expect(&world, missing(&world, a, b) + missing(&world, b, a) == 0, "nothing is lost");
        expect(&world, initiations(&world) == 1, "roaming needs no handshake");
    }
}

#[test]
fn a_path_that_was_cut_works_again() {
    for cut in [seconds(10), seconds(200), 30 * MINUTE] {
        let (mut world, a, b) = pair(72);
        world.fault(&Fault::Cut(a, b));
        talk(&mut world, &[(a, b), (b, a)], SECOND, cut);
        world.fault(&Fault::Mend(a, b));
        recovers(&mut world, a, b, storm::RECOVERY_MAX);
    }
}

/// Nobody tells the other end; it finds out.
#[test]
fn a_restarted_node_is_found_again_from_either_end() {
    for seed in 0..20 {
        for restarted in [0, 1] {
            let (mut world, a, b) = pair(80 + seed);
            talk(&mut world, &[(a, b), (b, a)], SECOND, seconds(10 + 13 * seed));
            world.fault(&Fault::Restart([a, b][restarted]));
            recovers(&mut world, a, b, storm::RECOVERY_MAX);
        }
    }
}

#[test]
fn dp_20_dp_21_new_keys_apply_without_a_gap() {
    let (mut world, a, b) = pair(90);
    talk(&mut world, &[(a, b), (b, a)], SECOND, seconds(10));
    // A pre-shared key applies from the next handshake; the session lives on.
    let before = initiations(&world);
    world.fault(&Fault::NewPreshared(a, b));
    talk(&mut world, &[(a, b), (b, a)], SECOND, seconds(60));
    expect(&world, initiations(&world) == before, "the session lives on");
    talk(&mut world, &[(a, b), (b, a)], SECOND, 5 * MINUTE);
    expect(&world, missing(&world, a, b) + missing(&world, b, a) == 0, "nothing is lost");
    for host in [a, b] {
        world.fault(&Fault::NewKey(host));
        recovers(&mut world, a, b, storm::RECOVERY_MAX);
    }
}

#[test]
fn dp_21_one_sided_pre_shared_keys_make_no_session() {
    let mut world = fresh(21);
    let (a, b) = (world.host(false), world.host(false));
    world.meet(a, b, noise::PresharedKey::from_bytes([1; 32]));
    world.meet(b, a, noise::PresharedKey::from_bytes([2; 32]));
    talk(&mut world, &[(a, b), (b, a)], SECOND, 2 * MINUTE);
    expect(&world, world.ledger().total().delivered == 0, "no session");
    world.meet(b, a, noise::PresharedKey::from_bytes([1; 32]));
    recovers(&mut world, a, b, seconds(12));
}

#[test]
fn a_superpacket_arrives_as_its_segments() {
    let (mut world, a, b) = pair(95);
    for (segments, len) in [(1, 8), (2, 1392), (45, 1392), (44, 1371), (3, 100)] {
        world.send_superpacket(a, b, segments, len);
        world.send_superpacket(b, a, segments, len);
        world.run(SECOND);
    }
    expect(&world, missing(&world, a, b) + missing(&world, b, a) == 0, "all of them");
    expect(&world, world.ledger().passed(a, b).delivered == 96, "one and 95 segments");
}

/// Half a gigabit a second goes on while its path becomes 150 ms shorter, or longer, or leads to
/// another address: what was overtaken by 7,000 datagrams is no replay, and does not lead back.
#[test]
fn dp_12_a_stream_of_500_mbit_s_moves_between_paths_150_ms_apart_and_nothing_is_dropped() {
    let mut seed = 200;
    for frames in [false, true] {
        for (roams, from_ms, to_ms) in [(false, 151, 1), (false, 1, 151), (true, 151, 1)] {
            seed += 2;
            let (mut world, a, b) = pair(seed);
            [a, b].iter().for_each(|&host| world.set_frames(host, frames));
            world.run(3 * MINUTE);
            recovers(&mut world, a, b, seconds(5));
            world.set_weather_from(a, b, line(from_ms));
            world.run(SECOND);
            let before = [missing(&world, a, b), missing(&world, b, a)];
            for ms in 0..600 {
                if ms == 300 {
                    world.set_weather_from(a, b, line(to_ms));
                    if roams {
                        world.fault(&Fault::Roam(a));
                    }
                }
                // Of UDP, and of TCP, which has an order.
                let (segments, len) = if ms % 2 == 0 { (45, 1392) } else { (46, 1371) };
                world.send_superpacket(a, b, segments, len);
                // What is under way to a's old place, or sent there, is lost, and is not sent.
                if !roams || !(280..340).contains(&ms) {
                    world.send(b, a, 64);
                }
                world.run(Duration::from_millis(1));
            }
            world.run(SECOND);
            let what = format!("frames {frames}, {from_ms} to {to_ms} ms, roams {roams}");
            let after = [missing(&world, a, b), missing(&world, b, a)];
            expect(&world, before == after, &format!("{what}: {before:?}, then {after:?}"));
        }
    }
}
