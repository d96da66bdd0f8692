//! `warren user`: who nodes belong to.

use anyhow::Result;
use serde_json::{Value, json};

use crate::admin::{Target, fields, table};

/// Administrate users, to whom nodes belong.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Words,
}

#[derive(Debug, clap::Subcommand)]
enum Words {
    /// Make a user.
    Create {
        #[command(flatten)]
        target: Target,
        /// The name
        name: String,
    },
    /// Show all users.
    List {
        #[command(flatten)]
        target: Target,
    },
    /// Remove a user who owns nothing.
    Remove {
        #[command(flatten)]
        target: Target,
        /// The user's number; `warren user list` shows it
        id: u64,
    },
}

/// Does what was asked for.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Words::Create { target, name } => {
            let mut session = target.open()?;
            session.ask("POST", "/api/v1/users", &json!({ "name": name }), |answer| {
                fields(&answer["user"])
            })
        }
        Words::List { target } => {
            let mut session = target.open()?;
            let columns = [("ID", "id"), ("NAME", "name"), ("CREATED", "created")];
            session.ask("GET", "/api/v1/users", &Value::Null, |answer| {
                table(&answer["users"], &columns)
            })
        }
        Words::Remove { target, id } => {
            let mut session = target.open()?;
            session.ask("DELETE", &format!("/api/v1/users/{id}"), &Value::Null, fields)
        }
    }
}
