//! Header tables: extension chains (threat PF-05), fragments (PF-04), lengths, ECN, quotes.

use super::*;
use crate::tests::sample::{Sample, any_sample};
use proptest::prelude::*;

/// An IPv6 packet: fixed header, then `chain` of (next header, bytes), then TCP.
fn v6(first: u8, chain: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend(((chain.len() + payload.len()) as u16).to_be_bytes());
    bytes.extend([first, 64]);
    bytes.extend([0xfd; 32]);
    bytes.extend_from_slice(chain);
    bytes.extend_from_slice(payload);
    bytes
}

/// Protocol and header length.
type Walked = Result<(u8, usize), Malformed>;

fn tcp_segment() -> Vec<u8> {
    Sample::tcp(true, vec![0; 100]).build()[20..].to_vec()
}

#[test]
fn views_of_tcp_and_udp_read_what_was_built() {
    for v4 in [true, false] {
        let sample = Sample::tcp(v4, b"payload".to_vec());
        let padded = [&sample.build()[..], &[0; 9]].concat();
        let packet = parse(&padded).unwrap();
        assert_eq!((packet.bytes().len(), packet.protocol()), (sample.len(), 6));
        assert_eq!((packet.hop_limit(), packet.fragment()), (64, Fragment::Whole));
        let Transport::Tcp(tcp) = packet.transport().unwrap() else {
            panic!("it is TCP");
        };
        assert_eq!((tcp.source_port(), tcp.destination_port()), (40_000, 5201));
        assert_eq!((tcp.sequence(), tcp.acknowledgement()), (1000, 2000));
        assert_eq!((tcp.window(), tcp.urgent(), tcp.flags().0), (500, 0, 0x10));
        assert_eq!((tcp.options(), tcp.payload()), (&sample.options[..], &b"payload"[..]));
        assert!(packet.checksums_hold());

        let bytes = Sample::udp(v4, b"datagram".to_vec()).build();
        let Transport::Udp(udp) = parse(&bytes).unwrap().transport().unwrap() else {
            panic!("it is UDP");
        };
        assert_eq!((udp.source_port(), udp.destination_port(), udp.len()), (40_000, 5201, 16));
        assert_eq!(udp.payload(), b"datagram");
    }
}

#[test]
fn addresses_need_no_more_than_the_fixed_header() {
    let v4 = Sample::tcp(true, vec![]).build();
    assert_eq!(source(&v4[..20]), Ok("10.0.0.1".parse().unwrap()));
    assert_eq!(destination(&v4[..20]), Ok("10.0.0.2".parse().unwrap()));
    assert_eq!(source(&v4[..19]), Err(Malformed::Truncated));
    let v6 = Sample::tcp(false, vec![]).build();
    assert_eq!(source(&v6[..40]), Ok("fd00:9::1".parse().unwrap()));
    assert_eq!(destination(&v6[..40]), Ok("fd00:9::2".parse().unwrap()));
    assert_eq!(destination(&v6[..39]), Err(Malformed::Truncated));
    assert_eq!(source(&[0x55; 60]), Err(Malformed::Version));
    assert_eq!(source(&[]), Err(Malformed::Truncated));
}

#[test]
fn lengths_that_do_not_fit_have_their_reason() {
    let good = Sample::udp(true, vec![0; 30]).build();
    let with = |at: usize, value: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        parse(&bytes).and_then(|packet| packet.transport()).err()
    };
    assert_eq!(with(0, &[0x45]), None);
    assert_eq!(with(0, &[0x44]), Some(Malformed::HeaderLength));
    assert_eq!(with(2, &[0, 19]), Some(Malformed::TotalLength));
    assert_eq!(with(2, &[0, 59]), Some(Malformed::TotalLength));
    assert_eq!(with(2, &[0, 27]), Some(Malformed::TransportTruncated));
    assert_eq!(with(24, &[0, 7]), Some(Malformed::UdpLength));
    assert_eq!(with(24, &[0, 39]), Some(Malformed::UdpLength));
    assert_eq!(with(24, &[0, 20]), None);
    let mut short = good[..30].to_vec();
    short[..4].copy_from_slice(&[0x4f, 0, 0, 60]);
    assert_eq!(total_len(&short), Err(Malformed::HeaderLength));
    assert_eq!(
        parse(&v6(6, &[], &[0; 19])).unwrap().transport().err(),
        Some(Malformed::TransportTruncated)
    );
}

#[test]
fn pf_05_extension_chains_are_walked_to_their_end_or_refused() {
    let options = |next| [next, 0, 1, 4, 0, 0, 0, 0];
    let long = |next| [&[next, 1][..], &[0; 14]].concat();
    let authentication = |next| [&[next, 4][..], &[0; 22]].concat();
    let chain = |parts: &[Vec<u8>]| parts.concat();
    let eight = |last| [options(60).repeat(7), options(last).to_vec()].concat();
    let nine = options(60).repeat(8).into_iter().chain(options(6)).collect::<Vec<u8>>();
    let table: [(&str, u8, Vec<u8>, Walked); 16] = [
        ("none", 6, vec![], Ok((6, 40))),
        ("hop by hop", 0, options(6).into(), Ok((6, 48))),
        ("two octet groups", 60, long(17), Ok((17, 56))),
        ("authentication", 51, authentication(6), Ok((6, 64))),
        ("routing", 43, long(6), Ok((6, 56))),
        ("mobility", 135, options(59).into(), Ok((59, 48))),
        ("eight", 60, eight(6), Ok((6, 104))),
        ("nine", 60, nine, Err(Malformed::ExtensionCount)),
        (
            "hop by hop second",
            60,
            chain(&[options(0).into(), options(6).into()]),
            Err(Malformed::ExtensionOrder),
        ),
        ("past the end", 60, vec![6, 255, 0, 0, 0, 0, 0, 0], Err(Malformed::ExtensionLength)),
        (
            "authentication past the end",
            51,
            vec![6, 255, 0, 0, 0, 0, 0, 0],
            Err(Malformed::ExtensionLength),
        ),
        ("unknown is its own protocol", 253, options(6).into(), Ok((253, 40))),
        ("unknown behind one", 60, options(200).into(), Ok((200, 48))),
        ("encrypted", 50, options(6).into(), Ok((50, 40))),
        ("no next header", 59, tcp_segment(), Ok((59, 40))),
        ("atomic fragment", 44, options(6).map(|byte| byte & 6).into(), Ok((6, 48))),
    ];
    for (what, first, chain, expected) in table {
        let bytes = v6(first, &chain, &tcp_segment());
        let parsed = parse(&bytes).map(|packet| (packet.protocol(), packet.header_len()));
        assert_eq!(parsed, expected, "{what}");
    }
    // Cut anywhere inside its chain: a reason, never a guess.
    let chain = eight(6);
    for len in 1..chain.len() {
        let outcome = parse(&v6(60, &chain[..len], &[])).map(|packet| packet.protocol());
        assert_eq!(outcome, Err(Malformed::ExtensionLength), "{len} bytes of the chain");
    }
    let bytes = v6(60, &options(200), &tcp_segment());
    assert!(matches!(parse(&bytes).unwrap().transport(), Ok(Transport::Other)));
}

#[test]
fn pf_04_fragments_that_hide_or_overlap_the_transport_header_are_refused() {
    type Expected = (Fragment, Result<bool, Malformed>);
    // Offset in bytes, more to come, payload bytes; whether TCP is seen.
    let table: [(usize, bool, usize, Expected); 9] = [
        (0, false, 120, (Fragment::Whole, Ok(true))),
        (0, true, 120, (Fragment::First, Ok(true))),
        (0, true, 80, (Fragment::First, Ok(true))),
        (0, true, 72, (Fragment::First, Err(Malformed::FragmentShort))),
        (0, true, 8, (Fragment::First, Err(Malformed::FragmentShort))),
        (8, true, 120, (Fragment::Later, Err(Malformed::FragmentOverlap))),
        (72, false, 120, (Fragment::Later, Err(Malformed::FragmentOverlap))),
        (80, true, 120, (Fragment::Later, Ok(false))),
        (65_528, false, 4, (Fragment::Later, Ok(false))),
    ];
    let segment = tcp_segment();
    for (offset, more, len, (kind, transport)) in table {
        let word = |shift: usize, bit: u16| {
            (((offset / 8) << shift) as u16 | if more { bit } else { 0 }).to_be_bytes()
        };
        let mut v4 = Sample::tcp(true, vec![]).build()[..20].to_vec();
        v4[2..4].copy_from_slice(&(20 + len as u16).to_be_bytes());
        v4[6..8].copy_from_slice(&word(0, 0x2000));
        v4.extend_from_slice(&segment[..len]);
        let mut header = vec![6, 0, 0, 0, 0, 0, 0, 1];
        header[2..4].copy_from_slice(&word(3, 1));
        for bytes in [v4, v6(44, &header, &segment[..len])] {
            let packet = parse(&bytes).unwrap();
            assert_eq!((packet.fragment(), packet.protocol()), (kind, 6));
            assert_eq!(packet.fragment_offset(), offset);
            let seen = packet.transport().map(|view| matches!(view, Transport::Tcp(_)));
            assert_eq!(seen, transport, "offset {offset} more {more} length {len}");
        }
    }
}

#[test]
fn the_next_header_of_a_later_fragment_is_not_walked() {
    // Offset 160: what follows are bytes of the middle of a datagram.
    let header = [60, 0, 0, 160, 0, 0, 0, 1];
    let packet_bytes = v6(44, &header, &[0xff; 40]);
    let packet = parse(&packet_bytes).unwrap();
    assert_eq!((packet.protocol(), packet.header_len()), (60, 48));
    assert!(matches!(packet.transport(), Ok(Transport::Other)));
}

#[test]
fn a_first_fragment_of_udp_may_announce_more_than_it_carries() {
    let mut bytes = Sample::udp(true, vec![0; 100]).build();
    bytes[6] = 0x20;
    bytes[24..26].copy_from_slice(&[4, 0]);
    let packet = parse(&bytes).unwrap();
    let Transport::Udp(udp) = packet.transport().unwrap() else {
        panic!("it is UDP");
    };
    assert_eq!((udp.len(), udp.payload().len()), (1024, 100));
}

#[test]
fn an_icmp_error_yields_the_packet_it_quotes_even_when_cut() {
    let inner = Sample::udp(true, vec![0; 500]).build();
    let body = [&[3, 4, 0, 0, 0, 0, 5, 0][..], &inner[..28]].concat();
    let mut bytes = Sample::udp(true, vec![0; body.len() - 8]).build();
    bytes[9] = 1;
    bytes[20..].copy_from_slice(&body);
    let packet = parse(&bytes).unwrap();
    let Transport::Icmp(icmp) = packet.transport().unwrap() else {
        panic!("it is ICMP");
    };
    assert_eq!((icmp.next_hop_mtu(), icmp.echo_identifier()), (Some(1280), None));
    let quoted = icmp.quoted().unwrap().unwrap();
    let Transport::Udp(udp) = quoted.transport().unwrap() else {
        panic!("it quotes UDP");
    };
    assert_eq!(udp.destination_port(), 5201);

    let echo = v6(58, &[], &[128, 0, 0, 0, 0x12, 0x34, 0, 1]);
    let Transport::Icmp6(echo) = parse(&echo).unwrap().transport().unwrap() else {
        panic!("it is ICMPv6");
    };
    assert_eq!(echo.echo_identifier(), Some(0x1234));
    assert!(echo.quoted().is_none());
    let too_big = v6(58, &[], &[2, 0, 0, 0, 0, 0, 5, 0]);
    let Transport::Icmp6(too_big) = parse(&too_big).unwrap().transport().unwrap() else {
        panic!("it is ICMPv6");
    };
    assert_eq!(too_big.next_hop_mtu(), Some(1280));
    assert!(too_big.quoted().unwrap().is_err());
    // The other family's ICMP is its own protocol.
    let crossed = v6(1, &[], &[8, 0, 0, 0, 0, 0, 0, 0]);
    assert!(matches!(parse(&crossed).unwrap().transport(), Ok(Transport::Other)));
}

proptest! {
    #[test]
    fn setting_ecn_changes_nothing_else((sample, _) in any_sample(), bits in 0u8..4) {
        let mut bytes = sample.build();
        set_ecn(&mut bytes, Ecn::from_bits(bits)).unwrap();
        prop_assert_eq!(parse(&bytes).unwrap().ecn(), Ecn::from_bits(bits));
        prop_assert_eq!(ecn(&bytes), Ok(Ecn::from_bits(bits)));
        let class = sample.traffic_class & 0xfc | bits;
        prop_assert_eq!(bytes, Sample { traffic_class: class, ..sample }.build());
    }

    #[test]
    fn built_packets_parse_and_one_flipped_bit_breaks_a_checksum(
        (sample, _) in any_sample(), bit: u32,
    ) {
        let mut bytes = sample.build();
        let packet = parse(&bytes).unwrap();
        prop_assert!(packet.checksums_hold());
        prop_assert_eq!(packet.header_len(), sample.ip_len());
        let upper = sample.ip_len() * 8;
        let at = upper + bit as usize % (bytes.len() * 8 - upper);
        bytes[at / 8] ^= 1 << (at % 8);
        // A UDP checksum field flipped to zero means "none" over IPv4.
        let none = !sample.tcp && sample.v4 && bytes[26..28] == [0, 0];
        prop_assert_eq!(parse(&bytes).unwrap().checksums_hold(), none);
    }

    #[test]
    fn random_bytes_are_a_view_or_a_reason(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200), version in 4u8..7, next: u8,
    ) {
        if bytes.len() > 6 {
            bytes[0] = version << 4 | bytes[0] & 15;
            bytes[2] = 0;
            bytes[4] = 0;
            bytes[5] &= 0x7f;
            if version == 6 {
                bytes[6] = next;
            }
        }
        for parsed in [parse(&bytes), parse_quoted(&bytes)].into_iter().flatten() {
            let _ = (parsed.transport(), parsed.checksums_hold(), parsed.ecn());
            prop_assert!(parsed.header_len() <= parsed.bytes().len());
            if let Ok(Transport::Icmp(icmp)) = parsed.transport() {
                let _ = icmp.quoted();
            }
        }
    }
}

#[test]
fn fragments_of_one_datagram_share_its_identification() {
    let mut bytes = v6(44, &[6, 0, 0, 1, 0xde, 0xad, 0xbe, 0xef], &[0; 120]);
    assert_eq!(parse(&bytes).unwrap().fragment_id(), 0xdead_beef);
    bytes[42..44].copy_from_slice(&[1, 1]);
    assert_eq!(parse(&bytes).unwrap().fragment_id(), 0xdead_beef);
    let mut bytes = Sample::udp(true, vec![0; 120]).build();
    bytes[4..8].copy_from_slice(&[0x12, 0x34, 0x20, 0]);
    assert_eq!(parse(&bytes).unwrap().fragment_id(), 0x1234);
}

#[test]
fn a_source_route_is_seen_and_options_that_lie_count_as_one() {
    for (options, asks) in [
        (&[1, 1, 1, 0][..], false),
        (&[0, 131, 4, 0], false),
        (&[148, 4, 0, 0], false),
        (&[7, 4, 4, 0, 1, 1, 1, 1], false),
        (&[131, 3, 4, 0], true),
        (&[1, 137, 3, 4], true),
        (&[148, 4, 0, 0, 131, 3, 4, 0], true),
        (&[7, 1, 0, 0], true),
        (&[7, 9, 0, 0], true),
        (&[1, 1, 1, 7], true),
    ] {
        let mut bytes = Sample::udp(true, vec![0; 9]).build();
        bytes.splice(20..20, options.iter().copied());
        bytes[0] = 0x45 + (options.len() / 4) as u8;
        let len = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        assert_eq!(parse(&bytes).unwrap().asks_source_route(), asks, "{options:?}");
    }
    assert!(!parse(&v6(6, &[], &tcp_segment())).unwrap().asks_source_route());
    let routed = v6(43, &[6, 0, 4, 0, 0, 0, 0, 0], &tcp_segment());
    assert!(parse(&routed).unwrap().asks_source_route());
}
