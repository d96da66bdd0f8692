//! `warren names KIND`, which is for completions: names that a shell cannot know, one a line.
//! Whatever cannot be asked has no names, for a key that is pressed is no time to complain.

use std::path::Path;

use ::daemon::protocol::Request;
use ::daemon::{Client, SOCKET};
use anyhow::Result;
use serde_json::Value;

use crate::admin;
use crate::client::{say, text};

/// Names, at most: more than that nobody reads.
const NAMES_MAX: usize = 1000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(value_enum)]
    kind: Kind,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    /// Of this node's network, by its daemon.
    Peers,
    /// Of a server that is here, or that the environment has a token for.
    Nodes,
    /// Links that are served on this machine.
    Links,
    /// Files of links.
    Files,
}

/// Prints them.
pub(crate) fn run(args: &Args) -> Result<()> {
    let names = match args.kind {
        Kind::Peers => peers().unwrap_or_default(),
        Kind::Nodes => nodes().unwrap_or_default(),
        Kind::Links => entries(host::uapi::DIRECTORY, ".sock"),
        Kind::Files => entries(host::quick::DIRECTORY, ".conf"),
    };
    let mut names: Vec<String> = names.into_iter().filter(|name| is_plain(name)).collect();
    names.sort();
    names.truncate(NAMES_MAX);
    say(&names.iter().map(|name| format!("{name}\n")).collect::<String>())
}

/// A shell splits what it is given at spaces, and some read more than that.
fn is_plain(name: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || "-_.@".contains(c);
    !name.is_empty() && name.chars().all(fits)
}

fn peers() -> Result<Vec<String>> {
    let socket = std::env::var_os("WARREN_SOCKET").unwrap_or_else(|| SOCKET.into());
    let status = Client::connect(Path::new(&socket))?.ask(&Request::Status)?;
    Ok(named(&status["peers"]))
}

fn nodes() -> Result<Vec<String>> {
    let data = std::env::var_os("WARREN_DATA").map(Into::into);
    let token = std::env::var("WARREN_TOKEN").ok();
    let mut session = admin::Target::new(data, None, token, true).open()?;
    Ok(named(&session.call("GET", "/api/v1/nodes", &Value::Null)?["nodes"]))
}

fn named(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|one| text(one, "name").to_owned()).collect()
}

fn entries(directory: &str, end: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| Some(name.strip_suffix(end)?.to_owned())).collect()
}
