//! Taking the books as a whole: at a start, and when what they have may be other than what is
//! known here; the epoch of all that; and how much of it there is.

use std::collections::BTreeSet;
use std::sync::Arc;

use control::{Poll, Relay};

use super::{Change, Network, Shared};
use crate::clock::Moment;
use crate::hooks::watch::{Seen, View};
use crate::policy::Rulebook;
use crate::resolvers::Resolvers;
use crate::store::{Node, PolicyText, Store, Stored, User};

impl Network {
    /// The network as it is in the books, in a new epoch. `shared` has the server's own relay, if
    /// it is one.
    pub(crate) fn read(store: &mut Store, shared: Shared, now: Moment) -> Stored<Self> {
        let epoch = store.next_epoch(now.unix_s, 0)?;
        let users = store.users()?;
        let book = Rulebook::new(store.policy()?.as_ref());
        let mut network = Self::new(shared, epoch, store.nodes()?, users, book, now);
        network.set_relays(store.relays()?);
        network.set_resolvers(store.resolvers()?);
        Ok(network)
    }

    /// Takes everything as it is in the books; what is no news is left alone.
    pub(crate) fn read_again(
        &mut self,
        people: (Vec<Node>, Vec<User>),
        policy: Option<&PolicyText>,
        others: (Vec<Relay>, Resolvers),
        now: u64,
    ) {
        let (nodes, users) = people;
        let (relays, resolvers) = others;
        let there: BTreeSet<u64> = nodes.iter().map(|node| node.id).collect();
        let gone = self.nodes.keys().filter(|id| !there.contains(id)).copied();
        for id in gone.collect::<Vec<_>>() {
            self.remove(id);
        }
        for mut node in nodes {
            let known = self.nodes.get(&node.id);
            // When it was last seen is known better here.
            node.last_seen = known.map_or(node.last_seen, |known| known.last_seen);
            if known.is_none_or(|known| **known != node) {
                self.put(node, true, now);
            }
        }
        if self.users != users {
            self.set_users(users);
        }
        if self.book.version() != policy.map_or(0, |policy| policy.version) {
            self.book = Rulebook::new(policy);
            self.generation += 1;
            self.note(Change::Policy);
        }
        if !self.shared.relays.iter().filter(|relay| relay.id != 0).eq(&relays) {
            self.set_relays(relays);
        }
        if self.shared.resolvers != resolvers {
            self.set_resolvers(resolvers);
        }
    }

    /// How many nodes are in the books, are in touch, wait for approval, have a key that is over.
    pub(crate) fn count(&self, now: u64) -> [usize; 4] {
        let count = |is: &dyn Fn(&Node) -> bool| self.nodes.values().filter(|n| is(n)).count();
        let online = self.presence.values().filter(|presence| presence.is_online).count();
        let waiting = count(&|node| !node.approved);
        [self.nodes.len(), online, waiting, count(&|node| node.is_expired(now))]
    }

    /// The network as webhooks look at it. Whether a node is in touch is not known after a start
    /// before it was once.
    pub(crate) fn view(&self, now: u64) -> View {
        let seen = |node: &Arc<Node>| {
            let presence = self.presence.get(&node.id).copied().unwrap_or_default();
            let online = presence.was_online.then_some(presence.is_online);
            (node.id, Seen { node: Arc::clone(node), online })
        };
        let nodes = self.nodes.values().map(seen).collect();
        View { at: now, policy_version: self.policy_version(), nodes }
    }

    /// Each node's name, whether it is in touch, when it was last, and when its key ends, in Unix
    /// seconds; plain peers are never in touch.
    pub(crate) fn watched(&self) -> Vec<(String, bool, Option<u64>, Option<u64>)> {
        let own = self.nodes.values().filter(|node| node.gateway.is_none());
        own.map(|node| {
            let presence = self.presence.get(&node.id).copied().unwrap_or_default();
            let seen = node.last_seen.max(presence.was_online.then_some(presence.seen_unix_s));
            (node.name.clone(), presence.is_online, seen, node.expires)
        })
        .collect()
    }

    /// Whether a node has a map that this server, since its start, cannot have told it of: of a
    /// later epoch, or of this one, though it was told nothing yet or nothing so late. Then the
    /// books were put back, and epochs before and after happen to be the same (threat CO-17).
    pub(crate) fn is_ahead(&self, id: u64, poll: &Poll) -> bool {
        let is_unheard = poll.sequence > self.sequence || !self.memory.has(id);
        poll.epoch > self.epoch || poll.epoch == self.epoch && is_unheard
    }

    /// Begins another epoch: everybody gets a whole map.
    pub(crate) fn begin_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.note(Change::Policy);
        self.log.clear();
        self.floor = self.sequence;
    }

    /// The epoch of this start's maps.
    pub(crate) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The version of the policy; 0 if there is none.
    pub(crate) const fn policy_version(&self) -> u64 {
        self.book.version()
    }
}
