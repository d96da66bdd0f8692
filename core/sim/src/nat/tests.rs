//! The requirements of RFC 4787, each by its number, and the bounds.

use proptest::prelude::*;

use super::*;

const OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const S: u64 = 1_000_000_000;

fn at(text: &str) -> SocketAddrV4 {
    text.parse().expect("an address")
}

fn out(nat: &mut Nat, now_s: u64, from: &str, to: &str) -> SocketAddrV4 {
    match nat.handle_outbound(now_s * S, Protocol::Udp, at(from), at(to)) {
        Ok(Outbound::Send { source }) => source,
        other => panic!("{from} to {to}: {other:?}"),
    }
}

fn into(nat: &mut Nat, now_s: u64, from: &str, to: SocketAddrV4) -> Result<SocketAddrV4, Drop> {
    nat.handle_inbound(now_s * S, Protocol::Udp, at(from), to)
}

#[test]
fn req_1_mapping_depends_on_what_it_says() {
    use Dependence::{AddressAndPortDependent, AddressDependent, EndpointIndependent};
    for (mapping, by_port, by_address) in [
        (EndpointIndependent, true, true),
        (AddressDependent, true, false),
        (AddressAndPortDependent, false, false),
    ] {
        let behaviour = Behaviour { mapping, ..Behaviour::SYMMETRIC };
        let mut nat = Nat::new(OUTSIDE, behaviour, 1);
        let first = out(&mut nat, 0, "10.0.0.2:5000", "192.0.2.1:1000");
        assert_eq!(*first.ip(), OUTSIDE);
        assert_eq!(out(&mut nat, 1, "10.0.0.2:5000", "192.0.2.1:1000"), first, "stable");
        assert_eq!(out(&mut nat, 1, "10.0.0.2:5000", "192.0.2.1:2000") == first, by_port);
        assert_eq!(out(&mut nat, 1, "10.0.0.2:5000", "192.0.2.2:1000") == first, by_address);
        assert_ne!(out(&mut nat, 1, "10.0.0.3:5000", "192.0.2.1:1000"), first, "another inside");
    }
}

#[test]
fn req_3_ports_are_never_shared_and_preserved_where_free() {
    let mut nat = Nat::new(OUTSIDE, Behaviour::PORT_RESTRICTED, 1);
    assert_eq!(out(&mut nat, 0, "10.0.0.2:5000", "192.0.2.1:1").port(), 5000);
    assert_eq!(out(&mut nat, 0, "10.0.0.3:5000", "192.0.2.1:1").port(), 5001);
    assert_eq!(out(&mut nat, 0, "10.0.0.3:80", "192.0.2.1:1").port(), PORT_FIRST);
    let sequential = Behaviour { allocation: Allocation::Sequential, ..Behaviour::FULL_CONE };
    let mut nat = Nat::new(OUTSIDE, sequential, 1);
    let ports: Vec<u16> = (1..4)
        .map(|i| out(&mut nat, 0, &format!("10.0.0.{i}:5000"), "192.0.2.1:1").port())
        .collect();
    assert_eq!(ports, [1024, 1025, 1026]);
}

#[test]
fn req_5_and_6_a_mapping_lives_by_use_from_inside_and_where_allowed_from_outside() {
    for inbound_refresh in [true, false] {
        let behaviour = Behaviour { inbound_refresh, ..Behaviour::FULL_CONE };
        let mut nat = Nat::new(OUTSIDE, behaviour, 1);
        let seen_as = out(&mut nat, 0, "10.0.0.2:5000", "192.0.2.1:1");
        out(&mut nat, 100, "10.0.0.2:5000", "192.0.2.1:1");
        assert!(into(&mut nat, 219, "192.0.2.1:1", seen_as).is_ok(), "within two minutes of use");
        let later = into(&mut nat, 221, "192.0.2.1:1", seen_as);
        assert_eq!(later.is_ok(), inbound_refresh);
        if !inbound_refresh {
            assert_eq!(later, Err(Drop::NoMapping));
        }
        assert_eq!(into(&mut nat, 342, "192.0.2.1:1", seen_as), Err(Drop::NoMapping));
    }
}

#[test]
fn req_8_filtering_depends_on_what_it_says() {
    for (behaviour, same_address, stranger) in [
        (Behaviour::FULL_CONE, true, true),
        (Behaviour::ADDRESS_RESTRICTED, true, false),
        (Behaviour::PORT_RESTRICTED, false, false),
        (Behaviour::SYMMETRIC, false, false),
    ] {
        let mut nat = Nat::new(OUTSIDE, behaviour, 1);
        let seen_as = out(&mut nat, 0, "10.0.0.2:5000", "192.0.2.1:1000");
        assert_eq!(into(&mut nat, 1, "192.0.2.1:1000", seen_as), Ok(at("10.0.0.2:5000")));
        assert_eq!(into(&mut nat, 1, "192.0.2.1:2000", seen_as).is_ok(), same_address);
        assert_eq!(into(&mut nat, 1, "192.0.2.9:1000", seen_as).is_ok(), stranger);
    }
}

#[test]
fn a_permission_ends_by_itself_while_its_mapping_is_used_for_others() {
    let behaviour = Behaviour { inbound_refresh: false, ..Behaviour::PORT_RESTRICTED };
    let mut nat = Nat::new(OUTSIDE, behaviour, 1);
    let seen_as = out(&mut nat, 0, "10.0.0.2:5000", "192.0.2.1:1000");
    out(&mut nat, 100, "10.0.0.2:5000", "192.0.2.2:1000");
    assert_eq!(into(&mut nat, 130, "192.0.2.1:1000", seen_as), Err(Drop::Filtered));
    assert!(into(&mut nat, 130, "192.0.2.2:1000", seen_as).is_ok());
}

#[test]
fn req_9_two_insides_meet_at_the_outside_with_outside_addresses() {
    let mut nat = Nat::new(OUTSIDE, Behaviour::FULL_CONE, 1);
    let b = out(&mut nat, 0, "10.0.0.3:6000", "192.0.2.1:1");
    let a = nat.handle_outbound(S, Protocol::Udp, at("10.0.0.2:5000"), b);
    let source = SocketAddrV4::new(OUTSIDE, 5000);
    assert_eq!(a, Ok(Outbound::Hairpin { source, destination: at("10.0.0.3:6000") }));
    assert_eq!(nat.counters().hairpinned, 1);

    let mut nat = Nat::new(OUTSIDE, Behaviour::SYMMETRIC, 1);
    let b = out(&mut nat, 0, "10.0.0.3:6000", "192.0.2.1:1");
    let a = nat.handle_outbound(S, Protocol::Udp, at("10.0.0.2:5000"), b);
    assert_eq!(a, Err(Drop::NoHairpin));
}

#[test]
fn both_ends_of_a_punched_hole_pass_unless_one_side_maps_by_port_and_the_other_filters_so() {
    // The case list of RFC 5128, section 3.3: simultaneous sends to the addresses that a
    // server had seen.
    let punch = |a_behaviour, b_behaviour| {
        let b_outside = Ipv4Addr::new(198, 51, 100, 1);
        let mut a = Nat::new(OUTSIDE, a_behaviour, 1);
        let mut b = Nat::new(b_outside, b_behaviour, 2);
        let server = "192.0.2.1:3478";
        let (a_seen, b_seen) =
            (out(&mut a, 0, "10.0.0.2:5000", server), out(&mut b, 0, "10.1.0.2:6000", server));
        let mut reached = false;
        let mut targets = (b_seen, a_seen);
        for now in 1..4 {
            let a_from = out(&mut a, now, "10.0.0.2:5000", &targets.0.to_string());
            let b_from = out(&mut b, now, "10.1.0.2:6000", &targets.1.to_string());
            // Whoever hears the other answers to where it came from.
            if into(&mut b, now, &a_from.to_string(), targets.0).is_ok() {
                targets.1 = a_from;
                reached = true;
            }
            if into(&mut a, now, &b_from.to_string(), targets.1).is_ok() {
                targets.0 = b_from;
                reached = true;
            }
        }
        reached
    };
    let (cone, port, symmetric) =
        (Behaviour::FULL_CONE, Behaviour::PORT_RESTRICTED, Behaviour::SYMMETRIC);
    assert!(punch(port, port));
    assert!(punch(symmetric, cone));
    assert!(punch(symmetric, Behaviour::ADDRESS_RESTRICTED));
    assert!(!punch(symmetric, port));
    assert!(!punch(symmetric, symmetric));
}

#[test]
fn a_full_table_refuses_the_new_and_keeps_the_old_until_they_expire() {
    let behaviour = Behaviour { mappings_max: 2, ..Behaviour::SYMMETRIC };
    let mut nat = Nat::new(OUTSIDE, behaviour, 1);
    let first = out(&mut nat, 0, "10.0.0.2:1", "192.0.2.1:1");
    out(&mut nat, 0, "10.0.0.2:1", "192.0.2.1:2");
    let third = nat.handle_outbound(S, Protocol::Udp, at("10.0.0.2:1"), at("192.0.2.1:3"));
    assert_eq!(third, Err(Drop::TableFull));
    assert_eq!(nat.counters().dropped[&Drop::TableFull], 1);
    assert_eq!(out(&mut nat, 2, "10.0.0.2:1", "192.0.2.1:1"), first);
    out(&mut nat, 121, "10.0.0.2:1", "192.0.2.1:3");
    assert_eq!(nat.mappings(), 2);
}

#[test]
fn protocols_have_mappings_of_their_own_and_a_restart_forgets_all() {
    let mut nat = Nat::new(OUTSIDE, Behaviour::FULL_CONE, 1);
    let udp = out(&mut nat, 0, "10.0.0.2:5000", "192.0.2.1:1");
    let tcp = nat.handle_inbound(0, Protocol::Tcp, at("192.0.2.1:1"), udp);
    assert_eq!(tcp, Err(Drop::NoMapping));
    let elsewhere = nat.handle_inbound(0, Protocol::Udp, at("192.0.2.1:1"), at("203.0.113.2:5000"));
    assert_eq!(elsewhere, Err(Drop::NotOurs));
    nat.restart();
    assert_eq!(into(&mut nat, 1, "192.0.2.1:1", udp), Err(Drop::NoMapping));
}

proptest! {
    #[test]
    fn tables_agree_and_stay_bounded(
        steps in prop::collection::vec((0..8u8, 0..4u16, 0..8u8, 0..4u16, 0..40u64), 0..400),
        symmetric: bool,
    ) {
        let kind = if symmetric { Behaviour::SYMMETRIC } else { Behaviour::PORT_RESTRICTED };
        let mut nat = Nat::new(OUTSIDE, Behaviour { mappings_max: 20, ..kind }, 1);
        let (mut now, mut packets) = (0, 0);
        for (host, port, far, far_port, gap) in steps {
            now += gap;
            packets += 1;
            let inside = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 2_000 + port);
            let remote = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, far), 3_000 + far_port);
            if let Ok(Outbound::Send { source }) =
                nat.handle_outbound(now * S, Protocol::Udp, inside, remote)
            {
                packets += 1;
                let back = nat.handle_inbound(now * S, Protocol::Udp, remote, source);
                prop_assert_eq!(back, Ok(inside));
            }
            prop_assert!(nat.mappings() <= 20);
            prop_assert_eq!(nat.by_inside.len(), nat.by_outside.len());
        }
        let c = nat.counters();
        prop_assert_eq!(c.outbound + c.inbound + c.dropped.values().sum::<u64>(), packets);
    }
}
