//! One stream judged: from real send times and arrivals to rates and a growth of delay.

/// A gap so many times the mean is a sender that was interrupted.
const GAP_MAX: f64 = 3.0;
/// And longer than this, ns: shorter ones are in the send times and do no harm.
const PAUSE_NS: u64 = 100_000;
/// Packets that arrive closer together than this came with one interrupt, ns.
const BATCH_NS: u64 = 30_000;
/// And closer than this share of the mean gap of sending, so that quick streams are not one batch.
const BATCH_SHARE: f64 = 0.3;
/// Events that a judgement needs.
const EVENTS_MIN: usize = 10;
/// Bytes of a train's head, at most: a bucket that is told holds more.
const HEAD_LEN: usize = 12_000;
/// A delay that changes by more than this from one packet to the next is a clock that was set.
const STEP_NS: i64 = 50_000_000;

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
    /// The rates at which its head and its last third arrived.
    pub ends_bps: [f64; 2],
    /// What is said of the path while packets queued, if they did for long enough.
    pub queued: Option<Queued>,
    /// Growth of delay per time sent over the whole stream.
    pub growth: f64,
    /// Whether the sender was interrupted.
    pub is_paused: bool,
    /// Share of packets behind the lead that did not arrive.
    pub loss: f64,
    /// And of those in it.
    pub lead_loss: f64,
    /// Whether delays are of two kinds that take turns, as over two paths.
    pub is_bimodal: bool,
    /// For so long one event holds packets in the median, ns: how far the receiver batches.
    pub batch_ns: u64,
}

impl Judged {
    /// The rate at which it was sent, and how many times that is the rate at which it arrived:
    /// while it queued, if it did.
    pub(crate) fn in_out(&self) -> [f64; 2] {
        match self.queued {
            Some(queued) => [queued.rate_bps, 1.0 + queued.growth],
            None => [self.rate_bps, self.rate_bps / self.out_bps],
        }
    }
}

/// The part of a stream in which the path's queue was never empty.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Queued {
    /// The rate at which it was sent, bits a second.
    pub rate_bps: f64,
    /// Growth of delay per time sent, without a unit.
    pub growth: f64,
    /// How long it was, ns.
    pub lasted_ns: u64,
    /// Whether the queue was empty before the stream's end.
    pub is_cut: bool,
    /// The rate at which the queue that the lead made would drain, bits a second.
    pub drain_bps: f64,
}

/// One event: the last packet of a batch.
#[derive(Clone, Copy, Debug)]
struct Event {
    /// So many packets arrived of those that were sent before.
    place: usize,
    /// So many were sent before it.
    order: usize,
    sent_ns: u64,
    received_ns: u64,
    delay_ns: i64,
}

/// Judges a stream of packets of `len` bytes, headers included. The first `lead` left at once, to
/// make a queue.
///
/// # Errors
/// Why it says nothing.
pub fn judge(
    len: usize,
    lead: u32,
    sent: &[Probe],
    arrivals: &[Arrival],
) -> Result<Judged, Discard> {
    let packets = joined(sent, arrivals);
    let behind = sent.partition_point(|probe| probe.sequence < lead);
    if packets.len() < EVENTS_MIN || sent.len() - behind < EVENTS_MIN {
        return Err(Discard::Short);
    }
    if packets.windows(2).any(|pair| (pair[1].delay_ns - pair[0].delay_ns).abs() > STEP_NS) {
        return Err(Discard::ClockStep);
    }
    let bits = (len * 8) as f64;
    let (events, batch_ns) = events(&packets);
    if events.len() < EVENTS_MIN / 2 {
        return Err(Discard::Short);
    }
    let between = |from: usize, to: usize| arrived(bits, &events[from.min(to)], &events[to]);
    let at = |place: usize| events.partition_point(|event| event.place < place);
    let last = events.len() - 1;
    // A batch is at its end, so a rate begins and ends with one.
    let ends_bps = [
        between(0, at((packets.len() / 8).min(HEAD_LEN / len)).clamp(2, last)),
        between(at(packets.len() - packets.len() / 3).min(last - 2), last),
    ];
    let queued = queued(bits, behind, &events);
    let own = &packets[packets.partition_point(|packet| packet.order < behind)..];
    Ok(Judged {
        rate_bps: sent_rate(bits, steady(&sent[behind..])),
        out_bps: between(0, last),
        ends_bps,
        queued,
        growth: slope(&events, |event| (event.delay_ns - packets[0].delay_ns) as f64),
        is_paused: steady(&sent[behind..]).len() < sent.len() - behind,
        loss: 1.0 - own.len() as f64 / (sent.len() - behind) as f64,
        lead_loss: (behind + own.len() - packets.len()) as f64 / behind.max(1) as f64,
        is_bimodal: is_bimodal(own),
        batch_ns,
    })
}

/// The longest part behind the lead in which delay shows a queue. While there is one, delay grows
/// by what is sent above what is left, and shrinks by what is below, whatever pauses the sender
/// made.
fn queued(bits: f64, lead: usize, events: &[Event]) -> Option<Queued> {
    let least = events.iter().map(|event| event.delay_ns).min()?;
    let behind = events.partition_point(|event| event.order < lead);
    let depth = |event: &Event| event.delay_ns - least;
    // What the lead made, or what the stream itself did, when there is no lead.
    let made = match lead {
        0 => events.iter().map(depth).max()?,
        _ => depth(events.get(behind)?),
    };
    let is_queue = |event: &Event| depth(event) > made / 8;
    let parts = events[behind..].split(|event| !is_queue(event));
    let longest = parts.max_by_key(|part| part.len())?;
    if longest.len() < EVENTS_MIN {
        return None;
    }
    let lasted = |part: &[Event]| part[part.len() - 1].sent_ns.saturating_sub(part[0].sent_ns);
    let lasted_ns = lasted(longest);
    if lasted_ns < lasted(&events[behind..]) / 4 {
        return None;
    }
    // What was lost at the queue is not in it.
    let per_ns = slope(longest, |event| event.place as f64);
    let growth = slope(longest, |event| (event.delay_ns - longest[0].delay_ns) as f64);
    let is_cut = longest.len() < events.len() - behind;
    let drain_bps = bits * lead as f64 * 1e9 / made.max(1) as f64;
    Some(Queued { rate_bps: bits * per_ns * 1e9, growth, lasted_ns, is_cut, drain_bps })
}

/// The rate at which packets arrived between two events: what arrived, and not what was sent.
fn arrived(bits: f64, from: &Event, to: &Event) -> f64 {
    let span_ns = to.received_ns.saturating_sub(from.received_ns).max(1);
    bits * (to.place - from.place) as f64 * 1e9 / span_ns as f64
}

/// The longest part in which the sender was not interrupted.
fn steady(sent: &[Probe]) -> &[Probe] {
    let span_ns = sent[sent.len() - 1].sent_ns.saturating_sub(sent[0].sent_ns);
    let units = sent.chunk_by(|a, b| a.sent_ns == b.sent_ns).count();
    let mean_ns = span_ns as f64 / units as f64;
    let is_steady = |a: &Probe, b: &Probe| {
        let gap_ns = b.sent_ns.saturating_sub(a.sent_ns);
        gap_ns as f64 <= mean_ns * GAP_MAX || gap_ns <= PAUSE_NS
    };
    sent.chunk_by(is_steady).max_by_key(|part| part.len()).unwrap_or(sent)
}

/// The rate at which packets left, of which some may do so at once.
fn sent_rate(bits: f64, sent: &[Probe]) -> f64 {
    let first_ns = sent[0].sent_ns;
    let first = sent.iter().take_while(|probe| probe.sent_ns == first_ns).count();
    let span_ns = sent[sent.len() - 1].sent_ns.saturating_sub(first_ns).max(1);
    bits * (sent.len() - first) as f64 * 1e9 / span_ns as f64
}

/// Packets that arrived, in the order in which they were sent.
fn joined(sent: &[Probe], arrivals: &[Arrival]) -> Vec<Event> {
    let mut by_sequence: Vec<&Arrival> = arrivals.iter().collect();
    by_sequence.sort_by_key(|arrival| arrival.sequence);
    by_sequence.dedup_by_key(|arrival| arrival.sequence);
    let mut packets = Vec::with_capacity(sent.len());
    for (order, probe) in sent.iter().enumerate() {
        let found = by_sequence.binary_search_by_key(&probe.sequence, |a| a.sequence);
        let Ok(at) = found else { continue };
        let received_ns = by_sequence[at].received_ns;
        let delay_ns = received_ns.wrapping_sub(probe.sent_ns) as i64;
        let place = packets.len();
        packets.push(Event { place, order, sent_ns: probe.sent_ns, received_ns, delay_ns });
    }
    packets
}

/// The last of the packets that left or arrived at once, each time, and how long most batches are.
fn events(packets: &[Event]) -> (Vec<Event>, u64) {
    let span = packets[packets.len() - 1].sent_ns.saturating_sub(packets[0].sent_ns);
    let mean = span as f64 / (packets.len() - 1) as f64;
    let edge = BATCH_NS.min((mean * BATCH_SHARE) as u64);
    let is_edge = |a: &Event, b: &Event| {
        b.sent_ns > a.sent_ns && b.received_ns.saturating_sub(a.received_ns) > edge
    };
    let batches = packets.chunk_by(|a, b| !is_edge(a, b));
    let (events, mut long): (Vec<Event>, Vec<u64>) = batches
        .map(|batch| {
            let last = batch[batch.len() - 1];
            (last, last.sent_ns.saturating_sub(batch[0].sent_ns))
        })
        .unzip();
    // One late read is none of them.
    long.sort_unstable();
    let most = long[long.len() / 2];
    (events, most)
}

/// The slope of a value over the time of sending, by least squares, a nanosecond.
fn slope(events: &[Event], value: impl Fn(&Event) -> f64) -> f64 {
    let count = events.len() as f64;
    let at = |event: &Event| event.sent_ns.wrapping_sub(events[0].sent_ns) as f64;
    let mean_at = events.iter().map(at).sum::<f64>() / count;
    let mean = events.iter().map(&value).sum::<f64>() / count;
    let mut both = 0.0;
    let mut square = 0.0;
    for event in events {
        both += (at(event) - mean_at) * (value(event) - mean);
        square += (at(event) - mean_at).powi(2);
    }
    if square > 0.0 { both / square } else { 0.0 }
}

/// Whether delays fall into two groups, each of a fifth or more, with five times as much between
/// them as within them, and packets take turns.
fn is_bimodal(packets: &[Event]) -> bool {
    let mut sorted: Vec<i64> = packets.iter().map(|packet| packet.delay_ns).collect();
    sorted.sort_unstable();
    let fifth = sorted.len() / 5;
    let gap = |at: usize| sorted[at + 1] - sorted[at];
    // None is left where all behind the lead was lost.
    let end = sorted.len().saturating_sub(fifth + 1);
    let Some(split) = (fifth..end).max_by_key(|at| gap(*at)) else {
        return false;
    };
    let within = (sorted[split] - sorted[0]).max(sorted[sorted.len() - 1] - sorted[split + 1]);
    let threshold = sorted[split];
    let is_high = |packet: &Event| packet.delay_ns > threshold;
    let turns = packets.windows(2).filter(|pair| is_high(&pair[0]) != is_high(&pair[1])).count();
    gap(split) > 5 * within.max(1) && turns > packets.len() / 5
}
