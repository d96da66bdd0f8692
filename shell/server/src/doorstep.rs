//! Connections that have asked for nothing yet: those in a TLS handshake, and those after it that
//! have not sent the head of a request (threats CO-11, RL-05).
//!
//! There is a bound for all of them together. Where it is reached the newest comes in, and the one
//! that has waited longest of the source that has most of them is cut: whoever opens thousands
//! displaces their own, and a node that connects and speaks at once does not notice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::app::lock;
use crate::limits::Source;

/// Connections that have asked for nothing yet, all together.
const WAITING_MAX: usize = 4096;

/// Who waits, by source and in the order of their arrival.
#[derive(Debug)]
struct Waiting {
    next: u64,
    count: usize,
    sources: BTreeMap<Source, BTreeMap<u64, oneshot::Sender<()>>>,
    cut: u64,
}

/// All connections that have asked for nothing yet.
#[derive(Debug)]
pub(crate) struct Doorstep {
    waiting: Mutex<Waiting>,
    max: usize,
}

/// A place there; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    doorstep: Arc<Doorstep>,
    source: Source,
    number: u64,
}

impl Doorstep {
    pub(crate) fn new() -> Arc<Self> {
        Self::with(WAITING_MAX)
    }

    fn with(max: usize) -> Arc<Self> {
        let waiting = Waiting { next: 0, count: 0, sources: BTreeMap::new(), cut: 0 };
        Arc::new(Self { waiting: Mutex::new(waiting), max })
    }

    /// A place for a connection that is new, and what tells it that it is to be cut.
    pub(crate) fn enter(self: &Arc<Self>, source: Source) -> (Place, oneshot::Receiver<()>) {
        let (tell, told) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        if waiting.count >= self.max {
            waiting.cut_one();
        }
        let number = waiting.next;
        waiting.next += 1;
        waiting.count += 1;
        waiting.sources.entry(source).or_default().insert(number, tell);
        drop(waiting);
        (Place { doorstep: Arc::clone(self), source, number }, told)
    }

    /// How many are there, and how many were cut since the start.
    pub(crate) fn counts(&self) -> (usize, u64) {
        let waiting = lock(&self.waiting);
        (waiting.count, waiting.cut)
    }
}

impl Waiting {
    fn take(&mut self, source: Source, number: u64) -> Option<oneshot::Sender<()>> {
        let of_source = self.sources.get_mut(&source)?;
        let taken = of_source.remove(&number)?;
        if of_source.is_empty() {
            self.sources.remove(&source);
        }
        self.count -= 1;
        Some(taken)
    }

    /// Cuts the oldest of the source that has most; of several with as many, the oldest of all.
    fn cut_one(&mut self) {
        let oldest = |(source, own): (&Source, &BTreeMap<u64, _>)| {
            own.keys().next().map(|first| (own.len(), std::cmp::Reverse(*first), *source))
        };
        let most =
            self.sources.iter().filter_map(oldest).max_by_key(|(len, first, _)| (*len, *first));
        if let Some((_, std::cmp::Reverse(number), source)) = most
            && let Some(tell) = self.take(source, number)
        {
            self.cut += 1;
            let _ = tell.send(());
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.doorstep.waiting).take(self.source, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn source(number: u32) -> Source {
        Source::from(IpAddr::from(Ipv4Addr::from(number)))
    }

    #[test]
    fn rl_05_who_opens_most_displaces_their_own_oldest() {
        let doorstep = Doorstep::with(10);
        let (first, mut first_told) = doorstep.enter(source(1));
        let mut crowd: Vec<_> = (0..9).map(|_| doorstep.enter(source(2))).collect();
        for _ in 0..100 {
            crowd.push(doorstep.enter(source(2)));
            assert_eq!(doorstep.counts().0, 10);
        }
        assert!(first_told.try_recv().is_err(), "who has one stays");
        let cut = crowd.iter_mut().filter_map(|(_, told)| told.try_recv().ok()).count();
        assert_eq!((cut, doorstep.counts().1), (100, 100));
        assert!(crowd.iter_mut().rev().take(9).all(|(_, told)| told.try_recv().is_err()));
        drop(first);
        drop(crowd);
        assert_eq!(doorstep.counts().0, 0);
        assert!(lock(&doorstep.waiting).sources.is_empty());
    }

    #[test]
    fn rl_05_of_many_sources_with_one_each_the_oldest_goes() {
        let doorstep = Doorstep::with(10);
        let mut crowd: Vec<_> = (0..25).map(|n| doorstep.enter(source(n))).collect();
        let is_cut: Vec<bool> = crowd.iter_mut().map(|(_, told)| told.try_recv().is_ok()).collect();
        assert_eq!(is_cut, [[true; 15].as_slice(), &[false; 10]].concat());
    }
}
