//! Back-pressure: when the machine sends more than the link can carry, its sockets have to wait.
//!
//! A TUN device drops what does not fit into its ring, and tells nobody: to the sender every
//! datagram was sent. A queueing discipline in front of it is different, since what waits there
//! still counts against the sending socket, which blocks. So when the ring is never found empty
//! any more, a token bucket in front of the device is given a rate just below what the link was
//! measured to carry. From then on the ring stays nearly empty, the wait is in the bucket's queue,
//! and nothing is lost (source 002: no silent drops in queues).
//!
//! TCP fills the ring to no end either, up to its window: 4 MB, or 30 ms at 1 Gbit/s, that all
//! else waits behind. With the bucket it has two superpackets there (TCP small queues). But it
//! is held back only where the socket below is full, and the link is not a fast one: what our
//! processor limits is no link to be measured.
//!
//! Pings are not taken for a flood: who asks waits for answers, so that there are only so many, and
//! an answer is the kernel's own, which drops it where it would have to wait.
//!
//! On a slow line the socket below has less room, too, and what is handed to it at once is shorter:
//! what it holds at 1 Gbit/s for a millisecond would take half a second at 5 Mbit/s, and 64 KiB in
//! one piece overrun the short queue of a modem.
//!
//! [`Pressure`] decides, from what each turn took; the shell tells the kernel. While the link can
//! carry what is sent the rate is out of reach.

use self::ceiling::Ceiling;

mod ceiling;

/// How a kind of traffic is held back.
#[derive(Debug, PartialEq, Eq)]
struct Manner {
    /// A ring that was not found empty for so long is filling up.
    full_ns: u64,
    /// Bytes that the first measure is made of, unless they take [`FIRST_NS_MAX`]: a unit more or
    /// less must not matter.
    first_len: u64,
    /// The rate begins at this part of what was measured, which is what the socket below took
    /// before it was full.
    first_share: u64,
    /// Bytes that may pass at once. What is longer is cut by the bucket when it comes; what waits
    /// while this shrinks would wait for ever, so it is the same for every rate.
    burst_len: u64,
    /// How often a rate in force is looked at, at most.
    tick_ns_min: u64,
    /// And what passes meanwhile, in bursts: each change of the rate lets one pass.
    tick_bursts: u64,
    /// The same between two steps by which the rate grows near what the link carried, if more.
    creep_bursts: u64,
    /// The rate that lets the ring run empty, of what the link carried meanwhile, in 1/1000; and in
    /// what time it is to be empty if that takes a lower rate, in nanoseconds.
    drain: u64,
    drain_ns: Option<u64>,
    /// For how long what comes may wait in the ring, in nanoseconds.
    stand_ns: u64,
    /// What a link is believed to carry still if less was measured, in 1/1000 of the rate: a
    /// measure is short, and a machine may have other work.
    least: u64,
    /// The rate after that, in 1/1000 of what the link carried.
    near: u64,
    /// By what part the rate grows near what the link carried, and later; and how soon, near it, by
    /// as much again, if a tick that is so long makes the step more than that.
    creep: u64,
    leap: u64,
    creep_ns: Option<u64>,
    /// So many ticks in a row with an empty ring end what is known of the capacity.
    empty_ticks: u32,
}

/// Datagrams without a pace: the ring overflows within milliseconds, so its room is won first. On
/// a fast machine a quarter of the first measure overflowed it before the next one.
static DATAGRAMS: Manner = Manner {
    full_ns: 3_000_000,
    first_len: 0,
    first_share: 16,
    burst_len: 16 * 1024,
    tick_ns_min: 5_000_000,
    tick_bursts: 0,
    creep_bursts: 4,
    drain: 850,
    drain_ns: Some(500_000_000),
    stand_ns: 0,
    least: 250,
    near: 960,
    creep: 200,
    leap: 4,
    creep_ns: Some(4_000_000_000),
    empty_ticks: 40,
};
/// TCP: the ring has room for all of it, so what counts is that the link lacks nothing while the
/// processor does other work.
static STREAMS: Manner = Manner {
    full_ns: 10_000_000,
    first_len: TICK_LENS * BELOW_LEN_MAX,
    first_share: 1,
    // The longest superpacket, as the kernel counts it.
    burst_len: 72 * 1024,
    tick_ns_min: 20_000_000,
    tick_bursts: 10,
    creep_bursts: 0,
    drain: 920,
    drain_ns: None,
    stand_ns: 8_000_000,
    least: 850,
    near: 1000,
    creep: 200,
    leap: 50,
    creep_ns: None,
    empty_ticks: 10,
};

/// Paced is what has no more units of other kinds than one for so many bytes.
const SMALL_LEN: u64 = 8 * 1024;
/// TCP on a link that carries more is left alone, in bytes a second (500 Mbit/s): its window is
/// less than 70 ms there, and what a busy machine lives on. Two processors that were sender, line
/// and receiver of 1 Gbit/s lost a tenth by the bucket.
const STREAMS_MAX: u64 = 62_500_000;
/// Datagrams that are more than the socket below takes are a flood after so long.
const FLOOD_NS: u64 = 1_000_000;
/// Turns that tell whether the socket below is full.
const TURNS: u32 = 64;
/// Bytes that the socket below takes at once, at least: a train that is worth its system call.
const BELOW_LEN_MIN: u64 = 16 << 10;
/// At most, which is also what it takes where the rate is free: the room of its send buffer.
pub const BELOW_LEN_MAX: u64 = 128 << 10;
/// Bytes that stand in a ring when a flood is first seen, about.
const STANDING_FIRST: u64 = 750_000;
/// Times [`Pressure::below_len`] that must have had time to pass before a measure means that the
/// rate is too high; the first one is to be soon rather than exact, for the ring fills meanwhile.
const TICK_LENS: u64 = 4;
/// The first measure takes no longer than that, in nanoseconds.
const FIRST_NS_MAX: u64 = 100_000_000;
/// The rate begins here or above: whoever was taken for a flood by mistake hardly notices, since
/// it is at 1 Gbit/s again within a quarter of a second.
const RATE_FIRST: u64 = 1_250_000;
/// So many ticks in a row with less than half the rate end the need for it.
const IDLE_TICKS: u32 = 40;
/// A ring that lay empty for so long was so between two turns, and not within a busy loop.
const SILENCE_NS_MIN: u64 = 5_000_000;
/// What a peer could not take counts from this share on.
const OVERRUN_MIN: f64 = 0.01;
/// Nothing sent for so long ends it at once.
const SILENCE_NS: u64 = 1_000_000_000;
/// No link is held below this, in bytes a second.
const RATE_MIN: u64 = 125_000;
/// The rate that holds nobody back: 100 Gbit/s. The kernel looks after the bucket now and then.
pub const FREE: Allowance =
    Allowance { rate: 12_500_000_000, burst_len: 6_250_000, below_len: BELOW_LEN_MAX };

/// What a turn took from the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Units of what may come without pace: neither TCP nor ICMP.
    pub units: u64,
    /// Bytes of all units.
    pub bytes: u64,
    /// Whether the ring was empty in the end.
    pub emptied: bool,
    /// Whether the socket below was full in the end.
    pub blocked: bool,
}

/// What the bucket is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Bytes a second.
    pub rate: u64,
    /// Bytes that may pass at once.
    pub burst_len: u64,
    /// Bytes that the socket below takes at once.
    pub below_len: u64,
}

/// What was taken since the last tick.
#[derive(Clone, Copy)]
struct Tick {
    now_ns: u64,
    /// Since the last one ended, or the ring was last found empty.
    passed_ns: u64,
    /// Bytes a second.
    measured: u64,
}

/// Decides the rate. Times are in nanoseconds since boot, rates in bytes a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pressure {
    /// When the ring was last found empty, or the last tick ended.
    since_ns: u64,
    bytes: u64,
    units: u64,
    /// Turns since then, the last [`TURNS`] or fewer, and those that left the socket below full.
    turns: u32,
    blocked_turns: u32,
    /// Whether the ring was found empty in this tick.
    emptied: bool,
    /// The rate in force, if one is, and for what it is.
    rate: Option<(u64, &'static Manner)>,
    /// Bytes that are in the ring, at most; none if they were never counted.
    standing: Option<u64>,
    /// What the link carried when the ring was last never empty; until then the rate grows fast.
    capacity: Option<u64>,
    /// What was taken in the last tick, bytes a second, and what the peer has room for.
    carried: u64,
    ceiling: Option<Ceiling>,
    /// What was taken before there was a rate, and when that ended; and lately, smoothed.
    unheld: Option<(u64, u64)>,
    mean: u64,
    /// When a report last said whether the peer has room.
    told_ns: u64,
    idle_ticks: u32,
    empty_ticks: u32,
    /// When the last turn ended, if the ring was empty then: nothing was there to be carried since.
    idle_since_ns: Option<u64>,
}

impl Pressure {
    /// Tells of a turn. Returns the rate to set, if it changes.
    pub fn handle_turn(&mut self, now_ns: u64, taken: Taken) -> Option<Allowance> {
        self.leave_out_silence(now_ns);
        self.note(now_ns, taken);
        let passed_ns = now_ns.saturating_sub(self.since_ns).max(1);
        let measured = scale(self.bytes, 1_000_000_000, passed_ns);
        let tick = Tick { now_ns, passed_ns, measured };
        let Some((rate, manner)) = self.rate else {
            if taken.emptied || self.since_ns == 0 {
                self.begin(now_ns);
                return None;
            }
            return self.handle_filling(tick);
        };
        let change_ns = scale(manner.burst_len * manner.tick_bursts, 1_000_000_000, rate);
        let below_ns = scale(self.below_len(rate), 1_000_000_000, rate.max(self.carried));
        // Half of what the socket below takes must be gone before its room says anything.
        if passed_ns < manner.tick_ns_min.max(change_ns).max(below_ns / 2) {
            return None;
        }
        if self.emptied {
            self.carried = measured;
            return self.handle_empty(tick, rate, manner);
        }
        if passed_ns < if self.is_first(manner) { below_ns } else { below_ns * TICK_LENS } {
            return None;
        }
        // A tick in which the socket below took nothing at all says nothing of what waits.
        if self.bytes > 0 && self.manner(measured) != Some(manner) {
            return Some(self.free(now_ns, self.ceiling));
        }
        self.handle_full(tick, rate, manner)
    }

    /// Adds a turn to what was taken in this tick.
    fn note(&mut self, now_ns: u64, taken: Taken) {
        self.idle_since_ns = taken.emptied.then_some(now_ns);
        self.bytes += taken.bytes;
        self.units += taken.units;
        if self.turns == TURNS {
            self.turns /= 2;
            self.blocked_turns /= 2;
        }
        self.turns += 1;
        self.blocked_turns += u32::from(taken.blocked);
        self.emptied |= taken.emptied;
    }

    /// Nobody is held back yet, and there is more in the ring than was taken: after a while of that
    /// somebody is.
    fn handle_filling(&mut self, tick: Tick) -> Option<Allowance> {
        let Tick { now_ns, passed_ns, measured } = tick;
        let manner = self.manner(measured)?;
        let is_measured = self.bytes >= manner.first_len || passed_ns >= FIRST_NS_MAX;
        // What the socket below took at first says little; a low rate soon grows.
        let (full_ns, first) = if self.is_flood() {
            (FLOOD_NS, RATE_FIRST)
        } else {
            (manner.full_ns, (measured / manner.first_share).max(RATE_FIRST))
        };
        if passed_ns < full_ns || !is_measured {
            return None;
        }
        self.unheld = Some((measured, now_ns));
        self.set(now_ns, first, manner)
    }

    /// A tick in which the ring was never empty: the link carries less than what comes, or what
    /// came before stands there still.
    fn handle_full(
        &mut self,
        Tick { now_ns, passed_ns, measured }: Tick,
        rate: u64,
        manner: &'static Manner,
    ) -> Option<Allowance> {
        self.idle_ticks = 0;
        self.empty_ticks = 0;
        let carried = measured.max(rate / 1000 * manner.least);
        // Trains of a slow line are few in a tick.
        let carried = self.capacity.map_or(carried, |before| before.midpoint(carried));
        // The first tick is too short for more than a guess.
        self.capacity = (!self.is_first(manner)).then_some(carried);
        self.carried = carried;
        let come = scale(rate, passed_ns, 1_000_000_000);
        self.standing = self.standing.map(|before| (before + come).saturating_sub(self.bytes));
        let bearable = scale(rate, manner.stand_ns, 1_000_000_000);
        let wanted = if self.standing.is_some_and(|standing| standing < bearable) {
            rate.min(carried + carried / 100)
        } else if measured < rate + rate / 100 {
            let standing = self.standing.unwrap_or(STANDING_FIRST);
            let soon = manner.drain_ns.map_or(0, |ns| scale(standing, 1_000_000_000, ns));
            let usual = carried - carried / 1000 * manner.drain;
            carried - usual.max(soon.min(carried / 4 * 3))
        } else {
            // If more comes out than goes in, what stands in the ring is leaving.
            rate
        };
        self.set(now_ns, wanted, manner)
    }

    /// Whether nothing was measured yet of a flood that is to be held back soon.
    fn is_first(&self, manner: &'static Manner) -> bool {
        self.carried == 0 && manner == &DATAGRAMS
    }

    /// When a turn is due although the socket below is full still, so that a flood does not fill
    /// the ring meanwhile: on a slow line it is full for a quarter of a second.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let is_due = self.rate.is_none() && self.idle_since_ns.is_none() && self.is_flood();
        is_due.then_some(self.since_ns + FLOOD_NS)
    }

    /// Whether what is in force has a need still, asked once a second: what waits in the bucket for
    /// a turn that never comes must not wait for ever.
    pub fn handle_look(&mut self, now_ns: u64) -> Option<Allowance> {
        let silent_ns = now_ns.saturating_sub(self.idle_since_ns?);
        (self.rate.is_some() && silent_ns > SILENCE_NS).then(|| self.free(now_ns, None))
    }

    /// The peer says that `share` of what it was sent was more than it, or the way to it, could
    /// take. Only who sends without pace is to wait for that.
    pub fn handle_overrun(&mut self, now_ns: u64, share: f64) -> Option<Allowance> {
        let (rate, manner) = self.rate.filter(|(_, manner)| *manner == &DATAGRAMS)?;
        let since_ns = now_ns.saturating_sub(self.told_ns).min(1_000_000_000);
        self.told_ns = now_ns;
        if share < OVERRUN_MIN {
            let grown = self.ceiling.map(|ceiling| ceiling.grown(since_ns));
            self.ceiling = grown.filter(|ceiling| ceiling.rate < FREE.rate);
            return None;
        }
        // While the ring is let run empty more is carried than the bucket lets pass; else no more,
        // and no less in the long run, though a short tick may say so.
        let capacity = self.capacity.unwrap_or(0);
        let carried = if self.carried > 0 { self.carried } else { rate };
        let carried = carried.clamp(capacity.min(rate), capacity.max(rate));
        // It tells of what was sent a while ago; the first one, before there was a rate.
        let unheld = self.unheld.filter(|(_, at_ns)| now_ns < at_ns + ceiling::SAME_NS);
        let carried = carried.max(self.mean).max(unheld.map_or(0, |(measured, _)| measured));
        self.ceiling = Some(Ceiling::told(self.ceiling, now_ns, carried, share));
        self.set(now_ns, rate, manner)
    }

    /// A tick in which the ring was found empty: the link carries what comes, and perhaps more.
    fn handle_empty(
        &mut self,
        Tick { now_ns, passed_ns, measured }: Tick,
        rate: u64,
        manner: &'static Manner,
    ) -> Option<Allowance> {
        self.standing = Some(0);
        self.idle_ticks = if measured < rate / 2 { self.idle_ticks + 1 } else { 0 };
        let is_silence = passed_ns > SILENCE_NS;
        if is_silence || self.idle_ticks >= IDLE_TICKS {
            return Some(self.free(now_ns, self.ceiling.filter(|_| !is_silence)));
        }
        // Unused room is no reason to give more of it.
        if measured < rate / 10 * 7 {
            return self.set(now_ns, rate, manner);
        }
        let near = self.capacity.map(|capacity| capacity / 1000 * manner.near);
        let creep_ns = scale(manner.burst_len * manner.creep_bursts, 1_000_000_000, rate);
        if near.is_some_and(|near| rate >= near) && passed_ns < creep_ns {
            return None;
        }
        self.empty_ticks += 1;
        if self.empty_ticks >= manner.empty_ticks {
            self.capacity = None;
        }
        let wanted = match near {
            None => rate + rate / manner.leap,
            Some(near) if rate < near => near,
            Some(_) => {
                let soon = manner.creep_ns.map_or(0, |ns| scale(rate, passed_ns, ns));
                rate + (rate / manner.creep).max(soon)
            }
        };
        self.set(now_ns, wanted, manner)
    }

    /// The time in which the ring lay empty is no time in which the link carried nothing: a burst
    /// after a silence would look like a link as slow as the silence was long.
    fn leave_out_silence(&mut self, now_ns: u64) {
        let Some(idle_since_ns) = self.idle_since_ns else { return };
        match self.rate {
            None => self.begin(now_ns),
            Some(_) => self.emptied |= now_ns.saturating_sub(idle_since_ns) >= SILENCE_NS_MIN,
        }
    }

    /// Holds nobody back, and forgets all but what the peer has room for.
    fn free(&mut self, now_ns: u64, ceiling: Option<Ceiling>) -> Allowance {
        *self = Self { since_ns: now_ns, ceiling, ..Self::default() };
        FREE
    }

    /// How what was taken since the last tick is to be held back, if it is at all.
    fn manner(&self, measured: u64) -> Option<&'static Manner> {
        if self.is_of_datagrams() {
            return Some(&DATAGRAMS);
        }
        let is_of_link = self.blocked_turns * 4 > self.turns && measured <= STREAMS_MAX;
        is_of_link.then_some(&STREAMS)
    }

    fn is_of_datagrams(&self) -> bool {
        self.bytes < self.units * SMALL_LEN
    }

    /// Whether it is datagrams, and more of them than the socket below takes.
    fn is_flood(&self) -> bool {
        self.blocked_turns > 0 && self.is_of_datagrams()
    }

    /// What the socket below takes at once where the bucket lets `rate` pass: a 32nd of a second,
    /// of what the link carries while the ring is let run empty.
    fn below_len(&self, rate: u64) -> u64 {
        (rate.max(self.carried) / 32).clamp(BELOW_LEN_MIN, BELOW_LEN_MAX)
    }

    fn begin(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.since_ns);
        self.mean -= scale(self.mean, passed_ns.min(ceiling::SAME_NS), ceiling::SAME_NS);
        self.mean += scale(self.bytes, 1_000_000_000, passed_ns.max(ceiling::SAME_NS));
        self.since_ns = now_ns;
        self.bytes = 0;
        self.units = 0;
        self.emptied = false;
        self.turns = 0;
        self.blocked_turns = 0;
    }

    fn set(&mut self, now_ns: u64, rate: u64, manner: &'static Manner) -> Option<Allowance> {
        self.begin(now_ns);
        let ceiling = self.ceiling.filter(|_| manner == &DATAGRAMS);
        let ceiling = ceiling.map_or(FREE.rate, |ceiling| ceiling.rate);
        let rate = rate.min(ceiling).clamp(RATE_MIN, FREE.rate);
        let changed = self.rate.is_none_or(|(before, _)| before != rate);
        self.rate = Some((rate, manner));
        let burst_len = manner.burst_len;
        changed.then_some(Allowance { rate, burst_len, below_len: self.below_len(rate) })
    }
}

/// `value` by `of` by `by`.
fn scale(value: u64, of: u64, by: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(of) / u128::from(by);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
