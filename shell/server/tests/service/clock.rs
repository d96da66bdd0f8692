//! A server whose clock is wrong by a year, both ways, and right again. Time is a function that the
//! server is started with: the clock of a whole machine is nobody's to set in a test.

use std::sync::atomic::{AtomicI64, Ordering};

use control::{Code, Event, Map};
use dial::proxy::Proxies;
use serde_json::{Value, json};
use server::store::Enrolment;
use server::{Config, Server, unix_s};

use crate::stage::{Folder, Node, Stage, config};

const YEAR_S: i64 = 365 * 86_400;
/// Longer than a node needs to come back after a restart, and far shorter than a year.
const BRIEF_S: Option<u64> = Some(20);

/// How far the clock of the tests' servers is off; each test has its own.
static FIRST: AtomicI64 = AtomicI64::new(0);
static SECOND: AtomicI64 = AtomicI64::new(0);

fn first() -> u64 {
    unix_s().saturating_add_signed(FIRST.load(Ordering::Relaxed))
}

fn second() -> u64 {
    unix_s().saturating_add_signed(SECOND.load(Ordering::Relaxed))
}

fn stage(clock: fn() -> u64, terms: Enrolment) -> Stage {
    let folder = Folder::new();
    let server =
        Server::start(Config { terms, clock, ephemeral_away_s: BRIEF_S, ..config(&folder.0, 0) })
            .unwrap();
    let address = server.address();
    Stage { server: Some(server), address, folder, store: None }
}

fn is_called(map: Option<&Map>, name: &str) -> bool {
    map.is_some_and(|map| map.peers.iter().any(|peer| peer.name == name))
}

#[test]
fn lc_04_lc_05_a_clock_a_year_ahead_and_a_year_behind_loses_nothing() {
    let mut stage = stage(first, Enrolment::default());
    let token = stage.token(&json!({ "reusable": true, "expires_in_s": 3600 }));
    let short = stage.token(&json!({ "reusable": true, "ephemeral": true }));
    let (mut one, mut two) = (stage.node(&token, "one"), stage.node(&token, "two"));
    let mut brief = stage.node(&short, "brief");
    one.until_peers(&["two", "brief"]);
    two.until_peers(&["one", "brief"]);
    let id = two.map.as_ref().unwrap().me.id.0;
    let refused = |event: &Event| match event {
        Event::Ended(refusal) => refusal.code == Code::KeyExpired,
        _ => false,
    };
    for (n, offset) in [YEAR_S, 0, -YEAR_S, 0].into_iter().enumerate() {
        FIRST.store(offset, Ordering::Relaxed);
        let name = format!("step-{n}");
        let path = format!("/api/v1/nodes/{id}/rename");
        stage.call("POST", &path, &json!({ "name": name }), 200);
        for node in [&mut one, &mut brief] {
            node.until("the name", |_, map| is_called(map, &name));
        }
        let mut late = stage.node(&token, &format!("late-{n}"));
        if offset > 0 {
            late.until("that the key is over", |event, _| refused(event));
        } else {
            late.until_enrolled();
        }
        // Two sweeps of the server, in which nobody may be taken for away.
        let before = one.map.as_ref().unwrap().epoch;
        if n == 1 {
            stage.server = None;
            let port = stage.address.port();
            let again =
                Config { clock: first, ephemeral_away_s: BRIEF_S, ..config(&stage.folder.0, port) };
            stage.server = Some(Server::start(again).unwrap());
            one.until("a later epoch", |_, map| map.is_some_and(|map| map.epoch > before));
        }
    }
    let nodes = stage.call("GET", "/api/v1/nodes", &Value::Null, 200);
    let nodes = nodes["nodes"].as_array().unwrap();
    let has = |name: &str| nodes.iter().any(|node| node["name"] == name);
    assert!(["one", "step-3", "brief", "late-1", "late-2", "late-3"].into_iter().all(has));
    assert!(!has("late-0"));
}

#[test]
fn lc_04_nodes_whose_keys_a_wrong_clock_ended_are_let_in_again_by_their_own() {
    let terms = Enrolment { lifetime_s: Some(180 * 86_400), ..Enrolment::default() };
    let stage = stage(second, terms);
    let token = stage.token(&json!({ "reusable": true }));
    let (mut one, mut two) = (stage.node(&token, "one"), stage.node(&token, "two"));
    one.until_peers(&["two"]);
    two.until_peers(&["one"]);
    SECOND.store(YEAR_S, Ordering::Relaxed);
    for node in [&mut one, &mut two] {
        node.until("expiry", |event, _| match event {
            Event::Ended(refusal) => refusal.code == Code::Expired,
            _ => false,
        });
    }
    SECOND.store(0, Ordering::Relaxed);
    let again = |node: &Node| {
        let mut settings = node.settings.clone();
        settings.join = None;
        Node::start(settings, Proxies::default())
    };
    let (mut one, mut two) = (again(&one), again(&two));
    one.until_peers(&["two"]);
    two.until_peers(&["one"]);
}
