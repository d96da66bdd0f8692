//! `warren down`, `warren logout` and `warren set`: one question each.

use ::daemon::protocol::{How, Request};
use anyhow::Result;

use crate::admin::lifetime;
use crate::client::{Target, text, texts};
use crate::wish::Wish;

/// Disconnect and stay a member: no interface and no peers until `warren up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Leave the network: the server forgets this node, and it forgets its keys.
#[derive(Debug, clap::Args)]
pub(crate) struct Logout {
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Change settings, only those that are mentioned.
///
/// With --for the change is on trial: it goes back by itself after that time, and when the daemon
/// starts again, unless it is confirmed with --confirm or by the same command without --for.
#[derive(Debug, clap::Args)]
pub(crate) struct Set {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Take an exit node that is none yet: nothing leaves this machine until it is
    #[arg(long)]
    force: bool,
    /// Go back to the settings of now after this time, as in 60s, unless confirmed
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    r#for: Option<u64>,
    /// Keep what is on trial
    #[arg(long)]
    confirm: bool,
    #[command(flatten)]
    wish: Wish,
}

/// Goes down.
pub(crate) fn run(args: Args) -> Result<()> {
    let answer = args.target.ask(&Request::Down)?;
    args.target.print(&answer, |_| String::new())
}

/// Leaves.
pub(crate) fn logout(args: Logout) -> Result<()> {
    let answer = args.target.ask(&Request::Logout)?;
    args.target.print(&answer, |answer| match text(answer, "note") {
        "" => String::new(),
        note => format!("{note}\n"),
    })
}

/// Changes.
pub(crate) fn set(args: Set) -> Result<()> {
    let changes = args.wish.changes();
    let is_said = args.confirm || !changes.is_empty();
    anyhow::ensure!(is_said, "nothing to set is mentioned; see warren set --help");
    let how = How { force: args.force, for_s: args.r#for, confirm: args.confirm };
    let answer = args.target.ask(&Request::Set { changes, how })?;
    args.target.print(&answer, |answer| {
        let said = texts(&answer["said"]).map(|line| format!("{line}\n"));
        let warnings = texts(&answer["warnings"]).map(|line| format!("Warning: {line}\n"));
        said.chain(warnings).collect()
    })
}
