//! People who sign in: what each role may, and what a page of somebody else's may not.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use dial::http::Connection;
use dial::proxy::Proxies;
use rustls::StreamOwned;
use serde_json::{Value, json};

use crate::api::{EVENTS, rows};
use crate::browser::{Browser, raw};
use crate::stage::{PATIENCE, Stage};

const PASSWORD: &str = "correct horse battery";

/// What each role may do everywhere, as docs/people.md says.
const READS: [&str; 8] = [
    "nodes:read",
    "keys:read",
    "users:read",
    "policy:read",
    "audit:read",
    "tokens:read",
    "metrics:read",
    "dns:read",
];

fn may(role: &str, scope: &str) -> bool {
    let is_read = READS.contains(&scope);
    match role {
        "owner" => true,
        "admin" => scope != "backup:read",
        "operator" => {
            let writes = ["nodes:write", "keys:write", "dns:write"];
            writes.contains(&scope) || is_read && !["audit:read", "tokens:read"].contains(&scope)
        }
        "auditor" => is_read,
        _ => false,
    }
}

/// A user of this name and role, signed in.
pub(crate) fn person(stage: &Stage, name: &str, role: &str) -> Browser {
    let new = json!({ "name": name, "role": role, "password": PASSWORD });
    stage.call("POST", "/api/v1/users", &new, 201);
    let mut browser = Browser::default();
    let page = browser.sign_in(stage, name, PASSWORD);
    assert_eq!((page.status, page.json()["role"].as_str()), (200, Some(role)));
    browser
}

#[test]
fn co_09_every_route_admits_the_roles_that_it_is_for_and_nobody_else() {
    let stage = Stage::new();
    let document =
        raw(&stage, "GET /api/v1/openapi.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let document = document.json();
    let mut rows = rows();
    if stage.store.is_some() {
        rows.insert(("POST", "/api/v1/backup"), (Value::Null, 501));
    }
    let mut seen = 0;
    for role in ["owner", "admin", "operator", "auditor", "member"] {
        let mut browser = person(&stage, &format!("a-{role}"), role);
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let method = method.to_uppercase();
                let scope = operation["x-scope"].as_str().unwrap();
                let is_own = operation["x-own"] == true;
                if scope == "self" || path == EVENTS {
                    continue;
                }
                let (body, status) = &rows[&(method.as_str(), path.as_str())];
                let page = browser.call(&stage, &method, &path.replace("{id}", "999999"), body);
                let expected = match may(role, scope) || is_own || scope.is_empty() {
                    true if *status == 501 => page.status,
                    // A relay enters itself: it proves a key, which no browser does.
                    true if path == "/api/v1/relays" && method == "POST" => page.status,
                    true => *status,
                    false => 403,
                };
                assert_eq!(page.status, expected, "{role}: {method} {path}: {}", page.body);
                assert_eq!(page.fields["x-frame-options"], "DENY", "WB-03: {path}");
                seen += 1;
            }
        }
    }
    assert!(seen > 5 * 30, "{seen}");
}

#[test]
fn co_09_a_member_sees_and_manages_its_own_nodes_and_finds_no_others() {
    let stage = Stage::new();
    let mut anna = person(&stage, "anna", "member");
    let mut auditor = person(&stage, "audit", "auditor");
    stage.call("POST", "/api/v1/users", &json!({ "name": "ben" }), 201);
    let mut ids = Vec::new();
    for (user, name) in [(Some("anna"), "laptop"), (Some("ben"), "desk"), (None, "printer")] {
        let token = stage.token(&json!({ "user": user }));
        let mut node = stage.node(&token, name);
        node.until("a map", |_, map| map.is_some());
        ids.push(node.map.as_ref().unwrap().me.id.0);
    }
    let seen = anna.call(&stage, "GET", "/api/v1/nodes", &Value::Null).json();
    let names: Vec<&str> =
        seen["nodes"].as_array().unwrap().iter().filter_map(|n| n["name"].as_str()).collect();
    assert_eq!(names, ["laptop"]);
    for id in &ids[1..] {
        for (method, what, body) in [
            ("GET", "", Value::Null),
            ("DELETE", "", Value::Null),
            ("POST", "/rename", json!({ "name": "mine" })),
            ("POST", "/expire", Value::Null),
        ] {
            let path = format!("/api/v1/nodes/{id}{what}");
            let page = anna.call(&stage, method, &path, &body);
            assert_eq!(page.status, 404, "{method} {path}: as if it were not there");
            let all = if method == "GET" { 200 } else { 404 };
            assert_eq!(auditor.call(&stage, method, &path, &body).status, all, "{method} {path}");
        }
    }
    let mine = format!("/api/v1/nodes/{}", ids[0]);
    let renamed = anna.call(&stage, "POST", &format!("{mine}/rename"), &json!({ "name": "mine" }));
    assert_eq!(renamed.json()["node"]["name"], "mine");
    let tags = json!({ "tags": ["tag:a"] });
    assert_eq!(anna.call(&stage, "POST", &format!("{mine}/tags"), &tags).status, 403);
    assert_eq!(anna.call(&stage, "POST", &format!("{mine}/approve"), &Value::Null).status, 403);
    assert_eq!(anna.call(&stage, "DELETE", &mine, &Value::Null).status, 204);
    assert_eq!(anna.call(&stage, "GET", &mine, &Value::Null).status, 404);
}

#[test]
fn wb_01_wb_13_a_page_of_somebody_elses_changes_nothing() {
    let stage = Stage::new();
    let mut owner = person(&stage, "owner", "owner");
    let change = json!({ "name": "mallory", "role": "owner" });
    let ours = format!("https://{}", stage.address);
    let attempts = [
        ("https://evil.example", true),
        ("null", true),
        ("", true),
        ("http://evil.example", true),
        (&ours.replace("https", "http").replace("127.0.0.1", "evil"), true),
        (&format!("{ours}.evil.example"), true),
        (&ours, false),
    ];
    for (origin, has_csrf) in attempts {
        let mut page = owner.clone();
        page.origin = Some(origin.to_owned());
        if !has_csrf {
            page.csrf = None;
        }
        let got = page.call(&stage, "POST", "/api/v1/users", &change);
        assert_eq!(got.status, 403, "{origin:?} {has_csrf}: {}", got.body);
    }
    // Another session's word is none of this one's.
    let mut other = person(&stage, "other", "owner");
    std::mem::swap(&mut other.csrf, &mut owner.csrf);
    assert_eq!(owner.call(&stage, "POST", "/api/v1/users", &change).status, 403);
    std::mem::swap(&mut other.csrf, &mut owner.csrf);
    // No form of another page is a call, and none signs anybody in.
    let kinds = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"];
    for kind in kinds {
        let got = owner.ask(&stage, ("POST", "/api/v1/users"), (kind, &change.to_string()));
        assert_eq!(got.status, 415, "{kind}");
    }
    let mut stranger =
        Browser { origin: Some("https://evil.example".into()), ..Browser::default() };
    assert_eq!(stranger.sign_in(&stage, "owner", PASSWORD).status, 403, "no sign-in by others");
    let fields = owner.call(&stage, "GET", "/api/v1/users", &Value::Null).fields;
    assert!(!fields.keys().any(|name| name.starts_with("access-control")), "nobody else reads it");
    assert_eq!(owner.call(&stage, "POST", "/api/v1/users", &change).status, 201, "ours does");
}

#[test]
fn wb_04_a_session_is_new_at_each_sign_in_and_ends_when_it_is_ended() {
    let stage = Stage::new();
    let mut owner = person(&stage, "owner", "owner");
    let first = owner.cookie().unwrap().clone();
    // What an attacker planted is nobody's, and is not what the victim has after a sign-in.
    let mut victim = Browser::default();
    victim.cookies.insert("warren_session".into(), "A".repeat(43));
    assert_eq!(victim.call(&stage, "GET", "/api/v1/session", &Value::Null).status, 401);
    let page = victim.sign_in(&stage, "owner", PASSWORD);
    let cookie = &page.fields["set-cookie"];
    for word in ["HttpOnly", "Secure", "SameSite=Lax", "Path=/"] {
        assert!(cookie.contains(word), "{cookie}");
    }
    assert!(!cookie.contains("Domain"), "{cookie}");
    let second = victim.cookie().unwrap().clone();
    assert!(second != "A".repeat(43) && second != first);
    // A sign-in on top of another ends the one of before.
    let mut old = owner.clone();
    assert_eq!(owner.sign_in(&stage, "OWNER", PASSWORD).status, 200, "case says nothing");
    assert_eq!(old.call(&stage, "GET", "/api/v1/session", &Value::Null).status, 401);
    let who = owner.call(&stage, "GET", "/api/v1/session", &Value::Null).json();
    assert_eq!((who["user"].as_str(), who["role"].as_str()), (Some("owner"), Some("owner")));
    assert!(who["expires_s_at"].as_u64().unwrap() > server::unix_s() + 3600);
    // Each bit of it counts.
    for at in [0, 10, 22, 30, 42] {
        let mut bent = owner.clone();
        let cookie = bent.cookies.get_mut("warren_session").unwrap();
        let other = if cookie.as_bytes()[at] == b'A' { "B" } else { "A" };
        cookie.replace_range(at..=at, other);
        assert_eq!(bent.call(&stage, "GET", "/api/v1/session", &Value::Null).status, 401, "{at}");
    }
    let mut copy = owner.clone();
    assert_eq!(owner.call(&stage, "DELETE", "/api/v1/session", &Value::Null).status, 200);
    assert_eq!(owner.cookie(), None, "it is forgotten");
    assert_eq!(copy.call(&stage, "GET", "/api/v1/nodes", &Value::Null).status, 401, "and gone");
    // Another password, another role and a word of an administrator end what goes on.
    let mut stage = stage;
    let id = stage.call("GET", "/api/v1/users", &Value::Null, 200)["users"][0]["id"].clone();
    stage.call("POST", "/api/v1/users", &json!({ "name": "two", "role": "owner" }), 201);
    for (what, body, status) in [
        ("password", json!({ "password": "another password" }), 204),
        ("sign-out", Value::Null, 200),
        ("role", json!({ "role": "member" }), 200),
    ] {
        let password = if what == "password" { PASSWORD } else { "another password" };
        let mut browser = Browser::default();
        assert_eq!(browser.sign_in(&stage, "owner", password).status, 200);
        stage.restart();
        let page = browser.call(&stage, "GET", "/api/v1/session", &Value::Null);
        assert_eq!(page.status, 200, "a session outlives the server");
        stage.call("POST", &format!("/api/v1/users/{id}/{what}"), &body, status);
        let page = browser.call(&stage, "GET", "/api/v1/session", &Value::Null);
        assert_eq!(page.status, 401, "{what}");
    }
}

#[test]
fn wb_05_guesses_are_few_and_say_nothing_of_who_is_there() {
    let stage = Stage::new();
    person(&stage, "anna", "member");
    let mut browser = Browser::default();
    let wrong = browser.sign_in(&stage, "anna", "wrong horse battery");
    let nobody = browser.sign_in(&stage, "nobody", "wrong horse battery");
    assert_eq!((wrong.status, &wrong.body), (nobody.status, &nobody.body));
    assert_eq!(wrong.status, 401);
    let mut tried = 0;
    for n in 0..200 {
        let page = browser.sign_in(&stage, "anna", &format!("wrong horse {n}"));
        tried += u32::from(page.status == 401);
        assert!([401, 429].contains(&page.status), "{}", page.body);
    }
    assert!(tried < 40, "{tried} of 200 were looked at");
    assert_eq!(browser.sign_in(&stage, "anna", PASSWORD).status, 429, "also the right one");
    for password in ["short", "xxxxxxxxxxxxxxxxxxxx"] {
        let new = json!({ "name": "ben", "password": password });
        stage.call("POST", "/api/v1/users", &new, 400);
    }
}

#[test]
fn co_09_nobody_makes_or_changes_who_may_do_more() {
    let stage = Stage::new();
    let mut admin = person(&stage, "admin", "admin");
    let owner = stage.call("POST", "/api/v1/users", &json!({ "name": "o", "role": "owner" }), 201);
    let id = &owner["user"]["id"];
    let new = json!({ "name": "mine", "role": "owner" });
    assert_eq!(admin.call(&stage, "POST", "/api/v1/users", &new).status, 403);
    let own = admin.call(&stage, "GET", "/api/v1/session", &Value::Null).json()["id"].clone();
    for (target, what, body) in [
        (id, "role", json!({ "role": "member" })),
        (id, "password", json!({ "password": PASSWORD })),
        (&own, "role", json!({ "role": "owner" })),
    ] {
        let path = format!("/api/v1/users/{target}/{what}");
        assert_eq!(admin.call(&stage, "POST", &path, &body).status, 403, "{path}");
    }
    let path = format!("/api/v1/users/{id}");
    assert_eq!(admin.call(&stage, "DELETE", &path, &Value::Null).status, 403);
    stage.call("DELETE", &path, &Value::Null, 409);
    stage.call("POST", &format!("{path}/role"), &json!({ "role": "member" }), 409);
    // A token for users makes no owner either, and one that a user made may no more than it may.
    let token = stage.api_token(&["users:write", "users:read"]);
    let mut far = dial::Admin::remote(Some(stage.url()), &token, Proxies::default()).unwrap();
    assert_eq!(far.call("POST", "/api/v1/users", &new.to_string()).unwrap().status, 403);
    let wanted = json!({ "scopes": ["audit:read", "nodes:read"] });
    let made = admin.call(&stage, "POST", "/api/v1/tokens", &wanted).json();
    let token = made["token"].as_str().unwrap();
    let mut far = dial::Admin::remote(Some(stage.url()), token, Proxies::default()).unwrap();
    let mut ask = |path: &str| far.call("GET", path, "").unwrap().status;
    assert_eq!((ask("/api/v1/audit"), ask("/api/v1/nodes")), (200, 200));
    let role = |role: &str| json!({ "role": role });
    stage.call("POST", &format!("/api/v1/users/{own}/role"), &role("operator"), 200);
    assert_eq!((ask("/api/v1/audit"), ask("/api/v1/nodes")), (403, 200), "as its maker now");
    stage.call("POST", &format!("/api/v1/users/{own}/role"), &role("member"), 200);
    assert_eq!(ask("/api/v1/nodes"), 403);
    stage.call("DELETE", &format!("/api/v1/users/{own}"), &Value::Null, 204);
    assert_eq!(ask("/api/v1/nodes"), 401, "and gone with it");
}

/// Reads a stream of events until `done` is content with all that came.
fn listen(
    stage: &Stage,
    browser: &Browser,
    act: impl FnOnce(),
    done: impl Fn(&str) -> bool,
) -> String {
    let connection = Connection::open(&stage.url(), &Proxies::default()).unwrap();
    let (sock, tls, _) = connection.into_parts().unwrap();
    sock.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut stream = StreamOwned::new(tls, sock);
    let cookie = browser.cookie().unwrap();
    let head =
        format!("GET {EVENTS} HTTP/1.1\r\nHost: x\r\nCookie: warren_session={cookie}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let (mut text, mut act) = (String::new(), Some(act));
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let mut piece = [0; 4096];
        if let Ok(len) = stream.read(&mut piece) {
            text += &String::from_utf8_lossy(&piece[..len]);
        }
        if text.contains("retry:")
            && let Some(act) = act.take()
        {
            act();
        }
        if act.is_none() && done(&text) {
            return text;
        }
    }
    panic!("it was not told; what was: {text}");
}

#[test]
fn wb_13_changes_are_told_to_those_who_may_see_them() {
    let stage = Stage::new();
    let mut owner = person(&stage, "owner", "owner");
    let anna = person(&stage, "anna", "member");
    let join = |user: Option<&str>, name: &str| {
        let token = stage.token(&json!({ "user": user }));
        stage.node(&token, name).until("a map", |_, map| map.is_some());
    };
    let act = || {
        join(Some("anna"), "laptop");
        stage.call("PUT", "/api/v1/policy", &json!({ "text": "{}" }), 200);
        stage.call("POST", "/api/v1/users", &json!({ "name": "ben" }), 201);
    };
    let all = |text: &str| {
        ["event: node", "event: policy", "event: key", "event: user"]
            .iter()
            .all(|e| text.contains(e))
    };
    let told = listen(&stage, &owner, act, all);
    assert!(told.contains("text/event-stream"), "{told}");
    let act = || {
        join(None, "printer");
        stage.call("PUT", "/api/v1/policy", &json!({ "text": "{ }" }), 200);
        join(Some("anna"), "desk");
    };
    let told = listen(&stage, &anna, act, |text| text.contains("\"id\":3"));
    assert!(!told.contains("event: policy") && !told.contains("event: key"), "{told}");
    assert!(!told.contains("\"id\":2}"), "nothing of others' nodes: {told}");
    let page = owner.call(&stage, "POST", EVENTS, &Value::Null);
    assert_eq!(page.status, 405);
}

#[test]
fn co_19_links_are_told_to_those_who_see_the_node() {
    let stage = Stage::new();
    let mut owner = person(&stage, "owner", "owner");
    let mut anna = person(&stage, "anna", "member");
    let mut nodes = Vec::new();
    for user in [Some("anna"), None] {
        let token = stage.token(&json!({ "user": user }));
        let mut node = stage.node(&token, "node");
        node.until("a map", |_, map| map.is_some());
        nodes.push(node);
    }
    let ids: Vec<u64> = nodes.iter().map(|node| node.map.as_ref().unwrap().me.id.0).collect();
    let report = |peer: u64| control::LinkReport {
        peer,
        path: "direct".to_owned(),
        rtt_us: Some(1234),
        loss_ppm: 2500,
        rx_bytes: 10,
        tx_bytes: 20,
        available: Some(control::Available { low_bps: 9, high_bps: 11, age_s: 0 }),
    };
    nodes[0].membership.report_links(vec![report(ids[1]), report(99)]);
    nodes[1].membership.report_links(vec![report(ids[0])]);
    let links = |browser: &mut Browser| {
        let page = browser.call(&stage, "GET", "/api/v1/links", &Value::Null);
        page.json()["links"].as_array().cloned().unwrap()
    };
    let begin = Instant::now();
    while links(&mut owner).len() < 2 {
        assert!(begin.elapsed() < PATIENCE, "{:?}", links(&mut owner));
        std::thread::sleep(Duration::from_millis(50));
    }
    let seen = links(&mut owner);
    assert_eq!(seen.len(), 2, "a peer that is nobody is left out: {seen:?}");
    let link = &seen[0];
    assert_eq!(
        (&link["path"], &link["rtt_us"], &link["loss"]),
        (&json!("direct"), &json!(1234), &json!(0.0025))
    );
    let left = &link["available"];
    assert_eq!(
        (&left["low_bps"], &left["high_bps"], &left["at"]),
        (&json!(9), &json!(11), &link["at"])
    );
    let mine = links(&mut anna);
    assert!(mine.len() == 1 && mine[0]["node"] == ids[0], "{mine:?}");
    let day = |browser: &mut Browser, id: u64| {
        let page = browser.call(&stage, "GET", &format!("/api/v1/links?node={id}"), &Value::Null);
        page.json()["history"].as_array().map(Vec::len)
    };
    assert_eq!([day(&mut owner, ids[1]), day(&mut anna, ids[0])], [Some(1), Some(1)]);
    assert_eq!(day(&mut anna, ids[1]), Some(0), "of others nothing");
}

#[test]
fn source_001_11_a_month_is_kept_of_paths_between_gateways_and_of_no_others() {
    let stage = Stage::new();
    let tagged = json!({ "reusable": true, "tags": [control::name::SITES_TAG] });
    let token = stage.token(&tagged);
    let plain = stage.token(&json!({}));
    let names = [("one", &token), ("two", &token), ("other", &plain)];
    let mut nodes = names.map(|(name, token)| stage.node(token, name));
    nodes.iter_mut().for_each(|node| node.until("a map", |_, map| map.is_some()));
    let ids = nodes.each_ref().map(|node| node.map.as_ref().unwrap().me.id.0);
    let report = |peer: u64| control::LinkReport {
        peer,
        path: "direct".to_owned(),
        rtt_us: Some(1234),
        loss_ppm: 2500,
        rx_bytes: 0,
        tx_bytes: 0,
        available: None,
    };
    nodes[0].membership.report_links(vec![report(ids[1]), report(ids[2])]);
    nodes[2].membership.report_links(vec![report(ids[0])]);
    let hours = |days: u32, status| {
        let told = stage.call("GET", &format!("/api/v1/paths?days={days}"), &Value::Null, status);
        told["hours"].as_array().cloned().unwrap_or_default()
    };
    let begin = Instant::now();
    while hours(30, 200).is_empty() {
        assert!(begin.elapsed() < PATIENCE, "no path is told");
        std::thread::sleep(Duration::from_millis(50));
    }
    let told = stage.call("GET", "/api/v1/paths?days=30", &Value::Null, 200);
    assert_eq!(told["older_left_out"], false);
    let told = hours(30, 200);
    let [hour] = &told[..] else { panic!("one path is between gateways: {told:?}") };
    assert_eq!((&hour["node"], &hour["peer"]), (&json!(ids[0]), &json!(ids[1])));
    assert_eq!((&hour["rtt_us_min"], &hour["loss_ppm_max"]), (&json!(1234), &json!(2500)));
    for days in [0, 31] {
        assert!(hours(days, 400).is_empty());
    }
}

#[test]
fn co_19_a_policy_may_say_that_nobody_reports_links() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let mut nodes = ["one", "two"].map(|name| stage.node(&token, name));
    nodes.iter_mut().for_each(|node| node.until("a map", |_, map| map.is_some()));
    let peer = nodes[1].map.as_ref().unwrap().me.id.0;
    let report = || {
        nodes[0].membership.report_links(vec![control::LinkReport {
            peer,
            path: "direct".to_owned(),
            rtt_us: None,
            loss_ppm: 0,
            rx_bytes: 1,
            tx_bytes: 1,
            available: None,
        }]);
    };
    let count = || {
        let links = stage.call("GET", "/api/v1/links", &Value::Null, 200);
        links["links"].as_array().unwrap().len()
    };
    let until = |wanted: usize| {
        let begin = Instant::now();
        while count() != wanted {
            assert!(begin.elapsed() < PATIENCE, "{wanted} links");
            report();
            std::thread::sleep(Duration::from_millis(1000));
        }
    };
    until(1);
    let all = "\"acls\": [{\"action\": \"accept\", \"src\": [\"*\"], \"dst\": [\"*:*\"]}]";
    let set = |reports: &str| {
        let text = format!("{{{all}, \"linkReports\": {reports}}}");
        stage.call("PUT", "/api/v1/policy", &json!({ "text": text }), 200);
    };
    set("false");
    assert_eq!(count(), 0, "what was known is forgotten at once");
    report();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(count(), 0);
    set("true");
    until(1);
    let text = format!("{{{all}, \"linkReports\": \"no\"}}");
    stage.call("PUT", "/api/v1/policy", &json!({ "text": text }), 400);
}
