//! The API: who may call what, generated from its document, and what calls do.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use control::{HostInfo, Kind, Prefix, Token};
use dial::http::{Answer, Connection};
use dial::proxy::Proxies;
use serde_json::{Value, json};

use crate::stage::{PATIENCE, Stage};

fn request(stage: &Stage, method: &str, path: &str, token: Option<&str>, body: &Value) -> Answer {
    let mut connection = Connection::open(&stage.url(), &Proxies::default()).unwrap();
    let bearer = token.map(|token| format!("Bearer {token}"));
    let mut fields = vec![("Content-Type", "application/json")];
    fields.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let wait = Duration::from_secs(10);
    connection.request((method, path), &fields, body.as_bytes(), 1 << 22, wait).unwrap()
}

/// A stream that does not end by itself.
pub(crate) const EVENTS: &str = "/api/v1/events";

/// What an allowed call of each route gets: method and path, body, status. A route of the
/// document that has no row fails the test.
pub(crate) fn rows() -> BTreeMap<(&'static str, &'static str), (Value, u16)> {
    let nothing = Value::Null;
    [
        (("GET", "/api/v1/openapi.json"), (nothing.clone(), 200)),
        (("GET", "/api/v1/health"), (nothing.clone(), 200)),
        (("GET", "/healthz"), (nothing.clone(), 200)),
        (("GET", "/metrics"), (nothing.clone(), 200)),
        (("GET", "/api/v1/session"), (nothing.clone(), 401)),
        (("POST", "/api/v1/session"), (json!({ "user": "no", "password": "no" }), 401)),
        (("DELETE", "/api/v1/session"), (nothing.clone(), 200)),
        (("POST", "/api/v1/session/password"), (json!({ "old": "no", "new": "no" }), 401)),
        (("GET", "/api/v1/users"), (nothing.clone(), 200)),
        (("POST", "/api/v1/users"), (json!({ "name": "" }), 400)),
        (("DELETE", "/api/v1/users/{id}"), (nothing.clone(), 404)),
        (("POST", "/api/v1/users/{id}/role"), (json!({ "role": "admin" }), 404)),
        (("POST", "/api/v1/users/{id}/password"), (json!({ "password": null }), 404)),
        (("POST", "/api/v1/users/{id}/sign-out"), (nothing.clone(), 404)),
        (("GET", "/api/v1/keys"), (nothing.clone(), 200)),
        (("POST", "/api/v1/keys"), (json!({}), 201)),
        (("POST", "/api/v1/keys/{id}/expire"), (nothing.clone(), 404)),
        (("GET", "/api/v1/nodes"), (nothing.clone(), 200)),
        (("GET", "/api/v1/nodes/{id}"), (nothing.clone(), 404)),
        (("DELETE", "/api/v1/nodes/{id}"), (nothing.clone(), 404)),
        (("POST", "/api/v1/nodes/{id}/rename"), (json!({ "name": "a" }), 404)),
        (("POST", "/api/v1/nodes/{id}/tags"), (json!({ "tags": [] }), 404)),
        (("POST", "/api/v1/nodes/{id}/user"), (json!({ "user": null }), 404)),
        (("POST", "/api/v1/nodes/{id}/approve"), (nothing.clone(), 404)),
        (("POST", "/api/v1/nodes/{id}/expire"), (nothing.clone(), 404)),
        (("POST", "/api/v1/nodes/{id}/routes"), (json!({ "routes": [] }), 404)),
        (("POST", "/api/v1/nodes/{id}/ways"), (json!({ "passes_on": false, "through": [] }), 404)),
        (("GET", "/api/v1/peers"), (nothing.clone(), 200)),
        (("POST", "/api/v1/peers"), (json!({ "name": "a", "key": "no", "gateway": 1 }), 400)),
        (("DELETE", "/api/v1/peers/{id}"), (nothing.clone(), 404)),
        (("GET", EVENTS), (nothing.clone(), 200)),
        (("GET", "/api/v1/links"), (nothing.clone(), 200)),
        (("GET", "/api/v1/paths"), (nothing.clone(), 200)),
        (("GET", "/api/v1/relays"), (nothing.clone(), 200)),
        (("POST", "/api/v1/relays"), (json!({ "url": "https://r", "key": "no" }), 400)),
        (("GET", "/api/v1/relays/members"), (nothing.clone(), 200)),
        (("DELETE", "/api/v1/relays/{id}"), (nothing.clone(), 404)),
        (("GET", "/api/v1/policy"), (nothing.clone(), 200)),
        (("PUT", "/api/v1/policy"), (json!({ "text": "{}" }), 200)),
        (("POST", "/api/v1/policy/check"), (json!({ "text": "{" }), 400)),
        (
            ("POST", "/api/v1/policy/explain"),
            (json!({ "source": "192.0.2.1", "destination": "192.0.2.2", "protocol": 6 }), 200),
        ),
        (("GET", "/api/v1/policy/history"), (nothing.clone(), 200)),
        (("GET", "/api/v1/policy/history/{id}"), (nothing.clone(), 404)),
        (("POST", "/api/v1/policy/history/{id}/restore"), (nothing.clone(), 404)),
        (("GET", "/api/v1/dns"), (nothing.clone(), 200)),
        (("PUT", "/api/v1/dns"), (json!({ "upstreams": ["192.0.2.53"] }), 200)),
        (("POST", "/api/v1/backup"), (nothing.clone(), 201)),
        (("GET", "/api/v1/backup/{id}"), (nothing.clone(), 404)),
        (("DELETE", "/api/v1/backup/{id}"), (nothing.clone(), 404)),
        (("GET", "/api/v1/audit"), (nothing.clone(), 200)),
        (("GET", "/api/v1/audit/verify"), (nothing.clone(), 200)),
        (("GET", "/api/v1/tokens"), (nothing.clone(), 200)),
        (("POST", "/api/v1/tokens"), (json!({ "scopes": ["tokens:write"] }), 201)),
        (("POST", "/api/v1/tokens/{id}/expire"), (nothing, 404)),
    ]
    .into()
}

/// A token whose time is over.
fn expired(stage: &Stage, scopes: &[&str]) -> String {
    let body = json!({ "scopes": scopes, "expires_in_s": 1 });
    let made = stage.call("POST", "/api/v1/tokens", &body, 201);
    let token = made["token"].as_str().unwrap();
    let begin = Instant::now();
    while request(stage, "GET", "/api/v1/nodes", Some(token), &Value::Null).status != 401 {
        assert!(begin.elapsed() < PATIENCE, "it ends after a second");
        std::thread::sleep(Duration::from_millis(100));
    }
    token.to_owned()
}

/// The routes of the document: method, path and scope.
fn routes(document: &Value) -> Vec<(String, String, String)> {
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let scope = operation["x-scope"].as_str().unwrap().to_owned();
            routes.push((method.to_uppercase(), path.clone(), scope));
        }
    }
    routes
}

#[test]
fn co_09_every_route_of_the_document_admits_its_scope_and_nobody_else() {
    let stage = Stage::new();
    let document = request(&stage, "GET", "/api/v1/openapi.json", None, &Value::Null);
    let document: Value = serde_json::from_slice(&document.body).unwrap();
    let routes = routes(&document);
    let mut scopes: Vec<String> = routes.iter().map(|(_, _, scope)| scope.clone()).collect();
    scopes.retain(|scope| !scope.is_empty() && scope != "self");
    scopes.sort();
    scopes.dedup();
    let tokens: BTreeMap<&String, (String, String)> = scopes
        .iter()
        .map(|scope| {
            let others: Vec<&str> =
                scopes.iter().filter(|other| *other != scope).map(String::as_str).collect();
            (scope, (stage.api_token(&[scope]), stage.api_token(&others)))
        })
        .collect();
    let everything: Vec<&str> = scopes.iter().map(String::as_str).collect();
    let revoked = stage.api_token(&everything);
    let id = stage.call("GET", "/api/v1/tokens", &Value::Null, 200)["tokens"][0]["id"].clone();
    stage.call("POST", &format!("/api/v1/tokens/{id}/expire"), &Value::Null, 204);
    let mut forged = Token::parse(&stage.api_token(&everything), Kind::Api).unwrap();
    forged.secret.0[3] ^= 1;
    let forged = forged.print();
    let join = stage.token(&json!({})).print();
    let foreign = Stage::new().api_token(&everything);
    let expired = &expired(&stage, &everything);

    let mut rows = rows();
    if stage.store.is_some() {
        // Books in PostgreSQL are copied with its own program.
        rows.insert(("POST", "/api/v1/backup"), (Value::Null, 501));
    }
    assert_eq!(rows.len(), routes.len(), "a row for each route and no other");
    let none = request(&stage, "GET", "/api/v1/nodes", Some("x"), &Value::Null).status;
    assert_eq!(none, 401, "what is no token at all; tries that fail are counted, so once");
    for (method, path, scope) in &routes {
        let row = rows.get(&(method.as_str(), path.as_str()));
        let (body, status) = row.unwrap_or_else(|| panic!("no row for {method} {path}"));
        let path = path.replace("{id}", "999999");
        let is_public = scope.is_empty();
        if scope == "self" {
            let got = request(&stage, method, &path, None, body).status;
            assert_eq!(got, *status, "{method} {path} of nobody");
            continue;
        }
        let bad: [Option<&str>; 6] =
            [None, Some(&revoked), Some(&forged), Some(&join), Some(&foreign), Some(expired)];
        for token in bad {
            let got = request(&stage, method, &path, token, body).status;
            let expected = if is_public && token.is_none() { *status } else { 401 };
            assert_eq!(got, expected, "{method} {path} with {token:?}");
        }
        if let Some((fitting, others)) = tokens.get(scope) {
            let got = request(&stage, method, &path, Some(others), body).status;
            assert_eq!(got, 403, "{method} {path} with every other scope");
            if path == EVENTS {
                continue;
            }
            let got = request(&stage, method, &path, Some(fitting), body).status;
            assert_eq!(got, *status, "{method} {path} with its scope");
        }
        stage.call(method, &path, body, *status);
    }
}

#[test]
fn wb_01_errors_are_problems_and_never_500() {
    let stage = Stage::new();
    let token = stage.api_token(&["users:write", "keys:write", "tokens:write", "audit:read"]);
    for (method, path, body, status) in [
        ("POST", "/api/v1/users", json!({ "name": "a", "more": 1 }), 400),
        ("POST", "/api/v1/users", json!([]), 400),
        ("POST", "/api/v1/users", json!({ "name": "a b" }), 400),
        ("POST", "/api/v1/keys", json!({ "tags": ["robot"] }), 400),
        ("POST", "/api/v1/keys", json!({ "user": "nobody" }), 404),
        ("POST", "/api/v1/keys", json!({ "expires_in_s": 0 }), 400),
        ("POST", "/api/v1/keys", json!({ "expires_in_s": u64::MAX }), 400),
        ("POST", "/api/v1/tokens", json!({ "scopes": [] }), 400),
        ("POST", "/api/v1/tokens", json!({ "scopes": ["all"] }), 400),
        ("POST", "/api/v1/tokens", json!({ "scopes": ["nodes:write"] }), 403),
        ("GET", "/api/v1/audit?limit=x", Value::Null, 400),
        ("GET", "/api/v1/audit?limit=99999999999&before=18446744073709551615", Value::Null, 200),
        ("PUT", "/api/v1/dns", json!({ "upstreams": ["ns1"] }), 403),
        ("PATCH", "/api/v1/users", Value::Null, 405),
        ("GET", "/api/v1/nothing", Value::Null, 404),
    ] {
        let answer = request(&stage, method, path, Some(&token), &body);
        let text = String::from_utf8(answer.body).unwrap();
        assert_eq!(answer.status, status, "{method} {path} {body}: {text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        if status >= 400 {
            assert_eq!(value["status"], status, "{text}");
            assert!(value["title"].is_string() && value["detail"].is_string(), "{text}");
        }
    }
    let mut connection = Connection::open(&stage.url(), &Proxies::default()).unwrap();
    let bearer = format!("Bearer {token}");
    let fields = [("Authorization", bearer.as_str()), ("Content-Type", "text/plain")];
    let wait = Duration::from_secs(10);
    let answer = connection.request(("POST", "/api/v1/users"), &fields, b"{}", 1000, wait).unwrap();
    assert_eq!(answer.status, 415, "WB-01: no form of a page on another site comes in");
}

#[test]
fn co_01_secrets_are_shown_once() {
    let stage = Stage::new();
    let join = stage.token(&json!({ "reusable": true, "expires_in_s": 60 }));
    let api = stage.api_token(&["keys:read"]);
    let secret = |token: &Token| token.secret.0.map(|byte| format!("{byte:02x}")).concat();
    let api = Token::parse(&api, Kind::Api).unwrap();
    let mut shown = String::new();
    for path in ["/api/v1/keys", "/api/v1/tokens", "/api/v1/audit", "/api/v1/nodes"] {
        shown += &stage.call("GET", path, &Value::Null, 200).to_string();
    }
    assert!(shown.contains(&join.id.to_hex()) && shown.contains(&api.id.to_hex()));
    for token in [&join, &api] {
        let line = token.print();
        assert!(!shown.contains(&secret(token)) && !shown.contains(&line[40..]));
    }
}

#[test]
fn users_keys_policy_and_audit_do_what_they_say() {
    let stage = Stage::new();
    let user = stage.call("POST", "/api/v1/users", &json!({ "name": "anna" }), 201);
    stage.call("POST", "/api/v1/users", &json!({ "name": "anna" }), 409);
    let token = stage.token(&json!({ "user": "anna" }));
    let mut node = stage.node(&token, "laptop");
    node.until_enrolled();
    let nodes = stage.call("GET", "/api/v1/nodes", &Value::Null, 200);
    assert_eq!(nodes["nodes"][0]["user"], "anna");
    let id = user["user"]["id"].as_u64().unwrap();
    stage.call("DELETE", &format!("/api/v1/users/{id}"), &Value::Null, 409);

    let keys = stage.call("GET", "/api/v1/keys", &Value::Null, 200);
    assert!(keys["keys"][0]["used"].is_string() && keys["keys"][0]["user"] == "anna");

    let policy = stage.call("GET", "/api/v1/policy", &Value::Null, 200);
    assert_eq!(policy["version"], 0);
    let text = "// ours\n{ \"acls\": [], }\n";
    stage.call("PUT", "/api/v1/policy", &json!({ "text": text, "if_version": 0 }), 200);
    stage.call("PUT", "/api/v1/policy", &json!({ "text": "{}", "if_version": 0 }), 409);
    let policy = stage.call("GET", "/api/v1/policy", &Value::Null, 200);
    assert_eq!((policy["version"].as_u64(), policy["text"].as_str()), (Some(1), Some(text)));
    node.until("the policy", |_, map| map.is_some_and(|map| map.policy.version == 1));

    let verified = stage.call("GET", "/api/v1/audit/verify", &Value::Null, 200);
    assert!(verified["ok"] == true && verified["entries"].as_u64() > Some(2), "{verified}");
    let audit = stage.call("GET", "/api/v1/audit?limit=2", &Value::Null, 200);
    assert_eq!(audit["entries"][0]["action"], "policy.set");
    assert_eq!(audit["entries"][0]["actor"], "local:0");
    assert_eq!(audit["entries"].as_array().unwrap().len(), 2);
}

#[test]
fn source_001_6_a_node_is_told_its_place_among_sites() {
    let stage = Stage::new();
    let token = stage.token(&json!({}));
    let mut node = stage.node(&token, "gateway");
    node.until_enrolled();
    let nodes = stage.call("GET", "/api/v1/nodes", &Value::Null, 200);
    let path = format!("/api/v1/nodes/{}/ways", nodes["nodes"][0]["id"]);
    let said = json!({ "passes_on": true, "through": ["10.0.0.0/8=hub"] });
    let shown = stage.call("POST", &path, &said, 200);
    assert_eq!(shown["node"]["ways"], said);
    let is_told = |ways: &control::Ways| ways.passes_on && ways.through[0].node == "hub";
    node.until("its place", |_, map| map.is_some_and(|map| is_told(&map.me.ways)));
    for bad in [
        json!({ "passes_on": true }),
        json!({ "passes_on": true, "through": ["10.0.0.0/8"] }),
        json!({ "passes_on": true, "through": ["10.0.0.1/8=hub"] }),
        json!({ "passes_on": true, "through": [], "more": 1 }),
    ] {
        stage.call("POST", &path, &bad, 400);
    }
}

#[test]
fn a_node_is_shown_with_those_approved_routes_that_are_down_by_its_own_word() {
    let stage = Stage::new();
    let token = stage.token(&json!({}));
    let mut node = stage.node(&token, "gateway");
    node.until_enrolled();
    let nodes = stage.call("GET", "/api/v1/nodes", &Value::Null, 200);
    let path = format!("/api/v1/nodes/{}", nodes["nodes"][0]["id"]);
    let body = json!({ "routes": ["10.3.0.0/24"] });
    let shown = stage.call("POST", &format!("{path}/routes"), &body, 200);
    assert_eq!(shown["node"]["routes"]["down"], json!([]));

    // The second one is offered and not approved.
    let routes: Vec<Prefix> =
        ["10.3.0.0/24", "10.9.0.0/24"].iter().map(|route| route.parse().unwrap()).collect();
    for (count, wanted) in [(2, json!(["10.3.0.0/24"])), (0, json!([]))] {
        let down = routes[..count].to_vec();
        let host = node.settings.host.clone();
        node.membership.report(HostInfo { routes: routes.clone(), down, ..host });
        let begin = Instant::now();
        while stage.call("GET", &path, &Value::Null, 200)["node"]["routes"]["down"] != wanted {
            assert!(begin.elapsed() < PATIENCE, "{wanted} is not shown");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A page elsewhere has a browser that reaches the server, by its own name or by one that was made
/// to lead here. It has no token, and there is nothing that a browser would add by itself.
#[test]
fn dn_01_the_api_answers_no_page_of_another_origin() {
    let stage = Stage::new();
    let port = stage.address.port();
    let curl = |words: &[&str]| {
        let mut command = std::process::Command::new("curl");
        let output = command.args(["-sk", "-i", "-m", "10"]).args(words).output();
        let text = String::from_utf8(output.expect("install curl").stdout).unwrap();
        let status: u16 = text.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or_default();
        (status, text.to_ascii_lowercase())
    };
    for host in ["127.0.0.1", "evil.example"] {
        let resolve = format!("{host}:{port}:127.0.0.1");
        for ((method, path), (body, _)) in rows() {
            let url = format!("https://{host}:{port}{}", path.replace("{id}", "1"));
            let body = body.to_string();
            let simple = ["-H", "Origin: https://evil.example", "-H", "Content-Type: text/plain"];
            let simple = [&["--resolve", &resolve, "-X", method, &url][..], &simple].concat();
            let asked = [&simple[..], &["-H", "Cookie: session=1", "-d", &body]].concat();
            let (status, text) = curl(&asked);
            let is_public = path.ends_with("/openapi.json") || path.contains("/health");
            // Who asks for a sign-in is nobody yet; it is refused for its origin.
            let is_refused =
                status == 401 || [403, 415].contains(&status) && path.contains("/session");
            assert!(is_refused || is_public, "{method} {path}: {text}");
            assert!(!text.contains("access-control-") && !text.contains("set-cookie"), "{text}");
        }
        let url = format!("https://{host}:{port}/api/v1/nodes");
        let asks =
            ["-H", "Origin: https://evil.example", "-H", "Access-Control-Request-Method: GET"];
        let (status, text) =
            curl(&[&["--resolve", &resolve, "-X", "OPTIONS", &url][..], &asks].concat());
        assert!(status >= 400 && !text.contains("access-control-"), "{text}");
    }
}
