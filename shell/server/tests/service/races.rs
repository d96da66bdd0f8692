//! Several administrators at once: who changes what another has just changed is told.

use std::path::Path;
use std::thread;

use dial::Admin;
use serde_json::{Value, json};

use crate::stage::Stage;

const WRITERS: usize = 8;
/// Of each.
const WRITES: usize = 6;

fn call(data: &Path, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let reply = Admin::local(data).unwrap().call(method, path, &body).unwrap();
    (reply.status, serde_json::from_str(&reply.body).unwrap_or_default())
}

/// Adds a line to the policy, however often it is changed in between: how often that was.
fn add_line(data: &Path, line: &str) -> usize {
    for tries in 0.. {
        let (_, policy) = call(data, "GET", "/api/v1/policy", &Value::Null);
        let before = policy["text"].as_str().unwrap();
        let before = if before.is_empty() { "{}" } else { before };
        let body =
            json!({ "text": format!("// {line}\n{before}"), "if_version": policy["version"] });
        match call(data, "PUT", "/api/v1/policy", &body) {
            (200, _) => return tries,
            (409, _) => {}
            other => panic!("{other:?}"),
        }
    }
    unreachable!("it goes on until it is done")
}

#[test]
fn co_06_of_many_who_change_the_policy_at_once_nobodys_change_is_lost() {
    let stage = Stage::new();
    let data = stage.folder.0.as_path();
    let refused: usize = thread::scope(|scope| {
        let writer = |writer: usize| {
            let lines = (0..WRITES).map(move |n| format!("writer {writer} line {n};"));
            scope.spawn(move || lines.map(|line| add_line(data, &line)).sum::<usize>())
        };
        let writers: Vec<_> = (0..WRITERS).map(writer).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    println!("{} changes, {refused} times somebody was earlier", WRITERS * WRITES);
    let policy = stage.call("GET", "/api/v1/policy", &Value::Null, 200);
    assert_eq!(policy["version"], WRITERS * WRITES, "every version is one change");
    let text = policy["text"].as_str().unwrap();
    for (writer, n) in (0..WRITERS).flat_map(|writer| (0..WRITES).map(move |n| (writer, n))) {
        assert!(text.contains(&format!("writer {writer} line {n};")), "{text}");
    }
}

#[test]
fn co_06_what_an_entry_of_the_log_says_of_before_is_what_the_one_before_made() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let mut node = stage.node(&token, "one");
    node.until_peers(&[]);
    let id = node.map.as_ref().unwrap().me.id.0;
    let data = stage.folder.0.as_path();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                for n in 0..WRITES {
                    let (what, body) = match (writer + n) % 3 {
                        0 => ("tags", json!({ "tags": [format!("tag:w{writer}n{n}")] })),
                        1 => ("rename", json!({ "name": format!("w{writer}n{n}") })),
                        _ => ("routes", json!({ "routes": [format!("10.{writer}.{n}.0/24")] })),
                    };
                    let path = format!("/api/v1/nodes/{id}/{what}");
                    assert_eq!(call(data, "POST", &path, &body).0, 200);
                }
            });
        }
    });
    let log = stage.call("GET", "/api/v1/audit?limit=1000", &Value::Null, 200);
    let entries = log["entries"].as_array().unwrap();
    let mut links = 0;
    for action in ["node.tag", "node.rename", "route.approve"] {
        let mut newer: Option<&Value> = None;
        for entry in entries.iter().filter(|entry| entry["action"] == action) {
            if let Some(before) = newer {
                assert_eq!(*before, entry["detail"]["after"], "{action}");
                links += 1;
            }
            newer = Some(&entry["detail"]["before"]);
        }
    }
    assert_eq!(links, WRITERS * WRITES - 3, "every change but the first of each kind");
}

#[test]
fn lc_08_machines_that_join_at_once_never_share_an_address_or_a_name() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let nodes: Vec<_> = (0..24).map(|_| stage.node(&token, "same")).collect();
    for mut node in nodes {
        node.until_enrolled();
    }
    let listed = stage.call("GET", "/api/v1/nodes", &Value::Null, 200);
    let listed = listed["nodes"].as_array().unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for node in listed {
        for value in node["addresses"].as_array().unwrap().iter().chain([&node["name"]]) {
            assert!(seen.insert(value.to_string()), "{value} is twice in {listed:?}");
        }
    }
    assert_eq!(seen.len(), 3 * 24);
}
