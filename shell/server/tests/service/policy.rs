//! Policies on a real server: refused with their places, told to nodes, approved by themselves.

use std::time::{Duration, Instant};

use control::{HostInfo, Map};
use policy::Rules;
use serde_json::{Value, json};

use crate::stage::{Node, Stage};

fn rules(map: &Map) -> Option<Rules> {
    Rules::read(&map.policy.rules).unwrap()
}

/// A policy that lets robots be asked for port 80, and nothing else.
const ROBOTS: &str = "{\"tagOwners\": {\"tag:robot\": [], \"tag:desk\": []},\n\
    \"acls\": [{\"action\": \"accept\", \"src\": [\"tag:desk\"], \"dst\": [\"tag:robot:80\"]}],\n\
    \"tests\": [{\"src\": \"tag:desk\", \"accept\": [\"tag:robot:80\"]}]}";

fn tag(stage: &Stage, node: &Node, tag: &str) {
    let id = node.map.as_ref().unwrap().me.id.0;
    let path = format!("/api/v1/nodes/{id}/tags");
    stage.call("POST", &path, &json!({ "tags": [tag] }), 200);
}

#[test]
fn pf_14_a_bad_policy_is_refused_with_its_places_and_the_last_good_one_stays() {
    let stage = Stage::new();
    let good = stage.call("PUT", "/api/v1/policy", &json!({ "text": ROBOTS }), 200);
    assert_eq!((&good["version"], &good["warnings"]), (&json!(1), &json!([])));
    let twice = ROBOTS.replace("\"accept\": [", "\"deny\": [");
    for (text, line, what) in [
        ("{\n  \"acls\": [{\"action\": \"allow\"}]}", 2, "a rule without src"),
        (
            "{\n\n\"grants\": [{\"src\": [\"group:x\"], \"dst\": [\"*\"], \"ip\": [\"*\"]}]}",
            3,
            "group:x",
        ),
        (&twice, 3, "must not be reached"),
        ("{", 1, ""),
    ] {
        for (method, path) in [("PUT", "/api/v1/policy"), ("POST", "/api/v1/policy/check")] {
            let refused = stage.call(method, path, &json!({ "text": text }), 400);
            let first = &refused["findings"][0];
            assert_eq!(first["line"], line, "{refused}");
            assert!(first["what"].as_str().unwrap().contains(what), "{refused}");
            assert!(first["column"].as_u64().unwrap() > 0 && first["mend"].is_string());
            assert!(refused["detail"].as_str().unwrap().starts_with(&format!("{line}:")));
        }
    }
    let holds = stage.call("GET", "/api/v1/policy", &Value::Null, 200);
    assert_eq!((&holds["version"], &holds["text"]), (&json!(1), &json!(ROBOTS)));
    assert_eq!(holds["readable"], true);
    let checked = stage.call("POST", "/api/v1/policy/check", &json!({ "text": ROBOTS }), 200);
    assert_eq!((&checked["rules"], &checked["tests"]), (&json!(1), &json!(1)));
}

#[test]
fn co_06_an_earlier_policy_holds_again_as_a_new_version_if_it_is_still_one() {
    let stage = Stage::new();
    let set = |text: &str| stage.call("PUT", "/api/v1/policy", &json!({ "text": text }), 200);
    assert_eq!(set(ROBOTS)["version"], 1);
    assert_eq!(set("{}")["version"], 2);
    let past = stage.call("GET", "/api/v1/policy/history", &Value::Null, 200);
    let versions = past["versions"].as_array().unwrap();
    let numbers: Vec<_> = versions.iter().filter_map(|one| one["version"].as_u64()).collect();
    assert_eq!(numbers, [2, 1]);
    assert!(versions[0]["actor"].as_str().unwrap().starts_with("local:"), "{past}");
    let page = stage.call("GET", "/api/v1/policy/history?before=2&limit=9", &Value::Null, 200);
    assert_eq!(page["versions"].as_array().map(Vec::len), Some(1));
    let one = stage.call("GET", "/api/v1/policy/history/1", &Value::Null, 200);
    assert_eq!((&one["version"], &one["text"]), (&json!(1), &json!(ROBOTS)));
    stage.call("GET", "/api/v1/policy/history/9", &Value::Null, 404);
    // Somebody else set another one meanwhile.
    let restore = "/api/v1/policy/history/1/restore";
    stage.call("POST", restore, &json!({ "if_version": 1 }), 409);
    let back = stage.call("POST", restore, &json!({ "if_version": 2 }), 200);
    assert_eq!(back["version"], 3, "{back}");
    let holds = stage.call("GET", "/api/v1/policy", &Value::Null, 200);
    assert_eq!((&holds["version"], &holds["text"]), (&json!(3), &json!(ROBOTS)));
    // What was good then may be wrong of the books as they are now: ben became an administrator.
    let ben = stage.call("POST", "/api/v1/users", &json!({ "name": "ben" }), 201);
    let mut node = stage.node(&stage.token(&json!({ "user": "ben" })), "laptop");
    node.until("a map", |_, map| map.is_some());
    let text = ROBOTS
        .replace("[\"tag:desk\"], \"dst\"", "[\"autogroup:admin\"], \"dst\"")
        .replace("\"src\": \"tag:desk\", \"accept\"", "\"src\": \"ben@\", \"deny\"");
    assert_eq!(set(&text)["version"], 4);
    set("{}");
    let role = format!("/api/v1/users/{}/role", ben["user"]["id"]);
    stage.call("POST", &role, &json!({ "role": "admin" }), 200);
    let refused = stage.call("POST", "/api/v1/policy/history/4/restore", &Value::Null, 400);
    assert_eq!(refused["findings"][0]["line"], 3, "{refused}");
    assert_eq!(stage.call("GET", "/api/v1/policy", &Value::Null, 200)["version"], 5);
}

#[test]
fn co_14_policy_and_tags_decide_at_once_who_is_told_of_whom() {
    let mut stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let mut nodes = ["desk", "robot", "other"].map(|name| {
        let mut node = stage.node(&token, name);
        node.until("a map", |_, map| map.is_some());
        node
    });
    nodes[0].until_peers(&["robot", "other"]);
    assert!(rules(nodes[0].map.as_ref().unwrap()).is_none(), "no policy was ever set");
    stage.call("PUT", "/api/v1/policy", &json!({ "text": ROBOTS }), 200);
    nodes.iter_mut().for_each(|node| node.until_peers(&[]));
    let begin = Instant::now();
    tag(&stage, &nodes[0], "tag:desk");
    tag(&stage, &nodes[1], "tag:robot");
    nodes[0].until_peers(&["robot"]);
    nodes[1].until_peers(&["desk"]);
    println!("tags were in both maps after {:?}", begin.elapsed());
    let (desk, robot) = (nodes[0].map.clone().unwrap(), nodes[1].map.clone().unwrap());
    let may = |list: &[policy::Rule], port| {
        list.iter().any(|r| r.allows(desk.me.addresses[0], robot.me.addresses[0], 6, port))
    };
    for (list, toward) in
        [(rules(&desk).unwrap().outward, "out"), (rules(&robot).unwrap().inward, "in")]
    {
        assert!(may(&list, 80) && !may(&list, 81), "{toward}");
    }
    assert_eq!(rules(nodes[2].map.as_ref().unwrap()), Some(Rules::default()));
    // After a restart the same holds.
    stage.restart();
    for node in &mut nodes[..2] {
        node.until("another epoch", |_, map| map.is_some_and(|map| map.epoch > desk.epoch));
    }
    let after = nodes[0].map.as_ref().unwrap();
    assert_eq!((&after.policy, after.peers.len()), (&desk.policy, 1));
    // And a revocation reaches both within a second (PF-07).
    let begin = Instant::now();
    stage.call("PUT", "/api/v1/policy", &json!({ "text": "{\"acls\": []}" }), 200);
    nodes[0].until_peers(&[]);
    nodes[1].until_peers(&[]);
    assert_eq!(rules(nodes[1].map.as_ref().unwrap()), Some(Rules::default()));
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}

#[test]
fn pf_12_routes_are_approved_by_the_policy_when_they_are_offered_or_it_is_set() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true, "tags": ["tag:gw"] }));
    let (mut gateway, mut peer) = (stage.node(&token, "gw"), stage.node(&token, "peer"));
    gateway.until_peers(&["peer"]);
    peer.until_peers(&["gw"]);
    let routes = ["10.7.0.0/16", "11.0.0.0/8"].map(|text| text.parse().unwrap());
    let offer = |routes: &[control::Prefix], settings: &control::client::Settings| HostInfo {
        routes: routes.to_vec(),
        ..settings.host.clone()
    };
    gateway.membership.report(offer(&routes[..1], &gateway.settings));
    let text = "{\"tagOwners\": {\"tag:gw\": []}, \"autoApprovers\": {\
        \"routes\": {\"10.0.0.0/8\": [\"tag:gw\"]}}}";
    // The report and the policy may come in any order.
    stage.call("PUT", "/api/v1/policy", &json!({ "text": text }), 200);
    peer.until("the route", |_, map| map.is_some_and(|map| map.peers[0].routes == routes[..1]));
    let more: control::Prefix = "10.8.0.0/16".parse().unwrap();
    gateway.membership.report(offer(&[routes[0], routes[1], more], &gateway.settings));
    peer.until("another", |_, map| map.is_some_and(|map| map.peers[0].routes == [routes[0], more]));
    let audit = stage.call("GET", "/api/v1/audit?limit=1", &Value::Null, 200);
    assert_eq!(audit["entries"][0]["actor"], "policy");
}

#[test]
fn users_whose_names_a_policy_could_not_tell_apart_are_refused() {
    let stage = Stage::new();
    stage.call("POST", "/api/v1/users", &json!({ "name": "ann" }), 201);
    stage.call("POST", "/api/v1/users", &json!({ "name": "Ann" }), 409);
    stage.call("POST", "/api/v1/users", &json!({ "name": "ann@" }), 400);
}

#[test]
fn pf_13_who_may_give_a_tag_is_what_tag_owners_say() {
    let stage = Stage::new();
    for name in ["ann", "ben"] {
        stage.call("POST", "/api/v1/users", &json!({ "name": name }), 201);
    }
    let key = |user: Value, tag: &str, status: u16| {
        let wanted = json!({ "user": user, "tags": [tag], "reusable": true });
        stage.call("POST", "/api/v1/keys", &wanted, status)
    };
    key(json!("ben"), "tag:any", 201);
    let text = r#"{"acls": [], "tagOwners": {"tag:web": ["ann@"], "tag:db": []}}"#;
    stage.call("PUT", "/api/v1/policy", &json!({ "text": text }), 200);
    key(json!("ann"), "tag:web", 201);
    key(Value::Null, "tag:db", 201);
    for (user, tag) in [(json!("ben"), "tag:web"), (json!("ann"), "tag:db"), (Value::Null, "tag:x")]
    {
        let why = key(user, tag, 409);
        assert!(why["detail"].as_str().unwrap().contains(tag), "{why}");
    }
    let token = stage.token(&json!({}));
    let mut node = stage.node(&token, "one");
    node.until_enrolled();
    stage.call("POST", "/api/v1/nodes/1/tags", &json!({ "tags": ["tag:x"] }), 409);
    stage.call("POST", "/api/v1/nodes/1/tags", &json!({ "tags": ["tag:web"] }), 200);
}
