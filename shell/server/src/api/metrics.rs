//! What the server tells a monitor, in the text form of Prometheus. Nothing here asks the books,
//! so that it answers also while they are away.

use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use super::handlers::Answer;
use super::{Call, Reply};
use crate::relay::{Pings, QuicCounts};
use crate::tls::{Origin, Shown};

/// A list of metrics as text.
#[derive(Default)]
struct Text(String);

impl Text {
    /// One metric with its values; `labels` are empty or `{…}`.
    fn put<T: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        values: impl IntoIterator<Item = (String, T)>,
    ) {
        let _ = writeln!(self.0, "# HELP warren_{name} {help}\n# TYPE warren_{name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(self.0, "warren_{name}{labels} {value}");
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.put(name, "gauge", help, [(String::new(), value)]);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.put(name, "counter", help, [(String::new(), value)]);
    }
}

pub(super) fn metrics(call: &Call) -> Answer {
    let mut text = Text::default();
    network(&mut text, call);
    relay(&mut text, call);
    certificate(&mut text, call);
    webhooks(&mut text, call);
    let refused = call.app.limits.refused();
    let (waiting, known, cut) = call.app.doorstep.counts();
    text.gauge("connections", "Open connections over TLS.", waiting + known);
    text.counter("refused_connections_total", "Connections beyond a rate.", refused);
    text.gauge("waiting_connections", "Connections that have proven nothing yet.", waiting);
    let help = "Connections that were cut to let others in.";
    text.counter("displaced_connections_total", help, cut);
    let errors = call.app.store_errors();
    text.counter(
        "store_errors_total",
        "Times that the books could not be read or written.",
        errors,
    );
    Ok(Reply::Text(text.0))
}

fn network(text: &mut Text, call: &Call) {
    let now = call.app.now();
    let network = call.app.network();
    let [nodes, online, waiting, expired] = network.count(now);
    text.gauge("nodes", "Nodes in the books.", nodes);
    text.gauge("nodes_online", "Nodes that are in touch.", online);
    text.gauge("nodes_waiting", "Nodes that wait for approval.", waiting);
    text.gauge("nodes_expired", "Nodes whose key is over.", expired);
    text.gauge("map_epoch", "Grows with every start.", network.epoch());
    text.gauge("map_sequence", "Grows with every change since the start.", network.sequence());
    text.gauge("policy_version", "The version of the policy.", network.policy_version());
    let is_readable = u8::from(network.is_policy_readable());
    nodes_one_by_one(text, &network.watched());
    text.gauge("policy_readable", "0 if nothing may pass because of that.", is_readable);
}

/// Each node with a daemon. Names are labels of DNS, so nothing in them needs to be escaped.
fn nodes_one_by_one(text: &mut Text, nodes: &[(String, bool, Option<u64>, Option<u64>)]) {
    let label = |name: &str| format!("{{node=\"{name}\"}}");
    let online = nodes.iter().map(|(name, online, ..)| (label(name), u8::from(*online)));
    text.put("node_online", "gauge", "Whether the node is in touch.", online);
    let seen = nodes.iter().filter_map(|(name, _, seen, _)| Some((label(name), (*seen)?)));
    let help = "When the node was last in touch, in Unix seconds.";
    text.put("node_last_seen_seconds", "gauge", help, seen);
    let ends = nodes.iter().filter_map(|(name, .., ends)| Some((label(name), (*ends)?)));
    let help = "When the node's key ends, in Unix seconds.";
    text.put("node_expires_seconds", "gauge", help, ends);
}

fn webhooks(text: &mut Text, call: &Call) {
    let counts = &call.app.hooks.counts;
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let help = "Events that a webhook took.";
    text.counter("webhook_delivered_total", help, read(&counts.delivered));
    let help = "Times that a webhook took no event; it is tried again.";
    text.counter("webhook_failures_total", help, read(&counts.failed));
    let help = "Events that were given up, or gave way to newer ones.";
    text.counter("webhook_dropped_total", help, read(&counts.dropped));
}

fn relay(text: &mut Text, call: &Call) {
    let seen = call.app.relay.counts();
    let counters = seen.counters;
    text.gauge("relay_connections", "Members at the relay.", seen.connections);
    text.gauge("relay_strangers", "Connections that have proven no key.", seen.strangers);
    text.gauge("relay_queued_bytes", "Bytes that wait for members.", seen.queued_bytes);
    let help = "Datagrams that came to the relay.";
    text.counter("relay_received_datagrams_total", help, counters.received);
    let help = "Datagrams that the relay passed on.";
    text.counter("relay_sent_datagrams_total", help, counters.sent);
    let help = "Bytes of frames that the relay passed on.";
    text.counter("relay_sent_bytes_total", help, counters.sent_bytes);
    let help = "Datagrams that the relay did not pass on.";
    let drops = carrier::switch::Reason::ALL
        .map(|reason| (format!("{{reason=\"{}\"}}", reason.name()), counters.dropped(reason)));
    text.put("relay_dropped_datagrams_total", "counter", help, drops);
    relay_by_quic(text, seen.quic);
    if let Some((connections, pings)) = seen.icmp {
        relay_by_ping(text, connections, pings);
    }
}

/// The same connections and datagrams as far as they came by QUIC, and what only that has.
fn relay_by_quic(text: &mut Text, seen: QuicCounts) {
    text.gauge("relay_quic_connections", "Members at the relay by QUIC.", seen.connections);
    let help = "Times that a member came by QUIC.";
    text.counter("relay_quic_connections_total", help, seen.entered);
    let help = "Connections of QUIC that have proven no key.";
    text.gauge("relay_quic_strangers", help, seen.strangers);
    let help = "Times that an address had to show first that it receives.";
    text.counter("relay_quic_retries_total", help, seen.asked);
    let help = "Connections of QUIC for which there was no place.";
    text.counter("relay_quic_refused_connections_total", help, seen.full);
    let help = "Datagrams of QUIC that reached no switch.";
    let drops = seen.dropped.map(|(reason, count)| (format!("{{reason=\"{reason}\"}}"), count));
    text.put("relay_quic_dropped_datagrams_total", "counter", help, drops);
}

/// The same by ping, where pings are answered.
fn relay_by_ping(text: &mut Text, seen: QuicCounts, pings: Pings) {
    text.gauge("relay_icmp_connections", "Members at the relay by ping.", seen.connections);
    let help = "Times that a member came by ping.";
    text.counter("relay_icmp_connections_total", help, seen.entered);
    let help = "Connections by ping that have proven no key.";
    text.gauge("relay_icmp_strangers", help, seen.strangers);
    text.counter("relay_icmp_requests_total", "Pings of ours that came.", pings.requests);
    text.counter("relay_icmp_replies_total", "Those that were answered.", pings.replies);
    let help = "Datagrams and pings that were dropped.";
    let drops = pings.dropped.map(|(reason, count)| (format!("{{reason=\"{reason}\"}}"), count));
    text.put("relay_icmp_dropped_total", "counter", help, drops);
}

/// The outer certificate: a renewal that fails is an alarm long before its end is one.
fn certificate(text: &mut Text, call: &Call) {
    let Shown { certificate, origin, trouble } = call.app.outer.shown();
    let from = match origin {
        Origin::Own => "self-signed",
        Origin::Files => "files",
        Origin::Authority => "acme",
    };
    let labels = format!("{{from=\"{from}\"}}");
    let help = "When the certificate that is shown ends, in Unix seconds.";
    let expires = certificate.dates.map(|(_, until)| (labels, until));
    text.put("certificate_expires_seconds", "gauge", help, expires);
    let help = "How often in a row the authority was asked in vain.";
    let failures = trouble.as_ref().map_or(0, |trouble| trouble.failures);
    text.gauge("certificate_failures", help, failures);
    let help = "When the authority is asked again after a failure, in Unix seconds.";
    let next = trouble.map(|trouble| (String::new(), trouble.next));
    text.put("certificate_next_try_seconds", "gauge", help, next);
}
