//! Cutting against a naive model, and virtio headers that lie (threat PF-16).

use super::*;
use crate::tests::sample::{Sample, any_sample};
use proptest::prelude::*;

fn cut(header: virtio::Header, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let mut bytes = bytes.to_vec();
    let parsed = parse(header, &mut bytes)?;
    let mut segments = Vec::new();
    for index in 0..parsed.segments() {
        let mut out = vec![0xaa; parsed.segment_len(index)];
        assert_eq!(parsed.write_segment(index, &mut out), out.len());
        segments.push(out);
    }
    Ok(segments)
}

fn check(sample: &Sample, size: usize) {
    let (header, bytes) = sample.build_super(size as u16);
    let segments = cut(header, &bytes).unwrap();
    let expected: Vec<_> = sample.cut(size).iter().map(Sample::build).collect();
    assert_eq!(segments, expected);
    for segment in &segments {
        assert!(packet::parse(segment).unwrap().checksums_hold());
    }
}

#[test]
fn a_superpacket_of_64_kib_is_cut_into_segments_as_if_built_one_by_one() {
    for v4 in [true, false] {
        let mut sample = Sample::tcp(v4, vec![0x5a; 1368 * 45 + 11]);
        sample.flags = Flags::ACK.with(Flags::CWR).with(Flags::PSH).with(Flags::FIN);
        sample.sequence = u32::MAX - 2000;
        sample.id = 0xffff;
        check(&sample, 1368);
        check(&Sample::udp(v4, vec![1; 1200 * 10]), 1200);
    }
}

#[test]
fn cwr_is_on_the_first_segment_only_and_fin_and_psh_on_the_last() {
    let mut sample = Sample::tcp(true, vec![0; 3000]);
    sample.flags = Flags(0xd9);
    let (header, bytes) = sample.build_super(1000);
    assert_eq!(header.gso_type, virtio::GSO_TCPV4 | virtio::GSO_ECN);
    let flags: Vec<_> = cut(header, &bytes).unwrap().iter().map(|raw| raw[33]).collect();
    assert_eq!(flags, [0xd0, 0x50, 0x59]);
}

#[test]
fn a_udp_checksum_that_comes_out_as_zero_is_sent_as_all_ones() {
    let mut sample = Sample::udp(true, vec![7; 1000]);
    sample.payload[..2].fill(0);
    let sum = sample.build();
    sample.payload[..2].copy_from_slice(&sum[26..28]);
    let (header, bytes) = sample.build_super(1000);
    assert_eq!(cut(header, &bytes).unwrap()[0][26..28], [0xff, 0xff]);
}

#[test]
fn a_segment_size_above_the_payload_gives_one_complete_packet() {
    let sample = Sample::tcp(false, vec![3; 500]);
    let (header, bytes) = sample.build_super(60_000);
    assert_eq!(cut(header, &bytes).unwrap(), [sample.build()]);
    let empty = Sample::tcp(true, Vec::new());
    let (header, bytes) = empty.build_super(1000);
    assert_eq!(cut(header, &bytes).unwrap(), [empty.build()]);
}

#[test]
fn a_plain_packet_passes_and_a_partial_checksum_is_completed_in_place() {
    for sample in [Sample::tcp(true, vec![9; 77]), Sample::udp(false, vec![9; 78])] {
        let complete = sample.build();
        let plain = cut(virtio::Header::default(), &complete).unwrap();
        assert_eq!(plain.concat(), complete);
        let (header, partial) = sample.build_super(0);
        let header = virtio::Header { gso_type: 0, ..header };
        let padded = [&partial[..], &[0xee; 9]].concat();
        assert_eq!(cut(header, &padded).unwrap(), [complete]);
    }
}

#[test]
fn a_checksum_inside_udp_may_be_left_to_us() {
    let inner = Sample::tcp(true, vec![4; 100]);
    let (_, partial) = inner.build_super(0);
    let mut outer = Sample::udp(true, partial);
    let header = virtio::Header {
        flags: virtio::FLAG_NEEDS_CSUM,
        csum_start: (outer.header_len() + 20) as u16,
        csum_offset: 16,
        ..virtio::Header::default()
    };
    let mut bytes = outer.build();
    bytes[26..28].fill(0);
    outer.payload = inner.build();
    let mut expected = outer.build();
    expected[26..28].fill(0);
    assert_eq!(cut(header, &bytes).unwrap(), [expected]);
}

#[test]
fn an_overlarge_header_length_as_a_forwarding_kernel_writes_it_is_ignored() {
    let sample = Sample::tcp(true, vec![1; 4000]);
    let (mut header, bytes) = sample.build_super(1000);
    let expected = cut(header, &bytes).unwrap();
    for claim in [0, 20, 1052, bytes.len()] {
        header.hdr_len = claim as u16;
        assert_eq!(cut(header, &bytes).unwrap(), expected);
    }
    header.hdr_len = bytes.len() as u16 + 1;
    assert_eq!(cut(header, &bytes), Err(Malformed::GsoHeader));
}

#[test]
fn pf_16_each_lie_of_a_virtio_header_has_its_reason() {
    type Lie = fn(&mut virtio::Header);
    let lies: [(Lie, Malformed); 12] = [
        (|header| header.gso_type = virtio::GSO_UDP, Malformed::GsoType),
        (|header| header.gso_type = 2, Malformed::GsoType),
        (|header| header.gso_type = virtio::GSO_ECN, Malformed::GsoType),
        (|header| header.gso_type = virtio::GSO_UDP_L4 | virtio::GSO_ECN, Malformed::GsoType),
        (|header| header.gso_type = virtio::GSO_TCPV6, Malformed::GsoProtocol),
        (|header| header.gso_type = virtio::GSO_UDP_L4, Malformed::GsoProtocol),
        (|header| header.gso_size = 0, Malformed::GsoSize),
        (|header| header.gso_size = 1, Malformed::GsoSegments),
        (|header| header.hdr_len = u16::MAX, Malformed::GsoHeader),
        (|header| header.csum_start = 0, Malformed::ChecksumStart),
        (|header| header.csum_start = 21, Malformed::ChecksumStart),
        (|header| header.csum_offset = 6, Malformed::ChecksumStart),
    ];
    let (honest, bytes) = Sample::tcp(true, vec![7; 9000]).build_super(1000);
    for (number, (lie, reason)) in lies.into_iter().enumerate() {
        let mut header = honest;
        lie(&mut header);
        assert_eq!(cut(header, &bytes), Err(reason), "lie {number}");
    }
}

#[test]
fn pf_16_a_plain_checksum_must_lie_behind_the_ip_header_and_inside_the_packet() {
    let bytes = Sample::udp(true, vec![7; 20]).build();
    for (start, offset, right) in [
        (20, 6, true),
        (46, 0, true),
        (19, 6, false),
        (0, 10, false),
        (46, 1, false),
        (48, 0, false),
        (u16::MAX, u16::MAX, false),
    ] {
        let header = virtio::Header {
            flags: virtio::FLAG_NEEDS_CSUM,
            csum_start: start,
            csum_offset: offset,
            ..virtio::Header::default()
        };
        let outcome = cut(header, &bytes);
        assert_eq!(outcome.is_ok(), right, "start {start} offset {offset}: {outcome:?}");
    }
}

#[test]
fn pf_16_packets_that_cannot_be_cut_are_refused() {
    let (header, bytes) = Sample::tcp(true, vec![7; 3000]).build_super(1000);
    let with = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        cut(header, &bytes).unwrap_err()
    };
    assert_eq!(with(6, 0x20), Malformed::GsoFragment);
    assert_eq!(with(7, 1), Malformed::GsoFragment);
    assert_eq!(with(33, 0x12), Malformed::GsoProtocol);
    assert_eq!(with(33, 0x14), Malformed::GsoProtocol);
    assert_eq!(with(32, 0x40), Malformed::TcpHeaderLength);
    assert_eq!(with(2, 0xff), Malformed::TotalLength);
    assert_eq!(with(0, 0x75), Malformed::Version);
    assert_eq!(cut(header, &[]), Err(Malformed::Truncated));

    let (header, mut udp) = Sample::udp(false, vec![7; 3000]).build_super(1000);
    udp[45] -= 1;
    assert_eq!(cut(header, &udp), Err(Malformed::UdpLength));

    let mut big = vec![0; 70_000];
    big[0] = 0x60;
    big[6] = 6;
    let (header, _) = Sample::tcp(false, vec![7; 30]).build_super(10);
    assert_eq!(cut(header, &big), Err(Malformed::Jumbogram));
}

#[test]
fn a_routing_header_keeps_the_kernels_pseudo_header() {
    let mut sample = Sample::tcp(false, vec![7; 2500]);
    let (mut header, mut bytes) = sample.build_super(1000);
    let expected: Vec<_> = sample.cut(1000).iter().map(Sample::build).collect();
    // The packet travels to another address first; the final one stands in the routing header.
    let mut routing = vec![6, 2, 0, 1, 0, 0, 0, 0];
    routing.extend_from_slice(&bytes[24..40]);
    bytes[39] = 99;
    bytes[6] = 43;
    bytes.splice(40..40, routing);
    let length = bytes.len() as u16 - 40;
    bytes[4..6].copy_from_slice(&length.to_be_bytes());
    header.csum_start += 24;
    sample.hosts.1 = 99;
    let segments = cut(header, &bytes).unwrap();
    for (segment, plain) in segments.iter().zip(&expected) {
        assert_eq!(segment[64..], plain[40..]);
    }
    header.flags = 0;
    assert_eq!(cut(header, &bytes), Err(Malformed::GsoProtocol));
}

proptest! {
    #[test]
    fn segments_equal_packets_built_one_by_one((sample, size) in any_sample()) {
        check(&sample, size);
    }

    #[test]
    fn pf_16_no_header_and_no_packet_makes_it_panic(
        (sample, size) in any_sample(),
        raw: [u8; 10],
        mask in 0u16..1024,
        flips in prop::collection::vec((0usize..100, any::<u8>()), 0..4),
        cut_at in 0usize..7000,
    ) {
        let (header, mut bytes) = sample.build_super(size as u16);
        let mut encoded = header.encode();
        for at in 0..10 {
            if mask & 1 << at != 0 {
                encoded[at] = raw[at];
            }
        }
        for (at, value) in flips {
            let len = bytes.len();
            bytes[at % len] = value;
        }
        bytes.truncate(cut_at);
        let header = virtio::Header::decode(&encoded).unwrap();
        if let Ok(segments) = cut(header, &bytes) {
            for segment in segments {
                prop_assert_eq!(packet::total_len(&segment), Ok(segment.len()));
                if header.gso_type != 0 {
                    let segment = packet::parse(&segment).unwrap();
                    prop_assert!(segment.transport().is_ok());
                    prop_assert!(segment.checksums_hold());
                }
            }
        }
    }
}
