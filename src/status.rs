//! `warren status`, `ip`, `wait` and `debug`: how things are.

use std::time::Duration;

use ::daemon::protocol::Request;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::admin::{lifetime, plain, table};
use crate::bundle;
use crate::client::{Target, text, texts};
use crate::up::{Limit, wait_until_running};
use crate::weather::links;

/// Show this node and its peers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Print nothing; exit 0 if the daemon lives, or if the node is running
    #[arg(long, value_enum, value_name = "WHAT")]
    check: Option<Check>,
    /// How the links are, too: what is lost, what is done about it, where they lead
    #[arg(long, conflicts_with = "check")]
    links: bool,
}

/// What `--check` asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Check {
    /// The daemon answers.
    Live,
    /// The node is running.
    Ready,
}

/// Print the addresses of this node, or of a peer, one a line.
#[derive(Debug, clap::Args)]
pub(crate) struct Ip {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Only the IPv4 address
    #[arg(short = '4', conflicts_with = "v6")]
    v4: bool,
    /// Only the IPv6 address
    #[arg(short = '6')]
    v6: bool,
    /// The peer, by name
    peer: Option<String>,
}

/// Wait until the node is running.
#[derive(Debug, clap::Args)]
pub(crate) struct Wait {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Give up after this time, as in 30s [default: never]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    timeout: Option<u64>,
}

/// Print metrics in the form that Prometheus reads.
#[derive(Debug, clap::Args)]
pub(crate) struct Metrics {
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Find out what is wrong.
#[derive(Debug, clap::Args)]
pub(crate) struct Debug {
    #[command(subcommand)]
    pub(crate) command: DebugCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum DebugCommand {
    /// Write a tar of everything that helps to find out what is wrong, without secrets
    ///
    /// Status, counters, map and log of the daemon; routes, rules, nft, resolver and kernel of the
    /// machine. Nothing is sent anywhere. With --json it is what the daemon tells, alone.
    Bundle {
        #[command(flatten)]
        target: Target,
        /// The file to write [default: standard output]
        #[arg(long, value_name = "FILE")]
        out: Option<std::path::PathBuf>,
    },
}

/// Shows the status.
pub(crate) fn run(args: Args) -> Result<()> {
    let status = args.target.ask(&Request::Status)?;
    match args.check {
        Some(Check::Live) => Ok(()),
        Some(Check::Ready) => match text(&status, "state") {
            "running" => Ok(()),
            other => bail!("the node is not running: {other}"),
        },
        None => args.target.print(&status, |status| show(status, args.links)),
    }
}

fn show(status: &Value, with_links: bool) -> String {
    let mut out = String::new();
    let own = &status["self"];
    match text(status, "state") {
        "running" => {}
        "no-network" => out += "This node belongs to no network; `warren up TOKEN` joins one.\n",
        "stopped" => out += "This node is down; `warren up` brings it up.\n",
        "needs-approval" => out += "This node waits for an administrator to let it in.\n",
        "starting" => out += "This node waits for the server's answer.\n",
        "needs-sign-in" => {
            let url = plain(text(&status["sign_in"], "url"));
            out += &format!("This node waits for somebody who signs in at {url}\n");
        }
        "refused" => out += "The network refuses this node; below is why.\n",
        other => out += &format!("This node is not running yet: {other}.\n"),
    }
    for line in texts(&status["health"]) {
        out += &format!("Note: {}\n", plain(line));
    }
    if own["name"].is_null() {
        return out;
    }
    let first = |node: &Value| texts(&node["addresses"]).next().map(plain);
    out += &format!("this node: {} ({})", plain(text(own, "name")), first(own).unwrap_or_default());
    if own["online"] != true {
        out += ", out of touch with the server";
    }
    out += "\n\n";
    let peers = || status["peers"].as_array().into_iter().flatten();
    let rows: Vec<Value> = peers().map(row).collect();
    if rows.is_empty() {
        out += "No peers: there are none yet, or the policy lets this node talk to nobody.\n";
    } else {
        let columns = [
            ("NAME", "name"),
            ("ADDRESS", "address"),
            ("PATH", "path"),
            ("RTT", "rtt"),
            ("QUALITY", "quality"),
        ];
        out += &table(&Value::Array(rows), &columns);
    }
    let below = routes(status);
    if !below.is_empty() {
        out += &format!("\n{below}");
    }
    if with_links { out + &links(status) } else { out }
}

/// What is longer is cut, so that a line fits a terminal.
const NAME_SHOWN: usize = 20;
/// The same of a path.
const PATH_SHOWN: usize = 28;

fn row(peer: &Value) -> Value {
    // What was measured long ago is not of now.
    let is_of_now = peer["rtt_age_s"].as_f64().is_none_or(|age_s| age_s <= RTT_FRESH_S);
    let rtt = peer["rtt_ms"].as_f64().filter(|_| is_of_now).map(|ms| format!("{ms:.1} ms"));
    json!({
        "name": cut(text(peer, "name"), NAME_SHOWN),
        "address": texts(&peer["addresses"]).next(),
        "path": cut(&short_path(peer), PATH_SHOWN),
        "rtt": rtt,
        "quality": peer["quality"],
    })
}

/// A round trip is shown for so long.
const RTT_FRESH_S: f64 = 15.0;

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// "direct", or the relay's host and how it is reached.
fn short_path(peer: &Value) -> String {
    let path = &peer["path"];
    match text(path, "kind") {
        "direct" => "direct".to_owned(),
        "relay" => {
            let url = text(path, "relay");
            let host = url.split_once("://").map_or(url, |(_, host)| host);
            format!("relay {} by {}", host.trim_end_matches('/'), text(path, "carrier"))
        }
        _ => match peer["gateway"].as_str() {
            Some(gateway) => format!("through {gateway}"),
            None => "-".to_owned(),
        },
    }
}

/// The exit in use, subnets used and served, and what waits for approval: a line each.
fn routes(status: &Value) -> String {
    let own = &status["self"];
    let settings = &status["settings"];
    let is_default = |route: &&str| route.ends_with("/0");
    let peers = || status["peers"].as_array().into_iter().flatten();
    let mut out = String::new();
    let mut line = |what: &str, said: String| out += &format!("{what:<14}{}\n", plain(&said));
    if status["exit"]["wanted"] == "auto" {
        line("exit", free_exit(&status["exit"]));
    } else if let Some(exit) = settings["exit_node"].as_str() {
        let found = peers().find(|peer| {
            text(peer, "name").eq_ignore_ascii_case(exit)
                || texts(&peer["addresses"]).any(|address| address == exit)
        });
        let is = match found {
            None => "no peer of this node: nothing leaves to the Internet",
            Some(peer) if !texts(&peer["routes"]).any(|route| is_default(&route)) => {
                "not approved as an exit: nothing leaves to the Internet"
            }
            Some(peer) => text(peer, "quality"),
        };
        line("exit", format!("{exit}, {is}"));
    }
    let circuits = &status["circuits"];
    for circuit in circuits["own"].as_array().into_iter().flatten() {
        line("circuit", crate::circuit::line(circuit));
    }
    if let Some(at) = circuits["socks"]["at"].as_str() {
        line("socks", format!("{at}, {} circuits", circuits["socks"]["circuits"]));
    }
    if settings["accept_routes"] == true {
        for peer in peers() {
            let used: Vec<&str> =
                texts(&peer["routes"]).filter(|route| !is_default(route)).collect();
            if !used.is_empty() {
                line("uses", format!("{} by {}", used.join(", "), text(peer, "name")));
            }
        }
    }
    let served: Vec<&str> = texts(&own["routes"]).collect();
    let offers: Vec<(&str, Option<&str>)> = texts(&settings["advertise_routes"])
        .map(|offer| match offer.split_once('=') {
            Some((prefix, alias)) => (alias, Some(prefix)),
            None => (offer, None),
        })
        .collect();
    let shown = |route: &&str| match offers.iter().find(|(known, _)| known == route) {
        Some((alias, Some(prefix))) => format!("{prefix} as {alias}"),
        _ => (*route).to_owned(),
    };
    if !served.is_empty() {
        line("serves", served.iter().map(shown).collect::<Vec<_>>().join(", "));
    }
    let offered = offers.iter().map(|(route, _)| route);
    let mut waiting: Vec<String> =
        offered.filter(|route| !served.contains(route)).map(shown).collect();
    if settings["advertise_exit_node"] == true && !served.iter().any(is_default) {
        waiting.push("to be an exit".to_owned());
    }
    if !waiting.is_empty() {
        line("waits", format!("{}; on the server:", waiting.join(", ")));
        // It approves exactly what it names: all that is offered, also what is in use.
        let mut all: Vec<&str> = offers.iter().map(|(route, _)| *route).collect();
        if settings["advertise_exit_node"] == true {
            all.extend(["0.0.0.0/0", "::/0"]);
        }
        line("", format!("warren route approve {} {}", text(own, "name"), all.join(" ")));
    }
    out
}

/// Which exit is used where any may be, and why.
fn free_exit(exit: &Value) -> String {
    let why = text(exit, "why");
    let Some(through) = exit["through"].as_str().filter(|_| exit["closed"] != true) else {
        return format!("auto, nothing leaves to the Internet: {why}");
    };
    let kind = match text(exit, "kind") {
        "none" => "idle",
        kind => kind,
    };
    let rtt = exit["rtt_ms"].as_f64().map(|ms| format!(", {ms:.0} ms")).unwrap_or_default();
    let v6 = exit["through_v6"].as_str().filter(|v6| *v6 != through);
    let v6 = v6.map(|v6| format!(", IPv6 through {v6}")).unwrap_or_default();
    format!("auto, through {through} ({kind}{rtt}){v6}: {why}")
}

/// A peer's path in a few words.
pub(crate) fn path(peer: &Value) -> String {
    let path = &peer["path"];
    match text(path, "kind") {
        "direct" => format!("direct {} {}", text(path, "carrier"), text(path, "endpoint")),
        "relay" => format!("relay {} {}", text(path, "relay"), text(path, "carrier")),
        _ => match peer["gateway"].as_str() {
            Some(gateway) => format!("through {gateway}"),
            None => "-".to_owned(),
        },
    }
}

/// The peer that is meant by a name or an address.
pub(crate) fn peer<'a>(status: &'a Value, called: &str) -> Result<&'a Value> {
    let label = called.split('.').next().unwrap_or_default();
    let mut peers = status["peers"].as_array().into_iter().flatten();
    peers
        .find(|peer| {
            text(peer, "name").eq_ignore_ascii_case(label)
                || texts(&peer["addresses"]).any(|address| address == called)
        })
        .with_context(|| match text(status, "state") {
            "stopped" => "this node is down; `warren up` brings it up".to_owned(),
            "no-network" => {
                "this node belongs to no network; `warren up TOKEN` joins one".to_owned()
            }
            _ => {
                format!(
                    "there is no peer {called:?} that this node may talk to; see `warren status`"
                )
            }
        })
}

/// Prints addresses.
pub(crate) fn ip(args: Ip) -> Result<()> {
    let status = args.target.ask(&Request::Status)?;
    let node = match &args.peer {
        Some(called) => peer(&status, called)?,
        None => &status["self"],
    };
    let fits = |address: &&str| match (args.v4, args.v6) {
        (true, _) => !address.contains(':'),
        (_, true) => address.contains(':'),
        _ => true,
    };
    let found: Vec<&str> = texts(&node["addresses"]).filter(fits).collect();
    anyhow::ensure!(!found.is_empty(), "there is no address yet; see `warren status`");
    let answer = json!({ "schema": 1, "addresses": found });
    args.target.print(&answer, |_| found.iter().map(|address| format!("{address}\n")).collect())
}

/// Waits.
pub(crate) fn wait(args: Wait) -> Result<()> {
    let mut client = args.target.connect()?;
    let limit = args.timeout.map(Duration::from_secs).map_or(Limit::Never, Limit::Within);
    let status = wait_until_running(&mut client, limit)?;
    args.target.print(&status, |_| String::new())
}

/// Prints metrics.
pub(crate) fn metrics(args: Metrics) -> Result<()> {
    let status = args.target.ask(&Request::Status)?;
    args.target.print(&status, ::daemon::metrics::text)
}

/// Writes what helps.
pub(crate) fn debug(args: Debug) -> Result<()> {
    let DebugCommand::Bundle { target, out } = args.command;
    bundle::run(&target, out.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Value {
        let long = "a-robot-with-a-name-of-63-letters-and-digits-and-nothing-else-x";
        let v6 = "[2001:db8:1234:5678:9abc:def0:1234:5678]:41820";
        json!({
            "state": "running",
            "health": [],
            "settings": { "exit_node": "gw", "accept_routes": true, "advertise_exit_node": true,
                          "advertise_routes": ["192.168.5.0/24", "10.9.0.0/24"] },
            "self": { "name": "a", "addresses": ["100.64.0.1"], "online": true,
                      "routes": ["192.168.5.0/24"] },
            "peers": [
                { "name": "gw", "addresses": ["100.64.0.2"], "rtt_ms": 1.25, "rtt_age_s": 3.0,
                  "path": { "kind": "direct", "carrier": "udp", "endpoint": v6 },
                  "routes": ["0.0.0.0/0", "::/0", "10.7.0.0/24"], "quality": "good",
                  "link": { "cipher": "AES-256-GCM", "chunk_bytes": 1368,
                    "out": { "loss_before": 0.0251, "loss_after": 0.001, "age_s": 200.0 },
                    "in": { "loss_before": 0.01, "loss_after": 0.0, "reorder_ms": 14.96,
                            "order_waited": 123456, "order_waited_ms": 300000.0 },
                    "repair": { "ratio": 0.1712, "state": "on, short packets" } } },
                { "name": long, "addresses": ["100.127.255.254"], "rtt_ms": 5.6,
                  "rtt_age_s": 90.0, "quality": "idle",
                  "path": { "kind": "relay", "carrier": "https",
                            "relay": "https://relay-of-the-institute.robotics.ua.pt:8443" } },
            ],
        })
    }

    #[test]
    fn it_fits_100_columns_and_tells_what_is_used_served_and_waited_for() {
        let shown = show(&status(), false);
        let due = [
            "this node: a (100.64.0.1)",
            "",
            "NAME                  ADDRESS          PATH                          RTT     QUALITY",
            "gw                    100.64.0.2       direct                        1.2 ms  good",
            "a-robot-with-a-name…  100.127.255.254  relay relay-of-the-institut…  -       idle",
            "",
            "exit          gw, good",
            "uses          10.7.0.0/24 by gw",
            "serves        192.168.5.0/24",
            "waits         10.9.0.0/24, to be an exit; on the server:",
            "              warren route approve a 192.168.5.0/24 10.9.0.0/24 0.0.0.0/0 ::/0",
        ];
        assert_eq!(shown.lines().collect::<Vec<_>>(), due);
        for line in show(&status(), true).lines() {
            assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        }
        let down = json!({ "state": "stopped", "peers": [] });
        assert!(peer(&down, "gw").unwrap_err().to_string().starts_with("this node is down"));
        assert!(peer(&status(), "x").unwrap_err().to_string().contains("no peer \"x\""));
        let mut lost = status();
        lost["settings"]["exit_node"] = json!("gatewya");
        assert!(show(&lost, false).contains("exit          gatewya, no peer of this node"));
        lost["settings"]["exit_node"] = json!(lost["peers"][1]["name"]);
        assert!(show(&lost, false).contains("not approved as an exit"));
    }

    #[test]
    fn with_auto_it_tells_which_exit_is_used_and_why() {
        let mut free = status();
        free["settings"]["exit_node"] = json!("auto");
        free["exit"] = json!({ "wanted": "auto", "through": "tokyo", "through_v6": "tokyo",
                               "closed": false, "kind": "direct", "rtt_ms": 12.1,
                               "why": "the nearest one that is known" });
        let line = |status: &Value| {
            let shown = show(status, false);
            shown.lines().find(|line| line.starts_with("exit ")).unwrap_or_default().to_owned()
        };
        let due =
            "exit          auto, through tokyo (direct, 12 ms): the nearest one that is known";
        assert_eq!(line(&free), due);
        free["exit"]["through_v6"] = json!("osaka");
        assert!(line(&free).contains("(direct, 12 ms), IPv6 through osaka: the nearest"));
        free["exit"]["closed"] = json!(true);
        free["exit"]["why"] = json!("no exit node answers");
        let due = "exit          auto, nothing leaves to the Internet: no exit node answers";
        assert_eq!(line(&free), due);
    }
}
