//! Networks to test on, made of namespaces, that stand while no command runs.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ::lab::standing;
use anyhow::{Context as _, Result};

use crate::warren;

/// What `init` writes: every key of the language, with comments.
const BEGINNING: &str = include_str!("../../lab/topologies/beginning.toml");

/// What can be done with them.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Words {
    /// Write a topology file with comments, to begin with.
    Init {
        /// The file, which must not be there yet; - is standard output.
        #[arg(default_value = "lab.toml")]
        file: PathBuf,
    },
    /// Build the network of a topology file and leave it standing.
    Up {
        /// The topology, in TOML; `warren-lab init` writes one, and docs/lab.md tells the language.
        file: PathBuf,
    },
    /// Run a command in a host, with its network, its /etc and its /run.
    Exec {
        /// The lab, where several are up.
        #[arg(long)]
        lab: Option<String>,
        /// A host, router or switch.
        host: String,
        /// The program and its arguments.
        #[arg(
            required = true,
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "PROGRAM"
        )]
        command: Vec<String>,
    },
    /// Change what a link does to packets.
    ///
    /// A plain link becomes a wire, with a line of 1 Gbit/s: its addresses and routes stay, and it
    /// is away for a moment.
    Impair {
        /// The lab, where several are up.
        #[arg(long)]
        lab: Option<String>,
        /// Only one direction, as the link's `between` has them: forth or back.
        #[arg(long, value_parser = ["forth", "back"])]
        direction: Option<String>,
        /// The link's name; `warren-lab status` shows them.
        link: String,
        /// A profile (baseline, low, medium, high) or KEY=VALUE: delay=5ms jitter=1ms loss=1%
        /// burst=4 reorder=1% correlation=25% duplicate=1% rate=100mbit limit=1000
        /// handover=15s swing=7ms.
        #[arg(required = true)]
        words: Vec<String>,
    },
    /// Show hosts, links, and what each wire has done.
    Status {
        /// The lab, where several are up.
        #[arg(long)]
        lab: Option<String>,
        /// As JSON, in a stable schema.
        #[arg(long)]
        json: bool,
    },
    /// Remove a lab.
    Down {
        /// The lab, where several are up.
        lab: Option<String>,
    },
    /// Be an HTTPS proxy that opens TLS and reads it, as some offices have one.
    Proxy {
        /// Where it takes connections.
        #[arg(long, value_name = "ADDR:PORT")]
        listen: std::net::SocketAddr,
    },
    /// Move the frames of a lab's wires; `up` starts this in the background.
    #[command(hide = true)]
    WirePump {
        /// The lab.
        lab: String,
    },
}

/// Does what the words say.
pub(crate) fn run(words: Words) -> Result<()> {
    match words {
        Words::Init { file } => init(&file),
        Words::Up { file } => {
            let plan = standing::up(&file, pump_command)?;
            say(&format!("{} is up; `warren-lab down {}` removes it", plan.name, plan.name))
        }
        Words::Exec { lab, host, command } => {
            let argv: Vec<&str> = command.iter().map(String::as_str).collect();
            match standing::exec(lab.as_deref(), &host, &argv)? {}
        }
        Words::Impair { lab, direction, link, words } => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            standing::impair(lab.as_deref(), &link, direction.as_deref(), &words, pump_command)
        }
        Words::Status { lab, json } => {
            let status = standing::status(lab.as_deref())?;
            let text = if json { status.to_json()? } else { status.to_string() };
            say(text.trim_end())
        }
        Words::Down { lab } => {
            let lab = standing::down(lab.as_deref())?;
            say(&format!("{lab} is down"))
        }
        Words::Proxy { listen } => ::lab::proxy::serve(listen, |address| {
            let _ = say(&format!("proxy at {address}"));
        }),
        Words::WirePump { lab } => standing::pump(&lab),
    }
}

/// Writes the file to begin with.
fn init(file: &Path) -> Result<()> {
    if file.as_os_str() == "-" {
        return say(BEGINNING.trim_end());
    }
    let told = || format!("cannot write {}", file.display());
    let mut made = File::options().write(true).create_new(true).open(file).with_context(told)?;
    made.write_all(BEGINNING.as_bytes()).with_context(told)?;
    let file = file.display();
    say(&format!("{file} is written; `sudo warren-lab up {file}` builds its network"))
}

/// Names for completions, one a line; of a kind that is not known there are none.
pub(crate) fn names(kind: &str) -> Result<()> {
    let labs = if kind == "labs" { ::lab::netns::kept_labs() } else { Vec::new() };
    for lab in labs {
        say(&lab)?;
    }
    Ok(())
}

fn pump_command(lab: &str) -> Result<Command> {
    let mut command = Command::new(warren::own()?);
    command.args(["wire-pump", lab]);
    Ok(command)
}

fn say(text: &str) -> Result<()> {
    Ok(std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("{text}\n"))?)
}
