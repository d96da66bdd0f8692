//! Clocks that jump, machines that sleep, and how often handshakes and keepalives come.

use std::time::Duration;

use node::Reason;
use noise::Drop;
use sim::world::Fault;

use super::*;

const YEAR_S: i64 = 365 * 24 * 3600;

#[test]
fn dp_11_a_quarter_of_an_hour_has_at_most_nine_handshakes() {
    for flows in [&[(0, 1), (1, 0)][..], &[(0, 1)], &[(1, 0)]] {
        let (mut world, a, b) = pair(11);
        let flows: Vec<_> = flows.iter().map(|&(x, y)| ([a, b][x], [a, b][y])).collect();
        talk(&mut world, &flows, Duration::from_millis(200), 15 * MINUTE);
        let count = initiations(&world);
        expect(&world, (5..=9).contains(&count), &format!("{count} handshakes"));
        expect(&world, missing(&world, a, b) + missing(&world, b, a) == 0, "nothing is lost");
    }
}

/// Nothing is sent within an hour, by anybody.
fn stays_silent(world: &mut World) {
    let kinds = [Kind::Initiation, Kind::Response, Kind::Keepalive, Kind::Data];
    let before = kinds.map(|kind| world.watch().total(kind));
    world.run(60 * MINUTE);
    let after = kinds.map(|kind| world.watch().total(kind));
    expect(world, before == after, &format!("{before:?} {after:?}"));
}

#[test]
fn dp_11_an_idle_link_is_silent() {
    let (mut world, a, b) = pair(12);
    world.run(seconds(30));
    stays_silent(&mut world);
    // Its secrets are gone, and the next packet makes new ones.
    recovers(&mut world, a, b, SECOND);
}

/// What was lost is reported under traffic, and nothing is when it is over.
#[test]
fn dp_11_an_idle_link_with_frames_is_silent() {
    let mut world = fresh(14);
    let (a, b) = (world.host(false), world.host(false));
    [a, b].iter().for_each(|&host| world.set_frames(host, true));
    world.join(a, b);
    world.set_weather(Impairment { loss: 0.02, ..line(20) });
    talk(&mut world, &[(a, b), (b, a)], Duration::from_millis(2), 3 * MINUTE);
    for (host, other) in [(a, b), (b, a)] {
        let told = world.node(host).weather(&world.key(other)).map_or(0.0, |link| link.loss_out);
        expect(&world, told > 0.0, "what was lost is reported");
    }
    world.set_weather(line(20));
    world.run(MINUTE);
    stays_silent(&mut world);
    recovers(&mut world, a, b, SECOND);
}

#[test]
fn dp_11_a_persistent_keepalive_renews_its_session_and_no_more() {
    let (mut world, a, b) = pair(13);
    world.alter(a, b, |peering| peering.keepalive_s = 25);
    let before = initiations(&world);
    world.run(60 * MINUTE);
    let count = initiations(&world) - before;
    // One each 120 s at the most, and a keepalive each 25 s notices.
    expect(&world, (20..=30).contains(&count), &format!("{count} handshakes in an hour"));
    let keepalives = world.watch().count(a, Kind::Keepalive);
    expect(&world, (100..=180).contains(&keepalives), &format!("{keepalives} keepalives"));
}

#[test]
fn dp_23_a_keepalive_is_not_answered_by_a_keepalive() {
    let (mut world, a, b) = pair(23);
    world.run(9 * SECOND - Duration::from_millis(100));
    expect(&world, world.watch().total(Kind::Keepalive) == 0, "not before 10 s");
    world.run(10 * MINUTE);
    expect(&world, world.watch().count(b, Kind::Keepalive) == 1, "the receiver of data sends one");
    expect(&world, world.watch().count(a, Kind::Keepalive) == 0, "nobody answers it");
}

#[test]
fn wall_clocks_may_jump_while_a_session_lives() {
    for jump in 0..3 {
        for first in [0, 1] {
            let (mut world, a, b) = pair(30 + jump);
            let hosts = [a, b];
            for host in [hosts[first], hosts[1 - first]] {
                world.fault(&match jump {
                    0 => Fault::WallJump(host, YEAR_S),
                    1 => Fault::WallJump(host, -3600),
                    _ => Fault::WallTo(host, 0),
                });
                talk(&mut world, &[(a, b), (b, a)], SECOND, 5 * MINUTE);
            }
            let lost = missing(&world, a, b) + missing(&world, b, a);
            expect(&world, lost == 0, &format!("{lost} packets lost by a jump"));
            let count = initiations(&world);
            expect(&world, count <= 6, &format!("{count} handshakes in ten minutes"));
        }
    }
}

/// WireGuard's own limit (CVE-2021-46873): timestamps of the future outlive the clock that made
/// them. The other end can still begin; the one with the wrong clock cannot until it is right.
#[test]
fn a_future_timestamp_and_a_restart_leave_only_the_other_end_able_to_begin() {
    let (mut world, a, b) = pair(40);
    world.fault(&Fault::WallJump(a, YEAR_S));
    talk(&mut world, &[(a, b)], SECOND, 3 * MINUTE);
    world.fault(&Fault::WallJump(a, -YEAR_S));
    world.fault(&Fault::Restart(a));
    world.mark();
    talk(&mut world, &[(a, b)], SECOND, MINUTE);
    let heard = world.ledger().passed(a, b).first_marked;
    expect(&world, heard.is_none(), "replay protection has the last word");
    let reason = Reason::Protocol(Drop::OldTimestamp);
    expect(&world, world.node(b).counters().dropped(reason) > 5, "and says so");
    recovers(&mut world, a, b, storm::RECOVERY_MAX);
}

#[test]
fn lc_06_a_machine_that_slept_is_reached_again() {
    for sleep_s in [2, 200, 3600] {
        for other_talks in [false, true] {
            let (mut world, a, b) = pair(50);
            talk(&mut world, &[(a, b), (b, a)], SECOND, seconds(30));
            world.fault(&Fault::Sleep(a, seconds(sleep_s)));
            if other_talks {
                talk(&mut world, &[(b, a)], SECOND, seconds(sleep_s - 1));
            } else {
                world.run(seconds(sleep_s));
            }
            recovers(&mut world, a, b, storm::RECOVERY_MAX);
        }
    }
}
