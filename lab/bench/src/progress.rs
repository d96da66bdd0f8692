//! What is measured at this moment, and how long the rest will take, on standard error.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Characters of the bar.
const BAR_WIDTH: usize = 20;

/// Tells of progress: one line that is rewritten on a terminal, plain lines elsewhere.
#[derive(Debug)]
pub struct Progress {
    begin: Instant,
    total_s: f64,
    done_s: f64,
    in_place: bool,
}

impl Progress {
    /// For work that should take `total_s` seconds.
    #[must_use]
    pub fn new(total_s: f64) -> Self {
        Self { begin: Instant::now(), total_s, done_s: 0.0, in_place: io::stderr().is_terminal() }
    }

    /// A step begins.
    pub fn begin_step(&self, what: &str) {
        let left = left(self.begin.elapsed(), self.done_s, self.total_s);
        let left = minutes(left);
        let line = match self.in_place {
            true => format!("{} {left} left: {what}", bar(self.done_s, self.total_s)),
            false => format!("{what} ({left} left)"),
        };
        // A progress line that cannot be written is no reason to stop.
        let _ = match self.in_place {
            true => write!(io::stderr(), "\r\x1b[K{line}"),
            false => writeln!(io::stderr(), "{line}"),
        };
        let _ = io::stderr().flush();
    }

    /// The step that should have taken `expected_s` is done.
    pub fn end_step(&mut self, expected_s: f64) {
        self.done_s += expected_s;
    }

    /// Something worth a line of its own.
    pub fn note(&self, text: &str) {
        let clear = if self.in_place { "\r\x1b[K" } else { "" };
        let _ = writeln!(io::stderr(), "{clear}{text}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.in_place {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// How much is done, as a bar of fixed width.
fn bar(done_s: f64, total_s: f64) -> String {
    let share = if total_s > 0.0 { (done_s / total_s).clamp(0.0, 1.0) } else { 1.0 };
    let full = (share * BAR_WIDTH as f64) as usize;
    let empty = "-".repeat(BAR_WIDTH - full);
    let full = "#".repeat(full);
    format!("[{full}{empty}] {:3.0} %", share * 100.0)
}

/// The time left, from the pace so far.
fn left(elapsed: Duration, done_s: f64, total_s: f64) -> Duration {
    let pace = if done_s > 0.0 { elapsed.as_secs_f64() / done_s } else { 1.0 };
    let left_s = (total_s - done_s).max(0.0) * pace;
    Duration::try_from_secs_f64(left_s).unwrap_or(Duration::MAX)
}

/// A time as people say it.
fn minutes(time: Duration) -> String {
    let s = time.as_secs();
    if s < 60 { format!("{s} s") } else { format!("{} min {} s", s / 60, s % 60) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_the_pace_so_far() {
        assert_eq!(left(Duration::ZERO, 0.0, 90.0), Duration::from_secs(90));
        assert_eq!(left(Duration::from_secs(20), 10.0, 90.0), Duration::from_secs(160));
        assert_eq!(left(Duration::from_secs(20), 90.0, 90.0), Duration::ZERO);
        assert_eq!(left(Duration::from_secs(20), 100.0, 90.0), Duration::ZERO);
        assert_eq!(left(Duration::from_secs(1), 1e-300, f64::MAX), Duration::MAX);
    }

    #[test]
    fn the_bar_is_always_as_wide() {
        assert_eq!(bar(0.0, 10.0), "[--------------------]   0 %");
        assert_eq!(bar(5.0, 10.0), "[##########----------]  50 %");
        assert_eq!(bar(11.0, 10.0), "[####################] 100 %");
        assert_eq!(bar(0.0, 0.0), "[####################] 100 %");
    }

    #[test]
    fn times_are_said_in_minutes_from_one_on() {
        assert_eq!(minutes(Duration::from_secs(59)), "59 s");
        assert_eq!(minutes(Duration::from_secs(125)), "2 min 5 s");
    }
}
