//! `warren route approve`: which prefixes may be reached through a node.

use anyhow::Result;
use control::Prefix;
use serde_json::json;

use crate::admin::Target;
use crate::node;

/// Administrate routes, which lead elsewhere through a node.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Words,
}

#[derive(Debug, clap::Subcommand)]
enum Words {
    /// Approve exactly these routes of a node; they are active as far as it advertises them.
    Approve {
        #[command(flatten)]
        target: Target,
        /// The node's name or number
        node: String,
        /// Prefixes, as in 10.7.0.0/16; none takes all away
        #[arg(value_delimiter = ',')]
        routes: Vec<Prefix>,
    },
}

/// Does what was asked for.
pub(crate) fn run(args: Args) -> Result<()> {
    let Words::Approve { target, node, routes } = args.command;
    let mut session = target.open()?;
    let id = session.node(&node)?;
    node::on(&mut session, id, "POST", "/routes", &json!({ "routes": routes }))
}
