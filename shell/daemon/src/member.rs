//! The daemon's own loop: the one owner of state, membership and plan. Everything reaches it
//! through one queue: news of the server, requests of commands, changes of the machine's network.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use control::client::Settings as Opening;
use control::{Code, Event, Kind, Map, Refusal, SignInLink, Token};
use dial::proxy::Proxies;
use dial::{Membership, News, Notify, Pings, Relays, Start};
use host::driver::mail::{Gone, Remote};
use host::gateway::MARK;
use host::linux::systemd::Watchdog;
use node::{Candidate, Change};
use noise::PrivateKey;
use serde_json::Value;

use crate::bandwidth::{Bandwidths, Found};
use crate::failover::Failover;
use crate::gate::Gate;
use crate::home::Home;
use crate::lan::Lan;
use crate::mdns::Mdns;
use crate::plan::Plan;
use crate::ports::{Mapping, Ports};
use crate::promise::Promise;
use crate::seen::Seen;
use crate::socket::Asked;
use crate::state::{Member, State};
use crate::system::Interface;
use crate::trouble::told;

mod bandwidth;
mod circuits;
mod ending;
mod exit;
mod mdns;
mod naming;
mod news;
mod ports;
mod reach;
mod relays;
mod renew;
mod report;
mod set;
mod sharing;
mod stamps;

use self::circuits::{DoorAsk, Kept};
use self::naming::Naming;
pub(crate) use self::reach::stun_names;
use self::reach::{Served, Told};
pub use self::relays::Loop;
use self::renew::Renewal;
pub(crate) use self::set::Waiting;
use self::sharing::Sharing;

/// How often the loop looks for what the data loop found out.
const TICK: Duration = Duration::from_millis(250);
/// How often it looks for what time alone changes: expiry, rotation.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A map that changes all the time is written so often.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// How long a logout waits for the server to know.
pub(crate) const LOGOUT_WITHIN: Duration = Duration::from_secs(5);

/// What reaches the loop.
#[derive(Debug)]
pub(crate) enum Input {
    /// The membership has news.
    News,
    /// A command asks.
    Asked(Box<Asked>),
    /// Links, addresses or routes of the machine changed.
    Network,
    /// Addresses of STUN servers were found.
    Stun(Vec<SocketAddr>),
    /// The gateway gave a port, or did not.
    Ports(Option<Mapping>),
    /// A promise of the stamps is to be kept, in seconds since 1970.
    Promise(u64),
    /// What a path to this peer has left was measured, or was not.
    Bandwidth(noise::PublicKey, Found),
    /// A client of the SOCKS door wants a circuit.
    Door(DoorAsk),
    /// The end.
    Stop {
        /// Somebody asked for it; nothing failed.
        is_asked: bool,
    },
}

/// The port when none is named; another one is taken where this one is not free.
pub const PORT: u16 = 41_820;

/// Why the daemon ends.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The data loop is gone, which has its own reason.
    Gone,
}

impl From<Gone> for Fault {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

/// The daemon.
pub(crate) struct Daemon {
    pub(crate) state: State,
    pub(crate) remote: Remote,
    pub(crate) interface: Interface,
    /// Names, subnets and exits.
    pub(crate) gate: Gate,
    /// What is behind this node.
    pub(crate) lan: Lan,
    pub(crate) failover: Failover,
    /// The port to listen on, and whether a user named it.
    pub(crate) port: (u16, bool),
    pub(crate) inputs: SyncSender<Input>,
    pub(crate) membership: Option<Membership>,
    /// Streams to relays, while there is a membership.
    pub(crate) relays: Option<Relays>,
    /// Whether they and the server are asked by ping.
    pub(crate) pings: Pings,
    pub(crate) map: Option<Arc<Map>>,
    /// What is in force.
    pub(crate) plan: Plan,
    pub(crate) is_up: bool,
    /// The server answered last, as far as we know.
    pub(crate) is_in_touch: bool,
    pub(crate) trouble: Option<String>,
    pub(crate) refusal: Option<Refusal>,
    /// Where somebody has to sign in before this machine is in.
    pub(crate) link: Option<SignInLink>,
    /// What else a user should know.
    pub(crate) complaint: Option<String>,
    /// The time, and where peers were reached.
    pub(crate) seen: Seen,
    unsaved: Option<Vec<Arc<control::Signed>>>,
    saved_at: Instant,
    pub(crate) renewal: Renewal,
    looked_at: Instant,
    /// When the server was told how links are.
    pub(crate) links_at: Instant,
    /// A change of settings that waits for its exit.
    pub(crate) waiting: Option<Waiting>,
    /// Who waits to hear which exit is used.
    pub(crate) choosing: Option<set::Choosing>,
    /// When settings on trial go back.
    pub(crate) trial_until: Option<Instant>,
    /// Who waits to hear what the server makes of another name.
    pub(crate) naming: Option<Naming>,
    pub(crate) leaving: Option<(Instant, SyncSender<Value>)>,
    pub(crate) told: Told,
    /// The rules that the data loop was told last.
    pub(crate) rules: Option<String>,
    /// What the data loop was told that this machine answers for.
    pub(crate) served: Option<Served>,
    /// Asks the gateway for a port, unless nobody wants that, and what came of it.
    pub(crate) ports: Option<Ports>,
    pub(crate) mapping: Option<Mapping>,
    /// Where promises of the stamps are kept, if they can be.
    pub(crate) promise: Option<Promise>,
    /// Whom systemd asks whether we live, if it does.
    pub(crate) watchdog: Option<Watchdog>,
    /// The last lines of the log.
    pub(crate) last_lines: fn() -> String,
    /// Another machine was seen to use this node's key.
    pub(crate) has_twin: bool,
    /// The relay on which we wait.
    pub(crate) home: Home,
    /// Circuits that are wanted, and what was told of them.
    pub(crate) circuits: Kept,
    /// What paths have left, as far as somebody wanted to know.
    pub(crate) bandwidths: Bandwidths,
    /// What is told on of a LAN's services.
    pub(crate) mdns: Option<(Mdns, host::names::mdns::Relay)>,
    /// An address that a pair shares on its LAN; when that was tried, and why it is not so.
    sharing: Option<Sharing>,
    sharing_tried: Option<Instant>,
    sharing_why: Option<String>,
    /// Whether the server was told that it is held.
    sharing_told: bool,
}

impl Daemon {
    pub(crate) fn new(
        state: State,
        remote: Remote,
        interface: Interface,
        gate: Gate,
        port: (u16, bool),
        inputs: SyncSender<Input>,
    ) -> Self {
        let seen = Seen::open(&state);
        Self {
            state,
            remote,
            interface,
            gate,
            lan: Lan::default(),
            failover: Failover::default(),
            port,
            inputs,
            membership: None,
            relays: None,
            pings: Pings::default(),
            map: None,
            plan: Plan::default(),
            is_up: false,
            is_in_touch: false,
            trouble: None,
            refusal: None,
            link: None,
            complaint: None,
            seen,
            unsaved: None,
            saved_at: Instant::now(),
            renewal: Renewal::default(),
            looked_at: Instant::now(),
            links_at: Instant::now(),
            waiting: None,
            choosing: None,
            trial_until: None,
            naming: None,
            leaving: None,
            told: Told::default(),
            rules: None,
            served: None,
            ports: None,
            mapping: None,
            promise: None,
            watchdog: None,
            last_lines: String::new,
            has_twin: false,
            home: Home::default(),
            circuits: Kept::default(),
            bandwidths: Bandwidths::default(),
            mdns: None,
            sharing: None,
            sharing_tried: None,
            sharing_why: None,
            sharing_told: false,
        }
    }

    /// Serves until the end; whether somebody asked for that.
    fn serve(&mut self, received: &Receiver<Input>) -> Result<bool, Fault> {
        self.end_trial()?;
        if self.state.kept.wanted && self.state.kept.member.is_some() {
            self.start()?;
        } else if let Err(why) = self.gate.clear() {
            self.complain(&why);
        }
        loop {
            match received.recv_timeout(TICK) {
                Ok(Input::Stop { is_asked }) => return Ok(is_asked),
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
                Ok(Input::News) => self.take_news()?,
                Ok(Input::Asked(asked)) => self.answer(*asked)?,
                Ok(Input::Network) => self.take_network_change()?,
                Ok(Input::Stun(found)) => self.take_stun(found)?,
                Ok(Input::Ports(mapping)) => self.take_ports(mapping)?,
                Ok(Input::Promise(promised_unix_s)) => self.keep_promise(promised_unix_s)?,
                Ok(Input::Bandwidth(key, found)) => self.take_bandwidth(key, found),
                Ok(Input::Door(ask)) => self.answer_door(ask)?,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.tick()?;
        }
    }

    /// Brings the interface up and the membership to life.
    pub(crate) fn start(&mut self) -> Result<(), Fault> {
        self.refusal = None;
        self.link = None;
        self.trouble = None;
        self.bring_up()?;
        self.tell_reach(true)?;
        let Some(member) = self.state.kept.member.clone() else { return Ok(()) };
        let token = member.token.as_ref().and_then(|text| Token::parse(text, Kind::Join).ok());
        let host = self.host_info()?;
        let kept = &self.state.kept;
        let settings = Opening {
            urls: member.urls,
            server: member.server,
            machine: kept.machine.clone(),
            node_key: kept.node.public(),
            next_key: kept.next.as_ref().map(PrivateKey::public),
            join: token.map(|token| (token.id, token.secret.clone())),
            signs_in: member.signs_in,
            verifying: member.verifying,
            host,
        };
        let proxies = Proxies::from_environment().unwrap_or_else(|error| {
            self.complaint = Some(format!("no proxy is used: {error}"));
            Proxies::default()
        });
        // The server and relays are reached beside an exit, as peers are.
        let proxies = proxies.with_mark(MARK).with_pings(self.pings.clone());
        self.pings.set_off(self.state.kept.settings.no_icmp);
        self.relays = self
            .remote
            .another()
            .map(Loop)
            .ok()
            .map(|hand| Relays::new(Arc::new(hand), proxies.clone()));
        let bell = self.inputs.clone();
        // A queue that is full wakes the loop anyway, and it then reads all there is.
        let notify = Notify(Box::new(move || drop(bell.try_send(Input::News))));
        // Who has yet to be let in has no map that holds.
        let cached = if member.signs_in { Vec::new() } else { self.state.map() };
        self.membership = None;
        match Membership::start(Start { settings, cached, proxies, notify }) {
            Ok(membership) => self.membership = Some(membership),
            Err(error) => self.complaint = Some(format!("cannot start a thread: {error}")),
        }
        Ok(())
    }

    /// Ends the membership and takes everything from the machine.
    pub(crate) fn stop(&mut self) -> Result<(), Fault> {
        self.save_map();
        self.membership = None;
        self.relays = None;
        self.link = None;
        self.is_in_touch = false;
        self.map = None;
        self.plan = Plan::default();
        self.told = Told::default();
        self.rules = None;
        self.home = Home::default();
        self.end_circuits()?;
        self.mdns = None;
        self.sharing = None;
        self.want_port(0, false);
        let _ = self.interface.set_up(false).map_err(|error| self.complain(&error));
        self.is_up = false;
        self.remote.call(|desk| {
            let _ = desk.configure(&[Change::ReplacePeers, Change::PrivateKey(None)]);
            let _ = desk.look();
        })?;
        // Last: what the filter kept out comes in no more (threat PF-02).
        if let Err(why) = self.gate.clear() {
            self.complain(&why);
        }
        Ok(())
    }

    fn bring_up(&mut self) -> Result<(), Fault> {
        self.served = None;
        self.tell_served()?;
        let is_known = !self.state.map().is_empty();
        self.gate.close(self.interface.name(), &self.state.kept.settings, is_known);
        if let Err(error) = self.interface.set_up(true) {
            self.complain(&error);
        }
        let key = self.state.kept.node.clone();
        let (port, is_named) = self.port;
        let failed = self.remote.call(move |desk| {
            let fwmark = Change::Fwmark(MARK);
            let changes = [Change::PrivateKey(Some(key)), fwmark, Change::ListenPort(port)];
            let first = desk.configure(&changes).and_then(|()| desk.look());
            match first {
                // Whoever did not name the port is content with another.
                Err(_) if !is_named => {
                    desk.configure(&[Change::ListenPort(0)]).and_then(|()| desk.look())
                }
                other => other,
            }
            .err()
            .map(|error| error.to_string())
        })?;
        if let Some(why) = failed {
            self.complain(&why);
        }
        self.is_up = true;
        Ok(())
    }

    pub(crate) fn complain(&mut self, why: &dyn std::fmt::Display) {
        let why = why.to_string();
        tracing::error!("{why}");
        self.complaint = Some(why);
    }

    fn take_network_change(&mut self) -> Result<(), Fault> {
        if self.membership.is_none() {
            return Ok(());
        }
        if let Err(error) = self.interface.fit() {
            self.complain(&error);
        }
        self.gate.stir();
        self.gate.look_if_due();
        self.tell_reach(true)?;
        self.report()?;
        if let Some(membership) = &self.membership {
            membership.network_changed();
        }
        if let Some(relays) = &self.relays {
            relays.handle_network_change();
        }
        Ok(())
    }

    fn note_member(&mut self, change: impl FnOnce(&mut Member)) {
        let Some(member) = &mut self.state.kept.member else { return };
        let before = member.clone();
        change(member);
        if before != *member {
            self.keep();
        }
    }

    /// Writes what is kept; a disk that is full is told, and tried again with the next change.
    pub(crate) fn keep(&mut self) {
        if let Err(error) = self.state.save() {
            self.complain(&error);
        }
    }

    fn save_map(&mut self) {
        let Some(statements) = self.unsaved.take() else { return };
        self.saved_at = Instant::now();
        if let Err(error) = self.state.save_map(&statements) {
            self.complain(&error);
            self.unsaved = Some(statements);
        }
    }

    /// The time by the server's clock, as far as it is known.
    pub(crate) fn now_unix_s(&self) -> u64 {
        self.seen.now_unix_s(self.map.as_deref().map_or(0, |map| map.made_unix_s))
    }

    /// Brings the machine in line with map and settings.
    pub(crate) fn apply(&mut self) -> Result<(), Fault> {
        let Some(map) = &self.map else { return Ok(()) };
        let settings = &self.state.kept.settings;
        let now = self.now_unix_s();
        let chosen = self.failover.look(map, settings, now, &self.plan, &self.remote)?;
        let plan = Plan::new(map, settings, now, &chosen);
        self.keep_relays();
        self.put(plan)?;
        self.failover.ask_exits();
        self.apply_gate();
        self.tell_circuits()?;
        self.keep_mdns();
        self.tell_served()
    }

    fn apply_gate(&mut self) {
        let name = self.interface.name();
        let settings = &self.state.kept.settings;
        self.gate.apply(name, self.map.as_deref(), &self.plan, settings);
    }

    /// Streams to the relays of the map, and to no others.
    fn keep_relays(&mut self) {
        let (Some(relays), Some(map)) = (&mut self.relays, &self.map) else { return };
        if let Err(error) = relays.set(&map.relays, &self.state.kept.node) {
            self.complain(&error);
        }
    }

    fn put(&mut self, plan: Plan) -> Result<(), Fault> {
        if plan == self.plan {
            return Ok(());
        }
        let mut changes = plan.changes_since(&self.plan);
        for change in &mut changes {
            // After a start a plain peer does not know that its session is gone, and waits.
            let Change::Peer(change) = change else { continue };
            let is_new = !self.plan.peers.contains_key(&change.key);
            if is_new && plan.peers.get(&change.key).is_some_and(|peer| peer.carried) {
                change.endpoint = self.seen.reached(&change.key);
            }
        }
        let mut moved = plan.moved_since(&self.plan);
        for (key, candidates) in &mut moved {
            candidates.extend(self.seen.reached(key).map(Candidate::Udp));
        }
        let failed = self.remote.call(move |desk| {
            let failed = desk.configure(&changes).err();
            let (node, clock, _) = desk.node();
            for (key, candidates) in &moved {
                node.set_candidates(key, candidates, clock.now);
            }
            failed
        })?;
        if let Some(error) = failed {
            self.complain(&error);
        }
        if let Err(error) = self.interface.apply(&plan) {
            self.complain(&error);
        }
        self.plan = plan;
        Ok(())
    }

    fn tick(&mut self) -> Result<(), Fault> {
        self.tell_watchdog()?;
        if self.unsaved.is_some() && self.saved_at.elapsed() >= SAVE_EVERY {
            self.save_map();
        }
        if self.leaving.as_ref().is_some_and(|(since, _)| since.elapsed() >= LOGOUT_WITHIN) {
            tracing::warn!("the server was not told of the logout: it does not answer");
            self.left(false)?;
        }
        if let Some(waiting) = self.waiting.take() {
            self.answer_set(waiting)?;
        }
        self.tell_exit()?;
        self.tell_name();
        if self.trial_until.is_some_and(|at| Instant::now() >= at) {
            self.end_trial()?;
        }
        if self.membership.is_some() {
            self.gate.look_if_due();
        }
        if self.map.is_some() {
            self.look_at_reach()?;
            self.keep_circuits()?;
            self.keep_sharing()?;
            if self.looked_at.elapsed() >= LOOK_EVERY || self.failover.is_settling() {
                self.looked_at = Instant::now();
                self.look_for_twin();
                self.apply()?;
                self.note_reached()?;
                self.renew();
                if !self.lan.down().is_empty() {
                    self.report()?;
                }
            }
            self.tell_links()?;
        }
        Ok(())
    }

    /// Says that both loops live: this one by saying it, the other one by having answered.
    fn tell_watchdog(&mut self) -> Result<(), Fault> {
        if let Some(watchdog) = self.watchdog.as_mut().filter(|watchdog| watchdog.is_due()) {
            self.remote.call(|_| ())?;
            watchdog.tell();
        }
        Ok(())
    }
}
