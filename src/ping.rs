//! `warren ping PEER`: an echo through the network, and the path that it took.

mod change;

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ::daemon::protocol::Request;
use anyhow::{Context, Result, bail};
use host::linux::signals::Signals;
use host::sockets::echo::Echo;
use serde_json::{Value, json};

use crate::admin::plain;
use crate::bandwidth;
use crate::client::{Target, text, texts};
use crate::status::{path, peer};

/// How often it looks whether it was told to end.
const GLANCE_EVERY: Duration = Duration::from_millis(50);
/// How many echoes `--until-direct` waits for a direct path, if no number is said.
const UNTIL_DIRECT: u16 = 10;

/// What the long help ends with.
const EXAMPLES: &str = "\
Examples:
  warren ping web                   four echoes, and by which way each came
  warren ping web --until-direct    until the path is direct, or why it is not
  warren ping web -c 100            Ctrl-C ends it early, with the summary
  warren ping web --seconds 60 --every-ms 50 --bandwidth --json > before.json
  warren ping web --seconds 60 --every-ms 50 --bandwidth --against before.json
                                    what changed since, in percent and as log-change";

/// Send echoes to a peer, and print the path of each.
///
/// It ends with a summary: how many were answered, the shortest, mean and longest round trip, and
/// how much one differs from the next. Ctrl-C does, too.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The peer, by name or address
    peer: String,
    /// How many echoes [default: 4, or 10 with --until-direct]
    #[arg(short, long, value_name = "N")]
    count: Option<u16>,
    /// For how long, instead of how many
    #[arg(long, value_name = "SECONDS", conflicts_with = "count",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// How far apart they are, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(10..=60_000))]
    every_ms: u64,
    /// How long to wait for each answer, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    timeout_ms: u64,
    /// Bytes in each echo
    #[arg(long, value_name = "BYTES", default_value_t = 56)]
    size: usize,
    /// Stop when the path is direct; fail if it never was
    #[arg(long)]
    until_direct: bool,
    /// Measure the available bandwidth, too, after the echoes
    #[arg(long)]
    bandwidth: bool,
    /// Tell what changed since another, whose `--json` is in this file
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
}

impl Args {
    /// Echoes, at most, and for how long.
    fn most(&self) -> (u16, Duration) {
        let or_else = if self.until_direct { UNTIL_DIRECT } else { 4 };
        match self.seconds {
            Some(seconds) => (u16::MAX, Duration::from_secs(seconds)),
            None => (self.count.unwrap_or(or_else), Duration::MAX),
        }
    }
}

/// Sends them.
pub(crate) fn run(args: Args) -> Result<()> {
    let earlier = args.against.as_deref().map(change::read).transpose()?;
    let mut client = args.target.connect()?;
    let status = client.ask(&Request::Status)?;
    let found = peer(&status, &args.peer)?.clone();
    let address: IpAddr = texts(&found["addresses"])
        .find(|address| *address == args.peer)
        .or_else(|| texts(&found["addresses"]).next())
        .and_then(|address| address.parse().ok())
        .context("the peer has no address yet")?;
    let echo = Echo::new(address).context("no echo can be sent; try it as root")?;
    let (count, span) = args.most();
    let every = Duration::from_millis(args.every_ms);
    let start = Instant::now();
    // Told to end, it ends with the summary; without the watch it just ends.
    let signals = Signals::block().ok();
    let mut sum = Summary::default();
    let mut last = found.clone();
    let mut rows = Vec::new();
    for sequence in 0..count {
        let begin = Instant::now();
        let took = echo.ask(sequence, args.size, Duration::from_millis(args.timeout_ms));
        let took = took.with_context(|| format!("cannot send to {address}"))?;
        let status = client.ask(&Request::Status)?;
        last = peer(&status, &args.peer)?.clone();
        sum.add(took);
        say(&args, &last, address, took, &mut rows)?;
        if args.until_direct && is_direct(&last) && took.is_some() {
            break;
        }
        if start.elapsed() + every > span {
            break;
        }
        if sequence + 1 < count && is_told_to_end(signals.as_ref(), begin + every) {
            break;
        }
    }
    let mut answer = json!({ "schema": 1, "peer": found["name"], "address": address,
                             "echoes": rows, "summary": sum.json() });
    let mut told = sum.line();
    if args.bandwidth && sum.answered > 0 {
        let measured = bandwidth::measured(&mut client, &args.peer)?;
        told += &format!("bandwidth: {}\n", bandwidth::line(&measured["bandwidth"]));
        answer["bandwidth"] = measured["bandwidth"].clone();
    }
    if let Some(earlier) = earlier {
        answer["change"] = change::between(&earlier, &answer);
        told += &change::lines(&answer["change"]);
    }
    args.target.print(&answer, |_| told)?;
    sum.judge(&args, &last)
}

fn is_direct(peer: &Value) -> bool {
    text(&peer["path"], "kind") == "direct"
}

/// Waits for the next echo's turn; whether we were told to end before that.
fn is_told_to_end(signals: Option<&Signals>, turn: Instant) -> bool {
    loop {
        if signals.is_some_and(|signals| signals.poll_signal().is_some()) {
            return true;
        }
        let left = turn.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(left.min(GLANCE_EVERY));
    }
}

/// What came of all echoes.
#[derive(Clone, Copy, Debug, Default)]
struct Summary {
    sent: u32,
    answered: u32,
    min: Duration,
    max: Duration,
    total: Duration,
    /// The one before, what one differs from the next in all, and how often.
    last: Option<Duration>,
    differences: Duration,
    pairs: u32,
}

impl Summary {
    fn add(&mut self, took: Option<Duration>) {
        self.sent += 1;
        let Some(took) = took else { return };
        self.min = if self.answered == 0 { took } else { self.min.min(took) };
        self.max = self.max.max(took);
        self.total += took;
        self.answered += 1;
        if let Some(last) = self.last.replace(took) {
            self.differences += took.abs_diff(last);
            self.pairs += 1;
        }
    }

    /// What one round trip differs from the next, on average.
    fn jitter_ms(&self) -> Option<f64> {
        Some(self.differences.checked_div(self.pairs)?.as_secs_f64() * 1000.0)
    }

    /// The share that was not answered.
    fn lost(&self) -> f64 {
        f64::from(self.sent - self.answered) / f64::from(self.sent.max(1))
    }

    /// Shortest, mean and longest round trip, if there was one.
    fn rtt_ms(&self) -> Option<[f64; 3]> {
        let mean = self.total.checked_div(self.answered)?;
        Some([self.min, mean, self.max].map(|rtt| rtt.as_secs_f64() * 1000.0))
    }

    fn line(&self) -> String {
        let Self { sent, answered, .. } = self;
        let lost = self.lost() * 100.0;
        let jitter = self.jitter_ms().map_or_else(String::new, |ms| format!(", jitter {ms:.1} ms"));
        let rtt = self.rtt_ms().map_or_else(String::new, |[min, mean, max]| {
            format!("; round trip min/mean/max {min:.1}/{mean:.1}/{max:.1} ms")
        });
        format!("{sent} sent, {answered} answered, {lost:.0} % lost{rtt}{jitter}\n")
    }

    fn json(&self) -> Value {
        let [min, mean, max] = self.rtt_ms().map_or([None; 3], |ms| ms.map(Some));
        json!({ "sent": self.sent, "answered": self.answered, "rtt_ms_min": min,
                "rtt_ms_mean": mean, "rtt_ms_max": max, "jitter_ms": self.jitter_ms(),
                "lost": self.lost() })
    }

    /// Whether that is a success: an answer, and a direct path where one was wanted.
    fn judge(&self, args: &Args, peer: &Value) -> Result<()> {
        if self.answered == 0 {
            bail!("{} does not answer; `warren why {0}` tells what stands between", args.peer);
        }
        if args.until_direct && !is_direct(peer) {
            let sent = self.sent;
            let called = &args.peer;
            let path = match text(&peer["path"], "kind") {
                "relay" => "goes through a relay",
                _ => "is not direct",
            };
            let why = plain(text(&peer["path"], "why"));
            bail!(
                "the path to {called} {path} after {sent} echoes: {why}; `warren netcheck` here \
                 and there tells what each network lets through"
            );
        }
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echoes_are_summed_up_and_a_path_that_is_not_direct_has_its_reason() {
        let mut sum = Summary::default();
        assert_eq!(sum.line(), "0 sent, 0 answered, 0 % lost\n");
        for ms in [Some(30), None, Some(10), Some(20)] {
            sum.add(ms.map(Duration::from_millis));
        }
        let line = "4 sent, 3 answered, 25 % lost; round trip min/mean/max 10.0/20.0/30.0 ms, \
                    jitter 15.0 ms\n";
        assert_eq!(sum.line(), line);
        assert_eq!(sum.json()["rtt_ms_max"], 30.0);
        assert_eq!(sum.json()["jitter_ms"], 15.0);
        assert_eq!(sum.json()["lost"], 0.25);

        let words = ["ping", "web", "--until-direct"];
        let args = <Args as clap::Args>::augment_args(clap::Command::new("ping"));
        let args = args.try_get_matches_from(words).unwrap();
        let args = <Args as clap::FromArgMatches>::from_arg_matches(&args).unwrap();
        let why = "no UDP leaves this network";
        let relayed = json!({ "path": { "kind": "relay", "why": why } });
        let told = sum.judge(&args, &relayed).unwrap_err().to_string();
        assert!(told.contains("through a relay after 4 echoes: no UDP leaves"), "{told}");
        assert!(sum.judge(&args, &json!({ "path": { "kind": "direct" } })).is_ok());
        let told = Summary::default().judge(&args, &relayed).unwrap_err().to_string();
        assert!(told.contains("`warren why web`"), "{told}");
    }
}
