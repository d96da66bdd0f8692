//! Carriers in the file, and the room that they leave.

use std::time::Duration;

use node::{Carrier, Change};

use crate::quick::*;

const PEER: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";
const OTHER: &str = "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=";

fn good(text: &str) -> Settings {
    parse(text).unwrap_or_else(|faults| panic!("{faults:?}"))
}

#[test]
fn source_004_2_values_of_carriers_beyond_their_range_are_refused_with_it() {
    let interface = |line: &str| format!("[Interface]\n{line}\n");
    let peer = |line: &str| format!("[Interface]\n[Peer]\nPublicKey = {PEER}\n{line}\n");
    for (text, expected) in [
        (interface("OuterMtu = 575"), "2:12: OuterMtu: `575` is not a number from 576 to 9000"),
        (interface("ListenIcmp = eth0"), "2:14: ListenIcmp: `eth0` is not an address of this"),
        (interface("ListenIp = 17"), "2:12: ListenIp: 17 is UDP; write Carrier = udp, and Listen"),
        (peer("IcmpPollMs = 9"), "4:14: IcmpPollMs: `9` is not a number from 10 to 30000"),
        (
            peer("Carrier = smoke"),
            "4:11: Carrier: `smoke` is not a carrier; write udp, icmp or ip:N",
        ),
        (peer("Carrier = ip:1"), "4:11: Carrier: `1` is not a number from 2 to 254"),
        (
            peer("Endpoint = 192.0.2.1:9\nCarrier = icmp"),
            "4:12: Endpoint: `192.0.2.1:9` is neither an address nor a host name; this carrier has",
        ),
    ] {
        let faults = parse(&text).expect_err(&text);
        let Fault { line, column, what } = &faults[0];
        let found = format!("{line}:{column}: {what}");
        assert!(found.starts_with(expected), "{text}\n  gives {found}\n not {expected}");
    }
}

#[test]
fn source_004_2_carriers_are_read_with_their_endpoints_and_what_is_not_said_is_told() {
    let text = format!(
        "[Interface]\nListenIcmp = fd00::1\nListenIp = 99\nOuterMtu = 576\n\
         [Peer]\nPublicKey = {PEER}\nEndpoint = vpn.example.org\nCarrier = icmp\n\
         IcmpPollMs = 30000\n[Peer]\nPublicKey = {OTHER}\nCarrier = ip\nEndpoint = [fd00::2]\n"
    );
    let settings = good(&text);
    let interface = &settings.interface;
    assert_eq!(interface.listen_icmp, Some("fd00::1".parse().unwrap()));
    assert_eq!((interface.listen_ip, interface.outer_mtu), (Some(99), Some(576)));
    let peers = &settings.peers;
    assert_eq!(peers[0].carrier, Some(Carrier::IcmpRequest));
    assert_eq!(peers[0].endpoint, Some(Host::Name("vpn.example.org".into(), 0)));
    assert_eq!(peers[1].carrier, Some(Carrier::Ip(99)));
    assert_eq!(peers[1].endpoint, Some(Host::Address("[fd00::2]:0".parse().unwrap())));
    let changes = settings.changes(&[], 0);
    assert!(changes.contains(&Change::ListenIcmp("fd00::1".parse().unwrap())));
    assert!(changes.contains(&Change::ListenIp(99)));
    let of = |change: &Change| match change {
        Change::Peer(peer) => Some((peer.carrier, peer.poll, peer.keepalive_s)),
        _ => None,
    };
    let told: Vec<_> = changes.iter().filter_map(of).collect();
    let (poll, usual) = (Duration::from_secs(30), Duration::from_secs(2));
    // Who pings begins, and is kept in the responder's place.
    assert_eq!(told[0], (Some(Carrier::IcmpRequest), Some(poll), Some(25)));
    assert_eq!(told[1], (Some(Carrier::Ip(99)), Some(usual), Some(0)));
}

#[test]
fn source_004_11_the_mtu_leaves_room_for_the_carrier_within_the_outer_one() {
    let text = |outer: &str, address: &str| {
        let peer = format!("[Peer]\nPublicKey = {PEER}\nCarrier = icmp\nEndpoint = {address}");
        format!("[Interface]\nAddress = 10.0.0.1/24\n{outer}\n{peer}\n")
    };
    let plan = |text: &str, is_endpoint_v6| {
        let facts = Facts { is_endpoint_v6, outer_mtu: Some(1500), ..Facts::default() };
        Plan::new("w", &good(text), &facts)
    };
    let mtu = |plan: Plan| {
        plan.steps.iter().find_map(|step| match step {
            Step::Mtu(mtu) => Some(*mtu),
            _ => None,
        })
    };
    // 20 or 40 of IP, 8 of ICMP, 16 of ours, 32 of the session.
    assert_eq!(plan(&text("", "192.0.2.1"), false).map(mtu), Ok(Some(1_420)));
    assert_eq!(plan(&text("", "fd00::9"), true).map(mtu), Ok(Some(1_404)));
    assert_eq!(plan(&text("OuterMtu = 576", "192.0.2.1"), false).map(mtu), Ok(Some(496)));
    assert_eq!(plan(&text("OuterMtu = 9000", "fd00::9"), true).map(mtu), Ok(Some(8_904)));
    let refused = plan(&text("OuterMtu = 1000\nMTU = 921", "192.0.2.1"), false);
    let told = "MTU = 921 needs more than OuterMtu = 1000; set MTU to 920 or less, or leave it out";
    assert_eq!(refused.map_err(|e| e.to_string()), Err(told.to_owned()));
    let v6 = text("OuterMtu = 576", "192.0.2.1").replace("10.0.0.1/24", "10.0.0.1/24, fd00::1/64");
    assert!(matches!(plan(&v6, false), Err(PlanError::Mtu { min: 1280, .. })));
}
