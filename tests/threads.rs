//! What threads share: nothing in the core, one flag in the shell (docs/decisions.md, "Nothing is
//! shared between threads"). Every word of Rust that shares or starts something has to stand in
//! `SHARED` with its file and a reason, so that a loom or shuttle model is asked for when, and only
//! when, there is something to model. Tests and the lab, which is no part of the product's data
//! path, may use what they like.

use std::path::{Path, PathBuf};

/// Where nothing may be shared without a reason.
const FOLDERS: &[&str] = &["core", "shell/host/src", "src"];

/// What shares memory between threads, starts one, or leads there: whoever imports none of it
/// shares nothing.
const WORDS: &[&str] = &[
    "std::sync",
    "core::sync",
    "alloc::sync",
    "std::thread::{",
    "thread::spawn",
    "thread::scope",
    "thread::Builder",
    "thread_local!",
    "static mut ",
    "UnsafeCell",
    "libc::fork",
    "libc::mmap",
    "crossbeam",
    "parking_lot",
];

/// File, word, reason. Every row is used, or the test fails.
const SHARED: &[(&str, &str, &str)] = &[
    (
        "shell/host/src/driver/mail.rs",
        "std::sync",
        "a bounded channel of orders to the loop, read between turns; the data path never sees it",
    ),
    (
        "core/network/control/src/client.rs",
        "std::sync",
        "a map that a reader keeps is never written again: who changes it has a copy or is alone",
    ),
    (
        "core/packets/repair/src/code/budget.rs",
        "std::sync",
        "one number of bytes left, of one node: asked when memory grows, in any order",
    ),
    (
        "core/packets/noise/src/oracle.rs",
        "thread_local!",
        "test builds only: the last nonce of each key, one table a thread, shared with none",
    ),
    (
        "shell/host/src/quick/silence.rs",
        "std::sync",
        "names of endpoints are replaced whole under a lock; the thread acts by the loop's mailbox",
    ),
    (
        "shell/host/src/quick/silence.rs",
        "thread::Builder",
        "look-ups of names wait; they do so on a thread of their own",
    ),
    (
        "shell/host/src/names/mod.rs",
        "std::sync",
        "names are replaced whole under a lock; counters only grow; nothing of the node is shared",
    ),
    (
        "shell/host/src/names/datagrams.rs",
        "std::sync",
        "its hold on the names; it owns every socket that it reads",
    ),
    (
        "shell/host/src/names/datagrams.rs",
        "thread::Builder",
        "names are answered beside the data loop, which a slow resolver must not meet",
    ),
    (
        "shell/host/src/names/stream.rs",
        "std::sync",
        "its hold on the names, and the number of streams, which is a bound",
    ),
    (
        "shell/host/src/names/stream.rs",
        "thread::Builder",
        "a stream may be slow: each has a thread, 16 at most",
    ),
    (
        "shell/host/src/names/mdns.rs",
        "std::sync",
        "a flag that ends it, and counters; it owns all its sockets",
    ),
    (
        "shell/host/src/names/mdns.rs",
        "thread::Builder",
        "a LAN may talk at any time: it is heard beside the data loop",
    ),
    (
        "shell/host/src/socks/mod.rs",
        "std::sync",
        "who has circuits, a flag that ends it, and counters: nothing of the node is shared",
    ),
    (
        "shell/host/src/socks/mod.rs",
        "thread::Builder",
        "a client may be slow: each has a thread, 256 at most, beside the data loop",
    ),
    (
        "core/packets/link/src/preshared.rs",
        "std::sync",
        "key material that nobody changes, counted: a file's settings and the link have it once",
    ),
    ("shell/host/src/keyfile.rs", "std::sync", "it makes that material of a file, once"),
    (
        "shell/host/src/quick/run.rs",
        "thread::scope",
        "scripts run on a thread while the loop serves `wg`; it holds nothing of the node",
    ),
    (
        "shell/host/src/quick/run.rs",
        "std::sync",
        "one flag, written once by that thread before it wakes the loop, and read after",
    ),
    (
        "src/lastlines.rs",
        "std::sync",
        "the last lines of the log, under a lock that is held to put one there or to read all",
    ),
    (
        "src/serve.rs",
        "thread::Builder",
        "systemd is told that the server lives by one who asks it as others do; it shares nothing",
    ),
    ("src/ui.rs", "thread::Builder", "who presses Enter gets another link while pages are served"),
    ("src/ui.rs", "std::sync", "its hold on what makes links"),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the project is readable") {
        let path = entry.expect("the project is readable").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            rust_files(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" && name != "testing.rs" {
            found.push(path);
        }
    }
}

/// Product code: without comments, and without the tests at the end of a file.
fn product(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

fn sharing(text: &str) -> Vec<&'static str> {
    let code = product(text);
    WORDS.iter().copied().filter(|word| code.contains(word)).collect()
}

#[test]
fn dp_08_what_threads_share_has_a_reason() {
    let mut files = Vec::new();
    for folder in FOLDERS {
        rust_files(&root().join(folder), &mut files);
    }
    assert!(files.len() > 60, "only {} files were found", files.len());
    let mut used = vec![false; SHARED.len()];
    let mut without = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("the project is readable");
        let path =
            file.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
        for word in sharing(&text) {
            match SHARED.iter().position(|row| row.0 == path && row.1 == word) {
                Some(row) => used[row] = true,
                None => without.push(format!("{path}: {word}")),
            }
        }
    }
    assert!(without.is_empty(), "shared without a reason:\n{}", without.join("\n"));
    let stale = SHARED.iter().zip(used).filter(|(_, used)| !used).map(|(row, _)| row);
    let stale: Vec<_> = stale.collect();
    assert!(stale.is_empty(), "rows that nothing needs: {stale:?}");
    assert!(SHARED.iter().all(|row| row.2.len() > 20), "a reason says something");
}

#[test]
fn sharing_is_found_in_code_and_nowhere_else() {
    assert_eq!(sharing("fn f(a: std::sync::Arc<u8>) {}"), ["std::sync"]);
    assert_eq!(sharing("use core::sync::atomic::AtomicU64;"), ["core::sync"]);
    assert_eq!(
        sharing("std::thread::spawn(f); static mut A: u8 = 0;"),
        ["thread::spawn", "static mut "]
    );
    assert_eq!(sharing("// std::sync\nlet a = std::thread::sleep(b);"), [""; 0]);
    assert_eq!(
        sharing("fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::sync::Mutex;\n}"),
        [""; 0]
    );
}
