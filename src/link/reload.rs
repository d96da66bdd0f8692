//! `warren link reload NAME`: a link reads its file again.

use anyhow::{Result, bail};

use super::status::request;
use crate::client::say;

/// What the long help ends with.
const EXAMPLES: &str = "\
Examples:
  warren link reload wg0
  kill -HUP $(cat /run/wg0.pid)    the same, by --pid-file of `link up`";

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Reload {
    /// The interface of a link that `warren link up` brought up
    name: String,
}

/// Asks, and says what came of it.
pub(super) fn run(args: &Reload) -> Result<()> {
    let name = &args.name;
    let Some(told) = request(name, "reload")? else {
        bail!(
            "{name} is not served by a `warren link up` of this version; send that SIGHUP, or \
             bring the link up again"
        );
    };
    if let Some(why) = told["error"].as_str() {
        bail!("{name}: {why}");
    }
    let what = match told["changes"].as_u64() {
        Some(0) | None => "nothing changed".to_owned(),
        Some(1) => "1 change is in force".to_owned(),
        Some(count) => format!("{count} changes are in force"),
    };
    say(&format!("{name}: read again; {what}\n"))
}
