//! The rules of form that no compiler checks: sizes, names, essays, where `unsafe` may stand, and
//! that cited threats exist. Every rule is a function from one file to findings; the tree must have
//! none that `ALLOW` does not excuse, and every excuse must still be needed. The rules are tested
//! in `tidy/tests.rs` on small sources that break them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "tidy/form.rs"]
mod form;
#[path = "tidy/tests.rs"]
mod tests;
#[path = "tidy/tuned.rs"]
mod tuned;

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 80;
const COLUMNS: usize = 100;
const ESSAY_LINES: std::ops::RangeInclusive<usize> = 20..=80;

/// Rule, file, reason. May only shrink; the length is part of the type so that growth shows.
const ALLOW: [(&str, &str, &str); 0] = [];

/// Words that say nothing or four things, banned in identifiers and file names.
const VAGUE: &[&str] = &["tunnel", "manager", "util", "common", "helper"];

/// Names of other projects that we have to write.
const FOREIGN: &[&str] = &["WriteToTunnelV4", "WriteToTunnelV6", "http_body_util", "hyper_util"];

/// Folders, relative to the root, whose code may be unsafe: the shell, and what tests ask of the
/// kernel directly (packet sockets, floods, the device of the other implementation).
const UNSAFE_IN: &[&str] = &["shell/host/", "lab/lab/", "tests/support/", "tests/interop/"];

/// What ties a file to one machine; in two halves, because this file is checked as well.
const PLACES: &[(&str, &str)] =
    &[("/wo", "rk/"), ("/tmp/tar", "get"), ("/ro", "ot/"), ("/ho", "me/"), ("/Us", "ers/")];

/// Marks of unfinished work; in two halves, because this file is checked as well.
const UNFINISHED: &[(&str, &str)] = &[("TO", "DO"), ("FIX", "ME"), ("XX", "X")];

/// One file of the project.
struct Source {
    path: String,
    text: String,
}

/// One broken rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    rule: &'static str,
    path: String,
    line: usize,
    what: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn finding(&self, rule: &'static str, line: usize, what: impl Into<String>) -> Finding {
        Finding { rule, path: self.path.clone(), line, what: what.into() }
    }

    /// Lines with their numbers from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// Rust source with comments and the contents of strings blanked, line structure kept.
fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = skip(bytes, at);
        if end == at {
            out.push(if bytes[at].is_ascii() { bytes[at] as char } else { '_' });
            at += 1;
        } else {
            out.extend(bytes[at..end].iter().map(|byte| if *byte == b'\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    out
}

/// Where the comment, string or character literal that starts at `at` ends; `at` if none does.
fn skip(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let until = |end: &[u8], from: usize| {
        let found = rest[from..].windows(end.len()).position(|window| window == end);
        at + found.map_or(rest.len(), |found| from + found + end.len())
    };
    let in_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if rest.starts_with(b"//") {
        return until(b"\n", 2) - usize::from(rest.contains(&b'\n'));
    }
    if rest.starts_with(b"/*") {
        return until(b"*/", 2);
    }
    let raw = rest.iter().skip(1).take_while(|byte| **byte == b'#').count();
    if rest[0] == b'r' && !in_word && rest.get(1 + raw) == Some(&b'"') {
        return until(&[b"\"".as_slice(), &b"#".repeat(raw)].concat(), raw + 2);
    }
    match rest {
        [b'"', ..] => {
            let mut end = 1;
            while end < rest.len() && rest[end] != b'"' {
                end += if rest[end] == b'\\' { 2 } else { 1 };
            }
            at + (end + 1).min(rest.len())
        }
        [b'\'', b'\\', _, ..] => until(b"'", 3),
        [b'\'', _, b'\'', ..] => at + 3,
        _ => at,
    }
}

fn words_of(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Whether `name` in snake or camel case contains `word` or its plural.
fn contains_word(name: &str, word: &str) -> bool {
    let mut parts = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c == '-' || c == '/' || c == '.' {
            parts.push(String::new());
            continue;
        }
        let last = parts.last_mut().expect("there is always one");
        if c.is_ascii_uppercase() && last.ends_with(|l: char| l.is_ascii_lowercase()) {
            parts.push(c.to_ascii_lowercase().to_string());
        } else {
            last.push(c.to_ascii_lowercase());
        }
    }
    parts.iter().any(|part| part == word || part.strip_suffix('s') == Some(word))
}

fn sizes(source: &Source) -> Vec<Finding> {
    if !source.is_rust() {
        return Vec::new();
    }
    let count = source.text.lines().count();
    let too_long = (count > FILE_LINES).then(|| {
        source.finding("file-lines", count, format!("{count} lines, at most {FILE_LINES}"))
    });
    let wide = source.lines().filter_map(|(number, line)| {
        let columns = line.chars().count();
        (columns > COLUMNS).then(|| source.finding("columns", number, format!("{columns} columns")))
    });
    too_long.into_iter().chain(wide).collect()
}

/// The name of the function that a line of rustfmt's style opens, if it opens one.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    for qualifier in
        ["pub(crate) ", "pub(super) ", "pub ", "default ", "const ", "async ", "unsafe "]
    {
        rest = rest.strip_prefix(qualifier).unwrap_or(rest);
    }
    rest = rest.strip_prefix("extern \"C\" ").unwrap_or(rest);
    words_of(rest.strip_prefix("fn ")?).next()
}

/// The tests of a file that every run of tests runs: those that are ignored prove nothing.
fn test_names(text: &str) -> Vec<&str> {
    let (mut names, mut is_test) = (Vec::new(), false);
    for line in text.lines() {
        match line.trim() {
            "#[test]" => is_test = true,
            attribute if attribute.starts_with("#[ignore") => is_test = false,
            _ => {
                let name = function_name(line);
                names.extend(name.filter(|_| is_test));
                is_test &= name.is_none();
            }
        }
    }
    names
}

/// A function ends at the first line of its own indentation that closes it.
fn functions(source: &Source) -> Vec<Finding> {
    if !source.is_rust() {
        return Vec::new();
    }
    let code = code_only(&source.text);
    let lines: Vec<&str> = code.lines().collect();
    let originals: Vec<&str> = source.text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut findings = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(originals[start]).filter(|_| line.contains("fn ")) else {
            continue;
        };
        if name.starts_with("get_") {
            findings.push(source.finding("get-prefix", start + 1, name));
        }
        let closes = |line: &&str| line.trim_end().ends_with(['}', ';']);
        let length = if closes(line) {
            1
        } else {
            let end = lines[start + 1..].iter().position(|later| {
                indent(later) == indent(line) && !later.trim().is_empty() && closes(later)
            });
            end.map_or(lines.len() - start, |end| end + 2)
        };
        if length > FUNCTION_LINES {
            findings.push(source.finding(
                "function-lines",
                start + 1,
                format!("{name}: {length} lines"),
            ));
        }
    }
    findings
}

fn names(source: &Source) -> Vec<Finding> {
    if !source.is_rust() {
        return Vec::new();
    }
    let vague =
        |name: &str| !FOREIGN.contains(&name) && VAGUE.iter().any(|word| contains_word(name, word));
    let mut findings = Vec::new();
    if vague(&source.path) {
        findings.push(source.finding("vague-name", 1, "the file's name"));
    }
    for (index, line) in code_only(&source.text).lines().enumerate() {
        for name in words_of(line).filter(|name| vague(name)) {
            findings.push(source.finding("vague-name", index + 1, name));
        }
    }
    findings
}

fn essays(source: &Source) -> Vec<Finding> {
    if !source.is_rust() {
        return Vec::new();
    }
    let essay = source.text.lines().take_while(|line| line.starts_with("//!")).count();
    let crate_root = source.path.ends_with("src/lib.rs");
    if essay == 0 {
        return vec![source.finding("essay", 1, "a file opens with a line of //!")];
    }
    if crate_root && !ESSAY_LINES.contains(&essay) {
        let what = format!("{essay} lines of //!, a crate opens with {ESSAY_LINES:?}");
        return vec![source.finding("essay", 1, what)];
    }
    Vec::new()
}

fn unsafe_code(source: &Source) -> Vec<Finding> {
    if !source.is_rust() || UNSAFE_IN.iter().any(|folder| source.path.starts_with(folder)) {
        return Vec::new();
    }
    let code = code_only(&source.text);
    let lines = code.lines().enumerate();
    let found = lines.filter(|(_, line)| words_of(line).any(|word| word == "unsafe"));
    found.map(|(index, line)| source.finding("unsafe", index + 1, line.trim())).collect()
}

/// Holds for every text in the project, documents included.
fn places(source: &Source) -> Vec<Finding> {
    let found = |line: &str| {
        PLACES.iter().map(|(a, b)| [*a, *b].concat()).find(|place| {
            // Part of a longer path or address is another place.
            let before = |at: usize| line[..at].chars().next_back();
            let stands_alone =
                |c: char| !c.is_alphanumeric() && !matches!(c, '.' | '-' | '_' | '}');
            line.match_indices(place).any(|(at, _)| before(at).is_none_or(stands_alone))
        })
    };
    source
        .lines()
        .filter_map(|(number, line)| Some(source.finding("place", number, found(line)?)))
        .collect()
}

fn unfinished(source: &Source) -> Vec<Finding> {
    if source.path.ends_with(".md") || source.path.ends_with(".lock") {
        return Vec::new();
    }
    let found = |line: &str| {
        let marks = UNFINISHED.iter().map(|(a, b)| [*a, *b].concat());
        marks.into_iter().find(|mark| words_of(line).any(|word| word == mark))
    };
    source
        .lines()
        .filter_map(|(number, line)| Some(source.finding("unfinished", number, found(line)?)))
        .collect()
}

/// Threat IDs in a text: two capitals, a hyphen, two digits, standing alone.
fn threat_ids(text: &str) -> impl Iterator<Item = &str> {
    let whole = |c: char| !c.is_ascii_alphanumeric() && c != '-';
    text.split(whole).filter(|word| {
        let bytes = word.as_bytes();
        bytes.len() == 5
            && bytes[2] == b'-'
            && bytes[..2].iter().all(u8::is_ascii_uppercase)
            && bytes[3..].iter().all(u8::is_ascii_digit)
    })
}

/// Threat IDs cited by a line: as themselves, or as the head of a name like `dp_01_flood`.
fn cited_ids(line: &str) -> impl Iterator<Item = String> {
    let heads = words_of(line).filter_map(|word| Some((word.get(..6)?, word.get(6..)?)));
    let heads = heads.filter(|(head, rest)| head.ends_with('_') && !rest.is_empty());
    let heads = heads.map(|(head, _)| head[..5].to_ascii_uppercase().replace('_', "-"));
    let heads = heads.filter(|head| threat_ids(head).next().is_some());
    threat_ids(line).map(str::to_owned).chain(heads)
}

/// One row of docs/threats.md: the IDs of its first cell, and the tests that prove it.
struct Row<'a> {
    ids: Vec<String>,
    proofs: Vec<&'a str>,
    proved: bool,
}

fn threat_rows(document: &str) -> Vec<Row<'_>> {
    let rows = document.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.split(" | ").collect();
        let ids: Vec<&str> = threat_ids(cells[0]).collect();
        let range = cells[0].split(", ").filter_map(|part| part.split_once(" to "));
        let between = range.flat_map(|(first, last)| {
            let number = |id: &str| id.get(3..).and_then(|digits| digits.parse::<u8>().ok());
            let (first_number, last_number) =
                (number(first).unwrap_or(1), number(last).unwrap_or(0));
            (first_number..=last_number).map(move |n| format!("{}{n:02}", &first[..3]))
        });
        let proofs = cells.get(3)?.split('`').skip(1).step_by(2).collect();
        let proved = cells.last()?.trim_end_matches([' ', '|']) == "proved";
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).chain(between).collect();
        (!ids.is_empty()).then_some(Row { ids, proofs, proved })
    });
    rows.collect()
}

/// Cited threats exist, and what docs/threats.md names as proof are tests that run.
fn threats(sources: &[Source]) -> Vec<Finding> {
    let path = "docs/threats.md";
    let Some(document) = sources.iter().find(|source| source.path == path) else {
        return vec![Source::new(path, "").finding("threat", 1, "the document is missing")];
    };
    let rows = threat_rows(&document.text);
    let known: BTreeSet<&str> = rows.iter().flat_map(|row| &row.ids).map(String::as_str).collect();
    let parts: BTreeSet<&str> = known.iter().map(|id| &id[..2]).collect();
    let rust =
        sources.iter().filter(|source| source.is_rust() && !source.path.starts_with("tests/tidy"));
    let mut findings = Vec::new();
    for source in rust {
        for (number, line) in source.lines() {
            let unknown = |id: &String| parts.contains(&id[..2]) && !known.contains(id.as_str());
            let cited = cited_ids(line).filter(unknown);
            findings.extend(
                cited.map(|id| source.finding("threat", number, format!("{id} is unknown"))),
            );
        }
    }
    let tests = all_tests(sources);
    for row in rows {
        let id = &row.ids[0];
        if row.proved && row.proofs.is_empty() {
            findings.push(document.finding("threat", 1, format!("{id}: proved by no test")));
        }
        for proof in row.proofs {
            let test = proof.rsplit("::").next().unwrap_or(proof);
            if !tests.contains(test) {
                let what = format!("{id}: no test is called {proof}");
                findings.push(document.finding("threat", 1, what));
            }
        }
    }
    findings
}

/// The names of all tests that run.
fn all_tests(sources: &[Source]) -> BTreeSet<&str> {
    sources.iter().filter(|s| s.is_rust()).flat_map(|s| test_names(&s.text)).collect()
}

/// What docs/sources.md names as proof runs.
fn statements(sources: &[Source]) -> Vec<Finding> {
    let tests = all_tests(sources);
    let document = sources.iter().filter(|source| source.path == "docs/sources.md");
    let lines = document.flat_map(|source| source.lines().map(move |line| (source, line)));
    let proofs = lines.filter_map(|(source, (number, line))| {
        let names = line.strip_prefix("| 00")?.split(" | ").nth(2)?.split('`').skip(1).step_by(2);
        let unknown = names.into_iter().find(|name| !tests.contains(name))?;
        Some(source.finding("statement", number, format!("no test is called {unknown}")))
    });
    proofs.collect()
}

const RULES: &[fn(&Source) -> Vec<Finding>] =
    &[sizes, functions, names, essays, unsafe_code, places, unfinished];

/// Every finding that no excuse covers, and every excuse that covers none.
fn check(sources: &[Source], allow: &[(&str, &str, &str)]) -> Vec<String> {
    let mut findings: Vec<Finding> = threats(sources);
    findings.extend(statements(sources));
    findings.extend(sources.iter().flat_map(|source| RULES.iter().flat_map(|rule| rule(source))));
    let covers = |entry: &(&str, &str, &str), finding: &Finding| {
        entry.0 == finding.rule && entry.1 == finding.path
    };
    let stale = allow.iter().filter(|entry| !findings.iter().any(|finding| covers(entry, finding)));
    let stale: Vec<String> =
        stale.map(|(rule, path, _)| format!("ALLOW: {rule} for {path} is not needed")).collect();
    let open = findings.iter().filter(|finding| !allow.iter().any(|entry| covers(entry, finding)));
    let open = open.map(|f| format!("{}:{}: {}: {}", f.path, f.line, f.rule, f.what));
    open.chain(stale).collect()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Tracked files and new ones that are not ignored; a walk where there is no checkout.
fn paths() -> Vec<String> {
    let git = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output();
    if let Ok(output) = git
        && output.status.success()
    {
        return String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    }
    let mut found = Vec::new();
    walk(&root(), &mut found);
    found
}

fn walk(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("the project is readable") {
        let path = entry.expect("the project is readable").path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "target" && name != ".git" {
            walk(&path, found);
        } else if let Ok(relative) = path.strip_prefix(root())
            && path.is_file()
        {
            found.push(relative.to_string_lossy().into_owned());
        }
    }
}

fn sources() -> Vec<Source> {
    let text = |path: &String| std::fs::read_to_string(root().join(path)).ok();
    paths().iter().filter_map(|path| Some(Source::new(path, &text(path)?))).collect()
}

#[test]
fn the_tree_is_tidy() {
    let sources = sources();
    assert!(sources.iter().any(|source| source.path == "tests/tidy.rs"), "the tree was not read");
    let broken = check(&sources, &ALLOW);
    assert!(broken.is_empty(), "{} findings:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn every_excuse_has_its_reason() {
    for (rule, path, reason) in ALLOW {
        assert!(reason.len() > 20, "{rule} for {path}: {reason:?} is no reason");
    }
}

#[test]
fn a_walk_finds_what_git_lists() {
    let mut found = Vec::new();
    walk(&root(), &mut found);
    assert!(found.contains(&"tests/tidy.rs".to_owned()));
    assert!(!found.iter().any(|path| path.starts_with("target/") || path.starts_with(".git/")));
}
