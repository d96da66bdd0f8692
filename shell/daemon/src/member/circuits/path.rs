//! The path of a circuit: over whom, and by whom it enters.

use std::collections::BTreeSet;
use std::time::Instant;

use directory::networks;
use node::circuit::HOPS_MAX;
use noise::PublicKey;

use super::guards::Guards;
use crate::circuits::{EXIT, HOP, Wanted, has};
use crate::member::Daemon;

/// Hops, where no number is asked for.
const HOPS: usize = 3;

/// A hop that may stand in a path.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) key: PublicKey,
    pub(super) name: String,
    /// Other words for it.
    addresses: Vec<String>,
    /// The /16 networks (/32 of IPv6) that it is reached at.
    nets: BTreeSet<u64>,
    is_exit: bool,
    /// Who runs it, where a directory says so.
    operator: Option<String>,
    is_there: bool,
}

impl Spot {
    fn is_called(&self, called: &str) -> bool {
        let name = called.split('.').next().unwrap_or_default();
        self.name.eq_ignore_ascii_case(name) || self.addresses.iter().any(|at| at == called)
    }

    /// Why two do not stand in one path, unless they are named: one operator, or one network.
    fn is_near(&self, other: &Self) -> Option<String> {
        let (one, two) = (&self.name, &other.name);
        if self.operator.is_some() && self.operator == other.operator {
            let operator = self.operator.as_deref().unwrap_or_default();
            return Some(format!(
                "{one} and {two} are both {operator}'s, who can put them together"
            ));
        }
        let is_one = !self.nets.is_disjoint(&other.nets);
        is_one.then(|| format!("{one} and {two} are at one /16, so perhaps one operator's"))
    }
}

impl Daemon {
    /// Every hop that this node may use: those of its network, and of the directory.
    pub(super) fn spots(&self) -> Vec<Spot> {
        let peers = self.map.iter().flat_map(|map| &map.peers);
        let mut spots: Vec<Spot> = peers
            .filter(|peer| has(&peer.routes, HOP))
            .map(|peer| Spot {
                key: peer.key,
                name: peer.name.clone(),
                addresses: peer.addresses.iter().map(ToString::to_string).collect(),
                nets: networks(&peer.endpoints).collect(),
                is_exit: has(&peer.routes, EXIT),
                operator: self.operator(&peer.key),
                is_there: peer.online,
            })
            .collect();
        let own = self.state.kept.node.public();
        for hop in self.directory_hops() {
            let is_known = hop.key == own || spots.iter().any(|spot| spot.key == hop.key);
            if is_known {
                continue;
            }
            spots.push(Spot {
                key: hop.key,
                name: hop.name.clone(),
                addresses: Vec::new(),
                nets: networks(&hop.addresses).collect(),
                is_exit: hop.exit,
                operator: Some(hop.operator.clone()),
                is_there: true,
            });
        }
        spots
    }

    /// Brings the entries in line with the hops that there are.
    fn look_for_guards(&mut self, spots: &[Spot]) {
        if !self.circuits.guards.is_open() {
            self.circuits.guards = Guards::open(&self.state);
        }
        let hops: Vec<PublicKey> = spots.iter().map(|spot| spot.key).collect();
        let (mut drawn, salt) = (hops.clone(), draw());
        drawn.sort_by_key(|key| noise::parts::hash(&[b"guard", &salt, &key.0]));
        if self.circuits.guards.look(&hops, &drawn, self.now_unix_s()) {
            self.circuits.guards.keep(&self.state);
        }
    }

    /// A path as it is wanted. Hops that are ours to choose are drawn anew each time, but for the
    /// entry.
    pub(super) fn path(&mut self, wanted: &Wanted) -> Result<Vec<PublicKey>, String> {
        if !self.map.as_deref().is_some_and(|map| map.me.approved) {
            return Err("this node is not running; see `warren status`".to_owned());
        }
        let spots = self.spots();
        self.look_for_guards(&spots);
        let named = |called: &String| {
            spots.iter().find(|spot| spot.is_called(called)).ok_or_else(|| {
                format!(
                    "{called} is no hop that this node may use; `warren set --circuit-hop` there, \
                     and \"circuits\" in the policy"
                )
            })
        };
        let mut via = wanted.via.iter().map(named).collect::<Result<Vec<_>, _>>()?;
        let exit = wanted.exit.as_ref().map(named).transpose()?;
        if let Some(exit) = exit
            && via.last().is_none_or(|last| last.key != exit.key)
            && !via.is_empty()
        {
            via.push(exit);
        }
        let count = wanted.hops.unwrap_or(if via.is_empty() { HOPS } else { via.len() });
        if count == 0 || count > HOPS_MAX || (!via.is_empty() && count != via.len()) {
            return Err(format!("--hops: 1 to {HOPS_MAX}, and as many as --via names"));
        }
        if via.is_empty() {
            let (now, silent) = (Instant::now(), &self.circuits.silent);
            let hops: Vec<&Spot> = spots.iter().collect();
            let heard: Vec<&Spot> =
                hops.iter().copied().filter(|spot| !silent.has(&spot.key, now)).collect();
            let (guards, salt) = (&self.circuits.guards, draw());
            let is_silent = |key: &PublicKey| silent.has(key, now);
            // Where those that answer are too few, silent ones are tried again, but not as the
            // entry: who lets no guest in is silent there, and may answer another hop.
            via = choose(&heard, exit, count, &is_silent, (guards, salt))
                .or_else(|_| choose(&hops, exit, count, &is_silent, (guards, salt)))?;
        }
        Ok(via.into_iter().map(|spot| spot.key).collect())
    }

    /// What of a path should not be in one, where its hops were named.
    pub(super) fn path_warnings(&self, path: &[PublicKey]) -> Vec<String> {
        let spots = self.spots();
        let spot = |key: &PublicKey| spots.iter().find(|spot| spot.key == *key);
        let path: Vec<&Spot> = path.iter().filter_map(spot).collect();
        let pairs =
            path.iter().enumerate().flat_map(|(at, one)| path[..at].iter().map(move |o| (o, one)));
        pairs.filter_map(|(one, other)| one.is_near(other)).collect()
    }
}

/// Chooses: the entry that this node always has, an exit, and others between, each reached at a /16
/// of its own. Who is silent is the entry only where nobody else can be.
fn choose<'m>(
    hops: &[&'m Spot],
    exit: Option<&'m Spot>,
    count: usize,
    is_silent: &dyn Fn(&PublicKey) -> bool,
    drawn: (&Guards, [u8; 32]),
) -> Result<Vec<&'m Spot>, String> {
    let (guards, salt) = drawn;
    let online: Vec<&Spot> = hops.iter().copied().filter(|peer| peer.is_there).collect();
    let is_free = |peer: &Spot, chosen: &[&Spot]| {
        chosen.iter().all(|other| other.key != peer.key && peer.is_near(other).is_none())
    };
    let shuffled = |what: &[u8]| {
        let mut list = online.clone();
        list.sort_by_key(|peer| noise::parts::hash(&[what, &salt, &peer.key.0]));
        list
    };
    let exits = shuffled(b"exit");
    let mut entries = shuffled(b"entry");
    entries.sort_by_key(|peer| (is_silent(&peer.key), guards.rank(&peer.key)));
    let can_leave = |peer: &&&Spot| peer.is_exit;
    // The entry first, since it is the one that must not change; then an exit that goes with it.
    for entry in &entries {
        let mut path = vec![*entry];
        if count == 1 {
            match exit.or_else(|| entries.iter().find(can_leave).copied()) {
                Some(exit) => return Ok(vec![exit]),
                None => break,
            }
        }
        let last = match exit {
            Some(exit) if is_free(exit, &path) => exit,
            Some(_) => continue,
            None => match exits.iter().filter(can_leave).find(|peer| is_free(peer, &path)) {
                Some(found) => *found,
                None => continue,
            },
        };
        path.push(last);
        for peer in shuffled(b"middle") {
            if path.len() < count && is_free(peer, &path) {
                path.insert(path.len() - 1, peer);
            }
        }
        if path.len() == count {
            return Ok(path);
        }
    }
    Err(format!(
        "there are not {count} hops that are online, reached at different /16 networks, and end at \
         an exit; name them with --via, or ask for fewer with --hops"
    ))
}

/// What makes one choice differ from the last.
fn draw() -> [u8; 32] {
    let mut drawn = [0; 32];
    noise::Random::fill(&mut dial::SystemRandom, &mut drawn);
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(id: u8, is_exit: bool) -> Spot {
        Spot {
            key: PublicKey([id; 32]),
            name: format!("n{id}"),
            addresses: Vec::new(),
            nets: [u64::from(id)].into(),
            is_exit,
            operator: None,
            is_there: true,
        }
    }

    #[test]
    fn ci_07_a_path_has_the_same_entry_and_no_two_hops_of_one_network() {
        let mut spots: Vec<Spot> = (1..=6).map(|id| spot(id, id > 4)).collect();
        spots[2].nets = spots[1].nets.clone();
        let hops: Vec<&Spot> = spots.iter().collect();
        let keys: Vec<PublicKey> = hops.iter().map(|spot| spot.key).collect();
        let mut guards = Guards::default();
        guards.look(&keys, &keys, 1);
        let mut entries = BTreeSet::new();
        for turn in 0..50 {
            let path = choose(&hops, None, 3, &|_| false, (&guards, [turn; 32])).unwrap();
            assert_eq!(path.len(), 3);
            assert!(path[2].is_exit, "the last one is an exit");
            for (at, hop) in path.iter().enumerate() {
                let others = path.iter().enumerate().filter(|(other, _)| *other != at);
                assert!(others.map(|(_, other)| other).all(|other| hop.is_near(other).is_none()));
            }
            entries.insert(path[0].key);
        }
        assert_eq!(entries.len(), 1, "{entries:?}");
        let first = entries.first().copied();
        let others: Vec<&Spot> = spots.iter().filter(|spot| Some(spot.key) != first).collect();
        let drawn = (&guards, [0; 32]);
        let path = choose(&others, None, 3, &|_| false, drawn).unwrap();
        assert!(!entries.contains(&path[0].key), "the next one, where it is away");
        let back = choose(&hops, None, 3, &|_| false, drawn).unwrap();
        assert_eq!(Some(back[0].key), first, "until it is back");
        assert!(
            choose(&hops[..4], None, 3, &|_| false, drawn).unwrap_err().contains("--via"),
            "no exit"
        );
        assert!(
            choose(&hops, None, 6, &|_| false, drawn).is_err(),
            "two of them are in one network"
        );
        assert_eq!(
            choose(&hops, Some(&spots[5]), 3, &|_| false, drawn).unwrap()[2].key,
            spots[5].key
        );
    }

    #[test]
    fn ci_07_two_hops_of_one_operator_stand_in_no_path() {
        let mut spots: Vec<Spot> = (1..=4).map(|id| spot(id, id > 2)).collect();
        for (at, operator) in [(0, "alice"), (1, "bob"), (2, "alice"), (3, "carol")] {
            spots[at].operator = Some(operator.to_owned());
        }
        let mut guards = Guards::default();
        let keys: Vec<PublicKey> = spots.iter().map(|spot| spot.key).collect();
        guards.look(&keys, &keys, 1);
        for turn in 0..50 {
            let hops: Vec<&Spot> = spots.iter().collect();
            let path = choose(&hops, None, 3, &|_| false, (&guards, [turn; 32])).unwrap();
            let operators: BTreeSet<_> = path.iter().map(|spot| &spot.operator).collect();
            assert_eq!(operators.len(), 3, "{path:?}");
        }
        let few: Vec<&Spot> = spots[..3].iter().collect();
        assert!(
            choose(&few, None, 3, &|_| false, (&guards, [0; 32])).is_err(),
            "only two operators"
        );
        assert!(spots[0].is_near(&spots[2]).unwrap().contains("alice"));
    }

    #[test]
    fn who_was_silent_as_the_entry_is_tried_behind_another_where_hops_are_few() {
        let spots: Vec<Spot> = (1..=3).map(|id| spot(id, id == 3)).collect();
        let hops: Vec<&Spot> = spots.iter().collect();
        let keys: Vec<PublicKey> = hops.iter().map(|spot| spot.key).collect();
        let mut guards = Guards::default();
        guards.look(&keys, &[keys[1], keys[0], keys[2]], 1);
        let path = |is_silent: &dyn Fn(&PublicKey) -> bool| -> Vec<PublicKey> {
            let path = choose(&hops, None, 3, is_silent, (&guards, [0; 32])).unwrap();
            path.iter().map(|spot| spot.key).collect()
        };
        assert_eq!(path(&|_| false), [keys[1], keys[0], keys[2]]);
        assert_eq!(path(&|key| *key == keys[1]), keys, "it lets no guest in");
        assert_eq!(path(&|_| true), [keys[1], keys[0], keys[2]], "nobody else can be");
    }
}
