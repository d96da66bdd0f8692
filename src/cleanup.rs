//! `warren cleanup`: what a killed daemon left is undone.

use std::path::PathBuf;

use ::daemon::state;
use anyhow::{Result, bail};
use host::{carriers, gateway, resolver, room};

/// Undo what a killed daemon left: resolvers, rules, routes, packet filter, settings, and rooms.
///
/// The next start of the daemon does the same by itself. A service runs this after the daemon has
/// ended, whatever ended it (systemd: ExecStopPost). Must not be run while a daemon runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the daemon keeps its state
    #[arg(long, value_name = "DIR", default_value = state::DIRECTORY, env = "WARREN_STATE")]
    state: PathBuf,
}

/// Undoes all that can be.
pub(crate) fn run(args: &Args) -> Result<()> {
    let resolvers = resolver::restore_leftovers(&resolver::Paths::system(&args.state));
    let gateway = gateway::clear_leftovers(&args.state);
    room::clear_leftovers();
    let echoes = carriers::clear_leftovers();
    let errors = [
        resolvers.err().map(|error| error.to_string()),
        gateway.err().map(|error| error.to_string()),
        echoes.err(),
    ];
    let errors: Vec<String> = errors.into_iter().flatten().collect();
    if errors.is_empty() { Ok(()) } else { bail!("{}", errors.join("; and ")) }
}
