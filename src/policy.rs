//! `warren policy get` and `set`: the text that says who may reach what.

use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::admin::{Target, fields};

/// The longest policy that is read, in bytes; the server takes less.
const TEXT_MAX: u64 = 16 * 1024 * 1024;

/// Administrate the policy, which says who may reach what.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Words,
}

#[derive(Debug, clap::Subcommand)]
enum Words {
    /// Print the policy that holds, as it was set.
    Get {
        #[command(flatten)]
        target: Target,
    },
    /// Make a file the policy.
    Set {
        #[command(flatten)]
        target: Target,
        /// The file; - is standard input
        file: PathBuf,
        /// Only if this version still holds
        #[arg(long, value_name = "VERSION")]
        if_version: Option<u64>,
    },
}

/// Does what was asked for.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Words::Get { target } => {
            let mut session = target.open()?;
            let answer = session.call("GET", "/api/v1/policy", &Value::Null)?;
            session.print(&answer, |answer| answer["text"].as_str().unwrap_or_default().to_owned())
        }
        Words::Set { target, file, if_version } => {
            let told = || format!("cannot read the policy from {}", file.display());
            let mut text = String::new();
            if file.as_os_str() == "-" {
                let stdin = std::io::stdin().lock().take(TEXT_MAX);
                { stdin }.read_to_string(&mut text).with_context(told)?;
            } else {
                let opened = std::fs::File::open(&file).with_context(told)?;
                opened.take(TEXT_MAX).read_to_string(&mut text).with_context(told)?;
            }
            let mut session = target.open()?;
            let body = json!({ "text": text, "if_version": if_version });
            let answer = session.call("PUT", "/api/v1/policy", &body)?;
            session.print(&answer, fields)
        }
    }
}
