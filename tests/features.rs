//! docs/features.md is a page that is drawn from docs/features.toml: what the nine products of
//! source 002 have, what Warren has, and what shows it. A "yes" without a test that runs, a "no"
//! without a reason, or a page that is not the one that would be drawn fails here.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const WORDS_AT_MOST: usize = 35;
/// The source's products, each with the word at the head of its column.
#[rustfmt::skip]
const NINE: [(&str, &str); 9] = [
    ("Tailscale", "Ts"), ("ZeroTier", "ZT"), ("Nebula", "Ne"), ("Yggdrasil", "Yg"),
    ("EasyTier", "ET"), ("VpnCloud", "VC"), ("Tinc", "Ti"), ("Hyprspace", "Hy"), ("Mycelium", "My"),
];

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    feature: Vec<Feature>,
}

/// One row: what it is, how many of the source's nine products have it, and ours.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Feature {
    group: String,
    name: String,
    of_nine: Option<u8>,
    #[serde(default)]
    theirs: Vec<String>,
    warren: Answer,
    test: Option<String>,
    why: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Yes,
    Partly,
    No,
}

impl Answer {
    fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Partly => "partly",
            Self::No => "no",
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn features() -> Vec<Feature> {
    let text = std::fs::read_to_string(root().join("docs/features.toml")).expect("it is there");
    toml::from_str::<File>(&text).unwrap_or_else(|error| panic!("{error}")).feature
}

/// The names of all tests that run, in tracked files.
fn tests() -> BTreeSet<String> {
    let listed = Command::new("git").args(["ls-files", "*.rs"]).current_dir(root()).output();
    let listed = listed.expect("git runs").stdout;
    let mut names = BTreeSet::new();
    for path in String::from_utf8_lossy(&listed).lines() {
        let text = std::fs::read_to_string(root().join(path)).unwrap_or_default();
        names.extend(tests_of(&text));
    }
    names
}

fn tests_of(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line == "#[test]" {
            is_test = true;
        } else if line.starts_with("#[ignore") {
            is_test = false;
        } else if let Some(rest) = line.strip_prefix("fn ") {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            names.extend(is_test.then(|| name.to_owned()));
            is_test = false;
        }
    }
    names
}

/// What is wrong with a row, if anything is.
fn fault(feature: &Feature, tests: &BTreeSet<String>) -> Option<String> {
    let needs_test = feature.warren != Answer::No;
    let needs_why = feature.warren != Answer::Yes;
    let name = &feature.name;
    if feature.test.is_some() != needs_test || feature.why.is_some() != needs_why {
        return Some(format!("{name}: a yes has a test, a no has a why, a partly has both"));
    }
    if let Some(test) = &feature.test
        && !tests.contains(test)
    {
        return Some(format!("{name}: no test is called {test}"));
    }
    let long = |text: &String| text.split_whitespace().count() > WORDS_AT_MOST;
    if feature.why.as_ref().is_some_and(long) {
        return Some(format!("{name}: its why has more than {WORDS_AT_MOST} words"));
    }
    let stranger = feature.theirs.iter().find(|one| !NINE.iter().any(|(known, _)| known == *one));
    if let Some(stranger) = stranger {
        return Some(format!("{name}: {stranger} is none of the nine"));
    }
    let ticks: BTreeSet<&String> = feature.theirs.iter().collect();
    let is_counted = usize::from(feature.of_nine.unwrap_or(0)) == ticks.len();
    (!is_counted).then(|| {
        format!("{name}: {} of nine, and {} are named", feature.of_nine.unwrap_or(0), ticks.len())
    })
}

fn page(features: &[Feature]) -> String {
    let count = |answer| features.iter().filter(|row| row.warren == answer).count();
    let theirs = features.iter().filter(|row| row.of_nine.is_some()).count();
    let words: Vec<String> = NINE.iter().map(|(name, word)| format!("{name} ({word})")).collect();
    let mut text = format!(
        "# Features\n\n\
         This page is drawn from [features.toml](features.toml). {theirs} rows are those of the \
         matrix of [source 002](sources.md), with its ticks; the others are ours. Its text speaks \
         of 131 features, and its file has these.\n\
         Its nine products are {}. Nothing of it was checked here.\n\
         A *yes* and a *partly* name the test that shows it. A *partly* and a *no* say why. \
         Our own rows have our column alone.\n\n\
         Warren has {} of {} rows, {} in part, and {} not.\n",
        words.join(", "),
        count(Answer::Yes),
        features.len(),
        count(Answer::Partly),
        count(Answer::No),
    );
    let mut group = "";
    for row in features {
        if row.group != group {
            group = &row.group;
            let heads: Vec<&str> = NINE.iter().map(|(_, word)| *word).collect();
            let _ = write!(
                text,
                "\n## {group}\n\n| feature | {} | Warren | shown by, or why not |\n\
                 |---|{}---|---|\n",
                heads.join(" | "),
                ":-:|".repeat(NINE.len())
            );
        }
        let tick = |name: &str| match (row.of_nine, row.theirs.iter().any(|one| one == name)) {
            (None, _) => " ",
            (_, true) => "✓",
            (_, false) => "–",
        };
        let ticks: Vec<&str> = NINE.iter().map(|(name, _)| tick(name)).collect();
        let test = row.test.as_ref().map(|test| format!("`{test}`"));
        let said: Vec<String> = row.why.iter().cloned().chain(test).collect();
        let warren = row.warren.word();
        let ticks = ticks.join(" | ");
        let _ = writeln!(text, "| {} | {ticks} | {warren} | {} |", row.name, said.join(" "));
    }
    text
}

#[test]
fn source_002_16_every_row_of_the_matrix_has_its_test_or_its_reason() {
    let features = features();
    let tests = tests();
    let faults: Vec<String> = features.iter().filter_map(|row| fault(row, &tests)).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    let of_the_source = features.iter().filter(|row| row.of_nine.is_some()).count();
    assert_eq!(of_the_source, 107, "the source's matrix has 107 rows");
    let names: BTreeSet<(&str, &str)> =
        features.iter().map(|row| (row.group.as_str(), row.name.as_str())).collect();
    assert_eq!(names.len(), features.len(), "a row stands twice");
}

#[test]
fn the_page_of_features_is_the_one_that_is_drawn() {
    let path = root().join(Path::new("docs/features.md"));
    let drawn = page(&features());
    if std::env::var_os("WARREN_WRITE").is_some() {
        std::fs::write(&path, &drawn).expect("the page is writable");
    }
    let stands = std::fs::read_to_string(&path).expect("the page is there");
    assert!(stands == drawn, "run: WARREN_WRITE=1 cargo test --test features");
}

#[test]
fn a_row_that_claims_too_much_is_found() {
    let row = |warren, test: Option<&str>, why: Option<&str>| Feature {
        group: "G".to_owned(),
        name: "N".to_owned(),
        of_nine: Some(1),
        theirs: vec!["Tinc".to_owned()],
        warren,
        test: test.map(str::to_owned),
        why: why.map(str::to_owned),
    };
    let tests = BTreeSet::from(["shown".to_owned()]);
    assert_eq!(fault(&row(Answer::Yes, Some("shown"), None), &tests), None);
    assert_eq!(fault(&row(Answer::No, None, Some("It has none.")), &tests), None);
    assert!(fault(&row(Answer::Yes, None, None), &tests).is_some());
    assert!(fault(&row(Answer::Yes, Some("hoped"), None), &tests).is_some());
    assert!(fault(&row(Answer::No, None, None), &tests).is_some());
    assert!(fault(&row(Answer::Partly, Some("shown"), None), &tests).is_some());
    let mut other = row(Answer::Yes, Some("shown"), None);
    other.theirs.push("Nebula".to_owned());
    assert!(fault(&other, &tests).is_some_and(|why| why.contains("2 are named")));
    other.theirs = vec!["Nobody".to_owned()];
    assert!(fault(&other, &tests).is_some_and(|why| why.contains("none of the nine")));
}
