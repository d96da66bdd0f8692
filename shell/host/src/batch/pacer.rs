//! The pacer: when the datagrams of a burst leave, where the link wants them apart.
//!
//! Time is an argument. Whatever waits is out [`HELD_NS`] after the turn in which it was added,
//! since the gaps shrink: pacing bounds a burst, never a rate.

use link::Endpoint;

use super::Run;

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

/// The clock of what waits.
#[derive(Debug, Default)]
pub(super) struct Pacer {
    /// When the next one may leave.
    next_ns: u64,
    /// Where the last one went.
    to: Option<Endpoint>,
}

impl Pacer {
    /// Something for `to` is added at `now_ns`, and nothing waits. Nothing was saved up meanwhile;
    /// while something waits, a loop that woke up late makes up for it.
    pub(super) fn begin(&mut self, to: Endpoint, now_ns: u64) {
        let is_elsewhere = self.to.replace(to) != Some(to);
        let latest_ns = if is_elsewhere { now_ns } else { now_ns + HELD_NS };
        self.next_ns = self.next_ns.clamp(now_ns, latest_ns);
    }

    /// How many datagrams of `runs`, which have one destination, may leave at `now_ns`.
    pub(super) fn due(&mut self, runs: &[Run], now_ns: u64) -> usize {
        let mut left: u64 = runs.iter().map(|run| run.len as u64).sum();
        let gap_ns = gap_ns(runs, left, now_ns);
        let soon_ns = if self.next_ns <= now_ns { now_ns + PIECE_NS } else { 0 };
        let mut due = 0;
        for run in runs {
            let len = run.segment as u64;
            for _ in 0..run.count {
                if left <= WAITING_LEN {
                    if self.next_ns >= soon_ns {
                        return due;
                    }
                    self.next_ns += gap_ns * len / FULL_LEN;
                }
                (left, due) = (left.saturating_sub(len), due + 1);
            }
        }
        due
    }

    /// How long until the next one may leave.
    pub(super) fn wait_ns(&self, now_ns: u64) -> u64 {
        self.next_ns.saturating_sub(now_ns)
    }
}

/// Nanoseconds behind a full datagram: what the link wants, or less where something would wait for
/// too long. All of `runs` are `len` bytes.
fn gap_ns(runs: &[Run], len: u64, now_ns: u64) -> u64 {
    let at_once = len.saturating_sub(WAITING_LEN);
    let mut gap_ns = runs.first().map_or(0, |run| u64::from(run.gap_ns));
    let mut before = 0;
    for run in runs {
        before += run.len as u64;
        let left_ns = (run.added_ns + HELD_NS).saturating_sub(now_ns);
        gap_ns = gap_ns.min(left_ns * FULL_LEN / before.saturating_sub(at_once).max(1));
    }
    gap_ns
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    const LEN: usize = 1_500;

    fn run(count: usize, segment: usize, gap_ns: u32, added_ns: u64) -> Run {
        let to = Endpoint::new(SocketAddr::from(([192, 0, 2, 1], 1)));
        let (start, closed, len) = (0, false, count * segment);
        Run { to, start, len, segment, count, closed, gap_ns, added_ns }
    }

    /// When each of `count` leaves that were added at `from_ns`, looked at every `every_ns`: after
    /// so many microseconds.
    fn leave(
        pacer: &mut Pacer,
        count: usize,
        gap_ns: u32,
        from_ns: u64,
        every_ns: u64,
    ) -> Vec<u64> {
        let mut left = Vec::new();
        pacer.begin(run(1, LEN, gap_ns, 0).to, from_ns);
        for turn in 0..1_000_000 {
            let now_ns = from_ns + turn * every_ns;
            let due = pacer.due(&[run(count - left.len(), LEN, gap_ns, from_ns)], now_ns);
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
        let mut pacer = Pacer::default();
        let runs = [run(4, 150, 600_000, 1_000), run(2, 1_500, 600_000, 1_000)];
        pacer.begin(runs[0].to, 1_000);
        assert_eq!(pacer.due(&runs, 1_000), 5, "a full one 240 us behind the first");
        assert_eq!(pacer.wait_ns(1_000), 840_000);
    }

    #[test]
    fn the_first_after_a_pause_never_waits_and_saves_nothing_up() {
        let mut pacer = Pacer::default();
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
        let mut pacer = Pacer::default();
        leave(&mut pacer, 2, u32::MAX, 1_000_000, 10_000);
        assert!(leave(&mut pacer, 1, u32::MAX, 3_010_000, 10_000)[0] <= 2_500);
        let flood = leave(&mut Pacer::default(), 500, 120_000, 3_000, 10_000);
        let at_once = flood.iter().filter(|&&left_us| left_us == 0).count();
        assert_eq!(at_once, 479, "and three in their turn");
    }

    #[test]
    fn what_trickles_in_is_not_held_back_for_longer() {
        // One each 0.1 ms at a pace of 1 ms, behind a burst: each is out in time, or a turn later.
        let (mut pacer, mut runs, mut most_ns) = (Pacer::default(), Vec::new(), 0);
        runs.push(run(20, LEN, 1_000_000, 0));
        for turn in 0..10_000_u64 {
            let now_ns = turn * 20_000;
            if turn % 5 == 0 {
                runs.push(run(1, LEN, 1_000_000, now_ns));
            }
            for _ in 0..pacer.due(&runs, now_ns) {
                most_ns = most_ns.max(now_ns - runs[0].added_ns);
                let left = runs[0].count - 1;
                runs[0] = run(left, LEN, 1_000_000, runs[0].added_ns);
                if left == 0 {
                    runs.remove(0);
                }
            }
        }
        assert!((1_000_000..=2_520_000).contains(&most_ns), "{most_ns} ns");
    }
}
