//! Every figure that a measurement can have: its name, its unit, and which way is better.

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// More.
    High,
    /// Less.
    Low,
}

/// A kind of figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name in a sample, with the unit at its end.
    pub name: &'static str,
    /// What it is, for people.
    pub title: &'static str,
    /// Its unit, for people.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
}

const fn metric(
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    better: Better,
) -> Metric {
    Metric { name, title, unit, better }
}

use Better::{High, Low};

/// All, in the order of the report's columns.
pub const METRICS: &[Metric] = &[
    metric("connect_ms", "first echo after the start", "ms", Low),
    metric("reconnect_s", "echoes both ways after a restart", "s", Low),
    metric("rtt_mean_ms", "round trip, mean", "ms", Low),
    metric("rtt_median_ms", "round trip, median", "ms", Low),
    metric("rtt_p99_ms", "round trip, 99th percentile", "ms", Low),
    metric("rtt_max_ms", "round trip, largest", "ms", Low),
    metric("jitter_ms", "jitter", "ms", Low),
    metric("ping_lost_percent", "pings lost", "%", Low),
    metric("forward_mbit_s", "up", "Mbit/s", High),
    metric("back_mbit_s", "down", "Mbit/s", High),
    metric("sum_mbit_s", "sum of all flows", "Mbit/s", High),
    metric("forward_sum_mbit_s", "sum of the three flows up", "Mbit/s", High),
    metric("back_sum_mbit_s", "sum of the three flows down", "Mbit/s", High),
    metric("sent_mbit_s", "offered", "Mbit/s", High),
    metric("lost_percent", "lost of what was sent", "%", Low),
    metric("unanswered_percent", "arrived, and left unanswered by the kernel", "%", Low),
    metric("unread_percent", "arrived, and found the program's buffer full", "%", Low),
    metric("connections_broken", "begun again, since iperf3's connection broke", "times", Low),
    metric("forward_retransmits", "retransmits, up", "segments", Low),
    metric("back_retransmits", "retransmits, down", "segments", Low),
    metric("forward_again_percent", "retransmits, up", "% of segments", Low),
    metric("forward_cwnd_kb", "largest congestion window, up", "kB", High),
    metric("back_again_percent", "retransmits, down", "% of segments", Low),
    metric("back_cwnd_kb", "largest congestion window, down", "kB", High),
    metric("loaded_rtt_mean_ms", "round trip under load, mean", "ms", Low),
    metric("loaded_rtt_p99_ms", "round trip under load, 99th percentile", "ms", Low),
    metric("loaded_lost_percent", "pings lost under load", "%", Low),
    metric("handshake_ms", "a QUIC connection made, mean", "ms", Low),
    metric("handshakes_failed", "handshakes of QUIC that failed", "times", Low),
    metric("ipv6_mbit_s", "up, over IPv6", "Mbit/s", High),
    metric("ipv6_handshakes_failed", "handshakes over IPv6 that failed", "times", Low),
    metric("video_quality_percent", "quality of the video, by the receiver", "%", High),
    metric("video_lost_packets", "lost for good", "packets", Low),
    metric("video_recovered_packets", "lost, and sent again in time", "packets", Low),
    metric("frames_missing_percent", "frames of the video that did not come", "%", Low),
    metric("frames_damaged_percent", "frames of the video that came damaged", "%", Low),
    metric("session_rtt_mean_ms", "round trip of the session, mean", "ms", Low),
    metric("session_rtt_p99_ms", "round trip of the session, 99th percentile", "ms", Low),
    metric("download_s", "download", "s", Low),
    metric("long_download_s", "download of ten times as much, after it", "s", Low),
    metric("inside_mbit_s", "flow inside", "Mbit/s", High),
    metric("outside_mbit_s", "flow outside", "Mbit/s", High),
    metric("inside_percent", "share of the flow inside", "%", High),
    metric("outside_percent", "share of the flow outside", "%", High),
    metric("outside_retransmits", "retransmits of the flow outside", "segments", Low),
    metric("outside_queue_drops", "of the flow outside dropped by the queue", "packets", Low),
    metric("queue_drops", "dropped by the shared queue", "packets", Low),
    metric("wire_bytes_per_byte", "bytes on the wire for each that arrived", "×", Low),
    metric("cpu_s_per_gb", "daemons' processor time", "s/GB", Low),
    metric("machine_cpu_s_per_gb", "the machine's processor time", "s/GB", Low),
    metric("busy_percent", "the machine's processors busy, the wire's work too", "%", Low),
    metric("rss_idle_mib", "largest daemon, idle", "MiB", Low),
    metric("rss_mib", "largest daemon, after the load", "MiB", Low),
    metric("mtu_bytes", "largest packet inside", "bytes", High),
];

/// The one called so.
#[must_use]
pub fn named(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}
