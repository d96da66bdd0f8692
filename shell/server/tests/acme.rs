//! Certificates of an ACME authority: a real server, and pebble, which asks it for real.

#![expect(clippy::unwrap_used, reason = "all of it is tests, also what they share")]

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dial::http::Connection;
use dial::proxy::Proxies;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use server::{Acme, Config, RelayConfig, RelayServer, Server};

use authority::Authority;
use stage::{Folder, Stage, config};

#[path = "acme/authority.rs"]
mod authority;
#[path = "acme/proxy.rs"]
mod proxy;
#[allow(dead_code, reason = "others use more of it")]
#[path = "service/stage.rs"]
mod stage;

const NAME: &str = "warren.test";
const OTHER_NAME: &str = "also.warren.test";
const DAY_S: u64 = 86_400;
/// Longer than anything here takes on a busy machine, two orders and the pauses between included.
const PATIENCE: Duration = Duration::from_secs(60);

/// Books in the server's own folder.
const fn store(_: u32) -> Option<String> {
    None
}

/// Waits until there is a certificate of the authority. `held` is used meanwhile.
fn until_issued(stage: &Stage, held: &mut Connection) {
    let deadline = Instant::now() + PATIENCE;
    while standing(stage)["from"] != "acme" {
        assert!(Instant::now() < deadline, "no certificate: {}", standing(stage));
        health(held);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn begin(folder: Folder, port: u16, acme: &Acme) -> Stage {
    let config = Config { acme: Some(acme.clone()), ..config(&folder.0, port) };
    let server = Server::start(config).unwrap();
    let address = server.address();
    Stage { server: Some(server), address, folder, store: None }
}

/// What the server says of its certificate, to an administrator on its machine.
fn standing(stage: &Stage) -> Value {
    let health = stage.call("GET", "/api/v1/health", &Value::Null, 200);
    assert_eq!(health["ok"], true, "whatever its certificate is");
    health["certificate"].clone()
}

/// A connection that takes any certificate, as nodes do.
fn anybody(stage: &Stage) -> Connection {
    Connection::open(&stage.url(), &Proxies::default()).unwrap()
}

fn health(connection: &mut Connection) -> Value {
    let wait = Duration::from_secs(9);
    let answer = connection.request(("GET", "/api/v1/health"), &[], b"", 1000, wait).unwrap();
    assert_eq!(answer.status, 200);
    serde_json::from_slice(&answer.body).unwrap()
}

/// The certificate of `name` that somebody sees who trusts `roots` and nobody else.
fn verified(
    at: SocketAddr,
    name: &str,
    roots: &RootCertStore,
    protocol: &str,
) -> io::Result<Vec<u8>> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.into()];
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(client, TcpStream::connect(at)?);
    // The handshake is done before the first byte goes.
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")?;
    stream.flush()?;
    Ok(stream.conn.peer_certificates().unwrap()[0].to_vec())
}

fn http(stage: &Stage, name: &str, roots: &RootCertStore) -> io::Result<Vec<u8>> {
    verified(stage.address, name, roots, "http/1.1")
}

#[test]
fn co_20_an_authority_that_comes_late_is_waited_for_and_what_it_gives_is_kept() {
    let mut authority = Authority::new();
    let acme = authority.asked_for(&[NAME, OTHER_NAME]);
    let stage = begin(Folder::new(), 0, &acme);

    // It is down: the server serves with its own certificate, and says what is amiss to those whom
    // it knows.
    until("a failure", || !standing(&stage)["trouble"].is_null());
    let seen = standing(&stage);
    let what = seen["trouble"]["what"].as_str().unwrap();
    assert_eq!(seen["from"], "self-signed");
    for part in [NAME, OTHER_NAME, &authority.directory(), "refused", "--acme-directory"] {
        assert!(what.contains(part), "{what} lacks {part}");
    }
    let mut held = anybody(&stage);
    let public = &health(&mut held)["certificate"];
    assert!(public["from"] == "self-signed" && public.get("trouble").is_none(), "{public}");
    let token = stage.token(&json!({ "reusable": true }));
    let mut one = stage.node(&token, "one");
    one.until_peers(&[]);

    // It comes.
    authority.start("127.0.0.1", stage.address.port(), DAY_S);
    until_issued(&stage, &mut held);
    assert!(standing(&stage)["trouble"].is_null(), "{}", standing(&stage));
    let roots = authority.root();
    let shown = http(&stage, NAME, &roots).unwrap();
    assert_eq!(http(&stage, OTHER_NAME, &roots).unwrap(), shown, "one for all names");
    let why = http(&stage, "third.warren.test", &roots).unwrap_err().to_string();
    assert!(why.contains("not valid for name"), "{why}");
    let why = verified(stage.address, NAME, &roots, "acme-tls/1").unwrap_err().to_string();
    assert!(why.contains("alert"), "nothing is in question any more: {why}");
    health(&mut held);
    let mut two = stage.node(&token, "two");
    two.until_peers(&["one"]);
    one.until_peers(&["two"]);
    for name in ["acme.pem", "acme.account"] {
        let mode = stage.folder.0.join(name).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert!(!stage.folder.0.join("acme.asked").exists());

    // After a restart it is there at once, and nobody is asked.
    authority.stop();
    let instead = TcpListener::bind(("127.0.0.1", authority.port())).unwrap();
    instead.set_nonblocking(true).unwrap();
    let Stage { server, address, folder, .. } = stage;
    drop(server);
    let stage = begin(folder, address.port(), &acme);
    assert_eq!(standing(&stage)["from"], "acme");
    assert_eq!(http(&stage, NAME, &roots).unwrap(), shown);
    two.until("a map after the restart", |_, map| map.is_some_and(|map| map.peers.len() == 1));
    let asked = instead.accept().unwrap_err().kind();
    assert_eq!(asked, io::ErrorKind::WouldBlock);
}

#[test]
fn co_20_a_renewal_is_shown_without_a_pause_even_by_an_authority_that_forgot_us() {
    const LIFE_S: u64 = 9;
    let mut authority = Authority::new();
    let acme = authority.asked_for(&[NAME]);
    let stage = begin(Folder::new(), 0, &acme);
    let port = stage.address.port();
    authority.start("127.0.0.1", port, DAY_S);
    let roots = authority.root();
    until_issued(&stage, &mut anybody(&stage));
    let first = http(&stage, NAME, &roots).unwrap();
    let account = std::fs::read(stage.folder.0.join("acme.account")).unwrap();

    // Another one in its place, with short lives: what there is has a day, so nothing is asked.
    authority.stop();
    authority.start("127.0.0.1", port, LIFE_S);
    let roots = authority.root();
    let mut held = anybody(&stage);
    health(&mut held);
    assert!(http(&stage, NAME, &roots).is_err(), "it is the first one's");
    // A further name has to be asked for.
    let Stage { server, folder, .. } = stage;
    drop((server, held));
    let acme = authority.asked_for(&[NAME, OTHER_NAME]);
    let stage = begin(folder, port, &acme);
    let mut held = anybody(&stage);
    let mut seen = vec![first];
    until("another one, and its renewal", || {
        health(&mut held);
        if let Ok(shown) = http(&stage, OTHER_NAME, &roots)
            && !seen.contains(&shown)
        {
            seen.push(shown);
        }
        seen.len() == 3
    });
    let now = std::fs::read(stage.folder.0.join("acme.account")).unwrap();
    assert_ne!(now, account, "it is somebody new there");
    assert_eq!(health(&mut held)["certificate"]["from"], "acme");
}

#[test]
fn co_20_a_name_that_leads_elsewhere_is_told_and_comes_right_by_itself() {
    let mut authority = Authority::new();
    let stage = begin(Folder::new(), 0, &authority.asked_for(&[NAME]));
    authority.start("127.0.0.2", stage.address.port(), DAY_S);
    let begin = "warren.test: the authority says";
    until("what the authority says", || {
        let what = standing(&stage)["trouble"]["what"].as_str().unwrap_or_default().to_owned();
        what.contains(begin) && what.contains("port 443 of them to --listen")
    });
    assert_eq!(standing(&stage)["from"], "self-signed");
    let failures = standing(&stage)["trouble"]["failures"].as_u64().unwrap();
    until("another try", || standing(&stage)["trouble"]["failures"].as_u64() > Some(failures));
    let token = stage.token(&json!({}));
    stage.node(&token, "one").until_peers(&[]);
    authority.lead_to("127.0.0.1");
    until_issued(&stage, &mut anybody(&stage));
    http(&stage, NAME, &authority.root()).unwrap();
}

#[test]
fn co_20_an_authority_behind_a_proxy_is_asked_through_it_alone() {
    let mut authority = Authority::new();
    let proxy = proxy::Proxy::start();
    let wrong = Proxies::new(&proxy.url("anna:wrong"), "").unwrap();
    let stage = begin(Folder::new(), 0, &authority.asked_for(&[NAME]).through(wrong));
    let port = stage.address.port();
    authority.start("127.0.0.1", port, DAY_S);
    until("the proxy's refusal", || {
        let trouble = standing(&stage)["trouble"]["what"].to_string();
        trouble.contains("it does not let us through (HTTP/1.1 407") && !trouble.contains("wrong")
    });
    assert_eq!(standing(&stage)["from"], "self-signed", "nobody was asked without it");
    assert!(proxy.asked().is_empty());

    let Stage { server, folder, .. } = stage;
    drop(server);
    let right = Proxies::new(&proxy.url("anna:right"), "").unwrap();
    let stage = begin(folder, port, &authority.asked_for(&[NAME]).through(right));
    until_issued(&stage, &mut anybody(&stage));
    http(&stage, NAME, &authority.root()).unwrap();
    let asked = proxy.asked();
    let place = format!("127.0.0.1:{}", authority.port());
    assert!(asked.len() > 3 && asked.iter().all(|target| *target == place), "{asked:?}");
}

#[test]
fn co_20_a_relay_of_its_own_gets_a_certificate_too_and_relays_before_it_comes() {
    let mut authority = Authority::new();
    let folder = Folder::new();
    let config = RelayConfig {
        quic: false,
        icmp: None,
        data: folder.0.clone(),
        listen: ([127, 0, 0, 1], 0).into(),
        url: "https://127.0.0.1:1".parse().unwrap(),
        stun: Vec::new(),
        tls: None,
        acme: Some(authority.asked_for(&[NAME])),
    };
    let relay = RelayServer::start(&config).unwrap();
    let at = relay.address();
    authority.start("127.0.0.1", at.port(), DAY_S);
    let roots = authority.root();
    until("a certificate", || verified(at, NAME, &roots, "http/1.1").is_ok());
    let shown = verified(at, NAME, &roots, "http/1.1").unwrap();
    let why = verified(at, NAME, &roots, "acme-tls/1").unwrap_err().to_string();
    assert!(why.contains("alert"), "nothing is in question any more: {why}");
    // It is there at once after a restart, and nobody is asked.
    authority.stop();
    drop(relay);
    let relay = RelayServer::start(&RelayConfig { listen: at, ..config }).unwrap();
    assert_eq!(verified(relay.address(), NAME, &roots, "http/1.1").unwrap(), shown);
}
