//! A server whose books are in PostgreSQL: while that is away, when somebody else wrote there, and
//! with the wrong books.

use std::process::Command;
use std::time::{Duration, Instant};

use control::{Code, Event, Map};
use serde_json::{Value, json};
use server::store::Enrolment;
use server::{Config, Server};

use crate::cluster::{Cluster, SHARED};
use crate::stage::{Folder, PATIENCE, Stage, config};

fn ended(event: &Event) -> bool {
    matches!(event, Event::Ended(refusal) if refusal.code == Code::NotEnrolled)
}

fn database(stage: &Stage) -> String {
    let url = stage.store.as_ref().unwrap();
    url.split(['/', '?']).nth(3).unwrap().to_owned()
}

/// What a start of this folder with these books is refused with.
fn refused(folder: &Folder, store: Option<&str>) -> String {
    let store = store.map(str::to_owned);
    Server::start(Config { store, ..config(&folder.0, 0) }).err().unwrap().to_string()
}

#[test]
fn lc_02_while_the_database_is_away_nodes_stay_and_administrators_are_told() {
    let mut cluster = Cluster::new("on");
    let store = cluster.database("away");
    let stage = Stage::on(Folder::new(), Some(store), Enrolment::default());
    let token = stage.token(&json!({ "reusable": true }));
    let mut one = stage.node(&token, "one");
    one.until_peers(&[]);
    let id = one.map.as_ref().unwrap().me.id.0;
    let path = format!("/api/v1/nodes/{id}");
    let rename = json!({ "name": "renamed" });

    cluster.kill();
    for (method, path, body) in [
        ("POST", format!("{path}/rename"), &rename),
        ("GET", "/api/v1/nodes".to_owned(), &Value::Null),
        ("DELETE", path.clone(), &Value::Null),
    ] {
        let problem = stage.call(method, &path, body, 503);
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("the PostgreSQL database \"away\" at"), "{detail}");
        assert!(detail.contains("database server, then try again"), "{detail}");
    }
    let begin = Instant::now();
    stage.call("GET", "/api/v1/openapi.json", &Value::Null, 200);
    assert!(begin.elapsed() < Duration::from_secs(2), "what needs no books waits for none");
    let mut late = stage.node(&token, "late");

    cluster.start();
    late.until("enrolment", |event, _| matches!(event, Event::Enrolled(_)));
    one.until_peers(&["late"]);
    stage.call("POST", &format!("{path}/rename"), &rename, 200);
    one.until("its name", |_, map| map.is_some_and(|map| map.me.name == "renamed"));
    stage.call("DELETE", &path, &Value::Null, 204);
    one.until("its removal", |event, _| ended(event));
}

/// A call and how long it took.
fn timed(stage: &Stage, method: &str, path: &str, body: &Value) -> (u16, String, Duration) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let begin = Instant::now();
    let reply = stage.admin().call(method, path, &body).unwrap();
    (reply.status, reply.body, begin.elapsed())
}

#[test]
fn lc_02_a_database_that_says_nothing_is_given_up_and_nothing_is_lost_when_it_goes_on() {
    let cluster = Cluster::new("on");
    let store = cluster.database("silent");
    let stage = Stage::on(Folder::new(), Some(store), Enrolment::default());
    let token = stage.token(&json!({ "reusable": true }));
    let (mut one, mut two) = (stage.node(&token, "one"), stage.node(&token, "two"));
    one.until_peers(&["two"]);
    two.until_peers(&["one"]);
    let id = one.map.as_ref().unwrap().me.id.0;
    let rename = format!("/api/v1/nodes/{id}/rename");

    let frozen = std::sync::Mutex::new(None);
    let (made, asked) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut made = Vec::new();
            loop {
                let name = format!("user-{}", made.len());
                let body = json!({ "name": name });
                let (status, text, took) = timed(&stage, "POST", "/api/v1/users", &body);
                if status != 201 {
                    return (made, (status, text, took));
                }
                made.push(name);
            }
        });
        std::thread::sleep(Duration::from_millis(200));
        *frozen.lock().unwrap() = Some(cluster.freeze());
        writer.join().unwrap()
    });
    println!("{} users were made; then {asked:?}", made.len());
    let bound = Duration::from_secs(20);
    assert!(asked.0 == 503 && asked.2 < bound, "{asked:?}");
    assert!(asked.1.contains("did not answer within"), "{}", asked.1);
    // The next are told at once or after a try to connect; nobody waits for ever.
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (stage, rename) = (&stage, &rename);
            scope.spawn(move || {
                let body = json!({ "name": format!("n{n}") });
                let (status, text, took) = timed(stage, "POST", rename, &body);
                assert!(status == 503 && took < bound, "{status} {took:?} {text}");
            });
        }
    });
    let (status, text, took) = timed(&stage, "GET", "/metrics", &Value::Null);
    assert!(status == 200 && took < bound, "{took:?}");
    let errors = text.lines().find_map(|line| line.strip_prefix("warren_store_errors_total "));
    assert!(errors.unwrap().parse::<u64>().unwrap() > 0, "{text}");
    assert!(text.contains("warren_nodes_online 2"), "nodes stay: {text}");

    drop(frozen);
    let begin = Instant::now();
    while timed(&stage, "POST", "/api/v1/users", &json!({ "name": "after" })).0 != 201 {
        assert!(begin.elapsed() < PATIENCE, "it goes on");
        std::thread::sleep(Duration::from_millis(200));
    }
    println!("the server works {:?} after the database goes on", begin.elapsed());
    let listed = stage.call("GET", "/api/v1/users", &Value::Null, 200).to_string();
    for name in made.iter().map(String::as_str).chain(["after"]) {
        assert!(listed.contains(&format!("\"{name}\"")), "{name} is lost: {listed}");
    }
    // What nodes are told is what the books have, whatever became of what nobody knew.
    stage.call("POST", &rename, &json!({ "name": "renamed" }), 200);
    one.until("its name", |_, map| map.is_some_and(|map| map.me.name == "renamed"));
    two.until_peers(&["renamed"]);
}

#[test]
fn co_16_what_others_wrote_while_the_session_was_lost_is_read_and_told() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let (mut one, mut two) = (stage.node(&token, "one"), stage.node(&token, "two"));
    one.until_peers(&["two"]);
    two.until_peers(&["one"]);
    let name = database(&stage);
    SHARED.psql(&name, "DELETE FROM nodes WHERE name = 'two'").unwrap();
    let policy = "INSERT INTO policies VALUES (1, '{\"acls\": []}', 'another server', 1)";
    SHARED.psql(&name, policy).unwrap();
    let end =
        format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
    SHARED.psql("postgres", &end).unwrap();
    two.until("its removal", |event, _| ended(event));
    let is_told = |map: &Map| map.policy.version == 1 && map.peers.is_empty();
    one.until("the policy", |_, map| map.is_some_and(is_told));
}

#[test]
fn a_second_server_with_the_same_books_is_refused_and_may_take_over() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let mut one = stage.node(&token, "one");
    one.until_peers(&[]);
    let standby = Folder::new();
    std::fs::create_dir_all(&standby.0).unwrap();
    std::fs::copy(stage.folder.0.join("keys"), standby.0.join("keys")).unwrap();
    let why = refused(&standby, stage.store.as_deref());
    assert!(why.contains("another server serves the network"), "{why}");
    let before = one.map.clone().unwrap();
    let Stage { server, address, store, folder } = stage;
    drop((server, folder));
    let _server = Server::start(Config { store, ..config(&standby.0, address.port()) }).unwrap();
    one.until("the standby's map", |_, map| map.is_some_and(|map| map.epoch > before.epoch));
    assert_eq!(one.map.as_ref().unwrap().me, before.me);
}

#[test]
fn co_16_a_server_that_was_replaced_ends_and_says_why() {
    let stage = Stage::new();
    let name = database(&stage);
    let standby = Folder::new();
    std::fs::create_dir_all(&standby.0).unwrap();
    std::fs::copy(stage.folder.0.join("keys"), standby.0.join("keys")).unwrap();
    let other = Config { store: stage.store.clone(), ..config(&standby.0, 0) };
    let waits = std::thread::spawn(move || {
        loop {
            // As a service manager starts it again and again.
            match Server::start(other.clone()) {
                Ok(server) => return server,
                Err(why) => assert!(why.to_string().contains("another server"), "{why}"),
            }
        }
    });
    // The first one's session ends while the other waits for the lock.
    let waiting = format!(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
         AND database = (SELECT oid FROM pg_database WHERE datname = '{name}')"
    );
    let begin = Instant::now();
    while SHARED.psql("postgres", &waiting).unwrap().trim() != "1" {
        assert!(begin.elapsed() < PATIENCE, "nobody waits");
    }
    let end = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
         AND database = (SELECT oid FROM pg_database WHERE datname = '{name}')"
    );
    SHARED.psql("postgres", &end).unwrap();
    let why = stage.server.as_ref().unwrap().wait().unwrap_err().to_string();
    assert!(why.contains("another server serves the network"), "{why}");
    drop(waits.join().unwrap());
}

#[test]
fn a_backup_is_a_dump_and_the_keys_and_both_together_are_the_server() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let mut one = stage.node(&token, "one");
    one.until_peers(&[]);
    let before = one.map.clone().unwrap();
    let why = server::backup(&stage.folder.0, &stage.folder.0.join("copy.db")).unwrap_err();
    let why = why.to_string();
    assert!(why.contains("pg_dump") && why.contains("keys"), "{why}");

    let from = stage.store.clone().unwrap();
    let dump = stage.folder.0.join("dump.sql");
    let dumped = Command::new("pg_dump").arg(from).arg("--file").arg(&dump).output().unwrap();
    assert!(dumped.status.success());
    let Stage { server, address, folder, .. } = stage;
    let into = SHARED.database(&format!("restored_{}", address.port()));
    let restored = Command::new("psql").args(["-q", &into, "-f"]).arg(&dump).output().unwrap();
    assert!(restored.status.success());
    drop(server);
    let fresh = Folder::new();
    std::fs::create_dir_all(&fresh.0).unwrap();
    std::fs::rename(folder.0.join("keys"), fresh.0.join("keys")).unwrap();
    let store = Some(into);
    let _server = Server::start(Config { store, ..config(&fresh.0, address.port()) }).unwrap();
    one.until("a map of the copy", |_, map| map.is_some_and(|map| map.epoch > before.epoch));
    assert_eq!(one.map.as_ref().unwrap().me, before.me);
}

#[test]
fn lc_03_no_network_begins_by_a_forgotten_flag_or_a_wrong_database() {
    let mut stage = Stage::new();
    stage.server = None;
    let why = refused(&stage.folder, None);
    assert!(why.contains("--store") && why.contains("PostgreSQL database"), "{why}");
    let empty = SHARED.database(&format!("empty_{}", stage.address.port()));
    let why = refused(&stage.folder, Some(&empty));
    assert!(why.contains("has the keys of one"), "{why}");
    let why = refused(&stage.folder, Some("postgres://warren:secret@/x?host=/nowhere"));
    assert!(why.contains("/nowhere/.s.PGSQL.5432") && !why.contains("secret"), "{why}");
    let why = refused(&stage.folder, Some("sqlite://x"));
    assert!(why.contains("does not begin with postgres://"), "{why}");

    let own = Folder::new();
    drop(Server::start(config(&own.0, 0)).unwrap());
    let why = refused(&own, Some(&empty));
    assert!(why.contains("has the books of a network already"), "{why}");
    let begin = Instant::now();
    stage.restart();
    assert!(begin.elapsed() < PATIENCE, "and the right one is taken");
}
