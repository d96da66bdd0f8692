//! `warren status`, `ip`, `wait` and `debug`: how things are.

use std::io::Write;
use std::time::Duration;

use ::daemon::protocol::Request;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::admin::{lifetime, plain, table};
use crate::client::{Target, text, texts};
use crate::up::wait_until_running;
use crate::weather::links;

/// Show this node and its peers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Print nothing; exit 0 if the daemon lives, or if the node is running
    #[arg(long, value_enum, value_name = "WHAT")]
    check: Option<Check>,
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
    /// Write everything that helps to find out what is wrong, without secrets
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
        None => args.target.print(&status, show),
    }
}

fn show(status: &Value) -> String {
    let mut out = String::new();
    let own = &status["self"];
    match text(status, "state") {
        "running" => {}
        "no-network" => out += "This node belongs to no network; `warren up TOKEN` joins one.\n",
        "stopped" => out += "This node is down; `warren up` brings it up.\n",
        "needs-approval" => out += "This node waits for an administrator to let it in.\n",
        other => out += &format!("This node is not running yet: {other}.\n"),
    }
    for line in texts(&status["health"]) {
        out += &format!("Note: {}\n", plain(line));
    }
    if own["name"].is_null() {
        return out;
    }
    let mut rows = vec![row(own, "this node")];
    for peer in status["peers"].as_array().into_iter().flatten() {
        rows.push(row(peer, &path(peer)));
    }
    let columns = [
        ("ADDRESS", "address"),
        ("NAME", "name"),
        ("ONLINE", "online"),
        ("PATH", "path"),
        ("RTT", "rtt"),
        ("RECEIVED", "rx"),
        ("SENT", "tx"),
    ];
    out + &table(&Value::Array(rows), &columns) + &links(status)
}

fn row(node: &Value, path: &str) -> Value {
    let rtt = node["rtt_ms"].as_f64().map(|ms| format!("{ms:.1} ms"));
    json!({
        "address": texts(&node["addresses"]).next(),
        "name": node["name"],
        "online": node["online"],
        "path": path,
        "rtt": rtt,
        "rx": bytes(&node["rx_bytes"]),
        "tx": bytes(&node["tx_bytes"]),
    })
}

/// A peer's path in a few words.
pub(crate) fn path(peer: &Value) -> String {
    let path = &peer["path"];
    match text(path, "kind") {
        "direct" => format!("direct {} {}", text(path, "carrier"), text(path, "endpoint")),
        "relay" => format!("relay {} {}", text(path, "relay"), text(path, "carrier")),
        _ => "-".to_owned(),
    }
}

fn bytes(count: &Value) -> String {
    let count = count.as_u64().unwrap_or(0);
    let units = [("GB", 1_000_000_000_u64), ("MB", 1_000_000), ("kB", 1000)];
    let fit = units.into_iter().find(|(_, size)| count >= *size);
    let shown = |(unit, size): (&str, u64)| format!("{:.1} {unit}", count as f64 / size as f64);
    fit.map_or_else(|| format!("{count} B"), shown)
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
        .with_context(|| {
            format!("there is no peer {called:?} that this node may talk to; see `warren status`")
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
    let status = wait_until_running(&mut client, args.timeout.map(Duration::from_secs))?;
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
    let answer = target.ask(&Request::Debug)?;
    let text = serde_json::to_string_pretty(&answer)? + "\n";
    match out {
        None => std::io::stdout().lock().write_all(text.as_bytes())?,
        Some(path) => std::fs::write(&path, text)
            .with_context(|| format!("cannot write {}", path.display()))?,
    }
    Ok(())
}
