//! The service itself, from a sealed request to the file of its books: without HTTP, TLS and the
//! machine's clock, for worlds that have one virtual time.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};

use ::policy::Finding;
use control::client::Outcome;
use control::{Relay, ServerUrl, SigningKey};
use noise::{PrivateKey, Random};

use crate::app::{App, Unset};
use crate::clock::Moment;
use crate::copies::Copies;
use crate::doorstep::Way;
use crate::hooks::Hooks;
use crate::keys::Keys;
use crate::network::{Network, Shared};
use crate::protocol::{self, Failure};
use crate::resolvers::Resolvers;
use crate::store::{Enrolment, Node, Place, Store, StoreError, Stored};
use crate::tls::Outer;

/// What a service is started with.
pub struct Founding<'a> {
    /// The folder of its books.
    pub folder: &'a Path,
    /// The key that tokens pin.
    pub noise: PrivateKey,
    /// What maps are signed with.
    pub signing: SigningKey,
    /// What secrets are hashed with.
    pub pepper: [u8; 32],
    /// What nodes are told to connect to.
    pub url: ServerUrl,
    /// What nodes are told to ask for their addresses.
    pub stun: Vec<String>,
    /// What those who join are given.
    pub terms: Enrolment,
    /// When its time begins, in Unix seconds.
    pub begin_s: u64,
    /// Seconds since then.
    pub up_s: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// Why a policy was not set.
#[derive(Debug)]
pub enum Refused {
    /// Mistakes in it.
    Findings(Vec<Finding>),
    /// The store did not take it.
    Store(StoreError),
}

/// A service that runs.
pub struct Service(Arc<App>);

impl Service {
    /// Starts as `warren serve` does: from the books, in a new epoch.
    ///
    /// # Errors
    /// If the books cannot be opened, or a file cannot be written.
    pub fn start(founding: Founding<'_>, random: &mut dyn Random) -> Result<Self, String> {
        let Founding { folder, noise, signing, pepper, url, stun, terms, begin_s, up_s } = founding;
        let place = Place::File(folder.join("warren.db"));
        let failed = |why: StoreError| why.to_string();
        let mut store = Store::open(&place, &pepper, None, random).map_err(failed)?;
        store.claim().map_err(failed)?;
        let own = Relay {
            id: 0,
            url: url.clone(),
            key: noise.public(),
            stun: Vec::new(),
            quic: false,
            icmp: false,
        };
        let shared = Shared {
            pool: store.pool(),
            domain: "warren.internal".to_owned(),
            stun,
            reserved: Vec::new(),
            relays: vec![own],
            urls: Vec::new(),
            resolvers: Resolvers::default(),
        };
        let clock = Box::new(move || {
            let up_s = up_s();
            Moment { unix_s: begin_s + up_s, up_s }
        });
        let network = Network::read(&mut store, shared, clock()).map_err(failed)?;
        let keys = Keys { noise, signing, pepper };
        let urls = vec![url];
        let outer = Outer::open(folder, None, &urls).map_err(|why| why.to_string())?;
        let copies = Copies::new(PathBuf::new());
        Ok(Self(App::new(
            store,
            network,
            (keys, copies, Hooks::default()),
            urls,
            terms,
            clock,
            outer,
        )))
    }

    /// Answers the first message of a channel.
    pub fn open(&self, message: Vec<u8>) -> impl Future<Output = Outcome> + Send + use<> {
        let app = Arc::clone(&self.0);
        async move { outcome(protocol::open(app, None, message).await) }
    }

    /// Answers one sealed request; a poll may wait.
    pub fn ask(&self, message: Vec<u8>) -> impl Future<Output = Outcome> + Send + use<> {
        let app = Arc::clone(&self.0);
        async move { outcome(protocol::ask(app, Way::default(), message).await) }
    }

    /// The epoch and the sequence of the latest change.
    #[must_use]
    pub fn version(&self) -> (u64, u64) {
        let network = self.0.network();
        (network.version() >> 32, network.sequence())
    }

    /// The books, to read or to write what no map shows.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        self.0.store()
    }

    /// Writes to a node and tells the network.
    ///
    /// # Errors
    /// Those of the work.
    pub fn write_node(&self, work: impl FnOnce(&mut Store, u64) -> Stored<Node>) -> Stored<Node> {
        self.0.write_node(true, work)
    }

    /// Writes to the users and tells the network.
    ///
    /// # Errors
    /// Those of the work.
    pub fn write_users<T>(&self, work: impl FnOnce(&mut Store, u64) -> Stored<T>) -> Stored<T> {
        self.0.write_users(work)
    }

    /// Removes a node; it and its peers are told at once.
    ///
    /// # Errors
    /// If there is no such node.
    pub fn remove_node(&self, id: u64, actor: &str) -> Stored<()> {
        self.0.remove_node(id, actor)
    }

    /// Adds a relay and tells the network.
    ///
    /// # Errors
    /// If it cannot be added.
    pub fn put_relay(&self, relay: Relay, actor: &str) -> Stored<()> {
        let now = self.0.now();
        self.store().put_relay(relay, None, true, actor, now)?;
        let relays = self.store().relays()?;
        self.0.touch(|network| network.set_relays(relays));
        Ok(())
    }

    /// Checks, stores and publishes a policy.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn set_policy(&self, text: &str, actor: &str) -> Result<(), Refused> {
        match self.0.set_policy(text, None, actor) {
            Ok(_) => Ok(()),
            Err(Unset::Findings(findings)) => Err(Refused::Findings(findings)),
            Err(Unset::Store(error)) => Err(Refused::Store(error)),
        }
    }

    /// What it does every second; an ephemeral node may be away for so long.
    pub fn sweep(&self, ephemeral_away_s: u64) {
        self.0.sweep(ephemeral_away_s);
    }

    /// Whether nothing it began goes on.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// What becomes of an answer on its way through HTTP.
fn outcome(answer: Result<Vec<u8>, Failure>) -> Outcome {
    match answer {
        Ok(body) => Outcome::Answered(body),
        Err(Failure::Malformed) => Outcome::NotUnderstood,
        Err(Failure::NoChannel) => Outcome::NoChannel,
        Err(Failure::Busy) => Outcome::Failed,
    }
}
