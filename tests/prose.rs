//! What people read: how long the README may be, how long a sentence, and that the figures which
//! are quoted stand in the report that they name. A sentence of more than `WORDS` words, or with
//! more than `NUMBERS` numbers, is two sentences or a table. The rules are tested below on small
//! texts that break them.

use std::path::{Path, PathBuf};

/// Most words of a sentence.
const WORDS: usize = 35;
/// Most numbers of a sentence.
const NUMBERS: usize = 5;
/// The README: lines, words and numbers, without what stands in code.
const README: [usize; 3] = [110, 900, 25];
/// Words of `docs/repair.md`.
const REPAIR_WORDS: usize = 2_500;
/// Bytes of everything in `docs/measurements`.
const MEASUREMENTS_BYTES: u64 = 300 << 10;
/// Pages beside those in `docs`.
const PAGES: [&str; 6] = [
    "README.md",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "core/README.md",
];
/// Decisions: how many, and lines of each.
const DECISIONS: [usize; 2] = [60, 8];
/// A page whose tables are exempt: a row is a threat, its defence and its proofs in one.
const ROWS: &str = "docs/threats.md";
/// What is never said, in small letters, but where it is shown how not to write.
const NEVER: [&str; 12] = [
    "what is no ",
    "not to be had",
    "whoever doubts",
    "which proves little",
    "administrate",
    " anew",
    "for ever",
    "meanwhile",
    "stands beside",
    "stand beside",
    " any more",
    "at last it ",
];
const SHOWN_IN: &str = "docs/style.md";
/// Words that end in a dot and end no sentence.
const SHORT: [&str; 5] = ["e.g.", "i.e.", "cf.", "etc.", "vs."];

/// A sentence, and the line that its paragraph begins on.
#[derive(Debug, PartialEq, Eq)]
struct Sentence {
    line: usize,
    text: String,
}

impl Sentence {
    fn words(&self) -> usize {
        words(&self.text).count()
    }

    fn numbers(&self) -> usize {
        words(&self.text).filter(|word| is_number(word)).count()
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace().filter(|word| word.contains(|c: char| c.is_alphanumeric()))
}

fn is_number(word: &str) -> bool {
    word.trim_start_matches(|c: char| !c.is_alphanumeric())
        .starts_with(|c: char| c.is_ascii_digit())
}

/// The paragraphs, headings, items and cells of a page, without its code.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    let mut is_fenced = false;
    for (i, line) in page.lines().enumerate() {
        let text = line.trim();
        if text.starts_with("```") {
            is_fenced = !is_fenced;
            open = false;
            continue;
        }
        let is_code = is_fenced || (!open && line.starts_with("    "));
        if is_code || text.is_empty() || text.starts_with("<!--") {
            open = false;
            continue;
        }
        if text.starts_with('|') {
            let cells = text.trim_matches('|').split('|').map(str::trim);
            all.extend(cells.map(|cell| (i + 1, cell.to_owned())));
            open = false;
            continue;
        }
        if let Some(heading) = text.strip_prefix('#') {
            all.push((i + 1, heading.trim_start_matches('#').trim().to_owned()));
            open = false;
            continue;
        }
        let item = item(text);
        let text = item.unwrap_or(text).trim_start_matches('>').trim();
        match all.last_mut().filter(|_| open && item.is_none()) {
            Some((_, block)) => *block = format!("{block} {text}"),
            None => all.push((i + 1, text.to_owned())),
        }
        open = true;
    }
    all
}

/// The text of a list's item.
fn item(text: &str) -> Option<&str> {
    let bullet = ["- ", "* ", "+ "].iter().find_map(|mark| text.strip_prefix(mark));
    bullet.or_else(|| {
        let (number, rest) = text.split_once(". ")?;
        (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(rest)
    })
}

/// A block as it is read: code is one word, a link is its text.
fn plain(block: &str) -> String {
    let mut text = String::new();
    for (i, part) in block.split('`').enumerate() {
        text += if i % 2 == 0 { part } else { "code" };
    }
    let mut read = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        read += before;
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    (read + rest).replace(['[', '*', '_'], "")
}

fn sentences(page: &str) -> Vec<Sentence> {
    let mut all = Vec::new();
    for (line, block) in blocks(page) {
        let mut text = String::new();
        let mut end = |text: &mut String| {
            all.extend((!text.is_empty()).then(|| Sentence { line, text: std::mem::take(text) }));
        };
        for word in plain(&block).split_whitespace() {
            text += if text.is_empty() { "" } else { " " };
            text += word;
            let bare = word.trim_matches(['(', ')', '"', '”', '»']);
            if word == "·" || (bare.ends_with(['.', '!', '?']) && !SHORT.contains(&bare)) {
                end(&mut text);
            }
        }
        end(&mut text);
    }
    all
}

/// The sentences of a page that are too long.
fn too_long(page: &str) -> Vec<String> {
    let found = sentences(page).into_iter().filter_map(|sentence| {
        let [words, numbers] = [sentence.words(), sentence.numbers()];
        (words > WORDS || numbers > NUMBERS).then(|| {
            let start: String = sentence.text.chars().take(60).collect();
            format!("{}: {words} words, {numbers} numbers: {start}…", sentence.line)
        })
    });
    found.collect()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Files of a folder whose names end so, by their paths from the root.
fn files(folder: &str, ending: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(folder)).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut paths: Vec<String> = names
        .map(|name| format!("{folder}/{}", name.to_string_lossy()))
        .filter(|path| path.ends_with(ending))
        .collect();
    paths.sort();
    paths
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let sizes = entries.map(|entry| {
        let entry = entry.expect("an entry");
        match entry.metadata().expect("it is there") {
            meta if meta.is_dir() => bytes_below(&entry.path()),
            meta => meta.len(),
        }
    });
    sizes.sum()
}

#[test]
fn a_readme_is_read_in_a_minute() {
    let page = read("README.md");
    let text = blocks(&page).into_iter().map(|(_, block)| plain(&block) + "\n").collect::<String>();
    let said = words(&text).count();
    let found = [page.lines().count(), said, words(&text).filter(|word| is_number(word)).count()];
    let fits = found.iter().zip(README).all(|(found, most)| *found <= most);
    assert!(fits, "lines, words, numbers: {found:?}, at most {README:?}");
}

#[test]
fn sentences_are_short_and_have_few_numbers() {
    let docs = files("docs", ".md");
    let mut wrong = Vec::new();
    for path in PAGES.iter().map(|page| (*page).to_owned()).chain(docs) {
        let mut page = read(&path);
        if path == ROWS {
            page =
                page.lines().filter(|line| !line.starts_with('|')).collect::<Vec<_>>().join("\n");
        }
        wrong.extend(too_long(&page).into_iter().map(|what| format!("{path}:{what}")));
    }
    assert!(
        wrong.is_empty(),
        "{} sentences are more than {WORDS} words or {NUMBERS} numbers: make two, or a list or \
         table, of each\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn what_is_never_said_is_not_said() {
    let mut pages: Vec<String> = PAGES.iter().map(|page| (*page).to_owned()).collect();
    pages.extend(files("docs", ".md"));
    pages.retain(|path| path != SHOWN_IN);
    for path in pages {
        let page = read(&path).to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
        // As words of their own, and not in the name of a test.
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let is_apart = |(at, said): (usize, &str)| {
            let end = at + said.len();
            !page[..at].ends_with('_') && (said.ends_with(' ') || !page[end..].starts_with(is_part))
        };
        let is_said = |words: &&&str| page.match_indices(**words).any(is_apart);
        let said = NEVER.iter().find(is_said);
        assert!(said.is_none(), "{path} says {said:?}: see {SHOWN_IN}");
    }
}

#[test]
fn how_repair_decides_is_told_in_a_few_pages() {
    let count = words(&read("docs/repair.md")).count();
    assert!(count <= REPAIR_WORDS, "docs/repair.md has {count} words, at most {REPAIR_WORDS}");
}

/// What was tried and measured stands in the notebook.
#[test]
fn decisions_are_few_and_short() {
    let page = read("docs/decisions.md");
    let is_entry = |line: &str| line.starts_with("### ") || line.starts_with("## 20");
    let mut count = 0;
    let mut lines = 0;
    let [most, longest] = DECISIONS;
    for (i, line) in page.lines().enumerate() {
        match is_entry(line) {
            true => {
                count += 1;
                lines = 0;
            }
            false => lines += usize::from(!line.is_empty() && !line.starts_with("## ")),
        }
        assert!(
            count == 0 || lines <= longest,
            "docs/decisions.md:{}: above {longest} lines",
            i + 1
        );
    }
    assert!((40..=most).contains(&count), "{count} decisions, at most {most}: merge or move some");
}

/// The files that a page's links name, without the places in them.
fn targets(page: &str) -> Vec<&str> {
    let ends = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let paths = ends.filter(|target| !target.contains("://") && !target.starts_with('#'));
    paths.map(|target| target.split('#').next().unwrap_or(target)).collect()
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let mut pages: Vec<String> = PAGES.iter().map(|page| (*page).to_owned()).collect();
    for folder in ["docs", "docs/measurements", "docs/notebook"] {
        pages.extend(files(folder, ".md"));
    }
    let mut count = 0;
    for path in &pages {
        let page = read(path);
        let folder = root().join(path).parent().expect("a folder").to_owned();
        for target in targets(&page).into_iter().filter(|target| !target.contains(' ')) {
            count += 1;
            assert!(folder.join(target).exists(), "{path}: there is no {target}");
        }
    }
    assert!(count > 100, "{count} links were followed");
}

/// `--help` names pages by their place below the folder that they are installed into.
#[test]
fn pages_that_help_names_are_there_and_are_installed() {
    let mut count = 0;
    for path in files("src", ".rs").into_iter().chain(files("src/link", ".rs")) {
        let source = read(&path);
        let help = source.lines().filter(|line| line.trim_start().starts_with("/// "));
        for word in help.flat_map(|line| line.split([' ', ',', ';', ':', '`', '(', ')'])) {
            let page = word.trim_end_matches('.');
            if page.starts_with("docs/") && page.ends_with(".md") {
                count += 1;
                assert!(root().join(page).exists(), "{path}: there is no {page}");
            }
        }
    }
    assert!(count > 0, "no help names a page");
    let makefile = read("Makefile");
    assert!(
        makefile.contains("/share/doc/warren/docs\" docs/*.md"),
        "make install leaves them out"
    );
}

/// What the program says, as the first column of docs/troubleshooting.md quotes it.
#[test]
fn what_a_symptom_quotes_is_said_by_the_program() {
    let mut sources = String::new();
    for folder in ["src", "src/link", "shell/daemon/src", "shell/server/src"] {
        for path in files(folder, ".rs") {
            let code = read(&path);
            let is_said = |line: &&str| !line.trim_start().starts_with("//");
            sources.extend(code.lines().filter(is_said).map(|line| format!("{line}\n")));
        }
    }
    let page = read("docs/troubleshooting.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix('|'));
    let symptoms = rows.filter_map(|row| row.split('|').next());
    let mut count = 0;
    for quoted in symptoms.flat_map(|symptom| symptom.split('"').skip(1).step_by(2)) {
        count += 1;
        assert!(sources.contains(quoted), "the program does not say {quoted:?} any more");
    }
    assert!(count > 5, "{count} quotes");
}

#[test]
fn measurements_are_reports_and_not_their_samples() {
    let size = bytes_below(&root().join("docs/measurements"));
    assert!(size <= MEASUREMENTS_BYTES, "{size} bytes, at most {MEASUREMENTS_BYTES}");
}

/// Each table of the benchmarks stands below a line that names its report.
#[test]
fn every_figure_of_a_benchmark_stands_in_its_report() {
    let page = read("docs/benchmarks.md");
    let mut report = None;
    let mut count = 0;
    let is_part = |c: char| !c.is_alphanumeric() && c != '.';
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("Report: [") {
            let path = rest.split_once("](").and_then(|(_, rest)| rest.split_once(')'));
            report = path.map(|(path, _)| read(&format!("docs/{path}")));
        } else if line.starts_with('#') {
            report = None;
        }
        let Some(report) = report.as_deref().filter(|_| line.starts_with('|')) else { continue };
        // The first cell names the load.
        let cells = line.trim_matches('|').split('|').skip(1);
        for figure in cells.flat_map(str::split_whitespace).filter(|word| is_number(word)) {
            count += 1;
            assert!(report.split(is_part).any(|word| word == figure), "{figure} in: {line}");
        }
    }
    assert!(count > 50, "{count} figures were looked up");
}

#[test]
fn a_sentence_ends_with_its_dot_and_code_is_one_word() {
    let page = "# A head\n\nOne two (e.g. three `a b. c` four). Five\nsix 7.5 and \
                [eight nine](x.md)!\n- an item. Its end\n1. another\n\n    code that is not \
                read\n\n| a cell | 12 % |\n";
    let found: Vec<_> = sentences(page).into_iter().map(|it| (it.line, it.text)).collect();
    let expected = [
        (1, "A head"),
        (3, "One two (e.g. three code four)."),
        (3, "Five six 7.5 and eight nine!"),
        (5, "an item."),
        (5, "Its end"),
        (6, "another"),
        (10, "a cell"),
        (10, "12 %"),
    ];
    assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
}

#[test]
fn what_is_too_long_is_found_with_its_line() {
    let long = vec!["word"; WORDS].join(" ");
    assert!(too_long(&format!("{long}.\n")).is_empty());
    let found = too_long(&format!("Short.\n\n{long} more.\n"));
    assert!(found.len() == 1 && found[0].starts_with("3: 36 words, 0 numbers: word"), "{found:?}");
    let found = too_long("It has 1, 2, (3), ~4, 0.5 and −6 of IPv4.\n");
    assert!(found.len() == 1 && found[0].contains(" 6 numbers"), "{found:?}");
    assert!(too_long("```\n1 2 3 4 5 6 7 8\n```\n").is_empty());
}
