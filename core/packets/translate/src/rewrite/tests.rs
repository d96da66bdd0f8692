//! Against a model that substitutes addresses and sums everything again.

use core::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use wire::checksum::{self, Sum};
use wire::ip::protocol;
use wire::packet;
use wire::{superpacket, virtio};

use crate::{Pair, Refusal, Table};

fn pairs(texts: &[&str]) -> Vec<Pair> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn table() -> Table {
    let source = pairs(&["10.0.0.0/24=172.16.5.0/24", "fd00:a::/64=fd00:b::/64"]);
    let destination = pairs(&["10.99.1.0/24=192.168.1.0/24", "fd00:c::/64=fd00:d::/64"]);
    Table::new(source, destination).unwrap()
}

/// An IP packet, built the slow way.
#[derive(Clone, Debug)]
struct Sample {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    /// Bytes of IPv4 options or of IPv6 destination options, in words of 8.
    options: usize,
    /// Offset in bytes, and whether more follow; `None` for a whole packet.
    fragment: Option<(u16, bool)>,
    /// Behind the IP headers, with zeros in place of a checksum.
    upper: Vec<u8>,
}

/// Where a checksum is, if there is room for one.
fn place(protocol: u8) -> Option<usize> {
    match protocol {
        protocol::TCP => Some(16),
        protocol::UDP | protocol::UDP_LITE | protocol::DCCP => Some(6),
        protocol::ICMP | protocol::ICMPV6 => Some(2),
        _ => None,
    }
}

impl Sample {
    fn new(source: &str, destination: &str, protocol: u8, upper: &[u8]) -> Self {
        Self {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol,
            options: 0,
            fragment: None,
            upper: upper.to_vec(),
        }
    }

    fn echo(source: &str, destination: &str) -> Self {
        let v4 = source.contains('.');
        let (protocol, kind) = if v4 { (protocol::ICMP, 8) } else { (protocol::ICMPV6, 128) };
        Self::new(source, destination, protocol, &[kind, 0, 0, 0, 0, 7, 0, 1, 1, 2, 3])
    }

    /// The checksum of the whole datagram, of which `upper` is the beginning.
    fn upper(&self) -> Vec<u8> {
        let mut upper = self.upper.clone();
        if self.fragment.is_some_and(|(offset, _)| offset > 0) {
            return upper;
        }
        let Some(at) = place(self.protocol).filter(|at| at + 2 <= upper.len()) else {
            return upper;
        };
        // A first fragment's sum counts what follows, which is no matter of ours.
        let rest = if self.fragment.is_some() { 0x1234 } else { 0 };
        let sum = Sum::of(&upper).plus_word(rest);
        let len = upper.len() as u32;
        let pseudo = checksum::pseudo(self.source, self.destination, self.protocol, len);
        let sum = if self.protocol == protocol::ICMP { sum } else { sum.plus(pseudo) };
        let sum = match self.protocol {
            protocol::UDP => sum.udp_checksum(),
            _ => sum.checksum(),
        };
        upper[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        upper
    }

    fn build(&self) -> Vec<u8> {
        let upper = self.upper();
        let mut out = Vec::new();
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header_len = 20 + self.options * 8;
                out.extend([0x40 | (header_len / 4) as u8, 0]);
                out.extend(((header_len + upper.len()) as u16).to_be_bytes());
                let (offset, more) = self.fragment.unwrap_or((0, false));
                out.extend([0, 9]);
                out.extend(((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
                out.extend([64, self.protocol, 0, 0]);
                out.extend(source.octets());
                out.extend(destination.octets());
                out.extend(vec![1; self.options * 8]);
                let sum = Sum::of(&out).checksum();
                out[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut chain = Vec::new();
                let mut next = self.protocol;
                if let Some((offset, more)) = self.fragment {
                    chain =
                        [&[next, 0][..], &(offset | u16::from(more)).to_be_bytes(), &[0, 0, 0, 9]]
                            .concat();
                    next = protocol::FRAGMENT;
                }
                for _ in 0..self.options {
                    chain = [&[next, 0, 1, 4, 0, 0, 0, 0][..], &chain].concat();
                    next = protocol::DESTINATION_OPTIONS;
                }
                out.extend([0x60, 0, 0, 0]);
                out.extend(((chain.len() + upper.len()) as u16).to_be_bytes());
                out.extend([next, 64]);
                out.extend(source.octets());
                out.extend(destination.octets());
                out.extend(chain);
            }
            _ => panic!("of two families"),
        }
        out.extend(upper);
        out
    }

    /// What a translator must make of it.
    fn moved(&self, source: &str, destination: &str) -> Self {
        Self {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            ..self.clone()
        }
    }
}

/// Four addresses of a packet from the peer: before and after.
fn ends(v4: bool) -> [&'static str; 4] {
    match v4 {
        true => ["10.0.0.9", "10.99.1.7", "172.16.5.9", "192.168.1.7"],
        false => ["fd00:a::9", "fd00:c::7", "fd00:b::9", "fd00:d::7"],
    }
}

#[test]
fn source_004_15_what_is_known_is_mended_and_what_is_not_is_refused() {
    for v4 in [true, false] {
        let [source, destination, ..] = ends(v4);
        for number in 0..=255u8 {
            let is_extension = matches!(number, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140);
            if !v4 && is_extension {
                continue;
            }
            let sample = Sample::new(source, destination, number, &[9; 40]);
            let mut bytes = sample.build();
            let before = bytes.clone();
            let known = match number {
                protocol::ICMP => v4,
                protocol::ICMPV6 | protocol::NO_NEXT_HEADER => !v4,
                4 | 6 | 17 | 33 | 41 | 47 | 50 | 132 | 136 => true,
                _ => false,
            };
            if number == protocol::ICMPV6 && !v4 {
                bytes[40] = 128;
            }
            match table().inward(&mut bytes) {
                Ok(true) => assert!(known, "{number}"),
                Ok(false) => panic!("{number} was not moved"),
                Err(refusal) => {
                    assert!(!known, "{number}: {refusal:?}");
                    let bound = v4 && matches!(number, 51 | 135 | 139 | 140);
                    let why = if bound { Refusal::Bound } else { Refusal::Protocol };
                    assert_eq!(refusal, why, "{number}");
                    assert_eq!(bytes, before, "nothing was changed");
                }
            }
        }
    }
}

#[test]
fn source_004_15_an_error_names_what_its_reader_sent_and_all_its_sums_hold() {
    for v4 in [true, false] {
        for is_quote_whole in [true, false] {
            for kind in if v4 { vec![3, 11, 12] } else { vec![1, 2, 3, 4, 100] } {
                let [source, destination, new_source, new_destination] = ends(v4);
                let router = if v4 { "198.51.100.1" } else { "2001:db8::1" };
                for (from, now_from) in [(router, router), (source, new_source)] {
                    for upper in [protocol::TCP, protocol::UDP, protocol::UDP_LITE] {
                        // What we sent to the peer: from the alias, to the peer's own address.
                        let sent = Sample::new(destination, source, upper, &[5; 48]);
                        let shown = sent.moved(new_destination, new_source);
                        let error = |of: &Sample, from: &str, to: &str| {
                            let quote = of.build();
                            let len = quote.len() - if is_quote_whole { 0 } else { 40 };
                            let body = [&[kind, 0, 0, 0, 0, 0, 5, 0][..], &quote[..len]].concat();
                            let number = if v4 { protocol::ICMP } else { protocol::ICMPV6 };
                            Sample::new(from, to, number, &body).build()
                        };
                        let mut bytes = error(&sent, from, destination);
                        let expected = error(&shown, now_from, new_destination);
                        assert_eq!(table().inward(&mut bytes), Ok(true));
                        assert_eq!(bytes, expected, "{v4} {kind} {upper} from {from}");
                        assert!(packet::parse(&bytes).unwrap().checksums_hold());
                        // And what we tell the peer of what it sent.
                        let came = sent.moved(new_source, new_destination);
                        let shown = sent.moved(source, destination);
                        let own = if from == router { router } else { new_destination };
                        let now_own = if from == router { router } else { destination };
                        let mut bytes = error(&came, own, new_source);
                        assert_eq!(table().outward(&mut bytes), Ok(true));
                        assert_eq!(bytes, error(&shown, now_own, source));
                    }
                }
            }
        }
    }
}

#[test]
fn addresses_that_stand_elsewhere_in_a_packet_are_told_and_not_left_behind() {
    let [source, destination, ..] = ends(true);
    let refused = |bytes: Vec<u8>| {
        let mut now = bytes.clone();
        let refusal = table().inward(&mut now).unwrap_err();
        assert_eq!(now, bytes);
        refusal
    };
    // A source route, in place of the options.
    let mut routed = Sample { options: 1, ..Sample::echo(source, destination) }.build();
    routed[20..28].copy_from_slice(&[131, 7, 4, 9, 9, 9, 9, 0]);
    assert_eq!(refused(routed), Refusal::Routed);
    let redirect = Sample::new(source, destination, protocol::ICMP, &[5; 40]);
    assert_eq!(refused(redirect.build()), Refusal::Message);
    // An error whose quote is none, or is cut off within its addresses.
    let quote = Sample::echo(destination, source).build();
    for body in [&quote[..19], &[0x55; 30]] {
        let body = [&[3, 1, 0, 0, 0, 0, 0, 0], body].concat();
        let error = Sample::new(source, destination, protocol::ICMP, &body);
        assert_eq!(refused(error.build()), Refusal::Quote);
    }
    assert_eq!(refused(vec![0x45; 12]), Refusal::Malformed);
    // A first fragment without its checksum.
    let mut short = Sample::new(source, destination, protocol::TCP, &[1; 16]);
    short.fragment = Some((0, true));
    assert_eq!(refused(short.build()), Refusal::Cut);

    let [source, destination, ..] = ends(false);
    let discovery = Sample::new(source, destination, protocol::ICMPV6, &[135; 24]);
    assert_eq!(refused(discovery.build()), Refusal::Message);
    let mut signed = Sample { options: 1, ..Sample::echo(source, destination) }.build();
    signed[6] = protocol::AUTHENTICATION;
    assert_eq!(refused(signed), Refusal::Bound);
    let mut routed = Sample { options: 1, ..Sample::echo(source, destination) }.build();
    routed[6] = protocol::ROUTING;
    assert_eq!(refused(routed), Refusal::Routed);
}

#[test]
fn what_a_table_does_not_name_is_left_alone_whatever_it_is() {
    for number in [6, 17, 51, 99, 255] {
        let mut bytes = Sample::new("10.1.0.9", "10.98.1.7", number, &[7; 30]).build();
        let before = bytes.clone();
        assert_eq!(table().inward(&mut bytes), Ok(false));
        assert_eq!(table().outward(&mut bytes), Ok(false));
        assert_eq!(bytes, before);
    }
}

#[test]
fn a_udp_checksum_of_zero_stays_and_one_that_becomes_zero_is_sent_as_all_ones() {
    let [source, destination, ..] = ends(true);
    let sample =
        Sample::new(source, destination, protocol::UDP, &[0, 1, 0, 2, 0, 12, 0, 0, 0, 0, 0, 0]);
    let mut bytes = sample.build();
    bytes[26..28].fill(0);
    assert_eq!(table().inward(&mut bytes), Ok(true));
    assert_eq!(bytes[26..28], [0, 0]);
    // Every payload word once: among them is the one whose sum comes to zero.
    let mut all_ones = 0;
    for word in 0..=u16::MAX {
        let mut sample = sample.clone();
        sample.upper[8..10].copy_from_slice(&word.to_be_bytes());
        let mut bytes = sample.build();
        assert_eq!(table().inward(&mut bytes), Ok(true));
        assert_eq!(bytes, sample.moved("172.16.5.9", "192.168.1.7").build());
        all_ones += u32::from(bytes[26..28] == [0xff, 0xff]);
    }
    assert_eq!(all_ones, 1);
}

fn any_sample() -> impl Strategy<Value = (bool, Sample)> {
    let known = prop::sample::select(vec![
        protocol::TCP,
        protocol::UDP,
        protocol::UDP_LITE,
        protocol::DCCP,
        protocol::ICMP,
        protocol::ESP,
        protocol::SCTP,
    ]);
    let fragment = prop::option::of((0u16..200, any::<bool>()));
    let shape = (any::<bool>(), known, 0usize..3, fragment);
    (shape, vec(any::<u8>(), 80..600)).prop_map(|((v4, number, options, fragment), mut upper)| {
        let [source, destination, ..] = ends(v4);
        let number = match (number, v4) {
            (protocol::ICMP, false) => protocol::ICMPV6,
            (number, _) => number,
        };
        if matches!(number, protocol::ICMP | protocol::ICMPV6) {
            upper[0] = if v4 { 8 } else { 129 };
        }
        let at = place(number);
        if let Some(at) = at {
            upper[at..at + 2].fill(0);
        }
        if number == protocol::UDP {
            let len = upper.len() as u16;
            upper[4..6].copy_from_slice(&len.to_be_bytes());
        }
        let fragment = fragment.map(|(eights, more)| (eights * 8, more || eights == 0));
        let sample =
            Sample { options, fragment, ..Sample::new(source, destination, number, &upper) };
        (v4, sample)
    })
}

proptest! {
    #[test]
    fn source_004_15_a_mended_packet_is_the_one_that_is_summed_anew(
        (v4, sample) in any_sample(),
    ) {
        let [.., source, destination] = ends(v4);
        let mut bytes = sample.build();
        let before = bytes.clone();
        prop_assert_eq!(table().inward(&mut bytes), Ok(true));
        prop_assert_eq!(&bytes, &sample.moved(source, destination).build());
        // The answer to where it came from would go back the same way.
        prop_assert_eq!(table().outward(&mut bytes.clone()), Ok(false));
        let mut back = sample.moved(destination, source).build();
        let [source, destination, ..] = ends(v4);
        prop_assert_eq!(table().outward(&mut back), Ok(true));
        prop_assert_eq!(&back, &sample.moved(destination, source).build());
        prop_assert_eq!(before.len(), bytes.len());
    }

    #[test]
    fn source_004_15_a_superpacket_is_cut_as_if_its_sender_had_had_the_address(
        v4: bool, tcp: bool, payload in vec(any::<u8>(), 1..9000), size in 500u16..1400,
    ) {
        let [source, destination, inner_source, inner_destination] = ends(v4);
        let (number, header_len) = if tcp { (protocol::TCP, 20) } else { (protocol::UDP, 8) };
        let mut upper = vec![0u8; header_len];
        upper[..4].copy_from_slice(&[0, 80, 1, 2]);
        if tcp {
            upper[12] = 0x50;
            upper[13] = 0x18;
        } else {
            let len = (header_len + payload.len()) as u16;
            upper[4..6].copy_from_slice(&len.to_be_bytes());
        }
        upper.extend(&payload);
        let at = place(number).unwrap();
        let built = |source: &str, destination: &str| {
            let sample = Sample::new(source, destination, number, &upper);
            let mut bytes = sample.build();
            let ip_len = bytes.len() - upper.len();
            let len = upper.len() as u32;
            let partial = checksum::pseudo(sample.source, sample.destination, number, len).fold();
            bytes[ip_len + at..ip_len + at + 2].copy_from_slice(&partial.to_be_bytes());
            let header = virtio::Header {
                flags: virtio::FLAG_NEEDS_CSUM,
                gso_type: match (tcp, v4) {
                    (true, true) => virtio::GSO_TCPV4,
                    (true, false) => virtio::GSO_TCPV6,
                    (false, _) => virtio::GSO_UDP_L4,
                },
                hdr_len: (ip_len + header_len) as u16,
                gso_size: size,
                csum_start: ip_len as u16,
                csum_offset: at as u16,
            };
            (header, bytes)
        };
        let (header, mut bytes) = built(inner_destination, inner_source);
        superpacket::parse(header, &mut bytes).unwrap();
        prop_assert_eq!(table().outward_super(header, &mut bytes), Ok(header));
        let (_, mut expected) = built(destination, source);
        prop_assert_eq!(&bytes, &expected, "the partial sum, too");
        let cut = superpacket::parse(header, &mut bytes).unwrap();
        let same = superpacket::parse(header, &mut expected).unwrap();
        prop_assert_eq!(cut.segments(), same.segments());
        for index in 0..cut.segments() {
            let mut one = vec![0; cut.segment_len(index)];
            let mut other = one.clone();
            cut.write_segment(index, &mut one);
            same.write_segment(index, &mut other);
            prop_assert!(packet::parse(&one).unwrap().checksums_hold());
            prop_assert_eq!(one, other);
        }
    }

    #[test]
    fn any_bytes_are_rewritten_or_refused_and_a_refused_packet_is_untouched(
        mut bytes in vec(any::<u8>(), 0..200), v4: bool,
    ) {
        if let Some(first) = bytes.first_mut() {
            *first = if v4 { 0x45 } else { 0x60 };
        }
        let [source, destination, ..] = ends(v4);
        let at = if v4 { 12 } else { 8 };
        let both = Sample::echo(source, destination).build();
        let width = if v4 { 8 } else { 32 };
        if bytes.len() >= at + width {
            bytes[at..at + width].copy_from_slice(&both[at..at + width]);
        }
        let before = bytes.clone();
        if table().inward(&mut bytes).is_err() {
            prop_assert_eq!(bytes, before);
        }
    }
}
