//! Why a file is no directory, or not one that is believed.

use core::fmt;

use crate::{Day, FILE_BYTES_MAX, HOPS_MAX};

/// What is wrong, where, and how to mend it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// So many bytes are too many.
    Size(usize),
    /// It is no TOML, or has other keys; with the place.
    Toml(String),
    /// `until` is no day.
    Day(String),
    /// So many hops are none, or too many.
    Hops(usize),
    /// A hop, and what about it.
    Hop(String, &'static str),
    /// A hop has the name or the key of one before.
    Twice(String, &'static str),
    /// There is no signature in the last line.
    Unsigned,
    /// It was signed by another key, or changed since.
    Forged,
    /// It is not good any more.
    Old(Day),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(len) => write!(f, "{len} bytes; a directory has at most {FILE_BYTES_MAX}"),
            Self::Toml(why) => f.write_str(why.trim_end()),
            Self::Day(text) => write!(f, "until = {text:?} is no day; write it as \"2027-01-31\""),
            Self::Hops(count) => write!(f, "{count} hops; a directory has 1 to {HOPS_MAX}"),
            Self::Hop(name, what) => write!(f, "hop {name:?}: {what}"),
            Self::Twice(name, what) => {
                write!(f, "hop {name:?} has the {what} of one before; each has its own")
            }
            Self::Unsigned => f.write_str(
                "it is not signed: its last line is no signature; `warren circuit directory sign`",
            ),
            Self::Forged => f.write_str(
                "it was signed by another key, or changed since; get it from who signed it",
            ),
            Self::Old(until) => {
                write!(f, "it was good until {until}; get a newer one from who signs it")
            }
        }
    }
}

impl core::error::Error for Problem {}
