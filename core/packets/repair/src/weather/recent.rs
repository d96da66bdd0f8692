//! The largest or smallest value of the last seconds, in constant memory.

/// The largest value of the current and the previous window of time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recent {
    window_us: u64,
    since_us: u64,
    current: Option<i64>,
    before: Option<i64>,
}

impl Recent {
    /// Remembers for one to two times `window_us`.
    pub(crate) fn new(window_us: u64) -> Self {
        Self { window_us, since_us: 0, current: None, before: None }
    }

    pub(crate) fn handle_value(&mut self, value: i64, now_us: u64) {
        self.handle_time(now_us);
        self.current = self.current.max(Some(value));
    }

    /// Time passes, without a value.
    pub(crate) fn handle_time(&mut self, now_us: u64) {
        let age_us = now_us.saturating_sub(self.since_us);
        if age_us >= self.window_us {
            self.before = self.current.filter(|_| age_us < 2 * self.window_us);
            self.current = None;
            self.since_us = now_us;
        }
    }

    /// The largest of them.
    pub(crate) fn max(&self) -> Option<i64> {
        self.current.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_value_is_remembered_for_one_to_two_windows() {
        let mut recent = Recent::new(10);
        assert_eq!(recent.max(), None);
        for (now_us, value, expected) in
            [(100, 3, 3), (104, 9, 9), (111, 2, 9), (119, 1, 9), (122, 4, 4), (200, -5, -5)]
        {
            recent.handle_value(value, now_us);
            assert_eq!(recent.max(), Some(expected), "at {now_us}");
        }
        recent.handle_time(209);
        assert_eq!(recent.max(), Some(-5));
        recent.handle_time(220);
        assert_eq!(recent.max(), None, "long ago");
    }
}
