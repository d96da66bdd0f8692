//! What programs of version 0.1.0 say to each other, as it was recorded, and what later ones will
//! say that nobody knows yet (threat LC-17).
//!
//! A record is a line: what it is, and its text. It is understood as it was meant, and what is said
//! today for the same has at least all of it, so that the program of the record understands that,
//! too: it passes over fields that it does not know. A record is never changed; what a later
//! version says for the first time gets a record of its own.

#![expect(clippy::unwrap_used, clippy::disallowed_macros, reason = "all of it is tests")]

use std::net::{IpAddr, SocketAddr};

use control::{
    Answer, ApiAnswer, ApiRequest, Code, Delta, Dns, Enrol, Enrolled, Envelope, Hello, HostInfo,
    Kind, Map, NodeId, Peer, Policy, Poll, Prefix, Relay, Request, Secret, SecretId, SelfNode,
    ServerUrl, Signed, SigningKey, Statement, Token, VERSION, VerifyingKey, WireSecret,
};
use noise::PublicKey;
use serde::Serialize;
use serde_json::{Value, json};

const RECORD: &str = include_str!("recorded/0.1.0.txt");
/// The seed of the key that signed what was recorded.
const SEED: [u8; 32] = [5; 32];

fn host() -> HostInfo {
    HostInfo {
        hostname: "robot".to_owned(),
        os: "Linux 6.1".to_owned(),
        program: "warren 0.1.0".to_owned(),
        endpoints: places(),
        routes: vec![prefix("10.7.0.0/16"), prefix("fd07::/64")],
        aliases: Vec::new(),
        down: Vec::new(),
        relay: Some(3),
    }
}

fn places() -> Vec<SocketAddr> {
    ["192.0.2.7:41820", "[2001:db8::7]:41820"].map(|text| text.parse().unwrap()).to_vec()
}

fn addresses() -> Vec<IpAddr> {
    ["100.64.0.2", "fd00::2"].map(|text| text.parse().unwrap()).to_vec()
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn urls() -> Vec<ServerUrl> {
    ["https://vpn.example", "https://[2001:db8::1]:8443"].map(|url| url.parse().unwrap()).to_vec()
}

fn requests() -> Vec<Request> {
    let secret = || WireSecret([4; 16]);
    vec![
        Request::Enrol(Enrol { id: [3; 8], secret: secret(), host: host() }),
        Request::Poll(Poll { epoch: 1_800_000_000, sequence: 7, wait_ms: 30_000, bare: false }),
        Request::Report(host()),
        Request::Rotate { new_key: PublicKey([2; 32]) },
        Request::Logout,
        Request::Api(ApiRequest {
            method: "PUT".to_owned(),
            path: "/api/v1/policy?x=1".to_owned(),
            id: [3; 8],
            secret: secret(),
            body: "{\"text\":\"{}\"}".to_owned(),
        }),
    ]
}

fn peer() -> Peer {
    Peer {
        addresses: addresses(),
        endpoints: places(),
        relay: Some(3),
        tags: vec!["tag:robot".to_owned()],
        routes: vec![prefix("10.8.0.0/16")],
        online: true,
        expires_unix_s: Some(1_900_000_000),
        ..Peer::new(NodeId(2), "robot", PublicKey([2; 32]))
    }
}

fn map() -> Map {
    let relay = |id, stun: &[&str], quic| Relay {
        id,
        url: urls()[0].clone(),
        key: PublicKey([6; 32]),
        stun: stun.iter().map(|text| (*text).to_owned()).collect(),
        quic,
        icmp: false,
    };
    let me = SelfNode {
        addresses: vec![IpAddr::from([100, 64, 0, 1])],
        tags: vec!["tag:a".to_owned()],
        routes: vec![prefix("10.7.0.0/16")],
        expires_unix_s: Some(1_900_000_000),
        ..SelfNode::new(NodeId(1), "dev")
    };
    Map {
        sequence: 7,
        made_unix_s: 1_800_000_000,
        peers: vec![peer(), Peer::new(NodeId(3), "bare", PublicKey([3; 32]))],
        ranges: vec![prefix("100.64.0.0/10"), prefix("fd00::/48")],
        dns: Dns {
            domain: "warren.internal".to_owned(),
            resolvers: vec![IpAddr::from([192, 0, 2, 53])],
            zones: vec![("corp.example".to_owned(), vec![IpAddr::from([10, 7, 0, 53])])],
            records: Vec::new(),
        },
        policy: Policy { version: 4, rules: "rules".to_owned() },
        relays: vec![relay(0, &[], false), relay(3, &["vpn.example:3478"], true)],
        stun: vec!["vpn.example:3478".to_owned()],
        ..Map::new(PublicKey([9; 32]), 1_800_000_000, me)
    }
}

fn delta() -> Delta {
    let map = map();
    Delta {
        upsert: vec![peer()],
        remove: vec![NodeId(3)],
        policy: Some(Policy { version: 5, rules: String::new() }),
        me: Some(map.me.clone()),
        ..map.delta(9, 1_800_000_001)
    }
}

fn answers() -> Vec<Answer> {
    let enrolled = Enrolled { node: 7, name: "robot".to_owned(), approved: false };
    let key = SigningKey::from_seed(&SEED).unwrap();
    let mut all = vec![
        Answer::Enrolled(enrolled),
        Answer::News { signed: key.sign(text(&Statement::Map(Box::new(map())))) },
        Answer::Unchanged,
        Answer::Done,
        Answer::Api(ApiAnswer { status: 201, body: "{}".to_owned() }),
    ];
    let codes = [
        Code::KeyUnknown,
        Code::KeyUsed,
        Code::KeyExpired,
        Code::KeyRevoked,
        Code::NotEnrolled,
        Code::Expired,
        Code::WrongKey,
        Code::Invalid,
        Code::Full,
        Code::Busy,
    ];
    all.extend(codes.map(|code| Answer::refused(code, "why")));
    all
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

/// What is said today, in the order of the record.
fn samples() -> Vec<(&'static str, String)> {
    let verifying = SigningKey::from_seed(&SEED).unwrap().verifying();
    let hello = Hello { version: VERSION, channel: [1; 16], verifying, now_unix_s: 1_800_000_000 };
    let mut all = vec![("hello", text(&hello))];
    let envelope = |request| Envelope { version: VERSION, node_key: PublicKey([1; 32]), request };
    all.extend(requests().into_iter().map(|request| ("request", text(&envelope(request)))));
    all.extend(answers().iter().map(|answer| ("answer", text(answer))));
    all.push(("statement", text(&Statement::Map(Box::new(map())))));
    all.push(("statement", text(&Statement::Delta(Box::new(delta())))));
    for (name, kind) in [("join-token", Kind::Join), ("api-token", Kind::Api)] {
        let (id, secret) = (SecretId([3; 8]), Secret([4; 16]));
        let token = Token { kind, server: PublicKey([8; 32]), urls: urls(), id, secret };
        all.push((name, token.print()));
    }
    all
}

/// A text of the record as it is said again once it was understood.
fn understood(kind: &str, said: &str) -> Option<String> {
    let bytes = said.as_bytes();
    Some(match kind {
        "hello" => text(&serde_json::from_slice::<Hello>(bytes).ok()?),
        "request" => text(&Envelope::read(bytes).ok()?),
        "answer" => text(&Answer::read(bytes).ok()?),
        "statement" => {
            let statement = Statement::read(said).ok()?;
            if let Statement::Map(map) = &statement {
                map.check().ok()?;
            }
            text(&statement)
        }
        "join-token" => Token::parse(said, Kind::Join).ok()?.print(),
        "api-token" => Token::parse(said, Kind::Api).ok()?.print(),
        _ => return None,
    })
}

fn records() -> impl Iterator<Item = (&'static str, &'static str)> {
    RECORD.lines().map(|line| line.split_once(' ').unwrap())
}

/// Whether `now` has everything that `then` has, in the same places.
fn has_all(now: &Value, then: &Value) -> bool {
    match (now, then) {
        (Value::Object(now), Value::Object(then)) => {
            then.iter().all(|(name, then)| now.get(name).is_some_and(|now| has_all(now, then)))
        }
        (Value::Array(now), Value::Array(then)) => {
            now.len() == then.len() && now.iter().zip(then).all(|(now, then)| has_all(now, then))
        }
        _ => now == then,
    }
}

fn says_as_much(now: &str, then: &str) -> bool {
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| json!(text));
    has_all(&value(now), &value(then))
}

/// A token without the digits that it begins with since, which lists show: the one thing that 0.1.0
/// does not read (CHANGELOG).
fn without_digits(now: &str) -> String {
    for kind in ["warren-join-", "warren-api-", "warren-auth-"] {
        if let Some((digits, rest)) = now.strip_prefix(kind).and_then(|rest| rest.split_once('-'))
            && digits.len() == 8
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        {
            return format!("{kind}{rest}");
        }
    }
    now.to_owned()
}

#[test]
#[ignore = "prints what today's program says, for the record of a new version"]
fn prints_what_is_to_be_recorded() {
    for (kind, said) in samples() {
        println!("{kind} {said}");
    }
}

#[test]
fn lc_17_what_0_1_0_said_is_understood_and_what_is_said_today_has_all_of_it() {
    let samples = samples();
    assert_eq!(records().count(), samples.len());
    for ((kind, then), (_, now)) in records().zip(&samples) {
        let again = understood(kind, then).unwrap_or_else(|| panic!("not understood: {then}"));
        assert_eq!(&again, now, "{kind} means something else now");
        let now = without_digits(now);
        assert!(says_as_much(&now, then), "0.1.0 would miss something: {now} for {then}");
    }
}

#[test]
fn lc_17_signatures_of_0_1_0_are_good() {
    let key = VerifyingKey(SigningKey::from_seed(&SEED).unwrap().verifying().0);
    let news = records().find(|(kind, said)| *kind == "answer" && said.contains("signed"));
    let Ok(Answer::News { signed }) = Answer::read(news.unwrap().1.as_bytes()) else {
        panic!("it is a map");
    };
    let text = signed.verify(&key).unwrap();
    assert_eq!(Statement::read(text).unwrap(), Statement::Map(Box::new(map())));
    let kept = serde_json::to_string(std::slice::from_ref(&signed)).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Signed>>(&kept).unwrap(), [signed]);
}

/// Puts fields of a later version into every object.
fn with_more(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(with_more);
            fields.insert("of-tomorrow".to_owned(), json!({ "x": [1, null, "y"] }));
        }
        Value::Array(list) => list.iter_mut().for_each(with_more),
        _ => {}
    }
}

#[test]
fn lc_17_fields_of_a_later_version_are_passed_over_everywhere() {
    let mut objects = 0;
    for (kind, said) in records() {
        let Ok(mut value) = serde_json::from_str::<Value>(said) else { continue };
        with_more(&mut value);
        let more = value.to_string();
        objects += more.matches("of-tomorrow").count();
        assert_eq!(understood(kind, &more), understood(kind, said), "{kind} {more}");
    }
    assert!(objects > 40, "{objects} objects");
}

#[test]
fn lc_17_what_is_new_altogether_is_told_and_not_guessed() {
    let request = r#"{"version":1,"node_key":"AQ==","request":{"do":"dance"}}"#;
    assert!(Envelope::read(request.as_bytes()).is_err());
    let (_, poll) = records().find(|(_, said)| said.contains("\"poll\"")).unwrap();
    let later = poll.replace("\"version\":1", "\"version\":2");
    let why = Envelope::read(later.as_bytes()).unwrap_err().to_string();
    assert!(why.contains("version 2") && why.contains("knows 1"), "{why}");
    assert!(Answer::read(br#"{"is":"of-tomorrow"}"#).is_err());
    assert!(Statement::read(r#"{"kind":"of-tomorrow"}"#).is_err());
    let code = Answer::read(br#"{"is":"refused","code":"of-tomorrow","detail":"why"}"#).unwrap();
    assert_eq!(code, Answer::refused(Code::Unknown, "why"));
    assert!(Code::Unknown.is_transient(), "it is asked again, and nothing is thrown away");
}
