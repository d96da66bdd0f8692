//! The packet walk in ARCHITECTURE.md is a promise about the code: between the marks `walk: NAME`
//! and `walk end` every code span with a path (`crate::module::Type::function`) names a function
//! that exists, in that module, on that type. The walk is short on purpose; its length is a rule.
//!
//! So is the drawing of the crates there: each stands in it once, above all that it uses.

use std::path::{Path, PathBuf};

/// Functions that one direction may name; more means that a packet is handed around too much.
const STEPS_AT_MOST: usize = 12;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The walks of a document: name, and the paths in its code spans in order.
fn walks(document: &str) -> Vec<(String, Vec<String>)> {
    let mut walks: Vec<(String, Vec<String>)> = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        if let Some(name) = line.strip_prefix("<!-- walk: ").and_then(|l| l.strip_suffix(" -->")) {
            walks.push((name.to_owned(), Vec::new()));
            inside = true;
        } else if line == "<!-- walk end -->" {
            inside = false;
        } else if inside && let Some((_, paths)) = walks.last_mut() {
            let spans = line.split('`').skip(1).step_by(2);
            paths.extend(spans.filter(|span| span.contains("::")).map(str::to_owned));
        }
    }
    walks
}

/// The source folder of a crate by its library name.
fn source_of(name: &str) -> Option<PathBuf> {
    let wings = ["core", "core/packets", "core/network", "shell", "lab"];
    let folders = wings.map(|wing| root().join(wing).join(name).join("src"));
    folders.into_iter().find(|folder| folder.is_dir())
}

/// Every Rust file below `folder`.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// The files that may define what `modules` export: the module's own file and those below it.
fn files_of(source: &Path, modules: &[&str]) -> Vec<PathBuf> {
    let mut base = source.to_owned();
    base.extend(modules);
    let mut files = files_below(&base);
    if !modules.is_empty() {
        files.push(base.with_extension("rs"));
    }
    files
}

/// Whether a line of source opens function `name`.
fn opens(line: &str, name: &str) -> bool {
    let Some(at) = line.find("fn ") else { return false };
    let before = &line[..at];
    let after = &line[at + 3..];
    !before.contains("//")
        && (before.is_empty() || before.ends_with(' '))
        && after.strip_prefix(name).is_some_and(|rest| rest.starts_with(['(', '<']))
}

/// Whether the `impl` line of a block names `owner` as the type it is for.
fn is_impl_of(line: &str, owner: &str) -> bool {
    let Some(rest) = line.trim_start().strip_prefix("impl") else { return false };
    let subject = rest.rsplit(" for ").next().unwrap_or(rest);
    let word = |part: &str| part == owner;
    subject.split(|c: char| !c.is_alphanumeric() && c != '_').any(word)
}

/// Whether `text` defines function `name`, on type `owner` if there is one.
fn defines(text: &str, owner: Option<&str>, name: &str) -> bool {
    let Some(owner) = owner else {
        // A free function stands at the left margin.
        return text.lines().any(|line| !line.starts_with(' ') && opens(line, name));
    };
    let mut inside = false;
    for line in text.lines() {
        if !line.starts_with(' ') && !line.trim().is_empty() {
            // rustfmt puts the end of a block at the margin; what opens there decides anew.
            inside = is_impl_of(line, owner) || (inside && !line.starts_with('}'));
        }
        if inside && opens(line, name) {
            return true;
        }
    }
    false
}

/// Why `path` does not name a function of the project, if it does not.
fn missing(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split("::").collect();
    let [name, middle @ .., function] = parts.as_slice() else {
        return Some(format!("{path}: not a path to a function"));
    };
    let Some(source) = source_of(name) else {
        return Some(format!("{path}: no crate is called {name}"));
    };
    let is_type = |part: &&str| part.starts_with(char::is_uppercase);
    let (modules, owner) = match middle {
        [modules @ .., last] if is_type(last) => (modules, Some(*last)),
        modules => (modules, None),
    };
    let files = files_of(&source, modules);
    let texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    let found = texts.into_iter().any(|text| defines(&text, owner, function));
    (!found).then(|| format!("{path}: no such function in {}", modules.join("::")))
}

/// The lines of the drawing of the crates, without the one that names the wings.
fn drawing(document: &str) -> Vec<Vec<&str>> {
    let drawing = document.split("<!-- graph -->").nth(1).expect("a drawing");
    let drawing = drawing.split("<!-- graph end -->").next().unwrap_or_default();
    let lines = drawing.lines().filter(|line| !line.contains("```") && !line.trim().is_empty());
    lines.skip(1).map(|line| line.split_whitespace().collect()).collect()
}

/// Crates of this project and what each uses, by the names under which code knows them.
fn crates() -> Vec<(String, Vec<String>)> {
    let root_manifest =
        std::fs::read_to_string(root().join("Cargo.toml")).expect("a workspace has a manifest");
    let members = root_manifest.split("members = [").nth(1).expect("a list of members");
    let members = members.split(']').next().unwrap_or_default();
    let members = members.split('"').skip(1).step_by(2).map(|member| root().join(member));
    let crates = std::iter::once(root()).chain(members).map(|folder| {
        let text = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        named(&text)
    });
    let crates: Vec<_> = crates.collect();
    let ours: Vec<String> = crates.iter().map(|(name, _)| name.clone()).collect();
    let keep = |uses: Vec<String>| uses.into_iter().filter(|name| ours.contains(name)).collect();
    crates.into_iter().map(|(name, uses)| (name, keep(uses))).collect()
}

/// The name of a manifest's library, or else its program, or else its package; and what it uses.
fn named(manifest: &str) -> (String, Vec<String>) {
    let mut section = "";
    let mut names = [None; 3];
    let mut uses = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section == "[dependencies]" {
            let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
            uses.extend((end > 0).then(|| line[..end].to_owned()));
        } else if let Some(name) = line.strip_prefix("name = ") {
            let at = ["[lib]", "[[bin]]", "[package]"].iter().position(|known| *known == section);
            let Some(at) = at else { continue };
            names[at] = Some(name.trim_matches('"'));
        }
    }
    let name = names.into_iter().flatten().next().expect("a package has a name");
    (name.to_owned(), uses)
}

/// What is wrong with a drawing of these crates.
fn misdrawn(floors: &[Vec<&str>], crates: &[(String, Vec<String>)]) -> Vec<String> {
    let floor = |name: &str| floors.iter().position(|floor| floor.contains(&name));
    let mut wrong = Vec::new();
    for (name, uses) in crates {
        let Some(at) = floor(name) else {
            wrong.push(format!("{name} is not drawn"));
            continue;
        };
        let below = |used: &&String| floor(used).is_none_or(|floor| floor > at);
        let not_below = uses.iter().filter(|used| !below(used));
        wrong.extend(not_below.map(|used| format!("{name} uses {used}, which is not below it")));
    }
    let drawn: Vec<&str> = floors.iter().flatten().copied().collect();
    for (at, name) in drawn.iter().enumerate() {
        let is_known = crates.iter().any(|(known, _)| known == name);
        if !is_known || drawn[..at].contains(name) {
            wrong.push(format!("{name} is drawn, and is no crate or stands there twice"));
        }
    }
    wrong
}

#[test]
fn crates_are_drawn_once_and_above_all_that_they_use() {
    let document =
        std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let crates = crates();
    assert!(crates.len() > 20, "the crates were not found: {crates:?}");
    let wrong = misdrawn(&drawing(&document), &crates);
    assert!(wrong.is_empty(), "the drawing in ARCHITECTURE.md is wrong:\n{}", wrong.join("\n"));
}

#[test]
fn a_wrong_drawing_is_found() {
    let manifest = "[package]\nname = \"warren-noise\"\n[lib]\nname = \"noise\"\n\
        [dependencies]\nwire.workspace = true\nring = \"1\"\n[dev-dependencies]\nsim = \"1\"\n";
    let (name, uses) = named(manifest);
    assert_eq!((name.as_str(), &uses[..]), ("noise", &["wire".to_owned(), "ring".to_owned()][..]));
    let crates = [(name, vec!["wire".to_owned()]), ("wire".to_owned(), Vec::new())];
    let wrong = |text: &str| {
        let marked = format!("<!-- graph -->\n```\nwings\n{text}\n```\n<!-- graph end -->");
        misdrawn(&drawing(&marked), &crates).len()
    };
    assert_eq!(wrong(" noise\n\n wire"), 0);
    assert_eq!(wrong("noise wire"), 1, "side by side");
    assert_eq!(wrong("wire\nnoise"), 1, "the wrong way round");
    assert_eq!(wrong("noise"), 1, "one is missing");
    assert_eq!(wrong("noise\nwire sim"), 1, "one is not there");
}

#[test]
fn every_function_of_the_packet_walk_exists() {
    let document =
        std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let walks = walks(&document);
    let names: Vec<&str> = walks.iter().map(|(name, _)| name.as_str()).collect();
    let expected = ["out", "in", "out-frames", "in-frames"];
    assert_eq!(names, expected, "ARCHITECTURE.md marks all walks");
    let paths = walks.iter().flat_map(|(_, paths)| paths);
    let wrong: Vec<String> = paths.filter_map(|path| missing(path)).collect();
    assert!(wrong.is_empty(), "ARCHITECTURE.md walks past the code:\n{}", wrong.join("\n"));
}

#[test]
fn a_walk_is_short() {
    let document =
        std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    for (name, paths) in walks(&document) {
        assert!((4..=STEPS_AT_MOST).contains(&paths.len()), "{name}: {} steps", paths.len());
    }
}

#[test]
fn walks_are_read_from_between_the_marks() {
    let document = "`a::b::c`\n<!-- walk: out -->\n1. `wire::x::f` then `plain` and `noise::S::g`\n\
        <!-- walk end -->\n`a::b::c`\n";
    let expected = vec!["wire::x::f".to_owned(), "noise::S::g".to_owned()];
    assert_eq!(walks(document), [("out".to_owned(), expected)]);
}

#[test]
fn a_function_counts_only_where_it_is_said_to_be() {
    let text = "pub fn free(a: u8) {}\n// fn comment() {}\nimpl<'a> Read for Queue<'a> {\n    \
        pub(crate) fn read<T>(\n        &mut self,\n    ) {}\n}\n\
        impl Other {\n    fn write(&self) {}\n}\n";
    assert!(defines(text, None, "free"));
    assert!(defines(text, Some("Queue"), "read"));
    assert!(defines(text, Some("Other"), "write"));
    assert!(!defines(text, Some("Queue"), "write"));
    assert!(!defines(text, Some("Read"), "read"));
    assert!(!defines(text, None, "read"));
    assert!(!defines(text, None, "fre"));
    assert!(!defines(text, None, "comment"));
}

#[test]
fn a_path_into_nothing_is_missing() {
    assert!(missing("nowhere::read").is_some_and(|why| why.contains("no crate")));
    assert!(missing("wire::no_such_module::parse").is_some());
    assert!(missing("noise::Session::no_such_function").is_some());
}
