//! `warren ui` and the pages at `/`: who may open them, and what a browser is told that it may do.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use server::Loopback;

use crate::limits::{connect, rest};
use crate::stage::Stage;

/// A page that is open on a stage: where it is, and its links.
fn open(stage: &Stage) -> Loopback {
    let data = stage.folder.0.clone();
    let carry = move |method: &str, path: &str, body: &str| {
        let mut admin = dial::Admin::local(&data).map_err(|why| why.to_string())?;
        let reply = admin.call(method, path, body).map_err(|why| why.to_string())?;
        Ok((reply.status, reply.body))
    };
    Loopback::start(0, "tester", Box::new(carry)).unwrap()
}

/// What a request is answered, head and body.
fn ask(ui: &Loopback, first: &str, fields: &[(&str, &str)], body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(ui.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let host = ui.address().to_string();
    let mut head = format!("{first} HTTP/1.1\r\nConnection: close\r\n");
    if !fields.iter().any(|(name, _)| *name == "Host") {
        head += &format!("Host: {host}\r\n");
    }
    for (name, value) in fields {
        head += &format!("{name}: {value}\r\n");
    }
    if !fields.iter().any(|(name, _)| *name == "Content-Length") {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    head += &format!("\r\n{body}");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    (answer.get(9..12).unwrap_or_default().parse().unwrap_or(0), answer)
}

fn secret(ui: &Loopback) -> String {
    ui.link().unwrap().split("#/open/").nth(1).unwrap().to_owned()
}

fn session(ui: &Loopback, secret: &str) -> (u16, String) {
    let (status, answer) =
        ask(ui, "POST /api/v1/session", &[], &json!({ "link": secret }).to_string());
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    (status, body["csrf"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn wb_04_wb_12_a_link_opens_once_and_what_it_gives_ends_when_told() {
    let stage = Stage::new();
    let ui = open(&stage);
    let link = secret(&ui);
    assert_eq!(link.len(), 32, "128 bits");
    assert_ne!(link, secret(&ui));
    let nodes = "GET /api/v1/nodes";
    assert_eq!(ask(&ui, nodes, &[], "").0, 401, "nobody without a key");
    assert_eq!(session(&ui, "").0, 401);
    assert_eq!(session(&ui, &"0".repeat(32)).0, 401);
    let (status, key) = session(&ui, &link);
    assert_eq!(status, 200);
    assert_eq!(session(&ui, &link).0, 401, "a link that was used opens nothing");
    assert_ne!(key, link);
    let with = [("X-Warren-Csrf", key.as_str())];
    let (status, answer) = ask(&ui, nodes, &with, "");
    assert!(status == 200 && answer.contains("\"nodes\":[]"), "{answer}");
    assert!(!answer.to_lowercase().contains("set-cookie"), "{answer}");
    let (status, answer) = ask(&ui, "GET /api/v1/session", &with, "");
    assert!(status == 200 && answer.contains("tester"), "{answer}");
    assert_eq!(ask(&ui, "DELETE /api/v1/session", &with, "").0, 204);
    assert_eq!(ask(&ui, nodes, &with, "").0, 401, "what was ended opens nothing");
    for _ in 0..20 {
        secret(&ui);
    }
    let other = secret(&ui);
    assert_eq!(session(&ui, &other).0, 200, "old links give way to new ones");
}

#[test]
fn wb_01_wb_13_no_other_page_and_no_name_that_points_here_gets_in() {
    let stage = Stage::new();
    let ui = open(&stage);
    let (_, key) = session(&ui, &secret(&ui));
    let own = ui.address().to_string();
    let port = ui.address().port();
    let named = format!("localhost:{port}");
    let origin = format!("http://{own}");
    let good: [&[(&str, &str)]; 3] =
        [&[], &[("Host", &named)], &[("Origin", &origin), ("Sec-Fetch-Site", "same-origin")]];
    let rebound = format!("evil.example:{port}");
    let bad: [&[(&str, &str)]; 6] = [
        &[("Host", &rebound)],
        &[("Host", "127.0.0.1")],
        &[("Origin", "http://evil.example")],
        &[("Origin", "null")],
        &[("Origin", "http://127.0.0.1:1")],
        &[("Sec-Fetch-Site", "cross-site")],
    ];
    for (fields, expected) in
        good.iter().map(|one| (*one, 201)).chain(bad.iter().map(|one| (*one, 403)))
    {
        let mut fields = fields.to_vec();
        fields.push(("X-Warren-Csrf", &key));
        let (status, answer) = ask(&ui, "POST /api/v1/keys", &fields, "{}");
        assert_eq!(status, expected, "{fields:?}: {answer}");
        assert!(!answer.to_lowercase().contains("access-control-"), "{answer}");
    }
    let (status, _) = ask(&ui, "GET /", &[("Host", &rebound)], "");
    assert_eq!(status, 403, "not even the page");
}

#[test]
fn a_server_that_is_gone_is_told_and_what_is_too_large_is_not_taken() {
    let mut stage = Stage::new();
    let ui = open(&stage);
    let (_, key) = session(&ui, &secret(&ui));
    let with = [("X-Warren-Csrf", key.as_str())];
    // It says so before it reads any of it.
    let large = [with[0], ("Content-Length", "2097152")];
    assert_eq!(ask(&ui, "POST /api/v1/keys", &large, "").0, 413);
    assert_eq!(ask(&ui, "GET /metrics", &with, "").0, 404, "nothing but the API");
    stage.server = None;
    let (status, answer) = ask(&ui, "GET /api/v1/nodes", &with, "");
    assert!(status == 502 && answer.contains("no server answers"), "{answer}");
}

#[test]
fn wb_02_wb_03_a_server_sends_its_pages_with_a_strict_policy() {
    let stage = Stage::new();
    for path in ["/", "/ui.js", "/ui.css", "/icon.svg"] {
        let mut stream = connect(&stage);
        let text = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(text.as_bytes()).unwrap();
        let answer = rest(&mut stream).to_lowercase();
        let head = answer.split("\r\n\r\n").next().unwrap_or_default();
        assert!(head.starts_with("http/1.1 200"), "{path}: {head}");
        for field in [
            "content-encoding: gzip",
            "default-src 'none'; script-src 'self'",
            "require-trusted-types-for 'script'",
            "x-frame-options: deny",
            "cache-control: no-cache",
            "etag: \"",
        ] {
            assert!(head.contains(field), "{path} lacks {field}: {head}");
        }
    }
}
