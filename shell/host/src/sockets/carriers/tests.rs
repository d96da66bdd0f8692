//! Real sockets, on the loopback device of a namespace of its own.

use std::net::SocketAddr;

use noise::Instant;

use super::*;
use crate::linux::netlink::tests::{in_fresh_namespace, ip};
use crate::sockets::udp::Arena;

/// A message of WireGuard of that type.
fn message(kind: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![7; len];
    bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
    bytes
}

fn asks(at: &str, key: u8) -> Change {
    let at: IpAddr = at.parse().expect("an address");
    Change::Peer(PeerChange {
        endpoint: Some(SocketAddr::new(at, 0)),
        carrier: Some(Carrier::IcmpRequest),
        ..PeerChange::new(PublicKey([key; 32]))
    })
}

/// What comes next by any socket, within a second.
fn next(carriers: &mut Carriers, arena: &mut Arena) -> Option<(Carried, Vec<u8>)> {
    for _ in 0..1_000 {
        let fds: Vec<RawFd> = carriers.fds().collect();
        for fd in fds {
            let via = carriers.via(fd).expect("it is ours");
            if arena.receive(fd, 1).expect("a socket") == 0 {
                continue;
            }
            let (messages, memory) = arena.parts();
            let taken = messages.first().and_then(|one| carriers.take(via, one, memory));
            if let Some((Destination::Carried(from), place)) = taken {
                return Some((from, memory[place].to_vec()));
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

#[test]
fn datagrams_ride_in_echoes_and_everybody_elses_pings_are_the_kernels() {
    in_fresh_namespace(|| {
        ip("link set lo up");
        for at in ["127.0.0.1", "::1"] {
            let mut arena = Arena::new();
            let (mut one, mut two) = (Carriers::new("wt-one"), Carriers::new("wt-two"));
            one.tick(Instant(1));
            two.tick(Instant(1));
            two.apply(&Change::ListenIcmp(at.parse().unwrap())).unwrap();
            one.apply(&asks(at, 1)).unwrap();
            let to = SocketAddr::new(at.parse().unwrap(), 0);
            let to = Carried { by: Carrier::IcmpRequest, at: Endpoint::new(to) };
            one.push(&to, &message(1, 148));
            one.flush();
            let (from, datagram) = next(&mut two, &mut arena).expect("the request came");
            assert_eq!(datagram, message(1, 148));
            assert_eq!((from.by, from.at.remote.port()), (Carrier::IcmpReply, one.askers[0].id));
            for len in [92, 1_452] {
                let kind = if len == 92 { 2 } else { 4 };
                two.push(&from, &message(kind, len));
                if kind == 4 {
                    // It has to wait for a request.
                    one.push(&to, &message(4, 32));
                    one.flush();
                    assert!(next(&mut two, &mut arena).is_some());
                    two.handle_timeout();
                }
                two.flush();
                let (from, datagram) = next(&mut one, &mut arena).expect("the reply came");
                assert_eq!((from.by, datagram), (Carrier::IcmpRequest, message(kind, len)));
            }
            let ping = std::process::Command::new("ping")
                .args(["-n", "-c", "1", "-W", "1", at])
                .output()
                .unwrap();
            assert!(ping.status.success(), "an ordinary ping to {at}");
            assert_eq!((one.refused(), two.refused()), (0, 0));
        }
    });
}

#[test]
fn packets_of_any_protocol_hold_datagrams_and_nothing_else() {
    in_fresh_namespace(|| {
        ip("link set lo up");
        let mut arena = Arena::new();
        let mut carriers = Carriers::new("wt-raw");
        carriers.apply(&Change::ListenIp(99)).unwrap();
        for at in ["127.0.0.1", "::1"] {
            let to = Endpoint::new(SocketAddr::new(at.parse().unwrap(), 0));
            let to = Carried { by: Carrier::Ip(99), at: to };
            carriers.push(&to, &message(4, 1_452));
            carriers.flush();
            let (from, datagram) = next(&mut carriers, &mut arena).expect("it came");
            assert_eq!((from.by, from.at.remote), (to.by, to.at.remote));
            assert_eq!(datagram, message(4, 1_452));
        }
        carriers.push(
            &Carried { by: Carrier::Ip(98), at: Endpoint::new(([127, 0, 0, 1], 0).into()) },
            &[1],
        );
        assert_eq!(carriers.refused(), 1, "no socket of that protocol");
    });
}

#[test]
fn a_peer_that_no_longer_asks_takes_its_socket_along() {
    in_fresh_namespace(|| {
        ip("link set lo up");
        let mut carriers = Carriers::new("wt-ask");
        for key in [1, 2] {
            carriers.apply(&asks("127.0.0.1", key)).unwrap();
        }
        assert_eq!(carriers.fds().count(), 1, "one responder, one socket");
        let gone = |key| {
            let remove = PeerChange { remove: true, ..PeerChange::new(PublicKey([key; 32])) };
            Change::Peer(remove)
        };
        carriers.apply(&gone(1)).unwrap();
        assert_eq!(carriers.fds().count(), 1);
        carriers.apply(&gone(2)).unwrap();
        assert_eq!(carriers.fds().count(), 0);
        let nowhere = carriers.apply(&Change::ListenIcmp("192.0.2.1".parse().unwrap()));
        assert!(nowhere.unwrap_err().contains("192.0.2.1 is no address of this machine"));
    });
}
