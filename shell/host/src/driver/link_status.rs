//! A link's weather in words: what is lost, what is done about it, and why.

use std::collections::BTreeMap;

use link::{CHUNK_LEN_MAX, PieceCounters};
use node::{KeyStatus, PeerStatus, Status, Weather};
use noise::Instant;
use serde_json::{Value, json};

use crate::driver::engine::Engine;

/// Less disorder than this is none, microseconds: neighbours that changed places.
const DISORDER_US_MIN: u32 = 100;
/// Less loss than this is a memory.
const LOSS_MIN: f64 = 1e-5;
/// Share of datagrams lost from which on a link is called lossy.
const LOSSY: f64 = 1e-3;

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
            "carrier": engine.node.carrier(&known.key).map_or_else(
                || String::from("udp"),
                |carrier| carrier.to_string(),
            ),
            "rx_bytes": known.rx_bytes,
            "tx_bytes": known.tx_bytes,
            "last_handshake_unix_s": known.last_handshake.map(|at| at.as_secs()),
        });
        let now = engine.clock.now;
        add(&mut peer, Some(known), weather.as_ref(), now);
        peer["quality"] = json!(match known.last_handshake {
            Some(_) => quality(weather.as_ref(), now),
            None => "none",
        });
        peer["keys"] = known.keys.as_ref().map_or(Value::Null, keys);
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
    let drops = drops.chain(engine.carriers.drops());
    let refused = engine.node.refusals().filter(|(_, count)| *count > 0);
    let why = refused.map(|(refusal, count)| (refusal.name(), count));
    drops.chain(dropped_in_frames(&engine.node.pieces())).chain(kernels).chain(why).collect()
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
        ("frame-untranslated", pieces.untranslated),
    ];
    counts.into_iter().filter(|(_, count)| *count > 0)
}

/// What was told longer ago than this is told with its age, seconds.
const FRESH_S: f64 = 60.0;

/// Tells of a peer how its link is: nothing toward a plain WireGuard peer, or before the first
/// session.
pub fn add(peer: &mut Value, known: Option<&PeerStatus>, weather: Option<&Weather>, now: Instant) {
    peer["link"] = weather.map_or(Value::Null, |weather| link(weather, now));
    let (state, why) = link_state(known, weather, now);
    peer["link_state"] = json!(state);
    peer["link_why"] = json!(why);
}

/// A state in two or three words, and why it is that one.
type Told = (&'static str, &'static str);

fn link(weather: &Weather, now: Instant) -> Value {
    let ms = |us: u32| f64::from(us) / 1000.0;
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let told = |(state, why): Told| json!({ "state": state, "why": why });
    let mut link = json!({
        "cipher": weather.cipher,
        "cipher_why": cipher(weather),
        "chunk_bytes": weather.chunk_bytes,
        "bundled_packets": weather.bundled,
        "rtt_ms": weather.rtt_us.map(ms),
        "out": {
            "age_s": age_s(weather.told_out, now),
            "loss_before": weather.loss_out,
            "loss_after": weather.left_out,
            "burst_datagrams": weather.burst_out,
            "congestion_share": weather.queued_share_out,
            "queue_ms": ms(weather.queue_us_out),
            "queue_trend_ms_per_s": weather.queue_trend_us_out as f64 / 1000.0,
            "reorder_ms": ms(weather.reorder_us_out),
        },
        "in": {
            "age_s": age_s(weather.told_in, now),
            "loss_before": weather.loss_in,
            "loss_after": weather.left_in,
            "reorder_ms": ms(weather.reorder_us_in),
            "order_waited": weather.waited,
            "order_waited_ms": weather.waited_us as f64 / 1000.0,
            "order_given_up": weather.given_up,
            "congestion_signalled": weather.pieces.marked + weather.pieces.congestion,
        },
        "repair": told(repair(weather)),
        "order": told(order(weather)),
        "pacing": told(pacing(weather)),
        "compression": compression(weather),
    });
    let repair = &mut link["repair"];
    repair["ratio"] = json!(share(weather.repair_bytes, weather.data_bytes));
    repair["chunks_per_block"] = json!(weather.repair_chunks);
    repair["chunks_per_block_other"] = json!(weather.repair_chunks_other);
    repair["lanes"] = json!(weather.depth);
    link["pacing"]["gap_ms"] = json!(f64::from(weather.gap_ns) / 1e6);
    link
}

/// How long ago something was told, seconds; nothing where it never was.
fn age_s(told: Option<Instant>, now: Instant) -> Option<f64> {
    told.map(|at| now.since(at).as_millis() as f64 / 1000.0)
}

/// What of a link there is, and why no more.
fn link_state(
    known: Option<&PeerStatus>,
    weather: Option<&Weather>,
    now: Instant,
) -> (&'static str, Option<String>) {
    match (weather, known.and_then(|known| known.last_handshake)) {
        (Some(weather), _) if weather.is_idle => {
            let told = weather.told_out.max(weather.told_in);
            let since = told.map_or_else(String::new, |at| {
                format!(" for {}", minutes(now.since(at).as_secs()))
            });
            let why =
                format!("no session stands, for nothing was sent{since}; the last one had frames");
            ("idle", Some(why))
        }
        (Some(_), _) => ("frames", None),
        (None, None) => ("none", Some("no session stood yet".to_owned())),
        (None, Some(_)) => {
            let why = "plain WireGuard: the peer knows no frames, or they are off at one end";
            ("plain", Some(why.to_owned()))
        }
    }
}

fn minutes(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    }
}

fn cipher(weather: &Weather) -> &'static str {
    match weather.cipher {
        "none" => "no session stands",
        "AES-256-GCM" => "both ends have instructions for it",
        _ => "WireGuard's own: one end has no instructions for AES, or has told nothing yet",
    }
}

fn repair(weather: &Weather) -> Told {
    match (weather.repair_chunks, weather.repair_chunks_other, weather.trust < 0.5) {
        _ if weather.in_streams => {
            ("off", "every part of the way is a stream, and those lose nothing")
        }
        (0, 0, _) if weather.loss_out > 0.0 => {
            ("off", "so little is lost that TCP does not feel it, or no repair is allowed")
        }
        (0, 0, _) => ("off", "nothing is lost"),
        _ if weather.chunk_bytes > CHUNK_LEN_MAX => {
            ("on, short packets", "datagrams of jumbo frames are longer than what is repaired")
        }
        (_, _, true) => ("held back", "it does not help against what is lost here"),
        (0, _, _) if weather.is_full => {
            ("on, not TCP", "TCP fills the line in spite of what is lost")
        }
        (0, _, _) => ("on, not TCP", "so short a path makes up for TCP's losses by itself"),
        _ if weather.loss_out == 0.0 => {
            ("on, learning", "nothing was lost so far, but the path is not known yet")
        }
        _ => ("on", "the path loses datagrams at random"),
    }
}

fn order(weather: &Weather) -> Told {
    if weather.order_us_max == 0 {
        ("off", "nothing is to wait")
    } else if weather.reorder_us_in >= DISORDER_US_MIN {
        ("on", "datagrams come out of order, and flows wait for what is late")
    } else if weather.waited > 0 && weather.loss_in >= LOSS_MIN {
        ("on, repair only", "something is missing, and TCP waits for its repair")
    } else {
        ("off", "all comes in order")
    }
}

fn pacing(weather: &Weather) -> Told {
    match weather.gap_ns {
        0 => ("off", "the last traffic filled no line, or a fast one"),
        _ => {
            ("on", "the last traffic filled the line, and a burst takes others' room in its queue")
        }
    }
}

/// What was compressed on the way to a peer. Nothing was where no rule asks for it.
fn compression(weather: &Weather) -> Value {
    let squeezes = &weather.squeezes;
    let ratio = squeezes.bytes_after as f64 / squeezes.bytes_before.max(1) as f64;
    let (state, why) = match (weather.reads_squeezed, squeezes.count, squeezes.in_vain) {
        (false, _, _) => ("off", "the peer does not read it"),
        (true, 0, 0) => ("off", "no rule asks for it, or nothing came that it is for"),
        (true, 0, _) => ("tried in vain", "nothing got shorter"),
        (true, _, _) => ("on", "a rule asks for it"),
    };
    json!({
        "state": state,
        "why": why,
        "peer_reads": weather.reads_squeezed,
        "pieces": squeezes.count,
        "pieces_in_vain": squeezes.in_vain,
        "bytes_before": squeezes.bytes_before,
        "bytes_after": squeezes.bytes_after,
        "ratio": (squeezes.count > 0).then_some(ratio),
        "pieces_opened": weather.pieces.opened,
    })
}

/// The schedule of preshared keys, and whether both ends' clocks are good enough for it.
fn keys(told: &KeyStatus) -> Value {
    let (state, why) = key_state(told);
    json!({
        "state": state,
        "why": why,
        "period_s": told.period.as_secs(),
        "overlap_s": told.overlap.as_secs(),
        "block": told.block,
        "blocks": told.blocks,
        "next_s": told.next.as_secs(),
        "clock_ahead_ms": told.ahead_ms,
    })
}

fn key_state(told: &KeyStatus) -> (&'static str, String) {
    let overlap_s = told.overlap.as_secs();
    let mend = "set the clock that is wrong, for example by NTP";
    match told.ahead_ms {
        Some(ms) if told.are_clocks_apart() => {
            let side = if ms > 0 { "ahead of" } else { "behind" };
            let apart = minutes(ms.unsigned_abs().div_ceil(1000));
            let why = format!(
                "the peer's clock is {apart} {side} this machine's, and keys overlap by \
                 {overlap_s} s; {mend}"
            );
            ("clocks apart", why)
        }
        _ if told.is_refused => {
            let why = format!(
                "the peer answers with a key that does not hold here: the clocks are more than \
                 {overlap_s} s apart, or the key files differ; {mend}, or copy the file again"
            );
            ("refused", why)
        }
        _ => ("good", "both ends use keys of one time".to_owned()),
    }
}

/// How good a link is, in one word: what a person wants to know first.
#[must_use]
pub fn quality(weather: Option<&Weather>, now: Instant) -> &'static str {
    let Some(weather) = weather else { return "plain" };
    let told = age_s(weather.told_out.max(weather.told_in), now);
    if weather.is_idle || told.is_none_or(|age_s| age_s > FRESH_S) {
        return "idle";
    }
    let [before, after] =
        [weather.loss_out.max(weather.loss_in), weather.left_out.max(weather.left_in)];
    match (before >= LOSSY, after >= LOSSY) {
        (false, _) => "good",
        (true, false) => "mended",
        (true, true) => "lossy",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn why_repair_is_on_is_what_is_done_and_states_are_a_few_words() {
        let lossy = Weather {
            chunk_bytes: 1_380,
            repair_chunks: 5,
            repair_chunks_other: 7,
            loss_out: 0.01,
            trust: 1.0,
            ..Weather::default()
        };
        let calm = Weather { repair_chunks: 0, repair_chunks_other: 0, ..lossy };
        for (weather, state, why) in [
            (lossy, "on", "the path loses"),
            (Weather { chunk_bytes: 8_880, ..lossy }, "on, short packets", "datagrams of jumbo"),
            (Weather { loss_out: 0.0, ..lossy }, "on, learning", "nothing was lost so far"),
            (Weather { trust: 0.3, ..lossy }, "held back", "it does not help"),
            (Weather { repair_chunks: 0, ..lossy }, "on, not TCP", "so short a path"),
            (Weather { repair_chunks: 0, is_full: true, ..lossy }, "on, not TCP", "TCP fills"),
            (calm, "off", "so little is lost"),
            (Weather { chunk_bytes: 8_880, loss_out: 0.0, ..calm }, "off", "nothing is lost"),
            (Weather { in_streams: true, ..lossy }, "off", "every part of the way is a stream"),
        ] {
            let told = repair(&weather);
            assert!(told.0 == state && told.1.starts_with(why), "{told:?}, {state}, {why}");
            assert!(told.0.split(' ').count() <= 3, "{told:?}");
        }
    }

    #[test]
    fn clocks_that_are_apart_and_keys_that_are_refused_are_told_with_what_to_do() {
        let good = KeyStatus {
            period: Duration::from_secs(86_400),
            overlap: Duration::from_secs(60),
            block: 3,
            blocks: 7_300,
            next: Duration::from_secs(100),
            ahead_ms: Some(-60_000),
            is_refused: false,
        };
        assert_eq!(keys(&good)["state"], "good");
        for (ahead_ms, is_refused, state, why) in [
            (Some(61_200), false, "clocks apart", "the peer's clock is 62 s ahead of this"),
            (Some(-7_200_000), true, "clocks apart", "the peer's clock is 2 h behind this"),
            (None, true, "refused", "the peer answers with a key that does not hold here"),
        ] {
            let told = keys(&KeyStatus { ahead_ms, is_refused, ..good });
            assert_eq!(told["state"], state, "{told}");
            let told = told["why"].as_str().unwrap_or_default();
            assert!(told.starts_with(why) && told.contains("60 s"), "{told}");
            assert!(told.contains("; set the clock"), "{told}");
        }
    }

    /// Trials 0.6: a peer that has rested for three minutes is no other one for that.
    #[test]
    fn an_idle_link_is_idle_and_not_plain_and_tells_what_it_knew_with_its_age() {
        let at = |s: u64| Instant(s * 1_000_000_000);
        let weather = Weather {
            is_idle: true,
            told_out: Some(at(1_000)),
            loss_out: 0.02,
            ..Weather::default()
        };
        let mut peer = json!({});
        add(&mut peer, None, Some(&weather), at(1_200));
        assert_eq!(
            (&peer["link_state"], &peer["link"]["out"]["age_s"]),
            (&json!("idle"), &json!(200.0))
        );
        let why = peer["link_why"].as_str().unwrap_or_default();
        assert!(why.contains("nothing was sent for 3 min") && why.contains("had frames"), "{why}");
        assert_eq!(quality(Some(&weather), at(1_200)), "idle");
        let fresh = Weather { is_idle: false, ..weather };
        assert_eq!(quality(Some(&fresh), at(1_010)), "mended");
        assert_eq!(quality(Some(&fresh), at(1_100)), "idle", "it is not of now");
        assert_eq!(quality(Some(&Weather { left_out: 0.01, ..fresh }), at(1_010)), "lossy");
        assert_eq!(quality(Some(&Weather { loss_out: 0.0, ..fresh }), at(1_010)), "good");
        add(&mut peer, None, None, at(1_200));
        assert_eq!((&peer["link_state"], &peer["link"]), (&json!("none"), &Value::Null));
        assert_eq!(quality(None, at(1_200)), "plain");
    }
}
