//! What is said of a program beside its words: examples, files, what completes a name.

use clap::Command;
use clap::error::ErrorKind;

/// Where pages that help names are installed.
const DOCS: &str = "/usr/share/doc/warren/";

/// All of it, by the words that lead to a command: `key create`, or nothing for the program.
#[derive(Clone, Copy, Debug)]
pub struct Book {
    /// Examples, one a line: the command, two spaces or more, and what it does.
    pub examples: &'static [(&'static str, &'static str)],
    /// Files that a command reads or keeps, and what each is.
    pub files: &'static [(&'static str, &'static [(&'static str, &'static str)])],
    /// Variables that are read and are no option's, of the program as a whole.
    pub environment: &'static [(&'static str, &'static str)],
    /// Commands that run as services: their pages stand in section 8.
    pub services: &'static [&'static str],
    /// Commands whose next word is a name, and the kind of it.
    pub named: &'static [(&'static str, &'static str)],
    /// Flags whose value is a name, and the kind of it.
    pub named_flags: &'static [(&'static str, &'static str)],
}

impl Book {
    /// The program with its examples behind the long help of each command that has none.
    #[must_use]
    pub fn dress(&self, program: Command) -> Command {
        self.dress_at(program, "")
    }

    fn dress_at(&self, command: Command, words: &str) -> Command {
        let mut command = command;
        if let Some(lines) = self.examples_of(words).filter(|_| !has_example(&command)) {
            let after = command.get_after_help().map(|text| format!("\n\n{text}"));
            let lines: Vec<String> = lines.lines().map(|line| format!("  {line}")).collect();
            let text = format!("Examples:\n{}{}", lines.join("\n"), after.unwrap_or_default());
            command = command.after_long_help(text);
        }
        command.mut_subcommands(|sub| {
            let words = joined(words, sub.get_name());
            self.dress_at(sub, &words)
        })
    }

    fn examples_of(&self, words: &str) -> Option<&'static str> {
        self.examples.iter().find(|(at, _)| *at == words).map(|(_, lines)| *lines)
    }

    /// The section of a command's page.
    pub(crate) fn section(&self, words: &str) -> &'static str {
        if self.services.contains(&words) { "8" } else { "1" }
    }

    /// Files of a command, and of those that it is one of.
    pub(crate) fn files_of(&self, words: &str) -> Vec<(&'static str, &'static str)> {
        let is_of = |at: &str| at == words || at.is_empty() || words.starts_with(&format!("{at} "));
        let lists = self.files.iter().filter(|(at, _)| is_of(at));
        lists.flat_map(|(_, list)| *list).copied().collect()
    }
}

/// Commands that are shown and have no example, and examples that are no command.
#[must_use]
pub fn wanting(program: &Command) -> Vec<String> {
    let mut found = Vec::new();
    look(program, program, "", &mut found);
    found
}

fn look(program: &Command, command: &Command, words: &str, found: &mut Vec<String>) {
    if !has_example(command) {
        found.push(format!("`{words}` has no example in its long help"));
    }
    for line in examples(command) {
        if let Err(why) = judge(program, &line) {
            found.push(format!("the example `{line}` of `{words}`: {why}"));
        }
    }
    for sub in shown(command) {
        look(program, sub, &joined(words, sub.get_name()), found);
    }
}

/// Whether the parser takes an example, up to where a shell's own words begin.
fn judge(program: &Command, line: &str) -> Result<(), String> {
    let end = [" > ", " | ", " && ", " < ", " 2>", "  "].iter().filter_map(|end| line.find(end));
    let line = &line[..end.min().unwrap_or(line.len())];
    let words = line.trim_start_matches("sudo ").split_whitespace();
    let words: Vec<String> = words.map(|word| word.trim_matches(['\'', '"']).to_owned()).collect();
    if words.first().is_none_or(|word| word != program.get_name()) {
        return Ok(());
    }
    let has_placeholder = words.iter().any(|word| is_placeholder(word));
    match program.clone().try_get_matches_from(words) {
        Ok(_) => Ok(()),
        Err(error) if has_placeholder && error.kind() == ErrorKind::ValueValidation => Ok(()),
        Err(error) => Err(error.to_string().lines().next().unwrap_or_default().to_owned()),
    }
}

/// Whether a word stands for one that users have: `TOKEN`, `KEY:/etc/file`.
fn is_placeholder(word: &str) -> bool {
    let mut parts = word.split(|c: char| !c.is_alphanumeric());
    parts.any(|part| part.len() >= 3 && part.chars().all(|c| c.is_ascii_uppercase()))
}

/// The lines of a command's examples.
pub(crate) fn examples(command: &Command) -> Vec<String> {
    let text = long_after(command);
    let Some(at) = text.find("Example") else { return Vec::new() };
    let (head, rest) = text[at..].split_once(':').unwrap_or_default();
    if head.is_empty() {
        return Vec::new();
    }
    let lines = rest.lines().map(str::trim).skip_while(|line| line.is_empty());
    lines.take_while(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn has_example(command: &Command) -> bool {
    long_after(command).contains("Example")
}

fn long_after(command: &Command) -> String {
    let text = command.get_after_long_help().or_else(|| command.get_after_help());
    text.map(ToString::to_string).unwrap_or_default()
}

/// The pages of docs that a command's help names, as they are installed.
pub(crate) fn cited(command: &Command) -> Vec<String> {
    let help = command.clone().render_long_help().to_string();
    let words = help.split(|c: char| !c.is_alphanumeric() && !"/.-_".contains(c));
    let pages = words.map(|word| word.trim_matches('.'));
    let mut pages: Vec<String> = pages
        .filter(|word| word.starts_with("docs/") && word.ends_with(".md"))
        .map(|page| format!("{DOCS}{page}"))
        .collect();
    pages.sort();
    pages.dedup();
    pages
}

/// The commands of a command that are for people.
pub(crate) fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set())
}

/// The words to a command below others.
pub(crate) fn joined(words: &str, name: &str) -> String {
    if words.is_empty() { name.to_owned() } else { format!("{words} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOK: Book = Book {
        examples: &[("", "prog add x"), ("add", "prog add x       what it does\nprog add --no")],
        files: &[("", &[("/etc/all", "all")]), ("add", &[("/etc/add", "one")])],
        environment: &[],
        services: &["add"],
        named: &[],
        named_flags: &[],
    };

    fn program() -> Command {
        let name = clap::Arg::new("name").required(true);
        let of = Command::new("rest").after_help("Example: prog rest");
        let add = Command::new("add").arg(name).long_about("Adds; see docs/add.md.");
        Command::new("prog").subcommands([add, of, Command::new("bare")])
    }

    #[test]
    fn a_command_without_an_example_and_an_example_that_is_none_are_told() {
        let dressed = BOOK.dress(program());
        let wanting = wanting(&dressed);
        assert_eq!(wanting.len(), 2, "{wanting:#?}");
        assert!(wanting[0].contains("`prog add --no` of `add`"), "{wanting:#?}");
        assert_eq!(wanting[1], "`bare` has no example in its long help");
        assert_eq!(BOOK.files_of("add x").len(), 2);
        assert_eq!(BOOK.files_of("address").len(), 1);
        let add = dressed.find_subcommand("add").unwrap();
        assert_eq!(cited(add), ["/usr/share/doc/warren/docs/add.md"]);
    }
}
