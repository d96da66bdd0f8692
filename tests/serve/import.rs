//! A database as Headscale makes it, taken over by a real server.

use super::*;

const TABLES: &str = include_str!("headscale.sql");
/// What a small network has in them.
const HEADSCALE: &str = r#"
INSERT INTO users (name, email) VALUES ('ann', NULL), ('', 'ben@example.com'), ('gone', NULL);
UPDATE users SET deleted_at = '2026-01-01 00:00:00+00:00' WHERE name = 'gone';
INSERT INTO pre_auth_keys (prefix, user_id, reusable, used, tags, expiration) VALUES
  ('a', 1, 1, 1, '[]', '2099-01-01 00:00:00.123456789+00:00'),
  ('b', 1, 0, 1, '[]', '2099-01-01 00:00:00+00:00'),
  ('c', 1, 1, 0, '[]', '2001-01-01 00:00:00+00:00');
INSERT INTO nodes
  (machine_key, node_key, ipv4, hostname, given_name, user_id, tags, approved_routes) VALUES
  ('mkey:00', 'nodekey:00', '100.64.0.77', 'Lab PC', 'lab-pc', 1, '[]', '["10.7.0.0/16"]'),
  ('mkey:01', 'nodekey:01', '100.64.0.9', 'robot', 'robot', NULL, '["tag:robot"]', NULL);
INSERT INTO policies (data) VALUES
  ('// old' || char(10) || '{}'),
  ('{"tagOwners": {"tag:robot": ["ann@"]},
     "acls": [{"action": "accept", "src": ["ann@"], "dst": ["tag:robot:22"]}]}');
"#;

fn made(folder: &std::path::Path, sql: &str) -> String {
    let path = folder.join("headscale.sqlite");
    let script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
    let done = Command::new("python3")
        .args(["-c", script])
        .arg(&path)
        .arg(format!("{TABLES}{sql}"))
        .status();
    assert!(done.expect("python3 is installed").success());
    path.display().to_string()
}

#[test]
fn a_network_of_headscale_is_taken_over_with_names_addresses_users_keys_and_policy() {
    let serve = Serve::new();
    let file = made(&serve.data, HEADSCALE);
    let plan = serve.said(&["import", "headscale", &file, "--dry-run"]);
    assert!(plan.contains("node    lab-pc 100.64.0.77, user ann") && plan.contains("10.7.0.0/16"));
    assert!(serve.json(&["user", "list"])["users"].as_array().unwrap().is_empty(), "a dry run");
    let said = serve.said(&["import", "headscale", &file]);
    let users = serve.said(&["user", "list"]);
    assert!(users.contains("ann") && users.contains("ben@example.com") && !users.contains("gone"));
    assert!(serve.said(&["policy", "get"]).contains("tag:robot:22"), "the last one, as it is");
    let keys: Vec<&str> = said.lines().filter(|line| line.starts_with("key ")).collect();
    assert_eq!(keys.len(), 1, "one is still good: {said}");
    let token = |what: &str| {
        let line = said.lines().find(|line| line.starts_with(what)).expect("it is told");
        Token::parse(line.rsplit(' ').next().unwrap(), Kind::Join).expect("it is a token")
    };
    // The machine says another name, and gets the one that it had.
    let member = join(&token("node    lab-pc"), "something-else");
    until(&member, "its old place", |_, map| {
        map.is_some_and(|map| {
            map.me.name == "lab-pc" && map.me.addresses[0].to_string() == "100.64.0.77"
        })
    });
    let nodes = serve.json(&["node", "list"]);
    assert_eq!(nodes["nodes"][0]["user"], "ann");
    // Another machine, by another key, does not get what is kept for the robot.
    let other = join(&serve.token(&[]), "robot");
    until(&other, "another name", |_, map| map.is_some_and(|map| map.me.name == "robot-1"));
    let robot = join(&token("node    robot"), "robot");
    until(&robot, "the robot's place", |_, map| {
        map.is_some_and(|map| {
            map.me.name == "robot"
                && map.me.addresses[0].to_string() == "100.64.0.9"
                && map.me.tags == ["tag:robot"]
        })
    });
    // A second run changes nothing that is there.
    let again = serve.said(&["import", "headscale", &file]);
    assert!(again.contains("user    ann is there already"), "{again}");
    assert!(again.contains("node    lab-pc: lab-pc has its name"), "{again}");
    assert!(again.contains("policy  one is set already"), "{again}");
    // What is no such database is told.
    let other = serve.data.join("other.sqlite");
    std::fs::write(&other, "no database at all, whatever its name says").unwrap();
    let refused = refusal(&serve.run(&["import", "headscale", &other.display().to_string()]));
    assert!(refused.contains("cannot be read as a database of Headscale"), "{refused}");
}

#[test]
fn a_key_for_one_node_keeps_its_name_and_address_and_gives_them_back() {
    let serve = Serve::new();
    let kept = serve.token(&["--name", "press", "--address", "100.64.0.40"]);
    for (words, why) in [
        (&["--name", "press"][..], "press"),
        (&["--address", "100.64.0.40"], "100.64.0.40"),
        (&["--address", "10.0.0.1"], "10.0.0.1"),
        (&["--name", "x", "--reusable"], "one node"),
    ] {
        let refused = refusal(&serve.run(&[&["key", "create"], words].concat()));
        assert!(refused.contains(why), "{words:?}: {refused}");
    }
    drop(kept);
    serve.said(&["key", "expire", "1"]);
    let member = join(&serve.token(&["--name", "press", "--address", "100.64.0.40"]), "dev");
    until(&member, "its place", |_, map| {
        map.is_some_and(|map| {
            map.me.name == "press" && map.me.addresses[0].to_string() == "100.64.0.40"
        })
    });
}
