//! An ACME authority on this machine: pebble, which looks for real whether a name leads to the
//! server, and a name server for it. Both are Debian's, and live as long as this.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use dial::http::Connection;
use dial::proxy::Proxies;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use server::{Acme, Pace};

use crate::stage::Folder;
use crate::{PATIENCE, until};

/// Runs a program until its input ends, with the test or by it.
const RUN: &str = "\"$@\" </dev/null & read -r _; kill -KILL $!; wait";

pub(crate) struct Authority {
    folder: Folder,
    /// Of its directory, of its own administration, of the name server and its administration.
    ports: [u16; 4],
    children: Vec<Child>,
}

/// A port that nothing uses, and that the kernel gives to no connection by itself.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id() % 600 * 20) as u16;
    loop {
        let port = 20_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        let is_free = TcpListener::bind(("127.0.0.1", port)).is_ok()
            && UdpSocket::bind(("127.0.0.1", port)).is_ok();
        if is_free {
            return port;
        }
    }
}

impl Authority {
    /// One that does not run yet.
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        std::fs::create_dir_all(&folder.0).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let own = own.signed_by(&key, &issuer).unwrap();
        let files = [("ca", root.pem()), ("crt", own.pem()), ("key", key.serialize_pem())];
        for (name, text) in files {
            std::fs::write(folder.0.join(name), text).unwrap();
        }
        Self { folder, ports: [(); 4].map(|()| port()), children: Vec::new() }
    }

    pub(crate) const fn port(&self) -> u16 {
        self.ports[0]
    }

    pub(crate) fn directory(&self) -> String {
        format!("https://127.0.0.1:{}/dir", self.ports[0])
    }

    /// What a server asks it that does not wait long.
    pub(crate) fn asked_for(&self, names: &[&str]) -> Acme {
        let names: Vec<String> = names.iter().copied().map(str::to_owned).collect();
        let email = Some("admin@warren.test".to_owned());
        let ca = self.folder.0.join("ca");
        let mut acme = Acme::new(&names, email, &self.directory(), Some(ca)).unwrap();
        let [first, longest, after] = [200, 1000, 100].map(Duration::from_millis);
        acme.pace = Pace { first, longest, after };
        acme
    }

    /// Begins, with nothing of what was before. Certificates are good for so many seconds, names
    /// lead to `address`, and TLS is looked for at `tls_port` there.
    pub(crate) fn start(&mut self, address: &str, tls_port: u16, life_s: u64) {
        let [acme, control, dns, dns_control] = self.ports.map(|port| format!("127.0.0.1:{port}"));
        let folder = self.folder.0.clone();
        let path = |name: &str| folder.join(name).display().to_string();
        let config = json!({ "pebble": {
            "listenAddress": acme,
            "managementListenAddress": control,
            "certificate": path("crt"),
            "privateKey": path("key"),
            "httpPort": 1,
            "tlsPort": tls_port,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
            "certificateValidityPeriod": life_s,
        }});
        std::fs::write(self.folder.0.join("config"), config.to_string()).unwrap();
        let names = ["-defaultIPv4", address, "-defaultIPv6", "", "-dns01", &dns, "-http01", ""];
        let names = [&names[..], &["-https01", "", "-tlsalpn01", "", "-management", &dns_control]];
        self.run("pebble-challtestsrv", &names.concat());
        self.run("pebble", &["-config", &path("config"), "-dnsserver", &dns]);
        for port in self.ports {
            // `make setup` installs Debian's package pebble.
            until("pebble to begin", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        }
    }

    fn run(&mut self, program: &str, words: &[&str]) {
        let log = |name: &str| {
            let path: PathBuf = self.folder.0.join(format!("{program}.{name}"));
            Stdio::from(std::fs::File::create(path).unwrap())
        };
        let child = Command::new("sh")
            .args(["-c", RUN, "sh", program])
            .args(words)
            // It waits 0 to 5 s before it looks, or not; it looks in either case.
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env_remove("PEBBLE_VA_ALWAYS_VALID")
            .stdin(Stdio::piped())
            .stdout(log("out"))
            .stderr(log("err"))
            .spawn();
        self.children.push(child.unwrap());
    }

    pub(crate) fn stop(&mut self) {
        for mut child in self.children.drain(..) {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }

    /// From now on every name leads to another address.
    pub(crate) fn lead_to(&self, address: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[3])).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = json!({ "ip": address }).to_string();
        let len = body.len();
        let head = "POST /set-default-ipv4 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
        write!(stream, "{head}Content-Length: {len}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// Who signs what it gives, in this run.
    pub(crate) fn root(&self) -> RootCertStore {
        let url = format!("https://127.0.0.1:{}", self.ports[1]).parse().unwrap();
        let mut connection = Connection::open(&url, &Proxies::default()).unwrap();
        let answer = connection.request(("GET", "/roots/0"), &[], b"", 1 << 16, PATIENCE).unwrap();
        assert_eq!(answer.status, 200);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&answer.body).unwrap()).unwrap();
        roots
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["pebble.out", "pebble.err", "pebble-challtestsrv.err"] {
                let log = std::fs::read_to_string(self.folder.0.join(name)).unwrap_or_default();
                let lines: Vec<&str> = log.lines().rev().take(20).collect();
                eprintln!("{name}, last line first:\n{}", lines.join("\n"));
            }
        }
        self.stop();
    }
}
