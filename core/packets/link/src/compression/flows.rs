//! Flows that may be compressed, each with its luck: what did not get shorter is left alone for a
//! while.

use std::num::NonZeroU32;

use wire::ip::protocol;
use wire::packet::{Fragment, Packet};

/// Ports whose flows are left alone, whichever end has them: what is encrypted there does not get
/// shorter, and what is not yet, as it goes by in a handshake, is nobody's to guess at (BC-02).
pub const PORTS_LEFT_ALONE: [u16; 3] = [22, 443, 853];
/// Flows whose luck is remembered; another one with the same place takes it over.
const FLOWS_MAX: usize = 256;
/// After so many failures in a row a flow is left alone for so many pieces. One more than each is a
/// prime, lest what is tried keeps time with what a flow has at regular intervals.
const LEFT_ALONE: [u8; 8] = [0, 1, 2, 4, 10, 16, 30, 60];
/// What looks random is cheap to tell, and counts for so many failures at most.
const FAILURES_OF_SAMPLES_MAX: u8 = 4;

/// One flow's leave to be compressed, for the packet at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    place: u8,
    /// Another one for whoever has the place later.
    flow: NonZeroU32,
}

/// What tells flows apart: addresses, ports, protocol. Compared as a whole, for an outsider can
/// find flows of equal hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Key {
    addresses: [u64; 4],
    ports: u32,
    protocol: u8,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    key: Key,
    number: NonZeroU32,
    /// Times in a row that nothing was saved.
    failures: u8,
    /// Pieces that are left alone until the next is tried.
    left: u8,
}

/// The flows of a link.
pub(super) struct Flows {
    places: [Flow; FLOWS_MAX],
    number: NonZeroU32,
}

impl Flows {
    /// None seen.
    pub(super) fn new() -> Self {
        let number = NonZeroU32::MIN;
        let flow = Flow { key: Key::default(), number, failures: 0, left: 0 };
        Self { places: [flow; FLOWS_MAX], number }
    }

    /// Leave to compress a packet's payload: for a whole packet of TCP or UDP with other ports
    /// than those which are left alone.
    pub(super) fn ticket(&mut self, packet: &Packet<'_>) -> Option<Ticket> {
        let protocol = packet.protocol();
        let has_ports = matches!(protocol, protocol::TCP | protocol::UDP);
        if !has_ports || packet.fragment() != Fragment::Whole {
            return None;
        }
        let ports: &[u8; 4] = packet.payload().first_chunk()?;
        let each = [[ports[0], ports[1]], [ports[2], ports[3]]].map(u16::from_be_bytes);
        if each.iter().any(|port| PORTS_LEFT_ALONE.contains(port)) {
            return None;
        }
        let mut addresses = [0; 4];
        let bytes = if packet.version() == 4 { 12..20 } else { 8..40 };
        for (word, bytes) in addresses.iter_mut().zip(packet.bytes()[bytes].as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let key = Key { addresses, ports: u32::from_le_bytes(*ports), protocol };
        let place = key.place();
        let flow = &mut self.places[usize::from(place)];
        if flow.key != key {
            self.number = self.number.checked_add(1).unwrap_or(NonZeroU32::MIN);
            *flow = Flow { key, number: self.number, failures: 0, left: 0 };
        }
        Some(Ticket { place, flow: flow.number })
    }

    /// Whether the flow of this ticket is still there and not left alone now, which counts as a
    /// piece of it.
    #[inline]
    pub(super) fn wants(&mut self, ticket: Ticket, has_length: bool) -> bool {
        let flow = &mut self.places[usize::from(ticket.place)];
        if flow.number != ticket.flow || !has_length {
            return false;
        }
        let is_left = flow.left > 0;
        flow.left = flow.left.saturating_sub(1);
        !is_left
    }

    /// A piece got shorter.
    pub(super) fn note_shorter(&mut self, ticket: Ticket) {
        self.places[usize::from(ticket.place)].failures = 0;
    }

    /// A piece did not get shorter, or was not tried since it `looks_random`.
    pub(super) fn note_failure(&mut self, ticket: Ticket, looks_random: bool) {
        let most = LEFT_ALONE.len() as u8 - 1;
        let failures_max = if looks_random { FAILURES_OF_SAMPLES_MAX } else { most };
        let flow = &mut self.places[usize::from(ticket.place)];
        flow.failures = (flow.failures + 1).min(failures_max);
        flow.left = LEFT_ALONE[usize::from(flow.failures)];
    }
}

impl Key {
    fn place(&self) -> u8 {
        let [a, b, c, d] = self.addresses;
        let rest = u64::from(self.ports) << 8 | u64::from(self.protocol);
        let mixed = [a, b, c, d].iter().fold(rest, |mixed, word| {
            (mixed.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }
}
