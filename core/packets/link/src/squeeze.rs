//! Compression of what one datagram holds, where the user asked for it (docs/compression.md).
//!
//! Each packet, chunk or bundle is a block of LZ4 by itself. What a block can tell by its length
//! it tells of one datagram of one flow alone: flows share no block, and no block knows an earlier
//! one (threat BC-02). What does not get shorter by a whole bucket travels as it is, so nothing
//! ever gets longer. All memory is made once for a link: nothing is allocated for a packet.

use std::num::NonZeroU32;

use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};
use wire::frame::Squeezed;
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
/// Shorter plaintexts are hardly worth it.
const LEN_MIN: usize = 4 * Squeezed::BUCKET_LEN;
/// Bytes of a plaintext that are looked at before it is compressed.
const SAMPLES: usize = 64;
/// Of these so many different ones are no text and no table: of random bytes, 57 are.
const DIFFERENT_MAX: usize = 50;
const PACKED_LEN: usize = Squeezed::len_of(get_maximum_output_size(Squeezed::OPENED_LEN_MAX));

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

/// What was compressed: bytes before and after, and how often it was tried in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Squeezes {
    /// Plaintexts that got shorter.
    pub count: u64,
    /// Their bytes before.
    pub bytes_before: u64,
    /// Their bytes afterwards.
    pub bytes_after: u64,
    /// Plaintexts that were tried and did not get shorter by a bucket.
    pub in_vain: u64,
}

/// The compressing half of a link.
pub(crate) struct Squeezer {
    table: CompressTable,
    plain: [u8; Squeezed::OPENED_LEN_MAX],
    packed: [u8; PACKED_LEN],
    flows: [Flow; FLOWS_MAX],
    number: NonZeroU32,
    counts: Squeezes,
}

/// A plaintext that was tried.
pub(crate) enum Tried<'a> {
    /// The frame that takes its place.
    Shorter(&'a [u8]),
    /// It is to travel as it is.
    AsItIs(&'a [u8]),
}

impl std::fmt::Debug for Squeezer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Squeezer").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Squeezer {
    /// One that has seen nothing: some 30 KiB.
    pub(crate) fn new() -> Box<Self> {
        let number = NonZeroU32::MIN;
        let flow = Flow { key: Key::default(), number, failures: 0, left: 0 };
        Box::new(Self {
            table: CompressTable::small(),
            plain: [0; Squeezed::OPENED_LEN_MAX],
            packed: [0; PACKED_LEN],
            flows: [flow; FLOWS_MAX],
            number,
            counts: Squeezes::default(),
        })
    }

    /// What was compressed so far.
    pub(crate) fn counts(&self) -> Squeezes {
        self.counts
    }

    /// Leave to compress a packet's payload: for a whole packet of TCP or UDP with other ports
    /// than those which are left alone.
    pub(crate) fn ticket(&mut self, packet: &Packet<'_>) -> Option<Ticket> {
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
        let flow = &mut self.flows[usize::from(place)];
        if flow.key != key {
            self.number = self.number.checked_add(1).unwrap_or(NonZeroU32::MIN);
            *flow = Flow { key, number: self.number, failures: 0, left: 0 };
        }
        Some(Ticket { place, flow: flow.number })
    }

    /// Whether a plaintext of `len` bytes of this flow is to be tried now.
    #[inline]
    pub(crate) fn wants(&mut self, ticket: Ticket, len: usize) -> bool {
        let flow = &mut self.flows[usize::from(ticket.place)];
        if flow.number != ticket.flow || !(LEN_MIN..=Squeezed::OPENED_LEN_MAX).contains(&len) {
            return false;
        }
        let is_left = flow.left > 0;
        flow.left = flow.left.saturating_sub(1);
        !is_left
    }

    /// Tries a plaintext of `len` bytes, which `write` fills, and for which [`Squeezer::wants`]
    /// was asked.
    pub(crate) fn squeeze(
        &mut self,
        ticket: Ticket,
        len: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Tried<'_> {
        let plain = &mut self.plain[..len];
        write(plain);
        let block = &mut self.packed[Squeezed::FIXED_LEN..];
        let (packed_len, failures_max) = if looks_random(plain) {
            (None, FAILURES_OF_SAMPLES_MAX)
        } else {
            let packed_len = compress_into_with_table(plain, block, &mut self.table).ok();
            (packed_len, LEFT_ALONE.len() as u8 - 1)
        };
        let is_shorter = |packed: &usize| Squeezed::len_of(*packed) + Squeezed::BUCKET_LEN <= len;
        let flow = &mut self.flows[usize::from(ticket.place)];
        let Some(packed_len) = packed_len.filter(is_shorter) else {
            self.counts.in_vain += 1;
            flow.failures = (flow.failures + 1).min(failures_max);
            flow.left = LEFT_ALONE[usize::from(flow.failures)];
            return Tried::AsItIs(&self.plain[..len]);
        };
        flow.failures = 0;
        let total = Squeezed::write_around(packed_len, len, &mut self.packed);
        self.counts.count += 1;
        self.counts.bytes_before += len as u64;
        self.counts.bytes_after += total as u64;
        Tried::Shorter(&self.packed[..total])
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

/// Whether bytes look as if they were random: encrypted, or compressed already.
fn looks_random(plain: &[u8]) -> bool {
    let stride = (plain.len() / SAMPLES).max(1);
    let mut seen = [0_u64; 4];
    for byte in plain.iter().step_by(stride).take(SAMPLES) {
        seen[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }
    let different: u32 = seen.iter().map(|word| word.count_ones()).sum();
    different as usize > DIFFERENT_MAX
}

/// Opens a block into memory that is there; `None` unless it holds exactly what it says, and that
/// may stand in a block (threat BC-01).
#[must_use]
pub fn open<'a>(
    squeezed: &Squeezed<'_>,
    memory: &'a mut [u8; Squeezed::OPENED_LEN_MAX],
) -> Option<&'a [u8]> {
    let opened = memory.get_mut(..usize::from(squeezed.opened_len))?;
    let len = decompress_into(squeezed.block, opened).ok()?;
    (len == opened.len() && Squeezed::may_hold(opened)).then_some(opened)
}
