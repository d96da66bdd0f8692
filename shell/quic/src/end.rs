//! How a connection ends.

use std::fmt;

use wire::relay::Notice;

/// Why a line is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineEnd {
    /// The relay ended it, and said why if there was a reason.
    Closed(Option<Notice>),
    /// It broke, or what came is none of frames.
    Lost(String),
}

impl fmt::Display for LineEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(Some(notice)) => write!(f, "the relay ended it: {notice:?}"),
            Self::Closed(None) => f.write_str("the relay ended it"),
            Self::Lost(why) => f.write_str(why),
        }
    }
}
