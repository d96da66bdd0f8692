//! The table against a naive one, and that nobody displaces the flows of others.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn key(number: u64) -> Key {
    Key { local: [0, 1], remote: [number, 2], ports: 7, protocol: 17, kind: 0 }
}

/// Numbers of living entries, found without removing what timed out elsewhere.
fn has(flows: &mut Flows, number: u64, now_ms: u64) -> bool {
    flows.find(&key(number), now_ms).is_some()
}

#[test]
fn pf_10_a_peer_that_opens_many_flows_displaces_its_own_only() {
    let mut flows = Flows::new([1, 2], 1000);
    for number in 0..300 {
        flows.insert(key(number), 1, Direction::Out, Phase::Udp, false, 0);
    }
    for number in 300..600 {
        flows.insert(key(number), 2, Direction::In, Phase::Udp, false, 0);
    }
    for number in 1000..1_001_000 {
        flows.insert(key(number), 3, Direction::In, Phase::Udp, false, 1);
    }
    assert_eq!(flows.len(), 1000);
    assert!((0..600).all(|number| has(&mut flows, number, 2)), "what others had is there");
    assert!((1_000_600..1_001_000).all(|number| has(&mut flows, number, 2)));
    // Somebody new still finds room: the largest gives way.
    flows.insert(key(7_000_000), 4, Direction::In, Phase::Udp, false, 2);
    assert!(has(&mut flows, 7_000_000, 2));
    assert!((0..600).all(|number| has(&mut flows, number, 2)));
    assert!(!has(&mut flows, 1_000_600, 2));
}

#[test]
fn pf_10_many_peers_together_displace_nobody_who_has_less() {
    let mut flows = Flows::new([1, 2], 1024);
    flows.insert(key(0), 0, Direction::Out, Phase::TcpOpen, false, 0);
    flows.insert(key(1), 0, Direction::Out, Phase::TcpOpen, false, 0);
    for round in 0..1000 {
        for peer in 1..100 {
            let number = 1000 + round * 100 + u64::from(peer);
            flows.insert(key(number), peer, Direction::In, Phase::Udp, false, 1);
        }
    }
    assert_eq!(flows.len(), 1024);
    assert!(has(&mut flows, 0, 2) && has(&mut flows, 1, 2));
    for peer in 1..100 {
        let count = flows.accounts[account_of(peer, Direction::In) as usize].count;
        assert!((4..=16).contains(&count), "{count} of about ten for peer {peer}");
    }
}

#[test]
fn a_peer_and_direction_has_its_share_and_no_more() {
    let mut flows = Flows::new([1, 2], FLOWS_MAX);
    for number in 0..2 * FLOWS_PER_PEER_MAX as u64 {
        flows.insert(key(number), 9, Direction::In, Phase::Udp, false, number);
    }
    assert_eq!(flows.len(), FLOWS_PER_PEER_MAX);
    assert_eq!(flows.evicted(), FLOWS_PER_PEER_MAX as u64);
    flows.insert(key(1 << 40), 9, Direction::Out, Phase::Udp, false, 0);
    assert_eq!(flows.len(), FLOWS_PER_PEER_MAX + 1, "our own flows are another account");
}

#[test]
fn a_table_that_was_full_once_asks_for_no_more_memory() {
    let mut flows = Flows::new([1, 2], 1000);
    let churn = |flows: &mut Flows, from: u64| {
        for number in from..from + 5000 {
            let peer = (number % 7) as u32;
            flows.insert(key(number), peer, Direction::In, Phase::Udp, false, number);
            if number % 3 == 0 {
                let at = flows.find(&key(number), number).unwrap();
                flows.remove(at);
            }
        }
    };
    let sizes =
        |flows: &Flows| (flows.flows.capacity(), flows.heads.capacity(), flows.accounts.capacity());
    churn(&mut flows, 0);
    let before = sizes(&flows);
    churn(&mut flows, 10_000);
    assert_eq!(sizes(&flows), before);
    assert_eq!((flows.flows.len(), flows.heads.len()), (1000, 1024));
}

#[test]
fn what_is_over_gives_way_before_what_is_old() {
    let mut flows = Flows::new([1, 2], 3);
    for number in 0..3 {
        flows.insert(key(number), 1, Direction::In, Phase::TcpOpen, false, number);
    }
    let at = flows.find(&key(2), 3).unwrap();
    flows.note(at, Phase::TcpClosing, 3);
    flows.insert(key(3), 1, Direction::In, Phase::TcpOpen, false, 4);
    assert_eq!([0, 1, 2, 3].map(|n| has(&mut flows, n, 4)), [true, true, false, true]);
    let at = flows.find(&key(0), 5000).unwrap();
    flows.note(at, Phase::TcpOpen, 5000);
    flows.insert(key(4), 1, Direction::In, Phase::TcpOpen, false, 5001);
    assert_eq!([0, 1, 3, 4].map(|n| has(&mut flows, n, 5001)), [true, false, true, true]);
}

#[test]
fn every_phase_has_its_time() {
    for (phase, timeout_ms) in [
        (Phase::TcpOpening, TCP_OPENING_MS),
        (Phase::TcpOpen, TCP_OPEN_MS),
        (Phase::TcpHalfLocal, TCP_OPEN_MS),
        (Phase::TcpClosing, TCP_CLOSING_MS),
        (Phase::UdpOneWay, UDP_ONE_WAY_MS),
        (Phase::Udp, UDP_MS),
        (Phase::Icmp, ICMP_MS),
        (Phase::Other, OTHER_MS),
        (Phase::Fragments, FRAGMENT_MS),
    ] {
        let mut flows = Flows::new([1, 2], 9);
        flows.insert(key(1), 1, Direction::In, phase, false, 1000);
        assert!(has(&mut flows, 1, 999), "a clock that goes back ends nothing");
        assert!(has(&mut flows, 1, 1000 + timeout_ms - 1), "{phase:?}");
        assert!(!has(&mut flows, 1, 1000 + timeout_ms), "{phase:?}");
        assert_eq!(flows.len(), 0);
    }
}

proptest! {
    /// A list, newest first, with the same rules.
    #[test]
    fn the_table_agrees_with_a_list(
        max in 1usize..12,
        steps in vec((0u64..16, 0u32..4, any::<bool>(), 0u8..4, 0u64..3000), 1..200),
    ) {
        let mut flows = Flows::new([3, 4], max);
        let mut list: Vec<(u64, u32, Direction)> = Vec::new();
        let mut now_ms = 0;
        for (number, peer, out, action, pass_ms) in steps {
            now_ms += USE_MS + pass_ms % 100;
            let began = if out { Direction::Out } else { Direction::In };
            let at = list.iter().position(|(other, ..)| *other == number);
            let found = flows.find(&key(number), now_ms);
            prop_assert_eq!(found.is_some(), at.is_some());
            match (found, at) {
                (Some(found), Some(at)) if action == 0 => {
                    flows.remove(found);
                    list.remove(at);
                }
                (Some(found), Some(at)) => {
                    flows.note(found, Phase::TcpOpen, now_ms);
                    let entry = list.remove(at);
                    list.insert(0, entry);
                }
                _ if action == 1 => {
                    let gone = flows.retain(|flow| flow.peer != peer);
                    let before = list.len();
                    list.retain(|(_, other, _)| *other != peer);
                    prop_assert_eq!(gone, before - list.len());
                }
                _ => {
                    flows.insert(key(number), peer, began, Phase::TcpOpen, false, now_ms);
                    if list.len() == max {
                        // Whoever gave way is told by the table; it must have been the oldest of
                        // its account, of an account not smaller by class than any other.
                        let mut others = list.iter();
                        let gone = others.position(|(o, ..)| !has(&mut flows, *o, now_ms));
                        let gone = gone.expect("one gave way");
                        let (_, peer, began) = list[gone];
                        let of = |p: u32, b: Direction| {
                            list.iter().filter(|(_, q, c)| (*q, *c) == (p, b)).count() as u32
                        };
                        let mut older = list[gone + 1..].iter();
                        prop_assert!(!older.any(|(_, p, b)| (*p, *b) == (peer, began)));
                        let largest = list.iter().map(|(_, p, b)| class_of(of(*p, *b))).max();
                        prop_assert_eq!(Some(class_of(of(peer, began))), largest);
                        list.remove(gone);
                    }
                    list.insert(0, (number, peer, began));
                }
            }
            prop_assert_eq!(flows.len(), list.len());
            for number in 0..16 {
                let is_there = list.iter().any(|(other, ..)| *other == number);
                prop_assert_eq!(has(&mut flows, number, now_ms), is_there);
            }
        }
    }
}
