//! Whether a server is asked by ping, where neither UDP nor TCP reaches it, and how soon: late as
//! long as that was never of use, soon after it was the last way that worked.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ping::Asker;

use crate::families::{self, one_of_each};
use crate::random::SystemRandom;

/// How long other ways are tried first.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same where ping was the last that worked.
const PATIENCE_AGAIN: Duration = Duration::from_millis(600);
/// An address has so long to answer, if there is another.
const KNOCK_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct State {
    worked: AtomicBool,
    is_off: AtomicBool,
}

/// What all who dial know of it.
#[derive(Clone, Debug, Default)]
pub struct Pings(Arc<State>);

impl Pings {
    /// How long other ways are tried first.
    pub(crate) fn head_start(&self) -> Duration {
        if self.worked() { PATIENCE_AGAIN } else { PATIENCE }
    }

    /// Whether ping was the last way that worked.
    #[must_use]
    pub fn worked(&self) -> bool {
        self.0.worked.load(Ordering::Acquire)
    }

    pub(crate) fn note(&self, by_ping: bool) {
        self.0.worked.store(by_ping, Ordering::Release);
    }

    /// Has nobody asked by ping from now on, or again; whether that is new.
    pub fn set_off(&self, is_off: bool) -> bool {
        self.0.is_off.swap(is_off, Ordering::AcqRel) != is_off
    }

    pub(crate) fn is_off(&self) -> bool {
        self.0.is_off.load(Ordering::Acquire)
    }
}

impl PartialEq for Pings {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Pings {}

/// A socket by which the responder at `host` is asked, once it has answered; the families by turns.
///
/// # Errors
/// There is none, or none that answers.
pub(crate) fn ask(
    host: &str,
    mark: Option<u32>,
    deadline: Instant,
    is_over: &dyn Fn() -> bool,
) -> io::Result<Asker> {
    let named = |at: &dyn std::fmt::Display, error: io::Error| {
        io::Error::new(error.kind(), format!("{at} by ping: {error}"))
    };
    let host = host.trim_matches(['[', ']']);
    let found = families::resolve(host, 0).map_err(|error| named(&host, error))?;
    let found: Vec<IpAddr> = one_of_each(found).iter().map(|at| at.ip().to_canonical()).collect();
    let mut last = io::Error::from(io::ErrorKind::TimedOut);
    for (number, at) in found.iter().enumerate() {
        let is_last = number + 1 == found.len();
        let until = if is_last { deadline } else { deadline.min(Instant::now() + KNOCK_WITHIN) };
        let asker = Asker::open(*at, mark, &mut SystemRandom);
        let knocked = asker.and_then(|mut asker| asker.knock(until, is_over).map(|()| asker));
        match knocked {
            Ok(asker) => return Ok(asker),
            Err(error) => last = named(at, error),
        }
    }
    Err(last)
}
