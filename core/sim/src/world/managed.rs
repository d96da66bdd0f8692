//! Worlds whose hosts find each other by a map, STUN servers and relays, as a daemon's do.
//!
//! The map is told when a host's endpoints change, and tells the others a little later. A relay
//! hands on what it gets, by key, and knows nothing. In such worlds private addresses are known
//! only where they are used.

use node::{Candidate, PathStatus, Reach, Relayed};
use wire::packet::Transport;
use wire::stun::{self, Message};

use super::*;

/// Between a host and a relay, one way.
const RELAY_DELAY: Duration = Duration::from_millis(15);
/// From one host's change until another's map has it.
const MAP_DELAY: Duration = Duration::from_millis(50);
/// From a STUN server back.
const STUN_DELAY: Duration = Duration::from_millis(10);

impl World {
    /// A translator behind another.
    pub fn nat_behind(&mut self, outer: NatId, behaviour: Behaviour) -> NatId {
        let SocketAddr::V4(outside) = self.inside_address(outer) else {
            unreachable!("translators are of IPv4");
        };
        self.add_nat(*outside.ip(), behaviour, Some(outer))
    }

    pub(super) fn add_nat(
        &mut self,
        outside: Ipv4Addr,
        behaviour: Behaviour,
        outer: Option<NatId>,
    ) -> NatId {
        self.nats.push(Nat::new(outside, behaviour, self.rng.next_u64()));
        self.outer.push(outer);
        NatId(self.nats.len() - 1)
    }

    /// A STUN server.
    pub fn stun(&mut self) -> SocketAddr {
        let address = self.fresh_address(false);
        self.stun.push(address);
        address
    }

    /// A relay; returns its number.
    pub fn relay(&mut self) -> u32 {
        self.relays.push(true);
        self.relays.len() as u32 - 1
    }

    /// A relay works, or does no more.
    pub fn set_relay(&mut self, relay: u32, works: bool) {
        self.tell(format!("relay {relay} works: {works}"));
        self.relays[relay as usize] = works;
    }

    /// From now on no UDP datagram leaves a host, or some do again.
    pub fn set_udp_blocked(&mut self, host: HostId, blocked: bool) {
        self.tell(format!("UDP of {host} is blocked: {blocked}"));
        self.hosts[host.0].udp_blocked = blocked;
    }

    /// From now on lines swallow IP packets of more than so many bytes, and tell nobody.
    pub fn set_line_mtu(&mut self, mtu: Option<usize>) {
        self.tell(format!("lines carry {mtu:?} bytes"));
        self.line_mtu = mtu;
    }

    /// How often a host was told that a packet does not fit, and what did at last, in bytes.
    #[must_use]
    pub fn told(&self, host: HostId) -> (u64, usize) {
        self.told.get(&host).copied().unwrap_or_default()
    }

    /// Whether a packet for a host is its own node's word that another does not fit.
    pub(super) fn hear_too_big(&mut self, id: HostId, bytes: &[u8]) -> bool {
        let Ok(packet) = wire::packet::parse(bytes) else { return false };
        let mtu = match packet.transport() {
            Ok(Transport::Icmp(message)) => message.next_hop_mtu(),
            Ok(Transport::Icmp6(message)) => message.next_hop_mtu(),
            _ => None,
        };
        let Some(mtu) = mtu else { return false };
        let told = self.told.entry(id).or_default();
        *told = (told.0 + 1, mtu as usize);
        true
    }

    /// A host finds its peers by the map from now on, and speaks frames.
    pub fn manage(&mut self, host: HostId) {
        self.set_frames(host, true);
        self.hosts[host.0].managed = true;
        for about in self.host_ids() {
            if let Some(peering) = self.hosts[host.0].peers.get_mut(&about) {
                peering.endpoint = None;
            }
        }
        self.tell_reach(host);
    }

    /// Tells a host's node what its daemon knows.
    pub(super) fn tell_reach(&mut self, id: HostId) {
        let now = self.now();
        let reach = Reach {
            stun: self.stun.clone(),
            local: vec![self.hosts[id.0].address],
            opened: None,
            relays: (0..self.relays.len() as u32).collect(),
            overlay: vec!["10.77.0.0/16".parse().expect("a prefix")],
        };
        let host = &mut self.hosts[id.0];
        if host.managed {
            let clock = host.clock(now);
            host.node.set_reach(reach, clock.now);
            self.drain(id);
        }
    }

    /// The path in use from one host to another.
    #[must_use]
    pub fn path(&self, from: HostId, to: HostId) -> Option<PathStatus> {
        let host = &self.hosts[from.0];
        let key = self.key(to);
        host.node.path(&key, host.instant(self.now()))
    }

    /// "direct", "relay" or "none": how one host reaches another.
    #[must_use]
    pub fn route_name(&self, from: HostId, to: HostId) -> &'static str {
        match self.path(from, to).map(|path| path.to) {
            Some(node::Destination::Udp(_) | node::Destination::Carried(_)) => "direct",
            Some(node::Destination::Relay(_)) => "relay",
            None => "none",
        }
    }

    /// A host writes down where its peers are reached directly, as a daemon does.
    pub fn keep_places(&mut self, host: HostId) {
        for about in self.host_ids() {
            if let Some(to) = self.path(host, about).and_then(|path| path.to.udp()) {
                self.hosts[host.0].reached.insert(about, to.remote);
            }
        }
    }

    /// What a host's node wants published goes to the map.
    pub(super) fn publish(&mut self, id: HostId) {
        let host = &mut self.hosts[id.0];
        if host.managed && host.node.poll_reach() {
            self.schedule(self.now() + MAP_DELAY, Event::Published(id));
        }
    }

    /// The map has a host's endpoints: its peers are told.
    pub(super) fn published(&mut self, about: HostId) {
        let now = self.now();
        let status = self.hosts[about.0].node.reach();
        let endpoints = status.endpoints.into_iter().map(Candidate::Udp);
        let relays = status.relays.into_iter().map(Candidate::Relay);
        let told: Vec<Candidate> = endpoints.chain(relays).collect();
        let key = self.key(about);
        for id in self.host_ids() {
            let host = &mut self.hosts[id.0];
            if host.managed && host.peers.contains_key(&about) {
                let clock = host.clock(now);
                let reached = host.reached.get(&about).copied().map(Candidate::Udp);
                let candidates: Vec<Candidate> = told.iter().copied().chain(reached).collect();
                host.node.set_candidates(&key, &candidates, clock.now);
                self.drain(id);
            }
        }
    }

    /// A datagram leaves a host by a relay.
    pub(super) fn emit_relayed(&mut self, from: HostId, to: Relayed, bytes: Vec<u8>) {
        let kind = Kind::of(&bytes);
        self.watch.sent(from, kind, &bytes);
        let at = node::Destination::Relay(to).source();
        let len = bytes.len();
        let receiver = self.host_ids().find(|id| self.key(*id) == to.peer);
        let works = self.relays.get(to.relay as usize) == Some(&true);
        let fate = match receiver.filter(|_| works) {
            Some(to_host) => {
                let relay = to.relay;
                let event =
                    Event::Relayed { sender: from, to: to_host, relay, bytes, is_in: false };
                self.schedule(self.now() + RELAY_DELAY, event);
                Fate::Travels
            }
            None => {
                self.tray.give_back(bytes);
                Fate::Nobody
            }
        };
        self.note(Note::Sent(from, at, kind, len, fate));
    }

    /// A frame is at a relay, or behind it.
    pub(super) fn relayed(
        &mut self,
        sender: HostId,
        to: HostId,
        relay: u32,
        bytes: Vec<u8>,
        is_in: bool,
    ) {
        if self.relays.get(relay as usize) != Some(&true) {
            return self.tray.give_back(bytes);
        }
        if !is_in {
            let event = Event::Relayed { sender, to, relay, bytes, is_in: true };
            return self.schedule(self.now() + RELAY_DELAY, event);
        }
        let peer = self.key(sender);
        self.arrive(to, Some(sender), Relayed { relay, peer }.into(), bytes);
    }

    pub(super) fn is_stun(&self, to: SocketAddr) -> bool {
        self.stun.contains(&to)
    }

    /// A server tells from where it was asked.
    pub(super) fn answer_stun(&mut self, from: SocketAddr, at: SocketAddr, request: Vec<u8>) {
        if let Ok(Message::Request(transaction)) = stun::parse(&request) {
            let mut bytes = self.tray.buffer(stun::RESPONSE_LEN_MAX);
            let len = stun::write_response(&transaction, from, &mut bytes);
            bytes.truncate(len);
            let answer = Event::Arrival { sender: None, from: at, to: from, bytes };
            self.schedule(self.now() + STUN_DELAY, answer);
        }
        self.tray.give_back(request);
    }
}
