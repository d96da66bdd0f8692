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
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "warren", &mut text);
    io::stdout().write_all(&text)?;
    Ok(io::stdout().flush()?)
}
