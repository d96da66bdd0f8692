//! `warren ping PEER`: an echo through the network, and the path that it took.

use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ::daemon::protocol::Request;
use anyhow::{Context, Result, bail};
use host::echo::Echo;
use serde_json::{Value, json};

use crate::client::{Target, text, texts};
use crate::status::{path, peer};

/// How far apart echoes are.
const PAUSE: Duration = Duration::from_secs(1);
/// How many echoes `--until-direct` waits for a direct path, if no number is said.
const UNTIL_DIRECT: u16 = 10;

/// Send echoes to a peer, and print the path of each.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The peer, by name or address
    peer: String,
    /// How many echoes [default: 4, or 10 with --until-direct]
    #[arg(short, long, value_name = "N")]
    count: Option<u16>,
    /// How long to wait for each answer, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    timeout_ms: u64,
    /// Bytes in each echo
    #[arg(long, value_name = "BYTES", default_value_t = 56)]
    size: usize,
    /// Stop when the path is direct; fail if it never was
    #[arg(long)]
    until_direct: bool,
}

/// Sends them.
pub(crate) fn run(args: Args) -> Result<()> {
    let mut client = args.target.connect()?;
    let status = client.ask(&Request::Status)?;
    let found = peer(&status, &args.peer)?.clone();
    let address: IpAddr = texts(&found["addresses"])
        .find(|address| *address == args.peer)
        .or_else(|| texts(&found["addresses"]).next())
        .and_then(|address| address.parse().ok())
        .context("the peer has no address yet")?;
    let echo = Echo::new(address).context("no echo can be sent; try it as root")?;
    let count = args.count.unwrap_or(if args.until_direct { UNTIL_DIRECT } else { 4 });
    let (mut answered, mut is_direct) = (0, false);
    let mut rows = Vec::new();
    for sequence in 0..count {
        let begin = Instant::now();
        let took = echo.ask(sequence, args.size, Duration::from_millis(args.timeout_ms));
        let took = took.with_context(|| format!("cannot send to {address}"))?;
        let status = client.ask(&Request::Status)?;
        let now = peer(&status, &args.peer)?;
        is_direct = text(&now["path"], "kind") == "direct";
        answered += u32::from(took.is_some());
        say(&args, now, address, took, &mut rows)?;
        if args.until_direct && is_direct && took.is_some() {
            break;
        }
        if sequence + 1 < count {
            std::thread::sleep(PAUSE.saturating_sub(begin.elapsed()));
        }
    }
    if args.target.json() {
        let answer = json!({ "schema": 1, "peer": found["name"], "address": address,
                             "echoes": rows });
        args.target.print(&answer, |_| String::new())?;
    }
    if answered == 0 {
        bail!("{} does not answer; `warren why` tells what stands between", args.peer);
    }
    if args.until_direct && !is_direct {
        bail!("the path to {} is not direct after {count} echoes", args.peer);
    }
    Ok(())
}

fn say(
    args: &Args,
    peer: &Value,
    address: IpAddr,
    took: Option<Duration>,
    rows: &mut Vec<Value>,
) -> Result<()> {
    let ms = took.map(|took| took.as_secs_f64() * 1000.0);
    if args.target.json() {
        rows.push(json!({ "rtt_ms": ms, "path": peer["path"] }));
        return Ok(());
    }
    let name = text(peer, "name");
    let mut out = std::io::stdout().lock();
    match ms {
        Some(ms) => writeln!(out, "{name} ({address}) via {}: {ms:.1} ms", path(peer))?,
        None => writeln!(out, "{name} ({address}) does not answer")?,
    }
    out.flush()?;
    Ok(())
}
