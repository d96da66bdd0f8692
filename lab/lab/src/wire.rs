//! The impaired wire: real frames between namespaces, by the verdicts of `sim::impair`.
//!
//! Unless it is told otherwise, each end is a TAP device without offloads, so nothing larger than
//! one packet enters: what is lost or delayed is what a real line would lose or delay, not a
//! superpacket of 64 KiB. One thread, the [`pump`], moves the frames all ways; the thread that
//! holds the [`Wire`] reads its counters and changes its weather while it runs.
//!
//! A frame on the line costs its bytes and the 24 that Ethernet adds around it (preamble 8,
//! checksum 4, gap 12), so 1 Gbit/s carries 975 Mbit/s of 1500-byte packets.
//!
//! With more than two ends it is a switch: each end's frames suffer that end's line and weather
//! once, on entering, and leave where the address that they are sent to was last seen.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result, ensure};
use sim::impair::{Counters, Impairment, Pipe};

use crate::netns::{Host, check_ifname};
use crate::sys::{self, Tap};

pub mod pump;
mod queue;

/// Bytes that Ethernet adds around a frame on the line.
pub const FRAMING_BYTES: usize = 24;
/// Bytes of an Ethernet header in front of a packet.
pub const HEADER_BYTES: usize = 14;
/// Largest superpacket.
pub const SUPERPACKET_BYTES_MAX: usize = 65_535;
/// Largest packet a wire can be made for.
pub const MTU_MAX: usize = 9_000;
/// Most ends of a wire.
pub const ENDS_MAX: usize = sys::POLLED_MAX;

/// One end of a wire: where its TAP device is made, and its name there.
#[derive(Debug, Clone)]
pub struct End {
    /// The namespace's file.
    pub netns: PathBuf,
    /// The device's name.
    pub ifname: String,
    /// What happens to frames that enter here.
    pub impairment: Impairment,
}

/// What a wire is made of.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its ends, 2 to [`ENDS_MAX`].
    pub ends: Vec<End>,
    /// Largest packet, bytes.
    pub mtu: usize,
    /// Whether superpackets of up to 64 KiB enter whole and share one fate, as they do where netem
    /// impairs an interface with offloads. No real wire does that: it is there to show what
    /// comes of it.
    pub superpackets: bool,
    /// Decides all chance; the same seed gives the same verdicts to the same frames.
    pub seed: u64,
}

/// A direction of a wire, by the end where its frames enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the first end to the second.
    Forth,
    /// From the second end to the first.
    Back,
}

/// What happened to frames of one direction, beside the model's own counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// The model's counters.
    pub model: Counters,
    /// Frames longer than the wire's MTU allows, dropped at the entrance.
    pub oversize: u64,
    /// Frames that found no room to wait in, dropped at the entrance.
    pub no_room: u64,
    /// Frames that the receiving device refused.
    pub refused: u64,
}

/// A running wire; it stops, and its devices vanish, on drop.
#[derive(Debug)]
pub struct Wire {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    current: Mutex<Vec<Impairment>>,
    seed: u64,
}

/// What the pump and the holder of the wire share.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Set when `wanted` has something for the pump.
    changed: AtomicBool,
    wanted: Mutex<Vec<Option<Impairment>>>,
    tallies: Vec<SharedTally>,
    /// Deliveries by how late they were, in bins of [`pump::LATENESS_BIN_NS`].
    lateness: Lateness,
    cpu_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct SharedTally([AtomicU64; 12]);

#[derive(Debug)]
struct Lateness([AtomicU64; pump::LATENESS_BINS]);

impl Default for Lateness {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Direction {
    /// Both directions.
    pub const BOTH: [Self; 2] = [Self::Forth, Self::Back];
}

impl Config {
    /// A wire between two hosts with the same impairment both ways.
    #[must_use]
    pub fn between(a: (&Host, &str), b: (&Host, &str), impairment: Impairment) -> Self {
        Self::switch(&[a, b], impairment)
    }

    /// A wire between these hosts with the same impairment where each one's frames enter.
    #[must_use]
    pub fn switch(hosts: &[(&Host, &str)], impairment: Impairment) -> Self {
        let end = |(host, ifname): &(&Host, &str)| End {
            netns: host.path(),
            ifname: (*ifname).to_owned(),
            impairment,
        };
        Self { ends: hosts.iter().map(end).collect(), mtu: 1_500, superpackets: false, seed: 1 }
    }
}

impl Wire {
    /// Makes the devices and starts the pump. The devices are up on return; addresses are the
    /// caller's business.
    ///
    /// # Errors
    /// Returns an error when a bound is broken, a namespace does not exist or a name is taken.
    pub fn start(config: Config) -> Result<Self> {
        ensure!(
            (68..=MTU_MAX).contains(&config.mtu),
            "the MTU of a wire must be 68 to {MTU_MAX}, not {}",
            config.mtu
        );
        let ends = &config.ends;
        ensure!(
            (2..=ENDS_MAX).contains(&ends.len()),
            "a wire must have 2 to {ENDS_MAX} ends, not {}",
            ends.len()
        );
        let taps = ends.iter().map(|end| tap(end, &config)).collect::<Result<_>>()?;
        // Each entrance draws from another part of the seed's sequence.
        let seeds = (0..).map(|i: u64| config.seed ^ i.wrapping_mul(0x5bd1_e995_7b4b_5f2d));
        let pipes = ends.iter().zip(seeds).map(|(end, seed)| Pipe::new(end.impairment, seed));
        let shared = Arc::new(Shared::of_ends(ends.len()));
        let pipes = pipes.collect::<Result<_, _>>()?;
        let pump = pump::Pump::new(taps, pipes, &config, Arc::clone(&shared))?;
        let current = Mutex::new(ends.iter().map(|end| end.impairment).collect());
        let name = format!("wire-{}", ends[0].ifname);
        let thread = std::thread::Builder::new().name(name).spawn(move || pump.run())?;
        Ok(Self { shared, thread: Some(thread), current, seed: config.seed })
    }

    /// Changes one direction from the next frame on; takes effect within 50 ms.
    ///
    /// # Errors
    /// Names the bound that `impairment` breaks; then nothing changes.
    pub fn impair(&self, direction: Direction, impairment: Impairment) -> Result<()> {
        impairment.check()?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current[direction as usize] = impairment;
        let mut wanted = self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted[direction as usize] = Some(impairment);
        self.shared.changed.store(true, Ordering::Release);
        Ok(())
    }

    /// What decides all of its chance.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// What one direction does to frames.
    #[must_use]
    pub fn impairment(&self, direction: Direction) -> Impairment {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)[direction as usize]
    }

    /// What happened so far in one direction; at most 50 ms old.
    #[must_use]
    pub fn tally(&self, direction: Direction) -> Tally {
        self.shared.tallies[direction as usize].load()
    }

    /// What happened so far to frames that entered at each end, in the order of the ends; at
    /// most 50 ms old.
    #[must_use]
    pub fn tallies(&self) -> Vec<Tally> {
        self.shared.tallies.iter().map(SharedTally::load).collect()
    }

    /// How late frames were delivered, against the model: for each bin of
    /// [`pump::LATENESS_BIN_NS`] the number of frames, the last bin holding all later ones.
    #[must_use]
    pub fn lateness(&self) -> Vec<u64> {
        self.shared.lateness.0.iter().map(|bin| bin.load(Ordering::Relaxed)).collect()
    }

    /// Processor time the pump has used, in seconds.
    #[must_use]
    pub fn cpu_s(&self) -> f64 {
        self.shared.cpu_ns.load(Ordering::Relaxed) as f64 / 1e9
    }

    /// Whether the pump still runs; it ends by itself when a device vanishes.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A pump that panicked has stopped, too.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn of_ends(count: usize) -> Self {
        Self {
            wanted: Mutex::new(vec![None; count]),
            tallies: (0..count).map(|_| SharedTally::default()).collect(),
            ..Self::default()
        }
    }
}

impl SharedTally {
    fn store(&self, tally: &Tally) {
        let Tally { model: m, oversize, no_room, refused } = *tally;
        let all = [
            m.offered,
            m.offered_bytes,
            m.delivered,
            m.bytes,
            m.lost,
            m.reordered,
            m.sent_at_once,
            m.duplicated,
            m.queue_dropped,
            oversize,
            no_room,
            refused,
        ];
        for (to, from) in self.0.iter().zip(all) {
            to.store(from, Ordering::Relaxed);
        }
    }

    fn load(&self) -> Tally {
        let [
            offered,
            offered_bytes,
            delivered,
            bytes,
            lost,
            reordered,
            sent_at_once,
            duplicated,
            queue_dropped,
            oversize,
            no_room,
            refused,
        ] = std::array::from_fn(|i| self.0[i].load(Ordering::Relaxed));
        let model = Counters {
            offered,
            offered_bytes,
            delivered,
            bytes,
            lost,
            reordered,
            sent_at_once,
            duplicated,
            queue_dropped,
        };
        Tally { model, oversize, no_room, refused }
    }
}

fn tap(end: &End, config: &Config) -> Result<Tap> {
    check_ifname(&end.ifname)?;
    let made = sys::in_netns(&end.netns, || match config.superpackets {
        true => Tap::with_superpackets(&end.ifname, config.mtu),
        false => Tap::new(&end.ifname, config.mtu),
    });
    made.and_then(|tap| tap).with_context(|| {
        format!("cannot make the TAP device {} in {}", end.ifname, end.netns.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_survives_the_way_through_shared_memory() {
        let model = Counters {
            offered: 1,
            offered_bytes: 2,
            delivered: 3,
            bytes: 4,
            lost: 5,
            reordered: 6,
            sent_at_once: 7,
            duplicated: 8,
            queue_dropped: 9,
        };
        let tally = Tally { model, oversize: 10, no_room: 11, refused: 12 };
        let shared = SharedTally::default();
        shared.store(&tally);
        assert_eq!(shared.load(), tally);
    }
}
