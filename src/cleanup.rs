//! `warren cleanup`: what a killed daemon left is undone.

use std::path::{Path, PathBuf};

use ::daemon::state;
use anyhow::{Result, bail};
use host::gateway;
use host::linux::room;
use host::names::resolver;
use host::sockets::carriers;

/// Undo what a killed daemon left: resolvers, rules, routes, packet filters and settings, and the
/// namespaces of `warren circuit run`.
///
/// The next start of the daemon does the same by itself, so no service has to run this: it is for
/// a machine on which no daemon will start again. Must not be run while a daemon runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the daemon keeps its state
    #[arg(long, value_name = "DIR", default_value = state::DIRECTORY, env = "WARREN_STATE")]
    state: PathBuf,
}

/// Undoes one kind of what was left.
type Undo = fn(&Path) -> Result<(), String>;

/// All that a daemon or a link may leave when it is killed.
const LEFTOVERS: [Undo; 4] = [
    |state| {
        let restored = resolver::restore_leftovers(&resolver::Paths::system(state));
        restored.map(drop).map_err(|error| error.to_string())
    },
    |state| gateway::clear_leftovers(state).map_err(|error| error.to_string()),
    |_| {
        room::clear_leftovers();
        Ok(())
    },
    |_| carriers::clear_leftovers(),
];

/// Undoes all that can be.
pub(crate) fn run(args: &Args) -> Result<()> {
    let errors = LEFTOVERS.iter().filter_map(|undo| undo(&args.state).err());
    let errors: Vec<String> = errors.collect();
    if errors.is_empty() { Ok(()) } else { bail!("{}", errors.join("; and ")) }
}
