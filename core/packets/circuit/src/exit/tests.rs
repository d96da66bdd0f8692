//! The translator: ports, answers, errors, fragments, times, refusals.

use super::*;

mod six;

/// Counts up from a seed.
struct Counting(u8);

impl Random for Counting {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(37).wrapping_add(101);
            *byte = self.0;
        }
    }
}

const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const ONE: (u32, Ipv4Addr) = (1, Ipv4Addr::new(198, 19, 0, 1));
const TWO: (u32, Ipv4Addr) = (2, Ipv4Addr::new(198, 19, 0, 2));

fn own(id: u32) -> Option<Ipv4Addr> {
    [ONE, TWO].into_iter().find(|one| one.0 == id).map(|one| one.1)
}

fn at(seconds: u64) -> Instant {
    Instant(seconds * 1_000_000_000)
}

/// An IPv4 packet with good checksums; `rest` is its transport, whose checksum is made.
fn packet(protocol: u8, from: Ipv4Addr, to: Ipv4Addr, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 0, 0x12, 0x34, 0, 0, 64, protocol, 0, 0];
    bytes.extend(from.octets());
    bytes.extend(to.octets());
    bytes.extend(rest);
    let len = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
    finish(&mut bytes);
    bytes
}

fn finish(bytes: &mut [u8]) {
    bytes[10..12].fill(0);
    let sum = wire::checksum::Sum::of(&bytes[..20]).checksum();
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    let place = match bytes[9] {
        protocol::TCP => 36,
        protocol::UDP => 26,
        _ => 22,
    };
    bytes[place..place + 2].fill(0);
    let view = packet::parse(bytes).expect("well formed");
    let (from, to) = (view.source(), view.destination());
    let len = bytes.len() as u32 - 20;
    let pseudo = wire::checksum::pseudo(from, to, bytes[9], len);
    let pseudo = if bytes[9] == protocol::ICMP { wire::checksum::Sum::ZERO } else { pseudo };
    let sum = pseudo.plus(wire::checksum::Sum::of(&bytes[20..])).udp_checksum();
    bytes[place..place + 2].copy_from_slice(&sum.to_be_bytes());
}

fn udp(from: Ipv4Addr, to: Ipv4Addr, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut rest = ports.0.to_be_bytes().to_vec();
    rest.extend(ports.1.to_be_bytes());
    rest.extend((8 + payload.len() as u16).to_be_bytes());
    rest.extend([0, 0]);
    rest.extend(payload);
    packet(protocol::UDP, from, to, &rest)
}

fn tcp(from: Ipv4Addr, to: Ipv4Addr, ports: (u16, u16), flags: Flags) -> Vec<u8> {
    let mut rest = ports.0.to_be_bytes().to_vec();
    rest.extend(ports.1.to_be_bytes());
    rest.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags.0, 4, 0, 0, 0, 0, 0]);
    packet(protocol::TCP, from, to, &rest)
}

fn echo(from: Ipv4Addr, to: Ipv4Addr, kind: u8, id: u16) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    packet(protocol::ICMP, from, to, &[kind, 0, 0, 0, high, low, 0, 1, 1, 2, 3, 4])
}

fn ports(bytes: &[u8]) -> (Ipv4Addr, u16, Ipv4Addr, u16) {
    assert!(packet::parse(bytes).expect("a packet").checksums_hold(), "{bytes:02x?}");
    let seen = rewrite::look(bytes).expect("what circuits carry");
    let (from, to) = (rewrite::source_port(&seen), rewrite::destination_port(&seen));
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (seen.source, seen.destination) else {
        panic!("{seen:?}");
    };
    (source, from, destination, to)
}

struct Case {
    exit: Exit,
    random: Counting,
}

impl Case {
    fn new() -> Self {
        let mut exit = Exit::default();
        let name_server = Some(Ipv4Addr::new(10, 0, 0, 53));
        exit.set_rules(ExitRules { name_server, ..ExitRules::default() });
        Self { exit, random: Counting(7) }
    }

    fn out(
        &mut self,
        of: (u32, Ipv4Addr),
        mut bytes: Vec<u8>,
        seconds: u64,
    ) -> Result<Vec<u8>, Drop> {
        let len = self.exit.handle_out(of, &mut bytes, at(seconds), &mut self.random)?;
        assert_eq!(len, bytes.len());
        Ok(bytes)
    }

    fn back(&mut self, mut bytes: Vec<u8>, seconds: u64) -> Result<(u32, Vec<u8>), Drop> {
        let (id, len) = self.exit.handle_in(&mut bytes, own, at(seconds))?;
        assert_eq!(len, bytes.len());
        Ok((id, bytes))
    }
}

#[test]
fn two_circuits_with_equal_ports_to_one_server_both_work_and_never_mix() {
    let mut case = Case::new();
    let mut outer = Vec::new();
    for of in [ONE, TWO] {
        let sent = case.out(of, udp(of.1, SERVER, (5000, 443), b"hello"), 0).unwrap();
        let (from, port, to, to_port) = ports(&sent);
        assert_eq!((from, to, to_port), (EXIT_ADDRESS, SERVER, 443));
        outer.push((of, port));
    }
    assert_ne!(outer[0].1, outer[1].1);
    for (of, port) in outer {
        let answer = udp(SERVER, EXIT_ADDRESS, (443, port), b"hi");
        let (id, bytes) = case.back(answer, 1).unwrap();
        assert_eq!((id, ports(&bytes)), (of.0, (SERVER, 443, of.1, 5000)));
        let stranger = Ipv4Addr::new(203, 0, 113, 10);
        let refused = case.back(udp(stranger, EXIT_ADDRESS, (443, port), b"hi"), 1);
        assert_eq!(refused, Err(Drop::NoFlow), "nobody asked that one");
        assert_eq!(case.back(udp(SERVER, EXIT_ADDRESS, (80, port), b""), 1), Err(Drop::NoFlow));
    }
    let again = case.out(ONE, udp(ONE.1, Ipv4Addr::new(203, 0, 113, 77), (5000, 9), b""), 1);
    let first = case.out(ONE, udp(ONE.1, SERVER, (5000, 443), b""), 1).unwrap();
    assert_eq!(ports(&again.unwrap()).1, ports(&first).1, "one outer port for all destinations");
    case.exit.forget(1);
    assert_eq!((case.exit.flows(), case.exit.outer.len(), case.exit.mappings.len()), (1, 1, 1));
}

#[test]
fn an_exit_refuses_what_is_private_its_own_network_and_mail() {
    let mut case = Case::new();
    let refused = vec!["203.0.113.128/25".parse().unwrap()];
    let allowed = vec!["10.9.0.0/16".parse().unwrap(), "203.0.113.200/32".parse().unwrap()];
    case.exit.set_rules(ExitRules { refused, allowed, ..ExitRules::default() });
    for to in [
        "10.0.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "198.18.0.1",
        "198.19.255.255",
        "224.0.0.1",
        "255.255.255.255",
        "0.1.2.3",
        "203.0.113.129",
        "203.0.113.200",
    ] {
        let to: Ipv4Addr = to.parse().unwrap();
        for bytes in [
            udp(ONE.1, to, (1, 443), b""),
            tcp(ONE.1, to, (1, 443), Flags::SYN),
            echo(ONE.1, to, 8, 1),
        ] {
            assert_eq!(case.out(ONE, bytes, 0), Err(Drop::ExitRefused), "{to}");
        }
    }
    assert!(case.out(ONE, udp(ONE.1, "10.9.1.1".parse().unwrap(), (1, 2), b""), 0).is_ok());
    assert!(case.out(ONE, udp(ONE.1, "9.255.255.255".parse().unwrap(), (1, 2), b""), 0).is_ok());
    let mail = tcp(ONE.1, SERVER, (1, 25), Flags::SYN);
    assert_eq!(case.out(ONE, mail, 0), Err(Drop::ExitRefused));
    let name = udp(ONE.1, NAME_ADDRESS, (1, 53), b"?");
    assert_eq!(case.out(ONE, name, 0), Err(Drop::NoNameServer));
    let forged = udp(TWO.1, SERVER, (1, 2), b"");
    assert_eq!(case.out(ONE, forged, 0), Err(Drop::NotCarried), "another circuit's source");
    assert_eq!(case.exit.flows(), 2);
}

#[test]
fn names_are_asked_of_the_exits_own_server_and_answered_as_from_the_address_that_was_asked() {
    let mut case = Case::new();
    let sent = case.out(ONE, udp(ONE.1, NAME_ADDRESS, (5353, 53), b"?"), 0).unwrap();
    let (from, port, to, to_port) = ports(&sent);
    let server = Ipv4Addr::new(10, 0, 0, 53);
    assert_eq!((from, to, to_port), (EXIT_ADDRESS, server, 53), "private, and still asked");
    let (id, bytes) = case.back(udp(server, EXIT_ADDRESS, (53, port), b"!"), 0).unwrap();
    assert_eq!((id, ports(&bytes)), (1, (NAME_ADDRESS, 53, ONE.1, 5353)));
    let other = udp(ONE.1, NAME_ADDRESS, (5353, 54), b"?");
    assert_eq!(case.out(ONE, other, 0), Err(Drop::ExitRefused));
    let beside = udp(ONE.1, server, (5353, 53), b"?");
    assert_eq!(case.out(ONE, beside, 0), Err(Drop::ExitRefused), "its server is no door");
}

#[test]
fn echoes_and_errors_find_their_way_back() {
    let mut case = Case::new();
    let sent = case.out(ONE, echo(ONE.1, SERVER, 8, 77), 0).unwrap();
    let (_, id, ..) = ports(&sent);
    let (of, bytes) = case.back(echo(SERVER, EXIT_ADDRESS, 0, id), 0).unwrap();
    assert_eq!((of, ports(&bytes)), (1, (SERVER, 77, ONE.1, 77)));
    assert_eq!(case.back(echo(SERVER, EXIT_ADDRESS, 8, id), 0), Err(Drop::NoFlow), "a request");

    let router = Ipv4Addr::new(203, 0, 113, 1);
    for (inside, sent) in [
        (5000, case.out(TWO, udp(TWO.1, SERVER, (5000, 33434), b"traced"), 0).unwrap()),
        (6000, case.out(TWO, tcp(TWO.1, SERVER, (6000, 80), Flags::SYN), 0).unwrap()),
        (7000, case.out(TWO, echo(TWO.1, SERVER, 8, 7000), 0).unwrap()),
    ] {
        let mut rest = vec![11, 0, 0, 0, 0, 0, 0, 0];
        rest.extend(&sent[..28]);
        let error = packet(protocol::ICMP, router, EXIT_ADDRESS, &rest);
        let (of, bytes) = case.back(error, 0).unwrap();
        assert!(packet::parse(&bytes).unwrap().checksums_hold());
        let quoted = packet::parse_quoted(&bytes[28..]).unwrap();
        assert_eq!((of, quoted.source()), (2, IpAddr::V4(TWO.1)));
        let at = if sent[9] == protocol::ICMP { 52 } else { 48 };
        assert_eq!(u16::from_be_bytes([bytes[at], bytes[at + 1]]), inside);
        let mut unknown = rest.clone();
        unknown[8 + 16] ^= 1;
        let error = packet(protocol::ICMP, router, EXIT_ADDRESS, &unknown);
        assert_eq!(case.back(error, 0), Err(Drop::NoFlow), "about what never left");
    }
}

#[test]
fn times_are_those_of_the_rfcs_and_a_connection_begins_with_its_first_segment() {
    let mut case = Case::new();
    let segment = |flags| tcp(ONE.1, SERVER, (5000, 80), flags);
    assert_eq!(case.out(ONE, segment(Flags::ACK), 0), Err(Drop::NoFlow));
    let port = ports(&case.out(ONE, segment(Flags::SYN), 0).unwrap()).1;
    let answer = |flags| tcp(SERVER, EXIT_ADDRESS, (80, port), flags);
    assert!(case.back(answer(Flags::SYN.with(Flags::ACK)), 1).is_ok());
    assert!(case.out(ONE, segment(Flags::ACK), 2).is_ok());
    assert!(case.back(answer(Flags::ACK), 2 + 2 * 3600).is_ok(), "two hours later");
    assert!(case.out(ONE, segment(Flags::FIN.with(Flags::ACK)), 7300).is_ok());
    assert!(case.back(answer(Flags::FIN.with(Flags::ACK)), 7301).is_ok());
    assert!(case.out(ONE, segment(Flags::ACK), 7302).is_ok());
    assert!(case.back(answer(Flags::ACK), 7302 + 239).is_ok());
    assert_eq!(case.back(answer(Flags::ACK), 7302 + 239 + 242), Err(Drop::NoFlow));

    let mut case = Case::new();
    let port = ports(&case.out(ONE, udp(ONE.1, SERVER, (1, 2), b""), 0).unwrap()).1;
    let id = ports(&case.out(ONE, echo(ONE.1, SERVER, 8, 3), 0).unwrap()).1;
    assert!(case.back(echo(SERVER, EXIT_ADDRESS, 0, id), 59).is_ok());
    assert_eq!(case.back(echo(SERVER, EXIT_ADDRESS, 0, id), 62), Err(Drop::NoFlow));
    assert!(case.back(udp(SERVER, EXIT_ADDRESS, (2, port), b""), 299).is_ok());
    // RFC 4787, REQ-6: what comes from outside does not keep a mapping alive.
    assert_eq!(case.back(udp(SERVER, EXIT_ADDRESS, (2, port), b""), 302), Err(Drop::NoFlow));
    assert_eq!((case.exit.outer.len(), case.exit.counts.len()), (0, 0));
}

#[test]
fn flows_are_bounded_for_each_circuit() {
    let mut case = Case::new();
    for port in 0..FLOWS_PER_CIRCUIT_MAX as u16 {
        assert!(case.out(ONE, udp(ONE.1, SERVER, (port, 9), b""), 0).is_ok());
    }
    let more = udp(ONE.1, SERVER, (60_000, 9), b"");
    assert_eq!(case.out(ONE, more.clone(), 0), Err(Drop::FlowsFull));
    assert!(case.out(TWO, udp(TWO.1, SERVER, (60_000, 9), b""), 0).is_ok(), "others have theirs");
    assert!(case.out(ONE, more, 302).is_ok(), "when the first have expired");
}

#[test]
fn fragments_follow_their_first_and_have_an_identification_of_the_exits() {
    let mut case = Case::new();
    let whole = udp(ONE.1, SERVER, (5000, 9), &[5; 240]);
    let split = |whole: &[u8]| {
        let mut first = whole[..20 + 120].to_vec();
        let mut second = [&whole[..20], &whole[20 + 120..]].concat();
        first[6..8].copy_from_slice(&0x2000u16.to_be_bytes());
        second[6..8].copy_from_slice(&15u16.to_be_bytes());
        for part in [&mut first, &mut second] {
            let len = part.len() as u16;
            part[2..4].copy_from_slice(&len.to_be_bytes());
            part[10..12].fill(0);
            let sum = wire::checksum::Sum::of(&part[..20]).checksum();
            part[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        [first, second]
    };
    let join = |[first, second]: [&[u8]; 2]| {
        assert_eq!(
            (first[4..6].to_vec(), &first[12..20]),
            (second[4..6].to_vec(), &second[12..20])
        );
        let mut whole = [first, &second[20..]].concat();
        whole[6..8].fill(0);
        let len = whole.len() as u16;
        whole[2..4].copy_from_slice(&len.to_be_bytes());
        whole[10..12].fill(0);
        let sum = wire::checksum::Sum::of(&whole[..20]).checksum();
        whole[10..12].copy_from_slice(&sum.to_be_bytes());
        whole
    };
    let [first, second] = split(&whole);
    assert_eq!(case.out(ONE, second.clone(), 0), Err(Drop::NoFlow), "before its first");
    let first = case.out(ONE, first, 0).unwrap();
    let second = case.out(ONE, second, 0).unwrap();
    assert_ne!(first[4..6], whole[4..6], "the client's own identification tells of it");
    let (_, port, ..) = ports(&join([&first, &second]));

    let [first, second] = split(&udp(SERVER, EXIT_ADDRESS, (9, port), &[6; 240]));
    let (_, first) = case.back(first, 1).unwrap();
    let (id, second) = case.back(second, 1).unwrap();
    assert_eq!((id, ports(&join([&first, &second]))), (1, (SERVER, 9, ONE.1, 5000)));
}
