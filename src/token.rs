//! `warren token`: API tokens, for administrators and programs elsewhere.

use anyhow::Result;
use serde_json::{Value, json};

use crate::admin::{Target, lifetime, table};
use crate::lookup;

/// Manage API tokens, for commands and programs on other machines.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Words,
}

#[derive(Debug, clap::Subcommand)]
enum Words {
    /// Make a token and print it, on one line; it is shown this once.
    Create {
        #[command(flatten)]
        target: Target,
        /// What it may do: nodes, keys, users, policy, dns, tokens with :read or :write;
        /// audit:read; relay:serve for `warren relay`, metrics:read for a monitor, backup:read for
        /// a copy of everything; may be repeated
        #[arg(long = "scope", value_name = "SCOPE", required = true)]
        scopes: Vec<String>,
        /// When it ends, as in 90d [default: never]
        #[arg(long, alias = "expiration", value_name = "TIME", value_parser = lifetime)]
        expires: Option<u64>,
    },
    /// Show all tokens, without their secrets.
    List {
        #[command(flatten)]
        target: Target,
    },
    /// Take a token back.
    Expire {
        #[command(flatten)]
        target: Target,
        /// The token's number, what it begins with, as in `warren token list`, or the token itself
        #[arg(value_name = "TOKEN")]
        which: String,
    },
}

/// Does what was asked for.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Words::Create { target, scopes, expires } => {
            let mut session = target.open()?;
            let body = json!({ "scopes": scopes, "expires_in_s": expires });
            let answer = session.call("POST", "/api/v1/tokens", &body)?;
            session.aside(&lookup::made("token", &answer));
            session.print(&answer, |answer| {
                format!("{}\n", answer["token"].as_str().unwrap_or_default())
            })
        }
        Words::List { target } => {
            let mut session = target.open()?;
            let columns = [
                ("ID", "id"),
                ("BEGINS WITH", "front"),
                ("SCOPES", "scopes"),
                ("EXPIRES", "expires"),
                ("LAST USED", "last_used"),
                ("REVOKED", "revoked"),
            ];
            session.ask("GET", "/api/v1/tokens", &Value::Null, |answer| {
                table(&lookup::with_fronts("token", &answer["tokens"]), &columns)
            })
        }
        Words::Expire { target, which } => {
            let mut session = target.open()?;
            let id = lookup::number(&mut session, "token", &which)?;
            let path = format!("/api/v1/tokens/{id}/expire");
            session.done("POST", &path, &format!("token {id} is taken back"))
        }
    }
}
