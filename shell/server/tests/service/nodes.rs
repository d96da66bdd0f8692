//! Nodes join, see each other, change and leave.

use std::time::{Duration, Instant};

use control::{Code, Event, HostInfo};
use dial::proxy::Proxies;
use dial::{Membership, Notify, Start, SystemRandom};
use noise::PrivateKey;
use serde_json::{Value, json};
use server::store::Enrolment;

use crate::stage::{Node, PATIENCE, Stage};

#[test]
fn source_000_6_two_nodes_join_with_one_reusable_token_and_see_each_other() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true, "tags": ["tag:robot"] }));
    let begin = Instant::now();
    let mut one = stage.node(&token, "dev");
    one.until_peers(&[]);
    let mut two = stage.node(&token, "dev");
    two.until_peers(&["dev"]);
    one.until_peers(&["dev-1"]);
    println!("two nodes joined in {:?}", begin.elapsed());
    let (map, other) = (one.map.as_ref().unwrap(), two.map.as_ref().unwrap());
    let peer = &map.peers[0];
    assert_eq!(peer.key, two.settings.node_key);
    assert_eq!(peer.addresses, other.me.addresses);
    assert_eq!(peer.addresses[0].to_string(), "100.64.0.2");
    assert_eq!(peer.tags, ["tag:robot"]);
    assert_eq!((map.dns.domain.as_str(), map.me.approved), ("warren.internal", true));

    // What a node says of itself reaches the other.
    let endpoint = "192.0.2.1:41641".parse().unwrap();
    let host = HostInfo { endpoints: vec![endpoint], ..two.settings.host.clone() };
    two.membership.report(host);
    one.until("endpoints", |_, map| map.is_some_and(|map| map.peers[0].endpoints == [endpoint]));
}

#[test]
fn removal_reaches_the_node_and_its_peers_within_a_second() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let mut one = stage.node(&token, "one");
    let mut two = stage.node(&token, "two");
    one.until_peers(&["two"]);
    two.until_peers(&["one"]);
    let id = two.map.as_ref().unwrap().me.id.0;
    let begin = Instant::now();
    stage.call("DELETE", &format!("/api/v1/nodes/{id}"), &Value::Null, 204);
    one.until_peers(&[]);
    let told = begin.elapsed();
    two.until(
        "its own removal",
        |event, _| matches!(event, Event::Ended(refusal) if refusal.code == Code::NotEnrolled),
    );
    println!("removal: the peer knew after {told:?}, the node after {:?}", begin.elapsed());
    assert!(begin.elapsed() < Duration::from_secs(1));
    assert!(two.last.as_ref().unwrap().map.is_none(), "it has no map any more");
}

#[test]
fn a_restart_of_the_server_is_survived_and_a_cached_map_needs_no_server() {
    let mut stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let mut one = stage.node(&token, "one");
    let mut two = stage.node(&token, "two");
    one.until_peers(&["two"]);
    two.until_peers(&["one"]);
    let before = one.map.clone().unwrap();
    stage.restart();
    one.until("a map of the new epoch", |_, map| map.is_some_and(|map| map.epoch > before.epoch));
    assert_eq!(one.map.as_ref().unwrap().me, before.me, "names and addresses are stable");

    let (verifying, cached) = one.last.as_ref().unwrap().store.clone().unwrap();
    stage.server = None;
    let mut settings = one.settings.clone();
    (settings.join, settings.verifying) = (None, Some(verifying));
    let start = Start { settings, cached, proxies: Proxies::default(), notify: Notify::default() };
    let again = Membership::start(start).unwrap();
    let news = again.wait(PATIENCE).unwrap();
    assert_eq!(news.map.unwrap().peers[0].name, "two");
}

#[test]
fn a_single_use_token_lets_one_in_and_says_why_not_to_the_other() {
    let stage = Stage::new();
    let token = stage.token(&json!({}));
    let mut one = stage.node(&token, "one");
    one.until_enrolled();
    let mut two = stage.node(&token, "two");
    two.until("refusal", |event, _| {
        let is_told = |detail: &str| detail.contains("ask for a new one");
        matches!(event, Event::Ended(w) if w.code == Code::KeyUsed && is_told(&w.detail))
    });
    let mut wrong = stage.token(&json!({}));
    wrong.secret.0[0] ^= 1;
    let mut three = stage.node(&wrong, "three");
    three.until(
        "refusal",
        |event, _| matches!(event, Event::Ended(why) if why.code == Code::KeyUnknown),
    );
    let nodes = stage.call("GET", "/api/v1/nodes", &Value::Null, 200);
    assert_eq!(nodes["nodes"].as_array().unwrap().len(), 1);
}

#[test]
fn approval_renaming_tags_and_routes_reach_the_others() {
    let stage = Stage::with(Enrolment { needs_approval: true, lifetime_s: None });
    let token = stage.token(&json!({ "reusable": true }));
    let mut one = stage.node(&token, "one");
    let mut two = stage.node(&token, "two");
    for node in [&mut one, &mut two] {
        node.until("a map", |_, map| map.is_some());
        let map = node.map.clone().unwrap();
        assert!(!map.me.approved && map.peers.is_empty());
        let path = format!("/api/v1/nodes/{}/approve", map.me.id.0);
        stage.call("POST", &path, &Value::Null, 200);
    }
    one.until_peers(&["two"]);
    two.until_peers(&["one"]);
    let id = two.map.as_ref().unwrap().me.id.0;
    let path = |what: &str| format!("/api/v1/nodes/{id}/{what}");
    stage.call("POST", &path("rename"), &json!({ "name": "robot" }), 200);
    one.until_peers(&["robot"]);
    stage.call("POST", &path("rename"), &json!({ "name": "one" }), 409);
    stage.call("POST", &path("rename"), &json!({ "name": "<b>" }), 400);
    stage.call("POST", &path("tags"), &json!({ "tags": ["tag:a", "tag:b"] }), 200);
    one.until("tags", |_, map| map.is_some_and(|map| map.peers[0].tags == ["tag:a", "tag:b"]));

    stage.call("POST", "/api/v1/users", &json!({ "name": "anna" }), 201);
    let moved = stage.call("POST", &path("user"), &json!({ "user": "anna" }), 200);
    assert_eq!(moved["node"]["user"], "anna");
    stage.call("POST", &path("user"), &json!({ "user": "nobody-known" }), 404);
    stage.call("POST", &path("user"), &json!({}), 400);
    assert_eq!(
        stage.call("POST", &path("user"), &json!({ "user": null }), 200)["node"]["user"],
        Value::Null
    );

    let routes = vec!["10.7.0.0/16".parse().unwrap()];
    two.membership.report(HostInfo { routes: routes.clone(), ..two.settings.host.clone() });
    let reply = stage.call("POST", &path("routes"), &json!({ "routes": ["10.7.0.0/16"] }), 200);
    assert_eq!(reply["node"]["routes"]["approved"], json!(["10.7.0.0/16"]));
    one.until("the route", |_, map| map.is_some_and(|map| map.peers[0].routes == routes));
    two.until("its own route", |_, map| map.is_some_and(|map| map.me.routes == routes));
    stage.call("POST", &path("routes"), &json!({ "routes": ["100.64.0.0/16"] }), 400);
}

#[test]
fn keys_rotate_unattended_and_expiry_takes_a_node_out() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let mut one = stage.node(&token, "one");
    let mut two = stage.node(&token, "two");
    one.until_peers(&["two"]);
    two.until_peers(&["one"]);
    let fresh = PrivateKey::generate(&mut SystemRandom).public();
    two.membership.rotate(fresh);
    one.until("the new key", |_, map| map.is_some_and(|map| map.peers[0].key == fresh));
    two.until("its own", |event, _| *event == Event::Rotated(fresh));

    let id = two.map.as_ref().unwrap().me.id.0;
    stage.call("POST", &format!("/api/v1/nodes/{id}/expire"), &Value::Null, 200);
    one.until_peers(&[]);
    two.until("expiry", |event, _| matches!(event, Event::Ended(why) if why.code == Code::Expired));
    // With a join key the same machine is back under its name and address.
    let mut settings = two.settings.clone();
    settings.node_key = fresh;
    let mut back = Node::start(settings, Proxies::default());
    back.until_enrolled();
    one.until_peers(&["two"]);
    assert_eq!(one.map.as_ref().unwrap().peers[0].id.0, id);
    back.membership.logout();
    back.until("logout", |event, _| *event == Event::LoggedOut);
    one.until_peers(&[]);
}

#[test]
fn co_15_an_ephemeral_node_goes_when_it_is_away_and_only_then() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true, "ephemeral": true }));
    let mut one = stage.node(&token, "one");
    let mut two = stage.node(&token, "two");
    one.until_peers(&["two"]);
    std::thread::sleep(Duration::from_secs(3));
    let count = || {
        let nodes = stage.call("GET", "/api/v1/nodes", &Value::Null, 200);
        nodes["nodes"].as_array().unwrap().len()
    };
    assert_eq!(count(), 2, "a node in touch stays");
    two.until_peers(&["one"]);
    // Its connection breaks without a word.
    two.membership.network_changed();
    drop(two);
    one.until_peers(&[]);
    assert_eq!(count(), 1);
}

#[test]
fn co_15_an_ephemeral_node_that_stops_is_gone_and_its_successor_has_its_name() {
    let stage = Stage::new();
    let stays = stage.token(&json!({ "reusable": true }));
    let goes = stage.token(&json!({ "reusable": true, "ephemeral": true }));
    let mut one = stage.node(&stays, "one");
    let mut job = stage.node(&goes, "job");
    one.until_peers(&["job"]);
    job.until_peers(&["one"]);
    assert!(job.membership.stop(Duration::from_secs(10)), "it has left");
    one.until_peers(&[]);
    let mut next = stage.node(&goes, "job");
    one.until_peers(&["job"]);
    next.until_peers(&["one"]);
    // Who is no ephemeral node stays one of the network.
    assert!(!one.membership.stop(Duration::from_secs(10)));
    let nodes = stage.call("GET", "/api/v1/nodes", &Value::Null, 200);
    assert_eq!(nodes["nodes"].as_array().unwrap().len(), 2);
}

#[test]
fn a_member_that_calls_itself_otherwise_is_called_so_by_its_peers() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let mut one = stage.node(&token, "one");
    let mut two = stage.node(&token, "two");
    one.until_peers(&["two"]);
    two.until_peers(&["one"]);
    let host = two.settings.host.clone();
    two.membership.report(HostInfo { hostname: "printer".to_owned(), ..host });
    one.until_peers(&["printer"]);
    two.until("its own name", |_, map| map.is_some_and(|map| map.me.name == "printer"));
}

#[test]
fn co_05_no_key_opens_what_belongs_to_another() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let mut one = stage.node(&token, "one");
    let mut two = stage.node(&token, "two");
    one.until_peers(&["two"]);
    two.until_peers(&["one"]);
    // The machine of one with the WireGuard key of two, and the other way round.
    for (machine, node) in [(&one, &two), (&two, &one)] {
        let mut settings = machine.settings.clone();
        settings.node_key = node.settings.node_key;
        settings.join = None;
        let mut thief = Node::start(settings.clone(), Proxies::default());
        thief.until(
            "refusal",
            |event, _| matches!(event, Event::Ended(why) if why.code == Code::WrongKey),
        );
        // Not even with a join key.
        settings.join = Some((token.id, token.secret.clone()));
        let mut thief = Node::start(settings, Proxies::default());
        thief.until(
            "refusal",
            |event, _| matches!(event, Event::Ended(why) if why.code == Code::WrongKey),
        );
    }
}
