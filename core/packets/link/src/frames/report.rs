//! Reports as they stand in frames, and as `repair` makes and reads them.

use repair::report;
use wire::frame;

/// A report to be sent. `echo` is the peer's newest clock, and for how long it lay here.
pub(crate) fn told(seen: &report::Report, number: u16, echo: (u32, u32)) -> frame::Report {
    let losses = |of: &report::Losses| frame::Losses {
        judged: of.judged,
        lost: of.lost,
        runs: of.runs,
        windows: of.windows,
        window_losses: of.window_losses,
        window_squares: of.window_squares,
    };
    frame::Report {
        number,
        clear: losses(&seen.clear),
        queued: losses(&seen.queued),
        reorder_us: seen.reorder_us,
        queue_us: seen.queue_us,
        missing: seen.missing,
        rebuilt: seen.rebuilt,
        echo_us: echo.0,
        held_us: echo.1,
        by_stream: false,
        order_ms: None,
    }
}

/// What a report that came says.
pub(crate) fn seen(told: &frame::Report) -> report::Report {
    let losses = |of: &frame::Losses| report::Losses {
        judged: of.judged,
        lost: of.lost,
        runs: of.runs,
        windows: of.windows,
        window_losses: of.window_losses,
        window_squares: of.window_squares,
    };
    report::Report {
        clear: losses(&told.clear),
        queued: losses(&told.queued),
        reorder_us: told.reorder_us,
        queue_us: told.queue_us,
        missing: told.missing,
        rebuilt: told.rebuilt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_what_was_seen() {
        let losses = |n| report::Losses {
            judged: n,
            lost: n + 1,
            runs: n + 2,
            windows: n + 3,
            window_losses: n + 4,
            window_squares: n + 5,
        };
        let report = report::Report {
            clear: losses(1),
            queued: losses(10),
            reorder_us: 20,
            queue_us: 21,
            missing: 22,
            rebuilt: 23,
        };
        let frame = told(&report, 7, (8, 9));
        assert_eq!((frame.number, frame.echo_us, frame.held_us), (7, 8, 9));
        assert_eq!(seen(&frame), report);
    }
}
