//! The frame in which a receiver reports of a path. It is also what `repair` makes of what came,
//! and reads of what went: plain numbers, of which there is one type.

use super::{KIND_REPORT, u16_at, u32_at};
use crate::Malformed;

/// Datagrams judged: whether each arrived or was lost is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Datagrams judged.
    pub judged: u32,
    /// Of these, lost.
    pub lost: u32,
    /// Runs of losses.
    pub runs: u32,
    /// Windows of 64 datagrams judged whole.
    pub windows: u32,
    /// Losses in these windows.
    pub window_losses: u32,
    /// Sum of the squares of the losses of each.
    pub window_squares: u32,
}

/// What happened on one path since the report before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Counts up with each report of the session, so that a late one is told from the newest.
    pub number: u16,
    /// What was judged while the path's queue was short.
    pub clear: Losses,
    /// What was judged while its queue was long, and what was lost while nobody could tell: losses
    /// here may be congestion.
    pub queued: Losses,
    /// By how much datagrams came late behind younger ones: the most in the last seconds.
    pub reorder_us: u32,
    /// Delay above the smallest of the last half minute that even the quickest datagrams had.
    pub queue_us: u32,
    /// Data chunks that were missing when their block was complete, rebuilt or given up.
    pub missing: u32,
    /// Of these, rebuilt.
    pub rebuilt: u32,
    /// The newest clock of the sender that came, and for how long it lay here, microseconds.
    pub echo_us: u32,
    /// See `echo_us`.
    pub held_us: u32,
    /// Whether what came took a stream on its last part of the way; nothing is lost there.
    pub by_stream: bool,
    /// For how long flows wait for their order at most, milliseconds; nothing where it is not said.
    pub order_ms: Option<u8>,
}

impl Report {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 76;
    /// The longest time that `order_ms` can say.
    pub const ORDER_MS_MAX: u8 = 126;

    pub(super) fn parse(plain: &[u8]) -> Result<Self, Malformed> {
        let fixed: &[u8; Self::LEN] = plain.first_chunk().ok_or(Malformed::Truncated)?;
        let losses = |at: usize| Losses {
            judged: u32_at(fixed, at),
            lost: u32_at(fixed, at + 4),
            runs: u32_at(fixed, at + 8),
            windows: u32_at(fixed, at + 12),
            window_losses: u32_at(fixed, at + 16),
            window_squares: u32_at(fixed, at + 20),
        };
        Ok(Self {
            number: u16_at(fixed, 2),
            clear: losses(4),
            queued: losses(28),
            reorder_us: u32_at(fixed, 52),
            queue_us: u32_at(fixed, 56),
            missing: u32_at(fixed, 60),
            rebuilt: u32_at(fixed, 64),
            echo_us: u32_at(fixed, 68),
            held_us: u32_at(fixed, 72),
            by_stream: fixed[1] & 0x80 != 0,
            order_ms: (fixed[1] & 0x7f).checked_sub(1),
        })
    }

    /// The frame's bytes.
    #[must_use]
    pub fn build(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = KIND_REPORT;
        let order = self.order_ms.map_or(0, |ms| ms.min(Self::ORDER_MS_MAX) + 1);
        bytes[1] = order | if self.by_stream { 0x80 } else { 0 };
        bytes[2..4].copy_from_slice(&self.number.to_le_bytes());
        let of =
            |l: &Losses| [l.judged, l.lost, l.runs, l.windows, l.window_losses, l.window_squares];
        let tail = [
            self.reorder_us,
            self.queue_us,
            self.missing,
            self.rebuilt,
            self.echo_us,
            self.held_us,
        ];
        let words = of(&self.clear).into_iter().chain(of(&self.queued)).chain(tail);
        for (place, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Datagrams judged, whatever the queue was.
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
    use super::super::{Frame, parse};
    use super::*;

    #[test]
    fn a_report_comes_back_as_it_was_and_a_short_one_not_at_all() {
        let report = Report {
            number: 0x0102,
            clear: Losses { judged: 1, lost: 2, runs: 3, windows: 4, ..Losses::default() },
            queued: Losses { window_losses: 5, window_squares: 6, ..Losses::default() },
            reorder_us: 7,
            queue_us: 8,
            missing: 9,
            rebuilt: 10,
            echo_us: 11,
            held_us: 12,
            by_stream: true,
            order_ms: Some(30),
        };
        let bytes = report.build();
        assert_eq!(bytes[..8], [0x86, 0x80 | 31, 2, 1, 1, 0, 0, 0]);
        let unsaid = Report { by_stream: false, order_ms: None, ..report };
        assert_eq!((unsaid.build()[1], parse(&unsaid.build())), (0, Ok(Frame::Report(unsaid))));
        let most = Report { order_ms: Some(200), ..report };
        assert_eq!(most.build()[1], 0xff);
        assert_eq!((bytes[44], bytes[48], bytes[72]), (5, 6, 12));
        assert_eq!(parse(&bytes), Ok(Frame::Report(report)));
        assert!((1..Report::LEN).all(|len| parse(&bytes[..len]).is_err()));
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
