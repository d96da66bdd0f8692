//! One packet rewritten where it lies: first looked at, then refused or changed as a whole.

use core::net::IpAddr;

use wire::checksum::Change;
use wire::icmp::{self, Icmp, Icmp6};
use wire::ip::protocol;
use wire::packet::{self, Fragment, Packet};
use wire::{tcp, udp};

use crate::Refusal;

/// Neighbour discovery (RFC 4861): router solicitation to redirect.
const DISCOVERY: core::ops::RangeInclusive<u8> = 133..=137;

/// What addresses become in one direction.
pub(crate) trait Way {
    /// What a source becomes.
    fn source(&self, address: IpAddr) -> IpAddr;
    /// What a destination becomes.
    fn destination(&self, address: IpAddr) -> IpAddr;
}

/// What the transport's checksum holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sums {
    /// The checksum.
    Complete,
    /// The pseudo header's sum, to be completed by whoever cuts.
    Partial,
}

/// Where a transport keeps a checksum that counts the addresses.
#[derive(Clone, Copy)]
enum Place {
    /// It has none, or this part of it has none.
    Nowhere,
    /// At this offset in the packet.
    At(usize),
    /// At this offset, where zero says that there is none.
    IfAny(usize),
}

/// Addresses that change, and the checksum that counts them.
struct Plan {
    is_v4: bool,
    old: (IpAddr, IpAddr),
    new: (IpAddr, IpAddr),
    place: Place,
}

impl Plan {
    fn is_moved(&self) -> bool {
        self.old != self.new
    }
}

/// Rewrites `bytes`; returns whether anything changed.
#[inline]
pub(crate) fn rewrite(bytes: &mut [u8], sums: Sums, way: &impl Way) -> Result<bool, Refusal> {
    let view = packet::parse_quoted(bytes).map_err(|_| Refusal::Malformed)?;
    let old = (view.source(), view.destination());
    let new = (way.source(old.0), way.destination(old.1));
    let is_error = is_error(&view);
    if old == new && !is_error {
        return Ok(false);
    }
    let place = if old == new { Place::Nowhere } else { place_of(&view)? };
    let outer = Plan { is_v4: view.version() == 4, old, new, place };
    let message_at = view.header_len();
    if !is_error {
        apply(bytes, 0, &outer, sums);
        return Ok(true);
    }
    let quote_at = message_at + icmp::HEADER_LEN;
    let quoted = quoted(view.bytes(), quote_at, way)?;
    if !outer.is_moved() && !quoted.is_moved() {
        return Ok(false);
    }
    if view.is_bound() {
        return Err(Refusal::Bound);
    }
    let within = apply(bytes, quote_at, &quoted, Sums::Complete);
    apply(bytes, 0, &outer, sums);
    // ICMPv6's checksum was mended for the outer addresses if they moved, and not for the quote.
    put_sum(bytes, message_at + 2, within, Sums::Complete);
    Ok(true)
}

/// Whether this is an ICMP error that quotes another packet.
fn is_error(view: &Packet<'_>) -> bool {
    match message(view) {
        Some((4, kind)) => {
            matches!(kind, Icmp::UNREACHABLE | Icmp::TIME_EXCEEDED | Icmp::PARAMETER_PROBLEM | 4)
        }
        // Of unknown types those below 128 are errors (RFC 4443 section 2.1).
        Some((_, kind)) => kind < Icmp6::ECHO_REQUEST,
        None => false,
    }
}

/// Version and type of an ICMP message whose beginning is here.
fn message(view: &Packet<'_>) -> Option<(u8, u8)> {
    let is_icmp =
        matches!((view.version(), view.protocol()), (4, protocol::ICMP) | (6, protocol::ICMPV6));
    let is_here = is_icmp && view.fragment() != Fragment::Later;
    let kind = *view.payload().first().filter(|_| is_here)?;
    Some((view.version(), kind))
}

/// Where the checksum is that a change of addresses must mend.
fn place_of(view: &Packet<'_>) -> Result<Place, Refusal> {
    if view.is_bound() {
        return Err(Refusal::Bound);
    }
    if view.asks_source_route() {
        return Err(Refusal::Routed);
    }
    match message(view) {
        Some((4, Icmp::REDIRECT)) => return Err(Refusal::Message),
        Some((6, kind)) if DISCOVERY.contains(&kind) => return Err(Refusal::Message),
        _ => {}
    }
    let place = transport(view).ok_or(Refusal::Protocol)?;
    match place {
        Place::At(at) | Place::IfAny(at) if at + 2 > view.bytes().len() => Err(Refusal::Cut),
        place => Ok(place),
    }
}

/// Where the transport's checksum stands, whether it is there or cut off; `None` of a protocol that
/// is not known.
fn transport(view: &Packet<'_>) -> Option<Place> {
    let at = view.header_len();
    let place = match (view.protocol(), view.version()) {
        (protocol::TCP, _) => Place::At(at + tcp::CHECKSUM_AT),
        (protocol::UDP, _) => Place::IfAny(at + udp::CHECKSUM_AT),
        // RFC 3828 section 3.1, RFC 4340 section 5.1: where UDP has it.
        (protocol::UDP_LITE | protocol::DCCP, _) => Place::At(at + udp::CHECKSUM_AT),
        (protocol::ICMPV6, 6) => Place::At(at + 2),
        (protocol::ICMP, 4) | (protocol::NO_NEXT_HEADER, 6) => Place::Nowhere,
        // They count no addresses: RFC 4303, 2784, 9260, 2003, 4213.
        (protocol::ESP | protocol::GRE | protocol::SCTP, _) => Place::Nowhere,
        (protocol::IPV4 | protocol::IPV6, _) => Place::Nowhere,
        _ => return None,
    };
    Some(if view.fragment() == Fragment::Later { Place::Nowhere } else { place })
}

/// What changes in the packet that an error quotes from `at` on: it went the other way.
fn quoted(bytes: &[u8], at: usize, way: &impl Way) -> Result<Plan, Refusal> {
    let quote = bytes.get(at..).ok_or(Refusal::Quote)?;
    let view = packet::parse_quoted(quote).map_err(|_| Refusal::Quote)?;
    let old = (view.source(), view.destination());
    let new = (way.destination(old.0), way.source(old.1));
    if old != new && (view.is_routed() || view.asks_source_route()) {
        return Err(Refusal::Routed);
    }
    // The quote may end before its checksum; and one that is not known is nobody's to compare.
    let place = match transport(&view) {
        Some(Place::At(place)) if place + 2 <= view.bytes().len() => Place::At(at + place),
        Some(Place::IfAny(place)) if place + 2 <= view.bytes().len() => Place::IfAny(at + place),
        _ => Place::Nowhere,
    };
    Ok(Plan { is_v4: view.version() == 4, old, new, place })
}

/// Writes the new addresses of the packet at `at`, and mends its checksums. Returns all that
/// changed, for a checksum around it.
fn apply(bytes: &mut [u8], at: usize, plan: &Plan, sums: Sums) -> Change {
    if !plan.is_moved() {
        return Change::NONE;
    }
    let change = put_address(bytes, at, plan, Change::NONE);
    let mut all = change;
    if plan.is_v4 {
        all = all.plus(put_sum(bytes, at + 10, change, Sums::Complete));
    }
    match plan.place {
        Place::At(place) => all.plus(put_sum(bytes, place, change, sums)),
        Place::IfAny(place) if bytes[place..place + 2] != [0, 0] => {
            all.plus(put_udp_sum(bytes, place, change, sums))
        }
        Place::IfAny(_) | Place::Nowhere => all,
    }
}

fn put_address(bytes: &mut [u8], at: usize, plan: &Plan, change: Change) -> Change {
    let (source_at, destination_at) = if plan.is_v4 { (12, 16) } else { (8, 24) };
    let change = put(bytes, at + source_at, plan.old.0, plan.new.0, change);
    put(bytes, at + destination_at, plan.old.1, plan.new.1, change)
}

fn put(bytes: &mut [u8], at: usize, old: IpAddr, new: IpAddr, change: Change) -> Change {
    match (old, new) {
        (IpAddr::V4(old), IpAddr::V4(new)) => {
            bytes[at..at + 4].copy_from_slice(&new.octets());
            change.bytes(&old.octets(), &new.octets())
        }
        (IpAddr::V6(old), IpAddr::V6(new)) => {
            bytes[at..at + 16].copy_from_slice(&new.octets());
            change.bytes(&old.octets(), &new.octets())
        }
        // A pair is of one family.
        _ => change,
    }
}

/// Mends the checksum at `at` by what changed under it; returns how it changed itself.
fn put_sum(bytes: &mut [u8], at: usize, change: Change, sums: Sums) -> Change {
    let old = word(bytes, at);
    let new = mended(old, change, sums);
    bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
    Change::NONE.word(old, new)
}

/// The same of UDP, where a checksum of zero is sent as all ones (RFC 768).
fn put_udp_sum(bytes: &mut [u8], at: usize, change: Change, sums: Sums) -> Change {
    let old = word(bytes, at);
    let new = match mended(old, change, sums) {
        0 => u16::MAX,
        sum => sum,
    };
    bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
    Change::NONE.word(old, new)
}

fn mended(old: u16, change: Change, sums: Sums) -> u16 {
    match sums {
        Sums::Complete => change.mend(old),
        Sums::Partial => change.mend_partial(old),
    }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests;
