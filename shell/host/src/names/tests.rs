//! The parts that need no client; `tests/names.rs` asks the server with `dig`.

use super::local::Local;
use super::*;
use crate::netlink::tests::{in_fresh_namespace, ip, soon};

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
