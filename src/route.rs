//! `warren route approve`: which prefixes may be reached through a node.

use ::daemon::Offer;
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
        /// Prefixes, as in 10.7.0.0/16, or with what the network knows one by, as in
        /// 192.168.1.0/24=10.99.1.0/24; none takes all away
        #[arg(value_delimiter = ',')]
        routes: Vec<Offer>,
    },
}

/// Does what was asked for.
pub(crate) fn run(args: Args) -> Result<()> {
    let Words::Approve { target, node, routes } = args.command;
    let mut session = target.open()?;
    let id = session.node(&node)?;
    let routes: Vec<Prefix> = routes.iter().map(Offer::route).collect();
    node::on(&mut session, id, "POST", "/routes", &json!({ "routes": routes }))
}
