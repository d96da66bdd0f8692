//! A month of the paths between gateways of sites: of each hour the round trips, the worst loss and
//! what was left beside what others send.
//!
//! Nodes report their links once a minute or so. What two gateways say of each other is gathered
//! here until its hour is over, and then goes into the books, where it stays for thirty days. What
//! other nodes say stays a day, and in memory alone ([`crate::links`]).

use std::collections::BTreeMap;

use control::LinkReport;
use serde::Serialize;

/// Directed paths of which there is a history. What is beyond has none.
pub(crate) const PATHS_MAX: usize = 1024;
/// How long it lasts, in days.
pub(crate) const DAYS: u64 = 30;
const HOUR_S: u64 = 3600;

/// An hour of one path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Hour {
    /// Who says so.
    pub(crate) node: u64,
    /// To whom the path leads.
    pub(crate) peer: u64,
    /// When the hour began, in Unix seconds.
    pub(crate) at: u64,
    /// The shortest and the longest round trip that was told, microseconds.
    pub(crate) rtt_us_min: Option<u32>,
    /// See [`Hour::rtt_us_min`].
    pub(crate) rtt_us_max: Option<u32>,
    /// The worst loss that was told, in millionths.
    pub(crate) loss_ppm_max: u32,
    /// What was left when it was last measured, bits a second: from, to.
    pub(crate) low_bps: Option<u64>,
    /// See [`Hour::low_bps`].
    pub(crate) high_bps: Option<u64>,
}

/// Hours that have not ended, and those that ended and are not in the books yet.
#[derive(Default)]
pub(crate) struct Hours {
    now: BTreeMap<(u64, u64), Hour>,
    over: Vec<Hour>,
}

impl Hours {
    /// Takes what a gateway says of its paths to other gateways.
    pub(crate) fn take(
        &mut self,
        node: u64,
        links: &[LinkReport],
        is_gateway: impl Fn(u64) -> bool,
        now: u64,
    ) {
        let at = now - now % HOUR_S;
        for link in links.iter().filter(|link| is_gateway(link.peer)) {
            let key = (node, link.peer);
            if self.now.get(&key).is_some_and(|hour| hour.at != at) {
                self.end(key);
            }
            if self.now.len() >= PATHS_MAX && !self.now.contains_key(&key) {
                continue;
            }
            let hour = self.now.entry(key).or_insert(Hour {
                node,
                peer: link.peer,
                at,
                rtt_us_min: None,
                rtt_us_max: None,
                loss_ppm_max: 0,
                low_bps: None,
                high_bps: None,
            });
            if let Some(rtt_us) = link.rtt_us {
                hour.rtt_us_min = Some(hour.rtt_us_min.map_or(rtt_us, |least| least.min(rtt_us)));
                hour.rtt_us_max = hour.rtt_us_max.max(Some(rtt_us));
            }
            hour.loss_ppm_max = hour.loss_ppm_max.max(link.loss_ppm);
            // One that was measured before this hour was told in its own.
            let fresh = link.available.filter(|found| u64::from(found.age_s) <= now - at);
            if let Some(found) = fresh {
                hour.low_bps = Some(found.low_bps);
                hour.high_bps = Some(found.high_bps);
            }
        }
    }

    fn end(&mut self, key: (u64, u64)) {
        if let Some(hour) = self.now.remove(&key)
            && self.over.len() < PATHS_MAX * 2
        {
            self.over.push(hour);
        }
    }

    /// Those that have ended, to be kept.
    pub(crate) fn ended(&mut self, now: u64) -> Vec<Hour> {
        let at = now - now % HOUR_S;
        let old: Vec<_> =
            self.now.iter().filter(|(_, hour)| hour.at != at).map(|(key, _)| *key).collect();
        old.into_iter().for_each(|key| self.end(key));
        std::mem::take(&mut self.over)
    }

    /// Those of this hour, as far as it is.
    pub(crate) fn running(&self) -> impl Iterator<Item = &Hour> {
        self.over.iter().chain(self.now.values())
    }

    /// Forgets what is not in the books: nobody is to know any more.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use control::Available;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn link(peer: u64, rtt_us: u32, loss_ppm: u32) -> LinkReport {
        LinkReport {
            peer,
            path: "direct".to_owned(),
            rtt_us: Some(rtt_us),
            loss_ppm,
            rx_bytes: 0,
            tx_bytes: 0,
            available: None,
        }
    }

    #[test]
    fn an_hour_has_the_least_the_most_and_the_worst_and_others_have_none() {
        let mut hours = Hours::default();
        let begin = NOW - NOW % HOUR_S;
        let found = Available { low_bps: 5, high_bps: 6, age_s: 10 };
        for (rtt_us, loss) in [(900, 0), (700, 20), (800, 10)] {
            let mut links = vec![link(2, rtt_us, loss), link(9, 1, 1)];
            links[0].available = Some(found);
            hours.take(1, &links, |peer| peer == 2, begin + 60);
        }
        assert_eq!(hours.ended(begin + 3599), [], "it is not over");
        let ended = hours.ended(begin + 3600);
        let [hour] = &ended[..] else { panic!("{ended:?}") };
        assert_eq!((hour.node, hour.peer, hour.at), (1, 2, begin));
        assert_eq!((hour.rtt_us_min, hour.rtt_us_max), (Some(700), Some(900)));
        assert_eq!((hour.loss_ppm_max, hour.low_bps, hour.high_bps), (20, Some(5), Some(6)));
        assert_eq!(hours.ended(begin + 7200), []);
    }

    #[test]
    fn what_was_measured_before_an_hour_is_not_of_it() {
        let mut hours = Hours::default();
        let begin = NOW - NOW % HOUR_S;
        let mut one = link(2, 1, 0);
        one.available = Some(Available { low_bps: 5, high_bps: 6, age_s: 61 });
        hours.take(1, &[one], |_| true, begin + 60);
        assert_eq!(hours.running().next().and_then(|hour| hour.low_bps), None);
    }

    #[test]
    fn co_19_paths_are_bounded_whoever_makes_them() {
        let mut hours = Hours::default();
        let many: Vec<LinkReport> = (0..4000).map(|peer| link(peer, 1, 0)).collect();
        for hour in 0..4 {
            hours.take(1, &many, |_| true, NOW + hour * HOUR_S);
        }
        assert!(hours.now.len() <= PATHS_MAX && hours.over.len() <= 2 * PATHS_MAX);
        assert!(hours.ended(NOW + 9 * HOUR_S).len() <= 2 * PATHS_MAX);
    }
}
