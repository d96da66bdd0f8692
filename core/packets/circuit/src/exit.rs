//! The exit: who may be reached through it, and under which port (RFC 4787, 5382, 5508).
//!
//! A packet that leaves a circuit gets the exit's address and a port that no other circuit has, so
//! that ⟨port, destination⟩ is unique whoever sends from equal ports. One inner port has one outer
//! port toward every destination, and only who was sent something may answer. Ports are drawn at
//! random, so two circuits of one client are not told by them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use noise::{Instant, Random};
use wire::ip::protocol;
use wire::packet::{self, Fragment, Transport};
use wire::prefix::Prefix;
use wire::tcp::Flags;

use crate::rewrite::{self, Seen, What};
use crate::{Drop, EXIT_ADDRESS, NAME_ADDRESS};

/// Flows of all circuits together.
pub const FLOWS_MAX: usize = 32_768;
/// Flows of one circuit.
pub const FLOWS_PER_CIRCUIT_MAX: usize = 1024;
/// Fragmented datagrams that are remembered, of all circuits.
pub const FRAGMENTED_MAX: usize = 1024;
/// How long: all fragments of a datagram leave together.
const FRAGMENTED_TIME: Duration = Duration::from_secs(15);
/// A connection that is open (RFC 5382, REQ-5).
const OPEN_TIME: Duration = Duration::from_secs(2 * 3600 + 240);
/// One that is not open yet, or no longer.
const CLOSING_TIME: Duration = Duration::from_secs(240);
/// RFC 4787, REQ-5: what it recommends.
const UDP_TIME: Duration = Duration::from_secs(300);
/// RFC 5508, REQ-2.
const ECHO_TIME: Duration = Duration::from_secs(60);
/// Expired ones are looked for so often.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
const PORT_MIN: u16 = 1024;
const DRAWS_MAX: usize = 64;
/// Mail is refused as every onion router's exit refuses it.
const REFUSED_PORTS: [u16; 1] = [25];
const NAME_PORT: u16 = 53;

/// Destinations that are refused unless they are allowed: what is private, local or nobody's.
const PRIVATE: [(Ipv4Addr, u8); 12] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// Of IPv6 only what the Internet has (2000::/3) is not private; and of that not the blocks in
/// which an address of IPv4 hides (Teredo and 6to4).
const PUBLIC_SIX: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
const PRIVATE_SIX: [(Ipv6Addr, u8); 2] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
];

/// Whether an exit leads there by default: neither private, nor local, nor nobody's.
#[must_use]
pub fn leads_out(to: IpAddr) -> bool {
    ExitRules::default().admits(to, None)
}

fn is_private(to: IpAddr) -> bool {
    let is_in = |of: IpAddr, bits| Prefix::new(of, bits).is_some_and(|prefix| prefix.contains(to));
    match to {
        IpAddr::V4(_) => PRIVATE.iter().any(|&(of, bits)| is_in(IpAddr::V4(of), bits)),
        IpAddr::V6(_) => {
            let (public, bits) = PUBLIC_SIX;
            !is_in(IpAddr::V6(public), bits)
                || PRIVATE_SIX.iter().any(|&(of, bits)| is_in(IpAddr::V6(of), bits))
        }
    }
}

/// What an exit lets through.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExitRules {
    /// Never: its own network and its own addresses.
    pub refused: Vec<Prefix>,
    /// Although they are private.
    pub allowed: Vec<Prefix>,
    /// Who is asked for names.
    pub name_server: Option<Ipv4Addr>,
    /// Whether packets of IPv6 leave as well.
    pub leads_six: bool,
}

impl ExitRules {
    fn admits(&self, to: IpAddr, port: Option<u16>) -> bool {
        let is_in = |list: &[Prefix]| list.iter().any(|prefix| prefix.contains(to));
        let is_refused = is_in(&self.refused) || (is_private(to) && !is_in(&self.allowed));
        !is_refused && port.is_none_or(|port| !REFUSED_PORTS.contains(&port))
    }
}

/// A flow as the outside sees it: protocol, our port, and who is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    protocol: u8,
    port: u16,
    remote: IpAddr,
    remote_port: u16,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    inside: Inside,
    /// Names are asked for: its answers come from [`NAME_ADDRESS`].
    is_name: bool,
    expires: Instant,
    stage: Stage,
}

/// What an outer port belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Inside {
    circuit: u32,
    protocol: u8,
    port: u16,
}

/// How far a connection is; nothing of it matters to UDP and echoes.
#[derive(Clone, Copy, Debug, Default)]
struct Stage {
    answered: bool,
    open: bool,
    fin_out: bool,
    fin_in: bool,
    reset: bool,
}

impl Stage {
    fn note(&mut self, flags: Flags, outwards: bool) {
        self.reset |= flags.any(Flags::RST);
        if outwards {
            self.open |= self.answered && flags.any(Flags::ACK);
            self.fin_out |= flags.any(Flags::FIN);
        } else {
            self.answered |= flags.any(Flags::ACK);
            self.fin_in |= flags.any(Flags::FIN);
        }
    }

    const fn time(&self) -> Duration {
        let is_over = self.reset || (self.fin_out && self.fin_in);
        if self.open && !is_over { OPEN_TIME } else { CLOSING_TIME }
    }
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    port: u16,
    flows: usize,
}

/// A datagram in fragments: of which circuit or outer port, and who is at the other end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Fragmented {
    circuit: Option<u32>,
    remote: IpAddr,
    protocol: u8,
    id: u32,
}

/// The translator.
#[derive(Default)]
pub(crate) struct Exit {
    rules: ExitRules,
    flows: BTreeMap<Key, Flow>,
    mappings: BTreeMap<Inside, Mapping>,
    outer: BTreeMap<(u8, u16), Inside>,
    /// Flows of each circuit.
    counts: BTreeMap<u32, usize>,
    /// What a first fragment became: the identification outside, or the circuit inside.
    fragmented: BTreeMap<Fragmented, (u32, bool, Instant)>,
    next_id: u32,
    sweep_at: Instant,
}

impl Exit {
    pub(crate) fn set_rules(&mut self, rules: ExitRules) {
        self.rules = rules;
    }

    /// Whether packets of IPv6 leave.
    pub(crate) const fn leads_six(&self) -> bool {
        self.rules.leads_six
    }

    /// Flows there are.
    pub(crate) fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Translates a packet of `circuit`, whose address is `own`, in place; returns its length.
    pub(crate) fn handle_out(
        &mut self,
        (circuit, own): (u32, Ipv4Addr),
        bytes: &mut [u8],
        now: Instant,
        random: &mut dyn Random,
    ) -> Result<usize, Drop> {
        self.sweep(now);
        let seen = rewrite::look(bytes)?;
        if seen.source != seen.ours(own) {
            return Err(Drop::NotCarried);
        }
        if seen.is_six() && !self.rules.leads_six {
            return Err(Drop::NoSix);
        }
        if seen.fragment == Fragment::Later {
            return self.fragment_out(circuit, bytes, &seen);
        }
        let (inner, port, flags) = match seen.what {
            What::Ports { source, destination, flags } => (source, Some(destination), flags),
            What::Echo { id, is_reply: false } => (id, None, 0),
            _ => return Err(Drop::NotCarried),
        };
        let is_name = seen.destination == IpAddr::V4(NAME_ADDRESS);
        let remote = self.destination(&seen, port)?;
        let inside = Inside { circuit, protocol: seen.protocol, port: inner };
        let remote_port = port.unwrap_or(0);
        let wants = (seen.protocol != protocol::TCP)
            || Flags(flags).any(Flags::SYN) && !Flags(flags).any(Flags::ACK);
        let port = self.flow_out(inside, (remote, remote_port), (is_name, wants), now, random)?;
        let key = Key { protocol: seen.protocol, port, remote, remote_port };
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.stage.note(Flags(flags), true);
            flow.expires = now.after(time(key.protocol, &flow.stage));
        }
        rewrite::set_source(bytes, &seen, seen.ours(EXIT_ADDRESS), port);
        if is_name {
            rewrite::set_destination(bytes, &seen, remote, remote_port);
        }
        let id = self.draw_id(random);
        rewrite::set_id(bytes, &seen, id);
        if seen.is_part {
            let of = Fragmented {
                circuit: Some(circuit),
                remote: seen.destination,
                protocol: seen.protocol,
                id: seen.id,
            };
            self.remember(of, (id, is_name), now);
        }
        Ok(seen.len)
    }

    /// Translates a packet that came for [`EXIT_ADDRESS`] in place, for the circuit that is
    /// returned, with the packet's length. `own` tells a circuit's address.
    pub(crate) fn handle_in(
        &mut self,
        bytes: &mut [u8],
        own: impl Fn(u32) -> Option<Ipv4Addr>,
        now: Instant,
    ) -> Result<(u32, usize), Drop> {
        self.sweep(now);
        let seen = rewrite::look(bytes)?;
        if seen.fragment == Fragment::Later {
            return self.fragment_in(bytes, &seen, own);
        }
        let (port, remote_port, flags) = match seen.what {
            What::Ports { source, destination, flags } => (destination, source, flags),
            What::Echo { id, is_reply: true } => (id, 0, 0),
            What::Error { at } => return self.error_in(bytes, &seen, at, own),
            _ => return Err(Drop::NoFlow),
        };
        let key = Key { protocol: seen.protocol, port, remote: seen.source, remote_port };
        let flow = self.flows.get_mut(&key).ok_or(Drop::NoFlow)?;
        let address = own(flow.inside.circuit).ok_or(Drop::NoFlow)?;
        flow.stage.note(Flags(flags), false);
        if key.protocol == protocol::TCP {
            flow.expires = now.after(flow.stage.time());
        }
        let circuit = flow.inside.circuit;
        let is_name = flow.is_name;
        rewrite::set_destination(bytes, &seen, seen.ours(address), flow.inside.port);
        if is_name {
            rewrite::set_source(bytes, &seen, IpAddr::V4(NAME_ADDRESS), remote_port);
        }
        if seen.is_part {
            let of = Fragmented {
                circuit: None,
                remote: seen.source,
                protocol: seen.protocol,
                id: seen.id,
            };
            self.remember(of, (circuit, is_name), now);
        }
        Ok((circuit, seen.len))
    }

    /// Forgets a circuit with all its flows.
    pub(crate) fn forget(&mut self, circuit: u32) {
        if self.counts.contains_key(&circuit) {
            self.end(|flow| flow.inside.circuit == circuit);
        }
    }

    fn destination(&self, seen: &Seen, port: Option<u16>) -> Result<IpAddr, Drop> {
        if seen.destination == IpAddr::V4(NAME_ADDRESS) {
            let server = self.rules.name_server.map(IpAddr::V4);
            return match port {
                Some(NAME_PORT) => server.ok_or(Drop::NoNameServer),
                _ => Err(Drop::ExitRefused),
            };
        }
        let is_admitted = self.rules.admits(seen.destination, port);
        is_admitted.then_some(seen.destination).ok_or(Drop::ExitRefused)
    }

    /// The outer port of a flow, which is made if it is not there and `wants` to be.
    fn flow_out(
        &mut self,
        inside: Inside,
        (remote, remote_port): (IpAddr, u16),
        (is_name, wants): (bool, bool),
        now: Instant,
        random: &mut dyn Random,
    ) -> Result<u16, Drop> {
        let key = |port| Key { protocol: inside.protocol, port, remote, remote_port };
        let known = self.mappings.get(&inside).map(|mapping| mapping.port);
        if let Some(port) = known.filter(|&port| self.flows.contains_key(&key(port))) {
            return Ok(port);
        }
        if !wants {
            return Err(Drop::NoFlow);
        }
        let count = self.counts.get(&inside.circuit).copied().unwrap_or(0);
        if self.flows.len() >= FLOWS_MAX || count >= FLOWS_PER_CIRCUIT_MAX {
            return Err(Drop::FlowsFull);
        }
        let port = match known {
            Some(port) => port,
            None => self.draw_port(inside.protocol, random).ok_or(Drop::FlowsFull)?,
        };
        self.outer.insert((inside.protocol, port), inside);
        self.mappings.entry(inside).or_insert(Mapping { port, flows: 0 }).flows += 1;
        self.counts.insert(inside.circuit, count + 1);
        let flow = Flow { inside, is_name, expires: now, stage: Stage::default() };
        self.flows.insert(key(port), flow);
        Ok(port)
    }

    fn draw_port(&self, protocol: u8, random: &mut dyn Random) -> Option<u16> {
        for _ in 0..DRAWS_MAX {
            let port = draw(random);
            if port >= PORT_MIN && !self.outer.contains_key(&(protocol, port)) {
                return Some(port);
            }
        }
        (PORT_MIN..=u16::MAX).find(|&port| !self.outer.contains_key(&(protocol, port)))
    }

    /// Identifications count on from a number that nobody knows, over all circuits.
    fn draw_id(&mut self, random: &mut dyn Random) -> u32 {
        if self.next_id == 0 {
            self.next_id = u32::from(draw(random)) << 16 | u32::from(draw(random));
        }
        self.next_id = self.next_id.wrapping_add(1);
        self.next_id
    }

    fn remember(&mut self, of: Fragmented, (what, is_name): (u32, bool), now: Instant) {
        if self.fragmented.len() < FRAGMENTED_MAX {
            self.fragmented.insert(of, (what, is_name, now.after(FRAGMENTED_TIME)));
        }
    }

    fn fragment_out(&mut self, circuit: u32, bytes: &mut [u8], seen: &Seen) -> Result<usize, Drop> {
        let of = Fragmented {
            circuit: Some(circuit),
            remote: seen.destination,
            protocol: seen.protocol,
            id: seen.id,
        };
        let &(id, is_name, _) = self.fragmented.get(&of).ok_or(Drop::NoFlow)?;
        rewrite::set_source(bytes, seen, seen.ours(EXIT_ADDRESS), 0);
        if is_name {
            let server = self.rules.name_server.ok_or(Drop::NoNameServer)?;
            rewrite::set_destination(bytes, seen, IpAddr::V4(server), 0);
        }
        rewrite::set_id(bytes, seen, id);
        Ok(seen.len)
    }

    fn fragment_in(
        &mut self,
        bytes: &mut [u8],
        seen: &Seen,
        own: impl Fn(u32) -> Option<Ipv4Addr>,
    ) -> Result<(u32, usize), Drop> {
        let of =
            Fragmented { circuit: None, remote: seen.source, protocol: seen.protocol, id: seen.id };
        let &(circuit, is_name, _) = self.fragmented.get(&of).ok_or(Drop::NoFlow)?;
        let address = own(circuit).ok_or(Drop::NoFlow)?;
        rewrite::set_destination(bytes, seen, seen.ours(address), 0);
        if is_name {
            rewrite::set_source(bytes, seen, IpAddr::V4(NAME_ADDRESS), 0);
        }
        Ok((circuit, seen.len))
    }

    /// An ICMP error about a packet that left here: it is told with the inner address and port.
    fn error_in(
        &mut self,
        bytes: &mut [u8],
        seen: &Seen,
        at: usize,
        own: impl Fn(u32) -> Option<Ipv4Addr>,
    ) -> Result<(u32, usize), Drop> {
        let quoted = packet::parse_quoted(&bytes[at..seen.len]).map_err(|_| Drop::NoFlow)?;
        let source = quoted.source();
        let remote = quoted.destination();
        let start = at + quoted.header_len();
        let (place, port, remote_port) = match (quoted.protocol(), quoted.transport()) {
            (protocol::ICMP, Ok(Transport::Icmp(icmp))) => {
                (start + 4, icmp.echo_identifier().ok_or(Drop::NoFlow)?, 0)
            }
            (protocol::ICMPV6, Ok(Transport::Icmp6(icmp))) => {
                (start + 4, icmp.echo_identifier().ok_or(Drop::NoFlow)?, 0)
            }
            (protocol::TCP | protocol::UDP, _) => {
                let word =
                    |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
                let ports = word(start).zip(word(start + 2)).ok_or(Drop::NoFlow)?;
                (start, ports.0, ports.1)
            }
            _ => return Err(Drop::NoFlow),
        };
        let key = Key { protocol: quoted.protocol(), port, remote, remote_port };
        let is_ours = source == seen.ours(EXIT_ADDRESS);
        let flow = self.flows.get(&key).filter(|_| is_ours).ok_or(Drop::NoFlow)?;
        let address = seen.ours(own(flow.inside.circuit).ok_or(Drop::NoFlow)?);
        rewrite::put_quoted(bytes, at, false, address);
        bytes[place..place + 2].copy_from_slice(&flow.inside.port.to_be_bytes());
        rewrite::set_destination(bytes, seen, address, 0);
        if flow.is_name {
            rewrite::put_quoted(bytes, at, true, IpAddr::V4(NAME_ADDRESS));
        }
        rewrite::sum_icmp(bytes, seen);
        Ok((flow.inside.circuit, seen.len))
    }

    fn sweep(&mut self, now: Instant) {
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now.after(SWEEP_EVERY);
        self.end(|flow| flow.expires <= now);
        self.fragmented.retain(|_, (_, _, until)| *until > now);
    }

    /// Ends the flows that `is_over` names, and gives their ports back.
    fn end(&mut self, is_over: impl Fn(&Flow) -> bool) {
        let mappings = &mut self.mappings;
        let outer = &mut self.outer;
        let counts = &mut self.counts;
        self.flows.retain(|_, flow| {
            if !is_over(flow) {
                return true;
            }
            if let Some(mapping) = mappings.get_mut(&flow.inside) {
                mapping.flows -= 1;
                if mapping.flows == 0 {
                    outer.remove(&(flow.inside.protocol, mapping.port));
                    mappings.remove(&flow.inside);
                }
            }
            if let Some(count) = counts.get_mut(&flow.inside.circuit) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&flow.inside.circuit);
                }
            }
            false
        });
    }
}

const fn time(protocol: u8, stage: &Stage) -> Duration {
    match protocol {
        protocol::TCP => stage.time(),
        protocol::UDP => UDP_TIME,
        _ => ECHO_TIME,
    }
}

fn draw(random: &mut dyn Random) -> u16 {
    let mut bytes = [0; 2];
    random.fill(&mut bytes);
    u16::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests;
