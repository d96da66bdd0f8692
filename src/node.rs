//! `warren node`: the members of the network.

use anyhow::Result;
use serde_json::{Value, json};

use crate::admin::{Session, Target, fields, table};

/// Administrate nodes, the members of the network.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Words,
}

#[derive(Debug, clap::Args)]
struct One {
    #[command(flatten)]
    target: Target,
    /// The node's name or number
    node: String,
}

#[derive(Debug, clap::Subcommand)]
enum Words {
    /// Show all nodes.
    List {
        #[command(flatten)]
        target: Target,
    },
    /// Show everything about a node.
    Show(One),
    /// Give a node another name.
    Rename {
        #[command(flatten)]
        one: One,
        /// The new name: lower-case letters, digits and hyphens
        name: String,
    },
    /// Give a node these tags and no others.
    Tag {
        #[command(flatten)]
        one: One,
        /// Tags as in tag:robot; none takes all away
        tags: Vec<String>,
    },
    /// Let a waiting node in.
    Approve(One),
    /// End a node's key now; it may join again with a token.
    Expire(One),
    /// Take a node out of the network at once.
    Remove(One),
}

/// Does what was asked for.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Words::List { target } => {
            let mut session = target.open()?;
            let columns = [
                ("ID", "id"),
                ("NAME", "name"),
                ("ADDRESSES", "addresses"),
                ("ONLINE", "online"),
                ("LAST SEEN", "last_seen"),
                ("APPROVED", "approved"),
                ("EXPIRES", "expires"),
                ("TAGS", "tags"),
                ("USER", "user"),
            ];
            session.ask("GET", "/api/v1/nodes", &Value::Null, |answer| {
                table(&answer["nodes"], &columns)
            })
        }
        Words::Show(one) => act(one, "GET", "", &Value::Null),
        Words::Rename { one, name } => act(one, "POST", "/rename", &json!({ "name": name })),
        Words::Tag { one, tags } => act(one, "POST", "/tags", &json!({ "tags": tags })),
        Words::Approve(one) => act(one, "POST", "/approve", &Value::Null),
        Words::Expire(one) => act(one, "POST", "/expire", &Value::Null),
        Words::Remove(one) => act(one, "DELETE", "", &Value::Null),
    }
}

fn act(one: One, method: &str, action: &str, body: &Value) -> Result<()> {
    let mut session = one.target.open()?;
    let id = session.node(&one.node)?;
    on(&mut session, id, method, action, body)
}

/// One call on a node whose number is known.
pub(crate) fn on(
    session: &mut Session,
    id: u64,
    method: &str,
    action: &str,
    body: &Value,
) -> Result<()> {
    session
        .ask(method, &format!("/api/v1/nodes/{id}{action}"), body, |answer| fields(&answer["node"]))
}
