//! What nodes and the coordination service tell each other, before and after they trust each other:
//! tokens and URLs that people paste, the channel's messages, what is said in it, and maps.

use std::sync::LazyLock;

use control::channel::{self, Channel};
use control::limits::{ANSWER_BYTES_MAX, ENDPOINTS_MAX, HOSTNAME_BYTES_MAX, ROUTES_MAX};
use control::{
    Alias, Answer, Delta, Dns, Enrol, Envelope, HostInfo, Kind, Map, NodeId, Peer, Policy, Poll,
    Prefix, Relay, Request, SelfNode, ServerUrl, Statement, Token, VERSION, WireSecret,
};
use noise::{PrivateKey, PublicKey};

use crate::Seeded;

/// Text that somebody pasted: what is read can be printed and read again, and the reason why not is
/// one line (threat HO-04: without what was pasted).
pub fn token(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for kind in [Kind::Join, Kind::Api] {
        match Token::parse(text, kind) {
            Ok(token) => {
                let printed = token.print();
                let again = Token::parse(&printed, kind).expect("it was printed by us");
                assert_eq!(again.print(), printed);
                assert_eq!(printed, text.trim(), "a token has one form");
            }
            Err(why) => assert!(!why.to_string().contains(char::is_control), "{why}"),
        }
    }
    if let Ok(url) = text.parse::<ServerUrl>() {
        assert_eq!(url.to_string().parse(), Ok(url.clone()));
        assert!(url.authority().bytes().all(|b| b.is_ascii_graphic() && b != b'/'), "{url}");
    }
    if let Ok(prefix) = text.parse::<Prefix>() {
        assert_eq!(prefix.to_string().parse(), Ok(prefix));
    }
}

/// What is said inside a channel: refused, or within its bounds and the same when it is said again.
pub fn message(data: &[u8]) {
    if let Ok(envelope) = Envelope::read(data) {
        let printed = envelope.print();
        let again = Envelope::read(&printed).expect("it was printed by us");
        assert_eq!(again.print(), printed);
        if let Request::Report(host) = &envelope.request {
            assert!(host.hostname.len() <= HOSTNAME_BYTES_MAX);
            assert!(host.endpoints.len() <= ENDPOINTS_MAX && host.routes.len() <= ROUTES_MAX);
            assert!(!format!("{}{}", host.os, host.program).contains(char::is_control));
        }
    }
    if let Ok(answer) = Answer::read(data) {
        assert_eq!(Answer::read(&answer.print()), Ok(answer));
    }
}

fn peer(id: u64) -> Peer {
    Peer {
        addresses: vec![[100, 64, 0, id as u8].into()],
        endpoints: vec!["192.0.2.7:41641".parse().expect("an address")],
        relay: Some(0),
        tags: vec!["tag:robot".to_owned()],
        routes: vec!["10.7.0.0/16".parse().expect("a prefix")],
        online: true,
        ..Peer::new(NodeId(id), format!("robot-{id}"), PublicKey([id as u8; 32]))
    }
}

fn base() -> Map {
    let addresses = vec![[100, 64, 0, 1].into()];
    let me = SelfNode { addresses, expires_unix_s: Some(9), ..SelfNode::new(NodeId(1), "dev") };
    let url = "https://vpn.example".parse().expect("a URL");
    Map {
        sequence: 7,
        made_unix_s: 8,
        peers: vec![peer(2), peer(3)],
        ranges: vec!["100.64.0.0/10".parse().expect("a prefix")],
        dns: Dns { domain: "warren.internal".to_owned(), ..Dns::default() },
        relays: vec![Relay {
            id: 0,
            url,
            key: PublicKey([9; 32]),
            stun: vec!["h:3478".to_owned()],
            quic: true,
            icmp: true,
        }],
        stun: vec!["vpn.example:3478".to_owned()],
        ..Map::new(PublicKey([1; 32]), 4, me)
    }
}

fn delta() -> Delta {
    let map = base();
    let delta = map.delta(map.sequence + 2, 9);
    Delta {
        me: Some(map.me),
        upsert: vec![Peer { online: false, ..peer(2) }, peer(5)],
        remove: vec![NodeId(3)],
        policy: Some(Policy { version: 1, rules: String::new() }),
        ..delta
    }
}

/// A map or a delta: a good map is the same when it is told again; a delta changes all that it
/// says of a map, or nothing, and a good map stays one.
pub fn map(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else { return };
    match Statement::read(text) {
        Ok(Statement::Map(map)) => {
            if map.check().is_ok() {
                let text = serde_json::to_string(&map).expect("its keys are text");
                assert_eq!(serde_json::from_str::<Map>(&text).expect("it was a map"), *map);
            }
        }
        Ok(Statement::Delta(delta)) => change(&delta),
        Err(_) => {}
    }
}

fn change(delta: &Delta) {
    let before = base();
    let mut map = base();
    if map.apply(delta.clone()).is_err() {
        assert_eq!(map, before, "what is refused changes nothing");
        return;
    }
    map.check().expect("a good map and a good delta are a good map");
    assert_eq!((map.sequence, map.epoch), (delta.to, before.epoch));
    for peer in &delta.upsert {
        assert_eq!(map.peer(peer.id), Some(peer));
    }
    for id in &delta.remove {
        assert!(map.peer(*id).is_none() || delta.upsert.iter().any(|peer| peer.id == *id));
    }
    assert!(map.apply(delta.clone()).is_err(), "a delta is taken once");
}

/// A machine and a server that agreed, with one message sealed.
struct Agreed {
    server: PrivateKey,
    machine: PrivateKey,
    opening: Vec<u8>,
    answer: Vec<u8>,
    sealed: Vec<u8>,
    receiver: Channel,
}

static AGREED: LazyLock<Agreed> = LazyLock::new(|| {
    let mut random = Seeded(7);
    let [server, machine] = [1, 2].map(|_| PrivateKey::generate(&mut random));
    let opened = channel::open(&machine, &server.public(), &mut random);
    let (opening, state) = opened.expect("the keys are good");
    let accepted = channel::accept(&server, &opening, b"welcome", &mut random);
    let (answer, receiver, _) = accepted.expect("it was made for this server");
    let (sender, _) = state.finish(&answer).expect("it is the server's");
    let sealed = sender.seal(9, &[b'x'; 3000]).expect("a number that is allowed");
    Agreed { server, machine, opening, answer, sealed, receiver }
});

/// Messages of the channel, by the first byte: whatever is not byte for byte what was sealed is
/// refused, whoever made it (threat CO-12).
pub fn channel(data: &[u8]) {
    let Some((which, bytes)) = data.split_first() else { return };
    let agreed = &*AGREED;
    let (is_taken, is_real) = match which % 4 {
        0 => {
            let accepted = channel::accept(&agreed.server, bytes, b"", &mut Seeded(1));
            if let Ok((_, _, machine)) = &accepted {
                assert_eq!(*machine, agreed.machine.public());
            }
            (accepted.is_ok(), bytes == agreed.opening)
        }
        1 => {
            // The same randomness makes the same opening, to be finished by any answer.
            let mut random = Seeded(7);
            let again = [1, 2].map(|_| PrivateKey::generate(&mut random));
            let server: PublicKey = again[0].public();
            let opened = channel::open(&again[1], &server, &mut random);
            let (_, state) = opened.expect("the keys are good");
            (state.finish(bytes).is_ok(), bytes == agreed.answer)
        }
        2 => {
            let received = agreed.receiver.receive(9, bytes, ANSWER_BYTES_MAX);
            assert!(received.as_ref().map_or(true, |plain| *plain == [b'x'; 3000]));
            (received.is_ok(), bytes == agreed.sealed)
        }
        _ => (channel::read_relay(&agreed.server, bytes).is_ok(), false),
    };
    assert_eq!(is_taken, is_real);
}

fn said(request: Request) -> String {
    let envelope = Envelope { version: VERSION, node_key: PublicKey([3; 32]), request };
    String::from_utf8(envelope.print()).expect("JSON is text")
}

pub(crate) fn seeds(target: &str) -> Vec<Vec<u8>> {
    let text = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    match target {
        "token" => {
            let url: ServerUrl = "https://vpn.example:8443".parse().expect("a URL");
            let key = PrivateKey::generate(&mut Seeded(3)).public();
            let make = |kind, urls| Token::generate(kind, key, urls, &mut Seeded(5)).print();
            let other: ServerUrl = "https://[2001:db8::1]".parse().expect("a URL");
            text(&[
                &make(Kind::Join, &[url.clone(), other]),
                &make(Kind::Api, &[url]),
                "https://a.example",
                "https://[2001:db8::1]:44",
                "100.64.0.0/10",
                "fd00::/48",
            ])
        }
        "message" => text(&[
            &said(Request::Report(HostInfo {
                hostname: "dev".to_owned(),
                os: "Linux".to_owned(),
                program: "warren 0.1.0".to_owned(),
                endpoints: vec!["192.0.2.7:41641".parse().expect("an address")],
                routes: vec!["10.7.0.0/16".parse().expect("a prefix")],
                aliases: vec![Alias {
                    prefix: "10.9.0.0/16".parse().expect("a prefix"),
                    alias: "10.7.0.0/16".parse().expect("a prefix"),
                }],
                down: vec!["10.7.0.0/16".parse().expect("a prefix")],
                relay: Some(0),
            })),
            &said(Request::Enrol(Enrol {
                id: [1; 8],
                secret: WireSecret([2; 16]),
                host: HostInfo::default(),
            })),
            &said(Request::Poll(Poll { epoch: 1, sequence: 2, wait_ms: 3, bare: true })),
            &said(Request::Rotate { new_key: PublicKey([4; 32]) }),
            r#"{"is":"refused","code":"key-used","detail":"it was used"}"#,
            r#"{"is":"enrolled","node":7,"name":"robot","approved":true}"#,
            r#"{"is":"api","status":200,"body":"{}"}"#,
        ]),
        "map" => {
            let statements =
                [Statement::Map(Box::new(base())), Statement::Delta(Box::new(delta()))];
            statements.iter().map(|s| serde_json::to_vec(s).expect("its keys are text")).collect()
        }
        "channel" => {
            let agreed = &*AGREED;
            let with = |which: u8, bytes: &[u8]| [&[which], bytes].concat();
            vec![
                with(0, &agreed.opening),
                with(1, &agreed.answer),
                with(2, &agreed.sealed),
                with(3, &agreed.opening),
            ]
        }
        _ => unreachable!("no target named {target}"),
    }
}
