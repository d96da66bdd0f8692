//! Circuits of this node: what the map makes of it and its peers, the path that is chosen, and the
//! commands. Which packets go where is the data loop's; nobody but this node knows a path.

mod directory;
mod doors;
mod guards;
mod machine;
mod path;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use control::{Map, Peer, Prefix};
use node::GUESTS_MAX;
use node::circuit::{CircuitId, End, ExitRules, HOPS_MAX, Refused, Standing, State, Status};
use noise::PublicKey;
use policy::Rules;
use serde_json::{Value, json};

use super::{Daemon, Fault};
use crate::circuits::{CircuitAsk, HOP, Wanted, has, is_exit, name_server};
use crate::plan::wire_prefix;
use crate::protocol::{SCHEMA, done, refused};
use directory::Book;
pub(crate) use doors::DoorAsk;
use doors::Doors;
use guards::{Guards, Silent};
use machine::MachineCircuit;

/// A circuit that died is built again so often.
const AGAIN: Duration = Duration::from_millis(500);

/// What the data loop was told, and which circuits are wanted.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    told: Option<Told>,
    wanted: BTreeMap<u16, (Wanted, Instant)>,
    /// Hops that did not answer lately.
    silent: Silent,
    /// Whom this node enters by.
    guards: Guards,
    machine: MachineCircuit,
    doors: Doors,
    book: Book,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Told {
    is_hop: bool,
    exit: Option<ExitRules>,
    guests: usize,
    /// How long cells are held back as a hop, and how many a second leave at least.
    batch: Duration,
    cover: u32,
    peers: BTreeMap<PublicKey, (bool, bool)>,
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
            node.set_circuit_guests(now.as_ref().map_or(0, |told| told.guests));
            let batch = now.as_ref().map_or(Duration::ZERO, |told| told.batch);
            node.set_circuit_cover(batch, now.as_ref().map_or(0, |told| told.cover));
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
        let mut peers: BTreeMap<PublicKey, (bool, bool)> = peers.collect();
        for key in self.book_links() {
            peers.entry(*key).or_default().1 = true;
        }
        let settings = &self.state.kept.settings;
        let exit = is_exit(map).then(|| {
            let own = map.me.addresses.iter().copied().map(Prefix::host);
            let refused = map.ranges.iter().copied().chain(own);
            let upstreams: Vec<IpAddr> = self.gate.upstreams().collect();
            ExitRules {
                refused: refused.map(|prefix| wire_prefix(&prefix)).collect(),
                allowed: Vec::new(),
                name_server: name_server(map, settings.circuit_names, &upstreams),
                leads_six: host::linux::ipv6_route::leads_six(self.interface.name()),
            }
        });
        let guests = if is_hop && settings.circuit_guests { GUESTS_MAX } else { 0 };
        let batch = Duration::from_millis(settings.circuit_batch_ms.into());
        let cover = settings.circuit_cover.into();
        Told { is_hop, exit, guests, batch, cover, peers }
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
                let found = self.remote.call(move |desk| {
                    let (node, clock, _) = desk.node();
                    let status = node.circuits().status(id);
                    node.close_circuit(id, true, clock.now);
                    status
                })?;
                if let Some(status) = &found {
                    self.note_silent(status);
                }
                Ok(if found.is_some() { done() } else { refused(unknown(id)) })
            }
        }
    }

    fn open_circuit(&mut self, wanted: &Wanted) -> Result<Value, Fault> {
        Ok(match self.open_wanted(wanted)? {
            Ok(id) => json!({ "schema": SCHEMA, "id": id.0 }),
            Err(why) => refused(why),
        })
    }

    /// Begins a circuit as it is wanted, and keeps it up if that is wanted too.
    fn open_wanted(&mut self, wanted: &Wanted) -> Result<Result<CircuitId, String>, Fault> {
        let path = match self.path(wanted) {
            Ok(path) => path,
            Err(why) => return Ok(Err(why)),
        };
        let begun = self.begin(path, None)?.map_err(text);
        if let (Ok(id), true) = (&begun, wanted.again) {
            self.circuits.wanted.insert(id.0, (wanted.clone(), Instant::now()));
        }
        Ok(begun)
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

    /// Builds circuits again that died and are wanted still, and looks after those that the machine
    /// itself uses.
    pub(crate) fn keep_circuits(&mut self) -> Result<(), Fault> {
        self.keep_directory()?;
        self.keep_machine()?;
        self.keep_doors()?;
        if self.circuits.wanted.is_empty() {
            return Ok(());
        }
        let list = self.remote.call(|desk| desk.node().0.circuits().list().collect::<Vec<_>>())?;
        for (id, status) in list {
            let State::Closed(end) = status.state else { continue };
            let Some((wanted, at)) = self.circuits.wanted.get(&id.0).cloned() else { continue };
            self.note_silent(&status);
            // One that has just failed is given a moment, one that was open none.
            if status.built_in.is_none() && at.elapsed() < AGAIN {
                continue;
            }
            tracing::warn!(circuit = id.0, why = end.text(), "a circuit is dead; building another");
            if let Ok(path) = self.path(&wanted) {
                let _ = self.begin(path, Some(id))?;
            }
            self.circuits.wanted.insert(id.0, (wanted, Instant::now()));
        }
        Ok(())
    }

    /// The next path leaves out for a while who did not answer in this one.
    fn note_silent(&mut self, status: &Status) {
        if let Some(hop) = status.silent.and_then(|at| status.path.get(at)) {
            self.circuits.silent.note(*hop, Instant::now());
        }
    }

    /// The node goes down: nothing of it speaks as a circuit any more.
    pub(crate) fn end_circuits(&mut self) -> Result<(), Fault> {
        self.end_doors();
        self.circuits = Kept::default();
        Ok(self.remote.call(|desk| desk.node().0.set_circuit_machine(None))?)
    }

    fn shown(&self, id: CircuitId, status: &Status) -> Value {
        let name = |key: &PublicKey| {
            let peers = self.map.iter().flat_map(|map| &map.peers);
            let known = peers.map(|peer| (&peer.key, &peer.name));
            let known = known.chain(self.directory_hops().map(|hop| (&hop.key, &hop.name)));
            known.into_iter().find(|(of, _)| *of == key).map(|(_, name)| name.clone())
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
                        "operator": self.operator(key), "knows": knows })
            })
            .collect();
        let (state, end) = match status.state {
            State::Building(_) => ("building", None),
            State::Open => ("open", None),
            State::Closed(end) => ("closed", Some(end)),
        };
        let (asked, answered) = status.pings;
        let mut warnings: Vec<String> = WARNINGS.map(str::to_owned).to_vec();
        warnings.extend(self.path_warnings(&status.path));
        json!({
            "id": id.0, "state": state, "reason": end.map(End::name), "why": end.map(End::text),
            "hops": hops, "address": status.local,
            "silent": status.silent.and_then(|at| name(status.path.get(at)?)),
            "use": self.use_of(id),
            "mtu": status.mtu, "ipv6": status.leads_six,
            "rtt_ms": status.rtt.map(|rtt| rtt.as_secs_f64() * 1000.0),
            "built_ms": status.built_in.map(|took| took.as_secs_f64() * 1000.0),
            "pings": { "asked": asked, "answered": answered },
            "loss_percent": loss_percent(asked, answered),
            "packets": { "out": status.packets.0, "in": status.packets.1 },
            "interface": self.interface.name(), "warnings": warnings,
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

impl Daemon {
    /// Circuits as `status` shows them: what this node is for others, and its own.
    pub(crate) fn shown_circuits(&mut self) -> Result<Value, Fault> {
        let (list, carried) = self.remote.call(|desk| {
            let circuits = desk.node().0.circuits();
            (circuits.list().collect::<Vec<_>>(), circuits.carried())
        })?;
        let told = self.circuits.told.as_ref();
        let own: Vec<Value> = list.iter().map(|(id, status)| self.shown(*id, status)).collect();
        Ok(json!({
            "hop": told.is_some_and(|told| told.is_hop),
            "exit": told.is_some_and(|told| told.exit.is_some()),
            "carried": carried.0,
            "flows": carried.1,
            "own": own,
            "socks": self.shown_door(),
        }))
    }

    /// What a circuit is for, as far as this daemon knows.
    fn use_of(&self, id: CircuitId) -> &'static str {
        if self.circuits.machine.id == Some(id.0) {
            "circuit-for"
        } else if self.circuits.doors.has(id.0) {
            "socks"
        } else {
            "command"
        }
    }
}

/// Of questions that have had the time for an answer.
fn loss_percent(asked: u64, answered: u64) -> f64 {
    // The last one may be under way.
    let due = asked.saturating_sub(1).max(answered);
    let lost = due.saturating_sub(answered);
    if due == 0 { 0.0 } else { (lost as f64 * 1000.0 / due as f64).round() / 10.0 }
}

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
