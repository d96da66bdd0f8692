//! Who is believed: the holder of the key in the token, whatever certificate is shown on the way.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use control::client::Trouble;
use control::{Event, Kind, ServerUrl, Token};
use dial::http::Connection;
use dial::proxy::Proxies;
use dial::{Admin, AdminError};
use rcgen::CertifiedKey;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::stage::{Node, Stage, settings};

/// Somebody between node and server: a proxy that connects, and one that ends TLS and reads.
struct Between {
    address: SocketAddr,
    /// Everything that it could read.
    read: Arc<Mutex<Vec<u8>>>,
}

/// What one does who is asked to `CONNECT`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Passes bytes on, if asked by the right user.
    Connects,
    /// Says yes, ends TLS under a certificate of its own, and passes requests on.
    Intercepts,
    /// Ends TLS without being asked, as a reverse proxy does.
    Forwards,
}

impl Between {
    fn new(manner: Manner, server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let read = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&read);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let seen = Arc::clone(&seen);
                // A connection that breaks is the other end's business.
                thread::spawn(move || drop(serve(stream, manner, server, &seen)));
            }
        });
        Self { address, read }
    }

    fn proxies(&self) -> Proxies {
        Proxies::new(&format!("http://anna:secret@{}", self.address), "").unwrap()
    }

    fn has_read(&self, bytes: &[u8]) -> bool {
        self.read.lock().unwrap().windows(bytes.len()).any(|window| window == bytes)
    }
}

fn serve(
    mut stream: TcpStream,
    manner: Manner,
    server: SocketAddr,
    seen: &Mutex<Vec<u8>>,
) -> io::Result<()> {
    if manner != Manner::Forwards {
        let head = head(&mut BufReader::with_capacity(1, stream.try_clone()?))?;
        if !head.contains("Proxy-Authorization: Basic YW5uYTpzZWNyZXQ=") {
            return stream.write_all(b"HTTP/1.1 407 Who?\r\nContent-Length: 0\r\n\r\n");
        }
        assert!(head.starts_with(&format!("CONNECT {server} HTTP/1.1")), "{head}");
        stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n")?;
    }
    if manner == Manner::Connects {
        let onward = TcpStream::connect(server)?;
        let (mut from, mut to) = (stream.try_clone()?, onward.try_clone()?);
        thread::spawn(move || io::copy(&mut from, &mut to));
        return io::copy(&mut &onward, &mut &stream).map(drop);
    }
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["intercepted".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let tls = StreamOwned::new(ServerConnection::new(Arc::new(config)).unwrap(), stream);
    forward(BufReader::new(tls), server, seen)
}

/// Reads requests, remembers them, asks the real server, and remembers its answers.
fn forward<S: Read + Write>(
    mut stream: BufReader<S>,
    server: SocketAddr,
    seen: &Mutex<Vec<u8>>,
) -> io::Result<()> {
    let url: ServerUrl = format!("https://{server}").parse().unwrap();
    let mut onward = Connection::open(&url, &Proxies::default())?;
    loop {
        let head = head(&mut stream)?;
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let len = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let mut body = vec![0; len.and_then(|len| len.parse().ok()).unwrap_or(0)];
        stream.read_exact(&mut body)?;
        let wait = Duration::from_secs(60);
        let answer = onward.request((method, path), &[], &body, 1 << 24, wait)?;
        let mut memory = seen.lock().unwrap();
        memory.extend(head.as_bytes());
        memory.extend(&body);
        memory.extend(&answer.body);
        drop(memory);
        let head = format!(
            "HTTP/1.1 {} -\r\nContent-Length: {}\r\n\r\n",
            answer.status,
            answer.body.len()
        );
        stream.get_mut().write_all(&[head.as_bytes(), &answer.body].concat())?;
        stream.get_mut().flush()?;
    }
}

fn head(stream: &mut impl BufRead) -> io::Result<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

#[test]
fn co_12_who_ends_tls_in_between_reads_nothing_and_changes_nothing() {
    let stage = Stage::new();
    let between = Between::new(Manner::Forwards, stage.address);
    let mut token = stage.token(&json!({ "reusable": true }));
    token.urls = vec![format!("https://{}", between.address).parse().unwrap()];
    let mut one = stage.node(&token, "marker-of-one");
    one.until_peers(&[]);
    let mut two = stage.node(&token, "marker-of-two");
    one.until_peers(&["marker-of-two"]);
    two.until_peers(&["marker-of-one"]);
    assert!(between.has_read(b"POST /control/open"), "it did read the requests");
    for secret in [&b"marker-of"[..], &token.secret.0, b"enrol", b"peers"] {
        assert!(!between.has_read(secret), "{:?}", String::from_utf8_lossy(secret));
    }
}

#[test]
fn co_12_an_intercepting_proxy_is_harmless_and_so_is_one_that_connects() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    for manner in [Manner::Connects, Manner::Intercepts] {
        let between = Between::new(manner, stage.address);
        let mut node = Node::start(settings(&token, "robot"), between.proxies());
        node.until("a map", |_, map| map.is_some());
        assert!(!between.has_read(b"robot"));
        assert_eq!(between.has_read(b"/control/ask"), manner == Manner::Intercepts);
        // What needs no proxy does not go there.
        let nobody = format!("http://{}", between.address);
        let mut node = Node::start(settings(&token, "x"), Proxies::new(&nobody, "").unwrap());
        node.until("no way without a password", |event, _| {
            *event == Event::Trouble(Trouble::Unreachable)
        });
        let direct = Proxies::new(&nobody, "127.0.0.0/8").unwrap();
        let mut node = Node::start(settings(&token, "x"), direct);
        node.until_enrolled();
    }
}

#[test]
fn co_12_a_wrong_server_is_refused() {
    let (right, wrong) = (Stage::new(), Stage::new());
    let mut token = right.token(&json!({ "reusable": true }));
    token.urls = vec![wrong.url()];
    let mut node = right.node(&token, "one");
    node.until("refusal", |event, _| *event == Event::Trouble(Trouble::NotTheServer));
    assert!(!wrong.call("GET", "/api/v1/nodes", &Value::Null, 200).to_string().contains("\"one\""));
    // One of several URLs that is right is found.
    token.urls.push(right.url());
    let mut node = right.node(&token, "two");
    node.until("a map", |_, map| map.is_some());

    // One that was joined, replaced by another on the same port.
    let Stage { server, address, folder, .. } = right;
    drop((server, folder));
    let fresh = crate::stage::Folder::new();
    let _other = server::Server::start(crate::stage::config(&fresh.0, address.port())).unwrap();
    node.until("trouble", |event, _| matches!(event, Event::Trouble(_)));
    assert!(node.last.unwrap().map.is_some(), "its map stays as it was");
}

#[test]
fn co_12_an_administrator_far_away_needs_no_certificate_either() {
    let stage = Stage::new();
    let between = Between::new(Manner::Intercepts, stage.address);
    let token = stage.api_token(&["users:read", "users:write"]);
    let mut admin = Admin::remote(Some(stage.url()), &token, between.proxies()).unwrap();
    let reply = admin.call("POST", "/api/v1/users", r#"{"name":"anna-marker"}"#).unwrap();
    assert_eq!(reply.status, 201, "{}", reply.body);
    let reply = admin.call("GET", "/api/v1/users", "").unwrap();
    assert!(reply.body.contains("anna-marker"));
    assert!(!between.has_read(b"anna-marker"));
    assert_eq!(admin.call("GET", "/api/v1/nodes", "").unwrap().status, 403);
    assert_eq!(admin.call("GET", "/api/v1/nowhere", "").unwrap().status, 404);
    let api = Token::parse(&token, Kind::Api).unwrap();
    assert!(!between.has_read(&api.secret.0));

    let other = Stage::new();
    let mut admin = Admin::remote(Some(other.url()), &token, Proxies::default()).unwrap();
    let refused = admin.call("GET", "/api/v1/users", "");
    assert!(matches!(refused, Err(AdminError::NotTheServer(_))), "{refused:?}");
}
