//! The ceiling: what the peer has room for, as its reports tell.
//!
//! A machine that is busy with other work reads nothing for a tenth of a second, and what comes
//! in that time overruns its socket; just after it reads as much as before. So what it could take
//! is tried a little below, and soon again what it took before: at a fifth more a second one such
//! moment would cost a flow half of its rate for seconds.

use super::scale;

/// The part of what found room that is tried.
const SHARE: f64 = 0.95;
/// No report lowers it by more than this share.
const LOST_MAX: f64 = 0.5;
/// Reports that come so soon after one that was heeded, in nanoseconds, tell of what was sent
/// before, too: a round trip, what waits in the peer's socket, and the time between two reports.
pub(super) const SAME_NS: u64 = 300_000_000;
/// What is missing to what was carried before is tried again within about so long.
const BACK_NS: u64 = 500_000_000;
/// And more than that in this time: as much again takes five seconds.
const DOUBLE_NS: u64 = 5_000_000_000;

/// A rate that a peer has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ceiling {
    /// Bytes a second.
    pub(super) rate: u64,
    /// What was carried when it was too much.
    before: u64,
    /// When that was.
    since_ns: u64,
}

impl Ceiling {
    /// The peer says that it had no room for `share` of `carried` bytes a second, where `last` was
    /// what it was believed to have room for.
    pub(super) fn told(last: Option<Self>, now_ns: u64, carried: u64, share: f64) -> Self {
        let lowered = |rate| (rate as f64 * (1.0 - share.min(LOST_MAX)) * SHARE) as u64;
        match last.filter(|last| now_ns < last.since_ns.saturating_add(SAME_NS)) {
            Some(same) => Self { rate: same.rate.min(lowered(same.before)), ..same },
            None => Self { rate: lowered(carried), before: carried, since_ns: now_ns },
        }
    }

    /// For `for_ns` it had room for everything.
    pub(super) fn grown(self, for_ns: u64) -> Self {
        let back = scale(self.before.saturating_sub(self.rate), for_ns, BACK_NS);
        let beyond = scale(self.rate, for_ns, DOUBLE_NS);
        Self { rate: self.rate.saturating_add(back.max(beyond)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn two_reports_of_one_moment_lower_it_once_and_the_worse_one_counts() {
        let first = Ceiling::told(None, 1_000 * MS, 1_000_000, 0.2);
        assert_eq!(first.rate, 760_000);
        let second = Ceiling::told(Some(first), 1_100 * MS, 700_000, 0.4);
        assert_eq!(second.rate, 570_000, "of what was carried before");
        let third = Ceiling::told(Some(second), 1_200 * MS, 500_000, 0.1);
        assert_eq!(third.rate, 570_000);
        let later = Ceiling::told(Some(third), 1_300 * MS, 600_000, 0.1);
        assert_eq!(later.rate, 513_000, "another moment");
        assert_eq!(Ceiling::told(None, 0, 1_000_000, 1.0).rate, 475_000);
    }

    #[test]
    fn a_moment_costs_half_a_second_and_more_than_before_is_tried_slowly() {
        let mut ceiling = Ceiling::told(None, 0, 1_000_000, 0.5);
        let mut after = |ms: u64| {
            (0..ms / 100).for_each(|_| ceiling = ceiling.grown(100 * MS));
            ceiling.rate
        };
        let (half, whole) = (after(500), after(500));
        assert!((800_000..850_000).contains(&half), "{half}");
        assert!((930_000..1_000_000).contains(&whole), "{whole}");
        let later = after(5_000);
        assert!((2_000_000..2_700_000).contains(&later), "{later}");
    }
}
