//! What merges, what must not, and that cutting gives back what was pushed.

use core::slice::from_ref;

use super::*;
use crate::superpacket;
use crate::tests::sample::{Sample, any_sample};
use proptest::prelude::*;

/// Pushes packets in order, with padding between, and returns what is emitted.
fn coalesce(udp: bool, packets: &[Vec<u8>]) -> Vec<(virtio::Header, Vec<u8>)> {
    let mut coalescer = Coalescer::new(packets.len()).with_udp(udp);
    let mut arena = Vec::new();
    let mut ranges = Vec::new();
    for packet in packets {
        let padded = packet.len().next_multiple_of(16);
        ranges.push(arena.len()..arena.len() + padded);
        arena.extend_from_slice(packet);
        arena.resize(ranges.last().unwrap().end, 0);
    }
    for range in ranges {
        coalescer.push(&mut arena, range).unwrap();
    }
    let mut out = Vec::new();
    coalescer.flush(&mut arena, |header, arena, ranges| {
        assert!(ranges.len() <= GATHER_MAX);
        let parts: Vec<_> = ranges.iter().map(|range| &arena[range.clone()]).collect();
        out.push((header, parts.concat()));
    });
    assert!(coalescer.is_empty());
    out
}

/// What the kernel would make of the emitted superpackets.
fn cut(emitted: &[(virtio::Header, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for (header, bytes) in emitted {
        if *header == virtio::Header::default() {
            packets.push(bytes.clone());
            continue;
        }
        let mut bytes = bytes.clone();
        let parsed = superpacket::parse(*header, &mut bytes).unwrap();
        assert!(parsed.segments() > 1);
        for index in 0..parsed.segments() {
            let mut out = vec![0; parsed.segment_len(index)];
            parsed.write_segment(index, &mut out);
            packets.push(out);
        }
    }
    packets
}

fn sizes(emitted: &[(virtio::Header, Vec<u8>)]) -> Vec<usize> {
    emitted.iter().map(|(_, bytes)| bytes.len()).collect()
}

fn build(samples: &[Sample]) -> Vec<Vec<u8>> {
    samples.iter().map(Sample::build).collect()
}

/// Three consecutive segments of 1000, 1000 and 400 bytes.
fn three(v4: bool) -> Vec<Sample> {
    Sample::tcp(v4, (0..2400).map(|byte| byte as u8).collect()).cut(1000)
}

#[test]
fn consecutive_segments_become_the_superpacket_that_they_were_cut_from() {
    for v4 in [true, false] {
        let mut whole = Sample::tcp(v4, vec![0x5a; 1368 * 44 + 5]);
        whole.flags = Flags::ACK.with(Flags::CWR).with(Flags::PSH);
        whole.sequence = u32::MAX - 5000;
        let emitted = coalesce(false, &build(&whole.cut(1368)));
        assert_eq!(emitted, [whole.build_super(1368)]);
        let whole = Sample::udp(v4, vec![1; 1200 * 9 + 1]);
        assert_eq!(coalesce(true, &build(&whole.cut(1200))), [whole.build_super(1200)]);
    }
}

#[test]
fn a_lone_packet_is_untouched_behind_a_zero_header_and_without_padding() {
    let packet = three(true)[2].build();
    assert_eq!(coalesce(true, from_ref(&packet)), [(virtio::Header::default(), packet)]);
}

#[test]
fn udp_is_merged_only_where_the_queue_takes_it() {
    let packets = build(&Sample::udp(true, vec![1; 3000]).cut(1000));
    assert_eq!(coalesce(false, &packets).len(), 3);
    assert_eq!(coalesce(true, &packets).len(), 1);
}

#[test]
fn each_difference_that_segmentation_would_not_restore_keeps_packets_apart() {
    type Change = fn(&mut Sample);
    let changes: [(&str, Change); 14] = [
        ("traffic class", |sample| sample.traffic_class = 1),
        ("hop limit", |sample| sample.hop_limit = 63),
        ("source", |sample| sample.hosts.0 = 9),
        ("destination", |sample| sample.hosts.1 = 9),
        ("source port", |sample| sample.ports.0 = 9),
        ("destination port", |sample| sample.ports.1 = 9),
        ("sequence", |sample| sample.sequence += 1),
        ("acknowledgement", |sample| sample.acknowledgement += 1),
        ("window", |sample| sample.window += 1),
        ("timestamp", |sample| sample.options[7] += 1),
        ("option length", |sample| sample.options.truncate(8)),
        ("congestion echo", |sample| sample.flags = Flags::ACK.with(Flags::ECE)),
        ("window reduced", |sample| sample.flags = Flags::ACK.with(Flags::CWR)),
        ("no acknowledgement", |sample| sample.flags = Flags(0)),
    ];
    for v4 in [true, false] {
        for (what, change) in changes {
            let mut samples = three(v4);
            samples.truncate(2);
            change(&mut samples[1]);
            let packets = build(&samples);
            let emitted = coalesce(false, &packets);
            assert_eq!(emitted.len(), 2, "{what}, IPv4 {v4}");
            assert_eq!(cut(&emitted), packets, "{what}");
        }
    }
}

#[test]
fn flow_label_fragment_bit_and_id_count_where_they_mean_something() {
    let pair = |v4, change: fn(&mut Sample)| {
        let mut samples = three(v4);
        samples.truncate(2);
        samples.iter_mut().for_each(change);
        samples
    };
    let mut samples = pair(false, |_| ());
    samples[1].flow_label += 1;
    assert_eq!(coalesce(false, &build(&samples)).len(), 2);
    let mut samples = pair(true, |_| ());
    samples[1].dont_fragment = false;
    assert_eq!(coalesce(false, &build(&samples)).len(), 2);
    // RFC 6864: the id of an unfragmentable packet may be anything, of others it must count up.
    let mut samples = pair(true, |_| ());
    samples[1].id = 999;
    assert_eq!(coalesce(false, &build(&samples)).len(), 1);
    let mut samples = pair(true, |sample| sample.dont_fragment = false);
    assert_eq!(coalesce(false, &build(&samples)).len(), 1);
    samples[1].id = 999;
    assert_eq!(coalesce(false, &build(&samples)).len(), 2);
}

#[test]
fn a_short_packet_and_push_and_fin_close_their_superpacket() {
    let mut samples = Sample::tcp(true, vec![0; 6000]).cut(1000);
    samples[2].flags = Flags::ACK.with(Flags::PSH);
    let packets = build(&samples);
    let emitted = coalesce(false, &packets);
    assert_eq!(sizes(&emitted), [3052, 3052]);
    assert_eq!(emitted[0].1[33], 0x18);
    assert_eq!(cut(&emitted), packets);

    let mut samples = Sample::tcp(true, vec![0; 3000]).cut(1000);
    samples[0].flags = Flags::ACK.with(Flags::FIN);
    assert_eq!(sizes(&coalesce(false, &build(&samples))), [1052, 2052]);

    let mut samples = Sample::tcp(true, vec![0; 2000]).cut(500);
    samples[1].payload.pop();
    samples[2].sequence -= 1;
    samples[3].sequence -= 1;
    assert_eq!(sizes(&coalesce(false, &build(&samples))), [1051, 1052]);
    // A larger packet does not join smaller ones.
    let mut samples = Sample::tcp(true, vec![0; 2000]).cut(1000);
    samples[0].payload.pop();
    samples[0].sequence += 1;
    assert_eq!(coalesce(false, &build(&samples)).len(), 2);
}

#[test]
fn a_packet_with_a_wrong_checksum_passes_alone_and_unchanged() {
    for (at, what) in [(10, "IP header"), (36, "TCP checksum"), (60, "payload")] {
        for wrong in 0..3 {
            let mut packets = build(&three(true));
            packets[wrong][at] ^= 1;
            let emitted = coalesce(false, &packets);
            assert_eq!(cut(&emitted), packets, "{what} of {wrong}");
            assert!(emitted.len() >= 2, "{what} of {wrong}");
        }
    }
    let mut packets = build(&Sample::udp(true, vec![0; 2000]).cut(1000));
    packets[1][26..28].fill(0);
    assert_eq!(coalesce(true, &packets).len(), 2, "a UDP checksum of zero is not verified");
}

#[test]
fn fragments_are_not_merged_even_when_every_checksum_holds() {
    let fragment = |mut bytes: Vec<u8>| {
        bytes[6] = 0x20;
        bytes[10..12].fill(0);
        let sum = Sum::of(&bytes[..20]).checksum();
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    };
    let packets: Vec<_> = build(&three(true)).into_iter().map(fragment).collect();
    assert_eq!(coalesce(true, &packets).len(), 3);
}

#[test]
fn a_datagram_shorter_than_its_packet_passes_alone() {
    let lie = |mut bytes: Vec<u8>| {
        // The length and, doubled by the pseudo header, the sum: over all bytes it still holds.
        bytes[25] -= 1;
        let sum = u16::from_be_bytes([bytes[26], bytes[27]]);
        bytes[26..28].copy_from_slice(&checksum::update(sum, 1, 0).to_be_bytes());
        bytes
    };
    let honest = build(&Sample::udp(true, vec![0; 2000]).cut(1000));
    let packets: Vec<_> = honest.into_iter().map(lie).collect();
    for bytes in &packets {
        assert!(pseudo(bytes, &udp_shape(), 1008).plus(Sum::of(&bytes[20..])).is_valid());
    }
    assert_eq!(coalesce(true, &packets).len(), 2);
}

#[test]
fn a_udp_checksum_of_zero_says_nothing_even_when_it_adds_up() {
    let zero = |sample: &Sample| {
        let mut sample = sample.clone();
        sample.payload[..2].fill(0);
        let bytes = sample.build();
        sample.payload[..2].copy_from_slice(&bytes[26..28]);
        let mut bytes = sample.build();
        assert_eq!(bytes[26..28], [0xff, 0xff]);
        bytes[26..28].fill(0);
        bytes
    };
    let samples = Sample::udp(true, vec![7; 2000]).cut(1000);
    let packets: Vec<_> = samples.iter().map(zero).collect();
    for bytes in &packets {
        assert!(pseudo(bytes, &udp_shape(), 1008).plus(Sum::of(&bytes[20..])).is_valid());
    }
    assert_eq!(coalesce(true, &packets).len(), 2);
}

fn udp_shape() -> Shape {
    Shape { tcp: false, v4: true, ip_len: 20, header_len: 28, payload_len: 1000 }
}

#[test]
fn a_packet_that_cannot_be_merged_is_never_overtaken_by_its_flow() {
    let samples = three(true);
    let mut syn = samples[1].clone();
    syn.flags = Flags::SYN;
    let mut ack = samples[1].clone();
    ack.payload.clear();
    let mut urgent = samples[1].clone();
    urgent.flags = Flags::ACK.with(Flags::URG);
    for between in [syn, ack, urgent] {
        let packets = build(&[samples[0].clone(), between, samples[1].clone()]);
        let emitted = coalesce(false, &packets);
        assert_eq!(cut(&emitted), packets);
        assert_eq!(emitted.len(), 3);
    }
    // A fragment and a packet with options hide their flow: nothing overtakes them.
    let mut fragment = samples[1].build();
    fragment[6] = 0x20;
    let mut options = samples[1].build();
    options[0] = 0x46;
    for between in [fragment, options, vec![0x45; 10], vec![]] {
        let packets = [samples[0].build(), between, samples[1].build()];
        let emitted = coalesce(false, &packets);
        assert_eq!(emitted.len(), 3);
        assert_eq!(emitted[1].1[..packets[1].len()], packets[1]);
    }
}

#[test]
fn other_flows_and_icmp_between_do_not_stop_a_merge() {
    let samples = three(true);
    let mut other = three(false);
    other[0].ports = (1, 2);
    let mut icmp = samples[0].build();
    icmp[9] = 1;
    let packets = [samples[0].build(), icmp, other[0].build(), samples[1].build()];
    let emitted = coalesce(false, &packets);
    assert_eq!(sizes(&emitted), [2052, packets[1].len(), packets[2].len()]);
}

#[test]
fn a_superpacket_never_passes_65535_bytes_nor_its_segment_bounds() {
    let many = |mut sample: Sample, count: u32| {
        let size = sample.payload.len() as u32;
        let mut packets = Vec::new();
        for _ in 0..count {
            packets.push(sample.build());
            sample.sequence = sample.sequence.wrapping_add(size);
        }
        packets
    };
    for v4 in [true, false] {
        let packets = many(Sample::tcp(v4, vec![3; 1400]), 100);
        let emitted = coalesce(false, &packets);
        assert!(emitted.iter().all(|(_, bytes)| bytes.len() <= 65_535));
        assert_eq!(emitted.len(), 3);
    }
    let emitted = coalesce(false, &many(Sample::tcp(true, vec![3; 10]), 300));
    assert_eq!(sizes(&emitted), [52 + 1280, 52 + 1280, 52 + 440]);
    let emitted = coalesce(true, &many(Sample::udp(true, vec![3; 10]), 130));
    assert_eq!(sizes(&emitted), [28 + 640, 28 + 640, 28 + 20]);
}

#[test]
fn a_full_batch_takes_nothing_more_until_it_is_flushed() {
    let packet = three(true)[0].build();
    let mut arena = packet.clone();
    let mut coalescer = Coalescer::new(2);
    let all = 0..packet.len();
    for _ in 0..3 {
        assert_eq!(coalescer.push(&mut arena, all.clone()), Ok(()));
        assert_eq!(coalescer.push(&mut arena, all.clone()), Ok(()));
        assert_eq!(coalescer.push(&mut arena, all.clone()), Err(Full));
        assert_eq!(coalescer.len(), 2);
        let mut emitted = 0;
        coalescer.flush(&mut arena, |_, _, _| emitted += 1);
        assert_eq!(emitted, 2, "the same sequence number twice is not consecutive");
    }
}

/// Which flow a packet belongs to, for the order oracle.
fn flow(packet: &[u8]) -> Vec<u8> {
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= 24 => packet[12..24].to_vec(),
        Some(6) if packet.len() >= 44 => packet[8..44].to_vec(),
        _ => Vec::new(),
    }
}

proptest! {
    #[test]
    fn cutting_and_coalescing_is_the_identity((sample, size) in any_sample()) {
        let segments = sample.cut(size);
        let count_max = if sample.tcp { GATHER_MAX } else { UDP_SEGMENTS_MAX };
        prop_assume!(segments.len() <= count_max);
        let emitted = coalesce(true, &build(&segments));
        if segments.len() == 1 {
            prop_assert_eq!(emitted, [(virtio::Header::default(), sample.build())]);
        } else {
            prop_assert_eq!(emitted, [sample.build_super(size as u16)]);
        }
    }

    #[test]
    fn mixed_flows_come_out_complete_and_in_their_order(
        flows in prop::collection::vec(any_sample(), 1..5),
        order in prop::collection::vec((0usize..5, 0u8..12, any::<(u16, u8)>()), 1..80),
    ) {
        let mut queues: Vec<_> = flows
            .iter()
            .map(|(sample, size)| {
                // A changed id would be healed: ids of unfragmentable packets mean nothing.
                let sample = Sample { dont_fragment: false, ..sample.clone() };
                build(&sample.cut(*size)).into_iter()
            })
            .collect();
        let mut packets = Vec::new();
        for (which, action, (at, value)) in order {
            let count = queues.len();
            if let Some(mut packet) = queues[which % count].next() {
                if action == 0 {
                    // Not the addresses or ports, by which the oracle knows the flow.
                    let at = usize::from(at) % packet.len();
                    if !(12..24).contains(&at) && !(8..44).contains(&at) && at != 0 {
                        packet[at] = value;
                    }
                }
                // Padded as it comes: a length that lies may reach into the padding.
                packet.resize(packet.len().next_multiple_of(16), 0);
                packets.push(packet);
            }
        }
        let emitted = coalesce(true, &packets);
        let trimmed = |packet: &Vec<u8>| {
            let len = packet::total_len(packet).unwrap_or(packet.len());
            packet[..len].to_vec()
        };
        let back: Vec<_> = cut(&emitted).iter().map(trimmed).collect();
        let pushed: Vec<_> = packets.iter().map(trimmed).collect();
        let mut flows: Vec<_> = pushed.iter().map(|packet| flow(packet)).collect();
        flows.sort();
        flows.dedup();
        for key in flows {
            let of = |packets: &[Vec<u8>]| -> Vec<Vec<u8>> {
                packets.iter().filter(|packet| flow(packet) == key).cloned().collect()
            };
            prop_assert_eq!(of(&back), of(&pushed));
        }
        prop_assert_eq!(back.len(), pushed.len());
    }

    #[test]
    fn random_bytes_never_make_it_panic(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..20),
        first in prop::sample::select(vec![0x45u8, 0x60]),
    ) {
        let mut packets = packets;
        for packet in &mut packets {
            if let Some(octet) = packet.first_mut() {
                *octet = first;
            }
        }
        let _ = cut(&coalesce(true, &packets));
    }
}
