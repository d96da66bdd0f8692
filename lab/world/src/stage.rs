//! Server, machines and what is between them, in one virtual time.
//!
//! Time goes on in turns. In each the data plane runs first, so that every packet that arrived
//! was judged by what its receiver knew when the turn began; then the server, then the letters
//! between it and the machines, then the machines.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use control::Relay;
use control::client::{Ask, AskId, Outcome};
use noise::{Instant, PrivateKey, PublicKey};
use server::store::{NewUser, Node};
use sim::nat::Behaviour;
use sim::rng::Rng;
use sim::world::{NatId, Route, World};
use tracing::dispatcher::DefaultGuard;

use super::errors::Errors;
use super::machine::{Machine, Way};
use super::member::Member;
use super::model::{Model, difference};
use super::office::{EPHEMERAL_AWAY_S, Office};
use super::words::{self, Said};

/// Length of a turn.
const TURN: Duration = Duration::from_millis(20);
/// What is remembered of the story.
const STORY_MAX: usize = 60;
/// How long a packet may wait for a session and for its way.
const PACKET_AGE_MAX: Duration = Duration::from_secs(200);
/// How soon a node that is gone is nobody's peer, where the server is in touch.
const REMOVAL_WITHIN: Duration = Duration::from_secs(1);
/// Machines of a world.
const MACHINES: usize = 7;

/// What is under way between a machine and the server.
enum Letter {
    ToServer(Ask),
    ToMachine(AskId, Outcome),
}

/// A packet whose fate is open.
pub(super) struct Sent {
    pub(super) marker: u64,
    pub(super) at: Instant,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) ends: (IpAddr, IpAddr),
    pub(super) said: Said,
    /// Its sender knew a policy that lets it pass.
    is_let_go: bool,
    /// It answers one that arrived.
    is_reply: bool,
}

/// Somebody who must not have a peer any more.
struct Due {
    at: Instant,
    since: Instant,
    machine: usize,
    /// The peer; nothing stands for all.
    gone: Option<PublicKey>,
}

pub(super) struct Stage {
    pub(super) seed: u64,
    pub(super) rng: Rng,
    pub(super) world: World,
    pub(super) office: Office,
    pub(super) model: Model,
    pub(super) machines: Vec<Machine>,
    pub(super) nats: Vec<NatId>,
    pub(super) relays: [bool; 2],
    letters: BTreeMap<(Instant, u64), (usize, u64, Letter)>,
    numbered: u64,
    sent: Vec<Sent>,
    dues: Vec<Due>,
    /// Nodes of the books that no machine is any more, and when they were last in touch.
    ghosts: BTreeMap<u64, Instant>,
    server_since: Instant,
    swept_at: Instant,
    source_port: u16,
    pub(super) steps: u64,
    pub(super) counts: BTreeMap<&'static str, u64>,
    story: VecDeque<String>,
    errors: Errors,
    _guard: DefaultGuard,
}

impl Stage {
    pub(super) fn new(seed: u64) -> Self {
        let errors = Errors::default();
        let guard = tracing::dispatcher::set_default(&errors.dispatch());
        let mut rng = Rng::new(seed ^ 0x0ff1_ce00);
        let mut world = World::new(seed);
        let stun = (0..2).map(|_| world.stun().to_string()).collect();
        let relays = [0, 1].map(|_| world.relay()).map(|_| true);
        let kinds = [
            Behaviour::FULL_CONE,
            Behaviour::ADDRESS_RESTRICTED,
            Behaviour::PORT_RESTRICTED,
            Behaviour::SYMMETRIC,
        ];
        let nats = kinds.iter().chain(&kinds).map(|kind| world.nat(*kind)).collect();
        let needs_approval = rng.chance(0.25);
        let office = Office::new(rng.fork(1), stun, needs_approval, errors.clone());
        let machines = (0..MACHINES).map(|number| {
            let host = world.host(false);
            world.set_frames(host, rng.chance(0.8));
            let hostname = ["robot", "dev", "cam"][rng.below(3) as usize].to_owned();
            Machine::new(number, host, hostname, rng.fork(number as u64 + 2))
        });
        let machines = machines.collect();
        let mut stage = Self {
            seed,
            world,
            office,
            model: Model::new(needs_approval),
            machines,
            nats,
            relays,
            letters: BTreeMap::new(),
            numbered: 0,
            sent: Vec::new(),
            dues: Vec::new(),
            ghosts: BTreeMap::new(),
            server_since: Instant::ZERO,
            swept_at: Instant::ZERO,
            source_port: 10_000,
            steps: 0,
            counts: BTreeMap::new(),
            story: VecDeque::new(),
            errors,
            _guard: guard,
            rng,
        };
        stage.found();
        stage
    }

    /// The first start of the server, its users, and the relay beside its own.
    fn found(&mut self) {
        self.office.start();
        let service = self.office.service();
        for user in words::USERS {
            let new = NewUser::member(user);
            service.write_users(|store, now| store.add_user(&new, None, "world", now)).unwrap();
        }
        let url = "https://relay.test".parse().unwrap();
        let key = PublicKey([7; 32]);
        let relay = Relay { id: 0, url, key, stun: Vec::new(), quic: false, icmp: false };
        service.put_relay(relay, "world").unwrap();
        self.noted();
        for number in 0..MACHINES {
            self.place_anywhere(number);
            self.boot(number);
        }
    }

    /// Tells the story.
    pub(super) fn tell(&mut self, what: &str) {
        let ms = self.world.now().0 / 1_000_000;
        if self.story.len() >= STORY_MAX {
            self.story.pop_front();
        }
        self.story.push_back(format!("t={}.{:03} {what}", ms / 1000, ms % 1000));
    }

    /// Ends the world with its story.
    pub(super) fn fail(&self, what: &str) -> ! {
        let mut text = format!("seed {}, step {}: {what}\n", self.seed, self.steps);
        text.push_str("the last of the story:\n");
        for line in &self.story {
            let _ = writeln!(text, "  {line}");
        }
        let _ = writeln!(text, "the books:");
        for member in &self.model.books.members {
            let _ = writeln!(text, "  {member:?}");
        }
        let _ = writeln!(text, "the policy: {}", words::print(&self.model.books.text));
        for machine in &self.machines {
            let map = machine.map.as_ref().map(|map| (map.epoch, map.sequence));
            let way = machine.way;
            let refusal = machine.refusal.as_ref().map(|r| r.code);
            let _ = writeln!(
                text,
                "  m{} on: {} way: {way:?} map: {map:?} at {:?} refused: {refusal:?}",
                machine.number,
                machine.is_on,
                self.world.address(machine.host),
            );
        }
        panic!("{text}run it alone: WARREN_SEED={} with the same test", self.seed)
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Remembers from which version of the server's on the books are as they are.
    pub(super) fn noted(&mut self) {
        self.model.note(self.office.version());
    }

    pub(super) fn boot(&mut self, number: usize) {
        let server = self.office.public();
        self.machines[number].boot(&mut self.world, (&self.office.url, server));
    }

    pub(super) fn start(&mut self, number: usize) {
        let server = self.office.public();
        self.machines[number].start(&mut self.world, (&self.office.url, server));
    }

    /// Puts a machine behind a translator, in the open, or where no UDP passes.
    pub(super) fn place_anywhere(&mut self, number: usize) {
        let host = self.machines[number].host;
        let nats = self.nats.len() as u64;
        let place = self.rng.below(nats + 3);
        let v6 = self.rng.chance(0.3);
        let nat = self.nats.get(place as usize).copied();
        self.world.place_at(host, nat, v6 && place != nats);
        self.world.set_udp_blocked(host, place == nats);
        self.machines[number].network_changed(&mut self.world);
        self.office.hang_up(number);
        self.tell(&format!("m{number} is at {} (place {place})", self.world.address(host)));
    }

    pub(super) fn set_relay(&mut self, relay: usize, works: bool) {
        self.relays[relay] = works;
        // The first one is a part of the server.
        let works = works && (relay != 0 || self.office.is_up());
        self.world.set_relay(relay as u32, works);
    }

    pub(super) fn stop_server(&mut self) {
        for (machine, ask) in self.office.stop() {
            let life = self.machines[machine].life;
            self.post(machine, life, Letter::ToMachine(ask, Outcome::Failed));
        }
        self.set_relay(0, self.relays[0]);
    }

    pub(super) fn start_server(&mut self) {
        self.office.start();
        self.server_since = self.world.now();
        self.swept_at = self.world.now();
        self.set_relay(0, self.relays[0]);
        self.noted();
    }

    pub(super) fn set_way(&mut self, number: usize, way: Way) {
        let machine = &mut self.machines[number];
        machine.way = way;
        machine.disturbed = self.world.now();
        if way == Way::Refused {
            self.office.hang_up(number);
            // Its client notices that the connection is gone.
            if let Some(client) = &mut self.machines[number].client {
                client.handle_network_change();
            }
        }
    }

    /// Lets time pass.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.world.now() + time;
        while self.world.now() < end {
            self.turn();
        }
    }

    fn turn(&mut self) {
        self.world.run(TURN);
        let now = self.world.now();
        self.judge_packets();
        for (machine, ask, outcome) in self.office.advance(now) {
            let life = self.machines[machine].life;
            self.post(machine, life, Letter::ToMachine(ask, outcome));
        }
        if self.office.is_up() && now >= self.swept_at + Duration::from_secs(1) {
            self.swept_at = now;
            self.office.sweep();
            self.compare_books(None);
        }
        while let Some(entry) = self.letters.first_entry().filter(|entry| entry.key().0 <= now) {
            let (machine, life, letter) = entry.remove();
            self.deliver(machine, life, letter);
        }
        for number in 0..self.machines.len() {
            self.ask(number);
        }
        self.look_at_dues();
        if let Some(error) = self.errors.first() {
            self.fail(&format!("an ERROR was logged: {error}"));
        }
    }

    fn post(&mut self, machine: usize, life: u64, letter: Letter) {
        let delay = Duration::from_millis(5 + self.rng.below(40));
        self.post_after(delay, machine, life, letter);
    }

    fn post_after(&mut self, delay: Duration, machine: usize, life: u64, letter: Letter) {
        self.numbered += 1;
        let at = self.world.now() + delay;
        self.letters.insert((at, self.numbered), (machine, life, letter));
    }

    fn deliver(&mut self, number: usize, life: u64, letter: Letter) {
        let machine = &mut self.machines[number];
        let is_there = machine.life == life && machine.is_on;
        match letter {
            // Nobody hears it, or says anything: the machine gives up in the end.
            Letter::ToServer(_) if machine.way == Way::Silent => {}
            Letter::ToMachine(_, ref outcome)
                if machine.way == Way::Silent && *outcome != Outcome::Failed => {}
            Letter::ToServer(ask) if machine.way == Way::Refused => {
                self.post(number, life, Letter::ToMachine(ask.id, Outcome::Failed));
            }
            Letter::ToServer(ask) => {
                if !is_there {
                    return;
                }
                let outcome = self.office.take(number, &ask);
                if self.office.is_up() {
                    self.compare_books(Some(number));
                }
                if let Some(outcome) = outcome {
                    self.post(number, life, Letter::ToMachine(ask.id, outcome));
                }
            }
            Letter::ToMachine(id, outcome) if is_there => {
                machine.answered(id, outcome, self.world.now());
            }
            Letter::ToMachine(..) => {}
        }
    }

    /// A machine does what is due, and asks.
    fn ask(&mut self, number: usize) {
        let now = self.world.now();
        let streams = [self.relays[0] && self.office.is_up(), self.relays[1]];
        if self.office.has_poll(number) {
            self.machines[number].contact = now;
        }
        let machine = &mut self.machines[number];
        machine.turn(&mut self.world, &self.model, &streams);
        if std::mem::take(&mut machine.has_forgotten)
            && let Some(id) = self.model.forgotten(number)
        {
            self.ghosts.insert(id, machine.contact);
            self.office.hang_up(number);
        }
        let machine = &mut self.machines[number];
        let life = machine.life;
        let mut asks = Vec::new();
        if let Some(client) = machine.client.as_mut().filter(|_| machine.is_on) {
            asks.extend(std::iter::from_fn(|| client.poll_ask(now, &mut machine.rng)));
        }
        for ask in asks {
            self.post_after(ask.within, number, life, Letter::ToMachine(ask.id, Outcome::Failed));
            self.post(number, life, Letter::ToServer(ask));
        }
    }

    /// Hands a first datagram from one machine to another to its node. Nothing if either never had
    /// an address.
    pub(super) fn send(&mut self, from: usize, to: usize, said: Said) -> Option<u64> {
        self.source_port = if self.source_port == u16::MAX { 10_000 } else { self.source_port + 1 };
        let ports = (self.source_port, said.port);
        self.hand((from, to), said, ports, false)
    }

    /// Answers something that came from this port.
    pub(super) fn reply(&mut self, ends: (usize, usize), said: Said, port: u16) -> Option<u64> {
        self.hand(ends, said, (said.port, port), true)
    }

    pub(super) const fn last_port(&self) -> u16 {
        self.source_port
    }

    fn hand(
        &mut self,
        ends: (usize, usize),
        said: Said,
        ports: (u16, u16),
        is_reply: bool,
    ) -> Option<u64> {
        let (from, to) = ends;
        let sender = &self.machines[from];
        let receiver = &self.machines[to];
        let known = |number| self.model.books.of(number).map(|member| member.addresses);
        let of = |machine: &Machine| known(machine.number).or(machine.addresses);
        let at = usize::from(said.v6);
        let ends = (sender.addresses.or_else(|| of(sender))?[at], of(receiver)?[at]);
        let is_let_go = sender.books().is_some_and(|books| books.lets(ends, said));
        let route = Route {
            from: sender.host,
            to: receiver.host,
            source: ends.0,
            destination: ends.1,
            genuine: true,
        };
        let len = [40, 700, 1300][self.rng.below(3) as usize];
        let marker = self.world.send_by(route, ports, len);
        let at = self.world.now();
        self.sent.push(Sent { marker, at, from, to, ends, said, is_let_go, is_reply });
        Some(marker)
    }

    pub(super) fn is_delivered(&self, marker: u64) -> bool {
        self.world.ledger().delivered_at(marker).is_some()
    }

    /// Whatever arrived was let pass by what its sender knew then, and its receiver now.
    fn judge_packets(&mut self) {
        let now = self.world.now();
        let mut arrived = Vec::new();
        let mut sent = std::mem::take(&mut self.sent);
        sent.retain(|packet| {
            let is_there = self.is_delivered(packet.marker);
            let is_open = !is_there && now.since(packet.at) < PACKET_AGE_MAX;
            if is_there {
                let books = self.machines[packet.to].books();
                let is_let_in = books.is_some_and(|books| books.lets(packet.ends, packet.said));
                arrived.push((packet.marker, is_let_in));
                let may_pass = packet.is_reply || (packet.is_let_go && is_let_in);
                if !may_pass {
                    self.fail(&format!(
                        "m{} to m{}, {} to {} {:?} arrived; by what its sender knew it may go: {}, \
                         by what its receiver knows it may come: {is_let_in}\n{}",
                        packet.from,
                        packet.to,
                        packet.ends.0,
                        packet.ends.1,
                        packet.said,
                        packet.is_let_go,
                        self.world.story(),
                    ));
                }
            }
            is_open
        });
        self.sent = sent;
        arrived.iter().for_each(|_| self.count("arrived"));
    }

    /// From now on this node has to be nobody's peer. Whoever is in touch hears it in time.
    pub(super) fn expect_gone(&mut self, number: usize, key: PublicKey) {
        let since = self.world.now();
        let at = self.world.now() + REMOVAL_WITHIN;
        for machine in &self.machines {
            let is_in_touch =
                machine.is_on && machine.way == Way::Open && self.office.has_poll(machine.number);
            if is_in_touch {
                let gone = (machine.number != number).then_some(key);
                self.dues.push(Due { at, since, machine: machine.number, gone });
            }
        }
    }

    fn look_at_dues(&mut self) {
        let now = self.world.now();
        let dues = std::mem::take(&mut self.dues);
        let (due, later): (Vec<Due>, Vec<Due>) = dues.into_iter().partition(|due| due.at <= now);
        self.dues = later;
        for due in due {
            let machine = &self.machines[due.machine];
            if machine.disturbed >= due.since || self.server_since >= due.since {
                continue;
            }
            // It may be in again already.
            let members = self.model.books.members.iter().filter(|member| member.is_good());
            let mut back = members.filter(|member| match due.gone {
                Some(key) => member.key == key,
                None => member.machine == due.machine,
            });
            if back.next().is_some() {
                continue;
            }
            let peers = self.world.node(machine.host).peers(now, Duration::ZERO);
            let is_peer = peers.iter().any(|peer| due.gone.is_none_or(|key| peer.key == key));
            if is_peer && self.office.is_up() {
                let whom = due.gone.map_or_else(|| "others".to_owned(), |key| key.to_string());
                let number = due.machine;
                self.fail(&format!("1 s later m{number} still has as peers {whom}"));
            }
            self.count("cut in 1 s");
        }
    }

    /// Holds the books of the server against those of the model, after a machine asked for
    /// something, or after the server's regular work.
    pub(super) fn compare_books(&mut self, by: Option<usize>) {
        let now_s = self.office.now_s();
        let before = Rc::clone(&self.model.books);
        let nodes = self.office.service().store().nodes().unwrap();
        for node in &nodes {
            if let Err(what) = self.compare_node(node, by, now_s) {
                self.fail(&what);
            }
        }
        let gone: Vec<_> = self.model.books.members.iter().map(|m| (m.id, m.machine)).collect();
        for (id, machine) in gone {
            if nodes.iter().any(|node| node.id == id) {
                continue;
            }
            self.may_be_gone(id, machine, by);
            self.model.gone(id, now_s);
        }
        if !Rc::ptr_eq(&before, &self.model.books) {
            self.noted();
        }
    }

    fn compare_node(&mut self, node: &Node, by: Option<usize>, now_s: u64) -> Result<(), String> {
        let known = self.model.books.members.iter().find(|member| member.id == node.id).cloned();
        match (known, by) {
            (None, None) => return Err(format!("{node:?} is there and never asked")),
            (None, Some(number)) => {
                let (v4, v6) = self.office.service().store().pool().addresses(node.number);
                let asking = self.machines[number].asking();
                self.model.joined(&asking, node, [v4.into(), v6.into()], now_s)?;
                self.tell(&format!("m{number} is {} {v4} with node {}", node.name, node.id));
                self.count("joined");
            }
            (Some(member), Some(number)) if member.machine == number => {
                self.compare_asker(&member, node, now_s)?;
            }
            (Some(_), _) => {}
        }
        let member = self.model.books.members.iter().find(|member| member.id == node.id);
        member.and_then(|member| difference(member, node)).map_or(Ok(()), Err)
    }

    /// A member has asked for something, and may have another key or be in again.
    fn compare_asker(&mut self, member: &Member, node: &Node, now_s: u64) -> Result<(), String> {
        let asker = &self.machines[member.machine];
        let is_again = member.expired && node.expires.is_none();
        if is_again {
            self.model.rejoined(&asker.asking(), now_s)?;
        }
        let next = asker.disk.next.as_ref().map(PrivateKey::public);
        let own = [Some(asker.disk.node.public()), next];
        let is_other = node.node_key != member.key && own.contains(&Some(node.node_key));
        if is_other {
            self.model.alter(member.machine, |member| member.key = node.node_key);
            self.count("other key");
        }
        if is_again {
            self.tell(&format!("m{} has joined again", member.machine));
            self.count("joined again");
        }
        Ok(())
    }

    /// Whether a node that is in the books no more had a reason to go.
    fn may_be_gone(&mut self, id: u64, number: usize, by: Option<usize>) {
        let machine = self.machines.get(number);
        let contact = machine.map(|m| m.contact).or_else(|| self.ghosts.remove(&id));
        let contact = contact.unwrap_or(self.server_since);
        let member = self.model.books.members.iter().find(|member| member.id == id);
        let is_ephemeral = member.is_some_and(|member| member.ephemeral);
        let now = self.world.now();
        let away = now.since(contact.max(self.server_since)).as_secs() + 1;
        let is_leaving = by == Some(number) && machine.is_some_and(|m| m.leaving.is_some());
        let is_abandoned = by.is_none() && is_ephemeral && away >= EPHEMERAL_AWAY_S;
        if !is_leaving && !is_abandoned {
            self.fail(&format!("m{number} is in the books no more; it was away for {away} s"));
        }
        self.count(if is_leaving { "left" } else { "abandoned" });
        self.tell(&format!("m{number} is gone; leaving: {is_leaving}"));
    }
}
