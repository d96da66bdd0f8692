//! `warren key`: join keys, which let nodes in.

use anyhow::Result;
use serde_json::{Value, json};

use crate::admin::{Target, fields, lifetime, table};

/// Administrate join keys, which let nodes in.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Words,
}

#[derive(Debug, clap::Subcommand)]
enum Words {
    /// Make a join key and print its token, on one line; it is shown this once.
    Create {
        #[command(flatten)]
        target: Target,
        /// For any number of nodes, not for one
        #[arg(long)]
        reusable: bool,
        /// Its nodes are removed when they were away for five minutes
        #[arg(long)]
        ephemeral: bool,
        /// When it ends, as in 24h [default: never]
        #[arg(long, value_name = "TIME", value_parser = lifetime)]
        expires: Option<u64>,
        /// A tag of its nodes, as in tag:robot; may be repeated
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
        /// The user whose its nodes are
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// The name that its one node gets, whatever the machine calls itself
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// The IPv4 address that its one node gets
        #[arg(long, value_name = "ADDRESS")]
        address: Option<std::net::Ipv4Addr>,
    },
    /// Show all join keys, without their secrets.
    List {
        #[command(flatten)]
        target: Target,
    },
    /// Take a join key back; its nodes stay.
    Expire {
        #[command(flatten)]
        target: Target,
        /// The key's number; `warren key list` shows it
        id: u64,
    },
}

/// Does what was asked for.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Words::Create { target, reusable, ephemeral, expires, tags, user, name, address } => {
            let mut session = target.open()?;
            let tags: Vec<String> = tags
                .into_iter()
                .map(|tag| if tag.starts_with("tag:") { tag } else { format!("tag:{tag}") })
                .collect();
            let wanted = json!({ "reusable": reusable, "ephemeral": ephemeral, "tags": tags,
                                 "expires_in_s": expires, "user": user, "name": name,
                                 "address": address });
            session.ask("POST", "/api/v1/keys", &wanted, |answer| {
                format!("{}\n", answer["token"].as_str().unwrap_or_default())
            })
        }
        Words::List { target } => {
            let mut session = target.open()?;
            let columns = [
                ("ID", "id"),
                ("PREFIX", "prefix"),
                ("REUSABLE", "reusable"),
                ("EPHEMERAL", "ephemeral"),
                ("TAGS", "tags"),
                ("USER", "user"),
                ("EXPIRES", "expires"),
                ("USED", "used"),
                ("REVOKED", "revoked"),
            ];
            session
                .ask("GET", "/api/v1/keys", &Value::Null, |answer| table(&answer["keys"], &columns))
        }
        Words::Expire { target, id } => {
            let mut session = target.open()?;
            let path = format!("/api/v1/keys/{id}/expire");
            session.ask("POST", &path, &Value::Null, fields)
        }
    }
}
