//! A network address translator for IPv4, with the behaviours that RFC 4787 tells apart.
//!
//! A packet from inside takes a *mapping*: an outside port that stands for its inside address
//! and, where mapping depends on it, for its destination. A packet from outside needs a
//! mapping at its destination port, and passes the *filter* only if the inside has sent to its
//! source before, as far as filtering depends on that. Both end when unused for `expiry_ns`.
//!
//! The translator works on addresses; whoever holds the packet rewrites it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::rng::Rng;

/// Most remembered destinations of one mapping; the one unused longest makes room.
pub const PERMITS_MAX: usize = 256;
/// First port that is allocated.
pub const PORT_FIRST: u16 = 1_024;

/// What a mapping or a filter depends on (RFC 4787, sections 4.1 and 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependence {
    /// On the inside alone.
    EndpointIndependent,
    /// On the other end's address.
    AddressDependent,
    /// On the other end's address and port.
    AddressAndPortDependent,
}

/// How a new mapping gets its outside port (RFC 4787, section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocation {
    /// The inside's own port if it is free, otherwise the next free one.
    Preserving,
    /// One after the other.
    Sequential,
    /// Anywhere.
    Random,
}

/// What is translated; ICMP echo has an identifier in the place of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// UDP.
    Udp,
    /// TCP, without regard to its states.
    Tcp,
    /// ICMP echo.
    Echo,
}

/// How a translator behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    /// When two destinations share an outside port.
    pub mapping: Dependence,
    /// Who may send to that port.
    pub filtering: Dependence,
    /// How ports are chosen.
    pub allocation: Allocation,
    /// How long a mapping and a permission live without use; RFC 4787 asks for two minutes at
    /// least (REQ-5), many devices have 30 seconds.
    pub expiry_ns: u64,
    /// Whether packets from outside prolong a mapping, too.
    pub inbound_refresh: bool,
    /// Whether two insides reach each other by outside addresses (REQ-9).
    pub hairpin: bool,
    /// Most mappings at a time, at least one.
    pub mappings_max: usize,
}

/// What becomes of a packet from inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outbound {
    /// It goes out, from this source.
    Send {
        /// The translator's address and the mapping's port.
        source: SocketAddrV4,
    },
    /// It goes back in: source and destination are both translated.
    Hairpin {
        /// As any outside would see the sender.
        source: SocketAddrV4,
        /// The other inside.
        destination: SocketAddrV4,
    },
}

/// Why a packet ends here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drop {
    /// All mappings are in use.
    TableFull,
    /// All ports are in use.
    NoPort,
    /// Nothing is mapped at the destination.
    NoMapping,
    /// The filter does not know the source.
    Filtered,
    /// It was to turn around, which this translator does not do.
    NoHairpin,
    /// It was not sent to the translator's address.
    NotOurs,
}

/// What happened so far; drops are counted by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent out.
    pub outbound: u64,
    /// Packets let in.
    pub inbound: u64,
    /// Packets turned around.
    pub hairpinned: u64,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<Drop, u64>,
}

/// The destination as far as something depends on it: address, port.
type Far = (Option<Ipv4Addr>, Option<u16>);
type InsideKey = (Protocol, SocketAddrV4, Far);
type OutsideKey = (Protocol, u16);

#[derive(Debug)]
struct Mapping {
    inside: InsideKey,
    used_ns: u64,
    /// Who may send here and when the inside last sent there.
    permits: BTreeMap<Far, u64>,
}

/// One translator with one outside address.
#[derive(Debug)]
pub struct Nat {
    outside: Ipv4Addr,
    behaviour: Behaviour,
    by_inside: BTreeMap<InsideKey, u16>,
    by_outside: BTreeMap<OutsideKey, Mapping>,
    next_port: u16,
    rng: Rng,
    counters: Counters,
}

impl Dependence {
    fn far(self, remote: SocketAddrV4) -> Far {
        match self {
            Self::EndpointIndependent => (None, None),
            Self::AddressDependent => (Some(*remote.ip()), None),
            Self::AddressAndPortDependent => (Some(*remote.ip()), Some(remote.port())),
        }
    }
}

impl Behaviour {
    /// Everyone may send to a mapping: the old "full cone".
    pub const FULL_CONE: Self = Self {
        mapping: Dependence::EndpointIndependent,
        filtering: Dependence::EndpointIndependent,
        allocation: Allocation::Preserving,
        expiry_ns: 120_000_000_000,
        inbound_refresh: true,
        hairpin: true,
        mappings_max: 4_096,
    };
    /// Only addresses that were sent to may answer: the old "restricted cone".
    pub const ADDRESS_RESTRICTED: Self =
        Self { filtering: Dependence::AddressDependent, ..Self::FULL_CONE };
    /// Only endpoints that were sent to may answer: the old "port-restricted cone".
    pub const PORT_RESTRICTED: Self =
        Self { filtering: Dependence::AddressAndPortDependent, ..Self::FULL_CONE };
    /// Another random port for each destination: the old "symmetric", without hairpinning.
    pub const SYMMETRIC: Self = Self {
        mapping: Dependence::AddressAndPortDependent,
        allocation: Allocation::Random,
        hairpin: false,
        ..Self::PORT_RESTRICTED
    };
}

impl Nat {
    /// A translator at the address `outside`; `seed` decides random ports.
    #[must_use]
    pub fn new(outside: Ipv4Addr, behaviour: Behaviour, seed: u64) -> Self {
        Self {
            outside,
            behaviour,
            by_inside: BTreeMap::new(),
            by_outside: BTreeMap::new(),
            next_port: PORT_FIRST,
            rng: Rng::new(seed),
            counters: Counters::default(),
        }
    }

    /// Translates a packet from inside.
    ///
    /// # Errors
    /// Returns the reason, counted, when the packet ends here.
    pub fn handle_outbound(
        &mut self,
        now_ns: u64,
        protocol: Protocol,
        source: SocketAddrV4,
        destination: SocketAddrV4,
    ) -> Result<Outbound, Drop> {
        let result = self.outbound(now_ns, protocol, source, destination);
        match result {
            Ok(Outbound::Send { .. }) => self.counters.outbound += 1,
            Ok(Outbound::Hairpin { .. }) => self.counters.hairpinned += 1,
            Err(reason) => *self.counters.dropped.entry(reason).or_default() += 1,
        }
        result
    }

    /// Translates a packet from outside; returns the inside address it goes to.
    ///
    /// # Errors
    /// Returns the reason, counted, when the packet ends here.
    pub fn handle_inbound(
        &mut self,
        now_ns: u64,
        protocol: Protocol,
        source: SocketAddrV4,
        destination: SocketAddrV4,
    ) -> Result<SocketAddrV4, Drop> {
        let result = self.inbound(now_ns, protocol, source, destination);
        match result {
            Ok(_) => self.counters.inbound += 1,
            Err(reason) => *self.counters.dropped.entry(reason).or_default() += 1,
        }
        result
    }

    /// The outside address.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.outside
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Mappings held, those that expired and were not yet cleared away included.
    #[must_use]
    pub fn mappings(&self) -> usize {
        self.by_outside.len()
    }

    /// Forgets everything, as a device does that restarts.
    pub fn restart(&mut self) {
        self.by_inside.clear();
        self.by_outside.clear();
    }

    fn outbound(
        &mut self,
        now_ns: u64,
        protocol: Protocol,
        source: SocketAddrV4,
        destination: SocketAddrV4,
    ) -> Result<Outbound, Drop> {
        let turns = *destination.ip() == self.outside;
        if turns && !self.behaviour.hairpin {
            return Err(Drop::NoHairpin);
        }
        let port = self.map(now_ns, protocol, source, destination)?;
        let seen_as = SocketAddrV4::new(self.outside, port);
        if !turns {
            return Ok(Outbound::Send { source: seen_as });
        }
        let inside = self.inbound(now_ns, protocol, seen_as, destination)?;
        Ok(Outbound::Hairpin { source: seen_as, destination: inside })
    }

    fn inbound(
        &mut self,
        now_ns: u64,
        protocol: Protocol,
        source: SocketAddrV4,
        destination: SocketAddrV4,
    ) -> Result<SocketAddrV4, Drop> {
        if *destination.ip() != self.outside {
            return Err(Drop::NotOurs);
        }
        let key = (protocol, destination.port());
        self.expire(now_ns, key);
        let Behaviour { filtering, expiry_ns, inbound_refresh, .. } = self.behaviour;
        let mapping = self.by_outside.get_mut(&key).ok_or(Drop::NoMapping)?;
        let permit = mapping.permits.get_mut(&filtering.far(source));
        let permit = permit.filter(|used| now_ns.saturating_sub(**used) < expiry_ns);
        let used = permit.ok_or(Drop::Filtered)?;
        if inbound_refresh {
            *used = now_ns;
            mapping.used_ns = now_ns;
        }
        Ok(mapping.inside.1)
    }

    /// Finds or makes the mapping of a packet from inside and notes whom it may hear from.
    fn map(
        &mut self,
        now_ns: u64,
        protocol: Protocol,
        source: SocketAddrV4,
        destination: SocketAddrV4,
    ) -> Result<u16, Drop> {
        let inside = (protocol, source, self.behaviour.mapping.far(destination));
        if let Some(port) = self.by_inside.get(&inside).copied() {
            self.expire(now_ns, (protocol, port));
        }
        let port = match self.by_inside.get(&inside) {
            Some(port) => *port,
            None => self.create(now_ns, inside)?,
        };
        let far = self.behaviour.filtering.far(destination);
        if let Some(mapping) = self.by_outside.get_mut(&(protocol, port)) {
            mapping.used_ns = now_ns;
            if mapping.permits.len() >= PERMITS_MAX && !mapping.permits.contains_key(&far) {
                let oldest = mapping.permits.iter().min_by_key(|(_, used)| **used);
                if let Some(oldest) = oldest.map(|(far, _)| *far) {
                    mapping.permits.remove(&oldest);
                }
            }
            mapping.permits.insert(far, now_ns);
        }
        Ok(port)
    }

    fn create(&mut self, now_ns: u64, inside: InsideKey) -> Result<u16, Drop> {
        if self.by_outside.len() >= self.behaviour.mappings_max {
            self.expire_all(now_ns);
            if self.by_outside.len() >= self.behaviour.mappings_max {
                return Err(Drop::TableFull);
            }
        }
        let wanted = match self.behaviour.allocation {
            Allocation::Preserving => inside.1.port().max(PORT_FIRST),
            Allocation::Sequential => self.next_port,
            Allocation::Random => {
                PORT_FIRST + self.rng.below(u64::from(u16::MAX - PORT_FIRST) + 1) as u16
            }
        };
        let port = self.free_port(now_ns, inside.0, wanted).ok_or(Drop::NoPort)?;
        self.next_port = following(port);
        self.by_inside.insert(inside, port);
        let mapping = Mapping { inside, used_ns: now_ns, permits: BTreeMap::new() };
        self.by_outside.insert((inside.0, port), mapping);
        Ok(port)
    }

    /// The first free port from `wanted` on, all around.
    fn free_port(&mut self, now_ns: u64, protocol: Protocol, wanted: u16) -> Option<u16> {
        let mut port = wanted;
        loop {
            self.expire(now_ns, (protocol, port));
            if !self.by_outside.contains_key(&(protocol, port)) {
                return Some(port);
            }
            port = following(port);
            if port == wanted {
                return None;
            }
        }
    }

    fn expire(&mut self, now_ns: u64, key: OutsideKey) {
        let over = |m: &Mapping| now_ns.saturating_sub(m.used_ns) >= self.behaviour.expiry_ns;
        if self.by_outside.get(&key).is_some_and(over)
            && let Some(mapping) = self.by_outside.remove(&key)
        {
            self.by_inside.remove(&mapping.inside);
        }
    }

    fn expire_all(&mut self, now_ns: u64) {
        let keys: Vec<OutsideKey> = self.by_outside.keys().copied().collect();
        for key in keys {
            self.expire(now_ns, key);
        }
    }
}

fn following(port: u16) -> u16 {
    port.checked_add(1).unwrap_or(PORT_FIRST)
}

#[cfg(test)]
mod tests;
