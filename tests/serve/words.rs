//! What commands of a server say to people: where it is reached, what was done, and what is next.

use std::fs;

use super::*;

/// Runs `serve` with these words until it ends; its exit code and what it said of it.
fn ends(words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(WARREN).arg("serve").args(words).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_server_says_where_it_is_what_it_answers_and_what_is_next_and_ends_without_an_error() {
    let data = std::env::temp_dir().join(format!("warren-serve-words-{}", std::process::id()));
    let _ = fs::remove_dir_all(&data);
    fs::create_dir_all(&data).unwrap();
    let [out, log] = ["out", "log"].map(|name| data.join(name));
    let port = free_port();
    let [at, url] = ["", "https://"].map(|before| format!("{before}127.0.0.1:{port}"));
    let place = data.display().to_string();
    let words = ["--data", &place, "--listen", &at, "--url", &url, "--stun", "127.0.0.1:0"];
    let child = Command::new(WARREN)
        .arg("serve")
        .args(words)
        .env_remove("LOG_LEVEL")
        .stdout(fs::File::create(&out).unwrap())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while !fs::read_to_string(&out).unwrap().contains("next: ") {
        assert!(begin.elapsed() < PATIENCE, "{}", fs::read_to_string(&log).unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = fs::read_to_string(&out).unwrap();
    assert!(said.starts_with(&format!("serving on {at} with key ")), "{said}");
    for part in [
        format!("\nreached at: {url}\n"),
        format!("TCP {at} (members"),
        format!("UDP {at} (relay by QUIC)"),
        "(STUN)\n".to_owned(),
        format!("next: warren key create --data {place}, then"),
    ] {
        assert!(said.contains(&part), "{part} in {said}");
    }
    let taken = ends(&["--data", &format!("{place}/2"), "--listen", &at, "--url", &url]);
    assert!(taken.0 == Some(1) && taken.1.contains("`ss -lntup sport"), "{taken:?}");
    let none = data.join("none");
    let mut restore = Command::new(WARREN);
    restore.args(["restore", "--data"]).arg(&none).arg(data.join("no-such-backup"));
    assert!(refusal(&restore.output().unwrap()).contains("nothing was restored"));
    assert!(!none.exists(), "and nothing is left behind");
    let wrong = ends(&["--listen", "localhost:443", "--url", &url]);
    assert!(wrong.0 == Some(2) && wrong.1.contains("as in 192.0.2.1:8443"), "{wrong:?}");

    let mut serve = Serve { data: data.clone(), child, port };
    serve.said(&["user", "create", "anna"]);
    let id = serve.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(serve.child.wait().unwrap().success());
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains("user.create user:1 by local:"), "what happens is logged: {log}");
    assert!(!log.contains("ERROR") && !log.contains("anna"), "{log}");
}

#[test]
fn a_token_is_known_by_its_number_and_beginning_and_is_ended_by_either_or_itself() {
    let serve = Serve::new();
    let made = serve.run(&["key", "create", "--expires", "24h"]);
    let token = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let aside = String::from_utf8(made.stderr).unwrap();
    assert!(aside.starts_with("key 1, which ends at 20"), "{aside}");
    let begin = &token["warren-join-".len()..][..8];
    assert!(begin.bytes().all(|b| b.is_ascii_hexdigit()), "{token}");
    let list = serve.said(&["key", "list"]);
    assert!(list.contains(&format!("warren-join-{begin}-…")), "{list}");
    let other = serve.said(&["key", "create"]);
    let shown = format!("{}…", &other["warren-join-".len()..][..8]);
    assert_eq!(serve.said(&["key", "expire", &shown]), "key 2 is taken back; its nodes stay\n");
    let said = serve.said(&["key", "expire", &token]);
    assert_eq!(said, "key 1 is taken back; its nodes stay\n");
    let keys = serve.json(&["key", "list"]);
    let revoked = [0, 1].map(|n| keys["keys"][n]["revoked"].as_bool());
    assert_eq!(revoked, [Some(true), Some(true)]);
    let unknown = refusal(&serve.run(&["key", "expire", "nonsense"]));
    assert!(unknown.contains("warren key list") && !unknown.contains("nonsense"), "{unknown}");
    let quiet = serve.run(&["key", "create", "--json"]);
    assert!(quiet.stderr.is_empty(), "programs are told in the answer");
}

#[test]
fn what_was_done_to_a_node_is_said_in_a_sentence() {
    let serve = Serve::new();
    let token = serve.token(&[]);
    let route: control::Prefix = "10.7.0.0/16".parse().unwrap();
    let host = HostInfo {
        hostname: "dev".to_owned(),
        program: "0.0.9".to_owned(),
        routes: vec![route],
        ..HostInfo::default()
    };
    let one = join_as(&token, host);
    until(&one, "a map", has_peers(0));
    let said = serve.said(&["route", "list"]);
    assert!(said.contains("dev   10.7.0.0/16  waits for approval"), "{said}");
    let said = serve.said(&["route", "approve", "dev", "10.7.0.0/16", "10.8.0.0/16"]);
    assert_eq!(said, "dev: 10.7.0.0/16, active\ndev: 10.8.0.0/16, approved, not offered\n");
    assert_eq!(serve.said(&["user", "create", "anna"]), "anna is user 1, with the role member\n");
    assert_eq!(serve.said(&["node", "rename", "dev", "robot"]), "dev is robot now\n");
    assert_eq!(serve.said(&["node", "move", "robot", "anna"]), "robot belongs to anna now\n");
    assert_eq!(serve.said(&["node", "tag", "robot", "a"]), "robot has the tags tag:a now\n");
    let moved = serve.said(&["node", "move", "robot", "anna"]);
    assert!(moved.ends_with("; while it has tags it acts for no user\n"), "{moved}");
    let unknown = refusal(&serve.run(&["node", "move", "robot", "nobody-known"]));
    assert!(unknown.contains("nobody-known"), "{unknown}");
    let listed = serve.said(&["node", "list"]);
    let row: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["1", "robot", "100.64.0.1", "online", "-", "0.0.9", "now", "anna", "tag:a"]);
    let shown = serve.said(&["node", "show", "robot"]);
    assert!(shown.starts_with("name: robot\nid: 1\n") && !shown.contains('{'), "{shown}");
    let refused = refusal(&serve.run(&["user", "remove", "anna"]));
    assert!(refused.contains("nodes"), "{refused}");
    let moved = serve.said(&["node", "move", "robot", "--nobody"]);
    assert!(moved.starts_with("robot belongs to nobody now"), "{moved}");
    assert_eq!(serve.said(&["user", "remove", "anna"]), "user anna is removed\n");
    assert_eq!(serve.said(&["node", "remove", "robot"]), "robot is removed\n");
    let said = serve.said(&["policy", "test"]);
    assert!(said.starts_with("no policy is set"), "{said}");
}
