//! What version 0.1.0 left on the disks of a server and of a node is opened by today's program, and
//! goes on (threat LC-17). It lies in `tests/recorded/0.1.0`, as that program wrote it: a network
//! with users, keys, tags, a policy, a gateway, and a node that was removed. It is never changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::daemon::Settings as NodeSettings;
use ::daemon::plan::Plan;
use ::daemon::state::State;
use control::Code;

use super::*;

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded/0.1.0");

/// A copy of what was recorded, removed at the end.
struct Recorded(PathBuf);

impl Recorded {
    fn new(what: &str) -> Self {
        let name = format!("warren-recorded-{}-{what}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        copy(Path::new(RECORDED), &path);
        Self(path)
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(&path, &to).unwrap();
        }
    }
}

/// The recorded node's membership, as its daemon begins it; the server is at `port` now.
fn begin(state: &State, port: u16) -> Membership {
    let kept = &state.kept;
    let member = kept.member.as_ref().unwrap();
    let settings = Settings {
        urls: vec![format!("https://127.0.0.1:{port}").parse().unwrap()],
        server: member.server,
        machine: kept.machine.clone(),
        node_key: kept.node.public(),
        next_key: None,
        join: None,
        signs_in: false,
        verifying: member.verifying,
        host: HostInfo { hostname: "dev".to_owned(), ..HostInfo::default() },
    };
    let (proxies, notify) = (Proxies::default(), Notify::default());
    Membership::start(Start { settings, cached: state.map(), proxies, notify }).unwrap()
}

/// Waits for a map that is as wanted.
fn map(member: &Membership, what: &str, wanted: impl Fn(&Map) -> bool) -> Arc<Map> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let news = member.wait(Duration::from_millis(50));
        if let Some(map) = news.and_then(|news| news.map).filter(|map| wanted(map)) {
            return map;
        }
    }
    panic!("{what} did not come");
}

fn names(map: &Map) -> Vec<&str> {
    map.peers.iter().map(|peer| peer.name.as_str()).collect()
}

/// What a map of that network means for the machine; it can be read as a whole.
fn check(map: &Map) {
    assert_eq!(names(map), ["robot", "robot-1"]);
    assert_eq!(map.peers[0].tags, ["tag:robot"]);
    assert_eq!(map.peers[1].routes, ["10.7.0.0/16".parse().unwrap()]);
    assert_eq!((map.me.name.as_str(), map.dns.domain.as_str()), ("dev", "warren.internal"));
    assert!(policy::Rules::read(&map.policy.rules).is_ok(), "{}", map.policy.rules);
    let settings = NodeSettings { accept_routes: true, ..NodeSettings::default() };
    let plan = Plan::new(map, &settings, 0, &std::collections::BTreeMap::new());
    assert_eq!(plan.peers.len(), 2);
}

#[test]
fn lc_17_what_a_server_and_a_node_of_0_1_0_left_goes_on_today() {
    let copy = Recorded::new("whole");
    let port = free_port();
    let (data, state) = (copy.0.join("server"), State::open(&copy.0.join("dev")).unwrap());
    assert!(state.kept.wanted && state.kept.settings.accept_routes);
    assert_eq!(state.kept.settings.hostname.as_deref(), Some("dev"));

    // The node begins with its map of then, which that server signed; nobody answers yet.
    let dev = begin(&state, port);
    let then = map(&dev, "the map that was kept", |_| true);
    check(&then);
    // Its server starts with the books of then, and the node goes on from there.
    let child = start(&data, port, "127.0.0.1");
    let mut serve = Serve { data: data.clone(), child, port };
    let now = map(&dev, "a map of today", |map| map.epoch > then.epoch);
    check(&now);
    assert_eq!((now.machine, &now.me.addresses), (then.machine, &then.me.addresses));
    let keys = |map: &Map| map.peers.iter().map(|peer| peer.key).collect::<Vec<_>>();
    assert_eq!(keys(&now), keys(&then));

    // What administrators see is what was there.
    let users = serve.json(&["user", "list"]);
    let users: Vec<&Value> =
        users["users"].as_array().unwrap().iter().map(|u| &u["name"]).collect();
    assert_eq!(users, ["ann", "bob"]);
    let listed = serve.json(&["node", "list"]);
    let nodes = listed["nodes"].as_array().unwrap();
    let of = |name: &str| nodes.iter().find(|node| node["name"] == name).unwrap();
    assert_eq!(nodes.len(), 3, "who was removed stays so: {listed}");
    assert_eq!((&of("dev")["user"], &of("dev")["online"]), (&"ann".into(), &true.into()));
    let known = serve.json(&["policy", "get"]);
    assert!(known["version"] == 1 && known["text"].as_str().unwrap().contains("group:drivers"));
    assert_eq!(serve.json(&["key", "list"])["keys"].as_array().unwrap().len(), 8);

    // Its tokens are good for what they were good for.
    let read = |name: &str| std::fs::read_to_string(copy.0.join(name)).unwrap();
    let mut token = Token::parse(&read("join-token"), Kind::Join).unwrap();
    token.urls = vec![format!("https://127.0.0.1:{port}").parse().unwrap()];
    let late = join(&token, "late");
    until(&late, "its place", |event, _| matches!(event, Event::Enrolled(e) if e.name == "late"));
    let api = read("api-token");
    let call = |method: &str, path: &str| {
        let mut admin =
            dial::Admin::remote(Some(token.urls[0].clone()), api.trim(), Proxies::default());
        admin.as_mut().unwrap().call(method, path, "").unwrap().status
    };
    assert_eq!((call("GET", "/api/v1/nodes"), call("DELETE", "/api/v1/nodes/2")), (200, 403));

    // And what it was told is revoked is told to the node of then.
    serve.said(&["node", "remove", "dev"]);
    until(
        &dev,
        "its removal",
        |event, _| matches!(event, Event::Ended(why) if why.code == Code::NotEnrolled),
    );
    let audit = serve.json(&["audit"]);
    let entries = audit["entries"].as_array().unwrap();
    assert!(entries.len() >= 20 && entries.last().unwrap()["action"] == "user.create", "{audit}");
    serve.kill();
    let place = server::store::Place::File(data.join("warren.db"));
    let store = server::store::Store::open(&place, &[0; 32], None, &mut SystemRandom).unwrap();
    store.verify_audit().unwrap();
}

#[test]
fn lc_17_state_of_a_later_version_is_told_and_fields_that_nobody_knows_are_passed_over() {
    let copy = Recorded::new("later");
    let path = copy.0.join("dev/node.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let machine = State::open(&copy.0.join("dev")).unwrap().kept.machine.public();
    let more = text.replacen('{', "{\"of-tomorrow\": [{}],", 1);
    let more = more.replace("\"urls\"", "\"of-tomorrow\": 1, \"urls\"");
    let more = more.replace("\"hostname\"", "\"of-tomorrow\": null, \"hostname\"");
    assert_eq!(more.matches("of-tomorrow").count(), 3, "one for each object");
    std::fs::write(&path, more).unwrap();
    let state = State::open(&copy.0.join("dev")).unwrap();
    assert_eq!(state.kept.machine.public(), machine);
    assert_eq!(state.kept.settings.hostname.as_deref(), Some("dev"));
    drop(state);
    let later = text.replace("\"version\": 1", "\"version\": 2");
    std::fs::write(&path, &later).unwrap();
    let why = State::open(&copy.0.join("dev")).unwrap_err().to_string();
    assert!(why.contains("version 2") && why.contains("this program reads 1"), "{why}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), later, "it is left alone");
}
