//! The pacer: when the datagrams of a burst leave, where the link wants them apart.
//!
//! Time is an argument. Whatever waits is out [`HELD_NS`] after the turn in which it was added,
//! since the gaps shrink: pacing bounds a burst, never a rate.

/// How long pacing may hold a datagram.
const HELD_NS: u64 = 2_500_000;
/// What is due within so long leaves together. A line has passed two or three full datagrams by
/// then where it takes 100 Mbit/s, and a loop that wakes up for each one costs twice as much.
const PIECE_NS: u64 = 300_000;
/// What stands in front of so many bytes leaves at once: more is a flood, no burst. Less than a
/// turn takes from the device, so that pacing never keeps the loop from reading.
const WAITING_LEN: u64 = 36_000;
/// Bytes of a datagram that has a whole gap behind it; a shorter one has as much less.
const FULL_LEN: u64 = 1_500;

/// Datagrams that wait behind each other, of one size but the last.
#[derive(Clone, Copy, Debug)]
pub struct Train {
    /// Bytes of all of them.
    pub len: usize,
    /// Bytes of each but the last.
    pub segment: usize,
    /// How many there are.
    pub count: usize,
    /// What the link wants between two, nanoseconds.
    pub gap_ns: u32,
    /// When the first was added, nanoseconds.
    pub added_ns: u64,
}

/// The clock of what waits, for destinations of a kind.
#[derive(Debug)]
pub struct Pacer<T> {
    /// When the next one may leave.
    next_ns: u64,
    /// Where the last one went.
    to: Option<T>,
}

impl<T> Default for Pacer<T> {
    fn default() -> Self {
        Self { next_ns: 0, to: None }
    }
}

impl<T: Copy + PartialEq> Pacer<T> {
    /// Something for `to` is added at `now_ns`, and nothing waits. Nothing was saved up meanwhile;
    /// while something waits, a loop that woke up late makes up for it.
    pub fn begin(&mut self, to: T, now_ns: u64) {
        let is_elsewhere = self.to.replace(to) != Some(to);
        let latest_ns = if is_elsewhere { now_ns } else { now_ns + HELD_NS };
        self.next_ns = self.next_ns.clamp(now_ns, latest_ns);
    }

    /// How many datagrams of `trains`, which have one destination, may leave at `now_ns`.
    pub fn due(&mut self, trains: impl Iterator<Item = Train> + Clone, now_ns: u64) -> usize {
        let mut left: u64 = trains.clone().map(|train| train.len as u64).sum();
        let gap_ns = gap_ns(trains.clone(), left, now_ns);
        let soon_ns = if self.next_ns <= now_ns { now_ns + PIECE_NS } else { 0 };
        let mut due = 0;
        for train in trains {
            let len = train.segment as u64;
            for _ in 0..train.count {
                if left <= WAITING_LEN {
                    if self.next_ns >= soon_ns {
                        return due;
                    }
                    self.next_ns += gap_ns * len / FULL_LEN;
                }
                left = left.saturating_sub(len);
                due += 1;
            }
        }
        due
    }

    /// How long until the next one may leave.
    #[must_use]
    pub fn wait_ns(&self, now_ns: u64) -> u64 {
        self.next_ns.saturating_sub(now_ns)
    }
}

/// Nanoseconds behind a full datagram: what the link wants, or less where something would wait for
/// too long. All of `trains` are `len` bytes.
fn gap_ns(trains: impl Iterator<Item = Train>, len: u64, now_ns: u64) -> u64 {
    let at_once = len.saturating_sub(WAITING_LEN);
    let mut gap_ns = None;
    let mut before = 0;
    for train in trains {
        before += train.len as u64;
        let left_ns = (train.added_ns + HELD_NS).saturating_sub(now_ns);
        let most_ns = left_ns * FULL_LEN / before.saturating_sub(at_once).max(1);
        gap_ns = Some(gap_ns.unwrap_or_else(|| u64::from(train.gap_ns)).min(most_ns));
    }
    gap_ns.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 1_500;

    /// Where all of it goes.
    const TO: u8 = 1;

    fn train(count: usize, segment: usize, gap_ns: u32, added_ns: u64) -> Train {
        Train { len: count * segment, segment, count, gap_ns, added_ns }
    }

    /// When each of `count` leaves that were added at `from_ns`, looked at every `every_ns`: after
    /// so many microseconds.
    fn leave(
        pacer: &mut Pacer<u8>,
        count: usize,
        gap_ns: u32,
        from_ns: u64,
        every_ns: u64,
    ) -> Vec<u64> {
        let mut left = Vec::new();
        pacer.begin(TO, from_ns);
        for turn in 0..1_000_000 {
            let now_ns = from_ns + turn * every_ns;
            let due =
                pacer.due([train(count - left.len(), LEN, gap_ns, from_ns)].into_iter(), now_ns);
            left.extend(std::iter::repeat_n((now_ns - from_ns) / 1_000, due));
            if left.len() == count {
                break;
            }
        }
        left
    }

    #[test]
    fn a_burst_leaves_at_the_pace_of_the_line() {
        let left = leave(&mut Pacer::default(), 5, 120_000, 7_000_000, 10_000);
        assert_eq!(left, [0, 0, 0, 360, 360]);
        let left = leave(&mut Pacer::default(), 4, 400_000, 7_000_000, 10_000);
        assert_eq!(left, [0, 400, 800, 1_200]);
    }

    #[test]
    fn a_short_datagram_has_a_short_gap_behind_it() {
        let mut pacer: Pacer<u8> = Pacer::default();
        let trains = [train(4, 150, 600_000, 1_000), train(2, 1_500, 600_000, 1_000)];
        pacer.begin(TO, 1_000);
        assert_eq!(pacer.due(trains.into_iter(), 1_000), 5, "a full one 240 us behind the first");
        assert_eq!(pacer.wait_ns(1_000), 840_000);
    }

    #[test]
    fn the_first_after_a_pause_never_waits_and_saves_nothing_up() {
        let mut pacer: Pacer<u8> = Pacer::default();
        assert_eq!(leave(&mut pacer, 1, 120_000, 5_000_000, 10_000), [0]);
        assert_eq!(leave(&mut pacer, 2, 400_000, 9_000_000, 10_000), [0, 400]);
        // But it keeps its distance from one that left just now.
        assert_eq!(leave(&mut pacer, 1, 400_000, 9_420_000, 10_000), [380]);
    }

    #[test]
    fn whoever_wakes_up_late_makes_up_for_it() {
        let left = leave(&mut Pacer::default(), 12, 100_000, 1_000, 700_000);
        assert_eq!(left, [0, 0, 0, 700, 700, 700, 700, 700, 700, 700, 1_400, 1_400]);
    }

    #[test]
    fn nothing_waits_for_longer_than_it_may_whatever_the_gap_and_the_number() {
        for (count, gap_ns) in [(2, u32::MAX), (24, 2_000_000), (24, 500_000), (500, 2_000_000)] {
            let left = leave(&mut Pacer::default(), count, gap_ns, 3_000, 10_000);
            assert!(*left.last().unwrap() <= 2_500, "{count}: {left:?}");
        }
        // Nor behind one that left just now.
        let mut pacer: Pacer<u8> = Pacer::default();
        leave(&mut pacer, 2, u32::MAX, 1_000_000, 10_000);
        assert!(leave(&mut pacer, 1, u32::MAX, 3_010_000, 10_000)[0] <= 2_500);
        let flood = leave(&mut Pacer::default(), 500, 120_000, 3_000, 10_000);
        let at_once = flood.iter().filter(|&&left_us| left_us == 0).count();
        assert_eq!(at_once, 479, "and three in their turn");
    }

    #[test]
    fn what_trickles_in_is_not_held_back_for_longer() {
        // One each 0.1 ms at a pace of 1 ms, behind a burst: each is out in time, or a turn later.
        let mut pacer: Pacer<u8> = Pacer::default();
        let mut trains = Vec::new();
        let mut most_ns = 0;
        trains.push(train(20, LEN, 1_000_000, 0));
        for turn in 0..10_000_u64 {
            let now_ns = turn * 20_000;
            if turn % 5 == 0 {
                trains.push(train(1, LEN, 1_000_000, now_ns));
            }
            for _ in 0..pacer.due(trains.iter().copied(), now_ns) {
                most_ns = most_ns.max(now_ns - trains[0].added_ns);
                let left = trains[0].count - 1;
                trains[0] = train(left, LEN, 1_000_000, trains[0].added_ns);
                if left == 0 {
                    trains.remove(0);
                }
            }
        }
        assert!((1_000_000..=2_520_000).contains(&most_ns), "{most_ns} ns");
    }
}
