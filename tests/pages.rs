//! Every command that a page shows is one: its words and its flags stand in the program's own help.
//! Read are the code of the README and of `docs`, in blocks and in lines, as far as it calls
//! `warren`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// What no help is asked for: patterns, and what stands for several commands at once.
const NOT_ONE: [&str; 5] = ["|", "…", "[", "{", ".."];

/// The calls of `warren` that a page shows, each as its words.
fn calls(page: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut is_fenced = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced || line.starts_with("    ") {
            all.extend(call(line));
        } else {
            all.extend(line.split('`').skip(1).step_by(2).filter_map(call));
        }
    }
    all
}

/// The words of a line that calls `warren`, without what stands before and behind.
fn call(line: &str) -> Option<Vec<String>> {
    let code = line.split(" #").next().unwrap_or_default().trim();
    let code = code.trim_start_matches("sudo ");
    let calls = code.strip_prefix("warren ")?;
    let end = [" && ", " > ", " < ", " &", "; "].iter().filter_map(|stop| calls.find(stop)).min();
    let calls = &calls[..end.unwrap_or(calls.len())];
    let is_one = !NOT_ONE.iter().any(|mark| calls.contains(mark));
    is_one.then(|| calls.split_whitespace().map(str::to_owned).collect())
}

/// What the program says of its commands, each asked once.
#[derive(Default)]
struct Program {
    helps: BTreeMap<Vec<String>, Option<String>>,
}

impl Program {
    /// The long help of a command; none if there is no such.
    fn help(&mut self, path: &[String]) -> Option<&str> {
        let asked = self.helps.entry(path.to_vec()).or_insert_with(|| {
            let words = path.iter().map(String::as_str).chain(["--help"]);
            let output = Command::new(env!("CARGO_BIN_EXE_warren")).args(words).output();
            let output = output.expect("the program runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            output.status.success().then_some(text)
        });
        asked.as_deref()
    }

    /// What is wrong with a call, if anything.
    fn judge(&mut self, words: &[String]) -> Option<String> {
        let mut path: Vec<String> = Vec::new();
        let mut rest = words.iter();
        while self.wants_more(&path) {
            let Some(word) = rest.next().filter(|word| !word.starts_with('-')) else { break };
            path.push(word.clone());
            if self.help(&path).is_none() {
                return Some(format!("there is no command {}", path.join(" ")));
            }
        }
        let help = self.help(&path)?.to_owned();
        let flags = words.iter().filter(|word| word.starts_with("--") && word.len() > 2);
        let names = flags.map(|flag| flag.split('=').next().unwrap_or(flag));
        let is_known = |flag: &&str| {
            let end = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-');
            help.match_indices(*flag).any(|(at, _)| end(&help[at + flag.len()..]))
        };
        let unknown = names.into_iter().find(|flag| !is_known(flag))?;
        Some(format!("{} has no {unknown}", path.join(" ")))
    }

    /// Whether a command is only the beginning of one.
    fn wants_more(&mut self, path: &[String]) -> bool {
        let usage = self.help(path).and_then(|help| help.lines().find(|l| l.starts_with("Usage:")));
        usage.is_some_and(|usage| usage.contains("COMMAND"))
    }
}

#[test]
fn every_command_that_a_page_shows_is_one() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![root.join("README.md")];
    let docs = std::fs::read_dir(root.join("docs")).expect("a folder");
    pages.extend(docs.map(|entry| entry.expect("an entry").path()));
    // wire.md has words of protocols that begin like calls.
    let is_read = |path: &PathBuf| path.extension().is_some_and(|it| it == "md");
    pages.retain(|path| is_read(path) && !path.ends_with("wire.md"));
    let mut program = Program::default();
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in pages {
        let page = std::fs::read_to_string(&path).expect("a page");
        for words in calls(&page) {
            count += 1;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let found = program.judge(&words);
            wrong.extend(found.map(|what| format!("{name}: warren {}: {what}", words.join(" "))));
        }
    }
    assert!(count > 100, "{count} calls were found");
    assert!(wrong.is_empty(), "mend the page or the program:\n{}", wrong.join("\n"));
}

#[test]
fn what_is_no_command_and_what_is_no_flag_are_told() {
    let page = "`warren frob` and\n\n```\nsudo warren up TOKEN --nonsense=3   # why\nls\n```\n\
                `warren up TOKEN --reset`, `warren key create --user ann && x`, `warren a|b`\n";
    let mut program = Program::default();
    let found: Vec<_> = calls(page).iter().map(|words| program.judge(words)).collect();
    let told = |text: &str| Some(text.to_owned());
    let expected = [told("there is no command frob"), told("up has no --nonsense"), None, None];
    assert_eq!(found, expected);
}
