//! The last lines of the log, kept in memory for `warren debug bundle`: of a daemon in a container
//! or a terminal nobody else may have them.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

/// Lines that are kept, and bytes of each.
const LINES_MAX: usize = 500;
const LINE_BYTES_MAX: usize = 1024;

static KEPT: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Where lines of the log go: to standard error, and into memory.
pub(crate) struct Both;

impl Write for Both {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        keep(&mut kept, bytes);
        drop(kept);
        io::stderr().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Keeps a line, and forgets the oldest where there are too many.
fn keep(kept: &mut VecDeque<String>, bytes: &[u8]) {
    let short = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let text = String::from_utf8_lossy(short);
    for line in text.lines().filter(|line| !line.is_empty()) {
        if kept.len() >= LINES_MAX {
            kept.pop_front();
        }
        kept.push_back(colourless(line));
    }
}

/// A line without what colours it on a terminal.
fn colourless(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut is_colour = false;
    for letter in line.chars() {
        match letter {
            '\u{1b}' => is_colour = true,
            'm' if is_colour => is_colour = false,
            letter if !is_colour => out.push(letter),
            _ => {}
        }
    }
    out
}

/// All that is kept, the oldest first.
pub(crate) fn text() -> String {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_without_colours_and_no_more_of_them() {
        let mut kept = VecDeque::new();
        for number in 0..LINES_MAX + 3 {
            keep(&mut kept, format!("\u{1b}[2m2026\u{1b}[0m INFO line {number}\n").as_bytes());
        }
        assert_eq!(kept.len(), LINES_MAX);
        assert_eq!(kept[0], "2026 INFO line 3");
        keep(&mut kept, &vec![b'x'; 1 << 20]);
        assert_eq!(kept.back().map(String::len), Some(LINE_BYTES_MAX));
        assert_eq!(kept.len(), LINES_MAX);
    }
}
