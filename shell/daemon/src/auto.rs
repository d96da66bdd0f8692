//! `--exit-node auto`: which exits are asked how near they are, and when enough is known for the
//! first choice. The choice is [`crate::failover`]'s.
//!
//! A peer without traffic has no round trip. An echo to it, as `warren ping` sends it, wakes its
//! path, which then measures by itself.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use control::NodeId;
use host::sockets::echo::Echo;
use noise::Instant;

/// Exits that are asked, at most: those with the lowest numbers.
const ASKED_MAX: usize = 8;
/// Each is asked so often.
const ASK_EVERY: Duration = Duration::from_secs(60);
/// The first choice waits for answers so long.
const SETTLE: Duration = Duration::from_secs(1);

/// What was asked since `auto` was wished.
#[derive(Debug)]
pub(crate) struct Auto {
    since: Instant,
    is_settled: bool,
    asked: BTreeMap<NodeId, Instant>,
    due: Vec<IpAddr>,
    exits: Vec<NodeId>,
}

/// An exit that could be asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exit {
    pub(crate) id: NodeId,
    pub(crate) address: Option<IpAddr>,
    pub(crate) is_online: bool,
    /// What is sent through it measures it.
    pub(crate) is_used: bool,
    /// There is a direct path with a round trip, so nothing better will be known of it.
    pub(crate) is_known: bool,
}

impl Auto {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            since: now,
            is_settled: false,
            asked: BTreeMap::new(),
            due: Vec::new(),
            exits: Vec::new(),
        }
    }

    /// Whether the first choice has been made.
    pub(crate) const fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Whether a node was one of the exits at the last look.
    pub(crate) fn is_exit(&self, id: NodeId) -> bool {
        self.exits.contains(&id)
    }

    /// Looks who is to be asked. Returns whether it is time for the first choice.
    pub(crate) fn look(&mut self, exits: &[Exit], now: Instant) -> bool {
        self.exits = exits.iter().map(|exit| exit.id).collect();
        self.asked.retain(|id, _| exits.iter().any(|exit| exit.id == *id));
        let mut there: Vec<&Exit> = exits.iter().filter(|exit| exit.is_online).collect();
        there.sort_unstable_by_key(|exit| exit.id);
        there.truncate(ASKED_MAX);
        for exit in there.iter().filter(|exit| !exit.is_used) {
            let asked = self.asked.get(&exit.id);
            if asked.is_none_or(|at| now.since(*at) >= ASK_EVERY) {
                self.asked.insert(exit.id, now);
                self.due.extend(exit.address);
            }
        }
        let is_known =
            there.iter().all(|exit| exit.is_known) && there.is_empty() == exits.is_empty();
        let is_enough = is_known || now.since(self.since) >= SETTLE;
        let is_first = is_enough && !self.is_settled;
        self.is_settled |= is_enough;
        is_first
    }

    /// Sends what is due; the paths are there.
    pub(crate) fn ask(&mut self) {
        for address in self.due.drain(..) {
            let sent = Echo::new(address).and_then(|echo| echo.ask(0, 0, Duration::ZERO));
            if let Err(error) = sent {
                tracing::debug!(%address, "an exit is not asked how near it is: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(id: u64) -> Exit {
        let address = Some(IpAddr::from([100, 64, 0, id as u8]));
        Exit { id: NodeId(id), address, is_online: true, is_used: false, is_known: false }
    }

    #[test]
    fn the_first_choice_waits_a_second_or_until_all_are_known() {
        let at = |ms: u64| Instant(1) + Duration::from_millis(ms);
        let mut auto = Auto::new(at(0));
        assert!(!auto.look(&[exit(1), exit(2)], at(0)));
        assert!(!auto.look(&[exit(1), exit(2)], at(999)) && !auto.is_settled());
        assert!(auto.look(&[exit(1), exit(2)], at(1_000)) && auto.is_settled());
        assert!(!auto.look(&[exit(1), exit(2)], at(1_001)), "once");
        let mut quick = Auto::new(at(0));
        let known = [1, 2].map(|id| Exit { is_known: true, ..exit(id) });
        assert!(quick.look(&known, at(300)));
    }

    #[test]
    fn few_are_asked_and_each_once_a_minute() {
        let at = |s: u64| Instant(1) + Duration::from_secs(s);
        let mut auto = Auto::new(at(0));
        let mut exits: Vec<Exit> = (1..=12).map(exit).collect();
        exits[0].is_used = true;
        exits[1].is_online = false;
        exits.reverse();
        let mut sent = Vec::new();
        for second in 0..120 {
            auto.look(&exits, at(second));
            sent.extend(auto.due.drain(..).map(|address| (second, address)));
        }
        let each = |second: u64| (3..=9).map(move |id| (second, exit(id).address.unwrap()));
        assert_eq!(sent, each(0).chain(each(60)).collect::<Vec<_>>());
        // One that comes is asked at once.
        exits[10].is_online = true;
        auto.look(&exits, at(120));
        assert!(auto.due.contains(&exit(2).address.unwrap()));
    }
}
