//! Calls of a program that pages show, and whether its own help knows them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// What no help is asked for: patterns, and what stands for several commands at once.
const NOT_ONE: [&str; 5] = ["|", "…", "[", "{", ".."];

/// The calls of `program` that a page shows, each as its words.
pub(crate) fn calls(program: &str, page: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut is_fenced = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced || line.starts_with("    ") {
            all.extend(call(program, line));
        } else {
            all.extend(line.split('`').skip(1).step_by(2).filter_map(|code| call(program, code)));
        }
    }
    all
}

/// The words of a line that calls it, without what stands before and behind.
fn call(program: &str, line: &str) -> Option<Vec<String>> {
    let code = line.split(" #").next().unwrap_or_default().trim();
    let code = code.trim_start_matches("sudo ");
    let calls = code.strip_prefix(program)?.strip_prefix(' ')?;
    let end = [" && ", " > ", " < ", " &", "; "].iter().filter_map(|stop| calls.find(stop)).min();
    let calls = &calls[..end.unwrap_or(calls.len())];
    let is_one = !NOT_ONE.iter().any(|mark| calls.contains(mark));
    is_one.then(|| calls.split_whitespace().map(str::to_owned).collect())
}

/// What a program says of its commands, each asked once.
pub(crate) struct Program {
    path: &'static str,
    helps: BTreeMap<Vec<String>, Option<String>>,
}

impl Program {
    /// The program at this path.
    pub(crate) fn new(path: &'static str) -> Self {
        Self { path, helps: BTreeMap::new() }
    }

    /// The long help of a command; none if there is no such.
    fn help(&mut self, path: &[String]) -> Option<&str> {
        let asked = self.helps.entry(path.to_vec()).or_insert_with(|| {
            let words = path.iter().map(String::as_str).chain(["--help"]);
            let output = Command::new(self.path).args(words).output();
            let output = output.expect("the program runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            output.status.success().then_some(text)
        });
        asked.as_deref()
    }

    /// What is wrong with a call, if anything.
    pub(crate) fn judge(&mut self, words: &[String]) -> Option<String> {
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
        // What follows another program is its own.
        let own = words.iter().take_while(|word| *word != "warren");
        let flags = own.filter(|word| word.starts_with("--") && word.len() > 2);
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

/// What is wrong with the calls of `program` in the README and in `docs` below `root`: how many
/// calls there are, and each that is wrong with its page.
pub(crate) fn wrong(program: &mut Program, name: &str, root: PathBuf) -> (usize, Vec<String>) {
    let mut pages = vec![root.join("README.md")];
    let docs = std::fs::read_dir(root.join("docs")).expect("a folder");
    pages.extend(docs.map(|entry| entry.expect("an entry").path()));
    // wire.md has words of protocols that begin like calls.
    let is_read = |path: &PathBuf| path.extension().is_some_and(|it| it == "md");
    pages.retain(|path| is_read(path) && !path.ends_with("wire.md"));
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in pages {
        let page = std::fs::read_to_string(&path).expect("a page");
        for words in calls(name, &page) {
            count += 1;
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let found = program.judge(&words);
            wrong.extend(found.map(|what| format!("{file}: {name} {}: {what}", words.join(" "))));
        }
    }
    (count, wrong)
}
