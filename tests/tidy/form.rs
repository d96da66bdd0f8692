//! Form of code, beyond sizes and names: test code stands where tests stand, and no golf is added.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Kinds of golf: a statement that is several, so that there are fewer lines.
const GOLF: [(&str, Count); 3] = [
    ("let (a, b) = (x, y)", lets),
    ("(self.a, self.b) = (x, y)", settings),
    ("fn f((a, b): (A, B))", parameters),
];

/// How much of each kind a crate has, its tests left out. A number may only fall.
const LEFT: [(&str, [usize; 3]); 20] = [
    ("shell/quic", [3, 3, 0]),
    ("shell/pages", [3, 3, 0]),
    ("core/network/control", [5, 5, 2]),
    ("core/network/dns", [0, 0, 0]),
    ("core/network/policy", [3, 4, 0]),
    ("core/packets/carrier", [3, 3, 0]),
    ("core/packets/circuit", [3, 3, 11]),
    ("core/packets/link", [0, 0, 12]),
    ("core/packets/node", [3, 3, 5]),
    ("core/packets/repair", [0, 0, 4]),
    ("core/sim", [0, 0, 0]),
    ("lab/bench", [0, 0, 0]),
    ("lab/demo", [0, 0, 0]),
    ("lab/world", [0, 0, 0]),
    ("shell/daemon", [5, 4, 1]),
    ("shell/dial", [5, 4, 0]),
    ("shell/host", [4, 5, 0]),
    ("shell/ping", [3, 3, 0]),
    ("shell/server", [7, 5, 0]),
    ("src", [6, 3, 0]),
];

/// How far a number may stand above what is there, so that not every commit touches it.
const SLACK: usize = 3;

type Count = fn(&str) -> usize;

fn rust_files(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder of the project").flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a file of the project");
            let root = Path::new(env!("CARGO_MANIFEST_DIR"));
            let name = path.strip_prefix(root).expect("below the root");
            found.push((name.to_string_lossy().into_owned(), text));
        }
    }
}

/// All files of the project's crates, each with its text.
pub(super) fn files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in ["core", "shell", "lab", "src"] {
        rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
    }
    assert!(found.len() > 500, "only {} files were found", found.len());
    found
}

fn is_of_tests(name: &str) -> bool {
    name.contains("/tests/") || name.ends_with("/tests.rs")
}

/// What a file has for tests only that is no module called `tests`.
fn misnamed(name: &str, text: &str) -> Vec<String> {
    if is_of_tests(name) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if line != "#[cfg(test)]" {
            continue;
        }
        let item = lines.find(|line| !line.starts_with("#[")).unwrap_or_default();
        let words: Vec<&str> = item.trim_end_matches([';', '{', ' ']).split(' ').collect();
        let module = words.iter().skip_while(|word| **word != "mod").nth(1);
        if module.is_none_or(|module| *module != "tests") {
            found.push(format!("{name}: {item}"));
        }
    }
    found
}

#[test]
fn what_only_tests_have_is_named_tests_or_lies_below_a_folder_tests() {
    let found: Vec<String> = files().iter().flat_map(|(name, text)| misnamed(name, text)).collect();
    assert!(found.is_empty(), "test code under production names:\n{}", found.join("\n"));
}

#[test]
fn test_code_under_another_name_is_found() {
    assert_eq!(misnamed("core/a.rs", "#[cfg(test)]\nmod model;\n"), ["core/a.rs: mod model;"]);
    let inline = "#[cfg(test)]\n#[path = \"x.rs\"]\npub(crate) mod model {\n}\n";
    assert_eq!(misnamed("core/a.rs", inline), ["core/a.rs: pub(crate) mod model {"]);
    let method = "impl A {\n    #[cfg(test)]\n    fn f() {}\n}\n";
    assert_eq!(misnamed("core/a.rs", method), ["core/a.rs: fn f() {}"]);
    assert_eq!(misnamed("core/a.rs", "#[cfg(test)]\npub(crate) mod tests;\n"), [""; 0]);
    assert_eq!(misnamed("core/a/tests.rs", "#[cfg(test)]\nmod model;\n"), [""; 0]);
}

/// Where the bracket at the beginning of `text` closes.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, character) in text.char_indices() {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The end of a tuple of two or more at the beginning of `text`.
fn tuple(text: &str) -> Option<usize> {
    let end = closing(text).filter(|_| text.starts_with('('))?;
    let mut depth = 0_usize;
    let has_comma = text[1..end].chars().any(|character| {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    });
    has_comma.then_some(end)
}

/// Whether `text` begins with a tuple that another tuple is given to, as a statement.
fn is_given_a_tuple(text: &str) -> bool {
    let Some(end) = tuple(text) else { return false };
    let Some(value) = text[end + 1..].trim_start().strip_prefix("= ") else { return false };
    let value = value.trim_start();
    let Some(end) = tuple(value) else { return false };
    value[end + 1..].trim_start().starts_with([';', '}', ','])
}

fn lets(code: &str) -> usize {
    code.match_indices("let (").filter(|(at, _)| is_given_a_tuple(&code[at + 4..])).count()
}

fn settings(code: &str) -> usize {
    let begins = |at: usize| {
        let before = code[..at].trim_end();
        before.ends_with([';', '{', '}']) || before.ends_with("=>")
    };
    code.match_indices('(').filter(|(at, _)| begins(*at) && is_given_a_tuple(&code[*at..])).count()
}

fn parameters(code: &str) -> usize {
    let mut count = 0;
    for (at, _) in code.match_indices("fn ") {
        let Some(open) = code[at..].find('(').map(|len| at + len) else { continue };
        let Some(end) = closing(&code[open..]).map(|len| open + len) else { continue };
        let inside = &code[open + 1..end];
        let patterns = inside.match_indices('(').filter(|(at, _)| {
            let before = inside[..*at].trim_end();
            let is_first = before.is_empty() || before.ends_with(',');
            let end = closing(&inside[*at..]).map_or(inside.len(), |len| at + len + 1);
            is_first && inside[end..].trim_start().starts_with(':')
        });
        count += patterns.count();
    }
    count
}

/// The code of a file without comments, up to its own tests.
pub(super) fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether a file is neither of tests nor an example.
pub(super) fn is_shipped(name: &str) -> bool {
    !is_of_tests(name) && !name.contains("/examples/")
}

/// Where the crate of a file begins: what stands before `src`.
pub(super) fn crate_of(name: &str) -> &str {
    match name.split_once("/src/") {
        Some((folder, _)) => folder,
        None => name.split('/').next().unwrap_or_default(),
    }
}

#[test]
fn no_golf_is_added() {
    let mut found: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for (name, text) in files().iter().filter(|(name, _)| is_shipped(name)) {
        let code = code(text);
        let sums = found.entry(crate_of(name).to_owned()).or_default();
        for (sum, (_, count)) in sums.iter_mut().zip(GOLF) {
            *sum += count(&code);
        }
    }
    let left: BTreeMap<&str, [usize; 3]> = LEFT.into_iter().collect();
    let mut wrong = Vec::new();
    for (name, sums) in &found {
        let left = left.get(name.as_str()).copied().unwrap_or_default();
        for ((kind, _), (sum, left)) in GOLF.iter().zip(sums.iter().zip(left)) {
            if *sum > left {
                wrong.push(format!("{name}: {kind}: {sum}, and {left} are left: write it out"));
            }
            if *sum + SLACK < left {
                wrong.push(format!("{name}: {kind}: {sum} of {left} are left: lower its number"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_kind_of_golf_is_counted_and_nothing_else() {
    assert_eq!(lets("let (a, b) = (x, y);\nlet (a, b) = pair();\nlet (a, b) = (x, y).swap();"), 1);
    assert_eq!(lets("let (a, b) = (\n    f(x, 1),\n    y,\n);\nlet (a, b) = (x + y) * z;"), 1);
    assert_eq!(settings("{ (self.a, self.b) = (1, 2); }\nlet x = (a, b) == (1, 2);"), 1);
    assert_eq!(settings("match a {\n    1 => (self.a, self.b) = (1, 2),\n}"), 1);
    assert_eq!(settings("let (a, b) = (x, y);\nf((a, b), (1, 2));"), 0);
    assert_eq!(parameters("fn f(&self, (a, b): (u8, u8), c: u8) {}\nfn g(pair: (u8, u8)) {}"), 1);
    assert_eq!(parameters("fn h() { xs.map(|(a, b): (u8, u8)| a + b) }"), 0);
}
