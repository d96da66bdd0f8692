//! A door with a network behind it: a link that leads back to this machine as if it were a circuit.

use std::io::{Read, Write};
use std::net::UdpSocket;

use super::*;
use crate::linux::netlink::tests::{in_fresh_namespace, ip};

const WEB: &str = "203.0.113.9";
const WEB_SIX: &str = "2001:db8:1::9";
/// The circuit's address in packets of IPv6.
const CIRCUIT_SIX: &str = "fd63:6972:6375::c612:1";

/// Every user has the same circuit, which is a pair of links here.
struct One;

impl Circuits for One {
    fn of(&self, user: &[u8]) -> Circuit {
        match user {
            b"nobody\x06" => Circuit::None("a test".to_owned()),
            b"four\x04" => {
                Circuit::Open { address: Ipv4Addr::new(198, 18, 0, 1), leads_six: false }
            }
            _ => Circuit::Open { address: Ipv4Addr::new(198, 18, 0, 1), leads_six: true },
        }
    }
}

/// A door on this thread, and `far` on another one, where the address of the web server is.
fn in_world(far: impl FnOnce() + Send + 'static, body: impl FnOnce(SocketAddr) + Send + 'static) {
    let (say_thread, thread) = std::sync::mpsc::sync_channel(1);
    let (say_moved, moved) = std::sync::mpsc::sync_channel::<()>(1);
    let (say_ready, ready) = std::sync::mpsc::sync_channel(1);
    let other = std::thread::spawn(|| {
        in_fresh_namespace(move || {
            // SAFETY: the call takes nothing.
            say_thread.send(unsafe { libc::gettid() }).expect("the other thread waits");
            moved.recv().expect("it is moved");
            for line in [
                "link set lo up",
                "link set far0 up",
                "address add 203.0.113.9/32 dev far0",
                "route add 198.18.0.0/16 dev far0",
                "address add 2001:db8:1::9/128 dev far0 nodad",
                "-6 route add fd63:6972:6375::/96 dev far0",
            ] {
                ip(line);
            }
            say_ready.send(()).expect("the other thread waits");
            far();
        });
    });
    in_fresh_namespace(move || {
        ip("link set lo up");
        ip("link add warren0 type veth peer name far0");
        ip(&format!("link set far0 netns {}", thread.recv().expect("it began")));
        ip("link set warren0 up");
        ip("address add 198.18.0.1/32 dev warren0");
        crate::linux::room::lead("warren0").expect("a rule and two routes");
        crate::linux::room::speak_six("warren0", Ipv4Addr::new(198, 18, 0, 1));
        say_moved.send(()).expect("it waits");
        ready.recv().expect("it is ready");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("it has one");
        drop(listener);
        let place = Place {
            at,
            link: "warren0".to_owned(),
            names: WEB.parse().expect("an address"),
            circuits: Arc::new(One),
        };
        let door = Door::open(place).expect("the port is free");
        body(at);
        drop(door);
        // Whom another test starts has what is open here until it is another program.
        let is_closed = || {
            std::thread::sleep(Duration::from_millis(10));
            TcpStream::connect(at).is_err()
        };
        assert!((0..100).any(|_| is_closed()), "a closed door");
        crate::linux::room::unlead();
    });
    other.join().expect("no panic beyond");
}

fn ask(at: SocketAddr, user: &str, request: &[u8]) -> (TcpStream, Vec<u8>) {
    let mut stream = TcpStream::connect(at).expect("the door is open");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let name = [&[1, user.len() as u8][..], user.as_bytes(), &[0]].concat();
    stream.write_all(&[5, 1, 2]).expect("sent");
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).expect("a method");
    stream.write_all(&name).expect("sent");
    stream.read_exact(&mut chosen).expect("welcome");
    stream.write_all(request).expect("sent");
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).expect("a reply");
    (stream, reply.to_vec())
}

fn connect(to: [u8; 4], port: u16) -> Vec<u8> {
    [&[5, 1, 0, 1][..], &to, &port.to_be_bytes()].concat()
}

#[test]
fn ci_13_streams_go_both_ways_and_end_and_who_is_near_is_refused() {
    let (say_web, web) = std::sync::mpsc::sync_channel(1);
    let far = move || {
        let listener = TcpListener::bind((WEB, 8080)).expect("a port");
        say_web.send(()).expect("it is waited for");
        let (mut stream, from) = listener.accept().expect("a client");
        assert_eq!(from.ip().to_string(), "198.18.0.1", "it speaks as the circuit");
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).expect("all of it");
        stream.write_all(&heard).expect("back");
        stream.shutdown(std::net::Shutdown::Write).expect("said");
        // Until the other thread has seen that nobody listens on another port.
        let _ = stream.read(&mut [0]);
        std::thread::sleep(Duration::from_secs(1));
    };
    in_world(far, move |at| {
        web.recv().expect("it listens");
        let port = 8080;
        let (mut stream, reply) = ask(at, "a", &connect([203, 0, 113, 9], port));
        assert_eq!(reply[1], Reply::Done as u8);
        let sent = vec![7; 300_000];
        stream.write_all(&sent).expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("said");
        let mut back = Vec::new();
        stream.read_to_end(&mut back).expect("all of it");
        assert_eq!(back, sent);
        let (_, reply) = ask(at, "a", &connect([203, 0, 113, 9], 1));
        assert_eq!(reply[1], Reply::ConnectionRefused as u8);

        // A service of this machine is none of the circuit's.
        let near = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = near.local_addr().expect("it has one").port();
        for to in [[127, 0, 0, 1], [10, 0, 0, 1], [100, 64, 0, 1], [198, 18, 0, 1], [0, 0, 0, 0]] {
            let (_, reply) = ask(at, "a", &connect(to, port));
            assert_eq!(reply[1], Reply::Refused as u8, "{to:?}");
        }
        let (_, reply) = ask(at, "nobody", &connect([203, 0, 113, 9], 1));
        assert_eq!(reply[1], Reply::Failed as u8);
    });
}

fn connect_six(to: &str, port: u16) -> Vec<u8> {
    let to: std::net::Ipv6Addr = to.parse().expect("an address");
    [&[5, 1, 0, 4][..], &to.octets(), &port.to_be_bytes()].concat()
}

#[test]
fn streams_and_datagrams_of_ipv6_go_by_the_circuit_and_are_refused_where_the_exit_has_none() {
    let (say_web, web) = std::sync::mpsc::sync_channel(1);
    let far = move || {
        let listener = TcpListener::bind((WEB_SIX, 8080)).expect("a port");
        let echo = UdpSocket::bind((WEB_SIX, 7777)).expect("a port");
        say_web.send(()).expect("it is waited for");
        let (mut stream, from) = listener.accept().expect("a client");
        assert_eq!(from.ip().to_string(), CIRCUIT_SIX, "it speaks as the circuit");
        stream.write_all(b"a page").expect("said");
        drop(stream);
        let mut bytes = [0; 512];
        let (len, from) = echo.recv_from(&mut bytes).expect("it came");
        assert_eq!((&bytes[..len], from.ip().to_string()), (&b"hello"[..], CIRCUIT_SIX.into()));
        echo.send_to(b"back", from).expect("sent");
        std::thread::sleep(Duration::from_secs(1));
    };
    in_world(far, move |at| {
        web.recv().expect("it listens");
        let (mut stream, reply) = ask(at, "a", &connect_six(WEB_SIX, 8080));
        assert_eq!(reply[1], Reply::Done as u8);
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("all of it");
        assert_eq!(page, "a page");
        for to in ["::1", "fd00::1", "fe80::1", CIRCUIT_SIX, "::ffff:127.0.0.1", "2002:7f00:1::"] {
            let (_, reply) = ask(at, "a", &connect_six(to, 8080));
            assert_eq!(reply[1], Reply::Refused as u8, "{to}");
        }
        let (_, reply) = ask(at, "four", &connect_six(WEB_SIX, 8080));
        assert_eq!(reply[1], Reply::NoHost as u8, "the exit has no IPv6");

        let (control, reply) = ask(at, "a", &[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]);
        let relay = (Ipv4Addr::LOCALHOST, u16::from_be_bytes([reply[8], reply[9]]));
        let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
        client.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let mut head = connect_six(WEB_SIX, 7777);
        head[..3].fill(0);
        client.send_to(&[&head[..], b"hello"].concat(), relay).expect("sent");
        let mut bytes = [0; 512];
        let (len, _) = client.recv_from(&mut bytes).expect("it came back");
        assert_eq!(bytes[..head.len()], head, "from whom it is");
        assert_eq!(&bytes[head.len()..len], b"back");
        drop(control);
    });
}

#[test]
fn datagrams_go_both_ways_and_names_are_asked_there() {
    let (say_web, web) = std::sync::mpsc::sync_channel(1);
    let far = move || {
        let names = UdpSocket::bind((WEB, 53)).expect("a port");
        let echo = UdpSocket::bind((WEB, 7777)).expect("a port");
        say_web.send(()).expect("it is waited for");
        let mut bytes = [0; 512];
        let (len, from) = names.recv_from(&mut bytes).expect("a question");
        let mut answer = bytes[..len].to_vec();
        answer[2] |= 0x80;
        answer[7] = 1;
        answer.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\xcb\x00\x71\x09");
        names.send_to(&answer, from).expect("said");
        let (len, from) = echo.recv_from(&mut bytes).expect("it came");
        assert_eq!((&bytes[..len], from.ip().to_string()), (&b"hello"[..], "198.18.0.1".into()));
        echo.send_to(b"back", from).expect("sent");
    };
    in_world(far, move |at| {
        web.recv().expect("it listens");
        let (control, reply) = ask(at, "a", &[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(reply[1], Reply::Done as u8);
        let relay = (Ipv4Addr::LOCALHOST, u16::from_be_bytes([reply[8], reply[9]]));
        let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
        client.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let head = [&[0, 0, 0, 3, 9][..], b"a.example", &7777u16.to_be_bytes()].concat();
        client.send_to(&[&head[..], b"hello"].concat(), relay).expect("sent");
        let mut bytes = [0; 512];
        let (len, _) = client.recv_from(&mut bytes).expect("it came back");
        assert_eq!(&bytes[..8], &[0, 0, 0, 1, 203, 0, 113, 9]);
        assert_eq!(&bytes[10..len], b"back");
        drop(control);
    });
}
