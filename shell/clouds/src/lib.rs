//! Sites made real: what providers are asked and told so that they become what a file says.
//!
//! The crate [`sites`] decides: it numbers, compares and orders. This crate looks and acts.
//!
//! The life of one `warren sites apply`:
//!
//! 1. [`Survey::take`] asks every machine of `ssh` sites and every cloud, all sites at once, and
//!    the coordination server for its nodes. What it brings are facts: tags, addresses, routes
//!    as they are now. Nothing is kept between two calls; the tags on the machines are the memory.
//! 2. [`Survey::taken`] says which numbers of the plan are in use, so that [`sites::Numbering`]
//!    gives them to nobody else. [`Survey::report`] says what is there in the words of the plan.
//! 3. [`sites::steps`] makes steps of the difference, and [`Work::steps`] does some of them. Each
//!    is safe to repeat: who is interrupted calls again, and goes on where it stopped.
//!
//! A machine of an `ssh` site is asked by one script of `sh` at a time, many machines at once. Its
//! words come from a file that was checked letter by letter, so nothing in it ends a word or a line
//! (threat SI-03). A host's key has to be known already; the first one is never taken on trust. A
//! join key is made when it is needed, works once and for a quarter of an hour, and travels on
//! standard input, so that no list of processes shows it (threat SI-04). Scripts that change
//! something hold a lock on the machine, so that two operators do not meet in the middle of a step.
//!
//! Sites at AWS, Azure and OpenStack are made by calls of their own APIs, over the HTTPS that is
//! there anyway: `make` has the order, `made` of each provider's folder the calls. A gateway
//! begins with `user_data`, which has its join key; the step that approves its routes waits until
//! it has joined.
//!
//! A gateway of a pair at a cloud asks and tells the provider itself: [`Leader`] sets the pair's
//! routes to it, with the role that its machine was given, and nothing else.
//!
//! A gateway of another backend gets strongSwan's or OpenVPN's files, a certificate of an authority
//! that lies beside the site file, and a script that starts the program whenever it has ended.
//!
//! Machines of the site itself need nothing of ours. They get one route to the gateway, which
//! bears our number as its origin; a route without it is somebody else's and is left alone.

mod accounts;
mod authority;
mod aws;
mod azure;
mod foreign;
mod lead;
mod leader;
mod lock;
mod machine;
mod machines;
mod make;
mod measure;
mod openstack;
mod place;
mod program;
mod rest;
mod retry;
mod rights;
mod server;
mod ssh;
mod survey;
mod terraform;
#[cfg(test)]
mod tests;
mod time;
mod user_data;
mod work;

pub use accounts::Clouds;
pub use authority::{Authority, Identity};
pub use lead::Lead;
pub use leader::Leader;
pub use measure::measure;
pub use program::Program;
pub use rights::rights;
pub use server::Server;
pub use ssh::Ssh;
pub use survey::{Gateway, Survey};
pub use terraform::terraform;
pub use user_data::{Start, USER_DATA_BYTES_MAX, user_data};
pub use work::{Locks, Work};

use std::fmt;

/// What could not be done, where, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// The machine, the server or a file.
    pub place: String,
    /// What went wrong and how to mend it.
    pub what: String,
}

impl Error {
    pub(crate) fn new(place: impl fmt::Display, what: impl Into<String>) -> Self {
        Self { place: place.to_string(), what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl std::error::Error for Error {}
