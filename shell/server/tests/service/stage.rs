//! What the tests share: a server in a folder of its own, administrators, and nodes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use control::client::Settings;
use control::{Event, HostInfo, Kind, Map, ServerUrl, Token};
use dial::proxy::Proxies;
use dial::{Admin, Membership, News, Notify, Start, SystemRandom};
use noise::PrivateKey;
use serde_json::{Value, json};
use server::store::Enrolment;
use server::{Config, Server, Stun};

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A folder, removed at the end.
pub(crate) struct Folder(pub(crate) PathBuf, pub(crate) u32);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("warren-service-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Self(path, number)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server and its folder.
pub(crate) struct Stage {
    pub(crate) server: Option<Server>,
    pub(crate) address: SocketAddr,
    pub(crate) folder: Folder,
    /// Where its books are, if not in the folder.
    pub(crate) store: Option<String>,
}

pub(crate) fn config(data: &Path, port: u16) -> Config {
    Config {
        data: data.to_owned(),
        store: None,
        listen: ([127, 0, 0, 1], port).into(),
        quic: true,
        icmp: None,
        urls: vec!["https://127.0.0.1:1".parse().unwrap()],
        stun: Stun::At(Vec::new()),
        range: None,
        domain: "warren.internal".to_owned(),
        terms: Enrolment::default(),
        tls: None,
        acme: None,
        oidc: None,
        link_reports: true,
        clock: server::unix_s,
        hooks: Vec::new(),
        ephemeral_away_s: Some(1),
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(Enrolment::default())
    }

    pub(crate) fn with(terms: Enrolment) -> Self {
        let folder = Folder::new();
        let store = crate::store(folder.1);
        Self::on(folder, store, terms)
    }

    pub(crate) fn on(folder: Folder, store: Option<String>, terms: Enrolment) -> Self {
        let config = Config { terms, store: store.clone(), ..config(&folder.0, 0) };
        let server = Server::start(config).unwrap();
        let address = server.address();
        Self { server: Some(server), address, folder, store }
    }

    /// Ends the server and starts it again on the same port.
    pub(crate) fn restart(&mut self) {
        self.server = None;
        let config = config(&self.folder.0, self.address.port());
        self.server = Some(Server::start(Config { store: self.store.clone(), ..config }).unwrap());
    }

    pub(crate) fn url(&self) -> ServerUrl {
        format!("https://{}", self.address).parse().unwrap()
    }

    pub(crate) fn admin(&self) -> Admin {
        Admin::local(&self.folder.0).unwrap()
    }

    /// A call that must have this status.
    pub(crate) fn call(&self, method: &str, path: &str, body: &Value, status: u16) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = self.admin().call(method, path, &body).unwrap();
        assert_eq!(reply.status, status, "{method} {path} {body}: {}", reply.body);
        serde_json::from_str(&reply.body).unwrap_or_default()
    }

    /// A new join token, with the server's real address.
    pub(crate) fn token(&self, wanted: &Value) -> Token {
        let reply = self.call("POST", "/api/v1/keys", wanted, 201);
        let mut token = Token::parse(reply["token"].as_str().unwrap(), Kind::Join).unwrap();
        token.urls = vec![self.url()];
        token
    }

    pub(crate) fn api_token(&self, scopes: &[&str]) -> String {
        let body = json!({ "scopes": scopes });
        let reply = self.call("POST", "/api/v1/tokens", &body, 201);
        reply["token"].as_str().unwrap().to_owned()
    }

    pub(crate) fn node(&self, token: &Token, hostname: &str) -> Node {
        Node::start(settings(token, hostname), Proxies::default())
    }
}

pub(crate) fn settings(token: &Token, hostname: &str) -> Settings {
    let [machine, node] = [(); 2].map(|()| PrivateKey::generate(&mut SystemRandom));
    let host = HostInfo { hostname: hostname.to_owned(), ..HostInfo::default() };
    token.joining(machine, node.public(), host)
}

/// A node that runs.
pub(crate) struct Node {
    pub(crate) settings: Settings,
    pub(crate) membership: Membership,
    pub(crate) map: Option<Arc<Map>>,
    pub(crate) last: Option<News>,
}

impl Node {
    pub(crate) fn start(settings: Settings, proxies: Proxies) -> Self {
        let start = Start {
            settings: settings.clone(),
            cached: Vec::new(),
            proxies,
            notify: Notify::default(),
        };
        let membership = Membership::start(start).unwrap();
        Self { settings, membership, map: None, last: None }
    }

    /// Reads news until `done` is content with an event and the map after it.
    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&Event, Option<&Map>) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        while Instant::now() < deadline {
            let Some(news) = self.membership.wait(Duration::from_millis(100)) else { continue };
            seen.push(news.event.clone());
            self.map.clone_from(&news.map);
            let is_done = done(&news.event, news.map.as_deref());
            self.last = Some(news);
            if is_done {
                return;
            }
        }
        panic!("{what} did not happen; what did: {seen:#?}");
    }

    pub(crate) fn until_enrolled(&mut self) {
        self.until("enrolment", |event, _| matches!(event, Event::Enrolled(_)));
    }

    /// Until the peers' names are these, in any order: who starts together enrols as it comes.
    pub(crate) fn until_peers(&mut self, names: &[&str]) {
        let names = BTreeSet::from_iter(names.iter().copied());
        let are = |map: &Map| {
            map.peers.len() == names.len()
                && map.peers.iter().all(|peer| names.contains(peer.name.as_str()))
        };
        if !self.map.as_deref().is_some_and(are) {
            let what = format!("peers {names:?}");
            self.until(&what, |_, map| map.is_some_and(are));
        }
    }
}
