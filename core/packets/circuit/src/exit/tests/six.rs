//! The same in packets of IPv6.

use std::net::Ipv6Addr;

use super::*;
use crate::rewrite::six;

const SERVER_SIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
const EXIT_SIX: Ipv6Addr = six(EXIT_ADDRESS);

/// A packet of IPv6 with a good checksum; `rest` is its transport, whose checksum is made.
fn packet6(protocol: u8, from: Ipv6Addr, to: Ipv6Addr, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0x0a, 0xbc, 0xde];
    bytes.extend((rest.len() as u16).to_be_bytes());
    bytes.extend([protocol, 63]);
    bytes.extend(from.octets());
    bytes.extend(to.octets());
    bytes.extend(rest);
    let place = 40
        + match protocol {
            protocol::TCP => 16,
            protocol::UDP => 6,
            _ => 2,
        };
    bytes[place..place + 2].fill(0);
    let pseudo = wire::checksum::pseudo_v6(from, to, protocol, rest.len() as u32);
    let sum = pseudo.plus(wire::checksum::Sum::of(&bytes[40..])).udp_checksum();
    bytes[place..place + 2].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn udp6(from: Ipv6Addr, to: Ipv6Addr, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut rest = ports.0.to_be_bytes().to_vec();
    rest.extend(ports.1.to_be_bytes());
    rest.extend((8 + payload.len() as u16).to_be_bytes());
    rest.extend([0, 0]);
    rest.extend(payload);
    packet6(protocol::UDP, from, to, &rest)
}

fn echo6(from: Ipv6Addr, to: Ipv6Addr, kind: u8, id: u16) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    packet6(protocol::ICMPV6, from, to, &[kind, 0, 0, 0, high, low, 0, 1, 1, 2, 3, 4])
}

fn ports6(bytes: &[u8]) -> (IpAddr, u16, IpAddr, u16) {
    assert!(packet::parse(bytes).expect("a packet").checksums_hold(), "{bytes:02x?}");
    let seen = rewrite::look(bytes).expect("what circuits carry");
    let (from, to) = (rewrite::source_port(&seen), rewrite::destination_port(&seen));
    (seen.source, from, seen.destination, to)
}

fn case() -> Case {
    let mut case = Case::new();
    case.exit.set_rules(ExitRules { leads_six: true, ..ExitRules::default() });
    case
}

#[test]
fn addresses_of_ipv6_are_those_of_ipv4_behind_a_prefix_of_their_own() {
    assert_eq!(six(ONE.1).to_string(), "fd63:6972:6375::c613:1");
    assert_eq!(rewrite::four(IpAddr::V6(six(ONE.1))), Some(ONE.1));
    assert_eq!(rewrite::four(IpAddr::V6(SERVER_SIX)), None);
    assert!(!leads_out(IpAddr::V6(six(ONE.1))), "they are never routed");
}

#[test]
fn two_circuits_with_equal_ports_to_one_server_of_ipv6_both_work() {
    let mut case = case();
    let mut outer = Vec::new();
    for of in [ONE, TWO] {
        let sent = case.out(of, udp6(six(of.1), SERVER_SIX, (5000, 443), b"hello"), 0).unwrap();
        let (from, port, to, to_port) = ports6(&sent);
        assert_eq!((from, to, to_port), (EXIT_SIX.into(), SERVER_SIX.into(), 443));
        outer.push((of, port));
    }
    assert_ne!(outer[0].1, outer[1].1);
    for (of, port) in outer {
        let answer = udp6(SERVER_SIX, EXIT_SIX, (443, port), b"hi");
        let (id, bytes) = case.back(answer, 1).unwrap();
        assert_eq!((id, ports6(&bytes)), (of.0, (SERVER_SIX.into(), 443, six(of.1).into(), 5000)));
        let stranger = "2001:db8::10".parse().unwrap();
        let refused = case.back(udp6(stranger, EXIT_SIX, (443, port), b"hi"), 1);
        assert_eq!(refused, Err(Drop::NoFlow), "nobody asked that one");
        let mapped = udp(SERVER, EXIT_ADDRESS, (443, port), b"hi");
        assert_eq!(case.back(mapped, 1), Err(Drop::NoFlow), "nor of the other version");
    }
}

#[test]
fn an_exit_refuses_of_ipv6_what_is_private_and_all_where_it_has_none() {
    let mut case = case();
    for to in [
        "::",
        "::1",
        "::ffff:203.0.113.9",
        "64:ff9b::cb00:7109",
        "100::1",
        "2001:0:1::1",
        "2002:a00:1::1",
        "fc00::1",
        "fd63:6972:6375::c612:ff35",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ] {
        let to: Ipv6Addr = to.parse().unwrap();
        for bytes in [udp6(six(ONE.1), to, (1, 443), b""), echo6(six(ONE.1), to, 128, 1)] {
            assert_eq!(case.out(ONE, bytes, 0), Err(Drop::ExitRefused), "{to}");
        }
    }
    let mail = udp6(six(ONE.1), SERVER_SIX, (1, 25), b"");
    assert_eq!(case.out(ONE, mail, 0), Err(Drop::ExitRefused));
    let forged = udp6(six(TWO.1), SERVER_SIX, (1, 2), b"");
    assert_eq!(case.out(ONE, forged, 0), Err(Drop::NotCarried), "another circuit's source");
    assert!(case.out(ONE, udp6(six(ONE.1), SERVER_SIX, (1, 2), b""), 0).is_ok());
    case.exit.set_rules(ExitRules::default());
    let none = udp6(six(ONE.1), SERVER_SIX, (1, 2), b"");
    assert_eq!(case.out(ONE, none, 0), Err(Drop::NoSix));
}

#[test]
fn options_of_ipv6_are_not_carried() {
    let mut case = case();
    // Hop-by-hop options with nothing but padding, then UDP.
    let datagram = udp6(six(ONE.1), SERVER_SIX, (1, 2), b"");
    let mut bytes =
        [&datagram[..40], &[protocol::UDP, 0, 1, 4, 0, 0, 0, 0], &datagram[40..]].concat();
    bytes[5] += 8;
    bytes[6] = 0;
    assert!(packet::parse(&bytes).unwrap().checksums_hold(), "the control: it is good");
    assert_eq!(case.out(ONE, bytes, 0), Err(Drop::NotCarried));
}

#[test]
fn echoes_and_errors_of_ipv6_find_their_way_back() {
    let mut case = case();
    let sent = case.out(ONE, echo6(six(ONE.1), SERVER_SIX, 128, 77), 0).unwrap();
    let (_, id, ..) = ports6(&sent);
    let (of, bytes) = case.back(echo6(SERVER_SIX, EXIT_SIX, 129, id), 0).unwrap();
    assert_eq!((of, ports6(&bytes)), (1, (SERVER_SIX.into(), 77, six(ONE.1).into(), 77)));
    let request = echo6(SERVER_SIX, EXIT_SIX, 128, id);
    assert_eq!(case.back(request, 0), Err(Drop::NoFlow), "a request");
    let router: Ipv6Addr = "2001:db8::1".parse().unwrap();
    for (inside, sent) in [
        (5000, case.out(TWO, udp6(six(TWO.1), SERVER_SIX, (5000, 33434), b"x"), 0).unwrap()),
        (7000, case.out(TWO, echo6(six(TWO.1), SERVER_SIX, 128, 7000), 0).unwrap()),
    ] {
        let mut rest = vec![3, 0, 0, 0, 0, 0, 0, 0];
        rest.extend(&sent[..48]);
        let error = packet6(protocol::ICMPV6, router, EXIT_SIX, &rest);
        let (of, bytes) = case.back(error, 0).unwrap();
        assert!(packet::parse(&bytes).unwrap().checksums_hold());
        let quoted = packet::parse_quoted(&bytes[48..]).unwrap();
        assert_eq!((of, quoted.source()), (2, IpAddr::V6(six(TWO.1))));
        let at = 48 + 40 + if sent[6] == protocol::ICMPV6 { 4 } else { 0 };
        assert_eq!(u16::from_be_bytes([bytes[at], bytes[at + 1]]), inside);
    }
}

#[test]
fn fragments_of_ipv6_follow_their_first() {
    let mut case = case();
    let whole = udp6(six(ONE.1), SERVER_SIX, (5000, 9), &[5; 240]);
    let split = |whole: &[u8]| {
        let part = |offset: u16, more: bool, rest: &[u8]| {
            let mut bytes = whole[..40].to_vec();
            bytes[4..6].copy_from_slice(&(8 + rest.len() as u16).to_be_bytes());
            bytes[6] = 44;
            bytes.extend([protocol::UDP, 0]);
            bytes.extend((offset << 3 | u16::from(more)).to_be_bytes());
            bytes.extend([1, 2, 3, 4]);
            bytes.extend(rest);
            bytes
        };
        [part(0, true, &whole[40..160]), part(15, false, &whole[160..])]
    };
    let [first, second] = split(&whole);
    assert_eq!(case.out(ONE, second.clone(), 0), Err(Drop::NoFlow), "before its first");
    let first = case.out(ONE, first, 0).unwrap();
    let second = case.out(ONE, second, 0).unwrap();
    assert_eq!(first[44..48], second[44..48]);
    assert_ne!(first[44..48], [1, 2, 3, 4], "the client's own identification tells of it");
    let mut joined = [&first[..40], &first[48..], &second[48..]].concat();
    joined[4..6].copy_from_slice(&248u16.to_be_bytes());
    joined[6] = protocol::UDP;
    let (from, port, ..) = ports6(&joined);
    assert_eq!(from, IpAddr::V6(EXIT_SIX));
    let [first, second] = split(&udp6(SERVER_SIX, EXIT_SIX, (9, port), &[6; 240]));
    let (_, first) = case.back(first, 1).unwrap();
    let (id, second) = case.back(second, 1).unwrap();
    let mut joined = [&first[..40], &first[48..], &second[48..]].concat();
    joined[4..6].copy_from_slice(&248u16.to_be_bytes());
    joined[6] = protocol::UDP;
    let inside = (SERVER_SIX.into(), 9, six(ONE.1).into(), 5000);
    assert_eq!((id, ports6(&joined)), (1, inside));
}
