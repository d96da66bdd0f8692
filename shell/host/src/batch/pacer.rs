//! When the datagrams of a burst leave, where the link wants them paced.
//!
//! Time is an argument. All that waits is out [`HELD_NS`] after the last was added, however much
//! that is, since the gaps shrink: pacing bounds a burst, never a rate.

/// How long pacing may hold what was added last.
const HELD_NS: u64 = 2_000_000;
/// What is due within so long leaves together. A line has passed two or three full datagrams by then
/// where it takes 100 Mbit/s, and a loop that wakes up for each one costs twice as much processor.
const PIECE_NS: u64 = 300_000;
/// What stands in front of so many bytes leaves at once: more is a flood, no burst. Less than a turn
/// takes from the device, so that pacing never keeps the loop from reading.
const WAITING_LEN: usize = 36_000;

/// The clock of what waits.
#[derive(Debug, Default)]
pub(super) struct Pacer {
    /// When the next one may leave, and when the last is to be gone.
    next_ns: u64,
    until_ns: u64,
}

impl Pacer {
    /// Something was added at `now_ns`; `is_first` if nothing waited.
    pub(super) fn note_added(&mut self, is_first: bool, now_ns: u64) {
        self.until_ns = now_ns + HELD_NS;
        if is_first {
            // Nothing is saved up while there is nothing to send; while there is, a loop that woke
            // up late makes up for it.
            self.next_ns = self.next_ns.clamp(now_ns, self.until_ns);
        }
    }

    /// How many of `waiting` datagrams of `len` bytes may leave at `now_ns`, `gap_ns` apart.
    pub(super) fn due(
        &mut self,
        (waiting, len): (usize, usize),
        gap_ns: u32,
        now_ns: u64,
    ) -> usize {
        let mut due = waiting.saturating_sub(WAITING_LEN / len.max(1));
        let soon_ns = if self.next_ns <= now_ns { now_ns + PIECE_NS } else { 0 };
        while due < waiting && self.next_ns < soon_ns {
            let left_ns = self.until_ns.saturating_sub(now_ns) / (waiting - due) as u64;
            self.next_ns += u64::from(gap_ns).min(left_ns);
            due += 1;
        }
        due
    }

    /// How long until the next one may leave.
    pub(super) fn wait_ns(&self, now_ns: u64) -> u64 {
        self.next_ns.saturating_sub(now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 1_500;

    /// When each of `count` leaves that were added at `from_ns`, looked at every `every_ns`.
    fn leave(
        pacer: &mut Pacer,
        count: usize,
        gap_ns: u32,
        from_ns: u64,
        every_ns: u64,
    ) -> Vec<u64> {
        pacer.note_added(true, from_ns);
        let mut left = Vec::new();
        for turn in 0..1_000_000 {
            let now_ns = from_ns + turn * every_ns;
            let due = pacer.due((count - left.len(), LEN), gap_ns, now_ns);
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
        assert_eq!(left, [0, 0, 0, 360, 360], "microseconds");
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
    fn nothing_waits_for_longer_than_two_milliseconds_whatever_the_gap_and_the_number() {
        for (count, gap_ns) in [(2, u32::MAX), (24, 2_000_000), (24, 500_000), (500, 2_000_000)] {
            let left = leave(&mut Pacer::default(), count, gap_ns, 3_000, 10_000);
            assert!(*left.last().unwrap() <= 2_000, "{count}: {left:?}");
        }
        // Nor behind one that left just now.
        let mut pacer = Pacer::default();
        leave(&mut pacer, 2, u32::MAX, 1_000_000, 10_000);
        assert!(leave(&mut pacer, 1, u32::MAX, 3_010_000, 10_000)[0] <= 2_000);
        let flood = leave(&mut Pacer::default(), 500, 120_000, 3_000, 10_000);
        assert_eq!(flood.iter().filter(|&&left_us| left_us == 0).count(), 480, "and four in turn");
    }

    #[test]
    fn what_is_added_faster_than_the_pace_is_not_held_back_for_long() {
        // Ten a millisecond at a pace of one: after the first ones as many leave as come.
        let (mut pacer, mut waiting, mut gone, mut most) = (Pacer::default(), 0, 0, 0);
        for turn in 0..10_000_u64 {
            let now_ns = turn * 100_000;
            pacer.note_added(waiting == 0, now_ns);
            waiting += 1;
            let due = pacer.due((waiting, LEN), 1_000_000, now_ns);
            (waiting, gone, most) = (waiting - due, gone + due, most.max(waiting - due));
        }
        assert!(most <= 24 && gone >= 9_970, "{most} waited, {gone} left");
    }
}
