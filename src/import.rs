//! `warren import`: what another coordination server knows, taken over.
//!
//! Of Headscale that is its SQLite database, which is only read: users, the policy as it is, join
//! keys that are still good, and for each node a join key by which a machine gets that node's
//! name, address, user and tags. Keys of WireGuard stay behind: they are Tailscale clients' own.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use control::name::label_of;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use crate::admin::{Session, Target, plain};
use crate::client::{say, text, texts};

/// Take over what another server knows.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Words,
}

#[derive(Debug, clap::Subcommand)]
enum Words {
    /// Take over users, policy, join keys and nodes from Headscale's SQLite database.
    ///
    /// The file is only read; copy it first if Headscale runs. For each node a token is printed by
    /// which its machine gets name, address, user and tags again.
    #[command(
        after_help = "Example: warren import headscale /var/lib/headscale/db.sqlite --dry-run"
    )]
    Headscale {
        #[command(flatten)]
        target: Target,
        /// The database, usually /var/lib/headscale/db.sqlite
        file: PathBuf,
        /// Show what would be done, and do nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// A join key that is still good.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Key {
    user: Option<String>,
    reusable: bool,
    ephemeral: bool,
    tags: Vec<String>,
    expires_in_s: Option<u64>,
}

/// A node.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Node {
    name: String,
    address: Option<Ipv4Addr>,
    user: Option<String>,
    tags: Vec<String>,
    routes: Vec<String>,
}

/// What a database has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Found {
    users: Vec<String>,
    policy: Option<String>,
    keys: Vec<Key>,
    nodes: Vec<Node>,
}

/// Does what was asked for.
pub(crate) fn run(args: Args) -> Result<()> {
    let Words::Headscale { target, file, dry_run } = args.command;
    let read = read(&file)
        .with_context(|| format!("{} cannot be read as a database of Headscale", file.display()))?;
    if dry_run {
        return say(&planned(&read));
    }
    let mut session = target.open()?;
    say(&take(&mut session, &read)?)
}

/// A list as Headscale stores it.
fn list(text: Option<String>) -> Vec<String> {
    let read = text.and_then(|text| serde_json::from_str::<Option<Vec<String>>>(&text).ok());
    read.flatten().unwrap_or_default()
}

fn read(file: &Path) -> Result<Found> {
    let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let has = |table: &str, column: &str| -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2)";
        Ok(db.query_row(sql, [table, column], |row| row.get(0))?)
    };
    if !has("nodes", "given_name")? || !has("users", "name")? {
        bail!("it has no tables nodes and users as Headscale 0.23 and later makes them");
    }
    let tags = if has("nodes", "tags")? { "n.tags" } else { "n.forced_tags" };
    let routes = match has("nodes", "approved_routes")? {
        true => "n.approved_routes",
        false => "NULL",
    };
    let is_kept = "deleted_at IS NULL";
    // A user of an identity provider may have no name but an address.
    let user = "coalesce(nullif(name, ''), email)";
    let mut found = Found::default();
    let mut rows = db.prepare(&format!("SELECT {user} FROM users WHERE {is_kept} ORDER BY id"))?;
    let names = rows.query_map([], |row| row.get::<_, Option<String>>(0))?;
    for name in names {
        found.users.extend(name?);
    }
    let of = |id: &str| format!("(SELECT {user} FROM users WHERE id = {id} AND {is_kept})");
    let sql = format!(
        "SELECT coalesce(nullif(given_name, ''), hostname), ipv4, {}, {tags}, {routes}
         FROM nodes n WHERE {is_kept} ORDER BY id",
        of("n.user_id")
    );
    let mut rows = db.prepare(&sql)?;
    let nodes = rows.query_map([], |row| {
        let address: Option<String> = row.get(1)?;
        Ok(Node {
            name: label_of(&row.get::<_, String>(0)?),
            address: address.and_then(|text| text.parse().ok()),
            user: row.get(2)?,
            tags: list(row.get(3)?),
            routes: list(row.get(4)?),
        })
    })?;
    found.nodes = nodes.collect::<Result<_, _>>()?;
    if has("pre_auth_keys", "reusable")? {
        let sql = format!(
            "SELECT {}, reusable, ephemeral, tags, strftime('%s', expiration) - strftime('%s', \
             'now') FROM pre_auth_keys k WHERE (reusable OR NOT used) AND (expiration IS NULL OR \
             strftime('%s', expiration) - strftime('%s', 'now') > 0) ORDER BY id",
            of("k.user_id")
        );
        let mut rows = db.prepare(&sql)?;
        let keys = rows.query_map([], |row| {
            Ok(Key {
                user: row.get(0)?,
                reusable: row.get(1)?,
                ephemeral: row.get::<_, Option<bool>>(2)?.unwrap_or_default(),
                tags: list(row.get(3)?),
                expires_in_s: row.get::<_, Option<i64>>(4)?.map(i64::unsigned_abs),
            })
        })?;
        found.keys = keys.collect::<Result<_, _>>()?;
    }
    if has("policies", "data")? {
        let sql = format!("SELECT data FROM policies WHERE {is_kept} ORDER BY id DESC LIMIT 1");
        let mut rows = db.prepare(&sql)?;
        found.policy = rows.query_map([], |row| row.get(0))?.next().transpose()?;
    }
    Ok(found)
}

fn whose(user: Option<&String>, tags: &[String]) -> String {
    let user = user.map(|user| format!("user {user}"));
    let parts: Vec<String> = user.into_iter().chain(tags.iter().cloned()).collect();
    if parts.is_empty() { "nobody's".to_owned() } else { parts.join(", ") }
}

fn address(node: &Node) -> String {
    node.address.map_or_else(|| "a new address".to_owned(), |address| address.to_string())
}

fn planned(found: &Found) -> String {
    let mut out = String::new();
    for user in &found.users {
        let _ = writeln!(out, "user    {}", plain(user));
    }
    if let Some(policy) = &found.policy {
        let _ = writeln!(out, "policy  {} lines, as it is", policy.lines().count());
    }
    for key in &found.keys {
        let kind = if key.reusable { "reusable" } else { "for one node" };
        let whose = plain(&whose(key.user.as_ref(), &key.tags));
        let _ = writeln!(out, "key     {kind}, {whose}");
    }
    for node in &found.nodes {
        let whose = plain(&whose(node.user.as_ref(), &node.tags));
        let _ = writeln!(out, "node    {} {}, {whose}", node.name, address(node));
        for route in &node.routes {
            let _ = writeln!(out, "        route {}: approve it when it has joined", plain(route));
        }
    }
    out + "Nothing was done; without --dry-run it is.\n"
}

/// Does it, in an order in which each step finds what it needs; what is there already stays.
fn take(session: &mut Session, found: &Found) -> Result<String> {
    let mut out = String::new();
    let there = session.call("GET", "/api/v1/users", &Value::Null)?;
    let there: Vec<String> = (there["users"].as_array().into_iter().flatten())
        .map(|user| text(user, "name").to_owned())
        .collect();
    for user in &found.users {
        if there.contains(user) {
            let _ = writeln!(out, "user    {} is there already", plain(user));
            continue;
        }
        session.call("POST", "/api/v1/users", &json!({ "name": user }))?;
        let _ = writeln!(out, "user    {}", plain(user));
    }
    if let Some(policy) = &found.policy {
        let known = session.call("GET", "/api/v1/policy", &Value::Null)?;
        if known["version"] == 0 {
            let set = session.call("PUT", "/api/v1/policy", &json!({ "text": policy }));
            set.context("the policy is not taken; mend it in a file and `warren policy set` it")?;
            let _ = writeln!(out, "policy  as it was");
        } else {
            let _ = writeln!(out, "policy  one is set already, and stays");
        }
    }
    for key in &found.keys {
        let Key { user, reusable, ephemeral, tags, expires_in_s } = key;
        let wanted = json!({ "reusable": reusable, "ephemeral": ephemeral, "tags": tags,
                             "user": user, "expires_in_s": expires_in_s });
        let made = session.call("POST", "/api/v1/keys", &wanted)?;
        let whose = plain(&whose(key.user.as_ref(), &key.tags));
        let _ = writeln!(out, "key     {whose}: {}", text(&made, "token"));
    }
    let nodes = session.call("GET", "/api/v1/nodes", &Value::Null)?;
    let nodes: Vec<Value> = nodes["nodes"].as_array().cloned().unwrap_or_default();
    for node in &found.nodes {
        let is_there = |known: &&Value| {
            let has = |own: Ipv4Addr| texts(&known["addresses"]).any(|at| at.parse() == Ok(own));
            known["name"] == node.name.as_str() || node.address.is_some_and(has)
        };
        if let Some(known) = nodes.iter().find(is_there) {
            let name = plain(text(known, "name"));
            let _ = writeln!(out, "node    {}: {name} has its name or address already", node.name);
            continue;
        }
        let wanted = json!({ "name": node.name, "address": node.address, "user": node.user,
                             "tags": node.tags });
        let made = session.call("POST", "/api/v1/keys", &wanted);
        let made = made.with_context(|| {
            format!(
                "{} cannot have {}; `warren serve --range` of a new server says which addresses \
                 there are",
                node.name,
                address(node)
            )
        })?;
        let _ = writeln!(out, "node    {} {}: {}", node.name, address(node), text(&made, "token"));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_what_is_none_is_empty() {
        let read = |text: &str| list(Some(text.to_owned()));
        assert_eq!(read("[\"tag:a\",\"tag:b\"]"), ["tag:a", "tag:b"]);
        for other in ["", "null", "[]", "{}", "x"] {
            assert!(read(other).is_empty(), "{other}");
        }
        assert!(list(None).is_empty());
    }

    #[test]
    fn a_plan_says_what_would_be_done() {
        let node = Node {
            name: "robot".to_owned(),
            address: Some(Ipv4Addr::new(100, 64, 0, 7)),
            user: None,
            tags: vec!["tag:robot".to_owned()],
            routes: vec!["10.7.0.0/16".to_owned()],
        };
        let found =
            Found { users: vec!["ann\u{1b}".to_owned()], nodes: vec![node], ..Found::default() };
        let text = planned(&found);
        assert!(text.contains("node    robot 100.64.0.7, tag:robot"), "{text}");
        assert!(text.contains("route 10.7.0.0/16") && !text.contains('\u{1b}'), "{text}");
    }
}
