//! The thread that moves frames: deliver what is due, take what has come, wait for either.
//!
//! Waiting is what costs accuracy. An idle wire sleeps until a frame comes or is due, to the
//! nanosecond as far as the kernel allows, and spins through the last few microseconds. A busy
//! one sleeps a fixed short while instead and moves all that has gathered at once, because
//! being woken for each frame costs more than moving it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use anyhow::Result;
use sim::impair::{Pipe, Verdict};

use super::queue::{Queue, Way};
use super::{Config, FRAMING_BYTES, HEADER_BYTES, SUPERPACKET_BYTES_MAX, Shared, Tally};
use crate::sys::{self, Tap, VNET_HEADER_BYTES};

/// Width of a bin of the lateness histogram.
pub const LATENESS_BIN_NS: u64 = 10_000;
/// Bins of the lateness histogram; the last holds all that is later.
pub const LATENESS_BINS: usize = 200;

/// Most frames taken from one device in a turn.
const BATCH_FRAMES: usize = 64;
/// Frames moved in a turn from which on the wire counts as busy.
const BUSY_FRAMES: usize = 4;
/// How long a busy wire sleeps.
const BUSY_SLEEP_NS: u64 = 40_000;
/// Longest spin before a frame is due.
const SPIN_NS: u64 = 15_000;
/// Longest sleep: how soon a change or a stop is seen.
const SLEEP_NS_MAX: u64 = 50_000_000;
/// How often counters are published.
const PUBLISH_NS: u64 = 20_000_000;

/// An Ethernet address.
type Mac = [u8; 6];

/// All directions of one wire.
#[derive(Debug)]
pub(super) struct Pump {
    taps: Vec<Tap>,
    pipes: Vec<Pipe>,
    tallies: Vec<Tally>,
    /// The address that was last seen at each end; a host has one.
    seen: Vec<Option<Mac>>,
    queue: Queue,
    frame_bytes: usize,
    /// Bytes in front of each frame that are no part of it.
    prefix_bytes: usize,
    shared: Arc<Shared>,
    published_ns: u64,
}

impl Pump {
    pub(super) fn new(
        taps: Vec<Tap>,
        pipes: Vec<Pipe>,
        config: &Config,
        shared: Arc<Shared>,
    ) -> Result<Self> {
        let (prefix_bytes, packet_bytes) = match config.superpackets {
            true => (VNET_HEADER_BYTES, SUPERPACKET_BYTES_MAX),
            false => (0, config.mtu),
        };
        let frame_bytes = prefix_bytes + HEADER_BYTES + packet_bytes;
        let ends = taps.len();
        Ok(Self {
            taps,
            pipes,
            tallies: vec![Tally::default(); ends],
            seen: vec![None; ends],
            queue: Queue::new(frame_bytes),
            frame_bytes,
            prefix_bytes,
            shared,
            published_ns: 0,
        })
    }

    /// Moves frames until told to stop, or a device is gone.
    pub(super) fn run(mut self) {
        sys::prefer_this_thread();
        let mut now = sys::now_ns();
        while !self.shared.stop.load(Ordering::Relaxed) {
            let mut moved = self.deliver(now);
            for entry in 0..self.taps.len() {
                match self.take(entry) {
                    Some(taken) => moved += taken,
                    None => return self.publish(now),
                }
            }
            if now - self.published_ns >= PUBLISH_NS {
                self.publish(now);
            }
            now = self.wait(moved);
        }
        self.publish(now);
    }

    /// Sends every frame that is due.
    fn deliver(&mut self, now: u64) -> usize {
        let mut moved = 0;
        while let Some(due) = self.queue.pop(now) {
            let exit = usize::from(due.exit);
            if self.taps[exit].write(self.queue.frame(&due)).is_err() {
                self.tallies[usize::from(due.entry)].refused += 1;
            }
            self.queue.release(&due);
            let bin = ((now - due.at_ns) / LATENESS_BIN_NS) as usize;
            let bin = &self.shared.lateness.0[bin.min(LATENESS_BINS - 1)];
            // Only this thread writes: no need for a locked addition.
            bin.store(bin.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            moved += 1;
        }
        moved
    }

    /// Takes what has come to one device; none when the device is gone.
    fn take(&mut self, entry: usize) -> Option<usize> {
        for taken in 0..BATCH_FRAMES {
            let Some((slot, memory)) = self.queue.vacant() else {
                return Some(self.take_nowhere(entry));
            };
            let len = match self.taps[entry].read(memory) {
                Ok(len) => len,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Some(taken),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => return None,
            };
            if len > self.frame_bytes {
                self.tallies[entry].oversize += 1;
                continue;
            }
            // A time read before the frame was would be too early by as long as this thread waited
            // for a processor meanwhile, and no line delivers early.
            let now = sys::now_ns();
            let verdict =
                self.pipes[entry].offer(now, len - self.prefix_bytes.min(len) + FRAMING_BYTES);
            if let Verdict::Deliver { at_ns, again_at_ns } = verdict {
                let addresses = self.queue.peek(slot, self.prefix_bytes);
                let exits = exits(&mut self.seen, entry, addresses);
                for at_ns in [Some(at_ns), again_at_ns].into_iter().flatten() {
                    for exit in (0..self.taps.len()).filter(|exit| exits & (1 << exit) != 0) {
                        let way = Way { entry: entry as u8, exit: exit as u8 };
                        self.queue.schedule(at_ns, slot, len as u32, way);
                    }
                }
            }
        }
        Some(BATCH_FRAMES)
    }

    /// Drops one frame for want of room.
    fn take_nowhere(&mut self, entry: usize) -> usize {
        let mut nowhere = [0; 64];
        let read = self.taps[entry].read(&mut nowhere).is_ok();
        self.tallies[entry].no_room += u64::from(read);
        usize::from(read)
    }

    /// Waits until there is something to do; returns the time.
    fn wait(&mut self, moved: usize) -> u64 {
        let now = sys::now_ns();
        let due_in = self.queue.next_ns().map_or(SLEEP_NS_MAX, |at| at.saturating_sub(now));
        if moved >= BUSY_FRAMES {
            sys::sleep_ns(BUSY_SLEEP_NS);
            return sys::now_ns();
        }
        if due_in > SPIN_NS {
            let descriptors = self.taps.iter().map(Tap::descriptor);
            sys::poll_readable(descriptors, (due_in - SPIN_NS).min(SLEEP_NS_MAX));
            return sys::now_ns();
        }
        let until = now + due_in;
        let mut now = now;
        while now < until {
            std::hint::spin_loop();
            now = sys::now_ns();
        }
        now
    }

    fn publish(&mut self, now: u64) {
        self.published_ns = now;
        for (entry, tally) in self.tallies.iter_mut().enumerate() {
            tally.model = self.pipes[entry].counters();
            self.shared.tallies[entry].store(tally);
        }
        self.shared.cpu_ns.store(sys::thread_cpu_ns(), Ordering::Relaxed);
        if self.shared.changed.swap(false, Ordering::Acquire) {
            let mut wanted = self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            for (pipe, wanted) in self.pipes.iter_mut().zip(wanted.iter_mut()) {
                if let Some(impairment) = wanted.take() {
                    // It was checked when it was asked for.
                    let _ = pipe.set_impairment(impairment);
                }
            }
        }
    }
}

/// The ends by which a frame leaves, one bit each: all others where its destination is a group
/// or was not seen yet. Of two ends it is always the other.
fn exits(seen: &mut [Option<Mac>], entry: usize, frame: &[u8]) -> u8 {
    let others = ((1u16 << seen.len()) - 1) as u8 & !(1 << entry);
    let (Some(to), Some(from)) = (frame.first_chunk::<6>(), frame[6..].first_chunk::<6>()) else {
        return others;
    };
    seen[entry] = Some(*from);
    if seen.len() == 2 || to[0] & 1 == 1 {
        return others;
    }
    let known = seen.iter().position(|mac| mac.as_ref() == Some(to));
    known.map_or(others, |exit| others & (1 << exit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(to: u8, from: u8) -> Vec<u8> {
        [[to; 6], [from; 6]].concat()
    }

    #[test]
    fn a_switch_learns_where_addresses_are_and_two_ends_need_not() {
        let mut seen = vec![None; 3];
        assert_eq!(exits(&mut seen, 0, &frame(4, 2)), 0b110, "unknown: to all others");
        assert_eq!(exits(&mut seen, 1, &frame(2, 4)), 0b001);
        assert_eq!(exits(&mut seen, 0, &frame(4, 2)), 0b010);
        assert_eq!(exits(&mut seen, 0, &frame(0xff, 2)), 0b110, "a group: to all others");
        assert_eq!(exits(&mut seen, 0, &frame(2, 2)), 0, "to where it came from: nowhere");
        let mut two = vec![None; 2];
        assert_eq!(exits(&mut two, 1, &frame(6, 8)), 0b01);
        assert_eq!(exits(&mut two, 0, &[1; 12]), 0b10);
    }
}
