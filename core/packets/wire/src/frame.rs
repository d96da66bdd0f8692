//! Frames: what two Warren nodes say to each other inside a session, beside packets.
//!
//! The first byte of a plaintext tells: 0x4. and 0x6. begin an IP packet, 0x80 and above a frame,
//! whose kind is in the low seven bits. Frames are spoken only with a peer that has shown to know
//! them (see [`CAPABILITY`]). Fields are little-endian; docs/wire.md has every bit.
//!
//! A superpacket travels as a [`Head`] and its [`Chunk`]s. What is to be repaired travels inside
//! a [`Protected`], and [`Repair`] chunks follow. [`Ordered`] gives a lone packet its place in its
//! flow, a [`Bundle`] holds small ones that waited together; each of these may be [`Squeezed`]. A
//! [`Report`] tells the other end what arrived. A [`Probe`] asks whether a path is open, its
//! [`ProbeAnswer`] says so, and [`Candidates`] say where else to try; [`Elsewhere`] says which
//! numbers these had. A [`Cell`] belongs to a circuit, which [`Build`] sets up and ends. A
//! [`Sounding`] is of a stream that measures what a path has left.

use crate::Malformed;

mod bundle;
mod cell;
mod elsewhere;
mod hello;
mod path;
mod repair;
mod report;
mod sounding;
mod squeezed;
mod unit;

pub use bundle::Bundle;
pub use cell::{Build, CLASSES, Cell, UNIT, class_of};
pub use elsewhere::{Elsewhere, Run};
pub use hello::{Features, Hello};
pub use path::{Candidates, Probe, ProbeAnswer};
pub use repair::{Protected, Repair};
pub use report::{Losses, Report};
pub use sounding::{Arrivals, Sounding};
pub use squeezed::Squeezed;
pub use unit::{Chunk, Head, Ordered};

/// What a node that knows frames puts into the low 24 bits of the nanoseconds of its initiation's
/// timestamp, where everybody else has zeros: encrypted, authenticated, and never looked at.
pub const CAPABILITY: u32 = 0x57_6e_01;

/// From this first byte on a plaintext is a frame.
pub const FIRST_BYTE_MIN: u8 = 0x80;
const KIND_HELLO: u8 = FIRST_BYTE_MIN | 1;
const KIND_HEAD: u8 = FIRST_BYTE_MIN | 2;
const KIND_CHUNK: u8 = FIRST_BYTE_MIN | 3;
const KIND_PROTECTED: u8 = FIRST_BYTE_MIN | 4;
const KIND_REPAIR: u8 = FIRST_BYTE_MIN | 5;
const KIND_REPORT: u8 = FIRST_BYTE_MIN | 6;
const KIND_ORDERED: u8 = FIRST_BYTE_MIN | 7;
const KIND_PROBE: u8 = FIRST_BYTE_MIN | 8;
const KIND_PROBE_ANSWER: u8 = FIRST_BYTE_MIN | 9;
const KIND_CANDIDATES: u8 = FIRST_BYTE_MIN | 10;
const KIND_BUNDLE: u8 = FIRST_BYTE_MIN | 11;
const KIND_SQUEEZED: u8 = FIRST_BYTE_MIN | 12;
const KIND_ELSEWHERE: u8 = FIRST_BYTE_MIN | 13;
const KIND_CELL: u8 = FIRST_BYTE_MIN | 14;
const KIND_BUILD: u8 = FIRST_BYTE_MIN | 15;
const KIND_SOUNDING: u8 = FIRST_BYTE_MIN | 16;

/// A frame, as parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Who is there, and what it can do.
    Hello(Hello),
    /// The headers of a superpacket whose chunks follow.
    Head(Head<'a>),
    /// One segment of a superpacket.
    Chunk(Chunk<'a>),
    /// A packet or frame that repair chunks will cover.
    Protected(Protected<'a>),
    /// What rebuilds protected ones that are lost.
    Repair(Repair<'a>),
    /// What the receiver saw.
    Report(Report),
    /// A lone packet and its place in its flow.
    Ordered(Ordered<'a>),
    /// Small packets that waited together.
    Bundle(Bundle<'a>),
    /// A packet or frame that was made shorter.
    Squeezed(Squeezed<'a>),
    /// Whether a path is open.
    Probe(Probe),
    /// It is.
    ProbeAnswer(ProbeAnswer),
    /// Where the sender may be reached.
    Candidates(Candidates<'a>),
    /// What of its numbers went another way than packets do.
    Elsewhere(Elsewhere<'a>),
    /// A cell of a circuit; its body follows the header.
    Cell(Cell),
    /// What sets a circuit up, or ends it.
    Build(Build),
    /// What measures a path, or tells what came of it.
    Sounding(Sounding<'a>),
    /// Of a kind that this version does not know.
    Unknown(u8),
}

/// Whether a plaintext is a frame.
#[inline]
#[must_use]
pub fn is_frame(plain: &[u8]) -> bool {
    plain.first().is_some_and(|&first| first >= FIRST_BYTE_MIN)
}

/// Whether a frame belongs to a circuit: to be read before a link looks at it.
#[inline]
#[must_use]
pub fn is_circuit(plain: &[u8]) -> bool {
    matches!(plain.first(), Some(&(KIND_CELL | KIND_BUILD)))
}

/// Whether a frame measures a path: it goes beside packets, too.
#[inline]
#[must_use]
pub fn is_sounding(plain: &[u8]) -> bool {
    plain.first() == Some(&KIND_SOUNDING)
}

/// Reads a frame; what follows it is padding, or was added by a later version, unless the kind
/// carries bytes to its end.
///
/// # Errors
/// Too short for its kind, inconsistent, or not a frame.
#[inline]
pub fn parse(plain: &[u8]) -> Result<Frame<'_>, Malformed> {
    match plain.first() {
        Some(&KIND_CHUNK) => Chunk::parse(plain).map(Frame::Chunk),
        Some(&KIND_PROTECTED) => Protected::parse(plain).map(Frame::Protected),
        Some(&KIND_REPAIR) => Repair::parse(plain).map(Frame::Repair),
        Some(&KIND_HEAD) => Head::parse(plain).map(Frame::Head),
        Some(&KIND_ORDERED) => Ordered::parse(plain).map(Frame::Ordered),
        Some(&KIND_BUNDLE) => Bundle::parse(plain).map(Frame::Bundle),
        Some(&KIND_SQUEEZED) => Squeezed::parse(plain).map(Frame::Squeezed),
        Some(&KIND_REPORT) => Report::parse(plain).map(Frame::Report),
        Some(&KIND_PROBE) => Probe::parse(plain).map(Frame::Probe),
        Some(&KIND_PROBE_ANSWER) => ProbeAnswer::parse(plain).map(Frame::ProbeAnswer),
        Some(&KIND_CANDIDATES) => Candidates::parse(plain).map(Frame::Candidates),
        Some(&KIND_ELSEWHERE) => Elsewhere::parse(plain).map(Frame::Elsewhere),
        Some(&KIND_CELL) => Cell::parse(plain).map(Frame::Cell),
        Some(&KIND_BUILD) => Build::parse(plain).map(Frame::Build),
        Some(&KIND_SOUNDING) => Sounding::parse(plain).map(Frame::Sounding),
        Some(&KIND_HELLO) => Hello::parse(plain).map(Frame::Hello),
        Some(&first) if first >= FIRST_BYTE_MIN => Ok(Frame::Unknown(first - FIRST_BYTE_MIN)),
        _ => Err(Malformed::Version),
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn packets_and_keepalives_are_no_frames_and_the_future_is_unknown() {
        for plain in [&[][..], &[0x45, 0], &[0x60], &[0, 0, 0]] {
            assert!(!is_frame(plain) && parse(plain).is_err());
        }
        assert_eq!(parse(&[0xff, 1, 2]), Ok(Frame::Unknown(0x7f)));
        let mut longer = Hello::default().build().to_vec();
        longer.extend([1; 48]);
        assert_eq!(parse(&longer), Ok(Frame::Hello(Hello::default())), "a later version's");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            kind in 0x80..0x92u8, bytes in proptest::collection::vec(any::<u8>(), 0..200)
        ) {
            let plain = [&[kind][..], &bytes].concat();
            if let Ok(Frame::Hello(hello)) = parse(&plain) {
                prop_assert_eq!(&hello.build()[2..12], &plain[2..12]);
            }
        }
    }
}
