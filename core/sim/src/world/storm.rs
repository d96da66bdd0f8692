//! A random world in three acts, everything from its seed.
//!
//! 1. *Storm*: two or three hosts, some behind translators, in bad weather; clocks jump, machines
//!    sleep, roam, restart and get new keys, paths are cut, translators forget.
//! 2. *Calm*: the faults end. What no protocol could find out by itself is told (where a peer is,
//!    when both have moved), and the wall clock of a host that forgot which timestamps it sent is
//!    set right: WireGuard refuses older ones, by design. Within [`RECOVERY_MAX`] packets must
//!    arrive in every direction.
//! 3. *Steady*: a quarter of an hour in which nothing is lost, both ends of every link send on one
//!    session, and handshakes are as rare as the protocol promises (threat DP-11).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use noise::REKEY_TIMEOUT;

use super::*;

/// From the end of faults to the first packet of every direction, at most. A host whose session
/// the other end lost notices after 15 s of silence; its initiation may have to wait 5 s since the
/// last one, and may be refused once, for its timestamp equals the last one within 17 ms or came
/// within 20 ms of it; each wait is spread by a third of a second.
pub const RECOVERY_MAX: Duration = Duration::from_millis(15_334 + 2 * 5_334 + 1_000);
/// Initiations a quarter of an hour and link, at most (threat DP-11).
pub const INITIATIONS_MAX: u64 = 9;
const STEADY: Duration = Duration::from_secs(15 * 60);
/// Longest sleep of a machine.
const SLEEP_MAX_S: u64 = 4_000;

/// What a storm left.
#[derive(Debug)]
pub struct Report {
    /// The world, at its end.
    pub world: World,
    /// The links of it.
    pub links: Vec<(HostId, HostId)>,
    /// The longest time that a direction needed to recover.
    pub recovery: Duration,
    /// Most initiations of a link in the last act.
    pub initiations: u64,
}

/// Plays a world through.
///
/// # Panics
/// With the world's story, if something that must hold does not.
#[must_use]
pub fn run(seed: u64) -> Report {
    let mut world = World::new(seed);
    match catch_unwind(AssertUnwindSafe(|| play(&mut world, seed))) {
        Ok((links, recovery, initiations)) => Report { world, links, recovery, initiations },
        Err(panic) => match panic.downcast_ref::<String>() {
            Some(what) if !what.starts_with("seed ") => world.fail(what),
            None if panic.is::<&str>() => world.fail("a panic"),
            _ => resume_unwind(panic),
        },
    }
}

type Played = (Vec<(HostId, HostId)>, Duration, u64);

fn play(world: &mut World, seed: u64) -> Played {
    let mut rng = Rng::new(seed ^ 0x5707_2a11);
    let links = build(world, &mut rng);
    storm(world, &mut rng, &links);
    calm(world, &links);
    let recovery = recover(world, &links);
    let initiations = steady(world, &links);
    (links, recovery, initiations)
}

/// Hosts and links. The first host has an address of its own and keeps it.
fn build(world: &mut World, rng: &mut Rng) -> Vec<(HostId, HostId)> {
    let v6 = rng.chance(0.25);
    let hosts = 2 + rng.below(5) / 3;
    world.host(v6);
    let mut nat = None;
    for _ in 1..hosts {
        if v6 || rng.chance(0.6) {
            world.host(v6);
            continue;
        }
        let kinds = [
            Behaviour::FULL_CONE,
            Behaviour::ADDRESS_RESTRICTED,
            Behaviour::PORT_RESTRICTED,
            Behaviour::SYMMETRIC,
        ];
        let expiry_ns = (10 + rng.below(110)) * 1_000_000_000;
        let kind = Behaviour { expiry_ns, ..kinds[rng.below(4) as usize] };
        let shared = nat.filter(|_| rng.chance(0.5));
        let nat = *nat.insert(shared.unwrap_or_else(|| world.nat(kind)));
        world.host_behind(nat);
    }
    let ids: Vec<HostId> = world.host_ids().collect();
    for &id in &ids {
        let frames = rng.chance(0.7);
        let aes = rng.chance(0.7);
        world.set_frames(id, frames);
        world.set_aes(id, aes);
        world.set_compress(id, id.0.is_multiple_of(2));
    }
    let mut links = Vec::new();
    for (number, &a) in ids.iter().enumerate() {
        for &b in &ids[number + 1..] {
            if world.hosts[a.0].nat.is_some() && world.hosts[b.0].nat.is_some() {
                continue;
            }
            world.join(a, b);
            for (host, about) in [(a, b), (b, a)] {
                let chance = if world.hosts[host.0].nat.is_some() { 0.7 } else { 0.3 };
                let keepalive_s = if rng.chance(chance) { 10 + rng.below(16) as u16 } else { 0 };
                if keepalive_s > 0 {
                    world.alter(host, about, |peering| peering.keepalive_s = keepalive_s);
                }
            }
            links.push((a, b));
        }
    }
    links
}

fn storm(world: &mut World, rng: &mut Rng, links: &[(HostId, HostId)]) {
    world.set_weather(weather(rng));
    let until = world.now() + Duration::from_secs(100 + rng.below(600));
    for &(a, b) in links {
        for (from, to) in [(a, b), (b, a)] {
            let gap = Duration::from_millis(200 + rng.below(100) * rng.below(200));
            let len = 8 + rng.below(1300) as usize;
            world.flow(Flow { from, to, gap, until, len });
        }
    }
    while world.now() < until {
        world.run(Duration::from_millis(mostly_small(rng, 16)));
        let (a, b) = links[rng.below(links.len() as u64) as usize];
        let (from, to) = if rng.chance(0.5) { (a, b) } else { (b, a) };
        match rng.below(9) {
            0 => world.send_spoofed(from, to, to),
            1 => {
                let len = 8 + rng.below(1300) as usize;
                for _ in 0..mostly_small(rng, 6) {
                    world.send_superpacket(from, to, 1 + rng.below(45) as usize, len);
                }
            }
            4 => {
                let frames = rng.chance(0.7);
                let aes = rng.chance(0.7);
                world.set_frames(from, frames);
                world.set_aes(from, aes);
            }
            2 => (0..rng.below(200)).for_each(|len| world.send(from, to, len as usize)),
            3 => world.set_weather(weather(rng)),
            _ => {
                let fault = fault(world, rng, from, to);
                world.fault(&fault);
            }
        }
    }
}

fn weather(rng: &mut Rng) -> Impairment {
    let delay_us = mostly_small(rng, 18);
    let share = |rng: &mut Rng, most: f64| if rng.chance(0.5) { rng.unit() * most } else { 0.0 };
    Impairment {
        delay_us,
        jitter_us: rng.below(delay_us + 1),
        loss: share(rng, 0.4),
        reorder: share(rng, 0.3),
        duplicate: share(rng, 0.3),
        rate_bps: rng.below(2) * (100_000 + rng.below(10_000_000)),
        limit_packets: 20 + rng.below(1000) as usize,
        ..Impairment::NONE
    }
}

fn fault(world: &World, rng: &mut Rng, host: HostId, other: HostId) -> Fault {
    match rng.below(16) {
        0 => Fault::Cut(host, other),
        1 | 2 => Fault::Mend(host, other),
        3 => Fault::WallJump(host, 365 * 24 * 3600),
        4 => Fault::WallJump(host, -3600),
        5 => Fault::WallTo(host, 0),
        6 => {
            let seconds = mostly_small(rng, 13).min(SLEEP_MAX_S);
            Fault::Sleep(host, Duration::from_secs(seconds))
        }
        7 | 8 if host.0 != 0 => Fault::Roam(host),
        9 => Fault::Down(host),
        10 | 11 => Fault::Up(host),
        12 => Fault::NewKey(host),
        13 => Fault::NewPreshared(host, other),
        14 if !world.nats.is_empty() => {
            Fault::Rebind(NatId(rng.below(world.nats.len() as u64) as usize))
        }
        _ => Fault::Restart(host),
    }
}

/// Below 2^bits, and every order of magnitude about as often.
fn mostly_small(rng: &mut Rng, bits: u64) -> u64 {
    let bound = 1 << rng.below(bits);
    rng.below(bound)
}

/// Ends every fault, and tells what the hosts cannot find out.
fn calm(world: &mut World, links: &[(HostId, HostId)]) {
    let awake = world.hosts.iter().filter_map(|host| host.asleep_until).max();
    if let Some(awake) = awake {
        world.run_until(awake.max(world.now()));
    }
    world.set_weather(Impairment { delay_us: 20_000, ..Impairment::NONE });
    for id in world.host_ids() {
        world.fault(&Fault::Up(id));
        if world.hosts[id.0].forgot {
            world.fault(&Fault::MendWall(id));
        }
    }
    for &(a, b) in links {
        world.fault(&Fault::Mend(a, b));
    }
    // What is under way may still move an endpoint.
    world.run(Duration::from_secs(30));
    for &(a, b) in links {
        for (host, about) in [(a, b), (b, a)] {
            if host.0 != 0 && about.0 != 0 && world.hosts[about.0].nat.is_none() {
                world.fault(&Fault::Tell(host, about));
            }
        }
    }
}

/// Both ends of every link send once a second; returns the longest wait for the first packet.
fn recover(world: &mut World, links: &[(HostId, HostId)]) -> Duration {
    world.mark();
    let began = world.now();
    start(world, links, RECOVERY_MAX, Duration::from_secs(1));
    world.run(RECOVERY_MAX);
    let mut longest = Duration::ZERO;
    for &(a, b) in links {
        for (from, to) in [(a, b), (b, a)] {
            let Some(first) = world.ledger.passed(from, to).first_marked else {
                world.fail(&format!("nothing from {from} to {to} in {RECOVERY_MAX:?} of calm"));
            };
            longest = longest.max(first.since(began));
        }
    }
    // What waited for a session elsewhere has arrived, and crossed handshakes have settled.
    world.run(REKEY_TIMEOUT);
    longest
}

/// Nothing may be lost any more; returns the initiations of the busiest link, evenly counted.
fn steady(world: &mut World, links: &[(HostId, HostId)]) -> u64 {
    let before = world.ledger.total();
    let initiations = world.watch.total(Kind::Initiation);
    start(world, links, STEADY, Duration::from_secs(2));
    world.run(STEADY + Duration::from_secs(1));
    let after = world.ledger.total();
    let sent = after.sent - before.sent;
    let delivered = after.delivered - before.delivered;
    if sent != delivered {
        world.fail(&format!("{delivered} of {sent} packets arrived in the calm"));
    }
    let initiations = world.watch.total(Kind::Initiation) - initiations;
    let each = initiations.div_ceil(links.len() as u64);
    if each > INITIATIONS_MAX {
        world.fail(&format!("{initiations} initiations in the calm"));
    }
    limit_initiations(world, links);
    agree(world, links);
    each
}

/// Both ends of every link send on one session. The packets that show it may themselves ask for a
/// renewal, so a link that seems apart is looked at twice.
fn agree(world: &mut World, links: &[(HostId, HostId)]) {
    let mut apart = links.to_vec();
    for _ in 0..2 {
        world.run(REKEY_TIMEOUT);
        for &(a, b) in &apart {
            world.send(a, b, 100);
            world.send(b, a, 100);
        }
        world.run(Duration::from_secs(1));
        apart.retain(|&(a, b)| !world.watch.agree(a, b));
    }
    if let Some((a, b)) = apart.first() {
        world.fail(&format!("{a} and {b} do not send on one session"));
    }
}

/// However bad it was: an initiation every 5 s, for each peer, is the most.
fn limit_initiations(world: &World, links: &[(HostId, HostId)]) {
    let slots = world.now().since(Instant::ZERO).as_secs() / REKEY_TIMEOUT.as_secs() + 1;
    let most = 2 * links.len() as u64 * (slots + world.resets);
    let sent = world.watch.total(Kind::Initiation);
    if sent > most {
        world.fail(&format!("{sent} initiations, no more than {most} were due"));
    }
}

fn start(world: &mut World, links: &[(HostId, HostId)], time: Duration, gap: Duration) {
    let until = world.now() + time;
    for &(a, b) in links {
        world.flow(Flow { from: a, to: b, gap, until, len: 100 });
        world.flow(Flow { from: b, to: a, gap, until, len: 333 });
    }
}
