//! By what a path's available bandwidth is measured: packets of a stream, and when they arrived.

use super::{KIND_SOUNDING, u16_at, u32_at};
use crate::Malformed;

const PACKET: u8 = 0;
const ASK: u8 = 1;
const TOLD: u8 = 2;
/// Bytes of the shortest.
const FIXED_LEN: usize = 12;
/// Bytes of a time.
const ENTRY_LEN: usize = 4;

/// A packet of a stream, the question when its packets arrived, and the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sounding<'a> {
    /// One packet of a stream; zeros fill it.
    Packet {
        /// The stream's number.
        stream: u32,
        /// Its place there.
        sequence: u16,
    },
    /// When did they arrive, from this one on? It is as long as the answer may be.
    Ask {
        /// The stream's number.
        stream: u32,
        /// The first that is meant.
        first: u16,
        /// So many times have room in the answer.
        room: usize,
    },
    /// Then.
    Told(Arrivals<'a>),
}

/// When packets of a stream arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrivals<'a> {
    /// The stream's number.
    pub stream: u32,
    /// The first that is told of.
    pub first: u16,
    entries: &'a [u8],
}

impl<'a> Sounding<'a> {
    /// Bytes of the shortest: of a question, and in front of times.
    pub const FIXED_LEN: usize = FIXED_LEN;
    /// Packets of a stream, at most.
    pub const PACKETS_MAX: u16 = 1000;
    /// Times of one answer, at most: it fits wherever IPv6 does.
    pub const TIMES_MAX: usize = 250;

    pub(super) fn parse(plain: &'a [u8]) -> Result<Self, Malformed> {
        let (fixed, rest) = plain.split_first_chunk::<FIXED_LEN>().ok_or(Malformed::Truncated)?;
        let stream = u32_at(fixed, 4);
        let place = u16_at(fixed, 2);
        if place >= Self::PACKETS_MAX {
            return Err(Malformed::TotalLength);
        }
        match fixed[1] {
            PACKET => Ok(Self::Packet { stream, sequence: place }),
            ASK => {
                let room = (rest.len() / ENTRY_LEN).min(Self::TIMES_MAX);
                Ok(Self::Ask { stream, first: place, room })
            }
            TOLD => {
                let count = usize::from(u16_at(fixed, 8));
                let room = usize::from(Self::PACKETS_MAX - place).min(Self::TIMES_MAX);
                if count > room {
                    return Err(Malformed::TotalLength);
                }
                let entries = rest.get(..count * ENTRY_LEN).ok_or(Malformed::Truncated)?;
                Ok(Self::Told(Arrivals { stream, first: place, entries }))
            }
            _ => Err(Malformed::Version),
        }
    }

    /// Writes a packet of a stream, which fills `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`Sounding::FIXED_LEN`].
    pub fn write_packet(stream: u32, sequence: u16, out: &mut [u8]) {
        out.fill(0);
        write_fixed(PACKET, stream, sequence, 0, out);
    }

    /// Writes a question, as long as its answer may be: [`Sounding::told_len`] of the times.
    ///
    /// # Panics
    /// When `out` is shorter than [`Sounding::FIXED_LEN`].
    pub fn write_ask(stream: u32, first: u16, out: &mut [u8]) {
        out.fill(0);
        write_fixed(ASK, stream, first, 0, out);
    }

    /// Length on the wire of an answer with so many times, in bytes.
    #[must_use]
    pub const fn told_len(count: usize) -> usize {
        FIXED_LEN + count * ENTRY_LEN
    }

    /// Writes the answer: for each packet from `first` on the tenths of a microsecond from the
    /// first arrival to its own and one more, or zero.
    ///
    /// # Panics
    /// When `out` is shorter than [`Sounding::told_len`] of their number.
    pub fn write_told(stream: u32, first: u16, times: &[u32], out: &mut [u8]) {
        let times = &times[..times.len().min(Self::TIMES_MAX)];
        write_fixed(TOLD, stream, first, times.len() as u16, out);
        let entries = out[FIXED_LEN..].chunks_exact_mut(ENTRY_LEN);
        for (entry, time) in entries.zip(times) {
            entry.copy_from_slice(&time.to_le_bytes());
        }
    }
}

impl Arrivals<'_> {
    /// Of each packet that arrived its place, and when: nanoseconds behind the first that did.
    pub fn times(&self) -> impl Iterator<Item = (u16, u64)> {
        let entries = self.entries.as_chunks::<ENTRY_LEN>().0;
        let first = self.first;
        entries.iter().enumerate().filter_map(move |(at, entry)| {
            let since = u32::from_le_bytes(*entry).checked_sub(1)?;
            Some((first + at as u16, u64::from(since) * 100))
        })
    }
}

fn write_fixed(what: u8, stream: u32, place: u16, count: u16, out: &mut [u8]) {
    out[..2].copy_from_slice(&[KIND_SOUNDING, what]);
    out[2..4].copy_from_slice(&place.to_le_bytes());
    out[4..8].copy_from_slice(&stream.to_le_bytes());
    out[8..10].copy_from_slice(&count.to_le_bytes());
    out[10..12].fill(0);
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, is_sounding, parse};
    use super::*;

    #[test]
    fn soundings_are_what_the_page_says() {
        let mut out = [0xee; 40];
        Sounding::write_packet(0x0807_0605, 0x0102, &mut out);
        assert_eq!(out[..8], [0x90, 0, 2, 1, 5, 6, 7, 8]);
        assert_eq!(out[8..], [0; 32]);
        let packet = Sounding::Packet { stream: 0x0807_0605, sequence: 0x0102 };
        assert_eq!(parse(&out), Ok(Frame::Sounding(packet)));
        assert!(is_sounding(&out) && !is_sounding(&[0x8f]) && !is_sounding(&[]));
        let mut ask = [0xee; Sounding::told_len(2)];
        Sounding::write_ask(0x0807_0605, 250, &mut ask);
        assert_eq!(ask[..12], [0x90, 1, 250, 0, 5, 6, 7, 8, 0, 0, 0, 0]);
        assert_eq!(ask[12..], [0; 8]);
        let expected = Sounding::Ask { stream: 0x0807_0605, first: 250, room: 2 };
        assert_eq!(parse(&ask), Ok(Frame::Sounding(expected)));
        let mut told = vec![0; Sounding::told_len(3)];
        Sounding::write_told(7, 500, &[1, 0, 0x0403], &mut told);
        assert_eq!(told[..12], [0x90, 2, 0xf4, 1, 7, 0, 0, 0, 3, 0, 0, 0]);
        let Ok(Frame::Sounding(Sounding::Told(arrivals))) = parse(&told) else { panic!("it is") };
        assert_eq!((arrivals.stream, arrivals.first), (7, 500));
        let times: Vec<(u16, u64)> = arrivals.times().collect();
        assert_eq!(times, [(500, 0), (502, 102_600)]);
        for frame in [&out[..], &ask, &told] {
            assert!((1..12).all(|len| parse(&frame[..len]).is_err()));
        }
        assert!((12..told.len()).all(|len| parse(&told[..len]).is_err()), "times are missing");
    }

    #[test]
    fn a_sounding_names_no_more_than_a_stream_has() {
        let mut ask = [0; 2_000];
        Sounding::write_ask(1, 999, &mut ask);
        let expected = Sounding::Ask { stream: 1, first: 999, room: Sounding::TIMES_MAX };
        assert_eq!(parse(&ask), Ok(Frame::Sounding(expected)));
        ask[2..4].copy_from_slice(&1000_u16.to_le_bytes());
        assert_eq!(parse(&ask), Err(Malformed::TotalLength));
        let mut told = vec![0; Sounding::told_len(251)];
        Sounding::write_told(1, 0, &[5; 300], &mut told);
        assert_eq!(told[8], 250);
        told[8] = 251;
        assert_eq!(parse(&told), Err(Malformed::TotalLength));
        Sounding::write_told(1, 900, &[5; 101], &mut told);
        assert_eq!(parse(&told), Err(Malformed::TotalLength), "there is no packet 1000");
        told[1] = 3;
        assert_eq!(parse(&told), Err(Malformed::Version));
    }
}
