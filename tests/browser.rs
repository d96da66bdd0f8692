//! The web interface in a real browser: scripts in `shell/ui/web/try` click, read and look, this
//! does what happens outside of the browser. `make test-ui` installs Chromium and runs it; pictures
//! are left in `ui` of the target directory, and with `WARREN_WRITE=1` those of the documents and
//! the figures in `docs` are made again.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of it is tests")]

#[path = "browser/keycloak.rs"]
mod keycloak;
#[path = "browser/people.rs"]
mod people;
#[path = "browser/published.rs"]
mod published;
#[path = "oidc/scene.rs"]
mod scene;
#[path = "browser/stage.rs"]
mod stage;
#[path = "browser/weight.rs"]
mod weight;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;

use stage::{Program, Stage, is_there};

const WARREN: &str = env!("CARGO_BIN_EXE_warren");
/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

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

/// The packages of the scripts, which npm gets once.
fn packages(web: &Path) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if web.join("node_modules/.package-lock.json").exists() {
        return;
    }
    let words = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
    let output = Command::new("npm").args(words).current_dir(web).output().unwrap();
    assert!(output.status.success(), "npm: {}", String::from_utf8_lossy(&output.stderr));
}

/// A script that drives the browser, and its pipes.
fn script(name: &str, words: &[&str]) -> (Program, ChildStdin, BufReader<ChildStdout>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    packages(&root.join("shell/ui/web"));
    let pictures = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../ui");
    let mut command = Command::new("node");
    command.current_dir(root.join("shell/ui/web")).arg(format!("try/{name}.mjs")).arg(pictures);
    if std::env::var_os("WARREN_WRITE").is_some() {
        command.env("WARREN_DOCS", root.join("docs/ui"));
    }
    let mut child =
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    (Program(child), to, BufReader::new(from))
}

/// Does what a script asks for, until it ends: what it measured. Fails with what it found wrong.
fn drive(name: &str, words: &[&str], mut outside: impl FnMut(&str, &str) -> Value) -> Value {
    assert!(is_there("node") && is_there("chromium"), "run make test-ui, which installs both");
    let (mut browser, mut to, mut from) = script(name, words);
    loop {
        let mut line = String::new();
        assert!(from.read_line(&mut line).unwrap() > 0, "the script ended early");
        let asked: Value = serde_json::from_str(&line).unwrap();
        let (what, value) = (asked["what"].as_str().unwrap(), &asked["value"]);
        if what == "end" {
            println!("{name}: {}", value["figures"]);
            assert!(browser.0.wait().unwrap().success(), "{:#}", value["faults"]);
            return value["figures"].clone();
        }
        let answer = outside(what, value.as_str().unwrap_or_default());
        writeln!(to, "{answer}").unwrap();
    }
}

#[test]
#[ignore = "needs Chromium, 700 MB: make test-ui"]
fn wb_02_every_page_works_in_a_browser_that_enforces_its_policy() {
    let mut stage = Stage::new("pages");
    let (_ui, link) = ui(&stage.folder);
    let figures = drive("main", &[&link], |what, value| stage.outside(what, value));
    weight::note("pages", &figures);
}
