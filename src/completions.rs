//! `warren completions SHELL`: what a shell needs to complete our words.

use std::io::{self, Write};

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

/// Print completions for a shell.
///
/// For bash: warren completions bash > /etc/bash_completion.d/warren
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints them.
pub(crate) fn run(args: Args) -> Result<()> {
    let mut text = Vec::new();
    let mut visible = visible(&crate::Cli::command());
    clap_complete::generate(args.shell, &mut visible, "warren", &mut text);
    io::stdout().write_all(&text)?;
    Ok(io::stdout().flush()?)
}

/// The same command without what is hidden in it, which the generators would list.
fn visible(command: &clap::Command) -> clap::Command {
    // clap keeps names for ever, and this program ends when they are printed
    let name: &'static str = command.get_name().to_owned().leak();
    let mut bare = clap::Command::new(name).args(command.get_arguments());
    if let Some(about) = command.get_about() {
        bare = bare.about(about.clone());
    }
    if command.get_version().is_some() {
        bare = bare.version(env!("CARGO_PKG_VERSION"));
    }
    bare.subcommands(command.get_subcommands().filter(|word| !word.is_hide_set()).map(visible))
}
