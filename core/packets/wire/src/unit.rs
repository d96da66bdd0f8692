//! A unit at its receiver: from the headers of a superpacket and some of its segments, packets for
//! the kernel again.
//!
//! The sender's kernel wrote one set of headers for all segments. [`Unit::new`] checks what a
//! [`Head`] claims about them, once; [`Unit::write_header`] writes the headers of a packet made
//! of any neighbouring segments, as segmentation would have written them, but with the checksum
//! left to the kernel: what was sealed is known to be whole.

use crate::checksum::{self, Sum};
use crate::frame::Head;
use crate::packet::{self, Fragment};
use crate::tcp::{self, Flags, Tcp};
use crate::{Malformed, ip, udp, virtio};

/// Chunks of a unit, at most.
pub const CHUNKS_MAX: usize = 255;

/// What the segments' headers have behind IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upper {
    /// Not to be cut: the headers are written as they are.
    Whole,
    Tcp,
    Udp,
}

/// The headers of a unit, checked.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    header: [u8; Head::HEADER_LEN_MAX],
    header_len: usize,
    ip_len: usize,
    upper: Upper,
    segment_size: usize,
    payload_len: usize,
    /// Sum of source, destination and protocol.
    pseudo: Sum,
}

impl Unit {
    /// Checks every claim of `head`.
    ///
    /// # Errors
    /// The first claim that does not hold.
    pub fn new(head: &Head<'_>) -> Result<Self, Malformed> {
        let payload_len = usize::from(head.payload_len);
        let view = packet::parse_quoted(head.header)?;
        if ip::total_len(head.header, false)? != head.header.len() + payload_len {
            return Err(Malformed::TotalLength);
        }
        let segment_size = usize::from(head.segment_size);
        if segment_size == 0 || payload_len == 0 {
            return Err(Malformed::GsoSize);
        }
        if payload_len.div_ceil(segment_size) > CHUNKS_MAX {
            return Err(Malformed::GsoSegments);
        }
        let mut unit = Self {
            header: [0; Head::HEADER_LEN_MAX],
            header_len: head.header.len(),
            ip_len: view.header_len(),
            upper: Upper::Whole,
            segment_size,
            payload_len,
            pseudo: checksum::pseudo(view.source(), view.destination(), view.protocol(), 0),
        };
        unit.header
            .get_mut(..head.header.len())
            .ok_or(Malformed::HeaderLength)?
            .copy_from_slice(head.header);
        let behind = head.header.get(unit.ip_len..).ok_or(Malformed::Truncated)?;
        let is_version = |version| view.version() == version;
        let (upper, upper_len) = match head.gso_type & !virtio::GSO_ECN {
            virtio::GSO_NONE if segment_size == payload_len => return Ok(unit),
            virtio::GSO_TCPV4 if is_version(4) => (Upper::Tcp, Tcp::view(behind)?.header_len()),
            virtio::GSO_TCPV6 if is_version(6) => (Upper::Tcp, Tcp::view(behind)?.header_len()),
            virtio::GSO_UDP_L4 => (Upper::Udp, udp::HEADER_LEN),
            _ => return Err(Malformed::GsoType),
        };
        let protocol = if upper == Upper::Tcp { ip::protocol::TCP } else { ip::protocol::UDP };
        if view.protocol() != protocol || view.is_routed() || behind.len() != upper_len {
            return Err(Malformed::GsoProtocol);
        }
        if view.fragment() != Fragment::Whole {
            return Err(Malformed::GsoFragment);
        }
        unit.upper = upper;
        Ok(unit)
    }

    /// The headers as they were sent.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header[..self.header_len]
    }

    /// Lets `rewrite` change addresses in the headers, and sums that count them; no lengths.
    pub fn rewrite(&mut self, rewrite: impl FnOnce(&mut [u8])) {
        rewrite(&mut self.header[..self.header_len]);
        if let Ok(view) = packet::parse_quoted(self.header()) {
            self.pseudo = checksum::pseudo(view.source(), view.destination(), view.protocol(), 0);
        }
    }

    /// Whether its chunks are datagrams of UDP, which only some kernels take joined.
    #[must_use]
    pub fn is_udp(&self) -> bool {
        self.upper == Upper::Udp
    }

    /// How many chunks there are, at least one.
    #[must_use]
    pub const fn chunks(&self) -> usize {
        self.payload_len.div_ceil(self.segment_size)
    }

    /// Payload bytes of chunk `index`; zero if there is none of that number.
    #[must_use]
    pub const fn chunk_len(&self, index: usize) -> usize {
        let left = self.payload_len.saturating_sub(index * self.segment_size);
        if left < self.segment_size { left } else { self.segment_size }
    }

    /// Writes to the start of `out` the headers of a packet that consists of `count` chunks from
    /// `first` on. Returns their length and what to tell the kernel.
    ///
    /// # Panics
    /// When `out` is shorter than [`Head::HEADER_LEN_MAX`], or there are no such chunks.
    pub fn write_header(
        &self,
        first: usize,
        count: usize,
        out: &mut [u8],
    ) -> (usize, virtio::Header) {
        let headers = &mut out[..self.header_len];
        headers.copy_from_slice(self.header());
        if self.upper == Upper::Whole {
            return (self.header_len, virtio::Header::default());
        }
        assert!(count > 0 && first + count <= self.chunks(), "{count} chunks from {first}");
        let end = self.payload_len.min((first + count) * self.segment_size);
        let total_len = self.header_len + end - first * self.segment_size;
        let (ip_header, upper) = headers.split_at_mut(self.ip_len);
        let upper_len = (total_len - self.ip_len) as u16;
        if ip_header[0] >> 4 == 4 {
            let id = u16::from_be_bytes([ip_header[4], ip_header[5]]).wrapping_add(first as u16);
            put(ip_header, 2, total_len as u16);
            put(ip_header, 4, id);
            put(ip_header, 10, 0);
            put(ip_header, 10, Sum::of(ip_header).checksum());
        } else {
            put(ip_header, 4, (total_len - ip::V6_HEADER_LEN) as u16);
        }
        let pseudo = self.pseudo.plus_word(upper_len).fold();
        let mut header = virtio::Header {
            flags: virtio::FLAG_NEEDS_CSUM,
            gso_type: virtio::GSO_NONE,
            hdr_len: self.header_len as u16,
            gso_size: 0,
            csum_start: self.ip_len as u16,
            csum_offset: udp::CHECKSUM_AT as u16,
        };
        let mut flags = Flags(0);
        if self.upper == Upper::Tcp {
            flags = self.patch_tcp(first, count, upper);
            header.csum_offset = tcp::CHECKSUM_AT as u16;
        } else {
            put(upper, 4, upper_len);
        }
        put(upper, usize::from(header.csum_offset), pseudo);
        if count > 1 {
            header.gso_size = self.segment_size as u16;
            header.gso_type = match (self.upper, ip_header[0] >> 4) {
                (Upper::Udp, _) => virtio::GSO_UDP_L4,
                (_, 4) => virtio::GSO_TCPV4,
                _ => virtio::GSO_TCPV6,
            };
            if flags.any(Flags::CWR) {
                header.gso_type |= virtio::GSO_ECN;
            }
        }
        (self.header_len, header)
    }

    /// Sequence number and flags: CWR is the first segment's, FIN and PSH are the last one's.
    fn patch_tcp(&self, first: usize, count: usize, upper: &mut [u8]) -> Flags {
        let sequence = u32::from_be_bytes([upper[4], upper[5], upper[6], upper[7]]);
        let sequence = sequence.wrapping_add((first * self.segment_size) as u32);
        upper[4..8].copy_from_slice(&sequence.to_be_bytes());
        let mut flags = Flags(upper[tcp::FLAGS_AT]);
        if first != 0 {
            flags = flags.without(Flags::CWR);
        }
        if first + count != self.chunks() {
            flags = flags.without(Flags::FIN.with(Flags::PSH));
        }
        upper[tcp::FLAGS_AT] = flags.0;
        flags
    }
}

fn put(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::superpacket;
    use crate::tests::sample::{Sample, any_sample};

    /// The head and the payload of a superpacket.
    fn head_of<'a>(header: virtio::Header, packet: &superpacket::Superpacket<'a>) -> Head<'a> {
        Head {
            unit: 1,
            tag: 0,
            ordered: true,
            gso_type: header.gso_type,
            segment_size: packet.segment_size() as u16,
            number: 0,
            sent_us: 0,
            payload_len: packet.payload().len() as u16,
            header: packet.header(),
        }
    }

    fn segments(header: virtio::Header, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut bytes = bytes.to_vec();
        let packet = superpacket::parse(header, &mut bytes).unwrap();
        let cut = |index| {
            let mut out = vec![0; packet.segment_len(index)];
            packet.write_segment(index, &mut out);
            out
        };
        (0..packet.segments()).map(cut).collect()
    }

    /// Any neighbouring segments, put together from the head, are cut into just those segments.
    fn check(sample: &Sample, size: usize, cuts: &[usize]) {
        let (header, bytes) = sample.build_super(size as u16);
        let expected = segments(header, &bytes);
        let mut parsed_bytes = bytes.clone();
        let packet = superpacket::parse(header, &mut parsed_bytes).unwrap();
        let unit = Unit::new(&head_of(header, &packet)).unwrap();
        assert_eq!(unit.chunks(), expected.len());
        let (mut first, mut got) = (0, Vec::new());
        for &count in cuts.iter().chain([&usize::MAX]) {
            let count = count.min(unit.chunks() - first);
            if count == 0 {
                continue;
            }
            let mut out = vec![0xaa; Head::HEADER_LEN_MAX];
            let (len, told) = unit.write_header(first, count, &mut out);
            out.truncate(len);
            (first..first + count).for_each(|i| out.extend(packet.segment_payload(i)));
            assert_eq!(told.gso_type == virtio::GSO_NONE, count == 1);
            got.extend(segments(told, &out));
            first += count;
        }
        assert_eq!(got, expected);
    }

    #[test]
    fn a_lone_packet_comes_back_byte_for_byte() {
        let bytes = Sample::udp(true, vec![3; 900]).build();
        let (header, payload) = bytes.split_at(40);
        let head = Head {
            unit: 0,
            tag: 0,
            ordered: false,
            gso_type: virtio::GSO_NONE,
            segment_size: payload.len() as u16,
            number: 0,
            sent_us: 0,
            payload_len: payload.len() as u16,
            header,
        };
        let unit = Unit::new(&head).unwrap();
        let mut out = [0; Head::HEADER_LEN_MAX];
        assert_eq!(unit.write_header(0, 1, &mut out), (40, virtio::Header::default()));
        assert_eq!((&out[..40], unit.chunk_len(0), unit.chunk_len(1)), (header, 888, 0));
    }

    #[test]
    fn a_head_that_lies_is_refused() {
        let (header, mut bytes) = Sample::tcp(true, vec![1; 5000]).build_super(1000);
        let packet = superpacket::parse(header, &mut bytes).unwrap();
        let good = head_of(header, &packet);
        assert!(Unit::new(&good).is_ok());
        let refuse = |head: Head<'_>| Unit::new(&head).map(|_| ()).unwrap_err();
        assert_eq!(refuse(Head { payload_len: 4999, ..good }), Malformed::TotalLength);
        assert_eq!(refuse(Head { segment_size: 0, ..good }), Malformed::GsoSize);
        assert_eq!(refuse(Head { segment_size: 10, ..good }), Malformed::GsoSegments);
        assert_eq!(refuse(Head { gso_type: virtio::GSO_TCPV6, ..good }), Malformed::GsoType);
        assert_eq!(refuse(Head { gso_type: virtio::GSO_UDP, ..good }), Malformed::GsoType);
        assert_eq!(refuse(Head { gso_type: virtio::GSO_UDP_L4, ..good }), Malformed::GsoProtocol);
        let mut short = good.header.to_vec();
        let total_len = (short.len() - 1 + 5000) as u16;
        short.pop();
        short[2..4].copy_from_slice(&total_len.to_be_bytes());
        assert!(Unit::new(&Head { header: &short, ..good }).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn neighbouring_segments_are_put_together_as_they_were(
            (sample, size) in any_sample(), cuts in proptest::collection::vec(1..9usize, 0..9)
        ) {
            check(&sample, size, &cuts);
        }

        #[test]
        fn a_unit_of_any_bytes_is_made_or_refused(
            header in proptest::collection::vec(any::<u8>(), 0..128), version in 0..2u8,
            gso_type: u8, segment_size in 0..100u16, payload_len in 0..300u16, first in 0..9usize
        ) {
            let mut header = header;
            if let Some(byte) = header.first_mut() {
                *byte = if version == 0 { 0x45 } else { 0x60 };
            }
            let head = Head {
                unit: 0, tag: 0, ordered: true, gso_type: gso_type & 0x87, segment_size,
                number: 0, sent_us: 0, payload_len, header: &header,
            };
            if let Ok(unit) = Unit::new(&head) {
                let first = first % unit.chunks();
                unit.write_header(first, unit.chunks() - first, &mut [0; Head::HEADER_LEN_MAX]);
            }
        }
    }
}
