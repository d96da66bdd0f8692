//! What is to be found out of streams, and what was found.

use std::time::Duration;

use crate::impair::{self, Impairment};
use crate::profile;
use crate::tcp;

/// What is to be found out.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The line forth and back.
    pub line: Impairment,
    /// Whether both nodes speak frames; else they are plain WireGuard.
    pub frames: bool,
    /// Streams from the first host to the second.
    pub streams: usize,
    /// How long a host gathers what arrives before it looks at it.
    pub turn_us: u64,
    /// What a round trip takes from the second host on to who answers: none, if it is that host.
    pub beyond: Duration,
    /// How long the streams run.
    pub time: Duration,
    /// Whether what the streams send may be marked in place of being dropped (RFC 3168).
    pub ecn: bool,
    /// The host that is started anew when half of the time is over, if one is: 0 sends.
    pub restarts: Option<usize>,
    /// Chance.
    pub seed: u64,
}

impl Setting {
    /// One stream between two that speak frames, for `time`, over a line of one gigabit with the
    /// weather that `words` say, one behind the other: `low`, or `rate=20mbit+delay=5ms`.
    ///
    /// # Panics
    /// If a word says no weather.
    #[must_use]
    pub fn over(words: &str, time: Duration, seed: u64) -> Self {
        let mut line = Impairment::LINE;
        for word in words.split('+') {
            profile::apply(&mut line, word).expect("a word of weather");
        }
        Self {
            line,
            frames: true,
            streams: 1,
            turn_us: 60,
            beyond: Duration::ZERO,
            time,
            ecn: false,
            restarts: None,
            seed,
        }
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Payload that came in order, Mbit/s, all streams.
    pub mbit_s: f64,
    /// The same of the second half of the time.
    pub late_mbit_s: f64,
    /// That of the stream that had the least.
    pub least_mbit_s: f64,
    /// Bytes given to the line forth for each byte of that payload.
    pub wire_bytes_per_byte: f64,
    /// Of all streams.
    pub tcp: tcp::Counters,
    /// What the line did, forth.
    pub line: impair::Counters,
    /// The smoothed round trip of the first stream at the end.
    pub srtt_us: u64,
    /// Rebuilt pieces that the receiving node dropped, and those that it marked, to tell a flow of
    /// congestion.
    pub dropped: u64,
    /// See `dropped`.
    pub marked: u64,
    /// Packets, or superpackets of them, that reached the receiver with a mark.
    pub seen_marked: u64,
    /// How far apart the sending node wanted its datagrams at the end, nanoseconds; 0 = not at all.
    pub gap_ns: u32,
}
