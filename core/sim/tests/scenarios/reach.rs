//! Managed hosts, which find each other by a map, STUN servers and relays.

use std::fmt::Write as _;
use std::time::Duration;

use sim::nat::{Allocation, Behaviour};
use sim::world::Fault;

use super::*;

/// Every kind of datagram.
const ALL: [sim::world::Kind; 6] = [
    sim::world::Kind::Initiation,
    sim::world::Kind::Response,
    sim::world::Kind::Cookie,
    sim::world::Kind::Keepalive,
    sim::world::Kind::Data,
    sim::world::Kind::Noise,
];

/// Where a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Open,
    OpenV6,
    FullCone,
    Restricted,
    PortRestricted,
    Symmetric,
    Counting,
    Double,
    Blocked,
}

const KINDS: [(Kind, &str); 9] = [
    (Kind::Open, "open"),
    (Kind::OpenV6, "open-v6"),
    (Kind::FullCone, "full-cone"),
    (Kind::Restricted, "restricted"),
    (Kind::PortRestricted, "port-restricted"),
    (Kind::Symmetric, "symmetric"),
    (Kind::Counting, "symmetric-counting"),
    (Kind::Double, "double"),
    (Kind::Blocked, "udp-blocked"),
];

/// Symmetric, but ports are given in order: the next one can be guessed.
const COUNTING: Behaviour =
    Behaviour { allocation: Allocation::Sequential, ..Behaviour::SYMMETRIC };

/// Two STUN servers and a relay.
fn managed(seed: u64) -> World {
    let mut world = fresh(seed);
    world.stun();
    world.stun();
    world.relay();
    world
}

fn place(world: &mut World, kind: Kind) -> HostId {
    let behind = |world: &mut World, behaviour| {
        let nat = world.nat(behaviour);
        world.host_behind(nat)
    };
    match kind {
        Kind::Open => world.host(false),
        Kind::OpenV6 => world.host(true),
        Kind::FullCone => behind(world, Behaviour::FULL_CONE),
        Kind::Restricted => behind(world, Behaviour::ADDRESS_RESTRICTED),
        Kind::PortRestricted => behind(world, Behaviour::PORT_RESTRICTED),
        Kind::Symmetric => behind(world, Behaviour::SYMMETRIC),
        Kind::Counting => behind(world, COUNTING),
        Kind::Double => {
            let carrier = world.nat(Behaviour::PORT_RESTRICTED);
            let home = world.nat_behind(carrier, Behaviour::PORT_RESTRICTED);
            world.host_behind(home)
        }
        Kind::Blocked => {
            let host = world.host(false);
            world.set_udp_blocked(host, true);
            host
        }
    }
}

/// Two hosts of these kinds, which know each other by the map.
fn meet(world: &mut World, a: Kind, b: Kind) -> (HostId, HostId) {
    let (a, b) = (place(world, a), place(world, b));
    world.join(a, b);
    world.manage(a);
    world.manage(b);
    world.run(seconds(3));
    (a, b)
}

/// Both send ten times a second for `time`.
fn chat(world: &mut World, a: HostId, b: HostId, time: Duration) {
    let until = world.now() + time;
    for (from, to) in [(a, b), (b, a)] {
        world.flow(Flow { from, to, gap: Duration::from_millis(100), until, len: 100 });
    }
    world.run(time);
}

/// Milliseconds until both ends send directly; none if that takes more than 3 s.
fn upgrade(world: &mut World, a: HostId, b: HostId) -> Option<u64> {
    let began = world.now();
    let until = began + seconds(3);
    for (from, to) in [(a, b), (b, a)] {
        world.flow(Flow { from, to, gap: Duration::from_millis(100), until, len: 100 });
    }
    let mut direct = None;
    while world.now() < until {
        world.run(Duration::from_millis(50));
        let both = world.route_name(a, b) == "direct" && world.route_name(b, a) == "direct";
        match (both, direct) {
            (true, None) => direct = Some(world.now().since(began).as_millis() as u64),
            (false, Some(_)) => direct = None,
            _ => {}
        }
    }
    direct
}

/// What the theory of translators says: whether two can speak without a relay.
fn theory(a: Kind, b: Kind) -> bool {
    let strict = |kind| matches!(kind, Kind::PortRestricted | Kind::Double | Kind::Symmetric);
    match (a, b) {
        (Kind::Blocked, _) | (_, Kind::Blocked) => false,
        // IPv6 alone speaks with IPv6 alone.
        (Kind::OpenV6, other) | (other, Kind::OpenV6) => other == Kind::OpenV6,
        (Kind::Symmetric, other) | (other, Kind::Symmetric) => {
            !strict(other) && other != Kind::Counting
        }
        // Both would have to guess.
        (Kind::Counting, Kind::Counting) => false,
        _ => true,
    }
}

#[test]
fn nt_11_every_pair_connects_and_all_that_can_go_direct() {
    let mut table = String::from("# Columns: one end, the other end, how they speak after 3 s.\n");
    for (i, (a, a_name)) in KINDS.into_iter().enumerate() {
        for (b, b_name) in KINDS.into_iter().skip(i) {
            let mut routes = Vec::new();
            for seed in 0..3 {
                let mut world = managed(500 + seed);
                let (one, two) = meet(&mut world, a, b);
                let direct = upgrade(&mut world, one, two);
                world.run(seconds(1));
                expect(&world, missing(&world, one, two) == 0, "every packet arrives");
                expect(&world, missing(&world, two, one) == 0, "every packet arrives");
                routes.push(if direct.is_some() { "direct" } else { "relay" });
                if theory(a, b) {
                    let what = format!("{a_name} and {b_name} can speak directly");
                    expect(&world, direct.is_some(), &what);
                }
            }
            routes.dedup();
            writeln!(table, "{a_name:20}{b_name:20}{}", routes.join("/")).expect("a string");
        }
    }
    let snapshot = include_str!("grid.txt");
    assert!(table == snapshot, "the table differs from tests/scenarios/grid.txt:\n{table}");
}

/// Longest time, in milliseconds, in which nothing that `from` sent reached `to`, while packets
/// went every 20 ms for `time`; what `change` does comes after a second.
fn longest_gap(
    world: &mut World,
    (from, to): (HostId, HostId),
    time: Duration,
    change: impl FnOnce(&mut World),
) -> u64 {
    let until = world.now() + time;
    let gap = Duration::from_millis(20);
    for (from, to) in [(from, to), (to, from)] {
        world.flow(Flow { from, to, gap, until, len: 100 });
    }
    world.run(SECOND);
    change(world);
    let (mut longest, mut since, mut before) = (0, world.now(), 0);
    while world.now() < until {
        world.run(Duration::from_millis(10));
        let delivered = world.ledger().passed(from, to).delivered;
        if delivered != before {
            (since, before) = (world.now(), delivered);
        }
        longest = longest.max(world.now().since(since).as_millis() as u64);
    }
    world.run(SECOND);
    longest
}

fn routes(world: &World, a: HostId, b: HostId) -> [&'static str; 2] {
    [world.route_name(a, b), world.route_name(b, a)]
}

#[test]
fn a_direct_path_that_dies_is_left_for_the_relay_within_two_seconds_and_found_again() {
    for (seed, (a, b)) in (0..).zip([
        (Kind::Open, Kind::Open),
        (Kind::PortRestricted, Kind::PortRestricted),
        (Kind::Restricted, Kind::Symmetric),
        (Kind::Double, Kind::FullCone),
    ]) {
        let mut world = managed(520 + seed);
        let (a, b) = meet(&mut world, a, b);
        chat(&mut world, a, b, seconds(5));
        expect(&world, routes(&world, a, b) == ["direct"; 2], "direct at first");
        let before = initiations(&world);
        let cut = |world: &mut World| world.fault(&Fault::Cut(a, b));
        let gap = longest_gap(&mut world, (a, b), seconds(6), cut);
        expect(&world, gap <= 2_000, &format!("{gap} ms without a packet"));
        expect(&world, routes(&world, a, b) == ["relay"; 2], "by relay while it is cut");
        chat(&mut world, a, b, seconds(60));
        is_calm(&world, a, b);
        let mend = |world: &mut World| world.fault(&Fault::Mend(a, b));
        let gap = longest_gap(&mut world, (a, b), seconds(63), mend);
        expect(&world, gap <= 100, &format!("{gap} ms without a packet as the path comes back"));
        expect(&world, routes(&world, a, b) == ["direct"; 2], "direct again within a minute");
        is_calm(&world, a, b);
        expect(&world, initiations(&world) <= before + 4, "the session lives on");
    }
}

/// Neither end believes in losses that were none: of probes to nobody, of a path that was left.
fn is_calm(world: &World, a: HostId, b: HostId) {
    for (from, to) in [(a, b), (b, a)] {
        let weather = world.node(from).weather(&world.key(to));
        let calm = weather.is_some_and(|it| it.loss_out < 0.002);
        expect(world, calm, &format!("{weather:?}"));
    }
}

#[test]
fn dp_17_a_host_that_roams_is_followed_in_half_a_second() {
    for (seed, kind) in (0..).zip([Kind::Open, Kind::PortRestricted, Kind::Symmetric]) {
        let mut world = managed(530 + seed);
        let (a, b) = meet(&mut world, Kind::Open, kind);
        chat(&mut world, a, b, seconds(5));
        for (roams, from, to) in [(b, a, b), (b, b, a), (a, a, b), (a, b, a)] {
            let before = initiations(&world);
            let roam = |world: &mut World| world.fault(&Fault::Roam(roams));
            let gap = longest_gap(&mut world, (from, to), seconds(5), roam);
            expect(&world, gap <= 500, &format!("{gap} ms without a packet from {from} to {to}"));
            expect(&world, routes(&world, a, b) == ["direct"; 2], "direct again");
            expect(&world, initiations(&world) <= before + 1, "roaming needs no handshake");
        }
    }
}

#[test]
fn nt_12_a_translator_that_forgets_costs_no_session() {
    let random = Behaviour { allocation: Allocation::Random, ..Behaviour::PORT_RESTRICTED };
    let mut world = managed(540);
    let nats = [world.nat(random), world.nat(random)];
    let (a, b) = (world.host_behind(nats[0]), world.host_behind(nats[1]));
    world.join(a, b);
    world.manage(a);
    world.manage(b);
    world.run(seconds(3));
    chat(&mut world, a, b, seconds(5));
    let before = initiations(&world);
    for second in (10..310_u64).step_by(10) {
        let nat = nats[second as usize / 10 % 2];
        world.fault_at(world.now() + seconds(second), Fault::Rebind(nat));
    }
    let gap = longest_gap(&mut world, (a, b), seconds(320), |_| ());
    expect(&world, gap <= 2_000, &format!("{gap} ms without a packet"));
    expect(&world, initiations(&world) <= before + 8, "no session is lost");
    expect(&world, routes(&world, a, b) == ["direct"; 2], "direct at the end");
}

#[test]
fn nt_10_mappings_that_expire_are_held_while_there_is_traffic_and_made_anew_after_it() {
    for kind in [Behaviour::PORT_RESTRICTED, Behaviour::SYMMETRIC] {
        let short = Behaviour { expiry_ns: 30_000_000_000, inbound_refresh: false, ..kind };
        let mut world = managed(550);
        let (near, far) = (world.nat(short), world.nat(Behaviour::ADDRESS_RESTRICTED));
        let (a, b) = (world.host_behind(near), world.host_behind(far));
        world.join(a, b);
        world.manage(a);
        world.manage(b);
        world.run(seconds(3));
        chat(&mut world, a, b, seconds(5));
        // A packet each minute keeps it in use, and the mapping open between.
        for _ in 0..5 {
            world.run(seconds(55));
            chat(&mut world, b, a, SECOND);
            expect(&world, routes(&world, a, b) == ["direct"; 2], "the mapping is held");
        }
        expect(&world, missing(&world, b, a) == 0, "nothing is lost");
        world.run(20 * MINUTE);
        world.mark();
        let began = world.now();
        chat(&mut world, b, a, seconds(5));
        let first = world.ledger().passed(b, a).first_marked;
        let in_time = first.is_some_and(|first| first.since(began) <= SECOND);
        expect(&world, in_time, "reached through the relay at once");
        expect(&world, routes(&world, a, b) == ["direct"; 2], "and directly soon after");
    }
}

#[test]
fn idle_peers_cost_nothing() {
    let mut world = managed(560);
    let (a, b) = meet(&mut world, Kind::PortRestricted, Kind::Restricted);
    chat(&mut world, a, b, seconds(5));
    world.run(seconds(200));
    let before: Vec<u64> = ALL.iter().map(|kind| world.watch().total(*kind)).collect();
    world.run(60 * MINUTE);
    let after: Vec<u64> = ALL.iter().map(|kind| world.watch().total(*kind)).collect();
    expect(&world, before == after, &format!("{before:?}, then {after:?}"));
    // And while packets pass, the paths cost less than three datagrams a second and direction, and
    // the frames that name their numbers as many again, beside the ten reports that a link with
    // frames sends anyway; nothing is believed lost.
    let before: u64 = after.iter().sum();
    chat(&mut world, a, b, seconds(10));
    chat(&mut world, a, b, seconds(100));
    let packets = world.ledger().total().sent;
    let sent: u64 = ALL.iter().map(|kind| world.watch().total(*kind)).sum();
    let extra = (sent - before).saturating_sub(2 * 1_100);
    expect(
        &world,
        packets > 2_000 && extra < 110 * (20 + 14),
        &format!("{extra} datagrams of our own"),
    );
}

#[test]
fn two_on_one_network_use_it() {
    let mut world = managed(570);
    let nat = world.nat(Behaviour { hairpin: true, ..Behaviour::FULL_CONE });
    let (a, b) = (world.host_behind(nat), world.host_behind(nat));
    world.join(a, b);
    world.manage(a);
    world.manage(b);
    world.run(seconds(3));
    chat(&mut world, a, b, seconds(3));
    for (from, to) in [(a, b), (b, a)] {
        let used = world.path(from, to).and_then(|path| path.to.udp()).map(|udp| udp.remote);
        expect(&world, used == Some(world.address(to)), &format!("{used:?}"));
    }
}

#[test]
fn nt_08_what_fits_is_found_on_each_path_and_told() {
    let mut world = managed(600);
    let (a, b) = meet(&mut world, Kind::Open, Kind::FullCone);
    let flow = |world: &mut World, len: usize, time: Duration| {
        let until = world.now() + time;
        for (from, to) in [(a, b), (b, a)] {
            world.flow(Flow { from, to, gap: Duration::from_millis(50), until, len });
        }
        world.run(time);
    };
    let fits = |world: &World| {
        [(a, b), (b, a)].map(|(from, to)| world.path(from, to).map_or(0, |path| path.mtu_bytes))
    };
    flow(&mut world, 1_380, seconds(10));
    expect(&world, fits(&world) == [1_420; 2], "everything fits at first");
    expect(&world, missing(&world, a, b) + missing(&world, b, a) == 0, "nothing is lost");
    // Mid-transfer the path becomes one of 1300 bytes, and tells nobody.
    world.set_line_mtu(Some(1_300));
    flow(&mut world, 1_380, seconds(8));
    expect(&world, fits(&world) == [1_200; 2], &format!("{:?}", fits(&world)));
    expect(&world, world.told(a).0 > 0 && world.told(a).1 == 1_200, "the sender is told");
    expect(&world, routes(&world, a, b) == ["direct"; 2], "small ones pass: it is no failure");
    let before = missing(&world, a, b) + missing(&world, b, a);
    flow(&mut world, 1_160, seconds(5));
    let after = missing(&world, a, b) + missing(&world, b, a);
    expect(&world, after == before, "what fits arrives");
    // Another path begins anew: a relay's stream has no limit of its own.
    world.fault(&Fault::Cut(a, b));
    flow(&mut world, 100, seconds(5));
    expect(&world, fits(&world) == [1_420; 2], &format!("{:?}", fits(&world)));
    // And the one before is trusted for nothing when it is back.
    world.fault(&Fault::Mend(a, b));
    world.set_line_mtu(None);
    flow(&mut world, 100, seconds(70));
    expect(&world, routes(&world, a, b) == ["direct"; 2], "direct again");
    expect(&world, fits(&world) == [1_420; 2], &format!("{:?}", fits(&world)));
}

#[test]
fn a_relay_that_dies_is_left_for_another() {
    let mut world = managed(580);
    world.relay();
    let (a, b) = meet(&mut world, Kind::Blocked, Kind::Blocked);
    chat(&mut world, a, b, seconds(5));
    let used = world.path(a, b).map(|path| path.to);
    let Some(node::Destination::Relay(relayed)) = used else {
        world.fail(&format!("by relay, not by {used:?}"))
    };
    let before = initiations(&world);
    let kill = |world: &mut World| world.set_relay(relayed.relay, false);
    let gap = longest_gap(&mut world, (a, b), seconds(8), kill);
    expect(&world, gap <= 3_000, &format!("{gap} ms without a packet"));
    expect(&world, initiations(&world) == before, "the session lives on");
}

/// Nobody tells the other end, and it alone has something to say. Plain WireGuard needs 15 s.
#[test]
fn a_managed_peer_that_restarts_is_reached_again_in_four_seconds() {
    for (seed, kind) in (0..).zip([Kind::Open, Kind::PortRestricted, Kind::Blocked]) {
        let mut world = managed(585 + seed);
        let (a, b) = meet(&mut world, Kind::PortRestricted, kind);
        chat(&mut world, a, b, seconds(10));
        world.fault(&Fault::Restart(b));
        world.mark();
        let began = world.now();
        talk(&mut world, &[(a, b)], Duration::from_millis(50), seconds(6));
        let first = world.ledger().passed(a, b).first_marked.map(|first| first.since(began));
        let in_time = first.is_some_and(|after| after <= seconds(4));
        expect(&world, in_time, &format!("{first:?}"));
    }
}

/// How long after its restart an open host, which starts while no relay works, and one behind an
/// ordinary translator, whose port for the first is not the published one, need for a packet of
/// `from` (0: the first of them) to arrive.
fn without_relay(seed: u64, knows: bool, from: usize) -> Option<Duration> {
    let mut world = managed(seed);
    let (a, b) = meet(&mut world, Kind::Open, Kind::Symmetric);
    chat(&mut world, a, b, seconds(10));
    expect(&world, routes(&world, a, b) == ["direct"; 2], "direct at first");
    if knows {
        world.keep_places(a);
    }
    world.set_relay(0, false);
    // The one that starts anew took a moment for it.
    world.fault(&Fault::Down(a));
    world.run(Duration::from_millis(300));
    world.fault(&Fault::Up(a));
    world.fault(&Fault::Restart(a));
    world.mark();
    let began = world.now();
    let way = if from == 0 { (a, b) } else { (b, a) };
    talk(&mut world, &[way], Duration::from_millis(50), seconds(20));
    let first = world.ledger().passed(way.0, way.1).first_marked;
    first.map(|first| first.since(began))
}

#[test]
fn nt_12_a_host_that_restarts_finds_a_peer_behind_a_translator_without_any_relay() {
    for seed in 0..5 {
        // It has written down where the peer was reached.
        let took = without_relay(700 + seed, true, 0);
        assert!(took.is_some_and(|took| took <= Duration::from_millis(500)), "kept: {took:?}");
        // It has not, but the peer goes on sending.
        let took = without_relay(710 + seed, false, 1);
        assert!(took.is_some_and(|took| took <= Duration::from_millis(500)), "hint: {took:?}");
        // Neither: the peer has nothing to say, and tries because it has lost somebody.
        let took = without_relay(720 + seed, false, 0);
        assert!(took.is_some_and(|took| took <= Duration::from_millis(2_500)), "lost: {took:?}");
    }
}

/// Datagrams of no session lead to handshakes with whom the map places there, and only so often.
#[test]
fn nt_05_a_strangers_datagram_is_no_hint_and_many_are_few() {
    let mut world = managed(730);
    let (a, b) = meet(&mut world, Kind::Open, Kind::Symmetric);
    chat(&mut world, a, b, seconds(5));
    world.set_relay(0, false);
    let mapped = world.node(b).reach().mapped[0];
    world.fault(&Fault::Cut(a, b));
    world.fault(&Fault::Restart(a));
    let mut datagram = [7; 64];
    datagram[..4].copy_from_slice(&[4, 0, 0, 0]);
    let flood = |world: &mut World, from: &str| {
        let before = world.watch().count(a, sim::world::Kind::Initiation);
        for _ in 0..1_000 {
            world.inject(from.parse().expect("an address"), a, &datagram);
            world.run(Duration::from_millis(1));
        }
        world.watch().count(a, sim::world::Kind::Initiation) - before
    };
    let told = flood(&mut world, "203.0.113.77:7");
    expect(&world, told == 0, &format!("{told} for a stranger"));
    let told = flood(&mut world, &format!("{}:7", mapped.ip()));
    // Ten in any second are a peer's bound, and this may touch two.
    expect(&world, (1..=20).contains(&told), &format!("{told} for where a member may be"));
}

/// A managed host and one that speaks no frames, as plain WireGuard does.
#[test]
fn a_managed_peer_that_speaks_no_frames_is_found_and_followed() {
    let mut world = managed(590);
    let (a, b) = (place(&mut world, Kind::PortRestricted), place(&mut world, Kind::Open));
    world.join(a, b);
    world.manage(a);
    world.manage(b);
    world.set_frames(b, false);
    world.run(seconds(3));
    chat(&mut world, a, b, seconds(5));
    expect(&world, missing(&world, a, b) + missing(&world, b, a) == 0, "nothing is lost");
    world.fault(&Fault::Roam(b));
    chat(&mut world, a, b, seconds(40));
    recovers(&mut world, a, b, seconds(20));
}

/// Hosts anywhere, and everything that moves paths: nobody is lost, no packet comes twice or to
/// somebody else, and in the end all speak.
#[test]
fn nt_12_random_worlds_of_managed_hosts_recover() {
    for seed in 0..15 {
        random_world(seed);
    }
}

#[test]
#[ignore = "soak"]
fn two_thousand_random_worlds_of_managed_hosts_recover() {
    for seed in 15..2_015 {
        random_world(seed);
    }
}

fn random_world(seed: u64) {
    let mut rng = sim::rng::Rng::new(seed ^ 0x7061_7468);
    let mut world = managed(seed);
    world.relay();
    let loss = rng.below(4) as f64 * 0.01;
    world.set_weather(Impairment { loss, ..line(5 + rng.below(40)) });
    let hosts: Vec<HostId> = (0..3)
        .map(|_| {
            let kind = KINDS[rng.below(KINDS.len() as u64) as usize].0;
            place(&mut world, kind)
        })
        .collect();
    let pairs = [(hosts[0], hosts[1]), (hosts[1], hosts[2]), (hosts[0], hosts[2])];
    pairs.iter().for_each(|&(a, b)| world.join(a, b));
    hosts.iter().for_each(|&host| world.manage(host));
    let until = world.now() + seconds(100);
    for (from, to) in pairs.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]) {
        let gap = Duration::from_millis(40 + rng.below(400));
        world.flow(Flow { from, to, gap, until, len: 90 + rng.below(60) as usize });
    }
    let mut broken: Vec<Fault> = Vec::new();
    while world.now() < until {
        world.run(Duration::from_millis(200 + rng.below(4_000)));
        let host = hosts[rng.below(3) as usize];
        let (a, b) = pairs[rng.below(3) as usize];
        match rng.below(8) {
            0 | 1 => world.fault(&Fault::Roam(host)),
            2 => {
                world.fault(&Fault::Cut(a, b));
                broken.push(Fault::Mend(a, b));
            }
            3 => broken.drain(..).for_each(|fault| world.fault(&fault)),
            4 => world.fault(&Fault::Sleep(host, seconds(rng.below(20)))),
            5 => {
                let relay = rng.below(2) as u32;
                world.set_relay(relay, false);
                world.set_relay(1 - relay, true);
            }
            6 => world.fault(&Fault::Restart(host)),
            _ => {}
        }
    }
    broken.iter().for_each(|fault| world.fault(fault));
    world.set_relay(0, true);
    world.set_relay(1, true);
    world.run(seconds(20));
    for (a, b) in pairs {
        recovers(&mut world, a, b, storm::RECOVERY_MAX);
    }
}
