//! Order within flows, for flows that suffer without it (TCP, QUIC), and for no longer than it
//! helps.
//!
//! The sender gives every piece of such a flow a tag of eight bits and a number that counts on by
//! tag; flows that share a tag wait for each other, which costs little. A piece that is ahead waits
//! until what is missing comes, was rebuilt, or the wait is over. Every other flow passes
//! in that time. Bounded on every side (threat BC-10): tags by their width, flows that wait at
//! once, the span of numbers of each, places, bytes, the time that any piece waits, and the steps
//! that a piece costs, whatever number it says.

use std::collections::VecDeque;

use crate::code::aged::Aged;
use crate::tuning;

/// Tags.
pub const TAGS: usize = 256;
/// Flows that wait at one time; further ones pass unordered.
pub const WAITING_MAX: usize = 32;
/// How far ahead a piece may be.
pub const SPAN: u32 = 4_096;
/// Pieces of all flows that wait, at most: as many as of one. Those that nothing stands for any
/// more count too, for each has a place.
const PLACES_MAX: usize = SPAN as usize;
/// Bytes that wait for one peer.
pub const BYTES_MAX: usize = 4 << 20;
/// The longest time for which any piece can be asked to wait, microseconds.
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
    /// The position that is next in order: its low half is the number, and it never goes back.
    /// Nothing before the first.
    next: Option<u64>,
    /// Pieces that are ahead.
    waiting: u16,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    len: usize,
}

/// Pieces of one peer's flows. Drain [`Order::poll_ready`] after each input.
#[derive(Debug)]
pub struct Order<T> {
    flows: Vec<Flow>,
    /// What is ahead, by tag and position.
    waiting: Aged<(u8, u64), Waiting<T>>,
    /// Flows of which something is ahead.
    held: usize,
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

impl<T> Order<T> {
    /// Nothing seen, no wait.
    #[must_use]
    pub fn new(waiting: &tuning::Waiting) -> Self {
        Self {
            flows: Vec::new(),
            waiting: Aged::new(),
            held: 0,
            ready: VecDeque::new(),
            bytes: 0,
            wait_us: 0,
            wait_us_max: waiting.order_us,
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
        while let Some((_, (tag, _))) = self.waiting.oldest() {
            self.flush(tag);
        }
        self.flows.fill(Flow::default());
        before.is_some()
    }

    /// How long a piece may wait: what reordering was measured, and the time that a block's repair
    /// takes. Never more than [`Order::set_wait_us_max`] allows.
    pub fn set_wait_us(&mut self, wait_us: u64) {
        self.wait_us = wait_us.min(self.wait_us_max);
    }

    /// The longest time that any piece waits from now on: [`tuning::Waiting::order_us`] at first,
    /// never more than [`WAIT_US_LIMIT`], and with zero none waits.
    pub fn set_wait_us_max(&mut self, wait_us_max: u64) {
        self.wait_us_max = wait_us_max.min(WAIT_US_LIMIT);
        self.wait_us = self.wait_us.min(self.wait_us_max);
    }

    /// Whether a piece with this number is ahead of its flow: it may have to wait, so it must not
    /// lie in memory that is lent for the moment. All others are ready at once.
    #[must_use]
    pub fn is_ahead(&self, tag: u8, number: u32) -> bool {
        let flow = self.flows.get(usize::from(tag));
        let next = flow.and_then(|flow| flow.next).map(|next| next as u32).or(self.first);
        next.is_some_and(|next| number != next && next.wrapping_sub(number) > SPAN)
    }

    /// A piece of `len` bytes came.
    pub fn handle_piece(&mut self, tag: u8, number: u32, item: T, len: usize, now_us: u64) {
        self.now_us = now_us;
        if self.flows.is_empty() {
            self.flows = vec![Flow::default(); TAGS];
        }
        let first = self.first.unwrap_or(number);
        let flow = &mut self.flows[usize::from(tag)];
        let next = *flow.next.get_or_insert_with(|| u64::from(first));
        let ahead = number.wrapping_sub(next as u32);
        let behind = (next as u32).wrapping_sub(number);
        let position = next.wrapping_add(u64::from(ahead));
        if ahead == 0 {
            self.counters.in_order += 1;
            self.ready.push_back(item);
            return self.advance(tag, position.wrapping_add(1));
        }
        if behind <= SPAN {
            self.counters.late += 1;
            return self.ready.push_back(item);
        }
        let waits = ahead <= SPAN && flow.waiting > 0;
        let may_wait = ahead <= SPAN && (waits || self.held < WAITING_MAX) && self.wait_us > 0;
        let has_room = self.bytes + len <= BYTES_MAX && self.waiting.len() < PLACES_MAX;
        if may_wait && has_room {
            return self.wait((tag, position), Waiting { item, len });
        }
        self.counters.overflowed += 1;
        if waits {
            // In its place among those that go on now.
            self.wait((tag, position), Waiting { item, len });
            return self.flush(tag);
        }
        self.flush(tag);
        self.ready.push_back(item);
        self.flows[usize::from(tag)].next = Some(position.wrapping_add(1));
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
        self.waiting.oldest().map(|(at_us, _)| at_us.saturating_add(self.wait_us))
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Steps that keeping the order took so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.waiting.steps()
    }

    /// What waits, and what is ready.
    pub fn pieces(&self) -> impl Iterator<Item = &T> {
        self.ready.iter().chain(self.waiting.values().map(|waiting| &waiting.item))
    }

    /// Bytes that wait.
    #[must_use]
    pub fn bytes_waiting(&self) -> usize {
        self.bytes
    }

    fn wait(&mut self, place: (u8, u64), waiting: Waiting<T>) {
        let len = waiting.len;
        if let Err(repeated) = self.waiting.insert(place, waiting, self.now_us) {
            // Whoever reads the flow can tell.
            self.counters.late += 1;
            return self.ready.push_back(repeated.item);
        }
        self.counters.waited += 1;
        self.bytes += len;
        let flow = &mut self.flows[usize::from(place.0)];
        self.held += usize::from(flow.waiting == 0);
        flow.waiting += 1;
    }

    /// Moves a flow on to `next`, and passes on what follows without a gap.
    fn advance(&mut self, tag: u8, mut next: u64) {
        let flow = &mut self.flows[usize::from(tag)];
        while flow.waiting > 0
            && let Some((at_us, waiting)) = self.waiting.remove(&(tag, next))
        {
            self.bytes -= waiting.len;
            self.counters.note_wait(self.now_us.saturating_sub(at_us));
            self.ready.push_back(waiting.item);
            next = next.wrapping_add(1);
            flow.waiting -= 1;
            self.held -= usize::from(flow.waiting == 0);
        }
        flow.next = Some(next);
    }

    /// Gives up every gap behind which something has waited since `last_us` or longer.
    fn give_up(&mut self, last_us: u64) {
        while let Some((at_us, (tag, _))) = self.waiting.oldest()
            && at_us <= last_us
        {
            self.counters.given_up += 1;
            self.skip(tag);
        }
    }

    /// Gives up the first gap of a flow.
    fn skip(&mut self, tag: u8) {
        if let Some((_, position)) = self.waiting.first((tag, 0)..=(tag, u64::MAX)) {
            self.advance(tag, position);
        }
    }

    /// Passes on all that waits in a flow.
    fn flush(&mut self, tag: u8) {
        while self.flows.get(usize::from(tag)).is_some_and(|flow| flow.waiting > 0) {
            self.skip(tag);
        }
    }
}

#[cfg(test)]
mod tests;
