//! The relay over QUIC: members, strangers, what is no frame, and the other way beside it.

use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use control::Relay;
use control::relay::{Caller, Refused};
use dial::SystemRandom;
use dial::proxy::Proxies;
use dial::relay::{Admitted, Answered, Failed, Way, connect_quic, race};
use dial::relays::{Hand, OnEnd, Relays};
use noise::{PrivateKey, PublicKey};
use quic::{Line, LineEnd};
use serde_json::Value;
use wire::relay::{Frame, Notice};

use crate::relay::{self, Joined, join, last_word, soon};
use crate::stage::{Folder, PATIENCE, Stage, config};

/// A server that has the UDP port of its TCP port; by chance somebody else may have that.
fn stage() -> Stage {
    for _ in 0..10 {
        let stage = Stage::new();
        let first = join(&stage, "first");
        if first.relay(&stage).quic {
            return stage;
        }
    }
    panic!("the UDP port was taken ten times");
}

/// A connection that the relay has taken: it answers.
fn open(relay: &Relay, key: &PrivateKey) -> Answered {
    let mut this = connect_quic(relay, key, None).unwrap();
    pong(&mut this, *b"is there");
    this
}

fn pong(at: &mut Answered, bytes: [u8; 8]) {
    at.send(&Frame::Ping(&bytes));
    let answer = |frame: &Frame<'_>| matches!(frame, Frame::Pong(b) if **b == bytes).then_some(());
    at.wait(soon(), answer).unwrap();
}

fn send(from: &mut Answered, to: PublicKey, datagram: &[u8]) {
    from.send(&Frame::Send { to: &to.0, datagram });
    while from.line.room() == 0 {
        from.line.wait(soon()).unwrap();
    }
}

fn receive(at: &mut Answered) -> (PublicKey, Vec<u8>) {
    let taken = at.wait(soon(), |frame| match frame {
        Frame::Received { from, datagram } => Some((PublicKey(**from), datagram.to_vec())),
        _ => None,
    });
    taken.unwrap()
}

/// How the relay ends a connection.
fn end(at: &mut Answered) -> Option<LineEnd> {
    let _ = at.wait(soon(), |_| None::<()>);
    at.line.end().cloned()
}

fn connect(node: &Joined, stage: &Stage) -> Answered {
    open(&node.relay(stage), &node.key)
}

#[test]
fn source_000_3_4_rl_02_datagrams_cross_by_quic_with_the_senders_true_key() {
    let stage = stage();
    let nodes = ["a", "b", "c"].map(|name| join(&stage, name));
    let (mut a, mut b) = (connect(&nodes[0], &stage), connect(&nodes[1], &stage));
    let mut c = nodes[2].connect(&stage);
    let long = vec![7; 60_000];
    for datagram in [&b"x"[..], &[4; 1000], &[5; 1452], &long] {
        send(&mut a, nodes[1].public(), datagram);
        assert_eq!(receive(&mut b), (nodes[0].public(), datagram.to_vec()));
        send(&mut b, nodes[0].public(), datagram);
        assert_eq!(receive(&mut a), (nodes[1].public(), datagram.to_vec()));
        // The other end may have no UDP.
        send(&mut a, nodes[2].public(), datagram);
        assert_eq!(relay::receive(&mut c), (nodes[0].public(), datagram.to_vec()));
        relay::send(&mut c, nodes[0].public(), datagram);
        assert_eq!(receive(&mut a), (nodes[2].public(), datagram.to_vec()));
    }
    let len = a.line.frame_len_max();
    assert!((1100..=quic::FRAME_LEN_MAX).contains(&len), "{len} bytes fit a datagram");
    // Who says that another one sent it is cut.
    a.send(&Frame::Received { from: &nodes[2].public().0, datagram: b"forged" });
    assert_eq!(end(&mut a), Some(LineEnd::Closed(None)));
}

#[test]
fn rl_01_rl_15_strangers_are_refused_by_quic_and_who_is_removed_is_cut_within_a_second() {
    let stage = stage();
    let (a, b) = (join(&stage, "a"), join(&stage, "b"));
    let relay = a.relay(&stage);
    let not_member = Refused::Verdict(Some(Notice::NotMember));
    let stranger = PrivateKey::generate(&mut SystemRandom);
    for refused in [
        connect_quic(&relay, &stranger, None).map(drop),
        race(&relay, &stranger, &Proxies::default(), Way::Own).map(drop),
    ] {
        assert!(matches!(refused, Err(Failed::Refused(why)) if why == not_member), "{refused:?}");
    }
    let wrong = Relay { key: b.public(), ..relay.clone() };
    assert!(connect_quic(&wrong, &a.key, None).is_err(), "a relay with another key");

    let mut two = connect(&b, &stage);
    let id = b.node.map.as_ref().unwrap().me.id.0;
    let begin = Instant::now();
    stage.call("DELETE", &format!("/api/v1/nodes/{id}"), &Value::Null, 204);
    assert_eq!(end(&mut two), Some(LineEnd::Closed(Some(Notice::NotMember))));
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert!(matches!(connect_quic(&relay, &b.key, None), Err(Failed::Refused(_))));
}

#[test]
fn where_the_udp_port_is_taken_the_relay_goes_on_over_https_and_the_map_says_so() {
    // The TCP port of the same number may by chance be somebody else's.
    let (_taken, folder, server) = (0..10)
        .find_map(|_| {
            let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
            let (folder, port) = (Folder::new(), taken.local_addr().unwrap().port());
            let server = server::Server::start(config(&folder.0, port)).ok()?;
            Some((taken, folder, server))
        })
        .unwrap();
    let address = server.address();
    let stage = Stage { server: Some(server), address, folder, store: None };
    let a = join(&stage, "a");
    let relay = a.relay(&stage);
    assert!(!relay.quic, "{relay:?}");
    drop(a.connect(&stage));
}

/// A connection that has proven nothing.
fn unproven(relay: &Relay, from: &str) -> Answered {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket.connect((relay.url.host(), relay.url.port())).unwrap();
    let mut line = Line::open(socket, dial::tls::quic_config(), relay.url.host()).unwrap();
    while !line.is_ready() {
        line.wait(soon()).unwrap();
    }
    Answered { line, decoder: wire::relay::Decoder::default() }
}

#[test]
fn rl_01_rl_15_what_comes_before_the_proof_or_is_no_frame_is_dropped() {
    let stage = stage();
    let (a, b) = (join(&stage, "a"), join(&stage, "b"));
    let (relay, mut one) = (a.relay(&stage), connect(&a, &stage));
    let mut thief = unproven(&relay, "127.0.0.1");
    // A recorded first message of somebody's, and datagrams as if that had been enough.
    let (message, _) = Caller::new(&b.key, &relay.key, &mut SystemRandom).unwrap();
    thief.say(&Frame::Open(&message));
    send(&mut thief, a.public(), b"forged");
    let answered = |frame: &Frame<'_>| matches!(frame, Frame::Answer(_)).then_some(());
    thief.wait(soon(), answered).unwrap();
    send(&mut thief, a.public(), b"forged");
    thief.say(&Frame::Confirm(&[9; 36]));
    assert!(matches!(end(&mut thief), Some(LineEnd::Closed(None))));
    // What is no frame is passed over, and holds up nothing.
    let mut two = connect(&b, &stage);
    for bad in [&[][..], &[1], &[1, 4, 0, 0, 0], &[0xff; 600]] {
        two.line.send_raw(bad);
    }
    send(&mut two, a.public(), b"first");
    assert_eq!(receive(&mut one).1, b"first", "nothing came before it");
    // And all of it is counted.
    until_told(&stage, "warren_relay_quic_connections", 2);
    until_told(&stage, "warren_relay_quic_connections_total", 2);
    until_told(&stage, "warren_relay_quic_strangers", 0);
    until_told(&stage, "warren_relay_quic_dropped_datagrams_total{reason=\"early\"}", 2);
    until_told(&stage, "warren_relay_quic_dropped_datagrams_total{reason=\"malformed\"}", 4);
    drop(two);
    until_told(&stage, "warren_relay_quic_connections", 1);
    until_told(&stage, "warren_relay_quic_connections_total", 2);
}

/// A value of `/metrics`.
fn told(stage: &Stage, name: &str) -> u64 {
    let text = stage.admin().call("GET", "/metrics", "").unwrap().body;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{name} is not told: {text}")).parse().unwrap()
}

/// Waits until `/metrics` has this value.
fn until_told(stage: &Stage, name: &str, value: u64) {
    let begin = Instant::now();
    while told(stage, name) != value {
        assert!(begin.elapsed() < Duration::from_secs(20), "{name}: {}", told(stage, name));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn rl_07_one_connection_of_a_key_is_kept_whichever_way_it_came() {
    let stage = stage();
    let (a, b) = (join(&stage, "a"), join(&stage, "b"));
    let (mut one, mut old) = (connect(&a, &stage), b.connect(&stage));
    let mut new = connect(&b, &stage);
    assert_eq!(last_word(&mut old), Some(Notice::Replaced));
    send(&mut one, b.public(), b"to the new one");
    assert_eq!(receive(&mut new).1, b"to the new one");
    let newest = b.connect(&stage);
    assert_eq!(end(&mut new), Some(LineEnd::Closed(Some(Notice::Replaced))));
    drop(newest);
}

#[test]
fn rl_05_rl_15_who_proves_nothing_by_quic_is_cut_and_has_a_small_place_of_its_own() {
    let stage = stage();
    let (a, b) = (join(&stage, "a"), join(&stage, "b"));
    let (mut one, relay) = (connect(&a, &stage), a.relay(&stage));
    let begin = Instant::now();
    let mut silent: Vec<Answered> = (0..32).map(|_| unproven(&relay, "127.0.0.1")).collect();
    // The places of this address are taken now: one more is let in, and its oldest is cut at once.
    let more = unproven(&relay, "127.0.0.1");
    assert_eq!(end(&mut silent.remove(0)), Some(LineEnd::Closed(None)));
    assert!(begin.elapsed() < Duration::from_secs(9));
    silent.push(more);
    // A member comes in beside them.
    let admitted = race(&relay, &b.key, &Proxies::default(), Way::Own).unwrap();
    assert!(matches!(admitted, Admitted::Quic(_)), "{admitted:?}");
    drop(admitted);
    for line in &mut silent {
        assert_eq!(end(line), Some(LineEnd::Closed(None)));
    }
    let cut = begin.elapsed();
    assert!((9..14).contains(&cut.as_secs()), "{cut:?}");
    pong(&mut one, *b"as ever!");
    drop(connect(&b, &stage));
}

#[test]
fn rl_15_while_many_have_proven_nothing_an_address_shows_first_that_it_receives() {
    let stage = stage();
    let (a, b) = (join(&stage, "a"), join(&stage, "b"));
    let relay = a.relay(&stage);
    let from = |address: &'static str| (0..32).map(move |_| address);
    let (asked, answer) = first_answer(&relay);
    assert!(!is_retry(&answer) && answer.len() <= 3 * asked, "{} bytes", answer.len());
    let silent: Vec<Answered> = from("127.0.0.2")
        .chain(from("127.0.0.3"))
        .map(|address| unproven(&relay, address))
        .collect();
    assert_eq!(silent.len(), 64);
    let (asked, answer) = first_answer(&relay);
    assert!(is_retry(&answer) && answer.len() < asked, "{} bytes", answer.len());
    assert!(told(&stage, "warren_relay_quic_retries_total") > 0);
    // Members and strangers who receive it come in all the same.
    let (mut one, mut two) = (connect(&a, &stage), connect(&b, &stage));
    drop(unproven(&relay, "127.0.0.4"));
    send(&mut one, b.public(), b"undisturbed");
    assert_eq!(receive(&mut two).1, b"undisturbed");
}

/// The first datagram of a connection: how long it is, and the answer.
fn first_answer(relay: &Relay) -> (usize, Vec<u8>) {
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(sink.local_addr().unwrap()).unwrap();
    let mut line = Line::open(socket, dial::tls::quic_config(), relay.url.host()).unwrap();
    line.flush(Instant::now());
    let mut bytes = [0; 1500];
    let asked = sink.recv(&mut bytes).unwrap();
    let asking = UdpSocket::bind("127.0.0.1:0").unwrap();
    asking.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    asking.send_to(&bytes[..asked], (relay.url.host(), relay.url.port())).unwrap();
    let len = asking.recv(&mut bytes).unwrap();
    (asked, bytes[..len].to_vec())
}

/// RFC 9000, section 17.2.5: a long header of type 3.
fn is_retry(answer: &[u8]) -> bool {
    answer[0] & 0xb0 == 0xb0
}

/// The same relay at a port that passes on TCP and swallows UDP.
fn without_udp(relay: Relay, stage: &Stage) -> Relay {
    let silent = UdpSocket::bind("127.0.0.2:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let listener = TcpListener::bind(("127.0.0.2", port)).unwrap();
    let to = stage.address;
    std::thread::spawn(move || {
        let _silent = silent;
        for from in listener.incoming().flatten() {
            // The server ends with its test.
            let Ok(to) = TcpStream::connect(to) else { return };
            let forth = [from.try_clone().unwrap(), to.try_clone().unwrap()];
            for [mut from, mut to] in [forth, [to, from]] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    Relay { url: format!("https://127.0.0.2:{port}").parse().unwrap(), ..relay }
}

/// Where streams go.
struct Taken(SyncSender<(Admitted, OnEnd)>);

impl Hand for Taken {
    fn set_relay(&self, _: u32, admitted: Admitted, on_end: OnEnd) -> std::io::Result<()> {
        self.0.send((admitted, on_end)).map_err(|_| std::io::Error::other("the test is over"))
    }

    fn check_relay(&self, _: u32) {}

    fn remove_relay(&self, _: u32) {}
}

#[test]
fn a_stream_that_ends_while_quic_is_tried_beside_it_has_a_successor_at_once() {
    let stage = stage();
    let a = join(&stage, "a");
    let relay = without_udp(a.relay(&stage), &stage);
    let (take, taken) = sync_channel(1);
    let mut kept = Relays::new(Arc::new(Taken(take)), Proxies::default());
    kept.set(&[relay], &a.key).unwrap();
    let (admitted, on_end) = taken.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(admitted, Admitted::Https(_)), "{admitted:?}");
    // After 5 s QUIC is tried again, for 5 s.
    std::thread::sleep(Duration::from_secs(6));
    let begin = Instant::now();
    drop(admitted);
    on_end(None);
    let (admitted, _) = taken.recv_timeout(PATIENCE).unwrap();
    let took = begin.elapsed();
    assert!(matches!(admitted, Admitted::Https(_)), "{admitted:?}");
    println!("another one after {took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn the_first_of_quic_and_https_is_used_and_quic_has_a_head_start() {
    let stage = stage();
    let a = join(&stage, "a");
    let relay = a.relay(&stage);
    let admitted = race(&relay, &a.key, &Proxies::default(), Way::Own).unwrap();
    assert!(matches!(admitted, Admitted::Quic(_)), "{admitted:?}");
    drop(admitted);
    let relay = without_udp(relay, &stage);
    let begin = Instant::now();
    let admitted = race(&relay, &a.key, &Proxies::default(), Way::Own).unwrap();
    let took = begin.elapsed();
    assert!(matches!(admitted, Admitted::Https(_)), "{admitted:?}");
    println!("by HTTPS after {took:?}");
    assert!(took >= dial::relay::HEAD_START && took < Duration::from_secs(3), "{took:?}");
}
