//! A machine of a world: what `warren daemon` does with the client's events and a map, in the same
//! order, with the node of the world in the place of the data loop.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use control::client::{Outcome, Settings};
use control::limits::ENDPOINTS_MAX;
use control::{
    Client, Code, Event, HostInfo, Map, Refusal, ServerUrl, Signed, Token, VerifyingKey,
};
use daemon::home::Home;
use daemon::plan::{self, Plan};
use node::{Change, Reach};
use noise::{Instant, PrivateKey, PublicKey};
use sim::rng::Rng;
use sim::world::{HostId, World};

use super::model::{Asking, Books, Model};

/// How often it looks for what its node found out, and for what time alone changes.
const TICK: Duration = Duration::from_millis(250);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a logout waits for the server to know.
const LOGOUT_WITHIN: Duration = Duration::from_secs(5);
/// The round trip to every relay.
const RELAY_RTT_US: u64 = 30_000;

/// How its way to the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Open,
    /// What is sent vanishes.
    Silent,
    /// Connections are refused.
    Refused,
}

/// What it keeps over a restart.
pub(super) struct Disk {
    machine: PrivateKey,
    pub(super) node: PrivateKey,
    pub(super) next: Option<PrivateKey>,
    pub(super) token: Option<Token>,
    /// It has joined, or wants to.
    pub(super) is_member: bool,
    verifying: Option<VerifyingKey>,
    cached: Vec<Arc<Signed>>,
    /// What held when the map was made, and the map's version.
    books: Option<((u64, u64), Rc<Books>)>,
}

impl Disk {
    fn new(rng: &mut Rng) -> Self {
        Self {
            machine: PrivateKey::generate(rng),
            node: PrivateKey::generate(rng),
            next: None,
            token: None,
            is_member: false,
            verifying: None,
            cached: Vec::new(),
            books: None,
        }
    }
}

/// A machine.
pub(super) struct Machine {
    pub(super) number: usize,
    pub(super) host: HostId,
    pub(super) hostname: String,
    pub(super) disk: Disk,
    pub(super) client: Option<Client>,
    /// Counts its lives; what was sent to an earlier one is nobody's.
    pub(super) life: u64,
    pub(super) is_on: bool,
    /// Since when it wants to leave.
    pub(super) leaving: Option<Instant>,
    /// It gave up a membership that the server may not know to be over.
    pub(super) has_forgotten: bool,
    pub(super) way: Way,
    pub(super) map: Option<Arc<Map>>,
    pub(super) refusal: Option<Refusal>,
    /// The latest addresses that it was given.
    pub(super) addresses: Option<[IpAddr; 2]>,
    /// When somebody last did something to it.
    pub(super) disturbed: Instant,
    /// When the server was last asked for news by it.
    pub(super) contact: Instant,
    plan: Plan,
    rules: Option<String>,
    told: Option<Reach>,
    /// The relay on which it waits.
    pub(super) home: Home,
    clock: Option<(u64, Instant)>,
    look_at: Instant,
    applied_at: Instant,
    pub(super) rng: Rng,
}

impl Machine {
    pub(super) fn new(number: usize, host: HostId, hostname: String, mut rng: Rng) -> Self {
        Self {
            number,
            host,
            hostname,
            disk: Disk::new(&mut rng),
            client: None,
            life: 0,
            is_on: true,
            leaving: None,
            has_forgotten: false,
            way: Way::Open,
            map: None,
            refusal: None,
            addresses: None,
            disturbed: Instant::ZERO,
            contact: Instant::ZERO,
            plan: Plan::default(),
            rules: None,
            told: None,
            home: Home::default(),
            clock: None,
            look_at: Instant::ZERO,
            applied_at: Instant::ZERO,
            rng,
        }
    }

    pub(super) fn asking(&self) -> Asking<'_> {
        Asking {
            machine: self.number,
            hostname: &self.hostname,
            machine_key: self.disk.machine.public(),
            node_key: self.disk.node.public(),
            token: self.disk.token.as_ref(),
        }
    }

    /// What held when its map was made, if it has one.
    pub(super) fn books(&self) -> Option<&Rc<Books>> {
        self.map.as_ref().and(self.disk.books.as_ref()).map(|(_, books)| books)
    }

    /// Whether the server still talks with it.
    pub(super) fn is_ended(&self) -> bool {
        self.client.is_none() || self.refusal.is_some()
    }

    /// Its process begins anew, with what is on its disk.
    pub(super) fn boot(&mut self, world: &mut World, server: (&ServerUrl, PublicKey)) {
        self.kill(world);
        self.is_on = true;
        world.begin(self.host, self.disk.node.clone());
        if self.disk.is_member {
            self.start(world, server);
        }
    }

    /// Its process ends.
    pub(super) fn kill(&mut self, world: &World) {
        self.life += 1;
        self.disturbed = world.now();
        self.client = None;
        self.map = None;
        self.refusal = None;
        self.plan = Plan::default();
        self.rules = None;
        self.told = None;
        self.clock = None;
        self.leaving = None;
        self.is_on = false;
        self.home = Home::default();
    }

    /// As `warren up`, with a token or with what is kept.
    pub(super) fn start(&mut self, world: &mut World, server_at: (&ServerUrl, PublicKey)) {
        let (url, server) = server_at;
        self.life += 1;
        self.refusal = None;
        self.disk.is_member = true;
        world.change(self.host, &[Change::PrivateKey(Some(self.disk.node.clone()))]);
        self.tell_reach(world, true);
        let settings = Settings {
            urls: vec![url.clone()],
            server,
            machine: self.disk.machine.clone(),
            node_key: self.disk.node.public(),
            next_key: self.disk.next.as_ref().map(PrivateKey::public),
            join: self.disk.token.as_ref().map(|token| (token.id, token.secret.clone())),
            signs_in: false,
            verifying: self.disk.verifying,
            host: self.host_info(world),
        };
        self.client = Some(Client::new(settings, self.disk.cached.clone()));
    }

    /// The map on its disk is gone.
    pub(super) fn lose_map(&mut self) {
        self.disk.cached = Vec::new();
        self.disk.books = None;
    }

    /// Its key, all of its memory of a network, and its membership are gone.
    pub(super) fn forget(&mut self) {
        self.disk = Disk::new(&mut self.rng);
    }

    fn host_info(&self, world: &World) -> HostInfo {
        let mut endpoints = world.node(self.host).reach().endpoints;
        endpoints.truncate(ENDPOINTS_MAX);
        HostInfo {
            hostname: self.hostname.clone(),
            os: "linux".to_owned(),
            program: "world".to_owned(),
            endpoints,
            routes: Vec::new(),
            aliases: Vec::new(),
            down: Vec::new(),
            relay: self.home.relay(),
        }
    }

    fn tell_reach(&mut self, world: &mut World, is_changed: bool) {
        let map = self.map.as_deref();
        let parse = |text: &String| text.parse::<SocketAddr>().ok();
        let told = Reach {
            stun: map.map(|map| map.stun.iter().filter_map(parse).collect()).unwrap_or_default(),
            local: Vec::new(),
            opened: None,
            relays: map.map(plan::relays).unwrap_or_default(),
            overlay: map.map(plan::overlay).unwrap_or_default(),
        };
        if self.told.as_ref() == Some(&told) && !is_changed {
            return;
        }
        world.set_reach(self.host, told.clone());
        self.told = Some(told);
        if is_changed {
            world.network_changed(self.host);
        }
    }

    /// Its network is another one.
    pub(super) fn network_changed(&mut self, world: &mut World) {
        self.disturbed = world.now();
        if self.client.is_some() {
            self.tell_reach(world, true);
            self.report(world);
        }
        if let Some(client) = &mut self.client {
            client.handle_network_change();
        }
    }

    fn report(&mut self, world: &World) {
        let info = self.host_info(world);
        if let Some(client) = &mut self.client {
            client.handle_host(info);
        }
    }

    /// What became of what it asked.
    pub(super) fn answered(&mut self, id: control::client::AskId, outcome: Outcome, now: Instant) {
        if let Some(client) = &mut self.client {
            client.handle_outcome(id, outcome, now, &mut self.rng);
        }
    }

    /// Does what is due. `streams` says which relays work.
    pub(super) fn turn(&mut self, world: &mut World, model: &Model, streams: &[bool]) {
        while let Some(event) = self.client.as_mut().and_then(Client::poll_event) {
            self.take(event, world, model);
        }
        let now = world.now();
        if self.leaving.is_some_and(|since| now.since(since) >= LOGOUT_WITHIN) {
            self.left(world);
        }
        if !self.is_on || self.map.is_none() || now < self.look_at {
            return;
        }
        self.look_at = now + TICK;
        let works = |relay: &u32| streams.get(*relay as usize) == Some(&true);
        let relays = self.map.as_deref().map(plan::relays).unwrap_or_default();
        let up: Vec<_> =
            relays.into_iter().filter(works).map(|r| (r, Some(RELAY_RTT_US))).collect();
        let has_moved = self.home.choose(&self.disk.node.public(), &up);
        if world.poll_reach(self.host).is_some() || has_moved {
            self.report(world);
        }
        if now >= self.applied_at + LOOK_EVERY {
            self.apply(world);
        }
    }

    fn take(&mut self, event: Event, world: &mut World, model: &Model) {
        match event {
            Event::Opened { now_unix_s } => self.clock = Some((now_unix_s, world.now())),
            Event::Enrolled(_) => self.disk.token = None,
            Event::Changed(_) => self.take_map(world, model),
            Event::Rotated(key) => {
                let next = self.disk.next.take_if(|next| next.public() == key);
                if let Some(next) = next {
                    self.disk.node = next.clone();
                    world.change(self.host, &[Change::PrivateKey(Some(next))]);
                }
            }
            Event::Trouble(_) | Event::InTouch => {}
            Event::Ended(refusal) => {
                if matches!(refusal.code, Code::NotEnrolled | Code::Expired) {
                    self.map = None;
                    self.disk.cached = Vec::new();
                    self.put(Plan::default(), world);
                }
                if self.map.is_none() {
                    self.disk.token = None;
                }
                self.refusal = Some(refusal);
                if self.leaving.is_some() {
                    self.left(world);
                }
            }
            Event::LoggedOut => self.left(world),
            // Machines of a world have tokens, and end without a word.
            Event::SignIn(_) | Event::Stopped { .. } => {}
        }
    }

    /// The membership is over, as its owner wanted.
    fn left(&mut self, world: &mut World) {
        self.kill(world);
        self.is_on = true;
        world.change(self.host, &[Change::ReplacePeers, Change::PrivateKey(None)]);
        self.has_forgotten = true;
        self.forget();
    }

    fn take_map(&mut self, world: &mut World, model: &Model) {
        let Some(client) = &self.client else { return };
        self.disk.verifying = client.verifying();
        self.disk.cached = client.cached().to_vec();
        self.map = client.map().cloned();
        let Some(map) = &self.map else { return };
        if let [v4, v6] = map.me.addresses[..] {
            self.addresses = Some([v4, v6]);
        }
        let version = (map.epoch, map.sequence);
        if self.disk.books.as_ref().is_none_or(|(known, _)| *known != version) {
            self.disk.books = model.at(map.epoch, map.sequence).map(|books| (version, books));
        }
        self.tell_reach(world, false);
        self.tell_policy(world);
        self.apply(world);
    }

    fn tell_policy(&mut self, world: &mut World) {
        let rules = self.map.as_ref().map(|map| map.policy.rules.clone());
        if rules == self.rules {
            return;
        }
        if let Some(text) = &rules
            && world.tell_rules(self.host, text).is_err()
        {
            world.fail("a node cannot read its rules");
        }
        self.rules = rules;
    }

    fn now_unix_s(&self, now: Instant) -> u64 {
        let made = self.map.as_ref().map_or(0, |map| map.made_unix_s);
        self.clock.map_or(made, |(then, at)| made.max(then + now.since(at).as_secs()))
    }

    fn apply(&mut self, world: &mut World) {
        let Some(map) = &self.map else { return };
        self.applied_at = world.now();
        let now_s = self.now_unix_s(world.now());
        let plan = Plan::new(map, &daemon::Settings::default(), now_s, &BTreeMap::new());
        self.put(plan, world);
    }

    fn put(&mut self, plan: Plan, world: &mut World) {
        if plan == self.plan {
            return;
        }
        world.change(self.host, &plan.changes_since(&self.plan));
        for (key, candidates) in plan.moved_since(&self.plan) {
            world.set_candidates(self.host, &key, &candidates);
        }
        self.plan = plan;
    }
}
