//! What was acknowledged stays: kill -9 at random moments under every kind of write, and a disk
//! that is full.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use control::{Event, Token};
use dial::{Admin, SystemRandom};
use serde_json::{Value, json};
use server::store::{Place, Store};

use super::{Serve, WARREN, free_port, has_peers, join, until, until_ready};

/// Rounds of `make test`; `make soak` asks for more.
const ROUNDS: u64 = 8;

/// SplitMix64, so that a failure can be had again.
fn draw(seed: u64) -> u64 {
    let mixed = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 27
}

/// The answer to a call that was acknowledged.
fn call(data: &Path, method: &str, path: &str, body: &Value) -> Option<Value> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let reply = Admin::local(data).ok()?.call(method, path, &body).ok()?;
    assert!(reply.status < 400, "{method} {path}: {}", reply.body);
    Some(serde_json::from_str(&reply.body).unwrap_or_default())
}

/// Writes by number until one is not acknowledged: what was.
fn writer<T: Send + 'static>(
    mut write: impl FnMut(u64) -> Option<T> + Send + 'static,
) -> JoinHandle<Vec<T>> {
    std::thread::spawn(move || (0..).map_while(&mut write).collect())
}

/// Everything that a round was told is done.
struct Acknowledged {
    users: Vec<String>,
    policies: Vec<(u64, String)>,
    nodes: Vec<String>,
}

/// Joins, users and policies at once, until the server is killed after `after`.
fn round(serve: &mut Serve, token: &Token, round: u64, after: Duration) -> Acknowledged {
    let is_over = Arc::new(AtomicBool::new(false));
    let data = serve.data.clone();
    let users = writer(move |n| {
        let name = format!("user-{round}-{n}");
        call(&data, "POST", "/api/v1/users", &json!({ "name": name })).map(|_| name)
    });
    let data = serve.data.clone();
    let policies = writer(move |n| {
        let text = format!("// {round} {n}\n{{}}");
        let answer = call(&data, "PUT", "/api/v1/policy", &json!({ "text": text }))?;
        Some((answer["version"].as_u64()?, text))
    });
    let members: Vec<_> = (0..6)
        .map(|n| {
            let (member, over) = (join(token, &format!("r{round}n{n}")), Arc::clone(&is_over));
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let news = member.wait(Duration::from_millis(20));
                    if let Some(Event::Enrolled(enrolled)) = news.map(|news| news.event) {
                        return Some(enrolled.name);
                    }
                }
                None
            })
        })
        .collect();
    std::thread::sleep(after);
    serve.kill();
    // What was acknowledged before the kill is on its way to the members' threads.
    std::thread::sleep(Duration::from_millis(100));
    is_over.store(true, Ordering::Relaxed);
    let nodes = members.into_iter().filter_map(|member| member.join().unwrap()).collect();
    Acknowledged { users: users.join().unwrap(), policies: policies.join().unwrap(), nodes }
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect()
}

#[test]
fn lc_01_kill_9_at_random_moments_loses_no_acknowledged_write_of_any_kind() {
    let rounds = std::env::var("WARREN_SEEDS").ok().and_then(|text| text.parse().ok());
    // Each round is a start of the server; a soak is content with hundreds.
    let rounds: u64 = rounds.unwrap_or(ROUNDS).min(300);
    let mut serve = Serve::new();
    let token = serve.token(&["--reusable"]);
    let (mut users, mut nodes, mut written) = (Vec::new(), Vec::new(), 0);
    for number in 0..rounds {
        let after = Duration::from_micros(2_000 + draw(number) % 120_000);
        let told = round(&mut serve, &token, number, after);
        serve.restart();
        users.extend(told.users);
        nodes.extend(told.nodes);
        let listed = serve.json(&["user", "list"]);
        let there = names(&listed["users"]);
        for name in &users {
            assert!(there.contains(&name.as_str()), "round {number}, {after:?}: user {name}");
        }
        let listed = serve.json(&["node", "list"]);
        let there = names(&listed["nodes"]);
        for name in &nodes {
            assert!(there.contains(&name.as_str()), "round {number}, {after:?}: node {name}");
        }
        if let Some((version, text)) = told.policies.last() {
            let holds = serve.json(&["policy", "get"]);
            let known = holds["version"].as_u64().unwrap();
            // One more may have been made whose answer was never sent.
            assert!(known == *version || known == version + 1, "round {number}: {known}");
            assert!(known != *version || holds["text"] == text.as_str(), "round {number}");
        }
        written += told.policies.len();
    }
    println!(
        "{rounds} kills: {} users, {} nodes, {written} policies were acknowledged and are there",
        users.len(),
        nodes.len()
    );
    assert!(users.len() > 10 && written > 10 && !nodes.is_empty(), "the kills came too early");
    serve.kill();
    let place = Place::File(serve.data.join("warren.db"));
    let store = Store::open(&place, &[0; 32], None, &mut SystemRandom).unwrap();
    store.verify_audit().unwrap();
}

/// A server whose directory is a small disk of its own, which only it sees.
fn start_on_small_disk(data: &Path, port: u16) -> Child {
    let script = "mount -t tmpfs -o size=2m,mode=700 none \"$1\" && shift && exec \"$@\"";
    let mut child = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(data)
        .arg(WARREN)
        .args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--data"])
        .arg(data)
        .args(["--url", &format!("https://127.0.0.1:{port}")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    until_ready(&mut child);
    child
}

#[test]
fn lc_02_a_full_disk_fails_writes_as_a_whole_and_is_recovered_from_without_a_restart() {
    let folder = std::env::temp_dir().join(format!("warren-full-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let port = free_port();
    let child = start_on_small_disk(&folder, port);
    let seen =
        Path::new(&format!("/proc/{}/root", child.id())).join(folder.strip_prefix("/").unwrap());
    let mut serve = Serve { data: seen.clone(), child, port };
    let token = serve.token(&["--reusable"]);
    let one = join(&token, "one");
    until(&one, "a map", has_peers(0));

    let mut filler = std::fs::File::create(seen.join("filler")).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    let add = |name: &str| {
        let body = json!({ "name": name }).to_string();
        Admin::local(&seen).unwrap().call("POST", "/api/v1/users", &body).unwrap()
    };
    let mut made = Vec::new();
    let refused = loop {
        let name = format!("user-{}", made.len());
        let reply = add(&name);
        if reply.status != 201 {
            break reply;
        }
        made.push(name);
        assert!(made.len() < 2000, "a full disk is written to");
    };
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(refused.body.contains("disk"), "{}", refused.body);
    let late = join(&token, "late");
    let listed = serve.json(&["user", "list"]);
    assert_eq!(listed["users"].as_array().unwrap().len(), made.len(), "reading goes on");
    drop(filler);
    std::fs::remove_file(seen.join("filler")).unwrap();
    until(&late, "its turn", |event, _| matches!(event, Event::Enrolled(_)));
    until(&one, "the other", has_peers(1));
    assert_eq!(add("afterwards").status, 201, "without a restart");
    serve.kill();
    let _ = std::fs::remove_dir_all(&folder);
}
