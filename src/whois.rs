//! `warren whois` and `warren exit-node`: who has an address, and who leads to the Internet.

use std::net::{IpAddr, SocketAddr};

use ::daemon::protocol::Request;
use anyhow::{Result, bail};
use control::Prefix;
use serde_json::{Value, json};

use crate::admin::{fields, plain, table};
use crate::client::{Target, text, texts};

/// What the long help ends with.
const EXAMPLES: &str = "\
Examples:
  warren whois 100.64.0.7         whose address that is
  warren whois 10.7.0.9           behind which gateway it is
  warren whois 100.64.0.7:22      the same, as logs have it";

/// Tell who has an address, or what is known of a name.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) target: Target,
    /// An address of the network or behind it, with or without a port, or a name
    #[arg(value_name = "ADDRESS")]
    called: String,
}

/// What the long help ends with.
const EXIT_EXAMPLES: &str = "\
Examples:
  warren exit-node list           which nodes lead to the Internet
  warren set --exit-node vps      have one lead there
  warren set --exit-node ''       have none";

/// Show the exit nodes, which lead to the Internet.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXIT_EXAMPLES)]
pub(crate) struct ExitNode {
    #[command(subcommand)]
    pub(crate) command: ExitWords,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ExitWords {
    /// Show the exit nodes that this node may use, and which one it uses.
    List {
        #[command(flatten)]
        target: Target,
    },
}

/// Tells whose an address is.
pub(crate) fn run(args: Args) -> Result<()> {
    let status = args.target.ask(&Request::Status)?;
    let Some((node, route)) = find(&status, &args.called) else {
        bail!(
            "nobody that this node may talk to has {}, and no route of theirs leads there; on the \
             server, `warren node list` shows all nodes",
            plain(&args.called)
        );
    };
    let known = ["id", "name", "addresses", "key", "online", "tags", "routes"];
    let shown: serde_json::Map<String, Value> =
        known.iter().map(|field| ((*field).to_owned(), node[*field].clone())).collect();
    let answer = json!({ "schema": 1, "node": shown, "route": route.map(|r| r.to_string()) });
    args.target.print(&answer, |answer| {
        let order = ["name", "addresses", "online", "tags", "routes", "id", "key"];
        let mut out = fields(&answer["node"], &order);
        if let Some(route) = answer["route"].as_str() {
            let name = plain(text(&answer["node"], "name"));
            out = format!("{} is behind {name}, in {route}\n\n{out}", plain(&args.called));
        }
        out
    })
}

/// The node that has an address or a name; or the one through which it is reached, by which route.
fn find<'a>(status: &'a Value, called: &str) -> Option<(&'a Value, Option<Prefix>)> {
    let nodes = || {
        let peers = status["peers"].as_array().into_iter().flatten();
        std::iter::once(&status["self"]).chain(peers)
    };
    let address: Option<IpAddr> =
        called.parse().ok().or_else(|| called.parse::<SocketAddr>().ok().map(|at| at.ip()));
    let Some(address) = address else {
        let label = called.split('.').next().unwrap_or_default();
        let is_named = |node: &&Value| text(node, "name").eq_ignore_ascii_case(label);
        return nodes().find(is_named).map(|node| (node, None));
    };
    let is_own = |node: &&Value| {
        texts(&node["addresses"]).any(|own| own.parse::<IpAddr>().is_ok_and(|own| own == address))
    };
    if let Some(node) = nodes().find(is_own) {
        return Some((node, None));
    }
    let routes = nodes().flat_map(|node| texts(&node["routes"]).map(move |route| (node, route)));
    let leading = routes.filter_map(|(node, route)| {
        let route: Prefix = route.parse().ok()?;
        (!route.is_default() && route.contains(address)).then_some((node, route))
    });
    let best = leading.max_by_key(|(_, route)| route.bits());
    best.map(|(node, route)| (node, Some(route)))
}

/// Shows exits.
pub(crate) fn exit_node(args: &ExitNode) -> Result<()> {
    let ExitWords::List { target } = &args.command;
    let status = target.ask(&Request::Status)?;
    let answer = json!({ "schema": 1, "exit_nodes": exits(&status) });
    target.print(&answer, show_exits)
}

fn exits(status: &Value) -> Vec<Value> {
    let used = status["settings"]["exit_node"].as_str();
    let peers = status["peers"].as_array().into_iter().flatten();
    let leads_out =
        |peer: &&Value| texts(&peer["routes"]).any(|route| matches!(route, "0.0.0.0/0" | "::/0"));
    let exit = &status["exit"];
    // With `auto` it is whom the daemon took, by family.
    let taken = [&exit["through"], &exit["through_v6"]];
    let shown = peers.filter(leads_out).map(|peer| {
        let is_used = match exit["wanted"] == "auto" {
            true => taken.contains(&&peer["name"]),
            false => used.is_some_and(|used| {
                text(peer, "name").eq_ignore_ascii_case(used)
                    || texts(&peer["addresses"]).any(|address| address == used)
            }),
        };
        json!({ "name": peer["name"], "addresses": peer["addresses"], "online": peer["online"],
                "quality": peer["quality"], "used": is_used })
    });
    shown.collect()
}

fn show_exits(answer: &Value) -> String {
    let rows = answer["exit_nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        return "no exit node: one offers itself with `warren set --advertise-exit-node`, and is \
                approved with `warren route approve NODE 0.0.0.0/0 ::/0` on the server\n"
            .to_owned();
    }
    let shown = rows.iter().map(|row| {
        let address = row["addresses"][0].clone();
        json!({ "name": row["name"], "address": address, "quality": row["quality"],
                "used": row["used"] })
    });
    let columns = [("NAME", "name"), ("ADDRESS", "address"), ("QUALITY", "quality")];
    table(&shown.collect(), &[&columns[..], &[("USED", "used")]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Value {
        json!({
            "settings": { "exit_node": "VPS" },
            "self": { "name": "a", "addresses": ["100.64.0.1", "fd7a::1"], "routes": [] },
            "peers": [
                { "name": "gw", "addresses": ["100.64.0.2"], "online": true, "quality": "good",
                  "routes": ["10.0.0.0/8"] },
                { "name": "vps", "addresses": ["100.64.0.3"], "online": true, "quality": "idle",
                  "routes": ["0.0.0.0/0", "::/0", "10.7.0.0/16"] },
            ],
        })
    }

    #[test]
    fn whose_an_address_is_and_by_which_route_it_is_reached() {
        let status = status();
        let found = |called: &str| {
            let (node, route) = find(&status, called)?;
            Some((text(node, "name").to_owned(), route.map(|route| route.to_string())))
        };
        for (called, name, route) in [
            ("100.64.0.2", "gw", None),
            ("100.64.0.2:22", "gw", None),
            ("[fd7a::1]:22", "a", None),
            ("fd7a::1", "a", None),
            ("GW.warren.internal", "gw", None),
            ("10.7.0.9", "vps", Some("10.7.0.0/16")),
            ("10.9.0.9", "gw", Some("10.0.0.0/8")),
        ] {
            assert_eq!(
                found(called),
                Some((name.to_owned(), route.map(str::to_owned))),
                "{called}"
            );
        }
        assert_eq!(found("8.8.8.8"), None, "an exit has nobody's address");
        assert_eq!(found("nobody"), None);
    }

    #[test]
    fn exits_are_shown_with_the_one_in_use() {
        let told = json!({ "exit_nodes": exits(&status()) });
        let due = "NAME  ADDRESS     QUALITY  USED\nvps   100.64.0.3  idle     yes\n";
        assert_eq!(show_exits(&told), due);
        assert!(show_exits(&json!({ "exit_nodes": [] })).contains("--advertise-exit-node"));
        let mut free = status();
        free["settings"]["exit_node"] = json!("auto");
        free["exit"] = json!({ "wanted": "auto", "through": "vps", "through_v6": null });
        assert_eq!(show_exits(&json!({ "exit_nodes": exits(&free) })), due);
        free["exit"]["through"] = json!("other");
        assert!(!show_exits(&json!({ "exit_nodes": exits(&free) })).contains("yes"));
    }
}
