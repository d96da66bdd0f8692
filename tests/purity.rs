//! Proves that the purity gate of `core/` bites. One violation of every kind is compiled under
//! `core/clippy.toml` with warnings denied, and clippy must name each of their lines and no other.
//! A gate that is configured but never fails is worth nothing; this is the test of that gate.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the core must not do, one line of Rust each.
const VIOLATIONS: &[(&str, &str)] = &[
    ("clock", "pub fn v() { let _ = std::time::Instant::now(); }"),
    ("clock type", "pub fn v(_: std::time::Instant) {}"),
    ("wall clock", "pub fn v() -> bool { std::time::SystemTime::now().elapsed().is_ok() }"),
    ("udp socket", "pub fn v() -> bool { std::net::UdpSocket::bind(\"[::]:0\").is_ok() }"),
    ("tcp socket", "pub fn v(_: &std::net::TcpStream) {}"),
    ("listener", "pub fn v(_: &std::net::TcpListener) {}"),
    ("local socket", "pub fn v(_: &std::os::unix::net::UnixStream) {}"),
    ("descriptor", "pub fn v(_: &std::os::fd::OwnedFd) {}"),
    (
        "name lookup",
        "use std::net::ToSocketAddrs as _; pub fn v() -> bool \
        { (\"localhost\", 1).to_socket_addrs().is_ok() }",
    ),
    ("file", "pub fn v(_: &std::fs::File) {}"),
    ("file read", "pub fn v() -> bool { std::fs::read(\"x\").is_ok() }"),
    ("file write", "pub fn v() -> bool { std::fs::write(\"x\", []).is_ok() }"),
    ("program", "pub fn v() { let _ = std::process::Command::new(\"ip\"); }"),
    ("program end", "pub fn v() { std::process::exit(1) }"),
    ("thread", "pub fn v() { let _ = std::thread::spawn(|| ()); }"),
    ("sleep", "pub fn v() { std::thread::sleep(std::time::Duration::ZERO) }"),
    ("lock", "pub fn v(_: &std::sync::Mutex<u8>) {}"),
    ("channel", "pub fn v() { let _ = std::sync::mpsc::channel::<u8>(); }"),
    ("environment", "pub fn v() -> bool { std::env::var(\"X\").is_ok() }"),
    ("hash map", "pub fn v(_: &std::collections::HashMap<u8, u8>) {}"),
    ("hash set", "pub fn v(_: &std::collections::HashSet<u8>) {}"),
    ("ambient seed", "pub fn v() { let _ = std::hash::RandomState::new(); }"),
    (
        "hash order",
        "pub use std::collections::BTreeMap as M; #[allow(clippy::disallowed_types)] \
        pub fn v(m: &std::collections::HashMap<u8, u8>) -> usize { m.keys().count() }",
    ),
    ("print", "pub fn v() { println!(); }"),
    ("error print", "pub fn v() { eprintln!(); }"),
    ("standard out", "pub fn v() { let _ = std::io::stdout(); }"),
    (
        "thread local",
        "std::thread_local! { static V: u8 = const { 0 }; } pub fn v() { V.with(|_| ()) }",
    ),
];

/// What the core may do: none of these lines may be named.
const CLEAN: &[(&str, &str)] = &[
    ("addresses", "pub fn v(a: std::net::SocketAddr) -> u16 { a.port() }"),
    ("durations", "pub fn v(d: std::time::Duration) -> u64 { d.as_secs() }"),
    ("ordered map", "pub fn v(m: &std::collections::BTreeMap<u8, u8>) -> usize { m.len() }"),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Writes a crate with one module a line into `folder`.
fn write_crate(folder: &Path, lines: &[(&str, &str)]) {
    let manifest = "[package]\nname = \"violations\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
        [workspace]\n";
    let mut source = String::from("//! Violations, one a line from line 2.\n");
    for (number, (_, code)) in lines.iter().enumerate() {
        source.push_str(&format!("pub mod m{number} {{ {code} }}\n"));
    }
    std::fs::create_dir_all(folder.join("src")).expect("the target folder is writable");
    std::fs::write(folder.join("Cargo.toml"), manifest).expect("the target folder is writable");
    std::fs::write(folder.join("src/lib.rs"), source).expect("the target folder is writable");
}

/// Runs clippy in `folder` and returns its output.
fn clippy(folder: &Path) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["clippy", "--offline", "--quiet", "--message-format=short", "--", "-D", "warnings"])
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env_remove("CLIPPY_CONF_DIR")
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo runs: it runs this test");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The lines of src/lib.rs that clippy refused because of a disallowed item.
fn refused(output: &str) -> BTreeSet<usize> {
    output
        .lines()
        .filter(|line| line.contains("error: use of a disallowed"))
        .filter_map(|line| line.strip_prefix("src/lib.rs:")?.split(':').next()?.parse().ok())
        .collect()
}

#[test]
fn every_kind_of_impurity_in_core_fails_the_build() {
    // The layout of the project, so that it is also shown which of the two files clippy finds.
    let top = Path::new(env!("CARGO_TARGET_TMPDIR")).join("purity");
    let folder = top.join("core/violations");
    let lines: Vec<_> = VIOLATIONS.iter().chain(CLEAN).copied().collect();
    write_crate(&folder, &lines);
    for rules in ["clippy.toml", "core/clippy.toml"] {
        std::fs::copy(root().join(rules), top.join(rules)).expect("both files of rules exist");
    }
    let output = clippy(&folder);
    assert!(!output.contains("clippy.toml"), "core/clippy.toml itself is at fault:\n{output}");
    let refused = refused(&output);
    for (number, (kind, _)) in lines.iter().enumerate() {
        let expected = number < VIOLATIONS.len();
        assert_eq!(refused.contains(&(number + 2)), expected, "{kind}: refused or not\n{output}");
    }
}

#[test]
fn sc_04_every_core_crate_is_below_the_strict_rules() {
    let below = |folder: PathBuf| {
        let entries = std::fs::read_dir(&folder).expect("core/ exists");
        entries.map(|entry| entry.expect("core/ is readable").path()).collect::<Vec<_>>()
    };
    let wings = ["core", "core/packets", "core/network"].map(|wing| root().join(wing));
    for folder in wings.into_iter().flat_map(below) {
        let own = [folder.join("clippy.toml"), folder.join(".clippy.toml")];
        assert!(
            !own.iter().any(|file| file.exists()),
            "{} loosens core/clippy.toml",
            own[0].display()
        );
        if folder.is_dir() && !["packets", "network"].iter().any(|wing| folder.ends_with(wing)) {
            let essay = std::fs::read_to_string(folder.join("src/lib.rs")).expect("a core crate");
            assert!(
                essay.contains("#![forbid(unsafe_code)]"),
                "{} may be unsafe",
                folder.display()
            );
        }
    }
}
