//! Circuits of this node: what the map makes of it and its peers, the path that is chosen, and the
//! commands. Which packets go where is the data loop's; nobody but this node knows a path.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use control::{Map, Peer, Prefix};
use node::circuit::{CircuitId, ExitRules, HOPS_MAX, Refused, Standing, State, Status};
use noise::PublicKey;
use policy::Rules;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::member::{Daemon, Fault};
use crate::plan::{is_called, wire_prefix};
use crate::protocol::{SCHEMA, done, refused};

/// As a route of a node: it is a hop.
pub(crate) const HOP: &str = "198.19.0.0/16";
/// As a route of a node: it is an exit.
pub(crate) const EXIT: &str = "198.18.255.0/24";
/// Hops, where no number is asked for.
const HOPS: usize = 3;
/// A circuit that died is built again so often.
const AGAIN: Duration = Duration::from_millis(500);
/// Where the machine's own name servers stand: the first of these is systemd-resolved's list.
const RESOLV_CONF: [&str; 2] = ["/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"];

/// What is asked of circuits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "circuit", rename_all = "kebab-case")]
pub enum CircuitAsk {
    /// To begin one; the answer has its number, and it does not carry yet.
    Open(Wanted),
    /// All of them.
    List,
    /// One of them.
    Show {
        /// Its number.
        id: u16,
    },
    /// To end one.
    Close {
        /// Its number.
        id: u16,
    },
}

/// What a circuit is to be.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// Hops; three if it is not said.
    pub hops: Option<usize>,
    /// These, in this order, by name or address.
    #[serde(default)]
    pub via: Vec<String>,
    /// The last one.
    pub exit: Option<String>,
    /// Whether another one takes its place when it dies.
    #[serde(default)]
    pub again: bool,
}

/// What the data loop was told, and which circuits are wanted.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    told: Option<Told>,
    wanted: BTreeMap<u16, (Wanted, Instant)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Told {
    is_hop: bool,
    exit: Option<ExitRules>,
    peers: BTreeMap<PublicKey, (bool, bool)>,
}

fn has(routes: &[Prefix], what: &str) -> bool {
    what.parse::<Prefix>().is_ok_and(|prefix| routes.contains(&prefix))
}

/// Whether a route is none, but says what a node is to circuits.
pub(crate) fn is_offer(route: &Prefix) -> bool {
    has(std::slice::from_ref(route), HOP) || has(std::slice::from_ref(route), EXIT)
}

/// Whether the map lets this node be an exit.
pub(crate) fn is_exit(map: &Map) -> bool {
    map.me.approved && has(&map.me.routes, EXIT) && has(&map.me.routes, HOP)
}

/// Whom this machine asks for names, other than itself: for circuits that leave here.
pub(crate) fn name_server(
    map: &Map,
    named: Option<Ipv4Addr>,
    upstreams: &[IpAddr],
) -> Option<Ipv4Addr> {
    let is_own = |at: &Ipv4Addr| {
        at.is_loopback() || map.ranges.iter().any(|range| range.contains(IpAddr::V4(*at)))
    };
    let v4 = |at: &IpAddr| if let IpAddr::V4(v4) = at { Some(*v4) } else { None };
    let known = upstreams.iter().filter_map(v4).find(|at| !is_own(at));
    let read = || {
        let texts = RESOLV_CONF.iter().filter_map(|path| std::fs::read_to_string(path).ok());
        let list: Vec<Ipv4Addr> = texts.flat_map(|text| servers(&text)).collect();
        list.into_iter().find(|at| !is_own(at))
    };
    named.or(known).or_else(read)
}

fn servers(text: &str) -> Vec<Ipv4Addr> {
    let line = |line: &str| line.strip_prefix("nameserver")?.trim().parse().ok();
    text.lines().filter_map(line).collect()
}

impl Daemon {
    /// Tells the data loop what this node and its peers are to circuits.
    pub(crate) fn tell_circuits(&mut self) -> Result<(), Fault> {
        let told = self.map.as_deref().filter(|map| map.me.approved).map(|map| self.told_of(map));
        if told == self.circuits.told {
            return Ok(());
        }
        let before = self.circuits.told.take().map(|told| told.peers).unwrap_or_default();
        let now = told.clone();
        self.remote.call(move |desk| {
            let (node, _, random) = desk.node();
            let peers = now.as_ref().map(|told| told.peers.clone()).unwrap_or_default();
            for key in before.keys().filter(|key| !peers.contains_key(key)) {
                node.set_circuit_standing(key, Standing::default(), random);
            }
            for (key, (uses, hop)) in peers {
                node.set_circuit_standing(&key, Standing { uses, hop }, random);
            }
            let (is_hop, exit) = now.map(|told| (told.is_hop, told.exit)).unwrap_or_default();
            node.set_circuit_roles(is_hop, exit);
        })?;
        self.circuits.told = told;
        Ok(())
    }

    fn told_of(&self, map: &Map) -> Told {
        // Who may use hops stands in the rules alone; where there are none nobody may.
        let rules = Rules::read(&map.policy.rules).ok().flatten().unwrap_or_default();
        let hop = HOP.parse::<Prefix>().ok().map(|prefix| prefix.address());
        let may = |peer: &Peer| {
            let pairs = peer.addresses.iter().filter(|at| at.is_ipv4()).zip(hop);
            let mut allowed = pairs.flat_map(|(from, to)| {
                rules.inward.iter().map(move |rule| rule.allows(*from, to, 17, 0))
            });
            allowed.any(|allows| allows)
        };
        let is_hop = has(&map.me.routes, HOP);
        let peers = map.peers.iter().filter(|peer| self.plan.peers.contains_key(&peer.key));
        let peers = peers.map(|peer| (peer.key, (is_hop && may(peer), has(&peer.routes, HOP))));
        let settings = &self.state.kept.settings;
        let exit = is_exit(map).then(|| {
            let own = map.me.addresses.iter().copied().map(Prefix::host);
            let refused = map.ranges.iter().copied().chain(own);
            let upstreams: Vec<IpAddr> = self.gate.upstreams().collect();
            ExitRules {
                refused: refused.map(|prefix| wire_prefix(&prefix)).collect(),
                allowed: Vec::new(),
                name_server: name_server(map, settings.circuit_names, &upstreams),
            }
        });
        Told { is_hop, exit, peers: peers.collect() }
    }

    /// Answers a command.
    pub(crate) fn circuit(&mut self, ask: &CircuitAsk) -> Result<Value, Fault> {
        match ask {
            CircuitAsk::Open(wanted) => self.open_circuit(wanted),
            CircuitAsk::List => {
                let list =
                    self.remote.call(|desk| desk.node().0.circuits().list().collect::<Vec<_>>())?;
                let shown: Vec<Value> =
                    list.iter().map(|(id, status)| self.shown(*id, status)).collect();
                Ok(json!({ "schema": SCHEMA, "circuits": shown }))
            }
            CircuitAsk::Show { id } => {
                let id = CircuitId(*id);
                let found = self.remote.call(move |desk| desk.node().0.circuits().status(id))?;
                Ok(match found {
                    Some(status) => {
                        let mut shown = self.shown(id, &status);
                        shown["schema"] = json!(SCHEMA);
                        shown
                    }
                    None => refused(unknown(id)),
                })
            }
            CircuitAsk::Close { id } => {
                self.circuits.wanted.remove(id);
                let id = CircuitId(*id);
                let closed = self.remote.call(move |desk| {
                    let (node, clock, _) = desk.node();
                    node.close_circuit(id, true, clock.now)
                })?;
                Ok(if closed { done() } else { refused(unknown(id)) })
            }
        }
    }

    fn open_circuit(&mut self, wanted: &Wanted) -> Result<Value, Fault> {
        let path = match self.path(wanted, 0) {
            Ok(path) => path,
            Err(why) => return Ok(refused(why)),
        };
        match self.begin(path, None)? {
            Ok(id) => {
                if wanted.again {
                    self.circuits.wanted.insert(id.0, (wanted.clone(), Instant::now()));
                }
                Ok(json!({ "schema": SCHEMA, "id": id.0 }))
            }
            Err(why) => Ok(refused(text(why))),
        }
    }

    fn begin(
        &mut self,
        path: Vec<PublicKey>,
        again: Option<CircuitId>,
    ) -> Result<Result<CircuitId, Refused>, Fault> {
        Ok(self.remote.call(move |desk| {
            let (node, clock, random) = desk.node();
            node.open_circuit(&path, again, clock.now, random)
        })?)
    }

    /// Builds circuits again that died and are wanted still.
    pub(crate) fn keep_circuits(&mut self) -> Result<(), Fault> {
        if self.circuits.wanted.is_empty() {
            return Ok(());
        }
        let list = self.remote.call(|desk| desk.node().0.circuits().list().collect::<Vec<_>>())?;
        for (id, status) in list {
            let State::Closed(end) = status.state else { continue };
            let Some((wanted, at)) = self.circuits.wanted.get(&id.0).cloned() else { continue };
            if at.elapsed() < AGAIN {
                continue;
            }
            tracing::warn!(circuit = id.0, why = end.text(), "a circuit is dead; building anew");
            let turn = u64::try_from(at.elapsed().as_nanos()).unwrap_or(0);
            // Over other hops, where the path is ours to choose.
            let path = self.path(&wanted, turn | 1);
            if let Ok(path) = path {
                let _ = self.begin(path, Some(id))?;
            }
            self.circuits.wanted.insert(id.0, (wanted, Instant::now()));
        }
        Ok(())
    }

    /// A path as it is wanted. With `turn` the hops behind the entry are others than at first.
    fn path(&self, wanted: &Wanted, turn: u64) -> Result<Vec<PublicKey>, String> {
        let map = self.map.as_deref().filter(|map| map.me.approved);
        let map = map.ok_or("this node is not running; see `warren status`")?;
        let hops: Vec<&Peer> = map.peers.iter().filter(|peer| has(&peer.routes, HOP)).collect();
        let named = |called: &String| {
            let found = hops.iter().find(|peer| is_called(peer, called));
            found.copied().ok_or_else(|| {
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
            let own = self.state.kept.node.public();
            via = choose(&hops, exit, count, (&own, turn))?;
        }
        Ok(via.into_iter().map(|peer| peer.key).collect())
    }

    fn shown(&self, id: CircuitId, status: &Status) -> Value {
        let name = |key: &PublicKey| {
            let map = self.map.as_deref()?;
            Some(map.peers.iter().find(|peer| peer.key == *key)?.name.clone())
        };
        let last = status.path.len() - 1;
        let hops: Vec<Value> = status
            .path
            .iter()
            .enumerate()
            .map(|(at, key)| {
                let knows = match at {
                    0 if at == last => "who sends and where to: one hop hides nothing",
                    0 => "who sends, and the next hop",
                    at if at == last => "where to, what is not encrypted, and the hop before",
                    _ => "the two hops beside it",
                };
                let address = status.addresses.get(at);
                json!({ "name": name(key), "key": key.to_string(), "address": address,
                        "knows": knows })
            })
            .collect();
        let (state, why) = match status.state {
            State::Building(_) => ("building", None),
            State::Open => ("open", None),
            State::Closed(end) => ("closed", Some(end.text())),
        };
        let (asked, answered) = status.pings;
        json!({
            "id": id.0, "state": state, "why": why, "hops": hops, "address": status.local,
            "mtu": status.mtu, "rtt_ms": status.rtt.map(|rtt| rtt.as_secs_f64() * 1000.0),
            "built_ms": status.built_in.map(|took| took.as_secs_f64() * 1000.0),
            "pings": { "asked": asked, "answered": answered },
            "packets": { "out": status.packets.0, "in": status.packets.1 },
            "interface": self.interface.name(), "warnings": WARNINGS,
        })
    }
}

/// What a circuit does not hide, told wherever one is opened.
const WARNINGS: [&str; 4] = [
    "who watches both ends sees when and how much, and can tell that they belong together",
    "entry and exit together know everything: hops of one operator hide nothing from that operator",
    "the exit reads whatever is not encrypted from end to end",
    "programs tell of themselves: accounts, cookies, versions",
];

fn unknown(id: CircuitId) -> String {
    format!("there is no circuit {}; see `warren circuit list`", id.0)
}

fn text(why: Refused) -> String {
    match why {
        Refused::TooMany => "there are as many circuits as there may be; close some".to_owned(),
        Refused::Length => format!("a circuit has 1 to {HOPS_MAX} hops"),
        Refused::Repeated => "a hop stands there twice, or is this node".to_owned(),
        Refused::NoEntry => "the entry is not reached from here; see `warren status`".to_owned(),
    }
}

/// Chooses: the entry that this node always has, an exit, and others between, each reached at a /16
/// of its own.
fn choose<'m>(
    hops: &[&'m Peer],
    exit: Option<&'m Peer>,
    count: usize,
    (own, turn): (&PublicKey, u64),
) -> Result<Vec<&'m Peer>, String> {
    let online: Vec<&Peer> = hops.iter().copied().filter(|peer| peer.online).collect();
    let is_free = |peer: &Peer, chosen: &[&Peer]| {
        chosen.iter().all(|other| other.key != peer.key && !are_near(peer, other))
    };
    let ranked = |salt: &[u8]| {
        let mut list = online.clone();
        list.sort_by_key(|peer| noise::parts::hash(&[b"hop", &own.0, salt, &peer.key.0]));
        list
    };
    let exits = ranked(&fresh(turn));
    let entries = ranked(b"entry");
    let can_leave = |peer: &&&Peer| has(&peer.routes, EXIT);
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
        for peer in ranked(&fresh(turn ^ 1)) {
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
fn fresh(turn: u64) -> [u8; 8] {
    let mut drawn = [0; 8];
    noise::Random::fill(&mut dial::SystemRandom, &mut drawn);
    (u64::from_le_bytes(drawn) ^ turn).to_le_bytes()
}

/// Whether two are reached at one /16 (/32 of IPv6), and so perhaps one operator's.
fn are_near(one: &Peer, other: &Peer) -> bool {
    let net = |at: &std::net::SocketAddr| match at.ip() {
        IpAddr::V4(v4) => u64::from(v4.to_bits() >> 16),
        IpAddr::V6(v6) => 1 << 32 | u64::try_from(v6.to_bits() >> 96).unwrap_or(0),
    };
    one.endpoints.iter().any(|at| other.endpoints.iter().any(|to| net(at) == net(to)))
}

#[cfg(test)]
mod tests {
    use control::NodeId;

    use super::*;

    fn peer(id: u8, routes: &[&str]) -> Peer {
        Peer {
            endpoints: vec![([192, id, 2, 1], 1).into()],
            routes: routes.iter().map(|route| route.parse().unwrap()).collect(),
            online: true,
            ..Peer::new(NodeId(u64::from(id)), format!("n{id}"), PublicKey([id; 32]))
        }
    }

    #[test]
    fn ci_07_a_path_has_the_same_entry_and_no_two_hops_of_one_network() {
        let mut peers: Vec<Peer> = (1..=6).map(|id| peer(id, &[HOP])).collect();
        peers[4].routes.push(EXIT.parse().unwrap());
        peers[5].routes.push(EXIT.parse().unwrap());
        peers[2].endpoints = peers[1].endpoints.clone();
        let hops: Vec<&Peer> = peers.iter().collect();
        let own = PublicKey([9; 32]);
        let mut entries = std::collections::BTreeSet::new();
        for turn in 0..50 {
            let path = choose(&hops, None, 3, (&own, turn)).unwrap();
            assert_eq!(path.len(), 3);
            assert!(has(&path[2].routes, EXIT), "the last one is an exit");
            for (at, hop) in path.iter().enumerate() {
                let others = path.iter().enumerate().filter(|(other, _)| *other != at);
                assert!(others.map(|(_, other)| other).all(|other| !are_near(hop, other)));
            }
            entries.insert(path[0].id);
        }
        assert_eq!(entries.len(), 1, "{entries:?}");
        let first = entries.first().copied();
        let others: Vec<&Peer> = peers.iter().filter(|peer| Some(peer.id) != first).collect();
        let path = choose(&others, None, 3, (&own, 0)).unwrap();
        assert!(!entries.contains(&path[0].id), "the next one, where it is away");
        let back = choose(&hops, None, 3, (&own, 0)).unwrap();
        assert_eq!(Some(back[0].id), first, "until it is back");
        assert!(choose(&hops[..4], None, 3, (&own, 0)).unwrap_err().contains("--via"), "no exit");
        assert!(choose(&hops, None, 6, (&own, 0)).is_err(), "two of them are in one network");
        assert_eq!(choose(&hops, Some(&peers[5]), 3, (&own, 0)).unwrap()[2].id, NodeId(6));
    }

    #[test]
    fn name_servers_are_read_and_the_networks_own_is_none() {
        let text = "# a\nnameserver 127.0.0.53\nnameserver 192.0.2.7\nsearch x\nnameserver ::1\n";
        let list = servers(text);
        assert_eq!(list, [Ipv4Addr::new(127, 0, 0, 53), Ipv4Addr::new(192, 0, 2, 7)]);
    }
}
