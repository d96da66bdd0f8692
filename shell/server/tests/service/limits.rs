//! What a stranger can make the server hold: nothing much.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::client::Trouble;
use control::{Code, Event};
use dial::http::Connection;
use dial::proxy::Proxies;
use noise::PrivateKey;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::{Value, json};

use crate::stage::Stage;

pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

pub(crate) fn connect(stage: &Stage) -> Tls {
    let tcp = TcpStream::connect(stage.address).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    tcp.set_write_timeout(Some(Duration::from_secs(15))).unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let client = ClientConnection::new(Arc::clone(&dial::tls::config()), name).unwrap();
    StreamOwned::new(client, tcp)
}

/// All that is answered until the server closes.
pub(crate) fn rest(stream: &mut Tls) -> String {
    let mut answer = Vec::new();
    // A server that closes while we send resets the connection; what it said before counts.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Resident memory of this process, in which the server runs, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn co_11_a_body_of_10_gib_is_refused_before_it_is_read() {
    let stage = Stage::new();
    let token = stage.api_token(&["policy:write"]);
    let bearer = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
    let before = resident_kib();
    for (request, fields, expected) in [
        ("POST /control/open", "", "413"),
        ("POST /control/ask", "", "413"),
        ("PUT /api/v1/policy", "", "401"),
        ("PUT /api/v1/policy", bearer.as_str(), "413"),
    ] {
        for framing in ["Content-Length: 10737418240", "Transfer-Encoding: chunked"] {
            let mut stream = connect(&stage);
            let head = format!("{request} HTTP/1.1\r\nHost: x\r\n{fields}{framing}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            let chunk = [b"100000\r\n", &vec![b'x'; 1 << 20][..], b"\r\n"].concat();
            let mut sent = 0_u64;
            while sent < 10 << 30 && stream.write_all(&chunk).is_ok() {
                sent += chunk.len() as u64;
            }
            let answer = rest(&mut stream);
            let first = answer.lines().next().unwrap_or_default();
            let is_told = first.is_empty() || first.contains(expected);
            assert!(is_told, "{request} {framing}: {first}");
            assert!(sent < 64 << 20, "{request} {framing}: {sent} bytes were taken");
        }
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB");
    // And one that tells before it sends is told so.
    let mut stream = connect(&stage);
    let head = format!(
        "PUT /api/v1/policy HTTP/1.1\r\nHost: x\r\n{bearer}Content-Length: 10737418240\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let answer = rest(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(
        answer.contains("application/problem+json") && answer.contains("too large"),
        "{answer}"
    );
}

#[test]
fn co_11_slow_heads_slow_bodies_and_silence_are_cut_after_10_s() {
    let stage = Stage::new();
    let begin = Instant::now();
    let plain = TcpStream::connect(stage.address).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    let mut slow_head = connect(&stage);
    slow_head.write_all(b"GET /api/v1/health HTTP/1.1\r\nHost: x\r\n").unwrap();
    let mut slow_body = connect(&stage);
    slow_body
        .write_all(b"POST /control/ask HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n1")
        .unwrap();
    let mut idle = connect(&stage);
    idle.flush().unwrap();
    // Drops of water do not help.
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(1500));
        let _ = slow_head.write_all(b"A: b\r\n").and_then(|()| slow_head.flush());
        let _ = slow_body.write_all(b"1").and_then(|()| slow_body.flush());
    }
    assert_eq!((&plain).read(&mut [0]).unwrap_or(0), 0, "a handshake that does not come");
    rest(&mut slow_head);
    let answer = rest(&mut slow_body);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    rest(&mut idle);
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(14), "{took:?}");
}

#[test]
fn co_11_500_connections_that_say_nothing_hold_nobody_up() {
    let stage = Stage::new();
    let _silent: Vec<_> = (0..500).map(|_| TcpStream::connect(stage.address).unwrap()).collect();
    let begin = Instant::now();
    let mut connection = Connection::open(&stage.url(), &Proxies::default()).unwrap();
    let wait = Duration::from_secs(9);
    let answer = connection.request(("GET", "/api/v1/health"), &[], b"", 1000, wait).unwrap();
    println!("answered in {:?} beside 500 silent connections", begin.elapsed());
    assert_eq!(answer.status, 200);
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[test]
fn co_11_who_asks_and_does_not_read_is_cut() {
    let stage = Stage::new();
    let text = format!("{{}} // {}", "x".repeat(1 << 19));
    stage.call("PUT", "/api/v1/policy", &json!({ "text": text }), 200);
    let token = stage.api_token(&["policy:read"]);
    let head =
        format!("GET /api/v1/policy HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
    let mut greedy = connect(&stage);
    greedy.write_all(head.repeat(60).as_bytes()).unwrap();
    greedy.flush().unwrap();
    std::thread::sleep(Duration::from_secs(12));
    greedy.sock.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let (mut got, mut buffer) = (0, vec![0; 1 << 16]);
    let end = loop {
        match greedy.read(&mut buffer) {
            Ok(0) => break "closed".to_owned(),
            Ok(len) => got += len,
            Err(error) => break error.kind().to_string(),
        }
    };
    println!("{} KiB of {} were taken, then: {end}", got >> 10, 60 << 9);
    assert!(got < 50 << 19 && !end.contains("would block") && !end.contains("timed out"), "{end}");
    // One that reads slowly gets all of it.
    let mut slow = connect(&stage);
    slow.write_all(head.as_bytes()).unwrap();
    let mut got = 0;
    while got < 1 << 19 {
        got += slow.read(&mut buffer[..8 << 10]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn wb_08_co_11_a_token_in_a_loop_and_a_source_that_guesses_are_slowed() {
    let stage = Stage::new();
    let (token, other) = (stage.api_token(&["nodes:read"]), stage.api_token(&["nodes:read"]));
    let mut connection = Connection::open(&stage.url(), &Proxies::default()).unwrap();
    let mut get = |token: &str| {
        let bearer = format!("Bearer {token}");
        let (fields, wait) = ([("Authorization", bearer.as_str())], Duration::from_secs(9));
        let target = ("GET", "/api/v1/nodes");
        match connection.request(target, &fields, b"", 1 << 16, wait) {
            Ok(answer) if answer.status == 200 => 200,
            // After a refusal the server closes.
            Ok(answer) => {
                connection = Connection::open(&stage.url(), &Proxies::default()).unwrap();
                answer.status
            }
            Err(error) => panic!("{error}"),
        }
    };
    let begin = Instant::now();
    let earned = |per_s: f64| (begin.elapsed().as_secs_f64() * per_s) as usize + 1;
    let answers: Vec<u16> = (0..1000).map(|_| get(&token)).collect();
    let good = answers.iter().filter(|&&status| status == 200).count();
    assert!((200..=200 + earned(20.0)).contains(&good), "{good} calls");
    assert!(answers.iter().all(|status| [200, 429].contains(status)), "{answers:?}");
    assert_eq!(get(&other), 200, "another token is not slowed");
    let wrong = (0..1000).take_while(|_| get("warren-api-x") == 401).count();
    assert!((256..=256 + earned(1.0)).contains(&wrong), "{wrong} guesses");
    // A second later one more guess is looked at, and then nothing again.
    let is_shut = (0..5).any(|_| get("warren-api-x") == 429 && get(&other) == 429);
    assert!(is_shut, "nor is anything of this source looked at for a while");
    stage.call("GET", "/api/v1/nodes", &Value::Null, 200);
}

#[test]
fn heads_are_bounded_and_rubbish_is_answered_with_a_status() {
    let stage = Stage::new();
    let long = "x".repeat(20_000);
    let many = "A: b\r\n".repeat(100);
    for (head, statuses) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"), &["414", "431"][..]),
        (format!("GET / HTTP/1.1\r\nHost: x\r\nA: {long}\r\n\r\n"), &["431"]),
        (format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n"), &["431"]),
        ("\u{1}\u{2}\r\n\r\n".to_owned(), &["400"]),
        ("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".to_owned(), &["400"]),
        ("GET /api/v1/health HTTP/1.0\r\n\r\n".to_owned(), &["200"]),
        (
            "GET /api/v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(),
            &["200"],
        ),
    ] {
        let mut stream = connect(&stage);
        stream.write_all(head.as_bytes()).unwrap();
        let answer = rest(&mut stream);
        let status = answer.get(9..12).unwrap_or_default();
        assert!(statuses.contains(&status), "{:.60}: {answer:.80}", head.escape_debug());
    }
}

#[test]
fn messages_that_are_none_are_refused_outside_the_channel() {
    let stage = Stage::new();
    let mut connection = Connection::open(&stage.url(), &Proxies::default()).unwrap();
    let mut post = |path, body: &[u8]| {
        let wait = Duration::from_secs(9);
        connection.request(("POST", path), &[], body, 1000, wait).unwrap().status
    };
    assert_eq!(post("/control/open", &[7; 96]), 400);
    assert_eq!(post("/control/open", &[7; 95]), 400);
    assert_eq!(post("/control/ask", &[]), 400);
    assert_eq!(post("/control/ask", &[7; 23]), 400);
    assert_eq!(post("/control/ask", &[7; 24]), 410);
    assert_eq!(post("/control/ask", &[7; 4000]), 410);
    assert_eq!(post("/control/else", &[]), 404);
}

#[test]
fn wb_02_wb_03_no_answer_can_be_framed_kept_or_guessed_at() {
    let stage = Stage::new();
    for path in ["/api/v1/health", "/api/v1/nodes", "/nowhere", "/control/open"] {
        let mut stream = connect(&stage);
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let answer = rest(&mut stream).to_lowercase();
        for field in [
            "cache-control: no-store",
            "x-content-type-options: nosniff",
            "content-security-policy: default-src 'none'; frame-ancestors 'none'",
            "x-frame-options: deny",
        ] {
            assert!(answer.contains(field), "{path}: {field} is not in {answer}");
        }
    }
    let hostile = "<script>alert(1)</script>";
    let token = stage.token(&json!({}));
    let mut node = stage.node(&token, hostile);
    node.until_enrolled();
    let nodes = stage.call("GET", "/api/v1/nodes", &Value::Null, 200);
    assert_eq!(nodes["nodes"][0]["name"], "script-alert-1-script", "CO-19");
    assert_eq!(nodes["nodes"][0]["hostname"], hostile, "as data, never as markup");
}

#[test]
fn co_11_a_member_in_a_loop_is_told_to_wait_and_holds_up_nobody() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let (mut greedy, mut honest) = (stage.node(&token, "greedy"), stage.node(&token, "honest"));
    greedy.until_peers(&["honest"]);
    honest.until_peers(&["greedy"]);
    let keys: Vec<_> =
        (0..20).map(|_| PrivateKey::generate(&mut dial::SystemRandom).public()).collect();
    let log = || {
        let entries = stage.call("GET", "/api/v1/audit?limit=1000", &Value::Null, 200);
        let entries = entries["entries"].as_array().unwrap().clone();
        entries.iter().filter(|entry| entry["action"] == "node.rotate").count()
    };
    let mut taken = 0;
    for key in &keys {
        greedy.membership.rotate(*key);
        let is_answer = |event: &Event| is_busy(event) || *event == Event::Rotated(*key);
        greedy.until("an answer", |event, _| is_answer(event));
        if greedy.last.as_ref().is_some_and(|news| is_busy(&news.event)) {
            break;
        }
        taken += 1;
    }
    assert!((8..=9).contains(&taken), "{taken} keys at once");
    assert!((8..=9).contains(&log()), "{} entries of the log", log());
    // Another hears of what is new meanwhile, and may do what it may.
    let fresh = PrivateKey::generate(&mut dial::SystemRandom).public();
    honest.membership.rotate(fresh);
    honest.until("its own key", |event, _| *event == Event::Rotated(fresh));
}

fn is_busy(event: &Event) -> bool {
    matches!(event, Event::Trouble(Trouble::Refused(refusal)) if refusal.code == Code::Busy)
}
