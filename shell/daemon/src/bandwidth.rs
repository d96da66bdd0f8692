//! What the path to a peer has left beside others' packets, measured when somebody wants to know.
//!
//! One measurement at a time, on a thread of its own: it asks the estimator (`quality`) for a
//! stream, has the data loop seal it, sends it when each packet is due, and asks the peer when they
//! arrived. Who may order one is whoever may say `up`; a peer can order none.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use host::driver::mail::{Gone, Remote};
use host::sockets::soundings::{self, Sealed};
use node::Unsounded;
use noise::PublicKey;
use quality::{Arrival, Discard, Estimator, Limits, Outcome, Probe, StreamPlan};
use serde_json::{Value, json};

/// A session, or the peer's Hello on a new one, is waited for so often, and so long each time.
const SEAL_TRIES: u32 = 12;
const SEAL_EVERY: Duration = Duration::from_millis(250);
/// The peer is asked for arrivals so often; in between it is looked whether it has told.
const ASKS: u32 = 10;
const GLANCES: u32 = 125;
const GLANCE_EVERY: Duration = Duration::from_millis(2);

/// What is told of it in metrics: rows of a peer.
pub(crate) const BANDWIDTH: &[(&str, &str, &str, &str, f64)] = &[
    (
        "warren_peer_available_bandwidth_low_bytes_per_second",
        "The way to the peer had so much left at least when it was measured last.",
        "gauge",
        "/bandwidth/low_bps",
        0.125,
    ),
    (
        "warren_peer_available_bandwidth_high_bytes_per_second",
        "And so much at most.",
        "gauge",
        "/bandwidth/high_bps",
        0.125,
    ),
    (
        "warren_peer_available_bandwidth_age_seconds",
        "How long ago that was measured, with a range or without one.",
        "gauge",
        "/bandwidth/age_s",
        1.0,
    ),
    (
        "warren_peer_available_bandwidth_cost_bytes",
        "What that measurement sent.",
        "gauge",
        "/bandwidth/cost_bytes",
        1.0,
    ),
];

/// What was found, peer by peer, and what is under way.
#[derive(Debug, Default)]
pub(crate) struct Bandwidths {
    under_way: Option<PublicKey>,
    found: BTreeMap<PublicKey, Found>,
}

/// What one measurement found.
#[derive(Debug)]
pub(crate) struct Found {
    at: Instant,
    took: Duration,
    cost_bytes: u64,
    result: Result<Outcome, Failed>,
}

/// Why nothing could be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failed {
    /// No stream could be sent.
    Unsounded(Unsounded),
    /// The peer told nothing of one.
    Silent,
    /// The data loop has ended.
    Gone,
}

impl From<Gone> for Failed {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsounded(Unsounded::NoSession) => {
                "there is no session with the peer; `warren ping` and `warren why` tell more"
            }
            Self::Unsounded(Unsounded::Unable) => {
                "the peer's program does not know the measurement; update it"
            }
            Self::Unsounded(Unsounded::NotDirect) => {
                "the path is not of UDP; what a relay or another carrier queues is not the path's"
            }
            Self::Unsounded(Unsounded::NoRoom) => "the path is too narrow for its packets",
            Self::Silent => "the peer does not answer",
            Self::Gone => "the daemon is about to end",
        })
    }
}

impl Bandwidths {
    /// Whether a path is being measured.
    pub(crate) const fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// The path to this peer is.
    pub(crate) const fn begin(&mut self, key: PublicKey) {
        self.under_way = Some(key);
    }

    /// A measurement has ended. Peers that are none any more are forgotten.
    pub(crate) fn take(
        &mut self,
        key: PublicKey,
        found: Found,
        is_peer: impl Fn(&PublicKey) -> bool,
    ) {
        tracing::info!(%key, cost_bytes = found.cost_bytes, result = ?found.result,
            "a path was measured");
        self.under_way = None;
        self.found.retain(|known, _| is_peer(known));
        self.found.insert(key, found);
    }

    /// What is known of a peer, for `status`; null if nobody wanted to know.
    pub(crate) fn shown(&self, key: &PublicKey) -> Value {
        let is_under_way = self.under_way.as_ref() == Some(key);
        match self.found.get(key) {
            Some(found) => found.shown(is_under_way),
            None if is_under_way => json!({ "measuring": true, "result": null }),
            None => Value::Null,
        }
    }
}

impl Found {
    fn shown(&self, is_under_way: bool) -> Value {
        let mut value = json!({
            "measuring": is_under_way,
            "result": word(&self.result),
            "low_bps": null,
            "high_bps": null,
            "why": why(&self.result),
            "age_s": self.at.elapsed().as_secs_f64(),
            "took_s": self.took.as_secs_f64(),
            "cost_bytes": self.cost_bytes,
        });
        match self.result {
            Ok(Outcome::Range { low_bps, high_bps }) => {
                value["low_bps"] = json!(low_bps as u64);
                value["high_bps"] = json!(high_bps as u64);
            }
            Ok(Outcome::AtLeast(low_bps)) => value["low_bps"] = json!(low_bps as u64),
            Ok(Outcome::TokenBucket { burst_bps, rate_bps }) => {
                value["burst_bps"] = json!(burst_bps as u64);
                value["rate_bps"] = json!(rate_bps as u64);
            }
            _ => {}
        }
        value
    }
}

const fn word(result: &Result<Outcome, Failed>) -> &'static str {
    match result {
        Ok(Outcome::Range { .. }) => "range",
        Ok(Outcome::AtLeast(_)) => "at-least",
        Ok(Outcome::TokenBucket { .. }) => "token-bucket",
        Ok(Outcome::Multipath) => "multipath",
        Ok(Outcome::Lossy(_)) => "lossy",
        Ok(Outcome::Unsteady(_)) => "unsteady",
        Ok(Outcome::NotConverged) => "not-converged",
        Err(Failed::Unsounded(Unsounded::Unable)) => "unable",
        Err(Failed::Unsounded(_)) => "no-path",
        Err(Failed::Silent | Failed::Gone) => "no-answer",
    }
}

/// Why there is no range; none if there is one.
fn why(result: &Result<Outcome, Failed>) -> Option<String> {
    let mbit = |bps: f64| format!("{:.1} Mbit/s", bps / 1e6);
    match result {
        Ok(Outcome::Range { .. }) => None,
        Ok(Outcome::AtLeast(_)) => Some("this machine sends no faster than that".to_owned()),
        Ok(Outcome::TokenBucket { burst_bps, rate_bps }) => Some(format!(
            "a token bucket: short bursts have {}, what lasts has {}",
            mbit(*burst_bps),
            mbit(*rate_bps)
        )),
        Ok(Outcome::Multipath) => Some("packets take two paths of different delay".to_owned()),
        Ok(Outcome::Lossy(loss)) => {
            Some(format!("{:.0} % is lost without delay, so delay says little", loss * 100.0))
        }
        Ok(Outcome::Unsteady(discard)) => Some(
            match discard {
                Discard::Short => "too few packets of a stream arrived",
                Discard::SenderPaused => "this machine is too busy to send in time",
                Discard::ClockStep => "a clock was set, or delay jumped",
            }
            .to_owned(),
        ),
        Ok(Outcome::NotConverged) => Some(
            "what others send changes too much for a minute and a tenth of a ten-second transfer"
                .to_owned(),
        ),
        Err(failed) => Some(failed.to_string()),
    }
}

/// Measures, on the caller's thread.
pub(crate) fn measure(remote: &Remote, key: PublicKey) -> Found {
    let begin = Instant::now();
    let mut estimator = Estimator::new(Limits::default(), soundings::now());
    let result = run(remote, key, &mut estimator);
    let cost_bytes = estimator.cost_bytes();
    Found { at: Instant::now(), took: begin.elapsed(), cost_bytes, result }
}

fn run(remote: &Remote, key: PublicKey, estimator: &mut Estimator) -> Result<Outcome, Failed> {
    loop {
        if let Some(plan) = estimator.poll_stream(soundings::now()) {
            let stream = seal(remote, key, &plan)?;
            let sent: Vec<Probe> = (0..)
                .zip(stream.send(plan.gap, plan.lead, plan.bulk))
                .map(|(sequence, sent_ns)| Probe { sequence, sent_ns })
                .collect();
            let arrivals = arrivals(remote)?;
            estimator.handle_stream(plan.number, &sent, &arrivals, soundings::now());
        }
        if let Some(outcome) = estimator.outcome() {
            return Ok(outcome);
        }
        if let Some(due) = estimator.poll_timeout() {
            std::thread::sleep(due.since(soundings::now()));
        }
    }
}

/// A stream, sealed; without a session one is waited for.
fn seal(remote: &Remote, key: PublicKey, plan: &StreamPlan) -> Result<Sealed, Failed> {
    let packets = plan.packets as u16;
    let len = plan.len;
    let mut last = Unsounded::NoSession;
    for _ in 0..SEAL_TRIES {
        match remote.call(move |desk| desk.seal_stream(&key, packets, len))? {
            Ok(sealed) => return Ok(sealed),
            Err(why) => last = why,
        }
        std::thread::sleep(SEAL_EVERY);
    }
    Err(Failed::Unsounded(last))
}

/// When the packets of the last stream arrived.
fn arrivals(remote: &Remote) -> Result<Vec<Arrival>, Failed> {
    for _ in 0..ASKS {
        // Between two sessions nobody can be asked; a little later one can.
        let _ = remote.call(|desk| desk.ask_arrivals())?;
        for _ in 0..GLANCES {
            std::thread::sleep(GLANCE_EVERY);
            let told = remote.call(|desk| desk.node().0.arrivals().map(<[(u16, u64)]>::to_vec))?;
            if let Some(told) = told {
                let arrival = |(sequence, received_ns): (u16, u64)| Arrival {
                    sequence: sequence.into(),
                    received_ns,
                };
                return Ok(told.into_iter().map(arrival).collect());
            }
        }
    }
    Err(Failed::Silent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(result: Result<Outcome, Failed>) -> Value {
        let took = Duration::from_secs(3);
        Found { at: Instant::now(), took, cost_bytes: 900, result }.shown(false)
    }

    #[test]
    fn a_range_is_told_with_its_age_and_cost_and_what_is_none_with_a_reason() {
        let range = found(Ok(Outcome::Range { low_bps: 9.1e6, high_bps: 10.2e6 }));
        assert_eq!(
            (&range["low_bps"], &range["high_bps"]),
            (&json!(9_100_000), &json!(10_200_000))
        );
        assert_eq!((&range["result"], &range["why"]), (&json!("range"), &Value::Null));
        assert_eq!((&range["cost_bytes"], &range["took_s"]), (&json!(900), &json!(3.0)));
        assert!(range["age_s"].as_f64().unwrap() < 60.0);
        let unsounded =
            [Unsounded::NoSession, Unsounded::Unable, Unsounded::NotDirect, Unsounded::NoRoom];
        let failed = unsounded.map(Failed::Unsounded).into_iter().chain([Failed::Silent]);
        let outcomes = [
            Outcome::AtLeast(9e8),
            Outcome::TokenBucket { burst_bps: 9e8, rate_bps: 5e7 },
            Outcome::Multipath,
            Outcome::Lossy(0.08),
            Outcome::Unsteady(Discard::SenderPaused),
            Outcome::NotConverged,
        ];
        for result in failed.map(Err).chain(outcomes.map(Ok)) {
            let value = found(result);
            assert!(value["high_bps"].is_null() && value["why"].is_string(), "{value}");
        }
        let silent = found(Err(Failed::Silent));
        assert_eq!(
            (&silent["result"], &silent["why"]),
            (&json!("no-answer"), &json!("the peer does not answer"))
        );
    }

    #[test]
    fn what_is_under_way_is_told_beside_what_was_found_before() {
        let key = PublicKey([7; 32]);
        let mut all = Bandwidths::default();
        assert_eq!(all.shown(&key), Value::Null);
        all.under_way = Some(key);
        assert_eq!(all.shown(&key)["measuring"], true);
        let result = Ok(Outcome::NotConverged);
        let took = Duration::ZERO;
        all.found.insert(key, Found { at: Instant::now(), took, cost_bytes: 1, result });
        assert_eq!(all.shown(&key)["result"], "not-converged");
        assert_eq!(all.shown(&PublicKey([8; 32])), Value::Null);
    }
}
