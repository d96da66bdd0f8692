//! Streams of the relay in WebSocket, with real nodes and with what is none.

use std::io::{Read, Write};

use dial::proxy::Proxies;
use dial::relay::{Way, connect};
use wire::relay::{Decoder, Frame};
use wire::websocket::{Head, Kind, Reader, Side, mask};

use crate::relay::{Joined, Tls, ask, join, receive, send, soon};
use crate::stage::Stage;

const KEY: [u8; 4] = [1, 2, 3, 4];
/// What a node asks with.
const UPGRADE: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: warren-relay\r\n";
const HELD: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

fn upgraded(stage: &Stage) -> Tls {
    let head = format!("GET /relay HTTP/1.1\r\nHost: x\r\n{UPGRADE}{HELD}\r\n");
    let (stream, answer) = ask(stage, &head);
    let answer = answer.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    assert!(answer.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{answer}");
    stream
}

/// A client's frame.
fn masked(kind: Kind, body: &[u8]) -> Vec<u8> {
    let mut bytes = Head::new(kind, body.len(), Some(KEY)).bytes().to_vec();
    let at = bytes.len();
    bytes.extend_from_slice(body);
    mask(&mut bytes[at..], KEY, 0);
    bytes
}

fn pass(from: &Joined, to: &Joined, stage: &Stage, ways: [Way; 2]) {
    let open = |joined: &Joined, way| {
        let relay = joined.relay(stage);
        let mut stream = connect(&relay, &joined.key, &Proxies::default(), way).unwrap();
        assert_eq!(stream.way(), way, "the first way is taken where it passes");
        stream.say(&Frame::Ping(&[0; 8]), soon()).unwrap();
        let pong = |frame: &Frame<'_>| matches!(frame, Frame::Pong(_)).then_some(());
        stream.wait(soon(), pong).unwrap();
        stream
    };
    let (mut one, mut two) = (open(from, ways[0]), open(to, ways[1]));
    for len in [1, 90, 1400, 60_000] {
        let datagram = vec![7; len];
        send(&mut one, to.public(), &datagram);
        assert_eq!(receive(&mut two), (from.public(), datagram.clone()));
        send(&mut two, from.public(), &datagram);
        assert_eq!(receive(&mut one), (to.public(), datagram));
    }
}

#[test]
fn source_000_5_1_rl_02_datagrams_cross_in_websocket_with_the_senders_true_key() {
    let stage = Stage::new();
    let (a, b) = (join(&stage, "a"), join(&stage, "b"));
    pass(&a, &b, &stage, [Way::WebSocket, Way::WebSocket]);
    pass(&a, &b, &stage, [Way::WebSocket, Way::Own]);
}

#[test]
fn rl_16_a_websocket_is_taken_as_a_node_asks_for_it_and_never_of_a_page() {
    let stage = Stage::new();
    let other = |one: &str, by: &str| UPGRADE.replace(one, by);
    for (fields, status) in [
        (UPGRADE.to_owned(), 426),
        (format!("{UPGRADE}Sec-WebSocket-Key: dGhl\r\n"), 426),
        (format!("{UPGRADE}{HELD}{HELD}"), 426),
        (other("13", "8") + HELD, 426),
        (other("warren-relay", "chat") + HELD, 426),
        (other("keep-alive, Upgrade", "keep-alive") + HELD, 426),
        (format!("{UPGRADE}{HELD}Origin: https://evil.example\r\n"), 403),
        (format!("{UPGRADE}{HELD}Content-Length: 4\r\n"), 400),
    ] {
        let (_, answer) = ask(&stage, &format!("GET /relay HTTP/1.1\r\nHost: x\r\n{fields}\r\n"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{fields} {answer}");
    }
}

#[test]
fn rl_18_a_ping_is_answered_and_what_is_no_websocket_is_cut() {
    let stage = Stage::new();
    let mut stream = upgraded(&stage);
    stream.write_all(&masked(Kind::Pong, b"unasked")).unwrap();
    let mut ping = masked(Kind::Pong, b"are you there");
    ping[0] = 0x89;
    stream.write_all(&ping).unwrap();
    let mut answer = [0; 2 + 13];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..2], [0x8a, 13]);
    assert_eq!(&answer[2..], b"are you there");
    stream.write_all(&masked(Kind::Close, &[])).unwrap();
    assert_eq!(stream.read(&mut [0; 10]).unwrap_or(0), 0, "it has said that nothing follows");
    let mut unmasked = masked(Kind::Binary, b"x");
    unmasked[1] &= 0x7f;
    let mut text = masked(Kind::Binary, b"x");
    text[0] = 0x81;
    for bad in [unmasked, text, vec![0xff; 16]] {
        let mut stream = upgraded(&stage);
        stream.write_all(&bad).unwrap();
        assert_eq!(stream.read(&mut [0; 10]).unwrap_or(0), 0, "{bad:?}");
    }
}

#[test]
fn who_is_refused_in_websocket_is_told_in_it_and_sees_a_close() {
    let stage = Stage::new();
    let a = join(&stage, "a");
    let relay = a.relay(&stage);
    let mut old = connect(&relay, &a.key, &Proxies::default(), Way::WebSocket).unwrap();
    old.say(&Frame::Ping(&[0; 8]), soon()).unwrap();
    let _new = a.connect(&stage);
    // Read by hand, since a node looks no further than the notice.
    let mut bytes = Vec::new();
    let mut stream = rustls::Stream::new(&mut old.tls, &mut old.socket);
    let _ = stream.read_to_end(&mut bytes);
    let mut reader = Reader::new(Side::Server);
    let len = reader.open(&mut bytes).unwrap();
    let mut decoder = Decoder::default();
    decoder.push(&bytes[..len]);
    let mut notices = 0;
    while let Some(place) = decoder.poll_frame().unwrap() {
        notices += usize::from(matches!(decoder.frame(&place), Frame::Notice(_)));
    }
    assert_eq!((notices, reader.is_closed()), (1, true));
}
