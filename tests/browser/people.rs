//! People in a real browser, at a server with a certificate of its own: passwords, a provider that
//! others wrote, links that let machines in, and pages that want to misuse who is signed in.

use std::time::{Duration, Instant};

use control::client::Settings;
use control::{Event, HostInfo};
use dial::proxy::Proxies;
use dial::{Admin, Membership, Notify, Start, SystemRandom};
use noise::{PrivateKey, PublicKey};
use serde_json::{Value, json};

use crate::scene::{Scene, installed};
use crate::{PATIENCE, drive, weight};

pub(crate) const PASSWORD: &str = "correct horse battery";

/// What happens outside of the browser.
struct Outside {
    scene: Scene,
    server: PublicKey,
    /// Machines that wait or are in.
    machines: Vec<Membership>,
}

impl Outside {
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let folder = self.scene.folder.0.join("data");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = Admin::local(&folder).unwrap().call(method, path, &body).unwrap();
        assert!(reply.status < 300, "{method} {path}: {}", reply.body);
        serde_json::from_str(&reply.body).unwrap_or_default()
    }

    /// A machine asks to be let in: its link, and the key that its terminal shows.
    fn knock(&mut self, hostname: &str) -> Value {
        let [machine, node] = [(); 2].map(|()| PrivateKey::generate(&mut SystemRandom));
        let key = node.public();
        let settings = Settings {
            urls: vec![self.scene.url().parse().unwrap()],
            server: self.server,
            machine,
            node_key: key,
            next_key: None,
            join: None,
            signs_in: true,
            verifying: None,
            host: HostInfo {
                hostname: hostname.to_owned(),
                os: "<b onclick=alert(1)>Debian</b>".to_owned(),
                program: "\"><script>alert(2)</script>".to_owned(),
                ..HostInfo::default()
            },
        };
        let (proxies, notify) = (Proxies::default(), Notify::default());
        let start = Start { settings, cached: Vec::new(), proxies, notify };
        let membership = Membership::start(start).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let url = loop {
            assert!(Instant::now() < deadline, "it was told no link");
            let news = membership.wait(Duration::from_millis(50));
            if let Some(Event::SignIn(link)) = news.map(|news| news.event) {
                break link.url;
            }
        };
        self.machines.push(membership);
        json!({ "url": url, "key": key.to_string()[..12] })
    }

    /// Waits until the machine that asked last is in: how long that took.
    fn is_in(&self) -> Value {
        let begin = Instant::now();
        let membership = self.machines.last().unwrap();
        while begin.elapsed() < PATIENCE {
            let news = membership.wait(Duration::from_millis(10));
            if news.is_some_and(|news| news.map.is_some()) {
                return json!({ "ms": begin.elapsed().as_millis() as u64 });
            }
        }
        json!({ "ms": null })
    }

    fn does(&mut self, what: &str, value: &str) -> Value {
        match what {
            "knock" => return self.knock(value),
            "is-in" => return self.is_in(),
            "nodes" => return self.call("GET", "/api/v1/nodes", &Value::Null),
            "users" => return self.call("GET", "/api/v1/users", &Value::Null),
            "stop" => self.scene.serve = None,
            "start" => self.scene.start(),
            "provider-gone" => self.scene.provider = None,
            "provider-back" => self.scene.provide(),
            other => panic!("the script asks for {other}"),
        }
        json!({})
    }
}

#[test]
#[ignore = "needs Chromium, 700 MB: make test-ui"]
fn co_04_co_08_wb_01_wb_03_wb_04_people_sign_in_and_stay_themselves_in_a_browser() {
    let tools = installed().expect("oidc-provider, which npm gets");
    let scene = Scene::new("RS256", tools);
    let health = Admin::local(&scene.folder.0.join("data"));
    let health = health.unwrap().call("GET", "/api/v1/health", "").unwrap().body;
    let health: Value = serde_json::from_str(&health).unwrap();
    let server = health["key"].as_str().unwrap().parse().unwrap();
    let mut outside = Outside { scene, server, machines: Vec::new() };
    let owner = json!({ "name": "olga", "role": "owner", "password": PASSWORD });
    outside.call("POST", "/api/v1/users", &owner);
    outside.call("PUT", "/api/v1/policy", &json!({ "text": "{}" }));
    let url = outside.scene.url();
    let figures = drive("people", &[&url, PASSWORD], |what, value| outside.does(what, value));
    weight::note("people", &figures);
}
