//! `warren node`: the members of the network, and what became of each, in a sentence.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::admin::{Target, cell, fields, plain, table};
use crate::client::{text, texts};
use crate::route;

/// What the long help ends with.
const EXAMPLES: &str = "\
Examples:
  warren node list                      who is there, by which paths, and since when
  warren node show web                  everything about one node
  warren node tag web tag:web           give it a tag, which the policy knows
  warren node move laptop anna          it is anna's from now on";

/// Manage nodes, the members of the network.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
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
    /// Show all nodes: address, paths to others, version, when each was seen last.
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
    /// Give a node to another user.
    Move {
        #[command(flatten)]
        one: One,
        /// The user's name
        #[arg(required_unless_present = "nobody")]
        user: Option<String>,
        /// To nobody: no user's rights are its own
        #[arg(long, conflicts_with = "user")]
        nobody: bool,
    },
    /// Let a waiting node in.
    Approve(One),
    /// End a node's key now; it may join again with a token.
    Expire(One),
    /// Take a node out of the network at once.
    #[command(alias = "delete")]
    Remove(One),
}

/// Does what was asked for.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Words::List { target } => list(target),
        Words::Show(one) => act(one, "GET", "", &Value::Null, show),
        Words::Rename { one, name } => {
            let before = one.node.clone();
            act(one, "POST", "/rename", &json!({ "name": name }), |node| {
                format!("{} is {} now\n", plain(&before), name_of(node))
            })
        }
        Words::Tag { one, tags } => {
            let tags: Vec<String> = tags.into_iter().map(tagged).collect();
            act(one, "POST", "/tags", &json!({ "tags": tags }), |node| {
                let tags: Vec<&str> = texts(&node["tags"]).collect();
                match tags.is_empty() {
                    true => format!("{} has no tags now\n", name_of(node)),
                    false => format!("{} has the tags {} now\n", name_of(node), tags.join(", ")),
                }
            })
        }
        Words::Move { one, user, nobody } => {
            ensure!(nobody || user.is_some(), "name the user, or say --nobody");
            act(one, "POST", "/user", &json!({ "user": user }), |node| {
                let owner = node["user"].as_str().map_or_else(|| "nobody".to_owned(), plain);
                let tags = if texts(&node["tags"]).next().is_some() {
                    "; while it has tags it acts for no user"
                } else {
                    ""
                };
                format!("{} belongs to {owner} now{tags}\n", name_of(node))
            })
        }
        Words::Approve(one) => act(one, "POST", "/approve", &Value::Null, |node| {
            let addresses: Vec<&str> = texts(&node["addresses"]).collect();
            format!("{} is let in: {}\n", name_of(node), addresses.join(" "))
        }),
        Words::Expire(one) => act(one, "POST", "/expire", &Value::Null, |node| {
            let name = name_of(node);
            format!("the key of {name} has ended; there, `warren up TOKEN` joins again\n")
        }),
        Words::Remove(one) => remove(one),
    }
}

/// A tag, whether or not its word stands before it.
pub(crate) fn tagged(tag: String) -> String {
    if tag.starts_with("tag:") { tag } else { format!("tag:{tag}") }
}

fn name_of(node: &Value) -> String {
    plain(text(node, "name"))
}

fn remove(one: One) -> Result<()> {
    let mut session = one.target.open()?;
    let id = session.node(&one.node)?;
    session.done("DELETE", &format!("/api/v1/nodes/{id}"), &format!("{} is removed", one.node))
}

/// All nodes, with the paths that they report.
fn list(target: Target) -> Result<()> {
    let mut session = target.open()?;
    let answer = session.call("GET", "/api/v1/nodes", &Value::Null)?;
    // A server that takes no reports, or is older, tells no paths.
    let links = session.call("GET", "/api/v1/links", &Value::Null).unwrap_or_default();
    session.print(&answer, |answer| listed(answer, &links))
}

fn listed(answer: &Value, links: &Value) -> String {
    let columns = [
        ("ID", "id"),
        ("NAME", "name"),
        ("ADDRESS", "address"),
        ("STATE", "state"),
        ("PATHS", "paths"),
        ("VERSION", "program"),
        ("LAST SEEN", "seen"),
        ("USER", "user"),
        ("TAGS", "tags"),
    ];
    let paths = paths(links);
    let nodes = answer["nodes"].as_array().into_iter().flatten();
    let rows = nodes.map(|node| {
        let mut row = node.clone();
        let is_online = node["online"] == true;
        row["address"] = node["addresses"][0].clone();
        row["state"] = json!(state(node));
        row["seen"] = if is_online { json!("now") } else { node["last_seen"].clone() };
        let paths = node["id"].as_u64().filter(|_| is_online).and_then(|id| paths.get(&id));
        row["paths"] = json!(paths.map(|[direct, relay]| match (direct, relay) {
            (direct, 0) => format!("{direct} direct"),
            (0, relay) => format!("{relay} relay"),
            (direct, relay) => format!("{direct} direct, {relay} relay"),
        }));
        row
    });
    table(&rows.collect(), &columns)
}

/// How many links of each node go directly, and how many through a relay.
fn paths(links: &Value) -> BTreeMap<u64, [u64; 2]> {
    let mut paths = BTreeMap::new();
    for link in links["links"].as_array().into_iter().flatten() {
        let Some(node) = link["node"].as_u64() else { continue };
        let [direct, relay] = paths.entry(node).or_insert([0; 2]);
        match text(link, "path") {
            "direct" => *direct += 1,
            "relay" => *relay += 1,
            _ => {}
        }
    }
    paths.retain(|_, counts| *counts != [0; 2]);
    paths
}

/// A node's standing, in two words at most.
fn state(node: &Value) -> &'static str {
    match () {
        () if node["approved"] == false => "waits",
        () if node["expired"] == true => "key ended",
        () if node["online"] == true => "online",
        () if !node["gateway"].is_null() => "by gateway",
        () => "offline",
    }
}

/// Everything about a node, what people ask for first.
fn show(node: &Value) -> String {
    let order = [
        "name",
        "id",
        "addresses",
        "user",
        "tags",
        "online",
        "last_seen",
        "program",
        "approved",
        "expired",
        "expires",
        "created",
        "ephemeral",
        "hostname",
        "os",
        "endpoints",
        "gateway",
        "key",
        "machine",
    ];
    let mut out = fields(node, &order);
    for (route, state) in route::states(node) {
        out += &format!("route: {}, {state}\n", plain(&route));
    }
    if route::states(node).is_empty() {
        out += &format!("routes: {}\n", cell(&Value::Null));
    }
    out
}

/// One call on a node, and what is so then.
fn act(
    one: One,
    method: &str,
    action: &str,
    body: &Value,
    show: impl FnOnce(&Value) -> String,
) -> Result<()> {
    let mut session = one.target.open()?;
    let path = format!("/api/v1/nodes/{}{action}", session.node(&one.node)?);
    session.ask(method, &path, body, |answer| show(&answer["node"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Value {
        json!({
            "id": 7, "name": "web", "addresses": ["100.64.0.7", "fd7a::7"], "online": true,
            "approved": true, "expired": false, "expires": null, "program": "0.1.0",
            "last_seen": "2026-11-29T05:00:00Z", "user": "anna", "tags": [],
            "routes": { "advertised": ["10.7.0.0/16", "10.8.0.0/16"], "aliases": [],
                        "approved": ["10.7.0.0/16"], "active": ["10.7.0.0/16"] },
        })
    }

    #[test]
    fn a_list_tells_paths_version_and_when_each_was_seen() {
        let mut away = node();
        (away["id"], away["name"]) = (json!(8), json!("db"));
        away["online"] = json!(false);
        let answer = json!({ "nodes": [node(), away] });
        let links = json!({ "links": [
            { "node": 7, "peer": 8, "path": "direct" }, { "node": 7, "peer": 9, "path": "relay" },
            { "node": 7, "peer": 1, "path": "direct" }, { "node": 8, "peer": 7, "path": "none" },
        ] });
        let shown = listed(&answer, &links);
        let lines: Vec<&str> = shown.lines().collect();
        let words = |n: usize| lines[n].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(1), "7 web 100.64.0.7 online 2 direct, 1 relay 0.1.0 now anna -");
        assert_eq!(words(2), "8 db 100.64.0.7 offline - 0.1.0 2026-11-29T05:00:00Z anna -");
    }

    #[test]
    fn a_node_is_shown_in_order_and_without_json() {
        let shown = show(&node());
        let first: Vec<&str> = shown.lines().take(3).collect();
        assert_eq!(first, ["name: web", "id: 7", "addresses: 100.64.0.7,fd7a::7"]);
        assert!(shown.contains("route: 10.8.0.0/16, waits for approval\n"), "{shown}");
        assert!(shown.contains("expired: no\n") && !shown.contains('{'), "{shown}");
    }
}
