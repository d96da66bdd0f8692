//! # pages: what a package installs beside a program
//!
//! Two programs have words, `warren` and `warren-lab`, and both print manual pages and completions
//! of them. This crate is the one source of both: it gets a program's words as the parser has them
//! and writes what a shell or `man` wants.
//!
//! The life of a manual page. A program flattens [`Man`] into its own words, so that
//! `warren man DIR` exists; when it is typed, the program hands its whole command over to
//! [`Man::write`], which makes the folder and writes a page for the program, one for each of its
//! words, and one for each word of those: `warren.1`, `warren-link.1`, `warren-link-up.1`.
//!
//! The life of completions. [`Completions::print`] removes what is hidden from a copy of the
//! command, since the generators would list it, and prints the script that a shell sources.
//!
//! What is hidden in the words is in neither, for it is for the program itself: the process that
//! moves a lab's frames, or a word that only says where it went.
//!
//! Nothing here knows what any word means, and nothing here is more than a call of `clap_mangen`
//! or `clap_complete` and a file. Names are leaked, because clap wants them to live as long as the
//! program; it ends when they are printed.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

/// Write manual pages into a folder.
#[derive(Debug, clap::Args)]
pub struct Man {
    /// The folder, which is made if it is missing
    directory: PathBuf,
}

impl Man {
    /// Writes a page for the program and each of its words.
    ///
    /// # Errors
    /// If the folder or a page cannot be written.
    pub fn write(&self, mut program: Command) -> Result<()> {
        let directory = &self.directory;
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make the folder {}", directory.display()))?;
        program.build();
        let name = program.get_name().to_owned();
        write(directory, &name, &program)
    }
}

fn write(directory: &Path, name: &str, command: &Command) -> Result<()> {
    let path = directory.join(format!("{name}.1"));
    let mut page = Vec::new();
    // clap's names want to live as long as the program does, and there are few
    let named = command.clone().name(String::leak(name.to_owned()) as &'static str);
    clap_mangen::Man::new(named).render(&mut page)?;
    std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    let is_told = |sub: &&Command| sub.get_name() != "help" && !sub.is_hide_set();
    for sub in command.get_subcommands().filter(is_told) {
        write(directory, &format!("{name}-{}", sub.get_name()), sub)?;
    }
    Ok(())
}

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
    pub fn print(&self, program: &Command) -> Result<()> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut visible(program), program.get_name(), &mut text);
        io::stdout().write_all(&text)?;
        Ok(io::stdout().flush()?)
    }
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
