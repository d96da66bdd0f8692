//! Taking the books as a whole: at a start, and when what they have may be other than what is
//! known here.

use std::collections::BTreeSet;

use control::Relay;

use super::{Change, Network, Shared};
use crate::app::Moment;
use crate::policy::Rulebook;
use crate::store::{Node, PolicyText, Store, Stored};

impl Network {
    /// The network as it is in the books, in a new epoch. `shared` has the server's own relay, if
    /// it is one.
    pub(crate) fn read(store: &mut Store, shared: Shared, now: Moment) -> Stored<Self> {
        let epoch = store.next_epoch(now.unix_s)?;
        let users = store.users()?.into_iter().map(|user| user.name).collect();
        let book = Rulebook::new(store.policy()?.as_ref());
        let mut network = Self::new(shared, epoch, (store.nodes()?, users), book, now);
        network.set_relays(store.relays()?);
        Ok(network)
    }

    /// Takes everything as it is in the books; what is no news is left alone.
    pub(crate) fn read_again(
        &mut self,
        (nodes, users): (Vec<Node>, Vec<String>),
        policy: Option<&PolicyText>,
        relays: Vec<Relay>,
        now: u64,
    ) {
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
    }
}
