//! What people get wrong: tokens, names, routes, policies. Each is refused with a reason that says
//! how to mend it, and everything else goes on.

use control::{BadToken, Code, Event, Kind, Token};
use dial::Admin;
use dial::proxy::Proxies;
use serde_json::{Value, json};

use crate::stage::Stage;

/// The code and the words that a node is turned away with.
fn turned_away(stage: &Stage, token: &Token, hostname: &str) -> (Code, String) {
    let mut node = stage.node(token, hostname);
    node.until("a refusal", |event, _| matches!(event, Event::Ended(_)));
    match node.last.unwrap().event {
        Event::Ended(refusal) => (refusal.code, refusal.detail),
        other => panic!("{other:?}"),
    }
}

#[test]
fn bad_tokens_of_every_kind_are_told_apart() {
    let stage = Stage::new();
    let line = stage.token(&json!({})).print();
    for len in 0..line.len() {
        assert!(Token::parse(&line[..len], Kind::Join).is_err(), "{len} characters of it");
    }
    let cut = Token::parse(&line[..line.len() - 3], Kind::Join);
    assert!(matches!(cut, Err(BadToken::Truncated(..))), "{cut:?}");
    let api = stage.api_token(&["nodes:read"]);
    assert!(
        matches!(Token::parse(&api, Kind::Join), Err(BadToken::Other(Kind::Api))),
        "for another use"
    );

    let revoked = stage.token(&json!({ "reusable": true }));
    let keys = stage.call("GET", "/api/v1/keys", &Value::Null, 200);
    let id = keys["keys"][0]["id"].as_u64().unwrap();
    stage.call("POST", &format!("/api/v1/keys/{id}/expire"), &Value::Null, 204);
    let (code, detail) = turned_away(&stage, &revoked, "a");
    assert_eq!(code, Code::KeyRevoked, "{detail}");
    let short = stage.token(&json!({ "expires_in_s": 1 }));
    let begin = std::time::Instant::now();
    while begin.elapsed().as_secs_f32() < 2.1 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let (code, detail) = turned_away(&stage, &short, "b");
    assert_eq!(code, Code::KeyExpired, "{detail}");
    // One whose key is another server's, but whose address leads here.
    let mut foreign = Stage::new().token(&json!({}));
    foreign.server = revoked.server;
    foreign.urls = vec![stage.url()];
    let (code, detail) = turned_away(&stage, &foreign, "c");
    assert_eq!(code, Code::KeyUnknown, "{detail}");
    assert_eq!(stage.call("GET", "/api/v1/nodes", &Value::Null, 200)["nodes"], json!([]));
}

#[test]
fn administrators_with_a_wrong_url_or_half_a_token_are_told() {
    let stage = Stage::new();
    let token = stage.api_token(&["nodes:read"]);
    let told = |url: &str, token: &str| {
        let url = Some(url.parse().unwrap());
        match Admin::remote(url, token, Proxies::default()) {
            Err(error) => error.to_string(),
            Ok(mut admin) => admin.call("GET", "/api/v1/nodes", "").unwrap_err().to_string(),
        }
    };
    let url = stage.url().to_string();
    assert!(told(&url, &token[..token.len() / 2]).contains("token"));
    assert!(told("https://127.0.0.1:9", &token).contains("127.0.0.1:9"), "nobody is there");
    for bad in ["127.0.0.1", "http://127.0.0.1", "https://", "https://a b", "https://h:99999", ""] {
        let why = bad.parse::<control::ServerUrl>().unwrap_err().to_string();
        assert!(why.contains("URL"), "{bad}: {why}");
    }
}

#[test]
fn co_19_wb_02_a_hostname_with_markup_becomes_a_plain_name_and_is_shown_as_text() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let hostile = "<script>alert('x')</script>";
    let mut watcher = stage.node(&token, "watcher");
    watcher.until_peers(&[]);
    let mut node = stage.node(&token, hostile);
    node.until_enrolled();
    watcher.until("a peer", |_, map| map.is_some_and(|map| map.peers.len() == 1));
    let name = watcher.map.as_ref().unwrap().peers[0].name.clone();
    assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
    let nodes = stage.call("GET", "/api/v1/nodes", &Value::Null, 200);
    assert_eq!(nodes["nodes"][1]["name"], name);
    assert_eq!(nodes["nodes"][1]["hostname"], hostile, "as it was said, in JSON alone");
    for bad in [hostile, "a.b", "-a", "", "A", &"a".repeat(64)] {
        let problem = stage.call("POST", "/api/v1/nodes/1/rename", &json!({ "name": bad }), 400);
        assert!(problem["detail"].as_str().unwrap().contains("no name for a node"), "{problem}");
    }
}

#[test]
fn names_that_are_taken_and_routes_that_overlap_are_refused() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let (mut one, mut two) = (stage.node(&token, "same"), stage.node(&token, "same"));
    one.until("a map", |_, map| map.is_some());
    two.until("a map", |_, map| map.is_some());
    let nodes = stage.call("GET", "/api/v1/nodes", &Value::Null, 200);
    let names = [0, 1].map(|n| nodes["nodes"][n]["name"].as_str().unwrap().to_owned());
    assert_eq!(names, ["same", "same-1"], "two machines with one name");
    let taken = stage.call("POST", "/api/v1/nodes/2/rename", &json!({ "name": "same" }), 409);
    assert!(taken["detail"].as_str().unwrap().contains("another node is called"), "{taken}");
    let path = "/api/v1/nodes/1/routes";
    for (route, status, why) in [
        ("100.64.0.0/16", 400, "overlaps the network's own range"),
        ("100.0.0.0/8", 400, "overlaps the network's own range"),
        ("10.0.0.1/8", 400, ""),
        ("10.0.0.0/33", 400, ""),
        ("elsewhere", 400, ""),
        ("10.0.0.0/8", 200, ""),
    ] {
        let answer = stage.call("POST", path, &json!({ "routes": [route] }), status);
        let detail = answer["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(why), "{route}: {detail}");
    }
    let routes = stage.call("GET", "/api/v1/nodes/1", &Value::Null, 200);
    assert_eq!(routes["node"]["routes"]["approved"], json!(["10.0.0.0/8"]), "the last good ones");
}
