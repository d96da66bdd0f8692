//! Who may send to a group, how much of it, and who is told of whom.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::*;
use crate::compile::tests::{directory, policy};
use crate::filter::Peer;
use crate::{Compiled, Filter, NodeId, Rules};

/// A datagram of UDP with 100 bytes behind its IP header.
fn datagram(from: &str, to: &str, port: u16) -> Vec<u8> {
    let upper = 100_u16;
    let mut bytes = match from.contains(':') {
        true => [&[0x60, 0, 0, 0][..], &upper.to_be_bytes(), &[17, 1]].concat(),
        false => [&[0x45, 0][..], &(20 + upper).to_be_bytes(), &[0, 0, 0, 0, 1, 17, 0, 0]].concat(),
    };
    for text in [from, to] {
        match text.parse::<IpAddr>().unwrap() {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    bytes.extend([9, port, upper, 0].map(u16::to_be_bytes).concat());
    bytes.resize(bytes.len() + 92, 7);
    bytes
}

/// Ann's nodes 1 and 2 send to groups of which Ben's node 3 gets copies, and no other node.
fn compiled(rate: &str) -> Compiled {
    let text = format!(
        r#"{{ "acls": [], "multicast": [{{ "src": ["ann@"], "dst": ["ben@"],
        "groups": ["239.255.0.1:7400-7401", "[ff05::fb]:7400-7401", "224.0.0.251:5353"],
        "rate": "{rate}" }}] }}"#
    );
    Compiled::new(&policy(&text), &directory()).unwrap()
}

fn filter(compiled: &Compiled, node: u64) -> Filter {
    let rules = compiled.rules_for(NodeId(node));
    let told = rules.print().expect("it fits");
    assert_eq!(Rules::read(&told), Ok(Some(rules.clone())), "{told}");
    let mut filter = Filter::new([1, 2]);
    filter.set_rules(rules);
    filter
}

fn judge(
    filter: &mut Filter,
    direction: Direction,
    bytes: &[u8],
    now_ms: u64,
) -> Result<usize, Reason> {
    let packet = wire::packet::parse(bytes).expect("a whole packet");
    let peer = (direction == Direction::In).then_some(Peer(4));
    filter.judge_multicast(direction, peer, &packet, bytes.len(), now_ms)
}

#[test]
fn pf_17_a_group_is_open_to_its_senders_and_its_ports_alone() {
    let compiled = compiled("1mbit");
    let [mut sender, mut receiver, mut other] = [1, 3, 5].map(|node| filter(&compiled, node));
    for (from, to, port, verdict) in [
        ("100.64.0.1", "239.255.0.1", 7400, Ok(1)),
        ("fd7a::1", "ff05::fb", 7401, Ok(1)),
        ("100.64.0.1", "224.0.0.251", 5353, Ok(0)),
        ("100.64.0.1", "239.255.0.1", 7402, Err(Reason::NotUnicast)),
        ("100.64.0.1", "239.255.0.2", 7400, Err(Reason::NotUnicast)),
        ("100.64.0.3", "239.255.0.1", 7400, Err(Reason::NotUnicast)),
        ("127.0.0.1", "239.255.0.1", 7400, Err(Reason::NotUnicast)),
    ] {
        let bytes = datagram(from, to, port);
        assert_eq!(judge(&mut sender, Direction::Out, &bytes, 0), verdict, "{from} {to}:{port}");
        assert_eq!(judge(&mut receiver, Direction::In, &bytes, 0), verdict, "{from} {to}:{port}");
        let back = judge(&mut receiver, Direction::Out, &bytes, 0);
        assert_eq!(back, Err(Reason::NotUnicast), "a receiver does not send");
        assert!(judge(&mut other, Direction::In, &bytes, 0).is_err(), "nor does who is not named");
    }
    assert!(!other.has_multicast());
}

#[test]
fn pf_17_what_hides_its_port_does_not_pass() {
    let mut receiver = filter(&compiled("1mbit"), 3);
    let mut piece = datagram("100.64.0.1", "239.255.0.1", 7400);
    piece[6] = 0x20;
    assert_eq!(judge(&mut receiver, Direction::In, &piece, 0), Err(Reason::FragmentUnknown));
    let mut other = datagram("100.64.0.1", "239.255.0.1", 7400);
    other[9] = 47;
    assert_eq!(judge(&mut receiver, Direction::In, &other, 0), Err(Reason::NotUnicast));
}

#[test]
fn each_sender_has_the_rate_of_its_rule() {
    let mut receiver = filter(&compiled("8kbit"), 3);
    let ours = datagram("100.64.0.1", "239.255.0.1", 7400);
    let mut passed = |now_ms: u64| {
        (0..100).filter(|_| judge(&mut receiver, Direction::In, &ours, now_ms).is_ok()).count()
    };
    // A thousand bytes a second are eight packets of 120.
    assert_eq!(passed(0), 8);
    assert_eq!(passed(100), 1);
    assert_eq!(passed(60_000), 8, "no more than a second's worth is saved up");
    let packet = wire::packet::parse(&ours).unwrap();
    let other = receiver.judge_multicast(Direction::In, Some(Peer(5)), &packet, 120, 60_000);
    assert!(other.is_ok(), "another sender has its own");
    assert_eq!(receiver.dropped(Reason::GroupRate), 300 - 17);
    receiver.forget(Peer(4));
    assert!(judge(&mut receiver, Direction::In, &ours, 60_000).is_ok(), "the number is another's");
}

#[test]
fn who_sends_and_who_gets_copies_know_each_other_and_nobody_else() {
    let compiled = compiled("1mbit");
    let ids = |node| compiled.peers_of(NodeId(node)).iter().map(|id| id.0).collect::<Vec<_>>();
    let known: BTreeMap<u64, Vec<u64>> = (1..=6).map(|node| (node, ids(node))).collect();
    let expected = [(1, vec![3]), (2, vec![3]), (3, vec![1, 2]), (4, vec![]), (5, vec![])];
    assert_eq!(known, expected.into_iter().chain([(6, vec![])]).collect());
    let told = compiled.rules_for(NodeId(1)).print().unwrap();
    assert!(!told.contains("100.64.0.2"), "a sender is not told of other senders: {told}");
}

#[test]
fn mistakes_are_told_with_their_place() {
    let text = r#"{ "acls": [], "multicast": [
        { "src": ["*"], "dst": ["*"], "groups": ["10.0.0.1:5", "239.0.0.1", "[ff02::fb]:x"] },
        { "src": ["*"], "dst": ["*"], "groups": ["224.0.0.0/3:*"], "rate": "2 Mbit/s" },
        { "src": ["*"], "dst": ["*"] }] }"#;
    let faults = crate::Policy::parse(text.as_bytes()).unwrap_err();
    let shown: Vec<String> = faults.iter().map(|fault| fault.to_string()).collect();
    assert_eq!(
        shown,
        [
            "2:50: 10.0.0.1/32 is no group of hosts: groups lie in 224.0.0.0/4 and in ff00::/8",
            "2:64: \"239.0.0.1\" has no ports: write it with :5353 or :* behind",
            "2:77: in \"[ff02::fb]:x\": \"x\" is no port from 0 to 65535 and no range: ports are \
             *, 22, 1000-2000, or several with commas between",
            "3:50: 224.0.0.0/3 is no group of hosts: groups lie in 224.0.0.0/4 and in ff00::/8",
            "3:76: \"2 Mbit/s\" is no rate: write 500kbit or 2mbit, from 1kbit to 10000mbit",
            "4:9: a rule of multicast without groups: add \"groups\": [\"239.255.0.1:7400\"]",
        ]
    );
}
