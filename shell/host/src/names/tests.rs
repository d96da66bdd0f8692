//! The parts that need no client; `tests/names.rs` asks the server with `dig`.

use super::local::Local;
use super::*;
use crate::linux::netlink::tests::{in_fresh_namespace, ip, soon};

#[test]
fn dn_05_only_this_machines_addresses_are_admitted() {
    in_fresh_namespace(|| {
        ip("link set lo up");
        ip("link add wt0 type veth peer name wt1");
        ip("address add 100.64.0.1/32 dev wt0");
        let mut local = Local::default();
        let admits = |local: &mut Local, text: &str, also: &[&str]| {
            let also: Vec<Prefix> = also.iter().map(|p| p.parse().unwrap()).collect();
            local.admits(text.parse().unwrap(), &also)
        };
        assert!(admits(&mut local, "127.0.0.1", &[]) && admits(&mut local, "::1", &[]));
        assert!(admits(&mut local, "100.64.0.1", &[]));
        assert!(admits(&mut local, "::ffff:100.64.0.1", &[]));
        assert!(!admits(&mut local, "100.64.0.2", &[]) && !admits(&mut local, "0.0.0.0", &[]));
        assert!(admits(&mut local, "172.17.0.2", &["172.17.0.0/16"]));
        ip("address add fd77::1/128 dev wt0");
        assert!(!admits(&mut local, "fd77::1", &[]), "asked a moment ago");
        std::thread::sleep(Duration::from_millis(1100));
        assert!(admits(&mut local, "fd77::1", &[]));
    });
}

#[test]
fn an_address_that_is_taken_or_not_there_is_told_with_its_remedy() {
    in_fresh_namespace(|| {
        ip("link set lo up");
        let place =
            |address: &str| Place { addresses: vec![address.parse().unwrap()], ..Place::default() };
        let names = || Names::new(dns::Settings::default()).unwrap();
        let all = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
        let error = Server::start(&place("127.0.0.1"), names()).unwrap_err().to_string();
        assert!(error.contains("127.0.0.1:53") && error.contains("listens on every"), "{error}");
        drop(all);
        let start = || Server::start(&place("127.0.0.1"), names());
        let server = soon(start).unwrap();
        drop(server);
        drop(soon(start).expect("the port is free again"));
        let error = Server::start(&place("100.64.0.1"), names()).unwrap_err().to_string();
        assert!(error.contains("is the interface up"), "{error}");
    });
}

/// As `nameserver fe80::53%wt0` asks for it: a resolver that is on one link alone.
#[test]
fn a_link_local_resolver_is_asked_through_its_interface() {
    in_fresh_namespace(|| {
        ip("link set lo up");
        ip("link add wt0 type veth peer name wt2");
        for link in ["wt0", "wt2"] {
            ip(&format!("link set {link} up"));
        }
        ip("address add fe80::53/64 dev wt2 nodad");
        let resolver: IpAddr = "fe80::53".parse().unwrap();
        let with = |zones: &[(&str, &str)]| {
            let settings = dns::Settings { resolvers: vec![resolver], ..dns::Settings::default() };
            let place = Place { addresses: vec!["127.0.0.1".parse().unwrap()], ..Place::default() };
            let server = soon(|| Server::start(&place, Names::new(settings.clone()).unwrap()));
            let server = server.unwrap();
            let zone = |(at, zone): &(&str, &str)| (at.parse().unwrap(), (*zone).to_owned());
            server.set_zones(zones.iter().map(zone).collect());
            let index = index_of("wt2");
            let at = SocketAddrV6::new("fe80::53".parse().unwrap(), PORT, 0, index);
            let there = soon(|| UdpSocket::bind(at)).unwrap();
            there.set_read_timeout(Some(Duration::from_millis(1_500))).unwrap();
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            let question = b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\
                             \x01x\x04test\x00\x00\x01\x00\x01";
            client.send_to(question, "127.0.0.1:53").unwrap();
            there.recv_from(&mut [0; 512]).is_ok()
        };
        assert!(with(&[("fe80::53", "wt2")]), "asked where it is");
        assert!(!with(&[]), "without an interface it is nowhere");
        assert_ne!(index_of("wt2"), 0);
        assert_eq!((index_of("7"), index_of("nowhere")), (7, 0));
    });
}
