//! # warren-lab: the laboratory's program
//!
//! The life of a command line is that of `warren`'s: [`Cli`] is what can be typed, each word is a
//! file here that turns its words into one call of a library and its result into text, and there
//! is no logic in this folder.
//!
//! - `up`, `exec`, `impair`, `status`, `down` and `proxy` make networks to test on, out of
//!   namespaces, through [`lab`].
//! - `bench` measures in them, through [`bench`](mod@bench).
//! - `demo` shows a network at work in one of them, through [`demo`](mod@demo).
//! - `completions` and `man` print what a package installs beside the program.
//!
//! What is measured and shown is `warren`, a program of its own that users install without this
//! one. It is looked for beside this program, then on PATH; `--warren PATH` names another.
//!
//! An error ends the program with exit code 1 and one line on standard error: what failed, why,
//! and how to mend it. A reader that goes away early is no error.

mod bench;
mod demo;
mod examples;
mod standing;
mod warren;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// Warren's laboratory: networks to test on, measurements in them, and a demonstration.
#[derive(Debug, Parser)]
#[command(name = "warren-lab", version, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 success, 1 failure, 2 wrong usage.")]
struct Cli {
    /// The program to measure and to show; without it the one beside this, else the one on PATH
    #[arg(long, value_name = "PATH", global = true)]
    warren: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

// What each does is said by its words: a comment here would take the place of theirs.
#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Standing(standing::Words),
    /// Measure beside other VPNs and beside none.
    Bench(bench::Args),
    Demo(demo::Args),
    Completions(pages::Completions),
    Man(pages::Man),
    /// Names for completions, one a line.
    #[command(hide = true)]
    Names {
        kind: String,
    },
}

fn main() -> ExitCode {
    let matches = examples::BOOK.dress(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let warren = cli.warren;
    let result = match cli.command {
        Command::Standing(words) => standing::run(words),
        Command::Bench(args) => bench::run(args, warren),
        Command::Demo(args) => demo::run(args, warren),
        Command::Completions(args) => args.print(&Cli::command(), &examples::BOOK),
        Command::Man(args) => args.write(Cli::command(), &examples::BOOK),
        Command::Names { kind } => standing::names(&kind),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // not eprintln, which panics when standard error is closed
            let line = format_args!("warren-lab: {error:#}\n");
            let _ = io::Write::write_fmt(&mut io::stderr(), line);
            ExitCode::FAILURE
        }
    }
}

/// Whether the reader of our output went away, which is its right.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}
