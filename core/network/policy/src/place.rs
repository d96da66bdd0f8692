//! Places in a policy file, and what is found there.

use core::fmt;

/// A place in a policy file: line and column from 1, columns in characters. Zero for what no file
/// says, such as the rule that stands in for no policy at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The line, from 1.
    pub line: u32,
    /// The character in that line, from 1.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Something in a policy file that is wrong, or that is not what it seems: as an error or as a
/// warning, by the list in which it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub place: Place,
    /// What is found there, on one line and without control characters.
    pub what: String,
    /// How to mend it.
    pub mend: String,
}

impl Finding {
    pub(crate) fn new(place: Place, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { place, what: what.into(), mend: mend.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.what, self.mend)
    }
}

impl core::error::Error for Finding {}

/// Text of the file as a message shows it: in quotes, short, without control characters.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    let mut shown: String = text.chars().take(SHOWN_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    format!("\"{shown}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_is_short_and_plain() {
        assert_eq!(quoted("tag:web"), "\"tag:web\"");
        assert_eq!(quoted("a\n\u{1b}[1m\""), "\"a\\n\\u{1b}[1m\\\"\"");
        assert_eq!(quoted(&"ä".repeat(61)).chars().count(), 63);
        let finding = Finding::new(Place { line: 3, column: 9 }, "no host", "write one");
        assert_eq!(finding.to_string(), "3:9: no host: write one");
    }
}
