//! Nodes that enforce rules: over plain WireGuard and over frames, out and in.

use std::net::IpAddr;

use policy::{Rule, Rules, Service};

use crate::config::AllowedIp;
use crate::node::tests::{Machine, Seeded, settle};
use crate::node::*;

/// An IPv4 or IPv6 address inside, of machine `number`.
fn inside(number: u8, v6: bool) -> IpAddr {
    match v6 {
        false => IpAddr::from([10, 0, 0, number]),
        true => IpAddr::from([0xfd77, 0, 0, 0, 0, 0, 0, u16::from(number)]),
    }
}

/// A datagram of UDP with `len` bytes of payload.
fn datagram(from: (u8, u16), to: (u8, u16), v6: bool, len: usize) -> Vec<u8> {
    let upper = (8 + len) as u16;
    let mut bytes = if v6 {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 0, 17, 64];
        bytes[4..6].copy_from_slice(&upper.to_be_bytes());
        bytes
    } else {
        let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
        bytes[2..4].copy_from_slice(&(20 + upper).to_be_bytes());
        bytes
    };
    for number in [from.0, to.0] {
        match inside(number, v6) {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    bytes.extend([from.1, to.1, upper, 0].map(u16::to_be_bytes).concat());
    bytes.resize(bytes.len() + len, 7);
    bytes
}

/// `from` may ask `to` on this port.
fn rule(from: u8, to: u8, port: u16) -> Rule {
    let set = |number| policy::Ranges::of_addresses([false, true].map(|v6| inside(number, v6)));
    let services = vec![Service { protocol: Some(17), first: port, last: port }];
    Rule { sources: set(from), destinations: set(to), services, line: 1, compress: false }
}

fn both(first: u8) -> (Rules, Rules) {
    let asks = vec![rule(first, first + 1, 53)];
    let out = Rules::new(Vec::new(), asks.clone());
    (out, Rules::new(asks, Vec::new()))
}

fn pair(first: u8, frames: bool) -> (Machine, Machine) {
    let (mut a, mut b) = (Machine::new(first), Machine::new(first + 1));
    for machine in [&mut a, &mut b] {
        machine.node.set_frames(frames);
    }
    let prefixes =
        |number: u8| [false, true].map(|v6| format!("{}", Prefix::host(inside(number, v6))));
    let (of_a, of_b) = (prefixes(first), prefixes(first + 1));
    a.knows(&b, &of_b.each_ref().map(String::as_str));
    b.knows(&a, &of_a.each_ref().map(String::as_str));
    a.send(&datagram((first, 9), (first + 1, 53), false, 10));
    settle(&mut a, &mut b);
    assert_eq!(b.delivered.len(), 1);
    b.delivered.clear();
    (a, b)
}

/// Whether it arrives, from `a`.
fn passes(a: &mut Machine, b: &mut Machine, packet: &[u8]) -> bool {
    a.send(packet);
    settle(a, b);
    let delivered = b.delivered.pop();
    assert!(delivered.as_deref().is_none_or(|arrived| arrived == packet), "as it was sent");
    assert!(b.delivered.is_empty());
    delivered.is_some()
}

fn secret() -> impl Random {
    struct Same;
    impl Random for Same {
        fn fill(&mut self, bytes: &mut [u8]) {
            bytes.fill(9);
        }
    }
    Same
}

#[test]
fn pf_09_either_end_enforces_in_both_directions_over_frames_and_without() {
    for (round, (frames, v6)) in
        (0_u8..).zip([(false, false), (false, true), (true, false), (true, true)])
    {
        for (at_a, at_b) in [(true, true), (true, false), (false, true)] {
            let first = 1 + round * 40 + u8::from(at_a) * 4 + u8::from(at_b) * 8;
            let (mut a, mut b) = pair(first, frames);
            let (of_a, of_b) = both(first);
            a.node.set_policy(at_a.then_some(of_a), &mut secret());
            b.node.set_policy(at_b.then_some(of_b), &mut secret());
            let second = first + 1;
            // Short ones, and such as are cut into head and chunk where frames are spoken.
            for len in [10, 500, 1340, 1370] {
                let what = format!("frames {frames}, IPv6 {v6}, {at_a} {at_b}, {len} bytes");
                let port = 1000 + len as u16;
                let ask = datagram((first, port), (second, 53), v6, len);
                let answer = datagram((second, 53), (first, port), v6, len);
                assert!(!passes(&mut b, &mut a, &answer), "nobody asked: {what}");
                assert!(passes(&mut a, &mut b, &ask), "{what}");
                assert!(passes(&mut b, &mut a, &answer), "{what}");
                assert!(!passes(&mut a, &mut b, &datagram((first, port), (second, 54), v6, len)));
                assert!(!passes(&mut b, &mut a, &datagram((second, 9), (first, 53), v6, len)));
            }
            let counted = |machine: &Machine, reason| machine.node.counters().dropped(reason);
            let out = counted(&a, Reason::PolicyOut) + counted(&b, Reason::PolicyOut);
            let counts =
                [&a, &b].map(|m| m.node.policy().map_or(0, |f| f.dropped(policy::Reason::Denied)));
            assert_eq!(counts.iter().sum::<u64>(), 12, "each is counted once, where it ended");
            assert!(if at_a && at_b { out == 12 } else { out == 4 || out == 8 }, "{out}");
        }
    }
}

#[test]
fn pf_07_revocation_cuts_what_is_established_and_open_again_is_open() {
    let (mut a, mut b) = pair(1, false);
    let (of_a, of_b) = both(1);
    a.node.set_policy(Some(of_a), &mut secret());
    b.node.set_policy(Some(of_b), &mut secret());
    let ask = datagram((1, 5000), (2, 53), false, 100);
    let answer = datagram((2, 53), (1, 5000), false, 100);
    assert!(passes(&mut a, &mut b, &ask) && passes(&mut b, &mut a, &answer));
    assert_eq!(b.node.set_policy(Some(Rules::default()), &mut secret()), 1, "one flow is cut");
    assert!(!passes(&mut b, &mut a, &answer) && !passes(&mut a, &mut b, &ask));
    assert_eq!(b.node.counters().dropped(Reason::PolicyIn), 1);
    b.node.set_policy(None, &mut secret());
    assert!(b.node.policy().is_none() && passes(&mut a, &mut b, &ask));
}

#[test]
fn pf_08_what_cannot_be_read_lets_nothing_pass() {
    let (mut a, mut b) = pair(1, false);
    let ask = datagram((1, 5000), (2, 53), false, 100);
    assert_eq!(b.node.set_policy_text(policy::OPEN, &mut secret()), Ok(0));
    assert!(b.node.policy().is_none() && passes(&mut a, &mut b, &ask));
    for text in ["", "{}", "warren-rules 2\n", "warren-rules 1\nin 1 * 0 0\n"] {
        b.node.set_policy_text(policy::OPEN, &mut secret()).unwrap();
        b.node.set_policy_text(text, &mut secret()).unwrap_err();
        assert!(!passes(&mut a, &mut b, &ask), "{text:?}");
    }
    let text = both(1).1.print().unwrap();
    assert_eq!(b.node.set_policy_text(&text, &mut secret()), Ok(0));
    assert!(passes(&mut a, &mut b, &ask));
}

#[test]
fn a_peers_number_is_given_again_without_its_flows() {
    let (mut a, mut b) = pair(1, false);
    b.node.set_policy(Some(both(1).1), &mut secret());
    assert!(passes(&mut a, &mut b, &datagram((1, 5000), (2, 53), false, 100)));
    assert_eq!(b.node.policy().unwrap().flows(), 1);
    let gone = PeerChange { remove: true, ..PeerChange::new(a.public()) };
    b.node.change_peer(&gone, &mut secret()).unwrap();
    assert_eq!(b.node.policy().unwrap().flows(), 0);
}

/// Threat BC-02: what a rule lets be compressed is, and what another lets pass is not.
#[test]
fn bc_02_a_policy_says_which_flows_are_compressed() {
    let (mut a, mut b) = pair(21, true);
    let asks = vec![Rule { compress: true, ..rule(21, 22, 53) }, rule(21, 22, 54)];
    let out = Rules::new(Vec::new(), asks.clone());
    a.node.set_policy(Some(out), &mut Seeded(1));
    b.node.set_policy(Some(Rules::new(asks, Vec::new())), &mut Seeded(2));
    let count = |from: &Machine, to: &Machine| {
        from.node.weather(&to.public()).expect("frames").squeezes.count
    };
    assert!(passes(&mut a, &mut b, &datagram((21, 9), (22, 54), false, 900)));
    assert_eq!(count(&a, &b), 0);
    for v6 in [false, true] {
        assert!(passes(&mut a, &mut b, &datagram((21, 9), (22, 53), v6, 900)));
        assert!(passes(&mut b, &mut a, &datagram((22, 53), (21, 9), v6, 900)), "the answer");
    }
    assert_eq!((count(&a, &b), count(&b, &a)), (2, 2));
    a.node.set_policy(None, &mut Seeded(3));
    assert!(passes(&mut a, &mut b, &datagram((21, 9), (22, 53), false, 900)));
    assert_eq!(count(&a, &b), 2, "no policy asks for it");
}

/// Threat PF-02: a machine that forwards is led nowhere by a member, with rules and without.
#[test]
fn pf_02_what_a_node_does_not_answer_for_neither_comes_in_nor_goes_out() {
    for (round, (frames, v6)) in
        (0_u8..).zip([(false, false), (false, true), (true, false), (true, true)])
    {
        let first = 101 + round * 10;
        let (mut a, mut b) = pair(first, frames);
        let lan = first + 2;
        // b's kernel would lead it there, and everything is allowed to come from there.
        let everything = ["0.0.0.0/0", "::/0"];
        let (own_b, of_b) = (a.public(), b.public());
        for (machine, peer) in [(&mut a, of_b), (&mut b, own_b)] {
            let mut change = PeerChange::new(peer);
            change.allowed_ips = everything.map(|p| AllowedIp::give(p.parse().unwrap())).to_vec();
            machine.node.change_peer(&change, &mut secret()).unwrap();
        }
        let hosts = |numbers: &[u8]| -> Vec<Prefix> {
            numbers.iter().map(|number| Prefix::host(inside(*number, v6))).collect()
        };
        let [sources, destinations] = [(); 2].map(|()| policy::Ranges::everything());
        let asks = Rule { sources, destinations, ..rule(first, first, 53) };
        let rules = Rules::new(vec![asks.clone()], vec![asks]);
        for open in [true, false] {
            let text = if open { policy::OPEN.to_owned() } else { rules.print().unwrap() };
            b.node.set_policy_text(&text, &mut secret()).unwrap();
            for len in [10, 500, 1340] {
                let port = 2000 + len as u16 + u16::from(open);
                let ask = datagram((first, port), (lan, 53), v6, len);
                let from_there = datagram((lan, port), (first, 53), v6, len);
                let own = datagram((first, port), (first + 1, 53), v6, len);
                b.node.set_served(&hosts(&[first + 1])).unwrap();
                let before = b.node.counters().dropped(Reason::PolicyIn);
                assert!(!passes(&mut a, &mut b, &ask), "not for us: {frames} {v6} {open} {len}");
                assert_eq!(b.node.counters().dropped(Reason::PolicyIn), before + 1);
                assert!(!passes(&mut b, &mut a, &from_there), "not from us");
                assert!(passes(&mut a, &mut b, &own), "the control");
                b.node.set_served(&hosts(&[first + 1, lan])).unwrap();
                assert!(passes(&mut a, &mut b, &ask), "approved: {frames} {v6} {open} {len}");
                assert!(passes(&mut b, &mut a, &from_there));
            }
        }
        b.node.set_policy(None, &mut secret());
        b.node.set_served(&[]).unwrap();
        let own = datagram((first, 9), (first + 1, 53), v6, 10);
        assert!(!passes(&mut a, &mut b, &own), "nothing is served, with no rules at all");
    }
}
