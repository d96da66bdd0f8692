//! A link's weather in words: what is lost, what is done about it, and why.

use std::collections::BTreeMap;

use link::{CHUNK_LEN_MAX, PieceCounters};
use node::{PeerStatus, Status, Weather};
use serde_json::{Value, json};

use crate::engine::Engine;

/// Less disorder than this is none, microseconds: neighbours that changed places.
const DISORDER_US_MIN: u32 = 100;
/// Less loss than this is a memory.
const LOSS_MIN: f64 = 1e-5;

/// Tells of all peers of an interface, as `warren link status --json` has it.
pub(crate) fn links(engine: &Engine, status: &Status) -> Value {
    let weathers: Vec<Option<Weather>> =
        status.peers.iter().map(|peer| engine.node.weather(&peer.key)).collect();
    let peer = |(known, weather): (&PeerStatus, &Option<Weather>)| {
        let key = known.key.to_string();
        let mut peer = json!({
            "name": &key,
            "key": &key,
            "endpoint": known.endpoint,
            "rx_bytes": known.rx_bytes,
            "tx_bytes": known.tx_bytes,
            "last_handshake_unix_s": known.last_handshake.map(|at| at.as_secs()),
        });
        add(&mut peer, Some(known), weather.as_ref());
        peer
    };
    let peers: Vec<Value> = status.peers.iter().zip(&weathers).map(peer).collect();
    let drops = drops(engine);
    json!({ "port": status.listen_port, "peers": peers, "drops": drops })
}

pub(crate) fn drops(engine: &Engine) -> BTreeMap<&'static str, u64> {
    let refused = engine.refused();
    let kernels = [("interface-refused", refused.units), ("send-refused", refused.datagrams)];
    let kernels = kernels.into_iter().filter(|(_, count)| *count > 0);
    let drops = engine.node.counters().drops().map(|(reason, count)| (reason.name(), count));
    drops.chain(dropped_in_frames(&engine.node.pieces())).chain(kernels).collect()
}

/// Packets and pieces that came in frames and did not go on, by what became of them. What was
/// dropped for its flow to see congestion stands with the link.
fn dropped_in_frames(pieces: &PieceCounters) -> impl Iterator<Item = (&'static str, u64)> {
    let counts = [
        ("frame-crowded", pieces.crowded),
        ("frame-refused", pieces.refused),
        ("frame-headless", pieces.headless),
        ("frame-inconsistent", pieces.inconsistent),
        ("frame-late", pieces.late),
        ("frame-no-room", pieces.no_room),
        ("frame-unopened", pieces.unopened),
    ];
    counts.into_iter().filter(|(_, count)| *count > 0)
}

/// Tells of a peer how its link is: nothing toward a plain WireGuard peer, or before the first
/// session.
pub fn add(peer: &mut Value, known: Option<&PeerStatus>, weather: Option<&Weather>) {
    peer["link"] = weather.map_or(Value::Null, link);
    peer["link_why"] = json!(why_none(known, weather));
}

fn link(weather: &Weather) -> Value {
    let ms = |us: u32| f64::from(us) / 1000.0;
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    json!({
        "cipher": weather.cipher,
        "cipher_why": cipher(weather),
        "chunk_bytes": weather.chunk_bytes,
        "bundled_packets": weather.bundled,
        "rtt_ms": weather.rtt_us.map(ms),
        "out": {
            "loss_before": weather.loss_out,
            "loss_after": weather.left_out,
            "burst_datagrams": weather.burst_out,
            "congestion_share": weather.queued_share_out,
            "queue_ms": ms(weather.queue_us_out),
            "queue_trend_ms_per_s": weather.queue_trend_us_out as f64 / 1000.0,
            "reorder_ms": ms(weather.reorder_us_out),
        },
        "in": {
            "loss_before": weather.loss_in,
            "loss_after": weather.left_in,
            "reorder_ms": ms(weather.reorder_us_in),
            "order_waited": weather.waited,
            "order_waited_ms": weather.waited_us as f64 / 1000.0,
            "order_given_up": weather.given_up,
            "congestion_signalled": weather.pieces.marked + weather.pieces.congestion,
        },
        "repair": {
            "state": repair(weather),
            "ratio": share(weather.repair_bytes, weather.data_bytes),
            "chunks_per_block": weather.repair_chunks,
            "chunks_per_block_other": weather.repair_chunks_other,
            "lanes": weather.depth,
        },
        "order": { "state": order(weather) },
        "pacing": { "state": pacing(weather), "gap_ms": f64::from(weather.gap_ns) / 1e6 },
        "compression": compression(weather),
    })
}

/// Why a peer has no weather to be told; nothing where it has.
fn why_none(known: Option<&PeerStatus>, weather: Option<&Weather>) -> Option<&'static str> {
    match (weather, known.and_then(|known| known.last_handshake)) {
        (Some(_), _) => None,
        (None, None) => Some("no session stood yet"),
        (None, Some(_)) => {
            Some("plain WireGuard: the peer knows no frames, or they are off at one end")
        }
    }
}

fn cipher(weather: &Weather) -> &'static str {
    match weather.cipher {
        "none" => "no session stands",
        "AES-256-GCM" => "both ends have instructions for it",
        _ => "WireGuard's own: one end has no instructions for AES, or has told nothing yet",
    }
}

fn repair(weather: &Weather) -> &'static str {
    match (weather.repair_chunks, weather.repair_chunks_other, weather.trust < 0.5) {
        (0, 0, _) if weather.loss_out > 0.0 => "off: so little is lost that TCP does not feel it",
        (0, 0, _) => "off: nothing is lost",
        _ if weather.chunk_bytes > CHUNK_LEN_MAX => {
            "on for what is short: datagrams of jumbo frames are longer than what is repaired"
        }
        (_, _, true) => "held back: it does not help against what is lost here",
        (0, _, _) if weather.is_full => {
            "on for what is no TCP: TCP fills the line in spite of what is lost"
        }
        (0, _, _) => "on for what is no TCP: so short a path makes up for TCP's losses by itself",
        _ if weather.loss_out == 0.0 => "on until the path is known: nothing was lost so far",
        _ => "on: the path loses datagrams at random",
    }
}

fn order(weather: &Weather) -> &'static str {
    if weather.order_us_max == 0 {
        "off: nothing is to wait"
    } else if weather.reorder_us_in >= DISORDER_US_MIN {
        "on: datagrams come out of order, and TCP waits for what is late"
    } else if weather.waited > 0 && weather.loss_in >= LOSS_MIN {
        "on where something is missing: TCP waits for its repair"
    } else {
        "off: all comes in order"
    }
}

fn pacing(weather: &Weather) -> &'static str {
    match weather.gap_ns {
        0 => "off: the last traffic filled no line, or a fast one",
        _ => "on: the last traffic filled the line, and a burst takes others' room in its queue",
    }
}

/// What was compressed on the way to a peer. Nothing was where no rule asks for it.
fn compression(weather: &Weather) -> Value {
    let squeezes = &weather.squeezes;
    let ratio = squeezes.bytes_after as f64 / squeezes.bytes_before.max(1) as f64;
    let state = match (weather.reads_squeezed, squeezes.count, squeezes.in_vain) {
        (false, _, _) => "off: the peer does not read it",
        (true, 0, 0) => "off: no rule asks for it, or nothing came that it is for",
        (true, 0, _) => "tried in vain: nothing got shorter",
        (true, _, _) => "on: a rule asks for it",
    };
    json!({
        "state": state,
        "peer_reads": weather.reads_squeezed,
        "pieces": squeezes.count,
        "pieces_in_vain": squeezes.in_vain,
        "bytes_before": squeezes.bytes_before,
        "bytes_after": squeezes.bytes_after,
        "ratio": (squeezes.count > 0).then_some(ratio),
        "pieces_opened": weather.pieces.opened,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_repair_is_on_is_what_is_done() {
        let lossy = Weather {
            chunk_bytes: 1_380,
            repair_chunks: 5,
            repair_chunks_other: 7,
            loss_out: 0.01,
            trust: 1.0,
            ..Weather::default()
        };
        let calm = Weather { repair_chunks: 0, repair_chunks_other: 0, ..lossy };
        for (weather, said) in [
            (lossy, "on: the path loses"),
            (Weather { chunk_bytes: 8_880, ..lossy }, "on for what is short: datagrams of jumbo"),
            (Weather { loss_out: 0.0, ..lossy }, "on until the path is known"),
            (Weather { trust: 0.3, ..lossy }, "held back"),
            (Weather { repair_chunks: 0, ..lossy }, "on for what is no TCP: so short a path"),
            (Weather { repair_chunks: 0, is_full: true, ..lossy }, "on for what is no TCP: TCP"),
            (calm, "off: so little is lost"),
            (Weather { chunk_bytes: 8_880, loss_out: 0.0, ..calm }, "off: nothing is lost"),
        ] {
            assert!(repair(&weather).starts_with(said), "{} and {said}", repair(&weather));
        }
    }
}
