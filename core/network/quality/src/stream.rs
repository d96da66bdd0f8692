//! One stream judged: from real send times and arrivals to a trend and a growth of delay.

use core::ops::Range;

/// A gap so many times the mean is a sender that was interrupted.
const GAP_MAX: f64 = 3.0;
/// And longer than this, ns: shorter ones are in the send times and do no harm.
const PAUSE_NS: u64 = 100_000;
/// Packets that arrive closer together than this came with one interrupt, ns.
const BATCH_NS: u64 = 30_000;
/// And closer than this share of the mean gap, so that quick streams are not one batch.
const BATCH_SHARE: f64 = 0.3;
/// Events that a judgement needs.
const EVENTS_MIN: usize = 10;
/// Losses from which a stream says more of loss than of delay.
const LOSS_MAX: f64 = 0.03;
/// A delay that changes by more than this from one packet to the next is a clock that was set.
const STEP_NS: i64 = 50_000_000;
/// Share of rising medians from which there is a trend, and up to which there is none.
const RISING: Range<f64> = 0.54..0.66;
/// The same of the way that medians went, of all ways that they took.
const CLIMB: Range<f64> = 0.45..0.55;

/// A packet of a stream when it left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Its place in the stream.
    pub sequence: u32,
    /// When it left, by the sender's clock, ns.
    pub sent_ns: u64,
}

/// The same when it arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Its place in the stream.
    pub sequence: u32,
    /// When it arrived, by the receiver's clock, ns.
    pub received_ns: u64,
}

/// Whether delays grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trend {
    /// They do.
    Rising,
    /// They do not.
    Flat,
    /// One cannot say.
    Grey,
}

/// Why a stream says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discard {
    /// Fewer packets than a judgement needs.
    Short,
    /// The sender was interrupted.
    SenderPaused,
    /// A clock was set while it was under way.
    ClockStep,
}

/// What one stream says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Judged {
    /// The rate at which it was really sent, bits a second.
    pub rate_bps: f64,
    /// The rate at which it arrived.
    pub out_bps: f64,
    /// The rates at which its first eighth and its last third arrived.
    pub ends_bps: [f64; 2],
    /// Growth of delay per time sent, without a unit.
    pub growth: f64,
    /// The trend of medians.
    pub trend: Trend,
    /// Share of packets that did not arrive.
    pub loss: f64,
    /// Whether delays are of two kinds that take turns, as over two paths.
    pub is_bimodal: bool,
    /// The longest time that one event holds packets of, ns: how far the receiver batches.
    pub batch_ns: u64,
}

/// One event: the last packet of a batch.
#[derive(Clone, Copy, Debug)]
struct Event {
    sent_ns: u64,
    received_ns: u64,
    delay_ns: i64,
}

/// Judges a stream of packets of `len` bytes, headers included.
///
/// # Errors
/// Why it says nothing.
pub fn judge(len: usize, sent: &[Probe], arrivals: &[Arrival]) -> Result<Judged, Discard> {
    if sent.len() < EVENTS_MIN || arrivals.len() < EVENTS_MIN {
        return Err(Discard::Short);
    }
    let span_ns = sent[sent.len() - 1].sent_ns.saturating_sub(sent[0].sent_ns).max(1);
    let mean_ns = span_ns as f64 / (sent.len() - 1) as f64;
    let is_paused = |pair: &[Probe]| {
        let gap_ns = pair[1].sent_ns.saturating_sub(pair[0].sent_ns);
        gap_ns as f64 > mean_ns * GAP_MAX && gap_ns > PAUSE_NS
    };
    if sent.windows(2).any(is_paused) {
        return Err(Discard::SenderPaused);
    }
    let bits = (len * 8) as f64;
    let rate_bps = bits * 1e9 / mean_ns;
    let packets = joined(sent, arrivals);
    if packets.len() < EVENTS_MIN {
        return Err(Discard::Short);
    }
    if packets.windows(2).any(|pair| (pair[1].delay_ns - pair[0].delay_ns).abs() > STEP_NS) {
        return Err(Discard::ClockStep);
    }
    let (events, batch_ns) = events(&packets);
    if events.len() < EVENTS_MIN / 2 {
        return Err(Discard::Short);
    }
    let loss = 1.0 - packets.len() as f64 / sent.len() as f64;
    let mut received: Vec<u64> = packets.iter().map(|packet| packet.received_ns).collect();
    received.sort_unstable();
    // What arrived, and not what was sent, is a rate out.
    let arrived = |part: &[u64]| {
        let span = part[part.len() - 1].saturating_sub(part[0]).max(1);
        bits * (part.len() - 1) as f64 * 1e9 / span as f64
    };
    let head = received.len() / 8;
    let tail = received.len() / 3;
    let delays: Vec<f64> = events.iter().map(|event| event.delay_ns as f64).collect();
    Ok(Judged {
        rate_bps,
        out_bps: arrived(&received),
        ends_bps: [arrived(&received[..head.max(2)]), arrived(&received[received.len() - tail..])],
        growth: growth(&events),
        trend: if loss > LOSS_MAX { lossy_trend(&delays) } else { trend(&delays) },
        loss,
        is_bimodal: is_bimodal(&packets),
        batch_ns,
    })
}

/// Packets that arrived, in the order in which they were sent.
fn joined(sent: &[Probe], arrivals: &[Arrival]) -> Vec<Event> {
    let mut by_sequence: Vec<&Arrival> = arrivals.iter().collect();
    by_sequence.sort_by_key(|arrival| arrival.sequence);
    by_sequence.dedup_by_key(|arrival| arrival.sequence);
    let mut packets = Vec::with_capacity(sent.len());
    for probe in sent {
        let found = by_sequence.binary_search_by_key(&probe.sequence, |a| a.sequence);
        let Ok(at) = found else { continue };
        let received_ns = by_sequence[at].received_ns;
        let delay_ns = received_ns.wrapping_sub(probe.sent_ns) as i64;
        packets.push(Event { sent_ns: probe.sent_ns, received_ns, delay_ns });
    }
    packets
}

/// The last packet of each batch, and how long batches are.
fn events(packets: &[Event]) -> (Vec<Event>, u64) {
    let span = packets[packets.len() - 1].received_ns.saturating_sub(packets[0].received_ns);
    let mean = span as f64 / (packets.len() - 1) as f64;
    let edge = BATCH_NS.min((mean * BATCH_SHARE) as u64);
    let mut events: Vec<Event> = Vec::new();
    let mut longest = 0;
    let mut first_sent = packets[0].sent_ns;
    for pair in packets.windows(2) {
        if pair[1].received_ns.saturating_sub(pair[0].received_ns) > edge {
            longest = longest.max(pair[0].sent_ns.saturating_sub(first_sent));
            first_sent = pair[1].sent_ns;
            events.push(pair[0]);
        }
    }
    events.push(packets[packets.len() - 1]);
    (events, longest)
}

/// The slope of delay over the time of sending, by least squares.
fn growth(events: &[Event]) -> f64 {
    let count = events.len() as f64;
    let at = |event: &Event| event.sent_ns.wrapping_sub(events[0].sent_ns) as f64;
    let delay = |event: &Event| event.delay_ns.wrapping_sub(events[0].delay_ns) as f64;
    let mean_at = events.iter().map(at).sum::<f64>() / count;
    let mean_delay = events.iter().map(delay).sum::<f64>() / count;
    let mut both = 0.0;
    let mut square = 0.0;
    for event in events {
        both += (at(event) - mean_at) * (delay(event) - mean_delay);
        square += (at(event) - mean_at).powi(2);
    }
    if square > 0.0 { both / square } else { 0.0 }
}

/// Pathload's two tests on medians of groups; both must say the same, or one while the other
/// does not object.
fn trend(delays: &[f64]) -> Trend {
    let size = (delays.len() as f64).sqrt() as usize;
    let medians: Vec<f64> = delays.chunks_exact(size.max(1)).map(median).collect();
    if medians.len() < 3 {
        return Trend::Grey;
    }
    let pairs = (medians.len() - 1) as f64;
    let rising = medians.windows(2).filter(|pair| pair[1] > pair[0]).count() as f64 / pairs;
    let way: f64 = medians.windows(2).map(|pair| (pair[1] - pair[0]).abs()).sum();
    let climb = if way > 0.0 { (medians[medians.len() - 1] - medians[0]) / way } else { 0.0 };
    let votes = [(rising, &RISING), (climb, &CLIMB)].map(|(value, bounds)| {
        match (value > bounds.end, value < bounds.start) {
            (true, _) => 1,
            (_, true) => -1,
            _ => 0,
        }
    });
    match votes.iter().sum::<i32>() {
        1.. => Trend::Rising,
        0 => Trend::Grey,
        _ => Trend::Flat,
    }
}

/// Of a stream that lost much only a rise is believed: what would have waited longest is missing.
fn lossy_trend(delays: &[f64]) -> Trend {
    match trend(delays) {
        Trend::Rising => Trend::Rising,
        _ => Trend::Grey,
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Whether delays fall into two groups, each of a fifth or more, with five times as much between
/// them as within them, and packets take turns.
fn is_bimodal(packets: &[Event]) -> bool {
    let mut sorted: Vec<i64> = packets.iter().map(|packet| packet.delay_ns).collect();
    sorted.sort_unstable();
    let fifth = sorted.len() / 5;
    let gap = |at: usize| sorted[at + 1] - sorted[at];
    let Some(split) = (fifth..sorted.len() - fifth - 1).max_by_key(|at| gap(*at)) else {
        return false;
    };
    let within = (sorted[split] - sorted[0]).max(sorted[sorted.len() - 1] - sorted[split + 1]);
    let threshold = sorted[split];
    let is_high = |packet: &Event| packet.delay_ns > threshold;
    let turns = packets.windows(2).filter(|pair| is_high(&pair[0]) != is_high(&pair[1])).count();
    gap(split) > 5 * within.max(1) && turns > packets.len() / 5
}
