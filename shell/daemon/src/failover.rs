//! Through which gateway each prefix goes, where several peers serve it. The decision is
//! [`routes`]'; here is what it is told of each gateway's health.
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

/// What the data loop says of one gateway.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// How its path answers; none if it does not, or there is none.
    path: Option<Health>,
    tx_bytes: u64,
}

/// What was made of it.
#[derive(Clone, Copy, Debug)]
struct Known {
    health: Health,
    since: Instant,
    tx_bytes: u64,
}

/// The choice for every prefix.
#[derive(Debug, Default)]
pub(crate) struct Failover {
    choices: Choices,
    known: BTreeMap<Gateway, Known>,
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
        wanted.retain(|_, gateways| gateways.len() > 1);
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
        while let Some(change) = self.choices.poll_change(now) {
            tracing::info!("{} goes through node {:?}", change.prefix, change.gateway);
        }
        let chosen = |prefix: &Prefix| self.choices.chosen(&plan::wire_prefix(prefix));
        Ok(wanted.keys().filter_map(|p| Some((*p, NodeId(chosen(p)?)))).collect())
    }
}

fn numbers(wanted: &BTreeMap<Prefix, Vec<NodeId>>) -> BTreeMap<node::Prefix, Vec<Gateway>> {
    let number = |(prefix, list): (&Prefix, &Vec<NodeId>)| {
        (plan::wire_prefix(prefix), list.iter().map(|id| id.0).collect())
    };
    wanted.iter().map(number).collect()
}

fn ask(desk: &mut host::driver::Desk<'_>, keys: &[PublicKey]) -> (Instant, Vec<Seen>) {
    let status = desk.status();
    let (node, clock, _) = desk.node();
    let seen = keys.iter().map(|key| {
        let path = node.path(key, clock.now).filter(|path| path.is_alive);
        let tx_bytes = status.peers.iter().find(|p| p.key == *key).map_or(0, |p| p.tx_bytes);
        let path = path.map(|path| match path.to {
            Destination::Udp(_) | Destination::Carried(_) => Health::Direct,
            Destination::Relay(_) => Health::Relayed,
        });
        Seen { path, tx_bytes }
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
    Known { health, since, tx_bytes: seen.tx_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_06_silence_is_death_only_where_something_was_asked() {
        let at = |s: u64| Instant(1) + Duration::from_secs(s);
        let seen = |path, tx_bytes| Seen { path, tx_bytes };
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
}
