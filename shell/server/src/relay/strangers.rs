//! Who is connected and has not proven a key yet: bounded for each address and in all, by the one
//! rule of the crate `admit` (threat RL-05). A newcomer is let in, and the address that holds most
//! loses its oldest, so nobody keeps a node from proving its key.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use admit::{Crowd, Number, Source};
use tokio::sync::oneshot;

use crate::doorstep::cut;
use crate::held::held;

/// Connections of one address that have proven nothing.
const OF_ONE_MAX: usize = 32;
/// Connections of all addresses that have proven nothing.
const ALL_MAX: usize = 1024;

type Places = Crowd<u64, Source, oneshot::Sender<()>>;

/// How many there are of each address.
#[derive(Debug)]
pub(super) struct Strangers(Mutex<Places>);

impl Default for Strangers {
    fn default() -> Self {
        Self(Mutex::new(Crowd::with(ALL_MAX, OF_ONE_MAX)))
    }
}

impl Strangers {
    /// A place for a connection of this address that has to prove a key, and what tells it that
    /// the place is another's.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> (Stranger, oneshot::Receiver<()>) {
        let source = Source::from(address);
        let (tell, told) = oneshot::channel();
        let (number, lost) = held(&self.0).enter(source.wide(), source, tell);
        cut(lost);
        (Stranger { among: Arc::clone(self), number }, told)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        held(&self.0).len()
    }

    /// How many lost their places since the start.
    pub(super) fn displaced(&self) -> u64 {
        held(&self.0).displaced()
    }
}

/// A place among those who have proven nothing yet; given back when it is dropped.
pub(crate) struct Stranger {
    among: Arc<Strangers>,
    number: Number,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        held(&self.among.0).leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn rl_05_who_has_proven_nothing_has_a_small_place_for_each_address() {
        let strangers = Arc::new(Strangers::default());
        let mut here: Vec<_> = (0..OF_ONE_MAX + 1)
            .map(|number| strangers.enter(address(&format!("2001:db8::{number:x}"))))
            .collect();
        assert_eq!((strangers.len(), strangers.displaced()), (OF_ONE_MAX, 1), "of one /64");
        let is_cut: Vec<bool> = here.iter_mut().map(|(_, told)| told.try_recv().is_ok()).collect();
        assert_eq!(is_cut.iter().position(|cut| *cut), Some(0), "its oldest");
        assert!(is_cut[1..].iter().all(|cut| !cut));
        here.clear();
        assert_eq!(strangers.len(), 0);
    }

    #[test]
    fn rl_05_thirty_two_addresses_keep_nobody_out() {
        let strangers = Arc::new(Strangers::default());
        // 32 of each of 40 addresses, and of as many /64s of one /48, over and over.
        let from = |n: usize| match n % 2 {
            0 => address(&format!("192.0.2.{}", n / 2 % 40)),
            _ => address(&format!("2001:db8:0:{:x}::1", n / 2 % 40)),
        };
        let _crowd: Vec<_> = (0..3000).map(|n| strangers.enter(from(n))).collect();
        assert_eq!(strangers.len(), ALL_MAX);
        let (_place, mut told) = strangers.enter(address("198.51.100.7"));
        let _more: Vec<_> = (0..3000).map(|n| strangers.enter(from(n))).collect();
        assert!(told.try_recv().is_err(), "a node that comes meanwhile stays until it has proven");
    }
}
