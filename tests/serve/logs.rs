//! What strangers and members say does not become lines of the server's log (threat HO-03).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use dial::Admin;
use serde_json::json;

use super::*;

/// A line that would be taken for one of ours, and what a terminal would obey.
const FORGED: &str = "x\r\n2001-01-01T00:00:00Z ERROR forged\u{1b}[2J\u{9b}31m\u{7}\u{0}";

/// Sends bytes and takes whatever is answered, or nothing.
fn say(mut stream: impl Read + Write, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
    let _ = stream.read(&mut [0; 4096]);
}

/// Asks to join with this of itself, and waits for what is said to it.
fn joins(token: &Token, host: HostInfo) {
    let member = join_as(token, host);
    until(&member, "an answer", |event, _| {
        matches!(event, Event::Enrolled(_) | Event::Ended(_) | Event::Trouble(_))
    });
}

#[test]
fn ho_03_nothing_that_anybody_says_forges_a_line_of_the_log() {
    let name = format!("warren-logs-{}", std::process::id());
    let data = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&data);
    std::fs::create_dir_all(&data).unwrap();
    let log = data.join("log");
    let port = free_port();
    let mut child = Command::new(WARREN)
        .args(["serve", "--log", "trace", "--stun", "127.0.0.1:0"])
        .args(["--listen", &format!("127.0.0.1:{port}")])
        .args(["--url", &format!("https://127.0.0.1:{port}"), "--data"])
        .arg(&data)
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    until_ready(&mut child);
    let serve = Serve { data: data.clone(), child, port };

    // A member: its name, its system, and far too much of both.
    let token = serve.token(&["--reusable"]);
    for (hostname, os) in
        [(FORGED.to_owned(), ""), (FORGED.repeat(200), ""), (String::new(), FORGED)]
    {
        joins(&token, HostInfo { hostname, os: os.to_owned(), ..HostInfo::default() });
    }
    // An administrator: names, policies, paths.
    for (method, path, body) in [
        ("POST", "/api/v1/users".to_owned(), json!({ "name": FORGED })),
        ("PUT", "/api/v1/policy".to_owned(), json!({ "text": format!("{{\"{FORGED}\": 1}}") })),
        ("POST", "/api/v1/keys".to_owned(), json!({ "tags": [FORGED], "user": FORGED })),
        ("GET", format!("/api/v1/nodes/{}", "%0a%1b[2J".repeat(3)), Value::Null),
    ] {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = Admin::local(&data).unwrap().call(method, &path, &body).unwrap();
        assert!(reply.status >= 400, "{method} {path}: {}", reply.status);
    }
    // Strangers: no TLS at all, and heads that are none.
    say(TcpStream::connect(("127.0.0.1", port)).unwrap(), FORGED.as_bytes());
    for head in [
        format!("GET /{FORGED} HTTP/1.1\r\nHost: {FORGED}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: {FORGED}\r\nUpgrade: {FORGED}\r\n\r\n"),
    ] {
        let local = UnixStream::connect(data.join("warren.sock"));
        say(local.expect("the server's own socket"), head.as_bytes());
    }

    drop(serve.json(&["node", "list"]));
    let mut serve = serve;
    serve.kill();
    let text = std::fs::read(&log).unwrap();
    let text = String::from_utf8(text).expect("it is text");
    println!("{} lines, {} bytes", text.lines().count(), text.len());
    for told in ["enrolled", "a connection ended"] {
        assert!(text.contains(told), "everything is logged: {text}");
    }
    for line in text.lines() {
        assert!(!line.chars().any(char::is_control), "{line:?}");
        // Each is one of ours, with the time of now.
        assert!(line.starts_with("20") && !line.starts_with("2001"), "{line:?}");
        assert!(line.len() < 4096, "{} bytes: {line:?}", line.len());
    }
}
