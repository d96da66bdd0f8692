//! `warren key`: join keys, which let nodes in.

use anyhow::Result;
use serde_json::{Value, json};

use crate::admin::{Target, lifetime, table};
use crate::lookup;
use crate::node::tagged;

/// Manage join keys, which let nodes in.
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
        /// Its nodes leave when they stop, or when nothing was heard of them for five minutes
        #[arg(long)]
        ephemeral: bool,
        /// When it ends, as in 24h [default: never]
        #[arg(long, alias = "expiration", value_name = "TIME", value_parser = lifetime)]
        expires: Option<u64>,
        /// A tag of its nodes, as in tag:robot; may be repeated
        #[arg(long = "tag", alias = "tags", value_name = "TAG", value_delimiter = ',')]
        tags: Vec<String>,
        /// The user to whom its nodes belong
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
        /// The key's number, what it begins with, as in `warren key list`, or the token itself
        key: String,
    },
}

/// Does what was asked for.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Words::Create { target, reusable, ephemeral, expires, tags, user, name, address } => {
            let mut session = target.open()?;
            let tags: Vec<String> = tags.into_iter().map(tagged).collect();
            let wanted = json!({ "reusable": reusable, "ephemeral": ephemeral, "tags": tags,
                                 "expires_in_s": expires, "user": user, "name": name,
                                 "address": address });
            let answer = session.call("POST", "/api/v1/keys", &wanted)?;
            session.aside(&lookup::made("key", &answer));
            session.print(&answer, |answer| {
                format!("{}\n", answer["token"].as_str().unwrap_or_default())
            })
        }
        Words::List { target } => {
            let mut session = target.open()?;
            let columns = [
                ("ID", "id"),
                ("BEGINS WITH", "front"),
                ("REUSABLE", "reusable"),
                ("EPHEMERAL", "ephemeral"),
                ("TAGS", "tags"),
                ("USER", "user"),
                ("EXPIRES", "expires"),
                ("USED", "used"),
                ("REVOKED", "revoked"),
            ];
            session.ask("GET", "/api/v1/keys", &Value::Null, |answer| {
                table(&lookup::with_fronts("key", &answer["keys"]), &columns)
            })
        }
        Words::Expire { target, key } => {
            let mut session = target.open()?;
            let id = lookup::number(&mut session, "key", &key)?;
            let path = format!("/api/v1/keys/{id}/expire");
            session.done("POST", &path, &format!("key {id} is taken back; its nodes stay"))
        }
    }
}
