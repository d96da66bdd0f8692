//! Shared by the commands of a node: the way to its daemon, and how answers are printed.

use std::io::Write;
use std::path::{Path, PathBuf};

use ::daemon::protocol::Request;
use ::daemon::{Client, SOCKET};
use anyhow::{Context, Result};
use serde_json::Value;

use crate::service;

/// Which daemon, and how its answer is printed.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Target {
    /// Where the daemon is found [default: /run/warren/warren.sock]
    #[arg(long, value_name = "PATH", env = "WARREN_SOCKET")]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON, in the form that docs/commands.md describes
    #[arg(long)]
    json: bool,
}

impl Target {
    /// Asks the daemon, once.
    pub(crate) fn ask(&self, request: &Request) -> Result<Value> {
        Ok(self.connect()?.ask(request)?)
    }

    /// A connection for several questions.
    pub(crate) fn connect(&self) -> Result<Client> {
        Ok(Client::connect(self.socket.as_deref().unwrap_or_else(|| Path::new(SOCKET)))?)
    }

    /// As [`Self::connect`]; where no daemon answers at the usual place, its service is started.
    pub(crate) fn connect_or_start(&self) -> Result<Client> {
        match self.connect() {
            Err(_) if self.socket.is_none() && service::start()? => self.connect(),
            other => other,
        }
    }

    /// Whether JSON is wanted.
    pub(crate) const fn json(&self) -> bool {
        self.json
    }

    /// Prints an answer: as JSON if that is wanted, else as `show` has it.
    pub(crate) fn print(&self, answer: &Value, show: impl FnOnce(&Value) -> String) -> Result<()> {
        print(self.json, answer, show)
    }
}

/// Prints an answer: as JSON if that is wanted, else as `show` has it.
pub(crate) fn print(json: bool, answer: &Value, show: impl FnOnce(&Value) -> String) -> Result<()> {
    say(&if json { answer.to_string() + "\n" } else { show(answer) })
}

/// Writes an answer where answers go.
pub(crate) fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).context("cannot write the answer")?;
    out.flush().context("cannot write the answer")
}

/// A text field of an answer.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// The texts of a list in an answer.
pub(crate) fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}
