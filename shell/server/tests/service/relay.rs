//! The relay with real nodes, strangers and slow readers.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use control::relay::Refused;
use control::{Map, Relay};
use dial::proxy::Proxies;
use dial::relay::{Connected, Failed, Way, connect};
use dial::{Admin, SystemRandom};
use noise::{PrivateKey, PublicKey};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::{Value, json};
use wire::relay::{Frame, Notice};
use wire::stun::{self, Message};

use crate::stage::{Folder, Node, PATIENCE, Stage, settings};

/// A node that joined, and its WireGuard key.
pub(crate) struct Joined {
    pub(crate) node: Node,
    pub(crate) key: PrivateKey,
}

pub(crate) fn join(stage: &Stage, hostname: &str) -> Joined {
    join_with(stage, hostname, &json!({}))
}

/// With a join key as it is wanted.
pub(crate) fn join_with(stage: &Stage, hostname: &str, wanted: &Value) -> Joined {
    let token = stage.token(wanted);
    let key = PrivateKey::generate(&mut SystemRandom);
    let mut settings = settings(&token, hostname);
    settings.node_key = key.public();
    let mut node = Node::start(settings, Proxies::default());
    node.until("a map", |_, map| map.is_some());
    Joined { node, key }
}

impl Joined {
    /// The relay that the map names, at the server's real port.
    pub(crate) fn relay(&self, stage: &Stage) -> Relay {
        let map = self.node.map.as_ref().unwrap();
        assert_eq!(map.relays.len(), 1);
        assert_eq!(map.relays[0].id, 0);
        Relay { url: stage.url(), ..map.relays[0].clone() }
    }

    pub(crate) fn connect(&self, stage: &Stage) -> Connected {
        open(&self.relay(stage), &self.key)
    }

    pub(crate) fn public(&self) -> PublicKey {
        self.key.public()
    }
}

/// A connection that the relay has taken: it answers.
pub(crate) fn open(relay: &Relay, key: &PrivateKey) -> Connected {
    let mut stream = connect(relay, key, &Proxies::default(), Way::Own).unwrap();
    stream.say(&Frame::Ping(&[0; 8]), soon()).unwrap();
    let pong = |frame: &Frame<'_>| matches!(frame, Frame::Pong(_)).then_some(());
    stream.wait(soon(), pong).unwrap();
    stream
}

pub(crate) fn soon() -> Instant {
    Instant::now() + PATIENCE
}

pub(crate) fn send(from: &mut Connected, to: PublicKey, datagram: &[u8]) {
    from.say(&Frame::Send { to: &to.0, datagram }, soon()).unwrap();
}

pub(crate) fn receive(at: &mut Connected) -> (PublicKey, Vec<u8>) {
    let taken = at.wait(soon(), |frame| match frame {
        Frame::Received { from, datagram } => Some((PublicKey(**from), datagram.to_vec())),
        _ => None,
    });
    taken.unwrap()
}

/// What a relay says before it ends a connection.
pub(crate) fn last_word(at: &mut Connected) -> Option<Notice> {
    let word = at.wait(soon(), |frame| match frame {
        Frame::Notice(notice) => Some(*notice),
        _ => None,
    });
    word.ok()
}

#[test]
fn source_000_5_1_rl_02_datagrams_cross_over_https_alone_with_the_senders_true_key() {
    let stage = Stage::new();
    let nodes = ["a", "b", "c"].map(|name| join(&stage, name));
    let mut streams = nodes.each_ref().map(|node| node.connect(&stage));
    let long = vec![7; 60_000];
    for (from, to) in [(0, 1), (1, 0), (2, 0), (0, 2)] {
        for datagram in [&b"x"[..], &[4; 1452], &long] {
            send(&mut streams[from], nodes[to].public(), datagram);
            let (sender, got) = receive(&mut streams[to]);
            assert_eq!((sender, &got[..]), (nodes[from].public(), datagram));
        }
    }
    streams[0].say(&Frame::Ping(b"12345678"), soon()).unwrap();
    let pong = streams[0].wait(soon(), |frame| match frame {
        Frame::Pong(bytes) => Some(**bytes),
        _ => None,
    });
    assert_eq!(&pong.unwrap(), b"12345678");
}

#[test]
fn rl_01_strangers_are_refused_and_who_is_removed_is_cut_within_a_second() {
    let stage = Stage::new();
    let (a, b) = (join(&stage, "a"), join(&stage, "b"));
    let relay = a.relay(&stage);
    let stranger = PrivateKey::generate(&mut SystemRandom);
    let refused = connect(&relay, &stranger, &Proxies::default(), Way::Own);
    let not_member = Refused::Verdict(Some(Notice::NotMember));
    assert!(matches!(refused, Err(Failed::Refused(why)) if why == not_member), "{refused:?}");
    let wrong = Relay { key: b.public(), ..relay.clone() };
    let refused = connect(&wrong, &a.key, &Proxies::default(), Way::Own);
    assert!(refused.is_err(), "a relay with another key");

    let (mut one, mut two) = (a.connect(&stage), b.connect(&stage));
    let id = b.node.map.as_ref().unwrap().me.id.0;
    let begin = Instant::now();
    stage.call("DELETE", &format!("/api/v1/nodes/{id}"), &Value::Null, 204);
    assert_eq!(last_word(&mut two), Some(Notice::NotMember));
    let cut = begin.elapsed();
    println!("cut {cut:?} after its removal began");
    assert!(cut < Duration::from_secs(1), "{cut:?}");
    assert!(matches!(
        connect(&relay, &b.key, &Proxies::default(), Way::Own),
        Err(Failed::Refused(_))
    ));
    // Who stays is not disturbed, and is told nothing of one who is no member (RL-08).
    send(&mut one, b.public(), &[4; 100]);
    one.say(&Frame::Ping(&[1; 8]), soon()).unwrap();
    let first = one.wait(soon(), |frame| Some(matches!(frame, Frame::Pong(_))));
    assert!(first.unwrap(), "only the answer to the ping");
}

#[test]
fn rl_01_a_recorded_handshake_takes_nobodys_place() {
    let stage = Stage::new();
    let (a, b) = (join(&stage, "a"), join(&stage, "b"));
    let (mut one, mut two) = (a.connect(&stage), b.connect(&stage));
    let relay = b.relay(&stage);
    let (message, _) = control::relay::Caller::new(&b.key, &relay.key, &mut SystemRandom).unwrap();
    let mut thief = upgraded(&stage);
    let mut bytes = Vec::new();
    Frame::Open(&message).write(&mut bytes);
    Frame::Confirm(&[9; 36]).write(&mut bytes);
    Frame::Send { to: &a.public().0, datagram: b"forged" }.write(&mut bytes);
    thief.write_all(&bytes).unwrap();
    let mut rest = Vec::new();
    let _ = thief.read_to_end(&mut rest);
    assert!(rest.len() < 200, "an answer, and the end");
    send(&mut one, b.public(), b"still here");
    assert_eq!(receive(&mut two).1, b"still here");
    send(&mut two, a.public(), b"first");
    assert_eq!(receive(&mut one).1, b"first", "nothing came before it");
}

#[test]
fn rl_07_the_newest_connection_of_a_key_takes_over_and_the_older_is_told() {
    let stage = Stage::new();
    let (a, b) = (join(&stage, "a"), join(&stage, "b"));
    let (mut one, mut old) = (a.connect(&stage), b.connect(&stage));
    let mut new = b.connect(&stage);
    assert_eq!(last_word(&mut old), Some(Notice::Replaced));
    send(&mut one, b.public(), b"to the new one");
    assert_eq!(receive(&mut new).1, b"to the new one");
}

#[test]
fn rl_08_a_member_that_is_away_is_told_of_three_times_a_second() {
    let stage = Stage::new();
    let (a, b) = (join(&stage, "a"), join(&stage, "b"));
    let mut one = a.connect(&stage);
    for _ in 0..50 {
        send(&mut one, b.public(), &[4; 100]);
    }
    send(&mut one, PublicKey([9; 32]), &[4; 100]);
    let mut gone = 0;
    // What came in one read is answered before absence is told: the second answer is behind both.
    for number in [1, 2] {
        one.say(&Frame::Ping(&[number; 8]), soon()).unwrap();
        one.wait(soon(), |frame| match frame {
            Frame::Gone(key) => {
                assert_eq!(PublicKey(**key), b.public(), "and of no stranger");
                gone += 1;
                None
            }
            Frame::Pong(_) => Some(()),
            other => panic!("{other:?}"),
        })
        .unwrap();
    }
    assert!((1..=3).contains(&gone), "{gone}");
}

#[test]
fn rl_04_one_who_does_not_read_is_cut_and_holds_up_nobody() {
    let stage = Stage::new();
    let sender = join(&stage, "sender");
    let frozen = join(&stage, "frozen");
    let others: Vec<Joined> = (0..10).map(|n| join(&stage, &format!("other-{n}"))).collect();
    let mut from = sender.connect(&stage);
    let mut stuck = frozen.connect(&stage);
    let received = Arc::new(AtomicU64::new(0));
    let readers: Vec<_> = others
        .iter()
        .map(|node| {
            let (mut at, received) = (node.connect(&stage), Arc::clone(&received));
            std::thread::spawn(move || {
                at.wait(soon(), |frame| match frame {
                    Frame::Received { datagram: b"end", .. } => Some(()),
                    Frame::Received { .. } => {
                        received.fetch_add(1, Ordering::Relaxed);
                        None
                    }
                    _ => None,
                })
            })
        })
        .collect();
    let (begin, mut rounds) = (Instant::now(), 0);
    // 14 MB a second to the one who does not read, 1.4 MB to each of the others.
    while begin.elapsed() < Duration::from_secs(4) {
        let mut bytes = Vec::new();
        for _ in 0..100 {
            Frame::Send { to: &frozen.public().0, datagram: &[4; 1400] }.write(&mut bytes);
        }
        for node in &others {
            for _ in 0..10 {
                Frame::Send { to: &node.public().0, datagram: &[4; 1400] }.write(&mut bytes);
            }
        }
        rounds += 1;
        let mut stream = rustls::Stream::new(&mut from.tls, &mut from.socket);
        stream.write_all(&bytes).unwrap();
        let next = Duration::from_millis(10) * rounds;
        std::thread::sleep(next.saturating_sub(begin.elapsed()));
    }
    for node in &others {
        send(&mut from, node.public(), b"end");
    }
    for reader in readers {
        reader.join().unwrap().unwrap();
    }
    let (sent, received) = (u64::from(rounds) * 100, received.load(Ordering::Relaxed));
    println!("{received} of {sent} came to those who read");
    assert!(received * 100 >= sent * 95, "{received} of {sent}");
    // What the kernel holds comes, and then the end of the connection.
    let cut = stuck.wait(soon(), |_| None::<()>).unwrap_err();
    let kinds = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
    assert!(kinds.contains(&cut.kind()), "{cut}");
}

pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

fn tls(stage: &Stage) -> Tls {
    let tcp = TcpStream::connect(stage.address).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    StreamOwned::new(ClientConnection::new(dial::tls::config(), name).unwrap(), tcp)
}

pub(crate) fn ask(stage: &Stage, head: &str) -> (Tls, String) {
    let mut stream = tls(stage);
    stream.write_all(head.as_bytes()).unwrap();
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        answer.push(byte[0]);
    }
    (stream, String::from_utf8(answer).unwrap())
}

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: warren-relay\r\n";

/// A connection that was upgraded and has proven nothing.
fn upgraded(stage: &Stage) -> Tls {
    let (stream, answer) = ask(stage, &format!("GET /relay HTTP/1.1\r\nHost: x\r\n{UPGRADE}\r\n"));
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("upgrade: warren-relay"), "{answer}");
    stream
}

#[test]
fn rl_06_rl_16_only_what_a_node_says_word_by_word_is_upgraded() {
    let stage = Stage::new();
    for (line, fields, status) in [
        ("GET /relay", "", 426),
        ("GET /relay", "Connection: Upgrade\r\nUpgrade: websocket\r\n", 426),
        ("GET /relay", "Connection: Upgrade, close\r\nUpgrade: warren-relay\r\n", 426),
        ("GET /relay", "Upgrade: warren-relay\r\n", 426),
        ("POST /relay", UPGRADE, 405),
        ("GET /relay", &format!("{UPGRADE}Origin: https://warren.example\r\n"), 403),
        ("GET /relay", &format!("{UPGRADE}Content-Length: 4\r\n"), 400),
        ("GET /relay", &format!("{UPGRADE}Transfer-Encoding: chunked\r\n"), 400),
        ("GET /api/v1/nodes", UPGRADE, 401),
    ] {
        let head = format!("{line} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        let (_, answer) = ask(&stage, &head);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{fields} {answer}");
    }
    let (_, answer) = ask(&stage, &format!("GET /relay HTTP/1.0\r\n{UPGRADE}\r\n"));
    assert!(!answer.contains(" 101 "), "{answer}");
}

#[test]
fn rl_05_who_proves_nothing_is_cut_after_10_s_and_holds_up_nobody() {
    let stage = Stage::new();
    let (a, b) = (join(&stage, "a"), join(&stage, "b"));
    let (mut one, mut two) = (a.connect(&stage), b.connect(&stage));
    let begin = Instant::now();
    let mut silent: Vec<Tls> = (0..32).map(|_| upgraded(&stage)).collect();
    // The places of this address are taken now: one more is let in, and its oldest is cut at once.
    let more = upgraded(&stage);
    let mut oldest = silent.remove(0);
    assert_eq!(oldest.read(&mut [0; 10]).unwrap_or(0), 0);
    assert!(begin.elapsed() < Duration::from_secs(9));
    silent.push(more);
    send(&mut one, b.public(), b"undisturbed");
    assert_eq!(receive(&mut two).1, b"undisturbed");
    // One byte a second is not enough.
    let slow = Arc::new(AtomicBool::new(true));
    let mut writer = silent[0].sock.try_clone().unwrap();
    let is_slow = Arc::clone(&slow);
    let dripping = std::thread::spawn(move || {
        while is_slow.load(Ordering::Relaxed) && writer.write_all(&[22]).is_ok() {
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    for stream in silent.iter_mut().rev() {
        assert_eq!(stream.read(&mut [0; 10]).unwrap_or(0), 0);
    }
    let cut = begin.elapsed();
    slow.store(false, Ordering::Relaxed);
    dripping.join().unwrap();
    assert!((9..13).contains(&cut.as_secs()), "{cut:?}");
    // What is no frame ends the connection of a member, too.
    let mut stream = rustls::Stream::new(&mut one.tls, &mut one.socket);
    stream.write_all(&[1, 0xff, 0xff]).unwrap();
    assert!(one.wait(soon(), |_| None::<()>).is_err());
    let again = a.connect(&stage);
    drop(again);
}

/// A relay of its own, and what tells it who is a member, as `warren relay` does.
struct Alone {
    relay: server::RelayServer,
    token: String,
}

impl Alone {
    fn start(stage: &Stage, folder: &Folder) -> Self {
        let config = server::RelayConfig {
            data: folder.0.clone(),
            listen: ([127, 0, 0, 1], 0).into(),
            quic: true,
            icmp: None,
            url: "https://127.0.0.1:1".parse().unwrap(),
            stun: vec![([127, 0, 0, 1], 0).into()],
            tls: None,
            acme: None,
        };
        let relay = server::RelayServer::start(&config).unwrap();
        let token = stage.api_token(&["relay:serve"]);
        Self { relay, token }
    }

    fn call(&self, stage: &Stage, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = self.ask(stage, Some(self.relay.private_key()), method, path, &body);
        assert_eq!(reply.status, 200, "{}", reply.body);
        serde_json::from_str(&reply.body).unwrap()
    }

    /// A call with the relay's token that proves this key, or one of the moment.
    fn ask(
        &self,
        stage: &Stage,
        key: Option<&PrivateKey>,
        method: &str,
        path: &str,
        body: &str,
    ) -> dial::ApiReply {
        let admin = Admin::remote(Some(stage.url()), &self.token, Proxies::default()).unwrap();
        let mut admin = match key {
            Some(key) => admin.proving(key.clone()),
            None => admin,
        };
        admin.call(method, path, body).unwrap()
    }

    /// Registers: its number.
    fn register(&self, stage: &Stage) -> u64 {
        let url = format!("https://{}", self.relay.address());
        let key = self.relay.public_key().to_string();
        let body = json!({ "url": url, "key": key, "stun": self.relay.stun() });
        self.call(stage, "POST", "/api/v1/relays", &body)["id"].as_u64().unwrap()
    }

    fn learn(&self, stage: &Stage) -> u64 {
        let answer = self.call(stage, "GET", "/api/v1/relays/members", &Value::Null);
        let keys = answer["keys"].as_array().unwrap();
        let keys = keys.iter().map(|key| key.as_str().unwrap().parse().unwrap()).collect();
        self.relay.set_members(keys, Duration::from_secs(24 * 3600));
        answer["version"].as_u64().unwrap()
    }
}

/// Asks a STUN server where we are.
fn mapped(server: &str) -> &'static str {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let transaction = [7; 12];
    socket.send_to(&stun::request(&transaction), server).unwrap();
    let mut answer = [0; 100];
    let len = socket.recv(&mut answer).unwrap();
    match stun::parse(&answer[..len]) {
        Ok(Message::Response(of, Some(at))) if of == transaction => {
            assert_eq!(at, socket.local_addr().unwrap());
            "it answers"
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn api_a_relay_with_too_many_or_bad_stun_addresses_is_refused() {
    let stage = Stage::new();
    for stun in [json!(["a:1", "b:1", "c:1"]), json!(["a:1\n"]), json!(["x".repeat(301)])] {
        let key = PublicKey([1; 32]).to_string();
        let body = json!({ "url": "https://h.example", "key": key, "stun": stun });
        let reply = stage.call("POST", "/api/v1/relays", &body, 400);
        assert!(reply["detail"].as_str().unwrap().contains("host:port"), "{reply}");
    }
}

#[test]
fn rl_14_a_relay_of_its_own_is_in_the_map_and_works_on_without_the_server() {
    let mut stage = Stage::new();
    let folder = Folder::new();
    let alone = Alone::start(&stage, &folder);
    let (mut a, b) = (join(&stage, "a"), join(&stage, "b"));
    let id = alone.register(&stage);
    assert_eq!((id, alone.register(&stage)), (1, 1), "one number for one key");
    // RL-17: who has the token and not the relay's key leads nobody elsewhere.
    let key = alone.relay.public_key().to_string();
    let evil = json!({ "url": "https://evil.example", "key": key }).to_string();
    let other = PrivateKey::generate(&mut SystemRandom);
    for key in [None, Some(&other)] {
        let reply = alone.ask(&stage, key, "POST", "/api/v1/relays", &evil);
        assert_eq!(reply.status, 403, "{}", reply.body);
    }
    let has_both = |map: &Map| map.relays.iter().map(|relay| relay.id).eq([0, 1]);
    if !a.node.map.as_deref().is_some_and(has_both) {
        a.node.until("two relays", |_, map| map.is_some_and(has_both));
    }
    let relay = a.node.map.as_ref().unwrap().relays[1].clone();
    assert_eq!(relay.key, alone.relay.public_key());
    assert_eq!(relay.stun, alone.relay.stun());
    assert_eq!(mapped(&relay.stun[0]), "it answers");
    let early = connect(&relay, &a.key, &Proxies::default(), Way::Own);
    assert!(matches!(early, Err(Failed::Refused(_))), "nobody before it knows the members");
    let version = alone.learn(&stage);
    let mut one = open(&relay, &a.key);
    let mut two = open(&relay, &b.key);
    send(&mut one, b.public(), b"by the other relay");
    assert_eq!(receive(&mut two), (a.public(), b"by the other relay".to_vec()));

    // RL-14: without the server it goes on, and lets members in that it knows.
    stage.server = None;
    let mut again = open(&relay, &b.key);
    send(&mut one, b.public(), b"still");
    assert_eq!(receive(&mut again).1, b"still");
    stage.restart();
    let path = format!("/api/v1/relays/members?after={version}");
    assert!(alone.call(&stage, "GET", &path, &Value::Null)["keys"].is_array(), "another epoch");
    // The books have it after a restart, until it is removed.
    let relays = stage.call("GET", "/api/v1/relays", &Value::Null, 200);
    assert_eq!(relays["relays"].as_array().unwrap().len(), 2);

    // RL-01: who is removed is cut when the relay hears of it.
    let id = b.node.map.as_ref().unwrap().me.id.0;
    stage.call("DELETE", &format!("/api/v1/nodes/{id}"), &Value::Null, 204);
    alone.learn(&stage);
    assert_eq!(last_word(&mut again), Some(Notice::NotMember));
    stage.call("DELETE", "/api/v1/relays/1", &Value::Null, 204);
    stage.call("DELETE", "/api/v1/relays/0", &Value::Null, 404);
}
