//! Worlds whose lines lose nothing: nobody ever says otherwise, while hosts join, move between
//! paths, use relays and begin again.

use std::collections::BTreeMap;
use std::time::Duration;

use sim::impair::Impairment;
use sim::nat::Behaviour;
use sim::rng::Rng;
use sim::world::{Fault, Flow, HostId, World};

/// How often everybody is asked what was lost.
const LOOK: Duration = Duration::from_millis(20);

/// A world, and what was found out about it so far.
struct Sky {
    world: World,
    hosts: Vec<HostId>,
    rng: Rng,
    looks: u64,
    /// What was sent as repair by a way of streams alone, when somebody was asked last.
    repaired: BTreeMap<(HostId, HostId), u64>,
}

impl Sky {
    /// Four hosts that are managed: two with addresses of their own, two behind translators, of
    /// which the last cannot be reached but by a relay.
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed);
        world.set_weather(Impairment { delay_us: 8_000, ..Impairment::NONE });
        (0..2).for_each(|_| _ = world.stun());
        (0..2).for_each(|_| _ = world.relay());
        let home = world.nat(Behaviour::PORT_RESTRICTED);
        let symmetric = world.nat(Behaviour::SYMMETRIC);
        let hosts = vec![
            world.host(false),
            world.host(false),
            world.host_behind(home),
            world.host_behind(symmetric),
        ];
        for (at, &a) in hosts.iter().enumerate() {
            hosts[..at].iter().for_each(|&b| world.join(a, b));
        }
        hosts.iter().for_each(|&host| world.manage(host));
        Self { world, hosts, rng: Rng::new(seed ^ 0x5eed), looks: 0, repaired: BTreeMap::new() }
    }

    /// Packets from anyone to anyone else: a few, as of pings, or many, as of a call.
    fn talk(&mut self, seconds: u64) {
        let until = self.world.now() + Duration::from_secs(seconds);
        for _ in 0..4 {
            let [from, to] = [0, 1].map(|_| self.hosts[self.rng.below(4) as usize]);
            let gap = Duration::from_millis([2, 20, 250, 1_000][self.rng.below(4) as usize]);
            if from != to {
                let len = 40 + self.rng.below(1_200) as usize;
                self.world.flow(Flow { from, to, gap, until, len });
                self.world.flow(Flow { from: to, to: from, gap, until, len: 60 });
            }
        }
    }

    /// Lets time pass, and asks everybody again and again.
    fn run(&mut self, seconds: u64, what: &str) {
        let end = self.world.now() + Duration::from_secs(seconds);
        while self.world.now() < end {
            self.world.run(LOOK);
            self.look(what);
        }
    }

    fn look(&mut self, what: &str) {
        for &host in &self.hosts {
            for &about in &self.hosts {
                let pair = (host, about);
                let before = self.repaired.remove(&pair);
                let Some(weather) = self.world.node(host).weather(&self.world.key(about)) else {
                    continue;
                };
                self.looks += 1;
                let shares = [weather.loss_out, weather.left_out, weather.loss_in, weather.left_in];
                if shares.iter().any(|share| *share > 0.0) {
                    let paths = [self.world.path(host, about), self.world.path(about, host)];
                    self.world.fail(&format!("{what}: {host} of {about}: {shares:?} {paths:?}"));
                }
                if weather.in_streams {
                    if before.is_some_and(|bytes| bytes < weather.repair_bytes) {
                        self.world.fail(&format!("{what}: {host} repairs streams to {about}"));
                    }
                    self.repaired.insert(pair, weather.repair_bytes);
                }
            }
        }
    }
}

fn run(seed: u64) -> u64 {
    let mut sky = Sky::new(seed);
    sky.talk(20);
    sky.run(8, "joining");
    for round in 0..6 {
        let host = sky.hosts[sky.rng.below(4) as usize];
        let now = sky.world.now();
        let what = match sky.rng.below(4) {
            0 => {
                sky.world.set_udp_blocked(host, true);
                "to a relay"
            }
            1 => {
                sky.hosts.iter().for_each(|&host| sky.world.set_udp_blocked(host, false));
                "back from it"
            }
            2 => {
                sky.world.fault_at(now, Fault::Restart(host));
                "a restart"
            }
            _ => {
                sky.world.network_changed(host);
                "another network"
            }
        };
        sky.talk(7);
        sky.run(7, &format!("round {round}, {what}"));
        // And a silence, after which what was asked meanwhile is no loss.
        if round == 3 {
            sky.run(130, "silence");
        }
    }
    sky.looks
}

#[test]
fn where_lines_lose_nothing_nobody_says_otherwise() {
    for seed in 0..24 {
        assert!(run(seed) > 5_000, "seed {seed}: nobody was asked");
    }
}
