//! What all requests share: the books, the network in memory, open channels, and the signal that
//! something changed.
//!
//! Two locks, always in this order: the store, then the network. A write holds the store's until
//! the network has taken what was committed; maps are made under the network's alone.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use ::policy::Finding;
use control::name::SITES_TAG;
use control::{Kind, LinkReport, Poll, ServerUrl, Signed, Token};
use noise::PublicKey;
use tokio::sync::{Semaphore, watch};

use crate::channels::Channels;
use crate::clock::{Clock, Moment};
use crate::copies::Copies;
use crate::doorstep::Doorstep;
use crate::events::Events;
use crate::held::held;
use crate::hooks::Hooks;
use crate::keys::{Keys, SystemRandom};
use crate::knocks::Knocks;
use crate::limits::{self, Limits};
use crate::links::Links;
use crate::network::{Network, News};
use crate::oidc::Oidc;
use crate::paths::Hours;
use crate::policy::{self, Checked};
use crate::relay::{Members, Relay};
use crate::resolvers::Resolvers;
use crate::store::{Enrolment, Node, Secrets, Store, StoreError, Stored, Unwritten};
use crate::tls::Outer;

/// How long an ephemeral node may be away, in seconds.
pub(crate) const EPHEMERAL_AWAY_S: u64 = 300;
/// How often a member's word may begin an epoch, and how far before the clock: ten years.
const OVERTAKE_EVERY_S: u64 = 10;
const EPOCH_AHEAD_MAX_S: u64 = 10 * 366 * 86_400;

/// Threads that work for those who have proven nothing, of those that may wait.
const UNPROVEN_MAX: usize = 4;
/// Passwords that are hashed at a time: 19 MiB each.
const HASHING_MAX: usize = 2;
/// The books are well for so long after a look at them, in seconds; the sweep looks each second.
const WELL_FOR_S: u64 = 5;

/// Why a policy was not set.
pub(crate) enum Unset {
    /// Mistakes in it.
    Findings(Vec<Finding>),
    /// The store did not take it.
    Store(StoreError),
}

/// What all requests share.
pub(crate) struct App {
    store: Mutex<Store>,
    /// To be read without the lock.
    store_errors: Arc<AtomicU64>,
    /// Why the books cannot be written, to be asked without them.
    pub(crate) unwritten: Arc<Unwritten>,
    /// What every join key and API token opens, to be asked without the books.
    pub(crate) secrets: Arc<Secrets>,
    /// Until when the books are taken for well, by the clock that only grows.
    well_until_s: AtomicU64,
    network: Mutex<Network>,
    /// Places for the work of those who have proven nothing.
    pub(crate) unproven: Arc<Semaphore>,
    /// Places for the work that a password costs.
    pub(crate) hashing: Arc<Semaphore>,
    pub(crate) channels: Mutex<Channels>,
    pub(crate) keys: Keys,
    pub(crate) copies: Copies,
    pub(crate) urls: Vec<ServerUrl>,
    pub(crate) terms: Enrolment,
    pub(crate) limits: Arc<Limits>,
    links: Mutex<Links>,
    hours: Mutex<Hours>,
    /// Whether nodes may report how their links are.
    pub(crate) takes_links: AtomicBool,
    /// Who else says who somebody is.
    pub(crate) oidc: OnceLock<Arc<Oidc>>,
    /// Machines that wait for somebody to let them in.
    pub(crate) knocks: Knocks,
    pub(crate) doorstep: Arc<Doorstep>,
    pub(crate) relay: Arc<Relay>,
    pub(crate) outer: Arc<Outer>,
    /// Who is told of what happens.
    pub(crate) hooks: Hooks,
    changed: watch::Sender<u64>,
    pub(crate) events: Events,
    clock: Clock,
    /// When a member's map was last overtaken, by the clock that only grows.
    overtaken_at_s: Mutex<Option<u64>>,
    /// Why this server has to end: another has the books, or a task of its own is no more.
    pub(crate) ends: watch::Sender<Option<String>>,
}

impl App {
    pub(crate) fn new(
        store: Store,
        network: Network,
        tools: (Keys, Copies, Hooks),
        urls: Vec<ServerUrl>,
        terms: Enrolment,
        clock: Clock,
        outer: Arc<Outer>,
    ) -> Arc<Self> {
        let (keys, copies, hooks) = tools;
        let (changed, _) = watch::channel(network.sequence());
        Arc::new_cyclic(|app| Self {
            relay: Relay::new(keys.noise.clone(), Box::new(Books(Weak::clone(app)))),
            store_errors: store.errors(),
            unwritten: store.unwritten(),
            secrets: store.secrets(),
            well_until_s: AtomicU64::new(clock().up_s + WELL_FOR_S),
            unproven: Arc::new(Semaphore::new(UNPROVEN_MAX)),
            hashing: Arc::new(Semaphore::new(HASHING_MAX)),
            store: Mutex::new(store),
            network: Mutex::new(network),
            channels: Mutex::new(Channels::default()),
            keys,
            copies,
            urls,
            terms,
            limits: Limits::new(),
            links: Mutex::default(),
            hours: Mutex::default(),
            takes_links: AtomicBool::new(true),
            oidc: OnceLock::new(),
            knocks: Knocks::new(),
            doorstep: Doorstep::new(),
            outer,
            hooks,
            changed,
            events: Events::new(),
            clock,
            overtaken_at_s: Mutex::new(None),
            ends: watch::channel(None).0,
        })
    }

    /// Tells pages that are open that something changed.
    pub(crate) fn tell(&self, kind: &'static str, id: u64) {
        self.events.tell(kind, id);
    }

    /// Unix seconds.
    pub(crate) fn now(&self) -> u64 {
        self.moment().unix_s
    }

    pub(crate) fn moment(&self) -> Moment {
        (self.clock)()
    }

    /// The books, to read or to write what no map shows.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        held(&self.store)
    }

    /// Whether the books could be read when they were last looked at, which is not long ago.
    pub(crate) fn is_well(&self) -> bool {
        self.moment().up_s < self.well_until_s.load(Ordering::Relaxed)
    }

    /// Times that the books could not be read or written.
    pub(crate) fn store_errors(&self) -> u64 {
        self.store_errors.load(Ordering::Relaxed)
    }

    /// What nodes reported of their links.
    pub(crate) fn links(&self) -> MutexGuard<'_, Links> {
        held(&self.links)
    }

    /// What gateways reported of their paths, of this hour.
    pub(crate) fn hours(&self) -> MutexGuard<'_, Hours> {
        held(&self.hours)
    }

    /// The network, to read.
    pub(crate) fn network(&self) -> MutexGuard<'_, Network> {
        held(&self.network)
    }

    /// Wakes when something changes from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Writes to a node and tells the network. `own` if what the node itself is told changes.
    pub(crate) fn write_node(
        &self,
        own: bool,
        work: impl FnOnce(&mut Store, u64) -> Stored<Node>,
    ) -> Stored<Node> {
        let now = self.now();
        let mut store = self.store();
        let node = work(&mut store, now)?;
        self.touch(|network| network.put(node.clone(), own, now));
        Ok(node)
    }

    /// Approves what a node offers to route and the policy approves by itself (threat PF-12).
    pub(crate) fn approve_automatic(&self, id: u64) {
        let now = self.now();
        let mut store = self.store();
        let routes = held(&self.network).automatic_routes(id, now);
        if routes.is_empty() {
            return;
        }
        match store.add_routes(id, &routes, "policy", now) {
            Ok(node) => self.touch(|network| network.put(node, true, now)),
            Err(error) => tracing::warn!(%error, id, "cannot approve routes as the policy says"),
        }
    }

    /// Removes a node that leaves; it and its peers are told at once.
    pub(crate) fn remove_node(&self, id: u64, actor: &str) -> Stored<()> {
        self.take_out(&mut self.store(), id, |store, id| store.remove(id, actor, self.now()))
    }

    /// Takes a node out, and before that those that it carries, which nobody reaches without it.
    fn take_out(
        &self,
        store: &mut Store,
        id: u64,
        remove: impl Fn(&mut Store, u64) -> Stored<()>,
    ) -> Stored<()> {
        let carried = self.network().carried_by(id);
        for id in carried.into_iter().chain([id]) {
            remove(store, id)?;
            self.touch(|network| network.remove(id));
        }
        Ok(())
    }

    /// The same by an administrator, who may give its name to another machine at once.
    pub(crate) fn dismiss_node(&self, id: u64, actor: &str) -> Stored<()> {
        self.take_out(&mut self.store(), id, |store, id| store.dismiss(id, actor, self.now()))
    }

    /// Writes to the users and tells the network, whose policy may speak of them.
    pub(crate) fn write_users<T>(
        &self,
        work: impl FnOnce(&mut Store, u64) -> Stored<T>,
    ) -> Stored<T> {
        let mut store = self.store();
        let done = work(&mut store, self.now())?;
        let users = store.users()?;
        self.touch(|network| network.set_users(users));
        Ok(done)
    }

    /// Checks a policy against the books as they are, and changes nothing.
    ///
    /// # Errors
    /// Every mistake.
    pub(crate) fn check_policy(&self, text: &str) -> Result<Checked, Vec<Finding>> {
        let now = self.now();
        let network = self.network();
        let directory = network.directory(now);
        let groups = network.groups();
        drop(network);
        policy::check(text, &directory, &groups)
    }

    /// Checks, stores and publishes a policy: its version, and what to warn of.
    pub(crate) fn set_policy(
        &self,
        text: &str,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<(u64, Checked), Unset> {
        let mut store = self.store();
        // What does not compile never gets into the books, so the last good one holds.
        let mut checked = self.check_policy(text).map_err(Unset::Findings)?;
        let version = store.set_policy(text, expected, actor, self.now()).map_err(Unset::Store)?;
        let policy = std::mem::take(&mut checked.policy);
        if policy.hides_links {
            self.links().clear();
            self.hours().clear();
            store.forget_hours().map_err(Unset::Store)?;
        }
        self.touch(|network| network.set_policy(version, policy));
        drop(store);
        let ids = self.network().ids();
        ids.into_iter().for_each(|id| self.approve_automatic(id));
        Ok((version, checked))
    }

    /// Stores and publishes the resolvers of other names, which were checked.
    pub(crate) fn set_resolvers(&self, new: &Resolvers, actor: &str) -> Stored<()> {
        let mut store = self.store();
        if store.set_resolvers(new, actor, self.now())? {
            self.touch(|network| network.set_resolvers(new.clone()));
        }
        Ok(())
    }

    /// Changes the network in memory and wakes who waits if that is news.
    pub(crate) fn touch<T>(&self, work: impl FnOnce(&mut Network) -> T) -> T {
        let mut network = held(&self.network);
        let before = network.sequence();
        let done = work(&mut network);
        let after = network.sequence();
        network.changes_since(before, |kind, id| self.events.tell(kind, id));
        drop(network);
        self.changed.send_if_modified(|told| {
            // Out of order only between two threads here; the receiver asks for what is now.
            let is_news = *told != after;
            *told = after;
            is_news
        });
        done
    }

    /// Changes the network in memory and wakes nobody: the next sweep does.
    pub(crate) fn touch_quietly(&self, work: impl FnOnce(&mut Network)) {
        let mut network = held(&self.network);
        let before = network.sequence();
        work(&mut network);
        network.changes_since(before, |kind, id| self.events.tell(kind, id));
    }

    /// What a poll is told.
    pub(crate) fn news(&self, machine: &PublicKey, node_key: &PublicKey, poll: &Poll) -> News {
        let Moment { unix_s, up_s } = self.moment();
        let may_have_whole = || self.limits.member(machine, limits::Kind::Map, up_s);
        held(&self.network).news(machine, node_key, poll, unix_s, may_have_whole)
    }

    /// A member has a map of a later epoch than this server's: its books or its clock were put
    /// back (threat CO-17). Without an epoch that is later still, that member would take no map
    /// from here, not even one that revokes something.
    ///
    /// A member that lies can make everybody fetch a whole map every ten seconds, and no epoch lies
    /// more than [`EPOCH_AHEAD_MAX_S`] before the clock because of it.
    ///
    /// Returns whether this server's maps are later now.
    pub(crate) fn overtake(&self, id: u64, poll: &Poll) -> bool {
        let moment = self.moment();
        let seen = poll.epoch;
        let mut store = self.store();
        let mut last = held(&self.overtaken_at_s);
        // Another may have had it done meanwhile.
        if !self.network().is_ahead(id, poll) {
            return true;
        }
        let is_soon = last.is_some_and(|at| moment.up_s < at + OVERTAKE_EVERY_S);
        let is_far = seen > moment.unix_s.saturating_add(EPOCH_AHEAD_MAX_S);
        if is_soon || is_far {
            return false;
        }
        match store.next_epoch(moment.unix_s, seen) {
            Ok(epoch) => {
                *last = Some(moment.up_s);
                tracing::warn!(
                    seen,
                    epoch,
                    "a node has a later map than these books: they, or the clock, were put back; \
                     what was revoked since must be revoked again"
                );
                self.touch(|network| network.begin_epoch(epoch));
                true
            }
            Err(error) => {
                tracing::warn!(%error, "cannot begin a later epoch");
                false
            }
        }
    }

    /// Notes what a gateway of sites says of its paths to others.
    pub(crate) fn note_paths(&self, node: u64, links: &[LinkReport], now: u64) {
        let network = self.network();
        if network.bears(node, SITES_TAG) {
            self.hours().take(node, links, |peer| network.bears(peer, SITES_TAG), now);
        }
    }

    /// Regular work: who went away, whose key is over, which ephemeral nodes are to go.
    pub(crate) fn sweep(&self, ephemeral_away_s: u64) {
        let moment = self.moment();
        let Moment { unix_s: at, up_s } = moment;
        held(&self.channels).sweep(up_s);
        self.look_after_books(at);
        self.copies.sweep(up_s);
        self.knocks.sweep(up_s);
        if !self.links().is_empty() {
            let there: BTreeSet<u64> = self.network().ids().into_iter().collect();
            self.links().sweep(|id| there.contains(&id), at);
        }
        let ended = self.hours().ended(at);
        if !ended.is_empty()
            && let Err(error) = self.store().keep_hours(&ended, at)
        {
            tracing::warn!(%error, "an hour of the paths between gateways is not kept");
        }
        let away = self.touch(|network| network.sweep(moment));
        if !away.is_empty()
            && let Err(error) = self.store().note_seen(&away, at)
        {
            tracing::warn!(%error, "cannot note who went away");
        }
        let abandoned = self.network().abandoned(up_s, ephemeral_away_s);
        for id in abandoned {
            self.remove_abandoned(id, moment, ephemeral_away_s);
        }
        if !self.hooks.is_empty() {
            let network = self.network();
            let view = network.view(at);
            let epoch = network.epoch();
            drop(network);
            self.hooks.look(view, epoch, at);
        }
    }

    /// Reads everything again where the books may be other than what is known here: a commit
    /// failed so that nobody knows what it did, or the database was away (threat CO-16).
    fn look_after_books(&self, at: u64) {
        let store = self.store();
        let read = store.look().and_then(|is_uncertain| {
            store.is_empty()?;
            if !is_uncertain {
                return Ok(None);
            }
            store.read_secrets()?;
            let users = store.users()?;
            let other = (store.relays()?, store.resolvers()?);
            Ok(Some((store.nodes()?, users, store.policy()?, other)))
        });
        let until_s = if read.is_ok() { self.moment().up_s + WELL_FOR_S } else { 0 };
        self.well_until_s.store(until_s, Ordering::Relaxed);
        match read {
            Ok(None) => {}
            Ok(Some((nodes, users, policy, other))) => {
                self.touch(|network| {
                    network.read_again((nodes, users), policy.as_ref(), other, at);
                });
                store.is_read_again();
            }
            Err(StoreError::Conflict(why)) => {
                tracing::error!(why, "another server took over; this one ends");
                self.ends.send_replace(Some(why));
            }
            Err(error) => tracing::warn!(%error, "the books cannot be read"),
        }
    }

    /// Asked again under the store's lock: the node may have come back (threat CO-15).
    fn remove_abandoned(&self, id: u64, at: Moment, ephemeral_away_s: u64) {
        let mut store = self.store();
        if !self.network().abandoned(at.up_s, ephemeral_away_s).contains(&id) {
            return;
        }
        let remove = |store: &mut Store, id| store.remove(id, "server", at.unix_s);
        if let Err(error) = self.take_out(&mut store, id, remove) {
            tracing::warn!(%error, id, "cannot remove an ephemeral node");
        }
    }

    /// Signs the text of a map or a delta.
    pub(crate) fn sign(&self, statement: String, bare: bool) -> Signed {
        match bare {
            true => self.keys.signing.sign_bare(statement),
            false => self.keys.signing.sign(statement),
        }
    }

    /// A new token for this server.
    pub(crate) fn token(&self, kind: Kind) -> Token {
        Token::generate(kind, self.keys.noise.public(), &self.urls, &mut SystemRandom)
    }
}

/// The books as the relay asks them.
struct Books(Weak<App>);

impl Members for Books {
    fn keys(&self) -> BTreeSet<PublicKey> {
        self.0.upgrade().map(|app| app.network().current_keys(app.now())).unwrap_or_default()
    }

    fn is_member(&self, key: &PublicKey) -> bool {
        self.0.upgrade().is_some_and(|app| app.network().is_current(key, app.now()))
    }

    fn may_know(&self, one: &PublicKey, other: &PublicKey) -> bool {
        self.0.upgrade().is_some_and(|app| app.network().may_know(one, other, app.now()))
    }
}

#[cfg(test)]
mod tests;
