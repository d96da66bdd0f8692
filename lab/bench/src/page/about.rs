//! What each test is about, and how good a figure is among its like.

use super::cells::{BACK, FORTH};
use crate::ring::Test;
use crate::ring::metric::Better;

/// What a test's peers are ordered by, and shown in heat maps.
pub(crate) fn primary(test: Test) -> &'static str {
    match test {
        Test::Connect => "connect_ms",
        Test::Ping => "rtt_median_ms",
        Test::Tcp | Test::Six | Test::Udp | Test::Quic | Test::Grid => FORTH,
        Test::Both | Test::Parallel => "sum_mbit_s",
        Test::Flood => "ping_lost_percent",
        Test::Video => "video_quality_percent",
        Test::Download => "download_s",
        Test::Reconnect => "reconnect_s",
        Test::Shared => "inside_mbit_s",
    }
}

/// The names of its two directions, where it has such.
pub(crate) fn ways(test: Test) -> [&'static str; 2] {
    match test {
        Test::Parallel => ["forward_sum_mbit_s", "back_sum_mbit_s"],
        _ => [FORTH, BACK],
    }
}

/// What else of it is shown to strangers.
pub(crate) fn beside(test: Test) -> &'static [&'static str] {
    match test {
        Test::Quic => &["ipv6_mbit_s", "cpu_s_per_gb"],
        Test::Video => &["loaded_rtt_p99_ms", "frames_missing_percent"],
        Test::Tcp => &["loaded_rtt_mean_ms", "wire_bytes_per_byte"],
        _ => &[],
    }
}

/// Where a value lies between the worst (0) and the best (1) of all, on a scale of powers of ten.
pub(crate) fn heat_of(own: f64, all: &[f64], better: Better) -> f64 {
    let scaled = |value: f64| value.max(1e-3).ln();
    let min = all.iter().copied().map(scaled).fold(f64::MAX, f64::min);
    let max = all.iter().copied().map(scaled).fold(f64::MIN, f64::max);
    if max - min < 1e-9 {
        return 1.0;
    }
    let share = (scaled(own) - min) / (max - min);
    if better == Better::High { share } else { 1.0 - share.min(1.0) }
}
