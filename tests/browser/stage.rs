//! A real server with nodes that are members and nothing more, over the real channel.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use control::{HostInfo, Kind, LinkReport, Token};
use dial::proxy::Proxies;
use dial::{Admin, Membership, Notify, Start, SystemRandom};
use noise::PrivateKey;
use serde_json::{Value, json};

use crate::{PATIENCE, WARREN};

/// Nodes that stay when a crowd joins; of more only the books know.
const KEPT: usize = 240;

/// A program that ends with the test.
pub(crate) struct Program(pub(crate) Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server in a folder of its own, and the nodes that are there.
pub(crate) struct Stage {
    pub(crate) folder: PathBuf,
    port: u16,
    pub(crate) server: Option<Program>,
    pub(crate) nodes: Vec<(u64, Membership)>,
    began: Instant,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.server = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok()
}

impl Stage {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("warren-browser-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut stage =
            Self { folder, port, server: None, nodes: Vec::new(), began: Instant::now() };
        stage.start();
        stage
    }

    pub(crate) fn start(&mut self) {
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

    pub(crate) fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = Admin::local(&self.folder).unwrap().call(method, path, &body).unwrap();
        assert!(reply.status < 300, "{method} {path}: {}", reply.body);
        serde_json::from_str(&reply.body).unwrap_or_default()
    }

    /// A node joins with this token, and is there until the test ends if it is `kept`.
    pub(crate) fn join(&mut self, token: &str, host: HostInfo, kept: bool) {
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
        let id = loop {
            assert!(Instant::now() < deadline, "a node did not join");
            let news = membership.wait(Duration::from_millis(100));
            if let Some(map) = news.and_then(|news| news.map) {
                break map.me.id.0;
            }
        };
        if kept {
            self.nodes.push((id, membership));
        }
        if self.nodes.len().is_multiple_of(20) {
            self.read_news();
        }
    }

    /// Who reads no news is told nothing more, and says nothing more.
    pub(crate) fn read_news(&self) {
        for (_, node) in &self.nodes {
            while node.wait(Duration::ZERO).is_some() {}
        }
    }

    pub(crate) fn key(&self, body: &Value) -> String {
        self.call("POST", "/api/v1/keys", body)["token"].as_str().unwrap().to_owned()
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
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

    /// Nodes join until there are so many. Those up to [`KEPT`] stay.
    pub(crate) fn crowd(&mut self, count: usize) -> Value {
        let token = self.key(&json!({ "reusable": true, "user": "ben@example.com" }));
        let known = self.call("GET", "/api/v1/nodes", &Value::Null);
        let known = known["nodes"].as_array().unwrap().len();
        for number in known..count {
            self.join(&token, host(&format!("crowd{number}"), &[]), number < KEPT);
        }
        json!({ "count": count })
    }

    /// Every node that is there reports links to the next ones, in turn direct, lossy, relayed.
    pub(crate) fn report(&self, links: usize) -> Value {
        self.report_part(links, 0, 1)
    }

    /// The same of every so many nodes: of those whose turn `part` of `parts` is.
    pub(crate) fn report_part(&self, links: usize, part: usize, parts: usize) -> Value {
        self.read_news();
        let ids: Vec<u64> = self.nodes.iter().map(|(id, _)| *id).collect();
        let ms = self.began.elapsed().as_millis() as u64;
        let their_turn = |(at, _): &(usize, &(u64, Membership))| at % parts == part;
        for (at, (_, node)) in self.nodes.iter().enumerate().filter(their_turn) {
            let peers: BTreeSet<usize> =
                (1..=links).map(|step| (at + 7 * step) % ids.len()).collect();
            let told = peers.into_iter().filter(|peer| *peer != at).map(|peer| LinkReport {
                peer: ids[peer],
                path: if peer % 5 == 4 { "relay" } else { "direct" }.to_owned(),
                rtt_us: Some(800 + 3700 * (peer as u32 % 7)),
                loss_ppm: if peer % 7 == 3 { 30_000 } else { 0 },
                rx_bytes: ms * 40 * (1 + peer as u64 % 9),
                tx_bytes: ms * 10,
                available: None,
            });
            node.report_links(told.collect());
        }
        json!({ "nodes": ids.len() })
    }

    /// Has keys end as if time had passed: of one soon, after a long life; of another as soon,
    /// after a life as short as that.
    fn ending(&mut self, [soon, short]: [&str; 2]) {
        self.server = None;
        let script = "import sqlite3, sys, time\n\
            db, now = sqlite3.connect(sys.argv[1]), int(time.time())\n\
            for name, age in ((sys.argv[2], 177), (sys.argv[3], 0)):\n  \
            db.execute('UPDATE nodes SET begun = ?, expires = ? WHERE name = ?', \
            (now - age * 86400, now + 3 * 86400, name))\n\
            db.commit()\n";
        python(script, &[&self.file(), soon, short]);
        self.start();
    }

    /// Has the database take no more writes: another program writes a little, so that the server
    /// looks, and marks the file as of a version that this one may read alone (SQLite, database
    /// file format, 1.3.3).
    fn freeze(&self) {
        let script = "import sqlite3, sys\n\
            db = sqlite3.connect(sys.argv[1], timeout=10)\n\
            db.execute('CREATE TABLE other (x)')\n\
            db.execute('DROP TABLE other')\n\
            db.commit()\n\
            db.execute('PRAGMA wal_checkpoint(TRUNCATE)')\n\
            db.close()\n";
        python(script, &[&self.file()]);
        self.mark(3);
    }

    /// The same database, writable, and a server that opens it.
    fn thaw(&mut self) {
        self.server = None;
        self.mark(2);
        self.start();
    }

    fn mark(&self, version: u8) {
        let mut file = std::fs::File::options().write(true).open(self.file()).unwrap();
        file.seek(SeekFrom::Start(18)).unwrap();
        file.write_all(&[version]).unwrap();
    }

    fn file(&self) -> String {
        self.folder.join("warren.db").to_str().unwrap().to_owned()
    }

    /// Does what the script asks for.
    pub(crate) fn outside(&mut self, what: &str, value: &str) -> Value {
        match what {
            "join" => self.join(value, host("first", &[]), true),
            "populate" => self.populate(),
            "number" => return json!({ "id": self.number(value) }),
            "stop" => self.server = None,
            "start" => self.start(),
            "ending" => self.ending(["web1", "db1"]),
            "read-only" => self.freeze(),
            "writable" => self.thaw(),
            "crowd" => return self.crowd(value.parse().unwrap()),
            "report" => return self.report(value.parse().unwrap()),
            other => panic!("the script asks for {other}"),
        }
        json!({})
    }
}

fn python(script: &str, words: &[&str]) {
    let status = Command::new("python3").args(["-c", script]).args(words).status().unwrap();
    assert!(status.success(), "python3 with its sqlite3");
}

pub(crate) fn host(name: &str, routes: &[&str]) -> HostInfo {
    HostInfo {
        hostname: name.to_owned(),
        os: "Debian GNU/Linux 12".to_owned(),
        program: "warren 0.1.0".to_owned(),
        routes: routes.iter().map(|route| route.parse().unwrap()).collect(),
        endpoints: vec!["192.0.2.7:41641".parse().unwrap()],
        ..HostInfo::default()
    }
}
