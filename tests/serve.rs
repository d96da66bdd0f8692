//! The coordination service as the built program: serve, make a token, join, administrate, kill.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use control::client::Settings;
use control::{Event, HostInfo, Kind, Map, Token};
use dial::proxy::Proxies;
use dial::{Membership, Start, SystemRandom};
use noise::PrivateKey;
use serde_json::Value;

const WARREN: &str = env!("CARGO_BIN_EXE_warren");
const PATIENCE: Duration = Duration::from_secs(30);

/// A running `warren serve` and its directory, removed with it.
struct Serve {
    data: PathBuf,
    child: Child,
    port: u16,
}

impl Serve {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("warren-serve-{}-{number}", std::process::id());
        let data = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&data);
        let port = free_port();
        let child = start(&data, port, "127.0.0.1");
        Self { data, child, port }
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(WARREN);
        command.args(words).arg("--data").arg(&self.data);
        command.env_remove("WARREN_TOKEN").output().expect("the program is built")
    }

    /// What a command printed that had to succeed.
    fn said(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8(output.stdout).expect("it is text")
    }

    fn json(&self, words: &[&str]) -> Value {
        let mut all = words.to_vec();
        all.push("--json");
        let value: Value = serde_json::from_str(&self.said(&all)).expect("it is JSON");
        assert_eq!(value["schema"], 1, "{words:?}");
        value
    }

    fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    fn restart(&mut self) {
        self.child = start(&self.data, self.port, "127.0.0.1");
    }

    fn token(&self, words: &[&str]) -> Token {
        let line = self.said(&[&["key", "create"], words].concat());
        assert_eq!(line.lines().count(), 1, "one token on one line");
        Token::parse(&line, Kind::Join).expect("it is a token")
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}

fn start(data: &std::path::Path, port: u16, host: &str) -> Child {
    let mut child = Command::new(WARREN)
        .arg("serve")
        .arg("--data")
        .arg(data)
        .args(["--listen", &format!("127.0.0.1:{port}"), "--stun", "127.0.0.1:0"])
        .args(["--url", &format!("https://{host}:{port}")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program is built");
    let mut line = String::new();
    let out = child.stdout.as_mut().expect("it is piped");
    BufReader::new(out).read_line(&mut line).expect("it speaks");
    assert!(line.starts_with("serving on 127.0.0.1:"), "{line:?}");
    child
}

fn join(token: &Token, hostname: &str) -> Membership {
    let settings = Settings {
        urls: token.urls.clone(),
        server: token.server,
        machine: PrivateKey::generate(&mut SystemRandom),
        node_key: PrivateKey::generate(&mut SystemRandom).public(),
        join: Some((token.id, token.secret.clone())),
        verifying: None,
        host: HostInfo { hostname: hostname.to_owned(), ..HostInfo::default() },
    };
    let start = Start { settings, cached: Vec::new(), proxies: Proxies::default() };
    Membership::start(start).expect("threads can be started")
}

/// Waits for an event, and returns the map after it.
fn until(member: &Membership, what: &str, done: impl Fn(&Event, Option<&Map>) -> bool) -> Duration {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if let Some(news) = member.wait(Duration::from_millis(50))
            && done(&news.event, news.map.as_ref())
        {
            return begin.elapsed();
        }
    }
    panic!("{what} did not happen");
}

fn has_peers(count: usize) -> impl Fn(&Event, Option<&Map>) -> bool {
    move |_, map| map.is_some_and(|map| map.peers.len() == count)
}

#[test]
fn source_000_4_serve_a_token_and_two_nodes_that_see_each_other() {
    let mut serve = Serve::new();
    let token = serve.token(&["--reusable", "--expires", "24h", "--tag", "robot"]);
    let one = join(&token, "dev");
    until(&one, "a map", has_peers(0));
    let two = join(&token, "dev");
    until(&one, "a peer", has_peers(1));
    until(&two, "a peer", has_peers(1));
    let nodes = serve.json(&["node", "list"]);
    let names: Vec<&str> =
        nodes["nodes"].as_array().unwrap().iter().filter_map(|n| n["name"].as_str()).collect();
    assert_eq!(names, ["dev", "dev-1"]);
    assert_eq!(nodes["nodes"][0]["tags"][0], "tag:robot");
    assert!(serve.said(&["node", "list"]).contains("100.64.0.2"));

    serve.json(&["node", "rename", "dev-1", "robot"]);
    until(&one, "the name", |_, map| map.is_some_and(|map| map.peers[0].name == "robot"));
    serve.said(&["node", "tag", "robot", "tag:a"]);
    serve.said(&["route", "approve", "robot", "10.7.0.0/16"]);
    assert!(serve.said(&["node", "show", "robot"]).contains("10.7.0.0/16"));
    let begin = Instant::now();
    serve.said(&["node", "remove", "robot"]);
    until(&one, "its removal", has_peers(0));
    println!("from the command to the peer: {:?}", begin.elapsed());
    assert!(begin.elapsed() < Duration::from_secs(1));
    until(&two, "its own removal", |event, _| matches!(event, Event::Ended(_)));
    assert!(serve.said(&["audit"]).contains("node.remove"));

    serve.kill();
    let output = serve.run(&["node", "list"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("start `warren serve`"), "{said}");
    serve.restart();
    until(&one, "a map after the restart", has_peers(0));
    serve.said(&["node", "expire", "dev"]);
    until(&one, "expiry", |event, _| matches!(event, Event::Ended(_)));
}

#[test]
fn admin_commands_work_from_elsewhere_with_a_token() {
    let serve = Serve::new();
    let token = serve.said(&["token", "create", "--scope", "nodes:read", "--scope", "keys:write"]);
    let far = |words: &[&str]| {
        let output = Command::new(WARREN).args(words).env("WARREN_TOKEN", token.trim()).output();
        output.expect("the program is built")
    };
    assert!(far(&["node", "list"]).status.success());
    let made = far(&["key", "create"]);
    assert!(made.stdout.starts_with(b"warren-join-"));
    let refused = far(&["audit"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("audit:read"));
    serve.said(&["token", "expire", "1"]);
    let refused = far(&["node", "list"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("taken back"));

    let file = serve.data.join("policy.hujson");
    std::fs::write(&file, "// ours\n{}\n").unwrap();
    serve.said(&["policy", "set", file.to_str().unwrap()]);
    assert_eq!(serve.said(&["policy", "get"]), "// ours\n{}\n");
    serve.said(&["user", "create", "anna"]);
    assert!(serve.said(&["user", "list"]).contains("anna"));
    assert_eq!(serve.run(&["user", "create", "a b"]).status.code(), Some(1));
    assert_eq!(serve.run(&["key", "create", "--expires", "soon"]).status.code(), Some(2));
    let second = Command::new(WARREN)
        .args(["serve", "--listen", "127.0.0.1:0", "--url", "https://x", "--data"])
        .arg(&serve.data)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1));
    assert!(said.contains("another server runs"), "{said}");
}

#[test]
fn lc_01_kill_9_during_registrations_loses_nothing_that_was_acknowledged() {
    let mut serve = Serve::new();
    let token = serve.token(&["--reusable"]);
    let mut acknowledged = 0;
    let (tell, told) = mpsc::sync_channel::<String>(1000);
    let mut names = Vec::new();
    for round in 0..12_u64 {
        let members: Vec<Membership> =
            (0..8).map(|n| join(&token, &format!("r{round}n{n}"))).collect();
        let waits: Vec<_> = members
            .into_iter()
            .map(|member| {
                let tell = tell.clone();
                std::thread::spawn(move || {
                    let deadline = Instant::now() + Duration::from_secs(1);
                    while Instant::now() < deadline {
                        let news = member.wait(Duration::from_millis(20));
                        if let Some(Event::Enrolled(enrolled)) = news.map(|news| news.event) {
                            let _ = tell.send(enrolled.name);
                        }
                    }
                })
            })
            .collect();
        // At another moment each time, from the first handshake to the last commit.
        std::thread::sleep(Duration::from_millis(5 + round * 9));
        serve.kill();
        for wait in waits {
            wait.join().unwrap();
        }
        names.extend(told.try_iter());
        serve.restart();
        let nodes = serve.json(&["node", "list"]);
        let listed: Vec<&str> =
            nodes["nodes"].as_array().unwrap().iter().filter_map(|n| n["name"].as_str()).collect();
        for name in &names {
            assert!(listed.contains(&name.as_str()), "round {round}: {name} was lost");
        }
        acknowledged = names.len();
    }
    println!("{acknowledged} of 96 registrations were acknowledged before the kill; all are there");
    assert!((1..96).contains(&acknowledged), "the kills came too early or too late");
}

/// Resident memory of the server in KiB.
fn resident_kib(serve: &Serve) -> u64 {
    let path = format!("/proc/{}/status", serve.child.id());
    let status = std::fs::read_to_string(path).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
#[ignore = "soak: hundreds of nodes on one machine"]
fn co_10_hundreds_of_nodes_join_and_come_back_after_a_kill() {
    const NODES: usize = 300;
    let mut serve = Serve::new();
    let token = serve.token(&["--reusable"]);
    let begin = Instant::now();
    let members: Vec<_> = (0..NODES).map(|n| join(&token, &format!("n{n}"))).collect();
    let mut epoch = 0;
    for member in &members {
        until(member, "all peers", |_, map| map.is_some_and(|m| m.peers.len() == NODES - 1));
    }
    println!("{NODES} nodes have whole maps after {:?}", begin.elapsed());
    println!("the server has {} KiB", resident_kib(&serve));
    for member in &members {
        while let Some(news) = member.wait(Duration::ZERO) {
            epoch = news.map.map_or(epoch, |map| map.epoch);
        }
    }
    serve.kill();
    serve.restart();
    let begin = Instant::now();
    for member in &members {
        until(member, "a new map", |_, map| map.is_some_and(|map| map.epoch > epoch));
    }
    println!("{NODES} nodes are back after {:?}", begin.elapsed());
    println!("the server has {} KiB", resident_kib(&serve));
}
