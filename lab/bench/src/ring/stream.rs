//! iperf3 through a ring: one or more clients at once, each with its own server.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lab::Process;
use lab::netns::Host;
use serde_json::Value;

use crate::load;

/// Payload of a UDP datagram.
pub(super) const UDP_BYTES: u32 = 1_200;
/// What a transfer may take beyond its own time, the same for everybody: after a flood the
/// programs have to agree on the result over what is left of the link.
const PATIENCE: Duration = Duration::from_secs(90);
/// Standard Ethernet's TCP payload; a share of segments needs their number.
const SEGMENT_BYTES: f64 = 1_448.0;

/// A transfer to be made.
#[derive(Debug, Clone)]
pub(super) struct Job<'a> {
    pub(super) from: &'a Host,
    pub(super) to: &'a Host,
    /// Of `to`.
    pub(super) address: &'a str,
    pub(super) port: u16,
    pub(super) kind: Kind,
    pub(super) seconds: u32,
}

/// What kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// This many TCP streams forth.
    Tcp(u32),
    /// One TCP stream each way, as source 002 has it.
    Both,
    /// UDP forth, as much as the sender manages.
    Udp,
}

/// One direction of a finished transfer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Flow {
    pub(super) received_bytes: f64,
    pub(super) sent_bytes: f64,
    pub(super) sent_s: f64,
    pub(super) received_s: f64,
    /// UDP only: arrived, but the reader's buffer was full.
    pub(super) unread_bytes: f64,
    /// TCP only.
    pub(super) retransmits: Option<f64>,
    /// TCP only, of the stream that had the largest.
    pub(super) cwnd_bytes: Option<f64>,
    /// What its sender had in each second.
    pub(super) seconds_mbit_s: Vec<f64>,
}

/// A transfer under way.
#[derive(Debug)]
pub(super) struct Transfer {
    kind: Kind,
    client: Process,
    _server: Process,
    limit: Duration,
}

impl Transfer {
    /// Starts the server and the client.
    pub(super) fn start(job: &Job<'_>) -> Result<Self> {
        let hint = "cannot run `iperf3`: install the package iperf3";
        let port = job.port.to_string();
        let server = ["iperf3", "-s", "-1", "-B", job.address, "-p", &port, "--forceflush"];
        let server = job.to.spawn(&server).context(hint)?;
        server.wait_for(|log| log.contains("listening"))?;
        let words = words(job.kind, job.seconds);
        let mut argv = vec!["iperf3", "-J", "-c", job.address, "-p", &port];
        argv.extend(words.split_whitespace());
        // What an earlier transfer taught the kernel must not speed this one up.
        job.from.run(&["ip", "tcp_metrics", "flush"])?;
        let client = job.from.spawn(&argv).context(hint)?;
        let limit = Duration::from_secs(job.seconds.into()) + PATIENCE;
        Ok(Self { kind: job.kind, client, _server: server, limit })
    }

    /// Waits for its end; the flow forth, and the one back where there is one.
    pub(super) fn finish(self) -> Result<Vec<Flow>> {
        parse(&load::finish(&self.client, self.limit)?, self.kind)
    }
}

/// Said of two streams of which iperf3's server took each for the other.
const CROSSED: &str = "nothing arrived either way: iperf3 took its two streams for each other";

/// Whether iperf3 did not get as far as to load the line.
///
/// With UDP it begins with one question, and asks no second time. Of one stream each way its server
/// tells which is which by the order in which they came, which weather changes: then both ends send
/// on the one and read from the other.
pub(super) fn never_began(error: &anyhow::Error) -> bool {
    let why = error.to_string();
    let streams = ["unable to read from stream socket", "unable to write to stream socket"];
    streams.iter().any(|said| why.contains(said)) && !lost_touch(error) || why == CROSSED
}

/// Whether the TCP connection broke over which iperf3's ends tell each other what to do and what
/// came. Where datagrams were sent meanwhile nothing is known of them. The server then ends at
/// once, and what is still sent is refused.
pub(super) fn lost_touch(error: &anyhow::Error) -> bool {
    let why = format!("{error:#}");
    let said = ["control message", "control socket", "stream socket: Connection refused"];
    said.iter().any(|said| why.contains(said))
}

/// Runs one transfer to its end.
pub(super) fn transfer(job: &Job<'_>) -> Result<Vec<Flow>> {
    Transfer::start(job)?.finish()
}

impl Flow {
    pub(super) fn mbit_s(&self) -> f64 {
        self.received_bytes * 8.0 / self.received_s / 1e6
    }

    pub(super) fn sent_mbit_s(&self) -> f64 {
        self.sent_bytes * 8.0 / self.sent_s / 1e6
    }

    pub(super) fn lost_percent(&self) -> f64 {
        (1.0 - self.arrived_bytes() / self.sent_bytes.max(self.arrived_bytes())) * 100.0
    }

    /// Payload that reached the other host, read or not.
    pub(super) fn arrived_bytes(&self) -> f64 {
        self.received_bytes + self.unread_bytes
    }

    /// Segments sent again of all that were sent, by segments of 1448 bytes.
    pub(super) fn again_percent(&self) -> Option<f64> {
        Some(self.retransmits? / (self.sent_bytes / SEGMENT_BYTES).max(1.0) * 100.0)
    }
}

fn words(kind: Kind, seconds: u32) -> String {
    match kind {
        Kind::Tcp(streams) => format!("-t {seconds} -C cubic -P {streams}"),
        Kind::Both => format!("-t {seconds} -C cubic -Z --bidir"),
        Kind::Udp => format!("-t {seconds} -u -b 0 -l {UDP_BYTES} --udp-counters-64bit"),
    }
}

fn parse(report: &str, kind: Kind) -> Result<Vec<Flow>> {
    let report: Value = serde_json::from_str(report.trim()).with_context(|| {
        let start: String = report.chars().take(200).collect();
        format!("iperf3 wrote no JSON report but {start:?}")
    })?;
    if let Some(error) = report["error"].as_str() {
        bail!("iperf3 failed: {error}");
    }
    let congestion = report["end"]["sender_tcp_congestion"].as_str();
    ensure!(
        kind == Kind::Udp || congestion == Some("cubic"),
        "iperf3 used {congestion:?} as congestion control, not CUBIC"
    );
    let received = |sum: &str| report["end"][sum]["bytes"].as_f64();
    let both = ["sum_received", "sum_received_bidir_reverse"].map(received);
    ensure!(kind != Kind::Both || both != [Some(0.0); 2], "{CROSSED}");
    let mut flows = vec![flow(&report, "", true).context("the flow forth")?];
    if kind == Kind::Both {
        flows.push(flow(&report, "_bidir_reverse", false).context("the flow back")?);
    }
    Ok(flows)
}

fn flow(report: &Value, suffix: &str, forth: bool) -> Result<Flow> {
    let end = &report["end"];
    let number = |sum: &str, key: &str| {
        let value = end[format!("{sum}{suffix}")][key].as_f64();
        value.filter(|n| n.is_finite() && *n >= 0.0).with_context(|| {
            format!("iperf3's report has no end.{sum}{suffix}.{key}: it must be 3.12 or newer")
        })
    };
    let received_bytes = number("sum_received", "bytes")?;
    let received_s = number("sum_received", "seconds")?;
    ensure!(
        received_bytes > 0.0 && received_s > 0.0,
        "nothing arrived: less than one block of iperf3, which is 128 KiB of TCP"
    );
    let streams = end["streams"].as_array().into_iter().flatten();
    let senders = streams.map(|stream| &stream["sender"]).filter(|s| s["sender"] == forth);
    let seconds = report["intervals"].as_array().into_iter().flatten();
    let seconds =
        seconds.filter_map(|each| each[format!("sum{suffix}")]["bits_per_second"].as_f64());
    let seconds = seconds.map(|rate| rate / 1e6).collect();
    let cwnd = senders.filter_map(|sender| sender["max_snd_cwnd"].as_f64()).reduce(f64::max);
    Ok(Flow {
        received_bytes,
        sent_bytes: number("sum_sent", "bytes")?,
        sent_s: number("sum_sent", "seconds")?,
        received_s,
        unread_bytes: 0.0,
        retransmits: end[format!("sum_sent{suffix}")]["retransmits"].as_f64(),
        cwnd_bytes: cwnd,
        seconds_mbit_s: seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = r#"{"intervals": [
        {"sum": {"bits_per_second": 3000000}, "sum_bidir_reverse": {"bits_per_second": 1000000}},
        {"sum": {"bits_per_second": 5000000}, "sum_bidir_reverse": {"bits_per_second": 2000000}}],
        "end": {
        "streams": [{"sender": {"max_snd_cwnd": 4000, "sender": true}},
                    {"sender": {"max_snd_cwnd": 9000, "sender": false}}],
        "sum_sent": {"bytes": 2000000, "seconds": 1, "retransmits": 7},
        "sum_received": {"bytes": 1000000, "seconds": 2},
        "sum_sent_bidir_reverse": {"bytes": 800000, "seconds": 1, "retransmits": 3},
        "sum_received_bidir_reverse": {"bytes": 500000, "seconds": 2},
        "sender_tcp_congestion": "cubic"}}"#;

    #[test]
    fn what_never_began_is_told_from_other_failures() {
        let failed = |why: &str| {
            parse(&format!(r#"{{"end": {{}}, "error": "{why}"}}"#), Kind::Udp)
                .expect_err("an error")
        };
        let silent = "unable to read from stream socket: Resource temporarily unavailable";
        assert!(never_began(&failed(silent)));
        assert!(!never_began(&failed("unable to connect to server: Connection refused")));
        let back = BOTH.replace("\"bytes\": 500000", "\"bytes\": 0");
        assert!(!never_began(&parse(&back, Kind::Both).expect_err("one way only")));
        let crossed = back.replace("\"bytes\": 1000000", "\"bytes\": 0");
        assert!(never_began(&parse(&crossed, Kind::Both).expect_err("neither way")));
        assert!(!never_began(&parse(&crossed, Kind::Tcp(1)).expect_err("one stream")));
    }

    #[test]
    fn a_connection_that_broke_is_told_from_other_failures() {
        let failed = |why: &str| anyhow::anyhow!("iperf3 failed: {why}").context("the way back");
        assert!(lost_touch(&failed("unable to send control message: Broken pipe")));
        assert!(lost_touch(&failed("control socket has closed unexpectedly")));
        let refused = anyhow::anyhow!("unable to write to stream socket: Connection refused");
        assert!(lost_touch(&refused) && !never_began(&refused), "it ran, and its server went");
        assert!(!lost_touch(&failed("unable to connect to server: Connection refused")));
    }

    #[test]
    fn both_directions_are_kept_apart() {
        let flows = parse(BOTH, Kind::Both).expect("a report");
        assert_eq!((flows[0].mbit_s(), flows[1].mbit_s()), (4.0, 2.0));
        assert_eq!(flows[0].sent_mbit_s(), 16.0, "in its own time");
        let seconds = [0, 1].map(|flow| flows[flow].seconds_mbit_s.clone());
        assert_eq!(seconds, [[3.0, 5.0], [1.0, 2.0]]);
        assert_eq!((flows[0].retransmits, flows[1].retransmits), (Some(7.0), Some(3.0)));
        assert_eq!(flows[0].cwnd_bytes, Some(4_000.0));
        assert_eq!(flows[0].lost_percent(), 50.0);
        let unread = Flow { unread_bytes: 500_000.0, ..flows[0].clone() };
        assert_eq!((unread.lost_percent(), unread.mbit_s()), (25.0, 4.0));
        assert_eq!(parse(BOTH, Kind::Tcp(1)).expect("a report").len(), 1);
    }

    #[test]
    fn another_congestion_control_or_silence_is_a_failure() {
        let reno = BOTH.replace("cubic", "reno");
        assert!(parse(&reno, Kind::Both).is_err() && parse(&reno, Kind::Udp).is_ok());
        let silent = BOTH.replace("\"bytes\": 500000", "\"bytes\": 0");
        let error = format!("{:#}", parse(&silent, Kind::Both).expect_err("silence"));
        assert!(error.contains("the flow back: nothing arrived"), "{error}");
        for nonsense in ["", "{}", "[]", r#"{"error": "no route"}"#] {
            assert!(parse(nonsense, Kind::Udp).is_err(), "{nonsense}");
        }
    }
}
