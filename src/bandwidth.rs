//! `warren bandwidth PEER`: what the path to a peer has left beside what others send.

use std::time::{Duration, Instant};

use ::daemon::Client;
use ::daemon::protocol::Request;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::admin::plain;
use crate::client::{Target, text};
use crate::status::peer;

/// How often the daemon is asked what came of it.
const ASK_EVERY: Duration = Duration::from_millis(300);
/// An estimate ends within a minute, and waits for sessions and answers beside.
const WITHIN: Duration = Duration::from_secs(90);

/// What the long help ends with.
const EXAMPLES: &str = "\
Examples:
  warren bandwidth web          measures now: 91.2 to 101.5 Mbit/s, or why there is no range
  warren bandwidth web --json   for programs; `warren status --json` has it afterwards, too";

/// Measure what the path to a peer has left beside what others send.
///
/// Short streams of packets are sent in the session, and the peer tells when each arrived. It takes
/// some seconds, a minute at most, and costs about a tenth of what a transfer of ten seconds would.
/// The answer is a range, or why there is none.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The peer, by name or address
    peer: String,
}

/// Measures.
pub(crate) fn run(args: Args) -> Result<()> {
    let found = measured(&mut args.target.connect()?, &args.peer)?;
    let mut answer = json!({ "schema": 1, "peer": found["name"] });
    for (field, value) in found["bandwidth"].as_object().into_iter().flatten() {
        answer[field] = value.clone();
    }
    args.target.print(&answer, |answer| {
        let name = text(answer, "peer");
        let mbytes = answer["cost_bytes"].as_f64().unwrap_or(0.0) / 1e6;
        let took_s = answer["took_s"].as_f64().unwrap_or(0.0);
        format!("{name}: {}; {mbytes:.2} MB in {took_s:.1} s\n", line(answer))
    })
}

/// Has the path to a peer measured; the peer, as the status has it afterwards.
pub(crate) fn measured(client: &mut Client, called: &str) -> Result<Value> {
    let status = client.ask(&Request::Status)?;
    let found = peer(&status, called)?;
    let number = found["id"].as_u64().context("the peer has no number yet")?;
    client.ask(&Request::Bandwidth { peer: number })?;
    let begin = Instant::now();
    loop {
        std::thread::sleep(ASK_EVERY);
        let status = client.ask(&Request::Status)?;
        let found = peer(&status, called)?.clone();
        if found["bandwidth"]["measuring"] != true {
            return Ok(found);
        }
        ensure!(begin.elapsed() < WITHIN, "the daemon does not come to an end; its log says why");
    }
}

/// A range in Mbit/s, or why there is none; of one that was never measured `-`.
pub(crate) fn line(bandwidth: &Value) -> String {
    let mbit = |field: &str| bandwidth[field].as_f64().map(|bps| bps / 1e6);
    match (mbit("low_bps"), mbit("high_bps")) {
        (Some(low), Some(high)) => format!("{low:.1} to {high:.1} Mbit/s"),
        (Some(low), None) => format!("{low:.1} Mbit/s or more"),
        _ if bandwidth["measuring"] == true => "under way".to_owned(),
        _ if bandwidth["why"].is_string() => format!("none: {}", plain(text(bandwidth, "why"))),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_line_and_so_is_why_there_is_none() {
        let range = json!({ "result": "range", "low_bps": 91_200_000, "high_bps": 101_500_000 });
        assert_eq!(line(&range), "91.2 to 101.5 Mbit/s");
        assert_eq!(line(&json!({ "low_bps": 9e8, "high_bps": null })), "900.0 Mbit/s or more");
        assert_eq!(line(&json!({ "low_bps": null, "why": "it is so" })), "none: it is so");
        assert_eq!(line(&json!({ "measuring": true })), "under way");
        assert_eq!(line(&Value::Null), "-");
    }
}
