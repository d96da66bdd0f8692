//! The receiver's eye on one path: from sequence numbers and times of chunks to [`Report`]s.
//!
//! A chunk is judged when it had time to come: twice the reordering that was seen. The memory is
//! fixed, about 12 KiB: a bit for each sequence number of a window, the smallest delay of each
//! group of [`GROUP`] of them, and marks in time.
//!
//! Delay tells congestion from weather. Jitter hits every chunk by itself, but a queue holds up
//! even the quickest of a group, so the smallest delay of a group, above the smallest of the last
//! half minute, is the queue. A chunk counts as `queued` when this is at least
//! [`crate::tuning::Queue::least_us`] and more than half of the longest queue of the last seconds:
//! that is where a full queue drops.
//! The longest is what nine in ten groups stay below, for a machine that stands still for 30 ms
//! looks like a queue of as much, and would hide one that overflows at 12. (After Spike, Cen et
//! al. 2003, with the minimum taken over a group.)

use std::collections::VecDeque;

use wire::frame::{Losses, Report};

use crate::tuning::{Telling, Tuning, Waiting};
use crate::weather::levels::Levels;
use crate::weather::model::WINDOW_CHUNKS;
use crate::weather::recent::Recent;

/// Sequence numbers that wait to be judged, at most: 180 ms of 1 Gbit/s.
pub const WINDOW: u64 = 16_384;
/// Neighbours of whose delays the smallest counts.
pub const GROUP: u64 = 8;

/// Sequence numbers stay below; a WireGuard session ends at as many packets.
pub const SEQUENCE_END: u64 = 1 << 60;

/// Numbers to a word, which is a window of the model, too.
const WORD: u64 = WINDOW_CHUNKS as u64;
const WORDS: usize = (WINDOW / WORD) as usize;
const _: () = assert!(WORD == u64::BITS as u64 && WORD.is_multiple_of(GROUP));
const GROUPS: usize = (WINDOW / GROUP) as usize;
/// Marks are so far apart and so many that they reach beyond the longest wait.
const MARK_US: u64 = 2_000;
const MARKS_MAX: usize = 96;

/// When the sequence numbers below `end` had been passed.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at_us: u64,
    end: u64,
}

/// The smallest of some delays, in us after that of the first chunk, and of how many.
#[derive(Clone, Copy, Debug)]
struct Least {
    delay_us: i32,
    of: u32,
}

impl Least {
    /// Of none.
    const NONE: Self = Self { delay_us: i32::MAX, of: 0 };

    fn add(&mut self, other: Self) {
        self.delay_us = self.delay_us.min(other.delay_us);
        self.of = self.of.saturating_add(other.of);
    }
}

impl Default for Least {
    fn default() -> Self {
        Self::NONE
    }
}

/// What the receiver of one path remembers.
#[derive(Debug)]
pub struct Observer {
    tuning: &'static Tuning,
    arrived: Box<[u64; WORDS]>,
    /// What is not judged, for it took another way.
    elsewhere: Box<[u64; WORDS]>,
    /// Of each group.
    delays: Box<[Least; GROUPS]>,
    marks: VecDeque<Mark>,
    /// The first number of this way: what comes late of those before says nothing.
    since: u64,
    /// The first number not judged, and the one after the highest seen.
    next: u64,
    end: u64,
    /// When the highest came.
    end_us: u64,
    /// Delay of the first chunk, clocks of both ends mixed.
    origin_us: Option<u32>,
    base: Recent,
    /// Of the queue, group by group.
    peak: Levels,
    extent: Recent,
    /// Smallest delay of the chunks that arrived last: of a full half and of one being filled.
    live: [i32; 2],
    live_count: u32,
    live_since_us: u64,
    /// Since when a queue stands.
    queued_us: Option<u64>,
    judging: Judging,
    clear: Losses,
    queued: Losses,
    queue_us: Option<u32>,
    /// When a delay was told last.
    told_us: u64,
    /// Chunks that came after they were judged.
    late: u64,
    /// Chunks that came since the last pause.
    came: u32,
    /// When the last chunk came, and for how long there was traffic: pauses count little.
    came_us: u64,
    traffic_us: u64,
}

/// State from one judged chunk to the next.
#[derive(Debug, Default)]
struct Judging {
    /// Whether a queue was judged.
    is_begun: bool,
    /// Of the groups since the queue was judged last.
    least: Least,
    in_run: bool,
    is_queued: bool,
    queue_us: u32,
    window_judged: u32,
    window_lost: u32,
    window_queued: bool,
    /// Numbers that came since a delay was told, without one; for how long, pauses left out; and
    /// whether a queue may hide behind them.
    untold: u32,
    untold_us: u64,
    is_blind: bool,
    /// When the group before was judged.
    before_us: u64,
}

impl Judging {
    /// Numbers to come are of a group of which somebody told a delay, or nobody.
    fn note_told(&mut self, is_told: bool, now_us: u64, telling: &Telling) {
        let since_us = now_us.saturating_sub(self.before_us).min(telling.gap_us_max);
        self.before_us = now_us;
        self.untold_us = self.untold_us.saturating_add(since_us);
        if is_told {
            self.untold = 0;
            self.untold_us = 0;
        }
        let is_long = self.untold_us > telling.blind_us;
        self.is_blind = self.untold > if is_long { telling.blind_long } else { telling.blind };
    }
}

impl Observer {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(tuning: &'static Tuning) -> Self {
        let queue = &tuning.queue;
        Self {
            tuning,
            arrived: Box::new([0; WORDS]),
            elsewhere: Box::new([0; WORDS]),
            delays: Box::new([Least::NONE; GROUPS]),
            marks: VecDeque::with_capacity(MARKS_MAX),
            since: 0,
            next: 0,
            end: 0,
            end_us: 0,
            origin_us: None,
            base: Recent::new(queue.base_us),
            peak: Levels::new(queue.peak_us, queue.above),
            extent: Recent::new(queue.peak_us),
            live: [i32::MAX; 2],
            live_count: 0,
            live_since_us: 0,
            queued_us: None,
            judging: Judging::default(),
            clear: Losses::default(),
            queued: Losses::default(),
            queue_us: None,
            told_us: 0,
            late: 0,
            came: 0,
            came_us: 0,
            traffic_us: 0,
        }
    }

    /// What comes from now on takes another way, or from a clock that began anew: its delay is not
    /// to be held against that of the way before, nor the queue and the disorder there.
    pub fn handle_path_change(&mut self) {
        let queue = &self.tuning.queue;
        self.base = Recent::new(queue.base_us);
        self.peak = Levels::new(queue.peak_us, queue.above);
        self.extent = Recent::new(queue.peak_us);
        self.came = 0;
        self.origin_us = None;
        self.delays.fill(Least::NONE);
        self.live = [i32::MAX; 2];
        self.live_count = 0;
        self.queued_us = None;
        self.judging.is_queued = false;
        self.judging.queue_us = 0;
        self.judging.least = Least::NONE;
        self.judging.note_told(true, 0, &self.tuning.telling);
    }

    /// The same, where the first that takes the other way has this number: what did not come of
    /// those before was on the way that was left, and is not judged. One that is late is none of
    /// another way.
    pub fn handle_way(&mut self, sequence: u64) {
        if sequence >= self.end && sequence < SEQUENCE_END {
            self.handle_path_change();
            self.restart(sequence);
            self.since = sequence;
        }
    }

    /// So many numbers from `first` on took another way than what is judged.
    pub fn handle_elsewhere(&mut self, first: u64, count: u32) {
        let begin = first.max(self.next);
        let end = first.saturating_add(u64::from(count)).min(self.next.saturating_add(WINDOW));
        let mut at = begin;
        while self.end != 0 && at < end {
            let taken = (WORD - at % WORD).min(end - at);
            self.elsewhere[word(at)] |= (u64::MAX >> (WORD - taken)) << (at % WORD);
            at += taken;
        }
    }

    /// Something arrived that may have come another way: it is not lost, and says nothing of order
    /// or delay.
    pub fn handle_stray(&mut self, sequence: u64) {
        if self.end != 0 && (self.next..self.next + WINDOW).contains(&sequence) {
            self.elsewhere[word(sequence)] |= 1 << (sequence % WORD);
        }
    }

    /// A chunk arrived, data or repair. `sequence` counts what was sent on this path; `sent_us` is
    /// the low half of the sender's clock.
    pub fn handle_chunk(&mut self, sequence: u64, sent_us: u32, now_us: u64) {
        if self.note_arrival(sequence, now_us) {
            self.note_delay(sequence, sent_us, now_us);
        }
    }

    /// Something arrived that has a number, but no time at which it was sent.
    pub fn handle_number(&mut self, sequence: u64, now_us: u64) {
        self.note_arrival(sequence, now_us);
    }

    /// Judges what is due and returns what happened since the last call. `missing` and `rebuilt`
    /// are data chunks of blocks in the same time. Its number and its echo are of who sends it.
    pub fn poll_report(&mut self, missing: u32, rebuilt: u32, now_us: u64) -> Report {
        let due_us = now_us.saturating_sub(self.wait_us());
        if self.end_us <= due_us {
            self.judge(self.end, now_us);
        }
        let passed = self.marks.partition_point(|mark| mark.at_us <= due_us);
        if let Some(mark) = passed.checked_sub(1).map(|index| self.marks[index]) {
            self.judge(mark.end, now_us);
        }
        let is_stale = self.told_us.saturating_add(self.tuning.queue.stale_us) < now_us;
        let queue_us = self.queue_us.take().unwrap_or(self.judging.queue_us);
        Report {
            clear: std::mem::take(&mut self.clear),
            queued: std::mem::take(&mut self.queued),
            reorder_us: self.reorder_us(),
            queue_us: if is_stale { 0 } else { queue_us },
            missing,
            rebuilt,
            ..Report::default()
        }
    }

    /// Whether something is left to be judged: then another report will be due.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.next < self.end
    }

    /// By how much chunks came late behind younger ones, the most in the last seconds.
    #[must_use]
    pub fn reorder_us(&self) -> u32 {
        u32::try_from(self.extent.max().unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// Datagrams that came since the path is this one, or since it was silent for seconds.
    #[must_use]
    pub fn came(&self) -> u32 {
        self.came
    }

    /// Whether enough came to believe that none comes later than [`Observer::reorder_us`] says.
    #[must_use]
    pub fn knows_reorder(&self) -> bool {
        f64::from(self.came) >= self.tuning.belief.known_chunks
    }

    /// Whether a queue stands just now: what is lost meanwhile may be congestion, and flows should
    /// see it (RFC 6040: mark or drop). The smallest delay of
    /// [`crate::tuning::Queue::standing_us`] and as many chunks at least decides, for jitter may
    /// hold up a few chunks, but not so many.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        let [before, _] = self.live;
        let delay = self.live[0].min(self.live[1]);
        before != i32::MAX && self.exceeds(self.above_base(delay))
    }

    /// For how long a queue has stood, microseconds; zero where none does.
    #[must_use]
    pub fn queued_us(&self, now_us: u64) -> u64 {
        let since_us = self.queued_us.filter(|_| self.is_queued());
        since_us.map_or(0, |since_us| now_us.saturating_sub(since_us))
    }

    /// Chunks that came after they were judged lost.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// What has a number below `sequence` came unobserved, or may have.
    pub fn begin(&mut self, sequence: u64) {
        self.restart(sequence);
    }

    /// Starts over at `sequence`: the first chunk, or a gap that no loss explains.
    fn restart(&mut self, sequence: u64) {
        self.arrived.fill(0);
        self.elsewhere.fill(0);
        self.delays.fill(Least::NONE);
        self.marks.clear();
        self.next = sequence;
        self.end = sequence;
        self.judging = Judging::default();
    }

    /// Returns whether it came in time to be judged by what it says.
    fn note_arrival(&mut self, sequence: u64, now_us: u64) -> bool {
        if sequence >= SEQUENCE_END {
            return false;
        }
        let is_quiet = self.end_us.saturating_add(self.tuning.queue.peak_us) < now_us;
        self.came = if is_quiet { 1 } else { self.came.saturating_add(1) };
        // Disorder is forgotten over traffic that keeps its order, not over a silence.
        let since_us = now_us.saturating_sub(self.came_us).min(self.tuning.telling.gap_us_max);
        self.came_us = now_us;
        self.traffic_us = self.traffic_us.saturating_add(since_us);
        self.extent.handle_time(self.traffic_us);
        if self.end == 0 || sequence >= self.end.saturating_add(WINDOW) {
            self.restart(sequence);
        }
        if sequence < self.since {
            return false;
        }
        if sequence < self.end.saturating_sub(WINDOW) {
            // Of a count before this one: how late it is nobody can say.
            self.late += 1;
            return false;
        }
        if sequence < self.end {
            self.note_lateness(sequence, now_us);
        }
        if sequence < self.next {
            self.late += 1;
            return false;
        }
        if sequence >= self.end {
            // Whole groups, for a group's place is used again by the one a window later.
            self.judge((sequence + GROUP).saturating_sub(WINDOW) / GROUP * GROUP, now_us);
            self.end = sequence + 1;
            self.end_us = now_us;
            if self.marks.back().is_none_or(|mark| mark.at_us + MARK_US <= now_us) {
                if self.marks.len() == MARKS_MAX {
                    self.marks.pop_front();
                }
                self.marks.push_back(Mark { at_us: now_us, end: self.end });
            }
        }
        self.arrived[word(sequence)] |= 1 << (sequence % WORD);
        true
    }

    fn note_lateness(&mut self, sequence: u64, now_us: u64) {
        let after = self.marks.partition_point(|mark| mark.end <= sequence);
        let at = |index: usize| self.marks.get(index).map(|mark| mark.at_us);
        let before_us = after.checked_sub(1).and_then(at);
        let late_us = match (before_us, at(after)) {
            // Passed between two marks: at the second, or less than their distance after the first.
            (Some(first), Some(second)) => now_us - second + MARK_US.min(second - first),
            (None, Some(only)) | (Some(only), None) => now_us.saturating_sub(only),
            (None, None) => return,
        };
        self.extent.handle_value(i64::try_from(late_us).unwrap_or(i64::MAX), self.traffic_us);
    }

    fn note_delay(&mut self, sequence: u64, sent_us: u32, now_us: u64) {
        self.told_us = now_us;
        let mixed_us = (now_us as u32).wrapping_sub(sent_us);
        let origin_us = *self.origin_us.get_or_insert(mixed_us);
        let delay_us = mixed_us.wrapping_sub(origin_us) as i32;
        self.delays[group(sequence)].add(Least { delay_us, of: 1 });
        self.base.handle_value(-i64::from(delay_us), now_us);
        // What leaves at once arrives in the order of its delay: the last of a flight says nothing
        // without the first.
        let queue = &self.tuning.queue;
        let jitter_us = u64::from(queue.jitter_times) * u64::from(self.reorder_us());
        let span_us = queue.standing_us.max(jitter_us);
        let aged = self.live_since_us + span_us <= now_us;
        if aged && self.live_count >= queue.standing_chunks {
            self.live = [self.live[1], i32::MAX];
            self.live_count = 0;
            self.live_since_us = now_us;
            let is_queued = self.is_queued();
            self.queued_us =
                self.queued_us.filter(|_| is_queued).or_else(|| is_queued.then_some(now_us));
        }
        self.live_count += 1;
        self.live[1] = self.live[1].min(delay_us);
    }

    fn wait_us(&self) -> u64 {
        let extent_us = u64::from(self.reorder_us());
        let Waiting { judge_us_min, judge_us_max, judge_times, .. } = self.tuning.waiting;
        (judge_times * extent_us + MARK_US).clamp(judge_us_min, judge_us_max)
    }

    /// Judges all numbers below `limit`.
    fn judge(&mut self, limit: u64, now_us: u64) {
        while self.next < limit.min(self.end) {
            let sequence = self.next;
            if sequence.is_multiple_of(GROUP) || !self.judging.is_begun {
                self.judging.is_begun = true;
                self.judge_queue(group(sequence), now_us);
            }
            if sequence.is_multiple_of(WORD) && self.skip_word(limit) {
                continue;
            }
            let bit = 1 << (sequence % WORD);
            let lost = self.arrived[word(sequence)] & bit == 0;
            let is_elsewhere = self.elsewhere[word(sequence)] & bit != 0;
            self.arrived[word(sequence)] &= !bit;
            self.elsewhere[word(sequence)] &= !bit;
            match is_elsewhere {
                true => self.end_window(sequence + 1),
                false => self.tally(sequence + 1, 1, lost),
            }
            if (sequence + 1).is_multiple_of(GROUP) {
                self.delays[group(sequence)] = Least::NONE;
            }
            self.next += 1;
        }
    }

    /// Judges a word of which nothing came, all at once, if that is the one to be judged next. The
    /// queue of its first group was judged: the others say nothing else. A datagram may be numbered
    /// [`WINDOW`] ahead of the one before, and must not cost a step for each number between.
    fn skip_word(&mut self, limit: u64) -> bool {
        let is_whole = self.next + WORD <= limit.min(self.end);
        let at = word(self.next);
        let elsewhere = self.elsewhere[at];
        if !is_whole
            || self.arrived[at] & !elsewhere != 0
            || (elsewhere != 0 && elsewhere != u64::MAX)
        {
            return false;
        }
        self.next += WORD;
        match elsewhere {
            0 => self.tally(self.next, WORD as u32, true),
            _ => {
                self.arrived[at] = 0;
                self.elsewhere[at] = 0;
                self.end_window(self.next);
            }
        }
        true
    }

    fn judge_queue(&mut self, group: usize, now_us: u64) {
        // What the end of a burst lost may share a group with the quick start of the next burst:
        // so the group before has a say; and those behind where most of a group is lost.
        let before_us = self.judging.queue_us;
        self.judging.note_told(self.delays[group].of > 0, now_us, &self.tuning.telling);
        self.judging.least.add(self.delays[group]);
        let mut after_us = 0;
        if self.judging.least.of >= self.tuning.queue.timed_min {
            let least = std::mem::take(&mut self.judging.least);
            let queue_us = self.above_base(least.delay_us);
            self.peak.handle_value(u64::from(queue_us), now_us);
            self.judging.queue_us = queue_us;
        } else {
            after_us = self.queue_after(group);
        }
        let queue_us = self.judging.queue_us;
        self.judging.is_queued = self.exceeds(queue_us.max(before_us).max(after_us));
        self.judging.window_queued |= self.judging.is_queued;
        self.queue_us = Some(self.queue_us.map_or(queue_us, |least| least.min(queue_us)));
    }

    /// The queue that those behind a group tell of, together with what of it was not taken in yet;
    /// none where too few of them came.
    fn queue_after(&self, at: usize) -> u32 {
        let mut least = self.judging.least;
        let came = (self.end - self.next) / GROUP;
        let queue = &self.tuning.queue;
        for behind in 1..=came.min(queue.groups_after) as usize {
            least.add(self.delays[(at + behind) % GROUPS]);
            if least.of >= queue.timed_min {
                return self.above_base(least.delay_us);
            }
        }
        0
    }

    fn above_base(&self, delay_us: i32) -> u32 {
        let base_us = -self.base.max().unwrap_or(0);
        u32::try_from(i64::from(delay_us) - base_us).unwrap_or(0)
    }

    fn exceeds(&self, queue_us: u32) -> bool {
        let queue = &self.tuning.queue;
        queue_us >= queue.least_us && u64::from(queue_us) > self.peak.most() / queue.part
    }

    /// Counts the `count` numbers before `end`, which are of one window: all lost, or none. What is
    /// lost where no delay was told is not taken for weather: a flow that fills a calm line loses
    /// as much at once as would be repaired for a minute. Weather comes again, and then delays are
    /// told ([`crate::weather::control::Control::is_watching`]).
    fn tally(&mut self, end: u64, count: u32, lost: bool) {
        let count_lost = if lost { count } else { 0 };
        let judging = &mut self.judging;
        judging.untold = judging.untold.saturating_add(count - count_lost);
        let is_queued = judging.is_queued || lost && judging.is_blind;
        judging.window_queued |= is_queued;
        let losses = if is_queued { &mut self.queued } else { &mut self.clear };
        losses.judged = losses.judged.saturating_add(count);
        losses.lost = losses.lost.saturating_add(count_lost);
        losses.runs = losses.runs.saturating_add(u32::from(lost && !judging.in_run));
        judging.in_run = lost;
        judging.window_judged += count;
        judging.window_lost += count_lost;
        self.end_window(end);
    }

    /// Counts the window that ends before `end`, if one does and all of it was judged.
    fn end_window(&mut self, end: u64) {
        if !end.is_multiple_of(WORD) {
            return;
        }
        let judging = &mut self.judging;
        if judging.window_judged == WINDOW_CHUNKS {
            let losses = if judging.window_queued { &mut self.queued } else { &mut self.clear };
            let lost = judging.window_lost;
            losses.windows = losses.windows.saturating_add(1);
            losses.window_losses = losses.window_losses.saturating_add(lost);
            losses.window_squares = losses.window_squares.saturating_add(lost * lost);
        }
        judging.window_judged = 0;
        judging.window_lost = 0;
        judging.window_queued = false;
    }
}

fn word(sequence: u64) -> usize {
    (sequence % WINDOW / WORD) as usize
}

fn group(sequence: u64) -> usize {
    (sequence % WINDOW / GROUP) as usize
}

#[cfg(test)]
mod tests;
