//! `warren down`, `warren logout` and `warren set`: one question each.

use ::daemon::protocol::Request;
use anyhow::Result;

use crate::client::Target;
use crate::wish::Wish;

/// Be down: a member still, but without interface and peers, until `warren up`.
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
#[derive(Debug, clap::Args)]
pub(crate) struct Set {
    #[command(flatten)]
    pub(crate) target: Target,
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
    args.target.print(&answer, |_| String::new())
}

/// Changes.
pub(crate) fn set(args: Set) -> Result<()> {
    let changes = args.wish.changes();
    anyhow::ensure!(!changes.is_empty(), "nothing to set is mentioned; see warren set --help");
    let answer = args.target.ask(&Request::Set { changes })?;
    args.target.print(&answer, |_| String::new())
}
