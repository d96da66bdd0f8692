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
use crate::auto::{Auto, Exit};
use crate::exits::{self, Why};
use crate::plan::{self, Plan};

/// How long a gateway that died is not believed to be back without a word of its own.
const FORGIVEN: Duration = Duration::from_secs(30);

/// Who was not heard of for so long gives way to who says that it took over.
const SILENT: Duration = Duration::from_millis(1500);

/// What the data loop says of one gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// How its path answers; none if it does not, or there is none.
    pub(crate) path: Option<Health>,
    /// Its round trip, where it answers.
    pub(crate) rtt_us: Option<u32>,
    pub(crate) tx_bytes: u64,
    rx_bytes: u64,
}

/// What was made of it.
#[derive(Clone, Copy, Debug)]
struct Known {
    health: Health,
    rtt_us: Option<u32>,
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
    /// While any exit may be used.
    auto: Option<Auto>,
}

impl Failover {
    /// Through whom each prefix goes now that several serve; those with one gateway are not in it.
    /// `before` is what is in force.
    pub(crate) fn look(
        &mut self,
        map: &Map,
        settings: &Settings,
        now_unix_s: u64,
        before: &Plan,
        remote: &Remote,
    ) -> Result<BTreeMap<Prefix, NodeId>, Gone> {
        let mut wanted = plan::candidates(map, settings, now_unix_s);
        let several = plan::served_by_several(map, settings, now_unix_s);
        wanted.retain(|prefix, _| several.contains(prefix));
        self.auto = self.auto.take().filter(|_| exits::is_free(settings));
        if wanted.is_empty() {
            let auto = self.auto.take();
            *self = Self { auto, ..Self::default() };
            if exits::is_free(settings) {
                let now = remote.call(|desk| desk.node().1.now)?;
                // There is nothing to choose from.
                self.auto.get_or_insert_with(|| Auto::new(now)).look(&[], now);
            }
            return Ok(BTreeMap::new());
        }
        let named = |peer: &&Peer| wanted.values().any(|list| list.contains(&peer.id));
        let peers: Vec<&Peer> = map.peers.iter().filter(named).collect();
        let keys: Vec<PublicKey> = peers.iter().map(|peer| peer.key).collect();
        let (now, seen) = remote.call(move |desk| ask(desk, &keys))?;
        self.known.retain(|gateway, _| peers.iter().any(|peer| peer.id.0 == *gateway));
        for (peer, seen) in peers.iter().zip(seen) {
            let is_used = wanted
                .keys()
                .any(|prefix| self.choices.chosen(&plan::wire_prefix(prefix)) == Some(peer.id.0));
            let known = judge(self.known.get(&peer.id.0), seen, peer.online, is_used, now);
            self.known.insert(peer.id.0, known);
        }
        let current = self.choose(&peers, &mut wanted, settings, before, now);
        let chosen = |prefix: &Prefix| self.choices.chosen(&plan::wire_prefix(prefix));
        let chosen = wanted.keys().filter_map(|p| Some((*p, NodeId(chosen(p)?))));
        Ok(current.into_iter().chain(chosen).collect())
    }

    /// Tells the choice what is known, and has it made. Who keeps default routes that are not to be
    /// chosen yet is returned; they are no longer in `wanted`.
    fn choose(
        &mut self,
        peers: &[&Peer],
        wanted: &mut BTreeMap<Prefix, Vec<NodeId>>,
        settings: &Settings,
        before: &Plan,
        now: Instant,
    ) -> BTreeMap<Prefix, NodeId> {
        let current = self.look_at_exits(peers, wanted, settings, before, now);
        self.choices.set(&numbers(wanted), now);
        for (gateway, known) in &self.known {
            self.choices.handle_health(*gateway, known.health, now);
            self.choices.handle_rtt(*gateway, known.rtt_us, now);
        }
        self.keep_exits(&current, wanted, now);
        if settings.site_gateway {
            self.hear_claims(wanted, now);
        }
        while let Some(change) = self.choices.poll_change(now) {
            tracing::info!("{} goes through node {:?}", change.prefix, change.gateway);
        }
        current
    }

    /// Sees whom to ask where any exit may be used. Until enough is known for the first choice, the
    /// default routes are taken out of `wanted` and stay where they are; who that is is returned,
    /// as it is later for those that are chosen for the first time then.
    fn look_at_exits(
        &mut self,
        peers: &[&Peer],
        wanted: &mut BTreeMap<Prefix, Vec<NodeId>>,
        settings: &Settings,
        before: &Plan,
        now: Instant,
    ) -> BTreeMap<Prefix, NodeId> {
        if !exits::is_free(settings) {
            return BTreeMap::new();
        }
        let defaults = || wanted.iter().filter(|(prefix, _)| prefix.is_default());
        let is_exit = |peer: &&&Peer| defaults().any(|(_, exits)| exits.contains(&peer.id));
        let exit = |peer: &&Peer| {
            let known = self.known.get(&peer.id.0);
            let is_used = defaults().any(|(p, _)| self.chosen_by(&plan::wire_prefix(p), peer.id.0));
            Exit {
                id: peer.id,
                address: peer.addresses.first().copied(),
                is_online: peer.online,
                is_used,
                is_known: known.is_some_and(|k| k.health == Health::Direct && k.rtt_us.is_some()),
            }
        };
        let exits: Vec<Exit> = peers.iter().filter(is_exit).map(exit).collect();
        let current = defaults().filter_map(|(prefix, exits)| {
            let is_new = self.choices.chosen(&plan::wire_prefix(prefix)).is_none();
            let owner = exits::owner(before, prefix).filter(|id| is_new && exits.contains(id))?;
            Some((*prefix, owner))
        });
        let current: BTreeMap<Prefix, NodeId> = current.collect();
        let auto = self.auto.get_or_insert_with(|| Auto::new(now));
        let is_first = auto.look(&exits, now);
        if !auto.is_settled() {
            wanted.retain(|prefix, _| !prefix.is_default());
        }
        // The first choice is made by what is known; who works later is kept.
        if is_first { BTreeMap::new() } else { current }
    }

    fn chosen_by(&self, prefix: &node::Prefix, gateway: Gateway) -> bool {
        self.choices.chosen(prefix) == Some(gateway)
    }

    /// Has those chosen that are in force already: by being the only ones, for a moment.
    fn keep_exits(
        &mut self,
        current: &BTreeMap<Prefix, NodeId>,
        wanted: &BTreeMap<Prefix, Vec<NodeId>>,
        now: Instant,
    ) {
        let is_kept = |(prefix, _): &(&Prefix, &NodeId)| wanted.contains_key(prefix);
        for (prefix, id) in current.iter().filter(is_kept) {
            self.give(*prefix, *id, wanted, now);
        }
    }

    /// Gives a prefix to a gateway: it is chosen as the only one, and stays when there are others.
    fn give(
        &mut self,
        prefix: Prefix,
        id: NodeId,
        wanted: &BTreeMap<Prefix, Vec<NodeId>>,
        now: Instant,
    ) {
        let only = |(known, all): (&Prefix, &Vec<NodeId>)| {
            (*known, if *known == prefix { vec![id] } else { all.clone() })
        };
        let alone: BTreeMap<_, _> = wanted.iter().map(only).collect();
        self.choices.set(&numbers(&alone), now);
        while let Some(change) = self.choices.poll_change(now) {
            tracing::info!("{} is taken over by node {:?}", change.prefix, change.gateway);
        }
        self.choices.set(&numbers(wanted), now);
    }

    /// Whether the first exit has yet to be chosen.
    pub(crate) fn is_settling(&self) -> bool {
        self.auto.as_ref().is_some_and(|auto| !auto.is_settled())
    }

    /// Asks exits how near they are, where that is due. Their paths are there.
    pub(crate) fn ask_exits(&mut self) {
        if let Some(auto) = &mut self.auto {
            auto.ask();
        }
    }

    /// Why the default routes go through whom they do, where any exit may be used, and whether
    /// that one is dead.
    pub(crate) fn why_exit(&self) -> Why {
        if self.is_settling() {
            return Why { text: "exits are being asked how near they are", is_dead: false };
        }
        let everything = ["0.0.0.0/0", "::/0"].map(|text| text.parse().expect("a prefix"));
        let chosen = everything.iter().find_map(|prefix| self.choices.chosen(prefix));
        let Some((chosen, known)) = chosen.and_then(|id| Some((id, self.known.get(&id)?))) else {
            return Why { text: "it is the only exit node", is_dead: false };
        };
        let is_exit = |id: u64| self.auto.as_ref().is_some_and(|auto| auto.is_exit(NodeId(id)));
        let is_other = |id: u64| id != chosen && is_exit(id);
        let others = || self.known.iter().filter(|(id, _)| is_other(**id)).map(|(_, known)| known);
        let has_better = others().any(|other| other.health > known.health);
        let alike = others().filter(|other| other.health == known.health);
        let alike: Vec<Option<u32>> = alike.map(|other| other.rtt_us).collect();
        let text = match (known.health, known.rtt_us) {
            _ if has_better => "it works, and no better one was there for 30 s",
            (Health::Direct, _) if alike.is_empty() => "no other one has a direct path",
            (_, _) if alike.is_empty() => "no other one is reached",
            (_, Some(own)) if alike.iter().all(|other| other.is_none_or(|rtt| rtt >= own)) => {
                "the nearest one that is known"
            }
            _ => "it works, and no better one was there for 30 s",
        };
        Why { text, is_dead: known.health == Health::Dead }
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
                self.give(prefix, new, wanted, now);
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
        let rtt_us = path.and_then(|path| path.rtt_us);
        let path = path.map(|path| match path.to {
            Destination::Udp(_) | Destination::Carried(_) => Health::Direct,
            Destination::Relay(_) => Health::Relayed,
        });
        Seen { path, rtt_us, tx_bytes, rx_bytes }
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
    let Seen { rtt_us, tx_bytes, rx_bytes, .. } = seen;
    Known { health, rtt_us, since, tx_bytes, rx_bytes, heard }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_06_silence_is_death_only_where_something_was_asked() {
        let at = |s: u64| Instant(1) + Duration::from_secs(s);
        let seen = |path, tx_bytes| Seen { path, rtt_us: None, tx_bytes, rx_bytes: 0 };
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
                    let seen =
                        Seen { path: Some(Health::Direct), rtt_us: None, tx_bytes: 0, rx_bytes };
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

    /// Looks at exits whose direct paths have these round trips, none where nothing is known.
    fn choose_exit(
        all: &mut Failover,
        rtts: &[(u64, Option<u32>)],
        before: &Plan,
        now: Instant,
    ) -> Option<u64> {
        let everything: Prefix = "0.0.0.0/0".parse().unwrap();
        let peers: Vec<Peer> = rtts
            .iter()
            .map(|(id, rtt_us)| {
                let path = rtt_us.map(|_| Health::Direct);
                let seen = Seen { path, rtt_us: *rtt_us, tx_bytes: 0, rx_bytes: 0 };
                let known = judge(all.known.get(id), seen, true, false, now);
                all.known.insert(*id, known);
                let key = PublicKey([*id as u8; 32]);
                Peer { online: true, ..Peer::new(NodeId(*id), format!("n{id}"), key) }
            })
            .collect();
        let exits = peers.iter().map(|peer| peer.id).collect();
        let mut wanted = BTreeMap::from([(everything, exits)]);
        let settings = Settings { exit_node: Some("auto".to_owned()), ..Settings::default() };
        let peers: Vec<&Peer> = peers.iter().collect();
        let kept = all.choose(&peers, &mut wanted, &settings, before, now);
        let chosen = all.choices.chosen(&plan::wire_prefix(&everything));
        chosen.or_else(|| kept.get(&everything).map(|id| id.0))
    }

    /// A plan in which this node's default route is that peer's.
    fn led_by(id: u64) -> Plan {
        let mut plan = Plan::default();
        let peer = plan::PeerPlan {
            id: NodeId(id),
            allowed: vec!["0.0.0.0/0".parse().unwrap()],
            carried: false,
            endpoints: Vec::new(),
            relays: Vec::new(),
        };
        plan.peers.insert(PublicKey([id as u8; 32]), peer);
        plan
    }

    #[test]
    fn the_first_exit_is_chosen_by_what_is_known_after_a_second_and_then_kept() {
        let at = |ms: u64| Instant(1) + Duration::from_millis(ms);
        let mut all = Failover::default();
        let none = Plan::default();
        assert_eq!(choose_exit(&mut all, &[(2, None), (3, None)], &none, at(0)), None);
        // Whom the plan has stays until then.
        let was = led_by(2);
        assert_eq!(choose_exit(&mut all, &[(2, None), (3, None)], &was, at(500)), Some(2));
        assert!(all.is_settling());
        let rtts = [(2, Some(40_000)), (3, Some(9_000))];
        assert_eq!(choose_exit(&mut all, &rtts, &was, at(600)), Some(3), "all is known");
        assert!(!all.is_settling());
        assert_eq!(all.why_exit().text, "the nearest one that is known");
        // It is left for one that is nearer by half only, and after a while.
        let rtts = [(2, Some(4_400)), (3, Some(9_000))];
        assert_eq!(choose_exit(&mut all, &rtts, &was, at(1_000)), Some(3));
        assert!(all.why_exit().text.starts_with("it works"), "{:?}", all.why_exit());
        assert_eq!(choose_exit(&mut all, &rtts, &was, at(30_999)), Some(3));
        assert_eq!(choose_exit(&mut all, &rtts, &was, at(31_000)), Some(2));
    }

    #[test]
    fn an_exit_that_was_the_only_one_is_kept_when_another_comes() {
        let at = |ms: u64| Instant(1) + Duration::from_millis(ms);
        let mut auto = Auto::new(at(0));
        auto.look(&[], at(0));
        let mut all = Failover { auto: Some(auto), ..Failover::default() };
        let rtts = [(2, Some(30_000)), (3, Some(40_000))];
        assert_eq!(choose_exit(&mut all, &rtts, &led_by(3), at(5_000)), Some(3));
        let mut all = Failover { auto: all.auto.take(), ..Failover::default() };
        let gone = choose_exit(&mut all, &rtts, &led_by(4), at(5_000));
        assert_eq!(gone, Some(2), "the control: who is none any longer is not kept");
    }
}
