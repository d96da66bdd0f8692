//! Compression of what one datagram holds, where the user asked for it (docs/compression.md).
//!
//! Each packet, chunk or bundle is a block of LZ4 by itself. What a block can tell by its length
//! it tells of one datagram of one flow alone: flows share no block, and no block knows an earlier
//! one (threat BC-02). What does not get shorter by a whole bucket travels as it is, so nothing
//! ever gets longer. All memory is made once for a link: nothing is allocated for a packet.
//!
//! `flows` says which flow may be compressed, and when it is tried; `squeezer` does it. [`open`] is
//! the other end.

use lz4_flex::block::decompress_into;
use wire::frame::Squeezed;

pub(crate) mod flows;
pub(crate) mod squeezer;

pub use self::flows::PORTS_LEFT_ALONE;

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
