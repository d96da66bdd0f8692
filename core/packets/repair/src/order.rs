//! Order within flows, for flows that suffer without it (TCP), and for no longer than it helps.
//!
//! The sender gives every piece of a TCP flow a tag of eight bits and a number that counts on by
//! tag; flows that share a tag wait for each other, which costs little. A piece that is ahead waits
//! until what is missing comes, was rebuilt, or the wait is over. Every other flow passes
//! meanwhile. Bounded on every side (threat BC-10): tags by their width, flows that wait at
//! once, the span of numbers of each, bytes, and the time that any piece waits.

use std::collections::VecDeque;

/// Tags.
pub const TAGS: usize = 256;
/// Flows that wait at one time; further ones pass unordered.
pub const WAITING_MAX: usize = 32;
/// How far ahead a piece may be.
pub const SPAN: u32 = 4_096;
/// Room for so many is kept when none waits any more.
const PLACES_KEPT: usize = 256;
/// Bytes that wait for one peer.
pub const BYTES_MAX: usize = 4 << 20;
/// Longest time that any piece waits, unless somebody asks for another.
pub const WAIT_US_MAX: u64 = 30_000;
/// And the longest that can be asked for.
pub const WAIT_US_LIMIT: u64 = 100_000;

/// Pieces by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Passed at once, in order.
    pub in_order: u64,
    /// Passed at once behind younger ones.
    pub late: u64,
    /// Waited.
    pub waited: u64,
    /// For how long they waited, all together, in microseconds.
    pub waited_us: u64,
    /// Waited for something that did not come in time: times that a flow was let go on.
    pub given_up: u64,
    /// Passed at once, or let others go, because a bound was reached.
    pub overflowed: u64,
}

impl Counters {
    fn note_wait(&mut self, us: u64) {
        self.waited_us = self.waited_us.saturating_add(us);
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// The number that is next in order; nothing before the first.
    next: Option<u32>,
    /// Which queue holds what is ahead.
    queue: Option<u8>,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    len: usize,
    at_us: u64,
}

/// What is ahead in one flow, each with its number, in their order: memory is of what waits, and
/// not of how far ahead it is.
#[derive(Debug)]
struct Queue<T> {
    tag: Option<u8>,
    places: VecDeque<(u32, Waiting<T>)>,
    /// When the piece came that has waited longest.
    since_us: u64,
}

/// Pieces of one peer's flows. Drain [`Order::poll_ready`] after each input.
#[derive(Debug)]
pub struct Order<T> {
    flows: Vec<Flow>,
    queues: Vec<Queue<T>>,
    ready: VecDeque<T>,
    bytes: usize,
    wait_us: u64,
    wait_us_max: u64,
    /// The time of the last input.
    now_us: u64,
    /// The number that every flow begins with, if the sender told.
    first: Option<u32>,
    counters: Counters,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Order<T> {
    /// Nothing seen, no wait.
    #[must_use]
    pub fn new() -> Self {
        Self {
            flows: Vec::new(),
            queues: Vec::new(),
            ready: VecDeque::new(),
            bytes: 0,
            wait_us: 0,
            wait_us_max: WAIT_US_MAX,
            now_us: 0,
            first: None,
            counters: Counters::default(),
        }
    }

    /// Every flow begins with this number: the first piece to arrive need not be the first that was
    /// sent. Returns whether it was another one before: that is a sender which began anew, and
    /// what waits then is ready.
    pub fn set_first(&mut self, first: u32) -> bool {
        let before = self.first.replace(first);
        if before == Some(first) {
            return false;
        }
        for index in 0..self.queues.len() {
            if let Some(tag) = self.queues[index].tag {
                self.flush(tag);
            }
        }
        self.flows.fill(Flow::default());
        before.is_some()
    }

    /// How long a piece may wait: what reordering was measured, and the time that a block's repair
    /// takes. Never more than [`Order::set_wait_us_max`] allows.
    pub fn set_wait_us(&mut self, wait_us: u64) {
        self.wait_us = wait_us.min(self.wait_us_max);
    }

    /// The longest time that any piece waits from now on: [`WAIT_US_MAX`] at first, never more than
    /// [`WAIT_US_LIMIT`], and with zero none waits.
    pub fn set_wait_us_max(&mut self, wait_us_max: u64) {
        self.wait_us_max = wait_us_max.min(WAIT_US_LIMIT);
        self.wait_us = self.wait_us.min(self.wait_us_max);
    }

    /// Whether a piece with this number is ahead of its flow: it may have to wait, so it must not
    /// lie in memory that is lent for the moment. All others are ready at once.
    #[must_use]
    pub fn is_ahead(&self, tag: u8, number: u32) -> bool {
        let next = self.flows.get(usize::from(tag)).and_then(|flow| flow.next).or(self.first);
        next.is_some_and(|next| number != next && next.wrapping_sub(number) > SPAN)
    }

    /// A piece of `len` bytes came.
    pub fn handle_piece(&mut self, tag: u8, number: u32, item: T, len: usize, now_us: u64) {
        self.now_us = now_us;
        if self.flows.is_empty() {
            self.flows = vec![Flow::default(); TAGS];
        }
        let flow = &mut self.flows[usize::from(tag)];
        let next = *flow.next.get_or_insert_with(|| self.first.unwrap_or(number));
        let (ahead, behind) = (number.wrapping_sub(next), next.wrapping_sub(number));
        if ahead == 0 {
            self.counters.in_order += 1;
            self.ready.push_back(item);
            return self.advance(tag, number.wrapping_add(1));
        }
        if behind <= SPAN {
            self.counters.late += 1;
            return self.ready.push_back(item);
        }
        let has_room = ahead <= SPAN && self.wait_us > 0 && self.bytes + len <= BYTES_MAX;
        if let Some(index) = has_room.then(|| self.queue(tag)).flatten() {
            return self.wait(index, (tag, number), Waiting { item, len, at_us: now_us });
        }
        self.counters.overflowed += 1;
        if ahead <= SPAN
            && let Some(index) = self.flows[usize::from(tag)].queue
        {
            // In its place among those that go on now.
            self.wait(usize::from(index), (tag, number), Waiting { item, len, at_us: now_us });
            return self.flush(tag);
        }
        self.flush(tag);
        self.ready.push_back(item);
        self.flows[usize::from(tag)].next = Some(number.wrapping_add(1));
    }

    /// Lets flows go on that have waited long enough.
    pub fn handle_timeout(&mut self, now_us: u64) {
        self.now_us = now_us;
        if let Some(last_us) = now_us.checked_sub(self.wait_us) {
            self.give_up(last_us);
        }
    }

    /// Nothing that was sent before `settled_us` is rebuilt any more: what has waited since before
    /// then, and for `late_us` at least, waits in vain.
    pub fn handle_settled(&mut self, settled_us: u64, late_us: u64, now_us: u64) {
        self.now_us = now_us;
        let before_us = settled_us.min(now_us.saturating_sub(late_us));
        if let Some(last_us) = before_us.checked_sub(1) {
            self.give_up(last_us);
        }
    }

    /// The next piece to be passed on.
    pub fn poll_ready(&mut self) -> Option<T> {
        self.ready.pop_front()
    }

    /// When to call [`Order::handle_timeout`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let waiting = self.queues.iter().filter(|queue| queue.tag.is_some());
        waiting.map(|queue| queue.since_us.saturating_add(self.wait_us)).min()
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What waits, and what is ready.
    pub fn pieces(&self) -> impl Iterator<Item = &T> {
        let waiting = self.queues.iter().flat_map(|queue| queue.places.iter());
        self.ready.iter().chain(waiting.map(|(_, waiting)| &waiting.item))
    }

    /// Bytes that wait.
    #[must_use]
    pub fn bytes_waiting(&self) -> usize {
        self.bytes
    }

    /// The queue of a flow, a free one, or nothing if too many flows wait.
    fn queue(&mut self, tag: u8) -> Option<usize> {
        if let Some(index) = self.flows[usize::from(tag)].queue {
            return Some(usize::from(index));
        }
        let free = self.queues.iter().position(|queue| queue.tag.is_none());
        if free.is_none() && self.queues.len() < WAITING_MAX {
            self.queues.push(Queue { tag: None, places: VecDeque::new(), since_us: 0 });
        }
        free.or_else(|| self.queues.len().checked_sub(1).filter(|&i| self.queues[i].tag.is_none()))
    }

    fn wait(&mut self, index: usize, (tag, number): (u8, u32), waiting: Waiting<T>) {
        let next = self.flows[usize::from(tag)].next.unwrap_or(number);
        let queue = &mut self.queues[index];
        if queue.tag.is_none() {
            (queue.tag, queue.since_us) = (Some(tag), waiting.at_us);
            self.flows[usize::from(tag)].queue = Some(index as u8);
        }
        let ahead = |of: u32| of.wrapping_sub(next);
        let place = queue.places.partition_point(|(of, _)| ahead(*of) < ahead(number));
        if queue.places.get(place).is_some_and(|(of, _)| *of == number) {
            // Repeated: whoever reads the flow can tell.
            self.counters.late += 1;
            self.ready.push_back(waiting.item);
        } else {
            self.counters.waited += 1;
            self.bytes += waiting.len;
            queue.places.insert(place, (number, waiting));
        }
    }

    /// Moves a flow on to `next`, and passes on what follows without a gap.
    fn advance(&mut self, tag: u8, mut next: u32) {
        let flow = &mut self.flows[usize::from(tag)];
        if let Some(index) = flow.queue {
            let queue = &mut self.queues[usize::from(index)];
            while let Some((_, waiting)) = queue.places.pop_front_if(|(of, _)| *of == next) {
                self.bytes -= waiting.len;
                self.counters.note_wait(self.now_us.saturating_sub(waiting.at_us));
                self.ready.push_back(waiting.item);
                next = next.wrapping_add(1);
            }
            match queue.places.iter().map(|(_, waiting)| waiting.at_us).min() {
                Some(at_us) => queue.since_us = at_us,
                None => {
                    (queue.tag, flow.queue) = (None, None);
                    if queue.places.capacity() > PLACES_KEPT {
                        queue.places = VecDeque::new();
                    }
                }
            }
        }
        flow.next = Some(next);
    }

    /// Gives up every gap behind which something has waited since `last_us` or longer.
    fn give_up(&mut self, last_us: u64) {
        for index in 0..self.queues.len() {
            while let Some(tag) = self.queues[index].tag
                && self.queues[index].since_us <= last_us
            {
                self.counters.given_up += 1;
                self.skip(index, tag);
            }
        }
    }

    /// Gives up the first gap of a flow.
    fn skip(&mut self, index: usize, tag: u8) {
        if let Some(&(first, _)) = self.queues[index].places.front() {
            self.advance(tag, first);
        }
    }

    /// Passes on all that waits in a flow.
    fn flush(&mut self, tag: u8) {
        while let Some(index) = self.flows[usize::from(tag)].queue {
            self.skip(usize::from(index), tag);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sim::rng::Rng;

    fn drain(order: &mut Order<u32>) -> Vec<u32> {
        std::iter::from_fn(|| order.poll_ready()).collect()
    }

    #[test]
    fn the_first_to_arrive_need_not_be_the_first() {
        let mut order = Order::new();
        order.set_wait_us(10_000);
        assert!(!order.set_first(7), "there was none before");
        assert!(order.is_ahead(1, 9) && !order.is_ahead(1, 7));
        for number in [9, 8, 7] {
            order.handle_piece(1, number, number, 10, 0);
        }
        assert_eq!(drain(&mut order), [7, 8, 9]);
        order.handle_piece(1, 11, 11, 10, 0);
        assert!(!order.set_first(7));
        assert_eq!(drain(&mut order), [], "the same sender");
        assert!(order.set_first(500));
        assert_eq!(drain(&mut order), [11], "another one, who sends nothing of that");
        order.handle_piece(1, 501, 501, 10, 0);
        order.handle_piece(1, 500, 500, 10, 0);
        assert_eq!((drain(&mut order), order.bytes_waiting()), (vec![500, 501], 0));
    }

    #[test]
    fn a_gap_is_waited_for_and_what_fills_it_lets_all_pass() {
        let mut order = Order::new();
        order.set_wait_us(10_000);
        for number in [7, 9, 10, 12] {
            assert_eq!(order.is_ahead(1, number), number != 7);
            order.handle_piece(1, number, number, 100, u64::from(number));
        }
        assert_eq!((drain(&mut order), order.bytes_waiting()), (vec![7], 300));
        order.handle_piece(2, 5, 500, 100, 13);
        assert_eq!(drain(&mut order), [500]);
        order.handle_piece(1, 8, 8, 100, 14);
        assert_eq!(drain(&mut order), [8, 9, 10]);
        assert_eq!(order.poll_timeout(), Some(10_012));
        order.handle_timeout(10_011);
        assert_eq!(drain(&mut order), [0; 0]);
        order.handle_timeout(10_012);
        assert_eq!((drain(&mut order), order.poll_timeout()), (vec![12], None));
        assert!(!order.is_ahead(1, 11) && !order.is_ahead(1, 13) && order.is_ahead(1, 14));
        order.handle_piece(1, 11, 11, 100, 11_000);
        order.handle_piece(1, 13, 13, 100, 11_000);
        assert_eq!((drain(&mut order), order.bytes_waiting()), (vec![11, 13], 0));
        let counters = order.counters();
        let waits_us = (14 - 9) + (14 - 10) + (10_012 - 12);
        assert_eq!((counters.waited, counters.waited_us), (3, waits_us), "9, 10 and 12");
    }

    #[test]
    fn a_gap_that_nothing_can_fill_any_more_is_given_up_at_once_but_not_what_may_be_late() {
        let mut order = Order::new();
        order.set_wait_us(30_000);
        for (number, at_us) in [(1, 0), (3, 1_000), (5, 2_000)] {
            order.handle_piece(0, number, number, 10, at_us);
        }
        assert_eq!(drain(&mut order), [1]);
        order.handle_settled(1_000, 0, 5_000);
        assert_eq!(drain(&mut order), [], "its block is not settled");
        order.handle_settled(1_001, 4_000, 5_000);
        assert_eq!(drain(&mut order), [], "it may be late");
        order.handle_settled(1_001, 3_999, 5_000);
        assert_eq!((drain(&mut order), order.counters().given_up), (vec![3], 1));
        order.handle_settled(u64::MAX, 0, 5_000);
        assert_eq!((drain(&mut order), order.poll_timeout()), (vec![5], None));
    }

    #[test]
    fn without_reordering_nothing_waits() {
        let mut order = Order::new();
        for number in [1, 3, 2, 9] {
            order.handle_piece(0, number, number, 1, 0);
        }
        assert_eq!((drain(&mut order), order.poll_timeout()), (vec![1, 3, 2, 9], None));
    }

    #[test]
    fn bc_10_no_piece_waits_for_longer_than_is_asked_for_nor_than_the_limit() {
        let mut order = Order::new();
        for (asked_us, most_us) in [(0, None), (5_000, Some(5_000)), (u64::MAX, Some(100_000))] {
            order.set_wait_us_max(asked_us);
            order.set_wait_us(u64::MAX);
            order.handle_piece(0, 1, 1, 10, 0);
            order.handle_piece(0, 3, 3, 10, 0);
            assert_eq!(order.poll_timeout(), most_us);
            order.handle_timeout(u64::MAX);
            drain(&mut order);
            order.set_first(asked_us as u32 | 1 << 31);
        }
    }

    #[test]
    fn bc_10_a_big_gap_a_restart_and_the_wrap_let_all_pass() {
        let mut order = Order::new();
        order.set_wait_us(30_000);
        for number in [u32::MAX - 1, 0, u32::MAX, 2, 1 << 20, 3, 4, (1 << 20) + 1] {
            order.handle_piece(0, number, number, 1, 0);
        }
        let m = u32::MAX;
        assert_eq!(drain(&mut order), [m - 1, m, 0, 2, 1 << 20, 3, 4, (1 << 20) + 1]);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 100, failure_persistence: None, ..Default::default()
        })]

        /// BC-10: all pieces pass once; none waits longer than the bound; those that came within
        /// the wait are in order.
        #[test]
        fn bc_10_every_piece_passes_once_in_time_and_in_order(
            seed: u64, loss in 0.0..0.2f64, jitter_us in 1..40_000u64, flows in 1..60u64
        ) {
            let mut rng = Rng::new(seed);
            let mut numbers = vec![u32::MAX - 100; 256];
            let mut wire = Vec::new();
            for n in 0..2_000u64 {
                let tag = rng.below(flows) as u8;
                let number = numbers[usize::from(tag)];
                numbers[usize::from(tag)] = number.wrapping_add(1);
                if !rng.chance(loss) {
                    wire.push((n * 50 + rng.below(jitter_us), tag, number));
                }
            }
            wire.sort_unstable();
            let mut order = Order::new();
            order.set_wait_us(u64::MAX);
            let (mut came, mut passed, mut fell) = (vec![0; wire.len()], 0, 0);
            let mut last: Vec<Option<u32>> = vec![None; 256];
            for (item, &(at_us, tag, number)) in wire.iter().enumerate() {
                while let Some(due_us) = order.poll_timeout().filter(|&due_us| due_us <= at_us) {
                    order.handle_timeout(due_us);
                    prop_assert!(order.poll_timeout().is_none_or(|next_us| next_us > due_us));
                    while let Some(item) = order.poll_ready() {
                        prop_assert!(due_us - came[item] <= WAIT_US_MAX);
                        let (_, tag, number) = wire[item];
                        last[usize::from(tag)] = Some(number);
                        passed += 1;
                    }
                }
                came[item] = at_us;
                order.handle_piece(tag, number, item, 1_400, at_us);
                while let Some(item) = order.poll_ready() {
                    passed += 1;
                    let (_, tag, number) = wire[item];
                    let before = last[usize::from(tag)].replace(number);
                    let falls = before.is_some_and(|b| number.wrapping_sub(b) > u32::MAX / 2);
                    fell += u64::from(falls);
                }
                prop_assert!(fell <= order.counters().late, "out of order, not late");
                prop_assert!(order.bytes_waiting() <= BYTES_MAX);
            }
            order.handle_timeout(u64::MAX);
            while order.poll_ready().is_some() {
                passed += 1;
            }
            prop_assert_eq!((passed, order.bytes_waiting()), (wire.len(), 0));
        }
    }

    #[test]
    fn bc_10_a_peer_that_opens_gaps_everywhere_stays_within_the_bounds() {
        let mut order = Order::new();
        order.set_wait_us(30_000);
        let mut rng = Rng::new(1);
        for n in 0..200_000u32 {
            let tag = rng.below(256) as u8;
            order.handle_piece(tag, rng.below(9_000) as u32, n, 1_500, 0);
            assert!(order.bytes_waiting() <= BYTES_MAX && order.queues.len() <= WAITING_MAX);
            while order.poll_ready().is_some() {}
        }
        let places: usize = order.queues.iter().map(|queue| queue.places.len()).sum();
        assert!(places <= WAITING_MAX * SPAN as usize);
    }

    #[test]
    fn bc_10_what_finds_no_room_takes_its_flow_on_and_not_back() {
        let mut order = Order::new();
        order.set_first(10);
        order.set_wait_us(30_000);
        for number in [15, 20] {
            order.handle_piece(1, number, number, 1_400, 0);
        }
        order.set_wait_us(0);
        order.handle_piece(1, 12, 12, 1_400, 0);
        order.set_wait_us(30_000);
        assert_eq!(drain(&mut order), [12, 15, 20], "in order, and at once");
        order.handle_piece(1, 21, 21, 1_400, 0);
        assert_eq!(
            (drain(&mut order), order.bytes_waiting()),
            (vec![21], 0),
            "nothing waits in vain"
        );
    }

    #[test]
    fn bc_10_memory_is_of_what_waits_and_not_of_how_far_ahead_it_is() {
        let mut order = Order::new();
        order.set_wait_us(30_000);
        let room = |order: &Order<u32>| -> usize {
            order.queues.iter().map(|queue| queue.places.capacity()).sum()
        };
        for tag in 0..WAITING_MAX as u8 {
            order.handle_piece(tag, 0, 0, 1, 0);
            order.handle_piece(tag, SPAN, 0, 1, 0);
        }
        assert!(order.queues.len() == WAITING_MAX && room(&order) < 16 * WAITING_MAX);
        // Some that did wait leave nothing much behind.
        (2..SPAN).for_each(|number| order.handle_piece(0, number, 0, 1, 0));
        assert!(room(&order) >= SPAN as usize - 2);
        order.handle_timeout(30_000);
        assert_eq!(drain(&mut order).len(), 2 * WAITING_MAX + SPAN as usize - 2);
        assert!(room(&order) <= PLACES_KEPT * WAITING_MAX);
    }
}
