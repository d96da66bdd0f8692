//! Through which gateway each prefix goes, where several peers serve it. The decision is
//! [`routes`]'; here is what it is told of each gateway's health.
//!
//! A gateway that says anew that it reaches a prefix has it from one that was not heard of for
//! [`SILENT`], where this node is a site's gateway: so standbys of other sites take over, also
//! while nothing is sent that could tell. What works stays where it is.
//!
//! A path that answers is the best witness. One that does not is a witness only while something is
//! sent to it: a peer without traffic is not probed and stays what it was. A gateway that nothing
//! is known of yet counts as reached through a relay if the server calls it online, and so does
//! one again that was dead for [`FORGIVEN`] and has no traffic that could tell.

use std::collections::BTreeMap;
use std::time::Duration;

use control::{Map, NodeId, Peer, Prefix};
use host::driver::mail::{Gone, Remote};
use link::Destination;
use noise::{Instant, PublicKey};
use routes::{Choices, Gateway, Health};

use crate::Settings;
use crate::plan;

/// How long a gateway that died is not believed to be back without a word of its own.
const FORGIVEN: Duration = Duration::from_secs(30);

/// Who was not heard of for so long gives way to who says that it took over.
const SILENT: Duration = Duration::from_millis(1500);

/// What the data loop says of one gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// How its path answers; none if it does not, or there is none.
    pub(crate) path: Option<Health>,
    pub(crate) tx_bytes: u64,
    rx_bytes: u64,
}

/// What was made of it.
#[derive(Clone, Copy, Debug)]
struct Known {
    health: Health,
    since: Instant,
    tx_bytes: u64,
    /// What came from it, and when that was seen to be more.
    rx_bytes: u64,
    heard: Instant,
}

/// The choice for every prefix.
#[derive(Debug, Default)]
pub(crate) struct Failover {
    choices: Choices,
    known: BTreeMap<Gateway, Known>,
    /// Who reached each prefix at the last look.
    reached: BTreeMap<Prefix, Vec<NodeId>>,
    /// Who says anew that it reaches a prefix, and since when.
    claims: BTreeMap<Prefix, (NodeId, Instant)>,
}

impl Failover {
    /// Through whom each prefix goes now that several serve; those with one gateway are not in it.
    pub(crate) fn look(
        &mut self,
        map: &Map,
        settings: &Settings,
        now_unix_s: u64,
        remote: &Remote,
    ) -> Result<BTreeMap<Prefix, NodeId>, Gone> {
        let mut wanted = plan::candidates(map, settings, now_unix_s);
        let several = plan::served_by_several(map, settings, now_unix_s);
        wanted.retain(|prefix, _| several.contains(prefix));
        if wanted.is_empty() {
            *self = Self::default();
            return Ok(BTreeMap::new());
        }
        let named = |peer: &&Peer| wanted.values().any(|list| list.contains(&peer.id));
        let peers: Vec<&Peer> = map.peers.iter().filter(named).collect();
        let keys: Vec<PublicKey> = peers.iter().map(|peer| peer.key).collect();
        let (now, seen) = remote.call(move |desk| ask(desk, &keys))?;
        self.choices.set(&numbers(&wanted), now);
        self.known.retain(|gateway, _| peers.iter().any(|peer| peer.id.0 == *gateway));
        for (peer, seen) in peers.iter().zip(seen) {
            let is_used = wanted
                .keys()
                .any(|prefix| self.choices.chosen(&plan::wire_prefix(prefix)) == Some(peer.id.0));
            let known = judge(self.known.get(&peer.id.0), seen, peer.online, is_used, now);
            self.known.insert(peer.id.0, known);
            self.choices.handle_health(peer.id.0, known.health, now);
        }
        if settings.site_gateway {
            self.hear_claims(&wanted, now);
        }
        while let Some(change) = self.choices.poll_change(now) {
            tracing::info!("{} goes through node {:?}", change.prefix, change.gateway);
        }
        let chosen = |prefix: &Prefix| self.choices.chosen(&plan::wire_prefix(prefix));
        Ok(wanted.keys().filter_map(|p| Some((*p, NodeId(chosen(p)?)))).collect())
    }

    /// Gives each prefix to who says anew that it reaches it, if who has it falls silent.
    fn hear_claims(&mut self, wanted: &BTreeMap<Prefix, Vec<NodeId>>, now: Instant) {
        for (prefix, gateways) in wanted {
            let before = self.reached.get(prefix);
            let is_new = |id: &&NodeId| before.is_some_and(|before| !before.contains(id));
            if let Some(new) = gateways.iter().find(is_new) {
                self.claims.insert(*prefix, (*new, now));
            }
        }
        self.reached.clone_from(wanted);
        self.claims.retain(|prefix, (new, _)| wanted.get(prefix).is_some_and(|l| l.contains(new)));
        for (prefix, (new, since)) in self.claims.clone() {
            let place = plan::wire_prefix(&prefix);
            let current = self.choices.chosen(&place).filter(|current| *current != new.0);
            let known = current.and_then(|current| self.known.get(&current));
            let is_silent = known.is_none_or(|known| known.heard.is_older_than(SILENT, now));
            if known.is_some_and(|known| known.heard > since) {
                self.claims.remove(&prefix);
            } else if is_silent {
                self.claims.remove(&prefix);
                // It is chosen as the only one, and stays when there are others.
                let only = BTreeMap::from([(prefix, vec![new])]);
                let alone: BTreeMap<_, _> = wanted
                    .iter()
                    .map(|(prefix, all)| (*prefix, only.get(prefix).unwrap_or(all).clone()))
                    .collect();
                self.choices.set(&numbers(&alone), now);
                while let Some(change) = self.choices.poll_change(now) {
                    tracing::info!("{} is taken over by node {:?}", change.prefix, change.gateway);
                }
                self.choices.set(&numbers(wanted), now);
            }
        }
    }
}

fn numbers(wanted: &BTreeMap<Prefix, Vec<NodeId>>) -> BTreeMap<node::Prefix, Vec<Gateway>> {
    let number = |(prefix, list): (&Prefix, &Vec<NodeId>)| {
        (plan::wire_prefix(prefix), list.iter().map(|id| id.0).collect())
    };
    wanted.iter().map(number).collect()
}

/// What the data loop says of gateways, by their keys.
pub(crate) fn ask(desk: &mut host::driver::Desk<'_>, keys: &[PublicKey]) -> (Instant, Vec<Seen>) {
    let status = desk.status();
    let (node, clock, _) = desk.node();
    let seen = keys.iter().map(|key| {
        let path = node.path(key, clock.now).filter(|path| path.is_alive);
        let known = status.peers.iter().find(|p| p.key == *key);
        let [tx_bytes, rx_bytes] = known.map_or([0; 2], |p| [p.tx_bytes, p.rx_bytes]);
        let path = path.map(|path| match path.to {
            Destination::Udp(_) | Destination::Carried(_) => Health::Direct,
            Destination::Relay(_) => Health::Relayed,
        });
        Seen { path, tx_bytes, rx_bytes }
    });
    (clock.now, seen.collect())
}

/// A gateway's health by all that is known of it.
fn judge(
    before: Option<&Known>,
    seen: Seen,
    is_online: bool,
    is_used: bool,
    now: Instant,
) -> Known {
    let presumed = if is_online { Health::Relayed } else { Health::Dead };
    let was = before.map_or(presumed, |known| known.health);
    let is_asked = before.is_some_and(|known| known.tx_bytes != seen.tx_bytes);
    let since = before.map_or(now, |known| known.since);
    let health = match seen.path {
        Some(health) => health,
        None if !is_online => Health::Dead,
        None if is_used && is_asked => Health::Dead,
        None if was == Health::Dead && !is_used && now.since(since) >= FORGIVEN => presumed,
        None => was,
    };
    let since = if health == was { since } else { now };
    let heard = before.filter(|known| known.rx_bytes == seen.rx_bytes);
    let heard = heard.map_or(now, |known| known.heard);
    let Seen { tx_bytes, rx_bytes, .. } = seen;
    Known { health, since, tx_bytes, rx_bytes, heard }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_06_silence_is_death_only_where_something_was_asked() {
        let at = |s: u64| Instant(1) + Duration::from_secs(s);
        let seen = |path, tx_bytes| Seen { path, tx_bytes, rx_bytes: 0 };
        let fresh = judge(None, seen(None, 0), true, false, at(0));
        assert_eq!(fresh.health, Health::Relayed, "presumed");
        assert_eq!(judge(None, seen(None, 0), false, true, at(0)).health, Health::Dead);
        let direct = judge(Some(&fresh), seen(Some(Health::Direct), 9), false, true, at(1));
        assert_eq!(direct.health, Health::Direct, "whatever the server says");
        let idle = judge(Some(&direct), seen(None, 9), true, true, at(500));
        assert_eq!(idle.health, Health::Direct, "nothing was asked");
        let dead = judge(Some(&idle), seen(None, 10), true, true, at(501));
        assert_eq!(dead.health, Health::Dead);
        let used = judge(Some(&dead), seen(None, 10), true, true, at(600));
        assert_eq!(used.health, Health::Dead, "as long as it is asked for");
        let early = judge(Some(&dead), seen(None, 10), true, false, at(520));
        let late = judge(Some(&dead), seen(None, 10), true, false, at(531));
        assert_eq!((early.health, late.health), (Health::Dead, Health::Relayed));
        assert_eq!(judge(Some(&late), seen(None, 10), false, false, at(532)).health, Health::Dead);
    }

    #[test]
    fn source_001_14_who_says_anew_that_it_reaches_a_prefix_has_it_from_one_that_is_silent() {
        let at = |ms: u64| Instant(1) + Duration::from_millis(ms);
        let prefix: Prefix = "10.4.0.0/24".parse().unwrap();
        let place = plan::wire_prefix(&prefix);
        for is_silent in [true, false] {
            let mut all = Failover::default();
            let mut rx_bytes = 0;
            let mut look = |all: &mut Failover, ids: &[u64], ms: u64, hears: bool| {
                rx_bytes += u64::from(hears);
                let wanted: BTreeMap<Prefix, Vec<NodeId>> =
                    [(prefix, ids.iter().map(|id| NodeId(*id)).collect())].into();
                all.choices.set(&numbers(&wanted), at(ms));
                for id in ids {
                    let seen = Seen { path: Some(Health::Direct), tx_bytes: 0, rx_bytes };
                    let seen = Seen { rx_bytes: if *id == 1 { rx_bytes } else { 0 }, ..seen };
                    let known = judge(all.known.get(id), seen, true, false, at(ms));
                    all.known.insert(*id, known);
                    all.choices.handle_health(*id, known.health, at(ms));
                }
                all.hear_claims(&wanted, at(ms));
                while all.choices.poll_change(at(ms)).is_some() {}
                all.choices.chosen(&place)
            };
            assert_eq!(look(&mut all, &[1], 0, true), Some(1));
            assert_eq!(look(&mut all, &[1], 1000, true), Some(1));
            // The other one says that it reaches it, too.
            assert_eq!(look(&mut all, &[1, 2], 2200, !is_silent), Some(1), "heard a moment ago");
            let next = look(&mut all, &[1, 2], 3000, !is_silent);
            assert_eq!(next, Some(if is_silent { 2 } else { 1 }));
            for second in 4..60 {
                assert_eq!(look(&mut all, &[1, 2], second * 1000, !is_silent), next, "and stays");
            }
        }
    }
}
