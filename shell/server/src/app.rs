//! What all requests share: the books, the network in memory, open channels, and the signal that
//! something changed.
//!
//! Two locks, always in this order: the store, then the network. A write holds the store's until
//! the network has taken what was committed; maps are made under the network's alone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use control::{Kind, ServerUrl, Signed, Statement, Token};
use tokio::sync::watch;

use crate::channels::Channels;
use crate::keys::{Keys, SystemRandom};
use crate::network::Network;
use crate::policy;
use crate::store::{Enrolment, Node, PolicyText, Store, StoreError, Stored};

/// How long an ephemeral node may be away, in seconds.
pub(crate) const EPHEMERAL_AWAY_S: u64 = 300;

/// What all requests share.
pub(crate) struct App {
    store: Mutex<Store>,
    network: Mutex<Network>,
    pub(crate) channels: Mutex<Channels>,
    pub(crate) keys: Keys,
    pub(crate) urls: Vec<ServerUrl>,
    pub(crate) terms: Enrolment,
    changed: watch::Sender<u64>,
}

/// A lock whose holder panicked is still a lock: every write is a transaction.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Unix seconds.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs())
}

impl App {
    pub(crate) fn new(
        store: Store,
        network: Network,
        keys: Keys,
        urls: Vec<ServerUrl>,
        terms: Enrolment,
    ) -> Arc<Self> {
        let (changed, _) = watch::channel(network.sequence());
        Arc::new(Self {
            store: Mutex::new(store),
            network: Mutex::new(network),
            channels: Mutex::new(Channels::default()),
            keys,
            urls,
            terms,
            changed,
        })
    }

    /// The books, to read or to write what no map shows.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        lock(&self.store)
    }

    /// The network, to read.
    pub(crate) fn network(&self) -> MutexGuard<'_, Network> {
        lock(&self.network)
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
        let now = now();
        let mut store = self.store();
        let node = work(&mut store, now)?;
        self.touch(|network| network.put(node.clone(), own, now));
        Ok(node)
    }

    /// Removes a node; it and its peers are told at once.
    pub(crate) fn remove_node(&self, id: u64, actor: &str) -> Stored<()> {
        let mut store = self.store();
        store.remove(id, actor, now())?;
        self.touch(|network| network.remove(id));
        Ok(())
    }

    /// Compiles, stores and publishes a policy: its version.
    pub(crate) fn set_policy(
        &self,
        text: String,
        expected: Option<u64>,
        actor: &str,
    ) -> Stored<u64> {
        let mut store = self.store();
        // What does not compile never gets into the books, so the last good one holds.
        policy::compile(&PolicyText { version: 0, text: text.clone() })
            .map_err(StoreError::Invalid)?;
        let version = store.set_policy(&text, expected, actor, now())?;
        let rules = policy::compile(&PolicyText { version, text }).map_err(StoreError::Invalid)?;
        self.touch(|network| network.set_policy(rules));
        Ok(version)
    }

    /// Changes the network in memory and wakes who waits if that is news.
    pub(crate) fn touch<T>(&self, work: impl FnOnce(&mut Network) -> T) -> T {
        let mut network = lock(&self.network);
        let before = network.sequence();
        let done = work(&mut network);
        let after = network.sequence();
        drop(network);
        if after != before {
            // Out of order only between two threads here; the receiver asks for what is now.
            self.changed.send_replace(after);
        }
        done
    }

    /// Regular work: who went away, whose key is over, which ephemeral nodes are to go.
    pub(crate) fn sweep(&self, ephemeral_away_s: u64) {
        let at = now();
        lock(&self.channels).sweep(at);
        let away = self.touch(|network| network.sweep(at));
        if !away.is_empty()
            && let Err(error) = self.store().note_seen(&away, at)
        {
            tracing::warn!(%error, "cannot note who went away");
        }
        let abandoned = self.network().abandoned(at, ephemeral_away_s);
        for id in abandoned {
            self.remove_abandoned(id, at, ephemeral_away_s);
        }
    }

    /// Asked again under the store's lock: the node may have come back (threat CO-15).
    fn remove_abandoned(&self, id: u64, at: u64, ephemeral_away_s: u64) {
        let mut store = self.store();
        if !self.network().abandoned(at, ephemeral_away_s).contains(&id) {
            return;
        }
        match store.remove(id, "server", at) {
            Ok(()) => self.touch(|network| network.remove(id)),
            Err(error) => tracing::warn!(%error, id, "cannot remove an ephemeral node"),
        }
    }

    /// Signs a map or a delta.
    pub(crate) fn sign(&self, statement: &Statement) -> Signed {
        let text = serde_json::to_string(statement).expect("a map has text as keys");
        self.keys.signing.sign(text)
    }

    /// A new token for this server.
    pub(crate) fn token(&self, kind: Kind) -> Token {
        Token::generate(kind, self.keys.noise.public(), &self.urls, &mut SystemRandom)
    }
}
