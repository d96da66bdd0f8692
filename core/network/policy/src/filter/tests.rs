//! What passes a filter, and why the rest does not. Packets here are written byte by byte.

use core::net::IpAddr;

use super::*;
use crate::ranges::Ranges;
use crate::rules::Service;
use crate::{FRAGMENT_MS, FRAGMENTS_MAX, TCP_CLOSING_MS, TCP_OPEN_MS, UDP_MS, UDP_ONE_WAY_MS};

use Direction::{In, Out};

const PEER: Peer = Peer(3);
const OTHER: Peer = Peer(4);

/// An IP packet around `upper`; with `fragment` in the fragment field (identification, offset in
/// bytes, more to come).
fn ip(
    from: &str,
    to: &str,
    number: u8,
    upper: &[u8],
    fragment: Option<(u16, u16, bool)>,
) -> Vec<u8> {
    let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let mut bytes;
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, number, 0, 0];
            if let Some((id, offset, more)) = fragment {
                bytes[4..6].copy_from_slice(&id.to_be_bytes());
                let field = (offset / 8) | if more { 0x2000 } else { 0 };
                bytes[6..8].copy_from_slice(&field.to_be_bytes());
            }
            bytes.extend(from.octets().iter().chain(&to.octets()));
            let len = (bytes.len() + upper.len()) as u16;
            bytes[2..4].copy_from_slice(&len.to_be_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            bytes = vec![0x60, 0, 0, 0, 0, 0, number, 64];
            bytes.extend(from.octets().iter().chain(&to.octets()));
            if let Some((id, offset, more)) = fragment {
                bytes[6] = 44;
                let field = (offset | u16::from(more)).to_be_bytes();
                bytes.extend([number, 0, field[0], field[1], 0, 0]);
                bytes.extend(id.to_be_bytes());
            }
            let len = (bytes.len() - 40 + upper.len()) as u16;
            bytes[4..6].copy_from_slice(&len.to_be_bytes());
        }
        _ => panic!("one family"),
    }
    bytes.extend(upper);
    bytes
}

fn tcp(from: u16, to: u16, flags: Flags) -> Vec<u8> {
    let mut bytes = [from.to_be_bytes(), to.to_be_bytes()].concat();
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags.0, 1, 0, 0, 0, 0, 0]);
    bytes.resize(100, 0);
    bytes
}

fn udp(from: u16, to: u16) -> Vec<u8> {
    let mut bytes = [from.to_be_bytes(), to.to_be_bytes(), 100u16.to_be_bytes(), [0; 2]].concat();
    bytes.resize(100, 0);
    bytes
}

fn icmp(kind: u8, code: u8, rest: [u8; 4], body: &[u8]) -> Vec<u8> {
    [&[kind, code, 0, 0][..], &rest, body].concat()
}

fn echo(kind: u8, identifier: u16) -> Vec<u8> {
    icmp(kind, 0, [identifier.to_be_bytes(), [0, 1]].concat().try_into().unwrap(), &[0; 92])
}

fn rule(from: &str, to: &str, services: &[Service]) -> Rule {
    let set = |text: &str| Ranges::of_prefixes(text.split(' ').map(|part| part.parse().unwrap()));
    Rule {
        sources: set(from),
        destinations: set(to),
        services: services.to_vec(),
        line: 1,
        compress: false,
    }
}

const fn service(number: u8, port: u16) -> Service {
    Service { protocol: Some(number), first: port, last: port }
}

const ICMPS: [Service; 2] = [
    Service { protocol: Some(1), first: 0, last: 65535 },
    Service { protocol: Some(58), first: 0, last: 65535 },
];

/// We are 100.64.0.1 and fd7a::1. The peer is .2 and ::2. We serve TCP 80, UDP 53 and echo, and may
/// use TCP 443, UDP 123 and echo there.
fn filter() -> Filter {
    let us = "100.64.0.1/32 fd7a::1/128";
    let them = "100.64.0.2/32 fd7a::2/128";
    let mut filter = Filter::new([7, 8]);
    let inward = [&[service(6, 80), service(17, 53)][..], &ICMPS].concat();
    let outward = [&[service(6, 443), service(17, 123)][..], &ICMPS].concat();
    filter.set_rules(Rules {
        inward: vec![rule(them, us, &inward)],
        outward: vec![rule(us, them, &outward)],
        ..Rules::default()
    });
    filter
}

/// The addresses of a packet that goes in `direction`.
fn ends(v4: bool, direction: Direction) -> (&'static str, &'static str) {
    match (v4, direction) {
        (true, Out) => ("100.64.0.1", "100.64.0.2"),
        (true, In) => ("100.64.0.2", "100.64.0.1"),
        (false, Out) => ("fd7a::1", "fd7a::2"),
        (false, In) => ("fd7a::2", "fd7a::1"),
    }
}

fn ask(
    filter: &mut Filter,
    direction: Direction,
    peer: Peer,
    bytes: &[u8],
    now_ms: u64,
) -> Verdict {
    let packet = wire::packet::parse(bytes).expect("tests build whole packets");
    filter.judge(direction, peer, &packet, now_ms)
}

/// Judges a packet between us and the peer.
fn send(filter: &mut Filter, v4: bool, direction: Direction, number: u8, upper: &[u8]) -> Verdict {
    let (from, to) = ends(v4, direction);
    ask(filter, direction, PEER, &ip(from, to, number, upper, None), 0)
}

const PASS: Verdict = Verdict::Pass;

fn dropped(reason: Reason) -> Verdict {
    Verdict::Drop(reason)
}

#[test]
fn pf_08_without_rules_nothing_passes() {
    let mut filter = Filter::new([1, 2]);
    for direction in [In, Out] {
        for v4 in [true, false] {
            for (number, upper) in [(6, tcp(1, 80, Flags::SYN)), (6, tcp(1, 80, Flags::ACK))] {
                let verdict = send(&mut filter, v4, direction, number, &upper);
                assert_eq!(verdict, dropped(Reason::Denied));
            }
            let verdict = send(&mut filter, v4, direction, 17, &udp(1, 53));
            assert_eq!(verdict, dropped(Reason::Denied));
        }
    }
    assert_eq!((filter.passed(), filter.dropped(Reason::Denied)), (0, 12));
    assert_eq!(filter.flows(), 0);
}

#[test]
fn pf_09_every_direction_family_and_protocol_is_judged_by_its_own_rule() {
    const PROTOCOLS: [(u8, u8); 7] =
        [(6, 6), (17, 17), (1, 58), (132, 132), (47, 47), (50, 50), (253, 253)];
    let upper = |number: u8| match number {
        6 => tcp(1000, 99, Flags::SYN),
        1 => echo(8, 5),
        58 => echo(128, 5),
        _ => udp(1000, 99),
    };
    for (at, allowed) in PROTOCOLS.iter().enumerate() {
        for allowed_direction in [In, Out] {
            for allowed_v4 in [true, false] {
                let number = if allowed_v4 { allowed.0 } else { allowed.1 };
                let (from, to) = ends(allowed_v4, allowed_direction);
                let prefix = |text: &str| format!("{text}/{}", if allowed_v4 { 32 } else { 128 });
                let all = Service { protocol: Some(number), first: 0, last: 65535 };
                let rules = vec![rule(&prefix(from), &prefix(to), &[all])];
                let (inward, outward) = match allowed_direction {
                    In => (rules, Vec::new()),
                    Out => (Vec::new(), rules),
                };
                let mut filter = Filter::new([1, 2]);
                filter.set_rules(Rules::new(inward, outward));
                for (other, protocols) in PROTOCOLS.iter().enumerate() {
                    for direction in [Out, In] {
                        for v4 in [true, false] {
                            // A table without flows, or a reply would pass.
                            let mut filter = filter.clone();
                            let number = if v4 { protocols.0 } else { protocols.1 };
                            let verdict = send(&mut filter, v4, direction, number, &upper(number));
                            let is_allowed =
                                (at, allowed_direction, allowed_v4) == (other, direction, v4);
                            let wanted = if is_allowed { PASS } else { dropped(Reason::Denied) };
                            assert_eq!(verdict, wanted, "{number} {direction:?} {v4}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn pf_11_replies_pass_because_of_what_was_asked_and_for_no_other_reason() {
    for v4 in [true, false] {
        let mut filter = filter();
        let mut go =
            |direction, number, upper: Vec<u8>| send(&mut filter, v4, direction, number, &upper);
        let denied = dropped(Reason::Denied);
        // UDP: the answer to nothing, the question, its answer, an answer from elsewhere.
        assert_eq!(go(In, 17, udp(123, 5000)), denied);
        assert_eq!(go(Out, 17, udp(5000, 123)), PASS);
        assert_eq!(go(In, 17, udp(123, 5000)), PASS);
        assert_eq!(go(In, 17, udp(124, 5000)), denied);
        assert_eq!(go(In, 17, udp(123, 5001)), denied);
        // Echo: likewise, by its identifier; their question is not ours.
        let (request, reply, icmp) = if v4 { (8, 0, 1) } else { (128, 129, 58) };
        assert_eq!(go(In, icmp, echo(reply, 9)), dropped(Reason::EchoUnasked));
        assert_eq!(go(In, icmp, echo(request, 9)), PASS);
        assert_eq!(go(In, icmp, echo(reply, 9)), dropped(Reason::EchoUnasked));
        assert_eq!(go(Out, icmp, echo(reply, 9)), PASS);
        assert_eq!(go(Out, icmp, echo(request, 7)), PASS);
        assert_eq!(go(In, icmp, echo(reply, 7)), PASS);
        assert_eq!(go(In, icmp, echo(reply, 8)), dropped(Reason::EchoUnasked));
        // TCP: their SYN over our connection is a connection of its own, and not allowed.
        assert_eq!(go(In, 6, tcp(443, 6000, Flags::SYN.with(Flags::ACK))), denied);
        assert_eq!(go(Out, 6, tcp(6000, 443, Flags::SYN)), PASS);
        assert_eq!(go(In, 6, tcp(443, 6000, Flags::SYN.with(Flags::ACK))), PASS);
        assert_eq!(go(In, 6, tcp(443, 6000, Flags::SYN)), dropped(Reason::ReplyOpens));
        assert_eq!(go(In, 6, tcp(443, 6000, Flags::ACK)), PASS);
        // Both questions have one tuple; each needs its own rule.
        assert_eq!(go(In, 17, udp(5000, 123)), denied);
        assert_eq!(go(In, 17, udp(9, 53)), PASS);
        assert_eq!(go(Out, 17, udp(53, 9)), PASS);
    }
}

#[test]
fn a_reply_comes_from_the_peer_that_was_asked() {
    let mut filter = filter();
    let (from, to) = ends(true, Out);
    assert_eq!(ask(&mut filter, Out, PEER, &ip(from, to, 17, &udp(5, 123), None), 0), PASS);
    let reply = ip(to, from, 17, &udp(123, 5), None);
    assert_eq!(ask(&mut filter, In, OTHER, &reply, 0), dropped(Reason::Denied));
    assert_eq!(ask(&mut filter, In, PEER, &reply, 0), PASS);
    // The route moved to another gateway: the next question goes there, and so does the flow.
    assert_eq!(ask(&mut filter, Out, OTHER, &ip(from, to, 17, &udp(5, 123), None), 0), PASS);
    assert_eq!(ask(&mut filter, In, OTHER, &reply, 0), PASS);
    assert_eq!(ask(&mut filter, In, PEER, &reply, 0), dropped(Reason::Denied));
    let far = ip(to, from, 17, &udp(5, 53), None);
    assert_eq!(ask(&mut filter, In, Peer(PEERS_MAX), &far, 0), dropped(Reason::PeerNumber));
}

#[test]
fn a_connection_outlives_what_the_filter_forgot_but_opens_nothing() {
    for v4 in [true, false] {
        let mut filter = filter();
        let mut go = |direction, upper: Vec<u8>| send(&mut filter, v4, direction, 6, &upper);
        // Data from the server first, after a restart: no SYN, no RST, and a rule for it.
        assert_eq!(go(In, tcp(443, 6000, Flags::ACK.with(Flags::PSH))), PASS);
        assert_eq!(go(Out, tcp(80, 6000, Flags::ACK)), PASS);
        for flags in [Flags::SYN, Flags::SYN.with(Flags::ACK), Flags::RST.with(Flags::ACK)] {
            assert_eq!(go(In, tcp(443, 6000, flags)), dropped(Reason::Denied));
        }
        assert_eq!(go(In, tcp(443, 6000, Flags::default())), dropped(Reason::Denied));
        assert_eq!(go(In, tcp(444, 6000, Flags::ACK)), dropped(Reason::Denied));
        assert_eq!(filter.flows(), 0, "it is no flow until its beginner speaks");
        let mut go = |direction, upper: Vec<u8>| send(&mut filter, v4, direction, 6, &upper);
        assert_eq!(go(Out, tcp(6000, 443, Flags::ACK)), PASS);
        assert_eq!(filter.flows(), 1);
    }
}

#[test]
fn pf_03_icmp_errors_pass_only_about_a_living_flow_with_that_peer() {
    for v4 in [true, false] {
        let mut filter = filter();
        let (us, them) = ends(v4, Out);
        let (unreachable, number) = if v4 { (3, 1) } else { (1, 58) };
        let question = ip(us, them, 17, &udp(5000, 123), None);
        let error = |from: &str, to: &str, quoted: &[u8]| {
            ip(from, to, number, &icmp(unreachable, 1, [0; 4], quoted), None)
        };
        let unrelated = dropped(Reason::ErrorUnrelated);
        let genuine = error(them, us, &question);
        assert_eq!(ask(&mut filter, In, PEER, &genuine, 0), unrelated);
        assert_eq!(ask(&mut filter, Out, PEER, &question, 0), PASS);
        assert_eq!(ask(&mut filter, In, PEER, &genuine, 0), PASS);
        // As little as eight bytes behind the headers.
        let header = if v4 { 20 } else { 40 };
        assert_eq!(ask(&mut filter, In, PEER, &error(them, us, &question[..header + 8]), 0), PASS);
        let short = error(them, us, &question[..header + 3]);
        assert_eq!(ask(&mut filter, In, PEER, &short, 0), unrelated);
        // Another peer, another flow, the wrong way round, to somebody else, about a fragment.
        assert_eq!(ask(&mut filter, In, OTHER, &genuine, 0), unrelated);
        let foreign = ip(us, them, 17, &udp(5001, 123), None);
        assert_eq!(ask(&mut filter, In, PEER, &error(them, us, &foreign), 0), unrelated);
        let back = ip(them, us, 17, &udp(123, 5000), None);
        assert_eq!(ask(&mut filter, In, PEER, &error(them, us, &back), 0), unrelated);
        let elsewhere = if v4 { "100.64.0.9" } else { "fd7a::9" };
        assert_eq!(ask(&mut filter, In, PEER, &error(them, elsewhere, &question), 0), unrelated);
        let piece = ip(us, them, 17, &udp(5000, 123), Some((1, 800, true)));
        assert_eq!(ask(&mut filter, In, PEER, &error(them, us, &piece), 0), unrelated);
        // Our own errors about what came from there.
        assert_eq!(ask(&mut filter, Out, PEER, &error(us, them, &back), 0), PASS);
        assert_eq!(ask(&mut filter, Out, PEER, &error(us, them, &question), 0), unrelated);
        // A router behind the peer may be the one that complains.
        assert_eq!(ask(&mut filter, In, PEER, &error(elsewhere, us, &question), 0), PASS);
        // An error about an echo, by its identifier.
        let request = if v4 { 8 } else { 128 };
        let ping = ip(us, them, number, &echo(request, 77), None);
        assert_eq!(ask(&mut filter, In, PEER, &error(them, us, &ping), 0), unrelated);
        assert_eq!(ask(&mut filter, Out, PEER, &ping, 0), PASS);
        assert_eq!(ask(&mut filter, In, PEER, &error(them, us, &ping), 0), PASS);
    }
}

#[test]
fn pf_03_redirects_never_pass_and_no_mtu_below_the_least() {
    let mut filter = filter();
    let mut go = |v4: bool, upper: &dyn Fn(&[u8]) -> Vec<u8>| {
        let (us, them) = ends(v4, Out);
        let question = ip(us, them, 17, &udp(5000, 123), None);
        assert_eq!(ask(&mut filter, Out, PEER, &question, 0), PASS);
        let number = if v4 { 1 } else { 58 };
        ask(&mut filter, In, PEER, &ip(them, us, number, &upper(&question), None), 0)
    };
    let kind = dropped(Reason::IcmpKind);
    assert_eq!(go(true, &|quoted| icmp(5, 1, [100, 64, 0, 9], quoted)), kind);
    for number in [133, 134, 135, 136, 137, 130, 143] {
        assert_eq!(go(false, &|quoted| icmp(number, 0, [0; 4], quoted)), kind);
    }
    for number in [9, 10, 13, 14, 17, 42] {
        assert_eq!(go(true, &|quoted| icmp(number, 0, [0; 4], quoted)), kind);
    }
    for (mtu, verdict) in [
        (0, dropped(Reason::ErrorMtu)),
        (575, dropped(Reason::ErrorMtu)),
        (576, PASS),
        (1400, PASS),
    ] {
        let rest = [0, 0, (mtu >> 8) as u8, mtu as u8];
        assert_eq!(go(true, &|quoted| icmp(3, 4, rest, quoted)), verdict, "{mtu}");
    }
    for (mtu, verdict) in [(1279, dropped(Reason::ErrorMtu)), (1280, PASS)] {
        let rest = [0, 0, (mtu >> 8) as u8, mtu as u8];
        assert_eq!(go(false, &|quoted| icmp(2, 0, rest, quoted)), verdict, "{mtu}");
    }
    // One family's messages in the other's packets.
    let (from, to) = ends(true, In);
    assert_eq!(ask(&mut filter, In, PEER, &ip(from, to, 58, &echo(128, 1), None), 0), kind);
    let (from, to) = ends(false, In);
    assert_eq!(ask(&mut filter, In, PEER, &ip(from, to, 1, &echo(8, 1), None), 0), kind);
}

#[test]
fn pf_04_later_fragments_follow_a_first_one_that_passed() {
    for v4 in [true, false] {
        let mut filter = filter();
        let (us, them) = ends(v4, Out);
        let piece = |offset, more| ip(them, us, 17, &udp(9, 53), Some((42, offset, more)));
        let unknown = dropped(Reason::FragmentUnknown);
        let mut first = ip(them, us, 17, &udp(9, 53), Some((42, 0, true)));
        // The UDP length is that of the whole datagram.
        let at = first.len() - 100 + 4;
        first[at..at + 2].copy_from_slice(&5000u16.to_be_bytes());
        assert_eq!(ask(&mut filter, In, PEER, &piece(104, true), 0), unknown);
        assert_eq!(ask(&mut filter, In, PEER, &first, 0), PASS);
        assert_eq!(ask(&mut filter, In, OTHER, &piece(104, true), 0), unknown);
        let other = ip(them, us, 17, &udp(9, 53), Some((43, 104, false)));
        assert_eq!(ask(&mut filter, In, PEER, &other, 0), unknown);
        let overlap = ip(them, us, 17, &udp(9, 53), Some((42, 8, true)));
        assert_eq!(ask(&mut filter, In, PEER, &overlap, 0), dropped(Reason::Malformed));
        for _ in 0..FRAGMENTS_MAX {
            assert_eq!(ask(&mut filter, In, PEER, &piece(104, true), 1), PASS);
        }
        let surplus = dropped(Reason::FragmentSurplus);
        assert_eq!(ask(&mut filter, In, PEER, &piece(104, false), 1), surplus);
        assert_eq!(ask(&mut filter, In, PEER, &first, 10), PASS);
        assert_eq!(ask(&mut filter, In, PEER, &piece(104, true), 9 + FRAGMENT_MS), PASS);
        assert_eq!(ask(&mut filter, In, PEER, &piece(104, true), 10 + FRAGMENT_MS), unknown);
        let mut denied = first.clone();
        let port = denied.len() - 100 + 2;
        denied[port..port + 2].copy_from_slice(&54u16.to_be_bytes());
        assert_eq!(ask(&mut filter, In, PEER, &denied, 20_000), dropped(Reason::Denied));
        assert_eq!(ask(&mut filter, In, PEER, &piece(104, true), 20_000), unknown);
    }
}

#[test]
fn pf_07_new_rules_cut_at_once_what_they_do_not_allow() {
    let mut filter = filter();
    let rules = filter.rules().clone();
    let go = |filter: &mut Filter, direction, number, upper: Vec<u8>| {
        send(filter, true, direction, number, &upper)
    };
    assert_eq!(go(&mut filter, Out, 6, tcp(6000, 443, Flags::SYN)), PASS);
    assert_eq!(go(&mut filter, Out, 17, udp(6000, 123)), PASS);
    assert_eq!(go(&mut filter, In, 17, udp(6000, 53)), PASS);
    assert_eq!(go(&mut filter, Out, 1, echo(8, 4)), PASS);
    assert_eq!(filter.set_rules(rules.clone()), 0, "the same rules cut nothing");
    let mut narrower = rules.clone();
    narrower.outward[0].services = vec![service(17, 123)];
    assert_eq!(filter.set_rules(narrower), 2);
    assert_eq!(go(&mut filter, In, 6, tcp(443, 6000, Flags::ACK)), dropped(Reason::Denied));
    assert_eq!(go(&mut filter, Out, 6, tcp(6000, 443, Flags::ACK)), dropped(Reason::Denied));
    assert_eq!(go(&mut filter, In, 1, echo(0, 4)), dropped(Reason::EchoUnasked));
    assert_eq!(go(&mut filter, In, 17, udp(123, 6000)), PASS);
    assert_eq!(go(&mut filter, Out, 17, udp(53, 6000)), PASS);
    assert_eq!(filter.set_rules(Rules::default()), 2);
    assert_eq!(filter.flows(), 0);
    assert_eq!(go(&mut filter, In, 17, udp(123, 6000)), dropped(Reason::Denied));
}

#[test]
fn ts_2024_005_a_host_behind_a_gateway_answers_but_does_not_begin() {
    // We are the gateway: 10.1.0.0/16 is behind us, and the peer may use it.
    let mut filter = Filter::new([1, 2]);
    let inward = vec![rule("100.64.0.2/32", "10.1.0.0/16", &[Service::ANY])];
    filter.set_rules(Rules::new(inward.clone(), Vec::new()));
    let lan = |upper: &[u8]| ip("10.1.0.7", "100.64.0.2", 6, upper, None);
    let denied = dropped(Reason::Denied);
    assert_eq!(ask(&mut filter, Out, PEER, &lan(&tcp(80, 5000, Flags::SYN)), 0), denied);
    let question = ip("100.64.0.2", "10.1.0.7", 6, &tcp(5000, 80, Flags::SYN), None);
    assert_eq!(ask(&mut filter, In, PEER, &question, 0), PASS);
    let answer = lan(&tcp(80, 5000, Flags::SYN.with(Flags::ACK)));
    assert_eq!(ask(&mut filter, Out, PEER, &answer, 0), PASS);
    assert_eq!(
        ask(&mut filter, Out, PEER, &lan(&tcp(80, 5000, Flags::SYN)), 0),
        dropped(Reason::ReplyOpens)
    );
    assert_eq!(ask(&mut filter, Out, PEER, &lan(&tcp(81, 22, Flags::SYN)), 0), denied);
    // A site: what is behind us may begin too, where a rule names it.
    let outward = vec![rule("10.1.0.0/16", "100.64.0.2/32", &[service(6, 22)])];
    filter.set_rules(Rules::new(inward, outward));
    assert_eq!(ask(&mut filter, Out, PEER, &lan(&tcp(81, 22, Flags::SYN)), 0), PASS);
    assert_eq!(ask(&mut filter, Out, PEER, &lan(&tcp(81, 23, Flags::SYN)), 0), denied);
}

#[test]
fn pf_17_pf_06_what_is_not_plain_unicast_passes_under_no_rule() {
    let mut filter = Filter::new([1, 2]);
    let all = Rule {
        sources: Ranges::everything(),
        destinations: Ranges::everything(),
        services: vec![Service::ANY],
        line: 1,
        compress: false,
    };
    filter.set_rules(Rules::new(vec![all.clone()], vec![all]));
    for direction in [In, Out] {
        for (from, to, verdict) in [
            ("100.64.0.1", "100.64.0.2", PASS),
            ("100.64.0.1", "224.0.0.251", dropped(Reason::NotUnicast)),
            ("100.64.0.1", "255.255.255.255", dropped(Reason::NotUnicast)),
            ("100.64.0.1", "127.0.0.1", dropped(Reason::NotUnicast)),
            ("0.0.0.0", "100.64.0.1", dropped(Reason::NotUnicast)),
            ("169.254.0.1", "100.64.0.1", dropped(Reason::NotUnicast)),
            ("fd7a::1", "ff02::fb", dropped(Reason::NotUnicast)),
            ("fe80::1", "fd7a::1", dropped(Reason::NotUnicast)),
            ("fd7a::1", "::1", dropped(Reason::NotUnicast)),
            ("fd7a::1", "::ffff:100.64.0.2", dropped(Reason::Embedded)),
            ("::ffff:100.64.0.1", "fd7a::2", dropped(Reason::Embedded)),
            ("fd7a::1", "::100.64.0.2", dropped(Reason::Embedded)),
        ] {
            let bytes = ip(from, to, 17, &udp(5, 5), None);
            assert_eq!(ask(&mut filter, direction, PEER, &bytes, 0), verdict, "{from} {to}");
        }
        let mapped = ip("::ffff:100.64.0.1", "::ffff:100.64.0.2", 17, &udp(5, 5), None);
        let verdict = ask(&mut filter, direction, PEER, &mapped, 0);
        assert_eq!(verdict, dropped(Reason::Embedded), "the flow of its twin is not its own");
    }
    let mut routed = ip("fd7a::1", "fd7a::2", 43, &[17, 0, 4, 0, 0, 0, 0, 0], None);
    routed.extend(udp(5, 5));
    routed[5] = 108;
    assert_eq!(ask(&mut filter, In, PEER, &routed, 0), dropped(Reason::SourceRouted));
}

#[test]
fn flows_end_in_their_time() {
    let mut filter = filter();
    let (us, them) = ends(true, Out);
    let question = ip(us, them, 17, &udp(5, 123), None);
    let answer = ip(them, us, 17, &udp(123, 5), None);
    let denied = dropped(Reason::Denied);
    assert_eq!(ask(&mut filter, Out, PEER, &question, 0), PASS);
    assert_eq!(ask(&mut filter, In, PEER, &answer, UDP_ONE_WAY_MS), denied);
    assert_eq!(ask(&mut filter, Out, PEER, &question, UDP_ONE_WAY_MS), PASS);
    assert_eq!(ask(&mut filter, In, PEER, &answer, UDP_ONE_WAY_MS + 1), PASS);
    assert_eq!(ask(&mut filter, In, PEER, &answer, UDP_ONE_WAY_MS + UDP_MS), PASS);
    assert_eq!(ask(&mut filter, In, PEER, &answer, UDP_ONE_WAY_MS + 3 * UDP_MS), denied);

    let there = |flags| ip(us, them, 6, &tcp(6, 443, flags), None);
    let back = |flags| ip(them, us, 6, &tcp(443, 6, flags), None);
    let (syn, ack) = (Flags::SYN, Flags::ACK);
    let fin = Flags::FIN.with(ack);
    // A SYN-ACK passes only in a living flow, so that it tells whether there is one.
    let is_alive = |filter: &mut Filter, now_ms| {
        ask(&mut filter.clone(), In, PEER, &back(syn.with(ack)), now_ms) == PASS
    };
    assert_eq!(ask(&mut filter, Out, PEER, &there(syn), 0), PASS);
    assert!(is_alive(&mut filter, 29_999) && !is_alive(&mut filter, 30_000));
    assert_eq!(ask(&mut filter, In, PEER, &back(syn.with(ack)), 1000), PASS);
    assert!(is_alive(&mut filter, TCP_OPEN_MS + 999));
    assert_eq!(ask(&mut filter, Out, PEER, &there(fin), 2000), PASS);
    assert!(is_alive(&mut filter, TCP_OPEN_MS), "half a connection is still one");
    assert_eq!(ask(&mut filter, In, PEER, &back(fin), 3000), PASS);
    assert_eq!(ask(&mut filter, Out, PEER, &there(ack), 3001), PASS);
    assert!(!is_alive(&mut filter, 3001 + TCP_CLOSING_MS));
    assert_eq!(ask(&mut filter, Out, PEER, &there(syn), 4000), PASS, "the port is used again");
    assert!(is_alive(&mut filter, 33_999) && !is_alive(&mut filter, 34_000));
    assert_eq!(ask(&mut filter, In, PEER, &back(Flags::RST.with(ack)), 5000), PASS);
    assert!(!is_alive(&mut filter, 5000 + TCP_CLOSING_MS));
}

#[test]
fn pf_10_an_established_flow_survives_a_spray_by_another_peer() {
    let us = "100.64.0.1/32";
    let mut filter = Filter::with_flows_max([1, 2], 4096);
    filter.set_rules(Rules {
        inward: vec![rule(
            "100.64.0.0/10",
            us,
            &[Service { protocol: Some(17), first: 0, last: 65535 }],
        )],
        outward: vec![rule(us, "100.64.0.0/10", &[service(17, 123)])],
        ..Rules::default()
    });
    let question = ip("100.64.0.1", "100.64.0.2", 17, &udp(5, 123), None);
    assert_eq!(ask(&mut filter, Out, PEER, &question, 0), PASS);
    for number in 0..1_000_000u32 {
        let [_, a, b, c] = number.to_be_bytes();
        let ports = udp(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, 7]));
        let spray = ip("100.64.0.3", "100.64.0.1", 17, &ports, None);
        assert_eq!(ask(&mut filter, In, OTHER, &spray, 1), PASS);
    }
    assert_eq!(filter.flows(), 4096);
    let answer = ip("100.64.0.2", "100.64.0.1", 17, &udp(123, 5), None);
    assert_eq!(ask(&mut filter, In, PEER, &answer, 2), PASS);
}

#[test]
fn reasons_have_numbers_and_names_of_their_own() {
    let mut names = std::collections::BTreeSet::new();
    for (number, reason) in Reason::ALL.iter().enumerate() {
        assert_eq!(reason.number(), number);
        assert!(names.insert(reason.name()));
    }
}

/// Threat BC-02: a flow is compressed where a rule which lets it begin says so, at both ends.
#[test]
fn bc_02_flows_are_compressed_where_their_rule_says_so_and_as_long_as_it_does() {
    let (us, them) = ("100.64.0.1/32", "100.64.0.2/32");
    let rules = |compress: bool| {
        let of = |services: &[Service], compress| Rule { compress, ..rule(us, them, services) };
        let outward =
            vec![of(&[service(17, 53), service(17, 80)], false), of(&[service(17, 53)], compress)];
        Rules::new(Vec::new(), outward)
    };
    let mut filter = Filter::new([1, 2]);
    filter.set_rules(rules(true));
    let packet = |from: &str, to: &str, (a, b): (u16, u16)| ip(from, to, 17, &udp(a, b), None);
    let lets = |filter: &mut Filter, direction, packet: &[u8]| {
        (ask(filter, direction, PEER, packet, 0), filter.lets_compress())
    };
    let (one, two) = ("100.64.0.1", "100.64.0.2");
    assert_eq!(lets(&mut filter, Out, &packet(one, two, (9, 53))), (PASS, true));
    assert_eq!(lets(&mut filter, In, &packet(two, one, (53, 9))), (PASS, true), "the answer");
    assert_eq!(lets(&mut filter, Out, &packet(one, two, (9, 80))), (PASS, false));
    let denied = dropped(Reason::Denied);
    assert_eq!(lets(&mut filter, Out, &packet(one, two, (9, 81))), (denied, false));
    // Other rules hold for flows that have begun.
    filter.set_rules(rules(false));
    assert_eq!(lets(&mut filter, In, &packet(two, one, (53, 9))), (PASS, false));
    filter.set_rules(rules(true));
    assert_eq!(lets(&mut filter, Out, &packet(one, two, (9, 53))), (PASS, true));
}
