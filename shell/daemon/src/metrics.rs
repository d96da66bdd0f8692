//! Metrics in the text form of Prometheus, made from the status; and a listener that answers `GET
//! /metrics` with them, one request a connection.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::protocol::Request;
use crate::socket::{Carry, ask};

/// Bytes of a request's head, at most.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How long a client may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A metric: its name, what it counts, its type, and where it stands in a peer's status.
type Row = (&'static str, &'static str, &'static str, &'static str, f64);

/// What is told of each peer; times in seconds, as Prometheus wants them.
const PEER: &[Row] = &[
    (
        "warren_peer_inbound_bytes_total",
        "Bytes of datagrams received.",
        "counter",
        "/rx_bytes",
        1.0,
    ),
    ("warren_peer_outbound_bytes_total", "Bytes of datagrams sent.", "counter", "/tx_bytes", 1.0),
    ("warren_peer_rtt_seconds", "Round trip of the path in use.", "gauge", "/rtt_ms", 1e-3),
    ("warren_peer_chunk_bytes", "Payload of one chunk.", "gauge", "/link/chunk_bytes", 1.0),
    (
        "warren_peer_outbound_loss_before_repair_ratio",
        "Datagrams lost on the way to the peer.",
        "gauge",
        "/link/out/loss_before",
        1.0,
    ),
    (
        "warren_peer_outbound_loss_after_repair_ratio",
        "The same after repair.",
        "gauge",
        "/link/out/loss_after",
        1.0,
    ),
    (
        "warren_peer_inbound_loss_before_repair_ratio",
        "Pieces that did not come from the peer, since the session began.",
        "gauge",
        "/link/in/loss_before",
        1.0,
    ),
    (
        "warren_peer_inbound_loss_after_repair_ratio",
        "The same after repair.",
        "gauge",
        "/link/in/loss_after",
        1.0,
    ),
    (
        "warren_peer_repair_ratio",
        "Bytes of repair for each byte of data sent.",
        "gauge",
        "/link/repair/ratio",
        1.0,
    ),
    (
        "warren_peer_compressed_before_bytes_total",
        "Bytes that were compressed for the peer, before.",
        "counter",
        "/link/compression/bytes_before",
        1.0,
    ),
    (
        "warren_peer_compressed_after_bytes_total",
        "The same afterwards.",
        "counter",
        "/link/compression/bytes_after",
        1.0,
    ),
    (
        "warren_peer_inbound_reorder_seconds",
        "How late datagrams come behind younger ones.",
        "gauge",
        "/link/in/reorder_ms",
        1e-3,
    ),
    (
        "warren_peer_order_waits_total",
        "Pieces that waited for an older one.",
        "counter",
        "/link/in/order_waited",
        1.0,
    ),
];

/// The metrics of a status.
#[must_use]
pub fn text(status: &Value) -> String {
    let mut out = String::new();
    let state = status["state"].as_str().unwrap_or_default();
    head(&mut out, "warren_running", "Whether the node runs.", "gauge");
    let _ = writeln!(out, "warren_running {}", u8::from(state == "running"));
    head(&mut out, "warren_server_in_touch", "Whether the server answered last.", "gauge");
    let in_touch = status["server"]["in_touch"].as_bool().unwrap_or_default();
    let _ = writeln!(out, "warren_server_in_touch {}", u8::from(in_touch));
    head(&mut out, "warren_health_messages", "What a user should know.", "gauge");
    let messages = status["health"].as_array().map_or(0, Vec::len);
    let _ = writeln!(out, "warren_health_messages {messages}");
    head(&mut out, "warren_dropped_packets_total", "Packets that did not go on.", "counter");
    for (reason, count) in status["drops"].as_object().into_iter().flatten() {
        let _ = writeln!(out, "warren_dropped_packets_total{{reason=\"{reason}\"}} {count}");
    }
    let peers: Vec<&Value> = status["peers"].as_array().into_iter().flatten().collect();
    head(&mut out, "warren_peer_path", "1 for the path in use.", "gauge");
    for peer in &peers {
        let kind = peer["path"]["kind"].as_str().unwrap_or("none");
        let carrier = peer["path"]["carrier"].as_str().unwrap_or_default();
        let name = label(peer);
        let _ = writeln!(
            out,
            "warren_peer_path{{peer=\"{name}\",path=\"{kind}\",carrier=\"{carrier}\"}} 1"
        );
    }
    for (name, help, kind, pointer, unit) in PEER {
        head(&mut out, name, help, kind);
        for peer in &peers {
            if let Some(value) = peer.pointer(pointer).and_then(Value::as_f64) {
                let _ = writeln!(out, "{name}{{peer=\"{}\"}} {}", label(peer), value * unit);
            }
        }
    }
    out
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// A peer's name; names are DNS labels, which need no escapes.
fn label(peer: &Value) -> &str {
    peer["name"].as_str().unwrap_or_default()
}

/// Answers at `address` from now on.
///
/// # Errors
/// The address is taken or not ours.
pub(crate) fn listen(address: SocketAddr, carry: Carry) -> io::Result<()> {
    let listener = TcpListener::bind(address)
        .map_err(|error| io::Error::new(error.kind(), format!("--metrics {address}: {error}")))?;
    let run = move || {
        for stream in listener.incoming().flatten() {
            // One at a time: a scraper comes every few seconds, and a slow one is cut off.
            let _ = serve(stream, &carry);
        }
    };
    std::thread::Builder::new().name("warren-metrics".to_owned()).spawn(run)?;
    Ok(())
}

fn serve(mut stream: TcpStream, carry: &Carry) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let len = stream.read(&mut bytes)?;
        head.extend_from_slice(&bytes[..len]);
        if len == 0 || head.len() > HEAD_BYTES_MAX {
            return Ok(());
        }
    }
    let (status, body) = if head.starts_with(b"GET /metrics ") {
        ("200 OK", text(&ask(Request::Status, &**carry)))
    } else {
        ("404 Not Found", "there is /metrics here, and nothing else\n".to_owned())
    };
    let fields = "Content-Type: text/plain; version=0.0.4\r\nConnection: close";
    let len = body.len();
    write!(stream, "HTTP/1.1 {status}\r\n{fields}\r\nContent-Length: {len}\r\n\r\n{body}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_becomes_lines_that_prometheus_reads() {
        let status = json!({
            "state": "running", "health": ["x"], "server": { "in_touch": true },
            "drops": { "no-route": 3 },
            "peers": [{ "name": "b", "rx_bytes": 5, "rtt_ms": 12.5, "link": null,
                        "path": { "kind": "direct", "carrier": "udp" } }],
        });
        let text = text(&status);
        for line in [
            "warren_running 1",
            "warren_server_in_touch 1",
            "warren_health_messages 1",
            "warren_dropped_packets_total{reason=\"no-route\"} 3",
            "warren_peer_path{peer=\"b\",path=\"direct\",carrier=\"udp\"} 1",
            "warren_peer_inbound_bytes_total{peer=\"b\"} 5",
            "warren_peer_rtt_seconds{peer=\"b\"} 0.0125",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        assert!(!text.contains("warren_peer_repair_ratio{"), "what is not known is not told");
    }
}
