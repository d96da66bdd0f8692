//! SQL in everything that a caller can say: values stay values (threat WB-09).

use control::{Event, HostInfo};
use serde_json::{Value, json};

use crate::stage::Stage;

/// Each ends a text, a statement or a comment of one of the two databases, or asks for a pause.
const HOSTILE: [&str; 10] = [
    "x'; DROP TABLE nodes; --",
    "x\"; DELETE FROM users; --",
    "' OR '1'='1",
    "1; UPDATE settings SET value = '0'; --",
    "') UNION SELECT value FROM settings --",
    "$1",
    "?1",
    "\\'; DROP TABLE audit; /*",
    "'||(SELECT pg_sleep(20))||'",
    "$$; TRUNCATE nodes; $$",
];

/// Everything that a statement in a value could have changed.
fn books(stage: &Stage) -> Vec<Value> {
    ["nodes", "users", "keys", "tokens", "relays", "policy"]
        .map(|list| {
            let mut list = stage.call("GET", &format!("/api/v1/{list}"), &Value::Null, 200);
            if let Some(nodes) = list["nodes"].as_array_mut() {
                nodes.iter_mut().for_each(|node| node["last_seen"] = Value::Null);
            }
            list
        })
        .into()
}

#[test]
fn wb_09_sql_in_a_value_stays_a_value() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let mut node = stage.node(&token, "one");
    node.until_peers(&[]);
    let id = node.map.as_ref().unwrap().me.id.0;
    let of_node = |what: &str| format!("/api/v1/nodes/{id}/{what}");
    let before = books(&stage);
    for text in HOSTILE {
        let key = noise::PublicKey([1; 32]).to_string();
        for (method, path, body) in [
            ("POST", "/api/v1/users".to_owned(), json!({ "name": text })),
            ("POST", "/api/v1/keys".to_owned(), json!({ "user": text })),
            ("POST", "/api/v1/keys".to_owned(), json!({ "tags": [text] })),
            ("POST", "/api/v1/keys".to_owned(), json!({ "tags": [format!("tag:{text}")] })),
            ("POST", of_node("rename"), json!({ "name": text })),
            ("POST", of_node("tags"), json!({ "tags": [text] })),
            ("POST", of_node("routes"), json!({ "routes": [text] })),
            ("POST", "/api/v1/relays".to_owned(), json!({ "url": text, "key": key })),
            (
                "POST",
                "/api/v1/relays".to_owned(),
                json!({ "url": "https://r", "key": key, "stun": [text] }),
            ),
            ("POST", "/api/v1/tokens".to_owned(), json!({ "scopes": [text] })),
            ("PUT", "/api/v1/policy".to_owned(), json!({ "text": text })),
            ("GET", format!("/api/v1/audit?before={}", text.replace(' ', "%20")), Value::Null),
            ("GET", format!("/api/v1/nodes/{}", text.replace(' ', "%20")), Value::Null),
        ] {
            let body = if body.is_null() { String::new() } else { body.to_string() };
            let begin = std::time::Instant::now();
            // What is no request at all is not sent, or refused before anything reads it.
            let Ok(reply) = stage.admin().call(method, &path, &body) else { continue };
            let is_told = (400..500).contains(&reply.status);
            assert!(is_told, "{method} {path} {body}: {} {}", reply.status, reply.body);
            assert!(begin.elapsed().as_secs() < 10, "{path} {body} sleeps");
        }
    }
    assert_eq!(books(&stage), before, "whatever was refused changed nothing");
}

#[test]
fn wb_09_sql_that_may_be_said_is_kept_word_by_word() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    for (n, text) in HOSTILE.into_iter().enumerate() {
        // A policy's comments are free text, and so is what a machine says of itself.
        let policy = format!("// {text}\n{{\"acls\": []}}");
        stage.call("PUT", "/api/v1/policy", &json!({ "text": policy }), 200);
        let holds = stage.call("GET", "/api/v1/policy", &Value::Null, 200);
        assert_eq!((&holds["text"], &holds["version"]), (&json!(policy), &json!(n + 1)));
        let mut node = stage.node(&token, &format!("host-{n}"));
        node.until("enrolment", |event, _| matches!(event, Event::Enrolled(_)));
        let host = HostInfo { os: text.to_owned(), ..node.settings.host.clone() };
        node.membership.report(host);
        let is_there = |listed: &Value| {
            let listed = listed["nodes"].as_array().unwrap();
            assert_eq!(listed.len(), n + 1, "nobody is gone: {listed:?}");
            listed.iter().any(|node| node["os"] == text)
        };
        let begin = std::time::Instant::now();
        while !is_there(&stage.call("GET", "/api/v1/nodes", &Value::Null, 200)) {
            assert!(begin.elapsed() < crate::stage::PATIENCE, "{text} is not kept as it is");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}
