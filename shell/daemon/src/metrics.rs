//! Metrics in the text form of Prometheus, made from the status of a network's node or of links
//! from files; and a listener that answers `GET /metrics` with them, one request a connection.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::bandwidth::BANDWIDTH;
use crate::protocol::Request;
use crate::socket::{Carry, ask};

/// Bytes of a request's head, at most.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How long a client may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A metric: its name, what it counts, its type, and where it stands in a peer's status.
pub(crate) type Row = (&'static str, &'static str, &'static str, &'static str, f64);

/// Where a path's round trip stands, and where that of a link without paths.
const RTT: &str = "/rtt_ms";
const LINK_RTT: &str = "/link/rtt_ms";

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
    ("warren_peer_rtt_seconds", "Round trip of the path in use.", "gauge", RTT, 1e-3),
    (
        "warren_peer_last_handshake_timestamp_seconds",
        "When keys were agreed last.",
        "gauge",
        "/last_handshake_unix_s",
        1.0,
    ),
    ("warren_peer_chunk_bytes", "Payload of one chunk.", "gauge", "/link/chunk_bytes", 1.0),
    (
        "warren_peer_pacing_gap_seconds",
        "Between datagrams of a burst; 0 where they leave at once.",
        "gauge",
        "/link/pacing/gap_ms",
        1e-3,
    ),
    (
        "warren_peer_outbound_loss_before_repair_ratio",
        "Datagrams lost on the way to the peer, those lost in a full queue left out.",
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
        "warren_peer_outbound_loss_burst_datagrams",
        "Datagrams lost in a row on the way to the peer, in the mean.",
        "gauge",
        "/link/out/burst_datagrams",
        1.0,
    ),
    (
        "warren_peer_inbound_loss_before_repair_ratio",
        "Datagrams that did not come from the peer, of those that had time to.",
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
        "warren_peer_outbound_congestion_ratio",
        "Share of the losses on the way to the peer that came with a long queue.",
        "gauge",
        "/link/out/congestion_share",
        1.0,
    ),
    (
        "warren_peer_outbound_queue_seconds",
        "Delay on the way to the peer above the smallest.",
        "gauge",
        "/link/out/queue_ms",
        1e-3,
    ),
    (
        "warren_peer_outbound_reorder_seconds",
        "How late datagrams come to the peer behind younger ones.",
        "gauge",
        "/link/out/reorder_ms",
        1e-3,
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
    (
        "warren_peer_order_wait_seconds_total",
        "For how long they waited, all together.",
        "counter",
        "/link/in/order_waited_ms",
        1e-3,
    ),
    (
        "warren_peer_order_given_up_total",
        "Pieces that were passed on without an older one.",
        "counter",
        "/link/in/order_given_up",
        1.0,
    ),
    (
        "warren_peer_congestion_signals_total",
        "Rebuilt packets by which a flow was told of congestion.",
        "counter",
        "/link/in/congestion_signalled",
        1.0,
    ),
    (
        "warren_peer_bundled_packets_total",
        "Packets sent that shared a datagram with others.",
        "counter",
        "/link/bundled_packets",
        1.0,
    ),
];

/// A peer, and the labels by which it is known.
struct Peer<'a> {
    labels: String,
    told: &'a Value,
}

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
    drops(&mut out, [(String::new(), &status["drops"])]);
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
    relays(&mut out, status);
    let labels = |peer: &&Value| format!("peer=\"{}\"", label(peer));
    let peers: Vec<Peer<'_>> =
        peers.iter().map(|peer| Peer { labels: labels(peer), told: peer }).collect();
    links(&mut out, &peers, RTT);
    out
}

/// The metrics of links from files and `wg`, as `warren link status --json` tells of them. Peers
/// have no names there but their keys.
#[must_use]
pub fn link_text(told: &Value) -> String {
    let mut out = String::new();
    let all: Vec<(String, &Value)> = told["links"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|link| (escaped(link["interface"].as_str().unwrap_or_default()), link))
        .collect();
    head(&mut out, "warren_link_port", "The UDP port of a link that is up.", "gauge");
    for (interface, link) in &all {
        let port = link["port"].as_u64().unwrap_or_default();
        let _ = writeln!(out, "warren_link_port{{interface=\"{interface}\"}} {port}");
    }
    let labels = |interface: &str| format!("interface=\"{interface}\",");
    drops(&mut out, all.iter().map(|(name, link)| (labels(name), &link["drops"])));
    let mut peers = Vec::new();
    for (interface, link) in &all {
        let of_link = link["peers"].as_array().into_iter().flatten();
        let peer = |told| Peer {
            labels: format!("interface=\"{interface}\",peer=\"{}\"", label(told)),
            told,
        };
        peers.extend(of_link.map(peer));
    }
    links(&mut out, &peers, LINK_RTT);
    out
}

/// Drops by reason, each behind other labels.
fn drops<'a>(out: &mut String, of: impl IntoIterator<Item = (String, &'a Value)>) {
    head(out, "warren_dropped_packets_total", "Packets that did not go on.", "counter");
    for (labels, counts) in of {
        for (reason, count) in counts.as_object().into_iter().flatten() {
            let labels = format!("{labels}reason=\"{reason}\"");
            let _ = writeln!(out, "warren_dropped_packets_total{{{labels}}} {count}");
        }
    }
}

/// How the links to `peers` are; their round trip stands at `rtt`.
fn links(out: &mut String, peers: &[Peer<'_>], rtt: &str) {
    head(out, "warren_peer_link", "1, with what is on.", "gauge");
    let is_told = |told: &Value| told["link"].is_object() || told["link_state"].is_string();
    for Peer { labels, told } in peers.iter().filter(|peer| is_told(peer.told)) {
        let _ = write!(out, "warren_peer_link{{{labels}");
        for (label, pointer) in [
            ("state", "/link_state"),
            ("cipher", "/link/cipher"),
            ("repair", "/link/repair/state"),
            ("order", "/link/order/state"),
            ("compression", "/link/compression/state"),
        ] {
            let said = told.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let _ = write!(out, ",{label}=\"{said}\"");
        }
        out.push_str("} 1\n");
    }
    for (name, help, kind, pointer, unit) in PEER.iter().chain(BANDWIDTH) {
        head(out, name, help, kind);
        let pointer = if *pointer == RTT { rtt } else { pointer };
        for Peer { labels, told } in peers {
            if let Some(value) = told.pointer(pointer).and_then(Value::as_f64) {
                let _ = writeln!(out, "{name}{{{labels}}} {}", value * unit);
            }
        }
    }
}

/// What is told of each relay. What a stream counts begins anew with the next one.
const RELAY: &[Row] = &[
    ("warren_stream_connected", "Whether the relay is connected.", "gauge", "/connected", 1.0),
    ("warren_stream_rtt_seconds", "Round trip to the relay.", "gauge", "/rtt_ms", 1e-3),
    (
        "warren_stream_quic_unanswered_total",
        "Times that QUIC did not answer, or not before HTTPS did.",
        "counter",
        "/quic_unanswered",
        1.0,
    ),
    (
        "warren_stream_quic_broken_total",
        "Streams over QUIC that broke.",
        "counter",
        "/quic_broken",
        1.0,
    ),
    (
        "warren_stream_outbound_datagrams_total",
        "Datagrams that left on the stream there is.",
        "counter",
        "/stream/sent",
        1.0,
    ),
    (
        "warren_stream_inbound_datagrams_total",
        "Datagrams that came on it.",
        "counter",
        "/stream/received",
        1.0,
    ),
    ("warren_stream_queued_datagrams", "Datagrams that wait.", "gauge", "/stream/queued", 1.0),
];

fn relays(out: &mut String, status: &Value) {
    let relays: Vec<&Value> = status["relays"].as_array().into_iter().flatten().collect();
    let number = |relay: &Value| relay["id"].as_u64().unwrap_or_default();
    for (name, help, kind, pointer, unit) in RELAY {
        head(out, name, help, kind);
        for relay in &relays {
            let value = relay.pointer(pointer);
            let value = value.and_then(|value| value.as_bool().map(f64::from).or(value.as_f64()));
            if let Some(value) = value {
                let _ = writeln!(out, "{name}{{relay=\"{}\"}} {}", number(relay), value * unit);
            }
        }
    }
    for (name, help, kind, pointer, label) in [
        ("warren_streams_total", "Streams, by carrier.", "counter", "/streams", "carrier"),
        (
            "warren_stream_dropped_datagrams_total",
            "Datagrams that the stream there is did not carry.",
            "counter",
            "/stream/drops",
            "reason",
        ),
    ] {
        head(out, name, help, kind);
        for relay in &relays {
            let counts = relay.pointer(pointer).and_then(Value::as_object);
            for (what, count) in counts.into_iter().flatten() {
                let id = number(relay);
                let _ = writeln!(out, "{name}{{relay=\"{id}\",{label}=\"{what}\"}} {count}");
            }
        }
    }
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// A label's value as the text form wants it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A peer's name: a DNS label or a key, which need no escapes.
fn label(peer: &Value) -> &str {
    peer["name"].as_str().unwrap_or_default()
}

/// Answers at `address` from now on, with the status that `carry` brings.
///
/// # Errors
/// The address is taken or not ours.
pub(crate) fn listen(address: SocketAddr, carry: Carry) -> io::Result<()> {
    let run = server(address, move || Ok(text(&ask(Request::Status, None, &*carry))))?;
    std::thread::Builder::new().name("warren-metrics".to_owned()).spawn(run)?;
    Ok(())
}

/// Takes `address`, and returns what answers there for ever, each time with what `make` says, or
/// why it says nothing.
///
/// # Errors
/// The address is taken or not ours.
pub fn server(
    address: SocketAddr,
    make: impl Fn() -> Result<String, String>,
) -> io::Result<impl FnOnce()> {
    let listener = TcpListener::bind(address)
        .map_err(|error| io::Error::new(error.kind(), format!("metrics at {address}: {error}")))?;
    Ok(move || {
        for stream in listener.incoming().flatten() {
            // One at a time: a scraper comes every few seconds, and a slow one is cut off.
            let _ = serve(stream, &make);
        }
    })
}

fn serve(mut stream: TcpStream, make: impl Fn() -> Result<String, String>) -> io::Result<()> {
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
    let (status, body) = if !is_for_us(&head) {
        let why = "ask by an address, localhost, or a name of one label: a page whose name was \
                   made to lead here could ask by any other\n";
        ("421 Misdirected Request", why.to_owned())
    } else if head.starts_with(b"GET /metrics ") {
        match make() {
            Ok(text) => ("200 OK", text),
            Err(why) => ("503 Service Unavailable", why + "\n"),
        }
    } else if head.starts_with(b"GET /healthz ") {
        match make() {
            Ok(_) => ("200 OK", "ok\n".to_owned()),
            Err(why) => ("503 Service Unavailable", why + "\n"),
        }
    } else {
        ("404 Not Found", "there are /metrics and /healthz here, and nothing else\n".to_owned())
    };
    let fields = "Content-Type: text/plain; version=0.0.4\r\nConnection: close";
    let len = body.len();
    write!(stream, "HTTP/1.1 {status}\r\n{fields}\r\nContent-Length: {len}\r\n\r\n{body}")
}

/// Whether a request names this listener in a way that no page elsewhere can have made its
/// browser's name for it (threat DN-01): names of the Internet have two labels or more.
fn is_for_us(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    let mut hosts = head.lines().skip(1).filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim())
    });
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    if host.parse::<SocketAddr>().is_ok() {
        return true;
    }
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) { name } else { host }
    });
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.parse::<IpAddr>().is_ok() || control::name::is_label(&name.to_ascii_lowercase())
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
                        "link_state": "plain", "link_why": "plain WireGuard: it knows no frames",
                        "path": { "kind": "direct", "carrier": "udp" } },
                      { "name": "c", "link_state": "frames", "link": {
                        "cipher": "AES-256-GCM", "bundled_packets": 9,
                        "cipher_why": "both have it",
                        "out": { "congestion_share": 0.25, "queue_ms": 3.0, "reorder_ms": 7.0 },
                        "in": { "order_given_up": 2, "order_waited_ms": 1500.0,
                                "congestion_signalled": 1 },
                        "order": { "state": "off", "why": "all comes in order" },
                        "compression": { "state": "off", "why": "the peer does not read it" },
                        "repair": { "state": "on, learning", "why": "the path is not known" } } }],
            "relays": [
                { "id": 0, "connected": true, "rtt_ms": 20.0, "quic_unanswered": 2,
                  "quic_broken": 1, "streams": { "https": 3, "quic": 4 },
                  "stream": { "sent": 5, "received": 6, "queued": 0, "drops": { "stale": 7 } } },
                { "id": 9, "connected": false, "rtt_ms": null, "quic_unanswered": 0,
                  "quic_broken": 0, "streams": { "https": 0, "quic": 0 }, "stream": null },
            ],
        });
        let text = text(&status);
        for line in [
            "warren_running 1",
            "warren_server_in_touch 1",
            "warren_health_messages 1",
            "warren_dropped_packets_total{reason=\"no-route\"} 3",
            "warren_peer_path{peer=\"b\",path=\"direct\",carrier=\"udp\"} 1",
            "warren_peer_link{peer=\"b\",state=\"plain\",cipher=\"\",repair=\"\",order=\"\",\
             compression=\"\"} 1",
            "warren_peer_link{peer=\"c\",state=\"frames\",cipher=\"AES-256-GCM\",\
             repair=\"on, learning\",order=\"off\",compression=\"off\"} 1",
            "warren_peer_outbound_congestion_ratio{peer=\"c\"} 0.25",
            "warren_peer_outbound_queue_seconds{peer=\"c\"} 0.003",
            "warren_peer_outbound_reorder_seconds{peer=\"c\"} 0.007",
            "warren_peer_order_wait_seconds_total{peer=\"c\"} 1.5",
            "warren_peer_order_given_up_total{peer=\"c\"} 2",
            "warren_peer_congestion_signals_total{peer=\"c\"} 1",
            "warren_peer_bundled_packets_total{peer=\"c\"} 9",
            "warren_peer_inbound_bytes_total{peer=\"b\"} 5",
            "warren_peer_rtt_seconds{peer=\"b\"} 0.0125",
            "warren_stream_connected{relay=\"0\"} 1",
            "warren_stream_connected{relay=\"9\"} 0",
            "warren_stream_rtt_seconds{relay=\"0\"} 0.02",
            "warren_streams_total{relay=\"0\",carrier=\"https\"} 3",
            "warren_streams_total{relay=\"0\",carrier=\"quic\"} 4",
            "warren_stream_quic_unanswered_total{relay=\"0\"} 2",
            "warren_stream_quic_broken_total{relay=\"0\"} 1",
            "warren_stream_outbound_datagrams_total{relay=\"0\"} 5",
            "warren_stream_inbound_datagrams_total{relay=\"0\"} 6",
            "warren_stream_dropped_datagrams_total{relay=\"0\",reason=\"stale\"} 7",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        for unknown in ["warren_peer_repair_ratio{", "datagrams_total{relay=\"9\""] {
            assert!(!text.contains(unknown), "what is not known is not told");
        }
    }

    #[test]
    fn links_without_a_daemon_have_the_same_metrics_by_interface_and_key() {
        let told = json!({ "others": ["wg9"], "links": [
            { "interface": "wg\"0", "port": 51820, "drops": { "replayed": 2 }, "peers": [
                { "name": "k1=", "rx_bytes": 7, "tx_bytes": 8, "last_handshake_unix_s": 9,
                  "link": null, "link_state": "plain" },
            ] },
            { "interface": "wg1", "port": 0, "drops": {}, "peers": [
                { "name": "k2=", "last_handshake_unix_s": null,
                  "link": { "rtt_ms": 30.0, "repair": { "ratio": 0.05 } } },
            ] },
        ] });
        let text = link_text(&told);
        for line in [
            "warren_link_port{interface=\"wg\\\"0\"} 51820",
            "warren_dropped_packets_total{interface=\"wg\\\"0\",reason=\"replayed\"} 2",
            "warren_peer_inbound_bytes_total{interface=\"wg\\\"0\",peer=\"k1=\"} 7",
            "warren_peer_last_handshake_timestamp_seconds{interface=\"wg\\\"0\",peer=\"k1=\"} 9",
            "warren_peer_rtt_seconds{interface=\"wg1\",peer=\"k2=\"} 0.03",
            "warren_peer_repair_ratio{interface=\"wg1\",peer=\"k2=\"} 0.05",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        let why = "interface=\"wg\\\"0\",peer=\"k1=\",state=\"plain\"";
        assert!(text.contains(why), "{text}");
        assert!(!text.contains("timestamp_seconds{interface=\"wg1\""), "never agreed: {text}");
    }

    #[test]
    fn what_cannot_be_told_is_an_error_with_its_reason() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        write!(client, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        serve(listener.accept().unwrap().0, || Err("no link is served here".into())).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("no link is served here"));
    }

    #[test]
    fn dn_01_a_page_whose_name_was_made_to_lead_here_reads_no_metrics() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let asks = |fields: &str| {
            let mut client = TcpStream::connect(at).unwrap();
            write!(client, "GET /metrics HTTP/1.1\r\n{fields}\r\n").unwrap();
            serve(listener.accept().unwrap().0, || Ok(String::new())).unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(!answer.to_ascii_lowercase().contains("access-control"), "{answer}");
            answer.lines().next().unwrap().split(' ').nth(1).unwrap().to_owned()
        };
        for host in [
            "127.0.0.1:9100",
            "127.0.0.1",
            "[::1]:9100",
            "[::1]",
            "localhost:9100",
            "robot",
            "Robot:9100",
        ] {
            assert_eq!(asks(&format!("Host: {host}\r\n")), "200", "{host}");
        }
        for host in ["evil.example:9100", "evil.example", "127.0.0.1.evil.example", "a.b:1:2", ""] {
            assert_eq!(asks(&format!("Host: {host}\r\n")), "421", "{host}");
        }
        assert_eq!(asks("Origin: null\r\n"), "421", "and who names nobody");
        assert_eq!(asks("Host: localhost\r\nHost: evil.example\r\n"), "421");
    }
}
