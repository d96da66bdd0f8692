//! `warren route`: which prefixes may be reached through a node, and what waits for approval.

use std::collections::BTreeSet;

use ::daemon::Offer;
use anyhow::Result;
use control::Prefix;
use serde_json::{Value, json};

use crate::admin::{Target, plain, table};
use crate::client::{text, texts};

/// What the long help ends with.
const EXAMPLES: &str = "\
Examples:
  warren route list                           all routes, those first that wait for approval
  warren route approve gw 10.7.0.0/16         let others reach that prefix through gw
  warren route approve gw 0.0.0.0/0 ::/0      let others reach the Internet through gw";

/// Manage routes, which lead elsewhere through a node.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Words,
}

#[derive(Debug, clap::Subcommand)]
enum Words {
    /// Show the routes of all nodes: what is active, and what waits for approval.
    List {
        #[command(flatten)]
        target: Target,
    },
    /// Approve exactly these routes of a node; they are active as far as it advertises them.
    Approve {
        #[command(flatten)]
        target: Target,
        /// The node's name or number
        node: String,
        /// Prefixes, as in 10.7.0.0/16, or with what the network knows one by, as in
        /// 192.168.1.0/24=10.99.1.0/24
        #[arg(value_delimiter = ',', required_unless_present = "none")]
        routes: Vec<Offer>,
        /// Take all of them away
        #[arg(long, conflicts_with = "routes")]
        none: bool,
    },
}

/// A route that is in use.
const ACTIVE: &str = "active";
/// One that its node offers and nobody approved.
const WAITS: &str = "waits for approval";
/// One that is approved and that its node does not offer.
const UNOFFERED: &str = "approved, not offered";

/// Does what was asked for.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Words::List { target } => target.open()?.ask("GET", "/api/v1/nodes", &Value::Null, list),
        Words::Approve { target, node, routes, none: _ } => {
            let mut session = target.open()?;
            let id = session.node(&node)?;
            let routes: Vec<Prefix> = routes.iter().map(Offer::route).collect();
            let body = json!({ "routes": routes });
            let path = format!("/api/v1/nodes/{id}/routes");
            session.ask("POST", &path, &body, |answer| approved(&answer["node"]))
        }
    }
}

/// The routes of a node as people write them, and how it stands with each: two or three words.
pub(crate) fn states(node: &Value) -> Vec<(String, &'static str)> {
    let of = |field: &str| texts(&node["routes"][field]).collect::<BTreeSet<&str>>();
    let [advertised, approved, active] = ["advertised", "approved", "active"].map(of);
    let aliases = || node["routes"]["aliases"].as_array().into_iter().flatten();
    let shown = |route: &str| match aliases().find(|alias| alias["alias"] == route) {
        Some(alias) => format!("{} as {route}", text(alias, "prefix")),
        None => route.to_owned(),
    };
    let state = |route: &str| match () {
        () if active.contains(route) => ACTIVE,
        () if approved.contains(route) => UNOFFERED,
        () => WAITS,
    };
    let all = advertised.union(&approved);
    let mut states: Vec<_> = all.map(|route| (shown(route), state(route))).collect();
    states.sort_by_key(|(_, state)| *state != WAITS);
    states
}

fn list(answer: &Value) -> String {
    let nodes = answer["nodes"].as_array().into_iter().flatten();
    let mut rows: Vec<(String, String, &str)> = Vec::new();
    for node in nodes {
        let name = text(node, "name");
        rows.extend(states(node).into_iter().map(|(route, is)| (name.to_owned(), route, is)));
    }
    if rows.is_empty() {
        return "no node offers a route; one does by `warren set --advertise-routes PREFIX`\n"
            .to_owned();
    }
    rows.sort_by_key(|(_, _, state)| *state != WAITS);
    let shown = rows
        .iter()
        .map(|(node, route, state)| json!({ "node": node, "route": route, "state": state }));
    let columns = [("NODE", "node"), ("ROUTE", "route"), ("STATE", "state")];
    let mut out = table(&shown.collect(), &columns);
    if rows.iter().any(|(_, _, state)| *state == WAITS) {
        out += "\n`warren route approve NODE ROUTE…` approves exactly the routes that it names\n";
    }
    out
}

fn approved(node: &Value) -> String {
    let name = plain(text(node, "name"));
    let states = states(node);
    let states = states.iter().map(|(route, state)| format!("{name}: {}, {state}\n", plain(route)));
    let out: String = states.collect();
    if out.is_empty() { format!("{name} has no routes now\n") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_approval_stands_first_and_names_its_command() {
        let node = |name: &str, routes: Value| json!({ "name": name, "routes": routes });
        let gw = node(
            "gw",
            json!({
                "advertised": ["10.7.0.0/16", "10.99.1.0/24"], "active": ["10.7.0.0/16"],
                "approved": ["10.7.0.0/16", "10.9.0.0/16"],
                "aliases": [{ "prefix": "192.168.1.0/24", "alias": "10.99.1.0/24" }],
            }),
        );
        let nothing = node("a", json!({ "advertised": [], "active": [], "approved": [] }));
        let shown = list(&json!({ "nodes": [nothing.clone(), gw.clone()] }));
        let due = [
            "NODE  ROUTE                           STATE",
            "gw    192.168.1.0/24 as 10.99.1.0/24  waits for approval",
            "gw    10.7.0.0/16                     active",
            "gw    10.9.0.0/16                     approved, not offered",
            "",
            "`warren route approve NODE ROUTE…` approves exactly the routes that it names",
        ];
        assert_eq!(shown.lines().collect::<Vec<_>>(), due);
        assert!(list(&json!({ "nodes": [nothing.clone()] })).starts_with("no node offers"));
        assert!(approved(&gw).contains("gw: 10.7.0.0/16, active\n"));
        assert_eq!(approved(&nothing), "a has no routes now\n");
    }
}
