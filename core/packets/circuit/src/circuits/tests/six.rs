//! Packets of IPv6 through circuits.

use std::net::{IpAddr, Ipv6Addr};

use super::*;
use crate::rewrite::six;

const SERVER_SIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);

pub(super) fn udp6(from: (Ipv6Addr, u16), to: (Ipv6Addr, u16), payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len() as u16;
    let mut bytes = vec![0x6a, 0xbc, 0xde, 0xf1];
    bytes.extend(len.to_be_bytes());
    bytes.extend([17, 61]);
    bytes.extend(from.0.octets());
    bytes.extend(to.0.octets());
    bytes.extend(from.1.to_be_bytes());
    bytes.extend(to.1.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(payload);
    let pseudo = wire::checksum::pseudo_v6(from.0, to.0, 17, u32::from(len));
    let sum = pseudo.plus(wire::checksum::Sum::of(&bytes[40..])).udp_checksum();
    bytes[46..48].copy_from_slice(&sum.to_be_bytes());
    bytes
}

pub(super) fn ends6(packet: &[u8]) -> ((IpAddr, u16), (IpAddr, u16)) {
    assert!(wire::packet::parse(packet).expect("a packet").checksums_hold());
    let seen = rewrite::look(packet).expect("what circuits carry");
    let (from, to) = (rewrite::source_port(&seen), rewrite::destination_port(&seen));
    ((seen.source, from), (seen.destination, to))
}

#[test]
fn packets_of_ipv6_go_there_and_back_and_tell_nothing_of_the_machine() {
    let mut net = Net::new(4);
    let id = net.opened(&[1, 2, 3]);
    assert!(net.machines[0].status(id).expect("known").leads_six);
    let local = six(net.local(id));
    let claim = net.machines[0].claims(local.into(), SERVER_SIX.into());
    assert_eq!(claim, Some(Claim::Own(id)));
    for len in [0, 40, 800, room(3) - 48] {
        let payload = vec![7; len];
        net.got.clear();
        net.send(id, &udp6((local, 4000), (SERVER_SIX, 443), &payload)).expect("open");
        net.run();
        let [(3, out)] = &net.got[..] else { panic!("{} packets arrived", net.got.len()) };
        let (from, to) = ends6(out);
        assert_eq!((from.0, to), (six(EXIT_ADDRESS).into(), (SERVER_SIX.into(), 443)));
        assert_eq!((out[7], &out[1..4]), (64, &[0xb0, 0, 0][..]), "hop limit and flow label");
        assert_eq!(out[48..], payload);
        let claim = net.machines[3].claims(SERVER_SIX.into(), from.0);
        assert_eq!(claim, Some(Claim::Answer));
        net.got.clear();
        let back = udp6((SERVER_SIX, 443), (six(EXIT_ADDRESS), from.1), &payload);
        net.answer(3, back).expect("a flow");
        net.run();
        let [(0, back)] = &net.got[..] else { panic!("{} packets came back", net.got.len()) };
        assert_eq!(ends6(back), ((SERVER_SIX.into(), 443), (local.into(), 4000)));
    }
}

#[test]
fn where_the_exit_has_no_ipv6_it_is_refused_at_the_client() {
    let mut net = Net::new(3);
    net.machines[2].set_roles(true, Some(ExitRules::default()));
    let id = net.opened(&[1, 2]);
    assert!(!net.machines[0].status(id).expect("known").leads_six);
    let local = six(net.local(id));
    let sent = net.send(id, &udp6((local, 4000), (SERVER_SIX, 443), b"x"));
    assert_eq!(sent, Err(Drop::NoSix));
    carries(&mut net, id, 2, 40);
}
