//! A provider of identities that does what a test wants: an honest one, and worse.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{CertificateParams, KeyPair};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::stage::Folder;

/// What it answers: a status and a body by path, instead of what an honest one would.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) instead: BTreeMap<&'static str, (u16, Vec<u8>)>,
    /// Claims beside the usual ones, or instead of them.
    pub(crate) claims: Value,
    /// The head of a token.
    pub(crate) head: Option<Value>,
    /// Signs with a key that it does not show.
    pub(crate) signs_with_another: bool,
    /// It has changed its key for the other, which it calls so, or calls nothing.
    pub(crate) rotated: Option<Value>,
    /// What was asked: path and form.
    pub(crate) asked: Vec<(String, String)>,
    /// The word of the sign-in that is under way.
    pub(crate) nonce: String,
}

pub(crate) struct Hostile {
    pub(crate) address: SocketAddr,
    pub(crate) ca: PathBuf,
    pub(crate) script: Arc<Mutex<Script>>,
    _folder: Folder,
}

pub(crate) fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn key() -> Ed25519KeyPair {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap()
}

impl Hostile {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        std::fs::create_dir_all(&folder.0).unwrap();
        let pair = KeyPair::generate().unwrap();
        let own = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let own = own.self_signed(&pair).unwrap();
        let ca = folder.0.join("provider.pem");
        std::fs::write(&ca, own.pem()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![own.der().clone()],
                PrivatePkcs8KeyDer::from(pair.serialize_der()).into(),
            )
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let script = Arc::new(Mutex::new(Script::default()));
        let (config, shared) = (Arc::new(config), Arc::clone(&script));
        let keys = Arc::new([key(), key()]);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, shared) = (Arc::clone(&config), Arc::clone(&shared));
                let keys = Arc::clone(&keys);
                std::thread::spawn(move || serve(stream, config, &shared, address, &keys));
            }
        });
        Self { address, ca, script, _folder: folder }
    }

    pub(crate) fn issuer(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(crate) fn with(&self, work: impl FnOnce(&mut Script)) {
        work(&mut self.script.lock().unwrap());
    }

    /// Times that this path was asked for.
    pub(crate) fn times(&self, path: &str) -> usize {
        self.script.lock().unwrap().asked.iter().filter(|(asked, _)| asked == path).count()
    }
}

fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    script: &Mutex<Script>,
    address: SocketAddr,
    keys: &[Ed25519KeyPair; 2],
) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
    let Ok(tls) = ServerConnection::new(config) else { return };
    let mut stream = BufReader::new(StreamOwned::new(tls, stream));
    let (mut first, mut len) = (String::new(), 0);
    if stream.read_line(&mut first).is_err() {
        return;
    }
    loop {
        let mut line = String::new();
        match stream.read_line(&mut line) {
            Ok(len) if len > 2 => {}
            _ => break,
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            len = value.trim().parse().unwrap_or(0);
        }
    }
    let mut form = vec![0; len];
    if stream.read_exact(&mut form).is_err() {
        return;
    }
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let (status, body) = {
        let mut script = script.lock().unwrap();
        script.asked.push((path.clone(), String::from_utf8_lossy(&form).into_owned()));
        answer(&script, &path, address, keys)
    };
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", body.len());
    let more = "Location: https://127.0.0.1:1/\r\nConnection: close\r\n\r\n";
    let stream = stream.get_mut();
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(more.as_bytes());
    let _ = stream.write_all(&body);
    stream.conn.send_close_notify();
    let _ = stream.flush();
}

fn answer(
    script: &Script,
    path: &str,
    address: SocketAddr,
    keys: &[Ed25519KeyPair; 2],
) -> (u16, Vec<u8>) {
    if let Some((status, body)) = script.instead.get(path) {
        return (*status, body.clone());
    }
    let issuer = format!("https://{address}");
    let value = match path {
        "/.well-known/openid-configuration" => json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "jwks_uri": format!("{issuer}/keys"),
        }),
        "/keys" => {
            let shown = &keys[usize::from(script.rotated.is_some())];
            let id = script.rotated.clone().unwrap_or_else(|| json!("one"));
            json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": id,
                "x": text(shown.public_key().as_ref()) }] })
        }
        "/token" => {
            let mut claims = json!({ "iss": issuer, "sub": "u1", "aud": "warren",
                "exp": server::unix_s() + 86_400, "iat": server::unix_s(), "nonce": script.nonce,
                "preferred_username": "anna", "groups": ["ops"] });
            for (name, value) in script.claims.as_object().into_iter().flatten() {
                claims[name] = value.clone();
            }
            let head = script.head.clone();
            let id = script.rotated.clone().unwrap_or_else(|| json!("one"));
            let head = head.unwrap_or_else(|| json!({ "alg": "EdDSA", "kid": id }));
            let message = format!(
                "{}.{}",
                text(head.to_string().as_bytes()),
                text(claims.to_string().as_bytes())
            );
            let key = &keys[usize::from(script.signs_with_another != script.rotated.is_some())];
            let signature = text(key.sign(message.as_bytes()).as_ref());
            json!({ "id_token": format!("{message}.{signature}"), "refresh_token": "again" })
        }
        _ => return (404, b"{}".to_vec()),
    };
    (200, value.to_string().into_bytes())
}
