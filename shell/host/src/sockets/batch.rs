//! The memory lent to the core for outgoing datagrams, as runs of equal size.
//!
//! A run is what one `sendmsg(2)` with UDP_SEGMENT carries: datagrams to one destination, one
//! behind the other in memory, all of the same size but the last, which may be shorter.

use link::{Carried, Destination, Endpoint};
use pace::{Pacer, Train};

use crate::sockets::relay::Streams;

/// Datagrams that the kernel takes as one unit (UDP_MAX_SEGMENTS was 64 until kernel 6.9).
pub const SEGMENTS_MAX: usize = 64;
/// Bytes of one unit: the largest UDP payload over IPv4.
pub const UNIT_LEN_MAX: usize = 65_507;
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
    /// Between its datagrams should be so long, nanoseconds; 0 = they are not paced.
    pub(crate) gap_ns: u32,
    /// The turn in which they were added.
    pub(crate) added_ns: u64,
}

impl Run {
    /// One datagram of `len` bytes at `start`.
    pub(crate) fn single(to: Endpoint, start: usize, len: usize) -> Self {
        let segment = len;
        let count = 1;
        let closed = true;
        Self { to, start, len, segment, count, closed, gap_ns: 0, added_ns: 0 }
    }

    /// Forgets the first `count` datagrams, fewer than there are: they were sent.
    pub(crate) fn advance(&mut self, count: usize) {
        let len = count * self.segment;
        self.start += len;
        self.len -= len;
        self.count -= count;
    }

    /// What the pacer sees of it.
    const fn train(&self) -> Train {
        let Self { len, segment, count, gap_ns, added_ns, .. } = *self;
        Train { len, segment, count, gap_ns, added_ns }
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
    pacer: Pacer<Endpoint>,
    /// The time of this turn.
    now_ns: u64,
    /// Runs that may leave now, and whether the rest is only kept apart: the socket has room.
    due: usize,
    is_early: bool,
    /// Nothing of what waits is kept apart: the socket was full, or the memory.
    at_once: bool,
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
            // One more than there may be, for one that is split.
            runs: Vec::with_capacity(RUNS_MAX + 1),
            slot: None,
            unit_len: UNIT_LEN_MAX,
            pacer: Pacer::default(),
            now_ns: 0,
            due: 0,
            is_early: false,
            at_once: false,
        }
    }

    /// It is `now_ns`.
    pub fn handle_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// How many runs may leave now. The rest is early, where all that waits is for one destination
    /// and paced: nothing else ever waits for it.
    fn find_due(&mut self) -> usize {
        self.is_early = false;
        let all = self.runs.len();
        let Some(first) = self.runs.first() else { return 0 };
        // What the bucket makes wait is a queue of our own.
        if self.at_once || self.unit_len < UNIT_LEN_MAX {
            return all;
        }
        if self.runs.iter().any(|run| run.gap_ns == 0 || run.to != first.to) {
            return all;
        }
        let due = self.pacer.due(self.runs.iter().map(Run::train), self.now_ns);
        let due = self.split(due);
        self.is_early = due < self.runs.len();
        due
    }

    /// How many runs the first `count` datagrams are, when the last of these ends with them.
    fn split(&mut self, mut count: usize) -> usize {
        for index in 0..self.runs.len() {
            let run = &mut self.runs[index];
            if count == 0 {
                return index;
            }
            if run.count <= count {
                count -= run.count;
                continue;
            }
            let mut front = *run;
            run.advance(count);
            front.count = count;
            front.len = count * front.segment;
            self.runs.insert(index, front);
            return index + 1;
        }
        self.runs.len()
    }

    /// How long until the next datagram may leave, if all that waits is early.
    #[must_use]
    pub fn early_ns(&self) -> Option<u64> {
        self.is_early.then(|| self.pacer.wait_ns(self.now_ns))
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
        self.runs.first().map_or(0, |run| self.used - run.start)
    }

    /// The run that a full socket holds up.
    #[must_use]
    pub fn blocked(&self) -> Option<&Run> {
        self.runs.first().filter(|_| !self.is_early)
    }

    /// The runs that may leave now, and the memory in which they lie.
    #[must_use]
    pub fn parts(&mut self) -> (&mut [Run], &[u8]) {
        self.due = self.find_due();
        (&mut self.runs[..self.due], &self.memory)
    }

    /// Forgets the first `count` runs, which were sent; the rest waits on.
    pub fn advance(&mut self, count: usize) {
        if count < self.due {
            self.at_once = true;
            self.is_early = false;
        }
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
        self.is_early = false;
        self.at_once = false;
    }

    /// What waits is to leave at once.
    pub fn hurry(&mut self) {
        self.at_once = true;
    }

    /// Moves what waits to the front of the memory, where sending has left room there.
    pub(crate) fn compact(&mut self) {
        let start = self.runs.first().map_or(0, |run| run.start);
        if start == 0 {
            return;
        }
        self.memory.copy_within(start..self.used, 0);
        self.used -= start;
        self.runs.iter_mut().for_each(|run| run.start -= start);
    }

    /// Bytes that a run has, at most.
    #[must_use]
    pub fn unit_len(&self) -> usize {
        self.unit_len
    }

    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.used + len <= self.memory.len() && self.runs.len() < RUNS_MAX
    }

    pub(crate) fn reserve(&mut self, to: &Destination, len: usize) -> Option<&mut [u8]> {
        self.slot = Some((*to, len));
        self.memory.get_mut(self.used..self.used + len)
    }

    /// The slot is complete. What is for neither UDP nor a relay is given back, and the slot is
    /// free again.
    pub(crate) fn commit(
        &mut self,
        gap_ns: u32,
        streams: Option<&mut Streams>,
    ) -> Option<(Carried, &[u8])> {
        let (to, len) = self.slot.take()?;
        let to = match to {
            Destination::Udp(to) => to,
            // A stream has a queue of its own: the slot is free again.
            Destination::Relay(to) => {
                let datagram = &self.memory[self.used..self.used + len];
                streams.into_iter().for_each(|streams| streams.push(&to, datagram));
                return None;
            }
            // So has what carries datagrams beside UDP.
            Destination::Carried(to) => {
                return Some((to, &self.memory[self.used..self.used + len]));
            }
        };
        let start = self.used;
        self.used += len;
        if gap_ns > 0 && self.runs.is_empty() {
            self.pacer.begin(to, self.now_ns);
        }
        if let Some(run) = self.runs.last_mut() {
            let fits = run.count < SEGMENTS_MAX && run.len + len <= self.unit_len;
            let is_as_old = gap_ns == 0 || run.added_ns == self.now_ns;
            let is_alike = run.to == to && (run.gap_ns > 0) == (gap_ns > 0) && is_as_old;
            if !run.closed && fits && len <= run.segment && is_alike {
                run.len += len;
                run.count += 1;
                run.closed = len < run.segment;
                return None;
            }
        }
        let added_ns = self.now_ns;
        let closed = false;
        self.runs.push(Run { to, start, len, segment: len, count: 1, closed, gap_ns, added_ns });
        None
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
        batch.commit(0, None);
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

    /// Adds paced datagrams, and takes out what may leave at `now_ns`: how many, in how many runs.
    fn pace(batch: &mut Batch, port: u16, added: usize, now_ns: u64) -> (usize, usize) {
        batch.handle_time(now_ns);
        for _ in 0..added {
            assert!(batch.reserve(&to(port), 1500).is_some());
            batch.commit(400_000, None);
        }
        let runs = batch.parts().0.len();
        let count = batch.runs[..runs].iter().map(|run| run.count).sum();
        batch.advance(runs);
        (count, runs)
    }

    #[test]
    fn paced_datagrams_leave_one_by_one_and_lie_where_they_lay() {
        let mut batch = Batch::new();
        assert_eq!(pace(&mut batch, 1, 4, 1_000_000), (1, 1));
        assert_eq!((batch.len(), batch.early_ns()), (3 * 1500, Some(400_000)));
        assert_eq!(batch.runs[0].start, 1500);
        assert!(batch.blocked().is_none(), "the socket has room");
        assert_eq!(pace(&mut batch, 1, 0, 1_100_000), (0, 0));
        assert_eq!(pace(&mut batch, 1, 0, 1_410_000), (1, 1));
        // A loop that was late sends what was due meanwhile, as one run.
        assert_eq!(pace(&mut batch, 1, 0, 2_500_000), (2, 1));
        assert!(batch.is_empty() && batch.early_ns().is_none());
    }

    #[test]
    fn nothing_waits_behind_what_is_paced() {
        let mut batch = Batch::new();
        assert_eq!(pace(&mut batch, 1, 4, 1_000_000), (1, 1));
        add(&mut batch, 2, 100);
        assert_eq!(batch.parts().0.len(), 2, "another destination");
        batch.clear();
        assert_eq!(pace(&mut batch, 1, 4, 9_000_000), (1, 1));
        add(&mut batch, 1, 100);
        assert_eq!(batch.parts().0.len(), 2, "one that is not paced");
        assert!(batch.early_ns().is_none());
    }

    #[test]
    fn a_socket_that_is_full_holds_up_what_is_due_until_it_has_taken_all() {
        let mut batch = Batch::new();
        pace(&mut batch, 1, 4, 1_000_000);
        batch.handle_time(1_400_000);
        // The loop flushes more than once a turn.
        for runs in [1, 2] {
            assert_eq!(batch.parts().0.len(), runs);
            batch.advance(0);
            assert!(batch.blocked().is_some() && batch.early_ns().is_none());
        }
        assert_eq!(batch.parts().0.len(), 2, "its queue is our own: all may leave");
        batch.advance(2);
        assert_eq!(pace(&mut batch, 1, 4, 9_000_000), (1, 1), "and the next are paced again");
    }

    #[test]
    fn who_is_spoken_to_next_does_not_wait_for_the_one_before() {
        let mut batch = Batch::new();
        assert_eq!(pace(&mut batch, 1, 1, 1_000_000), (1, 1));
        assert_eq!(pace(&mut batch, 1, 1, 1_001_000), (0, 0), "too soon after the other");
        assert_eq!(pace(&mut batch, 1, 0, 1_400_000), (1, 1));
        assert_eq!(pace(&mut batch, 2, 1, 1_401_000), (1, 1));
    }

    #[test]
    fn what_waits_moves_to_the_front_when_the_memory_ends() {
        let mut batch = Batch::new();
        let mut waited = 0;
        for turn in 0..1_000_u64 {
            batch.compact();
            pace(&mut batch, 1, 1, 1_000_000 + turn * 50_000);
            waited = waited.max(batch.len());
            assert!(batch.used <= MEMORY_LEN && batch.runs.len() <= 24);
        }
        assert!((10 * 1500..=24 * 1500).contains(&waited), "{waited}");
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
