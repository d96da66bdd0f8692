//! Peers whose addresses are rewritten at one end, and know nothing of it.

use std::time::Duration;

use link::Inbox;
use translate::{Refusal, Table};
use wire::packet::{self, Transport};
use wire::virtio;

use super::frames::{segment, superpacket};
use super::squeezed::{Inner, text};
use crate::node::tests::{Machine, packet_to, settle};
use crate::node::*;

/// The peer is known here by 172.16.0.1, and it knows us by 10.0.0.2, where we are 192.168.9.2.
fn table() -> Table {
    let pair = |text: &str| vec![text.parse().expect("a pair")];
    Table::new(pair("10.0.0.0/24=172.16.0.0/24"), pair("10.0.0.0/24=192.168.9.0/24"))
        .expect("a table")
}

/// Machine `first`, and the next one, which rewrites.
fn pair(first: u8, frames: bool) -> (Machine, Machine) {
    let (mut a, mut b) = (Machine::new(first), Machine::new(first + 1));
    for machine in [&mut a, &mut b] {
        machine.node.set_frames(frames);
    }
    a.knows(&b, &["10.0.0.2/32"]);
    b.knows(&a, &["172.16.0.1/32"]);
    b.change(&PeerChange { translate: Some(table()), ..PeerChange::new(a.public()) });
    a.send(&segment(20, 1));
    settle(&mut a, &mut b);
    assert_eq!(b.delivered.len(), 1);
    b.delivered.clear();
    (a, b)
}

/// Whether this goes from 172.16.0.1 to 192.168.9.2, with all sums right.
fn is_rewritten(bytes: &[u8]) -> bool {
    let view = packet::parse(bytes).expect("a packet");
    let ends = [view.source().to_string(), view.destination().to_string()];
    view.checksums_hold() && ends == ["172.16.0.1", "192.168.9.2"]
}

/// The answer to a segment as this machine gives it: with its own addresses.
fn turned(mut bytes: Vec<u8>) -> Vec<u8> {
    let back = Table::new(
        vec!["10.0.0.1=192.168.9.2".parse().expect("a pair")],
        vec!["10.0.0.2=172.16.0.1".parse().expect("a pair")],
    );
    assert_eq!(back.expect("a table").inward(&mut bytes), Ok(true));
    bytes
}

#[test]
fn what_comes_and_what_goes_is_rewritten_bare_and_in_frames() {
    for (first, frames) in [(1, false), (3, true)] {
        let (mut a, mut b) = pair(first, frames);
        // Small ones, which share datagrams; full ones, which are protected or cut.
        let small = (1..20).map(|at| Inner::udp(1, (9, at), text(40)).build());
        let full = (1..20).map(|at| Inner::tcp(1, (9, at), text(1_380)).build());
        let all: Vec<Vec<u8>> = small.chain(full).collect();
        a.send_together(&all);
        settle(&mut a, &mut b);
        a.pass(Duration::from_millis(30));
        settle(&mut a, &mut b);
        b.pass(Duration::from_millis(100));
        assert_eq!(b.delivered.len(), all.len(), "frames: {frames}");
        assert!(b.delivered.iter().all(|bytes| is_rewritten(bytes)));
        // Ports and payloads are as they were.
        let rest = |bytes: &[u8]| [&bytes[20..24], &bytes[40..]].concat();
        assert!(all.iter().all(|one| b.delivered.iter().any(|other| rest(one) == rest(other))));

        for len in [1, 40, 1_000, 1_380] {
            b.send(&turned(segment(len, 7)));
            settle(&mut a, &mut b);
            let came = a.delivered.pop().expect("it came");
            let view = packet::parse(&came).expect("a packet");
            assert!(view.checksums_hold());
            let ends = [view.source().to_string(), view.destination().to_string()];
            assert_eq!(ends, ["10.0.0.2", "10.0.0.1"]);
            assert_eq!(came[40..], segment(len, 7)[40..]);
        }
    }
}

#[test]
fn superpackets_are_rewritten_as_a_whole_both_ways() {
    for (first, frames) in [(11, false), (13, true)] {
        let (mut a, mut b) = pair(first, frames);
        for round in 0..3 {
            let (header, mut bytes) = superpacket(12);
            a.node.handle_packet(header, &mut bytes, a.now, &mut a.out);
            settle(&mut a, &mut b);
            b.pass(Duration::from_millis(100));
            assert_eq!(b.delivered.len(), 12, "frames: {frames}, round {round}");
            assert!(b.delivered.drain(..).all(|bytes| is_rewritten(&bytes)));

            let (header, bytes) = superpacket(12);
            let mut bytes = turned(bytes);
            b.node.handle_packet(header, &mut bytes, b.now, &mut b.out);
            settle(&mut a, &mut b);
            a.pass(Duration::from_millis(100));
            assert_eq!(a.delivered.len(), 12);
            for came in a.delivered.drain(..) {
                let view = packet::parse(&came).expect("a packet");
                assert!(view.checksums_hold());
                assert_eq!(view.source().to_string(), "10.0.0.2");
            }
        }
    }
}

#[test]
fn what_cannot_be_rewritten_is_dropped_and_counted_in_both_directions() {
    for (first, frames) in [(21, false), (23, true)] {
        let (mut a, mut b) = pair(first, frames);
        // Protocol 253, of which nobody knows what it counts.
        a.send(&packet_to(1, 2, 9));
        settle(&mut a, &mut b);
        a.pass(Duration::from_millis(30));
        settle(&mut a, &mut b);
        assert!(b.delivered.is_empty());
        b.send(&turned_bare(packet_to(1, 2, 9)));
        settle(&mut a, &mut b);
        assert!(a.delivered.is_empty());
        let counted: Vec<_> = b.node.refusals().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(Refusal::Protocol, 2)], "frames: {frames}");
        let counters = b.node.counters();
        assert_eq!(counters.dropped(Reason::NotTranslatedOut), 1);
        let within = counters.dropped(Reason::NotTranslatedIn) + b.node.pieces().untranslated;
        assert_eq!(within, 1);
    }
}

/// Another source and destination for what has no sum over them.
fn turned_bare(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[12..20].copy_from_slice(&[192, 168, 9, 2, 172, 16, 0, 1]);
    bytes[10..12].fill(0);
    let sum = wire::checksum::Sum::of(&bytes[..20]).checksum();
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

#[test]
fn pf_01_a_source_is_the_peers_as_it_is_seen_here_and_the_table_goes_with_the_peer() {
    let (mut a, mut b) = pair(31, false);
    // What the table does not lead to an address of the peer's is nobody's.
    let forge = Table::new(vec!["10.0.0.1=10.0.0.3".parse().expect("a pair")], Vec::new());
    let mut forged = segment(20, 3);
    assert_eq!(forge.expect("a table").inward(&mut forged), Ok(true));
    a.send(&forged);
    settle(&mut a, &mut b);
    assert!(b.delivered.is_empty());
    assert_eq!(b.node.counters().dropped(Reason::SourceNotAllowed), 1);
    // Without its table the peer's packets are from elsewhere.
    b.change(&PeerChange { translate: Some(Table::default()), ..PeerChange::new(a.public()) });
    a.send(&segment(20, 2));
    settle(&mut a, &mut b);
    assert_eq!(b.node.counters().dropped(Reason::SourceNotAllowed), 2);
    b.change(&PeerChange { translate: Some(table()), ..PeerChange::new(a.public()) });
    b.change(&PeerChange { remove: true, ..PeerChange::new(a.public()) });
    assert!(b.node.tables.table(PeerId(0)).is_none(), "the next of this number has none");
}

#[test]
fn a_table_for_all_serves_who_has_none_of_its_own() {
    let (mut a, mut b) = (Machine::new(41), Machine::new(42));
    a.knows(&b, &["10.99.1.0/24"]);
    b.knows(&a, &["10.0.0.1/32"]);
    let alias = vec!["10.99.1.0/24=192.168.1.0/24".parse().expect("a pair")];
    b.node.set_translation(Table::new(Vec::new(), alias).expect("a table"));
    let mut asked = Inner::udp(1, (9, 9), text(40)).build();
    let to_alias = Table::new(Vec::new(), vec!["10.0.0.2=10.99.1.7".parse().expect("a pair")]);
    assert_eq!(to_alias.expect("a table").inward(&mut asked), Ok(true));
    a.send(&asked);
    settle(&mut a, &mut b);
    let came = packet::parse(&b.delivered[0]).expect("a packet");
    assert_eq!(came.destination().to_string(), "192.168.1.7");
    assert_eq!(came.source().to_string(), "10.0.0.1");
    assert!(came.checksums_hold());
    b.node.set_translation(Table::default());
    a.send(&asked);
    settle(&mut a, &mut b);
    assert_eq!(b.delivered[1], asked);
}

#[test]
fn nt_08_what_our_machine_is_told_of_a_packet_that_is_too_big_names_what_it_sent() {
    let (_, mut b) = pair(51, false);
    let sent = turned(segment(1_380, 7));
    let mut on_the_wire = sent.clone();
    assert_eq!(table().outward(&mut on_the_wire), Ok(true));
    b.node.refuse_size(Some(PeerId(0)), &on_the_wire, 1_280);
    let mut inbox = Inbox::default();
    b.node.poll_packets(&mut inbox);
    let told = inbox.take_packets(&mut []).pop().expect("it is told");
    let view = packet::parse(&told).expect("a packet");
    assert!(view.checksums_hold());
    assert_eq!(view.destination().to_string(), "192.168.9.2");
    let Ok(Transport::Icmp(message)) = view.transport() else { panic!("{view:?}") };
    let quoted = message.quoted().expect("an error").expect("a packet");
    assert_eq!(quoted.bytes()[..40], sent[..40]);
}

#[test]
fn a_packet_whose_virtio_header_leaves_its_sum_to_us_is_completed_before_it_is_rewritten() {
    let (mut a, mut b) = pair(61, false);
    let whole = turned(segment(500, 5));
    let view = packet::parse(&whole).expect("a packet");
    let len = view.payload().len() as u32;
    let partial = wire::checksum::pseudo(view.source(), view.destination(), 6, len).fold();
    let mut bytes = whole.clone();
    bytes[36..38].copy_from_slice(&partial.to_be_bytes());
    let header = virtio::Header {
        flags: virtio::FLAG_NEEDS_CSUM,
        csum_start: 20,
        csum_offset: 16,
        ..virtio::Header::default()
    };
    b.node.handle_packet(header, &mut bytes, b.now, &mut b.out);
    settle(&mut a, &mut b);
    let came = a.delivered.pop().expect("it came");
    assert!(packet::parse(&came).expect("a packet").checksums_hold());
}
