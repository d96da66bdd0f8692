//! What a server shows to whoever finds it: nothing that a page, a scanner, a proxy's word or
//! another install could use.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::time::Duration;

use dial::http::Connection;
use dial::proxy::Proxies;
use serde_json::{Value, json};

use crate::limits::{connect, rest};
use crate::stage::Stage;

/// A request word by word; the answer word by word.
fn raw(stage: &Stage, head: &str, body: &str) -> String {
    let mut stream = connect(stage);
    let length = body.len();
    let text =
        format!("{head}\r\nHost: x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).unwrap();
    rest(&mut stream)
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or_default()
}

#[test]
fn co_13_what_a_proxy_says_of_a_source_counts_for_nothing() {
    let stage = Stage::new();
    let mut connection = Connection::open(&stage.url(), &Proxies::default()).unwrap();
    let mut guess = |number: usize| {
        let said = format!("198.51.100.{}", number % 250);
        let forwarded = format!("for={said};host=h{number}");
        let fields = [
            ("Authorization", "Bearer warren-api-x"),
            ("X-Forwarded-For", said.as_str()),
            ("X-Real-IP", said.as_str()),
            ("X-Forwarded-Host", said.as_str()),
            ("Forwarded", forwarded.as_str()),
        ];
        let wait = Duration::from_secs(9);
        let answer = connection.request(("GET", "/api/v1/nodes"), &fields, b"", 1 << 16, wait);
        let status = answer.unwrap().status;
        connection = Connection::open(&stage.url(), &Proxies::default()).unwrap();
        status
    };
    let wrong = (0..1000).take_while(|&number| guess(number) == 401).count();
    assert!((256..300).contains(&wrong), "{wrong} guesses, all from one source");
}

#[test]
fn wb_13_pages_of_other_sites_are_invited_to_nothing() {
    let stage = Stage::new();
    for head in [
        "OPTIONS /api/v1/nodes HTTP/1.1\r\nOrigin: https://evil.example\r\n\
         Access-Control-Request-Method: POST",
        "GET /api/v1/health HTTP/1.1\r\nOrigin: https://evil.example",
        "GET /relay HTTP/1.1\r\nOrigin: https://evil.example\r\nUpgrade: warren-relay",
        "GET //evil.example/%2e%2e HTTP/1.1",
    ] {
        let answer = raw(&stage, head, "").to_lowercase();
        assert!(!answer.contains("access-control-"), "{answer}");
        assert!(!answer.contains("\r\nlocation:"), "no redirect leads anywhere: {answer}");
        assert!(!answer.contains("set-cookie"), "{answer}");
        assert_ne!(status(&answer), "101", "{answer}");
    }
}

#[test]
fn wb_10_wb_14_a_crawl_finds_neither_files_nor_what_is_for_developers() {
    let stage = Stage::new();
    for path in [
        "/index.html",
        "/ui",
        "/.env",
        "/.git/config",
        "/api",
        "/api/v1",
        "/api/v1/debug",
        "/api/v1/config",
        "/api/v1/backup/../../etc/passwd",
        "/../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/api/v1/nodes/..%2f..%2fetc%2fpasswd",
        "/debug/pprof/",
        "/debug/vars",
        "/metrics",
        "/server-status",
        "/swagger",
        "/actuator/env",
        "/warren.db",
        "/server.key",
    ] {
        let answer = raw(&stage, &format!("GET {path} HTTP/1.1"), "");
        let refused = ["400", "401", "403", "404"].contains(&status(&answer));
        assert!(refused, "{path}: {answer:.200}");
        assert!(!answer.contains("root:") && !answer.contains("PRIVATE"), "{path}: {answer}");
    }
}

#[test]
fn wb_11_a_fresh_server_has_no_credential_of_its_own() {
    let stage = Stage::new();
    for (path, list) in [("/api/v1/keys", "keys"), ("/api/v1/tokens", "tokens")] {
        let answer = stage.call("GET", path, &Value::Null, 200);
        assert_eq!(answer[list], json!([]), "{answer}");
    }
    for credential in [
        "Bearer ",
        "Bearer null",
        "Bearer warren-api-",
        "Bearer warren-api-AAAAAAAAAAAAAAAAAAAAAAAA",
        "Basic YWRtaW46YWRtaW4=",
        "Basic d2FycmVuOndhcnJlbg==",
    ] {
        let head = format!("GET /api/v1/nodes HTTP/1.1\r\nAuthorization: {credential}");
        let answer = raw(&stage, &head, "");
        assert!(["400", "401"].contains(&status(&answer)), "{credential}: {answer:.200}");
    }
}

/// What is in a server's directory, in lines, for files that can hold a secret.
fn lines(stage: &Stage) -> BTreeSet<Vec<u8>> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(&stage.folder.0).unwrap() {
        let path = entry.unwrap().path();
        let is_small = fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() < 8192);
        let Some(bytes) = is_small.then(|| fs::read(&path).unwrap()) else { continue };
        // A certificate is public, and says when it was made; a file begins with what it is.
        let mut is_public = false;
        for row in bytes.split(|byte| *byte == b'\n') {
            match row {
                b"-----BEGIN CERTIFICATE-----" => is_public = true,
                b"-----END CERTIFICATE-----" => is_public = false,
                _ if is_public || row.len() < 16 => {}
                _ if row.starts_with(b"-----") || row.starts_with(b"warren server keys") => {}
                _ => drop(all.insert(row.to_vec())),
            }
        }
    }
    all
}

#[test]
fn wb_12_wb_15_two_installs_share_no_secret_and_tokens_are_of_128_bits() {
    let (one, other) = (Stage::new(), Stage::new());
    let (mine, theirs) = (lines(&one), lines(&other));
    assert!(mine.len() >= 2, "keys are kept: {}", mine.len());
    let shared: Vec<_> = mine.intersection(&theirs).collect();
    assert!(shared.is_empty(), "{:?}", shared.iter().map(|row| row.escape_ascii().to_string()));
    // Sixteen bytes each, and no two have a byte in common more often than chance has it.
    let secrets: Vec<[u8; 16]> = (0..32).map(|_| one.token(&json!({})).secret.0).collect();
    assert_eq!(secrets.iter().collect::<BTreeSet<_>>().len(), 32);
    for place in 0..16 {
        let values: BTreeSet<u8> = secrets.iter().map(|secret| secret[place]).collect();
        assert!(values.len() > 20, "byte {place} has {} values of 32", values.len());
    }
}

#[test]
fn wb_16_what_nests_without_end_or_asks_for_everything_is_bounded() {
    let stage = Stage::new();
    let token = stage.api_token(&["users:write", "policy:read", "audit:read"]);
    let bearer = format!("Authorization: Bearer {token}\r\nContent-Type: application/json");
    let deep = "[".repeat(200_000);
    for (head, body) in [
        ("POST /api/v1/users", deep.clone()),
        ("POST /api/v1/users", format!("{{\"name\":{}", deep)),
        ("POST /api/v1/policy/check", json!({ "text": deep }).to_string()),
        ("POST /api/v1/policy/check", json!({ "text": "{\"acls\":".repeat(50_000) }).to_string()),
    ] {
        let answer = raw(&stage, &format!("{head} HTTP/1.1\r\n{bearer}"), &body);
        assert!(["400", "422"].contains(&status(&answer)), "{head}: {answer:.300}");
        assert!(answer.len() < 100_000, "an answer of {} bytes", answer.len());
    }
    for name in 0..40 {
        stage.call("POST", "/api/v1/users", &json!({ "name": format!("u{name}") }), 201);
    }
    let page = stage.call("GET", "/api/v1/audit?limit=5", &Value::Null, 200);
    assert_eq!(page["entries"].as_array().map(Vec::len), Some(5), "{page}");
    let all = stage.call("GET", "/api/v1/audit?limit=99999999999", &Value::Null, 200);
    assert!(all["entries"].as_array().is_some_and(|entries| entries.len() <= 1000));
}
