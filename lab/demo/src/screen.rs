//! The screen of the demo: headings, commands with their host, and what came of it, in columns.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use crate::Play;

/// Columns of a line up to its time.
const WHAT_COLUMNS: usize = 66;
/// Columns of a time.
const TIME_COLUMNS: usize = 9;

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const CYAN: &str = "36";

/// Where a demonstration is printed.
pub struct Screen {
    out: Box<dyn Write>,
    colour: bool,
    is_live: bool,
}

impl Screen {
    /// Standard output: coloured on a terminal unless `NO_COLOR` is set, with progress on a
    /// terminal.
    #[must_use]
    pub fn stdout() -> Self {
        let is_live = io::stdout().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { out: Box::new(io::stdout()), colour: is_live && !no_color, is_live }
    }

    /// A new part begins.
    pub(crate) fn heading(&mut self, text: &str) -> io::Result<()> {
        let text = self.paint(BOLD, text);
        self.line(&format!("\n{text}"))
    }

    /// This runs now in that host.
    pub(crate) fn command(&mut self, host: &str, command: &str) -> io::Result<()> {
        let prompt = self.paint(CYAN, &format!("{host}$"));
        self.line(&format!("  {prompt} {command}"))
    }

    /// What a command printed.
    pub(crate) fn said(&mut self, text: &str) -> io::Result<()> {
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let line = self.paint(DIM, line.trim_end());
            self.line(&format!("    {line}"))?;
        }
        Ok(())
    }

    /// Something was reached, perhaps after a time worth knowing.
    pub(crate) fn done(&mut self, what: &str, time: Option<Duration>) -> io::Result<()> {
        let mark = self.paint(GREEN, "✓");
        self.line(&format!("  {mark} {}", columns(what, time)))
    }

    /// Something was not reached.
    pub(crate) fn failed(&mut self, what: &str) -> io::Result<()> {
        let mark = self.paint(RED, "✗");
        self.line(&format!("  {mark} {what}"))
    }

    /// How far something is, on a terminal.
    pub(crate) fn progress(&mut self, what: &str, done: u64, total: u64) -> io::Result<()> {
        if !self.is_live {
            return Ok(());
        }
        write!(self.out, "\r\x1b[K  … {}", bar(what, done, total))?;
        self.out.flush()
    }

    /// Takes the progress away again.
    pub(crate) fn clear_progress(&mut self) -> io::Result<()> {
        if self.is_live {
            write!(self.out, "\r\x1b[K")?;
        }
        self.out.flush()
    }

    /// Everything that was shown, once more, and where to go from here.
    pub(crate) fn end(
        &mut self,
        play: Play,
        summary: &[(String, String)],
        time: Duration,
    ) -> io::Result<()> {
        self.heading(&format!("In short, after {}", time_text(time)))?;
        let width = summary.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, value) in summary {
            self.line(&format!("  {name:<width$}  {value}"))?;
        }
        self.heading("Next")?;
        for (command, why) in next(play) {
            let why = self.paint(DIM, why);
            self.line(&format!("  {command:<56}{why}"))?;
        }
        Ok(())
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")?;
        self.out.flush()
    }
}

/// Where to go from here.
const fn next(play: Play) -> &'static [(&'static str, &'static str)] {
    match play {
        Play::Network => &[
            ("sudo make install", "warren, its manual pages and its systemd units"),
            ("sudo warren serve --url https://HOST", "a server of your own: see README.md"),
            ("sudo warren-lab demo --link", "a link without a server, and who sees what of it"),
            ("sudo warren-lab demo --sites", "clouds that are played, and a gateway that dies"),
            ("sudo warren-lab up lab/lab/topologies/six-nodes.toml", "this network, to stay"),
            ("sudo warren-lab down", "and away with it"),
        ],
        Play::Sites => &[
            ("sudo make install", "warren, its manual pages and its systemd units"),
            ("warren sites check FILE", "sites of your own, with mistakes told: docs/sites.md"),
            ("warren sites plan FILE", "what would be done, and why; nothing is changed"),
            ("sudo warren-lab demo", "a network of single machines, in bad places"),
        ],
        Play::Link => &[
            ("sudo make install", "warren and warren-wg, for wg-quick: see README.md"),
            ("sudo warren link up FILE", "a wg-quick file of your own"),
            ("sudo warren-lab up lab/lab/topologies/two-hosts.toml", "this network, to stay"),
            ("sudo warren-lab exec alice ping -c 3 bob", "a command in one of its hosts"),
            ("sudo warren-lab down", "and away with it"),
        ],
    }
}

/// A text and a time at the end of the line.
fn columns(what: &str, time: Option<Duration>) -> String {
    match time {
        None => what.to_owned(),
        Some(time) => format!("{what:<WHAT_COLUMNS$} {:>TIME_COLUMNS$}", time_text(time)),
    }
}

/// Three digits and a unit.
pub(crate) fn time_text(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    match ms {
        ms if ms < 9.995 => format!("{ms:.2} ms"),
        ms if ms < 99.95 => format!("{ms:.1} ms"),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms if ms < 9995.0 => format!("{:.2} s", ms / 1000.0),
        ms => format!("{:.1} s", ms / 1000.0),
    }
}

fn bar(what: &str, done: u64, total: u64) -> String {
    let share = (done as f64 / total.max(1) as f64).clamp(0.0, 1.0);
    let full = (share * 30.0) as usize;
    let empty = "░".repeat(30 - full);
    let full = "█".repeat(full);
    format!("{what} {full}{empty} {:3.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let text = |us| time_text(Duration::from_micros(us));
        assert_eq!(text(1_234), "1.23 ms");
        assert_eq!(text(9_996), "10.0 ms");
        assert_eq!(text(99_960), "100 ms");
        assert_eq!(text(999_600), "1.00 s");
        assert_eq!(text(12_345_678), "12.3 s");
    }

    #[test]
    fn times_stand_below_each_other() {
        let short = columns("a", Some(Duration::from_millis(5)));
        let long = columns("✓ of another length", Some(Duration::from_secs(12)));
        assert_eq!(short.chars().count(), long.chars().count());
        assert_eq!(columns("a", None), "a");
    }

    #[test]
    fn a_bar_is_as_full_as_its_share() {
        assert_eq!(bar("x", 0, 0).matches('█').count(), 0);
        assert_eq!(bar("x", 1, 2).matches('█').count(), 15);
        let over = bar("x", 3, 2);
        assert_eq!((over.matches('█').count(), over.matches('░').count()), (30, 0));
        assert!(over.ends_with("100 %"));
    }

    #[test]
    fn only_a_terminal_gets_colours_and_progress() {
        use std::sync::{Arc, Mutex};
        #[derive(Clone, Default)]
        struct Paper(Arc<Mutex<Vec<u8>>>);
        impl Write for Paper {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let print = |colour, is_live| {
            let paper = Paper::default();
            let mut screen = Screen { out: Box::new(paper.clone()), colour, is_live };
            screen.command("alice", "true").unwrap();
            screen.progress("file", 1, 2).unwrap();
            screen.done("done", None).unwrap();
            String::from_utf8(paper.0.lock().unwrap().clone()).unwrap()
        };
        assert_eq!(print(false, false), "  alice$ true\n  ✓ done\n");
        assert!(!print(false, true).contains("\x1b[32m"), "NO_COLOR is no colour");
        assert!(print(true, true).contains("\x1b[32m✓\x1b[0m"));
    }
}
