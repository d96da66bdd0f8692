//! `warren man DIR`: a manual page for each subcommand.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};

/// Write manual pages into a folder.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder, which is made if it is missing
    directory: PathBuf,
}

/// Writes them.
pub(crate) fn run(args: Args) -> Result<()> {
    let directory = &args.directory;
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make the folder {}", directory.display()))?;
    let mut command = crate::Cli::command();
    command.build();
    write(directory, "warren", &command)
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
