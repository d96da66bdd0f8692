//! Completions: what the generators write, and around it names of peers, nodes, links and labs,
//! which the program tells by its hidden word `names KIND` when a key is pressed.

use std::fmt::Write as _;
use std::io::{self, Write};

use anyhow::Result;
use clap::Command;
use clap_complete::Shell;

use crate::book::Book;

/// Print completions for a shell.
///
/// For bash, and the program PROGRAM: PROGRAM completions bash > /etc/bash_completion.d/PROGRAM
#[derive(Debug, clap::Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    /// Prints them.
    ///
    /// # Errors
    /// If nobody reads them.
    pub fn print(&self, program: &Command, book: &Book) -> Result<()> {
        let name = program.get_name();
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut visible(program), name, &mut text);
        let text = String::from_utf8_lossy(&text).into_owned();
        let text = match self.shell {
            Shell::Bash => text + &bash(name, book),
            Shell::Zsh => zsh(&text, name, book),
            Shell::Fish => text + &fish(name, book),
            _ => text,
        };
        io::stdout().write_all(text.as_bytes())?;
        Ok(io::stdout().flush()?)
    }
}

/// `case` branches of both shells: the kind of name that words or a flag want.
fn branches(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (words, kind) in pairs {
        let _ = writeln!(text, "        \"{words}\") kind={kind} ;;");
    }
    text
}

fn bash(name: &str, book: &Book) -> String {
    let words = branches(book.named);
    let flags = branches(book.named_flags);
    format!(
        r#"
# Names that only the program knows, where one is wanted.
_{name}_named() {{
    _{name} "$@"
    local at word typed="" kind="" cur="${{COMP_WORDS[COMP_CWORD]}}"
    for ((at = 1; at < COMP_CWORD; at++)); do
        word="${{COMP_WORDS[at]}}"
        [[ $word == -* ]] || typed+="${{typed:+ }}$word"
    done
    case "$typed" in
{words}    esac
    case "${{COMP_WORDS[COMP_CWORD-1]}}" in
{flags}        -*) kind="" ;;
    esac
    [[ -n $kind && $cur != -* ]] || return 0
    local found
    found="$({name} names "$kind" 2>/dev/null)"
    if [[ -n $found ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$found" -- "$cur")
    fi
}}
complete -F _{name}_named -o bashdefault -o default {name}
"#
    )
}

fn zsh(text: &str, name: &str, book: &Book) -> String {
    let words = branches(book.named);
    let flags = branches(book.named_flags);
    let own = format!("_{name}() {{");
    let (head, rest) = text.split_once(&own).unwrap_or((text, ""));
    let tail = rest.rfind("\nif [ \"$funcstack[1]\"").unwrap_or(rest.len());
    let (generated, tail) = rest.split_at(tail);
    format!(
        r#"{head}_{name}_words() {{{generated}
# Names that only the program knows, where one is wanted, before its words.
_{name}() {{
    local at word typed="" kind=""
    for ((at = 2; at < CURRENT; at++)); do
        word="${{words[at]}}"
        [[ $word == -* ]] || typed+="${{typed:+ }}$word"
    done
    case "$typed" in
{words}    esac
    case "${{words[CURRENT-1]}}" in
{flags}        -*) kind="" ;;
    esac
    if [[ -n $kind && "${{words[CURRENT]}}" != -* ]]; then
        local -a found
        found=(${{(f)"$({name} names $kind 2>/dev/null)"}})
        if (( ${{#found}} )); then
            compadd -a found
            return
        fi
    fi
    _{name}_words "$@"
}}
{tail}"#
    )
}

fn fish(name: &str, book: &Book) -> String {
    let mut text = String::from("\n# Names that only the program knows, where one is wanted.\n");
    for (words, kind) in book.named {
        let seen: Vec<String> =
            words.split(' ').map(|word| format!("__fish_seen_subcommand_from {word}")).collect();
        let when = seen.join("; and ");
        let names = format!("({name} names {kind} 2>/dev/null)");
        let _ = writeln!(text, "complete -c {name} -n \"{when}\" -f -a \"{names}\"");
    }
    for (flag, kind) in book.named_flags {
        let flag = flag.trim_start_matches('-');
        let names = format!("({name} names {kind} 2>/dev/null)");
        let _ = writeln!(text, "complete -c {name} -l {flag} -x -a \"{names}\"");
    }
    text
}

/// The same command without what is hidden in it, which the generators would list.
fn visible(command: &Command) -> Command {
    // clap keeps names for ever, and this program ends when they are printed
    let name: &'static str = command.get_name().to_owned().leak();
    let mut bare = Command::new(name).args(command.get_arguments());
    if let Some(about) = command.get_about() {
        bare = bare.about(about.clone());
    }
    if command.get_version().is_some() {
        bare = bare.version(env!("CARGO_PKG_VERSION"));
    }
    bare.subcommands(command.get_subcommands().filter(|word| !word.is_hide_set()).map(visible))
}
