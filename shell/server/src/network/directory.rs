//! Whom a policy speaks of: users with their roles, and members with what they own.

use std::collections::BTreeMap;

use ::policy::Directory;
use noise::PublicKey;

use crate::policy::Groups;

use super::{Change, Network, is_member};

impl Network {
    /// What the policy speaks of: all users, and all members.
    pub(crate) fn directory(&self, now: u64) -> Directory {
        let members = self.nodes.values().filter(|node| is_member(node, now));
        let nodes: Vec<_> = members
            .map(|node| ::policy::Node {
                id: ::policy::NodeId(node.id),
                name: node.name.clone(),
                addresses: self.addresses(node),
                owner: node.user.clone(),
                tags: node.tags.clone(),
                routes: node.routes().into_iter().map(Into::into).collect(),
            })
            .collect();
        let users = self.people(&nodes);
        let own = [self.shared.pool.v4(), self.shared.pool.v6()];
        let reserved = self.shared.reserved.iter().copied().chain(own).map(Into::into).collect();
        let carried = self.nodes.values().filter_map(|node| Some((node.id, node.gateway?)));
        let id = ::policy::NodeId;
        let carried = carried.map(|(peer, gateway)| (id(peer), id(gateway))).collect();
        Directory { users, nodes, reserved, carried }
    }

    /// Users as a policy speaks of them, and who else owns a node.
    fn people(&self, nodes: &[::policy::Node]) -> Vec<::policy::User> {
        let known = self.users.iter().map(|user| {
            let roles = user.role().autogroup().map(str::to_owned).into_iter().collect();
            let email = user.email.clone();
            (&user.name, ::policy::User { name: user.name.clone(), email, roles })
        });
        let mut people: BTreeMap<&String, ::policy::User> = known.collect();
        for name in nodes.iter().filter_map(|node| node.owner.as_ref()) {
            let nobody = || ::policy::User { name: name.clone(), ..::policy::User::default() };
            people.entry(name).or_insert_with(nobody);
        }
        people.into_values().collect()
    }

    /// Who is in which group, by the word of a provider.
    pub(crate) fn groups(&self) -> Groups {
        let mut groups = Groups::new();
        for user in &self.users {
            for group in &user.groups {
                let members = groups.entry(format!("group:{group}")).or_default();
                members.insert(user.name.clone());
            }
        }
        groups
    }

    /// The changes behind this sequence, as pages are told of them: kind and number.
    pub(crate) fn changes_since(&self, sequence: u64, mut tell: impl FnMut(&'static str, u64)) {
        let first = self.log.partition_point(|(at, _)| *at <= sequence);
        for (_, change) in self.log.range(first..) {
            match *change {
                Change::Policy => tell("policy", 0),
                Change::Node { id, .. } | Change::Presence { id } => tell("node", id),
            }
        }
    }

    /// Whether this machine is in the books with a key that is not over.
    pub(crate) fn is_in(&self, machine: &PublicKey, now: u64) -> bool {
        let node = self.machines.get(machine).and_then(|id| self.nodes.get(id));
        node.is_some_and(|node| !node.is_expired(now))
    }

    /// Whose a node is, if it is there.
    pub(crate) fn owner_of(&self, id: u64) -> Option<Option<String>> {
        self.nodes.get(&id).map(|node| node.user.clone())
    }
}
