//! Places for connections, by the one rule of the crate `admit` (threats CO-11, RL-05).
//!
//! There are two crowds. In one are those who have proven nothing: in a TLS handshake, before the
//! head of a request, in a request of a stranger's, and idle between two of them. In the other are
//! those by which a machine of the books or the bearer of a token spoke. A newcomer to either is
//! let in, and the one who holds most there loses the oldest; so thousands of connections displace
//! each other, and a node that connects and says who it is does not notice.

use std::sync::{Arc, Mutex};

use admit::{Crowd, Number, Source};
use noise::PublicKey;
use tokio::sync::oneshot;

use crate::held::held;

/// Connections that have proven nothing, all together.
pub(crate) const STRANGERS_MAX: usize = 4096;
/// Connections of machines in the books, and of bearers of tokens.
pub(crate) const KNOWN_MAX: usize = 12_288;

/// By what a connection was proven to be somebody's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Known {
    /// The key of a machine in the books.
    Machine(PublicKey),
    /// An API token, by its look-up name.
    Token([u8; 8]),
}

/// What tells a connection that it is to be cut.
type Tell = oneshot::Sender<()>;

#[derive(Debug)]
struct Crowds {
    strangers: Crowd<u64, Source, Tell>,
    known: Crowd<Known, (), Tell>,
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Doorstep(Mutex<Crowds>);

#[derive(Clone, Copy, Debug)]
enum At {
    Strangers(Number),
    Known(Number),
}

/// A place there; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    doorstep: Arc<Doorstep>,
    at: Mutex<At>,
}

impl Doorstep {
    pub(crate) fn new() -> Arc<Self> {
        Self::with(STRANGERS_MAX, KNOWN_MAX)
    }

    fn with(strangers: usize, known: usize) -> Arc<Self> {
        let strangers = Crowd::new(strangers);
        let known = Crowd::new(known);
        Arc::new(Self(Mutex::new(Crowds { strangers, known })))
    }

    /// A place for a connection that is new, and what tells it that it is to be cut.
    pub(crate) fn enter(self: &Arc<Self>, source: Source) -> (Place, oneshot::Receiver<()>) {
        let (tell, told) = oneshot::channel();
        let (number, lost) = held(&self.0).strangers.enter(source.wide(), source, tell);
        cut(lost);
        (Place { doorstep: Arc::clone(self), at: Mutex::new(At::Strangers(number)) }, told)
    }

    /// Connections that have proven nothing, those that have, and how many were cut so far.
    pub(crate) fn counts(&self) -> (usize, usize, u64) {
        let crowds = held(&self.0);
        let displaced = crowds.strangers.displaced() + crowds.known.displaced();
        (crowds.strangers.len(), crowds.known.len(), displaced)
    }
}

impl Place {
    /// Somebody spoke by this connection who is known. It stays the first one's.
    pub(crate) fn prove(&self, known: Known) {
        let mut at = held(&self.at);
        let At::Strangers(number) = *at else { return };
        let mut crowds = held(&self.doorstep.0);
        // It may be cut already.
        let Some(tell) = crowds.strangers.leave(number) else { return };
        let (number, lost) = crowds.known.enter(known, (), tell);
        *at = At::Known(number);
        drop(crowds);
        cut(lost);
    }
}

/// What is called when somebody has proved who it is.
#[derive(Clone)]
pub(crate) struct OnProof(pub(crate) Arc<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for OnProof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnProof(…)")
    }
}

/// By which way a request came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Way {
    /// From where, unless it is this machine.
    pub(crate) source: Option<Source>,
    /// The place of its connection, where it has one.
    pub(crate) place: Option<Arc<Place>>,
    /// By ping: who is to be told that whoever speaks is known.
    pub(crate) proof: Option<OnProof>,
}

impl Way {
    /// Who spoke is known.
    pub(crate) fn prove(&self, known: Known) {
        if let Some(place) = &self.place {
            place.prove(known);
        }
        if let Some(proof) = &self.proof {
            (proof.0)();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let at = *held(&self.at);
        let mut crowds = held(&self.doorstep.0);
        match at {
            At::Strangers(number) => drop(crowds.strangers.leave(number)),
            At::Known(number) => drop(crowds.known.leave(number)),
        }
    }
}

/// Cuts the connection that lost its place, if one did.
pub(crate) fn cut(lost: Option<Tell>) {
    if let Some(tell) = lost {
        let _ = tell.send(());
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
    fn rl_05_who_has_proven_nothing_displaces_its_own_and_nobody_who_has() {
        let doorstep = Doorstep::with(10, 10);
        let (known, mut known_told) = doorstep.enter(source(1));
        known.prove(Known::Token([1; 8]));
        let (quiet, mut quiet_told) = doorstep.enter(source(1));
        let mut crowd: Vec<_> = (0..109).map(|_| doorstep.enter(source(2))).collect();
        assert_eq!(doorstep.counts(), (10, 1, 100));
        let is_cut = crowd.iter_mut().filter_map(|(_, told)| told.try_recv().ok()).count();
        assert_eq!(is_cut, 100);
        assert!(known_told.try_recv().is_err() && quiet_told.try_recv().is_err());
        // One that was cut already proves nothing any more.
        crowd[0].0.prove(Known::Token([2; 8]));
        assert_eq!(doorstep.counts(), (10, 1, 100));
        drop((known, quiet, crowd));
        assert_eq!(doorstep.counts(), (0, 0, 100));
    }

    #[test]
    fn rl_05_a_member_with_thousands_of_connections_displaces_its_own() {
        let doorstep = Doorstep::with(10, 10);
        let enter = |n: u32, key: u8| {
            let (place, told) = doorstep.enter(source(n));
            place.prove(Known::Machine(PublicKey([key; 32])));
            place.prove(Known::Token([9; 8]));
            (place, told)
        };
        let mut honest = enter(1, 1);
        let mut greedy: Vec<_> = (0..50).map(|n| enter(100 + n, 2)).collect();
        assert_eq!(doorstep.counts(), (0, 10, 41));
        assert!(honest.1.try_recv().is_err(), "from whichever sources it comes");
        assert_eq!(greedy.iter_mut().filter_map(|(_, told)| told.try_recv().ok()).count(), 41);
    }
}
