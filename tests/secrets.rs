//! Secrets are compared by functions made for constant time, or not at all (threat RL-09). What is
//! a secret is told by its type: it is wiped when it is dropped.

use std::fs;
use std::path::{Path, PathBuf};

/// What a secret must not derive: each compares or orders byte by byte.
const COMPARING: [&str; 5] = ["PartialEq", "Eq", "PartialOrd", "Ord", "Hash"];
/// Names of fields and variables that hold secret bytes.
const SECRET_NAMES: [&str; 6] =
    ["secret", "secret.0", "private_key", "preshared_key", "pepper", "as_bytes()"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The text before the tests that a file ends with.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or_default()
}

/// Types that are wiped when dropped, each with what it derives.
fn secret_types(text: &str) -> Vec<(String, String)> {
    let mut types = Vec::new();
    let mut derived = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(list) = line.strip_prefix("#[derive(") {
            list.trim_end_matches(")]").clone_into(&mut derived);
        } else if line.starts_with("pub struct ")
            || line.starts_with("pub(crate) struct ")
            || line.starts_with("struct ")
        {
            if derived.contains("ZeroizeOnDrop") {
                let name = line.split("struct ").nth(1).unwrap_or_default();
                let name = name.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
                types.push((name.to_owned(), derived.clone()));
            }
            derived.clear();
        } else if !line.starts_with("#[") && !line.starts_with("///") {
            derived.clear();
        }
    }
    types
}

/// What is wrong with a file: each fault in a line.
fn faults(text: &str) -> Vec<String> {
    let text = without_tests(text);
    let mut faults = Vec::new();
    for (name, derived) in secret_types(text) {
        let words: Vec<&str> = derived.split(',').map(str::trim).collect();
        for comparing in COMPARING.iter().filter(|word| words.contains(word)) {
            faults.push(format!("the secret {name} derives {comparing}"));
        }
        if let Some((_, rest)) = text.split_once(&format!("impl PartialEq for {name} ")) {
            let body = rest.split("\n}").next().unwrap_or_default();
            if !body.contains(".ct_eq(") {
                faults.push(format!("the secret {name} is compared without ct_eq"));
            }
        }
        for ordering in ["PartialOrd", "Ord", "Hash"] {
            if text.contains(&format!("impl {ordering} for {name} ")) {
                faults.push(format!("the secret {name} has {ordering}"));
            }
        }
    }
    for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
        for sign in [" == ", " != "] {
            let Some((left, right)) = line.split_once(sign) else { continue };
            let left = left.trim_end().rsplit([' ', '(', '*', '&', '!']).next().unwrap_or_default();
            let right = right.trim_start_matches(['*', '&', '!']);
            let right = right.split([' ', ',', ';', ')']).next().unwrap_or_default();
            let is_secret = |side: &str| {
                SECRET_NAMES.iter().any(|name| side == *name || side.ends_with(&format!(".{name}")))
            };
            if is_secret(left) || is_secret(right) {
                faults.push(format!("compared as it is: {}", line.trim()));
            }
        }
    }
    faults
}

#[test]
fn rl_09_secrets_are_compared_in_constant_time_or_not_at_all() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    ["core", "shell", "lab", "src"]
        .iter()
        .for_each(|folder| sources(&root.join(folder), &mut files));
    let is_product = |path: &&PathBuf| {
        let path = path.to_string_lossy();
        !path.contains("/tests/") && !path.ends_with("/tests.rs") && !path.contains("/examples/")
    };
    let (mut secrets, mut wrong) = (0, Vec::new());
    for path in files.iter().filter(is_product) {
        let text = fs::read_to_string(path).expect("a file");
        secrets += secret_types(without_tests(&text)).len();
        wrong.extend(faults(&text).into_iter().map(|fault| format!("{}: {fault}", path.display())));
    }
    assert!(secrets >= 5, "the keys and tokens are found: {secrets}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn comparisons_of_secrets_are_found() {
    let key = "#[derive(Clone, ZeroizeOnDrop)]\npub struct Key([u8; 32]);\n";
    assert_eq!(faults(key), [""; 0]);
    for (code, count) in [
        ("#[derive(Clone, PartialEq, Eq, ZeroizeOnDrop)]\n/// A key.\nstruct Key([u8; 32]);\n", 2),
        (&format!("{key}impl PartialEq for Key {{\n    self.0 == other.0\n}}\n"), 1),
        (&format!("{key}impl PartialEq for Key {{\n    self.0.ct_eq(&other.0)\n}}\n"), 0),
        (&format!("{key}impl Ord for Key {{\n}}\n"), 1),
        ("fn f() { if token.secret.0 == *known {} }\n", 1),
        ("fn f() { if known != &self.pepper {} }\n", 1),
        ("fn f() { if one.secret_count == 3 {} }\n", 0),
        ("#[cfg(test)]\nmod tests { fn f() { a.secret == b.secret } }\n", 0),
        ("#[derive(PartialEq)]\npub struct Name([u8; 8]);\n", 0),
    ] {
        assert_eq!(faults(code).len(), count, "{code}: {:?}", faults(code));
    }
}
