//! The web interface in a real browser: `shell/ui/web/try/main.mjs` clicks, reads and looks, this
//! does what happens outside of the browser. `make test-ui` installs Chromium and runs it; pictures
//! are left in `ui` of the target directory.
//!
//! Nodes are members and nothing more, over the real channel to a real server.

#![expect(clippy::unwrap_used, reason = "all of it is tests")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use control::{HostInfo, Kind, Token};
use dial::proxy::Proxies;
use dial::{Admin, Membership, Notify, Start, SystemRandom};
use noise::PrivateKey;
use serde_json::{Value, json};

const WARREN: &str = env!("CARGO_BIN_EXE_warren");
/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Nodes in the network when it is large.
const MANY: usize = 1000;

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server in a folder of its own, and the nodes that are there.
struct Stage {
    folder: PathBuf,
    port: u16,
    server: Option<Program>,
    nodes: Vec<Membership>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.server = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok()
}

impl Stage {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("warren-browser-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut stage = Self { folder, port, server: None, nodes: Vec::new() };
        stage.start();
        stage
    }

    fn start(&mut self) {
        let url = format!("https://127.0.0.1:{}", self.port);
        let listen = format!("127.0.0.1:{}", self.port);
        let mut child = Command::new(WARREN)
            .args(["serve", "--no-stun", "--url", &url, "--listen", &listen, "--data"])
            .arg(&self.folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("serving on"), "{line:?}");
        self.server = Some(Program(child));
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = Admin::local(&self.folder).unwrap().call(method, path, &body).unwrap();
        assert!(reply.status < 300, "{method} {path}: {}", reply.body);
        serde_json::from_str(&reply.body).unwrap_or_default()
    }

    /// A node joins with this token, and is there until the test ends if it is `kept`.
    fn join(&mut self, token: &str, host: HostInfo, kept: bool) {
        let token = Token::parse(token, Kind::Join).unwrap();
        let [machine, node] = [(); 2].map(|()| PrivateKey::generate(&mut SystemRandom));
        let settings = token.joining(machine, node.public(), host);
        let start = Start {
            settings,
            cached: Vec::new(),
            proxies: Proxies::default(),
            notify: Notify::default(),
        };
        let membership = Membership::start(start).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let is_in = |membership: &Membership| {
            let news = membership.wait(Duration::from_millis(100));
            news.is_some_and(|news| news.map.is_some())
        };
        while !is_in(&membership) {
            assert!(Instant::now() < deadline, "a node did not join");
        }
        if kept {
            self.nodes.push(membership);
        }
    }

    fn key(&self, body: &Value) -> String {
        self.call("POST", "/api/v1/keys", body)["token"].as_str().unwrap().to_owned()
    }

    fn number(&self, name: &str) -> u64 {
        let answer = self.call("GET", "/api/v1/nodes", &Value::Null);
        let nodes = answer["nodes"].as_array().unwrap();
        nodes.iter().find(|node| node["name"] == name).unwrap()["id"].as_u64().unwrap()
    }

    /// A small network with one of everything.
    fn populate(&mut self) {
        self.call("POST", "/api/v1/users", &json!({ "name": "ann" }));
        self.call("POST", "/api/v1/users", &json!({ "name": "ben@example.com" }));
        let policy = r#"{"tagOwners": {"tag:web": [], "tag:db": []}}"#;
        self.call("PUT", "/api/v1/policy", &json!({ "text": policy }));
        let tagged = |tag| json!({ "reusable": true, "tags": [tag] });
        let (web, db) = (self.key(&tagged("tag:web")), self.key(&tagged("tag:db")));
        for number in 1..=5 {
            self.join(&web, host(&format!("web{number}"), &[]), number < 5);
        }
        for number in 1..=2 {
            self.join(&db, host(&format!("db{number}"), &[]), true);
        }
        let ann = self.key(&json!({ "reusable": true, "user": "ann", "expires_in_s": 86_400 }));
        self.join(&ann, host("gate", &["192.168.7.0/24", "0.0.0.0/0", "::/0"]), true);
        self.join(&ann, host("laptop", &[]), true);
        let odd = HostInfo {
            os: "<img src=x onerror=alert(1)>".to_owned(),
            program: "\"><script>alert(2)</script>".to_owned(),
            ..host("odd", &[])
        };
        self.join(&ann, odd, true);
        self.call("POST", "/api/v1/tokens", &json!({ "scopes": ["nodes:read", "metrics:read"] }));
        let id = self.number("gate");
        let exits = json!({ "routes": ["0.0.0.0/0", "::/0"] });
        self.call("POST", &format!("/api/v1/nodes/{id}/routes"), &exits);
    }

    fn many(&mut self) -> Value {
        let token = self.key(&json!({ "reusable": true, "user": "ben@example.com" }));
        let known = self.call("GET", "/api/v1/nodes", &Value::Null);
        let known = known["nodes"].as_array().unwrap().len();
        for number in known..MANY {
            self.join(&token, host(&format!("crowd{number}"), &[]), false);
        }
        json!({ "count": MANY })
    }

    /// Does what the script asks for.
    fn outside(&mut self, what: &str, value: &str) -> Value {
        match what {
            "join" => self.join(value, host("first", &[]), true),
            "populate" => self.populate(),
            "number" => return json!({ "id": self.number(value) }),
            "stop" => self.server = None,
            "start" => self.start(),
            "many" => return self.many(),
            other => panic!("the script asks for {other}"),
        }
        json!({})
    }
}

fn host(name: &str, routes: &[&str]) -> HostInfo {
    HostInfo {
        hostname: name.to_owned(),
        os: "Debian GNU/Linux 12".to_owned(),
        program: "warren 0.1.0".to_owned(),
        routes: routes.iter().map(|route| route.parse().unwrap()).collect(),
        endpoints: vec!["192.0.2.7:41641".parse().unwrap()],
        ..HostInfo::default()
    }
}

/// `warren ui`, and the link that it prints.
fn ui(folder: &Path) -> (Program, String) {
    let mut child = Command::new(WARREN)
        .args(["ui", "--json", "--data"])
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    (Program(child), answer["link"].as_str().unwrap().to_owned())
}

fn script(link: &str, pictures: &Path) -> (Program, ChildStdin, BufReader<ChildStdout>) {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("shell/ui/web");
    let mut child = Command::new("node")
        .current_dir(web)
        .args(["try/main.mjs", link])
        .arg(pictures)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    (Program(child), to, BufReader::new(from))
}

#[test]
#[ignore = "needs Chromium, 700 MB: make test-ui"]
fn wb_02_every_page_works_in_a_browser_that_enforces_its_policy() {
    assert!(is_there("node") && is_there("chromium"), "run make test-ui, which installs both");
    let mut stage = Stage::new();
    let (_ui, link) = ui(&stage.folder);
    let pictures = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../ui");
    let (mut browser, mut to, mut from) = script(&link, &pictures);
    loop {
        let mut line = String::new();
        assert!(from.read_line(&mut line).unwrap() > 0, "the script ended early");
        let asked: Value = serde_json::from_str(&line).unwrap();
        let (what, value) = (asked["what"].as_str().unwrap(), &asked["value"]);
        if what == "end" {
            println!("{}", value["figures"]);
            assert!(browser.0.wait().unwrap().success(), "{:#}", value["faults"]);
            return;
        }
        let answer = stage.outside(what, value.as_str().unwrap_or_default());
        writeln!(to, "{answer}").unwrap();
    }
}
