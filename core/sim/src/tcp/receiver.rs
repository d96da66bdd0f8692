//! The receiving end: what is acknowledged, and when.

use std::collections::BTreeMap;

/// Blocks of an acknowledgement, beside timestamps.
const BLOCKS_MAX: usize = 3;
const DELAY_US: u64 = 40_000;

/// An acknowledgement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// The next segment that is expected.
    pub next: u64,
    /// Segments beyond it that are there, from and until; or first, one that came twice.
    pub sacks: Vec<(u64, u64)>,
    /// When that segment was sent which made it expect the next one.
    pub echo_us: u64,
}

/// Counts segments; there are no bytes.
#[derive(Debug, Default)]
pub struct Receiver {
    next: u64,
    /// What is beyond: from, until.
    beyond: BTreeMap<u64, u64>,
    /// The ranges that came last, newest first.
    recent: Vec<u64>,
    unacknowledged: u64,
    echo_us: u64,
    due_us: Option<u64>,
}

impl Receiver {
    /// Segments that came in order.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.next
    }

    /// Segments from `first` on, in one packet or superpacket, sent at `sent_us`.
    pub fn handle_data(
        &mut self,
        first: u64,
        count: u64,
        sent_us: u64,
        now_us: u64,
    ) -> Option<Ack> {
        let end = first + count;
        if end <= self.next || self.holds(first, end) {
            return Some(self.ack(Some((first, end))));
        }
        if first > self.next {
            self.insert(first, end);
            return Some(self.ack(None));
        }
        if self.unacknowledged == 0 {
            self.echo_us = sent_us;
        }
        let fills = !self.beyond.is_empty();
        self.unacknowledged += end - self.next;
        self.next = end;
        while let Some((&from, &to)) = self.beyond.first_key_value()
            && from <= self.next
        {
            self.next = self.next.max(to);
            self.beyond.pop_first();
        }
        if fills || self.unacknowledged >= 2 {
            return Some(self.ack(None));
        }
        self.due_us.get_or_insert(now_us + DELAY_US);
        None
    }

    /// The acknowledgement that was held back, when its time is over.
    pub fn handle_timeout(&mut self, now_us: u64) -> Option<Ack> {
        self.due_us.filter(|&due_us| due_us <= now_us)?;
        Some(self.ack(None))
    }

    /// When to call [`Receiver::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        self.due_us
    }

    fn holds(&self, first: u64, end: u64) -> bool {
        self.beyond.range(..=first).next_back().is_some_and(|(_, &to)| to >= end)
    }

    fn insert(&mut self, first: u64, end: u64) {
        let mut first = first;
        let mut end = end;
        while let Some((&from, &to)) = self.beyond.range(..=end).next_back()
            && to >= first
        {
            first = first.min(from);
            end = end.max(to);
            self.beyond.remove(&from);
            self.recent.retain(|&of| of != from);
        }
        self.beyond.insert(first, end);
        self.recent.insert(0, first);
    }

    fn ack(&mut self, twice: Option<(u64, u64)>) -> Ack {
        self.unacknowledged = 0;
        self.due_us = None;
        let beyond = &self.beyond;
        self.recent.retain(|from| beyond.contains_key(from));
        let known = self.recent.iter().filter_map(|from| Some((*from, *beyond.get(from)?)));
        let sacks = twice.into_iter().chain(known).take(BLOCKS_MAX).collect();
        Ack { next: self.next, sacks, echo_us: self.echo_us }
    }
}
