//! Back-pressure: when the machine sends more than the link can carry, its sockets have to wait.
//!
//! A TUN device drops what does not fit into its ring, and tells nobody: to the sender every
//! datagram was sent. A queueing discipline in front of it is different, since what waits there
//! still counts against the sending socket, which blocks. So when the ring is never found empty
//! any more, a token bucket in front of the device is given a rate just below what the link was
//! measured to carry. From then on the ring stays nearly empty, the wait is in the bucket's queue,
//! and nothing is lost (source 002: no silent drops in queues).
//!
//! [`Pressure`] decides, from two numbers a turn; [`Bucket`] tells the kernel. While the link can
//! carry what is sent there is no bucket: nothing is installed before it is needed first, and
//! afterwards its rate is set out of reach. A discipline that somebody chose is never replaced.

use crate::netlink::{Netlink, TokenBucket};

/// A ring that was not found empty for so long is filling up.
const FULL_NS: u64 = 3_000_000;
/// TCP holds back by itself, and its superpackets never fill the ring: only smaller units than
/// this, on average, call for a bucket.
const SMALL_LEN: u64 = 8 * 1024;
/// How often a rate in force is looked at; on slow links each time that two bursts have passed.
const TICK_NS_MIN: u64 = 5_000_000;
/// So many ticks in a row with less than half the rate end the need for it.
const IDLE_TICKS: u32 = 40;
/// Nothing sent for so long ends it at once.
const SILENCE_NS: u64 = 1_000_000_000;
/// No link is held below this, in bytes a second.
const RATE_MIN: u64 = 125_000;
/// The rate that holds nobody back, in bytes a second: 800 Gbit/s.
const RATE_FREE: u64 = 100_000_000_000;
/// Bytes that may pass at once: the largest superpacket, with the headers that it will have.
const BURST_LEN: u32 = 72 * 1024;
/// What a burst lasts at one byte a second.
const BURST_NS: u64 = BURST_LEN as u64 * 1_000_000_000;
/// Bytes that may wait in the bucket, at least; more where they are less than 20 ms of the rate.
const QUEUE_LEN_MIN: u64 = 1 << 20;

/// Decides the rate. Times are in nanoseconds since boot, rates in bytes a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pressure {
    /// When the ring was last found empty, or the last tick ended.
    since_ns: u64,
    bytes: u64,
    units: u64,
    /// Whether the ring was found empty in this tick.
    emptied: bool,
    /// The rate in force, if one is.
    rate: Option<u64>,
    /// What the link carried when the ring was last never empty.
    capacity: u64,
    idle_ticks: u32,
}

impl Pressure {
    /// Tells of a turn: units and bytes taken from the ring, and whether it was empty in the end.
    /// Returns the rate to set, if it changes.
    pub fn handle_turn(
        &mut self,
        now_ns: u64,
        units: u64,
        bytes: u64,
        emptied: bool,
    ) -> Option<u64> {
        self.bytes += bytes;
        self.units += units;
        self.emptied |= emptied;
        let passed_ns = now_ns.saturating_sub(self.since_ns).max(1);
        let Some(rate) = self.rate else {
            if emptied || self.since_ns == 0 {
                self.begin(now_ns);
                return None;
            }
            let small = self.bytes < self.units * SMALL_LEN;
            if passed_ns < FULL_NS || !small {
                return None;
            }
            return self.drain(now_ns, passed_ns);
        };
        if passed_ns < TICK_NS_MIN.max(2 * BURST_NS / rate) {
            return None;
        }
        if passed_ns > SILENCE_NS {
            return self.free(now_ns);
        }
        if !self.emptied {
            self.idle_ticks = 0;
            return self.drain(now_ns, passed_ns);
        }
        let measured = self.per_second(passed_ns);
        self.idle_ticks = if measured < rate / 2 { self.idle_ticks + 1 } else { 0 };
        if self.idle_ticks >= IDLE_TICKS {
            return self.free(now_ns);
        }
        let near = self.capacity / 100 * 96;
        if rate < near {
            return self.set(now_ns, near);
        }
        // Unused room is no reason to give more of it.
        let wanted = if measured > rate / 10 * 8 { rate / 100 * 101 } else { rate };
        self.set(now_ns, wanted)
    }

    /// The ring was never empty, so what came out is what the link carries. For a while less goes
    /// in, for what stands in the ring has to leave, too.
    fn drain(&mut self, now_ns: u64, passed_ns: u64) -> Option<u64> {
        self.capacity = self.per_second(passed_ns);
        self.set(now_ns, self.capacity / 100 * 85)
    }

    fn begin(&mut self, now_ns: u64) {
        (self.since_ns, self.bytes, self.units, self.emptied) = (now_ns, 0, 0, false);
    }

    fn free(&mut self, now_ns: u64) -> Option<u64> {
        *self = Self { since_ns: now_ns, ..Self::default() };
        Some(RATE_FREE)
    }

    fn per_second(&self, passed_ns: u64) -> u64 {
        let scaled = u128::from(self.bytes) * 1_000_000_000 / u128::from(passed_ns);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    fn set(&mut self, now_ns: u64, rate: u64) -> Option<u64> {
        self.begin(now_ns);
        let rate = rate.clamp(RATE_MIN, RATE_FREE);
        let changed = self.rate != Some(rate);
        self.rate = Some(rate);
        changed.then_some(rate)
    }
}

/// The token bucket in front of one device.
#[derive(Debug)]
pub struct Bucket {
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not needed so far.
    Unused,
    Ready(Netlink, u32),
    /// The kernel lacks it, somebody chose another discipline, or the device went elsewhere.
    Refused,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { state: State::Unused }
    }
}

impl Bucket {
    /// Sets the rate of the device called `name`, in bytes a second. What cannot be done is told
    /// once, and not tried again.
    pub fn set(&mut self, name: &str, rate: u64) {
        if matches!(self.state, State::Unused) {
            self.state = prepare(name).unwrap_or_else(|why| {
                tracing::debug!("no back-pressure into sockets: {why}");
                State::Refused
            });
        }
        let State::Ready(netlink, index) = &mut self.state else { return };
        let queue_len = (rate / 50).max(QUEUE_LEN_MIN).try_into().unwrap_or(u32::MAX);
        let bucket = TokenBucket { rate, burst_len: BURST_LEN, queue_len };
        if let Err(error) = netlink.set_token_bucket(*index, bucket) {
            tracing::debug!(%error, "no back-pressure into sockets");
            self.state = State::Refused;
        }
    }
}

fn prepare(name: &str) -> Result<State, String> {
    let mut netlink = Netlink::open().map_err(|error| error.to_string())?;
    let link = netlink.link(name).map_err(|error| error.to_string())?;
    let index = link.ok_or("the interface is in another namespace")?.index;
    match netlink.chosen_discipline(index).map_err(|error| error.to_string())? {
        Some(kind) => Err(format!("{name} has the discipline {kind}, which stays")),
        None => Ok(State::Ready(netlink, index)),
    }
}

#[cfg(test)]
mod tests;
