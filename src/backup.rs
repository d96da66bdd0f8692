//! `warren backup`: everything that a server has, in one file.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::json;

use crate::admin::DATA;

/// Copy everything that a server has into one file, also while it runs.
///
/// To restore, stop the server, put the file in the place of warren.db in an empty directory, and
/// start it with that. The file has the server's own keys: keep it as you keep the directory.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory of the server on this machine
    #[arg(long, value_name = "DIR", default_value = DATA, env = "WARREN_DATA")]
    data: PathBuf,
    /// As JSON, in a stable schema
    #[arg(long)]
    json: bool,
    /// The new file
    file: PathBuf,
}

/// Writes the file.
pub(crate) fn run(args: Args) -> Result<()> {
    let len = ::server::backup(&args.data, &args.file).context("no backup was made")?;
    let text = match args.json {
        true => format!("{}\n", json!({ "schema": 1, "bytes": len })),
        false => format!("{}: {len} bytes\n", args.file.display()),
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
