//! Copies for those that a rule names, over frames and over plain WireGuard.

use policy::{Multicast, Ranges, Rules, Service};

use super::super::tests::{Machine, Seeded, packet_to, settle};
use super::*;

const GROUP: [u8; 4] = [239, 255, 0, 1];

fn set(addresses: &[[u8; 4]]) -> Ranges {
    Ranges::of_addresses(addresses.iter().map(|octets| IpAddr::from(*octets)))
}

fn rules(direction: Direction, sources: &[[u8; 4]], receivers: &[[u8; 4]]) -> Rules {
    let cast = Multicast {
        direction,
        line: 1,
        groups: set(&[GROUP]),
        services: vec![Service { protocol: Some(17), first: 7400, last: 7400 }],
        sources: set(sources),
        receivers: set(receivers),
        rate_bytes_s: 1000,
    };
    Rules { multicast: vec![cast], ..Rules::default() }
}

fn datagram(from: u8, port: u16) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 120, 0, 0, 0, 0, 1, 17, 0, 0, 10, 0, 0, from];
    bytes.extend(GROUP);
    bytes.extend([9, port, 100, 0].map(u16::to_be_bytes).concat());
    bytes.resize(120, 7);
    bytes
}

/// One that sends, and three others of which two get copies.
fn four(frames: bool) -> [Machine; 4] {
    let mut all = [1, 2, 3, 4].map(Machine::new);
    all.iter_mut().for_each(|machine| machine.node.set_frames(frames));
    let [sender, others @ ..] = &mut all;
    for (number, other) in (2..).zip(others.iter_mut()) {
        sender.knows(other, &[&format!("10.0.0.{number}/32")]);
        other.knows(sender, &["10.0.0.1/32"]);
        other.send(&packet_to(number, 1, 1));
        settle(other, sender);
    }
    let receivers = [[10, 0, 0, 2], [10, 0, 0, 3]];
    let out = rules(Direction::Out, &[[10, 0, 0, 1]], &receivers);
    sender.node.set_policy(Some(out), &mut Seeded(1));
    for (number, other) in (2..).zip(others.iter_mut()) {
        let inward = rules(Direction::In, &[[10, 0, 0, 1]], &[[10, 0, 0, number]]);
        other.node.set_policy(Some(inward), &mut Seeded(2));
    }
    all
}

/// What each of the others gets of a packet that the first one sends.
fn gets(all: &mut [Machine; 4], packet: &[u8]) -> [usize; 3] {
    let [sender, others @ ..] = all;
    sender.send(packet);
    let sent = std::mem::take(&mut sender.out.sent);
    let mut counts = [0; 3];
    for ((number, other), count) in (2..).zip(others).zip(&mut counts) {
        other.delivered.clear();
        for (to, datagram) in &sent {
            if to.remote == super::super::tests::address(number) {
                other.receive(super::super::tests::address(1), datagram);
            }
        }
        assert!(other.delivered.iter().all(|got| got == packet), "a copy is what was sent");
        *count = other.delivered.len();
    }
    counts
}

fn is_copied(frames: bool) {
    let mut all = four(frames);
    let before = all[0].node.counters().packets_out;
    assert_eq!(gets(&mut all, &datagram(1, 7400)), [1, 1, 0]);
    assert_eq!(all[0].node.counters().packets_out, before + 2, "each copy is a packet out");
    assert_eq!(gets(&mut all, &datagram(1, 7401)), [0; 3], "another port");
    assert_eq!(gets(&mut all, &datagram(2, 7400)), [0; 3], "another's source");
    let refused = all[0].node.counters().dropped(Reason::PolicyOut);
    assert_eq!(refused, 2);
    // One second's worth are eight packets.
    let all_copies: usize = (0..20).map(|_| gets(&mut all, &datagram(1, 7400))[0]).sum();
    assert_eq!(all_copies, 7);
}

#[test]
fn pf_17_a_packet_to_a_group_is_copied_to_those_that_the_rule_names() {
    is_copied(false);
}

#[test]
fn pf_17_the_same_in_frames() {
    is_copied(true);
}

#[test]
fn pf_17_a_receiver_takes_what_its_own_rule_allows_of_whom_it_allows() {
    let mut all = four(true);
    // The first one is hostile: it copies to the fourth, too, and sends from another's address.
    let everybody = [[10, 0, 0, 2], [10, 0, 0, 3], [10, 0, 0, 4]];
    let out = rules(Direction::Out, &[[10, 0, 0, 1], [10, 0, 0, 9]], &everybody);
    all[0].node.set_policy(Some(out), &mut Seeded(1));
    all[3].node.set_policy(Some(Rules::default()), &mut Seeded(1));
    assert_eq!(gets(&mut all, &datagram(1, 7400)), [1, 1, 0]);
    assert_eq!(gets(&mut all, &datagram(9, 7400)), [0; 3]);
}

#[test]
fn receivers_are_looked_up_again_when_addresses_change_hands() {
    let mut all = four(true);
    assert_eq!(gets(&mut all, &datagram(1, 7400)), [1, 1, 0]);
    let gone = PeerChange { remove: true, ..PeerChange::new(all[1].public()) };
    all[0].change(&gone);
    assert_eq!(gets(&mut all, &datagram(1, 7400)), [0, 1, 0]);
    let both = PeerChange { remove: true, ..PeerChange::new(all[2].public()) };
    all[0].change(&both);
    assert_eq!(gets(&mut all, &datagram(1, 7400)), [0; 3]);
    assert_eq!(all[0].node.counters().dropped(Reason::NoRoute), 1);
}
