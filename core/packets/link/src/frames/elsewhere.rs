//! What went another way than packets do: probes, answers and calls. They share a session's numbers
//! with packets, so the other end is told which they had, and judges the weather without them.

use noise::Index;
use wire::frame::{Elsewhere, Run};

/// Numbers of one session of which the peer was not told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Untold {
    session: Option<Index>,
    runs: [Run; Elsewhere::RUNS_MAX],
    count: usize,
}

impl Untold {
    /// A datagram of this session had this number. Those of a session before are forgotten: there
    /// nothing is judged any more.
    pub(crate) fn note(&mut self, session: Index, number: u64) {
        if self.session != Some(session) {
            *self = Self { session: Some(session), ..Self::default() };
        }
        if let Some(last) = self.count.checked_sub(1).map(|at| &mut self.runs[at])
            && last.first + u64::from(last.count) == number
            && last.count < Elsewhere::COUNT_MAX
        {
            last.count += 1;
        } else if let Some(run) = self.runs.get_mut(self.count) {
            *run = Run { first: number, count: 1 };
            self.count += 1;
        }
    }

    /// What this session sent before the number `end` went the way that was left: of that nobody
    /// can say whether it is late or lost.
    pub(crate) fn note_left(&mut self, session: Index, end: u64) {
        let first = end.saturating_sub(u64::from(Elsewhere::COUNT_MAX));
        let run = Run { first, count: (end - first) as u32 };
        // It covers what is not told yet.
        *self = Self { session: Some(session), count: 1, ..Self::default() };
        self.runs[0] = run;
    }

    /// Whether there is anything to be told on this session.
    pub(crate) fn is_due(&self, session: Index) -> bool {
        self.count > 0 && self.session == Some(session)
    }

    /// What is to be told, once.
    pub(crate) fn take(&mut self) -> ([Run; Elsewhere::RUNS_MAX], usize) {
        let told = (self.runs, self.count);
        self.count = 0;
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_once_as_runs_and_of_one_session() {
        let mut untold = Untold::default();
        assert!(!untold.is_due(Index(1)));
        [3, 4, 5, 8].into_iter().for_each(|number| untold.note(Index(1), number));
        assert!(untold.is_due(Index(1)) && !untold.is_due(Index(2)));
        let (runs, count) = untold.take();
        assert_eq!(runs[..count], [Run { first: 3, count: 3 }, Run { first: 8, count: 1 }]);
        assert!(!untold.is_due(Index(1)));
        (0..9).for_each(|number| untold.note(Index(1), 10 * number));
        assert_eq!(untold.take().1, Elsewhere::RUNS_MAX, "there is no room for more");
        untold.note(Index(1), 1);
        untold.note(Index(2), 0);
        untold.note_left(Index(2), 5_000);
        let (runs, count) = untold.take();
        assert_eq!(runs[..count], [Run { first: 4_488, count: 512 }], "of another session, all");
    }
}
