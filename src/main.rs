//! # warren: the one binary
//!
//! The life of a command line: [`Cli`] is what can be typed, and its derived parser answers
//! `--help`, `--version` and mistakes (exit code 2). Called under the name `warren-wg`, which is
//! how `WG_QUICK_USERSPACE_IMPLEMENTATION` names a program, the words are those of `warren wg`.
//! Each subcommand is a file here that turns its words into one call of a library and its result
//! into text; there is no logic in this folder.
//!
//! - `wg` and `link` run a node through [`host`]; `genkey`, `pubkey` and `genpsk` are `wg`'s.
//! - `serve` runs the coordination service through [`server`]; `user`, `key`, `node`, `route`,
//!   `policy`, `token` and `audit` call its API through [`dial`], here or far away.
//! - `lab` makes networks to test on, out of namespaces; `bench` measures in them.
//! - `demo` shows the link at work in one of them.
//! - `policy check` checks a policy file without a server.
//! - `completions` and `man` print what a package installs beside the program.
//!
//! An error ends the program with exit code 1 and one line on standard error: what failed, why,
//! and how to mend it. A reader that goes away early, as in `warren genkey | head -c 0`, is no
//! error. Colours are used on terminals only.

mod admin;
mod audit;
mod bench;
mod completions;
mod demo;
mod frames;
mod key;
mod keys;
mod lab;
mod link;
mod log;
mod man;
mod node;
mod policy;
mod route;
mod serve;
mod token;
mod user;
mod wg;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A private network for a group of machines, wherever they are.
#[derive(Debug, Parser)]
#[command(name = "warren", version, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 success, 1 failure, 2 wrong usage.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// What each does is said by its words: a comment here would take the place of theirs.
#[derive(Debug, Subcommand)]
enum Command {
    Wg(wg::Args),
    Link(link::Args),
    /// Print a new private key.
    Genkey,
    /// Read a private key and print its public key.
    Pubkey,
    /// Print a new preshared key.
    Genpsk,
    Serve(serve::Args),
    User(user::Args),
    Key(key::Args),
    Node(node::Args),
    Route(route::Args),
    Token(token::Args),
    Audit(audit::Args),
    Lab(lab::Args),
    /// Measure beside other VPNs and beside none.
    Bench(bench::Args),
    Demo(demo::Args),
    Policy(policy::Args),
    Completions(completions::Args),
    Man(man::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse_from(words(std::env::args_os().collect()));
    let result = match cli.command {
        Command::Wg(args) => wg::run(args),
        Command::Link(args) => link::run(args),
        Command::Genkey => keys::genkey(),
        Command::Pubkey => keys::pubkey(),
        Command::Genpsk => keys::genpsk(),
        Command::Serve(args) => serve::run(args),
        Command::User(args) => user::run(args),
        Command::Key(args) => key::run(args),
        Command::Node(args) => node::run(args),
        Command::Route(args) => route::run(args),
        Command::Token(args) => token::run(args),
        Command::Audit(args) => audit::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Policy(args) => policy::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // not eprintln, which panics when standard error is closed
            let _ = io::Write::write_fmt(&mut io::stderr(), format_args!("warren: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

/// The words as if typed after `warren`, whatever name the program was called by.
fn words(mut words: Vec<OsString>) -> Vec<OsString> {
    let name = words.first().and_then(|first| Path::new(first).file_name());
    if name.is_some_and(|name| name == "warren-wg") {
        words.splice(..1, ["warren".into(), "wg".into()]);
    }
    words
}

/// Whether the reader of our output went away, which is its right.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}
