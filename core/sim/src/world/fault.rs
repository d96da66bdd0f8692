//! Faults of a world, and changes in it.

use std::time::Duration;

use noise::{PresharedKey, PrivateKey};

use super::{HostId, NatId, World};
use crate::impair::Impairment;

/// A change of the world.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Every line gets this weather.
    Weather(Impairment),
    /// Nothing passes between the two.
    Cut(HostId, HostId),
    /// It passes again.
    Mend(HostId, HostId),
    /// A wall clock jumps by so many seconds.
    WallJump(HostId, i64),
    /// A wall clock is set to so many seconds since 1970.
    WallTo(HostId, u64),
    /// A machine is suspended: it hears nothing and does nothing, and its clocks go on.
    Sleep(HostId, Duration),
    /// A machine gets another address and port; nobody is told.
    Roam(HostId),
    /// An interface goes down.
    Down(HostId),
    /// And up.
    Up(HostId),
    /// A machine gets a new key, which all its peers are told.
    NewKey(HostId),
    /// The two get a new pre-shared key.
    NewPreshared(HostId, HostId),
    /// A node starts anew with what it was told, and has forgotten which timestamps it sent.
    Restart(HostId),
    /// A wall clock that went back shows again what it showed at the latest, and more.
    MendWall(HostId),
    /// A translator forgets its mappings.
    Rebind(NatId),
    /// The first is told where the second is.
    Tell(HostId, HostId),
}

impl World {
    /// Makes a change now.
    pub fn fault(&mut self, fault: &Fault) {
        self.tell(format!("{fault:?}"));
        let now = self.now();
        match *fault {
            Fault::Weather(impairment) => self.set_weather(impairment),
            Fault::Cut(a, b) => {
                self.cuts.insert((a.min(b), a.max(b)));
            }
            Fault::Mend(a, b) => {
                self.cuts.remove(&(a.min(b), a.max(b)));
            }
            Fault::WallJump(host, by_s) => self.hosts[host.0].jump_wall(by_s),
            Fault::WallTo(host, unix_s) => self.hosts[host.0].set_wall(now, unix_s),
            Fault::Sleep(host, time) => {
                let until = now + time;
                let asleep = &mut self.hosts[host.0].asleep_until;
                *asleep = (*asleep).max(Some(until));
            }
            Fault::Roam(host) => self.roam(host),
            Fault::Down(host) => self.set_up(host, false),
            Fault::Up(host) => self.set_up(host, true),
            Fault::NewKey(host) => self.new_key(host),
            Fault::NewPreshared(a, b) => self.new_preshared(a, b),
            Fault::Restart(host) => self.restart(host),
            Fault::MendWall(host) => self.hosts[host.0].mend_wall(now),
            Fault::Rebind(nat) => self.nats[nat.0].restart(),
            Fault::Tell(host, about) => {
                let address = self.hosts[about.0].address;
                if let Some(peering) = self.hosts[host.0].peers.get_mut(&about) {
                    peering.endpoint = Some(address);
                }
                self.configure(host, about);
            }
        }
    }

    fn roam(&mut self, host: HostId) {
        let v6 = self.hosts[host.0].address.is_ipv6();
        let address = match self.hosts[host.0].nat {
            Some(nat) => self.inside_address(nat),
            None => self.fresh_address(v6),
        };
        let id = host;
        let host = &mut self.hosts[id.0];
        host.address = address;
        host.node.forget_sources();
        if host.managed {
            let now = host.instant(self.clock.now());
            host.node.handle_network_change(now);
            self.tell_reach(id);
        }
    }

    fn set_up(&mut self, id: HostId, up: bool) {
        let host = &mut self.hosts[id.0];
        if host.up != up {
            self.resets += 1;
        }
        let host = &mut self.hosts[id.0];
        host.node.set_up(up, &mut host.random);
        // What is sent while going down would still leave.
        host.up = up;
        self.drain(id);
    }

    fn new_key(&mut self, id: HostId) {
        self.resets += 1;
        let old = self.hosts[id.0].public_key();
        let host = &mut self.hosts[id.0];
        let key = PrivateKey::generate(&mut host.random);
        host.set_key(key);
        let identity = noise::Identity::new(host.key.clone());
        host.node.set_identity(Some(identity), &mut host.random);
        self.drain(id);
        for other in self.host_ids() {
            if self.hosts[other.0].peers.contains_key(&id) {
                self.forget_peer(other, old);
                self.configure(other, id);
            }
        }
    }

    fn new_preshared(&mut self, a: HostId, b: HostId) {
        let mut key = [0; 32];
        self.rng.fill(&mut key);
        for (host, about) in [(a, b), (b, a)] {
            if let Some(peering) = self.hosts[host.0].peers.get_mut(&about) {
                peering.preshared_key = PresharedKey::from_bytes(key).into();
            }
            self.configure(host, about);
        }
    }

    fn restart(&mut self, id: HostId) {
        self.resets += 1;
        self.hosts[id.0].boot();
        self.hosts[id.0].forgot = true;
        for about in self.host_ids() {
            if self.hosts[id.0].peers.contains_key(&about) {
                self.configure(id, about);
            }
        }
        self.tell_reach(id);
        for about in self.host_ids() {
            if self.hosts[id.0].managed && self.hosts[id.0].peers.contains_key(&about) {
                self.published(about);
            }
        }
    }
}
