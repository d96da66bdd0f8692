//! # warren: the one binary
//!
//! The life of a command line: [`Cli`] is what can be typed, and its derived parser answers
//! `--help`, `--version` and mistakes (exit code 2). Called under the name `warren-wg`, which is
//! how `WG_QUICK_USERSPACE_IMPLEMENTATION` names a program, the words are those of `warren wg`.
//! Each subcommand is a file here that turns its words into one call of a library and its result
//! into text; there is no logic in this folder.
//!
//! - `wg` and `link` run a node through [`host`]; `genkey`, `pubkey` and `genpsk` are `wg`'s.
//! - `serve` and `relay` run the coordination service and a relay through [`server`]; `user`,
//!   `key`, `node`, `peer`, `route`, `policy`, `token` and `audit` call its API through [`dial`],
//!   here or far away; `backup` copies its files.
//! - `ui` serves the web interface here, with calls of the same API.
//! - `circuit` opens circuits and runs commands in them.
//! - `sites` joins whole sites through gateways: [`sites`] decides, [`clouds`] acts.
//! - `whois` and `exit-node` look through the daemon's status; words of other programs that mean
//!   nothing here are told what is meant (`foreign`).
//! - `lab`, `bench` and `demo` say where they went: into a program of their own, `warren-lab`.
//! - `policy check` checks a policy file without a server.
//! - `completions` and `man` print what a package installs beside the program ([`pages`]), with
//!   what stands in `examples`; `names`, which is hidden, tells completions names.
//!
//! An error ends the program with exit code 1 and one line on standard error: what failed, why,
//! and how to mend it. A reader that goes away early, as in `warren genkey | head -c 0`, is no
//! error. Colours are used on terminals only.

mod admin;
mod audit;
mod backup;
mod bandwidth;
mod bundle;
mod circuit;
mod cleanup;
mod client;
mod daemon;
mod dns;
mod doctor;
mod down;
mod examples;
mod foreign;
mod frames;
mod groups;
mod import;
mod key;
mod keys;
mod lastlines;
mod link;
mod listen;
mod log;
mod lookup;
mod missing;
mod moved;
mod names;
mod netcheck;
mod node;
mod peer;
mod ping;
mod policy;
mod relay;
mod ros;
mod route;
mod serve;
mod service;
mod sites;
mod status;
mod token;
mod ui;
mod up;
mod user;
mod weather;
mod wg;
mod whois;
mod why;
mod wish;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// A private network for a group of machines, wherever they are.
#[derive(Debug, Parser)]
#[command(name = "warren", version, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 success, 1 failure, 2 wrong usage.")]
struct Cli {
    /// Where the daemon is found, for the commands of a node
    #[arg(long, value_name = "PATH")]
    socket: Option<std::path::PathBuf>,
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
    Daemon(daemon::Args),
    Cleanup(cleanup::Args),
    #[command(alias = "login")]
    Up(up::Args),
    Down(down::Args),
    Logout(down::Logout),
    Set(down::Set),
    Status(status::Args),
    Ip(status::Ip),
    Ping(ping::Args),
    Bandwidth(bandwidth::Args),
    Wait(status::Wait),
    Whois(whois::Args),
    ExitNode(whois::ExitNode),
    Why(why::Args),
    Circuit(circuit::Args),
    Netcheck(netcheck::Args),
    Doctor(doctor::Args),
    Metrics(status::Metrics),
    Ros(ros::Args),
    Debug(status::Debug),
    Serve(serve::Args),
    Relay(relay::Args),
    #[command(alias = "users")]
    User(user::Args),
    #[command(alias = "preauthkeys")]
    Key(key::Args),
    #[command(alias = "nodes")]
    Node(node::Args),
    Peer(peer::Args),
    #[command(alias = "routes")]
    Route(route::Args),
    #[command(alias = "apikeys")]
    Token(token::Args),
    Audit(audit::Args),
    Ui(ui::Args),
    Backup(backup::Args),
    Restore(backup::RestoreArgs),
    Import(import::Args),
    Policy(policy::Args),
    Sites(sites::Args),
    Dns(dns::Args),
    Completions(pages::Completions),
    // For who makes packages; the list of words has no line to spare.
    #[command(hide = true)]
    Man(pages::Man),
    #[command(hide = true)]
    Names(names::Args),
    /// Print the version.
    #[command(hide = true)]
    Version,
    #[command(flatten)]
    Moved(moved::Words),
}

fn main() -> ExitCode {
    let words = words(std::env::args_os().collect());
    let mut program = groups::shown(examples::BOOK.dress(Cli::command()));
    let asked = words.get(1).map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let parsed = program.try_get_matches_from_mut(words).and_then(|m| Cli::from_arg_matches(&m));
    let mut cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return missing::tell(&program, &asked, &error),
    };
    if let (Some(path), Some(socket)) = (cli.socket.take(), socket_of(&mut cli.command)) {
        socket.get_or_insert(path);
    }
    let result = match cli.command {
        Command::Wg(args) => wg::run(args),
        Command::Link(args) => link::run(args),
        Command::Genkey => keys::genkey(),
        Command::Pubkey => keys::pubkey(),
        Command::Genpsk => keys::genpsk(),
        Command::Cleanup(args) => cleanup::run(&args),
        Command::Daemon(args) => daemon::run(args),
        Command::Up(args) => up::run(args),
        Command::Down(args) => down::run(args),
        Command::Logout(args) => down::logout(args),
        Command::Set(args) => down::set(args),
        Command::Status(args) => status::run(args),
        Command::Ip(args) => status::ip(args),
        Command::Ping(args) => ping::run(args),
        Command::Bandwidth(args) => bandwidth::run(args),
        Command::Wait(args) => status::wait(args),
        Command::Whois(args) => whois::run(args),
        Command::ExitNode(args) => whois::exit_node(&args),
        Command::Why(args) => why::run(args),
        Command::Circuit(args) => match circuit::run(args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Netcheck(args) => netcheck::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Metrics(args) => status::metrics(args),
        Command::Ros(args) => ros::run(args),
        Command::Debug(args) => status::debug(args),
        Command::Serve(args) => serve::run(args),
        Command::Relay(args) => relay::run(args),
        Command::User(args) => user::run(args),
        Command::Key(args) => key::run(args),
        Command::Node(args) => node::run(args),
        Command::Peer(args) => peer::run(args),
        Command::Route(args) => route::run(args),
        Command::Token(args) => token::run(args),
        Command::Audit(args) => audit::run(args),
        Command::Ui(args) => ui::run(args),
        Command::Backup(args) => backup::run(args),
        Command::Restore(args) => backup::restore(args),
        Command::Import(args) => import::run(args),
        Command::Policy(args) => policy::run(args),
        Command::Sites(args) => sites::run(args),
        Command::Dns(args) => dns::run(args),
        Command::Completions(args) => args.print(&Cli::command(), &examples::BOOK),
        Command::Man(args) => args.write(Cli::command(), &examples::BOOK),
        Command::Names(args) => names::run(&args),
        Command::Version => client::say(&format!("warren {}\n", env!("CARGO_PKG_VERSION"))),
        Command::Moved(words) => return words.tell(),
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

/// Where a command of a node keeps what it was told of the daemon's socket.
fn socket_of(command: &mut Command) -> Option<&mut Option<std::path::PathBuf>> {
    let target = match command {
        Command::Daemon(args) => return Some(&mut args.socket),
        Command::Up(args) => &mut args.target,
        Command::Down(args) => &mut args.target,
        Command::Logout(args) => &mut args.target,
        Command::Set(args) => &mut args.target,
        Command::Status(args) => &mut args.target,
        Command::Ip(args) => &mut args.target,
        Command::Ping(args) => &mut args.target,
        Command::Bandwidth(args) => &mut args.target,
        Command::Wait(args) => &mut args.target,
        Command::Whois(args) => &mut args.target,
        Command::ExitNode(args) => {
            let whois::ExitWords::List { target } = &mut args.command;
            target
        }
        Command::Netcheck(args) => &mut args.target,
        Command::Doctor(args) => &mut args.target,
        Command::Why(args) => &mut args.target,
        Command::Circuit(args) => args.target()?,
        Command::Metrics(args) => &mut args.target,
        Command::Ros(args) => &mut args.target,
        Command::Debug(args) => {
            let status::DebugCommand::Bundle { target, .. } = &mut args.command;
            target
        }
        _ => return None,
    };
    Some(&mut target.socket)
}

/// The words as if typed after `warren`, whatever name the program was called by.
fn words(mut words: Vec<OsString>) -> Vec<OsString> {
    let name = words.first().and_then(|first| Path::new(first).file_name());
    if name.is_some_and(|name| name == "warren-wg") {
        // Not of the subcommand: a program is asked for its version.
        let asks_version = words.get(1).is_some_and(|word| word == "--version" || word == "-V");
        let meant = if asks_version { &["warren"][..] } else { &["warren", "wg"] };
        words.splice(..1, meant.iter().map(OsString::from));
    }
    words
}

/// Whether the reader of our output went away, which is its right.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}
