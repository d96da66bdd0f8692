//! The memory lent to the core for outgoing datagrams, as runs of equal size.
//!
//! A run is what one `sendmsg(2)` with UDP_SEGMENT carries: datagrams to one destination, one
//! behind the other in memory, all of the same size but the last, which may be shorter.

use link::{Destination, Endpoint, Outbox};

use crate::relay::Streams;
use crate::udp::{SEGMENTS_MAX, Sockets, UNIT_LEN_MAX};

/// Bytes of a batch: one superpacket cut into small segments and sealed, and some more.
const MEMORY_LEN: usize = 192 * 1024;
/// Runs of a batch.
const RUNS_MAX: usize = 256;

/// Datagrams that leave as one unit.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Where they go.
    pub to: Endpoint,
    /// Where they lie in the batch's memory.
    pub start: usize,
    /// All their bytes.
    pub len: usize,
    /// The size of each but the last.
    pub segment: usize,
    /// How many there are.
    pub count: usize,
    /// A shorter one was added: it is the last.
    pub(crate) closed: bool,
}

impl Run {
    /// Forgets the first `count` datagrams, fewer than there are: they were sent.
    pub(crate) fn advance(&mut self, count: usize) {
        let len = count * self.segment;
        (self.start, self.len, self.count) = (self.start + len, self.len - len, self.count - count);
    }

    /// How many datagrams the run holds.
    #[must_use]
    pub fn datagrams(&self) -> u64 {
        self.count as u64
    }
}

/// Outgoing datagrams that wait for the next flush.
#[derive(Debug)]
pub struct Batch {
    memory: Vec<u8>,
    used: usize,
    runs: Vec<Run>,
    slot: Option<(Destination, usize)>,
    /// Bytes of a run, at most, unless one datagram is longer.
    unit_len: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// An empty batch; its memory is allocated here, once.
    #[must_use]
    pub fn new() -> Self {
        Self {
            memory: vec![0; MEMORY_LEN],
            used: 0,
            runs: Vec::with_capacity(RUNS_MAX),
            slot: None,
            unit_len: UNIT_LEN_MAX,
        }
    }

    /// From now on a run has `len` bytes at most, or what the kernel takes if that is less.
    pub fn set_unit_len(&mut self, len: usize) {
        self.unit_len = len.min(UNIT_LEN_MAX);
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Bytes that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.used
    }

    /// The run that leaves next.
    #[must_use]
    pub fn first(&self) -> Option<&Run> {
        self.runs.first()
    }

    /// The runs that wait, and the memory in which they lie.
    #[must_use]
    pub fn parts(&mut self) -> (&mut [Run], &[u8]) {
        (&mut self.runs, &self.memory)
    }

    /// Forgets the first `count` runs, which were sent; the rest waits on.
    pub fn advance(&mut self, count: usize) {
        if count >= self.runs.len() {
            self.clear();
        } else {
            self.runs.drain(..count);
        }
    }

    /// Forgets all that waits.
    pub fn clear(&mut self) {
        self.used = 0;
        self.runs.clear();
        self.slot = None;
    }

    /// Bytes that a run has, at most.
    #[must_use]
    pub fn unit_len(&self) -> usize {
        self.unit_len
    }

    fn has_room(&self, len: usize) -> bool {
        self.used + len <= self.memory.len() && self.runs.len() < RUNS_MAX
    }

    fn reserve(&mut self, to: &Destination, len: usize) -> Option<&mut [u8]> {
        self.slot = Some((*to, len));
        self.memory.get_mut(self.used..self.used + len)
    }

    fn commit(&mut self, streams: Option<&mut Streams>) {
        let Some((to, len)) = self.slot.take() else { return };
        let to = match to {
            Destination::Udp(to) => to,
            // A stream has a queue of its own: the slot is free again.
            Destination::Relay(to) => {
                let datagram = &self.memory[self.used..self.used + len];
                return streams.into_iter().for_each(|streams| streams.push(&to, datagram));
            }
        };
        let start = self.used;
        self.used += len;
        if let Some(run) = self.runs.last_mut() {
            let fits = run.count < SEGMENTS_MAX && run.len + len <= self.unit_len;
            if !run.closed && fits && len <= run.segment && run.to == to {
                run.len += len;
                run.count += 1;
                run.closed = len < run.segment;
                return;
            }
        }
        self.runs.push(Run { to, start, len, segment: len, count: 1, closed: false });
    }
}

/// A batch together with the sockets and streams that empty it when it is full.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// What waits.
    pub batch: &'a mut Batch,
    /// Where it goes; `None` while the interface is down: what is committed then is dropped.
    pub sockets: Option<&'a mut Sockets>,
    /// Where datagrams for peers at relays go.
    pub streams: Option<&'a mut Streams>,
}

impl Outgoing<'_> {
    /// Bytes that wait in the batch, or went to streams in this turn.
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch.len() + self.streams.as_ref().map_or(0, |streams| streams.pushed())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends what waits, as far as the sockets have room.
    pub fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        match &mut self.sockets {
            Some(sockets) => sockets.flush(self.batch),
            None => self.batch.clear(),
        }
    }
}

impl Outbox for Outgoing<'_> {
    #[inline]
    fn reserve(&mut self, to: &Destination, len: usize) -> Option<&mut [u8]> {
        if !self.batch.has_room(len) {
            self.flush();
            if !self.batch.has_room(len) {
                return None;
            }
        }
        self.batch.reserve(to, len)
    }

    #[inline]
    fn commit(&mut self) {
        self.batch.commit(self.streams.as_deref_mut());
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn to(port: u16) -> Destination {
        Destination::Udp(Endpoint::new(SocketAddr::from(([192, 0, 2, 1], port))))
    }

    fn add(batch: &mut Batch, port: u16, len: usize) {
        assert!(batch.reserve(&to(port), len).is_some());
        batch.commit(None);
    }

    fn shapes(batch: &Batch) -> Vec<(usize, usize, usize)> {
        batch.runs.iter().map(|run| (run.count, run.segment, run.len)).collect()
    }

    #[test]
    fn equal_sizes_share_a_run_and_a_shorter_one_ends_it() {
        let mut batch = Batch::new();
        for len in [1452, 1452, 500, 1452] {
            add(&mut batch, 1, len);
        }
        assert_eq!(shapes(&batch), [(3, 1452, 3404), (1, 1452, 1452)]);
    }

    #[test]
    fn a_larger_one_or_another_destination_starts_a_run() {
        let mut batch = Batch::new();
        add(&mut batch, 1, 100);
        add(&mut batch, 1, 101);
        add(&mut batch, 2, 101);
        assert_eq!(shapes(&batch), [(1, 100, 100), (1, 101, 101), (1, 101, 101)]);
    }

    #[test]
    fn a_run_stays_within_what_a_slow_line_takes_at_once() {
        let mut batch = Batch::new();
        batch.set_unit_len(4 * 1452 + 1);
        for _ in 0..9 {
            add(&mut batch, 1, 1452);
        }
        assert_eq!(shapes(&batch), [(4, 1452, 5808), (4, 1452, 5808), (1, 1452, 1452)]);
        // What is longer goes by itself, and more than the kernel takes is never asked of it.
        batch.clear();
        batch.set_unit_len(100);
        add(&mut batch, 1, 1452);
        add(&mut batch, 1, 1452);
        assert_eq!(shapes(&batch), [(1, 1452, 1452), (1, 1452, 1452)]);
        batch.set_unit_len(usize::MAX);
        assert_eq!(batch.unit_len(), UNIT_LEN_MAX);
    }

    #[test]
    fn a_run_stays_within_what_the_kernel_takes() {
        let mut batch = Batch::new();
        for _ in 0..70 {
            add(&mut batch, 1, 100);
        }
        for _ in 0..50 {
            add(&mut batch, 2, 1452);
        }
        assert_eq!(
            shapes(&batch),
            [(64, 100, 6400), (6, 100, 600), (45, 1452, 65_340), (5, 1452, 7260)]
        );
    }

    #[test]
    fn a_slot_that_is_not_committed_never_existed() {
        let mut batch = Batch::new();
        batch.reserve(&to(1), 50);
        add(&mut batch, 1, 60);
        assert_eq!(shapes(&batch), [(1, 60, 60)]);
        assert_eq!(batch.used, 60);
    }
}
