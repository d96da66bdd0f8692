//! Nodes that speak frames, with each other and with plain ones.

use std::time::Duration;

use link::{Destination, Outbox};
use wire::frame::{self, Features, Frame, Hello, Losses, Report};
use wire::{virtio, wireguard};

use super::squeezed::{self, Inner, Other};
use crate::node::tests::{self, Machine, address, packet_to, settle};

/// Machines 1 and 2, which know each other; the first speaks frames and the second may.
fn pair(second: bool) -> (Machine, Machine) {
    numbered(1, second)
}

/// The same with the numbers `first` and the next one. A test with several pairs gives each its
/// own numbers: equal numbers draw equal keys, and no key may seal twice with one nonce.
fn numbered(first: u8, second_speaks: bool) -> (Machine, Machine) {
    let (mut a, mut b) = (Machine::new(first), Machine::new(first + 1));
    a.node.set_frames(true);
    b.node.set_frames(second_speaks);
    a.knows(&b, &[&format!("10.0.0.{}/32", first + 1)]);
    b.knows(&a, &[&format!("10.0.0.{first}/32")]);
    (a, b)
}

#[test]
fn two_that_speak_frames_learn_of_each_other_on_every_session() {
    let (mut a, mut b) = pair(true);
    for round in 0..3_u64 {
        // From the initiator: initiation, response, packet, hello, hello; once what fits, the
        // answers to that, and which numbers all four had.
        a.send(&packet_to(1, 2, 5));
        let datagrams = settle(&mut a, &mut b);
        assert!(round > 0 || datagrams == 13, "{datagrams}");
        let hellos = [a.node.hello(&b.public()), b.node.hello(&a.public())].map(Option::unwrap);
        let expected = Hello { mtu: 1420, features: link::features(), ..Hello::default() };
        assert_eq!(
            hellos.map(|hello| Hello { heard: false, first_number: 0, ..hello }),
            [expected; 2]
        );
        assert_ne!(hellos[0].heard, hellos[1].heard, "one answers the other");
        a.send(&packet_to(1, 2, 6));
        assert_eq!(settle(&mut a, &mut b), 1, "it is said once");
        a.wait(200);
        b.wait(200);
        settle(&mut a, &mut b);
    }
    assert_eq!(b.delivered.len(), 6);
    // One on each session, and the sessions were initiated now by one side, now by the other, and
    // now by both.
    for node in [&a.node, &b.node] {
        assert!((3..=20).contains(&node.counters().frames_in), "{:?}", node.counters());
    }
}

/// A packet of TCP with `len` bytes in all, headers included.
fn filled(from: u8, to: u8, len: usize) -> Vec<u8> {
    let mut packet = vec![7; len];
    packet[..40].fill(0);
    (packet[0], packet[8], packet[9]) = (0x45, 64, 6);
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[12..16].copy_from_slice(&[10, 0, 0, from]);
    packet[16..20].copy_from_slice(&[10, 0, 0, to]);
    (packet[32], packet[33]) = (0x50, 0x10);
    packet
}

#[test]
fn the_largest_packet_passes_whatever_the_interface_takes() {
    for (first, mtu) in (0..).map(|n| 31 + 2 * n).zip([68, 100, 127, 128, 129, 160, 576, 1_420]) {
        let (mut a, mut b) = numbered(first, true);
        a.node.set_mtu(mtu);
        b.node.set_mtu(mtu);
        a.send(&packet_to(first, first + 1, 1));
        settle(&mut a, &mut b);
        b.delivered.clear();
        for len in [40, mtu - 20, mtu] {
            let packet = filled(first, first + 1, len);
            a.send(&packet);
            settle(&mut a, &mut b);
            assert_eq!(b.delivered.pop(), Some(packet), "{len} bytes of {mtu}");
        }
    }
}

#[test]
fn a_plain_peer_is_told_nothing_whoever_begins() {
    for (first, speaks) in [(1, true), (3, false)] {
        let (mut one, mut two) = numbered(first, false);
        one.node.set_frames(speaks);
        one.send(&packet_to(first, first + 1, 5));
        assert_eq!(settle(&mut one, &mut two), 3, "initiation, response, packet");
        two.send(&packet_to(first + 1, first, 5));
        assert_eq!(settle(&mut one, &mut two), 1);
        assert_eq!(one.node.hello(&two.public()), None);
        assert_eq!(two.node.hello(&one.public()), None);
    }
    // The other way round: the plain one begins.
    let (mut a, mut b) = numbered(5, false);
    b.send(&packet_to(6, 5, 5));
    assert_eq!(settle(&mut b, &mut a), 3);
    assert_eq!((a.node.counters().frames_in, b.node.counters().frames_in), (0, 0));
}

/// What machine 2 says to machine 1, which is plain, over two sessions, and who `begins` both.
fn says(begins: bool, second_speaks: bool) -> Vec<Vec<u8>> {
    // The same keys draw the same nonces, on purpose.
    noise::forget_nonces();
    let (mut plain, mut other) = numbered(1, second_speaks);
    plain.node.set_frames(false);
    let mut said = Vec::new();
    if begins {
        other.send(&packet_to(2, 1, 99));
        said.extend(other.sent());
        let initiation = std::mem::take(&mut other.out.sent);
        initiation.iter().for_each(|(_, bytes)| plain.receive(address(2), bytes));
    }
    for mark in 0..20 {
        let burst: Vec<Vec<u8>> = (0..5).map(|at| packet_to(2, 1, mark ^ at)).collect();
        plain.send(&packet_to(1, 2, mark));
        for _ in 0..3 {
            let from_plain = std::mem::take(&mut plain.out.sent);
            from_plain.iter().for_each(|(_, bytes)| other.receive(address(1), bytes));
            other.send_together(if from_plain.is_empty() { &burst } else { &[] });
            said.extend(other.sent());
            let from_other = std::mem::take(&mut other.out.sent);
            from_other.iter().for_each(|(_, bytes)| plain.receive(address(2), bytes));
        }
        plain.wait(10);
        other.wait(10);
    }
    assert!(plain.delivered.len() >= 100, "{} packets", plain.delivered.len());
    said
}

#[test]
fn toward_a_plain_peer_that_begins_every_byte_is_the_same() {
    let (with, without) = (says(false, true), says(false, false));
    assert!(with.len() > 100, "{} datagrams", with.len());
    assert_eq!(with, without);
}

/// Threat BC-11. The capability word is in the low 24 bits of the stamp, which every WireGuard
/// fills as it likes; tag and mac1 follow from it, and nothing else.
#[test]
fn toward_a_plain_peer_where_we_begin_only_the_stamps_low_bits_differ() {
    let (with, without) = (says(true, true), says(true, false));
    assert!(with.len() > 100, "{} datagrams", with.len());
    assert_eq!(with.len(), without.len());
    let mut initiations = 0;
    for (with, without) in with.iter().zip(&without) {
        assert_eq!(with.len(), without.len());
        let differ = |at: &usize| with[*at] != without[*at];
        let differing: Vec<usize> = (0..with.len()).filter(differ).collect();
        if with[0] != 1 {
            assert_eq!(differing, [], "a message of type {}", with[0]);
            continue;
        }
        initiations += 1;
        assert!(differing.iter().all(|at| (97..132).contains(at)), "{differing:?}");
        assert!(differing.iter().any(|at| (97..100).contains(at)), "the word is there");
    }
    assert_eq!(initiations, 2);
}

#[test]
fn a_peer_that_begins_anew_without_frames_is_spoken_to_plainly() {
    let (mut a, mut b) = pair(true);
    a.send(&packet_to(1, 2, 5));
    settle(&mut a, &mut b);
    assert!(a.node.hello(&b.public()).is_some());
    b.node.set_frames(false);
    a.wait(200);
    b.wait(200);
    a.send(&packet_to(1, 2, 5));
    settle(&mut a, &mut b);
    assert_eq!(a.node.hello(&b.public()), None, "nothing was said on this session");
    assert_eq!(b.delivered.len(), 2);
}

/// A TCP segment from 10.0.0.1 to 10.0.0.2 with `len` bytes of payload.
pub(super) fn segment(len: usize, mark: u8) -> Vec<u8> {
    let total_len = (40 + len) as u16;
    let mut bytes = vec![0x45, 0, 0, 0, 0, mark, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    bytes[2..4].copy_from_slice(&total_len.to_be_bytes());
    let sum = wire::checksum::Sum::of(&bytes).checksum();
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut upper = vec![0x9c, 0x40, 0x14, 0x51, 0, 0, 0, mark, 0, 0, 0, 1, 0x50, 0x18, 1, 0];
    upper.extend([0; 4]);
    upper.extend((0..len).map(|at| at as u8 ^ mark));
    let source = std::net::IpAddr::from([10, 0, 0, 1]);
    let destination = std::net::IpAddr::from([10, 0, 0, 2]);
    let sum = wire::checksum::pseudo(source, destination, 6, upper.len() as u32);
    let sum = sum.plus(wire::checksum::Sum::of(&upper)).checksum();
    upper[16..18].copy_from_slice(&sum.to_be_bytes());
    [bytes, upper].concat()
}

#[test]
fn lone_segments_of_any_length_arrive_as_they_were() {
    let (mut a, mut b) = pair(true);
    a.send(&packet_to(1, 2, 5));
    settle(&mut a, &mut b);
    b.delivered.clear();
    for (mark, len) in (1..).zip([1, 20, 500, 1340, 1356, 1357, 1370, 1379, 1380]) {
        a.send(&segment(len, mark));
        settle(&mut a, &mut b);
        assert_eq!(b.delivered.pop(), Some(segment(len, mark)), "{len} bytes");
        assert!(b.delivered.is_empty(), "{len} bytes: more than was sent");
    }
}

/// A superpacket of TCP with so many segments of 1,000 bytes, as the kernel gives it.
pub(super) fn superpacket(segments: usize) -> (virtio::Header, Vec<u8>) {
    let header = virtio::Header {
        flags: virtio::FLAG_NEEDS_CSUM,
        gso_type: virtio::GSO_TCPV4,
        hdr_len: 40,
        gso_size: 1_000,
        csum_start: 20,
        csum_offset: 16,
    };
    (header, segment(segments * 1_000, 3))
}

/// A chunk that is lost for good takes its own segment along and no other.
#[test]
fn a_lost_chunk_costs_its_own_segments_only() {
    const SEGMENTS: usize = 12;
    for lost in 0..SEGMENTS {
        let first = 1 + 2 * lost as u8;
        let (mut a, mut b) = squeezed::numbered(first, false);
        let (header, mut bytes) = superpacket(SEGMENTS);
        a.node.handle_packet(header, &mut bytes, a.now, &mut a.out);
        let sent = std::mem::take(&mut a.out.sent);
        // The head and the chunks in their order; what might repair them is lost as well.
        assert!(sent.len() > SEGMENTS, "{} datagrams", sent.len());
        for (at, (_, datagram)) in sent.iter().enumerate().take(1 + SEGMENTS) {
            if at != 1 + lost {
                b.receive(address(first), datagram);
            }
        }
        b.pass(Duration::from_millis(100));
        let sequence = |packet: &Vec<u8>| u32::from_be_bytes([24, 25, 26, 27].map(|at| packet[at]));
        let mut came: Vec<u32> = b.delivered.iter().map(sequence).collect();
        came.sort_unstable();
        let wanted = (0..SEGMENTS).filter(|&segment| segment != lost);
        assert_eq!(came, wanted.map(|at| 3 + 1_000 * at as u32).collect::<Vec<u32>>());
        let (_, whole) = superpacket(SEGMENTS);
        for packet in &b.delivered {
            let at = (sequence(packet) - 3) as usize;
            assert_eq!(packet[40..], whole[40 + at..][..1_000], "lost {lost}");
        }
    }
}

fn send_unit(a: &mut Machine, segments: usize) {
    let (header, mut bytes) = superpacket(segments);
    a.node.handle_packet(header, &mut bytes, a.now, &mut a.out);
}

fn is_calm(a: &Machine, b: &Machine) -> bool {
    a.node.weather(&b.public()).is_some_and(|weather| weather.repair_chunks == 0)
}

/// Sends until `a` knows that the path to `b` loses nothing: 1,200 chunks, for before it does small
/// blocks are repaired when full ones are not any more.
fn make_known(a: &mut Machine, b: &mut Machine) {
    let mut rounds = 0;
    while rounds < 30 || !is_calm(a, b) {
        assert!(rounds < 5_000, "a path that loses nothing is never known");
        rounds += 1;
        send_unit(a, 40);
        settle(a, b);
        for machine in [&mut *a, &mut *b] {
            machine.pass(Duration::from_millis(100));
        }
        settle(a, b);
        b.delivered.clear();
    }
}

/// A peer that is only followed has no paths that are probed, and yet another path with another
/// place.
#[test]
fn a_peer_that_is_heard_elsewhere_has_a_path_that_is_not_known() {
    let (mut a, mut b) = squeezed::numbered(45, false);
    make_known(&mut a, &mut b);
    let heard = |a: &mut Machine, b: &mut Machine, from: u8| {
        b.send(&packet_to(2, 1, from));
        for (_, datagram) in std::mem::take(&mut b.out.sent) {
            a.receive(address(from), &datagram);
        }
    };
    heard(&mut a, &mut b, 46);
    assert!(is_calm(&a, &b), "where it was");
    heard(&mut a, &mut b, 99);
    assert!(!is_calm(&a, &b), "another place");
}

/// Where nothing is repaired a long unit's head goes out before its chunks and again behind them:
/// either is enough.
#[test]
fn a_lost_head_costs_nothing_where_it_goes_out_twice() {
    const SEGMENTS: usize = 12;
    for (first, lost) in [(41, 0), (43, 1 + SEGMENTS)] {
        let (mut a, mut b) = squeezed::numbered(first, false);
        make_known(&mut a, &mut b);
        send_unit(&mut a, SEGMENTS);
        let sent = std::mem::take(&mut a.out.sent);
        assert_eq!(sent.len(), 1 + SEGMENTS + 1, "a head, the chunks, the head");
        for (at, (_, datagram)) in sent.iter().enumerate() {
            if at != lost {
                b.receive(address(first), datagram);
            }
        }
        b.pass(Duration::from_millis(100));
        assert_eq!(b.delivered.len(), SEGMENTS, "datagram {lost} is lost");
    }
}

#[test]
fn bc_05_small_packets_of_one_turn_share_a_datagram_and_nothing_waits_for_another_turn() {
    let (mut a, mut b) = pair(true);
    a.send(&packet_to(1, 2, 5));
    settle(&mut a, &mut b);
    b.delivered.clear();
    let small: Vec<Vec<u8>> = (0..40).map(|mark| packet_to(1, 2, mark)).collect();
    a.send_together(&small);
    let len = 28 + 12 + 2 + small.iter().map(|packet| packet.len() + 2).sum::<usize>();
    let sent = a.sent();
    assert!(sent.len() == 2 || len > 1_420, "{} datagrams", sent.len());
    assert!(sent.iter().all(|datagram| datagram.len() <= 1_440 + 32));
    assert!(settle(&mut a, &mut b) <= len.div_ceil(1_300));
    assert_eq!(b.delivered, small, "in order");
    // One alone travels as it always did.
    b.delivered.clear();
    a.send_together(&small[..1]);
    let plain = small[0].len().next_multiple_of(16);
    assert_eq!(a.sent()[0].len(), plain + wireguard::OVERHEAD_LEN);
    settle(&mut a, &mut b);
    assert_eq!(b.delivered, &small[..1]);
}

#[test]
fn small_packets_and_large_ones_keep_their_order_and_flows_their_numbers() {
    let (mut a, mut b) = pair(true);
    a.send(&packet_to(1, 2, 5));
    settle(&mut a, &mut b);
    b.delivered.clear();
    let lens = [1, 20, 500, 1_380, 3, 700, 600, 40, 41, 1_200, 2];
    let mut packets: Vec<Vec<u8>> = Vec::new();
    for (mark, len) in (1..).zip(lens.repeat(8)) {
        packets.push(segment(len, mark));
        packets.push(packet_to(1, 2, mark));
    }
    a.send_together(&packets);
    settle(&mut a, &mut b);
    let (mut came, mut wanted) = (b.delivered.clone(), packets.clone());
    let tcp = |packets: &[Vec<u8>]| -> Vec<Vec<u8>> {
        packets.iter().filter(|packet| packet[9] == 6).cloned().collect()
    };
    assert_eq!(tcp(&came), tcp(&wanted), "within the flow");
    came.sort();
    wanted.sort();
    assert_eq!(came, wanted, "each once");
}

/// Order is kept for one flow, and its wait is nobody else's.
#[test]
fn while_a_flow_waits_for_its_order_everything_else_passes() {
    let (mut a, mut b) = squeezed::numbered(1, false);
    let mut send = |packet: &[u8], arrives: bool| {
        a.send(packet);
        for (_, datagram) in std::mem::take(&mut a.out.sent) {
            if arrives {
                b.receive(address(1), &datagram);
            }
        }
        std::mem::take(&mut b.delivered)
    };
    let [first, lost, ahead] = [1, 2, 3].map(|mark| segment(1_000, mark));
    assert_eq!(send(&first, true), [first]);
    assert!(send(&lost, false).is_empty());
    assert!(send(&ahead, true).is_empty(), "it waits");
    let datagram = Inner::udp(1, (9, 53), vec![7; 100]).build();
    let other_flow = Inner::tcp(1, (77, 4_001), vec![7; 100]).build();
    for passing in [packet_to(1, 2, 9), datagram, other_flow] {
        assert_eq!(send(&passing, true), [passing], "it does not");
    }
    b.pass(Duration::from_millis(40));
    assert_eq!(b.delivered, [ahead]);
}

/// Threat BC-04: the second packet's source is none of the peer's.
#[test]
fn bc_04_every_packet_of_a_bundle_is_judged_by_itself() {
    let (mut a, mut b) = pair(true);
    a.send(&packet_to(1, 2, 5));
    settle(&mut a, &mut b);
    b.delivered.clear();
    let good = [packet_to(1, 2, 1), packet_to(1, 2, 3)];
    a.send_together(&[good[0].clone(), packet_to(9, 2, 2), good[1].clone()]);
    assert_eq!(settle(&mut a, &mut b), 1, "one bundle");
    assert_eq!(b.delivered, good);
}

/// Most is lost, it claims, and nothing of it can be rebuilt.
#[test]
fn bc_09_a_peer_that_lies_about_losses_is_sent_half_as_much_again_at_most_and_soon_less() {
    let mut machine = Machine::new(2);
    machine.node.set_frames(true);
    let mut liar = Other::of(&mut machine, Features::REPAIR);
    let packets: Vec<_> =
        (0..40).map(|_| Inner::tcp(2, (9, 4_000), vec![7; 1_300]).build()).collect();
    let plain: usize = packets.iter().map(|packet| packet.len() + wireguard::OVERHEAD_LEN).sum();
    let clear = Losses { judged: 1_000, lost: 600, runs: 300, ..Losses::default() };
    let mut shares = Vec::new();
    for number in 1..=60 {
        machine.send_together(&packets);
        machine.pass(Duration::from_millis(100));
        let sent: usize = machine.sent().iter().map(Vec::len).sum();
        machine.out.sent.clear();
        shares.push(sent as f64 / plain as f64);
        let report = Report { number, clear, missing: 600, held_us: u32::MAX, ..Report::default() };
        liar.say(&mut machine, &report.build());
    }
    // What is said of a piece in front of it is 3 % of one.
    assert!(shares.iter().all(|share| *share <= 1.54), "{shares:.2?}");
    assert!(
        shares[5..10].iter().any(|share| *share > 1.2),
        "it was believed at first: {shares:.2?}"
    );
    assert!(shares[50..].iter().all(|share| *share <= 1.1), "{shares:.2?}");
}

/// TCP that fills a slow line bears what the line loses and travels bare; a call beside it, through
/// the same sender, is repaired.
#[test]
fn on_a_full_slow_line_a_call_is_repaired_and_tcp_is_not() {
    let mut machine = Machine::new(2);
    machine.node.set_frames(true);
    let mut other = Other::of(&mut machine, Features::REPAIR);
    let tcp = (0..50).map(|_| Inner::tcp(2, (9, 4_000), vec![7; 1_300]).build());
    let packets: Vec<_> =
        tcp.chain((0..10).map(|_| Inner::udp(2, (9, 5_000), vec![8; 1_300]).build())).collect();
    let mut in_blocks = |queue_us: u32, reports: std::ops::Range<u16>| {
        let (mut tcp, mut udp, mut repair) = (0, 0, 0);
        for number in reports {
            machine.send_together(&packets);
            let echo_us = (machine.now.0 / 1_000) as u32;
            machine.pass(Duration::from_millis(100));
            for (_, datagram) in machine.out.sent.split_off(0) {
                let plain = other.open(&datagram);
                match frame::parse(&plain) {
                    Ok(Frame::Protected(_)) if plain[plain.len() / 2] == 7 => tcp += 1,
                    Ok(Frame::Protected(_)) => udp += 1,
                    Ok(Frame::Repair(_)) => repair += 1,
                    _ => {}
                }
            }
            let lost = u32::from(number % 2 == 0);
            let clear = Losses { judged: 60, lost, runs: lost, ..Losses::default() };
            let held_us = 99_000 - queue_us;
            let report = Report { number, clear, queue_us, echo_us, held_us, ..Report::default() };
            other.say(&mut machine, &report.build());
        }
        (tcp, udp, repair)
    };
    in_blocks(0, 1..100);
    let (tcp, udp, repair) = in_blocks(0, 100..110);
    assert!(tcp > 400 && udp > 80 && repair > 10, "not full: {tcp} {udp} {repair}");
    in_blocks(10_000, 110..150);
    let (tcp, udp, repair) = in_blocks(10_000, 150..160);
    // One of four tells its delay, in a block without repair.
    assert!(tcp <= 130 && udp > 80 && repair > 0, "full: {tcp} {udp} {repair}");
}

/// Memory that has no room for what is as long as repair chunks are.
struct Stingy<'a> {
    tray: &'a mut tests::Tray,
    repair_len: usize,
    refused: u32,
}

impl Outbox for Stingy<'_> {
    fn reserve(&mut self, to: &Destination, len: usize) -> Option<&mut [u8]> {
        if len == self.repair_len {
            self.refused += 1;
            return None;
        }
        self.tray.reserve(to, len)
    }

    fn commit(&mut self) {
        self.tray.commit();
    }
}

#[test]
fn what_left_is_not_counted_as_dropped_because_its_repair_finds_no_room() {
    let (mut a, mut b) = pair(true);
    a.send(&packet_to(1, 2, 5));
    settle(&mut a, &mut b);
    a.send(&segment(1_000, 0));
    let whole = a.sent().first().map(Vec::len).expect("a datagram");
    settle(&mut a, &mut b);
    b.delivered.clear();
    let before = a.node.counters().sealed;
    let tells_more = frame::Repair::FIXED_LEN - frame::Protected::FIXED_LEN;
    let mut out = Stingy { tray: &mut a.out, repair_len: whole + tells_more, refused: 0 };
    let packets: Vec<Vec<u8>> = (1..=100).map(|mark| segment(1_000, mark)).collect();
    for packet in &packets {
        a.node.handle_packet(virtio::Header::default(), &mut packet.clone(), a.now, &mut out);
    }
    assert!(out.refused > 0, "blocks were full");
    assert_eq!(a.node.counters().sealed - before, 100);
    assert_eq!(a.node.counters().dropped_out(), 0);
    settle(&mut a, &mut b);
    assert_eq!(b.delivered, packets);
}
