//! The words of the core stand in the glossary: of all words in its identifiers, the forty most
//! frequent that are not everyday words or Rust's own. A change that brings a new word explains
//! it there, or takes one that is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How many words have to be explained.
const WORDS: usize = 40;
/// Shorter parts of identifiers say nothing by themselves.
const LETTERS_MIN: usize = 3;

/// Rust's words, names of the library, and words that a reader knows from elsewhere.
const PLAIN: &str = "\
    add addr address all and any asked assert bad before bit bool byte checksum clone collect \
    const copy core count counter crate data debug default derive drop due duration else empty \
    end entry enum err error extend false field first fixed flag fmt for format from full get \
    gso halve handle hash header icmp impl index instant into ipv iter kind last len length let \
    list lost malformed map match max message min mod must mut name new next noise none now \
    number open opened option other out own packet pair part partial place plain poll port \
    protocol pub public push query queue random range read ref rest result return room secret seen \
    self send sent server set share since size slice slot some source span start static std step \
    str string struct sum super table take tcp test text then time timeout total true type udp \
    unwrap url use usize value vec what while why with word write";

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_test = name == "tests" || name == "tests.rs" || name == "examples";
        match path.is_dir() {
            _ if is_test => {}
            true if name == "sim" => {}
            true => sources(&path, found),
            false if name.ends_with(".rs") => found.push(path),
            false => {}
        }
    }
}

/// Code up to its tests, without comments and texts.
fn code(source: &str) -> String {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let mut bare = String::new();
    for line in lines {
        for (i, part) in line.split('"').enumerate() {
            bare += if i % 2 == 0 { part } else { " " };
        }
        bare.push('\n');
    }
    bare
}

/// The words of all identifiers, in small letters and without the plural's s.
fn words(code: &str) -> impl Iterator<Item = String> {
    let identifiers = code.split(|c: char| !c.is_ascii_alphabetic());
    identifiers.flat_map(parts).filter(|word| word.len() >= LETTERS_MIN).map(|word| {
        match word.strip_suffix('s') {
            Some(one) if !one.ends_with('s') => one.to_owned(),
            _ => word,
        }
    })
}

/// `PathMtu` is `path` and `mtu`.
fn parts(name: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut was_small = false;
    for c in name.chars() {
        match all.last_mut().filter(|_| !(was_small && c.is_ascii_uppercase())) {
            Some(word) => word.push(c.to_ascii_lowercase()),
            None => all.push(c.to_ascii_lowercase().to_string()),
        }
        was_small = c.is_ascii_lowercase();
    }
    all
}

/// The most frequent words first.
fn ranked(all: impl Iterator<Item = String>) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for word in all {
        *counts.entry(word).or_default() += 1;
    }
    let mut ranked: Vec<(String, usize)> = counts.into_iter().collect();
    ranked.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    ranked
}

/// Every word of the left column of the glossary's table.
fn explained(glossary: &str) -> BTreeSet<String> {
    let rows = glossary.lines().filter_map(|line| line.strip_prefix('|'));
    let names = rows.filter_map(|row| row.split('|').next());
    names.flat_map(|name| words(&name.to_lowercase()).collect::<Vec<_>>()).collect()
}

#[test]
fn the_commonest_words_of_the_core_stand_in_the_glossary() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("core"), &mut files);
    assert!(files.len() > 100, "{} files", files.len());
    let read = |path: &PathBuf| std::fs::read_to_string(path).expect("a source");
    let all = files.iter().flat_map(|path| words(&code(&read(path))).collect::<Vec<_>>());
    let mut domain = ranked(all);
    let plain: BTreeSet<&str> = PLAIN.split_whitespace().collect();
    domain.retain(|(word, _)| !plain.contains(word.as_str()));
    let known = explained(&read(&root.join("docs/glossary.md")));
    let missing: Vec<_> =
        domain.iter().take(WORDS).filter(|(word, _)| !known.contains(word)).collect();
    assert!(
        missing.is_empty(),
        "explain these in docs/glossary.md, or use a word that stands there: {missing:?}"
    );
}

#[test]
fn identifiers_fall_into_words_and_comments_do_not_count() {
    let source =
        "let path_mtus = PathMtu::of(2); // chunks \nsay(\"lanes\");\n#[cfg(test)]\nmod x;";
    let found: Vec<String> = words(&code(source)).collect();
    assert_eq!(found, ["let", "path", "mtu", "path", "mtu", "say"]);
    let ranked = ranked(found.into_iter());
    assert_eq!(ranked[..2], [("mtu".to_owned(), 2), ("path".to_owned(), 2)]);
    let known = explained("| word | meaning |\n| inner, outer | in *chunks* |\n");
    assert!(known.contains("outer") && !known.contains("chunk"), "{known:?}");
}
