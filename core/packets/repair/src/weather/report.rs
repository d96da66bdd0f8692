//! The report that a receiver makes of one path. Plain numbers; the layout on the wire is the
//! business of whoever sends it.

/// Chunks judged: whether each arrived or was lost is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Chunks judged.
    pub judged: u32,
    /// Of these, lost.
    pub lost: u32,
    /// Runs of losses.
    pub runs: u32,
    /// Windows of [`crate::weather::model::WINDOW_CHUNKS`] chunks judged whole.
    pub windows: u32,
    /// Losses in these windows.
    pub window_losses: u32,
    /// Sum of the squares of the losses of each.
    pub window_squares: u32,
}

/// What happened on one path since the report before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What was judged while the path's queue was short.
    pub clear: Losses,
    /// What was judged while its queue was long, and what was lost while nobody could tell: losses
    /// here may be congestion.
    pub queued: Losses,
    /// By how much chunks came late behind younger ones: the most in the last seconds.
    pub reorder_us: u32,
    /// Delay above the smallest of the last half minute that even the quickest chunks had.
    pub queue_us: u32,
    /// Data chunks that were missing when their block was complete, rebuilt or given up.
    pub missing: u32,
    /// Of these, rebuilt.
    pub rebuilt: u32,
}

impl Report {
    /// Chunks judged, whatever the queue was.
    #[must_use]
    pub fn judged(&self) -> u32 {
        self.clear.judged.saturating_add(self.queued.judged)
    }

    /// Of these, lost.
    #[must_use]
    pub fn lost(&self) -> u32 {
        self.clear.lost.saturating_add(self.queued.lost)
    }
}

impl Losses {
    /// Takes out up to `strays` losses of what was sent another way, and returns how many: runs and
    /// windows shrink in proportion.
    pub fn discount(&mut self, strays: u32) -> u32 {
        let taken = strays.min(self.lost);
        if taken > 0 {
            let kept = u64::from(self.lost - taken);
            let lost = u64::from(self.lost);
            let share = |count: u32| (u64::from(count) * kept / lost) as u32;
            self.runs = share(self.runs);
            self.window_losses = share(self.window_losses);
            self.window_squares = share(self.window_squares);
            self.lost -= taken;
            self.judged -= taken.min(self.judged);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Losses {
        /// Each lost chunk by itself.
        pub(crate) fn single(judged: u32, lost: u32) -> Self {
            Self { judged, lost, runs: lost, ..Self::default() }
        }
    }

    #[test]
    fn strays_are_taken_out_of_losses_and_never_more() {
        let all = Losses {
            judged: 100,
            lost: 10,
            runs: 5,
            windows: 3,
            window_losses: 8,
            window_squares: 20,
        };
        let mut some = all;
        assert_eq!(some.discount(5), 5);
        let half =
            Losses { judged: 95, lost: 5, runs: 2, window_losses: 4, window_squares: 10, ..all };
        assert_eq!(some, half);
        assert_eq!(some.discount(7), 5);
        let none = Losses { judged: 90, windows: 3, ..Losses::default() };
        assert_eq!(some, none);
        assert_eq!(some.discount(7), 0);
    }
}
