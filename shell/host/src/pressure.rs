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
//! carry what is sent the rate is out of reach. A discipline that somebody chose is never replaced.

use crate::netlink::{Netlink, TokenBucket};

/// A ring that was not found empty for so long is filling up.
const FULL_NS: u64 = 3_000_000;
/// TCP holds back by itself, and superpackets never fill the ring: only if less than this comes for
/// each unit that is not of TCP is there need of a bucket.
const SMALL_LEN: u64 = 8 * 1024;
/// How often a rate in force is looked at, at most.
const TICK_NS_MIN: u64 = 5_000_000;
/// Bytes that must have had time to pass before a measure means that the rate is too high: the
/// socket below takes a quarter of that at once.
const TICK_LEN: u64 = 512 << 10;
/// So many ticks in a row with an empty ring end what is known of the capacity.
const EMPTY_TICKS: u32 = 40;
/// The rate begins at this part of what was measured, which is what the socket below took before it
/// was full: on a fast machine a quarter of it overflowed the ring before the next measure.
const FIRST_SHARE: u64 = 16;
/// The rate begins here or above: whoever was taken for a flood by mistake hardly notices.
const RATE_FIRST: u64 = 2_500_000;
/// So many ticks in a row with less than half the rate end the need for it.
const IDLE_TICKS: u32 = 40;
/// Nothing sent for so long ends it at once.
const SILENCE_NS: u64 = 1_000_000_000;
/// No link is held below this, in bytes a second.
const RATE_MIN: u64 = 125_000;
/// The rate that holds nobody back, in bytes a second: 100 Gbit/s.
const RATE_FREE: u64 = 12_500_000_000;
/// Bytes that may pass at once, at least, and more where they are less than 0.5 ms of the rate. A
/// superpacket above this is cut by the bucket. Each change of the rate lets as many pass.
const BURST_LEN_MIN: u64 = 16 * 1024;
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
    /// What the link carried when the ring was last never empty; until then the rate grows fast.
    capacity: Option<u64>,
    idle_ticks: u32,
    empty_ticks: u32,
    /// When the last turn ended, if the ring was empty then: nothing was there to be carried since.
    idle_since_ns: Option<u64>,
}

impl Pressure {
    /// Tells of a turn: units taken from the ring but those of TCP, all bytes taken from it, and
    /// whether it was empty in the end. Returns the rate to set, if it changes.
    pub fn handle_turn(
        &mut self,
        now_ns: u64,
        units: u64,
        bytes: u64,
        emptied: bool,
    ) -> Option<u64> {
        self.leave_out_silence(now_ns);
        self.idle_since_ns = emptied.then_some(now_ns);
        self.bytes += bytes;
        self.units += units;
        self.emptied |= emptied;
        let passed_ns = now_ns.saturating_sub(self.since_ns).max(1);
        let measured = self.per_second(passed_ns);
        let Some(rate) = self.rate else {
            if emptied || self.since_ns == 0 {
                self.begin(now_ns);
            } else if passed_ns >= FULL_NS && self.is_small() {
                // What the socket below took at first says little; a low rate soon grows.
                return self.set(now_ns, (measured / FIRST_SHARE).max(RATE_FIRST));
            }
            return None;
        };
        if passed_ns < TICK_NS_MIN {
            return None;
        }
        if self.emptied {
            return self.handle_empty(now_ns, passed_ns, rate, measured);
        }
        if passed_ns < TICK_LEN * 1_000_000_000 / rate {
            return None;
        }
        // A tick in which the socket below took nothing at all says nothing of what waits.
        if self.bytes > 0 && !self.is_small() {
            return self.free(now_ns);
        }
        (self.idle_ticks, self.empty_ticks) = (0, 0);
        self.capacity = Some(measured.max(rate / 4));
        // If more comes out than goes in, what stands in the ring is leaving.
        let wanted = if measured < rate { (measured / 100 * 85).max(rate / 4) } else { rate };
        self.set(now_ns, wanted)
    }

    /// A tick in which the ring was found empty: the link carries what comes, and perhaps more.
    fn handle_empty(
        &mut self,
        now_ns: u64,
        passed_ns: u64,
        rate: u64,
        measured: u64,
    ) -> Option<u64> {
        self.idle_ticks = if measured < rate / 2 { self.idle_ticks + 1 } else { 0 };
        if passed_ns > SILENCE_NS || self.idle_ticks >= IDLE_TICKS {
            return self.free(now_ns);
        }
        // Unused room is no reason to give more of it.
        if measured < rate / 10 * 7 {
            return self.set(now_ns, rate);
        }
        self.empty_ticks += 1;
        if self.empty_ticks >= EMPTY_TICKS {
            self.capacity = None;
        }
        let wanted = match self.capacity.map(|capacity| capacity / 100 * 96) {
            None => rate / 4 * 5,
            Some(near) if rate < near => near,
            Some(_) => rate + rate / 200,
        };
        self.set(now_ns, wanted)
    }

    /// The time in which the ring lay empty is no time in which the link carried nothing: a burst
    /// after a silence would look like a link as slow as the silence was long.
    fn leave_out_silence(&mut self, now_ns: u64) {
        let Some(idle_since_ns) = self.idle_since_ns else { return };
        match self.rate {
            None => self.begin(now_ns),
            // Told apart from the turns of a busy loop, which come within a tick.
            Some(_) => self.emptied |= now_ns.saturating_sub(idle_since_ns) >= TICK_NS_MIN,
        }
    }

    fn free(&mut self, now_ns: u64) -> Option<u64> {
        *self = Self { since_ns: now_ns, ..Self::default() };
        Some(RATE_FREE)
    }

    fn is_small(&self) -> bool {
        self.bytes < self.units * SMALL_LEN
    }

    fn begin(&mut self, now_ns: u64) {
        (self.since_ns, self.bytes, self.units, self.emptied) = (now_ns, 0, 0, false);
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
    /// `None` if the kernel lacks it, somebody chose another discipline, or the device went to
    /// another namespace.
    way: Option<(Netlink, u32)>,
}

impl Bucket {
    /// Puts a bucket that holds nobody back in front of the new device `name`. Later would be too
    /// late: what is on its way while a discipline is exchanged is lost.
    #[must_use]
    pub fn install(name: &str) -> Self {
        let prepared = || {
            let mut netlink = Netlink::open().map_err(|error| error.to_string())?;
            let link = netlink.link(name).map_err(|error| error.to_string())?;
            let index = link.ok_or("the interface is in another namespace")?.index;
            let free = bucket(RATE_FREE, 0);
            netlink.add_token_bucket(index, free).map_err(|error| error.to_string())?;
            Ok::<_, String>((netlink, index))
        };
        let way = prepared()
            .inspect_err(|why| tracing::debug!("no back-pressure into sockets: {why}"))
            .ok();
        Self { way }
    }

    /// Sets the rate, in bytes a second, for packets of up to `mtu` bytes. If somebody has put
    /// another discipline in our place, that one stays.
    pub fn set(&mut self, rate: u64, mtu: usize) {
        let Some((netlink, index)) = &mut self.way else { return };
        if let Err(error) = netlink.change_token_bucket(*index, bucket(rate, mtu)) {
            tracing::debug!(%error, "no back-pressure into sockets from now on");
            self.way = None;
        }
    }
}

fn bucket(rate: u64, mtu: usize) -> TokenBucket {
    // A packet longer than the burst would never pass.
    let burst_len = (rate / 2000).max(BURST_LEN_MIN).max(mtu as u64 + 64);
    let queue_len = (rate / 50).max(QUEUE_LEN_MIN);
    TokenBucket {
        rate,
        burst_len: burst_len.try_into().unwrap_or(u32::MAX),
        queue_len: queue_len.try_into().unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests;
