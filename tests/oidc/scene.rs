//! A server, and a provider that others wrote and certified (oidc-provider), with curl as the
//! browser. `npm ci` gets it.

// Two test programs compile this file, and each uses its own part of it.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub(crate) const WARREN: &str = env!("CARGO_BIN_EXE_warren");
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Folder(pub(crate) PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Where the provider's program is, installed once for all tests; nothing if it cannot be had.
pub(crate) fn installed() -> Option<PathBuf> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let place = target.join("tools/oidc");
    std::fs::create_dir_all(&place).ok()?;
    for name in ["package.json", "package-lock.json", "provider.mjs"] {
        std::fs::copy(root.join("tests/oidc").join(name), place.join(name)).ok()?;
    }
    if place.join("node_modules/.package-lock.json").exists() {
        return Some(place);
    }
    let words = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev"];
    let done = Command::new("npm").args(words).current_dir(&place).stdin(Stdio::null()).output();
    match done {
        Ok(output) if output.status.success() => Some(place),
        Ok(output) => {
            println!("skipped: npm ci: {}", String::from_utf8_lossy(&output.stderr));
            None
        }
        Err(error) => {
            println!("skipped: npm: {error}");
            None
        }
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(crate) fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {why}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn begin(command: &mut Command, word: &str) -> Running {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let running = Running(child);
    assert!(line.starts_with(word), "{line:?}");
    running
}

pub(crate) struct Scene {
    pub(crate) folder: Folder,
    tools: PathBuf,
    /// Of the server and of the provider.
    pub(crate) ports: [u16; 2],
    algorithm: &'static str,
    pub(crate) provider: Option<Running>,
    pub(crate) serve: Option<Running>,
}

impl Scene {
    pub(crate) fn new(algorithm: &'static str, tools: PathBuf) -> Self {
        let mut scene = Self::set(algorithm, tools, "", "");
        // The provider is not there yet, and nobody minds.
        scene.start();
        scene.provide();
        scene
    }

    /// Certificate and files for a provider at this path of its own port, with `more` in its file.
    pub(crate) fn set(algorithm: &'static str, tools: PathBuf, path: &str, more: &str) -> Self {
        let name = format!("warren-oidc-{algorithm}-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        let _ = std::fs::remove_dir_all(&folder.0);
        std::fs::create_dir_all(&folder.0).unwrap();
        let ports = [free_port(), free_port()];
        let scene = Self { folder, tools, ports, algorithm, provider: None, serve: None };
        let at = |name: &str| scene.folder.0.join(name).display().to_string();
        let subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"];
        // As who signs others it would not be taken as who answers.
        let no_ca = ["-addext", "basicConstraints=critical,CA:FALSE"];
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        said(
            Command::new("openssl")
                .args(["req", "-x509", "-days", "2"])
                .args(curve)
                .args(subject)
                .args(no_ca)
                .args(["-keyout", &at("op.key"), "-out", &at("op.pem")]),
        );
        std::fs::write(at("secret"), "a secret of a test\n").unwrap();
        std::fs::write(
            at("oidc.toml"),
            format!(
                "name = \"Uni\"\nissuer = \"https://127.0.0.1:{}{path}\"\n\
                 client_id = \"warren\"\nclient_secret_file = {:?}\nca_file = {:?}\n\
                 refresh_minutes = 1\n{more}",
                ports[1],
                at("secret"),
                at("op.pem")
            ),
        )
        .unwrap();
        scene.groups(&json!({ "anna": ["/uni/Robotics"] }));
        scene
    }

    /// Where the server is.
    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports[0])
    }

    pub(crate) fn start(&mut self) {
        let mut serve = Command::new(WARREN);
        serve.args(["serve", "--stun", "127.0.0.1:0", "--no-quic", "--url", &self.url()]);
        serve.args(["--data", &self.at("data"), "--oidc", &self.at("oidc.toml")]);
        serve.args(["--listen", &format!("127.0.0.1:{}", self.ports[0])]);
        self.serve = Some(begin(&mut serve, "serving on"));
    }

    pub(crate) fn at(&self, name: &str) -> String {
        self.folder.0.join(name).display().to_string()
    }

    pub(crate) fn groups(&self, groups: &Value) {
        let mut file = std::fs::File::create(self.at("groups.new")).unwrap();
        file.write_all(groups.to_string().as_bytes()).unwrap();
        std::fs::rename(self.at("groups.new"), self.at("groups")).unwrap();
    }

    pub(crate) fn provide(&mut self) {
        let back = format!("https://127.0.0.1:{}/sign-in/oidc/callback", self.ports[0]);
        let mut node = Command::new("node");
        node.arg("provider.mjs").arg(self.ports[1].to_string()).current_dir(&self.tools);
        node.args([self.at("op.pem"), self.at("op.key"), self.at("groups"), back]);
        node.arg(self.algorithm).stderr(Stdio::null());
        self.provider = Some(begin(&mut node, "ready"));
    }

    pub(crate) fn admin(&self, words: &[&str]) -> Value {
        let mut command = Command::new(WARREN);
        command.args(words).args(["--json", "--data", &self.at("data")]);
        serde_json::from_str(&said(command.env_remove("WARREN_TOKEN"))).unwrap()
    }

    /// A browser that follows where it is sent: what it comes to, and where that is.
    pub(crate) fn curl(&self, jar: &str, words: &[&str]) -> (String, String) {
        let jar = self.at(jar);
        let mut command = Command::new("curl");
        command.args(["-sSkL", "-m", "20", "-b", &jar, "-c", &jar, "-w", "\n%{url_effective}"]);
        let text = said(command.args(words));
        let (page, place) = text.rsplit_once('\n').unwrap();
        (page.to_owned(), place.to_owned())
    }

    /// Signs in at the provider as this person.
    pub(crate) fn sign_in(&self, jar: &str, person: &str) -> String {
        let begin = format!("https://127.0.0.1:{}/sign-in/oidc?return=/sign-in.css", self.ports[0]);
        let (page, place) = self.curl(jar, &[&begin]);
        assert!(place.contains("/interaction/"), "{place}: {page}");
        let form = format!("prompt=login&login={person}&password=x");
        let (page, place) = self.curl(jar, &["-d", &form, &place]);
        if !place.contains("/interaction/") {
            return page;
        }
        self.curl(jar, &["-d", "prompt=consent", &place]).0
    }

    pub(crate) fn who(&self, jar: &str) -> Value {
        let url = format!("https://127.0.0.1:{}/api/v1/session", self.ports[0]);
        serde_json::from_str(&self.curl(jar, &[&url]).0).unwrap()
    }

    pub(crate) fn anna(&self) -> Value {
        let users = self.admin(&["user", "list"]);
        let all = users["users"].as_array().unwrap();
        all.iter().find(|user| user["name"] == "anna").cloned().unwrap_or_default()
    }

    pub(crate) fn until(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !is(self) {
            assert!(begin.elapsed() < PATIENCE * 4, "{what}");
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}
