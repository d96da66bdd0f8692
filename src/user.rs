//! `warren user`: who nodes belong to, who may sign in, and what they may do.

use std::io::{BufRead as _, IsTerminal as _};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::admin::{Session, Target, plain, table};
use crate::client::text;

/// What the long help ends with.
const EXAMPLES: &str = "\
Examples:
  warren user create anna --role owner --password    the first one, who then signs in in a browser
  warren user create ben                             somebody to whom nodes belong
  warren user password ben < file                    a password from a file, on its first line
  warren user role ben operator";

/// Manage users: to whom nodes belong, who may sign in, and what they may do.
///
/// Roles: member (its own nodes), auditor (reads everything), operator (nodes, join keys, names),
/// admin (all but backups), owner (everything).
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
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
        /// What the user may do: member, auditor, operator, admin or owner [default: member]
        #[arg(long, value_name = "ROLE")]
        role: Option<String>,
        /// Ask for a password, by which the user signs in; or read it from standard input
        #[arg(long)]
        password: bool,
    },
    /// Show all users.
    List {
        #[command(flatten)]
        target: Target,
    },
    /// Give a user another role; who is signed in signs in again.
    Role {
        #[command(flatten)]
        target: Target,
        /// The user's name or number
        user: String,
        /// member, auditor, operator, admin or owner
        role: String,
    },
    /// Give a user a password, asked for or from standard input; its sessions end.
    Password {
        #[command(flatten)]
        target: Target,
        /// The user's name or number
        user: String,
        /// Take the password: the user signs in with none
        #[arg(long)]
        remove: bool,
    },
    /// End all sessions of a user.
    SignOut {
        #[command(flatten)]
        target: Target,
        /// The user's name or number
        user: String,
    },
    /// Remove a user who owns nothing.
    #[command(aliases = ["destroy", "delete"])]
    Remove {
        #[command(flatten)]
        target: Target,
        /// The user's name or number
        user: String,
    },
}

/// Does what was asked for.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Words::Create { target, name, role, password } => {
            let password = password.then(ask_password).transpose()?;
            let mut wanted = json!({ "name": name });
            for (field, value) in [("role", role), ("password", password)] {
                if let Some(value) = value {
                    wanted[field] = value.into();
                }
            }
            target.open()?.ask("POST", "/api/v1/users", &wanted, |answer| {
                let user = &answer["user"];
                let (name, role) = (plain(text(user, "name")), text(user, "role"));
                format!("{name} is user {}, with the role {role}\n", user["id"])
            })
        }
        Words::List { target } => {
            let columns = [
                ("ID", "id"),
                ("NAME", "name"),
                ("ROLE", "role"),
                ("PASSWORD", "password"),
                ("GROUPS", "groups"),
                ("PROVIDER", "issuer"),
                ("CREATED", "created"),
            ];
            target.open()?.ask("GET", "/api/v1/users", &Value::Null, |answer| {
                table(&answer["users"], &columns)
            })
        }
        Words::Role { target, user: named, role } => {
            let mut session = target.open()?;
            let path = path(&mut session, &named, "/role")?;
            session.ask("POST", &path, &json!({ "role": role }), |answer| {
                let user = &answer["user"];
                format!("{} has the role {} now\n", plain(text(user, "name")), text(user, "role"))
            })
        }
        Words::Password { target, user: named, remove } => {
            let mut session = target.open()?;
            let path = path(&mut session, &named, "/password")?;
            let password = if remove { None } else { Some(ask_password()?) };
            let state = if remove { "no password" } else { "another password" };
            let answer = session.call("POST", &path, &json!({ "password": password }))?;
            session.aside(&format!("{named} has {state} now, and is signed out everywhere\n"));
            session.print(&answer, |_| String::new())
        }
        Words::SignOut { target, user: named } => {
            let mut session = target.open()?;
            let path = path(&mut session, &named, "/sign-out")?;
            session.ask("POST", &path, &Value::Null, |answer| {
                format!("sessions of {} that ended: {}\n", plain(&named), answer["sessions"])
            })
        }
        Words::Remove { target, user: named } => {
            let mut session = target.open()?;
            let path = path(&mut session, &named, "")?;
            session.done("DELETE", &path, &format!("user {named} is removed"))
        }
    }
}

/// The path of a user who is named by name or number.
fn path(session: &mut Session, named: &str, what: &str) -> Result<String> {
    let id = session.user(named)?;
    Ok(format!("/api/v1/users/{id}{what}"))
}

/// A password: asked for twice at a terminal, else the first line of standard input.
fn ask_password() -> Result<String> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        let mut line = String::new();
        input.lock().read_line(&mut line).context("cannot read the password")?;
        return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
    }
    let ask =
        |what: &str| host::linux::terminal::ask_hidden(what).context("cannot ask for a password");
    let first = ask("Password: ")?;
    if first != ask("Again: ")? {
        bail!("the two are not the same; nothing was changed");
    }
    Ok(first)
}
