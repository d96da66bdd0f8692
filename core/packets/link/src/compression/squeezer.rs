//! The compressing half of a link.

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use wire::frame::Squeezed;
use wire::packet::Packet;

use super::Squeezes;
use super::flows::{Flows, Ticket};

/// Shorter plaintexts are hardly worth it.
const LEN_MIN: usize = 4 * Squeezed::BUCKET_LEN;
/// Bytes of a plaintext that are looked at before it is compressed.
const SAMPLES: usize = 64;
/// Of these so many different ones are no text and no table: of random bytes, 57 are.
const DIFFERENT_MAX: usize = 50;
const PACKED_LEN: usize = Squeezed::len_of(get_maximum_output_size(Squeezed::OPENED_LEN_MAX));

/// The memory that it takes, and its flows.
pub(crate) struct Squeezer {
    table: CompressTable,
    plain: [u8; Squeezed::OPENED_LEN_MAX],
    packed: [u8; PACKED_LEN],
    flows: Flows,
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
        Box::new(Self {
            table: CompressTable::small(),
            plain: [0; Squeezed::OPENED_LEN_MAX],
            packed: [0; PACKED_LEN],
            flows: Flows::new(),
            counts: Squeezes::default(),
        })
    }

    /// What was compressed so far.
    pub(crate) fn counts(&self) -> Squeezes {
        self.counts
    }

    /// Leave to compress a packet's payload.
    pub(crate) fn ticket(&mut self, packet: &Packet<'_>) -> Option<Ticket> {
        self.flows.ticket(packet)
    }

    /// Whether a plaintext of `len` bytes of this flow is to be tried now.
    #[inline]
    pub(crate) fn wants(&mut self, ticket: Ticket, len: usize) -> bool {
        let has_length = (LEN_MIN..=Squeezed::OPENED_LEN_MAX).contains(&len);
        self.flows.wants(ticket, has_length)
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
        let looks_random = looks_random(plain);
        let packed_len = if looks_random {
            None
        } else {
            compress_into_with_table(plain, block, &mut self.table).ok()
        };
        let is_shorter = |packed: &usize| Squeezed::len_of(*packed) + Squeezed::BUCKET_LEN <= len;
        let Some(packed_len) = packed_len.filter(is_shorter) else {
            self.counts.in_vain += 1;
            self.flows.note_failure(ticket, looks_random);
            return Tried::AsItIs(&self.plain[..len]);
        };
        self.flows.note_shorter(ticket);
        let total = Squeezed::write_around(packed_len, len, &mut self.packed);
        self.counts.count += 1;
        self.counts.bytes_before += len as u64;
        self.counts.bytes_after += total as u64;
        Tried::Shorter(&self.packed[..total])
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
