//! `warren audit`: what was done, when, by whom, and whether the log is as it was written.

use anyhow::{Result, bail};
use serde_json::Value;

use crate::admin::{Target, plain, table};

/// Show what was done, when and by whom, the newest first.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Words>,
    #[command(flatten)]
    target: Target,
    /// How many entries, at most 1000
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u32,
    /// Only entries with smaller numbers
    #[arg(long, value_name = "ID")]
    before: Option<u64>,
}

#[derive(Debug, clap::Subcommand)]
enum Words {
    /// Look whether the log is as it was written: every entry has a hash of it and of all before.
    Verify {
        #[command(flatten)]
        target: Target,
    },
}

/// Shows it, or looks at it.
pub(crate) fn run(args: Args) -> Result<()> {
    if let Some(Words::Verify { target }) = args.command {
        return verify(target);
    }
    let mut session = args.target.open()?;
    let before = args.before.map(|id| format!("&before={id}")).unwrap_or_default();
    let path = format!("/api/v1/audit?limit={}{before}", args.limit);
    let columns = [
        ("ID", "id"),
        ("TIME", "time"),
        ("ACTOR", "actor"),
        ("ACTION", "action"),
        ("OBJECT", "object"),
        ("DETAIL", "detail"),
    ];
    session.ask("GET", &path, &Value::Null, |answer| table(&answer["entries"], &columns))
}

fn verify(target: Target) -> Result<()> {
    let mut session = target.open()?;
    let answer = session.call("GET", "/api/v1/audit/verify", &Value::Null)?;
    let entries = answer["entries"].as_u64().unwrap_or(0);
    let text = format!("{entries} entries are as they were written\n");
    session.print(&answer, |answer| match answer["why"].is_null() {
        true => text,
        false => String::new(),
    })?;
    match answer["why"].as_str() {
        None => Ok(()),
        Some(why) => bail!("the log was changed: {}; compare it with a backup", plain(why)),
    }
}
