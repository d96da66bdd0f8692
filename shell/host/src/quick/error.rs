//! Why a plan could not be carried out.

use std::fmt;

use crate::linux::netlink;

/// Why a plan could not be carried out; what had been done was undone.
#[derive(Debug)]
pub enum ApplyError {
    /// There is no such interface.
    NoLink(String),
    /// The kernel refused.
    Netlink(netlink::Error),
    /// A setting or a program refused.
    Other(String),
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLink(name) => {
                write!(f, "there is no interface {name}; did the program that serves it end?")
            }
            Self::Netlink(e) => e.fmt(f),
            Self::Other(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ApplyError {}

impl From<netlink::Error> for ApplyError {
    fn from(e: netlink::Error) -> Self {
        Self::Netlink(e)
    }
}
