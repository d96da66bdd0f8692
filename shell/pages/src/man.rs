//! Manual pages: what the parser knows, and behind that examples, variables, files and exit codes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Command;

use crate::book::{Book, cited, examples, joined, shown};

/// Write manual pages into a folder.
#[derive(Debug, clap::Args)]
pub struct Man {
    /// The folder, which is made if it is missing
    directory: PathBuf,
    /// Only pages of this section: 1, or 8 for those of services
    #[arg(long, value_name = "SECTION", value_parser = ["1", "8"])]
    section: Option<String>,
}

impl Man {
    /// Writes a page for the program and each of its words.
    ///
    /// # Errors
    /// If the folder or a page cannot be written.
    pub fn write(&self, program: Command, book: &Book) -> Result<()> {
        let directory = &self.directory;
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make the folder {}", directory.display()))?;
        let mut program = book.dress(program);
        program.build();
        let name = program.get_name().to_owned();
        let pages = Pages { directory, book, program: &name, section: self.section.as_deref() };
        pages.write(&program, "", None)
    }
}

/// Where pages go, and what they are of.
struct Pages<'a> {
    directory: &'a Path,
    book: &'a Book,
    program: &'a str,
    section: Option<&'a str>,
}

impl Pages<'_> {
    fn write(
        &self,
        command: &Command,
        words: &str,
        parent: Option<(&Command, &str)>,
    ) -> Result<()> {
        let section = self.book.section(words);
        let name = self.page_name(words);
        if self.section.is_none_or(|wanted| wanted == section) {
            let path = self.directory.join(format!("{name}.{section}"));
            let page = self.page(command, words, parent)?;
            std::fs::write(&path, page)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        for sub in shown(command) {
            self.write(sub, &joined(words, sub.get_name()), Some((command, words)))?;
        }
        Ok(())
    }

    fn page_name(&self, words: &str) -> String {
        joined(self.program, words).trim().replace(' ', "-")
    }

    fn page(
        &self,
        command: &Command,
        words: &str,
        parent: Option<(&Command, &str)>,
    ) -> Result<String> {
        // clap's names want to live as long as the program does, and there are few
        let name: &'static str = String::leak(self.page_name(words));
        let section = self.book.section(words);
        let bare = command.clone().name(name).after_help("").after_long_help("");
        let man = clap_mangen::Man::new(bare)
            .title(name)
            .section(section)
            .source(concat!("warren ", env!("CARGO_PKG_VERSION")))
            .manual("Warren");
        let mut page = Vec::new();
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").trim();
        page.extend_from_slice(block("SYNOPSIS", usage).as_bytes());
        man.render_description_section(&mut page)?;
        if command.get_arguments().next().is_some() {
            man.render_options_section(&mut page)?;
        }
        // Of the short help there is no summary here.
        let mut page =
            String::from_utf8_lossy(&page).replace(r" (see a summary with \*(Aq\-h\*(Aq)", "");
        page = page.replace(r" (see a summary with '\-h')", "");
        self.commands(&mut page, command, words);
        let lines = examples(command);
        page += &block("EXAMPLES", &lines.join("\n"));
        self.environment(&mut page, command);
        let files = self.book.files_of(words);
        page += &list("FILES", files.iter().map(|(path, what)| (*path, (*what).to_owned())));
        let codes = [
            ("0", "Success."),
            ("1", "Failure. One line on standard error says what, why, and how to mend it."),
            ("2", "Wrong usage."),
        ];
        page += &list("EXIT STATUS", codes.map(|(code, what)| (code, what.to_owned())));
        self.see_also(&mut page, command, words, parent);
        Ok(page)
    }

    fn commands(&self, page: &mut String, command: &Command, words: &str) {
        let subs = shown(command).map(|sub| {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            (self.reference(&joined(words, sub.get_name())), about)
        });
        let subs: Vec<_> = subs.collect();
        *page += &list("COMMANDS", subs.iter().map(|(page, about)| (page.as_str(), about.clone())));
    }

    fn environment(&self, page: &mut String, command: &Command) {
        let mut told: Vec<(String, String)> = Vec::new();
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let Some(name) = argument.get_env() else { continue };
            let what = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let flag = argument.get_long().map(|long| format!(" The same as --{long}."));
            let what = format!("{}.{}", what.trim_end_matches('.'), flag.unwrap_or_default());
            told.push((name.to_string_lossy().into_owned(), what));
        }
        let own = self.book.environment.iter();
        told.extend(own.map(|(name, what)| ((*name).to_owned(), (*what).to_owned())));
        *page +=
            &list("ENVIRONMENT", told.iter().map(|(name, what)| (name.as_str(), what.clone())));
    }

    fn see_also(
        &self,
        page: &mut String,
        command: &Command,
        words: &str,
        parent: Option<(&Command, &str)>,
    ) {
        let mut others: Vec<String> = Vec::new();
        if let Some((above, at)) = parent {
            others.push(self.reference(at));
            // The program's own page names the rest.
            let beside = shown(above).filter(|_| !at.is_empty());
            let beside = beside.map(|sub| joined(at, sub.get_name())).filter(|it| it != words);
            others.extend(beside.map(|words| self.reference(&words)));
        }
        if words == "wg" || words.starts_with("link") {
            others.extend(["wg(8)", "wg-quick(8)"].map(str::to_owned));
        }
        others.extend(cited(command));
        if parent.is_none() {
            others.push("/usr/share/doc/warren/README.md".to_owned());
        }
        *page += &format!(".SH SEE ALSO\n{}\n", escaped(&others.join(", ")));
    }

    fn reference(&self, words: &str) -> String {
        format!("{}({})", self.page_name(words), self.book.section(words))
    }
}

/// A section whose lines stand as they are.
fn block(title: &str, text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = text.lines().map(escaped).collect();
    format!(".SH {title}\n.nf\n{}\n.fi\n", lines.join("\n"))
}

/// A section of terms, each with a sentence.
fn list<'a>(title: &str, entries: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut text = String::new();
    for (term, what) in entries {
        let _ = write!(text, ".TP\n\\fB{}\\fR\n{}\n", escaped(term), escaped(&what));
    }
    if text.is_empty() { text } else { format!(".SH {title}\n{text}") }
}

/// Text as roff has it: nothing in it is a request.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('\n', " ");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}
