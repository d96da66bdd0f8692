//! What is wrong with a site file.

use core::fmt;

/// Mistakes that are told at once.
pub const MISTAKES_MAX: usize = 100;

/// What is wrong with a site file, where, and how to mend it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
    /// The line, from 1.
    pub line: usize,
    /// The column in it, from 1, in characters.
    pub column: usize,
    /// What is wrong and how to mend it.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.what)
    }
}

impl core::error::Error for Mistake {}
