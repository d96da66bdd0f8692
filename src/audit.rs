//! `warren audit`: what was done, when, by whom.

use anyhow::Result;
use serde_json::Value;

use crate::admin::{Target, table};

/// Show what was done, when and by whom, the newest first.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// How many entries, at most 1000
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u32,
    /// Only entries with smaller numbers
    #[arg(long, value_name = "ID")]
    before: Option<u64>,
}

/// Shows it.
pub(crate) fn run(args: Args) -> Result<()> {
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
